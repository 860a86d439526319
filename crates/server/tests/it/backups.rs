//! Online backups (BACKUP): the restored data, the states, and the files after faults.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

use testkit::{Client, ServerProcess, Value, peer};

use crate::aof_faults::limit_files;
use crate::append_only::{
    ON, await_field, await_rewrite, digest, files_of, fill, folder, kill, names_in, ok, peer_in, persistence,
    requests, start_in,
};
use crate::persistence::versions_of;

/// Maximum time until a backup has an expected state. It is long, because syncs of other processes
/// may hold up the disk.
const WITHIN: Duration = Duration::from_secs(300);

fn backup_of(folder: &Path) -> PathBuf {
    folder.join("backupdir")
}

/// Returns a field of BACKUP STATUS, or the error that it replies with while data is loaded.
fn status(client: &mut Client, field: &str) -> String {
    let reply = client.command(&["BACKUP", "STATUS"]);
    let Value::Array(pairs) = reply else { return reply.to_string() };
    let at = pairs.iter().position(|part| part.as_bytes() == Some(field.as_bytes())).expect("the field");
    match &pairs[at + 1] {
        Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        other => other.to_string(),
    }
}

fn await_state(client: &mut Client, state: &str) {
    let since = Instant::now();
    while status(client, "state") != state {
        let (now, error) = (status(client, "state"), status(client, "error"));
        assert!(since.elapsed() < WITHIN, "{state} is expected, not {now}: {error}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until the folder of the backup is empty.
fn await_no_files(folder: &Path) {
    let since = Instant::now();
    while !names_in(&backup_of(folder)).is_empty() {
        assert!(since.elapsed() < WITHIN, "{:?} are left", names_in(&backup_of(folder)));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Starts a backup and waits for the end of its snapshot.
fn start_backup(client: &mut Client) {
    ok(client, &["BACKUP", "START"]);
    await_state(client, "incrementing");
}

/// Returns the paths of BACKUP LIST.
fn list(client: &mut Client) -> Vec<PathBuf> {
    let Value::Array(paths) = client.command(&["BACKUP", "LIST"]) else { panic!("no array") };
    let text = |path: &Value| String::from_utf8_lossy(path.as_bytes().expect("text")).into_owned();
    paths.iter().map(|path| PathBuf::from(text(path))).collect()
}

/// Copies the files of BACKUP LIST into the folder of the append-only files below a new folder.
fn copy_files(client: &mut Client) -> tempfile::TempDir {
    let restored = folder();
    fs::create_dir(files_of(restored.path())).expect("created");
    let paths = list(client);
    assert_eq!(paths.len(), 3, "{paths:?}");
    for path in &paths {
        assert!(path.is_absolute());
        let name = path.file_name().expect("a file");
        fs::copy(path, files_of(restored.path()).join(name)).expect("copied");
    }
    restored
}

/// Starts a server with a copy of the files of BACKUP LIST.
fn restore(client: &mut Client) -> (tempfile::TempDir, ServerProcess) {
    let restored = copy_files(client);
    let server = start_in(restored.path(), ON);
    (restored, server)
}

fn error(client: &mut Client, words: &[&str], part: &str) {
    let reply = client.command(words);
    assert!(reply.is_error() && reply.to_string().contains(part), "{words:?}: {reply}");
}

/// A guard that sets its flag when it is dropped, so that the writers end also after a failed
/// check.
struct SetAtEnd<'s>(&'s AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// The progress of a writer: the number of the last transaction that it has sent, and of the last
/// one that was acknowledged.
struct Progress {
    sent: AtomicI64,
    acknowledged: AtomicI64,
}

impl Progress {
    const fn new() -> Self {
        Self { sent: AtomicI64::new(0), acknowledged: AtomicI64::new(0) }
    }
}

/// Runs transactions until `is_over`. Each adds 1 to two counters in two databases, and changes
/// other keys.
fn write_until(server: &ServerProcess, number: usize, progress: &Progress, is_over: &AtomicBool) {
    let mut client = server.connect();
    let name = |prefix: &str| format!("{prefix}{number}");
    while !is_over.load(SeqCst) {
        let count = (progress.sent.fetch_add(1, SeqCst) + 1).to_string();
        ok(&mut client, &["MULTI"]);
        for words in [
            &["SELECT", "0"][..],
            &["INCR", &name("left")],
            &["RPUSH", &name("list"), &count],
            &["HSET", &name("hash"), &count, &count],
            &["SELECT", "3"],
            &["ZADD", &name("zset"), &count, &count],
            &["XADD", &name("stream"), "MAXLEN", "100", "*", "count", &count],
            &["INCR", &name("right")],
        ] {
            assert_eq!(client.command(words).to_string(), "QUEUED", "{words:?}");
        }
        assert!(!client.command(&["EXEC"]).is_error());
        progress.acknowledged.fetch_add(1, SeqCst);
    }
}

fn count(client: &mut Client, db: &str, key: &str) -> i64 {
    ok(client, &["SELECT", db]);
    match client.command(&["GET", key]) {
        Value::Bulk(text) => String::from_utf8_lossy(&text).parse().expect("a number"),
        _ => 0,
    }
}

/// The options of the servers that are backed up.
const MODES: [[&str; 4]; 4] = [
    ["--appendonly", "no", "--appendfsync", "everysec"],
    ["--appendonly", "no", "--appendfsync", "always"],
    ["--appendonly", "yes", "--appendfsync", "everysec"],
    ["--appendonly", "yes", "--appendfsync", "always"],
];

/// Rewrites the append-only file or saves a snapshot.
fn rewrite(client: &mut Client, is_appended: bool) {
    if is_appended {
        assert!(!client.command(&["BGREWRITEAOF"]).is_error());
        await_rewrite(client);
    } else {
        ok(client, &["SAVE"]);
    }
}

#[test]
fn a_backup_restores_exactly_the_data_of_its_seal() {
    for mode in MODES {
        let is_appended = mode[1] == "yes";
        let folder = folder();
        let server = start_in(folder.path(), &mode);
        let mut client = server.connect();
        fill(&mut client);
        ok(&mut client, &["FUNCTION", "FLUSH"]);
        let library = "#!lua name=lib\nredis.register_function('f', function() return 1 end)";
        assert!(!client.command(&["FUNCTION", "LOAD", library]).is_error());
        let (progress, is_over) = ([const { Progress::new() }; 2], AtomicBool::new(false));
        std::thread::scope(|scope| {
            let end = SetAtEnd(&is_over);
            for (number, progress) in progress.iter().enumerate() {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || write_until(server, number, progress, is_over));
            }
            start_backup(&mut client);
            rewrite(&mut client, is_appended);
            ok(&mut client, &["SELECT", "9"]);
            ok(&mut client, &["FLUSHDB"]);
            ok(&mut client, &["SET", "behind", "1"]);
            ok(&mut client, &["SWAPDB", "0", "5"]);
            rewrite(&mut client, is_appended);
            drop(end);
        });
        let expected = digest(&mut client);
        ok(&mut client, &["BACKUP", "SEAL"]);
        ok(&mut client, &["SET", "later", "1"]);
        rewrite(&mut client, is_appended);
        let (_restored, copy) = restore(&mut client);
        let mut reader = copy.connect();
        assert_eq!(digest(&mut reader), expected, "{mode:?}");
        assert_eq!(reader.command(&["FCALL", "f", "0"]), Value::Integer(1));
        assert_eq!(persistence(&mut client, "aof_enabled"), if is_appended { "1" } else { "0" });
        ok(&mut client, &["BACKUP", "CLEANUP"]);
        assert_eq!(names_in(&backup_of(folder.path())), [""; 0]);
        let has_files = files_of(folder.path()).exists();
        assert_eq!(has_files, is_appended, "the backup leaves no append-only file: {mode:?}");
    }
}

#[test]
fn a_seal_under_load_contains_whole_transactions_and_all_acknowledged_ones() {
    for mode in MODES {
        let folder = folder();
        let server = start_in(folder.path(), &mode);
        let mut client = server.connect();
        let (progress, is_over) = ([const { Progress::new() }; 2], AtomicBool::new(false));
        std::thread::scope(|scope| {
            let end = SetAtEnd(&is_over);
            for (number, progress) in progress.iter().enumerate() {
                let (server, is_over) = (&server, &is_over);
                scope.spawn(move || write_until(server, number, progress, is_over));
            }
            for round in 0..3 {
                start_backup(&mut client);
                let before = progress.each_ref().map(|it| it.acknowledged.load(SeqCst));
                ok(&mut client, &["BACKUP", "SEAL"]);
                let after = progress.each_ref().map(|it| it.sent.load(SeqCst));
                let (_restored, copy) = restore(&mut client);
                let mut reader = copy.connect();
                await_field(&mut reader, "loading", "0");
                for number in 0..progress.len() {
                    let left = count(&mut reader, "0", &format!("left{number}"));
                    let right = count(&mut reader, "3", &format!("right{number}"));
                    let is_due = (before[number]..=after[number]).contains(&left);
                    assert!(is_due && left == right, "{mode:?} {round}: {before:?} {left} {right} {after:?}");
                }
                ok(&mut client, &["BACKUP", "CLEANUP"]);
            }
            drop(end);
        });
    }
}

#[test]
fn a_real_server_restores_a_backup() {
    if !peer::is_available() {
        eprintln!("skipped: there is no server to compare with");
        return;
    }
    let scratch = folder();
    let versions = versions_of(&mut peer_in(scratch.path(), &[]).connect());
    let version = if versions.contains(&"11") { "11" } else { versions[versions.len() - 1] };
    let folder = folder();
    let server = start_in(folder.path(), &["--rdb-version", version]);
    let mut client = server.connect();
    fill(&mut client);
    start_backup(&mut client);
    ok(&mut client, &["SELECT", "9"]);
    ok(&mut client, &["SET", "late", "1"]);
    let expected = digest(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    let restored = copy_files(&mut client);
    assert_eq!(digest(&mut peer_in(restored.path(), &[]).connect()), expected);
}

#[test]
fn a_flush_during_the_snapshot_is_part_of_the_backup() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    for number in 0..20 {
        ok(&mut client, &["SET", &format!("k{number}"), "1"]);
    }
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "2000000000"]);
    ok(&mut client, &["BACKUP", "START"]);
    assert_eq!(status(&mut client, "state"), "snapshotting");
    assert_eq!(persistence(&mut client, "backup_in_progress"), "1");
    assert_eq!(persistence(&mut client, "rdb_bgsave_in_progress"), "0");
    assert!(list(&mut client).is_empty());
    ok(&mut client, &["FLUSHALL"]);
    ok(&mut client, &["SET", "after", "1"]);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    await_state(&mut client, "incrementing");
    let expected = digest(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    assert_eq!(persistence(&mut client, "backup_in_progress"), "0");
    let (_restored, copy) = restore(&mut client);
    assert_eq!(digest(&mut copy.connect()), expected);
}

#[test]
fn changes_of_databases_and_functions_during_the_snapshot_are_part_of_the_backup() {
    for mode in [MODES[0], MODES[2]] {
        let folder = folder();
        let server = start_in(folder.path(), &mode);
        let mut client = server.connect();
        fill(&mut client);
        ok(&mut client, &["FUNCTION", "FLUSH"]);
        let library = |name: &str, result: u8| {
            let body = format!("redis.register_function('{name}', function() return {result} end)");
            format!("#!lua name=lib_{name}\n{body}")
        };
        assert!(!client.command(&["FUNCTION", "LOAD", &library("old", 1)]).is_error());
        assert!(!client.command(&["FUNCTION", "LOAD", &library("gone", 1)]).is_error());
        ok(&mut client, &["SELECT", "3"]);
        ok(&mut client, &["SET", "flushed", "1"]);
        ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "2000000000"]);
        ok(&mut client, &["BACKUP", "START"]);
        ok(&mut client, &["SWAPDB", "0", "9"]);
        ok(&mut client, &["SELECT", "9"]);
        assert!(!client.command(&["DEL", "s1", "l2", "h3"]).is_error());
        ok(&mut client, &["SET", "swapped", "1"]);
        ok(&mut client, &["SWAPDB", "9", "5"]);
        ok(&mut client, &["SELECT", "3"]);
        ok(&mut client, &["FLUSHDB"]);
        ok(&mut client, &["SET", "after", "1"]);
        ok(&mut client, &["SELECT", "0"]);
        ok(&mut client, &["FLUSHDB", "ASYNC"]);
        ok(&mut client, &["SET", "after", "2"]);
        ok(&mut client, &["SWAPDB", "0", "3"]);
        for (name, result) in [("old", 2), ("new", 3)] {
            assert!(!client.command(&["FUNCTION", "LOAD", "REPLACE", &library(name, result)]).is_error());
        }
        ok(&mut client, &["FUNCTION", "DELETE", "lib_gone"]);
        assert_eq!(status(&mut client, "state"), "snapshotting");
        ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
        await_state(&mut client, "incrementing");
        let expected = digest(&mut client);
        ok(&mut client, &["BACKUP", "SEAL"]);
        let (_restored, copy) = restore(&mut client);
        let mut reader = copy.connect();
        assert_eq!(digest(&mut reader), expected, "{mode:?}");
        for (name, result) in [("old", 2), ("new", 3)] {
            assert_eq!(reader.command(&["FCALL", name, "0"]), Value::Integer(result), "{name}");
        }
        error(&mut reader, &["FCALL", "gone", "0"], "Function not found");
    }
}

#[test]
fn concurrent_requests_leave_a_usable_backup() {
    const REFUSALS: [&str; 6] = [
        "A backup is already in progress",
        "A sealed backup exists",
        "No backup ready to seal",
        "No backup in progress",
        "Backup is in progress",
        "The backup has failed: aborted by user",
    ];
    let folder = folder();
    let server = start_in(folder.path(), ON);
    let (progress, is_over) = (Progress::new(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let end = SetAtEnd(&is_over);
        let (server, is_over, progress) = (&server, &is_over, &progress);
        scope.spawn(move || write_until(server, 0, progress, is_over));
        let clients: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut client, mut rng) = (server.connect(), testkit::Rng::new(seed));
                    for _ in 0..100 {
                        let subcommand = *rng.pick(&["START", "START", "SEAL", "SEAL", "ABORT", "CLEANUP"]);
                        let reply = client.command(&["BACKUP", subcommand]).to_string();
                        let is_refused = REFUSALS.iter().any(|refusal| reply.contains(refusal));
                        assert!(reply == "OK" || is_refused, "{subcommand}: {reply}");
                        if rng.percent(10) {
                            // It fails during another SAVE.
                            let _ = client.command(&["SAVE"]);
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("all replies are expected ones");
        }
        drop(end);
    });
    let mut client = server.connect();
    // A backup may be in any state.
    let _ = client.command(&["BACKUP", "ABORT"]);
    ok(&mut client, &["BACKUP", "CLEANUP"]);
    assert_eq!(status(&mut client, "state"), "idle");
    assert_eq!(names_in(&backup_of(folder.path())), [""; 0]);
    start_backup(&mut client);
    let expected = digest(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    let (_restored, copy) = restore(&mut client);
    assert_eq!(digest(&mut copy.connect()), expected);
}

#[test]
fn a_backup_waits_for_a_save_and_can_be_aborted_in_each_state() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    ok(&mut client, &["SET", "k", "1"]);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "2000000000"]);
    assert!(!client.command(&["BGSAVE"]).is_error());
    for _ in 0..2 {
        ok(&mut client, &["BACKUP", "START"]);
        assert_eq!(status(&mut client, "state"), "pending");
        ok(&mut client, &["BACKUP", "ABORT"]);
        assert_eq!(names_in(&backup_of(folder.path())), [""; 0]);
    }
    ok(&mut client, &["BACKUP", "START"]);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    await_state(&mut client, "incrementing");
    let check_aborted = |client: &mut Client| {
        ok(client, &["BACKUP", "ABORT"]);
        assert_eq!(
            (status(client, "state"), status(client, "error")),
            ("failed".into(), "aborted by user".into())
        );
        assert_eq!(names_in(&backup_of(folder.path())), [""; 0]);
    };
    check_aborted(&mut client);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "2000000000"]);
    ok(&mut client, &["BACKUP", "START"]);
    assert_eq!(status(&mut client, "state"), "snapshotting");
    check_aborted(&mut client);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    start_backup(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    ok(&mut client, &["BACKUP", "CLEANUP"]);
    assert_eq!(
        (status(&mut client, "state"), status(&mut client, "start_time")),
        ("idle".into(), "(integer) 0".into())
    );
}

