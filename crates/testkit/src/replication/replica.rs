//! A real server (Redis or Valkey) as a replica of the server under test.

use std::ffi::OsString;
use std::io;
use std::time::Duration;

use super::{field, happens, info, number};
use crate::change_stream::forms::PeerVersion;
use crate::change_stream::peers::{differing_keys, has_same_data};
use crate::client::Client;
use crate::process::{ServerProcess, free_port, peer};

/// The numbers of full and partial synchronisations that a primary has made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncCounts {
    /// The number of full synchronisations: the field `sync_full` of INFO.
    pub full: u64,
    /// The number of partial synchronisations: the field `sync_partial_ok` of INFO.
    pub partial: u64,
}

impl SyncCounts {
    /// Reads the numbers of full and partial syncs from INFO of `primary`.
    pub fn of(primary: &mut Client) -> Self {
        Self {
            full: number(primary, "stats", "sync_full"),
            partial: number(primary, "stats", "sync_partial_ok"),
        }
    }

    /// Returns the number of full and of partial synchronisations since `before`.
    pub fn since(self, before: Self) -> (u64, u64) {
        (self.full - before.full, self.partial - before.partial)
    }
}

/// The options of all replicas: they save no snapshots, and notice quickly when the link to the
/// primary is lost or restored.
const OPTIONS: &[&str] = &[
    "--save",
    "",
    "--daemonize",
    "no",
    "--enable-debug-command",
    "yes",
    "--hz",
    "100",
    "--repl-timeout",
    "60",
];

/// A real server (Redis or Valkey) as a replica of the server under test.
#[derive(Debug)]
pub struct Replica {
    process: ServerProcess,
    version: PeerVersion,
}

impl Replica {
    /// Starts the peer, a real server, with further `options`. At first it is not a replica.
    ///
    /// # Errors
    /// The server does not start, or does not state its version.
    pub fn start(options: &[&str]) -> io::Result<Self> {
        Self::start_on(free_port()?, options)
    }

    /// Starts the peer like [`Self::start`], on a given port.
    ///
    /// # Errors
    /// As [`Self::start`]; also if the port is taken.
    pub fn start_on(port: u16, options: &[&str]) -> io::Result<Self> {
        let line: Vec<OsString> = peer::command_line().split_whitespace().map(OsString::from).collect();
        let options: Vec<String> = OPTIONS.iter().chain(options).map(|&option| option.to_owned()).collect();
        let process = ServerProcess::start_on(&line, port, &options)?;
        let mut client = process.connect();
        // A server that loads its file knows its version already.
        let mut version = None;
        happens(|| {
            version = PeerVersion::of(&mut client);
            version.is_some()
        });
        let version = version.ok_or_else(|| io::Error::other("the peer does not state its version"))?;
        Ok(Self { process, version })
    }

    /// Returns the process of the replica's server.
    pub fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// Returns the version of the replica's server.
    pub fn version(&self) -> PeerVersion {
        self.version
    }

    /// Opens a new connection to the replica's server.
    pub fn connect(&self) -> Client {
        self.process.connect()
    }

    /// Makes the server a replica of the primary at `port` on the loopback (REPLICAOF).
    pub fn follow(&self, port: u16) {
        super::run(&mut self.connect(), &["REPLICAOF", "127.0.0.1", &port.to_string()]);
    }

    /// Makes the server a primary (REPLICAOF NO ONE). Removes its data and its replication history.
    pub fn leave(&self) {
        let mut client = self.connect();
        super::run(&mut client, &["REPLICAOF", "NO", "ONE"]);
        super::run(&mut client, &["FLUSHALL"]);
    }

    /// Returns true if the link to the primary is up.
    pub fn is_up(&self) -> bool {
        field(&mut self.connect(), "replication", "master_link_status") == "up"
    }

    /// Waits until the link to the primary is up.
    ///
    /// # Panics
    /// Panics with the log when the link stays down.
    pub fn wait_until_up(&self) {
        assert!(happens(|| self.is_up()), "the link stays down: {}", self.log());
    }

    /// Waits until the link to the primary is up and primary and replica have the same offset.
    ///
    /// # Panics
    /// Panics with the state of both sides when the offsets stay different.
    pub fn catch_up(&self, primary: &mut Client) {
        let mut own = self.connect();
        let caught_up = happens(|| {
            field(&mut own, "replication", "master_link_status") == "up"
                && number(primary, "replication", "master_repl_offset")
                    == number(&mut own, "replication", "slave_repl_offset")
        });
        if !caught_up {
            let sides = [info(primary, "replication"), info(&mut own, "replication")];
            panic!("the replica does not catch up:\n{}\n{}\n{}", sides[0], sides[1], self.log());
        }
    }

    /// Waits until replica and primary have the same offset and data. `what` names the run in the
    /// message of a panic. The connection `primary` is in database 0 afterwards.
    ///
    /// # Panics
    /// Panics with the differing keys when the data stays different.
    pub fn wait_for_data_of(&self, primary: &mut Client, what: &str) {
        let mut own = self.connect();
        let mut tries = 0;
        // Keys expire between the two digests. Their removal is in the stream soon.
        let is_same = happens(|| {
            self.catch_up(primary);
            tries += 1;
            has_same_data(self.version, &mut own, primary) || tries > TRIES_MAX
        });
        if !is_same || tries > TRIES_MAX {
            let keys = differing_keys(self.version, &mut own, primary);
            panic!("{what}: the replica {} has other data\n{keys}\n{}", self.version, self.log());
        }
        super::run(primary, &["SELECT", "0"]);
    }

    /// Returns true if the replica's server has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        self.process.wait(Duration::ZERO).is_ok()
    }

    /// Returns the last lines that the replica's server has printed.
    pub fn log(&self) -> String {
        let log = self.process.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LOG_LINES)..].join("\n")
    }
}

/// Number of lines of the replica's log that the message of a failure shows.
const LOG_LINES: usize = 30;

/// Number of comparisons after which the data of replica and primary counts as different.
const TRIES_MAX: usize = 1_000;
