//! From the values of options to what acts: [`Settings`] for a running server, [`StartOptions`] for one
//! that starts.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, ToSocketAddrs};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

use commands::ValueLimits;
use engine::publish::notify::Notifications;
use engine::settings::{OutputLimit, Settings};
use engine::stats::Thresholds;
use engine::stats::hot_keys::Sampling;
use net::BackendChoice;
use stdx::number::parse_i64;

use super::store::ConfigStore;
use super::table;
use super::value::Value;
use crate::start_error::StartError;

/// What is decided when a server starts.
#[derive(Clone, Debug)]
pub struct StartOptions {
    /// The TCP port, 0 for any; `None` for no TCP.
    pub port: Option<u16>,
    /// Where to listen.
    pub addresses: Vec<BindAddress>,
    /// The port of the metrics endpoint; `None` for none.
    pub metrics_port: Option<u16>,
    /// Where the metrics endpoint listens.
    pub metrics_addresses: Vec<BindAddress>,
    /// A Unix socket, with its permission bits.
    pub unix_socket: Option<(PathBuf, Option<u32>)>,
    /// Connections that may wait to be accepted.
    pub tcp_backlog: u32,
    /// Number of I/O threads.
    pub io_threads: usize,
    /// The way to the kernel.
    pub backend: BackendChoice,
    /// Number of databases.
    pub databases: usize,
}

/// An address to listen on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BindAddress {
    /// The address.
    pub ip: IpAddr,
    /// It may be missing on this machine.
    pub optional: bool,
}

/// A word of `bind` or `metrics-bind` that names no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoAddress(pub String);

/// The addresses that `bind` names. Host names are resolved.
pub fn bind_addresses(words: &[Vec<u8>]) -> Result<Vec<BindAddress>, NoAddress> {
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
            None => return Err(NoAddress(host.to_owned())),
        }
    }
    Ok(addresses)
}

/// What a server starts with. `any_port` makes port 0 mean "any" instead of "none".
pub fn start_options(store: &ConfigStore, any_port: bool) -> Result<StartOptions, StartError> {
    let addresses = |option: &'static str| {
        let failed = |NoAddress(address)| StartError::NoAddress { option, address };
        bind_addresses(store.words(option)).map_err(failed)
    };
    let port = store.integer("port") as u16;
    let socket = store.text("unixsocket");
    let mode = Some(store.octal("unixsocketperm")).filter(|&bits| bits != 0);
    Ok(StartOptions {
        port: (port != 0 || any_port).then_some(port),
        addresses: addresses("bind")?,
        metrics_port: Some(store.integer("metrics-port") as u16).filter(|&port| port != 0),
        metrics_addresses: addresses("metrics-bind")?,
        unix_socket: (!socket.is_empty()).then(|| (path(socket), mode)),
        tcp_backlog: store.integer("tcp-backlog") as u32,
        io_threads: store.integer("io-threads") as usize,
        backend: match store.choice("io-backend") {
            "io_uring" => BackendChoice::IoUring,
            "epoll" => BackendChoice::Epoll,
            _ => BackendChoice::Auto,
        },
        databases: store.integer("databases") as usize,
    })
}

/// A path from the bytes of an option.
pub fn path(bytes: &[u8]) -> PathBuf {
    std::ffi::OsString::from_vec(bytes.to_vec()).into()
}

