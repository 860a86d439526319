//! One thread of the load generator: its event loop, connections and histogram.
//!
//! ```text
//!   connect ─► greet ─► (all threads ready)
//!           ─► [ poll ─► replies ─► requests ─► send ]* ─► drain ─► Tally
//! ```
//! Closed loop: a client sends its next batch when all its replies have arrived. Open loop: request
//! number i is due at `start + i / rate`. A free client of the thread sends it. If none is free, it
//! is sent late. Its latency counts from the time it was due.
//!
//! Clocks: a reply is stamped with the reading of the clock after the poll that delivered it. The
//! requests of a turn are sent one connection after the other, between two readings of the clock.
//! Each connection takes a microsecond or more. A request is stamped with the first reading plus a
//! minimum time for each connection sent before its own. This minimum is the least CPU time per
//! connection in this run ([`sending`]). The latency thus includes little of the time spent on
//! sending other requests. The stamp is never later than the actual sending, even if the thread
//! lost its processor in between.

mod routing;
mod sending;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hdrhistogram::Histogram;
use net::{Backend, CloseReason, ConnId, Event, EventLoop, LoopOptions};

use super::connection::Server;
use super::replies::{Reply, ReplyScanner};
use super::shared::{Shared, Times};
use super::tally::Tally;
use crate::BenchError;
use crate::error::connect_reason;
use crate::spec::RunSpec;
use crate::usage::ThreadTime;
use crate::workload::{Draw, ELEMENT_DIGITS, Sequences, Truth, Weighted, Workload};
use routing::{Routed, Routing};
use sending::Sending;

/// The number of connections with queued requests at which a thread sends them without waiting for
/// the end of its turn. If more were queued, the server would wait for the thread.
const QUEUED_MAX: usize = 32;
/// The largest number of requests that a thread claims at once from the count shared by all
/// threads.
const TAKEN_AT_ONCE: u64 = 64;
/// The maximum duration of a poll, which is also the longest delay of a stop.
const POLL_MAX: Duration = Duration::from_millis(100);
/// The longest time after the end of a run in which a thread still sends requests that were due
/// before, in nanoseconds. Also the longest time in which it then waits for replies.
const DRAIN_NS_MAX: u64 = 5_000_000_000;
/// The longest wait until all connections of a thread have replied to the greeting.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
const SECOND_NS: u64 = 1_000_000_000;

/// A thread of the load generator: its event loop, its connections and the counts of its requests.
pub(super) struct Worker<'a> {
    spec: &'a RunSpec,
    workload: &'a Workload,
    shared: &'a Shared,
    server: &'a Server,
    net: EventLoop,
    /// The connections of this thread, indexed by `ConnId::index`.
    conns: Vec<Option<Conn>>,
    clients: Vec<Client>,
    /// The routing to the nodes of a cluster; `None` for a single server.
    routing: Option<Routing>,
    draw: Draw,
    /// The cumulative weights of the workload's requests; empty if there is only one request.
    weights: Vec<u32>,
    /// The number of requests that this thread has claimed from the count shared by all threads and
    /// not sent yet.
    taken: u64,
    in_flight: usize,
    /// The number of connections that have not received all replies to the greeting yet.
    ungreeted: usize,
    /// The connections with unsent requests, in the order in which their requests were queued.
    queued: Vec<ConnId>,
    /// The last reading of the clock, in nanoseconds since [`Shared::epoch`]. Queued requests of a
    /// closed loop carry this stamp until they are sent.
    stamp_ns: u64,
    sending: Sending,
    last_reply_ns: u64,
    schedule: Option<Schedule>,
    times: Times,
    measuring: bool,
    time_at_start: ThreadTime,
    second: Histogram<u64>,
    second_index: usize,
    tally: Tally,
}

/// A client of the simulated load. In a closed loop it sends a batch of requests and waits for all
/// replies. It has one connection, or one to each node of a cluster.
struct Client {
    /// The connection to a single server; `None` in a cluster.
    conn: Option<ConnId>,
    /// The connections to the nodes of a cluster, by the index of the node; `None` for a node
    /// without a connection yet.
    nodes: Vec<Option<ConnId>>,
    in_flight: usize,
    /// True if the client is in the list [`Schedule::free`] of clients that may send.
    listed: bool,
}

