//! Conversion of option values to the structs that the code reads: [`Settings`] for the requests of
//! a running server, and [`StartOptions`] for the start and for changes of the addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::time::Duration;

use commands::ValueLimits;
use engine::fragmentation::CompactionSettings;
use engine::publish::notify::Notifications;
use engine::settings::{AuditFilter, ClientLimits, OutputLimit, Settings};
use engine::stats::Thresholds;
use engine::stats::hot_keys::Sampling;
use net::BackendChoice;
use stdx::number::parse_i64;

use super::choices::VersionCheck;
use super::handle::{Choice, Handle, MemoryShare};
use super::store::ConfigStore;
use super::table::{clients, diagnostics, memory, network, persistence, replication, security, tls, values};
use super::words::AUDIT_EVENT_WORDS;
use crate::oidc::{Expected, OidcOptions};
use crate::start_error::StartError;

/// The options that a server reads at its start. The TCP addresses and ports are read again when
/// CONFIG SET changes them.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// The port of the TCP listener; 0 selects any free port; `None` turns the listener off.
    pub port: Option<u16>,
    /// The port of the TLS listener; 0 selects any free port; `None` turns the listener off.
    pub tls_port: Option<u16>,
    /// The addresses on which the TCP and TLS listeners accept connections.
    pub addresses: Vec<BindAddress>,
    /// The port of the metrics endpoint; `None` turns the endpoint off.
    pub metrics_port: Option<u16>,
    /// The addresses on which the metrics endpoint accepts connections.
    pub metrics_addresses: Vec<BindAddress>,
    /// The path of the Unix socket and its permission bits; `None` for no Unix socket.
    pub unix_socket: Option<(PathBuf, Option<u32>)>,
    /// The maximum number of connections of a listener that the kernel queues until the server
    /// accepts them.
    pub tcp_backlog: u32,
    /// The number of I/O threads.
    pub io_threads: usize,
    /// The interface to the kernel that the event loops use: io_uring or epoll.
    pub backend: BackendChoice,
    /// The number of databases.
    pub databases: usize,
}

/// An address on which the server accepts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// The IP address on which the server accepts connections.
    pub ip: IpAddr,
    /// True if the server starts without this address when the machine does not have it.
    pub optional: bool,
}

/// A word of `bind` or `metrics-bind` that is neither an address nor a known host name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidAddress(pub String);

/// Parses the words of `bind` or `metrics-bind` into addresses. Host names are resolved. A word
/// that begins with `-` is optional: it is left out if it names no address.
///
/// # Errors
/// The first word that names no address and is not optional.
pub fn bind_addresses(words: &[Vec<u8>]) -> Result<Vec<BindAddress>, InvalidAddress> {
    let mut addresses = Vec::new();
    for word in words {
        let word = String::from_utf8_lossy(word);
        let (optional, host) = word.strip_prefix('-').map_or((false, &*word), |host| (true, host));
        let ip = match host {
            "*" => Some(Ipv4Addr::UNSPECIFIED.into()),
            "::*" => Some(Ipv6Addr::UNSPECIFIED.into()),
            host => match host.parse() {
                Ok(ip) => Some(ip),
                Err(_) => (host, 0).to_socket_addrs().ok().and_then(|mut found| found.next()).map(|a| a.ip()),
            },
        };
        match ip {
            Some(ip) => addresses.push(BindAddress { ip, optional }),
            None if optional => {}
            None => return Err(InvalidAddress(host.to_owned())),
        }
    }
    Ok(addresses)
}

/// The meaning of port 0 in an option: it turns a listener off or selects any free port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PortZero {
    /// Port 0 turns the listener of the option off.
    #[default]
    NoTcp,
    /// Port 0 makes the server listen on any free port.
    AnyPort,
}

/// The meanings of port 0 in the options `port` and `tls-port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct PortZeros {
    /// The meaning of `port 0`: no TCP listener, or any free port.
    pub plain: PortZero,
    /// The meaning of `tls-port 0`: no TLS listener, or any free port.
    pub tls: PortZero,
}

