//! An I/O thread: its event loop, its connections, its turns.
//!
//! The thread repeats turns. In a turn it waits for events, enters the gate that guards the
//! keyspace, and takes the messages of its mailbox. Then it collects a batch: parsed requests of
//! all ready connections. It prefetches the memory that the batch will use, and runs the batch; it
//! repeats this with further batches. At the end it leaves the gate and sends the replies.
//!
//! ```text
//!   poll ─► gate ─► mailbox ─► [collect ─► prefetch ─► execute]* ─► leave ─► flush ─► search
//! ```
//! **Fairness.** A turn has a time budget. In each batch, a connection has at most one visit, that
//! is, one group of consecutive requests. Its further requests wait until the other connections
//! were visited (`crate::run_queue`). Requests that are left when the budget is used up wait for
//! the next turn. Until they have run, nothing more is received from their connections. Between two
//! requests, the thread leaves the gate if another thread waits to become the exclusive owner of
//! the keyspace. So the other thread waits for one command at most.
//!
//! **Long searches** run after each turn for a slice of time, outside the gate
//! (`engine::searches`).
//!
//! **A busy script** with exclusive access to the keyspace keeps the thread outside the gate. The
//! turn continues outside: it reads and parses, runs the commands allowed then, and replies `-BUSY`
//! to all others. Work that needs a shard waits for the first turn inside the gate. There the
//! thread ends waits of blocked clients, and removes closed clients from the keys that they watched
//! or blocked on. The thread tries to enter the gate every [`BUSY_RETRY`]. While the thread itself
//! runs a busy script, a function that the script calls regularly (its hook) runs such turns
//! (`busy`).
//!
//! | Module | Part of the thread |
//! |---|---|
//! | this one | the loop: events, messages, publications, the time to sleep |
//! | `clients` | new and closed connections |
//! | `requests` | the requests of a turn, and their effects on a connection |
//! | `busy` | running scripts, and serving other clients while one is busy |
//! | `blocked` | timeouts of blocked clients, and replies that other threads made for them |
//! | `limits` | output and query-buffer limits, client eviction, idle clients |
//! | `debugged`, `debugger` | clients that debug their scripts, and the threads of these |
//! | `release` | output that waits for the change log |
//! | `request_checks` | delayed login attempts, the audit log |
//! | `leaving` | connections that move to the thread of replication |
//! | `figures` | the statistics of a client that other threads see |

mod blocked;
mod busy;
mod clients;
mod debugged;
mod debugger;
mod figures;
mod leaving;
mod limits;
mod release;
mod request_checks;
mod requests;
pub(crate) mod scripts;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use engine::batch::Batch;
use engine::log::ChangeLog;
use engine::log::level::Level;
use engine::publish::Outputs;
use engine::run::Executor;
use engine::searches::FoundReply;
use engine::session::{Flow, Session};
use engine::stats::latency_events::Event as LatencyEvent;
use keyspace::gate::SharedPass;
use net::{ConnId, Event, EventLoop, Listener, ListenerId, Pace};
use resp::parse::Progress;
use stdx::ByteQueue;

use self::blocked::Timeouts;
use self::figures::{note_output, note_unsent};
use self::limits::OverSoftLimit;
use self::release::ReleaseQueue;
use crate::commands::wait::Wanted;
use crate::context::{ServerHost, SystemClock, unix_ms};
use crate::run_queue::{RunQueue, Visit};
use crate::scripting::debugging::Link;
use crate::shared::{Listening, Message, Shared};

/// The engine type with which an I/O thread runs requests.
type Engine<'s> = engine::turn::Engine<'s, SystemClock, ServerHost>;

/// Longest time for which the thread sleeps while clients have pending output. A client whose
/// output stays above its soft limit for too long must be closed even if no event occurs.
const PENDING_OUTPUT_SLEEP: Duration = Duration::from_millis(100);

