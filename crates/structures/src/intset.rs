//! Intset: a sorted set of integers in one block of memory, in Redis' format.
//!
//! ```text
//!   width of an integer (2, 4 or 8) u32 LE | integers u32 LE | integer LE … in ascending order
//! ```
//! The width is the widest that any member has ever needed. Inserting a wider integer rewrites the
//! block. A look-up is a binary search, O(log n). Inserting and removing move the bytes after the
//! member, O(n). The bytes in memory *are* the format, so writing an intset to a dump is a copy.
//!
//! Invariant: the block is exactly as long as the header says and strictly ascending;
//! [`Intset::from_bytes`] rejects all other bytes.
//!
//! Memory: 16 bytes for the handle, `Option` included, plus the block.
//!
//! Source: `intset` dumps of Redis 8.0.2.

use crate::pack_error::{PackError, PackErrorKind, PackFull};
use crate::size_class::size_class;
use std::cmp::Ordering;

const HEADER_LEN_BYTES: usize = 8;
/// The greatest length of an intset's block in bytes. An insertion beyond it fails.
const LEN_BYTES_MAX: usize = 1 << 30;

/// The width of all integers of an intset: 2, 4 or 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Width {
    W16 = 2,
    W32 = 4,
    W64 = 8,
}

impl Width {
    /// Returns the narrowest width of an intset's integers that holds `value`.
    fn of(value: i64) -> Self {
        if i16::try_from(value).is_ok() {
            Width::W16
        } else if i32::try_from(value).is_ok() {
            Width::W32
        } else {
            Width::W64
        }
    }

    fn bytes(self) -> usize {
        self as usize
    }

    /// Reads the integer in `bytes`, whose length is that of this width.
    #[inline]
    fn read(self, bytes: &[u8]) -> i64 {
        const WHOLE: &str = "the caller cuts out one integer";
        match self {
            Width::W16 => i64::from(i16::from_le_bytes(bytes.try_into().expect(WHOLE))),
            Width::W32 => i64::from(i32::from_le_bytes(bytes.try_into().expect(WHOLE))),
            Width::W64 => i64::from_le_bytes(bytes.try_into().expect(WHOLE)),
        }
    }

    /// Writes `value` to `to`, whose length is that of this width.
    #[inline]
    fn write(self, value: i64, to: &mut [u8]) {
        to.copy_from_slice(&value.to_le_bytes()[..self.bytes()]);
    }
}

/// A sorted set of integers in one block. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intset {
    bytes: Box<[u8]>,
}

impl Default for Intset {
    fn default() -> Self {
        Self::new()
    }
}

impl Intset {
    /// Creates an empty intset. One allocation.
    pub fn new() -> Self {
        Self { bytes: Box::new([Width::W16 as u8, 0, 0, 0, 0, 0, 0, 0]) }
    }

    /// Creates an intset of `bytes` from a dump or another server, without copying them. They need
    /// not be trusted: everything is checked. O(n).
    ///
    /// # Errors
    /// The kind and the place of the first fault, if `bytes` are not a complete and exact intset.
    pub fn from_bytes(bytes: Box<[u8]>) -> Result<Self, PackError> {
        let error = |at, kind| Err(PackError { at, kind });
        if bytes.len() < HEADER_LEN_BYTES {
            return error(bytes.len(), PackErrorKind::TooShort);
        }
        let width = match bytes[..4] {
            [2, 0, 0, 0] => Width::W16,
            [4, 0, 0, 0] => Width::W32,
            [8, 0, 0, 0] => Width::W64,
            _ => return error(0, PackErrorKind::UnknownEncoding),
        };
        let set = Self { bytes };
        let expected = set.len().checked_mul(width.bytes()).and_then(|len| len.checked_add(HEADER_LEN_BYTES));
        if expected != Some(set.bytes.len()) {
            return error(4, PackErrorKind::WrongLength);
        }
        let mut previous = None;
        for (index, value) in set.iter().enumerate() {
            if previous.is_some_and(|previous| previous >= value) {
                return error(HEADER_LEN_BYTES + index * width.bytes(), PackErrorKind::NotSorted);
            }
            previous = Some(value);
        }
        Ok(set)
    }

    /// Borrows the intset's block, which is in Redis' format. O(1).
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the intset's block, which is in Redis' format, without copying. O(1).
    pub fn into_bytes(self) -> Box<[u8]> {
        self.bytes
    }

    /// Returns the length of the intset's block in bytes, header included. O(1).
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes that the set has allocated, without the [`Intset`] itself. O(1).
    pub fn memory_usage(&self) -> usize {
        size_class(self.bytes.len())
    }

