//! A simulated I/O thread. Its turn takes the same steps as in the server, in the same order, but
//! without sockets.
//!
//! A reply is sent when the change log has released the position of the last change that the reply
//! shows. For each connection, the output records the position that each part of its bytes shows,
//! and holds back bytes whose position is not released.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use engine::acl::Identity;
use engine::batch::{Batch, ConnTurn, Source};
use engine::client::{ClientInfo, Place};
use engine::clock::{Clock, ManualClock};
use engine::log::level::Level;
use engine::publish::Outputs;
use engine::run::Executor;
use engine::session::{Flow, ReplyMode, Session};
use engine::threads::{Inbound, Killed};
use engine::timing::Timing;
use engine::turn::{Engine, Outcome};
use keyspace::gate::SharedPass;
use resp::Protocol;
use resp::parse::Progress;
use stdx::{Address, ByteQueue, ConnId};

use super::host::SimulatedHost;
use super::kernel::{Event, LinkId, Message, Sent};
use super::scripts::SimulatedScripts;
use super::world::World;

/// The unsent output of a connection, with the last log position that each part of it shows.
#[derive(Default)]
struct Output {
    queue: ByteQueue,
    /// The marks of the output in the order of its bytes. A mark is a pair: an end in the queue of
    /// bytes, and the last log position that the bytes before this end show.
    marks: VecDeque<(usize, u64)>,
    /// The level, written or synced, that the shown log positions must reach before the output is
    /// sent.
    level: Level,
}

impl Output {
    /// Records that the bytes appended to the output since the last mark show changes up to the log
    /// position `position`.
    fn mark(&mut self, position: u64) {
        let end = self.queue.len_bytes();
        if self.marks.back().map_or(0, |&(end, _)| end) < end {
            self.marks.push_back((end, position));
        }
    }

    /// Removes the bytes of the output that show no change after log position `released`. Returns
    /// them, and the last position that they show.
    fn take_released(&mut self, released: u64) -> (Vec<u8>, u64) {
        let (mut end, mut shown) = (0, 0);
        while let Some(&(to, position)) = self.marks.front()
            && position <= released
        {
            (end, shown) = (to, shown.max(position));
            self.marks.pop_front();
        }
        self.marks.iter_mut().for_each(|(to, _)| *to -= end);
        let rest = self.queue.split_off(end);
        let taken = std::mem::replace(&mut self.queue, rest);
        let bytes = taken.io_slices(usize::MAX).iter().flat_map(|piece| piece.to_vec()).collect();
        (bytes, shown)
    }
}

/// The outputs of a simulated thread's connections, by the connection's index.
#[derive(Default)]
struct LinkOutputs(Vec<Output>);

impl Outputs for LinkOutputs {
    fn queue(&mut self, conn: ConnId) -> &mut ByteQueue {
        &mut self.0[conn.index()].queue
    }

    fn len_bytes(&mut self, conn: ConnId) -> usize {
        self.0[conn.index()].queue.len_bytes()
    }

    fn shows(&mut self, conn: ConnId, _len_bytes: usize, position: u64) {
        self.0[conn.index()].mark(position);
    }
}

/// A client that this simulated thread serves: its session, and its received bytes.
struct Client {
    session: Session,
    progress: Progress,
    input: Vec<u8>,
    /// The number of bytes of the input that the thread has parsed so far.
    consumed: u64,
    is_ready: bool,
}

/// A simulated I/O thread: its engine, its clients and their outputs.
pub(super) struct IoThread<'w> {
    world: &'w World,
    index: usize,
    engine: Engine<'w, ManualClock, SimulatedHost>,
    clients: Vec<Option<Box<Client>>>,
    outputs: LinkOutputs,
    links: BTreeMap<LinkId, ConnId>,
    batch: Batch<ConnId>,
    ready: VecDeque<ConnId>,
    /// The timeouts of blocked clients, by deadline in milliseconds of uptime and ticket of the
    /// wait.
    timeouts: BTreeMap<(u64, u64), ConnId>,
    /// The connections whose requests wait for the end of CLIENT PAUSE.
    paused: Vec<ConnId>,
    /// The connections whose requests wait for room in the change log.
    awaiting_log: Vec<ConnId>,
    subscribers_full: Vec<ConnId>,
    over: Vec<ConnId>,
    stops: bool,
}

