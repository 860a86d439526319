//! Soaks a server: well-behaved clients that check every reply, beside all that misbehaves. `cargo
//! run --release -p testkit --bin soak -- --server target/release/saker-server --seconds 3600`.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use testkit::saker;
use testkit::soak::{Soak, run};

/// Runs well-behaved clients that check every reply beside all that misbehaves.
#[derive(Parser)]
struct Arguments {
    /// The server's program.
    #[arg(long)]
    server: PathBuf,
    /// How long all runs take together.
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// I/O threads of the server, a run for each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2, 8])]
    threads: Vec<usize>,
    /// Back ends of the event loop, a run for each.
    #[arg(long, value_delimiter = ',', default_values_t = ["epoll".to_owned(), "auto".to_owned()])]
    backends: Vec<String>,
    /// The most memory that the server may hold, in megabytes.
    #[arg(long, default_value_t = 1_024)]
    resident_mb_max: u64,
    /// Only these kinds of trouble (`hog`, `slow reader`; see soak/trouble.rs),
    /// without waiting clients.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Where all choices start from; without it, from the time.
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
    let runs = (arguments.threads.len() * arguments.backends.len()).max(1) as u64;
    for backend in &arguments.backends {
        for threads in &arguments.threads {
            let options = ["--io-backend", backend, "--io-threads", &threads.to_string()];
            let process = saker::start_binary(&server, &options)?;
            let soak = Soak {
                address: process.address(),
                pid: process.pid(),
                time: Duration::from_millis(arguments.seconds * 1_000 / runs),
                resident_bytes_max: arguments.resident_mb_max << 20,
                only: arguments.only.clone(),
                seed,
            };
            println!("{backend}, {threads} threads: {}", run(&soak));
        }
    }
    Ok(())
}
