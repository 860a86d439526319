//! The protocol between a primary and its replicas; the test itself acts as one of them.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use resp::encode_request;
use stdx::quoted::split_quoted;
use testkit::change_stream::forms::PeerVersion;
use testkit::change_stream::peers::has_same_data;
use testkit::replication::load::send_lines;
use testkit::replication::{Link, Psync, SyncCounts, field, happens, info, number, run};
use testkit::{Client, Rng, ServerProcess, Value, notation, peer};

use super::{Primary, fill, has_field_expiry, is_without_peer, persist_fields, replicas, seed};

/// Time for which a connection must receive nothing. A correct server never sends anything then, so
/// a slow machine does not make the test fail.
const SILENCE: Duration = Duration::from_millis(150);

/// Number of test connections (links) that follow the primary at the same time.
const LINKS: usize = 40;

/// Number of hexadecimal digits of a replication ID.
const ID_DIGITS: usize = 40;

/// Returns the offset of the end of the replication stream, as INFO of the primary states it.
pub(super) fn offset(client: &mut Client) -> u64 {
    number(client, "replication", "master_repl_offset")
}

/// Connects as a replica that knows all forms of snapshots, and reads the snapshot. Returns the
/// link, the replication id and the offset.
pub(super) fn full_sync(primary: &Primary) -> (Link, String, u64) {
    let mut link = Link::connect(primary.port());
    link.introduce(&["eof", "psync2"]);
    let answer = link.psync("?", -1);
    let Psync::Full { id, offset } = answer else { panic!("{answer:?}") };
    link.snapshot();
    (link, id, offset)
}

/// Connects as a replica, reads the snapshot, and sends acknowledgements until the primary sends
/// the replication stream. Returns the link, the replication id and the offset.
pub(super) fn online(primary: &Primary) -> (Link, String, u64) {
    let (mut link, id, offset) = full_sync(primary);
    begin_stream(primary, &mut link, offset);
    (link, id, offset)
}

/// Sends acknowledgements until the primary sends the replication stream. Redis ignores
/// acknowledgements until it has noticed the end of the process that wrote the snapshot.
pub(super) fn begin_stream(primary: &Primary, link: &mut Link, offset: u64) {
    let mut client = primary.connect();
    let own = format!("port={},state=online", link.port());
    let mut text = String::new();
    let is_online = happens(|| {
        text = info(&mut client, "replication");
        link.acknowledge(offset);
        text.contains(&own)
    });
    assert!(is_online, "{text}");
}

/// Starts a peer that loads this snapshot; returns it with its folder.
fn peer_with(snapshot: &[u8]) -> (tempfile::TempDir, ServerProcess) {
    let folder = tempfile::tempdir().expect("a scratch folder");
    std::fs::write(folder.path().join("dump.rdb"), snapshot).expect("written");
    let peer = peer_in(folder.path());
    (folder, peer)
}

pub(super) fn peer_in(folder: &Path) -> ServerProcess {
    let peer = peer::start_with(&["--dir", folder.to_str().expect("text")]).expect("it loads the file");
    let mut client = peer.connect();
    assert!(happens(|| !client.command(&["DBSIZE"]).is_error()), "{}", peer.log());
    peer
}

/// Starts a primary with data that the peer can read. Hash fields that expire are left out unless
/// the peer is a Redis that has them: the test's replica does not state a version.
pub(super) fn filled_primary() -> Primary {
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    fill(&mut client, seed(), 3);
    let version = PeerVersion::of(&mut peer::start().expect("starts").connect()).expect("a version");
    if !has_field_expiry(version) || matches!(version, PeerVersion::Valkey(_)) {
        persist_fields(&mut client);
    }
    primary
}

/// Checks that a peer can load the snapshot, and that it then has the data of the primary.
pub(super) fn check_snapshot(primary: &Primary, snapshot: &[u8]) {
    let (_folder, peer) = peer_with(snapshot);
    let mut own = peer.connect();
    let version = PeerVersion::of(&mut own).expect("a version");
    let mut source = primary.connect();
    let is_same = has_same_data(version, &mut own, &mut source);
    assert!(is_same, "the snapshot has other data: {} keys", own.command(&["DBSIZE"]));
}

