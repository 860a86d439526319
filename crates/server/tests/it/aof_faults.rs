//! Faults of the append-only file's disk: a full disk that has room again, and a file that cannot
//! be written any more. Also zeros after a power failure, and a folder locked by another server.
//!
//! A limit on the file size (RLIMIT_FSIZE), set and removed while the server runs, simulates a
//! full disk.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, prlimit};
use testkit::{Client, ServerProcess, Value, saker};

use crate::append_only::{
    ON, WITHIN, await_field, await_rewrite, files_of, folder, kill, lay_out, ok, persistence, refusal,
    requests, start_in,
};
use crate::support::{BINARY, info, pid};

const INCR: &str = "appendonly.aof.1.incr.aof";

/// Limits the size of the files that the server writes to `len_bytes`; `None` removes the limit.
pub fn limit_files(server: &ServerProcess, len_bytes: Option<u64>) {
    prlimit(Some(pid(server.pid())), Resource::Fsize, Rlimit { current: len_bytes, maximum: None })
        .expect("the limit is set");
}

fn send(client: &mut Client, words: &[&str]) {
    client.send(&requests(&[words])).expect("sent");
}

/// Sets keys until the append-only file cannot grow. Returns the number of acknowledged writes; the
/// reply to one further write may be outstanding.
fn fill_up(server: &ServerProcess, writer: &mut Client) -> usize {
    let mut other = server.connect();
    writer.set_read_timeout(Duration::from_millis(20));
    let mut acknowledged = 0;
    loop {
        send(writer, &["SET", &format!("k{acknowledged}"), &"x".repeat(3000)]);
        let since = Instant::now();
        loop {
            if let Ok(reply) = writer.read() {
                assert_eq!(reply.to_string(), "OK");
                acknowledged += 1;
                break;
            }
            if persistence(&mut other, "aof_last_write_status") == "err" {
                writer.set_read_timeout(WITHIN);
                return acknowledged;
            }
            assert!(since.elapsed() < WITHIN, "a reply or trouble");
        }
    }
}

fn check_refused(client: &mut Client) {
    let refused = "(error) MISCONF Errors writing to the AOF file: File too large";
    for words in [&["SET", "more", "1"][..], &["PING"]] {
        assert_eq!(client.command(words).to_string(), refused);
    }
}

#[test]
fn a_full_disk_refuses_writes_and_loses_nothing() {
    for policy in ["always", "everysec", "no"] {
        let folder = folder();
        let options = [ON, &["--appendfsync", policy, "--auto-aof-rewrite-percentage", "0"]].concat();
        let server = start_in(folder.path(), &options);
        let (mut writer, mut reader) = (server.connect(), server.connect());
        ok(&mut writer, &["SET", "early", "1"]);
        limit_files(&server, Some(100_000));
        let acknowledged = fill_up(&server, &mut writer);
        assert!((20..34).contains(&acknowledged), "{acknowledged}");
        check_refused(&mut reader);
        assert_eq!(reader.command(&["GET", "early"]).to_string(), "\"1\"", "reads go on");
        assert!(server.log().contains("Error writing to the AOF file: File too large"), "{}", server.log());
        limit_files(&server, None);
        // This reply was delayed until the disk had room.
        assert_eq!(writer.read().expect("a reply").to_string(), "OK");
        await_field(&mut reader, "aof_last_write_status", "ok");
        ok(&mut reader, &["SET", "late", "1"]);
        server.wait_for_log("AOF write error looks solved. The server can write again.");
        kill(server);
        let server = start_in(folder.path(), &[ON, &["--aof-load-truncated", "no"]].concat());
        let keys = server.connect().command(&["DBSIZE"]);
        assert_eq!(keys, Value::Integer(acknowledged as i64 + 3), "{policy}");
    }
}

#[test]
fn what_was_acknowledged_outlives_a_kill_on_a_full_disk() {
    for policy in ["always", "everysec", "no"] {
        let folder = folder();
        let options = [ON, &["--appendfsync", policy, "--auto-aof-rewrite-percentage", "0"]].concat();
        let server = start_in(folder.path(), &options);
        limit_files(&server, Some(100_000));
        let mut writer = server.connect();
        let acknowledged = fill_up(&server, &mut writer) as i64;
        kill(server);
        let Value::Integer(found) = start_in(folder.path(), ON).connect().command(&["DBSIZE"]) else {
            panic!("a number");
        };
        assert_eq!(found, acknowledged, "{policy}");
    }
}

