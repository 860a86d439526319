//! `maxmemory`: keeps used memory at its limit.
//!
//! Used memory is the sum of all threads' counters, too expensive to compute for every command. A
//! thread computes it once a turn. Then it may allocate a part of the remaining memory before it
//! computes the sum again:
//!
//! ```text
//!   used ───────────────────────────▶│◀── left ──▶│ limit
//!                                   each of T threads may allocate left / 2T, at most limit / 256T
//! ```
//! So all threads together stay below the limit. If one thread's turn takes longer than the
//! others', the cap on its allocations bounds the excess to 0.4 %. Near the limit the sum is
//! computed for each command; such commands evict keys anyway.
//!
//! The limit is enforced at two points. The first is before a command that may allocate, with room
//! for its arguments. The second is after each turn: it covers commands that allocated much more
//! than their arguments, replies, and received bytes. While memory is over its limit and all
//! threads are idle, the housekeeper asks thread 0 for a turn.
//!
//! A large request ([`LARGE_LEN_BYTES_MIN`]) is already counted as memory that its client makes the
//! server hold. Only its largest argument is counted a second time, because the new value exists in
//! addition to it. As in Redis, the other arguments may exceed the limit while the command runs. A
//! request that would not fit even with no key left is rejected before anything is evicted.
//!
//! The replication stream counts up to the size of the backlog. The part kept only for slow
//! replicas does not count, as in Redis: each evicted key would enlarge it.
//!
//! Memory that waits to be freed in the background counts as free while there is little of it. If
//! used memory is nevertheless over the limit by more than [`slack`], a thread that needs memory
//! first helps to free the waiting memory. A removed vector set that a search still reads counts as
//! free, too, until the search has ended and it is freed.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use commands::{Args, EventClass};
use keyspace::{Criteria, Evictor, Policy};
use structures::alloc;

use crate::call::Host;
use crate::clock::Clock;
use crate::commit::Held;
use crate::expiry_rule::ExpiryRule;
use crate::memory::slack;
use crate::run::Executor;
use crate::shared::Shared;
use crate::stats::latency_events::Event;

/// The number of keys evicted between two readings of the clock, which limit the time of eviction
/// in a turn (pass of the event loop).
const EVICTED_PER_LOOK: u64 = 16;
/// The number of pieces of lazy freed values, such as members, that a thread frees at a time when
/// memory is over its limit. This takes tens of microseconds.
const HELP_STEPS: usize = 256;

/// The minimum length, in bytes, of a request that is certainly in its client's input buffer, which
/// counts as used memory.
const LARGE_LEN_BYTES_MIN: usize = 1 << 20;

/// The result of enforcing the memory limit `maxmemory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitState {
    /// Used memory plus the requested reserve is within the memory limit, except for a permitted
    /// small excess.
    Fits,
    /// Memory is over the limit, and later turns (passes of the event loop) continue to evict. The
    /// time for eviction in this turn has passed, or the change log is full.
    InProgress,
    /// Memory is over its limit, or a large reserve does not fit, and no key can be evicted.
    Short,
}

/// The state by which a thread enforces the memory limit `maxmemory`.
#[derive(Default)]
pub struct MemoryLimit {
    evictor: Evictor,
    /// The value of this thread's counter of allocated bytes at the last computation of used
    /// memory.
    from_bytes: i64,
    /// The number of bytes that the thread may allocate after used memory was last computed, until
    /// it must be computed again.
    allowance_bytes: i64,
    /// True if no key could be evicted in this turn (pass of the event loop); eviction is not tried
    /// again before the next turn.
    nothing_evictable: bool,
}

impl MemoryLimit {
    /// Returns true if the thread may allocate `len_bytes` without summing used memory again. O(1).
    #[inline]
    pub fn allows(&self, len_bytes: usize) -> bool {
        alloc::thread_memory_bytes() + len_bytes as i64 - self.from_bytes <= self.allowance_bytes
    }

    /// Computes used memory from all threads' counters at the start of a turn (a pass of the event
    /// loop), and how much this thread may allocate. O(threads).
    pub fn begin_turn(&mut self, limit: u64, threads: usize) {
        self.nothing_evictable = false;
        self.sum(limit, threads);
    }

