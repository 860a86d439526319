//! Replay: the requests of an append-only file, run on several threads with the result that running
//! them one after the other has.
//!
//! ```text
//!   file ─► reader ─► batches of requests ─► Router ─► tasks ─► Lane 0 ─┐
//!                                                 └──► tasks ─► Lane 1 ─┴─► keyspace
//! ```
//! **Lanes.** A lane is a thread's part. It owns the shards of a range, and runs the requests on
//! keys of these shards in the order of the file. A request is about its keys only, so what two
//! lanes do in between is in no order that anybody could see.
//!
//! **Meetings.** A request with keys of several lanes, or on whatever it finds (FLUSHALL, SWAPDB, a
//! SORT by patterns), is a task of each of these lanes: who comes first waits outside the gate, the
//! last runs it, and all go on. Tasks are in the order of the file in all lanes, so the lanes that
//! wait for each other cannot form a circle. Requests that meet one behind the other are one
//! meeting. A batch in which too many meet runs as a whole in one meeting of all lanes: that costs
//! no more than one thread would take.
//!
//! **Transactions** are whole: the reader gives out nothing of one before it has read its EXEC. So
//! its requests are like any others, for nobody else reads the data.
//!
//! **As while loading in Redis** nothing expires: what is past its time is kept and seen, and the
//! DEL of what expired comes from the file. Nothing is evicted, recorded in the change log, or
//! published. Who is blocked is not served. A request that fails is reported, and the next one
//! runs.
//!
//! Nothing here has a thread: drivers take tasks to lanes ([`Lane::run`]), and wait for meetings
//! that others end ([`Meeting::wait`]).

mod lane;
mod route;
mod task;

pub use lane::Lane;
pub use route::{NotRouted, Routed, Router, Unroutable};
pub use task::{Failed, Job, Meeting, Requests, Slice, Task};

/// Lanes at most.
pub const LANES_MAX: usize = 8;

/// Returns the lane of a shard.
fn lane_of(shard: usize, lanes: usize) -> usize {
    (shard * lanes) / keyspace::key::SHARD_COUNT
}
