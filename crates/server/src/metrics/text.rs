//! INFO's fields as OpenMetrics text.
//!
//! A field that is a number becomes `saker_<field>`; a field with named parts (`cmdstat_get:calls=1,…`)
//! becomes a labelled series per part; fields that are words become labels of `saker_info`. The tables below
//! say what counts up (OpenMetrics wants `_total` there) and what needs another name or unit; a field
//! that no table knows is a gauge under its own name, so what INFO learns is here without a change.
//! Source: OpenMetrics 1.0, <https://prometheus.io/docs/specs/om/open_metrics_spec/>.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::info;
use crate::latency::Times;
use crate::shared::Shared;
use crate::stats::{CommandCounters, Counter};

/// What a series is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Summary,
    Histogram,
    Info,
}

/// Fields that count up: INFO's name, ours (without `_total`), and what it means.
const COUNTERS: &[(&str, &str, &str)] = &[
    ("total_connections_received", "connections_received", "Connections accepted."),
    ("total_commands_processed", "commands_processed", "Requests run."),
    ("total_net_input_bytes", "net_input_bytes", "Bytes received from clients."),
    ("total_net_output_bytes", "net_output_bytes", "Bytes sent to clients."),
    ("total_net_repl_input_bytes", "net_repl_input_bytes", "Bytes received for replication."),
    ("total_net_repl_output_bytes", "net_repl_output_bytes", "Bytes sent for replication."),
    ("rejected_connections", "rejected_connections", "Connections refused because of maxclients."),
    ("sync_full", "sync_full", "Full synchronizations with replicas."),
    ("sync_partial_ok", "sync_partial_ok", "Partial synchronizations that were granted."),
    ("sync_partial_err", "sync_partial_err", "Partial synchronizations that were refused."),
    ("expired_keys", "expired_keys", "Keys whose time was over."),
    ("expired_subkeys", "expired_subkeys", "Fields of hashes whose time was over."),
    ("evicted_keys", "evicted_keys", "Keys evicted because of maxmemory."),
    ("evicted_clients", "evicted_clients", "Clients closed because of maxmemory-clients."),
    ("evicted_scripts", "evicted_scripts", "Scripts evicted from the cache."),
    ("keyspace_hits", "keyspace_hits", "Reads that found their key."),
    ("keyspace_misses", "keyspace_misses", "Reads that did not find their key."),
    ("total_forks", "forks", "Processes forked."),
    ("total_error_replies", "error_replies", "Error replies sent."),
    (
        "unexpected_error_replies",
        "unexpected_error_replies",
        "Requests ended by a defect of the server: a command used a key that it does not declare.",
    ),
    ("total_reads_processed", "reads_processed", "Times that a connection's bytes were received."),
    ("total_writes_processed", "writes_processed", "Times that bytes were sent to a connection."),
    ("io_threaded_reads_processed", "io_threaded_reads_processed", "Reads by I/O threads."),
    ("io_threaded_writes_processed", "io_threaded_writes_processed", "Writes by I/O threads."),
    (
        "client_query_buffer_limit_disconnections",
        "client_query_buffer_limit_disconnections",
        "Clients closed because their input grew over its limit.",
    ),
    (
        "client_output_buffer_limit_disconnections",
        "client_output_buffer_limit_disconnections",
        "Clients closed because their output grew over its limit.",
    ),
    ("eventloop_cycles", "eventloop_cycles", "Turns of the event loops."),
    ("eventloop_duration_sum", "eventloop_duration_sum", "Microseconds of these turns."),
    (
        "eventloop_duration_cmd_sum",
        "eventloop_duration_cmd_sum",
        "Microseconds of them in which requests ran.",
    ),
    (
        "expired_time_cap_reached_count",
        "expired_time_cap_reached_count",
        "Expiry rounds cut short by their time.",
    ),
    ("expire_cycle_cpu_milliseconds", "expire_cycle_cpu_milliseconds", "Milliseconds of active expiry."),
    (
        "total_eviction_exceeded_time",
        "eviction_exceeded_time",
        "Milliseconds that memory was over its limit.",
    ),
    ("dump_payload_sanitizations", "dump_payload_sanitizations", "Payloads checked in depth."),
    (
        "used_cpu_sys_main_thread",
        "used_cpu_sys_main_thread_seconds",
        "CPU time of I/O threads in the kernel.",
    ),
    (
        "used_cpu_user_main_thread",
        "used_cpu_user_main_thread_seconds",
        "CPU time of I/O threads in user space.",
    ),
    ("lazyfreed_objects", "lazyfreed_objects", "Values freed in the background."),
    ("acl_access_denied_auth", "acl_access_denied_auth", "Failed authentications."),
    ("acl_access_denied_cmd", "acl_access_denied_cmd", "Commands refused by ACL."),
    ("acl_access_denied_key", "acl_access_denied_key", "Keys refused by ACL."),
    ("acl_access_denied_channel", "acl_access_denied_channel", "Channels refused by ACL."),
    ("used_cpu_sys", "used_cpu_sys_seconds", "CPU time in the kernel."),
    ("used_cpu_user", "used_cpu_user_seconds", "CPU time in user space."),
];

