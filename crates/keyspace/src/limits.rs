//! Up to where small collections stay packed in one block.

/// Thresholds of a packed encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackLimits {
    /// Most entries (members, or fields with their values).
    pub entries_max: usize,
    /// Longest entry, field or value, in bytes.
    pub value_len_bytes_max: usize,
}

impl PackLimits {
    /// Returns true if `count` entries stay packed.
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

/// Thresholds of a set's encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetLimits {
    /// Most members of a set of integers.
    pub intset_entries_max: usize,
    /// Limits of a packed set of strings.
    pub pack: PackLimits,
}
