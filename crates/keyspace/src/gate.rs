//! The gate: many threads work on the keyspace side by side, or one owns all of it.
//!
//! Every loop turn of an I/O thread runs inside a shared pass, and so does each step of any other
//! thread that locks a shard; what cannot name its keys (KEYS, FLUSHALL, the start of a snapshot, a
//! script that reaches for undeclared keys) runs as the exclusive one. Passing costs a store to the
//! thread's own cache line, a fence, and a read of a line that nobody writes: threads never disturb
//! each other. Going exclusive is the expensive side and waits for the longest command that is
//! under way: threads look between two requests whether somebody waits (`is_wanted`), and step
//! aside.
//!
//! ```text
//!   inside[0] inside[1] …   one padded flag a thread: it is in a turn
//!   closed                  an exclusive owner is waiting or working; shared callers sleep on it
//!   left                    counts departures while closed; the exclusive owner sleeps on it
//!   kept_out                callers that wait for an owner's end; the next owner waits for 0
//!   turn                    lock: one exclusive owner at a time
//! ```
//! **Exclusion.** Dekker's pattern: a shared caller raises its flag, fences, reads `closed`; an
//! exclusive owner raises `closed`, fences, reads the flags. In the single order of SeqCst fences
//! one comes first, and the other side then sees the write before it. So either the owner sees the
//! flag and waits for it to fall, or the caller sees `closed` and steps back. Each flag falls with
//! Release and is read with Acquire, `closed` likewise: whoever comes in sees all that was done
//! before.
//!
//! **No lost wake-up.** Leaving is the same pattern once more: the flag falls, fence, read
//! `closed`. Either the owner's scan sees the fallen flag, or the leaver sees `closed` and
//! steps `left`, on which the owner sleeps with the count it read before its scan. Callers
//! sleep on `closed` itself.
//!
//! **No deadlock.** Nobody waits while its own flag is up: a caller that sees `closed` lowers its
//! flag before it sleeps, and an upgrade leaves the shared pass before it queues for `turn`. So the
//! owner waits only for threads that run. Two upgraders queue for `turn`, both outside.
//! What follows: an upgrade is not atomic. Between the shared and the exclusive part
//! others may have been exclusive: read again what you rely on. And nobody may hold a
//! shard's lock when upgrading.
//!
//! Lock order: `turn` comes before every shard lock. Longest work under it: what the exclusive
//! owner does, short by contract. Fairness: a caller waits for one owner. It is counted while it
//! waits, and the next owner closes the gate only when all who waited for the last one are in.
//! Owners take turns as threads do at any lock.
//! A thread must be outside while it sleeps in its event loop: the owner waits
//! for whoever is inside.
//! Proven under loom: tests/loom_gate.rs.

use crossbeam_utils::CachePadded;
use std::marker::PhantomData;
use stdx::futex::FutexWord;
use stdx::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use stdx::sync::{AtomicBool, fence, spins_max};
use structures::lock::{Guard, Lock};

/// `closed` while there is no exclusive owner.
const OPEN: u32 = 0;
/// `closed` while an exclusive owner waits or works.
const CLOSED: u32 = 1;

/// Shared passes for I/O threads, exclusive ownership for one. See the module for the protocol.
pub struct Gate {
    inside: Box<[CachePadded<AtomicBool>]>,
    /// Read by all at every turn, written only by exclusive owners: alone on its line.
    closed: CachePadded<FutexWord>,
    left: CachePadded<FutexWord>,
    rejected: CachePadded<FutexWord>,
    /// Guards the right to write `closed`.
    turn: CachePadded<Lock<()>>,
}

/// A thread is inside: no exclusive owner works until this is dropped. It stays on its thread.
#[must_use = "the pass ends as soon as it is dropped"]
pub struct SharedPass<'g> {
    gate: &'g Gate,
    thread_index: usize,
    /// This thread is the exclusive owner: the pass is kept for when it no longer is.
    owning: bool,
    /// It had to wait to come in.
    waited: bool,
    _stays_on_its_thread: PhantomData<*const ()>,
}

/// Proof that nobody else is inside the gate. Only the gate makes one, for as long as it is true.
pub struct Exclusive {
    _stays_on_its_thread: PhantomData<*const ()>,
}

