//! Reduction of a failing scenario: removes clients and steps as long as the rest still fails. Each
//! candidate runs under a few different schedules.

use super::run;
use super::scenario::Scenario;

/// Number of schedules under which a reduced scenario is run to see if it still fails.
const SCHEDULES: u64 = 12;
/// Maximum number of runs of candidates to reduce one failing scenario.
const RUNS_MAX: usize = 2_000;

/// A failing scenario and the texts of its violated checks.
pub struct Failure {
    /// The scenario that fails.
    pub scenario: Scenario,
    /// The texts of the checks that the run of the scenario violated.
    pub findings: Vec<String>,
}

/// Returns the smallest failing scenario that was found. It may fail in another way than the
/// original.
pub fn shrink(failure: Failure) -> Failure {
    let mut shrinker = Shrinker { failure, runs: 0 };
    shrinker.drop_clients();
    // Big pieces first, then smaller ones.
    let mut pieces = 2;
    while shrinker.runs < RUNS_MAX {
        let longest =
            shrinker.failure.scenario.players.iter().map(|scripted_client| scripted_client.steps.len()).max();
        let shrunk = shrinker.drop_steps(pieces);
        if shrunk {
            continue;
        }
        if pieces >= longest.unwrap_or(0) {
            break;
        }
        pieces *= 2;
    }
    shrinker.drop_clients();
    shrinker.failure
}

struct Shrinker {
    failure: Failure,
    runs: usize,
}

impl Shrinker {
    /// Runs the candidate scenario under a few schedules. If it fails, keeps it as the smallest
    /// failing scenario and returns true.
    fn try_out(&mut self, mut candidate: Scenario) -> bool {
        let first = candidate.schedule;
        for number in 0..SCHEDULES {
            if self.runs >= RUNS_MAX {
                return false;
            }
            self.runs += 1;
            candidate.schedule = first.wrapping_add(number);
            let findings = run(&candidate);
            if !findings.is_empty() {
                self.failure = Failure { scenario: candidate, findings };
                return true;
            }
        }
        false
    }

    fn drop_clients(&mut self) {
        let mut at = 0;
        while at < self.failure.scenario.players.len() {
            let mut candidate = self.failure.scenario.clone();
            candidate.players.remove(at);
            if candidate.players.is_empty() || !self.try_out(candidate) {
                at += 1;
            }
        }
    }

    /// Splits each client's list of steps into `pieces` pieces, and removes those without which the
    /// scenario still fails. Returns true if any was removed.
    fn drop_steps(&mut self, pieces: usize) -> bool {
        let mut dropped = false;
        for scripted_client in 0..self.failure.scenario.players.len() {
            let mut from = 0;
            loop {
                let steps = &self.failure.scenario.players[scripted_client].steps;
                let len = steps.len().div_ceil(pieces).max(1);
                if from >= steps.len() {
                    break;
                }
                let to = (from + len).min(steps.len());
                let mut candidate = self.failure.scenario.clone();
                candidate.players[scripted_client].steps.drain(from..to);
                if self.try_out(candidate) {
                    dropped = true;
                } else {
                    from = to;
                }
            }
        }
        dropped
    }
}
