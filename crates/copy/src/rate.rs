//! The limits of the keys and bytes per second that are read from the source.

/// The time in seconds for which an unused part of a rate limit is kept. So a pause is not followed
/// by a long burst.
const BURST_S: f64 = 0.05;

/// An account of one rate limit, in keys or bytes: it fills with time, up to [`BURST_S`] seconds of
/// the rate, and may be overdrawn.
#[derive(Debug)]
struct Account {
    per_second: Option<f64>,
    left: f64,
}

impl Account {
    fn new(per_second: Option<f64>) -> Self {
        Self { per_second, left: 0.0 }
    }

    fn fill(&mut self, seconds: f64) {
        if let Some(rate) = self.per_second {
            // A slow rate must still allow one unit at a time.
            self.left = (self.left + rate * seconds).min((rate * BURST_S).max(1.0));
        }
    }

    fn is_open(&self) -> bool {
        self.per_second.is_none() || self.left > 0.0
    }
}

/// The budget of keys and bytes that may be read at present.
#[derive(Debug)]
pub struct Budget {
    keys: Account,
    bytes: Account,
    filled_ns: u64,
}

impl Budget {
    /// Creates a budget with these limits per second; `None` is no limit.
    pub fn new(keys_per_second: Option<f64>, bytes_per_second: Option<f64>) -> Self {
        Self { keys: Account::new(keys_per_second), bytes: Account::new(bytes_per_second), filled_ns: 0 }
    }

    /// Adds the keys and bytes that the limits allow for the time since the last call.
    pub fn fill(&mut self, now_ns: u64) {
        let seconds = now_ns.saturating_sub(self.filled_ns) as f64 / 1e9;
        self.filled_ns = self.filled_ns.max(now_ns);
        self.keys.fill(seconds);
        self.bytes.fill(seconds);
    }

    /// Takes one key from the budget. Takes none and returns false if the limit of keys or of bytes
    /// is reached.
    pub fn take_key(&mut self) -> bool {
        let is_open = self.keys.is_open() && self.bytes.is_open();
        if is_open {
            self.keys.left -= 1.0;
        }
        is_open
    }

    /// Subtracts `len_bytes` received bytes from the budget. The length of a value is known only
    /// after it was received, so the account may become negative. Then no key may be read until the
    /// account is positive again.
    pub fn charge_bytes(&mut self, len_bytes: usize) {
        self.bytes.left -= len_bytes as f64;
    }

    /// Returns true if the keys or the bytes per second are limited.
    pub fn is_limited(&self) -> bool {
        self.keys.per_second.is_some() || self.bytes.per_second.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn keys_in(budget: &mut Budget, from_ms: u64, to_ms: u64, len_bytes: usize) -> u64 {
        let mut count = 0;
        for ms in from_ms..to_ms {
            budget.fill(ms * SECOND / 1000);
            while count < 1_000_000 && budget.take_key() {
                budget.charge_bytes(len_bytes);
                count += 1;
            }
        }
        count
    }

    #[test]
    fn the_rates_hold_over_time() {
        let mut budget = Budget::new(Some(1000.0), None);
        let count = keys_in(&mut budget, 0, 10_000, 50);
        assert!((9_900..=10_101).contains(&count), "{count}");
        let mut budget = Budget::new(None, Some(1e6));
        let count = keys_in(&mut budget, 0, 10_000, 5000);
        assert!((1_990..=2_020).contains(&count), "{count}");
        let mut budget = Budget::new(Some(0.5), None);
        let count = keys_in(&mut budget, 0, 10_000, 50);
        assert!((4..=7).contains(&count), "{count}");
    }

    #[test]
    fn a_pause_earns_no_long_burst_and_a_large_value_is_paid_for() {
        let mut budget = Budget::new(Some(1000.0), None);
        assert!(keys_in(&mut budget, 59_999, 60_000, 1) <= 51);
        let mut budget = Budget::new(None, Some(1000.0));
        budget.fill(SECOND);
        assert!(budget.take_key());
        budget.charge_bytes(10_000);
        assert_eq!(keys_in(&mut budget, 1000, 10_000, 1), 0);
        assert!(keys_in(&mut budget, 10_000, 12_000, 1) > 0);
        assert!(budget.is_limited());
    }

    #[test]
    fn without_limits_everything_is_allowed() {
        let mut budget = Budget::new(None, None);
        assert_eq!(keys_in(&mut budget, 0, 1, 1_000_000), 1_000_000);
        assert!(!budget.is_limited());
    }
}
