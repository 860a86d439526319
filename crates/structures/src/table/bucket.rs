//! A bucket of a table: eight words in one cache line, and what a word says.
//!
//! ```text
//!   word:  tag 16 | pointer 44 | flags 4        0 in the pointer's place: the slot is free
//! ```
//! The flags [`DEADLINE`] and [`PARTS`] belong to the element, [`OVERFLOW`] (in slot 0 only) to the bucket: filling
//! and emptying a slot keep the bucket's.

use std::ptr::NonNull;

/// Words of a bucket.
pub(super) const SLOTS: usize = 8;
pub(super) const TAG_SHIFT: u32 = 48;
pub(super) const POINTER_MASK: u64 = 0x0000_FFFF_FFFF_FFF0;
/// This element has a deadline.
pub(super) const DEADLINE: u64 = 1;
/// In slot 0 only: an element whose probe passed this bucket lives further on.
pub(super) const OVERFLOW: u64 = 2;
/// A part of this element has a deadline.
pub(super) const PARTS: u64 = 4;
/// Something about this element has a deadline.
pub(super) const DUE_FLAGS: u64 = DEADLINE | PARTS;

/// One cache line of words.
#[repr(C, align(64))]
pub(super) struct Bucket {
    pub(super) words: [u64; SLOTS],
}

impl Bucket {
    /// Bit `i` is set where slot `i` may hold an element of this tag.
    #[inline]
    pub(super) fn matches(&self, tag: u64) -> u32 {
        let mut mask = 0;
        for (slot, word) in self.words.iter().enumerate() {
            mask |= u32::from(word >> TAG_SHIFT == tag) << slot;
        }
        mask
    }

    #[inline]
    pub(super) fn overflows(&self) -> bool {
        self.words[0] & OVERFLOW != 0
    }

    #[inline]
    pub(super) fn free_slot(&self) -> Option<usize> {
        self.words.iter().position(|word| word & POINTER_MASK == 0)
    }

    /// Stores an element's word, keeping the bucket's own flag.
    #[inline]
    pub(super) fn put(&mut self, slot: usize, word: u64) {
        self.words[slot] = word | (self.words[slot] & OVERFLOW);
    }

    /// Empties a slot, keeping the bucket's own flag; gives the word without it.
    #[inline]
    pub(super) fn take(&mut self, slot: usize) -> u64 {
        let word = self.words[slot];
        self.words[slot] = word & OVERFLOW & if slot == 0 { u64::MAX } else { 0 };
        word & !OVERFLOW
    }
}

/// Where the element of an occupied slot's word is.
#[inline]
pub(super) fn pointer_of(word: u64) -> NonNull<u8> {
    let address = (word & POINTER_MASK) as usize;
    NonNull::new(std::ptr::with_exposed_provenance_mut(address))
        .expect("callers pass the words of occupied slots")
}

/// The bits of a word that say where an element is.
#[inline]
pub(super) fn address_of(raw: NonNull<u8>) -> u64 {
    let address = raw.as_ptr().expose_provenance() as u64;
    assert!(address & !POINTER_MASK == 0, "an element's address does not fit a table word");
    address
}
