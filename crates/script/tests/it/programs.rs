//! Tests with the programs of `programs.txt` and other files. A line with a program begins with `>
//! `. The next lines are its replies in RESP2 (`2 `) and RESP3 (`3 `), as EVAL program 0 a b
//! returns them. Bytes are written as by `escape_ascii`.

use resp::Protocol;
use script::Vm;

use crate::server::{Server, eval, options};

#[test]
fn programs_reply_as_those_of_redis() {
    check(include_str!("programs.txt"));
}

#[test]
fn libraries_do_what_those_of_redis_do() {
    check(include_str!("libraries.txt"));
}

/// Checks each pattern of the file on a short text, which Lua's own matcher handles, and on a long
/// one, which ours handles.
#[test]
fn patterns_and_other_functions_of_texts_and_tables_do_what_those_of_redis_do() {
    check(include_str!("patterns.txt"));
}

fn check(programs: &str) {
    let mut different = Vec::new();
    let mut program = Vec::new();
    let mut vm = Vm::new(&options());
    for line in programs.lines() {
        let (kind, text) = line.split_at_checked(2).unwrap_or(("", ""));
        let protocol = match kind {
            "> " => {
                program = unescape(text);
                continue;
            }
            "2 " => Protocol::Resp2,
            "3 " => Protocol::Resp3,
            _ => continue,
        };
        let reply = eval(&mut vm, &mut Server::default(), &program, protocol);
        if reply != unescape(text) {
            let program = program.escape_ascii();
            different.push(format!("{program}\n  redis {text}\n  here  {}", reply.escape_ascii()));
        }
    }
    assert!(different.is_empty(), "{} replies differ:\n{}", different.len(), different.join("\n"));
}

/// Converts a text that `escape_ascii` wrote back to its bytes.
fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        rest = match (byte, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) => {
                let digits = [*high, *low];
                let digits = std::str::from_utf8(&digits).expect("hexadecimal digits");
                bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal digits"));
                behind
            }
            (b'\\', [letter, behind @ ..]) => {
                bytes.push(match letter {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    other => *other,
                });
                behind
            }
            _ => {
                bytes.push(byte);
                behind
            }
        };
    }
    bytes
}
