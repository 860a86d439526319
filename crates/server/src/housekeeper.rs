//! The housekeeper: a background thread for work that must not delay requests. It runs active
//! expiry, samples rates, frees big values and removes closed clients from the tracking tables. It
//! starts saves and rewrites that are due, and requests the closing of idle clients.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use engine::compact::Compaction;
use engine::expire::ActiveExpiry;
use engine::fragmentation::HeldMemory;
use engine::run::Executor;
use engine::shared::GateSlot;
use engine::threads::Outbox;

use crate::context::{ServerHost, SystemClock, unix_ms};
use crate::process::{HugePages, set_huge_pages};
use crate::replicas::good_replicas::update_good_replicas;
use crate::shared::{Message, Shared};

/// Interval of the housekeeper's rounds of regular work.
const ROUND: Duration = Duration::from_millis(100);
/// Rounds per second; some work is done only once per second.
const ROUNDS_PER_SECOND: u64 = 10;
/// Number of samples, one per round, that a rate is computed from. They span 15 rounds, or 1.5
/// seconds.
const RATE_ROUNDS: usize = 16;
/// Number of allocations of a big value that are freed between two checks of the clock. They take
/// some hundred microseconds.
const FREED_PIECES_PER_STEP: usize = 4096;

/// Used memory in bytes above which the kernel may use huge pages, unless a `maxmemory` of 4 GiB or
/// less is set. Below it, the 2 MiB steps of huge pages cost more memory than they save time. Above
/// it, reading a million random keys takes about 10 % less CPU (docs/performance.md).
const HUGE_PAGES_BYTES_MIN: usize = 64 << 20;

/// Runs the housekeeper until the server stops. Short slices of active expiry and compaction
/// alternate with steps that free big values. `seed` is for random numbers.
pub fn run(host: &ServerHost, seed: u64) {
    let shared = host.shared();
    let mut executor = Executor::new(&shared.engine, None, seed, (SystemClock, host.clone()));
    let mut keeper = Housekeeper::new();
    let mut next_round = Instant::now() + ROUND;
    // Acquire: pairs with the swap in `Shared::stop`.
    while !shared.stopping.load(Acquire) {
        if shared.engine.freeing.take_awaited() {
            shared.broadcast(|| Message::Resume);
        }
        let is_paused = shared.switched_off.cron.load(Relaxed);
        if Instant::now() >= next_round {
            if !is_paused {
                keeper.round(shared);
            }
            next_round = Instant::now() + ROUND;
        }
        let next_expiry = if is_paused { None } else { keeper.expire(shared, &mut executor) };
        let next_compaction = if is_paused { None } else { keeper.compact(shared) };
        if !(remove_departed(&shared.engine) | shared.engine.freeing.free_some(FREED_PIECES_PER_STEP)) {
            let slices = [next_expiry, next_compaction];
            let next = slices.into_iter().flatten().min().map_or(next_round, |next| next.min(next_round));
            shared.engine.freeing.wait(next.saturating_duration_since(Instant::now()));
        }
    }
}

/// The engine's executor, which removes expired keys in transactions of its own.
type HousekeeperExecutor<'s> = Executor<'s, SystemClock, ServerHost>;

/// Removes some closed clients from the tables of client-side caching (CLIENT TRACKING). Returns
/// true if there were any to remove.
fn remove_departed(engine: &engine::Shared) -> bool {
    let gate_index = engine.gate_index(GateSlot::Housekeeper);
    engine.tracking.remove_departed(&engine.keyspace, &engine.gate, gate_index)
}

struct Housekeeper {
    expiry: ActiveExpiry,
    compaction: Compaction,
    idle: IdleTime,
    rates: [Vec<u64>; 7],
    rounds: u64,
    huge_pages: HugePages,
}

