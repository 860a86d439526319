//! The courtesy of the applier to the I/O threads: while clients are served and the replica is up
//! to date, it offers its core to other threads between two batches.
//!
//! The stream arrives in bursts, because a primary gathers what it sends. The kernel interrupts a
//! thread only after some milliseconds. So on a common core, a request would wait until a whole
//! burst is applied. On the other hand, a thread that offers its core gives away the rest of its
//! time slice. Therefore the applier offers it only for a short time after a moment at which all
//! was applied. If it falls behind, it takes its full share of the core until it is up to date
//! again. `docs/performance.md` has the figures.

use std::time::{Duration, Instant};

use crate::shared::Shared;

/// The time after the last moment at which all was applied, during which the core is offered.
const CURRENT_MAX: Duration = Duration::from_millis(2);

/// The state of the courtesy of one stream.
#[derive(Default)]
pub(super) struct Courtesy {
    /// The number of turns of all I/O threads at the beginning of this burst.
    turns: u64,
    /// True if an I/O thread has had a turn between the last two bursts.
    are_clients_served: bool,
    /// True if a batch of this burst was applied.
    has_begun: bool,
    /// The last moment at which all was applied; `None` before the first one.
    current_at: Option<Instant>,
}

impl Courtesy {
    /// Begins a burst: what has arrived is about to be applied. O(I/O threads).
    pub fn begin_burst(&mut self, shared: &Shared) {
        let turns = shared.engine.threads.sum(|stats| &stats.cycles);
        self.are_clients_served = std::mem::replace(&mut self.turns, turns) != turns;
        self.has_begun = false;
    }

    /// Notes a moment at which all that had arrived was applied.
    pub fn note_current(&mut self, now: Instant) {
        self.current_at = Some(now);
    }

    /// Returns true if the core is to be offered before the next batch of the burst.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let has_begun = std::mem::replace(&mut self.has_begun, true);
        let is_current = |at: Instant| now.saturating_duration_since(at) < CURRENT_MAX;
        has_begun && self.are_clients_served && self.current_at.is_some_and(is_current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_offered_between_batches_while_clients_are_served_and_all_is_applied() {
        let now = Instant::now();
        let at = |ms| now + Duration::from_millis(ms);
        let mut courtesy = Courtesy { are_clients_served: true, ..Courtesy::default() };
        assert_eq!([0, 1].map(|ms| courtesy.is_due(at(ms))), [false; 2], "never up to date");
        courtesy.has_begun = false;
        courtesy.note_current(now);
        assert_eq!([0, 0, 1, 2].map(|ms| courtesy.is_due(at(ms))), [false, true, true, false]);
        courtesy.are_clients_served = false;
        assert!(!courtesy.is_due(now));
    }
}
