//! `maxmemory`: keeping used memory at its limit.
//!
//! Used memory is a sum over all threads' counters, too much to ask for at every command. So a thread
//! asks once a turn and then may allocate a part of what is left before it asks again:
//!
//! ```text
//!   used ───────────────────────────▶│◀── left ──▶│ limit
//!                                     each of T threads may allocate left / 2T, at most limit / 256T
//! ```
//! All threads together stay below the limit that way, and with a cap on what one may allocate in a turn
//! that is longer than others' they exceed it by 0.4 % at worst. Near the limit the sum is read for each
//! command, which by then evicts keys anyhow.
//!
//! Where memory is enforced: before a command that may allocate, with room for its arguments; and after
//! each turn, which is where a command that allocated much more than its arguments, replies and received
//! bytes show up. The housekeeper asks thread 0 for a turn while memory is over its limit and all are idle.
//!
//! Memory that waits in the background to be freed counts as free while it is little. When used memory is
//! over the limit all the same, by more than [`slack`], a thread short of memory first helps freeing it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use commands::{Effects, EventClass};
use keyspace::{Access, Criteria, Evicted, Evictor};
use structures::alloc;

use crate::notify::Notifier;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::spikes::Event;
use crate::tracking::{OwnPushes, Writer};

/// Keys evicted between two looks at the clock.
const EVICTED_PER_LOOK: u64 = 16;
/// Pieces of values that a thread short of memory frees itself at a time: tens of microseconds.
const HELP_PIECES: usize = 256;

/// Memory limits up to which resident memory is kept close to used memory. What is wasted otherwise does
/// not grow with the data (regions per size class and thread, huge pages), so above it is a small part.
const TIGHT_LIMIT_BYTES_MAX: u64 = 4 << 30;

/// The part of a limit that may be such free memory.
const SHELF_PART: u64 = 40;

/// Whether resident memory is kept close to used memory under this limit.
pub fn is_tight(limit: u64) -> bool {
    (1..=TIGHT_LIMIT_BYTES_MAX).contains(&limit)
}

/// How much free memory in large blocks may be kept for the next of their size, where resident memory is kept
/// close to used memory.
pub fn shelf_bytes_max(limit: u64) -> Option<usize> {
    is_tight(limit).then_some((limit / SHELF_PART) as usize)
}

/// What may be over the limit for a moment: memory that waits to be freed, a large command's arguments.
fn slack(limit: u64) -> u64 {
    limit / 128
}

/// What enforcing the limit led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// There is room.
    Fits,
    /// There will be: this turn's time for evicting is over.
    Working,
    /// There is none, and nothing to evict.
    Short,
}

/// A thread's part of keeping to the limit.
#[derive(Default)]
pub struct MemoryLimit {
    evictor: Evictor,
    /// This thread's counter when memory was last summed.
    from_bytes: i64,
    /// What the thread may allocate from there before it sums again.
    allowance_bytes: i64,
    /// Nothing could be evicted in this turn: not tried again before the next.
    stuck: bool,
}

/// What evicting needs of an I/O thread.
pub struct Evicting<'a> {
    /// The server.
    pub shared: &'a Shared,
    /// Which I/O thread it is.
    pub thread: usize,
    /// Where keys are collected that caches are told of.
    pub own: &'a mut OwnPushes,
    /// The turn's settings.
    pub settings: &'a Settings,
    /// Where evicted keys are noted.
    pub effects: &'a mut Effects,
    /// The turn's access clock.
    pub access: Access,
    /// Random numbers.
    pub rng: &'a mut fastrand::Rng,
}

impl Evicting<'_> {
    /// Does `work` and tells the latency monitor, where it is on, how long that took.
    fn timed<R>(&mut self, event: Event, work: impl FnOnce(&mut Self) -> R) -> R {
        let latency_ms = self.settings.thresholds.latency_ms;
        let since = (latency_ms > 0).then(Instant::now);
        let result = work(self);
        if let Some(since) = since {
            self.shared.spikes.note(latency_ms, event, since.elapsed());
        }
        result
    }
}

