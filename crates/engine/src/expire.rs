//! Active expiry: removes expired keys and hash fields that no client accesses.
//!
//! ```text
//!   walk   visits every shard; the next one begins with the next round of the housekeeper
//!   slice  at most a millisecond of a walk, then a rest that keeps the share of a core
//!   step   tens of microseconds inside the gate and under one shard's lock: serves the clients
//!          blocked on the removed keys; frees what it removed outside both
//! ```
//! The gate is the lock that all threads share while they use the keyspace. Segments of the tables
//! store their earliest deadline. If nothing has expired, a walk therefore costs a few loads for
//! each segment and fits into one slice.
//!
//! The share of a core depends on the results of the last slice (`Share::of`). While few of the
//! keys with an expiry are overdue, a small share is enough: more frequent slices would find less,
//! and the expired keys take little memory. If more are overdue, the share is larger and includes
//! the time that the I/O threads leave idle. `active-expire-effort` changes all these numbers, as
//! in Redis. A slice is short and followed by a rest, so that the scheduler has no reason to
//! interrupt it while it holds a lock.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use commands::EventClass;
use commands::ctx::Audience;
use keyspace::key::SHARD_COUNT;
use keyspace::view::{AccessContext, ExpiredAccess, View};
use keyspace::{Locked, Shard, SweepPoint, SweepResult};
use structures::table::SweepBudget;

use crate::call::Host;
use crate::clock::Clock;
use crate::commit::{Commit, Held};
use crate::local_deadlines::Named;
use crate::run::Executor;
use crate::shared::{GateSlot, Shared};
use crate::stats::latency_events::Event;
use crate::threads::Outbox;

/// The maximum time of a slice of active expiry: the walk over the keyspace runs for this time,
/// then rests.
const SLICE_MAX: Duration = Duration::from_millis(1);
/// The maximum duration of a slice of active expiry with the rest after it. The share of a core is
/// computed again after each slice, so that active expiry soon reacts when many keys have expired.
const PERIOD_MAX: Duration = Duration::from_millis(100);
/// The budget of one step of active expiry under a shard's lock: it takes a few tens of
/// microseconds.
const STEP: SweepBudget = SweepBudget { segments_max: 64, elements_max: 32 };
/// The pause between two steps of active expiry that begin at the same key, because a big hash
/// loses many fields. During the pause, threads that wait for the shard's lock can take it.
const SAME_PLACE_PAUSE: Duration = Duration::from_micros(50);
/// The maximum number of keys that one call removes on a writable replica, of those with a deadline
/// set by its clients ([`crate::local_deadlines`]).
const LOCAL_KEYS_MAX: usize = 256;
/// The time in milliseconds after which a key with a deadline set by clients of the replica is
/// tried again, if a busy script had locked the key.
const LOCKED_KEY_RETRY_MS: i64 = 100;
/// The weight of one round of active expiry in the running mean of the fraction of overdue keys.
const STALE_WEIGHT: f64 = 0.05;

/// The housekeeper's walk over the keyspace that removes expired keys and fields (active expiry).
pub struct ActiveExpiry {
    at: SweepPoint,
    /// The number of shards that the present walk of active expiry has not finished, including the
    /// one at `at`; 0 between walks.
    shards_left: usize,
    /// The earliest time of the next slice (a short run) of active expiry.
    next: Instant,
    /// The share of a core that active expiry may use, computed from the findings of the last
    /// slice.
    share: Share,
    /// The idle time of all I/O threads together in the last round, in percent of one core, at most
    /// 100.
    idle_percent: u32,
    /// The number of keys that active expiry had removed before this round of the housekeeper.
    expired_before: u64,
    /// The number of keys with an expiry in the tables that active expiry has visited in this
    /// round.
    expiring: u64,
}

/// The findings of one slice (a short run) of active expiry.
#[derive(Clone, Copy, Default)]
struct Found {
    /// The number of elements that active expiry has checked: keys with an expiry, and hashes that
    /// have fields with one.
    looked_at: u64,
    /// The number of expired keys and fields that active expiry has removed.
    removed: u64,
}

