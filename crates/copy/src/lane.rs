//! A lane: copies a share of the keys, over one connection to the source and one to the target. It
//! determines the order of reads and writes. It does no I/O: requests are appended to buffers,
//! replies are passed in.
//!
//! ```text
//!   changed ─┐           source                        target
//!   queued  ─┴─ feed ──► PEXPIRETIME, DUMP ─ reply ──► RESTORE or DEL ─ reply ──► Outcome
//! ```
//! Replies come in the order of the requests, so the only state is a queue of the expected replies.
//! After a lost connection, [`Lane::reset`] queues all keys with unanswered requests again.

use std::collections::VecDeque;

use resp::{Value, encode_request};

use crate::changes::ChangedKeys;
use crate::key::Key;
use crate::rate::Budget;
use crate::verdict::{ExpiryForm, Facts, Method, Refusal};

/// The maximum number of connections in a row that a lane loses before any of them gives a result.
const FRUITLESS_RESETS_MAX: u32 = 10;

/// The work that a lane has to do for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// Copy the key; if the source does not have it, remove it from the target.
    Copy,
    /// Compare the key's value and expiry on both servers.
    Compare,
    /// Remove the key from the target if the source does not have it.
    Sweep,
}

/// The result of a task (copy, comparison or removal) for one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key was written to the target. Contains the length of its payload, in bytes.
    Copied(usize),
    /// The source does not have the key, so the lane removed it from the target.
    Removed {
        /// True if the target had the key before.
        was_there: bool,
    },
    /// A server refused the key. Contains the error of this server.
    Refused(Key, Refusal, String),
    /// The key has the same value and expiry on both servers.
    Equal,
    /// The value or the expiry differs between the servers.
    Different(Key),
    /// The source has the key, so the target keeps it.
    Kept,
}

/// The commands by which expiries are read and values are compared; both servers know them.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// The way in which expiries are read and written.
    pub expiry: ExpiryForm,
    /// The method of comparing values: by digest or by DUMP payload.
    pub method: Method,
}

/// A reply that the lane expects from the source, and the key that it is about.
#[derive(Debug)]
enum AtSource {
    Select,
    Expiry,
    /// The reply to the last of a task's requests about a key.
    Key(Task, Key),
}

/// A reply that the lane expects from the target, and the key that it is about.
#[derive(Debug)]
enum AtTarget {
    Select,
    Expiry,
    Restore(Key, usize),
    Delete(Key),
    /// The reply about the content of a key to compare. The key is in [`Lane::comparing`].
    Compare,
}

/// The state of one of the lane's two connections: the selected database, and the expiry that was
/// read last.
#[derive(Debug, Default)]
struct Side {
    db: u32,
    expiry: i64,
}

impl Side {
    /// Selects `db` if it is not selected. Returns true if this appended a request to `out`.
    fn select(&mut self, db: u32, out: &mut Vec<u8>) -> bool {
        let is_other = self.db != db;
        if is_other {
            encode_request(&[&b"SELECT"[..], db.to_string().as_bytes()], out);
            self.db = db;
        }
        is_other
    }
}

/// The state of one lane: its queued keys, the replies that it expects, and the state of its two
/// connections.
#[derive(Debug)]
pub struct Lane {
    /// The changed keys. They are copied before the keys of a scan.
    pub changed: ChangedKeys,
    queued: VecDeque<(Task, Key)>,
    dialect: Dialect,
    source: Side,
    target: Side,
    at_source: VecDeque<AtSource>,
    at_target: VecDeque<AtTarget>,
    /// The number of keys whose replies the lane expects from either server: those in `at_source`
    /// and `at_target`.
    in_flight: usize,
    /// The number of results of tasks since the connections were last reset. `fruitless_resets` is
    /// the number of successive resets without any result between them.
    results: u64,
    fruitless_resets: u32,
    comparing: VecDeque<Key>,
    source_facts: VecDeque<Facts>,
    target_facts: VecDeque<Facts>,
}