impl MemoryLimit {
    /// Whether the thread may allocate `len_bytes` more without asking. O(1).
    #[inline]
    pub fn allows(&self, len_bytes: usize) -> bool {
        alloc::thread_memory_bytes() + len_bytes as i64 - self.from_bytes <= self.allowance_bytes
    }

    /// Sums memory at the start of a turn. O(threads).
    pub fn begin_turn(&mut self, limit: u64, threads: usize) {
        self.stuck = false;
        self.sum(limit, threads);
    }

    /// Sums memory and sets what the thread may allocate next.
    fn sum(&mut self, limit: u64, threads: usize) -> u64 {
        let used = alloc::used_memory_bytes() as u64;
        let threads = threads as u64;
        let left = limit.saturating_sub(used) / (2 * threads);
        self.from_bytes = alloc::thread_memory_bytes();
        // Without room, an allocation of nothing must ask as well.
        self.allowance_bytes = left.min(limit / (256 * threads)) as i64 - 1;
        used
    }

    /// Makes room for `reserve_bytes` more: frees what waits to be freed, evicts keys by the policy. The
    /// caller holds no shard's lock. Takes at most as long as `maxmemory-eviction-tenacity` permits where
    /// memory is far over its limit (it was lowered); a command that needs room waits for it.
    pub fn enforce(&mut self, at: &mut Evicting<'_>, reserve_bytes: u64) -> Verdict {
        let verdict = at.timed(Event::EvictionCycle, |at| self.make_room(at, reserve_bytes));
        at.shared.over_limit.note(verdict != Verdict::Fits, at.shared.started);
        verdict
    }

    fn make_room(&mut self, at: &mut Evicting<'_>, reserve_bytes: u64) -> Verdict {
        let limit = at.settings.maxmemory_bytes;
        let slack = slack(limit);
        let mut started = None;
        let mut evicted = 0;
        loop {
            if !at.effects.discarded.is_empty() {
                at.shared.freeing.push(std::mem::take(&mut at.effects.discarded));
            }
            let mut used = self.sum(limit, at.shared.threads.len());
            let pending = at.shared.freeing.pending_bytes();
            if used > limit + slack
                && pending > 0
                && at.timed(Event::EvictionLazyfree, |at| at.shared.freeing.free_some(HELP_PIECES))
            {
                used = self.sum(limit, at.shared.threads.len());
            }
            let held = used.saturating_sub(pending).saturating_sub(at.shared.push_bytes.load(Relaxed));
            if held + reserve_bytes <= limit {
                return Verdict::Fits;
            }
            let verdict_without_room =
                if held > limit || reserve_bytes > slack { Verdict::Short } else { Verdict::Fits };
            let Some(policy) = at.settings.eviction else { return verdict_without_room };
            if self.stuck {
                return verdict_without_room;
            }
            let criteria = Criteria { policy, access: at.access, samples: at.settings.maxmemory_samples };
            let notifier = Notifier {
                shared: at.shared,
                thread: Some(at.thread),
                notifications: at.settings.notifications,
            };
            let raise = |gone: &Evicted| {
                if !notifier.wanted().is_empty() {
                    notifier.raise(EventClass::EVICTED, "evicted", gone.db, gone.entry.key());
                }
            };
            let evicted_one = at.timed(Event::EvictionDel, |at| {
                self.evictor.evict(&at.shared.keyspace, &criteria, || at.rng.u64(..), raise)
            });
            let Some(gone) = evicted_one else {
                self.stuck = true;
                return verdict_without_room;
            };
            if gone.followed {
                tell_followers(at, &gone);
            }
            at.effects.discard(gone.entry);
            at.shared.threads[at.thread].stats.evicted_keys.add(1);
            evicted += 1;
            let near = held <= limit + slack && held + reserve_bytes > limit + slack;
            if evicted % EVICTED_PER_LOOK == 0 && !near {
                let since: &mut Instant = started.get_or_insert_with(Instant::now);
                if at.settings.eviction_time.is_some_and(|time| since.elapsed() > time) {
                    return Verdict::Working;
                }
            }
        }
    }
}

