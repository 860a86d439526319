//! A background thread for what must be done from time to time and must never delay a request: active
//! expiry, sampling of rates, ending idle clients.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use commands::EventClass;
use commands::ctx::{Told, Touched};
use keyspace::key::SHARD_COUNT;
use keyspace::{KeyEntry, Shard, SweepPoint, Swept};
use structures::table::SweepBudget;

use crate::notify::Notifier;
use crate::shared::{Message, Shared};
use crate::spikes::Event;
use crate::tracking::{HOUSEKEEPER, OwnPushes, Writer};
use crate::worker::unix_ms;

/// Between two rounds.
const ROUND: Duration = Duration::from_millis(100);
/// What need not be done each round is done each second.
const ROUNDS_PER_SECOND: u64 = 10;
/// Rounds over which rates are averaged.
const RATE_ROUNDS: usize = 16;
/// The share of one core that expiry may take, in percent, per step of `active-expire-effort`.
const EXPIRE_PERCENT_PER_EFFORT: u32 = 5;
/// What one round counts in the mean of overdue keys.
const STALE_WEIGHT: f64 = 0.05;
/// What one locked step of expiry may do: a few tens of microseconds.
const SWEEP_STEP: SweepBudget = SweepBudget { segments_max: 64, elements_max: 32 };

/// Between two steps at the same place, where a big hash loses many fields: whoever waits for its shard's
/// lock must get it before the next step takes it again.
const SAME_PLACE_PAUSE: Duration = Duration::from_micros(50);

/// Pieces of big values that are freed between two looks at the clock: some hundred microseconds of work.
const FREED_PIECES_PER_STEP: usize = 4096;

/// Used memory from which on huge pages pay. Below, their 2 MiB steps cost more memory than they save
/// time; above, a million random keys are read with about a tenth less CPU (docs/performance.md).
const HUGE_PAGES_BYTES_MIN: usize = 64 << 20;

/// Runs until the server stops; frees what threads discard in between.
pub fn run(shared: &Arc<Shared>) {
    let mut keeper = Housekeeper::new();
    let mut next = Instant::now() + ROUND;
    // Acquire: pairs with the swap in `Shared::stop`.
    while !shared.stopping.load(Acquire) {
        if shared.freeing.take_awaited() {
            shared.broadcast(|| Message::Resume);
        }
        let left = next.saturating_duration_since(Instant::now());
        if left.is_zero() {
            if !shared.paused_cron.load(Relaxed) {
                keeper.round(shared);
            }
            next = Instant::now() + ROUND;
        } else if !shared.freeing.free_some(FREED_PIECES_PER_STEP) {
            shared.freeing.wait(left);
        }
    }
}

struct Housekeeper {
    sweep: SweepPoint,
    rates: [Vec<u64>; 5],
    rounds: u64,
    huge_pages: bool,
}

impl Housekeeper {
    fn new() -> Self {
        let sweep = SweepPoint { shard: 0, db: 0, cursor: 0 };
        Self { sweep, rates: Default::default(), rounds: 0, huge_pages: false }
    }

    fn round(&mut self, shared: &Shared) {
        self.rounds += 1;
        let used = structures::alloc::sample_peak();
        let limit = shared.settings.get().maxmemory_bytes;
        let huge_pages = used > HUGE_PAGES_BYTES_MIN && !crate::memory_limit::is_tight(limit);
        if huge_pages != self.huge_pages {
            self.huge_pages = huge_pages;
            crate::process::allow_huge_pages(huge_pages);
        }
        if crate::memory_limit::is_exceeded(shared) {
            // A full mailbox belongs to a thread that has turns anyhow.
            let _ = shared.threads[0].mailbox.send(Message::EnforceMemory);
        } else {
            shared.over_limit.note(false, shared.started);
        }
        self.sample_rates(shared);
        shared.hot_keys.windows.turn(Instant::now());
        if shared.active_expire.load(Relaxed) {
            self.expire(shared);
        }
        if self.rounds.is_multiple_of(ROUNDS_PER_SECOND) {
            if shared.settings.get().timeout_s > 0 {
                shared.broadcast(|| Message::CloseIdle);
            }
            if shared.settings.get().maxmemory_clients_bytes > 0 {
                shared.broadcast(|| Message::CountClients);
            }
            shared.migrations.close_idle();
        }
    }

    fn sample_rates(&mut self, shared: &Shared) {
        let now = [
            shared.sum(|stats| &stats.processed),
            shared.sum(|stats| &stats.input_bytes),
            shared.sum(|stats| &stats.output_bytes),
            shared.sum(|stats| &stats.cycles),
            shared.sum(|stats| &stats.cycles_nanos),
        ];
        let samples = &shared.samples;
        let targets = [
            &samples.ops_per_second,
            &samples.input_bytes_per_second,
            &samples.output_bytes_per_second,
            &samples.cycles_per_second,
            &samples.cycles_nanos_per_second,
        ];
        for ((history, value), target) in self.rates.iter_mut().zip(now).zip(targets) {
            if history.last().is_some_and(|&last| value < last) {
                // Set to zero by CONFIG RESETSTAT.
                history.clear();
            }
            history.push(value);
            if history.len() > RATE_ROUNDS {
                history.remove(0);
            }
            let spans = (history.len() as u64 - 1).max(1);
            let change = value - history[0];
            target.store(change * 1000 / (spans * ROUND.as_millis() as u64), Relaxed);
        }
    }

