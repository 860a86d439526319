//! A member of a set or sorted set: its bytes, and its score if it has one, in one allocation.
//!
//! ```text
//!  [payload P] [len u8 < 255] [bytes]                   short: up to 254 bytes
//!  [payload P] [255] [len u64] [bytes]                  long
//! ```
//! `P` is `()` for a set's member and `f64` for a sorted set's member. So 15 bytes without a score
//! fit a block of 16, and 23 bytes with a score fit a block of 32. The block is a whole size class,
//! aligned to 16; its length follows from its content. The bytes never change; the payload may.
//! Every operation is O(bytes copied).

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::block::Block;
use crate::size_class::size_class;
use crate::table::{Borrowed, Thin};

/// The value of the length byte of a long member: its length follows in eight bytes.
const LEN_LONG: u8 = u8::MAX;

/// The position of a member's bytes in its memory block: offset and length.
#[derive(Clone, Copy)]
struct Shape {
    at: usize,
    len: usize,
}

impl Shape {
    #[inline]
    fn of<P>(len: usize) -> Self {
        let long = if len >= LEN_LONG as usize { size_of::<u64>() } else { 0 };
        Shape { at: size_of::<P>() + 1 + long, len }
    }

    #[inline]
    fn len_bytes(self) -> usize {
        self.at + self.len
    }
}

/// One member of a set or sorted set behind one thin pointer. See the module's comment.
pub struct Member<P: Copy> {
    block: Block,
    payload: PhantomData<P>,
}

// SAFETY: a member owns its block alone and holds nothing but plain bytes.
unsafe impl<P: Copy + Send> Send for Member<P> {}
// SAFETY: a shared member only lets its bytes be read.
unsafe impl<P: Copy + Sync> Sync for Member<P> {}

impl<P: Copy> Member<P> {
    /// Creates a member with the name `bytes` and this payload (a sorted set's score, or nothing).
    /// One allocation.
    pub fn new(bytes: &[u8], payload: P) -> Self {
        let shape = Shape::of::<P>(bytes.len());
        let block = Block::allocate(shape.len_bytes());
        // SAFETY: the payload is the first field of the shape, and the block is new.
        unsafe { block.write(0, payload) };
        let short = u8::try_from(bytes.len()).unwrap_or(LEN_LONG);
        // SAFETY: the length byte is the second field of the shape, and the block is new.
        unsafe { block.write(size_of::<P>(), short) };
        if short == LEN_LONG {
            // SAFETY: the long length is a field of this shape, and the block is new.
            unsafe { block.write(size_of::<P>() + 1, bytes.len() as u64) };
        }
        // SAFETY: the bytes are the last field of the shape, and the block is new.
        unsafe { block.copy_in(shape.at, bytes) };
        Member { block, payload: PhantomData }
    }

    /// Determines the position of the bytes in a member's block.
    ///
    /// # Safety
    /// `block` was written by [`Member::new`] of the same `P` and not freed.
    #[inline]
    unsafe fn shape(block: Block) -> Shape {
        // SAFETY: every member has its length byte after the payload.
        let short = unsafe { block.read::<u8>(size_of::<P>()) };
        if short < LEN_LONG {
            return Shape::of::<P>(short.into());
        }
        // SAFETY: that byte says that the long length follows.
        let len = unsafe { block.read::<u64>(size_of::<P>() + 1) };
        Shape::of::<P>(len as usize)
    }

    /// Borrows the bytes of the member behind a raw pointer. O(1).
    ///
    /// # Safety
    /// `raw` came from `into_raw` of a `Member<P>` that lives during `'a`.
    #[inline]
    pub(crate) unsafe fn bytes_of<'a>(raw: NonNull<u8>) -> &'a [u8] {
        let block = Block::from_raw(raw);
        // SAFETY: the caller's member lives.
        let shape = unsafe { Self::shape(block) };
        // SAFETY: a member's bytes are written once and freed with it.
        unsafe { block.bytes(shape.at, shape.len) }
    }

