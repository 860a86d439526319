//! REPLICAOF of a primary that does not answer: replies, ROLE, INFO, options and clients, compared
//! with a real server in the same state.

use std::fs;

use resp::encode_request;
use testkit::process::free_port;
use testkit::replication::{field, happens, info, run};
use testkit::{Client, Rng, ServerProcess, Value, notation, peer};

use super::{OPTIONS, is_without_peer, seed};
use crate::support::BINARY;

/// A server under test and a real one.
struct Pair {
    ours: ServerProcess,
    theirs: ServerProcess,
}

/// Starts the server under test with `options`.
fn start(options: &[&str]) -> ServerProcess {
    testkit::saker::start_binary(BINARY, &[OPTIONS, options].concat())
        .unwrap_or_else(|error| panic!("{error}"))
}

impl Pair {
    /// Starts the server under test and a real server; returns `None` if there is no real server.
    fn start(options: &[&str]) -> Option<Self> {
        if is_without_peer() {
            return None;
        }
        let theirs = peer::start_with(&[OPTIONS, options].concat()).expect("the peer starts");
        Some(Self { ours: start(options), theirs })
    }

    /// Sends a request to both servers, on new connections. Checks that the replies are equal, and
    /// returns the reply.
    fn both(&self, words: &[&str]) -> String {
        self.both_on(&mut self.connect(), words)
    }

    /// Connects a client to each of the two servers.
    fn connect(&self) -> [Client; 2] {
        [self.ours.connect(), self.theirs.connect()]
    }

    /// Sends a request to both servers on `clients`. Checks that the replies are equal, and returns
    /// the reply.
    fn both_on(&self, clients: &mut [Client; 2], words: &[&str]) -> String {
        let [ours, theirs] = clients.each_mut().map(|client| notation::one_line(&client.command(words)));
        assert_eq!(ours, theirs, "{words:?}");
        ours
    }
}

/// Returns a port on which no process listens, as text.
fn dead_port() -> String {
    free_port().expect("a port is free").to_string()
}

/// Returns the lines of INFO replication on a replica, from the role up to the number of its own
/// replicas. Leaves out the fields that only this server has.
fn link_lines(client: &mut Client) -> Vec<String> {
    let text = info(client, "replication");
    let own = ["replicas_repl_buffer", "replica_full_sync_buffer", "master_link_failed", "master_link_last"];
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let lines = lines.take_while(|line| !line.starts_with("connected_slaves"));
    lines.filter(|line| !own.iter().any(|own| line.starts_with(own))).map(str::to_owned).collect()
}

/// Returns true if the reply of ROLE names the primary at `port` without an offset, in a phase
/// before the replication stream begins.
fn is_unconnected(role: &Value, port: &str) -> bool {
    let line = notation::one_line(role);
    let has = |word: &str| line.contains(word);
    has("slave")
        && has(port)
        && has("-1")
        && ["connect", "connecting", "handshake"].iter().any(|phase| has(phase))
}

#[test]
fn requests_for_a_primary_are_answered_as_the_peer_answers_them() {
    let Some(pair) = Pair::start(&[]) else { return };
    let port = dead_port();
    let requests: &[&[&str]] = &[
        &["REPLICAOF"],
        &["REPLICAOF", "h"],
        &["REPLICAOF", "h", "1", "2"],
        &["REPLICAOF", "h", "x"],
        &["REPLICAOF", "h", ""],
        &["REPLICAOF", "h", "-1"],
        &["REPLICAOF", "h", "65536"],
        &["REPLICAOF", "h", "01"],
        &["REPLICAOF", "no", "two"],
        &["SLAVEOF", "NO", "one"],
        &["REPLICAOF", "no", "ONE"],
        &["EVAL", "return redis.call('REPLICAOF', 'NO', 'ONE')", "0"],
        &["REPLICAOF", "localhost", &port],
        &["REPLICAOF", "localhost", &port],
        &["SLAVEOF", "LOCALHOST", &port],
        &["CONFIG", "GET", "replicaof"],
        &["CONFIG", "GET", "slaveof"],
        &["CONFIG", "SET", "replicaof", "no one"],
        &["CONFIG", "SET", "slaveof", "127.0.0.1 1"],
        &["SYNC"],
        &["PSYNC", "?", "-1"],
        &["PSYNC", "x", "y"],
        &["WAIT", "0", "0"],
        &["WAIT", "x", "y"],
        &["WAITAOF", "0", "0", "0"],
        &["WAITAOF", "1", "0", "0"],
        &["WAITAOF", "x", "0", "0"],
        &["WAITAOF", "2", "0", "0"],
        &["WAITAOF", "0", "0", "x"],
        &["REPLICAOF", "NO", "ONE"],
        &["CONFIG", "GET", "replicaof"],
        &["WAIT", "0", "0"],
        &["ROLE"],
    ];
    for words in requests {
        // A connection of its own: those of the replies to PSYNC may end.
        if words[0] == "WAITAOF" && pair.theirs.connect().command(words).to_string().contains("unknown") {
            continue;
        }
        pair.both(words);
    }
}