#[test]
fn sync_sends_a_snapshot_of_known_length_and_the_stream() {
    if is_without_peer() {
        return;
    }
    let primary = filled_primary();
    let mut link = Link::connect(primary.port());
    link.send(&["SYNC"]);
    let snapshot = link.snapshot();
    assert!(!snapshot.has_mark, "a replica that knows no marks gets a length");
    check_snapshot(&primary, &snapshot.bytes);
    let mut client = primary.connect();
    send_lines(&mut client, ["SET k 1", "SELECT 3", "SET k 2"]);
    let lines = link.commands_up_to(&["SET", "k", "2"]);
    assert_eq!(lines, ["SELECT 0", "SET k 1", "SELECT 3", "SET k 2"]);
}

#[test]
fn a_snapshot_with_a_mark_and_nothing_behind_it_before_the_first_acknowledgement() {
    if is_without_peer() {
        return;
    }
    let primary = filled_primary();
    let mut client = primary.connect();
    let mut link = Link::connect(primary.port());
    link.introduce(&["eof", "psync2"]);
    let answer = link.psync("?", -1);
    let Psync::Full { id, offset } = answer else { panic!("{answer:?}") };
    assert!(id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let told = ["master_replid", "master_repl_offset"].map(|name| field(&mut client, "replication", name));
    assert_eq!(told, [id, offset.to_string()]);
    let snapshot = link.snapshot();
    assert!(snapshot.has_mark, "a replica that knows marks gets one");
    check_snapshot(&primary, &snapshot.bytes);

    let (mut other, _, _) = online(&primary);
    send_lines(&mut client, ["SELECT 2", "SET k 1"]);
    // The other replica has the write, so it would be on this link, too.
    assert_eq!(other.commands_up_to(&["SET", "k", "1"]), ["SELECT 2", "SET k 1"]);
    assert!(link.is_silent_for(SILENCE), "the stream is sent before the first acknowledgement");
    begin_stream(&primary, &mut link, offset);
    assert_eq!(link.commands_up_to(&["SET", "k", "1"]), ["SELECT 2", "SET k 1"]);
    assert_eq!(offset + link.streamed().len() as u64, super::protocol::offset(&mut client));
}

#[test]
fn the_stream_goes_on_at_any_offset() {
    if is_without_peer() {
        return;
    }
    let seed = seed();
    let primary = Primary::start(&[]);
    let (mut link, id, first) = online(&primary);
    let mut client = primary.connect();
    let lines =
        ["SET k 1", "SELECT 4", "SET k 2", "MULTI", "INCR k", "SELECT 5", "RPUSH l a b", "EXEC", "SELECT 4"];
    for _ in 0..20 {
        send_lines(&mut client, lines);
        run(&mut client, &["SET", "big", &"x".repeat(3000)]);
    }
    run(&mut client, &["SET", "the-end", "1"]);
    link.commands_up_to(&["SET", "the-end", "1"]);
    let stream = link.streamed().to_vec();
    let before = SyncCounts::of(&mut client);
    let mut rng = Rng::new(seed);
    let mut starts = vec![0, 1, stream.len() - 1, stream.len()];
    starts.extend((0..40).map(|_| rng.below(stream.len())));
    for (number, start) in starts.iter().enumerate() {
        let mut again = Link::connect(primary.port());
        let capabilities: &[&str] = if number.is_multiple_of(2) { &["eof", "psync2"] } else { &["eof"] };
        again.introduce(capabilities);
        // The first byte that is missing has the number of the bytes before it plus one.
        let answer = again.psync(&id, (first + *start as u64 + 1) as i64);
        let expected = (number.is_multiple_of(2)).then(|| id.clone());
        assert_eq!(answer, Psync::Continues(expected), "seed {seed}, {start} of {}", stream.len());
        assert_eq!(again.take(stream.len() - start), stream[*start..], "seed {seed}, from {start}");
    }
    let syncs = SyncCounts::of(&mut client).since(before);
    assert_eq!(syncs, (0, starts.len() as u64));
}

#[test]
fn an_unknown_id_or_offset_gives_a_full_sync() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let (mut link, id, first) = online(&primary);
    let mut client = primary.connect();
    send_lines(&mut client, ["SET k 1"]);
    link.commands_up_to(&["SET", "k", "1"]);
    let end = offset(&mut client) as i64;
    let other = id.chars().rev().collect::<String>();
    let unknown =
        [(&*other, end + 1), (&id, end + 2), (&id, first as i64), (&id, 0), (&id, -1), (&id, i64::MAX)];
    for (asked, at) in unknown {
        let mut link = Link::connect(primary.port());
        link.introduce(&["eof", "psync2"]);
        let answer = link.psync(asked, at);
        assert!(matches!(&answer, Psync::Full { id: told, .. } if *told == id), "{asked} {at}: {answer:?}");
    }
    let mut link = Link::connect(primary.port());
    link.introduce(&["eof", "psync2"]);
    assert_eq!(link.psync(&id.to_uppercase(), end + 1), Psync::Continues(Some(id)));
}

