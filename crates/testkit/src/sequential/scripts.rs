//! Scripts in the model: the program in the arguments of EVAL runs at one instant (see
//! `crate::programs`).

use resp::Value;
use std::collections::VecDeque;

use super::{Answer, Bytes, Database, keys_in};
use crate::programs::{IF_ODD, NEXT, RAISES, SKIPPED, is_reading, weight};

const REFUSED: &str = "ERR Write commands are not allowed from read-only scripts.";

/// Splits the words of an EVAL request into the declared keys of its script and the script's
/// program: the words after the keys, which are the commands that it runs.
fn parts<'w, 'a>(words: &'w [&'a [u8]]) -> (&'w [&'a [u8]], &'w [&'a [u8]]) {
    let count = std::str::from_utf8(words[2]).ok().and_then(|text| text.parse().ok());
    words[3..].split_at(count.expect("a number of keys"))
}

/// Returns the keys that a script's program may use; `None` if it may use all keys.
pub(super) fn keys_of(words: &[&[u8]]) -> Option<Vec<Bytes>> {
    let (declared, program) = parts(words);
    let mut keys: Vec<Bytes> = declared.iter().map(|key| key.to_vec()).collect();
    for command in program.split(|word| *word == NEXT) {
        let command: Vec<&[u8]> =
            command.iter().copied().filter(|word| ![IF_ODD, RAISES].contains(word)).collect();
        if matches!(command[0], b"PING" | b"SELECT") {
            continue;
        }
        keys_in(&command)?.iter().for_each(|key| keys.extend(names(key, declared)));
    }
    keys.sort_unstable();
    keys.dedup();
    Some(keys)
}

/// Returns the keys to which one word of a program may refer.
fn names(word: &[u8], declared: &[&[u8]]) -> Vec<Bytes> {
    if let [b'@', number] = word {
        return vec![declared[usize::from(number - b'1')].to_vec()];
    }
    match word {
        [start @ .., b'%', count] => (b'0'..*count).map(|number| [start, &[number]].concat()).collect(),
        _ => vec![word.to_vec()],
    }
}

impl Database {
    pub(super) fn script(&mut self, words: &[&[u8]], actual: &Value, ready: &mut VecDeque<Bytes>) -> Answer {
        let (declared, program) = parts(words);
        let only_reads = words[0] == b"EVAL_RO";
        let parts_of_reply = match actual {
            Value::Array(parts) => parts.as_slice(),
            _ => &[],
        };
        let (mut replies, mut last, mut is_elsewhere) = (Vec::new(), Value::Null, false);
        let (mut failed, mut is_known) = (None, true);
        for command in program.split(|word| *word == NEXT) {
            if command.contains(&IF_ODD) && weight(&last).rem_euclid(2) == 0 {
                replies.push(Value::Bulk(SKIPPED.to_vec()));
                continue;
            }
            let actual_part = parts_of_reply.get(replies.len()).unwrap_or(&Value::Null);
            let words = command.iter().filter(|word| ![IF_ODD, RAISES].contains(word));
            let words: Vec<Bytes> = words.map(|word| in_full(word, declared, &last)).collect();
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let is_refused = only_reads && !is_reading(words[0]);
            let reply = match (&words[..], refusal(actual, actual_part, replies.len())) {
                _ if is_refused => Value::Error(REFUSED.into()),
                (_, Some(line)) => Value::Error(line),
                ([b"SELECT", db], _) => {
                    if (*db == b"1") != is_elsewhere {
                        is_elsewhere = !is_elsewhere;
                        std::mem::swap(&mut self.keys, &mut self.elsewhere);
                    }
                    Value::Simple(b"OK".to_vec())
                }
                ([b"PING"], _) => Value::Simple(b"PONG".to_vec()),
                // No client watches or is blocked on keys of database 1.
                (words, _) if is_elsewhere => in_reply(self.data(words, actual_part)),
                (words, _) => in_reply(self.followed(words, actual_part, ready)),
            };
            let ends = reply.is_error() && command.contains(&RAISES);
            if let (Value::Error(line), true) = (&reply, ends && is_known) {
                let place = format!("FAILED {} ", replies.len() + 1);
                failed = Some(Value::Error([place.as_bytes(), line].concat()));
                break;
            }
            is_known &= words[0] != b"SPOP" && !is_refusal(&reply);
            replies.push(reply.clone());
            if ends {
                break;
            }
            last = reply;
        }
        if is_elsewhere {
            std::mem::swap(&mut self.keys, &mut self.elsewhere);
        }
        Ok(failed.unwrap_or(Value::Array(replies)))
    }
}

