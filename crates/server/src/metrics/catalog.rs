//! All metrics: their names, types, labels and meanings. docs/metrics.md is generated from this
//! catalog.
//!
//! The names here omit the prefix `saker_` and the suffix `_total` of counters. A name ends with
//! the unit: `_bytes`, `_seconds`, `_ratio`. A name without a unit is a plain number. A field of
//! INFO has a metric only if this catalog lists it. Every other number of INFO is in [`LEFT_OUT`],
//! with the reason. Source: <https://prometheus.io/docs/practices/naming/>.

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows, until CONFIG RESETSTAT or a restart.
    Counter,
    /// A number that can increase and decrease.
    Gauge,
    /// Percentiles.
    Summary,
    /// The numbers of values up to each of several limits.
    Histogram,
    /// Texts, as labels of a gauge whose value is 1.
    Info,
}

impl Kind {
    /// Returns the name of the type in both formats. The text format has no type for
    /// [`Kind::Info`].
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
            Self::Info => "info",
        }
    }
}

/// A metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name without `saker_` and `_total`; empty for `saker_info`.
    pub name: &'static str,
    /// The type.
    pub kind: Kind,
    /// The labels, without `le` and `quantile`, which the type implies.
    pub labels: &'static [&'static str],
    /// The description.
    pub help: &'static str,
}

impl Metric {
    /// Returns the unit at the end of the name; `None` without a unit.
    pub fn unit(&self) -> Option<&'static str> {
        let has = |unit: &str| self.name.strip_suffix(unit).is_some_and(|rest| rest.ends_with('_'));
        ["bytes", "seconds", "ratio"].into_iter().find(|unit| has(unit))
    }

    /// Returns the full name for queries. For a histogram or a summary, this is the common prefix
    /// of the names of its series.
    pub fn query_name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("saker_{}_total", self.name),
            Kind::Info => "saker_info".to_owned(),
            _ => format!("saker_{}", self.name),
        }
    }
}

const fn metric(kind: Kind, name: &'static str, help: &'static str) -> Metric {
    Metric { name, kind, labels: &[], help }
}

const fn labelled(
    kind: Kind,
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind, labels, help }
}

/// A numeric field of INFO, and its metric.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The name of the field, or of a part of a field. The values `ok` and `err` are converted to 1
    /// and 0. The value -1 means that there is no value, so no sample is added.
    pub info: &'static str,
    /// The number in INFO divided by this gives the value in the metric's unit.
    pub per_unit: f64,
    /// The metric.
    pub metric: Metric,
}

const fn counter(info: &'static str, name: &'static str, help: &'static str) -> Field {
    Field { info, per_unit: 1.0, metric: metric(Kind::Counter, name, help) }
}

const fn gauge(info: &'static str, name: &'static str, help: &'static str) -> Field {
    Field { info, per_unit: 1.0, metric: metric(Kind::Gauge, name, help) }
}

impl Field {
    const fn per(self, per_unit: f64) -> Self {
        Self { per_unit, ..self }
    }

    const fn by(self, labels: &'static [&'static str]) -> Self {
        Self { metric: Metric { labels, ..self.metric }, ..self }
    }
}

