//! The attributes of an element of a vector set, as filter expressions read them: the top-level
//! fields of a JSON object.
//!
//! The text is scanned once per field, from its start to the field, and nothing is allocated. The
//! rest of the text is not checked, as in Redis. The scan is lenient in the same places as Redis':
//! it counts brackets of objects and arrays that it skips, and it accepts numbers such as `01`.
//! Compared with Redis 8.0.2.
//!
//! A field without a value for expressions counts as missing: an object, an array that contains an
//! object, or a damaged value.

/// A value in a filter expression, borrowed from the expression or from the attributes of an
/// element.
#[derive(Clone, Copy, Debug)]
pub enum Value<'a> {
    /// A number in a filter expression. Booleans are 1 and 0.
    Number(f64),
    /// A string in a filter expression.
    Text(Text<'a>),
    /// An array of the attributes: the JSON text between its brackets, which is valid.
    Array(&'a [u8]),
    /// A list that the filter expression contains.
    List(&'a [Literal]),
    /// The value null of JSON.
    Null,
}

/// An element of a list in a filter expression.
#[derive(Debug)]
pub enum Literal {
    /// An element of a list that is a number.
    Number(f64),
    /// An element of a list that is a string.
    Text(Box<[u8]>),
}

/// A string in a filter expression or in the attributes of an element.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    /// The bytes of the string between its quotes.
    raw: &'a [u8],
    /// True if backslashes in `raw` begin escape sequences. A string of an expression has none.
    escaped: bool,
}

impl<'a> Text<'a> {
    /// Creates the text of a string without escape sequences.
    pub fn plain(raw: &'a [u8]) -> Self {
        Self { raw, escaped: false }
    }

    /// Returns true if the text has no bytes. O(1).
    pub fn is_empty(self) -> bool {
        self.raw.is_empty()
    }

    /// Returns the bytes of the text. `\n`, `\r` and `\t` are control characters. Any other escaped
    /// byte is itself, so `\u0041` is the text `u0041`, as in Redis.
    fn bytes(self) -> impl Iterator<Item = u8> {
        let mut raw = self.raw.iter().copied();
        std::iter::from_fn(move || match raw.next()? {
            b'\\' if self.escaped => Some(match raw.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b't' => b'\t',
                byte => byte,
            }),
            byte => Some(byte),
        })
    }

    /// Returns true if both texts have the same bytes. O(bytes).
    pub fn equals(self, other: Self) -> bool {
        if !self.escaped && !other.escaped { self.raw == other.raw } else { self.bytes().eq(other.bytes()) }
    }

    /// Returns the number that the text is, or 0 if the text is not exactly one number. Blanks may
    /// precede the number. O(bytes).
    pub fn number(self) -> f64 {
        let from = self.raw.iter().position(|&byte| !is_space(byte)).unwrap_or(self.raw.len());
        let trimmed = &self.raw[from..];
        if !self.escaped {
            return number_of(trimmed).unwrap_or(0.0);
        }
        let mut buffer = [0; NUMBER_LEN_MAX];
        let mut len = 0;
        for byte in self.bytes().skip_while(|&byte| is_space(byte)) {
            let Some(place) = buffer.get_mut(len) else { return 0.0 };
            *place = byte;
            len += 1;
        }
        number_of(&buffer[..len]).unwrap_or(0.0)
    }
}

/// The length in bytes up to which a string with escape sequences can be a number.
const NUMBER_LEN_MAX: usize = 128;

/// Parses a number in the notation of C's `strtod`: decimal or hexadecimal digits, `inf` or `nan`.
/// Numbers out of range are infinite or 0.
pub fn number_of(text: &[u8]) -> Option<f64> {
    let decimal = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    decimal.or_else(|| stdx::number::parse_f64(text))
}

impl<'a> Value<'a> {
    /// Returns the value of the field `name`; `None` if it is missing. O(attribute bytes).
    pub fn of_field(attributes: &'a [u8], name: &[u8]) -> Option<Self> {
        let mut scan = Scan { bytes: attributes, at: 0 };
        scan.skip_space();
        scan.take(b'{')?;
        loop {
            scan.skip_space();
            let key = scan.string()?;
            scan.skip_space();
            scan.take(b':')?;
            scan.skip_space();
            if key.raw == name {
                return scan.value();
            }
            scan.skip_value()?;
            scan.skip_space();
            scan.take(b',')?;
        }
    }

    /// Returns the value as a number: a string that is a number as this number, any other value as
    /// 0.
    pub fn number(self) -> f64 {
        match self {
            Value::Number(number) => number,
            Value::Text(text) => text.number(),
            Value::Array(_) | Value::List(_) | Value::Null => 0.0,
        }
    }

    /// Returns true if the value counts as true in a filter expression: a number other than 0, a
    /// string with bytes, or any array.
    pub fn is_true(self) -> bool {
        match self {
            Value::Number(number) => number != 0.0,
            Value::Text(text) => !text.is_empty(),
            Value::Array(_) | Value::List(_) => true,
            Value::Null => false,
        }
    }

    /// Returns true if the values are equal: as strings if both are strings, else as numbers. Null
    /// equals null only.
    pub fn equals(self, other: Self) -> bool {
        match (self, other) {
            (Value::Text(a), Value::Text(b)) => a.equals(b),
            (Value::Null, Value::Null) => true,
            (Value::Null, _) | (_, Value::Null) => false,
            _ => self.number() == other.number(),
        }
    }

