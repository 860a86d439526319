//! A scanner for replies that arrive in pieces. It finds the end of each reply and reports null and
//! errors. It keeps bulk strings only on request ([`ReplyScanner::keep_bodies`]).
//!
//! A reply is a tree. The scanner counts only the values that have not arrived yet. Nested replies
//! therefore cost neither memory nor stack, however deep they are. State between two pieces:
//! `values_left` is the number of values of the current reply still to come, including nested
//! aggregates. `body_left` is the number of bytes of a bulk string still to come, including its
//! line end. A line is parsed when it is complete. Invariant: between replies both are 0. O(lines)
//! per piece; bodies are skipped without reading them. Source: the RESP specification,
//! redis.io/docs.

use stdx::number::parse_i64;

/// The maximum length of a line in bytes. Simple strings and errors are lines.
const LINE_LEN_BYTES_MAX: usize = 64 * 1024;
/// The maximum number of values in a reply: more than any command returns, and far below an
/// overflow of the counter.
pub(super) const VALUES_MAX: u64 = 1 << 32;
/// The maximum number of bytes of an error's text that are kept.
const ERROR_LEN_BYTES_MAX: usize = 256;

/// The kind of a reply, as the load generator counts it: a value, null or an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    /// The reply is neither null nor an error.
    Value,
    /// A null of RESP2 or RESP3: the read value is missing.
    Null,
    /// An error. Holds the beginning of its text, at most [`ERROR_LEN_BYTES_MAX`] bytes.
    Error(Vec<u8>),
}

/// A protocol error: bytes that are not a RESP reply. Holds a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Malformed(pub String);

/// A scanner that finds the ends of the replies on one connection.
#[derive(Debug, Default)]
pub(super) struct ReplyScanner {
    values_left: u64,
    body_left: u64,
    /// The kind of the current reply; `None` while its first line is incomplete.
    reply: Option<Reply>,
    /// True if the current reply is a push message, which does not belong to a request.
    is_push: bool,
    /// True if the current reply began with attributes, and the value that they belong to has not
    /// arrived yet.
    is_attributed: bool,
    /// True if the bulk string that is being received is the text of an error.
    in_error: bool,
    /// The maximum number of bytes of each reply's bulk strings that are kept for comparison; 0
    /// keeps none.
    keep_len_bytes: usize,
    body: Vec<u8>,
}

impl ReplyScanner {
    /// Sets the maximum number of bytes of each reply's bulk strings that the scanner keeps.
    /// [`ReplyScanner::body`] returns them.
    pub(super) fn keep_bodies(&mut self, len_bytes: usize) {
        self.keep_len_bytes = len_bytes;
    }

    /// Returns the kept beginning of the last reply's bulk strings, concatenated.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Scans `input`, which continues the bytes scanned before, up to the end of the next reply.
    /// Returns the number of bytes consumed, and the reply; `None` if `input` ends before the reply
    /// does. Push messages are skipped.
    pub(super) fn next(&mut self, input: &[u8]) -> Result<(usize, Option<Reply>), Malformed> {
        let mut at = 0;
        loop {
            if self.body_left > 0 {
                at += self.take_body(&input[at..]);
                if self.body_left > 0 {
                    return Ok((at, None));
                }
            } else {
                let Some(len) = line_len(&input[at..])? else { return Ok((at, None)) };
                self.line(&input[at..at + len])?;
                at += len + 2;
            }
            if self.values_left == 0 && self.body_left == 0 {
                let reply = self.reply.take().unwrap_or(Reply::Value);
                if !std::mem::take(&mut self.is_push) {
                    return Ok((at, Some(reply)));
                }
            }
        }
    }

