//! A small naive database that runs commands one at a time: the model that concurrent histories are
//! checked against.
//!
//! It knows a few dozen commands, RESP2 replies and integer scores. This is enough to provoke every
//! kind of race (lost updates, torn multi-key writes, elements popped twice), and small enough to
//! verify by reading. It has no expiry and no options, because histories use none. The state of
//! sessions (watched keys, blocked clients) is described in [`sessions`].

#[cfg(test)]
mod faulty;
mod scripts;
mod sessions;

pub use sessions::SEPARATOR;

use resp::Value;
use sessions::Sessions;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

type Bytes = Vec<u8>;

/// The value of a key in the model, one variant for each type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Object {
    String(Bytes),
    List(VecDeque<Bytes>),
    Hash(BTreeMap<Bytes, Bytes>),
    Set(BTreeSet<Bytes>),
    Zset(BTreeMap<Bytes, i64>),
}

/// The state of the model: keys and their values. An empty collection does not exist, as in Redis.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Database {
    keys: BTreeMap<Bytes, Object>,
    /// The keys of database 1 of the model, which some scripts select.
    elsewhere: BTreeMap<Bytes, Object>,
    sessions: Sessions,
}

/// Returns the keys that a command names, or `None` when it concerns all keys. WATCH concerns all
/// keys, because the client's next transaction depends on it and may name any key.
///
/// # Panics
/// Panics when the command names no key and does not concern all.
pub fn keys_of(args: &[Vec<u8>]) -> Option<Vec<Vec<u8>>> {
    let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
    keys_of_words(&words)
}

fn keys_of_words(words: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    match words {
        [b"EVAL" | b"EVAL_RO", ..] => scripts::keys_of(words),
        [b"EXEC", rest @ ..] => {
            let parts = sessions::parts_of(rest).map(keys_of_words).collect::<Option<Vec<_>>>()?;
            Some(parts.into_iter().flatten().collect())
        }
        _ => keys_in(words).map(|keys| keys.into_iter().map(<[u8]>::to_vec).collect()),
    }
}

fn keys_in<'a>(words: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    let (name, rest) = words.split_first().expect("a command has a name");
    let keys: Vec<&[u8]> = match *name {
        b"FLUSHDB" | b"FLUSHALL" | b"SWAPDB" | b"KEYS" | b"DBSIZE" | b"WATCH" | b"UNWATCH" => return None,
        // Without the timeout.
        b"BEGIN" | b"END" => rest[1..].to_vec(),
        b"MSET" | b"MSETNX" => rest.iter().step_by(2).copied().collect(),
        b"MGET" | b"DEL" | b"EXISTS" => rest.to_vec(),
        b"BLPOP" | b"BRPOP" | b"BZPOPMIN" | b"BZPOPMAX" => rest[..rest.len() - 1].to_vec(),
        b"RENAME" | b"RENAMENX" | b"COPY" | b"LMOVE" | b"RPOPLPUSH" | b"BLMOVE" | b"BRPOPLPUSH" => {
            rest.iter().take(2).copied().collect()
        }
        _ => rest.iter().take(1).copied().collect(),
    };
    assert!(!keys.is_empty(), "{} names no key", name.escape_ascii());
    Some(keys)
}

#[cfg(test)]
fn words(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A reply of the model; in case of an error, the text of the error reply.
type Answer = Result<Value, &'static str>;

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";
const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const NOT_A_HASH_INTEGER: &str = "ERR hash value is not an integer";
const SAME_OBJECT: &str = "ERR source and destination objects are the same";
const NO_SUCH_KEY: &str = "ERR no such key";

/// Defines the getter of one type, which returns the key's value to change. It creates an empty
/// value for an absent key and returns the WRONGTYPE error for another type. `data` removes a value
/// that stays empty.
macro_rules! typed {
    ($name:ident, $variant:ident, $type:ty) => {
        fn $name(&mut self, key: &[u8]) -> Result<&mut $type, &'static str> {
            match self.keys.entry(key.to_vec()).or_insert_with(|| Object::$variant(<$type>::default())) {
                Object::$variant(value) => Ok(value),
                _ => Err(WRONG_TYPE),
            }
        }
    };
}

