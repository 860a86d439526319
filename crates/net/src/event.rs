//! The events that a turn of the event loop reports.

use std::io;
use std::time::Duration;

use crate::ending::{CloseReason, ConnectError};
use crate::{ConnId, ListenerId, Socket};

/// An event of the loop. Within one `poll`, a connection's `Data` comes before its `Drained`.
/// `Closed`, `ConnectFailed` or `Released` is always the last event of a connection.
#[derive(Debug)]
pub enum Event {
    /// A new connection of a client. `socket` may be adopted by this loop or by another thread's.
    Accepted {
        /// The listener that accepted the connection.
        listener: ListenerId,
        /// The connection, which is not part of any loop yet. Dropping the socket closes the
        /// connection.
        socket: Socket,
    },
    /// A failure to accept, for example because the process has no free descriptor. The listener
    /// stays and is tried again after a pause, which grows with each failure. Failures that do not
    /// make the pause longer are not reported.
    AcceptFailed {
        /// The listener that could not accept.
        listener: ListenerId,
        /// The error of the system call that accepts.
        error: io::Error,
        /// The time until the next attempt to accept.
        pause: Duration,
    },
    /// New bytes of a connection, or the report that `mark_ready` requested. At most once per
    /// connection and `poll`.
    Data(ConnId),
    /// The success of a client's TLS handshake. The connection can now send and receive, and
    /// [`EventLoop::agreed`](crate::EventLoop::agreed) returns the version and the cipher suite.
    Secured(ConnId),
    /// The failure of a client's TLS handshake, with its reason as text. `Closed` follows.
    HandshakeFailed(ConnId, Box<str>),
    /// The moment at which all output of a connection is sent. Reported if input was paused while
    /// output was unsent, or if output was still unsent when the poll after its flush returned.
    Drained(ConnId),
    /// The end of the peer's stream: the peer sends no more, but may still receive. Everything that
    /// the peer sent was reported before. Reported only with
    /// [`keeps_half_closed`](crate::LoopOptions::keeps_half_closed); the caller must then close the
    /// connection.
    PeerFinished(ConnId),
    /// The end of the connection and its reason; the id is stale from now on. Not reported after a
    /// call of `close`.
    Closed(ConnId, CloseReason),
    /// The success of [`EventLoop::connect`](crate::EventLoop::connect): the peer has accepted, and
    /// the TLS handshake is complete if there is one.
    Connected(ConnId),
    /// The failure of [`EventLoop::connect`](crate::EventLoop::connect), with the error. The id is
    /// stale from now on.
    ConnectFailed(ConnId, ConnectError),
    /// The completion of [`EventLoop::release`](crate::EventLoop::release), the last event of the
    /// connection in this loop. The socket carries everything that was received and not consumed,
    /// and everything that was queued and not sent. A loop may adopt the socket; dropping the
    /// socket closes the connection.
    Released(ConnId, Box<Socket>),
    /// One or more calls of [`Waker::wake`](crate::Waker::wake) by other threads since the last
    /// `poll`.
    Woken,
}

// An event is copied when it is handled. The compiler calls a function for larger ones.
const _: () = assert!(size_of::<Event>() <= 128, "events stay small");
