//! Tests of scripts and libraries of extreme depth and length. The parser, calls, metamethods,
//! error handlers and the libraries each have a limit. Every program must end with values or an
//! error, and the Lua state must still be able to run scripts afterwards.

use resp::Protocol;
use script::Vm;

use crate::server::{Server, eval, options};

/// Depths and lengths of the programs, around the limits of Lua (200 levels of C, 200 locals, 250
/// registers, 8,000 values of C, 20,000 calls).
const SIZES: &[usize] = &[0, 1, 2, 60, 199, 200, 201, 255, 256, 8001, 20_000, 70_000];
/// The size above which the compiled code of a program takes much of a state's memory. The test
/// then continues with a new state.
const LONG: usize = 10_000;
/// The memory limit of a Lua state, in bytes.
const MEMORY_MAX: usize = 16 << 20;
/// The number of calls of `Commands::interrupt` that let a program continue; the next one ends it.
const PATIENCE: u32 = 20;

/// Nested syntax of programs: a text before, a repeated part, the middle, a repeated part, and a
/// text after.
const SYNTAX: &[[&str; 5]] = &[
    ["return ", "(", "1", ")", ""],
    ["return ", "{", "", "}", ""],
    ["return ", "{{}, a = ", "1", "}", ""],
    ["", "do ", "", "end ", ""],
    ["", "if true then ", "", "end ", ""],
    ["", "while true do ", "break ", "end ", ""],
    ["", "for i = 1, 1 do ", "", "end ", ""],
    ["", "repeat ", "", "until true ", ""],
    ["", "if x then else", "if y then", "", " end"],
    ["return ", "- ", "1", "", ""],
    ["return ", "not ", "1", "", ""],
    ["return ", "#", "''", "", ""],
    ["return ", "'a' .. ", "'a'", "", ""],
    ["return ", "2 ^ ", "1", "", ""],
    ["return ", "1 + ", "1", "", ""],
    ["return ", "1 and ", "1", "", ""],
    ["return ", "1 < (2 == ", "1", ")", ""],
    ["return ", "function() return ", "1", " end", ""],
    ["local a = {} a = a", "[a", "", "]", ""],
    ["local a = {} return a", ".a", "", "", ""],
    ["local a = tostring return a", "(a)", "", "", ""],
    ["local a = '' return a", ":len()", "", "", ""],
    ["local a", ", a", "", "", ""],
    ["local a = 1", ", 1", "", "", ""],
    ["local t = {} ", "t.a, ", "t.b", "", " = 1"],
    ["return {", "1, ", "", "", "}"],
    ["return {", "{}, ", "", "", "}"],
    ["return {", "a = 1, ", "", "", "}"],
    ["return tostring(", "1, ", "1", "", ")"],
    ["return function(", "a, ", "...", "", ") return ... end"],
    ["local a = 1 return function() return 1", " + a", "", "", " end"],
    ["local s = '", "\\255", "", "", "' return s"],
    ["local s = '", "\\\n", "", "", "' return s"],
    ["return ", "", "[", "=", ""],
    ["--[", "=", "[", "\n", ""],
    ["return 1", "0", "", "", ""],
    ["return 0x", "f", "", "", ""],
    ["return a", "a", "", "", " = 1"],
];

