//! The counts of requests and latencies of a thread of the load generator, and the sum over all
//! threads as the result of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::shared::LATENCY_NS_MAX;
use crate::results::{BesideSearches, Bucket, ClientBound, ClientUse, LatencySummary};
use crate::usage::ThreadTime;

/// The number of significant decimal digits of the latency histogram.
const LATENCY_DIGITS: u8 = 3;
/// The maximum number of error kinds that are counted separately; further kinds are counted as
/// `OTHER`.
const ERROR_KINDS_MAX: usize = 64;
/// The maximum length of an error kind's name, in bytes.
const ERROR_KIND_LEN_MAX: usize = 32;
/// The share of the wall time from which a thread of the load generator counts as the bottleneck.
/// The thread's CPU time and its wait for a processor are compared with it.
const BUSY_MIN: f64 = 0.95;
/// The maximum share of the mean latency that may come from late sending in an open loop. Above it,
/// the run counts as client-bound: the load generator was the bottleneck.
const LATE_SHARE_MAX: f64 = 0.1;
/// The mean delay of late sending, in microseconds, that is acceptable whatever the mean latency
/// is.
const LATE_US_MIN: f64 = 50.0;

/// The counts of one thread, or the sum of several threads. They include only the measured part.
#[derive(Debug)]
pub(super) struct Tally {
    /// The histogram of the requests' latencies, in nanoseconds.
    pub(super) histogram: Histogram<u64>,
    /// The histogram of latencies of requests that are not searches, in nanoseconds; `None` unless
    /// the workload mixes searches with other requests.
    pub(super) beside: Option<Histogram<u64>>,
    /// The number of searches whose replies were compared with the true neighbours. `found` is the
    /// number of true neighbours in these replies.
    pub(super) searches: u64,
    pub(super) found: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) errors: BTreeMap<String, u64>,
    pub(super) first_error: Option<String>,
    /// The time of the last reply, in nanoseconds since
    /// [`Shared::epoch`](super::shared::Shared::epoch).
    pub(super) last_reply_ns: u64,
    pub(super) unanswered: u64,
    /// The number of MOVED redirections that nodes of a cluster sent. `asked` is the number of ASK
    /// redirections.
    pub(super) moved: u64,
    pub(super) asked: u64,
    /// The number of requests answered by each node of a cluster, by the name of the node.
    pub(super) nodes: BTreeMap<String, u64>,
    /// The total delay between due time and sending, in nanoseconds, of the requests of an open
    /// loop for which a client was free. `on_free_connection` is the number of these requests.
    pub(super) late_ns: u128,
    pub(super) on_free_connection: u64,
    /// The CPU time that the thread used in the measured part, and the time it waited for a
    /// processor. `measured_ns` is the wall time of that part.
    pub(super) time: ThreadTime,
    pub(super) measured_ns: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            histogram: latency_histogram(),
            beside: None,
            searches: 0,
            found: 0,
            hits: 0,
            misses: 0,
            errors: BTreeMap::new(),
            first_error: None,
            last_reply_ns: 0,
            unanswered: 0,
            moved: 0,
            asked: 0,
            nodes: BTreeMap::new(),
            late_ns: 0,
            on_free_connection: 0,
            time: ThreadTime::default(),
            measured_ns: 0,
        }
    }

    /// Records the latency of a reply that arrived at `now_ns`, both in nanoseconds.
    #[inline]
    pub(super) fn record(&mut self, latency_ns: u64, now_ns: u64) {
        self.histogram.saturating_record(latency_ns);
        self.last_reply_ns = now_ns;
    }

    /// Records the latency of a reply to a request that is not a search, if these are counted
    /// separately.
    pub(super) fn record_beside(&mut self, latency_ns: u64) {
        if let Some(beside) = &mut self.beside {
            beside.saturating_record(latency_ns);
        }
    }

    /// Makes the thread count the requests that are not searches separately from now on.
    pub(super) fn count_beside(&mut self) {
        self.beside.get_or_insert_with(latency_histogram);
    }

    /// Counts an error reply under the first word of its text, such as `WRONGTYPE`.
    pub(super) fn count_error(&mut self, text: &[u8]) {
        self.first_error.get_or_insert_with(|| String::from_utf8_lossy(text).into_owned());
        let word =
            text.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_').next().unwrap_or_default();
        let kind = String::from_utf8_lossy(&word[..word.len().min(ERROR_KIND_LEN_MAX)]).into_owned();
        let full = self.errors.len() >= ERROR_KINDS_MAX && !self.errors.contains_key(&kind);
        *self.errors.entry(if full { "OTHER".to_owned() } else { kind }).or_default() += 1;
    }

    /// Adds the counts of another thread to these. `time` and `measured_ns` stay unchanged, because
    /// they belong to one thread.
    pub(super) fn add(&mut self, other: &Tally) {
        self.histogram.add(&other.histogram).expect("both have the same bounds");
        if let Some(other) = &other.beside {
            self.beside.get_or_insert_with(latency_histogram).add(other).expect("both have the same bounds");
        }
        self.searches += other.searches;
        self.found += other.found;
        self.hits += other.hits;
        self.misses += other.misses;
        for (kind, count) in &other.errors {
            *self.errors.entry(kind.clone()).or_default() += count;
        }
        if self.first_error.is_none() {
            self.first_error.clone_from(&other.first_error);
        }
        self.last_reply_ns = self.last_reply_ns.max(other.last_reply_ns);
        self.unanswered += other.unanswered;
        self.moved += other.moved;
        self.asked += other.asked;
        for (node, count) in &other.nodes {
            *self.nodes.entry(node.clone()).or_default() += count;
        }
        self.late_ns += other.late_ns;
        self.on_free_connection += other.on_free_connection;
    }

    /// Returns the minimum, the mean, the percentiles and the maximum of the requests' latencies.
    pub(super) fn latency(&self) -> LatencySummary {
        summary(&self.histogram)
    }

    /// Returns the number and the latencies of the requests that are not searches; `None` if they
    /// are not counted separately.
    pub(super) fn beside(&self) -> Option<BesideSearches> {
        let beside = self.beside.as_ref()?;
        Some(BesideSearches { requests: beside.len(), latency: summary(beside) })
    }

    /// Returns the non-empty buckets of the histogram of latencies.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        let recorded = self.histogram.iter_recorded();
        let bucket = |value: hdrhistogram::iterators::IterationValue<u64>| Bucket {
            upper_us: value.value_iterated_to() as f64 / 1e3,
            count: value.count_at_value(),
        };
        recorded.map(bucket).collect()
    }
}

