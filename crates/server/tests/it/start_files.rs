//! Starts with files that the server does not load: it overwrites, truncates and removes none of
//! them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use testkit::{Client, saker};

use crate::append_only::{
    ON, await_rewrite, files_of, folder, kill, manifest, names_in, ok, requests, start_in,
};
use crate::support::{BINARY, happens, info};

const MANIFEST: &str = "appendonly.aof.manifest";

/// Returns the files of a folder with their contents.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = fs::read(folder.join(&name)).expect("it can be read");
        (name, bytes)
    };
    names_in(folder).into_iter().map(read).collect()
}

/// Starts a server that must fail to start; returns its log.
fn refused(folder: &Path, options: &[&str]) -> String {
    let dir = folder.to_str().expect("a name of text");
    let common = ["--dir", dir, "--save", ""];
    let options: Vec<&str> = common.iter().chain(options).copied().collect();
    match saker::start_binary(BINARY, &options) {
        Ok(mut server) => {
            assert_ne!(server.wait(Duration::from_secs(300)).expect("it ends"), Some(0));
            server.log()
        }
        // It ended before it was checked; the error contains its log.
        Err(error) => error.to_string(),
    }
}

/// Creates a folder with append-only files that contain three keys.
fn with_files() -> tempfile::TempDir {
    let folder = folder();
    let server = start_in(folder.path(), &[ON, &["--appendfsync", "always"]].concat());
    let mut client = server.connect();
    for key in ["a", "b", "c"] {
        ok(&mut client, &["SET", key, "precious"]);
    }
    kill(server);
    folder
}

#[test]
fn issue_33_files_without_their_manifest_are_left_alone() {
    let folder = with_files();
    let files = files_of(folder.path());
    let manifest = fs::read(files.join(MANIFEST)).expect("it is there");
    fs::remove_file(files.join(MANIFEST)).expect("it can be removed");
    let before = contents(&files);
    // Every subset of the remaining files.
    for (name, bytes) in &before {
        fs::remove_file(files.join(name)).expect("it can be removed");
        let now = contents(&files);
        let log = refused(folder.path(), ON);
        assert!(log.contains(", but their manifest appendonly.aof.manifest is missing"), "{log}");
        assert_eq!(contents(&files), now);
        fs::write(files.join(name), bytes).expect("it can be written");
    }
    let log = refused(folder.path(), ON);
    assert!(
        log.contains("appendonly.aof.1.base.rdb, appendonly.aof.1.incr.aof, but their manifest"),
        "{log}"
    );
    // An empty manifest names no file.
    fs::write(files.join(MANIFEST), "").expect("it can be written");
    refused(folder.path(), ON);
    fs::remove_file(files.join(MANIFEST)).expect("it can be removed");
    assert_eq!(contents(&files), before);
    // The option is not set: nothing is read or written, and a warning names the files.
    let server = start_in(folder.path(), &[]);
    assert!(server.log().contains("which the manifest does not list"), "{}", server.log());
    // The option is turned on: new files get other names.
    let mut client = server.connect();
    ok(&mut client, &["SET", "new", "value"]);
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    assert!(happens(|| files.join(MANIFEST).exists()));
    kill(server);
    for (name, bytes) in &before {
        assert_eq!(&fs::read(files.join(name)).expect("it is there"), bytes, "{name}");
    }
    for name in names_in(&files) {
        if before.iter().all(|(old, _)| *old != name) {
            fs::remove_file(files.join(name)).expect("it can be removed");
        }
    }
    // With the manifest restored, all data is available again.
    fs::write(files.join(MANIFEST), manifest).expect("it can be written");
    let server = start_in(folder.path(), ON);
    assert_eq!(server.connect().command(&["DBSIZE"]).to_string(), "(integer) 3");
}

#[test]
fn issue_33_rewrites_do_not_write_over_files_that_the_manifest_does_not_name() {
    let folder = with_files();
    let files = files_of(folder.path());
    let foreign = ["appendonly.aof.2.base.rdb", "appendonly.aof.3.base.aof", "appendonly.aof.2.incr.aof"];
    for name in foreign {
        fs::write(files.join(name), name).expect("it can be written");
    }
    let server = start_in(folder.path(), ON);
    assert!(server.log().contains("which the manifest does not list"), "{}", server.log());
    let mut client = server.connect();
    client.command(&["BGREWRITEAOF"]);
    assert!(happens(|| manifest(folder.path()).contains("appendonly.aof.4.base.rdb")));
    ok(&mut client, &["SET", "d", "precious"]);
    kill(server);
    for name in foreign {
        assert_eq!(fs::read(files.join(name)).expect("it is there"), name.as_bytes());
    }
    let server = start_in(folder.path(), ON);
    assert_eq!(server.connect().command(&["DBSIZE"]).to_string(), "(integer) 4");
}

