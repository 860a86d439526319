//! Compaction: moves keys in memory, so that sparsely used pages become free (`activedefrag`).
//!
//! ```text
//!   round   compares used memory with the memory that the allocator holds, once a second
//!   pass    while too much is held: counts the blocks of all pages, moves those in sparse ones
//!   slice   at most `active-defrag-cycle-us` of a pass, then a rest that keeps the share of a core
//!   step    part of a table, tens of microseconds inside the gate and under its shard's lock
//! ```
//! The gate is the lock that all threads share while they use the keyspace. The share of a core
//! grows with the fragmentation, as in Redis: from `active-defrag-cycle-min` at the lower threshold
//! to `-max` at the upper one. A pass that freed little is followed by a longer rest: the remaining
//! excess is in pages with values that cannot be moved.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use keyspace::SweepPoint;
use keyspace::compaction::{self, Moved, PageUse};
use keyspace::key::SHARD_COUNT;

use crate::fragmentation::HeldMemory;
use crate::shared::{GateSlot, Shared};

/// The maximum time of one step of compaction, if the thread is not interrupted.
const STEP_MAX: Duration = Duration::from_micros(200);
/// The minimum time between two compaction passes over the keyspace.
const REST: Duration = Duration::from_secs(1);
/// The minimum time between two compaction passes if the first one freed little.
const LONG_REST: Duration = Duration::from_secs(60);
/// The inverse of the smallest fraction of the excess memory that a compaction pass should free. A
/// pass that has freed less is followed by a long rest.
const LITTLE_DIVISOR: u64 = 32;
/// The inverse of the fraction by which the excess memory must grow to end a long rest early.
const GROWTH_DIVISOR: u64 = 4;

/// The state of a compaction pass, which moves the keys of all shards to densely used memory pages.
struct Pass {
    /// True once the pass has counted the blocks of all pages; from then on it moves blocks.
    moves: bool,
    at: SweepPoint,
    pages: PageUse,
    moved: Moved,
    /// The number of shards that the pass must still visit in its present phase (counting or
    /// moving).
    shards_left: usize,
    since: Instant,
}

/// The compaction that the housekeeper runs: the state of its passes over the keyspace.
pub struct Compaction {
    pass: Option<Pass>,
    share_percent: u64,
    /// The earliest time of the next slice (a short run of a pass) or of the next pass.
    next: Instant,
    /// The excess memory before the last compaction pass, in bytes; `None` once the result of that
    /// pass has been computed.
    before_bytes: Option<u64>,
    /// The excess memory (held by the allocator but not used) at which the next pass begins early,
    /// in bytes.
    grown_bytes: u64,
}

const START: SweepPoint = SweepPoint { shard: 0, db: 0, cursor: 0 };

impl Compaction {
    /// Creates the state of compaction before its first pass.
    pub fn new(now: Instant) -> Self {
        Self { pass: None, share_percent: 0, next: now, before_bytes: None, grown_bytes: u64::MAX }
    }

    /// Begins or ends a compaction pass, or changes its share of a core, depending on the use of
    /// memory. Called about once a second while compaction is on or a pass is in progress.
    pub fn begin_round(&mut self, shared: &Shared, memory: HeldMemory, now: Instant) {
        let share = shared.settings.get().compaction.share(memory);
        match share {
            Some(share_percent) => self.share_percent = share_percent,
            // The next pass may be for other memory: it is not compared with this one.
            None => (self.pass, self.before_bytes) = (None, None),
        }
        let excess_bytes = memory.excess_bytes();
        let is_due = self.next <= now || excess_bytes >= self.grown_bytes;
        if share.is_some() && self.pass.is_none() && is_due {
            let has_freed_little = |before_bytes| excess_bytes > before_bytes - before_bytes / LITTLE_DIVISOR;
            if self.before_bytes.take().is_some_and(has_freed_little) {
                self.next = now + LONG_REST;
                self.grown_bytes = excess_bytes + excess_bytes / GROWTH_DIVISOR;
            } else {
                self.next = now;
                self.before_bytes = Some(excess_bytes);
                self.grown_bytes = u64::MAX;
                self.pass = Some(Pass::new(now));
            }
        }
        self.show(shared, now);
    }

