//! A heap block of a whole size class behind one thin pointer: the storage of table elements.
//!
//! A block stores neither its length nor its type. The owner derives both from the bytes that it
//! wrote at the block's start. It frees the block explicitly, with the requested length or any
//! other length of the same class. Blocks are aligned to 16, so four bits of their address in a
//! table are free for flags.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

use crate::size_class::size_class;

const BLOCK_ALIGN: usize = 16;

/// A thin pointer to a block. See the module's comment. Copying it copies only the pointer; the
/// user decides which copy owns the block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    start: NonNull<u8>,
}

impl Block {
    fn layout(len_bytes: usize) -> Layout {
        Layout::from_size_align(size_class(len_bytes), BLOCK_ALIGN)
            .expect("elements are far below isize::MAX bytes")
    }

    /// Allocates an uninitialised block of memory of at least `len_bytes`, which must not be zero.
    #[inline]
    pub(crate) fn allocate(len_bytes: usize) -> Self {
        assert!(len_bytes > 0, "a block holds at least its own shape");
        let layout = Self::layout(len_bytes);
        // SAFETY: the layout is not empty, see the assertion.
        let start = unsafe { alloc(layout) };
        Block { start: NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout)) }
    }

    /// Frees the block's memory.
    ///
    /// # Safety
    /// The block was allocated with a length of the same size class, and no copy of it is used
    /// again.
    #[inline]
    pub(crate) unsafe fn free(self, len_bytes: usize) {
        // SAFETY: the caller passes a length that gives the layout of `allocate`.
        unsafe { dealloc(self.start.as_ptr(), Self::layout(len_bytes)) };
    }

    /// Converts the block to a thin pointer, the address of its first byte.
    #[inline]
    pub(crate) fn into_raw(self) -> NonNull<u8> {
        self.start
    }

    /// Converts a pointer from [`Block::into_raw`] back to its block.
    #[inline]
    pub(crate) fn from_raw(start: NonNull<u8>) -> Self {
        Block { start }
    }

    /// Reads a value of a plain type at offset `at` of the block.
    ///
    /// # Safety
    /// `at + size_of::<T>()` lies within the block and the bytes there were written as a `T`.
    #[inline]
    pub(crate) unsafe fn read<T: Copy>(self, at: usize) -> T {
        // SAFETY: the caller keeps `at` within the block.
        let place = unsafe { self.start.add(at) };
        // SAFETY: the caller wrote a `T` there.
        unsafe { place.cast::<T>().read_unaligned() }
    }

    /// Writes a value of a plain type at offset `at` of the block.
    ///
    /// # Safety
    /// `at + size_of::<T>()` lies within the block, and nobody borrows those bytes.
    #[inline]
    pub(crate) unsafe fn write<T: Copy>(self, at: usize, value: T) {
        // SAFETY: the caller keeps `at` within the block.
        let place = unsafe { self.start.add(at) };
        // SAFETY: as above; besides, no other reference to the bytes exists, as the caller
        // guarantees.
        unsafe { place.cast::<T>().write_unaligned(value) };
    }

    /// Borrows the bytes in a range of the block, for a lifetime of the caller's choice.
    ///
    /// # Safety
    /// The range lies within the block, was written, and is neither changed nor freed during `'a`.
    #[inline]
    pub(crate) unsafe fn bytes<'a>(self, at: usize, len: usize) -> &'a [u8] {
        // SAFETY: the caller keeps `at` within the block.
        let place = unsafe { self.start.add(at) };
        // SAFETY: the caller keeps the range within the block, written and unchanged.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), len) }
    }

    /// Copies `bytes` to offset `at` of the block.
    ///
    /// # Safety
    /// The range lies within the block, nobody borrows it, and `bytes` lie elsewhere.
    #[inline]
    pub(crate) unsafe fn copy_in(self, at: usize, bytes: &[u8]) {
        // SAFETY: the caller keeps `at` within the block.
        let place = unsafe { self.start.add(at) };
        // SAFETY: the caller has the range for itself, and `bytes` do not overlap it.
        unsafe { place.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }
}