/// Longest time for which the thread sleeps while a busy script keeps it outside the gate that
/// guards the keyspace. Also the longest sleep while closed clients must still be removed from
/// their keys.
const BUSY_RETRY: Duration = Duration::from_millis(10);
/// Longest time for which the thread sleeps while writes of clients wait for room in the change
/// log, or clients of WAITAOF for a sync. The thread that merges the log makes room, but wakes the
/// waiting threads only when it releases replies.
const LOG_FULL_SLEEP: Duration = Duration::from_millis(1);

/// A client of this thread: its session, and what the thread knows about its connection.
struct Client {
    session: Session,
    /// The state of the parser within an incomplete request of the client.
    progress: Progress,
    over_soft_limit: OverSoftLimit,
    /// The time since which `authentication-timeout` runs, in milliseconds of the server's clock.
    /// It is the time at which the client connected, or was last found to be authenticated.
    unauthenticated_since_ms: u64,
    /// True while the client's connection is in the [`RunQueue`].
    is_queued: bool,
    /// True while the client is in [`Worker::pending_output`], whose clients are checked after a
    /// flush.
    has_pending_output: bool,
}

/// The access of the engine to the output queues of this thread's connections.
struct NetOutputs<'a> {
    outputs: &'a mut net::Outputs,
    release: &'a mut ReleaseQueue,
    log: &'a ChangeLog,
}

impl<'a> NetOutputs<'a> {
    fn new(outputs: &'a mut net::Outputs, release: &'a mut ReleaseQueue, shared: &'a Shared) -> Self {
        Self { outputs, release, log: &shared.engine.log }
    }
}

impl Outputs for NetOutputs<'_> {
    fn queue(&mut self, conn: ConnId) -> &mut ByteQueue {
        self.outputs.queue(conn)
    }

    fn len_bytes(&mut self, conn: ConnId) -> usize {
        self.outputs.len_bytes(conn)
    }

    #[inline]
    fn shows(&mut self, conn: ConnId, len_bytes: usize, position: u64) {
        if position > self.log.released(Level::Written) {
            let from_bytes = self.outputs.queue(conn).len_bytes().saturating_sub(len_bytes);
            self.release.mark(conn, from_bytes, (position, Level::Written));
        }
    }
}

/// The state of an I/O thread: its event loop, its clients, and the clients that wait for
/// something.
pub struct Worker<'s> {
    net: EventLoop,
    clients: Vec<Option<Box<Client>>>,
    shared: &'s Shared,
    thread: usize,
    engine: Box<Engine<'s>>,
    /// The engine that runs requests of the other clients while this thread runs a busy script.
    stand_in: Option<Box<Engine<'s>>>,
    /// True while this thread runs a busy script and, within its hook, turns for other clients. The
    /// thread's slot in the gate that guards the keyspace then belongs to the script.
    attends: bool,
    batch: Batch<Visit>,
    /// The queue of connections whose requests must be parsed and run.
    run_queue: RunQueue,
    timeouts: Timeouts,
    release: ReleaseQueue,
    /// Connections whose writes wait until the change log or a snapshot in progress has room.
    awaiting_log: Vec<ConnId>,
    /// The links between this thread's clients and the threads that debug their scripts.
    debugged: Vec<Arc<Link>>,
    /// The clients blocked in WAIT or WAITAOF: the connection, the ticket (number) of the wait, and
    /// the copies that the client waits for.
    awaiting_copies: Vec<(ConnId, u64, Wanted)>,
    /// The connections that move to the thread `repl`, as soon as their held-back output is sent.
    leaving: Vec<ConnId>,
    /// Connections whose requests are postponed by CLIENT PAUSE.
    postponed: Vec<ConnId>,
    /// Delayed login attempts: the time until which each waits, in milliseconds of the server's
    /// clock, and its connection.
    awaiting_login: Vec<(u64, ConnId)>,
    /// Publishers whose next requests wait, because they publish faster than the threads deliver.
    subscribers_full: Vec<ConnId>,
    /// Subscribers whose output may exceed a limit and must be checked.
    slow_subscribers: Vec<ConnId>,
    /// Clients of closed connections that must still be removed from the keys that they watched or
    /// blocked on. This cannot be done while a script is busy.
    closed_clients: Vec<Client>,
    /// Clients whose output the last flush may not have sent completely. They are checked after
    /// each flush.
    pending_output: VecDeque<ConnId>,
    /// The value of `Users::closings` when the users of the sessions were last checked. This
    /// counter grows when sessions may have to be closed because users were changed.
    closings_seen: u64,
    /// The listeners of this thread. Only the first I/O thread has any; it accepts for all threads.
    listeners: Vec<(ListenerId, Listening)>,
    /// The replies of searches that have ended since the last turn. The next turn sends them.
    found: Vec<FoundReply>,
    /// The numbers of the waits of clients that were closed while they waited for a search.
    cancelled_searches: Vec<u64>,
    /// The buffer for a request that runs scripts, kept for reuse.
    script_request: Vec<u8>,
    /// The buffer for the reply to a request that runs scripts, kept for reuse.
    script_reply: ByteQueue,
}

