//! Measures how well a server stays within `maxmemory`, and the waits of other clients while big
//! values are created and removed:
//!
//! ```sh
//! alias memory-bench="cargo run --release -p testkit --bin memory-bench --"
//! memory-bench zipf   --peer redis=redis-server
//! memory-bench limit  --seconds 180
//! memory-bench save   --peer redis=redis-server
//! memory-bench sync   --replica redis-server
//! memory-bench stalls --elements 10000000 --peer redis=redis-server
//! memory-bench turns  --elements 10000000 --peer redis=redis-server
//! ```
//! Saker is the `saker-server` built in the folder of this program, or `$SAKER_SERVER`. The figures
//! are printed as the tables of docs/performance.md.
#![forbid(unsafe_code)]

mod limit;
mod load;
mod save;
mod serving;
mod stalls;
mod sync;
mod turns;
mod zipf;

use std::error::Error;
use std::io;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use testkit::{Client, ServerProcess, Value, peer, saker};

/// Measures memory limits, saves, and waits caused by big values.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Hit rates of eviction policies on a trace with Zipf's distribution.
    Zipf(zipf::Options),
    /// Used and resident memory at a memory limit, under a load that overwrites all types.
    Limit(limit::Options),
    /// Saves and loads of a snapshot: time, memory, latencies.
    Save(save::Options),
    /// Latencies during full synchronisations of a replica, beside saves.
    Sync(sync::Options),
    /// Waits of another client while big values grow, are removed and are replaced.
    Stalls(load::Options),
    /// Maximum CPU time that the server spends on a few requests while big values grow and are
    /// removed. Other load on the machine does not influence it.
    Turns(load::Options),
}

/// The servers to measure: Saker with several numbers of I/O threads, and peers.
#[derive(Args)]
struct Servers {
    /// Numbers of I/O threads of Saker; it is measured with each.
    #[arg(long, value_delimiter = ',', default_value = "2")]
    io_threads: Vec<usize>,
    /// `NAME=COMMAND`: a server to compare with.
    #[arg(long)]
    peer: Vec<String>,
    /// Measures only the peers.
    #[arg(long)]
    only_peers: bool,
}

impl Servers {
    /// Returns the names of the servers in the table, Saker's first. If Saker is measured with
    /// several numbers of I/O threads, its names contain the number.
    fn names(&self) -> Vec<String> {
        let saker =
            self.io_threads.iter().filter(|_| !self.only_peers).map(|threads| match self.io_threads[..] {
                [_] => "saker".to_owned(),
                _ => format!("saker {threads}"),
            });
        let peers = self.peer.iter().map(|peer| peer.split('=').next().unwrap_or(peer).to_owned());
        saker.chain(peers).collect()
    }

    /// Starts the server that the table calls `name`, with the files in `folder`.
    fn start_in(&self, name: &str, folder: &std::path::Path) -> io::Result<ServerProcess> {
        let folder = folder.to_string_lossy();
        if name.starts_with("saker") {
            return saker::start(&["--io-threads", &self.io_threads[0].to_string(), "--dir", &folder]);
        }
        let command = self.peer.iter().find_map(|peer| peer.strip_prefix(name)?.strip_prefix('='));
        peer::start_command(&format!("{} --dir {folder}", command.unwrap_or(name)))
    }

    /// Starts the server that the table calls `name`, in a new folder.
    fn start(&self, name: &str) -> io::Result<ServerProcess> {
        if let Some(threads) = name.strip_prefix("saker") {
            let threads =
                if threads.is_empty() { self.io_threads[0].to_string() } else { threads.trim().into() };
            return saker::start(&["--io-threads", &threads]);
        }
        let command = self.peer.iter().find_map(|peer| peer.strip_prefix(name)?.strip_prefix('='));
        peer::start_command(command.unwrap_or(name))
    }
}

/// Returns the number that INFO shows for `field` in `section`.
fn info(client: &mut Client, section: &str, field: &str) -> Result<u64, Box<dyn Error>> {
    let Value::Bulk(text) = client.request(&["INFO", section])? else { return Err("no INFO".into()) };
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(line.ok_or_else(|| format!("INFO has no {field}"))?.parse()?)
}

fn set_option(client: &mut Client, name: &str, value: &str) -> Result<(), Box<dyn Error>> {
    match client.request(&["CONFIG", "SET", name, value])? {
        Value::Simple(_) => Ok(()),
        other => Err(format!("CONFIG SET {name} {value}: {other:?}").into()),
    }
}

/// Returns the resident memory of process `pid` in bytes.
fn resident_bytes(pid: u32) -> io::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024).ok_or_else(|| io::Error::other("the process has no VmRSS"))
}

fn main() -> ExitCode {
    let result = match Arguments::parse().what {
        What::Zipf(options) => zipf::run(&options),
        What::Limit(options) => limit::run(&options),
        What::Save(options) => save::run(&options),
        What::Sync(options) => sync::run(&options),
        What::Stalls(options) => stalls::run(&options),
        What::Turns(options) => turns::run(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
