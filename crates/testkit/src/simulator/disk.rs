//! The disk that the change log is written to: a reader that takes bytes at once and confirms them
//! when they are synced, which chance decides. A crash keeps what was synced and tears the rest at
//! any byte.
//!
//! Beside an append-only file it is a tape ([`Disk::tape`]): it notes the stream of all lives, and
//! no reply waits for it.

use std::sync::Mutex;

use engine::Shared;
use engine::log::merger::{LogBatch, LogReader, ReaderId};
use engine::threads::Outbox;
use keyspace::Exclusive;
use resp::Value;
use resp::decode::decode;

use crate::Rng;

/// The stream, and how far it is safe.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    position: u64,
    synced_bytes: usize,
    synced_position: u64,
    reader: Option<ReaderId>,
    /// Whether it is a tape: then, how long it was when this life began, and where the units of
    /// this life end.
    tape: Option<(usize, Vec<usize>)>,
}

/// Where the units of a part of the stream end, behind `from` bytes.
fn ends_of_units(bytes: &[u8], from: usize) -> Vec<usize> {
    let (mut at, mut is_within, mut ends) = (0, false, Vec::new());
    while let Some((request, len_bytes)) = decode(&bytes[at..]).expect("the log's text can be read") {
        at += len_bytes;
        let Value::Array(words) = request else { panic!("not a request: {request}") };
        match words.first().and_then(Value::as_bytes) {
            Some(b"MULTI") => is_within = true,
            Some(b"EXEC") => is_within = false,
            // It belongs to what comes behind it.
            Some(b"SELECT") => continue,
            _ => {}
        }
        if !is_within {
            ends.push(from + at);
        }
    }
    ends
}

/// See the module. Its lock is no yield point and a leaf.
#[derive(Default)]
pub(super) struct Disk(Mutex<Stream>);

/// What the log hands its bytes to.
pub(super) struct DiskReader(pub std::sync::Arc<Disk>);

impl LogReader for DiskReader {
    fn append(&mut self, batch: &LogBatch<'_>) -> u64 {
        let mut stream = self.0.stream();
        let from = stream.bytes.len();
        let before = stream.tape.as_ref().map_or(0, |(before, _)| *before);
        assert_eq!(batch.offset, (from - before) as u64, "the stream has no gaps");
        assert!(batch.position > stream.position, "positions rise");
        batch.text.pieces().for_each(|piece| stream.bytes.extend_from_slice(piece));
        stream.position = batch.position;
        let Stream { bytes, tape, .. } = &mut *stream;
        let Some((_, ends)) = tape else { return stream.synced_position };
        ends.extend(ends_of_units(&bytes[from..], from));
        assert_eq!(ends.len() as u64, batch.position, "each position is a unit");
        (stream.synced_bytes, stream.synced_position) = (stream.bytes.len(), stream.position);
        u64::MAX
    }
}

impl Disk {
    /// A tape that holds what earlier lives have left.
    pub fn tape(bytes: Vec<u8>) -> Self {
        let (synced_bytes, tape) = (bytes.len(), Some((bytes.len(), Vec::new())));
        Self(Mutex::new(Stream { bytes, synced_bytes, tape, ..Stream::default() }))
    }

    /// Tape: where the unit of a position ends; for 0, where this life began.
    pub fn end_of(&self, position: u64) -> usize {
        let stream = self.stream();
        let (before, ends) = stream.tape.as_ref().expect("it is a tape");
        position.checked_sub(1).map_or(*before, |at| ends[at as usize])
    }

    /// Tape: whether a unit of this life, or all that was before, ends there.
    pub fn is_end(&self, len_bytes: usize) -> bool {
        let stream = self.stream();
        let (before, ends) = stream.tape.as_ref().expect("it is a tape");
        len_bytes == *before || ends.binary_search(&len_bytes).is_ok()
    }

    fn stream(&self) -> std::sync::MutexGuard<'_, Stream> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Notes the number that the log gave this disk.
    pub fn attached(&self, reader: ReaderId) {
        self.stream().reader = Some(reader);
    }

    /// How long the stream is that all changes so far make, where there is one. The caller is alone
    /// in the gate.
    pub fn cut(&self, shared: &Shared, _alone: &Exclusive, outbox: &Outbox) -> Option<usize> {
        self.stream().reader?;
        // Nothing is under way: this merges all there is.
        shared.log.readers(outbox);
        Some(self.stream().bytes.len())
    }

    /// All that was written, synced or not.
    pub fn all(&self) -> Vec<u8> {
        self.stream().bytes.clone()
    }

    /// Whether there is something to sync.
    pub fn is_behind(&self) -> bool {
        let stream = self.stream();
        stream.synced_position < stream.position
    }

    /// Syncs all that was written, and confirms it.
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

    /// The position up to which nothing is lost.
    pub fn synced_position(&self) -> u64 {
        self.stream().synced_position
    }

    /// What was synced.
    pub fn synced(&self) -> Vec<u8> {
        let stream = self.stream();
        stream.bytes[..stream.synced_bytes].to_vec()
    }

    /// What a crash leaves: all that was synced, and as much behind it as chance says, often
    /// nothing.
    pub fn after_crash(&self, rng: &mut Rng) -> Vec<u8> {
        let stream = self.stream();
        let unsynced_bytes = stream.bytes.len() - stream.synced_bytes;
        let torn_bytes = if rng.percent(50) { 0 } else { rng.below(unsynced_bytes + 1) };
        stream.bytes[..stream.synced_bytes + torn_bytes].to_vec()
    }
}
