//! Replicas have the data of their primary: after a full sync in each way, and after random
//! commands.

use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::change_stream::replay::Commands;
use testkit::replication::load::{send_lines, send_random};
use testkit::replication::{Proxy, Replica, SyncCounts, happens, number, run};
use testkit::{Client, Rng, Value, script};

use super::{Primary, fill, is_without_peer, replica_of, seed};

/// Number of values of each type in each database.
const VALUES: usize = 8;

/// Number of batches of random commands between two comparisons.
const BATCHES: usize = 8;

/// Fills a primary with values that the version of the replica can read.
fn fill_for(replica: &Replica, client: &mut Client, seed: u64) {
    fill(client, seed, VALUES);
    if !super::has_field_expiry(replica.version()) {
        super::persist_fields(client);
    }
}

#[test]
fn a_full_sync_and_random_commands_give_the_same_data() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let primary = Primary::start(&[]);
    let mut control = primary.connect();
    let replicas = ["disabled", "swapdb"].map(|load| {
        let replica = Replica::start(&["--repl-diskless-load", load]).expect("the replica starts");
        (load, replica)
    });
    fill_for(&replicas[0].1, &mut control, seed);
    run(
        &mut control,
        &["FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() return 1 end)"],
    );
    for diskless in ["yes", "no"] {
        run(&mut control, &["CONFIG", "SET", "repl-diskless-sync", diskless]);
        let before = SyncCounts::of(&mut control);
        for (_, replica) in &replicas {
            replica.leave();
            replica.follow(primary.port());
        }
        for (load, replica) in &replicas {
            let what = format!("diskless {diskless}, load {load}, seed {seed}");
            replica.wait_for_data_of(&mut control, &format!("{what}: after the full sync"));
            let libraries = [&mut control, &mut replica.connect()]
                .map(|client| client.command(&["FUNCTION", "LIST", "WITHCODE"]).to_string());
            assert_eq!(libraries[0], libraries[1], "{what}");
        }
        assert_eq!(SyncCounts::of(&mut control).since(before), (2, 0), "diskless {diskless}, seed {seed}");
    }
    let mut commands = Commands::for_version(replicas[0].1.version(), Rng::new(seed));
    for round in 0..4 {
        send_random(&primary.process, &mut commands, BATCHES);
        for (load, replica) in &replicas {
            replica.wait_for_data_of(&mut control, &format!("load {load}, seed {seed}, round {round}"));
        }
    }
    for (load, replica) in &replicas {
        let text = testkit::replication::info(&mut replica.connect(), "errorstats");
        // What a replica refuses, it counts.
        assert!(!text.contains("errorstat_"), "load {load}, seed {seed}: {text}\n{}", replica.log());
    }
}

#[test]
fn random_commands_during_full_syncs_give_the_same_data() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let primary = Primary::start(&[]);
    let mut control = primary.connect();
    let replica = Replica::start(&["--repl-diskless-load", "swapdb"]).expect("the replica starts");
    let mut commands = Commands::for_version(replica.version(), Rng::new(seed));
    let proxy = Proxy::start(primary.port()).expect("a port is free");
    proxy.throttle(Some(400_000));
    proxy.delay(Duration::from_millis(1));
    for round in 0..3 {
        fill_for(&replica, &mut control, seed + round);
        replica.follow(proxy.port());
        send_random(&primary.process, &mut commands, BATCHES);
        proxy.throttle(None);
        proxy.delay(Duration::ZERO);
        replica.wait_for_data_of(&mut control, &format!("seed {seed}, round {round}"));
        replica.leave();
        proxy.throttle(Some(400_000));
    }
}