impl Found {
    /// Returns the number of removed keys and fields in percent of the elements that active expiry
    /// has checked, at most 100.
    fn stale_percent(self) -> u32 {
        (self.removed * 100 / self.looked_at.max(1)).min(100) as u32
    }
}

/// The share of a core that active expiry may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    permille: u32,
    /// True if the percentage of overdue elements is above the percentage that active expiry
    /// tolerates.
    is_behind: bool,
}

impl Share {
    /// Computes active expiry's share of a core at an `active-expire-effort` from 1 to 10.
    /// `stale_percent` is the percentage of checked elements that were overdue. With effort 1, the
    /// share is at least 25 % if 10 % or more were overdue. With effort 10, it is at least 43 % if
    /// 1 % or more were overdue.
    fn of(effort: u32, stale_percent: u32, idle_percent: u32) -> Self {
        let is_behind = stale_percent >= 11 - effort;
        let permille = if is_behind { 10 * idle_percent.max(23 + 2 * effort) } else { 4 * effort };
        Self { permille, is_behind }
    }

    /// Returns how long a slice of active expiry may run.
    fn slice(self) -> Duration {
        SLICE_MAX.min(PERIOD_MAX * self.permille / 1000)
    }

    /// Returns the pause of active expiry after a slice that took the time `worked`.
    fn rest(self, worked: Duration) -> Duration {
        worked * (1000 - self.permille) / self.permille
    }
}

impl ActiveExpiry {
    /// Creates the state of active expiry before its first walk over the keyspace.
    pub fn new(now: Instant) -> Self {
        Self {
            at: SweepPoint { shard: 0, db: 0, cursor: 0 },
            shards_left: 0,
            next: now,
            share: Share::of(1, 0, 0),
            idle_percent: 0,
            expired_before: 0,
            expiring: 0,
        }
    }

    /// Begins a walk over the keyspace unless one is in progress, and records the results of the
    /// last round for INFO. `idle_percent` is the idle time of the I/O threads in percent of one
    /// core.
    pub fn begin_round(&mut self, shared: &Shared, idle_percent: u32) {
        let stats = &shared.upkeep.expiry;
        self.idle_percent = idle_percent;
        stats.cut_short.add(u64::from(self.shards_left > 0 && self.share.is_behind));
        let expired = stats.keys.get();
        let stale = expired.saturating_sub(self.expired_before) as f64 / self.expiring.max(1) as f64;
        let mean = stats.stale_millionths.load(Relaxed) as f64 * (1.0 - STALE_WEIGHT);
        stats.stale_millionths.store((mean + stale.min(1.0) * 1e6 * STALE_WEIGHT) as u64, Relaxed);
        (self.expired_before, self.expiring) = (expired, 0);
        if self.shards_left == 0 {
            self.shards_left = SHARD_COUNT;
        }
    }

    /// Returns the earliest time of the next slice of active expiry; `None` if the walk over the
    /// keyspace is complete.
    pub fn next_slice(&self) -> Option<Instant> {
        (self.shards_left > 0).then_some(self.next)
    }

    /// Continues active expiry's walk over the keyspace for a slice. Calls `after_step` after each
    /// step, outside the gate (the keyspace's shared lock). `after_step` must wake the threads in
    /// the outbox and wait for the given time.
    pub fn slice<C: Clock, H: Host>(
        &mut self,
        executor: &mut Executor<'_, C, H>,
        after_step: impl FnMut(&Outbox, Duration),
    ) {
        let since = executor.clock.now();
        executor.begin_turn(since);
        let mut found = Found::default();
        let keeps_up = self.walk_on(executor, &mut found, after_step);
        let now = executor.clock.now();
        let took = now - since;
        executor.shared().upkeep.expiry.nanos.add(took.as_nanos() as u64);
        // A longer time was not work: the thread was interrupted.
        let worked = took.min(self.share.slice());
        let effort = executor.settings.active_expire_effort;
        self.share = Share::of(effort, found.stale_percent(), self.idle_percent);
        let rest = self.share.rest(worked);
        self.next = now + if keeps_up { rest } else { rest.max(SLICE_MAX) };
    }