#[test]
fn issue_33_history_that_a_crash_left_is_removed() {
    let folder = with_files();
    let files = files_of(folder.path());
    let old = "appendonly.aof.9.incr.aof";
    fs::write(files.join(old), "").expect("it can be written");
    let text = format!("{}file {old} seq 9 type h\n", manifest(folder.path()));
    fs::write(files.join(MANIFEST), &text).expect("it can be written");
    let server = start_in(folder.path(), &[ON, &["--aof-disable-auto-gc", "yes"]].concat());
    assert!(files.join(old).exists());
    kill(server);
    let server = start_in(folder.path(), ON);
    assert!(happens(|| !files.join(old).exists()));
    assert!(happens(|| !manifest(folder.path()).contains(old)));
    assert_eq!(server.connect().command(&["DBSIZE"]).to_string(), "(integer) 3");
}

/// Writes a snapshot with these keys to `file`, with the help of another server.
fn make_snapshot(file: &Path, keys: &[&str]) {
    let folder = folder();
    let server = start_in(folder.path(), &[]);
    let mut client = server.connect();
    for key in keys {
        ok(&mut client, &["SET", key, "precious"]);
    }
    ok(&mut client, &["SAVE"]);
    kill(server);
    fs::copy(folder.path().join("dump.rdb"), file).expect("copied");
}

fn size(client: &mut Client) -> String {
    client.command(&["DBSIZE"]).to_string()
}

#[test]
fn issue_33_saves_keep_snapshots_aside_that_the_server_neither_loaded_nor_wrote() {
    let folder = folder();
    let (dump, aside) = (folder.path().join("dump.rdb"), |number: usize| {
        folder.path().join(format!("dump.rdb.aside-{number}"))
    });
    make_snapshot(&dump, &["a", "b"]);
    let first = fs::read(&dump).expect("it is there");
    let server = start_in(folder.path(), &["--enable-protected-configs", "yes"]);
    let mut client = server.connect();
    assert_eq!(size(&mut client), "(integer) 2");
    // It was loaded, and then written: both versions may be replaced.
    for _ in 0..3 {
        ok(&mut client, &["SAVE"]);
    }
    assert_eq!(names_in(folder.path()), ["dump.rdb"]);
    // Another program places a file there, in two ways.
    fs::write(&dump, &first).expect("it can be written");
    ok(&mut client, &["SAVE"]);
    assert_eq!(fs::read(aside(1)).expect("it is kept"), first);
    fs::write(folder.path().join("new"), b"whatever").expect("it can be written");
    fs::rename(folder.path().join("new"), &dump).expect("it can be renamed");
    client.command(&["BGSAVE"]);
    assert!(happens(|| aside(2).exists()));
    assert_eq!(fs::read(aside(2)).expect("it is kept"), b"whatever");
    assert!(happens(|| server.log().contains("renamed it to dump.rdb.aside-2")), "{}", server.log());
    assert!(happens(|| info(&mut client, "rdb_bgsave_in_progress") == 0));
    // A change to another name that exists already, and back.
    assert!(happens(|| fs::read(&dump).is_ok_and(|bytes| bytes.starts_with(b"REDIS"))));
    fs::write(folder.path().join("other.rdb"), b"of others").expect("it can be written");
    ok(&mut client, &["CONFIG", "SET", "dbfilename", "other.rdb"]);
    ok(&mut client, &["SAVE"]);
    ok(&mut client, &["SAVE"]);
    ok(&mut client, &["CONFIG", "SET", "dbfilename", "dump.rdb"]);
    ok(&mut client, &["SAVE"]);
    kill(server);
    assert_eq!(
        names_in(folder.path()),
        ["dump.rdb", "dump.rdb.aside-1", "dump.rdb.aside-2", "other.rdb", "other.rdb.aside-1"]
    );
    assert_eq!(fs::read(folder.path().join("other.rdb.aside-1")).expect("it is kept"), b"of others");
}

