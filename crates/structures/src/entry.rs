//! A key with its value, expiry and access clock, in one allocation.
//!
//! ```text
//!  0        4         6           8
//! [meta u32|key u16  |value u16 ] [expiry i64]? [long key u64]? [payload]?[key bytes][value bytes]
//!  |        key length value length              key length      i64 or V    then unused bytes, up
//!  |        (0xFFFF: it is in `long key`)                                    to the size class
//!  access 0..24, kind 24..26, has-expiry 26, mark 27, growing 28
//! ```
//! A small string is stored after its key (`kind` bytes). An integer, or an object (`V`, any type
//! of 8-byte alignment), is stored in the payload. The optional fields exist only if they are
//! needed: a key without expiry does not pay for one. The allocation is a whole size class, so a
//! value that changes its length within the class stays where it is. The block's size follows from
//! its content.
//!
//! A string that grows in small steps is *growing*: its block has the size `growing_class`, with
//! room for further steps. The string moves to a block of size `size_class` when it is replaced or
//! relocated.
//!
//! Invariants: the shape given by `meta` and the two lengths is the shape of the memory after them.
//! The block was allocated with `shape.block_len_bytes()` bytes, aligned to 16.
//!
//! Every operation is O(bytes copied). An `Entry` is owned by one table at a time; it has no locks.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::size_class::{growing_class, size_class};
use crate::table::{Borrowed, Occupied, Place, Table};

/// The longest string stored after its key, in bytes. A longer string needs an object of its own.
pub const INLINE_BYTES_MAX: usize = 4096;

const ACCESS_MASK: u32 = 0x00FF_FFFF;
const KIND_SHIFT: u32 = 24;
const KIND_MASK: u32 = 0b11 << KIND_SHIFT;
const HAS_EXPIRY: u32 = 1 << 26;
const MARK: u32 = 1 << 27;
const GROWING: u32 = 1 << 28;
const KEY_LEN_LONG: u16 = u16::MAX;
const FIELD_BYTES: usize = 8;
/// The alignment in bytes of entries' memory blocks. It leaves four unused bits in a block's
/// address, which a hash table uses for flags.
const BLOCK_ALIGN: usize = 16;

#[repr(C)]
struct Header {
    meta: u32,
    key_len: u16,
    value_len: u16,
}

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Bytes = 0,
    Int = 1,
    Object = 2,
}

/// An object that a keyspace entry holds: any value that is not a string of up to
/// [`INLINE_BYTES_MAX`] bytes.
pub trait Held {
    /// Returns a lower bound of the earliest deadline of the object's parts (the fields of a hash),
    /// in milliseconds; `None` if no part has a deadline.
    fn part_deadline_ms(&self) -> Option<i64> {
        None
    }
}

/// The value of a keyspace entry, borrowed for reading.
#[derive(Debug, PartialEq, Eq)]
pub enum View<'a, V> {
    /// A string of at most [`INLINE_BYTES_MAX`] bytes.
    Bytes(&'a [u8]),
    /// A string that is the decimal text of this number.
    Int(i64),
    /// A value of any other type, as an object.
    Object(&'a V),
}

/// A value to be stored in a keyspace entry.
pub enum NewValue<'a, V> {
    /// A string of at most [`INLINE_BYTES_MAX`] bytes, copied.
    Bytes(&'a [u8]),
    /// A string that is the decimal text of this number.
    Int(i64),
    /// Any other value, as an object that is moved into the entry.
    Object(V),
}

impl<V> NewValue<'_, V> {
    fn kind(&self) -> Kind {
        match self {
            NewValue::Bytes(_) => Kind::Bytes,
            NewValue::Int(_) => Kind::Int,
            NewValue::Object(_) => Kind::Object,
        }
    }

    fn inline_len(&self) -> usize {
        match self {
            NewValue::Bytes(bytes) => bytes.len(),
            NewValue::Int(_) | NewValue::Object(_) => 0,
        }
    }
}

/// The shape of the memory block of a keyspace entry: the kind of its value, its flags and the
/// lengths of its parts. It is derived from the block's header and never stored.
#[derive(Clone, Copy)]
struct Shape {
    kind: Kind,
    has_expiry: bool,
    is_growing: bool,
    key_len: usize,
    value_len: usize,
    object_len: usize,
}