/// The fields of INFO that consist of one number.
pub const FIELDS: &[Field] = &[
    // Server and clients.
    gauge("uptime_in_seconds", "uptime_seconds", "How long the server has been running."),
    gauge("connected_clients", "connected_clients", "Client connections that are open."),
    gauge("maxclients", "maxclients", "The most client connections that may be open: option maxclients."),
    gauge(
        "client_recent_max_input_buffer",
        "client_input_buffer_max_bytes",
        "The largest unfinished request of a connected client.",
    ),
    gauge(
        "client_recent_max_output_buffer",
        "client_output_buffer_max_bytes",
        "The most unsent replies of a connected client. It grows when a client does not read.",
    ),
    gauge("blocked_clients", "blocked_clients", "Clients that wait for a key, or for CLIENT PAUSE to end."),
    gauge(
        "paused_timeout_milliseconds",
        "pause_left_seconds",
        "How long CLIENT PAUSE still holds clients back.",
    )
    .per(1e3),
    gauge("tracking_clients", "tracking_clients", "Clients with client-side caching switched on."),
    gauge("pubsub_clients", "pubsub_clients", "Clients that are subscribed to something."),
    gauge("watching_clients", "watching_clients", "Clients that watch a key for a transaction."),
    gauge(
        "clients_in_timeout_table",
        "clients_in_timeout_table",
        "Blocked clients whose wait has a timeout.",
    ),
    gauge("total_watched_keys", "watched_keys", "Keys that clients watch, counted once for each client."),
    gauge("total_blocking_keys", "blocking_keys", "Keys that at least one blocked client waits for."),
    gauge(
        "total_blocking_keys_on_nokey",
        "blocking_keys_on_nokey",
        "Keys whose blocked clients are also woken when the key is deleted: streams that XREADGROUP waits for.",
    ),
    // Memory.
    gauge("used_memory", "used_memory_bytes", "Memory that the allocator has handed out."),
    gauge(
        "used_memory_rss",
        "used_memory_rss_bytes",
        "Resident memory of the process, as the kernel counts it.",
    ),
    gauge("used_memory_peak", "used_memory_peak_bytes", "The most memory ever handed out since the start."),
    gauge(
        "used_memory_overhead",
        "used_memory_overhead_bytes",
        "The part of the used memory that is not data: the server itself, clients, tables of keys.",
    ),
    gauge("used_memory_startup", "used_memory_startup_bytes", "Used memory right after the start."),
    gauge(
        "used_memory_dataset",
        "used_memory_dataset_bytes",
        "Used memory without the overhead: keys and values.",
    ),
    gauge(
        "allocator_active",
        "allocator_active_bytes",
        "Memory that the allocator holds: what it has handed out, and free memory that it keeps.",
    ),
    gauge("allocator_resident", "allocator_resident_bytes", "Resident memory of heap and stacks."),
    gauge("total_system_memory", "system_memory_bytes", "Memory of the machine."),
    gauge("maxmemory", "maxmemory_bytes", "The limit of used memory, option maxmemory; 0 for none."),
    gauge("allocator_frag_ratio", "allocator_frag_ratio", "Memory the allocator holds, over used memory."),
    gauge(
        "allocator_rss_ratio",
        "allocator_rss_ratio",
        "Resident heap and stacks, over what the allocator holds.",
    ),
    gauge("rss_overhead_ratio", "rss_overhead_ratio", "Resident memory, over resident heap and stacks."),
    gauge("mem_fragmentation_ratio", "mem_fragmentation_ratio", "Resident memory, over used memory."),
    gauge(
        "mem_not_counted_for_evict",
        "mem_not_counted_for_evict_bytes",
        "Used memory that does not count towards maxmemory: values about to be freed, and pushed messages.",
    ),
    gauge(
        "mem_clients_normal",
        "mem_clients_normal_bytes",
        "Requests and replies that clients make the server hold.",
    ),
    gauge(
        "lazyfree_pending_objects",
        "lazyfree_pending_objects",
        "Deleted values that wait to be freed in the background.",
    ),
    counter("lazyfreed_objects", "lazyfreed_objects", "Deleted values that were freed in the background."),
    // Persistence.
    gauge(
        "rdb_changes_since_last_save",
        "rdb_changes_since_last_save",
        "Changes to the data since it was last saved.",
    ),
    gauge(
        "rdb_last_save_time",
        "rdb_last_save_time_seconds",
        "When the last save that succeeded ended, in seconds since 1970 began; until then the server's start.",
    ),
    gauge(
        "rdb_last_bgsave_status",
        "rdb_last_bgsave_success",
        "1 when the last save succeeded or there was none yet, 0 when it failed.",
    ),
    gauge("rdb_bgsave_in_progress", "rdb_bgsave_in_progress", "1 while a snapshot is written, else 0."),
    gauge(
        "rdb_current_bgsave_time_sec",
        "rdb_current_bgsave_seconds",
        "For how long the snapshot under way has been written; absent when there is none.",
    ),
    gauge(
        "rdb_last_bgsave_time_sec",
        "rdb_last_bgsave_seconds",
        "How long it took to write the last snapshot; absent before the first.",
    ),
    counter("rdb_saves", "rdb_saves", "Snapshots that were written."),
    gauge(
        "current_save_keys_processed",
        "current_save_keys_processed",
        "Keys that the snapshot under way has so far.",
    ),
    gauge(
        "current_save_keys_total",
        "current_save_keys",
        "Keys that the snapshot under way will have; 0 when there is none.",
    ),
    gauge(
        "current_cow_size",
        "current_cow_bytes",
        "Data kept as it was because writers changed it before the snapshot under way had it.",
    ),
    gauge("current_cow_peak", "current_cow_peak_bytes", "The most of that since this snapshot began."),
    gauge("rdb_last_cow_size", "rdb_last_cow_bytes", "The most of that during the last snapshot."),
    gauge("loading", "loading", "1 while the server loads its data and refuses most commands, else 0."),
    gauge(
        "rdb_last_load_keys_loaded",
        "rdb_last_load_keys_loaded",
        "How many the server has read from its file, at the start or by DEBUG RELOAD.",
    ),
    gauge(
        "rdb_last_load_keys_expired",
        "rdb_last_load_keys_expired",
        "How many it left out because their time to live had ended.",
    ),
    // Requests and bytes.
    counter("total_connections_received", "connections_received", "Client connections that were accepted."),
    counter("total_commands_processed", "commands_processed", "Requests that were run."),
    counter("total_net_input_bytes", "net_input_bytes", "What clients have sent."),
    counter("total_net_output_bytes", "net_output_bytes", "What was sent to clients."),
    counter(
        "rejected_connections",
        "rejected_connections",
        "Connections refused because maxclients were open.",
    ),
    counter("total_error_replies", "error_replies", "Requests that were answered with an error."),
    counter(
        "unexpected_error_replies",
        "unexpected_error_replies",
        "Requests ended by a defect of the server: a command used a key that it does not declare.",
    ),
    counter("scripts_parallel", "scripts_parallel", "Scripts that ran under the locks of their keys."),
    counter("scripts_alone", "scripts_alone", "Scripts that ran while nobody else did anything."),
    counter("scripts_rerun", "scripts_rerun", "Scripts that were ended to run again alone."),
    counter("total_reads_processed", "reads_processed", "How often bytes were received from a connection."),
    counter("total_writes_processed", "writes_processed", "How often bytes were sent to a connection."),
    counter(
        "client_query_buffer_limit_disconnections",
        "client_query_buffer_limit_disconnections",
        "Clients closed because a request exceeded client-query-buffer-limit.",
    ),
    counter(
        "client_output_buffer_limit_disconnections",
        "client_output_buffer_limit_disconnections",
        "Clients closed because unsent replies exceeded client-output-buffer-limit.",
    ),
    counter("acl_access_denied_auth", "acl_access_denied_auth", "Failed attempts to authenticate."),
    counter("acl_access_denied_cmd", "acl_access_denied_cmd", "Requests refused for their command."),
    counter("acl_access_denied_key", "acl_access_denied_key", "Requests refused for a key."),
    counter("acl_access_denied_channel", "acl_access_denied_channel", "Requests refused for a channel."),
    counter("acl_access_denied_db", "acl_access_denied_db", "Requests refused for a database."),
    counter("auth_delayed", "auth_delayed", "Tries to log in that had to wait (auth-failure-delay)."),
    counter(
        "auth_refused",
        "auth_refused",
        "Tries to log in that were refused unseen, since too many waited.",
    ),
    gauge("auth_failing_addresses", "auth_failing_addresses", "Addresses that have failed to log in."),
    counter("audit_log_lines", "audit_log_lines", "Events that the audit log has noted."),
    counter(
        "audit_log_lost",
        "audit_log_lost",
        "Lines of the audit log that were lost: the file was too slow or full.",
    ),
    counter("oidc_logins", "oidc_logins", "Logins with a token."),
    counter("oidc_refused", "oidc_refused", "Tokens that were refused."),
    gauge("oidc_keys", "oidc_keys", "Known keys of the identity provider."),
    counter("eventloop_cycles", "eventloop_cycles", "Turns of the I/O threads' event loops."),
    counter(
        "eventloop_duration_sum",
        "eventloop_seconds",
        "Time of these turns, without waiting for something to do.",
    )
    .per(1e6),
    counter(
        "eventloop_duration_cmd_sum",
        "eventloop_command_seconds",
        "The part of that time in which requests ran.",
    )
    .per(1e6),
    counter(
        "dump_payload_sanitizations",
        "dump_payload_sanitizations",
        "Payloads of RESTORE that were checked in depth.",
    ),
    gauge(
        "migrate_cached_sockets",
        "migrate_cached_sockets",
        "Connections to other servers that MIGRATE keeps open.",
    ),
    // The change log.
    gauge("change_log_active", "change_log_active", "1 while the change log has a reader, else 0."),
    counter(
        "change_log_position",
        "change_log_units",
        "Commands and transactions that the change log has recorded.",
    ),
    counter(
        "change_log_released_position",
        "change_log_released_units",
        "Of those, how many every reader has confirmed, so that replies that show them may leave.",
    ),
    counter(
        "change_log_offset",
        "change_log_stream_bytes",
        "Length of what the change log's readers were given.",
    ),
    gauge(
        "change_log_pending_bytes",
        "change_log_pending_bytes",
        "Recorded changes that wait to be given to readers.",
    ),
    gauge(
        "change_log_waiting_replies",
        "change_log_waiting_replies",
        "Parts of connections' output that wait for a reader to confirm what they show.",
    ),
    counter(
        "change_log_reply_wait_usec",
        "change_log_reply_wait_seconds",
        "How long such parts have waited in all.",
    )
    .per(1e6),
    gauge(
        "change_log_reply_wait_usec_max",
        "change_log_reply_wait_max_seconds",
        "The longest time that such a part has waited, since CONFIG RESETSTAT.",
    )
    .per(1e6),
    // The keyspace, expiry and eviction.
    counter("keyspace_hits", "keyspace_hits", "Keys that a reading command found."),
    counter("keyspace_misses", "keyspace_misses", "Keys that a reading command did not find."),
    counter("expired_keys", "expired_keys", "Keys removed because their time to live had ended."),
    counter(
        "expired_subkeys",
        "expired_subkeys",
        "Fields of hashes removed because their time to live had ended.",
    ),
    gauge(
        "expired_stale_perc",
        "expired_stale_ratio",
        "Share of the keys with a time to live that have expired and are still there, as estimated.",
    )
    .per(100.0),
    counter(
        "expired_time_cap_reached_count",
        "expired_time_cap_reached",
        "How often active expiry stopped before it was done, to leave time for requests.",
    ),
    counter("expire_cycle_cpu_milliseconds", "expire_cycle_cpu_seconds", "Time that active expiry took.")
        .per(1e3),
    counter("evicted_keys", "evicted_keys", "Keys removed because used memory exceeded maxmemory."),
    counter(
        "evicted_clients",
        "evicted_clients",
        "Clients closed because their memory exceeded maxmemory-clients.",
    ),
    counter(
        "total_eviction_exceeded_time",
        "eviction_exceeded_seconds",
        "How long used memory has exceeded maxmemory, all times together.",
    )
    .per(1e3),
    gauge(
        "current_eviction_exceeded_time",
        "current_eviction_exceeded_seconds",
        "How long used memory has exceeded maxmemory without a break; 0 when it does not.",
    )
    .per(1e3),
    // Pub/sub and tracking.
    gauge("pubsub_channels", "pubsub_channels", "Channels that have subscribers."),
    gauge("pubsub_patterns", "pubsub_patterns", "Patterns that have subscribers."),
    gauge("pubsubshard_channels", "pubsubshard_channels", "Shard channels that have subscribers."),
    gauge("tracking_total_keys", "tracking_keys", "Keys that clients cache, as far as the server remembers."),
    gauge("tracking_total_items", "tracking_items", "Pairs of such a key and a client that caches it."),
    gauge(
        "tracking_total_prefixes",
        "tracking_prefixes",
        "Prefixes that clients get broadcast invalidations for.",
    ),
    // CPU.
    counter("used_cpu_sys", "used_cpu_sys_seconds", "CPU time of the process in the kernel."),
    counter("used_cpu_user", "used_cpu_user_seconds", "CPU time of the process in user space."),
    gauge(
        "tls_server_cert_expires_in_seconds",
        "tls_server_certificate_expires_in_seconds",
        "Seconds until the server's TLS certificate expires, 0 when it has, or without TLS.",
    ),
    gauge(
        "tls_client_cert_expires_in_seconds",
        "tls_client_certificate_expires_in_seconds",
        "Seconds until the TLS certificate for other servers expires, 0 when it has, or without one.",
    ),
    gauge(
        "tls_ca_cert_expires_in_seconds",
        "tls_ca_certificate_expires_in_seconds",
        "Seconds until the first certificate of tls-ca-cert-file expires, 0 when it has, or without one.",
    ),
    counter("tls_full_handshakes", "tls_full_handshakes", "TLS handshakes that made new keys."),
    counter("tls_resumed_handshakes", "tls_resumed_handshakes", "TLS handshakes that resumed a session."),
    counter(
        "tls_failed_handshakes",
        "tls_failed_handshakes",
        "TLS handshakes that failed, or took longer than ten seconds.",
    ),
];

