//! The limits and options by which values in the RDB format are read and checked.

use keyspace::{Hasher, ListLimits, PackLimits, SetLimits, StreamLimits};

use super::VersionCheck;

/// The limits and options for values that are read in the RDB format.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The hasher of the keyspace to which the values will be added.
    pub hasher: &'a Hasher,
    /// The limits of lists.
    pub list: ListLimits,
    /// The limits of packed sets.
    pub set: SetLimits,
    /// The limits of packed hashes.
    pub hash: PackLimits,
    /// The limits of packed sorted sets.
    pub zset: PackLimits,
    /// The limits of nodes of streams.
    pub stream: StreamLimits,
    /// The maximum length of a string, in bytes.
    pub string_len_bytes_max: u64,
    /// The payload versions that are accepted.
    pub versions: VersionCheck,
    /// True if checksums of payloads are ignored, for tests with damaged data.
    pub skips_checksums: bool,
}
