//! A rising number, and threads that each wait until it has reached a number of their own.
//!
//! ```text
//!   waiting thread                     setting thread
//!   store its awaited number, fence    store the value, fence
//!   read the value                     read each thread's awaited number, wake
//! ```
//! **No wake-up is lost.** SeqCst fences have a single order, so one of two things happens. The
//! waiting thread reads the new value, finds its number reached, and does not wait; or the setting
//! thread reads the awaited number and wakes the waiting thread. The waking thread clears the
//! awaited number, so that the waiting thread is woken only once.
//!
//! A thread waits for one number at a time: the smallest for which it has work. Proven under loom:
//! tests/loom_combiner.rs.

use stdx::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use stdx::sync::{AtomicU64, fence};

/// The awaited number of a thread that does not wait: a number that no value reaches.
const NOTHING: u64 = u64::MAX;

/// A rising number for which threads can wait. See the module's comment.
pub struct Watermark {
    value: AtomicU64,
    awaited: Box<[AtomicU64]>,
}

impl Watermark {
    /// Creates a watermark with the value `value`, for threads numbered `0..threads` that may wait.
    pub fn new(threads: usize, value: u64) -> Self {
        let awaited = (0..threads).map(|_| AtomicU64::new(NOTHING)).collect();
        Self { value: AtomicU64::new(value), awaited }
    }

    /// Returns the present value of the rising number. O(1).
    #[inline]
    pub fn get(&self) -> u64 {
        // Acquire: work that was done before the value was set is visible.
        self.value.load(Acquire)
    }

    /// Sets the value of the number, and calls `wake` for each thread that waited for this or a
    /// lower value. Only one thread at a time may call it. O(threads).
    pub fn set(&self, value: u64, mut wake: impl FnMut(usize)) {
        self.value.store(value, Release);
        // The value is stored before the awaited numbers are read. Pairs with the fence in
        // `wait_for`.
        fence(SeqCst);
        for (thread, awaited) in self.awaited.iter().enumerate() {
            let number = awaited.load(Relaxed);
            if number != NOTHING && number <= value && awaited.swap(NOTHING, Relaxed) != NOTHING {
                wake(thread);
            }
        }
    }

    /// Requests that `thread` is woken once the watermark's value reaches `number`, in place of an
    /// earlier request of this thread. Returns false if the value has reached it already; the
    /// thread is then not woken. Only that thread may call it.
    pub fn wait_for(&self, thread: usize, number: u64) -> bool {
        self.awaited[thread].store(number, Relaxed);
        // The awaited number is stored before the value is read. Pairs with the fence in `set`.
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
