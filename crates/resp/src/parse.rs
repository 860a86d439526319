//! The request parser: finds the arguments of one request in the bytes received so far.
//!
//! ```text
//!   *2\r\n$3\r\nGET\r\n$16\r\n0123456789abcdef\r\n    multibulk: arguments are slices of the input
//!          ^ span        ^ span
//!   SET greeting "hello world\n"\r\n                  inline: a line a person types
//! ```
//! An argument is not copied: it is a [`Span`] of the input, appended to a vector that the requests
//! of a batch share. The exception is an inline request with quotes: its unquoted arguments are
//! copied into [`Parsed::Inline`].
//!
//! A request may arrive in several parts. The caller then keeps the bytes of the incomplete request
//! and calls again when more have arrived. A short request is parsed again from its start. A
//! request of many arguments is resumed at the place stored in [`Progress`], so that the work over
//! all parts stays O(n). The progress is valid for one position in the stream: a request that
//! starts at another position is parsed from its start. So a caller may parse ahead, run fewer
//! requests than it parsed, and parse again. For a request that arrives whole, `Progress` costs one
//! check for emptiness.
//!
//! Memory: spans grow with the arguments that have arrived (8 bytes each, for at least 6 received
//! bytes). Nothing is allocated for arguments that a header only announces.
//!
//! Error texts and limits are those of Redis 8.0.2. As in Redis, the byte after a CR and the two
//! bytes after a bulk string are not checked. Two cases differ, because in Redis their result
//! depends on how the bytes were split into reads. A line over the limit is rejected even if it is
//! received as a whole. A NUL is an ordinary byte; Redis waits for more input if a line contains
//! one.

use std::fmt;

use stdx::number::parse_i64;
use stdx::quoted::{is_space, split_quoted, terminates_word};

/// The position of an argument, relative to the first byte of its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The index of the argument's first byte in the request.
    pub start: u32,
    /// The length of the argument in bytes.
    pub len: u32,
}

impl Span {
    /// Returns the bytes of the argument. `request` must start at the first byte of the request
    /// that was parsed.
    #[inline]
    pub fn of(self, request: &[u8]) -> &[u8] {
        &request[self.start as usize..][..self.len as usize]
    }
}

/// The limits within which a request is accepted.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The maximum length of an argument in bytes (`proto-max-bulk-len`).
    pub bulk_len_max: u64,
    /// The maximum number of arguments of a request, its command name included.
    pub multibulk_len_max: i64,
    /// The maximum length in bytes of an inline request, and of a line with a length or a count.
    pub inline_len_max: usize,
    /// True until the client has authenticated: only small requests are accepted.
    pub unauthenticated: bool,
}

/// The maximum number of arguments of a request before authentication.
const UNAUTHENTICATED_MULTIBULK_LEN_MAX: i64 = 10;
/// The maximum length of an argument before authentication, in bytes.
const UNAUTHENTICATED_BULK_LEN_MAX: u64 = 16 * 1024;

impl Default for Limits {
    fn default() -> Self {
        Self {
            bulk_len_max: 512 * 1024 * 1024,
            multibulk_len_max: i32::MAX as i64,
            inline_len_max: 64 * 1024,
            unauthenticated: false,
        }
    }
}

/// The result of [`parse_request`] at the start of its input.
#[derive(Debug, PartialEq, Eq)]
pub enum Parsed {
    /// A complete request. Its arguments (one or more) were appended to the vector of spans.
    Request {
        /// The length of the complete request in the input, in bytes.
        len_bytes: usize,
    },
    /// A complete inline request with quotes. It has one or more arguments and appended no spans.
    Inline {
        /// The length of the inline request in the input, in bytes.
        len_bytes: usize,
        /// The arguments of the inline request, without quotes and escapes.
        args: Vec<Vec<u8>>,
    },
    /// An empty request: an empty line, `*0`, or a negative count. The caller skips it without a
    /// reply.
    Empty {
        /// The length of the empty request in the input, in bytes.
        len_bytes: usize,
    },
    /// The input holds a request of which some bytes have not arrived yet.
    Incomplete {
        /// The minimum number of bytes that are missing, or 1 if that is unknown. The client
        /// chooses this number, so do not allocate memory for it in advance.
        missing_bytes: usize,
    },
}