/// Creates an empty histogram for the latencies of requests, in nanoseconds.
fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_NS_MAX, LATENCY_DIGITS).expect("the bounds are constants")
}

/// Returns the minimum, the mean, the percentiles and the maximum of `histogram`.
fn summary(histogram: &Histogram<u64>) -> LatencySummary {
    if histogram.is_empty() {
        return LatencySummary::default();
    }
    let us = |ns: u64| ns as f64 / 1e3;
    let at = |quantile| us(histogram.value_at_quantile(quantile));
    LatencySummary {
        min_us: us(histogram.min()),
        mean_us: histogram.mean() / 1e3,
        p50_us: at(0.50),
        p75_us: at(0.75),
        p90_us: at(0.90),
        p95_us: at(0.95),
        p99_us: at(0.99),
        p99_9_us: at(0.999),
        p99_99_us: at(0.9999),
        max_us: us(histogram.max()),
    }
}

/// Returns the CPU usage of the load generator's threads, and decides if the load generator was the
/// bottleneck. `all` is the sum of `threads`.
pub(super) fn client_use(threads: &[Tally], all: &Tally) -> ClientUse {
    let wall = |tally: &Tally| Duration::from_nanos(tally.measured_ns.max(1)).as_secs_f64();
    let cpu_seconds: f64 = threads.iter().map(|tally| tally.time.cpu_ns as f64 / 1e9).sum();
    let busy: Vec<f64> =
        threads.iter().map(|tally| (tally.time.cpu_ns as f64 / 1e9 / wall(tally)).min(1.0)).collect();
    let requests = all.histogram.len();
    let mut reason = String::new();
    for (index, (tally, busy)) in threads.iter().zip(&busy).enumerate() {
        let waiting = tally.time.waiting_ns as f64 / 1e9 / wall(tally);
        if *busy >= BUSY_MIN {
            reason = format!(
                "thread {} of {} was busy {:.0} % of the time",
                index + 1,
                threads.len(),
                busy * 100.0
            );
        } else if busy + waiting >= BUSY_MIN && reason.is_empty() {
            reason = format!(
                "thread {} of {} was busy {:.0} % of the time and waited for a processor another {:.0} %",
                index + 1,
                threads.len(),
                busy * 100.0,
                waiting * 100.0
            );
        }
    }
    let late_us = all.late_ns as f64 / 1e3 / all.on_free_connection.max(1) as f64;
    if reason.is_empty() && late_us > LATE_US_MIN && late_us * 1e3 > LATE_SHARE_MAX * all.histogram.mean() {
        reason =
            format!("requests were sent {late_us:.0} µs late on average, although connections were free");
    }
    ClientUse {
        cpu_seconds,
        cpu_us_per_request: if requests > 0 { cpu_seconds * 1e6 / requests as f64 } else { 0.0 },
        busy,
        bound: ClientBound { is_bound: !reason.is_empty(), reason },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the counts of a thread that was busy and waiting for the given percentages of one
    /// second.
    fn thread(busy: u64, waiting: u64) -> Tally {
        let mut tally = Tally::new();
        tally.measured_ns = 1_000_000_000;
        tally.time = ThreadTime { cpu_ns: busy * 10_000_000, waiting_ns: waiting * 10_000_000 };
        (0..1000).for_each(|_| tally.record(100_000, 0));
        tally
    }

    fn bound(threads: &[Tally]) -> ClientBound {
        let mut all = Tally::new();
        threads.iter().for_each(|tally| all.add(tally));
        client_use(threads, &all).bound
    }

    #[test]
    fn one_thread_without_rest_is_the_limit() {
        assert!(!bound(&[thread(90, 0), thread(50, 10)]).is_bound);
        let found = bound(&[thread(50, 0), thread(97, 1)]);
        assert!(found.is_bound && found.reason.contains("thread 2 of 2"), "{found:?}");
        let found = bound(&[thread(60, 38)]);
        assert!(found.is_bound && found.reason.contains("waited for a processor"), "{found:?}");
    }

    #[test]
    fn a_plan_that_the_client_itself_does_not_keep_is_told() {
        let mut late = thread(10, 0);
        late.late_ns = 1000 * 80_000;
        late.on_free_connection = 1000;
        assert!(bound(&[late]).reason.contains("µs late on average"));
    }

    #[test]
    fn percentiles_are_exact_to_three_digits() {
        let mut tally = Tally::new();
        (1..=10_000_u64).for_each(|us| tally.record(us * 1000, 0));
        let latency = tally.latency();
        for (found, expected) in [
            (latency.p50_us, 5_000.0),
            (latency.p99_us, 9_900.0),
            (latency.p99_9_us, 9_990.0),
            (latency.p99_99_us, 9_999.0),
            (latency.max_us, 10_000.0),
            (latency.mean_us, 5_000.5),
        ] {
            assert!((found - expected).abs() / expected < 0.001, "{found} for {expected}");
        }
        assert_eq!(tally.buckets().iter().map(|bucket| bucket.count).sum::<u64>(), 10_000);
    }

    #[test]
    fn errors_are_counted_by_their_first_word_and_kinds_are_bounded() {
        let mut tally = Tally::new();
        tally.count_error(b"WRONGTYPE Operation");
        tally.count_error(b"ERR a");
        tally.count_error(b"ERR b");
        assert_eq!(tally.errors, BTreeMap::from([("ERR".to_owned(), 2), ("WRONGTYPE".to_owned(), 1)]));
        assert_eq!(tally.first_error.as_deref(), Some("WRONGTYPE Operation"));
        (0..1000).for_each(|index| tally.count_error(format!("E{index} x").as_bytes()));
        assert!(tally.errors.len() <= ERROR_KINDS_MAX + 1);
    }
}
