//! Text of values and replies, as the debugger shows them.

use crate::lua::{Stack, Type};
use crate::numbers::format_g;
use crate::shell;

/// The maximum depth to which the debugger shows nested tables.
const DEPTH_MAX: usize = 10;
/// The maximum depth to which the debugger shows nested replies; no command's reply is deeper.
const REPLY_DEPTH_MAX: usize = 100;
/// The maximum length of a shown value, in bytes: tables may contain each other.
const BYTES_MAX: usize = 16 << 20;

/// Appends a text in quotes to `out`, with escapes for characters that do not print.
pub(super) fn quote(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x07 => out.extend_from_slice(b"\\a"),
            0x08 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

/// Appends the text of the value on top of Lua's stack to `out`; the value stays there. May stop
/// after `bytes_max` bytes, because the caller cuts the text there; with 0, after [`BYTES_MAX`]
/// bytes.
pub(super) fn value(stack: &mut Stack, bytes_max: usize, out: &mut Vec<u8>) {
    let end = if bytes_max == 0 { BYTES_MAX } else { out.len() + bytes_max };
    nested_value(stack, (0, end), out);
}

fn nested_value(stack: &mut Stack, (depth, end): (usize, usize), out: &mut Vec<u8>) {
    if depth == DEPTH_MAX || !stack.has_room(8) {
        return out.extend_from_slice(b"<max recursion level reached! Nested table?>");
    }
    let name = match stack.kind(-1) {
        Type::String => return quote(stack.bytes(-1).unwrap_or_default(), out),
        Type::Boolean => return out.extend_from_slice(stack.boolean(-1).to_string().as_bytes()),
        Type::Number => {
            return out.extend_from_slice(format_g(stack.number(-1).unwrap_or(0.0), 6).as_bytes());
        }
        Type::None | Type::Nil => return out.extend_from_slice(b"nil"),
        Type::Table => return table(stack, (depth + 1, end), out),
        Type::Function => "function",
        Type::Userdata => "userdata",
        Type::Thread => "thread",
        Type::LightUserdata => "light-userdata",
    };
    let address = match stack.address(-1) {
        0 => "(nil)".to_owned(),
        address => format!("{address:#x}"),
    };
    out.extend_from_slice(format!("\"{name}@{address}\"").as_bytes());
}

/// Appends the text of the table on top of Lua's stack, which stays there: the elements of an
/// array, or all keys and values of another table.
fn table(stack: &mut Stack, (depth, end): (usize, usize), out: &mut Vec<u8>) {
    stack.push_value(-1);
    let at = stack.top();
    shell::unwrap(stack, at);
    let is_array = is_array(stack);
    out.push(b'{');
    let mut is_first = true;
    stack.push_nil();
    while stack.next(-2) {
        if !std::mem::take(&mut is_first) {
            out.extend_from_slice(b"; ");
        }
        if !is_array {
            stack.push_value(-2);
            out.push(b'[');
            nested_value(stack, (depth, end), out);
            out.extend_from_slice(b"]=");
            stack.pop(1);
        }
        nested_value(stack, (depth, end), out);
        stack.pop(1);
        if out.len() > end {
            stack.pop(1);
            break;
        }
    }
    out.push(b'}');
    stack.pop(1);
}

/// Returns true if the keys of the table on top of Lua's stack come in the order 1, 2, 3 ….
fn is_array(stack: &mut Stack) -> bool {
    let mut expected = 1.0;
    stack.push_nil();
    while stack.next(-2) {
        stack.pop(1);
        if stack.kind(-1) != Type::Number || stack.number(-1) != Some(expected) {
            stack.pop(1);
            return false;
        }
        expected += 1.0;
    }
    true
}

/// Appends the text of an encoded reply to `out`, as the debugger shows it.
pub(super) fn reply(reply: &[u8], out: &mut Vec<u8>) {
    nested_reply(reply, REPLY_DEPTH_MAX, out);
}

/// Appends the text of the encoded reply at the start of `input`; returns the bytes after it.
fn nested_reply<'a>(input: &'a [u8], depth: usize, out: &mut Vec<u8>) -> &'a [u8] {
    let end = input.iter().position(|&byte| byte == b'\r').unwrap_or(input.len());
    let (line, rest) = (&input[..end], input.get(end + 2..).unwrap_or_default());
    let Some((&kind, text)) = line.split_first() else { return &[] };
    let len = stdx::number::parse_i64(text);
    let count = len.and_then(|len| usize::try_from(len).ok());
    match (kind, count) {
        _ if depth == 0 => return &[],
        (b'$' | b'*', None) => out.extend_from_slice(b"NULL"),
        (b'$', Some(len)) => {
            let len = len.min(rest.len());
            quote(&rest[..len], out);
            return rest.get(len + 2..).unwrap_or_default();
        }
        (b'*', Some(count)) => return sequence(rest, (count, depth), [b"[", b",", b",", b"]"], out),
        (b'~', Some(count)) => return sequence(rest, (count, depth), [b"~(", b",", b",", b")"], out),
        (b'%', Some(pairs)) => {
            return sequence(rest, (pairs.saturating_mul(2), depth), [b"{", b" => ", b",", b"}"], out);
        }
        (b'+' | b'-', _) => quote(line, out),
        (b'_', _) => out.extend_from_slice(b"(null)"),
        (b'#', _) => out.extend_from_slice(if text == b"t" { b"#true" } else { b"#false" }),
        (b',', _) => {
            out.extend_from_slice(b"(double) ");
            out.extend_from_slice(text);
        }
        _ => out.extend_from_slice(text),
    }
    rest
}

/// Appends the texts of `count` encoded replies, with `begin` before them and `end` after them. The
/// replies form pairs: `between` follows the first reply of a pair, and `behind` follows the
/// second. Nothing but `end` follows the last reply.
fn sequence<'a>(
    mut rest: &'a [u8],
    (count, depth): (usize, usize),
    [begin, between, behind, end]: [&[u8]; 4],
    out: &mut Vec<u8>,
) -> &'a [u8] {
    out.extend_from_slice(begin);
    for at in 0..count {
        rest = nested_reply(rest, depth - 1, out);
        if at + 1 < count {
            out.extend_from_slice(if at % 2 == 0 { between } else { behind });
        }
        if rest.is_empty() || out.len() > BYTES_MAX {
            break;
        }
    }
    out.extend_from_slice(end);
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_shown_as_redis_does() {
        let check = |bytes: &str, expected: &str| {
            let mut out = Vec::new();
            reply(bytes.as_bytes(), &mut out);
            assert_eq!(String::from_utf8_lossy(&out), expected, "{bytes:?}");
        };
        check("+OK\r\n", "\"+OK\"");
        check("-ERR no\r\n", "\"-ERR no\"");
        check(":12\r\n", "12");
        check("$3\r\na\"\n\r\n", r#""a\"\n""#);
        check("$-1\r\n", "NULL");
        check("*-1\r\n", "NULL");
        check("*3\r\n:1\r\n*0\r\n$1\r\nx\r\n", "[1,[],\"x\"]");
        check("%2\r\n$1\r\na\r\n:1\r\n$1\r\nb\r\n_\r\n", "{\"a\" => 1,\"b\" => (null)}");
        check("~2\r\n:1\r\n#t\r\n", "~(1,#true)");
        check(",1.5\r\n", "(double) 1.5");
        // The text ends where the input is not a reply that a server sends.
        check("", "");
        check("*9\r\n:1\r\n", "[1,]");
        check("$9\r\nab", "\"ab\"");
    }
}