impl Shape {
    #[inline]
    fn payload_at(self) -> usize {
        let long_key = if self.key_len >= KEY_LEN_LONG as usize { FIELD_BYTES } else { 0 };
        size_of::<Header>() + if self.has_expiry { FIELD_BYTES } else { 0 } + long_key
    }

    #[inline]
    fn key_at(self) -> usize {
        self.payload_at()
            + match self.kind {
                Kind::Bytes => 0,
                Kind::Int => FIELD_BYTES,
                Kind::Object => self.object_len,
            }
    }

    #[inline]
    fn len_bytes(self) -> usize {
        self.key_at() + self.key_len + self.value_len
    }

    #[inline]
    fn block_len_bytes(self) -> usize {
        if self.is_growing { growing_class(self.len_bytes()) } else { size_class(self.len_bytes()) }
    }

    #[inline]
    fn layout(self) -> Layout {
        Layout::from_size_align(self.block_len_bytes(), BLOCK_ALIGN)
            .expect("keys and inline values are far below isize::MAX bytes")
    }
}

/// One key with its value, access clock and optional expiry, behind one thin pointer.
pub struct Entry<V> {
    block: NonNull<u8>,
    owns: PhantomData<V>,
}

// SAFETY: an entry owns its block alone and holds nothing but bytes and a `V`.
unsafe impl<V: Send> Send for Entry<V> {}
// SAFETY: a shared reference to an entry gives shared references to its bytes and its `V` only.
unsafe impl<V: Sync> Sync for Entry<V> {}

impl<V> Entry<V> {
    const OBJECT_LEN: usize = {
        assert!(align_of::<V>() <= align_of::<u64>(), "the payload is aligned to 8 bytes");
        size_of::<V>().next_multiple_of(FIELD_BYTES)
    };

    /// Creates a keyspace entry for `key`. `expiry_ms` is in Unix milliseconds; `access` is the
    /// access clock (24 bits).
    ///
    /// # Panics
    /// If inline bytes are longer than [`INLINE_BYTES_MAX`].
    pub fn new(key: &[u8], value: NewValue<'_, V>, expiry_ms: Option<i64>, access: u32) -> Self {
        assert!(value.inline_len() <= INLINE_BYTES_MAX, "a long string must come as an object");
        let shape = Shape {
            kind: value.kind(),
            has_expiry: expiry_ms.is_some(),
            is_growing: false,
            key_len: key.len(),
            value_len: value.inline_len(),
            object_len: Self::OBJECT_LEN,
        };
        let mut entry = Self::allocate(key, shape, expiry_ms, access);
        match value {
            NewValue::Bytes(bytes) => entry.copy_in(shape.key_at() + key.len(), bytes),
            NewValue::Int(number) => entry.write_at(shape.payload_at(), number),
            NewValue::Object(object) => entry.write_at(shape.payload_at(), object),
        }
        entry
    }

    /// Allocates a block of this shape for an entry and writes its header and key. The value stays
    /// uninitialized: the caller writes it before anything can panic.
    #[inline]
    fn allocate(key: &[u8], shape: Shape, expiry_ms: Option<i64>, access: u32) -> Self {
        let layout = shape.layout();
        // SAFETY: the layout is never empty, it holds at least the header.
        let block = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        let mut entry = Entry { block, owns: PhantomData };
        let meta = (access & ACCESS_MASK)
            | ((shape.kind as u32) << KIND_SHIFT)
            | if shape.has_expiry { HAS_EXPIRY } else { 0 }
            | if shape.is_growing { GROWING } else { 0 };
        let key_len = u16::try_from(key.len()).unwrap_or(KEY_LEN_LONG);
        let header = Header { meta, key_len, value_len: shape.value_len as u16 };
        // SAFETY: the block starts with a header and is aligned for it.
        unsafe { entry.block.cast::<Header>().write(header) };
        if let Some(at_ms) = expiry_ms {
            entry.write_at(size_of::<Header>(), at_ms);
        }
        if key_len == KEY_LEN_LONG {
            entry.write_at(shape.payload_at() - FIELD_BYTES, key.len() as u64);
        }
        entry.copy_in(shape.key_at(), key);
        entry
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: every block starts with an initialised header.
        unsafe { self.block.cast::<Header>().as_ref() }
    }

