//! Compares Saker's change stream (the stream of write commands that replicas and files receive)
//! with that of a real Redis, and applies it to real servers.
//!
//! `cargo run -p testkit --features saves --bin change-stream -- tests/cmd/set.resp` runs a script
//! on both servers and prints the differences between their streams. It then applies Saker's stream
//! to every peer. `… -- --replay 20 --seed 1` sends random commands to Saker for 20 seconds. It
//! applies the resulting streams to an empty Saker and to every peer.
//!
//! Peers are `$SAKER_PEER`, or `redis-server` from the PATH, and the command lines of `--peer`
//! (`--peer "valkey-server" --peer "/opt/redis-6.2/bin/redis-server"`). A peer does not get streams
//! with command forms that are newer than its version. Streams are compared only with Redis 8 or
//! newer.
#![forbid(unsafe_code)]

use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use testkit::change_stream::peers::{self, Peer};
use testkit::change_stream::recorded::RecordedServer;
use testkit::change_stream::replay;
use testkit::change_stream::{Change, Difference, compare, explained, parse};
use testkit::{Client, script};

/// Compares Saker's stream of changes (write commands) with that of a real Redis, and applies it to
/// real servers.
#[derive(Parser)]
struct Arguments {
    /// Sends random commands for this many seconds and applies the resulting streams of changes to
    /// the real servers.
    #[arg(long)]
    replay: Option<u64>,
    /// The seed from which the random commands follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The command line of a real server that applies the streams of changes too; may be repeated.
    #[arg(long)]
    peer: Vec<String>,
    /// The scripts (`.resp` files) after which the streams of changes are compared.
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
    let own = testkit::peer::is_available().then(testkit::peer::command_line);
    let lines: Vec<String> = own.into_iter().chain(arguments.peer.iter().cloned()).collect();
    match arguments.replay {
        Some(seconds) => replay_random(arguments.seed, Duration::from_secs(seconds), &lines),
        None => {
            let peers: io::Result<Vec<Peer>> = lines.iter().map(|line| Peer::start(line)).collect();
            let mut peers = peers?;
            arguments.files.iter().try_fold(0, |found, path| Ok(found + run_script(path, &mut peers)?))
        }
    }
}

/// Sends random commands to Saker for `time` and applies the resulting streams of changes to an
/// empty Saker and to the peers. Returns the number of differences in the data.
fn replay_random(seed: u64, time: Duration, peers: &[String]) -> Result<usize, Box<dyn Error>> {
    let summary = replay::run(seed, time, peers)?;
    summary.failures.iter().for_each(|failure| println!("{failure}"));
    let replay::Summary { commands, changes, streams, failures } = &summary;
    let found = failures.len();
    println!(
        "seed {seed}: {commands} commands, {changes} changes in {streams} streams replayed, {found} differences"
    );
    Ok(found)
}

/// Runs a script, compares the streams of changes of both servers, and applies Saker's stream to
/// the peers. Returns the number of differences.
fn run_script(path: &Path, peers: &mut [Peer]) -> Result<usize, Box<dyn Error>> {
    let mut saker = RecordedServer::saker(&[])?;
    // Other tests check the replies.
    script::run(path, &|protocol| Client::speaking(&saker.process.address(), protocol));
    let stream = saker.bytes()?;
    let ours = parse(&stream, 0)?;
    let (applied, failures) = peers::replay_into_all(peers, &stream, &mut saker.process.connect())?;
    let mut found = failures.len();
    failures.iter().for_each(|failure| println!("{failure}"));
    let differences = compare_with_redis(path, &ours)?;
    let compared =
        differences.as_ref().map_or("not compared".into(), |them| format!("{} differences", them.len()));
    println!("{}: {} changes, applied by {applied} peers, {compared}", path.display(), ours.len());
    for difference in differences.into_iter().flatten() {
        println!("{difference}");
        found += 1;
    }
    Ok(found)
}

/// Returns the differences between Saker's stream of changes and that of the default peer that the
/// table of intended differences does not explain. `None` if there is no peer, or if it is older
/// than Redis 8.
fn compare_with_redis(path: &Path, ours: &[Change]) -> Result<Option<Vec<Difference>>, Box<dyn Error>> {
    if !testkit::peer::is_available() {
        return Ok(None);
    }
    let Some(mut redis) = RecordedServer::redis()? else { return Ok(None) };
    script::run(path, &|protocol| Client::speaking(&redis.process.address(), protocol));
    let mut differences = compare(ours, &redis.changes(&mut 0)?);
    let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    differences.retain(|difference| explained::reason(&name, difference).is_none());
    Ok(Some(differences))
}
