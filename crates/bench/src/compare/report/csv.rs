//! results.csv: one line for the results of one engine at one point of measurement (a cell), with
//! redis-benchmark's columns, then additional ones. Figures are medians over the rounds. An unknown
//! figure is empty.

use std::io;

use csv::{QuoteStyle, WriterBuilder};

use crate::compare::outcome::{Cell, Metric, Outcome};
use crate::compare::rounds::transport_name;

/// The names of the columns that results.csv shares with `redis-benchmark --csv`.
const THEIRS: [&str; 8] = [
    "test",
    "rps",
    "avg_latency_ms",
    "min_latency_ms",
    "p50_latency_ms",
    "p95_latency_ms",
    "p99_latency_ms",
    "max_latency_ms",
];

const OURS: [&str; 32] = [
    "engine",
    "version",
    "transport",
    "round_trip_ms",
    "link",
    "io_threads",
    "value_bytes",
    "connections",
    "rounds",
    "rps_low",
    "rps_high",
    "interval_coverage",
    "p75_latency_ms",
    "p90_latency_ms",
    "p99_9_latency_ms",
    "p99_99_latency_ms",
    "server_cpu_us",
    "client_cpu_us",
    "link_cpu_us",
    "server_busy_percent",
    "client_busiest_percent",
    "server_rss_mb",
    "server_switches_per_1000",
    "hit_rate_percent",
    "recall_percent",
    "beside_p99_latency_ms",
    "bytes_per_vector",
    "errors",
    "client_bound",
    "client_bound_reason",
    "status",
    "failure",
];

/// Returns the text of results.csv for the outcome of a study.
pub fn text(outcome: &Outcome) -> io::Result<String> {
    let mut writer = WriterBuilder::new().quote_style(QuoteStyle::Always).from_writer(Vec::new());
    writer.write_record(THEIRS.iter().chain(&OURS))?;
    for cell in &outcome.cells {
        writer.write_record(record(outcome, cell))?;
    }
    let bytes = writer.into_inner().map_err(|error| io::Error::other(error.to_string()))?;
    String::from_utf8(bytes).map_err(io::Error::other)
}

fn record(outcome: &Outcome, cell: &Cell) -> Vec<String> {
    let number = |value: Option<f64>, places: usize| {
        value.map_or_else(String::new, |value| format!("{value:.places$}"))
    };
    let milliseconds = |metric: Metric| number(cell.median(metric).map(|us| us / 1e3), 3);
    let rate = cell.estimate(Metric::Rate);
    let version = outcome.engines.iter().find(|engine| engine.name == cell.engine);
    let point = &cell.point;
    vec![
        point.test.clone(),
        number(rate.map(|rate| rate.median), 2),
        milliseconds(Metric::Mean),
        milliseconds(Metric::Min),
        milliseconds(Metric::P50),
        milliseconds(Metric::P95),
        milliseconds(Metric::P99),
        milliseconds(Metric::Max),
        cell.engine.clone(),
        version.map_or_else(String::new, |engine| engine.version.clone()),
        transport_name(point.transport).to_owned(),
        point.round_trip_ms.to_string(),
        outcome.links.get(&point.round_trip_ms).map_or("", |kind| kind.name()).to_owned(),
        point.io_threads.to_string(),
        point.value_bytes.to_string(),
        point.connections.to_string(),
        cell.rounds.len().to_string(),
        number(rate.map(|rate| rate.low), 2),
        number(rate.map(|rate| rate.high), 2),
        number(rate.map(|rate| rate.coverage), 3),
        milliseconds(Metric::P75),
        milliseconds(Metric::P90),
        milliseconds(Metric::P999),
        milliseconds(Metric::P9999),
        number(cell.median(Metric::ServerCpu), 3),
        number(cell.median(Metric::ClientCpu), 3),
        number(cell.median(Metric::LinkCpu), 3),
        number(cell.median(Metric::ServerBusy), 1),
        number(cell.median(Metric::ClientBusy), 1),
        number(cell.median(Metric::Rss), 1),
        number(cell.median(Metric::Switches), 2),
        number(cell.median(Metric::HitRate), 2),
        number(cell.median(Metric::Recall), 3),
        milliseconds(Metric::BesideP99),
        number(cell.median(Metric::VectorBytes), 1),
        cell.errors().to_string(),
        cell.client_bound().is_some().to_string(),
        cell.client_bound().unwrap_or_default().to_owned(),
        cell.status().to_owned(),
        cell.failure.clone().unwrap_or_default(),
    ]
}
