//! The allocator: mimalloc, with the allocated bytes counted per thread.
//!
//! ```text
//!   thread 0 ──▶ counters[0]    owned: plain load and store
//!   thread 1 ──▶ counters[1]
//!      …
//!   thread ≥ 248 ──▶ counters[248 + n % 8]   shared: one atomic add
//!                        used = sum of all
//! ```
//! A thread takes the next index when it first allocates or frees, and keeps it for the life of the
//! process. No index is ever reused, so no code has to run when a thread ends. Each of the first
//! 248 threads (including the I/O threads) has a counter of its own on a cache line of its own.
//! Threads started later share eight counters and pay an atomic add.
//!
//! Memory that is freed on another thread than the allocating one is counted on the freeing thread.
//! A single counter may be negative, but the sum is right. A value may therefore be sent to another
//! thread to be freed there.
//!
//! The counted size is that of the block that serves the request (`counted_bytes`), not the
//! requested size, because the block is the memory in use. It is computed from the layout alone;
//! the allocator is not asked. Tests compare it with mimalloc's own answer (`mi_usable_size`). Both
//! are equal for every size from 9 bytes to half a mebibyte. Up to 8 bytes the block is 8 and
//! counted as 16. Larger requests are counted in pages, while mimalloc rounds them up further, by
//! at most an eighth. These extra bytes are address space, not memory, until they are written to.
//! Alignments above 16 may use up to their alignment more than counted.
//!
//! Reading the sum is one pass over the counters that were ever used. It is not a snapshot: bytes
//! that move between threads meanwhile may be counted on one side only.
//!
//! Cost over bare mimalloc: a few instructions, under 1 ns a call (see the ignored test
//! `what_counting_costs`).

mod block_cache;
mod mimalloc;
pub mod peak;

use crate::size_class::size_class;
use block_cache::BlockCache;
use crossbeam_utils::CachePadded;
use mimalloc as mi;
use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize};

/// The number of counters of allocated bytes, each of which belongs to one or several threads.
const COUNTERS_MAX: usize = 256;
/// The number of counters that belong to one thread each; the others are shared.
const OWNED_MAX: usize = 248;
/// The value of `INDEX` in a thread that has not taken a counter index yet.
const UNASSIGNED: usize = usize::MAX;
/// The alignment that mimalloc gives to every block of at least this size in bytes.
const PLAIN_ALIGN: usize = 16;
/// The size in bytes above which mimalloc maps whole pages instead of using size classes.
const CLASSES_MAX_BYTES: usize = 512 * 1024;
/// The size in bytes up to which blocks always share memory pages with others of their class.
const SHARED_PAGE_MAX_BYTES: usize = 16 * 1024;
/// The length in bytes to request so that a block gets memory pages of its own: the smallest length
/// above the size classes. Bytes that are not written to are address space, not memory.
const APART_LEN_BYTES: usize = CLASSES_MAX_BYTES + 1;
/// The unit in bytes to which the counted size of a block above [`CLASSES_MAX_BYTES`] is rounded
/// up.
const PAGE_BYTES: usize = 4096;
/// The length in bytes of an allocator page, to which it is also aligned. All blocks in a page have
/// the same size class. Blocks above 8 KiB are in larger pages.
pub const PAGE_LEN_BYTES: usize = 64 * 1024;
/// The most bytes of `stats_text`; the rest is cut off.
const STATS_TEXT_MAX_BYTES: usize = 64 * 1024;

static COUNTERS: [CachePadded<AtomicI64>; COUNTERS_MAX] =
    [const { CachePadded::new(AtomicI64::new(0)) }; COUNTERS_MAX];
static THREADS_SEEN: AtomicUsize = AtomicUsize::new(0);
static LARGE_APART: AtomicBool = AtomicBool::new(false);
static BLOCK_CACHE: BlockCache = BlockCache::new();
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Constant and without a destructor: reading it is one load, at any time in a thread's life.
    static INDEX: Cell<usize> = const { Cell::new(UNASSIGNED) };
}

/// mimalloc as the global allocator, with counting. It belongs in a `#[global_allocator]` static.
pub struct CountingAllocator;

/// Returns true if mimalloc's plain functions align a block of this layout well enough. They are
/// faster than its functions with an alignment.
#[inline]
fn is_plain(layout: Layout) -> bool {
    layout.align() <= PLAIN_ALIGN && layout.align() <= layout.size() && layout.size() <= SHARED_PAGE_MAX_BYTES
}

