//! The shard lock: four bytes of futex word beside the value they guard.
//!
//! ```text
//!   FREE ──lock: one compare-exchange──▶ HELD ──a second thread came──▶ WAITED
//!    ▲                                    │                               │
//!    └────────── unlock: one swap ────────┴── unlock: one swap, wake one ─┘
//! ```
//! Invariant: the guarded value is touched only between a change away from FREE and the swap back
//! to it, both made by the same guard. A thread parks only after it has seen or made the word
//! WAITED, so the unlocker that swaps WAITED out knows that it owes one wake. A thread that has
//! once parked takes the lock as WAITED, not HELD: it cannot know whether others still sleep. The
//! price is at most one needless wake at the end of a contended stretch.
//!
//! **A busy holder.** Who will hold the lock for long (a script past its threshold) writes BUSY
//! into the word and wakes all sleepers. BUSY means WAITED, and that a thread that came by
//! `lock_unless_busy` gives up rather than wait; others sleep on. A thread gives up only when a
//! read-modify-write has shown it BUSY, after its last wake: so the holder of that moment owes a
//! wake, and a wake that came to the one that gives up is not lost to those that still sleep.
//!
//! Cost: alone, one compare-exchange and one swap, no system call. Contended: up to
//! `spins_max()` looks (1 to 2 µs, none on one core), then a parked thread.
//!
//! Fairness: none. Whoever comes first after an unlock takes the lock, which may be a thread that
//! never waited; that is what keeps a hot shard from paying a thread switch per request. The
//! longest wait is therefore unbounded in theory. In practice the threads are few (one per core),
//! each leaves between its turns' commands, and a section is bounded by contract (see
//! ARCHITECTURE.md on what may run under a shard's lock): a waiter loses a race or two. Nothing
//! here detects a thread locking twice: that deadlocks. Callers take several locks in ascending
//! shard order only.
//!
//! No poisoning: a panic under the lock aborts the process in release builds. In tests, where it
//! unwinds, the guard unlocks on its way out.
//!
//! Orderings: every change away from FREE is an Acquire and pairs with the Release swap in
//! `Guard::drop`, so an owner sees all that earlier owners wrote. No other edge is needed: the wake
//! itself carries no data, `FutexWord` only promises not to lose it.
//! Source: U. Drepper, "Futexes Are Tricky" (2011), mutex 3. Proven under loom: tests/loom_lock.rs.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use stdx::futex::FutexWord;
use stdx::sync::Ordering::{Acquire, Relaxed, Release};
use stdx::sync::spins_max;

#[cfg(loom)]
use loom::cell::{MutPtr, UnsafeCell};
#[cfg(not(loom))]
use std::cell::UnsafeCell;

/// Nobody owns the value.
const FREE: u32 = 0;
/// One guard exists and nobody sleeps.
const HELD: u32 = 1;
/// One guard exists and somebody may sleep: unlocking owes a wake.
const WAITED: u32 = 2;
/// As WAITED, and the guard is kept for long.
const BUSY: u32 = 3;

/// The time that a thread waits for a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until it has it.
    Endless,
    /// Until it has it or the holder says that it is busy.
    UntilBusy,
}

/// A value that one thread at a time may touch. See the module for cost, fairness and orderings.
pub struct Lock<T> {
    state: FutexWord,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time, through `&mut`, so sharing the lock
// between threads moves the value between them and never shares it: `T: Send` is what that takes.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The right to the value, given back on drop. It stays on the thread that locked.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// loom's record that this thread touches the value. `None` only inside `drop`.
    #[cfg(loom)]
    access: Option<MutPtr<T>>,
    /// Not `Send`, and `Sync` only when `T` is, like the standard library's guard.
    _like: PhantomData<std::sync::MutexGuard<'a, T>>,
}

