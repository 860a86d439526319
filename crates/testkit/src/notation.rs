//! Replies as lines of text: the notation of `.resp` scripts.
//!
//! Each value takes one line. An aggregate is its header, with its elements on the lines below,
//! indented by two spaces a level. The indentation is for the reader; only the counts are parsed:
//!
//! ```text
//! +OK           simple string        ,3.5          double
//! -ERR text     error                #t  #f        boolean
//! :12           integer              (123          big number
//! "a\x00b"      bulk string          =txt:"text"   verbatim string
//! _             null                 !"text"       bulk error
//! *-1           null array           *2 %1 ~2 >2   array, map, set, push
//! ?glob         any value whose one-line form matches the glob
//! ```
//!
//! Replies are written once, in their RESP3 form. [`crate::matching`] knows the RESP2 form of each.
//! `*-1` is the null array of RESP2 and the plain null of RESP3.

use std::fmt::Write;

use resp::Value;
use stdx::quoted::split_quoted;

/// A reply as stated in a script: a [`Value`] whose parts may be patterns.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// `?glob`: matched against the one-line form of a value.
    Glob(Vec<u8>),
    /// A value that is not an aggregate, such as a string or a number.
    Scalar(Value),
    /// `*2`: an array with these elements.
    Array(Vec<Expected>),
    /// `%1`: a map with these pairs.
    Map(Vec<(Expected, Expected)>),
    /// `~2`: a set with these members.
    Set(Vec<Expected>),
    /// `>2`: a push with these elements.
    Push(Vec<Expected>),
}

impl Expected {
    /// Returns true if the stated reply contains a pattern (`?glob`).
    pub fn has_glob(&self) -> bool {
        match self {
            Self::Glob(_) => true,
            Self::Scalar(_) => false,
            Self::Array(parts) | Self::Set(parts) | Self::Push(parts) => parts.iter().any(Self::has_glob),
            Self::Map(pairs) => pairs.iter().any(|(key, value)| key.has_glob() || value.has_glob()),
        }
    }
}

/// Parses one reply of a script at the start of `lines`. Returns the value and the number of lines
/// that it takes.
///
/// # Errors
///
/// The number of the wrong line, counted from 0, and a message.
pub fn parse(lines: &[&str]) -> Result<(Expected, usize), (usize, String)> {
    let mut at = 0;
    let expected = parse_value(lines, &mut at)?;
    Ok((expected, at))
}

fn parse_value(lines: &[&str], at: &mut usize) -> Result<Expected, (usize, String)> {
    let here = *at;
    let wrong = |what: &str| (here, what.to_string());
    let Some(line) = lines.get(here) else {
        return Err(wrong("a value is missing here"));
    };
    let line = line.trim_start();
    *at += 1;
    let Some(kind) = line.chars().next() else {
        return Err(wrong("a value is missing here"));
    };
    let rest = &line[kind.len_utf8()..];
    let many = |at: &mut usize, len: usize| -> Result<Vec<Expected>, (usize, String)> {
        (0..len).map(|_| parse_value(lines, at)).collect()
    };
    let count = || rest.trim_end().parse::<usize>().map_err(|_| wrong("an aggregate needs its count"));
    let text = |quoted: &str| unquote(quoted).ok_or_else(|| wrong("not one quoted string"));
    Ok(match kind {
        '?' => Expected::Glob(rest.as_bytes().to_vec()),
        '+' => Expected::Scalar(Value::Simple(unescape(rest))),
        '-' => Expected::Scalar(Value::Error(unescape(rest))),
        ':' => {
            let value = rest.trim_end().parse().map_err(|_| wrong("not an integer"))?;
            Expected::Scalar(Value::Integer(value))
        }
        '"' => Expected::Scalar(Value::Bulk(text(line)?)),
        '!' => Expected::Scalar(Value::BulkError(text(rest)?)),
        '_' => Expected::Scalar(Value::Null),
        '#' => match rest.trim_end() {
            "t" => Expected::Scalar(Value::Boolean(true)),
            "f" => Expected::Scalar(Value::Boolean(false)),
            _ => return Err(wrong("a boolean is #t or #f")),
        },
        ',' => Expected::Scalar(Value::Double(rest.trim_end().as_bytes().to_vec())),
        '(' => Expected::Scalar(Value::BigNumber(rest.trim_end().as_bytes().to_vec())),
        '=' => match rest.as_bytes() {
            [a, b, c, b':', ..] => {
                Expected::Scalar(Value::Verbatim { format: [*a, *b, *c], text: text(&rest[4..])? })
            }
            _ => return Err(wrong("a verbatim string is =txt:\"…\"")),
        },
        '*' if rest.trim_end() == "-1" => Expected::Scalar(Value::NullArray),
        '*' => Expected::Array(many(at, count()?)?),
        '~' => Expected::Set(many(at, count()?)?),
        '>' => Expected::Push(many(at, count()?)?),
        '%' => {
            let pairs = (0..count()?).map(|_| Ok((parse_value(lines, at)?, parse_value(lines, at)?)));
            Expected::Map(pairs.collect::<Result<_, _>>()?)
        }
        _ => return Err(wrong("not a reply")),
    })
}

