//! The readiness back end: epoll on Linux, kqueue on a Mac, through mio, with ordinary system calls
//! to receive and send.
//!
//! Sockets are registered edge-triggered for input. They are registered for writability only while
//! output is unsent: otherwise a Unix socket would wake its loop whenever the peer reads. An edge
//! is stored until the socket is empty. A receive that does not fill the buffer has emptied the
//! socket, so no second call is needed to detect that. A receive that fills the buffer puts the
//! connection on the list for the next turn. If the peer has already closed its side, no further
//! edge will come; then the loop receives until it finds the end of the stream.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use crate::accept_pauses::AcceptPauses;
use crate::core::{Attempt, Core};
use crate::send::{Sent, send_queue};
use crate::slab::Passage;
use crate::waker::WakerKind;
use crate::{CloseReason, ConnId, Event, Listener, ListenerId, Waker};

/// The maximum number of kernel events taken in one turn; the next turn takes the rest.
const KERNEL_EVENTS_PER_TURN_MAX: usize = 1024;
/// The maximum length of one receive of a large announced request, in chunks
/// ([`LoopOptions::read_chunk_len_bytes`](crate::LoopOptions)). Other receives take one chunk. A
/// connection without encryption may receive more: all free capacity of its buffer.
const SEALED_CHUNKS_MAX: usize = 4;
/// The token of the waker. Tokens of the waker and of listeners fit 32 bits; those of connections
/// do not, because their generation is at least 1.
const WAKER_TOKEN: Token = Token(u32::MAX as usize);

pub(crate) struct Epoll {
    poll: Poll,
    kernel_events: Events,
    waker: Arc<mio::Waker>,
    listeners: Vec<Option<Listener>>,
    /// The listeners on which clients may be waiting to be accepted.
    acceptable: Vec<ListenerId>,
    /// The listeners that could not accept, with the times of their next attempts.
    accept_pauses: AcceptPauses,
    /// The connections that may have unread input, in the order in which they are served.
    readable: VecDeque<ConnId>,
    /// The connections whose last send stopped at the limit for one turn, although the socket may
    /// accept more.
    writable: Vec<ConnId>,
    /// True if this thread's timer slack (the delay that the kernel may add to sleeps) is one
    /// microsecond, so that short sleeps are precise.
    sleeps_precisely: bool,
}

