//! MIGRATE between servers: from Saker to Saker, from Saker to a real Redis, and after errors.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

use net::BackendChoice;
use server::Server;
use testkit::process::free_port;
use testkit::{Client, Value, peer};

use crate::support::{connect, connect_on, payload_version, start};

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.into())
}

fn migrate(client: &mut Client, port: u16, rest: &str) -> Value {
    let port = port.to_string();
    let words = ["MIGRATE", "127.0.0.1", &port];
    let words: Vec<&str> = words.into_iter().chain(rest.split(' ')).collect();
    let words: Vec<&str> = words.into_iter().map(|word| if word == "''" { "" } else { word }).collect();
    client.command(&words)
}

fn error_begins(reply: &Value, text: &str) {
    assert!(matches!(reply, Value::Error(line) if line.starts_with(text.as_bytes())), "{reply}");
}

#[test]
fn keys_of_each_type_move_and_keep_their_expiry() {
    let (source, target) = (start(BackendChoice::Auto), start(BackendChoice::Auto));
    let (mut here, mut there) = (connect(&source), connect(&target));
    moves(&mut here, &mut there, target.port());
}

#[test]
fn keys_move_to_a_real_server() {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing to migrate to");
        return;
    }
    let peer = peer::start().expect("the peer starts");
    // Sets and streams are sent in the format of Redis 7.2.
    if payload_version(&mut peer.connect()) < 11 {
        eprintln!("the peer is older than Redis 7.2: it does not take what Saker sends");
        return;
    }
    let source = start(BackendChoice::Auto);
    moves(&mut connect(&source), &mut peer.connect(), peer.port());
    // Also in the other direction.
    let mut redis = peer.connect();
    assert_eq!(redis.command(&["SET", "from", "redis"]), ok());
    assert_eq!(migrate(&mut redis, source.port(), "from 0 5000"), ok());
    assert_eq!(connect(&source).command(&["GET", "from"]), bulk("redis"));
}

fn moves(here: &mut Client, there: &mut Client, port: u16) {
    for command in [
        "SET s value PX 1000000",
        "RPUSH l a b 3",
        "SADD e 1 2 3",
        "HSET h f v",
        "ZADD z 1 a 2.5 b",
        "XADD x 1-1 f v",
    ] {
        here.command(&command.split(' ').collect::<Vec<_>>());
    }
    let digest = |client: &mut Client, key: &str| client.command(&["DEBUG", "DIGEST-VALUE", key]);
    let before: Vec<Value> = ["s", "l", "e", "h", "x"].iter().map(|key| digest(here, key)).collect();
    assert_eq!(migrate(here, port, "missing 0 5000"), Value::Simple(b"NOKEY".to_vec()));
    assert_eq!(migrate(here, port, "s 0 5000 COPY"), ok());
    assert_eq!(here.command(&["EXISTS", "s"]), Value::Integer(1));
    error_begins(&migrate(here, port, "s 0 5000"), "ERR Target instance replied with error: BUSYKEY");
    assert_eq!(here.command(&["EXISTS", "s"]), Value::Integer(1));
    assert_eq!(migrate(here, port, "s 0 5000 REPLACE"), ok());
    assert_eq!(migrate(here, port, "'' 0 5000 KEYS l e missing h x z"), ok());
    assert_eq!(here.command(&["DBSIZE"]), Value::Integer(0));
    let after: Vec<Value> = ["s", "l", "e", "h", "x"].iter().map(|key| digest(there, key)).collect();
    assert_eq!(before, after);
    assert_eq!(there.command(&["ZSCORE", "z", "b"]), bulk("2.5"));
    let Value::Integer(ttl_ms) = there.command(&["PTTL", "s"]) else { panic!("an integer") };
    assert!((900_000..=1_000_000).contains(&ttl_ms), "{ttl_ms}");
    // Another database, over the same connection from the pool.
    here.command(&["SET", "other", "db"]);
    assert_eq!(migrate(here, port, "other 3 5000"), ok());
    assert_eq!(there.command(&["EXISTS", "other"]), Value::Integer(0));
    there.command(&["SELECT", "3"]);
    assert_eq!(there.command(&["GET", "other"]), bulk("db"));
    error_begins(
        &{
            here.command(&["SET", "other", "db"]);
            migrate(here, port, "other 99 5000")
        },
        "ERR Target instance replied with error: ERR ",
    );
    assert_eq!(here.command(&["DEL", "other"]), Value::Integer(1));
    there.command(&["FLUSHALL"]);
}

#[test]
fn a_password_is_sent_and_a_wrong_one_leaves_the_key_here() {
    let source = start(BackendChoice::Auto);
    let target = Server::builder().port(0).io_threads(1).option("requirepass", "secret");
    let target = target.start().expect("the server starts");
    let mut here = connect(&source);
    here.command(&["SET", "k", "v"]);
    error_begins(
        &migrate(&mut here, target.port(), "k 0 5000"),
        "ERR Target instance replied with error: NOAUTH",
    );
    let wrong = migrate(&mut here, target.port(), "k 0 5000 AUTH guess");
    error_begins(&wrong, "ERR Target instance replied with error: WRONGPASS");
    assert_eq!(here.command(&["GET", "k"]), bulk("v"));
    assert_eq!(migrate(&mut here, target.port(), "k 0 5000 AUTH secret"), ok());
    here.command(&["SET", "k", "v2"]);
    assert_eq!(migrate(&mut here, target.port(), "k 0 5000 REPLACE AUTH2 default secret"), ok());
    assert_eq!(here.command(&["EXISTS", "k"]), Value::Integer(0));
}

