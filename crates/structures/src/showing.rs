//! Showings: walks over a structure piece by piece in its state at one moment, while it continues
//! to change. This module is the common part of those of tables (`table::walked`) and rows
//! (`walked_row`).

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// A part of a structure with a known size in memory.
pub trait Weighed {
    /// Returns the bytes of its block.
    fn weight_bytes(&self) -> usize;
}

/// A function that computes the positions of elements from their keys.
pub type PositionOf = Arc<dyn Fn(&[u8]) -> u64 + Send + Sync>;

/// The parameters of a showing.
#[derive(Clone)]
pub struct Showing {
    /// The number that identifies the showing.
    pub ticket: u32,
    /// The positions of elements by their keys, as used everywhere for the shown tables.
    pub position_of: PositionOf,
    /// The number of bytes that were copied and not shown yet, over all structures shown together.
    pub copied_len_bytes: Arc<AtomicUsize>,
}

impl std::fmt::Debug for Showing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Showing({})", self.ticket)
    }
}

/// The part of one showing in a common count of bytes. It is subtracted when it is dropped.
#[derive(Debug)]
pub(crate) struct CopiedBytes {
    common: Arc<AtomicUsize>,
    own: usize,
}

impl CopiedBytes {
    /// Creates the count of a showing without copied bytes.
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
