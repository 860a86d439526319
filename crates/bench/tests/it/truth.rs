//! Tests of figures against a server with known delays. They check only conditions that hold on any
//! machine, however busy. A reply cannot arrive before the server sent it. A request that was due
//! within a stall cannot be answered before the stall ended.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use bench::results::{Ending, LoopMode, RunResult, Transport};
use bench::run;
use bench::spec::{Endpoint, Limit, Tls};
use bench::sweep::sweep;
use bench::workload::{Content, KeyPattern, Keys, Memtier, Sizes, TemplateOptions, Values, Workload};

use crate::slow_server::{self, Oddities, SlowServer, pem};

const MS: Duration = Duration::from_millis(1);

/// Returns the number of requests of the run that took at least `ms` milliseconds.
fn slower_than(result: &RunResult, ms: f64) -> u64 {
    let slow = result.histogram.iter().filter(|bucket| bucket.upper_us >= ms * 1e3);
    slow.map(|bucket| bucket.count).sum()
}

#[test]
fn a_constant_delay_is_in_every_figure() {
    let server = SlowServer::start(Oddities { delay: 5 * MS, ..Oddities::default() });
    let result = run(&server.spec("DO it", 4, Limit::Requests(100))).unwrap();
    assert_eq!((result.requests, server.requests()), (100, 100));
    let latency = &result.latency;
    assert!(latency.min_us >= 4_990.0 && latency.p50_us >= 4_990.0, "{latency:?}");
    assert!(latency.mean_us <= latency.max_us && latency.p50_us <= latency.p99_us, "{latency:?}");
    // Four connections, each with at most one request per 5 ms.
    assert!(result.requests_per_second <= 801.0, "{}", result.requests_per_second);
    assert!(result.duration_seconds >= 0.124, "{}", result.duration_seconds);
    assert!(result.client.busy[0] < 0.95, "a waiting client is not busy: {:?}", result.client);
    assert_eq!(result.ending, Ending::Complete);
}

