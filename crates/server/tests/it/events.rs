//! Keyspace events. tests/events lists the commands of the scripts in tests/cmd, with the events
//! that each raised on a real Redis. `SAKER_RECORD_EVENTS=1` records these events from that Redis.
//! A Redis that lacks a feature of a script stops the script there, and Saker's further events are
//! not compared.

use std::path::{Path, PathBuf};

use net::{Backend, BackendChoice};
use resp::Protocol;
use server::Server;
use testkit::{Address, Client, Value, peer, script};

use crate::support::{self, connect};

/// Scripts that are not compared: their events vary, or they change the published events.
const LEFT_OUT: &[&str] = &["client", "config", "debug", "migrate", "monitor", "pubsub", "shutdown"];

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests").join(name)
}

/// Returns the paths of the files with recorded events, each with the path of its script.
fn scripts() -> Vec<(PathBuf, PathBuf)> {
    let entries = std::fs::read_dir(folder("cmd")).expect("the folder is part of the sources");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("it can be listed").path()).collect();
    paths.sort();
    let name = |path: &Path| path.file_stem().expect("a file").to_string_lossy().into_owned();
    paths.retain(|path| !LEFT_OUT.contains(&name(path).as_str()));
    paths
        .into_iter()
        .map(|path| (folder("events").join(name(&path) + ".txt"), path))
        .map(|(a, b)| (b, a))
        .collect()
}

/// Runs the scripts on the server at `address`, and compares its events with the recorded ones.
/// `what` names the server in messages.
fn check(address: &Address, what: &str) {
    let mut wrong = String::new();
    for (path, events) in scripts() {
        let Ok(expected) = std::fs::read_to_string(&events) else { continue };
        let raised = script::events_of(&path, &|protocol| Client::speaking(address, protocol))
            .unwrap_or_else(|error| panic!("{what}: {}: {error}", path.display()));
        let raised = raised.unwrap_or_default();
        if raised.starts_with(&expected) {
            continue;
        }
        let lines = |text: &str| -> Vec<String> { text.lines().map(String::from).collect() };
        let (expected, raised) = (lines(&expected), lines(&raised));
        let same = expected.iter().zip(&raised).take_while(|(a, b)| a == b).count();
        let shown =
            |lines: &[String]| lines[same.saturating_sub(1)..].iter().take(3).cloned().collect::<Vec<_>>();
        wrong += &format!(
            "{}:{}\n  - {:?}\n  + {:?}\n",
            events.display(),
            same + 1,
            shown(&expected),
            shown(&raised)
        );
    }
    assert!(wrong.is_empty(), "{what}:\n{wrong}");
}

fn check_with(io_threads: usize) {
    for choice in [BackendChoice::Epoll, BackendChoice::Auto] {
        let builder = Server::builder().port(0).io_threads(io_threads).backend(choice);
        let server = builder.option("enable-debug-command", "yes").start().expect("the server starts");
        if choice == BackendChoice::Auto && server.backend() != Backend::IoUring {
            continue;
        }
        check(&Address::port(server.port()), &format!("{:?}, {io_threads} threads", server.backend()));
    }
}

#[test]
fn commands_raise_the_events_of_redis_on_one_thread() {
    check_with(1);
}

#[test]
fn commands_raise_the_events_of_redis_on_four_threads() {
    check_with(4);
}

#[test]
fn a_real_redis_raises_them_too() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    let redis = peer::start().expect("the peer starts");
    let about = redis.connect().command(&["INFO", "server"]).to_string();
    if !about.contains("redis_version:8.0") {
        eprintln!("the peer is not Redis 8.0, whose events the files hold");
        return;
    }
    if std::env::var_os("SAKER_RECORD_EVENTS").is_some() {
        for (path, events) in scripts() {
            let connect = |protocol: Protocol| Client::speaking(&redis.address(), protocol);
            match script::events_of(&path, &connect)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
            {
                Some(text) if !text.is_empty() => {
                    std::fs::write(events, text).expect("the file can be written")
                }
                _ => drop(std::fs::remove_file(events)),
            }
        }
    }
    check(&redis.address(), "the real server");
}

