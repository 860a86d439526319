//! A well-behaved client: works on its own keys and compares each reply with a model of them.
//!
//! Most of its keys have no time to live, so neither eviction nor other clients may change them.
//! Keys with a time to live may be evicted. For these it checks that a value is the right one and
//! that an expired key has no value. All checkers increment pairs of counters together, in a
//! transaction; every reader must see equal counters in a pair.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use resp::Value;

use super::Run;
use crate::client::Client;
use crate::rng::Rng;

/// Number of keys of each kind that a checker uses.
const KEYS: usize = 50;
/// Maximum number of fields of a hash and of elements of a list.
const PARTS_MAX: usize = 64;
/// Maximum length of a value that a checker writes, in bytes.
const VALUE_LEN_BYTES_MAX: usize = 512;
/// Tolerance for expiry times: the server counts milliseconds by another clock than this client.
const CLOCK_SLACK: Duration = Duration::from_millis(20);

/// Creates an empty histogram of request latencies, in microseconds up to one minute; no reply may
/// take that long.
pub(super) fn times() -> Histogram<u64> {
    Histogram::new_with_max(60_000_000, 3).expect("three digits are possible")
}

/// Sends requests and checks their replies until the soak test is over. Returns the latency of each
/// request.
///
/// # Panics
///
/// Panics when a reply differs from the model's.
pub(super) fn run(run: &Run<'_>, index: usize) -> Histogram<u64> {
    let mut checker = Checker {
        index,
        client: run.connect(),
        rng: run.rng("checker", index),
        times_us: times(),
        strings: BTreeMap::new(),
        lists: BTreeMap::new(),
        hashes: BTreeMap::new(),
        counters: BTreeMap::new(),
        volatile: VecDeque::new(),
    };
    while !run.is_over() {
        match checker.rng.below(8) {
            0 | 1 => checker.string(),
            2 => checker.list(),
            3 => checker.hash(),
            4 => checker.counter(),
            5 => checker.volatile(),
            6 => checker.pair(),
            _ => checker.expect(&["PING"], &Value::Simple(b"PONG".to_vec())),
        }
    }
    checker.times_us
}

/// A key with a time to live: its value, and the time at which the key must have expired.
struct Volatile {
    key: String,
    value: String,
    gone_at: Instant,
}

struct Checker {
    index: usize,
    client: Client,
    rng: Rng,
    times_us: Histogram<u64>,
    strings: BTreeMap<String, String>,
    lists: BTreeMap<String, VecDeque<String>>,
    hashes: BTreeMap<String, BTreeMap<String, String>>,
    counters: BTreeMap<String, i64>,
    volatile: VecDeque<Volatile>,
}

impl Checker {
    /// Sends a request and returns its reply; `None` if the server refused it for lack of memory.
    fn ask(&mut self, words: &[&str]) -> Option<Value> {
        let since = Instant::now();
        let reply = self.client.command(words);
        self.times_us.saturating_record(since.elapsed().as_micros() as u64);
        let is_refused = matches!(&reply, Value::Error(text) if text.starts_with(b"OOM"));
        (!is_refused).then_some(reply)
    }

    /// Sends a request, to which the server must reply `expected` or an error about lack of memory.
    /// Returns true for `expected`.
    fn done(&mut self, words: &[&str], expected: &Value) -> bool {
        let Some(reply) = self.ask(words) else { return false };
        assert_eq!(&reply, expected, "checker {}: {}", self.index, words.join(" "));
        true
    }

    /// Sends a request that needs no memory; the server must answer it with `expected`.
    fn expect(&mut self, words: &[&str], expected: &Value) {
        assert!(self.done(words, expected), "checker {}: {} was refused", self.index, words.join(" "));
    }

    fn key(&mut self, kind: &str) -> String {
        format!("check:{}:{kind}:{}", self.index, self.rng.below(KEYS))
    }

    fn value(&mut self) -> String {
        let len = 1 + self.rng.below(VALUE_LEN_BYTES_MAX);
        let letter = char::from(b'a' + self.rng.below(26) as u8);
        std::iter::repeat_n(letter, len).collect()
    }

    fn string(&mut self) {
        let key = self.key("string");
        let held = self.strings.get(&key).cloned();
        match self.rng.below(4) {
            0 => {
                let value = self.value();
                if self.done(&["SET", &key, &value], &ok()) {
                    self.strings.insert(key, value);
                }
            }
            1 => {
                let value = format!("{}+", held.unwrap_or_default());
                if value.len() <= VALUE_LEN_BYTES_MAX
                    && self.done(&["APPEND", &key, "+"], &Value::Integer(value.len() as i64))
                {
                    self.strings.insert(key, value);
                }
            }
            2 if self.rng.percent(20) => {
                self.expect(&["DEL", &key], &Value::Integer(i64::from(held.is_some())));
                self.strings.remove(&key);
            }
            _ => self.expect(&["GET", &key], &bulk_or_null(held.as_deref())),
        }
    }

