//! A cache of large free blocks, which saves system calls when large values are overwritten.
//!
//! ```text
//!   class 20 KiB   [block][block][  -  ] …     16 places per size class
//!   class 24 KiB   [  -  ][block][  -  ] …     together at most `bytes_max`
//! ```
//! With `keep_resident_close`, a large block has memory pages of its own, which return to the
//! system when it is freed. That costs a system call, and a page fault for every 4 KiB of the next
//! such block. If a load frees these blocks as fast as it allocates them, a few kept blocks of each
//! size serve most requests. A block serves only requests of its class, so its resident pages are
//! used.
//!
//! Any thread puts and takes blocks. A place is one atomic pointer, and no thread waits. A full
//! cache displaces the blocks of other places in turn, so blocks of sizes that are no longer
//! requested do not stay.
//!
//! Invariant: a block in the cache is free, in one place, and counted in `kept_bytes`.
//!
//! Bounded work: a put or take checks the places of one class. A put into a full cache checks at
//! worst all 336 places.

use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicUsize};

/// The base-2 logarithm of the smallest size class of cached blocks, 16 KiB.
const SMALLEST_LOG2: u32 = 14;
/// The number of size classes of cached blocks, from 16 KiB to half a mebibyte: four for each
/// doubling, and the last.
const CLASSES: usize = 21;
/// The number of places in the cache for blocks of each size class.
const PLACES: usize = 16;

/// A cache of large free memory blocks. See the module's comment.
pub struct BlockCache {
    places: [AtomicPtr<u8>; CLASSES * PLACES],
    kept_bytes: AtomicUsize,
    bytes_max: AtomicUsize,
    /// A counter whose value, modulo the number of places, is the index of the place in the cache
    /// whose block is displaced next.
    next: AtomicUsize,
}

/// Returns the indices of the cache's places for blocks of a size class of mimalloc's, from 16 KiB
/// to half a mebibyte.
fn places_of(class_len_bytes: usize) -> std::ops::Range<usize> {
    let log2 = class_len_bytes.ilog2();
    let quarter = class_len_bytes >> (log2 - 2) & 3;
    let class = (log2 - SMALLEST_LOG2) as usize * 4 + quarter;
    class * PLACES..(class + 1) * PLACES
}

impl BlockCache {
    /// Creates an empty cache with a limit of 0 bytes, which keeps no blocks.
    pub const fn new() -> Self {
        Self {
            places: [const { AtomicPtr::new(ptr::null_mut()) }; CLASSES * PLACES],
            kept_bytes: AtomicUsize::new(0),
            bytes_max: AtomicUsize::new(0),
            next: AtomicUsize::new(0),
        }
    }

    /// Sets the limit of the bytes of all blocks in the cache. Passes blocks above the limit to
    /// `free`.
    pub fn resize(&self, bytes_max: usize, free: impl FnMut(*mut u8, usize)) {
        // Relaxed, here and for the other counts: a thread that has not seen the new value yet
        // keeps one block more.
        self.bytes_max.store(bytes_max, Relaxed);
        self.make_room(bytes_max, free);
    }

    /// Removes blocks from the cache until it has no more than `bytes_max` bytes, or until each
    /// place was checked. Passes the removed blocks to `free`.
    fn make_room(&self, bytes_max: usize, mut free: impl FnMut(*mut u8, usize)) {
        for _ in 0..self.places.len() {
            if self.kept_bytes.load(Relaxed) <= bytes_max {
                return;
            }
            let at = self.next.fetch_add(1, Relaxed) % self.places.len();
            let class_len_bytes = Self::class_at(at);
            if let Some(block) = self.take_at(at, class_len_bytes) {
                free(block, class_len_bytes);
            }
        }
    }

    /// Returns the size in bytes of the size class of the blocks that the cache keeps at place
    /// `at`.
    fn class_at(at: usize) -> usize {
        let class = at / PLACES;
        (4 + class % 4) << (SMALLEST_LOG2 - 2 + (class / 4) as u32)
    }

    fn take_at(&self, at: usize, class_len_bytes: usize) -> Option<*mut u8> {
        let place = &self.places[at];
        // Relaxed: only a hint that avoids writing to empty places.
        if place.load(Relaxed).is_null() {
            return None;
        }
        // Acquire: pairs with the Release in `put`. The writes of the block's last owner are
        // finished.
        let block = place.swap(ptr::null_mut(), Acquire);
        if block.is_null() {
            return None;
        }
        self.kept_bytes.fetch_sub(class_len_bytes, Relaxed);
        Some(block)
    }

    /// Removes a block of this size class from the cache and returns it; `None` if there is none.
    /// O(1).
    pub fn take(&self, class_len_bytes: usize) -> Option<*mut u8> {
        places_of(class_len_bytes).find_map(|at| self.take_at(at, class_len_bytes))
    }