    /// Returns true if a compaction pass is in progress.
    pub fn is_in_pass(&self) -> bool {
        self.pass.is_some()
    }

    fn show(&self, shared: &Shared, now: Instant) {
        let share_percent = if self.pass.is_some() { self.share_percent } else { 0 };
        // Relaxed: statistics.
        shared.upkeep.compaction.share_percent.store(share_percent, Relaxed);
        let pass_ms = self.pass.as_ref().map_or(0, |pass| (now - pass.since).as_millis() as u64);
        shared.upkeep.compaction.pass_ms.store(pass_ms, Relaxed);
    }

    /// Returns the earliest time of the next slice of the compaction pass; `None` if no pass is in
    /// progress.
    pub fn next_slice(&self) -> Option<Instant> {
        self.pass.is_some().then_some(self.next)
    }

    /// Continues the compaction pass for one slice; `now` reads the clock. Returns true if the pass
    /// has ended: the threads should then return free memory to the system.
    pub fn slice(&mut self, shared: &Shared, now: impl Fn() -> Instant) -> bool {
        let Some(pass) = &mut self.pass else { return false };
        let (since, slice) = (now(), shared.settings.get().compaction.slice);
        let before = pass.moved;
        let is_at_end = loop {
            if !pass.step(shared) {
                break true;
            }
            if now() - since >= slice {
                break false;
            }
        };
        let stats = &shared.upkeep.compaction;
        stats.moved.add(pass.moved.entries - before.entries);
        stats.kept.add(pass.moved.kept - before.kept);
        let took = now() - since;
        stats.nanos.add(took.as_nanos() as u64);
        // A longer time was not work: the thread was interrupted.
        let rest =
            took.min(slice.max(STEP_MAX)) * (100 - self.share_percent) as u32 / self.share_percent as u32;
        self.next = now() + rest;
        if is_at_end {
            self.next += REST;
            self.pass = None;
            self.show(shared, now());
        }
        is_at_end
    }
}

impl Pass {
    fn new(since: Instant) -> Self {
        let (pages, moved) = (PageUse::default(), Moved::default());
        Self { moves: false, at: START, pages, moved, shards_left: SHARD_COUNT, since }
    }

    /// Runs the next step of the compaction pass, in one shard. Returns false if there is no
    /// further step. Skips a shard that a busy script holds.
    fn step(&mut self, shared: &Shared) -> bool {
        if let Some(next) = self.step_in_shard(shared) {
            self.at = next;
            return true;
        }
        self.shards_left -= 1;
        if self.shards_left > 0 {
            self.at = SweepPoint { shard: self.at.shard + 1, ..START };
            return true;
        }
        if self.moves {
            return false;
        }
        (self.moves, self.at, self.shards_left) = (true, START, SHARD_COUNT);
        true
    }

    /// Runs a step of the compaction pass in the present shard. Returns the point at which the next
    /// step in this shard begins; `None` if the shard is finished.
    fn step_in_shard(&mut self, shared: &Shared) -> Option<SweepPoint> {
        self.pages.reserve_step();
        let pass = shared.gate.shared_unless_busy(shared.gate_index(GateSlot::Housekeeper));
        if !pass.is_inside() {
            return None;
        }
        let mut locked = shared.keyspace.lock_shard_unless_busy(self.at.shard)?;
        let shard = locked.shard_mut(self.at.shard).expect("it was locked above");
        if self.moves {
            compaction::move_sparse(shard, self.at, &mut self.pages, &mut self.moved)
        } else {
            compaction::count_pages(shard, self.at, &mut self.pages)
        }
    }
}
