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
//!   inside[0] inside[1] …   one padded flag a thread: it is in a turn, or busy in one
//!   closed                  an exclusive owner waits, works or is busy; shared callers sleep on it
//!   left                    counts departures while closed; the exclusive owner sleeps on it
//!   rejected                callers that wait for an owner's end; the next owner waits for 0
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
//! sleep on `closed` itself, and opening it is the pattern again: a caller is counted in
//! `rejected`, lowers its flag, fences, and sleeps while `closed` is as it was; the owner opens,
//! fences, and wakes them if any are counted. Waking is a system call, and short scripts that run
//! alone open the gate all the time.
//!
//! **No deadlock.** Nobody waits while its own flag is up: a caller that sees `closed` lowers its
//! flag before it sleeps, and an upgrade leaves the shared pass before it queues for `turn`. So the
//! owner waits only for threads that run. Two upgraders queue for `turn`, both outside.
//! What follows: an upgrade is not atomic. Between the shared and the exclusive part
//! others may have been exclusive: read again what you rely on. And nobody may hold a
//! shard's lock when upgrading.
//!
//! **Who is busy.** A script that runs for too long says so (`mark_busy`): alone, in `closed` and
//! in the lock `turn`; inside, in its thread's flag. Who came by an `unless_busy` then gives up
//! rather than wait, and its thread goes on outside the gate: it has not raised its flag, or
//! lowered it, so nobody counts on it. A caller sleeps on `closed` with the value that it saw
//! there, so it cannot miss the change of it. An owner that waits for a busy thread opens the gate
//! and gives up; one that must wait says BUSY in `closed`, so that those behind it need not. The
//! flag of a busy thread is changed as it is when the thread leaves: with the fence, and `left`
//! stepped.
//!
//! **Staying the owner.** Where a turn does one thing alone after the other, opening and closing
//! the gate for each costs more than a short script. A pass that was told to (`keep_ownership`)
//! stays the owner between them, until the turn ends or sees, where it asks `is_wanted`, that
//! somebody waits. Worth it only where hardly anybody else comes.
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
use stdx::sync::{AtomicU32, fence, spins_max};
use structures::lock::{Guard, Lock};

/// `closed` while there is no exclusive owner.
const OPEN: u32 = 0;
/// `closed` while an exclusive owner waits or works.
const CLOSED: u32 = 1;
/// `closed` while the exclusive owner is busy, or must wait for a thread that is.
const CLOSED_BUSY: u32 = 2;

/// A thread's flag while it is in no turn.
const OUTSIDE: u32 = 0;
/// A thread's flag during a turn.
const INSIDE: u32 = 1;
/// A thread's flag while a script keeps it in its turn for too long.
const INSIDE_BUSY: u32 = 2;

/// The time that a thread waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Until its turn has come.
    Endless,
    /// Until its turn has come or whom it waits for is busy.
    UntilBusy,
}

/// The position of a pass's thread: inside or outside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Inside, beside others.
    Inside,
    /// The thread is the exclusive owner, and works as that.
    Owning,
    /// The thread has stayed the exclusive owner, and works as if it were inside beside others.
    Staying,
    /// Outside: it gave up waiting for somebody busy.
    Outside,
    /// Outside for good: the thread has another pass, which a busy script uses.
    Barred,
}

/// The threads inside, as a thread that waits to be the owner sees them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Occupancy {
    Empty,
    Occupied,
    /// By a busy thread, perhaps among others.
    Busy,
}

/// Shared passes for I/O threads, exclusive ownership for one. See the module for the protocol.
pub struct Gate {
    inside: Box<[CachePadded<AtomicU32>]>,
    /// Read by all at every turn, written only by exclusive owners: alone on its line.
    closed: CachePadded<FutexWord>,
    left: CachePadded<FutexWord>,
    rejected: CachePadded<FutexWord>,
    /// Guards the right to write `closed`.
    turn: CachePadded<Lock<()>>,
}

