//! `cjson`: values as JSON (RFC 8259), as lua-cjson 2.1.0 reads and writes them. Settings stay in
//! effect for later scripts, as in Redis.

use stdx::number::parse_f64;

use crate::json_settings::{Invalid, Settings};
use crate::lua::{Function, Raise, Returns, Stack, Type};
use crate::numbers::format_g;

/// The functions of the Lua table `cjson`, by name.
pub(crate) const FUNCTIONS: [(&[u8], Function); 9] = [
    (b"encode", encode),
    (b"decode", decode),
    (b"encode_sparse_array", encode_sparse_array),
    (b"encode_max_depth", encode_max_depth),
    (b"decode_max_depth", decode_max_depth),
    (b"encode_number_precision", encode_number_precision),
    (b"encode_keep_buffer", encode_keep_buffer),
    (b"encode_invalid_numbers", encode_invalid_numbers),
    (b"decode_invalid_numbers", decode_invalid_numbers),
];

/// The fields of `cjson` that describe the library: its name and version.
pub(crate) const TEXTS: [(&[u8], &[u8]); 2] = [(b"_NAME", b"cjson"), (b"_VERSION", b"2.1.0")];

/// The maximum nesting depth that fits the thread's stack. It applies even if scripts set a higher
/// limit.
const DEPTH_MAX: i32 = 1500;
/// The number of encoded or decoded JSON values after which the server is asked again if the script
/// may continue.
const VALUES_PER_INTERRUPT: usize = 10_000;
/// The capacity above which a buffer for JSON is freed after use, in bytes.
const KEPT_BYTES_MAX: usize = 64 * 1024;

/// Handles `cjson.new`: returns a copy of the table in the first upvalue, with settings of its own.
pub(crate) fn new(stack: &mut Stack) -> Returns {
    stack.push_upvalue(1);
    let contents = stack.top();
    stack.push_table(0, 16);
    stack.push_nil();
    while stack.next(contents) {
        stack.push_value(-2);
        stack.insert(-2);
        stack.raw_set(-4);
    }
    // A table whose only element is the settings. All functions of the copy have it as their
    // upvalue.
    stack.push_table(1, 0);
    stack.push(&Settings::default().to_bytes());
    stack.raw_set_at(-2, 1);
    for (name, function) in FUNCTIONS {
        stack.push_value(-1);
        stack.push_function(function, 1);
        stack.raw_set_field(-3, name);
    }
    stack.pop(1);
    Ok(1)
}

// Settings.

/// Returns the `cjson` settings that the running function uses. A copy has its settings in its
/// upvalue; `cjson` itself has its settings in the context.
fn settings(stack: &mut Stack) -> Settings {
    if !stack.has_upvalue(1) {
        return stack.context().json.get();
    }
    stack.push_upvalue(1);
    stack.raw_get_at(-1, 1);
    let settings = stack.bytes(-1).and_then(Settings::from_bytes).unwrap_or_default();
    stack.pop(2);
    settings
}

/// Stores the `cjson` settings that the running function uses.
fn set(stack: &mut Stack, settings: Settings) {
    if !stack.has_upvalue(1) {
        return stack.context().json.set(settings);
    }
    stack.push_upvalue(1);
    stack.push(&settings.to_bytes());
    stack.raw_set_at(-2, 1);
    stack.pop(1);
}

/// Checks that the function of `cjson` has at most `arguments` arguments, and pushes nil for
/// missing arguments.
fn begin(stack: &mut Stack, arguments: i32) -> Result<(), Raise> {
    if stack.top() > arguments {
        return Err(stack.raise_argument(arguments + 1, "found too many arguments"));
    }
    stack.set_top(arguments);
    Ok(())
}

/// Reads and pushes an integer setting of `cjson`: the argument, or `old` if the argument is nil.
/// Raises an error if it is not from `min` to `max`.
fn integer(stack: &Stack, argument: i32, old: i32, min: i32, max: i32) -> Result<i32, Raise> {
    let mut value = old;
    if stack.kind(argument) != Type::Nil {
        let given = stack.check_integer(argument)? as i32;
        if !(min..=max).contains(&given) {
            let text = format!("expected integer between {min} and {max}");
            return Err(stack.raise_argument(1, &text));
        }
        value = given;
    }
    stack.push_number(f64::from(value));
    Ok(value)
}

