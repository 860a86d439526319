//! The limits and options by which values in the RDB format are read and checked.

use keyspace::{Hasher, ListLimits, PackLimits, SetLimits, StreamLimits};

use super::VersionCheck;

/// The limits and options for values that are read in the RDB format.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The hasher of the keyspace to which the values will be added.
    pub hasher: &'a Hasher,
    /// The limits of lists in each encoding, above which a list changes its encoding or begins a
    /// new node.
    pub list: ListLimits,
    /// The limits above which packed sets are unpacked.
    pub set: SetLimits,
    /// The limits above which packed hashes are unpacked.
    pub hash: PackLimits,
    /// The limits above which packed sorted sets are unpacked.
    pub zset: PackLimits,
    /// The limits above which a stream begins a new node.
    pub stream: StreamLimits,
    /// The maximum length of a string, in bytes.
    pub string_len_bytes_max: u64,
    /// The payload versions that are accepted.
    pub versions: VersionCheck,
    /// True if checksums of payloads are ignored, for tests with damaged data.
    pub skips_checksums: bool,
}
