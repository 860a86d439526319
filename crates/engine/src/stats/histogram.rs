//! Histograms of commands' times, for INFO latencystats, LATENCY HISTOGRAM and END-TO-END, and the
//! metrics endpoint.
//!
//! The buckets are log-linear: 32 for each power of two, so a value is exact to 3 %. A histogram
//! covers 1 ns to 137 s in 8.5 KiB, and is created when a thread first runs the command. Only that
//! thread writes it; readers sum the histograms of all threads.

use crate::stats::Counter;

/// The number of a histogram's buckets for each power of two, given as a power of two (5 means 32).
const SUB_BITS: u32 = 5;
/// The exponent of the greatest time in a histogram: 2^37 ns. Longer times are counted as this
/// time.
const POWER_MAX: u32 = 37;
const BUCKETS: usize = ((POWER_MAX - SUB_BITS + 1) as usize) << SUB_BITS;

/// The histogram of the times of one command on one thread.
#[derive(Debug)]
pub struct Histogram(Box<[Counter]>);

impl Default for Histogram {
    fn default() -> Self {
        Self((0..BUCKETS).map(|_| Counter::default()).collect())
    }
}

/// Returns the index of the histogram's bucket that counts a time. O(1).
fn bucket(nanos: u64) -> usize {
    let nanos = nanos.min((1 << POWER_MAX) - 1);
    let power = (nanos | ((1 << SUB_BITS) - 1)).ilog2();
    let shift = (power + 1).saturating_sub(SUB_BITS + 1);
    ((shift << SUB_BITS) as usize) + (nanos >> shift) as usize
}

/// Returns the greatest time that a bucket of the histogram counts, in nanoseconds.
fn upper(bucket: usize) -> u64 {
    let shift = ((bucket >> SUB_BITS) as u32).saturating_sub(1);
    let low = bucket as u64 - (u64::from(shift) << SUB_BITS);
    ((low + 1) << shift) - 1
}

impl Histogram {
    /// Counts in the histogram `calls` calls of `nanos` nanoseconds each. Only the owning thread
    /// may call it.
    pub fn record(&self, nanos: u64, calls: u64) {
        self.0[bucket(nanos)].add(calls);
    }

    /// Sets all counts of the histogram to 0.
    pub fn reset(&self) {
        self.0.iter().for_each(Counter::reset);
    }
}

/// The sum of several threads' histograms of commands' times.
#[derive(Clone, Debug)]
pub struct Times {
    counts: Vec<u64>,
    /// The number of calls in the summed histograms.
    pub calls: u64,
}

impl Times {
    /// Sums these histograms of commands' times. O(buckets) each.
    pub fn of<'h>(histograms: impl Iterator<Item = &'h Histogram>) -> Self {
        let mut counts = vec![0; BUCKETS];
        for histogram in histograms {
            for (sum, count) in counts.iter_mut().zip(&histogram.0) {
                *sum += count.get();
            }
        }
        let calls = counts.iter().sum();
        Self { counts, calls }
    }

    /// Returns the given percentile of the calls' times, in nanoseconds. Exact to 3 %.
    pub fn percentile_nanos(&self, percent: f64) -> u64 {
        let rank = ((percent / 100.0 * self.calls as f64).ceil() as u64).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|&count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, upper)
    }

    /// Returns, for each of these ascending limits in nanoseconds, the number of calls that took
    /// less time. Exact for powers of two. For other limits, calls up to 3 % below the limit may be
    /// missing.
    pub fn below(&self, limits: impl Iterator<Item = u64>) -> Vec<u64> {
        let (mut seen, mut at) = (0, 0);
        let below = |limit: u64| {
            while at < BUCKETS && upper(at) < limit {
                seen += self.counts[at];
                at += 1;
            }
            seen
        };
        limits.map(below).collect()
    }

    /// Returns pairs of a limit in microseconds and the number of calls up to it. Each limit is
    /// about double the one before. Limits that add no calls are left out.
    pub fn cumulative_usec(&self) -> Vec<(u64, u64)> {
        let mut pairs = Vec::new();
        let mut before = 0;
        // The limits are those of Redis' histograms: a power of two and one of their buckets above
        // it.
        for (power, seen) in (10..).zip(self.below((10..=POWER_MAX).map(|power| 1 << power))) {
            if seen > before {
                pairs.push((((1 << power) + (1 << (power - 7)) - 1) / 1000, seen));
            }
            before = seen;
        }
        pairs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_in_a_bucket_whose_limit_is_at_most_3_percent_away() {
        for nanos in (0..5000).chain((0..36).map(|power| (1u64 << power) + 1)) {
            let limit = upper(bucket(nanos));
            assert!(limit >= nanos && limit <= nanos + nanos / 32, "{nanos} {limit}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        for at in 1..BUCKETS {
            assert_eq!(bucket(upper(at)), at);
            assert_eq!(bucket(upper(at - 1) + 1), at);
        }
    }

    #[test]
    fn percentiles_and_limits_count_calls() {
        let (one, two) = (Histogram::default(), Histogram::default());
        one.record(500, 98);
        two.record(40_000, 2);
        let times = Times::of([&one, &two].into_iter());
        assert_eq!(times.calls, 100);
        assert!((500..516).contains(&times.percentile_nanos(50.0)));
        assert!((40_000..41_250).contains(&times.percentile_nanos(99.0)));
        assert_eq!(times.cumulative_usec(), [(1, 98), (66, 100)]);
        assert_eq!(times.below([256, 512, 10_000, 39_000, 42_000].into_iter()), [0, 98, 98, 98, 100]);
    }
}
