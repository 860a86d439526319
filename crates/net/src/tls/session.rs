//! The TLS of one connection: a handshake, made by rustls, then records in both directions.
//!
//! ```text
//!   received ─► incoming ─► handshake ─► ready ─► sent            until both ends are sure
//!   received ─► opener ─► plaintext in place, part of a record kept in `partial`
//!   queue    ─► sealer ─► records, ready first                     from then on
//! ```
//! Bounds: `incoming` holds what arrived while the handshake waits for its turn, and at most
//! [`HANDSHAKE_LEN_BYTES_MAX`] that it could not use; `partial` one record; `messages` one message
//! of [`MESSAGE_LEN_BYTES_MAX`]. A peer that sends records without data, or changes keys again and
//! again, ends after [`IDLE_RECORDS_MAX`] of them.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::CertificateDer;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ConnectionTrafficSecrets, HandshakeKind, ProtocolVersion, SupportedCipherSuite};
use stdx::ByteQueue;

use super::config::TlsSide;
use super::failure::{Alert, TlsFailure};
use super::record::{Content, HEADER_LEN_BYTES, Opened, PLAINTEXT_LEN_BYTES_MAX, Protection};

/// What a handshake may leave unused of what arrived: its longest message has 64 KiB.
const HANDSHAKE_LEN_BYTES_MAX: usize = 128 * 1024;
/// The longest message behind a handshake: a ticket for a client.
const MESSAGE_LEN_BYTES_MAX: usize = 128 * 1024;
/// Records in a row that hold no data.
const IDLE_RECORDS_MAX: u32 = 32;
/// About how much is sealed at once: it is sent before more is, so that a reader that is slow costs
/// no memory for ciphertext.
pub(crate) const SEALED_LEN_BYTES_MAX: usize = 128 * 1024;

const ALERT_WARNING: u8 = 1;
const ALERT_FATAL: u8 = 2;
const ALERT_CLOSE_NOTIFY: u8 = 0;
const ALERT_USER_CANCELED: u8 = 90;
const ALERT_NO_RENEGOTIATION: u8 = 100;
const MESSAGE_NEW_SESSION_TICKET: u8 = 4;
const MESSAGE_KEY_UPDATE: u8 = 24;

/// What a handshake has agreed on.
#[derive(Clone, Debug)]
pub struct Agreed {
    /// The version of the protocol.
    pub version: ProtocolVersion,
    /// The cipher suite.
    pub suite: SupportedCipherSuite,
    /// Whether keys of an earlier connection were used.
    pub resumed: bool,
    /// The peer's own certificate, verified by the rules of the configuration, if it has shown one.
    pub peer_certificate: Option<CertificateDer<'static>>,
}

/// How far a handshake has come.
pub(crate) enum Step {
    /// It waits for the peer.
    Waiting,
    /// It is over.
    Done,
}

/// What one record, or one piece of input, has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerSide {
    /// The peer may send more.
    Open,
    /// It has said that it will not.
    Finished,
}

/// See the module.
pub(crate) struct Session {
    phase: Phase,
    /// Records that leave ahead of all data.
    ready: Vec<u8>,
    /// The handshake: what arrived and is not used yet. Then: the beginning of a record.
    incoming: Vec<u8>,
    /// How much of `incoming` the handshake has seen: whole records.
    offered: usize,
    /// The first bytes that arrived were a record's.
    heard_tls: bool,
    peer_side: PeerSide,
    said_close: bool,
    agreed: Option<Box<Agreed>>,
}

enum Phase {
    Handshake(Handshake),
    Open(Box<Channel>),
    /// The handshake has failed.
    Failed,
}

enum Handshake {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The keys behind a handshake, and what makes the next ones.
struct Channel {
    opener: Protection,
    sealer: Protection,
    keys: Keys,
    version: ProtocolVersion,
    /// A message of the handshake protocol that is not whole yet.
    messages: Vec<u8>,
    idle_records: u32,
}

enum Keys {
    Server(KernelConnection<ServerConnectionData>),
    Client(KernelConnection<ClientConnectionData>),
}

impl Keys {
    fn next_of_peer(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Keys::Server(keys) => keys.update_rx_secret(),
            Keys::Client(keys) => keys.update_rx_secret(),
        }
    }

