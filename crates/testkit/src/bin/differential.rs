//! Compares two servers on random commands:
//! `cargo run -p testkit --bin differential -- --a 6379 --b 6380 --seconds 60 --seed 1`.
//! Both are emptied. Without `--a` a real Redis is started ($SAKER_PEER), without `--b` the
//! saker-server built beside this program.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use testkit::differential::{Options, run};
use testkit::{Address, peer, saker};

/// Sends the same random commands to two servers and compares their answers and content.
#[derive(Parser)]
struct Arguments {
    /// Port of the reference; without it a peer is started.
    #[arg(long)]
    a: Option<u16>,
    /// Port of the server under test; without it saker-server is started.
    #[arg(long)]
    b: Option<u16>,
    /// Ends after this many seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Ends after this many commands.
    #[arg(long)]
    commands: Option<u64>,
    /// Where all choices start from; without it, from the time.
    #[arg(long)]
    seed: Option<u64>,
    /// Ends after this many different failures.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Uses only these commands.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Leaves these commands out.
    #[arg(long, value_delimiter = ',')]
    skip: Vec<String>,
}

fn main() -> ExitCode {
    match compare(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// True when nothing differed.
fn compare(arguments: Arguments) -> Result<bool, Box<dyn Error>> {
    let capitals = |names: Vec<String>| names.iter().map(|name| name.to_ascii_uppercase()).collect();
    let started_a = if arguments.a.is_none() { Some(peer::start()?) } else { None };
    let started_b = if arguments.b.is_none() { Some(saker::start(&[])?) } else { None };
    let a = arguments.a.map(Address::port).or(started_a.as_ref().map(|server| server.address()));
    let b = arguments.b.map(Address::port).or(started_b.as_ref().map(|server| server.address()));
    let (Some(a), Some(b)) = (a, b) else { return Err("two servers are needed".into()) };
    let seed = match arguments.seed {
        Some(seed) => seed,
        None => SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs(),
    };
    let options = Options {
        seed,
        time: Duration::from_secs(arguments.seconds),
        commands: arguments.commands.unwrap_or(u64::MAX),
        failures: arguments.failures,
        only: capitals(arguments.only),
        skip: capitals(arguments.skip),
    };
    let summary = run(&a, &b, &options).map_err(|error| format!("seed {seed}: {error}"))?;
    println!("{summary}");
    Ok(summary.failures.is_empty())
}
