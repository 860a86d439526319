//! The completion back end: io_uring. Accepts and receives are armed once and report every event. A
//! turn submits all new requests and waits for completions in one system call.
//!
//! - Received bytes are in provided buffers until the next poll returns the buffers to the kernel.
//!   If the kernel runs out of buffers, a receive ends with ENOBUFS. It is armed again in the next
//!   turn, before all others.
//! - Pausing cancels the receive; bytes that were already on their way are still reported. If a
//!   connection has more unparsed bytes than a limit, its receive is cancelled in the same way.
//!   From then on the loop receives one chunk per turn from it, until its socket is empty: a
//!   multishot receive would fill all buffers whenever it is armed.
//! - Kernels can fail to report the end of a connection. If bytes and a reset after them arrive
//!   while the loop works, a multishot receive may report the bytes and then wait forever. This was
//!   seen with Linux 6.18, once in some thousand resets during floods. Therefore
//!   [`Uring::find_closed_connections`] asks the sockets themselves from time to time. If a socket
//!   is at its end, its receive is cancelled and armed again; then it reports the end.
//! - A flush queues one send per connection, which the next poll submits. Output of several pieces,
//!   or to a Unix socket, is sent by system call instead. Output that a socket does not accept at
//!   once waits for a poll request. An outgoing connection waits for a poll request in the same way
//!   until its peer has answered.
//! - The requests of a released connection are cancelled. The connection is reported as released
//!   once they have completed. Bytes that arrive until then, and the rest of a cancelled send, move
//!   with it to the other loop.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::accept_pauses::AcceptPauses;
use crate::core::{Attempt, Core};
use crate::send::{Sent, send_queue};
use crate::slab::{Passage, Receive};
use crate::sys::buffers::{More, ProvidedBuffers};
use crate::sys::ring::{Completion, Received, Ring, Wait};
use crate::waker::WakerKind;
use crate::{CloseReason, ConnId, Event, Listener, ListenerId, LoopOptions, Socket, Waker};

/// The maximum number of unparsed chunks ([`LoopOptions::read_chunk_len_bytes`]) of a connection
/// that the caller has marked ready. Above it, nothing more is received.
const UNPARSED_CHUNKS_MAX: usize = 8;

/// The divisor for the number of slots that one check for unreported ends covers: an eighth of the
/// open connections, with one system call.
const LOOK_DIVISOR: usize = 8;
/// The minimum number of slots that one check for unreported ends covers.
const LOOK_COUNT_MIN: usize = 256;

/// The maximum number of requests for which a poll waits when it gathers. With this number, the
/// cost of a turn per request is already small.
const GATHER_REQUESTS_MAX: usize = 128;

/// Returns true if the caller has marked `conn` ready and it has more unparsed bytes than allowed.
fn has_much_unparsed(core: &Core, conn: ConnId) -> bool {
    let unparsed_max = UNPARSED_CHUNKS_MAX * core.options.read_chunk_len_bytes;
    core.inputs.is_marked(conn) && core.inputs.len_bytes(conn) > unparsed_max
}

pub(crate) struct Uring {
    ring: Ring,
    event_fd: Arc<OwnedFd>,
    listeners: Vec<Option<Listener>>,
    /// The listeners that could not accept. The loop itself calls accept for them until no client
    /// waits; then the kernel accepts again.
    accept_pauses: AcceptPauses,
    /// The connections whose receive has ended and must be submitted again.
    to_arm: Vec<ConnId>,
    /// The connections whose receive ended because no provided buffer was free. Their receives are
    /// submitted again before all others.
    starved: Vec<ConnId>,
    /// The connections from which nothing is received until the caller has parsed their input.
    throttled: Vec<ConnId>,
    /// The connections whose last send stopped at the limit of a turn, although the socket may
    /// accept more.
    writable: Vec<ConnId>,
    /// The connections with a send that the last flush has queued for the kernel.
    submitted: Vec<ConnId>,
    /// The slot of a connection at which the next check for unreported ends begins.
    looks_from: usize,
}

