//! A field of a hash with its value, and the field's deadline if it has one, in one allocation.
//!
//! ```text
//!  [meta u8][field u8][value u16]                     [deadline i64]? [field bytes] [value bytes]
//!  [meta u8][unused 7 bytes][field u64][value u64]    [deadline i64]? [field bytes] [value bytes]
//!   bit 0: long lengths, bit 1: has a deadline
//! ```
//! The long form is used for fields from 256 bytes and for values from 65,536 bytes. The block is a
//! whole size class, so a value that changes its length within the class stays where it is: a field
//! of 16 bytes with a value of up to 28 takes 48 bytes. Every operation is O(bytes copied).

use std::ptr::NonNull;

use crate::block::Block;
use crate::size_class::size_class;
use crate::table::{Borrowed, Table, Thin};

const LONG: u8 = 1;
const DEADLINE: u8 = 2;
const FIELD_LEN_AT: usize = 1;
const VALUE_LEN_AT: usize = 2;
const SHORT_HEADER_LEN_BYTES: usize = 4;
const LONG_FIELD_LEN_AT: usize = 8;
const LONG_VALUE_LEN_AT: usize = 16;
const LONG_HEADER_LEN_BYTES: usize = 24;

/// The layout of the memory block of a hash's field and value, and their lengths, derived from the
/// block's header.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    field_len: usize,
    value_len: usize,
    has_deadline: bool,
}

impl Shape {
    #[inline]
    fn is_long(self) -> bool {
        self.field_len > u8::MAX.into() || self.value_len > u16::MAX.into()
    }

    #[inline]
    fn deadline_at(self) -> usize {
        if self.is_long() { LONG_HEADER_LEN_BYTES } else { SHORT_HEADER_LEN_BYTES }
    }

    #[inline]
    fn field_at(self) -> usize {
        self.deadline_at() + if self.has_deadline { size_of::<i64>() } else { 0 }
    }

    #[inline]
    fn value_at(self) -> usize {
        self.field_at() + self.field_len
    }

    #[inline]
    fn len_bytes(self) -> usize {
        self.value_at() + self.value_len
    }

    /// Returns true if the pair's block can hold a pair of the shape `new`: the same layout and the
    /// same size class.
    #[inline]
    fn keeps_block(self, new: Shape) -> bool {
        self.is_long() == new.is_long() && size_class(self.len_bytes()) == size_class(new.len_bytes())
    }
}

/// One field of a hash and its value behind one thin pointer. See the module's comment.
pub struct Pair {
    block: Block,
}

// SAFETY: a pair owns its block alone and holds nothing but plain bytes.
unsafe impl Send for Pair {}
// SAFETY: a shared pair only lets its bytes be read.
unsafe impl Sync for Pair {}

impl Pair {
    /// Creates a pair of a hash's field and value, with the field's deadline in Unix milliseconds
    /// if it has one. One allocation.
    pub fn new(field: &[u8], value: &[u8], deadline_ms: Option<i64>) -> Self {
        let shape =
            Shape { field_len: field.len(), value_len: value.len(), has_deadline: deadline_ms.is_some() };
        let block = Block::allocate(shape.len_bytes());
        let pair = Pair { block };
        pair.write_header(shape);
        if let Some(at_ms) = deadline_ms {
            // SAFETY: the shape has a deadline there, and the block is new.
            unsafe { block.write(shape.deadline_at(), at_ms) };
        }
        // SAFETY: the shape has the field there, and the block is new.
        unsafe { block.copy_in(shape.field_at(), field) };
        // SAFETY: the shape has the value there, and the block is new.
        unsafe { block.copy_in(shape.value_at(), value) };
        pair
    }