/// Parses `text`, which must be exactly one quoted string, to its bytes; `None` if it is not.
fn unquote(text: &str) -> Option<Vec<u8>> {
    let mut words = split_quoted(text.trim().as_bytes())?;
    if words.len() == 1 { words.pop() } else { None }
}

/// Reverses [`escape`]: decodes `\xHH` and `\\`.
fn unescape(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let hex = bytes.get(at + 2..at + 4).and_then(|hex| std::str::from_utf8(hex).ok());
        match (bytes[at], bytes.get(at + 1), hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'\\', Some(b'\\'), _) => {
                out.push(b'\\');
                at += 2;
            }
            (b'\\', Some(b'x'), Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, ..) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// Escapes bytes so that they make a text on one line: bytes that do not print become `\xHH`.
fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => out.push_str("\\\\"),
            b' '..=b'~' => out.push(byte as char),
            _ => write!(out, "\\x{byte:02x}").expect("writing to a string cannot fail"),
        }
    }
    out
}

/// Quotes `bytes` in double quotes, in the form that redis-cli accepts.
pub fn quote(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() + 2);
    out.push('"');
    for &byte in bytes {
        match byte {
            b'"' => out.push_str("\\\""),
            b'\n' => out.push_str("\\n"),
            b'\r' => out.push_str("\\r"),
            b'\t' => out.push_str("\\t"),
            _ => out.push_str(&escape(&[byte])),
        }
    }
    out.push('"');
    out
}

/// Formats a command line as a script accepts it: arguments are quoted where necessary.
pub fn command_line<A: AsRef<[u8]>>(args: &[A]) -> String {
    let words = args.iter().map(|arg| {
        let arg = arg.as_ref();
        let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\'' | b'\\' | b'#');
        if !arg.is_empty() && arg.iter().all(plain) {
            String::from_utf8_lossy(arg).into_owned()
        } else {
            quote(arg)
        }
    });
    words.collect::<Vec<_>>().join(" ")
}

/// Returns the reply `value` as lines of a `.resp` script.
pub fn lines(value: &Value) -> Vec<String> {
    let mut out = Vec::new();
    write_lines(value, 0, &mut out);
    out
}

/// Returns the stated reply `expected` as lines of a `.resp` script.
pub fn expected_lines(expected: &Expected) -> Vec<String> {
    let (header, parts): (String, Vec<&Expected>) = match expected {
        Expected::Glob(pattern) => return vec![format!("?{}", escape(pattern))],
        Expected::Scalar(value) => return lines(value),
        Expected::Array(parts) => (format!("*{}", parts.len()), parts.iter().collect()),
        Expected::Set(parts) => (format!("~{}", parts.len()), parts.iter().collect()),
        Expected::Push(parts) => (format!(">{}", parts.len()), parts.iter().collect()),
        Expected::Map(pairs) => {
            (format!("%{}", pairs.len()), pairs.iter().flat_map(|(key, value)| [key, value]).collect())
        }
    };
    let nested = parts.into_iter().flat_map(expected_lines).map(|line| format!("  {line}"));
    std::iter::once(header).chain(nested).collect()
}

/// Returns the reply `value` on one line: its lines in a script without indentation, joined by one
/// space.
pub fn one_line(value: &Value) -> String {
    let lines = lines(value);
    lines.iter().map(|line| line.trim_start()).collect::<Vec<_>>().join(" ")
}

