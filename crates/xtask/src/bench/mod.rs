//! A benchmark that compares Saker with every peer on this machine. The same redis-benchmark test
//! runs against each server in turn, round after round: A B C A B C. So a drift of the machine's
//! speed affects all servers alike. Figures are medians over the rounds. In addition to the
//! client's figures, the CPU time of each server per request is read from /proc. It depends little
//! on noise or on the client's speed. On virtual machines whose cores move ([`distance`]), only
//! runs at the same distance of the cores are compared.

mod core_distance;
mod distance;
mod table;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use testkit::ServerProcess;

use crate::progress::Session;
use crate::{release, server, shell};
use distance::{Distance, DistanceCheck, FAR_TIMES, Runs};
use table::{Figures, Row};

/// The servers that are compared with Saker if they are on PATH.
const PEERS: &[&str] = &["redis-server", "valkey-server"];
/// The maximum number of rounds with `--by-distance`, as a multiple of `--rounds`. Rounds end
/// earlier once every server has enough runs at one distance of the cores.
const MORE_ROUNDS_TIMES: u32 = 4;
/// The minimum number of runs that each server must have at a distance with `--by-distance`.
/// Otherwise the table has no row for this distance.
const RUNS_SHOWN_MIN: usize = 2;

/// The options of `cargo xtask bench`.
#[derive(Args)]
pub struct BenchArguments {
    /// Tests of redis-benchmark, each a row of the table.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "ping_mbulk,set,get,incr,lpush,rpop,hset,sadd,zadd,lrange_100"
    )]
    tests: Vec<String>,
    /// Rounds over all servers; figures are the medians.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Connections of the client.
    #[arg(long, default_value_t = 50)]
    clients: u32,
    /// Requests sent before waiting for replies.
    #[arg(long, default_value_t = 1)]
    pipeline: u32,
    /// Requests of one run.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1..))]
    requests: u32,
    /// Different keys (and members) that requests choose from.
    #[arg(long, default_value_t = 100_000)]
    keyspace: u32,
    /// Bytes of a value.
    #[arg(long, default_value_t = 3)]
    size: u32,
    /// I/O threads of each server.
    #[arg(long, default_value_t = 1)]
    io_threads: u32,
    /// Measure the distance between the machine's cores before and after each run, and compare only
    /// runs at the same distance. This is for virtual machines whose cores move. Rounds continue
    /// until every server has `--rounds` runs at one distance.
    #[arg(long)]
    by_distance: bool,
    /// A further server to compare with, as NAME=COMMAND (split at blanks); it takes
    /// redis-server's options.
    #[arg(long = "peer", value_name = "NAME=COMMAND")]
    peers: Vec<String>,
    /// Put the table into this Markdown file, in place of the table that the same command wrote
    /// before.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

/// A running server under measurement, with its name in the table.
struct BenchedServer {
    name: String,
    server: ServerProcess,
}

/// Runs the measurement and prints its table. Returns true, or an error if a run failed.
pub fn run(session: &Session, arguments: &BenchArguments) -> Result<bool> {
    let benchmark =
        shell::ensure(session, "redis-benchmark", "redis-tools").map_err(|missing| anyhow!(missing))?;
    let mut contenders = Vec::new();
    for (name, command_line) in servers(session, arguments)? {
        let threads = arguments.io_threads.to_string();
        let server = server::start_command(&command_line, &["--io-threads", &threads])
            .with_context(|| format!("starting {name}"))?;
        contenders.push(BenchedServer { name, server });
    }
    let mut measured = Vec::new();
    for test in &arguments.tests {
        measured.push((test, runs(&benchmark, &contenders, test, arguments)?));
    }
    let least_trip_ns = measured.iter().map(|(_, runs)| runs.least_trip_ns()).fold(f64::INFINITY, f64::min);
    let runs_shown_min = if arguments.by_distance { RUNS_SHOWN_MIN } else { 1 };
    let mut rows = Vec::new();
    for (test, runs) in measured {
        for distance in Distance::ALL {
            let figures = runs.at(distance, least_trip_ns);
            if figures.iter().all(|runs| runs.len() >= runs_shown_min) {
                let title = if arguments.by_distance { format!("{test}, {distance}") } else { test.clone() };
                rows.push(row(title, &contenders, figures));
            }
        }
    }
    let section = table::section(&command_line(), &setting(arguments, least_trip_ns), &rows);
    println!("{section}");
    if let Some(path) = &arguments.write {
        table::write(path, &section)?;
    }
    Ok(true)
}