impl Uring {
    /// Creates the back end and the buffers for received bytes.
    ///
    /// # Errors
    /// The reason why io_uring is not available.
    pub(crate) fn new(options: &LoopOptions) -> Result<(Self, ProvidedBuffers), String> {
        let (mut ring, buffers) = Ring::new(options.turn_input_len_bytes_max)?;
        let event_fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event_fd = Arc::new(event_fd.map_err(|error| format!("eventfd: {error}"))?);
        ring.push_wake(&event_fd);
        let uring = Self {
            ring,
            event_fd,
            listeners: Vec::new(),
            accept_pauses: AcceptPauses::default(),
            to_arm: Vec::new(),
            starved: Vec::new(),
            throttled: Vec::new(),
            writable: Vec::new(),
            submitted: Vec::new(),
            looks_from: 0,
        };
        Ok((uring, buffers))
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(WakerKind::EventFd(Arc::clone(&self.event_fd)))
    }

    pub(crate) fn add_listener(&mut self, listener: Listener) -> ListenerId {
        let id = ListenerId(self.listeners.len() as u32);
        self.ring.push_accept(&listener, id);
        self.listeners.push(Some(listener));
        id
    }

    pub(crate) fn remove_listener(&mut self, id: ListenerId) {
        if let Some(listener) = self.listeners.get_mut(id.index()).and_then(Option::take) {
            self.accept_pauses.end(id);
            self.ring.cancel_accept(id);
            self.ring.close_later(listener.into_fd());
        }
    }

    /// Submits a receive from `conn`, which was opened just now.
    pub(crate) fn watch(&mut self, core: &mut Core, conn: ConnId) {
        self.arm(core, conn);
    }

    /// Submits a poll request that completes when `conn`, which is connecting, is connected or has
    /// failed.
    pub(crate) fn await_connected(&mut self, core: &mut Core, conn: ConnId) {
        if let Some(open) = core.conns.get_mut(conn) {
            open.requests.writable = true;
            self.ring.push_writable(open.socket(), conn);
        }
    }

    /// Adds `conn` to the connections whose unsent output the next turn continues to send.
    pub(crate) fn send_soon(&mut self, conn: ConnId) {
        self.writable.push(conn);
    }

    /// Cancels the requests for `conn`, which moves to another loop.
    pub(crate) fn release(&mut self, core: &mut Core, conn: ConnId) {
        self.disarm(core, conn);
        if core.conns.get(conn).is_some_and(|open| open.requests.writable) {
            self.ring.cancel_writable(conn);
        }
        if core.outputs.in_flight(conn) {
            self.ring.cancel_sends(conn);
        }
    }

    /// Submits a receive from `conn`, if the loop may receive from it and the kernel has no receive
    /// request for it.
    fn arm(&mut self, core: &mut Core, conn: ConnId) {
        if has_much_unparsed(core, conn) {
            self.throttle(core, conn);
        }
        let Some(open) = core.conns.get_mut(conn) else { return };
        let wanted = open.wants_input() && !open.requests.throttled;
        if wanted && open.requests.receive == Receive::Idle {
            open.requests.receive = Receive::Armed;
            if open.requests.floods {
                let chunk_len = core.options.read_chunk_len_bytes as u32;
                self.ring.push_receive_once(open.socket(), conn, chunk_len);
            } else {
                self.ring.push_receive(open.socket(), conn);
            }
        }
    }

    /// Cancels the receive of `conn` if one is active; it can be submitted again after the
    /// cancellation.
    fn disarm(&mut self, core: &mut Core, conn: ConnId) {
        if let Some(open) = core.conns.get_mut(conn)
            && open.requests.receive == Receive::Armed
        {
            open.requests.receive = Receive::Cancelling;
            self.ring.cancel_receive(conn);
        }
    }

    pub(crate) fn pause_input(&mut self, core: &mut Core, conn: ConnId) {
        self.disarm(core, conn);
    }

    pub(crate) fn resume_input(&mut self, core: &mut Core, conn: ConnId) {
        self.arm(core, conn);
    }

