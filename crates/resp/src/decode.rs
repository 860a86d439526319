//! The reply decoder, for tools that talk to a server: tests, benchmarks, comparisons.
//!
//! [`decode`] takes the bytes received so far and returns one reply, or `None` while the reply is
//! incomplete. It starts at the first byte each time. That is simple, and fast enough for tools:
//! they get small replies, or get them whole. Memory is bounded by the bytes received, even if a
//! header announces more. Nesting is bounded by [`DEPTH_MAX`]. The decoder supports every type of
//! RESP2 and RESP3 except streamed types, which no server sends.
//!
//! [`encode_request`] encodes a request as clients send it.

use std::fmt::{self, Write};

use stdx::number::parse_i64;

/// The maximum nesting of aggregates. Redis' own replies nest about 7 deep.
pub const DEPTH_MAX: usize = 128;

/// A decoded reply, or an element of an aggregate. In the examples a blank stands for CR LF.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A simple string: `+OK`.
    Simple(Vec<u8>),
    /// An error line, stored without its `-`: `-ERR`.
    Error(Vec<u8>),
    /// An integer: `:1`.
    Integer(i64),
    /// A bulk string: `$3 abc`.
    Bulk(Vec<u8>),
    /// An error that may hold any bytes: `!3 ERR`.
    BulkError(Vec<u8>),
    /// The null of RESP3, `_`, or the null bulk string of RESP2, `$-1`.
    Null,
    /// The null array of RESP2: `*-1`.
    NullArray,
    /// A boolean: `#t` or `#f`.
    Boolean(bool),
    /// A double, stored as its text: `,3.14`. So different texts of the same number are different
    /// replies.
    Double(Vec<u8>),
    /// An integer beyond 64 bits, stored as its digits: `(123`.
    BigNumber(Vec<u8>),
    /// A text for people, with its format: `=7 txt:abc`.
    Verbatim {
        /// The format of the text, `txt` or `mkd`.
        format: [u8; 3],
        /// The text without its format.
        text: Vec<u8>,
    },
    /// An array: `*2 :1 :2`.
    Array(Vec<Value>),
    /// A map, its pairs in the order sent: `%1 +key :1`.
    Map(Vec<(Value, Value)>),
    /// A set, its members in the order sent: `~2 :1 :2`.
    Set(Vec<Value>),
    /// An out-of-band message: `>2 +a +b`.
    Push(Vec<Value>),
    /// Attributes and the reply that they describe: `|1 +name :1 +OK`.
    Attributed {
        /// The attributes: pairs of a name and a value.
        attributes: Vec<(Value, Value)>,
        /// The reply that the attributes describe.
        value: Box<Value>,
    },
}

/// The error for received bytes that are not a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The offset in the input at which decoding stopped, in bytes.
    pub offset: usize,
    /// The reason why the bytes are not a reply.
    pub kind: DecodeErrorKind,
}

