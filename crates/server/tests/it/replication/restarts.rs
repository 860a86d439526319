//! A primary that ends and starts again with its snapshot. Replicas that have exactly the data of
//! the snapshot continue, all others get a snapshot. Afterwards replicas and primary have the same
//! data.

use std::path::Path;
use std::time::Duration;

use testkit::process::free_port;
use testkit::replication::load::send_lines;
use testkit::replication::{Link, Psync, Replica, SyncCounts, field, happens, number, run};
use testkit::{Client, ServerProcess, peer};

use super::faults::{wait_for_commands, with_load};
use super::{Primary, fill, has_field_expiry, is_without_peer, replica_of, seed};
use crate::support::signal;

/// Maximum time until a shutdown has ended the process.
const SHUTDOWN_WITHIN: Duration = Duration::from_secs(60);

/// Number of restarts of the primary while clients write.
const RESTARTS: usize = 5;

/// A primary that the test can start again with the same files.
struct Restarted {
    folder: tempfile::TempDir,
    port: u16,
    options: &'static [&'static str],
    primary: Option<Primary>,
}

impl Restarted {
    fn new(options: &'static [&'static str]) -> Self {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let port = free_port().expect("a port is free");
        let mut it = Self { folder, port, options, primary: None };
        it.start();
        it
    }

    fn start(&mut self) {
        self.primary = Some(Primary::start_in(self.folder.path(), self.port, self.options));
    }

    fn primary(&self) -> &Primary {
        self.primary.as_ref().expect("it runs")
    }

    fn connect(&self) -> Client {
        self.primary().connect()
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path().join("dump.rdb")
    }

    /// Sends SHUTDOWN with the words `words`, and waits for the end of the process.
    fn shut_down(&mut self, words: &[&str]) {
        let mut primary = self.primary.take().expect("it runs");
        let mut client = primary.connect();
        let mut request = Vec::new();
        resp::encode_request(&[&["SHUTDOWN"], words].concat(), &mut request);
        client.send(&request).expect("it reads");
        let ended = primary.process.wait(SHUTDOWN_WITHIN);
        assert!(ended.is_ok(), "{ended:?}: {}", primary.process.log());
    }

    /// Saves a snapshot, ends the server, and starts it again.
    fn restart(&mut self) {
        self.shut_down(&["SAVE", "NOW"]);
        self.start();
    }

    fn kill(&mut self) {
        signal(&self.primary().process, rustix::process::Signal::KILL);
        self.primary = None;
    }
}

/// The replication history of a primary, as INFO states it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct History {
    id: String,
    second: String,
    second_offset: String,
    offset: u64,
}

impl History {
    fn of(client: &mut Client) -> Self {
        let [id, second, second_offset] = ["master_replid", "master_replid2", "second_repl_offset"]
            .map(|name| field(client, "replication", name));
        Self { id, second, second_offset, offset: number(client, "replication", "master_repl_offset") }
    }

    /// Returns true if this is the history of a primary that continues the history `former`.
    fn continues(&self, former: &Self) -> bool {
        let Self { id, second, second_offset, offset } = self;
        *id != former.id
            && *second == former.id
            && *second_offset == (former.offset + 1).to_string()
            && *offset >= former.offset
    }
}

/// Connects as a replica that has the history `id` up to `offset`, and asks to continue. Returns
/// the link and the primary's answer.
fn ask(primary: &Primary, id: &str, offset: u64) -> (Link, Psync) {
    let mut link = Link::connect(primary.port());
    link.introduce(&["eof", "psync2"]);
    let answer = link.psync(id, offset as i64 + 1);
    (link, answer)
}

/// Makes the primary keep its replication stream, by a replica that asks for a snapshot and
/// disconnects.
fn begin_stream(primary: &Primary) {
    let (mut link, _) = ask(primary, "?", 0);
    link.snapshot();
}

/// Returns the numbers of full and partial syncs that the primary has given since its start.
fn syncs(client: &mut Client) -> (u64, u64) {
    let SyncCounts { full, partial } = SyncCounts::of(client);
    (full, partial)
}

#[test]
fn a_replica_that_has_all_continues_after_a_restart() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&[]);
    let mut client = server.connect();
    let replica = replica_of(server.primary(), &[]);
    for round in 0..3 {
        if has_field_expiry(replica.version()) {
            fill(&mut client, seed() + round, 2);
        }
        send_lines(&mut client, ["SELECT 5", "SET in-another 1", "SELECT 0"]);
        replica.catch_up(&mut client);
        let former = History::of(&mut client);
        server.restart();
        client = server.connect();
        replica.wait_for_data_of(&mut client, "after the restart");
        let own = History::of(&mut client);
        assert!(own.continues(&former), "{former:?}, then {own:?}");
        assert_eq!(syncs(&mut client), (0, 1), "{}", replica.log());
        assert_eq!(field(&mut client, "replication", "repl_backlog_active"), "1");
        // The first write names its database, whatever the former stream has selected.
        send_lines(&mut client, ["SET after-the-restart 1"]);
        replica.wait_for_data_of(&mut client, "after a write");
    }
}

