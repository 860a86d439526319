//! Runs a soak test of a server: well-behaved clients check every reply, while other clients
//! misbehave. `cargo run --release -p testkit --features soak --bin soak -- --server
//! target/release/saker-server --seconds 3600`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::process::ServerProcess;
use testkit::soak::crowd::{self, Crowd, Target};
use testkit::soak::encryption::Encryption;
use testkit::soak::{Soak, run};
use testkit::{Address, saker};

/// Runs well-behaved clients that check every reply, while other clients misbehave.
#[derive(Parser)]
struct Arguments {
    /// The path of the server's program.
    #[arg(long)]
    server: PathBuf,
    /// Duration of all runs together, in seconds.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Numbers of I/O threads of the server; the test runs once with each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 8])]
    threads: Vec<usize>,
    /// Back ends of the event loop (`io_uring`, `epoll`); the test runs once with each.
    #[arg(long, value_delimiter = ',', default_values_t = ["epoll".to_owned(), "auto".to_owned()])]
    backends: Vec<String>,
    /// Maximum resident memory of the server, in megabytes. More fails the test.
    #[arg(long, default_value_t = 1_024)]
    resident_mb_max: u64,
    /// Kinds of misbehaving clients to run (`hog`, `slow reader`; see soak/misbehavior.rs), without
    /// blocked clients. By default, all kinds and also blocked clients.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Number of connections of a crowd, of which half misbehave; 0 for no crowd. The crowd is an
    /// additional run for each back end. It takes 5/3 of the time of another run.
    #[arg(long, default_value_t = 0)]
    crowd: usize,
    /// Maximum ratio of the third to the second latency measurement of the crowd, both 99th
    /// percentiles of its well-behaved half. In the third, the other half attacks the measured
    /// server; in the second, it attacks another one. By default, no limit.
    #[arg(long)]
    crowd_p99_factor: Option<f64>,
    /// The seed of all choices; by default, the current time.
    #[arg(long)]
    seed: Option<u64>,
}

fn main() -> ExitCode {
    match soak(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn soak(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let most = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most })?;
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    println!("seed {seed}");
    let server = std::fs::canonicalize(&arguments.server)?;
    let crowds = if arguments.crowd > 0 { 1 } else { 0 };
    let runs = ((arguments.threads.len() + crowds) * arguments.backends.len()).max(1) as u64;
    let time = Duration::from_millis(arguments.seconds * 1_000 / runs);
    for backend in &arguments.backends {
        for threads in &arguments.threads {
            let options = ["--io-backend", backend, "--io-threads", &threads.to_string()];
            let process = saker::start_binary(&server, &options)?;
            let soak = Soak {
                address: process.address(),
                pid: process.pid(),
                time,
                resident_bytes_max: arguments.resident_mb_max << 20,
                only: arguments.only.clone(),
                seed,
            };
            println!("{backend}, {threads} threads: {}", run(&soak));
        }
        if arguments.crowd > 0 {
            println!("{backend}, {}", crowd(arguments, &server, backend, time)?);
        }
    }
    Ok(())
}

/// Runs a crowd of connections, half of which misbehave, on two new servers. Returns its report.
fn crowd(
    arguments: &Arguments,
    server: &Path,
    backend: &str,
    time: Duration,
) -> Result<String, Box<dyn Error>> {
    let connections = (2 * arguments.crowd).to_string();
    let limits =
        ["--requirepass", crowd::PASSWORD, "--maxclients", &connections, "--maxmemory-clients", "128mb"];
    let start = || -> Result<(ServerProcess, Target), Box<dyn Error>> {
        let encryption = Encryption::new()?;
        let encrypted = encryption.options();
        let mut options = [&["--io-backend", backend, "--io-threads", "2"], &limits[..]].concat();
        options.extend(encrypted.iter().map(String::as_str));
        let process = saker::start_binary(server, &options)?;
        let Address::Tcp(address) = process.address() else { return Err("a server listens on TCP".into()) };
        Ok((process, Target { address, encryption }))
    };
    let (process, server) = start()?;
    let (_process, elsewhere) = start()?;
    let report = crowd::run(&Crowd {
        server,
        elsewhere,
        pid: process.pid(),
        connections: arguments.crowd,
        time,
        resident_bytes_max: arguments.resident_mb_max << 20,
        p99_factor_max: arguments.crowd_p99_factor,
    });
    Ok(format!("a crowd of {}: {report}", arguments.crowd))
}