/// Returns true if a block of this layout gets memory pages of its own under the present setting of
/// [`keep_resident_close`].
#[inline]
fn goes_apart(layout: Layout) -> bool {
    (SHARED_PAGE_MAX_BYTES + 1..=CLASSES_MAX_BYTES).contains(&layout.size())
        && layout.align() <= PLAIN_ALIGN
        // Relaxed: only a preference.
        && LARGE_APART.load(Relaxed)
}

/// Returns true if this block, which was allocated for `layout`, has pages of its own. It may then
/// grow in place to [`CLASSES_MAX_BYTES`].
///
/// # Safety
/// `block` is a live block of mimalloc's.
unsafe fn is_apart(block: *mut u8, layout: Layout) -> bool {
    // SAFETY: the caller passes a live block.
    goes_apart(layout) && unsafe { mi::mi_usable_size(block.cast()) } > CLASSES_MAX_BYTES
}

/// Allocates a block for a layout that is not plain (`is_plain`). Does not add the block to the
/// count of allocated bytes.
#[inline(never)]
fn allocate_large(layout: Layout) -> *mut c_void {
    if goes_apart(layout) {
        if let Some(block) = BLOCK_CACHE.take(size_class(layout.size())) {
            return block.cast();
        }
        // SAFETY: any size is allowed; a block is aligned to `PLAIN_ALIGN` at least.
        return unsafe { mi::mi_malloc(APART_LEN_BYTES) };
    }
    // SAFETY: a layout's alignment is a power of two, which is the only precondition.
    unsafe { mi::mi_malloc_aligned(layout.size(), layout.align()) }
}

/// Frees a block of memory that [`BlockCache`] displaces.
fn free_displaced(block: *mut u8, _class_len_bytes: usize) {
    // SAFETY: only `dealloc` puts blocks there: live ones of mimalloc's, which nobody else has.
    unsafe { mi::mi_free(block.cast()) }
}

/// Makes resident memory follow used memory closely, for a server with a memory limit. `None`
/// returns to the usual behaviour. The setting affects later allocations only.
///
/// Blocks above 16 KiB, up to half a mebibyte, then get pages of their own, which return to the
/// system when they are freed. Up to `block_cache_bytes_max` bytes of such blocks are kept for the
/// next request of their size. Other free ranges are returned at once.
///
/// Without the setting, these blocks share regions of up to 4 MiB, one per size class and thread. A
/// region stays while one block in it is in use: up to 100 % more resident memory under a mix of
/// sizes (docs/performance.md).
pub fn keep_resident_close(block_cache_bytes_max: Option<usize>) {
    let close = block_cache_bytes_max.is_some();
    LARGE_APART.store(close, Relaxed);
    BLOCK_CACHE.resize(block_cache_bytes_max.unwrap_or(0), free_displaced);
    let candidates = if close { PAGE_CANDIDATES_CLOSE } else { PAGE_CANDIDATES };
    // SAFETY: no precondition.
    unsafe { mi::mi_option_set(OPTION_PAGE_MAX_CANDIDATES, candidates) }
    // Free ranges return to the system without delay. During a delay a smaller block could be
    // allocated in such a range. The rest of the range would then stay resident as long as that
    // block lives.
    let delay_ms = if close { 0 } else { PURGE_DELAY_MS };
    // SAFETY: no precondition.
    unsafe { mi::mi_option_set(OPTION_PURGE_DELAY, delay_ms) }
}

/// Returns the size in bytes that is counted for an allocation of `len_bytes`: that of the block
/// that serves it. O(1).
#[inline]
pub fn counted_bytes(len_bytes: usize) -> usize {
    if len_bytes <= CLASSES_MAX_BYTES {
        size_class(len_bytes)
    } else {
        len_bytes.next_multiple_of(PAGE_BYTES)
    }
}

/// Returns the number of the allocator page that contains `address`, see [`PAGE_LEN_BYTES`].
#[inline]
pub fn page_of(address: usize) -> usize {
    address / PAGE_LEN_BYTES
}

