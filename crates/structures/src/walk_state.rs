//! Walks: visits of one structure in many steps, while the structure continues to change. A walk
//! visits all parts of the structure in their state at its start. Snapshots use walks for big
//! values. This module has the code that the walks of tables (`table::walked`) and of rows of nodes
//! (`walked_row`) share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A part of a walked structure (an element, a node) with a known size in memory.
pub trait MemorySize {
    /// Returns the size of this element or node in memory in bytes, with the blocks that it owns.
    fn weight_bytes(&self) -> usize;
}

/// A function that computes the positions of elements from their keys.
pub type PositionOf = Arc<dyn Fn(&[u8]) -> u64 + Send + Sync>;

/// The parameters of a snapshot's walk over one structure.
#[derive(Clone)]
pub struct WalkState {
    /// The ticket: a number that identifies the snapshot's walk of the structure.
    pub ticket: u32,
    /// The function that computes the positions of elements in a table: the same as for all other
    /// operations on the table. Not used by rows of nodes.
    pub position_of: PositionOf,
    /// The total size in bytes of the copies that were made and not visited yet. All walks of a
    /// snapshot share this count.
    pub copied_len_bytes: Arc<AtomicUsize>,
}

impl std::fmt::Debug for WalkState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Showing({})", self.ticket)
    }
}

/// The number of bytes in memory for one walk of a structure. A count that several walks share
/// includes it; dropping this value subtracts it from the shared count. The server excludes the
/// shared count from the memory that `maxmemory` limits. Bytes must be added before they are
/// allocated, and subtracted after they are freed.
#[derive(Debug)]
pub struct CopiedBytes {
    common: Arc<AtomicUsize>,
    own: usize,
}

impl CopiedBytes {
    /// Creates the count of the bytes in memory for a snapshot's walk, which has none yet.
    pub fn new(common: Arc<AtomicUsize>) -> Self {
        Self { common, own: 0 }
    }

    /// Adds bytes to the count of this snapshot's walk and to the count that walks share.
    pub fn add(&mut self, len_bytes: usize) {
        self.own += len_bytes;
        self.common.fetch_add(len_bytes, Relaxed);
    }

    /// Subtracts bytes from the count of this snapshot's walk and from the count that walks share.
    pub fn sub(&mut self, len_bytes: usize) {
        self.own -= len_bytes;
        self.common.fetch_sub(len_bytes, Relaxed);
    }
}

impl Drop for CopiedBytes {
    fn drop(&mut self) {
        self.common.fetch_sub(self.own, Relaxed);
    }
}