#[test]
fn a_rewrite_makes_up_for_a_file_that_cannot_be_written() {
    for policy in ["always", "everysec", "no"] {
        let folder = folder();
        let options = [ON, &["--appendfsync", policy, "--auto-aof-rewrite-percentage", "0"]].concat();
        let server = start_in(folder.path(), &options);
        let (mut writer, mut other) = (server.connect(), server.connect());
        for _ in 0..30 {
            ok(&mut writer, &["SET", "k", &"x".repeat(3000)]);
        }
        // The file cannot grow; other files may reach its length.
        limit_files(&server, Some(fs::metadata(files_of(folder.path()).join(INCR)).expect("there").len()));
        send(&mut writer, &["SET", "waits", "1"]);
        await_field(&mut other, "aof_last_write_status", "err");
        assert!(!other.command(&["BGREWRITEAOF"]).is_error());
        await_rewrite(&mut other);
        assert_eq!(persistence(&mut other, "aof_last_bgrewrite_status"), "ok", "{policy}: {}", server.log());
        assert_eq!(writer.read().expect("a reply").to_string(), "OK", "{policy}");
        await_field(&mut other, "aof_last_write_status", "ok");
        ok(&mut other, &["SET", "late", "1"]);
        kill(server);
        let server = start_in(folder.path(), &[ON, &["--aof-load-truncated", "no"]].concat());
        assert_eq!(server.connect().command(&["DBSIZE"]), Value::Integer(3), "{policy}");
    }
}

#[test]
fn zeros_at_the_end_are_cut_off_as_a_torn_end_is() {
    let whole = requests(&[&["SELECT", "0"], &["SET", "a", "1"]]);
    for begun in [&b""[..], b"*3\r\n$3\r\nSE", b"*1\r\n$5\r\nMULTI\r\n*2\r\n$3\r\nDEL\r\n$1\r\na\r\n"] {
        let folder = folder();
        let file = [&whole[..], begun, &[0; 5000]].concat();
        lay_out(folder.path(), &[(INCR, "i", &file)]);
        let log = refusal(folder.path(), &[ON, &["--aof-load-truncated", "no"]].concat());
        assert!(log.contains("Unexpected end of file reading the append only file"), "{log}");
        assert!(log.contains("zeros, as usual after a power failure"), "{log}");
        assert_eq!(fs::read(files_of(folder.path()).join(INCR)).expect("there"), file, "untouched");
        let server = start_in(folder.path(), ON);
        server.wait_for_log("zeros, as usual after a power failure");
        let mut client = server.connect();
        assert_eq!(client.command(&["DBSIZE"]), Value::Integer(1));
        ok(&mut client, &["SET", "c", "3"]);
        kill(server);
        let server = start_in(folder.path(), &[ON, &["--aof-load-truncated", "no"]].concat());
        assert_eq!(server.connect().command(&["DBSIZE"]), Value::Integer(2));
    }
    let folder = folder();
    lay_out(folder.path(), &[(INCR, "i", &[&whole[..], &[0; 5000], &whole].concat())]);
    let log = refusal(folder.path(), ON);
    assert!(log.contains("Bad file format reading the append only file"), "{log}");
}

#[test]
fn config_set_is_refused_where_another_server_has_the_folder() {
    let folder = folder();
    let first = start_in(folder.path(), ON);
    let mut client = first.connect();
    ok(&mut client, &["SET", "k", "v"]);
    let second = start_in(folder.path(), &["--appendonly", "no"]);
    let mut other = second.connect();
    let refused = other.command(&["CONFIG", "SET", "appendonly", "yes"]).to_string();
    assert!(refused.contains("another server writes to the folder"), "{refused}");
    assert_eq!(persistence(&mut other, "aof_enabled"), "0");
    drop(first);
    ok(&mut other, &["CONFIG", "SET", "appendonly", "yes"]);
    await_rewrite(&mut other);
    assert_eq!(persistence(&mut other, "aof_last_bgrewrite_status"), "ok");
}