/// Adds `change_bytes`, negative for freed bytes, to this thread's counter of allocated bytes.
#[inline]
fn count(change_bytes: i64) {
    let index = INDEX.get();
    if index < OWNED_MAX {
        let counter = &COUNTERS[index];
        // Relaxed: a statistic. A plain store loses nothing, since only this thread writes it.
        counter.store(counter.load(Relaxed) + change_bytes, Relaxed);
    } else {
        count_shared(change_bytes);
    }
}

/// Adds to a counter of allocated bytes like [`count`], for a thread that shares its counter with
/// others. Gives an index to a thread that has none yet.
#[cold]
fn count_shared(change_bytes: i64) {
    if INDEX.get() == UNASSIGNED {
        INDEX.set(THREADS_SEEN.fetch_add(1, Relaxed));
        return count(change_bytes);
    }
    let shared = OWNED_MAX + INDEX.get() % (COUNTERS_MAX - OWNED_MAX);
    COUNTERS[shared].fetch_add(change_bytes, Relaxed);
}

// SAFETY: each method below returns what mimalloc returns for the same size and alignment, or null;
// mimalloc's blocks are disjoint, large enough, aligned as asked, and stay until freed.
unsafe impl GlobalAlloc for CountingAllocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let block = if is_plain(layout) {
            // SAFETY: any size is allowed. The alignment is at most 16 and at most the size;
            // mimalloc aligns every block of such a size to it.
            unsafe { mi::mi_malloc(layout.size()) }
        } else {
            allocate_large(layout)
        };
        if !block.is_null() {
            count(counted_bytes(layout.size()) as i64);
        }
        block.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let block = if is_plain(layout) {
            // SAFETY: as in `alloc`.
            unsafe { mi::mi_zalloc(layout.size()) }
        } else if goes_apart(layout) {
            let block = allocate_large(layout);
            if !block.is_null() {
                // SAFETY: the block has at least the layout's size. Its other bytes are never used.
                unsafe { block.cast::<u8>().write_bytes(0, layout.size()) }
            }
            block
        } else {
            // SAFETY: a layout's alignment is a power of two, which is the only precondition.
            unsafe { mi::mi_zalloc_aligned(layout.size(), layout.align()) }
        };
        if !block.is_null() {
            count(counted_bytes(layout.size()) as i64);
        }
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(-(counted_bytes(layout.size()) as i64));
        // SAFETY: the caller passes a live block of ours.
        if layout.size() > SHARED_PAGE_MAX_BYTES && unsafe { is_apart(block, layout) } {
            return BLOCK_CACHE.put(block, size_class(layout.size()), free_displaced);
        }
        // SAFETY: the caller passes a block of ours, once; all of ours are mimalloc's, and one free
        // takes back plain and aligned blocks alike.
        unsafe { mi::mi_free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size_new: usize) -> *mut u8 {
        if layout.size().max(size_new) > SHARED_PAGE_MAX_BYTES && LARGE_APART.load(Relaxed) {
            // SAFETY: the caller passes a block of ours and a size that makes a
            // layout with its alignment.
            return unsafe { reallocate_large(block, layout, size_new) };
        }
        let moved = if layout.align() <= PLAIN_ALIGN && layout.align() <= size_new {
            // SAFETY: the caller passes a block of ours; a new block is aligned as in `alloc`, and
            // one kept in place has the alignment that the caller already relies on.
            unsafe { mi::mi_realloc(block.cast(), size_new) }
        } else {
            // SAFETY: the caller passes a block of ours; the alignment is a
            // layout's, a power of two.
            unsafe { mi::mi_realloc_aligned(block.cast(), size_new, layout.align()) }
        };
        if !moved.is_null() {
            count(counted_bytes(size_new) as i64 - counted_bytes(layout.size()) as i64);
        }
        moved.cast()
    }
}