/// A connection of a client, with its requests in flight and the scanner of its replies.
struct Conn {
    id: ConnId,
    /// The index in [`Worker::clients`] of the client that the connection belongs to.
    client: usize,
    /// The index of the node in the cluster's slot map; 0 for a single server.
    node: usize,
    scanner: ReplyScanner,
    in_flight: VecDeque<Sent>,
    /// The bytes and the number of redirections of each request in `in_flight`, in the same order;
    /// empty without a cluster.
    routed: VecDeque<Routed>,
    greeting_left: u32,
}

/// A request that was sent and whose reply has not arrived yet.
struct Sent {
    /// The time from which the latency counts, in nanoseconds since [`Shared::epoch`]. Closed loop:
    /// the request was sent then, or its connection was started if each request has its own. Open
    /// loop: the request was due then.
    due_ns: u64,
    key: u64,
    request: u32,
}

/// The schedule of a thread in an open loop: the rate, and the clients that are free to send.
struct Schedule {
    interval_ns: f64,
    first_ns: f64,
    /// The number of requests of the schedule that this thread has sent.
    sent: u64,
    /// The clients with fewer requests in flight than the pipeline depth. The client that has been
    /// in the list longest comes first.
    free: VecDeque<usize>,
    /// True if a request was due while no client was free, and some due requests are still unsent.
    behind: bool,
}

impl Schedule {
    fn next_due_ns(&self) -> u64 {
        (self.first_ns + self.sent as f64 * self.interval_ns) as u64
    }
}

/// The reason why a thread ends early: a text about the server or connection, or an error of the
/// operating system.
enum Stop {
    Refused(String),
    System(io::Error),
}

impl<'a> Worker<'a> {
    /// Starts thread number `index` of `threads`: opens its share of the connections and waits
    /// until the server has replied to their greetings.
    pub(super) fn start(
        (index, threads): (usize, usize),
        spec: &'a RunSpec,
        shared: &'a Shared,
        server: &'a Server,
        sequences: Sequences,
    ) -> Result<Self, BenchError> {
        let load = &spec.load;
        // By default the event loop does not wait to gather replies: the wait would count as
        // latency of the server.
        let options =
            LoopOptions { backend: load.backend, gather_us_max: load.gather_us, ..LoopOptions::default() };
        // The timer slack of 1 µs makes sleeps end on time. If this call fails, they end about 50
        // µs late, which matters only in an open loop.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000));
        let mut draw = Draw::of_thread(load.seed, &spec.workload.name, index, sequences);
        if load.verify {
            draw.let_values_follow_keys();
        }
        let mut tally = Tally::new();
        if mixes_searches(&spec.workload) {
            tally.count_beside();
        }
        let mut worker = Self {
            spec,
            workload: &spec.workload,
            shared,
            server,
            net: EventLoop::new(&options)?,
            conns: Vec::new(),
            clients: Vec::new(),
            routing: server.cluster.clone().map(Routing::new),
            draw,
            weights: cumulative_weights(&spec.workload),
            taken: 0,
            in_flight: 0,
            ungreeted: 0,
            queued: Vec::new(),
            stamp_ns: 0,
            sending: Sending::default(),
            last_reply_ns: 0,
            schedule: None,
            times: Times { start_ns: u64::MAX, measured_ns: u64::MAX, end_ns: u64::MAX },
            measuring: false,
            time_at_start: ThreadTime::default(),
            second: Shared::second_histogram(),
            second_index: 0,
            tally,
        };
        let own = load.connections / threads + usize::from(index < load.connections % threads);
        worker.connect(own)?;
        worker.greet()?;
        Ok(worker)
    }

    /// Returns the backend of the event loop of this thread.
    pub(super) fn backend(&self) -> Backend {
        self.net.backend()
    }

    fn connect(&mut self, count: usize) -> Result<(), BenchError> {
        let refused = |error| BenchError::Connect { address: self.spec.target.endpoint.to_string(), error };
        for client in 0..count {
            self.check_interrupt()?;
            if self.routing.is_some() {
                self.clients.push(Client::of_cluster());
                self.connect_to_nodes(client)?;
                continue;
            }
            let socket = self.server.connect(None).map_err(refused)?;
            let id = self.net.adopt(socket).map_err(refused)?;
            self.keep(id, client, 0, self.server.greeting_replies);
            self.write(id, &self.server.greeting);
            self.clients.push(Client { conn: Some(id), nodes: Vec::new(), in_flight: 0, listed: false });
        }
        self.net.flush();
        Ok(())
    }