    /// Checks some connections, a different part in each call, for ends that the kernel has not
    /// reported.
    pub(crate) fn find_closed_connections(&mut self, core: &mut Core) {
        let count = (core.conns.open_count() / LOOK_DIVISOR).max(LOOK_COUNT_MIN);
        let slots = core.conns.next_open(&mut self.looks_from, count);
        let (conns, mut sockets): (Vec<ConnId>, Vec<PollFd<'_>>) = slots
            .filter(|(_, open)| open.requests.receive == Receive::Armed)
            .map(|(conn, open)| (conn, PollFd::new(open.socket(), PollFlags::RDHUP)))
            .unzip();
        if conns.is_empty() || poll(&mut sockets, Some(&Timespec::default())).unwrap_or(0) == 0 {
            // No end was found, or the check failed; the next check comes soon.
            return;
        }
        let is_at_end = |socket: &PollFd<'_>| !socket.revents().is_empty();
        let ended = conns.iter().zip(&sockets).filter(|(_, socket)| is_at_end(socket));
        for conn in ended.map(|(conn, _)| *conn).collect::<Vec<_>>() {
            // The receive is armed again once its cancellation completes.
            self.disarm(core, conn);
        }
    }

    pub(crate) fn close(&mut self, core: &mut Core, conn: ConnId) {
        let Some(open) = core.conns.get(conn) else { return };
        let requests = open.requests;
        let in_flight = core.outputs.in_flight(conn);
        let Some(socket) = core.release(conn) else { return };
        // The kernel keeps a socket open while it has requests for it.
        if requests.receive == Receive::Armed {
            self.ring.cancel_receive(conn);
        }
        if requests.writable {
            self.ring.cancel_writable(conn);
        }
        if in_flight {
            self.ring.cancel_sends(conn);
        }
        if requests.receive != Receive::Idle || requests.writable || in_flight {
            self.ring.close_later(socket.into_fd());
        }
    }

    pub(crate) fn poll(
        &mut self,
        core: &mut Core,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        for conn in std::mem::take(&mut self.starved).into_iter().chain(std::mem::take(&mut self.to_arm)) {
            self.arm(core, conn);
        }
        self.unthrottle(core);
        let busy = core.has_work() || !self.writable.is_empty();
        let timeout = core.shorten(self.accept_pauses.shorten(timeout));
        let wait = !busy && timeout != Some(Duration::ZERO);
        self.ring.enter(wait.then_some(self.gathering(core)), timeout)?;
        for conn in std::mem::take(&mut self.writable) {
            self.send_unsent(core, conn);
        }
        while let Some(completion) = self.ring.next_completion(core.inputs.memory_mut().buffers_mut()) {
            self.complete(core, completion, events);
        }
        if !self.accept_pauses.is_empty() {
            for id in self.accept_pauses.due(Instant::now()) {
                self.retry_accept(id, core.options.accepts_per_turn_max, events);
            }
        }
        let handshakes = core.shake_hands(events);
        handshakes.stop.into_iter().for_each(|conn| self.disarm(core, conn));
        handshakes.resume.into_iter().for_each(|conn| self.arm(core, conn));
        for conn in self.submitted.drain(..) {
            if core.outputs.is_behind(conn) {
                core.await_drained(conn);
            }
        }
        core.inputs.report_marked(events);
        core.report_drained(events);
        for conn in core.report_closed(events) {
            self.close(core, conn);
        }
        core.report_released(events);
        Ok(())
    }

    /// Returns the number of completions for which the next poll waits: one, or several for a short
    /// time if many connections are busy. The number is at most half of the busy connections. Their
    /// peers work while this thread does, so a wait for all requests would leave one side idle.
    fn gathering(&self, core: &Core) -> Wait {
        let gather_us = core.gather_us();
        if gather_us == 0 {
            return Wait::FIRST;
        }
        let requests = (core.inputs.active_count() / 2).clamp(1, GATHER_REQUESTS_MAX);
        // Usually the submitted sends complete at once.
        Wait { completions: requests + self.submitted.len(), gather_us }
    }

    fn complete(&mut self, core: &mut Core, completion: Completion, events: &mut Vec<Event>) {
        match completion {
            Completion::Received(received) => self.received(core, received, events),
            Completion::Sent { conn, queue, outcome } => self.sent(core, conn, queue, outcome),
            Completion::Writable { conn } => {
                if let Some(open) = core.conns.get_mut(conn) {
                    open.requests.writable = false;
                    if open.passage == Passage::Connecting {
                        return self.note_connected(core, conn, events);
                    }
                    self.send_unsent(core, conn);
                }
            }
            Completion::Accepted { listener, outcome, more } => {
                self.accepted(listener, outcome, more, events);
            }
            Completion::Woken { more } => {
                if more == More::Ended {
                    self.ring.push_wake(&self.event_fd);
                }
                events.push(Event::Woken);
            }
        }
    }

    /// Handles an event of a socket that connects to a peer: reports success or failure, or
    /// continues to wait.
    #[cold]
    fn note_connected(&mut self, core: &mut Core, conn: ConnId, events: &mut Vec<Event>) {
        match core.try_connected(conn, events) {
            Attempt::Waiting => self.await_connected(core, conn),
            Attempt::Connected => self.arm(core, conn),
            Attempt::Failed => {}
        }
    }

    fn received(&mut self, core: &mut Core, received: Received, events: &mut Vec<Event>) {
        let Received { conn, outcome, goes_on, socket_nonempty } = received;
        let Some(open) = core.conns.get_mut(conn) else { return };
        if !goes_on {
            open.requests.receive = Receive::Idle;
        }
        let wants_input = open.wants_input();
        match outcome {
            Ok(span) if span.len() > 0 => {
                let chunk_len = core.options.read_chunk_len_bytes;
                open.requests.floods &= socket_nonempty || span.len() >= chunk_len;
                // After `close_after_flush` or an end, input is dropped. A paused connection still
                // gets the bytes that were on their way.
                if open.closing || open.ending.is_some() {
                    return;
                }
                core.received(conn, span, events);
                if has_much_unparsed(core, conn) {
                    self.throttle(core, conn);
                }
                if !goes_on && wants_input {
                    self.to_arm.push(conn);
                }
            }
            // A peer that has closed its side may still read the rest of its replies.
            Ok(_) if open.closing || open.peer_finished => {}
            Ok(_) => core.end(conn, CloseReason::PeerClosed),
            Err(error) => match Errno::from_io_error(&error) {
                Some(Errno::NOBUFS) => {
                    // From now on it receives one chunk at a time, because the next connections
                    // need buffers too.
                    open.requests.floods = true;
                    core.inputs.memory_mut().buffers_mut().ran_out();
                    self.starved.push(conn);
                }
                Some(Errno::CANCELED | Errno::AGAIN | Errno::INTR) => self.to_arm.push(conn),
                _ => core.end(conn, CloseReason::Failed(error.kind())),
            },
        }
    }

    /// Stops receiving from `conn`, which has much unparsed input, until the caller has parsed it.
    fn throttle(&mut self, core: &mut Core, conn: ConnId) {
        if let Some(open) = core.conns.get_mut(conn)
            && !std::mem::replace(&mut open.requests.throttled, true)
        {
            open.requests.floods = true;
            self.throttled.push(conn);
            self.disarm(core, conn);
        }
    }

    /// Resumes receiving from throttled connections whose input the caller has parsed since.
    fn unthrottle(&mut self, core: &mut Core) {
        for conn in std::mem::take(&mut self.throttled) {
            if core.inputs.is_marked(conn) {
                self.throttled.push(conn);
            } else if let Some(open) = core.conns.get_mut(conn) {
                open.requests.throttled = false;
                self.arm(core, conn);
            }
        }
    }

    fn accepted(
        &mut self,
        id: ListenerId,
        outcome: io::Result<OwnedFd>,
        more: More,
        events: &mut Vec<Event>,
    ) {
        // Clients of a listener removed meanwhile are closed, because their descriptors are
        // dropped.
        let Some(Some(listener)) = self.listeners.get(id.index()) else { return };
        match outcome {
            Ok(fd) => {
                let socket = Socket::accepted(fd, listener.local_address()).with_server(listener.tls());
                events.push(Event::Accepted { listener: id, socket });
                if more == More::Ended {
                    self.ring.push_accept(listener, id);
                }
            }
            // A client that closed its connection before it was accepted is ignored.
            Err(error) if more == More::Follows || error.kind() == io::ErrorKind::ConnectionAborted => {
                if more == More::Ended {
                    self.ring.push_accept(listener, id);
                }
            }
            Err(error) => self.accept_pauses.failed(id, error, Instant::now(), events),
        }
    }

    /// Accepts clients of a paused listener with system calls until no client waits; then the
    /// kernel accepts again. If the limit per turn is reached or an accept fails, a later turn
    /// continues.
    fn retry_accept(&mut self, id: ListenerId, accepts_max: usize, events: &mut Vec<Event>) {
        let Some(Some(listener)) = self.listeners.get(id.index()) else { return };
        for _ in 0..accepts_max {
            match listener.accept() {
                Ok(socket) => events.push(Event::Accepted { listener: id, socket }),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.accept_pauses.end(id);
                    return self.ring.push_accept(listener, id);
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.accept_pauses.failed(id, error, Instant::now(), events),
            }
        }
    }

    pub(crate) fn flush(&mut self, core: &mut Core) -> usize {
        let dirty = core.outputs.begin_flush();
        let mut sent_to = 0;
        for &conn in &dirty {
            if core.outputs.flushable(conn).is_some() {
                self.send_first(core, conn);
                sent_to += 1;
            } else if core.outputs.is_sealed(conn) {
                self.flush_sealed(core, conn);
                sent_to += 1;
            } else if core.outputs.len_bytes(conn) == 0 {
                core.output_sent(conn);
            }
        }
        core.outputs.end_flush(dirty);
        sent_to
    }

    /// Submits the queued requests to the kernel. The next poll submits the requests that the
    /// kernel did not accept now.
    pub(crate) fn submit(&mut self) {
        self.ring.submit();
    }

    /// Sends the queue of `conn`, which has no unsent bytes from an earlier flush.
    fn send_first(&mut self, core: &mut Core, conn: ConnId) {
        let Some(open) = core.conns.get(conn) else { return };
        // A send to a Unix socket is a copy into the peer's queue: a request and its completion
        // cost more than the system call that they save (measured; see docs/performance.md).
        if !open.socket().local_address().is_unix()
            && let Some(queue) = core.outputs.take_single(conn)
        {
            self.ring.push_send(open.socket(), conn, queue);
            self.submitted.push(conn);
            return;
        }
        let Some(queue) = core.outputs.flushable(conn) else { return };
        let sent = send_queue(open.socket(), queue, core.options.write_len_bytes_max);
        core.outputs.after_send(conn);
        self.settle(core, conn, sent);
    }

    /// Encrypts the queue of an encrypted connection and sends it, unless earlier bytes are unsent.
    fn flush_sealed(&mut self, core: &mut Core, conn: ConnId) {
        if core.outputs.is_behind(conn) {
            return core.outputs.note_behind(conn);
        }
        if !core.seal(conn) {
            if core.outputs.len_bytes(conn) == 0 {
                core.output_sent(conn);
            }
            return;
        }
        let Some(open) = core.conns.get(conn) else { return };
        if open.socket().local_address().is_unix() {
            self.send_unsent(core, conn);
        } else if let Some(queue) = core.outputs.take_sealed(conn) {
            self.ring.push_send(open.socket(), conn, queue);
            self.submitted.push(conn);
        }
    }

    /// Handles the result of a send by system call: waits for writability, continues in the next
    /// turn, or ends the connection.
    fn settle(&mut self, core: &mut Core, conn: ConnId, sent: Result<Sent, Errno>) {
        match sent {
            Ok(Sent::All) => return core.output_sent(conn),
            Ok(Sent::Blocked) => {
                let Some(open) = core.conns.get_mut(conn) else { return };
                if !open.is_leaving() && !std::mem::replace(&mut open.requests.writable, true) {
                    self.ring.push_writable(open.socket(), conn);
                }
            }
            Ok(Sent::Limited) => self.writable.push(conn),
            Err(error) => core.end(conn, CloseReason::Failed(io::Error::from(error).kind())),
        }
        core.await_drained(conn);
    }

    /// Handles the completion of a send by the kernel: puts the bytes that it did not send back in
    /// the connection's output.
    fn sent(&mut self, core: &mut Core, conn: ConnId, queue: stdx::ByteQueue, outcome: io::Result<usize>) {
        core.outputs.sent(conn, queue);
        match outcome.map_err(|error| (Errno::from_io_error(&error), error)) {
            Ok(_) | Err((Some(Errno::AGAIN | Errno::INTR), _)) => self.send_unsent(core, conn),
            // The connection leaves, or was closed.
            Err((Some(Errno::CANCELED), _)) => {}
            Err((_, error)) => core.end(conn, CloseReason::Failed(error.kind())),
        }
    }

    /// Sends the bytes of `conn` that earlier flushes left unsent, and then those queued since.
    fn send_unsent(&mut self, core: &mut Core, conn: ConnId) {
        if core.conns.get(conn).is_none() || core.outputs.in_flight(conn) {
            return;
        }
        let sent = core.send_unsent(conn);
        self.settle(core, conn, sent);
    }
}
