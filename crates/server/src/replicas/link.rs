//! The connection of a replica: its requests, and the snapshot that it receives.

use std::sync::Arc;

use engine::acl::Identity;
use engine::client::ClientInfo;
use net::ConnId;
use persist::folder::Unsaved;
use replicate::framing::Framing;
use replicate::handshake::Handshake;
use resp::Span;
use resp::parse::{Limits, Parsed, Progress, ProtocolError, parse_request};
use stdx::ByteQueue;
use stdx::number::parse_i64;

use crate::replication::spool::{Piece, SpoolReader};

/// The length of the mark after a snapshot of unknown length, in bytes.
const END_MARK_LEN: usize = 40;
/// The largest argument of a replica's request, in bytes. Replicas send acknowledgements only.
const ARG_LEN_MAX: u64 = 64 << 10;
/// The maximum number of arguments of a replica's request.
const ARGS_MAX: i64 = 64;

/// The connection of a replica.
pub(super) struct Link {
    /// The connection in the loop of the thread.
    pub conn: ConnId,
    /// The client, for CLIENT LIST.
    pub info: Arc<ClientInfo>,
    /// The user of the client.
    pub identity: Identity,
    /// The replica's address and announced port, for the log.
    pub name: String,
    /// The snapshot that is being sent to the replica.
    pub snapshot: Option<SnapshotOutput>,
    /// The time at which bytes of the snapshot were last sent, in milliseconds.
    pub progress_ms: u64,
    /// The parse state of an incomplete request.
    pub progress: Progress,
}

/// The output of a snapshot to a replica.
pub(super) struct SnapshotOutput {
    reader: SpoolReader,
    framing: Framing,
    /// The random mark that ends a snapshot of unknown length.
    mark: [u8; END_MARK_LEN],
    is_headed: bool,
}

/// The state of a snapshot's output after a call of [`SnapshotOutput::queue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// More can be queued once some of the output is sent.
    Part,
    /// Everything that is written so far is queued.
    All,
    /// The whole snapshot is queued.
    Whole(Framing),
}

impl SnapshotOutput {
    /// Creates the output of the snapshot that `reader` reads. `mark` is random.
    pub fn new(reader: SpoolReader, framing: Framing, mark: [u8; END_MARK_LEN]) -> Self {
        Self { reader, framing, mark, is_headed: false }
    }

    /// Queues parts of the snapshot until `out` has about `len_bytes_max` bytes, or there is no
    /// more at present.
    ///
    /// # Errors
    /// If the snapshot has failed.
    pub fn queue(&mut self, out: &mut ByteQueue, len_bytes_max: usize) -> Result<Queued, Unsaved> {
        if !self.is_headed && !self.queue_head(out) {
            return Ok(Queued::All);
        }
        while out.len_bytes() < len_bytes_max {
            match self.reader.next(len_bytes_max - out.len_bytes())? {
                Piece::Bytes(bytes) => out.push_shared(bytes),
                Piece::Pending => return Ok(Queued::All),
                Piece::End => {
                    if self.framing == Framing::EndMark {
                        out.tail_mut().extend_from_slice(&self.mark);
                    }
                    return Ok(Queued::Whole(self.framing));
                }
            }
        }
        Ok(Queued::Part)
    }

    /// Queues the line before the snapshot. Returns false if its length is not known yet.
    fn queue_head(&mut self, out: &mut ByteQueue) -> bool {
        let tail = out.tail_mut();
        match (self.framing, self.reader.spool().total_len_bytes()) {
            (Framing::EndMark, _) => {
                tail.extend_from_slice(b"$EOF:");
                tail.extend_from_slice(&self.mark);
            }
            (Framing::Length, Some(len_bytes)) => tail.extend_from_slice(format!("${len_bytes}").as_bytes()),
            (Framing::Length, None) => return false,
        }
        tail.extend_from_slice(b"\r\n");
        self.is_headed = true;
        true
    }

    /// Returns true before the first byte of the snapshot is queued. Newlines may then be sent to
    /// keep the connection alive.
    pub fn is_awaited(&self) -> bool {
        !self.is_headed
    }
}

/// An acknowledgement of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    /// The offset up to which the replica has applied the stream.
    pub acked: u64,
    /// The offset up to which the replica's append-only file is synced; `None` if not reported.
    pub synced: Option<u64>,
}