impl Database {
    /// Runs a client's command and returns its reply. If several replies are right (SPOP, the order
    /// of a set), the model follows `actual` and returns it if it is one of them.
    ///
    /// # Panics
    /// Panics when the model does not know the command.
    pub fn run(&mut self, client: usize, args: &[Vec<u8>], actual: &Value) -> Value {
        let words: Vec<&[u8]> = args.iter().map(Vec::as_slice).collect();
        let reply = self.session(client, &words, actual);
        reply.unwrap_or_else(|line| Value::Error(line.into()))
    }

    /// Runs a command whose effect depends only on the keys, not on the client's session.
    fn data(&mut self, words: &[&[u8]], actual: &Value) -> Answer {
        let reply = self
            .strings(words)
            .or_else(|| self.keyspace(words, actual))
            .or_else(|| self.lists(words))
            .or_else(|| self.moves(words, actual))
            .or_else(|| self.hashes(words))
            .or_else(|| self.sets(words, actual))
            .or_else(|| self.zsets(words))
            .or_else(|| self.blocking_as_nonblocking(words, actual))
            .unwrap_or_else(|| panic!("the model does not know {}", words[0].escape_ascii()));
        for key in keys_in(words).unwrap_or_default() {
            if self.keys.get(key).is_some_and(Object::is_empty_collection) {
                self.keys.remove(key);
            }
        }
        reply
    }

    typed!(list, List, VecDeque<Bytes>);
    typed!(hash, Hash, BTreeMap<Bytes, Bytes>);
    typed!(set, Set, BTreeSet<Bytes>);
    typed!(zset, Zset, BTreeMap<Bytes, i64>);

