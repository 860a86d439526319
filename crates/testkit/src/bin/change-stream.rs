//! Compares Saker's stream of changes with that of a real Redis.
//!
//! `cargo run -p testkit --bin change-stream -- tests/cmd/set.resp` prints the differences between
//! the two servers' streams after a script. `… -- --replay 20 --seed 1` replays the streams of
//! random commands into an empty Saker. If the peer (`$SAKER_PEER`) is Redis 8 or newer, it replays
//! into the peer as well.
#![forbid(unsafe_code)]

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use testkit::change_stream::recorded::RecordedServer;
use testkit::change_stream::replay;
use testkit::change_stream::{compare, explained};
use testkit::{Client, script};

/// Compares Saker's stream of changes with that of a real Redis.
#[derive(Parser)]
struct Arguments {
    /// Replays random commands for this many seconds.
    #[arg(long)]
    replay: Option<u64>,
    /// The seed of random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The scripts (`.resp` files) after which the streams are compared.
    files: Vec<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<usize, Box<dyn Error>> {
    let mut found = 0;
    if let Some(seconds) = arguments.replay {
        let summary = replay::run(arguments.seed, Duration::from_secs(seconds))?;
        summary.failures.iter().for_each(|failure| println!("{failure}"));
        println!(
            "seed {}: {} commands, {} changes in {} streams replayed, {} differences",
            arguments.seed,
            summary.commands,
            summary.changes,
            summary.streams,
            summary.failures.len()
        );
        return Ok(summary.failures.len());
    }
    for path in &arguments.files {
        let Some(mut redis) = RecordedServer::redis()? else {
            println!("skipped: the peer is older than Redis 8");
            return Ok(0);
        };
        let mut saker = RecordedServer::saker(&[])?;
        for server in [&redis, &saker] {
            let address = server.process.address();
            // Other tests check the replies.
            script::run(path, &|protocol| Client::speaking(&address, protocol));
        }
        let streams = (saker.changes(&mut 0), redis.changes(&mut 0));
        let (Ok(ours), Ok(theirs)) = streams else {
            println!("{}: {streams:?}", path.display());
            found += 1;
            continue;
        };
        let mut differences = compare(&ours, &theirs);
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        differences.retain(|difference| explained::reason(&name, difference).is_none());
        println!("{}: {} changes, {} differences", path.display(), ours.len(), differences.len());
        differences.iter().for_each(|difference| println!("{difference}"));
        found += differences.len();
    }
    Ok(found)
}
