//! The thread `repl`, which owns the connections of replicas. It sends them snapshots and the
//! replication stream, receives their acknowledgements, and begins snapshots. It never waits for
//! another thread.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use engine::acl::IdentityState;
use engine::threads::Outbox;
use net::{Address, BackendChoice, ConnId, Event, EventLoop, LoopOptions};
use persist::folder::Unsaved;
use replicate::backlog::Piece;
use replicate::cohort::{Cohort, CohortOptions, Transfer, due};
use replicate::framing::Framing;
use replicate::handshake::{Capabilities, Purpose};
use replicate::primary::{AfterSnapshot, FullReason, Resync};
use replicate::replica::{Dialect, Phase, Replica};
use resp::parse::Progress;
use stdx::ByteQueue;
use stdx::mailbox::Mailbox;

use super::cohort_sync;
use super::good_replicas::update_good_replicas;
use super::link::{Link, Queued, SnapshotOutput, take_acks};
use crate::config::table::replication as options;
use crate::persistence::full_sync;
use crate::random::random_repl_id;
use crate::replica_stream as stream;
use crate::replication::PING;
use crate::replication::arrivals::SyncRequest;
use crate::replication::memory::{StreamMemory, backlog_limit_bytes, output_limit};
use crate::replication::messages::{Arrival, Begun, Message, NotBegun, Point};
use crate::shared::{Message as WorkerMessage, Shared};

/// The number of unsent bytes of a replica's connection below which more of the replication stream
/// is queued.
const WINDOW_BYTES: usize = 256 << 10;
/// The number of unsent bytes of a replica's connection below which more of a snapshot is queued.
/// It is larger than [`WINDOW_BYTES`], because replicas share the blocks of a snapshot.
const SNAPSHOT_WINDOW_BYTES: usize = 1 << 20;
/// The longest sleep of the thread `repl` while more bytes can be queued for a replica as soon as
/// it has received some.
const REFILL: Duration = Duration::from_millis(1);
/// The minimum length in bytes of a piece of the replication stream that is queued by reference.
/// Shorter pieces are copied.
const CHUNK_BYTES_MIN: usize = 512;
/// The capacity of the mailbox of the thread `repl`, in messages.
const MESSAGES_MAX: usize = 4096;
/// The time between two rounds of regular work of the thread `repl`: new snapshots, limits,
/// disconnections.
const ROUND: Duration = Duration::from_millis(100);
/// The time for which further changes are gathered after bytes were sent, unless a client waits for
/// acknowledgements. Each send costs a system call and a wake-up of the replica.
const GATHER: Duration = Duration::from_millis(1);

/// Passes the connection of a new replica to the thread `repl`. Starts the thread if necessary.
pub fn adopt(shared: &Arc<Shared>, arrival: Arrival) {
    let (id, arrival) = (arrival.info.id, Box::new(arrival));
    let sent = start(shared).and_then(|()| {
        let mailbox = shared.replication.mailbox.get();
        mailbox
            .ok_or_else(|| "no mailbox".to_owned())?
            .send(Message::Adopt(arrival))
            .map_err(|_| "busy".to_owned())
    });
    if let Err(error) = sent {
        tracing::warn!("Cannot serve a replica: {error}");
        shared.engine.clients.remove(id);
    }
}

/// Starts the thread `repl`, unless it already runs or the server stops.
///
/// # Errors
/// The reason why the thread cannot be started.
pub fn start(shared: &Arc<Shared>) -> Result<(), String> {
    let mut thread = shared.replication.thread.lock().expect("nothing panics while it is locked");
    if thread.is_some() || shared.stopping.load(Acquire) {
        return Ok(());
    }
    let (sender, ready) = mpsc::channel();
    let thread_shared = Arc::clone(shared);
    let body = move || match EventLoop::new(&loop_options()) {
        Ok(net) => {
            let waker = net.waker();
            // A failed wake-up leaves the thread asleep until its next round.
            let mailbox = Mailbox::new(MESSAGES_MAX, move || drop(waker.wake()));
            let _ = thread_shared.replication.mailbox.set(mailbox);
            let _ = sender.send(Ok(()));
            ReplicationThread::new(&thread_shared, net).run();
        }
        Err(error) => drop(sender.send(Err(error.to_string()))),
    };
    let spawned = std::thread::Builder::new().name("repl".to_owned()).spawn(body);
    let spawned = spawned.map_err(|error| error.to_string())?;
    let started = ready.recv().unwrap_or_else(|_| Err("the thread has ended".to_owned()));
    *thread = started.is_ok().then_some(spawned);
    started
}