impl<'w> IoThread<'w> {
    /// Creates the I/O thread with index `index` of the world's engine.
    pub fn new(world: &'w World, index: usize, seed: u64) -> Self {
        let host = world.host();
        let mut executor = Executor::new(&world.engine, Some(index), seed, (world.clock.clone(), host));
        executor.scripts = Some(Box::new(SimulatedScripts::new(&world.lessons)));
        Self {
            world,
            index,
            engine: Engine::new(executor),
            clients: Vec::new(),
            outputs: LinkOutputs::default(),
            links: BTreeMap::new(),
            batch: Batch::default(),
            ready: VecDeque::new(),
            timeouts: BTreeMap::new(),
            paused: Vec::new(),
            awaiting_log: Vec::new(),
            subscribers_full: Vec::new(),
            over: Vec::new(),
            stops: false,
        }
    }

    /// Runs the simulated I/O thread until it receives [`Message::Stop`].
    pub fn run(mut self) {
        let port = &self.world.kernel.ports[self.index];
        let mut all_released = true;
        while !self.stops {
            let may_sleep = port.mailbox.prepare_sleep() && self.ready.is_empty() && all_released;
            let events = port.poll.wait(may_sleep.then(|| self.deadline_ms()));
            port.mailbox.awake();
            self.turn(events);
            all_released = self.send();
        }
        self.world.kernel.leave();
    }

    /// Returns the earliest timeout of a blocked client or of CLIENT PAUSE, in milliseconds of
    /// uptime; `None` if there is none.
    fn deadline_ms(&self) -> Option<u64> {
        let timeout_ms = self.timeouts.first_key_value().map(|(&(deadline_ms, _), _)| deadline_ms);
        // No pause is left if this thread has just ended it.
        let resumes_ms = || self.world.pause_ends_ms().unwrap_or_else(|| self.world.uptime_ms());
        let resumes_ms = (!self.paused.is_empty()).then(resumes_ms);
        [timeout_ms, resumes_ms].into_iter().flatten().min()
    }

    /// Runs one turn of the thread: handles the events of its poll, runs the requests and sends the
    /// replies.
    fn turn(&mut self, events: Vec<Event>) {
        let world = self.world;
        let began = world.clock.now();
        self.engine.executor.meter.turn.begin(began);
        let mut pass = world.engine.gate.shared(self.index);
        self.engine.begin(began);
        self.take_messages();
        self.take_publications();
        events.into_iter().for_each(|event| self.handle(event));
        self.end_waits();
        self.run_ready(&mut pass);
        if self.engine.keep_limits() {
            let _ = world.kernel.ports[self.index].mailbox.send(Message::EnforceMemory);
        }
        self.engine.executor.commit.broadcast();
        self.take_inbound();
        self.take_publications();
        for held in self.engine.freed_replies() {
            if self.session(held.conn).is_some_and(|session| session.id == held.client) {
                self.outputs.queue(held.conn).append(held.reply);
                self.mark(held.conn);
                self.resume(held.conn, Flow::AwaitingFree);
            }
        }
        self.engine.executor.end_turn();
    }

    /// Sends the released output of all connections at the end of a turn, when the thread no longer
    /// accesses the keyspace. Returns true if the thread may sleep. It may not if it must ask again
    /// for the release of held-back output.
    fn send(&mut self) -> bool {
        let world = self.world;
        world.wake(&self.engine.executor.commit.outbox);
        world.engine.log.merge(&self.engine.executor.commit.outbox);
        world.wake(&self.engine.executor.commit.outbox);
        let mut first_held = [None; Level::ALL.len()];
        for at in 0..self.clients.len() {
            let held = &mut first_held[self.outputs.0[at].level as usize];
            *held = [*held, self.send_to(at)].into_iter().flatten().min();
        }
        let now = world.clock.now();
        let executor = &mut self.engine.executor;
        executor.meter.turn.end(now, executor.stats());
        executor.free_displaced_values(|clock| clock.now() - now);
        world.wake(&self.engine.executor.commit.outbox);
        world.engine.pubsub.note_sent(self.index);
        // Both levels are requested, even if the thread may not sleep because of one of them.
        let waits = |level: Level| {
            let wait = |position| world.engine.log.wait_for_release(level, self.index, position);
            first_held[level as usize].is_none_or(wait)
        };
        Level::ALL.map(waits).into_iter().all(|waits| waits)
    }

