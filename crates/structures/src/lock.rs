//! The shard lock: a futex word of four bytes beside the value that it guards.
//!
//! ```text
//!   FREE ──lock: one compare-exchange──▶ HELD ──a second thread came──▶ WAITED
//!    ▲                                    │                               │
//!    └────────── unlock: one swap ────────┴── unlock: one swap, wake one ─┘
//! ```
//! Invariant: the guarded value is accessed only while the word is not FREE, by the guard that
//! changed it from FREE and will swap it back. A thread parks only after it has seen the word
//! WAITED or set it. The unlocking thread that swaps WAITED out therefore knows that it must wake
//! one thread. A thread that has once parked takes the lock as WAITED, not HELD, because it cannot
//! know whether others still sleep. The price is at most one needless wake at the end of a
//! contended period.
//!
//! **A busy holder.** A holder that will keep the lock for long (a script past its threshold)
//! writes BUSY into the word and wakes all sleepers. BUSY implies WAITED. A thread that called
//! `lock_unless_busy` then gives up; other threads sleep again. A wake may reach a thread that
//! gives up, and must not be lost to the threads that still sleep. A thread therefore gives up only
//! when a read-modify-write after its last wake has read BUSY. The present holder then still wakes
//! a thread when it unlocks.
//!
//! Cost: uncontended, one compare-exchange and one swap, no system call. Contended: up to
//! `spins_max()` reads (1 to 2 µs, none on one core), then a parked thread.
//!
//! Fairness: none. The first thread after an unlock takes the lock, even one that never waited. A
//! hot shard therefore does not pay a thread switch per request. The longest wait is unbounded in
//! theory. In practice other threads overtake a waiting one once or twice. The threads are few (one
//! per core), and each releases the lock between the commands of its turn. A critical section is
//! bounded by contract (see ARCHITECTURE.md on the work allowed under a shard's lock).
//!
//! A thread that locks twice is not detected: it deadlocks. Callers take several locks only in
//! ascending order of shards.
//!
//! No poisoning: a panic under the lock aborts the process in release builds. In tests, where it
//! unwinds, the guard unlocks when it is dropped.
//!
//! Orderings: every change away from FREE is an Acquire and pairs with the Release swap in
//! `Guard::drop`. An owner therefore sees all writes of earlier owners. No other edge is needed:
//! the wake itself carries no data, and `FutexWord` only promises not to lose it.
//!
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

/// The state of the lock's word while no thread holds the lock.
const FREE: u32 = 0;
/// The state of the lock's word while a thread holds the lock and no thread sleeps.
const HELD: u32 = 1;
/// The state of the lock's word while a thread holds the lock and others may sleep: unlocking must
/// wake one.
const WAITED: u32 = 2;
/// The state of the lock's word while a thread holds the lock for long. Others may sleep, as in
/// [`WAITED`].
const BUSY: u32 = 3;

/// The condition that ends a thread's wait for a lock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitPolicy {
    /// The wait ends only when the thread has the lock.
    Endless,
    /// The wait also ends when the holder has marked the lock as busy.
    UntilBusy,
}

/// A value that one thread at a time can access. See the module's comment for cost, fairness and
/// orderings.
pub struct Lock<T> {
    state: FutexWord,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands the value to one thread at a time, through `&mut`, so sharing the lock
// between threads moves the value between them and never shares it. `T: Send` is sufficient.
unsafe impl<T: Send> Sync for Lock<T> {}

/// The exclusive access to a lock's value; dropping it unlocks. It cannot be sent to another
/// thread.
#[must_use = "the lock is released as soon as the guard is dropped"]
pub struct Guard<'a, T> {
    lock: &'a Lock<T>,
    /// loom's record that this thread accesses the value. `None` only inside `drop`.
    #[cfg(loom)]
    access: Option<MutPtr<T>>,
    /// A marker that makes the guard not `Send`, and `Sync` only if `T` is, as in the standard
    /// library.
    _like: PhantomData<std::sync::MutexGuard<'a, T>>,
}

