//! Snapshots: the data after a restart, whatever happened before.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::{Client, Rng, ServerProcess, Value, peer, saker};

use crate::support::BINARY;

/// Maximum time for a server to end or to save.
const WITHIN: Duration = Duration::from_secs(120);

fn start_in(folder: &Path, options: &[&str]) -> ServerProcess {
    let dir = folder.to_str().expect("a name of text");
    let common = ["--dir", dir, "--enable-debug-command", "yes"];
    let options: Vec<&str> = common.iter().chain(options).copied().collect();
    let server = saker::start_binary(BINARY, &options).expect("starts");
    server.wait_for_log("Ready to accept connections tcp");
    server
}

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a scratch folder")
}

fn ok(client: &mut Client, words: &[&str]) {
    assert_eq!(client.command(words).to_string(), "OK", "{words:?}");
}

fn signal(server: &ServerProcess, signal: Signal) {
    let pid = Pid::from_raw(server.pid() as i32).expect("a process");
    kill_process(pid, signal).expect("it is there");
}

/// Returns the value of `field` in the section `persistence` of INFO.
fn persistence(client: &mut Client, field: &str) -> String {
    let Value::Bulk(text) = client.command(&["INFO", "persistence"]) else { panic!("no INFO") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("no {field} in {text}")).to_owned()
}

fn await_no_save(client: &mut Client) {
    let since = Instant::now();
    while persistence(client, "rdb_bgsave_in_progress") == "1" {
        assert!(since.elapsed() < WITHIN, "the save comes to an end");
    }
}

/// Writes keys of every type, small and big, with and without expiry, in three databases.
fn fill(client: &mut Client) {
    let mut rng = Rng::new(5);
    for db in ["0", "3", "7"] {
        ok(client, &["SELECT", db]);
        for number in 0..60 {
            let long = "x".repeat(rng.below(9000));
            client.command(&["SET", &format!("s{number}"), &long]);
            client.command(&["SET", &format!("n{number}"), &number.to_string()]);
            let count = if number % 20 == 0 { 1500 } else { 1 + rng.below(40) };
            for element in 0..count {
                let word = format!("element-{}-{}", rng.below(1 << 20), "y".repeat(element % 50));
                let score = element.to_string();
                client.command(&["RPUSH", &format!("l{number}"), &word]);
                client.command(&["SADD", &format!("set{number}"), &word]);
                client.command(&["HSET", &format!("h{number}"), &word, &score]);
                client.command(&["ZADD", &format!("z{number}"), &score, &word]);
                client.command(&["XADD", &format!("x{number}"), "*", "field", &word]);
            }
            client.command(&["SADD", &format!("ints{number}"), "1", "2", "300000"]);
            client.command(&["XGROUP", "CREATE", &format!("x{number}"), "group", "0"]);
            client.command(&[
                "XREADGROUP",
                "GROUP",
                "group",
                "me",
                "COUNT",
                "3",
                "STREAMS",
                &format!("x{number}"),
                ">",
            ]);
            client.command(&["HPEXPIRE", &format!("h{number}"), "1000000", "FIELDS", "1", "none"]);
            client.command(&["PEXPIRE", &format!("l{number}"), "100000000"]);
        }
    }
    ok(client, &["SELECT", "0"]);
}

#[test]
fn everything_is_there_after_a_crash_that_follows_a_save() {
    for save in [&["SAVE"][..], &["BGSAVE"]] {
        let folder = folder();
        let server = start_in(folder.path(), &["--save", ""]);
        let mut client = server.connect();
        fill(&mut client);
        let digest = client.command(&["DEBUG", "DIGEST"]).to_string();
        assert!(!client.command(save).is_error());
        await_no_save(&mut client);
        client.command(&["FLUSHALL"]);
        drop(server);
        let server = start_in(folder.path(), &["--save", "", "--io-threads", "3"]);
        assert_eq!(server.connect().command(&["DEBUG", "DIGEST"]).to_string(), digest);
    }
}

