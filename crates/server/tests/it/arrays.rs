//! Arrays in files, on replicas, under other names and in scripts.

use std::path::Path;
use std::time::{Duration, Instant};

use testkit::{Client, ServerProcess, Value, saker};

use crate::support::BINARY;

/// Maximum time for a server to end a save or to follow its primary.
const WITHIN: Duration = Duration::from_secs(60);

fn start_in(folder: &Path, options: &[&str]) -> ServerProcess {
    let dir = folder.to_str().expect("a name of text");
    let common = ["--dir", dir, "--enable-debug-command", "yes", "--save", ""];
    let options: Vec<&str> = common.iter().chain(options).copied().collect();
    let server = saker::start_binary(BINARY, &options).expect("starts");
    server.wait_for_log("Ready to accept connections tcp");
    server
}

fn ask(client: &mut Client, line: &str) -> String {
    client.command(&line.split(' ').collect::<Vec<_>>()).to_string()
}

/// Waits until the reply to `line` contains `wanted`.
fn await_reply(client: &mut Client, line: &str, wanted: &str) {
    let since = Instant::now();
    loop {
        let reply = match client.command(&line.split(' ').collect::<Vec<_>>()) {
            Value::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
            reply => reply.to_string(),
        };
        if reply.contains(wanted) {
            return;
        }
        assert!(since.elapsed() < WITHIN, "{line} has no {wanted} in {reply}");
        std::thread::yield_now();
    }
}

/// Creates arrays of each form: dense, scattered, a ring, and one with a far cursor.
fn fill(client: &mut Client) {
    let values: Vec<String> = (0..9000).map(|number: i64| (number * 7 % 1000).to_string()).collect();
    let words = ["ARSET", "dense", "5"].into_iter().chain(values.iter().map(String::as_str));
    assert_eq!(client.command(&words.collect::<Vec<_>>()), Value::Integer(9000));
    for bit in 0..63 {
        let index = (1_u64 << bit).to_string();
        client.command(&["ARMSET", "scattered", &index, "a text that is longer than seven bytes"]);
    }
    assert_eq!(ask(client, "ARRING ring 3 a b c d e"), "(integer) 1");
    assert_eq!(ask(client, "ARINSERT log 1.5 2 x"), "(integer) 2");
    assert_eq!(ask(client, "ARSEEK log 18446744073709551614"), "(integer) 1");
    assert_eq!(ask(client, "PEXPIRE log 100000000"), "(integer) 1");
}

fn digest(client: &mut Client) -> String {
    ask(client, "DEBUG DIGEST")
}

#[test]
fn arrays_are_there_after_a_restart_from_a_snapshot_and_from_commands() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    fill(&mut client);
    let saved = digest(&mut client);
    assert_eq!(ask(&mut client, "SAVE"), "OK");
    drop(server);
    let server = start_in(folder.path(), &["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]);
    let mut client = server.connect();
    assert_eq!(digest(&mut client), saved);
    // The base is written as commands; further commands follow it.
    await_reply(&mut client, "INFO persistence", "aof_rewrite_in_progress:0");
    assert!(!ask(&mut client, "BGREWRITEAOF").contains("ERR"));
    await_reply(&mut client, "INFO persistence", "aof_rewrite_in_progress:0");
    assert_eq!(digest(&mut client), saved);
    for line in
        ["ARRING ring 5 f g", "ARDELRANGE dense 100 200 8000 9000", "ARINSERT log y", "ARDEL scattered 4"]
    {
        assert!(!ask(&mut client, line).contains("ERR"), "{line}");
    }
    let changed = digest(&mut client);
    drop(server);
    let server = start_in(folder.path(), &["--appendonly", "yes", "--aof-use-rdb-preamble", "no"]);
    assert_eq!(digest(&mut server.connect()), changed);
}

#[test]
fn a_snapshot_has_arrays_as_of_its_start_while_they_change() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let server = start_in(folder.path(), &["--rdb-key-save-delay", "200000"]);
    let mut client = server.connect();
    fill(&mut client);
    let saved = digest(&mut client);
    assert_eq!(ask(&mut client, "BGSAVE"), "Background saving started");
    for line in ["ARSET dense 4000 changed", "ARDELRANGE scattered 0 1000000", "ARRING ring 2 z", "DEL log"] {
        assert!(!ask(&mut client, line).contains("ERR"), "{line}");
    }
    assert_eq!(ask(&mut client, "CONFIG SET rdb-key-save-delay 0"), "OK");
    await_reply(&mut client, "INFO persistence", "rdb_bgsave_in_progress:0");
    drop(server);
    assert_eq!(digest(&mut start_in(folder.path(), &[]).connect()), saved);
}

