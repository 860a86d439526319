//! Random commands, and servers that replay the resulting stream of changes: they must have the
//! same data.
//!
//! Several connections send commands at the same time. Some commands block until others run, some
//! let keys expire at once, and some are transactions. Then the stream is replayed into an empty
//! server and `DEBUG DIGEST` is compared. A difference is reported with the keys that differ and
//! their changes in the stream. The seed does not determine the interleaving of the commands; the
//! data must be equal for every interleaving.

use std::fmt::Write;
use std::io;
use std::time::{Duration, Instant};

use resp::{Value, encode_request};

use super::recorded::RecordedServer;
use super::{Change, parse};
use crate::client::Client;
use crate::differential::{Args, Grammar, Kind};
use crate::notation::{command_line, one_line};
use crate::process::{ServerProcess, saker};
use crate::rng::Rng;

/// Number of connections that send commands at the same time.
const CONNECTIONS: usize = 3;

/// Number of commands that each connection sends before the stream is replayed.
const COMMANDS_PER_CONNECTION: usize = 250;

/// Number of databases that are read to show a difference.
const DATABASES: u32 = 4;

/// Percentage of commands that are taken from [`TIME_DEPENDENT`].
const MORTAL_PERCENT: usize = 12;

/// Commands that are not sent: they change no data, or the number of their replies varies.
const LEFT_OUT: &[&str] = &[
    "SUBSCRIBE",
    "PSUBSCRIBE",
    "SSUBSCRIBE",
    "UNSUBSCRIBE",
    "PUNSUBSCRIBE",
    "SUNSUBSCRIBE",
    "PUBLISH",
    "SPUBLISH",
    "PUBSUB",
    "PFDEBUG",
    "NOSUCH",
];

/// Commands that the generator of the differential test leaves out, because their replies depend on
/// the time or on chance. They concern keys and fields that expire during the run, random choices,
/// and results stored from sets. `%` stands for a random digit.
const TIME_DEPENDENT: &[&str] = &[
    "SET s% value PX %",
    "SET h% value PX 1%",
    "PEXPIRE s% %",
    "PEXPIRE l% %",
    "PEXPIRE h% 1%",
    "PEXPIRE e% %",
    "PEXPIRE z% %",
    "PEXPIRE x% %",
    "GETEX s% PX %",
    "HPEXPIRE h% % FIELDS 2 f% f1",
    "HPEXPIRE h% 1% FIELDS 1 f%",
    "HSETEX h% PX % FIELDS 2 f% 1 f1 7",
    "HGETEX h% PX % FIELDS 1 f%",
    "HSET h% f% 1 f2 2 f3 3",
    "HSET h% f1 5",
    "HINCRBY h% f% 3",
    "HINCRBYFLOAT h% f% 0.5",
    "HSETNX h% f% 1",
    "HPERSIST h% FIELDS 2 f% f1",
    "HDEL h% f% f1",
    "HGETDEL h% FIELDS 1 f%",
    "HGETALL h%",
    "HRANDFIELD h% 5",
    "SPOP e%",
    "SPOP e% %",
    "SRANDMEMBER e%",
    "SORT e% ALPHA STORE l%",
    "SORT e% BY nosort STORE l%",
    "SORT l% BY s* GET h*->f1 GET # ALPHA STORE l%",
    "SUNIONSTORE e% e1 e2",
    "RANDOMKEY",
    "SCAN 0 COUNT 1000",
    "KEYS *",
    "DBSIZE",
    "COPY h% h1 REPLACE",
    "COPY s% s1 DB % REPLACE",
    "MOVE s% %",
    "RENAME h% h2",
    "SWAPDB 0 1",
    "SELECT 0",
    "SELECT 1",
    "XADD x% * f v",
    "XADD x% MAXLEN ~ 3 * f v",
    "XREADGROUP GROUP g1 alice COUNT % STREAMS x% >",
    "XREADGROUP GROUP g1 bob COUNT % STREAMS x% 0",
    "XGROUP CREATE x% g1 0 MKSTREAM",
    "XAUTOCLAIM x% g1 bob 0 0 COUNT %",
    "RESTORE r% 1% \"\\x00\\xc1\\x39\\x30\\x0c\\x00\\xd3\\xff\\x0c\\xd1\\x96\\x41\\xc6\\xd1\" REPLACE",
    "BLPOP l% l1 0.01",
    "BLMOVE l% l1 LEFT RIGHT 0.01",
    "BLMPOP 0.01 2 l% l1 LEFT COUNT %",
    "BZPOPMIN z% z1 0.01",
    "BZMPOP 0.01 2 z% z1 MAX COUNT %",
    "XREADGROUP GROUP g1 carol BLOCK 10 STREAMS x% >",
    "LPUSH l% a b c",
    "RPUSH l1 a",
    "ZADD z% 1 a 2 b",
    "FLUSHDB",
];

