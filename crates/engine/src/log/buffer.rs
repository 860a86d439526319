//! A thread's records on their way to the merger.
//!
//! One thread appends, one at a time takes: the merger swaps the whole chunk for an empty one. The
//! lock is held for one copy or one swap, so the appending thread hardly ever finds it taken.

use std::sync::atomic::AtomicU64;

use stdx::sync::Ordering::Relaxed;
use structures::lock::Lock;

/// What the merger needs to know of a unit's record.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// The unit's position.
    pub position: u64,
    /// Where its record ends in [`Chunk::bytes`]: it begins where the one before ends.
    pub end: usize,
    /// The database of its first command.
    pub first_db: u32,
    /// That of its last one.
    pub last_db: u32,
    /// Its commands stand between MULTI and EXEC.
    pub is_transaction: bool,
}

/// Records of one thread, in the order of their positions.
#[derive(Default)]
pub(super) struct Chunk {
    pub headers: Vec<Header>,
    pub bytes: Vec<u8>,
}

/// Memory that an emptied chunk keeps.
const KEPT_BYTES_MAX: usize = 1 << 20;

impl Chunk {
    /// Forgets all, keeping the memory unless it is much.
    pub fn clear(&mut self) {
        self.headers.clear();
        self.bytes.clear();
        self.headers.shrink_to(KEPT_BYTES_MAX / size_of::<Header>());
        self.bytes.shrink_to(KEPT_BYTES_MAX);
    }
}

/// See the module. On cache lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(super) struct Buffer {
    chunk: Lock<Chunk>,
    /// Bytes of all records so far. Only the thread whose buffer this is writes it.
    appended_bytes: AtomicU64,
    /// Bytes of those that were merged. Only the owner of the merger's role writes it.
    merged_bytes: AtomicU64,
}

impl Buffer {
    /// Appends the record of a unit, which `write` writes; its end is found here. O(bytes).
    #[inline]
    pub fn append(&self, header: Header, write: impl FnOnce(&mut Vec<u8>)) {
        let mut chunk = self.chunk.lock();
        let Chunk { bytes, headers } = &mut *chunk;
        let start = bytes.len();
        write(bytes);
        let (end, len_bytes) = (bytes.len(), bytes.len() - start);
        headers.push(Header { end, ..header });
        drop(chunk);
        // Relaxed, here and below: figures for limits, with one writer each.
        self.appended_bytes.store(self.appended_bytes.load(Relaxed) + len_bytes as u64, Relaxed);
    }

    /// Exchanges the records for an empty chunk.
    pub fn take(&self, chunk: &mut Chunk) {
        let mut own = self.chunk.lock();
        if !own.headers.is_empty() {
            std::mem::swap(&mut *own, chunk);
        }
    }

    /// Bytes that wait to be merged, those that the merger has taken included.
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.appended_bytes.load(Relaxed).saturating_sub(self.merged_bytes.load(Relaxed)) as usize
    }

    /// Counts records out that were merged.
    pub fn merged(&self, len_bytes: usize) {
        self.merged_bytes.store(self.merged_bytes.load(Relaxed) + len_bytes as u64, Relaxed);
    }
}
