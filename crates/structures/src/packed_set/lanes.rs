//! Operations on eight bytes of a word at once: the search of a byte and the sum of sizes.

/// The number of bytes that one word holds, and the unit in which a bucket's tags are allocated.
pub(super) const LANES: usize = 8;

const LOW_SEVEN: u64 = 0x7F7F_7F7F_7F7F_7F7F;
const EVEN_BYTES: u64 = 0x00FF_00FF_00FF_00FF;
const ONE_PER_BYTE: u64 = 0x0101_0101_0101_0101;
const ONE_PER_PAIR: u64 = 0x0001_0001_0001_0001;

/// Reads the word of the eight bytes at `at`, the first in the lowest bits.
#[inline]
pub(super) fn word_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("tags and sizes are allocated in whole words"))
}

/// Returns a word whose lowest `lanes` bytes are set, all of them from [`LANES`] on.
#[inline]
pub(super) fn first_lanes(lanes: usize) -> u64 {
    if lanes >= LANES { u64::MAX } else { (1 << (lanes * 8)) - 1 }
}

/// Returns a word with the top bit of each byte that equals `byte` in the bits of `compared`.
#[inline]
pub(super) fn equal_lanes(word: u64, byte: u8, compared: u8) -> u64 {
    let differing = (word ^ (u64::from(byte) * ONE_PER_BYTE)) & (u64::from(compared) * ONE_PER_BYTE);
    !(((differing & LOW_SEVEN) + LOW_SEVEN) | differing | LOW_SEVEN)
}

/// Returns the sum of the lower seven bits of the eight bytes.
#[inline]
pub(super) fn sum_of_lanes(word: u64) -> usize {
    let sizes = word & LOW_SEVEN;
    let pairs = (sizes & EVEN_BYTES) + (sizes >> 8 & EVEN_BYTES);
    (pairs.wrapping_mul(ONE_PER_PAIR) >> 48) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_their_bytes_are() {
        let mut state = 7_u64;
        for _ in 0..2_000 {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
            let bytes = (state ^ state >> 29).to_le_bytes();
            let word = word_at(&bytes, 0);
            let sum: usize = bytes.iter().map(|byte| usize::from(byte & 0x7F)).sum();
            assert_eq!(sum_of_lanes(word), sum);
            for (wanted, compared) in [(bytes[3], 0xFF), (bytes[5] ^ 1, 0xFE), (0, 0xFF), (0x80, 0xFF)] {
                for (lane, byte) in bytes.iter().enumerate() {
                    let found = equal_lanes(word, wanted, compared) >> (lane * 8) & 0xFF;
                    assert_eq!(found, if (byte ^ wanted) & compared == 0 { 0x80 } else { 0 });
                }
            }
        }
        assert_eq!((first_lanes(0), first_lanes(2), first_lanes(8), first_lanes(20)), (0, 0xFFFF, !0, !0));
    }
}
