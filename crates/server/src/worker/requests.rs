//! The run of requests in a turn: the selection of requests for each batch, their execution, and
//! their effects on the connections.

use std::iter::Peekable;
use std::slice;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::batch::{Batch, ConnTurn, ParsedRequest, Source, Work};
use engine::check::runs_scripts;
use engine::session::{Flow, Session};
use engine::threads::Outbox;
use engine::timing::Timing;
use engine::turn::Outcome;
use keyspace::gate::SharedPass;
use net::ConnId;
use resp::Reply;
use resp::parse::Limits;
use stdx::ByteQueue;

use super::figures::note_activity;
use super::request_checks::RequestChecks;
use super::{Client, NetOutputs, Worker, session_mut, session_of};
use crate::run_queue::Visit;
use crate::shared::{Message, Shared};

/// Maximum time of a batch, as a multiple of the turn's time budget. No request begins after that
/// time. It is more than one budget, because requests that were parsed but did not run must be
/// parsed again in a later turn.
const TURN_BUDGETS_MAX: u32 = 2;

/// Minimum time of a batch. It ensures that connections with requests left from an earlier turn
/// make progress in each turn, even if there is much new input.
const BATCH_TIME_MIN: Duration = Duration::from_micros(100);

/// Length of a client's unsent replies, in bytes, above which its next requests wait until all
/// replies are sent. So a client that does not read its replies takes at most this length plus one
/// reply.
pub(super) const OUTPUT_PENDING_BYTES_MAX: usize = 64 << 20;

/// Minimum number of missing bytes of an incomplete request for which the input buffer grows to the
/// exact size of the request. With fewer missing bytes, it grows in steps.
const EXPECTED_LEN_BYTES_MIN: usize = 64 * 1024;

