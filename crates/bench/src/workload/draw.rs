//! What random choices depend on: a thread's generator and the counters all threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters of sequential keys, shared by the threads of a run, so that each key comes once before any
/// comes again.
#[derive(Clone, Debug)]
pub struct Sequences(Arc<[AtomicU64]>);

impl Sequences {
    /// `count` counters, all at 0.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}

/// The state of one thread's choices.
#[derive(Debug)]
pub struct Draw {
    pub(super) rng: fastrand::Rng,
    sequences: Sequences,
    /// The number of the last key written into the present request.
    pub(super) key: u64,
    /// The start of the last range written.
    pub(super) range_start: u64,
    /// The hash tag of the present request.
    pub(super) tag: [u8; 3],
    /// Whether a value follows from its key, so that a reader knows what to expect.
    pub(super) values_follow_keys: bool,
    /// An argument being put together.
    pub(super) scratch: Vec<u8>,
}

impl Draw {
    /// Choices from `seed`.
    pub fn new(seed: u64, sequences: Sequences) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            sequences,
            key: 0,
            range_start: 0,
            tag: [b'0'; 3],
            values_follow_keys: false,
            scratch: Vec::new(),
        }
    }

    /// Lets each value follow from the key of its request.
    pub fn let_values_follow_keys(&mut self) {
        self.values_follow_keys = true;
    }

    /// The number of the key in the request rendered last.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// A number below `bound`, which is above 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.rng.u32(..bound)
    }

    /// The next number of a counter. Relaxed: it orders nothing else.
    pub(super) fn next_of(&mut self, counter: usize) -> u64 {
        self.sequences.0.get(counter).map_or(0, |counter| counter.fetch_add(1, Relaxed))
    }
}