/// The parsed part of the last incomplete request of a connection.
#[derive(Debug, Default)]
pub struct Progress {
    /// The arguments parsed so far; `Some` only for at least [`RESUME_SPANS_MIN`] of them. Boxed,
    /// so that an idle connection pays only for one pointer.
    resume: Option<Box<Resume>>,
}

#[derive(Debug)]
struct Resume {
    /// The position of the request's first byte in the connection's stream. The bytes at a position
    /// never change, so the parsed arguments stay valid.
    position: u64,
    cursor: Cursor,
    spans: Vec<Span>,
}

/// The place at which parsing continues: the index of the next argument's header in the request,
/// and the number of arguments that are still to be parsed.
#[derive(Clone, Copy, Debug)]
struct Cursor {
    at: usize,
    args_left: u32,
}

/// The minimum number of parsed arguments of an incomplete request that are stored for the next
/// call. Parsing fewer again is cheaper than storing them.
const RESUME_SPANS_MIN: usize = 32;

/// The reason why a client's bytes are not a request. The connection is closed after the error is
/// sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolError {
    /// A count of arguments that is not a number or is above the limit.
    InvalidMultibulkLength,
    /// A length of an argument that is not a number, is negative or is above the limit.
    InvalidBulkLength,
    /// An argument that starts with this byte instead of `$`.
    ExpectedDollar(u8),
    /// An inline request longer than the limit.
    TooBigInline,
    /// A line with a count of arguments that is longer than the limit.
    TooBigMultibulkCount,
    /// A line with the length of an argument that is longer than the limit.
    TooBigBulkCount,
    /// An inline request with an unclosed quote, or with text directly after a closing quote.
    UnbalancedQuotes,
    /// A request with too many arguments before authentication.
    UnauthenticatedMultibulkLength,
    /// An argument that is too long before authentication.
    UnauthenticatedBulkLength,
}

impl ProtocolError {
    /// Returns the error line for the client, without its `-`. The line may quote a byte that is
    /// not UTF-8.
    pub fn error_line(self) -> Vec<u8> {
        if let ProtocolError::ExpectedDollar(byte) = self {
            return [b"ERR Protocol error: expected '$', got '", &[byte][..], b"'"].concat();
        }
        format!("ERR {self}").into_bytes()
    }
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self {
            ProtocolError::ExpectedDollar(byte) => {
                return write!(f, "Protocol error: expected '$', got '{}'", byte.escape_ascii());
            }
            ProtocolError::InvalidMultibulkLength => "invalid multibulk length",
            ProtocolError::InvalidBulkLength => "invalid bulk length",
            ProtocolError::TooBigInline => "too big inline request",
            ProtocolError::TooBigMultibulkCount => "too big mbulk count string",
            ProtocolError::TooBigBulkCount => "too big bulk count string",
            ProtocolError::UnbalancedQuotes => "unbalanced quotes in request",
            ProtocolError::UnauthenticatedMultibulkLength => "unauthenticated multibulk length",
            ProtocolError::UnauthenticatedBulkLength => "unauthenticated bulk length",
        };
        write!(f, "Protocol error: {words}")
    }
}

impl std::error::Error for ProtocolError {}

/// Parses the request at the start of `input` and appends its arguments to `spans`. `position` is
/// the number of bytes of the connection's stream ahead of `input`.
///
/// After `Incomplete`, call again with the same bytes followed by more, and with the same
/// `progress`. For a request of many arguments, each further call costs O(bytes added since the
/// last call).
#[inline]
pub fn parse_request(
    input: &[u8],
    position: u64,
    limits: &Limits,
    progress: &mut Progress,
    spans: &mut Vec<Span>,
) -> Result<Parsed, ProtocolError> {
    if let Some(resumable) = progress.resume.take_if(|resume| resume.position == position) {
        return resume(resumable, input, limits, progress, spans);
    }
    match input.first() {
        Some(b'*') => multibulk(input, position, limits, progress, spans),
        Some(_) => inline(input, limits, spans),
        None => Ok(Parsed::Incomplete { missing_bytes: 1 }),
    }
}