#[test]
fn many_replicas_get_the_same_stream() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let mut client = primary.connect();
    run(&mut client, &["SET", "base", &"x".repeat(10_000)]);
    // All ask for a snapshot at the same time.
    let mut links: Vec<Link> = (0..LINKS).map(|_| Link::connect(primary.port())).collect();
    for link in &mut links {
        link.introduce(&["eof", "psync2"]);
        link.send(&["PSYNC", "?", "-1"]);
    }
    std::thread::scope(|scope| {
        for link in &mut links {
            let primary = &primary;
            scope.spawn(move || {
                let line = link.line();
                let offset = line.rsplit(' ').next().and_then(|word| word.parse().ok());
                link.snapshot();
                begin_stream(primary, link, offset.unwrap_or_else(|| panic!("no offset in {line}")));
            });
        }
    });
    assert_eq!(replicas(&mut client), LINKS as u64);
    let before = offset(&mut client);
    for number in 0..500 {
        send_lines(&mut client, ["MULTI", "INCR counter", "RPUSH list element", "EXEC"]);
        run(&mut client, &["SELECT", &(number % 3).to_string()]);
    }
    run(&mut client, &["SET", "the-end", "1"]);
    let len_bytes = (offset(&mut client) - before) as usize;
    let mut expected = None;
    for link in &mut links {
        link.commands_up_to(&["SET", "the-end", "1"]);
        let stream = &link.streamed()[link.streamed().len() - len_bytes..];
        assert!(
            *expected.get_or_insert_with(|| stream.to_vec()) == stream,
            "two replicas have other streams"
        );
    }
}

#[test]
fn a_replica_that_acknowledges_nothing_is_dropped() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&["--repl-timeout", "2", "--repl-ping-replica-period", "1"]);
    let (mut link, id, _) = online(&primary);
    let mut client = primary.connect();
    link.rest();
    assert!(happens(|| replicas(&mut client) == 0));
    // The replica may reconnect and continue.
    let next = offset(&mut client) + 1;
    let mut link = Link::connect(primary.port());
    link.introduce(&["eof", "psync2"]);
    assert_eq!(link.psync(&id, next as i64), Psync::Continues(Some(id)));
}

#[test]
fn an_id_is_given_up_together_with_the_backlog() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&["--repl-backlog-ttl", "1"]);
    let (mut link, id, first) = online(&primary);
    let mut client = primary.connect();
    run(&mut client, &["SET", "k", "1"]);
    link.commands_up_to(&["SET", "k", "1"]);
    let next = first + link.streamed().len() as u64 + 1;
    drop(link);
    assert!(happens(|| field(&mut client, "replication", "repl_backlog_active") == "0"));
    // Without a backlog, this write does not advance the offset. So the offset does not show
    // whether a replica has the write.
    run(&mut client, &["SET", "k", "2"]);
    let told = ["master_replid", "master_replid2"].map(|name| field(&mut client, "replication", name));
    assert!(told[0] != id && told[1] != id, "{told:?}");
    let mut link = Link::connect(primary.port());
    link.introduce(&["eof", "psync2"]);
    let answer = link.psync(&id, next as i64);
    assert!(matches!(&answer, Psync::Full { id: other, .. } if *other != id), "{answer:?}");
    // While a backlog is in use, the replication ID does not change.
    assert!(!link.snapshot().bytes.is_empty());
}