    /// A round of active expiry, and what INFO tells of it.
    fn expire(&mut self, shared: &Shared) {
        let (samples, since) = (&shared.samples, Instant::now());
        let before = samples.actively_expired.get();
        let notifications = shared.settings.get().notifications;
        let notifier = Notifier { shared, thread: None, notifications };
        let mut swept = Swept::at(unix_ms()).naming_shrunk(notifier.wanted().contains(EventClass::HASH));
        let is_done = self.remove_due(shared, &mut swept, &notifier);
        samples.expiry_nanos.add(since.elapsed().as_nanos() as u64);
        samples.expiry_cut_short.add(u64::from(!is_done));
        let expired = samples.actively_expired.get().saturating_sub(before);
        let stale = expired as f64 / swept.expiring.max(1) as f64;
        let mean = samples.stale_millionths.load(Relaxed) as f64 * (1.0 - STALE_WEIGHT);
        samples.stale_millionths.store((mean + stale.min(1.0) * 1e6 * STALE_WEIGHT) as u64, Relaxed);
    }

    /// Walks on over the keyspace, removing keys and fields that are due, for its share of the round; whether it
    /// was everywhere. Segments with nothing due cost one load, so a whole walk is cheap. A walk that runs out
    /// of time goes on next round.
    fn remove_due(&mut self, shared: &Shared, swept: &mut Swept, notifier: &Notifier<'_>) -> bool {
        let percent = (shared.settings.get().active_expire_effort * EXPIRE_PERCENT_PER_EFFORT).min(50);
        let latency_ms = shared.settings.get().thresholds.latency_ms;
        let deadline = Instant::now() + ROUND * percent / 100;
        let wanted = notifier.wanted();
        let mut gone = Vec::new();
        for _ in 0..SHARD_COUNT {
            loop {
                let settle = |db: usize, shard: &Shard, swept: &Swept| {
                    if !wanted.is_empty() {
                        notifier.raise_swept(db, shard, swept);
                    }
                    if shard.is_followed() {
                        mark_watchers(shared, db, swept, &mut gone);
                    }
                };
                let next = self.expire_step(shared, swept, latency_ms, settle);
                shared.samples.actively_expired.add(swept.expired.len() as u64);
                shared.samples.actively_expired_fields.add(std::mem::take(&mut swept.fields));
                tell_trackers(shared, swept.expired.iter().chain(&swept.emptied));
                swept.clear();
                tell_waiting(shared, &mut gone);
                let Some(next) = next else { break };
                if next == self.sweep {
                    std::thread::sleep(SAME_PLACE_PAUSE);
                }
                self.sweep = next;
                if Instant::now() >= deadline || (!wanted.is_empty() && shared.pubsub.is_crowded()) {
                    return false;
                }
            }
            self.sweep = SweepPoint { shard: (self.sweep.shard + 1) % SHARD_COUNT, db: 0, cursor: 0 };
        }
        true
    }

    /// One locked step of expiry, which the latency monitor hears of; where to go on in the same shard.
    fn expire_step(
        &self,
        shared: &Shared,
        swept: &mut Swept,
        latency_ms: u64,
        settle: impl FnOnce(usize, &Shard, &Swept),
    ) -> Option<SweepPoint> {
        let since = (latency_ms > 0).then(Instant::now);
        let next = shared.keyspace.sweep_due(self.sweep, SWEEP_STEP, swept, settle);
        if let Some(since) = since {
            shared.spikes.note(latency_ms, Event::ExpireCycle, since.elapsed());
        }
        next
    }
}

/// Marks who watches one of the keys that went, and lists those that clients wait for. Their shard is locked.
#[cold]
fn mark_watchers(shared: &Shared, db: usize, swept: &Swept, gone: &mut Vec<Touched>) {
    let hasher = shared.keyspace.hasher();
    let expired = swept.expired.iter().map(|entry| (entry, Told::NotWatching));
    for (entry, told) in expired.chain(swept.emptied.iter().map(|entry| (entry, Told::All))) {
        let key = entry.key();
        let touched = Touched { db, hash: hasher.hash(key), key: key.into(), told, events_before: 0 };
        if shared.follows.touch(&touched) {
            gone.push(touched);
        }
    }
}

/// Lets an I/O thread serve those who wait to hear of the end of these keys. No shard's lock is held.
fn tell_waiting(shared: &Shared, gone: &mut Vec<Touched>) {
    if gone.is_empty() {
        return;
    }
    let mut message = Message::Gone(std::mem::take(gone));
    while let Err(refused) = shared.threads[0].mailbox.send(message) {
        if shared.stopping.load(Relaxed) {
            return;
        }
        // It has thousands of messages to take: this one can wait for room.
        std::thread::sleep(SAME_PLACE_PAUSE);
        message = refused;
    }
}

/// Tells clients with a cache which keys went. No shard's lock is held.
fn tell_trackers<'k>(shared: &Shared, gone: impl Iterator<Item = &'k KeyEntry>) {
    if !shared.tracking.is_used() {
        return;
    }
    let mut own = OwnPushes::default();
    let mut writer = Writer { client: 0, thread: HOUSEKEEPER, own: &mut own };
    for entry in gone {
        let key = shared.keyspace.hasher().key(entry.key());
        shared.tracking.changed(shared, None, key, &mut writer);
    }
    shared.tracking.broadcast(shared, HOUSEKEEPER);
}
