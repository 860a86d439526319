//! Tests of the replacement of all data by a primary's snapshot.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};

use testkit::contents::{Contents, of_keyspace};
use testkit::{Client, Value};

use super::*;
use crate::builder::Server;

/// A link to a primary that records which steps of [`Takeover`] were called.
#[derive(Default)]
pub(in crate::persistence) struct Link {
    pub(in crate::persistence) steps: Vec<String>,
    pub(in crate::persistence) refusal: Option<String>,
    /// The bytes that must follow the primary's snapshot, such as an end mark.
    pub(in crate::persistence) mark: Vec<u8>,
}

impl<S> Takeover<S> for Link {
    fn before_emptying(&mut self, _alone: &Exclusive) -> Result<(), String> {
        self.steps.push("emptying".to_owned());
        self.refusal.clone().map_or(Ok(()), Err)
    }

    fn check_end(&mut self, behind: &mut Vec<u8>, _source: &mut S) -> Result<(), String> {
        self.steps.push("end".to_owned());
        if *behind == self.mark { Ok(()) } else { Err("the end mark differs".to_owned()) }
    }

    fn before_serving(&mut self, _alone: &Exclusive, stream_db: Option<u32>) {
        self.steps.push(format!("serving {stream_db:?}"));
    }
}

/// A source of a snapshot's bytes that stops in the middle until the test lets it continue.
pub(in crate::persistence) struct Held {
    bytes: Vec<u8>,
    at: usize,
    is_at_pause: Sender<()>,
    go_on: Receiver<()>,
}

impl Held {
    pub(in crate::persistence) fn new(bytes: &[u8]) -> (Self, Receiver<()>, Sender<()>) {
        let ((is_at_pause, paused), (goes_on, go_on)) = (channel(), channel());
        (Self { bytes: bytes.to_owned(), at: 0, is_at_pause, go_on }, paused, goes_on)
    }
}

impl ByteSource for Held {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        let half = self.bytes.len() / 2;
        if self.at == half {
            self.is_at_pause.send(()).expect("the test waits");
            self.go_on.recv().map_err(|_| FileError("the connection was closed".to_owned()))?;
        }
        let end = if self.at < half { half } else { self.bytes.len() };
        let len = (end - self.at).min(buffer.len());
        buffer[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }

    fn is_dry(&mut self) -> bool {
        self.at == self.bytes.len() / 2
    }
}

/// A server with a data folder of its own, and a client of it.
pub(in crate::persistence) struct Tested {
    server: Server,
    pub(in crate::persistence) client: Client,
}

impl Tested {
    pub(in crate::persistence) fn in_folder(folder: &Path, options: &[(&str, &str)]) -> Self {
        let mut builder = Server::builder().port(0).io_threads(1).data_folder(folder);
        for (name, value) in options {
            builder = builder.option(name, value);
        }
        let server = builder.start().expect("it starts");
        let client = Client::to_port(server.port());
        let tested = Self { server, client };
        tested.shared().persistence.wait_until_loaded(&tested.shared().engine);
        tested
    }

    pub(in crate::persistence) fn shared(&self) -> &Arc<Shared> {
        self.server.shared()
    }

    pub(in crate::persistence) fn other_client(&self) -> Client {
        Client::to_port(self.server.port())
    }

    /// Runs a command and returns its reply as text.
    pub(in crate::persistence) fn run(&mut self, command: &str) -> String {
        run(&mut self.client, command)
    }

    pub(in crate::persistence) fn keys(&self) -> Contents {
        of_keyspace(&self.shared().engine.keyspace)
    }

    pub(in crate::persistence) fn replace<S: ByteSource>(
        &self,
        source: S,
    ) -> (Result<Replaced<S>, NotReplaced>, Vec<String>) {
        self.replace_for(Link::default(), source)
    }

    fn replace_for<S: ByteSource>(
        &self,
        mut link: Link,
        source: S,
    ) -> (Result<Replaced<S>, NotReplaced>, Vec<String>) {
        let replaced = replace_data(self.shared(), Incoming { source, len_bytes: None }, &mut link);
        (replaced, link.steps)
    }

