//! Bytes of the stream with big values by reference.
//!
//! ```text
//!   bytes   *3 $3 SET $1 k $20000 ┊ *2 $4 INCR ...
//!   values                        └─ (offset, counted reference)
//! ```
//! A value of [`SHARED_BYTES_MIN`] or more that a key of the keyspace holds as one counted string
//! is not copied: the stream shares it. A later write copies it first, as it does while a reply
//! that shares it is on its way. Elements of collections are copied.

use std::sync::Arc;

use keyspace::object::Blob;

/// Values from this size on are shared.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// Memory that an emptied text keeps.
const KEPT_BYTES_MAX: usize = 1 << 20;

/// See the module.
#[derive(Default)]
pub struct Text {
    pub(super) bytes: Vec<u8>,
    /// Values and where they stand, in ascending order.
    values: Vec<(usize, Blob)>,
    values_bytes: usize,
}

/// A place in a text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TextEnd {
    /// Behind so many of its bytes.
    pub bytes: usize,
    /// Behind so many of its values.
    pub values: usize,
}

impl Text {
    /// Creates a text of these bytes.
    pub fn of(bytes: Vec<u8>) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// Bytes of the stream, shared values included. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len() + self.values_bytes
    }

    /// Its end.
    #[inline]
    pub(super) fn end(&self) -> TextEnd {
        TextEnd { bytes: self.bytes.len(), values: self.values.len() }
    }

    /// Appends a value by reference.
    pub fn push_value(&mut self, value: Blob) {
        self.values_bytes += value.len();
        self.values.push((self.bytes.len(), value));
    }

    /// Appends a part of another text. Gives its length in bytes, shared values included.
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

    /// Walks the pieces of the stream, in order.
    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.values.iter().map(|(at, _)| *at));
        let ends = self.values.iter().map(|(at, _)| *at).chain(std::iter::once(self.bytes.len()));
        let values = self.values.iter().map(|(_, value)| Some(&value[..])).chain(std::iter::once(None));
        let between = starts.zip(ends).map(|(start, end)| &self.bytes[start..end]);
        let pieces = between.zip(values).flat_map(|(bytes, value)| [Some(bytes), value]);
        pieces.flatten().filter(|piece| !piece.is_empty())
    }

    /// Forgets all, keeping the memory unless it is much.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.values.clear();
        self.values_bytes = 0;
    }
}
