//! The snapshot that a replica receives from its primary: its header, its payload and its end.

use memchr::memchr;
use stdx::number::parse_i64;

use crate::history::REPL_ID_LEN;
use crate::link::request::{LinkError, shown, trimmed};

/// The length in bytes of the mark that ends a snapshot of unknown length.
pub const MARK_LEN: usize = REPL_ID_LEN;

/// The meaning of a line that the primary sends before the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SnapshotHeader {
    /// An empty line, which keeps the connection alive while the primary prepares the snapshot.
    Alive,
    /// The length of the snapshot in bytes, which the primary sends before the snapshot.
    Length(u64),
    /// The mark that the primary will send after the snapshot, because it does not know the
    /// snapshot's length.
    EndMark([u8; MARK_LEN]),
}

impl SnapshotHeader {
    /// Parses a line that the primary sends before the snapshot. The line may include its line end.
    ///
    /// # Errors
    /// If the line is an error reply, or not a header.
    pub fn parse(line: &[u8]) -> Result<Self, LinkError> {
        let line = trimmed(line);
        if let Some(error) = line.strip_prefix(b"-") {
            let text = format!("MASTER aborted replication with an error: {}", shown(error));
            return Err(LinkError::of_reply(line, text));
        }
        if line.is_empty() {
            return Ok(Self::Alive);
        }
        Self::of(line).ok_or_else(|| {
            LinkError::new(format!(
                "Bad protocol from MASTER, expected the length of a snapshot (we received '{}'), \
                 are you sure the host and port are right?",
                shown(line)
            ))
        })
    }

    fn of(line: &[u8]) -> Option<Self> {
        let value = line.strip_prefix(b"$")?;
        match value.strip_prefix(b"EOF:") {
            Some(mark) => mark.first_chunk().map(|&mark| Self::EndMark(mark)),
            None => parse_i64(value).and_then(|len| u64::try_from(len).ok()).map(Self::Length),
        }
    }
}

/// The parts of a chunk of bytes received from the primary during a snapshot, in the order of the
/// connection's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts<'a> {
    /// Bytes of the snapshot from earlier chunks. They were held back because they could have been
    /// the beginning of the end mark, but are not. They precede `payload`.
    pub held_back: &'a [u8],
    /// The bytes of the snapshot in this chunk.
    pub payload: &'a [u8],
    /// The bytes after the snapshot, which belong to the replication stream. `None` while the end
    /// of the snapshot is not found.
    pub rest: Option<&'a [u8]>,
}

/// The search for the end mark of a snapshot in received chunks of any size. Bytes that may belong
/// to the mark are not passed to the caller yet. So all payload that the caller gets belongs to the
/// snapshot.
///
/// The bytes held back equal the first bytes of the mark, so only their number is stored. The
/// search is that of Knuth, Morris and Pratt: O(bytes), each byte is read once.
#[derive(Debug)]
pub struct EndMark {
    mark: [u8; MARK_LEN],
    /// The failure table of the search: for each index, the length of the longest proper prefix of
    /// the mark that ends at this index.
    fallback: [u8; MARK_LEN],
    /// The number of received bytes that are held back: they equal this many first bytes of the end
    /// mark.
    matched: usize,
}

impl EndMark {
    /// Creates the search for the end mark `mark` of a snapshot, before its first byte.
    pub fn new(mark: [u8; MARK_LEN]) -> Self {
        let mut fallback = [0; MARK_LEN];
        let mut matched = 0;
        for at in 1..MARK_LEN {
            while matched > 0 && mark[at] != mark[matched] {
                matched = usize::from(fallback[matched - 1]);
            }
            matched += usize::from(mark[at] == mark[matched]);
            fallback[at] = matched as u8;
        }
        Self { mark, fallback, matched: 0 }
    }

