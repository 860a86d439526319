//! Writes that need replicas: `min-replicas-to-write`.

use testkit::replication::{field, happens, run};
use testkit::{Client, Value, notation};

use super::{Primary, is_without_peer, replica_of};

/// The error of a write while too few replicas are good.
const REFUSED: &str = "-NOREPLICAS Not enough good replicas to write.";

fn ask(client: &mut Client, words: &[&str]) -> String {
    notation::one_line(&client.command(words))
}

#[test]
fn writes_need_as_many_replicas_as_the_option_says() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    run(&mut client, &["SET", "k", "1"]);
    run(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert_eq!(ask(&mut client, &["SET", "k", "2"]), REFUSED);
    assert_eq!(ask(&mut client, &["GET", "k"]), "\"1\"");
    assert_eq!(ask(&mut client, &["EVAL", "return redis.call('GET', KEYS[1])", "1", "k"]), "\"1\"");
    let script = ask(&mut client, &["EVAL", "return redis.call('SET', KEYS[1], '3')", "1", "k"]);
    assert!(script.contains("NOREPLICAS"), "{script}");
    run(&mut client, &["MULTI"]);
    let queued = ask(&mut client, &["SET", "k", "4"]);
    assert_eq!(queued, REFUSED);
    let ended = ask(&mut client, &["EXEC"]);
    assert!(ended.contains("EXECABORT"), "{ended}");
    assert_eq!(ask(&mut client, &["GET", "k"]), "\"1\"");

    let replica = replica_of(&primary, &[]);
    assert!(happens(|| !client.command(&["SET", "k", "5"]).is_error()), "{}", replica.log());
    replica.wait_for_data_of(&mut client, "with one replica");
    assert_eq!(field(&mut client, "replication", "min_slaves_good_slaves"), "1");
    run(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "2"]);
    assert_eq!(ask(&mut client, &["SET", "k", "6"]), REFUSED);
    let other = replica_of(&primary, &[]);
    assert!(happens(|| !client.command(&["SET", "k", "7"]).is_error()), "{}", other.log());
    drop(other);
    assert!(happens(|| ask(&mut client, &["SET", "k", "8"]) == REFUSED));
    run(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    run(&mut client, &["SET", "k", "9"]);
    replica.wait_for_data_of(&mut client, "at the end");
    assert_eq!(replica.connect().command(&["GET", "k"]), Value::Bulk(b"9".to_vec()));
}

#[test]
fn a_replica_that_lags_is_not_counted() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    let replica = replica_of(&primary, &[]);
    run(&mut client, &["CONFIG", "SET", "min-replicas-max-lag", "1"]);
    run(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "1"]);
    assert!(happens(|| !client.command(&["SET", "k", "1"]).is_error()), "{}", replica.log());
    crate::support::signal(replica.process(), rustix::process::Signal::STOP);
    assert!(happens(|| ask(&mut client, &["SET", "k", "2"]) == REFUSED), "a stopped replica counts");
    crate::support::signal(replica.process(), rustix::process::Signal::CONT);
    assert!(happens(|| !client.command(&["SET", "k", "3"]).is_error()), "{}", replica.log());
    run(&mut client, &["CONFIG", "SET", "min-replicas-to-write", "0"]);
    replica.wait_for_data_of(&mut client, "after a lag");
}
