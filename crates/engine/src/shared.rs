//! The state that all threads of an engine share. Nothing here knows a socket, a thread or a file.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use keyspace::Keyspace;
use keyspace::gate::{Gate, SharedPass};
use structures::lock::Lock;

use crate::acl::Acl;
use crate::clients::Clients;
use crate::freeing::FreeQueue;
use crate::log::ChangeLog;
use crate::memory::OverLimit;
use crate::publish::monitor::Monitors;
use crate::publish::pubsub::PubSub;
use crate::publish::send::Sender;
use crate::scripts::RunningScripts;
use crate::settings::{Settings, SharedSettings};
use crate::stats::Counter;
use crate::stats::command_log::CommandLogs;
use crate::stats::errors::ErrorCounts;
use crate::stats::hot_keys::HotKeys;
use crate::stats::latency_events::LatencyEvents;
use crate::table::{CommandTable, Registered};
use crate::threads::{Outbox, Threads};
use crate::track::Tracking;
use crate::wait::BlockedClients;
use crate::watch::Watchers;

/// The places in the gate of the threads that are no I/O threads. They stand behind
/// those of the I/O threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateSlot {
    /// The housekeeper, for one short step at a time.
    Housekeeper,
    /// The metrics thread, for one section of INFO at a time.
    Metrics,
    /// A thread that runs a script which is debugged, below
    /// [`DEBUGGERS_MAX`](Self::DEBUGGERS_MAX).
    Debugger(usize),
    /// A thread that saves or loads, below [`BACKGROUND_MAX`](Self::BACKGROUND_MAX), for one
    /// short step at a time.
    Background(usize),
}

impl GateSlot {
    /// Threads that save or load at most.
    pub const BACKGROUND_MAX: usize = 8;
    /// Scripts that are debugged at a time.
    pub const DEBUGGERS_MAX: usize = 4;
    /// The number of slots.
    pub const COUNT: usize = 2 + Self::DEBUGGERS_MAX + Self::BACKGROUND_MAX;

    fn number(self) -> usize {
        match self {
            Self::Housekeeper => 0,
            Self::Metrics => 1,
            Self::Debugger(index) => {
                assert!(index < Self::DEBUGGERS_MAX, "there are no more slots");
                2 + index
            }
            Self::Background(index) => {
                assert!(index < Self::BACKGROUND_MAX, "there are no more slots");
                2 + Self::DEBUGGERS_MAX + index
            }
        }
    }
}

/// CLIENT PAUSE.
#[derive(Debug, Default)]
pub struct Pause {
    /// Until when, in Unix milliseconds; in the past for not at all.
    pub until_ms: AtomicI64,
    /// True if all commands are held back, false for writes only.
    pub all: AtomicBool,
}

/// The reasons outside the engine that keep requests, or some of them, from running.
#[derive(Debug, Default)]
pub struct Standing {
    /// The data is being loaded: only what needs none of it runs.
    pub is_loading: AtomicBool,
    /// The server is about to end: nothing runs any more.
    pub is_stopping: AtomicBool,
    /// The last snapshot could not be saved.
    pub save_failed: AtomicBool,
    /// The append-only file cannot be written.
    pub log_failed: AtomicBool,
    /// Why, in the system's words.
    pub log_trouble: Lock<String>,
}

impl Standing {
    /// Returns true if some requests may have to be refused.
    #[inline]
    pub fn may_refuse(&self) -> bool {
        self.is_loading.load(Relaxed)
            | self.save_failed.load(Relaxed)
            | self.log_failed.load(Relaxed)
            | self.is_stopping.load(Relaxed)
    }

    /// Notes whether the append-only file can be written, and why not.
    pub fn note_log(&self, trouble: Option<&str>) {
        if self.log_failed.load(Relaxed) == trouble.is_some() {
            return;
        }
        *self.log_trouble.lock() = trouble.unwrap_or_default().to_owned();
        self.log_failed.store(trouble.is_some(), Relaxed);
    }
}

/// The statistics of active expiry, for INFO.
#[derive(Debug, Default)]
pub struct ExpiryStats {
    /// The time that it took, in nanoseconds.
    pub nanos: Counter,
    /// Rounds that ended because their time was over.
    pub cut_short: Counter,
    /// Keys that it removed.
    pub keys: Counter,
    /// Fields of hashes that it removed.
    pub fields: Counter,
    /// Of keys with a time to live the part that was overdue when active expiry
    /// came by, in millionths.
    pub stale_millionths: AtomicU64,
}

/// The parameters that an engine starts with.
pub struct Start {
    /// I/O threads.
    pub threads: usize,
    /// Databases.
    pub databases: usize,
    /// All commands.
    pub table: CommandTable,
    /// The options that act.
    pub settings: Settings,
    /// Keys the hashes of keys and of names: secret, different for each process.
    pub seed: [u64; 4],
    /// Now, by the monotonic clock: uptime is counted from here.
    pub now: Instant,
}

