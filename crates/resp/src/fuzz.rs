//! Properties that hold for any bytes, as functions for a fuzzer or a plain loop of random inputs.
//! Each function panics if its property does not hold.

use stdx::ByteQueue;

use crate::{Limits, Parsed, Progress, Protocol, ProtocolError, Reply, Span, decode, parse_request};

/// The parsed content of a client's stream of bytes: the arguments of each request, and the error
/// that ended the stream, if any.
type Meaning = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

/// Checks that a client's stream of bytes gives the same requests and the same error if it is
/// parsed whole or in pieces. Also checks this if only some of the parsed requests run and the
/// others are parsed again. The first byte of `data` determines the length of the pieces, the
/// second the number of requests that run per piece. The rest of `data` is the stream.
pub fn fuzz_request(data: &[u8]) {
    let [step, runs, stream @ ..] = data else {
        return;
    };
    let step = *step;
    // Small limits, so that short inputs reach them.
    let limits = Limits {
        bulk_len_max: 1 << 20,
        multibulk_len_max: 1 << 20,
        inline_len_max: 256,
        unauthenticated: step >= 128,
    };
    let whole = requests(stream, stream.len().max(1), usize::MAX, &limits);
    let piece_len = step as usize % 128 + 1;
    let in_pieces = requests(stream, piece_len, usize::MAX, &limits);
    assert_eq!(whole, in_pieces, "a cut changed what the stream means");
    let held_back = requests(stream, piece_len, *runs as usize % 8, &limits);
    assert_eq!(whole, held_back, "parsing ahead changed what the stream means");
}

/// Parses `stream` as if it arrived in pieces of `step` bytes. At most `runs_max` requests of each
/// piece run; the others are parsed again with the next piece. All requests of the last piece run.
fn requests(stream: &[u8], step: usize, runs_max: usize, limits: &Limits) -> Meaning {
    let mut requests = Vec::new();
    let mut progress = Progress::default();
    let mut spans: Vec<Span> = Vec::new();
    let mut consumed = 0;
    let mut end = 0;
    while end < stream.len() {
        end = stream.len().min(end + step);
        let mut runs_left = if end < stream.len() { runs_max } else { usize::MAX };
        let mut start = consumed;
        loop {
            let request = &stream[start..end];
            spans.clear();
            let parsed = parse_request(request, start as u64, limits, &mut progress, &mut spans);
            let (len_bytes, args) = match parsed {
                Ok(Parsed::Request { len_bytes }) => {
                    assert!(!spans.is_empty());
                    (len_bytes, spans.iter().map(|span| span.of(&request[..len_bytes]).to_vec()).collect())
                }
                Ok(Parsed::Inline { len_bytes, args }) => (len_bytes, args),
                Ok(Parsed::Empty { len_bytes }) => (len_bytes, Vec::new()),
                Ok(Parsed::Incomplete { missing_bytes }) => {
                    assert!(missing_bytes > 0 && spans.is_empty());
                    break;
                }
                Err(_) if runs_left == 0 => break,
                Err(error) => return (requests, Some(error)),
            };
            assert!((1..=request.len()).contains(&len_bytes));
            start += len_bytes;
            if runs_left == 0 {
                continue;
            }
            consumed = start;
            if !args.is_empty() {
                runs_left -= 1;
                requests.push(args);
            }
        }
    }
    (requests, None)
}

/// Checks that `data` is decoded or rejected without a panic, and that a reply without its last
/// byte is incomplete. Also checks that the output of any sequence of encoder calls decodes
/// completely.
pub fn fuzz_reply(data: &[u8]) {
    if let Ok(Some((value, len_bytes))) = decode(data) {
        assert!(len_bytes <= data.len());
        assert_eq!(decode(&data[..len_bytes - 1]), Ok(None), "a reply without its end is incomplete");
        // Formatting must not panic.
        let _ = value.to_string();
    }
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut queue = ByteQueue::new();
        let mut script = data;
        while !script.is_empty() {
            write_value(&mut Reply::new(&mut queue, protocol), &mut script, 0);
        }
        let encoded: Vec<u8> = queue.io_slices(usize::MAX).iter().flat_map(|slice| slice.to_vec()).collect();
        let mut rest = encoded.as_slice();
        while !rest.is_empty() {
            let (_, len_bytes) = decode(rest).expect("replies are well formed").expect("replies are whole");
            rest = &rest[len_bytes..];
        }
    }
}

/// Writes one reply as `script` describes, and removes the used bytes from `script`. Its first byte
/// selects the type of the reply.
fn write_value(reply: &mut Reply<'_>, script: &mut &[u8], depth: usize) {
    let Some((&code, rest)) = script.split_first() else {
        return reply.null();
    };
    let (payload, behind) = rest.split_at(rest.len().min(code as usize / 16));
    *script = if code % 16 < 11 { behind } else { rest };
    let count = if depth < 8 { code as usize / 64 } else { 0 };
    let number = payload.iter().fold(0_i64, |number, &byte| number << 8 | byte as i64);
    match code % 16 {
        0 => reply.bulk(payload),
        1 => reply.error_bytes(payload),
        2 => reply.integer(number),
        3 => reply.bulk_integer(number),
        4 => reply.bulk_shared(std::sync::Arc::new(payload.to_vec())),
        5 => reply.double(f64::from_bits(number as u64)),
        6 => reply.verbatim(*b"txt", payload),
        7 => reply.null_array(),
        8 => reply.boolean(payload.is_empty()),
        9 => reply.ok(),
        10 => {
            let mark = reply.mark();
            reply.array(7);
            reply.bulk_shared(std::sync::Arc::new(payload.to_vec()));
            reply.bulk(payload);
            reply.truncate(mark);
            reply.null();
        }
        11 => {
            let begun = reply.begin_array();
            (0..count).for_each(|_| write_value(reply, script, depth + 1));
            reply.end_array(begun, count);
        }
        12 => {
            let begun = reply.begin_map();
            (0..2 * count).for_each(|_| write_value(reply, script, depth + 1));
            reply.end_map(begun, count);
        }
        13 => {
            reply.set(count);
            (0..count).for_each(|_| write_value(reply, script, depth + 1));
        }
        14 => {
            reply.push(count);
            (0..count).for_each(|_| write_value(reply, script, depth + 1));
        }
        _ => {
            reply.map(count);
            (0..2 * count).for_each(|_| write_value(reply, script, depth + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, ..ProptestConfig::default() })]

        #[test]
        fn requests_and_replies_of_random_bytes(data in proptest::collection::vec(any::<u8>(), 0..400)) {
            fuzz_request(&data);
            fuzz_reply(&data);
        }

        #[test]
        fn requests_and_replies_of_likely_bytes(
            data in proptest::string::bytes_regex("(?-u:.)([*$:+%~>|,(_#=!-][0-9]{0,2}\r\n|[a-z'\" \r\n]){0,60}")
                .expect("a valid regex"),
        ) {
            fuzz_request(&data);
            fuzz_reply(&data);
            fuzz_reply(data.get(1..).unwrap_or_default());
        }
    }
}
