//! Counters of the commands that a thread runs, which no other thread reads.

use std::time::Instant;

use crate::stats::end_to_end::TurnClock;
use crate::stats::hot_keys::Sampling;

/// The counters of a thread's commands that only this thread reads.
pub struct Meter {
    /// The clock for the end-to-end latency of the requests of this turn (a pass of the event
    /// loop).
    pub turn: TurnClock,
    /// True if the last request ran a command; false if it was refused or queued.
    pub called: bool,
    /// True if commands are counted for HOTKEYS, with their time, in this turn (a pass of the event
    /// loop).
    pub samples_hot_keys: bool,
    /// The number of commands that ran in this turn (pass of the event loop), minus the number of
    /// requests. A command of a transaction or script adds 1; a request that ran no command
    /// subtracts 1.
    pub extra_calls: i64,
    /// The number of commands up to and including the next one whose keys are counted for
    /// `hotkeys-top-k`.
    sample_in: u64,
}

impl Meter {
    /// Creates counters at zero for a command table of this number of commands.
    pub fn new(command_count: usize, now: Instant) -> Self {
        Self {
            turn: TurnClock::new(command_count, now),
            called: false,
            samples_hot_keys: false,
            extra_calls: 0,
            sample_in: u64::MAX,
        }
    }

    /// Counts down to the next sampled command. Returns true if the keys of the command that just
    /// ran must be counted for `hotkeys-top-k`.
    #[inline]
    pub fn samples_keys(&mut self) -> bool {
        // Without sampling, the countdown starts at a number so high that it never ends.
        self.sample_in -= 1;
        self.sample_in == 0
    }

    /// Draws the number of commands until the next one whose keys are counted for `hotkeys-top-k`.
    /// Each command has the same probability, so the number has a geometric distribution. Sampling
    /// thus needs a random number only for each counted command.
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
