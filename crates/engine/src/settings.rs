//! The configuration options of the engine, as typed values. Each thread keeps a copy, and checks
//! once a turn for a newer one.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::Duration;

use bitflags::bitflags;
use commands::ValueLimits;
use structures::alloc;

use crate::fragmentation::CompactionSettings;
use crate::memory;
use crate::publish::notify::Notifications;
use crate::stats::Thresholds;
use crate::stats::hot_keys::Sampling;

/// The minimum number of bytes of pending output for which a client's output limit is checked after
/// a flush. Less output fits into a socket's buffer.
pub const OUTPUT_SHOWN_BYTES_MIN: usize = 16 * 1024;

/// The output limit of a client class: `client-output-buffer-limit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct OutputLimit {
    /// The number of bytes of unsent output above which the client is closed at once; 0 for no
    /// limit.
    pub hard_bytes: u64,
    /// The number of bytes of unsent output above which the client is closed after `soft_seconds`;
    /// 0 for no limit.
    pub soft_bytes: u64,
    /// The time for which a client's output may exceed the soft limit, in seconds.
    pub soft_seconds: u64,
}

impl OutputLimit {
    /// Returns the lower one of both output limits, in bytes: up to it no limit is exceeded.
    pub fn first_bytes(&self) -> u64 {
        let limits = [self.hard_bytes, self.soft_bytes];
        limits.into_iter().filter(|&bytes| bytes > 0).min().unwrap_or(u64::MAX)
    }
}

bitflags! {
    /// The kinds of events that the audit log records.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct AuditEvents: u8 {
        /// Requests that access control has refused are recorded in the audit log.
        const DENIED = 1 << 0;
        /// Attempts to log in are recorded, successful or not.
        const AUTH = 1 << 1;
        /// Commands in the ACL categories `admin` and `dangerous` are recorded.
        const ADMIN = 1 << 2;
        /// Commands that write are recorded in the audit log.
        const WRITE = 1 << 3;
        /// All commands are recorded in the audit log.
        const ALL = 1 << 4;
    }
}

/// The events that the audit log records, and the users whose events it records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// The kinds of events that the audit log records; empty without an audit log.
    pub events: AuditEvents,
    /// Patterns of the names of users whose events the audit log records. The last pattern that
    /// matches decides; a pattern after `!` excludes users. Events of a user whom no pattern
    /// matches are not recorded.
    pub users: Vec<Vec<u8>>,
}

/// The options that limit clients: their number, memory, output and idle time.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientLimits {
    /// `maxclients`: the most clients that may be connected.
    pub maxclients: usize,
    /// `timeout`: seconds without a request after which a client is closed; 0 for never.
    pub timeout_s: u64,
    /// `tcp-keepalive`: the silence after which a client is probed, in seconds; 0 for the system's
    /// default.
    pub tcp_keepalive_s: u64,
    /// `protected-mode`: without a password, only clients on this machine are served.
    pub protected_mode: bool,
    /// `auth-failure-delay`: the time between two login attempts of an address with several failed
    /// logins, in milliseconds; 0 for no delay.
    pub auth_failure_delay_ms: u64,
    /// `authentication-timeout`: seconds within which a client must authenticate; 0 for no limit.
    pub authentication_timeout_s: u64,
    /// `client-query-buffer-limit`: the most bytes of a client's unconsumed input.
    pub query_buffer_bytes_max: u64,
    /// `maxmemory-clients`: the memory that all clients together may take, in bytes; 0 for no
    /// limit.
    pub maxmemory_clients_bytes: u64,
    /// `client-output-buffer-limit normal`: the output limit of clients without subscriptions.
    pub output_limit: OutputLimit,
    /// `client-output-buffer-limit replica`: the output limit of replicas and monitors.
    pub replica_output_limit: OutputLimit,
    /// `client-output-buffer-limit pubsub`: the output limit of clients with subscriptions.
    pub pubsub_output_limit: OutputLimit,
}

