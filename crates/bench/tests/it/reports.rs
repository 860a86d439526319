//! Tests of the reports of a fixed outcome. They are compared with golden files in `tests/golden`;
//! `SAKER_BLESS=1` rewrites these. Every chart must exist, in the page and as a file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use bench::compare::outcome::{Cell, EngineFacts, KeyMemory, Machine, Outcome};
use bench::compare::report::{self, charts, csv, html, json, markdown};
use bench::compare::study::Point;
use bench::results::{
    Bucket, ClientBound, ClientUse, Ending, LatencySummary, LinkKind, LinkUse, LoopMode, RunResult,
    ServerUse, Settings, Transport,
};

/// Returns the result of a run at `rate` requests/s in round `round`. The other figures are derived
/// from these.
fn run(point: &Point, rate: f64, round: u32) -> RunResult {
    let slow = 1e6 * point.connections as f64 / rate;
    let buckets = [(0.5, 6_000), (1.0, 3_000), (2.0, 900), (5.0, 90), (20.0, 10)];
    let bound = point.io_threads == 2 && point.test == "GET" && rate > 150_000.0;
    RunResult {
        test: point.test.clone(),
        command: format!("{} key:__rand_int__", point.test),
        settings: Settings {
            address: "127.0.0.1:7000".to_owned(),
            transport: point.transport,
            resp: 2,
            db: 0,
            threads: 1,
            connections: point.connections,
            pipeline: 1,
            value_bytes: point.value_bytes.to_string(),
            keyspace: 1_000,
            loop_mode: LoopMode::Closed,
            reconnect: false,
            warm_up_seconds: 0.0,
            io_backend: "epoll".to_owned(),
            gather_us: None,
            seed: Some(41 + u64::from(round)),
        },
        started_unix_ms: 1_783_260_180_000 + u64::from(round) * 1_000,
        duration_seconds: 10_000.0 / rate,
        requests: 10_000,
        requests_per_second: rate,
        errors: BTreeMap::new(),
        first_error: None,
        hits: if point.test == "GET" { 9_000 } else { 0 },
        misses: if point.test == "GET" { 1_000 } else { 0 },
        unanswered: 0,
        latency: LatencySummary {
            min_us: slow * 0.2,
            mean_us: slow,
            p50_us: slow * 0.5,
            p75_us: slow,
            p90_us: slow,
            p95_us: slow * 2.0,
            p99_us: slow * 2.0,
            p99_9_us: slow * 5.0,
            p99_99_us: slow * 20.0,
            max_us: slow * 20.0,
        },
        histogram: buckets.map(|(factor, count)| Bucket { upper_us: slow * factor, count }).to_vec(),
        per_second: Vec::new(),
        client: ClientUse {
            cpu_seconds: 0.02,
            cpu_us_per_request: 2.0,
            busy: vec![0.5],
            bound: ClientBound {
                is_bound: bound,
                reason: if bound { "thread 1 was 99 % busy".to_owned() } else { String::new() },
            },
        },
        server: Some(ServerUse {
            cpu_seconds: 0.05,
            cpu_us_per_request: 4e5 / rate,
            rss_bytes: 12_000_000,
            context_switches_voluntary: 700,
            context_switches_involuntary: 30,
        }),
        cluster: None,
        vectors: None,
        link: None,
        ending: Ending::Complete,
    }
}