#[test]
fn a_replica_of_a_dead_port_describes_itself_as_the_peer_does() {
    let Some(pair) = Pair::start(&["--replica-priority", "7", "--replica-read-only", "no"]) else { return };
    let port = dead_port();
    pair.both(&["REPLICAOF", "127.0.0.1", &port]);
    let mut clients = pair.connect();
    let [ours, theirs] = clients.each_mut().map(link_lines);
    assert_eq!(ours, theirs);
    assert!(ours.contains(&"master_link_status:down".to_owned()), "{ours:?}");
    for client in &mut clients {
        let role = client.command(&["ROLE"]);
        assert!(is_unconnected(&role, &port), "{role}");
        let hello = notation::one_line(&client.command(&["HELLO"]));
        assert!(hello.contains("replica"), "{hello}");
    }
    assert_eq!(field(&mut clients[0], "replication", "master_link_failed_commands"), "0");
    assert_eq!(field(&mut clients[0], "persistence", "async_loading"), "0");
    pair.both(&["REPLICAOF", "NO", "ONE"]);
    let [ours, theirs] = clients.each_mut().map(link_lines);
    assert_eq!((&ours, ours.len()), (&theirs, 1));
    assert!(notation::one_line(&clients[0].command(&["HELLO"])).contains("master"));
}

#[test]
fn a_transaction_may_change_the_role() {
    let Some(pair) = Pair::start(&[]) else { return };
    let port = dead_port();
    let mut clients = pair.connect();
    for transaction in [
        &[
            &["REPLICAOF", "127.0.0.1", &port][..],
            &["REPLICAOF", "127.0.0.1", &port],
            &["CONFIG", "GET", "replicaof"],
        ][..],
        &[&["REPLICAOF", "NO", "ONE"], &["ROLE"]],
        &[&["REPLICAOF", "h", "x"], &["REPLICAOF", "NO", "ONE"]],
        &[&["SET", "k", "1"], &["GET", "k"], &["REPLICAOF", "127.0.0.1", &port], &["REPLICAOF", "NO", "ONE"]],
    ] {
        pair.both_on(&mut clients, &["MULTI"]);
        for words in transaction {
            pair.both_on(&mut clients, words);
        }
        pair.both_on(&mut clients, &["EXEC"]);
    }
}

/// Requests that block clients on both servers before these become replicas.
const WAITING: &[&[&str]] = &[
    &["BLPOP", "none", "0"],
    &["XREAD", "BLOCK", "0", "STREAMS", "none", "$"],
    &["BZPOPMIN", "none", "also-none", "0"],
    &["WAIT", "1", "0"],
];