    /// Returns the number of members of the intset. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        u32::from_le_bytes([self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]]) as usize
    }

    /// Returns true if the intset has no members. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER_LEN_BYTES
    }

    /// Returns the member at `index` in ascending order; `None` beyond the last. A random index
    /// gives a random member. O(1).
    #[inline]
    pub fn get(&self, index: usize) -> Option<i64> {
        (index < self.len()).then(|| self.at(self.width(), index))
    }

    /// Returns the smallest member; `None` if the set is empty. O(1).
    pub fn min(&self) -> Option<i64> {
        self.get(0)
    }

    /// Returns the greatest member; `None` if the set is empty. O(1).
    pub fn max(&self) -> Option<i64> {
        self.get(self.len().checked_sub(1)?)
    }

    /// Returns true if `value` is a member. O(log n).
    #[inline]
    pub fn contains(&self, value: i64) -> bool {
        self.search(value).is_ok()
    }

    /// Returns the index of `value` in ascending order. O(log n).
    ///
    /// # Errors
    /// The index at which `value` would be inserted, if it is not a member.
    pub fn search(&self, value: i64) -> Result<usize, usize> {
        let width = self.width();
        let (mut low, mut high) = (0, self.len());
        // Appending in ascending order is common, and so are searches for values above all members.
        if high > 0 && self.at(width, high - 1) < value {
            return Err(high);
        }
        while low < high {
            let middle = low + (high - low) / 2;
            match self.at(width, middle).cmp(&value) {
                Ordering::Less => low = middle + 1,
                Ordering::Greater => high = middle,
                Ordering::Equal => return Ok(middle),
            }
        }
        Err(low)
    }

    /// Returns a double-ended iterator over the members in ascending order.
    pub fn iter(&self) -> Iter<'_> {
        let width = self.width();
        Iter { width, chunks: self.bytes[HEADER_LEN_BYTES..].chunks_exact(width.bytes()) }
    }

    /// Adds `value` to the intset. Returns false if it was already a member. O(n), one
    /// reallocation.
    ///
    /// # Errors
    /// [`PackFull`] if the block would exceed 1 GiB.
    pub fn insert(&mut self, value: i64) -> Result<bool, PackFull> {
        let width = self.width();
        if Width::of(value) > width {
            self.widen_with(value)?;
            return Ok(true);
        }
        let Err(index) = self.search(value) else { return Ok(false) };
        let old_len = self.bytes.len();
        let new_len = grown(old_len, width.bytes())?;
        let at = HEADER_LEN_BYTES + index * width.bytes();
        // Converting a boxed slice to `Vec` and back is free; `reserve_exact` is the one
        // reallocation.
        let mut bytes = Vec::from(std::mem::take(&mut self.bytes));
        bytes.reserve_exact(new_len - old_len);
        bytes.resize(new_len, 0);
        bytes.copy_within(at..old_len, at + width.bytes());
        width.write(value, &mut bytes[at..at + width.bytes()]);
        self.bytes = bytes.into_boxed_slice();
        self.store_len(self.len() + 1);
        Ok(true)
    }

    /// Removes `value` from the intset. Returns false if it was not a member. O(n).
    pub fn remove(&mut self, value: i64) -> bool {
        let Ok(index) = self.search(value) else { return false };
        self.remove_at(index);
        true
    }

    /// Removes and returns the member at `index` in ascending order; `None` beyond the last. O(n).
    pub fn remove_at(&mut self, index: usize) -> Option<i64> {
        let value = self.get(index)?;
        let width = self.width().bytes();
        let at = HEADER_LEN_BYTES + index * width;
        let mut bytes = Vec::from(std::mem::take(&mut self.bytes));
        bytes.copy_within(at + width.., at);
        bytes.truncate(bytes.len() - width);
        self.bytes = bytes.into_boxed_slice();
        self.store_len(self.len() - 1);
        Some(value)
    }

    /// Rewrites the intset with the integer width that `value` needs, and adds `value`. Since
    /// `value` is wider than all members, it comes before or after all of them.
    fn widen_with(&mut self, value: i64) -> Result<(), PackFull> {
        let (old, new) = (self.width(), Width::of(value));
        let len = self.len();
        let new_len_bytes = grown(HEADER_LEN_BYTES + len * new.bytes(), new.bytes())?;
        let mut bytes = Vec::with_capacity(new_len_bytes);
        bytes.extend_from_slice(&(new.bytes() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 4]);
        let put = |value: i64, bytes: &mut Vec<u8>| {
            bytes.extend_from_slice(&value.to_le_bytes()[..new.bytes()]);
        };
        if value < 0 {
            put(value, &mut bytes);
        }
        for index in 0..len {
            put(self.at(old, index), &mut bytes);
        }
        if value >= 0 {
            put(value, &mut bytes);
        }
        self.bytes = bytes.into_boxed_slice();
        self.store_len(len + 1);
        Ok(())
    }

    #[inline]
    fn width(&self) -> Width {
        match self.bytes[0] {
            2 => Width::W16,
            4 => Width::W32,
            _ => Width::W64,
        }
    }

    /// Returns the member of the intset at `index`, which must be in range.
    #[inline]
    fn at(&self, width: Width, index: usize) -> i64 {
        let at = HEADER_LEN_BYTES + index * width.bytes();
        width.read(&self.bytes[at..at + width.bytes()])
    }

    fn store_len(&mut self, len: usize) {
        let len = u32::try_from(len).expect("a gibibyte holds fewer");
        self.bytes[4..HEADER_LEN_BYTES].copy_from_slice(&len.to_le_bytes());
    }
}

