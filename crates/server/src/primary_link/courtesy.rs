//! Courtesy: the thread that applies the primary's replication stream (the applier) yields its core
//! to the I/O threads between two batches. It does so while clients are served and the replica is
//! up to date.
//!
//! The stream arrives in bursts, because a primary gathers changes before it sends them. The kernel
//! interrupts a thread only after some milliseconds. So if both threads share a core, a client's
//! request would wait until a whole burst is applied. However, a thread that yields loses the rest
//! of its time slice. Therefore the applier yields only for a short time after all received bytes
//! were applied. If it then has not caught up, it uses its full share of the core until it is up to
//! date again. `docs/performance.md` has the figures.

use std::time::{Duration, Instant};

use crate::shared::Shared;

/// The time after all received bytes were applied during which the applier yields its core.
const CURRENT_MAX: Duration = Duration::from_millis(2);

/// The state by which the applier of one replication stream decides when to yield.
#[derive(Default)]
pub(super) struct Courtesy {
    /// The number of turns that all I/O threads had taken when the present burst of the replication
    /// stream began.
    turns: u64,
    /// True if an I/O thread has taken a turn between the beginnings of the last two bursts of the
    /// replication stream.
    are_clients_served: bool,
    /// True if a batch of the present burst of the replication stream was applied.
    has_begun: bool,
    /// The last time at which all received bytes were applied; `None` before the first time.
    current_at: Option<Instant>,
}

impl Courtesy {
    /// Begins a burst of the replication stream: the received bytes are about to be applied, batch
    /// by batch. O(I/O threads).
    pub fn begin_burst(&mut self, shared: &Shared) {
        let turns = shared.engine.threads.sum(|stats| &stats.cycles);
        self.are_clients_served = std::mem::replace(&mut self.turns, turns) != turns;
        self.has_begun = false;
    }

    /// Records that at `now` all received bytes of the replication stream were applied.
    pub fn note_current(&mut self, now: Instant) {
        self.current_at = Some(now);
    }

    /// Returns true if the applier should yield its core before the next batch of the burst.
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