/// Parses all complete requests in `input`. Returns the number of bytes that they take, and the
/// last acknowledgement among them. Other requests are ignored, as a replica expects no replies.
///
/// # Errors
/// If the bytes are no requests.
pub(super) fn take_acks(
    input: &[u8],
    position: u64,
    progress: &mut Progress,
) -> Result<(usize, Option<Ack>), ProtocolError> {
    let limits = Limits { bulk_len_max: ARG_LEN_MAX, multibulk_len_max: ARGS_MAX, ..Limits::default() };
    let (mut done, mut last) = (0, None);
    let mut spans: Vec<Span> = Vec::new();
    loop {
        spans.clear();
        let rest = &input[done..];
        match parse_request(rest, position + done as u64, &limits, progress, &mut spans)? {
            Parsed::Incomplete { .. } => return Ok((done, last)),
            Parsed::Empty { len_bytes } | Parsed::Inline { len_bytes, .. } => done += len_bytes,
            Parsed::Request { len_bytes } => {
                let words: Vec<&[u8]> = spans.iter().map(|span| span.of(rest)).collect();
                last = ack(&words).or(last);
                done += len_bytes;
            }
        }
    }
}

/// Returns the acknowledgement in a request, if it is one: `REPLCONF ACK offset [FACK offset]`.
fn ack(words: &[&[u8]]) -> Option<Ack> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()));
    let number = |at: usize| words.get(at).and_then(|it| parse_i64(it)).and_then(|it| u64::try_from(it).ok());
    if !is(0, "REPLCONF") || !is(1, "ACK") {
        return None;
    }
    Some(Ack { acked: number(2)?, synced: number(4).filter(|_| is(3, "FACK")) })
}

/// Checks the parser of what a replica sends, as a fuzz target: bytes in pieces of any length give
/// the same last acknowledgement as at once, or an error both times.
///
/// # Panics
/// If they do not.
pub fn fuzz_requests(data: &[u8]) {
    let Some((&piece_len, input)) = data.split_first() else { return };
    let whole = take_acks(input, 0, &mut Progress::default());
    let (mut progress, mut done, mut last) = (Progress::default(), 0, None);
    let ends = (0..input.len()).step_by(usize::from(piece_len).max(1)).chain([input.len()]);
    for end in ends.filter(|&end| end > 0) {
        match take_acks(&input[done.min(end)..end], done as u64, &mut progress) {
            Ok((len_bytes, ack)) => {
                done += len_bytes;
                last = ack.or(last);
            }
            Err(_) => return assert!(whole.is_err(), "{}", input.escape_ascii()),
        }
    }
    assert_eq!(whole.ok(), Some((done, last)), "{}", input.escape_ascii());
    let mut handshake = Handshake::default();
    let mut words = input.split(|&byte| byte == b' ');
    while let (Some(option), Some(value)) = (words.next(), words.next()) {
        if let Err(error) = handshake.set(option, value) {
            assert!(error.reply().starts_with(b"ERR "));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (usize, Option<Ack>) {
        take_acks(text.as_bytes(), 0, &mut Progress::default()).expect("it is valid")
    }

    #[test]
    fn the_last_acknowledgement_counts() {
        let one = "*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$2\r\n10\r\n";
        let two = "*5\r\n$8\r\nreplconf\r\n$3\r\nack\r\n$2\r\n12\r\n$4\r\nFACK\r\n$1\r\n7\r\n";
        assert_eq!(parsed(one), (one.len(), Some(Ack { acked: 10, synced: None })));
        let all = format!("PING\r\n{one}{two}\r\n*3\r\n$8\r\nREPL");
        let (done, last) = parsed(&all);
        assert_eq!((done, last), (all.len() - 12, Some(Ack { acked: 12, synced: Some(7) })));
    }

    #[test]
    fn random_bytes_in_pieces_are_the_same_as_at_once() {
        let words = [
            "*3\r\n",
            "$8\r\n",
            "REPLCONF\r\n",
            "$3\r\n",
            "ACK\r\n",
            "$1\r\n",
            "7\r\n",
            "PING\r\n",
            "*",
            "\r\n",
        ];
        for seed in 0..5000 {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut data = vec![rng.u8(1..20)];
            let regular = rng.bool();
            for number in 0..rng.usize(..30) {
                let word = if regular { words[number % 7] } else { words[rng.usize(..words.len())] };
                data.extend_from_slice(word.as_bytes());
            }
            fuzz_requests(&data);
        }
    }

    #[test]
    fn lies_are_ignored_and_garbage_is_an_error() {
        for words in ["ACK\r\n$2\r\n-1", "ACK\r\n$1\r\nx", "CAPA\r\n$3\r\neof"] {
            let text =
                format!("*3\r\n$8\r\nREPLCONF\r\n${}\r\n", words.split('\r').next().unwrap_or("").len());
            assert_eq!(parsed(&format!("{text}{words}\r\n")).1, None);
        }
        for garbage in ["*1\r\n!3\r\n", "*-x\r\n", "*2\r\n$99999999\r\n", "*99999\r\n"] {
            assert!(take_acks(garbage.as_bytes(), 0, &mut Progress::default()).is_err(), "{garbage:?}");
        }
    }
}
