//! The decoding of lengths, strings and numbers of the RDB format, read from a source.

use std::borrow::Cow;

use structures::intset::Intset;
use structures::listpack::Listpack;
use structures::lzf;

use super::STRING_LEN_BYTES_MAX;
use super::error::{EndOfInput, FormatError, FormatErrorKind};
use super::skip::{Skipper, Unskipped};

/// A source of the bytes of a value or file in RDB format. A source that can fail (a file) ends at
/// the failure, and stores the reason for its owner.
pub trait Source {
    /// Fills all of `buffer` with the next bytes.
    ///
    /// # Errors
    /// If fewer bytes are left.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), EndOfInput>;
}

impl Source for &[u8] {
    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), EndOfInput> {
        let (bytes, rest) = self.split_at_checked(buffer.len()).ok_or(EndOfInput)?;
        buffer.copy_from_slice(bytes);
        *self = rest;
        Ok(())
    }
}

/// The maximum memory allocated for a string before any of it is read, in bytes. After that the
/// memory grows with the bytes read.
const FIRST_STEP_BYTES_MAX: usize = 64 * 1024;

/// A reader of lengths, strings and numbers of the RDB format from a source. It counts the bytes
/// read.
#[derive(Debug)]
pub struct Reader<S> {
    source: S,
    offset: u64,
    string_len_bytes_max: u64,
}

/// A length in the RDB format, or the special encoding of a string, which is stored in place of a
/// length.
enum Length {
    Plain(u64),
    Encoded(u8),
}

impl<S: Source> Reader<S> {
    /// Creates a reader of the RDB bytes of `source`, whose first byte is at `file_offset` of the
    /// file. It rejects strings longer than `string_len_bytes_max`.
    pub fn new(source: S, file_offset: u64, string_len_bytes_max: u64) -> Self {
        let string_len_bytes_max = string_len_bytes_max.min(STRING_LEN_BYTES_MAX);
        Self { source, offset: file_offset, string_len_bytes_max }
    }

    /// Returns the offset of the next byte in the file, in bytes.
    pub fn file_offset(&self) -> u64 {
        self.offset
    }

    /// Ends reading in the RDB format and returns the source, from which the content after the
    /// values can be read.
    pub fn into_source(self) -> S {
        self.source
    }

    /// Creates an error of this kind at the current offset in the file.
    pub fn error(&self, kind: impl Into<FormatErrorKind>) -> FormatError {
        FormatError { file_offset: self.offset, kind: kind.into() }
    }

    /// Reads the next `N` bytes of the RDB source.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], FormatError> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the next byte of the RDB source.
    pub fn byte(&mut self) -> Result<u8, FormatError> {
        Ok(self.array::<1>()?[0])
    }