/// The values that act in a running server.
pub fn settings(store: &ConfigStore) -> Settings {
    let size = |name: &str| usize::try_from(store.integer(name)).unwrap_or(usize::MAX);
    let bytes = |name: &str| usize::try_from(store.memory(name)).unwrap_or(usize::MAX);
    let small = |name: &str| u32::try_from(store.integer(name)).unwrap_or(u32::MAX);
    let limits = ValueLimits {
        string_len_bytes_max: store.memory("proto-max-bulk-len"),
        list_max_listpack_size: store.integer("list-max-listpack-size"),
        // No option: DEBUG sets it, and `SharedSettings` keeps it.
        list_plain_len_min: u32::MAX,
        list_compress_depth: store.integer("list-compress-depth"),
        hash_max_listpack_entries: size("hash-max-listpack-entries"),
        hash_max_listpack_value: bytes("hash-max-listpack-value"),
        set_max_intset_entries: size("set-max-intset-entries"),
        set_max_listpack_entries: size("set-max-listpack-entries"),
        set_max_listpack_value: size("set-max-listpack-value"),
        zset_max_listpack_entries: size("zset-max-listpack-entries"),
        zset_max_listpack_value: bytes("zset-max-listpack-value"),
        stream_node_max_bytes: bytes("stream-node-max-bytes"),
        stream_node_max_entries: size("stream-node-max-entries"),
        shares_integers: store.memory("maxmemory") == 0
            || !["-lru", "-lfu"].iter().any(|end| store.choice("maxmemory-policy").ends_with(end)),
        compresses_dumps: store.flag("rdbcompression"),
        takes_unknown_dumps: store.choice("rdb-version-check") == "relaxed",
        hll_sparse_max_bytes: bytes("hll-sparse-max-bytes"),
    };
    Settings {
        limits,
        requirepass: store.text("requirepass").to_vec(),
        maxclients: size("maxclients"),
        timeout_s: store.integer("timeout") as u64,
        tcp_keepalive_s: store.integer("tcp-keepalive") as u64,
        protected_mode: store.flag("protected-mode"),
        maxmemory_bytes: store.memory("maxmemory"),
        maxmemory_policy: store.choice("maxmemory-policy"),
        lfu: store.choice("maxmemory-policy").ends_with("-lfu"),
        eviction: keyspace::Policy::named(store.choice("maxmemory-policy"))
            .filter(|_| !store.flag("import-mode")),
        maxmemory_samples: size("maxmemory-samples"),
        eviction_time: engine::memory::time_limit(small("maxmemory-eviction-tenacity")),
        lfu_log_factor: small("lfu-log-factor"),
        lfu_decay_minutes: small("lfu-decay-time"),
        query_buffer_bytes_max: store.memory("client-query-buffer-limit"),
        maxmemory_clients_bytes: clients_limit(store),
        output_limit: output_limit(store.words("client-output-buffer-limit"), 0),
        monitor_output_limit: output_limit(store.words("client-output-buffer-limit"), 1),
        pubsub_output_limit: output_limit(store.words("client-output-buffer-limit"), 2),
        notifications: Notifications::parse(store.text("notify-keyspace-events")),
        tracking_keys_max: match store.integer("tracking-table-max-keys") {
            0 => usize::MAX,
            keys => usize::try_from(keys).unwrap_or(usize::MAX),
        },
        turn_budget: Duration::from_micros(store.integer("turn-budget-us") as u64),
        import_mode: store.flag("import-mode"),
        active_expire_effort: small("active-expire-effort"),
        thresholds: thresholds(store),
        key_sampling: Sampling {
            shown: size("hotkeys-top-k"),
            percent: small("hotkeys-sampling-percentage"),
            window: Duration::from_secs(store.integer("hotkeys-window-seconds") as u64),
        },
        hz: small("hz"),
    }
}

/// What makes a command notable; a negative threshold turns its log off.
fn thresholds(store: &ConfigStore) -> Thresholds {
    let from = |name: &str, unit: u64| {
        u64::try_from(store.integer(name)).map_or(u64::MAX, |value| value.saturating_mul(unit))
    };
    let len = |name: &str| usize::try_from(store.integer(name)).unwrap_or(usize::MAX);
    let latency_ms = store.integer("latency-monitor-threshold") as u64;
    let slow_nanos = from("slowlog-log-slower-than", 1000);
    let spike_nanos = if latency_ms == 0 { u64::MAX } else { latency_ms.saturating_mul(1_000_000) };
    Thresholds {
        latency_ms,
        noted_nanos: slow_nanos.min(spike_nanos),
        from: [
            slow_nanos,
            from("commandlog-request-larger-than", 1),
            from("commandlog-reply-larger-than", 1),
        ],
        len_max: [
            len("slowlog-max-len"),
            len("commandlog-large-request-max-len"),
            len("commandlog-large-reply-max-len"),
        ],
        histograms: store.flag("latency-tracking"),
    }
}

/// `maxmemory-clients` in bytes: a percentage is one of `maxmemory`.
fn clients_limit(store: &ConfigStore) -> u64 {
    match store.value(table::known("maxmemory-clients")) {
        Value::Memory(bytes) => *bytes,
        Value::Percent(percent) => store.memory("maxmemory") / 100 * u64::from(*percent),
        other => unreachable!("a memory size or a percentage, not {other:?}"),
    }
}

/// The limit of a class, 0 for `normal`, 1 for `replica`, 2 for `pubsub`, from the canonical words.
fn output_limit(words: &[Vec<u8>], class: usize) -> OutputLimit {
    let number = |at: usize| -> u64 {
        // Amounts beyond 2^63 mean the same as no limit, and do not print as such.
        words.get(4 * class + at).and_then(|word| parse_i64(word)).map_or(0, |number| number as u64)
    };
    OutputLimit { hard_bytes: number(1), soft_bytes: number(2), soft_seconds: number(3) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_of_the_table_are_the_defaults_of_the_settings() {
        assert_eq!(settings(&ConfigStore::new()), Settings::default());
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
        let mut store = ConfigStore::new();
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
        assert_eq!(settings.output_limit, limit);
        let start = start_options(&store, false).expect("addresses");
        assert_eq!(start.unix_socket, Some(("a.sock".into(), Some(0o700))));
        assert_eq!(start.port, None);
        assert_eq!(start_options(&store, true).expect("addresses").port, Some(0));
    }
}