/// Gauges whose help says more than that INFO has them.
const GAUGES: &[(&str, &str)] = &[
    ("uptime_in_seconds", "Seconds since the server started."),
    ("connected_clients", "Connections open now."),
    ("blocked_clients", "Clients that wait for a key or for a pause to end."),
    ("maxclients", "The most connections."),
    ("used_memory", "Bytes handed out by the allocator."),
    ("used_memory_rss", "Resident bytes, by the kernel's account."),
    ("used_memory_peak", "The most bytes ever handed out."),
    ("used_memory_dataset", "Bytes beyond what the server and its clients need."),
    ("maxmemory", "The limit of memory in bytes; 0 for none."),
    ("mem_fragmentation_ratio", "Resident memory over used memory."),
    ("instantaneous_ops_per_sec", "Requests per second, over the last second and a half."),
    ("rdb_changes_since_last_save", "Changes to the data since it was last saved."),
];

/// Fields that are words: labels of `saker_info`.
const INFO_LABELS: &[&str] = &[
    "redis_version",
    "saker_version",
    "redis_mode",
    "os",
    "io_backend",
    "run_id",
    "role",
    "maxmemory_policy",
    "mem_allocator",
];

/// Fields that may look like a number and are none.
const NAMES: &[&str] =
    &["redis_git_sha1", "redis_build_id", "gcc_version", "master_replid", "master_replid2"];

/// A section whose fields have named parts.
struct Labelled {
    section: &'static str,
    /// What stands before the label's value in the field's name.
    prefix: &'static str,
    label: &'static str,
    parts: &'static [Part],
}

/// One part of such a field.
struct Part {
    name: &'static str,
    series: &'static str,
    kind: Kind,
    /// What INFO's number is divided by.
    per_unit: f64,
    help: &'static str,
}

impl Part {
    const fn counter(name: &'static str, series: &'static str, help: &'static str) -> Self {
        Self { name, series, kind: Kind::Counter, per_unit: 1.0, help }
    }

    const fn gauge(name: &'static str, series: &'static str, help: &'static str) -> Self {
        Self { name, series, kind: Kind::Gauge, per_unit: 1.0, help }
    }
}

