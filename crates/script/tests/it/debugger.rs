//! Tests of the debugger: sessions with extreme commands. Each must end with the reply of the
//! script or an error, and the process must not crash.

use std::collections::VecDeque;

use fastrand::Rng;
use resp::Protocol;
use script::{Call, DebugClient, Received, Sha, Vm};
use stdx::ByteQueue;

use crate::extremes::{call, functions, seed};
use crate::server::{Server, options};

/// The number of debug sessions in a run of the test.
const SESSIONS: usize = 1_000;
/// The maximum number of commands in a debug session.
const COMMANDS_MAX: usize = 12;
/// The memory limit of a Lua state, in bytes.
const MEMORY_MAX: usize = 32 << 20;

/// The scripts that the sessions of the test debug.
const SCRIPTS: &[&str] = &[
    "local a = 1\nlocal t = {a, {a}}\nt[3] = t\nt[t] = t\nlocal s = ('x'):rep(100000)\nreturn a",
    "local function f(n)\n  if n == 0 then return redis.breakpoint() end\n  return f(n - 1) == f\nend\nreturn f(150)",
    "local function f(n)\n  if n == 0 then redis.breakpoint() error('x') end\n  return {pcall(f, n - 1)}\nend\nreturn f(190)",
    "local c = coroutine.wrap(function()\n  redis.breakpoint()\n  coroutine.yield(1)\nend)\nc()\nreturn c()",
    "return redis.call('set', 'k',\n  redis.pcall('get', 'k') or 'v')",
    "redis.debug(_G, KEYS, {{{}}}, nil, 0/0, ('x'):rep(1000))\nwhile true do end",
    "redis.breakpoint()\n\n\n\r\n",
    "",
];

/// The names of the debugger's commands, also unknown ones.
const NAMES: &[&str] = &[
    "s", "n", "c", "l", "w", "p", "b", "t", "m", "e", "r", "a", "h", "step", "LIST", "whole", "print",
    "break", "trace", "maxlen", "eval", "redis", "x", "\0", "\r\n",
];

/// The arguments that the sessions pass to the debugger's commands.
const ARGUMENTS: &[&str] = &[
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "64",
    "1000000",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "9223372036854775807",
    "-9223372036854775808",
    "99999999999999999999",
    "-99999999999999999999",
    "1e9",
    "x",
    "\r\n",
    "a",
    "t",
    "s",
    "n",
    "KEYS",
    "ARGV",
    "(*temporary)",
    "_G",
    "get",
    "set",
    "k",
    "reply",
    "*2147483647\r\n",
    "*1\r\n*1\r\n*1\r\n",
    "$9223372036854775807\r\nx\r\n",
    "return",
    "while true do end",
    "redis.breakpoint()",
    "error({})",
    "error()",
    "coroutine.yield(1)",
    "redis.call('again')",
    "redis.call('set')",
    "('x'):rep(1e9)",
    "('x'):rep(1e7)",
    "setmetatable({}, {__index = error, __tostring = error})",
    "\u{1b}LuaQ",
    "$",
    "[==[",
];

/// Inputs of the client that the debugger cannot parse as a command.
const BROKEN: &[&str] = &[
    "*0\r\n",
    "*1025\r\n",
    "*-9223372036854775808\r\n",
    "*99999999999999999999\r\n",
    "*1\r\n$1025\r\n",
    "*1\r\n$-1\r\n",
    "*1\r\n$99999999999999999999\r\n",
    "PING\r\n",
    "*1\r\n$4\r\nabcdef",
    "*",
    "\r\n\r\n",
];

/// A debugging client that sends its input in pieces and then closes the connection.
struct Player {
    pieces: VecDeque<Vec<u8>>,
    asked: u32,
}

impl DebugClient for Player {
    fn send(&mut self, bytes: &[u8]) {
        // An array of status lines.
        assert_eq!(bytes.first(), Some(&b'*'));
        assert!(bytes.ends_with(b"\r\n"));
    }

    fn receive(&mut self, input: &mut Vec<u8>) -> Received {
        self.asked += 1;
        if self.asked.is_multiple_of(7) {
            return Received::Nothing;
        }
        match self.pieces.pop_front() {
            Some(piece) => {
                input.extend(piece);
                Received::Bytes
            }
            None => Received::Gone,
        }
    }

    fn is_overdue(&mut self) -> bool {
        self.asked += 1;
        self.asked.is_multiple_of(3)
    }
}

/// Encodes a random command, at times an invalid one.
fn command(functions: &[String], rng: &mut Rng) -> Vec<u8> {
    if rng.u8(..20) == 0 {
        return rng.choice(BROKEN).expect("there are some").as_bytes().to_vec();
    }
    let mut words = vec![(*rng.choice(NAMES).expect("there are some")).to_owned()];
    if rng.u8(..4) == 0 {
        words = vec!["e".to_owned(), call(rng.choice(functions).expect("there are some"), rng)];
    }
    let count = if rng.u8(..30) == 0 { 1000 } else { rng.usize(..4) };
    words.extend((0..count).map(|_| (*rng.choice(ARGUMENTS).expect("there are some")).to_owned()));
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    words.iter().for_each(|word| bytes.extend(format!("${}\r\n{word}\r\n", word.len()).bytes()));
    bytes
}

#[test]
fn sessions_with_extreme_commands_end() {
    let functions = functions();
    let seed = seed();
    println!("seed {seed}, {SESSIONS} sessions");
    let mut rng = Rng::with_seed(seed);
    let mut options = options();
    options.memory_limit_bytes = Some(MEMORY_MAX);
    for at in 0..SESSIONS {
        let script = SCRIPTS[at % SCRIPTS.len()].as_bytes();
        let pieces = (0..rng.usize(..=COMMANDS_MAX)).map(|_| command(&functions, &mut rng)).collect();
        let mut vm = Vm::debugged(&options, script, Box::new(Player { pieces, asked: 0 }));
        let mut server = Server { patience: Some(50), ..Server::default() };
        let sha = Sha::of(script);
        vm.compile(&sha, script).expect("the scripts compile");
        let call = Call { keys: &[b"key"], args: &[b"a"], protocol: Protocol::Resp2 };
        let mut reply = ByteQueue::new();
        let ended = vm.run(&sha, &call, &mut server, &mut reply);
        vm.end_debugging();
        assert!(ended.is_err() || !reply.is_empty(), "session {at} of seed {seed}");
    }
}
