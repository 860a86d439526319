//! Free lists for the small blocks of a Lua state: freed blocks are kept here and used again.
//!
//! ```text
//!   Lua ──free──▶ stack of addresses ──alloc──▶ Lua        one stack a size, 16 bytes apart
//!                     │ full        ▲ empty
//!                     ▼             │
//!                  the process' allocator
//! ```
//! A garbage collection frees blocks that were used long ago, so they are no longer in the CPU
//! cache. An allocator that stores its list of free blocks in the blocks themselves has a cache
//! miss for each block. Here the addresses of free blocks are stored in an array. So the next
//! blocks are prefetched while Lua works on the previous ones (docs/performance.md).

use std::alloc::Layout;
use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

/// The difference between two successive sizes of kept memory blocks, in bytes.
const STEP_BYTES: usize = 16;
/// The size of the largest freed block that is kept for later use, in bytes.
const KEPT_BYTES_MAX: usize = 512;
/// The maximum memory of all kept blocks of a Lua state, in bytes. A garbage collection has two
/// phases. While it marks the values in use, blocks are only allocated, for about half of the
/// memory that Lua holds. Then it frees blocks.
const ALL_BYTES_MAX: usize = 1 << 20;
/// The distance of the prefetch: the block that is prefetched will be allocated this many calls
/// later.
const AHEAD: usize = 4;

/// The freed memory blocks of one size that are kept for later use: addresses of live allocations
/// with [`layout_of`] this size.
#[derive(Default)]
struct Stack(Vec<NonNull<u8>>);

/// The freed blocks of a Lua state that are kept for its next allocations.
pub(super) struct Blocks {
    /// The kept blocks, by size. The index is the size in units of [`STEP_BYTES`], less one.
    stacks: UnsafeCell<[Stack; KEPT_BYTES_MAX / STEP_BYTES]>,
    /// The total size of all kept memory blocks, in bytes.
    kept_bytes: Cell<usize>,
}

/// Returns the size of the kept blocks in the stack with the index `size`, in bytes.
fn block_bytes(size: usize) -> usize {
    (size + 1) * STEP_BYTES
}

/// Returns the layout in which Lua's blocks of `len` bytes are allocated.
pub(super) fn layout_of(len: usize) -> Layout {
    let len = if len <= KEPT_BYTES_MAX { len.next_multiple_of(STEP_BYTES) } else { len };
    Layout::from_size_align(len, STEP_BYTES).expect("checked against isize::MAX, or a size allocated before")
}

impl Blocks {
    pub(super) fn new() -> Self {
        Self { stacks: UnsafeCell::new(std::array::from_fn(|_| Stack::default())), kept_bytes: Cell::new(0) }
    }

    /// Returns a memory block of `len` bytes, where `len` is at least 1; null if there is no
    /// memory.
    pub(super) fn allocate(&self, len: usize) -> *mut u8 {
        match self.reuse(len) {
            Some(block) => block.as_ptr(),
            // SAFETY: its size is not 0.
            None => unsafe { std::alloc::alloc(layout_of(len)) },
        }
    }

    /// Returns a block of `len` bytes from the kept ones; `None` if there is none, or if `len` is
    /// 0.
    #[inline]
    pub(super) fn reuse(&self, len: usize) -> Option<NonNull<u8>> {
        let size = len.wrapping_sub(1) / STEP_BYTES;
        // SAFETY: `Blocks` stays on its thread, and no code in here calls back into it.
        let stacks = unsafe { &mut *self.stacks.get() };
        let Stack(blocks) = stacks.get_mut(size)?;
        let block = blocks.pop()?;
        self.kept_bytes.set(self.kept_bytes.get() - block_bytes(size));
        if let Some(&later) = blocks.get(blocks.len().wrapping_sub(AHEAD)) {
            prefetch(later.as_ptr());
        }
        Some(block)
    }

    /// Keeps a freed block for later use. Returns it to the process' allocator if it is too large
    /// or enough blocks are kept.
    ///
    /// `block` has `len` bytes and was returned by this `Blocks`. The caller does not use it again.
    #[inline]
    pub(super) unsafe fn free(&self, block: NonNull<u8>, len: usize) {
        let size = len.wrapping_sub(1) / STEP_BYTES;
        // SAFETY: `Blocks` stays on its thread, and no code in here calls back into it.
        let stacks = unsafe { &mut *self.stacks.get() };
        if let Some(Stack(blocks)) = stacks.get_mut(size) {
            let kept_bytes = self.kept_bytes.get() + block_bytes(size);
            if kept_bytes <= ALL_BYTES_MAX {
                self.kept_bytes.set(kept_bytes);
                blocks.push(block);
                return;
            }
        }
        // SAFETY: the caller guarantees that it was allocated with this layout.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout_of(len)) }
    }

