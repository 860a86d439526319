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
    /// A metric that only grows, until CONFIG RESETSTAT or a restart.
    Counter,
    /// A metric that may increase or decrease.
    Gauge,
    /// A metric that consists of percentiles of values, such as the median.
    Summary,
    /// A metric that consists of the numbers of values up to each of several upper limits
    /// (buckets).
    Histogram,
    /// A metric that consists of texts, as the labels of a gauge whose value is always 1.
    Info,
}

impl Kind {
    /// Returns the name of the type in a page, for the text format of Prometheus and for
    /// OpenMetrics. The text format has no type for [`Kind::Info`].
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

/// A metric that the server exports: its name, type, labels and help text.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// The name of the metric without `saker_` and `_total`; empty for `saker_info`.
    pub name: &'static str,
    /// The type of the metric.
    pub kind: Kind,
    /// The names of the labels, without `le` and `quantile`, which the type implies.
    pub labels: &'static [&'static str],
    /// The description of the metric in the page and in docs/metrics.md.
    pub help: &'static str,
}

impl Metric {
    /// Returns the unit at the end of the name; `None` for a plain number.
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
    /// The name of the field of INFO, or of a part of a field. The values `ok` and `err` are
    /// converted to 1 and 0. The value -1 means that there is no value, so no sample is added.
    pub info: &'static str,
    /// The divisor that converts the number in INFO to the metric's unit.
    pub per_unit: f64,
    /// The metric that the field becomes.
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
    gauge("uptime_in_seconds", "uptime_seconds", "Time since the start of the server."),
    gauge("connected_clients", "connected_clients", "Open client connections."),
    gauge("maxclients", "maxclients", "Maximum number of client connections (option maxclients)."),
    gauge(
        "client_recent_max_input_buffer",
        "client_input_buffer_max_bytes",
        "Size of the largest unfinished request among the connected clients.",
    ),
    gauge(
        "client_recent_max_output_buffer",
        "client_output_buffer_max_bytes",
        "Largest size of unsent replies among the connected clients. It grows if a client does not \
         read.",
    ),
    gauge(
        "blocked_clients",
        "blocked_clients",
        "Clients that wait for a key or for the end of CLIENT PAUSE.",
    ),
    gauge(
        "paused_timeout_milliseconds",
        "pause_left_seconds",
        "Time until CLIENT PAUSE ends; 0 without a pause.",
    )
    .per(1e3),
    gauge("tracking_clients", "tracking_clients", "Clients with client-side caching (CLIENT TRACKING)."),
    gauge("pubsub_clients", "pubsub_clients", "Clients with at least one subscription."),
    gauge("watching_clients", "watching_clients", "Clients that watch keys for a transaction (WATCH)."),
    gauge("clients_in_timeout_table", "clients_in_timeout_table", "Blocked clients with a timeout."),
    gauge(
        "total_watched_keys",
        "watched_keys",
        "Keys that clients watch; a key that several clients watch counts for each of them.",
    ),
    gauge("total_blocking_keys", "blocking_keys", "Keys that at least one blocked client waits for."),
    gauge(
        "total_blocking_keys_on_nokey",
        "blocking_keys_on_nokey",
        "Keys that blocked clients of XREADGROUP wait for. The removal of such a key wakes the \
         clients, too.",
    ),
    // Memory.
    gauge("used_memory", "used_memory_bytes", "Memory that the allocator has allocated."),
    gauge(
        "used_memory_rss",
        "used_memory_rss_bytes",
        "Resident memory of the process, as reported by the kernel.",
    ),
    gauge("used_memory_peak", "used_memory_peak_bytes", "Maximum of used memory since the start."),
    gauge(
        "used_memory_overhead",
        "used_memory_overhead_bytes",
        "Used memory that is not data: the server itself, clients, and tables of keys.",
    ),
    gauge("used_memory_startup", "used_memory_startup_bytes", "Used memory at the end of the start."),
    gauge(
        "used_memory_dataset",
        "used_memory_dataset_bytes",
        "Used memory of keys and values: used memory without the overhead.",
    ),
    gauge(
        "allocator_active",
        "allocator_active_bytes",
        "Memory that the allocator holds: used memory and free memory for reuse.",
    ),
    gauge("allocator_resident", "allocator_resident_bytes", "Resident memory of heap and stacks."),
    gauge("total_system_memory", "system_memory_bytes", "Total memory of the machine."),
    gauge("maxmemory", "maxmemory_bytes", "Limit of used memory (option maxmemory); 0 for no limit."),
    gauge(
        "allocator_frag_ratio",
        "allocator_frag_ratio",
        "Memory that the allocator holds, divided by used memory.",
    ),
    gauge(
        "allocator_rss_ratio",
        "allocator_rss_ratio",
        "Resident memory of heap and stacks, divided by memory that the allocator holds.",
    ),
    gauge(
        "rss_overhead_ratio",
        "rss_overhead_ratio",
        "Resident memory of the process, divided by resident memory of heap and stacks.",
    ),
    gauge(
        "mem_fragmentation_ratio",
        "mem_fragmentation_ratio",
        "Resident memory of the process, divided by used memory.",
    ),
    gauge(
        "mem_not_counted_for_evict",
        "mem_not_counted_for_evict_bytes",
        "Used memory that does not count against maxmemory: removed values not freed yet, pushed \
         messages, the change log, data held for a snapshot, and stream and snapshots kept for replicas.",
    ),
    gauge("mem_clients_normal", "mem_clients_normal_bytes", "Memory for requests and replies of clients."),
    gauge(
        "lazyfree_pending_objects",
        "lazyfree_pending_objects",
        "Removed values that wait to be freed in the background.",
    ),
    counter("lazyfreed_objects", "lazyfreed_objects", "Removed values that were freed in the background."),
    // Persistence.
    gauge(
        "rdb_changes_since_last_save",
        "rdb_changes_since_last_save",
        "Changes to the data since the last successful save.",
    ),
    gauge(
        "rdb_last_save_time",
        "rdb_last_save_time_seconds",
        "Unix time of the last successful save; before the first, the start time of the server.",
    ),
    gauge(
        "rdb_last_bgsave_status",
        "rdb_last_bgsave_success",
        "1 if the last save succeeded or there was none yet, 0 if it failed.",
    ),
    gauge("rdb_bgsave_in_progress", "rdb_bgsave_in_progress", "1 while a snapshot is written, else 0."),
    gauge(
        "rdb_current_bgsave_time_sec",
        "rdb_current_bgsave_seconds",
        "Duration so far of the snapshot in progress; absent without one.",
    ),
    gauge(
        "rdb_last_bgsave_time_sec",
        "rdb_last_bgsave_seconds",
        "Duration of the last snapshot; absent before the first.",
    ),
    counter("rdb_saves", "rdb_saves", "Snapshots that were written successfully."),
    gauge(
        "current_save_keys_processed",
        "current_save_keys_processed",
        "Keys already written to the snapshot in progress; 0 without one.",
    ),
    gauge(
        "current_save_keys_total",
        "current_save_keys",
        "Total number of keys of the snapshot in progress; 0 without one.",
    ),
    gauge(
        "current_cow_size",
        "current_cow_bytes",
        "Data that is preserved for the snapshot in progress because clients have changed it since \
         (copy on write).",
    ),
    gauge(
        "current_cow_peak",
        "current_cow_peak_bytes",
        "Maximum of current_cow_bytes during the snapshot in progress; 0 without one.",
    ),
    gauge(
        "rdb_last_cow_size",
        "rdb_last_cow_bytes",
        "Maximum of current_cow_bytes during the last snapshot.",
    ),
    gauge("loading", "loading", "1 while the server loads its data and refuses most commands, else 0."),
    gauge(
        "async_loading",
        "async_loading",
        "1 while a replica loads a snapshot beside the data that clients read, else 0.",
    ),
    gauge(
        "rdb_last_load_keys_loaded",
        "rdb_last_load_keys_loaded",
        "Keys read from the data file at the start or by DEBUG RELOAD.",
    ),
    gauge(
        "rdb_last_load_keys_expired",
        "rdb_last_load_keys_expired",
        "Keys of the data file that were not loaded because they had expired.",
    ),
    // Requests and bytes.
    counter("total_connections_received", "connections_received", "Accepted client connections."),
    counter("total_commands_processed", "commands_processed", "Requests that were executed."),
    counter("total_net_input_bytes", "net_input_bytes", "Bytes received from clients."),
    counter("total_net_output_bytes", "net_output_bytes", "Bytes sent to clients."),
    counter(
        "rejected_connections",
        "rejected_connections",
        "Connections refused because the number of clients had reached maxclients.",
    ),
    counter("total_error_replies", "error_replies", "Requests that got an error reply."),
    counter(
        "unexpected_error_replies",
        "unexpected_error_replies",
        "Requests that failed because of a defect of the server: a command accessed a key that it \
         does not declare.",
    ),
    counter(
        "scripts_parallel",
        "scripts_parallel",
        "Runs of scripts in parallel with other clients, under the locks of their keys.",
    ),
    counter(
        "scripts_alone",
        "scripts_alone",
        "Runs of scripts that had the whole keyspace for themselves, while other clients waited.",
    ),
    counter(
        "scripts_rerun",
        "scripts_rerun",
        "Runs of scripts that were stopped and started again with the whole keyspace for themselves.",
    ),
    counter("total_reads_processed", "reads_processed", "Receive operations on client connections."),
    counter("total_writes_processed", "writes_processed", "Send operations on client connections."),
    counter(
        "client_query_buffer_limit_disconnections",
        "client_query_buffer_limit_disconnections",
        "Clients closed because a request exceeded the limit (option client-query-buffer-limit).",
    ),
    counter(
        "client_output_buffer_limit_disconnections",
        "client_output_buffer_limit_disconnections",
        "Clients closed because unsent replies exceeded the limit (option \
         client-output-buffer-limit).",
    ),
    counter("acl_access_denied_auth", "acl_access_denied_auth", "Failed login attempts."),
    counter(
        "acl_access_denied_cmd",
        "acl_access_denied_cmd",
        "Requests refused because the user may not run the command.",
    ),
    counter(
        "acl_access_denied_key",
        "acl_access_denied_key",
        "Requests refused because the user may not access the key.",
    ),
    counter(
        "acl_access_denied_channel",
        "acl_access_denied_channel",
        "Requests refused because the user may not access the channel.",
    ),
    counter(
        "acl_access_denied_db",
        "acl_access_denied_db",
        "Requests refused because the user may not access the database.",
    ),
    counter("auth_delayed", "auth_delayed", "Login attempts that were delayed (option auth-failure-delay)."),
    counter(
        "auth_refused",
        "auth_refused",
        "Login attempts refused without a check of the password, because too many attempts of the \
         address were waiting.",
    ),
    gauge("auth_failing_addresses", "auth_failing_addresses", "Addresses with recent failed logins."),
    counter("audit_log_lines", "audit_log_lines", "Events that the audit log has recorded."),
    counter(
        "audit_log_lost",
        "audit_log_lost",
        "Lines of the audit log that were lost because the file was too slow or the disk was full.",
    ),
    counter("oidc_logins", "oidc_logins", "Successful logins with a token."),
    counter("oidc_refused", "oidc_refused", "Tokens that were refused at login."),
    gauge("oidc_keys", "oidc_keys", "Known public keys of the identity provider."),
    counter("eventloop_cycles", "eventloop_cycles", "Turns of the event loops of all I/O threads."),
    counter(
        "eventloop_duration_sum",
        "eventloop_seconds",
        "Duration of all turns of the event loops, without the time that I/O threads wait for events.",
    )
    .per(1e6),
    counter(
        "eventloop_duration_cmd_sum",
        "eventloop_command_seconds",
        "Part of the duration of the event loops' turns that was spent on running requests.",
    )
    .per(1e6),
    counter(
        "dump_payload_sanitizations",
        "dump_payload_sanitizations",
        "Payloads of RESTORE that were checked completely.",
    ),
    gauge(
        "migrate_cached_sockets",
        "migrate_cached_sockets",
        "Open connections to other servers that MIGRATE can reuse.",
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
        "Commands and transactions of the change log that all readers have confirmed. Their replies \
         can be sent.",
    ),
    counter(
        "change_log_synced_position",
        "change_log_synced_units",
        "Commands and transactions of the change log that are synced to the disk.",
    ),
    counter(
        "change_log_offset",
        "change_log_stream_bytes",
        "Bytes that the change log has passed to its readers.",
    ),
    gauge(
        "change_log_pending_bytes",
        "change_log_pending_bytes",
        "Recorded changes that were not passed to the readers yet.",
    ),
    gauge(
        "change_log_memory_bytes",
        "change_log_memory_bytes",
        "Memory of the buffers of the change log, filled or kept for the next changes.",
    ),
    gauge(
        "change_log_replica_excess_bytes",
        "change_log_replica_excess_bytes",
        "Bytes that the slowest replica has to read beyond the option `repl-writes-wait-above`. Writes \
         wait while it is above 0.",
    ),
    gauge(
        "change_log_waiting_replies",
        "change_log_waiting_replies",
        "Parts of clients' output that are held back until the readers of the change log confirm the \
         changes before them.",
    ),
    counter(
        "change_log_reply_wait_usec",
        "change_log_reply_wait_seconds",
        "Total time for which output was held back for the readers of the change log.",
    )
    .per(1e6),
    gauge(
        "change_log_reply_wait_usec_max",
        "change_log_reply_wait_max_seconds",
        "Maximum time for which output was held back for the readers of the change log, since CONFIG \
         RESETSTAT.",
    )
    .per(1e6),
    // Replication.
    gauge("connected_slaves", "connected_replicas", "Replicas that follow this server or begin to."),
    counter("master_repl_offset", "replication_stream_bytes", "Offset of the end of the replication stream."),
    gauge(
        "repl_backlog_active",
        "replication_backlog_active",
        "1 while the server records the replication stream for replicas, else 0.",
    ),
    gauge(
        "repl_backlog_histlen",
        "replication_backlog_bytes",
        "Part of the replication stream that is kept for replicas that reconnect or are slow.",
    ),
    gauge(
        "mem_replication_backlog",
        "mem_replication_backlog_bytes",
        "Memory of the replication stream, up to the size of the backlog (option repl-backlog-size).",
    ),
    gauge(
        "mem_clients_slaves",
        "mem_replica_buffers_bytes",
        "Memory of the replication stream beyond the size of the backlog, kept for slow replicas, and of \
         snapshots on their way to replicas.",
    ),
    counter(
        "total_net_repl_input_bytes",
        "net_replication_input_bytes",
        "Bytes received from replicas and from the primary.",
    ),
    counter("total_net_repl_output_bytes", "net_replication_output_bytes", "Bytes sent to replicas."),
    counter(
        "sync_full",
        "replication_full_syncs",
        "Synchronisations of replicas that began with a snapshot of all data.",
    ),
    counter(
        "sync_partial_ok",
        "replication_partial_syncs",
        "Reconnections of replicas that continued in the stream without a snapshot.",
    ),
    counter(
        "sync_partial_err",
        "replication_partial_syncs_refused",
        "Reconnections of replicas that needed a snapshot, because the backlog lacked their offset.",
    ),
    // The keyspace, expiry and eviction.
    counter("keyspace_hits", "keyspace_hits", "Key lookups of read commands that found a key."),
    counter("keyspace_misses", "keyspace_misses", "Key lookups of read commands that found no key."),
    counter("expired_keys", "expired_keys", "Keys removed because they had expired."),
    counter("expired_subkeys", "expired_subkeys", "Fields of hashes removed because they had expired."),
    gauge(
        "expired_stale_perc",
        "expired_stale_ratio",
        "Estimated share of keys that have expired but are not removed yet, among the keys with an \
         expiry.",
    )
    .per(100.0),
    counter(
        "expired_time_cap_reached_count",
        "expired_time_cap_reached",
        "Number of times that active expiry stopped early to leave time for requests.",
    ),
    counter("expire_cycle_cpu_milliseconds", "expire_cycle_cpu_seconds", "Time spent on active expiry.")
        .per(1e3),
    counter("evicted_keys", "evicted_keys", "Keys removed because used memory exceeded maxmemory."),
    counter(
        "evicted_clients",
        "evicted_clients",
        "Clients closed because the memory of clients exceeded maxmemory-clients.",
    ),
    counter(
        "total_eviction_exceeded_time",
        "eviction_exceeded_seconds",
        "Total time for which used memory exceeded maxmemory.",
    )
    .per(1e3),
    gauge(
        "current_eviction_exceeded_time",
        "current_eviction_exceeded_seconds",
        "Time since used memory began to exceed maxmemory; 0 if it does not.",
    )
    .per(1e3),
    // Pub/sub and tracking.
    gauge("pubsub_channels", "pubsub_channels", "Channels with subscribers."),
    gauge("pubsub_patterns", "pubsub_patterns", "Patterns with subscribers."),
    gauge("pubsubshard_channels", "pubsubshard_channels", "Shard channels with subscribers."),
    gauge("tracking_total_keys", "tracking_keys", "Keys in the table of client-side caching."),
    gauge(
        "tracking_total_items",
        "tracking_items",
        "Pairs of a key and a client in the table of client-side caching.",
    ),
    gauge(
        "tracking_total_prefixes",
        "tracking_prefixes",
        "Prefixes of keys that clients track in broadcast mode.",
    ),
    // CPU.
    counter("used_cpu_sys", "used_cpu_sys_seconds", "CPU time of the process in the kernel."),
    counter("used_cpu_user", "used_cpu_user_seconds", "CPU time of the process in user space."),
    gauge(
        "tls_server_cert_expires_in_seconds",
        "tls_server_certificate_expires_in_seconds",
        "Time until the TLS certificate of the server expires; 0 if it has expired, or without TLS.",
    ),
    gauge(
        "tls_client_cert_expires_in_seconds",
        "tls_client_certificate_expires_in_seconds",
        "Time until the TLS certificate for connections to other servers expires; 0 if it has \
         expired, or without one.",
    ),
    gauge(
        "tls_ca_cert_expires_in_seconds",
        "tls_ca_certificate_expires_in_seconds",
        "Time until the first certificate of tls-ca-cert-file expires; 0 if it has expired, or \
         without one.",
    ),
    counter(
        "tls_full_handshakes",
        "tls_full_handshakes",
        "TLS handshakes with a key exchange for a new session.",
    ),
    counter("tls_resumed_handshakes", "tls_resumed_handshakes", "TLS handshakes that resumed a session."),
    counter(
        "tls_failed_handshakes",
        "tls_failed_handshakes",
        "TLS handshakes that failed or took more than ten seconds.",
    ),
];