/// Runs `test` on each backend, with 1, 2 and 4 I/O threads.
fn on_each_count_of_threads(test: impl Fn(&Server)) {
    for choice in [BackendChoice::Epoll, BackendChoice::Auto] {
        for threads in [1, 2, 4] {
            let builder = Server::builder().port(0).io_threads(threads).backend(choice);
            let server = builder.option("enable-debug-command", "yes").start().expect("the server starts");
            if choice == BackendChoice::Epoll || server.backend() == Backend::IoUring {
                test(&server);
            }
        }
    }
}

/// Subscribes a client to the channels that match `pattern`, on a server that publishes the events
/// of `letters`.
fn listener(server: &Server, letters: &str, pattern: &str) -> Client {
    connect(server).command(&["CONFIG", "SET", "notify-keyspace-events", letters]);
    let mut listener = connect(server);
    listener.command(&["PSUBSCRIBE", pattern]);
    listener
}

/// Reads the next message of a subscriber, and returns it as `channel message` without the prefix
/// of the channel.
fn next(listener: &mut Client) -> String {
    let Value::Array(items) = listener.read().expect("a message") else { panic!("a message is an array") };
    let text = |at: usize| String::from_utf8_lossy(items[at].as_bytes().expect("text")).into_owned();
    let channel = text(2);
    let name = channel.split_once("__:").map_or(&*channel, |(_, name)| name);
    format!("{name} {}", text(3))
}

fn expect(listener: &mut Client, messages: &[&str]) {
    for message in messages {
        assert_eq!(next(listener), *message);
    }
}

#[test]
fn events_of_a_connection_come_in_the_order_of_its_commands() {
    const ROUNDS: usize = 300;
    on_each_count_of_threads(|server| {
        let mut listeners: Vec<Client> = (0..3).map(|_| listener(server, "KA", "__keyspace@0__:*")).collect();
        let mut writers: Vec<Client> = (0..4).map(|_| connect(server)).collect();
        for (name, writer) in writers.iter_mut().enumerate() {
            let mut requests = Vec::new();
            for round in 0..ROUNDS {
                let key = format!("{name}:{}", round * 7919 % 1000);
                resp::encode_request(&["SET", &key, "v"], &mut requests);
                resp::encode_request(&["GET", &key], &mut requests);
                resp::encode_request(&["PERSIST", &key], &mut requests);
                resp::encode_request(&["DEL", &key], &mut requests);
            }
            writer.send(&requests).expect("it is sent");
        }
        for writer in &mut writers {
            writer.read_many(4 * ROUNDS).expect("replies");
        }
        for listener in &mut listeners {
            let mut heard = vec![Vec::new(); writers.len()];
            for _ in 0..writers.len() * ROUNDS * 2 {
                let message = next(listener);
                let writer: usize = message[..1].parse().expect("a number");
                heard[writer].push(message);
            }
            for (name, heard) in heard.iter().enumerate() {
                let keys = (0..ROUNDS).map(|round| format!("{name}:{}", round * 7919 % 1000));
                let expected = keys.flat_map(|key| [format!("{key} set"), format!("{key} del")]);
                assert!(heard.iter().cloned().eq(expected), "writer {name}");
            }
        }
    });
}

/// The state of a list, computed from its keyspace events.
#[derive(Default)]
struct History {
    len: usize,
    emptied: bool,
    created: bool,
}

impl History {
    fn takes(&mut self, event: &str) {
        let (emptied, created) = (self.emptied, self.created);
        (self.emptied, self.created) = (false, false);
        assert!(!emptied || event == "del", "{event} of an empty list");
        match event {
            "new" => {
                assert_eq!(self.len, 0, "a list that is there is not new");
                self.created = true;
            }
            "rpush" => {
                assert_eq!(created, self.len == 0, "a list is new with its first element");
                self.len += 1;
            }
            "lpop" => {
                assert!(self.len > 0, "something was popped");
                self.len -= 1;
                self.emptied = self.len == 0;
            }
            "expire" => assert!(self.len > 0, "there is something to expire"),
            "del" | "expired" => {
                assert!(self.len > 0 || emptied, "there was something that can go");
                self.len = 0;
            }
            other => panic!("{other} was not asked for"),
        }
    }
}

