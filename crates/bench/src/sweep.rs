//! The search for the highest rate whose p99 stays within a bound.
//!
//! The search doubles the rate until a run misses the bound. Then it takes the geometric mean of
//! the highest rate that held and the lowest that missed, until their ratio is at most
//! [`PRECISION`]. Each probe is a separate open-loop run. A rate holds when p99 is within the
//! bound, the planned rate was reached and all requests were answered. Near the highest rate, the
//! result of a probe depends on chance. A rate that misses is therefore tried a second time.
//!
//! A miss of a client-bound run says nothing about the server. If both tries were client-bound, the
//! rate is tried up to twice more. If all tries were client-bound, the result of the sweep is
//! marked as client-bound.

use crate::results::{Ending, RunResult};
use crate::spec::RunSpec;
use crate::{BenchError, run};

/// The ratio at which a search ends: the lowest rate that missed divided by the highest rate that
/// held.
const PRECISION: f64 = 1.02;
/// The largest number of rates that a search for the highest rate tries.
const PROBES_MAX: usize = 40;
/// The number of times that a rate is tried if it misses. `TRIES_CLIENT_BOUND` is the number of
/// tries while the load generator was the bottleneck in all of them.
const TRIES: usize = 2;
const TRIES_CLIENT_BOUND: usize = 4;
/// The smallest share of the planned rate that a run must reach for the rate to hold.
const KEPT_MIN: f64 = 0.98;

/// The result of a search for the highest rate whose p99 is within the bound.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The run at the highest rate that held the bound; `None` if no rate held it.
    pub best: Option<RunResult>,
    /// True if the load generator was the bottleneck: in the best run, or in all tries of the
    /// lowest rate that missed.
    pub client_bound: bool,
    /// All runs in the order in which they were made. The bool is true if the run held its rate.
    pub probes: Vec<(RunResult, bool)>,
}

/// Searches for the highest rate whose p99 is at most `p99_us_max` microseconds. Begins with
/// `spec.load.rate`, or with 1,000 requests per second if it is absent. Calls `tell` after each run
/// with its result, and true if the run held its rate.
pub fn sweep(
    spec: &RunSpec,
    p99_us_max: f64,
    mut tell: impl FnMut(&RunResult, bool),
) -> Result<Sweep, BenchError> {
    let mut probes: Vec<(RunResult, bool)> = Vec::new();
    let mut best: Option<RunResult> = None;
    let mut stopped = false;
    let mut next_was_client_bound = false;
    search(spec.load.rate.unwrap_or(1000.0), |rate| {
        let mut spec = spec.clone();
        spec.load.rate = Some(rate);
        let seed = spec.load.seed;
        let mut tries = 0;
        let mut client_bound = true;
        while tries < TRIES || (client_bound && tries < TRIES_CLIENT_BOUND) {
            tries += 1;
            spec.load.seed = seed.wrapping_add(probes.len() as u64);
            let result = run(&spec)?;
            let held = holds(&result, rate, p99_us_max);
            let refused = result.requests > 0 && result.fault().is_some();
            stopped = refused || result.ending != Ending::Complete;
            client_bound &= result.is_client_bound();
            tell(&result, held);
            if held {
                best = Some(result.clone());
            }
            probes.push((result, held));
            if held || stopped {
                return Ok(if stopped { None } else { Some(held) });
            }
        }
        // A later rate that misses is always lower, so this ends up as the state of the lowest one.
        next_was_client_bound = client_bound;
        Ok(Some(false))
    })?;
    let client_bound = next_was_client_bound || best.as_ref().is_some_and(RunResult::is_client_bound);
    Ok(Sweep { best, client_bound, probes })
}

/// Returns true if the run held `rate` (requests per second): it reached this rate, all requests
/// were answered, and p99 is at most `p99_us_max` microseconds.
fn holds(result: &RunResult, rate: f64, p99_us_max: f64) -> bool {
    result.latency.p99_us <= p99_us_max
        && result.unanswered == 0
        && result.fault().is_none()
        && result.requests_per_second >= KEPT_MIN * rate
}

/// Calls `probe` with rates in requests per second, beginning with `start`, until the highest rate
/// that holds is found. `probe` returns true if the rate holds, and `None` to end the search.
fn search(
    start: f64,
    mut probe: impl FnMut(f64) -> Result<Option<bool>, BenchError>,
) -> Result<(), BenchError> {
    let (mut held, mut missed) = (None::<f64>, None::<f64>);
    let mut rate = start;
    for _ in 0..PROBES_MAX {
        match probe(rate)? {
            None => return Ok(()),
            Some(true) => held = Some(rate),
            Some(false) => missed = Some(rate),
        }
        rate = match (held, missed) {
            (Some(held), None) => held * 2.0,
            (None, Some(missed)) if missed > 2.0 => missed / 2.0,
            (Some(held), Some(missed)) if missed / held > PRECISION => (held * missed).sqrt(),
            _ => return Ok(()),
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the highest rate that a search finds and the number of its probes. Rates up to
    /// `limit` hold, and the search begins with `start`.
    fn found(start: f64, limit: f64) -> (f64, usize) {
        let (mut best, mut probes) = (0.0_f64, 0);
        search(start, |rate| {
            probes += 1;
            if rate <= limit {
                best = best.max(rate);
            }
            Ok(Some(rate <= limit))
        })
        .unwrap();
        (best, probes)
    }

    #[test]
    fn the_limit_is_found_from_either_side() {
        for (start, limit) in [(1000.0, 87_654.0), (1_000_000.0, 87_654.0), (1000.0, 1000.0)] {
            let (best, probes) = found(start, limit);
            assert!(best <= limit && limit / best <= PRECISION && probes <= 20, "{best} {probes}");
        }
    }

    #[test]
    fn nothing_holds_and_everything_holds_end_the_search() {
        assert_eq!(found(1000.0, 0.0).0, 0.0);
        assert!(found(1000.0, f64::INFINITY).1 <= PROBES_MAX);
    }
}
