//! The simulated kernel of a run. It has a poll for each thread, in which the thread sleeps; polls
//! replace the event loop's poll and eventfd. It also holds the bytes that threads have sent and
//! the network has not taken.
//!
//! A thread of the engine sleeps until an event, a wake-up or its own timeout ends the sleep. So a
//! lost wake-up leaves the thread asleep. The network notices this: all threads sleep while a
//! client still waits. [`Kernel::is_quiet`] is exact, because a thread that wakes a sleeping thread
//! or passes an event to it counts it as busy in the same step.

use std::sync::Mutex as PlainMutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use shuttle::sync::{Condvar, Mutex};
use std::sync::Arc;
use stdx::mailbox::Mailbox;

/// The number of a connection, never used twice in a run.
pub(super) type LinkId = u32;

/// A message in the mailbox of a simulated thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// To an I/O thread: take the messages from the inboxes of the engine.
    Delivered,
    /// To an I/O thread: check the sessions whose requests are held back by a pause or a full
    /// change log again.
    Resume,
    /// To an I/O thread: run a turn, which evicts keys while the memory limit is exceeded.
    EnforceMemory,
    /// To the thread that saves (the saver): save a snapshot.
    Save,
    /// To the thread that saves (the saver): rewrite the append-only file.
    Rewrite,
    /// To the thread that saves (the saver): rewrite the append-only file if a rewrite is scheduled
    /// or needed.
    RewriteIfDue,
    /// To the thread that saves (the saver): change an option of the append-only file.
    ChangeOptions,
    /// To any thread: end.
    Stop,
}

/// An event that a thread's poll reports.
#[derive(Debug)]
pub(super) enum Event {
    /// A client has connected over this connection.
    Connected(LinkId),
    /// These bytes have arrived on this connection.
    Data(LinkId, Vec<u8>),
    /// This connection has ended.
    Closed(LinkId),
}

/// Bytes that a thread of the server has sent on one connection.
pub(super) struct Sent {
    pub link: LinkId,
    pub bytes: Vec<u8>,
    /// True if the thread has closed the connection after it sent these bytes.
    pub closed: bool,
}

/// The state of a simulated thread in its poll: awake, asleep until an event, or asleep with a
/// timeout. `Until` holds the timeout, in milliseconds of uptime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sleep {
    Awake,
    Until(Option<u64>),
}

#[derive(Debug)]
struct PollState {
    woken: bool,
    events: Vec<Event>,
    sleep: Sleep,
}

/// The number of threads that do not sleep, and the condition that wakes the network.
struct Wakeup {
    busy: AtomicUsize,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wakeup {
    fn ring(&self) {
        *self.rung.lock().expect("a run that panics has ended") = true;
        self.changed.notify_one();
    }
}

/// The poll of one thread: the replacement of an event loop's poll.
pub(super) struct Poll {
    state: Mutex<PollState>,
    changed: Condvar,
    bell: Arc<Wakeup>,
}

impl Poll {
    fn new(bell: Arc<Wakeup>) -> Self {
        let state = PollState { woken: false, events: Vec::new(), sleep: Sleep::Awake };
        Self { state: Mutex::new(state), changed: Condvar::new(), bell }
    }

    /// Wakes the thread if it sleeps; otherwise its next sleep ends at once.
    pub fn wake(&self) {
        self.change(|state| state.woken = true);
    }

    /// Passes an event to the thread, and wakes it if it sleeps.
    pub fn post(&self, event: Event) {
        self.change(|state| state.events.push(event));
    }

    fn change(&self, change: impl FnOnce(&mut PollState)) {
        let mut state = self.state.lock().expect("a run that panics has ended");
        change(&mut state);
        if state.sleep != Sleep::Awake {
            state.sleep = Sleep::Awake;
            self.bell.busy.fetch_add(1, Relaxed);
            self.changed.notify_one();
        }
    }