#[test]
fn foreign_files_are_refused_and_stay() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    fs::create_dir(backup_of(folder.path())).expect("created");
    fs::write(backup_of(folder.path()).join("appendonly.aof.1.base.rdb"), "mine").expect("written");
    error(&mut client, &["BACKUP", "START"], "is not empty");
    assert_eq!(status(&mut client, "state"), "idle");
    ok(&mut client, &["BACKUP", "CLEANUP"]);
    assert_eq!(names_in(&backup_of(folder.path())), ["appendonly.aof.1.base.rdb"]);
    fs::remove_dir_all(backup_of(folder.path())).expect("removed");
    std::os::unix::fs::symlink("nowhere", backup_of(folder.path())).expect("created");
    error(&mut client, &["BACKUP", "START"], "No such file or directory");
    fs::remove_file(backup_of(folder.path())).expect("removed");
    fs::create_dir(files_of(folder.path())).expect("created");
    std::os::unix::fs::symlink("appendonlydir", backup_of(folder.path())).expect("created");
    error(&mut client, &["BACKUP", "START"], "the folder of the append-only files");
    error(&mut client, &["CONFIG", "SET", "backupdirname", "other"], "immutable");
}

#[test]
fn files_of_other_programs_with_the_names_of_a_backup_stay() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    ok(&mut client, &["SET", "k", "1"]);
    let manifest = backup_of(folder.path()).join("appendonly.aof.manifest");
    let base = backup_of(folder.path()).join("appendonly.aof.2.base.rdb");
    start_backup(&mut client);
    fs::write(&manifest, "mine").expect("written");
    error(&mut client, &["BACKUP", "SEAL"], "another program created appendonly.aof.manifest");
    assert_eq!(status(&mut client, "state"), "failed");
    ok(&mut client, &["BACKUP", "CLEANUP"]);
    assert_eq!(names_in(&backup_of(folder.path())), ["appendonly.aof.manifest"]);
    assert_eq!(fs::read(&manifest).expect("read"), b"mine");
    error(&mut client, &["BACKUP", "START"], "is not empty");
    fs::remove_file(&manifest).expect("removed");
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "2000000000"]);
    ok(&mut client, &["BACKUP", "START"]);
    fs::write(&base, "mine").expect("written");
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    await_state(&mut client, "failed");
    ok(&mut client, &["BACKUP", "CLEANUP"]);
    assert_eq!(names_in(&backup_of(folder.path())), ["appendonly.aof.2.base.rdb"]);
    assert_eq!(fs::read(&base).expect("read"), b"mine");
}