/// The configuration options of the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// The limits of the sizes and encodings of values.
    pub limits: ValueLimits,
    /// `acl-pubsub-default`: the channels of new users.
    pub new_channels: NewChannels,
    /// `acllog-max-len`: the most entries of ACL LOG.
    pub acl_log_len_max: usize,
    /// `maxmemory`: the limit of used memory, in bytes; 0 for no limit.
    pub maxmemory_bytes: u64,
    /// The name that is the value of the option `maxmemory-policy`.
    pub maxmemory_policy: &'static str,
    /// True if `maxmemory-policy` counts accesses (LFU) instead of recording their times.
    pub lfu: bool,
    /// The policy by which keys are evicted; `None` for `noeviction`.
    pub eviction: Option<keyspace::Policy>,
    /// `maxmemory-samples`: the number of keys from which eviction chooses one.
    pub maxmemory_samples: usize,
    /// The longest time of one round of eviction, by `maxmemory-eviction-tenacity`; `None` for no
    /// limit.
    pub eviction_time: Option<Duration>,
    /// `lfu-log-factor`: a higher value makes the access counter of a key (LFU) grow more slowly.
    pub lfu_log_factor: u32,
    /// `lfu-decay-time`: the time after which the access counter of a key (LFU) decreases, in
    /// minutes.
    pub lfu_decay_minutes: u32,
    /// The option `tracking-table-max-keys`: the most keys in the tables of client-side caching.
    pub tracking_keys_max: usize,
    /// `turn-budget-us`: the time for which an I/O thread runs requests before it sends replies.
    pub turn_budget: Duration,
    /// `import-mode`: data is imported, so there is no active expiry and no eviction.
    pub import_mode: bool,
    /// `activedefrag` and `active-defrag-*`: the options of compaction.
    pub compaction: CompactionSettings,
    /// `active-expire-effort`: the CPU time that active expiry may use, from 1 (least) to 10.
    pub active_expire_effort: u32,
    /// `slowlog-*`, `commandlog-*`, `latency-monitor-threshold` and `latency-tracking`: the
    /// commands and events that are recorded.
    pub thresholds: Thresholds,
    /// `hotkeys-*`: the sampling of commands for the frequency of keys.
    pub key_sampling: Sampling,
    /// `busy-reply-threshold`: a script that runs for longer is busy; `None` for never.
    pub busy_threshold: Option<Duration>,
    /// The option `lua-memory-limit`: the memory limit for the Lua interpreter of a thread, in
    /// bytes; `None` for no limit.
    pub lua_bytes_max: Option<usize>,
    /// The option `stop-writes-on-bgsave-error`: true if clients may not write after a failed save.
    /// Always false if no snapshots are configured.
    pub stops_writes_on_save_error: bool,
    /// The value of `hz`, which is only shown and has no effect.
    pub hz: u32,
    /// `notify-keyspace-events`: the keyspace events that are published.
    pub notifications: Notifications,
    /// The options that limit clients: their number, memory, output and idle time.
    pub clients: ClientLimits,
    /// The events and users that the audit log records.
    pub audit: AuditFilter,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            maxclients: 10_000,
            timeout_s: 0,
            tcp_keepalive_s: 300,
            protected_mode: true,
            auth_failure_delay_ms: 0,
            authentication_timeout_s: 0,
            query_buffer_bytes_max: 1 << 30,
            maxmemory_clients_bytes: 0,
            output_limit: OutputLimit::default(),
            replica_output_limit: OutputLimit {
                hard_bytes: 256 << 20,
                soft_bytes: 64 << 20,
                soft_seconds: 60,
            },
            pubsub_output_limit: OutputLimit { hard_bytes: 32 << 20, soft_bytes: 8 << 20, soft_seconds: 60 },
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: ValueLimits::default(),
            new_channels: NewChannels::None,
            acl_log_len_max: 128,
            maxmemory_bytes: 0,
            maxmemory_policy: "noeviction",
            lfu: false,
            eviction: None,
            maxmemory_samples: 5,
            eviction_time: memory::time_limit(10),
            lfu_log_factor: 10,
            lfu_decay_minutes: 1,
            tracking_keys_max: 1_000_000,
            turn_budget: Duration::from_micros(500),
            import_mode: false,
            stops_writes_on_save_error: true,
            compaction: CompactionSettings::default(),
            active_expire_effort: 1,
            thresholds: Thresholds::default(),
            key_sampling: Sampling::default(),
            busy_threshold: Some(Duration::from_secs(5)),
            lua_bytes_max: None,
            hz: 10,
            notifications: Notifications::default(),
            clients: ClientLimits::default(),
            audit: AuditFilter::default(),
        }
    }
}

/// The channels that new users and selectors may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewChannels {
    /// New users may use no channels (`resetchannels`).
    None,
    /// New users may use all channels (`allchannels`).
    All,
}

/// The treatment of the checksums in RESTORE's payloads and in RDB files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksums {
    /// Checksums of payloads and files are compared with the data; a wrong one is an error.
    Compared,
    /// Checksums of payloads and files are ignored, so that damaged data is read.
    Skipped,
}

