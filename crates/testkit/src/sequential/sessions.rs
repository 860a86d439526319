//! The state of sessions in the model: transactions, watched keys, blocked clients.
//!
//! Commands that occur in histories only, not in servers:
//!
//! - `EXEC SET a 1 ; GET a` is a whole transaction. It runs at one instant, and its reply is that
//!   of EXEC.
//! - `BEGIN BLPOP a b` and `END BLPOP a b` are one command of a client, `BLPOP a b <timeout>`. At
//!   the instant of `BEGIN` it pops an existing element, or the client joins the end of the queue.
//!   `END` carries the command's reply. Its instant is the timeout or, if the client was served,
//!   any later instant.
//! - `BLPOP a b <timeout>` unchanged: at one instant it pops an existing element or finds no
//!   element. This check is weaker. It is for histories with commands that a server serves step by
//!   step (BLMOVE).
//!
//! From `BEGIN` and `END` the model knows the blocked clients and requires Redis' order. A created
//! key serves the client that has been blocked longest, at the instant of the command or
//! transaction that created the key. No other client can pop an element before.
//!
//! The check is stricter if the two instants are known more exactly. `BEGIN` returns when the
//! client was seen blocked. `END` of a client that was not served is called after its timeout, if
//! that time is known. Otherwise the client may have timed out at once. Then a server that forgot
//! to serve it is detected only when the key is created again and serves the client.
//!
//! A watched key counts as changed when a command changes its value, or writes the same value again
//! (`SET`).

use super::{Answer, Bytes, Database, Object, bulks, null_as, ok};
use resp::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

/// The separator between the commands of a transaction in a history.
pub const SEPARATOR: &[u8] = b";";

/// The state of the sessions of all clients in the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sessions {
    /// The watched keys of each client, by client number.
    pub(super) watching: BTreeMap<usize, Watch>,
    /// The blocked clients, the one that has been blocked longest first.
    pub(super) queue: Vec<Waiting>,
    /// The results of blocking commands that were served, by client number: the words of the reply
    /// array, or an error. The client's `END` removes its result.
    pub(super) served: BTreeMap<usize, Result<Vec<Bytes>, &'static str>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Watch {
    keys: BTreeSet<Bytes>,
    pub(super) is_stale: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Waiting {
    pub(super) client: usize,
    verb: Bytes,
    keys: Vec<Bytes>,
}

/// Splits the words of a history's transaction into its commands.
pub(super) fn parts_of<'w, 'a>(rest: &'w [&'a [u8]]) -> impl Iterator<Item = &'w [&'a [u8]]> {
    rest.split(|word| *word == SEPARATOR)
}

impl Database {
    /// Runs a command of a client, with the state of its session: WATCH, a transaction, the
    /// beginning or the end of a blocking command, or any other command.
    pub(super) fn session(&mut self, client: usize, words: &[&[u8]], actual: &Value) -> Answer {
        match words {
            [b"WATCH", keys @ ..] => {
                let watch = self.sessions.watching.entry(client).or_default();
                watch.keys.extend(keys.iter().map(|key| key.to_vec()));
                ok()
            }
            [b"UNWATCH"] => {
                self.sessions.watching.remove(&client);
                ok()
            }
            [b"EXEC", rest @ ..] => self.exec(client, rest, actual),
            [b"BEGIN", verb, keys @ ..] => self.begin_wait(client, verb, keys),
            [b"END", ..] => self.end_wait(client),
            _ => {
                let mut ready = VecDeque::new();
                let reply = self.step(words, actual, &mut ready);
                self.serve(ready);
                reply
            }
        }
    }

