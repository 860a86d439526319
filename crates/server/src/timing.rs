//! How long commands take, at one reading of the clock for a run of short ones.
//!
//! The clock is read after every command, so the end of one is the start of the next, with one exception:
//! commands that cannot take long by themselves (O(1) and O(log n), few arguments) that a client sent one
//! behind the other are timed together, up to [`RUN_CALLS_MAX`] of them. Such a run that was slow, because
//! the machine held it up or a shard was locked, is noted with its last command and the whole run's time.
//! Where the threshold is below [`SINGLY_BELOW_NANOS`], everything is timed singly.

use std::time::{Duration, Instant};

use commands::Args;

use crate::command_table::Registered;
use crate::dispatch::{Engine, Request};
use crate::session::Session;
use crate::slowlog::{Entry, Kind, kept_args};
use crate::worker::unix_ms;
use commands::table::Flags;

/// Commands that are timed together at most.
const RUN_CALLS_MAX: u64 = 16;
/// A threshold below this asks for each command's own time.
const SINGLY_BELOW_NANOS: u64 = 1_000_000;
/// More arguments than this can make a cheap command take long.
const SHORT_ARGS_MAX: usize = 16;

/// What makes a command notable: values from which on it is noted, `u64::MAX` for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Nanoseconds, requests' bytes and replies' bytes, by [`Kind`].
    pub from: [u64; 3],
    /// Entries that are kept, by [`Kind`].
    pub len_max: [usize; 3],
    /// Whether histograms are kept.
    pub histograms: bool,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { from: [10_000_000, 1 << 20, 1 << 20], len_max: [128; 3], histograms: true }
    }
}

/// The times of one batch.
pub struct Timing {
    since: Instant,
    calls: u64,
}

/// A command that was run: what is noted of it.
pub struct Ran<'a> {
    /// The command.
    pub registered: &'static Registered,
    /// Its arguments.
    pub args: &'a Args<'a>,
    /// Bytes of its request and of its reply.
    pub bytes: [usize; 2],
}

impl Timing {
    /// Starts with the first command of a batch.
    pub fn start() -> Self {
        Self { since: Instant::now(), calls: 0 }
    }

    /// Notes a command that was just run. `next` is what the same client's next request asks for.
    #[inline]
    pub fn ran(
        &mut self,
        engine: &mut Engine,
        session: &Session,
        request: &Request<'_>,
        bytes: [usize; 2],
        next: Option<&'static Registered>,
    ) {
        let Some(registered) = request.registered else { return };
        let called = std::mem::take(&mut engine.called);
        let from = engine.settings.thresholds.from;
        self.calls += u64::from(called);
        let goes_on = registered.is_short
            && next.is_some_and(|next| std::ptr::eq(next, registered))
            && self.calls < RUN_CALLS_MAX
            && request.args.len() <= SHORT_ARGS_MAX
            && from[0] >= SINGLY_BELOW_NANOS;
        let large = bytes[0] as u64 >= from[1] || bytes[1] as u64 >= from[2];
        if goes_on && !large {
            return;
        }
        let now = Instant::now();
        let (took, calls) = (now - self.since, std::mem::take(&mut self.calls));
        self.since = now;
        if calls == 0 {
            return;
        }
        let registered = registered.called_by(&request.args);
        engine.note_time(registered, took, calls);
        if called && (large || took.as_nanos() as u64 >= from[0]) {
            engine.note_command(session, &Ran { registered, args: &request.args, bytes }, took);
        }
    }
}

impl Engine {
    /// Adds to a command's counters that `calls` calls took a time together.
    #[inline]
    pub(crate) fn note_time(&self, registered: &Registered, took: Duration, calls: u64) {
        let counters = self.counters(registered);
        let nanos = took.as_nanos() as u64;
        counters.nanos.add(nanos);
        if self.settings.thresholds.histograms {
            counters.times.get_or_init(Default::default).record(nanos / calls, calls);
        }
    }

    /// Notes a command of a transaction that began at `since`.
    pub(crate) fn note_queued(&self, session: &Session, ran: &Ran<'_>, since: Instant) {
        let took = since.elapsed();
        self.note_time(ran.registered, took, 1);
        let values = [took.as_nanos() as u64, ran.bytes[0] as u64, ran.bytes[1] as u64];
        if values.iter().zip(self.settings.thresholds.from).any(|(&value, from)| value >= from) {
            self.note_command(session, ran, took);
        }
    }

    /// Logs a command by each kind whose threshold it reached.
    #[cold]
    fn note_command(&self, session: &Session, ran: &Ran<'_>, took: Duration) {
        if ran.registered.command.flags.contains(Flags::SKIP_SLOWLOG) {
            return;
        }
        let values = [took.as_nanos() as u64, ran.bytes[0] as u64, ran.bytes[1] as u64];
        for (at, kind) in [Kind::Slow, Kind::LargeRequest, Kind::LargeReply].into_iter().enumerate() {
            if values[at] < self.settings.thresholds.from[at] {
                continue;
            }
            let entry = Entry {
                id: 0,
                unix_s: unix_ms() / 1000,
                value: if kind == Kind::Slow { took.as_micros() as u64 } else { values[at] },
                args: kept_args(ran.args),
                peer: session.info.peer.to_string(),
                name: session.info.names().name.clone(),
            };
            self.shared.command_logs.add(kind, self.settings.thresholds.len_max[at], entry);
        }
    }
}
