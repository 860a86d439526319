//! Conversions between encoded replies and Lua values, as Redis makes them.
//!
//! A command's reply that is nested too deeply for Lua's stack becomes an error. In a script's
//! reply, an error takes the place of the value that is nested too deeply; the values before it are
//! already written.

use resp::{Protocol, Reply};

use crate::lua::{Stack, Type, truncate};

/// The error for a reply that is nested too deeply for Lua's stack.
pub(crate) struct TooDeep;

/// The maximum depth of nested tables in a script's reply. Redis 8.0.2 crashes at some depth before
/// Lua's own limit.
const DEPTH_MAX: usize = 1000;

/// Pushes the Lua value of the encoded reply at the start of `input`; returns the bytes that follow
/// it.
pub(crate) fn push_reply<'a>(stack: &mut Stack, input: &'a [u8]) -> Result<&'a [u8], TooDeep> {
    if !stack.has_room(6) || stack.top() > 4000 {
        return Err(TooDeep);
    }
    let end = input.iter().position(|&byte| byte == b'\r').unwrap_or(input.len());
    let Some((&kind, line)) = input[..end].split_first() else {
        stack.push_nil();
        return Ok(&[]);
    };
    let rest = input.get(end + 2..).unwrap_or_default();
    match kind {
        b':' => stack.push_number(integer(line) as f64),
        b'$' => return Ok(push_bulk(stack, line, rest)),
        b'+' => push_tagged(stack, b"ok", line),
        b'-' => {
            push_error(stack, &[b"-", line].concat());
            stack.push_boolean(true);
            stack.raw_set_field(-2, b"ignore_error_stats_update");
        }
        b'*' | b'>' => return push_array(stack, line, rest),
        b'%' => return push_map(stack, line, rest),
        b'~' => return push_set(stack, line, rest),
        b'|' => return skip_attribute(stack, line, rest),
        b'_' => stack.push_nil(),
        b'#' => stack.push_boolean(line == b"t"),
        b',' => {
            stack.push_table(0, 1);
            stack.push_number(stdx::number::parse_f64(line).unwrap_or(f64::NAN));
            stack.raw_set_field(-2, b"double");
        }
        b'(' => push_tagged(stack, b"big_number", line),
        b'=' => return Ok(push_verbatim(stack, line, rest)),
        _ => stack.push_nil(),
    }
    Ok(rest)
}

fn integer(line: &[u8]) -> i64 {
    stdx::number::parse_i64(line).unwrap_or(0)
}

fn split<'a>(rest: &'a [u8], len: &[u8]) -> (&'a [u8], &'a [u8]) {
    let len = usize::try_from(integer(len)).unwrap_or(0).min(rest.len());
    (&rest[..len], rest.get(len + 2..).unwrap_or_default())
}

fn push_tagged(stack: &mut Stack, field: &[u8], text: &[u8]) {
    stack.push_table(0, 1);
    stack.push(text);
    stack.raw_set_field(-2, field);
}

fn push_bulk<'a>(stack: &mut Stack, line: &[u8], rest: &'a [u8]) -> &'a [u8] {
    if line == b"-1" {
        stack.push_boolean(false);
        return rest;
    }
    let (bytes, rest) = split(rest, line);
    stack.push(bytes);
    rest
}

fn push_array<'a>(stack: &mut Stack, line: &[u8], mut rest: &'a [u8]) -> Result<&'a [u8], TooDeep> {
    if line == b"-1" {
        stack.push_boolean(false);
        return Ok(rest);
    }
    let len = i32::try_from(integer(line)).unwrap_or(0);
    stack.push_table(len.max(0) as usize, 0);
    for at in 1..=len {
        rest = push_reply(stack, rest)?;
        stack.raw_set_at(-2, at);
    }
    Ok(rest)
}

fn push_map<'a>(stack: &mut Stack, line: &[u8], mut rest: &'a [u8]) -> Result<&'a [u8], TooDeep> {
    let len = integer(line);
    stack.push_table(0, 1);
    stack.push_table(0, len.max(0) as usize);
    for _ in 0..len {
        rest = push_reply(stack, rest)?;
        rest = push_reply(stack, rest)?;
        set_if_key(stack);
    }
    stack.raw_set_field(-2, b"map");
    Ok(rest)
}

