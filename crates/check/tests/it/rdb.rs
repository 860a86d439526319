//! Tests of `saker-check rdb`: its reports on good files and on each kind of damage, and its exit
//! status.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::file::{GOOD, OF_SERVERS, broken_set, key, made_up_module, sealed, select, string, with};

const BINARY: &str = env!("CARGO_BIN_EXE_saker-check");

/// Writes an RDB file with these bytes into a temporary folder. Returns the folder and the path of
/// the file.
fn file(bytes: &[u8]) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dump.rdb");
    fs::write(&path, bytes).unwrap();
    (folder, path)
}

fn run(path: &Path, arguments: &[&str]) -> Output {
    Command::new(BINARY).arg("rdb").arg(path).args(arguments).output().unwrap()
}

/// Returns the report of `saker-check rdb` on a file with these bytes, and the exit status.
fn report(bytes: &[u8]) -> (String, Option<i32>) {
    let (_folder, path) = file(bytes);
    let output = run(&path, &[]);
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

/// Returns the JSON report on a file with these bytes, without the time that the check took.
/// Asserts that the report agrees with the exit status.
fn json(bytes: &[u8]) -> Value {
    let (_folder, path) = file(bytes);
    let output = run(&path, &["--json"]);
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(if report["is_good"] == true { 0 } else { 1 }));
    assert!(report["seconds"].take().is_f64());
    report["file"].take();
    report
}

/// Asserts that a file with these bytes is broken, and that the report contains `parts` in this
/// order.
fn is_broken(bytes: &[u8], parts: &[&str]) {
    let (report, status) = report(bytes);
    assert_eq!(status, Some(1), "{report}");
    let mut rest = &*report;
    assert!(report.contains("\nThe file is BROKEN: "), "{report}");
    for part in parts {
        let Some((_, behind)) = rest.split_once(part) else { panic!("no {part:?} in\n{report}") };
        rest = behind;
    }
}

#[test]
fn files_of_real_servers_are_good_and_counted() {
    for (server, bytes) in OF_SERVERS {
        let (text, status) = report(bytes);
        assert_eq!(status, Some(0), "{server}: {text}");
        let report = json(bytes);
        // Valkey does not save expired keys.
        let expired = u64::from(!server.starts_with("Valkey"));
        let total = ["keys", "expiring", "expired", "elements"].map(|name| report["total"][name].as_u64());
        assert_eq!(total, [16 + expired, 1 + expired, expired, 34 + expired].map(Some), "{server}");
        assert_eq!(
            (&report["checksum"], report["len_bytes"].as_u64()),
            (&"good".into(), Some(bytes.len() as u64))
        );
        let databases: Vec<_> =
            report["databases"].as_array().unwrap().iter().map(|db| db["db"].as_u64()).collect();
        assert_eq!(databases, [Some(0), Some(3)]);
        for kind in ["string", "list", "set", "zset", "hash", "stream"] {
            assert!(
                report["types"].as_array().unwrap().iter().any(|of| of["type"] == kind),
                "{server}: {kind}"
            );
        }
        assert!(report["loaded_by"].as_array().unwrap().contains(&"Saker".into()));
    }
}

#[test]
fn the_report_says_who_loads_the_file() {
    let (text, _) = report(&with(&[&select(0), &key("k", "v")]));
    assert!(text.contains("REDIS version 11, written by Redis 7.2, Valkey 7.2 to 8.1\n"), "{text}");
    assert!(text.contains("loaded by   Redis 7.2 and later; Valkey 7.2 and later; Saker\n"), "{text}");
    let (text, _) = report(GOOD);
    assert!(text.contains("loaded by   Redis 7.4 and later; Saker\n"), "{text}");
    assert_eq!(json(&GOOD[..GOOD.len() - 1])["loaded_by"].as_array().unwrap().len(), 0);
}