    /// Returns the payload (the score, or nothing) of the member behind a raw pointer. O(1).
    ///
    /// # Safety
    /// `raw` came from `into_raw` of a `Member<P>` that lives.
    #[inline]
    pub(crate) unsafe fn payload_of(raw: NonNull<u8>) -> P {
        // SAFETY: every member starts with its payload.
        unsafe { Block::from_raw(raw).read(0) }
    }

    /// Borrows the bytes of the member's name. O(1).
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: this member lives as long as the borrow.
        unsafe { Self::bytes_of(self.block.into_raw()) }
    }

    /// Returns the payload of the member: its score, or nothing. O(1).
    #[inline]
    pub fn payload(&self) -> P {
        // SAFETY: this member lives.
        unsafe { Self::payload_of(self.block.into_raw()) }
    }

    /// Replaces the payload (the score) of the member. O(1).
    #[inline]
    pub fn set_payload(&mut self, payload: P) {
        // SAFETY: every member starts with its payload, which nobody borrows: it is given by value.
        unsafe { self.block.write(0, payload) };
    }

    /// Returns the bytes that the member takes from the allocator. O(1).
    #[inline]
    pub fn block_len_bytes(&self) -> usize {
        // SAFETY: this member lives.
        let shape = unsafe { Self::shape(self.block) };
        size_class(shape.len_bytes())
    }

    /// Returns the address of the member's block, which stays the same for its life.
    #[inline]
    pub(crate) fn address(&self) -> NonNull<u8> {
        self.block.into_raw()
    }
}

impl<P: Copy> Clone for Member<P> {
    fn clone(&self) -> Self {
        Member::new(self.bytes(), self.payload())
    }
}

impl<P: Copy> Drop for Member<P> {
    fn drop(&mut self) {
        // SAFETY: this member lives until the end of this function.
        let shape = unsafe { Self::shape(self.block) };
        // SAFETY: the shape is that of the allocation, which is not used again.
        unsafe { self.block.free(shape.len_bytes()) };
    }
}

impl<'a, P: Copy> Borrowed<'a, Member<P>> {
    /// Borrows the bytes of the member's name, as long as the table is borrowed.
    #[inline]
    pub fn bytes(&self) -> &'a [u8] {
        // SAFETY: the table owns the member unchanged for `'a`.
        unsafe { Member::<P>::bytes_of(self.address()) }
    }
}

// SAFETY: blocks have addresses of user space, aligned to 16; a member's bytes never change.
unsafe impl<P: Copy> Thin for Member<P> {
    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        let raw = self.block.into_raw();
        std::mem::forget(self);
        raw
    }
    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Member { block: Block::from_raw(raw), payload: PhantomData }
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.bytes()
    }
}

impl<P: Copy> crate::walk_state::MemorySize for Member<P> {
    fn weight_bytes(&self) -> usize {
        self.block_len_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_reads_back() {
        for len in (0..600).chain([65_535, 65_536, 1 << 20]) {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            let plain = Member::new(&bytes, ());
            assert_eq!(plain.bytes(), bytes);
            let mut scored = Member::new(&bytes, 1.5);
            assert_eq!((scored.bytes(), scored.payload()), (&bytes[..], 1.5));
            scored.set_payload(f64::NEG_INFINITY);
            assert_eq!((scored.bytes(), scored.payload()), (&bytes[..], f64::NEG_INFINITY));
        }
    }

    #[test]
    fn short_members_fill_small_blocks() {
        assert_eq!(Member::new(&[0; 15], ()).block_len_bytes(), 16);
        assert_eq!(Member::new(&[0; 17], ()).block_len_bytes(), 32);
        assert_eq!(Member::new(&[0; 23], 0.0).block_len_bytes(), 32);
    }

    #[test]
    fn a_member_passes_through_its_raw_pointer() {
        let raw = Member::new(b"passes", 2.0).into_raw();
        // SAFETY: `raw` is the member given up in the line above.
        let member = unsafe { Member::<f64>::from_raw(raw) };
        assert_eq!((member.key(), member.payload()), (&b"passes"[..], 2.0));
    }
}
