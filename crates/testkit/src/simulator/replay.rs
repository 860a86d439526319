//! Reads the whole content of an engine by commands, and replays a change log into an empty engine.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::Shared;
use engine::clock::{Clock, ManualClock};
use engine::expire::ActiveExpiry;
use engine::run::Executor;
use engine::settings::Settings;
use resp::Value;
use resp::decode::decode;

use super::host::SimulatedHost;
use super::scenario::Args;
use super::world::engine;
use crate::replay::Player;

/// The content of each key as text, by database number and key.
pub(super) type Contents = BTreeMap<(usize, Vec<u8>), String>;

/// Number of databases that the clients of the simulator use.
const DATABASES: usize = 2;

/// A client with which the simulator reads the content of an engine whose threads have all ended.
pub(super) struct Inspector<'s>(Player<'s, SimulatedHost>);

impl<'s> Inspector<'s> {
    pub fn new(shared: &'s Arc<Shared>, clock: &ManualClock) -> Self {
        Self(Player::with_host(shared, clock.clone(), SimulatedHost::new(shared, clock)))
    }

    /// Runs a command in a turn of its own, and returns the reply.
    pub fn run(&mut self, words: &[Vec<u8>]) -> Value {
        self.0.run(words)
    }

    fn ask(&mut self, words: &[&[u8]]) -> Value {
        self.run(&words.iter().map(|word| word.to_vec()).collect::<Args>())
    }

    /// Returns the values and expiries of all keys in the engine.
    pub fn contents(&mut self) -> Contents {
        let mut contents = Contents::new();
        for db in 0..DATABASES {
            self.ask(&[b"SELECT", db.to_string().as_bytes()]);
            for key in bulks(&self.ask(&[b"KEYS", b"*"])) {
                let text = self.describe(&key);
                contents.insert((db, key), text);
            }
        }
        self.ask(&[b"SELECT", b"0"]);
        contents
    }

    fn describe(&mut self, key: &[u8]) -> String {
        let expiry = self.ask(&[b"PEXPIRETIME", key]);
        let kind = self.ask(&[b"TYPE", key]);
        let value = match kind.as_bytes().unwrap_or_default() {
            b"string" => format!("{}", self.ask(&[b"GET", key])),
            b"list" => format!("{}", self.ask(&[b"LRANGE", key, b"0", b"-1"])),
            b"set" => sorted(bulks(&self.ask(&[b"SMEMBERS", key]))),
            b"zset" => format!("{}", self.ask(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])),
            b"hash" => self.describe_hash(key),
            _ => {
                let entries = self.ask(&[b"XRANGE", key, b"-", b"+"]);
                let groups = self.ask(&[b"XINFO", b"GROUPS", key]);
                format!("{entries} {groups}")
            }
        };
        format!("{kind} {value}, expires {expiry}")
    }

    fn describe_hash(&mut self, key: &[u8]) -> String {
        let fields = bulks(&self.ask(&[b"HGETALL", key]));
        let describe = |pair: &[Vec<u8>]| {
            let expiry = self.ask(&[b"HPEXPIRETIME", key, b"FIELDS", b"1", &pair[0]]);
            format!("{}={} {expiry}", pair[0].escape_ascii(), pair[1].escape_ascii()).into_bytes()
        };
        sorted(fields.chunks(2).map(describe).collect())
    }
}

fn bulks(value: &Value) -> Vec<Vec<u8>> {
    let parts = match value {
        Value::Array(parts) | Value::Set(parts) => parts,
        _ => return Vec::new(),
    };
    parts.iter().filter_map(Value::as_bytes).map(<[u8]>::to_vec).collect()
}

fn sorted(mut words: Vec<Vec<u8>>) -> String {
    words.sort_unstable();
    words.iter().map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ")
}

/// Removes all expired keys of the engine, in the way of active expiry.
pub(super) fn expire_all(shared: &Arc<Shared>, clock: &ManualClock) {
    let host = SimulatedHost::new(shared, clock);
    let mut executor = Executor::new(shared, None, 7, (clock.clone(), host));
    let mut expiry = ActiveExpiry::new(clock.now());
    expiry.begin_round(shared, 100);
    while expiry.next_slice().is_some() {
        expiry.slice(&mut executor, |outbox, _| drop(outbox.take()));
    }
}

/// Replays the complete requests of a change log into a new engine, in order. Returns the engine
/// and its clock. The clock stands at the start time of all runs, so that nothing expires during
/// the replay.
///
/// # Errors
/// A text that names the failed request.
pub(super) fn replay(stream: &[u8]) -> Result<(Arc<Shared>, ManualClock), String> {
    let (shared, clock) = engine(1, Settings::default(), 1);
    let mut inspector = Inspector::new(&shared, &clock);
    let mut rest = stream;
    while let Some((request, len_bytes)) = decode(rest).map_err(|error| format!("not the log's: {error}"))? {
        let args = bulks(&request);
        let reply = inspector.run(&args);
        if let Some(error) = error_in(&reply) {
            let line = args.iter().map(|arg| arg.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
            return Err(format!("replaying {line} failed: {error}"));
        }
        rest = &rest[len_bytes..];
    }
    drop(inspector);
    Ok((shared, clock))
}

/// Returns the first error reply within a reply, which may be an array; `None` if there is none.
fn error_in(reply: &Value) -> Option<&Value> {
    match reply {
        Value::Error(_) | Value::BulkError(_) => Some(reply),
        Value::Array(parts) => parts.iter().find_map(error_in),
        _ => None,
    }
}
