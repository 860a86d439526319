//! An I/O thread: its event loop, its connections, its turns.
//!
//! A turn: wait for events; enter the gate; take messages; parse what arrived, a batch at a time over
//! all ready connections; fetch the memory the batch will touch; run it; leave the gate; send.
//!
//! ```text
//!   poll ─► gate.shared ─► mailbox ─► [ collect ─► prefetch ─► execute ]* ─► leave ─► flush
//! ```
//! **Fairness.** A turn has a time budget. A connection has one visit in a batch, and what it sent beyond
//! that waits behind the others (`crate::run_queue`). What is left when the budget is spent waits for the
//! next turn, and nothing more is received from its connections until then. Between two requests the
//! thread steps aside for whoever waits to own the keyspace alone, so such an owner waits for one command.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use engine::batch::{Batch, ConnTurn, ParsedRequest, Source, Work};
use engine::client::{ClientInfo, Place};
use engine::client_eviction;
use engine::publish::Outputs;
use engine::run::Executor;
use engine::session::{Flow, ReplyMode, Session, User};
use engine::settings::OUTPUT_SHOWN_BYTES_MIN;
use engine::stats::latency_events::Event as LatencyEvent;
use engine::threads::{Inbound, Killed};
use engine::timing::Timing;
use engine::turn::Outcome;
use keyspace::gate::SharedPass;
use net::{Address, ConnId, Event, EventLoop, Listener, ListenerId, Socket};
use resp::parse::{Limits, Progress};
use resp::{Protocol, Reply};
use stdx::ByteQueue;

use crate::context::{ServerHost, SystemClock, unix_ms};
use crate::run_queue::{RunQueue, Visit};
use crate::shared::{Message, Shared};

/// The engine of an I/O thread.
type Engine<'s> = engine::turn::Engine<'s, SystemClock, ServerHost>;

/// After so many times its budget a turn begins no further request of a batch either. More than once, since
/// what was parsed for nothing is parsed again.
const TURN_BUDGETS_MAX: u32 = 2;

/// What a batch may take in any case: connections that were left over from an earlier turn make progress
/// in each turn, however much arrives.
const BATCH_TIME_MIN: Duration = Duration::from_micros(100);

/// Unsent replies from which on a client's requests wait until it has read some: what one client that
/// does not read can make the server hold, besides the last reply.
const OUTPUT_PENDING_BYTES_MAX: usize = 64 << 20;

/// Clients with unsent output that are looked at after one flush; more of them take turns.
const LOOKED_BEHIND_MAX: usize = 64;

/// Up to so much unsent counts as nothing for the output limits, as what fits into Redis' fixed buffer of a
/// client does: the smallest limit leaves a client that reads alone.
const OUTPUT_UNCOUNTED_BYTES: usize = 16 * 1024;

/// How long a thread sleeps at most while there are such clients: their soft limits are over some time.
const BEHIND_SLEEP: Duration = Duration::from_millis(100);

/// A client of this thread: its session, and what its connection needs besides.
struct Client {
    session: Session,
    /// How far an incomplete request was parsed.
    progress: Progress,
    /// Since when its output is over the soft limit, in milliseconds of the server's clock.
    soft_limit_since_ms: Option<u64>,
    /// Its connection is in the [`RunQueue`].
    is_queued: bool,
    /// Its unsent output is looked at after each flush.
    is_behind: bool,
}

/// The output queues of this thread's connections, for the engine.
struct NetOutputs<'a>(&'a mut net::Outputs);

impl Outputs for NetOutputs<'_> {
    fn queue(&mut self, conn: ConnId) -> &mut ByteQueue {
        self.0.queue(conn)
    }

    fn len_bytes(&mut self, conn: ConnId) -> usize {
        self.0.len_bytes(conn)
    }
}

/// An I/O thread.
pub struct Worker<'s> {
    net: EventLoop,
    clients: Vec<Option<Box<Client>>>,
    shared: &'s Shared,
    thread: usize,
    engine: Engine<'s>,
    batch: Batch<Visit>,
    /// Connections with input to parse.
    run_queue: RunQueue,
    /// When clients stop waiting for a key, in milliseconds of the server's clock; by time and ticket.
    timeouts: BTreeMap<(u64, u64), ConnId>,
    /// Sessions held back by CLIENT PAUSE.
    postponed: Vec<ConnId>,
    /// Sessions held back because they publish faster than threads take it.
    crowded: Vec<ConnId>,
    /// Subscribers whose output may be over a limit.
    slow_subscribers: Vec<ConnId>,
    /// Clients with output that did not or may not fit their sockets: looked at after a flush.
    behind: VecDeque<ConnId>,
    /// What this thread accepts from: thread 0 does for all.
    listeners: Vec<(ListenerId, Address)>,
}

