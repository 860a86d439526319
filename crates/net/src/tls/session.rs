//! The TLS of one connection: rustls' handshake and records, over the buffers of the event loop.
//!
//! ```text
//!   received ─► rustls ─► plaintext                   the rest waits in `incoming`
//!   queue    ─► rustls ─► records, after those in `ready`
//! ```
//! Bounds: `incoming` has the bytes that arrived while the handshake waited for its turn. It also
//! has at most [`UNUSED_LEN_BYTES_MAX`] bytes that rustls could not use yet: a part of a record or
//! of a handshake message. If a peer keeps sending warnings or key updates without data, rustls
//! ends the connection.

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};
use rustls::{CommonState, HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use stdx::ByteQueue;

use super::config::TlsSide;
use super::failure::TlsFailure;
use super::suites::{blocks_max, blocks_of};

/// The length of a record's header in bytes: type, version, length (RFC 8446, 5.1).
const HEADER_LEN_BYTES: usize = 5;
/// The type of a record with an alert. A connection may begin with such a record.
const CONTENT_ALERT: u8 = 21;
/// The type of a record with a handshake message. Usually a connection begins with such a record.
const CONTENT_HANDSHAKE: u8 = 22;
/// The maximum length of the plaintext in a record, in bytes.
const PLAINTEXT_LEN_BYTES_MAX: usize = 16 * 1024;
/// The usual length of a record without its plaintext, in bytes: header, nonce, type and tag.
const OVERHEAD_LEN_BYTES: usize = 32;
/// The maximum length of input that rustls leaves unused, in bytes. The longest message of a
/// handshake has 64 KiB.
const UNUSED_LEN_BYTES_MAX: usize = 128 * 1024;
/// The number of sealed (encrypted) bytes at which no further record is sealed. These bytes are
/// sent first, so that a peer that reads slowly costs no memory for more ciphertext.
pub(crate) const SEALED_LEN_BYTES_MAX: usize = 128 * 1024;

/// The outcome of a successful TLS handshake.
#[derive(Clone, Debug)]
pub struct Agreed {
    /// The version of TLS that both sides agreed on.
    pub version: ProtocolVersion,
    /// The cipher suite that both sides agreed on.
    pub suite: SupportedCipherSuite,
    /// True if the keys come from an earlier session, which this handshake resumed.
    pub resumed: bool,
    /// The peer's certificate, verified by the rules of the configuration; `None` if it sent none.
    pub peer_certificate: Option<CertificateDer<'static>>,
}

/// The progress of a TLS handshake after one of its steps.
pub(crate) enum Step {
    /// The TLS handshake waits for a message of the peer.
    Waiting,
    /// The TLS handshake is complete.
    Done,
}

/// The state of the direction from the peer to this side in a TLS connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerSide {
    /// The peer may send more data over the TLS connection.
    Open,
    /// The peer has announced (`close_notify`) that it sends nothing more.
    Finished,
}

/// The TLS state of one connection: its handshake and its records.
pub(crate) struct Session {
    phase: Phase,
    /// The records of handshake messages and alerts that must be sent before any data.
    ready: Vec<u8>,
    /// The received bytes that rustls has not used yet.
    incoming: Vec<u8>,
    /// The plaintext that arrived in the same input as the end of the handshake.
    first_data: Vec<u8>,
    /// True if the peer's first bytes were the header of a TLS record.
    is_tls: bool,
    peer_side: PeerSide,
    sent_close: bool,
    /// The number of 16-byte blocks that the sending key may still encrypt.
    blocks_left: u64,
    agreed: Option<Box<Agreed>>,
}

enum Phase {
    Handshake(Connection),
    Open(Connection),
    /// The TLS session has failed: no more records can be processed.
    Failed,
}

