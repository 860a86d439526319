//! The reasons why connections end, and why outgoing ones could not be opened.

use std::error::Error;
use std::{fmt, io};

use crate::TlsFailure;

/// The reason why a connection of an event loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed its side. Everything that the peer sent was reported before.
    PeerClosed,
    /// `close_after_flush` was called, and all output of the connection is sent.
    Flushed,
    /// A receive or a send on the socket failed with this kind of error.
    Failed(io::ErrorKind),
    /// A TLS handshake or a TLS record was invalid, or another failure of TLS.
    Tls(TlsFailure),
}

/// The reason why an outgoing connection could not be opened.
#[derive(Debug)]
pub enum ConnectError {
    /// The system's error: the peer refused, there is no route, the path has no socket, or the
    /// process has no free descriptor. Also reported if the peer reset the connection during the
    /// TLS handshake.
    Socket(io::Error),
    /// The time limit passed before the peer had accepted the connection.
    TimedOut,
    /// The TLS handshake has failed, for this reason.
    Handshake(Box<str>),
    /// The time limit passed during the TLS handshake.
    HandshakeTimedOut,
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnectError::Socket(error) => error.fmt(f),
            ConnectError::TimedOut => f.write_str("the peer did not accept the connection in time"),
            ConnectError::Handshake(reason) => write!(f, "the TLS handshake failed: {reason}"),
            ConnectError::HandshakeTimedOut => f.write_str("the TLS handshake took too long"),
        }
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            ConnectError::Socket(error) => Some(error),
            _ => None,
        }
    }
}
