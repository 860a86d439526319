//! Results as text: a report for people, redis-benchmark's quiet line and CSV.
//!
//! The CSV has redis-benchmark's columns first, with its number formats, then additional ones.

use std::fmt::Write;

use crate::results::{Ending, LatencySummary, LoopMode, RunResult, VectorUse};

/// The number of decimals of latencies in milliseconds, unless `--precision` is given.
pub const DECIMALS: usize = 3;
/// The largest number of decimals that `--precision` can request.
pub const DECIMALS_MAX: usize = 4;

/// The header line of the CSV that `saker-bench run --csv` prints.
pub const CSV_HEADER: &str = "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\
    \"p95_latency_ms\",\"p99_latency_ms\",\"max_latency_ms\",\"p99_9_latency_ms\",\"p99_99_latency_ms\",\
    \"errors\",\"client_bound\",\"ending\"";

/// Returns the CSV line of `result`, without a line end. Latencies have `decimals` decimal places.
pub fn csv_line(result: &RunResult, decimals: usize) -> String {
    let latency = &result.latency;
    let mut line = format!("\"{}\",\"{:.2}\"", result.test.replace('"', "\"\""), result.requests_per_second);
    for us in [
        latency.mean_us,
        latency.min_us,
        latency.p50_us,
        latency.p95_us,
        latency.p99_us,
        latency.max_us,
        latency.p99_9_us,
        latency.p99_99_us,
    ] {
        push(&mut line, format_args!(",\"{:.decimals$}\"", us / 1e3));
    }
    let bound = if result.is_client_bound() { "yes" } else { "no" };
    let ending = match result.ending {
        Ending::Complete => "complete",
        Ending::Interrupted => "interrupted",
        Ending::Failed(_) => "ended early",
    };
    push(&mut line, format_args!(",\"{}\",\"{bound}\",\"{ending}\"", result.error_count()));
    line
}

/// Returns the line that redis-benchmark prints for a test with `-q`, without a line end. Warnings
/// about the result are appended. The latency has `decimals` decimals.
pub fn quiet_line(result: &RunResult, decimals: usize) -> String {
    let p50_ms = result.latency.p50_us / 1e3;
    let mut line = format!(
        "{}: {:.2} requests per second, p50={p50_ms:.decimals$} msec",
        result.test, result.requests_per_second
    );
    if let Some(recall) = result.vectors.as_ref().and_then(|vectors| vectors.recall) {
        push(&mut line, format_args!(", recall={:.2} %", recall * 100.0));
    }
    if result.is_client_bound() {
        line.push_str(", client-bound");
    }
    if result.error_count() > 0 {
        push(&mut line, format_args!(", {} errors", result.error_count()));
    }
    if let Some(redirected) = result.cluster.as_ref().map(|cluster| cluster.moved + cluster.asked)
        && redirected > 0
    {
        push(&mut line, format_args!(", {redirected} redirected"));
    }
    match result.ending {
        Ending::Complete => {}
        Ending::Interrupted => line.push_str(", interrupted"),
        Ending::Failed(_) => line.push_str(", ended early"),
    }
    line
}