impl Lane {
    /// Creates a lane whose queue of changed keys uses at most `changed_len_bytes_max` bytes.
    pub fn new(dialect: Dialect, changed_len_bytes_max: usize) -> Self {
        Self {
            changed: ChangedKeys::new(changed_len_bytes_max),
            queued: VecDeque::new(),
            dialect,
            source: Side::default(),
            target: Side::default(),
            at_source: VecDeque::new(),
            at_target: VecDeque::new(),
            in_flight: 0,
            results: 0,
            fruitless_resets: 0,
            comparing: VecDeque::new(),
            source_facts: VecDeque::new(),
            target_facts: VecDeque::new(),
        }
    }

    /// Adds a key that a scan has returned to the lane's queue, for `task`.
    pub fn push(&mut self, task: Task, key: Key) {
        self.queued.push_back((task, key));
    }

    /// Returns the number of keys that scans have returned and that wait in the lane's queue.
    pub fn queued(&self) -> usize {
        self.queued.len()
    }

    /// Returns the number of keys whose requests are not all answered yet.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Appends requests until `window` keys have unanswered requests, the budget is used up, or no
    /// key is due. Changed keys are due if they changed at `changed_until_ns` or before.
    pub fn feed(
        &mut self,
        window: usize,
        changed_until_ns: u64,
        budget: &mut Budget,
        (source, target): (&mut Vec<u8>, &mut Vec<u8>),
    ) {
        while self.in_flight < window {
            let is_due = !self.queued.is_empty() || !self.changed.is_empty();
            if !is_due || !budget.take_key() {
                return;
            }
            let changed = self.changed.pop(changed_until_ns).map(|key| (Task::Copy, key));
            let Some((task, key)) = changed.or_else(|| self.queued.pop_front()) else { return };
            self.begin(task, key, source, target);
        }
    }

    fn begin(&mut self, task: Task, key: Key, source: &mut Vec<u8>, target: &mut Vec<u8>) {
        self.in_flight += 1;
        if self.source.select(key.db, source) {
            self.at_source.push_back(AtSource::Select);
        }
        match task {
            Task::Sweep => encode_request(&[b"EXISTS", &key.name[..]], source),
            Task::Copy => {
                self.ask_expiry(&key, source);
                encode_request(&[b"DUMP", &key.name[..]], source);
            }
            Task::Compare => {
                self.ask_expiry(&key, source);
                self.ask_content(&key, source);
                if self.target.select(key.db, target) {
                    self.at_target.push_back(AtTarget::Select);
                }
                encode_request(&[self.dialect.expiry.command(), &key.name], target);
                self.ask_content(&key, target);
                self.at_target.extend([AtTarget::Expiry, AtTarget::Compare]);
                self.comparing.push_back(key.clone());
            }
        }
        self.at_source.push_back(AtSource::Key(task, key));
    }

    fn ask_expiry(&mut self, key: &Key, source: &mut Vec<u8>) {
        encode_request(&[self.dialect.expiry.command(), &key.name], source);
        self.at_source.push_back(AtSource::Expiry);
    }

    fn ask_content(&self, key: &Key, out: &mut Vec<u8>) {
        match self.dialect.method {
            Method::Digest => encode_request(&[b"DEBUG", &b"DIGEST-VALUE"[..], &key.name], out),
            Method::Payload => encode_request(&[b"DUMP", &key.name[..]], out),
        }
    }

    /// Handles the next reply of the source. Appends the requests that follow from it to `target`.
    /// Returns the result of the key's task, or `None` if it is not decided yet.
    pub fn on_source(&mut self, reply: &Value, target: &mut Vec<u8>) -> Option<Outcome> {
        match self.at_source.pop_front()? {
            AtSource::Select => refused_select(self.source.db, reply),
            AtSource::Expiry => {
                self.source.expiry = if let Value::Integer(expiry) = reply { *expiry } else { -1 };
                None
            }
            AtSource::Key(Task::Compare, _) => {
                let facts = Facts::of(self.dialect.method, self.source.expiry, reply);
                self.source_facts.push_back(facts);
                self.judge()
            }
            AtSource::Key(task, key) => match reply {
                Value::Bulk(payload) if task == Task::Copy => {
                    self.restore(key, payload, target);
                    None
                }
                Value::Null | Value::Integer(0) => {
                    self.delete(key, target);
                    None
                }
                Value::Integer(_) => self.done(Outcome::Kept),
                Value::Error(error) => self.done(refused(key, error)),
                other => {
                    self.done(Outcome::Refused(key, Refusal::Key, format!("an unexpected reply: {other}")))
                }
            },
        }
    }