/// Returns the results of two engines at all points of measurement (cells). One cell is partial,
/// one has failed.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for io_threads in [1, 2, 4] {
        for transport in [Transport::Tcp, Transport::Tls] {
            for (test, base) in [("SET", 80_000.0), ("GET", 100_000.0), ("LPUSH", 90_000.0)] {
                for (engine, factor) in [("alpha", 1.0), ("beta", 1.3)] {
                    let point = Point {
                        test: test.to_owned(),
                        transport,
                        round_trip_ms: 0,
                        io_threads,
                        value_bytes: 64,
                        connections: 50,
                    };
                    let tls = if transport == Transport::Tls { 0.7 } else { 1.0 };
                    let rate = base * factor * tls * f64::from(io_threads).powf(0.7);
                    // LPUSH differs by less than its noise.
                    let (spread, rate) = if test == "LPUSH" { (0.4, base * tls) } else { (0.02, rate) };
                    let rounds =
                        (0..3).map(|round| run(&point, rate * (1.0 + spread * f64::from(round)), round));
                    cells.push(Cell {
                        engine: engine.to_owned(),
                        point: point.clone(),
                        rounds: rounds.collect(),
                        failure: None,
                    });
                }
            }
        }
    }
    cells[3].rounds.truncate(1);
    cells[3].failure = Some("the engine has exited: connection reset".to_owned());
    cells[5].rounds.clear();
    cells[5].failure = Some("cannot connect to 127.0.0.1:7000".to_owned());
    cells[0].rounds[0].errors.insert("ERR".to_owned(), 3);
    cells
}

/// Returns the outcome of two engines and a third that is not installed: three tests, three numbers
/// of threads, plain TCP and TLS. It has a client-bound cell, a cell that ended early and a cell
/// that failed.
fn outcome() -> Outcome {
    let engine = |name: &str, version: &str, left_out: Option<&str>| EngineFacts {
        name: name.to_owned(),
        version: version.to_owned(),
        start: format!("{name}-server --port {{port}}"),
        settings: BTreeMap::from([
            ("appendonly".to_owned(), "no".to_owned()),
            ("save".to_owned(), String::new()),
        ]),
        left_out: left_out.map(str::to_owned),
    };
    let memory = |engine: &str, bytes_per_key| KeyMemory {
        engine: engine.to_owned(),
        io_threads: 1,
        value_bytes: 64,
        keys: 1_000,
        bytes_per_key,
    };
    Outcome {
        title: "A fixed study".to_owned(),
        description: "What reports are tested with: <escaped> & whole.".to_owned(),
        started_unix_ms: 1_783_260_180_000,
        rounds: 3,
        quick: false,
        rising_connections: false,
        baseline: "alpha".to_owned(),
        machine: Machine {
            cpu: "A processor".to_owned(),
            cores: 8,
            memory_bytes: 32_000_000_000,
            system: "linux 6.18".to_owned(),
        },
        engines: vec![
            engine("alpha", "1.0", None),
            engine("beta", "2.1", None),
            engine("gamma", "", Some("gamma-server is not installed")),
        ],
        notes: vec!["gamma: gamma-server is not installed: left out".to_owned()],
        cells: cells(),
        memory: vec![memory("alpha", 120.5), memory("beta", 99.9)],
        links: BTreeMap::new(),
        seed: Some(41),
        shortened: Vec::new(),
    }
}

/// Returns the outcome of [`outcome`] with a relay of 30 ms in place of TLS.
fn linked() -> Outcome {
    let mut outcome = outcome();
    outcome.links.insert(30, LinkKind::Relay);
    for cell in outcome.cells.iter_mut().filter(|cell| cell.point.transport == Transport::Tls) {
        (cell.point.transport, cell.point.round_trip_ms) = (Transport::Tcp, 30);
        let link = LinkUse { kind: LinkKind::Relay, busy: Some(0.021), cpu_us_per_request: Some(3.5) };
        cell.rounds.iter_mut().for_each(|run| run.link = Some(link.clone()));
    }
    outcome
}

#[test]
fn reports_name_the_link_and_what_it_took() {
    let outcome = linked();
    let markdown = markdown::text(&outcome);
    assert!(markdown.contains("## 30 ms link (relay), 1 I/O thread"), "{markdown}");
    assert!(markdown.contains("took up to 2.1 % of a processor"), "{markdown}");
    assert!(markdown.contains("### Link CPU per request, µs"), "{markdown}");
    let csv = csv::text(&outcome).unwrap();
    assert!(csv.contains("\"30\",\"relay\"") && csv.contains("\"3.500\""), "{csv}");
    assert!(html::page(&outcome, &charts::all(&outcome)).contains("30 ms link (relay)"));
    let again: Outcome = serde_json::from_str(&json::text(&outcome).unwrap()).unwrap();
    assert_eq!(csv::text(&again).unwrap(), csv);
}

fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("SAKER_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let wanted = fs::read_to_string(&path).unwrap();
    let first = wanted.lines().zip(text.lines()).position(|(wanted, line)| wanted != line);
    assert!(
        wanted == text,
        "{name} differs from line {:?} on; SAKER_BLESS=1 takes the new one",
        first.map(|at| at + 1)
    );
}

#[test]
fn csv_is_what_it_was() {
    golden("results.csv", &csv::text(&outcome()).unwrap());
}

#[test]
fn markdown_is_what_it_was() {
    golden("summary.md", &markdown::text(&outcome()));
}

#[test]
fn json_is_what_it_was_and_reads_back() {
    let mut outcome = outcome();
    // Three cells contain all parts of the format; one of them has no rounds.
    outcome.cells.drain(2..5);
    outcome.cells.truncate(3);
    golden("results.json", &json::text(&outcome).unwrap());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/results.json");
    // A float may lose its last bit in JSON. No report shows that bit.
    let again = json::read(&path).unwrap();
    assert_eq!(csv::text(&again).unwrap(), csv::text(&outcome).unwrap());
    assert_eq!(markdown::text(&again), markdown::text(&outcome));
}

#[test]
fn every_kind_of_picture_is_drawn() {
    let groups = charts::all(&outcome());
    let kinds: Vec<_> = groups.iter().map(|group| group.id).collect();
    let all =
        ["throughput", "heat", "radar", "rate-latency", "latency", "scaling", "transports", "cpu", "memory"];
    assert_eq!(kinds, all);
    let mut names: Vec<_> =
        groups.iter().flat_map(|group| &group.pictures).map(|picture| &picture.id).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count, "two pictures have one name");
    for picture in groups.iter().flat_map(|group| &group.pictures) {
        let file = picture.file();
        assert!(!file.contains("NaN") && !file.contains("inf"), "{}", picture.id);
    }
}

