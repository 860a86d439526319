//! The choice of the next key number from a range, sequential or random.
//!
//! Zipf's law is drawn by rejection from the inverted integral of `1/x^s` (Hörmann and Derflinger
//! 1996). A draw is O(1) for any range and needs no table. A normal distribution is drawn by the
//! polar method. If its number is outside the range, another one is drawn.

use super::draw::Draw;

/// The maximum number of draws of one Gaussian number; a draw outside the range is repeated. After
/// the last draw, the nearest end of the range is used. With a median inside the range and a
/// deviation of at most its size, a third of the draws or more hit.
const GAUSSIAN_DRAWS_MAX: u32 = 64;

/// A range of key numbers, and the pattern by which numbers are chosen from it.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The smallest key number of the range.
    pub min: u64,
    /// The largest key number of the range.
    pub max: u64,
    /// The pattern by which key numbers are chosen from the range.
    pub pattern: KeyPattern,
}

/// The pattern by which numbers are chosen from a range: a random distribution or a sequence.
#[derive(Clone, Debug)]
pub enum KeyPattern {
    /// All numbers of the range have the same probability.
    Uniform,
    /// All numbers in ascending order, then again from the first. All threads share one sequence.
    /// Holds the index of its counter in [`Sequences`](super::Sequences).
    Sequential(usize),
    /// A normal distribution of the numbers, limited to the range.
    Gaussian {
        /// The median of the normal distribution, as a key number.
        median: f64,
        /// The standard deviation of the normal distribution, in key numbers.
        deviation: f64,
    },
    /// Zipf's law with exponent `s`: the first number is the most frequent, and the k-th is `1/k^s`
    /// times as frequent.
    Zipf(Zipf),
}

impl Keys {
    /// Returns the number of key numbers in the range.
    pub fn count(&self) -> u64 {
        (self.max - self.min).saturating_add(1)
    }

    /// Chooses the next key number. O(1); a Gaussian number takes up to 64 draws.
    #[inline]
    pub fn next(&self, draw: &mut Draw) -> u64 {
        match &self.pattern {
            KeyPattern::Uniform => draw.rng.u64(self.min..=self.max),
            KeyPattern::Sequential(counter) => self.min + draw.next_of(*counter) % self.count(),
            KeyPattern::Gaussian { median, deviation } => self.gaussian(*median, *deviation, draw),
            KeyPattern::Zipf(zipf) => self.min + zipf.next(draw) - 1,
        }
    }

    fn gaussian(&self, median: f64, deviation: f64, draw: &mut Draw) -> u64 {
        let (min, max) = (self.min as f64, self.max as f64);
        let mut number = median;
        for _ in 0..GAUSSIAN_DRAWS_MAX {
            number = (median + deviation * standard_normal(draw)).round();
            if (min..=max).contains(&number) {
                break;
            }
        }
        (number.clamp(min, max) as u64).clamp(self.min, self.max)
    }
}

/// Draws a number from the normal distribution with mean 0 and deviation 1, by the polar method.
fn standard_normal(draw: &mut Draw) -> f64 {
    loop {
        let (x, y) = (2.0 * draw.rng.f64() - 1.0, 2.0 * draw.rng.f64() - 1.0);
        let square = x * x + y * y;
        if square > 0.0 && square < 1.0 {
            return x * (-2.0 * square.ln() / square).sqrt();
        }
    }
}

/// Zipf's law over the numbers `1..=n`.
#[derive(Clone, Debug)]
pub struct Zipf {
    n: f64,
    exponent: f64,
    /// The lower bound of the uniform draw, as a value of [`Zipf::integral`]; `integral_last` is
    /// the upper bound. [`Zipf::next`] draws a number between them and inverts the integral.
    integral_first: f64,
    integral_last: f64,
    /// The largest distance from the drawn point to the next number at which this number is
    /// accepted without the rejection test.
    taken_within: f64,
}

impl Zipf {
    /// Creates Zipf's law over the numbers `1..=n` with an `exponent` above 0.
    pub fn new(n: u64, exponent: f64) -> Self {
        let mut law =
            Self { n: n as f64, exponent, integral_first: 0.0, integral_last: 0.0, taken_within: 0.0 };
        law.integral_first = law.integral(1.5) - 1.0;
        law.integral_last = law.integral(law.n + 0.5);
        law.taken_within = 2.0 - law.inverse(law.integral(2.5) - law.density(2.0));
        law
    }

