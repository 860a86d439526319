//! Scripts of histories: each runs a program that stands in its arguments, so that the model
//! (`crate::sequential`) runs the same one without any Lua.
//!
//! ```text
//!   EVAL <text> 1 key:0   GET @1 | ? SET key:%3 v7 | ! INCR key:1
//!                         └ KEYS[1]  └ only if what was read weighs odd
//!                                          └ the key of its weight modulo 3
//!                                                     └ an error ends the script
//! ```
//! The words of a program are commands with a `|` between them. A word `@n` stands for the n-th
//! declared key, so a key that stands in full is one that the script does not declare. A final `%n`
//! stands for a number below n that follows from the reply before: such a key is known only once
//! another was read. The reply is that of all commands, in an array. An error that ends the script
//! is the reply, unless the model could not tell from it what the commands before did.
//!
//! Texts differ in a number behind them only: what a server learns of one does not count for all.

use resp::Value;

/// What stands between the commands of a program.
pub const NEXT: &[u8] = b"|";
/// Ahead of a command: it runs if the last reply weighs odd.
pub const IF_ODD: &[u8] = b"?";
/// Ahead of a command: an error of it ends the script.
pub const RAISES: &[u8] = b"!";
/// The reply of a command that did not run.
pub const SKIPPED: &[u8] = b"skipped";

/// What runs a program.
pub const TEXT: &str = "\
local function weight(value)
  if type(value) == 'string' then
    local sum = 0
    for at = 1, #value do sum = sum + value:byte(at) end
    return sum
  end
  if type(value) == 'number' then return value end
  return type(value) == 'table' and #value or 0
end
local replies, last, words, skips, raises, is_known = {}, false, {}, false, false, true
for at = 1, #ARGV + 1 do
  local word = ARGV[at]
  if word == '?' then
    skips = weight(last) % 2 == 0
  elseif word == '!' then
    raises = true
  elseif word and word ~= '|' then
    word = word:gsub('^@(%d)$', function(number) return KEYS[tonumber(number)] end)
    word = word:gsub('%%(%d)$', function(number) return weight(last) % tonumber(number) end)
    words[#words + 1] = word
  else
    if skips then
      replies[#replies + 1] = 'skipped'
    else
      local done, reply
      if raises then
        done, reply = pcall(redis.call, unpack(words))
      else
        done, reply = true, redis.pcall(unpack(words))
      end
      if not done and is_known then
        return {err = 'FAILED ' .. #replies + 1 .. ' ' .. reply}
      end
      if not done then reply = {err = reply} end
      replies[#replies + 1], last = reply, reply
      if not done then break end
      local is_refused = type(reply) == 'table' and reply.err and reply.err:find('^MISCONF')
      is_known = is_known and words[1] ~= 'SPOP' and not is_refused
    end
    words, skips, raises = {}, false, false
  end
end
return replies
";

/// Commands that change nothing.
const READING: &[&[u8]] = &[
    b"GET",
    b"STRLEN",
    b"EXISTS",
    b"TYPE",
    b"LLEN",
    b"LRANGE",
    b"HGET",
    b"HLEN",
    b"SCARD",
    b"SISMEMBER",
    b"SMEMBERS",
    b"ZCARD",
    b"ZSCORE",
    b"ZRANGE",
    b"MGET",
    b"KEYS",
    b"DBSIZE",
    b"PING",
    b"SELECT",
];

/// Whether a command changes nothing.
pub fn is_reading(name: &[u8]) -> bool {
    READING.contains(&name)
}

/// What a reply counts as, within a script.
pub fn weight(reply: &Value) -> i64 {
    match reply {
        Value::Bulk(bytes) => bytes.iter().map(|&byte| i64::from(byte)).sum(),
        Value::Integer(number) => *number,
        Value::Array(parts) => parts.len() as i64,
        _ => 0,
    }
}

/// Words as they are shown: the texts of scripts differ in their numbers only.
pub fn shown(words: &[Vec<u8>]) -> Vec<&[u8]> {
    words.iter().map(|word| word.strip_prefix(TEXT.as_bytes()).unwrap_or(word)).collect()
}
