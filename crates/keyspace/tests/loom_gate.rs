//! A proof of the gate, the lock of the keyspace, under every interleaving and every allowed stale
//! read (loom). An exclusive owner is alone and sees all earlier work. Callers that wait are let in
//! again. Upgrading threads never wait for each other; loom would report a thread that sleeps
//! forever as a deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p keyspace --test loom_gate`
#![cfg(loom)]

use keyspace::Gate;
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;
use std::sync::Arc;

/// Two words that are equal except while a thread changes them. The accesses are relaxed, so loom
/// lets a reader see any old value of either that no happens-before edge excludes. A reader in
/// parallel with the writer, or one that the gate does not order after it, finds a torn or stale
/// pair.
struct Pair(AtomicU32, AtomicU32);

impl Pair {
    fn new() -> Self {
        Self(AtomicU32::new(0), AtomicU32::new(0))
    }

    fn step(&self) {
        self.0.store(self.0.load(Relaxed) + 1, Relaxed);
        self.1.store(self.1.load(Relaxed) + 1, Relaxed);
    }

    fn read(&self) -> u32 {
        let (second, first) = (self.1.load(Relaxed), self.0.load(Relaxed));
        assert_eq!(first, second, "not alone, or not after the writer");
        first
    }
}

/// A gate of a keyspace and three pairs of words. Exclusive owners of the gate change one pair;
/// each of two threads changes a pair of its own when it is inside.
struct Guarded {
    gate: Gate,
    owners: Pair,
    turns: [Pair; 2],
}

impl Guarded {
    fn new() -> Arc<Self> {
        Arc::new(Self { gate: Gate::new(2), owners: Pair::new(), turns: [Pair::new(), Pair::new()] })
    }

    /// Enters the gate as thread `index`, reads the two values that exclusive owners write, changes
    /// the two values of its own thread, and leaves.
    fn turn(&self, index: usize) {
        let _pass = self.gate.shared(index);
        self.owners.read();
        self.turns[index].step();
    }

    /// Enters the gate with a claim of the index `index`, works as [`Guarded::turn`] does, and
    /// leaves. Returns `None` if another thread has claimed the index.
    fn claimed_turn(&self, index: usize) -> Option<()> {
        let _pass = self.gate.try_shared_claimed(index)?;
        self.owners.read();
        self.turns[index].step();
        Some(())
    }

    /// Enters the gate as thread `index`, works as the exclusive owner in the middle, and leaves.
    fn upgrade(&self, index: usize) {
        let mut pass = self.gate.shared(index);
        let before = self.owners.read();
        self.turns[index].step();
        pass.exclusive(|_| self.work_alone());
        assert!(self.owners.read() > before, "its own work is seen after coming back");
    }

    /// Does the work of an exclusive owner of the gate: changes the owners' pair and reads the pair
    /// of each thread.
    fn work_alone(&self) {
        self.turns.iter().for_each(|turn| assert!(turn.read() <= 2));
        self.owners.step();
    }

    /// Checks, after all threads have ended, that no change was lost. The arguments are the
    /// expected numbers of changes of each pair.
    fn finished(&self, owners: u32, turns: [u32; 2]) {
        assert_eq!((self.owners.read(), self.turns.each_ref().map(Pair::read)), (owners, turns));
    }
}

/// Explores the schedules of `model` with loom: all, or those with at most `preemptions_max`
/// preemptions.
fn check(preemptions_max: Option<usize>, model: impl Fn(&Arc<Guarded>) + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions_max;
    builder.check(move || model(&Guarded::new()));
}

fn spawn(guarded: &Arc<Guarded>, run: fn(&Guarded)) -> thread::JoinHandle<()> {
    let guarded = Arc::clone(guarded);
    thread::spawn(move || run(&guarded))
}

#[test]
fn an_owner_and_a_turn_exclude_each_other() {
    check(None, |guarded| {
        let turn = spawn(guarded, |guarded| guarded.turn(0));
        guarded.gate.exclusive(|_| guarded.work_alone());
        turn.join().expect("no panic");
        guarded.finished(1, [1, 0]);
    });
}

