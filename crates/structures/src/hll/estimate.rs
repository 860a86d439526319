//! The estimate of the number of elements from a HyperLogLog's registers: Ertl's improved raw
//! estimator, which needs no bias tables and no switch between ranges. It uses only the histogram
//! of the values.

use super::{RANK_BITS, REGISTERS};

/// The number of registers that hold each value, indexed by value. Hashes give values up to 51;
/// only untrusted bytes have greater ones.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: [u32; 64],
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; 64] }
    }
}

/// The limit of the estimator's constant for many registers: 1 / (2 ln 2), rounded as in Redis.
const ALPHA_INF: f64 = 0.721_347_520_444_481_7;
/// The greatest register value that the hash of an element gives.
const VALUE_MAX: usize = RANK_BITS as usize + 1;

impl Histogram {
    /// Adds `registers` to the number of registers that hold `value`, which is below 64.
    #[inline]
    pub fn add(&mut self, value: u8, registers: usize) {
        self.counts[usize::from(value)] += registers as u32;
    }

    /// Estimates the number of different elements from the histogram. Untrusted registers can cause
    /// an infinite estimate, which is returned as 2^63, as in Redis. O(1).
    pub fn estimate(&self) -> u64 {
        let registers = REGISTERS as f64;
        let count = |value: usize| f64::from(self.counts[value]);
        let mut z = registers * tau((registers - count(VALUE_MAX)) / registers);
        for value in (1..VALUE_MAX).rev() {
            z = (z + count(value)) * 0.5;
        }
        z += registers * sigma(count(0) / registers);
        let estimate = (ALPHA_INF * registers * registers / z).round();
        if estimate < (1_u64 << 63) as f64 { estimate as u64 } else { 1 << 63 }
    }
}

/// Computes the term of the estimate for registers with the greatest value. The series converges:
/// each step is half of the one before, until adding a step changes nothing.
fn tau(mut x: f64) -> f64 {
    if x == 0.0 || x == 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        let before = z;
        x = x.sqrt();
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z == before {
            return z / 3.0;
        }
    }
}

/// Computes the term of the estimate for registers with the value 0. The series converges: `x` is
/// below 1 and squared at each step.
fn sigma(mut x: f64) -> f64 {
    if x == 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        let before = z;
        x *= x;
        z += x * y;
        y += y;
        if z == before {
            return z;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(counts: &[(u8, usize)], expected: u64) {
        let mut histogram = Histogram::default();
        counts.iter().for_each(|&(value, registers)| histogram.add(value, registers));
        assert_eq!(histogram.estimate(), expected, "{counts:?}");
    }

    #[test]
    fn extremes_have_an_estimate() {
        check(&[(0, REGISTERS)], 0);
        check(&[(0, REGISTERS - 1), (1, 1)], 1);
        check(&[(0, REGISTERS - 1), (51, 1)], 1);
        check(&[(60, REGISTERS)], 1 << 63);
    }
}