    /// Returns the string value of a key; `None` if the key is absent.
    ///
    /// # Errors
    ///
    /// The WRONGTYPE error for a value of another type.
    fn string(&self, key: &[u8]) -> Result<Option<&Bytes>, &'static str> {
        match self.keys.get(key) {
            None => Ok(None),
            Some(Object::String(value)) => Ok(Some(value)),
            Some(_) => Err(WRONG_TYPE),
        }
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.keys.insert(key.to_vec(), Object::String(value.to_vec()));
    }

    fn strings(&mut self, words: &[&[u8]]) -> Option<Answer> {
        Some(match words {
            [b"GET", key] => self.string(key).map(bulk_or_null),
            [b"STRLEN", key] => self.string(key).map(|value| integer(value.map_or(0, Vec::len))),
            [b"SET", key, value] => {
                self.put(key, value);
                ok()
            }
            [b"SETNX", key, value] => {
                let is_new = !self.keys.contains_key(*key);
                if is_new {
                    self.put(key, value);
                }
                Ok(integer(usize::from(is_new)))
            }
            [b"GETSET", key, value] => {
                let old = self.string(key).map(bulk_or_null);
                if old.is_ok() {
                    self.put(key, value);
                }
                old
            }
            [b"GETDEL", key] => {
                let old = self.string(key).map(bulk_or_null);
                if old.is_ok() {
                    self.keys.remove(*key);
                }
                old
            }
            [b"APPEND", key, more] => self.append(key, more),
            [b"INCR", key] => self.add(key, 1),
            [b"DECR", key] => self.add(key, -1),
            [b"INCRBY", key, by] => self.add(key, number(by)),
            [b"MSET", pairs @ ..] => {
                pairs.chunks(2).for_each(|pair| self.put(pair[0], pair[1]));
                ok()
            }
            [b"MSETNX", pairs @ ..] => {
                let are_new = pairs.chunks(2).all(|pair| !self.keys.contains_key(pair[0]));
                if are_new {
                    pairs.chunks(2).for_each(|pair| self.put(pair[0], pair[1]));
                }
                Ok(integer(usize::from(are_new)))
            }
            // A key of another type counts as absent.
            [b"MGET", keys @ ..] => Ok(Value::Array(
                keys.iter().map(|key| bulk_or_null(self.string(key).unwrap_or(None))).collect(),
            )),
            _ => return None,
        })
    }

    fn append(&mut self, key: &[u8], more: &[u8]) -> Answer {
        let value = [self.string(key)?.map_or(&[][..], Vec::as_slice), more].concat();
        self.put(key, &value);
        Ok(integer(value.len()))
    }

    fn add(&mut self, key: &[u8], by: i64) -> Answer {
        let old = self.string(key)?.map_or(Some(0), |value| parse(value)).ok_or(NOT_AN_INTEGER)?;
        let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
        self.put(key, new.to_string().as_bytes());
        Ok(Value::Integer(new))
    }

    fn keyspace(&mut self, words: &[&[u8]], actual: &Value) -> Option<Answer> {
        Some(match words {
            [b"FLUSHDB"] => {
                self.keys.clear();
                ok()
            }
            [b"DBSIZE"] => Ok(integer(self.keys.len())),
            // In any order, as for SMEMBERS.
            [b"KEYS", b"*"] => Ok(match actual {
                Value::Array(keys) if same_members(keys, self.keys.keys()) => actual.clone(),
                _ => bulks(self.keys.keys()),
            }),
            [b"DEL", keys @ ..] => {
                Ok(integer(keys.iter().filter(|&&key| self.keys.remove(key).is_some()).count()))
            }
            [b"EXISTS", keys @ ..] => {
                Ok(integer(keys.iter().filter(|&&key| self.keys.contains_key(key)).count()))
            }
            [b"TYPE", key] => Ok(Value::Simple(self.keys.get(*key).map_or("none", Object::type_name).into())),
            [b"RENAME", from, to] => match self.keys.remove(*from) {
                None => Err(NO_SUCH_KEY),
                Some(object) => {
                    self.keys.insert(to.to_vec(), object);
                    ok()
                }
            },
            [b"RENAMENX", from, to] => match self.keys.get(*from).cloned() {
                None => Err(NO_SUCH_KEY),
                Some(_) if self.keys.contains_key(*to) => Ok(integer(0)),
                Some(object) => {
                    self.keys.remove(*from);
                    self.keys.insert(to.to_vec(), object);
                    Ok(integer(1))
                }
            },
            [b"COPY", from, to] if from == to => Err(SAME_OBJECT),
            [b"COPY", from, to] => match self.keys.get(*from).cloned() {
                Some(object) if !self.keys.contains_key(*to) => {
                    self.keys.insert(to.to_vec(), object);
                    Ok(integer(1))
                }
                _ => Ok(integer(0)),
            },
            _ => return None,
        })
    }

    fn lists(&mut self, words: &[&[u8]]) -> Option<Answer> {
        Some(match words {
            [b"LPUSH", key, elements @ ..] => self.list(key).map(|list| {
                elements.iter().for_each(|element| list.push_front(element.to_vec()));
                integer(list.len())
            }),
            [b"RPUSH", key, elements @ ..] => self.list(key).map(|list| {
                list.extend(elements.iter().map(|element| element.to_vec()));
                integer(list.len())
            }),
            [b"LPOP", key] => self.list(key).map(|list| bulk_or_null(list.pop_front().as_ref())),
            [b"RPOP", key] => self.list(key).map(|list| bulk_or_null(list.pop_back().as_ref())),
            [b"LLEN", key] => self.list(key).map(|list| integer(list.len())),
            [b"LRANGE", key, b"0", b"-1"] => self.list(key).map(|list| bulks(list.iter())),
            _ => return None,
        })
    }

    fn moves(&mut self, words: &[&[u8]], actual: &Value) -> Option<Answer> {
        let (from, to, left, to_left) = match words {
            [b"LMOVE", from, to, end, to_end] | [b"BLMOVE", from, to, end, to_end, _] => {
                (from, to, *end == b"LEFT", *to_end == b"LEFT")
            }
            [b"RPOPLPUSH", from, to] | [b"BRPOPLPUSH", from, to, _] => (from, to, false, true),
            _ => return None,
        };
        // Both types are checked before anything is moved, the source's first. An absent source
        // ends the command without a check of the destination.
        let is_there = match self.list(from) {
            Ok(list) => !list.is_empty(),
            Err(line) => return Some(Err(line)),
        };
        if !is_there {
            self.keys.remove(*from);
            return Some(Ok(null_as(actual)));
        }
        if let Err(line) = self.list(to) {
            return Some(Err(line));
        }
        let element = match left {
            true => self.list(from).expect("looked at above").pop_front(),
            false => self.list(from).expect("looked at above").pop_back(),
        };
        let element = element.expect("it is not empty");
        let to = self.list(to).expect("looked at above");
        match to_left {
            true => to.push_front(element.clone()),
            false => to.push_back(element.clone()),
        }
        Some(Ok(bulk(&element)))
    }

    fn hashes(&mut self, words: &[&[u8]]) -> Option<Answer> {
        Some(match words {
            [b"HSET", key, field, value] => self
                .hash(key)
                .map(|hash| integer(usize::from(hash.insert(field.to_vec(), value.to_vec()).is_none()))),
            [b"HGET", key, field] => self.hash(key).map(|hash| bulk_or_null(hash.get(*field))),
            [b"HDEL", key, field] => {
                self.hash(key).map(|hash| integer(usize::from(hash.remove(*field).is_some())))
            }
            [b"HLEN", key] => self.hash(key).map(|hash| integer(hash.len())),
            [b"HINCRBY", key, field, by] => self.hash(key).and_then(|hash| {
                let old = hash.get(*field).map_or(Some(0), |value| parse(value)).ok_or(NOT_A_HASH_INTEGER)?;
                hash.insert(field.to_vec(), (old + number(by)).to_string().into());
                Ok(Value::Integer(old + number(by)))
            }),
            _ => return None,
        })
    }

    fn sets(&mut self, words: &[&[u8]], actual: &Value) -> Option<Answer> {
        Some(match words {
            [b"SADD", key, members @ ..] => self
                .set(key)
                .map(|set| integer(members.iter().filter(|member| set.insert(member.to_vec())).count())),
            [b"SREM", key, members @ ..] => {
                self.set(key).map(|set| integer(members.iter().filter(|&&member| set.remove(member)).count()))
            }
            [b"SCARD", key] => self.set(key).map(|set| integer(set.len())),
            [b"SISMEMBER", key, member] => {
                self.set(key).map(|set| integer(usize::from(set.contains(*member))))
            }
            // SPOP may pop any member: the model pops the member of the reply if it exists.
            [b"SPOP", key] => self.set(key).map(|set| match actual {
                Value::Bulk(member) if set.remove(member) => actual.clone(),
                _ => bulk_or_null(set.pop_first().as_ref()),
            }),
            // Any order is right: the model returns the order of the reply if the members are
            // equal.
            [b"SMEMBERS", key] => self.set(key).map(|set| match actual {
                Value::Array(members) if same_members(members, set.iter()) => actual.clone(),
                _ => bulks(set.iter()),
            }),
            _ => return None,
        })
    }

    fn zsets(&mut self, words: &[&[u8]]) -> Option<Answer> {
        Some(match words {
            [b"ZADD", key, score, member] => self
                .zset(key)
                .map(|zset| integer(usize::from(zset.insert(member.to_vec(), number(score)).is_none()))),
            [b"ZINCRBY", key, by, member] => self.zset(key).map(|zset| {
                let score = zset.entry(member.to_vec()).or_default();
                *score += number(by);
                bulk(score.to_string().as_bytes())
            }),
            [b"ZREM", key, member] => {
                self.zset(key).map(|zset| integer(usize::from(zset.remove(*member).is_some())))
            }
            [b"ZCARD", key] => self.zset(key).map(|zset| integer(zset.len())),
            [b"ZSCORE", key, member] => self.zset(key).map(|zset| match zset.get(*member) {
                Some(score) => bulk(score.to_string().as_bytes()),
                None => Value::Null,
            }),
            [b"ZRANGE", key, b"0", b"-1"] => self.zset(key).map(|zset| bulks(by_score(zset).into_iter())),
            [b"ZPOPMIN", key] => self.zset(key).map(|zset| {
                let lowest = by_score(zset).first().map(|member| member.to_vec());
                pop_with_score(zset, lowest)
            }),
            [b"ZPOPMAX", key] => self.zset(key).map(|zset| {
                let highest = by_score(zset).last().map(|member| member.to_vec());
                pop_with_score(zset, highest)
            }),
            _ => return None,
        })
    }
}

