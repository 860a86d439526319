//! Tests of the change log: the content and order of its stream of changes, and the replies that
//! wait for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::Shared;
use engine::log::level::{Level, Released};
use engine::log::merger::{LogBatch, LogReader, ReaderId};
use engine::log::target::LogTarget;
use engine::settings::Settings;
use engine::threads::Outbox;

use crate::driver::{Thread, expire_round, shared};

/// A reader of the change log that stores the stream of changes. It confirms each batch at once or
/// never, as `confirms` says.
#[derive(Clone)]
pub struct Kept {
    bytes: Arc<Mutex<Vec<u8>>>,
    /// The lengths in bytes of the parts in which the change log's stream arrived.
    piece_lens: Arc<Mutex<Vec<usize>>>,
    /// The offset in the stream of changes of the first byte that the reader received; `None`
    /// before that.
    start: Option<u64>,
    /// True if the reader confirms each part of the stream of changes as soon as it arrives.
    confirms: bool,
    target: LogTarget,
}

impl LogReader for Kept {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut bytes = self.bytes.lock().expect("no panic");
        let start = *self.start.get_or_insert(batch.offset);
        assert!(batch.offset - start >= bytes.len() as u64, "offsets count the bytes of all targets");
        batch.for_each_part(self.target, |part| {
            bytes.extend_from_slice(part);
            self.piece_lens.lock().expect("no panic").push(part.len());
        });
        Released::at(if self.confirms { batch.position } else { 0 })
    }
}

impl Default for Kept {
    fn default() -> Self {
        let (bytes, piece_lens) = Default::default();
        Self { bytes, piece_lens, start: None, confirms: false, target: LogTarget::File }
    }
}

impl Kept {
    pub fn confirming() -> Self {
        Self { confirms: true, ..Self::default() }
    }

    pub fn attach(&self, shared: &Shared) -> ReaderId {
        let attach =
            |alone: &_| shared.log.attach(alone, (Box::new(self.clone()), self.target), &Outbox::default());
        shared.gate.exclusive(attach).expect("there is room for readers")
    }

    /// Returns the commands in the stream of changes so far, with spaces between words.
    pub fn commands(&self, shared: &Shared) -> Vec<String> {
        shared.log.merge(&Outbox::default());
        let bytes = self.bytes.lock().expect("no panic");
        let text = String::from_utf8(bytes.clone()).expect("the tests' words are text");
        let commands = text.split('*').filter(|command| !command.is_empty());
        let words = |command: &str| {
            let lines = command.split("\r\n").skip(1).filter(|line| !line.starts_with('$'));
            lines.collect::<Vec<_>>().join(" ").trim_end().to_owned()
        };
        commands.map(words).collect()
    }
}

#[test]
fn the_stream_has_the_changes_of_all_threads_in_their_order() {
    let (shared, clock) = shared(2, Settings::default());
    let [mut one, mut two] = [0, 1].map(|index| Thread::new(&shared, &clock, index));
    let (a, b) = (one.connect(), two.connect());
    one.run(a, "SET before 1");
    let kept = Kept::confirming();
    kept.attach(&shared);
    two.run(b, "INCR n");
    one.run(a, "GET n");
    one.run(a, "INCR n");
    for request in ["MULTI", "SET c 1", "GET c", "SADD s x", "EXEC"] {
        two.run(b, request);
    }
    for request in ["MULTI", "SET d 1", "EXEC"] {
        one.run(a, request);
    }
    two.run(b, "DEL absent");
    two.run(b, "INCRBYFLOAT n 0.5");
    let expected = [
        "SELECT 0",
        "INCR n",
        "INCR n",
        "MULTI",
        "SET c 1",
        "SADD s x",
        "EXEC",
        "SET d 1",
        "SET n 2.5 KEEPTTL",
    ];
    assert_eq!(kept.commands(&shared), expected);
    assert_eq!(shared.log.released(Level::Written), 5);
    assert_eq!(shared.log.pending_bytes(), 0);
}

#[test]
fn each_reader_begins_at_its_cut_with_the_selected_database() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    let first = Kept::confirming();
    let first_id = first.attach(&shared);
    thread.run(client, "SET a 1");
    let second = Kept::default();
    let second_id = second.attach(&shared);
    thread.run(client, "SET b 1");
    // The second reader has confirmed only the position of its cut, after the first change.
    assert_eq!(second.commands(&shared), ["SELECT 0", "SET b 1"]);
    assert_eq!(shared.log.released(Level::Written), 1);
    let detach = |id| shared.gate.exclusive(|alone| shared.log.detach(alone, id, &Outbox::default()));
    assert!(detach(second_id).is_some() && shared.log.released(Level::Written) == 2);
    thread.run(client, "SET c 1");
    assert!(detach(first_id).is_some() && detach(first_id).is_none());
    assert_eq!((shared.log.is_attached(), shared.log.released(Level::Written)), (false, u64::MAX));
    thread.run(client, "SET unseen 1");
    assert_eq!(first.commands(&shared), ["SELECT 0", "SET a 1", "SELECT 0", "SET b 1", "SET c 1"]);
    assert_eq!(second.commands(&shared), ["SELECT 0", "SET b 1"]);
}