/// The exclusive ownership itself; opens the gate when dropped, also by a panic.
struct Ownership<'g> {
    gate: &'g Gate,
    _turn: Guard<'g, ()>,
}

impl Gate {
    /// A gate for threads numbered `0..threads_max`. One padded cache line a thread.
    pub fn new(threads_max: usize) -> Self {
        Self {
            inside: (0..threads_max).map(|_| CachePadded::new(AtomicBool::new(false))).collect(),
            closed: CachePadded::new(FutexWord::new(OPEN)),
            left: CachePadded::new(FutexWord::new(0)),
            rejected: CachePadded::new(FutexWord::new(0)),
            turn: CachePadded::new(Lock::new(())),
        }
    }

    /// Comes in as thread `thread_index`, which no other thread may use at the same time. Waits,
    /// without burning a core, while there is an exclusive owner.
    ///
    /// # Panics
    /// When the index is not below `threads_max`, or already inside.
    #[inline]
    pub fn shared(&self, thread_index: usize) -> SharedPass<'_> {
        let inside = &self.inside[thread_index];
        assert!(!inside.load(Relaxed), "thread {thread_index} is already inside the gate");
        let waited = self.enter(thread_index);
        SharedPass { gate: self, thread_index, owning: false, waited, _stays_on_its_thread: PhantomData }
    }

    /// Runs `work` alone: waits for every thread to leave, and holds new ones off meanwhile.
    /// For threads without a pass; from inside a turn use `SharedPass::exclusive`, this
    /// would wait for itself.
    pub fn exclusive<R>(&self, work: impl FnOnce(&Exclusive) -> R) -> R {
        let _ownership = self.own();
        work(&Exclusive { _stays_on_its_thread: PhantomData })
    }

    /// Raises the flag, and is done unless the gate is closed. Whether it had to wait.
    #[inline]
    fn enter(&self, thread_index: usize) -> bool {
        self.inside[thread_index].store(true, Relaxed);
        // Our flag before our look at `closed`: pairs with the fence in `own`.
        fence(SeqCst);
        // Acquire: what the last owner did is visible; pairs with the Release in `Ownership::drop`.
        let waits = self.closed.load(Acquire) != OPEN;
        if waits {
            self.enter_when_open(thread_index);
        }
        waits
    }

    /// Steps back, sleeps until the gate opens, tries again.
    #[cold]
    fn enter_when_open(&self, thread_index: usize) {
        // Relaxed, here and below: a count that owners wait for; the flags and
        // fences are what excludes.
        self.rejected.fetch_add(1, Relaxed);
        self.wait_for_opening(thread_index);
        if self.rejected.fetch_sub(1, Relaxed) == 1 {
            self.rejected.wake_one(); // Only the one owner to be sleeps on it.
        }
    }

    /// The waiting part of that.
    fn wait_for_opening(&self, thread_index: usize) {
        loop {
            self.leave(thread_index);
            let mut spins_left = spins_max();
            // Relaxed: only a hint when to try; the load after the fence decides.
            while self.closed.load(Relaxed) != OPEN {
                if spins_left == 0 {
                    self.closed.wait(CLOSED);
                } else {
                    spins_left -= 1;
                    std::hint::spin_loop();
                }
            }
            self.inside[thread_index].store(true, Relaxed);
            // As in `enter`.
            fence(SeqCst);
            if self.closed.load(Acquire) == OPEN {
                return;
            }
        }
    }

    /// Lowers the flag, and tells an owner that may be waiting for it.
    #[inline]
    fn leave(&self, thread_index: usize) {
        // Release: what was done inside is visible to the owner; pairs with the Acquire in `own`.
        self.inside[thread_index].store(false, Release);
        // Our flag before our look at `closed`: pairs with the fence in `own`.
        fence(SeqCst);
        if self.closed.load(Relaxed) != OPEN {
            self.tell_owner();
        }
    }

    /// Ends the owner's sleep, or keeps it from beginning.
    #[cold]
    fn tell_owner(&self) {
        // Relaxed: the fence in `leave` stands before it, so who reads this count with the Acquire
        // in `own` also sees our flag down.
        self.left.fetch_add(1, Relaxed);
        self.left.wake_one(); // Only the one owner sleeps on it.
    }

    /// Closes the gate and waits until all are out.
    fn own(&self) -> Ownership<'_> {
        let turn = self.turn.lock();
        self.admit_waiting_threads();
        self.closed.store(CLOSED, Relaxed);
        // From here the drop opens the gate again, whatever happens.
        let ownership = Ownership { gate: self, _turn: turn };
        // `closed` before our look at the flags: pairs with the fences in `enter` and `leave`.
        fence(SeqCst);
        let mut spins_left = spins_max();
        loop {
            // Acquire: pairs with the count in `tell_owner`. Read before the flags: a departure
            // that the scan misses steps the count, and then the wait does not sleep.
            let left = self.left.load(Acquire);
            // Acquire: pairs with the Release in `leave`.
            if self.inside.iter().all(|inside| !inside.load(Acquire)) {
                return ownership;
            }
            if spins_left == 0 {
                self.left.wait(left);
            } else {
                spins_left -= 1;
                std::hint::spin_loop();
            }
        }
    }
}

