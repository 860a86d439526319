//! The state that all threads of an engine share: data, clients, settings, logs. It has no socket,
//! thread or file.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use keyspace::Keyspace;
use keyspace::gate::{ClaimedPass, Gate};
use structures::lock::Lock;

use crate::acl::Acl;
use crate::clients::Clients;
use crate::freeing::FreeQueue;
use crate::local_deadlines::LocalDeadlines;
use crate::log::ChangeLog;
use crate::memory::OverLimit;
use crate::publish::monitor::Monitors;
use crate::publish::pubsub::PubSub;
use crate::publish::send::Sender;
use crate::scripts::RunningScripts;
use crate::settings::{Settings, SharedSettings};
use crate::stats::Counter;
use crate::stats::command_log::CommandLogs;
use crate::stats::compaction::CompactionStats;
use crate::stats::errors::ErrorCounts;
use crate::stats::hot_keys::HotKeys;
use crate::stats::latency_events::LatencyEvents;
use crate::table::{CommandTable, Registered};
use crate::threads::{Outbox, Threads};
use crate::track::Tracking;
use crate::wait::BlockedClients;
use crate::watch::Watchers;

/// The slots in the gate (the keyspace's shared lock) for threads that are not I/O threads. They
/// follow the slots of the I/O threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateSlot {
    /// The housekeeper thread (active expiry, compaction), which locks the gate (the keyspace's
    /// shared lock) for one short step at a time.
    Housekeeper,
    /// The metrics thread, which locks the gate (the keyspace's shared lock) for one part of INFO's
    /// output at a time.
    Metrics,
    /// A thread that runs a debugged script, which has an index below
    /// [`DEBUGGERS_MAX`](Self::DEBUGGERS_MAX).
    Debugger(usize),
    /// A thread that writes a snapshot, with an index below [`WALKERS_MAX`](Self::WALKERS_MAX). It
    /// locks the gate (the keyspace's shared lock) for one short step at a time.
    Walker(usize),
    /// A thread that loads a snapshot, with an index below [`LOADERS_MAX`](Self::LOADERS_MAX). It
    /// locks the gate (the keyspace's shared lock) for one short step at a time.
    Loader(usize),
    /// A thread that replays an append-only file (a lane), with an index below
    /// [`LANES_MAX`](Self::LANES_MAX). It locks the gate (the keyspace's shared lock) for one slice
    /// of requests at a time.
    Lane(usize),
    /// The applier of a primary's replication stream, which locks the gate (the keyspace's shared
    /// lock) for one batch of requests at a time.
    Applier,
}

impl GateSlot {
    /// The maximum number of threads that write snapshots at the same time.
    pub const WALKERS_MAX: usize = 8;
    /// The most threads that load a snapshot at the same time.
    pub const LOADERS_MAX: usize = 8;
    /// The most scripts that are debugged at the same time.
    pub const DEBUGGERS_MAX: usize = 4;
    /// The maximum number of threads that replay an append-only file at the same time.
    pub const LANES_MAX: usize = 8;
    /// The number of slots in the gate (the keyspace's shared lock) for threads that are not I/O
    /// threads.
    pub const COUNT: usize = Self::FIRST_LANE + Self::LANES_MAX;

    const FIRST_DEBUGGER: usize = 3;
    const FIRST_WALKER: usize = Self::FIRST_DEBUGGER + Self::DEBUGGERS_MAX;
    const FIRST_LOADER: usize = Self::FIRST_WALKER + Self::WALKERS_MAX;
    const FIRST_LANE: usize = Self::FIRST_LOADER + Self::LOADERS_MAX;

    fn number(self) -> usize {
        let (first, index, end) = match self {
            Self::Housekeeper => return 0,
            Self::Metrics => return 1,
            Self::Applier => return 2,
            Self::Debugger(index) => (Self::FIRST_DEBUGGER, index, Self::FIRST_WALKER),
            Self::Walker(index) => (Self::FIRST_WALKER, index, Self::FIRST_LOADER),
            Self::Loader(index) => (Self::FIRST_LOADER, index, Self::FIRST_LANE),
            Self::Lane(index) => (Self::FIRST_LANE, index, Self::COUNT),
        };
        assert!(first + index < end, "there are no more slots");
        first + index
    }
}