    /// Removes expired keys and fields in steps, until active expiry's slice or walk ends. Returns
    /// false if it had to stop because inboxes of subscribers or the change log are full.
    fn walk_on<C: Clock, H: Host>(
        &mut self,
        executor: &mut Executor<'_, C, H>,
        found: &mut Found,
        mut after_step: impl FnMut(&Outbox, Duration),
    ) -> bool {
        let shared = executor.shared();
        let deadline = executor.clock.now() + self.share.slice();
        let wanted = executor.commit.effects.wanted_events;
        let mut swept = SweepResult::up_to(executor.now.unix_ms - 1);
        let mut keeps_up = !executor.commit.awaits_room();
        while self.shards_left > 0
            && keeps_up
            && !shared.pause.is_on(executor.now.unix_ms)
            && executor.clock.now() < deadline
        {
            let next = self.step(executor, &mut swept);
            found.removed += (swept.expired.len() + swept.emptied.len()) as u64 + swept.fields;
            shared.upkeep.expiry.keys.add(swept.expired.len() as u64);
            shared.upkeep.expiry.fields.add(std::mem::take(&mut swept.fields));
            swept.clear();
            let pause = if next == Some(self.at) { SAME_PLACE_PAUSE } else { Duration::ZERO };
            executor.commit.merge_log();
            after_step(&executor.commit.outbox, pause);
            self.at = next.unwrap_or_else(|| {
                self.shards_left -= 1;
                SweepPoint { shard: (self.at.shard + 1) % SHARD_COUNT, db: 0, cursor: 0 }
            });
            keeps_up = (wanted.is_empty() || !shared.pubsub.are_subscribers_full())
                && !executor.commit.awaits_room();
        }
        self.expiring += swept.expiring;
        found.looked_at = swept.looked_at;
        keeps_up
    }

    /// Runs one step of active expiry at the walk's current point. Returns the point at which the
    /// next step continues in the same shard; `None` if the shard is done or a busy script holds
    /// it. A step runs inside the gate (the keyspace's shared lock) like a thread's turn, so no key
    /// is removed while another thread owns the keyspace exclusively.
    fn step<C: Clock, H: Host>(
        &self,
        executor: &mut Executor<'_, C, H>,
        swept: &mut SweepResult,
    ) -> Option<SweepPoint> {
        let shared = executor.shared();
        // Shards that a busy script holds are left to a later round, and all of them while clients
        // are paused or the server is a replica. This is checked inside the gate: when CLIENT PAUSE
        // or REPLICAOF replies, no step is in progress that has not seen it.
        let pass = shared.gate.shared_unless_busy(shared.gate_index(GateSlot::Housekeeper));
        let is_replica = shared.server_state.role.is_replica.load(Relaxed);
        if !pass.is_inside() || is_replica || shared.pause.is_on(executor.now.unix_ms) {
            return None;
        }
        let since = (executor.settings.thresholds.latency_ms > 0).then(|| executor.clock.now());
        let mut locked = shared.keyspace.lock_shard_unless_busy(self.at.shard)?;
        let is_recorded = executor.commit.begin_record();
        swept.names_fields = is_recorded;
        let shard = locked.shard_mut(self.at.shard).expect("it was locked above");
        // Clients that watch or cache a hash are notified of its fields, even without events.
        swept.names_shrunk =
            shard.has_registrations() || executor.commit.effects.wanted_events.contains(EventClass::HASH);
        let next = shared.keyspace.sweep_due(shard, self.at, STEP, swept);
        if !swept.is_empty() {
            note_swept(&mut executor.commit, swept, shard);
        }
        end_step(executor, locked, |commit, locked| {
            if is_recorded {
                record_swept(commit, swept, locked);
            }
        });
        if let Some(since) = since {
            executor.note_latency(Event::ExpireCycle, executor.clock.now() - since);
        }
        next
    }
}