#[inline]
fn multibulk(
    input: &[u8],
    position: u64,
    limits: &Limits,
    progress: &mut Progress,
    spans: &mut Vec<Span>,
) -> Result<Parsed, ProtocolError> {
    let header = match short_header(input, 0) {
        Some(header) => header,
        None => match long_header(input, 0, limits).map_err(|_| ProtocolError::TooBigMultibulkCount)? {
            Some(header) => header,
            None => return Ok(Parsed::Incomplete { missing_bytes: 1 }),
        },
    };
    let count = header
        .value
        .filter(|&count| count <= limits.multibulk_len_max.min(u32::MAX as i64))
        .ok_or(ProtocolError::InvalidMultibulkLength)?;
    if count > UNAUTHENTICATED_MULTIBULK_LEN_MAX && limits.unauthenticated {
        return Err(ProtocolError::UnauthenticatedMultibulkLength);
    }
    if count <= 0 {
        return Ok(Parsed::Empty { len_bytes: header.end });
    }
    let spans_before = spans.len();
    let mut cursor = Cursor { at: header.end, args_left: count as u32 };
    match arguments(input, limits, &mut cursor, spans) {
        Ok(None) => Ok(Parsed::Request { len_bytes: cursor.at }),
        Ok(Some(missing_bytes)) => {
            if spans.len() - spans_before >= RESUME_SPANS_MIN {
                let spans = spans.split_off(spans_before);
                progress.resume = Some(Box::new(Resume { position, cursor, spans }));
            }
            spans.truncate(spans_before);
            Ok(Parsed::Incomplete { missing_bytes })
        }
        Err(error) => {
            spans.truncate(spans_before);
            Err(error)
        }
    }
}

/// Continues a request of many arguments where the last call stopped.
#[cold]
fn resume(
    mut resume: Box<Resume>,
    input: &[u8],
    limits: &Limits,
    progress: &mut Progress,
    spans: &mut Vec<Span>,
) -> Result<Parsed, ProtocolError> {
    if let Some(missing_bytes) = arguments(input, limits, &mut resume.cursor, &mut resume.spans)? {
        progress.resume = Some(resume);
        return Ok(Parsed::Incomplete { missing_bytes });
    }
    spans.append(&mut resume.spans);
    Ok(Parsed::Request { len_bytes: resume.cursor.at })
}

/// Parses arguments up to the last one or the end of the input. Returns `None` if the request is
/// complete, else the minimum number of missing bytes. `cursor` is moved past the last complete
/// argument.
#[inline]
fn arguments(
    input: &[u8],
    limits: &Limits,
    cursor: &mut Cursor,
    spans: &mut Vec<Span>,
) -> Result<Option<usize>, ProtocolError> {
    while cursor.args_left > 0 {
        if let Some(span) = tiny_argument(input, cursor.at)
            && u64::from(span.len) <= limits.bulk_len_max
        {
            spans.push(span);
            cursor.at = (span.start + span.len) as usize + 2;
            cursor.args_left -= 1;
            continue;
        }
        let header = match short_header(input, cursor.at) {
            Some(header) if input[cursor.at] == b'$' => header,
            _ => match long_header(input, cursor.at, limits).map_err(|_| ProtocolError::TooBigBulkCount)? {
                Some(header) => header,
                None => return Ok(Some(1)),
            },
        };
        if input[cursor.at] != b'$' {
            return Err(ProtocolError::ExpectedDollar(input[cursor.at]));
        }
        let len = header
            .value
            .and_then(|len| u64::try_from(len).ok())
            .filter(|&len| len <= limits.bulk_len_max)
            .ok_or(ProtocolError::InvalidBulkLength)?;
        if len > UNAUTHENTICATED_BULK_LEN_MAX && limits.unauthenticated {
            return Err(ProtocolError::UnauthenticatedBulkLength);
        }
        let end = header.end as u64 + len + 2;
        if end > u32::MAX as u64 {
            // Spans are 32 bits wide: a request ends before 4 GiB.
            return Err(ProtocolError::InvalidBulkLength);
        }
        let end = end as usize;
        if end > input.len() {
            return Ok(Some(end - input.len()));
        }
        spans.push(Span { start: header.end as u32, len: len as u32 });
        cursor.at = end;
        cursor.args_left -= 1;
    }
    Ok(None)
}

/// Returns the argument at `at` if it is complete and its length has at most two digits, as that of
/// nearly all arguments. The bounds of the input are checked only twice: for the header and for the
/// end.
#[inline]
fn tiny_argument(input: &[u8], at: usize) -> Option<Span> {
    let rest = input.get(at..)?;
    let header = tiny_header(rest, 0).filter(|_| rest[0] == b'$')?;
    let len = header.value? as usize;
    let fits = header.end + len + 2 <= rest.len() && at <= SPAN_START_MAX;
    fits.then_some(Span { start: (at + header.end) as u32, len: len as u32 })
}