impl Worker<'_> {
    /// Runs the requests of the ready connections, batch after batch, until the time budget of the
    /// turn is used up. `began` is the start of the turn.
    pub(super) fn run_ready(&mut self, began: Instant, pass: &mut SharedPass<'_>) {
        self.engine.executor.stats().reads.add(self.run_queue.begin_turn() as u64);
        let budget = self.engine.executor.settings.turn_budget;
        let end = began + budget;
        let mut now = began;
        loop {
            let late = now >= end;
            if self.run_queue.is_empty() || (late && !self.run_queue.has_unvisited_deferred()) {
                break;
            }
            self.batch.clear();
            while !self.batch.is_full()
                && let Some(visit) =
                    if late { self.run_queue.next_owed() } else { self.run_queue.next_ready() }
            {
                if let Some(client) = self.client(visit.conn) {
                    client.is_queued = false;
                    self.collect(visit);
                }
            }
            if pass.is_inside() {
                self.batch.prefetch(&self.shared.engine.keyspace);
            }
            let deadline = (began + budget * TURN_BUDGETS_MAX).max(now + BATCH_TIME_MIN);
            now = self.execute(deadline, pass).max(now);
        }
        for conn in self.run_queue.left() {
            self.net.mark_ready(conn);
        }
    }

    /// Puts a connection whose visit (the run of its requests in a batch) could not begin back to
    /// the front of its run queue.
    #[cold]
    fn run_first(&mut self, visit: Visit) {
        if let Some(client) = self.client(visit.conn)
            && !std::mem::replace(&mut client.is_queued, true)
        {
            self.run_queue.put_back(visit);
        }
    }

    /// Adds a connection that has more requests than fitted into its visit (the run of its requests
    /// in a batch) to the end of the run queue's deferred connections.
    fn defer(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn)
            && client.session.flow == Flow::Running
            && !std::mem::replace(&mut client.is_queued, true)
        {
            self.run_queue.defer(conn);
        }
    }

    /// Parses the complete requests of a connection and adds them to the batch, as far as the batch
    /// has room for them.
    fn collect(&mut self, visit: Visit) {
        let (conn, limits) = (visit.conn, self.engine.executor.settings.parse_limits());
        let Some(session) = self.session(conn) else { return };
        if session.flow != Flow::Running {
            if session.flow == Flow::Debugging {
                self.pass_to_debugger(conn);
            } else if session.flow == Flow::Blocked {
                // Input of a blocked client is still received, so that a disconnection is noticed.
                self.keep_input(conn);
            }
            return;
        }
        if self.engine.executor.settings.clients.maxmemory_clients_bytes > 0 {
            // Bytes in the receive memory that all connections share for a turn do not count.
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
        let limits = Limits { unauthenticated: session.identity.must_authenticate(), ..limits };
        let (position, input) = (self.net.inputs().position(conn), self.net.inputs().bytes(conn));
        let source = Source { progress, db: session.db(), limits, visit, position, input };
        if !self.batch.collect(source, &self.shared.engine) {
            let (here, missing) = (self.net.inputs().len_bytes(conn), self.batch.missing_bytes());
            if here > 0 && missing >= EXPECTED_LEN_BYTES_MIN {
                self.net.expect_input(conn, here + missing);
            }
            // No request is complete, so no visit will enforce the limits.
            self.keep_input(conn);
        }
    }

    /// Runs the requests of the batch, connection by connection. After `deadline`, begins no
    /// request except the first one of the batch. Returns the time at which the last request ended.
    fn execute(&mut self, deadline: Instant, pass: &mut SharedPass<'_>) -> Instant {
        // While a script of the batch is busy, requests of other clients are collected into another
        // batch.
        let batch = std::mem::take(&mut self.batch);
        let timed = Timing::start(&self.engine.executor);
        let watch = RequestChecks::of(&self.engine.executor.settings);
        let mut run = BatchRun { shared: self.shared, batch: &batch, deadline, is_over: false, timed, watch };
        for at in 0..batch.turns.len() {
            if at > 0 && run.is_late() {
                self.put_back(&batch.turns[at..]);
                break;
            }
            self.visit(at, &mut run, pass);
            if run.is_over {
                break;
            }
        }
        let stats = self.engine.executor.stats();
        stats.running_nanos.add(run.timed.total().as_nanos() as u64);
        let ended = run.timed.now();
        self.batch = batch;
        ended
    }

    /// Puts connections whose visits (the runs of their requests in a batch) could not begin back
    /// to the front of their run queues, in the same order.
    #[cold]
    pub(super) fn put_back(&mut self, turns: &[ConnTurn<Visit>]) {
        turns.iter().rev().for_each(|turn| self.run_first(turn.visit));
    }

    /// Performs a visit: runs the requests that a connection has in the batch, at least one. Then
    /// handles their effects on the connection.
    fn visit(&mut self, at: usize, run: &mut BatchRun<'_>, pass: &mut SharedPass<'_>) {
        let turn = &run.batch.turns[at];
        let conn = turn.visit.conn;
        let Some(mut client) = self.clients[conn.index()].take() else { return };
        self.engine.executor.meter.turn.enter(&mut client.session.answered);
        let mut visited = Visited::begin(client, (run.batch, at), self.net.output(conn).len_bytes());
        while let Some(parsed) = self.run_requests(&mut visited, run, pass) {
            self.run_script(&mut visited, parsed, run, pass);
        }
        self.engine.executor.commit.publish_log();
        let Visited { client, from_bytes, mut done_bytes, has_more, .. } = visited;
        let session = &client.session;
        if visited.ran_all && matches!(session.flow, Flow::Running | Flow::Closing) {
            // Empty lines after the requests need no reply: they are consumed too.
            done_bytes = done_bytes.max(turn.skip_to);
        }
        let replied = visited.sent_bytes + self.net.output(conn).len_bytes() - visited.pending_before;
        self.release.mark_observed(session, from_bytes, &run.shared.engine.log);
        let ran = visited.ran + std::mem::take(&mut self.engine.executor.meter.extra_calls);
        note_activity(&self.engine, session, u64::try_from(ran).unwrap_or(0), done_bytes, replied);
        self.net.consume(conn, done_bytes);
        if !run.is_over {
            self.clients[conn.index()] = Some(client);
        } else if !self.take_back(client) {
            return;
        }
        self.settle(conn);
        if has_more {
            self.defer(conn);
        }
    }

    /// Runs the requests of a visit one by one. Stops before a request that runs scripts and
    /// returns it; the caller runs it. Returns `None` if no such request is left.
    #[inline]
    fn run_requests<'b>(
        &mut self,
        visited: &mut Visited<'b>,
        run: &mut BatchRun<'b>,
        pass: &mut SharedPass<'_>,
    ) -> Option<&'b ParsedRequest> {
        let session = &mut visited.client.session;
        let conn = visited.conn;
        let (inputs, outputs) = self.net.split();
        let input = inputs.bytes(conn);
        let held_bytes = if self.release.is_empty() { 0 } else { outputs.held_len_bytes(conn) };
        let mut out = outputs.queue(conn);
        while session.flow == Flow::Running
            && let Some(&parsed) = visited.requests.peek()
        {
            if visited.ran > 0 && run.is_late() {
                (visited.has_more, visited.ran_all) = (true, false);
                return None;
            }
            visited.requests.next();
            let Some(request) = run.batch.request(parsed, input, run.shared.engine.keyspace.hasher()) else {
                refuse_broken(session, parsed, out);
                return None;
            };
            if session.subscriptions.is_some() {
                // Messages published before this request, also by this client, are sent before its
                // reply.
                let before = out.len_bytes();
                // The replies so far are marked here. The messages get their own mark, which begins
                // after these replies.
                self.release.mark_observed(session, visited.from_bytes, &run.shared.engine.log);
                let mut queues = NetOutputs::new(&mut *outputs, &mut self.release, run.shared);
                if self.engine.deliver_publications(&mut queues, &mut self.slow_subscribers) {
                    run.shared.broadcast(|| Message::Resume);
                }
                out = outputs.queue(conn);
                visited.pending_before += out.len_bytes() - before;
            }
            let replied = out.len_bytes();
            // A thread must hold no shard's lock while it lets an exclusive owner in: here it holds
            // none.
            if pass.is_wanted() {
                self.engine.yield_to_owner(pass, &mut run.timed);
            }
            let runs_scripts = request.registered.is_some_and(|registered| runs_scripts(session, registered));
            if run.watch.is_on() && !run.watch.admits(run.shared, session, &request, out) {
                return None;
            }
            if runs_scripts && !self.attends {
                return Some(parsed);
            }
            if self.engine.run(session, &request, out, pass) == Outcome::Postponed {
                return None;
            }
            if run.watch.is_on() {
                run.watch.note((run.shared, &self.engine), session, &request);
            }
            let bytes = [parsed.len_bytes, out.len_bytes().saturating_sub(replied)];
            let next = visited.requests.peek().and_then(|next| next.registered);
            run.wake_others(&self.engine.executor.commit.outbox);
            run.timed.ran(&mut self.engine.executor, session, &request, bytes, next);
            visited.done_bytes = parsed.start + parsed.len_bytes;
            visited.ran += 1;
            if out.len_bytes() + held_bytes > OUTPUT_PENDING_BYTES_MAX && session.flow == Flow::Running {
                session.flow = Flow::AwaitingReader;
            }
        }
        None
    }

    /// Handles the state of the client after its last request, such as blocked or closing, and
    /// enforces the limits of the connection.
    pub(super) fn settle(&mut self, conn: ConnId) {
        if self.exceeds_output_limit(conn) {
            return self.close(conn);
        }
        if !self.keep_input(conn) {
            return;
        }
        let Some(session) = session_mut(&mut self.clients, conn) else { return };
        match session.flow {
            Flow::Running => {}
            Flow::Blocked => self.settle_blocked(conn),
            Flow::Debugging => self.begin_debugging(conn),
            Flow::Leaving => self.leaving.push(conn),
            Flow::Closing => {
                // Set before the last reply is sent: clients that redirect invalidations to this
                // client must see that it is closing.
                session.info.state.closing.store(true, Relaxed);
                self.net.close_after_flush(conn);
            }
            Flow::AwaitingReader | Flow::AwaitingFree => self.net.pause_input(conn),
            Flow::AwaitingLogin => {
                self.awaiting_login.push((session.login_slot_ms, conn));
                self.net.pause_input(conn);
            }
            Flow::AwaitingSubscribers => {
                self.subscribers_full.push(conn);
                self.net.pause_input(conn);
            }
            Flow::Postponed | Flow::AwaitingLog => {
                session.info.state.postponed.store(true, Relaxed);
                let is_paused = session.flow == Flow::Postponed;
                let waiting = if is_paused { &mut self.postponed } else { &mut self.awaiting_log };
                waiting.push(conn);
                self.net.pause_input(conn);
            }
        }
    }
}

