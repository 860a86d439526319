//! The run of a script on an I/O thread. The script engine calls a function, the hook, at short
//! intervals. While the script is busy, the hook serves the thread's other connections from time to
//! time.
//!
//! ```text
//!   visit ─► script ─► hook: busy? ─► attend: poll ─► turn outside the gate ─► flush ─┐
//!                       ▲  every millisecond or so                                    │
//!                       └─────────────────────────────────────────────────────────────┘
//! ```
//! Before the script begins, its client, the bytes of its request and the engine are taken out of
//! the worker. A second engine, the stand-in, replaces the engine and answers the other clients.
//! The stand-in runs no scripts and stays outside the gate that guards the keyspace. There it runs
//! the commands that are allowed while a script is busy, and answers `-BUSY` to all others. A
//! thread that a busy script of another thread keeps outside the gate behaves in the same way.
//!
//! Nothing is received from the connection of the running script; its pipelined requests run
//! afterwards. Visits of the same batch that have not begun return to the queue. Their requests are
//! then answered like those of all other clients.

use std::time::{Duration, Instant};

use engine::batch::{ConnTurn, ParsedRequest};
use engine::log::level::Level;
use engine::pass::{Meanwhile, TurnPass};
use engine::session::Flow;
use engine::turn::Outcome;
use keyspace::gate::SharedPass;
use net::{ConnId, Event};

use super::requests::{BatchRun, OUTPUT_PENDING_BYTES_MAX, Visited};
use super::{Client, Worker};
use crate::run_queue::Visit;

/// Minimum time for which a busy script runs between two turns for the other connections.
const ATTEND_INTERVAL: Duration = Duration::from_millis(1);

/// Maximum capacity in bytes at which the buffer of a request or reply is kept for the next script.
/// Larger buffers are freed.
const BUFFER_KEPT_BYTES_MAX: usize = 64 << 10;

/// The hook of a running script, with the state that it needs to serve the thread's other
/// connections.
struct Attendant<'w, 's> {
    worker: &'w mut Worker<'s>,
    /// The connection of the client whose script runs.
    conn: ConnId,
    /// The log position up to which the script's client has seen changes, and the [`Level`] that
    /// its replies wait for.
    seen: (u64, Level),
    /// The length in bytes of the client's output queue before this visit, the run of its requests
    /// in the batch. Output after this length shows changes up to the position in `seen`.
    from_bytes: usize,
    next_turns: &'w [ConnTurn<Visit>],
    /// The time of the next turn for the other connections; `None` until the script is busy.
    due: Option<Instant>,
    events: Vec<Event>,
}

impl Attendant<'_, '_> {
    /// Prepares the worker to serve other connections, because the script has become busy. Returns
    /// the following visits of the batch to the run queue, and pauses the input of the script's
    /// client.
    #[cold]
    fn begin(&mut self) {
        let (position, level) = self.seen;
        if position > self.worker.shared.engine.log.released(level) {
            self.worker.release.mark(self.conn, self.from_bytes, self.seen);
        }
        self.worker.attends = true;
        self.worker.net.pause_input(self.conn);
        self.worker.put_back(self.next_turns);
    }
}

impl Meanwhile for Attendant<'_, '_> {
    fn attend(&mut self, now: Instant) {
        match self.due {
            Some(due) if now < due => return,
            Some(_) => {}
            None => self.begin(),
        }
        if let Err(error) = self.worker.net.poll(Some(Duration::ZERO), &mut self.events) {
            // The next poll, at the end of the script, reports the error again.
            tracing::error!(%error, "an event loop failed while a script was busy");
            self.worker.shared.stop();
        }
        let gate = &self.worker.shared.engine.gate;
        self.worker.turn(&mut self.events, Some(gate.outside_pass(self.worker.thread)));
        self.due = Some(Instant::now() + ATTEND_INTERVAL);
    }
}