    #[inline]
    fn header_mut(&mut self) -> &mut Header {
        // SAFETY: every block starts with an initialised header, and `self` owns the block.
        unsafe { self.block.cast::<Header>().as_mut() }
    }

    #[inline]
    fn shape(&self) -> Shape {
        let header = self.header();
        let kind = match (header.meta & KIND_MASK) >> KIND_SHIFT {
            0 => Kind::Bytes,
            1 => Kind::Int,
            _ => Kind::Object,
        };
        let mut shape = Shape {
            kind,
            has_expiry: header.meta & HAS_EXPIRY != 0,
            is_growing: header.meta & GROWING != 0,
            key_len: header.key_len as usize,
            value_len: header.value_len as usize,
            object_len: Self::OBJECT_LEN,
        };
        if header.key_len == KEY_LEN_LONG {
            let at = shape.payload_at() - FIELD_BYTES;
            // SAFETY: a long key's length lies in front of the payload.
            let place = unsafe { self.field_at(at) };
            // SAFETY: as above, written by `new`.
            shape.key_len = unsafe { place.cast::<u64>().read() } as usize;
        }
        shape
    }

    /// Returns a pointer to the byte at offset `at` of the entry's block.
    ///
    /// # Safety
    /// `at` is not beyond the block's end.
    #[inline]
    unsafe fn field_at(&self, at: usize) -> NonNull<u8> {
        // SAFETY: the caller keeps `at` within the block.
        unsafe { self.block.add(at) }
    }

    #[inline]
    fn write_at<T>(&mut self, at: usize, value: T) {
        debug_assert!(at.is_multiple_of(align_of::<T>()));
        // SAFETY: callers pass places of the block's own shape, which holds a `T` there.
        let place = unsafe { self.field_at(at) };
        // SAFETY: as above; the place is aligned, and the overwritten bytes need no drop.
        unsafe { place.cast::<T>().write(value) };
    }

    #[inline]
    fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        // SAFETY: callers pass a place of the block's own shape, with room for `bytes`.
        let place = unsafe { self.field_at(at) };
        // SAFETY: `bytes` cannot overlap a block that `self` owns alone.
        unsafe { place.as_ptr().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    #[inline]
    fn bytes_at(&self, at: usize, len: usize) -> &[u8] {
        // SAFETY: callers pass a range of the block's own shape.
        let place = unsafe { self.field_at(at) };
        // SAFETY: key and value bytes were initialised by `copy_in`.
        unsafe { std::slice::from_raw_parts(place.as_ptr(), len) }
    }

    /// Borrows the name of the entry's key. O(1).
    #[inline]
    pub fn key(&self) -> &[u8] {
        let shape = self.shape();
        self.bytes_at(shape.key_at(), shape.key_len)
    }

    /// Borrows the value of the entry's key. O(1).
    #[inline]
    pub fn view(&self) -> View<'_, V> {
        let shape = self.shape();
        match shape.kind {
            Kind::Bytes => View::Bytes(self.bytes_at(shape.key_at() + shape.key_len, shape.value_len)),
            Kind::Int => {
                // SAFETY: an integer entry holds its number at the payload.
                let place = unsafe { self.field_at(shape.payload_at()) };
                // SAFETY: as above, written by `new` or `set`.
                View::Int(unsafe { place.cast::<i64>().read() })
            }
            Kind::Object => {
                // SAFETY: an object entry holds a `V` at the payload.
                let place = unsafe { self.field_at(shape.payload_at()) };
                // SAFETY: as above; the reference lives no longer than the borrow of `self`.
                View::Object(unsafe { place.cast::<V>().as_ref() })
            }
        }
    }

    /// Borrows the entry's object mutably; `None` if the value is a small string or an integer.
    /// O(1).
    #[inline]
    pub fn object_mut(&mut self) -> Option<&mut V> {
        let shape = self.shape();
        if shape.kind != Kind::Object {
            return None;
        }
        // SAFETY: an object entry holds a `V` at the payload.
        let place = unsafe { self.field_at(shape.payload_at()) };
        // SAFETY: as above; `self` is borrowed mutably for as long.
        Some(unsafe { place.cast::<V>().as_mut() })
    }