/// Returns the hit rate of GET and the seed of a run with `-t set,get` on an empty server. The run
/// chooses from `keys` keys, and sends as many requests of each test.
fn hits_after_sets(keys: u64, flags: &[&str]) -> (f64, Option<u64>) {
    let server = SlowServer::start(Oddities::default());
    let dir = tempfile::tempdir().unwrap();
    let (port, count, json) = (server.port().to_string(), keys.to_string(), dir.path().join("results.json"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_saker-bench"));
    command
        .args(["run", "-t", "set,get", "-q", "-P", "16", "-c", "4", "-p", &port, "-n", &count, "-r", &count]);
    let output = command.args(flags).arg("--json").arg(&json).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let results: Vec<RunResult> = serde_json::from_str(&fs::read_to_string(json).unwrap()).unwrap();
    assert_eq!(results[0].settings.seed, results[1].settings.seed);
    (results[1].hit_rate().unwrap(), results[1].settings.seed)
}

#[test]
fn a_get_test_does_not_ask_for_the_very_keys_of_the_set_test() {
    // If the number of random SETs equals the number of keys, 1/e of the keys are not set. Five
    // standard deviations are 0.02.
    let (share, seed) = hits_after_sets(20_000, &[]);
    assert!((share - 0.632).abs() < 0.02, "{share}");
    assert_ne!(seed, hits_after_sets(20_000, &[]).1, "a fresh seed for each run");
    let given = hits_after_sets(20_000, &["--seed", "5"]);
    assert!((given.0 - 0.632).abs() < 0.02, "{given:?}");
    assert_eq!(given, hits_after_sets(20_000, &["--seed", "5"]));
}

#[test]
fn requests_that_leave_together_are_not_flattered() {
    for gather_us in [0, 2_000] {
        let server = SlowServer::start(Oddities { delay: 2 * MS, ..Oddities::default() });
        let mut spec = server.spec("DO it", 48, Limit::Requests(2_000));
        spec.load.gather_us = gather_us;
        let result = run(&spec).unwrap();
        assert_eq!((result.requests, server.requests()), (2_000, 2_000));
        assert!(result.latency.min_us >= 1_990.0, "{:?}", result.latency);
        assert_eq!(result.settings.gather_us, (gather_us > 0).then_some(gather_us));
    }
}

#[test]
fn rare_slow_requests_show_where_they_belong() {
    let slow_every = Some((100, 60 * MS));
    let server = SlowServer::start(Oddities { slow_every, ..Oddities::default() });
    let result = run(&server.spec("DO it", 1, Limit::Requests(500))).unwrap();
    assert_eq!(result.histogram.iter().map(|bucket| bucket.count).sum::<u64>(), 500);
    let slow = slower_than(&result, 59.9);
    assert!(slow >= 5, "five of 500 were slow: {slow}");
    assert!(result.latency.p99_9_us >= 59_900.0 && result.latency.max_us >= 59_900.0);
    assert!(result.latency.p50_us < 59_900.0, "{:?}", result.latency);
}

/// Runs requests through a stall of 400 ms. With `rate` they are sent on schedule, otherwise one
/// connection sends them in a closed loop.
fn through_a_stall(rate: Option<f64>) -> RunResult {
    let server = SlowServer::start(Oddities { stall: Some((100, 400 * MS)), ..Oddities::default() });
    let mut spec = server.spec("DO it", 1, Limit::Requests(700));
    spec.load.rate = rate;
    run(&spec).unwrap()
}

#[test]
fn an_open_loop_counts_the_wait_of_requests_that_were_due_in_a_stall() {
    let result = through_a_stall(Some(1000.0));
    assert_eq!(result.settings.loop_mode, LoopMode::Open { requests_per_second: 1000.0 });
    // Requests due in the first half of the stall waited for at least the second half.
    let waited = slower_than(&result, 200.0);
    assert!((199..=700).contains(&waited), "{waited}");
    assert!(result.latency.p75_us >= 200_000.0 || waited < 175, "{:?}", result.latency);
    assert!(result.latency.p90_us >= 200_000.0, "{:?}", result.latency);
}

#[test]
fn a_closed_loop_sees_a_stall_once_per_connection() {
    let result = through_a_stall(None);
    assert!(result.latency.max_us >= 399_000.0);
    assert!(slower_than(&result, 399.0) <= 3, "one request waited, and a machine may stall too");
}

#[test]
fn a_sweep_finds_no_rate_that_the_server_cannot_serve() {
    // Four connections with one request per 5 ms each: at most 800 per second, and none within 4
    // ms.
    let server = SlowServer::start(Oddities { delay: 5 * MS, ..Oddities::default() });
    let mut spec = server.spec("DO it", 4, Limit::Duration(80 * MS));
    spec.load.rate = Some(200.0);
    let swept = sweep(&spec, 500_000.0, |_, _| {}).unwrap();
    assert!(swept.probes.len() >= 3, "{:?}", swept.probes.len());
    for (result, held) in &swept.probes {
        let LoopMode::Open { requests_per_second: rate } = result.settings.loop_mode else { panic!("open") };
        assert!(!held || (rate <= 1_000.0 && result.unanswered == 0), "{rate} held");
    }
    // On a busy machine, the client itself holds lower rates only.
    let best = |result: &RunResult| result.requests_per_second <= 810.0;
    assert!(swept.best.as_ref().is_none_or(best), "{:?}", swept.best);
    spec.load.rate = Some(16.0);
    let swept = sweep(&spec, 4_000.0, |_, held| assert!(!held)).unwrap();
    assert!(swept.best.is_none());
}

#[test]
fn an_open_loop_sends_what_is_planned_and_no_more() {
    let server = SlowServer::start(Oddities::default());
    let mut spec = server.spec("DO it", 10, Limit::Duration(500 * MS));
    spec.load.rate = Some(400.0);
    let result = run(&spec).unwrap();
    assert_eq!(result.requests + result.unanswered, 200, "{result:?}");
    let begin = Instant::now();
    spec.load.limit = Limit::Requests(40);
    assert_eq!(run(&spec).unwrap().requests, 40);
    // Request number 40 is due 97.5 ms after the first.
    assert!(begin.elapsed() >= 97 * MS);
}

#[test]
fn a_client_without_rest_says_so() {
    // A reply costs this server almost nothing, so the client never waits for it. The client waits
    // only if the machine gives the server no processor; the next try may then succeed.
    let port = slow_server::start_instant();
    let bound = (0..10).any(|_| {
        let server = SlowServer::start(Oddities::default());
        let mut spec = server.spec("PING", 16, Limit::Duration(200 * MS));
        spec.target.endpoint = Endpoint::Tcp { host: "127.0.0.1".to_owned(), port };
        spec.load.pipeline = 500;
        let result = run(&spec).unwrap();
        let client = &result.client;
        assert!(client.cpu_seconds > 0.0 && client.busy[0] <= 1.0, "{client:?}");
        assert!(client.busy[0] < 0.95 || result.is_client_bound(), "{client:?}");
        assert_eq!(result.is_client_bound(), !client.bound.reason.is_empty());
        result.is_client_bound()
    });
    assert!(bound, "a client that never waits for a reply is the limit");
}

#[test]
fn every_request_is_sent_once_by_any_number_of_threads() {
    for (threads, connections, pipeline) in [(1, 1, 1), (2, 7, 3), (3, 2, 50)] {
        let server = SlowServer::start(Oddities::default());
        let mut spec = server.spec("DO {rand 100}", connections, Limit::Requests(1001));
        (spec.load.threads, spec.load.pipeline) = (threads, pipeline);
        let result = run(&spec).unwrap();
        assert_eq!((result.requests, server.requests()), (1001, 1001), "{threads} {connections} {pipeline}");
        assert_eq!(result.settings.threads, threads.min(connections));
        assert!(!result.per_second.is_empty());
    }
}

#[test]
fn warming_up_is_not_measured() {
    let server = SlowServer::start(Oddities { delay: MS, ..Oddities::default() });
    let mut spec = server.spec("DO it", 2, Limit::Requests(50));
    spec.load.warm_up = 100 * MS;
    let result = run(&spec).unwrap();
    assert_eq!(result.requests, 50);
    assert!(server.requests() > 50, "{}", server.requests());
}

#[test]
fn errors_are_counted_by_their_kind_and_shown() {
    let server = SlowServer::start(Oddities { error_every: Some(10), ..Oddities::default() });
    let result = run(&server.spec("DO it", 3, Limit::Requests(200))).unwrap();
    assert_eq!(result.errors.get("OOPS"), Some(&20));
    assert_eq!(result.first_error.as_deref(), Some("OOPS this one failed"));
}

#[test]
fn values_are_verified() {
    for (forges, expected) in [(false, 0), (true, 1)] {
        let server = SlowServer::start(Oddities { forges, ..Oddities::default() });
        let mut spec = server.spec("DO it", 4, Limit::Requests(400));
        let lines = [(1, "SET {key uniform 20} {value 10-3000}"), (1, "GET {key uniform 20}")];
        spec.workload = Workload::from_templates("mix", &lines, &TemplateOptions::default()).unwrap();
        spec.load.verify = true;
        let result = run(&spec).unwrap();
        let refused = result.errors.get("VERIFY").copied().unwrap_or(0);
        assert_eq!(refused.min(1), expected, "{:?}", result.errors);
        assert!(result.hits > 0 && result.hits + result.misses < 400);
        assert!(!forges || refused == result.hits, "every value found was forged");
    }
}

#[test]
fn a_mix_is_sent_in_its_ratio() {
    let server = SlowServer::start(Oddities::default());
    let mut spec = server.spec("DO it", 4, Limit::Requests(3200));
    let keys = Keys { min: 0, max: 99, pattern: KeyPattern::Uniform };
    spec.workload = Workload::memtier(&Memtier {
        ratio: (1, 15),
        prefix: "memtier-".to_owned(),
        set_keys: keys.clone(),
        get_keys: keys,
        values: Values::new(Sizes::Fixed(8), Content::Constant),
    })
    .unwrap();
    let result = run(&spec).unwrap();
    // Of 3,200 requests 3,000 are expected to be reads, with a standard deviation of 14. A
    // difference of five times that practically never occurs.
    let reads = result.hits + result.misses;
    assert!((2_930..=3_070).contains(&reads), "{reads}");
}

#[test]
fn reconnecting_opens_a_connection_for_each_request() {
    let server = SlowServer::start(Oddities::default());
    let mut spec = server.spec("DO it", 2, Limit::Requests(60));
    spec.load.reconnect = true;
    spec.target.password = Some("pw".to_owned());
    let result = run(&spec).unwrap();
    assert_eq!((result.requests, server.requests()), (60, 60), "{result:?}");
    // One more connection is opened at first, to check that the server exists.
    assert!((60..=63).contains(&server.connections()), "{}", server.connections());
}

#[test]
fn tls_carries_every_kind_of_load() {
    let server = SlowServer::start_tls(Oddities::default());
    let mut spec = server.spec("DO it", 3, Limit::Requests(300));
    spec.target.tls = Some(Tls { ca: Some(pem("ca.pem")), ..Tls::default() });
    let result = run(&spec).unwrap();
    assert_eq!((result.requests, result.settings.transport), (300, Transport::Tls));
    // Large values fill more than one TLS record in both directions.
    let lines = [(1, "SET {key uniform 5} {value 40000-50000}"), (1, "GET {key uniform 5}")];
    spec.workload = Workload::from_templates("mix", &lines, &TemplateOptions::default()).unwrap();
    (spec.load.verify, spec.load.pipeline) = (true, 4);
    let result = run(&spec).unwrap();
    assert!(result.errors.is_empty() && result.hits > 0, "{:?}", result.errors);
    (spec.load.reconnect, spec.load.limit) = (true, Limit::Requests(20));
    spec.target.tls = Some(Tls { insecure: true, ..Tls::default() });
    assert_eq!(run(&spec).unwrap().requests, 20);
    (spec.load.reconnect, spec.load.rate) = (false, Some(1000.0));
    assert_eq!(run(&spec).unwrap().requests, 20);
}

#[test]
fn a_cluster_gets_each_key_at_its_own_node() {
    let [one, other] = [(), ()].map(|()| SlowServer::start(Oddities::default()));
    one.serve_slots_with([one.port(), other.port()]);
    for rate in [None, Some(5000.0)] {
        let (before, other_before) = (one.requests(), other.requests());
        let mut spec = one.spec("DO it", 3, Limit::Requests(400));
        let lines = [(1, "SET {key uniform 30} {value 9}"), (3, "GET {key uniform 30}")];
        spec.workload = Workload::from_templates("mix", &lines, &TemplateOptions::default()).unwrap();
        (spec.target.cluster, spec.load.verify, spec.load.pipeline, spec.load.rate) = (true, true, 2, rate);
        let result = run(&spec).unwrap();
        assert!(result.errors.is_empty() && result.requests == 400, "{result:?}");
        let (here, there) = (one.requests() - before, other.requests() - other_before);
        // The keys are spread evenly enough that both halves of the slots get requests.
        assert!(here > 20 && there > 20 && here + there == 400, "{here} {there}");
    }
}

#[test]
fn an_interrupt_ends_the_run_with_what_was_measured() {
    let server = SlowServer::start(Oddities { delay: MS, ..Oddities::default() });
    let mut spec = server.spec("DO it", 2, Limit::Duration(Duration::from_secs(60)));
    let flag = Arc::new(AtomicBool::new(false));
    spec.watch.interrupt = Some(Arc::clone(&flag));
    let interrupter = thread::spawn(move || {
        while server.requests() < 20 {
            thread::yield_now();
        }
        flag.store(true, Relaxed);
    });
    let result = run(&spec).unwrap();
    interrupter.join().unwrap();
    assert_eq!(result.ending, Ending::Interrupted);
    assert!(result.requests >= 10 && result.duration_seconds < 50.0, "{}", result.requests);
}