    /// Writes the header of a shape for which the block has room. Every read relies on the lengths
    /// in the header, so the caller must write the field and value at once.
    #[inline]
    fn write_header(&self, shape: Shape) {
        let meta = if shape.is_long() { LONG } else { 0 } | if shape.has_deadline { DEADLINE } else { 0 };
        // SAFETY: every block starts with the meta byte.
        unsafe { self.block.write(0, meta) };
        if shape.is_long() {
            // SAFETY: a long header holds this field.
            unsafe { self.block.write(LONG_FIELD_LEN_AT, shape.field_len as u64) };
            // SAFETY: a long header holds this field.
            unsafe { self.block.write(LONG_VALUE_LEN_AT, shape.value_len as u64) };
        } else {
            // SAFETY: a short header holds this field.
            unsafe { self.block.write(FIELD_LEN_AT, shape.field_len as u8) };
            // SAFETY: a short header holds this field.
            unsafe { self.block.write(VALUE_LEN_AT, shape.value_len as u16) };
        }
    }

    #[inline]
    fn shape(&self) -> Shape {
        // SAFETY: every block starts with the meta byte.
        let meta = unsafe { self.block.read::<u8>(0) };
        let has_deadline = meta & DEADLINE != 0;
        if meta & LONG == 0 {
            // SAFETY: a short header holds this field.
            let field_len = unsafe { self.block.read::<u8>(FIELD_LEN_AT) };
            // SAFETY: a short header holds this field.
            let value_len = unsafe { self.block.read::<u16>(VALUE_LEN_AT) };
            return Shape { field_len: field_len.into(), value_len: value_len.into(), has_deadline };
        }
        // SAFETY: a long header holds this field.
        let field_len = unsafe { self.block.read::<u64>(LONG_FIELD_LEN_AT) };
        // SAFETY: a long header holds this field.
        let value_len = unsafe { self.block.read::<u64>(LONG_VALUE_LEN_AT) };
        Shape { field_len: field_len as usize, value_len: value_len as usize, has_deadline }
    }

    /// Borrows the bytes of the pair's field name, for any lifetime.
    ///
    /// # Safety
    /// The pair is neither changed nor freed during `'a`.
    #[inline]
    unsafe fn field_for<'a>(&self) -> &'a [u8] {
        let shape = self.shape();
        // SAFETY: the shape has the field there; the caller keeps it unchanged.
        unsafe { self.block.bytes(shape.field_at(), shape.field_len) }
    }

    /// Borrows the bytes of the pair's value, for any lifetime.
    ///
    /// # Safety
    /// The pair is neither changed nor freed during `'a`.
    #[inline]
    unsafe fn value_for<'a>(&self) -> &'a [u8] {
        let shape = self.shape();
        // SAFETY: the shape has the value there; the caller keeps it unchanged.
        unsafe { self.block.bytes(shape.value_at(), shape.value_len) }
    }

    /// Borrows the name of the pair's field. O(1).
    #[inline]
    pub fn field(&self) -> &[u8] {
        // SAFETY: the borrow of `self` keeps the pair unchanged.
        unsafe { self.field_for() }
    }

    /// Borrows the value of the pair's field. O(1).
    #[inline]
    pub fn value(&self) -> &[u8] {
        // SAFETY: the borrow of `self` keeps the pair unchanged.
        unsafe { self.value_for() }
    }

    /// Returns the deadline of the field, in Unix milliseconds; `None` if it has none. O(1).
    #[inline]
    pub fn deadline_ms(&self) -> Option<i64> {
        let shape = self.shape();
        if !shape.has_deadline {
            return None;
        }
        // SAFETY: the shape has a deadline there.
        Some(unsafe { self.block.read(shape.deadline_at()) })
    }

    /// Replaces the value of the field and keeps the deadline. The block stays in place if its size
    /// class stays the same.
    #[inline]
    pub fn set_value(&mut self, value: &[u8]) {
        let old = self.shape();
        let new = Shape { value_len: value.len(), ..old };
        if !old.keeps_block(new) {
            *self = Pair::new(self.field(), value, self.deadline_ms());
            return;
        }
        self.write_header(new);
        // SAFETY: the block has room for the new shape, whose value is there;
        // `self` is not borrowed.
        unsafe { self.block.copy_in(new.value_at(), value) };
    }

