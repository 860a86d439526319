//! Tests of `saker-check aof`: its reports on good files and on each kind of damage, its fixes, and
//! its copies of an earlier state.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_saker-check");
const INCR: &str = "appendonly.aof.2.incr.aof";
const MANIFEST: &str = "appendonly.aof.manifest";

/// Copies the append-only files that `server` wrote into a temporary folder.
fn folder_of(server: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../persist/tests/files/aof").join(server);
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}

fn redis() -> TempDir {
    folder_of("redis-8.0.6")
}

fn incr(folder: &TempDir) -> PathBuf {
    folder.path().join(INCR)
}

/// Reads the file at `path`, changes its bytes by `change`, and writes them back.
fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Returns the offset of the first occurrence of `part` in a file.
fn place_of(path: &Path, part: &[u8]) -> usize {
    let bytes = fs::read(path).unwrap();
    bytes.windows(part.len()).position(|window| window == part).unwrap()
}

fn run(path: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).arg("aof").arg(path).args(arguments).output().unwrap()
}

/// Returns the standard output of saker-check, or its standard error if that is empty, and its exit
/// status.
fn text(output: Output) -> (String, i32) {
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    (String::from_utf8(text).unwrap(), output.status.code().unwrap())
}

fn json(path: &Path) -> Value {
    let output = run(path, &["--json"]);
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(if report["is_good"] == true { 0 } else { 1 }));
    report
}

/// Checks the append-only file at `path` and returns its only problem: the file, the offset, the
/// description and the advice.
fn problem(path: &Path) -> (String, Option<u64>, String, String) {
    let report = json(path);
    let problems = report["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{report:#}");
    let word = |name: &str| problems[0][name].as_str().unwrap().to_owned();
    (word("file"), problems[0]["file_offset"].as_u64(), word("what"), word("advice"))
}

#[test]
fn files_of_real_servers_are_good_and_counted() {
    for server in ["redis-8.0.2", "redis-8.0.6", "valkey-8.1.1", "valkey-9.1.2"] {
        let folder = folder_of(server);
        let report = json(folder.path());
        assert_eq!((&report["commands"], &report["transactions"]), (&22.into(), &2.into()), "{server}");
        assert_eq!((&report["manifest"], &report["problems"]), (&MANIFEST.into(), &Value::Array(vec![])));
        let states: Vec<_> = report["files"].as_array().unwrap().iter().map(|of| &of["state"]).collect();
        assert_eq!(states, ["not-loaded", "not-loaded", "good", "good"]);
        let base = &report["files"][2];
        assert_eq!((&base["rdb"]["total"]["keys"], &base["aof_len_bytes"]), (&3.into(), &0.into()));
        let last = &report["files"][3];
        let times = ["first_time_s", "last_time_s"].map(|name| last[name].as_i64().unwrap());
        assert_eq!(times[1] - times[0], 2);
        let most = &report["keys_touched_most"][0];
        assert_eq!((&most["key"], &most["count"], &most["db"]), (&"s".into(), &2.into(), &0.into()));
        let list = report["by_command"].as_array().unwrap();
        let sets = list.iter().find(|of| of["name"] == "SET").unwrap();
        assert_eq!(sets["count"], 7);
        for path in [folder.path().join(MANIFEST), incr(&folder)] {
            let (text, status) = text(run(&path, &[]));
            assert_eq!(status, 0, "{text}");
            assert!(text.contains("\nThe append-only file is good: 22 commands read in "), "{text}");
        }
    }
}

#[test]
fn the_folder_of_the_data_is_as_good_as_the_one_within_it() {
    let folder = redis();
    let data = tempfile::tempdir().unwrap();
    fs::rename(folder.path(), data.path().join("appendonlydir")).unwrap();
    assert_eq!(json(data.path())["commands"], 22);
    fs::create_dir(folder.path()).unwrap();
    let (text, status) = text(run(folder.path(), &[]));
    assert_eq!(status, 2);
    assert!(text.contains("has no manifest of an append-only file"), "{text}");
}