impl Housekeeper {
    fn new() -> Self {
        Self {
            expiry: ActiveExpiry::new(Instant::now()),
            compaction: Compaction::new(Instant::now()),
            idle: IdleTime::new(),
            rates: Default::default(),
            rounds: 0,
            huge_pages: HugePages::Forbidden,
        }
    }

    fn round(&mut self, shared: &Arc<Shared>) {
        self.rounds += 1;
        let used = structures::alloc::sample_peak();
        let limit = shared.engine.settings.get().maxmemory_bytes;
        let may_be_huge = used > HUGE_PAGES_BYTES_MIN && !engine::memory::is_tight(limit);
        let huge_pages = if may_be_huge { HugePages::Allowed } else { HugePages::Forbidden };
        if huge_pages != self.huge_pages {
            self.huge_pages = huge_pages;
            set_huge_pages(huge_pages);
            if may_be_huge {
                structures::alloc::keep_huge_pages_whole();
            } else {
                structures::alloc::split_huge_pages();
                structures::alloc::purge();
            }
        }
        structures::alloc::purge_expired();
        if engine::evict::is_exceeded(&shared.engine) {
            // If the mailbox is full, the thread has a turn soon in any case.
            let _ = shared.ports[0].mailbox.send(Message::EnforceMemory);
        } else {
            shared.engine.over_limit.note_within(shared.engine.uptime(Instant::now()));
        }
        self.sample_rates(shared);
        crate::persistence::save_if_due(shared);
        crate::persistence::backup::work_if_due(shared);
        crate::persistence::aof::rewrite_if_due(shared);
        crate::persistence::aof::follow_rewrites(shared);
        shared.engine.hot_keys.windows.turn(Instant::now());
        let turns_nanos = shared.engine.threads.sum(|stats| &stats.cycles_nanos);
        self.expiry.begin_round(&shared.engine, self.idle.percent(Instant::now(), turns_nanos));
        if self.rounds.is_multiple_of(ROUNDS_PER_SECOND) {
            if shared.engine.settings.get().compaction.is_on || self.compaction.is_in_pass() {
                self.compaction.begin_round(&shared.engine, held_memory(), Instant::now());
            }
            crate::persistence::aof::remove_history_if_due(shared);
            update_good_replicas(shared, shared.uptime_ms());
            let clients = &shared.engine.settings.get().clients;
            if clients.timeout_s > 0 || clients.authentication_timeout_s > 0 || shared.oidc.is_some() {
                shared.broadcast(|| Message::CloseIdle);
            }
            shared.broadcast(|| Message::FindClosedConnections);
            if clients.maxmemory_clients_bytes > 0 {
                shared.broadcast(|| Message::CountClients);
            }
            shared.migrations.close_idle();
            if shared.tls.server().is_some() {
                let store = shared.config().clone();
                shared.tls.reload_if_due(&store);
            }
        }
    }

    /// Runs a slice of active expiry if one is due. On a replica, removes only expired keys whose
    /// expiry was set by clients of this replica. Returns the time of the next slice; `None` if
    /// none is planned, as while expiry is paused or turned off.
    fn expire(&mut self, shared: &Shared, executor: &mut HousekeeperExecutor<'_>) -> Option<Instant> {
        // While a file is loaded, only the commands in the file remove expired keys.
        let is_loading = shared.engine.server_state.is_loading.load(Relaxed);
        // The last snapshot must name the end of the stream of replicas.
        let is_stopping = shared.engine.server_state.is_stopping.load(Relaxed);
        if is_loading
            || is_stopping
            || shared.engine.pause.is_on(unix_ms())
            || shared.switched_off.active_expire.load(Relaxed)
        {
            return None;
        }
        if shared.engine.server_state.role.is_replica.load(Relaxed) {
            // The primary removes all other keys.
            let has_more = engine::expire::expire_local_keys(executor, |outbox| shared.wake(outbox));
            return has_more.then(Instant::now);
        }
        if shared.engine.settings.get().import_mode {
            return None;
        }
        if self.expiry.next_slice()? <= Instant::now() {
            self.expiry.slice(executor, |outbox: &Outbox, pause| {
                shared.wake(outbox);
                if !pause.is_zero() {
                    std::thread::sleep(pause);
                }
            });
        }
        self.expiry.next_slice()
    }