/// See the module. Threads hold it by `Arc`.
pub struct Shared {
    /// All data.
    pub keyspace: Keyspace,
    /// Shared by turns, exclusive for what cannot name its keys. Whoever locks a shard is inside,
    /// with the number of its I/O thread or one of [`GateSlot`].
    pub gate: Gate,
    /// All commands.
    pub table: CommandTable,
    /// Users, and what they were refused.
    pub acl: Acl,
    /// Options that act.
    pub settings: SharedSettings,
    /// All clients.
    pub clients: Clients,
    /// One port per I/O thread.
    pub threads: Threads,
    /// Whose transactions depend on which key.
    pub watchers: Watchers,
    /// The blocked clients by key.
    pub blocked: BlockedClients,
    /// The keys that clients cache.
    pub tracking: Tracking,
    /// The monitors.
    pub monitors: Monitors,
    /// The subscribers by channel.
    pub pubsub: PubSub,
    /// CLIENT PAUSE.
    pub pause: Pause,
    /// Loading, failed saves.
    pub standing: Standing,
    /// Start of the server's monotonic clock.
    pub started: Instant,
    /// Slow commands, large requests, large replies.
    pub command_logs: CommandLogs,
    /// The keys that use most, while they are counted.
    pub hot_keys: HotKeys,
    /// The latency events.
    pub latency_events: LatencyEvents,
    /// Error replies by code.
    pub errors: ErrorCounts,
    /// The statistics of active expiry.
    pub expiry: ExpiryStats,
    /// For how long memory was over its limit.
    pub over_limit: OverLimit,
    /// Used memory when the server had started, in bytes: eviction cannot free it.
    pub startup_bytes: AtomicU64,
    /// Values too big to free on an I/O thread in passing.
    pub freeing: FreeQueue,
    /// All changes, in order, while somebody reads them.
    pub log: ChangeLog,
    /// Scripts and functions that run.
    pub scripts: RunningScripts,
}

impl Pause {
    /// Returns true if clients are paused at this Unix time.
    #[inline]
    pub fn is_on(&self, now_ms: i64) -> bool {
        self.until_ms.load(Relaxed) > now_ms
    }
}

impl Shared {
    /// Creates an engine without data or clients.
    pub fn new(start: Start) -> Self {
        let Start { threads, databases, table, settings, seed, now } = start;
        let hot_keys = HotKeys::new(threads, now);
        hot_keys.windows.configure(settings.key_sampling, now);
        Self {
            keyspace: Keyspace::new(databases, seed),
            gate: Gate::new(threads + GateSlot::COUNT),
            threads: Threads::new(threads, table.id_count()),
            table,
            acl: Acl::default(),
            settings: SharedSettings::new(settings),
            clients: Clients::default(),
            watchers: Watchers::new(seed),
            blocked: BlockedClients::new(threads),
            tracking: Tracking::default(),
            monitors: Monitors::default(),
            pubsub: PubSub::new(threads, seed),
            pause: Pause::default(),
            standing: Standing::default(),
            started: now,
            command_logs: CommandLogs::default(),
            hot_keys,
            latency_events: LatencyEvents::default(),
            errors: ErrorCounts::default(),
            expiry: ExpiryStats::default(),
            over_limit: OverLimit::default(),
            startup_bytes: 0.into(),
            freeing: FreeQueue::default(),
            log: ChangeLog::new(threads),
            scripts: RunningScripts::default(),
        }
    }

    /// Returns the number in the gate of a thread that is no I/O thread.
    pub fn gate_index(&self, slot: GateSlot) -> usize {
        self.threads.len() + slot.number()
    }

    /// Returns true if the writes of the thread with this buffer of the change log must wait:
    /// until the log has room, or until a snapshot has shown the entries it was handed. Asked once
    /// a turn.
    #[inline]
    pub fn awaits_room(&self, log_buffer: usize) -> bool {
        self.log.is_full(log_buffer) || self.keyspace.snapshot().is_full()
    }

    /// Enters the gate as a thread that is no I/O thread.
    pub fn enter_gate(&self, slot: GateSlot) -> SharedPass<'_> {
        self.gate.shared(self.gate_index(slot))
    }

    /// Returns the start of the server, by the monotonic clock.
    pub fn started(&self) -> Instant {
        self.started
    }

    /// Returns the time since the server started, at `now` of the monotonic clock.
    #[inline]
    pub fn uptime(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started)
    }

    /// Returns the sender of messages for I/O thread `thread`, if it is one. It leaves the threads
    /// to wake in `outbox`. The messages show the change log up to `position`.
    pub fn sender<'a>(&'a self, thread: Option<usize>, outbox: &'a Outbox, position: u64) -> Sender<'a> {
        let Self { clients, threads, pubsub, .. } = self;
        Sender { clients, threads, pubsub, thread, outbox, position }
    }

    /// Counts an error reply to a blocked client, on the I/O thread that ended its wait.
    pub fn count_failure(&self, thread: usize, registered: &Registered, line: &[u8]) {
        let stats = &self.threads[thread].stats;
        stats.errors.add(1);
        stats.commands[registered.id].failed.add(1);
        self.errors.count(line);
    }
}
