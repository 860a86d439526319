//! The event loop that callers see: one interface over the back ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::core::Core;
use crate::epoll::Epoll;
use crate::sys::turn_memory::{Arena, TurnMemory};
use crate::tls::Session;
#[cfg(target_os = "linux")]
use crate::uring::Uring;
use crate::{
    Address, Agreed, Backend, BackendChoice, CloseReason, ConnId, Event, Inputs, Listener, ListenerId,
    LoopOptions, Outputs, Pace, Socket, Waker,
};

/// An event loop: the connections of one thread. Build it in its thread; only its [`Waker`]s and
/// the [`Socket`]s it accepts belong elsewhere.
///
/// ```no_run
/// use net::{Event, EventLoop, Listener, LoopOptions};
///
/// let mut events = Vec::new();
/// let mut event_loop = EventLoop::new(&LoopOptions::default())?;
/// event_loop.add_listener(Listener::tcp("127.0.0.1:0".parse().expect("an address"), 511)?)?;
/// loop {
///     events.clear();
///     event_loop.poll(None, &mut events)?;
///     for event in events.drain(..) {
///         match event {
///             Event::Accepted { socket, .. } => drop(event_loop.adopt(socket)?),
///             Event::Data(conn) => {
///                 let (inputs, outputs) = event_loop.split();
///                 let len = inputs.bytes(conn).len();
///                 outputs.queue(conn).tail_mut().extend_from_slice(inputs.bytes(conn));
///                 event_loop.consume(conn, len);
///             }
///             _ => {}
///         }
///     }
///     event_loop.flush();
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct EventLoop {
    core: Core,
    driver: Driver,
    fallback_reason: Option<String>,
}

/// The way to the kernel.
enum Driver {
    Epoll(Box<Epoll>),
    #[cfg(target_os = "linux")]
    Uring(Box<Uring>),
}

impl EventLoop {
    /// Creates an event loop by `options`. `BackendChoice::Auto` tries io_uring first and takes
    /// epoll where that is impossible.
    pub fn new(options: &LoopOptions) -> io::Result<Self> {
        let mut fallback_reason = None;
        if options.backend != BackendChoice::Epoll {
            match Self::with_uring(options) {
                Ok(event_loop) => return Ok(event_loop),
                Err(reason) if options.backend == BackendChoice::IoUring => {
                    return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
                }
                Err(reason) => fallback_reason = Some(reason),
            }
        }
        let driver = Driver::Epoll(Box::new(Epoll::new()?));
        let memory = TurnMemory::Arena(Arena::new(options.turn_input_len_bytes_max));
        Ok(Self { core: Core::new(options.clone(), memory), driver, fallback_reason })
    }

    #[cfg(target_os = "linux")]
    fn with_uring(options: &LoopOptions) -> Result<Self, String> {
        let (uring, buffers) = Uring::new(options)?;
        let core = Core::new(options.clone(), TurnMemory::Buffers(buffers));
        Ok(Self { core, driver: Driver::Uring(Box::new(uring)), fallback_reason: None })
    }

    #[cfg(not(target_os = "linux"))]
    fn with_uring(_: &LoopOptions) -> Result<Self, String> {
        Err("this system has no io_uring".to_owned())
    }

    /// Returns the back end in use.
    pub fn backend(&self) -> Backend {
        match &self.driver {
            Driver::Epoll(_) => Backend::Epoll,
            #[cfg(target_os = "linux")]
            Driver::Uring(_) => Backend::IoUring,
        }
    }

    /// Returns the reason why `Auto` did not choose io_uring, as a phrase for the log.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// Returns a handle by which other threads wake this loop.
    pub fn waker(&self) -> Waker {
        match &self.driver {
            Driver::Epoll(epoll) => epoll.waker(),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.waker(),
        }
    }

