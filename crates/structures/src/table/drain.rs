//! An iterator that removes a table's elements one by one, so that a thread can free a big table in
//! steps.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use super::bucket::{OVERFLOW, POINTER_MASK, SLOTS, pointer_of};
use super::segment::Segment;
use super::{Table, Thin};
use crate::prefetch::prefetch_read;

/// An iterator over the elements of a table that no longer exists, in the order of its segments. A
/// segment is freed after its last element was returned. Dropping the drain frees the rest. Each
/// step is O(1). The first step in a bucket prefetches the memory of all its elements.
pub struct Drain<E: Thin> {
    directory: Box<[Segment]>,
    depth: u8,
    /// The index in the directory of the segment that is drained next.
    next_place: usize,
    /// The segment whose elements are returned now, and the index of its next bucket. `None` before
    /// the first segment and after the last.
    current: Option<(Segment, usize)>,
    words: [u64; SLOTS],
    next_slot: usize,
    left: usize,
    owns: PhantomData<E>,
}

impl<E: Thin> Table<E> {
    /// Converts the table to an iterator over its elements. O(1); the steps of the iterator do the
    /// work.
    pub fn into_drain(self) -> Drain<E> {
        // The drain owns the segments and elements from now on.
        let mut table = ManuallyDrop::new(self);
        Drain {
            directory: std::mem::take(&mut table.directory),
            depth: table.depth,
            next_place: 0,
            current: None,
            words: [0; SLOTS],
            next_slot: SLOTS,
            left: table.len,
            owns: PhantomData,
        }
    }
}

impl<E: Thin> Drain<E> {
    /// Loads the words of the next bucket of the drained table. Returns false after the last
    /// bucket.
    fn advance(&mut self) -> bool {
        loop {
            let Some((segment, bucket)) = self.current.take() else {
                let Some(&segment) = self.directory.get(self.next_place) else { return false };
                self.next_place += 1 << (self.depth - segment.depth());
                self.current = Some((segment, 0));
                continue;
            };
            if bucket == segment.bucket_count() {
                segment.free();
                continue;
            }
            self.words = segment.buckets()[bucket].words;
            self.words[0] &= !OVERFLOW;
            for word in self.words.iter().filter(|&&word| word & POINTER_MASK != 0) {
                prefetch_read(pointer_of(*word).as_ptr());
            }
            self.next_slot = 0;
            self.current = Some((segment, bucket + 1));
            return true;
        }
    }
}

impl<E: Thin> Iterator for Drain<E> {
    type Item = E;

    fn next(&mut self) -> Option<E> {
        loop {
            while self.next_slot < SLOTS {
                let word = self.words[self.next_slot];
                self.next_slot += 1;
                if word & POINTER_MASK != 0 {
                    self.left -= 1;
                    // SAFETY: the drain owns the elements of its table and passes each word once.
                    return Some(unsafe { E::from_raw(pointer_of(word)) });
                }
            }
            if !self.advance() {
                return None;
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<E: Thin> Drop for Drain<E> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}
