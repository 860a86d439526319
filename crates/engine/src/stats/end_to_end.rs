//! The end-to-end time of requests: from the arrival of their bytes until the kernel has accepted
//! their replies. It is shown by LATENCY END-TO-END, INFO latencystats, and the metrics endpoint.
//!
//! ```text
//!   bytes arrive   ◀─ the turn begins                                     the turn ends ─▶
//!        ╎ waits  │ gate, other requests of the turn │ the command │ others │ replies sent │
//!        ╰╌╌╌╌╌╌╌╌┴────────────────── end to end ──────────────────────────────────────────┤
//! ```
//! All replies of a turn are sent together at its end, so the time of all its requests is known
//! then. This takes one reading of the clock per turn, and one counter update per command that ran
//! in it. During the turn, only calls are counted.
//!
//! **The start.** A busy thread cannot know when bytes arrived; it finds them at its next poll. If
//! that poll took less time than the turn before, the thread did not sleep in it. Then the requests
//! of connections that the turn before did not answer may have arrived at any time of that turn.
//! Their time is counted from the beginning of that turn. This is at most one turn too much, and it
//! covers every request that waited for a slow command. All other requests are counted from the
//! beginning of the turn that ran them.
//!
//! **Not counted** are:
//! - commands that waited for a key (LATENCY HISTOGRAM has their time with the wait);
//! - commands inside EXEC (EXEC itself is counted);
//! - the time for which CLIENT PAUSE or the client's own unread replies delayed a request;
//! - with io_uring, the sends themselves, which the kernel makes after the turn.

use std::time::{Duration, Instant};

use crate::stats::ThreadStats;
use crate::table::Registered;

/// The clock for the end-to-end times of the requests in one thread's turns (passes of the event
/// loop), with the calls of the turn in progress.
pub struct TurnClock {
    /// The number of the current turn (pass of the event loop); never 0.
    number: u64,
    began: Instant,
    ended: Instant,
    /// The duration of the previous turn (pass of the event loop).
    took: Duration,
    /// The start of the previous turn (pass of the event loop), if the thread has not slept since
    /// then; otherwise `None`.
    busy_since: Option<Instant>,
    /// True if the requests of the current connection may have arrived at any time since
    /// `busy_since`.
    is_late: bool,
    /// The number of calls in this turn (pass of the event loop) by command id: first calls counted
    /// from this turn's start, then calls counted from the previous turn's start (late
    /// connections).
    calls: Box<[[u32; 2]]>,
    /// The ids of the commands that were called in this turn (pass of the event loop).
    called: Vec<usize>,
}

impl TurnClock {
    /// Creates the clock of end-to-end times for `command_count` commands.
    pub fn new(command_count: usize, now: Instant) -> Self {
        Self {
            number: 1,
            began: now,
            ended: now,
            took: Duration::ZERO,
            busy_since: None,
            is_late: false,
            calls: vec![[0; 2]; command_count].into_boxed_slice(),
            called: Vec::new(),
        }
    }

    /// Begins to measure a turn (a pass of the event loop), after the thread has polled for input.
    pub fn begin(&mut self, now: Instant) {
        let looked = now.saturating_duration_since(self.ended);
        self.busy_since = (looked < self.took).then_some(self.began);
        self.number += 1;
        self.began = now;
    }

    /// Begins the requests of one connection, and determines the moment from which their end-to-end
    /// time is counted. `answered` is the number of the turn in which the connection last got a
    /// reply, 0 for never. Sets `answered` to the current turn.
    #[inline]
    pub fn enter(&mut self, answered: &mut u64) {
        self.is_late = self.busy_since.is_some() && *answered + 1 < self.number;
        *answered = self.number;
    }

    /// Counts `calls` calls of a command by the connection whose requests run now.
    #[inline]
    pub fn count(&mut self, registered: &Registered, calls: u64) {
        let of_command = &mut self.calls[registered.id];
        if *of_command == [0; 2] {
            self.called.push(registered.id);
        }
        of_command[usize::from(self.is_late)] += calls as u32;
    }