fn write_lines(value: &Value, depth: usize, out: &mut Vec<String>) {
    let mut line = |text: String| out.push(format!("{:indent$}{text}", "", indent = depth * 2));
    let values: Vec<&Value> = match value {
        Value::Simple(text) => return line(format!("+{}", escape(text))),
        Value::Error(text) => return line(format!("-{}", escape(text))),
        Value::Integer(value) => return line(format!(":{value}")),
        Value::Bulk(bytes) => return line(quote(bytes)),
        Value::BulkError(bytes) => return line(format!("!{}", quote(bytes))),
        Value::Null => return line("_".into()),
        Value::NullArray => return line("*-1".into()),
        Value::Boolean(value) => return line(format!("#{}", if *value { 't' } else { 'f' })),
        Value::Double(text) => return line(format!(",{}", escape(text))),
        Value::BigNumber(text) => return line(format!("({}", escape(text))),
        Value::Verbatim { format, text } => return line(format!("={}:{}", escape(format), quote(text))),
        Value::Array(values) => {
            line(format!("*{}", values.len()));
            values.iter().collect()
        }
        Value::Set(values) => {
            line(format!("~{}", values.len()));
            values.iter().collect()
        }
        Value::Push(values) => {
            line(format!(">{}", values.len()));
            values.iter().collect()
        }
        Value::Map(pairs) => {
            line(format!("%{}", pairs.len()));
            pairs.iter().flat_map(|(key, value)| [key, value]).collect()
        }
        // Attributes describe a reply and are not part of it.
        Value::Attributed { value, .. } => return write_lines(value, depth, out),
    };
    for value in values {
        write_lines(value, depth + 1, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &[u8]) -> Value {
        Value::Bulk(text.to_vec())
    }

    /// Asserts that `value` gives these lines of a script, and that the lines parse to a stated
    /// reply that `value` matches.
    fn check(value: Value, expected: &[&str]) {
        let lines = lines(&value);
        assert_eq!(lines, expected);
        let borrowed: Vec<_> = lines.iter().map(String::as_str).collect();
        let (parsed, used) = parse(&borrowed).unwrap();
        assert_eq!(used, lines.len());
        assert!(
            crate::matching::matches(&parsed, &value, resp::Protocol::Resp3, crate::matching::Order::Kept),
            "{parsed:?}"
        );
    }

    #[test]
    fn every_value_is_read_back_as_written() {
        check(Value::Simple(b"OK".to_vec()), &["+OK"]);
        check(Value::Error(b"ERR a\\b \xff".to_vec()), &["-ERR a\\\\b \\xff"]);
        check(bulk(b"a \"b\"\r\n\x00\xff"), &["\"a \\\"b\\\"\\r\\n\\x00\\xff\""]);
        check(bulk(b""), &["\"\""]);
        check(Value::Null, &["_"]);
        check(Value::Boolean(true), &["#t"]);
        check(Value::Double(b"-inf".to_vec()), &[",-inf"]);
        check(Value::BigNumber(b"12345678901234567890".to_vec()), &["(12345678901234567890"]);
        check(Value::Verbatim { format: *b"txt", text: b"hi\n".to_vec() }, &["=txt:\"hi\\n\""]);
        check(
            Value::Array(vec![
                Value::Map(vec![(bulk(b"k"), Value::Set(vec![Value::Integer(-1)]))]),
                Value::Array(vec![]),
            ]),
            &["*2", "  %1", "    \"k\"", "    ~1", "      :-1", "  *0"],
        );
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(parse(&["*2", ":1", "x"]).unwrap_err().0, 2);
        assert_eq!(parse(&["*2", ":1"]).unwrap_err().0, 2);
        assert_eq!(parse(&["*x"]).unwrap_err().0, 0);
        assert_eq!(parse(&["\"open"]).unwrap_err().0, 0);
    }

    #[test]
    fn command_lines_split_into_what_they_were() {
        let args: [&[u8]; 6] = [b"SET", b"", b"a b", b"#x", b"\xff'\"\\", b"plain-1.5"];
        let line = command_line(&args);
        assert_eq!(split_quoted(line.as_bytes()).unwrap(), args);
        assert_eq!(one_line(&Value::Array(vec![bulk(b"a"), Value::Null])), "*2 \"a\" _");
    }
}