/// Checks that two threads that have claimed different indexes of the gate exclude an owner.
#[test]
fn claimed_passes_exclude_an_owner() {
    check(Some(2), |guarded| {
        let walker = spawn(guarded, |guarded| guarded.claimed_turn(0).expect("its own index"));
        let lane = spawn(guarded, |guarded| guarded.claimed_turn(1).expect("its own index"));
        guarded.gate.exclusive(|_| guarded.work_alone());
        [walker, lane].into_iter().for_each(|thread| thread.join().expect("no panic"));
        guarded.finished(1, [1, 1]);
    });
}

/// Checks that two threads that claim one index of the gate have it one after the other: no change
/// is lost.
#[test]
fn an_index_is_claimed_by_one_thread_at_a_time() {
    check(Some(3), |guarded| {
        let guarded_by_other = Arc::clone(guarded);
        let other = thread::spawn(move || guarded_by_other.claimed_turn(0).is_some());
        let own = guarded.claimed_turn(0).is_some();
        let other = other.join().expect("no panic");
        assert!(own || other, "a free index can be claimed");
        guarded.finished(0, [u32::from(own) + u32::from(other), 0]);
    });
}

#[test]
fn turns_go_on_after_an_owner() {
    check(Some(3), |guarded| {
        let turns = spawn(guarded, |guarded| (0..2).for_each(|_| guarded.turn(0)));
        guarded.gate.exclusive(|_| guarded.work_alone());
        turns.join().expect("no panic");
        guarded.finished(1, [2, 0]);
    });
}

#[test]
fn owners_in_a_row_let_every_turn_finish() {
    check(Some(3), |guarded| {
        let turn = spawn(guarded, |guarded| guarded.turn(0));
        (0..2).for_each(|_| guarded.gate.exclusive(|_| guarded.work_alone()));
        turn.join().expect("no panic");
        guarded.finished(2, [1, 0]);
    });
}

#[test]
fn two_upgraders_take_turns() {
    check(Some(3), |guarded| {
        let other = spawn(guarded, |guarded| guarded.upgrade(0));
        guarded.upgrade(1);
        other.join().expect("no panic");
        guarded.finished(2, [1, 1]);
    });
}

#[test]
fn an_upgrader_beside_a_turn_and_an_owner() {
    check(Some(2), |guarded| {
        let turn = spawn(guarded, |guarded| guarded.turn(0));
        let upgrade = spawn(guarded, |guarded| guarded.upgrade(1));
        guarded.gate.exclusive(|_| guarded.work_alone());
        turn.join().expect("no panic");
        upgrade.join().expect("no panic");
        guarded.finished(2, [1, 1]);
    });
}

/// Enters the gate as thread `index`, but does not wait for a busy owner. Returns true if it was
/// inside the gate.
fn turn_unless_busy(guarded: &Guarded, index: usize) -> bool {
    let pass = guarded.gate.shared_unless_busy(index);
    if pass.is_inside() {
        guarded.owners.read();
        guarded.turns[index].step();
    }
    pass.is_inside()
}

/// Checks that a thread stops waiting for an owner that becomes busy: the owner ends only
/// afterwards, so a caller that continued to sleep would never wake.
#[test]
fn a_turn_gives_up_on_an_owner_that_becomes_busy() {
    check(None, |guarded| {
        let mut pass = guarded.gate.shared(1);
        pass.alone(|pass| {
            let turn = {
                let guarded = Arc::clone(guarded);
                thread::spawn(move || turn_unless_busy(&guarded, 0))
            };
            guarded.work_alone();
            pass.mark_busy();
            assert!(!turn.join().expect("no panic"), "inside beside the owner");
        });
        assert!(turn_unless_busy(guarded, 0));
        drop(pass);
        guarded.finished(1, [1, 0]);
    });
}