    fn next_of_ours(&mut self) -> Result<(u64, ConnectionTrafficSecrets), rustls::Error> {
        match self {
            Keys::Server(keys) => keys.update_tx_secret(),
            Keys::Client(keys) => keys.update_tx_secret(),
        }
    }
}

impl Session {
    /// A session before its first byte.
    pub(crate) fn new(side: &TlsSide) -> Result<Self, rustls::Error> {
        let handshake = match side {
            TlsSide::Server(server) => {
                Handshake::Server(Box::new(UnbufferedServerConnection::new(server.config())?))
            }
            TlsSide::Client(client) => {
                let (config, name) = client.parts();
                Handshake::Client(Box::new(UnbufferedClientConnection::new(config, name)?))
            }
        };
        Ok(Self {
            phase: Phase::Handshake(handshake),
            ready: Vec::new(),
            incoming: Vec::new(),
            offered: 0,
            heard_tls: false,
            peer_side: PeerSide::Open,
            said_close: false,
            agreed: None,
        })
    }

    /// Whether the handshake is neither over nor failed.
    pub(crate) fn is_handshaking(&self) -> bool {
        matches!(self.phase, Phase::Handshake(_))
    }

    /// Whether it is this side that begins the handshake.
    pub(crate) fn speaks_first(&self) -> bool {
        matches!(self.phase, Phase::Handshake(Handshake::Client(_)))
    }

    /// What the handshake agreed on, once it is over.
    pub(crate) fn agreed(&self) -> Option<&Agreed> {
        self.agreed.as_deref()
    }

    pub(crate) fn peer_side(&self) -> PeerSide {
        self.peer_side
    }

    /// How much of what arrived is kept.
    pub(crate) fn kept_len_bytes(&self) -> usize {
        let messages = match &self.phase {
            Phase::Open(channel) => channel.messages.len(),
            Phase::Handshake(_) | Phase::Failed => 0,
        };
        self.incoming.len() + messages
    }

    /// Keeps what arrived for the next [`step`](Self::step).
    pub(crate) fn keep(&mut self, bytes: &[u8]) {
        self.incoming.extend_from_slice(bytes);
    }

    /// Takes the handshake as far as it gets with what arrived. An error says why it failed; what
    /// the peer is to be told about it is ready.
    pub(crate) fn step(&mut self) -> Result<Step, rustls::Error> {
        let Phase::Handshake(handshake) = &mut self.phase else { return Ok(Step::Waiting) };
        if !self.heard_tls && !self.incoming.is_empty() {
            if !may_begin_tls(&self.incoming) {
                // It is told nothing: an alert would be noise in its own protocol.
                self.phase = Phase::Failed;
                self.incoming = Vec::new();
                return Err(failed("the peer does not speak TLS"));
            }
            self.heard_tls = self.incoming.len() >= HEADER_LEN_BYTES;
        }
        let mut used = 0;
        let outcome = loop {
            // One record at a time: what is behind the last one of the handshake is not for rustls,
            // which would take a change of keys there and not let us know.
            let end = record_end(&self.incoming, used + self.offered);
            let mut progress = Progress { ready: &mut self.ready, peer_side: self.peer_side };
            let (done, outcome) = handshake.offer(&mut self.incoming[used..end.at()], &mut progress);
            self.peer_side = progress.peer_side;
            if let RecordEnd::Whole(end) = end {
                self.offered = end - used;
            }
            used += done;
            self.offered = self.offered.saturating_sub(done);
            if outcome.is_err() || !handshake.is_under_way() || matches!(end, RecordEnd::Partial(_)) {
                break outcome;
            }
        };
        self.incoming.drain(..used);
        let is_under_way = handshake.is_under_way();
        let outcome = outcome.and_then(|()| match is_under_way {
            false => self.open_channel().map(|()| Step::Done),
            true if self.peer_side == PeerSide::Finished => {
                Err(failed("the peer closed the connection within the handshake"))
            }
            true if self.incoming.len() > HANDSHAKE_LEN_BYTES_MAX => {
                Err(failed("the peer's handshake is too long"))
            }
            true => Ok(Step::Waiting),
        });
        if outcome.is_err() {
            self.phase = Phase::Failed;
            self.incoming = Vec::new();
        }
        outcome
    }

