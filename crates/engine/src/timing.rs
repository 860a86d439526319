//! The measured times of commands, with one reading of the clock for several short commands.
//!
//! The clock is read after every command, so the end of one is the start of the next. There is one
//! exception: consecutive short commands of a client are timed together, up to `RUN_CALLS_MAX` of
//! them. Short commands are O(1) or O(log n) with few arguments. Such a group may be slow if the
//! thread was interrupted or a shard was locked. It is then logged as its last command with the
//! time of the whole group, and the log entry has the number of calls. With a threshold below
//! `SINGLY_BELOW_NANOS`, each command is timed separately.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use commands::Args;
use commands::table::Flags;

use crate::batch::Incoming;
use crate::call::Host;
use crate::clock::{Clock, Ticks};
use crate::run::Executor;
use crate::session::{Flow, Session};
use crate::stats::command_log::{Entry, Kind, kept_args};
use crate::stats::latency_events::Event;
use crate::stats::{Ran, Thresholds};
use crate::table::Registered;
use crate::wait::BlockedClient;

/// The most short commands whose times are measured together.
const RUN_CALLS_MAX: u64 = 16;
/// The threshold of the slow log, in nanoseconds, below which each command is timed separately.
/// From this threshold on, short commands may be timed in groups.
const SINGLY_BELOW_NANOS: u64 = 1_000_000;
/// The minimum duration of a command, or of a group timed together, after which the time for the
/// following commands is read anew. An expiry that the next command sets relative to now is counted
/// from that time.
const STALE_AFTER: Duration = Duration::from_millis(1);
/// The maximum number of words of a request whose time is measured together with others.
const SHORT_ARGS_MAX: usize = 16;

/// The clock that measures the times of the commands of one batch.
pub struct Timing {
    started: Instant,
    since: Instant,
    calls: u64,
    /// The thresholds of the command logs, see [`Thresholds::from`]. They are read again after
    /// commands that may have changed them.
    from: [u64; 3],
    together: bool,
}

impl Timing {
    /// Starts the measurement of times before the first command of a batch.
    pub fn start<C: Clock, H: Host>(engine: &Executor<'_, C, H>) -> Self {
        let now = engine.clock.now();
        let mut timing = Self { started: now, since: now, calls: 0, from: [0; 3], together: false };
        timing.look(engine);
        timing
    }

    #[inline]
    fn look<C: Clock, H: Host>(&mut self, engine: &Executor<'_, C, H>) {
        self.from = engine.settings.thresholds.from;
        self.together = !engine.meter.samples_hot_keys && self.from[0] >= SINGLY_BELOW_NANOS;
    }

    /// Returns the last reading of the clock: the end of the last timed command.
    #[inline]
    pub fn now(&self) -> Instant {
        self.since
    }

    /// Excludes from the measured times the time since the last reading up to `now`, in which the
    /// thread ran no commands.
    pub fn skip_to(&mut self, now: Instant) {
        self.started += now - self.since;
        self.since = now;
    }

    /// Returns the total time of all commands of the batch that were timed so far.
    pub fn total(&self) -> Duration {
        self.since - self.started
    }