/// The fields of INFO that exist only while the server loads its data, on replicas, or with certain
/// options.
pub const AT_TIMES: &[Field] = &[
    gauge(
        "loading_total_bytes",
        "loading_total_bytes",
        "Size of the file that is loaded; absent at other times.",
    ),
    gauge(
        "loading_loaded_bytes",
        "loading_loaded_bytes",
        "Bytes of the file that are already loaded; absent at other times.",
    ),
    gauge(
        "min_slaves_good_slaves",
        "good_replicas",
        "Replicas that follow within min-replicas-max-lag; absent unless min-replicas-to-write is set.",
    ),
    gauge(
        "master_link_status",
        "primary_link_up",
        "1 while this replica applies the stream of its primary, else 0; absent on a primary.",
    ),
    gauge(
        "master_sync_in_progress",
        "primary_link_syncing",
        "1 while this replica receives or loads a snapshot of its primary, else 0; absent on a primary.",
    ),
    gauge(
        "slave_repl_offset",
        "primary_link_applied_offset_bytes",
        "Offset in the stream of the primary up to which this replica has applied it; absent on a \
         primary.",
    ),
    gauge(
        "slave_read_repl_offset",
        "primary_link_read_offset_bytes",
        "Offset in the stream of the primary up to which this replica has received it; absent on a \
         primary.",
    ),
    gauge(
        "master_last_io_seconds_ago",
        "primary_link_lag_seconds",
        "Time since this replica last received bytes of its primary, which sends a sign of life every \
         repl-ping-replica-period seconds; absent on a primary and while the link is down.",
    ),
    gauge(
        "master_link_down_since_seconds",
        "primary_link_down_seconds",
        "Time since the link to the primary was lost; absent while it is up, and before it was up for \
         the first time.",
    ),
    counter(
        "master_link_failed_commands",
        "primary_link_failed_commands",
        "Commands of the primary that failed on this replica; absent on a primary.",
    ),
    gauge(
        "master_sync_total_bytes",
        "primary_link_sync_bytes",
        "Size of the snapshot that this replica receives, 0 if it is not known; absent at other times.",
    ),
    gauge(
        "master_sync_read_bytes",
        "primary_link_sync_read_bytes",
        "Received bytes of the snapshot that this replica receives; absent at other times.",
    ),
];