    /// Writes `bytes` into a received file, as a link does, and loads the file.
    fn receive(&self, bytes: &[u8]) -> Result<Replaced<ReceivedFile<'_>>, NotReplaced> {
        let mut received = ReceivedSnapshot::create(self.shared()).expect("created");
        bytes.chunks(1000).for_each(|chunk| received.append(chunk).expect("written"));
        received.append(b"mark").expect("written");
        received.cut(4).expect("written");
        received.finish().expect("synced");
        assert_eq!(received.len_bytes(), bytes.len() as u64);
        replace_data_by_file(self.shared(), received, &mut Link::default(), || ())
    }
}

pub(in crate::persistence) fn run(client: &mut Client, command: &str) -> String {
    client.command(&command.split(' ').collect::<Vec<_>>()).to_string()
}

pub(in crate::persistence) fn info(client: &mut Client, field: &str) -> String {
    let Value::Bulk(text) = client.command(&["INFO", "persistence"]) else { panic!("a bulk string") };
    let text = String::from_utf8_lossy(&text).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.expect("the field exists").to_owned()
}

pub(in crate::persistence) const LIBRARY: &str =
    "#!lua name=lib\nredis.register_function('of_primary', function() return 1 end)";

/// Returns the data of a test primary, and a snapshot of this data.
pub(in crate::persistence) fn primary() -> (Contents, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tested = Tested::in_folder(folder.path(), &[("save", "\"\"")]);
    for number in 0..1000 {
        tested.run(&format!("SET key{number} value{number}"));
    }
    tested.run("SADD set a b c");
    tested.run("SELECT 3");
    tested.run("SET of_db_3 x");
    tested.client.command(&["FUNCTION", "LOAD", LIBRARY]);
    assert_eq!(tested.run("SAVE"), "OK");
    (tested.keys(), std::fs::read(folder.path().join("dump.rdb")).expect("saved"))
}

/// Creates a replica that has data of its own. Returns it with its data folder.
pub(in crate::persistence) fn replica(options: &[(&str, &str)]) -> (Tested, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tested = Tested::in_folder(folder.path(), options);
    tested.run("SET own 1");
    tested.run("SET key1 own");
    tested.run("SELECT 7");
    tested.run("SET own 1");
    tested.run("SELECT 0");
    let library = "#!lua name=own\nredis.register_function('of_replica', function() return 1 end)";
    tested.client.command(&["FUNCTION", "LOAD", library]);
    (tested, folder)
}

pub(in crate::persistence) const NO_SAVE: (&str, &str) = ("save", "\"\"");

#[test]
fn a_header_that_is_not_understood_keeps_the_data() {
    let (mut tested, _folder) = replica(&[NO_SAVE]);
    let before = tested.keys();
    for (header, reason) in [
        (&b"-ERR nothing for you\r\n"[..], "signature"),
        (b"REDIS9999rest", "version 9999"),
        (b"RED", "signature"),
        (b"", "signature"),
    ] {
        let (replaced, steps) = tested.replace(header);
        let Err(NotReplaced::Kept(text)) = replaced else { panic!("kept") };
        assert!(text.contains(reason), "{text}");
        assert_eq!(steps, [""; 0]);
    }
    let refusal = Some("another primary".to_owned());
    let (_, snapshot) = primary();
    let (replaced, steps) = tested.replace_for(Link { refusal, ..Link::default() }, &snapshot[..]);
    assert_eq!(replaced.err(), Some(NotReplaced::Kept("another primary".to_owned())));
    assert_eq!(steps, ["emptying"]);
    assert_eq!(tested.keys(), before);
    assert_eq!(info(&mut tested.client, "loading"), "0");
    assert_eq!(tested.run("SAVE"), "OK");
}

#[test]
fn a_snapshot_replaces_keys_and_functions_of_all_databases() {
    let (keys, mut snapshot) = primary();
    for is_lazy in ["no", "yes"] {
        let (mut tested, _folder) = replica(&[NO_SAVE, ("replica-lazy-flush", is_lazy)]);
        let (replaced, steps) = tested.replace(&snapshot[..]);
        let replaced = replaced.expect("it is loaded");
        assert_eq!((replaced.stream_db, replaced.behind, replaced.source), (None, vec![], &b""[..]));
        assert_eq!(steps, ["emptying", "end", "serving None"]);
        assert_eq!(tested.keys(), keys);
        let functions = tested.run("FUNCTION LIST");
        assert!(functions.contains("of_primary") && !functions.contains("of_replica"), "{functions}");
        assert_eq!(tested.run("SAVE"), "OK");
    }
    // A fact, no checksum, and bytes behind the end.
    let fact = b"\xfa\x0erepl-stream-db\x01\x37";
    snapshot.splice(9..9, *fact);
    let len = snapshot.len();
    snapshot[len - 8..].fill(0);
    snapshot.extend_from_slice(b"mark");
    let (tested, _folder) = replica(&[NO_SAVE]);
    let mark = b"mark".to_vec();
    let (replaced, steps) = tested.replace_for(Link { mark, ..Link::default() }, &snapshot[..]);
    let replaced = replaced.expect("it is loaded");
    assert_eq!((replaced.stream_db, &replaced.behind[..]), (Some(7), &b"mark"[..]));
    assert_eq!(steps.last().map(|step| &step[..]), Some("serving Some(7)"));
}

