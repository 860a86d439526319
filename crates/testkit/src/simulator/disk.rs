//! The disk for the change log: a reader of the log that accepts bytes at once and confirms them
//! when they are synced, at random times. A crash keeps the synced bytes and cuts the rest at any
//! byte.
//!
//! Together with an append-only file the disk is a tape ([`Disk::recorded_stream`]): it records the
//! stream of all lives, and no reply waits for it.

use std::sync::Mutex;

use engine::Shared;
use engine::log::merger::{LogBatch, LogReader, ReaderId};
use engine::threads::Outbox;
use keyspace::Exclusive;
use resp::Value;
use resp::decode::decode;

use crate::Rng;

/// The stream, and its synced part.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    position: u64,
    synced_bytes: usize,
    synced_position: u64,
    reader: Option<ReaderId>,
    /// The state of a tape, `None` for a disk: the tape's length at the start of this life, and the
    /// ends of this life's units.
    recorded_stream: Option<(usize, Vec<usize>)>,
}

/// Returns the ends of the units in a part of the stream that begins after `from` bytes.
fn ends_of_units(bytes: &[u8], from: usize) -> Vec<usize> {
    let (mut at, mut is_within, mut ends) = (0, false, Vec::new());
    while let Some((request, len_bytes)) = decode(&bytes[at..]).expect("the log's text can be read") {
        at += len_bytes;
        let Value::Array(words) = request else { panic!("not a request: {request}") };
        match words.first().and_then(Value::as_bytes) {
            Some(b"MULTI") => is_within = true,
            Some(b"EXEC") => is_within = false,
            // A SELECT belongs to the unit after it.
            Some(b"SELECT") => continue,
            _ => {}
        }
        if !is_within {
            ends.push(from + at);
        }
    }
    ends
}

/// The disk or tape of the change log: see the module. Its lock is a leaf and not a yield point.
#[derive(Default)]
pub(super) struct Disk(Mutex<Stream>);

/// The log's reader that writes to the disk.
pub(super) struct DiskReader(pub std::sync::Arc<Disk>);

impl LogReader for DiskReader {
    fn append(&mut self, batch: &LogBatch<'_>) -> u64 {
        let mut stream = self.0.stream();
        let from = stream.bytes.len();
        let before = stream.recorded_stream.as_ref().map_or(0, |(before, _)| *before);
        assert_eq!(batch.offset, (from - before) as u64, "the stream has no gaps");
        assert!(batch.position > stream.position, "positions rise");
        batch.text.pieces().for_each(|piece| stream.bytes.extend_from_slice(piece));
        stream.position = batch.position;
        let Stream { bytes, recorded_stream, .. } = &mut *stream;
        let Some((_, ends)) = recorded_stream else { return stream.synced_position };
        ends.extend(ends_of_units(&bytes[from..], from));
        assert_eq!(ends.len() as u64, batch.position, "each position is a unit");
        (stream.synced_bytes, stream.synced_position) = (stream.bytes.len(), stream.position);
        u64::MAX
    }
}

impl Disk {
    /// Creates a tape that holds the stream of earlier lives.
    pub fn recorded_stream(bytes: Vec<u8>) -> Self {
        let (synced_bytes, recorded_stream) = (bytes.len(), Some((bytes.len(), Vec::new())));
        Self(Mutex::new(Stream { bytes, synced_bytes, recorded_stream, ..Stream::default() }))
    }

    /// Returns the end of a position's unit on the tape, in bytes; for 0, the start of this life.
    ///
    /// # Panics
    /// Panics if the disk is not a tape.
    pub fn end_of(&self, position: u64) -> usize {
        let stream = self.stream();
        let (before, ends) = stream.recorded_stream.as_ref().expect("it is a tape");
        position.checked_sub(1).map_or(*before, |at| ends[at as usize])
    }

    /// Returns true if a unit of this life, or the part of earlier lives, ends at this length of
    /// the tape.
    ///
    /// # Panics
    /// Panics if the disk is not a tape.
    pub fn is_end(&self, len_bytes: usize) -> bool {
        let stream = self.stream();
        let (before, ends) = stream.recorded_stream.as_ref().expect("it is a tape");
        len_bytes == *before || ends.binary_search(&len_bytes).is_ok()
    }

    fn stream(&self) -> std::sync::MutexGuard<'_, Stream> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Stores the reader id that the log gave this disk.
    pub fn attached(&self, reader: ReaderId) {
        self.stream().reader = Some(reader);
    }

    /// Merges all changes so far into the stream. Returns the stream's length in bytes; `None`
    /// without a log. The caller holds the gate exclusively.
    pub fn cut(&self, shared: &Shared, _alone: &Exclusive, outbox: &Outbox) -> Option<usize> {
        self.stream().reader?;
        // No change is in progress: this merges all of them.
        shared.log.readers(outbox);
        Some(self.stream().bytes.len())
    }

    /// Returns all bytes that were written, synced or not.
    pub fn all(&self) -> Vec<u8> {
        self.stream().bytes.clone()
    }

    /// Returns true if there are unsynced bytes.
    pub fn is_behind(&self) -> bool {
        let stream = self.stream();
        stream.synced_position < stream.position
    }

    /// Syncs all written bytes, and confirms them.
    pub fn sync(&self, shared: &Shared, outbox: &Outbox) {
        let mut stream = self.stream();
        stream.synced_bytes = stream.bytes.len();
        stream.synced_position = stream.position;
        let (reader, position) = (stream.reader, stream.position);
        drop(stream);
        if let Some(reader) = reader {
            shared.log.confirm([(reader, position)], outbox);
        }
    }

    /// Returns the position up to which nothing can be lost.
    pub fn synced_position(&self) -> u64 {
        self.stream().synced_position
    }

    /// Returns the synced bytes.
    pub fn synced(&self) -> Vec<u8> {
        let stream = self.stream();
        stream.bytes[..stream.synced_bytes].to_vec()
    }

    /// Returns the bytes that a crash leaves: all synced bytes, and a random number of the unsynced
    /// ones, often none.
    pub fn after_crash(&self, rng: &mut Rng) -> Vec<u8> {
        let stream = self.stream();
        let unsynced_bytes = stream.bytes.len() - stream.synced_bytes;
        let torn_bytes = if rng.percent(50) { 0 } else { rng.below(unsynced_bytes + 1) };
        stream.bytes[..stream.synced_bytes + torn_bytes].to_vec()
    }
}