/// The commands of [`TIME_DEPENDENT`] whose records Redis applies differently after a field has
/// expired. While it loads, HPERSIST ignores an expired field and HINCRBY begins at 0. Its own
/// append-only files have the same problem. Streams for Redis do not contain these commands.
const LOADED_OTHERWISE_BY_REDIS: &[&str] = &["HINCRBY h%", "HINCRBYFLOAT h%", "HPERSIST h%"];

/// The results of a run.
#[derive(Debug, Default)]
pub struct Summary {
    /// The number of commands sent.
    pub commands: u64,
    /// The number of commands in the streams.
    pub changes: u64,
    /// The number of streams replayed.
    pub streams: u64,
    /// The differences in the replayed data.
    pub failures: Vec<String>,
}

/// A server into which streams are replayed.
enum Target {
    Redis(RecordedServer),
    Saker(ServerProcess),
}

impl Target {
    /// Replaces the server's content by that of `stream`.
    fn replay(&mut self, stream: &[u8], changes: &[Change]) -> io::Result<()> {
        match self {
            Self::Redis(server) => server.load(stream),
            Self::Saker(server) => pipe(server, stream, changes),
        }
    }

    fn connect(&self) -> Client {
        match self {
            Self::Redis(server) => server.process.connect(),
            Self::Saker(server) => server.connect(),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Redis(_) => "Redis",
            Self::Saker(_) => "Saker",
        }
    }
}

/// Replays into a Saker server that expires nothing by itself, over a connection.
fn pipe(server: &ServerProcess, stream: &[u8], changes: &[Change]) -> io::Result<()> {
    let mut client = server.connect();
    for command in [&["FLUSHALL"][..], &["CLIENT", "IMPORT-SOURCE", "ON"]] {
        let reply = client.command(command);
        if reply.is_error() {
            return Err(io::Error::other(format!("{} answered {reply}", command.join(" "))));
        }
    }
    client.send(stream).map_err(|error| io::Error::other(error.to_string()))?;
    let mut end = Vec::new();
    encode_request(&["ECHO", "the end of the stream"], &mut end);
    client.send(&end).map_err(|error| io::Error::other(error.to_string()))?;
    let mut refused = None;
    for at in 0.. {
        match client.read().map_err(|error| io::Error::other(error.to_string()))? {
            Value::Bulk(text) if text == b"the end of the stream" => break,
            reply if reply.is_error() => {
                refused.get_or_insert_with(|| format!("answer {at} is {}", one_line(&reply)));
            }
            _ => {}
        }
    }
    match refused {
        None => Ok(()),
        Some(what) => Err(io::Error::other(format!("of {} changes: {what}", changes.len()))),
    }
}

/// The settings of the server whose stream is replayed; the streams use them in turn.
const SETTINGS: &[&[&[&str]]] = &[
    &[&["CONFIG", "SET", "maxmemory", "0"], &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]],
    &[&["CONFIG", "SET", "maxmemory", "0"], &["DEBUG", "SET-ACTIVE-EXPIRE", "1"]],
    &[
        &["DEBUG", "SET-ACTIVE-EXPIRE", "1"],
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
        &["CONFIG", "SET", "maxmemory", "USED"],
    ],
];