/// The fields of INFO that exist only while the server loads its data.
pub const WHILE_LOADING: &[Field] = &[
    gauge(
        "loading_total_bytes",
        "loading_total_bytes",
        "Size of the file that the server loads; absent at other times.",
    ),
    gauge("loading_loaded_bytes", "loading_loaded_bytes", "How much of that file was read so far."),
];

/// A section of INFO whose fields have named parts: `cmdstat_get:calls=1,usec=2`.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The section.
    pub section: &'static str,
    /// The text before the label's value in the field's name.
    pub prefix: &'static str,
    /// The parts, all with the same label.
    pub fields: &'static [Field],
}

/// The section of commands; `metrics-per-command` controls it.
pub const COMMANDS: Parts = Parts {
    section: "commandstats",
    prefix: "cmdstat_",
    fields: &[
        counter("calls", "command_calls", "How often a command was run.").by(&["command"]),
        counter("usec", "command_duration_seconds", "Time spent running a command.")
            .per(1e6)
            .by(&["command"]),
        counter(
            "rejected_calls",
            "command_rejected_calls",
            "Calls of a command that were refused before it ran.",
        )
        .by(&["command"]),
        counter("failed_calls", "command_failed_calls", "Calls of a command that ended in an error.")
            .by(&["command"]),
    ],
};

