//! Measures the latency of one client while other clients keep a server busy:
//!
//! ```sh
//! cargo run --release -p testkit --bin beside -- --loads hog,4-hogs,keys --io-threads 1,2 \
//!     --peer redis=redis-server
//! ```
//! A probe sends PING and GET alternately, one at a time with a pause between them, while a load
//! (see `loads.rs`) runs. Each round measures each server, one after the other, so that a change of
//! the machine's speed affects all servers alike. A row of the table holds the quantiles over all
//! rounds, in milliseconds. Saker is the `saker-server` built in the folder of this program, or
//! `$SAKER_SERVER`. It is measured once for each requested number of I/O threads and back end.
#![forbid(unsafe_code)]

mod loads;

use std::error::Error;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use testkit::{Client, ServerProcess, Value, peer, saker};

/// Measures PING and GET while other clients keep a server busy.
#[derive(Parser)]
struct Options {
    /// Loads that keep the server busy: `none`, `hog`, `2-hogs`, `4-hogs`, `sintercard`, `keys`,
    /// `lrange`, `sunionstore`, `expire`, `trackers`.
    #[arg(long, value_delimiter = ',', required = true)]
    loads: Vec<String>,
    /// Numbers of I/O threads. Saker is measured with each of them.
    #[arg(long, value_delimiter = ',', default_value = "1")]
    io_threads: Vec<usize>,
    /// Back ends of I/O: `io_uring`, `epoll`. Saker is measured with each of them.
    #[arg(long, value_delimiter = ',', default_values_t = ["io_uring".to_owned(), "epoll".to_owned()])]
    backends: Vec<String>,
    /// `NAME=COMMAND`: a server to compare with.
    #[arg(long)]
    peer: Vec<String>,
    /// Duration of each measurement in seconds; `expire` and `trackers` take their own time.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Number of measurements of each server under each load.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// A server to measure: its name in the table, and the function that starts it.
struct Engine {
    name: String,
    start: Box<dyn Fn() -> std::io::Result<ServerProcess>>,
}

/// The measurements of one server under one load: the latencies of the probe.
#[derive(Clone)]
pub struct Figures {
    /// The latencies of PING and of GET, in microseconds.
    probes_us: [Histogram<u64>; 2],
    /// Further results of a load besides the latency of the probe, one text per round.
    reported: Vec<String>,
}

impl Default for Figures {
    fn default() -> Self {
        let empty = || Histogram::new_with_max(600_000_000, 3).expect("three digits are possible");
        Self { probes_us: [empty(), empty()], reported: Vec::new() }
    }
}

/// The key that the GETs of the probe read.
const PROBED: &str = "probe";
/// Pause between two requests of the probe: the probe itself must not keep the server busy.
const PROBE_PAUSE: Duration = Duration::from_millis(1);

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    let engines = engines(options)?;
    println!("| load | server | PING p50 | p99 | p99.9 | max | GET p50 | p99 | p99.9 | max | |");
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for load in &options.loads {
        let mut figures = vec![Figures::default(); engines.len()];
        for _ in 0..options.rounds {
            for (engine, figures) in engines.iter().zip(&mut figures) {
                let server = (engine.start)()?;
                server.connect().command(&["SET", PROBED, "value"]);
                loads::run(load, &server, Duration::from_secs_f64(options.seconds), figures)?;
            }
        }
        for (engine, figures) in engines.iter().zip(&figures) {
            println!("{}", row(load, &engine.name, figures));
        }
    }
    Ok(())
}

fn engines(options: &Options) -> Result<Vec<Engine>, Box<dyn Error>> {
    let mut engines = Vec::new();
    for backend in &options.backends {
        for threads in &options.io_threads {
            let (backend, threads) = (backend.clone(), threads.to_string());
            let name = format!("saker, {backend}, {threads} threads");
            let start = move || {
                saker::start(&["--io-backend", &backend, "--io-threads", &threads, "--maxclients", "20000"])
            };
            engines.push(Engine { name, start: Box::new(start) });
        }
    }
    for peer in &options.peer {
        let (name, command) = peer.split_once('=').ok_or("--peer wants NAME=COMMAND")?;
        let command = format!("{command} --maxclients 15000");
        engines
            .push(Engine { name: name.to_owned(), start: Box::new(move || peer::start_command(&command)) });
    }
    Ok(engines)
}

fn row(load: &str, engine: &str, figures: &Figures) -> String {
    let mut row = format!("| {load} | {engine} |");
    for times in &figures.probes_us {
        for quantile in [0.5, 0.99, 0.999] {
            row += &format!(" {:.3} |", times.value_at_quantile(quantile) as f64 / 1e3);
        }
        row += &format!(" {:.1} |", times.max() as f64 / 1e3);
    }
    row + &format!(" {} |", figures.reported.join("; "))
}

/// Sends PING and GET alternately until `is_over` is set. Adds their latencies to `figures`.
fn probe(server: &ServerProcess, is_over: &AtomicBool, figures: &mut Figures) {
    let mut client: Client = server.connect();
    // Some servers stall for a long time.
    client.set_read_timeout(Duration::from_secs(300));
    while !is_over.load(Relaxed) {
        for (request, times) in [&["PING"][..], &["GET", PROBED]].iter().zip(&mut figures.probes_us) {
            let since = Instant::now();
            let reply = client.command(request);
            times.saturating_record(since.elapsed().as_micros() as u64);
            assert!(matches!(reply, Value::Simple(_) | Value::Bulk(_)), "{reply}");
            thread::sleep(PROBE_PAUSE);
        }
    }
}
