//! The state of random choices: the random number generator of a thread, and the counters that all
//! threads share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The counters of sequential keys. The threads of a run share them, so that each key is used once
/// before any is used again.
#[derive(Clone, Debug)]
pub struct Sequences(Arc<[AtomicU64]>);

impl Sequences {
    /// Creates `count` counters of sequential keys, all at 0.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }
}

/// Returns a random seed of 32 bits, short enough to type.
pub fn fresh_seed() -> u64 {
    fastrand::u32(..).into()
}

/// The state of the random choices of one thread of the load generator.
#[derive(Debug)]
pub struct Draw {
    pub(super) rng: fastrand::Rng,
    sequences: Sequences,
    /// The number of the last key in the request that is being rendered from its template.
    pub(super) key: u64,
    /// The last number drawn for a `{rand}` or for the start of a `{range}`.
    pub(super) range_start: u64,
    /// The number of the last row of a data set in the request that is being rendered from its
    /// template.
    pub(super) row: u64,
    /// The cluster hash tag of the current request, without braces.
    pub(super) tag: [u8; 3],
    /// True if each value depends only on its key, so that replies can be verified.
    pub(super) values_follow_keys: bool,
    /// The buffer in which an argument of variable length is built before its length is known.
    pub(super) scratch: Vec<u8>,
}

impl Draw {
    /// Creates the state of thread `index` in a run of workload `name` with `seed`. The same seed,
    /// name and index give the same choices. If one of them differs, the choices differ.
    pub fn of_thread(seed: u64, name: &str, index: usize, sequences: Sequences) -> Self {
        // FNV-1a, so that a seed has the same meaning in every build.
        let bytes = seed.to_le_bytes().into_iter().chain((index as u64).to_le_bytes()).chain(name.bytes());
        let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self::new(bytes.fold(0xcbf2_9ce4_8422_2325, mix), sequences)
    }

    /// Creates the state of one thread from `seed` alone.
    pub fn new(seed: u64, sequences: Sequences) -> Self {
        Self {
            rng: fastrand::Rng::with_seed(seed),
            sequences,
            key: 0,
            range_start: 0,
            row: 0,
            tag: [b'0'; 3],
            values_follow_keys: false,
            scratch: Vec::new(),
        }
    }

    /// Makes each value that a request writes depend only on the key of the request.
    pub fn let_values_follow_keys(&mut self) {
        self.values_follow_keys = true;
    }

    /// Returns the number of the last key, or of the query, in the last rendered request.
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns a random number below `bound`. Panics if `bound` is 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.rng.u32(..bound)
    }

    /// Returns the next number of the counter with index `counter`. Relaxed: no other data depends
    /// on the number.
    pub(super) fn next_of(&mut self, counter: usize) -> u64 {
        self.sequences.0.get(counter).map_or(0, |counter| counter.fetch_add(1, Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_seeds_and_threads_draw_apart_and_repeat_themselves() {
        let numbers = |seed, name, index| {
            let mut draw = Draw::of_thread(seed, name, index, Sequences::new(0));
            [(); 8].map(|()| draw.below(u32::MAX))
        };
        let first = numbers(7, "SET", 0);
        assert_eq!(first, numbers(7, "SET", 0));
        for other in [numbers(7, "GET", 0), numbers(8, "SET", 0), numbers(7, "SET", 1)] {
            assert!(first.iter().zip(other).all(|(one, other)| *one != other), "{first:?} {other:?}");
        }
    }
}