/// The state that all visits of one batch share. A visit is the run of one connection's requests.
pub(super) struct BatchRun<'a> {
    pub(super) shared: &'a Shared,
    pub(super) batch: &'a Batch<Visit>,
    /// The time after which no visit of the batch, and no further request of a visit, begins.
    deadline: Instant,
    /// True after a script of the batch was busy. The remaining visits were then returned to the
    /// run queue.
    pub(super) is_over: bool,
    pub(super) timed: Timing,
    pub(super) watch: RequestChecks,
}

/// The state of a visit: the run of one connection's requests in a batch.
pub(super) struct Visited<'b> {
    /// The client of the connection. It is not in the thread's list during the visit.
    pub(super) client: Box<Client>,
    pub(super) conn: ConnId,
    /// The requests of the connection in the batch that have not run yet.
    pub(super) requests: Peekable<slice::Iter<'b, ParsedRequest>>,
    /// The visits of other connections in the batch that come after this one.
    pub(super) next_turns: &'b [ConnTurn<Visit>],
    /// The length in bytes of the connection's output queue before this visit. Output after this
    /// length shows the log position that the client has seen.
    pub(super) from_bytes: usize,
    /// The number of bytes in the output queue that are not replies of this visit: output of
    /// earlier visits, and published messages delivered during the visit.
    pub(super) pending_before: usize,
    /// The number of bytes of this visit's replies that were already sent, while a script was busy.
    pub(super) sent_bytes: usize,
    /// The number of bytes of the connection's input that belong to requests that have run.
    pub(super) done_bytes: usize,
    pub(super) ran: i64,
    ran_all: bool,
    pub(super) has_more: bool,
}

