//! A bounded queue from many threads to one, whose consumer may sleep
//! elsewhere (in its event loop).
//!
//! Sending to a running consumer costs a push and a fence. Sending to a sleeping one costs one call
//! of its waker (one eventfd write, say), by the first sender only.
//!
//! ```text
//!   consumer                               sender
//!   asleep = true                          push the message
//!   fence SeqCst              ◀─pair─▶     fence SeqCst
//!   queue empty? ─no─▶ stay awake          asleep? ─yes─▶ swap to false; who got `true` wakes
//!   sleep … wake … asleep = false
//! ```
//! This is Dekker's pattern: each side writes, fences, then reads what the other wrote. In the
//! single order of SeqCst fences one of the two fences comes first, and the other side's read then
//! sees the write before it: either the consumer sees the message and stays awake, or the sender
//! sees the sleeper and wakes it. Both may happen (then the wake is spurious), neither cannot.
//! Invariant: `asleep` is set by the consumer only, once a sleep, and each setting is taken back by
//! exactly one swap: so a sleep costs at most one call of the waker.
//!
//! The fences alone carry the proof: nothing is asked of the queue but that a message is there once
//! its push returned and is handed out once. tests/loom_mailbox.rs proves the protocol under loom
//! over a small queue of its own, whose emptiness is told by relaxed counters. It does not prove
//! crossbeam's `ArrayQueue`, which is not written for loom. Random schedules
//! (shuttle) run over that queue as well.
//! Capacity: fixed at the start. A full mailbox refuses, and the sender decides what that means.

use crate::sync::Ordering::{AcqRel, Relaxed, SeqCst};
use crate::sync::{AtomicBool, fence};
use crossbeam_utils::CachePadded;

#[cfg(not(any(loom, shuttle)))]
use crossbeam_queue::ArrayQueue;
#[cfg(any(loom, shuttle))]
use modelled::ArrayQueue;

/// A bounded queue from many threads to one. Shared by reference or `Arc`; which thread consumes is
/// the callers' agreement, and the methods of the consumer say so.
pub struct Mailbox<T> {
    queue: ArrayQueue<T>,
    /// The consumer sleeps or is about to, and nobody has yet called its waker for this sleep.
    asleep: CachePadded<AtomicBool>,
    waker: Box<dyn Fn() + Send + Sync>,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox for `capacity` messages (at least 1), and allocates all their
    /// memory. `waker` must end the consumer's next or current sleep; it runs on sending threads.
    pub fn new(capacity: usize, waker: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            queue: ArrayQueue::new(capacity),
            asleep: CachePadded::new(AtomicBool::new(false)),
            waker: Box::new(waker),
        }
    }

    /// Queues the message, from any thread, and wakes the consumer if it sleeps. O(1), never
    /// waits.
    ///
    /// # Errors
    /// The message if the mailbox is full. The consumer is then already awake or being woken.
    pub fn send(&self, message: T) -> Result<(), T> {
        self.queue.push(message)?;
        // SeqCst fence between our push and our look: pairs with the fence in `prepare_sleep`.
        fence(SeqCst);
        // The plain look first: a running consumer's line stays shared among the senders.
        // Swap, AcqRel: of several senders one gets `true`; pairs with itself and with the
        // consumer's swap, so that whoever takes the announcement back has seen it made.
        if self.asleep.load(Relaxed) && self.asleep.swap(false, AcqRel) {
            (self.waker)();
        }
        Ok(())
    }

    /// Takes the oldest message, if there is one; for the consumer. O(1).
    pub fn receive(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Announces that the consumer is going to sleep, and looks once more for messages. Returns
    /// true if it may sleep: senders call the waker from now on. Returns false if there are
    /// messages: it counts as awake.
    #[must_use = "sleeping on `false` may be sleeping for ever"]
    pub fn prepare_sleep(&self) -> bool {
        // Swap, AcqRel: puts this announcement after what any sender did to the last one; pairs
        // with the swap in `send`.
        self.asleep.swap(true, AcqRel);
        // SeqCst fence between our announcement and our look: pairs with the fence in `send`.
        fence(SeqCst);
        let may_sleep = self.queue.is_empty();
        if !may_sleep {
            self.awake();
        }
        may_sleep
    }

    /// Announces that the consumer no longer sleeps, whatever ended the sleep; senders stop waking
    /// it.
    pub fn awake(&self) {
        // Swap, AcqRel: puts the end of this sleep after what any sender did to it; pairs with the
        // swap in `send`. A sender that took the announcement just before has called the waker or
        // is about to, and that is harmless: its signal ends the next sleep early.
        self.asleep.swap(false, AcqRel);
    }

    /// Returns the approximate number of messages: it may have changed already.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if there was no message a moment ago.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the number of messages that fit.
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }
}