/// Checks a save that a client requests during the save after FLUSHALL. In Redis, FLUSHALL waits
/// for its save, so no save is in progress at the next command.
#[test]
fn the_save_after_a_flush_gives_way_to_one_that_is_asked_for() {
    let started = "Background saving started";
    for (save, reply) in [("BGSAVE", started), ("SAVE", "OK")] {
        let folder = folder();
        // The default rules; the save pauses for a minute at each key.
        let server = start_in(folder.path(), &["--rdb-key-save-delay", "60000000"]);
        let mut client = server.connect();
        for words in [&["MULTI"][..], &["FLUSHALL"], &["SET", "k", "v"], &["EXEC"]] {
            client.command(words);
        }
        let since = Instant::now();
        while persistence(&mut client, "rdb_bgsave_in_progress") == "0" {
            assert!(since.elapsed() < WITHIN, "a flush is saved");
        }
        if save == "SAVE" {
            ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
        }
        assert_eq!(client.command(&[save]).to_string(), reply);
        ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
        await_no_save(&mut client);
        drop(server);
        let value = start_in(folder.path(), &[]).connect().command(&["GET", "k"]);
        assert_eq!(value, Value::Bulk(b"v".to_vec()));
    }
}

/// Parses a number from a reply of GET or LLEN; 0 for a missing key.
fn number(value: &Value) -> i64 {
    match value {
        Value::Integer(number) => *number,
        Value::Bulk(text) => String::from_utf8_lossy(text).parse().expect("a number"),
        _ => 0,
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

#[test]
fn a_save_has_the_moment_at_which_it_began() {
    let folder = folder();
    let server = start_in(folder.path(), &["--save", "", "--io-threads", "2", "--rdb-key-save-delay", "200"]);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = SetAtEnd(&stop);
        // Each writer keeps all its keys equal with transactions, so they are equal in every
        // snapshot.
        for writer in 0..2 {
            let (server, stop) = (&server, &stop);
            scope.spawn(move || {
                let mut client = server.connect();
                let keys: Vec<String> = (0..8).map(|key| format!("w{writer}:{key}")).collect();
                while !stop.load(Relaxed) {
                    let mut commands = vec![vec!["MULTI".to_owned()]];
                    commands.extend(keys.iter().map(|key| vec!["INCR".to_owned(), key.clone()]));
                    commands.extend(
                        keys.iter()
                            .map(|key| vec!["RPUSH".to_owned(), format!("{{{key}}}l"), "x".repeat(90)]),
                    );
                    commands.push(vec!["EXEC".to_owned()]);
                    client.pipeline(&commands).expect("the server answers");
                }
            });
        }
        let mut client = server.connect();
        ok(&mut client, &["DEBUG", "POPULATE", "2000"]);
        for _ in 0..3 {
            let before: i64 = number(&client.command(&["GET", "w0:0"]));
            assert!(!client.command(&["BGSAVE"]).is_error());
            let after: i64 = number(&client.command(&["GET", "w0:0"]));
            await_no_save(&mut client);
            let copy = self::folder();
            std::fs::copy(folder.path().join("dump.rdb"), copy.path().join("dump.rdb")).expect("copied");
            let restored = start_in(copy.path(), &["--save", ""]);
            let mut restored = restored.connect();
            for writer in 0..2 {
                let value = |client: &mut Client, key: usize| {
                    number(&client.command(&["GET", &format!("w{writer}:{key}")]))
                };
                let first = value(&mut restored, 0);
                for key in 0..8 {
                    assert_eq!(value(&mut restored, key), first, "one moment");
                    let list = format!("{{w{writer}:{key}}}l");
                    assert_eq!(number(&restored.command(&["LLEN", &list])), first, "one moment");
                }
            }
            let saved: i64 = number(&restored.command(&["GET", "w0:0"]));
            assert!((before..=after).contains(&saved), "{before} <= {saved} <= {after}");
        }
    });
}

/// Number of kills of the server, each during a save or shortly after it.
const KILLS: usize = 20;

/// Sets eight keys to the number `generation`, in one transaction.
fn write_generation(client: &mut Client, generation: i64) {
    let set = |key| vec!["SET".to_owned(), format!("g{key}"), generation.to_string()];
    let mut commands = vec![vec!["MULTI".to_owned()]];
    commands.extend((0..8).map(set));
    commands.push(vec!["EXEC".to_owned()]);
    client.pipeline(&commands).expect("the server answers");
}

