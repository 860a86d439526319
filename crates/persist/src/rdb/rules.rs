//! What the configuration says about values that are read.

use keyspace::{Hasher, ListLimits, PackLimits, SetLimits, StreamLimits};

use super::VersionCheck;

/// What values that are read become.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The hasher of the keyspace they go to.
    pub hasher: &'a Hasher,
    /// How lists are split.
    pub list: ListLimits,
    /// How large sets stay packed.
    pub set: SetLimits,
    /// How large hashes stay packed.
    pub hash: PackLimits,
    /// How large sorted sets stay packed.
    pub zset: PackLimits,
    /// How streams are split.
    pub stream: StreamLimits,
    /// The longest string.
    pub string_len_bytes_max: u64,
    /// Which versions are read.
    pub versions: VersionCheck,
    /// Whether checksums of payloads are left unread, for tests of damaged data.
    pub skips_checksums: bool,
}
