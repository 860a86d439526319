//! The point in the replication stream at which a snapshot was taken, as facts (AUX fields) in its
//! file: `repl-stream-db`, `repl-id` and `repl-offset`. In an append-only file, the point is in the
//! last line, called note, which is written when the server ends.
//!
//! A snapshot has these facts if the stream was recorded when it was taken. A server that loads the
//! file at its start has the data that a replica at this offset has. So after a restart of its
//! primary, a replica can continue without a new snapshot. This needs three things:
//!
//! - The stream is recorded before the first key is loaded, so nothing changes the data uncounted.
//! - A key that is left out because it has expired is deleted in the stream.
//! - If anything else of the file is left out, the stream ends after the load, and replicas need a
//!   snapshot.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};

use engine::threads::Outbox;
use keyspace::{Exclusive, KeyEntry};
use persist::aof::stream_note::StreamNote;
use persist::save::Save;
use replicate::history::ReplId;

use crate::replica_stream::{self as stream, Loaded};
use crate::replication::memory::backlog_limit_bytes;
use crate::replication::messages::Point;
use crate::shared::Shared;

/// The name of the AUX field that states the database which is selected in the replication stream.
const STREAM_DB: &str = "repl-stream-db";
/// The name of the AUX field that states the replication ID.
const ID: &str = "repl-id";
/// The name of the AUX field that states the offset in the replication stream.
const OFFSET: &str = "repl-offset";
/// The highest offset that is accepted from a file, so that sums with it cannot overflow.
const OFFSET_MAX: u64 = 1 << 62;

/// The AUX fields of a snapshot file that state the point of its data in the replication stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PointFacts {
    /// The database that is selected in the replication stream at the point.
    pub stream_db: usize,
    /// The replication ID, which names the history of the stream.
    pub id: String,
    /// The offset of the point in the replication stream, in bytes.
    pub offset_bytes: u64,
}

impl From<Point> for PointFacts {
    fn from(Point { id, offset, stream_db }: Point) -> Self {
        Self { stream_db: stream_db as usize, id: id.to_string(), offset_bytes: offset }
    }
}

impl PointFacts {
    /// Adds the AUX fields that state the point of the data in the replication stream to the file
    /// that `save` writes.
    pub fn add_to(self, save: &Save) {
        save.add_facts([
            (STREAM_DB, self.stream_db.to_string()),
            (ID, self.id),
            (OFFSET, self.offset_bytes.to_string()),
        ]);
    }
}

/// Adds the AUX fields that state the present point of the replication stream to the file of
/// `save`, if the stream is recorded. The caller is the exclusive owner of the keyspace and is at
/// the end of a command or transaction.
pub fn add_point(shared: &Shared, alone: &Exclusive, save: &Save) {
    let outbox = Outbox::default();
    if let Some(point) = stream::point(shared, alone, &outbox) {
        PointFacts::from(point).add_to(save);
    }
    shared.wake(&outbox);
}

/// Returns the note with the present point of the replication stream, the last line of an
/// append-only file; `None` if the stream is not recorded. The caller is the exclusive owner of the
/// keyspace and is at the end of a command or transaction.
pub fn note(shared: &Shared, alone: &Exclusive) -> Option<StreamNote> {
    let outbox = Outbox::default();
    let point = stream::point(shared, alone, &outbox);
    shared.wake(&outbox);
    let Point { id, offset, stream_db } = point?;
    Some(StreamNote { id: id.as_str().as_bytes().try_into().ok()?, offset_bytes: offset, stream_db })
}

/// The facts (AUX fields) about a point of the replication stream that were read from a file so
/// far.
#[derive(Debug, Default)]
pub struct ReadFacts {
    stream_db: Option<u32>,
    id: Option<ReplId>,
    offset: Option<u64>,
}

impl ReadFacts {
    /// Stores the AUX field with this name and value if it is one of the three about the point in
    /// the replication stream.
    pub fn note(&mut self, name: &[u8], value: &[u8]) {
        let number = || std::str::from_utf8(value).ok()?.parse::<u64>().ok();
        if name == STREAM_DB.as_bytes() {
            // Old versions of Redis wrote -1 together with a wrong offset.
            self.stream_db = number().and_then(|db| u32::try_from(db).ok());
        } else if name == ID.as_bytes() {
            self.id = ReplId::parse(value).filter(|&id| id != ReplId::NONE);
        } else if name == OFFSET.as_bytes() {
            self.offset = number().filter(|&offset| offset <= OFFSET_MAX);
        }
    }

    /// Returns the facts that a note, the last line of an append-only file, states about its point
    /// in the replication stream.
    fn of_note(note: StreamNote) -> Self {
        Self {
            stream_db: Some(note.stream_db),
            id: ReplId::parse(&note.id).filter(|&id| id != ReplId::NONE),
            offset: Some(note.offset_bytes).filter(|&offset| offset <= OFFSET_MAX),
        }
    }

    /// Returns the point in the replication stream that the facts state; `None` if a fact is
    /// missing or invalid.
    fn point(&self) -> Option<Point> {
        Some(Point { id: self.id?, offset: self.offset?, stream_db: self.stream_db? })
    }
}

/// The function that starts the thread `repl`, which owns the replicas' connections.
pub type StartThread = fn(&Arc<Shared>) -> Result<(), String>;

