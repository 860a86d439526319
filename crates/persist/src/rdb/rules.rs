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
    /// The limits above which a packed set is stored as a table.
    pub set: SetLimits,
    /// The limits above which a packed hash is stored as a table.
    pub hash: PackLimits,
    /// The limits above which packed sorted sets are unpacked.
    pub zset: PackLimits,
    /// The limits of a stream's node (entries, bytes), above which a new node begins.
    pub stream: StreamLimits,
    /// The maximum length of a string value that is accepted, in bytes.
    pub string_len_bytes_max: u64,
    /// The versions of the RDB format that are accepted in DUMP payloads.
    pub versions: VersionCheck,
    /// True if the checksums of DUMP payloads are ignored, for tests with damaged data.
    pub skips_checksums: bool,
}
