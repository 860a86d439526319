//! A proof of the mailbox's sleep protocol with loom, under every interleaving and every allowed
//! stale read. No message is lost or received twice. The consumer does not stay asleep while there
//! is a message; loom would report that as a deadlock. A sleep costs at most one call of the waker.
//!
//! The queue under test is that of the module `modelled` in mailbox.rs. crossbeam's queue is not
//! part of the proof.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p stdx --test loom_mailbox`
#![cfg(loom)]

use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use stdx::Mailbox;

/// A stand-in for the consumer's eventfd, on which the consumer sleeps.
#[derive(Default)]
struct Signal {
    raised: Mutex<Raised>,
    changed: Condvar,
}

#[derive(Default)]
struct Raised {
    pending: bool,
    calls: usize,
}

impl Signal {
    fn raise(&self) {
        let mut raised = self.raised.lock().expect("no panic");
        raised.pending = true;
        raised.calls += 1;
        self.changed.notify_one();
    }

    fn sleep(&self) {
        let mut raised = self.raised.lock().expect("no panic");
        while !raised.pending {
            raised = self.changed.wait(raised).expect("no panic");
        }
        raised.pending = false;
    }

    fn calls(&self) -> usize {
        self.raised.lock().expect("no panic").calls
    }
}

/// Receives `messages` messages and sleeps if there are none. Returns the messages and the number
/// of calls to `prepare_sleep`.
fn consume(mailbox: &Mailbox<u32>, signal: &Signal, messages: usize) -> (Vec<u32>, usize) {
    let (mut got, mut announced) = (Vec::new(), 0);
    while got.len() < messages {
        match mailbox.receive() {
            Some(message) => got.push(message),
            None => {
                announced += 1;
                if mailbox.prepare_sleep() {
                    signal.sleep();
                    mailbox.awake();
                }
            }
        }
    }
    assert_eq!(mailbox.receive(), None, "nothing twice");
    (got, announced)
}

/// Runs the model with one sending thread for each list of messages, and the consumer on this
/// thread.
fn check(senders: &'static [&'static [u32]], preemptions_max: Option<usize>) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions_max;
    builder.check(move || {
        let signal = Arc::new(Signal::default());
        let waker = Arc::clone(&signal);
        let mailbox = Arc::new(Mailbox::new(8, move || waker.raise()));
        let threads: Vec<_> = senders
            .iter()
            .map(|messages| {
                let mailbox = Arc::clone(&mailbox);
                thread::spawn(move || {
                    messages.iter().for_each(|&message| mailbox.send(message).expect("room"))
                })
            })
            .collect();
        let expected: usize = senders.iter().map(|messages| messages.len()).sum();
        let (mut got, announced) = consume(&mailbox, &signal, expected);
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert!(signal.calls() <= announced, "{} wakes for {announced} sleeps", signal.calls());
        for messages in senders {
            let of_sender = got.iter().filter(|message| messages.contains(message));
            assert!(of_sender.eq(messages.iter()), "each sender's messages in its order");
        }
        got.sort_unstable();
        assert!(got.iter().eq(senders.iter().flat_map(|messages| messages.iter())), "each exactly once");
    });
}

#[test]
fn one_sender_two_messages() {
    check(&[&[1, 2]], None);
}

#[test]
fn two_senders_wake_a_sleeper_once() {
    check(&[&[1], &[2]], Some(3));
}

#[test]
fn two_senders_two_messages() {
    check(&[&[1, 2], &[3]], Some(2));
}
