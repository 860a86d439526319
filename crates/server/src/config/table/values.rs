//! Options about when a value changes its encoding.

use crate::config::option::{ANY, BYTES, INT, Opt};

/// This theme's options.
pub static OPTIONS: &[Opt] = &[
    Opt::integer("hash-max-listpack-entries", "512", ANY, "Fields up to which a hash stays a listpack.")
        .also(&["hash-max-ziplist-entries"]),
    Opt::memory(
        "hash-max-listpack-value",
        "64",
        BYTES,
        "Bytes of a field or value up to which it stays one.",
    )
    .also(&["hash-max-ziplist-value"]),
    Opt::integer(
        "list-max-listpack-size",
        "-2",
        (i32::MIN as i64, i32::MAX as i64),
        "Elements of a list's node; −1 to −5 mean 4, 8, 16, 32 or 64 kilobytes instead.",
    )
    .also(&["list-max-ziplist-size"]),
    Opt::integer(
        "list-compress-depth",
        "0",
        INT,
        "Nodes at each end of a list that are not compressed; 0 compresses none. Lists that exist keep theirs.",
    ),
    Opt::integer(
        "set-max-intset-entries",
        "512",
        ANY,
        "Members up to which a set of integers stays an intset.",
    ),
    Opt::integer("set-max-listpack-entries", "128", ANY, "Members up to which a set stays a listpack."),
    Opt::integer("set-max-listpack-value", "64", ANY, "Bytes of a member up to which it stays one."),
    Opt::integer(
        "zset-max-listpack-entries",
        "128",
        ANY,
        "Members up to which a sorted set stays a listpack.",
    )
    .also(&["zset-max-ziplist-entries"]),
    Opt::memory("zset-max-listpack-value", "64", BYTES, "Bytes of a member up to which it stays one.")
        .also(&["zset-max-ziplist-value"]),
    Opt::memory("stream-node-max-bytes", "4096", BYTES, "Bytes of a stream's node; 0 for no limit."),
    Opt::integer("stream-node-max-entries", "100", ANY, "Entries of a stream's node; 0 for no limit."),
    Opt::memory("hll-sparse-max-bytes", "3000", BYTES, "Bytes up to which a HyperLogLog stays sparse."),
];