/// The state that rustls keeps for the server's or the client's side of a connection.
enum Connection {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

impl Session {
    /// Creates a session before its handshake.
    ///
    /// # Errors
    /// If rustls cannot use the configuration.
    pub(crate) fn new(side: &TlsSide) -> Result<Self, rustls::Error> {
        let connection = match side {
            TlsSide::Server(server) => {
                Connection::Server(Box::new(UnbufferedServerConnection::new(server.config())?))
            }
            TlsSide::Client(client) => {
                let (config, name) = client.parts();
                Connection::Client(Box::new(UnbufferedClientConnection::new(config, name)?))
            }
        };
        Ok(Self {
            phase: Phase::Handshake(connection),
            ready: Vec::new(),
            incoming: Vec::new(),
            first_data: Vec::new(),
            is_tls: false,
            peer_side: PeerSide::Open,
            sent_close: false,
            blocks_left: u64::MAX,
            agreed: None,
        })
    }

    /// Returns true until the TLS handshake is complete or has failed.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// Returns true if this side, the client's, sends the first message of the handshake.
    pub(crate) fn speaks_first(&self) -> bool {
        matches!(self.phase, Phase::Handshake(Connection::Client(_)))
    }

    /// Returns the outcome of the TLS handshake; `None` until it is complete.
    pub(crate) fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_deref()
    }

    pub(crate) fn peer_side(&self) -> PeerSide {
        self.peer_side
    }

    /// Returns the number of received bytes that the session stores and has not processed.
    pub(crate) fn kept_len_bytes(&self) -> usize {
        self.incoming.len()
    }

    /// Stores received bytes for the next step of the handshake ([`step`](Self::step)).
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// Continues the handshake with the stored input. If that completes it,
    /// [`take_first_data`](Self::take_first_data) returns the data that arrived behind the last
    /// handshake message.
    ///
    /// # Errors
    /// The reason if the handshake failed. The alert for the peer is ready.
    pub(crate) fn step(&mut self) -> Result<Step, rustls::Error> {
        let Phase::Handshake(connection) = &mut self.phase else { return Ok(Step::Waiting) };
        if !self.is_tls && !self.incoming.is_empty() {
            if !may_begin_tls(&self.incoming) {
                // No alert is sent: the peer speaks another protocol and could not read it.
                self.phase = Phase::Failed;
                self.incoming = Vec::new();
                return Err(failed("the peer does not speak TLS"));
            }
            self.is_tls = self.incoming.len() >= HEADER_LEN_BYTES;
        }
        let mut progress =
            Progress { ready: &mut self.ready, plain: &mut self.first_data, peer_side: &mut self.peer_side };
        let (used, outcome) = connection.process(&mut self.incoming, &mut progress);
        self.incoming.drain(..used);
        let outcome = outcome.and_then(|()| match connection.state().is_handshaking() {
            false => Ok(Step::Done),
            true if self.peer_side == PeerSide::Finished => {
                Err(failed("the peer closed the connection during the handshake"))
            }
            true if self.incoming.len() > UNUSED_LEN_BYTES_MAX => {
                Err(failed("the peer's handshake is too long"))
            }
            true => Ok(Step::Waiting),
        });
        match outcome {
            Ok(Step::Waiting) => {}
            Ok(Step::Done) => self.complete_handshake(),
            Err(_) => {
                self.phase = Phase::Failed;
                self.incoming = Vec::new();
            }
        }
        outcome
    }

    /// Completes the handshake: from then on the session decrypts and encrypts data.
    fn complete_handshake(&mut self) {
        let Phase::Handshake(connection) = std::mem::replace(&mut self.phase, Phase::Failed) else { return };
        let state = connection.state();
        if let (Some(version), Some(suite)) = (state.protocol_version(), state.negotiated_cipher_suite()) {
            let peer_certificate = state.peer_certificates().and_then(|chain| chain.first().cloned());
            let resumed = state.handshake_kind() == Some(HandshakeKind::Resumed);
            self.blocks_left = blocks_max(suite);
            self.agreed = Some(Box::new(Agreed { version, suite, resumed, peer_certificate }));
        }
        self.phase = Phase::Open(connection);
        if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
    }