#[test]
fn a_turn_that_may_give_up_and_a_busy_owner_exclude_each_other() {
    check(Some(3), |guarded| {
        let other = Arc::clone(guarded);
        let turn = thread::spawn(move || u32::from(turn_unless_busy(&other, 0)));
        guarded.gate.shared(1).alone(|pass| {
            pass.mark_busy();
            guarded.work_alone();
        });
        let turns = turn.join().expect("no panic");
        guarded.finished(1, [turns, 0]);
    });
}

/// Checks that a thread that waits for the ownership of the gate gives up when a thread inside
/// becomes busy, which leaves only afterwards.
#[test]
fn an_owner_to_be_gives_up_on_a_turn_that_becomes_busy() {
    check(None, |guarded| {
        let mut busy = guarded.gate.shared(0);
        let other = Arc::clone(guarded);
        let owner = thread::spawn(move || {
            let mut pass = other.gate.shared(1);
            assert_eq!(pass.alone_unless_busy(|_| ()), None, "alone beside a turn");
            assert!(pass.is_inside());
            other.turns[1].step();
        });
        guarded.turns[0].step();
        busy.mark_busy();
        owner.join().expect("no panic");
        drop(busy);
        guarded.gate.exclusive(|_| guarded.work_alone());
        guarded.finished(1, [1, 1]);
    });
}

/// Checks that an owner that must wait for a busy thread inside the gate delays no thread that may
/// give up.
#[test]
fn a_turn_gives_up_behind_an_owner_that_waits_for_a_busy_turn() {
    check(Some(2), |guarded| {
        let mut busy = guarded.gate.shared(0);
        let owner = spawn(guarded, |guarded| guarded.gate.exclusive(|_| guarded.work_alone()));
        let other = Arc::clone(guarded);
        let turn = thread::spawn(move || u32::from(turn_unless_busy(&other, 1)));
        guarded.turns[0].step();
        busy.mark_busy();
        let turns = turn.join().expect("no panic");
        busy.end_busy();
        drop(busy);
        owner.join().expect("no panic");
        guarded.finished(1, [1, turns]);
    });
}

/// Enters the gate and stays its exclusive owner. It changes the owners' pair during exclusive
/// work. It also does so between two runs of such work, while it is still the owner.
fn stay(guarded: &Guarded, index: usize) {
    let mut pass = guarded.gate.shared(index);
    pass.keep_ownership();
    pass.exclusive(|_| guarded.work_alone());
    assert!(pass.is_inside());
    if pass.is_wanted() {
        pass.yield_to_owner();
        guarded.turns[index].step();
        pass.outside(|| ());
        guarded.turns[index].step();
    } else {
        guarded.owners.step();
        pass.exclusive(|_| guarded.turns[index].step());
        guarded.owners.step();
        pass.outside(|| ());
        guarded.turns[index].step();
    }
}

/// Runs [`stay`] in parallel with `other`, which works `owned` times as the exclusive owner.
/// `turns` are the expected numbers of changes of the threads' pairs.
fn check_staying(preemptions_max: usize, other: fn(&Guarded), owned: u32, turns: [u32; 2]) {
    check(Some(preemptions_max), move |guarded| {
        let other = spawn(guarded, other);
        stay(guarded, 0);
        other.join().expect("no panic");
        // A turn that yielded has changed the owners' pair once, one that did not three times.
        assert!([owned + 1, owned + 3].contains(&guarded.owners.read()));
        assert_eq!(guarded.turns.each_ref().map(Pair::read), turns);
    });
}

#[test]
fn who_stays_the_owner_and_a_turn_exclude_each_other() {
    check_staying(3, |guarded| guarded.turn(1), 0, [2, 1]);
}

#[test]
fn who_stays_the_owner_and_another_owner_exclude_each_other() {
    check_staying(3, |guarded| guarded.gate.exclusive(|_| guarded.work_alone()), 1, [2, 0]);
}

#[test]
fn who_stays_the_owner_beside_an_upgrader() {
    check_staying(2, |guarded| guarded.upgrade(1), 1, [2, 1]);
}