#[test]
fn a_target_that_does_not_answer_takes_no_key() {
    let source = start(BackendChoice::Auto);
    let mut here = connect(&source);
    here.command(&["SET", "k", "v"]);
    // The kernel accepts connections, but they are never read.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = silent.local_addr().expect("it is bound").port();
    let reply = migrate(&mut here, port, "k 0 50");
    error_begins(&reply, "IOERR error or timeout reading from target instance");
    drop(silent);
    error_begins(&migrate(&mut here, port, "k 0 50"), "IOERR error or timeout");
    assert_eq!(here.command(&["GET", "k"]), bulk("v"));
}

#[test]
fn a_pause_that_begins_while_a_key_is_sent_keeps_the_key() {
    let source = start(BackendChoice::Auto);
    // MIGRATE stops the other connections of its thread.
    let (mut here, mut pausing) = (connect_on(&source, 0), connect_on(&source, 1));
    here.command(&["SET", "k", "v"]);
    let target = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = target.local_addr().expect("it is bound").port();
    let reply = thread::scope(|scope| {
        let migrating = scope.spawn(|| migrate(&mut here, port, "k 0 30000"));
        let (mut connection, _) = target.accept().expect("a connection was made");
        assert!(connection.read(&mut [0; 64]).expect("it sends") > 0);
        assert_eq!(pausing.command(&["CLIENT", "PAUSE", "1000000", "WRITE"]), ok());
        connection.write_all(b"+OK\r\n+OK\r\n").expect("it reads");
        migrating.join().expect("it does not panic")
    });
    error_begins(&reply, "IOERR clients were paused while the keys were sent");
    assert_eq!(pausing.command(&["GET", "k"]), bulk("v"));
}

#[test]
fn connections_come_from_the_address_of_bind_source_addr() {
    let source = start(BackendChoice::Auto);
    let mut here = connect(&source);
    here.command(&["SET", "k", "v"]);
    let target = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let port = target.local_addr().expect("it is bound").port();
    let mut check = |option: &str, expected: &str| {
        assert_eq!(here.command(&["CONFIG", "SET", "bind-source-addr", option]), ok());
        // The target never replies; the connection itself is enough.
        error_begins(&migrate(&mut here, port, "k 0 50"), "IOERR error or timeout reading");
        let (_, from) = target.accept().expect("a connection was made");
        assert_eq!(from.ip().to_string(), expected, "{option}");
    };
    check("127.0.0.2", "127.0.0.2");
    check("", "127.0.0.1");
    // For an address of another machine or another family, the system chooses.
    check("192.0.2.1", "127.0.0.1");
    check("::1", "127.0.0.1");
}

#[test]
fn a_kept_connection_to_a_server_that_restarted_is_opened_again() {
    let source = start(BackendChoice::Auto);
    let port = free_port().expect("a free port");
    let start_target = || Server::builder().port(port).io_threads(1).start().expect("the port is free");
    let target = start_target();
    let mut here = connect(&source);
    here.command(&["MSET", "a", "1", "b", "2"]);
    assert_eq!(migrate(&mut here, port, "a 0 5000"), ok());
    target.stop();
    let target = start_target();
    assert_eq!(migrate(&mut here, port, "b 0 5000"), ok());
    assert_eq!(connect(&target).command(&["GET", "b"]), bulk("2"));
}

/// Migrates a list between two servers while a client appends to it. No write may be lost: at the
/// end the servers together hold as many elements as were confirmed.
#[test]
fn no_write_is_lost_while_its_key_moves() {
    let (source, target) = (start(BackendChoice::Auto), start(BackendChoice::Auto));
    let done = AtomicBool::new(false);
    let writer = || {
        let mut client = connect(&source);
        let mut confirmed = 0;
        while !done.load(Relaxed) {
            assert!(matches!(client.command(&["RPUSH", "k", "x"]), Value::Integer(_)));
            confirmed += 1;
        }
        confirmed
    };
    let (confirmed, moved) = thread::scope(|scope| {
        let writers = [scope.spawn(writer), scope.spawn(writer)];
        let (mut here, mut there) = (connect(&source), connect(&target));
        let mut moved = 0;
        for _ in 0..200 {
            let reply = migrate(&mut here, target.port(), "k 0 5000 REPLACE");
            assert!(!reply.is_error(), "{reply}");
            if let Value::Integer(len) = there.command(&["LLEN", "k"]) {
                moved += len;
            }
            there.command(&["DEL", "k"]);
        }
        done.store(true, Relaxed);
        (writers.map(|writer| writer.join().expect("it does not panic")).iter().sum::<i64>(), moved)
    });
    let Value::Integer(left) = connect(&source).command(&["LLEN", "k"]) else { panic!("an integer") };
    assert_eq!(moved + left, confirmed);
}