#[test]
fn a_cancelled_save_and_a_refused_shutdown_leave_the_snapshot_of_a_backup() {
    let folder = folder();
    let server = start_in(folder.path(), &["--rdb-key-save-delay", "2000000000"]);
    let mut client = server.connect();
    ok(&mut client, &["SET", "k", "1"]);
    ok(&mut client, &["BACKUP", "START"]);
    error(&mut client, &["BGSAVE", "CANCEL"], "not in progress or scheduled");
    assert_eq!(client.command(&["BGSAVE", "SCHEDULE"]).to_string(), "Background saving scheduled");
    let reply = client.command(&["BGSAVE", "CANCEL"]);
    assert_eq!(reply.to_string(), "Scheduled background saving cancelled");
    // The server does not end before the append-only file has its first base.
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    error(&mut client, &["SHUTDOWN", "NOSAVE"], "Errors trying to SHUTDOWN");
    assert_eq!(status(&mut client, "state"), "snapshotting");
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    await_state(&mut client, "incrementing");
    let expected = digest(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    let (_restored, copy) = restore(&mut client);
    assert_eq!(digest(&mut copy.connect()), expected);
    assert!(!folder.path().join("dump.rdb").exists());
}

#[test]
fn a_reload_or_the_last_save_of_a_server_ends_the_snapshot_of_a_backup() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    for number in 0..20 {
        ok(&mut client, &["SET", &format!("k{number}"), "1"]);
    }
    ok(&mut client, &["SAVE"]);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "2000000000"]);
    ok(&mut client, &["BACKUP", "START"]);
    ok(&mut client, &["DEBUG", "RELOAD", "NOSAVE", "NOFLUSH", "MERGE"]);
    await_state(&mut client, "failed");
    await_no_files(folder.path());
    // A directory has the name of the temporary file, so the last save fails, and the server
    // continues.
    let temporary = folder.path().join(format!("temp-{}.rdb", server.pid()));
    fs::create_dir(&temporary).expect("created");
    ok(&mut client, &["BACKUP", "START"]);
    ok(&mut client, &["CONFIG", "SET", "rdb-key-save-delay", "0"]);
    error(&mut client, &["SHUTDOWN", "SAVE"], "Errors trying to SHUTDOWN");
    fs::remove_dir(&temporary).expect("removed");
    // The snapshot had ended before, or was cancelled.
    let _ = client.command(&["BACKUP", "ABORT"]);
    ok(&mut client, &["BACKUP", "CLEANUP"]);
    assert_eq!(names_in(&backup_of(folder.path())), [""; 0]);
}