    /// Takes the decrypted data that arrived together with the end of the handshake.
    pub(crate) fn take_first_data(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.first_data)
    }

    /// Decrypts the records in `bytes`, appends their data to `plain` and stores an incomplete
    /// record. Records without data are processed too; [`take_ready`](Self::take_ready) returns the
    /// replies to them. The content of `bytes` is undefined afterwards.
    ///
    /// # Errors
    /// The failure that ends the connection. `plain` has the data before it.
    pub(crate) fn open(&mut self, bytes: &mut [u8], plain: &mut Vec<u8>) -> Result<(), TlsFailure> {
        let Phase::Open(connection) = &mut self.phase else { return Ok(()) };
        let mut progress = Progress { ready: &mut self.ready, plain, peer_side: &mut self.peer_side };
        let outcome = if self.incoming.is_empty() {
            let (used, outcome) = connection.process(bytes, &mut progress);
            self.incoming.extend_from_slice(&bytes[used..]);
            outcome
        } else {
            self.incoming.extend_from_slice(bytes);
            let (used, outcome) = connection.process(&mut self.incoming, &mut progress);
            self.incoming.drain(..used);
            outcome
        };
        if self.peer_side == PeerSide::Finished || self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        let outcome = match outcome {
            Ok(()) if self.incoming.len() > UNUSED_LEN_BYTES_MAX => Err(TlsFailure::Undecodable),
            outcome => outcome.map_err(|error| TlsFailure::of(&error)),
        };
        if outcome.is_err() {
            // rustls must not be called again.
            self.phase = Phase::Failed;
            self.incoming = Vec::new();
        }
        outcome
    }

    /// Returns true if handshake messages or alerts are ready to be sent.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Appends the handshake messages and alerts that are ready to `out`.
    pub(crate) fn take_ready(&mut self, out: &mut Vec<u8>) {
        if !self.ready.is_empty() {
            out.append(&mut self.ready);
            self.ready = Vec::new();
        }
    }

    /// Encrypts the front of `plain` in full records and appends the records to `out`, until `out`
    /// has about [`SEALED_LEN_BYTES_MAX`] bytes.
    ///
    /// # Errors
    /// [`TlsFailure::KeysUsedUp`] if the key must not encrypt more data and cannot be
    /// changed (TLS 1.2).
    pub(crate) fn seal(&mut self, plain: &mut ByteQueue, out: &mut Vec<u8>) -> Result<(), TlsFailure> {
        let Phase::Open(connection) = &mut self.phase else { return Ok(()) };
        let mut gathered = Vec::new();
        while !plain.is_empty() && out.len() < SEALED_LEN_BYTES_MAX {
            let front = plain.front();
            if front.len() >= PLAINTEXT_LEN_BYTES_MAX || front.len() == plain.len_bytes() {
                let len = front.len().min(PLAINTEXT_LEN_BYTES_MAX);
                use_blocks(&mut self.blocks_left, len)?;
                connection.seal(&front[..len], &mut self.incoming, out)?;
                plain.advance(len);
                continue;
            }
            // Pieces shorter than a record are combined in one.
            gathered.clear();
            while gathered.len() < PLAINTEXT_LEN_BYTES_MAX && !plain.is_empty() {
                let piece = plain.front();
                let len = piece.len().min(PLAINTEXT_LEN_BYTES_MAX - gathered.len());
                gathered.extend_from_slice(&piece[..len]);
                plain.advance(len);
            }
            use_blocks(&mut self.blocks_left, gathered.len())?;
            connection.seal(&gathered, &mut self.incoming, out)?;
        }
        Ok(())
    }

    /// Sets the number of 16-byte blocks that may still be encrypted, because a test cannot encrypt
    /// 2^34 of them.
    #[cfg(test)]
    pub(super) fn set_blocks_left(&mut self, blocks_left: u64) {
        self.blocks_left = blocks_left;
    }

    /// Appends the alert `close_notify` to `out`, unless it was already sent.
    pub(crate) fn seal_close_notify(&mut self, out: &mut Vec<u8>) {
        if let Phase::Open(connection) = &mut self.phase
            && !std::mem::replace(&mut self.sent_close, true)
        {
            connection.close(&mut self.incoming, out);
        }
    }

    /// Returns the last records for the peer of a connection that is closed: those that are ready,
    /// and then `close_notify` unless `failure` forbids it.
    pub(crate) fn last_words(&mut self, failure: Option<TlsFailure>) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.ready);
        if matches!(failure, Some(TlsFailure::KeysUsedUp) | None) {
            self.seal_close_notify(&mut out);
        }
        out
    }
}