    /// Sends the released output of one connection. Returns the log position for which its first
    /// held-back byte waits; `None` if no byte is held back.
    fn send_to(&mut self, at: usize) -> Option<u64> {
        let world = self.world;
        let client = self.clients[at].as_ref()?;
        let (link, closes) = (client.session.conn.generation(), client.session.flow == Flow::Closing);
        let output = &mut self.outputs.0[at];
        let level = output.level;
        let released = world.engine.log.released(level);
        let (bytes, shown) = output.take_released(released);
        let first_held = output.marks.front().map(|&(_, position)| position);
        let closed = closes && first_held.is_none();
        if shown > world.disk.reached(level) && released != u64::MAX {
            world.find(format!("a reply left that shows position {shown}, which is not {level:?} yet"));
        }
        if let Some(aof) = world.aof.as_ref().filter(|_| !bytes.is_empty()) {
            aof.note_sent(&world.disk, shown);
        }
        if !bytes.is_empty() || closed {
            world.kernel.send(Sent { link, bytes, closed });
        }
        first_held
    }

    fn take_messages(&mut self) {
        while let Some(message) = self.world.kernel.ports[self.index].mailbox.receive() {
            self.stops |= message == Message::Stop;
        }
        if self.world.pause_ends_ms().is_none() {
            for conn in std::mem::take(&mut self.paused) {
                self.resume(conn, Flow::Postponed);
            }
        }
        if !self.engine.executor.holds_back() {
            for conn in std::mem::take(&mut self.awaiting_log) {
                self.resume(conn, Flow::AwaitingLog);
            }
        }
    }

    fn take_publications(&mut self) {
        if self.engine.deliver_publications(&mut self.outputs, &mut self.over) {
            self.world.resume_all();
        }
        self.over.clear();
        if !self.subscribers_full.is_empty() && !self.world.engine.pubsub.are_subscribers_full() {
            for conn in std::mem::take(&mut self.subscribers_full) {
                self.resume(conn, Flow::AwaitingSubscribers);
            }
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected(link) => self.adopt(link),
            Event::Data(link, bytes) => {
                if let Some(&conn) = self.links.get(&link)
                    && let Some(client) = self.client(conn)
                {
                    client.input.extend_from_slice(&bytes);
                    self.make_ready(conn);
                }
            }
            Event::Closed(link) => {
                if let Some(&conn) = self.links.get(&link) {
                    self.forget(conn);
                }
            }
        }
    }

    fn adopt(&mut self, link: LinkId) {
        let at = self.clients.iter().position(Option::is_none).unwrap_or(self.clients.len());
        if at == self.clients.len() {
            self.clients.push(None);
            self.outputs.0.push(Output::default());
        }
        let shared = &self.world.engine;
        let conn = ConnId::new(at as u32, link);
        let address = || Address::Tcp(([127, 0, 0, 1], 1).into());
        let place = Place { thread: self.index, conn, fd: -1 };
        let id = shared.clients.next_id();
        let info = Arc::new(ClientInfo::new(id, place, (address(), address()), self.world.uptime_ms()));
        shared.clients.add(Arc::clone(&info));
        shared.threads[self.index].load.fetch_add(1, Relaxed);
        let session = Session::new(info, Identity::internal());
        let client = Client {
            session,
            progress: Progress::default(),
            input: Vec::new(),
            consumed: 0,
            is_ready: false,
        };
        self.clients[at] = Some(Box::new(client));
        let level = self.world.level(link);
        self.outputs.0[at] = Output { level, ..Output::default() };
        self.links.insert(link, conn);
    }

    fn client(&mut self, conn: ConnId) -> Option<&mut Client> {
        let client = self.clients.get_mut(conn.index())?.as_deref_mut();
        client.filter(|client| client.session.conn == conn)
    }

    fn session(&mut self, conn: ConnId) -> Option<&mut Session> {
        self.client(conn).map(|client| &mut client.session)
    }

    /// Records the log position that the bytes just appended to a connection's output show.
    fn mark(&mut self, conn: ConnId) {
        let Some(position) = self.session(conn).map(|session| session.observed_position()) else { return };
        self.outputs.0[conn.index()].mark(position);
    }

