//! LZF, the compression of strings in RDB and of nodes of long lists: a control byte, then literals
//! or a back reference.
//!
//! ```text
//!   000lllll bytes              l + 1 literals
//!   lllddddd d                  l + 2 bytes from d + 1 bytes back, for l from 1 to 6
//!   111ddddd l d                l + 9 bytes from d + 1 bytes back
//! ```
//! Three compressed bytes expand to at most 264. A claimed length can therefore be checked before
//! memory is allocated for it. The compressor looks up each three bytes in a table that maps their
//! hash to its last position: O(bytes). The table's size depends on the string, and its memory is
//! reused for the next string. Most strings are short, and existing libraries clear 256 KiB for
//! each.

/// The greatest number of bytes to which one compressed byte can expand.
const EXPANSION_MAX: u64 = 88;
/// The most literal bytes after one control byte of LZF.
const LITERALS_MAX: usize = 32;
/// The length in bytes of the longest repetition that one back reference stands for.
const MATCH_LEN_MAX: usize = 264;
/// The length in bytes of the shortest repetition that is encoded as a back reference.
const MATCH_LEN_MIN: usize = 3;
/// The greatest distance in bytes between repeated bytes and their earlier occurrence, in LZF.
const DISTANCE_MAX: usize = 8192;
/// The smallest and the greatest size of the compressor's hash table, as base-2 logarithms of its
/// number of slots.
const TABLE_BITS: std::ops::RangeInclusive<u32> = 6..=14;

/// Decompresses the LZF bytes `compressed` to `len` bytes. Returns `None` if `compressed` is
/// invalid or decompresses to another length. O(len).
pub fn decompress(compressed: &[u8], len: u64) -> Option<Vec<u8>> {
    let (len, mut out) = (usize::try_from(len).ok()?, Vec::new());
    decompress_into(compressed, len, &mut out).then_some(out)
}

/// Decompresses the LZF bytes `compressed` to `len` bytes in `out`. Returns false if `compressed`
/// is invalid or decompresses to another length. Allocates nothing if `compressed` is too short for
/// `len`. O(len).
pub fn decompress_into(compressed: &[u8], len: usize, out: &mut Vec<u8>) -> bool {
    out.clear();
    if len as u64 > EXPANSION_MAX * compressed.len() as u64 {
        return false;
    }
    out.reserve_exact(len);
    expand(compressed, len, out).is_some() && out.len() == len
}

/// Appends the bytes that `compressed` (LZF) expands to to `out`. Returns `None` if they would be
/// more than `len` bytes, or if `compressed` is invalid.
fn expand(compressed: &[u8], len: usize, out: &mut Vec<u8>) -> Option<()> {
    let mut rest = compressed;
    while let Some((&control, behind)) = rest.split_first() {
        rest = behind;
        let control = usize::from(control);
        if control < LITERALS_MAX {
            let (literals, behind) = rest.split_at_checked(control + 1)?;
            if out.len() + literals.len() > len {
                return None;
            }
            out.extend_from_slice(literals);
            rest = behind;
            continue;
        }
        let mut take = || {
            let (&byte, behind) = rest.split_first()?;
            rest = behind;
            Some(usize::from(byte))
        };
        let long = if control >> 5 == 7 { take()? } else { 0 };
        let count = (control >> 5) + long + 2;
        let distance = ((control & 0x1F) << 8 | take()?) + 1;
        let from = out.len().checked_sub(distance)?;
        if out.len() + count > len {
            return None;
        }
        // If the repetition overlaps the bytes being written, the bytes available for copying
        // double each time.
        let mut left = count;
        while left > 0 {
            let step = left.min(out.len() - from);
            out.extend_from_within(from..from + step);
            left -= step;
        }
    }
    Some(())
}

/// A compressor (LZF) that reuses its memory for one string after the other. It takes at most 64
/// KiB plus the length of the longest compressed string.
#[derive(Debug, Default)]
pub struct Compressor {
    /// The last position in the input of three bytes with each hash, plus one; 0 if the hash has
    /// not occurred.
    seen: Vec<u32>,
    out: Vec<u8>,
}

impl Compressor {
    /// Creates a compressor that has allocated no memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the capacity of the compressor's table and output buffer in bytes. O(1).
    pub fn memory_usage(&self) -> usize {
        self.seen.capacity() * size_of::<u32>() + self.out.capacity()
    }

