//! State that the threads of a run share: its start and end, the number of requests left to send,
//! and the results of each second.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::results::Second;
use crate::spec::{Limit, Load};

/// The number of significant decimal digits of the latency histogram of each second.
const SECOND_DIGITS: u8 = 2;
/// The longest latency that the histograms represent, in nanoseconds: one hour. A longer latency is
/// recorded as one hour.
pub(super) const LATENCY_NS_MAX: u64 = 3_600 * 1_000_000_000;

/// The times at which a run and its measured part begin and end, in nanoseconds since
/// [`Shared::epoch`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// The start of the load. A closed loop sends its first requests then; in an open loop, the
    /// first request is due then.
    pub start_ns: u64,
    /// The start of the measured part of the run, after the warm-up.
    pub measured_ns: u64,
    /// The time from which no further requests are due; `u64::MAX` if the run ends after a number
    /// of requests.
    pub end_ns: u64,
}

/// The state that all threads of one run share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) epoch: Instant,
    /// True when all threads must stop at once, even with requests in flight.
    pub(super) stop: AtomicBool,
    /// The number of requests of the measured part that no thread has claimed yet; `u64::MAX` at
    /// first if the run ends after a duration.
    left: AtomicU64,
    /// The reason of the first failure of the run; `None` if it has not failed.
    failure: Mutex<Option<String>>,
    course: Mutex<Course>,
    threads: usize,
}

/// The results of a run by second. `reported` has the seconds that all threads have reported.
/// `making` has the later seconds, which some threads have not reported yet.
#[derive(Debug, Default)]
struct Course {
    reported: Vec<Second>,
    making: Vec<Making>,
    answered: u64,
}

#[derive(Debug)]
struct Making {
    histogram: Histogram<u64>,
    threads_reported: usize,
}

impl Shared {
    pub(super) fn new(load: &Load, threads: usize) -> Self {
        let left = match load.limit {
            Limit::Requests(count) => count,
            Limit::Duration(_) => u64::MAX,
        };
        Self {
            epoch: Instant::now(),
            stop: AtomicBool::new(false),
            left: AtomicU64::new(left),
            failure: Mutex::new(None),
            course: Mutex::default(),
            threads,
        }
    }

    /// Returns the time since the start of the run ([`Shared::epoch`]), in nanoseconds.
    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// Returns the times of a run with `load` that starts now.
    pub(super) fn times_from_now(&self, load: &Load) -> Times {
        let start_ns = self.now_ns();
        let measured_ns = start_ns + load.warm_up.as_nanos() as u64;
        let end_ns = match load.limit {
            Limit::Requests(_) => u64::MAX,
            Limit::Duration(duration) => measured_ns.saturating_add(duration.as_nanos() as u64),
        };
        Times { start_ns, measured_ns, end_ns }
    }

    /// Claims up to `count` of the requests that no thread has claimed, and returns the number
    /// claimed. Relaxed: no other data depends on the number.
    pub(super) fn take(&self, count: u64) -> u64 {
        let before = self.left.fetch_update(Relaxed, Relaxed, |left| Some(left.saturating_sub(count)));
        before.unwrap_or(0).min(count)
    }

    /// Stops all threads and marks the run as failed. Only the first reason is kept.
    pub(super) fn fail(&self, reason: String) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(reason);
        self.stop.store(true, Relaxed);
    }

    /// Returns the reason of the first failure of the run; `None` if it has not failed.
    pub(super) fn failure(&self) -> Option<String> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Creates an empty histogram for one second of one thread.
    pub(super) fn second_histogram() -> Histogram<u64> {
        Histogram::new_with_bounds(1, LATENCY_NS_MAX, SECOND_DIGITS).expect("the bounds are constants")
    }

    /// Adds the latencies that one thread recorded in second `index` of the measured part, counted
    /// from 0. Each thread reports each second once.
    pub(super) fn report_second(&self, index: usize, histogram: &Histogram<u64>) {
        let mut course = self.course();
        course.answered += histogram.len();
        let first = course.reported.len();
        // If all threads have already reported this second, its result is complete and does not
        // change.
        let Some(at) = index.checked_sub(first) else { return };
        while course.making.len() <= at {
            course.making.push(Making { histogram: Self::second_histogram(), threads_reported: 0 });
        }
        let making = &mut course.making[at];
        making.histogram.add(histogram).expect("both have the same bounds");
        making.threads_reported += 1;
        while course.making.first().is_some_and(|making| making.threads_reported >= self.threads) {
            let whole = course.making.remove(0);
            let at_seconds = course.reported.len() as f64 + 1.0;
            course.reported.push(second(&whole.histogram, at_seconds, 1.0));
        }
    }

    /// Returns the result of the last second that all threads have reported, and the number of
    /// requests answered in all seconds that any thread has reported.
    pub(super) fn progress(&self) -> (Option<Second>, u64) {
        let course = self.course();
        (course.reported.last().copied(), course.answered)
    }

    /// Returns the results of each second of a run whose measured part lasted `duration`.
    pub(super) fn seconds(&self, duration: Duration) -> Vec<Second> {
        let course = self.course();
        let mut seconds = course.reported.clone();
        for making in &course.making {
            let begin = seconds.len() as f64;
            let end = duration.as_secs_f64().min(begin + 1.0);
            if end > begin && !making.histogram.is_empty() {
                seconds.push(second(&making.histogram, end, end - begin));
            }
        }
        seconds
    }

    fn course(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn second(histogram: &Histogram<u64>, at_seconds: f64, len_seconds: f64) -> Second {
    Second {
        at_seconds,
        requests_per_second: histogram.len() as f64 / len_seconds,
        p50_us: histogram.value_at_quantile(0.5) as f64 / 1e3,
        p99_us: histogram.value_at_quantile(0.99) as f64 / 1e3,
    }
}