impl<'s> Worker<'s> {
    /// A worker over `net`, as thread `thread` of the server.
    pub fn new(net: EventLoop, host: &'s ServerHost, thread: usize, seed: u64) -> Self {
        let shared = host.shared();
        let executor = Executor::new(&shared.engine, Some(thread), seed, (SystemClock, host.clone()));
        Self {
            net,
            clients: Vec::new(),
            shared,
            thread,
            engine: Engine::new(executor),
            batch: Batch::default(),
            run_queue: RunQueue::default(),
            timeouts: BTreeMap::new(),
            postponed: Vec::new(),
            crowded: Vec::new(),
            slow_subscribers: Vec::new(),
            behind: VecDeque::new(),
            listeners: Vec::new(),
        }
    }

    /// Accepts connections from `listener` from now on, for all threads.
    pub fn listen(&mut self, listener: Listener) -> io::Result<()> {
        let address = listener.local_address().clone();
        self.listeners.push((self.net.add_listener(listener)?, address));
        Ok(())
    }

    /// Takes over new TCP addresses.
    fn listen_elsewhere(&mut self, add: Vec<Listener>, keep: &[SocketAddr]) {
        let net = &mut self.net;
        self.listeners.retain(|(id, address)| {
            let stays = !matches!(address, Address::Tcp(address) if !keep.contains(address));
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

    /// Runs until the server stops. An error means the event loop itself failed.
    pub fn run(mut self) -> io::Result<()> {
        let shared = self.shared;
        let mailbox = &shared.ports[self.thread].mailbox;
        let mut events = Vec::new();
        loop {
            let may_sleep = mailbox.prepare_sleep() && self.run_queue.is_empty();
            let timeout = if may_sleep { self.timeout() } else { Some(Duration::ZERO) };
            let polled = self.net.poll(timeout, &mut events);
            mailbox.awake();
            polled?;
            let began = Instant::now();
            self.engine.executor.meter.turn.begin(began);
            let mut pass = shared.engine.gate.shared(self.thread);
            self.engine.begin(began);
            if pass.has_waited() {
                self.engine.executor.note_latency(LatencyEvent::GateWait, began.elapsed());
            }
            self.take_messages();
            self.take_publications();
            for event in events.drain(..) {
                self.handle(event);
            }
            self.end_waits();
            self.run_ready(began, &mut pass);
            if self.engine.keep_limits() {
                // A full mailbox has other messages, which make a turn as well.
                let _ = mailbox.send(Message::EnforceMemory);
            }
            self.engine.executor.commit.broadcast();
            self.take_inbound();
            self.take_publications();
            self.send_freed_replies();
            self.engine.executor.end_turn();
            drop(pass);
            self.wake_others();
            let executor = &mut self.engine.executor;
            executor.stats().writes.add(self.net.flush() as u64);
            executor.meter.turn.end(Instant::now(), executor.stats());
            executor.free_owed(began);
            self.look_behind();
            // Clients that were evicted for what they have not read, on whatever thread.
            self.wake_others();
            shared.engine.pubsub.note_sent(self.thread);
            // Acquire: pairs with the swap in `Shared::stop`.
            if shared.stopping.load(Acquire) {
                return Ok(());
            }
        }
    }

    /// Wakes the threads for whose clients something was left. No shard is locked.
    #[inline]
    fn wake_others(&self) {
        let outbox = &self.engine.executor.commit.outbox;
        if !outbox.is_empty() {
            self.shared.wake(outbox);
        }
    }

    /// How long to sleep: until the pause that holds sessions back ends or a client stops waiting, else until
    /// something happens.
    fn timeout(&self) -> Option<Duration> {
        let pause = (!self.postponed.is_empty()).then(|| {
            let left_ms = self.shared.engine.pause.until_ms.load(Relaxed) - unix_ms();
            Duration::from_millis(left_ms.clamp(0, 1000) as u64)
        });
        let wait = self.timeouts.first_key_value().map(|(&(deadline_ms, _), _)| {
            Duration::from_millis(deadline_ms).saturating_sub(self.shared.engine.started.elapsed())
        });
        let behind = (!self.behind.is_empty()).then_some(BEHIND_SLEEP);
        pause.into_iter().chain(wait).chain(behind).min()
    }

    fn take_messages(&mut self) {
        let shared = self.shared;
        while let Some(message) = shared.ports[self.thread].mailbox.receive() {
            match message {
                Message::Adopt(socket) => self.adopt(socket),
                Message::CloseIdle => self.close_idle(),
                Message::CountClients => self.count_clients(),
                Message::Listen { add, keep } => self.listen_elsewhere(add, &keep),
                Message::Delivered | Message::Resume | Message::EnforceMemory | Message::Stop => {}
            }
        }
        if !self.postponed.is_empty()
            && self.shared.engine.pause.until_ms.load(Relaxed) <= self.engine.executor.now.unix_ms
        {
            for conn in std::mem::take(&mut self.postponed) {
                self.resume(conn, Flow::Postponed);
            }
        }
    }

    /// Hands this thread's subscribers what was published, ends those that do not read, and lets publishers
    /// go on that waited for room.
    fn take_publications(&mut self) {
        let mut outputs = NetOutputs(self.net.split().1);
        if self.engine.deliver_publications(&mut outputs, &mut self.slow_subscribers) {
            self.shared.broadcast(|| Message::Resume);
        }
        if !self.slow_subscribers.is_empty() || !self.crowded.is_empty() {
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
        if !self.crowded.is_empty() && !self.shared.engine.pubsub.is_crowded() {
            for conn in std::mem::take(&mut self.crowded) {
                self.resume(conn, Flow::Crowded);
            }
        }
    }

    /// Lets clients go on whose replies waited until something was freed.
    fn send_freed_replies(&mut self) {
        for held in self.engine.freed_replies() {
            let client = self.session(held.conn).filter(|session| session.id == held.client);
            if let Some(info) = client.map(|session| Arc::clone(&session.info)) {
                note_output(&self.engine, &info, held.reply.len_bytes());
                self.net.output(held.conn).append(held.reply);
                self.resume(held.conn, Flow::Freeing);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Accepted { socket, .. } => self.place(socket),
            Event::AcceptFailed { error, pause, .. } => {
                tracing::warn!(%error, "accepting a client failed, trying again every {pause:?}");
            }
            Event::Data(conn) => self.make_ready(conn),
            Event::Drained(conn) => self.drained(conn),
            Event::Closed(conn, _) => self.forget(conn),
            // Clients that have finished sending are closed when they are served.
            Event::Woken | Event::PeerFinished(_) => {}
        }
    }

    /// Gives a new connection to the thread with the fewest, or refuses it.
    fn place(&mut self, socket: Socket) {
        let shared = self.shared;
        if let Some(refusal) = self.refusal(&socket) {
            shared.rejected_connections.fetch_add(1, Relaxed);
            // The client may be gone already; there is nobody else to tell.
            let _ = socket.send_once(refusal);
            return;
        }
        let own = self.thread;
        let loads = shared.engine.threads.iter().enumerate();
        let target = loads.min_by_key(|(index, port)| (port.load.load(Relaxed), *index != own));
        let (index, port) = target.expect("a server has at least one I/O thread");
        port.load.fetch_add(1, Relaxed);
        if index == own {
            self.adopt(socket);
        } else if let Err(Message::Adopt(socket)) = shared.ports[index].mailbox.send(Message::Adopt(socket)) {
            // Thousands of connections wait there already: this one stays here.
            port.load.fetch_sub(1, Relaxed);
            shared.engine.threads[own].load.fetch_add(1, Relaxed);
            self.adopt(socket);
        }
    }

    /// Why a new connection is not taken in, as the line to send.
    fn refusal(&self, socket: &Socket) -> Option<&'static [u8]> {
        let settings = &self.engine.executor.settings;
        let open: usize = self.shared.engine.threads.iter().map(|port| port.load.load(Relaxed)).sum();
        if open >= settings.clients.maxclients {
            return Some(b"-ERR max number of clients reached\r\n");
        }
        let Address::Tcp(peer) = socket.peer_address() else { return None };
        if settings.clients.protected_mode
            && settings.requirepass.is_empty()
            && !peer.ip().to_canonical().is_loopback()
        {
            return Some(PROTECTED_MODE_LINE);
        }
        None
    }

    fn adopt(&mut self, socket: Socket) {
        let (peer, local) = (socket.peer_address().clone(), socket.local_address().clone());
        let shared = self.shared;
        let port = &shared.engine.threads[self.thread];
        let keepalive_s = self.engine.executor.settings.clients.tcp_keepalive_s;
        self.net.set_default_keepalive((keepalive_s > 0).then(|| Duration::from_secs(keepalive_s)));
        let conn = match self.net.adopt(socket) {
            Ok(conn) => conn,
            Err(error) => {
                port.load.fetch_sub(1, Relaxed);
                tracing::warn!(%error, "taking a client in failed");
                return;
            }
        };
        let id = shared.engine.clients.next_id();
        let fd = self.net.fd(conn).map_or(-1, |fd| std::os::fd::AsRawFd::as_raw_fd(&fd));
        let now_ms = shared.uptime_ms();
        let place = Place { thread: self.thread, conn, fd };
        let info = Arc::new(ClientInfo::new(id, place, (peer, local), now_ms));
        shared.engine.clients.add(Arc::clone(&info));
        port.stats.connections.add(1);
        port.stats.clients.add(1);
        let user = self.engine.executor.settings.requirepass.is_empty().then_some(User);
        let client = Client {
            session: Session::new(info, user),
            progress: Progress::default(),
            soft_limit_since_ms: None,
            is_queued: false,
            is_behind: false,
        };
        if self.clients.len() <= conn.index() {
            self.clients.resize_with(conn.index() + 1, || None);
        }
        self.clients[conn.index()] = Some(Box::new(client));
    }

    fn client(&mut self, conn: ConnId) -> Option<&mut Client> {
        let client = self.clients.get_mut(conn.index())?.as_deref_mut();
        client.filter(|client| client.session.conn == conn)
    }

    fn session(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.client(conn).map(|client| &mut client.session)
    }

    fn close(&mut self, conn: ConnId) {
        self.net.close(conn);
        self.forget(conn);
    }

    /// Lets go of a connection that is closed.
    fn forget(&mut self, conn: ConnId) {
        if self.session(conn).is_none() {
            return;
        }
        let Some(mut client) = self.clients[conn.index()].take() else { return };
        let session = &mut client.session;
        let engine::Shared {
            keyspace, blocked, watchers, pubsub, tracking, monitors, clients, threads, ..
        } = &self.shared.engine;
        if let Some(blocked_by) = blocked.of(&session.info) {
            // Whoever serves it now is the last: the reply finds no client.
            blocked.end(&blocked_by);
            if let Some(deadline_ms) = blocked_by.deadline_ms {
                self.timeouts.remove(&(deadline_ms, blocked_by.ticket));
            }
        }
        blocked.unblock(keyspace, &session.info);
        session.discard(watchers, keyspace);
        session.unsubscribe_all(pubsub, None);
        session.stop_tracking(tracking, keyspace);
        session.stop_monitoring(monitors);
        session.info.state.gone.store(true, Relaxed);
        self.engine.executor.stats().clients.sub(1);
        client_eviction::uncount(&self.shared.engine, &session.info);
        threads.unlist(clients, &session.info);
    }

    /// Lets a session that was held back for `reason` go on with its waiting input.
    fn resume(&mut self, conn: ConnId, reason: Flow) {
        let Some(session) = self.session(conn) else { return };
        if session.flow != reason {
            return;
        }
        session.flow = Flow::Running;
        session.info.state.postponed.store(false, Relaxed);
        self.net.resume_input(conn);
        self.make_ready(conn);
    }

    /// Has what a connection sent parsed and run in this turn, or the next.
    #[inline]
    fn make_ready(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn)
            && !std::mem::replace(&mut client.is_queued, true)
        {
            self.run_queue.push(conn);
        }
    }

    /// A connection has sent all its output.
    fn drained(&mut self, conn: ConnId) {
        let client = self.clients.get(conn.index()).and_then(Option::as_deref);
        if let Some(client) = client.filter(|client| client.session.conn == conn) {
            note_unsent(&client.session, self.net.split().1);
        }
        self.resume(conn, Flow::Stalled);
    }

    /// A client has begun to wait for a key: notes for how long.
    fn settle_waiting(&mut self, conn: ConnId) {
        let Some(session) = session_of(&self.clients, conn) else { return };
        if let Some(blocked) = self.shared.engine.blocked.of(&session.info)
            && let Some(deadline_ms) = blocked.deadline_ms
        {
            self.timeouts.insert((deadline_ms, blocked.ticket), conn);
        }
    }

    /// Hands waiting clients the replies that others made for them, and closes killed clients.
    fn take_inbound(&mut self) {
        if let Some(inbound) = self.shared.engine.threads.take(self.thread) {
            self.pass_on(inbound);
        }
    }

    /// Hands blocked clients their replies, and closes clients that others asked to close.
    #[inline(never)]
    fn pass_on(&mut self, inbound: Inbound) {
        let shared = self.shared;
        let Inbound { deliveries, kills } = inbound;
        // Messages about what was done before a waiting client was served.
        self.take_publications();
        for delivery in deliveries {
            let Some(session) = self.session(delivery.conn) else { continue };
            let blocked = shared.engine.blocked.of(&session.info);
            let awaits = blocked.is_some_and(|blocked| blocked.ticket == delivery.ticket);
            if session.id == delivery.client && awaits {
                let info = Arc::clone(&session.info);
                let ahead_bytes = delivery.reply_bytes - delivery.reply.len_bytes();
                let reply = |_, out: &mut ByteQueue| out.append(delivery.reply);
                self.end_wait(delivery.conn, delivery.took, ahead_bytes, reply);
                note_output(&self.engine, &info, delivery.pushes.len_bytes());
                self.net.output(delivery.conn).append(delivery.pushes);
            }
        }
        for Killed { conn, client } in kills {
            if self.session(conn).is_some_and(|session| session.id == client) {
                self.close(conn);
            }
        }
    }

    /// Ends the waits whose time is over.
    fn end_waits(&mut self) {
        self.take_inbound();
        if !self.timeouts.is_empty() {
            self.end_timeouts();
        }
    }

    /// Answers blocked clients whose timeout has passed.
    #[inline(never)]
    fn end_timeouts(&mut self) {
        while let Some((&(deadline_ms, ticket), &conn)) = self.timeouts.first_key_value()
            && deadline_ms <= self.engine.executor.now.uptime_ms
        {
            self.timeouts.remove(&(deadline_ms, ticket));
            let Some(session) = self.session(conn) else { continue };
            let info = Arc::clone(&session.info);
            let blocked = self.shared.engine.blocked.of(&info);
            let Some(waiter) = blocked.filter(|blocked| blocked.ticket == ticket) else { continue };
            // Served at this very moment: its reply is on the way.
            if self.shared.engine.blocked.end(&waiter) {
                let reply = |protocol, out: &mut ByteQueue| waiter.write_empty(protocol, out);
                self.end_wait(conn, Duration::ZERO, 0, reply);
            }
        }
    }

    /// Lets a waiting client go on, with a reply that took this long to make and of which so many bytes went ahead.
    /// Nobody serves it any more.
    fn end_wait(
        &mut self,
        conn: ConnId,
        took: Duration,
        ahead_bytes: usize,
        reply: impl FnOnce(Protocol, &mut ByteQueue),
    ) {
        let shared = self.shared;
        let Some(session) = self.session(conn) else { return };
        let waiter = shared.engine.blocked.of(&session.info);
        shared.engine.blocked.unblock(&shared.engine.keyspace, &session.info);
        session.info.traffic.last_active_ms.store(shared.uptime_ms(), Relaxed);
        let (protocol, replies) = (session.protocol, session.reply_mode == ReplyMode::On);
        if session.reply_mode == ReplyMode::Skip {
            session.reply_mode = ReplyMode::On;
        }
        let out = self.net.output(conn);
        let before = out.len_bytes();
        if replies {
            reply(protocol, out);
        }
        let reply_bytes = out.len_bytes() - before;
        if let Some(waiter) = waiter {
            if let Some(deadline_ms) = waiter.deadline_ms {
                self.timeouts.remove(&(deadline_ms, waiter.ticket));
            }
            let session = session_of(&self.clients, conn).expect("it was looked at above");
            note_output(&self.engine, &session.info, reply_bytes);
            self.engine.executor.note_waited(session, &waiter, took, ahead_bytes + reply_bytes);
        }
        self.resume(conn, Flow::Waiting);
    }

    /// Counts all clients of this thread anew for `maxmemory-clients`. O(clients).
    fn count_clients(&mut self) {
        let limit = self.engine.executor.settings.clients.maxmemory_clients_bytes;
        if limit == 0 {
            return;
        }
        let shared = self.shared;
        let mut over = false;
        for client in self.clients.iter().flatten() {
            let session = &client.session;
            note_unread(session, self.net.inputs());
            note_unsent(session, self.net.split().1);
            over |= client_eviction::count(&shared.engine, &session.info, limit);
        }
        if over {
            client_eviction::evict(&shared.engine, self.thread, &self.engine.executor.commit.outbox, limit);
        }
    }

    /// Counts what a client makes the server hold, where there is a limit to that; whether it was evicted.
    #[cold]
    fn is_evicted(&mut self, conn: ConnId) -> bool {
        let limit = self.engine.executor.settings.clients.maxmemory_clients_bytes;
        let Some(session) = session_of(&self.clients, conn) else { return true };
        let shared = self.shared;
        if client_eviction::count(&shared.engine, &session.info, limit) {
            client_eviction::evict(&shared.engine, self.thread, &self.engine.executor.commit.outbox, limit);
        }
        session.info.state.kill_requested.load(Relaxed)
    }

    /// Looks, after a flush, at clients that were not or may not have been sent all of their output: writes
    /// down how much is left, and enforces the limits on it.
    #[inline]
    fn look_behind(&mut self) {
        for conn in self.net.split().1.take_behind() {
            self.note_behind(conn);
        }
        for _ in 0..self.behind.len().min(LOOKED_BEHIND_MAX) {
            let Some(conn) = self.behind.pop_front() else { break };
            self.look_behind_one(conn);
        }
    }

    /// Has a client looked at after each flush until all of its output is sent.
    #[cold]
    fn note_behind(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn)
            && !std::mem::replace(&mut client.is_behind, true)
        {
            self.behind.push_back(conn);
        }
    }

    #[cold]
    fn look_behind_one(&mut self, conn: ConnId) {
        let Some(client) = self.client(conn) else { return };
        client.is_behind = false;
        let Some(session) = session_of(&self.clients, conn) else { return };
        note_unsent(session, self.net.split().1);
        if self.exceeds_output_limit(conn) {
            // It leaves the queues of its keys, under the locks of their shards.
            let shared = self.shared;
            let _pass = shared.engine.gate.shared(self.thread);
            return self.close(conn);
        }
        if self.engine.executor.settings.clients.maxmemory_clients_bytes > 0 && self.is_evicted(conn) {
            return;
        }
        if self.net.split().1.len_bytes(conn) > 0 {
            self.note_behind(conn);
        }
    }

    fn close_idle(&mut self) {
        let timeout_ms = self.engine.executor.settings.clients.timeout_s * 1000;
        if timeout_ms == 0 {
            return;
        }
        let now = self.engine.executor.now.uptime_ms;
        let idle = self
            .clients
            .iter()
            .flatten()
            .map(|client| &client.session)
            .filter(|session| !session.monitoring && session.subscriptions.is_none())
            .filter(|session| !matches!(session.flow, Flow::Waiting | Flow::Postponed))
            .filter(|session| {
                now.saturating_sub(session.info.traffic.last_active_ms.load(Relaxed)) > timeout_ms
            });
        for conn in idle.map(|session| session.conn).collect::<Vec<_>>() {
            self.close(conn);
        }
    }

    /// Runs what ready connections sent, batch after batch, until the turn's budget is spent, so that what
    /// arrived meanwhile is read, and replies leave.
    fn run_ready(&mut self, began: Instant, pass: &mut SharedPass<'_>) {
        self.engine.executor.stats().reads.add(self.run_queue.begin_turn() as u64);
        let budget = self.engine.executor.settings.turn_budget;
        let end = began + budget;
        let mut now = began;
        loop {
            let late = now >= end;
            if self.run_queue.is_empty() || (late && !self.run_queue.owes_a_visit()) {
                break;
            }
            self.batch.clear();
            while !self.batch.is_full()
                && let Some(visit) = if late { self.run_queue.next_owed() } else { self.run_queue.next() }
            {
                if let Some(client) = self.client(visit.conn) {
                    client.is_queued = false;
                    self.collect(visit);
                }
            }
            self.batch.prefetch(&self.shared.engine.keyspace);
            let deadline = (began + budget * TURN_BUDGETS_MAX).max(now + BATCH_TIME_MIN);
            now = self.execute(deadline, pass).max(now);
        }
        for conn in self.run_queue.left() {
            self.net.mark_ready(conn);
        }
    }

    /// Lets a connection whose visit could not begin be the next in its queue.
    #[cold]
    fn run_first(&mut self, visit: Visit) {
        if let Some(client) = self.client(visit.conn)
            && !std::mem::replace(&mut client.is_queued, true)
        {
            self.run_queue.put_back(visit);
        }
    }

    /// Puts a connection that has more to run behind the others.
    fn carry(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn)
            && client.session.flow == Flow::Running
            && !std::mem::replace(&mut client.is_queued, true)
        {
            self.run_queue.carry(conn);
        }
    }

    /// Adds what a connection sent to the batch, as far as it is whole and fits.
    fn collect(&mut self, visit: Visit) {
        let (conn, limits) = (visit.conn, self.engine.executor.settings.parse_limits());
        let Some(session) = self.session(conn) else { return };
        if session.flow != Flow::Running {
            if session.flow == Flow::Waiting {
                // It is listened to all the same, so that its end is noticed.
                self.keep_input(conn);
            }
            return;
        }
        if self.engine.executor.settings.clients.maxmemory_clients_bytes > 0 {
            // What lies in the memory that all share for a turn is none of the client's.
            let inputs = self.net.inputs();
            let held = inputs.len_bytes(conn).min(inputs.capacity_bytes(conn));
            if let Some(session) = session_of(&self.clients, conn) {
                session.info.held.pending_input_bytes.store(held as u64, Relaxed);
            }
            if self.is_evicted(conn) {
                return;
            }
        }
        let Some(Client { session, progress, .. }) = self.clients[conn.index()].as_deref_mut() else {
            return;
        };
        let limits = Limits { unauthenticated: session.user.is_none(), ..limits };
        let (position, input) = (self.net.inputs().position(conn), self.net.inputs().bytes(conn));
        let source = Source { progress, db: session.db, limits, visit, position, input };
        if !self.batch.collect(source, &self.shared.engine) {
            // Nothing is whole yet, so nothing will run and be settled.
            self.keep_input(conn);
        }
    }

    /// Runs the batch, connection by connection. Begins no request after `deadline`, the first one
    /// excepted. When it ended.
    fn execute(&mut self, deadline: Instant, pass: &mut SharedPass<'_>) -> Instant {
        let shared = self.shared;
        let mut run = BatchRun { shared, deadline, timed: Timing::start(&self.engine.executor) };
        let visits = self.batch.turns.len();
        for at in 0..visits {
            if at > 0 && run.is_late() {
                (at..visits).rev().for_each(|at| self.run_first(self.batch.turns[at].visit));
                break;
            }
            self.visit(at, &mut run, pass);
        }
        let stats = self.engine.executor.stats();
        stats.running_nanos.add(run.timed.total().as_nanos() as u64);
        run.timed.now()
    }

    /// Runs what the batch has of one connection, at least one request, and settles with it.
    fn visit(&mut self, at: usize, run: &mut BatchRun<'_>, pass: &mut SharedPass<'_>) {
        let ConnTurn { visit: Visit { conn, .. }, ref requests, skip_to, mut has_more } =
            self.batch.turns[at];
        let Some(session) = session_mut(&mut self.clients, conn) else { return };
        self.engine.executor.meter.turn.enter(&mut session.answered);
        let (inputs, outputs) = self.net.split();
        let input = inputs.bytes(conn);
        let mut out = outputs.queue(conn);
        let mut pending_before = out.len_bytes();
        let mut done_bytes = 0;
        let (mut ran, mut ran_all) = (0_i64, true);
        let mut requests = self.batch.requests[requests.clone()].iter().peekable();
        while session.flow == Flow::Running
            && let Some(parsed) = requests.next()
        {
            if ran > 0 && run.is_late() {
                (has_more, ran_all) = (true, false);
                break;
            }
            let Some(request) = self.batch.request(parsed, input, run.shared.engine.keyspace.hasher()) else {
                refuse_broken(session, parsed, out);
                break;
            };
            if session.subscriptions.is_some() {
                // What was published before, by itself too, comes before the next reply. It is counted there.
                let before = out.len_bytes();
                let mut queues = NetOutputs(&mut *outputs);
                if self.engine.deliver_publications(&mut queues, &mut self.slow_subscribers) {
                    run.shared.broadcast(|| Message::Resume);
                }
                out = outputs.queue(conn);
                pending_before += out.len_bytes() - before;
            }
            let replied = out.len_bytes();
            // A pass through the gate that became exclusive must hold no lock: none is held here.
            if pass.is_wanted() {
                self.engine.step_aside(pass, &mut run.timed);
            }
            if self.engine.run(session, &request, out, pass) == Outcome::Postponed {
                break;
            }
            let bytes = [parsed.len_bytes, out.len_bytes().saturating_sub(replied)];
            let next = requests.peek().and_then(|next| next.registered);
            if !self.engine.executor.commit.outbox.is_empty() {
                run.shared.wake(&self.engine.executor.commit.outbox);
            }
            run.timed.ran(&mut self.engine.executor, session, &request, bytes, next);
            done_bytes = parsed.start + parsed.len_bytes;
            ran += 1;
            if out.len_bytes() > OUTPUT_PENDING_BYTES_MAX && session.flow == Flow::Running {
                session.flow = Flow::Stalled;
            }
        }
        if ran_all && matches!(session.flow, Flow::Running | Flow::Closing) {
            // Empty lines behind the requests need no reply.
            done_bytes = done_bytes.max(skip_to);
        }
        let replied = out.len_bytes() - pending_before;
        let ran =
            u64::try_from(ran + std::mem::take(&mut self.engine.executor.meter.calls_beyond)).unwrap_or(0);
        note_activity(&self.engine, session, ran, done_bytes, replied);
        self.net.consume(conn, done_bytes);
        self.settle(conn);
        if has_more {
            self.carry(conn);
        }
    }

    /// Writes down what of a connection's input stays for a later turn, and enforces the limits on that; whether
    /// the connection stays too.
    fn keep_input(&mut self, conn: ConnId) -> bool {
        let query_max = self.engine.executor.settings.clients.query_buffer_bytes_max;
        let Some(session) = session_of(&self.clients, conn) else { return false };
        note_unread(session, self.net.inputs());
        let queued = session.transaction.as_ref().map_or(0, |transaction| transaction.query_bytes());
        let unread = self.net.inputs().len_bytes(conn) + queued;
        if unread as u64 > query_max && matches!(session.flow, Flow::Running | Flow::Waiting) {
            self.engine.executor.note_long_query(session.id, unread);
            self.close(conn);
            return false;
        }
        self.engine.executor.settings.clients.maxmemory_clients_bytes == 0 || !self.is_evicted(conn)
    }

    /// Whether a connection must be closed for what it has not read.
    fn exceeds_output_limit(&mut self, conn: ConnId) -> bool {
        let outputs = self.net.split().1;
        let unsent = outputs.len_bytes(conn);
        let settings = &self.engine.executor.settings;
        let now = self.engine.executor.now.uptime_ms;
        let Some(client) = self.clients[conn.index()].as_deref_mut() else { return false };
        let session = &client.session;
        let limit = if session.monitoring {
            settings.clients.monitor_output_limit
        } else if session.subscriptions.is_some() {
            settings.clients.pubsub_output_limit
        } else {
            settings.clients.output_limit
        };
        if unsent >= OUTPUT_SHOWN_BYTES_MIN && !std::mem::replace(&mut client.is_behind, true) {
            // What is less leaves at the end of this turn.
            self.behind.push_back(conn);
        }
        let counted = if unsent > OUTPUT_UNCOUNTED_BYTES { unsent as u64 } else { 0 };
        let exceeds = if limit.hard_bytes > 0 && counted > limit.hard_bytes {
            true
        } else if limit.soft_bytes > 0 && counted > limit.soft_bytes {
            let since = *client.soft_limit_since_ms.get_or_insert(now);
            now - since > limit.soft_seconds * 1000
        } else {
            client.soft_limit_since_ms = None;
            false
        };
        if exceeds {
            let stats = self.engine.executor.stats();
            stats.output_limit_disconnections.add(1);
            let client = client.session.id;
            tracing::warn!(client, unsent, "client closed: its unsent replies exceed the output limit");
        }
        exceeds
    }

    /// After a connection's requests ran: acts on what they made of its flow, and enforces its limits.
    fn settle(&mut self, conn: ConnId) {
        if self.exceeds_output_limit(conn) {
            return self.close(conn);
        }
        if !self.keep_input(conn) {
            return;
        }
        let Some(session) = session_mut(&mut self.clients, conn) else { return };
        match session.flow {
            Flow::Running => {}
            Flow::Waiting => self.settle_waiting(conn),
            Flow::Closing => {
                // Known to others before the last reply leaves: who redirects to it, say.
                session.info.state.closing.store(true, Relaxed);
                self.net.close_after_flush(conn);
            }
            Flow::Stalled | Flow::Freeing => self.net.pause_input(conn),
            Flow::Crowded => {
                self.crowded.push(conn);
                self.net.pause_input(conn);
            }
            Flow::Postponed => {
                session.info.state.postponed.store(true, Relaxed);
                self.postponed.push(conn);
                self.net.pause_input(conn);
            }
        }
    }
}

/// What the visits of one batch share.
struct BatchRun<'a> {
    shared: &'a Shared,
    /// No request begins after it, but a visit's first.
    deadline: Instant,
    timed: Timing,
}

