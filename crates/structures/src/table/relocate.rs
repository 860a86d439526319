//! Visits of all blocks of a table in steps, which may move the blocks to other memory.

use std::mem::ManuallyDrop;

use super::bucket::{POINTER_MASK, address_of, pointer_of};
use super::{Table, Thin};
use crate::alloc::counted_bytes;
use crate::prefetch::prefetch_read;

/// The address and length of a memory block of a table: that of a segment or of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableBlock {
    /// The address of the memory block.
    pub address: usize,
    /// The length of the memory block that the allocator counts, in bytes.
    pub len_bytes: usize,
}

/// A visitor of the memory blocks of a table, which may move them; see [`Table::relocate_segment`].
pub trait Relocate<E> {
    /// Visits an element, which it may move to other memory but must not change.
    fn element(&mut self, element: &mut E);
    /// Returns true if the table must move `block`, a block of the table itself.
    fn moves(&mut self, block: TableBlock) -> bool;
    /// Receives the new address and length of a block that the table has moved.
    fn moved(&mut self, block: TableBlock);
    /// Returns true if this step has moved enough. The step then ends after the bucket in progress.
    fn is_spent(&self) -> bool {
        false
    }
}

/// The number of low bits of a cursor of [`Table::relocate_segment`]. They hold the first 48 bits
/// of a position. The bits above hold the index of the next bucket in the position's segment.
const POSITION_BITS: u32 = 48;

impl<E: Thin> Table<E> {
    /// Passes the blocks of the segment at `cursor` to `relocate`, until it has done enough.
    /// Returns the next cursor, or `None` after the last segment. 0 is the first cursor.
    /// O(segment).
    ///
    /// Elements that are added, and segments that split or merge between two steps, may be visited
    /// twice or not at all.
    pub fn relocate_segment(&mut self, cursor: u64, relocate: &mut impl Relocate<E>) -> Option<u64> {
        if self.directory.is_empty() {
            return None;
        }
        let first = self.first_place(self.place_of(cursor << (64 - POSITION_BITS)));
        let from = (cursor >> POSITION_BITS) as usize;
        if from == 0 && relocate.moves(self.block_of(first)) {
            self.resize(first, self.directory[first].bucket_count());
            relocate.moved(self.block_of(first));
        }
        let mut segment = self.directory[first];
        for at in from..segment.bucket_count() {
            if let Some(ahead) = segment.buckets().get(at + 1) {
                for word in ahead.words.iter().filter(|&word| word & POINTER_MASK != 0) {
                    prefetch_read(pointer_of(*word).as_ptr());
                }
            }
            for word in &mut segment.buckets_mut()[at].words {
                if *word & POINTER_MASK == 0 {
                    continue;
                }
                // SAFETY: the table owns the word's element and is borrowed mutably; with
                // `ManuallyDrop` the word stays its owner until the element is back in it.
                let mut element = ManuallyDrop::new(unsafe { E::from_raw(pointer_of(*word)) });
                relocate.element(&mut element);
                let address = address_of(ManuallyDrop::into_inner(element).into_raw());
                *word = *word & !POINTER_MASK | address;
            }
            if relocate.is_spent() && at + 1 < segment.bucket_count() {
                let position = cursor & ((1 << POSITION_BITS) - 1);
                return Some((at as u64 + 1) << POSITION_BITS | position);
            }
        }
        let next = self.places(first).end;
        (next < self.directory.len()).then(|| (next as u64) << (POSITION_BITS - u32::from(self.depth)))
    }

    /// Returns the memory block of the segment whose first directory place is `first`.
    fn block_of(&self, first: usize) -> TableBlock {
        let segment = &self.directory[first];
        let len_bytes = counted_bytes(size_of_val(segment.buckets()));
        TableBlock { address: segment.pointer().addr(), len_bytes }
    }
}

/// A visitor of a table's memory blocks for tests that moves a random half of them.
#[cfg(test)]
struct MoveHalf<F> {
    draw: u64,
    elements: usize,
    copy: F,
}

#[cfg(test)]
impl<F> MoveHalf<F> {
    fn next(&mut self) -> bool {
        self.draw = self.draw.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31).wrapping_add(1);
        self.draw & 1 == 0
    }
}

#[cfg(test)]
impl<E, F: FnMut(&E) -> E> Relocate<E> for MoveHalf<F> {
    fn element(&mut self, element: &mut E) {
        self.elements += 1;
        if self.next() {
            *element = (self.copy)(element);
        }
    }
    fn moves(&mut self, block: TableBlock) -> bool {
        assert!(block.len_bytes >= 64 && block.address.is_multiple_of(64), "{block:?}");
        self.next()
    }
    fn moved(&mut self, _block: TableBlock) {}
    fn is_spent(&self) -> bool {
        self.draw & 6 == 0
    }
}

/// Moves a random half of a table's memory blocks; elements move by `copy`. Returns the number of
/// visited elements.
#[cfg(test)]
pub(super) fn move_half<E: Thin>(table: &mut Table<E>, draw: u64, copy: impl FnMut(&E) -> E) -> usize {
    let mut moving = MoveHalf { draw, elements: 0, copy };
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        cursor = table.relocate_segment(at, &mut moving);
    }
    moving.elements
}
