//! Any text is a script or is refused as one, any bytes go through the libraries that decode, and
//! any function is called with extreme arguments: the first byte chooses. Whatever happens is a
//! reply or an error.
#![no_main]

use std::cell::RefCell;

use resp::Protocol;
use script::{Call, Commands, LogLevel, NoSuchCall, Repl, Sha, Stop, Vm, VmOptions};
use stdx::ByteQueue;

/// What the bytes go through: `ARGV[1]`.
const PROGRAMS: [&str; 5] = [
    "return {pcall(cjson.decode, ARGV[1])}",
    "return {pcall(cmsgpack.unpack, ARGV[1])}",
    "return {pcall(struct.unpack, ARGV[1], ARGV[1])}",
    "return {pcall(struct.pack, ARGV[1], 1, 2, 'text', 4)}",
    "return redis.pcall('REPLY', ARGV[1])",
];
/// Functions that are called with [`VALUES`].
const FUNCTIONS: [&str; 40] = [
    "unpack",
    "select",
    "tonumber",
    "tostring",
    "rawget",
    "rawset",
    "next",
    "setmetatable",
    "getmetatable",
    "loadstring",
    "error",
    "assert",
    "pcall",
    "xpcall",
    "string.rep",
    "string.sub",
    "string.byte",
    "string.char",
    "string.format",
    "string.find",
    "string.gsub",
    "string.dump",
    "table.concat",
    "table.insert",
    "table.remove",
    "table.sort",
    "table.maxn",
    "math.random",
    "math.ldexp",
    "math.fmod",
    "cjson.encode",
    "cjson.decode",
    "cmsgpack.pack",
    "cmsgpack.unpack_limit",
    "struct.pack",
    "struct.unpack",
    "bit.lshift",
    "bit.tohex",
    "redis.call",
    "coroutine.wrap",
];
/// Their arguments: a byte of the input each.
const VALUES: [&str; 32] = [
    "0",
    "1",
    "-1",
    "2",
    "7999",
    "8000",
    "65536",
    "2147483647",
    "2147483648",
    "-2147483648",
    "-2147483649",
    "4294967296",
    "2^53",
    "2^63",
    "-2^63",
    "1e308*10",
    "0/0",
    "0.5",
    "''",
    "'a'",
    "'%99.99f'",
    "'%d%s%q'",
    "('x'):rep(70000)",
    "'i16c0s'",
    "{}",
    "{'a', 'b'}",
    "{{{{}}}}",
    "{[2147483647] = 1}",
    "nil",
    "true",
    "function(...) return ... end",
    "ARGV[1]",
];
/// What Lua may take, in bytes.
const MEMORY_MAX: usize = 16 << 20;
/// Looks at whether a script may go on; then it is ended.
const PATIENCE: u32 = 20;

thread_local! {
    static VM: RefCell<Vm> = RefCell::new(Vm::new(&VmOptions {
        redis_version: "8.0.2".to_owned(),
        redis_version_number: 0x08_0002,
        server_name: "saker".to_owned(),
        server_version: "0.0.0".to_owned(),
        memory_limit_bytes: Some(MEMORY_MAX),
    }));
}

/// A server whose every reply is an error, but for one command, which replies what it is given.
#[derive(Default)]
struct Server {
    asked: u32,
    reply: Vec<u8>,
}

impl Commands for Server {
    fn call(&mut self, words: &[&[u8]], _: Protocol) -> Result<&[u8], Stop> {
        self.interrupt()?;
        self.reply = match words {
            [b"REPLY", reply] => reply.to_vec(),
            _ => b"-ERR no\r\n".to_vec(),
        };
        Ok(&self.reply)
    }

    fn interrupt(&mut self) -> Result<(), Stop> {
        self.asked += 1;
        if self.asked > PATIENCE { Err(Stop::Killed) } else { Ok(()) }
    }

    fn log(&mut self, _: LogLevel, _: &[u8]) {}

    fn set_repl(&mut self, _: Repl) {}

    fn acl_check_cmd(&mut self, _: &[&[u8]]) -> Result<bool, NoSuchCall> {
        Ok(true)
    }
}

/// Makes a call of the function that the first byte chooses, with an argument for each of the next.
fn call(bytes: &[u8]) -> String {
    let (first, rest) = bytes.split_first().unwrap_or((&0, &[]));
    let value = |byte: &u8| VALUES[usize::from(*byte) % VALUES.len()];
    let arguments: Vec<&str> = rest.iter().take(5).map(value).collect();
    let function = FUNCTIONS[usize::from(*first) % FUNCTIONS.len()];
    format!("return {{pcall(function() return {function}({}) end)}}", arguments.join(", "))
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let choice = usize::from(choice) % (PROGRAMS.len() + 6);
    let made = (choice > PROGRAMS.len() + 2).then(|| call(bytes));
    let program = made.as_deref().or(PROGRAMS.get(choice).copied()).map(str::as_bytes);
    VM.with_borrow_mut(|vm| {
        let (body, sha) = (program.unwrap_or(bytes), Sha::of(program.unwrap_or(bytes)));
        if vm.compile(&sha, body).is_ok() {
            let call = Call { keys: &[], args: &[bytes], protocol: Protocol::Resp3 };
            let _ = vm.run(&sha, &call, &mut Server::default(), &mut ByteQueue::new());
        }
        if program.is_none() {
            vm.evict(&sha);
            let library = [b"#!lua name=fuzz\n", bytes].concat();
            let _ = vm.load_library(&library, &mut Server::default());
        }
    });
});
