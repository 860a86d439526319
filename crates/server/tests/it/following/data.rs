//! Replicas have the data of their primary: after full syncs in each way, random commands, and
//! scripts.

use std::path::{Path, PathBuf};

use testkit::change_stream::forms::PeerVersion;
use testkit::change_stream::replay::Commands;
use testkit::replication::load::{send_lines, send_random};
use testkit::replication::{Proxy, happens, number, run};
use testkit::{Client, Rng, Value, script};

use super::{Kind, Node, kinds, runs_all, seed};

/// Number of values of each type in each database.
const VALUES: usize = 8;

/// Number of batches of random commands between two comparisons.
const BATCHES: usize = 6;

/// The values of `repl-diskless-load`: the ways to load a snapshot.
pub(super) const LOADS: [&str; 4] = ["disabled", "on-empty-db", "swapdb", "flush-before-load"];

/// Loads two libraries of functions into the server `node`, if it has functions.
fn load_functions(node: &Node) {
    let mut client = node.connect();
    for name in ["one", "two"] {
        let code = format!(
            "#!lua name={name}\nredis.register_function('f{name}', function() return redis.call('TIME') end)"
        );
        if node.has_functions() {
            run(&mut client, &["FUNCTION", "LOAD", "REPLACE", &code]);
        }
    }
}

#[test]
fn each_kind_of_full_sync_gives_the_same_data() {
    let seed = seed();
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut control = primary.connect();
        let replicas = LOADS.map(|load| (load, Node::start(Kind::Own, &["--repl-diskless-load", load])));
        primary.fill(seed, VALUES, &[]);
        load_functions(&primary);
        for (round, diskless) in ["yes", "no"].into_iter().enumerate() {
            run(&mut control, &["CONFIG", "SET", "repl-diskless-sync", diskless]);
            for (_, replica) in &replicas {
                // In the second round, there is the data of the first one.
                replica.promote();
                // Data and functions of its own, which the snapshot replaces.
                let mut own = replica.connect();
                let code = "#!lua name=own\nredis.register_function('own', function() return 1 end)";
                run(&mut own, &["FUNCTION", "LOAD", "REPLACE", code]);
                if round > 0 {
                    send_lines(&mut own, ["SET stray 1", "SELECT 11", "SET stray 1", "SELECT 0"]);
                }
                replica.follow(primary.port());
            }
            for (load, replica) in &replicas {
                let what = format!("{kind:?}, diskless {diskless}, load {load}, seed {seed}");
                replica.wait_for_data_of(&primary, &format!("{what}: after the full sync"));
                assert_eq!(replica.functions(), primary.functions(), "{what}");
                assert_eq!(replica.failed_commands(), "0", "{what}");
                let mut own = replica.connect();
                assert_eq!(number(&mut own, "persistence", "loading"), 0, "{what}");
            }
            // The stream follows the snapshot.
            send_lines(&mut control, ["SELECT 4", "INCR after-the-snapshot", "SELECT 0"]);
            for (load, replica) in &replicas {
                replica.wait_for_data_of(&primary, &format!("{kind:?}, diskless {diskless}, load {load}"));
            }
        }
    }
}

#[test]
fn random_commands_give_the_same_data() {
    let seed = seed();
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let replicas = ["disabled", "swapdb"]
            .map(|load| (load, Node::following(&primary, &["--repl-diskless-load", load])));
        let mut commands = Commands::for_version(primary.version, Rng::new(seed));
        for round in 0..if runs_all() { 40 } else { 4 } {
            send_random(&primary.process, &mut commands, BATCHES);
            for (load, replica) in &replicas {
                let what = format!("{kind:?}, load {load}, seed {seed}, round {round}");
                replica.wait_for_data_of(&primary, &what);
                assert_eq!(replica.failed_commands(), "0", "{what}: {}", replica.state());
            }
        }
    }
}

#[test]
fn random_commands_during_full_syncs_give_the_same_data() {
    let seed = seed();
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let proxy = Proxy::start(primary.port()).expect("a port is free");
        let mut commands = Commands::for_version(primary.version, Rng::new(seed));
        for (round, load) in LOADS.into_iter().enumerate() {
            let replica = Node::start(Kind::Own, &["--repl-diskless-load", load]);
            primary.fill(seed + round as u64, VALUES, &[]);
            proxy.throttle(Some(400_000));
            replica.follow(proxy.port());
            assert!(happens(|| proxy.passed_bytes() > 0));
            send_random(&primary.process, &mut commands, BATCHES);
            proxy.throttle(None);
            replica.wait_for_data_of(&primary, &format!("{kind:?}, seed {seed}, load {load}"));
        }
    }
}

