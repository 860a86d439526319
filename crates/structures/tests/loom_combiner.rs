//! A proof of the combiner and the watermark under every interleaving and every allowed stale read
//! (loom). All published work is done, and a thread that waits for a number is woken.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p structures --test loom_combiner`
#![cfg(loom)]

use loom::sync::atomic::Ordering::SeqCst;
use loom::thread;
use std::sync::Arc;
use stdx::futex::FutexWord;
use structures::combiner::Combiner;
use structures::lock::Lock;
use structures::watermark::Watermark;

/// Checks that all published items are collected if two threads each publish one and run the
/// combiner.
#[test]
fn nothing_is_left_undone() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((Combiner::new(0), [Lock::new(0), Lock::new(0)]));
        let act = |thread: usize, (combiner, left): &(Combiner<usize>, [Lock<usize>; 2])| {
            *left[thread].lock() = 1;
            combiner.run(|sum| left.iter().for_each(|left| *sum += std::mem::take(&mut *left.lock())));
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || act(1, &other));
        act(0, &shared);
        thread.join().expect("no panic");
        assert_eq!(shared.0.with(|sum| *sum, |_| unreachable!("nothing is requested")), 2);
    });
}

/// Checks that work requested by one thread is done by another that holds the state for other work.
#[test]
fn nothing_is_left_undone_beside_other_work() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let shared = Arc::new((Combiner::new(0), Lock::new(0)));
        let collect = |shared: &(Combiner<usize>, Lock<usize>), sum: &mut usize| {
            *sum += std::mem::take(&mut *shared.1.lock());
        };
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            *other.1.lock() = 1;
            other.0.run(|sum| collect(&other, sum));
        });
        shared.0.with(|_| (), |sum| collect(&shared, sum));
        thread.join().expect("no panic");
        assert_eq!(shared.0.with(|sum| *sum, |_| unreachable!("nothing is requested")), 1);
    });
}

/// Checks that a thread that waits for a number of the watermark is woken, or finds the number
/// reached.
#[test]
fn no_wake_is_lost() {
    loom::model(|| {
        let shared = Arc::new((Watermark::new(1, 0), FutexWord::new(0)));
        let other = Arc::clone(&shared);
        let thread = thread::spawn(move || {
            for value in [1, 2] {
                other.0.set(value, |_| {
                    other.1.store(1, SeqCst);
                    other.1.wake_one();
                });
            }
        });
        let (watermark, word) = &*shared;
        while watermark.wait_for(0, 2) {
            word.wait(0);
            word.store(0, SeqCst);
        }
        thread.join().expect("no panic");
        assert_eq!(watermark.get(), 2);
    });
}