/// Programs that nest, repeat or grow `N` times as they run.
const PROGRAMS: &[&str] = &[
    "local function f(n) return n == 0 and 0 or 1 + f(n - 1) end return f(N)",
    "local function f(n) if n == 0 then return 0 end return f(n - 1) end return f(N)",
    "local function f(n) if n == 0 then error('x') end return pcall(f, n - 1) end return {f(N)}",
    "local function f(n) if n == 0 then error({}) end return xpcall(function() f(n - 1) end, f) end return {f(N)}",
    "local function h(e) return xpcall(error, h, e) end return {xpcall(error, h)}",
    "return {xpcall(error, function() error({}) end)}",
    "local function h() return h() + 1 end return {xpcall(error, h)}",
    "local function f(n) if n == 0 then return 'b' end return (('a'):gsub('a', function() return f(n - 1) end)) end return f(N)",
    "local t = {1, 2, 3} local n = N local function f(a, b) n = n - 1 if n > 0 then table.sort(t, f) end return a < b end table.sort(t, f) return t",
    "local t = {} for i = 1, math.min(N, 3000) do t[i] = i % 7 end table.sort(t, function() return true end) return #t",
    "local t = {} for i = 1, N do t = setmetatable({}, {__index = t}) end return t.x",
    "local t = {} for i = 1, N do t = setmetatable({}, {__newindex = t}) end t.x = 1 return 1",
    "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
    "local t = setmetatable({}, {}) getmetatable(t).__newindex = t t.x = 1",
    "local m = {} m.__index = function(t, k) return t[k + 1] end return setmetatable({}, m)[1]",
    "local m = {} m.__call = setmetatable({}, m) return setmetatable({}, m)()",
    "local m = {} m.__concat = function(a, b) return a .. b end local t = setmetatable({}, m) return t .. t",
    "local m = {} m.__lt = function(a, b) return a < b end return setmetatable({}, m) < setmetatable({}, m)",
    "local m = {} m.__eq = function(a, b) return a == b end return setmetatable({}, m) == setmetatable({}, m)",
    "local m = {} m.__unm = function(a) return -a end return -setmetatable({}, m)",
    "local m = {} m.__tostring = function(a) return tostring(a) end return tostring(setmetatable({}, m))",
    "local function f(n) if n == 0 then return 1 end return coroutine.wrap(f)(n - 1) end return f(N)",
    "local t = {} for i = 1, math.min(N, 2000) do t[i] = coroutine.create(function() coroutine.yield() end) coroutine.resume(t[i]) end return #t",
    "local c c = coroutine.create(function() return coroutine.resume(c) end) return {coroutine.resume(c)}",
    "local c = coroutine.wrap(function() return pcall(coroutine.yield, 1) end) return {c(), c()}",
    "local f f = function(n) if n == 0 then return 1 end return load(function() f(n - 1) return nil end) end f(N) return 1",
    "local f f = function(n) if n == 0 then return 1 end return loadstring('return ...')(f)(n - 1) end return f(N)",
    "return loadstring(('('):rep(N))",
    "local t = {} for i = 1, N do t = {t} end return t",
    "local t = {} for i = 1, N do t = {t} end return cjson.encode(t)",
    "local t = {} for i = 1, N do t = {a = t} end return cjson.encode(t)",
    "local t = {} for i = 1, N do t = {t} end return #cmsgpack.pack(t)",
    "local t = {} for i = 1, N do t = {t} end error(t)",
    "return cjson.decode(('['):rep(N) .. (']'):rep(N))",
    "return cjson.decode(('{\"a\":'):rep(N) .. '1' .. ('}'):rep(N))",
    "return cmsgpack.unpack(('\\145'):rep(N) .. '\\192')",
    "return cmsgpack.unpack(('\\129\\161a'):rep(N) .. '\\192')",
    "return {cmsgpack.unpack(('\\192'):rep(N))}",
    "return redis.call('reply', ('*1\\r\\n'):rep(N) .. ':1\\r\\n')",
    "local t = {} for i = 1, N do t[i] = 'a' end return redis.call('set', unpack(t))",
    "local t = {} for i = 1, N do t[i] = 'a' end return redis.pcall(unpack(t))",
    "local t = {} for i = 1, N do t[i] = i end return {string.char(unpack(t))}",
    "local t = {} for i = 1, N do t[i] = i end return string.format(('%d'):rep(N), unpack(t))",
    "local t = {} for i = 1, N do t[i] = i end return select('#', unpack(t))",
    "local function f(...) return select('#', ...) end return f(('a'):rep(N):byte(1, -1))",
    "local function f(...) return ... end local t = {} for i = 1, N do t[i] = i end return {f(f(unpack(t)), unpack(t))}",
    "return ('a'):rep(N):find(('a?'):rep(N) .. ('a'):rep(N))",
    "return ('a'):rep(N):match(('(a)'):rep(N))",
    "return ('('):rep(N):find('%b()')",
    "return #('x'):rep(N):rep(N)",
    "local s = 'x' for i = 1, math.min(N, 64) do s = s .. s end return #s",
    "local t = {} for i = 1, N do t[i] = 'x' end return #table.concat(t, ('y'):rep(1000))",
    "error(('x'):rep(N))",
    "error({err = ('x'):rep(N)})",
    "error({err = {}})",
    "error({})",
    "error(nil)",
    "error(function() end)",
    "error(setmetatable({}, {__index = error, __tostring = error}))",
    "return setmetatable({}, {__index = error, __tostring = error})",
    "error('x', N)",
    "error('x', -N)",
    "return {err = {}}",
    "return {err = ''}",
    "return {ok = {}}",
    "return {map = N}",
    "return {set = {map = {[{}] = {}}}}",
    "return {double = 'x', big_number = {}}",
    "return {next({}, {})}",
    "local t = {} for i = 1, N do t[i] = i end for k in pairs(t) do t[k] = nil t[-k] = 1 end return 1",
    "rawset(_G, 'x', 1)",
    "rawset(redis, 'call', 1)",
    "setmetatable(_G, nil)",
    "setmetatable(redis, {})",
    "getmetatable('').__index = nil",
    "getmetatable('').x = 1",
    "getmetatable(_G).__index = nil",
    "_G._G = nil",
    "string.len = nil",
    "for k in pairs(_G) do _G[k] = nil end",
    "setfenv(N, {}) return 1",
    "getfenv(-N) return 1",
    "setfenv(1, setmetatable({}, {__index = function(_, k) return _[k] end})) return x",
    "return newproxy(true)",
    "getmetatable(newproxy(true)).__gc = function() error('x') end collectgarbage() return 1",
    "for i = 1, N do setmetatable({}, {__gc = error, __mode = 'kv'}) end collectgarbage() return collectgarbage('count') > 0",
    "redis.setresp(N)",
    "redis.log(N, 'x')",
    "redis.log(-N, ('x'):rep(N))",
    "redis.log(3, unpack({}, 1, N))",
    "redis.set_repl(N)",
    "redis.breakpoint() redis.debug(unpack({}, 1, N)) return 1",
    "redis.register_function('f', error)",
    "redis.register_function{function_name = ('f'):rep(N), callback = error}",
    "redis.register_function{function_name = 'f', callback = error, flags = {N}}",
    "for i = 1, N do redis.register_function('f' .. i, function() end) end",
    "while true do end",
    "pcall(function() while true do end end) while true do pcall(error) end",
    "while true do xpcall(error, function() while true do end end) end",
    "local t = {} while true do t[#t + 1] = ('x'):rep(100000) .. #t end",
    "local t = {} while true do pcall(function() t[#t + 1] = ('x'):rep(100000) .. #t end) end",
];