    /// Consumes bytes of the current bulk string and its line end from `input`. Returns the number
    /// of bytes consumed.
    fn take_body(&mut self, input: &[u8]) -> usize {
        let len = usize::try_from(self.body_left).unwrap_or(usize::MAX).min(input.len());
        let text_len = usize::try_from(self.body_left.saturating_sub(2)).unwrap_or(usize::MAX).min(len);
        let kept_max = if self.in_error { ERROR_LEN_BYTES_MAX } else { self.keep_len_bytes };
        if kept_max > 0 {
            let room = kept_max.saturating_sub(self.body.len());
            self.body.extend_from_slice(&input[..text_len.min(room)]);
        }
        self.body_left -= len as u64;
        if self.body_left == 0 && std::mem::take(&mut self.in_error) {
            self.reply = Some(Reply::Error(std::mem::take(&mut self.body)));
        }
        len
    }

    /// Processes a complete line of a reply, without its line end. Returns an error if no reply may
    /// contain the line here.
    fn line(&mut self, line: &[u8]) -> Result<(), Malformed> {
        let outermost = self.values_left == 0 || (self.is_attributed && self.values_left == 1);
        let Some((&kind, text)) = line.split_first() else { return Err(malformed("an empty line", line)) };
        if outermost {
            self.values_left = 1;
            self.body.clear();
            self.is_attributed = kind == b'|';
        }
        let mut reply = Reply::Value;
        match kind {
            b'+' | b':' | b',' | b'(' | b'#' => self.values_left -= 1,
            b'-' => {
                self.values_left -= 1;
                reply = Reply::Error(text[..text.len().min(ERROR_LEN_BYTES_MAX)].to_vec());
            }
            b'_' => {
                self.values_left -= 1;
                reply = Reply::Null;
            }
            b'$' | b'=' | b'!' => {
                self.values_left -= 1;
                match count(text, line)? {
                    None => reply = Reply::Null,
                    Some(len) => {
                        self.body_left = len + 2;
                        self.in_error = kind == b'!' && outermost;
                    }
                }
            }
            b'*' | b'~' | b'>' | b'%' | b'|' => {
                let values = count(text, line)?;
                if values.is_none() {
                    reply = Reply::Null;
                }
                if kind == b'>' && outermost {
                    self.is_push = true;
                }
                let each = if matches!(kind, b'%' | b'|') { 2 } else { 1 };
                // Attributes do not count as a value: the value that they belong to follows them.
                self.values_left -= u64::from(kind != b'|');
                self.values_left = values
                    .unwrap_or(0)
                    .checked_mul(each)
                    .and_then(|values| values.checked_add(self.values_left))
                    .filter(|&values| values <= VALUES_MAX)
                    .ok_or_else(|| malformed("more values than a reply can have", line))?;
            }
            _ => return Err(malformed("no reply begins with this byte", line)),
        }
        if outermost {
            self.reply = Some(reply);
        }
        Ok(())
    }
}

/// Returns the length in bytes of the first line of `input`, without its line end; `None` if the
/// line is incomplete.
#[inline]
fn line_len(input: &[u8]) -> Result<Option<usize>, Malformed> {
    let Some(len) = input.iter().take(LINE_LEN_BYTES_MAX).position(|&byte| byte == b'\r') else {
        let too_long = input.len() >= LINE_LEN_BYTES_MAX;
        return if too_long { Err(malformed("a line without an end", &input[..40])) } else { Ok(None) };
    };
    match input.get(len + 1) {
        None => Ok(None),
        Some(b'\n') => Ok(Some(len)),
        Some(_) => Err(malformed("a carriage return within a line", &input[..len])),
    }
}

/// Parses `text` as the length of a bulk string or an aggregate. Returns `None` for -1, which means
/// null. `line` is the whole line, for the error.
fn count(text: &[u8], line: &[u8]) -> Result<Option<u64>, Malformed> {
    match parse_i64(text) {
        Some(-1) => Ok(None),
        Some(count) => u64::try_from(count).map(Some).map_err(|_| malformed("a negative length", line)),
        None => Err(malformed("a length that is not a number", line)),
    }
}