/// Ends a step of active expiry that may have removed something. Collects its messages, calls
/// `record`, sends the messages, and serves the clients that were blocked on the removed keys.
fn end_step<'s, C: Clock, H: Host>(
    executor: &mut Executor<'s, C, H>,
    mut locked: Locked<'s>,
    record: impl FnOnce(&mut Commit<'s>, &Locked<'s>),
) {
    if executor.commit.has_changes() {
        executor.commit.collect(&mut Held::Locked(&mut locked), 0);
    }
    record(&mut executor.commit, &locked);
    if executor.commit.is_pending() {
        executor.commit.release(0);
        executor.serve(locked);
    } else {
        drop(locked);
    }
    executor.commit.broadcast();
    executor.end_turn();
}

/// Removes expired keys whose deadlines clients of this replica have set, at most
/// [`LOCAL_KEYS_MAX`]. Calls `after_key` after each key, outside the gate (the keyspace's shared
/// lock). `after_key` must wake the threads in the outbox. Returns true if more keys may be
/// removable now.
pub fn expire_local_keys<C: Clock, H: Host>(
    executor: &mut Executor<'_, C, H>,
    mut after_key: impl FnMut(&Outbox),
) -> bool {
    let local_deadlines = &executor.shared().server_state.role.local_deadlines;
    if local_deadlines.is_empty() {
        return false;
    }
    executor.begin_turn(executor.clock.now());
    for _ in 0..LOCAL_KEYS_MAX {
        if executor.commit.awaits_room() {
            return false;
        }
        let now_ms = executor.now.unix_ms;
        let Some(named) = local_deadlines.take_due(now_ms - 1) else { return false };
        match expire_local_key(executor, &named) {
            Looked::Gone => {}
            Looked::Lives(at_ms) => local_deadlines.note(named, at_ms),
            Looked::Locked => local_deadlines.note(named, now_ms + LOCKED_KEY_RETRY_MS),
            Looked::Nowhere => {
                local_deadlines.note(named, now_ms);
                return false;
            }
        }
        executor.commit.merge_log();
        after_key(&executor.commit.outbox);
    }
    true
}

/// The result of checking a key whose deadline clients of the replica have set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Looked {
    /// The key with the recorded deadline does not exist any more, or has no deadline.
    Gone,
    /// The key has another deadline than the recorded one, in Unix milliseconds.
    Lives(i64),
    /// A busy script has locked the key, so it cannot be checked now.
    Locked,
    /// The key cannot be checked, and no key can be removed now: a busy script owns the keyspace,
    /// or data is being loaded.
    Nowhere,
}

/// Removes a key with a deadline that a client of this replica has set, if the deadline has passed.
fn expire_local_key<C: Clock, H: Host>(executor: &mut Executor<'_, C, H>, named: &Named) -> Looked {
    let (shared, now_ms) = (executor.shared(), executor.now.unix_ms);
    let pass = shared.gate.shared_unless_busy(shared.gate_index(GateSlot::Housekeeper));
    // A load may fail and leave the old data.
    if !pass.is_inside() || shared.server_state.is_loading.load(Relaxed) {
        return Looked::Nowhere;
    }
    // A primary removes its keys by itself.
    if !shared.server_state.role.is_replica.load(Relaxed) {
        return Looked::Gone;
    }
    let key = shared.keyspace.hasher().key(&named.1);
    let Some(mut locked) = shared.keyspace.lock_shard_unless_busy(key.shard()) else {
        return Looked::Locked;
    };
    executor.commit.begin_record();
    let access_context = AccessContext {
        now_ms,
        touch: false,
        access: executor.now.access,
        expired_access: ExpiredAccess::Remove,
    };
    let left_ms = {
        let results = &mut executor.commit.access_results;
        let mut view = View::new(&shared.keyspace, &mut locked, named.0, access_context, results);
        view.expiry_ms(key).flatten()
    };
    let is_removed = executor.commit.has_changes();
    end_step(executor, locked, |commit, locked| {
        if is_removed && commit.effects.record.is_wanted {
            commit.record_commands(None);
            commit.log_unit(locked);
        }
    });
    left_ms.map_or(Looked::Gone, Looked::Lives)
}