/// The pause of clients' requests: by CLIENT PAUSE, by a shutdown that waits for replicas, or by a
/// failover.
#[derive(Debug, Default)]
pub struct Pause {
    /// The end of CLIENT PAUSE, in Unix milliseconds; a time in the past if clients are not paused.
    pub until_ms: AtomicI64,
    /// True if CLIENT PAUSE pauses all commands, false if it pauses only writes.
    pub all: AtomicBool,
    /// The reasons for which writes are paused without a time limit, as bits of [`PauseReason`].
    reasons: AtomicU8,
}

/// A reason for which writes are paused without a time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// Writes are paused because a shutdown waits for replicas.
    Shutdown = 1,
    /// Writes are paused because a failover is in progress.
    Failover = 2,
}

/// The role of the server in replication, as far as it affects requests.
#[derive(Default)]
pub struct Role {
    /// True if the server follows a primary. It then removes no key by expiry or eviction itself.
    pub is_replica: AtomicBool,
    /// True if clients may not write, because the server is a replica (`replica-read-only`).
    pub refuses_writes: AtomicBool,
    /// True if this replica is not connected to its primary and clients may not read old data
    /// (`replica-serve-stale-data no`).
    is_stale: AtomicBool,
    /// True while a primary's snapshot is loaded into a second keyspace, while clients read the old
    /// data.
    is_loading_beside: AtomicBool,
    /// True if `is_stale` or `is_loading_beside` is true, so that requests check only one flag.
    is_hindered: AtomicBool,
    /// True if `maxmemory` has no effect, because the server is a replica
    /// (`replica-ignore-maxmemory`) or loads a primary's snapshot into a second keyspace.
    pub ignores_memory_limit: AtomicBool,
    /// The epoch: the number of changes of the role or of the primary. A replication stream or a
    /// write that was checked under an earlier epoch must not be applied any more.
    pub epoch: AtomicU64,
    /// The keys to which clients of this replica have given a deadline.
    pub local_deadlines: LocalDeadlines,
}

/// The reasons for which clients of a replica are refused, depending on the state of its connection
/// to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hindrances {
    /// True if the replica is not connected to its primary and clients may not read old data.
    pub is_stale: bool,
    /// True while a primary's snapshot is loaded into a second keyspace, while clients read the old
    /// data.
    pub is_loading_beside: bool,
}

impl Role {
    /// Sets the reasons for which clients of a replica are refused.
    pub fn note(&self, hindrances: Hindrances) {
        let Hindrances { is_stale, is_loading_beside } = hindrances;
        self.is_stale.store(is_stale, Relaxed);
        self.is_loading_beside.store(is_loading_beside, Relaxed);
        self.is_hindered.store(is_stale || is_loading_beside, Relaxed);
    }

    /// Returns true if this replica is not connected to its primary and clients may not read old
    /// data.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.is_stale.load(Relaxed)
    }

    /// Returns true while a primary's snapshot is loaded into a second keyspace; clients still read
    /// the old data.
    pub fn is_loading_beside(&self) -> bool {
        self.is_loading_beside.load(Relaxed)
    }
}

/// The states of the server that are set outside the engine and because of which requests are
/// refused or postponed.
#[derive(Default)]
pub struct ServerState {
    /// True while the data is loaded: only commands that need no data run.
    pub is_loading: AtomicBool,
    /// True if the server is about to end: no more requests run.
    pub is_stopping: AtomicBool,
    /// True if the last snapshot could not be saved.
    pub save_failed: AtomicBool,
    /// True if the append-only file cannot be written.
    pub log_failed: AtomicBool,
    /// The operating system's error text while `log_failed` is true.
    pub log_error: Lock<String>,
    /// True if there are fewer good replicas than `min-replicas-to-write` demands. A replica is
    /// good if its last acknowledgement is not older than `min-replicas-max-lag`.
    pub lacks_replicas: AtomicBool,
    /// The role of the server. Only changed by exclusive owners of the keyspace.
    pub role: Role,
    /// Bytes of the replication stream that are kept or queued only for slow replicas. They do not
    /// count against `maxmemory`: deleting keys would enlarge the stream.
    pub replica_buffer_bytes: AtomicU64,
    /// Bytes in memory of snapshots that are being sent to replicas. They do not count against
    /// `maxmemory`.
    pub snapshot_buffer_bytes: Arc<AtomicU64>,
}

impl ServerState {
    /// Returns true if any state of the server may cause a refusal or a delay of requests.
    #[inline]
    pub fn may_refuse(&self) -> bool {
        self.is_loading.load(Relaxed)
            | self.save_failed.load(Relaxed)
            | self.log_failed.load(Relaxed)
            | self.lacks_replicas.load(Relaxed)
            | self.role.refuses_writes.load(Relaxed)
            | self.role.is_hindered.load(Relaxed)
            | self.is_stopping.load(Relaxed)
    }

