//! Conversion of INFO's fields to a page of metrics; `catalog.rs` maps fields to metrics.

use std::collections::BTreeSet;

use engine::shared::GateSlot;
use engine::stats::histogram::Times;
use engine::stats::{CommandCounters, Counter};

use super::catalog::{self, Field, Kind, Metric, Parts};
use super::page::{Page, float};
use crate::config::choices::PerCommand;
use crate::config::table::network;
use crate::info;
use crate::replicas::good_replicas::Demand;
use crate::replication::table::{Row, rows};
use crate::shared::Shared;

/// The limits of histograms, in nanoseconds: two in each power of ten from 10 µs to 1 s, and 10 s.
/// Over a network, no duration is below 10 µs.
const LIMITS_NANOS: [u64; 12] = [
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
    300_000_000,
    1_000_000_000,
    10_000_000_000,
];

/// Returns a page of all metrics. Reads a few files in /proc. Acquires shard locks one after
/// another, and is inside the gate that guards the keyspace only during that time. The calling
/// thread is outside the gate and owns `slot`.
pub fn page(shared: &Shared, slot: GateSlot) -> Page {
    let mut page = Page::default();
    let per_command = network::METRICS_PER_COMMAND.of(&shared.config());
    let mut words: Vec<(String, String)> = Vec::new();
    let wanted = |section: &str| match section {
        "commandstats" => per_command != PerCommand::No,
        "latencystats" => per_command == PerCommand::Percentiles,
        _ => true,
    };
    info::each_field(shared, slot, wanted, |section, name, value| {
        if catalog::INFO.labels.contains(&name) {
            words.push((name.to_owned(), value.to_owned()));
        } else if section == "latencystats" {
            percentiles(&mut page, name, value);
        } else if section == "keysizes" {
            key_sizes(&mut page, name, value);
        } else if let Some(known) = parts_of(section) {
            parts(&mut page, known, name, value);
        } else if let Some(field) = fields().find(|field| field.info == name) {
            add(&mut page, field, &[], value);
        }
    });
    let words: Vec<(&str, &str)> = words.iter().map(|(name, value)| (&**name, &**value)).collect();
    page.add(&catalog::INFO, &words, "1");
    replicas(&mut page, &rows(&shared.replication.primary(), shared.uptime_ms()));
    if let Some(demand) = Demand::of(&shared.config()) {
        page.add(&catalog::GOOD_REPLICAS_MIN, &[], &demand.replicas.to_string());
    }
    times(&mut page, shared, per_command);
    process(&mut page, shared);
    page
}

/// Returns the fields of INFO that consist of one number and have a metric.
fn fields() -> impl Iterator<Item = &'static Field> {
    catalog::FIELDS.iter().chain(catalog::AT_TIMES)
}

/// Adds a value of INFO to the page, converted to the metric's unit. Adds no sample if the text is
/// not a value.
fn add(page: &mut Page, field: &'static Field, labels: &[(&str, &str)], value: &str) {
    let value = match value {
        "ok" | "up" => "1",
        "err" | "down" => "0",
        "-1" => return,
        number => number,
    };
    let Ok(number) = value.parse::<f64>() else { return };
    let scaled = (number / field.per_unit).to_string();
    page.add(&field.metric, labels, if field.per_unit == 1.0 { value } else { &scaled });
}

fn parts_of(section: &str) -> Option<&'static Parts> {
    std::iter::once(&catalog::COMMANDS).chain(catalog::PARTS).find(|parts| parts.section == section)
}

/// Adds the parts of a field such as `db0:keys=1,expires=0` to the page.
fn parts(page: &mut Page, known: &'static Parts, name: &str, value: &str) {
    let Some(label) = name.strip_prefix(known.prefix) else { return };
    for (name, value) in value.split(',').filter_map(|part| part.split_once('=')) {
        if let Some(field) = known.fields.iter().find(|field| field.info == name) {
            add(page, field, &[(field.metric.labels[0], label)], value);
        }
    }
}

/// Adds the percentiles of a field such as `latency_percentiles_usec_get:p50=1.003,p99.9=2.007` to
/// the page. The end-to-end percentiles are left out, because there is a histogram of these times.
fn percentiles(page: &mut Page, name: &str, value: &str) {
    let Some(command) = name.strip_prefix("latency_percentiles_usec_") else { return };
    for (percentile, usec) in value.split(',').filter_map(|part| part.split_once('=')) {
        let percent = percentile.strip_prefix('p').and_then(|text| text.parse::<f64>().ok());
        if let (Some(percent), Ok(usec)) = (percent, usec.parse::<f64>()) {
            let labels = [("command", command), ("quantile", &*float(percent / 100.0))];
            page.add(&catalog::COMMAND_LATENCY, &labels, &(usec / 1e6).to_string());
        }
    }
}

/// Adds the bins of a field such as `db0_distrib_lists_items:4=1,1K=2` to the page: a gauge for
/// each database, type and smallest size of a bin.
fn key_sizes(page: &mut Page, name: &str, value: &str) {
    let Some((db, kind)) = name.strip_prefix("db").and_then(|rest| rest.split_once("_distrib_")) else {
        return;
    };
    let kind = kind.trim_end_matches("_sizes").trim_end_matches("_items");
    for (size, count) in value.split(',').filter_map(|part| part.split_once('=')) {
        page.add(&catalog::KEY_SIZES, &[("db", db), ("type", kind), ("size", size)], count);
    }
}