impl Object {
    fn is_empty_collection(&self) -> bool {
        match self {
            Object::String(_) => false,
            Object::List(list) => list.is_empty(),
            Object::Hash(hash) => hash.is_empty(),
            Object::Set(set) => set.is_empty(),
            Object::Zset(zset) => zset.is_empty(),
        }
    }

    fn type_name(&self) -> &'static str {
        match self {
            Object::String(_) => "string",
            Object::List(_) => "list",
            Object::Hash(_) => "hash",
            Object::Set(_) => "set",
            Object::Zset(_) => "zset",
        }
    }
}

fn ok() -> Answer {
    Ok(Value::Simple(b"OK".to_vec()))
}

fn integer(n: usize) -> Value {
    Value::Integer(n as i64)
}

fn bulk(bytes: &[u8]) -> Value {
    Value::Bulk(bytes.to_vec())
}

fn bulk_or_null(value: Option<&Bytes>) -> Value {
    value.map_or(Value::Null, |bytes| bulk(bytes))
}

/// Returns the model's reply for a missing element: a null array if `actual` is one, otherwise a
/// null. Commands that may block can reply with either.
fn null_as(actual: &Value) -> Value {
    if *actual == Value::NullArray { Value::NullArray } else { Value::Null }
}

fn bulks<'a>(values: impl Iterator<Item = &'a Bytes>) -> Value {
    Value::Array(values.map(|value| bulk(value)).collect())
}

