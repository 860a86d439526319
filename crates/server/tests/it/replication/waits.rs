//! WAIT and WAITAOF on a primary with real servers as replicas.

use rustix::process::Signal;
use testkit::replication::{Replica, field, happens, run};
use testkit::{Client, Value, notation};

use super::{Primary, is_at_least, is_without_peer, replica_of};
use crate::support::signal;

fn wait(client: &mut Client, replicas: &str, timeout_ms: &str) -> Value {
    client.command(&["WAIT", replicas, timeout_ms])
}

/// Waits until the primary counts the replica among those that acknowledge.
fn wait_until_acknowledging(primary: &Primary, replica: &Replica) {
    let mut client = primary.connect();
    replica.catch_up(&mut client);
    run(&mut client, &["SET", "first", "1"]);
    assert!(happens(|| wait(&mut client, "1", "1000") == Value::Integer(1)), "{}", replica.log());
}

#[test]
fn wait_means_that_the_write_is_on_the_replica() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let replica = replica_of(&primary, &[]);
    wait_until_acknowledging(&primary, &replica);
    let (mut client, mut own) = (primary.connect(), replica.connect());
    for number in 0..500 {
        let value = number.to_string();
        run(&mut client, &["SET", "k", &value]);
        assert_eq!(wait(&mut client, "1", "0"), Value::Integer(1));
        assert_eq!(own.command(&["GET", "k"]), Value::Bulk(value.into_bytes()));
    }
    // In one piece with its write, and in a transaction, where it does not block.
    client.send(b"SET k pipelined\r\nWAIT 1 0\r\n").expect("it reads");
    assert_eq!(client.read_many(2).expect("answered")[1], Value::Integer(1));
    assert_eq!(own.command(&["GET", "k"]), Value::Bulk(b"pipelined".to_vec()));
    client.send(b"MULTI\r\nSET k 1\r\nWAIT 1 0\r\nEXEC\r\n").expect("it reads");
    let replies = client.read_many(4).expect("answered");
    assert!(!replies[3].is_error(), "{replies:?}");
    assert_eq!(wait(&mut client, "1", "0"), Value::Integer(1));
}

#[test]
fn many_clients_wait_for_their_own_writes() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let replica = replica_of(&primary, &[]);
    wait_until_acknowledging(&primary, &replica);
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (primary, replica) = (&primary, &replica);
            scope.spawn(move || {
                let (mut client, mut own) = (primary.connect(), replica.connect());
                let key = format!("k{number}");
                for value in 0..100 {
                    let value = value.to_string();
                    run(&mut client, &["SET", &key, &value]);
                    assert_eq!(wait(&mut client, "1", "0"), Value::Integer(1));
                    assert_eq!(own.command(&["GET", &key]), Value::Bulk(value.into_bytes()));
                }
            });
        }
    });
}

#[test]
fn wait_counts_what_is_acknowledged_when_its_time_is_over() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let replica = replica_of(&primary, &[]);
    wait_until_acknowledging(&primary, &replica);
    let mut client = primary.connect();
    run(&mut client, &["SET", "k", "1"]);
    assert_eq!(wait(&mut client, "2", "100"), Value::Integer(1), "one replica of two");
    signal(replica.process(), Signal::STOP);
    run(&mut client, &["SET", "k", "2"]);
    assert_eq!(wait(&mut client, "1", "100"), Value::Integer(0), "the replica is stopped");
    // Another client has written nothing that it could wait for.
    let mut idle = primary.connect();
    assert_eq!(wait(&mut idle, "1", "0"), Value::Integer(1));
    // In Redis before 7.2, a client's own offset moves with each of its commands.
    if is_at_least(primary.version(), (7, 2)) {
        run(&mut idle, &["GET", "k"]);
        assert_eq!(wait(&mut idle, "1", "0"), Value::Integer(1), "reads are no writes");
    }
    // A client that waits is served when the replica goes on.
    client.send(b"WAIT 1 0\r\n").expect("it reads");
    assert!(happens(|| field(&mut idle, "clients", "blocked_clients") == "1"));
    signal(replica.process(), Signal::CONT);
    assert_eq!(client.read().expect("answered"), Value::Integer(1));
    assert_eq!(wait(&mut client, "0", "1"), Value::Integer(1));
}

#[test]
fn wait_ends_when_the_replica_is_gone_and_its_time_is_over() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let replica = replica_of(&primary, &[]);
    wait_until_acknowledging(&primary, &replica);
    let mut client = primary.connect();
    signal(replica.process(), Signal::STOP);
    run(&mut client, &["SET", "k", "2"]);
    client.send(b"WAIT 1 0\r\n").expect("it reads");
    let mut other = primary.connect();
    assert!(happens(|| field(&mut other, "clients", "blocked_clients") == "1"));
    drop(replica);
    let next = replica_of(&primary, &[]);
    // A full sync has the write.
    assert_eq!(client.read().expect("answered"), Value::Integer(1), "{}", next.log());
    drop(next);
    assert!(happens(|| super::replicas(&mut other) == 0));
    run(&mut client, &["SET", "k", "3"]);
    assert_eq!(wait(&mut client, "1", "50"), Value::Integer(0));
}

#[test]
fn waitaof_counts_replicas_that_have_synced() {
    if is_without_peer() {
        return;
    }
    let folder = tempfile::tempdir().expect("a scratch folder");
    let options = ["--appendonly", "yes", "--appendfsync", "everysec"];
    let primary = Primary::start_in(folder.path(), testkit::process::free_port().expect("one"), &options);
    let replica = replica_of(&primary, &options);
    let mut client = primary.connect();
    let is_known = !client.command(&["WAITAOF", "0", "0", "1"]).is_error();
    if !is_known || !is_at_least(replica.version(), (7, 2)) {
        return eprintln!("the peer has no WAITAOF");
    }
    wait_until_acknowledging(&primary, &replica);
    for number in 0..3 {
        run(&mut client, &["SET", "k", &number.to_string()]);
        let reply = notation::one_line(&client.command(&["WAITAOF", "1", "1", "0"]));
        assert_eq!(reply, "*2 :1 :1", "{}", replica.log());
    }
    let without = replica_of(&primary, &[]);
    without.catch_up(&mut primary.connect());
    run(&mut client, &["SET", "k", "last"]);
    assert_eq!(notation::one_line(&client.command(&["WAITAOF", "1", "2", "2500"])), "*2 :1 :1");
}