    /// Handles the next reply of the target. Returns the result of the key's task, or `None` if it
    /// is not decided yet.
    pub fn on_target(&mut self, reply: &Value) -> Option<Outcome> {
        let outcome = match self.at_target.pop_front()? {
            AtTarget::Select => return refused_select(self.target.db, reply),
            AtTarget::Expiry => {
                self.target.expiry = if let Value::Integer(expiry) = reply { *expiry } else { -1 };
                return None;
            }
            AtTarget::Compare => {
                let facts = Facts::of(self.dialect.method, self.target.expiry, reply);
                self.target_facts.push_back(facts);
                return self.judge();
            }
            AtTarget::Restore(key, _) | AtTarget::Delete(key) if reply.is_error() => {
                refused(key, reply.as_bytes().unwrap_or_default())
            }
            AtTarget::Restore(_, len_bytes) => Outcome::Copied(len_bytes),
            AtTarget::Delete(_) => Outcome::Removed { was_there: *reply == Value::Integer(1) },
        };
        self.done(outcome)
    }

    fn done(&mut self, outcome: Outcome) -> Option<Outcome> {
        self.in_flight -= 1;
        self.results += 1;
        Some(outcome)
    }

    /// Takes the replies of both servers about the key whose comparison was requested first, and
    /// compares them. Returns `None` if one of the replies has not arrived yet.
    fn judge(&mut self) -> Option<Outcome> {
        if self.source_facts.is_empty() || self.target_facts.is_empty() {
            return None;
        }
        let (source, target) = (self.source_facts.pop_front()?, self.target_facts.pop_front()?);
        let key = self.comparing.pop_front()?;
        let outcome = match (&source, &target) {
            (Facts::Refused(error), _) | (_, Facts::Refused(error)) => refused(key, error.as_bytes()),
            _ if source.agree(&target, self.dialect.expiry) => Outcome::Equal,
            _ => Outcome::Different(key),
        };
        self.done(outcome)
    }

    fn restore(&mut self, key: Key, payload: &[u8], target: &mut Vec<u8>) {
        self.select_target(key.db, target);
        let expiry = self.source.expiry.max(0).to_string();
        let head: [&[u8]; 5] = [b"RESTORE", &key.name, expiry.as_bytes(), payload, b"REPLACE"];
        // Without an expiry the form does not matter, and servers before Redis 5 accept it.
        if self.source.expiry > 0 && self.dialect.expiry == ExpiryForm::Absolute {
            encode_request(&[&head[..], &[b"ABSTTL"]].concat(), target);
        } else {
            encode_request(&head, target);
        }
        self.at_target.push_back(AtTarget::Restore(key, payload.len()));
    }

    fn delete(&mut self, key: Key, target: &mut Vec<u8>) {
        self.select_target(key.db, target);
        encode_request(&[b"DEL", &key.name[..]], target);
        self.at_target.push_back(AtTarget::Delete(key));
    }

    fn select_target(&mut self, db: u32, target: &mut Vec<u8>) {
        if self.target.select(db, target) {
            self.at_target.push_back(AtTarget::Select);
        }
    }