#[test]
fn a_kill_amid_a_save_leaves_the_last_good_file() {
    let (folder, mut rng) = (folder(), Rng::new(11));
    let names = || {
        let entries = std::fs::read_dir(folder.path()).expect("it is there");
        let names = entries.map(|entry| entry.expect("readable").file_name().to_string_lossy().into_owned());
        names.collect::<Vec<_>>()
    };
    // The generation that the file certainly holds, and the one being saved at the last kill.
    let (mut saved, mut begun) = (0, 0);
    let mut amid_saves = 0;
    for _ in 0..KILLS {
        let server = start_in(folder.path(), &["--save", "", "--io-threads", "2"]);
        let mut client = server.connect();
        let there = names();
        // Without complete data the unfinished file of a save stays: it may be the only data
        // left.
        let is_any_complete = there.iter().any(|name| name == "dump.rdb");
        assert!(!is_any_complete || there.len() == 1, "{there:?} are left of a dead process");
        let keys = (0..8).map(|key| number(&client.command(&["GET", &format!("g{key}")])));
        let keys: Vec<_> = keys.collect();
        assert!(keys.iter().all(|key| *key == keys[0]), "one moment: {keys:?}");
        assert!(keys[0] == saved || keys[0] == begun, "{keys:?}: {saved} was saved, {begun} was being saved");
        saved = keys[0];
        ok(&mut client, &["DEBUG", "POPULATE", "300"]);
        if rng.percent(30) {
            saved = begun + 1;
            write_generation(&mut client, saved);
            ok(&mut client, &["SAVE"]);
        }
        begun = begun.max(saved) + 1;
        write_generation(&mut client, begun);
        ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "1000"]);
        assert!(!client.command(&["BGSAVE"]).is_error());
        // Sometimes all keys, so that the kill comes near the end of the save or after it.
        let keys_done = rng.below(400).min(308) as i64;
        while persistence(&mut client, "rdb_bgsave_in_progress") == "1" {
            let done = persistence(&mut client, "current_save_keys_processed");
            if done.parse::<i64>().expect("a number") >= keys_done {
                break;
            }
        }
        signal(&server, Signal::KILL);
        drop(server);
        amid_saves += usize::from(names().iter().any(|name| name != "dump.rdb"));
    }
    assert!(amid_saves > KILLS / 3, "{amid_saves} of {KILLS} kills came in the middle of a save");
}

#[test]
fn the_end_saves_where_there_are_rules() {
    type End = fn(&ServerProcess);
    let ends: [(End, bool); 4] = [
        (|server| signal(server, Signal::TERM), true),
        (|server| signal(server, Signal::INT), true),
        (|server| drop(server.connect().send(b"SHUTDOWN\r\n")), true),
        (|server| drop(server.connect().send(b"SHUTDOWN NOSAVE\r\n")), false),
    ];
    for (at, (end, saves)) in ends.into_iter().enumerate() {
        let folder = folder();
        let mut server = start_in(folder.path(), &["--save", "3600", "1"]);
        ok(&mut server.connect(), &["SET", "k", "v"]);
        end(&server);
        assert_eq!(server.wait(WITHIN).expect("ends"), Some(0), "end {at}: {}", server.log());
        assert_eq!(folder.path().join("dump.rdb").exists(), saves, "end {at}");
        let files = std::fs::read_dir(folder.path()).expect("there").count();
        assert_eq!(files, usize::from(saves), "end {at}: nothing else is left");
    }
}

#[test]
fn a_rule_saves_by_itself() {
    let folder = folder();
    let server = start_in(folder.path(), &["--save", "1", "2"]);
    let mut client = server.connect();
    ok(&mut client, &["SET", "a", "1"]);
    ok(&mut client, &["SET", "b", "1"]);
    server.wait_for_log("Background saving terminated with success");
    await_no_save(&mut client);
    assert_eq!(persistence(&mut client, "rdb_changes_since_last_save"), "0");
    assert_eq!(persistence(&mut client, "rdb_last_bgsave_status"), "ok");
}