    fn next(&self, draw: &mut Draw) -> u64 {
        loop {
            let u = self.integral_last + draw.rng.f64() * (self.integral_first - self.integral_last);
            let x = self.inverse(u);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.taken_within || u >= self.integral(k + 0.5) - self.density(k) {
                return k as u64;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// Returns `(x^(1-s) - 1) / (1-s)`, or `ln x` if `s` is 1: an integral of `1/x^s`.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let t = (1.0 - self.exponent) * log;
        log * if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 }
    }

    fn inverse(&self, y: f64) -> f64 {
        let t = (y * (1.0 - self.exponent)).max(-1.0);
        (y * if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 }).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Sequences;

    fn drawn(pattern: KeyPattern, count: usize) -> Vec<u64> {
        let keys = Keys { min: 10, max: 1009, pattern };
        let mut draw = Draw::new(7, Sequences::new(1));
        (0..count).map(|_| keys.next(&mut draw)).collect()
    }

    #[test]
    fn a_sequence_visits_every_key_once_and_starts_again() {
        let keys = drawn(KeyPattern::Sequential(0), 2000);
        let expected: Vec<u64> = (10..=1009).chain(10..=1009).collect();
        assert_eq!(keys, expected);
    }

    #[test]
    fn a_uniform_choice_reaches_both_ends_about_evenly() {
        let keys = drawn(KeyPattern::Uniform, 100_000);
        assert_eq!((keys.iter().min(), keys.iter().max()), (Some(&10), Some(&1009)));
        let lower = keys.iter().filter(|&&key| key < 510).count();
        assert!((49_000..51_000).contains(&lower), "{lower}");
    }

    #[test]
    fn a_gaussian_has_its_median_and_deviation() {
        let keys = drawn(KeyPattern::Gaussian { median: 500.0, deviation: 100.0 }, 100_000);
        let below = keys.iter().filter(|&&key| key < 500).count();
        assert!((49_000..51_000).contains(&below), "{below}");
        let within = keys.iter().filter(|&&key| (400..=600).contains(&key)).count();
        assert!((67_000..70_000).contains(&within), "one deviation holds 68 %: {within}");
    }

    #[test]
    fn a_gaussian_has_the_shape_of_one() {
        let count = 200_000;
        let keys = drawn(KeyPattern::Gaussian { median: 509.5, deviation: 80.0 }, count);
        let mean = keys.iter().map(|&key| key as f64).sum::<f64>() / count as f64;
        let variance = keys.iter().map(|&key| (key as f64 - mean).powi(2)).sum::<f64>() / count as f64;
        // The mean of this many draws is off by 80 / sqrt(200,000), and the deviation by less.
        assert!((mean - 509.5).abs() < 1.0 && (variance.sqrt() - 80.0).abs() < 0.8, "{mean} {variance}");
        for (deviations, share) in [(1.0, 0.6827), (2.0, 0.9545), (3.0, 0.9973)] {
            let near = |key: &&u64| (**key as f64 - 509.5).abs() <= deviations * 80.0;
            let found = keys.iter().filter(near).count() as f64 / count as f64;
            assert!((found - share).abs() < 0.005, "{deviations} deviations hold {share}: {found}");
        }
    }

    #[test]
    fn a_narrow_range_cuts_a_gaussian_off_without_heaps_at_its_ends() {
        // Half of the draws miss the range and are drawn again, so no end is more frequent than its
        // neighbours.
        let keys = drawn(KeyPattern::Gaussian { median: 509.5, deviation: 700.0 }, 100_000);
        let near = |at: u64| keys.iter().filter(|&&key| key.abs_diff(at) < 10).count() as f64;
        assert!((near(10) / near(30) / 0.5 - 1.0).abs() < 0.25, "{} {}", near(10), near(30));
    }

    #[test]
    fn zipf_falls_off_by_its_exponent() {
        for exponent in [0.8, 1.0, 1.03, 1.5] {
            let keys = drawn(KeyPattern::Zipf(Zipf::new(1000, exponent)), 400_000);
            let count = |rank: u64| keys.iter().filter(|&&key| key == 9 + rank).count() as f64;
            // The slope between two ranks, in logarithms.
            let slope = (count(2) / count(16)).ln() / 8.0_f64.ln();
            assert!((slope - exponent).abs() < 0.08, "{exponent}: {slope}");
        }
    }

    #[test]
    fn threads_share_a_sequence_so_that_each_key_comes_once() {
        let sequences = Sequences::new(1);
        let keys = Keys { min: 10, max: 1009, pattern: KeyPattern::Sequential(0) };
        let draw_half = |seed: u64| {
            let (keys, sequences) = (keys.clone(), sequences.clone());
            std::thread::spawn(move || {
                let mut draw = Draw::new(seed, sequences);
                (0..500).map(|_| keys.next(&mut draw)).collect::<Vec<u64>>()
            })
        };
        let halves = [1, 2].map(draw_half).map(|thread| thread.join().unwrap());
        let mut all: Vec<u64> = halves.into_iter().flatten().collect();
        all.sort_unstable();
        assert_eq!(all, (10..=1009).collect::<Vec<u64>>());
    }

    #[test]
    fn a_gaussian_outside_its_range_ends_at_the_range() {
        let keys = drawn(KeyPattern::Gaussian { median: 1e9, deviation: 1.0 }, 10);
        assert!(keys.iter().all(|&key| key == 1009));
    }

    #[test]
    fn zipf_prefers_the_first_keys_by_its_law() {
        for exponent in [0.5, 0.99, 1.0, 1.03, 2.0] {
            let weights: Vec<f64> = (1..=1000).map(|k| f64::from(k).powf(-exponent)).collect();
            let total: f64 = weights.iter().sum();
            let keys = drawn(KeyPattern::Zipf(Zipf::new(1000, exponent)), 200_000);
            for (rank, weight) in [(0, weights[0]), (1, weights[1]), (9, weights[9])] {
                let expected = 200_000.0 * weight / total;
                let found = keys.iter().filter(|&&key| key == 10 + rank).count() as f64;
                let noise = 6.0 * expected.sqrt();
                assert!((found - expected).abs() < noise, "{exponent} {rank}: {found} for {expected}");
            }
        }
    }
}
