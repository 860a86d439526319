//! Bits of byte strings: counting and finding them, fields of up to 64 bits, and logic between
//! strings. Bit 0 is the highest bit of byte 0. This module knows neither keys nor replies.
//!
//! Counting and finding process words of 64 bits. The loops of [`Logic`] process single bytes in
//! the source; the compiler turns them into vector instructions.

use std::ops::Range;

/// Counts the set bits in the range `bits` of the string `bytes`. O(bytes).
pub(super) fn count(bytes: &[u8], bits: Range<usize>) -> u64 {
    if bits.is_empty() {
        return 0;
    }
    let edges = Edges::of(&bits);
    let outside = (bytes[edges.first] & !edges.first_mask).count_ones()
        + (bytes[edges.last] & !edges.last_mask).count_ones();
    let (words, rest) = bytes[edges.first..=edges.last].as_chunks::<8>();
    let in_words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    let in_rest: u64 = rest.iter().map(|byte| u64::from(byte.count_ones())).sum();
    in_words + in_rest - u64::from(outside)
}

/// The value of a bit that BITPOS searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bit {
    /// A bit that is 0.
    Zero,
    /// A bit that is 1.
    One,
}

/// Returns the index of the first bit in the range `bits` of the string that has the value
/// `wanted`, or `None` if there is no such bit. O(bytes).
pub(super) fn find(bytes: &[u8], bits: Range<usize>, wanted: Bit) -> Option<usize> {
    if bits.is_empty() {
        return None;
    }
    let edges = Edges::of(&bits);
    let unwanted = match wanted {
        Bit::One => 0,
        Bit::Zero => 0xff,
    };
    // Returns a mask of the byte's bits that have the wanted value.
    let wanted_of = |at: usize| {
        let first_mask = if at == edges.first { edges.first_mask } else { 0xff };
        let last_mask = if at == edges.last { edges.last_mask } else { 0xff };
        (bytes[at] ^ unwanted) & first_mask & last_mask
    };
    let place = |at: usize| Some(at * 8 + wanted_of(at).leading_zeros() as usize);
    if wanted_of(edges.first) != 0 {
        return place(edges.first);
    }
    let inner = edges.first + 1..edges.last.max(edges.first + 1);
    let (words, _) = bytes[inner.clone()].as_chunks::<8>();
    let skipped = words.iter().take_while(|word| **word == [unwanted; 8]).count() * 8;
    (inner.start + skipped..=edges.last).find(|&at| wanted_of(at) != 0).and_then(place)
}

/// The first and last byte of a non-empty range of bits, each with a mask of the bits that belong
/// to the range.
struct Edges {
    first: usize,
    first_mask: u8,
    last: usize,
    last_mask: u8,
}

impl Edges {
    fn of(bits: &Range<usize>) -> Self {
        let end = bits.end - 1;
        Edges {
            first: bits.start / 8,
            first_mask: 0xff >> (bits.start % 8),
            last: end / 8,
            last_mask: !(0x7f >> (end % 8)),
        }
    }
}

/// The largest number of bytes that a field of up to 64 bits overlaps.
const FIELD_LEN_BYTES_MAX: usize = 9;

/// Returns the `width` bits (1 to 64) of the string that start at bit `at`. Bits after the end of
/// `bytes` are 0. O(1).
pub(super) fn field(bytes: &[u8], at: usize, width: u32) -> u64 {
    let (window, _) = window(bytes, at);
    (window << (at % 8) >> (u128::BITS - width)) as u64
}

/// Writes the low `width` bits of `value` to the string `bytes` at bit `at`. O(1).
///
/// # Panics
/// If the field is not within `bytes`.
pub(super) fn set_field(bytes: &mut [u8], at: usize, width: u32, value: u64) {
    let (window, len) = window(bytes, at);
    let shift = u128::BITS - (at % 8) as u32 - width;
    let mask = ((1_u128 << width) - 1) << shift;
    let changed = window & !mask | u128::from(value) << shift & mask;
    assert!(at % 8 + width as usize <= len * 8, "the caller made room for the field");
    bytes[at / 8..at / 8 + len].copy_from_slice(&changed.to_be_bytes()[..len]);
}