#[test]
fn readers_of_tests_and_the_reader_of_a_backup_leave_each_other_alone() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    start_backup(&mut client);
    ok(&mut client, &["DEBUG", "CHANGE-LOG", "OFF"]);
    // It would get the place of a detached reader.
    let changes = folder.path().join("changes");
    ok(&mut client, &["DEBUG", "CHANGE-LOG", "FILE", changes.to_str().expect("text")]);
    ok(&mut client, &["SET", "k", "1"]);
    let expected = digest(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    ok(&mut client, &["SET", "later", "1"]);
    let text = fs::read_to_string(&changes).expect("read");
    assert!(text.contains("later"), "the reader of the test is still attached: {text:?}");
    let (_restored, copy) = restore(&mut client);
    assert_eq!(digest(&mut copy.connect()), expected);
}

#[test]
fn a_killed_backup_is_reported_and_never_loaded() {
    for sealed in [false, true] {
        let folder = folder();
        let server = start_in(folder.path(), &[]);
        let mut client = server.connect();
        ok(&mut client, &["SET", "k", "1"]);
        start_backup(&mut client);
        if sealed {
            ok(&mut client, &["BACKUP", "SEAL"]);
        }
        kill(server);
        let left = names_in(&backup_of(folder.path()));
        assert_eq!(left.len(), if sealed { 3 } else { 2 }, "{left:?}");
        let server = start_in(folder.path(), ON);
        assert!(server.log().contains("perhaps of an earlier backup"), "{}", server.log());
        let mut client = server.connect();
        assert_eq!(client.command(&["DBSIZE"]), Value::Integer(0));
        assert_eq!(status(&mut client, "state"), "idle");
        error(&mut client, &["BACKUP", "START"], "is not empty");
        ok(&mut client, &["BACKUP", "CLEANUP"]);
        assert_eq!(names_in(&backup_of(folder.path())), left);
    }
}