fn push_set<'a>(stack: &mut Stack, line: &[u8], mut rest: &'a [u8]) -> Result<&'a [u8], TooDeep> {
    let len = integer(line);
    stack.push_table(0, 1);
    stack.push_table(0, len.max(0) as usize);
    for _ in 0..len {
        rest = push_reply(stack, rest)?;
        stack.push_boolean(true);
        set_if_key(stack);
    }
    stack.raw_set_field(-2, b"set");
    Ok(rest)
}

/// Pops a key and its value from Lua's stack, and sets them in the table below them. Drops both if
/// the key is nil; no server sends a nil key.
fn set_if_key(stack: &mut Stack) {
    if stack.kind(-2) == Type::Nil { stack.pop(2) } else { stack.raw_set(-3) }
}

fn skip_attribute<'a>(stack: &mut Stack, line: &[u8], mut rest: &'a [u8]) -> Result<&'a [u8], TooDeep> {
    for _ in 0..integer(line).saturating_mul(2) {
        rest = push_reply(stack, rest)?;
        stack.pop(1);
    }
    push_reply(stack, rest)
}

fn push_verbatim<'a>(stack: &mut Stack, line: &[u8], rest: &'a [u8]) -> &'a [u8] {
    let (bytes, rest) = split(rest, line);
    stack.push_table(0, 1);
    stack.push_table(0, 2);
    stack.push(bytes.get(..3).unwrap_or_default());
    stack.raw_set_field(-2, b"format");
    stack.push(bytes.get(4..).unwrap_or_default());
    stack.raw_set_field(-2, b"string");
    stack.raw_set_field(-2, b"verbatim_string");
    rest
}

/// Pushes the Lua table of an error. `line` is `-CODE text`, or a text that gets the code ERR.
pub(crate) fn push_error(stack: &mut Stack, line: &[u8]) {
    stack.push_table(0, 2);
    let line = c_string(line);
    if let Some(debugging) = stack.context().debugging.borrow_mut().as_deref_mut()
        && debugging.steps
    {
        debugging.log(&[b"<error> ", line].concat());
    }
    let (code, text) = match line.strip_prefix(b"-") {
        Some(line) => split_code(line).unwrap_or((b"ERR", line)),
        None => (&b"ERR"[..], line),
    };
    stack.push(&[code, b" ", trim_line_ends(text)].concat());
    stack.raw_set_field(-2, b"err");
}

/// Splits an error line at its first space into the error code and the text.
fn split_code(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let space = line.iter().position(|byte| *byte == b' ')?;
    Some((&line[..space], &line[space + 1..]))
}

/// Returns `text` without `\r` and `\n` at its start and its end.
fn trim_line_ends(mut text: &[u8]) -> &[u8] {
    while let [b'\r' | b'\n', rest @ ..] | [rest @ .., b'\r' | b'\n'] = text {
        text = rest;
    }
    text
}

/// The fields of the Lua table of an error.
pub(crate) struct ErrorFields {
    /// The field `err` of the error table: the error text.
    pub(crate) message: Vec<u8>,
    /// The fields `source` and `line`, the place where the error was raised; `None` if one of them
    /// is missing.
    pub(crate) place: Option<(Vec<u8>, Vec<u8>)>,
    /// The field `ignore_error_stats_update`: true if the error statistics already count a command
    /// for this error.
    pub(crate) counted: bool,
}

/// Reads the fields of the error table on top of Lua's stack.
pub(crate) fn error_fields(stack: &mut Stack) -> ErrorFields {
    fn text(stack: &mut Stack, name: &[u8]) -> Option<Vec<u8>> {
        stack.raw_get_field(-1, name);
        let text = stack.text(-1).map(<[u8]>::to_vec);
        stack.pop(1);
        text
    }
    let message = text(stack, b"err").unwrap_or_else(|| b"ERR unknown error".to_vec());
    let place = text(stack, b"source").and_then(|source| Some((source, text(stack, b"line")?)));
    stack.raw_get_field(-1, b"ignore_error_stats_update");
    let counted = stack.boolean(-1);
    stack.pop(1);
    ErrorFields { message, place, counted }
}

/// Converts a text of a script to one line, for an error or status reply. The text ends at a zero
/// byte, as a C string does, and line ends become spaces.
pub(crate) fn one_line(text: &[u8]) -> Vec<u8> {
    without_line_ends(c_string(text))
}

/// Converts the text of an error that a script returns to one line, as [`one_line`] does, but
/// without the line ends at its end.
pub(crate) fn error_line(text: &[u8]) -> Vec<u8> {
    let text = c_string(text);
    let is_line_end = |byte: &u8| matches!(byte, b'\r' | b'\n');
    let len = text.iter().rposition(|byte| !is_line_end(byte)).map_or(0, |last| last + 1);
    without_line_ends(&text[..len])
}