fn state() -> Vm {
    let mut options = options();
    options.memory_limit_bytes = Some(MEMORY_MAX);
    Vm::new(&options)
}

fn server() -> Server {
    Server { patience: Some(PATIENCE), ..Server::default() }
}

/// Runs `program` as a script and as the code of a library, and checks that the Lua state still
/// works.
fn check(vm: &mut Vm, program: &str) {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let reply = eval(vm, &mut server(), program.as_bytes(), protocol);
        assert!(!reply.is_empty(), "{}", &program[..program.len().min(200)]);
    }
    let library = format!("#!lua name=depths\n{program}");
    let _ = vm.load_library(library.as_bytes(), &mut server());
    vm.drop_library(b"depths");
    let works = eval(vm, &mut server(), b"return string.format('%d', #{pcall(error, 1)})", Protocol::Resp2);
    assert_eq!(works.escape_ascii().to_string(), r"$1\r\n2\r\n", "{}", &program[..program.len().min(200)]);
}

#[test]
fn syntax_of_any_depth_ends() {
    let mut vm = state();
    for [before, opened, middle, closed, after] in SYNTAX {
        for &size in SIZES {
            let (opened, closed) = (opened.repeat(size), closed.repeat(size));
            check(&mut vm, &format!("{before}{opened}{middle}{closed}{after}"));
            // The program, cut in the middle.
            check(&mut vm, &format!("{before}{opened}"));
            if size > LONG {
                // Compiled scripts are kept, and long ones fill the memory.
                vm = state();
            }
        }
        vm = state();
    }
}

#[test]
fn programs_of_any_depth_end() {
    for program in PROGRAMS {
        let mut vm = state();
        let sizes = if program.contains('N') { SIZES } else { &SIZES[..1] };
        for size in sizes {
            check(&mut vm, &program.replace('N', &size.to_string()));
        }
    }
}
