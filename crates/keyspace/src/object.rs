//! The values that are not small strings: an enum of three words, stored in the key's own block.

use std::sync::Arc;

use structures::entry::{Entry, View};

use crate::value_size::{SizedType, ValueSize};
use crate::{Array, Hash, List, Set, Stream, VectorSet, Zset};

/// A string too long to be stored after its key. It is reference counted, so that a reply can be
/// sent without copying the string. A change during that time copies the string first
/// (`Arc::make_mut`).
pub type Blob = Arc<Vec<u8>>;

/// A key with its value, expiry and access clock.
pub type KeyEntry = Entry<Object>;

/// A value other than a small string. Its clone is a deep copy, except that the bytes of a long
/// string are shared until one of the two changes.
#[derive(Clone, Debug)]
pub enum Object {
    /// A string of more than [`structures::entry::INLINE_BYTES_MAX`] bytes, too long to be stored
    /// after its key.
    Blob(Blob),
    /// A list.
    List(List),
    /// A set.
    Set(Set),
    /// A hash.
    Hash(Hash),
    /// A sorted set.
    Zset(Zset),
    /// A stream.
    Stream(Box<Stream>),
    /// A vector set.
    Vector(Box<VectorSet>),
    /// An array.
    Array(Box<Array>),
}

// An object is stored in its key's block and takes at most three words (see the drawing in
// `entry`).
const _: () = assert!(size_of::<Object>() <= 24);

impl Object {
    /// Returns the name of the object's type for TYPE.
    pub fn type_name(&self) -> &'static str {
        match self {
            Object::Blob(_) => "string",
            Object::List(_) => "list",
            Object::Set(_) => "set",
            Object::Hash(_) => "hash",
            Object::Zset(_) => "zset",
            Object::Stream(_) => "stream",
            Object::Vector(_) => "vectorset",
            Object::Array(_) => "array",
        }
    }

    /// Returns the name of the object's encoding for OBJECT ENCODING.
    pub fn encoding_name(&self) -> &'static str {
        match self {
            Object::Blob(_) => "raw",
            Object::List(list) => list.encoding_name(),
            Object::Set(set) => set.encoding_name(),
            Object::Hash(hash) => hash.encoding_name(),
            Object::Zset(zset) => zset.encoding_name(),
            Object::Stream(_) => "stream",
            Object::Vector(_) => "raw",
            Object::Array(_) => "sliced-array",
        }
    }

    /// Starts loading the bucket of the member (the field, for a hash) with this hash. Does nothing
    /// if the object has no table of members. O(1).
    #[inline]
    pub fn prefetch_member_bucket(&self, member_hash: u64) {
        match self {
            Object::Set(set) => set.prefetch_bucket(member_hash),
            Object::Hash(hash) => hash.prefetch_bucket(member_hash),
            Object::Zset(zset) => zset.prefetch_bucket(member_hash),
            Object::Blob(_) | Object::List(_) | Object::Stream(_) | Object::Vector(_) | Object::Array(_) => {}
        }
    }

    /// Starts loading the member with this hash and length. For use after
    /// [`Object::prefetch_member_bucket`] has loaded its bucket. O(1).
    #[inline]
    pub fn prefetch_member(&self, member_hash: u64, len_bytes: usize) {
        match self {
            Object::Set(set) => set.prefetch_member(member_hash),
            Object::Hash(hash) => hash.prefetch_member(member_hash, len_bytes),
            Object::Zset(zset) => zset.prefetch_member(member_hash, len_bytes),
            Object::Blob(_) | Object::List(_) | Object::Stream(_) | Object::Vector(_) | Object::Array(_) => {}
        }
    }

    /// Returns the size of the value in bytes or elements. O(1), or O(n) for a listpack of more
    /// than 65,534 elements, which does not store their number.
    #[inline(always)]
    pub(crate) fn size(&self) -> ValueSize {
        match self {
            Object::Blob(blob) => {
                ValueSize { kind: SizedType::String, bytes: blob.capacity(), elements: blob.len() }
            }
            Object::List(list) => list.size(),
            Object::Set(set) => set.size(),
            Object::Hash(hash) => hash.size(),
            Object::Zset(zset) => zset.size(),
            Object::Stream(stream) => stream.size(),
            Object::Vector(set) => set.size(),
            Object::Array(array) => array.size(),
        }
    }

    /// Returns the number of elements, by which lazy freeing estimates the cost of freeing the
    /// value. A long string counts as its number of 4 KiB pages. O(1), for a stream O(groups).
    pub fn element_count(&self) -> usize {
        match self {
            Object::Blob(blob) => blob.capacity() / 4096,
            Object::List(list) => list.len(),
            Object::Set(set) => set.len(),
            Object::Hash(hash) => hash.len(),
            Object::Zset(zset) => zset.len(),
            Object::Stream(stream) => stream.element_count(),
            Object::Vector(set) => set.len(),
            Object::Array(array) => array.count() as usize,
        }
    }

    /// Returns the bytes of memory that the object owns outside its key's block. Estimated for a
    /// big value. O(nodes).
    pub fn memory_usage(&self) -> usize {
        match self {
            Object::Blob(blob) => blob.capacity() + size_of::<Vec<u8>>() + 2 * size_of::<usize>(),
            Object::List(list) => list.memory_usage(),
            Object::Set(set) => set.memory_usage(),
            Object::Hash(hash) => hash.memory_usage(),
            Object::Zset(zset) => zset.memory_usage(),
            Object::Stream(stream) => stream.memory_usage(),
            Object::Vector(set) => set.len_bytes(),
            Object::Array(array) => array.len_bytes(),
        }
    }
}

