//! Medians over rounds, and their confidence intervals.
//!
//! The confidence interval of a median comes from order statistics of `n` sorted values. The
//! interval from the k-th smallest to the k-th largest value contains the true median with the
//! probability `1 - 2 * P(Binomial(n, 1/2) < k)`, for any distribution. The narrowest interval of
//! at least 95 % is used. With fewer than six values no interval reaches 95 %. Then the interval is
//! the whole range, and its coverage is reported: 50 % for two rounds, 75 % for three, 94 % for
//! five. Source: David and Nagaraja, Order Statistics, 7.1. Rejected: the bootstrap, which gives
//! too narrow intervals for so few values and needs randomness.

use serde::{Deserialize, Serialize};

/// The probability with which a confidence interval must contain the true median. With fewer than
/// six values no interval reaches it.
const COVERAGE_WANTED: f64 = 0.95;

/// The median of a figure over the rounds, and its confidence interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// The median of the measured values, in the unit of the figure.
    pub median: f64,
    /// The lower end of the median's confidence interval.
    pub low: f64,
    /// The upper end of the median's confidence interval.
    pub high: f64,
    /// The probability that the interval contains the true median, from 0 to 1; 0 for a single
    /// round.
    pub coverage: f64,
}

impl Estimate {
    /// Computes the median of `values` and its confidence interval; `None` without finite values.
    /// O(n log n).
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let median = median_of_sorted(&values)?;
        let (at, coverage) = rank(values.len());
        Some(Self { median, low: values[at], high: values[values.len() - 1 - at], coverage })
    }

    /// Returns true if the two confidence intervals do not overlap: the difference of the medians
    /// is larger than the noise.
    pub fn is_apart(&self, other: &Estimate) -> bool {
        self.low > other.high || other.low > self.high
    }
}

/// Returns the median of `values` in any order; `None` without finite values.
pub fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    median_of_sorted(&values)
}

fn median_of_sorted(values: &[f64]) -> Option<f64> {
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        count if count % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// Returns the number of values to leave out at each end of `n` sorted values for the confidence
/// interval of their median. The second value is the coverage of that interval.
fn rank(n: usize) -> (usize, f64) {
    // P(Binomial(n, 1/2) = i), starting with i = 0.
    let mut probability = 0.5f64.powi(i32::try_from(n).unwrap_or(i32::MAX));
    let mut below = probability;
    let mut best = (0, (1.0 - 2.0 * below).max(0.0));
    for at in 1..n.div_ceil(2) {
        probability *= (n + 1 - at) as f64 / at as f64;
        below += probability;
        let coverage = 1.0 - 2.0 * below;
        if coverage < COVERAGE_WANTED {
            break;
        }
        best = (at, coverage);
    }
    best
}

/// Returns the difference of `value` to `base` in percent of `base`; `None` if `base` is not
/// positive.
pub fn percent(value: f64, base: f64) -> Option<f64> {
    (base > 0.0).then(|| (value / base - 1.0) * 100.0)
}

/// Returns the geometric mean of the positive numbers in `values`; `None` if there are none. The
/// geometric mean is the correct average of ratios.
pub fn geometric_mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let logs: Vec<f64> = values.into_iter().filter(|value| *value > 0.0).map(f64::ln).collect();
    (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
}

/// Returns true if rates over rising connections have stopped rising: neither of the last two rates
/// is above the best rate before them by `percent` or more. Two are needed, as a single step may be
/// noise. Also returns true for a last rate of 0, which comes from a failed run.
pub fn has_stopped_rising(rates: &[f64], percent: f64) -> bool {
    let best = |rates: &[f64]| rates.iter().copied().fold(0.0, f64::max);
    match rates {
        [.., last] if *last <= 0.0 => true,
        [before @ .., _, _] if !before.is_empty() => {
            best(&rates[before.len()..]) < best(before) * (1.0 + percent / 100.0)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_of_few_values() {
        assert_eq!(median([]), None);
        assert_eq!(median([3.0]), Some(3.0));
        assert_eq!(median([4.0, 1.0, 2.0, f64::NAN]), Some(2.0));
        assert_eq!(median([4.0, 1.0]), Some(2.5));
    }

    #[test]
    fn few_rounds_give_the_whole_range_and_say_how_sure_it_is() {
        for (n, coverage) in [(1, 0.0), (2, 0.5), (3, 0.75), (5, 0.9375)] {
            assert_eq!(rank(n), (0, coverage), "{n}");
        }
    }

    #[test]
    fn ranks_agree_with_the_published_table() {
        // (n, values left out at each end) of the 95 % interval of the median.
        for (n, at) in [(6, 0), (8, 0), (9, 1), (12, 2), (15, 3), (20, 5), (30, 9)] {
            let (found, coverage) = rank(n);
            assert_eq!(found, at, "{n}");
            assert!((0.95..1.0).contains(&coverage), "{n}: {coverage}");
        }
    }

    #[test]
    fn intervals_that_touch_are_not_apart() {
        let one = Estimate::of([1.0, 2.0, 3.0]).unwrap();
        let other = Estimate::of([3.0, 4.0, 5.0]).unwrap();
        let far = Estimate::of([3.1, 4.0]).unwrap();
        assert!(!one.is_apart(&other) && one.is_apart(&far) && far.is_apart(&one));
    }

    #[test]
    fn ratios_are_averaged_by_their_logarithms() {
        assert!((geometric_mean([2.0, 0.5]).unwrap() - 1.0).abs() < 1e-12);
        assert_eq!(geometric_mean([]), None);
        assert_eq!(percent(150.0, 100.0), Some(50.0));
        assert_eq!(percent(1.0, 0.0), None);
    }

    #[test]
    fn a_rate_has_stopped_rising_after_two_steps_without_gain() {
        for (rates, stopped) in [
            (&[100.0][..], false),
            (&[100.0, 101.0], false),
            (&[100.0, 101.0, 102.0], true),
            (&[100.0, 101.0, 110.0], false),
            (&[100.0, 110.0, 90.0], false),
            (&[100.0, 110.0, 90.0, 112.0], true),
            (&[100.0, 0.0], true),
        ] {
            assert_eq!(has_stopped_rising(rates, 3.0), stopped, "{rates:?}");
        }
    }
}