const LABELLED: &[Labelled] = &[
    Labelled {
        section: "commandstats",
        prefix: "cmdstat_",
        label: "command",
        parts: &[
            Part::counter("calls", "command_calls", "Runs of a command."),
            Part {
                name: "usec",
                series: "command_duration_seconds",
                kind: Kind::Counter,
                per_unit: 1e6,
                help: "Time spent in a command.",
            },
            Part::counter("rejected_calls", "command_rejected_calls", "Calls refused before they ran."),
            Part::counter("failed_calls", "command_failed_calls", "Calls that ended in an error."),
        ],
    },
    Labelled {
        section: "errorstats",
        prefix: "errorstat_",
        label: "code",
        parts: &[Part::counter("count", "errors", "Error replies by their first word.")],
    },
    Labelled {
        section: "keyspace",
        prefix: "db",
        label: "db",
        parts: &[
            Part::gauge("keys", "db_keys", "Keys of a database."),
            Part::gauge("expires", "db_expires", "Keys with a time to live."),
            Part {
                name: "avg_ttl",
                series: "db_avg_ttl_seconds",
                kind: Kind::Gauge,
                per_unit: 1e3,
                help: "Mean time to live of keys that have one.",
            },
            Part::gauge("subexpiry", "db_subexpiry", "Hashes with fields that have a time to live."),
        ],
    },
    Labelled {
        section: "threads",
        prefix: "io_thread_",
        label: "thread",
        parts: &[
            Part::gauge("clients", "io_thread_clients", "Connections of an I/O thread."),
            Part::counter("reads", "io_thread_reads", "Turns of an I/O thread that read."),
            Part::counter("writes", "io_thread_writes", "Turns of an I/O thread that wrote."),
            Part::counter("commands", "io_thread_commands", "Requests that an I/O thread ran."),
            Part::counter("turns", "io_thread_turns", "Turns of an I/O thread."),
            Part {
                name: "busy_usec",
                series: "io_thread_busy_seconds",
                kind: Kind::Counter,
                per_unit: 1e6,
                help: "Time that an I/O thread ran on a core.",
            },
            Part {
                name: "wait_usec",
                series: "io_thread_wait_seconds",
                kind: Kind::Counter,
                per_unit: 1e6,
                help: "Time that an I/O thread was ready to run and had no core.",
            },
        ],
    },
];

/// The limits of histograms, as powers of two of nanoseconds.
const LIMIT_POWERS: std::ops::RangeInclusive<u32> = 10..=36;

/// Series of one name.
struct Family {
    kind: Kind,
    help: String,
    samples: String,
}

/// All series by name: OpenMetrics wants those of a name together.
#[derive(Default)]
struct Page(BTreeMap<String, Family>);

impl Page {
    fn add(&mut self, family: (&str, Kind, &str), labels: &[(&str, &str)], value: &str) {
        let suffix = match family.1 {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Summary | Kind::Histogram => "",
        };
        self.sample(family, suffix, labels, value);
    }

    fn sample(
        &mut self,
        (name, kind, help): (&str, Kind, &str),
        suffix: &str,
        labels: &[(&str, &str)],
        value: &str,
    ) {
        let new = || Family { kind, help: help.to_owned(), samples: String::new() };
        let family = self.0.entry(format!("saker_{name}")).or_insert_with(new);
        // Writing to a String cannot fail, here and below.
        let _ = match kind {
            Kind::Info => write!(family.samples, "saker{suffix}"),
            _ => write!(family.samples, "saker_{name}{suffix}"),
        };
        for (at, (label, text)) in labels.iter().enumerate() {
            let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(family.samples, "{}{label}=\"{text}\"", if at == 0 { '{' } else { ',' });
        }
        let end = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(family.samples, "{end} {value}");
    }

    /// Adds the histogram of a command: calls by limits that double, from 1 µs to a minute.
    fn histogram(&mut self, (name, help): (&str, &str), command: &str, times: &Times, nanos: u64) {
        let family = (name, Kind::Histogram, help);
        let labels = [("command", command)];
        for (power, calls) in LIMIT_POWERS.zip(times.below(LIMIT_POWERS)) {
            let limit = ((1u64 << power) as f64 / 1e9).to_string();
            self.sample(family, "_bucket", &[labels[0], ("le", &limit)], &calls.to_string());
        }
        let calls = times.calls.to_string();
        self.sample(family, "_bucket", &[labels[0], ("le", "+Inf")], &calls);
        self.sample(family, "_count", &labels, &calls);
        self.sample(family, "_sum", &labels, &(nanos as f64 / 1e9).to_string());
    }

    fn text(self) -> String {
        let mut text = String::new();
        for (name, Family { kind, help, samples }) in self.0 {
            let kind = match kind {
                Kind::Counter => "counter",
                Kind::Gauge => "gauge",
                Kind::Summary => "summary",
                Kind::Histogram => "histogram",
                Kind::Info => "info",
            };
            let name = if kind == "info" { "saker" } else { &name };
            let _ = write!(text, "# TYPE {name} {kind}\n# HELP {name} {help}\n{samples}");
        }
        text + "# EOF\n"
    }
}