#[test]
fn issue_33_a_snapshot_that_is_newer_than_the_append_only_file_outlives_saves() {
    let folder = with_files();
    let dump = folder.path().join("dump.rdb");
    make_snapshot(&dump, &["a", "b", "c", "d", "e"]);
    let restored = fs::read(&dump).expect("it is there");
    let server = start_in(folder.path(), ON);
    let mut client = server.connect();
    assert_eq!(size(&mut client), "(integer) 3");
    assert!(
        server.log().contains("although it is not older than the loaded append-only file"),
        "{}",
        server.log()
    );
    ok(&mut client, &["SAVE"]);
    client.command(&["BGREWRITEAOF"]);
    await_rewrite(&mut client);
    // Nothing has changed since the rewrite. So the next start must not treat this snapshot as
    // newer than the append-only file.
    ok(&mut client, &["SAVE"]);
    kill(server);
    assert_eq!(fs::read(folder.path().join("dump.rdb.aside-1")).expect("it is kept"), restored);
    // The server's own snapshots are not renamed to `.aside-N`, with either way to end it.
    for ending in ["SAVE", "NOSAVE"] {
        let mut server = start_in(folder.path(), ON);
        let mut client = server.connect();
        ok(&mut client, &["SAVE"]);
        let mut request = Vec::new();
        resp::encode_request(&["SHUTDOWN", ending], &mut request);
        client.send(&request).expect("it is connected");
        server.wait(Duration::from_secs(300)).expect("it ends");
        assert!(!server.log().contains("is not older than"), "{ending}: {}", server.log());
    }
    assert!(!folder.path().join("dump.rdb.aside-2").exists());
}