    fn exec(&mut self, client: usize, rest: &[&[u8]], actual: &Value) -> Answer {
        if self.sessions.watching.remove(&client).is_some_and(|watch| watch.is_stale) {
            return Ok(Value::NullArray);
        }
        let actual = match actual {
            Value::Array(actual) => actual.as_slice(),
            _ => &[],
        };
        let mut ready = VecDeque::new();
        let mut replies = Vec::new();
        for (at, part) in parts_of(rest).enumerate() {
            let reply = self.step(part, actual.get(at).unwrap_or(&Value::Null), &mut ready);
            replies.push(reply.unwrap_or_else(|line| Value::Error(line.into())));
        }
        self.serve(ready);
        Ok(Value::Array(replies))
    }

    /// Runs a command or a script on the model. Appends the created keys on which clients are
    /// blocked to `ready`.
    fn step(&mut self, words: &[&[u8]], actual: &Value, ready: &mut VecDeque<Bytes>) -> Answer {
        match words[0] {
            b"EVAL" | b"EVAL_RO" => self.script(words, actual, ready),
            _ => self.followed(words, actual, ready),
        }
    }

    /// Runs a command on the model. Marks the watched keys that it changes. Appends the keys that
    /// it creates and on which clients are blocked to `ready`.
    pub(super) fn followed(
        &mut self,
        words: &[&[u8]],
        actual: &Value,
        ready: &mut VecDeque<Bytes>,
    ) -> Answer {
        let watched = self.sessions.watching.values().flat_map(|watch| &watch.keys);
        let waited = self.sessions.queue.iter().flat_map(|waiting| &waiting.keys);
        let keys: BTreeSet<Bytes> = watched.chain(waited).cloned().collect();
        let before: Vec<Option<Object>> = keys.iter().map(|key| self.keys.get(key).cloned()).collect();
        let reply = self.data(words, actual);
        let written = reply.as_ref().map_or_else(|_| Vec::new(), |reply| written_anyway(words, reply));
        for (key, before) in keys.into_iter().zip(before) {
            let now = self.keys.get(&key);
            let kind = |object: Option<&Object>| object.map(std::mem::discriminant);
            let is_made =
                matches!(now, Some(Object::List(_) | Object::Zset(_))) && kind(before.as_ref()) != kind(now);
            if before.as_ref() != now || written.contains(&key.as_slice()) {
                self.note_change(&key);
            }
            if is_made && !ready.contains(&key) {
                ready.push_back(key);
            }
        }
        reply
    }

    /// Marks the watched key `key` as changed, so that the transactions of the clients that watch
    /// it fail.
    fn note_change(&mut self, key: &[u8]) {
        let watching = self.sessions.watching.values_mut();
        watching.filter(|watch| watch.keys.contains(key)).for_each(|watch| watch.is_stale = true);
    }

    /// Serves the clients that are blocked on these keys, oldest first.
    fn serve(&mut self, mut ready: VecDeque<Bytes>) {
        while let Some(key) = ready.pop_front() {
            let mut at = 0;
            while let Some(Waiting { client, verb, keys }) = self.sessions.queue.get(at).cloned() {
                let is_there = match self.keys.get(&key) {
                    Some(Object::List(_)) => matches!(&*verb, b"BLPOP" | b"BRPOP"),
                    Some(Object::Zset(_)) => matches!(&*verb, b"BZPOPMIN" | b"BZPOPMAX"),
                    _ => false,
                };
                // The client is served from the first of its keys that exists, which may be another
                // than `key`. If that key has the wrong type, the client receives the error.
                let mut keys = keys.iter().filter(|_| is_there && keys.contains(&key));
                match keys.find_map(|key| self.pop(&verb, key).transpose()) {
                    Some(popped) => {
                        self.sessions.queue.remove(at);
                        self.sessions.served.insert(client, popped);
                    }
                    None => at += 1,
                }
            }
        }
    }

