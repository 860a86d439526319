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

/// The length in bytes of the random mark that ends a snapshot of unknown length.
const END_MARK_LEN: usize = 40;
/// The maximum length of an argument in a replica's request, in bytes. It may be small, because
/// replicas send only acknowledgements.
const ARG_LEN_MAX: u64 = 64 << 10;
/// The maximum number of arguments of a replica's request.
const ARGS_MAX: i64 = 64;

/// The connection of a replica, as the thread `repl` knows it.
pub(super) struct Link {
    /// The connection's id in the event loop of the thread `repl`.
    pub conn: ConnId,
    /// The client that represents the replica in CLIENT LIST.
    pub info: Arc<ClientInfo>,
    /// The ACL user of the client that represents the replica.
    pub identity: Identity,
    /// The replica's address and announced port, for log lines.
    pub name: String,
    /// The snapshot that is being sent to the replica; `None` if there is none.
    pub snapshot: Option<SnapshotOutput>,
    /// The time in milliseconds of the server's clock of the last progress: bytes were queued for
    /// the replica, or a request was received.
    pub progress_ms: u64,
    /// The parse state of an incomplete request of the replica.
    pub progress: Progress,
}

/// The output of a snapshot to one replica.
pub(super) struct SnapshotOutput {
    reader: SpoolReader,
    framing: Framing,
    /// The random mark that ends a snapshot of unknown length.
    mark: [u8; END_MARK_LEN],
    is_headed: bool,
}

/// The amount of a snapshot that is queued, as [`SnapshotOutput::queue`] returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Queued {
    /// The connection's unsent output has reached its limit. The caller queues more of the snapshot
    /// once some output is sent.
    Part,
    /// All bytes of the snapshot that its writer has written so far are queued; the snapshot is not
    /// complete.
    All,
    /// The whole snapshot is queued, also the line before it and its end mark, if it has one.
    Whole(Framing),
}

impl SnapshotOutput {
    /// Creates the output of the snapshot that `reader` reads. `mark` is a random end mark.
    pub fn new(reader: SpoolReader, framing: Framing, mark: [u8; END_MARK_LEN]) -> Self {
        Self { reader, framing, mark, is_headed: false }
    }

    /// Queues parts of the snapshot until `out` has about `len_bytes_max` bytes, or all bytes that
    /// its writer has written are queued.
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

    /// Queues the line before the snapshot, which has its length or its end mark. Returns false if
    /// the line needs the length and it is not known yet.
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

    /// Returns true until the line before the snapshot is queued. Until then, newlines may be sent
    /// to keep the connection alive.
    pub fn is_awaited(&self) -> bool {
        !self.is_headed
    }
}

/// The offsets in an acknowledgement of a replica (REPLCONF ACK).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ack {
    /// The offset up to which the replica has applied the replication stream.
    pub acked: u64,
    /// The offset up to which the replica's append-only file is synced; `None` if not reported.
    pub synced: Option<u64>,
}

/// Parses all complete requests in `input`. Returns their length in bytes, and the last
/// acknowledgement among them. Ignores other requests, because a replica expects no replies.
///
/// # Errors
/// If `input` does not contain valid requests.
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

/// Returns the values of the request `REPLCONF ACK offset [FACK offset]`; `None` for another
/// request.
fn ack(words: &[&[u8]]) -> Option<Ack> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|it| it.eq_ignore_ascii_case(word.as_bytes()));
    let number = |at: usize| words.get(at).and_then(|it| parse_i64(it)).and_then(|it| u64::try_from(it).ok());
    if !is(0, "REPLCONF") || !is(1, "ACK") {
        return None;
    }
    Some(Ack { acked: number(2)?, synced: number(4).filter(|_| is(3, "FACK")) })
}

/// Checks the parser of a replica's requests, as a fuzz target. Bytes that arrive in pieces must
/// give the same last acknowledgement as all bytes at once, or an error in both cases.
///
/// # Panics
/// If the results differ.
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