    /// Opens what arrived behind the handshake.
    pub(crate) fn open_rest(&mut self) -> Result<Vec<u8>, TlsFailure> {
        let mut rest = std::mem::take(&mut self.incoming);
        let len_bytes = self.open(&mut rest)?;
        rest.truncate(len_bytes);
        Ok(rest)
    }

    /// Goes over from the handshake to records.
    fn open_channel(&mut self) -> Result<(), rustls::Error> {
        let Phase::Handshake(handshake) = std::mem::replace(&mut self.phase, Phase::Failed) else {
            return Ok(());
        };
        let agreed = |certificates: Option<&[CertificateDer<'static>]>, kind| {
            (certificates.and_then(|chain| chain.first().cloned()), kind == Some(HandshakeKind::Resumed))
        };
        let (secrets, keys, (peer_certificate, resumed), version, suite) = match handshake {
            Handshake::Server(conn) => {
                let agreed = agreed(conn.peer_certificates(), conn.handshake_kind());
                let (secrets, keys) = conn.dangerous_into_kernel_connection()?;
                let (version, suite) = (keys.protocol_version(), keys.negotiated_cipher_suite());
                (secrets, Keys::Server(keys), agreed, version, suite)
            }
            Handshake::Client(conn) => {
                let agreed = agreed(conn.peer_certificates(), conn.handshake_kind());
                let (secrets, keys) = conn.dangerous_into_kernel_connection()?;
                let (version, suite) = (keys.protocol_version(), keys.negotiated_cipher_suite());
                (secrets, Keys::Client(keys), agreed, version, suite)
            }
        };
        let protections = Protection::new(secrets.rx, version).zip(Protection::new(secrets.tx, version));
        let unknown = || failed("no record protection for this cipher suite");
        let (opener, sealer) = protections.ok_or_else(unknown)?;
        self.agreed = Some(Box::new(Agreed { version, suite, resumed, peer_certificate }));
        self.phase = Phase::Open(Box::new(Channel {
            opener,
            sealer,
            keys,
            version,
            messages: Vec::new(),
            idle_records: 0,
        }));
        Ok(())
    }

    /// Completes the record whose beginning is kept with the front of `bytes`; how many of them
    /// were used, and its data, if it is whole now and holds some:
    /// [`forget_kept`](Self::forget_kept) when that is taken.
    pub(crate) fn open_kept(&mut self, bytes: &[u8]) -> Result<(usize, Option<&[u8]>), TlsFailure> {
        let Phase::Open(channel) = &mut self.phase else { return Ok((0, None)) };
        if self.incoming.is_empty() {
            return Ok((0, None));
        }
        let mut used = 0;
        let mut complete = |incoming: &mut Vec<u8>, len: usize| {
            let taken = len.saturating_sub(incoming.len()).min(bytes.len() - used);
            incoming.extend_from_slice(&bytes[used..used + taken]);
            used += taken;
            incoming.len() >= len
        };
        if !complete(&mut self.incoming, HEADER_LEN_BYTES) {
            return Ok((used, None));
        }
        let header = self.incoming[..HEADER_LEN_BYTES].try_into().expect("completed above");
        let len = channel.opener.record_len_bytes(header)?;
        if self.incoming.capacity() < len {
            self.incoming.reserve_exact(len - self.incoming.len());
        }
        if !complete(&mut self.incoming, len) {
            return Ok((used, None));
        }
        let opened = channel.opener.open(&mut self.incoming[..len], 0)?;
        if opened.content == Content::Data {
            channel.note_data(opened)?;
            return Ok((used, Some(&self.incoming[..opened.len_bytes])));
        }
        let message = &self.incoming[..opened.len_bytes];
        self.peer_side = channel.hear(opened.content, message, &mut self.ready)?;
        self.incoming.clear();
        Ok((used, None))
    }

    /// Is done with the record that was completed.
    pub(crate) fn forget_kept(&mut self) {
        self.incoming.clear();
    }

