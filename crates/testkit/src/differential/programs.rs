//! Random Lua programs for EVAL: calls of commands, conversions, the libraries, errors.
//!
//! Programs contain nothing that depends on the order of a hash table: no commands with unordered
//! replies and no tables with more than one name. They do not print the text of a table, which is
//! an address. They avoid two constructs that crash Redis 8.0.2 or make it loop for ever. These are
//! errors that are tables without `err`, and `load` with a function.

use std::fmt::Write;

use crate::rng::Rng;

/// Maximum number of statements of a random Lua program.
const STATEMENTS_MAX: usize = 6;

/// Maximum nesting depth of expressions in a random Lua program.
const DEPTH_MAX: u32 = 3;

/// Templates of commands as Lua arguments: `$k` is a key, `$v` a value, `$n` a number.
const COMMANDS: &[&str] = &[
    "'GET', $k",
    "'SET', $k, $v",
    "'SET', $k, $v, 'NX', 'GET'",
    "'APPEND', $k, $v",
    "'STRLEN', $k",
    "'INCR', $k",
    "'INCRBY', $k, $n",
    "'INCRBYFLOAT', $k, $n",
    "'MGET', $k, $k",
    "'EXISTS', $k, $k",
    "'TYPE', $k",
    "'DEL', $k",
    "'PERSIST', $k",
    "'RPUSH', 'l0', $v, $v",
    "'LPUSH', $k, $v",
    "'LRANGE', 'l0', 0, -1",
    "'LRANGE', $k, $n, $n",
    "'LPOP', 'l0', 2",
    "'LPOS', 'l0', $v",
    "'HSET', 'h0', $v, $v",
    "'HSET', $k, 'f', $v",
    "'HGET', 'h0', $v",
    "'HMGET', 'h0', $v, 'f'",
    "'HDEL', 'h0', $v",
    "'HINCRBYFLOAT', 'h0', 'n', $n",
    "'SADD', 'e0', $v",
    "'SISMEMBER', 'e0', $v",
    "'SMISMEMBER', 'e0', $v, $v",
    "'SCARD', 'e0'",
    "'ZADD', 'z0', $n, $v",
    "'ZINCRBY', 'z0', $n, $v",
    "'ZSCORE', 'z0', $v",
    "'ZMSCORE', 'z0', $v, $v",
    "'ZRANGE', 'z0', 0, -1, 'WITHSCORES'",
    "'ZRANGEBYSCORE', 'z0', $n, $n",
    "'ZRANK', 'z0', $v, 'WITHSCORE'",
    "'XADD', 'x9', '*'",
    "'XLEN', 'x0'",
    "'XRANGE', 'x0', '-', '+'",
    "'SETBIT', $k, 7, 1",
    "'BITCOUNT', $k",
    "'OBJECT', 'ENCODING', $k",
    "'ECHO', $v",
    "'PING'",
    "'SELECT', 0",
    "'DBSIZE', 'x'",
    "'GET'",
    "'NOSUCH', $v",
    "'EVAL', 'return 1', 0",
    "'MULTI'",
    "'COMMAND', 'GETKEYS', 'GET', $v",
    "$v, $v",
    "$k",
    "",
];

/// Templates of expressions: `$e` is an expression, `$c` a command; the others as in [`COMMANDS`].
const EXPRESSIONS: &[&str] = &[
    "$v",
    "$n",
    "$c",
    "$c",
    "$c",
    "nil",
    "true",
    "false",
    "{}",
    "{$e}",
    "{$e, $e, $e}",
    "{$e, nil, $e}",
    "{ok = $v}",
    "{err = $v}",
    "{double = $n}",
    "{map = {a = $e}}",
    "{set = {a = true}}",
    "{big_number = '12345678901234567890'}",
    "{verbatim_string = {format = 'txt', string = $v}}",
    "{field = $e}",
    "tostring($n)",
    "tostring($v)",
    "tostring($e == $e)",
    "tonumber($e)",
    "tonumber($v, 16)",
    "type($e)",
    "$n .. $v",
    "select('#', $e, $e)",
    "{pcall(function() return $e end)}",
    "{pcall(function() error($v) end)}",
    "{pcall(function() return $e + $e end)}",
    "{pcall(function() return $e .. $e end)}",
    "{pcall(function() return $e < $e end)}",
    "{pcall(function() return $e.field end)}",
    "{pcall(error, {err = $v})}",
    "{pcall(unpack, {$e, $e})}",
    "redis.status_reply($v)",
    "redis.error_reply($v)",
    "redis.sha1hex($v)",
    "string.format('%d %5.2f %s', $n, $n, $v)",
    "string.format('%q', $v)",
    "string.format('%g %x %c', $n, 255, 65)",
    "string.rep($v, 3)",
    "string.sub($v, $n, -2)",
    "string.byte($v, 1, -1)",
    "{string.find($v, 'a', 1, true)}",
    "{string.gsub($v, '%w', '%0%0')}",
    "{string.match($v, '^(%a*)(%d*)$')}",
    "string.upper($v)",
    "math.floor($n)",
    "math.max($n, $n)",
    "math.fmod($n, 7)",
    "$n % 3",
    "2 ^ $n",
    "$n / 0",
    "{pcall(cjson.encode, $e)}",
    "{pcall(cjson.decode, $v)}",
    "{pcall(cjson.decode, '{\"a\":[1,2.5,null,true,\"x\"]}')}",
    "{pcall(cjson.decode, cjson.encode({$n, $v}))}",
    "{pcall(cmsgpack.pack, $e)}",
    "{pcall(function() return cmsgpack.unpack(cmsgpack.pack($e, $e)) end)}",
    "{pcall(cmsgpack.unpack, $v)}",
    "{pcall(struct.pack, '>I2i4ds', $n, $n, $n, $v)}",
    "{pcall(struct.unpack, '<I2B', $v)}",
    "{pcall(bit.band, $n, $n)}",
    "bit.tohex($n)",
    "{pcall(bit.lshift, $n, 3)}",
    "table.concat({$v, $v}, ',')",
    "{pcall(table.concat, {$e, $e})}",
    "{pcall(table.sort, {3, $n, 1})}",
    "(function() local t = {3, 1, 2} table.sort(t) return t end)()",
    "{pcall(redis.setresp, $n)}",
    "{pcall(setmetatable, {}, {})}",
    "{pcall(function() undefined_name = 1 end)}",
    "{pcall(function() return undefined_name end)}",
    "{pcall(function() redis.call = nil end)}",
    "{pcall(loadstring, $v)}",
    "loadstring('return 1 + 1')()",
    "#KEYS",
    "ARGV",
];