/// The state of a socket after a receive: all received input was read, or there may be more.
#[derive(PartialEq, Eq)]
enum Received {
    Everything,
    MaybeMore,
}

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Arc::new(mio::Waker::new(poll.registry(), WAKER_TOKEN)?);
        Ok(Self {
            poll,
            kernel_events: Events::with_capacity(KERNEL_EVENTS_PER_TURN_MAX),
            waker,
            listeners: Vec::new(),
            acceptable: Vec::new(),
            accept_pauses: AcceptPauses::default(),
            readable: VecDeque::new(),
            writable: Vec::new(),
            sleeps_precisely: sleep_precisely(),
        })
    }

    pub(crate) fn waker(&self) -> Waker {
        Waker(WakerKind::Mio(Arc::clone(&self.waker)))
    }

    pub(crate) fn add_listener(&mut self, listener: Listener) -> io::Result<ListenerId> {
        let id = ListenerId(self.listeners.len() as u32);
        let fd = listener.as_fd().as_raw_fd();
        self.poll.registry().register(&mut SourceFd(&fd), Token(id.index()), Interest::READABLE)?;
        self.listeners.push(Some(listener));
        Ok(id)
    }

    pub(crate) fn remove_listener(&mut self, id: ListenerId) {
        if let Some(slot) = self.listeners.get_mut(id.index()) {
            // Closing the descriptor, its only one, ends the registration.
            *slot = None;
            self.accept_pauses.end(id);
        }
    }

    /// Registers the socket of `conn`, which was opened just now, for input. On an error, the
    /// connection is closed.
    pub(crate) fn watch(&mut self, core: &mut Core, conn: ConnId) -> io::Result<()> {
        self.begin_watch(core, conn, Interest::READABLE)
    }

    /// Registers the socket of `conn`, which is connecting, for input and writability. On an error,
    /// the connection is closed.
    pub(crate) fn await_connected(&mut self, core: &mut Core, conn: ConnId) -> io::Result<()> {
        self.begin_watch(core, conn, Interest::READABLE | Interest::WRITABLE)
    }

    fn begin_watch(&mut self, core: &mut Core, conn: ConnId, interest: Interest) -> io::Result<()> {
        let Some(open) = core.conns.get_mut(conn) else { return Ok(()) };
        open.readiness.awaits_writable = interest.is_writable();
        let fd = open.socket().as_fd().as_raw_fd();
        let token = Token(conn.to_u64() as usize);
        self.poll.registry().register(&mut SourceFd(&fd), token, interest).inspect_err(|_| {
            core.release(conn);
        })
    }

    /// Adds `conn` to the connections whose unsent output the next turn continues to send.
    pub(crate) fn send_soon(&mut self, conn: ConnId) {
        self.writable.push(conn);
    }

    /// Removes the registration of `conn`, which moves to another loop.
    pub(crate) fn release(&mut self, core: &mut Core, conn: ConnId) {
        let Some(open) = core.conns.get_mut(conn) else { return };
        open.readiness.awaits_writable = false;
        let fd = open.socket().as_fd().as_raw_fd();
        // It fails only for a descriptor that is not registered.
        let _ = self.poll.registry().deregister(&mut SourceFd(&fd));
    }

    pub(crate) fn poll(
        &mut self,
        core: &mut Core,
        timeout: Option<Duration>,
        events: &mut Vec<Event>,
    ) -> io::Result<()> {
        let busy = core.has_work()
            || !(self.readable.is_empty() && self.writable.is_empty() && self.acceptable.is_empty());
        let timeout = core.shorten(timeout);
        let timeout = if busy { Some(Duration::ZERO) } else { self.accept_pauses.shorten(timeout) };
        if timeout != Some(Duration::ZERO) {
            self.gather(core);
        }
        let timeout = self.wait_precisely(timeout);
        match self.poll.poll(&mut self.kernel_events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.kernel_events.clear(),
            outcome => outcome?,
        }
        for conn in std::mem::take(&mut self.writable) {
            self.send_unsent(core, conn);
        }
        self.take_kernel_events(core, events);
        self.accept(core.options.accepts_per_turn_max, events);
        self.receive_all(core, events);
        // Input to be stopped needs no action here: each receive first checks whether input is
        // wanted.
        for conn in core.shake_hands(events).resume {
            self.resume_input(core, conn);
        }
        core.inputs.report_marked(events);
        core.report_drained(events);
        for conn in core.report_closed(events) {
            self.close(core, conn);
        }
        core.report_released(events);
        Ok(())
    }

    /// Waits for input with microsecond precision, which the epoll call lacks. Does so only if
    /// `timeout` is not a whole number of milliseconds. Returns the timeout for the epoll call that
    /// follows.
    fn wait_precisely(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(timeout) = timeout.filter(|timeout| timeout.subsec_nanos() % 1_000_000 != 0) else {
            return timeout;
        };
        let Ok(timespec) = timeout.try_into() else { return Some(timeout) };
        let mut fds = [PollFd::new(self.poll.registry(), PollFlags::IN)];
        // A signal ends the wait as an event does; the epoll call that follows then finds nothing.
        match rustix::event::poll(&mut fds, Some(&timespec)) {
            Ok(_) | Err(Errno::INTR) => Some(Duration::ZERO),
            Err(_) => Some(timeout),
        }
    }

    /// Sleeps for the time of gathering, so that the poll that follows reports several requests
    /// together. The epoll call itself cannot wait for several events.
    fn gather(&self, core: &Core) {
        let gather_us = core.gather_us();
        if gather_us > 0 && self.sleeps_precisely {
            std::thread::sleep(Duration::from_micros(u64::from(gather_us)));
        }
    }

    fn take_kernel_events(&mut self, core: &mut Core, events: &mut Vec<Event>) {
        let kernel_events = std::mem::replace(&mut self.kernel_events, Events::with_capacity(0));
        for event in &kernel_events {
            let token = event.token();
            if token == WAKER_TOKEN {
                events.push(Event::Woken);
            } else if token.0 < WAKER_TOKEN.0 {
                let id = ListenerId(token.0 as u32);
                if !self.acceptable.contains(&id) {
                    self.acceptable.push(id);
                }
            } else {
                self.note_readiness(core, ConnId::from_u64(token.0 as u64), event, events);
            }
        }
        self.kernel_events = kernel_events;
    }

    fn note_readiness(
        &mut self,
        core: &mut Core,
        conn: ConnId,
        event: &mio::event::Event,
        events: &mut Vec<Event>,
    ) {
        let Some(open) = core.conns.get_mut(conn) else { return };
        if event.is_readable() || event.is_read_closed() {
            open.readiness.readable = true;
            open.readiness.peer_closed |= event.is_read_closed();
            if !open.readiness.queued && open.wants_input() {
                open.readiness.queued = true;
                self.readable.push_back(conn);
            }
        }
        let kept = core.options.keeps_half_closed && !event.is_error();
        if event.is_write_closed() && !open.wants_input() && !kept {
            // No input is wanted, so the end would not be found by a receive. The connection is
            // closed in both directions, or could not be opened.
            if open.passage == Passage::Connecting {
                return self.note_connected(core, conn, events);
            }
            core.end(conn, CloseReason::Failed(io::ErrorKind::ConnectionReset));
        } else if event.is_writable() {
            if core.outputs.is_behind(conn) {
                self.send_unsent(core, conn);
            } else if open.passage == Passage::Connecting {
                self.note_connected(core, conn, events);
            }
        }
    }

    /// Handles an event of a socket that connects to a peer: reports success or failure, or
    /// continues to wait.
    #[cold]
    fn note_connected(&mut self, core: &mut Core, conn: ConnId, events: &mut Vec<Event>) {
        if core.try_connected(conn, events) == Attempt::Connected {
            self.register(core, conn, Interest::READABLE);
            self.resume_input(core, conn);
        }
    }

    fn accept(&mut self, accepts_max: usize, events: &mut Vec<Event>) {
        // Clients of a paused listener wait until its pause ends.
        self.acceptable.retain(|&id| !self.accept_pauses.holds(id));
        if !self.accept_pauses.is_empty() {
            self.acceptable.extend(self.accept_pauses.due(Instant::now()));
        }
        for id in std::mem::take(&mut self.acceptable) {
            for accepted in 0.. {
                let Some(Some(listener)) = self.listeners.get(id.index()) else { break };
                if accepted == accepts_max {
                    self.acceptable.push(id);
                    break;
                }
                match listener.accept() {
                    Ok(socket) => events.push(Event::Accepted { listener: id, socket }),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        self.accept_pauses.end(id);
                        break;
                    }
                    // A client that closed its connection before it was accepted is ignored.
                    Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        self.accept_pauses.failed(id, error, Instant::now(), events);
                        break;
                    }
                }
            }
        }
    }

    /// Receives from the connections in the list `readable`, in order, until the turn's memory is
    /// full. Connections that were not reached are first in the next turn; those that may have more
    /// input are last.
    fn receive_all(&mut self, core: &mut Core, events: &mut Vec<Event>) {
        let chunk_len = core.options.read_chunk_len_bytes;
        for _ in 0..self.readable.len() {
            if !core.inputs.memory_mut().arena_mut().has_room(chunk_len) {
                break;
            }
            let Some(conn) = self.readable.pop_front() else { break };
            let Some(open) = core.conns.get_mut(conn) else { continue };
            if !open.wants_input() {
                open.readiness.queued = false;
                continue;
            }
            // Its earlier input is not parsed yet, so more of it stays in the socket.
            let more = core.inputs.is_marked(conn) || receive(core, conn, events) == Received::MaybeMore;
            if more {
                self.readable.push_back(conn);
            } else if let Some(open) = core.conns.get_mut(conn) {
                open.readiness.queued = false;
            }
        }
    }

    pub(crate) fn flush(&mut self, core: &mut Core) -> usize {
        let dirty = core.outputs.begin_flush();
        let mut sent_to = 0;
        for &conn in &dirty {
            let Some(open) = core.conns.get(conn) else { continue };
            let Some(queue) = core.outputs.flushable(conn) else {
                if core.outputs.is_sealed(conn) {
                    self.flush_sealed(core, conn);
                    sent_to += 1;
                } else if core.outputs.len_bytes(conn) == 0 {
                    core.output_sent(conn);
                }
                continue;
            };
            let sent = send_queue(open.socket(), queue, core.options.write_len_bytes_max);
            sent_to += 1;
            core.outputs.after_send(conn);
            self.settle(core, conn, sent);
        }
        core.outputs.end_flush(dirty);
        sent_to
    }

    /// Encrypts and sends the queued output of an encrypted connection, unless earlier bytes are
    /// unsent.
    fn flush_sealed(&mut self, core: &mut Core, conn: ConnId) {
        if !core.outputs.is_behind(conn) {
            self.send_unsent(core, conn);
        }
        if core.outputs.is_behind(conn) {
            core.outputs.note_behind(conn);
        }
    }

    /// Handles the result of a send: waits for writability, continues in the next turn, or ends the
    /// connection.
    fn settle(&mut self, core: &mut Core, conn: ConnId, sent: Result<Sent, Errno>) {
        match sent {
            Ok(Sent::All) => return core.output_sent(conn),
            Ok(Sent::Blocked) => self.register(core, conn, Interest::READABLE | Interest::WRITABLE),
            Ok(Sent::Limited) => self.writable.push(conn),
            Err(error) => core.end(conn, CloseReason::Failed(io::Error::from(error).kind())),
        }
        core.await_drained(conn);
    }

    /// Sends the bytes of `conn` that earlier flushes left unsent, and then those queued since.
    fn send_unsent(&mut self, core: &mut Core, conn: ConnId) {
        if core.conns.get(conn).is_none() {
            return;
        }
        let sent = core.send_unsent(conn);
        if sent == Ok(Sent::All) {
            self.register(core, conn, Interest::READABLE);
        }
        self.settle(core, conn, sent);
    }

    /// Registers the socket of `conn` for input, or for input and writability. epoll reports the
    /// present readiness of a socket when it is registered, so no event is lost. Does nothing for a
    /// connection that moves to another loop.
    fn register(&mut self, core: &mut Core, conn: ConnId, interest: Interest) {
        let awaits = interest.is_writable();
        let Some(open) = core.conns.get_mut(conn).filter(|open| !open.is_leaving()) else { return };
        if std::mem::replace(&mut open.readiness.awaits_writable, awaits) == awaits {
            return;
        }
        let fd = open.socket().as_fd().as_raw_fd();
        let token = Token(conn.to_u64() as usize);
        if let Err(error) = self.poll.registry().reregister(&mut SourceFd(&fd), token, interest) {
            core.end(conn, CloseReason::Failed(error.kind()));
        }
    }

    /// Closes the socket of `conn`. It has no other descriptor, so the kernel removes its
    /// registration.
    pub(crate) fn close(&mut self, core: &mut Core, conn: ConnId) {
        drop(core.release(conn));
    }

    /// Resumes receiving from `conn` after its input was paused.
    pub(crate) fn resume_input(&mut self, core: &mut Core, conn: ConnId) {
        if let Some(open) = core.conns.get_mut(conn)
            && open.readiness.readable
            && !open.readiness.queued
        {
            open.readiness.queued = true;
            self.readable.push_back(conn);
        }
    }
}

