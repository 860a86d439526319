//! Work that any thread may request, and that one thread at a time does for all. The requesting
//! thread does the work itself. If another thread is working, that thread repeats the work
//! instead. No thread waits.
//!
//! ```text
//!   requesting thread                  working thread
//!   raise `requested`, fence           ... releases `state`, fence
//!   try to take `state`: taken         reads `requested`: raised ─▶ takes `state` again
//! ```
//! **No work is left undone.** A thread publishes its work before it raises the flag. SeqCst fences
//! have a single order, so one of two things happens. Either the thread's attempt comes after the
//! release of `state` and takes it. Or the working thread reads the flag after it was raised, and
//! works again. The thread that takes `state` clears the flag before it works, so it finds all work
//! that was published earlier.
//!
//! Source: D. Hendler et al., "Flat Combining and the Synchronization-Parallelism Tradeoff" (2010),
//! without its list of requests. Proven under loom: tests/loom_combiner.rs.

use crate::lock::Lock;
use stdx::sync::Ordering::{AcqRel, Relaxed, SeqCst};
use stdx::sync::{AtomicBool, fence};

/// A combiner of work that many threads request and one thread at a time does for all. `T` is the
/// state that the work needs; only the thread that does the work uses it.
pub struct Combiner<T> {
    requested: AtomicBool,
    state: Lock<T>,
}

impl<T> Combiner<T> {
    /// Creates a combiner with the state `state` and no requested work.
    pub fn new(state: T) -> Self {
        Self { requested: AtomicBool::new(false), state: Lock::new(state) }
    }

    /// Requests the work that the caller has published before. Either this call does the work, or
    /// the thread that is already working does it soon. `work` may run several times, for other
    /// threads too, or not at all.
    pub fn run(&self, mut work: impl FnMut(&mut T)) {
        // AcqRel, not a plain store: the thread that clears the flag then sees the work of all
        // threads that have raised it.
        self.requested.swap(true, AcqRel);
        // The flag is raised before the attempt. Pairs with the fence below.
        fence(SeqCst);
        while let Some(mut state) = self.state.try_lock() {
            // AcqRel: work that was published before the flag was raised is visible to `work`.
            while self.requested.swap(false, AcqRel) {
                work(&mut state);
            }
            drop(state);
            // `state` is released before the flag is read. Pairs with the fence above.
            fence(SeqCst);
            if !self.requested.load(Relaxed) {
                return;
            }
        }
    }

    /// Waits until no other thread uses the combiner's state and calls `act` with it. Then does the
    /// work, by `work`, that other threads have requested meanwhile. Returns the result of `act`.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R, work: impl FnMut(&mut T)) -> R {
        let result = act(&mut self.state.lock());
        // `state` is released before the flag is read. Pairs with the fence in `run`.
        fence(SeqCst);
        if self.requested.load(Relaxed) {
            self.run(work);
        }
        result
    }
}

#[cfg(all(test, not(loom), not(shuttle)))]
mod tests {
    use super::Combiner;

    #[test]
    fn a_request_within_the_work_is_done_by_the_same_call() {
        let combiner = Combiner::new(0);
        let mut requests = 3;
        combiner.run(|runs| {
            *runs += 1;
            requests -= 1;
            if requests > 0 {
                combiner.run(|_| unreachable!("this thread is at it already"));
            }
        });
        assert_eq!(combiner.with(|runs| *runs, |_| unreachable!("nothing is requested")), 3);
    }
}