#[test]
fn a_file_that_is_not_in_the_manifest_is_named() {
    let folder = redis();
    fs::write(folder.path().join("appendonly.aof.3.incr.aof"), "").unwrap();
    let (text, status) = text(run(folder.path(), &[]));
    assert!(text.contains("NOTE: appendonly.aof.3.incr.aof is not in the manifest"), "{text}");
    assert_eq!(status, 0);
}

#[test]
fn a_torn_tail_is_cut_off_when_confirmed() {
    let folder = redis();
    let path = incr(&folder);
    let good = place_of(&path, b"*3\r\n$3\r\nset\r\n$10\r\nafterflush");
    change(&path, |bytes| bytes.truncate(bytes.len() - 3));
    let (file, offset, what, advice) = problem(folder.path());
    assert_eq!((&file[..], offset), (INCR, Some(good as u64)));
    assert_eq!(what, "the file ends within the command that begins here");
    assert!(advice.contains("aof-load-truncated yes (the default) cuts off 34 bytes"), "{advice}");

    for answer in ["\n", "n\n", ""] {
        let mut child = Command::new(BINARY)
            .args(["aof", "--fix"])
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(answer.as_bytes()).unwrap();
        let (text, status) = text(child.wait_with_output().unwrap());
        assert!(text.ends_with("Continue? [y/N]: Aborting...\n"), "{text}");
        assert_eq!(status, 1);
    }
    let (text, status) = text(run(folder.path(), &["--fix", "--yes"]));
    assert!(text.ends_with("Successfully truncated AOF appendonly.aof.2.incr.aof\n"), "{text}");
    assert_eq!((status, fs::metadata(&path).unwrap().len()), (0, good as u64));
    assert_eq!(json(folder.path())["commands"], 21);
}

#[test]
fn a_transaction_without_its_end_is_cut_off_whole() {
    let folder = redis();
    let path = incr(&folder);
    let (multi, exec) = (place_of(&path, b"*1\r\n$5\r\nMULTI"), place_of(&path, b"*1\r\n$4\r\nEXEC"));
    change(&path, |bytes| bytes.truncate(exec));
    let (_, offset, what, _) = problem(folder.path());
    assert_eq!(offset, Some(multi as u64));
    assert_eq!(what, "the file ends within the transaction that begins here");
    run(&path, &["--fix", "--yes"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), multi as u64);
}

#[test]
fn damage_in_the_middle_is_told_with_what_would_be_lost() {
    let folder = redis();
    let path = incr(&folder);
    let place = place_of(&path, b"*3\r\n$3\r\nset\r\n$5\r\nlater");
    change(&path, |bytes| bytes[place + 4] = b'x');
    let (_, offset, what, advice) = problem(folder.path());
    assert_eq!(offset, Some(place as u64));
    assert_eq!(what, "an argument must begin with '$' but begins with 'x'");
    assert!(advice.contains("with at least 8 whole commands"), "{advice}");
    let (text, status) = text(run(&path, &["--fix", "--yes"]));
    assert!(text.contains("Successfully truncated"), "{text}");
    // The annotation before the cut stays in the file. That is not an error.
    assert_eq!((status, fs::metadata(&path).unwrap().len()), (0, place as u64));
}

#[test]
fn a_damaged_length_is_told_from_a_torn_tail() {
    let folder = redis();
    let path = incr(&folder);
    let place = place_of(&path, b"$5\r\nlater");
    change(&path, |bytes| drop(bytes.splice(place + 1..place + 2, *b"9999")));
    let (_, offset, _, advice) = problem(folder.path());
    assert_eq!(offset, Some(place as u64 - 13));
    assert!(advice.contains("probably a length is damaged"), "{advice}");
    assert!(advice.contains("with at least 8 whole commands"), "{advice}");
}

