//! The gate: many threads work on the keyspace in parallel, or one thread owns all of it.
//!
//! Every turn of an I/O thread runs inside a shared pass, and so does each step of any other thread
//! that locks a shard. Work that cannot name its keys runs with exclusive ownership: KEYS,
//! FLUSHALL, the start of a snapshot, a script that uses undeclared keys. Entering costs a store to
//! the thread's own cache line, a fence, and a read of a line that is rarely written: threads do
//! not disturb each other. Exclusive ownership is expensive: it waits for the longest command in
//! progress. Threads check between two requests whether another thread wants to be the owner
//! (`is_wanted`), and then leave the gate.
//!
//! ```text
//!   inside[0] inside[1] …   one padded flag a thread: outside, in a turn, or busy in one
//!   claimed[0] …            one flag an index that several threads use in turn: one has it
//!   closed                  an exclusive owner waits, works or is busy; shared callers sleep on it
//!   left                    counts departures while closed; the exclusive owner sleeps on it
//!   rejected                counts the callers that wait for the owner; the next owner waits for 0
//!   turn                    lock: one exclusive owner at a time
//! ```
//! **Exclusion.** Dekker's pattern. A shared caller raises its flag, fences, and reads `closed`. An
//! exclusive owner raises `closed`, fences, and reads the flags. SeqCst fences have a single order,
//! so at least one of the two sees the other's write. Either the owner sees the flag and waits
//! until it is lowered, or the caller sees `closed` and lowers its flag again. Each flag is lowered
//! with Release and read with Acquire, and so is `closed`. An entering thread therefore sees all
//! work that was done before.
//!
//! **No lost wake-up.** Leaving uses the same pattern: lower the flag, fence, read `closed`. Either
//! the owner's scan sees the lowered flag, or the leaving thread sees `closed` and increments
//! `left`. The owner sleeps on `left` with the count that it read before its scan.
//!
//! Callers sleep on `closed` itself, and opening it uses the same pattern. A caller increments
//! `rejected`, lowers its flag, fences, and sleeps while `closed` is unchanged. The owner opens the
//! gate, fences, and wakes the callers only if `rejected` is not 0. Waking is a system call, and
//! short scripts that run as the exclusive owner open the gate very often.
//!
//! **No deadlock.** No thread waits while its own flag is raised. A caller that sees `closed`
//! lowers its flag before it sleeps. An upgrade leaves the shared pass before it queues for `turn`.
//! The owner therefore waits only for running threads. Two upgrading threads queue for `turn`, both
//! outside.
//!
//! An upgrade is therefore not atomic. Between the shared and the exclusive part, other threads may
//! have been exclusive owners, so the caller must read all state again. No thread may hold a
//! shard's lock when it upgrades.
//!
//! **Busy threads.** A script that runs for too long is marked (`mark_busy`). An exclusive owner
//! sets the mark in `closed` and in the lock `turn`; a thread inside sets it in its flag. A caller
//! of an `unless_busy` function then gives up, and its thread continues outside the gate. Its flag
//! is lowered, so no owner waits for it. A caller sleeps on `closed` with the value that it saw
//! there, so it cannot miss a change.
//!
//! A future owner that waits for a busy thread opens the gate and gives up, if it is in an
//! `unless_busy` function. Otherwise it sets `CLOSED_BUSY` in `closed`, so that callers that may
//! give up do not wait for it. The flag of a busy thread is changed in the same way as on leaving:
//! with the fence and an increment of `left`.
//!
//! **Staying the owner.** If a turn does exclusive work several times, opening and closing the gate
//! each time costs more than a short script. A pass with `keep_ownership` stays the owner in
//! between. This ends with the turn, or when `is_wanted` finds that another thread waits. It pays
//! only if other threads rarely enter.
//!
//! Lock order: `turn` comes before every shard lock. The longest work under `turn` is that of the
//! exclusive owner, which is required to be short.
//!
//! Fairness: a caller waits for one owner at most. `rejected` counts the waiting callers, and the
//! next owner closes the gate only when all callers that waited for the last owner are inside.
//! Owners compete for `turn` as threads do for any lock.
//!
//! A thread must be outside while it sleeps in its event loop: the owner waits for all threads
//! inside.
//!
//! Checked with loom: tests/loom_gate.rs.

use crossbeam_utils::CachePadded;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use stdx::futex::FutexWord;
use stdx::sync::Ordering::{Acquire, Relaxed, Release, SeqCst};
use stdx::sync::{AtomicBool, AtomicU32, fence, spins_max};
use structures::lock::{Guard, Lock};

/// The value of the keyspace gate's word `closed` while there is no exclusive owner.
const OPEN: u32 = 0;
/// The value of the keyspace gate's word `closed` while an exclusive owner waits or works.
const CLOSED: u32 = 1;
/// The value of the keyspace gate's word `closed` while the exclusive owner is busy, or waits for a
/// busy thread.
const CLOSED_BUSY: u32 = 2;