/// Returns the bytes of the string from the one that holds bit `at`, up to [`FIELD_LEN_BYTES_MAX`],
/// as the highest bytes of a number, and their count.
fn window(bytes: &[u8], at: usize) -> (u128, usize) {
    let part = bytes.get(at / 8..).unwrap_or_default();
    let part = &part[..part.len().min(FIELD_LEN_BYTES_MAX)];
    let mut window = [0; size_of::<u128>()];
    window[..part.len()].copy_from_slice(part);
    (u128::from_be_bytes(window), part.len())
}

/// A bitwise operation on strings. Shorter strings are treated as padded with zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logic {
    /// AND: the result has the bits that are set in all strings.
    And,
    /// OR: the result has the bits that are set in at least one string.
    Or,
    /// XOR: the result has the bits that are set in an odd number of strings.
    Xor,
    /// NOT: the result has the bits that are clear in the only string.
    Not,
    /// DIFF: the result has the bits that are set in the first string and in no other.
    Diff,
    /// DIFF1: the result has the bits that are set in at least one other string but not in the
    /// first.
    Diff1,
    /// ANDOR: the result has the bits that are set in the first string and in at least one other.
    AndOr,
    /// ONE: the result has the bits that are set in exactly one string.
    One,
}

/// The number of bytes of BITOP's result that are computed at a time. A block of this size stays in
/// the cache while all sources are applied to it.
const BLOCK_LEN_BYTES: usize = 4096;

impl Logic {
    /// Returns true if Redis before 8.2 and Valkey do not have this operation of BITOP.
    pub(super) fn is_newer_than_redis_6(self) -> bool {
        matches!(self, Logic::Diff | Logic::Diff1 | Logic::AndOr | Logic::One)
    }

    /// Returns the result of the bitwise operation on all `sources`. It is as long as the longest
    /// source. O(bytes of all sources).
    pub(super) fn apply(self, sources: &[&[u8]]) -> Vec<u8> {
        let len = sources.iter().map(|source| source.len()).max().unwrap_or(0);
        let mut result = vec![0; len];
        let mut parts = Vec::with_capacity(sources.len());
        for (number, block) in result.chunks_mut(BLOCK_LEN_BYTES).enumerate() {
            let from = number * BLOCK_LEN_BYTES;
            let part = |source: &&'_ [u8]| source.len().min(from)..source.len().min(from + block.len());
            parts.clear();
            parts.extend(sources.iter().map(|source| &source[part(source)]));
            self.apply_to_block(block, &parts);
        }
        result
    }

    /// Writes the result of the operation for one block of bytes to `block`. `parts` are the
    /// sources' bytes in this block. `block` must hold zeros, and no part may be longer.
    fn apply_to_block(self, block: &mut [u8], parts: &[&[u8]]) {
        let Some((first, others)) = parts.split_first() else { return };
        match self {
            Logic::And => {
                or(block, first);
                others.iter().for_each(|part| and(block, part));
            }
            Logic::Or => parts.iter().for_each(|part| or(block, part)),
            Logic::Xor => parts.iter().for_each(|part| merge(block, part, |a, b| a ^ b)),
            Logic::Not => {
                or(block, first);
                block.iter_mut().for_each(|byte| *byte = !*byte);
            }
            Logic::Diff => {
                others.iter().for_each(|part| or(block, part));
                block.iter_mut().for_each(|byte| *byte = !*byte);
                and(block, first);
            }
            Logic::Diff1 => {
                others.iter().for_each(|part| or(block, part));
                merge(block, first, |a, b| a & !b);
            }
            Logic::AndOr => {
                others.iter().for_each(|part| or(block, part));
                and(block, first);
            }
            Logic::One => {
                let mut twice = [0; BLOCK_LEN_BYTES];
                for part in parts {
                    for ((twice, once), byte) in twice.iter_mut().zip(&*block).zip(*part) {
                        *twice |= once & byte;
                    }
                    or(block, part);
                }
                merge(block, &twice, |once, twice| once & !twice);
            }
        }
    }
}

/// Applies `work` to each byte of `block` and the byte of `part`, a source's bytes, at the same
/// index. Stores the result in `block`; ignores bytes of `block` after the end of `part`.
fn merge(block: &mut [u8], part: &[u8], work: impl Fn(u8, u8) -> u8) {
    block.iter_mut().zip(part).for_each(|(byte, &other)| *byte = work(*byte, other));
}

