//! A bucket of a table: eight words in one cache line, and the layout of a word.
//!
//! ```text
//!   word:  tag 16 | pointer 44 | flags 4        0 in the pointer's place: the slot is free
//! ```
//! The flags [`DEADLINE`], [`PARTS`] and [`MARK`] belong to the element. [`OVERFLOW`], only in the
//! first slot, belongs to the bucket: filling or emptying a slot does not change it.

use std::ptr::NonNull;

/// The number of words, and so of elements, of a bucket.
pub(super) const SLOTS: usize = 8;
pub(super) const TAG_SHIFT: u32 = 48;
pub(super) const POINTER_MASK: u64 = 0x0000_FFFF_FFFF_FFF0;
/// The flag of an element with a deadline of its own.
pub(super) const DEADLINE: u64 = 1;
/// The flag of a full bucket past which an element is stored: the element's search begins at or
/// before the bucket and ends after it. Stored only in slot 0.
pub(super) const OVERFLOW: u64 = 2;
/// The flag of an element of which a part has a deadline.
pub(super) const PARTS: u64 = 4;
/// The flag of an element that a snapshot's walk skips, see `walk`.
pub(super) const MARK: u64 = 8;
/// The flags of elements that have a deadline of their own or of a part.
pub(super) const DUE_FLAGS: u64 = DEADLINE | PARTS;
/// The bits of a word that move with its element from bucket to bucket, besides the tag.
pub(super) const ELEMENT: u64 = POINTER_MASK | DUE_FLAGS | MARK;

/// A bucket of eight words in one cache line.
#[repr(C, align(64))]
pub(super) struct Bucket {
    pub(super) words: [u64; SLOTS],
}

impl Bucket {
    /// Returns a mask with bit `i` set if slot `i` of the bucket may hold an element of this tag.
    #[inline]
    pub(super) fn matches(&self, tag: u64) -> u32 {
        #[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(miri)))]
        // SAFETY: every x86-64 processor has SSE2, and the build says so.
        return unsafe { self.matches_at_once(tag) };
        #[cfg(not(all(target_arch = "x86_64", target_feature = "sse2", not(miri))))]
        return self.matches_one_by_one(tag);
    }

    /// Computes the mask of `matches` slot by slot: the safe twin of the vector code, and the only
    /// code for processors without vectors.
    #[inline]
    #[cfg_attr(all(target_arch = "x86_64", not(test)), allow(dead_code, reason = "x86-64 has vectors"))]
    fn matches_one_by_one(&self, tag: u64) -> u32 {
        let mut mask = 0;
        for (slot, word) in self.words.iter().enumerate() {
            mask |= u32::from(word >> TAG_SHIFT == tag) << slot;
        }
        mask
    }

    /// Computes the mask of `matches` with vectors: gathers the eight tags in one vector and
    /// compares them with eight copies of `tag`.
    #[cfg(all(target_arch = "x86_64", target_feature = "sse2"))]
    #[target_feature(enable = "sse2")]
    #[inline]
    fn matches_at_once(&self, tag: u64) -> u32 {
        use std::arch::x86_64::{
            __m128i, _mm_castps_si128, _mm_castsi128_ps, _mm_cmpeq_epi16, _mm_load_si128, _mm_movemask_epi8,
            _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi16, _mm_setzero_si128, _mm_shuffle_ps,
            _mm_srai_epi32,
        };
        /// The selection of the upper halves of two words of the first vector and two of the
        /// second.
        const UPPER_HALVES: i32 = 0b11_01_11_01;
        let pairs = [0, 2, 4, 6].map(|at| {
            let pair: *const __m128i = self.words[at..at + 2].as_ptr().cast();
            // SAFETY: two words are one vector, aligned because the bucket of four of
            // them is aligned to 64.
            unsafe { _mm_load_si128(pair) }
        });
        let tags_of = |low: __m128i, high: __m128i| {
            let halves = _mm_shuffle_ps::<UPPER_HALVES>(_mm_castsi128_ps(low), _mm_castsi128_ps(high));
            // The shift keeps the sign, so packing saturates no value.
            _mm_srai_epi32::<16>(_mm_castps_si128(halves))
        };
        let tags = _mm_packs_epi32(tags_of(pairs[0], pairs[1]), tags_of(pairs[2], pairs[3]));
        let equal = _mm_cmpeq_epi16(tags, _mm_set1_epi16(tag as i16));
        _mm_movemask_epi8(_mm_packs_epi16(equal, _mm_setzero_si128())) as u32
    }

    #[inline]
    pub(super) fn overflows(&self) -> bool {
        self.words[0] & OVERFLOW != 0
    }

    #[inline]
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.words.iter().position(|word| word & POINTER_MASK == 0)
    }

    /// Stores an element's word in a slot of the bucket; keeps the bucket's overflow flag.
    #[inline]
    pub(super) fn put(&mut self, slot: usize, word: u64) {
        self.words[slot] = word | (self.words[slot] & OVERFLOW);
    }

    /// Empties a slot of the bucket; keeps the bucket's overflow flag. Returns the slot's word (the
    /// element's tag, pointer and flags) without that flag.
    #[inline]
    pub(super) fn take(&mut self, slot: usize) -> u64 {
        let word = self.words[slot];
        self.words[slot] = word & OVERFLOW & if slot == 0 { u64::MAX } else { 0 };
        word & !OVERFLOW
    }
}

/// Returns the address of the element in an occupied slot's word.
#[inline]
pub(super) fn pointer_of(word: u64) -> NonNull<u8> {
    let address = (word & POINTER_MASK) as usize;
    NonNull::new(std::ptr::with_exposed_provenance_mut(address))
        .expect("callers pass the words of occupied slots")
}

/// Returns the pointer bits that a word stores for an element's address.
#[inline]
pub(super) fn address_of(raw: NonNull<u8>) -> u64 {
    let address = raw.as_ptr().expose_provenance() as u64;
    assert!(address & !POINTER_MASK == 0, "an element's address does not fit a table word");
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_compared_at_once_match_those_compared_one_by_one() {
        let tags = [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF, 0x1234];
        for seed in 0..5_000u64 {
            let word = |slot: u64| {
                let drawn = (seed * 8 + slot).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                tags[(drawn >> 60) as usize % tags.len()] << TAG_SHIFT | (drawn & POINTER_MASK)
            };
            let bucket = Bucket { words: std::array::from_fn(|slot| word(slot as u64)) };
            for tag in tags {
                assert_eq!(bucket.matches(tag), bucket.matches_one_by_one(tag), "{seed} {tag:x}");
            }
        }
    }
}