    /// Records the time of a command that has just run, alone or in a group of short commands.
    /// `next` is the command of the same client's next request.
    #[inline]
    pub fn ran<C: Clock, H: Host>(
        &mut self,
        engine: &mut Executor<'_, C, H>,
        session: &Session,
        request: &Incoming<'_>,
        bytes: [usize; 2],
        next: Option<&'static Registered>,
    ) {
        let Some(registered) = request.registered else { return };
        let called = std::mem::take(&mut engine.meter.called);
        if session.flow == Flow::Blocked {
            if engine.meter.samples_keys() {
                engine.sample_keys(session.db(), Some(registered), &request.args);
            }
            return self.blocked(engine, registered.called_by(&request.args), u64::from(called));
        }
        self.calls += u64::from(called);
        let goes_on = registered.is_short
            && self.together
            && next.is_some_and(|next| std::ptr::eq(next, registered))
            && self.calls < RUN_CALLS_MAX
            && request.args.len() <= SHORT_ARGS_MAX;
        if engine.meter.samples_keys() {
            engine.sample_keys(session.db(), called.then_some(registered), &request.args);
        }
        let large = bytes[0] as u64 >= self.from[1] || bytes[1] as u64 >= self.from[2];
        if goes_on && !large {
            return;
        }
        self.look(engine);
        let now = engine.clock.now();
        let (took, calls) = (now - self.since, std::mem::take(&mut self.calls));
        self.since = now;
        if took >= STALE_AFTER {
            engine.read_clock();
        }
        if calls == 0 {
            return;
        }
        let registered = registered.called_by(&request.args);
        engine.note_time(registered, took, calls);
        if engine.meter.samples_hot_keys && called {
            engine.note_keys(&Ran { registered, args: &request.args, bytes, calls }, took);
        }
        if engine.settings.thresholds.histograms {
            engine.meter.turn.count(registered, calls);
        }
        if called && (large || took.as_nanos() as u64 >= engine.settings.thresholds.noted_nanos) {
            engine.note_command(session, &Ran { registered, args: &request.args, bytes, calls }, took);
        }
    }
}

