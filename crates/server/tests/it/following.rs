//! This server as a replica: of real servers, of other servers like it, and in chains of both.
//!
//! Real servers are peers (`SAKER_PEER`). The seed of all random choices is `PROPTEST_RNG_SEED`, or
//! 1; messages of failures name it. `SAKER_FOLLOWING=all` runs what CI only samples.

use std::ffi::OsString;

use commands::record::forms::KnownSince;
use testkit::change_stream::forms::PeerVersion;
use testkit::change_stream::peers::{differing_keys, has_same_data};
use testkit::process::free_port;
use testkit::replication::{SyncCounts, field, happens, info, number, run};
use testkit::{Client, ServerProcess, Value, peer};

use crate::replication::{fill, has_field_expiry, is_without_peer, peer_version, persist_fields, seed};
use crate::support::BINARY;

mod chains;
mod clients;
mod cuts;
mod data;
mod failover;
mod faults;
mod logins;
mod made_up;
mod readers;
mod roles;
mod swapdb;
mod trees;
mod unknown;

/// The options with which all servers start. A test that waits for a timeout sets its own.
const OPTIONS: &[&str] = &[
    "--save",
    "",
    "--enable-debug-command",
    "yes",
    "--hz",
    "100",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "3600",
    "--repl-timeout",
    "3600",
    "--repl-backlog-size",
    "16mb",
];

/// The program of a server in the tests: this one, or a real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The program is the server under test.
    Own,
    /// The program is a real server (Redis or Valkey).
    Peer,
}

impl Kind {
    /// Returns the command line that starts the program of a server of this kind.
    fn command_line(self) -> Vec<OsString> {
        match self {
            Self::Own => [BINARY, "--io-threads", "2"].map(OsString::from).into(),
            Self::Peer => peer::command_line().split_whitespace().map(OsString::from).collect(),
        }
    }
}

/// A running server: the one under test, or a real one.
struct Node {
    process: ServerProcess,
    kind: Kind,
    version: PeerVersion,
    /// The password with which the test logs in to the server; empty for no login.
    password: &'static str,
}

impl Node {
    /// Starts a server with further `options`. The server is a primary, unless an option makes it a
    /// replica.
    fn start(kind: Kind, options: &[&str]) -> Self {
        Self::start_on(kind, free_port().expect("a port is free"), options)
    }

    /// Starts a server on the port `port`, and waits until it has loaded its files.
    fn start_on(kind: Kind, port: u16, options: &[&str]) -> Self {
        let options: Vec<String> = OPTIONS.iter().chain(options).map(|&option| option.into()).collect();
        let process = ServerProcess::start_on(&kind.command_line(), port, &options);
        let process = process.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
        let mut client = process.connect();
        let has_loaded = happens(|| field(&mut client, "persistence", "loading") == "0");
        assert!(has_loaded, "{kind:?} does not load its files: {}", process.log());
        let version = PeerVersion::of(&mut client).expect("it states its version");
        Self { process, kind, version, password: "" }
    }

    /// Starts the server under test as a replica of `primary`, and waits until the link between
    /// them is up.
    fn following(primary: &Self, options: &[&str]) -> Self {
        let node = Self::start(Kind::Own, options);
        node.follow(primary.port());
        node.wait_until_up();
        node
    }

    /// Lets a peer before Redis 7.2 read this server's snapshots: they get RDB version 9 or 10,
    /// because such a peer does not state its version in its handshake. Hash fields that expire do
    /// not fit in these versions, functions not in version 9.
    fn suit_peers(&self) {
        let rdb = match peer_version().split('.').collect::<Vec<_>>()[..] {
            ["6", ..] => "9",
            ["7", "0" | "1", ..] => "10",
            _ => return,
        };
        if self.kind == Kind::Own {
            run(&mut self.connect(), &["CONFIG", "SET", "rdb-version", rdb]);
        }
    }

    fn port(&self) -> u16 {
        self.process.port()
    }

    fn connect(&self) -> Client {
        let mut client = self.process.connect();
        if !self.password.is_empty() {
            run(&mut client, &["AUTH", self.password]);
        }
        client
    }

    /// Makes the server a replica of the primary at `port`.
    fn follow(&self, port: u16) {
        run(&mut self.connect(), &["REPLICAOF", "127.0.0.1", &port.to_string()]);
    }

    /// Makes the server a primary that keeps its data (REPLICAOF NO ONE).
    fn promote(&self) {
        run(&mut self.connect(), &["REPLICAOF", "NO", "ONE"]);
    }

    /// Makes the server a primary, and removes its data and its replication history.
    fn leave(&self) {
        self.promote();
        run(&mut self.connect(), &["FLUSHALL"]);
    }

    /// Returns the value of the field `name` in the section `replication` of INFO.
    fn link(&self, name: &str) -> String {
        field(&mut self.connect(), "replication", name)
    }

    fn is_replica(&self) -> bool {
        self.link("role") == "slave"
    }