    /// Sets or clears the deadline of the field, in Unix milliseconds. O(1) if the field had a
    /// deadline and keeps one, else O(block).
    pub fn set_deadline_ms(&mut self, deadline_ms: Option<i64>) {
        let shape = self.shape();
        match deadline_ms {
            Some(at_ms) if shape.has_deadline => {
                // SAFETY: the shape has a deadline there, which is given by value only.
                unsafe { self.block.write(shape.deadline_at(), at_ms) };
            }
            None if !shape.has_deadline => {}
            _ => *self = Pair::new(self.field(), self.value(), deadline_ms),
        }
    }

    /// Returns the bytes that the pair takes from the allocator. O(1).
    #[inline]
    pub fn block_len_bytes(&self) -> usize {
        size_class(self.shape().len_bytes())
    }
}

impl Clone for Pair {
    fn clone(&self) -> Self {
        Pair::new(self.field(), self.value(), self.deadline_ms())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let len_bytes = self.shape().len_bytes();
        // SAFETY: the shape is of the size class of the allocation, which is not used again.
        unsafe { self.block.free(len_bytes) };
    }
}

impl<'a> Borrowed<'a, Pair> {
    /// Borrows the name of the field, as long as the table is borrowed.
    #[inline]
    pub fn field(&self) -> &'a [u8] {
        // SAFETY: the table owns the pair unchanged for `'a`.
        unsafe { self.field_for() }
    }

    /// Borrows the value of the field, as long as the table is borrowed.
    #[inline]
    pub fn value(&self) -> &'a [u8] {
        // SAFETY: the table owns the pair unchanged for `'a`.
        unsafe { self.value_for() }
    }
}

// SAFETY: blocks have addresses of user space, aligned to 16; a pair's field never changes.
unsafe impl Thin for Pair {
    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        let raw = self.block.into_raw();
        std::mem::forget(self);
        raw
    }
    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        Pair { block: Block::from_raw(raw) }
    }
    #[inline]
    fn key(&self) -> &[u8] {
        self.field()
    }
    #[inline]
    fn deadline_ms(&self) -> Option<i64> {
        Pair::deadline_ms(self)
    }
}

// Each big hash contains a table of pairs. A shard's table of keys has the same size and shares a
// cache line with the shard's lock.
const _: () = assert!(size_of::<Table<Pair>>() <= 48);

impl crate::walk_state::MemorySize for Pair {
    fn weight_bytes(&self) -> usize {
        self.block_len_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pair: &Pair, field: &[u8], value: &[u8], deadline_ms: Option<i64>) {
        assert_eq!((pair.field(), pair.value(), pair.deadline_ms()), (field, value, deadline_ms));
    }

    #[test]
    fn values_of_every_length_replace_each_other() {
        for field_len in [0, 1, 16, 255, 256, 300, 70_000] {
            let field = vec![b'f'; field_len];
            let mut pair = Pair::new(&field, b"", None);
            let mut deadline_ms = None;
            for (round, value_len) in
                [0, 1, 5, 12, 30, 28, 300, 299, 65_535, 65_536, 70_000, 65_535, 3, 0].into_iter().enumerate()
            {
                let value = vec![round as u8; value_len];
                pair.set_value(&value);
                check(&pair, &field, &value, deadline_ms);
                deadline_ms = (round % 3 != 0).then_some(round as i64 * 1000);
                pair.set_deadline_ms(deadline_ms);
                check(&pair, &field, &value, deadline_ms);
            }
        }
    }

    #[test]
    fn a_field_and_a_value_of_16_bytes_take_48() {
        assert_eq!(Pair::new(&[0; 16], &[0; 16], None).block_len_bytes(), 48);
        assert_eq!(Pair::new(&[0; 16], &[0; 28], None).block_len_bytes(), 48);
        assert_eq!(Pair::new(&[0; 5], &[0; 7], None).block_len_bytes(), 16);
    }

    #[test]
    fn a_value_of_the_same_class_stays_in_its_block() {
        let mut pair = Pair::new(&[b'f'; 16], &[b'v'; 16], None);
        let block = pair.block;
        pair.set_value(&[b'w'; 28]);
        assert_eq!(pair.block, block);
    }
}
