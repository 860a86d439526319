//! The events that a turn of the event loop reports.

use std::io;
use std::time::Duration;

use crate::{ConnId, ListenerId, Socket, TlsFailure};

/// One thing that happened. Within one `poll`, a connection's `Data` comes before its `Drained`,
/// and `Closed` is always the last event of a connection.
#[derive(Debug)]
pub enum Event {
    /// A client came. `socket` may be adopted by this loop or moved to another thread's.
    Accepted {
        /// The listener that it came through.
        listener: ListenerId,
        /// The connection, not yet part of any loop. Dropping it closes it.
        socket: Socket,
    },
    /// A client could not be accepted, for example because the process has no descriptor left. The
    /// listener stays and is tried again after a pause, which grows from failure to failure; those
    /// that do not make it longer are not reported.
    AcceptFailed {
        /// The listener concerned.
        listener: ListenerId,
        /// The error of the system.
        error: io::Error,
        /// After how long it is tried again.
        pause: Duration,
    },
    /// New bytes arrived, or `mark_ready` was called. At most once per connection and `poll`.
    Data(ConnId),
    /// The TLS handshake of this connection is over: it sends and receives from now on, and
    /// [`EventLoop::agreed`](crate::EventLoop::agreed) says what was agreed on.
    Secured(ConnId),
    /// The TLS handshake of this connection failed, for this reason; `Closed` follows.
    HandshakeFailed(ConnId, Box<str>),
    /// All output is sent, and that was waited for: input was paused while output was unsent, or
    /// output was still unsent when the poll after its flush returned.
    Drained(ConnId),
    /// The peer has finished sending and all that it sent was reported; it may go on receiving.
    /// Only with [`keeps_half_closed`](crate::LoopOptions::keeps_half_closed): the connection
    /// is the caller's to end.
    PeerFinished(ConnId),
    /// The connection is gone; its id is stale from here on. Not reported after `close`.
    Closed(ConnId, CloseReason),
    /// A [`Waker`](crate::Waker) was used since the last `poll`.
    Woken,
}

/// Why a connection is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed its side. All that it had sent was reported before.
    PeerClosed,
    /// `close_after_flush` was called and everything is sent.
    Flushed,
    /// Receiving or sending failed.
    Failed(io::ErrorKind),
    /// The connection is encrypted, and its handshake or one of its records is not as it must be.
    Tls(TlsFailure),
}