impl Timing {
    /// Records a command that has blocked its client. If it was counted as `called`, undoes this:
    /// it is counted when its client is served, as in Redis.
    #[cold]
    fn blocked<C: Clock, H: Host>(
        &mut self,
        engine: &mut Executor<'_, C, H>,
        registered: &'static Registered,
        called: u64,
    ) {
        let now = engine.clock.now();
        if self.calls > 0 {
            // The commands that were timed together before this one; all are calls of one command.
            let calls = std::mem::take(&mut self.calls);
            engine.note_time(registered, now - self.since, calls);
            if engine.settings.thresholds.histograms {
                engine.meter.turn.count(registered, calls);
            }
        }
        self.since = now;
        engine.counters(registered).calls.sub(called);
        engine.meter.extra_calls -= 1;
    }
}

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Records the latency of an event, if the latency monitor is on.
    #[inline]
    pub fn note_latency(&self, event: Event, took: Duration) {
        let threshold_ms = self.settings.thresholds.latency_ms;
        self.shared().latency_events.note(threshold_ms, event, took, || self.clock.unix_ms());
    }

    /// Helps to free the queue of lazy freed values, until `unfreed_bytes` is 0. `time` computes
    /// the maximum time for this from the clock. The caller is outside the gate or in a
    /// transaction.
    #[inline]
    pub fn free_displaced_values(&mut self, time: impl FnOnce(&C) -> Duration) {
        if self.unfreed_bytes > 0 {
            let time = time(&self.clock);
            self.unfreed_bytes = self.shared().freeing.help(&self.clock, self.unfreed_bytes, time);
        }
    }

    /// Passes the values that a queued command removed to the queue of lazy freed values. Then
    /// helps to free for at most `time`, as a transaction may have any number of such commands.
    pub fn free_queued(&mut self, time: impl FnOnce(&C) -> Duration) {
        self.commit.effects.absorb_displaced(&mut self.commit.access_results);
        if !self.commit.effects.lazy_freed.is_empty() {
            let lazy_freed = std::mem::take(&mut self.commit.effects.lazy_freed);
            self.unfreed_bytes += self.shared().freeing.push(lazy_freed);
            self.free_displaced_values(time);
        }
    }

    /// Adds the total time of `calls` calls to a command's counters and histogram.
    #[inline]
    pub(crate) fn note_time(&self, registered: &Registered, took: Duration, calls: u64) {
        let counters = self.counters(registered);
        let nanos = took.as_nanos() as u64;
        counters.nanos.add(nanos);
        if self.settings.thresholds.histograms {
            counters.times.get_or_init(Default::default).record(nanos / calls, calls);
        }
    }

    /// Records the time of a command of a transaction or script that began at `since`.
    pub(crate) fn note_queued(&mut self, session: &Session, ran: &Ran<'_>, since: Ticks) {
        let took = self.clock.elapsed(since);
        self.meter.extra_calls += 1;
        self.note_time(ran.registered, took, 1);
        if self.meter.samples_keys() {
            self.sample_keys(session.db(), Some(ran.registered), ran.args);
        }
        if self.meter.samples_hot_keys {
            self.note_keys(ran, took);
        }
        let Thresholds { from, noted_nanos, .. } = self.settings.thresholds;
        let [request, reply] = ran.bytes.map(|bytes| bytes as u64);
        if took.as_nanos() as u64 >= noted_nanos || request >= from[1] || reply >= from[2] {
            self.note_command(session, ran, took);
        }
    }

    /// Counts the keys of the command `ran` for `hotkeys-top-k`; `None` means that no command ran.
    /// Then draws the number of commands until the next one to count.
    #[cold]
    fn sample_keys(&mut self, db: usize, ran: Option<&'static Registered>, args: &Args<'_>) {
        if let Some(registered) = ran.map(|registered| registered.called_by(args)) {
            let percent = self.settings.key_sampling.percent;
            self.shared().hot_keys.note_sample(self.thread(), percent, db, registered, args);
        }
        self.meter.draw_sample(self.settings.key_sampling, &mut self.rng);
    }

    /// Counts the time and bytes of a command for its keys, in the session of HOTKEYS.
    #[cold]
    fn note_keys(&mut self, ran: &Ran<'_>, took: Duration) {
        let thread = self.thread();
        let rng = &mut self.rng;
        self.commit.shared.hot_keys.note(thread, ran, took, |bound| rng.u32(..bound));
    }

    /// Records the time of the command of a blocked client that is served now. As in Redis, its
    /// time does not include the wait.
    pub fn record_unblocked(
        &mut self,
        session: &Session,
        waiter: &BlockedClient,
        took: Duration,
        reply_bytes: usize,
    ) {
        let args = &waiter.args.args(self.shared().keyspace.hasher());
        let request_bytes = args.from(0).map(<[u8]>::len).sum();
        self.counters(waiter.registered).calls.add(1);
        session.info.traffic.commands.fetch_add(1, Relaxed);
        let stats = self.stats();
        stats.processed.add(1);
        let ran = Ran { registered: waiter.registered, args, bytes: [request_bytes, reply_bytes], calls: 1 };
        self.note_time(waiter.registered, took, 1);
        if self.meter.samples_hot_keys {
            self.note_keys(&ran, took);
        }
        self.log_command(session, &ran, took);
    }

    /// Records the time of a command in the latency monitor and in each command log whose threshold
    /// it has reached.
    #[cold]
    fn note_command(&self, session: &Session, ran: &Ran<'_>, took: Duration) {
        let fast = ran.registered.command.flags.contains(Flags::FAST);
        self.note_latency(if fast { Event::FastCommand } else { Event::Command }, took);
        self.log_command(session, ran, took);
    }

    /// Adds a command to each command log (slow commands, large requests, large replies) whose
    /// threshold it has reached.
    fn log_command(&self, session: &Session, ran: &Ran<'_>, took: Duration) {
        if ran.registered.command.flags.contains(Flags::SKIP_SLOWLOG) {
            return;
        }
        let values = [took.as_nanos() as u64, ran.bytes[0] as u64, ran.bytes[1] as u64];
        for (at, kind) in [Kind::Slow, Kind::LargeRequest, Kind::LargeReply].into_iter().enumerate() {
            if values[at] < self.settings.thresholds.from[at] {
                continue;
            }
            let mut args = kept_args(ran.registered.full_name, ran.args);
            if kind == Kind::Slow && ran.calls > 1 {
                args.push(format!("... (the last of {} pipelined calls)", ran.calls).into_bytes());
            }
            let entry = Entry {
                id: 0,
                unix_s: self.clock.unix_ms() / 1000,
                value: if kind == Kind::Slow { took.as_micros() as u64 } else { values[at] },
                args,
                peer: session.info.peer.to_string(),
                name: session.info.names().name.clone(),
            };
            self.shared().command_logs.add(kind, self.settings.thresholds.len_max[at], entry);
        }
    }
}