/// Sets the timer slack of this thread to one microsecond (the default is 50). Returns true on
/// success.
fn sleep_precisely() -> bool {
    #[cfg(target_os = "linux")]
    return rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1000)).is_ok();
    #[cfg(not(target_os = "linux"))]
    return false;
}

/// Receives once from `conn`: into the memory of the turn, or directly after its pending bytes if a
/// large request is being received.
fn receive(core: &mut Core, conn: ConnId, events: &mut Vec<Event>) -> Received {
    let chunk_len = core.options.read_chunk_len_bytes;
    let Some(open) = core.conns.get_mut(conn) else { return Received::Everything };
    let announced = core.inputs.announced_rest(conn) > chunk_len;
    // Records are opened in place. Of a large request, several are received at a time.
    let large = announced && open.tls.is_none();
    let chunk_len = if announced { SEALED_CHUNKS_MAX * chunk_len } else { chunk_len };
    let (outcome, offered) = if large {
        let Some(pending) = core.inputs.pending_mut(conn, chunk_len) else { return Received::Everything };
        let offered = pending.capacity() - pending.len();
        (rustix::net::recv(open.socket(), spare_capacity(pending), RecvFlags::DONTWAIT), offered)
    } else {
        let free = core.inputs.memory_mut().arena_mut().free_mut(chunk_len);
        let offered = free.len();
        (rustix::net::recv(open.socket(), free, RecvFlags::DONTWAIT), offered)
    };
    match outcome {
        Ok((0, _)) => {
            core.end(conn, CloseReason::PeerClosed);
            Received::Everything
        }
        Ok((received, _)) => {
            let everything = received < offered && !open.readiness.peer_closed;
            open.readiness.readable = !everything;
            if large {
                core.inputs.report(conn, events);
            } else {
                let span = core.inputs.memory_mut().arena_mut().take(received);
                core.received(conn, span, events);
            }
            if everything { Received::Everything } else { Received::MaybeMore }
        }
        Err(Errno::AGAIN) => {
            open.readiness.readable = false;
            Received::Everything
        }
        Err(Errno::INTR) => Received::MaybeMore,
        Err(error) => {
            core.end(conn, CloseReason::Failed(io::Error::from(error).kind()));
            Received::Everything
        }
    }
}