/// The value of a thread's flag while the thread is outside the gate (the keyspace's lock).
const OUTSIDE: u32 = 0;
/// The value of a thread's flag while the thread is inside the keyspace's gate, in a turn.
const INSIDE: u32 = 1;
/// The value of a thread's flag while the thread is inside the gate (the keyspace's lock) and its
/// script has run for too long.
const INSIDE_BUSY: u32 = 2;

/// The condition that ends a thread's wait to enter the keyspace's gate or to become its exclusive
/// owner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WaitPolicy {
    /// The wait ends only when the thread may enter, or is the owner.
    Endless,
    /// The wait also ends when the owner, or the thread for which a future owner waits, is busy.
    UntilBusy,
}

/// The position of a pass's thread with respect to the keyspace's gate: inside the gate, its
/// exclusive owner, or outside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GatePosition {
    /// The thread is inside the gate (the keyspace's lock), in parallel with other threads.
    Inside,
    /// The thread is inside the gate (the keyspace's lock) and works as the exclusive owner.
    Owning,
    /// The thread is inside the gate (the keyspace's lock) and still its exclusive owner, between
    /// two runs of exclusive work.
    Staying,
    /// The thread is outside the keyspace's gate, because it gave up waiting for a busy thread.
    Outside,
    /// The thread is outside the gate (the keyspace's lock) as long as the pass exists, because a
    /// busy script uses another pass of the same thread.
    Barred,
}

/// The threads inside the keyspace's gate, as seen by a thread that waits to be the exclusive
/// owner.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occupancy {
    Empty,
    Occupied,
    /// A thread with a script that has run for too long is inside the keyspace's gate, perhaps with
    /// others.
    Busy,
}

/// The gate of the keyspace: shared passes for many threads, or exclusive ownership for one. See
/// the module's comment for the protocol.
pub struct Gate {
    inside: Box<[CachePadded<AtomicU32>]>,
    /// The flag of each thread index; true if a thread has claimed the index
    /// ([`Gate::shared_claimed`]).
    claimed: Box<[AtomicBool]>,
    /// The state of the keyspace's gate: [`OPEN`], [`CLOSED`] or [`CLOSED_BUSY`]. It has a cache
    /// line of its own, because all threads read it at every turn, and only exclusive owners write
    /// it.
    closed: CachePadded<FutexWord>,
    left: CachePadded<FutexWord>,
    rejected: CachePadded<FutexWord>,
    /// The lock of the right to write `closed`: the exclusive owner holds it.
    turn: CachePadded<Lock<()>>,
}

/// A thread's presence inside the gate (the keyspace's lock): while it exists, no other thread
/// works as the exclusive owner. It cannot be sent to another thread. A pass from an `unless_busy`
/// function may be outside the gate: then [`SharedPass::is_inside`] returns false.
#[must_use = "the pass ends as soon as it is dropped"]
pub struct SharedPass<'g> {
    gate: &'g Gate,
    thread_index: usize,
    position: GatePosition,
    /// True if the thread waited for an exclusive owner before it entered the keyspace's gate.
    waited: bool,
    /// True if the pass stays the exclusive owner of the gate (the keyspace's lock) after its first
    /// exclusive work, until it ends or yields.
    keeps_ownership: bool,
    /// The ownership of the keyspace's gate; `Some` while this pass itself is the exclusive owner.
    /// `None` for a pass that works on behalf of another thread that is the owner (`for_owner`).
    ownership: Option<Ownership<'g>>,
    _stays_on_its_thread: PhantomData<*const ()>,
}

/// A proof that no other thread is inside the gate of the keyspace. Only the gate creates one, and
/// lends it to the exclusive owner's work.
pub struct Exclusive {
    _stays_on_its_thread: PhantomData<*const ()>,
}

/// A pass through the keyspace's gate of a thread that claimed its thread index, see
/// [`Gate::shared_claimed`].
pub struct ClaimedPass<'g> {
    // The flag is lowered before the claim ends: fields are dropped in this order.
    pass: SharedPass<'g>,
    _claim: Claim<'g>,
}

impl<'g> Deref for ClaimedPass<'g> {
    type Target = SharedPass<'g>;

    fn deref(&self) -> &SharedPass<'g> {
        &self.pass
    }
}

impl DerefMut for ClaimedPass<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.pass
    }
}

/// A thread's claim of a thread index of the keyspace's gate. Dropping it ends the claim.
struct Claim<'g> {
    gate: &'g Gate,
    thread_index: usize,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.gate.claimed[self.thread_index].store(false, Release);
    }
}