#[test]
fn blocked_clients_are_disconnected_and_others_stay() {
    let Some(pair) = Pair::start(&[]) else { return };
    let port = dead_port();
    let mut subscriber = pair.connect();
    pair.both_on(&mut subscriber, &["SUBSCRIBE", "news"]);
    let mut watcher = pair.connect();
    for words in [&["WATCH", "k"][..], &["MULTI"], &["GET", "k"]] {
        pair.both_on(&mut watcher, words);
    }
    let mut blocked = Vec::new();
    for words in WAITING {
        let mut clients = pair.connect();
        let mut bytes = Vec::new();
        encode_request(words, &mut bytes);
        // What is sent behind it is not answered.
        encode_request(&["PING"], &mut bytes);
        clients.iter_mut().for_each(|client| client.send(&bytes).expect("it is sent"));
        blocked.push(clients);
    }
    for client in &mut pair.connect() {
        let count = WAITING.len().to_string();
        assert!(happens(|| field(client, "clients", "blocked_clients") == count));
    }
    pair.both(&["REPLICAOF", "127.0.0.1", &port]);
    for (mut clients, words) in blocked.into_iter().zip(WAITING) {
        let [ours, theirs] =
            clients.each_mut().map(|client| String::from_utf8(client.read_to_end().expect("it ends")));
        assert_eq!(ours, theirs, "{words:?}");
        assert!(ours.is_ok_and(|text| text.starts_with("-UNBLOCKED force unblock")), "{words:?}");
    }
    for client in &mut pair.connect() {
        assert_eq!(field(client, "clients", "blocked_clients"), "0");
    }
    pair.both_on(&mut watcher, &["EXEC"]);
    pair.both_on(&mut subscriber, &["PING"]);
    // Becoming a primary disconnects nobody.
    pair.both(&["REPLICAOF", "NO", "ONE"]);
    pair.both_on(&mut subscriber, &["PING"]);
}

#[test]
fn many_blocked_clients_of_all_threads_end_while_keys_are_filled() {
    let server = start(&["--io-threads", "4"]);
    let mut rng = Rng::new(seed());
    let mut client = server.connect();
    for _ in 0..20 {
        let mut clients: Vec<Client> = (0..40).map(|_| server.connect()).collect();
        for blocked in &mut clients {
            let key = format!("list{}", rng.below(5));
            let mut bytes = Vec::new();
            encode_request(&["BLPOP", &key, "0"], &mut bytes);
            blocked.send(&bytes).expect("it is sent");
        }
        assert!(happens(|| field(&mut client, "clients", "blocked_clients") == "40"));
        let mut bytes = Vec::new();
        for at in 0..10 {
            encode_request(&["RPUSH", &format!("list{}", rng.below(5)), "v"], &mut bytes);
            if at == 5 {
                encode_request(&["REPLICAOF", "127.0.0.1", "1"], &mut bytes);
                encode_request(&["REPLICAOF", "NO", "ONE"], &mut bytes);
            }
        }
        client.send(&bytes).expect("it is sent");
        assert_eq!(client.read_many(12).expect("replies").len(), 12);
        let mut served = 0;
        for mut blocked in clients {
            match blocked.read().expect("a reply") {
                Value::Array(_) => served += 1,
                Value::Error(line) => {
                    assert!(line.starts_with(b"UNBLOCKED"), "{}", line.escape_ascii());
                    assert_eq!(blocked.read_to_end().expect("it ends"), b"");
                }
                other => panic!("{other}"),
            }
        }
        assert!(served >= 1, "the pushes before the change serve clients");
        run(&mut client, &["FLUSHALL"]);
    }
}

#[test]
fn the_role_is_logged_with_the_client_and_kept_by_rewrite() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let file = folder.path().join("saker.conf");
    fs::write(&file, "save \"\"\nmasterauth secret\n").expect("written");
    let begin = || {
        ServerProcess::start(&[BINARY.into(), file.as_os_str().to_owned()], &[])
            .unwrap_or_else(|error| panic!("{error}"))
    };
    let text = || fs::read_to_string(&file).expect("there");
    let server = begin();
    let mut client = server.connect();
    run(&mut client, &["REPLICAOF", "127.0.0.1", "1"]);
    run(&mut client, &["REPLICAOF", "127.0.0.1", "1"]);
    server.wait_for_log("REPLICAOF 127.0.0.1:1 enabled (user request from 'id=");
    server.wait_for_log(
        "REPLICAOF would result into synchronization with the master we are already connected with. No \
         operation performed.",
    );
    run(&mut client, &["CONFIG", "REWRITE"]);
    assert!(text().contains("replicaof 127.0.0.1 1\n"), "{}", text());
    drop((client, server));
    let server = begin();
    let mut client = server.connect();
    assert_eq!(field(&mut client, "replication", "role"), "slave");
    assert_eq!(
        notation::one_line(&client.command(&["CONFIG", "GET", "slaveof"])),
        "*2 \"slaveof\" \"127.0.0.1 1\""
    );
    run(&mut client, &["SLAVEOF", "NO", "ONE"]);
    server.wait_for_log("MASTER MODE enabled (user request from 'id=");
    run(&mut client, &["CONFIG", "REWRITE"]);
    assert!(
        !text().lines().any(|line| line.starts_with("replicaof") && line != "replicaof no one"),
        "{}",
        text()
    );
    assert!(!server.log().contains("secret"), "{}", server.log());
    drop((client, server));
    assert_eq!(field(&mut begin().connect(), "replication", "role"), "master");
}

