//! `--restore-until` and `aof-history-ttl`: data that is restored to a time, and files that are
//! kept or removed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use testkit::{Client, ServerProcess, Value, saker};

use crate::append_only::{
    WITHIN, await_rewrite, files_of, folder, kill, lay_out, manifest, names_in, ok, refusal, requests,
    start_in,
};
use crate::support::BINARY;

const ON: &[&str] = &["--appendonly", "yes", "--aof-timestamp-enabled", "yes"];

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

/// Waits until a new second begins; returns the Unix time of the second that has just ended.
fn await_next_second() -> u64 {
    let before = now_s();
    while now_s() == before {
        std::thread::sleep(Duration::from_millis(5));
    }
    before
}

fn await_true(what: &str, mut is_so: impl FnMut() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < WITHIN, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn rewrite(client: &mut Client) {
    assert!(!client.command(&["BGREWRITEAOF"]).is_error());
    await_rewrite(client);
}

/// Returns the names of the keys on `server`, sorted.
fn keys(server: &ServerProcess) -> Vec<String> {
    let mut client = server.connect();
    let mut keys = Vec::new();
    for key in ["a", "b", "c", "d", "e"] {
        if client.command(&["EXISTS", key]) == Value::Integer(1) {
            keys.push(key.to_owned());
        }
    }
    keys
}

/// Returns the contents of the manifest and of the files that it names, by their names.
fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let text = manifest(folder);
    let names = text.lines().filter_map(|line| line.split(' ').nth(1));
    let names = names.chain(["appendonly.aof.manifest"]);
    let of = |name: &str| fs::read(files_of(folder).join(name)).expect("readable");
    names.map(|name| (name.to_owned(), of(name))).collect()
}