/// Reallocates a block while large blocks have pages of their own. The block stays in place if it
/// has room and the new size is at least half of the old. A small block that becomes large moves to
/// its own pages.
///
/// # Safety
/// As for `realloc`.
unsafe fn reallocate_large(block: *mut u8, layout: Layout, size_new: usize) -> *mut u8 {
    // SAFETY: the caller passes a live block of ours.
    let usable = unsafe { mi::mi_usable_size(block.cast()) };
    let moves_apart = size_new > SHARED_PAGE_MAX_BYTES && layout.size() <= SHARED_PAGE_MAX_BYTES;
    if size_new <= usable && size_new >= layout.size() / 2 && !moves_apart {
        count(counted_bytes(size_new) as i64 - counted_bytes(layout.size()) as i64);
        return block;
    }
    // SAFETY: the caller passes a size that makes a layout with the alignment.
    let layout_new = unsafe { Layout::from_size_align_unchecked(size_new, layout.align()) };
    // The old block does not count while it is copied, which may take milliseconds. Otherwise
    // another thread could find memory over its limit and evict keys.
    let old_bytes = counted_bytes(layout.size()) as i64;
    count(-old_bytes);
    // SAFETY: sizes are not zero.
    let moved = unsafe { CountingAllocator.alloc(layout_new) };
    if moved.is_null() {
        count(old_bytes);
        return moved;
    }
    // SAFETY: two blocks of at least that many bytes, of which one is new.
    unsafe { std::ptr::copy_nonoverlapping(block, moved, layout.size().min(size_new)) };
    // SAFETY: the caller gives the block up if we return another.
    unsafe { CountingAllocator.dealloc(block, layout) };
    count(old_bytes);
    moved
}

/// Returns the bytes allocated and not yet freed, by all threads together. Costs one cache miss for
/// each thread ever started, at most 256. Call it once in a turn of a thread's loop or once a
/// batch, not once a request.
pub fn used_memory_bytes() -> usize {
    let threads = THREADS_SEEN.load(Relaxed);
    let owned = COUNTERS.iter().take(threads.min(OWNED_MAX));
    let shared = COUNTERS.iter().skip(OWNED_MAX).take(threads.saturating_sub(OWNED_MAX));
    let sum: i64 = owned.chain(shared).map(|counter| counter.load(Relaxed)).sum();
    usize::try_from(sum).unwrap_or(0) // Below zero only if bytes moved between threads meanwhile.
}

/// Returns the bytes that the calling thread has allocated, less those it has freed; it may be
/// negative. A change of this number is the thread's contribution to the change of
/// [`used_memory_bytes`]. Threads beyond the first 248 share counters. O(1).
#[inline]
pub fn thread_memory_bytes() -> i64 {
    let index = INDEX.get();
    if index < OWNED_MAX {
        return COUNTERS[index].load(Relaxed);
    }
    COUNTERS[OWNED_MAX + index % (COUNTERS_MAX - OWNED_MAX)].load(Relaxed)
}

/// Reads `used_memory_bytes`, raises the recorded peak to that value if it is higher, and returns
/// the value. The peak covers only the values that this function has read: call it at least once a
/// tick.
pub fn sample_peak() -> usize {
    let used = used_memory_bytes();
    PEAK_BYTES.fetch_max(used, Relaxed);
    used
}

/// Returns the highest value in bytes that `sample_peak` has read since the start or the last
/// `reset_peak`.
pub fn peak_memory_bytes() -> usize {
    PEAK_BYTES.load(Relaxed)
}

/// Resets the recorded peak of used memory to the present used memory.
pub fn reset_peak() {
    PEAK_BYTES.store(used_memory_bytes(), Relaxed);
}

/// Returns the bytes of memory that the allocator has committed: allocated bytes, and free memory
/// that it keeps.
pub fn committed_bytes() -> usize {
    let mut values = [0_usize; 8];
    let [elapsed, user, system, rss, rss_peak, committed, committed_peak, faults] = &mut values;
    // SAFETY: eight pointers to integers that live until it returns.
    unsafe {
        mi::mi_process_info(elapsed, user, system, rss, rss_peak, committed, committed_peak, faults);
    }
    values[5]
}

/// mimalloc's number for its option `purge_delay`, the same in its versions 2 and 3.
const OPTION_PURGE_DELAY: mi::OptionNumber = 15;
/// mimalloc 3's number for its option `minimal_purge_size`; version 2 has no such
/// option and ignores it.
const OPTION_MINIMAL_PURGE_SIZE: mi::OptionNumber = 44;
/// The smallest free range that is returned to the system, in KiB: one of mimalloc's slices.
const PURGED_KIB_MIN: std::ffi::c_long = 64;
/// The smallest free range of memory, in KiB, that is returned to the system while huge pages stay
/// whole: the size of one huge page.
const PURGED_KIB_MIN_HUGE: std::ffi::c_long = 2048;
/// mimalloc 3's number for its option `page_max_candidates`; version 2 ignores it.
const OPTION_PAGE_MAX_CANDIDATES: mi::OptionNumber = 37;
/// The number of memory pages of a size class that mimalloc compares before it allocates from the
/// fullest one, so that the others become empty. This is mimalloc's own choice.
const PAGE_CANDIDATES: std::ffi::c_long = 4;
/// The number of memory pages that mimalloc compares, in place of [`PAGE_CANDIDATES`], while
/// resident memory follows used memory closely.
const PAGE_CANDIDATES_CLOSE: std::ffi::c_long = 64;
/// The time in milliseconds for which freed pages stay with the process. While a data set grows,
/// its tables leave free blocks of every size. With mimalloc's default of one second, resident
/// memory is then 5–10 % higher. In our measurements, ten milliseconds cost nothing.
const PURGE_DELAY_MS: std::ffi::c_long = 10;

