//! The handshakes of a loop: in the order in which they began, with a time limit, and in the order
//! in which their turn comes.
//!
//! A handshake costs as much as hundreds of requests, so a turn goes on with a few only
//! ([`LoopOptions::handshakes_per_turn_max`](crate::LoopOptions::handshakes_per_turn_max)): clients
//! that are being served wait for these at most, however many connect.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::ConnId;

/// See the module.
#[derive(Default)]
pub(crate) struct Handshakes {
    /// Connections that have received something for their handshakes, each once.
    ready: VecDeque<ConnId>,
    /// Until when handshakes must be over, the first first. Those that are over stay until then.
    deadlines: VecDeque<(Instant, ConnId)>,
}

impl Handshakes {
    /// Adds a handshake that begins now and must be complete by `deadline`, which is never before
    /// an earlier one.
    pub(crate) fn begin(&mut self, conn: ConnId, deadline: Instant) {
        self.deadlines.push_back((deadline, conn));
    }

    /// Queues `conn` for its next step. Call it once until [`next_ready`](Self::next_ready) has
    /// returned it.
    pub(crate) fn make_ready(&mut self, conn: ConnId) {
        self.ready.push_back(conn);
    }

    /// Returns true if a handshake is ready for its next step.
    pub(crate) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Takes the next.
    pub(crate) fn next_ready(&mut self) -> Option<ConnId> {
        self.ready.pop_front()
    }

    /// Lists the handshakes that are still ready.
    pub(crate) fn all_ready(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.ready.iter().copied()
    }

    /// Returns true if there may be a deadline.
    #[inline]
    pub(crate) fn any_deadline(&self) -> bool {
        !self.deadlines.is_empty()
    }

    /// Takes the connections whose deadlines have passed, and drops, from the front, those that
    /// `is_over` says it of.
    pub(crate) fn take_late(&mut self, now: Instant, is_over: impl Fn(ConnId) -> bool) -> Vec<ConnId> {
        let mut late = Vec::new();
        while let Some(&(deadline, conn)) = self.deadlines.front() {
            if is_over(conn) {
                self.deadlines.pop_front();
            } else if deadline <= now {
                self.deadlines.pop_front();
                late.push(conn);
            } else {
                break;
            }
        }
        late
    }

    /// Returns `timeout`, or the time until the first deadline, if that is shorter.
    pub(crate) fn shorten(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(&(deadline, _)) = self.deadlines.front() else { return timeout };
        let left = deadline.saturating_duration_since(Instant::now());
        // In whole milliseconds, which is all that epoll counts in.
        let left = Duration::from_millis(left.as_millis() as u64 + 1);
        Some(timeout.map_or(left, |timeout| timeout.min(left)))
    }
}