fn words<'w>(until: &'w str, more: &[&'w str]) -> Vec<&'w str> {
    [ON, &["--restore-until", until], more].concat()
}

#[test]
fn a_flushall_is_undone_whatever_was_rewritten_and_killed_meanwhile() {
    let folder = folder();
    let server = start_in(folder.path(), &[ON, &["--aof-history-ttl", "3600"]].concat());
    let mut client = server.connect();
    ok(&mut client, &["SET", "a", "1"]);
    rewrite(&mut client);
    await_next_second();
    ok(&mut client, &["SET", "b", "1"]);
    let good = await_next_second().to_string();
    ok(&mut client, &["FLUSHALL"]);
    ok(&mut client, &["SET", "c", "1"]);
    rewrite(&mut client);
    ok(&mut client, &["SET", "d", "1"]);
    kill(server);
    let before = contents(folder.path());
    assert_eq!(before.len(), 7, "three bases with their files: {before:?}");

    // A kill while the new base is written changes nothing.
    let dir = folder.path().to_str().expect("text");
    let slow = ["--dir", dir, "--save", "", "--rdb-key-save-delay", "10000000"];
    let server = saker::start_binary(BINARY, &words(&good, &slow)).expect("starts");
    server.wait_for_log("Writing a new base");
    let is_writing =
        || names_in(&files_of(folder.path())).iter().any(|name| name.starts_with("temp-rewriteaof"));
    await_true("the base is written", is_writing);
    assert!(server.connect().command(&["GET", "a"]).to_string().contains("LOADING"));
    kill(server);
    assert_eq!(contents(folder.path()), before);
    let server = start_in(folder.path(), ON);
    assert_eq!(keys(&server), ["c", "d"], "as if nothing had been asked for");
    assert!(!is_writing(), "what the kill left is gone");
    kill(server);
    let left_out = contents(folder.path());

    // The restore.
    let server = start_in(folder.path(), &words(&good, &[]));
    let undo = undo_of(&server);
    assert_eq!(keys(&server), ["a", "b"]);
    ok(&mut server.connect(), &["SET", "e", "1"]);
    kill(server);

    // The option again, as given by a supervisor, and then without it.
    for options in [words(&good, &[]), ON.to_vec()] {
        let server = start_in(folder.path(), &options);
        assert_eq!(keys(&server), ["a", "b", "e"]);
        assert_eq!(
            server.log().contains("an earlier start already restored this time"),
            options.len() > ON.len()
        );
        let mut client = server.connect();
        ok(&mut client, &["CONFIG", "SET", "aof-history-ttl", "0"]);
        for _ in 0..2 {
            rewrite(&mut client);
        }
        kill(server);
    }
    for (name, bytes) in left_out.iter().filter(|(name, _)| !name.ends_with(".manifest")) {
        assert_eq!(&fs::read(files_of(folder.path()).join(name)).expect("kept"), bytes, "{name}");
    }

    // The undone changes are available again, and changes after the restore are not mixed with
    // them.
    let server = start_in(folder.path(), &words(&undo, &[]));
    assert_eq!(keys(&server), ["c", "d"]);
    kill(server);
    let server = start_in(folder.path(), ON);
    assert_eq!(keys(&server), ["c", "d"]);
}

/// Creates append-only files with timestamps from 1000 to 1030, in which the state at each time is
/// known.
fn lay_out_times(folder: &Path) {
    let at = |time_s: u64, lines: &[&[&str]]| {
        let select: &[&[&str]] = &[&["SELECT", "0"]];
        [format!("#TS:{time_s}\r\n").into_bytes(), requests(&[select, lines].concat())].concat()
    };
    let base = at(1000, &[&["SET", "a", "1"]]);
    let first = [at(1010, &[&["SET", "b", "1"]]), at(1020, &[&["FLUSHALL"], &["SET", "c", "1"]])].concat();
    let second = at(1030, &[&["SET", "d", "1"]]);
    lay_out(
        folder,
        &[
            ("appendonly.aof.1.base.aof", "b", &base),
            ("appendonly.aof.1.incr.aof", "i", &first),
            ("appendonly.aof.2.incr.aof", "i", &second),
        ],
    );
}

#[test]
fn each_time_has_its_state() {
    for (until, expected) in [
        ("1000", vec!["a"]),
        ("1009", vec!["a"]),
        ("1970-01-01 00:16:50", vec!["a", "b"]),
        ("1970-01-01T00:16:59Z", vec!["a", "b"]),
        ("1020", vec!["c"]),
        ("1029", vec!["c"]),
    ] {
        let folder = folder();
        lay_out_times(folder.path());
        let server = start_in(folder.path(), &words(until, &[]));
        assert_eq!(keys(&server), expected, "{until}");
        let text = manifest(folder.path());
        assert!(text.starts_with("file appendonly.aof.2.base.rdb seq 2 type b restoreduntil 10"), "{text}");
        assert_eq!(text.matches(" type h ").count(), 3, "{text}");
        assert_eq!(text.matches(" leftout 10").count(), 3, "{text}");
    }
}

#[test]
fn a_time_that_cannot_be_reached_is_refused_and_nothing_changes() {
    let folder = folder();
    lay_out_times(folder.path());
    let before = contents(folder.path());
    let far = (now_s() + 3600).to_string();
    for (until, said) in [
        (
            "999",
            "1970-01-01 00:16:39 UTC is too early: the oldest available base was written at 1970-01-01 00:16:40 UTC",
        ),
        (
            "1030",
            "no change is later than 1970-01-01 00:17:10 UTC (the last change is from 1970-01-01 00:17:10 UTC)",
        ),
        (&far, "is in the future"),
    ] {
        let log = refusal(folder.path(), &words(until, &[]));
        assert!(log.contains(said) && log.contains("Nothing was changed."), "{until}: {log}");
    }
    let off = refusal(folder.path(), &["--restore-until", "1010"]);
    assert!(off.contains("set 'appendonly yes'"), "{off}");
    assert_eq!(contents(folder.path()), before);
    assert_eq!(names_in(&files_of(folder.path())).len(), 4);
    let empty = self::folder();
    let log = refusal(empty.path(), &words("1010", &[]));
    assert!(log.contains("there is no append-only file in"), "{log}");
    for word in ["12:00", "1010.5", "2026-02-30", ""] {
        let output =
            std::process::Command::new(BINARY).args(["--restore-until", word]).output().expect("runs");
        assert_eq!(output.status.code(), Some(1));
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("give a time in UTC"), "{word}: {said}");
    }
    // A file needed for the restore was removed.
    fs::remove_file(files_of(folder.path()).join("appendonly.aof.1.incr.aof")).expect("removed");
    let log = refusal(folder.path(), &words("1010", &[]));
    assert!(log.contains("appendonly.aof.1.incr.aof is needed"), "{log}");
}

/// Returns the time that the server's log names for a further `--restore-until` that would undo the
/// restore.
fn undo_of(server: &ServerProcess) -> String {
    server.wait_for_log("Start without --restore-until from now on");
    let log = server.log();
    let undo = log.split("use --restore-until '").nth(1).and_then(|rest| rest.split('\'').next());
    undo.expect("the log says how to undo it").to_owned()
}