    /// Opens the records at the front of `bytes` in place: their plaintext comes to the front, and
    /// that long it is. Keeps the beginning of a record that is not whole.
    pub(crate) fn open(&mut self, bytes: &mut [u8]) -> Result<usize, TlsFailure> {
        let Phase::Open(channel) = &mut self.phase else { return Ok(0) };
        let (mut at, mut opened_len) = (0, 0);
        while self.peer_side == PeerSide::Open
            && let Some(header) = bytes[at..].first_chunk::<HEADER_LEN_BYTES>()
        {
            let end = at + channel.opener.record_len_bytes(*header)?;
            if end > bytes.len() {
                break;
            }
            let opened = channel.opener.open(&mut bytes[opened_len..end], at - opened_len)?;
            if opened.content == Content::Data {
                channel.note_data(opened)?;
                opened_len += opened.len_bytes;
            } else {
                let message = &bytes[opened_len..][..opened.len_bytes];
                self.peer_side = channel.hear(opened.content, message, &mut self.ready)?;
            }
            at = end;
        }
        if self.peer_side == PeerSide::Open && at < bytes.len() {
            self.incoming.extend_from_slice(&bytes[at..]);
        } else if self.incoming.is_empty() {
            self.incoming = Vec::new();
        }
        Ok(opened_len)
    }

    /// Whether there is something to send that is no data.
    pub(crate) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Appends what is ready to `out`.
    pub(crate) fn take_ready(&mut self, out: &mut Vec<u8>) {
        if !self.ready.is_empty() {
            out.append(&mut self.ready);
            self.ready = Vec::new();
        }
    }

    /// Seals the front of `plain` behind `out`, in full records, about [`SEALED_LEN_BYTES_MAX`].
    pub(crate) fn seal(&mut self, plain: &mut ByteQueue, out: &mut Vec<u8>) -> Result<(), TlsFailure> {
        let Phase::Open(channel) = &mut self.phase else { return Ok(()) };
        while !plain.is_empty() && out.len() < SEALED_LEN_BYTES_MAX {
            if channel.sealer.is_used_up() {
                channel.change_our_keys(out)?;
            }
            channel.sealer.seal(Content::Data, out, |out| {
                let mut left = PLAINTEXT_LEN_BYTES_MAX;
                while left > 0 && !plain.is_empty() {
                    let piece = plain.front();
                    let len = piece.len().min(left);
                    out.extend_from_slice(&piece[..len]);
                    plain.advance(len);
                    left -= len;
                }
            })?;
        }
        Ok(())
    }

    /// Says behind `out` that nothing more will come, once.
    pub(crate) fn say_close(&mut self, out: &mut Vec<u8>) {
        self.send_alert([ALERT_WARNING, ALERT_CLOSE_NOTIFY], out);
    }

    /// The last words to the peer: what is ready, then `failure`, or that this is the end.
    pub(crate) fn last_words(&mut self, failure: Option<TlsFailure>) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.ready);
        match failure {
            Some(TlsFailure::Broken(alert)) => self.send_alert([ALERT_FATAL, alert as u8], &mut out),
            Some(TlsFailure::Alert(_) | TlsFailure::Handshake | TlsFailure::HandshakeTimedOut) => {}
            Some(TlsFailure::KeysUsedUp) | None => self.say_close(&mut out),
        }
        out
    }

    fn send_alert(&mut self, alert: [u8; 2], out: &mut Vec<u8>) {
        if let Phase::Open(channel) = &mut self.phase
            && !std::mem::replace(&mut self.said_close, true)
        {
            let len = out.len();
            let sealed = channel.sealer.seal(Content::Alert, out, |out| out.extend_from_slice(&alert));
            if sealed.is_err() {
                out.truncate(len);
            }
        }
    }
}

/// Where the first record behind some bytes ends.
#[derive(Clone, Copy)]
enum RecordEnd {
    /// All of it is here.
    Whole(usize),
    /// It is not; this is where the bytes end.
    Partial(usize),
}

impl RecordEnd {
    fn at(self) -> usize {
        match self {
            RecordEnd::Whole(end) | RecordEnd::Partial(end) => end,
        }
    }
}