/// The exclusive ownership of the gate (the keyspace's lock). Dropping it opens the gate for other
/// threads, also after a panic.
struct Ownership<'g> {
    gate: &'g Gate,
    _turn: Guard<'g, ()>,
}

impl Gate {
    /// Creates a gate for threads numbered from 0 to `threads_max` - 1. It takes one padded cache
    /// line a thread.
    pub fn new(threads_max: usize) -> Self {
        Self {
            inside: (0..threads_max).map(|_| CachePadded::new(AtomicU32::new(OUTSIDE))).collect(),
            claimed: (0..threads_max).map(|_| AtomicBool::new(false)).collect(),
            closed: CachePadded::new(FutexWord::new(OPEN)),
            left: CachePadded::new(FutexWord::new(0)),
            rejected: CachePadded::new(FutexWord::new(0)),
            turn: CachePadded::new(Lock::new(())),
        }
    }

    /// Enters the gate (the keyspace's lock) as thread `thread_index`, which no other thread may
    /// use at the same time. Sleeps while there is an exclusive owner.
    ///
    /// # Panics
    /// If the index is not below `threads_max`, or a thread with it is already inside.
    #[inline]
    pub fn shared(&self, thread_index: usize) -> SharedPass<'_> {
        self.assert_outside(thread_index);
        let waited = self.enter(thread_index);
        let mut pass = self.pass(thread_index, GatePosition::Inside);
        pass.waited = waited;
        pass
    }

    /// Enters the gate (the keyspace's lock) like [`shared`](Self::shared), but does not wait for a
    /// busy owner: the returned pass is then outside.
    ///
    /// # Panics
    /// If the index is not below `threads_max`, or a thread with it is already inside.
    #[inline]
    pub fn shared_unless_busy(&self, thread_index: usize) -> SharedPass<'_> {
        self.assert_outside(thread_index);
        let waited = !self.try_enter(thread_index);
        let position = if waited {
            self.enter_when_open(thread_index, WaitPolicy::UntilBusy)
        } else {
            GatePosition::Inside
        };
        let mut pass = self.pass(thread_index, position);
        pass.waited = waited;
        pass
    }

    /// Enters the gate (the keyspace's lock) like [`shared`](Self::shared), for threads that use
    /// one index in turn. No other thread can claim the index while the pass exists, not even while
    /// this thread is outside the gate. Two threads with one flag would let an exclusive owner in
    /// when one of them leaves.
    ///
    /// # Panics
    /// If the index is not below `threads_max`, or another thread has claimed it.
    pub fn shared_claimed(&self, thread_index: usize) -> ClaimedPass<'_> {
        let pass = self.try_shared_claimed(thread_index);
        pass.unwrap_or_else(|| panic!("two threads use index {thread_index} of the gate"))
    }

    /// Enters the gate (the keyspace's lock) like [`shared_claimed`](Self::shared_claimed), but
    /// does not wait for a busy owner: the returned pass is then outside.
    ///
    /// # Panics
    /// If the index is not below `threads_max`, or another thread has claimed it.
    pub fn shared_claimed_unless_busy(&self, thread_index: usize) -> ClaimedPass<'_> {
        let claim = self.claim(thread_index);
        let claim = claim.unwrap_or_else(|| panic!("two threads use index {thread_index} of the gate"));
        ClaimedPass { pass: self.shared_unless_busy(thread_index), _claim: claim }
    }

    /// Enters the gate (the keyspace's lock) like [`shared_claimed`](Self::shared_claimed). Returns
    /// `None` if another thread has claimed the index.
    ///
    /// # Panics
    /// If the index is not below `threads_max`.
    pub fn try_shared_claimed(&self, thread_index: usize) -> Option<ClaimedPass<'_>> {
        let claim = self.claim(thread_index)?;
        Some(ClaimedPass { pass: self.shared(thread_index), _claim: claim })
    }

    /// Claims an index of a thread in the keyspace's gate; `None` if another thread has claimed it.
    fn claim(&self, thread_index: usize) -> Option<Claim<'_>> {
        // Acquire: the flag of the previous claimer is lowered. Pairs with the Release of its drop.
        let was_claimed = self.claimed[thread_index].swap(true, Acquire);
        (!was_claimed).then_some(Claim { gate: self, thread_index })
    }

    /// Returns a pass through the gate (the keyspace's lock) for a thread that helps the exclusive
    /// owner, which waits for that thread. The pass counts as the owner. Of several such threads,
    /// only one at a time may do work that needs the ownership.
    ///
    /// # Panics
    /// If the index is not below `threads_max`, or is claimed or inside, or if there is no owner.
    pub fn for_owner(&self, thread_index: usize) -> ClaimedPass<'_> {
        self.assert_outside(thread_index);
        assert!(self.closed.load(Relaxed) != OPEN, "nobody owns the keyspace");
        let claim = self.claim(thread_index).expect("one thread has the index");
        ClaimedPass { pass: self.pass(thread_index, GatePosition::Owning), _claim: claim }
    }

    /// Returns a second pass for a thread whose own pass a busy script uses. The second pass stays
    /// outside the gate (the keyspace's lock).
    pub fn outside_pass(&self, thread_index: usize) -> SharedPass<'_> {
        self.pass(thread_index, GatePosition::Barred)
    }

    #[inline]
    fn pass(&self, thread_index: usize, position: GatePosition) -> SharedPass<'_> {
        SharedPass {
            gate: self,
            thread_index,
            position,
            waited: false,
            keeps_ownership: false,
            ownership: None,
            _stays_on_its_thread: PhantomData,
        }
    }

    #[inline]
    fn assert_outside(&self, thread_index: usize) {
        let inside = self.inside[thread_index].load(Relaxed);
        assert!(inside == OUTSIDE, "thread {thread_index} is already inside the gate");
    }

    /// Runs `work` with exclusive ownership of the gate (the keyspace's lock): waits for every
    /// thread to leave, and keeps new ones out. Only for threads without a pass: a thread inside
    /// would wait for itself, and must use `SharedPass::exclusive`.
    pub fn exclusive<R>(&self, work: impl FnOnce(&Exclusive) -> R) -> R {
        let _ownership = self.own(WaitPolicy::Endless);
        work(&Exclusive { _stays_on_its_thread: PhantomData })
    }

    /// Enters the gate (the keyspace's lock) as thread `thread_index`; waits as long as necessary.
    /// Returns true if it had to wait.
    #[inline]
    fn enter(&self, thread_index: usize) -> bool {
        let waits = !self.try_enter(thread_index);
        if waits {
            self.enter_when_open(thread_index, WaitPolicy::Endless);
        }
        waits
    }

    /// Raises the keyspace gate's flag of thread `thread_index`. Returns true if the gate is open,
    /// so that the thread is inside; otherwise the caller must lower the flag.
    #[inline]
    fn try_enter(&self, thread_index: usize) -> bool {
        self.inside[thread_index].store(INSIDE, Relaxed);
        // Our flag is written before `closed` is read. Pairs with the fence in `own`.
        fence(SeqCst);
        // Acquire: the last owner's work is visible. Pairs with the Release in `Ownership::drop`.
        self.closed.load(Acquire) == OPEN
    }

    /// Lowers the keyspace gate's flag of thread `thread_index`, waits until the gate opens, and
    /// enters. `patience` limits the wait. Meanwhile the thread counts as waiting. Returns the
    /// thread's new position.
    #[cold]
    fn enter_when_open(&self, thread_index: usize, patience: WaitPolicy) -> GatePosition {
        // Relaxed, here and below: only a count that owners wait for. The flags and fences make the
        // exclusion. The fence in `leave` is between this count and the sleep.
        self.rejected.fetch_add(1, Relaxed);
        let position = self.wait_for_opening(thread_index, patience);
        if self.rejected.fetch_sub(1, Relaxed) == 1 {
            self.rejected.wake_one(); // Only the next owner sleeps on it.
        }
        position
    }

    /// Lowers the keyspace gate's flag of thread `thread_index`, waits until the gate opens, and
    /// enters. `patience` limits the wait. Returns the thread's new position.
    fn wait_for_opening(&self, thread_index: usize, patience: WaitPolicy) -> GatePosition {
        loop {
            self.leave(thread_index);
            let mut spins_left = spins_max();
            loop {
                // Relaxed: only a hint when to try. The load after the fence decides.
                match self.closed.load(Relaxed) {
                    OPEN => break,
                    CLOSED_BUSY if patience == WaitPolicy::UntilBusy => return GatePosition::Outside,
                    // Sleeps with the value that was read: a change of it ends the sleep, or
                    // prevents it.
                    closed if spins_left == 0 => self.closed.wait(closed),
                    _ => {
                        spins_left -= 1;
                        std::hint::spin_loop();
                    }
                }
            }
            if self.try_enter(thread_index) {
                return GatePosition::Inside;
            }
        }
    }

    /// Lowers the flag of a thread that leaves the gate (the keyspace's lock), and wakes a future
    /// owner that may be waiting for that.
    #[inline]
    fn leave(&self, thread_index: usize) {
        // Release: the work inside is visible to the owner. Pairs with the Acquire in `occupancy`.
        self.set_flag(thread_index, OUTSIDE);
    }

    /// Changes the flag of a thread that is inside the gate (the keyspace's lock), and wakes a
    /// future owner that may be waiting for that.
    #[inline]
    fn set_flag(&self, thread_index: usize, flag: u32) {
        // Release: the work inside is visible to the owner. Pairs with the Acquire in `occupancy`.
        self.inside[thread_index].store(flag, Release);
        // Our flag is written before `closed` is read. Pairs with the fence in `own`.
        fence(SeqCst);
        if self.closed.load(Relaxed) != OPEN {
            self.notify_owner();
        }
    }

    /// Wakes the thread that waits to be the owner until all flags are lowered; if it is about to
    /// sleep, makes it check the flags again.
    #[cold]
    fn notify_owner(&self) {
        // Relaxed: the fence in `set_flag` comes before it. An owner that reads this count with the
        // Acquire in `own` therefore also sees our flag lowered.
        self.left.fetch_add(1, Relaxed);
        self.left.wake_one(); // Only the one owner sleeps on it.
    }

    /// Closes the gate (the keyspace's lock) and waits until all threads are outside. Returns
    /// `None` if the wait ended as `patience` permits, which [`WaitPolicy::Endless`] never does.
    fn own(&self, patience: WaitPolicy) -> Option<Ownership<'_>> {
        let turn = match patience {
            WaitPolicy::Endless => self.turn.lock(),
            WaitPolicy::UntilBusy => self.turn.lock_unless_busy()?,
        };
        // Checked before the gate is closed: no thread waits for an owner that will give up.
        if patience == WaitPolicy::UntilBusy && self.occupancy() == Occupancy::Busy {
            return None;
        }
        self.admit_waiting_threads();
        self.closed.store(CLOSED, Relaxed);
        // From here on, the drop opens the gate again in every case.
        let ownership = Ownership { gate: self, _turn: turn };
        // `closed` is written before the flags are read. Pairs with the fences in `try_enter` and
        // `set_flag`.
        fence(SeqCst);
        let mut spins_left = spins_max();
        loop {
            // Acquire: pairs with the count in `notify_owner`. Read before the flags: a change that
            // the scan misses increments the count, and then the wait does not sleep.
            let left = self.left.load(Acquire);
            let occupancy = self.occupancy();
            match (occupancy, patience) {
                (Occupancy::Busy, WaitPolicy::UntilBusy) => return None,
                (Occupancy::Busy, WaitPolicy::Endless) => self.close_for_busy(),
                // No thread is busy any more. Threads that sleep on the other value are woken when
                // the gate opens.
                _ if self.closed.load(Relaxed) != CLOSED => self.closed.store(CLOSED, Relaxed),
                _ => {}
            }
            if occupancy == Occupancy::Empty {
                return Some(ownership);
            }
            if spins_left == 0 {
                self.left.wait(left);
            } else {
                spins_left -= 1;
                std::hint::spin_loop();
            }
        }
    }

    /// Reads the flags of all threads and returns the occupancy of the keyspace's gate. O(threads).
    fn occupancy(&self) -> Occupancy {
        let mut occupancy = Occupancy::Empty;
        for inside in &self.inside {
            // Acquire: pairs with the Release in `set_flag`.
            match inside.load(Acquire) {
                OUTSIDE => {}
                INSIDE_BUSY => return Occupancy::Busy,
                _ => occupancy = Occupancy::Occupied,
            }
        }
        occupancy
    }

    /// Marks the keyspace's gate as closed for a long time, and wakes the threads that wait for it
    /// to open, so that those that need not wait give up. Only the thread that has closed the gate
    /// may call it.
    #[cold]
    fn close_for_busy(&self) {
        // Relaxed: a thread that reads it does not access the data.
        if self.closed.swap(CLOSED_BUSY, Relaxed) != CLOSED_BUSY {
            self.closed.wake_all();
        }
    }
}