    /// Makes a block larger or smaller, and returns its address. Returns null if there is no
    /// memory; the block then stays unchanged.
    ///
    /// `block` has `old_len` bytes and was returned by this `Blocks`. The caller does not use its
    /// address again unless null is returned. `len` is at least 1.
    pub(super) unsafe fn resize(&self, block: NonNull<u8>, old_len: usize, len: usize) -> *mut u8 {
        let address = block.as_ptr();
        if old_len > KEPT_BYTES_MAX && len > KEPT_BYTES_MAX {
            // SAFETY: the caller guarantees that it was allocated with this layout; `len` is not 0.
            return unsafe { std::alloc::realloc(address, layout_of(old_len), len) };
        }
        if layout_of(old_len) == layout_of(len) {
            return address;
        }
        let new = self.allocate(len);
        if !new.is_null() {
            // SAFETY: both are so long at least, and they differ, as both are live.
            unsafe { std::ptr::copy_nonoverlapping(address, new, old_len.min(len)) };
            // SAFETY: the caller says so.
            unsafe { self.free(block, old_len) };
        }
        new
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        for (size, Stack(blocks)) in self.stacks.get_mut().iter_mut().enumerate() {
            for block in blocks.drain(..) {
                // SAFETY: it was allocated with that layout, and `free` was given it for good.
                unsafe { std::alloc::dealloc(block.as_ptr(), layout_of(block_bytes(size))) };
            }
        }
    }
}

/// Makes the processor load into its cache a block of memory that will be written soon.
#[inline]
fn prefetch(block: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: any address may be prefetched.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(block.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = block;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allocate(blocks: &Blocks, len: usize) -> NonNull<u8> {
        NonNull::new(blocks.allocate(len)).expect("there is memory")
    }

    #[test]
    fn what_is_freed_is_used_again() {
        let blocks = Blocks::new();
        let first = allocate(&blocks, 30);
        // SAFETY: it was just allocated with that length.
        unsafe { blocks.free(first, 30) };
        assert_eq!(allocate(&blocks, 17), first);
        // SAFETY: it is of that length since.
        unsafe { blocks.free(first, 17) };
    }

    #[test]
    fn blocks_keep_what_they_hold_while_they_grow_and_shrink() {
        let blocks = Blocks::new();
        let sizes = [1, 16, 17, 300, 512, 513, 4000, 5000, 512, 40, 1];
        let mut block = allocate(&blocks, sizes[0]);
        for pair in sizes.windows(2) {
            let kept_len = pair[0].min(pair[1]);
            // SAFETY: it has the length that it was given last, which is no less.
            unsafe { block.write_bytes(pair[1] as u8, kept_len) };
            // SAFETY: it has the length that it was given last.
            let resized = unsafe { blocks.resize(block, pair[0], pair[1]) };
            block = NonNull::new(resized).expect("there is memory");
            // SAFETY: all of it is the test's, and so much was written.
            let kept = unsafe { std::slice::from_raw_parts(block.as_ptr(), kept_len) };
            assert!(kept.iter().all(|&byte| byte == pair[1] as u8), "{pair:?}");
        }
        // SAFETY: it has that length.
        unsafe { blocks.free(block, 1) };
    }

    #[test]
    fn no_more_is_kept_than_the_bound() {
        let blocks = Blocks::new();
        // A block of the least length for its size takes as much memory as one of the greatest.
        for len in [49, 64, 512] {
            let all: Vec<_> = (0..30_000).map(|_| allocate(&blocks, len)).collect();
            for block in all {
                // SAFETY: it was allocated with that length.
                unsafe { blocks.free(block, len) };
            }
            // SAFETY: nobody else uses them.
            let stacks = unsafe { &*blocks.stacks.get() };
            let [of_64, of_512] = [3, 31].map(|size: usize| stacks[size].0.len());
            assert_eq!(of_64 * 64 + of_512 * 512, ALL_BYTES_MAX);
            assert_eq!(blocks.kept_bytes.get(), ALL_BYTES_MAX);
        }
    }
}