/// Tells clients with a cache that a key is gone; notes it for other followers. No shard's lock is held.
#[cold]
fn tell_followers(at: &mut Evicting<'_>, gone: &Evicted) {
    let key = at.shared.keyspace.hasher().key(gone.entry.key());
    if at.shared.tracking.is_used() {
        let mut writer = Writer { client: 0, own: &mut *at.own };
        at.shared.tracking.changed(at.shared, None, key, &mut writer);
    }
    at.effects.touch(gone.db, key);
}

/// How long one round of eviction may take; none for as long as it needs.
pub fn time_limit(tenacity: u32) -> Option<Duration> {
    match tenacity {
        0..=10 => Some(Duration::from_micros(50) * tenacity),
        11..=99 => Some(Duration::from_secs_f64(500e-6 * 1.15_f64.powi(tenacity as i32 - 10))),
        _ => None,
    }
}

/// For how long memory was over its limit with nothing, or no time, to free it: INFO's
/// `total_eviction_exceeded_time` and `current_eviction_exceeded_time`.
#[derive(Debug, Default)]
pub struct OverLimit {
    /// Microseconds after the server's start, plus one; 0 while memory is within its limit.
    since_usec: AtomicU64,
    total_usec: AtomicU64,
}

impl OverLimit {
    /// Notes whether memory is over its limit now. Any thread; of two at once one is right.
    pub fn note(&self, over: bool, started: Instant) {
        // Relaxed, here and below: figures for people.
        if over == (self.since_usec.load(Relaxed) > 0) {
            return;
        }
        let now_usec = started.elapsed().as_micros() as u64 + 1;
        let since_usec = self.since_usec.swap(if over { now_usec } else { 0 }, Relaxed);
        if !over && since_usec > 0 {
            self.total_usec.fetch_add(now_usec - since_usec, Relaxed);
        }
    }

    /// The time of all times that are over, and of the present one.
    pub fn times(&self, started: Instant) -> (Duration, Duration) {
        let since_usec = self.since_usec.load(Relaxed);
        let now_usec = started.elapsed().as_micros() as u64 + 1;
        let current_usec = if since_usec == 0 { 0 } else { now_usec.saturating_sub(since_usec) };
        (Duration::from_micros(self.total_usec.load(Relaxed)), Duration::from_micros(current_usec))
    }

    /// Starts over (CONFIG RESETSTAT).
    pub fn reset(&self) {
        self.since_usec.store(0, Relaxed);
        self.total_usec.store(0, Relaxed);
    }
}

/// Whether the housekeeper should ask for a turn that evicts.
pub fn is_exceeded(shared: &Shared) -> bool {
    let settings = shared.settings.get();
    let limit = settings.maxmemory_bytes;
    limit > 0
        && settings.eviction.is_some()
        && alloc::used_memory_bytes() as u64
            > limit + shared.freeing.pending_bytes() + shared.push_bytes.load(Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_over_the_limit_is_summed() {
        let (over, started) = (OverLimit::default(), Instant::now());
        over.note(false, started);
        assert_eq!(over.times(started), (Duration::ZERO, Duration::ZERO));
        over.note(true, started);
        while over.times(started).1.is_zero() {
            std::hint::spin_loop();
        }
        over.note(true, started);
        over.note(false, started);
        let (total, current) = over.times(started);
        assert!(!total.is_zero() && current.is_zero());
    }

    #[test]
    fn tenacity_is_a_time() {
        assert_eq!(time_limit(0), Some(Duration::ZERO));
        assert_eq!(time_limit(10), Some(Duration::from_micros(500)));
        assert!(time_limit(99).is_some_and(|time| time > Duration::from_secs(100)));
        assert_eq!(time_limit(100), None);
    }
}
