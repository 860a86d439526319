//! Real servers (peers) to which streams of changes are applied. Every peer that is new enough must
//! apply a stream without an error, and then have the same data.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use commands::record::forms::{KnownSince, ServerVersion};
use resp::Value;

use super::forms::{PeerVersion, versions_for};
use super::recorded::RecordedServer;
use super::reported::reported;
use super::{Change, parse};
use crate::client::Client;

/// The number of databases that each server has by default.
const DATABASES: u32 = 16;

/// The first version of Redis that writes scores in their shortest form. `DEBUG DIGEST` depends on
/// the text of scores.
const SHORTEST_SCORES: ServerVersion = ServerVersion::new(7, 2);

/// The minimum time to live of a key whose content is compared, in milliseconds: both servers must
/// be read before it expires.
const SOON_MS: i64 = 10_000;

/// A running Redis or Valkey server to which streams of changes are applied.
#[derive(Debug)]
pub struct Peer {
    server: RecordedServer,
    version: PeerVersion,
}

impl Peer {
    /// Starts the server of a command line.
    ///
    /// # Errors
    /// The server does not start, or does not state its version.
    pub fn start(command_line: &str) -> io::Result<Self> {
        let server = RecordedServer::peer(command_line)?;
        let version = PeerVersion::of(&mut server.process.connect());
        let version = version.ok_or_else(|| io::Error::other(format!("no version from {command_line}")))?;
        Ok(Self { server, version })
    }

    /// Returns the kind (Redis or Valkey) and version of the server.
    pub fn version(&self) -> PeerVersion {
        self.version
    }

    /// Opens a new connection to the peer's server.
    pub fn connect(&self) -> Client {
        self.server.process.connect()
    }

    /// Returns true if the server has the same data as `source`, see [`has_same_data`].
    pub fn has_data_of(&self, source: &mut Client) -> bool {
        has_same_data(self.version, &mut self.connect(), source)
    }

    /// Replaces the content of the server by that of `stream`, a stream of changes.
    ///
    /// # Errors
    /// The server refuses the stream, or one of its commands.
    pub fn replay(&mut self, stream: &[u8]) -> io::Result<()> {
        self.server.load(stream)
    }
}

/// Returns true if `own`, a server of this version, has the same data as `source`, by `DEBUG
/// DIGEST`. The digest may differ for equal data in two cases: Valkey in which fields expire, and
/// Redis before 7.2. Then all data that does not expire soon is compared key by key.
pub fn has_same_data(version: PeerVersion, own: &mut Client, source: &mut Client) -> bool {
    if own.command(&["DEBUG", "DIGEST"]) == source.command(&["DEBUG", "DIGEST"]) {
        return true;
    }
    let has_other_digest = match version {
        PeerVersion::Valkey(_) => version.knows(KnownSince::FIELD_EXPIRY),
        PeerVersion::Redis(version) => version < SHORTEST_SCORES,
    };
    let from_ms = time_ms(source) + SOON_MS;
    let content = |client: &mut Client, db| lasting_content(client, db, (version, from_ms));
    has_other_digest && (0..DATABASES).all(|db| content(own, db) == content(source, db))
}

/// Maximum number of keys, and of bytes of each value, in the text that describes a difference
/// between two servers.
const KEYS_SHOWN_MAX: usize = 5;
const VALUE_SHOWN_BYTES: usize = 200;

/// Describes the first keys whose values differ between `own`, a server of this version, and
/// `source`.
pub fn differing_keys(version: PeerVersion, own: &mut Client, source: &mut Client) -> String {
    let from_ms = time_ms(source) + SOON_MS;
    let mut lines = Vec::new();
    for db in 0..DATABASES {
        let [ours, theirs] =
            [&mut *own, &mut *source].map(|client| lasting_content(client, db, (version, from_ms)));
        let keys: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let differing = keys.into_iter().filter(|key| ours.get(*key) != theirs.get(*key));
        for key in differing.take(KEYS_SHOWN_MAX) {
            let kind = source.command(&[b"TYPE", &key[..]]);
            let [ours, theirs] = [&ours, &theirs].map(|side| {
                let value = side.get(key).map_or("-", String::as_str);
                value.chars().take(VALUE_SHOWN_BYTES).collect::<String>()
            });
            let key = key.escape_ascii();
            lines.push(format!("  database {db}, key {key}, {kind}\n    source: {theirs}\n    own: {ours}"));
        }
    }
    lines.join("\n")
}

/// Returns the present time by a server's clock, in Unix milliseconds.
fn time_ms(client: &mut Client) -> i64 {
    let reply = client.command(&["TIME"]);
    let Value::Array(parts) = &reply else { return 0 };
    let number = |at: usize| -> i64 {
        let text = parts.get(at).and_then(Value::as_bytes).unwrap_or_default();
        stdx::number::parse_i64(text).unwrap_or(0)
    };
    number(0) * 1000 + number(1) / 1000
}