impl<'s> Worker<'s> {
    /// Creates the worker of I/O thread `thread`, over the event loop `net`. `seed` is for its
    /// random numbers.
    pub fn new(net: EventLoop, host: &'s ServerHost, thread: usize, seed: u64) -> Self {
        let shared = host.shared();
        let executor = |seed| Executor::new(&shared.engine, Some(thread), seed, (SystemClock, host.clone()));
        let mut engine = Box::new(Engine::new(executor(seed)));
        engine.executor.scripts = Some(Box::new(scripts::ThreadScripts::new(shared)));
        engine.executor.searches.turn_on();
        Self {
            net,
            clients: Vec::new(),
            shared,
            thread,
            engine,
            stand_in: Some(Box::new(Engine::new(executor(!seed)))),
            attends: false,
            batch: Batch::default(),
            run_queue: RunQueue::default(),
            timeouts: Timeouts::default(),
            release: ReleaseQueue::default(),
            awaiting_log: Vec::new(),
            awaiting_copies: Vec::new(),
            leaving: Vec::new(),
            debugged: Vec::new(),
            postponed: Vec::new(),
            awaiting_login: Vec::new(),
            subscribers_full: Vec::new(),
            slow_subscribers: Vec::new(),
            closed_clients: Vec::new(),
            pending_output: VecDeque::new(),
            closings_seen: shared.engine.acl.users.closings(),
            listeners: Vec::new(),
            found: Vec::new(),
            cancelled_searches: Vec::new(),
            script_request: Vec::new(),
            script_reply: ByteQueue::new(),
        }
    }

    /// Accepts connections from `listener` from now on; they are distributed to all threads.
    pub fn listen(&mut self, listener: Listener) -> io::Result<()> {
        let listening = Listening::of(&listener);
        self.listeners.push((self.net.add_listener(listener)?, listening));
        Ok(())
    }

    /// Replaces the TCP listeners of this thread: adds those in `add`, and closes all others except
    /// those on the addresses in `keep`.
    fn replace_listeners(&mut self, add: Vec<Listener>, keep: &[Listening]) {
        let net = &mut self.net;
        self.listeners.retain(|(id, listening)| {
            let stays = listening.tcp().is_none() || keep.contains(listening);
            if !stays {
                net.remove_listener(*id);
            }
            stays
        });
        for listener in add {
            if let Err(error) = self.listen(listener) {
                tracing::error!(%error, "listening failed");
            }
        }
    }

