//! The part of an event loop that both back ends share: the connections, their input and output,
//! and the rules for reporting the end of a connection.
//!
//! ```text
//!              adopt (a new socket) ──► handshake, if it is encrypted ─┐
//!   connect ──► Connecting ──► Shaking, if it is encrypted ────────────┼─► Settled ──► Closed
//!   adopt (a released socket) ─────────────────────────────────────────┘      │
//!                                                           release ──► Leaving ──► Released
//! ```
//! `opening` has the outgoing connections, `leaving` those that move to another loop.

mod leaving;
mod opening;

use std::time::{Duration, Instant};

use rustix::io::Errno;

use crate::ending::{CloseReason, ConnectError};
use crate::send::{Sent, send_queue};
use crate::slab::{Passage, Slab};
use crate::sys::span::Span;
use crate::sys::turn_memory::TurnMemory;
use crate::tls::{Handshakes, PeerSide, Session, Step};
use crate::{ConnId, Event, Inputs, LoopOptions, Outputs, Pace, Socket, TlsFailure};

pub(crate) use opening::Attempt;
use opening::{opening_error, take_error};

/// The minimum number of busy connections for a poll to gather requests, that is, to wait briefly
/// for more than one. With fewer, the peers would notice the delay.
const GATHER_ACTIVE_MIN: usize = 24;
/// The longest mean time between two requests at which a poll gathers, in nanoseconds. If requests
/// arrive more slowly, the peers would notice the wait for the second one.
const GATHER_INTERVAL_NS_MAX: u64 = 20_000;
/// The longest mean time between two requests, in nanoseconds, at which a poll gathers while output
/// is held back ([`Pace::Held`]). The peers wait for the log anyway, and without gathering each
/// request costs a wake-up.
const HELD_INTERVAL_NS_MAX: u64 = 200_000;
/// The minimum number of busy connections for [`HELD_INTERVAL_NS_MAX`] to apply.
const HELD_ACTIVE_MIN: usize = 100;
/// The divisor that sets the time of gathering. A poll gathers for as long as a 24th of the busy
/// connections need to send one request each. So gathering delays the next request of each
/// connection by only a few percent, for any number of connections.
const GATHER_ACTIVE_DIVISOR: u64 = 24;
/// The maximum number of byte queues sent for one connection before other connections get their
/// turn. For an encrypted connection, each queue holds the records that one call has sealed.
const UNSENT_PIECES_MAX: usize = 8;
/// The largest capacity, in bytes, with which the buffer `Core::opened` for decrypted data is kept
/// for the next input. A larger buffer is freed.
const OPENED_CAPACITY_BYTES_MAX: usize = 256 * 1024;
/// The minimum number of requests that a poll waits for when it gathers.
const GATHER_REPORTS_MIN: u64 = 2;

/// The state of one event loop that does not depend on its back end (epoll or io_uring).
pub(crate) struct Core {
    pub(crate) options: LoopOptions,
    pub(crate) conns: Slab,
    pub(crate) inputs: Inputs,
    pub(crate) outputs: Outputs,
    pub(crate) pace: Pace,
    /// The connections that have ended and whose end was not reported yet.
    ended: Vec<ConnId>,
    /// The connections for which the next poll reports that all their output is sent (`Drained`).
    drained: Vec<ConnId>,
    /// The connections whose handshakes are not complete, and those that are not connected yet.
    handshakes: Handshakes,
    /// The connections that move to another loop and still have a slot in this loop.
    leaving: Vec<ConnId>,
    /// The errors of outgoing connections that failed and are not reported yet.
    connect_errors: Vec<(ConnId, ConnectError)>,
    /// The buffer for the plaintext of received TLS records; empty between two inputs.
    opened: Vec<u8>,
}

/// The connections for which the back end must stop or resume receiving, as a result of the
/// handshakes continued in a turn.
#[derive(Default)]
pub(crate) struct AfterHandshakes {
    /// The connections whose handshake waits for a later turn: nothing is received from them until
    /// then.
    pub(crate) stop: Vec<ConnId>,
    /// The connections from which the back end may receive again.
    pub(crate) resume: Vec<ConnId>,
}

impl Core {
    pub(crate) fn new(options: LoopOptions, memory: TurnMemory) -> Self {
        Self {
            options,
            conns: Slab::default(),
            inputs: Inputs::new(memory),
            outputs: Outputs::default(),
            pace: Pace::Prompt,
            ended: Vec::new(),
            drained: Vec::new(),
            handshakes: Handshakes::default(),
            leaving: Vec::new(),
            connect_errors: Vec::new(),
            opened: Vec::new(),
        }
    }