/// The reasons why received bytes are not a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeErrorKind {
    /// A byte that is not the type byte of any reply.
    UnknownType(u8),
    /// A length or an integer that is malformed, or a negative length.
    InvalidNumber,
    /// A boolean that is neither `t` nor `f`, a null with content, or a verbatim text without
    /// format.
    InvalidContent,
    /// Other bytes in the place of the CR LF that must end a line or a bulk string.
    MissingLineEnd,
    /// A reply nested deeper than [`DEPTH_MAX`].
    TooDeep,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not a reply at byte {}: ", self.offset)?;
        match self.kind {
            DecodeErrorKind::UnknownType(byte) => write!(f, "no type starts with '{}'", byte.escape_ascii()),
            DecodeErrorKind::InvalidNumber => f.write_str("not a number"),
            DecodeErrorKind::InvalidContent => f.write_str("content does not fit the type"),
            DecodeErrorKind::MissingLineEnd => f.write_str("CR LF expected"),
            DecodeErrorKind::TooDeep => f.write_str("nested too deep"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Decodes the RESP reply at the start of `input`. Returns the reply and its length in bytes, or
/// `None` if the reply is incomplete. O(bytes of the reply).
///
/// Returns an error if the bytes cannot be the start of a reply.
pub fn decode(input: &[u8]) -> Result<Option<(Value, usize)>, DecodeError> {
    let mut reader = Reader { input, at: 0 };
    match reader.value(0) {
        Ok(value) => Ok(Some((value, reader.at))),
        Err(Stop::Incomplete) => Ok(None),
        Err(Stop::Wrong(error)) => Err(error),
    }
}

/// Appends a request to `out` as clients send it: an array of bulk strings.
pub fn encode_request<A: AsRef<[u8]>>(args: &[A], out: &mut Vec<u8>) {
    let mut digits = itoa::Buffer::new();
    out.push(b'*');
    out.extend_from_slice(digits.format(args.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    for arg in args {
        let arg = arg.as_ref();
        out.push(b'$');
        out.extend_from_slice(digits.format(arg.len()).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(arg);
        out.extend_from_slice(b"\r\n");
    }
}

/// The reason why decoding stops before the end of a value: the input is incomplete or wrong.
enum Stop {
    Incomplete,
    Wrong(DecodeError),
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn wrong<T>(&self, kind: DecodeErrorKind) -> Result<T, Stop> {
        Err(Stop::Wrong(DecodeError { offset: self.at, kind }))
    }

    /// Takes the bytes of the next line of the input, without its CR LF.
    fn line(&mut self) -> Result<&'a [u8], Stop> {
        let rest = &self.input[self.at..];
        let len = rest.windows(2).position(|pair| pair == b"\r\n").ok_or(Stop::Incomplete)?;
        self.at += len + 2;
        Ok(&rest[..len])
    }

    fn number(&mut self) -> Result<i64, Stop> {
        let start = self.at;
        let line = self.line()?;
        parse_i64(line).map_or_else(
            || {
                self.at = start;
                self.wrong(DecodeErrorKind::InvalidNumber)
            },
            Ok,
        )
    }

    /// Takes the length of an aggregate or a bulk string from the input. Returns `None` for -1, the
    /// length of RESP2's nulls.
    fn len(&mut self) -> Result<Option<usize>, Stop> {
        let start = self.at;
        match self.number()? {
            -1 => Ok(None),
            len if len < 0 => {
                self.at = start;
                self.wrong(DecodeErrorKind::InvalidNumber)
            }
            len => Ok(Some(len as usize)),
        }
    }

    /// Takes a length that must not be -1 (null) from the input.
    fn some_len(&mut self) -> Result<usize, Stop> {
        match self.len()? {
            Some(len) => Ok(len),
            None => self.wrong(DecodeErrorKind::InvalidNumber),
        }
    }

    /// Takes `len` bytes of a bulk string and the CR LF after them from the input. Returns the
    /// bytes without the CR LF.
    fn bytes(&mut self, len: usize) -> Result<&'a [u8], Stop> {
        let rest = &self.input[self.at..];
        let end = len.checked_add(2).filter(|&end| end <= rest.len()).ok_or(Stop::Incomplete)?;
        self.at += len;
        if &rest[len..end] != b"\r\n" {
            return self.wrong(DecodeErrorKind::MissingLineEnd);
        }
        self.at += 2;
        Ok(&rest[..len])
    }

    fn values(&mut self, len: usize, depth: usize) -> Result<Vec<Value>, Stop> {
        // The vector grows with the values received, not with the length that the header announces.
        let mut values = Vec::new();
        for _ in 0..len {
            values.push(self.value(depth + 1)?);
        }
        Ok(values)
    }

    fn pairs(&mut self, depth: usize) -> Result<Vec<(Value, Value)>, Stop> {
        let mut pairs = Vec::new();
        for _ in 0..self.some_len()? {
            pairs.push((self.value(depth + 1)?, self.value(depth + 1)?));
        }
        Ok(pairs)
    }

    fn value(&mut self, depth: usize) -> Result<Value, Stop> {
        if depth > DEPTH_MAX {
            return self.wrong(DecodeErrorKind::TooDeep);
        }
        let Some(&kind) = self.input.get(self.at) else {
            return Err(Stop::Incomplete);
        };
        self.at += 1;
        Ok(match kind {
            b'+' => Value::Simple(self.line()?.to_vec()),
            b'-' => Value::Error(self.line()?.to_vec()),
            b':' => Value::Integer(self.number()?),
            b'$' => match self.len()? {
                Some(len) => Value::Bulk(self.bytes(len)?.to_vec()),
                None => Value::Null,
            },
            b'!' => {
                let len = self.some_len()?;
                Value::BulkError(self.bytes(len)?.to_vec())
            }
            b'=' => self.verbatim()?,
            b'_' | b'#' => match (kind, self.line()?) {
                (b'_', b"") => Value::Null,
                (b'#', b"t") => Value::Boolean(true),
                (b'#', b"f") => Value::Boolean(false),
                _ => return self.wrong(DecodeErrorKind::InvalidContent),
            },
            b',' => Value::Double(self.line()?.to_vec()),
            b'(' => Value::BigNumber(self.line()?.to_vec()),
            b'*' => match self.len()? {
                Some(len) => Value::Array(self.values(len, depth)?),
                None => Value::NullArray,
            },
            b'~' => {
                let len = self.some_len()?;
                Value::Set(self.values(len, depth)?)
            }
            b'>' => {
                let len = self.some_len()?;
                Value::Push(self.values(len, depth)?)
            }
            b'%' => Value::Map(self.pairs(depth)?),
            b'|' => {
                Value::Attributed { attributes: self.pairs(depth)?, value: Box::new(self.value(depth + 1)?) }
            }
            _ => {
                self.at -= 1;
                return self.wrong(DecodeErrorKind::UnknownType(kind));
            }
        })
    }

    fn verbatim(&mut self) -> Result<Value, Stop> {
        let len = self.some_len()?;
        match self.bytes(len)? {
            [a, b, c, b':', text @ ..] => Ok(Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() }),
            _ => self.wrong(DecodeErrorKind::InvalidContent),
        }
    }
}

/// Formats the reply as redis-cli does: one numbered line per element, nested elements indented.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.print(f, 0)
    }
}