impl Gate {
    /// Waits until the threads that waited for the previous owner are inside the keyspace's gate.
    /// The caller has not closed the gate yet, so nothing else delays these threads.
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
    /// Runs `work` with exclusive ownership of the gate (the keyspace's lock) from inside a turn:
    /// leaves the gate, becomes its owner, and enters again before it returns. Other threads may
    /// have been exclusive owners in between (see the module's comment). The caller must hold no
    /// shard's lock and must not rely on earlier reads.
    pub fn exclusive<R>(&mut self, work: impl FnOnce(&Exclusive) -> R) -> R {
        self.alone(|_| work(&Exclusive { _stays_on_its_thread: PhantomData }))
    }

    /// Runs `work` with exclusive ownership of the keyspace's gate like
    /// [`exclusive`](Self::exclusive). `work` gets this pass, on which it may request the ownership
    /// again: the request succeeds at once.
    pub fn alone<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        self.alone_with(WaitPolicy::Endless, work).expect("endless patience ends with the ownership")
    }

    /// Runs `work` like [`alone`](Self::alone), but does not wait for a busy thread: returns `None`
    /// without running `work`. In both cases the pass may be outside the gate (the keyspace's lock)
    /// afterwards: see [`is_inside`](Self::is_inside).
    pub fn alone_unless_busy<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        self.alone_with(WaitPolicy::UntilBusy, work)
    }

    fn alone_with<R>(&mut self, patience: WaitPolicy, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        match self.position {
            GatePosition::Owning => return Some(work(self)),
            GatePosition::Outside | GatePosition::Barred if patience == WaitPolicy::UntilBusy => return None,
            GatePosition::Barred => panic!("a thread with a busy script waits for its own end"),
            GatePosition::Inside | GatePosition::Outside => {
                // Its drop enters the gate again, also if this thread cannot become the owner now.
                let back = ReenterGuard::leave(self, patience);
                back.pass.ownership = Some(back.pass.gate.own(patience)?);
                back.forget();
            }
            GatePosition::Staying => {}
        }
        self.position = GatePosition::Owning;
        let owner = Owner { pass: self, patience };
        Some(work(owner.pass))
    }

    /// Lets this pass remain the exclusive owner after its next exclusive work, until the pass ends
    /// or yields ([`yield_to_owner`](Self::yield_to_owner)).
    pub fn keep_ownership(&mut self) {
        self.keeps_ownership = true;
    }

    /// Opens the gate (the keyspace's lock), which this pass owns, and enters again like any other
    /// thread. `patience` limits the wait.
    fn give_up_ownership(&mut self, patience: WaitPolicy) {
        drop(ReenterGuard::open(self, patience));
    }

    /// Leaves the gate (the keyspace's lock) during a turn, runs `work` outside, where it delays no
    /// future owner, and enters again. As for `exclusive`, the caller must hold no shard's lock and
    /// must not rely on earlier reads. A pass that works as the exclusive owner stays inside.
    pub fn outside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let _back_inside = match self.position {
            GatePosition::Inside => ReenterGuard::leave(self, WaitPolicy::Endless),
            GatePosition::Staying => ReenterGuard::open(self, WaitPolicy::Endless),
            _ => return work(),
        };
        work()
    }

    /// Returns true if the pass's thread should call [`yield_to_owner`](Self::yield_to_owner):
    /// another thread waits to be the keyspace gate's owner or waits for this owner, or this pass
    /// is outside. For a pass in parallel with others, it costs one load of a cache line that only
    /// owners write.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        match self.position {
            // Relaxed: a hint; `yield_to_owner` establishes the order.
            GatePosition::Inside => self.gate.closed.load(Relaxed) != OPEN,
            GatePosition::Staying => self.gate.rejected.load(Relaxed) > 0 || self.gate.turn.is_awaited(),
            GatePosition::Owning | GatePosition::Barred => false,
            GatePosition::Outside => true,
        }
    }

    /// Returns true if the pass remains the exclusive owner of the gate (the keyspace's lock)
    /// between two runs of exclusive work.
    #[inline]
    pub fn is_staying(&self) -> bool {
        self.position == GatePosition::Staying
    }

    /// Leaves the gate (the keyspace's lock) for a waiting exclusive owner and enters again
    /// afterwards; stays outside while the owner is busy. A pass that was outside the gate enters
    /// if it can. Returns true if the pass is then inside the gate. As for `exclusive`, the caller
    /// must hold no shard's lock and must not rely on earlier reads.
    #[cold]
    pub fn yield_to_owner(&mut self) -> bool {
        match self.position {
            GatePosition::Inside => drop(ReenterGuard::leave(self, WaitPolicy::UntilBusy)),
            GatePosition::Outside => self.come_in(WaitPolicy::UntilBusy),
            GatePosition::Staying => self.give_up_ownership(WaitPolicy::UntilBusy),
            GatePosition::Owning | GatePosition::Barred => {}
        }
        self.is_inside()
    }

    /// Returns true if the thread is inside the keyspace's gate, as the exclusive owner or in
    /// parallel with others. It is outside after it gave up waiting for a busy owner, and may then
    /// lock no shard.
    #[inline]
    pub fn is_inside(&self) -> bool {
        matches!(self.position, GatePosition::Inside | GatePosition::Owning | GatePosition::Staying)
    }

    /// Marks this pass as busy: its thread's script has run for too long. Callers of `unless_busy`
    /// functions then do not wait for it. The mark lasts until [`end_busy`](Self::end_busy) or the
    /// end of the turn; for the exclusive owner, until the end of the ownership.
    #[cold]
    pub fn mark_busy(&mut self) {
        match self.position {
            GatePosition::Inside => self.gate.set_flag(self.thread_index, INSIDE_BUSY),
            GatePosition::Owning | GatePosition::Staying => {
                self.gate.turn.mark_busy();
                self.gate.close_for_busy();
            }
            GatePosition::Outside | GatePosition::Barred => {}
        }
    }

    /// Ends the mark that [`mark_busy`](Self::mark_busy) set on a pass that is inside the
    /// keyspace's gate. A pass that is still the owner gives up the ownership; during exclusive
    /// work the mark stays.
    #[cold]
    pub fn end_busy(&mut self) {
        match self.position {
            GatePosition::Inside => self.gate.set_flag(self.thread_index, INSIDE),
            GatePosition::Staying => self.give_up_ownership(WaitPolicy::UntilBusy),
            GatePosition::Owning | GatePosition::Outside | GatePosition::Barred => {}
        }
    }

    /// Enters the gate (the keyspace's lock) with a pass that is outside it. `patience` limits the
    /// wait for an exclusive owner.
    fn come_in(&mut self, patience: WaitPolicy) {
        let (gate, thread_index) = (self.gate, self.thread_index);
        self.position = if gate.try_enter(thread_index) {
            GatePosition::Inside
        } else {
            gate.enter_when_open(thread_index, patience)
        };
    }

    /// Returns true if the thread waited for an exclusive owner of the gate (the keyspace's lock)
    /// when it created the pass.
    pub fn has_waited(&self) -> bool {
        self.waited
    }

    /// Returns the index of the pass's thread in the gate (the keyspace's lock).
    pub fn thread_index(&self) -> usize {
        self.thread_index
    }
}