    /// Resets the lane after a lost connection: queues keys with unanswered requests again, and
    /// expects replies from new connections. Returns the oldest of these keys if many connections
    /// in a row were lost before any result: a server may close them because of this key.
    pub fn reset(&mut self) -> Option<Key> {
        if std::mem::take(&mut self.results) > 0 {
            self.fruitless_resets = 0;
        }
        self.fruitless_resets += u32::from(self.in_flight > 0);
        let mut keys = Vec::new();
        for awaited in self.at_target.drain(..) {
            if let AtTarget::Restore(key, _) | AtTarget::Delete(key) = awaited {
                keys.push((Task::Copy, key));
            }
        }
        keys.extend(self.comparing.drain(..).map(|key| (Task::Compare, key)));
        for awaited in self.at_source.drain(..) {
            match awaited {
                AtSource::Key(task @ (Task::Copy | Task::Sweep), key) => keys.push((task, key)),
                AtSource::Key(Task::Compare, _) | AtSource::Select | AtSource::Expiry => {}
            }
        }
        for entry in keys.into_iter().rev() {
            self.queued.push_front(entry);
        }
        self.source_facts.clear();
        self.target_facts.clear();
        (self.source, self.target) = (Side::default(), Side::default());
        self.in_flight = 0;
        let is_hopeless = self.fruitless_resets > FRUITLESS_RESETS_MAX;
        self.queued.front().filter(|_| is_hopeless).map(|(_, key)| key.clone())
    }
}

/// Returns an outcome if `reply`, the reply to SELECT, is an error: then nothing of database `db`
/// can be copied. Otherwise returns `None`.
fn refused_select(db: u32, reply: &Value) -> Option<Outcome> {
    let error = reply.as_bytes().filter(|_| reply.is_error())?;
    let text = format!("SELECT: {}", error.escape_ascii());
    Some(Outcome::Refused(Key::new(db, b""), Refusal::Fatal, text))
}