#[test]
fn writes_are_refused_after_a_save_that_failed_until_one_succeeds() {
    let folder = folder();
    let server = start_in(folder.path(), &["--save", "3600", "1000"]);
    let mut client = server.connect();
    ok(&mut client, &["SET", "k", "v"]);
    // A folder cannot be replaced by a file.
    std::fs::create_dir(folder.path().join("dump.rdb")).expect("created");
    client.command(&["BGSAVE"]);
    server.wait_for_log("Background saving error");
    await_no_save(&mut client);
    let refusal = client.command(&["SET", "k", "w"]).to_string();
    assert!(refusal.contains("MISCONF Redis is configured to save RDB snapshots"), "{refusal}");
    assert!(client.command(&["PING"]).is_error());
    assert_eq!(client.command(&["GET", "k"]).to_string(), "\"v\"");
    assert_eq!(persistence(&mut client, "rdb_last_bgsave_status"), "err");
    ok(&mut client, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "no"]);
    ok(&mut client, &["SET", "k", "w"]);
    ok(&mut client, &["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]);
    assert!(client.command(&["SET", "k", "x"]).is_error());
    std::fs::remove_dir(folder.path().join("dump.rdb")).expect("removed");
    client.command(&["BGSAVE"]);
    await_no_save(&mut client);
    ok(&mut client, &["SET", "k", "x"]);
    assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1, "no temporary file is left");
}

#[test]
fn a_second_server_on_the_same_folder_is_refused() {
    let folder = folder();
    let _first = start_in(folder.path(), &["--save", "3600", "1"]);
    let dir = folder.path().to_str().expect("a name of text");
    let second = saker::start_binary(BINARY, &["--dir", dir, "--save", "3600", "1"]);
    let error = second.expect_err("it must not start").to_string();
    assert!(error.contains("another server writes to the folder"), "{error}");
    // A server that does not save by itself may read the data, but must not replace it.
    let third = start_in(folder.path(), &["--save", ""]);
    assert!(third.connect().command(&["SAVE"]).is_error());
}

#[test]
fn a_relative_folder_is_where_the_server_was_started() {
    let folder = folder();
    std::fs::create_dir(folder.path().join("data")).expect("created");
    let mut server = std::process::Command::new(BINARY);
    let port = testkit::process::free_port().expect("a port");
    let server = server.args(["--port", &port.to_string(), "--dir", "data", "--save", "3600", "1"]);
    let mut server =
        server.current_dir(folder.path()).stdout(std::process::Stdio::null()).spawn().expect("runs");
    let since = Instant::now();
    let mut client = loop {
        match Client::connect(&testkit::Address::port(port)) {
            Ok(client) => break client,
            Err(error) => assert!(since.elapsed() < WITHIN, "{error}"),
        }
    };
    ok(&mut client, &["SET", "k", "v"]);
    ok(&mut client, &["SAVE"]);
    assert!(folder.path().join("data/dump.rdb").exists());
    client.send(b"SHUTDOWN NOSAVE\r\n").expect("sent");
    assert!(server.wait().expect("ends").success());
}

#[test]
fn a_save_evicts_no_keys() {
    let folder = folder();
    let options = ["--save", "", "--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"];
    let server = start_in(folder.path(), &[&options[..], &["--rdb-key-save-delay", "20000"]].concat());
    let mut client = server.connect();
    let value = "x".repeat(50_000);
    let set = |key: usize| vec!["SET".to_owned(), format!("k{key}"), value.clone()];
    let all: Vec<Vec<String>> = (0..1500).map(set).collect();
    for some in all.chunks(50) {
        client.pipeline(some).expect("the server answers");
    }
    assert!(!client.command(&["BGSAVE"]).is_error());
    // Copies of these values are kept for the save.
    for some in all[..700].chunks(50) {
        client.pipeline(some).expect("the server answers");
    }
    assert_eq!(persistence(&mut client, "rdb_bgsave_in_progress"), "1");
    assert_eq!(client.command(&["DBSIZE"]), Value::Integer(1500));
    assert!(!client.command(&["BGSAVE", "CANCEL"]).is_error());
    await_no_save(&mut client);
}

