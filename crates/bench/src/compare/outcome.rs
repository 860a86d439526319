//! The outcome of a study as plain data: all rounds of all cells, and the facts about the engines.
//! It is the content of results.json. All reports are made from it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::stats::{self, Estimate};
use super::study::Point;
use crate::results::{Ending, LatencySummary, LinkKind, RunResult};

/// The outcome of a whole study: its settings, its machine, its engines and all results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The title of the study, for the reports.
    pub title: String,
    /// The purpose of the study, for the reports.
    pub description: String,
    /// The start of the study, in milliseconds of Unix time.
    pub started_unix_ms: u64,
    /// The number of rounds that the study or the command line requests.
    pub rounds: u32,
    /// True if the `--quick` option shortened the study. Its figures are a demonstration.
    pub quick: bool,
    /// True if the number of connections was raised until the rate stopped rising.
    pub rising_connections: bool,
    /// The name of the engine (baseline) to which the differences of others are relative.
    pub baseline: String,
    /// The machine that ran the study.
    pub machine: Machine,
    /// The engines in the study's order, including those left out.
    pub engines: Vec<EngineFacts>,
    /// Remarks for the reader: omitted measurements with the reason, and settings that differ.
    pub notes: Vec<String>,
    /// The results of each engine at each [`Point`] of measurement.
    pub cells: Vec<Cell>,
    /// The memory per key of each engine, measured by the preload; empty without a preload.
    pub memory: Vec<KeyMemory>,
    /// The simulator of each simulated link (netem or a relay), by round trip time in milliseconds.
    #[serde(default)]
    pub links: BTreeMap<u32, LinkKind>,
    /// The limits that the command line made smaller, each as a phrase: `2 rounds instead of 5`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<String>,
    /// The seed of all random choices. The seed of each run is derived from it. Absent in results
    /// of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// The machine on which the load generator ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The model of the machine's processor.
    pub cpu: String,
    /// The number of processors that the process may use.
    pub cores: usize,
    /// The size of the machine's memory, in bytes.
    pub memory_bytes: u64,
    /// The kernel of the machine and its version.
    pub system: String,
}

/// The facts about an engine that reports show: its version, its start and its settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// The name of the engine in the study.
    pub name: String,
    /// The version that the engine states in INFO.
    pub version: String,
    /// The command line in the study, or the address of a running engine.
    pub start: String,
    /// The settings from CONFIG GET: maxmemory, save, appendonly, io-threads and others. Settings
    /// that the engine does not have are absent.
    pub settings: BTreeMap<String, String>,
    /// The reason why the engine was left out of the study; `None` if it was measured.
    pub left_out: Option<String>,
}

/// The results of all rounds of one engine at one [`Point`] of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The name of the engine that was measured.
    pub engine: String,
    /// The point of measurement: the test and the conditions, such as the number of connections.
    pub point: Point,
    /// The results of the rounds; rounds that measured nothing useful are absent.
    pub rounds: Vec<RunResult>,
    /// The newest reason why a round of this cell failed or ended early; `None` if no round did.
    pub failure: Option<String>,
}

/// The memory per key of one engine with one number of I/O threads, as the preload measured it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyMemory {
    /// The name of the engine whose memory was measured.
    pub engine: String,
    /// The number of I/O threads of the engine.
    pub io_threads: u32,
    /// The size of the values of the preload, in bytes.
    pub value_bytes: usize,
    /// The number of keys that the preload added.
    pub keys: u64,
    /// The growth of the engine's resident memory during the preload, in bytes per added key.
    pub bytes_per_key: f64,
}

impl Outcome {
    /// Returns the engines that were measured: those that were not left out of the study.
    pub fn measured(&self) -> impl Iterator<Item = &EngineFacts> {
        self.engines.iter().filter(|engine| engine.left_out.is_none())
    }

    /// Returns the name of the link with this round trip time, for reports. It includes the
    /// simulator.
    pub fn link_name(&self, round_trip_ms: u32) -> String {
        match (round_trip_ms, self.links.get(&round_trip_ms)) {
            (0, _) => "this machine".to_owned(),
            (round_trip, Some(kind)) => format!("{round_trip} ms link ({})", kind.name()),
            (round_trip, None) => format!("{round_trip} ms link"),
        }
    }

    /// Returns a sentence about the limits that the command line made smaller; `None` if there are
    /// none.
    pub fn about_shortening(&self) -> Option<String> {
        let what = self.shortened.join(", ");
        (!what.is_empty()).then(|| format!("Shortened on the command line: {what}."))
    }