    /// Pops an element for the blocking command `verb` from one key. Returns the words of the
    /// reply; `None` if the key is absent.
    fn pop(&mut self, verb: &[u8], key: &[u8]) -> Result<Option<Vec<Bytes>>, &'static str> {
        let verb: &[u8] = match verb {
            b"BLPOP" => b"LPOP",
            b"BRPOP" => b"RPOP",
            b"BZPOPMIN" => b"ZPOPMIN",
            b"BZPOPMAX" => b"ZPOPMAX",
            _ => panic!("the model does not wait by {}", verb.escape_ascii()),
        };
        if !self.keys.contains_key(key) {
            return Ok(None);
        }
        let words =
            |values: &[Value]| values.iter().filter_map(Value::as_bytes).map(<[u8]>::to_vec).collect();
        let popped: Vec<Bytes> = match self.data(&[verb, key], &Value::Null)? {
            Value::Array(parts) => words(&parts),
            element => words(&[element]),
        };
        Ok(Some([vec![key.to_vec()], popped].concat()))
    }

    fn begin_wait(&mut self, client: usize, verb: &[u8], keys: &[&[u8]]) -> Answer {
        for key in keys {
            if let Some(popped) = self.pop(verb, key).transpose() {
                if popped.is_ok() {
                    self.note_change(key);
                }
                self.sessions.served.insert(client, popped);
                return ok();
            }
        }
        let keys = keys.iter().map(|key| key.to_vec()).collect();
        self.sessions.queue.push(Waiting { client, verb: verb.to_vec(), keys });
        ok()
    }

    fn end_wait(&mut self, client: usize) -> Answer {
        match self.sessions.served.remove(&client) {
            Some(served) => served.map(|words| bulks(words.iter())),
            None => {
                self.sessions.queue.retain(|waiting| waiting.client != client);
                Ok(Value::NullArray)
            }
        }
    }

    /// Runs a blocking command that has no `BEGIN` and `END`. It pops an existing element, or times
    /// out at once. Returns `None` for any other command.
    pub(super) fn blocking_as_nonblocking(&mut self, words: &[&[u8]], actual: &Value) -> Option<Answer> {
        let (verb, keys) = match words {
            [verb @ (b"BLPOP" | b"BRPOP" | b"BZPOPMIN" | b"BZPOPMAX"), keys @ .., _timeout] => (*verb, keys),
            _ => return None,
        };
        let popped = keys.iter().find_map(|key| self.pop(verb, key).transpose());
        Some(popped.map_or(Ok(null_as(actual)), |popped| popped.map(|words| bulks(words.iter()))))
    }
}

/// Returns the keys that a command writes even if their values stay the same; for WATCH they count
/// as changed.
fn written_anyway<'a>(words: &[&'a [u8]], reply: &Value) -> Vec<&'a [u8]> {
    match words {
        [b"SET" | b"GETSET" | b"HSET", key, ..] => vec![key],
        [b"MSET", pairs @ ..] => pairs.iter().step_by(2).copied().collect(),
        [b"RENAME", from, to] if from != to => vec![to],
        [b"LMOVE" | b"RPOPLPUSH" | b"BLMOVE" | b"BRPOPLPUSH", from, to, ..]
            if matches!(reply, Value::Bulk(_)) =>
        {
            vec![from, to]
        }
        _ => Vec::new(),
    }
}

impl fmt::Display for Sessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |words: &mut dyn Iterator<Item = &Bytes>| {
            words.map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
        };
        for (client, Watch { keys, is_stale }) in &self.watching {
            let stale = if *is_stale { " and knows of a change" } else { "" };
            write!(f, "; client {client} watches {}{stale}", text(&mut keys.iter()))?;
        }
        for Waiting { client, verb, keys } in &self.queue {
            write!(f, "; client {client} waits by {} {}", verb.escape_ascii(), text(&mut keys.iter()))?;
        }
        for (client, served) in &self.served {
            match served {
                Ok(words) => write!(f, "; client {client} was served {}", text(&mut words.iter()))?,
                Err(line) => write!(f, "; client {client} was refused: {line}")?,
            }
        }
        Ok(())
    }
}
