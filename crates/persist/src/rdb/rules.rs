//! The configuration of values that are read.

use keyspace::{Hasher, ListLimits, PackLimits, SetLimits, StreamLimits};

use super::VersionCheck;

/// The rules for values that are read.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The hasher of the keyspace they go to.
    pub hasher: &'a Hasher,
    /// The limits of lists.
    pub list: ListLimits,
    /// The limits of packed sets.
    pub set: SetLimits,
    /// The limits of packed hashes.
    pub hash: PackLimits,
    /// The limits of packed sorted sets.
    pub zset: PackLimits,
    /// The limits of streams' nodes.
    pub stream: StreamLimits,
    /// The longest string.
    pub string_len_bytes_max: u64,
    /// The versions that are read.
    pub versions: VersionCheck,
    /// True if checksums of payloads are ignored, for tests of damaged data.
    pub skips_checksums: bool,
}