impl<'s> Worker<'s> {
    /// Runs a request that runs scripts. Serves the thread's other connections from time to time
    /// while a script is busy.
    pub(super) fn run_script<'b>(
        &mut self,
        visited: &mut Visited<'b>,
        parsed: &'b ParsedRequest,
        run: &mut BatchRun<'b>,
        pass: &mut SharedPass<'_>,
    ) {
        let conn = visited.conn;
        let mut bytes = std::mem::take(&mut self.script_request);
        let mut out = std::mem::take(&mut self.script_reply);
        let input = self.net.inputs().bytes(conn);
        bytes.extend_from_slice(&input[parsed.start..][..parsed.len_bytes]);
        let queued_bytes = self.net.output(conn).len_bytes();
        let hasher = run.shared.engine.keyspace.hasher();
        let request = run.batch.request_of(parsed, &bytes, hasher).expect("it is about to run");
        let stand_in = self.stand_in.take().expect("scripts of a thread run one after the other");
        let mut engine = std::mem::replace(&mut self.engine, stand_in);
        let session = &mut visited.client.session;
        let seen = (session.observed_position(), session.level);
        let (from_bytes, next_turns) = (visited.from_bytes, visited.next_turns);
        let (due, events) = (None, Vec::new());
        let mut attendant = Attendant { worker: self, conn, seen, from_bytes, next_turns, due, events };
        let mut turn_pass = TurnPass::attended_by(pass, &mut attendant);
        let outcome = engine.run_attended(session, &request, &mut out, &mut turn_pass);
        let was_attended = attendant.due.is_some();
        self.stand_in = Some(std::mem::replace(&mut self.engine, engine));
        if was_attended {
            self.end_attending(visited, queued_bytes);
            run.is_over = true;
        }
        if outcome == Outcome::Done {
            let session = &mut visited.client.session;
            if run.watch.is_on() {
                run.watch.note((run.shared, &self.engine), session, &request);
            }
            let sizes = [parsed.len_bytes, out.len_bytes()];
            let next = visited.requests.peek().and_then(|next| next.registered);
            run.wake_others(&self.engine.executor.commit.outbox);
            run.timed.ran(&mut self.engine.executor, session, &request, sizes, next);
            visited.done_bytes = parsed.start + parsed.len_bytes;
            visited.ran += 1;
            let outputs = self.net.split().1;
            outputs.queue(conn).take_from(&mut out);
            if outputs.len_bytes(conn) > OUTPUT_PENDING_BYTES_MAX && session.flow == Flow::Running {
                session.flow = Flow::AwaitingReader;
            }
        }
        bytes.clear();
        if bytes.capacity() <= BUFFER_KEPT_BYTES_MAX {
            self.script_request = bytes;
        }
        if out.capacity_bytes() <= BUFFER_KEPT_BYTES_MAX {
            self.script_reply = out;
        }
    }

    /// Ends the service of other connections after a busy script, and receives from its client
    /// again. `queued_bytes` is the length of the client's output queue when the script began;
    /// these bytes may have been sent since.
    #[cold]
    fn end_attending(&mut self, visited: &mut Visited<'_>, queued_bytes: usize) {
        self.attends = false;
        self.net.resume_input(visited.conn);
        visited.sent_bytes += queued_bytes - visited.pending_before;
        let pending_bytes = self.net.output(visited.conn).len_bytes();
        (visited.from_bytes, visited.pending_before) = (pending_bytes, pending_bytes);
        // The event loop did not report input that arrived during the script.
        visited.has_more = true;
    }

    /// Puts the client of a busy script back into the thread's list, after the script has ended.
    /// Returns false, and removes the client, if its connection was closed during the script.
    #[cold]
    pub(super) fn take_back(&mut self, mut client: Box<Client>) -> bool {
        let conn = client.session.conn;
        if !self.net.is_open(conn) {
            self.let_go(*client);
            return false;
        }
        // The client was not in the thread's list, so the checks of pending output may have removed
        // it from their queue without a check.
        client.has_pending_output = false;
        // For the same reason, changes of users may have missed the client: all are checked again.
        self.closings_seen = self.closings_seen.wrapping_sub(1);
        self.clients[conn.index()] = Some(client);
        if self.net.split().1.len_bytes(conn) > 0 {
            self.add_pending_output(conn);
        }
        true
    }
}