#[test]
fn transactions_databases_scripts_and_flushes_reach_a_replica() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    let replica = replica_of(&primary, &[]);
    let script = "for i = 1, 3 do redis.call('RPUSH', KEYS[1], i) end redis.call('SELECT', 4) \
                  redis.call('SET', KEYS[1], redis.call('TIME')[2])";
    run(&mut client, &["SET", "before", "flush"]);
    run(&mut client, &["FLUSHALL"]);
    send_lines(
        &mut client,
        ["SET a 1", "SELECT 3", "SET a 2", "MULTI", "INCR a", "SELECT 5", "RPUSH l x y", "SELECT 3", "EXEC"],
    );
    run(&mut client, &["EVAL", script, "1", "by a script"]);
    send_lines(&mut client, ["SELECT 0", "SWAPDB 3 7", "SADD e a b c d", "SPOP e 2", "MOVE a 9", "FLUSHDB"]);
    let mut control = primary.connect();
    replica.wait_for_data_of(&mut control, "fixed commands");
    let mut own = replica.connect();
    send_lines(&mut own, ["SELECT 7"]);
    assert_eq!(own.command(&["GET", "a"]), Value::Bulk(b"3".to_vec()));
    send_lines(&mut own, ["SELECT 5"]);
    assert_eq!(own.command(&["LLEN", "l"]), Value::Integer(2));
    send_lines(&mut own, ["SELECT 0"]);
    assert_eq!(own.command(&["DBSIZE"]), Value::Integer(0));
}

#[test]
fn a_flush_during_a_full_sync_leaves_what_is_written_after_it() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    let proxy = Proxy::start(primary.port()).expect("a port is free");
    let replica = Replica::start(&[]).expect("the replica starts");
    for diskless in ["yes", "no"] {
        run(&mut client, &["CONFIG", "SET", "repl-diskless-sync", diskless]);
        run(&mut client, &["DEBUG", "POPULATE", "20000", "key", "100"]);
        let (before, passed) = (SyncCounts::of(&mut client), proxy.passed_bytes());
        proxy.throttle(Some(300_000));
        replica.follow(proxy.port());
        assert!(happens(|| proxy.passed_bytes() > passed + 50_000), "{}", replica.log());
        send_lines(
            &mut client,
            ["SET lost 1", "FLUSHALL", "SET kept 1", "SELECT 2", "SET kept 2", "SELECT 0"],
        );
        proxy.throttle(None);
        replica.wait_for_data_of(&mut client, &format!("diskless {diskless}, a flush during the sync"));
        assert_eq!(replica.connect().command(&["DBSIZE"]), Value::Integer(1));
        // No further sync is needed: the flush is in the stream after the snapshot.
        let syncs = SyncCounts::of(&mut client).since(before);
        assert!(syncs.0 <= 2 && syncs.1 == 0, "{syncs:?}");
        replica.leave();
    }
}

#[test]
fn a_replica_of_a_replica_has_the_data_and_may_move_up() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let primary = Primary::start(&[]);
    let mut control = primary.connect();
    let middle = replica_of(&primary, &[]);
    let last = Replica::start(&[]).expect("the replica starts");
    last.follow(middle.process().port());
    last.wait_until_up();
    let mut commands = Commands::for_version(middle.version(), Rng::new(seed));
    send_random(&primary.process, &mut commands, BATCHES);
    middle.wait_for_data_of(&mut control, &format!("seed {seed}, the middle"));
    last.wait_for_data_of(&mut control, &format!("seed {seed}, the last"));
    let before = SyncCounts::of(&mut control);
    drop(middle);
    send_random(&primary.process, &mut commands, BATCHES);
    last.follow(primary.port());
    last.wait_for_data_of(&mut control, &format!("seed {seed}, moved up"));
    assert_eq!(
        SyncCounts::of(&mut control).since(before),
        (0, 1),
        "the ID and the offsets are the primary's"
    );
}

#[test]
fn a_replica_logs_in_by_password_or_as_a_user() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    run(&mut client, &["CONFIG", "SET", "requirepass", "secret"]);
    let replica = Replica::start(&["--masterauth", "wrong"]).expect("the replica starts");
    replica.follow(primary.port());
    let is_refused = |client: &mut Client| client.command(&["ACL", "LOG"]) != Value::Array(Vec::new());
    assert!(happens(|| is_refused(&mut client)), "{}", replica.log());
    assert!(!replica.is_up());
    run(&mut replica.connect(), &["CONFIG", "SET", "masterauth", "secret"]);
    replica.wait_for_data_of(&mut client, "by password");
    replica.leave();
    run(&mut client, &["ACL", "SETUSER", "follower", "on", ">own", "+psync", "+replconf", "+ping"]);
    run(&mut replica.connect(), &["CONFIG", "SET", "masteruser", "follower"]);
    run(&mut replica.connect(), &["CONFIG", "SET", "masterauth", "own"]);
    replica.follow(primary.port());
    run(&mut client, &["SET", "k", "1"]);
    replica.wait_for_data_of(&mut client, "as a user");
}