    /// Borrows the bytes of the entry's small string mutably. Their length cannot change. Returns
    /// `None` if the value is an integer or an object.
    #[inline]
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let shape = self.shape();
        if shape.kind != Kind::Bytes {
            return None;
        }
        // SAFETY: the value's bytes follow the key's within the block.
        let place = unsafe { self.field_at(shape.key_at() + shape.key_len) };
        // SAFETY: as above; initialised, and `self` is borrowed mutably for as long.
        Some(unsafe { std::slice::from_raw_parts_mut(place.as_ptr(), shape.value_len) })
    }

    /// Returns the time at which the key expires, in Unix milliseconds; `None` if it does not
    /// expire.
    #[inline]
    pub fn expiry_ms(&self) -> Option<i64> {
        if self.header().meta & HAS_EXPIRY == 0 {
            return None;
        }
        // SAFETY: the expiry field follows the header where the flag is set.
        let place = unsafe { self.field_at(size_of::<Header>()) };
        // SAFETY: as above, written by `new` or `set_expiry_ms`.
        Some(unsafe { place.cast::<i64>().read() })
    }

    /// Returns the access clock of the key: 24 bits whose meaning (LRU or LFU) the caller defines.
    #[inline]
    pub fn access(&self) -> u32 {
        self.header().meta & ACCESS_MASK
    }

    /// Sets the access clock of the key; bits above 24 are dropped.
    #[inline]
    pub fn set_access(&mut self, access: u32) {
        let header = self.header_mut();
        header.meta = (header.meta & !ACCESS_MASK) | (access & ACCESS_MASK);
    }

    /// Returns true if the value is marked. The mark is one bit whose meaning the caller defines. A
    /// new value is not marked.
    #[inline]
    pub fn is_marked(&self) -> bool {
        self.mark_bit() != 0
    }

    /// Sets the mark bit of the value, whose meaning the caller defines.
    #[inline]
    pub fn mark(&mut self) {
        self.set_mark_bit(MARK);
    }

    /// Returns the mark bit in the header of the entry's block: `MARK` or 0.
    #[inline]
    fn mark_bit(&self) -> u32 {
        self.header().meta & MARK
    }

    /// Marks the entry's value if `bit` is the mark bit; does nothing if `bit` is 0.
    #[inline]
    fn set_mark_bit(&mut self, bit: u32) {
        self.header_mut().meta |= bit;
    }

    /// Replaces the value of the entry. Keeps key, expiry and access clock; clears the mark. The
    /// block stays in place if its size class stays the same. O(value bytes), or O(block) if it
    /// moves.
    #[inline]
    pub fn set(&mut self, value: NewValue<'_, V>) {
        if !self.set_in_place(&value) {
            *self = Entry::new(self.key(), value, self.expiry_ms(), self.access());
        }
    }

    /// Replaces the entry's small value by a value of the same kind, if the entry's block stays in
    /// its size class. Otherwise returns false and changes nothing; [`Entry::set`] then moves the
    /// block. A growing string can be replaced in place only by one of the same length. O(value
    /// bytes).
    ///
    /// # Panics
    /// If inline bytes are longer than [`INLINE_BYTES_MAX`].
    #[inline]
    pub fn set_in_place(&mut self, value: &NewValue<'_, V>) -> bool {
        let old = self.shape();
        match (old.kind, value) {
            (Kind::Bytes, NewValue::Bytes(bytes)) => {
                assert!(bytes.len() <= INLINE_BYTES_MAX, "a long string must come as an object");
                let new = Shape { value_len: bytes.len(), is_growing: false, ..old };
                if bytes.len() != old.value_len
                    && (old.is_growing || new.block_len_bytes() != old.block_len_bytes())
                {
                    return false;
                }
                self.header_mut().value_len = bytes.len() as u16;
                self.copy_in(new.key_at() + new.key_len, bytes);
            }
            (Kind::Int, NewValue::Int(number)) => self.write_at(old.payload_at(), *number),
            _ => return false,
        }
        self.header_mut().meta &= !MARK;
        true
    }

    /// Appends zeros to the entry's small string until it is `len_bytes` long. Does nothing if it
    /// is not shorter. The block stays in place if it has room, else O(block). A string that grows
    /// by less than a quarter of its length becomes a growing string (see the module's comment).
    /// Many small steps to a length thus cost O(length) together.
    ///
    /// # Panics
    /// If the value is not inline bytes, or would be longer than [`INLINE_BYTES_MAX`].
    pub fn grow_bytes(&mut self, len_bytes: usize) {
        let old = self.shape();
        assert!(old.kind == Kind::Bytes && len_bytes <= INLINE_BYTES_MAX, "only short strings grow in place");
        if len_bytes <= old.value_len {
            return;
        }
        let same = Shape { value_len: len_bytes, ..old };
        let value_at = old.key_at() + old.key_len;
        if same.block_len_bytes() == old.block_len_bytes() {
            self.header_mut().value_len = len_bytes as u16;
        } else {
            let new = Shape { is_growing: len_bytes - old.value_len < old.value_len / 4, ..same };
            let mut grown = Self::allocate(self.key(), new, self.expiry_ms(), self.access());
            grown.copy_in(value_at, self.bytes_at(value_at, old.value_len));
            grown.set_mark_bit(self.mark_bit());
            *self = grown;
        }
        self.zero(value_at + old.value_len, len_bytes - old.value_len);
    }

    fn zero(&mut self, at: usize, len: usize) {
        // SAFETY: callers pass a range of the block's own shape.
        let place = unsafe { self.field_at(at) };
        // SAFETY: as above, and `self` owns the block alone.
        unsafe { place.as_ptr().write_bytes(0, len) };
    }

    /// Sets or clears the expiry of the key, in Unix milliseconds. O(1) if the key had an expiry
    /// and keeps one, else O(block).
    pub fn set_expiry_ms(&mut self, expiry_ms: Option<i64>) {
        match (self.expiry_ms(), expiry_ms) {
            (None, None) => {}
            (Some(_), Some(at_ms)) => self.write_at(size_of::<Header>(), at_ms),
            (Some(_), None) | (None, Some(_)) => {
                let (access, mark_bit) = (self.access(), self.mark_bit());
                let value = self.take_value();
                *self = Self::new(self.key(), self.moved(value), expiry_ms, access);
                self.set_mark_bit(mark_bit);
            }
        }
    }

    /// Moves the object out of the entry, whose value becomes the integer zero in a new block.
    /// Returns `None` and changes nothing if the value is not an object.
    fn take_value(&mut self) -> Option<V> {
        let shape = self.shape();
        if shape.kind != Kind::Object {
            return None;
        }
        // SAFETY: an object entry holds a `V` at the payload.
        let place = unsafe { self.field_at(shape.payload_at()) };
        // SAFETY: as above; the copy in the block is not used again, see below.
        let object = unsafe { place.cast::<V>().read() };
        let rest = Self::new(self.key(), NewValue::Int(0), self.expiry_ms(), self.access());
        self.release(shape);
        self.block = rest.block;
        std::mem::forget(rest);
        Some(object)
    }

    /// Frees the entry's block, which has this shape, without dropping an object in it.
    fn release(&mut self, shape: Shape) {
        // SAFETY: the block was allocated with the layout of its shape, and is not used again.
        unsafe { dealloc(self.block.as_ptr(), shape.layout()) };
    }

    /// Moves the object out of the entry and frees the entry's block. Returns `None` if the value
    /// is a small string or an integer.
    pub fn into_object(mut self) -> Option<V> {
        self.take_value()
    }

    /// Returns an entry with the name `key` and with the value, expiry, mark and access clock of
    /// this entry. O(block).
    pub fn renamed(mut self, key: &[u8]) -> Self {
        let (expiry_ms, access, mark_bit) = (self.expiry_ms(), self.access(), self.mark_bit());
        let object = self.take_value();
        let mut renamed = Entry::new(key, self.moved(object), expiry_ms, access);
        renamed.set_mark_bit(mark_bit);
        renamed
    }

    /// Returns an entry with the name `key`, a copy of this entry's value, expiry and mark, and the
    /// access clock `access`. O(value).
    pub fn duplicate(&self, key: &[u8], access: u32) -> Self
    where
        V: Clone,
    {
        let value = match self.view() {
            View::Bytes(bytes) => NewValue::Bytes(bytes),
            View::Int(number) => NewValue::Int(number),
            View::Object(object) => NewValue::Object(object.clone()),
        };
        let mut copy = Entry::new(key, value, self.expiry_ms(), access);
        copy.set_mark_bit(self.mark_bit());
        copy
    }

    /// Returns the value to store in another block: `taken`, the object that was taken out of this
    /// entry, or else a reference to its small value.
    fn moved(&self, taken: Option<V>) -> NewValue<'_, V> {
        match (taken, self.view()) {
            (Some(object), _) => NewValue::Object(object),
            (None, View::Bytes(bytes)) => NewValue::Bytes(bytes),
            (None, View::Int(number)) => NewValue::Int(number),
            (None, View::Object(_)) => unreachable!("`take_value` took the object"),
        }
    }

    /// Returns the address of the entry's memory block.
    #[inline]
    pub fn address(&self) -> usize {
        self.block.addr().get()
    }

    /// Moves the entry to a new block of the same size, or of a smaller size if its string was
    /// growing. O(block).
    pub fn relocate(&mut self) {
        let shape = self.shape();
        let layout = Shape { is_growing: false, ..shape }.layout();
        // SAFETY: the layout is never empty, it holds at least the header.
        let block = NonNull::new(unsafe { alloc(layout) }).unwrap_or_else(|| handle_alloc_error(layout));
        // SAFETY: both blocks have at least that many bytes, and one of them is new. An object
        // moves with its bytes; the old block is freed without dropping it.
        unsafe { block.copy_from_nonoverlapping(self.block, shape.len_bytes()) };
        self.release(shape);
        self.block = block;
        self.header_mut().meta &= !GROWING;
    }

    /// Returns the bytes that the entry's block takes from the allocator, without memory that an
    /// object owns elsewhere.
    pub fn block_len_bytes(&self) -> usize {
        self.shape().block_len_bytes()
    }

    /// Converts the entry to a raw pointer to its block. [`Entry::from_raw`] converts it back.
    #[inline]
    pub fn into_raw(self) -> NonNull<u8> {
        let block = self.block;
        std::mem::forget(self);
        block
    }

    /// Converts a raw pointer to a block back to its entry.
    ///
    /// # Safety
    ///
    /// `block` came from [`Entry::into_raw`] of the same `V`, and nobody else uses it as an owner.
    #[inline]
    pub unsafe fn from_raw(block: NonNull<u8>) -> Self {
        Entry { block, owns: PhantomData }
    }
}

