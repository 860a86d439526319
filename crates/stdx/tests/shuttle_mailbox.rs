//! A test of the mailbox under random schedules (shuttle): every message arrives once, and the
//! consumer never stays asleep while there is a message. There are more senders and messages than
//! loom can explore (`loom_mailbox.rs`).
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p stdx --test shuttle_mailbox`
#![cfg(shuttle)]

use std::sync::Arc;

use shuttle::sync::{Condvar, Mutex};
use shuttle::thread;
use stdx::mailbox::Mailbox;

const SENDERS: u32 = 3;
const EACH: u32 = 8;

/// A stand-in for the consumer's eventfd, on which the consumer sleeps.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().expect("a run that panics has ended") = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().expect("a run that panics has ended");
        while !*rung {
            rung = self.changed.wait(rung).expect("a run that panics has ended");
        }
        *rung = false;
    }
}

fn model() {
    let bell = Arc::new(Bell::default());
    let waker = Arc::clone(&bell);
    let mailbox = Arc::new(Mailbox::new(4, move || waker.ring()));
    let sender = |number: u32| {
        let mailbox = Arc::clone(&mailbox);
        thread::spawn(move || {
            for message in number * EACH..(number + 1) * EACH {
                while mailbox.send(message).is_err() {
                    thread::yield_now();
                }
            }
        })
    };
    let senders: Vec<_> = (0..SENDERS).map(sender).collect();
    let mut received = Vec::new();
    while received.len() < (SENDERS * EACH) as usize {
        match mailbox.receive() {
            Some(message) => received.push(message),
            // shuttle reports a lost wake-up as a deadlock.
            None if mailbox.prepare_sleep() => {
                bell.wait();
                mailbox.awake();
            }
            None => {}
        }
    }
    senders.into_iter().for_each(|sender| sender.join().expect("it does not panic"));
    received.sort_unstable();
    assert_eq!(received, (0..SENDERS * EACH).collect::<Vec<_>>());
}

#[test]
fn nothing_is_lost_or_left_beside_a_sleeper() {
    shuttle::check_random(model, 1_000);
    shuttle::check_pct(model, 1_000, 3);
}