#[test]
fn a_full_disk_fails_the_backup_and_no_write() {
    for at_snapshot in [true, false] {
        let folder = folder();
        let server = start_in(folder.path(), &["--rdbcompression", "no"]);
        let mut client = server.connect();
        ok(&mut client, &["SET", "k", &"x".repeat(if at_snapshot { 200_000 } else { 1 })]);
        limit_files(&server, Some(100_000));
        ok(&mut client, &["BACKUP", "START"]);
        if !at_snapshot {
            await_state(&mut client, "incrementing");
            for number in 0..50 {
                ok(&mut client, &["SET", &format!("k{number}"), &"x".repeat(3000)]);
            }
        }
        await_state(&mut client, "failed");
        assert!(status(&mut client, "error").contains("File too large"), "{}", status(&mut client, "error"));
        error(&mut client, &["BACKUP", "SEAL"], "No backup ready to seal");
        await_no_files(folder.path());
        limit_files(&server, None);
        start_backup(&mut client);
        let expected = digest(&mut client);
        ok(&mut client, &["BACKUP", "SEAL"]);
        let (_restored, copy) = restore(&mut client);
        assert_eq!(digest(&mut copy.connect()), expected);
    }
}

#[test]
fn a_backup_that_fails_during_its_snapshot_blocks_no_client() {
    for housekeeper in ["0", "1"] {
        let folder = folder();
        let server = start_in(folder.path(), &["--rdb-key-save-delay", "2000000000"]);
        let mut client = server.connect();
        for number in 0..20 {
            ok(&mut client, &["SET", &format!("k{number}"), "1"]);
        }
        limit_files(&server, Some(20_000));
        // Without its rounds, only the next request can end the snapshot.
        ok(&mut client, &["DEBUG", "PAUSE-CRON", housekeeper]);
        for words in [["BACKUP", "START"], ["BACKUP", "CLEANUP"]] {
            ok(&mut client, &["BACKUP", "START"]);
            assert_eq!(status(&mut client, "state"), "snapshotting");
            ok(&mut client, &["SET", "big", &"x".repeat(30_000)]);
            await_state(&mut client, "failed");
            ok(&mut client, &words);
            for mut other in [(); 8].map(|()| server.connect()) {
                assert_eq!(other.command(&["PING"]).to_string(), "PONG");
            }
            if words[1] == "START" {
                ok(&mut client, &["BACKUP", "ABORT"]);
            }
            assert_eq!(names_in(&backup_of(folder.path())), [""; 0]);
        }
    }
}

