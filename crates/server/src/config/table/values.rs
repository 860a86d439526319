//! The table of options for the limits of compact encodings. A value that exceeds a limit changes
//! to another encoding.

use crate::config::handle::Handle;
use crate::config::option::{ANY, BYTES, INT, Opt};

/// The options of this file, in the order of docs/options.md.
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

/// The maximum number of fields of a hash that is stored in a listpack.
pub static HASH_MAX_LISTPACK_ENTRIES: Handle<usize> = Opt::integer(
    "hash-max-listpack-entries",
    "512",
    ANY,
    "The maximum number of fields of a hash with encoding listpack.",
)
.also(&["hash-max-ziplist-entries"])
.typed();

/// The maximum length of a field or value of a hash that is stored in a listpack, in bytes.
pub static HASH_MAX_LISTPACK_VALUE: Handle<usize> = Opt::memory(
    "hash-max-listpack-value",
    "64",
    BYTES,
    "The maximum length, in bytes, of fields and values of a hash with encoding listpack.",
)
.also(&["hash-max-ziplist-value"])
.typed();

/// The maximum number of elements in a node of a list. The values −1 to −5 instead limit the size
/// of a node to 4, 8, 16, 32 or 64 kilobytes.
pub static LIST_MAX_LISTPACK_SIZE: Handle<i64> = Opt::integer(
    "list-max-listpack-size",
    "-2",
    (i32::MIN as i64, i32::MAX as i64),
    "The maximum number of elements in a node of a list. `-1` to `-5` limit the node's size \
         instead, to 4, 8, 16, 32 or 64 kilobytes.",
)
.also(&["list-max-ziplist-size"])
.typed();

/// The number of nodes at each end of a list that are not compressed; 0 turns compression off.
pub static LIST_COMPRESS_DEPTH: Handle<i64> = Opt::integer(
    "list-compress-depth",
    "0",
    INT,
    "The number of nodes at each end of a list that are not compressed; 0 disables compression. A \
         change applies to new lists.",
)
.typed();

/// The maximum number of members of a set that is stored in an intset.
pub static SET_MAX_INTSET_ENTRIES: Handle<usize> = Opt::integer(
    "set-max-intset-entries",
    "512",
    ANY,
    "The maximum number of members of a set with encoding intset.",
)
.typed();

/// The maximum number of members of a set that is stored in a listpack.
pub static SET_MAX_LISTPACK_ENTRIES: Handle<usize> = Opt::integer(
    "set-max-listpack-entries",
    "128",
    ANY,
    "The maximum number of members of a set with encoding listpack.",
)
.typed();

/// The maximum length of a member of a set that is stored in a listpack, in bytes.
pub static SET_MAX_LISTPACK_VALUE: Handle<usize> = Opt::integer(
    "set-max-listpack-value",
    "64",
    ANY,
    "The maximum length, in bytes, of members of a set with encoding listpack.",
)
.typed();

/// The maximum number of members of a sorted set that is stored in a listpack.
pub static ZSET_MAX_LISTPACK_ENTRIES: Handle<usize> = Opt::integer(
    "zset-max-listpack-entries",
    "128",
    ANY,
    "The maximum number of members of a sorted set with encoding listpack.",
)
.also(&["zset-max-ziplist-entries"])
.typed();

/// The maximum length of a member of a sorted set that is stored in a listpack, in bytes.
pub static ZSET_MAX_LISTPACK_VALUE: Handle<usize> = Opt::memory(
    "zset-max-listpack-value",
    "64",
    BYTES,
    "The maximum length, in bytes, of members of a sorted set with encoding listpack.",
)
.also(&["zset-max-ziplist-value"])
.typed();

/// The maximum size of a node of a stream, in bytes; 0 for no limit.
pub static STREAM_NODE_MAX_BYTES: Handle<usize> = Opt::memory(
    "stream-node-max-bytes",
    "4096",
    BYTES,
    "The maximum size of a node of a stream, in bytes; 0 for no limit.",
)
.typed();

/// The maximum number of entries in a node of a stream; 0 for no limit.
pub static STREAM_NODE_MAX_ENTRIES: Handle<usize> = Opt::integer(
    "stream-node-max-entries",
    "100",
    ANY,
    "The maximum number of entries in a node of a stream; 0 for no limit.",
)
.typed();

/// The maximum size of a HyperLogLog in the sparse encoding, in bytes.
pub static HLL_SPARSE_MAX_BYTES: Handle<usize> = Opt::memory(
    "hll-sparse-max-bytes",
    "3000",
    BYTES,
    "The maximum size of a HyperLogLog with sparse encoding, in bytes.",
)
.typed();