#[test]
fn zeros_at_the_end_hold_nothing() {
    let folder = redis();
    let path = incr(&folder);
    let len = fs::metadata(&path).unwrap().len();
    change(&path, |bytes| bytes.resize(bytes.len() + 4096, 0));
    let (_, offset, what, advice) = problem(folder.path());
    assert_eq!(offset, Some(len));
    assert!(what.contains("only zeros"), "{what}");
    assert!(advice.contains("aof-load-truncated yes (the default) cuts off 4,096 bytes (85.2 %"), "{advice}");
    // The zeros now begin within a command.
    change(&path, |bytes| drop(bytes.splice(len as usize..len as usize + 9, *b"*2\r\n$3\r\nD")));
    let (_, offset, what, _) = problem(folder.path());
    assert_eq!(offset, Some(len));
    let zeros = format!(
        "the file ends within the command that begins here: from byte {} on there are only zeros",
        len + 9
    );
    assert!(what.starts_with(&zeros), "{what}");
    change(&path, |bytes| bytes.push(b'x'));
    assert!(!problem(folder.path()).2.contains("zeros"), "they do not go to the end");
    change(&path, |bytes| bytes.truncate(bytes.len() - 1));
    run(folder.path(), &["--fix", "--yes"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), len);
    assert_eq!(json(folder.path())["commands"], 22);
}

#[test]
fn the_file_before_an_empty_one_is_cut() {
    let folder = redis();
    let other = "appendonly.aof.3.incr.aof";
    fs::write(folder.path().join(other), "").unwrap();
    change(&folder.path().join(MANIFEST), |text| {
        text.extend_from_slice(format!("file {other} seq 3 type i\n").as_bytes());
    });
    change(&incr(&folder), |bytes| bytes.truncate(bytes.len() - 3));
    let (file, _, _, advice) = problem(folder.path());
    assert_eq!(file, INCR);
    assert!(advice.contains("aof-load-truncated yes (the default) cuts off"), "{advice}");
    assert_eq!(run(folder.path(), &["--fix", "--yes"]).status.code(), Some(0));
    assert_eq!(json(folder.path())["commands"], 21);
}

#[test]
fn only_the_last_file_is_cut() {
    let folder = redis();
    let other = "appendonly.aof.3.incr.aof";
    fs::write(folder.path().join(other), "*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n").unwrap();
    change(&folder.path().join(MANIFEST), |text| {
        text.extend_from_slice(format!("file {other} seq 3 type i\n").as_bytes());
    });
    assert_eq!(json(folder.path())["is_good"], true);
    change(&incr(&folder), |bytes| bytes.truncate(bytes.len() - 1));
    let (_, _, _, advice) = problem(folder.path());
    assert!(advice.contains("because this is not the last file"), "{advice}");
    let len = fs::metadata(incr(&folder)).unwrap().len();
    assert_eq!(run(folder.path(), &["--fix", "--yes"]).status.code(), Some(1));
    assert_eq!(fs::metadata(incr(&folder)).unwrap().len(), len);
}

#[test]
fn missing_files_broken_snapshots_and_manifests_are_told() {
    let folder = redis();
    fs::remove_file(incr(&folder)).unwrap();
    assert_eq!(problem(folder.path()).2, "the file is missing");

    let folder = redis();
    change(&folder.path().join("appendonly.aof.2.base.rdb"), |bytes| bytes[40] ^= 1);
    assert_eq!(problem(folder.path()).2, "the snapshot at the start of the file is broken");

    let folder = redis();
    change(&folder.path().join(MANIFEST), |text| text.extend_from_slice(b"file x seq 1 type i\n"));
    let what = problem(folder.path()).2;
    assert_eq!(what, "Found a non-monotonic sequence number, at line 5: 'file x seq 1 type i'");
    for arguments in [&["--fix", "--yes"][..], &["--truncate-to-timestamp", "1"]] {
        assert_eq!(run(folder.path(), arguments).status.code(), Some(1));
    }
    assert_eq!(run(&folder.path().join("no.aof"), &[]).status.code(), Some(2));
}

/// Returns the time of the last annotation in the incremental file, at which FLUSHALL ran, in
/// seconds since 1970.
fn flush_time_s(folder: &TempDir) -> i64 {
    json(folder.path())["files"][3]["last_time_s"].as_i64().unwrap()
}