#[test]
fn the_page_needs_nothing_else_and_marks_what_is_client_bound() {
    let outcome = outcome();
    let groups = charts::all(&outcome);
    let page = html::page(&outcome, &groups);
    for outside in ["http://", "https://", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert!(page.contains("client-bound") && page.contains("thread 1 was 99 % busy"));
    assert!(page.contains("&lt;escaped&gt; &amp; whole"));
    for picture in groups.iter().flat_map(|group| &group.pictures) {
        assert!(page.contains(&format!("id=\"{}\"", picture.id)), "{}", picture.id);
    }
}

/// Returns the outcome of [`outcome`] reduced to a single set of conditions.
fn under_one_condition() -> Outcome {
    let mut outcome = outcome();
    outcome.cells.retain(|cell| (cell.point.io_threads, cell.point.transport) == (4, Transport::Tcp));
    outcome
}

/// Returns the SVG file of the only chart in `groups` whose name begins with `id`.
fn picture(groups: &[charts::Group], id: &str) -> String {
    let mut found =
        groups.iter().flat_map(|group| &group.pictures).filter(|picture| picture.id.starts_with(id));
    let picture = found.next().unwrap().file();
    assert!(found.next().is_none(), "{id}");
    picture
}

#[test]
fn the_setting_tells_the_keys_of_those_runs_that_have_keys() {
    let mut outcome = outcome();
    outcome.cells[0].rounds.iter_mut().for_each(|run| run.settings.keyspace = 0);
    let page = html::page(&outcome, &charts::all(&outcome));
    assert!(page.contains(", 1,000 keys, epoll, seed 41"), "{page}");
    outcome.cells[1].rounds.iter_mut().for_each(|run| run.settings.keyspace = 20_000);
    assert!(html::page(&outcome, &charts::all(&outcome)).contains(", 1,000 to 20,000 keys, "));
}

#[test]
fn cards_compare_engines_over_the_rows_that_all_of_them_have() {
    let mut outcome = outcome();
    // beta has no TLS. Over TCP its advantage is as before.
    outcome.cells.retain(|cell| cell.engine == "alpha" || cell.point.transport != Transport::Tls);
    outcome.engines.push(EngineFacts { name: "delta".to_owned(), ..EngineFacts::default() });
    let alphas: Vec<Cell> = outcome.cells.iter().filter(|cell| cell.engine == "alpha").cloned().collect();
    outcome.cells.extend(alphas.into_iter().map(|cell| {
        let mut cell = Cell { engine: "delta".to_owned(), ..cell };
        let slower = if cell.point.transport == Transport::Tls { 0.1 } else { 1.0 };
        cell.rounds.iter_mut().for_each(|run| run.requests_per_second *= slower);
        cell
    }));
    let page = html::page(&outcome, &charts::all(&outcome));
    assert_eq!(page.matches("geometric mean over the 8 rows that all engines have").count(), 2, "{page}");
    assert!(page.contains("<p class=\"big\">+0.0 %</p>"), "slow TLS is no row that beta has: {page}");
}

#[test]
fn pictures_under_one_condition_stand_side_by_side() {
    let outcome = under_one_condition();
    let page = html::page(&outcome, &charts::all(&outcome));
    assert!(page.contains("<div class=\"singles of-3\"><section id=\"throughput\">"), "{page}");
}

#[test]
fn figures_stand_ahead_of_their_bars() {
    let bars = picture(&charts::all(&under_one_condition()), "throughput-");
    assert!(bars.contains("text-anchor=\"end\">215k</text>"), "{bars}");
}

#[test]
fn dots_of_tests_have_numbers_with_a_key() {
    let dots = picture(&charts::all(&under_one_condition()), "rate-latency-");
    for (at, test) in ["SET", "GET", "LPUSH"].iter().enumerate() {
        let number = at + 1;
        assert!(dots.contains(&format!(">{number} {test}</text>")), "{dots}");
        assert_eq!(dots.matches(&format!(">{number}</text>")).count(), 2, "{dots}");
    }
}

#[test]
fn latency_pictures_have_one_scale_and_name_the_engines_that_they_show() {
    let mut outcome = outcome();
    outcome.cells.retain(|cell| cell.engine == "alpha" || cell.point.transport != Transport::Tls);
    let groups = charts::all(&outcome);
    let files: Vec<(bool, String)> = groups
        .iter()
        .flat_map(|group| &group.pictures)
        .filter(|picture| picture.id.starts_with("latency-"))
        .map(|picture| (picture.id.contains("-tls-"), picture.file()))
        .collect();
    let ticks = |file: &str| -> Vec<String> {
        let ends = file.split("text-anchor=\"end\">").skip(1).filter_map(|rest| rest.split('<').next());
        ends.map(str::to_owned).collect()
    };
    assert_eq!(files.len(), 18);
    for (is_tls, file) in &files {
        assert_eq!(ticks(file), ticks(&files[0].1));
        assert_eq!(file.contains(">beta</text>"), !is_tls && file.matches("class=\"line\"").count() == 2);
    }
    assert!(files.iter().any(|(is_tls, file)| !is_tls && file.contains(">beta</text>")));
}

#[test]
fn reports_of_an_earlier_study_leave_no_pictures() {
    let dir = tempfile::tempdir().unwrap();
    report::write(&outcome(), dir.path()).unwrap();
    let mut smaller = outcome();
    smaller.memory.clear();
    report::write(&smaller, dir.path()).unwrap();
    assert!(!dir.path().join("pictures/memory-per-key.svg").exists());
    for name in ["report.html", "results.csv", "results.json", "summary.md", "pictures/heat-map.svg"] {
        assert!(dir.path().join(name).exists(), "{name}");
    }
}