fn refused(key: Key, error: &[u8]) -> Outcome {
    Outcome::Refused(key, Refusal::of(error), error.escape_ascii().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(method: Method) -> Lane {
        Lane::new(Dialect { expiry: ExpiryForm::Absolute, method }, 10_000)
    }

    fn key(db: u32, name: &str) -> Key {
        Key::new(db, name.as_bytes())
    }

    /// Removes the requests from `bytes` and returns each as one line of words.
    fn requests(bytes: &mut Vec<u8>) -> Vec<String> {
        let mut lines = Vec::new();
        let mut at = 0;
        while let Some((Value::Array(words), len)) = resp::decode(&bytes[at..]).unwrap() {
            let words: Vec<String> =
                words.iter().map(|word| word.as_bytes().unwrap().escape_ascii().to_string()).collect();
            lines.push(words.join(" "));
            at += len;
            if at == bytes.len() {
                break;
            }
        }
        bytes.clear();
        lines
    }

    fn feed(lane: &mut Lane) -> (Vec<String>, Vec<String>) {
        let (mut source, mut target) = (Vec::new(), Vec::new());
        lane.feed(10, u64::MAX, &mut Budget::new(None, None), (&mut source, &mut target));
        let of = |bytes: &mut Vec<u8>| if bytes.is_empty() { Vec::new() } else { requests(bytes) };
        (of(&mut source), of(&mut target))
    }

    #[test]
    fn a_key_is_read_and_restored_with_its_expiry() {
        let mut lane = lane(Method::Payload);
        lane.push(Task::Copy, key(2, "a"));
        assert_eq!(feed(&mut lane).0, ["SELECT 2", "PEXPIRETIME a", "DUMP a"]);
        let mut out = Vec::new();
        assert_eq!(lane.on_source(&Value::Simple(b"OK".to_vec()), &mut out), None);
        assert_eq!(lane.on_source(&Value::Integer(1234), &mut out), None);
        assert_eq!(lane.on_source(&Value::Bulk(b"payload".to_vec()), &mut out), None);
        assert_eq!(requests(&mut out), ["SELECT 2", "RESTORE a 1234 payload REPLACE ABSTTL"]);
        assert_eq!(lane.on_target(&Value::Simple(b"OK".to_vec())), None);
        assert_eq!(lane.in_flight(), 1);
        assert_eq!(lane.on_target(&Value::Simple(b"OK".to_vec())), Some(Outcome::Copied(7)));
        assert_eq!((lane.in_flight(), lane.queued()), (0, 0));
    }

    #[test]
    fn a_deleted_key_is_removed_and_an_error_names_the_key() {
        let mut lane = lane(Method::Payload);
        assert_eq!(lane.changed.push(key(0, "gone"), 1), crate::changes::Pushed::Added);
        lane.push(Task::Copy, key(0, "new"));
        assert_eq!(feed(&mut lane).0, ["PEXPIRETIME gone", "DUMP gone", "PEXPIRETIME new", "DUMP new"]);
        let mut out = Vec::new();
        for reply in [Value::Integer(-2), Value::Null, Value::Integer(-1), Value::Bulk(b"x".to_vec())] {
            assert_eq!(lane.on_source(&reply, &mut out), None);
        }
        assert_eq!(requests(&mut out), ["DEL gone", "RESTORE new 0 x REPLACE"]);
        assert_eq!(lane.on_target(&Value::Integer(1)), Some(Outcome::Removed { was_there: true }));
        let error = Value::Error(b"ERR Bad data format".to_vec());
        let refused = Outcome::Refused(key(0, "new"), Refusal::Format, "ERR Bad data format".to_owned());
        assert_eq!(lane.on_target(&error), Some(refused));
    }

    #[test]
    fn keys_on_their_way_are_queued_again_after_a_loss() {
        let mut lane = lane(Method::Digest);
        for name in ["a", "b"] {
            lane.push(Task::Copy, key(1, name));
        }
        lane.push(Task::Compare, key(0, "c"));
        lane.push(Task::Sweep, key(0, "d"));
        feed(&mut lane);
        let mut out = Vec::new();
        for reply in [Value::Simple(b"OK".to_vec()), Value::Integer(-1), Value::Bulk(b"x".to_vec())] {
            lane.on_source(&reply, &mut out);
        }
        assert_eq!((lane.in_flight(), lane.queued()), (4, 0));
        assert_eq!(lane.reset(), None);
        assert_eq!((lane.in_flight(), lane.queued()), (0, 4));
        let (source, target) = feed(&mut lane);
        assert_eq!(source[..2], ["SELECT 1", "PEXPIRETIME a"]);
        assert_eq!(source.len(), 11, "{source:?}");
        assert_eq!(target, ["PEXPIRETIME c", "DEBUG DIGEST-VALUE c"]);
    }

    #[test]
    fn a_key_that_ends_each_connection_is_named() {
        let mut lane = lane(Method::Digest);
        lane.push(Task::Copy, key(0, "huge"));
        for _ in 0..FRUITLESS_RESETS_MAX {
            feed(&mut lane);
            assert_eq!(lane.reset(), None);
        }
        assert_eq!(lane.reset(), None, "no key was on its way");
        feed(&mut lane);
        assert_eq!(lane.reset(), Some(key(0, "huge")));
    }

    #[test]
    fn a_key_is_judged_when_both_servers_have_replied() {
        let mut lane = lane(Method::Digest);
        lane.push(Task::Compare, key(0, "a"));
        lane.push(Task::Compare, key(0, "b"));
        feed(&mut lane);
        let digest = |text: &str| Value::Array(vec![Value::Simple(text.into())]);
        let mut out = Vec::new();
        for reply in [Value::Integer(-1), digest("1a"), Value::Integer(-1), digest("1b")] {
            assert_eq!(lane.on_source(&reply, &mut out), None);
        }
        assert_eq!(lane.on_target(&Value::Integer(-1)), None);
        assert_eq!(lane.on_target(&digest("1a")), Some(Outcome::Equal));
        assert_eq!(lane.on_target(&Value::Integer(5)), None);
        assert_eq!(lane.on_target(&digest("1b")), Some(Outcome::Different(key(0, "b"))));
        assert_eq!(lane.in_flight(), 0);
    }

    #[test]
    fn a_sweep_removes_what_the_source_lacks() {
        let mut lane = lane(Method::Digest);
        lane.push(Task::Sweep, key(0, "stale"));
        lane.push(Task::Sweep, key(0, "good"));
        assert_eq!(feed(&mut lane).0, ["EXISTS stale", "EXISTS good"]);
        let mut out = Vec::new();
        assert_eq!(lane.on_source(&Value::Integer(0), &mut out), None);
        assert_eq!(lane.on_source(&Value::Integer(1), &mut out), Some(Outcome::Kept));
        assert_eq!(requests(&mut out), ["DEL stale"]);
        assert_eq!(lane.on_target(&Value::Integer(0)), Some(Outcome::Removed { was_there: false }));
    }
}
