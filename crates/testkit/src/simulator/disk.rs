//! The disk that the change log is written to: a reader that takes bytes at once and confirms them
//! when they are synced, which chance decides. A crash keeps what was synced and tears the rest at
//! any byte.

use std::sync::Mutex;

use engine::Shared;
use engine::log::merger::{LogBatch, LogReader, ReaderId};
use engine::threads::Outbox;
use keyspace::Exclusive;

use crate::Rng;

/// The stream, and how far it is safe.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    position: u64,
    synced_bytes: usize,
    synced_position: u64,
    reader: Option<ReaderId>,
}

/// See the module. Its lock is no yield point and a leaf.
#[derive(Default)]
pub(super) struct Disk(Mutex<Stream>);

/// What the log hands its bytes to.
pub(super) struct DiskReader(pub std::sync::Arc<Disk>);

impl LogReader for DiskReader {
    fn append(&mut self, batch: &LogBatch<'_>) -> u64 {
        let mut stream = self.0.stream();
        assert_eq!(batch.offset, stream.bytes.len() as u64, "the stream has no gaps");
        assert!(batch.position > stream.position, "positions rise");
        batch.text.pieces().for_each(|piece| stream.bytes.extend_from_slice(piece));
        stream.position = batch.position;
        stream.synced_position
    }
}

/// A reader that wants nothing.
struct Nothing;

impl LogReader for Nothing {
    fn append(&mut self, _batch: &LogBatch<'_>) -> u64 {
        u64::MAX
    }
}

impl Disk {
    fn stream(&self) -> std::sync::MutexGuard<'_, Stream> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Notes the number that the log gave this disk.
    pub fn attached(&self, reader: ReaderId) {
        self.stream().reader = Some(reader);
    }

    /// How long the stream is that all changes so far make, where there is one. The caller is alone
    /// in the gate.
    pub fn cut(&self, shared: &Shared, alone: &Exclusive, outbox: &Outbox) -> Option<usize> {
        self.stream().reader?;
        // Whoever attaches gets what comes behind an exact cut: all before it has been merged.
        let marker = shared.log.attach(alone, Box::new(Nothing), outbox)?;
        shared.log.detach(alone, marker, outbox);
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

    /// What a crash leaves: all that was synced, and as much behind it as chance says.
    pub fn after_crash(&self, rng: &mut Rng) -> Vec<u8> {
        let stream = self.stream();
        let unsynced_bytes = stream.bytes.len() - stream.synced_bytes;
        stream.bytes[..stream.synced_bytes + rng.below(unsynced_bytes + 1)].to_vec()
    }
}
