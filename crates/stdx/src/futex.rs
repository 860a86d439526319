//! A futex: a 32-bit word on which threads can sleep. It is the only way in which this project
//! blocks a thread until another thread acts.
//!
//! `wait(expected)` sleeps until another thread wakes it, but only if the word still equals
//! `expected`. The kernel does the comparison and the queueing as one step with respect to
//! `wake_one` and `wake_all`. So no wake-up is lost if the waking thread first changes the word and
//! then wakes. Waking costs a system call. So protocols record in the word itself if a thread
//! sleeps, and wake only then. A wait may also end without a wake-up, so callers check the word
//! again, in a loop.
//!
//! Under `cfg(loom)` and `cfg(shuttle)` the word is the model's atomic, and the kernel's queue is a
//! mutex with a condition variable. Comparison and queueing are one step there as well, so the
//! models report a lost wake-up as a deadlock. Unlike real kernels, the models have no spurious
//! wake-ups.

use crate::sync::AtomicU32;

#[cfg(loom)]
use loom::sync::{Condvar, Mutex};
#[cfg(shuttle)]
use shuttle::sync::{Condvar, Mutex};

/// A `u32` in memory that threads can sleep on. Four bytes, no allocation, no destructor.
pub struct FutexWord {
    word: AtomicU32,
    #[cfg(any(loom, shuttle))]
    queue: Mutex<()>,
    #[cfg(any(loom, shuttle))]
    woken: Condvar,
}

#[cfg(not(any(loom, shuttle)))]
impl FutexWord {
    /// Creates a futex word with this value, on which no thread sleeps.
    pub const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value) }
    }

    /// Sleeps if the word equals `expected`, until another thread wakes this one; else returns at
    /// once. May also return without a wake-up: the caller must check the word again.
    #[inline]
    pub fn wait(&self, expected: u32) {
        atomic_wait::wait(&self.word, expected);
    }

    /// Wakes one thread that sleeps on the word, if there is one. Costs a system call.
    #[inline]
    pub fn wake_one(&self) {
        atomic_wait::wake_one(&raw const self.word);
    }

    /// Wakes all threads that sleep on the word. Costs a system call.
    #[inline]
    pub fn wake_all(&self) {
        atomic_wait::wake_all(&raw const self.word);
    }
}

#[cfg(any(loom, shuttle))]
impl FutexWord {
    /// Creates a futex word with this value, on which no thread sleeps.
    #[cfg(loom)]
    pub fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value), queue: Mutex::new(()), woken: Condvar::new() }
    }

    /// Creates a futex word with this value, on which no thread sleeps.
    #[cfg(shuttle)]
    pub const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value), queue: Mutex::new(()), woken: Condvar::new() }
    }

    /// Waits as the kernel does: locks the queue, compares, then queues and sleeps.
    pub fn wait(&self, expected: u32) {
        let queue = self.queue.lock().expect("a model that panics has ended");
        if self.word.load(crate::sync::Ordering::SeqCst) == expected {
            drop(self.woken.wait(queue).expect("a model that panics has ended"));
        }
    }

    /// Wakes one sleeping thread as the kernel does, with the queue locked.
    pub fn wake_one(&self) {
        let _queue = self.queue.lock().expect("a model that panics has ended");
        self.woken.notify_one();
    }

    /// Wakes all sleeping threads as the kernel does, with the queue locked.
    pub fn wake_all(&self) {
        let _queue = self.queue.lock().expect("a model that panics has ended");
        self.woken.notify_all();
    }
}

/// Gives access to the atomic operations on the futex word.
impl std::ops::Deref for FutexWord {
    type Target = AtomicU32;

    #[inline]
    fn deref(&self) -> &AtomicU32 {
        &self.word
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::FutexWord;
    use std::sync::atomic::Ordering::{Acquire, Release};

    #[test]
    fn a_word_that_differs_is_not_waited_for() {
        FutexWord::new(1).wait(2);
    }

    #[test]
    fn a_waiter_sees_what_was_written_before_the_wake() {
        let word = FutexWord::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while word.load(Acquire) == 0 {
                    word.wait(0);
                }
                assert_eq!(word.load(Acquire), 7);
            });
            word.store(7, Release);
            word.wake_all();
        });
    }

    #[test]
    fn a_word_is_four_bytes() {
        assert_eq!(size_of::<FutexWord>(), 4);
    }
}