#[test]
fn a_folder_of_several_names_is_one() {
    let folder = folder();
    let (data, link) = (folder.path().join("data"), folder.path().join("link"));
    std::fs::create_dir(&data).expect("created");
    std::os::unix::fs::symlink(&data, &link).expect("created");
    let data = data.canonicalize().expect("there").to_str().expect("a name of text").to_owned();
    let server = start_in(Path::new(&data), &["--save", "", "--enable-protected-configs", "yes"]);
    let mut client = server.connect();
    ok(&mut client, &["SAVE"]);
    for name in [link.to_str().expect("a name of text"), &format!("{data}/../data"), &format!("{data}/.")] {
        ok(&mut client, &["CONFIG", "SET", "dir", name]);
        let dir = client.command(&["CONFIG", "GET", "dir"]).to_string();
        assert!(dir.contains(&data) && !dir.contains(".."), "{dir}");
        ok(&mut client, &["SAVE"]);
    }
    // Another folder in its place.
    std::fs::remove_dir_all(&data).expect("removed");
    std::fs::create_dir(&data).expect("created");
    ok(&mut client, &["SAVE"]);
    assert!(Path::new(&data).join("dump.rdb").exists());
}

#[test]
fn a_reload_while_the_file_is_loaded_is_refused() {
    let folder = folder();
    {
        let server = start_in(folder.path(), &["--save", ""]);
        let mut client = server.connect();
        ok(&mut client, &["DEBUG", "POPULATE", "1000"]);
        ok(&mut client, &["SAVE"]);
    }
    let saved = std::fs::read(file_of(&folder)).expect("there");
    let dir = folder.path().to_str().expect("a name of text");
    let options = ["--dir", dir, "--enable-debug-command", "yes", "--key-load-delay", "10000"];
    let server = saker::start_binary(BINARY, &options).expect("starts");
    let refusal = server.connect().command(&["DEBUG", "RELOAD"]).to_string();
    assert!(refusal.contains("LOADING"), "{refusal}");
    assert!(std::fs::read(file_of(&folder)).expect("there") == saved, "the file is as it was");
}

#[test]
fn a_reload_keeps_each_library_of_functions_once() {
    let folder = folder();
    let library = b"\xf5\x0e#!lua name=lib";
    let file = [&b"REDIS0011"[..], library, b"\xfe\0\0\x01a\x01v\xff\0\0\0\0\0\0\0\0"].concat();
    std::fs::write(file_of(&folder), file).expect("written");
    let server = start_in(folder.path(), &["--save", ""]);
    let mut client = server.connect();
    for options in [&[][..], &["NOSAVE"], &["NOSAVE", "NOFLUSH", "MERGE"]] {
        ok(&mut client, &[&["DEBUG", "RELOAD"], options].concat());
        ok(&mut client, &["SAVE"]);
        let saved = std::fs::read(file_of(&folder)).expect("there");
        assert_eq!(saved.windows(library.len()).filter(|part| part == library).count(), 1, "{options:?}");
    }
}

#[test]
fn a_save_ends_early_where_nobody_wants_it() {
    let folder = folder();
    let server = start_in(folder.path(), &["--save", "", "--rdb-key-save-delay", "1000000"]);
    let mut client = server.connect();
    ok(&mut client, &["DEBUG", "POPULATE", "100"]);
    assert!(client.command(&["BGSAVE", "CANCEL"]).is_error());
    for cancel in [&["BGSAVE", "CANCEL"][..], &["FLUSHALL"]] {
        ok(&mut client, &["DEBUG", "POPULATE", "100"]);
        assert!(!client.command(&["BGSAVE"]).is_error());
        assert!(client.command(&["BGSAVE"]).is_error(), "one at a time");
        assert!(client.command(&["SAVE"]).is_error(), "one at a time");
        assert!(!client.command(cancel).is_error());
        await_no_save(&mut client);
        assert_eq!(persistence(&mut client, "rdb_last_bgsave_status"), "ok");
        assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 0, "nothing is left");
    }
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    ok(&mut client, &["SAVE"]);
}