    fn make_ready(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn)
            && !std::mem::replace(&mut client.is_ready, true)
        {
            self.ready.push_back(conn);
        }
    }

    fn resume(&mut self, conn: ConnId, reason: Flow) {
        let Some(session) = self.session(conn) else { return };
        if session.flow == reason {
            session.flow = Flow::Running;
            session.info.state.postponed.store(false, Relaxed);
            self.make_ready(conn);
        }
    }

    /// Removes a closed connection and its state from the thread.
    fn forget(&mut self, conn: ConnId) {
        if self.session(conn).is_none() {
            return;
        }
        let Some(mut client) = self.clients[conn.index()].take() else { return };
        self.links.remove(&conn.generation());
        let session = &mut client.session;
        let shared = &self.world.engine;
        if let Some(blocked_by) = shared.blocked.of(&session.info) {
            shared.blocked.end(&blocked_by);
            self.timeouts.retain(|&(_, ticket), _| ticket != blocked_by.ticket);
        }
        shared.blocked.unblock(&shared.keyspace, &session.info);
        session.discard(&shared.watchers, &shared.keyspace);
        session.unsubscribe_all(&shared.pubsub, None);
        session.stop_tracking(&shared.tracking, &shared.keyspace);
        session.stop_monitoring(&shared.monitors);
        session.info.state.gone.store(true, Relaxed);
        shared.threads.unregister(&shared.clients, &session.info);
    }
}

/// The methods of an I/O thread that parse and run requests.
impl IoThread<'_> {
    /// Runs all requests that the thread has received, batch after batch.
    fn run_ready(&mut self, pass: &mut SharedPass<'_>) {
        let world = self.world;
        while !self.ready.is_empty() {
            self.batch.clear();
            while !self.batch.is_full()
                && let Some(conn) = self.ready.pop_front()
            {
                self.collect(conn);
            }
            self.batch.prefetch(&world.engine.keyspace);
            let mut timed = Timing::start(&self.engine.executor);
            for at in 0..self.batch.turns.len() {
                self.visit(at, &mut timed, pass);
            }
        }
    }

    /// Parses the complete requests of a connection into the batch, up to the limit of the batch.
    fn collect(&mut self, conn: ConnId) {
        let limits = self.engine.executor.settings.parse_limits();
        let Some(client) = self.clients.get_mut(conn.index()).and_then(Option::as_deref_mut) else { return };
        if client.session.conn != conn {
            return;
        }
        client.is_ready = false;
        if client.session.flow != Flow::Running {
            return;
        }
        let Client { session, progress, input, consumed, .. } = client;
        let source = Source { progress, db: session.db(), limits, visit: conn, position: *consumed, input };
        self.batch.collect(source, &self.world.engine);
    }

    /// Runs the requests of one connection that are in the batch.
    fn visit(&mut self, at: usize, timed: &mut Timing, pass: &mut SharedPass<'_>) {
        let world = self.world;
        let ConnTurn { visit: conn, ref requests, skip_to, has_more } = self.batch.turns[at];
        let Some(client) = self.clients[conn.index()].as_deref_mut() else { return };
        let Client { session, input, .. } = client;
        self.engine.executor.meter.turn.enter(&mut session.answered);
        let (mut done_bytes, mut ran_all) = (0, true);
        let mut requests = self.batch.requests[requests.clone()].iter().peekable();
        while session.flow == Flow::Running
            && let Some(parsed) = requests.next()
        {
            let Some(request) = self.batch.request(parsed, input, world.engine.keyspace.hasher()) else {
                world.find(format!("a request was not understood: {}", input.escape_ascii()));
                session.flow = Flow::Closing;
                break;
            };
            if session.subscriptions.is_some()
                && self.engine.deliver_publications(&mut self.outputs, &mut self.over)
            {
                world.resume_all();
            }
            if pass.is_wanted() {
                self.engine.yield_to_owner(pass, timed);
            }
            let out = self.outputs.queue(conn);
            let replied = out.len_bytes();
            if self.engine.run(session, &request, out, pass) == Outcome::Postponed {
                ran_all = false;
                break;
            }
            let bytes = [parsed.len_bytes, out.len_bytes().saturating_sub(replied)];
            self.outputs.0[conn.index()].mark(session.observed_position());
            world.wake(&self.engine.executor.commit.outbox);
            let next = requests.peek().and_then(|next| next.registered);
            timed.ran(&mut self.engine.executor, session, &request, bytes, next);
            done_bytes = parsed.start + parsed.len_bytes;
        }
        if ran_all && matches!(session.flow, Flow::Running | Flow::Closing) {
            done_bytes = done_bytes.max(skip_to);
        }
        client.input.drain(..done_bytes);
        client.consumed += done_bytes as u64;
        self.settle(conn);
        if has_more {
            self.make_ready(conn);
        }
    }

    /// Handles the state of a connection ([`Flow`]) after its requests have run: registers it if
    /// its client is blocked or must wait.
    fn settle(&mut self, conn: ConnId) {
        let shared = &self.world.engine;
        let Some(session) = self.session(conn) else { return };
        match session.flow {
            Flow::Blocked => {
                if let Some(blocked) = shared.blocked.of(&session.info) {
                    self.world.note_blocked(conn.generation());
                    if let Some(deadline_ms) = blocked.deadline_ms {
                        self.timeouts.insert((deadline_ms, blocked.ticket), conn);
                    }
                }
            }
            Flow::AwaitingSubscribers => self.subscribers_full.push(conn),
            Flow::Postponed => self.paused.push(conn),
            Flow::AwaitingLog => self.awaiting_log.push(conn),
            // No simulated client logs in, debugs or becomes a replica.
            Flow::AwaitingLogin | Flow::Debugging | Flow::Leaving => {}
            Flow::Running | Flow::Closing | Flow::AwaitingReader | Flow::AwaitingFree => {}
        }
    }
}