impl<V> Drop for Entry<V> {
    fn drop(&mut self) {
        let shape = self.shape();
        if shape.kind == Kind::Object {
            // SAFETY: an object entry holds a `V` at the payload.
            let place = unsafe { self.field_at(shape.payload_at()) };
            // SAFETY: as above; the object is dropped only here, and the block is freed next.
            unsafe { place.cast::<V>().drop_in_place() };
        }
        self.release(shape);
    }
}

// SAFETY: blocks come from the allocator with addresses of user space, aligned to 16 by every size
// class (`BLOCK_ALIGN`); the key is fixed for an entry's life.
unsafe impl<V: Held> crate::table::Thin for Entry<V> {
    #[inline]
    fn into_raw(self) -> NonNull<u8> {
        Entry::into_raw(self)
    }
    #[inline]
    unsafe fn from_raw(raw: NonNull<u8>) -> Self {
        // SAFETY: the caller passes a pointer from `into_raw`.
        unsafe { Entry::from_raw(raw) }
    }
    #[inline]
    fn key(&self) -> &[u8] {
        Entry::key(self)
    }
    #[inline]
    fn deadline_ms(&self) -> Option<i64> {
        self.expiry_ms()
    }
    #[inline]
    fn part_deadline_ms(&self) -> Option<i64> {
        if let View::Object(object) = self.view() { object.part_deadline_ms() } else { None }
    }
}