/// Records the removals of a step of active expiry in the change log. Each key, and the fields of
/// each hash, is a unit of its own.
#[cold]
fn record_swept(commit: &mut Commit<'_>, swept: &SweepResult, locked: &Locked<'_>) {
    let db = swept.db;
    let keys = swept.expired.iter().map(|entry| ("DEL", entry.key(), &[][..]));
    let hashes = swept.removed_fields.iter().map(|hash| ("HDEL", &*hash.key, &hash.fields[..]));
    for (command, key, fields) in hashes.chain(keys) {
        commit.begin_record();
        commit.effects.record.replace(db, |record| {
            record.command(command).word(key).words(fields.iter().map(|field| &**field));
        });
        commit.record_commands(None);
        commit.log_unit(locked);
    }
}

/// Passes the keyspace events and changed keys of the removals of active expiry on to other
/// clients, as for a command.
#[cold]
fn note_swept(commit: &mut Commit<'_>, swept: &SweepResult, shard: &Shard) {
    let (effects, hasher) = (&mut commit.effects, commit.shared.keyspace.hasher());
    let db = swept.db;
    for key in &swept.shrunk {
        effects.raise(EventClass::HASH, "hexpired", db, key);
        if shard.has_registrations() {
            effects.touch(db, hasher.key(key));
        }
    }
    let emptied = swept.emptied.iter().map(|entry| (entry, EventClass::GENERIC, "del", Audience::All));
    // EXEC itself finds that a watched key has expired.
    let expired =
        swept.expired.iter().map(|entry| (entry, EventClass::EXPIRED, "expired", Audience::ExceptWatchers));
    for (entry, class, event, audience) in emptied.chain(expired) {
        effects.raise(class, event, db, entry.key());
        if shard.has_registrations() {
            effects.touch(db, hasher.key(entry.key()));
            effects.changed_keys.last_mut().expect("it was put there").audience = audience;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_grows_with_what_is_overdue_and_with_idle_threads() {
        // Few keys are overdue: it makes no difference how idle the threads are.
        assert_eq!([1, 5, 10].map(|effort| Share::of(effort, 0, 100).permille), [4, 20, 40]);
        assert_eq!([9, 10].map(|stale| Share::of(1, stale, 0).permille), [4, 250]);
        assert_eq!([0, 1].map(|stale| Share::of(10, stale, 0).permille), [40, 430]);
        assert_eq!([10, 25, 60, 100].map(|idle| Share::of(1, 50, idle).permille), [250, 250, 600, 1000]);
        let rest = |stale, idle| Share::of(1, stale, idle).rest(Duration::from_millis(1));
        assert_eq!([rest(50, 0), rest(50, 100)], [3, 0].map(Duration::from_millis));
        let few = Share::of(1, 0, 0);
        assert_eq!(
            [few.slice(), few.slice() + few.rest(few.slice())],
            [400, 100_000].map(Duration::from_micros)
        );
        assert_eq!([Share::of(10, 0, 0), Share::of(1, 50, 0)].map(Share::slice), [SLICE_MAX; 2]);
        assert_eq!(Found { looked_at: 4, removed: 1 }.stale_percent(), 25);
        // A hash counts once, however many of its fields are removed.
        assert_eq!(Found { looked_at: 1, removed: 30 }.stale_percent(), 100);
        assert_eq!(Found::default().stale_percent(), 0);
    }
}
