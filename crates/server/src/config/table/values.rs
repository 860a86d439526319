//! Options about when a value changes its encoding.

use crate::config::handle::Handle;
use crate::config::option::{ANY, BYTES, INT, Opt};

/// This theme's options.
pub static OPTIONS: &[&Opt] = &[
    &HASH_MAX_LISTPACK_ENTRIES.opt,
    &HASH_MAX_LISTPACK_VALUE.opt,
    &LIST_MAX_LISTPACK_SIZE.opt,
    &LIST_COMPRESS_DEPTH.opt,
    &SET_MAX_INTSET_ENTRIES.opt,
    &SET_MAX_LISTPACK_ENTRIES.opt,
    &SET_MAX_LISTPACK_VALUE.opt,
    &ZSET_MAX_LISTPACK_ENTRIES.opt,
    &ZSET_MAX_LISTPACK_VALUE.opt,
    &STREAM_NODE_MAX_BYTES.opt,
    &STREAM_NODE_MAX_ENTRIES.opt,
    &HLL_SPARSE_MAX_BYTES.opt,
];

/// Fields of a hash that is a listpack at most.
pub static HASH_MAX_LISTPACK_ENTRIES: Handle<usize> =
    Opt::integer("hash-max-listpack-entries", "512", ANY, "Fields up to which a hash stays a listpack.")
        .also(&["hash-max-ziplist-entries"])
        .typed();

/// Bytes of a field or value in a listpack at most.
pub static HASH_MAX_LISTPACK_VALUE: Handle<usize> = Opt::memory(
    "hash-max-listpack-value",
    "64",
    BYTES,
    "Bytes of a field or value up to which it stays one.",
)
.also(&["hash-max-ziplist-value"])
.typed();

/// Elements of a list's node, or one of −1 to −5 for kilobytes.
pub static LIST_MAX_LISTPACK_SIZE: Handle<i64> = Opt::integer(
    "list-max-listpack-size",
    "-2",
    (i32::MIN as i64, i32::MAX as i64),
    "Elements of a list's node; −1 to −5 mean 4, 8, 16, 32 or 64 kilobytes instead.",
)
.also(&["list-max-ziplist-size"])
.typed();

/// Nodes at each end of a list that are not compressed; 0 compresses none.
pub static LIST_COMPRESS_DEPTH: Handle<i64> = Opt::integer(
    "list-compress-depth",
    "0",
    INT,
    "Nodes at each end of a list that are not compressed; 0 compresses none. Lists that exist keep theirs.",
)
.typed();

/// Members of a set that is an intset at most.
pub static SET_MAX_INTSET_ENTRIES: Handle<usize> = Opt::integer(
    "set-max-intset-entries",
    "512",
    ANY,
    "Members up to which a set of integers stays an intset.",
)
.typed();

/// Members of a set that is a listpack at most.
pub static SET_MAX_LISTPACK_ENTRIES: Handle<usize> =
    Opt::integer("set-max-listpack-entries", "128", ANY, "Members up to which a set stays a listpack.")
        .typed();

/// Bytes of a member in a listpack at most.
pub static SET_MAX_LISTPACK_VALUE: Handle<usize> =
    Opt::integer("set-max-listpack-value", "64", ANY, "Bytes of a member up to which it stays one.").typed();

/// Members of a sorted set that is a listpack at most.
pub static ZSET_MAX_LISTPACK_ENTRIES: Handle<usize> = Opt::integer(
    "zset-max-listpack-entries",
    "128",
    ANY,
    "Members up to which a sorted set stays a listpack.",
)
.also(&["zset-max-ziplist-entries"])
.typed();

/// Bytes of a member in a listpack at most.
pub static ZSET_MAX_LISTPACK_VALUE: Handle<usize> =
    Opt::memory("zset-max-listpack-value", "64", BYTES, "Bytes of a member up to which it stays one.")
        .also(&["zset-max-ziplist-value"])
        .typed();

/// Bytes of a stream's node at most; 0 for no limit.
pub static STREAM_NODE_MAX_BYTES: Handle<usize> =
    Opt::memory("stream-node-max-bytes", "4096", BYTES, "Bytes of a stream's node; 0 for no limit.").typed();

/// Entries of a stream's node at most; 0 for no limit.
pub static STREAM_NODE_MAX_ENTRIES: Handle<usize> =
    Opt::integer("stream-node-max-entries", "100", ANY, "Entries of a stream's node; 0 for no limit.")
        .typed();

/// Bytes of a sparse HyperLogLog at most.
pub static HLL_SPARSE_MAX_BYTES: Handle<usize> =
    Opt::memory("hll-sparse-max-bytes", "3000", BYTES, "Bytes up to which a HyperLogLog stays sparse.")
        .typed();
