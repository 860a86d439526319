//! Work that one thread at a time does for all: whoever wants it done does it, unless a thread is
//! at it, which then does it once more. Nobody waits.
//!
//! ```text
//!   thread                             the thread that is at it
//!   raise `requested`, fence           ... gives `state` back, fence
//!   try to take `state`: taken         looks at `requested`: raised ─▶ takes it again
//! ```
//! **Nothing is left undone.** What a thread wants done it has left behind before it raises the
//! flag. In the single order of SeqCst fences either its attempt comes after the giving back, and
//! takes `state`; or the other's look comes after the raising, and finds the flag. Who takes
//! `state` lowers the flag before it works, so what was left before is among what it finds.
//! Source: D. Hendler et al., "Flat Combining and the Synchronization-Parallelism Tradeoff" (2010),
//! without its list of requests. Proven under loom: tests/loom_combiner.rs.

use crate::lock::Lock;
use stdx::sync::Ordering::{AcqRel, Relaxed, SeqCst};
use stdx::sync::{AtomicBool, fence};

/// See the module. `T` is what the work needs, owned by one thread at a time.
pub struct Combiner<T> {
    requested: AtomicBool,
    state: Lock<T>,
}

impl<T> Combiner<T> {
    /// Creates an idle combiner.
    pub fn new(state: T) -> Self {
        Self { requested: AtomicBool::new(false), state: Lock::new(state) }
    }

    /// Has the work done for what the caller left before: by this call, or by the thread that is at
    /// it, soon. `work` may run several times, for others too, or not at all.
    pub fn run(&self, mut work: impl FnMut(&mut T)) {
        // AcqRel, and no plain store: so that whoever lowers the flag sees what all those left that
        // have raised it.
        self.requested.swap(true, AcqRel);
        // The flag before the attempt: pairs with the fence below.
        fence(SeqCst);
        while let Some(mut state) = self.state.try_lock() {
            // AcqRel: what was left before the flag was raised is visible to the work.
            while self.requested.swap(false, AcqRel) {
                work(&mut state);
            }
            drop(state);
            // The giving back before the look: pairs with the fence above.
            fence(SeqCst);
            if !self.requested.load(Relaxed) {
                return;
            }
        }
    }

    /// Waits for whoever is at it, and does something else with what the work needs. What others
    /// request meanwhile is done afterwards.
    pub fn with<R>(&self, act: impl FnOnce(&mut T) -> R, work: impl FnMut(&mut T)) -> R {
        let result = act(&mut self.state.lock());
        // The giving back before the look: pairs with the fence in `run`.
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