/// Reads the setting of `cjson` in `argument`, and pushes it. `options` lists the possible values;
/// the first two stand for false and true. Without an argument the setting stays `old`. Returns the
/// index of the value.
fn option(stack: &Stack, argument: i32, old: usize, options: &[&str]) -> Result<usize, Raise> {
    let mut value = old;
    match stack.kind(argument) {
        Type::Nil => {}
        Type::Boolean => value = usize::from(stack.boolean(argument)),
        _ => {
            let text = stack.check_text(argument)?;
            let found = options.iter().position(|option| option.as_bytes() == text);
            value = found.ok_or_else(|| {
                let text = format!("invalid option '{}'", String::from_utf8_lossy(text));
                stack.raise_argument(argument, &text)
            })?;
        }
    }
    match value {
        0 | 1 => stack.push_boolean(value == 1),
        other => stack.push(options[other].as_bytes()),
    }
    Ok(value)
}

const SWITCH: [&str; 2] = ["off", "on"];

fn encode_sparse_array(stack: &mut Stack) -> Returns {
    begin(stack, 3)?;
    let mut settings = settings(stack);
    settings.converts_sparse = option(stack, 1, usize::from(settings.converts_sparse), &SWITCH)? == 1;
    set(stack, settings);
    settings.sparse_ratio = integer(stack, 2, settings.sparse_ratio, 0, i32::MAX)?;
    set(stack, settings);
    settings.sparse_safe = integer(stack, 3, settings.sparse_safe, 0, i32::MAX)?;
    set(stack, settings);
    Ok(3)
}

fn encode_max_depth(stack: &mut Stack) -> Returns {
    begin(stack, 1)?;
    let mut settings = settings(stack);
    settings.encode_depth_max = integer(stack, 1, settings.encode_depth_max, 1, i32::MAX)?;
    set(stack, settings);
    Ok(1)
}

fn decode_max_depth(stack: &mut Stack) -> Returns {
    begin(stack, 1)?;
    let mut settings = settings(stack);
    settings.decode_depth_max = integer(stack, 1, settings.decode_depth_max, 1, i32::MAX)?;
    set(stack, settings);
    Ok(1)
}

fn encode_number_precision(stack: &mut Stack) -> Returns {
    begin(stack, 1)?;
    let mut settings = settings(stack);
    settings.precision = integer(stack, 1, settings.precision, 1, 14)?;
    set(stack, settings);
    Ok(1)
}

fn encode_keep_buffer(stack: &mut Stack) -> Returns {
    begin(stack, 1)?;
    let mut settings = settings(stack);
    settings.keeps_buffer = option(stack, 1, usize::from(settings.keeps_buffer), &SWITCH)? == 1;
    set(stack, settings);
    Ok(1)
}

fn encode_invalid_numbers(stack: &mut Stack) -> Returns {
    begin(stack, 1)?;
    let mut settings = settings(stack);
    let value = option(stack, 1, settings.encode_invalid as usize, &["off", "on", "null"])?;
    settings.encode_invalid = [Invalid::Refused, Invalid::Allowed, Invalid::Null][value];
    set(stack, settings);
    Ok(1)
}

fn decode_invalid_numbers(stack: &mut Stack) -> Returns {
    begin(stack, 1)?;
    let mut settings = settings(stack);
    settings.decodes_invalid = option(stack, 1, usize::from(settings.decodes_invalid), &SWITCH)? == 1;
    set(stack, settings);
    Ok(1)
}

// Encoding.

fn encode(stack: &mut Stack) -> Returns {
    if stack.top() != 1 {
        return Err(stack.raise_argument(1, "expected 1 argument"));
    }
    let mut bytes = stack.context().json_buffer.take();
    bytes.clear();
    let mut out = Encoder { bytes, settings: settings(stack), values: 0 };
    let done = out.value(stack, 0);
    if done.is_ok() {
        stack.push(&out.bytes);
    }
    if out.bytes.capacity() <= KEPT_BYTES_MAX {
        stack.context().json_buffer.replace(out.bytes);
    }
    done.map(|()| 1)
}