/// Returns `len_bytes + added`, the new length of the block, or an error if the sum exceeds
/// [`LEN_BYTES_MAX`].
fn grown(len_bytes: usize, added: usize) -> Result<usize, PackFull> {
    Some(len_bytes + added).filter(|&len| len <= LEN_BYTES_MAX).ok_or(PackFull)
}

impl<'a> IntoIterator for &'a Intset {
    type Item = i64;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// A double-ended iterator over the members of an intset in ascending order.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    width: Width,
    chunks: std::slice::ChunksExact<'a, u8>,
}

impl Iterator for Iter<'_> {
    type Item = i64;

    #[inline]
    fn next(&mut self) -> Option<i64> {
        self.chunks.next().map(|bytes| self.width.read(bytes))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.chunks.size_hint()
    }
}

impl DoubleEndedIterator for Iter<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<i64> {
        self.chunks.next_back().map(|bytes| self.width.read(bytes))
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl std::iter::FusedIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(values: impl IntoIterator<Item = i64>) -> Intset {
        let mut set = Intset::new();
        for value in values {
            set.insert(value).expect("small");
        }
        set
    }

    fn check(set: &Intset, expected: &BTreeSet<i64>) {
        assert!(set.iter().eq(expected.iter().copied()));
        assert!(set.iter().rev().eq(expected.iter().rev().copied()));
        assert_eq!(set.len(), expected.len());
        assert_eq!(set.is_empty(), expected.is_empty());
        assert_eq!((set.min(), set.max()), (expected.first().copied(), expected.last().copied()));
        assert_eq!(Intset::from_bytes(set.as_bytes().into()).as_ref(), Ok(set));
    }

    #[test]
    fn bytes_are_those_redis_writes() {
        // SADD s 1 -2 300 on Redis 8.0.2, the intset inside DUMP s.
        assert_eq!(of([1, -2, 300]).as_bytes(), b"\x02\0\0\0\x03\0\0\0\xfe\xff\x01\0\x2c\x01");
    }

    #[test]
    fn every_width_boundary_upgrades_from_every_width() {
        let edges = [
            0,
            1,
            -1,
            32767,
            32768,
            -32768,
            -32769,
            2_147_483_647,
            2_147_483_648,
            -2_147_483_648,
            -2_147_483_649,
            i64::MAX,
            i64::MIN,
        ];
        for first in edges {
            for second in edges {
                for third in edges {
                    let values = [first, second, third];
                    check(&of(values), &BTreeSet::from(values));
                }
            }
        }
    }

    #[test]
    fn bad_bytes_are_named_with_their_place() {
        let error = |bytes: &[u8]| Intset::from_bytes(bytes.into()).expect_err("broken");
        assert_eq!(error(b"\x02\0\0").kind, PackErrorKind::TooShort);
        assert_eq!(error(b"\x03\0\0\0\0\0\0\0").kind, PackErrorKind::UnknownEncoding);
        assert_eq!(error(b"\x02\0\0\0\xff\xff\xff\xff").kind, PackErrorKind::WrongLength);
        let unsorted = error(b"\x02\0\0\0\x02\0\0\0\x05\0\x05\0");
        assert_eq!(unsorted, PackError { at: 10, kind: PackErrorKind::NotSorted });
    }

    fn member() -> impl Strategy<Value = i64> {
        prop_oneof![8 => -20_i64..20, 2 => -40_000_i64..40_000, 1 => any::<i32>().prop_map(i64::from), 1 => any::<i64>()]
    }

    proptest! {
        #[test]
        fn does_what_a_tree_set_does(ops in proptest::collection::vec((any::<u8>(), member()), 0..200)) {
            let mut set = Intset::new();
            let mut twin = BTreeSet::new();
            for (op, value) in ops {
                prop_assert_eq!(set.contains(value), twin.contains(&value));
                match op % 8 {
                    0..5 => prop_assert_eq!(set.insert(value), Ok(twin.insert(value))),
                    5..7 => prop_assert_eq!(set.remove(value), twin.remove(&value)),
                    _ => {
                        let index = value.unsigned_abs() as usize % (twin.len() + 1);
                        let expected = twin.iter().nth(index).copied();
                        prop_assert_eq!(set.remove_at(index), expected);
                        expected.map(|value| twin.remove(&value));
                    }
                }
                check(&set, &twin);
            }
        }

        #[test]
        fn mutated_bytes_are_refused_or_readable(
            values in proptest::collection::vec(member(), 0..20),
            changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
            len in any::<usize>(),
        ) {
            let mut bytes = of(values).into_bytes().into_vec();
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if len % 4 == 0 {
                bytes.truncate(len / 4 % (bytes.len() + 1));
            }
            if let Ok(mut set) = Intset::from_bytes(bytes.into()) {
                let before = set.len();
                prop_assert_eq!(set.iter().count(), before);
                let new = set.insert(77).expect("small");
                prop_assert_eq!(set.len(), before + usize::from(new));
                set.remove(77);
            }
        }
    }
}
