//! What a study came to, as plain data: all rounds of all cells, and what was learned about the
//! engines. It is results.json, and all that the reports are made of.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::stats::{self, Estimate};
use super::study::Point;
use crate::results::{Ending, LatencySummary, LinkKind, RunResult};

/// A whole study's outcome.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The study's title.
    pub title: String,
    /// What it is for.
    pub description: String,
    /// When it began, in milliseconds of Unix time.
    pub started_unix_ms: u64,
    /// Rounds asked for.
    pub rounds: u32,
    /// Whether it was shortened by `--quick`: its figures are a demonstration.
    pub quick: bool,
    /// Whether connections rose until the rate stopped rising.
    pub rising_connections: bool,
    /// The engine that differences are relative to.
    pub baseline: String,
    /// The machine.
    pub machine: Machine,
    /// The engines in the study's order, those that were left out too.
    pub engines: Vec<EngineFacts>,
    /// What a reader should know: what was left out and why, settings that differ.
    pub notes: Vec<String>,
    /// What was measured.
    pub cells: Vec<Cell>,
    /// What keys took.
    pub memory: Vec<KeyMemory>,
    /// The simulated links, by their round trip.
    #[serde(default)]
    pub links: BTreeMap<u32, LinkKind>,
    /// What the command line made shorter than the study has it, a few words each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shortened: Vec<String>,
    /// The seed of all random choices; each run has one of its own that follows from it. Absent in
    /// results of versions that did not write it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
}

/// The machine that the load generator ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Its processor.
    pub cpu: String,
    /// Processors that may be used.
    pub cores: usize,
    /// Its memory.
    pub memory_bytes: u64,
    /// Kernel and version.
    pub system: String,
}

/// What is known of an engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EngineFacts {
    /// The study's name for it.
    pub name: String,
    /// From INFO.
    pub version: String,
    /// The command line as the study has it, or the address of a running one.
    pub start: String,
    /// From CONFIG GET: maxmemory, save, appendonly, io-threads …; what the engine
    /// does not know is absent.
    pub settings: BTreeMap<String, String>,
    /// Why it was left out altogether.
    pub left_out: Option<String>,
}

/// All rounds of one engine at one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// The engine's name.
    pub engine: String,
    /// Where it was measured.
    pub point: Point,
    /// Each round's result, as far as there is one.
    pub rounds: Vec<RunResult>,
    /// Why there are fewer rounds than asked for.
    pub failure: Option<String>,
}

/// What keys took in one engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyMemory {
    /// The engine's name.
    pub engine: String,
    /// I/O threads.
    pub io_threads: u32,
    /// Size of their values.
    pub value_bytes: usize,
    /// Keys written.
    pub keys: u64,
    /// Growth of resident memory per key.
    pub bytes_per_key: f64,
}

impl Outcome {
    /// The engines that were measured.
    pub fn measured(&self) -> impl Iterator<Item = &EngineFacts> {
        self.engines.iter().filter(|engine| engine.left_out.is_none())
    }

    /// The way to a server `round_trip_ms` away in words, with what made the link.
    pub fn link_name(&self, round_trip_ms: u32) -> String {
        match (round_trip_ms, self.links.get(&round_trip_ms)) {
            (0, _) => "this machine".to_owned(),
            (round_trip, Some(kind)) => format!("{round_trip} ms link ({})", kind.name()),
            (round_trip, None) => format!("{round_trip} ms link"),
        }
    }

    /// A sentence on what was made shorter than the study has it, if anything was.
    pub fn about_shortening(&self) -> Option<String> {
        let what = self.shortened.join(", ");
        (!what.is_empty()).then(|| format!("Shortened on the command line: {what}."))
    }

    /// A sentence on each simulated link.
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

    /// The cell of `engine` at `point`.
    pub fn cell(&self, engine: &str, point: &Point) -> Option<&Cell> {
        self.cells.iter().find(|cell| cell.engine == engine && cell.point == *point)
    }
}

/// A figure of a cell: its medians over the rounds are what tables and pictures show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Metric {
    /// Requests per second.
    Rate,
    /// Mean latency, in microseconds as all latencies.
    Mean,
    /// The shortest latency.
    Min,
    /// The median.
    P50,
    /// The 75th percentile.
    P75,
    /// The 90th.
    P90,
    /// The 95th.
    P95,
    /// The 99th.
    P99,
    /// The 99.9th.
    P999,
    /// The 99.99th.
    P9999,
    /// The longest.
    Max,
    /// CPU time of the server per request, in microseconds.
    ServerCpu,
    /// CPU time of the load generator per request, in microseconds.
    ClientCpu,
    /// CPU time of the server over wall time, in percent of one processor.
    ServerBusy,
    /// CPU time of the busiest thread of the load generator over wall time, in percent.
    ClientBusy,
    /// CPU time of the link's relay per request, in microseconds.
    LinkCpu,
    /// Resident memory of the server.
    Rss,
    /// Context switches of the server per thousand requests.
    Switches,
    /// Hits among the reads, 0 to 1.
    HitRate,
}

impl Metric {
    /// The latencies that published tables show.
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

    /// Whether more is better.
    pub fn more_is_better(self) -> bool {
        matches!(self, Metric::Rate | Metric::HitRate)
    }

    /// Whether more or less of it is better or worse at all. What the load generator takes is no
    /// merit of a server, nor is being busy.
    pub fn is_judged(self) -> bool {
        !matches!(self, Metric::ClientCpu | Metric::LinkCpu | Metric::ServerBusy | Metric::ClientBusy)
    }

    /// Its name in tables.
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
        }
    }

    /// Its value in one run; `None` where it is not known.
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
        }
    }
}

impl Cell {
    /// The median of `metric` over the rounds with its interval.
    pub fn estimate(&self, metric: Metric) -> Option<Estimate> {
        Estimate::of(self.rounds.iter().filter_map(|run| metric.of(run)))
    }

    /// The median of `metric` over the rounds.
    pub fn median(&self, metric: Metric) -> Option<f64> {
        stats::median(self.rounds.iter().filter_map(|run| metric.of(run)))
    }

    /// Why the client was thought to be the limit, when it was in half of the rounds or more.
    pub fn client_bound(&self) -> Option<&str> {
        let bound: Vec<_> = self.rounds.iter().filter(|run| run.is_client_bound()).collect();
        let often = bound.len() * 2 >= self.rounds.len();
        bound.first().filter(|_| often).map(|run| run.client.bound.reason.as_str())
    }

    /// Error replies of all rounds.
    pub fn errors(&self) -> u64 {
        self.rounds.iter().map(RunResult::error_count).sum()
    }

    /// In one word: `ok`, `client-bound`, `errors`, `partial` or `failed`, the worst that holds.
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

    /// What to put beside its figures, empty when all is well.
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