    /// Ends the turn (pass of the event loop), after its replies were sent, and adds the end-to-end
    /// times of its calls to the histograms in `stats`.
    #[inline]
    pub fn end(&mut self, now: Instant, stats: &ThreadStats) {
        self.ended = now;
        let took = now.saturating_duration_since(self.began);
        self.took = took;
        stats.cycles.add(1);
        stats.cycles_nanos.add(took.as_nanos() as u64);
        if !self.called.is_empty() {
            self.record(took, stats);
        }
    }

    fn record(&mut self, took: Duration, stats: &ThreadStats) {
        let late = self.busy_since.map_or(took, |since| self.ended.saturating_duration_since(since));
        for id in self.called.drain(..) {
            let counters = &stats.commands[id];
            let histogram = counters.end_to_end.get_or_init(Default::default);
            let calls = std::mem::take(&mut self.calls[id]);
            for (calls, took) in calls.into_iter().zip([took, late]) {
                if calls > 0 {
                    let (calls, nanos) = (u64::from(calls), took.as_nanos() as u64);
                    histogram.record(nanos, calls);
                    counters.end_to_end_nanos.add(calls * nanos);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::histogram::Times;
    use crate::table::CommandTable;

    /// A turn of the event loop in a test: its beginning and end in microseconds, and the number of
    /// GET calls by connection.
    type Turn<'a> = (u64, u64, &'a [(usize, u64)]);

    /// Checks that these turns of a thread record these end-to-end times. Each expected item is a
    /// time in microseconds and a number of calls.
    fn check(turns: &[Turn<'_>], expected: &[(u64, u64)]) {
        let table = CommandTable::new(std::iter::empty());
        let get = table.find(b"GET").expect("it exists");
        let stats = ThreadStats::new(table.id_count());
        let mut clock = TurnClock::new(table.id_count(), Instant::now());
        let start = clock.ended;
        let at = |usec| start + Duration::from_micros(usec);
        let mut answered = [0; 4];
        for &(begins, ends, conns) in turns {
            clock.begin(at(begins));
            for &(conn, calls) in conns {
                clock.enter(&mut answered[conn]);
                clock.count(get, calls);
            }
            clock.end(at(ends), &stats);
        }
        let times = Times::of(stats.commands[get.id].end_to_end.get().into_iter());
        let calls: u64 = expected.iter().map(|&(_, calls)| calls).sum();
        assert_eq!(times.calls, calls);
        let sum: u64 = expected.iter().map(|&(usec, calls)| usec * 1000 * calls).sum();
        assert_eq!(stats.commands[get.id].end_to_end_nanos.get(), sum);
        assert_eq!(stats.cycles.get(), turns.len() as u64);
    }

    #[test]
    fn all_requests_of_a_turn_take_as_long_as_it() {
        check(&[(100, 150, &[(0, 2), (1, 3)])], &[(50, 5)]);
    }

    #[test]
    fn who_came_during_a_turn_is_counted_from_its_beginning() {
        // The first turn takes 1000. The second finds input at once, so the request of connection 1
        // may have waited since the first turn began.
        check(&[(100, 1100, &[(0, 1)]), (1110, 1120, &[(0, 1), (1, 1)])], &[(1000, 1), (10, 1), (1020, 1)]);
    }

    #[test]
    fn who_came_while_the_thread_slept_did_not_wait() {
        check(&[(100, 1100, &[(0, 1)]), (2200, 2210, &[(1, 1)])], &[(1000, 1), (10, 1)]);
    }

    #[test]
    fn turns_without_requests_count_as_busy_too() {
        check(&[(100, 1100, &[]), (1101, 1111, &[(0, 4)])], &[(1011, 4)]);
    }
}
