//! Outgoing connections, until they are reported as connected or failed.
//!
//! A connecting socket becomes writable when the peer has accepted or refused; the error state of
//! the socket then shows which of the two. Until then, nothing is received and queued output waits.
//! After that, an encrypted connection performs its TLS handshake. One deadline covers connecting
//! and the handshake; it is stored with the deadlines of all other handshakes.

use std::time::Instant;

use super::Core;
use crate::ending::{CloseReason, ConnectError};
use crate::slab::Passage;
use crate::tls::{Session, TlsFailure};
use crate::{ConnId, Event, Socket};

/// The result of a check of a socket that connects to a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// The peer has neither accepted nor refused the outgoing connection yet.
    Waiting,
    /// The peer has accepted the connection: from now on input is received.
    Connected,
    /// The outgoing connection could not be opened.
    Failed,
}

impl Core {
    /// Stores `socket`, which is connecting, in a slot of the loop and returns the connection's id.
    /// With a `session`, the connection performs a TLS handshake once it is connected.
    pub(crate) fn begin_connect(
        &mut self,
        socket: Socket,
        session: Option<Session>,
        deadline: Instant,
    ) -> ConnId {
        let conn = self.open(socket);
        if session.is_some() {
            self.outputs.seal(conn);
        }
        self.outputs.stop(conn);
        self.handshakes.begin(conn, deadline);
        if let Some(open) = self.conns.get_mut(conn) {
            (open.passage, open.input_stopped) = (Passage::Connecting, true);
            open.tls = session.map(Box::new);
        }
        conn
    }

    /// Records that an outgoing connection failed before it had a socket. Returns an id that names
    /// no open connection. The next poll reports the failure under this id.
    #[cold]
    pub(crate) fn fail_connect(&mut self, error: ConnectError) -> ConnId {
        let conn = self.conns.stale_id();
        self.connect_errors.push((conn, error));
        self.ended.push(conn);
        conn
    }

    /// Drops the error of an outgoing connection that the caller has closed.
    pub(crate) fn forget_error(&mut self, conn: ConnId) {
        self.connect_errors.retain(|&(failed, _)| failed != conn);
    }

    /// Reads from the socket of `conn`, which is connecting, if the peer has accepted. If so,
    /// reports a plain connection as connected, and begins the handshake of an encrypted one.
    #[cold]
    pub(crate) fn try_connected(&mut self, conn: ConnId, events: &mut Vec<Event>) -> Attempt {
        let Some(open) = self.conns.get_mut(conn) else { return Attempt::Failed };
        match open.socket().is_connected() {
            Ok(false) => Attempt::Waiting,
            Ok(true) => {
                open.input_stopped = false;
                self.outputs.resume(conn);
                if open.tls.is_some() {
                    open.passage = Passage::Shaking;
                    self.make_ready(conn);
                } else {
                    open.passage = Passage::Settled;
                    events.push(Event::Connected(conn));
                }
                Attempt::Connected
            }
            Err(error) => {
                let kind = error.kind();
                self.connect_errors.push((conn, ConnectError::Socket(error)));
                self.end(conn, CloseReason::Failed(kind));
                Attempt::Failed
            }
        }
    }
}

/// Removes the error of `conn` from `errors`. Returns it as the event `ConnectFailed`; `None` if
/// there is no error of `conn`.
pub(super) fn take_error(errors: &mut Vec<(ConnId, ConnectError)>, conn: ConnId) -> Option<Event> {
    let at = errors.iter().position(|&(failed, _)| failed == conn)?;
    let (_, error) = errors.swap_remove(at);
    Some(Event::ConnectFailed(conn, error))
}

/// Returns the error to report for an outgoing connection that was connecting or in its TLS
/// handshake (`passage`) when it ended for `reason`.
pub(super) fn opening_error(passage: Passage, reason: CloseReason) -> ConnectError {
    match reason {
        CloseReason::Failed(kind) => ConnectError::Socket(kind.into()),
        CloseReason::Tls(TlsFailure::HandshakeTimedOut) if passage == Passage::Connecting => {
            ConnectError::TimedOut
        }
        CloseReason::Tls(TlsFailure::HandshakeTimedOut) => ConnectError::HandshakeTimedOut,
        CloseReason::Tls(failure) => ConnectError::Handshake(failure.to_string().into()),
        CloseReason::PeerClosed | CloseReason::Flushed => {
            ConnectError::Handshake("the peer closed the connection".into())
        }
    }
}
