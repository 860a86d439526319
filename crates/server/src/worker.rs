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
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keyspace::gate::SharedPass;
use net::{Address, ConnId, Event, EventLoop, Listener, ListenerId, Socket};
use resp::parse::Progress;
use resp::{Protocol, Reply};
use stdx::ByteQueue;

use crate::batch::{Batch, ConnTurn, ParsedRequest, Source, Work};
use crate::client_eviction;
use crate::dispatch::{Engine, Outcome};
use crate::run_queue::{RunQueue, Visit};
use crate::session::{ClientInfo, Flow, Place, ReplyMode, Session};
use crate::settings::OUTPUT_SHOWN_BYTES_MIN;
use crate::shared::{Inbound, Killed, Message, Shared, ThreadPort};
use crate::spikes::Event as LatencyEvent;
use crate::timing::Timing;

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

/// An I/O thread.
pub struct Worker {
    net: EventLoop,
    sessions: Vec<Option<Box<Session>>>,
    engine: Engine,
    batch: Batch,
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

impl Worker {
    /// A worker over `net`, as thread `thread` of the server.
    pub fn new(net: EventLoop, shared: Arc<Shared>, thread: usize, seed: u64) -> Self {
        Self {
            net,
            sessions: Vec::new(),
            engine: Engine::new(shared, thread, seed),
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
        let shared = Arc::clone(&self.engine.shared);
        let port = &shared.threads[self.engine.standing.thread];
        let mut events = Vec::new();
        loop {
            let may_sleep = port.mailbox.prepare_sleep() && self.run_queue.is_empty();
            let timeout = if may_sleep { self.timeout() } else { Some(Duration::ZERO) };
            let polled = self.net.poll(timeout, &mut events);
            port.mailbox.awake();
            polled?;
            let began = Instant::now();
            self.engine.turn.begin(began);
            let mut pass = shared.gate.shared(self.engine.standing.thread);
            self.engine.begin_turn(began);
            if pass.has_waited() {
                self.engine.note_spike(LatencyEvent::GateWait, began.elapsed());
            }
            self.take_messages(port);
            self.take_publications();
            for event in events.drain(..) {
                self.handle(event);
            }
            self.end_waits();
            self.run_ready(began, &mut pass);
            self.engine.keep_limits();
            self.engine.broadcast_changes();
            self.take_inbound();
            self.take_publications();
            self.send_freed_replies();
            self.engine.end_turn();
            drop(pass);
            port.stats.writes.add(self.net.flush() as u64);
            self.engine.turn.end(Instant::now(), &port.stats);
            self.engine.free_owed(began);
            self.look_behind();
            shared.pubsub.note_sent(&shared, self.engine.standing.thread);
            // Acquire: pairs with the swap in `Shared::stop`.
            if shared.stopping.load(Acquire) {
                return Ok(());
            }
        }
    }

    /// How long to sleep: until the pause that holds sessions back ends or a client stops waiting, else until
    /// something happens.
    fn timeout(&self) -> Option<Duration> {
        let pause = (!self.postponed.is_empty()).then(|| {
            let left_ms = self.engine.shared.pause.until_ms.load(Relaxed) - unix_ms();
            Duration::from_millis(left_ms.clamp(0, 1000) as u64)
        });
        let wait = self.timeouts.first_key_value().map(|(&(deadline_ms, _), _)| {
            Duration::from_millis(deadline_ms).saturating_sub(self.engine.shared.started.elapsed())
        });
        let behind = (!self.behind.is_empty()).then_some(BEHIND_SLEEP);
        pause.into_iter().chain(wait).chain(behind).min()
    }

    fn take_messages(&mut self, port: &ThreadPort) {
        while let Some(message) = port.mailbox.receive() {
            match message {
                Message::Adopt(socket) => self.adopt(socket),
                Message::CloseIdle => self.close_idle(),
                Message::CountClients => self.count_clients(),
                Message::Listen { add, keep } => self.listen_elsewhere(add, &keep),
                Message::Gone(keys) => {
                    self.engine.effects.gone.extend(keys);
                    self.engine.tell_followers_of_gone(0);
                }
                Message::Delivered | Message::Resume | Message::EnforceMemory | Message::Stop => {}
            }
        }
        if !self.postponed.is_empty()
            && self.engine.shared.pause.until_ms.load(Relaxed) <= self.engine.standing.now_ms
        {
            for conn in std::mem::take(&mut self.postponed) {
                self.resume(conn, Flow::Postponed);
            }
        }
    }

    /// Hands this thread's subscribers what was published, ends those that do not read, and lets publishers
    /// go on that waited for room.
    fn take_publications(&mut self) {
        let outputs = self.net.split().1;
        self.engine.deliver_publications(outputs, &mut self.slow_subscribers);
        for conn in std::mem::take(&mut self.slow_subscribers) {
            if self.session(conn).is_some() && self.exceeds_output_limit(conn) {
                self.close(conn);
            }
        }
        if !self.crowded.is_empty() && !self.engine.shared.pubsub.is_crowded() {
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
        let shared = Arc::clone(&self.engine.shared);
        if let Some(refusal) = self.refusal(&socket) {
            shared.rejected_connections.fetch_add(1, Relaxed);
            // The client may be gone already; there is nobody else to tell.
            let _ = socket.send_once(refusal);
            return;
        }
        let own = self.engine.standing.thread;
        let loads = shared.threads.iter().enumerate();
        let target = loads.min_by_key(|(index, port)| (port.load.load(Relaxed), *index != own));
        let (index, port) = target.expect("a server has at least one I/O thread");
        port.load.fetch_add(1, Relaxed);
        if index == own {
            self.adopt(socket);
        } else if let Err(Message::Adopt(socket)) = port.mailbox.send(Message::Adopt(socket)) {
            // Thousands of connections wait there already: this one stays here.
            port.load.fetch_sub(1, Relaxed);
            shared.threads[own].load.fetch_add(1, Relaxed);
            self.adopt(socket);
        }
    }

    /// Why a new connection is not taken in, as the line to send.
    fn refusal(&self, socket: &Socket) -> Option<&'static [u8]> {
        let settings = &self.engine.settings;
        let open: usize = self.engine.shared.threads.iter().map(|port| port.load.load(Relaxed)).sum();
        if open >= settings.maxclients {
            return Some(b"-ERR max number of clients reached\r\n");
        }
        let Address::Tcp(peer) = socket.peer_address() else { return None };
        if settings.protected_mode
            && settings.requirepass.is_empty()
            && !peer.ip().to_canonical().is_loopback()
        {
            return Some(PROTECTED_MODE_LINE);
        }
        None
    }

    fn adopt(&mut self, socket: Socket) {
        let (peer, local) = (socket.peer_address().clone(), socket.local_address().clone());
        let shared = Arc::clone(&self.engine.shared);
        let port = &shared.threads[self.engine.standing.thread];
        let keepalive_s = self.engine.settings.tcp_keepalive_s;
        self.net.set_default_keepalive((keepalive_s > 0).then(|| Duration::from_secs(keepalive_s)));
        let conn = match self.net.adopt(socket) {
            Ok(conn) => conn,
            Err(error) => {
                port.load.fetch_sub(1, Relaxed);
                tracing::warn!(%error, "taking a client in failed");
                return;
            }
        };
        let id = shared.clients.next_id();
        let fd = self.net.fd(conn).map_or(-1, |fd| std::os::fd::AsRawFd::as_raw_fd(&fd));
        let now_ms = shared.uptime_ms();
        let place = Place { thread: self.engine.standing.thread, conn, fd };
        let info = Arc::new(ClientInfo::new(id, place, (peer, local), now_ms));
        shared.clients.add(Arc::clone(&info));
        port.stats.connections.add(1);
        port.stats.clients.add(1);
        let session = Session {
            conn,
            id,
            info,
            db: 0,
            protocol: Protocol::Resp2,
            authenticated: self.engine.settings.requirepass.is_empty(),
            reply_mode: ReplyMode::On,
            no_touch: false,
            flow: Flow::Running,
            answered: 0,
            progress: Progress::default(),
            soft_limit_since_ms: None,
            is_queued: false,
            is_behind: false,
            tracking: None,
            monitoring: false,
            in_exec: false,
            transaction: None,
            watch: None,
            subscriptions: None,
        };
        if self.sessions.len() <= conn.index() {
            self.sessions.resize_with(conn.index() + 1, || None);
        }
        self.sessions[conn.index()] = Some(Box::new(session));
    }

    fn session(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.sessions.get_mut(conn.index())?.as_deref_mut().filter(|session| session.conn == conn)
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
        let Some(mut session) = self.sessions[conn.index()].take() else { return };
        let waiter = session.info.waiter().clone();
        if let Some(waiter) = waiter {
            // Whoever serves it now is the last: the reply finds no client.
            self.engine.shared.follows.end(&waiter);
            if let Some(deadline_ms) = waiter.deadline_ms {
                self.timeouts.remove(&(deadline_ms, waiter.ticket));
            }
        }
        session.end_wait(&self.engine.shared);
        session.discard(&self.engine.shared);
        session.unsubscribe_all(&self.engine.shared, None);
        session.stop_listening(&self.engine.shared);
        session.info.gone.store(true, Relaxed);
        let port = &self.engine.shared.threads[self.engine.standing.thread];
        port.stats.clients.sub(1);
        client_eviction::uncount(&self.engine.shared, &session.info);
        self.engine.shared.unlist(&session.info);
    }

    /// Lets a session that was held back for `reason` go on with its waiting input.
    fn resume(&mut self, conn: ConnId, reason: Flow) {
        let Some(session) = self.session(conn) else { return };
        if session.flow != reason {
            return;
        }
        session.flow = Flow::Running;
        session.info.postponed.store(false, Relaxed);
        self.net.resume_input(conn);
        self.make_ready(conn);
    }

    /// Has what a connection sent parsed and run in this turn, or the next.
    #[inline]
    fn make_ready(&mut self, conn: ConnId) {
        if let Some(session) = self.sessions.get_mut(conn.index()).and_then(Option::as_deref_mut)
            && session.conn == conn
            && !std::mem::replace(&mut session.is_queued, true)
        {
            self.run_queue.push(conn);
        }
    }

    /// A connection has sent all its output.
    fn drained(&mut self, conn: ConnId) {
        let session = self.sessions.get(conn.index()).and_then(Option::as_deref);
        if let Some(session) = session.filter(|session| session.conn == conn) {
            note_unsent(session, self.net.split().1);
        }
        self.resume(conn, Flow::Stalled);
    }

    /// A client has begun to wait for a key: notes for how long.
    fn settle_waiting(&mut self, conn: ConnId) {
        let Some(session) = self.session(conn) else { return };
        let waiter = session.info.waiter().clone();
        if let Some(waiter) = waiter
            && let Some(deadline_ms) = waiter.deadline_ms
        {
            self.timeouts.insert((deadline_ms, waiter.ticket), conn);
        }
    }

    /// Hands waiting clients the replies that others made for them, and closes killed clients.
    fn take_inbound(&mut self) {
        let shared = Arc::clone(&self.engine.shared);
        let port = &shared.threads[self.engine.standing.thread];
        let Some(Inbound { deliveries, kills }) = port.inbox.take() else { return };
        // Messages about what was done before a waiting client was served.
        self.take_publications();
        for delivery in deliveries {
            let Some(session) = self.session(delivery.conn) else { continue };
            let awaits =
                session.info.waiter().as_ref().is_some_and(|waiter| waiter.ticket == delivery.ticket);
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
        while let Some((&(deadline_ms, ticket), &conn)) = self.timeouts.first_key_value()
            && deadline_ms <= self.engine.standing.uptime_ms
        {
            self.timeouts.remove(&(deadline_ms, ticket));
            let Some(session) = self.session(conn) else { continue };
            let Some(waiter) = session.info.waiter().clone().filter(|waiter| waiter.ticket == ticket) else {
                continue;
            };
            // Served at this very moment: its reply is on the way.
            if self.engine.shared.follows.end(&waiter) {
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
        let shared = Arc::clone(&self.engine.shared);
        let Some(session) = self.session(conn) else { return };
        let waiter = session.info.waiter().clone();
        session.end_wait(&shared);
        session.info.last_active_ms.store(shared.uptime_ms(), Relaxed);
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
            let session = self.sessions[conn.index()].as_deref().expect("it was looked at above");
            note_output(&self.engine, &session.info, reply_bytes);
            self.engine.note_waited(session, &waiter, took, ahead_bytes + reply_bytes);
        }
        self.resume(conn, Flow::Waiting);
    }

    /// Counts all clients of this thread anew for `maxmemory-clients`. O(clients).
    fn count_clients(&mut self) {
        let limit = self.engine.settings.maxmemory_clients_bytes;
        if limit == 0 {
            return;
        }
        let shared = Arc::clone(&self.engine.shared);
        let mut over = false;
        for session in self.sessions.iter().flatten() {
            note_unread(session, self.net.inputs());
            note_unsent(session, self.net.split().1);
            over |= client_eviction::count(&shared, &session.info, limit);
        }
        if over {
            client_eviction::evict(&shared, self.engine.standing.thread, limit);
        }
    }

    /// Counts what a client makes the server hold, where there is a limit to that; whether it was evicted.
    #[cold]
    fn is_evicted(&mut self, conn: ConnId) -> bool {
        let limit = self.engine.settings.maxmemory_clients_bytes;
        let Some(session) = self.sessions[conn.index()].as_deref() else { return true };
        let shared = &self.engine.shared;
        if client_eviction::count(shared, &session.info, limit) {
            client_eviction::evict(shared, self.engine.standing.thread, limit);
        }
        session.info.kill_requested.load(Relaxed)
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
        if let Some(session) = self.session(conn)
            && !std::mem::replace(&mut session.is_behind, true)
        {
            self.behind.push_back(conn);
        }
    }

    #[cold]
    fn look_behind_one(&mut self, conn: ConnId) {
        let Some(session) = self.session(conn) else { return };
        session.is_behind = false;
        let Some(session) = self.sessions[conn.index()].as_deref() else { return };
        note_unsent(session, self.net.split().1);
        if self.exceeds_output_limit(conn) {
            // It leaves the queues of its keys, under the locks of their shards.
            let shared = Arc::clone(&self.engine.shared);
            let _pass = shared.gate.shared(self.engine.standing.thread);
            return self.close(conn);
        }
        if self.engine.settings.maxmemory_clients_bytes > 0 && self.is_evicted(conn) {
            return;
        }
        if self.net.split().1.len_bytes(conn) > 0 {
            self.note_behind(conn);
        }
    }

    fn close_idle(&mut self) {
        let timeout_ms = self.engine.settings.timeout_s * 1000;
        if timeout_ms == 0 {
            return;
        }
        let now = self.engine.standing.uptime_ms;
        let idle = self
            .sessions
            .iter()
            .flatten()
            .filter(|session| !session.monitoring && session.subscriptions.is_none())
            .filter(|session| !matches!(session.flow, Flow::Waiting | Flow::Postponed))
            .filter(|session| now.saturating_sub(session.info.last_active_ms.load(Relaxed)) > timeout_ms);
        for conn in idle.map(|session| session.conn).collect::<Vec<_>>() {
            self.close(conn);
        }
    }

    /// Runs what ready connections sent, batch after batch, until the turn's budget is spent, so that what
    /// arrived meanwhile is read, and replies leave.
    fn run_ready(&mut self, began: Instant, pass: &mut SharedPass<'_>) {
        let port = &self.engine.shared.threads[self.engine.standing.thread];
        port.stats.reads.add(self.run_queue.begin_turn() as u64);
        let budget = self.engine.settings.turn_budget;
        let mut now = began;
        loop {
            let late = now - began >= budget;
            if self.run_queue.is_empty() || (late && !self.run_queue.owes_a_visit()) {
                break;
            }
            self.batch.clear();
            while !self.batch.is_full()
                && let Some(visit) = self.run_queue.next(late)
            {
                if let Some(session) = self.session(visit.conn) {
                    session.is_queued = false;
                    self.collect(visit);
                }
            }
            self.batch.prefetch(&self.engine.shared.keyspace);
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
        if let Some(session) = self.session(visit.conn)
            && !std::mem::replace(&mut session.is_queued, true)
        {
            self.run_queue.put_back(visit);
        }
    }

    /// Puts a connection that has more to run behind the others.
    fn carry(&mut self, conn: ConnId) {
        if let Some(session) = self.session(conn)
            && session.flow == Flow::Running
            && !std::mem::replace(&mut session.is_queued, true)
        {
            self.run_queue.carry(conn);
        }
    }

    /// Adds what a connection sent to the batch, as far as it is whole and fits.
    fn collect(&mut self, visit: Visit) {
        let (conn, limits) = (visit.conn, self.engine.settings.parse_limits());
        let Some(session) = self.session(conn) else { return };
        if session.flow != Flow::Running {
            if session.flow == Flow::Waiting {
                // It is listened to all the same, so that its end is noticed.
                self.keep_input(conn);
            }
            return;
        }
        if self.engine.settings.maxmemory_clients_bytes > 0 {
            // What lies in the memory that all share for a turn is none of the client's.
            let inputs = self.net.inputs();
            let held = inputs.len_bytes(conn).min(inputs.capacity_bytes(conn));
            if let Some(session) = self.sessions[conn.index()].as_deref() {
                session.info.pending_input_bytes.store(held as u64, Relaxed);
            }
            if self.is_evicted(conn) {
                return;
            }
        }
        let Some(session) = self.sessions[conn.index()].as_deref_mut() else { return };
        let (position, input) = (self.net.inputs().position(conn), self.net.inputs().bytes(conn));
        let source = Source { session, visit, position, input };
        if !self.batch.collect(source, limits, &self.engine.shared) {
            // Nothing is whole yet, so nothing will run and be settled.
            self.keep_input(conn);
        }
    }

    /// Runs the batch, connection by connection. Begins no request after `deadline`, the first one
    /// excepted. When it ended.
    fn execute(&mut self, deadline: Instant, pass: &mut SharedPass<'_>) -> Instant {
        let shared = Arc::clone(&self.engine.shared);
        let mut run = BatchRun { shared: &shared, deadline, timed: Timing::start(&self.engine) };
        let visits = self.batch.turns.len();
        for at in 0..visits {
            if at > 0 && run.is_late() {
                (at..visits).rev().for_each(|at| self.run_first(self.batch.turns[at].visit));
                break;
            }
            self.visit(at, &mut run, pass);
        }
        let stats = &shared.threads[self.engine.standing.thread].stats;
        stats.running_nanos.add(run.timed.total().as_nanos() as u64);
        run.timed.now()
    }

    /// Runs what the batch has of one connection, at least one request, and settles with it.
    fn visit(&mut self, at: usize, run: &mut BatchRun<'_>, pass: &mut SharedPass<'_>) {
        let ConnTurn { visit: Visit { conn, .. }, ref requests, skip_to, mut has_more } =
            self.batch.turns[at];
        let Some(session) = self.sessions[conn.index()].as_deref_mut() else { return };
        self.engine.turn.enter(&mut session.answered);
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
            let Some(request) = self.batch.request(parsed, input, run.shared.keyspace.hasher()) else {
                refuse_broken(session, parsed, out);
                break;
            };
            if session.subscriptions.is_some() {
                // What was published before, by itself too, comes before the next reply. It is counted there.
                let before = out.len_bytes();
                self.engine.deliver_publications(outputs, &mut self.slow_subscribers);
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
            run.timed.ran(&mut self.engine, session, &request, bytes, next);
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
        let ran = u64::try_from(ran + std::mem::take(&mut self.engine.calls_beyond)).unwrap_or(0);
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
        let query_max = self.engine.settings.query_buffer_bytes_max;
        let Some(session) = self.sessions[conn.index()].as_deref() else { return false };
        note_unread(session, self.net.inputs());
        let queued = session.transaction.as_ref().map_or(0, |transaction| transaction.query_bytes());
        let unread = self.net.inputs().len_bytes(conn) + queued;
        if unread as u64 > query_max && matches!(session.flow, Flow::Running | Flow::Waiting) {
            self.engine.note_long_query(session.id, unread);
            self.close(conn);
            return false;
        }
        self.engine.settings.maxmemory_clients_bytes == 0 || !self.is_evicted(conn)
    }

    /// Whether a connection must be closed for what it has not read.
    fn exceeds_output_limit(&mut self, conn: ConnId) -> bool {
        let outputs = self.net.split().1;
        let unsent = outputs.len_bytes(conn);
        let settings = &self.engine.settings;
        let now = self.engine.standing.uptime_ms;
        let Some(session) = self.sessions[conn.index()].as_deref_mut() else { return false };
        let limit = if session.monitoring {
            settings.monitor_output_limit
        } else if session.subscriptions.is_some() {
            settings.pubsub_output_limit
        } else {
            settings.output_limit
        };
        if unsent >= OUTPUT_SHOWN_BYTES_MIN && !std::mem::replace(&mut session.is_behind, true) {
            // What is less leaves at the end of this turn.
            self.behind.push_back(conn);
        }
        let counted = if unsent > OUTPUT_UNCOUNTED_BYTES { unsent as u64 } else { 0 };
        let exceeds = if limit.hard_bytes > 0 && counted > limit.hard_bytes {
            true
        } else if limit.soft_bytes > 0 && counted > limit.soft_bytes {
            let since = *session.soft_limit_since_ms.get_or_insert(now);
            now - since > limit.soft_seconds * 1000
        } else {
            session.soft_limit_since_ms = None;
            false
        };
        if exceeds {
            let stats = &self.engine.shared.threads[self.engine.standing.thread].stats;
            stats.output_limit_disconnections.add(1);
            let client = session.id;
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
        let Some(session) = self.sessions[conn.index()].as_deref_mut() else { return };
        match session.flow {
            Flow::Running => {}
            Flow::Waiting => self.settle_waiting(conn),
            Flow::Closing => {
                // Known to others before the last reply leaves: who redirects to it, say.
                session.info.closing.store(true, Relaxed);
                self.net.close_after_flush(conn);
            }
            Flow::Stalled | Flow::Freeing => self.net.pause_input(conn),
            Flow::Crowded => {
                self.crowded.push(conn);
                self.net.pause_input(conn);
            }
            Flow::Postponed => {
                session.info.postponed.store(true, Relaxed);
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
fn note_activity(engine: &Engine, session: &Session, ran: u64, input_bytes: usize, output_bytes: usize) {
    let info = &session.info;
    let add =
        |counter: &std::sync::atomic::AtomicU64, n: u64| counter.store(counter.load(Relaxed) + n, Relaxed);
    info.last_active_ms.store(engine.standing.uptime_ms, Relaxed);
    add(&info.commands, ran);
    add(&info.input_bytes, input_bytes as u64);
    let stats = &engine.shared.threads[engine.standing.thread].stats;
    stats.processed.add(ran);
    stats.input_bytes.add(input_bytes as u64);
    note_output(engine, info, output_bytes);
}

/// Writes down, for others to see, how much a client was sent. Messages are counted where they are delivered.
#[inline]
fn note_output(engine: &Engine, info: &ClientInfo, len_bytes: usize) {
    info.count_output(len_bytes as u64);
    engine.shared.threads[engine.standing.thread].stats.output_bytes.add(len_bytes as u64);
}

/// Writes down, for others to see, what of a client's input is not consumed.
#[inline]
fn note_unread(session: &Session, inputs: &net::Inputs) {
    let (unread, capacity) = (inputs.len_bytes(session.conn), inputs.capacity_bytes(session.conn));
    session.info.pending_input_bytes.store(unread as u64, Relaxed);
    session.info.input_room_bytes.store(capacity.saturating_sub(unread) as u64, Relaxed);
}

/// Writes down, for others to see, what of a client's output is not sent.
#[cold]
fn note_unsent(session: &Session, outputs: &net::Outputs) {
    let (info, conn) = (&session.info, session.conn);
    let unsent = outputs.len_bytes(conn) as u64;
    let (pieces, capacity) =
        if unsent == 0 { (0, 0) } else { (outputs.piece_count(conn), outputs.capacity_bytes(conn)) };
    info.pending_output_bytes.store(unsent, Relaxed);
    info.pending_output_chunks.store(pieces as u64, Relaxed);
    info.output_buffer_bytes.store(capacity as u64, Relaxed);
    info.output_peak_bytes.fetch_max(unsent, Relaxed);
}

/// What a client outside the loopback is told in protected mode.
const PROTECTED_MODE_LINE: &[u8] = b"-DENIED Saker runs in protected mode: no password is set, so only \
clients on this machine may connect. Set a password (requirepass), or 'CONFIG SET protected-mode no' from a \
client on this machine, or start the server with '--protected-mode no'.\r\n";

/// Unix time in milliseconds.
pub fn unix_ms() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}