const VALUES: &[&str] = &[
    "ARGV[1]",
    "ARGV[2]",
    "KEYS[1]",
    "'a'",
    "'f'",
    "''",
    "'12'",
    "'-3.5'",
    "'x\\0y\\r\\n'",
    "'0x1F'",
    "' 7 '",
    "'1e3'",
    "'{\"a\":1}'",
    "'[1,[2]]'",
    "'\\129\\161a\\1'",
    "('v'):rep(70)",
];

const NUMBERS: &[&str] = &[
    "0",
    "-0",
    "1",
    "2",
    "-1",
    "3.5",
    "-2.75",
    "0.1",
    "1e3",
    "1e15",
    "1e16",
    "123456789012345678",
    "2^53",
    "2^63",
    "-2^63",
    "1e100",
    "1e-7",
    "math.huge",
    "-math.huge",
    "0/0",
    "tonumber('12')",
    "#ARGV",
];

const KEYS: &[&str] = &["KEYS[1]", "KEYS[1]", "KEYS[2]", "'s0'", "'s1'", "'l0'", "'h0'", "ARGV[1]"];

/// Returns a random Lua program for EVAL. Some programs are wrong on purpose.
pub fn program(rng: &mut Rng) -> Vec<u8> {
    let mut text = String::new();
    if rng.percent(5) {
        text.push_str(rng.pick::<&str>(&[
            "#!lua\n",
            "#!lua flags=no-writes\n",
            "#!lua flags=x\n",
            "#!luau\n",
        ]));
    }
    if rng.percent(15) {
        text.push_str("redis.setresp(3) ");
    }
    let statements = rng.below(STATEMENTS_MAX);
    for at in 0..statements {
        let value = expression(rng, DEPTH_MAX);
        let statement = match rng.below(8) {
            0 => format!("if {value} then redis.call('SET', 's1', 'yes') end"),
            1 => format!("for i = 1, 3 do redis.pcall('RPUSH', 'l1', i, type({value})) end"),
            2 => format!("redis.pcall({})", arguments(rng)),
            _ => String::new(),
        };
        write!(text, "local r{at} = {value} {statement} ").expect("a string takes it");
    }
    let earlier: Vec<String> = (0..statements).map(|at| format!("r{at}")).collect();
    let last = match rng.below(12) {
        0 => format!("error({})", rng.pick::<&str>(VALUES)),
        1 => String::new(),
        2 => "return return".to_owned(),
        3..7 => format!("return {{{}}}", earlier.join(", ")),
        _ => format!("return {}", expression(rng, DEPTH_MAX)),
    };
    text.push_str(&last);
    text.into_bytes()
}

fn expression(rng: &mut Rng, depth: u32) -> String {
    let template = if depth == 0 { *rng.pick(&["$v", "$n", "$c"]) } else { *rng.pick(EXPRESSIONS) };
    fill(template, rng, depth.saturating_sub(1))
}

fn arguments(rng: &mut Rng) -> String {
    let template = *rng.pick(COMMANDS);
    fill(template, rng, 0)
}

/// Replaces each placeholder (`$` and a letter) of a template of Lua text by a random text of its
/// kind.
fn fill(template: &str, rng: &mut Rng, depth: u32) -> String {
    let mut parts = template.split('$');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (kind, rest) = part.split_at(1);
        match kind {
            "k" => text.push_str(rng.pick::<&str>(KEYS)),
            "v" => text.push_str(rng.pick::<&str>(VALUES)),
            "n" => text.push_str(rng.pick::<&str>(NUMBERS)),
            "c" => {
                let call = if rng.percent(60) { "pcall" } else { "call" };
                write!(text, "redis.{call}({})", arguments(rng)).expect("a string takes it");
            }
            _ => text.push_str(&expression(rng, depth)),
        }
        text.push_str(rest);
    }
    text
}