#[test]
fn a_save_asked_for_while_a_rewrite_begins_does_not_make_it_fail() {
    let folder = folder();
    let server = start_in(folder.path(), ON);
    let mut client = server.connect();
    ok(&mut client, &["DEBUG", "POPULATE", "1000"]);
    for round in 0..20 {
        // Sent together: at BGSAVE the rewrite has not taken its snapshot yet.
        client.send(&requests(&[&["BGREWRITEAOF"], &["BGSAVE"], &["BGREWRITEAOF"]])).expect("sent");
        let replies = client.read_many(3).expect("replies").iter().map(Value::to_string).collect::<Vec<_>>();
        assert!(replies[0].starts_with("Background append only file rewriting"), "{round}: {replies:?}");
        await_rewrite(&mut client);
        await_field(&mut client, "rdb_bgsave_in_progress", "0");
        await_rewrite(&mut client);
        assert_eq!(persistence(&mut client, "aof_rewrites_consecutive_failures"), "0", "{}", server.log());
        assert_eq!(persistence(&mut client, "aof_last_bgrewrite_status"), "ok");
        assert_eq!(client.command(&["SAVE"]).to_string(), "OK");
    }
}

#[test]
fn it_is_turned_on_though_rewrites_have_failed_and_while_others_are_under_way() {
    let folder = folder();
    let server = start_in(folder.path(), &["--rdb-key-save-delay", "200"]);
    let mut client = server.connect();
    ok(&mut client, &["DEBUG", "POPULATE", "1000"]);
    // Without a folder for its files, a rewrite fails.
    fs::write(files_of(folder.path()), b"no folder").expect("written");
    for failures in 1..=5 {
        client.command(&["BGREWRITEAOF"]);
        await_rewrite(&mut client);
        let counted = persistence(&mut client, "aof_rewrites_consecutive_failures");
        assert_eq!(counted, "1", "failure {failures}: who asks begins anew");
    }
    fs::remove_file(files_of(folder.path())).expect("removed");
    // This rewrite began while the file was off and changes were not recorded. So it cannot become
    // the base of the file, and is started again.
    client.command(&["BGREWRITEAOF"]);
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    server.wait_for_log("Stopping background AOF and starting a rewrite now.");
    await_rewrite(&mut client);
    await_written(&mut client);
    ok(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
    client.command(&["BGSAVE"]);
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    server.wait_for_log("An AOF background was scheduled to start when possible.");
    await_written(&mut client);
    ok(&mut client, &["SET", "k", "v"]);
    kill(server);
    assert_eq!(start_in(folder.path(), ON).connect().command(&["DBSIZE"]), Value::Integer(1001));
}

#[test]
fn a_reply_leaves_when_the_disk_has_room_again_while_the_first_base_is_written() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let (mut writer, mut other) = (server.connect(), server.connect());
    ok(&mut other, &["DEBUG", "POPULATE", "1000"]);
    ok(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "1000000"]);
    ok(&mut other, &["CONFIG", "SET", "appendonly", "yes"]);
    await_field(&mut other, "aof_rewrite_in_progress", "1");
    let incr = files_of(folder.path()).join("temp-appendonly.aof.incr");
    let since = Instant::now();
    while !fs::metadata(&incr).is_ok_and(|file| file.len() > 0) {
        ok(&mut writer, &["SET", "k", "1"]);
        assert!(since.elapsed() < WITHIN, "the file gets the changes");
    }
    // The base has its first bytes. The next ones follow when all keys are done, so the limit does
    // not end the rewrite.
    let has_base = || {
        let files = fs::read_dir(files_of(folder.path())).expect("the folder").flatten();
        let is_base = |name: &str| name.starts_with("temp-rewriteaof");
        let mut bases = files.filter(|file| file.file_name().to_str().is_some_and(is_base));
        bases.any(|base| base.metadata().is_ok_and(|base| base.len() > 0))
    };
    while !has_base() {
        assert!(since.elapsed() < WITHIN, "the base is begun");
    }
    limit_files(&server, Some(1));
    send(&mut writer, &["SET", "waits", "1"]);
    await_field(&mut other, "aof_last_write_status", "err");
    check_refused(&mut other);
    limit_files(&server, None);
    assert_eq!(writer.read().expect("a reply").to_string(), "OK");
    await_field(&mut other, "aof_last_write_status", "ok");
    assert_eq!(persistence(&mut other, "aof_rewrite_in_progress"), "1");
    ok(&mut other, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    await_rewrite(&mut other);
    await_written(&mut other);
    kill(server);
    assert_eq!(start_in(folder.path(), ON).connect().command(&["DBSIZE"]), Value::Integer(1002));
}