impl<T> Lock<T> {
    /// Creates an unlocked lock around `value`. Allocates nothing.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { state: FutexWord::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Creates an unlocked lock around `value`; loom's atomics cannot be made in constants.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { state: FutexWord::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock and takes it. Deadlocks if this thread already holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        // Acquire: pairs with the Release swap in `Guard::drop`.
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.lock_contended(Patience::Endless);
        }
        self.guard()
    }

    /// Waits for the lock and takes it; gives up while its holder is busy
    /// ([`Lock::mark_busy`]). Deadlocks if this thread already holds it and is not busy.
    #[inline]
    pub fn lock_unless_busy(&self) -> Option<Guard<'_, T>> {
        // Acquire: pairs with the Release swap in `Guard::drop`.
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err()
            && !self.lock_contended(Patience::UntilBusy)
        {
            return None;
        }
        Some(self.guard())
    }

    /// Says that the lock is held for long: whoever waits by [`Lock::lock_unless_busy`] gives up,
    /// until it is unlocked. Only the thread that holds the lock may call this.
    ///
    /// # Panics
    /// When nobody holds it.
    #[cold]
    pub fn mark_busy(&self) {
        // Relaxed: only the word matters; the value goes on with the unlock.
        let before = self.state.swap(BUSY, Relaxed);
        assert_ne!(before, FREE, "only the holder of a lock marks it");
        if before != HELD {
            self.state.wake_all();
        }
    }

    /// Takes the lock if nobody has it; never waits.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Acquire: pairs with the Release swap in `Guard::drop`.
        self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok().then(|| self.guard())
    }

    /// Borrows the value without locking: holding the lock mutably proves that there is no guard.
    #[cfg(not(loom))]
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Takes the value out of the lock.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Returns true if some thread held the lock a moment ago. For assertions and statistics only.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) != FREE
    }

    /// Returns true if a thread may sleep until the lock is free. A hint, for its holder.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.state.load(Relaxed) == WAITED
    }

    /// Takes the lock when the first try failed: a bounded spin, then sleep by sleep. Whether it
    /// has it: always, with endless patience.
    #[cold]
    fn lock_contended(&self, patience: Patience) -> bool {
        // As which it is taken. Once this thread may have slept: WAITED.
        let mut taken = HELD;
        loop {
            // Each change of the word here is compared, so that none covers BUSY.
            match self.spin() {
                FREE => {
                    // Acquire: pairs with the Release swap in `Guard::drop`.
                    if self.state.compare_exchange(FREE, taken, Acquire, Relaxed).is_ok() {
                        return true;
                    }
                }
                HELD => {
                    // The word says WAITED whenever we might sleep.
                    if self.state.compare_exchange(HELD, WAITED, Relaxed, Relaxed).is_ok() {
                        taken = WAITED;
                        self.state.wait(WAITED);
                    }
                }
                // Compared as well: the newest value, of a holder that owes a wake.
                BUSY if patience == Patience::UntilBusy => {
                    if self.state.compare_exchange(BUSY, BUSY, Relaxed, Relaxed).is_ok() {
                        return false;
                    }
                }
                waited => {
                    taken = WAITED;
                    self.state.wait(waited);
                }
            }
        }
    }

    /// Looks at the word until it is free, somebody else already sleeps, or the bound is reached.
    /// Returns what it saw last.
    fn spin(&self) -> u32 {
        let mut spins_left = spins_max();
        loop {
            // Relaxed: only a hint when to try; taking the lock is what acquires.
            let state = self.state.load(Relaxed);
            if state != HELD || spins_left == 0 {
                return state;
            }
            std::hint::spin_loop();
            spins_left -= 1;
        }
    }

    /// Creates the guard of a lock that this thread has just taken.
    #[inline]
    fn guard(&self) -> Guard<'_, T> {
        Guard {
            lock: self,
            #[cfg(loom)]
            access: Some(self.value.get_mut()),
            _like: PhantomData,
        }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        #[cfg(loom)]
        drop(self.access.take()); // Our access ends before the unlock, not after it.
        // Release: publishes what was written under the lock; pairs with the Acquire of
        // whoever takes it next.
        if self.lock.state.swap(FREE, Release) != HELD {
            self.lock.wake_one();
        }
    }
}