    /// Reads a Unix time in milliseconds: 8 bytes, little-endian.
    pub fn time_ms(&mut self) -> Result<i64, FormatError> {
        Ok(i64::from_le_bytes(self.array()?))
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<(), FormatError> {
        self.source.fill(buffer).map_err(|ended| self.error(ended))?;
        self.offset += buffer.len() as u64;
        Ok(())
    }

    fn length_or_encoding(&mut self) -> Result<Length, FormatError> {
        let first = self.byte()?;
        let low = first & 0x3F;
        Ok(match (first >> 6, first) {
            (0, _) => Length::Plain(low.into()),
            (1, _) => Length::Plain(u64::from(low) << 8 | u64::from(self.byte()?)),
            (_, 0x80) => Length::Plain(u32::from_be_bytes(self.array()?).into()),
            (_, 0x81) => Length::Plain(u64::from_be_bytes(self.array()?)),
            (3, _) => Length::Encoded(low),
            _ => return Err(self.error(FormatErrorKind::BrokenLength)),
        })
    }

    /// Reads a length or another unsigned number. The caller must not allocate memory for a length
    /// before the content has arrived.
    pub fn length(&mut self) -> Result<u64, FormatError> {
        match self.length_or_encoding()? {
            Length::Plain(length) => Ok(length),
            Length::Encoded(_) => Err(self.error(FormatErrorKind::BrokenLength)),
        }
    }

    /// Reads a string in any encoding of the RDB format: unchanged, as a number, or compressed.
    pub fn string(&mut self) -> Result<Vec<u8>, FormatError> {
        let text = |number: i64| number.to_string().into_bytes();
        match self.length_or_encoding()? {
            Length::Plain(len) => self.bytes(len),
            Length::Encoded(0) => Ok(text(i8::from_le_bytes(self.array()?).into())),
            Length::Encoded(1) => Ok(text(i16::from_le_bytes(self.array()?).into())),
            Length::Encoded(2) => Ok(text(i32::from_le_bytes(self.array()?).into())),
            Length::Encoded(3) => {
                let compressed_len = self.length()?;
                let len = self.length()?;
                if len > self.string_len_bytes_max {
                    return Err(self.error(FormatErrorKind::StringTooLong));
                }
                let compressed = self.bytes(compressed_len)?;
                lzf::decompress(&compressed, len).ok_or(self.error(FormatErrorKind::BrokenCompression))
            }
            Length::Encoded(encoding) => Err(self.error(FormatErrorKind::UnknownStringEncoding(encoding))),
        }
    }

    /// Reads the next `len` bytes. Memory grows only with the bytes read, so a wrong length
    /// allocates nothing.
    pub fn bytes(&mut self, len: u64) -> Result<Vec<u8>, FormatError> {
        let fits = usize::try_from(len).ok().filter(|_| len <= self.string_len_bytes_max);
        let len = fits.ok_or(self.error(FormatErrorKind::StringTooLong))?;
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let had = bytes.len();
            let step = (len - had).min(had.max(FIRST_STEP_BYTES_MAX));
            bytes.reserve_exact(step);
            bytes.resize(had + step, 0);
            self.fill(&mut bytes[had..])?;
        }
        Ok(bytes)
    }

    /// Reads a listpack that is stored in a string, and checks each element. O(bytes).
    pub(super) fn listpack(&mut self) -> Result<Listpack, FormatError> {
        let bytes = self.string()?;
        Listpack::from_bytes(bytes.into()).map_err(|error| self.error(FormatErrorKind::Pack(error.kind)))
    }

    /// Reads an intset that is stored in a string, and checks it. O(bytes).
    pub(super) fn intset(&mut self) -> Result<Intset, FormatError> {
        let bytes = self.string()?;
        Intset::from_bytes(bytes.into()).map_err(|error| self.error(FormatErrorKind::Pack(error.kind)))
    }
}

impl<'b> Reader<&'b [u8]> {
    /// Returns true if the reader has read all bytes of its slice.
    #[inline]
    pub(crate) fn is_at_end(&self) -> bool {
        self.source.is_empty()
    }