/// Returns the options of the event loop of the thread `repl`. It has few connections, whose peers
/// send little.
fn loop_options() -> LoopOptions {
    LoopOptions {
        backend: BackendChoice::Epoll,
        turn_input_len_bytes_max: 256 << 10,
        gather_us_max: 0,
        ..LoopOptions::default()
    }
}

/// The state of the thread `repl`: the connections of the replicas, and the times of its regular
/// work.
struct ReplicationThread<'s> {
    shared: &'s Arc<Shared>,
    mailbox: &'s Mailbox<Message>,
    net: EventLoop,
    /// The connections of the replicas, by the ids of the clients that represent the replicas.
    links: BTreeMap<u64, Link>,
    /// The ids of the clients that represent the replicas, by the replicas' connections.
    clients: HashMap<ConnId, u64>,
    /// True while a thread `repl-sync` determines the point in the replication stream of a new
    /// snapshot.
    is_beginning: bool,
    /// The thread `repl-end`, which frees the backlog; it may have ended. `None` before the first
    /// one.
    ending: Option<JoinHandle<()>>,
    /// The value of `Users::closings` at the last check of the replicas' users. This counter grows
    /// when connections may have to be closed because users were changed.
    closings_seen: u64,
    next_round: Instant,
    rounds: u64,
    /// The time of the last PING in the replication stream, in milliseconds of the server's clock.
    last_ping_ms: u64,
}

/// The amount of bytes that were queued for replicas in one turn of the thread's loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fed {
    /// No bytes were queued for any replica.
    Nothing,
    /// All bytes that can be sent to a replica at present were queued for it.
    All,
    /// As many bytes as may be queued at a time were queued for a replica. There may be more.
    Window,
}

/// The number of rounds of regular work of the thread `repl` per second.
const ROUNDS_PER_SECOND: u64 = 10;