#[test]
fn saves_that_are_asked_for_at_once_do_not_end_all_saving() {
    let folder = folder();
    let server = start_in(folder.path(), &["--save", "", "--io-threads", "3"]);
    ok(&mut server.connect(), &["DEBUG", "POPULATE", "100"]);
    std::thread::scope(|scope| {
        for command in ["SAVE", "BGSAVE", "SAVE"] {
            let mut client = server.connect();
            // Most are rejected: only one save at a time.
            scope.spawn(move || (0..300).for_each(|_| _ = client.command(&[command])));
        }
    });
    let mut client = server.connect();
    await_no_save(&mut client);
    ok(&mut client, &["SAVE"]);
    assert!(!client.command(&["BGSAVE"]).is_error());
    await_no_save(&mut client);
}

#[test]
fn the_end_does_not_wait_for_a_save_that_waits_for_the_end() {
    let folder = folder();
    let options = ["--save", "3600", "1", "--io-threads", "4", "--rdb-key-save-delay", "1000"];
    let mut server = start_in(folder.path(), &options);
    let mut client = server.connect();
    ok(&mut client, &["DEBUG", "POPULATE", "5000"]);
    assert!(!client.command(&["BGSAVE"]).is_error());
    std::thread::scope(|scope| {
        // They request exclusive access to the keyspace all the time.
        for (a, b) in [("1", "2"), ("3", "4"), ("5", "6")] {
            let mut other = server.connect();
            scope.spawn(move || while other.request(&["SWAPDB", a, b]).is_ok() {});
        }
        std::thread::sleep(Duration::from_millis(100));
        client.send(b"SHUTDOWN\r\n").expect("sent");
        let ended = server.wait(WITHIN);
        if !matches!(ended, Ok(Some(_))) {
            signal(&server, Signal::KILL);
        }
        assert_eq!(ended.expect("ends"), Some(0), "{}", server.log());
    });
}

/// Returns the RDB versions that the peer can read and `rdb-version` can write.
pub(super) fn versions_of(peer: &mut Client) -> Vec<&'static str> {
    let Value::Bulk(text) = peer.command(&["INFO", "server"]) else { panic!("no INFO") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let version = |field: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        let mut numbers = line.split('.').map(|number| number.parse::<u32>().expect("a number"));
        Some((numbers.next()?, numbers.next()?))
    };
    match (version("valkey_version"), version("redis_version")) {
        (Some((..9, _)), _) => vec!["9", "10", "11"],
        (Some(_), _) => vec!["9", "10", "11", "80"],
        (None, Some((..7, _))) => vec!["9"],
        (None, Some((7, ..2))) => vec!["9", "10"],
        (None, Some((7, ..4))) => vec!["9", "10", "11"],
        _ => vec!["9", "10", "11", "12"],
    }
}

fn file_of(folder: &tempfile::TempDir) -> std::path::PathBuf {
    folder.path().join("dump.rdb")
}

/// Starts a peer (a real Redis or Valkey) that has loaded the snapshot in the folder.
fn peer_in(folder: &tempfile::TempDir) -> ServerProcess {
    let dir = folder.path().to_str().expect("a name of text");
    let peer = peer::start_with(&["--dir", dir]).expect("it loads the file");
    let since = Instant::now();
    while peer.connect().command(&["PING"]).is_error() {
        assert!(since.elapsed() < WITHIN, "it loads the file");
    }
    peer
}

#[test]
fn a_real_server_reads_the_file_of_each_version_and_its_file_is_read() {
    if !peer::is_available() {
        eprintln!("skipped: there is no server to compare with");
        return;
    }
    let ours = folder();
    let server = start_in(ours.path(), &["--save", ""]);
    let mut client = server.connect();
    fill(&mut client);
    let digest = client.command(&["DEBUG", "DIGEST"]).to_string();
    for version in versions_of(&mut peer_in(&folder()).connect()) {
        ok(&mut client, &["CONFIG", "SET", "rdb-version", version]);
        ok(&mut client, &["SAVE"]);
        let (theirs, back) = (folder(), folder());
        std::fs::copy(file_of(&ours), file_of(&theirs)).expect("copied");
        let peer = peer_in(&theirs);
        let mut other = peer.connect();
        assert_eq!(other.command(&["DEBUG", "DIGEST"]).to_string(), digest, "version {version}");
        ok(&mut other, &["SAVE"]);
        std::fs::copy(file_of(&theirs), file_of(&back)).expect("copied");
        let server = start_in(back.path(), &["--save", ""]);
        assert_eq!(server.connect().command(&["DEBUG", "DIGEST"]).to_string(), digest, "version {version}");
    }
}