    /// Compresses `bytes` with LZF. Returns `None` unless the result is at least four bytes
    /// shorter, as in Redis. O(bytes).
    pub fn compress(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        let out_len_max = bytes.len().checked_sub(4)?;
        let count = u32::try_from(bytes.len()).ok()?;
        let bits = (u32::BITS - count.leading_zeros()).clamp(*TABLE_BITS.start(), *TABLE_BITS.end());
        self.seen.clear();
        self.seen.resize(1 << bits, 0);
        self.out.clear();
        let (mut at, mut literals_from) = (0, 0);
        while at + MATCH_LEN_MIN <= bytes.len() {
            let word = u32::from_be_bytes([0, bytes[at], bytes[at + 1], bytes[at + 2]]);
            let slot = (word.wrapping_mul(0x9E37_79B1) >> (u32::BITS - bits)) as usize;
            let before = std::mem::replace(&mut self.seen[slot], at as u32 + 1);
            let Some(len) = (before as usize).checked_sub(1).and_then(|before| match_len(bytes, before, at))
            else {
                at += 1;
                continue;
            };
            self.put_literals(&bytes[literals_from..at]);
            self.put_match(at - (before as usize - 1), len);
            at += len;
            literals_from = at;
            if self.out.len() > out_len_max {
                return None;
            }
        }
        self.put_literals(&bytes[literals_from..]);
        (self.out.len() <= out_len_max).then_some(&*self.out)
    }

    fn put_literals(&mut self, literals: &[u8]) {
        for run in literals.chunks(LITERALS_MAX) {
            self.out.push(run.len() as u8 - 1);
            self.out.extend_from_slice(run);
        }
    }

    fn put_match(&mut self, distance: usize, len: usize) {
        let (back, len) = (distance - 1, len - 2);
        if len < 7 {
            self.out.push((len << 5 | back >> 8) as u8);
        } else {
            self.out.push((7 << 5 | back >> 8) as u8);
            self.out.push((len - 7) as u8);
        }
        self.out.push(back as u8);
    }
}

/// Returns the number of bytes at index `at` that repeat those at index `before`. Returns `None` if
/// they are too few or too distant for a back reference.
fn match_len(bytes: &[u8], before: usize, at: usize) -> Option<usize> {
    if at - before > DISTANCE_MAX {
        return None;
    }
    let now = &bytes[at..bytes.len().min(at + MATCH_LEN_MAX)];
    let len = now.iter().zip(&bytes[before..]).take_while(|(a, b)| a == b).count();
    (len >= MATCH_LEN_MIN).then_some(len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(bytes: &[u8]) -> Option<usize> {
        let mut compressor = Compressor::new();
        let compressed = compressor.compress(bytes)?;
        assert_eq!(decompress(compressed, bytes.len() as u64).as_deref(), Some(bytes));
        Some(compressed.len())
    }

    #[test]
    fn repetitions_are_short_at_every_distance() {
        assert_eq!(check(&[b'x'; 10_000]), Some(2 + 38 * 3));
        assert_eq!(check(b"a string that repeats nothing"), None);
        for distance in [3, 100, 8191, 8192, 8193, 9000] {
            let mut state = 1_u32;
            let mut bytes: Vec<u8> = (0..distance)
                .map(|_| {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (state >> 24) as u8
                })
                .collect();
            bytes.extend_from_within(..distance.min(200));
            check(&bytes);
        }
    }

    #[test]
    fn broken_input_is_refused() {
        for (bytes, len) in [
            (&b"\x20\0"[..], 3),   // looks back before the start
            (b"\x01a", 2),         // literals cut short
            (b"\x01ab", 3),        // fewer than claimed
            (b"\x01ab", 1),        // more than claimed
            (b"\0a\xe0\xff", 272), // no distance
            (b"\0a\xe0", 272),
            (b"\0a", u64::MAX),
        ] {
            assert_eq!(decompress(bytes, len), None, "{bytes:?}");
        }
        assert_eq!(decompress(b"\0a\xe0\xff\0", 265), Some(vec![b'a'; 265]));
        assert_eq!(decompress(b"", 0), Some(Vec::new()));
    }

    proptest! {
        #[test]
        fn what_was_compressed_comes_back(words in proptest::collection::vec(0..40_u16, 0..4000)) {
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
            check(&bytes);
        }

        #[test]
        fn anything_is_unpacked_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), len in 0..3000_u64) {
            if let Some(out) = decompress(&bytes, len) {
                prop_assert_eq!(out.len() as u64, len);
            }
        }
    }
}