struct Encoder {
    bytes: Vec<u8>,
    settings: Settings,
    values: usize,
}

impl Encoder {
    /// Writes the value on top of Lua's stack as JSON; the value stays there.
    fn value(&mut self, stack: &mut Stack, depth: i32) -> Result<(), Raise> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_PER_INTERRUPT) {
            stack.interrupt()?;
        }
        match stack.kind(-1) {
            Type::String => self.text(stack.bytes(-1).unwrap_or_default()),
            Type::Number => self.number(stack, -1)?,
            Type::Boolean => {
                self.bytes.extend_from_slice(if stack.boolean(-1) { b"true" } else { b"false" });
            }
            Type::Table => {
                let depth = depth + 1;
                if depth > self.settings.encode_depth_max.min(DEPTH_MAX) || !stack.has_room(4) {
                    let text = format!("Cannot serialise, excessive nesting ({depth})");
                    return Err(stack.raise_here(text.as_bytes()));
                }
                match self.array_len(stack)? {
                    Some(len) => self.array(stack, len, depth)?,
                    None => self.object(stack, depth)?,
                }
            }
            Type::Nil => self.bytes.extend_from_slice(b"null"),
            Type::LightUserdata if stack.light(-1) == Some(0) => self.bytes.extend_from_slice(b"null"),
            _ => return Err(refuse(stack, -1, "type not supported")),
        }
        Ok(())
    }

    /// Returns the length of the array on top of Lua's stack. Returns `None` for a table that is
    /// written as an object, such as an empty table.
    fn array_len(&self, stack: &mut Stack) -> Result<Option<i32>, Raise> {
        let (mut largest, mut count) = (0.0_f64, 0_u32);
        stack.push_nil();
        while stack.next(-2) {
            let key = if stack.kind(-2) == Type::Number { stack.number(-2) } else { None };
            match key {
                Some(key) if key >= 1.0 && key.floor() == key => {
                    largest = largest.max(key);
                    count += 1;
                    stack.pop(1);
                }
                _ => {
                    stack.pop(2);
                    return Ok(None);
                }
            }
        }
        let Settings { sparse_ratio, sparse_safe, converts_sparse, .. } = self.settings;
        // Converts the largest key as C does, whatever its value.
        let largest = if largest > f64::from(i32::MAX) { i32::MIN } else { largest as i32 };
        let reckoned = i64::from(count) * i64::from(sparse_ratio);
        if sparse_ratio > 0 && i64::from(largest) > reckoned && largest > sparse_safe {
            if !converts_sparse {
                return Err(refuse(stack, -1, "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok((largest > 0).then_some(largest))
    }

    fn array(&mut self, stack: &mut Stack, len: i32, depth: i32) -> Result<(), Raise> {
        self.bytes.push(b'[');
        for at in 1..=len {
            if at > 1 {
                self.bytes.push(b',');
            }
            stack.raw_get_at(-1, at);
            self.value(stack, depth)?;
            stack.pop(1);
        }
        self.bytes.push(b']');
        Ok(())
    }

    fn object(&mut self, stack: &mut Stack, depth: i32) -> Result<(), Raise> {
        self.bytes.push(b'{');
        let mut is_first = true;
        stack.push_nil();
        while stack.next(-2) {
            if !std::mem::take(&mut is_first) {
                self.bytes.push(b',');
            }
            match stack.kind(-2) {
                Type::Number => {
                    self.bytes.push(b'"');
                    self.number(stack, -2)?;
                    self.bytes.extend_from_slice(b"\":");
                }
                Type::String => {
                    self.text(stack.bytes(-2).unwrap_or_default());
                    self.bytes.push(b':');
                }
                _ => return Err(refuse(stack, -2, "table key must be a number or string")),
            }
            self.value(stack, depth)?;
            stack.pop(1);
        }
        self.bytes.push(b'}');
        Ok(())
    }

    fn number(&mut self, stack: &Stack, index: i32) -> Result<(), Raise> {
        const SHORT: f64 = 1e14;
        let number = stack.number(index).unwrap_or(0.0);
        if !number.is_finite() {
            match self.settings.encode_invalid {
                Invalid::Refused => return Err(refuse(stack, index, "must not be NaN or Inf")),
                Invalid::Null => {
                    self.bytes.extend_from_slice(b"null");
                    return Ok(());
                }
                Invalid::Allowed if number.is_nan() => {
                    self.bytes.extend_from_slice(b"nan");
                    return Ok(());
                }
                Invalid::Allowed => {}
            }
        }
        let is_negative_zero = number == 0.0 && number.is_sign_negative();
        if self.settings.precision == 14
            && number.trunc() == number
            && number.abs() < SHORT
            && !is_negative_zero
        {
            self.bytes.extend_from_slice(itoa::Buffer::new().format(number as i64).as_bytes());
        } else {
            self.bytes.extend_from_slice(format_g(number, self.settings.precision as usize).as_bytes());
        }
        Ok(())
    }

    fn text(&mut self, text: &[u8]) {
        self.bytes.push(b'"');
        let mut plain = 0;
        for (at, &byte) in text.iter().enumerate() {
            let escape: &[u8] = match byte {
                b'"' => b"\\\"",
                b'\\' => b"\\\\",
                b'/' => b"\\/",
                0x08 => b"\\b",
                b'\t' => b"\\t",
                b'\n' => b"\\n",
                0x0c => b"\\f",
                b'\r' => b"\\r",
                0..=0x1f | 0x7f => b"",
                _ => continue,
            };
            self.bytes.extend_from_slice(&text[plain..at]);
            plain = at + 1;
            if escape.is_empty() {
                let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
                self.bytes.extend_from_slice(b"\\u00");
                self.bytes.extend_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
            } else {
                self.bytes.extend_from_slice(escape);
            }
        }
        self.bytes.extend_from_slice(&text[plain..]);
        self.bytes.push(b'"');
    }
}

fn refuse(stack: &Stack, index: i32, why: &str) -> Raise {
    let text = format!("Cannot serialise {}: {why}", lua_type_name(stack, index));
    stack.raise_here(text.as_bytes())
}

/// Returns the name of the type of the value at a stack index, as `lua_typename` does.
fn lua_type_name(stack: &Stack, index: i32) -> &'static str {
    if stack.kind(index) == Type::LightUserdata { "userdata" } else { stack.type_name(index) }
}

// Decoding.

/// The number that is passed to [`Stack::work`] for each byte of decoded text. It is higher than
/// for copying, because decoding a byte takes longer: a short text may contain many tables.
const WORK_PER_BYTE: usize = 32;

fn decode(stack: &mut Stack) -> Returns {
    if stack.top() != 1 {
        return Err(stack.raise_argument(1, "expected 1 argument"));
    }
    let text = stack.check_text(1)?.to_vec();
    stack.work(text.len().saturating_mul(WORK_PER_BYTE))?;
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(stack.raise_here(b"JSON parser does not support UTF-16 or UTF-32"));
    }
    let settings = settings(stack);
    let scratch = stack.context().json_buffer.take();
    let mut input = Decoder {
        text: &text,
        at: 0,
        settings,
        depth: 0,
        scratch,
        values: 0,
        from: 0,
        span: None,
        number: 0.0,
        problem: "",
    };
    let done = input.whole(stack);
    if input.scratch.capacity() <= KEPT_BYTES_MAX {
        stack.context().json_buffer.replace(input.scratch);
    }
    done.map(|()| 1)
}

/// The kind of a token of the JSON text. The value of a number or string is in the [`Decoder`]. So
/// a token fits a register, and need not pass through memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Text,
    Number,
    True,
    False,
    Null,
    Colon,
    Comma,
    End,
    Error,
}

