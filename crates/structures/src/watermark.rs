//! A number that rises, and threads that wait until it has reached theirs.
//!
//! ```text
//!   waiting thread                     who sets it
//!   store what it waits for, fence     store the number, fence
//!   look at the number                 look at what each thread waits for, wake
//! ```
//! **No lost wake-up.** In the single order of SeqCst fences one of the two comes first, and the
//! other side then sees its store: either the thread finds its number reached and does not wait, or
//! it is found waiting. Who wakes it takes what it waits for away, so that it is woken once.
//! A thread waits for one number at a time, the smallest that it has something for.
//! Proven under loom: tests/loom_combiner.rs.

use stdx::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use stdx::sync::{AtomicU64, fence};

/// The value of a thread that does not wait: it is never reached by being passed.
const NOTHING: u64 = u64::MAX;

/// See the module.
pub struct Watermark {
    value: AtomicU64,
    awaited: Box<[AtomicU64]>,
}

impl Watermark {
    /// Creates a watermark at `value`, with `threads` threads that may wait.
    pub fn new(threads: usize, value: u64) -> Self {
        let awaited = (0..threads).map(|_| AtomicU64::new(NOTHING)).collect();
        Self { value: AtomicU64::new(value), awaited }
    }

    /// Returns its value.
    #[inline]
    pub fn get(&self) -> u64 {
        // Acquire: what was done before it was set is visible.
        self.value.load(Acquire)
    }

    /// Sets it, and calls `wake` for each thread that waited for a number up to it. One thread at a
    /// time. O(threads).
    pub fn set(&self, value: u64, mut wake: impl FnMut(usize)) {
        self.value.store(value, Release);
        // The number before the look at who waits: pairs with the fence in `wait_for`.
        fence(SeqCst);
        for (thread, awaited) in self.awaited.iter().enumerate() {
            let number = awaited.load(Relaxed);
            if number != NOTHING && number <= value && awaited.swap(NOTHING, Relaxed) != NOTHING {
                wake(thread);
            }
        }
    }

    /// Has `thread` woken once the number is reached; false if it is already, and nobody will wake
    /// it for it. That thread only, in place of what it waited for before.
    pub fn wait_for(&self, thread: usize, number: u64) -> bool {
        self.awaited[thread].store(number, Relaxed);
        // What it waits for before the look at the number: pairs with the fence in `set`.
        fence(SeqCst);
        let waits = self.get() < number;
        if !waits {
            self.awaited[thread].store(NOTHING, Relaxed);
        }
        waits
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::Watermark;

    #[test]
    fn who_waits_for_less_is_woken_once() {
        let watermark = Watermark::new(3, 5);
        assert!(!watermark.wait_for(0, 5));
        assert!(watermark.wait_for(1, 6) && watermark.wait_for(2, 8));
        let set = |value| {
            let mut woken = Vec::new();
            watermark.set(value, |thread| woken.push(thread));
            woken
        };
        assert_eq!(set(5), []);
        assert_eq!(set(7), [1]);
        assert_eq!(set(u64::MAX), [2]);
        assert_eq!(set(u64::MAX), []);
        assert_eq!(watermark.get(), u64::MAX);
    }
}