/// The queue that the model uses: one mutex for the messages, and emptiness from relaxed counters,
/// so that the mutex lends the sleep protocol no ordering that the real queue might not have.
#[cfg(any(loom, shuttle))]
mod modelled {
    use crate::sync::AtomicUsize;
    use crate::sync::Ordering::Relaxed;
    #[cfg(loom)]
    use loom::sync::Mutex;
    #[cfg(shuttle)]
    use shuttle::sync::Mutex;
    use std::collections::VecDeque;

    pub struct ArrayQueue<T> {
        messages: Mutex<VecDeque<T>>,
        capacity: usize,
        pushed: AtomicUsize,
        popped: AtomicUsize,
    }

    impl<T> ArrayQueue<T> {
        pub fn new(capacity: usize) -> Self {
            Self {
                messages: Mutex::new(VecDeque::new()),
                capacity,
                pushed: AtomicUsize::new(0),
                popped: AtomicUsize::new(0),
            }
        }

        pub fn push(&self, message: T) -> Result<(), T> {
            let mut messages = self.messages.lock().expect("a model that panics has ended");
            if messages.len() == self.capacity {
                return Err(message);
            }
            messages.push_back(message);
            drop(messages);
            self.pushed.fetch_add(1, Relaxed);
            Ok(())
        }

        pub fn pop(&self) -> Option<T> {
            if self.is_empty() {
                return None;
            }
            let message = self.messages.lock().expect("a model that panics has ended").pop_front();
            self.popped.fetch_add(usize::from(message.is_some()), Relaxed);
            message
        }

        pub fn len(&self) -> usize {
            self.pushed.load(Relaxed).wrapping_sub(self.popped.load(Relaxed))
        }

        pub fn is_empty(&self) -> bool {
            self.len() == 0
        }

        pub fn capacity(&self) -> usize {
            self.capacity
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::Mailbox;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    /// Creates a mailbox and a counter of the calls of its waker.
    fn mailbox(capacity: usize) -> (Mailbox<u32>, Arc<AtomicUsize>) {
        let wakes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&wakes);
        let waker = move || {
            counted.fetch_add(1, Relaxed);
        };
        (Mailbox::new(capacity, waker), wakes)
    }

    #[test]
    fn messages_arrive_in_the_order_sent() {
        let (mailbox, wakes) = mailbox(4);
        (0..4).for_each(|n| mailbox.send(n).expect("room"));
        assert_eq!(std::iter::from_fn(|| mailbox.receive()).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(wakes.load(Relaxed), 0, "a running consumer is not woken");
    }

    #[test]
    fn a_full_mailbox_gives_the_message_back() {
        let (mailbox, _) = mailbox(1);
        assert_eq!(mailbox.send(1), Ok(()));
        assert_eq!(mailbox.send(2), Err(2));
        assert_eq!((mailbox.len(), mailbox.capacity()), (1, 1));
    }

    #[test]
    fn a_sleeping_consumer_is_woken_once() {
        let (mailbox, wakes) = mailbox(8);
        assert!(mailbox.prepare_sleep());
        (0..3).for_each(|n| mailbox.send(n).expect("room"));
        assert_eq!(wakes.load(Relaxed), 1);
        mailbox.awake();
        while mailbox.receive().is_some() {}
        assert!(mailbox.prepare_sleep());
        mailbox.send(9).expect("room");
        assert_eq!(wakes.load(Relaxed), 2);
    }

    #[test]
    fn a_consumer_with_messages_does_not_sleep() {
        let (mailbox, wakes) = mailbox(8);
        mailbox.send(1).expect("room");
        assert!(!mailbox.prepare_sleep());
        mailbox.send(2).expect("room");
        assert_eq!(wakes.load(Relaxed), 0, "it said that it is awake");
    }

    #[test]
    fn a_consumer_woken_by_something_else_is_not_woken_again() {
        let (mailbox, wakes) = mailbox(8);
        assert!(mailbox.prepare_sleep());
        mailbox.awake();
        mailbox.send(1).expect("room");
        assert_eq!(wakes.load(Relaxed), 0);
    }

    #[test]
    fn nothing_is_lost_between_threads_that_really_sleep() {
        const SENDERS: u32 = 4;
        const EACH: u32 = 5_000;
        let consumer = std::thread::current();
        let mailbox = Mailbox::new(16, move || consumer.unpark());
        let sum = std::thread::scope(|scope| {
            for _ in 0..SENDERS {
                scope.spawn(|| {
                    for n in 0..EACH {
                        while mailbox.send(n).is_err() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
            let (mut got, mut sum) = (0, 0_u64);
            while got < SENDERS * EACH {
                match mailbox.receive() {
                    Some(n) => (got, sum) = (got + 1, sum + u64::from(n)),
                    None => {
                        if mailbox.prepare_sleep() {
                            std::thread::park();
                            mailbox.awake();
                        }
                    }
                }
            }
            sum
        });
        assert_eq!(sum, u64::from(SENDERS) * u64::from(EACH) * u64::from(EACH - 1) / 2);
        assert!(mailbox.is_empty());
    }
}
