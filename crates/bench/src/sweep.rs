//! The highest rate that keeps p99 under a bound.
//!
//! The rate is doubled until a run misses the bound, then the gap is halved, by ratio, until it is
//! narrower than [`PRECISION`]. Each probe is an open-loop run of its own. A rate holds when p99 is
//! within the bound, the plan was kept and all was answered. Near the limit a probe is a matter of
//! luck: a rate that missed is tried a second time. A miss whose run was client-bound says nothing
//! about the server: such a rate is tried twice more, and an answer that rests on nothing else is
//! marked.

use crate::results::{Ending, RunResult};
use crate::spec::RunSpec;
use crate::{BenchError, run};

/// The ratio between a rate that misses and one that holds at which the search ends.
const PRECISION: f64 = 1.02;
/// The most rates tried.
const PROBES_MAX: usize = 40;
/// How often a rate is tried that misses, and how often while each miss was the client's.
const TRIES: usize = 2;
const TRIES_CLIENT_BOUND: usize = 4;
/// Part of the planned rate that must be reached.
const KEPT_MIN: f64 = 0.98;

/// What a sweep came to.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The run at the highest rate that held; `None` when even the lowest missed.
    pub best: Option<RunResult>,
    /// The load generator was the limit: of the best run, or each time that the next
    /// higher rate was tried.
    pub client_bound: bool,
    /// All runs in the order in which they were made, with whether they held.
    pub probes: Vec<(RunResult, bool)>,
}

/// Searches from `spec.load.rate` upwards (from 1,000 when absent) for the highest rate whose p99
/// is at most `p99_us_max` microseconds; below it when that misses already. `tell` sees each run.
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
        // The search narrows: a rate that misses is lower than those that missed before.
        next_was_client_bound = client_bound;
        Ok(Some(false))
    })?;
    let client_bound = next_was_client_bound || best.as_ref().is_some_and(RunResult::is_client_bound);
    Ok(Sweep { best, client_bound, probes })
}

/// Whether `result` kept its plan of `rate` requests per second within the bound.
fn holds(result: &RunResult, rate: f64, p99_us_max: f64) -> bool {
    result.latency.p99_us <= p99_us_max
        && result.unanswered == 0
        && result.fault().is_none()
        && result.requests_per_second >= KEPT_MIN * rate
}

/// Calls `probe` with rates until the highest is found that it says yes to; `None`
/// from it ends the search.
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

    /// The highest rate found from `start` on when rates up to `limit` hold,
    /// and the number of probes.
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
