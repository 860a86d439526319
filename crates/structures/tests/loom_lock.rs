//! A proof of the shard lock under every interleaving and every allowed stale read (loom). There is
//! one owner at a time, and it sees the writes of the owner before. No thread sleeps forever; loom
//! would report that as a deadlock.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p structures --test loom_lock`
#![cfg(loom)]

use loom::thread;
use std::sync::Arc;
use structures::lock::{Guard, Lock};

/// Adds one to a locked value in two steps, so that a second owner between them would be noticed.
/// loom also checks the accesses to the value.
fn add_one(value: &mut u32) {
    let seen = *value;
    thread::yield_now();
    *value = seen + 1;
}

/// Explores the schedules of `model` with loom: all, or those with at most `preemptions_max`
/// preemptions.
fn check(preemptions_max: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions_max;
    builder.check(model);
}

#[test]
fn two_threads_own_it_in_turn() {
    check(None, || {
        let lock = Arc::new(Lock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || add_one(&mut other.lock()));
        add_one(&mut lock.lock());
        thread.join().expect("no panic");
        assert_eq!(*lock.lock(), 2);
        assert!(!lock.is_locked());
    });
}

#[test]
fn locking_twice_in_a_row_loses_no_wake() {
    check(Some(3), || {
        let lock = Arc::new(Lock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || (0..2).for_each(|_| add_one(&mut other.lock())));
        (0..2).for_each(|_| add_one(&mut lock.lock()));
        thread.join().expect("no panic");
        assert_eq!(*lock.lock(), 4);
    });
}

/// Checks a lock with one owner and two waiting threads: the first one woken must remember that
/// another still sleeps.
#[test]
fn of_two_sleepers_both_are_woken() {
    check(Some(3), || {
        let lock = Arc::new(Lock::new(0));
        let threads = [0, 1].map(|_| {
            let lock = Arc::clone(&lock);
            thread::spawn(move || add_one(&mut lock.lock()))
        });
        add_one(&mut lock.lock());
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(*lock.lock(), 3);
    });
}

#[test]
fn trying_never_waits_and_never_shares() {
    check(None, || {
        let lock = Arc::new(Lock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || match other.try_lock() {
            Some(mut guard) => {
                add_one(&mut guard);
                1
            }
            None => 0,
        });
        add_one(&mut lock.lock());
        let tried = thread.join().expect("no panic");
        assert_eq!(*lock.lock(), 1 + tried);
    });
}

/// Checks that no wake-up is lost if a thread that stops waiting for a busy lock was woken in place
/// of another thread.
#[test]
fn a_busy_holder_is_given_up_and_nobody_sleeps_for_ever() {
    check(Some(3), || {
        let lock = Arc::new(Lock::new(0));
        let [patient, other] = [0, 1].map(|_| Arc::clone(&lock));
        let patient = thread::spawn(move || add_one(&mut patient.lock()));
        let other = thread::spawn(move || match other.lock_unless_busy() {
            Some(mut guard) => {
                add_one(&mut guard);
                1
            }
            None => 0,
        });
        let mut guard = lock.lock();
        Guard::mark_busy(&guard);
        add_one(&mut guard);
        drop(guard);
        patient.join().expect("no panic");
        let taken = other.join().expect("no panic");
        assert_eq!(*lock.lock(), 2 + taken);
    });
}

/// Checks that a thread that sleeps until a lock is free gives up when the holder, which does not
/// unlock, marks the lock as busy.
#[test]
fn who_sleeps_on_a_holder_that_becomes_busy_gives_up() {
    check(None, || {
        let lock = Arc::new(Lock::new(0));
        let other = Arc::clone(&lock);
        let guard = lock.lock();
        let thread = thread::spawn(move || other.lock_unless_busy().is_none());
        Guard::mark_busy(&guard);
        assert!(thread.join().expect("no panic"));
    });
}