/// Sets mimalloc's options for a server: the delay after which free memory is returned to the
/// operating system, and the size of the returned ranges. Must be called once, early.
pub fn configure() {
    // SAFETY: no precondition.
    unsafe { mi::mi_option_set(OPTION_PURGE_DELAY, PURGE_DELAY_MS) }
    split_huge_pages();
}

/// Makes the allocator return only free ranges of at least one huge page (2 MiB) to the operating
/// system. Huge pages then stay whole. Applies until [`split_huge_pages`] is called.
pub fn keep_huge_pages_whole() {
    // SAFETY: no precondition.
    unsafe { mi::mi_option_set(OPTION_MINIMAL_PURGE_SIZE, PURGED_KIB_MIN_HUGE) }
}

/// Makes the allocator return free ranges of 64 KiB and more to the operating system, even if that
/// splits huge pages. Ranges that were too small before are returned by the next [`purge`].
pub fn split_huge_pages() {
    // SAFETY: no precondition.
    unsafe { mi::mi_option_set(OPTION_MINIMAL_PURGE_SIZE, PURGED_KIB_MIN) }
}

/// Returns the free memory of the calling thread's heap and of the shared arenas to the operating
/// system. Other threads' heaps are not affected: each thread purges its own. Takes milliseconds if
/// much is free.
pub fn purge() {
    // SAFETY: no precondition.
    unsafe { mi::mi_collect(true) }
}

/// Returns ranges of the shared arenas to the operating system that have been free for at least the
/// configured delay (milliseconds). Without this call they would stay until some thread allocates.
/// Costs a few loads if there is no such range.
pub fn purge_expired() {
    // SAFETY: no precondition.
    unsafe { mi::mi_collect(false) }
}

/// Returns the name and version of the allocator, as INFO shows it: `mimalloc-3.3`.
pub fn allocator_name() -> String {
    // SAFETY: no precondition.
    let version = unsafe { mi::mi_version() };
    // The version has two digits of minor and two digits of patch version.
    format!("mimalloc-{}.{}", version / 10_000, version / 100 % 100)
}

/// Returns mimalloc's own statistics as text for people, at most 64 KiB.
pub fn stats_text() -> String {
    let mut text: Vec<u8> = Vec::with_capacity(STATS_TEXT_MAX_BYTES);
    // SAFETY: `append` expects a pointer to such a vector, and is called only before this returns.
    unsafe { mi::mi_stats_print_out(Some(append_text), (&raw mut text).cast()) };
    String::from_utf8_lossy(&text).into_owned()
}