/// The current settings, shared by all threads.
#[derive(Debug)]
pub struct SharedSettings {
    current: RwLock<Arc<Settings>>,
    version: AtomicU64,
    /// The present value of [`ValueLimits::list_plain_len_min`], which DEBUG sets instead of a
    /// configuration option.
    list_plain_len_min: AtomicU32,
    /// The present value of [`ValueLimits::skips_checksums`], which DEBUG sets instead of a
    /// configuration option.
    skips_checksums: AtomicBool,
}

impl SharedSettings {
    /// Creates the shared settings from the options with which the server starts.
    pub fn new(settings: Settings) -> Self {
        alloc::keep_resident_close(memory::block_cache_bytes_max(settings.maxmemory_bytes));
        Self {
            current: RwLock::new(Arc::new(settings)),
            version: AtomicU64::new(1),
            list_plain_len_min: u32::MAX.into(),
            skips_checksums: false.into(),
        }
    }

    /// Returns the engine's settings as they are now.
    pub fn get(&self) -> Arc<Settings> {
        self.current.read().expect("nothing panics while settings are locked").clone()
    }

    /// Replaces the settings. Threads use the new ones from their next turn (pass of the event
    /// loop) on.
    pub fn set(&self, mut settings: Settings) {
        // Relaxed: DEBUG stores these values and then calls this function.
        settings.limits.list_plain_len_min = self.list_plain_len_min.load(Ordering::Relaxed);
        settings.limits.skips_checksums = self.skips_checksums.load(Ordering::Relaxed);
        alloc::keep_resident_close(memory::block_cache_bytes_max(settings.maxmemory_bytes));
        *self.current.write().expect("nothing panics while settings are locked") = Arc::new(settings);
        // Release: a thread that sees the new version finds the new settings; pairs with `version`.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Sets the least length of a list element that gets a node of its own; [`u32::MAX`] for only
    /// those that do not fit into a shared node. For DEBUG QUICKLIST-PACKED-THRESHOLD.
    pub fn set_list_plain_from(&self, len_bytes: u32) {
        self.list_plain_len_min.store(len_bytes, Ordering::Relaxed);
        self.set(Settings::clone(&self.get()));
    }

    /// Sets the treatment of checksums in RESTORE's payloads and in snapshot files, for DEBUG
    /// SET-SKIP-CHECKSUM-VALIDATION.
    pub fn set_checksums(&self, checksums: Checksums) {
        self.skips_checksums.store(checksums == Checksums::Skipped, Ordering::Relaxed);
        self.set(Settings::clone(&self.get()));
    }

    /// Returns the version of the settings, by which threads notice a change; it increases with
    /// each change.
    #[inline]
    pub fn version(&self) -> u64 {
        // Acquire: pairs with the Release in `set`.
        self.version.load(Ordering::Acquire)
    }
}

/// The length of a string, in bytes, that is accepted in the replication stream of a primary even
/// if `proto-max-bulk-len` is lower.
const STREAM_STRING_LEN_BYTES_MAX: u64 = 4 << 30;

impl Settings {
    /// Returns the settings with which commands of a primary's replication stream or of an
    /// append-only file run. Forms of commands that only clients may not use are accepted.
    pub(crate) fn for_records(&self) -> Self {
        let mut settings = self.clone();
        settings.limits.takes_unknown_dumps = true;
        settings.limits.takes_recorded_forms = true;
        settings
    }

    /// Returns the settings for the replication stream of a primary: those of
    /// [`for_records`](Self::for_records), without the limits for clients. The primary may permit
    /// longer strings than this server. A bound remains, so that a damaged stream cannot request an
    /// arbitrary amount of memory.
    pub(crate) fn for_stream(&self) -> Self {
        let mut settings = self.for_records();
        settings.maxmemory_bytes = 0;
        settings.clients.query_buffer_bytes_max = u64::MAX;
        let string_len_bytes_max = &mut settings.limits.string_len_bytes_max;
        *string_len_bytes_max = (*string_len_bytes_max).max(STREAM_STRING_LEN_BYTES_MAX);
        settings
    }

    /// Returns the number of bytes of unsent output above which a subscriber's output limits must
    /// be checked.
    pub fn notable_output_bytes(&self) -> u64 {
        let limit = self.clients.pubsub_output_limit.first_bytes();
        if self.clients.maxmemory_clients_bytes > 0 {
            limit.min(OUTPUT_SHOWN_BYTES_MIN as u64)
        } else {
            limit
        }
    }

    /// Returns the limits that the parser applies to a client's request (numbers and lengths of
    /// arguments).
    pub fn parse_limits(&self) -> resp::parse::Limits {
        resp::parse::Limits {
            bulk_len_max: self.limits.string_len_bytes_max,
            ..resp::parse::Limits::default()
        }
    }
}