/// A section of INFO whose fields consist of named parts, such as `cmdstat_get:calls=1,usec=2`.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// The name of the section in INFO.
    pub section: &'static str,
    /// The text before the label's value in the field's name, such as `cmdstat_`.
    pub prefix: &'static str,
    /// The named parts of each field. Their metrics have one label, whose value is the field's name
    /// after `prefix`.
    pub fields: &'static [Field],
}

/// The section Commandstats. Its fields become metrics unless `metrics-per-command` is `no`.
pub const COMMANDS: Parts = Parts {
    section: "commandstats",
    prefix: "cmdstat_",
    fields: &[
        counter("calls", "command_calls", "Executions of a command, successful or not.").by(&["command"]),
        counter("usec", "command_duration_seconds", "Total execution time of a command.")
            .per(1e6)
            .by(&["command"]),
        counter(
            "rejected_calls",
            "command_rejected_calls",
            "Calls of a command that were refused before execution.",
        )
        .by(&["command"]),
        counter("failed_calls", "command_failed_calls", "Calls of a command that failed during execution.")
            .by(&["command"]),
    ],
};

/// All sections of INFO whose fields have named parts, except Commandstats ([`COMMANDS`]).
pub const PARTS: &[Parts] = &[
    Parts {
        section: "errorstats",
        prefix: "errorstat_",
        fields: &[counter("count", "errors", "Error replies by their code, the first word of the error.")
            .by(&["code"])],
    },
    Parts {
        section: "keyspace",
        prefix: "db",
        fields: &[
            gauge("keys", "db_keys", "Keys in a database; databases without keys have no sample.")
                .by(&["db"]),
            gauge("expires", "db_expires", "Keys in a database that have an expiry.").by(&["db"]),
            gauge(
                "avg_ttl",
                "db_avg_ttl_seconds",
                "Estimated mean time to live of the keys in a database that have an expiry.",
            )
            .per(1e3)
            .by(&["db"]),
            gauge("subexpiry", "db_subexpiry", "Hashes in a database that have fields with an expiry.")
                .by(&["db"]),
        ],
    },
    Parts {
        section: "threads",
        prefix: "io_thread_",
        fields: &[
            gauge("clients", "io_thread_clients", "Client connections of an I/O thread.").by(&["thread"]),
            counter("reads", "io_thread_reads", "Receive operations of an I/O thread on its connections.")
                .by(&["thread"]),
            counter("writes", "io_thread_writes", "Send operations of an I/O thread on its connections.")
                .by(&["thread"]),
            counter("commands", "io_thread_commands", "Requests that an I/O thread has executed.")
                .by(&["thread"]),
            counter("turns", "io_thread_turns", "Turns of the event loop of an I/O thread.").by(&["thread"]),
        ],
    },
];