    /// Returns one or two sentences for the reports about each simulated link.
    pub fn about_links(&self) -> Vec<String> {
        let busy = |round_trip_ms: u32| {
            let cells = self.cells.iter().filter(move |cell| cell.point.round_trip_ms == round_trip_ms);
            let shares = cells.flat_map(|cell| &cell.rounds).filter_map(|run| run.link.as_ref()?.busy);
            shares.fold(0.0, f64::max)
        };
        let about = |(&round_trip_ms, kind): (&u32, &LinkKind)| match kind {
            LinkKind::Netem => {
                format!(
                    "The {round_trip_ms} ms link is netem: the kernel delays what passes between two network namespaces."
                )
            }
            LinkKind::Relay => format!(
                "The {round_trip_ms} ms link is a relay: a thread of saker-bench on this machine that passes on what it \
                 is sent. It took up to {:.1} % of a processor, which is neither in the server's CPU nor in the client's.",
                busy(round_trip_ms) * 100.0
            ),
        };
        self.links.iter().map(about).collect()
    }

    /// Returns the results of `engine` at `point`; `None` if there are none.
    pub fn cell(&self, engine: &str, point: &Point) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.engine == engine && cell.point == *point)
    }
}

/// A figure that is computed from each run of a [`Cell`]. Tables and charts show its median over
/// the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// The number of requests that the server answered per second.
    Rate,
    /// The mean latency of requests, in microseconds.
    Mean,
    /// The shortest latency of requests, in microseconds.
    Min,
    /// The median latency of requests, in microseconds.
    P50,
    /// The 75th percentile of the requests' latency, in microseconds.
    P75,
    /// The 90th percentile of the requests' latency, in microseconds.
    P90,
    /// The 95th percentile of the requests' latency, in microseconds.
    P95,
    /// The 99th percentile of the requests' latency, in microseconds.
    P99,
    /// The 99.9th percentile of the requests' latency, in microseconds.
    P999,
    /// The 99.99th percentile of the requests' latency, in microseconds.
    P9999,
    /// The longest latency of requests, in microseconds.
    Max,
    /// The CPU time of the server per request, in microseconds.
    ServerCpu,
    /// The CPU time of the load generator per request, in microseconds.
    ClientCpu,
    /// The CPU time of the server divided by the wall time, in percent of one processor.
    ServerBusy,
    /// The CPU time of the load generator's busiest thread divided by the wall time, in percent.
    ClientBusy,
    /// The CPU time of the relay that simulates the link, per request, in microseconds.
    LinkCpu,
    /// The resident memory of the server, in megabytes (10^6 bytes).
    Rss,
    /// The context switches of the server per thousand requests.
    Switches,
    /// The share of reads that found a value, in percent.
    HitRate,
    /// The share of the true nearest neighbours that searches of a vector set found, in percent.
    Recall,
    /// The 99th percentile of latency of requests that are not searches, in a mix with searches, in
    /// microseconds.
    BesideP99,
    /// The memory per vector that a run added, in bytes.
    VectorBytes,
}

impl Metric {
    /// The latency metrics that the tables of summary.md show.
    pub const LATENCIES: [Metric; 8] = [
        Metric::Mean,
        Metric::Min,
        Metric::P50,
        Metric::P95,
        Metric::P99,
        Metric::P999,
        Metric::P9999,
        Metric::Max,
    ];