/// Returns the options that a server reads at its start. `zeros` states the meaning of port 0.
///
/// # Errors
/// [`StartError::InvalidAddress`] if a word of `bind` or `metrics-bind` is neither an address nor a
/// known host name.
pub fn start_options(store: &ConfigStore, zeros: PortZeros) -> Result<StartOptions, StartError> {
    let addresses = |option: &'static Handle<[Vec<u8>]>| {
        let failed =
            |InvalidAddress(address)| StartError::InvalidAddress { option: option.opt.name, address };
        bind_addresses(option.of(store)).map_err(failed)
    };
    let port = |port: u16, zero| Some(port).filter(|&port| port != 0 || zero == PortZero::AnyPort);
    let socket = network::UNIXSOCKET.of(store);
    let mode = Some(network::UNIXSOCKETPERM.of(store)).filter(|&bits| bits != 0);
    Ok(StartOptions {
        port: port(network::PORT.of(store), zeros.plain),
        tls_port: port(tls::PORT.of(store), zeros.tls),
        addresses: addresses(&network::BIND)?,
        metrics_port: Some(network::METRICS_PORT.of(store)).filter(|&port| port != 0),
        metrics_addresses: addresses(&network::METRICS_BIND)?,
        unix_socket: (!socket.as_os_str().is_empty()).then(|| (socket.to_owned(), mode)),
        tcp_backlog: network::TCP_BACKLOG.of(store),
        io_threads: network::IO_THREADS.of(store),
        backend: network::IO_BACKEND.of(store),
        databases: network::DATABASES.of(store),
    })
}

fn compaction(store: &ConfigStore) -> CompactionSettings {
    CompactionSettings {
        is_on: memory::ACTIVEDEFRAG.of(store),
        ignored_bytes: memory::ACTIVE_DEFRAG_IGNORE_BYTES.of(store),
        threshold_percent: (
            memory::ACTIVE_DEFRAG_THRESHOLD_LOWER.of(store),
            memory::ACTIVE_DEFRAG_THRESHOLD_UPPER.of(store),
        ),
        share_percent: (memory::ACTIVE_DEFRAG_CYCLE_MIN.of(store), memory::ACTIVE_DEFRAG_CYCLE_MAX.of(store)),
        slice: Duration::from_micros(memory::ACTIVE_DEFRAG_CYCLE_US.of(store)),
    }
}

/// Returns the settings that requests read, derived from the option values in `store`.
pub fn settings(store: &ConfigStore) -> Settings {
    let policy = memory::MAXMEMORY_POLICY.of(store);
    let maxmemory_bytes = memory::MAXMEMORY.of(store);
    let output_limits = clients::CLIENT_OUTPUT_BUFFER_LIMIT.of(store);
    Settings {
        limits: value_limits(store),
        new_channels: security::ACL_PUBSUB_DEFAULT.of(store),
        acl_log_len_max: security::ACLLOG_MAX_LEN.of(store),
        maxmemory_bytes,
        maxmemory_policy: policy.word(),
        lfu: policy.is_lfu(),
        eviction: keyspace::Policy::named(policy.word()).filter(|_| !replication::IMPORT_MODE.of(store)),
        maxmemory_samples: memory::MAXMEMORY_SAMPLES.of(store),
        eviction_time: engine::memory::time_limit(memory::MAXMEMORY_EVICTION_TENACITY.of(store)),
        lfu_log_factor: memory::LFU_LOG_FACTOR.of(store),
        lfu_decay_minutes: memory::LFU_DECAY_TIME.of(store),
        notifications: Notifications::parse(memory::NOTIFY_KEYSPACE_EVENTS.of(store)),
        tracking_keys_max: match clients::TRACKING_TABLE_MAX_KEYS.of(store) {
            0 => usize::MAX,
            keys => keys,
        },
        turn_budget: Duration::from_micros(network::TURN_BUDGET_US.of(store)),
        import_mode: replication::IMPORT_MODE.of(store),
        stops_writes_on_save_error: persistence::STOP_WRITES_ON_BGSAVE_ERROR.of(store)
            && !persistence::SAVE.of(store).is_empty(),
        compaction: compaction(store),
        active_expire_effort: memory::ACTIVE_EXPIRE_EFFORT.of(store),
        thresholds: thresholds(store),
        key_sampling: Sampling {
            shown: diagnostics::HOTKEYS_TOP_K.of(store),
            percent: diagnostics::HOTKEYS_SAMPLING_PERCENTAGE.of(store),
            window: Duration::from_secs(diagnostics::HOTKEYS_WINDOW_SECONDS.of(store)),
        },
        busy_threshold: u64::try_from(diagnostics::BUSY_REPLY_THRESHOLD.of(store))
            .ok()
            .filter(|&threshold_ms| threshold_ms > 0)
            .map(Duration::from_millis),
        lua_bytes_max: Some(diagnostics::LUA_MEMORY_LIMIT.of(store)).filter(|&bytes| bytes > 0),
        hz: diagnostics::HZ.of(store),
        audit: audit_filter(store),
        clients: ClientLimits {
            maxclients: clients::MAXCLIENTS.of(store),
            timeout_s: clients::TIMEOUT.of(store),
            tcp_keepalive_s: network::TCP_KEEPALIVE.of(store),
            protected_mode: security::PROTECTED_MODE.of(store),
            auth_failure_delay_ms: security::AUTH_FAILURE_DELAY.of(store),
            authentication_timeout_s: security::AUTHENTICATION_TIMEOUT.of(store),
            query_buffer_bytes_max: clients::CLIENT_QUERY_BUFFER_LIMIT.of(store),
            maxmemory_clients_bytes: client_memory_limit(store, maxmemory_bytes),
            output_limit: output_limit(output_limits, 0),
            replica_output_limit: output_limit(output_limits, 1),
            pubsub_output_limit: output_limit(output_limits, 2),
        },
    }
}