/// All numbers of INFO, and the processor time of each thread. Takes shard locks one after another, as INFO
/// does, and reads a few files in /proc: for a background thread.
pub fn text(shared: &Shared) -> String {
    let mut page = Page::default();
    let mut words: Vec<(String, String)> = Vec::new();
    info::each_field(shared, |section, name, value| {
        if INFO_LABELS.contains(&name) {
            words.push((name.to_owned(), value.to_owned()));
        } else if value.contains('=') {
            parts(&mut page, section, name, value);
        } else if let Some(number) = number(name, value) {
            plain(&mut page, section, name, number);
        }
    });
    histograms(&mut page, shared);
    let words: Vec<(&str, &str)> = words.iter().map(|(name, value)| (&**name, &**value)).collect();
    page.add(("", Kind::Info, "What runs here."), &words, "1");
    for (thread, time) in crate::process::thread_times() {
        let seconds = |time: std::time::Duration| format!("{:.6}", time.as_secs_f64());
        let labels = [("thread", &*thread)];
        let busy = ("thread_cpu_seconds", Kind::Counter, "Time that threads of this name were running.");
        page.add(busy, &labels, &seconds(time.running));
        let waited = (
            "thread_wait_seconds",
            Kind::Counter,
            "Time that threads of this name were ready and had no core.",
        );
        page.add(waited, &labels, &seconds(time.ready));
    }
    page.text()
}

/// How long commands took, where `latency-tracking` is on.
fn histograms(page: &mut Page, shared: &Shared) {
    if !shared.settings.get().thresholds.histograms {
        return;
    }
    for id in 0..shared.table.id_count() {
        let command = shared.table.by_id(id).full_name;
        let sum = |of: fn(&CommandCounters) -> &Counter| shared.sum(|stats| of(&stats.commands[id]));
        let times = shared.times_of(id);
        if times.calls > 0 {
            let family = ("command_seconds", "Time that commands took by themselves.");
            page.histogram(family, command, &times, sum(|command| &command.nanos));
        }
        let times = shared.end_to_end_of(id);
        if times.calls > 0 {
            let family = (
                "command_end_to_end_seconds",
                "Time from the arrival of requests to the sending of their replies.",
            );
            page.histogram(family, command, &times, sum(|command| &command.end_to_end_nanos));
        }
    }
}

/// The number that a field's value is, none for a word. A percentage loses its sign; `ok` and `err` are 1
/// and 0.
fn number<'a>(name: &str, value: &'a str) -> Option<&'a str> {
    if NAMES.contains(&name) || name.ends_with("_human") {
        return None;
    }
    match value {
        "ok" => return Some("1"),
        "err" => return Some("0"),
        _ => {}
    }
    let number = value.strip_suffix('%').unwrap_or(value);
    let begins = number.starts_with(|first: char| first.is_ascii_digit() || first == '-');
    (begins && number.parse::<f64>().is_ok()).then_some(number)
}

fn plain(page: &mut Page, section: &str, name: &str, number: &str) {
    if let Some((_, series, help)) = COUNTERS.iter().find(|(field, ..)| *field == name) {
        page.add((series, Kind::Counter, help), &[], number);
        return;
    }
    let known = GAUGES.iter().find(|(field, _)| *field == name);
    let help = known.map_or_else(|| format!("{name} of INFO {section}."), |(_, help)| (*help).to_owned());
    page.add((name, Kind::Gauge, &help), &[], number);
}