    /// Puts a free block of this size class into the cache, and passes the blocks that it displaces
    /// to `free`. Passes the block itself to `free` if it is above the limit or its class has no
    /// free place. O(1).
    pub fn put(&self, block: *mut u8, class_len_bytes: usize, mut free: impl FnMut(*mut u8, usize)) {
        let bytes_max = self.bytes_max.load(Relaxed);
        if class_len_bytes > bytes_max {
            return free(block, class_len_bytes);
        }
        self.make_room(bytes_max - class_len_bytes, &mut free);
        // Counted first: a thread that takes the block at once must find it counted.
        self.kept_bytes.fetch_add(class_len_bytes, Relaxed);
        for at in places_of(class_len_bytes) {
            // Release: see `take_at`.
            if self.places[at].compare_exchange(ptr::null_mut(), block, Release, Relaxed).is_ok() {
                return;
            }
        }
        self.kept_bytes.fetch_sub(class_len_bytes, Relaxed);
        free(block, class_len_bytes);
    }

    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.kept_bytes.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::size_class::size_class;

    /// Returns an invalid address that stands for a block: the cache never reads the blocks.
    fn block(number: usize) -> *mut u8 {
        ptr::without_provenance_mut(number * 4096)
    }

    #[test]
    fn every_class_has_places_of_its_own() {
        let mut class = size_class((16 << 10) + 1);
        let mut last = 0;
        while class <= 512 << 10 {
            let places = places_of(class);
            assert!(places.start >= last && places.end <= CLASSES * PLACES, "{class}: {places:?}");
            assert_eq!(BlockCache::class_at(places.start), class);
            last = places.end;
            class = size_class(class + 1);
        }
        assert_eq!(last, CLASSES * PLACES);
    }

    #[test]
    fn a_block_serves_its_class_once() {
        let block_cache = BlockCache::new();
        block_cache.resize(1 << 20, |_, _| unreachable!("nothing was kept"));
        block_cache.put(block(1), 20 << 10, |_, _| unreachable!("there is room"));
        assert_eq!(block_cache.take(24 << 10), None);
        assert_eq!(block_cache.kept_bytes(), 20 << 10);
        assert_eq!(block_cache.take(20 << 10), Some(block(1)));
        assert_eq!((block_cache.take(20 << 10), block_cache.kept_bytes()), (None, 0));
    }

    #[test]
    fn a_full_shelf_gives_up_other_blocks_in_turn() {
        let block_cache = BlockCache::new();
        let mut freed = Vec::new();
        block_cache.put(block(1), 32 << 10, |block, _| freed.push(block));
        assert_eq!(freed, [block(1)], "at first it keeps nothing");
        block_cache.resize(100 << 10, |_, _| unreachable!("nothing was kept"));
        for number in 2..=5 {
            block_cache.put(block(number), 32 << 10, |block, _| freed.push(block));
        }
        assert_eq!((freed.len(), block_cache.kept_bytes()), (2, 96 << 10));
        block_cache.put(block(6), 128 << 10, |block, _| freed.push(block));
        assert_eq!(freed.last(), Some(&block(6)), "it is larger than the shelf");
        block_cache.resize(0, |block, _| freed.push(block));
        freed.sort();
        assert_eq!(freed, (1..=6).map(block).collect::<Vec<_>>());
    }

    #[test]
    fn threads_lose_no_block_and_get_none_twice() {
        let block_cache = BlockCache::new();
        block_cache.resize(400 << 10, |_, _| unreachable!("nothing was kept"));
        let held = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|thread| {
                    let block_cache = &block_cache;
                    scope.spawn(move || {
                        let mut mine: Vec<_> =
                            (0..50).map(|n| block(1 + thread * 50 + n).expose_provenance()).collect();
                        for round in 0..20_000 {
                            let class = [20 << 10, 64 << 10][round % 2];
                            if round % 3 == 0 {
                                let taken = block_cache.take(class);
                                mine.extend(taken.map(|block| block.expose_provenance()));
                            } else if let Some(block) = mine.pop() {
                                let block = ptr::with_exposed_provenance_mut(block);
                                block_cache
                                    .put(block, class, |block, _| mine.push(block.expose_provenance()));
                            }
                        }
                        mine
                    })
                })
                .collect();
            threads.into_iter().flat_map(|thread| thread.join().expect("it ended well")).collect::<Vec<_>>()
        });
        let mut all = held;
        block_cache.resize(0, |block, _| all.push(block.expose_provenance()));
        all.sort_unstable();
        assert_eq!(all, (1..=200).map(|n| block(n).expose_provenance()).collect::<Vec<_>>());
        assert_eq!(block_cache.kept_bytes(), 0);
    }
}