impl<'s> ReplicationThread<'s> {
    fn new(shared: &'s Arc<Shared>, net: EventLoop) -> Self {
        Self {
            shared,
            mailbox: shared.replication.mailbox.get().expect("it was set before"),
            net,
            links: BTreeMap::new(),
            clients: HashMap::new(),
            is_beginning: false,
            ending: None,
            closings_seen: shared.engine.acl.users.closings(),
            next_round: Instant::now() + ROUND,
            rounds: 0,
            last_ping_ms: shared.uptime_ms(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.shared.uptime_ms()
    }

    /// Runs the loop of the thread `repl` until the server stops: it receives requests of replicas,
    /// sends the replicas their bytes, and does regular work.
    fn run(mut self) {
        let (mut events, mut fed) = (Vec::new(), Fed::Nothing);
        // Acquire: pairs with the store in `Replication::join`.
        while !self.shared.replication.is_ending.load(Acquire) {
            let left = self.next_round.saturating_duration_since(Instant::now());
            // A poll does not return because a socket has taken all output of the turn before.
            let left = if fed == Fed::Window { left.min(REFILL) } else { left };
            let timeout = if self.mailbox.prepare_sleep() { left } else { Duration::ZERO };
            let polled = self.net.poll(Some(timeout), &mut events);
            self.mailbox.awake();
            if let Err(error) = polled {
                tracing::error!(%error, "the event loop of replication failed");
                std::thread::sleep(ROUND);
            }
            while let Some(message) = self.mailbox.receive() {
                self.take(message);
            }
            for event in events.drain(..) {
                self.handle(event);
            }
            if Instant::now() >= self.next_round {
                self.next_round = Instant::now() + ROUND;
                self.round();
            }
            // AcqRel: pairs with the swap in `notify`. News from before that swap are seen below;
            // later ones send a message.
            if self.shared.replication.notified.swap(false, AcqRel) {
                self.disconnect_outdated();
            }
            for client in self.shared.replication.take_kills() {
                self.disconnect(client);
            }
            fed = self.feed_all();
            self.net.flush();
            if fed == Fed::All && self.shared.replication.waiters.load(Relaxed) == 0 {
                // No client waits for an acknowledgement, so gathering costs nobody any time.
                std::thread::sleep(GATHER);
            }
        }
        // The last changes are sent as far as the sockets accept them at once, as in Redis.
        self.feed_all();
        self.net.flush();
    }

    fn take(&mut self, message: Message) {
        match message {
            Message::Adopt(arrival) => self.adopt(*arrival),
            Message::SyncBegun(result) => self.begun(result),
            // All links are fed in each turn, and the loop checks for its end.
            Message::Feed => {}
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Data(conn) => self.received(conn),
            Event::Closed(conn, _) => self.closed(conn),
            // All links are fed in each turn.
            Event::Drained(_) | Event::Woken => {}
            Event::Accepted { .. }
            | Event::AcceptFailed { .. }
            | Event::Secured(_)
            | Event::HandshakeFailed(..)
            | Event::PeerFinished(_)
            | Event::Connected(_)
            | Event::ConnectFailed(..)
            | Event::Released(..) => {}
        }
    }

    /// Adds the connection of a new replica to the event loop of the thread `repl`, and answers its
    /// PSYNC or SYNC.
    fn adopt(&mut self, Arrival { socket, info, identity, request }: Arrival) {
        if self.shared.engine.clients.get(info.id).is_none() {
            // It was killed on its way.
            return;
        }
        let conn = match self.net.adopt(socket) {
            Ok(conn) => conn,
            Err(error) => {
                tracing::warn!(%error, "Cannot serve a replica");
                self.shared.engine.clients.remove(info.id);
                return;
            }
        };
        if options::REPL_DISABLE_TCP_NODELAY.of(&self.shared.config())
            && let Some(fd) = self.net.fd(conn)
        {
            // It fails for Unix sockets, which have no such delay.
            let _ = rustix::net::sockopt::set_tcp_nodelay(fd, false);
        }
        let peer_ip = match &info.peer {
            Address::Tcp(address) => address.ip().to_string(),
            Address::Unix(path) => path.display().to_string(),
        };
        let replica = Replica::new(request.handshake.clone(), request.dialect, peer_ip, self.now_ms());
        let name = name_of(&replica);
        let client = info.id;
        self.clients.insert(conn, client);
        let link = Link {
            conn,
            info,
            identity,
            name,
            snapshot: None,
            progress_ms: self.now_ms(),
            progress: Progress::default(),
        };
        tracing::info!("Replica {} asks for synchronization", link.name);
        self.links.insert(client, link);
        self.shared.replication.link_count.store(self.links.len(), Relaxed);
        self.answer(client, replica, &request);
    }

    /// Adds a replica. Continues the replication stream at its offset if possible; otherwise the
    /// replica waits for a snapshot.
    fn answer(&mut self, client: u64, replica: Replica, request: &SyncRequest) {
        let shared = self.shared;
        let link = &self.links[&client];
        let limit_bytes = backlog_limit_bytes(&shared.config());
        let mut primary = shared.replication.primary();
        // The size may have been changed just now.
        primary.set_backlog_limit(limit_bytes);
        let resync = match replica.handshake.purpose {
            Purpose::Follow => primary.resync(&request.id, request.next),
            Purpose::SnapshotOnly => Resync::Full(FullReason::Requested),
        };
        let is_psync2 = replica.handshake.capabilities.contains(Capabilities::PSYNC2);
        let (history, end) = (*primary.history(), primary.end());
        primary.add(client, replica);
        if let Resync::Continue { from } = resync {
            primary.set_phase(client, Phase::Online, from);
        }
        drop(primary);
        let figures = &shared.replication.figures;
        match resync {
            Resync::Continue { from } => {
                figures.sync_partial_ok.fetch_add(1, Relaxed);
                tracing::info!(
                    "Partial resynchronization request from {} accepted. Sending {} bytes of backlog starting from offset {}.",
                    link.name,
                    end - from,
                    request.next
                );
                let line = match is_psync2 {
                    true => format!("+CONTINUE {}\r\n", history.id),
                    false => "+CONTINUE\r\n".to_owned(),
                };
                self.net.output(link.conn).tail_mut().extend_from_slice(line.as_bytes());
                self.acknowledged();
            }
            Resync::Full(reason) => {
                if request.dialect == Dialect::Psync && reason != FullReason::Requested {
                    figures.sync_partial_err.fetch_add(1, Relaxed);
                }
                log_full(link, reason, request, &history);
                self.begin_due();
            }
        }
    }

    /// Handles the requests that a replica has sent on `conn`. Records the offsets in
    /// acknowledgements. All other requests only show that the replica is alive.
    fn received(&mut self, conn: ConnId) {
        let Some(&client) = self.clients.get(&conn) else { return };
        let Some(link) = self.links.get_mut(&client) else { return };
        let inputs = self.net.inputs();
        let (input, position) = (inputs.bytes(conn), inputs.position(conn));
        match take_acks(input, position, &mut link.progress) {
            Err(error) => {
                tracing::warn!("Protocol error from replica {}: {error}", link.name);
                self.disconnect(client);
            }
            Ok((done_bytes, ack)) => {
                self.net.consume(conn, done_bytes);
                self.shared.replication.figures.input_bytes.fetch_add(done_bytes as u64, Relaxed);
                link.info.traffic.last_active_ms.store(self.shared.uptime_ms(), Relaxed);
                if let Some(replconf) = self.shared.engine.table.find(b"replconf") {
                    link.info.traffic.last_command.store(replconf.id as u64 + 1, Relaxed);
                }
                let now_ms = self.shared.uptime_ms();
                link.progress_ms = now_ms;
                if ack.is_none() && done_bytes > 0 {
                    // Replicas send newlines while they load.
                    self.shared.replication.primary().note_alive(client, now_ms);
                }
                if let Some(ack) = ack {
                    let becomes_online =
                        self.shared.replication.primary().acknowledge(client, ack.acked, ack.synced, now_ms);
                    if becomes_online {
                        tracing::info!("Synchronization with replica {} succeeded", self.links[&client].name);
                    }
                    self.acknowledged();
                }
            }
        }
    }

    /// Wakes the clients of WAIT and the failover that wait for acknowledgements, and updates the
    /// number of good replicas.
    fn acknowledged(&self) {
        self.shared.replication.failover.notify();
        update_good_replicas(self.shared, self.now_ms());
        if self.shared.replication.waiters.load(Relaxed) > 0 {
            self.shared.broadcast(|| WorkerMessage::Resume);
        }
    }

    /// Removes the replica whose connection `conn` has ended.
    fn closed(&mut self, conn: ConnId) {
        let Some(client) = self.clients.remove(&conn) else { return };
        let Some(link) = self.links.remove(&client) else { return };
        self.shared.replication.link_count.store(self.links.len(), Relaxed);
        tracing::info!("Connection with replica {} lost.", link.name);
        self.shared.replication.primary().remove(client, self.now_ms());
        self.shared.engine.clients.remove(client);
        self.acknowledged();
    }

    /// Closes the connection of a replica and removes the replica.
    fn disconnect(&mut self, client: u64) {
        if let Some(link) = self.links.get(&client) {
            let conn = link.conn;
            self.net.close(conn);
            self.closed(conn);
        }
    }

    /// Queues the next bytes for each replica, as many as may be queued. Returns the largest amount
    /// that was queued for one replica.
    fn feed_all(&mut self) -> Fed {
        let mut fed = Fed::Nothing;
        for client in self.links.keys().copied().collect::<Vec<u64>>() {
            fed = fed.max(self.feed(client));
        }
        let mut primary = self.shared.replication.primary();
        if fed != Fed::Nothing {
            primary.free_sent();
        }
        let beyond = StreamMemory::of(&primary).beyond;
        self.shared.engine.log.replica_excess().set(primary.excess_bytes() as usize);
        drop(primary);
        let queued = if beyond > 0 { self.queued_bytes() } else { 0 };
        self.shared.replication.queued_bytes.store(queued, Relaxed);
        self.shared.engine.server_state.replica_buffer_bytes.store(beyond + queued, Relaxed);
        fed
    }

    /// Returns the bytes of the replication stream that are queued for replicas. They are no longer
    /// in the backlog if the replicas are slow. The bytes of snapshots are not included: their
    /// spools count them.
    fn queued_bytes(&mut self) -> u64 {
        let outputs = self.net.split().1;
        let online = self.links.values().filter(|link| link.snapshot.is_none());
        online.map(|link| outputs.len_bytes(link.conn) as u64).sum()
    }

    fn feed(&mut self, client: u64) -> Fed {
        let Some(link) = self.links.get_mut(&client) else { return Fed::Nothing };
        let outputs = self.net.split().1;
        let before = outputs.len_bytes(link.conn);
        let window_bytes = if link.snapshot.is_some() { SNAPSHOT_WINDOW_BYTES } else { WINDOW_BYTES };
        if before >= window_bytes {
            return Fed::Nothing;
        }
        let out = outputs.queue(link.conn);
        if link.snapshot.is_some() {
            self.feed_snapshot(client);
        } else {
            let pieces = self.shared.replication.primary().take_for(client, WINDOW_BYTES - before);
            for piece in pieces {
                queue(out, piece);
            }
        }
        let Some(link) = self.links.get(&client) else { return Fed::All };
        let queued_bytes = self.net.split().1.len_bytes(link.conn);
        let fed_bytes = queued_bytes.saturating_sub(before);
        self.shared.replication.note_output(fed_bytes);
        match fed_bytes {
            0 => Fed::Nothing,
            _ if queued_bytes < window_bytes => Fed::All,
            _ => Fed::Window,
        }
    }

    /// Queues the next part of the snapshot that a replica receives.
    fn feed_snapshot(&mut self, client: u64) {
        let now_ms = self.now_ms();
        let Some(link) = self.links.get_mut(&client) else { return };
        let Some(snapshot) = &mut link.snapshot else { return };
        let out = self.net.output(link.conn);
        let before = out.len_bytes();
        let queued = snapshot.queue(out, SNAPSHOT_WINDOW_BYTES);
        if out.len_bytes() > before {
            link.progress_ms = now_ms;
        }
        match queued {
            Ok(Queued::Part) => {}
            // All available bytes are queued, so a lack of progress is not the replica's fault.
            Ok(Queued::All) => link.progress_ms = now_ms,
            Ok(Queued::Whole(framing)) => self.snapshot_sent(client, framing),
            Err(error) => {
                let reason = match error {
                    Unsaved::Cancelled => "it was cancelled".to_owned(),
                    Unsaved::Failed(trouble) => trouble.to_string(),
                };
                tracing::warn!("The snapshot for replica {} failed: {reason}", link.name);
                self.disconnect(client);
            }
        }
    }

    /// Handles a snapshot that is completely queued: begins the replication stream, waits for an
    /// acknowledgement, or closes the connection.
    fn snapshot_sent(&mut self, client: u64, framing: Framing) {
        let Some(link) = self.links.get_mut(&client) else { return };
        link.snapshot = None;
        let next = self.shared.replication.primary().snapshot_sent(client, framing, self.shared.uptime_ms());
        match next {
            AfterSnapshot::Close => {
                tracing::info!("Snapshot sent to {}, which asked for nothing else", link.name);
                self.net.close_after_flush(link.conn);
            }
            AfterSnapshot::AwaitAck => {}
            AfterSnapshot::Stream => {
                tracing::info!("Synchronization with replica {} succeeded", link.name);
                self.acknowledged();
            }
        }
    }

    /// Begins the snapshot that is due for a cohort (replicas that share it), if no snapshot is
    /// beginning and no save or rewrite is in progress.
    fn begin_due(&mut self) {
        if self.is_beginning || full_sync::is_busy(self.shared) {
            return;
        }
        let options = cohort_options(self.shared);
        let cohort = due(&self.shared.replication.primary(), options, self.now_ms());
        if let Some(cohort) = cohort {
            self.begin(cohort, options);
        }
    }

    fn begin(&mut self, cohort: Cohort, options: CohortOptions) {
        self.is_beginning = true;
        let target = match options.transfer {
            Transfer::Diskless => "replicas sockets",
            Transfer::Complete => "disk",
        };
        let shared = Arc::clone(self.shared);
        let body = move || {
            let result = cohort_sync::begin(&shared, &cohort);
            if result.is_ok() {
                tracing::info!("Starting BGSAVE for SYNC with target: {target}");
            }
            if let Some(mailbox) = shared.replication.mailbox.get() {
                let mut message = Message::SyncBegun(result);
                while let Err(unsent) = mailbox.send(message) {
                    if shared.replication.is_ending.load(Acquire) {
                        break;
                    }
                    message = unsent;
                    std::thread::sleep(ROUND);
                }
            }
        };
        if let Err(error) = std::thread::Builder::new().name("repl-sync".to_owned()).spawn(body) {
            tracing::warn!(%error, "Cannot start a snapshot for replicas");
            self.is_beginning = false;
        }
    }

    /// Handles the result of the attempt to begin a snapshot for a cohort, the replicas that share
    /// it. Prepares the output to these replicas, or sends them an error.
    fn begun(&mut self, result: Result<Begun, NotBegun>) {
        self.is_beginning = false;
        match result {
            Ok(Begun { point, readers }) => {
                for (client, framing, reader) in readers {
                    self.answer_full(client, point, SnapshotOutput::new(reader, framing, random_mark()));
                }
            }
            // Another walk over the data is in progress: the next round tries again.
            Err(NotBegun::Busy) => {}
            Err(NotBegun::Failed { replicas, reason }) => {
                tracing::warn!("Cannot write a snapshot that the replicas can read: {reason}");
                for client in replicas {
                    if let Some(link) = self.links.get(&client) {
                        let line = format!("-ERR {reason}\r\n");
                        self.net.output(link.conn).tail_mut().extend_from_slice(line.as_bytes());
                        self.net.close_after_flush(link.conn);
                        self.shared.replication.primary().set_phase(client, Phase::SnapshotSent, 0);
                    }
                }
            }
        }
    }

    fn answer_full(&mut self, client: u64, point: Point, snapshot: SnapshotOutput) {
        let now_ms = self.now_ms();
        let Some(link) = self.links.get_mut(&client) else { return };
        let dialect = self.shared.replication.primary().replica(client).map(|replica| replica.dialect);
        let Some(dialect) = dialect else { return };
        self.shared.replication.figures.sync_full.fetch_add(1, Relaxed);
        if dialect == Dialect::Psync {
            let line = format!("+FULLRESYNC {} {}\r\n", point.id, point.offset);
            self.net.output(link.conn).tail_mut().extend_from_slice(line.as_bytes());
        }
        (link.snapshot, link.progress_ms) = (Some(snapshot), now_ms);
    }

    /// Performs the regular work of the thread `repl` at each [`ROUND`]: new snapshots, limits and
    /// disconnections.
    fn round(&mut self) {
        self.rounds += 1;
        self.disconnect_former_users();
        self.disconnect_outdated();
        self.begin_due();
        let limit = output_limit(&self.shared.engine.settings.get().clients);
        let wait_above = options::REPL_WRITES_WAIT_ABOVE.of(&self.shared.config());
        let now_ms = self.now_ms();
        let over = {
            let mut primary = self.shared.replication.primary();
            primary.set_output_limit(limit);
            primary.set_writes_wait_above(wait_above);
            primary.over_limit(now_ms)
        };
        for client in over {
            if let Some(link) = self.links.get(&client) {
                tracing::warn!(
                    "Client {} (replica) scheduled to be closed ASAP for overcoming of output buffer limits.",
                    link.name
                );
            }
            self.disconnect(client);
        }
        if self.rounds.is_multiple_of(ROUNDS_PER_SECOND) {
            self.second();
        }
    }

    /// Disconnects replicas whose replication history has ended or has a new ID, so that they
    /// request a new synchronisation.
    fn disconnect_outdated(&mut self) {
        let outdated = self.shared.replication.primary().outdated();
        for client in outdated {
            if let Some(link) = self.links.get(&client) {
                tracing::info!("Disconnecting replica {}: the replication ID has changed.", link.name);
            }
            self.disconnect(client);
        }
    }

    /// Disconnects replicas whose ACL user was removed or disabled.
    fn disconnect_former_users(&mut self) {
        let users = &self.shared.engine.acl.users;
        if std::mem::replace(&mut self.closings_seen, users.closings()) == self.closings_seen {
            return;
        }
        let former = self.links.iter_mut().filter_map(|(&client, link)| {
            (link.identity.refresh(users) == IdentityState::Gone).then_some(client)
        });
        for client in former.collect::<Vec<u64>>() {
            self.disconnect(client);
        }
    }

    /// Performs the regular work of the thread `repl` once per second: PING, newlines before
    /// snapshots, timeouts, and the size of the backlog.
    fn second(&mut self) {
        let now_ms = self.now_ms();
        let (ping_ms, timeout_ms, backlog_bytes, ttl_ms) = {
            let store = self.shared.config();
            let ms = |seconds: u64| seconds.saturating_mul(1000);
            (
                ms(options::REPL_PING_REPLICA_PERIOD.of(&store)),
                ms(options::REPL_TIMEOUT.of(&store)),
                backlog_limit_bytes(&store),
                ms(options::REPL_BACKLOG_TTL.of(&store)),
            )
        };
        let replication = &self.shared.replication;
        replication.primary().set_backlog_limit(backlog_bytes);
        if !self.links.is_empty() && now_ms.saturating_sub(self.last_ping_ms) >= ping_ms {
            self.last_ping_ms = now_ms;
            replication.primary().append_control(PING);
        }
        let mut timed_out = Vec::new();
        for (&client, link) in &self.links {
            let primary = replication.primary();
            let Some(replica) = primary.replica(client) else { continue };
            let (phase, dialect, acked_ms) = (replica.phase, replica.dialect, replica.acked_ms);
            drop(primary);
            let is_awaiting = link.snapshot.as_ref().is_none_or(SnapshotOutput::is_awaited);
            match phase {
                Phase::AwaitsSnapshot { .. } | Phase::ReceivesSnapshot if is_awaiting => {
                    self.net.output(link.conn).tail_mut().push(b'\n');
                }
                Phase::ReceivesSnapshot
                | Phase::SnapshotSent
                | Phase::AwaitsAck
                | Phase::OverLimit
                | Phase::Outdated => {
                    if now_ms.saturating_sub(link.progress_ms) > timeout_ms {
                        timed_out.push((client, "full sync"));
                    }
                }
                Phase::Online if dialect == Dialect::Psync => {
                    if now_ms.saturating_sub(acked_ms) > timeout_ms {
                        timed_out.push((client, "streaming sync"));
                    }
                }
                Phase::Online | Phase::AwaitsSnapshot { .. } => {}
            }
        }
        for (client, during) in timed_out {
            tracing::warn!("Disconnecting timedout replica ({during}): {}", self.links[&client].name);
            self.disconnect(client);
        }
        update_good_replicas(self.shared, self.now_ms());
        self.end_stream_if_due(ttl_ms);
    }

    /// Starts a thread that frees the backlog, if there has been no replica for `ttl_ms`.
    fn end_stream_if_due(&mut self, ttl_ms: u64) {
        let is_due = self.shared.replication.primary().is_backlog_due(ttl_ms, self.now_ms());
        if !is_due || self.ending.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        // A thread of its own waits for the keyspace.
        let shared = Arc::clone(self.shared);
        let body = move || {
            let outbox = Outbox::default();
            shared.engine.gate.exclusive(|alone| stream::end_if_due(&shared, alone, ttl_ms, &outbox));
            shared.wake(&outbox);
        };
        // If it cannot be started, the next second tries again.
        self.ending = std::thread::Builder::new().name("repl-end".to_owned()).spawn(body).ok();
    }
}

/// Queues a piece of the replication stream for a replica. A piece queued by reference is freed
/// once it is sent; copied bytes are freed only once all output is sent. So only small pieces, and
/// the first one, are copied.
fn queue(out: &mut ByteQueue, piece: Piece) {
    match piece {
        Piece::Copied(bytes) if out.is_empty() || bytes.len() < CHUNK_BYTES_MIN => {
            out.tail_mut().extend_from_slice(&bytes);
        }
        Piece::Copied(bytes) => out.push_shared(Arc::new(bytes)),
        Piece::Shared(part) => out.push_shared(Arc::new(part)),
    }
}

/// Returns the options that determine when the snapshot for a cohort (replicas that share it)
/// begins.
fn cohort_options(shared: &Shared) -> CohortOptions {
    let store = shared.config();
    CohortOptions {
        transfer: match options::REPL_DISKLESS_SYNC.of(&store) {
            true => Transfer::Diskless,
            false => Transfer::Complete,
        },
        delay_ms: options::REPL_DISKLESS_SYNC_DELAY.of(&store).saturating_mul(1000),
        replicas_max: options::REPL_DISKLESS_SYNC_MAX_REPLICAS.of(&store),
    }
}

/// Returns 40 random characters, to mark the end of a snapshot.
fn random_mark() -> [u8; 40] {
    let id = random_repl_id();
    id.as_str().as_bytes().try_into().expect("an id has 40 digits")
}

/// Returns the address and the announced port of a replica, for log lines.
fn name_of(replica: &Replica) -> String {
    match replica.handshake.listening_port {
        0 => format!("{}:<unknown-replica-port>", replica.address()),
        port => format!("{}:{port}", replica.address()),
    }
}

/// Logs the reason for a full synchronisation of the replica on `link`.
fn log_full(link: &Link, reason: FullReason, request: &SyncRequest, history: &replicate::history::History) {
    let name = &link.name;
    match reason {
        FullReason::Requested => tracing::info!("Full resync requested by replica {name}"),
        FullReason::OtherHistory
            if let Some((id, end)) = history.second
                && request.id == id.as_str().as_bytes() =>
        {
            tracing::info!(
                "Partial resynchronization not accepted: Requested offset for second ID was {}, but I can \
                 reply up to {end}",
                request.next
            );
        }
        FullReason::OtherHistory => tracing::info!(
            "Partial resynchronization not accepted: Replication ID mismatch (Replica asked for '{}', my \
             replication IDs are '{}' and '{}')",
            String::from_utf8_lossy(&request.id),
            history.id,
            history.second.map_or(replicate::history::ReplId::NONE, |(id, _)| id)
        ),
        FullReason::NotInBacklog => tracing::info!(
            "Unable to partial resync with replica {name} for lack of backlog (Replica request was: {}).",
            request.next
        ),
    }
}