#[test]
fn after_a_failure_the_server_is_empty_but_its_files_stay() {
    let (keys, snapshot) = primary();
    let (mut tested, folder) = replica(&[NO_SAVE]);
    assert_eq!(tested.run("SAVE"), "OK");
    let file = folder.path().join("dump.rdb");
    let saved = std::fs::read(&file).expect("saved");
    let (replaced, steps) = tested.replace(&snapshot[..snapshot.len() - 100]);
    assert!(matches!(replaced, Err(NotReplaced::Emptied(_))));
    assert_eq!(steps, ["emptying"]);
    let (replaced, _) = tested.replace_for(Link { mark: b"x".to_vec(), ..Link::default() }, &snapshot[..]);
    assert_eq!(replaced.err(), Some(NotReplaced::Emptied("the end mark differs".to_owned())));
    assert_eq!((tested.keys().len(), tested.run("DBSIZE")), (0, "(integer) 0".to_owned()));
    assert!(!tested.run("FUNCTION LIST").contains("of_"));
    assert!(tested.run("SAVE").contains("ERR"));
    assert!(tested.run("BGSAVE").contains("ERR"));
    assert_eq!(std::fs::read(&file).expect("readable"), saved);
    let (replaced, _) = tested.replace(&snapshot[..]);
    assert!(replaced.is_ok());
    assert_eq!((tested.keys(), tested.run("SAVE")), (keys, "OK".to_owned()));
    let (replaced, _) = tested.replace(&snapshot[..snapshot.len() - 100]);
    assert!(replaced.is_err());
    accept_empty(tested.shared());
    assert_eq!(tested.run("SAVE"), "OK");
    assert!(std::fs::read(&file).expect("readable").len() < saved.len());
}

#[test]
fn transactions_of_watchers_fail_also_for_keys_that_appear() {
    let (_, snapshot) = primary();
    let (tested, _folder) = replica(&[NO_SAVE]);
    for (key, reply) in
        [("own", "(nil array)"), ("key1", "(nil array)"), ("key2", "(nil array)"), ("nowhere", "1) PONG")]
    {
        let mut client = tested.other_client();
        assert_eq!(run(&mut client, &format!("WATCH {key}")), "OK");
        let (replaced, _) = tested.replace(&snapshot[..]);
        assert!(replaced.is_ok());
        run(&mut client, "MULTI");
        run(&mut client, "PING");
        assert_eq!(run(&mut client, "EXEC"), reply, "{key}");
        tested.other_client().command(&["SET", "own", "1"]);
        tested.other_client().command(&["DEL", "key2"]);
    }
}

#[test]
fn caches_are_told_and_nothing_is_recorded() {
    let (_, snapshot) = primary();
    let (mut tested, _folder) = replica(&[NO_SAVE]);
    let drawn = tested.shared().engine.log.drawn();
    tested.run("HELLO 3");
    tested.run("CLIENT TRACKING ON");
    tested.run("GET own");
    let (replaced, _) = tested.replace(&snapshot[..]);
    assert!(replaced.is_ok());
    let message = tested.client.read().expect("a message").to_string();
    assert!(message.contains("invalidate"), "{message}");
    assert_eq!(tested.shared().engine.log.drawn(), drawn);
}