    /// Stores `socket` in a free slot of the loop. Returns the id of the new connection.
    pub(crate) fn open(&mut self, socket: Socket) -> ConnId {
        let conn = self.conns.insert(socket);
        self.inputs.open(conn);
        self.outputs.open(conn);
        conn
    }

    /// Makes `conn`, which was opened just now, an encrypted connection and begins its handshake.
    pub(crate) fn encrypt(&mut self, conn: ConnId, session: Session) {
        let Some(open) = self.conns.get_mut(conn) else { return };
        let speaks_first = session.speaks_first();
        open.tls = Some(Box::new(session));
        self.outputs.seal(conn);
        self.handshakes.begin(conn, Instant::now() + self.options.handshake_time_max);
        if speaks_first {
            self.make_ready(conn);
        }
    }

    /// Adds `conn` to the queue of handshakes that are ready for their next step, unless the queue
    /// has it already.
    fn make_ready(&mut self, conn: ConnId) {
        if let Some(open) = self.conns.get_mut(conn)
            && !std::mem::replace(&mut open.awaits_step, true)
        {
            self.handshakes.make_ready(conn);
        }
    }

    /// Adds the bytes received from `conn` to its input and reports `Data`. Decrypts them first if
    /// the connection is encrypted.
    #[inline]
    pub(crate) fn received(&mut self, conn: ConnId, span: Span, events: &mut Vec<Event>) {
        if self.conns.get(conn).is_some_and(|open| open.tls.is_some()) {
            return self.received_sealed(conn, span, events);
        }
        self.inputs.receive(conn, span);
        self.inputs.report(conn, events);
    }

    /// Decrypts the TLS records received from an encrypted connection, adds their data to its input
    /// and reports `Data`.
    fn received_sealed(&mut self, conn: ConnId, span: Span, events: &mut Vec<Event>) {
        let Some(open) = self.conns.get_mut(conn) else { return };
        let Some(tls) = &mut open.tls else { return };
        if tls.is_handshaking() {
            tls.keep(self.inputs.memory_mut().bytes(span));
            return self.make_ready(conn);
        }
        if tls.peer_side() == PeerSide::Finished {
            return;
        }
        let before = self.inputs.len_bytes(conn);
        let outcome = tls.open(self.inputs.memory_mut().bytes_mut(span), &mut self.opened);
        if self.opened.len() <= span.len() {
            // Data in the memory of the turn needs no copy if it is consumed in this turn.
            let place = span.part(0, self.opened.len());
            self.inputs.memory_mut().bytes_mut(place).copy_from_slice(&self.opened);
            if !self.opened.is_empty() {
                self.inputs.receive(conn, place);
            }
        } else {
            self.inputs.receive_copy(conn, &self.opened);
        }
        self.opened.clear();
        self.opened.shrink_to(OPENED_CAPACITY_BYTES_MAX);
        if tls.has_ready() {
            self.outputs.mark_dirty(conn);
        }
        let finished = tls.peer_side() == PeerSide::Finished;
        if self.inputs.len_bytes(conn) > before {
            self.inputs.report(conn, events);
        }
        match outcome {
            Err(failure) => self.end(conn, CloseReason::Tls(failure)),
            Ok(()) if finished => self.end(conn, CloseReason::PeerClosed),
            Ok(()) => {}
        }
    }

    /// Performs the next step of each TLS handshake that is ready, up to the limit per turn. Ends
    /// the handshakes whose deadlines have passed. The next flush sends their output.
    pub(crate) fn shake_hands(&mut self, events: &mut Vec<Event>) -> AfterHandshakes {
        let mut after = AfterHandshakes::default();
        if self.handshakes.any_deadline() {
            let conns = &self.conns;
            let is_over =
                |conn| !conns.get(conn).is_some_and(|open| open.is_handshaking() || open.is_opening());
            for conn in self.handshakes.take_late(Instant::now(), is_over) {
                self.end(conn, CloseReason::Tls(TlsFailure::HandshakeTimedOut));
            }
        }
        for _ in 0..self.options.handshakes_per_turn_max.max(1) {
            let Some(conn) = self.handshakes.next_ready() else { return after };
            self.step(conn, events);
            if let Some(open) = self.conns.get_mut(conn)
                && !open.is_leaving()
                && std::mem::take(&mut open.input_stopped)
                && open.wants_input()
            {
                after.resume.push(conn);
            }
        }
        for conn in self.handshakes.all_ready() {
            if let Some(open) = self.conns.get_mut(conn)
                && !std::mem::replace(&mut open.input_stopped, true)
            {
                after.stop.push(conn);
            }
        }
        after
    }

