//! Why an encrypted connection ends other than by the will of its ends.

use std::fmt;

/// Alerts that are sent for what goes wrong behind a handshake, with their codes (RFC 8446, 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alert {
    /// A message that has no place here.
    UnexpectedMessage = 10,
    /// A record that does not have the tag it should.
    BadRecordMac = 20,
    /// A record that is longer than records may be.
    RecordOverflow = 22,
    /// A message that cannot be read.
    DecodeError = 50,
    /// A fault of our own.
    InternalError = 80,
}

/// Why an encrypted connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFailure {
    /// The handshake failed; [`Event::HandshakeFailed`](crate::Event::HandshakeFailed) said why.
    Handshake,
    /// The handshake was not over in time.
    HandshakeTimedOut,
    /// The peer sent something that breaks the rules, and was sent this alert.
    Broken(Alert),
    /// The peer sent an alert with this code.
    Alert(u8),
    /// The connection has no more keys: TLS 1.2 cannot change them.
    KeysUsedUp,
}

impl fmt::Display for TlsFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TlsFailure::Handshake => f.write_str("the TLS handshake failed"),
            TlsFailure::HandshakeTimedOut => f.write_str("the TLS handshake took too long"),
            TlsFailure::Broken(Alert::UnexpectedMessage) => f.write_str("unexpected TLS message"),
            TlsFailure::Broken(Alert::BadRecordMac) => f.write_str("TLS record with a wrong tag"),
            TlsFailure::Broken(Alert::RecordOverflow) => f.write_str("TLS record that is too long"),
            TlsFailure::Broken(Alert::DecodeError) => f.write_str("TLS message that cannot be read"),
            TlsFailure::Broken(Alert::InternalError) => f.write_str("internal error of TLS"),
            TlsFailure::Alert(code) => write!(f, "the peer sent TLS alert {code}"),
            TlsFailure::KeysUsedUp => f.write_str("the TLS connection has used up its keys"),
        }
    }
}