/// Returns the keys of a database with their expiry and value, in a form that a server of this
/// version can report. Leaves out keys and fields that expire before `from_ms`.
fn lasting_content(
    client: &mut Client,
    db: u32,
    (version, from_ms): (PeerVersion, i64),
) -> BTreeMap<Vec<u8>, String> {
    client.command(&["SELECT", &db.to_string()]);
    let keys = bulks(&client.command(&["KEYS", "*"]));
    let contents = keys.into_iter().filter_map(|key| {
        let expiry = expiry(client, &key, version);
        let value = match client.command(&[b"TYPE", &key[..]]).to_string().as_str() {
            "hash" if version.knows(KnownSince::FIELD_EXPIRY) => lasting_fields(client, &key, from_ms)?,
            "zset" => scores(client, &key),
            _ => client.command(&[&b"DEBUG"[..], b"DIGEST-VALUE", &key]).to_string(),
        };
        is_lasting(&expiry, from_ms).then(|| (key, format!("{expiry} {value}")))
    });
    contents.collect()
}

/// Returns the expiry of a key in Unix milliseconds, or -1 for none. Redis 6.2 reports only the
/// remaining time, so a key that expires then gets one of two times: soon, or in the far future.
fn expiry(client: &mut Client, key: &[u8], version: PeerVersion) -> Value {
    if version.knows(KnownSince::REDIS_7) {
        return client.command(&[b"PEXPIRETIME", key]);
    }
    match client.command(&[b"PTTL", key]) {
        Value::Integer(0..SOON_MS) => Value::Integer(0),
        Value::Integer(SOON_MS..) => Value::Integer(i64::MAX),
        none => none,
    }
}

/// Returns the members of a sorted set with their scores, as text that does not depend on how the
/// server formats scores.
fn scores(client: &mut Client, key: &[u8]) -> String {
    let pairs = bulks(&client.command(&[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"]));
    let score = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<f64>().ok();
    let lines = pairs.chunks(2).map(|pair| format!("{:?} {:?}", pair[0], score(&pair[1])));
    lines.collect::<Vec<_>>().join(", ")
}

/// Returns the fields of a hash that expire after `from_ms` or never, with values and expiries.
/// `None` if there are none.
fn lasting_fields(client: &mut Client, key: &[u8], from_ms: i64) -> Option<String> {
    let pairs = bulks(&client.command(&[b"HGETALL", key]));
    let fields: Vec<&[u8]> = pairs.iter().step_by(2).map(Vec::as_slice).collect();
    let count = fields.len().to_string();
    let request = [&b"HPEXPIRETIME"[..], key, b"FIELDS", count.as_bytes()].into_iter().chain(fields);
    let reply = client.command(&request.collect::<Vec<_>>());
    let Value::Array(times) = reply else { return None };
    let lasting = pairs.chunks(2).zip(&times).filter(|(_, time)| is_lasting(time, from_ms));
    let mut lines: Vec<String> = lasting.map(|(pair, time)| format!("{pair:?} {time}")).collect();
    lines.sort();
    (!lines.is_empty()).then(|| lines.join(", "))
}

/// Returns true if an expiry in Unix milliseconds is at or after `from_ms`, or is none (-1).
fn is_lasting(time: &Value, from_ms: i64) -> bool {
    matches!(time, Value::Integer(ms) if *ms == -1 || *ms >= from_ms)
}

/// Returns the bytes of each bulk string in an array reply.
fn bulks(array: &Value) -> Vec<Vec<u8>> {
    let Value::Array(values) = array else { return Vec::new() };
    values.iter().filter_map(Value::as_bytes).map(<[u8]>::to_vec).collect()
}

/// Applies all data of the server `source`, as a stream of changes, to each peer that is new enough
/// for it. Returns the number of these peers, and a text for each difference in the resulting data.
///
/// # Errors
///
/// The stream is malformed.
pub fn replay_into_all(
    peers: &mut [Peer],
    stream: &[u8],
    source: &mut Client,
) -> io::Result<(usize, Vec<String>)> {
    let changes: Vec<Change> = parse(stream, 0).map_err(io::Error::other)?;
    let known = match versions_for(&changes) {
        Ok(known) => known,
        Err(error) => return Ok((0, vec![error])),
    };
    let (mut count, mut failures) = (0, Vec::new());
    for peer in peers.iter_mut().filter(|peer| peer.version.knows(known)) {
        count += 1;
        if let Err(error) = peer.replay(stream) {
            failures.push(format!("{}: {error}", peer.version));
            continue;
        }
        if !peer.has_data_of(source) {
            failures.push(format!(
                "{}: other data\n{}",
                peer.version,
                reported(source, &mut peer.connect(), &changes)
            ));
        }
    }
    Ok((count, failures))
}
