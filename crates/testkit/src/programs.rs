//! The scripts that occur in histories. Each interprets a program that is given in its arguments,
//! so the model (`crate::sequential`) can run the same program without Lua.
//!
//! ```text
//!   EVAL <text> 1 key:0   GET @1 | ? SET key:%3 v7 | ! INCR key:1
//!                         └ KEYS[1]  └ only if the last reply has an odd weight
//!                                          └ the key of its weight modulo 3
//!                                                     └ an error ends the script
//! ```
//! The words of a program are commands separated by `|`. A word `@n` stands for the n-th declared
//! key; a key that is written in full is not declared. The *weight* of a reply is a number computed
//! from it. A final `%n` stands for the weight of the last reply modulo n: this key is known only
//! after another key was read. The reply is an array with the replies of all commands.
//!
//! If an error ends the script, the reply is this error, with the number of the failed command.
//! Exception: after SPOP or a MISCONF error the reply stays the array. From the error alone the
//! model could not derive the effects of the commands before it.
//!
//! The texts of scripts differ only in a number at their end. The server stores properties (such as
//! undeclared keys) of each text separately, so a history has scripts with different properties.

use resp::Value;

/// The separator between the commands of a script's program.
pub const NEXT: &[u8] = b"|";
/// The word before a command that runs only if the [`weight`] of the last reply is odd.
pub const IF_ODD: &[u8] = b"?";
/// The word before a command whose error ends the script. Other errors are ordinary replies.
pub const RAISES: &[u8] = b"!";
/// The text in a script's reply that stands for the reply of a command whose condition was false.
pub const SKIPPED: &[u8] = b"skipped";

/// The Lua script that runs the program in its arguments (`ARGV`) and returns all replies.
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

/// The commands of script programs that do not write.
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

/// Returns true if the command `name` of a script's program does not write.
pub fn is_reading(name: &[u8]) -> bool {
    READING.contains(&name)
}

/// Returns the weight of a reply: the number that a program computes from it.
pub fn weight(reply: &Value) -> i64 {
    match reply {
        Value::Bulk(bytes) => bytes.iter().map(|&byte| i64::from(byte)).sum(),
        Value::Integer(number) => *number,
        Value::Array(parts) => parts.len() as i64,
        _ => 0,
    }
}

/// Returns the words of a history's command for messages. Of a script's text, only the number at
/// its end is shown.
pub fn shown(words: &[Vec<u8>]) -> Vec<&[u8]> {
    words.iter().map(|word| word.strip_prefix(TEXT.as_bytes()).unwrap_or(word)).collect()
}
