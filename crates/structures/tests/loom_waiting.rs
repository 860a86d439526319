//! A proof, under every interleaving and every allowed stale read (loom), of the way in which a
//! blocked client gets its reply. A client is either served, or its wait times out, or its
//! connection ends. It therefore gets at most one reply, and no element is lost. A reply in the
//! inbox of a sleeping thread wakes that thread; loom would report a thread that sleeps forever as
//! a deadlock.
//!
//! The parts of the server: `BlockedClient::over` is a [`Claim`], and a thread's port has an
//! [`Inbox`] and a [`Mailbox`], through which a message announces the reply. An element is under
//! the lock of its shard.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p structures --test loom_waiting`
#![cfg(loom)]

use loom::sync::atomic::AtomicBool;
use loom::sync::atomic::Ordering::Relaxed;
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use stdx::Mailbox;
use structures::claim::Claim;
use structures::inbox::Inbox;
use structures::lock::Lock;

/// The object on which the thread that owns the mailbox sleeps: a model of an eventfd's counter.
#[derive(Default)]
struct Signal {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    fn raise(&self) {
        *self.raised.lock().expect("no panic") = true;
        self.changed.notify_one();
    }

    fn sleep(&self) {
        let mut raised = self.raised.lock().expect("no panic");
        while !*raised {
            raised = self.changed.wait(raised).expect("no panic");
        }
        *raised = false;
    }
}

/// A model of a server thread's port: the mailbox and the inbox through which others reach it.
struct Port {
    mailbox: Mailbox<()>,
    inbox: Inbox<Vec<u32>>,
    signal: Arc<Signal>,
}

impl Port {
    fn new(mailbox_capacity: usize) -> Self {
        let signal = Arc::new(Signal::default());
        let waker = Arc::clone(&signal);
        let mailbox = Mailbox::new(mailbox_capacity, move || waker.raise());
        Self { mailbox, inbox: Inbox::default(), signal }
    }

    fn deliver(&self, reply: u32) {
        if self.inbox.leave(|replies| replies.push(reply)) {
            // A full mailbox belongs to a thread that is awake: it checks the flag each turn.
            let _ = self.mailbox.send(());
        }
    }

    /// Runs one turn (a pass of the event loop) of the thread that owns the port: sleeps if it may,
    /// empties the mailbox, takes the inbox's items.
    fn turn(&self) -> Vec<u32> {
        if self.mailbox.prepare_sleep() {
            self.signal.sleep();
        }
        self.mailbox.awake();
        while self.mailbox.receive().is_some() {}
        self.inbox.take().unwrap_or_default()
    }

    /// Returns the replies that are still in the inbox when all threads have ended.
    fn rest(&self) -> Vec<u32> {
        self.inbox.take().unwrap_or_default()
    }

    /// Runs turns (passes of the event loop) until `count` replies have come, and returns them.
    fn await_replies(&self, count: usize) -> Vec<u32> {
        let mut replies = Vec::new();
        while replies.len() < count {
            replies.extend(self.turn());
        }
        replies
    }
}

/// A list of one element under its shard's lock, and a client that waits for it on another thread.
struct Waiting {
    element: Lock<Option<u32>>,
    over: Claim,
    port: Port,
}

impl Waiting {
    fn new() -> Arc<Self> {
        Arc::new(Self { element: Lock::new(None), over: Claim::default(), port: Port::new(8) })
    }

    /// Pushes the element and serves the client, as a writer does, all under the shard's lock.
    fn push(&self, element: u32) {
        let mut list = self.element.lock();
        *list = Some(element);
        self.over.end_if(|| match list.take() {
            Some(element) => {
                self.port.deliver(element);
                true
            }
            None => false,
        });
    }
}

fn check(preemptions_max: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = preemptions_max;
    builder.check(model);
}