fn or(block: &mut [u8], part: &[u8]) {
    merge(block, part, |a, b| a | b);
}

/// Applies AND with `part`, a source's bytes, to the whole `block`: unlike in [`merge`], `part` is
/// treated as padded with zeros.
fn and(block: &mut [u8], part: &[u8]) {
    merge(block, part, |a, b| a & b);
    block[part.len()..].fill(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random_bytes(len: usize, rng: &mut fastrand::Rng) -> Vec<u8> {
        // Long runs of the same byte test the loop that skips words.
        let fill = *rng.choice(&[0, 0xff]).unwrap();
        (0..len).map(|_| if rng.u8(..8) == 0 { rng.u8(..) } else { fill }).collect()
    }

    fn bit(bytes: &[u8], at: usize) -> bool {
        bytes.get(at / 8).is_some_and(|byte| byte & 0x80 >> (at % 8) != 0)
    }

    #[test]
    fn counting_and_finding_agree_with_a_walk_over_the_bits() {
        let mut rng = fastrand::Rng::with_seed(1);
        for _ in 0..3000 {
            let len = rng.usize(1..60);
            let bytes = random_bytes(len, &mut rng);
            let start = rng.usize(..len * 8);
            let bits = start..rng.usize(start..=len * 8);
            let ones = bits.clone().filter(|&at| bit(&bytes, at)).count();
            assert_eq!(count(&bytes, bits.clone()), ones as u64, "{bytes:?} {bits:?}");
            for wanted in [Bit::Zero, Bit::One] {
                let first = bits.clone().find(|&at| bit(&bytes, at) == (wanted == Bit::One));
                assert_eq!(find(&bytes, bits.clone(), wanted), first, "{bytes:?} {bits:?} {wanted:?}");
            }
        }
    }

    #[test]
    fn fields_of_all_widths_are_read_and_written_alone() {
        let mut rng = fastrand::Rng::with_seed(2);
        for width in 1..=64 {
            for at in 0..40 {
                let before = random_bytes(14, &mut rng);
                let mut bytes = before.clone();
                let value = rng.u64(..);
                set_field(&mut bytes, at, width, value);
                assert_eq!(field(&bytes, at, width), value & (u64::MAX >> (64 - width)), "{at} {width}");
                for place in (0..14 * 8).filter(|place| !(at..at + width as usize).contains(place)) {
                    assert_eq!(bit(&bytes, place), bit(&before, place));
                }
            }
        }
        assert_eq!(field(b"\x01", 7, 64), 1 << 63);
        assert_eq!(field(b"\x01", 800, 64), 0);
    }

    #[test]
    fn logic_agrees_with_its_definition_bit_by_bit() {
        let mut rng = fastrand::Rng::with_seed(3);
        let logics = [
            Logic::And,
            Logic::Or,
            Logic::Xor,
            Logic::Not,
            Logic::Diff,
            Logic::Diff1,
            Logic::AndOr,
            Logic::One,
        ];
        for (round, logic) in (0..400).flat_map(|round| logics.map(|logic| (round, logic))) {
            let sources = if logic == Logic::Not { 1 } else { rng.usize(1..5) };
            let len_max = if round < 4 { 3 * BLOCK_LEN_BYTES } else { 20 };
            let strings: Vec<Vec<u8>> =
                (0..sources).map(|_| random_bytes(rng.usize(..len_max), &mut rng)).collect();
            let sources: Vec<&[u8]> = strings.iter().map(Vec::as_slice).collect();
            let result = logic.apply(&sources);
            assert_eq!(result.len(), strings.iter().map(Vec::len).max().unwrap());
            for at in 0..result.len() * 8 {
                let bits: Vec<bool> = strings.iter().map(|string| bit(string, at)).collect();
                let ones = bits.iter().filter(|&&bit| bit).count();
                let others = bits[1..].contains(&true);
                let expected = match logic {
                    Logic::And => ones == bits.len(),
                    Logic::Or => ones > 0,
                    Logic::Xor => ones % 2 == 1,
                    Logic::Not => ones == 0,
                    Logic::Diff => bits[0] && !others,
                    Logic::Diff1 => !bits[0] && others,
                    Logic::AndOr => bits[0] && others,
                    Logic::One => ones == 1,
                };
                assert_eq!(bit(&result, at), expected, "{logic:?} {strings:?} {at}");
            }
        }
    }
}
