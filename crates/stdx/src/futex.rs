//! A word that threads can sleep on: the one way this project parks a thread for
//! another thread's sake.
//!
//! `wait(expected)` sleeps until woken, but only while the word still is `expected`; the kernel
//! compares and queues in one step against `wake_one` and `wake_all`. So a waker that first changes
//! the word and then wakes can never slip between a waiter's look and its sleep. Waking costs a
//! system call: protocols record in the word itself whether anybody sleeps.
//! A wait may end without a wake. Callers look at the word again, in a loop.
//!
//! Under `cfg(loom)` and `cfg(shuttle)` the word is their atomic and the kernel's queue a mutex
//! with a condition variable: the same compare-and-queue step, so they see a lost wake-up as the
//! deadlock it is. The models never wake without reason; real kernels may, and the callers' loops
//! allow for it.

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
    /// Creates a word of this value without sleepers.
    pub const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value) }
    }

    /// Sleeps until a wake while the word is `expected`; returns at once when it is not. May return
    /// early: look again.
    #[inline]
    pub fn wait(&self, expected: u32) {
        atomic_wait::wait(&self.word, expected);
    }

    /// Wakes one sleeper, if there is one. A system call.
    #[inline]
    pub fn wake_one(&self) {
        atomic_wait::wake_one(&raw const self.word);
    }

    /// Wakes every sleeper. A system call.
    #[inline]
    pub fn wake_all(&self) {
        atomic_wait::wake_all(&raw const self.word);
    }
}

#[cfg(any(loom, shuttle))]
impl FutexWord {
    /// Creates a word of this value without sleepers.
    #[cfg(loom)]
    pub fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value), queue: Mutex::new(()), woken: Condvar::new() }
    }

    /// Creates a word of this value without sleepers.
    #[cfg(shuttle)]
    pub const fn new(value: u32) -> Self {
        Self { word: AtomicU32::new(value), queue: Mutex::new(()), woken: Condvar::new() }
    }

    /// Waits as the kernel does: compares under the lock of its queue, then queues and sleeps.
    pub fn wait(&self, expected: u32) {
        let queue = self.queue.lock().expect("a model that panics has ended");
        if self.word.load(crate::sync::Ordering::SeqCst) == expected {
            drop(self.woken.wait(queue).expect("a model that panics has ended"));
        }
    }

    /// Wakes one sleeper as the kernel does, under the lock of its queue.
    pub fn wake_one(&self) {
        let _queue = self.queue.lock().expect("a model that panics has ended");
        self.woken.notify_one();
    }

    /// Wakes all sleepers as the kernel does, under the lock of its queue.
    pub fn wake_all(&self) {
        let _queue = self.queue.lock().expect("a model that panics has ended");
        self.woken.notify_all();
    }
}

/// The atomic operations on the word.
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