/// The other sections whose fields have named parts.
pub const PARTS: &[Parts] = &[
    Parts {
        section: "errorstats",
        prefix: "errorstat_",
        fields: &[counter("count", "errors", "Error replies by their code, the first word.").by(&["code"])],
    },
    Parts {
        section: "keyspace",
        prefix: "db",
        fields: &[
            gauge("keys", "db_keys", "Keys in a database; one without keys is left out.").by(&["db"]),
            gauge("expires", "db_expires", "Keys in a database that have a time to live.").by(&["db"]),
            gauge(
                "avg_ttl",
                "db_avg_ttl_seconds",
                "Mean time to live of the keys that have one, as estimated.",
            )
            .per(1e3)
            .by(&["db"]),
            gauge("subexpiry", "db_subexpiry", "Hashes in a database that have fields with a time to live.")
                .by(&["db"]),
        ],
    },
    Parts {
        section: "threads",
        prefix: "io_thread_",
        fields: &[
            gauge("clients", "io_thread_clients", "Client connections that an I/O thread serves.")
                .by(&["thread"]),
            counter("reads", "io_thread_reads", "How often an I/O thread received bytes from a connection.")
                .by(&["thread"]),
            counter("writes", "io_thread_writes", "How often an I/O thread sent bytes to a connection.")
                .by(&["thread"]),
            counter("commands", "io_thread_commands", "Requests that an I/O thread ran.").by(&["thread"]),
            counter("turns", "io_thread_turns", "Turns of an I/O thread's event loop.").by(&["thread"]),
        ],
    },
];