/// Runs one test against each server, round after round, and returns the figures of all runs.
fn runs(
    benchmark: &Path,
    contenders: &[BenchedServer],
    test: &str,
    arguments: &BenchArguments,
) -> Result<Runs> {
    let looks = if arguments.by_distance { DistanceCheck::Always } else { DistanceCheck::Never };
    let mut runs = Runs::of(contenders.len(), looks);
    let rounds_max = arguments.rounds * if arguments.by_distance { MORE_ROUNDS_TIMES } else { 1 };
    for round in 1..=rounds_max {
        for (at, contender) in contenders.iter().enumerate() {
            eprintln!("{test}, round {round} of {rounds_max}: {}", contender.name);
            runs.add(at, || measure(benchmark, contender, test, arguments))?;
        }
        if runs.are_enough(arguments.rounds as usize) {
            break;
        }
    }
    Ok(runs)
}

/// Creates the table row of one test from the medians of each server's runs.
fn row(test: String, contenders: &[BenchedServer], figures: Vec<Vec<Figures>>) -> Row {
    let names = contenders.iter().map(|contender| contender.name.clone());
    Row { test, figures: names.zip(figures.into_iter().map(Figures::median)).collect() }
}

/// Returns Saker and the available peers, as (name, command line).
fn servers(session: &Session, arguments: &BenchArguments) -> Result<Vec<(String, Vec<OsString>)>> {
    eprintln!("building the release server");
    let mut servers = vec![("saker".to_owned(), vec![release::build(session)?.server.into()])];
    for name in PEERS {
        match shell::find(name) {
            Some(program) => servers.push((versioned(name, &program), vec![program.into()])),
            None => eprintln!("{name} is not on PATH: skipped"),
        }
    }
    for peer in &arguments.peers {
        let (name, command) = peer.split_once('=').context("--peer takes NAME=COMMAND")?;
        servers.push((name.to_owned(), command.split_whitespace().map(OsString::from).collect()));
    }
    Ok(servers)
}

/// Returns the peer's name with its version, if `--version` prints one (`… v=7.0.15 …`).
fn versioned(name: &str, program: &Path) -> String {
    let short = name.trim_end_matches("-server");
    let text = shell::output(Command::new(program).arg("--version")).unwrap_or_default();
    let version = text.split_whitespace().find_map(|word| word.strip_prefix("v="));
    version.map_or_else(|| short.to_owned(), |version| format!("{short} {version}"))
}

/// Runs one test against one server once, and returns its figures.
fn measure(
    benchmark: &Path,
    contender: &BenchedServer,
    test: &str,
    arguments: &BenchArguments,
) -> Result<Figures> {
    let mut command = Command::new(benchmark);
    command.args(["--csv", "-p", &contender.server.port().to_string()]);
    let numbers = [
        ("-n", arguments.requests),
        ("-c", arguments.clients),
        ("-P", arguments.pipeline),
        ("-r", arguments.keyspace),
        ("-d", arguments.size),
    ];
    for (option, number) in numbers {
        command.args([option, &number.to_string()]);
    }
    match test.strip_prefix("lrange_") {
        // redis-benchmark's own LRANGE tests push a list first, and that would count as part of the
        // test.
        Some(count) => {
            let count: usize = count.parse().with_context(|| format!("{test} must end in a number"))?;
            let mut client = contender.server.connect();
            client.request(&["DEL", "bench:list"])?;
            client.request(&[vec!["RPUSH", "bench:list"], vec!["xxx"; count]].concat())?;
            command.args(["lrange", "bench:list", "0", &(count - 1).to_string()]);
        }
        None => {
            command.args(["-t", test]);
        }
    }
    let before = contender.server.cpu_seconds()?;
    let output = shell::output(&mut command)?;
    let cpu_seconds = contender.server.cpu_seconds()? - before;
    let figures = Figures::parse(&output, cpu_seconds / f64::from(arguments.requests) * 1e6);
    figures.with_context(|| format!("redis-benchmark printed no figures for {test}: {output}"))
}

/// Returns the command line that repeats this benchmark, without `--write`.
fn command_line() -> String {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut kept = Vec::new();
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            // The file of the table does not affect the measurement.
            "--write" => _ = words.next(),
            word if word.starts_with("--write=") => {}
            word if word.contains(' ') => kept.push(format!("'{word}'")),
            word => kept.push(word.to_owned()),
        }
    }
    format!("cargo xtask {}", kept.join(" "))
}

/// Describes the settings of the benchmark in a sentence: its rounds, clients and requests.
fn setting(arguments: &BenchArguments, least_trip_ns: f64) -> String {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let distances = if arguments.by_distance {
        format!(
            " or more, of runs during which the cores did not move (they are far where a cache line takes more than \
             {FAR_TIMES} times the least seen, {least_trip_ns:.0} ns, there and back)"
        )
    } else {
        String::new()
    };
    format!(
        "{} connections, pipeline {}, {} requests a run over {} keys, values of {} bytes, {} I/O threads each, \
         medians of {} interleaved rounds{distances}; client and servers share {cores} cores.",
        arguments.clients,
        arguments.pipeline,
        arguments.requests,
        arguments.keyspace,
        arguments.size,
        arguments.io_threads,
        arguments.rounds,
    )
}