/// The parsed form of a line such as `$16\r\n`: the number (`None` if it is malformed), and the
/// index of the first byte after the line.
struct Header {
    value: Option<i64>,
    end: usize,
}

/// The maximum index at which [`tiny_argument`] accepts an argument: the end of its span still fits
/// into 32 bits.
const SPAN_START_MAX: usize = u32::MAX as usize - 200;

/// The maximum number of digits that [`short_header`] parses. A number of that length cannot
/// overflow.
const SHORT_DIGITS_MAX: usize = 9;

/// Returns the header at `at` if it is complete and its number has few digits and no leading zero.
/// [`long_header`] handles everything else, valid or not.
#[inline]
fn short_header(input: &[u8], at: usize) -> Option<Header> {
    if let Some(header) = tiny_header(input, at) {
        return Some(header);
    }
    let line = input.get(at + 1..)?;
    let first = line.first()?.wrapping_sub(b'0');
    if first > 9 {
        return None;
    }
    let mut value = first as i64;
    let mut digits = 1;
    loop {
        match line.get(digits)? {
            b'\r' => break,
            byte @ b'0'..=b'9' if digits < SHORT_DIGITS_MAX && value != 0 => {
                value = value * 10 + (byte - b'0') as i64;
                digits += 1;
            }
            _ => return None,
        }
    }
    let end = at + 1 + digits + 2;
    (end <= input.len()).then_some(Header { value: Some(value), end })
}

/// Returns the header at `at` if its number has one or two digits, as most numbers have. The bounds
/// of the input are checked with one comparison.
#[inline]
fn tiny_header(input: &[u8], at: usize) -> Option<Header> {
    let &[_, first, second, third, _] = input.get(at..)?.first_chunk()?;
    let (tens, ones) = (first.wrapping_sub(b'0'), second.wrapping_sub(b'0'));
    if tens > 9 {
        None
    } else if second == b'\r' {
        Some(Header { value: Some(tens.into()), end: at + 4 })
    } else if ones <= 9 && third == b'\r' && tens != 0 {
        Some(Header { value: Some(i64::from(tens) * 10 + i64::from(ones)), end: at + 5 })
    } else {
        None
    }
}

/// The error for a line of a request that is longer than the limit.
struct TooLong;

/// Returns the header at `at`, whatever its form; `None` if its line is incomplete. Returns
/// [`TooLong`] if the line exceeds the limit of inline requests.
#[cold]
fn long_header(input: &[u8], at: usize, limits: &Limits) -> Result<Option<Header>, TooLong> {
    let line = &input[at..];
    let cr = line.iter().position(|&byte| byte == b'\r');
    if cr.unwrap_or(line.len()) > limits.inline_len_max {
        return Err(TooLong);
    }
    Ok(cr.filter(|cr| cr + 2 <= line.len()).map(|cr| Header {
        // The line may be empty, without even a type byte.
        value: line.get(1..cr).and_then(parse_i64),
        end: at + cr + 2,
    }))
}