/// Returns the limit on the memory of all clients together, in bytes; 0 for no limit. As in Redis,
/// the limit is at least 128 KiB: otherwise nobody could connect to raise it.
fn client_memory_limit(store: &ConfigStore, maxmemory_bytes: u64) -> u64 {
    const LIMIT_BYTES_MIN: u64 = 128 << 10;
    match clients::MAXMEMORY_CLIENTS.of(store) {
        MemoryShare::Bytes(0) | MemoryShare::Percent(0) => 0,
        MemoryShare::Percent(_) if maxmemory_bytes == 0 => 0,
        share => share.of_bytes(maxmemory_bytes).max(LIMIT_BYTES_MIN),
    }
}

/// Returns the filter of the audit log. The filter is empty, and selects no event, if no file is
/// configured.
fn audit_filter(store: &ConfigStore) -> AuditFilter {
    if security::AUDIT_LOG_FILE.of(store).as_os_str().is_empty() {
        return AuditFilter::default();
    }
    let asked = security::AUDIT_LOG_EVENTS.of(store);
    let is_asked = |name: &str| asked.iter().any(|word| word == name.as_bytes());
    let events = AUDIT_EVENT_WORDS.iter().filter(|(name, _)| is_asked(name)).map(|(_, event)| *event);
    AuditFilter { events: events.collect(), users: security::AUDIT_LOG_USERS.of(store).to_vec() }
}

/// Returns the settings for logins with the tokens of an identity provider (OpenID Connect).
pub fn oidc_options(store: &ConfigStore) -> OidcOptions {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let named = |option: &'static Handle<Path>| {
        let path = option.of(store);
        (!path.as_os_str().is_empty()).then(|| path.to_owned())
    };
    let url = text(security::OIDC_KEYS_URL.of(store));
    OidcOptions {
        keys_file: named(&security::OIDC_KEYS_FILE),
        keys_url: (!url.is_empty()).then_some(url),
        ca_file: named(&security::OIDC_CA_FILE),
        refresh: Duration::from_secs(security::OIDC_KEYS_REFRESH.of(store)),
        expected: Expected {
            issuer: text(security::OIDC_ISSUER.of(store)),
            audience: security::OIDC_AUDIENCE.of(store).iter().map(|word| text(word)).collect(),
            user_claim: text(security::OIDC_USER_CLAIM.of(store)),
            leeway_s: security::OIDC_LEEWAY.of(store),
        },
        user_prefix: text(security::OIDC_USER_PREFIX.of(store)),
        closes_sessions: security::OIDC_END_SESSIONS.of(store),
    }
}

/// Returns the limits on values: maximum lengths and the thresholds of encodings.
fn value_limits(store: &ConfigStore) -> ValueLimits {
    let policy = memory::MAXMEMORY_POLICY.of(store);
    ValueLimits {
        string_len_bytes_max: clients::PROTO_MAX_BULK_LEN.of(store),
        list_max_listpack_size: values::LIST_MAX_LISTPACK_SIZE.of(store),
        // No option sets this limit: a DEBUG command does, in the shared settings.
        list_plain_len_min: u32::MAX,
        list_compress_depth: values::LIST_COMPRESS_DEPTH.of(store),
        hash_max_listpack_entries: values::HASH_MAX_LISTPACK_ENTRIES.of(store),
        hash_max_listpack_value: values::HASH_MAX_LISTPACK_VALUE.of(store),
        set_max_intset_entries: values::SET_MAX_INTSET_ENTRIES.of(store),
        set_max_listpack_entries: values::SET_MAX_LISTPACK_ENTRIES.of(store),
        set_max_listpack_value: values::SET_MAX_LISTPACK_VALUE.of(store),
        zset_max_listpack_entries: values::ZSET_MAX_LISTPACK_ENTRIES.of(store),
        zset_max_listpack_value: values::ZSET_MAX_LISTPACK_VALUE.of(store),
        stream_node_max_bytes: values::STREAM_NODE_MAX_BYTES.of(store),
        stream_node_max_entries: values::STREAM_NODE_MAX_ENTRIES.of(store),
        // As in Redis: a shared object cannot hold the access time or frequency of each of its
        // keys.
        shares_integers: memory::MAXMEMORY.of(store) == 0 || !(policy.is_lru() || policy.is_lfu()),
        compresses_dumps: persistence::RDBCOMPRESSION.of(store),
        takes_unknown_dumps: persistence::RDB_VERSION_CHECK.of(store) == VersionCheck::Relaxed,
        // No option sets this flag: a DEBUG command does, in the shared settings.
        skips_checksums: false,
        takes_recorded_forms: false,
        hll_sparse_max_bytes: values::HLL_SPARSE_MAX_BYTES.of(store),
    }
}