/// Parses an integer in canonical form: no sign except `-`, no leading zeros, no spaces.
fn parse(bytes: &[u8]) -> Option<i64> {
    let value: i64 = std::str::from_utf8(bytes).ok()?.parse().ok()?;
    (value.to_string().as_bytes() == bytes).then_some(value)
}

/// Parses an argument that the generator of the history wrote as a number.
fn number(bytes: &[u8]) -> i64 {
    parse(bytes).unwrap_or_else(|| panic!("{} is no number", bytes.escape_ascii()))
}

/// Returns true if the reply holds exactly these members, each once, in any order.
fn same_members<'a>(reply: &[Value], members: impl ExactSizeIterator<Item = &'a Bytes>) -> bool {
    let replied: BTreeSet<&[u8]> = reply.iter().filter_map(Value::as_bytes).collect();
    reply.len() == members.len() && members.map(Vec::as_slice).eq(replied)
}

/// Returns the members of a sorted set, ordered by score, then by their bytes.
fn by_score(zset: &BTreeMap<Bytes, i64>) -> Vec<&Bytes> {
    let mut members: Vec<_> = zset.iter().map(|(member, score)| (score, member)).collect();
    members.sort_unstable();
    members.into_iter().map(|(_, member)| member).collect()
}

fn pop_with_score(zset: &mut BTreeMap<Bytes, i64>, member: Option<Bytes>) -> Value {
    let popped = member.and_then(|member| zset.remove(&member).map(|score| (member, score)));
    Value::Array(
        popped.map_or(vec![], |(member, score)| vec![bulk(&member), bulk(score.to_string().as_bytes())]),
    )
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |bytes: &Bytes| bytes.escape_ascii().to_string();
        let list = |values: &mut dyn Iterator<Item = String>| values.collect::<Vec<_>>().join(" ");
        let keys = &mut self.keys.iter().map(|(key, object)| {
            let value = match object {
                Object::String(value) => format!("\"{}\"", text(value)),
                Object::List(values) => format!("[{}]", list(&mut values.iter().map(text))),
                Object::Hash(hash) => {
                    format!("{{{}}}", list(&mut hash.iter().map(|(f, v)| format!("{}={}", text(f), text(v)))))
                }
                Object::Set(set) => format!("{{{}}}", list(&mut set.iter().map(text))),
                Object::Zset(zset) => {
                    format!("{{{}}}", list(&mut zset.iter().map(|(m, s)| format!("{}:{s}", text(m)))))
                }
            };
            format!("{}={value}", text(key))
        });
        write!(f, "{{ {} }}{}", list(keys), self.sessions)
    }
}

#[cfg(test)]
mod tests {
    use super::{Database, Value, keys_of, words};
    use crate::linearizability::compact;

