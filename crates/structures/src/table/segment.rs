//! A segment of a table: up to 63 buckets in one block. The table's directory stores its address.
//!
//! ```text
//!   place: [pointer 48 | buckets 6 | depth 6] [len 16] [deadlines 16] [earliest deadline 32]
//! ```
//! The tag of an element gives its home bucket. If that is full, the element is in the next bucket
//! with a free slot; the first bucket follows the last. Invariant: a bucket's overflow flag is set
//! exactly when the search for some element passes the bucket: it begins at or before the bucket
//! and ends after it.
//!
//! No function here reads elements: words are moved by their tags alone. A `Segment` is a plain
//! value that several directory places hold; the table frees its block once.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use super::bucket::{Bucket, OVERFLOW, POINTER_MASK, SLOTS, TAG_SHIFT};
use super::deadlines::{DueCounts, StoredDeadlines};

/// The possible numbers of buckets of a segment. Above seven there are four steps per doubling.
pub(super) const BUCKET_COUNTS: [u8; 19] =
    [1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 15, 19, 23, 27, 31, 39, 47, 55, 63];

/// Returns the number of elements that a segment of `buckets` may hold before it grows: 13/16 of
/// its slots, or 7 of 8 in a single bucket.
pub(super) const fn capacity(buckets: usize) -> usize {
    if buckets == 1 { 7 } else { buckets * SLOTS * 13 / 16 }
}

/// Returns the smallest bucket count that holds `len` elements with an eighth of room to grow; at
/// most the largest count.
pub(super) fn buckets_for(len: usize) -> usize {
    let wanted = len + len / 8;
    let fits = BUCKET_COUNTS.iter().map(|&count| count as usize).find(|&count| capacity(count) >= wanted);
    fits.unwrap_or(BUCKET_COUNTS[BUCKET_COUNTS.len() - 1] as usize)
}

/// A directory place: the address of a segment, and (in the segment's first place) its counters.
#[derive(Clone, Copy)]
pub(super) struct Segment {
    /// The address of the block in the low 48 bits, the bucket count in bits 48 to 53, and the
    /// depth in bits 54 to 59.
    pub(super) word: u64,
    pub(super) len: u16,
    /// The number of elements that have a deadline, or parts with deadlines.
    pub(super) deadlines: u16,
    /// A lower bound of all deadlines in the segment, in seconds of the clock of the deadlines.
    pub(super) deadline_min_s: u32,
}

impl Segment {
    /// Allocates a segment of empty buckets. The caller stores it in a directory place, or frees
    /// it.
    pub(super) fn allocate(buckets: usize, depth: u8) -> Self {
        let layout = Self::layout(buckets);
        // SAFETY: a segment has at least one bucket, so the layout is not empty.
        let block = unsafe { alloc_zeroed(layout) };
        if block.is_null() {
            handle_alloc_error(layout);
        }
        let word = block.expose_provenance() as u64 | (buckets as u64) << 48 | u64::from(depth) << 54;
        Segment { word, len: 0, deadlines: 0, deadline_min_s: u32::MAX }
    }

    fn layout(buckets: usize) -> Layout {
        Layout::array::<Bucket>(buckets).expect("63 lines are far below isize::MAX bytes")
    }

    #[inline]
    pub(super) fn pointer(self) -> *mut Bucket {
        std::ptr::with_exposed_provenance_mut((self.word & 0x0000_FFFF_FFFF_FFFF) as usize)
    }

    #[inline]
    pub(super) fn bucket_count(self) -> usize {
        (self.word >> 48 & 0x3F) as usize
    }

    #[inline]
    pub(super) fn depth(self) -> u8 {
        (self.word >> 54) as u8
    }

    #[inline]
    pub(super) fn buckets(&self) -> &[Bucket] {
        // SAFETY: the word holds the pointer and count of a live, zero-initialised allocation that
        // the table owning this place frees only through `&mut`.
        unsafe { std::slice::from_raw_parts(self.pointer(), self.bucket_count()) }
    }

    #[inline]
    pub(super) fn buckets_mut(&mut self) -> &mut [Bucket] {
        // SAFETY: as in `buckets`; the other directory places of this segment are not used
        // meanwhile, because the whole table is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.pointer(), self.bucket_count()) }
    }

    /// Frees the segment's memory block. The caller must not use any copy of the segment
    /// afterwards.
    pub(super) fn free(self) {
        // SAFETY: allocated by `allocate` with this layout; the caller forgets the segment.
        unsafe { dealloc(self.pointer().cast(), Self::layout(self.bucket_count())) };
    }

