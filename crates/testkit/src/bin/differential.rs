//! Compares two servers on random commands: `cargo run -p testkit --bin differential -- --a 6379
//! --b 6380 --seconds 60 --seed 1`. All keys of both servers are deleted. Without `--a` a real
//! Redis is started (`--a-command`, or $SAKER_PEER). Without `--b` the server of `--b-command` is
//! started, or the saker-server built in the folder of this program.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Parser;
use testkit::differential::{Options, run};
use testkit::{Address, ServerProcess, peer, saker};

/// Sends the same random commands to two servers and compares their answers and content.
#[derive(Parser)]
struct Arguments {
    /// Port of server A, the reference; without it a real Redis is started.
    #[arg(long)]
    a: Option<u16>,
    /// Port of server B, the one under test; without it saker-server is started.
    #[arg(long)]
    b: Option<u16>,
    /// Command line of a reference (server A) to start.
    #[arg(long, conflicts_with = "a")]
    a_command: Option<String>,
    /// Command line of a real server to start as server B, the one under test.
    #[arg(long, conflicts_with = "b")]
    b_command: Option<String>,
    /// Ends after this many seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Ends after this many commands.
    #[arg(long)]
    commands: Option<u64>,
    /// The seed of all choices; by default, the current time.
    #[arg(long)]
    seed: Option<u64>,
    /// Ends after this many failures with different causes.
    #[arg(long, default_value_t = 1)]
    failures: usize,
    /// Uses only the commands with these names.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Does not send the commands with these names.
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

/// One of the two compared servers: one that already runs, or one that this program starts and
/// stops.
enum Server {
    Running(u16),
    Started(ServerProcess),
}

impl Server {
    fn of(port: Option<u16>, start: impl FnOnce() -> io::Result<ServerProcess>) -> io::Result<Self> {
        port.map_or_else(|| start().map(Self::Started), |port| Ok(Self::Running(port)))
    }

    fn address(&self) -> Address {
        match self {
            Self::Running(port) => Address::port(*port),
            Self::Started(process) => process.address(),
        }
    }
}

/// Compares the two servers by random commands. Returns true if no reply and no content differs.
fn compare(arguments: Arguments) -> Result<bool, Box<dyn Error>> {
    let capitals = |names: Vec<String>| names.iter().map(|name| name.to_ascii_uppercase()).collect();
    let a = Server::of(arguments.a, || {
        arguments.a_command.map_or_else(peer::start, |line| peer::start_command(&line))
    })?;
    let b = Server::of(arguments.b, || {
        arguments.b_command.map_or_else(|| saker::start(&[]), |line| peer::start_command(&line))
    })?;
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
    let summary =
        run(&a.address(), &b.address(), &options).map_err(|error| format!("seed {seed}: {error}"))?;
    println!("{summary}");
    Ok(summary.failures.is_empty())
}
