//! The unfinished handshakes and outgoing connections of a loop: their deadlines, and the queue of
//! the handshakes that are ready for their next step.
//!
//! A handshake costs as much as hundreds of requests, so a turn performs the steps of only a few
//! ([`LoopOptions::handshakes_per_turn_max`](crate::LoopOptions::handshakes_per_turn_max)). Even if
//! many clients connect at once, the requests of the other clients wait for only these few steps.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::{Duration, Instant};

use crate::ConnId;

/// The unfinished TLS handshakes and outgoing connections of a loop, with their deadlines.
#[derive(Default)]
pub(crate) struct Handshakes {
    /// The connections with received bytes that their TLS handshakes have not processed yet, each
    /// once.
    ready: VecDeque<ConnId>,
    /// The deadlines, the earliest on top, each with the id of its connection as a number. Entries
    /// of completed handshakes stay until they are on top.
    deadlines: BinaryHeap<Reverse<(Instant, u64)>>,
}

impl Handshakes {
    /// Adds a TLS handshake or an outgoing connection that must be complete by `deadline`. O(log
    /// n).
    pub(crate) fn begin(&mut self, conn: ConnId, deadline: Instant) {
        self.deadlines.push(Reverse((deadline, conn.to_u64())));
    }

    /// Returns the deadline of the handshake of `conn`; `None` if it has none. O(deadlines).
    pub(crate) fn deadline_of(&self, conn: ConnId) -> Option<Instant> {
        let mut found = self.deadlines.iter().filter(|Reverse((_, number))| *number == conn.to_u64());
        found.next().map(|Reverse((deadline, _))| *deadline)
    }

    /// Queues `conn` for the next step of its handshake. Must not be called again before
    /// [`next_ready`](Self::next_ready) has returned `conn`.
    pub(crate) fn make_ready(&mut self, conn: ConnId) {
        self.ready.push_back(conn);
    }

    /// Returns true if a TLS handshake is ready for its next step.
    pub(crate) fn any_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Removes the next connection whose handshake is ready for a step from the queue and returns
    /// it.
    pub(crate) fn next_ready(&mut self) -> Option<ConnId> {
        self.ready.pop_front()
    }

    /// Returns the connections whose handshakes are ready for their next step, without removing
    /// them.
    pub(crate) fn all_ready(&self) -> impl Iterator<Item = ConnId> + '_ {
        self.ready.iter().copied()
    }

    /// Returns true if any handshake or outgoing connection has a deadline.
    #[inline]
    pub(crate) fn any_deadline(&self) -> bool {
        !self.deadlines.is_empty()
    }

    /// Removes the connections whose deadlines have passed at `now` and returns them. Also removes
    /// the earliest deadlines of connections for which `is_over` returns true.
    pub(crate) fn take_late(&mut self, now: Instant, is_over: impl Fn(ConnId) -> bool) -> Vec<ConnId> {
        let mut late = Vec::new();
        while let Some(&Reverse((deadline, number))) = self.deadlines.peek() {
            let conn = ConnId::from_u64(number);
            if is_over(conn) {
                self.deadlines.pop();
            } else if deadline <= now {
                self.deadlines.pop();
                late.push(conn);
            } else {
                break;
            }
        }
        late
    }

    /// Returns `timeout`, or the time until the first deadline, if that is shorter.
    pub(crate) fn shorten(&self, timeout: Option<Duration>) -> Option<Duration> {
        let Some(&Reverse((deadline, _))) = self.deadlines.peek() else { return timeout };
        let left = deadline.saturating_duration_since(Instant::now());
        // The time is rounded up to whole milliseconds, the unit of epoll.
        let left = Duration::from_millis(left.as_millis() as u64 + 1);
        Some(timeout.map_or(left, |timeout| timeout.min(left)))
    }
}