#[test]
fn serving_and_the_timeout_exclude_each_other() {
    check(None, || {
        let waiting = Waiting::new();
        let writer = {
            let waiting = Arc::clone(&waiting);
            thread::spawn(move || waiting.push(7))
        };
        // The client's own thread: the timeout has passed. If the client was served at that moment,
        // the reply is on its way.
        let replies = match waiting.over.end() {
            true => Vec::new(),
            false => waiting.port.await_replies(1),
        };
        writer.join().expect("no panic");
        let left = waiting.element.lock().take();
        assert_eq!(replies.iter().copied().chain(left).collect::<Vec<_>>(), [7], "once, and not lost");
        assert!(waiting.port.rest().is_empty(), "no reply behind the empty one");
    });
}

#[test]
fn two_writers_serve_a_client_once() {
    check(Some(3), || {
        let waiting = Waiting::new();
        let serve = |element| {
            let waiting = Arc::clone(&waiting);
            thread::spawn(move || {
                // Two writers with a key each, and a client that waits for both keys: only the
                // claim excludes the writers.
                waiting.over.end_if(|| {
                    waiting.port.deliver(element);
                    true
                })
            })
        };
        let writers = [serve(1), serve(2)];
        let replies = waiting.port.await_replies(1);
        let served = writers.map(|writer| writer.join().expect("no panic"));
        assert_eq!(served.iter().filter(|&&served| served).count(), 1);
        assert_eq!(replies, [if served[0] { 1 } else { 2 }]);
        assert!(waiting.port.rest().is_empty(), "nothing twice");
        assert!(waiting.over.is_over());
    });
}

#[test]
fn a_client_that_waits_on_is_served_by_the_next() {
    check(Some(3), || {
        let waiting = Waiting::new();
        let vain = {
            let waiting = Arc::clone(&waiting);
            thread::spawn(move || waiting.over.end_if(|| false))
        };
        let writer = {
            let waiting = Arc::clone(&waiting);
            thread::spawn(move || waiting.push(7))
        };
        assert_eq!(waiting.port.await_replies(1), [7]);
        assert!(!vain.join().expect("no panic"));
        writer.join().expect("no panic");
    });
}

#[test]
fn a_client_that_is_killed_does_not_wait_whichever_comes_first() {
    check(None, || {
        let (killed, waiter) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let killer = {
            let (killed, waiter) = (Arc::clone(&killed), Arc::clone(&waiter));
            thread::spawn(move || {
                killed.store(true, Relaxed);
                let waiter: Option<Arc<Claim>> = waiter.lock().expect("no panic").clone();
                waiter.is_some_and(|over| over.end())
            })
        };
        // The client begins to wait: it publishes its claim, then checks if it was killed.
        let over = Arc::new(Claim::default());
        *waiter.lock().expect("no panic") = Some(Arc::clone(&over));
        let ended = killed.load(Relaxed) && over.end();
        assert!(ended ^ killer.join().expect("no panic"), "one of them ends it");
        assert!(over.is_over());
    });
}

#[test]
fn replies_of_two_threads_reach_a_sleeping_owner() {
    check(Some(3), || {
        let port = Arc::new(Port::new(8));
        let deliver = |reply| {
            let port = Arc::clone(&port);
            thread::spawn(move || port.deliver(reply))
        };
        let threads = [deliver(1), deliver(2)];
        let mut replies = port.await_replies(2);
        replies.sort_unstable();
        assert_eq!(replies, [1, 2]);
        threads.map(|thread| thread.join().expect("no panic"));
    });
}

#[test]
fn a_reply_beside_a_full_mailbox_is_seen() {
    check(Some(3), || {
        let port = Arc::new(Port::new(1));
        let other = {
            let port = Arc::clone(&port);
            thread::spawn(move || {
                // If the mailbox is full, the owner has been woken, or is awake.
                let _ = port.mailbox.send(());
                port.deliver(1);
            })
        };
        assert_eq!(port.await_replies(1), [1]);
        other.join().expect("no panic");
    });
}
