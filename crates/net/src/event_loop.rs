//! The event loop: one interface over both back ends, epoll and io_uring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use crate::carried::Carried;
use crate::core::Core;
use crate::epoll::Epoll;
use crate::sys::turn_memory::{Arena, TurnMemory};
use crate::tls::{Session, TlsSide};
#[cfg(target_os = "linux")]
use crate::uring::Uring;
use crate::{
    Address, Agreed, Backend, BackendChoice, CloseReason, ConnId, ConnectError, Event, Inputs, Listener,
    ListenerId, LoopOptions, Outputs, Pace, Socket, TlsClient, Waker,
};

/// An event loop, which owns the connections of one thread. Create it in its thread; only its
/// [`Waker`]s and the [`Socket`]s that it accepts or releases may move to other threads.
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
    /// The back end. It is dropped before `core` closes the sockets, because requests that it still
    /// submits contain descriptors as numbers. Another thread could already use the number of a
    /// closed socket for a new one.
    driver: Driver,
    core: Core,
    fallback_reason: Option<String>,
}

/// The back end that the loop uses: epoll or io_uring.
enum Driver {
    Epoll(Box<Epoll>),
    #[cfg(target_os = "linux")]
    Uring(Box<Uring>),
}

impl EventLoop {
    /// Creates an event loop with these options. `BackendChoice::Auto` tries io_uring first and
    /// falls back to epoll.
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
        Ok(Self { driver, core: Core::new(options.clone(), memory), fallback_reason })
    }

    #[cfg(target_os = "linux")]
    fn with_uring(options: &LoopOptions) -> Result<Self, String> {
        let (uring, buffers) = Uring::new(options)?;
        let core = Core::new(options.clone(), TurnMemory::Buffers(buffers));
        Ok(Self { driver: Driver::Uring(Box::new(uring)), core, fallback_reason: None })
    }

    #[cfg(not(target_os = "linux"))]
    fn with_uring(_: &LoopOptions) -> Result<Self, String> {
        Err("this system has no io_uring".to_owned())
    }

    /// Returns the back end that the loop uses: epoll or io_uring.
    pub fn backend(&self) -> Backend {
        match &self.driver {
            Driver::Epoll(_) => Backend::Epoll,
            #[cfg(target_os = "linux")]
            Driver::Uring(_) => Backend::IoUring,
        }
    }

    /// Returns the reason why `Auto` chose epoll, as a phrase for the log. `None` if it chose
    /// io_uring, or if the options did not say `Auto`.
    pub fn fallback_reason(&self) -> Option<&str> {
        self.fallback_reason.as_deref()
    }

    /// Returns a handle with which other threads wake this loop.
    pub fn waker(&self) -> Waker {
        match &self.driver {
            Driver::Epoll(epoll) => epoll.waker(),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.waker(),
        }
    }

    /// Adds `listener` and accepts its clients from now on.
    pub fn add_listener(&mut self, listener: Listener) -> io::Result<ListenerId> {
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.add_listener(listener),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => Ok(uring.add_listener(listener)),
        }
    }

    /// Closes the listener `id`. Connections that it has accepted stay open.
    pub fn remove_listener(&mut self, id: ListenerId) {
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.remove_listener(id),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.remove_listener(id),
        }
    }

    /// Adds a socket to this loop; the loop of any thread may have accepted or released it. On an
    /// error the socket is closed.
    ///
    /// A socket that another loop has released keeps its state. The next poll reports its
    /// unconsumed input. The next flush sends its queued output; the next poll sends bytes that a
    /// flush of the other loop left unsent. Its input is not paused, even if it was before.
    pub fn adopt(&mut self, mut socket: Socket) -> io::Result<ConnId> {
        if let Some(carried) = socket.take_carried() {
            return self.adopt_released(socket, *carried);
        }
        socket.tune(self.core.options.keepalive)?;
        let session = socket.take_tls().map(|side| Session::new(&side));
        let session = session.transpose().map_err(io::Error::other)?;
        let conn = self.core.open(socket);
        self.watch(conn)?;
        if let Some(session) = session {
            self.core.encrypt(conn, session);
        }
        Ok(conn)
    }

    fn adopt_released(&mut self, socket: Socket, carried: Carried) -> io::Result<ConnId> {
        let closing = carried.closing;
        let conn = self.core.open(socket);
        let is_behind = self.core.arrive(conn, carried);
        self.watch(conn)?;
        if is_behind {
            match &mut self.driver {
                Driver::Epoll(epoll) => epoll.send_soon(conn),
                #[cfg(target_os = "linux")]
                Driver::Uring(uring) => uring.send_soon(conn),
            }
        }
        if closing {
            self.close_after_flush(conn);
        }
        Ok(conn)
    }

    /// Begins to receive from `conn`, which was opened just now. On an error, the connection is
    /// closed.
    fn watch(&mut self, conn: ConnId) -> io::Result<()> {
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.watch(&mut self.core, conn)?,
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.watch(&mut self.core, conn),
        }
        Ok(())
    }

    /// Removes `conn` from this loop, so that another loop can [`adopt`](Self::adopt) it. A later
    /// poll reports [`Event::Released`] with its socket, which carries the unconsumed input, the
    /// unsent output (held parts included) and the TLS session. No byte is lost or sent twice.
    ///
    /// Until then no other event of `conn` is reported, except `Drained`, and nothing is sent. The
    /// caller may still append output, consume input, or close the connection. If the connection
    /// ends meanwhile, the loop that adopts it reports the end. Paused input is not paused in that
    /// loop.
    ///
    /// Returns false, and does nothing, for a stale id, for a connection that is being released,
    /// and for an outgoing one that is not reported as connected. O(connections with events or
    /// output in this turn).
    pub fn release(&mut self, conn: ConnId) -> bool {
        if !self.core.begin_release(conn) {
            return false;
        }
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.release(&mut self.core, conn),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.release(&mut self.core, conn),
        }
        self.core.hasten_release(conn);
        true
    }

    /// Starts to connect to `to`, with TLS if `tls` is `Some`, and returns the id of the
    /// connection. Does not wait: a later poll reports `Connected` or `ConnectFailed` with this id.
    /// The `deadline` covers the connection and the TLS handshake.
    ///
    /// Output that is queued meanwhile is sent once the connection is open. [`close`](Self::close)
    /// ends the attempt.
    pub fn connect(&mut self, to: &Address, tls: Option<TlsClient>, deadline: Instant) -> ConnId {
        match self.begin_connect(to, tls, deadline) {
            Ok(conn) => conn,
            Err(error) => self.core.fail_connect(error),
        }
    }

    fn begin_connect(
        &mut self,
        to: &Address,
        tls: Option<TlsClient>,
        deadline: Instant,
    ) -> Result<ConnId, ConnectError> {
        let session = tls.map(|client| Session::new(&TlsSide::Client(client))).transpose();
        let session = session.map_err(|error| ConnectError::Handshake(error.to_string().into()))?;
        let socket = match to {
            Address::Tcp(address) => Socket::connect(*address),
            Address::Unix(path) => Socket::connect_unix(path),
        };
        let socket = socket.map_err(ConnectError::Socket)?;
        socket.tune(self.core.options.keepalive).map_err(ConnectError::Socket)?;
        let conn = self.core.begin_connect(socket, session, deadline);
        match &mut self.driver {
            Driver::Epoll(epoll) => {
                epoll.await_connected(&mut self.core, conn).map_err(ConnectError::Socket)?;
            }
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.await_connected(&mut self.core, conn),
        }
        Ok(conn)
    }

    /// Returns the outcome of the TLS handshake of `conn`, such as the cipher suite. `None` until
    /// the handshake is complete, and for connections without encryption.
    pub fn agreed(&self, conn: ConnId) -> Option<&Agreed> {
        self.core.conns.get(conn)?.tls.as_ref()?.agreed()
    }

    /// Returns true if `conn` is encrypted, or will be after its handshake.
    pub fn is_encrypted(&self, conn: ConnId) -> bool {
        self.core.conns.get(conn).is_some_and(|open| open.tls.is_some())
    }

    /// Sets the maximum number of TLS handshakes that a turn continues.
    pub fn set_handshakes_per_turn_max(&mut self, count: usize) {
        self.core.options.handshakes_per_turn_max = count;
    }

    /// Sets the pace of the following polls: if replies are sent promptly or are usually held back.
    #[inline]
    pub fn set_pace(&mut self, pace: Pace) {
        self.core.pace = pace;
    }

    /// Ends the previous turn, waits for events, and appends them to `events`. It waits at most
    /// `timeout`; `None` is no limit. Slices from [`split`](Self::split) become invalid, but
    /// unconsumed bytes are kept. Returns without events after the timeout, after a signal, or
    /// after another attempt of a paused listener.
    pub fn poll(&mut self, timeout: Option<Duration>, events: &mut Vec<Event>) -> io::Result<()> {
        self.core.end_turn();
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.poll(&mut self.core, timeout, events),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.poll(&mut self.core, timeout, events),
        }
    }

    /// Borrows the inputs and outputs of all connections, to read input while writing output.
    #[inline]
    pub fn split(&mut self) -> (&Inputs, &mut Outputs) {
        (&self.core.inputs, &mut self.core.outputs)
    }

    /// Borrows the unconsumed input of all connections, without their outputs.
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
    /// If `conn` has fewer unconsumed bytes.
    #[inline]
    pub fn consume(&mut self, conn: ConnId, n: usize) {
        self.core.inputs.consume(conn, n);
    }

    /// Records that the unconsumed bytes of `conn` begin a request of at least `len_bytes`. The
    /// buffer then grows to that length plus one receive, instead of doubling. It never grows far
    /// beyond the bytes that have arrived.
    pub fn expect_input(&mut self, conn: ConnId, len_bytes: usize) {
        self.core.inputs.expect(conn, len_bytes);
    }

    /// Records that the unconsumed bytes of `conn` begin a request of exactly `len_bytes`. The rest
    /// of the request is then received directly into the buffer of `conn`. The buffer never grows
    /// far beyond the bytes that have arrived.
    pub fn reserve_input(&mut self, conn: ConnId, len_bytes: usize) {
        self.core.inputs.announce(conn, len_bytes);
    }

    /// Requests an event `Data(conn)` in the next poll even without new bytes; that poll does not
    /// wait. Meant for a caller that stops in the middle of its input. Until that poll, epoll
    /// receives nothing for `conn`, and io_uring only up to a limit of unparsed bytes.
    pub fn mark_ready(&mut self, conn: ConnId) {
        self.core.inputs.mark(conn);
    }

    /// Sends the output queues of all connections, as far as the sockets accept bytes. Returns the
    /// number of connections with output to send. The caller flushes at the end of every turn.
    pub fn flush(&mut self) -> usize {
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.flush(&mut self.core),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.flush(&mut self.core),
        }
    }

    /// Submits to the kernel the sends that `flush` has queued, instead of leaving them to the next
    /// poll. Useful to measure the time of the sends, or if there is more work before the next
    /// poll. With epoll it does nothing, because `flush` has already sent everything.
    pub fn submit(&mut self) {
        match &mut self.driver {
            Driver::Epoll(_) => {}
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.submit(),
        }
    }

    /// Stops receiving from `conn`. Further bytes wait in the socket, then at the peer; bytes
    /// already received or on their way may still be reported.
    ///
    /// The end of the peer's stream is not reported before input is resumed, and the loss of the
    /// peer may not be noticed before. If output of `conn` is unsent now, appended or flushed,
    /// `Drained(conn)` will be reported when it is sent.
    pub fn pause_input(&mut self, conn: ConnId) {
        if let Some(open) = self.core.conns.get_mut(conn) {
            open.paused = true;
            open.awaits_drained |= self.core.outputs.len_bytes(conn) > 0;
            self.stop_receiving(conn);
        }
    }

    /// Cancels the receive that io_uring has for `conn`. With epoll it does nothing, because the
    /// loop itself calls each receive.
    fn stop_receiving(&mut self, conn: ConnId) {
        match &mut self.driver {
            // It checks `paused` before each receive.
            Driver::Epoll(_) => {}
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.pause_input(&mut self.core, conn),
        }
    }

    /// Resumes receiving from `conn` after [`pause_input`](Self::pause_input).
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

    /// Checks some connections for ends that the kernel has not reported: an eighth of all, at
    /// least 256. Each call continues after the connections of the last one. Such ends occur with
    /// io_uring only; with epoll this does nothing. The next polls report the ends that were found.
    /// To be called about once a second. O(connections checked), one system call.
    pub fn find_closed_connections(&mut self) {
        match &mut self.driver {
            Driver::Epoll(_) => {}
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.find_closed_connections(&mut self.core),
        }
    }

    /// Closes `conn` now and drops its unsent output. No further event of it is reported. Its slot
    /// can be reused from the next `poll` on.
    pub fn close(&mut self, conn: ConnId) {
        self.core.forget_error(conn);
        match &mut self.driver {
            Driver::Epoll(epoll) => epoll.close(&mut self.core, conn),
            #[cfg(target_os = "linux")]
            Driver::Uring(uring) => uring.close(&mut self.core, conn),
        }
    }

    /// Ignores further input of `conn` and closes it when all its output is sent; then
    /// `Closed(conn, Flushed)` is reported. A connection that is not open yet, or is in its TLS
    /// handshake, cannot send output: it is closed at once and its output is dropped. A connection
    /// that is being released is closed by the loop that adopts it.
    pub fn close_after_flush(&mut self, conn: ConnId) {
        let Some(open) = self.core.conns.get_mut(conn) else { return };
        open.closing = true;
        let (is_encrypted, is_leaving) = (open.tls.is_some(), open.is_leaving());
        let is_handshaking = open.is_handshaking() || open.is_opening();
        self.stop_receiving(conn);
        self.core.inputs.discard(conn);
        if is_leaving {
            return;
        }
        if is_encrypted && !is_handshaking {
            // The peer must receive the alert that ends the data.
            self.core.outputs.mark_dirty(conn);
        } else if is_handshaking || self.core.outputs.len_bytes(conn) == 0 {
            self.core.end(conn, CloseReason::Flushed);
        }
    }

    /// Returns true if `conn` is an open connection of this loop.
    pub fn is_open(&self, conn: ConnId) -> bool {
        self.core.conns.get(conn).is_some()
    }

    /// Returns the number of open connections of this loop. O(1).
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

    /// Sets TCP keepalive for `conn`: the silence after which the peer is probed, or `None` to
    /// never probe. Does nothing for Unix sockets and stale ids.
    pub fn set_keepalive(&mut self, conn: ConnId, interval: Option<Duration>) -> io::Result<()> {
        self.core.conns.get(conn).map_or(Ok(()), |open| open.socket().set_keepalive(interval))
    }

    /// Sets the TCP keepalive of connections adopted from now on: the silence after which the peer
    /// is probed. `None` leaves the system's default.
    pub fn set_default_keepalive(&mut self, interval: Option<Duration>) {
        self.core.options.keepalive = interval;
    }
}