/// The methods that serve blocked clients and end their waits.
impl IoThread<'_> {
    fn take_inbound(&mut self) {
        let Some(Inbound { deliveries, kills }) = self.world.engine.threads.take(self.index) else { return };
        let shared = &self.world.engine;
        self.take_publications();
        for delivery in deliveries {
            let Some(session) = self.session(delivery.conn) else { continue };
            let blocked = shared.blocked.of(&session.info);
            let awaits = blocked.is_some_and(|blocked| blocked.ticket == delivery.ticket);
            if session.id == delivery.client && awaits {
                session.saw(delivery.position);
                self.end_wait(delivery.conn, delivery.took, |_, out| out.append(delivery.reply));
                self.outputs.queue(delivery.conn).append(delivery.pushes);
                self.mark(delivery.conn);
            }
        }
        for Killed { conn, client } in kills {
            if self.session(conn).is_some_and(|session| session.id == client) {
                self.forget(conn);
            }
        }
    }

    /// Ends the waits of blocked clients whose timeout has passed.
    fn end_waits(&mut self) {
        self.take_inbound();
        let now_ms = self.engine.executor.now.uptime_ms;
        while let Some(first) = self.timeouts.first_entry().filter(|first| first.key().0 <= now_ms) {
            let ((_, ticket), conn) = first.remove_entry();
            let shared = &self.world.engine;
            let Some(session) = self.session(conn) else { continue };
            let blocked = shared.blocked.of(&session.info);
            let Some(waiter) = blocked.filter(|blocked| blocked.ticket == ticket) else { continue };
            self.world.note_timeout(conn.generation());
            // If the client has just been served, this fails: its reply is on the way.
            if shared.blocked.end(&waiter) {
                self.end_wait(conn, Duration::ZERO, |protocol, out| waiter.write_empty(protocol, out));
            }
        }
    }

    /// Ends the wait of a blocked client with a reply, after it has waited for `took`.
    fn end_wait(&mut self, conn: ConnId, took: Duration, reply: impl FnOnce(Protocol, &mut ByteQueue)) {
        let shared = &self.world.engine;
        let Some(session) = self.session(conn) else { return };
        let waiter = shared.blocked.of(&session.info);
        shared.blocked.unblock(&shared.keyspace, &session.info);
        let (protocol, replies) = (session.protocol(), session.reply_mode == ReplyMode::On);
        if replies {
            reply(protocol, self.outputs.queue(conn));
            self.mark(conn);
        }
        if let Some(waiter) = waiter {
            self.timeouts.retain(|&(_, ticket), _| ticket != waiter.ticket);
            let client = self.clients[conn.index()].as_deref().expect("it was looked at above");
            self.engine.executor.record_unblocked(&client.session, &waiter, took, 0);
        }
        self.resume(conn, Flow::Blocked);
    }
}