#[test]
fn the_state_before_an_accident_is_written_to_one_file() {
    let folder = redis();
    let out = folder.path().join("out");
    let flushed_s = flush_time_s(&folder);
    let until = (flushed_s - 1).to_string();
    let arguments = ["--until", &until, "--out", out.to_str().unwrap()];
    let (text, status) = text(run(folder.path(), &arguments));
    assert!(text.contains("appendonly.aof.2.base.rdb and 20 commands"), "{text}");
    assert!(text.contains("after byte 640 of appendonly.aof.2.incr.aof was skipped"), "{text}");
    assert_eq!(status, 0);
    let expected = [
        fs::read(folder.path().join("appendonly.aof.2.base.rdb")).unwrap(),
        fs::read(incr(&folder)).unwrap()[..640].to_vec(),
    ];
    assert_eq!(fs::read(&out).unwrap(), expected.concat());
    let report = json(&out);
    assert_eq!((&report["commands"], &report["files"][0]["rdb"]["total"]["keys"]), (&20.into(), &3.into()));
    assert_eq!(run(folder.path(), &arguments).status.code(), Some(2), "it is there already");

    fs::remove_file(&out).unwrap();
    assert_eq!(
        run(folder.path(), &["--until", ":640", "--out", out.to_str().unwrap()]).status.code(),
        Some(0)
    );
    // An annotation does not count as a command.
    assert_eq!(fs::read(&out).unwrap(), expected.concat());
}

#[test]
fn an_earlier_state_begins_with_a_base_of_the_history() {
    let folder = redis();
    let out = folder.path().join("out");
    let place = format!("appendonly.aof.1.incr.aof:{}", 1000);
    let (text, status) = text(run(folder.path(), &["--until", &place, "--out", out.to_str().unwrap()]));
    assert!(text.contains("appendonly.aof.1.base.rdb and 6 commands"), "{text}");
    assert_eq!(status, 0);
    fs::remove_file(&out).unwrap();

    // Without the newer base, all changes after the older base are written.
    fs::remove_file(folder.path().join("appendonly.aof.2.base.rdb")).unwrap();
    change(&folder.path().join(MANIFEST), |text| {
        let at = text.iter().position(|&byte| byte == b'\n').unwrap();
        text.drain(..=at);
    });
    let place = format!("{INCR}:640");
    assert_eq!(
        run(folder.path(), &["--until", &place, "--out", out.to_str().unwrap()]).status.code(),
        Some(0)
    );
    assert_eq!(run(&out, &[]).status.code(), Some(0));
}

#[test]
fn what_is_not_there_any_more_is_told() {
    let folder = redis();
    let out = folder.path().join("out");
    let until = |word: &str| {
        let (text, status) = text(run(folder.path(), &["--until", word, "--out", out.to_str().unwrap()]));
        assert!(!out.exists());
        (text, status)
    };
    let (words, status) = until("2001-01-01 00:00:00");
    assert!(words.contains("2001-01-01 00:00:00 UTC is too early: the oldest available base"), "{words}");
    assert_eq!(status, 1);
    assert_eq!(until("other.aof:12").1, 1);
    assert_eq!(until("yesterday").1, 2);
    change(&incr(&folder), |bytes| {
        let text = String::from_utf8_lossy(bytes).replace("#TS:", "#ts:");
        *bytes = text.into_bytes();
    });
    change(&incr(&folder), |bytes| bytes.truncate(300));
    let (words, status) = until("2100-01-01 00:00:00");
    assert!(words.contains("aof-timestamp-enabled was off"), "{words}");
    assert_eq!(status, 1);
}

#[test]
fn the_option_of_redis_check_aof_cuts_in_place() {
    let folder = redis();
    let flushed_s = flush_time_s(&folder);
    let cut = |time_s: i64| text(run(folder.path(), &["--truncate-to-timestamp", &time_s.to_string()]));
    assert_eq!(
        cut(flushed_s).0,
        format!("Nothing to truncate: nothing is later than timestamp {flushed_s}\n")
    );
    let (words, status) = cut(1);
    assert!(words.contains("AOF appendonly.aof.2.incr.aof has nothing before timestamp 1"), "{words}");
    assert_eq!(status, 1);
    let (words, status) = cut(flushed_s - 1);
    assert!(
        words.starts_with("Successfully truncated AOF appendonly.aof.2.incr.aof to timestamp"),
        "{words}"
    );
    assert_eq!((status, fs::metadata(incr(&folder)).unwrap().len()), (0, 640));
    assert_eq!(json(folder.path())["commands"], 20);
}
