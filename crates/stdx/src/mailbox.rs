//! A bounded queue with many sending threads and one consumer, which may sleep elsewhere (in its
//! event loop).
//!
//! Sending to a running consumer costs a push and a fence. Sending to a sleeping consumer also
//! costs one call of its waker (for example an eventfd write), by the first sender only.
//!
//! ```text
//!   consumer                               sender
//!   asleep = true                          push the message
//!   fence SeqCst              ◀─pair─▶     fence SeqCst
//!   queue empty? ─no─▶ stay awake          asleep? ─yes─▶ swap to false; if it was true: wake
//!   sleep … wake … asleep = false
//! ```
//! This is Dekker's pattern: the consumer and the sender each write, fence, then read the variable
//! that the other wrote. In the total order of SeqCst fences one of the two fences is first, and
//! the read after the second fence sees the write before the first. So either the consumer sees the
//! message and stays awake, or the sender sees `asleep` and wakes the consumer. Both may happen
//! (then the wake-up is spurious), but at least one does happen. Invariant: only the consumer sets
//! `asleep`, once per sleep, and exactly one swap clears it. So a sleep costs at most one call of
//! the waker.
//!
//! The proof needs only the fences. It assumes of the queue that a message can be received as soon
//! as its push has returned, and that it is received only once. tests/loom_mailbox.rs proves the
//! protocol under loom, over the small queue of the module `modelled`, which counts its messages
//! with relaxed atomics. The test does not prove crossbeam's `ArrayQueue`, which does not support
//! loom. The random schedules of tests/shuttle_mailbox.rs run over the same small queue. The
//! capacity is fixed at creation. A full mailbox returns the message to the sender, which decides
//! what to do.

use crate::sync::Ordering::{AcqRel, Relaxed, SeqCst};
use crate::sync::{AtomicBool, fence};
use crossbeam_utils::CachePadded;

#[cfg(not(any(loom, shuttle)))]
use crossbeam_queue::ArrayQueue;
#[cfg(any(loom, shuttle))]
use modelled::ArrayQueue;

/// A bounded queue with many sending threads and one consumer. It is shared by reference or `Arc`.
/// The callers agree which thread is the consumer; only that thread may call the consumer's
/// methods.
pub struct Mailbox<T> {
    queue: ArrayQueue<T>,
    /// True while the consumer sleeps or is about to sleep and no sender has called its waker for
    /// this sleep.
    asleep: CachePadded<AtomicBool>,
    waker: Box<dyn Fn() + Send + Sync>,
}

impl<T> Mailbox<T> {
    /// Creates an empty mailbox for `capacity` messages (at least 1) and allocates all their
    /// memory. Sending threads call `waker` to wake the consumer. If the consumer does not sleep
    /// yet, the call must end its next sleep.
    pub fn new(capacity: usize, waker: impl Fn() + Send + Sync + 'static) -> Self {
        Self {
            queue: ArrayQueue::new(capacity),
            asleep: CachePadded::new(AtomicBool::new(false)),
            waker: Box::new(waker),
        }
    }

    /// Queues the message and wakes the consumer if it sleeps. Any thread may call this method.
    /// O(1), never waits.
    ///
    /// # Errors
    /// Returns the message if the mailbox is full. The consumer is then already awake or being
    /// woken.
    pub fn send(&self, message: T) -> Result<(), T> {
        self.queue.push(message)?;
        // SeqCst fence between the push and the read of `asleep`: pairs with the fence in
        // `prepare_sleep`.
        fence(SeqCst);
        // The relaxed load is first: while the consumer runs, the cache line stays shared among the
        // senders. Swap, AcqRel: only one of several senders gets `true`. The swap pairs with
        // itself and with the consumer's swaps, so that the thread that clears `asleep` has seen it
        // set.
        if self.asleep.load(Relaxed) && self.asleep.swap(false, AcqRel) {
            (self.waker)();
        }
        Ok(())
    }

    /// Takes the oldest message out of the mailbox; `None` if there is none. Only the consumer may
    /// call this method. O(1).
    pub fn receive(&self) -> Option<T> {
        self.queue.pop()
    }

    /// Sets `asleep`, then checks again for messages. Returns true if there are none: the consumer
    /// may sleep, and senders call the waker from now on. Returns false if there are messages: the
    /// consumer stays awake. Only the consumer may call this method.
    #[must_use = "sleeping on `false` may be sleeping for ever"]
    pub fn prepare_sleep(&self) -> bool {
        // Swap, AcqRel: orders this setting of `asleep` after a sender's swap that cleared it for
        // the previous sleep; pairs with the swap in `send`.
        self.asleep.swap(true, AcqRel);
        // SeqCst fence between the setting of `asleep` and the check of the queue: pairs with the
        // fence in `send`.
        fence(SeqCst);
        let may_sleep = self.queue.is_empty();
        if !may_sleep {
            self.awake();
        }
        may_sleep
    }

    /// Clears `asleep` after the consumer's sleep, for whatever reason the sleep ended. Senders
    /// then no longer call the waker. Only the consumer may call this method.
    pub fn awake(&self) {
        // Swap, AcqRel: orders the end of this sleep after any sender's swap; pairs with the swap
        // in `send`. A sender whose swap came first has called the waker or is about to. That is
        // harmless: it ends the next sleep early.
        self.asleep.swap(false, AcqRel);
    }

    /// Returns the number of messages in the mailbox. Other threads may change it at any time.
    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Returns true if no message is in the mailbox. Other threads may change this at any time.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Returns the maximum number of messages in the mailbox.
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }
}

/// The queue used under loom and shuttle. A mutex protects the messages, but emptiness is read from
/// relaxed counters. So the mutex gives the sleep protocol no ordering that the real queue might
/// lack.
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

    /// Creates a mailbox and a counter of the calls to its waker.
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
