//! Tests of every function that a script can reach, with extreme numbers, sizes, types and depths
//! in every argument. Each call must end with values or an error, and the process must not crash.
//! Under AddressSanitizer the C code of Lua is instrumented as well.
//!
//! `SAKER_EXTREMES=1000000` sets the number of calls; the seed is printed.

use fastrand::Rng;
use resp::Protocol;
use script::Vm;

use crate::server::{Server, eval, options};

/// The total number of function calls in a run of the test.
const CALLS: usize = 20_000;
/// The number of function calls that run on one Lua state, before a new one is created.
const CALLS_PER_STATE: usize = 500;
/// The number of calls of `Commands::interrupt` that let a function call continue; the next one
/// ends it.
const PATIENCE: u32 = 20;
/// The memory limit of a Lua state, in bytes: enough for texts of megabytes, and exceeded by longer
/// ones.
const MEMORY_MAX: usize = 32 << 20;
/// The maximum number of arguments with which the test calls a function.
const ARGUMENTS_MAX: usize = 5;

/// A script that returns the names of all functions: of the global table, of the tables in it, and
/// of the metatable of strings.
const FUNCTIONS: &str = "local found = {} \
    for name, value in pairs(_G) do \
        if type(value) == 'function' then found[#found + 1] = name end \
        if type(value) == 'table' and name ~= '_G' then \
            for inner, f in pairs(value) do \
                if type(f) == 'function' then found[#found + 1] = name .. '.' .. inner end \
            end \
        end \
    end \
    table.sort(found) \
    return found";

/// The Lua expressions from which arguments of functions are drawn.
const VALUES: &[&str] = &[
    // Numbers: the limits of int, long, size_t and double.
    "0",
    "-0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "8",
    "16",
    "31",
    "32",
    "33",
    "63",
    "64",
    "65",
    "255",
    "256",
    "7998",
    "7999",
    "8000",
    "8001",
    "65535",
    "65536",
    "1e6",
    "2147483646",
    "2147483647",
    "2147483648",
    "-2147483647",
    "-2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "4294967297",
    "-4294967296",
    "2^53",
    "2^53+1",
    "2^62",
    "2^63",
    "2^64",
    "-2^63",
    "-2^64",
    "1e300",
    "-1e300",
    "1e308*10",
    "-1e308*10",
    "0/0",
    "0.5",
    "-0.5",
    "1e-310",
    // Texts: empty, long, formats of every library, broken encodings.
    "''",
    "'a'",
    "'\\0'",
    "'\\0\\0\\0\\0'",
    "'\\255\\255\\255\\255\\255\\255\\255\\255'",
    "('x'):rep(100000)",
    "('%s'):rep(500)",
    "'%99.99f'",
    "'%099999d'",
    "'%q'",
    "'%c%c%c'",
    "'%d %i %o %u %x %X %e %g'",
    "'%'",
    "'%5'",
    "('('):rep(40)",
    "('(a*)'):rep(30)",
    "('a-'):rep(30) .. 'b'",
    "'[%z-\\255]'",
    "'[a'",
    "'%b()'",
    "'%f[%w]'",
    "'.-x'",
    "'>I4'",
    "'<i16i16'",
    "'!16bBhHlLfdsc0'",
    "'c2147483647'",
    "'c4294967296'",
    "'i99999999999'",
    "'!99999999999'",
    "'s'",
    "('['):rep(2000)",
    "'[' .. ('1,'):rep(2000) .. '1]'",
    "'{\"a\":1e999}'",
    "'\"\\\\ud800\"'",
    "('\\145'):rep(2000)",
    "'\\221\\255\\255\\255\\255'",
    "'\\223\\255\\255\\255\\255'",
    "'\\219\\255\\255\\255\\255'",
    "'SET'",
    "'get'",
    "'collect'",
    "'step'",
    "'0x7fffffffffffffff'",
    "'1e400'",
    "' 12 '",
    "'return ...'",
    "'while true do end'",
    "'k', 'v'",
    // Tables: empty, with holes, deep, circular, with keys that are no numbers, with metatables.
    "{}",
    "{1, 2, 3}",
    "{[2147483647] = 1}",
    "{[-2147483648] = 1}",
    "{[0.5] = 1, [1e300] = 2}",
    "{n = 2^31}",
    "{nil, nil, 3}",
    "deep(100)",
    "deep(900)",
    "deep(20000)",
    "circle()",
    "{err = 'E x'}",
    "{ok = 1}",
    "{map = {a = 1}}",
    "{double = 0/0}",
    "{big_number = '1'}",
    "{verbatim_string = {format = 'x', string = 'y'}}",
    "setmetatable({}, {__index = function() return 1 end})",
    "setmetatable({}, {__lt = function() return true end})",
    "setmetatable({}, {__tostring = function() return 1 end})",
    "setmetatable({}, {__call = function() end})",
    "setmetatable({}, {__newindex = error, __len = error, __gc = error, __mode = 'kv'})",
    // Other types.
    "nil",
    "true",
    "false",
    "function(...) return ... end",
    "function() error({}) end",
    "function() error() end",
    "function(a, b) return true end",
    "error",
    "pcall",
    "unpack",
    "string.rep",
    "cjson.null",
    "coroutine.create(function() coroutine.yield(1) end)",
    "coroutine.wrap(function() return 1 end)",
    "_G",
    "string",
    "redis",
    "KEYS",
    "ARGV",
];