/// The texts of INFO, as labels.
pub const INFO: Metric = labelled(
    Kind::Info,
    "",
    &[
        "redis_version",
        "saker_version",
        "redis_mode",
        "os",
        "io_backend",
        "run_id",
        "role",
        "maxmemory_policy",
        "mem_allocator",
    ],
    "Versions, platform and settings that are words. Always 1.",
);
/// The numbers of keys by size.
pub const KEY_SIZES: Metric = labelled(
    Kind::Gauge,
    "db_key_sizes",
    &["db", "type", "size"],
    "Keys of a type by size, from `size` to less than twice that: bytes of strings, elements of other types.",
);
/// The durations of all requests.
pub const REQUEST_SECONDS: Metric = metric(
    Kind::Histogram,
    "request_seconds",
    "Time from the arrival of a request until its reply was sent, over all commands; without blocking commands.",
);
/// The durations of each command, for `metrics-per-command histograms`.
pub const COMMAND_SECONDS: Metric = labelled(
    Kind::Histogram,
    "command_seconds",
    &["command"],
    "Time that a call of a command took by itself. Only with metrics-per-command histograms.",
);
/// The percentiles of the durations of each command, for `metrics-per-command percentiles`.
pub const COMMAND_LATENCY: Metric = labelled(
    Kind::Summary,
    "command_latency_seconds",
    &["command"],
    "Percentiles of a command's own times since the start. Only with metrics-per-command percentiles.",
);
/// The CPU time of threads.
pub const THREAD_CPU: Metric = labelled(
    Kind::Counter,
    "thread_cpu_seconds",
    &["thread"],
    "Time that threads of this name were running on a core.",
);
/// The time that threads were ready to run and waited for a core.
pub const THREAD_WAIT: Metric = labelled(
    Kind::Counter,
    "thread_wait_seconds",
    &["thread"],
    "Time that threads of this name were ready to run and had no core.",
);
/// The start time of the server.
pub const START_TIME: Metric = metric(
    Kind::Gauge,
    "start_time_seconds",
    "When the server started, in seconds since 1970 began (Unix time).",
);
/// The number of open files.
pub const OPEN_FDS: Metric =
    metric(Kind::Gauge, "open_fds", "File descriptors that the process has open; each connection is one.");
