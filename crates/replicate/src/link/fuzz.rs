//! A fuzz target for the code of a replica that reads what a primary sends before the replication
//! stream. A primary may send any bytes.

use super::handshake::{LinkHandshake, LinkOptions, Next};
use super::transfer::{Payload, SnapshotHeader};
use crate::history::ReplId;

/// Processes `data` as the bytes of a primary: lines of the handshake, the header of a snapshot and
/// the snapshot. Checks that the snapshot's payload and the bytes after it do not depend on the
/// lengths of the pieces in which the bytes arrive. O(bytes).
///
/// # Panics
/// If the payload or the bytes after it depend on the pieces.
pub fn check_link(data: &[u8]) {
    let Some((&piece_len, input)) = data.split_first() else { return };
    let resume = (piece_len % 2 == 0).then(|| (ReplId::of_bits(1, 2, 3), 77));
    let mut handshake = LinkHandshake::new(LinkOptions { resume, ..LinkOptions::default() });
    let mut lines = input.split_inclusive(|&byte| byte == b'\n');
    for line in lines.by_ref() {
        match handshake.line(line) {
            Next::Send(_) | Next::Await => {}
            Next::Full { .. } | Next::Continue { .. } | Next::Failed(_) => break,
        }
    }
    let mut behind = lines;
    for line in behind.by_ref() {
        match SnapshotHeader::parse(line).map(Payload::new) {
            Ok(None) => {}
            Ok(Some(payload)) => {
                let rest: Vec<u8> = behind.flatten().copied().collect();
                return check_payload(payload, line, &rest, usize::from(piece_len).max(1));
            }
            Err(error) => return assert!(!error.text.is_empty()),
        }
    }
}

/// Checks that the bytes of a snapshot, received in pieces of `piece_len`, give the same payload as
/// all at once in `whole`.
fn check_payload(mut whole: Payload, line: &[u8], bytes: &[u8], piece_len: usize) {
    let at_once = whole.feed(bytes);
    let mut expected = at_once.held_back.to_vec();
    expected.extend_from_slice(at_once.payload);
    let (mut payload, mut rest) = (Vec::new(), None);
    let again = SnapshotHeader::parse(line).ok().and_then(Payload::new);
    let mut parts = again.expect("it was a header before");
    let mut pieces = bytes.chunks(piece_len);
    let mut used_bytes = 0;
    while rest.is_none()
        && let Some(piece) = pieces.next()
    {
        used_bytes += piece.len();
        let found = parts.feed(piece);
        payload.extend_from_slice(found.held_back);
        payload.extend_from_slice(found.payload);
        rest = found.rest.map(|rest| rest.len() + bytes.len() - used_bytes);
    }
    if !bytes.is_empty() {
        assert_eq!((payload, rest), (expected, at_once.rest.map(<[u8]>::len)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_primary_in_pieces_are_the_same_as_at_once() {
        let mark = "0123456789abcdef0123456789abcdef01234567";
        let id = "f".repeat(40);
        let replies = format!("+PONG\r\n{}+FULLRESYNC {id} 7\r\n\n\n", "+OK\r\n".repeat(4));
        for piece_len in [1, 2, 3, 39, 40, 41, 255] {
            for header in [format!("$EOF:{mark}\r\n"), "$12\r\n".to_owned(), "$0\r\n".to_owned()] {
                let text = format!("{replies}{header}REDIS0011{}{mark}*1\r\n$4\r\nPING\r\n", &mark[..20]);
                let data: Vec<u8> = [&[piece_len], text.as_bytes()].concat();
                (0..=data.len()).for_each(|end| check_link(&data[..end]));
            }
        }
    }
}