/// Requests that a replica could send. Each list, of one or more requests, is sent on a new
/// connection.
const REQUESTS: &[&[&str]] = &[
    &["REPLCONF"],
    &["REPLCONF one"],
    &["REPLCONF one two"],
    &["REPLCONF listening-port"],
    &["REPLCONF listening-port 6380"],
    &["REPLCONF LISTENING-PORT 6380 capa eof"],
    &["REPLCONF listening-port x"],
    &["REPLCONF listening-port 99999999999999999999"],
    &["REPLCONF ip-address 10.1.2.3"],
    &["REPLCONF ip-address LONG"],
    &["REPLCONF capa eof capa psync2"],
    &["REPLCONF capa none-that-is-known"],
    &["REPLCONF capa"],
    &["REPLCONF listening-port 1 unknown 2"],
    &["REPLCONF rdb-only 1"],
    &["REPLCONF rdb-only 0"],
    &["REPLCONF rdb-only x"],
    &["REPLCONF rdb-only 2"],
    &["REPLCONF rdb-filter-only functions"],
    &["REPLCONF rdb-filter-only \"\""],
    &["REPLCONF rdb-filter-only something"],
    &["REPLCONF rdb-filter-only \"functions something\""],
    &["REPLCONF ack 5"],
    &["REPLCONF ACK x"],
    &["REPLCONF ack 5 fack 6"],
    &["REPLCONF GETACK *"],
    &["REPLCONF getack x"],
    &["PSYNC"],
    &["PSYNC ?"],
    &["PSYNC ? x"],
    &["SYNC now"],
    &["MULTI", "PSYNC ? -1", "EXEC"],
    &["MULTI", "SYNC", "EXEC"],
    &["EVAL \"return redis.call('PSYNC', '?', '-1')\" 0"],
    &["EVAL \"return redis.call('REPLCONF', 'capa', 'eof')\" 0"],
    &["ROLE"],
    &["WAIT 0 1"],
    &["WAIT 1 1"],
    &["WAIT x 0"],
    &["WAIT 1 x"],
    &["WAIT 1 -1"],
    &["WAIT -1 1"],
    &["WAIT 1"],
];

/// Sends the requests, and a last one that ends the replies. Returns all replies on one line each.
fn replies(server: &ServerProcess, requests: &[&str]) -> Vec<String> {
    let mut client = server.connect();
    let mut bytes = Vec::new();
    for request in requests {
        let line = request.replace("LONG", &"9".repeat(300));
        let words = split_quoted(line.as_bytes()).expect("the table is well quoted");
        encode_request(&words, &mut bytes);
    }
    encode_request(&["ECHO", "the end"], &mut bytes);
    client.send(&bytes).expect("it reads");
    let mut replies = Vec::new();
    loop {
        let reply = client.read().unwrap_or_else(|error| panic!("{requests:?}: {error}"));
        if reply == Value::Bulk(b"the end".to_vec()) {
            return replies;
        }
        replies.push(notation::one_line(&reply));
    }
}

/// Returns a reply in the words of Redis. A Valkey from 9.1 on names the command that a transaction
/// refuses. If a script may not call a command, Valkey names itself instead of Redis, and leaves
/// out the script.
fn as_redis_says(reply: &str) -> String {
    let from_script = "command is not allowed from script";
    if let Some(at) = reply.find(from_script) {
        return format!("-ERR This Redis {}", &reply[at..at + from_script.len()]);
    }
    ["psync", "sync"]
        .iter()
        .find_map(|name| reply.strip_prefix("-ERR Command '")?.strip_prefix(name)?.strip_prefix("' not"))
        .map_or_else(|| reply.to_owned(), |rest| format!("-ERR Command not{rest}"))
}

#[test]
fn odd_requests_are_answered_as_the_peer_answers_them() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let peer = peer::start().expect("the peer starts");
    let is_valkey = matches!(PeerVersion::of(&mut peer.connect()), Some(PeerVersion::Valkey(_)));
    for requests in REQUESTS {
        let [mut found, mut expected] = [&primary.process, &peer].map(|server| replies(server, requests));
        if is_valkey {
            for line in found.iter_mut().chain(&mut expected) {
                *line = as_redis_says(line);
            }
        }
        assert_eq!(found, expected, "{requests:?}");
    }
}

