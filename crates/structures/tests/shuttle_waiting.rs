//! Lock, inbox and claim under random schedules (shuttle), with more threads and rounds than loom
//! can explore (`loom_lock.rs`, `loom_waiting.rs`).
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p structures --test shuttle_waiting`
#![cfg(shuttle)]

use std::sync::Arc;

use shuttle::thread;
use stdx::futex::FutexWord;
use stdx::sync::AtomicU32;
use stdx::sync::Ordering::{Acquire, Relaxed, Release};
use structures::claim::Claim;
use structures::inbox::Inbox;
use structures::lock::Lock;

const THREADS: u32 = 4;
const ROUNDS: u32 = 6;

fn check(model: fn()) {
    shuttle::check_random(model, 1_000);
    shuttle::check_pct(model, 1_000, 3);
}

#[test]
fn an_owner_of_the_lock_is_alone_and_everybody_gets_it() {
    check(|| {
        let shared = Arc::new((Lock::new(0), AtomicU32::new(0)));
        let worker = |_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for _ in 0..ROUNDS {
                    let mut count = shared.0.lock();
                    assert_eq!(shared.1.swap(1, Relaxed), 0, "two owners at a time");
                    *count += 1;
                    shared.1.store(0, Relaxed);
                }
            })
        };
        let workers: Vec<_> = (0..THREADS).map(worker).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("it does not panic"));
        assert_eq!(*shared.0.lock(), THREADS * ROUNDS);
    });
}

#[test]
fn what_is_left_in_an_inbox_is_taken_once_and_its_owner_is_told() {
    check(|| {
        let shared = Arc::new((Inbox::<Vec<u32>>::default(), FutexWord::new(0)));
        let sender = |number: u32| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for at in 0..ROUNDS {
                    if shared.0.leave(|list| list.push(number * ROUNDS + at)) {
                        shared.1.store(1, Release);
                        shared.1.wake_one();
                    }
                }
            })
        };
        let senders: Vec<_> = (0..THREADS).map(sender).collect();
        let mut taken = Vec::new();
        while taken.len() < (THREADS * ROUNDS) as usize {
            // Sleeps until it is notified: an inbox that is filled without a notification is a
            // deadlock.
            while shared.1.load(Acquire) == 0 {
                shared.1.wait(0);
            }
            shared.1.store(0, Relaxed);
            taken.extend(shared.0.take().unwrap_or_default());
        }
        senders.into_iter().for_each(|sender| sender.join().expect("it does not panic"));
        taken.sort_unstable();
        assert_eq!(taken, (0..THREADS * ROUNDS).collect::<Vec<_>>());
    });
}

#[test]
fn of_many_that_want_to_end_a_wait_one_does() {
    check(|| {
        let shared = Arc::new((Claim::default(), AtomicU32::new(0)));
        let worker = |number: u32| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                let count = || shared.1.fetch_add(1, Relaxed);
                let ended = match number % 3 {
                    0 => shared.0.end() && count() == 0,
                    1 => shared.0.end_if(|| count() == 0),
                    _ => shared.0.end_if(|| false),
                };
                assert!(!ended || shared.0.is_over());
            })
        };
        let workers: Vec<_> = (0..THREADS + 2).map(worker).collect();
        workers.into_iter().for_each(|worker| worker.join().expect("it does not panic"));
        assert_eq!(shared.1.load(Relaxed), 1, "it ended once");
    });
}
