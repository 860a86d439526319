//! A connected socket that is not part of a loop, with the addresses of both ends. It is either
//! new, or was released by a loop.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;
use socket2::{Domain, Protocol, SockAddr, Socket as RawSocket, Type};

use crate::carried::Carried;
use crate::tls::TlsSide;
use crate::{Address, TlsClient, TlsServer};

/// A connected, non-blocking stream socket. It may move between threads until a loop adopts it.
///
/// A socket that a loop has released carries the state of its connection: unconsumed input, unsent
/// output and the TLS session. If it is dropped, it is closed without the final alert of TLS.
#[derive(Debug)]
pub struct Socket {
    fd: OwnedFd,
    peer: Address,
    local: Address,
    state: State,
}

/// The origin of a socket, with the state for the loop that adopts it. The type is small because
/// each event of a loop has room for a socket.
#[derive(Debug)]
enum State {
    /// A new socket whose connection will not use TLS.
    New,
    /// A new socket whose connection will use TLS, with this configuration.
    Encrypted(TlsSide),
    /// The socket of a connection that a loop has released, with the connection's state.
    Released(Box<Carried>),
}

impl Socket {
    /// Wraps a new socket through which nothing was received or sent.
    fn unused(fd: OwnedFd, peer: Address, local: Address) -> Self {
        Self { fd, peer, local, state: State::New }
    }

    /// Wraps a non-blocking socket that a listener at `listener` accepted. If the peer has already
    /// closed it, the peer's address is unknown and has port 0.
    pub(crate) fn accepted(fd: OwnedFd, listener: &Address) -> Self {
        let Address::Tcp(listening) = listener else {
            return Self::unused(fd, listener.clone(), listener.clone());
        };
        let unknown = SocketAddr::new(listening.ip(), 0);
        let peer = rustix::net::getpeername(&fd).ok().flatten();
        let peer = peer.and_then(|any| SocketAddr::try_from(any).ok()).unwrap_or(unknown);
        // A listener bound to one address has that one; only for a wildcard the socket must be
        // asked.
        let local = if listening.ip().is_unspecified() {
            let local = rustix::net::getsockname(&fd).ok();
            local.and_then(|any| SocketAddr::try_from(any).ok()).unwrap_or(*listening)
        } else {
            *listening
        };
        Self::unused(fd, Address::Tcp(peer), Address::Tcp(local))
    }

