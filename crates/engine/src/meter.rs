//! The counters of a thread for the commands that it runs, beside those that others read.

use std::time::Instant;

use crate::stats::end_to_end::TurnClock;
use crate::stats::hot_keys::Sampling;

/// A thread's own counts.
pub struct Meter {
    /// The clock of this turn's requests from end to end.
    pub turn: TurnClock,
    /// True if the last request ran a command, rather than being refused or queued.
    pub called: bool,
    /// True if commands are counted for HOTKEYS in this turn, with their time.
    pub samples_hot_keys: bool,
    /// Commands that ran beyond one for each request, in transactions; below zero for
    /// requests that ran none.
    pub extra_calls: i64,
    /// Commands up to the next whose keys are counted, itself included.
    sample_in: u64,
}

impl Meter {
    /// Creates counters at zero for this number of commands.
    pub fn new(command_count: usize, now: Instant) -> Self {
        Self {
            turn: TurnClock::new(command_count, now),
            called: false,
            samples_hot_keys: false,
            extra_calls: 0,
            sample_in: u64::MAX,
        }
    }

    /// Returns true if the keys of the command that ran are to be counted for `hotkeys-top-k`.
    #[inline]
    pub fn samples_keys(&mut self) -> bool {
        // Where nothing is sampled, it counts down from so much that it never arrives.
        self.sample_in -= 1;
        self.sample_in == 0
    }

    /// Draws the next command whose keys are counted: each has the same chance, so how many
    /// are passed over has a geometric distribution. One draw for each counted command is
    /// all that sampling costs.
    pub fn draw_sample(&mut self, sampling: Sampling, rng: &mut fastrand::Rng) {
        let Sampling { shown, percent, .. } = sampling;
        self.sample_in = match percent {
            _ if shown == 0 => u64::MAX,
            100 => 1,
            _ => {
                let passed = (1.0 - rng.f64()).ln() / (1.0 - f64::from(percent) / 100.0).ln();
                1 + passed as u64
            }
        };
    }
}
