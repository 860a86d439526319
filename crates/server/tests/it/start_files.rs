//! Starts beside files that they do not load: none is written over, cut or removed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use testkit::saker;

use crate::append_only::{ON, files_of, folder, kill, manifest, names_in, ok, start_in};
use crate::support::{BINARY, happens};

const MANIFEST: &str = "appendonly.aof.manifest";

/// The files of a folder with what they hold.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let read = |name: String| {
        let bytes = fs::read(folder.join(&name)).expect("it can be read");
        (name, bytes)
    };
    names_in(folder).into_iter().map(read).collect()
}

/// Starts a server that refuses to start, and returns its log.
fn refused(folder: &Path, options: &[&str]) -> String {
    let dir = folder.to_str().expect("a name of text");
    let common = ["--dir", dir, "--save", ""];
    let options: Vec<&str> = common.iter().chain(options).copied().collect();
    match saker::start_binary(BINARY, &options) {
        Ok(mut server) => {
            assert_ne!(server.wait(Duration::from_secs(300)).expect("it ends"), Some(0));
            server.log()
        }
        // It ended before it was looked at; the error holds its log.
        Err(error) => error.to_string(),
    }
}

/// A folder with append-only files that hold three keys.
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
    // Every selection of what is left.
    for (name, bytes) in &before {
        fs::remove_file(files.join(name)).expect("it can be removed");
        let now = contents(&files);
        let log = refused(folder.path(), ON);
        assert!(
            log.contains(", but not appendonly.aof.manifest, which says in which order they are read"),
            "{log}"
        );
        assert_eq!(contents(&files), now);
        fs::write(files.join(name), bytes).expect("it can be written");
    }
    let log = refused(folder.path(), ON);
    assert!(log.contains("appendonly.aof.1.base.rdb, appendonly.aof.1.incr.aof, but not"), "{log}");
    // An empty manifest names nothing.
    fs::write(files.join(MANIFEST), "").expect("it can be written");
    refused(folder.path(), ON);
    fs::remove_file(files.join(MANIFEST)).expect("it can be removed");
    assert_eq!(contents(&files), before);
    // The option is not set: nothing is read or written, and a warning names the files.
    let server = start_in(folder.path(), &[]);
    assert!(server.log().contains("which its manifest does not name"), "{}", server.log());
    // The file is turned on: others get other names.
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
    // The remedy: with its manifest everything is there again.
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
    assert!(server.log().contains("which its manifest does not name"), "{}", server.log());
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
