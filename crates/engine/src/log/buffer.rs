//! A thread's records on their way to the merger.
//!
//! ```text
//!   thread: chunk ─publish─► buffer ─take─► merger: chunk
//!               ◄──────── empty chunks ────────
//! ```
//! Chunks are exchanged, so that their memory goes round; only where the buffer is not empty yet
//! are records copied behind those in it. The lock is held for that.

use std::sync::atomic::AtomicU64;

use stdx::sync::Ordering::Relaxed;
use structures::lock::Lock;

use super::text::{Text, TextEnd};

/// The part of a unit's record that the merger needs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The unit's position.
    pub position: u64,
    /// The end of its record in [`Chunk::text`]: it begins where the one before ends.
    pub end: TextEnd,
    /// The database of its first command.
    pub first_db: u32,
    /// The database of its last command.
    pub last_db: u32,
    /// Its commands stand between MULTI and EXEC.
    pub is_transaction: bool,
}

/// Records of one thread, in the order of their positions.
#[derive(Default)]
pub struct Chunk {
    pub(super) headers: Vec<Header>,
    pub(super) text: Text,
}

/// Room for headers that an emptied chunk keeps.
const KEPT_HEADERS_MAX: usize = 1 << 15;

impl Chunk {
    /// Returns true if it has no records.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Appends the record of a unit, which `write` writes; its end is found here. O(bytes).
    #[inline]
    pub(super) fn append(&mut self, header: Header, write: impl FnOnce(&mut Text)) {
        write(&mut self.text);
        self.headers.push(Header { end: self.text.end(), ..header });
    }

    /// Forgets all, keeping the memory unless it is much.
    pub(super) fn clear(&mut self) {
        self.headers.clear();
        self.headers.shrink_to(KEPT_HEADERS_MAX);
        self.text.clear();
    }
}

/// See the module. On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Buffer {
    chunk: Lock<Chunk>,
    /// Bytes of all records so far. Only the thread whose buffer this is writes it.
    published_bytes: AtomicU64,
    /// Bytes of those that were merged. Only the owner of the merger's role writes it.
    merged_bytes: AtomicU64,
}

impl Buffer {
    /// Takes over the records of its thread's chunk, which is empty afterwards.
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
        // Relaxed, here and below: figures for limits, with one writer each.
        self.published_bytes.store(self.published_bytes.load(Relaxed) + len_bytes, Relaxed);
    }

    /// Returns true if there are records that were not taken, for a thread that has merged all
    /// that it took. It sees the records that a thread published before it asked for a merge.
    #[inline]
    pub fn has_records(&self) -> bool {
        self.published_bytes.load(Relaxed) != self.merged_bytes.load(Relaxed)
    }

    /// Exchanges the records for an empty chunk.
    pub fn take(&self, chunk: &mut Chunk) {
        let mut own = self.chunk.lock();
        if !own.is_empty() {
            std::mem::swap(&mut *own, chunk);
        }
    }

    /// Bytes that wait to be merged, those that the merger has taken included.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.published_bytes.load(Relaxed).saturating_sub(self.merged_bytes.load(Relaxed)) as usize
    }

    /// Counts records out that were merged.
    pub fn merged(&self, len_bytes: usize) {
        self.merged_bytes.store(self.merged_bytes.load(Relaxed) + len_bytes as u64, Relaxed);
    }
}