/// A guard of a pass that is outside the gate (the keyspace's lock) for a while. Dropping the guard
/// enters the gate again; `patience` limits the wait.
struct ReenterGuard<'p, 'g> {
    pass: &'p mut SharedPass<'g>,
    patience: WaitPolicy,
}

impl<'p, 'g> ReenterGuard<'p, 'g> {
    fn leave(pass: &'p mut SharedPass<'g>, patience: WaitPolicy) -> Self {
        pass.gate.leave(pass.thread_index);
        pass.position = GatePosition::Outside;
        Self { pass, patience }
    }

    /// Opens the keyspace's gate, of which `pass` has stayed the owner. The pass is then outside.
    fn open(pass: &'p mut SharedPass<'g>, patience: WaitPolicy) -> Self {
        pass.position = GatePosition::Outside;
        pass.ownership = None;
        Self { pass, patience }
    }

    /// Drops the guard without entering the keyspace's gate again: the pass stays outside.
    fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for ReenterGuard<'_, '_> {
    fn drop(&mut self) {
        self.pass.come_in(self.patience);
    }
}

/// A pass whose thread works as the exclusive owner of the gate (the keyspace's lock) until this
/// value is dropped. Then the gate opens, unless the pass remains the owner.
struct Owner<'p, 'g> {
    pass: &'p mut SharedPass<'g>,
    patience: WaitPolicy,
}

impl Drop for Owner<'_, '_> {
    fn drop(&mut self) {
        let Self { pass, patience } = self;
        // A busy owner opens the gate in any case; otherwise other threads would continue to give
        // up. Relaxed: only owners write `closed`.
        if pass.keeps_ownership && pass.gate.closed.load(Relaxed) == CLOSED {
            pass.position = GatePosition::Staying;
        } else {
            pass.give_up_ownership(*patience);
        }
    }
}

impl Drop for SharedPass<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.position == GatePosition::Inside {
            self.gate.leave(self.thread_index);
        }
    }
}