#[test]
fn clients_get_loading_meanwhile() {
    let (keys, snapshot) = primary();
    let (mut tested, _folder) = replica(&[NO_SAVE]);
    let mut queued = tested.other_client();
    run(&mut queued, "MULTI");
    run(&mut queued, "GET own");
    let (source, paused, goes_on) = Held::new(&snapshot);
    std::thread::scope(|scope| {
        // Dropped if an assertion fails, so that the load ends.
        let goes_on = goes_on;
        let shared = Arc::clone(tested.shared());
        let load = scope.spawn(move || {
            replace_data(&shared, Incoming { source, len_bytes: Some(77) }, &mut Link::default()).is_ok()
        });
        paused.recv().expect("it loads");
        assert!(tested.run("GET own").contains("LOADING"));
        assert!(tested.run("FLUSHALL").contains("LOADING"));
        assert!(tested.run("DEBUG RELOAD").contains("LOADING") || tested.run("DEBUG RELOAD").contains("ERR"));
        let aborted = run(&mut queued, "EXEC");
        assert!(aborted.contains("EXECABORT") && aborted.contains("LOADING"), "{aborted}");
        assert_eq!(info(&mut tested.client, "loading"), "1");
        assert_eq!(info(&mut tested.client, "loading_total_bytes"), "77");
        let (other, steps) = tested.replace(&snapshot[..]);
        assert_eq!(other.err(), Some(NotReplaced::Kept("another load is in progress".to_owned())));
        assert_eq!(steps, [""; 0]);
        goes_on.send(()).expect("it waits");
        assert!(load.join().expect("no panic"));
    });
    assert_eq!(info(&mut tested.client, "loading"), "0");
    assert_eq!(tested.keys(), keys);
}

#[test]
fn saves_in_progress_are_cancelled() {
    let (keys, snapshot) = primary();
    let (mut tested, folder) = replica(&[NO_SAVE]);
    tested.run("CONFIG SET rdb-key-save-delay 100000000");
    assert!(tested.run("BGSAVE").contains("started"));
    let (replaced, _) = tested.replace(&snapshot[..]);
    assert!(replaced.is_ok());
    assert_eq!(tested.keys(), keys);
    assert_eq!(info(&mut tested.client, "rdb_bgsave_in_progress"), "0");
    assert!(!folder.path().join("dump.rdb").exists());
    assert!(tested.run("BGREWRITEAOF").contains("started"));
    let (replaced, _) = tested.replace(&snapshot[..]);
    assert!(replaced.is_ok());
    assert_eq!(info(&mut tested.client, "aof_rewrite_in_progress"), "0");
}

pub(in crate::persistence) fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("created");
    for entry in std::fs::read_dir(from).expect("readable") {
        let entry = entry.expect("readable");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("known").is_dir() {
            copy(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("copied");
        }
    }
}

pub(in crate::persistence) const AOF: [(&str, &str); 2] = [("appendonly", "yes"), NO_SAVE];

#[test]
fn the_append_only_file_gets_the_new_data_and_all_later_changes() {
    let (_, snapshot) = primary();
    let (mut tested, folder) = replica(&AOF);
    let before = tested.keys();
    let (source, paused, goes_on) = Held::new(&snapshot);
    let crash = tempfile::tempdir().expect("a folder");
    std::thread::scope(|scope| {
        let goes_on = goes_on;
        let shared = Arc::clone(tested.shared());
        let load = scope.spawn(move || {
            replace_data(&shared, Incoming { source, len_bytes: None }, &mut Link::default()).is_ok()
        });
        paused.recv().expect("it loads");
        assert_eq!(info(&mut tested.client, "aof_enabled"), "0");
        copy(folder.path(), crash.path());
        goes_on.send(()).expect("it waits");
        assert!(load.join().expect("no panic"));
    });
    check_restarts(tested, folder.path(), (crash.path(), &before));
}

/// Checks that the append-only files of a replica after a load contain the new data with all later
/// changes. `crashed` is a copy of the folder made during the load: it must still contain the old
/// data.
pub(in crate::persistence) fn check_restarts(
    mut tested: Tested,
    folder: &Path,
    (crash, before): (&Path, &Contents),
) {
    tested.run("SET later 1");
    assert_eq!(info(&mut tested.client, "aof_enabled"), "1");
    aof::wait_for_rewrite(tested.shared());
    tested.run("SET much_later 1");
    let after = tested.keys();
    assert_eq!(after.len(), 1004);
    drop(tested);
    let mut restarted = Tested::in_folder(folder, &AOF);
    assert_eq!(restarted.keys(), after);
    assert!(restarted.run("FUNCTION LIST").contains("of_primary"));
    assert_eq!(&Tested::in_folder(crash, &AOF).keys(), before);
}

