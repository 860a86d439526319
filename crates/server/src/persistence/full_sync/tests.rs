//! Tests of full syncs: the files that they write, and the replies of commands during them.

use persist::folder::Unsaved;
use persist::schedule::SaveRecord;
use testkit::contents::{Contents as Keys, FileContents, of_file, of_keyspace};
use testkit::{Client, Rng, Value};

use super::*;
use crate::builder::Server;
use crate::persistence::wait_for_end;
use crate::replication::spool::{Piece, SpoolMemory, SpoolReader, SpoolResources};

/// A server with a data folder of its own, and a client of it.
struct Tested {
    server: Server,
    client: Client,
    folder: tempfile::TempDir,
}

impl Tested {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().to_str().expect("text").to_owned();
        let builder = Server::builder().port(0).io_threads(1).option("dir", &path).option("save", "\"\"");
        let server = builder.start().expect("it starts");
        let client = Client::to_port(server.port());
        Self { server, client, folder }
    }

    /// Runs a command and returns its reply as text.
    fn run(&mut self, command: &str) -> String {
        self.client.command(&command.split(' ').collect::<Vec<_>>()).to_string()
    }

    /// Returns the value of the field `field` in INFO persistence.
    fn info(&mut self, field: &str) -> String {
        let Value::Bulk(text) = self.client.command(&["INFO", "persistence"]) else {
            panic!("a bulk string")
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.expect("the field exists").to_owned()
    }

    fn fill(&mut self) {
        for number in 0..100 {
            self.run(&format!("SET key{number} value"));
        }
    }

    /// Keeps a save or full sync in progress, by a long pause after each key, until the test
    /// cancels it or calls `go_on`.
    fn hold(&mut self) {
        self.run("CONFIG SET rdb-key-save-delay 100000000");
    }

    fn go_on(&mut self) {
        self.run("CONFIG SET rdb-key-save-delay 0");
    }

    fn keys(&self) -> Keys {
        of_keyspace(&self.server.shared().engine.keyspace)
    }

    /// Begins a full sync. Returns the result, the reader of the snapshot's spool, and true if
    /// `at_point` was called.
    fn begin(&self, version: Option<FileVersion>, contents: Contents) -> (BeginResult, SpoolReader, bool) {
        let resources = SpoolResources {
            folder: self.folder.path().to_owned(),
            data_bytes: 0,
            memory: SpoolMemory::default(),
        };
        let (spool, mut readers) = Spool::new(resources, 1, Box::new(|| ()));
        let request = SnapshotRequest { version, contents, spool };
        let mut is_used = false;
        let begun = begin(self.server.shared(), request, &mut |_alone| {
            is_used = true;
            PointFacts { stream_db: 3, id: "0123".to_owned(), offset_bytes: 77 }
        });
        (begun, readers.pop().expect("one"), is_used)
    }

    fn begin_all(&self) -> (BeginResult, SpoolReader, bool) {
        self.begin(None, Contents::all())
    }

    /// Reads the whole snapshot from its spool.
    fn read(&self, mut reader: SpoolReader) -> Result<Vec<u8>, Unsaved> {
        wait_for_end(self.server.shared());
        let mut bytes = Vec::new();
        loop {
            match reader.next(1000)? {
                Piece::Bytes(piece) => bytes.extend_from_slice((*piece).as_ref()),
                // The end comes directly after the save counts as ended.
                Piece::Pending => std::thread::yield_now(),
                Piece::End => return Ok(bytes),
            }
        }
    }

    fn held_by(&self, bytes: &[u8]) -> FileContents {
        of_file(bytes, self.server.shared().engine.keyspace.hasher()).expect("a whole file")
    }

    fn files(&self) -> usize {
        std::fs::read_dir(self.folder.path()).expect("readable").count()
    }
}

#[test]
fn the_file_has_the_data_and_the_facts_of_its_point() {
    let mut tested = Tested::new();
    tested.fill();
    let at_point = tested.keys();
    let (begun, reader, is_used) = tested.begin_all();
    assert_eq!((begun, is_used), (BeginResult::Started, true));
    tested.run("SET key1 changed");
    let bytes = tested.read(reader).expect("it is written");
    assert!(bytes.starts_with(b"REDIS0011"));
    let file = tested.held_by(&bytes);
    assert_eq!(file.keys, at_point);
    for (name, value) in [("repl-stream-db", "3"), ("repl-id", "0123"), ("repl-offset", "77")] {
        assert_eq!(file.facts.get(name.as_bytes()).map(|found| &found[..]), Some(value.as_bytes()));
    }
    assert_eq!(tested.files(), 0, "no file of its own");
    let (_, reader, _) = tested.begin(Some(FileVersion::Valkey9), Contents::FUNCTIONS);
    let bytes = tested.read(reader).expect("it is written");
    assert!(bytes.starts_with(b"VALKEY080"));
    let file = tested.held_by(&bytes);
    assert_eq!(file.keys.len(), 0);
    assert!(!file.facts.contains_key(&b"repl-id"[..]), "it has not the data of the point");
}

