//! A test with random commands: servers that replay the resulting stream of changes must end with
//! the same data.
//!
//! Several connections send commands at the same time. Some commands block until others run, some
//! let keys expire at once, and some are transactions. Then the stream is replayed into an empty
//! server and `DEBUG DIGEST` is compared. A difference is reported with the keys that differ and
//! their changes in the stream. The seed does not determine the interleaving of the commands; the
//! data must be equal for every interleaving.

use std::fmt::Write;
use std::io;
use std::time::{Duration, Instant};

use commands::record::forms::KnownSince;
use resp::{Value, encode_request};

use super::forms::{PeerVersion, versions_for};
use super::peers::Peer;
use super::recorded::RecordedServer;
use super::reported::reported;
use super::{Change, parse};
use crate::client::Client;
use crate::differential::{Args, Grammar, Kind};
use crate::notation::one_line;
use crate::process::{ServerProcess, saker};
use crate::rng::Rng;

/// Number of connections that send commands at the same time.
const CONNECTIONS: usize = 3;

/// Number of commands that each connection sends before the stream of changes is replayed.
const COMMANDS_PER_CONNECTION: usize = 250;

/// Percentage of commands taken from [`TIME_DEPENDENT`] and [`NEWER`] instead of the grammar.
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

/// Templates of commands whose replies depend on the time or on chance. The generator of the
/// differential test leaves them out. They are about keys and fields that expire during the run,
/// random choices, and results stored from sets. `%` stands for a random digit.
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
    "XADD x% MAXLEN ~ % LIMIT 1% * f v",
    "XTRIM x% MAXLEN ~ % LIMIT 1%",
    "XTRIM x% MINID ~ 9% LIMIT 0",
    "XREADGROUP GROUP g1 alice COUNT % STREAMS x% >",
    "XREADGROUP GROUP g1 bob COUNT % STREAMS x% 0",
    "XGROUP CREATE x% g1 0 MKSTREAM",
    "XAUTOCLAIM x% g1 bob 0 0 COUNT %",
    "RESTORE r% 1% \"\\x00\\xc1\\x39\\x30\\x0c\\x00\\xd3\\xff\\x0c\\xd1\\x96\\x41\\xc6\\xd1\" REPLACE",
    "BLPOP l% l1 0.01",
    "BLMOVE l% l1 LEFT RIGHT 0.01",
    "BLMPOP 0.01 2 l% l1 LEFT COUNT %",
    "LMOVEM l% l1 LEFT LEFT COUNT % OBO",
    "LMOVEM l1 l% RIGHT RIGHT EXACTLY % BULK",
    "BZPOPMIN z% z1 0.01",
    "BZMPOP 0.01 2 z% z1 MAX COUNT %",
    "XREADGROUP GROUP g1 carol BLOCK 10 STREAMS x% >",
    "LPUSH l% a b c",
    "RPUSH l1 a",
    "ZADD z% 1 a 2 b",
    "FLUSHDB",
];

/// Templates of requests with options that only Saker knows, not the peers. The grammar of the
/// differential test has none of them.
const NEWER: &[&str] = &[
    "SET s% % IFEQ %",
    "SET s% % IFNE % PX 5%00",
    "SET s% % IFNE % GET KEEPTTL",
    "SET s% % NX GET",
    "SET s% % GET PXAT 9999999999999",
    "MSETEX 2 s% % s% % XX EX 100",
    "PEXPIREAT s% 9999999999% GT",
    "EXPIRE l% 10% NX",
    "EXPIRE z% 10% LT",
    "BITOP DIFF s% s% s%",
    "BITOP DIFF1 s% s% s%",
    "BITOP ANDOR s% s% s%",
    "BITOP ONE s% s% nothing",
    "BITOP ONE s% nothing nobody",
    "GEOADD z% 13.361389 38.115556 a 15.087269 37.502669 b 2%.35 4%.85 c",
    "GEOSEARCHSTORE z% z% BYPOLYGON 3 10 35 20 35 15 45",
    "GEOSEARCHSTORE z% z% FROMLONLAT 15 37 BYRADIUS 3000 KM STOREDIST",
    "GEORADIUS z% 15 37 2000 km COUNT % ANY STORE z%",
    "XADD x% DELREF * f v",
    "XADD x% MAXLEN 1% DELREF * f v",
    "XADD x% MINID ~ 3 ACKED * f v",
    "XADD x% MAXLEN 1% ACKED * f v",
    "XTRIM x% MAXLEN 1% DELREF",
    "XTRIM x% MAXLEN % ACKED",
    "XTRIM x% MAXLEN ~ % DELREF",
    "XACK x% g1 %-%",
    "XDELEX x% DELREF IDS 2 %-% %-0",
    "XACKDEL x% g1 DELREF IDS 2 %-% %-0",
    "HSETEX h% KEEPTTL FIELDS 1 f% %",
    "HSETEX h% FIELDS 2 f% % f1 %",
    "FUNCTION LOAD REPLACE \"#!lua name=lib%\\nredis.register_function('f%', function() end)\"",
];