#[test]
fn issue_33_append_only_files_that_were_not_loaded_outlive_their_option() {
    for request in [&["CONFIG", "SET", "appendonly", "yes"][..], &["BGREWRITEAOF"]] {
        let folder = folder();
        make_snapshot(&folder.path().join("dump.rdb"), &["old"]);
        let newer = with_files();
        fs::rename(files_of(newer.path()), files_of(folder.path())).expect("moved");
        let files = files_of(folder.path());
        let (before, named) = (contents(&files), manifest(folder.path()));
        let server = start_in(folder.path(), &["--appendonly", "no"]);
        assert!(
            server.log().contains("although it is not older than the loaded snapshot"),
            "{}",
            server.log()
        );
        let mut client = server.connect();
        assert_eq!(size(&mut client), "(integer) 1");
        client.command(request);
        assert!(happens(|| server.log().contains("and kept the files")), "{request:?}: {}", server.log());
        ok(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
        kill(server);
        assert_eq!(fs::read_to_string(files.join(format!("{MANIFEST}.aside-1"))).expect("it is kept"), named);
        for (name, bytes) in before.iter().filter(|(name, _)| name != MANIFEST) {
            assert_eq!(&fs::read(files.join(name)).expect("it is there"), bytes, "{name}");
        }
        // With the renamed manifest restored, all data is available again.
        fs::rename(files.join(format!("{MANIFEST}.aside-1")), files.join(MANIFEST)).expect("renamed");
        let server = start_in(folder.path(), ON);
        assert_eq!(size(&mut server.connect()), "(integer) 3");
    }
}

#[test]
fn issue_33_another_folder_keeps_its_append_only_file() {
    let (first, second) = (with_files(), with_files());
    let (files, before) = (files_of(second.path()), contents(&files_of(second.path())));
    let options = ["--enable-protected-configs", "yes"];
    let server = start_in(first.path(), &[ON, &options].concat());
    let mut client = server.connect();
    ok(&mut client, &["CONFIG", "SET", "dir", second.path().to_str().expect("text")]);
    client.command(&["BGREWRITEAOF"]);
    assert!(happens(|| server.log().contains("holds another append-only file")), "{}", server.log());
    assert_eq!(contents(&files), before);
    ok(&mut client, &["SET", "d", "precious"]);
    ok(&mut client, &["CONFIG", "SET", "appendonly", "no"]);
    // When turned on again there, the file is a new one.
    ok(&mut client, &["CONFIG", "SET", "appendonly", "yes"]);
    assert!(happens(|| server.log().contains("and kept the files")), "{}", server.log());
    kill(server);
    for (name, bytes) in before.iter().filter(|(name, _)| name != MANIFEST) {
        assert_eq!(&fs::read(files.join(name)).expect("it is there"), bytes, "{name}");
    }
    for folder in [&first, &second] {
        let server = start_in(folder.path(), ON);
        assert_eq!(size(&mut server.connect()), "(integer) 4");
    }
}

#[test]
fn issue_33_links_to_missing_files_stop_the_start() {
    for link in ["dump.rdb", "appendonlydir", "appendonlydir/appendonly.aof.manifest"] {
        let folder = folder();
        fs::create_dir_all(folder.path().join(link).parent().expect("a folder")).expect("created");
        std::os::unix::fs::symlink("/missing/volume", folder.path().join(link)).expect("linked");
        let log = refused(folder.path(), ON);
        assert!(log.contains("is a link to a missing file"), "{link}: {log}");
        assert!(folder.path().join(link).is_symlink(), "{link}");
    }
}

#[test]
fn issue_33_what_is_called_as_an_unfinished_save_is_removed_only_beside_complete_data() {
    let folder = folder();
    let (left, own) = (folder.path().join("temp-4194304.rdb"), folder.path().join("temp-4194305.rdb"));
    fs::write(&left, "unfinished").expect("it can be written");
    let server = start_in(folder.path(), &[]);
    assert!(server.log().contains("and no complete data. The server keeps the file."), "{}", server.log());
    kill(server);
    make_snapshot(&own, &["a"]);
    // The data file itself has such a name.
    let server = start_in(folder.path(), &["--dbfilename", "temp-4194305.rdb"]);
    assert_eq!(size(&mut server.connect()), "(integer) 1");
    assert_eq!(names_in(folder.path()), ["temp-4194305.rdb"]);
}

#[test]
fn issue_33_manifests_of_others_and_broken_ones_are_reported() {
    let folder = with_files();
    let before = contents(&files_of(folder.path()));
    let other = ["--appendfilename", "other.aof"];
    let server = start_in(folder.path(), &[ON, &other].concat());
    let expected = "holds appendonly.aof.manifest, the manifest of another append-only file";
    assert!(server.log().contains(expected), "{}", server.log());
    kill(server);
    for (name, bytes) in &before {
        assert_eq!(&fs::read(files_of(folder.path()).join(name)).expect("it is there"), bytes, "{name}");
    }
    fs::write(files_of(folder.path()).join("other.aof.manifest"), "file other.aof seq").expect("written");
    let log = refused(folder.path(), &[ON, &other].concat());
    assert!(log.contains("cannot be used"), "{log}");
    let server = start_in(folder.path(), &other);
    assert!(server.log().contains("The server does not load this append-only file."), "{}", server.log());
}

#[test]
fn issue_33_the_append_only_file_of_redis_6_does_not_replace_another() {
    let folder = folder();
    let (old, new) = (folder.path().join("appendonly.aof"), files_of(folder.path()).join("appendonly.aof"));
    fs::create_dir(files_of(folder.path())).expect("created");
    fs::write(&old, requests(&[&["SET", "a", "1"]])).expect("written");
    fs::write(&new, requests(&[&["SET", "b", "2"]])).expect("written");
    let log = refused(folder.path(), ON);
    assert!(log.contains("Move one of them to another folder"), "{log}");
    assert_eq!(fs::read(&new).expect("it is there"), requests(&[&["SET", "b", "2"]]));
    assert_eq!(fs::read(&old).expect("it is there"), requests(&[&["SET", "a", "1"]]));
}

#[test]
fn issue_33_a_history_that_names_files_in_use_does_not_remove_them() {
    let folder = with_files();
    let names = ["appendonly.aof.1.incr.aof", "appendonly.aof.1.base.rdb", MANIFEST];
    let lines = names.map(|name| format!("file {name} seq 1 type h\n")).concat();
    fs::write(files_of(folder.path()).join(MANIFEST), manifest(folder.path()) + &lines).expect("written");
    let server = start_in(folder.path(), ON);
    assert!(happens(|| !manifest(folder.path()).contains("type h")));
    kill(server);
    let server = start_in(folder.path(), ON);
    assert_eq!(size(&mut server.connect()), "(integer) 3");
}