impl<T> Lock<T> {
    /// Creates an unlocked lock that guards `value`. Allocates nothing.
    #[cfg(not(loom))]
    pub const fn new(value: T) -> Self {
        Self { state: FutexWord::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Creates an unlocked lock that guards `value`. Not `const`: loom's atomics cannot be created
    /// in constants.
    #[cfg(loom)]
    pub fn new(value: T) -> Self {
        Self { state: FutexWord::new(FREE), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock and takes it. Deadlocks if this thread already holds it.
    #[inline]
    pub fn lock(&self) -> Guard<'_, T> {
        // Acquire: pairs with the Release swap in `Guard::drop`.
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err() {
            self.lock_contended(WaitPolicy::Endless);
        }
        self.guard()
    }

    /// Waits for the lock and takes it. Returns `None` while its holder is busy
    /// ([`Lock::mark_busy`]). Deadlocks if this thread already holds it and has not marked it busy.
    #[inline]
    pub fn lock_unless_busy(&self) -> Option<Guard<'_, T>> {
        // Acquire: pairs with the Release swap in `Guard::drop`.
        if self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_err()
            && !self.lock_contended(WaitPolicy::UntilBusy)
        {
            return None;
        }
        Some(self.guard())
    }

    /// Marks the lock as held for long. Until it is unlocked, [`Lock::lock_unless_busy`] gives up
    /// instead of waiting. Only the thread that holds the lock may call this.
    ///
    /// # Panics
    /// If no thread holds the lock.
    #[cold]
    pub fn mark_busy(&self) {
        // Relaxed: only the word matters; the unlock publishes the value.
        let before = self.state.swap(BUSY, Relaxed);
        assert_ne!(before, FREE, "only the holder of a lock marks it");
        if before != HELD {
            self.state.wake_all();
        }
    }

    /// Takes the lock if it is free. Returns `None` if a thread holds it; never waits.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // Acquire: pairs with the Release swap in `Guard::drop`.
        self.state.compare_exchange(FREE, HELD, Acquire, Relaxed).is_ok().then(|| self.guard())
    }

    /// Borrows the value without locking: the mutable borrow of the lock proves that no guard
    /// exists.
    #[cfg(not(loom))]
    #[inline]
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    /// Consumes the lock and returns its value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }

    /// Returns true if some thread held the lock when its state was read. For assertions and
    /// statistics only.
    #[inline]
    pub fn is_locked(&self) -> bool {
        self.state.load(Relaxed) != FREE
    }

    /// Returns true if a thread may be sleeping until the lock is free. Returns false for a lock
    /// that is marked busy. Only a hint, for the thread that holds the lock.
    #[inline]
    pub fn is_awaited(&self) -> bool {
        self.state.load(Relaxed) == WAITED
    }

    /// Takes the lock after a failed first try: a bounded spin, then repeated sleeps. Returns true
    /// if it has taken the lock: always with [`WaitPolicy::Endless`].
    #[cold]
    fn lock_contended(&self, patience: WaitPolicy) -> bool {
        // The state with which the lock is taken: WAITED once this thread may have slept.
        let mut taken = HELD;
        loop {
            // Every change of the word here is a compare-exchange, so that none overwrites BUSY.
            match self.spin() {
                FREE => {
                    // Acquire: pairs with the Release swap in `Guard::drop`.
                    if self.state.compare_exchange(FREE, taken, Acquire, Relaxed).is_ok() {
                        return true;
                    }
                }
                HELD => {
                    // The word is WAITED whenever this thread might sleep.
                    if self.state.compare_exchange(HELD, WAITED, Relaxed, Relaxed).is_ok() {
                        taken = WAITED;
                        self.state.wait(WAITED);
                    }
                }
                // A compare-exchange here, too: it reads the newest value. If that is BUSY, the
                // present holder will wake a thread when it unlocks.
                BUSY if patience == WaitPolicy::UntilBusy => {
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

    /// Reads the lock's word until the lock is free, another thread already sleeps, or the bound of
    /// spins is reached. Returns the last state read.
    fn spin(&self) -> u32 {
        let mut spins_left = spins_max();
        loop {
            // Relaxed: only a hint when to try. Taking the lock acquires.
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
        // Release: publishes the writes under the lock; pairs with the Acquire of the next owner.
        if self.lock.state.swap(FREE, Release) != HELD {
            self.lock.wake_one();
        }
    }
}

impl<T> Guard<'_, T> {
    /// Marks the guard's lock as held for long, see [`Lock::mark_busy`].
    pub fn mark_busy(guard: &Self) {
        guard.lock.mark_busy();
    }
}

impl<T> Lock<T> {
    /// Wakes one thread that sleeps until the lock is free. Out of line, so that the common unlock
    /// stays a swap and a branch.
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
