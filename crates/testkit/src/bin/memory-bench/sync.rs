//! Full synchronisations of a replica beside saves: their duration, and the latency of clients
//! meanwhile.
//!
//! Both read the same data under the same load, one after the other. A save is measured from BGSAVE
//! to its end, a synchronisation from REPLICAOF until the replica is online, in two parts. The
//! first one ends when the snapshot is written. In the second one the replica loads the rest, which
//! takes a core from the clients and the server.

use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use clap::Args;
use testkit::{Client, ServerProcess, Value, peer};

use crate::save::{self, LOOK, Phase, expect_simple, phase, wait_while};
use crate::{info, set_option};

/// The options of the measurement of full synchronisations.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    load: save::Options,
    /// The command line of the server that becomes the replica.
    #[arg(long, default_value = "redis-server")]
    replica: String,
    /// Number of saves and of synchronisations of each server.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

pub fn run(options: &Options) -> Result<(), Box<dyn Error>> {
    println!("| server | | seconds | requests | over 5 ms | longest ms |\n|---|---|{}", "--:|".repeat(4));
    for name in options.load.servers.names() {
        let server = options.load.servers.start(&name)?;
        let mut client = server.connect();
        set_option(&mut client, "save", "")?;
        set_option(&mut client, "repl-diskless-sync-delay", "0")?;
        save::fill(&mut client, &options.load)?;
        for _ in 0..options.rounds {
            thread::sleep(Duration::from_secs(1));
            print(&name, "nothing", &phase(&server, &options.load, rest)?);
            print(&name, "save", &phase(&server, &options.load, save)?);
            thread::sleep(Duration::from_secs(1));
            print(&name, "nothing", &phase(&server, &options.load, rest)?);
            synchronise(options, (&name, &server))?;
        }
    }
    Ok(())
}

fn rest(_client: &mut Client) -> Result<(), Box<dyn Error>> {
    thread::sleep(Duration::from_secs(3));
    Ok(())
}

fn save(client: &mut Client) -> Result<(), Box<dyn Error>> {
    expect_simple(client.request(&["BGSAVE"])?)?;
    wait_while(client, "rdb_bgsave_in_progress")
}

/// Measures a full synchronisation in two parts: until the snapshot is written, then until the
/// replica is online.
fn synchronise(options: &Options, (name, server): (&str, &ServerProcess)) -> Result<(), Box<dyn Error>> {
    let replica = peer::start_command(&options.replica)?;
    let port = server.port().to_string();
    let written = phase(server, &options.load, |client| {
        expect_simple(replica.connect().request(&["REPLICAOF", "127.0.0.1", &port])?)?;
        while info(client, "persistence", "rdb_bgsave_in_progress")? == 0 && !is_online(client)? {
            thread::sleep(LOOK);
        }
        wait_while(client, "rdb_bgsave_in_progress")
    })?;
    print(name, "full synchronisation: the snapshot is written", &written);
    let loaded = phase(server, &options.load, |client| {
        while !is_online(client)? {
            thread::sleep(LOOK);
        }
        Ok(())
    })?;
    print(name, "then: the replica receives and loads it", &loaded);
    Ok(())
}

/// Returns true if the server has a replica that has loaded its snapshot.
fn is_online(client: &mut Client) -> Result<bool, Box<dyn Error>> {
    let Value::Bulk(text) = client.request(&["INFO", "replication"])? else { return Err("no INFO".into()) };
    Ok(String::from_utf8_lossy(&text).contains("state=online"))
}

fn print(name: &str, what: &str, phase: &Phase) {
    println!(
        "| {name} | {what} | {:.2} | {} | {} | {:.1} |",
        phase.took.as_secs_f64(),
        phase.seen.requests.load(Relaxed),
        phase.seen.long.load(Relaxed),
        phase.seen.longest_ns.load(Relaxed) as f64 / 1e6,
    );
}
