//! Ziplists and zipmaps, in which Redis packed small collections before version 7. Ziplists are
//! also written, as nodes of lists for old servers.
//!
//! ```text
//!   ziplist   length-of-all u32 | offset-of-last-entry u32 | entries u16 | entry … | FF
//!     entry   length of the entry before: n, or FE and u32 | head | payload
//!     head    00nnnnnn  string of 6 bits of length   01nnnnnn n  of 14 bits   10------ n*4  of 32
//!             C0 i16   D0 i32   E0 i64   F0 i24   FE i8   F1 to FD  the number 0 to 12
//!   zipmap    entries u8 | entry … | FF
//!     entry   length of the field | field | length of the value | unused u8 | value | unused bytes
//!     length  n up to 253, or FE and u32
//! ```
//! Numbers are little-endian, except the lengths of strings in ziplists. The structure is checked
//! while it is read: each entry must begin at the end of the previous one, and the number of
//! entries and the offset of the last one must be those of the header.

use structures::listpack::element::Element;

use super::error::FormatErrorKind::{self, BrokenZiplist, BrokenZipmap, Defect};

const HEADER_LEN_BYTES: usize = 10;
const END: u8 = 0xFF;
/// The value of the entry count in a ziplist's header that means that the real number of entries is
/// this or greater.
const COUNT_UNKNOWN: u16 = u16::MAX;
/// The first byte of a ziplist's entry that means that the previous entry's length is in the next
/// four bytes.
const BEFORE_LEN_IS_LONG: u8 = 0xFE;

/// An iterator over the entries of a ziplist, in order. It ends after an error.
pub(super) struct Ziplist<'a> {
    bytes: &'a [u8],
    at: usize,
    before_len: usize,
    count: u64,
    done: bool,
}

impl<'a> Ziplist<'a> {
    /// Creates an iterator over the ziplist in `bytes`. O(1): entries are checked as they are read.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, FormatErrorKind> {
        let ok = bytes.len() > HEADER_LEN_BYTES
            && bytes.last() == Some(&END)
            && u32_at(bytes, 0).is_some_and(|len| len as usize == bytes.len());
        let ziplist = Self { bytes, at: HEADER_LEN_BYTES, before_len: 0, count: 0, done: false };
        if ok { Ok(ziplist) } else { Err(BrokenZiplist) }
    }

    /// Returns an iterator over the entries of the ziplist in pairs: the first and second, the
    /// third and fourth, and so on.
    pub(super) fn pairs(
        mut self,
    ) -> impl Iterator<Item = Result<(Element<'a>, Element<'a>), FormatErrorKind>> {
        std::iter::from_fn(move || {
            let first = match self.next()? {
                Ok(first) => first,
                Err(kind) => return Some(Err(kind)),
            };
            Some(match self.next() {
                Some(second) => second.map(|second| (first, second)),
                None => Err(Defect(keyspace::PackDefect::HalfPair)),
            })
        })
    }

    /// Returns true if the entries that were read end at the terminator, and their number and the
    /// offset of the last one equal those in the header.
    fn ends_well(&self) -> bool {
        let last = self.at - self.before_len;
        let count = u16::from_le_bytes([self.bytes[8], self.bytes[9]]);
        self.at == self.bytes.len() - 1
            && u32_at(self.bytes, 4).is_some_and(|tail| tail as usize == last)
            && (count == COUNT_UNKNOWN || u64::from(count) == self.count)
    }

    /// Returns the next entry of the ziplist, and the offset at which the entry after it starts;
    /// `None` if the entry is broken.
    fn entry(&self) -> Option<(Element<'a>, usize)> {
        let mut at = self.at;
        let before = match self.take(&mut at, 1)? {
            [END] => return None,
            [0xFE] => u32_at(self.take(&mut at, 4)?, 0)? as usize,
            [len] => usize::from(*len),
            _ => return None,
        };
        if before != self.before_len {
            return None;
        }
        let &[head] = self.take(&mut at, 1)? else { return None };
        let low = usize::from(head & 0x3F);
        let string_len = match head >> 6 {
            0 => Some(low),
            1 => Some(low << 8 | usize::from(self.take(&mut at, 1)?[0])),
            2 => Some(u32::from_be_bytes(self.take(&mut at, 4)?.try_into().ok()?) as usize),
            _ => None,
        };
        if let Some(len) = string_len {
            return Some((Element::Bytes(self.take(&mut at, len)?), at));
        }
        let width = match head {
            0xC0 => 2,
            0xD0 => 4,
            0xE0 => 8,
            0xF0 => 3,
            0xFE => 1,
            0xF1..=0xFD => return Some((Element::Int(i64::from(head & 0x0F) - 1), at)),
            _ => return None,
        };
        // The payload becomes the highest bytes, and the arithmetic shift extends its sign.
        let mut word = [0; 8];
        word[8 - width..].copy_from_slice(self.take(&mut at, width)?);
        Some((Element::Int(i64::from_le_bytes(word) >> (64 - 8 * width)), at))
    }

    fn take(&self, at: &mut usize, len: usize) -> Option<&'a [u8]> {
        // The terminator is not part of an entry.
        let end = at.checked_add(len).filter(|&end| end < self.bytes.len())?;
        let taken = &self.bytes[*at..end];
        *at = end;
        Some(taken)
    }
}