#[test]
fn a_backup_fails_if_the_data_is_replaced() {
    let (folder, primary_folder) = (folder(), folder());
    let (server, primary) = (start_in(folder.path(), &[]), start_in(primary_folder.path(), &[]));
    let mut client = server.connect();
    ok(&mut client, &["SET", "k", "1"]);
    start_backup(&mut client);
    ok(&mut client, &["DEBUG", "RELOAD"]);
    assert_eq!(status(&mut client, "error"), "the data was loaded again by DEBUG");
    await_no_files(folder.path());
    for load in ["disabled", "swapdb"] {
        ok(&mut client, &["CONFIG", "SET", "repl-diskless-load", load]);
        // With a write of its own it cannot continue without a snapshot.
        ok(&mut client, &["SET", "own", "1"]);
        start_backup(&mut client);
        ok(&mut client, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        await_state(&mut client, "failed");
        assert_eq!(status(&mut client, "error"), "a snapshot of the primary replaced the data", "{load}");
        await_no_files(folder.path());
        ok(&mut client, &["REPLICAOF", "NO", "ONE"]);
        ok(&mut primary.connect(), &["SET", load, "1"]);
    }
}

#[test]
fn a_replica_can_be_backed_up() {
    let (folder, primary_folder) = (folder(), folder());
    let (server, primary) = (start_in(folder.path(), &[]), start_in(primary_folder.path(), &[]));
    let (mut client, mut writer) = (server.connect(), primary.connect());
    ok(&mut client, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
    let copied = |client: &mut Client, key: &str| {
        let since = Instant::now();
        while client.command(&["EXISTS", key]) != Value::Integer(1) {
            assert!(since.elapsed() < WITHIN, "{key} arrives");
        }
    };
    ok(&mut writer, &["SET", "early", "1"]);
    copied(&mut client, "early");
    start_backup(&mut client);
    ok(&mut writer, &["SET", "late", "1"]);
    copied(&mut client, "late");
    let expected = digest(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    let (_restored, copy) = restore(&mut client);
    assert_eq!(digest(&mut copy.connect()), expected);
}

#[test]
fn a_moved_backup_can_be_cleaned_up() {
    let folder = folder();
    let server = start_in(folder.path(), ON);
    let mut client = server.connect();
    start_backup(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    fs::rename(backup_of(folder.path()), folder.path().join("kept")).expect("moved");
    ok(&mut client, &["BACKUP", "CLEANUP"]);
    assert_eq!(names_in(&folder.path().join("kept")).len(), 3);
    start_backup(&mut client);
    fs::remove_dir_all(backup_of(folder.path())).expect("removed");
    ok(&mut client, &["BACKUP", "ABORT"]);
    start_backup(&mut client);
}

#[test]
fn a_sealed_backup_is_removed_after_its_time() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    start_backup(&mut client);
    ok(&mut client, &["BACKUP", "SEAL"]);
    ok(&mut client, &["CONFIG", "SET", "backup-sealed-ttl", "1"]);
    await_state(&mut client, "idle");
    assert_eq!(names_in(&backup_of(folder.path())), [""; 0]);
}

#[test]
fn requests_that_work_on_files_are_refused_in_transactions_and_scripts() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    for subcommand in ["START", "SEAL", "ABORT", "CLEANUP"] {
        ok(&mut client, &["MULTI"]);
        error(&mut client, &["BACKUP", subcommand], "not allowed inside a transaction");
        error(&mut client, &["EXEC"], "EXECABORT");
        let script = format!("return redis.call('BACKUP', '{subcommand}')");
        error(&mut client, &["EVAL", &script, "0"], "not allowed from script");
    }
    ok(&mut client, &["MULTI"]);
    for subcommand in ["STATUS", "LIST"] {
        assert_eq!(client.command(&["BACKUP", subcommand]).to_string(), "QUEUED");
    }
    assert!(!client.command(&["EXEC"]).is_error());
    assert_eq!(status(&mut client, "state"), "idle");
}

#[test]
fn a_request_ends_before_the_next_one_of_its_client_and_without_its_client() {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let (mut client, mut other) = (server.connect(), server.connect());
    start_backup(&mut client);
    // Requests that follow in the pipeline run after its end.
    client
        .send(&requests(&[&["BACKUP", "SEAL"][..], &["SET", "after", "1"], &["BACKUP", "STATUS"]]))
        .expect("sent");
    await_state(&mut other, "sealed");
    for reply in ["OK", "OK"] {
        assert_eq!(client.read().expect("a reply").to_string(), reply);
    }
    assert!(client.read().expect("a reply").to_string().contains("sealed"));
    let stats = other.command(&["INFO", "commandstats"]).to_string();
    for counted in ["cmdstat_backup|start:calls=1,", "cmdstat_backup|seal:calls=1,"] {
        assert!(stats.contains(counted), "{counted} is expected in {stats}");
    }
    assert!(!stats.contains("cmdstat_backup:"), "{stats}");
    let (_restored, copy) = restore(&mut client);
    assert_eq!(copy.connect().command(&["EXISTS", "after"]), Value::Integer(0));
    // A client that leaves does not end its request.
    client.send(&requests(&[&["BACKUP", "CLEANUP"]])).expect("sent");
    drop(client);
    await_state(&mut other, "idle");
    await_no_files(folder.path());
}