    /// Processes the next bytes received from the primary, and searches the end mark in them.
    /// Divides them into parts: payload, and bytes after the snapshot. Must not be called after the
    /// end was found.
    pub fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> Parts<'a> {
        let before = self.matched;
        let mut at = 0;
        while at < chunk.len() && self.matched < MARK_LEN {
            if self.matched == 0 {
                let Some(skipped) = memchr(self.mark[0], &chunk[at..]) else { break };
                at += skipped;
            }
            while self.matched > 0 && chunk[at] != self.mark[self.matched] {
                self.matched = usize::from(self.fallback[self.matched - 1]);
            }
            self.matched += usize::from(chunk[at] == self.mark[self.matched]);
            at += 1;
        }
        let is_found = self.matched == MARK_LEN;
        let used = if is_found { at } else { chunk.len() };
        // All bytes before the last `matched` ones are payload.
        let payload_len = before + used - self.matched;
        Parts {
            held_back: &self.mark[..payload_len.min(before)],
            payload: &chunk[..payload_len.saturating_sub(before)],
            rest: is_found.then(|| &chunk[used..]),
        }
    }
}

/// The payload of a snapshot that is being received.
#[derive(Debug)]
pub enum Payload {
    /// A snapshot of known length: the number of bytes that are still expected.
    Length(u64),
    /// A snapshot of unknown length: the search for its end mark.
    EndMark(EndMark),
}

impl Payload {
    /// Creates the receiver of the snapshot that follows `header`. `None` for an empty line, after
    /// which the header is still expected.
    pub fn new(header: SnapshotHeader) -> Option<Self> {
        match header {
            SnapshotHeader::Alive => None,
            SnapshotHeader::Length(len_bytes) => Some(Self::Length(len_bytes)),
            SnapshotHeader::EndMark(mark) => Some(Self::EndMark(EndMark::new(mark))),
        }
    }