/// Adds the progress of each replica that receives the replication stream to the page. Replicas
/// with the same address and port cannot be distinguished, so only the first one has samples.
fn replicas(page: &mut Page, rows: &[Row]) {
    let mut names = BTreeSet::new();
    for row in rows.iter().filter(|row| row.is_online) {
        let name = row.name();
        if names.insert(name.clone()) {
            let labels = [("replica", &*name)];
            page.add(&catalog::REPLICA_OFFSET, &labels, &row.offset.to_string());
            page.add(&catalog::REPLICA_LAG_BYTES, &labels, &row.behind_bytes.to_string());
            page.add(&catalog::REPLICA_LAG_SECONDS, &labels, &row.lag_s.to_string());
        }
    }
}

/// Adds the histograms of the durations of requests and commands to the page, if `latency-tracking`
/// is on.
fn times(page: &mut Page, shared: &Shared, per_command: PerCommand) {
    if !shared.engine.settings.get().thresholds.histograms {
        return;
    }
    let ids = 0..shared.engine.table.id_count();
    let sum = |id: usize, of: fn(&CommandCounters) -> &Counter| {
        shared.engine.threads.sum(|stats| of(&stats.commands[id]))
    };
    let nanos = ids.clone().map(|id| sum(id, |command| &command.end_to_end_nanos)).sum();
    histogram(page, &catalog::REQUEST_SECONDS, &[], &shared.engine.threads.end_to_end(), nanos);
    for id in ids.filter(|_| per_command == PerCommand::Histograms) {
        let times = shared.engine.threads.times_of(id);
        if times.calls > 0 {
            let labels = [("command", shared.engine.table.by_id(id).full_name)];
            let nanos = sum(id, |command| &command.nanos);
            histogram(page, &catalog::COMMAND_SECONDS, &labels, &times, nanos);
        }
    }
}

fn histogram(page: &mut Page, metric: &'static Metric, labels: &[(&str, &str)], times: &Times, nanos: u64) {
    debug_assert_eq!(metric.kind, Kind::Histogram);
    let seconds = |nanos: u64| nanos as f64 / 1e9;
    let buckets: Vec<(f64, u64)> =
        LIMITS_NANOS.iter().map(|&limit| seconds(limit)).zip(times.below(LIMITS_NANOS.into_iter())).collect();
    page.add_histogram(metric, labels, &buckets, (times.calls, seconds(nanos)));
}

/// Adds the kernel's statistics of the process to the page.
fn process(page: &mut Page, shared: &Shared) {
    page.add(&catalog::START_TIME, &[], &shared.started_unix_s.to_string());
    if let Some(open) = crate::process::open_fds() {
        page.add(&catalog::OPEN_FDS, &[], &open.to_string());
    }
    if let Some(max) = crate::process::max_fds() {
        page.add(&catalog::MAX_FDS, &[], &max.to_string());
    }
    for (thread, time) in crate::process::thread_times() {
        let labels = [("thread", &*thread)];
        page.add(&catalog::THREAD_CPU, &labels, &format!("{:.6}", time.running.as_secs_f64()));
        page.add(&catalog::THREAD_WAIT, &labels, &format!("{:.6}", time.ready.as_secs_f64()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::page::Format;
    use super::*;

    #[test]
    fn fields_become_samples_in_the_unit_of_their_metric() {
        let mut page = Page::default();
        let field =
            |name: &str| catalog::FIELDS.iter().find(|field| field.info == name).expect("it is known");
        add(&mut page, field("total_commands_processed"), &[], "7");
        add(&mut page, field("eventloop_duration_sum"), &[], "1500000");
        add(&mut page, field("used_memory"), &[], "no number");
        let known = |section| parts_of(section).expect("it is known");
        parts(
            &mut page,
            known("commandstats"),
            "cmdstat_config|get",
            "calls=2,usec=1500000,usec_per_call=1.0",
        );
        parts(&mut page, known("errorstats"), "errorstat_A\"\\", "count=3");
        percentiles(&mut page, "latency_percentiles_usec_get", "p50=1.003,p99.9=2000");
        percentiles(&mut page, "latency_end_to_end_usec_get", "p50=1.003");
        key_sizes(&mut page, "db0_distrib_lists_items", "4=1,1K=2");
        let text = page.text(Format::Text);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "saker_command_calls_total{command=\"config|get\"} 2",
                "saker_command_duration_seconds_total{command=\"config|get\"} 1.5",
                "saker_command_latency_seconds{command=\"get\",quantile=\"0.5\"} 0.000001003",
                "saker_command_latency_seconds{command=\"get\",quantile=\"0.999\"} 0.002",
                "saker_commands_processed_total 7",
                "saker_db_key_sizes{db=\"0\",type=\"lists\",size=\"4\"} 1",
                "saker_db_key_sizes{db=\"0\",type=\"lists\",size=\"1K\"} 2",
                "saker_errors_total{code=\"A\\\"\\\\\"} 3",
                "saker_eventloop_seconds_total 1.5",
            ]
        );
    }
}
