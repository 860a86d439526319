//! Counters: each thread writes its own, readers sum them. No shared cache line
//! on the request's path.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use commands::Args;
use crossbeam_utils::CachePadded;

use self::histogram::Histogram;
use crate::table::Registered;

pub mod command_log;
pub mod end_to_end;
pub mod errors;
pub mod histogram;
pub mod hot_keys;
pub mod latency_events;

/// A counter with one writer.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds on the owning thread. Relaxed: readers want a recent value, nothing more.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Takes `n` off on the owning thread.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// Returns the value, from any thread.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Starts over (CONFIG RESETSTAT); an addition at the same moment may survive.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// The counters of one thread for one command.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// Runs.
    pub calls: Counter,
    /// Time spent, in nanoseconds. `crate::timing` says how they are measured.
    pub nanos: Counter,
    /// The histogram of their times; created by the first run.
    pub times: OnceLock<Histogram>,
    /// The same from the arrival of a request to the sending of its reply:
    /// `crate::stats::end_to_end`.
    pub end_to_end: OnceLock<Histogram>,
    /// The sum of these, in nanoseconds.
    pub end_to_end_nanos: Counter,
    /// Refused before they ran.
    pub rejected: Counter,
    /// Ended in an error.
    pub failed: Counter,
}

/// The counters of one I/O thread.
#[derive(Debug)]
pub struct ThreadStats {
    /// By command id.
    pub commands: Box<[CommandCounters]>,
    /// Requests run.
    pub processed: Counter,
    /// Connections taken in.
    pub connections: Counter,
    /// Connections open now.
    pub clients: Counter,
    /// Bytes received.
    pub input_bytes: Counter,
    /// Bytes of replies.
    pub output_bytes: Counter,
    /// Reads that found their key.
    pub hits: Counter,
    /// Reads that did not.
    pub misses: Counter,
    /// Keys removed because a command met them after their time.
    pub expired_keys: Counter,
    /// Keys evicted.
    pub evicted_keys: Counter,
    /// Fields of hashes removed because a command met them after their time.
    pub expired_fields: Counter,
    /// Clients closed because of `maxmemory-clients`.
    pub evicted_clients: Counter,
    /// Changes to the data.
    pub changes: Counter,
    /// Error replies.
    pub errors: Counter,
    /// Loop turns, those that ran no request as well.
    pub cycles: Counter,
    /// Their time without that of waiting for something to do, in nanoseconds.
    pub cycles_nanos: Counter,
    /// The part of it in which requests were run, in nanoseconds.
    pub running_nanos: Counter,
    /// The refusals of access control.
    pub denied: Denials,
    /// Times that a connection's bytes were received.
    pub reads: Counter,
    /// Times that bytes were sent to a connection.
    pub writes: Counter,
    /// Requests that failed before dispatch knew a command.
    pub unknown_commands: Counter,
    /// Requests that ended with an error that they should not meet: their handler used a key that
    /// its record does not declare, or they were replayed from a file.
    pub unexpected_errors: Counter,
    /// Scripts.
    pub scripts: ScriptCounters,
    /// Clients closed because of a limit.
    pub disconnections: Disconnections,
}

/// The refusals of access control.
#[derive(Debug, Default)]
pub struct Denials {
    /// Names and passwords.
    pub auth: Counter,
    /// Requests for their command.
    pub commands: Counter,
    /// For a key.
    pub keys: Counter,
    /// For a channel.
    pub channels: Counter,
    /// For a database.
    pub databases: Counter,
}

/// The counters of script runs.
#[derive(Debug, Default)]
pub struct ScriptCounters {
    /// Under the locks of their keys.
    pub parallel: Counter,
    /// As the exclusive owner.
    pub alone: Counter,
    /// Ended to run again as the exclusive owner.
    pub rerun: Counter,
}

/// Clients that were closed because of a limit.
#[derive(Debug, Default)]
pub struct Disconnections {
    /// Their output grew over it.
    pub output_limit: Counter,
    /// Their input did.
    pub query_limit: Counter,
}

impl ThreadStats {
    /// Starts over with everything that counts events; what is a state (open connections) and what
    /// other counters lean on (changes) stays.
    pub fn reset(&self) {
        let counters = [
            &self.processed,
            &self.connections,
            &self.input_bytes,
            &self.output_bytes,
            &self.hits,
            &self.misses,
            &self.expired_keys,
            &self.evicted_keys,
            &self.evicted_clients,
            &self.expired_fields,
            &self.errors,
            &self.cycles,
            &self.cycles_nanos,
            &self.running_nanos,
            &self.denied.auth,
            &self.denied.commands,
            &self.denied.keys,
            &self.denied.channels,
            &self.denied.databases,
            &self.reads,
            &self.writes,
            &self.unknown_commands,
            &self.unexpected_errors,
            &self.disconnections.output_limit,
            &self.disconnections.query_limit,
        ];
        counters.into_iter().for_each(Counter::reset);
        for command in &self.commands {
            let counters = [
                &command.calls,
                &command.nanos,
                &command.end_to_end_nanos,
                &command.rejected,
                &command.failed,
            ];
            counters.into_iter().for_each(Counter::reset);
            let histograms = command.times.get().into_iter().chain(command.end_to_end.get());
            histograms.for_each(Histogram::reset);
        }
    }

    /// Counters at zero for `command_count` commands.
    pub fn new(command_count: usize) -> CachePadded<Self> {
        CachePadded::new(Self {
            commands: (0..command_count).map(|_| CommandCounters::default()).collect(),
            processed: Counter::default(),
            connections: Counter::default(),
            clients: Counter::default(),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            hits: Counter::default(),
            misses: Counter::default(),
            expired_keys: Counter::default(),
            evicted_keys: Counter::default(),
            evicted_clients: Counter::default(),
            expired_fields: Counter::default(),
            changes: Counter::default(),
            errors: Counter::default(),
            cycles: Counter::default(),
            cycles_nanos: Counter::default(),
            running_nanos: Counter::default(),
            denied: Denials::default(),
            reads: Counter::default(),
            writes: Counter::default(),
            unknown_commands: Counter::default(),
            unexpected_errors: Counter::default(),
            scripts: ScriptCounters::default(),
            disconnections: Disconnections::default(),
        })
    }
}

/// Thresholds at which a command is logged; `u64::MAX` for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Nanoseconds, requests' bytes and replies' bytes, by [`Kind`](command_log::Kind).
    pub from: [u64; 3],
    /// Milliseconds at which the latency monitor records an event; 0 for never.
    pub latency_ms: u64,
    /// The nanoseconds from which on either the log of slow commands or the latency
    /// monitor notes a command.
    pub noted_nanos: u64,
    /// Entries that are kept, by [`Kind`](command_log::Kind).
    pub len_max: [usize; 3],
    /// True if histograms are kept.
    pub histograms: bool,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            from: [10_000_000, 1 << 20, 1 << 20],
            latency_ms: 0,
            noted_nanos: 10_000_000,
            len_max: [128; 3],
            histograms: true,
        }
    }
}

/// A command that was run: what is noted of it.
pub struct Ran<'a> {
    /// The command.
    pub registered: &'static Registered,
    /// Its arguments.
    pub args: &'a Args<'a>,
    /// Bytes of its request and of its reply.
    pub bytes: [usize; 2],
    /// Calls that were timed together, of which it is the last.
    pub calls: u64,
}