#[test]
fn events_of_a_key_agree_with_its_history() {
    const WRITERS: usize = 4;
    const COMMANDS: usize = 400;
    on_each_count_of_threads(|server| {
        let mut listener = listener(server, "KAn", "__keyspace@0__:*");
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                scope.spawn(move || {
                    let mut client = connect(server);
                    let mut requests = Vec::new();
                    for at in 0..COMMANDS {
                        let request: &[&str] = match (at * 31 + writer * 7) % 11 {
                            0..5 => &["RPUSH", "k", "v"],
                            5..9 => &["LPOP", "k"],
                            9 => &["DEL", "k"],
                            _ => &["PEXPIRE", "k", "1"],
                        };
                        resp::encode_request(request, &mut requests);
                    }
                    client.send(&requests).expect("it is sent");
                    client.read_many(COMMANDS).expect("replies");
                });
            }
        });
        let mut control = connect(server);
        control.command(&["PUBLISH", "__keyspace@0__:end", "end"]);
        let mut history = History::default();
        loop {
            match &*next(&mut listener) {
                "end end" => break,
                message => history.takes(message.strip_prefix("k ").expect("an event of the only key")),
            }
        }
    });
}

#[test]
fn what_no_command_does_is_told_too() {
    on_each_count_of_threads(|server| {
        let mut listener = listener(server, "EA", "__keyevent@0__:*");
        let mut client = connect(server);
        // Active expiry of a key, of a field, and of the last field of a hash.
        client.command(&["SET", "k", "v", "PX", "1"]);
        expect(&mut listener, &["set k", "expire k", "expired k"]);
        client.command(&["HSET", "h", "a", "1", "b", "2"]);
        client.command(&["HPEXPIRE", "h", "1", "FIELDS", "1", "a"]);
        expect(&mut listener, &["hset h", "hexpire h", "hexpired h"]);
        client.command(&["HPEXPIRE", "h", "1", "FIELDS", "1", "b"]);
        expect(&mut listener, &["hexpire h", "hexpired h", "del h"]);
        // A blocked client is served after the writer's own event.
        let mut waiting = connect(server);
        waiting.send(b"BLMOVE l m LEFT RIGHT 0\r\n").expect("it is sent");
        while !client.command(&["CLIENT", "LIST"]).to_string().contains("cmd=blmove") {}
        client.command(&["RPUSH", "l", "v"]);
        expect(&mut listener, &["rpush l", "rpush m", "lpop l", "del l"]);
        // The events of a transaction are contiguous.
        for request in [&["MULTI"][..], &["SET", "a", "1"], &["RENAME", "a", "b"], &["EXEC"]] {
            client.command(request);
        }
        expect(&mut listener, &["set a", "rename_from a", "rename_to b"]);
        // Eviction.
        client.command(&["FLUSHALL"]);
        client.command(&["SET", "old", &"v".repeat(10_000)]);
        client.command(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru", "maxmemory", "1"]);
        expect(&mut listener, &["set old", "evicted old"]);
    });
}

#[test]
fn only_wanted_events_are_published() {
    on_each_count_of_threads(|server| {
        let mut listener = listener(server, "Klm", "__key*");
        let mut client = connect(server);
        for request in [&["SET", "a", "1"][..], &["GET", "none"], &["RPUSH", "l", "v"], &["DEL", "l"]] {
            client.command(request);
        }
        client.command(&["CONFIG", "SET", "notify-keyspace-events", "Eg"]);
        client.command(&["DEL", "a"]);
        client.command(&["CONFIG", "SET", "notify-keyspace-events", "lg"]);
        client.command(&["RPUSH", "l", "v"]);
        client.command(&["PUBLISH", "__keys", "end"]);
        expect(&mut listener, &["none keymiss", "l rpush", "del a", "__keys end"]);
    });
}

#[test]
fn a_migrated_key_is_deleted_at_home_and_restored_there() {
    let servers = [BackendChoice::Epoll; 2].map(support::start);
    let [mut home, mut there] = [0, 1].map(|at| listener(&servers[at], "KA", "__keyspace@*"));
    let port = servers[1].port().to_string();
    let mut client = connect(&servers[0]);
    client.command(&["SET", "k", "v"]);
    client.command(&["MIGRATE", "127.0.0.1", &port, "k", "0", "5000"]);
    expect(&mut home, &["k set", "k del"]);
    expect(&mut there, &["k restore"]);
}