    /// Starts to connect to `server` without waiting. Output waits until the server has answered,
    /// and a refusal is reported like any end of a connection. The loop sets the options of the
    /// socket.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        let socket = RawSocket::new(Domain::for_address(server), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_nonblocking(true)?;
        match socket.connect(&server.into()) {
            Err(error) if Errno::from_io_error(&error) != Some(Errno::INPROGRESS) => return Err(error),
            _ => {}
        }
        let local = socket.local_addr()?.as_socket();
        let local = Address::Tcp(local.unwrap_or(SocketAddr::new(server.ip(), 0)));
        Ok(Self::unused(socket.into(), Address::Tcp(server), local))
    }

    /// Starts to connect to the Unix socket at `path`, which accepts or refuses at once. The path
    /// is, as for an accepted connection, the address of both ends.
    ///
    /// # Errors
    /// The error of the refusal: `WouldBlock` if the listener's backlog is full: the system offers
    /// no way to wait for room.
    pub(crate) fn connect_unix(path: &Arc<Path>) -> io::Result<Self> {
        let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)?;
        let address = Address::Unix(Arc::clone(path));
        Ok(Self::unused(socket.into(), address.clone(), address))
    }

    /// Returns true if the peer has accepted the connection, false if the peer has not answered
    /// yet.
    ///
    /// # Errors
    /// The reason if the connection could not be opened.
    pub(crate) fn is_connected(&self) -> io::Result<bool> {
        sockopt::socket_error(&self.fd)??;
        match rustix::net::getpeername(&self.fd) {
            Ok(_) => Ok(true),
            Err(Errno::NOTCONN) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Makes the socket the client's side of an encrypted connection. The handshake begins once a
    /// loop has adopted the socket.
    pub fn encrypted(self, client: TlsClient) -> Self {
        Self { state: State::Encrypted(TlsSide::Client(client)), ..self }
    }

    /// Makes the socket the server's side of an encrypted connection if `server` is a TLS
    /// configuration; no effect for `None`.
    pub(crate) fn with_server(self, server: Option<&TlsServer>) -> Self {
        let state = server.cloned().map_or(State::New, |server| State::Encrypted(TlsSide::Server(server)));
        Self { state, ..self }
    }

    /// Returns true if the connection is encrypted, or will be once a loop has adopted the socket.
    pub fn is_encrypted(&self) -> bool {
        match &self.state {
            State::New => false,
            State::Encrypted(_) => true,
            State::Released(carried) => carried.session.is_some(),
        }
    }

    /// Stores `carried`, the state of a connection that a loop has released, in this socket.
    pub(crate) fn carrying(self, carried: Carried) -> Self {
        Self { state: State::Released(Box::new(carried)), ..self }
    }

    /// Returns the state of a released connection; `None` for a new one.
    fn carried(&self) -> Option<&Carried> {
        match &self.state {
            State::Released(carried) => Some(carried),
            _ => None,
        }
    }

    /// Takes the state of a released connection; `None` for a new one.
    pub(crate) fn take_carried(&mut self) -> Option<Box<Carried>> {
        match std::mem::replace(&mut self.state, State::New) {
            State::Released(carried) => Some(carried),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Returns the bytes that a loop has received, and decrypted if necessary, but its caller has
    /// not consumed. Empty for a new socket.
    pub fn unread(&self) -> &[u8] {
        self.carried().map_or(&[], |carried| carried.input.unread())
    }

    /// Returns the number of bytes of output that were queued and not sent, including output that
    /// is held back until the caller releases it.
    pub fn unsent_len_bytes(&self) -> usize {
        self.carried().map_or(0, |carried| carried.output.len_bytes())
    }

    /// Takes the TLS configuration; `None` for a connection that will not be encrypted.
    pub(crate) fn take_tls(&mut self) -> Option<TlsSide> {
        match std::mem::replace(&mut self.state, State::New) {
            State::Encrypted(side) => Some(side),
            other => {
                self.state = other;
                None
            }
        }
    }

    /// Returns the descriptor of the socket and drops its addresses.
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.fd
    }

    /// Returns the address of the peer of the socket.
    pub fn peer_address(&self) -> &Address {
        &self.peer
    }

    /// Returns the local address of the socket.
    pub fn local_address(&self) -> &Address {
        &self.local
    }

    /// Sends `bytes` with one call, without waiting. Returns the number of bytes that the system
    /// accepted. Meant for a last message to a client that no loop will adopt.
    pub fn send_once(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(&self.fd, bytes, crate::sys::send_flags())?)
    }

    /// Sends small packets at once (TCP_NODELAY) and probes silent peers after `keepalive`. Does
    /// nothing for Unix sockets.
    pub(crate) fn tune(&self, keepalive: Option<Duration>) -> io::Result<()> {
        if self.peer.is_unix() {
            return Ok(());
        }
        sockopt::set_tcp_nodelay(&self.fd, true)?;
        if keepalive.is_some() { self.set_keepalive(keepalive) } else { Ok(()) }
    }

    /// Sets the TCP keepalive: the kernel probes the peer after `interval` without received bytes,
    /// and then three more times, each after a third of `interval`. `None` turns the probes off.
    pub(crate) fn set_keepalive(&self, interval: Option<Duration>) -> io::Result<()> {
        if self.peer.is_unix() {
            return Ok(());
        }
        sockopt::set_socket_keepalive(&self.fd, interval.is_some())?;
        if let Some(interval) = interval {
            let second = Duration::from_secs(1);
            sockopt::set_tcp_keepidle(&self.fd, interval.max(second))?;
            sockopt::set_tcp_keepintvl(&self.fd, (interval / 3).max(second))?;
            sockopt::set_tcp_keepcnt(&self.fd, 3)?;
        }
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl TryFrom<TcpStream> for Socket {
    type Error = io::Error;

    /// Converts a connected TCP stream to a socket for a loop. Fails if it is not connected any
    /// more.
    fn try_from(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (peer, local) = (Address::Tcp(stream.peer_addr()?), Address::Tcp(stream.local_addr()?));
        Ok(Self::unused(stream.into(), peer, local))
    }
}

impl TryFrom<UnixStream> for Socket {
    type Error = io::Error;

    fn try_from(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let path = |address: std::os::unix::net::SocketAddr| {
            Address::Unix(Arc::from(address.as_pathname().unwrap_or(Path::new(""))))
        };
        let (peer, local) = (path(stream.peer_addr()?), path(stream.local_addr()?));
        Ok(Self::unused(stream.into(), peer, local))
    }
}
