//! A property test of the reply scanner for arbitrary bytes from a server. A fuzzer or a loop over
//! random inputs calls it. It panics if the property does not hold.

use resp::{Value, decode};

use super::replies::{Reply, ReplyScanner, VALUES_MAX};

/// The maximum number of bytes of bulk strings that the scanner keeps of each reply.
const KEPT_LEN_BYTES: usize = 16;
/// The maximum number of bytes that the scanner keeps of an error's text.
const ERROR_LEN_BYTES: usize = 256;

/// The replies that the scanner finds in a stream, each with the bytes that it keeps of bulk
/// strings. `is_malformed` is true if malformed bytes follow the replies.
#[derive(Debug, PartialEq)]
struct Meaning {
    replies: Vec<(Reply, Vec<u8>)>,
    is_malformed: bool,
}

/// Checks that the scanner finds the same replies in a stream that arrives whole and in pieces, and
/// that the decoder agrees. The first byte of `data`, modulo 16, is the number of bytes after it
/// that give the lengths of pieces. The lengths are used in turn, repeatedly. The rest of `data` is
/// the stream.
pub fn fuzz_replies(data: &[u8]) {
    let Some((&cuts, rest)) = data.split_first() else { return };
    let (cuts, stream) = rest.split_at(rest.len().min(usize::from(cuts % 16)));
    let whole = meaning(stream, &[]);
    assert_eq!(whole, meaning(stream, cuts), "a cut changed what the stream means");
    let mut replies = whole.replies.iter();
    let mut at = 0;
    loop {
        match decode(&stream[at..]) {
            Ok(Some((value, len_bytes))) => {
                at += len_bytes;
                let Some((expected, text)) = expected(&value) else { continue };
                let Some((reply, kept)) = replies.next() else {
                    return assert!(whole.is_malformed && may_refuse(&stream[..at]), "a reply is missing");
                };
                assert_eq!(*reply, expected);
                assert!(text.is_none_or(|text| text == *kept));
            }
            Ok(None) => {
                assert_eq!(replies.next(), None, "a reply that is not there whole");
                return assert!(!whole.is_malformed || may_refuse(stream), "what may become a reply");
            }
            // The scanner checks less than the decoder and may accept these bytes.
            Err(_) => return,
        }
    }
}

/// Scans `stream` and returns the replies found. The stream arrives in pieces of `cuts[i] + 1`
/// bytes, or whole if `cuts` is empty.
fn meaning(stream: &[u8], cuts: &[u8]) -> Meaning {
    let mut scanner = ReplyScanner::default();
    scanner.keep_bodies(KEPT_LEN_BYTES);
    let mut found = Meaning { replies: Vec::new(), is_malformed: false };
    let (mut start, mut end) = (0, 0);
    let mut lengths = cuts.iter().cycle();
    while end < stream.len() {
        let len = lengths.next().map_or(stream.len(), |&len| usize::from(len) + 1);
        end = stream.len().min(end + len);
        while start < end {
            let Ok((taken, reply)) = scanner.next(&stream[start..end]) else {
                return Meaning { is_malformed: true, ..found };
            };
            start += taken;
            let Some(reply) = reply else { break };
            assert!(taken > 0);
            found.replies.push((reply, scanner.body().to_vec()));
        }
    }
    found
}

/// Returns the reply that the scanner must report for `value`, or `None` for a push message, which
/// is not a reply. If `value` is one bulk string, also returns the text that the scanner must keep
/// of it.
fn expected(value: &Value) -> Option<(Reply, Option<Vec<u8>>)> {
    let beginning = |text: &[u8], len: usize| text[..text.len().min(len)].to_vec();
    Some(match value {
        Value::Push(_) => return None,
        Value::Attributed { value, .. } => return expected(value),
        Value::Error(text) | Value::BulkError(text) => (Reply::Error(beginning(text, ERROR_LEN_BYTES)), None),
        Value::Null | Value::NullArray => (Reply::Null, None),
        Value::Bulk(text) => (Reply::Value, Some(beginning(text, KEPT_LEN_BYTES))),
        _ => (Reply::Value, None),
    })
}

/// Returns true if the scanner may reject `bytes` although the decoder accepts them or waits for
/// more. The scanner rejects a carriage return within a line. It also rejects counts, single or in
/// sum, that are larger than any reply.
fn may_refuse(bytes: &[u8]) -> bool {
    let lone = |pair: &[u8]| pair[0] == b'\r' && pair[1] != b'\n';
    let long_number = |run: &[u8]| run.iter().all(u8::is_ascii_digit);
    let count = |run: &[u8]| run.iter().fold(0_u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let counted = || bytes.split(|byte| !byte.is_ascii_digit()).map(count).sum::<u64>();
    // A pair of a map counts as two values, so the sum is doubled.
    bytes.windows(2).any(lone) || bytes.windows(10).any(long_number) || counted() * 2 > VALUES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_random_bytes_in_random_pieces() {
        let mut rng = fastrand::Rng::with_seed(11);
        let likely: Vec<&[u8]> = b"$*+-:_~%|>!=#,(0123ab\n".chunks(1).chain([&b"\r\n"[..]; 8]).collect();
        for _ in 0..50_000 {
            let mut data: Vec<u8> = std::iter::repeat_with(|| rng.u8(..8)).take(4).collect();
            (0..rng.usize(..40)).for_each(|_| data.extend_from_slice(likely[rng.usize(..likely.len())]));
            fuzz_replies(&data);
            data.iter_mut().for_each(|byte| *byte = rng.u8(..));
            fuzz_replies(&data);
        }
    }
}
