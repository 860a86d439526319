//! Compaction: moves keys out of memory pages of which they use little, so that the pages become
//! free.
//!
//! ```text
//!   count  all blocks: the bytes in use of each page of the allocator
//!   move   the blocks in sparse pages, to blocks that the allocator hands out densely
//! ```
//! After many keys were deleted, every page still holds some keys. The allocator cannot move them.
//! But a table owns its segments and its entries, so it can. The values of collections do not move,
//! and are not counted. A page with such values may therefore seem sparse, and its entries move in
//! vain.

use std::collections::HashMap;

use structures::alloc::{self, PAGE_LEN_BYTES};
use structures::table::{Relocate, TableBlock};

use crate::db::Shard;
use crate::keyspace::SweepPoint;
use crate::object::KeyEntry;

/// The use of a page, in percent, up to which the page is sparse. Entries in pages with more use
/// occupy at most a quarter more memory than their own length.
const SPARSE_PERCENT: usize = 80;
/// The length of the longest block that moves, in bytes. Few longer blocks share a page.
const MOVED_LEN_BYTES_MAX: usize = 8 << 10;

/// The number of moved bytes after which a step of compaction ends. Without this limit, a step
/// could move a segment of long strings, which has more than 1 MiB.
const STEP_BYTES_MAX: usize = 64 << 10;

/// The greatest number of blocks of a table segment, rounded up: the segment's own block and those
/// of its entries.
const SEGMENT_BLOCKS_MAX: usize = 512;

/// The number of bytes that tables and entries use in each page of the allocator.
#[derive(Default)]
pub struct PageUse {
    used_bytes: HashMap<usize, u32>,
}

impl PageUse {
    /// Reserves memory for the counts of the pages of one step. Called before the shard is locked:
    /// with millions of pages, it may take tens of milliseconds.
    pub fn reserve_step(&mut self) {
        self.used_bytes.reserve(SEGMENT_BLOCKS_MAX);
    }

    /// Adds a block's length to the bytes in use of its page, unless the block is too long to move.
    fn add(&mut self, block: TableBlock) {
        if block.len_bytes <= MOVED_LEN_BYTES_MAX {
            *self.used_bytes.entry(alloc::page_of(block.address)).or_default() += block.len_bytes as u32;
        }
    }

    /// Returns true if the block must move: its page is sparse, and it is not too long. The block's
    /// bytes are then subtracted from the use of its page.
    fn takes_out(&mut self, block: TableBlock) -> bool {
        let Some(used_bytes) = self.used_bytes.get_mut(&alloc::page_of(block.address)) else { return false };
        let is_sparse = *used_bytes as usize <= PAGE_LEN_BYTES * SPARSE_PERCENT / 100;
        if !is_sparse || block.len_bytes > MOVED_LEN_BYTES_MAX {
            return false;
        }
        *used_bytes = used_bytes.saturating_sub(block.len_bytes as u32);
        true
    }
}

/// The numbers of keyspace entries that a compaction has moved and not moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The number of entries that were moved to other memory pages.
    pub entries: u64,
    /// The number of entries that were not moved to other memory pages.
    pub kept: u64,
}

/// Counts the bytes in use of each page for the table segment at `at` in a locked shard. Returns
/// the point of the next step; `None` if the shard is finished. O(segment).
pub fn count_pages(shard: &mut Shard, at: SweepPoint, pages: &mut PageUse) -> Option<SweepPoint> {
    visit(shard, at, &mut Counting(pages))
}

/// Moves blocks that are in sparse pages, up to some tens of kilobytes, of the table segment at
/// `at`. Returns the point of the next step; `None` if the shard is finished. O(segment).
pub fn move_sparse(
    shard: &mut Shard,
    at: SweepPoint,
    pages: &mut PageUse,
    moved: &mut Moved,
) -> Option<SweepPoint> {
    visit(shard, at, &mut Moving { pages, moved, step_bytes: 0 })
}

/// Passes the blocks of the table segment at `at` to `relocate`. Returns the point of the next
/// step; `None` if the shard is finished.
fn visit(shard: &mut Shard, at: SweepPoint, relocate: &mut impl Relocate<KeyEntry>) -> Option<SweepPoint> {
    let used = shard.dbs().skip(at.db).position(|db| !db.table.is_empty())?;
    let db = at.db + used;
    let cursor = if used == 0 { at.cursor } else { 0 };
    let next = shard.db_mut(db).table.relocate_segment(cursor, relocate);
    let next_db = if next.is_none() { db + 1 } else { db };
    Some(SweepPoint { shard: at.shard, db: next_db, cursor: next.unwrap_or(0) })
}

/// Returns the address and length of the memory block of a keyspace entry.
fn block_of(entry: &KeyEntry) -> TableBlock {
    TableBlock { address: entry.address(), len_bytes: entry.block_len_bytes() }
}

/// A visitor of a table segment's memory blocks that moves nothing and counts the bytes in use of
/// each page.
struct Counting<'a>(&'a mut PageUse);

impl Relocate<KeyEntry> for Counting<'_> {
    fn element(&mut self, entry: &mut KeyEntry) {
        self.0.add(block_of(entry));
    }
    fn moves(&mut self, block: TableBlock) -> bool {
        self.0.add(block);
        false
    }
    fn moved(&mut self, _block: TableBlock) {}
}

/// A visitor of a table segment's memory blocks that moves those in sparse pages.
struct Moving<'a> {
    pages: &'a mut PageUse,
    moved: &'a mut Moved,
    /// The number of bytes that this step of compaction has moved.
    step_bytes: usize,
}

impl Relocate<KeyEntry> for Moving<'_> {
    fn element(&mut self, entry: &mut KeyEntry) {
        if self.pages.takes_out(block_of(entry)) {
            entry.relocate();
            self.moved.entries += 1;
            self.moved(block_of(entry));
        } else {
            self.moved.kept += 1;
        }
    }
    fn moves(&mut self, block: TableBlock) -> bool {
        self.pages.takes_out(block)
    }
    fn moved(&mut self, block: TableBlock) {
        // A page that fills up is no longer sparse, so its other blocks stay.
        self.pages.add(block);
        self.step_bytes += block.len_bytes;
    }
    fn is_spent(&self) -> bool {
        self.step_bytes >= STEP_BYTES_MAX
    }
}
