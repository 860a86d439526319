//! The atomic types of this project's lock-free protocols. They are loom's in a model
//! (`cfg(loom)`), shuttle's in a simulation (`cfg(shuttle)`), and otherwise the standard library's.
//! Under loom and shuttle, any operation may switch to another thread. So the same source is
//! shipped, proven and simulated. loom's and shuttle's types may be used only within a run of the
//! respective tool.

#[cfg(not(any(loom, shuttle)))]
pub use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

use std::sync::OnceLock;

/// Returns the maximum number of times that a waiting thread checks a lock or futex word before it
/// sleeps. These checks take about as long as one short critical section: 100 checks with growing
/// pauses take 1 to 2 µs. The maximum is 0 on one core, because the thread that must change the
/// word cannot run while the waiting thread checks.
#[inline]
pub fn spins_max() -> u32 {
    static SPINS: OnceLock<u32> = OnceLock::new();
    if cfg!(any(loom, shuttle)) {
        return 0; // A model explores the interleavings anyway: spinning only repeats states.
    }
    *SPINS
        .get_or_init(|| if std::thread::available_parallelism().map_or(1, |n| n.get()) > 1 { 100 } else { 0 })
}