/// Appends a message of mimalloc's to the text, cut at the text's capacity. The text must not grow:
/// mimalloc must not be asked for memory inside its own call.
unsafe extern "C" fn append_text(message: *const c_char, text: *mut c_void) {
    // SAFETY: `stats_text` passes its vector and touches it only after the last call.
    let text: &mut Vec<u8> = unsafe { &mut *text.cast::<Vec<u8>>() };
    if message.is_null() {
        return;
    }
    // SAFETY: mimalloc passes a string that ends in zero and lives until we return.
    let message = unsafe { CStr::from_ptr(message) }.to_bytes();
    let fits = message.len().min(text.capacity() - text.len());
    text.extend_from_slice(&message[..fits]);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Allocates from the counting allocator directly, so that the tests do not count the harness'
    /// other threads: this binary's global allocator is the system's.
    fn alloc(layout: Layout) -> *mut u8 {
        // SAFETY: no test asks for a layout of size zero.
        let block = unsafe { CountingAllocator.alloc(layout) };
        assert!(!block.is_null());
        assert_eq!(block.addr() % layout.align(), 0, "{layout:?}");
        block
    }

    fn free(block: *mut u8, layout: Layout) {
        // SAFETY: the tests pass what `alloc` returned for this layout, once.
        unsafe { CountingAllocator.dealloc(block, layout) }
    }

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).expect("a valid layout")
    }

    fn usable(block: *mut u8) -> usize {
        // SAFETY: a live block of mimalloc's.
        unsafe { mi::mi_usable_size(block.cast()) }
    }

    /// Returns the calling thread's counter of allocated bytes.
    fn counted_here() -> i64 {
        count(0);
        COUNTERS[INDEX.get()].load(Relaxed)
    }

    #[test]
    fn counted_is_usable_for_every_class_and_at_most_an_eighth_less_above() {
        let sizes = (1..=20_000).chain((20_000..CLASSES_MAX_BYTES).step_by(997)).chain([
            CLASSES_MAX_BYTES - 1,
            CLASSES_MAX_BYTES,
            CLASSES_MAX_BYTES + 1,
            700_000,
            1 << 20,
            (1 << 20) + 1,
            5_000_000,
            33_000_001,
        ]);
        let mut wrong = Vec::new();
        for size in sizes {
            let layout = layout(size, 1);
            let block = alloc(layout);
            let off = counted_bytes(size) as i64 - usable(block) as i64;
            let right = if size > CLASSES_MAX_BYTES {
                off <= 0 && off.unsigned_abs() as usize * 8 <= size
            } else {
                off == if size <= 8 { 8 } else { 0 }
            };
            if !right {
                wrong.push((size, counted_bytes(size), usable(block)));
            }
            free(block, layout);
        }
        assert!(
            wrong.is_empty(),
            "{} wrong (asked, counted, usable): {:?}",
            wrong.len(),
            &wrong[..wrong.len().min(20)]
        );
    }

    #[test]
    fn the_patched_mimalloc_is_linked() {
        // SAFETY: no precondition.
        assert_eq!(unsafe { mi::mi_good_size(536) }, 544, "libmimalloc-sys' own has 640");
        for size in 9..=CLASSES_MAX_BYTES {
            // SAFETY: no precondition.
            assert_eq!(size_class(size), unsafe { mi::mi_good_size(size) }, "of {size}");
        }
    }

    #[test]
    fn blocks_of_whole_lines_are_aligned_without_a_line_more() {
        for lines in 1..=64 {
            let layout = layout(lines * 64, 64);
            let blocks: Vec<_> = (0..100).map(|_| alloc(layout)).collect();
            for block in blocks {
                assert_eq!(usable(block), counted_bytes(layout.size()), "{lines} lines");
                free(block, layout);
            }
        }
    }

    #[test]
    fn what_is_freed_is_no_longer_counted() {
        let before = counted_here();
        let small = layout(100, 8);
        let wide = layout(300, 64);
        let (a, b) = (alloc(small), alloc(wide));
        assert_eq!(counted_here() - before, 112 + 304);
        free(a, small);
        assert_eq!(counted_here() - before, 304);
        free(b, wide);
        assert_eq!(counted_here(), before);
    }

    #[test]
    fn a_block_that_moves_keeps_its_bytes_and_its_alignment() {
        for align in [1, 8, 16, 32, 128, 4096] {
            let before = counted_here();
            let first = layout(64, align);
            let block = alloc(first);
            // SAFETY: 64 bytes of our own.
            unsafe { block.write_bytes(7, 64) };
            // SAFETY: the block and layout from above; the size is not zero.
            let block = unsafe { CountingAllocator.realloc(block, first, 5000) };
            assert_eq!(block.addr() % align, 0);
            // SAFETY: 5000 bytes, the first 64 of them written.
            let bytes = unsafe { std::slice::from_raw_parts(block, 64) };
            assert!(bytes.iter().all(|&byte| byte == 7));
            assert_eq!(counted_here() - before, counted_bytes(5000) as i64);
            // SAFETY: as above; down to less than the alignment for most of the loop.
            let block = unsafe { CountingAllocator.realloc(block, layout(5000, align), 9) };
            assert_eq!(block.addr() % align, 0);
            free(block, layout(9, align));
            assert_eq!(counted_here(), before);
        }
    }

    #[test]
    fn zeroed_blocks_are_zero_at_every_alignment() {
        for align in [1, 16, 256] {
            let layout = layout(1000, align);
            // SAFETY: the size is not zero.
            let block = unsafe { CountingAllocator.alloc_zeroed(layout) };
            // SAFETY: 1000 bytes, initialised to zero.
            assert!(unsafe { std::slice::from_raw_parts(block, 1000) }.iter().all(|&byte| byte == 0));
            free(block, layout);
        }
    }

    #[test]
    fn small_sizes_with_a_larger_alignment_are_aligned() {
        for (size, align) in [(1, 16), (8, 16), (2, 8), (24, 16), (40, 16), (3, 4096)] {
            let layout = layout(size, align);
            let blocks: Vec<_> = (0..100).map(|_| alloc(layout)).collect();
            blocks.into_iter().for_each(|block| free(block, layout));
        }
    }

    #[test]
    fn threads_that_share_a_counter_lose_no_update() {
        let layout = layout(100, 8);
        std::thread::scope(|scope| {
            for thread in 0..32 {
                scope.spawn(move || {
                    INDEX.set(OWNED_MAX + thread); // As if that many threads had started before.
                    (0..1000).for_each(|_| free(alloc(layout), layout));
                });
            }
        });
        let shared: i64 = COUNTERS[OWNED_MAX..].iter().map(|counter| counter.load(Relaxed)).sum();
        assert_eq!(shared, 0);
    }

    #[test]
    fn the_sum_is_right_whichever_thread_frees() {
        let layout = layout(64 << 20, 16);
        let before = sample_peak() as i64;
        let elsewhere = || {
            let thread = std::thread::spawn(move || alloc(layout).expose_provenance());
            thread.join().expect("the thread ended well")
        };
        let blocks = [elsewhere(), elsewhere(), elsewhere()];
        // The other tests of this binary hold less than 40 MB at any time: hence the slack.
        let grown = sample_peak() as i64 - before;
        assert!((grown - (192 << 20)).abs() < 40_000_000, "{grown}");
        assert!(peak_memory_bytes() as i64 >= before + grown);
        blocks.into_iter().for_each(|block| free(std::ptr::with_exposed_provenance_mut(block), layout));
        assert!((used_memory_bytes() as i64 - before).abs() < 40_000_000);
    }

    #[test]
    fn the_allocator_tells_its_name_and_statistics() {
        assert!(allocator_name().starts_with("mimalloc-3."), "{}", allocator_name());
        // Without a heap in this process mimalloc has no statistics to print.
        let block = alloc(Layout::new::<u64>());
        purge();
        let text = stats_text();
        // SAFETY: allocated above with this layout, not freed yet.
        unsafe { CountingAllocator.dealloc(block, Layout::new::<u64>()) };
        assert!(text.len() > 100 && text.len() <= STATS_TEXT_MAX_BYTES, "{text}");
    }

    /// Measures the cost of counting allocated bytes: `cargo test --release -p structures
    /// what_counting_costs -- --ignored --nocapture`
    #[test]
    #[ignore = "a measurement: run it alone, in a release build"]
    fn what_counting_costs() {
        const CALLS: u32 = 2_000_000;
        // The best of several alternating rounds, so that other work of the machine has no effect.
        let round_ns = |run: &dyn Fn()| {
            let start = std::time::Instant::now();
            (0..CALLS).for_each(|_| run());
            start.elapsed().as_nanos() as f64 / f64::from(CALLS)
        };
        for size in [16, 64, 200, 2000] {
            let layout = layout(std::hint::black_box(size), 8);
            let (mut bare, mut counted) = (f64::MAX, f64::MAX);
            for _ in 0..15 {
                bare = bare.min(round_ns(&|| {
                    // SAFETY: any size is allowed.
                    let block = std::hint::black_box(unsafe { mi::mi_malloc(layout.size()) });
                    // SAFETY: allocated just now.
                    unsafe { mi::mi_free(block) };
                }));
                counted = counted.min(round_ns(&|| {
                    // SAFETY: the size is not zero.
                    let block = std::hint::black_box(unsafe { CountingAllocator.alloc(layout) });
                    // SAFETY: allocated just now, for this layout.
                    unsafe { CountingAllocator.dealloc(block, layout) };
                }));
            }
            println!("{size} B, an allocation and its free: bare {bare:.1} ns, counted {counted:.1} ns");
        }
    }
}
