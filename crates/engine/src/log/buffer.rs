//! A thread's buffer of records for the merger.
//!
//! ```text
//!   thread: chunk ─publish─► buffer ─take─► merger: chunk
//!               ◄──────── empty chunks ────────
//! ```
//! Full and empty chunks are exchanged, so that their memory is reused. Records are copied only if
//! the buffer still contains records; the lock is held during the copy.

use std::sync::atomic::AtomicU64;

use stdx::sync::Ordering::Relaxed;
use structures::lock::Lock;

use super::NO_SLOT;
use super::target::Targets;
use super::text::{Text, TextEnd};

/// The data about a segment that the merger needs. A segment is the part of a unit's record that
/// goes to the same targets: consecutive commands. Nearly all units have one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The unit's position.
    pub position: u64,
    /// The end of the segment in [`Chunk::text`]. The segment begins at the end of the one before.
    pub end: TextEnd,
    /// The database of the segment's first command.
    pub first_db: u32,
    /// The database of the segment's last command.
    pub last_db: u32,
    /// The cluster slot of the segment's keys; [`NO_SLOT`] for none or several.
    pub slot: u16,
    /// The targets of the segment.
    pub targets: Targets,
    /// The targets of the whole unit.
    pub unit_targets: Targets,
    /// The position of the segment in its unit.
    pub part: UnitPart,
}

/// The position of a segment in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitPart {
    /// The unit is one command.
    Whole,
    /// The segment is part of a unit of several commands, which must be enclosed in MULTI and EXEC.
    /// More segments follow.
    Inner,
    /// The segment is the last one, or the only one, of a unit of several commands.
    Last,
}

impl Header {
    /// Creates the header of a unit that is one command in database `db`. The end is set later.
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

/// The records of one thread, in the order of their positions.
#[derive(Default)]
pub struct Chunk {
    pub(super) headers: Vec<Header>,
    pub(super) text: Text,
}

/// The most headers for which an emptied chunk keeps its memory.
const KEPT_HEADERS_MAX: usize = 1 << 15;

impl Chunk {
    /// Returns true if the chunk has no records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Appends a segment, which `write` writes. Sets `header.end`. O(bytes).
    #[inline]
    pub(super) fn append(&mut self, header: Header, write: impl FnOnce(&mut Text)) {
        write(&mut self.text);
        self.headers.push(Header { end: self.text.end(), ..header });
    }

    /// Removes all records from the chunk. Keeps the memory up to a limit.
    pub(super) fn clear(&mut self) {
        self.headers.clear();
        self.headers.shrink_to(KEPT_HEADERS_MAX);
        self.text.clear();
    }
}

/// The buffer of one thread, on cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Buffer {
    chunk: Lock<Chunk>,
    /// The total bytes of the records that this thread has published. Written by the thread only.
    published_bytes: AtomicU64,
    /// The total bytes of this thread's records that were merged. Written by the owner of the
    /// merger's role only.
    merged_bytes: AtomicU64,
}

impl Buffer {
    /// Moves the records of the thread's chunk into the buffer and empties the chunk.
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
        drop(own);
        chunk.clear();
        // Relaxed, here and below: the figures serve limits, and each has a single writer.
        self.published_bytes.store(self.published_bytes.load(Relaxed) + len_bytes, Relaxed);
    }

    /// Returns true if the buffer has records. The caller is the merger and has merged all records
    /// that it took from this buffer. It sees all records that a thread published before it
    /// requested a merge.
    #[inline]
    pub fn has_records(&self) -> bool {
        self.published_bytes.load(Relaxed) != self.merged_bytes.load(Relaxed)
    }

    /// Exchanges the records in the buffer for the empty `chunk`; does nothing if there are no
    /// records.
    pub fn take(&self, chunk: &mut Chunk) {
        let mut own = self.chunk.lock();
        if !own.is_empty() {
            std::mem::swap(&mut *own, chunk);
        }
    }

    /// Returns the bytes of this thread's records that are not merged yet, including those that the
    /// merger has taken.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.published_bytes.load(Relaxed).saturating_sub(self.merged_bytes.load(Relaxed)) as usize
    }

    /// Records that `len_bytes` of this thread's records were merged.
    pub fn merged(&self, len_bytes: usize) {
        self.merged_bytes.store(self.merged_bytes.load(Relaxed) + len_bytes as u64, Relaxed);
    }
}
