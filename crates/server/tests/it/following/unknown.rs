//! Commands and values of the primary that this server lacks.

use testkit::Value;
use testkit::replication::{happens, run};

use super::made_up::MadeUpPrimary;
use super::{Kind, Node};

/// A key `k` with the value 1, as an RDB file has it.
const KEY: &[u8] = b"\0\x01k\x011";

#[test]
fn a_command_that_is_missing_here_stops_the_link_with_its_name_or_is_skipped() {
    let primary = MadeUpPrimary::start(KEY);
    let replica = Node::start(Kind::Own, &["--repl-unsupported-commands", "refuse"]);
    replica.follow(primary.port());
    replica.wait_until_up();
    primary.send(&["MADEUP v 1 e", "SET after 1"]);
    let is_told = happens(|| replica.link("master_link_last_error").contains("MADEUP"));
    assert!(is_told, "{}", replica.state());
    replica.wait_until_down();
    let mut own = replica.connect();
    assert_eq!(own.command(&["GET", "after"]), Value::Null);
    // The replica skips the command, and applies the stream after it.
    run(&mut own, &["CONFIG", "SET", "repl-unsupported-commands", "skip"]);
    wait_for(&replica, &["GET", "after"], "1");
    assert_eq!(primary.full_syncs(), 1, "{}", replica.state());
    assert_eq!(own.command(&["EXISTS", "v"]), Value::Integer(0));
    assert_eq!(replica.failed_commands(), "1");
    primary.send(&["MULTI", "SET t 1", "MADEUP v 1 f", "SET u 1", "EXEC", "SET last 1"]);
    wait_for(&replica, &["GET", "last"], "1");
    let one = || Value::Bulk(b"1".to_vec());
    assert_eq!(own.command(&["MGET", "t", "u"]), Value::Array(vec![one(), one()]));
    assert_eq!(replica.failed_commands(), "2");
    assert_eq!(replica.link("master_link_last_error"), "");
    assert_eq!(primary.full_syncs(), 1, "{}", replica.state());
}

#[test]
fn a_value_that_is_missing_here_stops_the_snapshot_or_is_left_out() {
    // The module type "saker-mod", version 1: a number, a string, the end.
    let module = b"\x07\x01v\x81\xb1\xa9\x1e\xaf\xe9\xa8\x74\x01";
    let items = b"\x02\x07\x05\x01x\0";
    let primary = MadeUpPrimary::start(&[&module[..], items, KEY].concat());
    let replica = Node::start(Kind::Own, &["--rdb-unsupported-values", "refuse"]);
    replica.follow(primary.port());
    let is_told = happens(|| replica.link("master_link_last_error").contains("saker-mod"));
    assert!(is_told, "{}", replica.state());
    assert!(!replica.is_up());
    let mut own = replica.connect();
    run(&mut own, &["CONFIG", "SET", "rdb-unsupported-values", "skip"]);
    replica.wait_until_up();
    assert_eq!(own.command(&["GET", "k"]), Value::Bulk(b"1".to_vec()));
    assert_eq!(own.command(&["EXISTS", "v"]), Value::Integer(0));
}

/// Waits until a command on the replica is answered with this string.
fn wait_for(replica: &Node, words: &[&str], expected: &str) {
    let mut own = replica.connect();
    let is_so = happens(|| own.command(words).as_bytes() == Some(expected.as_bytes()));
    assert!(is_so, "{words:?}: {}", replica.state());
}