impl<'a> Iterator for Ziplist<'a> {
    type Item = Result<Element<'a>, FormatErrorKind>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if self.at == self.bytes.len() - 1 {
            self.done = true;
            // In an empty ziplist, the offset of the last entry is that where the first would be.
            return if self.ends_well() { None } else { Some(Err(BrokenZiplist)) };
        }
        let Some((element, end)) = self.entry() else {
            self.done = true;
            return Some(Err(BrokenZiplist));
        };
        self.before_len = end - self.at;
        self.at = end;
        self.count += 1;
        Some(Ok(element))
    }
}

/// An iterator over the fields and values of a zipmap. It ends after an error.
pub(super) struct Zipmap<'a> {
    rest: &'a [u8],
    done: bool,
}

impl<'a> Zipmap<'a> {
    /// Creates an iterator over the zipmap in `bytes`. The count at its start is not used: writers
    /// stop counting at its maximum.
    pub(super) fn new(bytes: &'a [u8]) -> Result<Self, FormatErrorKind> {
        let (_, rest) = bytes.split_first().ok_or(BrokenZipmap)?;
        Ok(Self { rest, done: false })
    }

    fn length(&mut self) -> Option<usize> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        match first {
            END => None,
            0xFE => Some(u32_at(self.take(4)?, 0)? as usize),
            len => Some(usize::from(len)),
        }
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(taken)
    }

    fn pair(&mut self) -> Option<(&'a [u8], &'a [u8])> {
        let len = self.length()?;
        let field = self.take(len)?;
        let len = self.length()?;
        let unused = usize::from(self.take(1)?[0]);
        let value = self.take(len)?;
        self.take(unused)?;
        Some((field, value))
    }
}

impl<'a> Iterator for Zipmap<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), FormatErrorKind>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if self.rest == [END] {
            self.done = true;
            return None;
        }
        let pair = self.pair();
        self.done = pair.is_none();
        Some(pair.ok_or(BrokenZipmap))
    }
}

/// The error of a string or node that is too long for the RDB type as which it is written: it has 4
/// GiB or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// Creates a ziplist that holds these elements. O(bytes).
///
/// # Errors
/// If it would be longer than a ziplist can be.
pub(super) fn pack<'e>(elements: impl Iterator<Item = Element<'e>>) -> Result<Vec<u8>, TooLong> {
    let mut bytes = vec![0; HEADER_LEN_BYTES];
    let (mut last, mut count) = (HEADER_LEN_BYTES, 0_u16);
    for element in elements {
        let before_len = bytes.len() - last;
        last = bytes.len();
        match u8::try_from(before_len) {
            Ok(len @ ..BEFORE_LEN_IS_LONG) => bytes.push(len),
            _ => {
                bytes.push(BEFORE_LEN_IS_LONG);
                bytes.extend_from_slice(&u32::try_from(before_len).map_err(|_| TooLong)?.to_le_bytes());
            }
        }
        match element {
            Element::Int(number) => pack_int(number, &mut bytes),
            Element::Bytes(text) => {
                let len = u32::try_from(text.len()).map_err(|_| TooLong)?;
                match len {
                    0..0x40 => bytes.push(len as u8),
                    0x40..0x4000 => bytes.extend_from_slice(&[0x40 | (len >> 8) as u8, len as u8]),
                    _ => {
                        bytes.push(0x80);
                        bytes.extend_from_slice(&len.to_be_bytes());
                    }
                }
                bytes.extend_from_slice(text);
            }
        }
        count = count.saturating_add(1);
    }
    bytes.push(END);
    let len = u32::try_from(bytes.len()).map_err(|_| TooLong)?;
    bytes[..4].copy_from_slice(&len.to_le_bytes());
    bytes[4..8].copy_from_slice(&(last as u32).to_le_bytes());
    bytes[8..HEADER_LEN_BYTES].copy_from_slice(&count.to_le_bytes());
    Ok(bytes)
}