impl<'b> Visited<'b> {
    fn begin(client: Box<Client>, (batch, at): (&'b Batch<Visit>, usize), pending_bytes: usize) -> Self {
        let ConnTurn { visit: Visit { conn, .. }, ref requests, has_more, .. } = batch.turns[at];
        Self {
            client,
            conn,
            requests: batch.requests[requests.clone()].iter().peekable(),
            next_turns: &batch.turns[at + 1..],
            from_bytes: pending_bytes,
            pending_before: pending_bytes,
            sent_bytes: 0,
            done_bytes: 0,
            ran: 0,
            ran_all: true,
            has_more,
        }
    }
}

impl BatchRun<'_> {
    /// Wakes the threads for which `outbox` notes new replies or messages in their inboxes.
    #[inline]
    pub(super) fn wake_others(&self, outbox: &Outbox) {
        if !outbox.is_empty() {
            self.shared.wake(outbox);
        }
    }

    /// Returns true if the deadline of the batch has passed, according to the last reading of the
    /// clock.
    #[inline]
    fn is_late(&self) -> bool {
        self.timed.now() >= self.deadline
    }
}

/// Replies with an error to input that is not a valid request, and closes the connection after the
/// reply.
#[cold]
fn refuse_broken(session: &mut Session, parsed: &ParsedRequest, out: &mut ByteQueue) {
    if let Work::Broken(error) = &parsed.work {
        Reply::new(out, session.protocol()).error_bytes(&error.error_line());
    }
    session.flow = Flow::Closing;
}