impl Value {
    /// Returns the bytes of a simple, bulk or verbatim string, an error, a double or a big number;
    /// `None` for other types.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes)
            | Value::Error(bytes)
            | Value::Bulk(bytes)
            | Value::BulkError(bytes)
            | Value::Double(bytes)
            | Value::BigNumber(bytes)
            | Value::Verbatim { text: bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Returns true if the value is an error: an error line, or an error that may hold any bytes.
    pub fn is_error(&self) -> bool {
        matches!(self, Value::Error(_) | Value::BulkError(_))
    }

    /// Formats the value as redis-cli does, with `indent` blanks before every line except the
    /// first.
    fn print(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        match self {
            Value::Simple(text) => write!(f, "{}", text.escape_ascii()),
            Value::Error(text) | Value::BulkError(text) => write!(f, "(error) {}", text.escape_ascii()),
            Value::Integer(value) => write!(f, "(integer) {value}"),
            Value::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Value::Null => f.write_str("(nil)"),
            Value::NullArray => f.write_str("(nil array)"),
            Value::Boolean(value) => write!(f, "({value})"),
            Value::Double(text) => write!(f, "(double) {}", text.escape_ascii()),
            Value::BigNumber(text) => write!(f, "(big number) {}", text.escape_ascii()),
            Value::Verbatim { format, text } => {
                write!(f, "({}) \"{}\"", format.escape_ascii(), text.escape_ascii())
            }
            Value::Array(values) => print_list(f, indent, ")", "(empty array)", values),
            Value::Set(values) => print_list(f, indent, "~", "(empty set)", values),
            Value::Push(values) => print_list(f, indent, ">", "(empty push)", values),
            Value::Map(pairs) => print_pairs(f, indent, "#", "(empty hash)", pairs),
            Value::Attributed { attributes, value } => {
                print_pairs(f, indent, "|", "(no attributes)", attributes)?;
                write!(f, "\n{:indent$}", "")?;
                value.print(f, indent)
            }
        }
    }
}

/// Formats the label of an aggregate's element: its number, counted from 1, and `sign`. The labels
/// of all `len` elements have the same width.
fn label(index: usize, len: usize, sign: &str) -> String {
    let width = len.to_string().len();
    let mut label = String::new();
    write!(label, "{:>width$}{sign} ", index + 1).expect("writing to a string cannot fail");
    label
}

fn print_list(
    f: &mut fmt::Formatter<'_>,
    indent: usize,
    sign: &str,
    empty: &str,
    values: &[Value],
) -> fmt::Result {
    if values.is_empty() {
        return f.write_str(empty);
    }
    for (index, value) in values.iter().enumerate() {
        if index > 0 {
            write!(f, "\n{:indent$}", "")?;
        }
        let label = label(index, values.len(), sign);
        f.write_str(&label)?;
        value.print(f, indent + label.len())?;
    }
    Ok(())
}

fn print_pairs(
    f: &mut fmt::Formatter<'_>,
    indent: usize,
    sign: &str,
    empty: &str,
    pairs: &[(Value, Value)],
) -> fmt::Result {
    if pairs.is_empty() {
        return f.write_str(empty);
    }
    for (index, (key, value)) in pairs.iter().enumerate() {
        if index > 0 {
            write!(f, "\n{:indent$}", "")?;
        }
        let label = label(index, pairs.len(), sign);
        let inner = indent + label.len();
        f.write_str(&label)?;
        key.print(f, inner)?;
        f.write_str(" => ")?;
        // A nested aggregate starts on a new line; otherwise its elements would not be aligned.
        if matches!(value, Value::Array(v) | Value::Set(v) | Value::Push(v) if !v.is_empty())
            || matches!(value, Value::Map(v) if !v.is_empty())
        {
            write!(f, "\n{:inner$}", "")?;
        }
        value.print(f, inner)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Value {
        Value::Bulk(text.as_bytes().to_vec())
    }

    /// Checks that `encoded` decodes to `expected` and that every shorter prefix is incomplete. In
    /// `encoded`, `|` stands for CR LF and `¦` for `|`.
    fn check(encoded: &str, expected: Value) {
        let input = encoded.replace('|', "\r\n").replace('¦', "|").into_bytes();
        assert_eq!(decode(&input), Ok(Some((expected, input.len()))), "{encoded}");
        for len in 0..input.len() {
            assert_eq!(decode(&input[..len]), Ok(None), "{encoded} cut at {len}");
        }
    }

    #[test]
    fn every_type_is_read_whole_or_not_at_all() {
        check("+OK|", Value::Simple(b"OK".to_vec()));
        check("-ERR no|", Value::Error(b"ERR no".to_vec()));
        check(":-12|", Value::Integer(-12));
        check("$0||", bulk(""));
        check("$-1|", Value::Null);
        check("*-1|", Value::NullArray);
        check("_|", Value::Null);
        check("#t|", Value::Boolean(true));
        check("#f|", Value::Boolean(false));
        check(",1e+20|", Value::Double(b"1e+20".to_vec()));
        check("(12345678901234567890|", Value::BigNumber(b"12345678901234567890".to_vec()));
        check("!3|ERR|", Value::BulkError(b"ERR".to_vec()));
        check("=6|txt:hi|", Value::Verbatim { format: *b"txt", text: b"hi".to_vec() });
        check("*2|:1|*0|", Value::Array(vec![Value::Integer(1), Value::Array(vec![])]));
        check("~1|$1|a|", Value::Set(vec![bulk("a")]));
        check(">1|$1|a|", Value::Push(vec![bulk("a")]));
        check("%1|$1|a|:1|", Value::Map(vec![(bulk("a"), Value::Integer(1))]));
        let attributes = vec![(bulk("ttl"), Value::Integer(9))];
        check(
            "¦1|$3|ttl|:9|+OK|",
            Value::Attributed { attributes, value: Box::new(Value::Simple(b"OK".to_vec())) },
        );
    }

    #[test]
    fn what_is_no_reply_is_refused_where_it_goes_wrong() {
        let cases = [
            (&b"?"[..], 0, DecodeErrorKind::UnknownType(b'?')),
            (b":x\r\n", 1, DecodeErrorKind::InvalidNumber),
            (b"$-2\r\n", 1, DecodeErrorKind::InvalidNumber),
            (b"$1\r\nabc", 5, DecodeErrorKind::MissingLineEnd),
            (b"#x\r\n", 4, DecodeErrorKind::InvalidContent),
            (b"*2\r\n:1\r\n?", 8, DecodeErrorKind::UnknownType(b'?')),
        ];
        for (input, offset, kind) in cases {
            assert_eq!(decode(input), Err(DecodeError { offset, kind }));
        }
    }

    #[test]
    fn claims_and_depth_cost_no_memory() {
        assert_eq!(decode(b"*9223372036854775807\r\n"), Ok(None));
        assert_eq!(decode(b"$9223372036854775807\r\nabc"), Ok(None));
        assert!(matches!(
            decode(&b"*1\r\n".repeat(100_000)),
            Err(DecodeError { kind: DecodeErrorKind::TooDeep, .. })
        ));
    }

    #[test]
    fn values_print_one_line_per_element() {
        let value = Value::Array(vec![
            bulk("a\n"),
            Value::Array(vec![Value::Integer(1), Value::Null]),
            Value::Map(vec![(bulk("k"), Value::Set(vec![bulk("v")])), (bulk("l"), Value::Boolean(true))]),
            Value::Array(vec![]),
        ]);
        let expected = "1) \"a\\n\"\n\
                        2) 1) (integer) 1\n\
                        \x20  2) (nil)\n\
                        3) 1# \"k\" => \n\
                        \x20     1~ \"v\"\n\
                        \x20  2# \"l\" => (true)\n\
                        4) (empty array)";
        assert_eq!(value.to_string(), expected);
    }

    #[test]
    fn a_request_is_an_array_of_bulk_strings() {
        let mut out = Vec::new();
        encode_request(&[&b"GET"[..], b"0123456789"], &mut out);
        assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$10\r\n0123456789\r\n");
    }
}