#[test]
fn the_biggest_keys_are_listed_as_many_as_asked_for() {
    let (_folder, path) = file(GOOD);
    for (arguments, listed) in [(&["--top", "3"][..], 3), (&["--top", "0"], 0), (&[], 10)] {
        let output = run(&path, &[arguments, &["--json"]].concat());
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["biggest_by_bytes"].as_array().unwrap().len(), listed);
    }
    let big = &json(GOOD)["biggest_by_bytes"][0];
    assert_eq!(
        (&big["key"], &big["type"], big["elements"].as_u64()),
        (&"stream".into(), &"stream".into(), Some(2))
    );
    let small =
        json(GOOD)["biggest_by_elements"].as_array().unwrap().iter().all(|key| key["type"] != "string");
    assert!(small, "a string has no elements");
}

#[test]
fn a_broken_value_in_a_whole_record_does_not_end_the_check() {
    let bytes =
        with(&[&select(0), &key("a", "1"), &broken_set("s"), &key("b", "2"), &select(5), &broken_set("t")]);
    is_broken(
        &bytes,
        &[
            "WRONG at byte 30, key \"s\": a broken packed structure",
            "record at byte 16, database 0, set, listpack, after 1 good key\n",
            "WRONG at byte 51, key \"t\"",
            "record at byte 37, database 5, set, listpack, after 2 good keys\n",
            "2 problems; 2 good keys read",
        ],
    );
}

#[test]
fn a_record_without_an_end_is_named_with_what_is_before_it() {
    let cut = with(&[&select(2), &key("a", "1"), &key("b", "2"), &[0x12, 1, b'l', 0x0A]]);
    let cut = &cut[..cut.len() - 9];
    is_broken(
        cut,
        &[
            "not reached",
            "WRONG at byte 25, key \"l\": the file ends within this record",
            "record at byte 21, database 2, after 2 good keys",
            "4 B (16.0 % of the file) could not be read",
            "1 problem; 2 good keys read",
        ],
    );
    let unknown = with(&[&select(2), &key("a", "1"), &[99, 1, b'u', 1, b'x'], &key("b", "2")]);
    is_broken(
        &unknown,
        &["key \"u\": a value of unknown type 99; the data after it cannot be read", "record at byte 16"],
    );
    let length = with(&[&select(0), &[1, 1, b'l', 0xBF]]);
    is_broken(&length, &["key \"l\": a broken length; the data after it cannot be read"]);
    let encoding = with(&[&select(0), &[0, 1, b's', 0xC9]]);
    is_broken(&encoding, &["key \"s\": a string of unknown encoding 9; the data after it cannot be read"]);
}

#[test]
fn a_file_that_is_cut_off_anywhere_is_broken() {
    for len in 0..GOOD.len() {
        let report = json(&GOOD[..len]);
        assert_eq!(
            (&report["is_good"], report["finding_count"].as_u64()),
            (&false.into(), Some(1)),
            "{len} bytes"
        );
        assert!(report["total"]["keys"].as_u64().unwrap() <= 17);
    }
    is_broken(
        &GOOD[..GOOD.len() - 9],
        &["the file is cut off: its end mark is missing", "after 17 good keys"],
    );
}

#[test]
fn no_bit_of_a_file_flips_unnoticed() {
    for at in 0..GOOD.len() {
        let mut bytes = GOOD.to_vec();
        bytes[at] ^= 1 << (at % 8);
        // If a length becomes larger, the end mark can become part of a value.
        assert_eq!(json(&bytes)["is_good"], false, "byte {at}");
    }
    let mut bytes = GOOD.to_vec();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    is_broken(
        &bytes,
        &["WRONG: bytes of the file changed", "the checksum is wrong", "1 problem; 17 good keys"],
    );
}

#[test]
fn a_checksum_that_was_not_written_is_not_called_good() {
    let mut bytes = GOOD.to_vec();
    let checksum = bytes.len() - 8;
    bytes[checksum..].fill(0);
    let (text, status) = report(&bytes);
    assert!(text.contains("checksum    not checked: the writer had rdbchecksum off\n"), "{text}");
    assert_eq!((status, json(&bytes)["checksum"].as_str()), (Some(0), Some("not-written")));
    let old = [b"REDIS0004", &select(0)[..], &key("k", "v"), &[0xFF]].concat();
    assert_eq!(json(&old)["checksum"], "absent");
}

