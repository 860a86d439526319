//! Tests of the fixes in `src/lua/patches` for flaws of Lua 5.1.5, which is from 2012.

use std::time::Duration;

use resp::Protocol;
use script::{Sha, Vm};

use crate::server::{Server, eval, options};

/// Returns the reply to `program`, run by EVAL, as text.
fn reply(program: &str) -> String {
    let (mut vm, mut server) = (Vm::new(&options()), Server::default());
    eval(&mut vm, &mut server, program.as_bytes(), Protocol::Resp2).escape_ascii().to_string()
}

/// Runs `program` and compares its reply, without line ends, with `wanted`.
fn check(program: &str, wanted: &str) {
    assert_eq!(reply(program).replace("\\r\\n", " ").trim_end(), wanted, "{program}");
}

#[test]
fn issue_33_unpack_counts_without_overflow() {
    for range in [
        "0, 2147483647",
        "-1, 2147483647",
        "-2147483648, 2147483647",
        "-2147483647, 0",
        "1, 2147483647",
        "2147483647 - 8000, 2147483647",
        "0, 8000",
    ] {
        let program =
            format!("local _, e = pcall(function() return unpack({{'a', 'b'}}, {range}) end) return e");
        let found = reply(&program).replace("\\r\\n", " ");
        assert!(found.ends_with("too many results to unpack "), "{program}: {found}");
    }
    check("return select('#', unpack({}, 2147483640, 2147483647))", ":8");
    check("return select('#', unpack({}, -2147483648, -2147483640))", ":9");
    check("return {unpack({'a', 'b'}, 1, 2)}", "*2 $1 a $1 b");
    check("return select('#', unpack({}, 2, 1))", ":0");
}

#[test]
fn issue_33_the_name_of_a_chunk_survives_collections() {
    // The constants are as long as the name, so that they take its memory if it is freed.
    let lines: String = (0..20_000).map(|line| format!("x = '{line:012}'\n")).collect();
    let wanted =
        "-ERR Error compiling script (new function): user_script:20001: unexpected symbol near \\'$\\'\\r\\n";
    assert_eq!(reply(&format!("{lines}$")), wanted);
}

#[test]
fn issue_33_long_brackets_of_any_level() {
    for level in [0, 1, 2, 100, 5000] {
        let equals = "=".repeat(level);
        check(&format!("--[{equals}[ a ]{equals}]\nreturn [{equals}[x]y]{equals}]"), "$3 x]y");
        if level > 0 {
            let found = reply(&format!("return [{equals}"));
            assert!(found.contains("invalid long string delimiter near"), "{found}");
        }
        let found = reply(&format!("return [{equals}[ ]"));
        assert!(found.contains("unfinished long string"), "{found}");
    }
    check("local t = {7} return t[1]", ":7");
}

#[test]
fn issue_33_errors_in_a_first_token() {
    for text in ["$", "'", "\"", "[=", "--[[", "0x", "\\0"] {
        assert!(reply(text).starts_with("-ERR Error compiling script (new function): "), "{text}");
    }
}

#[test]
fn issue_33_bytecode_is_refused() {
    check("return loadstring(string.dump(function() return 1 end)) and 'loaded' or 'refused'", "$7 refused");
    check("return load(function() return nil end) and 'loaded'", "$6 loaded");
    assert!(reply("\x1bLuaQ").starts_with("-ERR Error compiling script"));
}

#[test]
fn issue_33_all_bytes_of_a_text_are_hashed() {
    // The order is that of Redis 8.0.2.
    let program = "local t = {} for i = 1, 8 do t[('k'):rep(40) .. i .. ('z'):rep(40)] = i end \
        local out = '' for _, v in pairs(t) do out = out .. v end return out";
    check(program, ORDER);
}

/// The reply of Redis 8.0.2 to the program that adds eight long keys to a table.
const ORDER: &str = "$8 48271635";

/// Returns the shortest of the CPU times of three calls of `work`.
fn cpu_time(mut work: impl FnMut()) -> Duration {
    let used = || {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    };
    let times = (0..3).map(|_| {
        let start = used();
        work();
        used() - start
    });
    times.min().expect("three")
}

/// Checks that `work` with eight times the size takes far less than 64 times the CPU time, so it is
/// not quadratic.
fn check_linear(name: &str, work: impl Fn(usize)) {
    let (short, long) = (cpu_time(|| work(4_000)), cpu_time(|| work(32_000)));
    assert!(long < short * 30, "{name}: {short:?}, and {long:?} for eight times the length");
}

#[test]
fn issue_33_long_scripts_compile_in_linear_time() {
    for [before, part, after] in [
        ["if x then ", "elseif x then ", " end"],
        ["return ", "x or ", "x"],
        ["return ", "x and ", "x"],
        ["while true do ", "if x then break end ", "end"],
    ] {
        check_linear(part, |count| {
            let program = format!("{before}{}{after}", part.repeat(count));
            let mut vm = Vm::new(&options());
            vm.compile(&Sha::of(program.as_bytes()), program.as_bytes()).expect("it is short enough");
        });
    }
}

#[test]
fn issue_33_jumps_lead_to_their_targets() {
    let chain = |count| {
        let branches: String = (1..=count).map(|at| format!("elseif n == {at} then r = {at} ")).collect();
        let conditions: String = (1..=count).map(|at| format!("or n == {at} and {at} ")).collect();
        let breaks: String =
            (1..=count).map(|at| format!("if n == {at} then r = r + {at} break end ")).collect();
        format!(
            "local function f(n) local r if n == 0 then r = 0 {branches}else r = -1 end \
             local s = n == 0 and 0 {conditions}or -1 \
             while true do {breaks}break end return r + 10000 * s end \
             return {{f(0), f(1), f(2), f({count} / 2), f({count}), f({count} + 1)}}"
        )
    };
    check(&chain(4), "*6 :0 :10002 :20004 :20004 :40008 :-10001");
    check(&chain(200), "*6 :0 :10002 :20004 :1000200 :2000400 :-10001");
}

#[test]
fn issue_33_many_functions_register_in_linear_time() {
    check_linear("register_function", |count| {
        let code = format!(
            "#!lua name=many\nfor i = 1, {count} do redis.register_function('f' .. i, function() end) end"
        );
        let mut vm = Vm::new(&options());
        let library = vm.load_library(code.as_bytes(), &mut Server::default()).expect("it loads");
        assert_eq!(library.functions.len(), count);
    });
}

#[test]
fn memory_that_a_script_no_longer_uses_is_freed_at_its_end() {
    let (mut vm, mut server) = (Vm::new(&options()), Server::default());
    let before_bytes = vm.memory_bytes();
    for program in [
        "local text = string.rep('x', 32 * 1048576) return #(text .. text)",
        "local all = {} for n = 1, 500000 do all[n] = {n} end return #all",
    ] {
        let reply = eval(&mut vm, &mut server, program.as_bytes(), Protocol::Resp2);
        assert!(reply.starts_with(b":"), "{}", reply.escape_ascii());
        assert!(vm.memory_bytes() < before_bytes + (4 << 20), "{program}: {}", vm.memory_bytes());
    }
}
