//! The latency monitor: events that took `latency-monitor-threshold` milliseconds or more (LATENCY
//! LATEST, HISTORY, GRAPH, DOCTOR, RESET).
//!
//! Each kind of event has a series, created by its first latency spike. A series has the newest
//! [`SAMPLES_MAX`] samples, and the longest time since its creation. Spikes in the same second are
//! one sample, the longest of them, so a series covers at least that number of seconds. Names and
//! resolution are those of Redis, except the events `gate-wait` and `reply-release`.
//!
//! One lock protects all series; no other lock is taken under it. It is taken for a spike and by
//! readers. Events below the threshold do not take it.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

mod doctor;
mod graph;

pub use doctor::{ReportInput, report};
pub use graph::graph;

/// The maximum number of latency spikes that a series keeps.
pub const SAMPLES_MAX: usize = 160;

/// The kinds of events whose latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The run of a command without the flag FAST, which may take long.
    Command,
    /// The run of a command with the flag FAST, which should not take long.
    FastCommand,
    /// The service of a blocked client after a key became ready.
    CommandUnblocking,
    /// A step of active expiry, under a shard's lock.
    ExpireCycle,
    /// A round of eviction, which removes keys until memory is within `maxmemory`.
    EvictionCycle,
    /// The removal of one key by eviction.
    EvictionDel,
    /// The freeing of values from the queue of lazy freed values, for an eviction.
    EvictionLazyfree,
    /// The wait of a thread's turn (pass of the event loop) while another thread owned the keyspace
    /// exclusively.
    GateWait,
    /// The wait of replies until the changes that they show were safe in the append-only file as
    /// required.
    ReplyRelease,
}

/// The names of the kinds of events, in the order of [`Event`].
const NAMES: [&str; 9] = [
    "command",
    "fast-command",
    "command-unblocking",
    "expire-cycle",
    "eviction-cycle",
    "eviction-del",
    "eviction-lazyfree",
    "gate-wait",
    "reply-release",
];

/// A latency spike: the longest event of its kind within one second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The time of the latency spike, in Unix seconds.
    pub unix_s: i64,
    /// The length of the latency spike, in milliseconds.
    pub ms: u64,
}

/// The latency spikes of one kind of event, oldest first; at least one.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name of the kind of event that the latency spikes belong to.
    pub name: &'static str,
    /// The newest latency spikes of this kind of event.
    pub samples: VecDeque<Sample>,
    /// The length of the longest spike in milliseconds, including removed samples.
    pub max_ms: u64,
}

/// The latency spikes of all kinds of events; `None` for a kind without spikes.
#[derive(Debug, Default)]
pub struct LatencyEvents(Mutex<[Option<Series>; NAMES.len()]>);

impl LatencyEvents {
    /// Records the latency of an event that ends now as a spike, if it is at least the threshold. A
    /// threshold of 0 records nothing. `unix_ms` reads the clock.
    #[inline]
    pub fn note(&self, threshold_ms: u64, event: Event, took: Duration, unix_ms: impl FnOnce() -> i64) {
        if threshold_ms > 0 && took.as_millis() as u64 >= threshold_ms {
            self.add(event, Sample { unix_s: unix_ms() / 1000, ms: took.as_millis() as u64 });
        }
    }

    #[cold]
    fn add(&self, event: Event, sample: Sample) {
        let mut all = self.all();
        let series = all[event as usize].get_or_insert_with(|| Series {
            name: NAMES[event as usize],
            samples: VecDeque::new(),
            max_ms: 0,
        });
        series.max_ms = series.max_ms.max(sample.ms);
        match series.samples.back_mut() {
            Some(last) if last.unix_s == sample.unix_s => last.ms = last.ms.max(sample.ms),
            _ => series.samples.push_back(sample),
        }
        if series.samples.len() > SAMPLES_MAX {
            series.samples.pop_front();
        }
    }

    /// Returns a copy of the series of latency spikes of all events.
    pub fn series(&self) -> Vec<Series> {
        self.all().iter().flatten().cloned().collect()
    }

    /// Returns a copy of one event's series of latency spikes; `None` if it has no samples.
    pub fn series_of(&self, name: &[u8]) -> Option<Series> {
        self.all().iter().flatten().find(|series| series.name.as_bytes() == name).cloned()
    }

    /// Removes an event's series of latency spikes. Returns true if there was one.
    pub fn reset(&self, name: &[u8]) -> bool {
        let mut all = self.all();
        let found = all
            .iter_mut()
            .find(|series| series.as_ref().is_some_and(|series| series.name.as_bytes() == name));
        found.is_some_and(|series| series.take().is_some())
    }

    /// Removes the latency spikes of all events and returns their number.
    pub fn reset_all(&self) -> usize {
        self.all().iter_mut().filter_map(Option::take).count()
    }

    fn all(&self) -> MutexGuard<'_, [Option<Series>; NAMES.len()]> {
        self.0.lock().expect("nothing panics while the spikes are locked")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(latency_events: &LatencyEvents, event: Event, samples: &[(i64, u64)]) {
        samples.iter().for_each(|&(unix_s, ms)| latency_events.add(event, Sample { unix_s, ms }));
    }

    #[test]
    fn spikes_of_one_second_are_one_sample() {
        let latency_events = LatencyEvents::default();
        add(&latency_events, Event::Command, &[(1, 5), (1, 9), (1, 7), (2, 3)]);
        let series = latency_events.series_of(b"command").expect("it has samples");
        let samples: Vec<_> = series.samples.iter().map(|sample| (sample.unix_s, sample.ms)).collect();
        assert_eq!((samples, series.max_ms), (vec![(1, 9), (2, 3)], 9));
    }

    #[test]
    fn the_newest_samples_and_the_longest_of_all_are_kept() {
        let latency_events = LatencyEvents::default();
        add(&latency_events, Event::GateWait, &[(0, 1000)]);
        (1..=SAMPLES_MAX as i64).for_each(|at| add(&latency_events, Event::GateWait, &[(at, at as u64)]));
        let series = latency_events.series_of(b"gate-wait").expect("it has samples");
        assert_eq!((series.samples.len(), series.samples[0].unix_s, series.max_ms), (SAMPLES_MAX, 1, 1000));
    }

    #[test]
    fn only_what_reaches_the_threshold_is_noted() {
        let latency_events = LatencyEvents::default();
        latency_events.note(0, Event::Command, Duration::from_secs(9), || 0);
        latency_events.note(10, Event::Command, Duration::from_micros(9999), || 0);
        assert!(latency_events.series().is_empty());
        latency_events.note(10, Event::FastCommand, Duration::from_micros(10_000), || 0);
        assert_eq!(latency_events.series()[0].max_ms, 10);
    }

    #[test]
    fn a_reset_tells_what_there_was() {
        let latency_events = LatencyEvents::default();
        add(&latency_events, Event::Command, &[(1, 5)]);
        add(&latency_events, Event::ExpireCycle, &[(1, 5)]);
        assert!(
            !latency_events.reset(b"fast-command")
                && latency_events.reset(b"command")
                && !latency_events.reset(b"command")
        );
        assert_eq!((latency_events.reset_all(), latency_events.reset_all()), (1, 0));
    }
}