    /// Sums used memory, and sets the number of bytes that the thread may allocate before the next
    /// sum. Returns used memory in bytes.
    fn sum(&mut self, limit: u64, threads: usize) -> u64 {
        let used = alloc::used_memory_bytes() as u64;
        let threads = threads as u64;
        self.from_bytes = alloc::thread_memory_bytes();
        self.allowance_bytes = match limit.checked_sub(used) {
            // Minus 1: near the limit, even an allocation of 0 bytes must sum memory again.
            Some(left) => (left / (2 * threads)).min(limit / (256 * threads)) as i64 - 1,
            // Over the limit, memory that the thread has freed since the sum does not count as
            // available.
            None => i64::MIN,
        };
        used
    }
}

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Returns false if a command with these arguments must be refused for lack of memory. Evicts
    /// keys if necessary. The caller holds no shard's lock.
    pub fn has_memory_for(&mut self, memory: &mut MemoryLimit, args: &Args<'_>) -> bool {
        let len_bytes: usize = args.from(0).map(<[u8]>::len).sum();
        memory.allows(len_bytes) || self.has_room_for(memory, args, len_bytes)
    }

    /// Returns false if a command must be refused for lack of memory, for arguments of `len_bytes`
    /// in total. Sums used memory again, and evicts keys if necessary.
    #[cold]
    fn has_room_for(&mut self, memory: &mut MemoryLimit, args: &Args<'_>, len_bytes: usize) -> bool {
        if len_bytes < LARGE_LEN_BYTES_MIN {
            return self.make_room(memory, len_bytes as u64) != LimitState::Short;
        }
        let reserve_bytes = args.from(0).map(<[u8]>::len).max().unwrap_or_default() as u64;
        let shared = self.shared();
        let clients: u64 = shared.clients.all().iter().map(|client| client.memory_bytes()).sum();
        let not_evictable = shared.startup_bytes.load(Relaxed) + clients.max(len_bytes as u64);
        let can_fit = not_evictable + reserve_bytes <= self.settings.maxmemory_bytes;
        let is_loading = shared.server_state.is_loading.load(Relaxed);
        let is_unlimited = is_loading || shared.server_state.role.ignores_memory_limit.load(Relaxed);
        (can_fit || is_unlimited) && self.make_room(memory, reserve_bytes) != LimitState::Short
    }

    /// Makes room in memory for `reserve_bytes` more: evicts keys by the policy, and helps to free
    /// lazy freed values if memory is far over its limit. The caller holds no shard's lock.
    ///
    /// Takes at most as long as `maxmemory-eviction-tenacity` permits, with one exception. If
    /// memory is within its limit but a large `reserve_bytes` does not fit, it continues until that
    /// fits.
    #[cold]
    pub fn make_room(&mut self, memory: &mut MemoryLimit, reserve_bytes: u64) -> LimitState {
        if self.shared().server_state.is_loading.load(Relaxed) {
            // As in Redis: later commands of the file may use a key that would be evicted.
            return LimitState::Fits;
        }
        if self.shared().server_state.role.ignores_memory_limit.load(Relaxed) {
            // Only the primary evicts keys.
            return LimitState::Fits;
        }
        if self.now.expiry_rule == ExpiryRule::Paused {
            // As in Redis. The change log does not grow while clients are paused.
            return LimitState::Fits;
        }
        self.commit.effects.absorb(&mut self.commit.access_results);
        let verdict = self.timed(Event::EvictionCycle, |it| it.evict(memory, reserve_bytes));
        let uptime = self.shared().uptime(self.clock.now());
        match verdict {
            LimitState::Fits => self.shared().over_limit.note_within(uptime),
            LimitState::InProgress | LimitState::Short => self.shared().over_limit.note_over(uptime),
        }
        self.end_unlocked(0);
        verdict
    }

    fn evict(&mut self, memory: &mut MemoryLimit, reserve_bytes: u64) -> LimitState {
        let shared = self.shared();
        let (limit, threads) = (self.settings.maxmemory_bytes, shared.threads.len());
        let slack = slack(limit);
        let mut started: Option<Instant> = None;
        let mut evicted = 0;
        loop {
            if !self.commit.effects.lazy_freed.is_empty() {
                shared.freeing.push(std::mem::take(&mut self.commit.effects.lazy_freed));
            }
            let uncounted = uncounted_bytes(shared);
            let mut used = memory.sum(limit, threads);
            let pending = shared.freeing.pending_bytes();
            if used > limit + slack
                && pending > 0
                && self.timed(Event::EvictionLazyfree, |_| shared.freeing.free_some(HELP_STEPS))
            {
                used = memory.sum(limit, threads);
            }
            // Other threads may free or allocate such memory between the readings. With the larger
            // figure no key is evicted for it.
            let held = used.saturating_sub(uncounted.max(uncounted_bytes(shared)));
            if held + reserve_bytes <= limit {
                return LimitState::Fits;
            }
            let without_room =
                if held > limit || reserve_bytes > slack { LimitState::Short } else { LimitState::Fits };
            let Some(policy) = self.settings.eviction else { return without_room };
            if memory.nothing_evictable || !self.timed(Event::EvictionDel, |it| it.evict_one(memory, policy))
            {
                memory.nothing_evictable = true;
                return without_room;
            }
            evicted += 1;
            let near = held <= limit + slack && held + reserve_bytes > limit + slack;
            if evicted % EVICTED_PER_LOOK == 0 && !near {
                let now = self.clock.now();
                let since = *started.get_or_insert(now);
                let is_late = self.settings.eviction_time.is_some_and(|time| now - since > time);
                self.commit.publish_log();
                if is_late || self.commit.awaits_room() {
                    return LimitState::InProgress;
                }
            }
        }
    }

    /// Evicts a key, under the lock of its shard, and records the eviction as one unit of the
    /// change log. Returns false if no key can be evicted.
    fn evict_one(&mut self, memory: &mut MemoryLimit, policy: Policy) -> bool {
        let (commit, rng) = (&mut self.commit, &mut self.rng);
        let samples = self.settings.maxmemory_samples;
        let criteria = Criteria { policy, access: self.now.access, samples };
        let keyspace = &commit.shared.keyspace;
        let gone = memory.evictor.evict(
            keyspace,
            &criteria,
            || rng.u64(..),
            |shard, gone| {
                let key = keyspace.hasher().key(gone.entry.key());
                let is_recorded = commit.begin_record();
                commit.effects.record.key_expired(gone.db, key.bytes);
                commit.effects.raise(EventClass::EVICTED, "evicted", gone.db, key.bytes);
                if gone.followed {
                    commit.effects.touch(gone.db, key);
                }
                if commit.has_changes() {
                    commit.collect(&mut Held::Shard(key.shard(), shard), 0);
                }
                if is_recorded {
                    commit.record_commands(None);
                    commit.log_change_of(|| std::iter::once(key.shard()));
                }
                if commit.is_pending() {
                    commit.release(0);
                }
            },
        );
        let Some(gone) = gone else { return false };
        self.commit.effects.discard(gone.entry);
        self.stats().evicted_keys.add(1);
        true
    }

    /// Runs `work`, and records the time it took as `event` if the latency monitor is on.
    fn timed<R>(&mut self, event: Event, work: impl FnOnce(&mut Self) -> R) -> R {
        let since = (self.settings.thresholds.latency_ms > 0).then(|| self.clock.now());
        let result = work(self);
        if let Some(since) = since {
            self.note_latency(event, self.clock.now() - since);
        }
        result
    }
}