    /// Records if the append-only file can be written. `trouble` is the error text if it cannot,
    /// `None` if it can.
    pub fn note_log(&self, trouble: Option<&str>) {
        if self.log_failed.load(Relaxed) == trouble.is_some() {
            return;
        }
        *self.log_error.lock() = trouble.unwrap_or_default().to_owned();
        self.log_failed.store(trouble.is_some(), Relaxed);
    }
}

/// The statistics of active expiry, for INFO.
#[derive(Debug, Default)]
pub struct ExpiryStats {
    /// The time that active expiry has taken, in nanoseconds.
    pub nanos: Counter,
    /// The number of rounds in which active expiry could not visit all shards although more keys
    /// were overdue than is tolerated.
    pub cut_short: Counter,
    /// The number of expired keys that active expiry has removed.
    pub keys: Counter,
    /// The number of expired hash fields that active expiry has removed.
    pub fields: Counter,
    /// The fraction of keys with an expiry that active expiry found expired: a running mean, in
    /// millionths.
    pub stale_millionths: AtomicU64,
}

/// The statistics of the housekeeper's work (active expiry and compaction), for INFO.
#[derive(Debug, Default)]
pub struct UpkeepStats {
    /// The statistics of active expiry.
    pub expiry: ExpiryStats,
    /// The statistics of compaction.
    pub compaction: CompactionStats,
}

/// The parameters with which an engine's shared state is created.
pub struct Start {
    /// The number of I/O threads.
    pub threads: usize,
    /// The number of databases of the keyspace.
    pub databases: usize,
    /// The server's table of all commands, with those of every crate.
    pub table: CommandTable,
    /// The configuration options of the engine.
    pub settings: Settings,
    /// The key of the hashes of keys and names. It is secret, and different for each process.
    pub seed: [u64; 4],
    /// The time of the start, by the monotonic clock. Uptime is counted from it.
    pub now: Instant,
}

/// The state that all threads of an engine share, by `Arc`.
pub struct Shared {
    /// The keyspace with all databases.
    pub keyspace: Keyspace,
    /// The gate, a lock around the keyspace: threads that run requests share it; a command that
    /// cannot name its keys takes it exclusively. A thread locks a shard only inside the gate,
    /// under the index of its I/O thread or of its [`GateSlot`].
    pub gate: Gate,
    /// The server's table of all commands, with those of every crate.
    pub table: CommandTable,
    /// The users of access control, and the log of refused requests.
    pub acl: Acl,
    /// The configuration options of the engine, shared by all threads.
    pub settings: SharedSettings,
    /// The registry of all connected clients.
    pub clients: Clients,
    /// The ports of the I/O threads: their counters and inboxes for messages.
    pub threads: Threads,
    /// The registry of watched keys with their watchers.
    pub watchers: Watchers,
    /// The registry of blocked clients by key.
    pub blocked: BlockedClients,
    /// The tracking tables, for client-side caching.
    pub tracking: Tracking,
    /// The clients that use MONITOR.
    pub monitors: Monitors,
    /// The subscribers of channels and patterns, and the threads' inboxes for messages to clients.
    pub pubsub: PubSub,
    /// The state of CLIENT PAUSE and of other pauses of clients.
    pub pause: Pause,
    /// The states of the server, set outside the engine, for which requests are refused or
    /// postponed.
    pub server_state: ServerState,
    /// The start time of the server, by the monotonic clock.
    pub started: Instant,
    /// The logs of slow commands, large requests and large replies.
    pub command_logs: CommandLogs,
    /// The counters of the keys that HOTKEYS shows.
    pub hot_keys: HotKeys,
    /// The latency spikes that the latency monitor has recorded.
    pub latency_events: LatencyEvents,
    /// The numbers of error replies by error code.
    pub errors: ErrorCounts,
    /// The statistics of the housekeeper's work (active expiry, compaction), for INFO.
    pub upkeep: UpkeepStats,
    /// The time during which used memory was over the limit `maxmemory`.
    pub over_limit: OverLimit,
    /// The used memory at the end of the server's start, in bytes. Eviction cannot free it.
    pub startup_bytes: AtomicU64,
    /// The queue of lazy freed values, which are freed in the background.
    pub freeing: FreeQueue,
    /// The ordered log of all changes, while it has readers.
    pub log: ChangeLog,
    /// The list of running scripts and functions.
    pub scripts: RunningScripts,
}