/// The commands of [`TIME_DEPENDENT`] that Redis applies in another way while it loads an
/// append-only file, if a field has expired. HPERSIST then ignores the expired field, and HINCRBY
/// begins at 0. Its own append-only files have the same problem. Streams for peers do not contain
/// these commands.
const LOADED_OTHERWISE_BY_REDIS: &[&str] = &["HINCRBY h%", "HINCRBYFLOAT h%", "HPERSIST h%"];

/// The results of a replay test: the number of commands sent, of streams of changes replayed, and
/// the differences.
#[derive(Debug, Default)]
pub struct Summary {
    /// The number of random commands sent to the server whose stream of changes is replayed.
    pub commands: u64,
    /// The number of write commands in the streams of changes that resulted.
    pub changes: u64,
    /// The number of streams of changes that were replayed.
    pub streams: u64,
    /// The differences found in the replayed data, each as a text.
    pub failures: Vec<String>,
}

/// The commands that set or change the expiry of fields. Valkey before 9.0 has no such expiry, so
/// the streams of changes that it applies do not contain them.
const FIELD_EXPIRY: &[&str] =
    &["HEXPIRE", "HPEXPIRE", "HEXPIREAT", "HPEXPIREAT", "HPERSIST", "HGETEX", "HSETEX"];

/// The peers that apply a stream of changes in addition to Saker; they limit the commands that it
/// may contain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Audience {
    /// Only Saker applies the stream of changes, no peer: every command may run.
    Saker,
    /// Saker and the peers whose version has expiry of hash fields apply the stream of changes.
    FieldExpiry,
    /// Saker and all peers apply the stream of changes, also those without expiry of hash fields.
    All,
}

impl Audience {
    /// Returns true if a stream of changes for this audience may contain the command. `line` is the
    /// beginning of the command, its name first.
    fn permits(self, line: &str) -> bool {
        let name = line.split(' ').next().unwrap_or_default();
        (self == Self::Saker || !is_loaded_otherwise(line))
            && (self != Self::All || !FIELD_EXPIRY.contains(&name))
    }

    /// Returns true if this peer applies the streams of changes for this audience.
    fn includes(self, peer: &Peer) -> bool {
        match self {
            Self::Saker => false,
            Self::FieldExpiry => peer.version().knows(KnownSince::HSETEX),
            Self::All => true,
        }
    }
}

/// A server into which streams of changes are replayed.
enum Target {
    Peer(Peer),
    Saker(ServerProcess),
}

impl Target {
    /// Replaces the content of the server by the content of `stream`, a stream of changes.
    fn replay(&mut self, stream: &[u8], changes: &[Change]) -> io::Result<()> {
        match self {
            Self::Peer(peer) => peer.replay(stream),
            Self::Saker(server) => pipe(server, stream, changes),
        }
    }

    fn connect(&self) -> Client {
        match self {
            Self::Peer(peer) => peer.connect(),
            Self::Saker(server) => server.connect(),
        }
    }

    fn name(&self) -> String {
        match self {
            Self::Peer(peer) => peer.version().to_string(),
            Self::Saker(_) => "Saker".into(),
        }
    }

    fn is_for(&self, audience: Audience) -> bool {
        match self {
            Self::Peer(peer) => audience.includes(peer),
            Self::Saker(_) => true,
        }
    }
}

/// Sends the stream of changes to an empty Saker server over one connection. The server expires no
/// key by itself.
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

/// The settings of the server whose stream of changes is replayed; the runs use them in turn.
const SETTINGS: &[&[&[&str]]] = &[
    &[&["CONFIG", "SET", "maxmemory", "0"], &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]],
    &[&["CONFIG", "SET", "maxmemory", "0"], &["DEBUG", "SET-ACTIVE-EXPIRE", "1"]],
    &[
        &["DEBUG", "SET-ACTIVE-EXPIRE", "1"],
        &["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
        &["CONFIG", "SET", "maxmemory", "USED"],
    ],
];