/// Returns true if used memory is over its limit and keys can be evicted, so that the housekeeper
/// thread must ask an I/O thread to evict keys.
pub fn is_exceeded(shared: &Shared) -> bool {
    let settings = shared.settings.get();
    let limit = settings.maxmemory_bytes;
    let server_state = &shared.server_state;
    let is_exempt =
        server_state.is_loading.load(Relaxed) || server_state.role.ignores_memory_limit.load(Relaxed);
    if limit == 0 || settings.eviction.is_none() || is_exempt {
        return false;
    }
    let uncounted = uncounted_bytes(shared);
    let used = alloc::used_memory_bytes() as u64;
    used > limit + uncounted.max(uncounted_bytes(shared))
}

/// Returns the bytes of used memory that do not count towards the limit. They are memory that waits
/// to be freed, or for the end of a search that reads it; and memory for messages to clients, for
/// the change log, and for a save or a full sync. The replication stream does not count beyond the
/// backlog. In Redis, another process takes the memory of a save.
pub fn uncounted_bytes(shared: &Shared) -> u64 {
    shared.freeing.pending_bytes()
        + keyspace::vector::pinned_len_bytes()
        + shared.pubsub.push_bytes().load(Relaxed)
        + shared.keyspace.snapshot().held_len_bytes() as u64
        + shared.server_state.replica_buffer_bytes.load(Relaxed)
        + shared.server_state.snapshot_buffer_bytes.load(Relaxed)
        + shared.log.memory_bytes() as u64
}
