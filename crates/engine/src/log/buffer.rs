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

use super::text::{Text, TextEnd};

/// The data about a unit's record that the merger needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The unit's position.
    pub position: u64,
    /// The end of the unit's record in [`Chunk::text`]. The record begins at the end of the one
    /// before.
    pub end: TextEnd,
    /// The database of the unit's first command.
    pub first_db: u32,
    /// The database of the unit's last command.
    pub last_db: u32,
    /// True if the unit's commands must be enclosed in MULTI and EXEC.
    pub is_transaction: bool,
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

    /// Appends the record of a unit, which `write` writes. Sets `header.end`. O(bytes).
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
            let moved =
                |end: TextEnd| TextEnd { bytes: end.bytes + start.bytes, values: end.values + start.values };
            headers.extend(chunk.headers.iter().map(|it| Header { end: moved(it.end), ..*it }));
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