    fn is_up(&self) -> bool {
        self.link("master_link_status") == "up"
    }

    /// Waits until the link to the primary is up.
    fn wait_until_up(&self) {
        assert!(happens(|| self.is_up()), "the link stays down: {}", self.state());
    }

    /// Waits until the link to the primary is down.
    fn wait_until_down(&self) {
        assert!(happens(|| !self.is_up()), "the link stays up: {}", self.state());
    }

    /// Returns the server's offset in the replication stream: of a primary the end of what it has
    /// written, of a replica the end of what it has applied.
    fn offset(&self) -> u64 {
        number(&mut self.connect(), "replication", "master_repl_offset")
    }

    /// Returns the numbers of full and partial syncs that the server has given since its start.
    fn syncs(&self) -> SyncCounts {
        SyncCounts::of(&mut self.connect())
    }

    /// Returns the numbers of full and partial syncs that the server has given since `before`.
    fn syncs_since(&self, before: SyncCounts) -> (u64, u64) {
        self.syncs().since(before)
    }

    /// Waits until the link of this replica to its primary is up and the replica has reached the
    /// offset of `primary`.
    fn catch_up(&self, primary: &Self) {
        let (mut own, mut theirs) = (self.connect(), primary.connect());
        let caught_up = happens(|| {
            field(&mut own, "replication", "master_link_status") == "up"
                && number(&mut theirs, "replication", "master_repl_offset")
                    == number(&mut own, "replication", "slave_repl_offset")
        });
        assert!(
            caught_up,
            "the replica does not catch up with\n{}\n{}",
            info(&mut theirs, "replication"),
            self.state()
        );
    }

    /// Waits until this server has the offset and the data of `primary`, to which no client writes
    /// during the wait. `what` names the test run in messages.
    fn wait_for_data_of(&self, primary: &Self, what: &str) {
        // The forms of a comparison depend on the real server, if there is one.
        let version = if primary.kind == Kind::Peer { primary.version } else { self.version };
        let (mut own, mut theirs) = (self.connect(), primary.connect());
        // Keys expire between the two digests. Their removal is in the stream soon.
        let is_same = happens(|| {
            self.catch_up(primary);
            has_same_data(version, &mut own, &mut theirs)
        });
        let differing = if is_same { String::new() } else { differing_keys(version, &mut own, &mut theirs) };
        assert!(is_same, "{what}: other data\n{differing}\n{}", self.state());
    }

    /// Describes the state of the link to the primary, with the last lines of the server's log, for
    /// messages.
    fn state(&self) -> String {
        let log = self.process.log();
        let lines: Vec<&str> = log.lines().collect();
        let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n");
        let runs = Client::connect(&self.process.address()).is_ok();
        let state = if runs { info(&mut self.connect(), "replication") } else { String::new() };
        format!("{state}\n{last}")
    }

    /// Returns true if the server has functions.
    fn has_functions(&self) -> bool {
        self.version.knows(KnownSince::REDIS_7)
    }

    /// Returns true if the server has channels of shards.
    fn has_shard_channels(&self) -> bool {
        self.version.knows(KnownSince::REDIS_7)
    }

    /// Returns the function libraries of the server, sorted by name.
    fn functions(&self) -> Vec<String> {
        if !self.has_functions() {
            return Vec::new();
        }
        let reply = self.connect().command(&["FUNCTION", "LIST", "WITHCODE"]);
        let Value::Array(libraries) = reply else { panic!("{reply}") };
        let mut texts: Vec<String> = libraries.iter().map(ToString::to_string).collect();
        texts.sort();
        texts
    }

    /// Returns the number of commands from the primary that failed on this server.
    fn failed_commands(&self) -> String {
        self.link("master_link_failed_commands")
    }

    /// Writes `count` values of each type that this server and replicas of all versions in
    /// `replicas` support.
    fn fill(&self, seed: u64, count: usize, replicas: &[PeerVersion]) {
        let mut client = self.connect();
        fill(&mut client, seed, count);
        if !replicas.iter().all(|&version| has_field_expiry(version)) {
            persist_fields(&mut client);
        }
        for number in 0..count {
            let (key, at) = (format!("lasting:{number}"), (1_900_000_000_000 + number).to_string());
            run(&mut client, &["SET", &key, "value", "PXAT", &at]);
        }
    }
}

/// Number of lines of a server's log in messages of failures.
const LOG_LINES: usize = 40;

/// Returns the kinds of primaries that can be tested here: without a peer, only [`Kind::Own`].
fn kinds() -> Vec<Kind> {
    if is_without_peer() { vec![Kind::Own] } else { vec![Kind::Own, Kind::Peer] }
}

/// Returns true if `SAKER_FOLLOWING=all` requests the long runs.
fn runs_all() -> bool {
    std::env::var("SAKER_FOLLOWING").as_deref() == Ok("all")
}

/// Returns the text of a bulk string.
fn text(value: &Value) -> String {
    String::from_utf8_lossy(value.as_bytes().unwrap_or_default()).into_owned()
}
