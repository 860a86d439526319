//! A thread's records on their way to the merger.
//!
//! One thread appends, one at a time takes: the merger swaps the whole chunk for an empty one. The
//! lock is held for one copy or one swap, so the appending thread hardly ever finds it taken.

use stdx::sync::AtomicUsize;
use stdx::sync::Ordering::Relaxed;
use structures::lock::Lock;

use super::unit::UnitRecord;

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
    /// Bytes of records that are not merged yet, those that the merger has taken included.
    len_bytes: AtomicUsize,
}

impl Buffer {
    /// Appends the record of a unit, which is empty afterwards. O(bytes).
    pub fn append(&self, position: u64, unit: &mut UnitRecord) {
        let (first_db, last_db) = unit.dbs();
        let mut chunk = self.chunk.lock();
        chunk.bytes.extend_from_slice(unit.bytes());
        let header = Header {
            position,
            end: chunk.bytes.len(),
            first_db: first_db as u32,
            last_db: last_db as u32,
            is_transaction: unit.is_transaction(),
        };
        chunk.headers.push(header);
        // Relaxed: a figure for limits.
        self.len_bytes.fetch_add(unit.bytes().len(), Relaxed);
        drop(chunk);
        unit.clear();
    }

    /// Exchanges the records for an empty chunk.
    pub fn take(&self, chunk: &mut Chunk) {
        let mut own = self.chunk.lock();
        if !own.headers.is_empty() {
            std::mem::swap(&mut *own, chunk);
        }
    }

    /// Bytes that wait to be merged.
    pub fn len_bytes(&self) -> usize {
        self.len_bytes.load(Relaxed)
    }

    /// Counts records out that were merged.
    pub fn merged(&self, len_bytes: usize) {
        self.len_bytes.fetch_sub(len_bytes, Relaxed);
    }
}