impl structures::entry::Held for Object {
    #[inline]
    fn part_deadline_ms(&self) -> Option<i64> {
        if let Object::Hash(hash) = self { hash.next_deadline_ms() } else { None }
    }
}

/// Returns the name of the type of an entry's value for TYPE.
pub fn type_name(entry: &KeyEntry) -> &'static str {
    match entry.view() {
        View::Object(object) => object.type_name(),
        View::Bytes(_) | View::Int(_) => "string",
    }
}

/// A type of object. Commands read and write a key as one of these types. The typed accessors of
/// [`View`](crate::View) return WRONGTYPE if the key's value has another type.
pub trait ObjectType: Sized {
    /// Borrows the object as this type; `None` if it has another type.
    fn of(object: &Object) -> Option<&Self>;
    /// Borrows the object mutably as this type; `None` if it has another type.
    fn of_mut(object: &mut Object) -> Option<&mut Self>;
    /// Converts this value of a type to an object that a key can hold.
    fn into_object(self) -> Object;
    /// Returns true if the value is empty, so that its key must be removed. O(1).
    fn is_empty(&self) -> bool;
    /// Returns the size of the value in bytes or elements. O(1), or O(n) for a listpack of more
    /// than 65,534 elements, which does not store their number.
    fn size(&self) -> ValueSize;
}

impl ObjectType for List {
    fn of(object: &Object) -> Option<&Self> {
        if let Object::List(list) = object { Some(list) } else { None }
    }
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        if let Object::List(list) = object { Some(list) } else { None }
    }
    fn into_object(self) -> Object {
        Object::List(self)
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    #[inline(always)]
    fn size(&self) -> ValueSize {
        ValueSize { kind: SizedType::List, bytes: self.len_bytes(), elements: self.len() }
    }
}

impl ObjectType for Set {
    fn of(object: &Object) -> Option<&Self> {
        if let Object::Set(set) = object { Some(set) } else { None }
    }
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        if let Object::Set(set) = object { Some(set) } else { None }
    }
    fn into_object(self) -> Object {
        Object::Set(self)
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    #[inline(always)]
    fn size(&self) -> ValueSize {
        ValueSize { kind: SizedType::Set, bytes: self.len_bytes(), elements: self.len() }
    }
}

impl ObjectType for Hash {
    fn of(object: &Object) -> Option<&Self> {
        if let Object::Hash(hash) = object { Some(hash) } else { None }
    }
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        if let Object::Hash(hash) = object { Some(hash) } else { None }
    }
    fn into_object(self) -> Object {
        Object::Hash(self)
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    #[inline(always)]
    fn size(&self) -> ValueSize {
        ValueSize { kind: SizedType::Hash, bytes: self.len_bytes(), elements: self.len() }
    }
}

impl ObjectType for Zset {
    fn of(object: &Object) -> Option<&Self> {
        if let Object::Zset(zset) = object { Some(zset) } else { None }
    }
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        if let Object::Zset(zset) = object { Some(zset) } else { None }
    }
    fn into_object(self) -> Object {
        Object::Zset(self)
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    #[inline(always)]
    fn size(&self) -> ValueSize {
        ValueSize { kind: SizedType::Zset, bytes: self.len_bytes(), elements: self.len() }
    }
}

impl ObjectType for Stream {
    fn of(object: &Object) -> Option<&Self> {
        if let Object::Stream(stream) = object { Some(stream) } else { None }
    }
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        if let Object::Stream(stream) = object { Some(stream) } else { None }
    }
    fn into_object(self) -> Object {
        Object::Stream(Box::new(self))
    }
    /// Returns false: the key of a stream continues to exist when the last entry is removed.
    fn is_empty(&self) -> bool {
        false
    }
    #[inline(always)]
    fn size(&self) -> ValueSize {
        ValueSize { kind: SizedType::Stream, bytes: self.len_bytes(), elements: self.len() }
    }
}

impl ObjectType for VectorSet {
    fn of(object: &Object) -> Option<&Self> {
        if let Object::Vector(set) = object { Some(set) } else { None }
    }
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        if let Object::Vector(set) = object { Some(set) } else { None }
    }
    fn into_object(self) -> Object {
        Object::Vector(Box::new(self))
    }
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    #[inline(always)]
    fn size(&self) -> ValueSize {
        ValueSize { kind: SizedType::Vector, bytes: self.len_bytes(), elements: self.len() }
    }
}

impl ObjectType for Array {
    fn of(object: &Object) -> Option<&Self> {
        if let Object::Array(array) = object { Some(array) } else { None }
    }
    fn of_mut(object: &mut Object) -> Option<&mut Self> {
        if let Object::Array(array) = object { Some(array) } else { None }
    }
    fn into_object(self) -> Object {
        Object::Array(Box::new(self))
    }
    fn is_empty(&self) -> bool {
        self.count() == 0
    }
    #[inline(always)]
    fn size(&self) -> ValueSize {
        ValueSize { kind: SizedType::Array, bytes: self.len_bytes(), elements: self.count() as usize }
    }
}