    /// Performs the next step of the TLS handshake of `conn`, and reports its success or failure.
    fn step(&mut self, conn: ConnId, events: &mut Vec<Event>) {
        let Some(open) = self.conns.get_mut(conn) else { return };
        open.awaits_step = false;
        if open.ending.is_some() || open.is_leaving() {
            return;
        }
        let Some(tls) = &mut open.tls else { return };
        let stepped = tls.step();
        self.outputs.mark_dirty(conn);
        match stepped {
            Ok(Step::Waiting) => {}
            Ok(Step::Done) => {
                events.push(match std::mem::take(&mut open.passage) {
                    Passage::Shaking => Event::Connected(conn),
                    _ => Event::Secured(conn),
                });
                self.take_rest(conn, events);
            }
            Err(error) => {
                let reason = error.to_string().into();
                if open.is_opening() {
                    self.connect_errors.push((conn, ConnectError::Handshake(reason)));
                } else {
                    events.push(Event::HandshakeFailed(conn, reason));
                }
                self.end(conn, CloseReason::Tls(TlsFailure::Handshake));
            }
        }
    }

    /// Adds the data that arrived together with the last message of the TLS handshake to the input
    /// of `conn`.
    fn take_rest(&mut self, conn: ConnId, events: &mut Vec<Event>) {
        let Some(tls) = self.conns.get_mut(conn).and_then(|open| open.tls.as_mut()) else { return };
        let data = tls.take_first_data();
        let finished = tls.peer_side() == PeerSide::Finished;
        if !data.is_empty() {
            self.inputs.receive_copy(conn, &data);
            self.inputs.report(conn, events);
        }
        if finished {
            self.end(conn, CloseReason::PeerClosed);
        }
    }

    /// Encrypts queued output of `conn` up to a limit, unless encrypted bytes from before are still
    /// unsent. Returns true if there are encrypted bytes to send now.
    pub(crate) fn seal(&mut self, conn: ConnId) -> bool {
        let Some(open) = self.conns.get_mut(conn) else { return false };
        let Some(tls) = &mut open.tls else { return false };
        if !(open.closing || tls.has_ready()) && self.outputs.len_bytes(conn) == 0 {
            return false;
        }
        let holds = self.outputs.holds(conn);
        let Some((plain, mut buffer)) = self.outputs.next_to_seal(conn) else { return false };
        tls.take_ready(&mut buffer);
        let sealed = tls.seal(plain, &mut buffer);
        if open.closing && plain.is_empty() && !holds {
            tls.seal_close_notify(&mut buffer);
        }
        let any = !buffer.is_empty();
        self.outputs.put_sealed(conn, buffer);
        if let Err(failure) = sealed {
            self.end(conn, CloseReason::Tls(failure));
        }
        any
    }

    /// Sends the bytes of `conn` that earlier flushes left unsent, then those queued since. Returns
    /// if all are sent, or why it stopped. For a connection that moves to another loop, sends
    /// nothing and returns `Blocked`.
    pub(crate) fn send_unsent(&mut self, conn: ConnId) -> Result<Sent, Errno> {
        for _ in 0..UNSENT_PIECES_MAX {
            if self.outputs.is_sealed(conn) {
                self.seal(conn);
            }
            let Some(open) = self.conns.get(conn) else { return Ok(Sent::All) };
            let Some(queue) = self.outputs.unsent_mut(conn) else { return Ok(Sent::All) };
            if open.is_leaving() {
                return Ok(Sent::Blocked);
            }
            match send_queue(open.socket(), queue, self.options.write_len_bytes_max)? {
                Sent::All => {}
                stopped => return Ok(stopped),
            }
        }
        Ok(Sent::Limited)
    }

    /// Sends the final TLS alert to the peer of an encrypted connection that is about to be closed.
    /// Sends no alert if encrypted bytes are unsent. The alert is lost if the socket does not
    /// accept it.
    #[cold]
    fn send_close_notice(&mut self, conn: ConnId) {
        let Some(open) = self.conns.get_mut(conn) else { return };
        if self.outputs.is_behind(conn) {
            return;
        }
        let failure = match open.ending {
            Some(CloseReason::Tls(failure)) => Some(failure),
            _ => None,
        };
        let words = open.tls.as_mut().map(|tls| tls.last_words(failure)).unwrap_or_default();
        if !words.is_empty() {
            // The peer may be gone.
            let _ = open.socket().send_once(&words);
        }
    }