impl<'a, V: Held> Borrowed<'a, Entry<V>> {
    /// Borrows the key, as long as the table is borrowed.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        let key: *const [u8] = Entry::key(self);
        // SAFETY: the key lies in the entry's block, which the table owns unchanged for `'a`.
        unsafe { &*key }
    }

    /// Borrows the value, as long as the table is borrowed.
    #[inline]
    pub fn view(&self) -> View<'a, V> {
        match Entry::view(self) {
            View::Int(number) => View::Int(number),
            View::Bytes(bytes) => {
                let bytes: *const [u8] = bytes;
                // SAFETY: the bytes lie in the entry's block, which the table
                // owns unchanged for `'a`.
                View::Bytes(unsafe { &*bytes })
            }
            View::Object(object) => {
                let object: *const V = object;
                // SAFETY: as above, the object lies in the block.
                View::Object(unsafe { &*object })
            }
        }
    }
}

impl<'a, V: Held> Occupied<'a, Entry<V>> {
    /// Borrows the object mutably, as long as the table is borrowed. A caller that changes
    /// deadlines of the object's parts must then call [`Table::at_mut`], which updates the table.
    /// O(1).
    #[inline]
    pub fn into_object_mut(mut self) -> Option<&'a mut V> {
        let mut entry = self.as_owned();
        let object: *mut V = entry.object_mut()?;
        // SAFETY: the object lies in the entry's block, which the table continues to own. Nobody
        // else can reach it while the table is borrowed mutably, that is for `'a`.
        Some(unsafe { &mut *object })
    }
}