/// The maximum number of open files.
pub const MAX_FDS: Metric = metric(
    Kind::Gauge,
    "max_fds",
    "The most file descriptors that the process may open (ulimit -n); absent without a limit.",
);

/// The metrics that are not fields of INFO, and those that combine many fields.
pub const OTHERS: &[&Metric] = &[
    &INFO,
    &KEY_SIZES,
    &REQUEST_SECONDS,
    &COMMAND_SECONDS,
    &COMMAND_LATENCY,
    &THREAD_CPU,
    &THREAD_WAIT,
    &START_TIME,
    &OPEN_FDS,
    &MAX_FDS,
];

/// Returns all metrics.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let of_parts = std::iter::once(&COMMANDS).chain(PARTS).flat_map(|parts| parts.fields);
    FIELDS
        .iter()
        .chain(WHILE_LOADING)
        .chain(of_parts)
        .map(|field| &field.metric)
        .chain(OTHERS.iter().copied())
}

/// Numbers of INFO that have no metric, grouped by the reason.
pub const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "constant, a setting, or about the moment of INFO",
        &[
            "redis_git_sha1",
            "redis_git_dirty",
            "arch_bits",
            "process_id",
            "tcp_port",
            "server_time_usec",
            "hz",
            "configured_hz",
            "lru_clock",
            "io_threads_active",
            "cluster_enabled",
            "hotkeys_last_window_samples",
            "hotkeys_last_window_duration_ms",
        ],
    ),
    (
        "another metric has it, or a query gets it from others",
        &[
            "uptime_in_days",
            "current_fork_perc",
            "allocator_allocated",
            "allocator_frag_bytes",
            "allocator_rss_bytes",
            "rss_overhead_bytes",
            "mem_fragmentation_bytes",
            "instantaneous_ops_per_sec",
            "instantaneous_input_kbps",
            "instantaneous_output_kbps",
            "instantaneous_eventloop_cycles_per_sec",
            "instantaneous_eventloop_duration_usec",
            "io_threaded_reads_processed",
            "io_threaded_writes_processed",
            "used_cpu_sys_main_thread",
            "used_cpu_user_main_thread",
        ],
    ),
    (
        "always the same, because the server does not do that",
        &[
            "cluster_connections",
            "allocator_muzzy",
            "used_memory_lua",
            "used_memory_vm_eval",
            "used_memory_scripts_eval",
            "number_of_cached_scripts",
            "number_of_functions",
            "number_of_libraries",
            "used_memory_vm_functions",
            "used_memory_vm_total",
            "used_memory_functions",
            "used_memory_scripts",
            "mem_replication_backlog",
            "mem_total_replication_buffers",
            "mem_replica_full_sync_buffer",
            "mem_clients_slaves",
            "mem_cluster_links",
            "mem_aof_buffer",
            "mem_overhead_db_hashtable_rehashing",
            "active_defrag_running",
            "async_loading",
            "current_cow_size_age",
            "aof_enabled",
            "aof_rewrite_in_progress",
            "aof_rewrite_scheduled",
            "aof_last_rewrite_time_sec",
            "aof_current_rewrite_time_sec",
            "aof_rewrites",
            "aof_rewrites_consecutive_failures",
            "aof_last_cow_size",
            "module_fork_in_progress",
            "module_fork_last_cow_size",
            "total_net_repl_input_bytes",
            "total_net_repl_output_bytes",
            "instantaneous_input_repl_kbps",
            "instantaneous_output_repl_kbps",
            "sync_full",
            "sync_partial_ok",
            "sync_partial_err",
            "evicted_scripts",
            "latest_fork_usec",
            "total_forks",
            "slave_expires_tracked_keys",
            "active_defrag_hits",
            "active_defrag_misses",
            "active_defrag_key_hits",
            "active_defrag_key_misses",
            "total_active_defrag_time",
            "current_active_defrag_time",
            "reply_buffer_shrinks",
            "reply_buffer_expands",
            "connected_slaves",
            "master_replid",
            "master_replid2",
            "master_repl_offset",
            "second_repl_offset",
            "repl_backlog_active",
            "repl_backlog_size",
            "repl_backlog_first_byte_offset",
            "repl_backlog_histlen",
            "used_cpu_sys_children",
            "used_cpu_user_children",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_metric_has_a_name_of_its_own_and_a_help_that_adds_to_it() {
        let words = |text: &str| -> BTreeSet<String> {
            let letters = text.to_lowercase();
            letters.split(|c: char| !c.is_alphanumeric()).filter(|w| w.len() > 2).map(str::to_owned).collect()
        };
        let mut names = BTreeSet::new();
        for metric in all() {
            assert!(names.insert(metric.name), "{} comes twice", metric.name);
            let ends_well = !metric.name.ends_with("_total") && !metric.name.ends_with("_count");
            assert!(ends_well, "{}: its format adds that", metric.name);
            let added = words(metric.help).difference(&words(metric.name)).count();
            assert!(added >= 2, "{}: {:?} repeats the name", metric.name, metric.help);
            assert!(
                metric.help.ends_with('.') && !metric.help.contains(['\n', '\\', '"']),
                "{}",
                metric.help
            );
        }
    }

    #[test]
    fn what_is_left_out_has_no_metric() {
        let left_out: Vec<&str> = LEFT_OUT.iter().flat_map(|(_, names)| *names).copied().collect();
        assert_eq!(left_out.iter().collect::<BTreeSet<_>>().len(), left_out.len());
        for field in FIELDS {
            assert!(!left_out.contains(&field.info), "{}", field.info);
        }
    }
}