    /// Frees the slot of `conn` and returns its socket, which the caller closes. Returns `None` for
    /// the id of a closed connection.
    pub(crate) fn release(&mut self, conn: ConnId) -> Option<Socket> {
        if self.outputs.is_sealed(conn) {
            self.send_close_notice(conn);
        }
        let socket = self.conns.release(conn)?;
        self.inputs.close(conn);
        self.outputs.close(conn);
        Some(socket)
    }

    /// Ends the previous turn of the loop: its input becomes invalid, and its released slots can be
    /// reused.
    pub(crate) fn end_turn(&mut self) {
        self.inputs.end_turn();
        self.conns.end_turn();
    }

    /// Returns true if the loop has events to report without waiting for the kernel.
    pub(crate) fn has_work(&self) -> bool {
        self.inputs.any_marked()
            || !self.ended.is_empty()
            || !self.drained.is_empty()
            || self.handshakes.any_ready()
    }

    /// Returns `timeout`, or the time until the first deadline of a handshake, if that is shorter.
    #[inline]
    pub(crate) fn shorten(&self, timeout: Option<Duration>) -> Option<Duration> {
        if self.handshakes.any_deadline() { self.handshakes.shorten(timeout) } else { timeout }
    }

    /// Returns the time for which the next poll may gather requests, in microseconds; 0 for no
    /// gathering.
    pub(crate) fn gather_us(&self) -> u32 {
        let (interval_ns, active) = (self.inputs.report_interval_ns(), self.inputs.active_count());
        gather_us(self.pace, interval_ns, active, self.options.gather_us_max)
    }

    /// Records that `conn` has ended for `reason`; the end is reported later. Of several reasons,
    /// the first is reported, with two exceptions. `Flushed` replaces any other reason. Any reason
    /// replaces `PeerClosed`: a peer that has only finished sending may still read replies, but not
    /// after a failed send.
    pub(crate) fn end(&mut self, conn: ConnId, reason: CloseReason) {
        let Some(open) = self.conns.get_mut(conn) else { return };
        let listed = open.ending.is_some() && !std::mem::take(&mut open.end_parked);
        if !listed {
            self.ended.push(conn);
        }
        let overtakes = matches!(open.ending, None | Some(CloseReason::PeerClosed));
        if overtakes || reason == CloseReason::Flushed {
            open.ending = Some(reason);
        }
    }

    /// Queues the end of `conn` to be reported, if its report was postponed because input was
    /// paused.
    pub(crate) fn unpark_end(&mut self, conn: ConnId) {
        if let Some(open) = self.conns.get_mut(conn)
            && std::mem::take(&mut open.end_parked)
        {
            self.ended.push(conn);
        }
    }

    /// Reports the connections that have ended and returns them; the caller closes them. An end is
    /// not reported while the connection has input that was reported in this turn or is not parsed
    /// yet. So all requests that a peer sent before it closed are still served. `PeerClosed` is not
    /// reported while input is paused.
    #[must_use]
    pub(crate) fn report_closed(&mut self, events: &mut Vec<Event>) -> Vec<ConnId> {
        let mut reported = Vec::new();
        self.ended.retain(|&conn| {
            let Some(open) = self.conns.get_mut(conn) else {
                events.extend(take_error(&mut self.connect_errors, conn));
                return false;
            };
            let Some(reason) = open.ending else { return false };
            if open.is_leaving() {
                // Its end moves to the next loop.
                return false;
            }
            if open.is_opening() && reason != CloseReason::Flushed {
                let error = take_error(&mut self.connect_errors, conn);
                let other = || Event::ConnectFailed(conn, opening_error(open.passage, reason));
                events.push(error.unwrap_or_else(other));
                reported.push(conn);
                return false;
            }
            let unread = self.inputs.is_reported(conn) || self.inputs.is_marked(conn);
            if unread && reason != CloseReason::Flushed {
                return true;
            }
            let has_replies = open.closing && self.outputs.len_bytes(conn) > 0;
            if reason == CloseReason::PeerClosed && (has_replies || self.outputs.holds(conn)) {
                // The peer may still read its last replies: the connection ends when they are sent.
                (open.ending, open.closing) = (None, true);
                return false;
            }
            if open.paused && reason == CloseReason::PeerClosed {
                open.end_parked = true;
                return false;
            }
            if self.options.keeps_half_closed && reason == CloseReason::PeerClosed && !open.closing {
                (open.ending, open.peer_finished) = (None, true);
                events.push(Event::PeerFinished(conn));
                return false;
            }
            events.push(Event::Closed(conn, reason));
            reported.push(conn);
            false
        });
        reported
    }

