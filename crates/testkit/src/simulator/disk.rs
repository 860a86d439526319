//! A simulated disk for the change log. As a reader of the log it accepts bytes at once. It writes
//! them at a random later time, syncs them after that, and confirms both to the log. A crash keeps
//! the synced bytes, and cuts the others at a random byte.
//!
//! In runs with an append-only file, the same type serves as the tape ([`Disk::recorded_stream`]):
//! the reference record of all changes of all lives. No reply waits for the tape.

use std::sync::{Mutex, MutexGuard};

use engine::Shared;
use engine::log::level::{Level, Released};
use engine::log::merger::{LogBatch, LogReader, ReaderId};
use engine::log::target::LogTarget;
use engine::threads::Outbox;
use keyspace::Exclusive;

use super::units::{ends_of_units, units_for};
use crate::Rng;

/// The bytes of the change log on the disk, and the lengths of their written and synced parts.
#[derive(Default)]
struct Stream {
    bytes: Vec<u8>,
    /// The offset at which the next batch begins in the change log's stream (the one with the
    /// records for all targets).
    offset: u64,
    position: u64,
    written_position: u64,
    synced_bytes: usize,
    synced_position: u64,
    reader: Option<ReaderId>,
    /// For a tape (the reference record of all changes): its length at the start of this life, and
    /// the end of each command and transaction of this life, in bytes. `None` for a disk.
    recorded_stream: Option<(usize, Vec<usize>)>,
}

/// The disk or tape of the change log: see the module. Its lock is a leaf: no other lock is taken
/// under it. A thread of the simulator does not yield at it.
#[derive(Default)]
pub(super) struct Disk(Mutex<Stream>);

/// The reader that the change log calls; it appends each batch to the disk.
pub(super) struct DiskReader(pub std::sync::Arc<Disk>);

impl LogReader for DiskReader {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut stream = self.0.stream();
        let from = stream.bytes.len();
        assert_eq!(batch.offset, stream.offset, "the stream has no gaps");
        stream.offset += batch.text.len_bytes() as u64;
        assert!(batch.position > stream.position, "positions rise");
        batch.for_each_part(LogTarget::File, |part| stream.bytes.extend_from_slice(part));
        stream.position = batch.position;
        let Stream { bytes, recorded_stream, .. } = &mut *stream;
        let new_ends = ends_of_units(&bytes[from..], from);
        assert_eq!(new_ends.len(), units_for(batch, LogTarget::File), "each position for the file is a unit");
        let Some((_, ends)) = recorded_stream else {
            return Released::new(stream.written_position, stream.synced_position);
        };
        ends.extend(new_ends);
        // Without replicas and scripts that choose targets, all records are for the file.
        assert_eq!(ends.len() as u64, batch.position, "each position is a unit");
        stream.written_position = stream.position;
        (stream.synced_bytes, stream.synced_position) = (stream.bytes.len(), stream.position);
        Released::ALL
    }
}

impl Disk {
    /// Creates a tape, the reference record of all changes. It begins with `bytes`, the changes of
    /// earlier lives.
    pub fn recorded_stream(bytes: Vec<u8>) -> Self {
        let (synced_bytes, recorded_stream) = (bytes.len(), Some((bytes.len(), Vec::new())));
        Self(Mutex::new(Stream { bytes, synced_bytes, recorded_stream, ..Stream::default() }))
    }

    /// Returns the length of the tape at the end of the command or transaction with log position
    /// `position`, in bytes. For position 0, returns the length at the start of this life.
    ///
    /// # Panics
    /// Panics if the disk is not a tape.
    pub fn end_of(&self, position: u64) -> usize {
        let stream = self.stream();
        let (before, ends) = stream.recorded_stream.as_ref().expect("it is a tape");
        position.checked_sub(1).map_or(*before, |at| ends[at as usize])
    }

    /// Returns true if the first `len_bytes` bytes of the tape end with a whole command or
    /// transaction of this life, or with the last change of earlier lives.
    ///
    /// # Panics
    /// Panics if the disk is not a tape.
    pub fn is_end(&self, len_bytes: usize) -> bool {
        let stream = self.stream();
        let (before, ends) = stream.recorded_stream.as_ref().expect("it is a tape");
        len_bytes == *before || ends.binary_search(&len_bytes).is_ok()
    }

    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Stores the reader id under which the change log knows this disk.
    pub fn attached(&self, reader: ReaderId) {
        self.stream().reader = Some(reader);
    }

    /// Merges all changes so far into the stream of the change log, as the exclusive owner of the
    /// keyspace. Returns the length of the stream in bytes; `None` if the run has no log.
    pub fn cut(&self, shared: &Shared, _alone: &Exclusive, outbox: &Outbox) -> Option<usize> {
        self.stream().reader?;
        // No change is in progress: this merges all of them.
        shared.log.readers(outbox);
        Some(self.stream().bytes.len())
    }

    /// Returns all bytes of the change log that the disk has written, synced or not.
    pub fn all(&self) -> Vec<u8> {
        self.stream().bytes.clone()
    }

    /// Returns true if the disk has accepted bytes of the change log that are not synced.
    pub fn is_behind(&self) -> bool {
        let stream = self.stream();
        stream.synced_position < stream.position
    }

    /// Writes all bytes that the disk has accepted, and confirms them to the change log as written.
    pub fn write(&self, shared: &Shared, outbox: &Outbox) {
        let mut stream = self.stream();
        stream.written_position = stream.position;
        self.confirm(stream, shared, outbox);
    }

    /// Writes and syncs all bytes that the disk has accepted, and confirms them to the change log
    /// as synced.
    pub fn sync(&self, shared: &Shared, outbox: &Outbox) {
        let mut stream = self.stream();
        stream.synced_bytes = stream.bytes.len();
        (stream.written_position, stream.synced_position) = (stream.position, stream.position);
        self.confirm(stream, shared, outbox);
    }

    fn confirm(&self, stream: MutexGuard<'_, Stream>, shared: &Shared, outbox: &Outbox) {
        let positions = Released::new(stream.written_position, stream.synced_position);
        let reader = stream.reader;
        drop(stream);
        if let Some(reader) = reader {
            shared.log.confirm([(reader, positions)], outbox);
        }
    }

    /// Returns the log position up to which all changes have reached `level` (written or synced).
    pub fn reached(&self, level: Level) -> u64 {
        let stream = self.stream();
        match level {
            Level::Written => stream.written_position,
            Level::Synced => stream.synced_position,
        }
    }

    /// Returns the bytes of the change log that the disk has synced so far.
    pub fn synced(&self) -> Vec<u8> {
        let stream = self.stream();
        stream.bytes[..stream.synced_bytes].to_vec()
    }

    /// Returns the bytes of the disk after a crash: all synced bytes, then a random number of the
    /// unsynced ones, often 0.
    pub fn after_crash(&self, rng: &mut Rng) -> Vec<u8> {
        let stream = self.stream();
        let unsynced_bytes = stream.bytes.len() - stream.synced_bytes;
        let torn_bytes = if rng.percent(50) { 0 } else { rng.below(unsynced_bytes + 1) };
        stream.bytes[..stream.synced_bytes + torn_bytes].to_vec()
    }
}
