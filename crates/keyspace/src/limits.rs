//! The limits up to which small collections stay packed in one block.

/// The limits up to which a collection is packed in one listpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLimits {
    /// The most entries (members, or fields with their values) of a packed collection.
    pub entries_max: usize,
    /// The length in bytes up to which an entry (a member, a field or a value) may be packed.
    pub value_len_bytes_max: usize,
}

impl PackLimits {
    /// Returns true if a collection of `count` entries stays packed.
    #[inline]
    pub fn admit_count(&self, count: usize) -> bool {
        count <= self.entries_max
    }

    /// Returns true if an entry is short enough to be packed.
    #[inline]
    pub fn admit(&self, entry: &[u8]) -> bool {
        entry.len() <= self.value_len_bytes_max
    }
}

/// The limits up to which a set is stored as an intset or a listpack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimits {
    /// The most members of a set of integers that is stored as an intset.
    pub intset_entries_max: usize,
    /// The limits of a set that is packed in one listpack.
    pub pack: PackLimits,
}