    /// Returns the available events. `may_sleep` decides what happens when there are none. `None`
    /// returns at once. `Some(None)` sleeps until an event or a wake-up. `Some(Some(ms))` sleeps at
    /// most until uptime `ms`, in milliseconds.
    pub fn wait(&self, may_sleep: Option<Option<u64>>) -> Vec<Event> {
        let mut state = self.state.lock().expect("a run that panics has ended");
        if let Some(deadline_ms) = may_sleep
            && !state.woken
            && state.events.is_empty()
        {
            state.sleep = Sleep::Until(deadline_ms);
            if self.bell.busy.fetch_sub(1, Relaxed) == 1 {
                self.bell.ring();
            }
            while state.sleep != Sleep::Awake {
                state = self.changed.wait(state).expect("a run that panics has ended");
            }
        }
        state.woken = false;
        std::mem::take(&mut state.events)
    }

    /// Returns the uptime in milliseconds at which the thread's timeout ends its sleep. Returns
    /// `None` if the thread is awake or has no timeout.
    pub fn deadline_ms(&self) -> Option<u64> {
        match self.state.lock().expect("a run that panics has ended").sleep {
            Sleep::Awake => None,
            Sleep::Until(deadline_ms) => deadline_ms,
        }
    }

    /// Ends the thread's sleep if its timeout has passed.
    pub fn expire(&self, uptime_ms: u64) {
        if self.deadline_ms().is_some_and(|deadline_ms| deadline_ms <= uptime_ms) {
            self.wake();
        }
    }
}

/// The mailbox and the poll of a simulated thread.
pub(super) struct Port {
    pub mailbox: Mailbox<Message>,
    pub poll: Arc<Poll>,
}

/// The simulated kernel of a run: the polls of the threads, and the bytes that they have sent.
pub(super) struct Kernel {
    /// The ports of the I/O threads in order, then of the housekeeper, of the thread that saves,
    /// and of the thread of the append-only file.
    pub ports: Vec<Port>,
    bell: Arc<Wakeup>,
    sent: PlainMutex<Vec<Sent>>,
}

/// Capacity of a mailbox: small, so that mailboxes are sometimes full.
const MAILBOX_MESSAGES_MAX: usize = 4;

impl Kernel {
    /// Creates the kernel for `threads` threads, all of them counted as busy.
    pub fn new(threads: usize) -> Self {
        let busy = AtomicUsize::new(threads);
        let bell = Arc::new(Wakeup { busy, rung: Mutex::new(false), changed: Condvar::new() });
        let port = |_| {
            let poll = Arc::new(Poll::new(Arc::clone(&bell)));
            let waker = Arc::clone(&poll);
            Port { mailbox: Mailbox::new(MAILBOX_MESSAGES_MAX, move || waker.wake()), poll }
        };
        Self { ports: (0..threads).map(port).collect(), bell, sent: PlainMutex::default() }
    }

    /// Sends a message to each of the first `threads` threads. A thread whose mailbox is full does
    /// not receive it.
    pub fn broadcast(&self, threads: usize, message: Message) {
        for port in &self.ports[..threads] {
            let _ = port.mailbox.send(message);
        }
    }

    /// Hands the bytes that a thread has sent on one connection to the network.
    pub fn send(&self, sent: Sent) {
        self.sent.lock().expect("nothing panics while it is locked").push(sent);
        self.bell.ring();
    }

    /// Takes all bytes that threads have sent. Called by the network.
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.sent.lock().expect("nothing panics while it is locked"))
    }

    /// Returns true if all threads sleep and no sent bytes wait for the network. Then nothing
    /// happens until the network acts or the clock moves. Called by the network.
    pub fn is_quiet(&self) -> bool {
        self.bell.busy.load(Relaxed) == 0 && self.sent.lock().expect("nothing panics").is_empty()
    }

    /// Sleeps until a thread sends bytes or all threads sleep. Called by the network.
    pub fn wait(&self) {
        let mut rung = self.bell.rung.lock().expect("a run that panics has ended");
        while !*rung {
            rung = self.bell.changed.wait(rung).expect("a run that panics has ended");
        }
        *rung = false;
    }

    /// Counts the calling thread as asleep for ever. A thread calls it at its end.
    pub fn leave(&self) {
        if self.bell.busy.fetch_sub(1, Relaxed) == 1 {
            self.bell.ring();
        }
    }
}
