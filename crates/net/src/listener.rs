//! Listening sockets, TCP and Unix, built apart from the loop that will accept from them.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::net::SocketFlags;
use socket2::{Domain, Protocol, SockAddr, Socket as RawSocket, Type};

use crate::socket_file::{PathLock, SocketFile};
use crate::{Address, Socket, TlsServer};

/// The most bytes that the path of a Unix socket may have: the kernel's field
/// for it ends with a zero.
pub const UNIX_PATH_LEN_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A socket that clients connect to. A Unix socket's file is not removed when this is dropped:
/// whoever chose the path decides.
#[derive(Debug)]
pub struct Listener {
    socket: RawSocket,
    local: Address,
    file: Option<SocketFile>,
    tls: Option<TlsServer>,
}

impl Listener {
    /// Listens on `address`; port 0 takes any free port ([`local_address`](Self::local_address)
    /// tells which). IPv6 sockets accept IPv6 only, so that `0.0.0.0` and `::` can both be bound.
    /// `backlog` is how many connections may wait to be accepted; the system may cut it.
    pub fn tcp(address: SocketAddr, backlog: u32) -> io::Result<Self> {
        let domain = if address.is_ipv6() { Domain::IPV6 } else { Domain::IPV4 };
        let socket = RawSocket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        listen(&socket, backlog)?;
        let local = socket.local_addr()?.as_socket().unwrap_or(address);
        Ok(Self { socket, local: Address::Tcp(local), file: None, tls: None })
    }

    /// Listens on a Unix socket at `path`, replacing a socket file that is there and that nobody
    /// listens on any more. Where somebody does, or another process is taking the path at this
    /// moment, the error is `AddrInUse`; another kind of file is left alone, too (`AlreadyExists`);
    /// a path of more than [`UNIX_PATH_LEN_MAX`] bytes is `InvalidInput`. An error leaves no file
    /// behind. `mode` sets the file's permission bits; `None` leaves what the process's umask
    /// gives.
    pub fn unix(path: &Path, mode: Option<u32>, backlog: u32) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        let _lock = PathLock::of(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                refuse_live(&address)?;
                fs::remove_file(path)?;
            }
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            // The bind says it better.
            Err(_) => {}
        }
        let socket = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&address)?;
        let made = || {
            let file = SocketFile::just_bound(path)?;
            if let Some(mode) = mode {
                fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
            }
            listen(&socket, backlog)?;
            Ok(file)
        };
        match made() {
            Ok(file) => {
                let local = Address::Unix(Arc::from(path));
                Ok(Self { socket, local, file: Some(file), tls: None })
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = fs::remove_file(path);
                Err(error)
            }
        }
    }

    /// Makes the connections of this listener encrypted ones.
    pub fn encrypted(self, server: TlsServer) -> Self {
        Self { tls: Some(server), ..self }
    }

    /// Returns the server's side of its connections, if they are encrypted.
    pub fn tls(&self) -> Option<&TlsServer> {
        self.tls.as_ref()
    }

    /// Returns the file of a Unix socket, for its removal.
    pub fn socket_file(&self) -> Option<&SocketFile> {
        self.file.as_ref()
    }

    /// Returns the address that clients connect to.
    pub fn local_address(&self) -> &Address {
        &self.local
    }

    /// Returns the descriptor alone.
    #[cfg(target_os = "linux")]
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.socket.into()
    }

    /// Takes one waiting connection. `WouldBlock` when there is none.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        #[cfg(target_os = "linux")]
        let fd = rustix::net::accept_with(&self.socket, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        #[cfg(not(target_os = "linux"))]
        let fd = {
            let _ = SocketFlags::empty();
            let fd = rustix::net::accept(&self.socket)?;
            rustix::io::ioctl_fionbio(&fd, true)?;
            fd
        };
        Ok(Socket::accepted(fd, &self.local).with_server(self.tls.as_ref()))
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Fails unless the socket file at `address` is one that nobody listens on.
fn refuse_live(address: &SockAddr) -> io::Result<()> {
    let probe = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    // Where the backlog is full, connecting would wait otherwise.
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        // Without permission to connect nobody knows whether it is in use.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        // Connected, or a full backlog, or a socket of another type.
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

fn listen(socket: &RawSocket, backlog: u32) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))
}