/// Returns true if a handshake may begin with `bytes`: a record of version 3 with a handshake
/// message or an alert. A peer that sends anything else uses another protocol.
fn may_begin_tls(bytes: &[u8]) -> bool {
    bytes.first().is_none_or(|&code| matches!(code, CONTENT_HANDSHAKE | CONTENT_ALERT))
        && bytes.get(1).is_none_or(|&major| major == 3)
}

/// Subtracts the blocks of a record of `len_bytes` from `blocks_left`, the number that the key may
/// still encrypt. Returns an error if too few are left.
fn use_blocks(blocks_left: &mut u64, len_bytes: usize) -> Result<(), TlsFailure> {
    *blocks_left = blocks_left.checked_sub(blocks_of(len_bytes)).ok_or(TlsFailure::KeysUsedUp)?;
    Ok(())
}

fn failed(problem: &str) -> rustls::Error {
    rustls::Error::General(problem.to_owned())
}

impl Connection {
    fn state(&self) -> &CommonState {
        match self {
            Connection::Server(conn) => conn,
            Connection::Client(conn) => conn,
        }
    }

    /// Lets rustls process the received `bytes` as far as it can. Returns the number of bytes used,
    /// and the outcome of the step. After an error the alert for the peer is ready.
    fn process(
        &mut self,
        bytes: &mut [u8],
        progress: &mut Progress<'_>,
    ) -> (usize, Result<(), rustls::Error>) {
        let mut used = 0;
        let error = loop {
            let (done, next) = self.process_once(&mut bytes[used..], progress);
            used += done;
            match next {
                Next::Again => {}
                Next::Wait => return (used, Ok(())),
                Next::Failed(error) => break error,
            }
        };
        // Only the alert is still to be written; further input is ignored.
        while self.state().wants_write() {
            if let (_, Next::Failed(_)) = self.process_once(&mut bytes[used..], progress) {
                break;
            }
        }
        (used, Err(error))
    }

    fn process_once(&mut self, bytes: &mut [u8], progress: &mut Progress<'_>) -> (usize, Next) {
        match self {
            Connection::Server(conn) => progress.take(conn.process_tls_records(bytes)),
            Connection::Client(conn) => progress.take(conn.process_tls_records(bytes)),
        }
    }

    /// Encrypts `plain` as one TLS record and appends the record to `out`. `incoming` is the
    /// received bytes that rustls has not used.
    fn seal(&mut self, plain: &[u8], incoming: &mut [u8], out: &mut Vec<u8>) -> Result<(), TlsFailure> {
        let sealed = match self {
            Connection::Server(conn) => seal_by(conn.process_tls_records(incoming), plain, out),
            Connection::Client(conn) => seal_by(conn.process_tls_records(incoming), plain, out),
        };
        sealed.ok_or(TlsFailure::KeysUsedUp)
    }

