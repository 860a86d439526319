//! Replicas and primaries that stop or are killed.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::process::Signal;
use testkit::process::free_port;
use testkit::replication::load::send_lines;
use testkit::replication::{Replica, SyncCounts, happens, info, number, run};
use testkit::{Client, Rng, Value};

use super::{Primary, is_without_peer, replica_of, replicas, seed};
use crate::support::signal;

/// Number of writes while the replica is stopped, each of [`VALUE_BYTES`] bytes to one of [`KEYS`]
/// keys.
const OVERWRITES: usize = 300_000;
const VALUE_BYTES: usize = 100;
const KEYS: usize = 1000;
/// Number of writes that the client sends at once.
const PIPELINE: usize = 1000;

const MIB: u64 = 1 << 20;
/// The limit of a replica's output buffer, and of the backlog, in bytes.
const LIMIT_BYTES: u64 = MIB;
/// Upper bound of the memory for one pipeline: its requests and its replies, in bytes.
const PIPELINE_BYTES: u64 = (PIPELINE * (VALUE_BYTES + 100)) as u64;

/// Overwrites all keys by one pipeline of [`PIPELINE`] requests.
fn overwrite(client: &mut Client, round: usize) {
    let value = format!("{round:0VALUE_BYTES$}");
    let keys: Vec<String> = (0..PIPELINE).map(|number| format!("key:{}", number % KEYS)).collect();
    let requests: Vec<Vec<&str>> = keys.iter().map(|key| vec!["SET", key, &value]).collect();
    let mut errors = 0;
    let answered = client.pipeline_each(&requests, |reply| errors += usize::from(reply.is_error()));
    answered.unwrap_or_else(|error| panic!("round {round}: a write is not answered: {error}"));
    assert_eq!(errors, 0, "round {round}");
}

#[test]
fn a_stopped_replica_costs_bounded_memory_and_holds_nobody_up() {
    if is_without_peer() {
        return;
    }
    let options = ["--repl-backlog-size", "1mb", "--client-output-buffer-limit", "replica 1mb 1mb 60"];
    let primary = Primary::start(&options);
    let mut client = primary.connect();
    let replica = replica_of(&primary, &[]);
    // Fills the backlog, and gives all keys their final size.
    for round in 0..20 {
        overwrite(&mut client, round);
    }
    replica.catch_up(&mut client);
    let mut control = primary.connect();
    let used = |control: &mut Client| number(control, "memory", "used_memory");
    let (before, syncs) = (used(&mut control), SyncCounts::of(&mut control));
    signal(replica.process(), Signal::STOP);
    let mut peak = before;
    for round in 0..OVERWRITES / PIPELINE {
        overwrite(&mut client, 1000 + round);
        peak = peak.max(used(&mut control));
    }
    // The replica's output and the backlog, each over its limit by a block at most, and one
    // pipeline.
    let allowed = 2 * LIMIT_BYTES + LIMIT_BYTES / 8 + 2 * PIPELINE_BYTES + MIB;
    assert!(
        peak <= before + allowed,
        "used_memory grew by {} bytes, {allowed} are allowed\n{}",
        peak - before,
        info(&mut control, "memory")
    );
    assert!(happens(|| replicas(&mut control) == 0), "{}", info(&mut control, "replication"));
    signal(replica.process(), Signal::CONT);
    replica.wait_for_data_of(&mut control, "after the stop");
    assert_eq!(SyncCounts::of(&mut control).since(syncs), (1, 0));
}

/// Writes commands in transactions until `stop` is set or the server ends. Returns the number of
/// transactions.
fn write_until(primary_port: u16, client: usize, stop: &AtomicBool) -> usize {
    let Ok(mut connection) = Client::connect(&testkit::Address::port(primary_port)) else { return 0 };
    let (mut written, db) = (0, (client % 3).to_string());
    while !stop.load(Relaxed) {
        let (number, key) = (written.to_string(), format!("k{client}:{}", written % 500));
        let requests: Vec<Vec<&str>> = vec![
            vec!["SELECT", &db],
            vec!["SET", &key, &number],
            vec!["MULTI"],
            vec!["INCR", "all"],
            vec!["RPUSH", "list", &number],
            vec!["LTRIM", "list", "-20", "-1"],
            vec!["EXEC"],
        ];
        if connection.pipeline(&requests).is_err() {
            return written;
        }
        written += 1;
    }
    written
}

/// A guard that stops the writers at the end of its scope, also if the test fails there. Otherwise
/// the scope would wait for the writers' threads for ever.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs `act` while clients write to the primary.
pub(crate) fn with_load(primary_port: u16, act: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|client| {
                let stop = &stop;
                scope.spawn(move || write_until(primary_port, client, stop))
            })
            .collect();
        {
            let _stop = StopAtEnd(&stop);
            act();
        }
        let written: usize = writers.into_iter().map(|writer| writer.join().expect("no panic")).sum();
        assert!(written > 0, "nothing was written");
    });
}

