//! The atomics that our protocols are written with: the standard library's; loom's when a model
//! runs (`cfg(loom)`); shuttle's in the simulator (`cfg(shuttle)`), where the schedule may pass to
//! another thread at each operation. So one source is what ships, what is proven and what is
//! simulated. loom's and shuttle's may be touched only within a run of theirs.

#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use std::sync::OnceLock;

/// Returns the number of times that a waiter may look at a busy word before it parks. That takes
/// about as long as one short critical section: 100 looks with growing pauses take 1 to 2 µs. It
/// is 0 on one core, because the owner cannot run while the waiter looks.
#[inline]
pub fn spins_max() -> u32 {
    static SPINS: OnceLock<u32> = OnceLock::new();
    if cfg!(any(loom, shuttle)) {
        return 0; // A model explores the interleavings anyway: spinning only repeats states.
    }
    *SPINS
        .get_or_init(|| if std::thread::available_parallelism().map_or(1, |n| n.get()) > 1 { 100 } else { 0 })
}
