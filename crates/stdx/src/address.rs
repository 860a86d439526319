//! The address of a socket or of its peer: an IP address and port, or the path of a Unix socket.

use core::net::SocketAddr;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The address of one end of a connection: TCP or a Unix socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// The address of a TCP socket over IPv4 or IPv6.
    Tcp(SocketAddr),
    /// The path of a Unix socket. A client's socket has no path: both ends of its connection get
    /// the path of the listener. The path is empty for a listener that was never bound.
    Unix(Arc<Path>),
}

impl Address {
    /// Returns true if the address is that of a Unix socket.
    pub fn is_unix(&self) -> bool {
        matches!(self, Address::Unix(_))
    }
}

/// Formats the address as `1.2.3.4:5`, `[::1]:5`, or the path.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp(address) => address.fmt(f),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}
