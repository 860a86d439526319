//! DEBUG: its digests compared with those of a real Redis, and its effects on other threads.

use std::time::{Duration, Instant};

use net::BackendChoice;
use server::Server;
use testkit::{Client, Value, peer};

use crate::support::{connect, start};

/// Requests that create every type in each encoding, with and without expiry, in two databases.
const DATA: &[&[&str]] = &[
    &["SET", "text", "value"],
    &["SET", "number", "-123"],
    &["SET", "big number", "12345678901234567890"],
    &["SET", "long", "a string of more than forty-four bytes, which is stored apart from its key"],
    &["SET", "volatile", "x", "PX", "10000000"],
    &["RPUSH", "list", "a", "1", "-5", "c"],
    &["SADD", "numbers", "1", "2", "300000"],
    &["SADD", "members", "a", "b", "3"],
    &["ZADD", "zset", "1", "one", "2.5", "two", "-inf", "low", "inf", "high", "0.1", "7", "1e21", "big"],
    &["ZADD", "scores", "1e17", "a", "12345678901234567", "b", "1e-7", "c", "3.3333333333333335", "d"],
    &["HSET", "hash", "f", "v", "g", "1", "3", "x"],
    &["XADD", "stream", "1-1", "a", "1", "b", "x"],
    &["XADD", "stream", "2-0", "other", "fields", "than", "above"],
    &["XADD", "stream", "3-0", "gone", "1"],
    &["XDEL", "stream", "3-0"],
    &["EXPIRE", "hash", "10000"],
    &["SELECT", "7"],
    &["SET", "other", "database"],
    &["SELECT", "0"],
];
const KEYS: &[&str] = &[
    "text",
    "number",
    "big number",
    "long",
    "volatile",
    "list",
    "numbers",
    "members",
    "zset",
    "scores",
    "hash",
    "stream",
    "no such key",
];
/// Options with which collections have their large encoding from the first element on.
const LARGE: &[&[&str]] = &[
    &["FLUSHALL"],
    &["CONFIG", "SET", "hash-max-listpack-entries", "0"],
    &["CONFIG", "SET", "set-max-listpack-entries", "0"],
    &["CONFIG", "SET", "set-max-intset-entries", "0"],
    &["CONFIG", "SET", "zset-max-listpack-entries", "0"],
    &["CONFIG", "SET", "list-max-listpack-size", "1"],
];

/// Returns the major version in the server's `redis_version`.
fn major_version(client: &mut Client) -> u32 {
    let Value::Bulk(info) = client.command(&["INFO", "server"]) else { panic!("INFO is a bulk string") };
    let info = String::from_utf8(info).expect("INFO is text");
    let version = info.lines().find_map(|line| line.strip_prefix("redis_version:"));
    let major = version.and_then(|version| version.split('.').next()?.parse().ok());
    major.expect("INFO has redis_version")
}

/// Returns false if `row` sets an option that the server does not have, as Redis 7.0 does not have
/// one of them.
fn knows_option_of(client: &mut Client, row: &[&str]) -> bool {
    match row {
        ["CONFIG", "SET", option, _] => {
            client.command(&["CONFIG", "GET", option]) != Value::Array(Vec::new())
        }
        _ => true,
    }
}

fn do_all(client: &mut Client, commands: &[&[&str]]) {
    for command in commands {
        let reply = client.command(command);
        assert!(!reply.is_error(), "{command:?} answered {reply}");
    }
}

#[test]
fn data_has_the_digest_that_redis_gives_it() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to compare with");
        return;
    }
    let peer = peer::start().expect("the peer starts");
    let server = start(BackendChoice::Auto);
    let mut clients = [peer.connect(), connect(&server)];
    // Before 8.0, Redis computed digests of scores with 17 digits, so sorted sets cannot be
    // compared.
    let shortest_digits = major_version(&mut clients[0]) >= 8;
    let large: Vec<_> = LARGE.iter().copied().filter(|row| knows_option_of(&mut clients[0], row)).collect();
    let data: Vec<_> = DATA.iter().copied().filter(|row| shortest_digits || row[0] != "ZADD").collect();
    for prepare in [&[&["FLUSHALL"][..]][..], &large] {
        clients.iter_mut().for_each(|client| {
            do_all(client, prepare);
            do_all(client, &data);
        });
        for key in KEYS {
            let [redis, saker] =
                clients.each_mut().map(|client| client.command(&["DEBUG", "DIGEST-VALUE", key]));
            assert_eq!(redis, saker, "the digest of {key}");
        }
        let [redis, saker] = clients.each_mut().map(|client| client.command(&["DEBUG", "DIGEST"]));
        assert_eq!(redis, saker, "the digest of everything");
    }
}

#[test]
fn populated_keys_are_those_of_redis_and_leave_what_is_there() {
    let server = start(BackendChoice::Auto);
    let mut client = connect(&server);
    do_all(&mut client, &[&["SET", "p:1", "mine"], &["DEBUG", "POPULATE", "3000", "p", "10"]]);
    assert_eq!(client.command(&["DBSIZE"]), Value::Integer(3000));
    assert_eq!(client.command(&["GET", "p:1"]), Value::Bulk(b"mine".to_vec()));
    assert_eq!(client.command(&["GET", "p:2999"]), Value::Bulk(b"value:2999".to_vec()));
    assert_eq!(client.command(&["GET", "p:7"]), Value::Bulk(b"value:7\0\0\0".to_vec()));
}

#[test]
fn who_sleeps_does_not_hold_up_those_who_want_to_be_alone() {
    let server = start(BackendChoice::Auto);
    // There are two threads, so the two connections are on different ones.
    let mut clients = [connect(&server), connect(&server)];
    clients.iter_mut().for_each(|client| do_all(client, &[&["PING"]]));
    let [sleeper, other] = &mut clients;
    sleeper.send(b"DEBUG SLEEP 3\r\n").expect("it is sent");
    let begun = Instant::now();
    do_all(other, &[&["FLUSHALL"]]);
    assert!(begun.elapsed() < Duration::from_secs(2), "FLUSHALL waited for a sleeper");
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(2), "the end waited for a sleeper");
}

#[test]
fn without_the_option_nobody_may_debug() {
    let refused = |server: &Server| {
        let reply = connect(server).command(&["DEBUG", "SLEEP", "0"]);
        matches!(&reply, Value::Error(line) if line.starts_with(b"ERR DEBUG command not allowed. If the"))
    };
    let builder = || Server::builder().port(0).io_threads(1);
    assert!(refused(&builder().start().expect("it starts")));
    let local = builder().option("enable-debug-command", "local").start().expect("it starts");
    assert!(!refused(&local), "this client is on the same machine");
}
