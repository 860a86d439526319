//! Scripts that run for ever or take all memory, on the only I/O thread: others are answered,
//! SCRIPT KILL and FUNCTION KILL end them, the process lives, and the memory comes back.

use std::time::Duration;

use testkit::{Client, Value};

use crate::busy::{BUSY, BUSY_FUNCTION, ask, expect};
use crate::support::{connect, info, on_each_back_end_with};

/// None of these ends by itself, or not for hours.
const ENDLESS: &[&str] = &[
    "while true do end",
    // Memory.
    "local t = {} while true do t[#t + 1] = ('x'):rep(100) .. #t if #t > 1e5 then t = {} end end",
    "local s = ('x'):rep(2^24) while true do local t = s .. 'y' end",
    "while true do string.rep('x', 2^25) end",
    "local t = {} while true do t = {t} if #t > 1 then t = {} end collectgarbage() end",
    "local s = ('x'):rep(2^22) while true do s:upper() s:lower() s:reverse() s:format() end",
    "local s = ('x'):rep(2^22) while true do s:find('y', 1, true) end",
    "local s = ('a'):rep(2^20) while true do s:gsub('a', 'bb') end",
    "local s = ('%'):rep(2^18) while true do s:gsub('.', '%0%0%0%0') end",
    // Patterns.
    "return ('a'):rep(40):find(('a*'):rep(20) .. 'b')",
    "return ('a'):rep(40):match(('a-'):rep(20) .. 'b')",
    "return ('a'):rep(40):match(('a?'):rep(40) .. ('a'):rep(40) .. 'b')",
    "return ('('):rep(2e6):find('%b()')",
    "return ('a'):rep(1e6):find('.-b')",
    "return ('a'):rep(1e6):gsub('(.-)(.-)b', '%1')",
    "return ('a'):rep(1e5):gsub('a*b', function() end)",
    "return ('a'):rep(1e5):gsub('a*a*b', {})",
    "for w in ('a'):rep(1e6):gmatch('a*a*a*b') do end",
    "return ('ab'):rep(1e5):find('(.+)%1c')",
    "return ('a '):rep(1e5):find('%f[%a].-%f[%A].-b')",
    "return ('a'):rep(1e6):find('[^b]*[ab]*[ac]*$b')",
    // What would catch the end.
    "while true do pcall(function() while true do end end) end",
    "while true do pcall(string.find, ('a'):rep(40), ('a*'):rep(20) .. 'b') end",
    "while true do xpcall(function() while true do end end, function() while true do end end) end",
    "local function f() return pcall(f) end while true do f() end",
    "local function f() return 1 + f() end while true do pcall(f) end",
    "local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end",
    "while true do coroutine.resume(coroutine.create(function() while true do pcall(error) end end)) end",
    "while true do coroutine.wrap(function() ('a'):rep(40):find(('a*'):rep(20) .. 'b') end)() end",
    // Metatables and errors.
    "return tostring(setmetatable({}, {__tostring = function() while true do end end}))",
    "return setmetatable({}, {__index = function(t, k) while true do end end}).x",
    "return #('x'):gsub('x', setmetatable({}, {__index = function() while true do end end}))",
    "while true do setmetatable({}, {__gc = function() while true do end end}) end",
    "while true do pcall(error, setmetatable({}, {__tostring = function() while true do end end})) end",
    "return setmetatable({}, {__concat = function() while true do end end}) .. 'x'",
    // Libraries.
    "local t = {} for i = 1, 300 do t[i] = i end while true do pcall(table.sort, t, function() return true end) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do cjson.encode(t) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end local s = cjson.encode(t) while true do cjson.decode(s) end",
    "local t = {} for i = 1, 1e5 do t[i] = i end while true do cmsgpack.unpack(cmsgpack.pack(t)) end",
    "local t = {} for i = 1, 1e5 do t[i] = 'x' end while true do table.concat(t, ',') end",
    "local t = {} for i = 1, 1e6 do t[i] = i end while true do t[#t + 1] = table.remove(t, 1) end",
    "local t = {} for i = 1, 7000 do t[i] = i end while true do select('#', unpack(t)) end",
    "local s = ('x = 1 '):rep(1e4) while true do loadstring(s)() end",
    "while true do redis.sha1hex(('x'):rep(2^16)) end",
    "while true do redis.pcall('GET') redis.call('ECHO', 'x') end",
];

/// Asks until a script is busy.
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
        // Nothing reads an error object.
        let odd = "error(setmetatable({}, {__tostring = function() while true do end end}))";
        assert!(matches!(client.command(&["EVAL", odd, "0"]), Value::Error(_)));
    });
}
