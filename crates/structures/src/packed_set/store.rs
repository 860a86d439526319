//! The block of a bucket with the number of its members, in 16 bytes.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// An owned block of bytes and a number. It is a `Box<[u8]>` whose length has four bytes, so that
/// the number fits beside it.
pub(super) struct Store {
    /// The address of the block; dangling if the length is 0.
    start: NonNull<u8>,
    len_bytes: u32,
    /// The number of members in the block.
    pub(super) count: u32,
}

// SAFETY: a store owns its block alone, like a `Box<[u8]>`.
unsafe impl Send for Store {}
// SAFETY: a shared store gives shared references to its bytes only.
unsafe impl Sync for Store {}

impl Default for Store {
    /// Creates a store without a block.
    fn default() -> Self {
        Self { start: NonNull::dangling(), len_bytes: 0, count: 0 }
    }
}

impl Store {
    fn layout(len_bytes: u32) -> Layout {
        Layout::array::<u8>(len_bytes as usize).expect("a length of 32 bits is a layout")
    }

    /// Creates a store with a block of zeros, for `count` members. `len_bytes` must not be 0.
    ///
    /// # Panics
    /// If the length is not below 4 GiB.
    pub(super) fn zeroed(len_bytes: usize, count: u32) -> Self {
        let len_bytes = u32::try_from(len_bytes).expect("a bucket is far below 4 GiB");
        assert!(len_bytes > 0, "a store without bytes has no block");
        let layout = Self::layout(len_bytes);
        // SAFETY: the layout is not empty, see the assertion.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Self { start, len_bytes, count }
    }

    /// Borrows the block. O(1).
    #[inline]
    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the block has this length, was written as a whole, and lives as long as `self`.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len_bytes as usize) }
    }

    /// Borrows the block mutably. O(1).
    #[inline]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`; `self` is borrowed mutably, so nobody else uses the block.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len_bytes as usize) }
    }
}

impl Clone for Store {
    fn clone(&self) -> Self {
        if self.len_bytes == 0 {
            return Self::default();
        }
        let mut copy = Self::zeroed(self.len_bytes as usize, self.count);
        copy.bytes_mut().copy_from_slice(self.bytes());
        copy
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if self.len_bytes > 0 {
            // SAFETY: the block was allocated with this layout and is not used again.
            unsafe { dealloc(self.start.as_ptr(), Self::layout(self.len_bytes)) };
        }
    }
}

const _: () = assert!(size_of::<Store>() == 16);