impl<T> Guard<'_, T> {
    /// Says that this guard is kept for long: see [`Lock::mark_busy`].
    pub fn mark_busy(guard: &Self) {
        guard.lock.mark_busy();
    }
}

impl<T> Lock<T> {
    /// Wakes one waiter. Out of line, so that the common unlock stays a swap and a branch.
    #[cold]
    fn wake_one(&self) {
        self.state.wake_one();
    }
}

#[cfg(not(loom))]
impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: this guard exists, so this thread owns the value; `&self` keeps `deref_mut` out.
        unsafe { &*self.lock.value.get() }
    }
}

#[cfg(not(loom))]
impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard exists, so this thread owns the value; `&mut self`
        // makes it the only path.
        unsafe { &mut *self.lock.value.get() }
    }
}

#[cfg(loom)]
impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        let access = self.access.as_ref().expect("only drop takes it");
        // SAFETY: as without loom, and loom checks it: `access` is a recorded exclusive access.
        unsafe { access.deref() }
    }
}

#[cfg(loom)]
impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        let access = self.access.as_ref().expect("only drop takes it");
        // SAFETY: as without loom, and loom checks it: `access` is a recorded exclusive access.
        unsafe { access.deref() }
    }
}

#[cfg(not(loom))]
impl<T: Default> Default for Lock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").field("is_locked", &self.is_locked()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Lock;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_lock_costs_four_bytes() {
        assert_eq!(size_of::<Lock<u32>>(), 8);
    }

    #[test]
    fn a_guard_gives_the_value_and_gives_it_back() {
        static LOCK: Lock<u64> = Lock::new(1);
        assert!(!LOCK.is_locked());
        {
            let mut guard = LOCK.lock();
            *guard += 1;
            assert!(LOCK.is_locked());
            assert!(LOCK.try_lock().is_none());
        }
        assert!(!LOCK.is_locked());
        assert_eq!(*LOCK.try_lock().expect("free"), 2);
    }

    #[test]
    fn sole_owners_need_no_guard() {
        let mut lock = Lock::new(vec![1]);
        lock.get_mut().push(2);
        assert_eq!(lock.into_inner(), [1, 2]);
    }

    #[test]
    fn increments_from_many_threads_all_count() {
        let lock = Lock::new(0_u64);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        *lock.lock() += 1;
                    }
                });
            }
        });
        assert_eq!(lock.into_inner(), 160_000);
    }

    #[test]
    fn a_thread_that_parked_is_woken() {
        let lock = Lock::new(0);
        let arrived = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let guard = lock.lock();
            scope.spawn(|| {
                arrived.store(true, Ordering::Release);
                *lock.lock() += 1;
            });
            while !arrived.load(Ordering::Acquire) || lock.state.load(Ordering::Relaxed) != super::WAITED {
                std::thread::yield_now();
            }
            drop(guard);
        });
        assert_eq!(lock.into_inner(), 1);
    }

    #[test]
    fn a_busy_holder_is_waited_for_only_by_who_must() {
        let lock = Lock::new(0);
        std::thread::scope(|scope| {
            let guard = lock.lock();
            let gives_up = scope.spawn(|| lock.lock_unless_busy().is_none());
            while lock.state.load(Ordering::Relaxed) != super::WAITED {
                std::thread::yield_now();
            }
            super::Guard::mark_busy(&guard);
            assert!(gives_up.join().expect("no panic"), "woken, and not kept waiting");
            assert!(lock.lock_unless_busy().is_none() && lock.try_lock().is_none());
            scope.spawn(|| *lock.lock() += 1);
            drop(guard);
        });
        assert_eq!(*lock.lock_unless_busy().expect("nobody is busy any more"), 1);
    }

    #[test]
    fn a_panic_under_the_lock_leaves_it_free_and_unpoisoned() {
        let lock = Lock::new(5);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = lock.lock();
            panic!("on purpose");
        }));
        assert!(result.is_err());
        assert_eq!(*lock.lock(), 5);
    }
}