/// Returns the text up to its first zero byte, or all of it.
fn c_string(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == 0).next().unwrap_or_default()
}

fn without_line_ends(text: &[u8]) -> Vec<u8> {
    text.iter().map(|&byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect()
}

/// Writes the value on top of Lua's stack as the script's reply, and pops it. `script` is the
/// protocol that the script has set by `redis.setresp`.
pub(crate) fn write_reply(stack: &mut Stack, reply: &mut Reply<'_>, script: Protocol, depth: usize) {
    if depth > DEPTH_MAX || !stack.has_room(6) {
        reply.error("ERR reached lua stack limit");
        return stack.pop(1);
    }
    match stack.kind(-1) {
        Type::String => reply.bulk(stack.bytes(-1).unwrap_or_default()),
        Type::Number => reply.integer(truncate(stack.number(-1).unwrap_or(0.0))),
        Type::Boolean if script == Protocol::Resp3 => reply.boolean(stack.boolean(-1)),
        Type::Boolean if stack.boolean(-1) => reply.integer(1),
        Type::Table => return write_table(stack, reply, script, depth),
        _ => reply.null(),
    }
    stack.pop(1);
}

fn write_table(stack: &mut Stack, reply: &mut Reply<'_>, script: Protocol, depth: usize) {
    let is_array = !write_special(stack, reply, script, depth);
    if is_array {
        stack.pop(1);
        let array = reply.begin_array();
        let mut len = 0;
        loop {
            stack.raw_get_at(-1, len as i32 + 1);
            if stack.kind(-1) == Type::Nil {
                break;
            }
            write_reply(stack, reply, script, depth + 1);
            len += 1;
        }
        reply.end_array(array, len);
    }
    stack.pop(2);
}

/// Writes as a reply the table on top of Lua's stack, if it has one of the special fields, such as
/// `err` or `map`. Returns `false` if the table is an array. Leaves one more value on the stack.
fn write_special(stack: &mut Stack, reply: &mut Reply<'_>, script: Protocol, depth: usize) -> bool {
    let field = |stack: &mut Stack, name: &[u8], kind: Type| {
        stack.raw_get_field(-1, name);
        let found = stack.kind(-1) == kind;
        if !found {
            stack.pop(1);
        }
        found
    };
    if field(stack, b"err", Type::String) {
        reply.error_bytes(&error_line(stack.bytes(-1).unwrap_or_default()));
    } else if field(stack, b"ok", Type::String) {
        let line = one_line(stack.bytes(-1).unwrap_or_default());
        reply.raw(&[b"+", line.as_slice(), b"\r\n"].concat());
    } else if field(stack, b"double", Type::Number) {
        reply.double(stack.number(-1).unwrap_or(0.0));
    } else if field(stack, b"map", Type::Table) {
        let map = reply.begin_map();
        let mut pairs = 0;
        stack.push_nil();
        while stack.next(-2) {
            stack.push_value(-2);
            write_reply(stack, reply, script, depth + 1);
            write_reply(stack, reply, script, depth + 1);
            pairs += 1;
        }
        reply.end_map(map, pairs);
    } else if field(stack, b"set", Type::Table) {
        let set = reply.begin_set();
        let mut len = 0;
        stack.push_nil();
        while stack.next(-2) {
            stack.pop(1);
            stack.push_value(-1);
            write_reply(stack, reply, script, depth + 1);
            len += 1;
        }
        reply.end_set(set, len);
    } else if field(stack, b"big_number", Type::String) {
        reply.big_number(&String::from_utf8_lossy(&without_line_ends(stack.bytes(-1).unwrap_or_default())));
    } else if field(stack, b"verbatim_string", Type::Table) {
        return write_verbatim(stack, reply);
    } else {
        stack.push_nil();
        return false;
    }
    true
}

fn write_verbatim(stack: &mut Stack, reply: &mut Reply<'_>) -> bool {
    stack.raw_get_field(-1, b"format");
    stack.raw_get_field(-2, b"string");
    let written = match (stack.bytes(-2), stack.bytes(-1)) {
        (Some(format), Some(bytes)) => {
            let mut padded = *b"   ";
            for (to, from) in padded.iter_mut().zip(format) {
                *to = *from;
            }
            reply.verbatim(padded, bytes);
            true
        }
        _ => false,
    };
    stack.pop(2);
    written
}