    /// Appends `bytes` to the output buffer of connection `id`.
    fn write(&mut self, id: ConnId, bytes: &[u8]) {
        self.net.output(id).tail_mut().extend_from_slice(bytes);
    }

    /// Registers connection `id` of `client`. In a cluster it leads to `node`. `greeting_left` is
    /// the number of replies to the greeting that it waits for.
    fn keep(&mut self, id: ConnId, client: usize, node: usize, greeting_left: u32) {
        let mut scanner = ReplyScanner::default();
        if self.spec.load.verify
            && let Some(values) = &self.workload.values
        {
            scanner.keep_bodies(values.sizes().max() + 1);
        }
        if let Some(truth) = self.truth() {
            scanner.keep_bodies(truth.neighbours() * ELEMENT_DIGITS);
        }
        if self.conns.len() <= id.index() {
            self.conns.resize_with(id.index() + 1, || None);
        }
        let (in_flight, routed) = Default::default();
        let conn = Conn { id, client, node, scanner, in_flight, routed, greeting_left };
        self.conns[id.index()] = Some(conn);
        self.ungreeted += usize::from(greeting_left > 0);
    }

    /// Returns the true neighbours that the replies to searches are compared with; `None` if the
    /// workload has no searches.
    fn truth(&self) -> Option<&'a Truth> {
        let searches = self.workload.requests.iter().any(|request| request.template.searches());
        let task = self.workload.vectors.as_ref().filter(|_| searches)?;
        Some(task.vectors.loaded()?.truth())
    }

    /// Returns an error if a signal has interrupted the run.
    fn check_interrupt(&self) -> Result<(), BenchError> {
        // Relaxed: no other data depends on this flag.
        let interrupt = self.spec.watch.interrupt.as_ref().is_some_and(|flag| flag.load(Relaxed));
        if interrupt { Err(BenchError::Interrupted) } else { Ok(()) }
    }

    /// Waits until all connections have received the replies to their greeting. Returns an error if
    /// the server rejects one or does not reply in time.
    fn greet(&mut self) -> Result<(), BenchError> {
        let within = self.spec.load.reply_within.min(HANDSHAKE_TIMEOUT);
        let deadline_ns = self.shared.now_ns() + within.as_nanos() as u64;
        let mut events = Vec::new();
        while self.ungreeted > 0 {
            self.check_interrupt()?;
            self.net.poll(Some(POLL_MAX), &mut events)?;
            for event in events.drain(..) {
                match self.handle(event, 0) {
                    Ok(()) => {}
                    Err(Stop::Refused(reason)) => return Err(BenchError::Refused(reason)),
                    Err(Stop::System(error)) => return Err(error.into()),
                }
            }
            // TLS handshakes may have output to send.
            self.net.flush();
            if self.shared.now_ns() > deadline_ns {
                let waiting = self.ungreeted;
                return Err(BenchError::Refused(format!("{waiting} connections got no reply to PING")));
            }
        }
        Ok(())
    }

    /// Keeps the connections open until the run is interrupted. Returns an error if a connection is
    /// lost.
    pub(super) fn idle(mut self) -> Result<(), BenchError> {
        let mut events = Vec::new();
        while self.check_interrupt().is_ok() {
            self.net.poll(Some(POLL_MAX), &mut events)?;
            for event in events.drain(..) {
                self.handle(event, 0).map_err(|stop| match stop {
                    Stop::Refused(reason) => BenchError::Ended(reason),
                    Stop::System(error) => error.into(),
                })?;
            }
        }
        Ok(())
    }

    /// Runs the load until the run ends, and returns the counts of this thread, which has number
    /// `index` of `threads`.
    pub(super) fn run(mut self, (index, threads): (usize, usize), times: Times) -> Tally {
        self.times = times;
        self.schedule = self.spec.load.rate.map(|rate| Schedule {
            interval_ns: threads as f64 * 1e9 / rate,
            first_ns: times.start_ns as f64 + index as f64 * 1e9 / rate,
            sent: 0,
            free: VecDeque::new(),
            behind: false,
        });
        self.stamp_ns = self.shared.now_ns();
        self.last_reply_ns = self.stamp_ns;
        self.begin_measuring(self.stamp_ns);
        let begun = (0..self.clients.len()).try_for_each(|client| self.next_requests(client));
        self.send_queued();
        if let Err(stop) = begun.and_then(|()| self.turns()) {
            self.shared.fail(match stop {
                Stop::Refused(reason) => reason,
                Stop::System(error) => error.to_string(),
            });
        }
        self.finish()
    }

    fn turns(&mut self) -> Result<(), Stop> {
        let mut events = Vec::new();
        let mut drain_until_ns = u64::MAX;
        loop {
            let timeout = self.timeout();
            self.net.poll(Some(timeout), &mut events).map_err(Stop::System)?;
            let now_ns = self.shared.now_ns();
            self.stamp_ns = now_ns;
            self.begin_measuring(now_ns);
            for event in events.drain(..) {
                self.handle(event, now_ns)?;
            }
            self.send_due()?;
            self.send_queued();
            self.report_seconds(now_ns);
            // Relaxed: no other data depends on this flag.
            if self.shared.stop.load(Relaxed) {
                return Ok(());
            }
            if self.has_sent_all(now_ns) {
                if self.in_flight == 0 || now_ns > drain_until_ns {
                    return Ok(());
                }
                drain_until_ns = drain_until_ns.min(now_ns + DRAIN_NS_MAX);
            }
            let silence_ns = now_ns.saturating_sub(self.last_reply_ns);
            if self.in_flight > 0 && silence_ns > self.spec.load.reply_within.as_nanos() as u64 {
                let seconds = self.spec.load.reply_within.as_secs_f64();
                let silent = self.unresponsive_nodes();
                return Err(Stop::Refused(format!("{silent} sent no reply for {seconds} s")));
            }
        }
    }

    /// Returns the longest time that the next poll may wait: until the next request is due, at most
    /// [`POLL_MAX`].
    fn timeout(&self) -> Duration {
        let Some(schedule) = &self.schedule else { return POLL_MAX };
        if schedule.free.is_empty() {
            return POLL_MAX;
        }
        let due_ns = schedule.next_due_ns();
        if due_ns >= self.times.end_ns {
            return POLL_MAX;
        }
        Duration::from_nanos(due_ns.saturating_sub(self.shared.now_ns())).min(POLL_MAX)
    }

    /// Returns true if this thread sends no more requests in this run.
    fn has_sent_all(&mut self, now_ns: u64) -> bool {
        let by_time = match &self.schedule {
            // Requests that were due before the end are still sent, for at most DRAIN_NS_MAX.
            Some(schedule) => {
                schedule.next_due_ns() >= self.times.end_ns
                    || now_ns > self.times.end_ns.saturating_add(DRAIN_NS_MAX)
            }
            None => now_ns >= self.times.end_ns,
        };
        by_time || (now_ns >= self.times.measured_ns && !self.may_take())
    }

    fn may_take(&mut self) -> bool {
        if self.taken == 0 {
            self.taken = self.shared.take(TAKEN_AT_ONCE.min(1 + self.spec.load.pipeline as u64));
        }
        self.taken > 0
    }

    /// Claims one request that is due at `due_ns`. Returns false if it must not be sent: the run
    /// ends before it is due, or no requests are left. Requests of the warm-up need no claim.
    fn take(&mut self, due_ns: u64) -> bool {
        if due_ns < self.times.measured_ns {
            return true;
        }
        if due_ns >= self.times.end_ns || !self.may_take() {
            return false;
        }
        self.taken -= 1;
        true
    }

    fn begin_measuring(&mut self, now_ns: u64) {
        if !self.measuring && now_ns >= self.times.measured_ns {
            self.measuring = true;
            self.time_at_start = ThreadTime::now();
        }
    }

    fn handle(&mut self, event: Event, now_ns: u64) -> Result<(), Stop> {
        match event {
            Event::Data(id) => self.replies(id, now_ns),
            Event::Closed(id, reason) => {
                if self
                    .conns
                    .get(id.index())
                    .is_none_or(|conn| conn.as_ref().is_none_or(|conn| conn.id != id))
                {
                    return Ok(());
                }
                let name = self.name_of(id);
                Err(Stop::Refused(match reason {
                    CloseReason::Failed(kind) => format!("a connection to {name} failed: {kind}"),
                    CloseReason::Tls(failure) => format!("a connection to {name} failed: {failure}"),
                    _ => format!("{name} closed a connection"),
                }))
            }
            Event::HandshakeFailed(_, reason) => Err(Stop::Refused(format!("TLS: {reason}"))),
            _ => Ok(()),
        }
    }

    /// Processes the replies that arrived on connection `id`. Then sends the next requests of its
    /// client if the client may send.
    fn replies(&mut self, id: ConnId, now_ns: u64) -> Result<(), Stop> {
        let Some(mut conn) = self.conns.get_mut(id.index()).and_then(Option::take) else { return Ok(()) };
        let mut consumed = 0;
        let mut answered = 0;
        loop {
            let input = &self.net.inputs().bytes(id)[consumed..];
            if input.is_empty() {
                break;
            }
            let (taken, reply) = conn.scanner.next(input).map_err(|malformed| Stop::Refused(malformed.0))?;
            consumed += taken;
            let Some(reply) = reply else { break };
            if conn.greeting_left > 0 {
                conn.greeting_left -= 1;
                self.greeted(reply, conn.greeting_left)?;
            } else {
                let sent = conn.in_flight.pop_front();
                let sent = sent.ok_or_else(|| Stop::Refused("a reply without a request".to_owned()))?;
                if self.routing.is_some() && self.is_redirected(&mut conn, &sent, &reply) {
                    continue;
                }
                answered += 1;
                self.answered(&sent, reply, &conn.scanner, now_ns);
            }
        }
        self.net.consume(id, consumed);
        let index = conn.client;
        self.conns[id.index()] = Some(conn);
        if self.routing.is_some() && self.send_again(index)? {
            self.last_reply_ns = now_ns;
        }
        if answered == 0 {
            return Ok(());
        }
        self.in_flight -= answered;
        self.last_reply_ns = now_ns;
        let client = &mut self.clients[index];
        client.in_flight -= answered;
        let idle = client.in_flight == 0;
        if idle && self.spec.load.reconnect {
            return self.reconnect(id, index);
        }
        if idle || self.schedule.is_some() { self.next_requests(index) } else { Ok(()) }
    }

    /// Processes a reply to the greeting of a connection that still waits for `left` more such
    /// replies. Returns an error if the reply is an error.
    fn greeted(&mut self, reply: Reply, left: u32) -> Result<(), Stop> {
        self.ungreeted -= usize::from(left == 0);
        match reply {
            // A NOPERM error for the final PING is accepted: the user needs no permission for PING.
            Reply::Error(text) if !(left == 0 && text.starts_with(b"NOPERM")) => {
                Err(Stop::Refused(String::from_utf8_lossy(&text).into_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Counts the reply to the request `sent`: its latency, and if it is an error, a hit or a miss.
    /// Ignores replies to requests of the warm-up.
    #[inline]
    fn answered(&mut self, sent: &Sent, reply: Reply, scanner: &ReplyScanner, now_ns: u64) {
        if sent.due_ns < self.times.measured_ns {
            return;
        }
        let latency_ns = now_ns.saturating_sub(sent.due_ns);
        self.tally.record(latency_ns, now_ns);
        self.second.saturating_record(latency_ns);
        let template = &self.workload.requests[sent.request as usize].template;
        if !template.searches() {
            self.tally.record_beside(latency_ns);
        }
        match reply {
            Reply::Error(text) => {
                self.tally.count_error(&text);
                if let Some(errors) = &self.spec.watch.errors {
                    errors.show(&text, now_ns);
                }
            }
            Reply::Null => self.tally.misses += u64::from(template.reads()),
            Reply::Value if template.searches() => {
                if let Some(truth) = self.truth() {
                    let found = truth.found(sent.key, scanner.body());
                    self.tally.searches += 1;
                    self.tally.found += found as u64;
                }
            }
            Reply::Value => {
                self.tally.hits += u64::from(template.reads());
                if self.spec.load.verify
                    && template.gets()
                    && let Some(values) = &self.workload.values
                    && values.of_key(sent.key) != scanner.body()
                {
                    self.tally.count_error(b"VERIFY the value is not the one that was written");
                }
            }
        }
    }

    /// Closes connection `id`, opens a new one in its place and sends the next requests of
    /// `client`. In a cluster, closes all connections of `client`, which are opened again when they
    /// are needed. Does nothing if no requests are left to send.
    fn reconnect(&mut self, id: ConnId, client: usize) -> Result<(), Stop> {
        if self.has_sent_all(self.stamp_ns) {
            return Ok(());
        }
        if self.routing.is_some() {
            self.disconnect_from_nodes(client);
            self.stamp_ns = self.shared.now_ns();
            return self.next_requests(client);
        }
        self.conns[id.index()] = None;
        self.net.close(id);
        let failed = |error| Stop::Refused(format!("a new connection failed: {}", connect_reason(&error)));
        // The clock is read before the connection is started: in a closed loop the time to connect
        // is part of the latency. In an open loop the latency counts from the time a request is
        // due.
        self.stamp_ns = self.shared.now_ns();
        let socket = self.server.begin_to_connect(None).map_err(failed)?;
        let id = self.net.adopt(socket).map_err(failed)?;
        self.keep(id, client, 0, self.server.greeting_again_replies);
        self.clients[client].conn = Some(id);
        if !self.server.reconnect_commands.is_empty() {
            self.write(id, &self.server.reconnect_commands);
        }
        self.next_requests(client)
    }

    /// Sends the next batch of `client` in a closed loop. In an open loop, adds `client` to the
    /// list of free clients.
    fn next_requests(&mut self, client: usize) -> Result<(), Stop> {
        if let Some(schedule) = &mut self.schedule {
            if !std::mem::replace(&mut self.clients[client].listed, true) {
                schedule.free.push_back(client);
            }
            return Ok(());
        }
        let mut sent = 0;
        while sent < self.spec.load.pipeline && self.take(self.stamp_ns) {
            self.send(client, self.stamp_ns)?;
            sent += 1;
        }
        if sent > 0 {
            self.written();
        }
        Ok(())
    }

    /// Sends the queued requests if at least [`QUEUED_MAX`] connections have some. Called each time
    /// after the requests of a client are queued.
    fn written(&mut self) {
        if self.queued.len() >= QUEUED_MAX {
            self.send_queued();
        }
    }

    /// Sends the queued requests. In a closed loop, stamps them with the time at which they were
    /// sent, unless each request has its own connection.
    fn send_queued(&mut self) {
        let queued_ns = self.stamp_ns;
        // With a connection per request, the stamp from before the connection stays: the time to
        // connect is part of the latency.
        let stamps = self.schedule.is_none() && !self.spec.load.reconnect;
        let measured = if stamps { self.sending.begin(self.queued.len()) } else { None };
        let began_ns = self.shared.now_ns();
        self.net.flush();
        if self.queued.is_empty() {
            return;
        }
        self.net.submit();
        self.stamp_ns = self.shared.now_ns();
        if stamps {
            self.sending.end(measured, self.queued.len());
            for (at, id) in self.queued.iter().enumerate() {
                let Some(Some(conn)) = self.conns.get_mut(id.index()) else { continue };
                let left_ns = began_ns + self.sending.after_ns(at);
                let unsent = conn.in_flight.iter_mut().rev().take_while(|sent| sent.due_ns == queued_ns);
                unsent.for_each(|sent| sent.due_ns = left_ns);
            }
        }
        self.queued.clear();
    }

    /// Adds connection `id` to the list of connections with unsent requests, unless it is the last
    /// entry of the list.
    fn note_queued(&mut self, id: ConnId) {
        if self.queued.last() != Some(&id) {
            self.queued.push(id);
        }
    }

    /// Queues the requests that are due by the schedule, as long as clients are free.
    fn send_due(&mut self) -> Result<(), Stop> {
        let Some(mut schedule) = self.schedule.take() else { return Ok(()) };
        self.stamp_ns = self.shared.now_ns();
        loop {
            let due_ns = schedule.next_due_ns();
            if due_ns > self.stamp_ns {
                schedule.behind = false;
                break;
            }
            let Some(client) = schedule.free.pop_front() else {
                schedule.behind = true;
                break;
            };
            if !self.take(due_ns) {
                schedule.free.push_front(client);
                break;
            }
            schedule.sent += 1;
            self.send(client, due_ns)?;
            if !schedule.behind && due_ns >= self.times.measured_ns {
                self.tally.late_ns += u128::from(self.stamp_ns - due_ns);
                self.tally.on_free_connection += 1;
            }
            let state = &mut self.clients[client];
            state.listed = state.in_flight < self.spec.load.pipeline;
            if state.listed {
                schedule.free.push_back(client);
            }
            self.written();
        }
        self.schedule = Some(schedule);
        Ok(())
    }

    /// Queues one request of `client`, in a cluster to the node that serves its key.
    #[inline]
    fn send(&mut self, client: usize, due_ns: u64) -> Result<(), Stop> {
        let request = if self.weights.is_empty() { 0 } else { self.choose() };
        let Some(id) = self.clients[client].conn else { return self.send_routed(client, request, due_ns) };
        let Some(Some(conn)) = self.conns.get_mut(id.index()) else { return Ok(()) };
        let out = self.net.output(id).tail_mut();
        self.workload.requests[request].template.render(out, &mut self.draw);
        conn.in_flight.push_back(Sent { due_ns, key: self.draw.key(), request: request as u32 });
        self.clients[client].in_flight += 1;
        self.in_flight += 1;
        self.note_queued(id);
        Ok(())
    }

    /// Chooses a request of the mix by weight, and returns its index in the workload.
    fn choose(&mut self) -> usize {
        let total = self.weights.last().copied().unwrap_or(1);
        let at = self.draw.below(total);
        self.weights.partition_point(|&up_to| up_to <= at)
    }

    /// Reports to the shared state the latencies of each second that has ended before `now_ns`.
    fn report_seconds(&mut self, now_ns: u64) {
        let Some(since_ns) = now_ns.checked_sub(self.times.measured_ns) else { return };
        while (since_ns / SECOND_NS) as usize > self.second_index {
            self.shared.report_second(self.second_index, &self.second);
            self.second.reset();
            self.second_index += 1;
        }
    }

    fn finish(mut self) -> Tally {
        let now_ns = self.shared.now_ns();
        self.report_seconds(now_ns);
        self.shared.report_second(self.second_index, &self.second);
        self.tally.unanswered = self.unanswered(now_ns);
        self.tally.measured_ns = now_ns.saturating_sub(self.times.measured_ns);
        if let Some(routing) = &self.routing {
            self.tally.nodes = routing.answered().collect();
        }
        if self.measuring {
            self.tally.time = ThreadTime::now().since(self.time_at_start);
        }
        self.tally
    }

    /// Returns the number of requests of the measured part without a reply: those in flight, and
    /// those that were due but not sent.
    fn unanswered(&self, now_ns: u64) -> u64 {
        let measured = |sent: &&Sent| sent.due_ns >= self.times.measured_ns;
        let sent = self.conns.iter().flatten().flat_map(|conn| &conn.in_flight).filter(measured).count();
        let due = self.schedule.as_ref().map_or(0, |schedule| {
            let until_ns = now_ns.min(self.times.end_ns);
            let late_ns = until_ns.saturating_sub(schedule.next_due_ns().max(self.times.measured_ns));
            (late_ns as f64 / schedule.interval_ns) as u64
        });
        let by_count = self.times.end_ns == u64::MAX;
        sent as u64 + if by_count { 0 } else { due }
    }
}

/// Returns true if `workload` has both searches of a vector set and other requests.
fn mixes_searches(workload: &Workload) -> bool {
    let searches = |request: &Weighted| request.template.searches();
    workload.requests.iter().any(searches) && !workload.requests.iter().all(searches)
}

/// Returns, for each request of `workload`, the sum of its weight and the weights before it; empty
/// if there is only one request.
fn cumulative_weights(workload: &Workload) -> Vec<u32> {
    if workload.requests.len() < 2 {
        return Vec::new();
    }
    let add = |sum: &mut u32, weight: u32| {
        *sum = sum.saturating_add(weight);
        Some(*sum)
    };
    workload.requests.iter().map(|request| request.weight).scan(0, add).collect()
}