/// Runs random commands for `time`, starting from `seed`, and replays their streams.
///
/// # Errors
/// A server does not start, or ends.
pub fn run(seed: u64, time: Duration) -> io::Result<Summary> {
    let start = Instant::now();
    let redis = if crate::peer::is_available() { RecordedServer::redis()? } else { None };
    let into_saker = saker::start(&["--enable-debug-command", "yes", "--import-mode", "yes"])?;
    into_saker.connect().command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let mut targets = vec![Target::Saker(into_saker)];
    let mut unknown = Vec::new();
    if let Some(redis) = redis {
        unknown = unknown_to(&mut redis.process.connect());
        targets.push(Target::Redis(redis));
    }
    let grammar =
        Grammar::new(|name| !LEFT_OUT.contains(&name) && !unknown.iter().any(|unknown| unknown == name));
    let mut source = RecordedServer::saker(&["--io-threads", "2"])?;
    let mut summary = Summary::default();
    let mut seeds = Rng::new(seed);
    let mut db = 0;
    while start.elapsed() < time && summary.failures.len() < 3 {
        let mut rng = Rng::new(seeds.next_u64());
        let settings = SETTINGS[summary.streams as usize % SETTINGS.len()];
        let for_redis = targets.len() > 1 && rng.percent(50);
        let lines: Vec<&str> =
            TIME_DEPENDENT.iter().copied().filter(|line| !for_redis || !is_loaded_otherwise(line)).collect();
        let mut source_of_commands = Commands { grammar: &grammar, mortal: &lines, clock: 0, rng };
        send_all(&source.process, settings, &mut source_of_commands, &mut summary)?;
        let mut stream = Vec::new();
        encode_request(&["SELECT", &db.to_string()], &mut stream);
        stream.extend_from_slice(&source.bytes()?);
        let changes = parse(&stream, db).map_err(io::Error::other)?;
        db = changes.last().map_or(db, |change| change.db);
        summary.changes += changes.len() as u64;
        summary.streams += 1;
        let wanted = source.process.connect().command(&["DEBUG", "DIGEST"]);
        for target in targets.iter_mut().filter(|target| for_redis || matches!(target, Target::Saker(_))) {
            let refused = target.replay(&stream, &changes).err();
            let same = target.connect().command(&["DEBUG", "DIGEST"]) == wanted;
            if !same || refused.is_some() {
                let mut text = format!("seed {seed}, stream {}, into {}\n", summary.streams, target.name());
                if let Some(error) = refused {
                    writeln!(text, "  {error}").expect("writing to a string cannot fail");
                }
                text += &reported(&mut source.process.connect(), &mut target.connect(), &changes);
                summary.failures.push(text);
            }
        }
    }
    Ok(summary)
}

/// Empties the server, then sends the commands of one stream on several connections at a time.
fn send_all(
    server: &ServerProcess,
    settings: &[&[&str]],
    commands: &mut Commands<'_>,
    summary: &mut Summary,
) -> io::Result<()> {
    let lost = |error: crate::ClientError| io::Error::other(error.to_string());
    let mut control = server.connect();
    control.command(&["FLUSHALL"]);
    for setting in settings {
        let mut words: Vec<String> = setting.iter().map(|&word| word.into()).collect();
        if let Some(word) = words.iter_mut().find(|word| *word == "USED") {
            let info = control.command(&["INFO", "memory"]);
            let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
            let used = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
            let used: u64 = used.and_then(|used| used.parse().ok()).unwrap_or(4 << 20);
            *word = (used + 4000).to_string();
        }
        let reply = control.command(&words);
        if reply.is_error() {
            return Err(io::Error::other(format!("{} answered {reply}", words.join(" "))));
        }
    }
    let mut clients: Vec<Client> = (0..CONNECTIONS).map(|_| server.connect()).collect();
    for _ in 0..COMMANDS_PER_CONNECTION / 50 {
        for client in &mut clients {
            let mut bytes = Vec::new();
            for _ in 0..50 {
                encode_request(&commands.next(), &mut bytes);
            }
            summary.commands += 50;
            client.send(&bytes).map_err(lost)?;
        }
        for client in &mut clients {
            client.read_many(50).map_err(lost)?;
        }
    }
    for client in &mut clients {
        client.request(&["RESET"]).map_err(lost)?;
    }
    control.command(&["CONFIG", "SET", "maxmemory", "0"]);
    control.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    Ok(())
}

fn is_loaded_otherwise(line: &str) -> bool {
    LOADED_OTHERWISE_BY_REDIS.iter().any(|start| line.starts_with(start))
}

/// The source of a stream's commands.
struct Commands<'g> {
    grammar: &'g Grammar,
    /// The lines of [`TIME_DEPENDENT`] to use.
    mortal: &'g [&'static str],
    /// The counter for the ids of streams.
    clock: u64,
    rng: Rng,
}