    /// Updates the counters of the segment and of the table for an element whose deadlines have
    /// changed. `had` are its former flags, `dues` its new deadlines. O(1).
    #[inline]
    pub(super) fn note(&mut self, had: u64, dues: StoredDeadlines, counts: &mut DueCounts) {
        if had | dues.flags == 0 {
            return;
        }
        self.deadlines = self.deadlines + u16::from(dues.flags != 0) - u16::from(had != 0);
        self.deadline_min_s = self.deadline_min_s.min(dues.min_s);
        counts.note(had, dues.flags);
    }

    /// Returns the tag of a position: the 16 bits below those that select the segment. Tags
    /// distinguish the elements of a segment.
    #[inline]
    pub(super) fn tag(self, position: u64) -> u64 {
        (position << self.depth()) >> TAG_SHIFT
    }

    /// Returns the index of the bucket in which the search for a tag begins.
    #[inline]
    pub(super) fn home(self, tag: u64) -> usize {
        (tag as usize * self.bucket_count()) >> 16
    }

    /// Stores an element's word in its home bucket, or in the next bucket with room. Returns the
    /// slot. The segment must have room.
    pub(super) fn place(&mut self, word: u64) -> Slot {
        let mut bucket = self.home(word >> TAG_SHIFT);
        let count = self.bucket_count();
        let buckets = self.buckets_mut();
        loop {
            if let Some(slot) = buckets[bucket].free_slot() {
                buckets[bucket].put(slot, word);
                return Slot { bucket, slot };
            }
            buckets[bucket].words[0] |= OVERFLOW;
            bucket = if bucket + 1 == count { 0 } else { bucket + 1 };
        }
    }

    /// Returns the slot of the first element, in probe order, that overflowed past `bucket`: its
    /// home is at or before that bucket, and it is stored after it. `None` if there is none.
    fn overflowed_past(&self, bucket: usize) -> Option<Slot> {
        let count = self.bucket_count();
        let buckets = self.buckets();
        for distance in 1..count {
            let at = (bucket + distance) % count;
            let passed = |word: u64| {
                let from_home = (at + count - self.home(word >> TAG_SHIFT)) % count;
                word & POINTER_MASK != 0 && from_home >= distance
            };
            if let Some(slot) = buckets[at].words.iter().position(|&word| passed(word)) {
                return Some(Slot { bucket: at, slot });
            }
            if !buckets[at].overflows() {
                return None;
            }
        }
        None
    }

    /// Fills the slot that a removal has emptied. Elements that overflowed past it move back, and
    /// the flags of the buckets that they no longer pass are cleared. O(length of the overflow
    /// chain).
    pub(super) fn close_gap(&mut self, mut gap: Slot) {
        while self.buckets()[gap.bucket].overflows() {
            let Some(mover) = self.overflowed_past(gap.bucket) else {
                self.buckets_mut()[gap.bucket].words[0] &= !OVERFLOW;
                return;
            };
            let word = self.buckets_mut()[mover.bucket].take(mover.slot);
            self.buckets_mut()[gap.bucket].put(gap.slot, word);
            self.review_flags(gap.bucket, mover.bucket);
            gap = mover;
        }
    }

    /// Clears the overflow flag of each bucket from `from` up to before `until`, unless an element
    /// has overflowed past that bucket.
    pub(super) fn review_flags(&mut self, from: usize, until: usize) {
        let mut bucket = from;
        while bucket != until {
            if self.overflowed_past(bucket).is_none() {
                self.buckets_mut()[bucket].words[0] &= !OVERFLOW;
            }
            bucket = (bucket + 1) % self.bucket_count();
        }
    }
}

/// The position of a word in a segment: the bucket's index and the slot's index in the bucket.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Slot {
    pub(super) bucket: usize,
    pub(super) slot: usize,
}

/// Returns the words of a segment's occupied slots, each with its overflow flag cleared.
pub(super) fn words(segment: &Segment) -> impl Iterator<Item = u64> + '_ {
    let all = segment.buckets().iter().flat_map(|bucket| bucket.words);
    all.filter(|word| word & POINTER_MASK != 0).map(|word| word & !OVERFLOW)
}

/// Copies a segment to a block with the next larger number of buckets, and frees the old block.
pub(super) fn roomier(old: Segment) -> Segment {
    let larger = BUCKET_COUNTS.iter().map(|&count| count as usize).find(|&count| count > old.bucket_count());
    let larger = larger.expect("half of a full segment fits the largest segment");
    let mut new =
        Segment { len: old.len, deadlines: old.deadlines, ..Segment::allocate(larger, old.depth()) };
    for word in words(&old) {
        new.place(word);
    }
    old.free();
    new
}