    /// Processes the next bytes received from the primary. Divides them into parts: payload, and
    /// bytes after the snapshot. Must not be called after the end was found. A snapshot of length 0
    /// ends with the first chunk, which may be empty.
    pub fn feed<'a>(&'a mut self, chunk: &'a [u8]) -> Parts<'a> {
        match self {
            Self::EndMark(mark) => mark.feed(chunk),
            Self::Length(left) => {
                let used = usize::try_from(*left).unwrap_or(usize::MAX).min(chunk.len());
                *left -= used as u64;
                let (payload, rest) = chunk.split_at(used);
                Parts { held_back: &[], payload, rest: (*left == 0).then_some(rest) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes `chunks` to the receiver `payload` of a snapshot. Returns all bytes of the snapshot,
    /// and the bytes after its end.
    fn fed(payload: &mut Payload, chunks: &[&[u8]]) -> (Vec<u8>, Option<Vec<u8>>) {
        let (mut out, mut stream) = (Vec::new(), None::<Vec<u8>>);
        for chunk in chunks {
            match &mut stream {
                Some(stream) => stream.extend_from_slice(chunk),
                None => {
                    let parts = payload.feed(chunk);
                    out.extend_from_slice(parts.held_back);
                    out.extend_from_slice(parts.payload);
                    stream = parts.rest.map(<[u8]>::to_vec);
                }
            }
        }
        (out, stream)
    }

    #[test]
    fn a_header_is_a_length_or_a_mark() {
        let mark = [b'a'; MARK_LEN];
        let text = |bytes: &[u8]| SnapshotHeader::parse(bytes).map_err(|error| error.text);
        assert_eq!(text(b"\r\n"), Ok(SnapshotHeader::Alive));
        assert_eq!(text(b""), Ok(SnapshotHeader::Alive));
        assert_eq!(text(b"$0\r"), Ok(SnapshotHeader::Length(0)));
        assert_eq!(text(b"$5000000000"), Ok(SnapshotHeader::Length(5_000_000_000)));
        let line = [b"$EOF:", &mark[..], b"\r\n"].concat();
        assert_eq!(text(&line), Ok(SnapshotHeader::EndMark(mark)));
        let error = text(b"-ERR out of disk\r\n").expect_err("an error");
        assert_eq!(error, "MASTER aborted replication with an error: ERR out of disk");
        for wrong in [&b"$EOF:abc"[..], b"$-1", b"$", b"$x", b"+OK", b"REDIS0011", b" "] {
            let error = text(wrong).expect_err("no header");
            assert!(error.starts_with("Bad protocol from MASTER"), "{error}");
        }
    }

    #[test]
    fn a_counted_snapshot_ends_after_its_bytes() {
        for at in 0..=8 {
            let mut payload = Payload::new(SnapshotHeader::Length(5)).expect("a payload");
            let (first, second) = b"12345abc".split_at(at);
            assert_eq!(fed(&mut payload, &[first, second]), (b"12345".to_vec(), Some(b"abc".to_vec())));
        }
        let mut empty = Payload::new(SnapshotHeader::Length(0)).expect("a payload");
        assert_eq!(fed(&mut empty, &[b""]), (Vec::new(), Some(Vec::new())));
        assert!(Payload::new(SnapshotHeader::Alive).is_none());
    }

    /// Checks the search for the end mark `mark` of a snapshot in `text`, for all splits of `text`
    /// into three chunks, and byte by byte.
    fn check_splits(mark: [u8; MARK_LEN], text: &[u8], payload: &[u8], stream: &[u8]) {
        let expected = (payload.to_vec(), Some(stream.to_vec()));
        let new = || Payload::EndMark(EndMark::new(mark));
        for second in 0..=text.len() {
            for first in 0..=second {
                let chunks = [&text[..first], &text[first..second], &text[second..]];
                assert_eq!(fed(&mut new(), &chunks), expected, "{first} {second}");
            }
        }
        let bytes: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(fed(&mut new(), &bytes), expected);
    }

    #[test]
    fn the_mark_is_found_at_every_split() {
        let mark = *b"0123456701234567012345670123456789abcdef";
        let begin = |len: usize| &mark[..len];
        for (payload, stream) in [
            (&b""[..], &b""[..]),
            (b"REDIS0011", b"*1\r\n"),
            // False starts, also such that the mark begins inside one.
            (b"0", b"0"),
            (begin(8), b"x"),
            (begin(32), &mark),
            (begin(39), b""),
            (b"x0123x01234567", begin(39)),
        ] {
            check_splits(mark, &[payload, &mark, stream].concat(), payload, stream);
        }
        // Only the first occurrence counts.
        let mark = [b'a'; MARK_LEN];
        check_splits(
            mark,
            &[&[b'a'; 39][..], b"b", &mark, b"aa"].concat(),
            &[&[b'a'; 39][..], b"b"].concat(),
            b"aa",
        );
    }

    #[test]
    fn a_payload_without_mark_is_held_back_by_less_than_a_mark() {
        for seed in 0..200 {
            let mut rng = fastrand::Rng::with_seed(seed);
            // Two letters make many false starts.
            let mark = std::array::from_fn(|_| b"ab"[rng.usize(..2)]);
            let (mut search, mut text, mut out) = (EndMark::new(mark), Vec::new(), Vec::new());
            loop {
                let chunk: Vec<u8> = match rng.u8(..8) {
                    0 => mark[..rng.usize(..MARK_LEN)].to_vec(),
                    1 if text.len() > 2000 => mark.to_vec(),
                    _ => (0..rng.usize(..60)).map(|_| b"ab"[rng.usize(..2)]).collect(),
                };
                text.extend_from_slice(&chunk);
                let parts = search.feed(&chunk);
                out.extend_from_slice(parts.held_back);
                out.extend_from_slice(parts.payload);
                let naive = text.windows(MARK_LEN).position(|window| window == mark);
                if let Some(rest) = parts.rest {
                    assert_eq!(naive, Some(out.len()), "seed {seed}");
                    assert_eq!(rest, &text[out.len() + MARK_LEN..], "seed {seed}");
                    break;
                }
                assert_eq!(naive, None, "seed {seed}");
                assert!(text.starts_with(&out) && text.len() - out.len() < MARK_LEN, "seed {seed}");
            }
            assert_eq!(out, text[..out.len()], "seed {seed}");
        }
    }
}
