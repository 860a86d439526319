//! A part of the change log's stream, as text. Big values in it are references to strings of the
//! keyspace.
//!
//! ```text
//!   bytes   *3 $3 SET $1 k $20000 ┊ *2 $4 INCR ...
//!   values                        └─ (offset, counted reference)
//! ```
//! If a key's value is a reference-counted string of at least [`SHARED_BYTES_MIN`] bytes, the
//! stream shares this string instead of copying it. While it is shared, a write to the key first
//! makes a copy. Elements of collections are always copied.

use std::ops::{Add, Sub};
use std::sync::Arc;

use keyspace::object::Blob;

/// The minimum length in bytes of a string value that the change log shares with the keyspace
/// instead of copying it.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// The maximum memory in bytes that an emptied part of the change log keeps for reuse.
const KEPT_BYTES_MAX: usize = 1 << 20;
/// The maximum number of shared values for which an emptied part of the change log keeps memory.
const KEPT_VALUES_MAX: usize = 256;

/// A part of the change log's stream: bytes, and references to shared values between them.
#[derive(Default)]
pub struct Text {
    pub(super) bytes: Vec<u8>,
    /// The values shared with the keyspace, each with the offset in `bytes` at which it belongs, in
    /// ascending order.
    values: Vec<(usize, Blob)>,
    values_bytes: usize,
}

/// A position in a part of the change log's stream ([`Text`]), between two bytes or shared values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextEnd {
    /// The number of bytes of the text before the position, without shared values.
    pub bytes: usize,
    /// The number of shared values of the text before the position.
    pub values: usize,
}

impl Add for TextEnd {
    type Output = Self;

    fn add(self, behind: Self) -> Self {
        Self { bytes: self.bytes + behind.bytes, values: self.values + behind.values }
    }
}

impl Sub for TextEnd {
    type Output = Self;

    fn sub(self, start: Self) -> Self {
        Self { bytes: self.bytes - start.bytes, values: self.values - start.values }
    }
}

impl Text {
    /// Creates a part of the change log's stream that consists of `bytes`.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Returns the length of this part of the change log in bytes, including shared values. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + self.values_bytes
    }

    /// Returns the memory of this part of the change log without shared values, in bytes. O(1).
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.values.capacity() * size_of::<(usize, Blob)>()
    }

    /// Returns the position at the end of this part of the change log.
    #[inline]
    pub fn end(&self) -> TextEnd {
        TextEnd { bytes: self.bytes.len(), values: self.values.len() }
    }

    /// Appends a string value to the change log's text by reference, without a copy.
    pub fn push_value(&mut self, value: Blob) {
        self.values_bytes += value.len();
        self.values.push((self.bytes.len(), value));
    }

    /// Appends the part of the change log text `other` from `from` to `to`. Returns its length in
    /// bytes, including shared values.
    pub(super) fn extend_from(&mut self, other: &Self, from: TextEnd, to: TextEnd) -> usize {
        let len_before = self.len_bytes();
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes[from.bytes..to.bytes]);
        for (at, value) in &other.values[from.values..to.values] {
            self.values_bytes += value.len();
            self.values.push((at - from.bytes + start, Arc::clone(value)));
        }
        self.len_bytes() - len_before
    }

    /// Calls `take` with the change log's text between two positions, in order: the bytes between
    /// shared values, and each shared value. O(values) besides the calls.
    pub fn for_each_part<'t>(&'t self, (from, to): (TextEnd, TextEnd), mut take: impl FnMut(&'t [u8])) {
        let mut start = from.bytes;
        for (at, value) in &self.values[from.values..to.values] {
            if *at > start {
                take(&self.bytes[start..*at]);
            }
            take(value);
            start = *at;
        }
        if to.bytes > start {
            take(&self.bytes[start..to.bytes]);
        }
    }

    /// Removes everything from this part of the change log. Keeps its memory, up to a limit, for
    /// reuse.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.values.clear();
        self.values.shrink_to(KEPT_VALUES_MAX);
        self.values_bytes = 0;
    }
}