    /// Runs turns until the server stops. Returns an error if the event loop itself fails.
    pub fn run(mut self) -> io::Result<()> {
        let shared = self.shared;
        let mailbox = &shared.ports[self.thread].mailbox;
        let mut events = Vec::new();
        loop {
            let may_sleep = mailbox.prepare_sleep() && self.run_queue.is_empty() && !self.has_searches();
            let timeout = if may_sleep { self.timeout() } else { Some(Duration::ZERO) };
            self.net.set_pace(if self.release.is_empty() { Pace::Prompt } else { Pace::Held });
            let polled = self.net.poll(timeout, &mut events);
            mailbox.awake();
            polled?;
            self.turn(&mut events, None);
            // Acquire: pairs with the swap in `Shared::stop`.
            if shared.stopping.load(Acquire) {
                return Ok(());
            }
        }
    }

    /// Runs a turn for the events of the event loop. If `outside_pass` is given, the turn stays
    /// outside the gate that guards the keyspace; otherwise it tries to enter the gate.
    #[inline]
    fn turn(&mut self, events: &mut Vec<Event>, outside_pass: Option<SharedPass<'_>>) {
        let began = Instant::now();
        let shared = self.shared;
        self.engine.executor.meter.turn.begin(began);
        let mut pass = outside_pass.unwrap_or_else(|| shared.engine.gate.shared_unless_busy(self.thread));
        self.engine.begin(began);
        self.engine.note_standing(&pass);
        if pass.has_waited() {
            self.engine.executor.note_latency(LatencyEvent::GateWait, began.elapsed());
        }
        self.take_messages();
        if !self.debugged.is_empty() {
            self.send_for_debuggers();
        }
        self.take_publications();
        if !self.found.is_empty() {
            self.send_found();
        }
        for event in events.drain(..) {
            self.handle(event);
        }
        if pass.is_inside() {
            if !self.closed_clients.is_empty() {
                self.give_up_keys();
            }
            if shared.engine.blocked.has_left_behind() {
                shared.engine.blocked.remove_left_behind(&shared.engine.keyspace);
            }
            self.end_waits();
            if self.engine.executor.searches.has_waiting() {
                self.begin_searches();
            }
        }
        self.run_ready(began, &mut pass);
        if pass.is_inside() {
            if self.engine.keep_limits() {
                // A full mailbox has other messages, which cause a turn as well.
                let _ = shared.ports[self.thread].mailbox.send(Message::EnforceMemory);
            }
            self.engine.executor.commit.broadcast();
            self.take_inbound();
        }
        self.take_publications();
        self.send_freed_replies();
        self.engine.executor.end_turn();
        drop(pass);
        self.send(began);
        if self.engine.executor.searches.has_active() {
            self.run_searches();
        }
    }

    /// Ends a turn that started at `began`, after it has left the gate that guards the keyspace:
    /// wakes other threads, merges the change log, sends output, and checks clients with unsent
    /// output.
    #[inline]
    fn send(&mut self, began: Instant) {
        self.wake_others();
        self.merge_log();
        if !self.leaving.is_empty() {
            self.leave_all();
        }
        let executor = &mut self.engine.executor;
        executor.stats().writes.add(self.net.flush() as u64);
        executor.meter.turn.end(Instant::now(), executor.stats());
        executor.free_displaced_values(|_| began.elapsed());
        self.check_pending_output();
        // The checks of pending output may have evicted clients of any thread.
        self.wake_others();
        self.shared.engine.pubsub.note_sent(self.thread);
    }

    /// Merges the changes that all threads have recorded into the change log, if no other thread
    /// does so now. Releases output that waited for the log.
    #[inline]
    fn merge_log(&mut self) {
        if !self.release.is_empty() {
            self.engine.executor.commit.await_merge();
        }
        self.engine.executor.commit.merge_log();
        self.wake_others();
        let log = &self.shared.engine.log;
        if !self.release.is_empty() {
            let waits = &self.shared.ports[self.thread].reply_waits;
            if let Some(waited) = self.release.end_turn(self.net.split().1, log, self.thread, waits) {
                self.engine.executor.note_latency(LatencyEvent::ReplyRelease, waited);
            }
        }
        if !self.awaiting_log.is_empty() {
            self.resume_writes();
        }
    }

