//! Keys and values: the objects that keys hold, databases, shards behind locks, and expiry.
//!
//! Pure: no I/O, no clock, no randomness of its own. Times and random numbers are arguments.
#![forbid(unsafe_code)]

pub mod access;
pub mod access_clock;
pub mod array;
mod big_index;
pub mod big_keys;
pub mod compaction;
pub mod db;
mod element_batch;
mod estimate;
pub mod eviction;
mod expiry;
pub mod freeing;
pub mod gate;
pub mod hash;
pub mod key;
pub mod keyspace;
pub mod limits;
pub mod list;
pub mod object;
mod one_of;
pub mod packed;
pub mod parts;
mod sample;
pub mod scan;
pub mod set;
pub mod sizes;
pub mod snapshot;
pub mod stream;
pub mod string;
pub mod value_size;
pub mod vector;
pub mod view;
pub mod zset;

pub use access::Access;
pub use array::Array;
pub use big_keys::{BigKey, BigKeys};
pub use db::{Db, Shard};
pub use element_batch::ElementBatch;
pub use eviction::{Criteria, Evicted, Evictor, Policy};
pub use expiry::Expiry;
pub use freeing::FreeingSteps;
pub use gate::{Exclusive, Gate, SharedPass};
pub use hash::{FieldWrite, Hash, HashField, LiveFields, Lookup};
pub use key::{Hasher, Key, KeyHash};
pub use keyspace::{Keyspace, Locked, ShardBusy, SweepPoint, SweepResult, SweptFields};
pub use limits::{PackLimits, SetLimits};
pub use list::{Beside, List, ListEnd, ListLimits, ListView, PositionQuery, PushOrder, Trimmed};
pub use object::{Blob, KeyEntry, Object, ObjectType};
pub use packed::PackDefect;
pub use scan::ScanCursor;
pub use set::{Set, SetView};
pub use sizes::{KeySizes, SizeMark};
pub use stream::{
    AppendError, Keep, NewId, References, Stream, StreamEntry, StreamId, StreamLimits, StreamRest,
    StreamTrimmed, TrimEffort,
};
pub use string::Str;
pub use value_size::{Measure, SizedType, ValueSize};
pub use vector::{Leftover, NewAttributes, PinnedSet, VectorSet};
pub use view::{AccessError, View};
pub use zset::Zset;