#[test]
fn a_key_that_is_there_twice_is_named() {
    let twice = [&select(0)[..], &key("a", "1"), &key("b", "1"), &select(1), &key("a", "1"), &key("a", "2")];
    is_broken(
        &with(&twice),
        &[
            "WRONG at byte 28, key \"a\": a duplicate key: its first record is at byte 23",
            "database 1, after 3 good keys",
        ],
    );
    assert_eq!(json(&with(&twice[..5]))["is_good"], true, "the same name in two databases is no finding");
}

#[test]
fn data_of_modules_is_counted_and_named() {
    let items = [&[2, 7, 5][..], &string(b"x"), &[0]].concat();
    let value = [&[7, 1, b'v'][..], &made_up_module(), &items].concat();
    let beside = [&[0xF7][..], &made_up_module(), &[2, 2], &items].concat();
    let bytes = with(&[&select(0), &key("a", "1"), &value, &beside]);
    let (text, status) = report(&bytes);
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("module      made-up-t, version 0 of its format: 1 key, 36 B\n"), "{text}");
    assert!(text.contains("NOTE: the data of modules") && !text.contains("; Saker"), "{text}");
    let report = json(&bytes);
    assert_eq!(
        (report["total"]["keys"].as_u64(), &report["modules"][0]["name"]),
        (Some(2), &"made-up-t".into())
    );
}

#[test]
fn what_is_no_rdb_file_is_said_as_far_as_it_shows() {
    is_broken(b"", &["the file is empty"]);
    is_broken(&[b"HELLO", &GOOD[5..]].concat(), &["it does not begin with REDIS or VALKEY"]);
    is_broken(b"REDIS00", &["its header is cut off or damaged"]);
    is_broken(b"REDIS00x1", &["its header is cut off or damaged"]);
    is_broken(&[b"REDIS0099", &GOOD[9..]].concat(), &["RDB format version 99 is not known"]);
    is_broken(&[b"VALKEY079", &GOOD[9..]].concat(), &["RDB format version 79 is not known"]);
    is_broken(b"*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n", &["an append-only file"]);
    is_broken(b"\x1f\x8b\x08\0\0\0\0\0\0\0\0\0", &["gzip"]);
    is_broken(b"VCS\x01\x01\0\x01rest of the frame", &["Valkey 9.2"]);
    is_broken(&[0; 4096], &["zeros"]);
}

#[test]
fn a_compressed_file_is_read_in_its_frame() {
    let plain = b"VALKEY081\0\x01a\x01v\xff\0\0\0\0\0\0\0\0";
    let head = b"VCS\x01\x01\0\x01\x04\x22\x4d\x18\x40\x40\xc0";
    let bytes = [&head[..], &(plain.len() as u32 | 1 << 31).to_le_bytes(), plain, &[0; 4]].concat();
    let (report, status) = report(&bytes);
    assert_eq!(status, Some(0), "{report}");
    assert!(report.contains("VALKEY version 81") && !report.contains("after the end"), "{report}");
}

#[test]
fn worth_knowing_but_not_wrong() {
    let bytes = with(&[&select(20), &key("k", "v"), &[2, 1, b'e', 0]]);
    let (text, status) = report(&[bytes, b"*1\r\n$4\r\nPING\r\n".to_vec()].concat());
    assert_eq!(status, Some(0), "{text}");
    assert!(text.contains("the server needs databases 21.\n"), "{text}");
    assert!(text.contains("NOTE: 1 collection without elements"), "{text}");
    assert!(text.contains("NOTE: 14 bytes after the end"), "{text}");
}