#[test]
fn only_the_end_of_the_former_stream_continues() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&[]);
    begin_stream(server.primary());
    send_lines(&mut server.connect(), ["SET k 1", "SELECT 3", "SET k 2"]);
    let former = History::of(&mut server.connect());
    server.restart();
    let (mut link, answer) = ask(server.primary(), &former.id, former.offset);
    let own = History::of(&mut server.connect());
    assert_eq!(answer, Psync::Continues(Some(own.id.clone())));
    assert!(own.continues(&former) && own.offset == former.offset, "{former:?}, then {own:?}");
    send_lines(&mut server.connect(), ["SET k 3"]);
    assert_eq!(link.commands_up_to(&["SET", "k", "3"]), ["SELECT 0", "SET k 3"]);
    for offset in [former.offset - 1, former.offset + 1, former.offset + link.streamed().len() as u64] {
        let (_, answer) = ask(server.primary(), &former.id, offset);
        assert!(matches!(&answer, Psync::Full { id, .. } if *id == own.id), "{offset}: {answer:?}");
    }
    // Replicas of the time before the restart may reconnect later.
    let (mut late, answer) = ask(server.primary(), &former.id, former.offset);
    assert_eq!(answer, Psync::Continues(Some(own.id)));
    assert_eq!(late.commands_up_to(&["SET", "k", "3"]), ["SELECT 0", "SET k 3"]);
}

#[test]
fn a_shutdown_under_load_needs_no_snapshot() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&["--repl-ping-replica-period", "1"]);
    let replica = replica_of(server.primary(), &[]);
    for round in 0..RESTARTS {
        let mut client = server.connect();
        with_load(server.port, || {
            wait_for_commands(&mut client, 2000);
            server.shut_down(&["SAVE"]);
        });
        server.start();
        client = server.connect();
        replica.wait_for_data_of(&mut client, &format!("restart {round}"));
        assert_eq!(syncs(&mut client), (0, 1), "restart {round}: {}", replica.log());
    }
}

#[test]
fn keys_that_expire_while_the_server_is_down_are_deleted_in_the_stream() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&[]);
    let replica = replica_of(server.primary(), &[]);
    let mut client = server.connect();
    run(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for db in ["0", "4", "9"] {
        run(&mut client, &["SELECT", db]);
        for number in 0..100 {
            run(&mut client, &["SET", &format!("short{number}"), "value", "PX", "1"]);
            run(&mut client, &["SET", &format!("long{number}"), "value"]);
        }
    }
    replica.catch_up(&mut client);
    let former = History::of(&mut client);
    server.restart();
    client = server.connect();
    replica.wait_for_data_of(&mut client, "after the restart");
    assert_eq!(syncs(&mut client), (0, 1), "{}", replica.log());
    assert!(History::of(&mut client).offset > former.offset);
    let mut own = replica.connect();
    for db in ["0", "4", "9"] {
        run(&mut own, &["SELECT", db]);
        assert_eq!(run(&mut own, &["DBSIZE"]), resp::Value::Integer(100), "database {db}");
    }
}

#[test]
fn more_expired_keys_than_the_backlog_holds_need_a_snapshot() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&["--repl-backlog-size", "16kb"]);
    let replica = replica_of(server.primary(), &[]);
    let mut client = server.connect();
    run(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    for number in 0..2000 {
        run(&mut client, &["SET", &format!("short{number}"), "value", "PX", "1"]);
    }
    replica.catch_up(&mut client);
    server.restart();
    client = server.connect();
    replica.wait_for_data_of(&mut client, "after the restart");
    assert_eq!(syncs(&mut client), (1, 0), "{}", replica.log());
}

#[test]
fn after_a_kill_only_the_data_of_the_last_snapshot_continues() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&[]);
    let replica = replica_of(server.primary(), &[]);
    for (round, writes_after) in [false, true, false].into_iter().enumerate() {
        let mut client = server.connect();
        send_lines(&mut client, ["SET saved 1", "INCR counter", "RPUSH list a b c"]);
        run(&mut client, &["SAVE"]);
        if writes_after {
            send_lines(&mut client, ["SET unsaved 1", "INCR counter"]);
        }
        replica.catch_up(&mut client);
        server.kill();
        server.start();
        client = server.connect();
        replica.wait_for_data_of(&mut client, &format!("kill {round}"));
        let expected = if writes_after { (1, 0) } else { (0, 1) };
        assert_eq!(syncs(&mut client), expected, "kill {round}: {}", replica.log());
    }
}