/// Returns the thresholds of the command logs and the latency monitor. A negative threshold turns a
/// command log off; 0 turns the latency monitor off.
fn thresholds(store: &ConfigStore) -> Thresholds {
    let from = |option: &Handle<i64>, unit: u64| {
        u64::try_from(option.of(store)).map_or(u64::MAX, |value| value.saturating_mul(unit))
    };
    let latency_ms = diagnostics::LATENCY_MONITOR_THRESHOLD.of(store);
    let slow_nanos = from(&diagnostics::SLOWLOG_LOG_SLOWER_THAN, 1000);
    let spike_nanos = if latency_ms == 0 { u64::MAX } else { latency_ms.saturating_mul(1_000_000) };
    Thresholds {
        latency_ms,
        noted_nanos: slow_nanos.min(spike_nanos),
        from: [
            slow_nanos,
            from(&diagnostics::COMMANDLOG_REQUEST_LARGER_THAN, 1),
            from(&diagnostics::COMMANDLOG_REPLY_LARGER_THAN, 1),
        ],
        len_max: [
            diagnostics::SLOWLOG_MAX_LEN.of(store),
            diagnostics::COMMANDLOG_LARGE_REQUEST_MAX_LEN.of(store),
            diagnostics::COMMANDLOG_LARGE_REPLY_MAX_LEN.of(store),
        ],
        histograms: diagnostics::LATENCY_TRACKING.of(store),
    }
}

/// Returns the output limit of a class of clients. `class` is 0 for `normal`, 1 for `replica`, 2
/// for `pubsub`. `words` is the value of `client-output-buffer-limit` in its canonical form.
fn output_limit(words: &[Vec<u8>], class: usize) -> OutputLimit {
    let number = |at: usize| -> u64 {
        // An amount of 2^63 or more means no limit here; CONFIG GET still shows the amount.
        words.get(4 * class + at).and_then(|word| parse_i64(word)).map_or(0, |number| number as u64)
    };
    OutputLimit { hard_bytes: number(1), soft_bytes: number(2), soft_seconds: number(3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_table_are_the_defaults_of_the_settings() {
        assert_eq!(settings(&ConfigStore::new(crate::commands::is_command)), Settings::default());
    }

    #[test]
    fn addresses_are_literal_wild_or_optional() {
        let check = |words: &str, expected: &[(&str, bool)]| {
            let words: Vec<Vec<u8>> = words.split(' ').map(|word| word.as_bytes().to_vec()).collect();
            let expected: Vec<BindAddress> = expected
                .iter()
                .map(|&(ip, optional)| BindAddress { ip: ip.parse().expect("an address"), optional })
                .collect();
            assert_eq!(bind_addresses(&words), Ok(expected));
        };
        check("127.0.0.1 -::1", &[("127.0.0.1", false), ("::1", true)]);
        check("* -::*", &[("0.0.0.0", false), ("::", true)]);
        check("-no.such.host.invalid", &[]);
        assert!(bind_addresses(&[b"no.such.host.invalid".to_vec()]).is_err());
    }

    #[test]
    fn changed_options_reach_the_settings() {
        let mut store = ConfigStore::new(crate::commands::is_command);
        let mut load = |name: &str, words: &[&str]| {
            let words: Vec<Vec<u8>> = words.iter().map(|word| word.as_bytes().to_vec()).collect();
            store.load(name.as_bytes(), &words).expect("fits");
        };
        load("maxmemory-policy", &["volatile-lfu"]);
        load("client-output-buffer-limit", &["normal", "1mb", "1kb", "9"]);
        load("unixsocketperm", &["700"]);
        load("unixsocket", &["a.sock"]);
        load("port", &["0"]);
        let settings = settings(&store);
        assert!(settings.lfu);
        let limit = OutputLimit { hard_bytes: 1 << 20, soft_bytes: 1 << 10, soft_seconds: 9 };
        assert_eq!(settings.clients.output_limit, limit);
        let start = start_options(&store, PortZeros::default()).expect("addresses");
        assert_eq!(start.unix_socket, Some(("a.sock".into(), Some(0o700))));
        assert_eq!(start.port, None);
        let any = PortZeros { plain: PortZero::AnyPort, tls: PortZero::NoTcp };
        let start = start_options(&store, any).expect("addresses");
        assert_eq!((start.port, start.tls_port), (Some(0), None));
    }
}
