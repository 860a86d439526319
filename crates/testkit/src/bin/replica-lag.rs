//! Measures the lag of a replica, and the latency of GET there, while its primary receives SETs:
//!
//! ```sh
//! cargo run --release -p testkit --bin replica-lag -- \
//!     --server "$PWD/target/release/saker-server --io-threads 1" \
//!     --bench target/release/saker-bench --rate 492000 --seconds 600
//! ```
//! Primary and replica run on a core each (`taskset`), the load generator on `--load-core` or on
//! both. The lag is the time from the primary's reply to a SET until a client of the replica reads
//! the new value. This client repeats its GET until then. The results of each third of the run show
//! whether the lag grows.
#![forbid(unsafe_code)]

use std::error::Error;
use std::ffi::OsString;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use testkit::{Client, ServerProcess, Value};

/// Pause between two measurements of the replica's lag.
const PAUSE: Duration = Duration::from_millis(10);
/// Maximum time until the replica follows its primary.
const UP_WITHIN: Duration = Duration::from_secs(60);
/// Number of GETs sent to the replica before the load, as the control.
const IDLE_REQUESTS: usize = 10_000;
/// The key that is set on the primary and read on the replica to measure the lag.
const MARKER: &str = "marker";

/// Measures the lag of a replica, and the latency of GET there.
#[derive(Parser)]
struct Options {
    /// The command line of both servers, split at spaces. A program in a folder needs its full
    /// path.
    #[arg(long)]
    server: String,
    /// The path of the program saker-bench.
    #[arg(long)]
    bench: String,
    /// The number of SETs per second that the load generator sends to the primary.
    #[arg(long, default_value_t = 300_000)]
    rate: u64,
    /// The duration of the load of SETs, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The number of the processor core on which the primary runs.
    #[arg(long, default_value_t = 0)]
    primary_core: usize,
    /// The number of the processor core on which the replica runs.
    #[arg(long, default_value_t = 1)]
    replica_core: usize,
    /// The core of the load generator; any core without this option.
    #[arg(long)]
    load_core: Option<usize>,
}

fn main() -> ExitCode {
    match measure(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(options: &Options) -> Result<(), Box<dyn Error>> {
    let primary = start(options, options.primary_core)?;
    let replica = start(options, options.replica_core)?;
    let (mut writer, mut reader) = (primary.connect(), replica.connect());
    reader.request(&["REPLICAOF", "127.0.0.1", &primary.port().to_string()])?;
    let since = Instant::now();
    while !is_up(&mut reader)? {
        if since.elapsed() > UP_WITHIN {
            return Err("the replica does not follow the primary".into());
        }
        thread::sleep(PAUSE);
    }
    let mut idle = Vec::new();
    for _ in 0..IDLE_REQUESTS {
        get(&mut reader, &mut idle)?;
    }
    let mut load = load(options, primary.port())?.stdout(Stdio::null()).spawn()?;
    let (began, mut gets, mut thirds) = (Instant::now(), Vec::new(), [const { Vec::new() }; 3]);
    let mut number = 0_u64;
    while load.try_wait()?.is_none() {
        number += 1;
        let value = number.to_string();
        writer.request(&["SET", MARKER, &value])?;
        let written = Instant::now();
        while get(&mut reader, &mut gets)?.as_bytes() != Some(value.as_bytes()) {}
        let third = began.elapsed().as_secs() * 3 / options.seconds.max(1);
        thirds[third.min(2) as usize].push(written.elapsed());
        thread::sleep(PAUSE);
    }
    let mut lags = thirds.concat();
    println!("| | p50 | p99 | longest |\n|---|---:|---:|---:|");
    print_row("GET, idle", &mut idle);
    print_row("GET with the stream", &mut gets);
    print_row("lag", &mut lags);
    for (number, third) in thirds.iter_mut().enumerate() {
        print_row(&format!("lag, third {}", number + 1), third);
    }
    Ok(())
}

/// Returns true if the replica's link to its primary is up.
fn is_up(replica: &mut Client) -> Result<bool, Box<dyn Error>> {
    let info = replica.request(&["INFO", "replication"])?;
    let text = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
    Ok(text.contains("master_link_status:up"))
}

/// Starts a server that runs only on core `core`.
fn start(options: &Options, core: usize) -> Result<ServerProcess, Box<dyn Error>> {
    let pinned = format!("taskset -c {core} {}", options.server);
    let command_line: Vec<OsString> = pinned.split_whitespace().map(OsString::from).collect();
    let settings = ["--save", "", "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "64mb"];
    Ok(ServerProcess::start(&command_line, &settings.map(str::to_owned))?)
}

/// Returns the command that starts the load generator, saker-bench, against the primary at `port`.
fn load(options: &Options, port: u16) -> Result<Command, Box<dyn Error>> {
    let bench = std::fs::canonicalize(&options.bench)?;
    let mut command = match options.load_core {
        Some(core) => {
            let mut command = Command::new("taskset");
            command.args(["-c", &core.to_string()]).arg(bench);
            command
        }
        None => Command::new(bench),
    };
    command.args(["run", "-c", "20", "-P", "16", "-t", "set", "-r", "500000", "-d", "64", "--csv", "-p"]);
    command.args([port.to_string(), "--rate".to_owned(), options.rate.to_string()]);
    command.args(["--duration".to_owned(), options.seconds.to_string()]);
    Ok(command)
}

/// Reads the marker key from the replica. Appends the latency of the request to `times`.
fn get(client: &mut Client, times: &mut Vec<Duration>) -> Result<Value, Box<dyn Error>> {
    let sent = Instant::now();
    let value = client.request(&["GET", MARKER])?;
    times.push(sent.elapsed());
    Ok(value)
}

/// Prints a row of the table with the quantiles of `times`, in milliseconds.
fn print_row(name: &str, times: &mut [Duration]) {
    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    };
    println!("| {name} | {:.3} ms | {:.3} ms | {:.3} ms |", at(50), at(99), at(100));
}