#[test]
fn options_of_replicas_have_both_names_and_change() {
    let server = start(&["--slaveof", "127.0.0.1 +0001"]);
    let mut client = server.connect();
    let get = |client: &mut Client, name: &str| notation::one_line(&client.command(&["CONFIG", "GET", name]));
    for (name, alias, value) in [
        ("primaryauth", "masterauth", "a"),
        ("primaryuser", "masteruser", "b"),
        ("replica-read-only", "slave-read-only", "no"),
        ("replica-serve-stale-data", "slave-serve-stale-data", "no"),
        ("replica-priority", "slave-priority", "0"),
        ("replica-announce-ip", "slave-announce-ip", "10.0.0.1"),
        ("replica-announce-port", "slave-announce-port", "7"),
        ("replica-ignore-maxmemory", "slave-ignore-maxmemory", "no"),
        ("replica-lazy-flush", "slave-lazy-flush", "yes"),
    ] {
        run(&mut client, &["CONFIG", "SET", alias, value]);
        assert_eq!(get(&mut client, name), format!("*2 \"{name}\" \"{value}\""));
        assert_eq!(get(&mut client, alias), format!("*2 \"{alias}\" \"{value}\""));
    }
    for (name, values) in [
        ("repl-diskless-load", &["on-empty-db", "swapdb", "flush-before-load", "disabled"][..]),
        ("propagation-error-behavior", &["panic", "panic-on-replicas", "ignore"]),
        ("repl-unsupported-commands", &["skip", "refuse"]),
        ("replica-announced", &["no", "yes"]),
    ] {
        for value in values {
            run(&mut client, &["CONFIG", "SET", name, value]);
            assert_eq!(get(&mut client, name), format!("*2 \"{name}\" \"{value}\""));
        }
        assert!(client.command(&["CONFIG", "SET", name, "other"]).is_error());
    }
    assert_eq!(get(&mut client, "replicaof"), "*2 \"replicaof\" \"127.0.0.1 1\"");
    for (name, value) in [("slave_priority", "0"), ("slave_read_only", "0"), ("replica_announced", "1")] {
        assert_eq!(field(&mut client, "replication", name), value);
    }
}

#[test]
fn metrics_of_the_link_are_those_of_info() {
    let port = free_port().expect("a port is free").to_string();
    let server = start(&["--metrics-port", &port, "--replicaof", "127.0.0.1", "1"]);
    let scrape = || crate::metrics::scrape(port.parse().expect("a port"));
    let page = scrape();
    for series in [
        "saker_primary_link_up 0",
        "saker_primary_link_syncing 0",
        "saker_primary_link_applied_offset_bytes 0",
        "saker_primary_link_read_offset_bytes 0",
        "saker_primary_link_failed_commands_total 0",
    ] {
        assert!(page.lines().any(|line| line == series), "no {series} in\n{page}");
    }
    assert!(!page.contains("saker_primary_link_lag_seconds "), "it was never up");
    run(&mut server.connect(), &["REPLICAOF", "NO", "ONE"]);
    // A page may be some moments old.
    assert!(happens(|| !scrape().contains("saker_primary_link_up ")), "a primary has no link");
}