/// The Lua functions that the expressions of arguments use.
const HELPERS: &str = "local function deep(n) local t = {} for i = 1, n do t = {t} end return t end \
    local function circle() local t = {} t[1] = t t.a = t return t end ";

fn state() -> Vm {
    let mut options = options();
    options.memory_limit_bytes = Some(MEMORY_MAX);
    Vm::new(&options)
}

fn run(vm: &mut Vm, program: &str) -> Vec<u8> {
    let mut server = Server { patience: Some(PATIENCE), ..Server::default() };
    let protocol = if program.len().is_multiple_of(2) { Protocol::Resp2 } else { Protocol::Resp3 };
    eval(vm, &mut server, program.as_bytes(), protocol)
}

/// Returns the names of all functions that a script can reach.
pub fn functions() -> Vec<String> {
    let reply = run(&mut state(), FUNCTIONS);
    let text = String::from_utf8(reply).expect("names are ASCII");
    let names = text.split("\r\n").filter(|line| !line.starts_with(['*', '$']) && !line.is_empty());
    names.map(str::to_owned).collect()
}

/// Returns a program that calls `function` with random arguments: by its name or, for some
/// functions of `string`, as a method of a text.
pub fn call(function: &str, rng: &mut Rng) -> String {
    let count = rng.usize(..=ARGUMENTS_MAX);
    let values: Vec<&str> = (0..count).map(|_| *rng.choice(VALUES).expect("there are some")).collect();
    let arguments = values.join(", ");
    let method = function.strip_prefix("string.").filter(|_| rng.u8(..8) == 0);
    let expression = match method {
        Some(method) => format!("('text %d'):{method}({arguments})"),
        None => format!("{function}({arguments})"),
    };
    match rng.u8(..4) {
        0 => format!("{HELPERS}return {expression}"),
        1 => format!("{HELPERS}return {{pcall(function() return {expression} end)}}"),
        2 => format!("{HELPERS}local r = {{{expression}}} return {{tostring(r[1]), #r, type(r[2])}}"),
        _ => format!("{HELPERS}return select('#', {expression})"),
    }
}

/// Returns the seed of the run: `PROPTEST_RNG_SEED`, or 1.
pub fn seed() -> u64 {
    std::env::var("PROPTEST_RNG_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}

#[test]
fn every_function_takes_extreme_arguments() {
    let functions = functions();
    for known in ["unpack", "string.format", "cjson.decode", "cmsgpack.unpack", "struct.pack", "bit.tohex"] {
        assert!(functions.iter().any(|name| name == known), "{known} is not among {functions:?}");
    }
    let calls = std::env::var("SAKER_EXTREMES").ok().and_then(|text| text.parse().ok()).unwrap_or(CALLS);
    let seed = seed();
    println!("seed {seed}, {} functions, {calls} calls", functions.len());
    let mut rng = Rng::with_seed(seed);
    let mut vm = state();
    for at in 0..calls {
        if at % CALLS_PER_STATE == 0 {
            vm = state();
        }
        // All functions in turn.
        let program = call(&functions[at % functions.len()], &mut rng);
        let reply = run(&mut vm, &program);
        assert!(!reply.is_empty(), "{program}");
    }
    assert_eq!(run(&mut vm, "return 1"), b":1\r\n");
}
