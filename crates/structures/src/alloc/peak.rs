//! An allocator for tests that measure peak memory: the system's allocator with an exact peak. It
//! is slower than [`CountingAllocator`](super::CountingAllocator), whose peak is sampled.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// The system's allocator, with the sum of requested bytes and its peak. It belongs in a
/// `#[global_allocator]` static.
#[derive(Debug, Default)]
pub struct PeakAllocator {
    used_bytes: AtomicUsize,
    peak_bytes: AtomicUsize,
}

impl PeakAllocator {
    /// Creates an allocator that has allocated no bytes yet.
    pub const fn new() -> Self {
        Self { used_bytes: AtomicUsize::new(0), peak_bytes: AtomicUsize::new(0) }
    }

    /// Returns the number of bytes that are allocated and not freed. O(1).
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Relaxed)
    }

    /// Returns the highest value of [`used_bytes`](Self::used_bytes) since the last
    /// [`reset`](Self::reset). O(1).
    pub fn peak_bytes(&self) -> usize {
        self.peak_bytes.load(Relaxed)
    }

    /// Resets the peak to the number of bytes allocated at present.
    pub fn reset(&self) {
        self.peak_bytes.store(self.used_bytes(), Relaxed);
    }

    fn add(&self, len_bytes: usize) {
        let used = self.used_bytes.fetch_add(len_bytes, Relaxed) + len_bytes;
        self.peak_bytes.fetch_max(used, Relaxed);
    }
}

// SAFETY: all blocks are those of the system's allocator, with its layouts.
unsafe impl GlobalAlloc for PeakAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller passes a layout whose size is not zero.
        let block = unsafe { System.alloc(layout) };
        if !block.is_null() {
            self.add(layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the caller passes a block of ours and its layout.
        unsafe { System.dealloc(block, layout) };
        self.used_bytes.fetch_sub(layout.size(), Relaxed);
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller passes a layout whose size is not zero.
        let block = unsafe { System.alloc_zeroed(layout) };
        if !block.is_null() {
            self.add(layout.size());
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size_new: usize) -> *mut u8 {
        // SAFETY: the caller passes a block of ours, its layout and a size that is not zero.
        let moved = unsafe { System.realloc(block, layout, size_new) };
        if !moved.is_null() {
            // Both blocks may exist for a moment.
            self.add(size_new);
            self.used_bytes.fetch_sub(layout.size(), Relaxed);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_exact() {
        let allocator = PeakAllocator::new();
        let layout = |size| Layout::from_size_align(size, 8).expect("a layout");
        // SAFETY: the size is not zero.
        let block = unsafe { allocator.alloc(layout(100)) };
        // SAFETY: the size is not zero.
        let other = unsafe { allocator.alloc_zeroed(layout(1000)) };
        assert_eq!((allocator.used_bytes(), allocator.peak_bytes()), (1100, 1100));
        // SAFETY: a block of ours with its layout; the size is not zero.
        let block = unsafe { allocator.realloc(block, layout(100), 50) };
        // SAFETY: a block of ours with its layout.
        unsafe { allocator.dealloc(other, layout(1000)) };
        assert_eq!((allocator.used_bytes(), allocator.peak_bytes()), (50, 1150));
        allocator.reset();
        // SAFETY: a block of ours with its layout.
        unsafe { allocator.dealloc(block, layout(50)) };
        assert_eq!((allocator.used_bytes(), allocator.peak_bytes()), (0, 50));
    }
}