#[test]
fn a_kill_under_load_and_saves_never_continues_with_other_data() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&["--save", "1 1"]);
    let replica = replica_of(server.primary(), &[]);
    for round in 0..RESTARTS {
        let mut client = server.connect();
        with_load(server.port, || {
            wait_for_commands(&mut client, 1000);
            // An error means that a save by the rules is in progress.
            client.command(&["BGSAVE", "SCHEDULE"]);
            wait_for_commands(&mut client, 2000);
            server.kill();
        });
        server.start();
        client = server.connect();
        send_lines(&mut client, ["SET after-the-kill 1"]);
        replica.wait_for_data_of(&mut client, &format!("kill {round}"));
    }
}

#[test]
fn a_file_that_another_server_has_changed_continues_nothing() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&[]);
    let replica = replica_of(server.primary(), &[]);
    let mut client = server.connect();
    send_lines(&mut client, ["SET k 1"]);
    replica.catch_up(&mut client);
    let former = History::of(&mut client);
    server.shut_down(&["SAVE", "NOW"]);
    // The peer must read it: a Valkey does not load every file of a Redis 8.
    let other = peer_in(server.folder.path());
    run(&mut other.connect(), &["SET", "k", "2"]);
    run(&mut other.connect(), &["SAVE"]);
    drop(other);
    server.start();
    client = server.connect();
    let (_, answer) = ask(server.primary(), &former.id, former.offset);
    assert!(matches!(answer, Psync::Full { .. }), "{answer:?}");
    replica.wait_for_data_of(&mut client, "after the edit");
    assert_eq!(syncs(&mut client).1, 0);
}

fn peer_in(folder: &Path) -> ServerProcess {
    let dir = folder.to_str().expect("text");
    let peer = peer::start_with(&["--dir", dir, "--save", ""]).expect("it loads the file");
    let mut client = peer.connect();
    assert!(happens(|| !client.command(&["DBSIZE"]).is_error()), "{}", peer.log());
    peer
}

#[test]
fn an_append_only_file_continues_after_a_shutdown_but_not_after_a_kill() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&["--appendonly", "yes"]);
    let replica = replica_of(server.primary(), &[]);
    let mut client = server.connect();
    for saves in ["SAVE", "NOSAVE"] {
        run(&mut client, &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        // A key that expires while the server is down is deleted in the stream.
        send_lines(&mut client, ["SELECT 3", "SET lasting 1", "SET short 1 PX 1"]);
        replica.catch_up(&mut client);
        let former = History::of(&mut client);
        server.shut_down(&[saves, "NOW"]);
        server.start();
        client = server.connect();
        replica.wait_for_data_of(&mut client, "after the restart");
        assert_eq!(syncs(&mut client), (0, 1), "{saves}: {}", replica.log());
        let own = History::of(&mut client);
        assert!(own.continues(&former), "{saves}: {former:?}, then {own:?}");
        let mut other = replica.connect();
        run(&mut other, &["SELECT", "3"]);
        assert!(happens(|| run(&mut other, &["DBSIZE"]) == resp::Value::Integer(1)), "{saves}");
    }
    send_lines(&mut client, ["SET k 1"]);
    replica.catch_up(&mut client);
    server.kill();
    server.start();
    client = server.connect();
    replica.wait_for_data_of(&mut client, "after the kill");
    assert_eq!(syncs(&mut client), (1, 0));
    assert_eq!(History::of(&mut client).second, "0".repeat(40));
}

#[test]
fn a_continued_history_ends_with_its_backlog() {
    if is_without_peer() {
        return;
    }
    let mut server = Restarted::new(&["--repl-backlog-ttl", "1"]);
    begin_stream(server.primary());
    send_lines(&mut server.connect(), ["SET k 1"]);
    let former = History::of(&mut server.connect());
    server.restart();
    let mut client = server.connect();
    assert!(happens(|| field(&mut client, "replication", "repl_backlog_active") == "0"));
    // Without a backlog, this write does not advance the offset.
    send_lines(&mut client, ["SET k 2"]);
    let (_, answer) = ask(server.primary(), &former.id, former.offset);
    assert!(matches!(answer, Psync::Full { .. }), "{answer:?}");
    let own = History::of(&mut client);
    assert!(own.second != former.id && own.second_offset == "-1", "{own:?}");
    // A file without a recorded stream names no point.
    assert!(happens(|| field(&mut client, "replication", "repl_backlog_active") == "0"));
    let former = History::of(&mut client);
    server.restart();
    let (_, answer) = ask(server.primary(), &former.id, former.offset);
    assert!(matches!(answer, Psync::Full { .. }), "{answer:?}");
}