    /// Returns true if the value equals an element of `list`, which is a list or an array. A `list`
    /// of another type has no elements.
    pub fn is_in(self, list: Value<'_>) -> bool {
        match list {
            Value::List(literals) => literals.iter().any(|literal| self.equals(literal.into())),
            Value::Array(elements) => {
                Elements { scan: Scan { bytes: elements, at: 0 } }.any(|element| self.equals(element))
            }
            Value::Number(_) | Value::Text(_) | Value::Null => false,
        }
    }
}

impl<'a> From<&'a Literal> for Value<'a> {
    fn from(literal: &'a Literal) -> Self {
        match literal {
            Literal::Number(number) => Value::Number(*number),
            Literal::Text(raw) => Value::Text(Text::plain(raw)),
        }
    }
}

/// Returns true for the blanks of C's `isspace`.
pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

/// An iterator over the elements of a valid JSON array, whose text between the brackets it reads.
struct Elements<'a> {
    scan: Scan<'a>,
}

impl<'a> Iterator for Elements<'a> {
    type Item = Value<'a>;

    fn next(&mut self) -> Option<Value<'a>> {
        self.scan.skip_space();
        let element = self.scan.value()?;
        self.scan.skip_space();
        let _ = self.scan.take(b',');
        Some(element)
    }
}

/// A position in the JSON text of an element's attributes.
struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Scan<'a> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_space(&mut self) {
        self.run(is_space);
    }

    /// Skips `byte` at the present position of the JSON text; `None` if another byte is next.
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    /// Returns the next bytes of the JSON text that are of a kind, and skips them.
    fn run(&mut self, is_of_kind: impl Fn(u8) -> bool) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        let len = rest.iter().position(|&byte| !is_of_kind(byte)).unwrap_or(rest.len());
        self.at += len;
        &rest[..len]
    }

    /// Parses the JSON value that begins at the present position and skips it; `None` for an object
    /// or a damaged value.
    fn value(&mut self) -> Option<Value<'a>> {
        if self.peek()? == b'[' { self.array() } else { self.scalar() }
    }

    /// Parses the JSON string, number, boolean or null that begins at the present position.
    fn scalar(&mut self) -> Option<Value<'a>> {
        match self.peek()? {
            b'"' => self.string().map(Value::Text),
            b'0'..=b'9' | b'+' | b'-' => number_of(self.run(is_of_number)).map(Value::Number),
            b't' => self.word(b"true").map(|()| Value::Number(1.0)),
            b'f' => self.word(b"false").map(|()| Value::Number(0.0)),
            b'n' => self.word(b"null").map(|()| Value::Null),
            _ => None,
        }
    }

    fn string(&mut self) -> Option<Text<'a>> {
        self.take(b'"')?;
        let start = self.at;
        let mut escaped = false;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.at += 2;
                }
                _ => self.at += 1,
            }
        }
        let raw = &self.bytes[start..self.at];
        self.at += 1;
        Some(Text { raw, escaped })
    }

    /// Skips `word` if it is next in the JSON text and ends there; else returns `None`.
    fn word(&mut self, word: &[u8]) -> Option<()> {
        let rest = self.bytes[self.at..].strip_prefix(word)?;
        let ends = rest.first().is_none_or(|&byte| is_space(byte) || matches!(byte, b',' | b'}' | b']'));
        ends.then(|| self.at += word.len())
    }

    /// Parses the JSON array that begins at the present position. Nested arrays need no recursion,
    /// because only their validity and their end are of interest.
    fn array(&mut self) -> Option<Value<'a>> {
        self.take(b'[')?;
        let (start, mut depth, mut is_at_start) = (self.at, 1_usize, true);
        loop {
            self.skip_space();
            match self.peek()? {
                b'[' => {
                    self.at += 1;
                    depth += 1;
                    is_at_start = true;
                    continue;
                }
                b']' if is_at_start => {}
                _ => {
                    self.scalar()?;
                }
            }
            is_at_start = false;
            self.skip_space();
            while self.peek()? == b']' {
                self.at += 1;
                depth -= 1;
                if depth == 0 {
                    return Some(Value::Array(&self.bytes[start..self.at - 1]));
                }
                self.skip_space();
            }
            self.take(b',')?;
        }
    }

    /// Skips the JSON value that begins at the present position. It may be damaged inside.
    fn skip_value(&mut self) -> Option<()> {
        match self.peek()? {
            b'"' => self.string().map(|_| ()),
            b'{' => self.skip_nested(b'{', b'}'),
            b'[' => self.skip_nested(b'[', b']'),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => (!self.run(is_of_number).is_empty()).then_some(()),
        }
    }

    /// Skips to the end of the JSON object or array that begins at the present position. Only its
    /// own kind of brackets is counted.
    fn skip_nested(&mut self, open: u8, close: u8) -> Option<()> {
        let mut depth = 0_usize;
        loop {
            let byte = self.peek()?;
            if byte == b'"' {
                self.string()?;
                continue;
            }
            self.at += 1;
            if byte == open {
                depth += 1;
            } else if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Some(());
                }
            }
        }
    }
}

fn is_of_number(byte: u8) -> bool {
    matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.' | b'e' | b'E')
}