    /// Returns true if a larger value of this metric is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Metric::Rate | Metric::HitRate | Metric::Recall)
    }

    /// Returns true if an engine can be better or worse by this metric. The CPU time of the load
    /// generator and of the link, and the busy shares, do not show the quality of a server.
    pub fn is_judged(self) -> bool {
        !matches!(self, Metric::ClientCpu | Metric::LinkCpu | Metric::ServerBusy | Metric::ClientBusy)
    }

    /// Returns the name of the figure in tables, with its unit.
    pub fn title(self) -> &'static str {
        match self {
            Metric::Rate => "requests/s",
            Metric::Mean => "mean latency, µs",
            Metric::Min => "shortest latency, µs",
            Metric::P50 => "p50 latency, µs",
            Metric::P75 => "p75 latency, µs",
            Metric::P90 => "p90 latency, µs",
            Metric::P95 => "p95 latency, µs",
            Metric::P99 => "p99 latency, µs",
            Metric::P999 => "p99.9 latency, µs",
            Metric::P9999 => "p99.99 latency, µs",
            Metric::Max => "longest latency, µs",
            Metric::ServerCpu => "server CPU per request, µs",
            Metric::ClientCpu => "client CPU per request, µs",
            Metric::ServerBusy => "server CPU, % of one processor",
            Metric::ClientBusy => "busiest client thread, %",
            Metric::LinkCpu => "link CPU per request, µs",
            Metric::Rss => "resident memory, MB",
            Metric::Switches => "context switches per 1,000 requests",
            Metric::HitRate => "hit rate, %",
            Metric::Recall => "recall, %",
            Metric::BesideP99 => "p99 latency of other requests beside searches, µs",
            Metric::VectorBytes => "memory per vector, bytes",
        }
    }

    /// Returns the value of this metric in one run; `None` if it is unknown.
    pub fn of(self, run: &RunResult) -> Option<f64> {
        let latency = |field: fn(&LatencySummary) -> f64| (run.requests > 0).then(|| field(&run.latency));
        match self {
            Metric::Rate => Some(run.requests_per_second),
            Metric::Mean => latency(|latency| latency.mean_us),
            Metric::Min => latency(|latency| latency.min_us),
            Metric::P50 => latency(|latency| latency.p50_us),
            Metric::P75 => latency(|latency| latency.p75_us),
            Metric::P90 => latency(|latency| latency.p90_us),
            Metric::P95 => latency(|latency| latency.p95_us),
            Metric::P99 => latency(|latency| latency.p99_us),
            Metric::P999 => latency(|latency| latency.p99_9_us),
            Metric::P9999 => latency(|latency| latency.p99_99_us),
            Metric::Max => latency(|latency| latency.max_us),
            Metric::ServerCpu => Some(run.server.as_ref()?.cpu_us_per_request),
            Metric::ClientCpu => Some(run.client.cpu_us_per_request),
            Metric::ServerBusy => {
                let server = run.server.as_ref().filter(|_| run.duration_seconds > 0.0)?;
                Some(server.cpu_seconds / run.duration_seconds * 100.0)
            }
            Metric::ClientBusy => Some(run.client.busy.iter().copied().reduce(f64::max)? * 100.0),
            Metric::LinkCpu => run.link.as_ref()?.cpu_us_per_request,
            Metric::Rss => Some(run.server.as_ref()?.rss_bytes as f64 / 1e6),
            Metric::Switches => {
                let server = run.server.as_ref()?;
                let switches = server.context_switches_voluntary + server.context_switches_involuntary;
                (run.requests > 0).then(|| switches as f64 / run.requests as f64 * 1e3)
            }
            Metric::HitRate => run.hit_rate().map(|rate| rate * 100.0),
            Metric::Recall => run.vectors.as_ref()?.recall.map(|recall| recall * 100.0),
            Metric::BesideP99 => {
                let beside = run.vectors.as_ref()?.beside.as_ref()?;
                (beside.requests > 0).then_some(beside.latency.p99_us)
            }
            Metric::VectorBytes => run.vectors.as_ref()?.bytes_per_vector,
        }
    }
}

impl Cell {
    /// Returns the median of `metric` over the rounds of the cell, with its confidence interval;
    /// `None` if no round has a value.
    pub fn estimate(&self, metric: Metric) -> Option<Estimate> {
        Estimate::of(self.rounds.iter().filter_map(|run| metric.of(run)))
    }

    /// Returns the median of `metric` over the rounds of the cell; `None` if no round has a value.
    pub fn median(&self, metric: Metric) -> Option<f64> {
        stats::median(self.rounds.iter().filter_map(|run| metric.of(run)))
    }

    /// Returns the reason why the load generator was the bottleneck; `None` if it was so in fewer
    /// than half of the rounds.
    pub fn client_bound(&self) -> Option<&str> {
        let bound: Vec<_> = self.rounds.iter().filter(|run| run.is_client_bound()).collect();
        let often = bound.len() * 2 >= self.rounds.len();
        bound.first().filter(|_| often).map(|run| run.client.bound.reason.as_str())
    }

    /// Returns the number of error replies and failed verifications in all rounds of the cell.
    pub fn errors(&self) -> u64 {
        self.rounds.iter().map(RunResult::error_count).sum()
    }

    /// Returns the most serious status that applies to the cell: `failed` (no results), `partial`
    /// (a round failed or ended early), `errors`, `client-bound` or `ok`.
    pub fn status(&self) -> &'static str {
        if self.rounds.is_empty() {
            return "failed";
        }
        let cut_short = |run: &RunResult| run.ending != Ending::Complete;
        if self.failure.is_some() || self.rounds.iter().any(cut_short) {
            return "partial";
        }
        if self.errors() > 0 {
            return "errors";
        }
        if self.client_bound().is_some() { "client-bound" } else { "ok" }
    }

    /// Returns the warnings to print next to the figures of the cell, such as `client-bound`; empty
    /// without warnings.
    pub fn mark(&self) -> String {
        let mut marks = Vec::new();
        if self.client_bound().is_some() {
            marks.push("client-bound".to_owned());
        }
        if self.errors() > 0 {
            marks.push(format!("{} errors", self.errors()));
        }
        if matches!(self.status(), "partial" | "failed") {
            marks.push(self.status().to_owned());
        }
        marks.join(", ")
    }
}