struct Decoder<'a> {
    text: &'a [u8],
    at: usize,
    settings: Settings,
    depth: i32,
    scratch: Vec<u8>,
    values: usize,
    /// The offset in the JSON text at which the last token begins, in bytes.
    from: usize,
    /// The start and end of the last string's bytes in the text. `None` if the bytes are in the
    /// scratch buffer, because the string has escapes.
    span: Option<(usize, usize)>,
    /// The value of the last token of the JSON text that was a number.
    number: f64,
    /// The text of the error in the JSON text, if the last token is [`Token::Error`].
    problem: &'static str,
}

impl Decoder<'_> {
    fn whole(&mut self, stack: &mut Stack) -> Result<(), Raise> {
        let token = self.next();
        self.value(stack, token)?;
        match self.next() {
            Token::End => Ok(()),
            token => Err(self.unexpected(stack, "the end", token)),
        }
    }

    /// Returns the byte of the JSON text at offset `at`; zero after the end, as in C.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    /// Reads the next token of the JSON text, and stores its value or error.
    fn next(&mut self) -> Token {
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
        }
        let from = self.at;
        self.from = from;
        let single = match self.byte(from) {
            b'{' => Token::ObjectBegin,
            b'}' => Token::ObjectEnd,
            b'[' => Token::ArrayBegin,
            b']' => Token::ArrayEnd,
            b',' => Token::Comma,
            b':' => Token::Colon,
            0 => return Token::End,
            b'"' => return self.text_token(),
            b'-' | b'0'..=b'9' => {
                if !self.settings.decodes_invalid && self.is_invalid_number() {
                    return self.error("invalid number", from);
                }
                return self.number_token(from);
            }
            b'+' | b'I' | b'i' | b'N' | b'n' | b't' | b'f' => return self.word(from),
            _ => return self.error("invalid token", from),
        };
        self.at += 1;
        single
    }

    /// Records an error of the JSON text at offset `at`, and returns [`Token::Error`].
    #[cold]
    fn error(&mut self, problem: &'static str, at: usize) -> Token {
        (self.problem, self.from) = (problem, at);
        Token::Error
    }

    fn word(&mut self, from: usize) -> Token {
        let rest = &self.text[from..];
        let words: [(&[u8], Token); 3] =
            [(b"true", Token::True), (b"false", Token::False), (b"null", Token::Null)];
        for (word, token) in words {
            if rest.starts_with(word) {
                self.at += word.len();
                return token;
            }
        }
        if self.settings.decodes_invalid && self.is_invalid_number() {
            return self.number_token(from);
        }
        self.error("invalid token", from)
    }

    /// Returns true if a number that JSON does not allow, such as `+1`, `0x1` or `nan`, begins at
    /// the decoder's current offset.
    fn is_invalid_number(&self) -> bool {
        let mut at = self.at;
        if self.byte(at) == b'+' {
            return true;
        }
        if self.byte(at) == b'-' {
            at += 1;
        }
        match self.byte(at) {
            b'0' => {
                let next = self.byte(at + 1);
                next | 0x20 == b'x' || next.is_ascii_digit()
            }
            byte if byte <= b'9' => false,
            _ => {
                let word = self.text.get(at..at + 3).unwrap_or_default();
                word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")
            }
        }
    }

    fn number_token(&mut self, from: usize) -> Token {
        match number_at(&self.text[from..]) {
            Some((number, len)) => {
                (self.at, self.number) = (from + len, number);
                Token::Number
            }
            None => self.error("invalid number", from),
        }
    }

    fn text_token(&mut self) -> Token {
        self.at += 1;
        let start = self.at;
        let plain = self.text[start..].iter().position(|&byte| matches!(byte, b'"' | b'\\' | 0));
        let Some(plain) = plain else {
            return self.error("unexpected end of string", self.text.len());
        };
        self.at = start + plain;
        if self.byte(self.at) == b'"' {
            self.at += 1;
            self.span = Some((start, start + plain));
            return Token::Text;
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(&self.text[start..start + plain]);
        loop {
            let byte = match self.byte(self.at) {
                b'"' => break,
                0 => return self.error("unexpected end of string", self.at),
                b'\\' => match self.byte(self.at + 1) {
                    b'u' => {
                        if !self.unicode() {
                            return self.error("invalid unicode escape code", self.at);
                        }
                        continue;
                    }
                    byte => {
                        let meant = match byte {
                            b'"' | b'\\' | b'/' => byte,
                            b'b' => 0x08,
                            b't' => b'\t',
                            b'n' => b'\n',
                            b'f' => 0x0c,
                            b'r' => b'\r',
                            _ => return self.error("invalid escape code", self.at),
                        };
                        self.at += 1;
                        meant
                    }
                },
                byte => byte,
            };
            self.scratch.push(byte);
            self.at += 1;
        }
        self.at += 1;
        self.span = None;
        Token::Text
    }

    fn hex4(&self, at: usize) -> Option<u32> {
        let digits = self.text.get(at..at + 4)?;
        digits.iter().try_fold(0, |code, &digit| Some(code << 4 | char::from(digit).to_digit(16)?))
    }

    /// Reads the escape `\uXXXX`, or two of them (a surrogate pair), and appends the character to
    /// the scratch buffer. Returns false if they are invalid.
    fn unicode(&mut self) -> bool {
        let Some(mut code) = self.hex4(self.at + 2) else { return false };
        let mut len = 6;
        if code & 0xf800 == 0xd800 {
            if code & 0x400 != 0 || self.byte(self.at + 6) != b'\\' || self.byte(self.at + 7) != b'u' {
                return false;
            }
            let Some(low) = self.hex4(self.at + 8).filter(|low| low & 0xfc00 == 0xdc00) else {
                return false;
            };
            code = 0x1_0000 + ((code & 0x3ff) << 10 | low & 0x3ff);
            len = 12;
        }
        let Some(code) = char::from_u32(code) else { return false };
        self.scratch.extend_from_slice(code.encode_utf8(&mut [0; 4]).as_bytes());
        self.at += len;
        true
    }

    /// Reads the JSON value that begins with `token`, and pushes it on Lua's stack.
    fn value(&mut self, stack: &mut Stack, token: Token) -> Result<(), Raise> {
        self.values += 1;
        if self.values.is_multiple_of(VALUES_PER_INTERRUPT) {
            stack.interrupt()?;
        }
        match token {
            Token::Text => self.push_text(stack),
            Token::Number => stack.push_number(self.number),
            Token::True => stack.push_boolean(true),
            Token::False => stack.push_boolean(false),
            Token::Null => stack.push_light(0),
            Token::ObjectBegin => return self.object(stack),
            Token::ArrayBegin => return self.array(stack),
            _ => return Err(self.unexpected(stack, "value", token)),
        }
        Ok(())
    }

    fn push_text(&self, stack: &Stack) {
        match self.span {
            Some((start, end)) => stack.push(&self.text[start..end]),
            None => stack.push(&self.scratch),
        }
    }

    fn descend(&mut self, stack: &Stack) -> Result<(), Raise> {
        self.depth += 1;
        if self.depth > self.settings.decode_depth_max.min(DEPTH_MAX) || !stack.has_room(4) {
            let text =
                format!("Found too many nested data structures ({}) at character {}", self.depth, self.at);
            return Err(stack.raise_here(text.as_bytes()));
        }
        Ok(())
    }

    fn object(&mut self, stack: &mut Stack) -> Result<(), Raise> {
        self.descend(stack)?;
        stack.push_table(0, 0);
        let mut token = self.next();
        if token == Token::ObjectEnd {
            self.depth -= 1;
            return Ok(());
        }
        loop {
            if token != Token::Text {
                return Err(self.unexpected(stack, "object key string", token));
            }
            self.push_text(stack);
            token = self.next();
            if token != Token::Colon {
                return Err(self.unexpected(stack, "colon", token));
            }
            token = self.next();
            self.value(stack, token)?;
            stack.raw_set(-3);
            token = self.next();
            match token {
                Token::ObjectEnd => {
                    self.depth -= 1;
                    return Ok(());
                }
                Token::Comma => token = self.next(),
                _ => return Err(self.unexpected(stack, "comma or object end", token)),
            }
        }
    }

    fn array(&mut self, stack: &mut Stack) -> Result<(), Raise> {
        self.descend(stack)?;
        stack.push_table(0, 0);
        let mut token = self.next();
        if token == Token::ArrayEnd {
            self.depth -= 1;
            return Ok(());
        }
        for index in 1.. {
            self.value(stack, token)?;
            stack.raw_set_at(-2, index);
            token = self.next();
            match token {
                Token::ArrayEnd => {
                    self.depth -= 1;
                    return Ok(());
                }
                Token::Comma => token = self.next(),
                _ => return Err(self.unexpected(stack, "comma or array end", token)),
            }
        }
        Ok(())
    }

    /// Returns the error for the last token of the JSON text: `found` instead of `expected`.
    #[cold]
    fn unexpected(&self, stack: &Stack, expected: &str, found: Token) -> Raise {
        let found = match found {
            Token::ObjectBegin => "T_OBJ_BEGIN",
            Token::ObjectEnd => "T_OBJ_END",
            Token::ArrayBegin => "T_ARR_BEGIN",
            Token::ArrayEnd => "T_ARR_END",
            Token::Text => "T_STRING",
            Token::Number => "T_NUMBER",
            Token::True | Token::False => "T_BOOLEAN",
            Token::Null => "T_NULL",
            Token::Colon => "T_COLON",
            Token::Comma => "T_COMMA",
            Token::End => "T_END",
            Token::Error => self.problem,
        };
        let text = format!("Expected {expected} but found {found} at character {}", self.from + 1);
        stack.raise_here(text.as_bytes())
    }
}