impl Gate {
    /// Waits until those are in who waited for the last owner. The gate is open, and
    /// they need nothing else.
    fn admit_waiting_threads(&self) {
        let mut spins_left = spins_max();
        loop {
            let rejected = self.rejected.load(Relaxed);
            if rejected == 0 {
                return;
            }
            if spins_left == 0 {
                self.rejected.wait(rejected);
            } else {
                spins_left -= 1;
                std::hint::spin_loop();
            }
        }
    }
}

impl SharedPass<'_> {
    /// Runs `work` alone from inside a turn: leaves, becomes the exclusive owner, and comes back in
    /// before it returns. Others may have been exclusive in between (see the module), so the caller
    /// must hold no shard's lock and nothing that it read before.
    pub fn exclusive<R>(&mut self, work: impl FnOnce(&Exclusive) -> R) -> R {
        self.alone(|_| work(&Exclusive { _stays_on_its_thread: PhantomData }))
    }

    /// Like [`exclusive`](Self::exclusive) for work of several parts, which may ask to be alone
    /// themselves: they are, then.
    pub fn alone<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        if self.owning {
            return work(self);
        }
        self.gate.leave(self.thread_index);
        // Comes back in last, also when `work` panics: the pass still exists and must be true.
        let _back_inside = ReenterGuard { gate: self.gate, thread_index: self.thread_index };
        let _ownership = self.gate.own();
        let owner = Owner(self);
        owner.0.owning = true;
        work(owner.0)
    }

    /// Runs `work` outside the gate from inside a turn, so that nobody who wants to be exclusive
    /// waits for it, and comes back in before it returns. As with `exclusive`, the caller must hold
    /// no shard's lock and nothing that it read before.
    /// An exclusive owner stays where it is.
    pub fn outside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        if self.owning {
            return work();
        }
        self.gate.leave(self.thread_index);
        let _back_inside = ReenterGuard { gate: self.gate, thread_index: self.thread_index };
        work()
    }

    /// Whether a thread waits to be the exclusive owner: a long turn should yield. One load of a
    /// line that is written by owners only.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        // Relaxed: a hint; `yield_to_owner` is what orders.
        !self.owning && self.gate.closed.load(Relaxed) != OPEN
    }

    /// Leaves the gate for a waiting exclusive owner and enters again when it is done. As with
    /// `exclusive`, the caller must hold no shard's lock and nothing that it read before.
    #[cold]
    pub fn yield_to_owner(&mut self) {
        self.outside(|| ());
    }

    /// Whether there was an exclusive owner, for whose end it waited, when this pass was taken.
    pub fn has_waited(&self) -> bool {
        self.waited
    }

    /// The number this pass was taken with.
    pub fn thread_index(&self) -> usize {
        self.thread_index
    }
}

/// Enters for an existing pass when dropped.
struct ReenterGuard<'g> {
    gate: &'g Gate,
    thread_index: usize,
}

impl Drop for ReenterGuard<'_> {
    fn drop(&mut self) {
        self.gate.enter(self.thread_index);
    }
}

/// A pass whose thread is the exclusive owner until this is dropped.
struct Owner<'p, 'g>(&'p mut SharedPass<'g>);

impl Drop for Owner<'_, '_> {
    fn drop(&mut self) {
        self.0.owning = false;
    }
}

impl Drop for SharedPass<'_> {
    #[inline]
    fn drop(&mut self) {
        self.gate.leave(self.thread_index);
    }
}

