//! Listening sockets, TCP and Unix, created outside the loop that will accept from them.

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

/// The maximum length of the path of a Unix socket, in bytes: the kernel's field for it ends with a
/// zero byte.
pub const UNIX_PATH_LEN_MAX: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// A listening socket. Dropping it closes the socket, but does not remove the file of a Unix
/// socket: the caller chose the path and removes the file.
#[derive(Debug)]
pub struct Listener {
    socket: RawSocket,
    local: Address,
    file: Option<SocketFile>,
    tls: Option<TlsServer>,
}

impl Listener {
    /// Listens on `address`. Port 0 takes any free port, which
    /// [`local_address`](Self::local_address) returns. IPv6 sockets accept IPv6 only, so that
    /// `0.0.0.0` and `::` can both be bound. `backlog` is the maximum number of connections that
    /// wait to be accepted; the system may lower it.
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

    /// Listens on a Unix socket at `path`. A socket file at that path is replaced if no process
    /// listens on it any more. `mode` sets the file's permission bits; `None` leaves those of the
    /// process's umask.
    ///
    /// # Errors
    /// An error leaves no new file behind.
    /// - `AddrInUse`: a process listens at the path, or another one is taking it at this moment.
    /// - `AlreadyExists`: the path is a file of another type, which is left alone.
    /// - `InvalidInput`: the path has more than [`UNIX_PATH_LEN_MAX`] bytes.
    pub fn unix(path: &Path, mode: Option<u32>, backlog: u32) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        let _lock = PathLock::of(path)?;
        match fs::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => {
                refuse_live(&address)?;
                fs::remove_file(path)?;
            }
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            // The error of `bind` is more precise.
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

    /// Makes connections of this listener use TLS, with the configuration `server`.
    pub fn encrypted(self, server: TlsServer) -> Self {
        Self { tls: Some(server), ..self }
    }

    /// Returns the TLS configuration of the listener's connections; `None` if they are not
    /// encrypted.
    pub fn tls(&self) -> Option<&TlsServer> {
        self.tls.as_ref()
    }

    /// Returns the file of a Unix socket, which the caller may remove; `None` for TCP.
    pub fn socket_file(&self) -> Option<&SocketFile> {
        self.file.as_ref()
    }

    /// Returns the address on which the listener listens.
    pub fn local_address(&self) -> &Address {
        &self.local
    }

    /// Returns the descriptor of the listening socket, and drops the address and the TLS
    /// configuration.
    #[cfg(target_os = "linux")]
    pub(crate) fn into_fd(self) -> OwnedFd {
        self.socket.into()
    }

    /// Accepts one waiting connection. Returns the error `WouldBlock` if there is none.
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

/// Checks that no process listens on the socket file at `address`. Returns the error `AddrInUse` if
/// a process does or may, and `PermissionDenied` if this process may not connect.
fn refuse_live(address: &SockAddr) -> io::Result<()> {
    let probe = RawSocket::new(Domain::UNIX, Type::STREAM, None)?;
    // If the backlog is full, a blocking connect would wait.
    probe.set_nonblocking(true)?;
    match probe.connect(address) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        // Without permission to connect, it is unknown whether the socket is in use.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        // Connected, or a full backlog, or a socket of another type.
        _ => Err(io::ErrorKind::AddrInUse.into()),
    }
}

fn listen(socket: &RawSocket, backlog: u32) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))
}