impl Drop for Ownership<'_> {
    fn drop(&mut self) {
        // Release: the owner's work is visible to entering threads. Pairs with the Acquire in
        // `try_enter`.
        self.gate.closed.store(OPEN, Release);
        // The gate is opened before the waiting threads are counted. Pairs with the fence in
        // `set_flag`.
        fence(SeqCst);
        if self.gate.rejected.load(Relaxed) > 0 {
            self.gate.closed.wake_all();
        }
        // The lock `turn` is released after this: the next owner finds the gate open.
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
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
        assert_eq!(gate.inside[0].load(Relaxed), super::INSIDE, "back inside");
        drop(pass);
        assert_eq!(gate.exclusive(|_| 8), 8);
    }

    #[test]
    fn who_is_alone_may_ask_to_be_alone() {
        let gate = Gate::new(2);
        let mut pass = gate.shared(0);
        assert_eq!(pass.alone(|pass| pass.exclusive(|_| 1) + pass.alone(|pass| pass.outside(|| 2))), 3);
        assert_eq!(gate.inside[0].load(Relaxed), super::INSIDE, "back inside");
        assert_eq!(pass.exclusive(|_| gate.closed.load(Relaxed)), super::CLOSED);
    }

    #[test]
    fn who_works_for_the_owner_is_alone() {
        let gate = Gate::new(2);
        let mut pass = gate.shared(0);
        pass.exclusive(|_| {
            let mut helper = gate.for_owner(1);
            assert_eq!((helper.alone(|_| 1), helper.outside(|| 2), helper.is_wanted()), (1, 2, false));
        });
        assert_eq!(gate.inside[1].load(Relaxed), super::OUTSIDE);
        assert!(pass.is_inside());
    }

    #[test]
    fn a_barred_pass_stays_outside_and_leaves_the_other_one_as_it_is() {
        let gate = Gate::new(1);
        let mut script = gate.shared(0);
        script.alone(|script| {
            script.mark_busy();
            let mut outside_pass = gate.outside_pass(0);
            assert!(!outside_pass.is_inside() && !outside_pass.is_wanted() && !outside_pass.yield_to_owner());
            assert_eq!((outside_pass.alone_unless_busy(|_| ()), outside_pass.outside(|| 7)), (None, 7));
            outside_pass.mark_busy();
            drop(outside_pass);
            assert_eq!(gate.closed.load(Relaxed), super::CLOSED_BUSY);
        });
        drop(gate.outside_pass(0));
        assert_eq!(gate.inside[0].load(Relaxed), super::INSIDE, "the other pass is inside");
    }

    #[test]
    fn an_owner_does_not_wait_for_who_stepped_outside() {
        let gate = Gate::new(1);
        let mut pass = gate.shared(0);
        assert_eq!(pass.outside(|| gate.exclusive(|_| 7)), 7);
        assert_eq!(gate.inside[0].load(Relaxed), super::INSIDE, "back inside");
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
    fn a_claimed_index_cannot_be_claimed_again_until_its_pass_ends() {
        let gate = Gate::new(2);
        let first = gate.shared_claimed(1);
        assert!(gate.try_shared_claimed(1).is_none());
        assert!(gate.try_shared_claimed(0).is_some());
        drop(first);
        assert!(gate.try_shared_claimed(1).is_some());
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
        assert_eq!(gate.inside[0].load(Relaxed), super::INSIDE, "the pass that still exists is inside");
        drop(gate.shared(1));
        drop(pass);
        gate.exclusive(|_| ());
    }

    /// Waits until some thread waits for the gate (the keyspace's lock) to open.
    fn await_rejected(gate: &Gate) {
        while gate.rejected.load(Relaxed) == 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn who_may_gives_up_on_a_busy_owner_and_who_must_waits() {
        let gate = Gate::new(3);
        std::thread::scope(|scope| {
            let mut script = gate.shared(0);
            script.alone(|script| {
                let gives_up = scope.spawn(|| gate.shared_unless_busy(1).is_inside());
                await_rejected(&gate);
                script.mark_busy();
                assert!(!gives_up.join().expect("no panic"), "woken, and not kept waiting");
                assert!(!gate.shared_unless_busy(1).is_inside());
                let mut outside = gate.shared_unless_busy(1);
                assert!(outside.is_wanted() && !outside.yield_to_owner());
                assert_eq!(outside.alone_unless_busy(|_| ()), None);
                scope.spawn(|| assert!(gate.shared(2).is_inside()));
                await_rejected(&gate);
            });
            assert!(script.is_inside());
        });
        let mut late = gate.shared_unless_busy(1);
        assert!(late.is_inside() && !late.is_wanted() && late.yield_to_owner());
        assert_eq!(late.alone_unless_busy(|_| 7), Some(7));
    }

    #[test]
    fn an_owner_to_be_gives_up_on_a_busy_turn_and_disturbs_nobody() {
        let gate = Gate::new(3);
        let mut script = gate.shared(0);
        script.mark_busy();
        let mut other = gate.shared(1);
        assert_eq!(other.alone_unless_busy(|_| ()), None);
        assert!(other.is_inside() && !other.is_wanted(), "the gate is open, its thread back inside");
        script.end_busy();
        drop(script);
        assert_eq!(other.alone_unless_busy(|_| 7), Some(7));
    }

    #[test]
    fn an_owner_that_must_wait_for_a_busy_turn_lets_others_give_up() {
        let gate = Gate::new(3);
        std::thread::scope(|scope| {
            let mut script = gate.shared(0);
            let owner = scope.spawn(|| gate.exclusive(|_| gate.closed.load(Relaxed)));
            while gate.closed.load(Relaxed) == super::OPEN {
                std::thread::yield_now();
            }
            let gives_up = scope.spawn(|| gate.shared_unless_busy(1).is_inside());
            await_rejected(&gate);
            script.mark_busy();
            assert!(!gives_up.join().expect("no panic"));
            script.end_busy();
            drop(script);
            assert_eq!(owner.join().expect("no panic"), super::CLOSED, "nobody is busy any more");
        });
    }

    /// Checks shared passes, their exclusive work, and owners in the background at the same time,
    /// with real threads that sleep. An owner's read-modify-write in two steps must not be
    /// disturbed, and all threads must finish.
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