#[test]
fn a_restore_that_took_long_is_undone_at_the_time_that_the_log_names() {
    for kind in ["yes", "no"] {
        let folder = folder();
        lay_out_times(folder.path());
        // More than a second between the point of the base and its end.
        let slow = ["--aof-use-rdb-preamble", kind, "--rdb-key-save-delay", "800000"];
        let slow = [&slow[..], &["--aof-timestamp-enabled", "no"]].concat();
        let server = start_in(folder.path(), &words("1010", &slow));
        let undo = undo_of(&server);
        assert_eq!(keys(&server), ["a", "b"]);
        kill(server);
        let server = start_in(folder.path(), &words(&undo, &[]));
        assert_eq!(keys(&server), ["c", "d"], "base as a snapshot: {kind}");
        kill(server);
        // A completed restore is not repeated, and the log describes the present data instead.
        let server = start_in(folder.path(), &words("1010", &[]));
        assert_eq!(keys(&server), ["c", "d"]);
        assert!(server.log().contains("A later restore went back to"), "{}", server.log());
    }
}

#[test]
fn what_a_restore_left_out_is_not_taken_for_what_came_after_it() {
    let folder = folder();
    lay_out_times(folder.path());
    let server = start_in(folder.path(), &words("1010", &[]));
    undo_of(&server);
    let mut client = server.connect();
    let after = await_next_second().to_string();
    ok(&mut client, &["SET", "e", "1"]);
    // Without `aof-history-ttl` the base of the restore is removed.
    rewrite(&mut client);
    kill(server);
    let log = refusal(folder.path(), &words(&after, &[]));
    assert!(log.contains("cannot be restored: an earlier state was restored at"), "{log}");
    assert_eq!(keys(&start_in(folder.path(), ON)), ["a", "b", "e"]);
}

#[test]
fn changes_without_times_are_not_guessed_at() {
    let timed = |time_s: u64, key: &str| {
        [format!("#TS:{time_s}\r\n").into_bytes(), requests(&[&["SELECT", "0"], &["SET", key, "1"]])].concat()
    };
    let untimed = requests(&[&["SELECT", "0"], &["SET", "b", "1"]]);
    let check = |files: [&[u8]; 3], until: &str, expected: Result<&[&str], &str>| {
        let folder = folder();
        let [base, first, second] = files;
        lay_out(
            folder.path(),
            &[
                ("appendonly.aof.1.base.aof", "b", base),
                ("appendonly.aof.1.incr.aof", "i", first),
                ("appendonly.aof.2.incr.aof", "i", second),
            ],
        );
        match expected {
            Ok(expected) => assert_eq!(keys(&start_in(folder.path(), &words(until, &[]))), expected),
            Err(said) => {
                let log = refusal(folder.path(), &words(until, &[]));
                assert!(log.contains(said) && log.contains("Nothing was changed."), "{log}");
            }
        }
    };
    let later = [timed(1010, "c"), timed(1020, "d")].concat();
    let between = "changes between 1970-01-01 00:16:40 UTC and 1970-01-01 00:16:50 UTC have no time";
    check([&timed(1000, "a"), &untimed, &later], "1005", Err(between));
    check([&timed(1000, "a"), &untimed, &later], "1015", Ok(&["a", "b", "c"]));
    check([&untimed, &untimed, &untimed], "1005", Err("changes between the base and the end have no time"));
    check([&timed(1000, "a"), &later, &untimed], "1015", Ok(&["a", "c"]));
    check([&timed(1000, "a"), &later, &untimed], "1025", Err("UTC and the end have no time"));
}

#[test]
fn replaced_files_stay_for_a_time_and_leave_without_a_rewrite() {
    let folder = folder();
    let server = start_in(folder.path(), &[ON, &["--aof-history-ttl", "3600"]].concat());
    let mut client = server.connect();
    ok(&mut client, &["SET", "a", "1"]);
    rewrite(&mut client);
    rewrite(&mut client);
    let text = manifest(folder.path());
    assert_eq!(text.matches(" type h replacedat ").count(), 4, "{text}");
    ok(&mut client, &["CONFIG", "SET", "aof-disable-auto-gc", "yes"]);
    ok(&mut client, &["CONFIG", "SET", "aof-history-ttl", "1"]);
    rewrite(&mut client);
    await_next_second();
    await_next_second();
    assert_eq!(manifest(folder.path()).matches(" type h ").count(), 6);
    ok(&mut client, &["CONFIG", "SET", "aof-disable-auto-gc", "no"]);
    await_true("they leave", || !manifest(folder.path()).contains(" type h "));
    assert_eq!(names_in(&files_of(folder.path())).len(), 3, "{:?}", names_in(&files_of(folder.path())));
    rewrite(&mut client);
    kill(server);
    let server = start_in(folder.path(), ON);
    assert_eq!(keys(&server), ["a"]);
}