    fn list(&mut self) {
        let key = self.key("list");
        let mut held = self.lists.remove(&key).unwrap_or_default();
        match self.rng.below(3) {
            0 if held.len() < PARTS_MAX => {
                let value = self.value();
                if self.done(&["RPUSH", &key, &value], &Value::Integer(held.len() as i64 + 1)) {
                    held.push_back(value);
                }
            }
            1 => {
                let first = held.pop_front();
                self.expect(&["LPOP", &key], &bulk_or_null(first.as_deref()));
            }
            _ => {
                let all = held.iter().map(|value| bulk(value)).collect();
                self.expect(&["LRANGE", &key, "0", "-1"], &Value::Array(all));
            }
        }
        self.lists.insert(key, held);
    }

    fn hash(&mut self) {
        let (key, field) = (self.key("hash"), self.rng.below(PARTS_MAX).to_string());
        let mut held = self.hashes.remove(&key).unwrap_or_default();
        match self.rng.below(3) {
            0 => {
                let value = self.value();
                let is_new = i64::from(!held.contains_key(&field));
                if self.done(&["HSET", &key, &field, &value], &Value::Integer(is_new)) {
                    held.insert(field, value);
                }
            }
            1 => {
                let was_there = held.remove(&field).is_some();
                self.expect(&["HDEL", &key, &field], &Value::Integer(i64::from(was_there)));
            }
            _ => {
                self.expect(&["HGET", &key, &field], &bulk_or_null(held.get(&field).map(String::as_str)));
                self.expect(&["HLEN", &key], &Value::Integer(held.len() as i64));
            }
        }
        self.hashes.insert(key, held);
    }

    fn counter(&mut self) {
        let key = self.key("counter");
        let next = self.counters.get(&key).copied().unwrap_or_default() + 1;
        if self.done(&["INCR", &key], &Value::Integer(next)) {
            self.counters.insert(key, next);
        }
    }

    /// Sets a key with a short time to live, or reads such a key and checks its value.
    fn volatile(&mut self) {
        if self.volatile.len() < KEYS {
            let (key, value) =
                (format!("check:{}:volatile:{}", self.index, self.volatile.len()), self.value());
            let ttl = Duration::from_millis(1 + self.rng.below(300) as u64);
            if self.done(&["SET", &key, &value, "PX", &ttl.as_millis().to_string()], &ok()) {
                self.volatile.push_back(Volatile { key, value, gone_at: Instant::now() + ttl + CLOCK_SLACK });
            }
            return;
        }
        // All keys are set. The client reads random keys until all have expired, and then sets them
        // again.
        let next = self.rng.below(self.volatile.len());
        let held = &self.volatile[next];
        let (key, value, must_be_gone) =
            (held.key.clone(), held.value.clone(), Instant::now() > held.gone_at);
        match self.ask(&["GET", &key]) {
            Some(Value::Null) => {}
            Some(reply) if reply == bulk(&value) && !must_be_gone => {}
            other => panic!("checker {}: GET {key} gave {other:?}, must be gone: {must_be_gone}", self.index),
        }
        if must_be_gone && self.volatile.iter().all(|held| Instant::now() > held.gone_at) {
            self.volatile.clear();
        }
    }

    /// Increments both counters of a pair in one transaction, or reads and compares them.
    fn pair(&mut self) {
        let pair = self.rng.below(4);
        let (a, b) = (format!("pair:{pair}:a"), format!("pair:{pair}:b"));
        if self.rng.percent(50) {
            self.ask(&["MULTI"]);
            self.ask(&["INCR", &a]);
            self.ask(&["INCR", &b]);
            // If the server refuses one of the two commands while they are queued, it refuses the
            // whole transaction (EXECABORT).
            self.ask(&["EXEC"]);
            return;
        }
        match self.ask(&["MGET", &a, &b]) {
            Some(Value::Array(values)) => {
                assert_eq!(values[0], values[1], "checker {}: pair {pair}", self.index)
            }
            other => panic!("checker {}: MGET gave {other:?}", self.index),
        }
    }
}

fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn bulk_or_null(text: Option<&str>) -> Value {
    text.map_or(Value::Null, bulk)
}