    /// Accepts clients from `listener` from now on.
    pub fn add_listener(&mut self, listener: Listener) -> io::Result<ListenerId> {
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.add_listener(listener),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => Ok(uring.add_listener(listener)),
        }
    }

    /// Closes a listener. Its accepted connections stay.
    pub fn remove_listener(&mut self, id: ListenerId) {
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.remove_listener(id),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.remove_listener(id),
        }
    }

    /// Takes a socket in, whichever thread accepted it. Fails when the system refuses it; the
    /// socket is closed then.
    pub fn adopt(&mut self, mut socket: Socket) -> io::Result<ConnId> {
        socket.tune(self.core.options.keepalive)?;
        let session = socket.take_tls().map(|side| Session::new(&side));
        let session = session.transpose().map_err(io::Error::other)?;
        let conn = match &mut self.driver {
            Driver::Epoll(epoll) => epoll.adopt(&mut self.core, socket)?,
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.adopt(&mut self.core, socket),
        };
        if let Some(session) = session {
            self.core.encrypt(conn, session);
        }
        Ok(conn)
    }

    /// Returns the outcome of the TLS handshake of `conn`; `None` until it is complete, and for
    /// connections that are not encrypted.
    pub fn agreed(&self, conn: ConnId) -> Option<&Agreed> {
        self.core.conns.get(conn)?.tls.as_ref()?.agreed()
    }

    /// Returns true if `conn` is encrypted, or will be after its handshake.
    pub fn is_encrypted(&self, conn: ConnId) -> bool {
        self.core.conns.get(conn).is_some_and(|open| open.tls.is_some())
    }

    /// Sets how many TLS handshakes a turn goes on with.
    pub fn set_handshakes_per_turn_max(&mut self, count: usize) {
        self.core.options.handshakes_per_turn_max = count;
    }

    /// Sets how soon the peers of most connections wait to be answered, for the polls that follow.
    #[inline]
    pub fn set_pace(&mut self, pace: Pace) {
        self.core.pace = pace;
    }

    /// Ends the turn before (what [`split`](Self::split) showed is gone, unconsumed bytes are
    /// kept), waits for something to happen, at most `timeout` (`None`: as long as it takes), and
    /// appends what happened to `events`. Returns without events at the timeout, by a signal, or
    /// when a listener was tried again.
    pub fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.core.end_turn();
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.poll(&mut self.core, timeout, events),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.poll(&mut self.core, timeout, events),
        }
    }

    /// Borrows the inputs and outputs of all connections, to read from one while writing to the
    /// other.
    #[inline]
    pub fn split(&mut self) -> (&Inputs, &mut Outputs) {
        (&self.core.inputs, &mut self.core.outputs)
    }

    /// Borrows the unconsumed input of all connections.
    pub fn inputs(&self) -> &Inputs {
        &self.core.inputs
    }

    /// Borrows the output queue of `conn`, as `split().1.queue(conn)` does.
    #[inline]
    pub fn output(&mut self, conn: ConnId) -> &mut stdx::ByteQueue {
        self.core.outputs.queue(conn)
    }

    /// Consumes the first `n` unconsumed bytes of `conn`. O(1).
    ///
    /// # Panics
    /// There are fewer bytes.
    #[inline]
    pub fn consume(&mut self, conn: ConnId, n: usize) {
        self.core.inputs.consume(conn, n);
    }

    /// Notes that the unconsumed bytes of `conn` begin a request of at least `len_bytes`: their
    /// buffer grows to that length and not beyond. Memory follows what really arrives.
    pub fn expect_input(&mut self, conn: ConnId, len_bytes: usize) {
        self.core.inputs.expect(conn, len_bytes);
    }

    /// Announces that the unconsumed bytes of `conn` begin a request of `len_bytes` in all, so that
    /// it is received in place. Memory still follows what really arrives.
    pub fn reserve_input(&mut self, conn: ConnId, len_bytes: usize) {
        self.core.inputs.announce(conn, len_bytes);
    }

    /// Asks for `Data(conn)` in the next poll, which will not wait, without new bytes: for a caller
    /// that stops within its input. Nothing is received for `conn` until then.
    pub fn mark_ready(&mut self, conn: ConnId) {
        self.core.inputs.mark(conn);
    }

    /// Sends all queues, as far as the sockets take them; to how many connections. Call it at
    /// the end of every turn.
    pub fn flush(&mut self) -> usize {
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.flush(&mut self.core),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.flush(&mut self.core),
        }
    }

    /// Has the kernel send now what `flush` left to the next poll: for a caller that reads the
    /// clock around it, or has more to do before it polls. Epoll has sent it already.
    pub fn submit(&mut self) {
        match &mut self.driver {
            Driver::Epoll(_) => {}
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.submit(),
        }
    }

    /// Stops receiving from `conn`; bytes wait in the socket, then at the peer. What was received
    /// or on its way already stays and may still be reported. That the peer is gone may go
    /// unnoticed until input is resumed, and that it closed its side is not reported before: what
    /// it sent is still to be served. If output of `conn` is unsent now, appended or flushed,
    /// `Drained(conn)` will be reported when it is sent.
    pub fn pause_input(&mut self, conn: ConnId) {
        if let Some(open) = self.core.conns.get_mut(conn) {
            open.paused = true;
            open.awaits_drained |= self.core.outputs.len_bytes(conn) > 0;
            self.stop_receiving(conn);
        }
    }

    /// Tells a back end that receives unasked that `conn` wants no input.
    fn stop_receiving(&mut self, conn: ConnId) {
        match &mut self.driver {
            // It looks before it receives.
            Driver::Epoll(_) => {}
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.pause_input(&mut self.core, conn),
        }
    }

    /// Receives from `conn` again.
    pub fn resume_input(&mut self, conn: ConnId) {
        let Some(open) = self.core.conns.get_mut(conn) else { return };
        if !std::mem::replace(&mut open.paused, false) {
            return;
        }
        let wants_input = open.wants_input();
        self.core.unpark_end(conn);
        if wants_input {
            match &mut self.driver {
                Driver::Epoll(epoll) => epoll.resume_input(&mut self.core, conn),
                #[cfg(target_os = "linux")]
                Driver::Uring(uring) => uring.resume_input(&mut self.core, conn),
            }
        }
    }

    /// Looks at an eighth of the connections, or 256, whether their peers are gone and the kernel
    /// has not said so: with io_uring it may fail to. The next polls report them. Call it about
    /// once a second. O(connections looked at), one system call.
    pub fn look_for_ends(&mut self) {
        match &mut self.driver {
            Driver::Epoll(_) => {}
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.look_for_ends(&mut self.core),
        }
    }

    /// Closes `conn` now, whatever is unsent; nothing more is reported of it. Its index is free for
    /// another connection from the next `poll` on.
    pub fn close(&mut self, conn: ConnId) {
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.close(&mut self.core, conn),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.close(&mut self.core, conn),
        }
    }

    /// Ignores further input of `conn` and closes it when all its output is sent, reported as
    /// `Closed(conn, Flushed)`. Within a TLS handshake nothing of it can be sent: it is closed.
    pub fn close_after_flush(&mut self, conn: ConnId) {
        let Some(open) = self.core.conns.get_mut(conn) else { return };
        open.closing = true;
        let (is_encrypted, is_handshaking) = (open.tls.is_some(), open.is_handshaking());
        self.stop_receiving(conn);
        self.core.inputs.discard(conn);
        if is_encrypted && !is_handshaking {
            // The end is to be said.
            self.core.outputs.mark_dirty(conn);
        } else if is_handshaking || self.core.outputs.len_bytes(conn) == 0 {
            self.core.end(conn, CloseReason::Flushed);
        }
    }

    /// Returns true if `conn` is an open connection of this loop.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.core.conns.get(conn).is_some()
    }

    /// Returns the number of open connections. O(1).
    pub fn open_count(&self) -> usize {
        self.core.conns.open_count()
    }

    /// Returns the address of the peer of `conn`; `None` for a stale id.
    pub fn peer_address(&self, conn: ConnId) -> Option<&Address> {
        self.core.conns.get(conn).map(|open| open.socket().peer_address())
    }

    /// Returns the local address of `conn`; `None` for a stale id.
    pub fn local_address(&self, conn: ConnId) -> Option<&Address> {
        self.core.conns.get(conn).map(|open| open.socket().local_address())
    }

    /// Borrows the descriptor of `conn`; `None` for a stale id.
    pub fn fd(&self, conn: ConnId) -> Option<BorrowedFd<'_>> {
        self.core.conns.get(conn).map(|open| open.socket().as_fd())
    }

    /// Sets TCP keepalive for `conn`: silence after which the peer is probed, `None` for never.
    /// Nothing for Unix sockets and stale ids.
    pub fn set_keepalive(&mut self, conn: ConnId, interval: Option<Duration>) -> io::Result<()> {
        self.core.conns.get(conn).map_or(Ok(()), |open| open.socket().set_keepalive(interval))
    }

    /// Sets the TCP keepalive of connections adopted from now on.
    pub fn set_default_keepalive(&mut self, interval: Option<Duration>) {
        self.core.options.keepalive = interval;
    }
}