impl Pause {
    /// Returns true if clients are paused at `now_ms`, in Unix milliseconds.
    #[inline]
    pub fn is_on(&self, now_ms: i64) -> bool {
        (self.until_ms.load(Relaxed) > now_ms) | (self.reasons.load(Relaxed) != 0)
    }

    /// Pauses writes of clients for a reason, until [`Pause::end`]. Threads may notice it a turn
    /// (pass of the event loop) later.
    pub fn begin(&self, reason: PauseReason) {
        self.reasons.fetch_or(reason as u8, Relaxed);
    }

    /// Ends the pause of writes for a reason. Returns true if writes were paused for it. Other
    /// pauses stay in force.
    pub fn end(&self, reason: PauseReason) -> bool {
        self.reasons.fetch_and(!(reason as u8), Relaxed) & reason as u8 != 0
    }

    /// Returns true while writes are paused for this reason.
    pub fn is_for(&self, reason: PauseReason) -> bool {
        self.reasons.load(Relaxed) & reason as u8 != 0
    }

    /// Returns true if all commands are paused at `now_ms`, in Unix milliseconds.
    pub fn is_on_for_all(&self, now_ms: i64) -> bool {
        self.until_ms.load(Relaxed) > now_ms && self.all.load(Relaxed)
    }

    /// Returns the milliseconds from `now_ms` until CLIENT PAUSE ends; 0 or less without a pause.
    pub fn left_ms(&self, now_ms: i64) -> i64 {
        match self.reasons.load(Relaxed) {
            1.. => i64::MAX,
            0 => self.until_ms.load(Relaxed).saturating_sub(now_ms),
        }
    }
}

impl Shared {
    /// Creates the shared state of an engine without data or clients.
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
            server_state: ServerState::default(),
            started: now,
            command_logs: CommandLogs::default(),
            hot_keys,
            latency_events: LatencyEvents::default(),
            errors: ErrorCounts::default(),
            upkeep: UpkeepStats::default(),
            over_limit: OverLimit::default(),
            startup_bytes: 0.into(),
            freeing: FreeQueue::default(),
            log: ChangeLog::new(threads),
            scripts: RunningScripts::default(),
        }
    }

    /// Returns the index in the gate (the keyspace's shared lock) of a thread that is not an I/O
    /// thread.
    pub fn gate_index(&self, slot: GateSlot) -> usize {
        self.threads.len() + slot.number()
    }

    /// Returns true if writes of the thread that owns buffer `log_buffer` of the change log must
    /// wait. They must wait if the buffer is full, or if the running snapshot holds too many
    /// entries that are not written yet.
    #[inline]
    pub fn awaits_room(&self, log_buffer: usize) -> bool {
        self.log.is_full(log_buffer) || self.keyspace.snapshot().is_full()
    }

    /// Enters the gate (the keyspace's shared lock) as a thread that is not an I/O thread.
    ///
    /// # Panics
    /// If another thread uses the slot.
    pub fn enter_gate(&self, slot: GateSlot) -> ClaimedPass<'_> {
        self.gate.shared_claimed(self.gate_index(slot))
    }

    /// Enters the gate (the keyspace's shared lock) like [`enter_gate`](Self::enter_gate), but
    /// gives up while a busy script owns the keyspace: the returned pass is then outside the gate.
    ///
    /// # Panics
    /// If another thread uses the slot.
    pub fn enter_gate_unless_busy(&self, slot: GateSlot) -> ClaimedPass<'_> {
        self.gate.shared_claimed_unless_busy(self.gate_index(slot))
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

    /// Returns a sender of messages for I/O thread `thread`, or for another thread. It collects the
    /// threads to wake in `outbox`. The messages show changes up to log position `position`.
    pub fn sender<'a>(&'a self, thread: Option<usize>, outbox: &'a Outbox, position: u64) -> Sender<'a> {
        let Self { clients, threads, pubsub, .. } = self;
        Sender { clients, threads, pubsub, thread, outbox, position }
    }

    /// Counts the error `line` as a reply to a command of a blocked client. `thread` is the calling
    /// I/O thread, which served the client.
    pub fn count_failure(&self, thread: usize, registered: &Registered, line: &[u8]) {
        let stats = &self.threads[thread].stats;
        stats.errors.add(1);
        stats.commands[registered.id].failed.add(1);
        self.errors.count(line);
    }
}