    /// Runs a slice of compaction (active defragmentation) if one is due. Returns the time of the
    /// next slice; `None` if none is planned.
    fn compact(&mut self, shared: &Shared) -> Option<Instant> {
        if self.compaction.next_slice()? <= Instant::now()
            && self.compaction.slice(&shared.engine, Instant::now)
        {
            // Pages that became free belong to the threads that allocated from them.
            shared.broadcast(|| Message::ReturnMemory);
        }
        self.compaction.next_slice()
    }

    fn sample_rates(&mut self, shared: &Shared) {
        let now = [
            shared.engine.threads.sum(|stats| &stats.processed),
            shared.engine.threads.sum(|stats| &stats.input_bytes),
            shared.engine.threads.sum(|stats| &stats.output_bytes),
            shared.replication.figures.input_bytes.load(Relaxed),
            shared.replication.figures.output_bytes.load(Relaxed),
            shared.engine.threads.sum(|stats| &stats.cycles),
            shared.engine.threads.sum(|stats| &stats.cycles_nanos),
        ];
        let samples = &shared.samples;
        let targets = [
            &samples.ops_per_second,
            &samples.input_bytes_per_second,
            &samples.output_bytes_per_second,
            &samples.replication_input_bytes_per_second,
            &samples.replication_output_bytes_per_second,
            &samples.cycles_per_second,
            &samples.cycles_nanos_per_second,
        ];
        for ((history, value), target) in self.rates.iter_mut().zip(now).zip(targets) {
            if history.last().is_some_and(|&last| value < last) {
                // CONFIG RESETSTAT has reset the counters to zero.
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
}

/// Returns the used bytes and the bytes that the allocator holds in memory, as INFO shows them.
fn held_memory() -> HeldMemory {
    let (_, heap_rss) = crate::process::resident_bytes();
    let used_bytes = structures::alloc::used_memory_bytes() as u64;
    HeldMemory { used_bytes, held_bytes: crate::process::held_bytes(heap_rss) }
}

/// A meter of the CPU time on the server's cores that the turns of the I/O threads leave unused.
struct IdleTime {
    cores: u64,
    since: Instant,
    turns_nanos: u64,
}

impl IdleTime {
    fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        Self { cores, since: Instant::now(), turns_nanos: 0 }
    }

    /// Returns the unused CPU time since the last call, in percent of one core and at most 100.
    /// `turns_nanos` is the time of all turns from the start up to `now`. Returns 0 if CONFIG
    /// RESETSTAT has reset that time.
    fn percent(&mut self, now: Instant, turns_nanos: u64) -> u32 {
        let elapsed = now.duration_since(std::mem::replace(&mut self.since, now)).as_nanos() as u64;
        let before = std::mem::replace(&mut self.turns_nanos, turns_nanos);
        // CONFIG RESETSTAT has reset the counter, so the busy time is unknown.
        let Some(busy) = turns_nanos.checked_sub(before) else { return 0 };
        let left = (self.cores * elapsed).saturating_sub(busy);
        (left * 100 / elapsed.max(1)).min(100) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_what_turns_leave_of_a_core() {
        let start = Instant::now();
        let mut idle = IdleTime { cores: 2, since: start, turns_nanos: 0 };
        let mut after =
            |ms: u64, turns_ms: u64| idle.percent(start + Duration::from_millis(ms), turns_ms * 1_000_000);
        assert_eq!(after(100, 0), 100);
        assert_eq!((after(200, 100), after(300, 250), after(400, 450), after(500, 700)), (100, 50, 0, 0));
        assert_eq!((after(600, 0), after(700, 50)), (0, 100));
    }
}