    /// Runs each command line on the model and compares its reply with the expected one.
    fn check(script: &[(&str, &str)]) {
        let mut database = Database::default();
        for (line, expected) in script {
            assert_eq!(compact(&database.run(0, &words(line), &Value::Null)), *expected, "{line}");
        }
    }

    #[test]
    fn strings_and_numbers() {
        check(&[
            ("SET k 5", "OK"),
            ("INCRBY k 3", "8"),
            ("DECR k", "7"),
            ("APPEND k x", "2"),
            ("INCR k", "(error) ERR value is not an integer or out of range"),
            ("GETSET k 07", "\"7x\""),
            ("INCR k", "(error) ERR value is not an integer or out of range"),
            ("GETSET k new", "\"07\""),
            ("SETNX k other", "0"),
            ("STRLEN k", "3"),
            ("MSETNX k 1 l 1", "0"),
            ("MSET k 1 l 2", "OK"),
            ("MGET k l m", "[\"1\" \"2\" (nil)]"),
            ("GETDEL k", "\"1\""),
            ("GET k", "(nil)"),
        ]);
    }

    #[test]
    fn keys_move_and_emptied_collections_are_gone() {
        check(&[
            ("RENAME a b", "(error) ERR no such key"),
            ("SET a 1", "OK"),
            ("RENAME a b", "OK"),
            ("COPY b a", "1"),
            ("RENAMENX a b", "0"),
            ("EXISTS a b c", "2"),
            ("DEL a b c", "2"),
            ("LPOP l", "(nil)"),
            ("EXISTS l", "0"),
            ("RPUSH l x", "1"),
            ("LPOP l", "\"x\""),
            ("TYPE l", "none"),
            ("MSET k 1 l 2", "OK"),
            ("KEYS *", "[\"k\" \"l\"]"),
            ("FLUSHDB", "OK"),
            ("KEYS *", "[]"),
        ]);
    }

    #[test]
    fn collections() {
        check(&[
            ("RPUSH l b c", "2"),
            ("LPUSH l a", "3"),
            ("LRANGE l 0 -1", "[\"a\" \"b\" \"c\"]"),
            ("RPOP l", "\"c\""),
            ("HSET h f 1", "1"),
            ("HINCRBY h f 4", "5"),
            ("HGET h f", "\"5\""),
            ("HDEL h f", "1"),
            ("HLEN h", "0"),
            ("SADD s a b a", "2"),
            ("SISMEMBER s a", "1"),
            ("SREM s a", "1"),
            ("SMEMBERS s", "[\"b\"]"),
            ("ZADD z 2 a", "1"),
            ("ZINCRBY z 3 b", "\"3\""),
            ("ZRANGE z 0 -1", "[\"a\" \"b\"]"),
            ("ZPOPMAX z", "[\"b\" \"3\"]"),
            ("ZSCORE z a", "\"2\""),
            ("ZCARD z", "1"),
            ("GET z", "(error) WRONGTYPE Operation against a key holding the wrong kind of value"),
            ("MGET z", "[(nil)]"),
        ]);
    }

    #[test]
    fn free_choices_follow_the_reply_when_it_is_right() {
        let mut database = Database::default();
        database.run(0, &words("SADD s a b c"), &Value::Null);
        let b = Value::Bulk(b"b".to_vec());
        assert_eq!(database.run(0, &words("SPOP s"), &b), b);
        assert_ne!(database.run(0, &words("SPOP s"), &b), b);
        database.run(0, &words("SADD s x y"), &Value::Null);
        let members = |of: &str| Value::Array(words(of).into_iter().map(Value::Bulk).collect());
        assert_eq!(database.run(0, &words("SMEMBERS s"), &members("y c x")), members("y c x"));
        assert_ne!(database.run(0, &words("SMEMBERS s"), &members("y x x")), members("y x x"));
    }

    #[test]
    fn the_keys_of_a_command_are_all_it_touches() {
        let keys = |line: &str| keys_of(&words(line)).expect("names its keys").concat();
        assert_eq!(keys("MSET a 1 b 2"), b"ab");
        assert_eq!(keys("DEL a b c"), b"abc");
        assert_eq!(keys("RENAME a b"), b"ab");
        assert_eq!(keys("LPUSH l x y"), b"l");
        assert_eq!(keys_of(&words("FLUSHDB")), None);
    }
}