/// Returns a snapshot file with this replication id and offset, and the given records of database
/// 0.
fn file_with(id: &str, offset: &str, records: &[&[u8]]) -> Vec<u8> {
    let mut bytes = b"REDIS0011".to_vec();
    let text = |text: &str| [&[text.len() as u8], text.as_bytes()].concat();
    for (name, value) in [("repl-stream-db", "0"), ("repl-id", id), ("repl-offset", offset)] {
        bytes.push(0xFA);
        bytes.extend([text(name), text(value)].concat());
    }
    bytes.extend([0xFE, 0]);
    bytes.extend(records.concat());
    bytes.push(0xFF);
    // A checksum of 0 stands for none.
    bytes.extend([0; 8]);
    bytes
}

/// The record of a string in an RDB file. [`EMPTY_LIST`] is that of an empty list, which a load
/// leaves out.
const STRING: &[u8] = b"\x00\x01k\x01v";
const EMPTY_LIST: &[u8] = b"\x12\x01e\x00";

#[test]
fn a_file_of_which_something_is_left_out_continues_nothing() {
    if is_without_peer() || std::env::var_os("SAKER_PRIMARY").is_some() {
        return;
    }
    let id = "0123456789abcdef0123456789abcdef01234567";
    let cases: [(&str, &[&[u8]], bool); 5] = [
        ("77", &[STRING], true),
        ("0", &[STRING], true),
        ("77", &[STRING, EMPTY_LIST], false),
        ("-1", &[STRING], false),
        ("18446744073709551615", &[STRING], false),
    ];
    for (offset, records, continues) in cases {
        let mut server = Restarted::new(&[]);
        server.shut_down(&["NOSAVE"]);
        std::fs::write(server.file(), file_with(id, offset, records)).expect("written");
        server.start();
        assert_eq!(run(&mut server.connect(), &["DBSIZE"]), resp::Value::Integer(1));
        let (_, answer) = ask(server.primary(), id, offset.parse().unwrap_or(77));
        assert_eq!(matches!(answer, Psync::Continues(_)), continues, "{offset} {records:?}: {answer:?}");
    }
}

#[test]
fn a_reload_never_cuts_the_snapshot_of_a_replica_short() {
    if is_without_peer() || std::env::var_os("SAKER_PRIMARY").is_some() {
        return;
    }
    let server = Restarted::new(&[]);
    let mut client = server.connect();
    for number in 0..2000 {
        run(&mut client, &["SET", &format!("key{number}"), "value"]);
    }
    run(&mut client, &["SAVE"]);
    let replica = Replica::start(&[]).expect("the replica starts");
    for round in 0..20 {
        replica.follow(server.port);
        for _ in 0..20 {
            run(&mut client, &["DEBUG", "RELOAD", "NOSAVE"]);
        }
        replica.wait_for_data_of(&mut client, &format!("round {round}"));
        replica.leave();
    }
}

/// Checks the snapshot of a full sync during which all data is flushed. If a replica loses its link
/// right after the snapshot, it has and serves the data of the moment at which the snapshot was
/// taken. It then continues the replication stream from there.
#[test]
fn a_snapshot_with_a_flush_meanwhile_has_all_data_of_its_point() {
    if is_without_peer() || std::env::var_os("SAKER_PRIMARY").is_some() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    // Only a Saker reads the snapshot, whatever version the peer can read.
    run(&mut client, &["CONFIG", "SET", "rdb-version", "auto"]);
    fill(&mut client, seed(), 2);
    run(&mut client, &["DEBUG", "POPULATE", "5000", "key", "100"]);
    // The walk over the data stops at a key until the delay is set to 0.
    run(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "100000000"]);
    let at_point = run(&mut client, &["DEBUG", "DIGEST"]);
    let (mut link, answer) = ask(&primary, "?", 0);
    let Psync::Full { id, offset } = answer else { panic!("{answer:?}") };
    send_lines(&mut client, ["SET lost 1", "FLUSHALL", "SET kept 1", "FLUSHALL", "SET kept 2"]);
    run(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    let snapshot = link.snapshot();
    drop(link);
    // A replica that has loaded the snapshot, and starts again with it.
    let mut server = Restarted::new(&[]);
    server.shut_down(&["NOSAVE"]);
    std::fs::write(server.file(), snapshot.bytes).expect("written");
    server.start();
    let mut own = server.connect();
    assert_eq!(run(&mut own, &["DEBUG", "DIGEST"]), at_point, "the data at offset {offset}");
    let before = SyncCounts::of(&mut client);
    run(&mut own, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let has_all = || run(&mut own, &["GET", "kept"]) == resp::Value::Bulk(b"2".to_vec());
    assert!(happens(has_all), "{}", server.primary().process.log());
    assert_eq!(run(&mut own, &["DBSIZE"]), resp::Value::Integer(1));
    assert_eq!(SyncCounts::of(&mut client).since(before), (0, 1), "it continues {id} at {offset}");
}