    /// Records that all output of `conn` is sent, except the parts that are held back. Without such
    /// parts, reports `Drained` later if that was requested, and ends the connection if
    /// `close_after_flush` was called.
    #[inline]
    pub(crate) fn output_sent(&mut self, conn: ConnId) {
        let Some(open) = self.conns.get_mut(conn) else { return };
        let closing = open.closing;
        if (closing || open.awaits_drained) && self.outputs.holds(conn) {
            return;
        }
        if std::mem::take(&mut open.awaits_drained) {
            self.drained.push(conn);
        }
        if closing {
            self.end(conn, CloseReason::Flushed);
        }
    }

    /// Requests a `Drained` event for `conn` once its output is sent.
    pub(crate) fn await_drained(&mut self, conn: ConnId) {
        if let Some(open) = self.conns.get_mut(conn) {
            open.awaits_drained = true;
        }
    }

    /// Appends a `Drained` event for each connection that is to be reported as drained and is still
    /// open.
    pub(crate) fn report_drained(&mut self, events: &mut Vec<Event>) {
        for conn in self.drained.drain(..) {
            if self.conns.get(conn).is_some() {
                events.push(Event::Drained(conn));
            }
        }
    }
}

/// Returns the time for which a poll may gather requests, in microseconds. `interval_ns` is the
/// mean time between two requests, `active` the number of busy connections. Returns 0 if few
/// connections are busy or requests arrive slowly.
fn gather_us(pace: Pace, interval_ns: u64, active: usize, max_us: u32) -> u32 {
    let (interval_ns_max, max_us) = match pace {
        Pace::Held if active >= HELD_ACTIVE_MIN => (HELD_INTERVAL_NS_MAX, 2 * max_us),
        Pace::Prompt | Pace::Held => (GATHER_INTERVAL_NS_MAX, max_us),
    };
    if max_us == 0 || interval_ns > interval_ns_max || active < GATHER_ACTIVE_MIN {
        return 0;
    }
    let reports = (active as u64 / GATHER_ACTIVE_DIVISOR).max(GATHER_REPORTS_MIN);
    (reports * interval_ns / 1000).clamp(1, u64::from(max_us)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_or_slow_connections_are_never_waited_for() {
        assert_eq!(gather_us(Pace::Prompt, 3_000, GATHER_ACTIVE_MIN - 1, 100), 0);
        assert_eq!(gather_us(Pace::Prompt, GATHER_INTERVAL_NS_MAX + 1, 1024, 100), 0);
        assert_eq!(gather_us(Pace::Prompt, u64::MAX, 1024, 100), 0, "nothing was measured yet");
        assert_eq!(gather_us(Pace::Prompt, 3_000, 1024, 0), 0, "switched off");
    }

    #[test]
    fn where_output_is_held_back_many_slow_connections_are_waited_for() {
        assert_eq!(gather_us(Pace::Held, 50_000, HELD_ACTIVE_MIN - 1, 100), 0);
        assert_eq!(gather_us(Pace::Held, 40_000, HELD_ACTIVE_MIN, 100), 160);
        assert_eq!(gather_us(Pace::Held, 40_000, 512, 100), 200, "twice the longest time");
        assert_eq!(gather_us(Pace::Held, HELD_INTERVAL_NS_MAX + 1, 512, 100), 0);
        assert_eq!(gather_us(Pace::Held, 3_000, 512, 0), 0, "switched off");
    }

    #[test]
    fn the_time_is_that_of_a_24th_of_the_busy_connections_within_bounds() {
        assert_eq!(gather_us(Pace::Prompt, 4_000, GATHER_ACTIVE_MIN, 100), 8, "two requests at least");
        assert_eq!(gather_us(Pace::Prompt, 4_000, 240, 100), 40);
        assert_eq!(gather_us(Pace::Prompt, 4_000, 10_000, 100), 100, "at most the longest time");
        assert_eq!(gather_us(Pace::Prompt, 1, 50, 100), 1, "some time, where gathering is on");
    }
}