#[test]
fn commands_show_it_as_a_background_save() {
    let mut tested = Tested::new();
    tested.fill();
    tested.hold();
    let (_, reader, _) = tested.begin_all();
    assert_eq!(tested.info("rdb_bgsave_in_progress"), "1");
    assert_eq!(tested.info("current_save_keys_total"), "100");
    for command in ["BGSAVE", "BGSAVE SCHEDULE", "SAVE"] {
        let reply = tested.run(command);
        assert!(reply.contains("ERR Background save already in progress"), "{command}: {reply}");
    }
    let (again, _, is_used) = tested.begin_all();
    assert_eq!((again, is_used), (BeginResult::Busy, false));
    let reply = tested.run("BGREWRITEAOF");
    assert!(reply.contains("Background append only file rewriting scheduled"), "{reply}");
    assert_eq!(tested.info("aof_rewrite_in_progress"), "0");
    let reply = tested.run("BGSAVE CANCEL");
    assert!(reply.contains("Background saving cancelled"), "{reply}");
    assert_eq!(tested.read(reader), Err(Unsaved::Cancelled));
    assert_eq!(tested.info("rdb_bgsave_in_progress"), "0");
    assert_eq!(tested.info("rdb_last_bgsave_status"), "ok");
    assert_ne!(tested.info("rdb_last_bgsave_time_sec"), "-1");
}

#[test]
fn it_counts_as_no_save() {
    let mut tested = Tested::new();
    tested.fill();
    let before = tested.server.shared().persistence.figures().record;
    let (_, reader, _) = tested.begin_all();
    tested.read(reader).expect("it is written");
    assert_eq!(tested.info("rdb_changes_since_last_save"), "100");
    let after = tested.server.shared().persistence.figures().record;
    assert!(after.last_took_s.is_some());
    assert_eq!(SaveRecord { last_took_s: None, ..after }, before);
}

#[test]
fn a_reader_that_is_late_reads_from_files() {
    let mut tested = Tested::new();
    let mut rng = Rng::new(1);
    for number in 0..48 {
        let value: Vec<u8> = (0..1 << 17).flat_map(|_| rng.next_u64().to_le_bytes()).collect();
        tested.client.command(&[&b"SET"[..], format!("key{number}").as_bytes(), &value]);
    }
    let (_, reader, _) = tested.begin_all();
    wait_for_end(tested.server.shared());
    let memory_bytes = reader.spool().memory_bytes();
    assert!((3 << 20..=4 << 20).contains(&memory_bytes), "{memory_bytes} bytes in memory");
    assert_eq!(tested.files(), 0, "the files have no names");
    let bytes = tested.read(reader).expect("it is written");
    assert!(bytes.len() > 48 << 20);
    assert_eq!(tested.held_by(&bytes).keys, tested.keys());
}

#[test]
fn a_save_in_progress_makes_it_busy() {
    let mut tested = Tested::new();
    tested.fill();
    tested.hold();
    tested.run("BGSAVE");
    let (begun, _, is_used) = tested.begin_all();
    assert_eq!((begun, is_used), (BeginResult::Busy, false));
    tested.go_on();
    wait_for_end(tested.server.shared());
    let (begun, reader, _) = tested.begin_all();
    assert_eq!(begun, BeginResult::Started);
    tested.read(reader).expect("it is written");
}

#[test]
fn a_flush_does_not_shorten_the_file() {
    let flush = |targets: &str| format!("redis.set_repl(redis.REPL_{targets}) redis.call('flushall')");
    // The file has the data of its point also if replicas do not get the flush.
    for targets in ["NONE", "AOF", "REPLICA", "ALL"] {
        let mut tested = Tested::new();
        tested.fill();
        tested.hold();
        let at_point = tested.keys();
        let (_, reader, _) = tested.begin_all();
        let reply = tested.client.command(&["EVAL", &flush(targets), "0"]);
        assert!(!reply.is_error(), "{targets}: {reply}");
        tested.run("SET later value");
        tested.go_on();
        let bytes = tested.read(reader).expect("it is written");
        assert!(tested.held_by(&bytes).keys == at_point, "{targets}");
        assert_eq!(tested.info("rdb_last_bgsave_status"), "ok");
    }
}

#[test]
fn data_that_does_not_fit_the_version_is_refused() {
    let mut tested = Tested::new();
    tested.run("HSET hash field value");
    tested.run("HEXPIRE hash 1000 FIELDS 1 field");
    let (begun, _, is_used) = tested.begin(Some(FileVersion::Redis7Dot2), Contents::all());
    let BeginResult::Unfit(unfit) = begun else { panic!("{begun:?}") };
    assert!(unfit.to_string().starts_with("1 hash has fields that expire"), "{unfit}");
    assert!(!is_used);
    // The next save can begin.
    let (begun, reader, _) = tested.begin_all();
    assert_eq!(begun, BeginResult::Started);
    assert!(tested.read(reader).expect("it is written").starts_with(b"REDIS0012"));
}

#[test]
fn it_ends_when_no_replica_is_left_or_the_server_stops() {
    let mut tested = Tested::new();
    tested.fill();
    tested.hold();
    let (_, reader, _) = tested.begin_all();
    // The walk waits between two keys, so it cannot notice the missing reader at its next write.
    drop(reader);
    wait_for_end(tested.server.shared());
    let (begun, reader, _) = tested.begin_all();
    assert_eq!(begun, BeginResult::Started);
    let Tested { server, client, folder } = tested;
    drop(client);
    server.stop();
    let mut reader = reader;
    assert!(matches!(reader.next(1), Err(Unsaved::Cancelled)));
    drop(folder);
}