    /// Resumes the clients whose writes waited for room in the change log or in a snapshot, if
    /// there is room now.
    #[cold]
    fn resume_writes(&mut self) {
        let engine = &self.shared.engine;
        if !engine.awaits_room(engine.log.buffer_index(Some(self.thread))) {
            for conn in std::mem::take(&mut self.awaiting_log) {
                self.resume(conn, Flow::AwaitingLog);
            }
        }
    }

    /// Marks the output of `conn` after its first `from_bytes` bytes, if it shows changes that the
    /// change log has not released. Marked output may be held back at the end of the turn.
    fn mark_observed(&mut self, conn: ConnId, from_bytes: usize) {
        if let Some(session) = session_of(&self.clients, conn) {
            self.release.mark_observed(session, from_bytes, &self.shared.engine.log);
        }
    }

    /// Wakes the threads for which this thread has put replies or messages into inboxes. The caller
    /// holds no shard lock.
    #[inline]
    fn wake_others(&self) {
        let outbox = &self.engine.executor.commit.outbox;
        if !outbox.is_empty() {
            self.shared.wake(outbox);
        }
    }

    /// Returns the longest time for which the thread may sleep: until its next deadline, such as
    /// the timeout of a blocked client. `None` without a deadline.
    fn timeout(&self) -> Option<Duration> {
        if !self.engine.executor.is_inside {
            // A deadline that has passed must not keep the thread awake: it is handled inside the
            // gate.
            return Some(BUSY_RETRY);
        }
        let pause = (!self.postponed.is_empty()).then(|| {
            let left_ms = self.shared.engine.pause.left_ms(unix_ms());
            Duration::from_millis(left_ms.clamp(0, 1000) as u64)
        });
        let wait = self.timeouts.first_ms().map(|deadline_ms| {
            Duration::from_millis(deadline_ms).saturating_sub(self.shared.engine.started.elapsed())
        });
        let pending_output = (!self.pending_output.is_empty()).then_some(PENDING_OUTPUT_SLEEP);
        let closed_clients = (!self.closed_clients.is_empty()).then_some(BUSY_RETRY);
        let log_full = (!self.awaiting_log.is_empty()).then_some(LOG_FULL_SLEEP);
        // A sync may end between this check and the sleep.
        let awaits_sync =
            !self.awaiting_copies.is_empty() && self.shared.append_only.waiters.load(Relaxed) > 0;
        let sync = awaits_sync.then_some(LOG_FULL_SLEEP);
        let login = self.awaiting_login.iter().map(|(until_ms, _)| *until_ms).min().map(|until_ms| {
            Duration::from_millis(until_ms).saturating_sub(self.shared.engine.started.elapsed())
        });
        let waits = [pause, wait, pending_output, closed_clients, log_full, sync, login];
        waits.into_iter().flatten().min()
    }

    fn take_messages(&mut self) {
        let shared = self.shared;
        while let Some(message) = shared.ports[self.thread].mailbox.receive() {
            match message {
                Message::Adopt(socket) => self.adopt(socket),
                Message::CloseIdle => self.close_idle(),
                Message::FindClosedConnections => self.net.find_closed_connections(),
                Message::CountClients => self.count_clients(),
                Message::ReturnMemory => structures::alloc::purge_expired(),
                Message::Listen { add, keep } => self.replace_listeners(add, &keep),
                Message::Delivered
                | Message::Resume
                | Message::EnforceMemory
                | Message::CheckUsers
                | Message::Stop => {}
            }
        }
        let closings = shared.engine.acl.users.closings();
        if closings != self.closings_seen {
            self.closings_seen = closings;
            self.close_former_users();
        }
        if !self.awaiting_login.is_empty() {
            self.resume_logins();
        }
        if !self.postponed.is_empty() && !self.shared.engine.pause.is_on(self.engine.executor.now.unix_ms) {
            for conn in std::mem::take(&mut self.postponed) {
                self.resume(conn, Flow::Postponed);
            }
        }
    }

