//! The append-only file: the data after a restart, and files exchanged with Redis in both
//! directions.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use testkit::{Client, ServerProcess, Value, peer, saker};

use crate::persistence::versions_of;
use crate::support::BINARY;

/// Maximum time until the server has an expected state.
pub const WITHIN: Duration = Duration::from_secs(30);
/// Options that turn the append-only file on, as most tests need.
pub const ON: &[&str] = &["--appendonly", "yes"];

pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a scratch folder")
}

pub fn start_in(folder: &Path, options: &[&str]) -> ServerProcess {
    let dir = folder.to_str().expect("a name of text");
    let common = ["--dir", dir, "--save", "", "--enable-debug-command", "yes", "--io-threads", "2"];
    let options: Vec<&str> = common.iter().chain(options).copied().collect();
    let server = saker::start_binary(BINARY, &options).expect("starts");
    server.wait_for_log("Ready to accept connections tcp");
    server
}

pub fn ok(client: &mut Client, words: &[&str]) {
    assert_eq!(client.command(words).to_string(), "OK", "{words:?}");
}

/// Returns the digest of all data, after the server has loaded its files. During the load it would
/// be the digest of a part.
pub fn digest(client: &mut Client) -> String {
    await_field(client, "loading", "0");
    client.command(&["DEBUG", "DIGEST"]).to_string()
}

