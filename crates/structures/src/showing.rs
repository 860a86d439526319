//! The common part of structures that can be shown piece by piece as they were at one moment while
//! they go on changing: tables (`table::walked`) and rows (`walked_row`).

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A part of a structure that knows how much memory it takes.
pub trait Weighed {
    /// Bytes of its block.
    fn weight_bytes(&self) -> usize;
}

/// Gives the positions of elements by their keys.
pub type PositionOf = Arc<dyn Fn(&[u8]) -> u64 + Send + Sync>;

/// The state at the start of a showing.
#[derive(Clone)]
pub struct Showing {
    /// A number of who shows it.
    pub ticket: u32,
    /// The positions of elements by their keys, as everywhere for the tables that are shown.
    pub position_of: PositionOf,
    /// Counts the bytes of what was copied and not shown yet, of all that are shown together.
    pub copied_len_bytes: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Showing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Showing({})", self.ticket)
    }
}

/// One showing's part of a common count of bytes; gives it back when it is dropped.
#[derive(Debug)]
pub(crate) struct CopiedBytes {
    common: Arc<AtomicUsize>,
    own: usize,
}

impl CopiedBytes {
    /// Creates the state before any showing.
    pub(crate) fn new(common: Arc<AtomicUsize>) -> Self {
        Self { common, own: 0 }
    }

    pub(crate) fn add(&mut self, len_bytes: usize) {
        self.own += len_bytes;
        self.common.fetch_add(len_bytes, Relaxed);
    }

    pub(crate) fn sub(&mut self, len_bytes: usize) {
        self.own -= len_bytes;
        self.common.fetch_sub(len_bytes, Relaxed);
    }
}

impl Drop for CopiedBytes {
    fn drop(&mut self) {
        self.common.fetch_sub(self.own, Relaxed);
    }
}
