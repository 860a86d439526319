//! Replay: runs the requests of an append-only file on several threads. The result is the same as
//! if they ran one after the other.
//!
//! ```text
//!   file ─► reader ─► batches of requests ─► Router ─► tasks ─► Lane 0 ─┐
//!                                                 └──► tasks ─► Lane 1 ─┴─► keyspace
//! ```
//! **Lanes.** A lane is the part of one thread. It owns a range of shards, and runs the requests on
//! keys of these shards in the order of the file. A request accesses its own keys only. The order
//! between requests of two lanes therefore has no visible effect.
//!
//! **Meetings.** Some requests have keys of several lanes, or name no keys (FLUSHALL, SWAPDB, a
//! SORT by patterns). Such a request is a task of each of these lanes. The lanes that arrive first
//! wait outside the gate (the keyspace's shared lock); the last one runs the request, and then all
//! continue. All lanes have their tasks in the order of the file, so lanes that wait for each other
//! cannot form a circle. Consecutive requests of this kind are one meeting. A batch with too many
//! meetings runs as a whole in one meeting of all lanes, which takes no longer than one thread
//! would.
//!
//! **Transactions** are complete: the reader passes on no part of a transaction before it has read
//! the EXEC. Their requests are then routed like all others, since no client reads the data during
//! the replay.
//!
//! **As during loading in Redis**, nothing expires: expired keys are kept and visible, and the file
//! contains their DEL. No key is evicted, no change is recorded in the change log, and no event is
//! published. Blocked clients are not served. A failed request is reported, and the next one runs.
//!
//! This module starts no thread: drivers pass the tasks to lanes ([`Lane::run`]), and wait for
//! meetings that other lanes end ([`Meeting::wait`]).

mod lane;
mod route;
mod task;

pub use lane::Lane;
pub use route::{NotRouted, Routed, Router, Unroutable};
pub use task::{Failed, Job, Meeting, Requests, Slice, Task};

use crate::shared::GateSlot;

/// The maximum number of lanes (threads) of a replay.
pub const LANES_MAX: usize = GateSlot::LANES_MAX;

/// Returns the index of the lane (thread) that replays the requests on keys of a shard.
fn lane_of(shard: usize, lanes: usize) -> usize {
    (shard * lanes) / keyspace::key::SHARD_COUNT
}