/// Runs random commands for `time`, starting from `seed`, and replays the resulting streams of
/// changes into a Saker and into the peers with these command lines.
///
/// # Errors
/// A server does not start, or ends.
pub fn run(seed: u64, time: Duration, peers: &[String]) -> io::Result<Summary> {
    let start = Instant::now();
    let into_saker = saker::start(&["--enable-debug-command", "yes", "--import-mode", "yes"])?;
    into_saker.connect().command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
    let mut targets = vec![Target::Saker(into_saker)];
    for line in peers {
        targets.push(Target::Peer(Peer::start(line)?));
    }
    let mut source = RecordedServer::saker(&["--io-threads", "2"])?;
    let mut summary = Summary::default();
    let mut seeds = Rng::new(seed);
    let mut db = 0;
    while start.elapsed() < time && summary.failures.len() < 3 {
        let mut rng = Rng::new(seeds.next_u64());
        let settings = SETTINGS[summary.streams as usize % SETTINGS.len()];
        let audiences = if peers.is_empty() {
            &[Audience::Saker][..]
        } else {
            &[Audience::Saker, Audience::FieldExpiry, Audience::All]
        };
        let audience = *rng.pick(audiences);
        let mut source_of_commands = Commands::new(audience, rng);
        send_all(&source.process, settings, &mut source_of_commands, &mut summary)?;
        let mut stream = Vec::new();
        encode_request(&["SELECT", &db.to_string()], &mut stream);
        stream.extend_from_slice(&source.bytes()?);
        let changes = parse(&stream, db).map_err(io::Error::other)?;
        db = changes.last().map_or(db, |change| change.db);
        summary.changes += changes.len() as u64;
        summary.streams += 1;
        let known = versions_for(&changes).unwrap_or_else(|error| {
            summary.failures.push(format!("seed {seed}, stream {}: {error}", summary.streams));
            KnownSince::ALL
        });
        let wanted = source.process.connect().command(&["DEBUG", "DIGEST"]);
        for target in targets.iter_mut().filter(|target| target.is_for(audience)) {
            let mut refused = target.replay(&stream, &changes).err().map(|error| error.to_string());
            if let Target::Peer(peer) = &target
                && !peer.version().knows(known)
            {
                refused.get_or_insert_with(|| "the stream has a form that is newer".into());
            }
            let mut from = source.process.connect();
            let same = match &target {
                Target::Peer(peer) => peer.has_data_of(&mut from),
                Target::Saker(server) => server.connect().command(&["DEBUG", "DIGEST"]) == wanted,
            };
            if !same || refused.is_some() {
                let mut text = format!("seed {seed}, stream {}, into {}\n", summary.streams, target.name());
                if let Some(error) = refused {
                    writeln!(text, "  {error}").expect("writing to a string cannot fail");
                }
                text += &reported(&mut from, &mut target.connect(), &changes);
                summary.failures.push(text);
            }
        }
    }
    Ok(summary)
}

/// Empties the server, then sends random commands that produce one stream of changes, on several
/// connections at a time.
fn send_all(
    server: &ServerProcess,
    settings: &[&[&str]],
    commands: &mut Commands,
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
                encode_request(&commands.next_command(), &mut bytes);
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

/// The generator of random commands, from whose effects a stream of changes results.
#[derive(Debug)]
pub struct Commands {
    grammar: Grammar,
    /// The templates of [`TIME_DEPENDENT`] and [`NEWER`] that the audience of the stream permits.
    mortal: Vec<&'static str>,
    /// The counter from which the IDs of stream entries are made.
    clock: u64,
    rng: Rng,
}

impl Commands {
    fn new(audience: Audience, rng: Rng) -> Self {
        let grammar = Grammar::new(|name| !LEFT_OUT.contains(&name) && audience.permits(name));
        let lines = TIME_DEPENDENT.iter().chain(NEWER).copied();
        Self { grammar, mortal: lines.filter(|line| audience.permits(line)).collect(), clock: 0, rng }
    }

    /// Creates a generator of commands whose changes a real server of this version can apply.
    pub fn for_version(version: PeerVersion, rng: Rng) -> Self {
        let has_fields = version.knows(KnownSince::HSETEX);
        Self::new(if has_fields { Audience::FieldExpiry } else { Audience::All }, rng)
    }

    /// Generates the next random command to send.
    pub fn next_command(&mut self) -> Args {
        if !self.rng.percent(MORTAL_PERCENT) {
            return self.grammar.command(Kind::Sessions, &mut self.clock, &mut self.rng);
        }
        let line = *self.rng.pick(&self.mortal);
        let filled: String =
            line.chars().map(|letter| if letter == '%' { digit(&mut self.rng) } else { letter }).collect();
        stdx::quoted::split_quoted(filled.as_bytes()).expect("the table is well quoted")
    }
}

fn digit(rng: &mut Rng) -> char {
    *rng.pick(&['1', '2', '3'])
}