/// Number of scripts of tests/cmd that run in CI. `SAKER_SCRIPTS=all` runs all of them.
const SCRIPTS: usize = 80;

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

/// Returns the scripts of commands that a replica of this version can follow, in random order.
fn scripts(replica: &Replica, rng: &mut Rng) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/cmd");
    let has_field_expiry = super::has_field_expiry(replica.version());
    let is_wanted = |path: &PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).unwrap_or_default().to_ascii_uppercase();
        let is_of_fields = ["HEXPIRE", "HPEXPIRE", "HSETEX", "HGETEX"].iter().any(|word| text.contains(word));
        path.extension().is_some_and(|extension| extension == "resp")
            && !OTHER_SCRIPTS.contains(&name.as_str())
            && (has_field_expiry || !is_of_fields)
            // Only Redis 8 has vector sets; the tests of `vector_files` compare them.
            && !text.contains("VADD ")
            // Only Redis 8.8 has arrays.
            && !name.starts_with("ar")
    };
    let entries = std::fs::read_dir(folder).expect("the folder of scripts");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(is_wanted);
    paths.sort();
    rng.shuffle(&mut paths);
    if std::env::var("SAKER_SCRIPTS").as_deref() != Ok("all") {
        paths.truncate(SCRIPTS);
    }
    paths
}

#[test]
fn scripts_of_commands_leave_the_same_data() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let primary = Primary::start(&[]);
    let replica = replica_of(&primary, &[]);
    for path in scripts(&replica, &mut Rng::new(seed)) {
        // Other tests check the replies.
        script::run(&path, &|protocol| Client::speaking(&primary.process.address(), protocol));
        // A script may end other connections.
        let mut control = primary.connect();
        replica.wait_for_data_of(&mut control, &format!("seed {seed}, {}", path.display()));
    }
}

#[test]
fn keys_that_expire_are_removed_from_a_replica() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    let replica = replica_of(&primary, &[]);
    for number in 0..300 {
        let (key, ms) = (format!("k{number}"), (1 + number % 60).to_string());
        run(&mut client, &["SET", &key, "value", "PX", &ms]);
    }
    run(&mut client, &["SET", "lasting", "1"]);
    let mut own = replica.connect();
    assert!(happens(|| own.command(&["DBSIZE"]) == Value::Integer(1)), "keys stay on the replica");
    replica.wait_for_data_of(&mut client, "expired keys");
    // A replica removes keys only when the primary says so.
    assert_eq!(number(&mut own, "stats", "expired_keys"), 0);
}

/// Reads messages until one has the text `last`. Returns the texts of all messages.
fn messages(subscriber: &mut Client, last: &str) -> Vec<String> {
    let mut texts = Vec::new();
    while texts.last().is_none_or(|text| text != last) {
        let message = subscriber.read().expect("a message");
        let (Value::Array(parts) | Value::Push(parts)) = message else { panic!("no message but {message}") };
        texts
            .push(String::from_utf8_lossy(parts.last().and_then(Value::as_bytes).unwrap_or_default()).into());
    }
    texts
}

#[test]
fn messages_reach_the_subscribers_of_a_replica_in_order() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    let replica = replica_of(&primary, &[]);
    let (mut plain, mut sharded) = (replica.connect(), replica.connect());
    run(&mut plain, &["SUBSCRIBE", "news"]);
    let has_shards = !sharded.command(&["SSUBSCRIBE", "shard"]).is_error();
    send_lines(
        &mut client,
        [
            "PUBLISH news 1",
            "SPUBLISH shard 1",
            "MULTI",
            "PUBLISH news 2",
            "SET k 1",
            "PUBLISH news 3",
            "EXEC",
        ],
    );
    run(&mut client, &["EVAL", "redis.call('PUBLISH', 'news', '4') return redis.call('SET', 'k', '2')", "0"]);
    let expected: Vec<String> = (5..200).map(|number| number.to_string()).collect();
    for number in &expected {
        run(&mut client, &["PUBLISH", "news", number]);
        run(&mut client, &["SPUBLISH", "shard", number]);
    }
    let first = ["1", "2", "3", "4"].map(str::to_owned);
    assert_eq!(messages(&mut plain, "199"), [&first[..], &expected].concat());
    if has_shards {
        assert_eq!(messages(&mut sharded, "199"), [&first[..1], &expected].concat());
    }
}