/// The metric of the number of good replicas that writes need (`min-replicas-to-write`).
pub const GOOD_REPLICAS_MIN: Metric = metric(
    Kind::Gauge,
    "good_replicas_min",
    "Number of good replicas below which writes are refused (option min-replicas-to-write); absent unless \
     it is set.",
);
/// The metric of the offset in the replication stream that a replica has acknowledged.
pub const REPLICA_OFFSET: Metric = labelled(
    Kind::Gauge,
    "replica_offset_bytes",
    &["replica"],
    "Last offset in the replication stream that a replica has acknowledged.",
);
/// The metric of the bytes of the replication stream that a replica has not acknowledged.
pub const REPLICA_LAG_BYTES: Metric = labelled(
    Kind::Gauge,
    "replica_lag_bytes",
    &["replica"],
    "Part of the replication stream that a replica has not acknowledged yet.",
);
/// The metric of the time since a replica's last acknowledgement, in seconds.
pub const REPLICA_LAG_SECONDS: Metric = labelled(
    Kind::Gauge,
    "replica_lag_seconds",
    &["replica"],
    "Time since the last acknowledgement of a replica that follows the stream.",
);
/// The metric whose labels are texts of INFO.
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
    "Versions, platform and settings as labels. The value is always 1.",
);
/// The metric of the numbers of keys by size.
pub const KEY_SIZES: Metric = labelled(
    Kind::Gauge,
    "db_key_sizes",
    &["db", "type", "size"],
    "Keys of a type in a database by size: from `size` to less than twice `size`. The unit is \
         bytes for strings, elements for other types.",
);
/// The metric of the durations of all requests, a histogram in seconds.
pub const REQUEST_SECONDS: Metric = metric(
    Kind::Histogram,
    "request_seconds",
    "Time from the arrival of a request until its reply is sent, for all commands except blocking \
         ones.",
);
/// The metric of the durations of each command, for `metrics-per-command histograms`.
pub const COMMAND_SECONDS: Metric = labelled(
    Kind::Histogram,
    "command_seconds",
    &["command"],
    "Execution time of the calls of a command. Requires metrics-per-command histograms.",
);
/// The metric of the percentiles of the durations of each command, for `metrics-per-command
/// percentiles`.
pub const COMMAND_LATENCY: Metric = labelled(
    Kind::Summary,
    "command_latency_seconds",
    &["command"],
    "Percentiles of the execution time of a command since the start. Requires metrics-per-command \
         percentiles.",
);
/// The metric of the CPU time of threads.
pub const THREAD_CPU: Metric =
    labelled(Kind::Counter, "thread_cpu_seconds", &["thread"], "CPU time of the threads with this name.");