/// Returns true if the reply is the error MISCONF: the server could not write its append-only file.
fn is_refusal(reply: &Value) -> bool {
    matches!(reply, Value::Error(line) if line.starts_with(b"MISCONF"))
}

/// Returns the error MISCONF if the server refused this command because it could not write its
/// append-only file; otherwise `None`. `actual` is the reply of the whole script, `part` the reply
/// of the command in it. `before` is the number of replies before it.
fn refusal(actual: &Value, part: &Value, before: usize) -> Option<Bytes> {
    let line = match (actual, part) {
        (Value::Error(line), _) => line.strip_prefix(format!("FAILED {} ", before + 1).as_bytes())?,
        (_, Value::Error(line)) => line.as_slice(),
        _ => return None,
    };
    line.starts_with(b"MISCONF").then(|| line.to_vec())
}

/// Converts a word of a script's program: `@n` to the n-th declared key, and a final `%n` to the
/// weight of the last reply modulo n. Returns other words unchanged.
fn in_full(word: &[u8], declared: &[&[u8]], last: &Value) -> Bytes {
    match word {
        [b'@', number] => declared[usize::from(number - b'1')].to_vec(),
        [start @ .., b'%', count] => {
            let number = weight(last).rem_euclid(i64::from(count - b'0'));
            [start, number.to_string().as_bytes()].concat()
        }
        _ => word.to_vec(),
    }
}

/// Converts the reply of a command to its form in the reply of the script that ran it. Scripts have
/// only one kind of null.
fn in_reply(reply: Answer) -> Value {
    match reply {
        Ok(Value::NullArray) => Value::Null,
        Ok(Value::Array(parts)) => Value::Array(parts.into_iter().map(|part| in_reply(Ok(part))).collect()),
        Ok(reply) => reply,
        Err(line) => Value::Error(line.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{Database, Value, keys_of};
    use crate::linearizability::compact;
    use crate::sequential::words;

    #[test]
    fn a_program_runs_as_in_lua() {
        let mut database = Database::default();
        for (line, expected) in [
            ("EVAL t 1 n INCR @1 | ? SET k v | GET k", "[1 OK \"v\"]"),
            ("EVAL t 1 n INCR @1 | ? SET k w | GET k", "[2 \"skipped\" \"v\"]"),
            ("EVAL t 0 INCR n | RPUSH l:%2 a | LRANGE l:1 0 -1", "[3 1 [\"a\"]]"),
            (
                "EVAL t 0 SET k 1 | ! INCR l:1 | SET k 2",
                "(error) FAILED 2 WRONGTYPE Operation against a key holding the wrong kind of value",
            ),
            (
                "EVAL_RO t 0 GET k | SET k 3",
                "[\"1\" (error) ERR Write commands are not allowed from read-only scripts.]",
            ),
            ("EVAL t 0 SELECT 1 | KEYS * | SET k 4 | DBSIZE", "[OK [] OK 1]"),
            (
                "EVAL t 1 k GET @1 | SPOP s | ! INCR l:1 | PING",
                "[\"1\" (nil) (error) WRONGTYPE Operation against a key holding the wrong kind of value]",
            ),
        ] {
            assert_eq!(compact(&database.run(0, &words(line), &Value::Null)), expected, "{line}");
        }
    }

    #[test]
    fn the_keys_of_a_script_are_all_that_it_may_use() {
        let keys = |line: &str| {
            let words = words(line);
            keys_of(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()).map(|keys| keys.concat())
        };
        assert_eq!(
            keys("EVAL t 1 a GET b | ? SET c%2 @1 | ! DEL @1 | PING").as_deref(),
            Some(&b"abc0c1"[..])
        );
        assert_eq!(keys("EVAL t 1 a GET @1 | DBSIZE"), None);
    }
}
