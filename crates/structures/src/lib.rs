//! Data structures with memory layouts of our own: the table of keys and its entries, compact
//! encodings, the ranked tree, the shard lock and the counting allocator.
//!
//! Unsafe code is allowed only here, in `net`'s system layer and in `script`'s interface to Lua:
//! one operation a block, each with its proof. Each module here is checked against a safe naive
//! twin. No I/O, no clock, no randomness: bytes, times and random numbers are arguments.

pub mod alloc;
pub mod array;
mod block;
pub mod claim;
pub mod combiner;
pub mod entry;
#[doc(hidden)]
pub mod fuzz;
pub mod hll;
pub mod inbox;
pub mod intset;
pub mod listpack;
pub mod lock;
pub mod lzf;
pub mod member;
pub mod pack_error;
pub mod packed_set;
pub mod pair;
pub mod prefetch;
pub mod quicklist;
pub mod rank_tree;
pub mod ranked_members;
pub mod size_class;
pub mod table;
pub mod vector;
pub mod walk_state;
pub mod walked_row;
pub mod watermark;
