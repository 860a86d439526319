//! Real servers that follow this one: the same data after a full sync, after random commands and
//! after cuts, and the protocol between both sides.
//!
//! The replicas are peers (`SAKER_PEER`). `SAKER_PRIMARY`, a command line, names another primary.
//! With a real server as the primary, a failure is an error of the tests. The seed of all random
//! choices is `PROPTEST_RNG_SEED`, or 1; messages of failures name it.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use testkit::change_stream::forms::PeerVersion;
use testkit::process::free_port;
use testkit::replication::{Replica, happens, info, run};
use testkit::{Client, Rng, ServerProcess, peer};

use crate::support::BINARY;

pub(crate) mod cuts;
mod data;
mod each_byte;
pub(crate) mod faults;
mod limits;
mod protocol;
mod restarts;
mod roles;
mod state;
mod transports;
mod waits;

/// The options with which all primaries start.
const OPTIONS: &[&str] = &[
    "--save",
    "",
    "--enable-debug-command",
    "yes",
    "--hz",
    "100",
    "--repl-diskless-sync",
    "yes",
    "--repl-diskless-sync-delay",
    "0",
    "--repl-ping-replica-period",
    "3600",
    "--repl-backlog-size",
    "16mb",
];

/// The server that the replicas follow.
struct Primary {
    process: ServerProcess,
}

impl Primary {
    /// Starts a primary with further `options`.
    fn start(options: &[&str]) -> Self {
        Self::start_on(free_port().expect("a port is free"), options)
    }

    /// Starts a primary on the port `port`.
    fn start_on(port: u16, options: &[&str]) -> Self {
        let line: Vec<OsString> = match std::env::var("SAKER_PRIMARY") {
            Ok(line) => line.split_whitespace().map(OsString::from).collect(),
            Err(_) => [BINARY, "--io-threads", "2"].map(OsString::from).into(),
        };
        let options: Vec<String> = OPTIONS.iter().chain(options).map(|&option| option.into()).collect();
        let process = ServerProcess::start_on(&line, port, &options);
        let process = process.unwrap_or_else(|error| panic!("the primary: {error}"));
        let mut client = process.connect();
        assert!(happens(|| !client.command(&["DBSIZE"]).is_error()), "it loads its files: {}", process.log());
        let primary = Self { process };
        primary.suit(&peer_version());
        primary
    }

    /// Starts a primary whose files are in `folder`.
    fn start_in(folder: &Path, port: u16, options: &[&str]) -> Self {
        let dir = folder.to_str().expect("a name of text");
        Self::start_on(port, &[&["--dir", dir], options].concat())
    }

    fn port(&self) -> u16 {
        self.process.port()
    }

    fn connect(&self) -> Client {
        self.process.connect()
    }

    /// Returns the version that the primary states in INFO.
    fn version(&self) -> PeerVersion {
        PeerVersion::of(&mut self.connect()).expect("it states its version")
    }

    /// Configures the primary so that its snapshots can be read by a Redis before 7.2, which does
    /// not state its version in its handshake. A real Redis 8 as the primary must send the snapshot
    /// on the link that carries the replication stream.
    fn suit(&self, peer_version: &str) {
        self.connect().command(&["CONFIG", "SET", "repl-rdb-channel", "no"]);
        let rdb = match peer_version.split('.').collect::<Vec<_>>()[..] {
            ["6", ..] => "9",
            ["7", "0" | "1", ..] => "10",
            _ => return,
        };
        // A real server as the primary does not know the option.
        self.connect().command(&["CONFIG", "SET", "rdb-version", rdb]);
    }
}

/// Returns the version of the peers, as their program states it.
pub(crate) fn peer_version() -> String {
    let line = peer::command_line();
    let mut words = line.split_whitespace();
    let mut command = Command::new(words.next().expect("a program"));
    let output = command.args(words).arg("--version").output().expect("the peer states its version");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or_default().to_owned()
}

/// Starts a replica with further `options` that follows the primary, and waits until its link to
/// the primary is up.
fn replica_of(primary: &Primary, options: &[&str]) -> Replica {
    let replica = Replica::start(options).unwrap_or_else(|error| panic!("the replica: {error}"));
    replica.follow(primary.port());
    replica.wait_until_up();
    replica
}

/// Prints a note and returns true if no peer is available.
pub(crate) fn is_without_peer() -> bool {
    if !peer::is_available() {
        eprintln!("no redis-server on the PATH and no SAKER_PEER: nothing follows");
    }
    !peer::is_available()
}

/// Returns true if a server is a Redis of at least this version, or any Valkey.
fn is_at_least(version: PeerVersion, redis: (u8, u8)) -> bool {
    match version {
        PeerVersion::Redis(version) => (version.major, version.minor) >= redis,
        PeerVersion::Valkey(_) => true,
    }
}

/// Returns the seed of the random choices: `PROPTEST_RNG_SEED`, or 1.
pub(crate) fn seed() -> u64 {
    let given = std::env::var("PROPTEST_RNG_SEED").ok();
    given.map_or(1, |text| text.parse().expect("PROPTEST_RNG_SEED is a number"))
}

/// Writes values of every type and encoding to some databases. Returns the number of values.
pub(crate) fn fill(client: &mut Client, seed: u64, count: usize) {
    let mut rng = Rng::new(seed);
    for db in ["0", "1", "9"] {
        run(client, &["SELECT", db]);
        for kind in crate::dump::TYPES {
            for number in 0..count {
                let commands = crate::dump::value(kind, &format!("{kind}:{number}"), &mut rng);
                // A primary may be too old for fields that expire.
                client.pipeline(&commands).expect("the primary answers");
            }
        }
    }
    run(client, &["SELECT", "0"]);
}

/// Returns the number of replicas that INFO of the primary shows.
fn replicas(client: &mut Client) -> u64 {
    let text = info(client, "replication");
    let line = text.lines().find_map(|line| line.strip_prefix("connected_slaves:"));
    line.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Returns true if a server of this version has hash fields that expire.
pub(crate) fn has_field_expiry(version: PeerVersion) -> bool {
    version.knows(commands::record::forms::KnownSince::FIELD_EXPIRY)
}

/// Removes the expiry of all fields in the hashes that [`fill`] creates.
pub(crate) fn persist_fields(client: &mut Client) {
    for db in ["0", "1", "9"] {
        run(client, &["SELECT", db]);
        for number in 0..50 {
            let key = format!("expiring hash:{number}");
            client.command(&["DEL", &key]);
        }
    }
    run(client, &["SELECT", "0"]);
}