/// Where the record ends that begins at `start`.
fn record_end(bytes: &[u8], start: usize) -> RecordEnd {
    match bytes.get(start..).and_then(<[u8]>::first_chunk::<HEADER_LEN_BYTES>) {
        Some(&[_, _, _, high, low]) => {
            let end = start + HEADER_LEN_BYTES + usize::from(u16::from_be_bytes([high, low]));
            if end <= bytes.len() { RecordEnd::Whole(end) } else { RecordEnd::Partial(bytes.len()) }
        }
        None => RecordEnd::Partial(bytes.len()),
    }
}

/// Whether a handshake may begin so: with a record of version 3 that holds a handshake or an alert.
/// Whoever sends other bytes speaks another protocol.
fn may_begin_tls(bytes: &[u8]) -> bool {
    let begins = |&code| matches!(Content::from_code(code), Ok(Content::Handshake | Content::Alert));
    bytes.first().is_none_or(begins) && bytes.get(1).is_none_or(|&major| major == 3)
}

fn failed(problem: &str) -> rustls::Error {
    rustls::Error::General(problem.to_owned())
}

impl Handshake {
    /// Whether it is not over.
    fn is_under_way(&self) -> bool {
        match self {
            Handshake::Server(conn) => conn.is_handshaking(),
            Handshake::Client(conn) => conn.is_handshaking(),
        }
    }

    fn has_output(&self) -> bool {
        match self {
            Handshake::Server(conn) => conn.wants_write(),
            Handshake::Client(conn) => conn.wants_write(),
        }
    }

    fn look(&mut self, bytes: &mut [u8], progress: &mut Progress<'_>) -> (usize, Next) {
        match self {
            Handshake::Server(conn) => progress.take(conn.process_tls_records(bytes)),
            Handshake::Client(conn) => progress.take(conn.process_tls_records(bytes)),
        }
    }

    /// Does what can be done with what arrived; how many of the bytes are done with.
    fn offer(&mut self, bytes: &mut [u8], progress: &mut Progress<'_>) -> (usize, Result<(), rustls::Error>) {
        let mut used = 0;
        let error = loop {
            let (done, next) = self.look(&mut bytes[used..], progress);
            used += done;
            match next {
                Next::Again => {}
                Next::Wait => return (used, Ok(())),
                Next::Failed(error) => break error,
            }
        };
        // What the peer is told about it. Beyond that, nothing may be looked at again.
        while self.has_output() {
            if let (_, Next::Failed(_)) = self.look(&mut bytes[used..], progress) {
                break;
            }
        }
        (used, Err(error))
    }
}

/// Where a handshake puts what it makes.
struct Progress<'a> {
    ready: &'a mut Vec<u8>,
    peer_side: PeerSide,
}

/// What follows a look at what arrived.
enum Next {
    /// Look again.
    Again,
    /// Nothing more can be done.
    Wait,
    /// It has failed; what the peer is told about it may follow.
    Failed(rustls::Error),
}

impl Progress<'_> {
    /// Does what a status asks for; how many bytes are done with, and what follows.
    fn take<Data>(&mut self, status: UnbufferedStatus<'_, '_, Data>) -> (usize, Next) {
        let next = match status.state {
            Err(error) => Next::Failed(error),
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
                self.peer_side = PeerSide::Finished;
                Next::Wait
            }
            // Neither early data nor data within the handshake is offered.
            Ok(ConnectionState::ReadTraffic(_) | ConnectionState::ReadEarlyData(_)) => {
                Next::Failed(failed("data within the handshake"))
            }
            // Writing waits for the end of the handshake.
            Ok(_) => Next::Wait,
        };
        (status.discard, next)
    }
}

impl Channel {
    /// Counts a record of data.
    fn note_data(&mut self, opened: Opened) -> Result<(), TlsFailure> {
        if !self.messages.is_empty() {
            // A message of several records must not be interrupted.
            return Err(TlsFailure::Broken(Alert::UnexpectedMessage));
        }
        if opened.len_bytes > 0 {
            self.idle_records = 0;
            return Ok(());
        }
        self.note_idle()
    }

    fn note_idle(&mut self) -> Result<(), TlsFailure> {
        self.idle_records += 1;
        if self.idle_records > IDLE_RECORDS_MAX {
            return Err(TlsFailure::Broken(Alert::UnexpectedMessage));
        }
        Ok(())
    }