/// Returns the number at the start of a text and the length of its text, as C's `strtod` does;
/// `None` if there is none.
fn number_at(text: &[u8]) -> Option<(f64, usize)> {
    let sign = usize::from(matches!(text.first(), Some(b'-' | b'+')));
    let is_negative = text.first() == Some(&b'-');
    let signed = |number: f64| if is_negative { -number } else { number };
    let rest = &text[sign..];
    let starts = |word: &[u8]| rest.len() >= word.len() && rest[..word.len()].eq_ignore_ascii_case(word);
    if starts(b"infinity") {
        return Some((signed(f64::INFINITY), sign + 8));
    }
    if starts(b"inf") {
        return Some((signed(f64::INFINITY), sign + 3));
    }
    if starts(b"nan") {
        return Some((signed(f64::NAN), sign + 3));
    }
    if starts(b"0x")
        && let Some((number, len)) = hex_number(&rest[2..])
    {
        return Some((signed(number), sign + 2 + len));
    }
    let digits =
        |from: usize| rest[from.min(rest.len())..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut len = whole;
    if rest.get(whole) == Some(&b'.') {
        let fraction = digits(whole + 1);
        if whole + fraction > 0 {
            len = whole + 1 + fraction;
        }
    }
    if len == 0 {
        return None;
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(len + 1), Some(b'-' | b'+')));
        let exponent = digits(len + 1 + sign);
        if exponent > 0 {
            len += 1 + sign + exponent;
        }
    }
    if len == whole && len <= 15 {
        let number = rest[..len].iter().fold(0_u64, |number, digit| number * 10 + u64::from(digit - b'0'));
        return Some((signed(number as f64), sign + len));
    }
    let number = std::str::from_utf8(&rest[..len]).ok()?.parse().ok().or_else(|| parse_f64(&rest[..len]))?;
    Some((signed(number), sign + len))
}