fn pack_int(number: i64, bytes: &mut Vec<u8>) {
    let all = number.to_le_bytes();
    let (head, len) = match number {
        0..=12 => (0xF1 + number as u8, 0),
        -0x80..0x80 => (0xFE, 1),
        -0x8000..0x8000 => (0xC0, 2),
        -0x80_0000..0x80_0000 => (0xF0, 3),
        -0x8000_0000..0x8000_0000 => (0xD0, 4),
        _ => (0xE0, 8),
    };
    bytes.push(head);
    bytes.extend_from_slice(&all[..len]);
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a ziplist as Redis 6.2 packs it: `["hello", 12, -1, 1000, 70000, -8000000, 1 << 40]`
    /// and a string of 70 bytes.
    fn ziplist() -> Vec<u8> {
        let mut entries: Vec<Vec<u8>> = vec![
            b"\x05hello".to_vec(),
            b"\xfd".to_vec(),
            b"\xfe\xff".to_vec(),
            b"\xc0\xe8\x03".to_vec(),
            b"\xf0\x70\x11\x01".to_vec(),
            b"\xd0\0\xee\x85\xff".to_vec(),
            b"\xe0\0\0\0\0\0\x01\0\0".to_vec(),
        ];
        entries.push([&b"\x40\x46"[..], &[b'x'; 70]].concat());
        let mut bytes = vec![0; HEADER_LEN_BYTES];
        let (mut before, mut tail) = (0, 0);
        for entry in &entries {
            tail = bytes.len();
            bytes.push(before);
            bytes.extend_from_slice(entry);
            before = entry.len() as u8 + 1;
        }
        bytes.push(END);
        let len = bytes.len() as u32;
        bytes[..4].copy_from_slice(&len.to_le_bytes());
        bytes[4..8].copy_from_slice(&(tail as u32).to_le_bytes());
        bytes[8] = entries.len() as u8;
        bytes
    }

    #[test]
    fn entries_of_each_kind_are_read() {
        let bytes = ziplist();
        let read: Result<Vec<_>, _> = Ziplist::new(&bytes).expect("a ziplist").collect();
        let long = [b'x'; 70];
        let expected = [
            Element::Bytes(b"hello"),
            Element::Int(12),
            Element::Int(-1),
            Element::Int(1000),
            Element::Int(70_000),
            Element::Int(-8_000_000),
            Element::Int(1 << 40),
            Element::Bytes(&long),
        ];
        assert_eq!(read, Ok(expected.to_vec()));
        assert_eq!(Ziplist::new(b"\x0b\0\0\0\x0a\0\0\0\0\0\xff").expect("empty").count(), 0);
    }

    #[test]
    fn what_the_header_says_must_be_so() {
        for (at, byte) in [(0, 1), (4, 9), (8, 7), (10, 1), (17, 9), (11, 0x3F)] {
            let mut bytes = ziplist();
            bytes[at] = byte;
            let ok = Ziplist::new(&bytes).is_ok_and(|mut ziplist| ziplist.all(|entry| entry.is_ok()));
            assert!(!ok, "byte {at}");
        }
        for len in 0..ziplist().len() {
            assert!(Ziplist::new(&ziplist()[..len]).is_err());
        }
    }

    #[test]
    fn a_zipmap_may_have_unused_bytes() {
        let read = |bytes| Zipmap::new(bytes).and_then(|zipmap| zipmap.collect::<Result<Vec<_>, _>>());
        let bytes = b"\x02\x03foo\x03\0bar\x05hello\x05\x02world\0\0\xff";
        assert_eq!(read(bytes), Ok(vec![(&b"foo"[..], &b"bar"[..]), (b"hello", b"world")]));
        assert_eq!(read(b"\0\xff"), Ok(vec![]));
        for len in 0..bytes.len() {
            assert_eq!(read(&bytes[..len]), Err(BrokenZipmap));
        }
        assert_eq!(read(b"\x01\xfe\xff\xff\xff\xffa\xff"), Err(BrokenZipmap));
    }
}