#[test]
fn a_part_begins_with_its_own_select() {
    let (shared, clock) = shared(1, Settings::default());
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    let kept = Kept::confirming();
    kept.attach(&shared);
    thread.run(client, "SET a 1");
    thread.run(client, "SET b 1");
    shared.gate.exclusive(|alone| shared.log.begin_part(alone, LogTarget::File, &Outbox::default()));
    thread.run(client, "SET c 1");
    assert_eq!(kept.commands(&shared), ["SELECT 0", "SET a 1", "SET b 1", "SELECT 0", "SET c 1"]);
}

#[test]
fn what_expires_is_recorded_key_by_key_and_field_by_field() {
    let (shared, clock) = shared(1, Settings::default());
    let kept = Kept::confirming();
    kept.attach(&shared);
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    thread.run(client, "SET k v PX 100");
    thread.run(client, "HSET h f 1 g 2");
    thread.run(client, "HPEXPIRE h 100 FIELDS 1 f");
    thread.run(client, "SET lazy v PX 100");
    clock.advance(Duration::from_millis(101));
    thread.run(client, "APPEND lazy w");
    expire_round(&shared, &clock);
    let mut commands = kept.commands(&shared).split_off(5);
    assert_eq!(commands[..4], ["MULTI", "DEL lazy", "APPEND lazy w", "EXEC"]);
    commands[4..].sort();
    assert_eq!(commands[4..], ["DEL k", "HDEL h f"]);
}

#[test]
fn a_client_sees_the_position_of_what_it_touched() {
    let (shared, clock) = shared(2, Settings::default());
    Kept::default().attach(&shared);
    let [mut one, mut two] = [0, 1].map(|index| Thread::new(&shared, &clock, index));
    let (writer, reader, other) = (one.connect(), two.connect(), two.connect());
    one.run(writer, "SET a 1");
    one.run(writer, "SET b 1");
    assert_eq!(one.session(writer).observed_position(), 2);
    two.run(reader, "GET a");
    assert_eq!(two.session(reader).observed_position(), 1);
    two.run(other, "GET c");
    assert_eq!(two.session(other).observed_position(), 0);
    two.run(reader, "BLPOP jobs 0");
    one.run(writer, "RPUSH jobs x");
    assert_eq!(two.deliveries(), [(reader, "*2|$4|jobs|$1|x|".to_owned())]);
    two.run(other, "DBSIZE");
    assert_eq!(two.session(other).observed_position(), 4, "the push, and the pop of the blocked client");
    assert!(shared.log.wait_for_release(Level::Written, 0, 2) && shared.log.released(Level::Written) == 0);
}

#[test]
fn a_blocked_clients_request_is_a_unit_behind_the_one_that_serves_it() {
    let (shared, clock) = shared(1, Settings::default());
    let kept = Kept::confirming();
    kept.attach(&shared);
    let mut thread = Thread::new(&shared, &clock, 0);
    let [blocked, writer] = [0, 1].map(|_| thread.connect());
    thread.run(blocked, "BLMOVE from to LEFT RIGHT 0");
    thread.run(writer, "RPUSH from x");
    assert_eq!(kept.commands(&shared), ["SELECT 0", "RPUSH from x", "LMOVE from to LEFT RIGHT"]);
}

#[test]
fn an_exclusive_owner_records_what_it_did_to_all() {
    let (shared, clock) = shared(1, Settings::default());
    let kept = Kept::confirming();
    kept.attach(&shared);
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    for request in ["SET a 1", "SWAPDB 0 3", "MULTI", "SET b 2", "FLUSHALL", "SET c 3", "EXEC", "GET z"] {
        thread.run(client, request);
    }
    let expected = ["SELECT 0", "SET a 1", "SWAPDB 0 3", "MULTI", "SET b 2", "FLUSHALL", "SET c 3", "EXEC"];
    assert_eq!(kept.commands(&shared), expected);
    assert_eq!(thread.session(client).observed_position(), 3);
}

#[test]
fn a_big_string_is_shared_with_the_stream_until_it_changes() {
    let (shared, clock) = shared(1, Settings::default());
    let kept = Kept::confirming();
    kept.attach(&shared);
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    let big = "x".repeat(20_000);
    let requests = [format!("SET k {big}"), format!("SET timed {big} PX 1000"), format!("MSET a 1 b {big}")];
    for request in &requests {
        thread.run(client, request);
    }
    thread.run(client, "SETRANGE k 1 y");
    thread.run(client, "APPEND timed z");
    thread.run(client, "DEL b");
    let element = format!("RPUSH list {big}");
    thread.run(client, &element);
    let timed = format!("SET timed {big} PXAT 1000001000");
    let expected = [
        "SELECT 0",
        &requests[0],
        &timed,
        &requests[2],
        "SETRANGE k 1 y",
        "APPEND timed z",
        "DEL b",
        &element,
    ];
    assert!(kept.commands(&shared) == expected);
    assert_eq!(shared.log.pending_bytes(), 0);
    let shared_pieces =
        kept.piece_lens.lock().expect("no panic").iter().filter(|len| **len == 20_000).count();
    assert_eq!(shared_pieces, 3, "an element of a list is copied");
}