/// A thread is inside: no exclusive owner works until this is dropped. It stays on its thread.
/// Where it was taken or kept by an `unless_busy`, ask [`SharedPass::is_inside`].
#[must_use = "the pass ends as soon as it is dropped"]
pub struct SharedPass<'g> {
    gate: &'g Gate,
    thread_index: usize,
    standing: Standing,
    /// It had to wait to come in.
    waited: bool,
    /// True if it stays the exclusive owner, once it is.
    keeps_ownership: bool,
    /// `Some` while this pass is the owner, not on behalf of another (`for_owner`).
    ownership: Option<Ownership<'g>>,
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
    /// Creates a gate for threads numbered `0..threads_max`. One padded cache line a thread.
    pub fn new(threads_max: usize) -> Self {
        Self {
            inside: (0..threads_max).map(|_| CachePadded::new(AtomicU32::new(OUTSIDE))).collect(),
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
        self.assert_outside(thread_index);
        let waited = self.enter(thread_index);
        let mut pass = self.pass(thread_index, Standing::Inside);
        pass.waited = waited;
        pass
    }

    /// Enters as [`shared`](Self::shared) does, but gives up while a busy owner has the gate: the
    /// pass is outside then.
    ///
    /// # Panics
    /// The index is not below `threads_max`, or already inside.
    #[inline]
    pub fn shared_unless_busy(&self, thread_index: usize) -> SharedPass<'_> {
        self.assert_outside(thread_index);
        let waited = !self.try_enter(thread_index);
        let standing =
            if waited { self.enter_when_open(thread_index, Patience::UntilBusy) } else { Standing::Inside };
        let mut pass = self.pass(thread_index, standing);
        pass.waited = waited;
        pass
    }

    /// Returns the owner's pass for a thread that works for the exclusive owner, who waits for it.
    /// Of several such threads only one at a time may do work that needs to be alone.
    ///
    /// # Panics
    /// The index is not below `threads_max`, or inside; there is no owner.
    pub fn for_owner(&self, thread_index: usize) -> SharedPass<'_> {
        self.assert_outside(thread_index);
        assert!(self.closed.load(Relaxed) != OPEN, "nobody owns the keyspace");
        self.pass(thread_index, Standing::Owning)
    }

    /// Returns a second pass for a thread whose own one a busy script uses: it stays outside.
    pub fn barred(&self, thread_index: usize) -> SharedPass<'_> {
        self.pass(thread_index, Standing::Barred)
    }

    #[inline]
    fn pass(&self, thread_index: usize, standing: Standing) -> SharedPass<'_> {
        SharedPass {
            gate: self,
            thread_index,
            standing,
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

    /// Runs `work` alone: waits for every thread to leave, and holds new ones off meanwhile.
    /// For threads without a pass; from inside a turn use `SharedPass::exclusive`, this
    /// would wait for itself.
    pub fn exclusive<R>(&self, work: impl FnOnce(&Exclusive) -> R) -> R {
        let _ownership = self.own(Patience::Endless);
        work(&Exclusive { _stays_on_its_thread: PhantomData })
    }

    /// Comes in, however long that takes. Whether it had to wait.
    #[inline]
    fn enter(&self, thread_index: usize) -> bool {
        let waits = !self.try_enter(thread_index);
        if waits {
            self.enter_when_open(thread_index, Patience::Endless);
        }
        waits
    }

    /// Raises the flag, and is done unless the gate is closed.
    #[inline]
    fn try_enter(&self, thread_index: usize) -> bool {
        self.inside[thread_index].store(INSIDE, Relaxed);
        // Our flag before our look at `closed`: pairs with the fence in `own`.
        fence(SeqCst);
        // Acquire: what the last owner did is visible; pairs with the Release in `Ownership::drop`.
        self.closed.load(Acquire) == OPEN
    }

    /// Steps back, sleeps until the gate opens, tries again. Where it stands then.
    #[cold]
    fn enter_when_open(&self, thread_index: usize, patience: Patience) -> Standing {
        // Relaxed, here and below: a count that owners wait for; the flags and fences are what
        // excludes. The fence in `leave` stands between it and the sleep.
        self.rejected.fetch_add(1, Relaxed);
        let standing = self.wait_for_opening(thread_index, patience);
        if self.rejected.fetch_sub(1, Relaxed) == 1 {
            self.rejected.wake_one(); // Only the one owner to be sleeps on it.
        }
        standing
    }

    /// Waits until the gate opens, as long as `patience` permits.
    fn wait_for_opening(&self, thread_index: usize, patience: Patience) -> Standing {
        loop {
            self.leave(thread_index);
            let mut spins_left = spins_max();
            loop {
                // Relaxed: only a hint when to try; the load after the fence decides.
                match self.closed.load(Relaxed) {
                    OPEN => break,
                    CLOSED_BUSY if patience == Patience::UntilBusy => return Standing::Outside,
                    // With the value seen: a change of it ends the sleep, or keeps it from
                    // beginning.
                    closed if spins_left == 0 => self.closed.wait(closed),
                    _ => {
                        spins_left -= 1;
                        std::hint::spin_loop();
                    }
                }
            }
            if self.try_enter(thread_index) {
                return Standing::Inside;
            }
        }
    }

    /// Lowers the flag, and notifies an owner that may be waiting for that.
    #[inline]
    fn leave(&self, thread_index: usize) {
        // Release: what was done inside is visible to the owner; pairs with the Acquire in `own`.
        self.set_flag(thread_index, OUTSIDE);
    }

    /// Changes the flag of a thread that is inside, and notifies an owner that may be waiting for
    /// that.
    #[inline]
    fn set_flag(&self, thread_index: usize, flag: u32) {
        // Release: what was done inside is visible to the owner; pairs with the Acquire in `own`.
        self.inside[thread_index].store(flag, Release);
        // Our flag before our look at `closed`: pairs with the fence in `own`.
        fence(SeqCst);
        if self.closed.load(Relaxed) != OPEN {
            self.tell_owner();
        }
    }

    /// Ends the owner's sleep, or keeps it from beginning.
    #[cold]
    fn tell_owner(&self) {
        // Relaxed: the fence in `set_flag` stands before it, so who reads this count with the
        // Acquire in `own` also sees our flag down.
        self.left.fetch_add(1, Relaxed);
        self.left.wake_one(); // Only the one owner sleeps on it.
    }

    /// Closes the gate and waits until all are out; always, with endless patience.
    fn own(&self, patience: Patience) -> Option<Ownership<'_>> {
        let turn = match patience {
            Patience::Endless => self.turn.lock(),
            Patience::UntilBusy => self.turn.lock_unless_busy()?,
        };
        // Before it closes the gate: nobody is held up for an owner that will give up.
        if patience == Patience::UntilBusy && self.occupancy() == Occupancy::Busy {
            return None;
        }
        self.admit_waiting_threads();
        self.closed.store(CLOSED, Relaxed);
        // From here the drop opens the gate again, whatever happens.
        let ownership = Ownership { gate: self, _turn: turn };
        // `closed` before our look at the flags: pairs with the fences in `try_enter` and
        // `set_flag`.
        fence(SeqCst);
        let mut spins_left = spins_max();
        loop {
            // Acquire: pairs with the count in `tell_owner`. Read before the flags: a change that
            // the scan misses steps the count, and then the wait does not sleep.
            let left = self.left.load(Acquire);
            let occupancy = self.occupancy();
            match (occupancy, patience) {
                (Occupancy::Busy, Patience::UntilBusy) => return None,
                (Occupancy::Busy, Patience::Endless) => self.close_for_busy(),
                // Nobody is, any more. Who sleeps on the other value is woken when the gate opens.
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

    /// Returns the threads inside.
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

    /// Has those that wait for the opening give up, if they may. For the one that has closed the
    /// gate.
    #[cold]
    fn close_for_busy(&self) {
        // Relaxed: whoever reads it comes no nearer to the data.
        if self.closed.swap(CLOSED_BUSY, Relaxed) != CLOSED_BUSY {
            self.closed.wake_all();
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

    /// Runs `work` alone as [`exclusive`](Self::exclusive) does. Parts of it may ask to be alone
    /// themselves: they are, then.
    pub fn alone<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        self.alone_with(Patience::Endless, work).expect("endless patience ends with the ownership")
    }

    /// Runs `work` alone as [`alone`](Self::alone) does, but never waits for a busy owner: `work`
    /// does not run then. The pass may be outside afterwards, with and without having run: see
    /// [`is_inside`](Self::is_inside).
    pub fn alone_unless_busy<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        self.alone_with(Patience::UntilBusy, work)
    }

    fn alone_with<R>(&mut self, patience: Patience, work: impl FnOnce(&mut Self) -> R) -> Option<R> {
        match self.standing {
            Standing::Owning => return Some(work(self)),
            Standing::Outside | Standing::Barred if patience == Patience::UntilBusy => return None,
            Standing::Barred => panic!("a thread with a busy script waits for its own end"),
            Standing::Inside | Standing::Outside => {
                // Comes back in last, also where nobody may be alone now.
                let back = ReenterGuard::leave(self, patience);
                back.pass.ownership = Some(back.pass.gate.own(patience)?);
                back.forget();
            }
            Standing::Staying => {}
        }
        self.standing = Standing::Owning;
        let owner = Owner { pass: self, patience };
        Some(work(owner.pass))
    }

    /// Keeps this thread the exclusive owner after work that was done alone, until the pass ends
    /// or yields ([`yield_to_owner`](Self::yield_to_owner)).
    pub fn keep_ownership(&mut self) {
        self.keeps_ownership = true;
    }

    /// Opens the gate and comes back in, if its patience lasts.
    fn give_up_ownership(&mut self, patience: Patience) {
        drop(ReenterGuard::open(self, patience));
    }

    /// Runs `work` outside the gate from inside a turn, so that nobody who wants to be exclusive
    /// waits for it, and comes back in before it returns. As with `exclusive`, the caller must hold
    /// no shard's lock and nothing that it read before.
    /// An exclusive owner stays where it is, if it works as that.
    pub fn outside<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let _back_inside = match self.standing {
            Standing::Inside => ReenterGuard::leave(self, Patience::Endless),
            Standing::Staying => ReenterGuard::open(self, Patience::Endless),
            _ => return work(),
        };
        work()
    }

    /// Returns true if the turn should step aside or check if it may enter. A thread waits to be
    /// the exclusive owner, or for the pass that stays it, or the pass is outside. Beside others
    /// it is one load of a line that only owners write.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        match self.standing {
            // Relaxed: a hint; `yield_to_owner` is what orders.
            Standing::Inside => self.gate.closed.load(Relaxed) != OPEN,
            Standing::Staying => self.gate.rejected.load(Relaxed) > 0 || self.gate.turn.is_awaited(),
            Standing::Owning | Standing::Barred => false,
            Standing::Outside => true,
        }
    }

    /// Leaves the gate for a waiting exclusive owner and enters again when it is done, or stays
    /// outside while it is busy: whether the pass is inside. One that was outside comes in if it
    /// can. As with `exclusive`, the caller must hold no shard's lock and nothing that it read
    /// before.
    #[cold]
    pub fn yield_to_owner(&mut self) -> bool {
        match self.standing {
            Standing::Inside => drop(ReenterGuard::leave(self, Patience::UntilBusy)),
            Standing::Outside => self.come_in(Patience::UntilBusy),
            Standing::Staying => self.give_up_ownership(Patience::UntilBusy),
            Standing::Owning | Standing::Barred => {}
        }
        self.is_inside()
    }

    /// Returns true if the thread is inside, as the exclusive owner or beside others. It is
    /// outside after it gave up waiting for a busy owner, and may lock no shard then.
    #[inline]
    pub fn is_inside(&self) -> bool {
        matches!(self.standing, Standing::Inside | Standing::Owning | Standing::Staying)
    }

    /// Says that this turn takes long, because of a script: who waits for its end by an
    /// `unless_busy` gives up, until [`end_busy`](Self::end_busy) or the end of the turn; of the
    /// ownership where this thread is the exclusive owner.
    #[cold]
    pub fn mark_busy(&mut self) {
        match self.standing {
            Standing::Inside => self.gate.set_flag(self.thread_index, INSIDE_BUSY),
            Standing::Owning | Standing::Staying => {
                self.gate.turn.mark_busy();
                self.gate.close_for_busy();
            }
            Standing::Outside | Standing::Barred => {}
        }
    }

    /// Ends what [`mark_busy`](Self::mark_busy) began inside. Ownership stays busy to its end.
    #[cold]
    pub fn end_busy(&mut self) {
        match self.standing {
            Standing::Inside => self.gate.set_flag(self.thread_index, INSIDE),
            Standing::Staying => self.give_up_ownership(Patience::UntilBusy),
            Standing::Owning | Standing::Outside | Standing::Barred => {}
        }
    }

    /// Enters for a pass that is outside, if its patience lasts.
    fn come_in(&mut self, patience: Patience) {
        let (gate, thread_index) = (self.gate, self.thread_index);
        self.standing = if gate.try_enter(thread_index) {
            Standing::Inside
        } else {
            gate.enter_when_open(thread_index, patience)
        };
    }

    /// Returns true if the pass waited for the end of an exclusive owner when it was taken.
    pub fn has_waited(&self) -> bool {
        self.waited
    }

    /// Returns the number this pass was taken with.
    pub fn thread_index(&self) -> usize {
        self.thread_index
    }
}