#[test]
fn a_flush_during_a_full_sync_leaves_what_is_written_after_it() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        let proxy = Proxy::start(primary.port()).expect("a port is free");
        let replica = Node::start(Kind::Own, &[]);
        for diskless in ["yes", "no"] {
            run(&mut client, &["CONFIG", "SET", "repl-diskless-sync", diskless]);
            run(&mut client, &["DEBUG", "POPULATE", "5000", "key", "100"]);
            let passed = proxy.passed_bytes();
            proxy.throttle(Some(300_000));
            replica.follow(proxy.port());
            assert!(happens(|| proxy.passed_bytes() > passed + 30_000), "{}", replica.state());
            send_lines(
                &mut client,
                ["SET lost 1", "FLUSHALL", "SET kept 1", "SELECT 2", "SET kept 2", "SELECT 0"],
            );
            proxy.throttle(None);
            replica.wait_for_data_of(&primary, &format!("{kind:?}, diskless {diskless}"));
            assert_eq!(replica.connect().command(&["DBSIZE"]), Value::Integer(1));
            replica.leave();
        }
    }
}

/// Number of scripts of tests/cmd that run in CI.
const SCRIPTS: usize = 60;

/// Scripts that are left out: they end the server, replace its data, or are about replication.
const OTHER_SCRIPTS: &[&str] = &[
    "shutdown",
    "debug",
    "replicaof",
    "slaveof",
    "psync",
    "sync",
    "replconf",
    "failover",
    "wait",
    "waitaof",
];

/// Returns the scripts to run, in random order; without `SAKER_FOLLOWING=all` only [`SCRIPTS`] of
/// them.
fn scripts(rng: &mut Rng) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cmd");
    let entries = std::fs::read_dir(folder).expect("the folder of scripts");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        path.extension().is_some_and(|extension| extension == "resp") && !OTHER_SCRIPTS.contains(&&*name)
    });
    paths.sort();
    rng.shuffle(&mut paths);
    if !runs_all() {
        paths.truncate(SCRIPTS);
    }
    paths
}

#[test]
fn scripts_of_commands_leave_the_same_data() {
    let seed = seed();
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let replica = Node::following(&primary, &[]);
        for path in scripts(&mut Rng::new(seed)) {
            // Other tests check the replies.
            script::run(&path, &|protocol| Client::speaking(&primary.process.address(), protocol));
            let what = format!("{kind:?}, seed {seed}, {}", path.display());
            replica.wait_for_data_of(&primary, &what);
            assert_eq!(replica.functions(), primary.functions(), "{what}");
        }
        // A Valkey accepts expiry times of fields that are too large for Redis.
        let log = replica.process.log();
        let failures = log.lines().filter(|line| line.contains("== CRITICAL =="));
        let unexpected: Vec<&str> =
            failures.filter(|line| !line.contains("invalid expire time in")).collect();
        assert!(unexpected.is_empty(), "{kind:?}, seed {seed}: {unexpected:?}");
        let has_none = replica.failed_commands() == "0";
        assert!(has_none || matches!(primary.version, PeerVersion::Valkey(_)), "{}", replica.state());
    }
}

#[test]
fn keys_vanish_from_a_replica_by_the_deletions_of_the_primary() {
    for kind in kinds() {
        let primary = Node::start(kind, &[]);
        let mut client = primary.connect();
        let replica = Node::following(&primary, &[]);
        let mut own = replica.connect();
        run(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        for number in 0..50 {
            run(&mut client, &["SET", &format!("k{number}"), "value", "PX", "1"]);
        }
        run(&mut client, &["SET", "lasting", "1"]);
        replica.catch_up(&primary);
        // Reads do not see what has expired; the keys are still there.
        assert!(happens(|| own.command(&["GET", "k7"]) == Value::Null), "{kind:?}");
        assert!(happens(|| own.command(&["EXISTS", "k8", "k9"]) == Value::Integer(0)), "{kind:?}");
        assert_eq!(own.command(&["TTL", "k7"]), Value::Integer(-2), "{kind:?}");
        assert_eq!(own.command(&["DBSIZE"]), Value::Integer(51), "{kind:?}");
        // A read on the primary deletes one key; then the active expiry deletes all.
        assert_eq!(client.command(&["GET", "k7"]), Value::Null);
        replica.catch_up(&primary);
        assert_eq!(own.command(&["DBSIZE"]), Value::Integer(50), "{kind:?}");
        run(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "1"]);
        assert!(happens(|| own.command(&["DBSIZE"]) == Value::Integer(1)), "{kind:?}: keys stay");
        replica.wait_for_data_of(&primary, "expired keys");
        assert_eq!(number(&mut own, "stats", "expired_keys"), 0, "{kind:?}");
    }
}