#[test]
fn a_real_server_reads_when_fields_expire() {
    if !peer::is_available() {
        eprintln!("skipped: there is no server to compare with");
        return;
    }
    let ours = folder();
    let server = start_in(ours.path(), &["--save", ""]);
    let mut client = server.connect();
    fill_timed_hashes(&mut client);
    let versions = versions_of(&mut peer_in(&folder()).connect());
    for version in versions.into_iter().filter(|version| ["12", "80"].contains(version)) {
        ok(&mut client, &["CONFIG", "SET", "rdb-version", version]);
        ok(&mut client, &["SAVE"]);
        let theirs = folder();
        std::fs::copy(file_of(&ours), file_of(&theirs)).expect("copied");
        let peer = peer_in(&theirs);
        assert_eq!(timed_fields(&mut peer.connect()), timed_fields(&mut client), "version {version}");
    }
}

/// Creates hashes as a listpack and as a table; a third of their fields expires.
fn fill_timed_hashes(client: &mut Client) {
    for (key, count) in [("small", 9), ("big", 900)] {
        for number in 0..count {
            let (field, value) = (format!("f{number}"), number.to_string());
            client.command(&["HSET", key, &field, &value]);
            if number % 3 == 0 {
                let at_ms = (4_102_444_800_000_u64 + number).to_string();
                client.command(&["HPEXPIREAT", key, &at_ms, "FIELDS", "1", &field]);
            }
        }
    }
}

/// Returns the value and the expiry of each field of the hashes that [`fill_timed_hashes`] creates.
fn timed_fields(client: &mut Client) -> Vec<String> {
    let fields = (0..900).map(|number| format!("f{number}"));
    let keyed = ["small", "big"].into_iter().flat_map(|key| fields.clone().map(move |field| (key, field)));
    let told = keyed.map(|(key, field)| {
        let expiry = client.command(&["HPEXPIRETIME", key, "FIELDS", "1", &field]).to_string();
        format!("{key} {field} {} {expiry}", client.command(&["HGET", key, &field]))
    });
    told.collect()
}

#[test]
fn a_reload_keeps_all_that_the_version_holds() {
    let folder = folder();
    let server = start_in(folder.path(), &["--save", ""]);
    let mut client = server.connect();
    fill(&mut client);
    let digest = client.command(&["DEBUG", "DIGEST"]).to_string();
    let magics = [
        ("auto", "REDIS0011"),
        ("9", "REDIS0009"),
        ("10", "REDIS0010"),
        ("11", "REDIS0011"),
        ("12", "REDIS0012"),
        ("80", "VALKEY080"),
    ];
    let reload = |client: &mut Client, version, magic: &str| {
        ok(client, &["CONFIG", "SET", "rdb-version", version]);
        ok(client, &["DEBUG", "RELOAD"]);
        let bytes = std::fs::read(file_of(&folder)).expect("saved");
        assert!(bytes.starts_with(magic.as_bytes()), "{version}");
    };
    for (version, magic) in magics {
        reload(&mut client, version, magic);
        assert_eq!(client.command(&["DEBUG", "DIGEST"]).to_string(), digest, "version {version}");
    }
    fill_timed_hashes(&mut client);
    let fields = timed_fields(&mut client);
    for (version, magic) in [("auto", "REDIS0012"), ("12", "REDIS0012"), ("80", "VALKEY080")] {
        reload(&mut client, version, magic);
        assert_eq!(timed_fields(&mut client), fields, "version {version}");
    }
}