/// A pass that is outside for a while; enters when dropped, if its patience lasts.
struct ReenterGuard<'p, 'g> {
    pass: &'p mut SharedPass<'g>,
    patience: Patience,
}

impl<'p, 'g> ReenterGuard<'p, 'g> {
    fn leave(pass: &'p mut SharedPass<'g>, patience: Patience) -> Self {
        pass.gate.leave(pass.thread_index);
        pass.standing = Standing::Outside;
        Self { pass, patience }
    }

    /// Opens the gate that `pass` has stayed the owner of, and is outside.
    fn open(pass: &'p mut SharedPass<'g>, patience: Patience) -> Self {
        pass.standing = Standing::Outside;
        pass.ownership = None;
        Self { pass, patience }
    }

    /// Stays outside.
    fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for ReenterGuard<'_, '_> {
    fn drop(&mut self) {
        self.pass.come_in(self.patience);
    }
}

/// A pass whose thread works as the exclusive owner until this is dropped. Then the gate opens,
/// unless the pass stays the owner.
struct Owner<'p, 'g> {
    pass: &'p mut SharedPass<'g>,
    patience: Patience,
}

impl Drop for Owner<'_, '_> {
    fn drop(&mut self) {
        let Self { pass, patience } = self;
        // Who was busy opens it, or others would go on giving up. Relaxed: only owners write it.
        if pass.keeps_ownership && pass.gate.closed.load(Relaxed) == CLOSED {
            pass.standing = Standing::Staying;
        } else {
            pass.give_up_ownership(*patience);
        }
    }
}

impl Drop for SharedPass<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.standing == Standing::Inside {
            self.gate.leave(self.thread_index);
        }
    }
}

impl Drop for Ownership<'_> {
    fn drop(&mut self) {
        // Release: what the owner did is visible to whoever comes in; pairs with
        // the Acquire in `enter`.
        self.gate.closed.store(OPEN, Release);
        // The opening before our look at who waits for it: pairs with the fence in `set_flag`.
        fence(SeqCst);
        if self.gate.rejected.load(Relaxed) > 0 {
            self.gate.closed.wake_all();
        }
        // The lock of `turn` is released after this: the next owner finds the gate open.
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
            let mut barred = gate.barred(0);
            assert!(!barred.is_inside() && !barred.is_wanted() && !barred.yield_to_owner());
            assert_eq!((barred.alone_unless_busy(|_| ()), barred.outside(|| 7)), (None, 7));
            barred.mark_busy();
            drop(barred);
            assert_eq!(gate.closed.load(Relaxed), super::CLOSED_BUSY);
        });
        drop(gate.barred(0));
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

    /// Waits until somebody is kept out.
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