/// Waits until the primary has counted `count` more commands.
pub(crate) fn wait_for_commands(client: &mut Client, count: u64) {
    let from = number(client, "stats", "total_commands_processed");
    assert!(happens(|| number(client, "stats", "total_commands_processed") >= from + count));
}

/// Number of writes of big values, of [`BIG_VALUE_BYTES`] bytes each. Together they exceed what the
/// sockets buffer.
const BIG_WRITES: usize = 1600;
const BIG_VALUE_BYTES: usize = 64 << 10;

#[test]
fn writes_wait_for_a_slow_replica_if_an_option_says_so() {
    if is_without_peer() || std::env::var_os("SAKER_PRIMARY").is_some() {
        return;
    }
    let primary = Primary::start(&["--repl-writes-wait-above", "100kb"]);
    let replica = replica_of(&primary, &[]);
    let mut control = primary.connect();
    replica.catch_up(&mut control);
    signal(replica.process(), Signal::STOP);
    let writer = std::thread::spawn({
        let mut client = primary.connect();
        move || {
            let value = "x".repeat(BIG_VALUE_BYTES);
            let requests = vec![vec!["SET", "big", &value]; BIG_WRITES];
            let mut errors = 0;
            let answered = client.pipeline_each(&requests, |reply| errors += usize::from(reply.is_error()));
            answered.map(|()| errors)
        }
    });
    let excess = |control: &mut Client| number(control, "changelog", "change_log_replica_excess_bytes");
    assert!(happens(|| excess(&mut control) > 0), "{}", info(&mut control, "replication"));
    // Reads do not wait. The write does, until the replica reads again.
    run(&mut control, &["GET", "small"]);
    assert!(!writer.is_finished());
    signal(replica.process(), Signal::CONT);
    let errors = writer.join().expect("it does not panic").expect("all are answered");
    assert_eq!(errors, 0);
    assert!(happens(|| excess(&mut control) == 0));
    replica.wait_for_data_of(&mut control, "after the wait");
}

#[test]
fn a_killed_replica_comes_back_with_its_file_by_a_partial_sync() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let primary = Primary::start(&["--repl-backlog-size", "512mb"]);
    let mut control = primary.connect();
    let folder = tempfile::tempdir().expect("a scratch folder");
    let (port, primary_port) = (free_port().expect("a port is free"), primary.port().to_string());
    let dir = folder.path().to_str().expect("a name of text");
    let options = ["--dir", dir, "--replicaof", &format!("127.0.0.1 {primary_port}")];
    let mut rng = Rng::new(seed);
    let mut replica = Replica::start_on(port, &options).expect("the replica starts");
    replica.wait_until_up();
    for kill in 0..4_u32 {
        let is_saved = kill.is_multiple_of(2);
        let syncs = SyncCounts::of(&mut control);
        with_load(primary.port(), || {
            wait_for_commands(&mut control, 500 + rng.below(3000) as u64);
            if is_saved {
                run(&mut replica.connect(), &["SAVE"]);
            } else {
                // Without its file, the replica has no offset at which it can continue.
                let _ = std::fs::remove_file(folder.path().join("dump.rdb"));
            }
            wait_for_commands(&mut control, 100 + rng.below(2000) as u64);
            signal(replica.process(), Signal::KILL);
            wait_for_commands(&mut control, 100);
            let next = Replica::start_on(port, &options).expect("the replica starts again");
            drop(std::mem::replace(&mut replica, next));
            wait_for_commands(&mut control, 500);
            replica.wait_until_up();
        });
        replica.wait_for_data_of(&mut control, &format!("seed {seed}, kill {kill}"));
        let expected = if is_saved { (0, 1) } else { (1, 0) };
        assert_eq!(SyncCounts::of(&mut control).since(syncs), expected, "seed {seed}, kill {kill}");
    }
}

#[test]
fn a_killed_primary_comes_back_with_its_log_and_is_followed_again() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let mut rng = Rng::new(seed);
    let folder = tempfile::tempdir().expect("a scratch folder");
    let port = free_port().expect("a port is free");
    let options = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let mut primary = Primary::start_in(folder.path(), port, &options);
    let replica = replica_of(&primary, &[]);
    for kill in 0..3 {
        let mut control = primary.connect();
        with_load(port, || {
            wait_for_commands(&mut control, 1000 + rng.below(5000) as u64);
            signal(&primary.process, Signal::KILL);
        });
        drop(primary);
        primary = Primary::start_in(folder.path(), port, &options);
        let mut control = primary.connect();
        send_lines(&mut control, ["SET after-the-kill 1"]);
        replica.wait_for_data_of(&mut control, &format!("seed {seed}, kill {kill}"));
        // A killed primary has a new history, in which the replica's old offset is not valid.
        assert_eq!(number(&mut control, "stats", "sync_full"), 1, "seed {seed}, kill {kill}");
        assert_eq!(replica.connect().command(&["GET", "after-the-kill"]), Value::Bulk(b"1".to_vec()));
        send_lines(&mut control, ["DEL after-the-kill"]);
    }
}