    /// Reads a string as [`Reader::string`] does, but without copying an uncompressed one.
    #[inline]
    pub(crate) fn string_ref(&mut self) -> Result<Cow<'b, [u8]>, FormatError> {
        let (first, head) = match *self.source {
            [first @ 0..0x40, ..] => (usize::from(first), 1),
            [first @ 0x40..0x80, second, ..] => (usize::from(first & 0x3F) << 8 | usize::from(second), 2),
            [0xC3, ..] => return self.compressed_string().map(Cow::Owned),
            _ => return self.string().map(Cow::Owned),
        };
        match self.source.get(head..head + first) {
            Some(bytes) if first as u64 <= self.string_len_bytes_max => {
                self.source = &self.source[head + first..];
                self.offset += (head + first) as u64;
                Ok(Cow::Borrowed(bytes))
            }
            // This call returns the error.
            _ => self.string().map(Cow::Owned),
        }
    }

    /// Reads a string of the RDB format that is compressed with LZF.
    fn compressed_string(&mut self) -> Result<Vec<u8>, FormatError> {
        let _encoding = self.byte()?;
        let (compressed_len, len) = (self.length()?, self.length()?);
        if len > self.string_len_bytes_max {
            return Err(self.error(FormatErrorKind::StringTooLong));
        }
        let end = usize::try_from(compressed_len).unwrap_or(usize::MAX);
        let ended = self.error(FormatErrorKind::EndOfInput);
        let (compressed, rest) = self.source.split_at_checked(end).ok_or(ended)?;
        (self.source, self.offset) = (rest, self.offset + compressed_len);
        lzf::decompress(compressed, len).ok_or(self.error(FormatErrorKind::BrokenCompression))
    }

    /// Moves past the RDB value whose end `skip` finds, without decoding it.
    pub(crate) fn skip_with(
        &mut self,
        skip: impl FnOnce(&mut Skipper<'_>) -> Result<(), Unskipped>,
    ) -> Result<(), FormatError> {
        let mut skipper = Skipper::new(self.source, 0);
        skip(&mut skipper).map_err(|unskipped| {
            self.error(match unskipped {
                Unskipped::Short => FormatErrorKind::EndOfInput,
                Unskipped::Broken(kind) => kind,
            })
        })?;
        self.offset += skipper.position() as u64;
        self.source = &self.source[skipper.position()..];
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> Reader<&[u8]> {
        Reader::new(bytes, 0, 1 << 20)
    }

    #[test]
    fn lengths_take_the_bytes_that_their_first_bits_say() {
        for (bytes, length) in [
            (&b"\x3f"[..], 63),
            (b"\x41\x02", 0x102),
            (b"\x80\0\x01\0\0", 65_536),
            (b"\x81\0\0\0\x01\0\0\0\0", 1 << 32),
        ] {
            assert_eq!(reader(bytes).length(), Ok(length));
            let cut = reader(&bytes[..bytes.len() - 1]).length().map_err(|error| error.kind);
            assert_eq!(cut, Err(FormatErrorKind::EndOfInput));
        }
        for broken in [&b"\x82\0\0\0\0\0\0\0\0"[..], b"\xc0\0"] {
            assert_eq!(
                reader(broken).length().map_err(|error| error.kind),
                Err(FormatErrorKind::BrokenLength)
            );
        }
    }

    #[test]
    fn strings_are_read_in_each_encoding() {
        for (bytes, text) in [
            (&b"\x05hello"[..], "hello"),
            (b"\0", ""),
            (b"\xc0\xff", "-1"),
            (b"\xc1\0\x80", "-32768"),
            (b"\xc2\xff\xff\xff\x7f", "2147483647"),
        ] {
            assert_eq!(reader(bytes).string(), Ok(text.into()));
        }
        // A value of a hash in a DUMP of Redis 8.0.2.
        let compressed = b"\xc3\x09\x40\x64\x01vv\xe0\x57\0\x01vv";
        assert_eq!(reader(compressed).string(), Ok(vec![b'v'; 100]));
        let kind = |bytes: &[u8]| reader(bytes).string().map_err(|error| error.kind);
        assert_eq!(kind(b"\xc4"), Err(FormatErrorKind::UnknownStringEncoding(4)));
        assert_eq!(kind(b"\x81\0\0\0\0\0\x10\0\x01"), Err(FormatErrorKind::StringTooLong));
        assert_eq!(kind(b"\x80\0\x0f\0\0abc"), Err(FormatErrorKind::EndOfInput));
    }

    #[test]
    fn an_error_tells_its_place_in_the_file() {
        let mut reader = Reader::new(&b"\x01a\xc9"[..], 100, 1 << 20);
        assert_eq!(reader.string(), Ok(b"a".to_vec()));
        let error = FormatError { file_offset: 103, kind: FormatErrorKind::UnknownStringEncoding(9) };
        assert_eq!(reader.string(), Err(error));
    }
}