/// The metric of the time for which threads were ready to run and waited for a core.
pub const THREAD_WAIT: Metric = labelled(
    Kind::Counter,
    "thread_wait_seconds",
    &["thread"],
    "Time for which threads with this name were ready to run but had no core.",
);
/// The metric of the server's start time.
pub const START_TIME: Metric = metric(Kind::Gauge, "start_time_seconds", "Unix time of the server's start.");
/// The metric of the number of open files.
pub const OPEN_FDS: Metric =
    metric(Kind::Gauge, "open_fds", "Open file descriptors of the process; each connection has one.");
/// The metric of the maximum number of open files.
pub const MAX_FDS: Metric = metric(
    Kind::Gauge,
    "max_fds",
    "Maximum number of open file descriptors (ulimit -n); absent without a limit.",
);

/// The metrics that have no field of INFO, or combine several fields.
pub const OTHERS: &[&Metric] = &[
    &INFO,
    &GOOD_REPLICAS_MIN,
    &REPLICA_OFFSET,
    &REPLICA_LAG_BYTES,
    &REPLICA_LAG_SECONDS,
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

/// Returns all metrics that the metrics endpoint may show.
pub fn all() -> impl Iterator<Item = &'static Metric> {
    let of_parts = std::iter::once(&COMMANDS).chain(PARTS).flat_map(|parts| parts.fields);
    FIELDS.iter().chain(AT_TIMES).chain(of_parts).map(|field| &field.metric).chain(OTHERS.iter().copied())
}

