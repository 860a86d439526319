//! Failures that end an encrypted connection.

use std::fmt;

use rustls::Error;

/// The reason why an encrypted connection failed. The library rustls has prepared the TLS alert for
/// it, if there is one (RFC 8446, 6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    /// The handshake failed; [`Event::HandshakeFailed`](crate::Event::HandshakeFailed) had the
    /// reason.
    Handshake,
    /// The TLS handshake was not complete at its deadline.
    HandshakeTimedOut,
    /// The peer sent a TLS record whose authentication tag is wrong.
    BadTag,
    /// The peer sent a TLS record that is too long.
    RecordTooLong,
    /// The peer sent a TLS record or message that cannot be decoded.
    Undecodable,
    /// The peer sent a TLS message that is not allowed now, or too many of one kind.
    UnexpectedMessage,
    /// The peer sent a TLS alert with this code.
    Alert(u8),
    /// The connection has used up its keys, which TLS 1.2 cannot change.
    KeysUsedUp,
    /// The TLS library rustls failed for another reason.
    Internal,
}

impl TlsFailure {
    /// Converts an `error` of rustls on an open connection to its failure.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::DecryptError => TlsFailure::BadTag,
            Error::PeerSentOversizedRecord => TlsFailure::RecordTooLong,
            Error::InvalidMessage(_) => TlsFailure::Undecodable,
            Error::AlertReceived(alert) => TlsFailure::Alert(u8::from(*alert)),
            Error::InappropriateMessage { .. }
            | Error::InappropriateHandshakeMessage { .. }
            | Error::PeerMisbehaved(_) => TlsFailure::UnexpectedMessage,
            _ => TlsFailure::Internal,
        }
    }
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFailure::Handshake => f.write_str("the TLS handshake failed"),
            TlsFailure::HandshakeTimedOut => f.write_str("the TLS handshake took too long"),
            TlsFailure::BadTag => f.write_str("TLS record with a wrong tag"),
            TlsFailure::RecordTooLong => f.write_str("TLS record that is too long"),
            TlsFailure::Undecodable => f.write_str("TLS record or message that cannot be decoded"),
            TlsFailure::UnexpectedMessage => f.write_str("unexpected TLS message"),
            TlsFailure::Alert(code) => write!(f, "the peer sent TLS alert {code}"),
            TlsFailure::KeysUsedUp => f.write_str("the TLS connection has used up its keys"),
            TlsFailure::Internal => f.write_str("internal error of TLS"),
        }
    }
}