#[test]
fn a_replica_gets_arrays_and_their_changes() {
    let folders = [(); 2].map(|()| tempfile::tempdir().expect("a scratch folder"));
    let primary = start_in(folders[0].path(), &["--repl-diskless-sync-delay", "0"]);
    let mut client = primary.connect();
    fill(&mut client);
    // Another type that Valkey lacks, whose version a Saker announces as a replica.
    assert_eq!(ask(&mut client, "VADD points VALUES 2 1 0 a"), "(integer) 1");
    let port = primary.port().to_string();
    let replica = start_in(folders[1].path(), &["--replicaof", &format!("127.0.0.1 {port}")]);
    let mut follower = replica.connect();
    await_reply(&mut follower, "INFO replication", "master_link_status:up");
    assert_eq!(digest(&mut follower), digest(&mut client));
    for line in [
        "ARRING ring 5 f g h i",
        "ARDELRANGE dense 100 200",
        "ARSEEK log 7",
        "ARINSERT log y",
        "ARMSET new 9 x",
    ] {
        assert!(!ask(&mut client, line).contains("ERR"), "{line}");
    }
    assert_eq!(ask(&mut client, "WAIT 1 60000"), "(integer) 1");
    assert_eq!(digest(&mut follower), digest(&mut client));
}

#[test]
fn copies_payloads_and_other_commands_know_arrays() {
    let folder = tempfile::tempdir().expect("a scratch folder");
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    fill(&mut client);
    for name in ["dense", "scattered", "ring", "log"] {
        let value = ask(&mut client, &format!("DEBUG DIGEST-VALUE {name}"));
        assert_eq!(
            ask(&mut client, &format!("PERSIST {name}")),
            if name == "log" { "(integer) 1" } else { "(integer) 0" }
        );
        let value = if name == "log" { ask(&mut client, "DEBUG DIGEST-VALUE log") } else { value };
        assert_eq!(ask(&mut client, &format!("COPY {name} copy")), "(integer) 1");
        let Value::Bulk(payload) = client.command(&["DUMP", name]) else { panic!("no payload") };
        assert!(!client.command(&[&b"RESTORE"[..], b"restored", b"0", &payload]).is_error());
        for other in ["copy", "restored"] {
            assert_eq!(ask(&mut client, &format!("DEBUG DIGEST-VALUE {other}")), value, "{name} {other}");
        }
        // A change of the original does not change its copy.
        assert!(!ask(&mut client, &format!("ARSET {name} 6 changed")).contains("ERR"));
        assert_eq!(ask(&mut client, "DEBUG DIGEST-VALUE copy"), value);
        assert_eq!(ask(&mut client, "UNLINK copy restored"), "(integer) 2");
    }
    assert_eq!(ask(&mut client, "TYPE dense"), "array");
    assert!(ask(&mut client, "SCAN 0 COUNT 1000 TYPE array").contains("scattered"));
    let Value::Integer(usage) = client.command(&["MEMORY", "USAGE", "dense"]) else { panic!("no number") };
    assert!((9000 * 8..9000 * 16).contains(&usage), "{usage}");
    await_reply(&mut client, "INFO keysizes", "db0_distrib_arrays_items:");
    let script =
        "return {redis.call('ARLEN', 'dense'), redis.call('ARGET', 'dense', 6), redis.call('ARLEN', 'log')}";
    let reply = client.command(&["EVAL", script, "2", "dense", "log"]).to_string();
    assert!(reply.contains("(integer) 9005") && reply.contains("changed"), "{reply}");
    assert_eq!(ask(&mut client, "ACL DRYRUN default ARGET dense 0"), "OK");
    assert!(ask(&mut client, "ACL CAT array").contains("arring"));
    assert_eq!(ask(&mut client, "FLUSHALL"), "OK");
}