impl Commands<'_> {
    fn next(&mut self) -> Args {
        if !self.rng.percent(MORTAL_PERCENT) {
            return self.grammar.command(Kind::Sessions, &mut self.clock, &mut self.rng);
        }
        let line = *self.rng.pick(self.mortal);
        let filled: String =
            line.chars().map(|letter| if letter == '%' { digit(&mut self.rng) } else { letter }).collect();
        stdx::quoted::split_quoted(filled.as_bytes()).expect("the table is well quoted")
    }
}

fn digit(rng: &mut Rng) -> char {
    *rng.pick(&['1', '2', '3'])
}

/// Returns the commands of the grammar that a server does not know.
fn unknown_to(client: &mut Client) -> Vec<String> {
    let is_unknown =
        |reply: Value| matches!(reply, Value::Error(text) if text.starts_with(b"ERR unknown command"));
    let names = Grammar::names();
    let mut unknown = Vec::new();
    for name in names {
        client.command(&["RESET"]);
        if is_unknown(client.command(&[name])) {
            unknown.push(name.to_string());
        }
    }
    unknown
}

/// Returns the keys that differ, with their changes in the stream.
fn reported(source: &mut Client, target: &mut Client, changes: &[Change]) -> String {
    let mut out = String::new();
    for db in 0..DATABASES {
        let (ours, theirs) = (content(source, db), content(target, db));
        let mut keys: Vec<_> = ours.iter().chain(&theirs).map(|(key, _)| key.clone()).collect();
        keys.sort();
        keys.dedup();
        for key in keys {
            let of = |side: &[(Vec<u8>, String)]| {
                side.iter().find(|(name, _)| *name == key).map(|it| it.1.clone())
            };
            let (ours, theirs) = (of(&ours), of(&theirs));
            if ours == theirs {
                continue;
            }
            let shown = command_line(std::slice::from_ref(&key));
            let mut line = |text: String| writeln!(out, "{text}").expect("writing to a string cannot fail");
            line(format!("  database {db}, key {shown}:"));
            line(format!("    source: {}", ours.unwrap_or_else(|| "-".into())));
            line(format!("    replayed: {}", theirs.unwrap_or_else(|| "-".into())));
            let concerns = |change: &&Change| {
                change.words[1..].contains(&key)
                    || matches!(&*change.name(), "SWAPDB" | "FLUSHDB" | "FLUSHALL")
            };
            for change in changes.iter().filter(concerns) {
                line(format!("      {change}"));
            }
        }
    }
    out
}

/// Returns each key of a database, with its expiry, digest and value in one line.
fn content(client: &mut Client, db: u32) -> Vec<(Vec<u8>, String)> {
    client.command(&["SELECT", &db.to_string()]);
    let keys = client.command(&["KEYS", "*"]);
    let Value::Array(keys) = keys else { return Vec::new() };
    let keys = keys.iter().filter_map(Value::as_bytes).map(<[u8]>::to_vec);
    keys.map(|key| {
        let mut line = String::new();
        let kind = client.command(&[b"TYPE", &key[..]]);
        let reads: &[&str] = match &kind {
            Value::Simple(kind) if kind == b"string" => &["GET %"],
            Value::Simple(kind) if kind == b"list" => &["LRANGE % 0 -1"],
            Value::Simple(kind) if kind == b"hash" => &["HGETALL %"],
            Value::Simple(kind) if kind == b"set" => &["SORT % ALPHA"],
            Value::Simple(kind) if kind == b"zset" => &["ZRANGE % 0 -1 WITHSCORES"],
            Value::Simple(kind) if kind == b"stream" => &["XINFO STREAM % FULL COUNT 0"],
            _ => &[],
        };
        for read in ["PEXPIRETIME %", "DEBUG DIGEST-VALUE %"].iter().chain(reads) {
            let words: Vec<Vec<u8>> = read
                .split(' ')
                .map(|word| if word == "%" { key.clone() } else { word.as_bytes().to_vec() })
                .collect();
            write!(line, "{} ", one_line(&client.command(&words))).expect("writing to a string cannot fail");
        }
        (key, line)
    })
    .collect()
}