/// Returns the report of one run, for people. Latencies have `decimals` decimals.
pub fn report(result: &RunResult, decimals: usize) -> String {
    let mut out = format!("====== {} ======\n", result.test);
    let settings = &result.settings;
    push(
        &mut out,
        format_args!("  {} requests completed in {:.2} seconds\n", result.requests, result.duration_seconds),
    );
    let mut how = format!("{} parallel clients, {} threads", settings.connections, settings.threads);
    if settings.pipeline > 1 {
        push(&mut how, format_args!(", pipeline {}", settings.pipeline));
    }
    if !settings.value_bytes.is_empty() {
        push(&mut how, format_args!(", {} bytes payload", settings.value_bytes));
    }
    if settings.keyspace > 0 {
        push(&mut how, format_args!(", {} keys", settings.keyspace));
    }
    if let LoopMode::Open { requests_per_second } = settings.loop_mode {
        push(&mut how, format_args!(", {requests_per_second} requests/s planned"));
    }
    if settings.reconnect {
        how.push_str(", a connection per request");
    }
    if let Some(us) = settings.gather_us {
        push(&mut how, format_args!(", replies gathered for up to {us} us"));
    }
    if let Some(seed) = settings.seed {
        push(&mut how, format_args!(", seed {seed}"));
    }
    push(&mut out, format_args!("  {how}\n\nLatency (msec, cumulative):\n"));
    let latency = &result.latency;
    let columns = [
        ("avg", latency.mean_us),
        ("min", latency.min_us),
        ("p50", latency.p50_us),
        ("p75", latency.p75_us),
        ("p90", latency.p90_us),
        ("p95", latency.p95_us),
        ("p99", latency.p99_us),
        ("p99.9", latency.p99_9_us),
        ("p99.99", latency.p99_99_us),
        ("max", latency.max_us),
    ];
    columns.iter().for_each(|(name, _)| push(&mut out, format_args!("{name:>9} ")));
    out.push('\n');
    columns.iter().for_each(|(_, us)| push(&mut out, format_args!("{:>9.decimals$} ", us / 1e3)));
    push(
        &mut out,
        format_args!("\n\nSummary:\n  throughput: {:.2} requests per second\n", result.requests_per_second),
    );
    push_usage(&mut out, result);
    push_warnings(&mut out, result);
    out.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

/// Appends to a report the resource usage of the client and the server, the requests of each node,
/// the redirections and the hit rate.
fn push_usage(out: &mut String, result: &RunResult) {
    let client = &result.client;
    let busy: Vec<String> = client.busy.iter().map(|busy| format!("{:.0} %", busy * 100.0)).collect();
    push(
        out,
        format_args!(
            "  client: {:.2} us CPU per request, busy {}\n",
            client.cpu_us_per_request,
            busy.join(", ")
        ),
    );
    if let Some(server) = &result.server {
        push(
            out,
            format_args!(
                "  server: {:.2} us CPU per request, {:.1} MiB, {} + {} context switches\n",
                server.cpu_us_per_request,
                server.rss_bytes as f64 / f64::from(1 << 20),
                server.context_switches_voluntary,
                server.context_switches_involuntary
            ),
        );
    }
    if let Some(cluster) = &result.cluster {
        let nodes: Vec<String> =
            cluster.nodes.iter().map(|(node, requests)| format!("{node} {requests}")).collect();
        push(out, format_args!("  nodes: {}\n", nodes.join(", ")));
        if cluster.moved + cluster.asked > 0 {
            push(out, format_args!("  redirected: MOVED {}, ASK {}\n", cluster.moved, cluster.asked));
        }
    }
    if let Some(vectors) = &result.vectors {
        push_vectors(out, vectors);
    }
    if let Some(rate) = result.hit_rate() {
        let (hits, misses) = (result.hits, result.misses);
        push(out, format_args!("  hits: {hits}, misses: {misses}, hit rate {:.2} %\n", rate * 100.0));
    }
}

/// Appends to a report the recall of searches, the memory per vector and the latency of requests
/// that are not searches.
fn push_vectors(out: &mut String, vectors: &VectorUse) {
    let VectorUse { rows, dimensions, neighbours, searches, .. } = vectors;
    push(out, format_args!("  vectors: {rows} of {dimensions} dimensions\n"));
    if let Some(recall) = vectors.recall {
        let percent = recall * 100.0;
        push(out, format_args!("  recall@{neighbours}: {percent:.2} % over {searches} searches\n"));
    }
    if let Some(bytes) = vectors.bytes_per_vector {
        push(out, format_args!("  memory per vector: {bytes:.1} bytes\n"));
    }
    if let Some(beside) = &vectors.beside {
        let LatencySummary { p50_us, p99_us, p99_9_us, max_us, .. } = beside.latency;
        let [p50, p99, p99_9, max] = [p50_us, p99_us, p99_9_us, max_us].map(|us| us / 1e3);
        push(
            out,
            format_args!(
                "  beside searches: {} requests, msec p50 {p50:.3}, p99 {p99:.3}, p99.9 {p99_9:.3}, max {max:.3}\n",
                beside.requests
            ),
        );
    }
}

/// Appends to a report the reasons to doubt the results: a client bottleneck, errors, unanswered
/// requests, an early end.
fn push_warnings(out: &mut String, result: &RunResult) {
    if result.is_client_bound() {
        push(out, format_args!("  client-bound: {}\n", result.client.bound.reason));
    }
    if !result.errors.is_empty() {
        let kinds: Vec<String> =
            result.errors.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
        let first = result.first_error.as_deref().unwrap_or_default();
        push(out, format_args!("  errors: {} (first: {first})\n", kinds.join(", ")));
    }
    if result.unanswered > 0 {
        push(out, format_args!("  {} requests were due or sent but not answered\n", result.unanswered));
    }
    match &result.ending {
        Ending::Complete => {}
        Ending::Interrupted => out.push_str("  interrupted: the figures are those measured before\n"),
        Ending::Failed(reason) => push(out, format_args!("  ended early: {reason}\n")),
    }
}

fn push(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{BesideSearches, ClientBound, Settings, Transport};

    /// Returns a result with figures that are easy to recognise in the output.
    fn result() -> RunResult {
        RunResult {
            test: "SET".to_owned(),
            command: "SET key:__rand_int__ __data__".to_owned(),
            settings: Settings {
                address: "127.0.0.1:6379".to_owned(),
                transport: Transport::Tcp,
                resp: 2,
                db: 0,
                threads: 1,
                connections: 50,
                pipeline: 16,
                value_bytes: "3".to_owned(),
                keyspace: 1000,
                loop_mode: LoopMode::Closed,
                reconnect: false,
                warm_up_seconds: 0.0,
                io_backend: "epoll".to_owned(),
                gather_us: None,
                seed: Some(7),
            },
            started_unix_ms: 0,
            duration_seconds: 1.25,
            requests: 100_000,
            requests_per_second: 80_000.0,
            errors: Default::default(),
            first_error: None,
            hits: 0,
            misses: 0,
            unanswered: 0,
            latency: LatencySummary {
                min_us: 1.0,
                mean_us: 2.5,
                p50_us: 50.0,
                p75_us: 75.0,
                p90_us: 90.0,
                p95_us: 95.0,
                p99_us: 99.0,
                p99_9_us: 999.0,
                p99_99_us: 9999.0,
                max_us: 12345.6,
            },
            histogram: Vec::new(),
            per_second: Vec::new(),
            client: crate::results::ClientUse {
                cpu_seconds: 0.2,
                cpu_us_per_request: 2.0,
                busy: vec![0.16],
                bound: ClientBound::default(),
            },
            server: None,
            cluster: None,
            vectors: None,
            link: None,
            ending: Ending::Complete,
        }
    }

    fn doubtful() -> RunResult {
        let mut doubtful = result();
        doubtful.client.bound =
            ClientBound { is_bound: true, reason: "thread 1 of 1 was busy 99 %".to_owned() };
        doubtful.errors.insert("ERR".to_owned(), 7);
        doubtful.first_error = Some("ERR no".to_owned());
        doubtful.unanswered = 3;
        doubtful.ending = Ending::Failed("the server closed a connection".to_owned());
        doubtful
    }

    #[test]
    fn csv_has_the_columns_of_redis_benchmark_first() {
        assert!(CSV_HEADER.starts_with(
            "\"test\",\"rps\",\"avg_latency_ms\",\"min_latency_ms\",\"p50_latency_ms\",\"p95_latency_ms\",\
             \"p99_latency_ms\",\"max_latency_ms\",\""
        ));
        assert_eq!(
            csv_line(&result(), DECIMALS),
            "\"SET\",\"80000.00\",\"0.003\",\"0.001\",\"0.050\",\"0.095\",\"0.099\",\"12.346\",\"0.999\",\"9.999\",\
             \"0\",\"no\",\"complete\""
        );
        assert!(csv_line(&doubtful(), DECIMALS).ends_with(",\"7\",\"yes\",\"ended early\""));
        assert_eq!(csv_line(&result(), DECIMALS).matches(',').count(), CSV_HEADER.matches(',').count());
    }

    #[test]
    fn the_quiet_line_is_that_of_redis_benchmark_unless_there_is_a_doubt() {
        assert_eq!(quiet_line(&result(), DECIMALS), "SET: 80000.00 requests per second, p50=0.050 msec");
        assert_eq!(
            quiet_line(&doubtful(), DECIMALS),
            "SET: 80000.00 requests per second, p50=0.050 msec, client-bound, 7 errors, ended early"
        );
    }

    #[test]
    fn vector_sets_have_lines_for_recall_memory_and_other_requests() {
        let latency = LatencySummary { p50_us: 50.0, p99_us: 900.0, ..LatencySummary::default() };
        let mut result = result();
        result.vectors = Some(VectorUse {
            set: "clustered 128 Q8".to_owned(),
            rows: 1_000,
            dimensions: 128,
            neighbours: 10,
            searches: 20,
            recall: Some(0.985),
            bytes_per_vector: Some(345.67),
            beside: Some(BesideSearches { requests: 180, latency }),
            ..VectorUse::default()
        });
        assert!(quiet_line(&result, DECIMALS).ends_with(", recall=98.50 %"));
        let report = report(&result, DECIMALS);
        for line in [
            "  vectors: 1000 of 128 dimensions\n",
            "  recall@10: 98.50 % over 20 searches\n",
            "  memory per vector: 345.7 bytes\n",
            "  beside searches: 180 requests, msec p50 0.050, p99 0.900, p99.9 0.000, max 0.000\n",
        ] {
            assert!(report.contains(line), "{report}");
        }
    }

    #[test]
    fn latencies_have_the_decimals_that_are_asked_for() {
        assert_eq!(quiet_line(&result(), 0), "SET: 80000.00 requests per second, p50=0 msec");
        assert_eq!(quiet_line(&result(), 1), "SET: 80000.00 requests per second, p50=0.1 msec");
        assert!(csv_line(&result(), 4).starts_with("\"SET\",\"80000.00\",\"0.0025\",\"0.0010\",\"0.0500\","));
        let report = report(&result(), 1);
        assert!(
            report.contains("\n      0.0       0.0       0.1       0.1       0.1       0.1 "),
            "{report}"
        );
    }

    #[test]
    fn the_report_says_all_and_every_doubt() {
        let expected = "\
====== SET ======
  100000 requests completed in 1.25 seconds
  50 parallel clients, 1 threads, pipeline 16, 3 bytes payload, 1000 keys, seed 7

Latency (msec, cumulative):
      avg       min       p50       p75       p90       p95       p99     p99.9    p99.99       max
    0.003     0.001     0.050     0.075     0.090     0.095     0.099     0.999     9.999    12.346

Summary:
  throughput: 80000.00 requests per second
  client: 2.00 us CPU per request, busy 16 %
";
        assert_eq!(report(&result(), DECIMALS), expected);
        let doubts = "  client-bound: thread 1 of 1 was busy 99 %
  errors: ERR 7 (first: ERR no)
  3 requests were due or sent but not answered
  ended early: the server closed a connection
";
        assert_eq!(report(&doubtful(), DECIMALS), format!("{expected}{doubts}"));
    }
}
