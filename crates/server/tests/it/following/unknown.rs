//! Commands and values of the primary that this server lacks.

use testkit::Value;
use testkit::replication::load::send_lines;
use testkit::replication::{happens, run};

use super::{Kind, Node, is_without_peer};

#[test]
fn a_command_that_is_missing_here_stops_the_link_with_its_name_or_is_skipped() {
    if is_without_peer() {
        return;
    }
    let primary = Node::start(Kind::Peer, &[]);
    let mut client = primary.connect();
    let replica = Node::following(&primary, &["--repl-unsupported-commands", "refuse"]);
    if client.command(&["VADD", "v", "VALUES", "2", "1", "1", "e"]).is_error() {
        eprintln!("the peer has no command that is missing here");
        return;
    }
    send_lines(&mut client, ["SET after 1"]);
    let is_told = happens(|| replica.link("master_link_last_error").contains("VADD"));
    assert!(is_told, "{}", replica.state());
    replica.wait_until_down();
    let mut own = replica.connect();
    assert_eq!(own.command(&["GET", "after"]), Value::Null);
    // The stream goes on behind the command.
    let before = primary.syncs();
    run(&mut own, &["CONFIG", "SET", "repl-unsupported-commands", "skip"]);
    replica.catch_up(&primary);
    assert_eq!(primary.syncs_since(before).0, 0, "{}", replica.state());
    assert_eq!(own.command(&["GET", "after"]), Value::Bulk(b"1".to_vec()));
    assert_eq!(own.command(&["EXISTS", "v"]), Value::Integer(0));
    assert_eq!(replica.failed_commands(), "1");
    send_lines(&mut client, ["MULTI", "SET t 1", "VADD v VALUES 2 1 2 f", "SET u 1", "EXEC", "SET last 1"]);
    replica.catch_up(&primary);
    assert_eq!(
        own.command(&["MGET", "t", "u", "last"]).to_string(),
        client.command(&["MGET", "t", "u", "last"]).to_string()
    );
    assert_eq!(replica.failed_commands(), "2");
    assert_eq!(replica.link("master_link_last_error"), "");
}

#[test]
fn a_value_that_is_missing_here_stops_the_snapshot_or_is_left_out() {
    if is_without_peer() {
        return;
    }
    let primary = Node::start(Kind::Peer, &[]);
    let mut client = primary.connect();
    if client.command(&["VADD", "v", "VALUES", "2", "1", "1", "e"]).is_error() {
        eprintln!("the peer has no value that is missing here");
        return;
    }
    send_lines(&mut client, ["SET k 1"]);
    let replica = Node::start(Kind::Own, &["--rdb-unsupported-values", "refuse"]);
    replica.follow(primary.port());
    let is_told = happens(|| replica.link("master_link_last_error").contains("vector"));
    assert!(is_told, "{}", replica.state());
    assert!(!replica.is_up());
    let mut own = replica.connect();
    run(&mut own, &["CONFIG", "SET", "rdb-unsupported-values", "skip"]);
    replica.catch_up(&primary);
    assert_eq!(own.command(&["GET", "k"]), Value::Bulk(b"1".to_vec()));
    assert_eq!(own.command(&["EXISTS", "v"]), Value::Integer(0));
}
