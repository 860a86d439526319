//! What threads sleep on: for each an event loop's poll with its eventfd, and the wire on which
//! sent bytes wait for the network.
//!
//! A thread of the engine sleeps for ever unless an event, a wake-up or its own timeout ends that.
//! So a wake-up that gets lost leaves it asleep, and the network finds that all sleep while a
//! client still waits. [`Kernel::is_quiet`] is exact: a thread that sleeps is counted busy again by
//! whoever gives it something, in the same step.

use std::sync::Mutex as PlainMutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use shuttle::sync::{Condvar, Mutex};
use std::sync::Arc;
use stdx::mailbox::Mailbox;

/// The number of a connection: never used twice in a run.
pub(super) type LinkId = u32;

/// A message from a thread to a thread, as between the server's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Look into the inboxes.
    Delivered,
    /// Look again at sessions that were held back.
    Resume,
    /// Have a turn, which evicts.
    EnforceMemory,
    /// Save.
    Save,
    /// Rewrite the append-only file.
    Rewrite,
    /// Rewrite it if somebody or something has asked for that.
    RewriteIfDue,
    /// Change an option of the append-only file.
    ChangeOptions,
    /// Leave the loop.
    Stop,
}

/// What a thread's poll reports.
#[derive(Debug)]
pub(super) enum Event {
    /// A client has connected.
    Connected(LinkId),
    /// Bytes have arrived.
    Data(LinkId, Vec<u8>),
    /// The connection has ended.
    Closed(LinkId),
}

/// Bytes that a thread has sent.
pub(super) struct Sent {
    pub link: LinkId,
    pub bytes: Vec<u8>,
    /// The thread has closed the connection behind them.
    pub closed: bool,
}

/// When a sleeping thread's timeout ends its sleep, in milliseconds of uptime.
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

/// What all that sleep count themselves in, and the network's bell.
struct Bell {
    busy: AtomicUsize,
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().expect("a run that panics has ended") = true;
        self.changed.notify_one();
    }
}

/// A thread's event loop.
pub(super) struct Poll {
    state: Mutex<PollState>,
    changed: Condvar,
    bell: Arc<Bell>,
}

impl Poll {
    fn new(bell: Arc<Bell>) -> Self {
        let state = PollState { woken: false, events: Vec::new(), sleep: Sleep::Awake };
        Self { state: Mutex::new(state), changed: Condvar::new(), bell }
    }

    /// Ends the thread's sleep, or keeps the next one from beginning.
    pub fn wake(&self) {
        self.change(|state| state.woken = true);
    }

    /// Gives the thread an event.
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

    /// Takes the events there are. Where there is none, sleeps until there is one, or a wake-up, or
    /// the uptime is `deadline_ms`. `None` does not sleep.
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

    /// When the thread's timeout ends its sleep, if it has one.
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

/// How a thread is reached.
pub(super) struct Port {
    pub mailbox: Mailbox<Message>,
    pub poll: Arc<Poll>,
}

/// See the module.
pub(super) struct Kernel {
    /// The I/O threads', then the housekeeper's, the saver's and that of the append-only
    /// file.
    pub ports: Vec<Port>,
    bell: Arc<Bell>,
    sent: PlainMutex<Vec<Sent>>,
}

/// Messages that may wait for a thread: few, so that mailboxes are full at times.
const MAILBOX_MESSAGES_MAX: usize = 4;

impl Kernel {
    /// For so many threads, all of them busy.
    pub fn new(threads: usize) -> Self {
        let busy = AtomicUsize::new(threads);
        let bell = Arc::new(Bell { busy, rung: Mutex::new(false), changed: Condvar::new() });
        let port = |_| {
            let poll = Arc::new(Poll::new(Arc::clone(&bell)));
            let waker = Arc::clone(&poll);
            Port { mailbox: Mailbox::new(MAILBOX_MESSAGES_MAX, move || waker.wake()), poll }
        };
        Self { ports: (0..threads).map(port).collect(), bell, sent: PlainMutex::default() }
    }

    /// Sends a message to each of the first `threads`; a full mailbox misses it.
    pub fn broadcast(&self, threads: usize, message: Message) {
        for port in &self.ports[..threads] {
            let _ = port.mailbox.send(message);
        }
    }

    /// Puts bytes on the wire.
    pub fn send(&self, sent: Sent) {
        self.sent.lock().expect("nothing panics while it is locked").push(sent);
        self.bell.ring();
    }

    /// Network: takes what is on the wire.
    pub fn take_sent(&self) -> Vec<Sent> {
        std::mem::take(&mut *self.sent.lock().expect("nothing panics while it is locked"))
    }

    /// Network: whether all threads sleep and nothing is on the wire, so that nothing will happen
    /// before the network or the clock does something.
    pub fn is_quiet(&self) -> bool {
        self.bell.busy.load(Relaxed) == 0 && self.sent.lock().expect("nothing panics").is_empty()
    }

    /// Network: sleeps until a thread sends something or the last one falls asleep.
    pub fn wait(&self) {
        let mut rung = self.bell.rung.lock().expect("a run that panics has ended");
        while !*rung {
            rung = self.bell.changed.wait(rung).expect("a run that panics has ended");
        }
        *rung = false;
    }

    /// A thread has ended.
    pub fn leave(&self) {
        if self.bell.busy.fetch_sub(1, Relaxed) == 1 {
            self.bell.ring();
        }
    }
}
