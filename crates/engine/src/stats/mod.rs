//! Statistics counters. Each thread writes its own counters, and INFO sums them. So requests on
//! different threads share no cache line.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use commands::Args;
use crossbeam_utils::CachePadded;

use self::histogram::Histogram;
use crate::table::Registered;

pub mod command_log;
pub mod compaction;
pub mod end_to_end;
pub mod errors;
pub mod histogram;
pub mod hot_keys;
pub mod latency_events;

/// A statistics counter that only its owning thread increments.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `n` to the counter, on its owning thread. The store is relaxed: readers need only a
    /// recent value.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// Subtracts `n` from the counter, on its owning thread.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(n), Relaxed);
    }

    /// Returns the present value of the counter. Any thread may call this.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Sets the counter to 0 (CONFIG RESETSTAT). An addition at the same time may undo this.
    pub fn reset(&self) {
        self.0.store(0, Relaxed);
    }
}

/// The statistics counters of one thread for one command.
#[derive(Debug, Default)]
pub struct CommandCounters {
    /// The number of times that the command ran.
    pub calls: Counter,
    /// The time for which the command ran, in nanoseconds. `crate::timing` describes the
    /// measurement.
    pub nanos: Counter,
    /// The histogram of the command's running times, created by the first run.
    pub times: OnceLock<Histogram>,
    /// The histogram of the times from the arrival of a request to the sending of its reply, see
    /// `crate::stats::end_to_end`.
    pub end_to_end: OnceLock<Histogram>,
    /// The sum of the command's end-to-end times (from the arrival of a request to the sending of
    /// its reply), in nanoseconds.
    pub end_to_end_nanos: Counter,
    /// The number of requests for the command that were refused before they ran.
    pub rejected: Counter,
    /// The number of runs of the command that ended with an error.
    pub failed: Counter,
}

/// The statistics counters of one I/O thread.
#[derive(Debug)]
pub struct ThreadStats {
    /// The counters of single commands, by command id.
    pub commands: Box<[CommandCounters]>,
    /// The number of requests that the thread has run.
    pub processed: Counter,
    /// The number of connections that the thread has accepted.
    pub connections: Counter,
    /// The number of the thread's open connections.
    pub clients: Counter,
    /// The number of bytes received from clients.
    pub input_bytes: Counter,
    /// The number of bytes sent to clients.
    pub output_bytes: Counter,
    /// The number of reads by commands that found their key.
    pub hits: Counter,
    /// The number of reads that did not find their key.
    pub misses: Counter,
    /// The number of keys removed because a command found them expired.
    pub expired_keys: Counter,
    /// The number of keys that the thread has evicted.
    pub evicted_keys: Counter,
    /// The number of hash fields removed because a command found them expired.
    pub expired_fields: Counter,
    /// The number of clients that were closed because of `maxmemory-clients`.
    pub evicted_clients: Counter,
    /// The number of changes to the data by the thread's commands.
    pub changes: Counter,
    /// The number of error replies that the thread has sent.
    pub errors: Counter,
    /// The number of the thread's turns (passes of its event loop), including those without
    /// requests.
    pub cycles: Counter,
    /// The time of the thread's turns (passes of its event loop), without waiting for input, in
    /// nanoseconds.
    pub cycles_nanos: Counter,
    /// The time in which requests ran, a part of `cycles_nanos`, in nanoseconds.
    pub running_nanos: Counter,
    /// The counters of requests and logins that access control refused.
    pub denied: Denials,
    /// The number of system calls to receive data from connections.
    pub reads: Counter,
    /// The number of system calls to send data to connections.
    pub writes: Counter,
    /// The number of requests whose command does not exist.
    pub unknown_commands: Counter,
    /// The number of requests with an error that must not occur: the handler used a key that the
    /// command table does not declare, or the request was replayed from a file.
    pub unexpected_errors: Counter,
    /// The counters of script runs.
    pub scripts: ScriptCounters,
    /// The counters of clients closed because of a limit.
    pub disconnections: Disconnections,
}

/// The counters of requests and logins that access control refused, by reason.
#[derive(Debug, Default)]
pub struct Denials {
    /// The number of failed logins.
    pub auth: Counter,
    /// The number of requests refused because the user may not run the command.
    pub commands: Counter,
    /// The number of requests refused because the user may not access a key.
    pub keys: Counter,
    /// The number of requests refused because the user may not use a channel.
    pub channels: Counter,
    /// The number of requests refused because the user may not use a database.
    pub databases: Counter,
}

/// The counters of script runs, by the way the script ran.
#[derive(Debug, Default)]
pub struct ScriptCounters {
    /// The number of script runs under the locks of the script's keys, in parallel with other
    /// commands.
    pub parallel: Counter,
    /// The number of script runs as the exclusive owner of the keyspace.
    pub alone: Counter,
    /// The number of script runs that were undone because the script had to run again.
    pub rerun: Counter,
}

/// The counters of clients that were closed because of a limit.
#[derive(Debug, Default)]
pub struct Disconnections {
    /// The number of clients closed because their output exceeded `client-output-buffer-limit`.
    pub output_limit: Counter,
    /// The number of clients closed because their input exceeded `client-query-buffer-limit`.
    pub query_limit: Counter,
}

impl ThreadStats {
    /// Resets the counters of events for CONFIG RESETSTAT. Does not reset the number of open
    /// connections, the counter of changes (other counters depend on it), and the counters of
    /// scripts.
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

    /// Creates the counters of a thread at zero, for `command_count` commands.
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

/// The thresholds at which commands and events are recorded in logs and by the latency monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// The thresholds of the three command logs, in the order of [`Kind`](command_log::Kind):
    /// nanoseconds, bytes of requests, bytes of replies; `u64::MAX` for never.
    pub from: [u64; 3],
    /// The minimum duration of an event that the latency monitor records, in milliseconds; 0
    /// records none.
    pub latency_ms: u64,
    /// The lower of the two thresholds of slow log and latency monitor, in nanoseconds.
    pub noted_nanos: u64,
    /// The most entries of each command log, by [`Kind`](command_log::Kind).
    pub len_max: [usize; 3],
    /// True if histograms of commands' times are recorded (`latency-tracking`).
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

/// A command that has run, with the data for logs and counters.
pub struct Ran<'a> {
    /// The command table's entry of the command that has run.
    pub registered: &'static Registered,
    /// The words of the command that has run, its name included.
    pub args: &'a Args<'a>,
    /// The number of bytes of the command's request and of its reply.
    pub bytes: [usize; 2],
    /// The number of consecutive calls that were timed as one group; this command is the last of
    /// them.
    pub calls: u64,
}