#[test]
fn what_is_reported_does_not_depend_on_the_threads() {
    let mut records = vec![select(0).to_vec()];
    for number in 0..60_000 {
        let name = format!("key:{number}");
        records.push(if number % 500 == 499 { broken_set(&name) } else { key(&name, "some value") });
    }
    let records: Vec<&[u8]> = records.iter().map(|record| &**record).collect();
    let bytes = with(&records);
    let first = json(&bytes);
    assert_eq!(first["finding_count"], 120);
    let findings = first["findings"].as_array().unwrap();
    assert_eq!(findings.len(), 20, "by default");
    for (at, finding) in findings.iter().enumerate() {
        assert_eq!(finding["key"], format!("key:{}", at * 500 + 499));
        assert_eq!(finding["good_keys_before"].as_u64(), Some(499 * (at as u64 + 1)));
    }
    for _ in 0..3 {
        assert_eq!(json(&bytes), first);
    }
    let (_folder, path) = file(&bytes);
    let output = run(&path, &["--problems", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.matches("WRONG at byte").count() == 2 && text.contains("and 118 more"), "{text}");
}

#[test]
fn a_length_that_only_claims_takes_no_memory() {
    let huge = [&[0x81][..], &(1u64 << 38).to_be_bytes()].concat();
    let most = [&[0x81][..], &u64::MAX.to_be_bytes()].concat();
    for length in [&huge, &most] {
        for begin in [
            &[0, 1, b'k'][..],      // a string
            &[0, 1, b'k', 0xC3, 5], // what it is uncompressed
            &[0],                   // the key
            &[1, 1, b'k'],          // a list's elements
            &[5, 1, b'k'],          // a sorted set's members
            &[15, 1, b'k'],         // a stream's nodes
            &[18, 1, b'k'],         // a list's nodes
            &[0xFA],                // a fact about the file
            &[0xF5],                // a library of functions
            &[0xFB],                // keys of the database
        ] {
            let (_folder, path) = file(&with(&[&select(0), begin, length, b"abcde"]));
            // 1 GB of address space: the program and the stacks of its threads need less.
            let script = "ulimit -v 1000000 && exec \"$0\" rdb \"$1\"";
            let output = Command::new("sh").args(["-c", script, BINARY]).arg(&path).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!((output.status.code(), &*error), (Some(1), ""), "{begin:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_is_no_broken_file() {
    let folder = tempfile::tempdir().unwrap();
    for (path, says) in [
        (folder.path().to_owned(), "is a folder: name the file within it"),
        (folder.path().join("none"), "No such file"),
    ] {
        let output = run(&path, &[]);
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.contains(says) && error.contains(path.to_str().unwrap()), "{error}");
        assert!(output.stdout.is_empty());
    }
    for arguments in
        [&["rdb"][..], &["rdb", "a", "--top", "x"], &["no"], &[], &["rdb", "a", "--problems", "0"]]
    {
        assert_eq!(
            Command::new(BINARY).args(arguments).output().unwrap().status.code(),
            Some(2),
            "{arguments:?}"
        );
    }
    assert_eq!(Command::new(BINARY).arg("--help").output().unwrap().status.code(), Some(0));
}

#[test]
fn a_reader_that_is_gone_does_not_change_the_exit_status() {
    for (bytes, status) in [(GOOD, 0), (&GOOD[..400], 1)] {
        let (_folder, path) = file(bytes);
        let mut child = Command::new(BINARY)
            .arg("rdb")
            .arg(&path)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), &*output.stderr), (Some(status), &b""[..]));
    }
}

#[test]
fn a_pipe_is_read_as_a_file_is() {
    let mut child = Command::new(BINARY)
        .args(["rdb", "/dev/stdin", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let trailed = [GOOD, b"rest"].concat();
    child.stdin.take().unwrap().write_all(&trailed).unwrap();
    let output = child.wait_with_output().unwrap();
    let mut report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["seconds"].take();
    report["file"].take();
    assert_eq!(report, json(&trailed));
}

#[test]
fn the_file_is_not_changed() {
    let (_folder, path) = file(GOOD);
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o400)).unwrap();
    assert_eq!(run(&path, &[]).status.code(), Some(0));
    assert_eq!(fs::read(&path).unwrap(), GOOD);
    assert_eq!(sealed(GOOD[..GOOD.len() - 9].to_vec()), GOOD, "the tests' own checksum is that of Redis");
}