/// Parses hexadecimal digits with a fraction and a binary exponent. Returns the number and the
/// length of its text; `None` if there are no digits.
fn hex_number(text: &[u8]) -> Option<(f64, usize)> {
    let digit = |at: usize| text.get(at).and_then(|&byte| char::from(byte).to_digit(16));
    let (mut number, mut at, mut any) = (0.0_f64, 0, false);
    while let Some(value) = digit(at) {
        number = number * 16.0 + f64::from(value);
        any = true;
        at += 1;
    }
    if text.get(at) == Some(&b'.') && (any || digit(at + 1).is_some()) {
        at += 1;
        let mut scale = 1.0 / 16.0;
        while let Some(value) = digit(at) {
            number += f64::from(value) * scale;
            scale /= 16.0;
            any = true;
            at += 1;
        }
    }
    if !any {
        return None;
    }
    if matches!(text.get(at), Some(b'p' | b'P')) {
        let sign = usize::from(matches!(text.get(at + 1), Some(b'-' | b'+')));
        let digits = text[(at + 1 + sign).min(text.len())..].iter().take_while(|byte| byte.is_ascii_digit());
        let count = digits.clone().count();
        if count > 0 {
            let exponent = digits.fold(0_i32, |exponent, digit| {
                exponent.saturating_mul(10).saturating_add(i32::from(digit - b'0'))
            });
            let is_negative = text.get(at + 1) == Some(&b'-');
            number *= 2.0_f64.powi(if is_negative { -exponent } else { exponent });
            at += 1 + sign + count;
        }
    }
    Some((number, at))
}