    /// Appends the TLS alert `close_notify`, which announces the end, to `out`.
    fn close(&mut self, incoming: &mut [u8], out: &mut Vec<u8>) {
        match self {
            Connection::Server(conn) => close_by(conn.process_tls_records(incoming), out),
            Connection::Client(conn) => close_by(conn.process_tls_records(incoming), out),
        }
    }
}

/// Encrypts `plain` as one TLS record and appends the record to `out`. Returns `None` if rustls
/// encrypts no more with this key.
fn seal_by<Data>(status: UnbufferedStatus<'_, '_, Data>, plain: &[u8], out: &mut Vec<u8>) -> Option<()> {
    let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state else { return None };
    write_by(&mut traffic, out, plain.len() + OVERHEAD_LEN_BYTES, |traffic, space| {
        traffic.encrypt(plain, space)
    })
}

fn close_by<Data>(status: UnbufferedStatus<'_, '_, Data>, out: &mut Vec<u8>) {
    if let Ok(ConnectionState::WriteTraffic(mut traffic)) = status.state {
        write_by(&mut traffic, out, OVERHEAD_LEN_BYTES, |traffic, space| traffic.queue_close_notify(space));
    }
}

/// Calls `write` with `len_bytes` of space at the end of `out`, and again with more space if
/// `write` asks for it. Returns `None` if `write` fails.
fn write_by<Data>(
    traffic: &mut WriteTraffic<'_, Data>,
    out: &mut Vec<u8>,
    mut len_bytes: usize,
    mut write: impl FnMut(&mut WriteTraffic<'_, Data>, &mut [u8]) -> Result<usize, EncryptError>,
) -> Option<()> {
    let start = out.len();
    loop {
        out.resize(start + len_bytes, 0);
        match write(traffic, &mut out[start..]) {
            Ok(written) => {
                out.truncate(start + written);
                return Some(());
            }
            Err(EncryptError::InsufficientSize(size)) if size.required_size > len_bytes => {
                len_bytes = size.required_size;
            }
            Err(_) => {
                out.truncate(start);
                return None;
            }
        }
    }
}

/// The vectors to which rustls' output (records to send, decrypted data) is appended.
struct Progress<'a> {
    ready: &'a mut Vec<u8>,
    plain: &'a mut Vec<u8>,
    peer_side: &'a mut PeerSide,
}

/// The next action of a TLS session after rustls has processed some input.
enum Next {
    /// rustls must be called again with the rest of the received bytes: each call makes only one
    /// step.
    Again,
    /// The TLS session must wait until more input is received.
    Wait,
    /// The TLS connection has failed; the alert for the peer may follow.
    Failed(rustls::Error),
}

impl Progress<'_> {
    /// Performs the action that rustls' `status` requires. Returns the number of input bytes used,
    /// and the next action.
    fn take<Data>(&mut self, status: UnbufferedStatus<'_, '_, Data>) -> (usize, Next) {
        let mut used = status.discard;
        let next = match status.state {
            Err(error) => Next::Failed(error),
            Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
                match traffic.next_record() {
                    Some(Ok(record)) => {
                        self.plain.extend_from_slice(record.payload);
                        used += record.discard;
                    }
                    Some(Err(error)) => break Next::Failed(error),
                    None => break Next::Again,
                }
            },
            Ok(ConnectionState::EncodeTlsData(mut record)) => {
                let start = self.ready.len();
                if let Err(EncodeError::InsufficientSize(size)) = record.encode(&mut []) {
                    self.ready.resize(start + size.required_size, 0);
                    let encoded = record.encode(&mut self.ready[start..]);
                    self.ready.truncate(start + encoded.unwrap_or(0));
                }
                Next::Again
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                transmit.done();
                Next::Again
            }
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => {
                *self.peer_side = PeerSide::Finished;
                Next::Wait
            }
            // Early data is not offered.
            Ok(ConnectionState::ReadEarlyData(_)) => Next::Failed(failed("early data")),
            Ok(_) => Next::Wait,
        };
        (used, next)
    }
}