impl BatchRun<'_> {
    /// Whether the batch has taken all of its time, as far as the clock was read.
    #[inline]
    fn is_late(&self) -> bool {
        self.timed.now() >= self.deadline
    }
}

/// Answers bytes that are no request; the connection closes.
#[cold]
fn refuse_broken(session: &mut Session, parsed: &ParsedRequest, out: &mut ByteQueue) {
    if let Work::Broken(error) = &parsed.work {
        Reply::new(out, session.protocol).error_bytes(&error.error_line());
    }
    session.flow = Flow::Closing;
}

/// Writes down, for others to see, that a client was active. Its own thread is the only writer, so plain
/// loads and stores do.
#[inline]
fn note_activity(engine: &Engine<'_>, session: &Session, ran: u64, input_bytes: usize, output_bytes: usize) {
    let info = &session.info;
    let add =
        |counter: &std::sync::atomic::AtomicU64, n: u64| counter.store(counter.load(Relaxed) + n, Relaxed);
    info.traffic.last_active_ms.store(engine.executor.now.uptime_ms, Relaxed);
    add(&info.traffic.commands, ran);
    add(&info.traffic.input_bytes, input_bytes as u64);
    let stats = engine.executor.stats();
    stats.processed.add(ran);
    stats.input_bytes.add(input_bytes as u64);
    note_output(engine, info, output_bytes);
}