/// The replication stream during the load at the start of the server. It continues from the point
/// that the loaded file states.
pub struct StreamDuringLoad<'s> {
    shared: &'s Arc<Shared>,
    start_thread: StartThread,
    facts: Mutex<ReadFacts>,
    /// True after the replication stream was continued from the point that the loaded file states.
    is_continued: AtomicBool,
    /// The number of times that something in the data file was left out of the load, such as an
    /// empty key. Expired keys do not count.
    left_out: AtomicU64,
}

impl<'s> StreamDuringLoad<'s> {
    /// Creates the state of the replication stream before the data file is read.
    pub fn new(shared: &'s Arc<Shared>, start_thread: StartThread) -> Self {
        Self { shared, start_thread, facts: Mutex::default(), is_continued: false.into(), left_out: 0.into() }
    }

    /// Stores an AUX field of the snapshot file, if it is about the point in the replication
    /// stream.
    pub fn note_fact(&self, name: &[u8], value: &[u8]) {
        self.facts.lock().unwrap_or_else(PoisonError::into_inner).note(name, value);
    }

    /// Continues the replication stream from the point that the loaded file states, if it states
    /// one. Called before the first key is loaded, outside the gate that guards the keyspace.
    pub fn begin_keys(&self) {
        let point = self.facts.lock().unwrap_or_else(PoisonError::into_inner).point();
        let Some(point) = point else { return };
        // The thread frees the backlog after `repl-backlog-ttl`, also if no replica ever comes.
        if let Err(error) = (self.start_thread)(self.shared) {
            tracing::warn!("Cannot continue the replication stream of the snapshot: {error}");
            return;
        }
        let (shared, outbox) = (self.shared, Outbox::default());
        let limit_bytes = backlog_limit_bytes(&shared.config());
        let is_continued = shared
            .engine
            .gate
            .exclusive(|alone| stream::continue_from(shared, alone, (point, limit_bytes), &outbox));
        shared.wake(&outbox);
        self.is_continued.store(is_continued, Relaxed);
    }

    /// Continues the replication stream from the point that `note` states, the last line of the
    /// loaded append-only files. Nothing has changed since the load. The caller is outside the gate
    /// that guards the keyspace.
    pub fn continue_after(self, note: StreamNote) {
        *self.facts.lock().unwrap_or_else(PoisonError::into_inner) = ReadFacts::of_note(note);
        self.begin_keys();
        self.end();
    }

    /// Appends DEL commands for `keys`, which were not loaded because they have expired, to the
    /// replication stream. Several threads may call it. O(keys).
    pub fn delete(&self, db: usize, keys: &[KeyEntry]) {
        if keys.is_empty() || !self.is_continued.load(Relaxed) {
            return;
        }
        let mut bytes = Vec::new();
        resp::encode_request(&["SELECT", &db.to_string()], &mut bytes);
        keys.iter().for_each(|key| resp::encode_request(&[b"DEL", key.key()], &mut bytes));
        self.shared.replication.primary().append(&bytes);
    }

    /// Records that something in the loaded file was left out for another reason than expiry.
    pub fn note_left_out(&self) {
        self.left_out.fetch_add(1, Relaxed);
    }

    /// Ends the load. If the loaded data is not exactly that of the point from which the stream
    /// continued, ends the replication stream too, so that replicas need a snapshot. The caller is
    /// outside the gate that guards the keyspace.
    pub fn end(self) {
        if !self.is_continued.into_inner() {
            return;
        }
        let (shared, outbox, left_out) = (self.shared, Outbox::default(), self.left_out.into_inner());
        let loaded = if left_out == 0 { Loaded::Exactly } else { Loaded::Partly };
        shared.engine.gate.exclusive(|alone| stream::end_load(shared, alone, loaded, &outbox));
        shared.wake(&outbox);
        let point = self.facts.into_inner().unwrap_or_else(PoisonError::into_inner).point();
        match point {
            Some(Point { id, offset, .. }) if left_out == 0 => tracing::info!(
                "The data is that of the history {id} at offset {offset}: it can be continued there."
            ),
            _ => tracing::info!("Replicas need a snapshot, because a part of the file was left out."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "0123456789abcdef0123456789abcdef01234567";

    fn read(facts: &[(&str, &str)]) -> Option<(String, u64)> {
        let mut read = ReadFacts::default();
        facts.iter().for_each(|(name, value)| read.note(name.as_bytes(), value.as_bytes()));
        read.point().map(|point| (point.id.to_string(), point.offset))
    }

    #[test]
    fn a_point_needs_all_three_facts() {
        let whole = [("repl-stream-db", "3"), ("repl-id", OWN), ("redis-bits", "64"), ("repl-offset", "0")];
        assert_eq!(read(&whole), Some((OWN.to_owned(), 0)));
        for missing in [0, 1, 3] {
            let mut facts = whole.to_vec();
            facts.remove(missing);
            assert_eq!(read(&facts), None, "{facts:?}");
        }
    }

    #[test]
    fn invalid_facts_name_no_point() {
        let none = ReplId::NONE.to_string();
        for (at, value) in [
            (0, "-1"),
            (0, ""),
            (1, "0123"),
            (1, &none),
            (2, "-1"),
            (2, "x"),
            (2, "18446744073709551615"),
            (2, "99999999999999999999999"),
        ] {
            let mut facts = [("repl-stream-db", "0"), ("repl-id", OWN), ("repl-offset", "77")];
            facts[at].1 = value;
            assert_eq!(read(&facts), None, "{facts:?}");
        }
    }
}