impl<V: Held> Occupied<'_, Entry<V>> {
    /// Replaces the entry's small value by a value of the same kind, if the entry's block stays in
    /// its size class. The hash table needs no update. Otherwise returns false and changes nothing.
    /// O(value bytes).
    #[inline]
    pub fn set_in_place(&mut self, value: &NewValue<'_, V>) -> bool {
        self.as_owned().set_in_place(value)
    }

    /// Sets the access clock of the entry. The hash table needs no update. O(1).
    #[inline]
    pub fn set_access(&mut self, access: u32) {
        self.as_owned().set_access(access);
    }
}

impl<V: Held> Table<Entry<V>> {
    /// Borrows the object at `place` mutably, like [`Occupied::into_object_mut`]; `None` if the
    /// value is not an object. O(1).
    #[inline]
    pub fn object_mut(&mut self, place: Place) -> Option<&mut V> {
        self.occupied(place).into_object_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An object for tests that an entry holds: one word that owns more memory (a bare Vec has
    /// three words).
    type Owned = Box<Vec<u8>>;
    type E = Entry<Owned>;

    impl Held for Owned {}

    fn check(entry: &E, key: &[u8], value: &View<'_, Owned>, expiry_ms: Option<i64>) {
        assert_eq!(entry.key(), key);
        assert_eq!(&entry.view(), value);
        assert_eq!(entry.expiry_ms(), expiry_ms);
        assert_eq!(entry.access(), 0x00AB_CDEF);
    }

    #[test]
    fn every_shape_reads_back_what_was_written() {
        for key_len in [0, 1, 7, 8, 16, 255, 65_534, 65_535, 65_536, 100_000] {
            let key = vec![b'k'; key_len];
            for expiry_ms in [None, Some(0), Some(-5), Some(i64::MAX)] {
                for value_len in [0, 1, 3, 64, 512, INLINE_BYTES_MAX] {
                    let value = vec![b'v'; value_len];
                    let entry = E::new(&key, NewValue::Bytes(&value), expiry_ms, 0xFFAB_CDEF);
                    check(&entry, &key, &View::Bytes(&value), expiry_ms);
                }
                let entry = E::new(&key, NewValue::Int(-7), expiry_ms, 0x00AB_CDEF);
                check(&entry, &key, &View::Int(-7), expiry_ms);
                let object = Box::new(vec![1, 2, 3]);
                let entry = E::new(&key, NewValue::Object(object.clone()), expiry_ms, 0x00AB_CDEF);
                check(&entry, &key, &View::Object(&object), expiry_ms);
            }
        }
    }

    #[test]
    fn values_and_expiry_change_in_any_order() {
        let object = Box::new(vec![9; 100]);
        let mut entry = E::new(b"some-key", NewValue::Bytes(b"abc"), None, 0x00AB_CDEF);
        for round in 0..200_usize {
            let text = vec![b'x'; round * 7 % 300];
            match round % 3 {
                0 => entry.set(NewValue::Bytes(&text)),
                1 => entry.set(NewValue::Int(round as i64)),
                _ => entry.set(NewValue::Object(object.clone())),
            }
            let expiry_ms = (round % 5 < 2).then_some(round as i64);
            entry.set_expiry_ms(expiry_ms);
            let value = match round % 3 {
                0 => View::Bytes(&text[..]),
                1 => View::Int(round as i64),
                _ => View::Object(&object),
            };
            check(&entry, b"some-key", &value, expiry_ms);
        }
        let entry = entry.renamed(b"another");
        assert_eq!(entry.key(), b"another");
    }

    #[test]
    fn a_16_byte_key_with_3_bytes_takes_32_and_one_with_64_bytes_and_ttl_takes_96() {
        assert_eq!(E::new(&[b'k'; 16], NewValue::Bytes(b"abc"), None, 0).block_len_bytes(), 32);
        assert_eq!(E::new(&[b'k'; 16], NewValue::Bytes(&[0; 64]), Some(1), 0).block_len_bytes(), 96);
    }

    #[test]
    fn bytes_grow_with_zeros_and_keep_all_else() {
        for key_len in [0, 16, 65_536] {
            let mut twin = b"abc".to_vec();
            let mut entry = E::new(&vec![b'k'; key_len], NewValue::Bytes(&twin), Some(7), 0x00AB_CDEF);
            entry.mark();
            while twin.len() < INLINE_BYTES_MAX {
                twin.resize((twin.len() + 1 + twin.len() % 37).min(INLINE_BYTES_MAX), 0);
                entry.grow_bytes(twin.len());
                *twin.last_mut().unwrap() = twin.len() as u8;
                *entry.bytes_mut().unwrap().last_mut().unwrap() = twin.len() as u8;
                check(&entry, &vec![b'k'; key_len], &View::Bytes(&twin), Some(7));
                assert!(entry.is_marked());
            }
            entry.grow_bytes(5);
            check(&entry, &vec![b'k'; key_len], &View::Bytes(&twin), Some(7));
        }
    }

    #[test]
    fn a_string_that_grows_in_small_steps_moves_rarely_and_settles_when_it_is_moved_or_replaced() {
        let mut entry = E::new(b"key", NewValue::Bytes(b"x"), None, 0x00AB_CDEF);
        let (mut moves, mut address) = (0, entry.address());
        for len in 2..=3000 {
            entry.grow_bytes(len);
            moves += usize::from(entry.address() != address);
            address = entry.address();
        }
        // 16 bytes a step up to 128, then four steps for each doubling.
        assert!(moves <= 7 + 5 * 4, "{moves}");
        assert_eq!(entry.block_len_bytes(), 3072);
        entry.grow_bytes(3060);
        assert_eq!(entry.block_len_bytes(), 3072);
        entry.grow_bytes(3200);
        assert_eq!(entry.block_len_bytes(), 3584);
        entry.relocate();
        assert_eq!(entry.block_len_bytes(), 3328);
        check(&entry, b"key", &View::Bytes(&[b"x".as_slice(), &[0; 3199]].concat()), None);
        entry.grow_bytes(3400);
        assert_eq!(entry.block_len_bytes(), 3584);
        entry.set(NewValue::Bytes(&[b'y'; 3399]));
        assert_eq!(entry.block_len_bytes(), 3456);
        check(&entry, b"key", &View::Bytes(&[b'y'; 3399]), None);
        entry.grow_bytes(4096);
        assert_eq!(entry.block_len_bytes(), 5120, "a fifth more is a small step");
    }

    #[test]
    fn the_mark_stays_with_the_value_and_goes_with_it() {
        for value in [NewValue::Bytes(b"abc"), NewValue::Int(5), NewValue::Object(Box::new(vec![1]))] {
            let mut entry = E::new(b"k", value, None, 0);
            entry.mark();
            entry.set_expiry_ms(Some(5));
            let copy = entry.duplicate(b"copy", 3);
            let mut entry = entry.renamed(b"other");
            for (entry, key, access) in [(&entry, b"other" as &[u8], 0), (&copy, b"copy", 3)] {
                assert_eq!((entry.key(), entry.expiry_ms(), entry.access()), (key, Some(5), access));
                assert!(entry.is_marked());
            }
            assert_eq!(entry.view(), copy.view());
            entry.set(NewValue::Bytes(b"abcd"));
            assert!(!entry.is_marked());
            entry.mark();
            entry.set(NewValue::Int(6));
            assert!(!entry.is_marked());
        }
    }

    #[test]
    fn an_object_is_moved_out_whole() {
        let entry = E::new(b"k", NewValue::Object(Box::new(vec![4, 5])), Some(3), 0);
        assert_eq!(entry.into_object(), Some(Box::new(vec![4, 5])));
        assert_eq!(E::new(b"k", NewValue::Int(3), None, 0).into_object(), None);
    }
}
