//! LATENCY DOCTOR: a report in words about the latency spikes.

use std::fmt::Write;

use super::{Sample, Series};

/// The input of the report of LATENCY DOCTOR, besides the latency spikes.
#[derive(Clone, Copy, Debug)]
pub struct ReportInput {
    /// The present time for the report, in Unix seconds.
    pub unix_s: i64,
    /// The option `latency-monitor-threshold`, in milliseconds; 0 for off.
    pub threshold_ms: u64,
    /// The option `slowlog-log-slower-than`, in microseconds; `None` for off.
    pub slowlog_usec: Option<u64>,
}

/// The statistics of one series of latency spikes, for the report of LATENCY DOCTOR.
struct Figures {
    average_ms: u64,
    /// The mean absolute difference between the samples and their average, in milliseconds.
    deviation_ms: u64,
    /// The mean time between samples, from the oldest one until now, in seconds.
    period_s: f64,
}

impl Figures {
    fn of(series: &Series, unix_s: i64) -> Self {
        let count = series.samples.len() as u64;
        let mean = |values: &dyn Fn(&Sample) -> u64| series.samples.iter().map(values).sum::<u64>() / count;
        let average_ms = mean(&|sample| sample.ms);
        let deviation_ms = mean(&|sample| sample.ms.abs_diff(average_ms));
        let oldest_s = series.samples.front().map_or(unix_s, |sample| sample.unix_s);
        Self { average_ms, deviation_ms, period_s: (unix_s - oldest_s).max(0) as f64 / count as f64 }
    }
}

/// Returns the lines of LATENCY DOCTOR's advice about the latency spikes of an event; none for an
/// unknown event.
fn advice(event: &str) -> &'static [&'static str] {
    match event {
        "command" => &[
            "SLOWLOG GET shows which commands took long. Those that walk a whole collection (KEYS, SMEMBERS, \
             LRANGE 0 -1) take as long as it is: Use SCAN, HSCAN, SSCAN and ZSCAN, or smaller ranges, to work in steps.",
        ],
        "fast-command" => {
            &["A command with little to do was held up. Its thread may have had no core: compare \
             saker_thread_wait_seconds_total of the metrics endpoint, or look for other busy processes. Or it waited \
             for a shard's lock behind a slow command on a key of the same shard: see SLOWLOG GET."]
        }
        "command-unblocking" => &[
            "Blocked clients were served slowly: their command had much to do, or many clients were blocked on the same key.",
        ],
        "expire-cycle" => &[
            "A step of active expiry kept a shard locked. It is a few tens of microseconds of work, so its thread \
             was held up: the machine may be short of cores. A lower active-expire-effort makes steps rarer.",
        ],
        "eviction-cycle" | "eviction-del" | "eviction-lazyfree" => &[
            "Writes wait while keys are evicted for them. A higher maxmemory helps, or shorter times to live; \
             a lower maxmemory-eviction-tenacity makes the single wait shorter.",
        ],
        "gate-wait" => &[
            "Threads waited while one command had the whole keyspace locked. KEYS, FLUSHALL SYNC, SWAPDB, SORT with \
             patterns and transactions that contain such commands do: see SLOWLOG GET and INFO commandstats.",
        ],
        "reply-release" => &[
            "Replies waited until a reader of the change log had the changes that they show: its storage or its \
             network is slow. See INFO changelog.",
        ],
        _ => &[],
    }
}

/// Formats LATENCY DOCTOR's report about all series of latency spikes.
pub fn report(all: &[Series], at: ReportInput) -> String {
    if at.threshold_ms == 0 && all.is_empty() {
        return "The latency monitor is off. CONFIG SET latency-monitor-threshold <milliseconds> turns it on.\n"
            .to_owned();
    }
    if all.is_empty() {
        return format!(
            "No latency spikes: nothing took {} ms or more since the start or the last LATENCY RESET.\n",
            at.threshold_ms
        );
    }
    let mut text = String::from("Latency spikes:\n\n");
    // Writing to a String cannot fail, here and below.
    for (number, series) in all.iter().enumerate() {
        let Figures { average_ms, deviation_ms, period_s } = Figures::of(series, at.unix_s);
        let _ = writeln!(
            text,
            "{}. {}: {} latency spikes (average {average_ms}ms, mean deviation {deviation_ms}ms, period \
             {period_s:.2} sec). Worst all time event {}ms.",
            number + 1,
            series.name,
            series.samples.len(),
            series.max_ms
        );
    }
    text.push_str("\nWhat may help:\n\n");
    let mut given: Vec<&str> = Vec::new();
    for line in all.iter().flat_map(|series| advice(series.name)) {
        if !given.contains(line) {
            given.push(line);
            let _ = writeln!(text, "- {line}");
        }
    }
    let commands = all.iter().any(|series| series.name.ends_with("command"));
    if commands && at.threshold_ms > 0 && at.slowlog_usec.is_none_or(|usec| usec > at.threshold_ms * 1000) {
        let _ = writeln!(
            text,
            "- SLOWLOG misses commands that the monitor notes: CONFIG SET slowlog-log-slower-than {}.",
            at.threshold_ms * 1000
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &'static str, samples: &[(i64, u64)]) -> Series {
        Series {
            name,
            samples: samples.iter().map(|&(unix_s, ms)| Sample { unix_s, ms }).collect(),
            max_ms: samples.iter().map(|&(_, ms)| ms).max().unwrap_or(0),
        }
    }

    #[test]
    fn a_report_has_the_figures_and_what_helps() {
        let all = [
            series("command", &[(100, 10), (110, 30), (120, 20)]),
            series("eviction-cycle", &[(120, 7)]),
            series("eviction-del", &[(120, 7)]),
        ];
        let at = ReportInput { unix_s: 130, threshold_ms: 5, slowlog_usec: Some(10_000) };
        let text = report(&all, at);
        let figures = "1. command: 3 latency spikes (average 20ms, mean deviation 6ms, period 10.00 sec). \
             Worst all time event 30ms.";
        assert!(text.contains(figures), "{text}");
        assert_eq!(text.matches("- ").count(), 3, "{text}");
        assert!(text.contains("slowlog-log-slower-than 5000"), "{text}");
        let noted = ReportInput { slowlog_usec: Some(5000), ..at };
        assert!(!report(&all, noted).contains("slowlog-log-slower-than"));
    }

    #[test]
    fn without_spikes_it_says_whether_anybody_looked() {
        let at = ReportInput { unix_s: 0, threshold_ms: 0, slowlog_usec: None };
        assert!(report(&[], at).contains("is off"));
        assert!(report(&[], ReportInput { threshold_ms: 9, ..at }).contains("No latency spikes"));
    }
}