fn malformed(what: &str, line: &[u8]) -> Malformed {
    let shown = &line[..line.len().min(60)];
    Malformed(format!("{what}: {:?}", String::from_utf8_lossy(shown)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the scanner finds the replies `expected` in `input`, for every way of cutting it
    /// into two pieces.
    fn check(input: &str, expected: &[Reply]) {
        let input = input.replace('|', "\r\n").replace('¦', "|").into_bytes();
        for cut in 0..=input.len() {
            let mut scanner = ReplyScanner::default();
            let mut replies = Vec::new();
            let mut kept = Vec::new();
            for piece in [&input[..cut], &input[cut..]] {
                kept.extend_from_slice(piece);
                loop {
                    let (taken, reply) = scanner.next(&kept).unwrap();
                    kept.drain(..taken);
                    match reply {
                        Some(reply) => replies.push(reply),
                        None => break,
                    }
                }
            }
            assert_eq!(replies, expected, "cut at {cut}");
            assert!(kept.is_empty());
        }
    }

    fn error(text: &str) -> Reply {
        Reply::Error(text.as_bytes().to_vec())
    }

    #[test]
    fn replies_end_where_they_end() {
        use Reply::{Null, Value};
        check("+OK|:1|$3|a\rb|$0||", &[Value, Value, Value, Value]);
        check("$-1|*-1|_|", &[Null, Null, Null]);
        check("*2|*1|$1|a|$-1|+OK|", &[Value, Value]);
        check("%1|+a|*0|~0|#t|,1.5|(1|=5|txt:a|", &vec![Value; 6]);
        check("-ERR no|!7|ERR yes|", &[error("ERR no"), error("ERR yes")]);
        check("*1|-ERR inner|", &[Value]);
        check(">2|+a|+b|+OK|", &[Value]);
        check("¦1|+ttl|:9|$1|a|+OK|", &[Value, Value]);
        check("¦1|+ttl|*1|:9|-ERR no|¦0|¦1|$1|a|_|_|", &[error("ERR no"), Null]);
    }

    #[test]
    fn bodies_are_kept_up_to_a_length() {
        let mut scanner = ReplyScanner::default();
        scanner.keep_bodies(4);
        assert_eq!(scanner.next(b"$6\r\nabc").unwrap(), (7, None));
        assert_eq!(scanner.next(b"def\r\n").unwrap(), (5, Some(Reply::Value)));
        assert_eq!(scanner.body(), b"abcd");
        assert_eq!(scanner.next(b"$1\r\nx\r\n").unwrap(), (7, Some(Reply::Value)));
        assert_eq!(scanner.body(), b"x");
    }

    #[test]
    fn claims_cost_nothing_and_nonsense_is_refused() {
        let mut scanner = ReplyScanner::default();
        assert_eq!(scanner.next(b"$9223372036854775807\r\nabc").unwrap().1, None);
        let nested = b"*1\r\n".repeat(100_000);
        assert_eq!(ReplyScanner::default().next(&nested).unwrap(), (nested.len(), None));
        for input in [
            &b"HTTP/1.1 400\r\n"[..],
            b"\r\n",
            b"$-2\r\n",
            b"$x\r\n",
            b"*9223372036854775807\r\n",
            b"%9223372036854775807\r\n",
            b"+a\rb",
        ] {
            assert!(ReplyScanner::default().next(input).is_err(), "{input:?}");
        }
        assert!(ReplyScanner::default().next(&[b'+'; LINE_LEN_BYTES_MAX]).is_err());
    }

    #[test]
    fn random_bytes_never_panic_nor_stop_the_scanner() {
        let mut rng = fastrand::Rng::with_seed(5);
        for _ in 0..20_000 {
            let alphabet = b"$*+-:_~%|>!=#,(\r\n0129ab";
            let input: Vec<u8> =
                (0..rng.usize(..60)).map(|_| alphabet[rng.usize(..alphabet.len())]).collect();
            let mut scanner = ReplyScanner::default();
            let mut at = 0;
            while let Ok((taken, Some(_))) = scanner.next(&input[at..]) {
                assert!(taken > 0);
                at += taken;
            }
        }
    }
}