/// Numbers of INFO that have no metric, grouped by the reason.
pub const LEFT_OUT: &[(&str, &[&str])] = &[
    (
        "a constant, a setting, or a value of the moment when INFO runs",
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
            "master_replid",
            "master_replid2",
            "second_repl_offset",
            "repl_backlog_size",
        ],
    ),
    (
        "another metric has this value, or a query can compute it from others",
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
            "instantaneous_input_repl_kbps",
            "instantaneous_output_repl_kbps",
            "mem_total_replication_buffers",
            "repl_backlog_first_byte_offset",
            "instantaneous_eventloop_cycles_per_sec",
            "instantaneous_eventloop_duration_usec",
            "io_threaded_reads_processed",
            "io_threaded_writes_processed",
            "used_cpu_sys_main_thread",
            "used_cpu_user_main_thread",
        ],
    ),
    (
        "about scripts, functions, writable replicas, defragmentation or the append-only file: so far, only INFO shows it",
        &[
            "active_defrag_running",
            "active_defrag_hits",
            "active_defrag_misses",
            "active_defrag_key_hits",
            "active_defrag_key_misses",
            "total_active_defrag_time",
            "current_active_defrag_time",
            "slave_expires_tracked_keys",
            "used_memory_lua",
            "used_memory_vm_eval",
            "used_memory_scripts_eval",
            "number_of_cached_scripts",
            "number_of_functions",
            "number_of_libraries",
            "used_memory_vm_total",
            "used_memory_functions",
            "used_memory_scripts",
            "evicted_scripts",
            "aof_enabled",
            "aof_rewrite_in_progress",
            "aof_rewrite_scheduled",
            "aof_last_rewrite_time_sec",
            "aof_current_rewrite_time_sec",
            "aof_rewrites",
            "aof_rewrites_consecutive_failures",
            "aof_last_cow_size",
            "backup_in_progress",
        ],
    ),
    (
        "a constant: Saker lacks the feature or does not need it",
        &[
            "cluster_connections",
            "allocator_muzzy",
            "used_memory_vm_functions",
            "mem_replica_full_sync_buffer",
            "mem_cluster_links",
            "mem_aof_buffer",
            "mem_overhead_db_hashtable_rehashing",
            "current_cow_size_age",
            "module_fork_in_progress",
            "module_fork_last_cow_size",
            "latest_fork_usec",
            "total_forks",
            "reply_buffer_shrinks",
            "reply_buffer_expands",
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