#[test]
fn a_save_fails_where_its_version_has_no_place_for_fields_that_expire() {
    let folder = folder();
    let server = start_in(folder.path(), &["--save", "", "--rdb-version", "11"]);
    let mut client = server.connect();
    client.command(&["HSET", "h", "f", "v", "g", "w"]);
    ok(&mut client, &["SAVE"]);
    let saved = std::fs::read(file_of(&folder)).expect("saved");
    client.command(&["HEXPIRE", "h", "1000", "FIELDS", "1", "f"]);
    for version in ["9", "10", "11"] {
        ok(&mut client, &["CONFIG", "SET", "rdb-version", version]);
        assert!(client.command(&["SAVE"]).is_error());
        assert!(client.command(&["DEBUG", "RELOAD"]).is_error());
        assert!(!client.command(&["BGSAVE"]).is_error());
        await_no_save(&mut client);
        assert_eq!(persistence(&mut client, "rdb_last_bgsave_status"), "err");
        let error = persistence(&mut client, "rdb_last_bgsave_error");
        let expected = format!("1 hash has fields that expire, which RDB version {version} does not support");
        assert!(error.starts_with(&expected), "{error}");
        assert!(server.log().contains(&expected));
    }
    assert_eq!(client.command(&["HGET", "h", "f"]).to_string(), "\"v\"", "nothing is lost");
    assert_eq!(std::fs::read(file_of(&folder)).expect("there"), saved, "the old file stays");
    assert_eq!(std::fs::read_dir(folder.path()).expect("there").count(), 1, "no temporary file is left");
    client.command(&["HPERSIST", "h", "FIELDS", "1", "f"]);
    client.command(&["BGSAVE"]);
    await_no_save(&mut client);
    assert_eq!(persistence(&mut client, "rdb_last_bgsave_status"), "ok");
    let Value::Bulk(info) = client.command(&["INFO", "persistence"]) else { panic!("no INFO") };
    assert!(!String::from_utf8_lossy(&info).contains("rdb_last_bgsave_error"));
}

/// Starts a server that cannot load its file and ends; returns its log.
fn refusal(folder: &tempfile::TempDir) -> String {
    let dir = folder.path().to_str().expect("a name of text");
    let port = testkit::process::free_port().expect("a port").to_string();
    let args = ["--port", &port, "--save", "", "--dir", dir];
    let output = std::process::Command::new(BINARY).args(args).output().expect("it runs");
    let log = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{log}");
    assert!(log.contains("Fatal error loading the DB"), "{log}");
    log
}

#[test]
fn values_of_modules_are_refused_by_key_or_left_out() {
    let folder = folder();
    // Three keys; the second one has a module's value.
    let file = b"REDIS0012\0\x01a\x01v\x07\x01m\x81\x01\x02\x03\x04\x05\x06\x07\x08\x02\x05\0\0\x01b\x01v\xff\0\0\0\0\0\0\0\0";
    std::fs::write(file_of(&folder), file).expect("written");
    let log = refusal(&folder);
    assert!(log.contains("Saker does not support a value of the module type 'AQIDBAUGB'"), "{log}");
    assert!(log.contains("key 'm'"), "{log}");
    let server = start_in(folder.path(), &["--rdb-unsupported-values", "skip"]);
    assert_eq!(server.connect().command(&["DBSIZE"]), Value::Integer(2));
    server.wait_for_log("Skipped while loading (1): a value of the module type 'AQIDBAUGB'");
}

#[test]
fn a_compressed_file_is_loaded() {
    let folder = folder();
    let plain = b"VALKEY081\0\x01a\x01v\xff\0\0\0\0\0\0\0\0";
    let frame = b"\x04\x22\x4d\x18\x40\x40\xc0";
    let block_len = (plain.len() as u32 | 1 << 31).to_le_bytes();
    let file = [&b"VCS\x01\x01\0\x01"[..], frame, &block_len, plain, &[0; 4]].concat();
    std::fs::write(file_of(&folder), &file).expect("written");
    assert_eq!(start_in(folder.path(), &[]).connect().command(&["GET", "a"]).to_string(), "\"v\"");
    std::fs::write(file_of(&folder), &file[..file.len() - 20]).expect("written");
    assert!(refusal(&folder).contains("the data ends within a value"));
}

#[test]
fn a_broken_file_is_refused_with_its_place() {
    let folder = folder();
    let path = folder.path().join("dump.rdb");
    {
        let server = start_in(folder.path(), &["--save", ""]);
        let mut client = server.connect();
        fill(&mut client);
        ok(&mut client, &["SAVE"]);
    }
    let whole = std::fs::read(&path).expect("saved");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for bytes in [&whole[..whole.len() / 3], &whole[..whole.len() - 4], &flipped, b"", b"what is this?"] {
        std::fs::write(&path, bytes).expect("written");
        refusal(&folder);
    }
}