/// Checks that DEBUG CHANGE-LOG CONFIRM and OFF do not confirm changes that the append-only file
/// must confirm.
#[test]
fn readers_for_tests_do_not_confirm_changes_of_the_file() {
    let folder = folder();
    let server = start_in(folder.path(), &[ON, &["--appendfsync", "always"]].concat());
    let (mut writer, mut other) = (server.connect(), server.connect());
    ok(&mut writer, &["SET", "early", "1"]);
    ok(&mut other, &["DEBUG", "CHANGE-LOG", "MANUAL"]);
    ok(&mut other, &["DEBUG", "AOF-FLUSH-SLEEP", "60000000"]);
    send(&mut writer, &["SET", "waits", "1"]);
    let since = Instant::now();
    while info(&mut other, "change_log_position") < 2 {
        assert!(since.elapsed() < WITHIN, "the change is made");
    }
    ok(&mut other, &["DEBUG", "CHANGE-LOG", "CONFIRM"]);
    assert_eq!(info(&mut other, "change_log_synced_position"), 1);
    ok(&mut other, &["DEBUG", "CHANGE-LOG", "OFF"]);
    assert_eq!(info(&mut other, "change_log_synced_position"), 1);
    kill(server);
}

/// Waits until all changes are written to the append-only file.
fn await_written(client: &mut Client) {
    let since = Instant::now();
    while client.command(&["WAITAOF", "1", "0", "1"]).to_string() != "1) (integer) 1\n2) (integer) 0" {
        assert!(since.elapsed() < WITHIN, "it is turned on");
    }
}

#[test]
fn options_changed_while_data_is_loaded_hold_afterwards() {
    let folder = folder();
    {
        let server = start_in(folder.path(), ON);
        let mut client = server.connect();
        ok(&mut client, &["DEBUG", "POPULATE", "300"]);
        // After the rewrite the incremental file contains no change.
        client.command(&["BGREWRITEAOF"]);
        await_rewrite(&mut client);
    }
    let start = |appendonly: &str| {
        let dir = folder.path().to_str().expect("a name of text");
        let delay = ["--key-load-delay", "3000", "--enable-debug-command", "yes"];
        let options = ["--dir", dir, "--save", "", "--appendonly", appendonly];
        saker::start_binary(BINARY, &[&options[..], &delay].concat()).expect("starts")
    };
    let turn = |server: &ServerProcess, to: &str| {
        let mut client = server.connect();
        assert_eq!(persistence(&mut client, "loading"), "1");
        ok(&mut client, &["CONFIG", "SET", "appendfsync", "always"]);
        ok(&mut client, &["CONFIG", "SET", "appendonly", to]);
        ok(&mut client, &["CONFIG", "SET", "key-load-delay", "0"]);
        await_field(&mut client, "loading", "0");
        client
    };
    let server = start("yes");
    let mut client = turn(&server, "yes");
    assert_eq!(persistence(&mut client, "aof_rewrites"), "0");
    ok(&mut client, &["SET", "k", "v"]);
    drop(server);
    let server = start("yes");
    let mut client = turn(&server, "no");
    await_field(&mut client, "aof_enabled", "0");
    ok(&mut client, &["SET", "lost", "v"]);
    drop(server);
    let server = start_in(folder.path(), ON);
    assert_eq!(server.connect().command(&["DBSIZE"]), Value::Integer(301));
}