    /// Acts on a record that holds no data.
    fn hear(
        &mut self,
        content: Content,
        message: &[u8],
        ready: &mut Vec<u8>,
    ) -> Result<PeerSide, TlsFailure> {
        self.note_idle()?;
        match content {
            Content::Alert => self.hear_alert(message),
            _ => self.hear_messages(message, ready).map(|()| PeerSide::Open),
        }
    }

    fn hear_alert(&self, message: &[u8]) -> Result<PeerSide, TlsFailure> {
        let &[level, code] = message else { return Err(TlsFailure::Broken(Alert::DecodeError)) };
        let harmless = match self.version {
            ProtocolVersion::TLSv1_3 => code == ALERT_USER_CANCELED,
            _ => level == ALERT_WARNING && matches!(code, ALERT_USER_CANCELED | ALERT_NO_RENEGOTIATION),
        };
        match code {
            ALERT_CLOSE_NOTIFY => Ok(PeerSide::Finished),
            _ if harmless => Ok(PeerSide::Open),
            code => Err(TlsFailure::Alert(code)),
        }
    }

    /// Acts on messages of the handshake protocol. TLS 1.2 has some only to begin a handshake anew,
    /// which nobody may here.
    fn hear_messages(&mut self, bytes: &[u8], ready: &mut Vec<u8>) -> Result<(), TlsFailure> {
        if self.version != ProtocolVersion::TLSv1_3 || bytes.is_empty() {
            return Err(TlsFailure::Broken(Alert::UnexpectedMessage));
        }
        self.messages.extend_from_slice(bytes);
        let messages = std::mem::take(&mut self.messages);
        let mut rest = messages.as_slice();
        while let Some(&[code, high, middle, low]) = rest.first_chunk::<4>() {
            let len = u32::from_be_bytes([0, high, middle, low]) as usize;
            if len > MESSAGE_LEN_BYTES_MAX {
                return Err(TlsFailure::Broken(Alert::DecodeError));
            }
            let Some(body) = rest.get(4..4 + len) else { break };
            rest = &rest[4 + len..];
            match (code, &mut self.keys) {
                (MESSAGE_KEY_UPDATE, _) => {
                    // The next key protects what comes next: nothing may follow in this record.
                    if !rest.is_empty() {
                        return Err(TlsFailure::Broken(Alert::UnexpectedMessage));
                    }
                    self.change_peer_keys(body, ready)?;
                }
                (MESSAGE_NEW_SESSION_TICKET, Keys::Client(keys)) => {
                    let unreadable = |_| TlsFailure::Broken(Alert::DecodeError);
                    keys.handle_new_session_ticket(body).map_err(unreadable)?;
                }
                _ => return Err(TlsFailure::Broken(Alert::UnexpectedMessage)),
            }
        }
        self.messages = rest.to_vec();
        Ok(())
    }

    /// The peer has changed its keys, and may ask for the same.
    fn change_peer_keys(&mut self, body: &[u8], ready: &mut Vec<u8>) -> Result<(), TlsFailure> {
        let asks = match body {
            [0] => false,
            [1] => true,
            _ => return Err(TlsFailure::Broken(Alert::DecodeError)),
        };
        let secrets = self.keys.next_of_peer().map_err(|_| TlsFailure::Broken(Alert::InternalError))?;
        self.opener =
            Protection::new(secrets, self.version).ok_or(TlsFailure::Broken(Alert::InternalError))?;
        if asks {
            self.change_our_keys(ready)?;
        }
        Ok(())
    }

    /// Announces the next key behind `out`, and takes it.
    fn change_our_keys(&mut self, out: &mut Vec<u8>) -> Result<(), TlsFailure> {
        if self.version != ProtocolVersion::TLSv1_3 {
            return Err(TlsFailure::KeysUsedUp);
        }
        let update = [MESSAGE_KEY_UPDATE, 0, 0, 1, 0];
        self.sealer.seal(Content::Handshake, out, |out| out.extend_from_slice(&update))?;
        let secrets = self.keys.next_of_ours().map_err(|_| TlsFailure::Broken(Alert::InternalError))?;
        self.sealer =
            Protection::new(secrets, self.version).ok_or(TlsFailure::Broken(Alert::InternalError))?;
        Ok(())
    }
}