/// Returns the value of `field` in the section `persistence` of INFO.
pub fn persistence(client: &mut Client, field: &str) -> String {
    let Value::Bulk(text) = client.command(&["INFO", "persistence"]) else { panic!("no INFO") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

pub fn await_field(client: &mut Client, field: &str, value: &str) {
    let since = Instant::now();
    while persistence(client, field) != value {
        assert!(since.elapsed() < WITHIN, "{field} becomes {value}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn await_rewrite(client: &mut Client) {
    await_field(client, "aof_rewrite_scheduled", "0");
    await_field(client, "aof_rewrite_in_progress", "0");
}

/// Kills a server as soon as its append-only file has all changes: with `everysec`, a sync delays
/// the write of changes, but not the replies to them. Does not wait after a failed write, nor for a
/// server that has ended. The data that the server has passed to the kernel stays.
pub fn kill(server: ServerProcess) {
    let Ok(mut client) = Client::connect(&server.address()) else { return drop(server) };
    let mut may_miss_changes = || {
        let Ok(info) = client.request(&["INFO", "persistence"]) else { return false };
        let info = info.to_string();
        let is_written = !info.contains("aof_buffer_length:") || info.contains("aof_buffer_length:0");
        !is_written && !info.contains("aof_last_write_status:err")
    };
    let since = Instant::now();
    while may_miss_changes() && since.elapsed() < WITHIN {
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(server);
}

pub fn files_of(folder: &Path) -> PathBuf {
    folder.join("appendonlydir")
}

pub fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("it is there");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub fn manifest(folder: &Path) -> String {
    fs::read_to_string(files_of(folder).join("appendonly.aof.manifest")).expect("there is a manifest")
}

/// Formats requests in RESP, as in an append-only file.
pub fn requests(requests: &[&[&str]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for request in requests {
        bytes.extend_from_slice(format!("*{}\r\n", request.len()).as_bytes());
        for word in *request {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
    }
    bytes
}

/// Creates append-only files in `folder`: the named files with their contents, and a manifest of
/// them.
pub fn lay_out(folder: &Path, files: &[(&str, &str, &[u8])]) {
    fs::create_dir_all(files_of(folder)).expect("created");
    let mut lines = String::new();
    for (name, kind, bytes) in files {
        fs::write(files_of(folder).join(name), bytes).expect("written");
        let seq = name.split('.').nth(2).expect("name.aof.seq.kind");
        lines.push_str(&format!("file {name} seq {seq} type {kind}\n"));
    }
    fs::write(files_of(folder).join("appendonly.aof.manifest"), lines).expect("written");
}

/// Starts a server that must refuse to start, and returns its log.
pub fn refusal(folder: &Path, options: &[&str]) -> String {
    let dir = folder.to_str().expect("a name of text");
    let port = testkit::process::free_port().expect("a port").to_string();
    let args = ["--port", &port, "--save", "", "--dir", dir];
    let logged = tempfile::NamedTempFile::new().expect("a scratch file");
    let log = || fs::read_to_string(logged.path()).expect("text");
    let mut child = Command::new(BINARY)
        .args(args)
        .args(options)
        .stdout(logged.reopen().expect("there"))
        .stderr(logged.reopen().expect("there"))
        .spawn()
        .expect("it runs");
    let since = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("a child") {
            break status;
        }
        if since.elapsed() > WITHIN {
            child.kill().and_then(|()| child.wait()).expect("it ends");
            panic!("it has started: {}", log());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(1), "{}", log());
    log()
}

/// Writes keys of every type in two databases, with and without expiry. Some of the commands are
/// recorded as other commands than they were sent.
pub fn fill(client: &mut Client) {
    for db in ["0", "9"] {
        ok(client, &["SELECT", db]);
        for number in 0..40 {
            let (word, text) = (format!("word-{number}"), "x".repeat(number * 30));
            client.command(&["SET", &format!("s{number}"), &text, "PX", "100000000"]);
            client.command(&["INCRBYFLOAT", &format!("f{number}"), "0.1"]);
            for element in 0..number {
                let score = element.to_string();
                client.command(&["RPUSH", &format!("l{number}"), &word, &score]);
                client.command(&["SADD", &format!("set{number}"), &score, &word]);
                client.command(&["HSET", &format!("h{number}"), &score, &word]);
                client.command(&["ZADD", &format!("z{number}"), &score, &score]);
                client.command(&["XADD", &format!("x{number}"), "*", "field", &word]);
            }
            client.command(&["SPOP", &format!("set{number}")]);
            client.command(&["ZPOPMIN", &format!("z{number}")]);
            client.command(&["EXPIRE", &format!("l{number}"), "100000"]);
            client.command(&["XGROUP", "CREATE", &format!("x{number}"), "group", "0"]);
            let stream = format!("x{number}");
            client.command(&["XREADGROUP", "GROUP", "group", "me", "COUNT", "3", "STREAMS", &stream, ">"]);
        }
    }
    ok(client, &["SELECT", "0"]);
}

#[test]
fn all_is_there_after_a_crash_whatever_was_rewritten_before() {
    for preamble in ["yes", "no"] {
        let folder = folder();
        let options = [ON, &["--aof-use-rdb-preamble", preamble]].concat();
        let server = start_in(folder.path(), &options);
        let mut client = server.connect();
        fill(&mut client);
        client.command(&["BGREWRITEAOF"]);
        await_rewrite(&mut client);
        // After the rewrite the file is a new one, which must select the database itself.
        ok(&mut client, &["SELECT", "9"]);
        ok(&mut client, &["SET", "behind", "1"]);
        let expected = digest(&mut client);
        ok(&mut client, &["DEBUG", "LOADAOF"]);
        assert_eq!(digest(&mut client), expected, "preamble {preamble}");
        ok(&mut client, &["SET", "more", "1"]);
        let expected = digest(&mut client);
        kill(server);
        let server = start_in(folder.path(), &options);
        let mut client = server.connect();
        assert_eq!(digest(&mut client), expected, "preamble {preamble}");
        ok(&mut client, &["SET", "after", "1"]);
        let expected = digest(&mut client);
        client.send(b"SHUTDOWN\r\n").expect("sent");
        drop(client);
        let mut server = server;
        assert_eq!(server.wait(WITHIN).expect("ends"), Some(0));
        let server = start_in(folder.path(), &options);
        assert_eq!(digest(&mut server.connect()), expected, "preamble {preamble}");
        assert_eq!(
            names_in(&files_of(folder.path())).len(),
            3,
            "nothing is left: {:?}",
            names_in(&files_of(folder.path()))
        );
    }
}

/// A guard that sets its flag when it is dropped, so that the writers end also after a failed
/// check.
struct SetAtEnd<'s>(&'s AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs writers that count in several databases while `act` runs. Returns the confirmed count of
/// each writer.
fn with_writers(server: &ServerProcess, act: impl FnOnce(&mut Client)) -> Vec<u64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let stop = &stop;
                scope.spawn(move || {
                    let mut client = server.connect();
                    ok(&mut client, &["SELECT", &(writer % 3).to_string()]);
                    let mut count = 0;
                    while !stop.load(Relaxed) {
                        let value = "v".repeat(count as usize % 300);
                        client.command(&["RPUSH", &format!("list{writer}"), &value]);
                        client.command(&[
                            "HSET",
                            &format!("hash{writer}"),
                            &(count % 50).to_string(),
                            &value,
                        ]);
                        client.command(&["INCR", &format!("count{writer}")]);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        let ends = SetAtEnd(&stop);
        act(&mut server.connect());
        drop(ends);
        writers.into_iter().map(|writer| writer.join().expect("no check failed")).collect()
    })
}

/// Checks that the data contains exactly the confirmed counts of all writers.
fn check_writers(client: &mut Client, counts: &[u64]) {
    for (writer, count) in counts.iter().enumerate() {
        ok(client, &["SELECT", &(writer % 3).to_string()]);
        let found = client.command(&["GET", &format!("count{writer}")]).to_string();
        assert_eq!(found, format!("\"{count}\""), "writer {writer}");
        let len = client.command(&["LLEN", &format!("list{writer}")]);
        assert_eq!(len, Value::Integer(*count as i64), "writer {writer}");
    }
}

#[test]
fn rewrites_under_load_lose_nothing_and_double_nothing() {
    for preamble in ["yes", "no"] {
        let folder = folder();
        let options = [ON, &["--aof-use-rdb-preamble", preamble]].concat();
        let server = start_in(folder.path(), &options);
        ok(&mut server.connect(), &["DEBUG", "POPULATE", "20000"]);
        let counts = with_writers(&server, |client| {
            for _ in 0..3 {
                std::thread::sleep(Duration::from_millis(100));
                assert!(!client.command(&["BGREWRITEAOF"]).is_error());
                await_rewrite(client);
                assert_eq!(persistence(client, "aof_last_bgrewrite_status"), "ok");
            }
        });
        let expected = digest(&mut server.connect());
        kill(server);
        let server = start_in(folder.path(), &options);
        let mut client = server.connect();
        assert_eq!(digest(&mut client), expected, "preamble {preamble}");
        check_writers(&mut client, &counts);
    }
}

#[test]
fn it_is_turned_on_and_off_with_writers_running() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    ok(&mut server.connect(), &["DEBUG", "POPULATE", "5000"]);
    let counts = with_writers(&server, |client| {
        for _ in 0..4 {
            ok(client, &["CONFIG", "SET", "appendonly", "yes"]);
            assert_eq!(persistence(client, "aof_enabled"), "1");
            await_rewrite(client);
            std::thread::sleep(Duration::from_millis(50));
            ok(client, &["CONFIG", "SET", "appendonly", "no"]);
            assert_eq!(persistence(client, "aof_enabled"), "0");
        }
        ok(client, &["CONFIG", "SET", "appendonly", "yes"]);
        await_rewrite(client);
    });
    let expected = digest(&mut server.connect());
    kill(server);
    let server = start_in(folder.path(), ON);
    let mut client = server.connect();
    assert_eq!(digest(&mut client), expected);
    check_writers(&mut client, &counts);
}

#[test]
fn writes_are_answered_while_it_is_turned_on_with_always() {
    let folder = folder();
    let server = start_in(folder.path(), &["--appendfsync", "always", "--rdb-key-save-delay", "100000"]);
    let mut client = server.connect();
    ok(&mut client, &["DEBUG", "POPULATE", "3000"]);
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    ok(&mut client, &["SET", "k", "1"]);
    assert_eq!(persistence(&mut client, "aof_rewrite_in_progress"), "1");
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    await_rewrite(&mut client);
    ok(&mut client, &["SET", "l", "2"]);
    let expected = digest(&mut client);
    kill(server);
    let server = start_in(folder.path(), ON);
    assert_eq!(digest(&mut server.connect()), expected);
}

#[test]
fn waitaof_says_how_far_it_is() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    let refused = client.command(&["WAITAOF", "1", "0", "0"]).to_string();
    assert!(
        refused.contains("WAITAOF cannot be used when numlocal is set but appendonly is disabled"),
        "{refused}"
    );
    assert_eq!(client.command(&["WAITAOF", "0", "0", "0"]).to_string(), "1) (integer) 0\n2) (integer) 0");
    drop(server);
    for policy in ["always", "everysec"] {
        let server = start_in(folder.path(), &[ON, &["--appendfsync", policy]].concat());
        let mut client = server.connect();
        ok(&mut client, &["SET", "k", "v"]);
        assert_eq!(
            client.command(&["WAITAOF", "1", "0", "0"]).to_string(),
            "1) (integer) 1\n2) (integer) 0",
            "{policy}"
        );
        assert_eq!(
            client.command(&["WAITAOF", "1", "1", "100"]).to_string(),
            "1) (integer) 1\n2) (integer) 0",
            "{policy}"
        );
        assert!(client.command(&["WAITAOF", "2", "0", "0"]).is_error());
        assert!(client.command(&["WAITAOF", "1", "-1", "0"]).is_error());
        assert!(client.command(&["WAITAOF", "1", "0", "-1"]).is_error());
    }
}

#[test]
fn waitaof_answers_as_redis_does() {
    if !peer::is_available() {
        eprintln!("skipped: there is no server to compare with");
        return;
    }
    let folders = [folder(), folder()];
    let ours = start_in(folders[0].path(), &[]);
    let theirs = peer::start_with(&["--dir", folders[1].path().to_str().expect("text")]).expect("starts");
    let mut clients = [ours.connect(), theirs.connect()];
    if !versions_of(&mut clients[1]).contains(&"11") {
        eprintln!("skipped: Redis has WAITAOF from 7.2 on");
        return;
    }
    let forms: &[&[&str]] = &[
        &["WAITAOF"],
        &["WAITAOF", "1", "0", "0"],
        &["WAITAOF", "0", "0", "0"],
        &["WAITAOF", "2", "0", "0"],
        &["WAITAOF", "-1", "0", "0"],
        &["WAITAOF", "x", "0", "0"],
        &["WAITAOF", "0", "x", "0"],
        &["WAITAOF", "0", "-1", "0"],
        &["WAITAOF", "0", "0", "x"],
        &["WAITAOF", "0", "0", "-1"],
        &["WAITAOF", "0", "1", "50"],
        &["CONFIG", "SET", "appendonly", "yes"],
        &["SET", "k", "v"],
        &["WAITAOF", "1", "0", "5000"],
        &["WAITAOF", "1", "1", "50"],
        &["MULTI"],
        &["WAITAOF", "0", "0", "0"],
        &["WAITAOF", "0", "1", "0"],
        &["EXEC"],
    ];
    for form in forms {
        let replies = clients.each_mut().map(|client| client.command(form).to_string());
        assert_eq!(replies[0], replies[1], "{form:?}");
        if form[0] == "CONFIG" {
            clients.iter_mut().for_each(await_rewrite);
        }
    }
}

#[test]
fn the_file_of_redis_6_is_taken_over() {
    let (folder, old) = (folder(), requests(&[&["SELECT", "3"], &["SET", "k", "v"], &["INCR", "n"]]));
    fs::write(folder.path().join("appendonly.aof"), &old).expect("written");
    for expected in ["1", "2"] {
        let server = start_in(folder.path(), ON);
        let mut client = server.connect();
        ok(&mut client, &["SELECT", "3"]);
        assert_eq!(client.command(&["GET", "n"]).to_string(), format!("\"{expected}\""));
        client.command(&["INCR", "n"]);
        assert_eq!(names_in(folder.path()), ["appendonlydir"]);
        assert_eq!(
            manifest(folder.path()),
            "file appendonly.aof seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n"
        );
        kill(server);
    }
    // With a snapshot first, as with aof-use-rdb-preamble.
    let (source, folder) = (self::folder(), self::folder());
    let expected = {
        let server = start_in(source.path(), &[]);
        let mut client = server.connect();
        fill(&mut client);
        ok(&mut client, &["SAVE"]);
        ok(&mut client, &["SET", "more", "1"]);
        digest(&mut client)
    };
    let mut bytes = fs::read(source.path().join("dump.rdb")).expect("saved");
    bytes.extend(requests(&[&["SELECT", "0"], &["SET", "more", "1"]]));
    fs::write(folder.path().join("appendonly.aof"), bytes).expect("written");
    assert_eq!(digest(&mut start_in(folder.path(), ON).connect()), expected);
}

#[test]
fn a_snapshot_alone_becomes_the_base() {
    // Redis starts empty here, and the next save loses the data.
    let folder = folder();
    let expected = {
        let server = start_in(folder.path(), &[]);
        let mut client = server.connect();
        fill(&mut client);
        ok(&mut client, &["SAVE"]);
        digest(&mut client)
    };
    for _ in 0..2 {
        let server = start_in(folder.path(), ON);
        assert_eq!(digest(&mut server.connect()), expected);
        kill(server);
        let _ = fs::remove_file(folder.path().join("dump.rdb"));
    }
}

#[test]
fn without_options_the_newer_one_of_both_is_loaded() {
    let folder = folder();
    {
        let server = start_in(folder.path(), ON);
        let mut client = server.connect();
        ok(&mut client, &["SET", "k", "snapshot"]);
        ok(&mut client, &["SAVE"]);
        // File times may be as coarse as a tick of the kernel.
        std::thread::sleep(Duration::from_millis(50));
        ok(&mut client, &["SET", "k", "file"]);
    }
    let server = start_in(folder.path(), &[]);
    server.wait_for_log("it is newer than the snapshot. New changes are not written to it.");
    let mut client = server.connect();
    assert_eq!(client.command(&["GET", "k"]).to_string(), "\"file\"");
    assert_eq!(persistence(&mut client, "aof_enabled"), "0");
    std::thread::sleep(Duration::from_millis(50));
    ok(&mut client, &["SET", "k", "newer"]);
    ok(&mut client, &["SAVE"]);
    kill(server);
    let server = start_in(folder.path(), &[]);
    assert_eq!(server.connect().command(&["GET", "k"]).to_string(), "\"newer\"");
    kill(server);
    let server = start_in(folder.path(), ON);
    assert_eq!(server.connect().command(&["GET", "k"]).to_string(), "\"file\"", "as asked");
}

#[test]
fn a_torn_end_is_cut_off_where_that_is_allowed() {
    let whole = requests(&[&["SELECT", "0"], &["SET", "a", "1"]]);
    let next = requests(&[&["SET", "b", "2"]]);
    let begun = requests(&[&["MULTI"], &["SET", "b", "2"]]);
    let tails = (1..next.len()).map(|len| &next[..len]).chain([&begun[..]]);
    for tail in tails.step_by(5) {
        let folder = folder();
        let file = [&whole[..], tail].concat();
        lay_out(folder.path(), &[("appendonly.aof.1.incr.aof", "i", &file)]);
        let log = refusal(folder.path(), &[ON, &["--aof-load-truncated", "no"]].concat());
        assert!(log.contains("Unexpected end of file reading the append only file"), "{log}");
        let path = files_of(folder.path()).join("appendonly.aof.1.incr.aof");
        assert_eq!(fs::read(&path).expect("there"), file, "untouched");
        let server = start_in(folder.path(), ON);
        let mut client = server.connect();
        assert_eq!(client.command(&["DBSIZE"]), Value::Integer(1));
        ok(&mut client, &["SET", "c", "3"]);
        kill(server);
        let server = start_in(folder.path(), &[ON, &["--aof-load-truncated", "no"]].concat());
        assert_eq!(server.connect().command(&["DBSIZE"]), Value::Integer(2));
    }
}

#[test]
fn damage_is_refused_with_its_place() {
    let good = requests(&[&["SELECT", "0"], &["SET", "a", "1"]]);
    let torn = &good[..good.len() - 3];
    let bad = [&good[..], b"!!!", &good].concat();
    let unknown = [&good[..], &requests(&[&["BLA", "x"]])].concat();
    type Files<'a> = &'a [(&'a str, &'a str, &'a [u8])];
    let cases: &[(Files<'_>, &str)] = &[
        (&[("appendonly.aof.1.incr.aof", "i", &bad)], "Bad file format reading the append only file"),
        (
            &[("appendonly.aof.1.incr.aof", "i", &unknown)],
            "Unknown command 'BLA' reading the append only file",
        ),
        (
            &[("appendonly.aof.1.base.aof", "b", torn), ("appendonly.aof.1.incr.aof", "i", &good)],
            "but is not the last file",
        ),
        (
            &[("appendonly.aof.1.base.aof", "b", torn), ("appendonly.aof.1.incr.aof", "i", b"")],
            "but is not the last file",
        ),
        (&[("appendonly.aof.1.base.rdb", "b", b"REDIS0011\xfa")], "Error reading the RDB preamble"),
        (
            &[("appendonly.aof.2.incr.aof", "i", &good), ("appendonly.aof.1.incr.aof", "i", &good)],
            "Found a non-monotonic sequence number",
        ),
        (&[("appendonly.aof.1.incr.aof", "x", &good)], "Unknown AOF file type"),
    ];
    for (files, expected) in cases {
        let folder = folder();
        lay_out(folder.path(), files);
        let before: Vec<_> = names_in(&files_of(folder.path()))
            .into_iter()
            .map(|name| fs::read(files_of(folder.path()).join(name)).ok())
            .collect();
        let log = refusal(folder.path(), ON);
        assert!(log.contains(expected), "{expected}: {log}");
        let after: Vec<_> = names_in(&files_of(folder.path()))
            .into_iter()
            .map(|name| fs::read(files_of(folder.path()).join(name)).ok())
            .collect();
        assert_eq!(before, after, "nothing was touched");
    }
    let folder = folder();
    lay_out(
        folder.path(),
        &[("appendonly.aof.1.base.aof", "b", &good), ("appendonly.aof.1.incr.aof", "i", &good)],
    );
    fs::remove_file(files_of(folder.path()).join("appendonly.aof.1.base.aof")).expect("removed");
    let log = refusal(folder.path(), ON);
    assert!(log.contains("appendonly.aof.1.base.aof") && log.contains("No such file or directory"), "{log}");
}

#[test]
fn a_key_of_the_base_whose_time_is_over_is_there_for_the_requests_behind_it() {
    let folder = folder();
    let mut base = b"REDIS0011".to_vec();
    for key in [b'k', b'l'] {
        // A string that expired at 1000 ms of 1970.
        base.extend_from_slice(b"\xfc");
        base.extend_from_slice(&1000_u64.to_le_bytes());
        base.extend_from_slice(&[0, 1, key, 1, b'v']);
    }
    base.extend_from_slice(b"\xff\0\0\0\0\0\0\0\0");
    let persist = requests(&[&["SELECT", "0"], &["PERSIST", "k"]]);
    let files = [("appendonly.aof.1.base.rdb", "b", &base[..]), ("appendonly.aof.1.incr.aof", "i", &persist)];
    lay_out(folder.path(), &files);
    let server = start_in(folder.path(), ON);
    let mut client = server.connect();
    assert_eq!(client.command(&["GET", "k"]), Value::Bulk(b"v".to_vec()));
    assert_eq!(client.command(&["PTTL", "k"]), Value::Integer(-1));
    assert_eq!(client.command(&["GET", "l"]), Value::Null);
}

#[test]
fn the_file_before_an_empty_one_may_be_torn() {
    let good = requests(&[&["SELECT", "0"], &["SET", "a", "1"], &["SET", "b", "2"]]);
    let folder = folder();
    let torn = &good[..good.len() - 3];
    lay_out(
        folder.path(),
        &[("appendonly.aof.1.incr.aof", "i", torn), ("appendonly.aof.2.incr.aof", "i", b"")],
    );
    // A rewrite had just created the next file.
    let server = start_in(folder.path(), ON);
    assert_eq!(server.connect().command(&["DBSIZE"]), Value::Integer(1));
}

#[test]
fn two_servers_do_not_write_to_one_folder() {
    let folder = folder();
    let _first = start_in(folder.path(), ON);
    let dir = folder.path().to_str().expect("a name of text");
    let second = saker::start_binary(BINARY, &["--dir", dir, "--save", "", "--appendonly", "yes"]);
    let error = second.expect_err("it must not start").to_string();
    assert!(error.contains("another server writes to the folder"), "{error}");
    let third = start_in(folder.path(), &["--appendonly", "no"]);
    assert!(third.connect().command(&["CONFIG", "SET", "appendonly", "yes"]).is_error());
}

#[test]
fn it_is_rewritten_when_it_has_grown() {
    let folder = folder();
    let rules = ["--auto-aof-rewrite-min-size", "20kb", "--auto-aof-rewrite-percentage", "100"];
    let server = start_in(folder.path(), &[ON, &rules].concat());
    let mut client = server.connect();
    for _ in 0..300 {
        ok(&mut client, &["SET", "k", &"x".repeat(100)]);
    }
    await_field(&mut client, "aof_rewrites", "1");
    await_rewrite(&mut client);
    assert!(persistence(&mut client, "aof_current_size").parse::<u64>().expect("a number") < 20_000);
    server.wait_for_log("Starting automatic rewriting of AOF on");
    kill(server);
    let server = start_in(folder.path(), ON);
    assert_eq!(server.connect().command(&["STRLEN", "k"]), Value::Integer(100));
}

/// Starts a peer (a real Redis or Valkey) that has loaded the append-only files in the folder.
pub fn peer_in(folder: &Path, options: &[&str]) -> ServerProcess {
    let dir = folder.to_str().expect("a name of text");
    let options = [&["--dir", dir, "--appendonly", "yes"], options].concat();
    let peer = peer::start_with(&options).expect("it loads the files");
    let since = Instant::now();
    while peer.connect().command(&["PING"]).is_error() {
        assert!(since.elapsed() < WITHIN, "it loads the files");
    }
    peer
}

#[test]
fn a_real_server_goes_on_with_our_files_and_we_with_its() {
    if !peer::is_available() {
        eprintln!("skipped: there is no server to compare with");
        return;
    }
    let scratch = folder();
    let versions = versions_of(&mut peer_in(scratch.path(), &[]).connect());
    let version = if versions.contains(&"11") { "11" } else { versions[versions.len() - 1] };
    for preamble in ["yes", "no"] {
        let folder = folder();
        let preamble = ["--aof-use-rdb-preamble", preamble];
        let own = ["--aof-timestamp-enabled", "yes", "--rdb-version", version];
        let options = [ON, &preamble, &own].concat();
        // Each server continues where the other ended, with and without its own rewrite.
        let mut expected = String::new();
        for round in 0..3 {
            let server = start_in(folder.path(), &options);
            let mut client = server.connect();
            assert!(round == 0 || digest(&mut client) == expected, "ours, {preamble:?}, round {round}");
            fill(&mut client);
            if round == 1 {
                client.command(&["BGREWRITEAOF"]);
                await_rewrite(&mut client);
            }
            ok(&mut client, &["SET", &format!("ours{round}"), "1"]);
            expected = digest(&mut client);
            kill(server);
            let mut server = peer_in(folder.path(), &preamble);
            let mut client = server.connect();
            assert_eq!(digest(&mut client), expected, "theirs, {preamble:?}, round {round}");
            fill(&mut client);
            if round == 0 {
                client.command(&["BGREWRITEAOF"]);
                await_rewrite(&mut client);
            }
            ok(&mut client, &["SET", &format!("theirs{round}"), "1"]);
            expected = digest(&mut client);
            client.send(b"SHUTDOWN\r\n").expect("sent");
            drop(client);
            server.wait(WITHIN).expect("ends");
        }
    }
}

#[test]
fn turning_it_on_fails_where_no_file_can_be_made() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    ok(&mut client, &["SET", "k", "v"]);
    fs::write(files_of(folder.path()), b"no folder").expect("written");
    assert!(client.command(&["CONFIG", "SET", "appendonly", "yes"]).is_error());
    assert_eq!(client.command(&["CONFIG", "GET", "appendonly"]).to_string(), "1) \"appendonly\"\n2) \"no\"");
    ok(&mut client, &["SET", "k", "w"]);
    fs::remove_file(files_of(folder.path())).expect("removed");
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    await_rewrite(&mut client);
    kill(server);
    assert_eq!(start_in(folder.path(), ON).connect().command(&["GET", "k"]).to_string(), "\"w\"");
}

#[test]
fn what_a_script_writes_after_set_repl_is_in_the_file_only_if_it_names_it() {
    let folder = folder();
    let server = start_in(folder.path(), ON);
    let mut client = server.connect();
    let script = "for i, name in ipairs(KEYS) do redis.set_repl(redis[name]) redis.call('SET', name, i) end \
                  return redis.call('DBSIZE')";
    let keys = ["REPL_ALL", "REPL_NONE", "REPL_AOF", "REPL_SLAVE", "REPL_REPLICA"];
    // Under the locks of its keys, with exclusive access, and in a transaction.
    for database in ["1", "2", "3"] {
        ok(&mut client, &["SELECT", database]);
        if database == "3" {
            ok(&mut client, &["MULTI"]);
        }
        let script =
            if database == "1" { script.replace("'DBSIZE'", "'GET', KEYS[1]") } else { script.to_owned() };
        client.command(&[&["EVAL", &script, "5"][..], &keys].concat());
        // The next script is propagated again.
        client.command(&["EVAL", "return redis.call('SET', KEYS[1], '6')", "1", "next"]);
        if database == "3" {
            assert!(matches!(client.command(&["EXEC"]), Value::Array(_)));
        }
        assert_eq!(client.command(&["DBSIZE"]), Value::Integer(6));
    }
    kill(server);
    let server = start_in(folder.path(), ON);
    let mut client = server.connect();
    for database in ["1", "2", "3"] {
        ok(&mut client, &["SELECT", database]);
        assert_eq!(client.command(&["DBSIZE"]), Value::Integer(3), "database {database}");
        assert_eq!(client.command(&["EXISTS", "REPL_ALL", "REPL_AOF", "next"]), Value::Integer(3));
    }
}

/// Checks that SHUTDOWN NOSAVE, the only way to end an endless script that has written, works. The
/// writes of the script are not in the file.
#[test]
fn shutdown_nosave_ends_an_endless_script_and_the_file_with_it() {
    let scripts = [("1", "held", "KEYS[1]"), ("0", "", "'reached for'")];
    for (threads, (numkeys, keys, key)) in ["1", "2"].into_iter().flat_map(|t| scripts.map(|s| (t, s))) {
        let case = format!("{threads} threads, {numkeys} keys");
        let folder = folder();
        let options = [ON, &["--io-threads", threads, "--busy-reply-threshold", "20"]].concat();
        let mut server = start_in(folder.path(), &options);
        let [mut client, mut admin] = [0; 2].map(|_| server.connect());
        await_rewrite(&mut client);
        ok(&mut client, &["SET", "before", "1"]);
        let script = format!("redis.call('SET', {key}, 1) while true do end");
        let mut words = vec!["EVAL", &script, numkeys, keys];
        words.retain(|word| !word.is_empty());
        let mut request = Vec::new();
        resp::encode_request(&words, &mut request);
        client.send(&request).expect("sent");
        while !admin.command(&["SCRIPT", "KILL"]).to_string().contains("UNKILLABLE") {
            std::thread::sleep(Duration::from_millis(2));
        }
        admin.send(&b"SHUTDOWN NOSAVE\r\n".repeat(1_000)).expect("sent");
        assert_eq!(server.wait(WITHIN).expect("ends"), Some(0), "{case}");
        assert_eq!(server.log().matches("User requested shutdown...").count(), 1, "{case}: one end");
        let server = start_in(folder.path(), &options);
        let mut client = server.connect();
        assert_eq!(client.command(&["KEYS", "*"]).to_string(), "1) \"before\"", "{case}");
    }
}
