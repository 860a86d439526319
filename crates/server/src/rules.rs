//! The rules for decoding values from data files and DUMP payloads, derived from the options.

use ::commands::ValueLimits;
use keyspace::{Hasher, PackLimits, SetLimits, StreamLimits};
use persist::rdb::{Rules, VersionCheck};

/// Returns the rules for decoding values under `limits`, the limits on values from the options.
pub fn rules<'a>(limits: &ValueLimits, hasher: &'a Hasher) -> Rules<'a> {
    let pack = |entries_max, value_len_bytes_max| PackLimits { entries_max, value_len_bytes_max };
    Rules {
        hasher,
        list: limits.list(),
        set: SetLimits {
            intset_entries_max: limits.set_max_intset_entries,
            pack: pack(limits.set_max_listpack_entries, limits.set_max_listpack_value),
        },
        hash: pack(limits.hash_max_listpack_entries, limits.hash_max_listpack_value),
        zset: pack(limits.zset_max_listpack_entries, limits.zset_max_listpack_value),
        stream: StreamLimits {
            node_bytes_max: limits.stream_node_max_bytes,
            node_entries_max: limits.stream_node_max_entries,
        },
        string_len_bytes_max: limits.string_len_bytes_max,
        versions: if limits.takes_unknown_dumps { VersionCheck::Relaxed } else { VersionCheck::Strict },
        skips_checksums: limits.skips_checksums,
    }
}
