//! The buffer through which a thread passes the records of its changes to the merger of the change
//! log.
//!
//! ```text
//!   thread: chunk ─publish─► buffer ─take─► merger: chunk
//!               ◄──────── empty chunks ────────
//! ```
//! A full chunk is exchanged for an empty one, so that memory is reused. If the buffer still
//! contains records, new records are copied behind them, under the buffer's lock.

use std::sync::atomic::AtomicU64;

use stdx::sync::Ordering::Relaxed;
use structures::lock::Lock;

use super::NO_SLOT;
use super::target::Targets;
use super::text::{Text, TextEnd};

/// The description of a segment for the merger of the change log. A segment is the part of the
/// record of a unit (a command or transaction) whose commands go to the same targets and follow one
/// another. Nearly all units have one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The log position of the unit (a command or transaction) that the segment is part of.
    pub position: u64,
    /// The end of the segment in [`Chunk::text`]. The segment begins where the previous one ends.
    pub end: TextEnd,
    /// The number of the database that the segment's first command uses.
    pub first_db: u32,
    /// The number of the database that the segment's last command uses.
    pub last_db: u32,
    /// The cluster slot of the segment's keys; [`NO_SLOT`] if it has none or several.
    pub slot: u16,
    /// The targets of the segment's commands: append-only file, replicas, or both.
    pub targets: Targets,
    /// The targets of all segments of the unit (a command or transaction) together.
    pub unit_targets: Targets,
    /// The position of the segment in its unit (a command or transaction).
    pub part: UnitPart,
}

/// The position of a segment of a change log record in its unit (a command or transaction).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitPart {
    /// The segment is a whole unit of the change log: a single command outside a transaction.
    Whole,
    /// A segment of a unit of several commands (a transaction), which must be enclosed in MULTI and
    /// EXEC. More segments of the unit follow.
    Inner,
    /// The last or only segment of a unit of several commands (a transaction).
    Last,
}

impl Header {
    /// Creates the header of a change log record that is one command in database `db`. The caller
    /// sets the field `end` later.
    #[inline]
    pub fn of_command(position: u64, db: u32, targets: Targets) -> Self {
        Self {
            position,
            end: TextEnd::default(),
            first_db: db,
            last_db: db,
            slot: NO_SLOT,
            targets,
            unit_targets: targets,
            part: UnitPart::Whole,
        }
    }
}

/// The change log records of one thread's changes, in the order of their log positions.
#[derive(Default)]
pub struct Chunk {
    pub(super) headers: Vec<Header>,
    pub(super) text: Text,
}

/// The maximum number of segment headers for which an emptied chunk keeps its memory: about the
/// number of small change log records that the kept text can contain.
const KEPT_HEADERS_MAX: usize = 1 << 13;

impl Chunk {
    /// Returns true if the chunk has no change log records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Appends a segment of a change log record with this header. `write` writes the text of the
    /// segment. Sets `header.end`. O(bytes).
    #[inline]
    pub(super) fn append(&mut self, header: Header, write: impl FnOnce(&mut Text)) {
        write(&mut self.text);
        self.headers.push(Header { end: self.text.end(), ..header });
    }

    /// Returns the memory of the chunk without shared values, in bytes. O(1).
    #[inline]
    pub(super) fn memory_bytes(&self) -> usize {
        self.headers.capacity() * size_of::<Header>() + self.text.memory_bytes()
    }

    /// Removes all change log records from the chunk. Keeps the memory up to a limit.
    pub(super) fn clear(&mut self) {
        self.headers.clear();
        self.headers.shrink_to(KEPT_HEADERS_MAX);
        self.text.clear();
    }
}

/// The buffer of one thread's change log records, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Buffer {
    chunk: Lock<Chunk>,
    /// The memory of `chunk`, in bytes. Written under the lock of `chunk`.
    chunk_memory_bytes: AtomicU64,
    /// The memory of the thread's own chunk when it was last published, in bytes. Written by the
    /// thread only.
    thread_memory_bytes: AtomicU64,
    /// The total bytes of the change log records that this thread has published. Written by the
    /// thread only.
    published_bytes: AtomicU64,
    /// The total length in bytes of this thread's change log records that were merged. Only the
    /// merging thread writes it.
    merged_bytes: AtomicU64,
}

impl Buffer {
    /// Moves the change log records in `chunk`, the thread's own, to the end of the buffer. The
    /// chunk is empty afterwards.
    pub fn publish(&self, chunk: &mut Chunk) {
        let len_bytes = chunk.text.len_bytes() as u64;
        let mut own = self.chunk.lock();
        if own.is_empty() {
            std::mem::swap(&mut *own, chunk);
        } else {
            let Chunk { headers, text } = &mut *own;
            let start = text.end();
            text.extend_from(&chunk.text, TextEnd::default(), chunk.text.end());
            headers.extend(chunk.headers.iter().map(|it| Header { end: start + it.end, ..*it }));
        }
        // Relaxed, here and below: the figures serve limits, and each has a single writer.
        self.chunk_memory_bytes.store(own.memory_bytes() as u64, Relaxed);
        drop(own);
        chunk.clear();
        self.thread_memory_bytes.store(chunk.memory_bytes() as u64, Relaxed);
        self.published_bytes.store(self.published_bytes.load(Relaxed) + len_bytes, Relaxed);
    }

    /// Returns true if the buffer has change log records, including all that a thread published
    /// before it requested a merge. Only for the merging thread, after it has merged all records
    /// that it took from this buffer.
    #[inline]
    pub fn has_records(&self) -> bool {
        self.published_bytes.load(Relaxed) != self.merged_bytes.load(Relaxed)
    }

    /// Exchanges the buffer's change log records for `chunk`, which is empty. Does nothing if there
    /// are no records.
    pub fn take(&self, chunk: &mut Chunk) {
        let mut own = self.chunk.lock();
        if !own.is_empty() {
            std::mem::swap(&mut *own, chunk);
            self.chunk_memory_bytes.store(own.memory_bytes() as u64, Relaxed);
        }
    }

    /// Returns the memory of the buffer's chunk and of the thread's own one, in bytes. Takes no
    /// lock.
    pub fn memory_bytes(&self) -> usize {
        (self.chunk_memory_bytes.load(Relaxed) + self.thread_memory_bytes.load(Relaxed)) as usize
    }

    /// Returns the bytes of this thread's change log records that are not merged yet, including
    /// those that the merger has taken.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.published_bytes.load(Relaxed).saturating_sub(self.merged_bytes.load(Relaxed)) as usize
    }

    /// Records that `len_bytes` bytes of this thread's change log records were merged.
    pub fn merged(&self, len_bytes: usize) {
        self.merged_bytes.store(self.merged_bytes.load(Relaxed) + len_bytes as u64, Relaxed);
    }
}