/// Parses an inline request, which is a line of words, as a person types it.
fn inline(input: &[u8], limits: &Limits, spans: &mut Vec<Span>) -> Result<Parsed, ProtocolError> {
    let newline = input.iter().position(|&byte| byte == b'\n');
    if newline.unwrap_or(input.len()) > limits.inline_len_max.min(u32::MAX as usize) {
        return Err(ProtocolError::TooBigInline);
    }
    let Some(newline) = newline else {
        return Ok(Parsed::Incomplete { missing_bytes: 1 });
    };
    let len_bytes = newline + 1;
    let line = &input[..newline];
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    if line.iter().any(|byte| matches!(byte, b'"' | b'\'')) {
        let args = split_quoted(line).ok_or(ProtocolError::UnbalancedQuotes)?;
        return Ok(Parsed::Inline { len_bytes, args });
    }
    let spans_before = spans.len();
    let mut at = 0;
    while at < line.len() {
        let start = at + line[at..].iter().take_while(|&&byte| is_space(byte)).count();
        at = start + line[start..].iter().take_while(|&&byte| !terminates_word(byte)).count();
        if at > start {
            spans.push(Span { start: start as u32, len: (at - start) as u32 });
        }
    }
    if spans.len() == spans_before {
        return Ok(Parsed::Empty { len_bytes });
    }
    Ok(Parsed::Request { len_bytes })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The parsed content of a client's stream of bytes: the arguments of each request, and the
    /// error that ended the stream, if any.
    type Meaning = (Vec<Vec<Vec<u8>>>, Option<ProtocolError>);

    /// Parses `input` in pieces that end at `cuts`, as it would arrive on a connection.
    fn feed(input: &[u8], cuts: &[usize], limits: &Limits) -> Meaning {
        feed_running(input, cuts, &[], limits)
    }

    /// Parses `input` in pieces as [`feed`] does. After each piece, at most as many complete
    /// requests run as `runs` gives; the others are parsed again with the next piece. After the
    /// last piece, all requests run.
    fn feed_running(input: &[u8], cuts: &[usize], runs: &[usize], limits: &Limits) -> Meaning {
        let mut requests = Vec::new();
        let mut spans = vec![Span { start: 7, len: 7 }];
        let mut progress = Progress::default();
        let mut consumed = 0;
        let runs = runs.iter().chain(std::iter::repeat(&usize::MAX));
        for (&end, &runs) in cuts.iter().chain([&input.len()]).zip(runs) {
            let runs = if end == input.len() { usize::MAX } else { runs };
            let (mut start, mut ran) = (consumed, 0);
            loop {
                let request = &input[start..end];
                let parsed = match parse_request(request, start as u64, limits, &mut progress, &mut spans) {
                    Ok(parsed) => parsed,
                    Err(error) => {
                        assert_eq!(spans.len(), 1, "a refused request leaves no spans");
                        if ran >= runs {
                            break;
                        }
                        return (requests, Some(error));
                    }
                };
                let args: Vec<Vec<u8>> = spans.drain(1..).map(|span| span.of(request).to_vec()).collect();
                let args = match parsed {
                    Parsed::Request { len_bytes } => {
                        assert!(!args.is_empty());
                        start += len_bytes;
                        args
                    }
                    Parsed::Inline { len_bytes, args: unescaped } => {
                        assert!(args.is_empty() && !unescaped.is_empty());
                        start += len_bytes;
                        unescaped
                    }
                    Parsed::Empty { len_bytes } => {
                        assert!(args.is_empty() && len_bytes > 0);
                        start += len_bytes;
                        continue;
                    }
                    Parsed::Incomplete { missing_bytes } => {
                        assert!(args.is_empty() && missing_bytes > 0);
                        break;
                    }
                };
                if ran < runs {
                    requests.push(args);
                    (consumed, ran) = (start, ran + 1);
                }
            }
        }
        (requests, None)
    }

    /// Parses a client's stream of bytes in the simplest way, from its start: line by line and bulk
    /// string by bulk string.
    fn twin(mut rest: &[u8], limits: &Limits) -> Meaning {
        let mut requests = Vec::new();
        loop {
            match twin_request(&mut rest, limits) {
                Ok(Some(args)) if args.is_empty() => {}
                Ok(Some(args)) => requests.push(args),
                Ok(None) => return (requests, None),
                Err(error) => return (requests, Some(error)),
            }
        }
    }

    fn twin_line<'a>(
        rest: &mut &'a [u8],
        end: u8,
        len: usize,
        limits: &Limits,
        too_long: ProtocolError,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        let mut parts = rest.splitn(2, |&byte| byte == end);
        let line = parts.next().unwrap_or_default();
        if line.len() > limits.inline_len_max {
            return Err(too_long);
        }
        let whole = parts.next().is_some() && line.len() + len <= rest.len();
        *rest = if whole { &rest[line.len() + len..] } else { rest };
        Ok(whole.then_some(line))
    }

    fn twin_request(rest: &mut &[u8], limits: &Limits) -> Result<Option<Vec<Vec<u8>>>, ProtocolError> {
        use ProtocolError as E;
        if rest.first() != Some(&b'*') {
            let line = twin_line(rest, b'\n', 1, limits, E::TooBigInline)?;
            return line.map(|line| split_quoted(line).ok_or(E::UnbalancedQuotes)).transpose();
        }
        let number = |line: &[u8]| {
            let text = std::str::from_utf8(&line[1..]).ok()?;
            text.parse().ok().filter(|n: &i64| n.to_string() == text)
        };
        let Some(line) = twin_line(rest, b'\r', 2, limits, E::TooBigMultibulkCount)? else {
            return Ok(None);
        };
        let count =
            number(line).filter(|&n| n <= limits.multibulk_len_max).ok_or(E::InvalidMultibulkLength)?;
        if limits.unauthenticated && count > 10 {
            return Err(E::UnauthenticatedMultibulkLength);
        }
        let mut args = Vec::new();
        for _ in 0..count {
            let Some(line) = twin_line(rest, b'\r', 2, limits, E::TooBigBulkCount)? else {
                return Ok(None);
            };
            match line.first() {
                Some(b'$') => {}
                other => return Err(E::ExpectedDollar(*other.unwrap_or(&b'\r'))),
            }
            let len = number(line)
                .filter(|&n| n >= 0 && n <= limits.bulk_len_max as i64)
                .ok_or(E::InvalidBulkLength)?;
            if limits.unauthenticated && len > 16384 {
                return Err(E::UnauthenticatedBulkLength);
            }
            let Some(bytes) = rest.get(..len as usize + 2) else {
                return Ok(None);
            };
            args.push(bytes[..len as usize].to_vec());
            *rest = &rest[len as usize + 2..];
        }
        Ok(Some(args))
    }

    /// Checks that `input` is parsed as `expected`. A short input is also tested with one cut at
    /// each place and byte by byte.
    fn check(input: &[u8], expected: &[&[&[u8]]], error: Option<ProtocolError>) {
        let limits = Limits::default();
        let requests: Vec<Vec<Vec<u8>>> =
            expected.iter().map(|args| args.iter().map(|arg| arg.to_vec()).collect()).collect();
        let expected = (requests, error);
        let name = input[..input.len().min(80)].escape_ascii();
        assert_eq!(twin(input, &limits), expected, "{name}");
        assert_eq!(feed(input, &[], &limits), expected, "{name}");
        if input.len() < 1000 {
            for cut in 0..input.len() {
                assert_eq!(feed(input, &[cut], &limits), expected, "{name} cut at {cut}");
            }
            let cuts: Vec<usize> = (0..input.len()).collect();
            assert_eq!(feed(input, &cuts, &limits), expected, "{name}");
        }
    }

    const PING: &[&[u8]] = &[b"PING"];

    #[test]
    fn a_multibulk_request_is_its_arguments() {
        check(b"*2\r\n$3\r\nGET\r\n$16\r\n0123456789abcdef\r\n", &[&[b"GET", b"0123456789abcdef"]], None);
        check(b"*1\r\n$0\r\n\r\n", &[&[b""]], None);
        check(b"*1\r\n$2\r\n\r\n\r\n*1\r\n$4\r\nPING\r\n", &[&[b"\r\n"], PING], None);
    }

    #[test]
    fn bytes_behind_a_cr_and_behind_a_bulk_are_not_looked_at() {
        check(b"*1\rx$4\rxPINGzz*1\r\r$4\r\nPING\r\n", &[PING, PING], None);
    }

    #[test]
    fn an_inline_request_is_the_words_of_its_line() {
        check(b"PING\r\nSET  k\tv \n", &[PING, &[b"SET", b"k", b"v"]], None);
        check(b"PING\rx\r\n", &[&[b"PING", b"x"]], None);
        check(b"PING\x0bx \x0b\x0cy\r\r\n", &[&[b"PING\x0bx", b"y"]], None);
        check(b"PING \"a b\"\r\nPING ''\n", &[&[b"PING", b"a b"], &[b"PING", b""]], None);
        check(b"\"\"\r\n", &[&[b""]], None);
        check(b"-1\r\n$4\r\n", &[&[b"-1"], &[b"$4"]], None);
    }

    #[test]
    fn empty_lines_and_empty_arrays_are_skipped() {
        for empty in [&b"\r\n"[..], b"\n", b"  \t \r\n", b"\r", b"*0\r\n", b"*-1\r\n", b"*-2147483648\r\n"] {
            check(&[empty, b"PING\r\n", empty, b"\r\n"].concat(), &[PING], None);
        }
    }

    #[test]
    fn a_count_must_be_a_number_below_the_limit() {
        for count in ["", "a", "01", "+1", " 1", "1 ", "-0", "2147483648", "9223372036854775808", "1\0"] {
            let input = format!("PING\r\n*{count}\r\n$4\r\nPING\r\n");
            check(input.as_bytes(), &[PING], Some(ProtocolError::InvalidMultibulkLength));
        }
        check(b"*2147483647\r\n", &[], None);
    }

    #[test]
    fn a_bulk_length_must_be_a_number_below_the_limit() {
        for len in ["", "a", "04", "+4", "-1", " 4", "4\nxx", "536870913", "9223372036854775808"] {
            let input = format!("*1\r\n${len}\r\nPING\r\n");
            check(input.as_bytes(), &[], Some(ProtocolError::InvalidBulkLength));
        }
        check(b"*1\r\n$536870912\r\nabc", &[], None);
    }

    #[test]
    fn every_argument_starts_with_a_dollar() {
        for (input, byte) in [
            (&b"*1\r\nfoo\r\n"[..], b'f'),
            (b"*1\r\n:4\r\n", b':'),
            (b"*1\r\n\xff\r\n", 0xff),
            (b"*1\r\n1\r\n", b'1'),
        ] {
            check(input, &[], Some(ProtocolError::ExpectedDollar(byte)));
        }
        check(b"*1\r\n\r\n", &[], Some(ProtocolError::ExpectedDollar(b'\r')));
        check(b"*1\r\nfoo", &[], None);
    }

    #[test]
    fn quotes_must_match() {
        for line in ["PING \"a\r\n", "PING 'a\r\n", "PING \"a\"b\r\n", "PING 'a'b\r\n"] {
            check(line.as_bytes(), &[], Some(ProtocolError::UnbalancedQuotes));
        }
    }

    #[test]
    fn lines_end_within_64_kib() {
        let long = "1".repeat(65536);
        let cases = [
            (format!("{long}1"), ProtocolError::TooBigInline),
            (format!("{long}1\r\n"), ProtocolError::TooBigInline),
            (format!("*{long}"), ProtocolError::TooBigMultibulkCount),
            (format!("*1\r\n${long}"), ProtocolError::TooBigBulkCount),
            (format!("*1\r\n1{long}"), ProtocolError::TooBigBulkCount),
        ];
        for (input, error) in cases {
            check(input.as_bytes(), &[], Some(error));
        }
        check(long.as_bytes(), &[], None);
        check(format!("*{}", &long[1..]).as_bytes(), &[], None);
        check(format!("{long}\n").as_bytes(), &[&[long.as_bytes()]], None);
    }

    #[test]
    fn before_authentication_only_small_requests_are_read() {
        let limits = Limits { unauthenticated: true, ..Limits::default() };
        let outcome = |input: &[u8]| {
            assert_eq!(feed(input, &[], &limits), twin(input, &limits));
            feed(input, &[], &limits).1
        };
        assert_eq!(outcome(b"*10\r\n$16384\r\n"), None);
        assert_eq!(outcome(b"*11\r\n"), Some(ProtocolError::UnauthenticatedMultibulkLength));
        assert_eq!(outcome(b"*1\r\n$16385\r\n"), Some(ProtocolError::UnauthenticatedBulkLength));
    }

    #[test]
    fn errors_have_the_words_clients_know() {
        use ProtocolError::*;
        let line = |error: ProtocolError| String::from_utf8_lossy(&error.error_line()).into_owned();
        assert_eq!(line(InvalidMultibulkLength), "ERR Protocol error: invalid multibulk length");
        assert_eq!(line(InvalidBulkLength), "ERR Protocol error: invalid bulk length");
        assert_eq!(line(ExpectedDollar(b'x')), "ERR Protocol error: expected '$', got 'x'");
        assert_eq!(ExpectedDollar(b'x').to_string(), "Protocol error: expected '$', got 'x'");
        assert_eq!(line(TooBigInline), "ERR Protocol error: too big inline request");
        assert_eq!(line(TooBigMultibulkCount), "ERR Protocol error: too big mbulk count string");
        assert_eq!(line(TooBigBulkCount), "ERR Protocol error: too big bulk count string");
        assert_eq!(line(UnbalancedQuotes), "ERR Protocol error: unbalanced quotes in request");
        assert_eq!(
            line(UnauthenticatedMultibulkLength),
            "ERR Protocol error: unauthenticated multibulk length"
        );
        assert_eq!(line(UnauthenticatedBulkLength), "ERR Protocol error: unauthenticated bulk length");
    }

    #[test]
    fn a_request_of_many_arguments_is_parsed_once_over_all_its_pieces() {
        let count = 200_000;
        let mut input = format!("*{count}\r\n").into_bytes();
        for i in 0..count {
            input.extend_from_slice(format!("${}\r\n{i}\r\n", i.to_string().len()).as_bytes());
        }
        // Parsing each of these pieces from the start would visit 10^10 arguments.
        let cuts: Vec<usize> = (0..input.len()).step_by(40).collect();
        let (requests, error) = feed(&input, &cuts, &Limits::default());
        assert_eq!((requests.len(), error), (1, None));
        assert_eq!(requests[0].len(), count);
        assert!(requests[0].iter().enumerate().all(|(i, arg)| arg == i.to_string().as_bytes()));
    }

    #[test]
    fn a_request_parsed_ahead_is_not_continued_from_another_start() {
        let mut input = b"*2\r\n$3\r\nGET\r\n$1\r\nx\r\n".to_vec();
        let first_len = input.len();
        let args: Vec<String> = (0..60).map(|n| format!("v{n:03}")).collect();
        crate::encode_request(&args, &mut input);
        for cut in first_len..input.len() {
            for runs in [0, 1] {
                let limits = Limits::default();
                assert_eq!(feed_running(&input, &[cut], &[runs], &limits), twin(&input, &limits));
            }
        }
    }

    #[test]
    fn the_missing_bytes_of_a_bulk_are_told() {
        let mut spans = Vec::new();
        let parsed =
            parse_request(b"*1\r\n$100\r\nabc", 0, &Limits::default(), &mut Progress::default(), &mut spans);
        assert_eq!(parsed, Ok(Parsed::Incomplete { missing_bytes: 99 }));
        assert_eq!(spans.capacity(), 0, "nothing is allocated for a claim");
    }

    /// Generates clients' streams of bytes that are mostly valid requests, some of them damaged.
    fn streams() -> impl Strategy<Value = Vec<u8>> {
        let arg = prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..20),
            proptest::string::bytes_regex("[a-z]{0,12}").expect("a valid regex"),
        ];
        let request = proptest::collection::vec(arg, 1..50).prop_map(|args| {
            let mut out = Vec::new();
            crate::encode_request(&args, &mut out);
            out
        });
        let odd =
            proptest::string::bytes_regex("[*$0-9ab'\"\\\\x \r\n-]{0,12}(\r\n)?").expect("a valid regex");
        let piece = prop_oneof![
            6 => request,
            1 => Just(b"PING\r\n".to_vec()),
            1 => Just(b"*0\r\n".to_vec()),
            1 => odd,
        ];
        let damage = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..2);
        (proptest::collection::vec(piece, 0..6), damage).prop_map(|(pieces, damage)| {
            let mut stream = pieces.concat();
            for (index, byte) in damage {
                if !stream.is_empty() {
                    let at = index.index(stream.len());
                    stream[at] = byte;
                }
            }
            stream
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn a_stream_means_the_same_however_it_is_cut(
            stream in streams(),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
            unauthenticated in any::<bool>(),
        ) {
            let limits = Limits { unauthenticated, ..Limits::default() };
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let expected = twin(&stream, &limits);
            prop_assert_eq!(feed(&stream, &[], &limits), expected.clone());
            prop_assert_eq!(feed(&stream, &cuts, &limits), expected);
        }

        #[test]
        fn a_stream_means_the_same_wherever_running_stops(
            stream in streams(),
            stops in proptest::collection::vec((any::<prop::sample::Index>(), 0..4_usize), 0..8),
        ) {
            let mut cuts: Vec<usize> = stops.iter().map(|(cut, _)| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let runs: Vec<usize> = stops.iter().map(|(_, runs)| *runs).collect();
            let limits = Limits::default();
            prop_assert_eq!(feed_running(&stream, &cuts, &runs, &limits), twin(&stream, &limits));
        }

        #[test]
        fn random_bytes_never_panic(stream in proptest::collection::vec(any::<u8>(), 0..300)) {
            let limits = Limits { inline_len_max: 100, ..Limits::default() };
            let all: Vec<usize> = (0..stream.len()).collect();
            let whole = feed(&stream, &[], &limits);
            prop_assert_eq!(feed(&stream, &all, &limits), whole);
        }
    }
}