/// Adds the parts of a field such as `db0:keys=1,expires=0`. What the tables do not know by its section
/// (addresses to listen on) has no series.
fn parts(page: &mut Page, section: &str, name: &str, value: &str) {
    let pairs = || value.split(',').filter_map(|part| part.split_once('='));
    if section == "latencystats" {
        // The end-to-end times are there as histograms, as are these.
        let Some(command) = name.strip_prefix("latency_percentiles_usec_") else { return };
        let known = ("command_latency_seconds", Kind::Summary, "Percentiles of a command's times.");
        for (percentile, usec) in pairs() {
            let percent = percentile.strip_prefix('p').and_then(|text| text.parse::<f64>().ok());
            if let (Some(percent), Ok(usec)) = (percent, usec.parse::<f64>()) {
                let labels = [("command", command), ("quantile", &*(percent / 100.0).to_string())];
                page.add(known, &labels, &(usec / 1e6).to_string());
            }
        }
        return;
    }
    if section == "keysizes" {
        return key_sizes(page, name, value);
    }
    let Some(labelled) = LABELLED.iter().find(|labelled| labelled.section == section) else { return };
    let Some(label) = name.strip_prefix(labelled.prefix) else { return };
    for (name, value) in pairs() {
        let Some(part) = labelled.parts.iter().find(|part| part.name == name) else { continue };
        let Ok(number) = value.parse::<f64>() else { continue };
        let scaled =
            if part.per_unit == 1.0 { value.to_owned() } else { (number / part.per_unit).to_string() };
        page.add((part.series, part.kind, part.help), &[(labelled.label, label)], &scaled);
    }
}

/// Adds `db0_distrib_lists_items:4=1,1K=2`: a gauge per database, type and smallest size of a bin.
fn key_sizes(page: &mut Page, name: &str, value: &str) {
    let Some((db, kind)) = name.strip_prefix("db").and_then(|rest| rest.split_once("_distrib_")) else {
        return;
    };
    let kind = kind.trim_end_matches("_sizes").trim_end_matches("_items");
    let help = "Keys of a type with this size or more, less than twice as much: bytes of strings, elements.";
    for (size, count) in value.split(',').filter_map(|part| part.split_once('=')) {
        page.add(("db_key_sizes", Kind::Gauge, help), &[("db", db), ("type", kind), ("size", size)], count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_become_series_with_types() {
        let mut page = Page::default();
        plain(&mut page, "stats", "total_commands_processed", "7");
        plain(&mut page, "memory", "new_field", "1.5");
        parts(&mut page, "commandstats", "cmdstat_config|get", "calls=2,usec=1500000,usec_per_call=1.0");
        parts(&mut page, "latencystats", "latency_percentiles_usec_get", "p50=1.003,p99.9=2000");
        parts(&mut page, "errorstats", "errorstat_A\"\\", "count=3");
        parts(&mut page, "server", "listener0", "name=tcp,bind=::1,port=1");
        let expected = "\
# TYPE saker_command_calls counter
# HELP saker_command_calls Runs of a command.
saker_command_calls_total{command=\"config|get\"} 2
# TYPE saker_command_duration_seconds counter
# HELP saker_command_duration_seconds Time spent in a command.
saker_command_duration_seconds_total{command=\"config|get\"} 1.5
# TYPE saker_command_latency_seconds summary
# HELP saker_command_latency_seconds Percentiles of a command's times.
saker_command_latency_seconds{command=\"get\",quantile=\"0.5\"} 0.000001003
saker_command_latency_seconds{command=\"get\",quantile=\"0.9990000000000001\"} 0.002
# TYPE saker_commands_processed counter
# HELP saker_commands_processed Requests run.
saker_commands_processed_total 7
# TYPE saker_errors counter
# HELP saker_errors Error replies by their first word.
saker_errors_total{code=\"A\\\"\\\\\"} 3
# TYPE saker_new_field gauge
# HELP saker_new_field new_field of INFO memory.
saker_new_field 1.5
# EOF
";
        assert_eq!(page.text(), expected.replace("0.9990000000000001", &(99.9 / 100.0).to_string()));
    }

    #[test]
    fn words_are_no_numbers() {
        let check = |name: &str, value: &str, expected: Option<&str>| {
            assert_eq!(number(name, value), expected, "{name}:{value}");
        };
        check("x", "-1", Some("-1"));
        check("used_memory_peak_perc", "99.50%", Some("99.50"));
        check("rdb_last_bgsave_status", "ok", Some("1"));
        check("used_memory_human", "12", None);
        check("master_replid", "12e4", None);
        check("x", "inf", None);
        check("x", "", None);
        check("x", "1.2.3", None);
    }
}
