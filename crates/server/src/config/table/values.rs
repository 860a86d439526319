//! Options for the limits of compact encodings. A value beyond its limit changes to another
//! encoding.

use crate::config::handle::Handle;
use crate::config::option::{ANY, BYTES, INT, Opt};

/// The options of this theme.
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

/// The maximum number of fields of a hash in a listpack.
pub static HASH_MAX_LISTPACK_ENTRIES: Handle<usize> =
    Opt::integer("hash-max-listpack-entries", "512", ANY, "Fields up to which a hash stays a listpack.")
        .also(&["hash-max-ziplist-entries"])
        .typed();

/// The maximum length of a field or value of a hash in a listpack, in bytes.
pub static HASH_MAX_LISTPACK_VALUE: Handle<usize> = Opt::memory(
    "hash-max-listpack-value",
    "64",
    BYTES,
    "Bytes of a field or value up to which it stays one.",
)
.also(&["hash-max-ziplist-value"])
.typed();

/// The maximum number of elements in a node of a list. The values −1 to −5 instead limit the size
/// of a node to 4, 8, 16, 32 or 64 kilobytes.
pub static LIST_MAX_LISTPACK_SIZE: Handle<i64> = Opt::integer(
    "list-max-listpack-size",
    "-2",
    (i32::MIN as i64, i32::MAX as i64),
    "Elements of a list's node; −1 to −5 mean 4, 8, 16, 32 or 64 kilobytes instead.",
)
.also(&["list-max-ziplist-size"])
.typed();

/// The number of nodes at each end of a list that are not compressed; 0 compresses none.
pub static LIST_COMPRESS_DEPTH: Handle<i64> = Opt::integer(
    "list-compress-depth",
    "0",
    INT,
    "Nodes at each end of a list that are not compressed; 0 compresses none. Lists that exist keep theirs.",
)
.typed();

/// The maximum number of members of a set in an intset.
pub static SET_MAX_INTSET_ENTRIES: Handle<usize> = Opt::integer(
    "set-max-intset-entries",
    "512",
    ANY,
    "Members up to which a set of integers stays an intset.",
)
.typed();

/// The maximum number of members of a set in a listpack.
pub static SET_MAX_LISTPACK_ENTRIES: Handle<usize> =
    Opt::integer("set-max-listpack-entries", "128", ANY, "Members up to which a set stays a listpack.")
        .typed();

/// The maximum length of a member of a set in a listpack, in bytes.
pub static SET_MAX_LISTPACK_VALUE: Handle<usize> =
    Opt::integer("set-max-listpack-value", "64", ANY, "Bytes of a member up to which it stays one.").typed();

/// The maximum number of members of a sorted set in a listpack.
pub static ZSET_MAX_LISTPACK_ENTRIES: Handle<usize> = Opt::integer(
    "zset-max-listpack-entries",
    "128",
    ANY,
    "Members up to which a sorted set stays a listpack.",
)
.also(&["zset-max-ziplist-entries"])
.typed();

/// The maximum length of a member of a sorted set in a listpack, in bytes.
pub static ZSET_MAX_LISTPACK_VALUE: Handle<usize> =
    Opt::memory("zset-max-listpack-value", "64", BYTES, "Bytes of a member up to which it stays one.")
        .also(&["zset-max-ziplist-value"])
        .typed();

/// The maximum size of a node of a stream, in bytes; 0 for no limit.
pub static STREAM_NODE_MAX_BYTES: Handle<usize> =
    Opt::memory("stream-node-max-bytes", "4096", BYTES, "Bytes of a stream's node; 0 for no limit.").typed();

/// The maximum number of entries in a node of a stream; 0 for no limit.
pub static STREAM_NODE_MAX_ENTRIES: Handle<usize> =
    Opt::integer("stream-node-max-entries", "100", ANY, "Entries of a stream's node; 0 for no limit.")
        .typed();

/// The maximum size of a sparse HyperLogLog, in bytes.
pub static HLL_SPARSE_MAX_BYTES: Handle<usize> =
    Opt::memory("hll-sparse-max-bytes", "3000", BYTES, "Bytes up to which a HyperLogLog stays sparse.")
        .typed();