    /// Delivers published messages to this thread's subscribers. Closes subscribers whose output
    /// exceeds its limit. Resumes publishers that waited because subscribers had no room for
    /// messages.
    fn take_publications(&mut self) {
        let mut outputs = NetOutputs::new(self.net.split().1, &mut self.release, self.shared);
        if self.engine.deliver_publications(&mut outputs, &mut self.slow_subscribers) {
            self.shared.broadcast(|| Message::Resume);
        }
        if !self.slow_subscribers.is_empty() || !self.subscribers_full.is_empty() {
            self.follow_publications();
        }
    }

    #[cold]
    fn follow_publications(&mut self) {
        for conn in std::mem::take(&mut self.slow_subscribers) {
            if self.session(conn).is_some() && self.exceeds_output_limit(conn) {
                self.close(conn);
            }
        }
        if !self.subscribers_full.is_empty() && !self.shared.engine.pubsub.are_subscribers_full() {
            for conn in std::mem::take(&mut self.subscribers_full) {
                self.resume(conn, Flow::AwaitingSubscribers);
            }
        }
    }

    /// Sends the replies to deletions that were delayed until the memory of the deleted values was
    /// freed, and resumes their clients.
    fn send_freed_replies(&mut self) {
        for held in self.engine.freed_replies() {
            let client = self.session(held.conn).filter(|session| session.id == held.client);
            if let Some(info) = client.map(|session| Arc::clone(&session.info)) {
                note_output(&self.engine, &info, held.reply.len_bytes());
                let out = self.net.output(held.conn);
                let before = out.len_bytes();
                out.append(held.reply);
                self.mark_observed(held.conn, before);
                self.resume(held.conn, Flow::AwaitingFree);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { socket, .. } => self.place(socket),
            Event::AcceptFailed { error, pause, .. } => {
                tracing::warn!(%error, "cannot accept a client, trying again every {pause:?}");
            }
            Event::Data(conn) => self.make_ready(conn),
            Event::Drained(conn) => self.drained(conn),
            Event::Closed(conn, reason) => self.closed(conn, reason),
            Event::Secured(conn) => self.secured(conn),
            Event::HandshakeFailed(conn, reason) => self.handshake_failed(conn, &reason),
            // Clients that have finished sending are closed when they are served.
            Event::Woken | Event::PeerFinished(_) => {}
            Event::Released(conn, socket) => self.left(conn, *socket),
            // This loop opens no connections.
            Event::Connected(_) | Event::ConnectFailed(..) => {}
        }
    }

    /// Handles the event that all output of a connection was sent. Resumes its client if the
    /// client's next requests waited for that.
    fn drained(&mut self, conn: ConnId) {
        let client = self.clients.get(conn.index()).and_then(Option::as_deref);
        if let Some(client) = client.filter(|client| client.session.conn == conn) {
            note_unsent(&client.session, self.net.split().1);
        }
        self.resume(conn, Flow::AwaitingReader);
    }
}

/// Returns the session at the index of `conn` in the thread's list of clients; `None` if there is
/// none. Does not check the connection: the session may belong to another one that has the same
/// index.
fn session_of(clients: &[Option<Box<Client>>], conn: ConnId) -> Option<&Session> {
    clients[conn.index()].as_deref().map(|client| &client.session)
}

/// Borrows the session at the index of `conn` in the thread's list of clients mutably; `None` if
/// there is none. Does not check the connection: the session may belong to another one that has the
/// same index.
#[inline]
fn session_mut(clients: &mut [Option<Box<Client>>], conn: ConnId) -> Option<&mut Session> {
    clients[conn.index()].as_deref_mut().map(|client| &mut client.session)
}