/// Writes down, for others to see, how much a client was sent. Messages are counted where they are delivered.
#[inline]
fn note_output(engine: &Engine<'_>, info: &ClientInfo, len_bytes: usize) {
    info.count_output(len_bytes as u64);
    engine.executor.stats().output_bytes.add(len_bytes as u64);
}

/// Writes down, for others to see, what of a client's input is not consumed.
#[inline]
fn note_unread(session: &Session, inputs: &net::Inputs) {
    let (unread, capacity) = (inputs.len_bytes(session.conn), inputs.capacity_bytes(session.conn));
    session.info.held.pending_input_bytes.store(unread as u64, Relaxed);
    session.info.held.input_room_bytes.store(capacity.saturating_sub(unread) as u64, Relaxed);
}

/// Writes down, for others to see, what of a client's output is not sent.
#[cold]
fn note_unsent(session: &Session, outputs: &net::Outputs) {
    let (info, conn) = (&session.info, session.conn);
    let unsent = outputs.len_bytes(conn) as u64;
    let (pieces, capacity) =
        if unsent == 0 { (0, 0) } else { (outputs.piece_count(conn), outputs.capacity_bytes(conn)) };
    info.held.pending_output_bytes.store(unsent, Relaxed);
    info.held.pending_output_chunks.store(pieces as u64, Relaxed);
    info.held.output_buffer_bytes.store(capacity as u64, Relaxed);
    info.held.output_peak_bytes.fetch_max(unsent, Relaxed);
}

/// What a client outside the loopback is told in protected mode.
const PROTECTED_MODE_LINE: &[u8] = b"-DENIED Saker runs in protected mode: no password is set, so only \
clients on this machine may connect. Set a password (requirepass), or 'CONFIG SET protected-mode no' from a \
client on this machine, or start the server with '--protected-mode no'.\r\n";

/// The session of a connection, without a look at its generation.
fn session_of(clients: &[Option<Box<Client>>], conn: ConnId) -> Option<&Session> {
    clients[conn.index()].as_deref().map(|client| &client.session)
}

/// As [`session_of`], to change.
#[inline]
fn session_mut(clients: &mut [Option<Box<Client>>], conn: ConnId) -> Option<&mut Session> {
    clients[conn.index()].as_deref_mut().map(|client| &mut client.session)
}
