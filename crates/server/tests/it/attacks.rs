//! Scripts on the only I/O thread that run forever or take all memory. Other clients get replies,
//! SCRIPT KILL and FUNCTION KILL end the scripts, the process survives, and the memory is freed.

use std::time::Duration;

use testkit::{Client, Value};

use crate::busy::{BUSY, BUSY_FUNCTION, ask, expect};
use crate::support::{connect, info, on_each_back_end_with};

/// Endless scripts, one of each kind. The tests of the crate `script` run more of them without a
/// server.
const ENDLESS: &[&str] = &[
    "while true do end",
    "local s = ('x'):rep(2^24) while true do local t = s .. 'y' end",
    "local s = ('x'):rep(2^22) while true do s:upper() s:lower() s:reverse() s:format() end",
    "return ('a'):rep(40):find(('a*'):rep(20) .. 'b')",
    "while true do pcall(string.find, ('a'):rep(40), ('a*'):rep(20) .. 'b') end",
    "local function f() return 1 + f() end while true do pcall(f) end",
    "local t = {} for i = 1, 300 do t[i] = i end while true do pcall(table.sort, t, function() return true end) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do cmsgpack.unpack(cmsgpack.pack(t)) end",
];

/// Sends PING until the reply is `busy`, the error about a busy script.
fn await_busy(client: &mut Client, busy: &str) {
    while ask(client, "PING") != Value::Error(busy.into()) {
        std::thread::yield_now();
    }
}

#[track_caller]
fn expect_killed(reply: &Value, script: &str) {
    let Value::Error(line) = reply else { panic!("{script}: {reply:?}") };
    let line = String::from_utf8_lossy(line.as_ref()).into_owned();
    assert!(line.starts_with("ERR Script killed by user with SCRIPT KILL... script: "), "{script}: {line}");
}

#[test]
fn what_never_ends_is_ended_and_others_are_answered_meanwhile() {
    on_each_back_end_with(1, |server| {
        let [mut admin, mut client] = [0; 2].map(|_| connect(server));
        client.set_read_timeout(Duration::from_secs(60));
        ask(&mut admin, "CONFIG SET busy-reply-threshold 5");
        let memory_before = info(&mut admin, "used_memory_lua");
        for script in ENDLESS {
            let request = ["EVAL", script, "0"].map(|word| format!("${}\r\n{word}\r\n", word.len())).concat();
            client.send(format!("*3\r\n{request}").as_bytes()).expect("the server reads");
            await_busy(&mut admin, BUSY);
            expect(&mut admin, "SCRIPT KILL", "OK");
            expect_killed(&client.read().expect("a reply"), script);
            expect(&mut client, "PING", "PONG");
        }
        client.command(&["EVAL", "collectgarbage() collectgarbage()", "0"]);
        let memory = info(&mut admin, "used_memory_lua");
        assert!(memory < memory_before + (4 << 20), "{memory} bytes, of {memory_before} before");
    });
}

#[test]
fn a_function_that_matches_for_ever_is_ended() {
    on_each_back_end_with(1, |server| {
        let [mut admin, mut client] = [0; 2].map(|_| connect(server));
        ask(&mut admin, "CONFIG SET busy-reply-threshold 5");
        let library = "#!lua name=l\nredis.register_function('f', function() \
                       return ('a'):rep(40):find(('a*'):rep(20) .. 'b') end)";
        client.command(&["FUNCTION", "LOAD", library]);
        client.send(b"FCALL f 0\r\n").expect("the server reads");
        await_busy(&mut admin, BUSY_FUNCTION);
        expect(&mut admin, "FUNCTION KILL", "OK");
        expect_killed(&client.read().expect("a reply"), library);
    });
}

#[test]
fn what_ends_by_itself_does() {
    on_each_back_end_with(1, |server| {
        let mut client = connect(server);
        for (script, reply) in [
            ("return #string.rep('', 2^31 - 1)", Value::Integer(0)),
            ("return #string.rep('x', 2^32 + 5)", Value::Integer(5)),
            ("return #string.rep('x', -1)", Value::Integer(0)),
            ("return #string.rep('xy', 2^24)", Value::Integer(1 << 25)),
            ("return ('a'):rep(1e6):find(('a?'):rep(2e5))", Value::Null),
            ("return (pcall(string.find, ('a'):rep(1e6), ('a?'):rep(2e5)))", Value::Null),
        ] {
            let got = client.command(&["EVAL", script, "0"]);
            let is_too_complex = matches!(&got, Value::Error(line) if String::from_utf8_lossy(line.as_ref()).contains("pattern too complex"));
            assert!(got == reply || is_too_complex, "{script}: {got:?}");
        }
        let big = client.command(&["EVAL", "return string.rep('x', 64 * 1024 * 1024)", "0"]);
        assert!(matches!(&big, Value::Bulk(bytes) if bytes.len() == 64 << 20));
        // The error object is never read.
        let odd = "error(setmetatable({}, {__tostring = function() while true do end end}))";
        assert!(matches!(client.command(&["EVAL", odd, "0"]), Value::Error(_)));
    });
}