impl Drop for Ownership<'_> {
    fn drop(&mut self) {
        // Release: what the owner did is visible to whoever comes in; pairs with
        // the Acquire in `enter`.
        self.gate.closed.store(OPEN, Release);
        self.gate.closed.wake_all();
        // The lock of `turn` is released after this: the next owner finds the gate open.
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::Gate;
    use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

    #[test]
    fn threads_are_inside_side_by_side() {
        let gate = Gate::new(3);
        let passes = [gate.shared(0), gate.shared(2), gate.shared(1)];
        assert_eq!(passes.each_ref().map(|pass| pass.thread_index()), [0, 2, 1]);
    }

    #[test]
    fn an_upgrade_runs_and_returns_inside() {
        let gate = Gate::new(1);
        let mut pass = gate.shared(0);
        assert_eq!(pass.exclusive(|_| 7), 7);
        assert!(gate.inside[0].load(Relaxed), "back inside");
        drop(pass);
        assert_eq!(gate.exclusive(|_| 8), 8);
    }

    #[test]
    fn who_is_alone_may_ask_to_be_alone() {
        let gate = Gate::new(2);
        let mut pass = gate.shared(0);
        assert_eq!(pass.alone(|pass| pass.exclusive(|_| 1) + pass.alone(|pass| pass.outside(|| 2))), 3);
        assert!(gate.inside[0].load(Relaxed), "back inside");
        assert_eq!(pass.exclusive(|_| gate.closed.load(Relaxed)), super::CLOSED);
    }

    #[test]
    fn an_owner_does_not_wait_for_who_stepped_outside() {
        let gate = Gate::new(1);
        let mut pass = gate.shared(0);
        assert_eq!(pass.outside(|| gate.exclusive(|_| 7)), 7);
        assert!(gate.inside[0].load(Relaxed), "back inside");
    }

    #[test]
    fn who_waits_for_an_owner_is_in_before_the_next_one() {
        let gate = Gate::new(1);
        let entered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for round in 1..=200 {
                gate.exclusive(|_| {
                    scope.spawn(|| {
                        let _pass = gate.shared(0);
                        entered.fetch_add(1, Relaxed);
                    });
                    while gate.rejected.load(Relaxed) == 0 {
                        std::thread::yield_now();
                    }
                });
                gate.exclusive(|_| assert_eq!(entered.load(Relaxed), round));
            }
        });
    }

    #[test]
    #[should_panic(expected = "already inside")]
    fn an_index_used_twice_is_noticed() {
        let gate = Gate::new(1);
        let _first = gate.shared(0);
        let _second = gate.shared(0);
    }

    #[test]
    fn a_panic_of_the_owner_opens_the_gate_and_keeps_the_pass_true() {
        let gate = Gate::new(2);
        let mut pass = gate.shared(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pass.exclusive(|_| panic!("on purpose"));
        }));
        assert!(result.is_err());
        assert!(gate.inside[0].load(Relaxed), "the pass that still exists is inside");
        drop(gate.shared(1));
        drop(pass);
        gate.exclusive(|_| ());
    }

    /// Turns, upgrades and background owners at once, real threads, real parking: an owner's
    /// read-modify-write in two steps is never disturbed, and everybody finishes.
    #[test]
    fn owners_are_alone() {
        const TURNS: u64 = 3_000;
        let gate = Gate::new(3);
        let guarded = AtomicU64::new(0);
        let inside = AtomicI64::new(0);
        let owner = |_: &super::Exclusive| {
            assert_eq!(inside.load(Relaxed), 0, "nobody is inside beside the owner");
            let seen = guarded.load(Relaxed);
            std::hint::spin_loop();
            guarded.store(seen + 1, Relaxed);
        };
        std::thread::scope(|scope| {
            for thread_index in 0..3 {
                let (gate, inside) = (&gate, &inside);
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        let mut pass = gate.shared(thread_index);
                        inside.fetch_add(1, Relaxed);
                        std::hint::spin_loop();
                        inside.fetch_sub(1, Relaxed);
                        if turn % 10 == 0 {
                            pass.exclusive(owner);
                        }
                    }
                });
            }
            scope.spawn(|| (0..TURNS / 10).for_each(|_| gate.exclusive(owner)));
        });
        assert_eq!(guarded.into_inner(), 4 * TURNS / 10);
    }
}