#[test]
fn a_failed_load_leaves_the_append_only_file_as_it_was() {
    let (_, snapshot) = primary();
    let (mut tested, folder) = replica(&AOF);
    let before = tested.keys();
    let (replaced, _) = tested.replace(&snapshot[..snapshot.len() / 2]);
    assert!(replaced.is_err());
    assert_eq!(tested.keys().len(), 0);
    // Nothing turns the file on again before the data is accepted.
    tested.run("CONFIG SET appendfsync always");
    tested.run("SET unrecorded 1");
    assert_eq!(info(&mut tested.client, "aof_enabled"), "0");
    let crash = tempfile::tempdir().expect("a folder");
    copy(folder.path(), crash.path());
    assert_eq!(Tested::in_folder(crash.path(), &AOF).keys(), before);
    accept_empty(tested.shared());
    aof::wait_for_rewrite(tested.shared());
    tested.run("SET recorded 1");
    let after = tested.keys();
    assert_eq!(after.len(), 2);
    drop(tested);
    assert_eq!(Tested::in_folder(folder.path(), &AOF).keys(), after);
}

/// Returns the names of all files in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    DataFolder::new(folder).names().expect("readable")
}

#[test]
fn a_received_file_becomes_the_data_file() {
    let (keys, snapshot) = primary();
    let (mut tested, folder) = replica(&[NO_SAVE]);
    assert_eq!(tested.run("SAVE"), "OK");
    assert!(tested.receive(&snapshot).is_ok());
    assert_eq!(tested.keys(), keys);
    assert_eq!(names(folder.path()), ["dump.rdb"]);
    let file = folder.path().join("dump.rdb");
    assert_eq!(std::fs::read(&file).expect("readable"), snapshot);
    // A failed load keeps the data file, and removes the received one.
    assert!(tested.receive(&snapshot[..snapshot.len() - 20]).is_err());
    assert_eq!(names(folder.path()), ["dump.rdb"]);
    assert_eq!(std::fs::read(&file).expect("readable"), snapshot);
    // The server knows the file: the next save replaces it.
    assert!(tested.receive(&snapshot).is_ok());
    tested.run("SET more 1");
    assert_eq!(tested.run("SAVE"), "OK");
    assert_eq!(names(folder.path()), ["dump.rdb"]);
    // A file that another program wrote is kept.
    std::fs::write(&file, b"precious").expect("written");
    assert!(tested.receive(&snapshot).is_ok());
    assert_eq!(names(folder.path()), ["dump.rdb", "dump.rdb.aside-1"]);
}

#[test]
fn a_received_file_is_removed_if_it_is_not_wanted() {
    let (keys, snapshot) = primary();
    let (tested, folder) = replica(&[NO_SAVE, ("rdb-del-sync-files", "yes")]);
    assert!(tested.receive(&snapshot).is_ok());
    assert_eq!(tested.keys(), keys);
    assert_eq!(names(folder.path()), [""; 0]);
    drop(ReceivedSnapshot::create(tested.shared()).expect("created"));
    assert_eq!(names(folder.path()), [""; 0]);
    let received = ReceivedSnapshot::create(tested.shared()).expect("created");
    let name = received.path().file_name().and_then(|name| name.to_str()).map(str::to_owned);
    assert_eq!(name.as_deref().and_then(persist::folder::writer_pid), Some(std::process::id()));
    let (tested, folder) = replica(&[("save", "3600 1"), ("rdb-del-sync-files", "yes")]);
    assert!(tested.receive(&snapshot).is_ok());
    assert_eq!(names(folder.path()), ["dump.rdb"]);
}

#[test]
fn an_unsupported_value_ends_the_load_with_its_type() {
    let (mut tested, _folder) = replica(&[NO_SAVE]);
    // The opcode of a module's auxiliary data, with an id.
    let snapshot = b"REDIS0011\xf7\x81\x00\x00\x00\x00\x00\x00\x00\x01\x02\x00";
    let (replaced, _) = tested.replace(&snapshot[..]);
    let Err(NotReplaced::Emptied(reason)) = replaced else { panic!("emptied") };
    assert!(reason.contains("at byte"), "{reason}");
    assert_eq!(tested.run("DBSIZE"), "(integer) 0");
}