#[test]
fn a_silent_primary_sends_pings() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&["--repl-ping-replica-period", "1"]);
    let (mut link, _, first) = online(&primary);
    for _ in 0..3 {
        let command = link.command();
        assert!(command.len() == 1 && command[0].eq_ignore_ascii_case("ping"), "{command:?}");
    }
    let end = offset(&mut primary.connect());
    assert!(end >= first + link.streamed().len() as u64, "pings count");
}

#[test]
fn wait_asks_for_acknowledgements_and_believes_only_these() {
    if is_without_peer() {
        return;
    }
    let primary = Primary::start(&[]);
    let (mut link, _, first) = online(&primary);
    let mut client = primary.connect();
    client.send(b"SET k 1\r\nWAIT 1 0\r\n").expect("it reads");
    assert_eq!(link.commands_up_to(&["SET", "k", "1"]), ["SELECT 0", "SET k 1"]);
    let end = first + link.streamed().len() as u64;
    assert_eq!(link.command(), ["REPLCONF", "GETACK", "*"]);
    link.acknowledge(end - 1);
    link.acknowledge(end);
    assert_eq!(client.read_many(2).expect("answered")[1], Value::Integer(1));
    // One byte less than the write is no acknowledgement of it.
    client.send(b"SET k 2\r\nWAIT 1 400\r\n").expect("it reads");
    link.commands_up_to(&["SET", "k", "2"]);
    link.acknowledge(first + link.streamed().len() as u64 - 1);
    assert_eq!(client.read_many(2).expect("answered")[1], Value::Integer(0));
    // A replica that acknowledges more than there is cannot make it worse.
    link.acknowledge(1 << 60);
    run(&mut client, &["SET", "k", "3"]);
    assert_eq!(client.command(&["GET", "k"]), Value::Bulk(b"3".to_vec()));
}

#[test]
fn a_replica_only_for_the_snapshot_is_not_in_the_list() {
    if is_without_peer() {
        return;
    }
    let primary = filled_primary();
    let mut link = Link::connect(primary.port());
    link.introduce(&["eof"]);
    let is_known = link.ask(&["REPLCONF", "rdb-only", "1"]) == "+OK";
    assert!(is_known);
    link.send(&["SYNC"]);
    let snapshot = link.snapshot();
    check_snapshot(&primary, &snapshot.bytes);
    let mut client = primary.connect();
    run(&mut client, &["SET", "k", "1"]);
    assert!(link.rest().is_empty(), "nothing follows the snapshot, and the primary ends the connection");
    assert!(happens(|| replicas(&mut client) == 0));
}

/// Returns the path of redis-cli: in the folder of the peer's program, or on the PATH. Returns
/// `None` if there is none.
pub(super) fn redis_cli() -> Option<PathBuf> {
    let line = peer::command_line();
    let beside = line.split_whitespace().next().map(|program| Path::new(program).with_file_name("redis-cli"));
    let on_path = std::env::var_os("PATH")
        .map(|path| std::env::split_paths(&path).map(|folder| folder.join("redis-cli")).collect::<Vec<_>>());
    beside.into_iter().chain(on_path.into_iter().flatten()).find(|path| path.is_file())
}

#[test]
fn redis_cli_gets_a_file_of_the_data_and_one_of_the_functions() {
    if is_without_peer() {
        return;
    }
    let Some(program) = redis_cli() else {
        return eprintln!("no redis-cli beside the peer and on the PATH");
    };
    let primary = filled_primary();
    let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
    run(&mut primary.connect(), &["FUNCTION", "LOAD", library]);
    for option in ["--rdb", "--functions-rdb"] {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let file = folder.path().join("dump.rdb");
        let mut command = Command::new(&program);
        command.args(["-p", &primary.port().to_string(), option]).arg(&file);
        let output = command.output().expect("redis-cli runs");
        let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
        assert!(output.status.success(), "{option}: {text}");
        let peer = peer_in(folder.path());
        let functions = peer.connect().command(&["FUNCTION", "LIST"]).to_string();
        assert!(functions.contains("lib"), "{option}: {functions}");
        let keys = peer.connect().command(&["DBSIZE"]);
        assert_eq!(keys == Value::Integer(0), option == "--functions-rdb", "{option}: {keys} keys");
    }
    assert!(happens(|| replicas(&mut primary.connect()) == 0));
}
