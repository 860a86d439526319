//! The order in which a thread runs the requests of its connections.
//!
//! ```text
//!   input arrived ──▶ fresh ──┐
//!                             ├──▶ a visit: one batch's share of requests ──▶ no requests left
//!                deferred ────┘            │
//!                    ▲                     │ more requests left
//!                    └─────────────────────┘
//! ```
//! A connection is in at most one of the two queues, and only once. Fresh connections come first,
//! in the order in which they became ready, so that a client with one request does not wait for a
//! pipeline. A connection that was visited and has more requests moves to the end of the deferred
//! queue. If the fresh connections use the whole time budget of a turn, the turn still visits one
//! connection that was deferred before the turn. So every connection makes progress. Only the I/O
//! thread of the connections uses the queue.

use std::collections::VecDeque;

use net::ConnId;

/// A connection whose requests are to be run now, and the queue from which it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The connection whose requests are to be run.
    pub conn: ConnId,
    queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Fresh,
    Deferred,
}

/// The connections with requests to run, in two queues that the module describes. All operations
/// are O(1).
#[derive(Debug, Default)]
pub struct RunQueue {
    fresh: VecDeque<ConnId>,
    deferred: VecDeque<ConnId>,
    /// True if a connection was deferred before this turn and no deferred connection was visited
    /// yet.
    has_unvisited_deferred: bool,
}

impl RunQueue {
    /// Begins a turn of the thread's loop. Returns the number of connections in the two queues
    /// together.
    pub fn begin_turn(&mut self) -> usize {
        self.has_unvisited_deferred = !self.deferred.is_empty();
        self.fresh.len() + self.deferred.len()
    }

    /// Adds a connection that has become ready, so that its requests run, and is in neither queue.
    #[inline]
    pub fn push(&mut self, conn: ConnId) {
        self.fresh.push_back(conn);
    }

    /// Returns true if no connection has requests to run: both queues are empty.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.deferred.is_empty()
    }

    /// Returns true if a turn without time left must still visit a deferred connection.
    #[inline]
    pub fn has_unvisited_deferred(&self) -> bool {
        self.has_unvisited_deferred
    }

    /// Takes the next connection while the turn has time left: a fresh one, which has become ready,
    /// or else a deferred one, which was visited and has more requests. Returns `None` if both
    /// queues are empty.
    #[inline]
    pub fn next_ready(&mut self) -> Option<Visit> {
        match self.fresh.pop_front() {
            Some(conn) => Some(Visit { conn, queue: Queue::Fresh }),
            None => self.next_carried(),
        }
    }

    /// Takes the one deferred connection that a turn without time left must still visit; `None` if
    /// there is none.
    #[cold]
    pub fn next_owed(&mut self) -> Option<Visit> {
        if self.has_unvisited_deferred { self.next_carried() } else { None }
    }

    fn next_carried(&mut self) -> Option<Visit> {
        self.has_unvisited_deferred = false;
        self.deferred.pop_front().map(|conn| Visit { conn, queue: Queue::Deferred })
    }

    /// Adds a connection that was visited and has more requests to the end of the deferred queue.
    pub fn defer(&mut self, conn: ConnId) {
        self.deferred.push_back(conn);
    }

    /// Puts a connection that [`RunQueue::next_ready`] has returned back to the front of its queue,
    /// because its visit could not begin. Several connections must be put back in reverse order.
    pub fn put_back(&mut self, visit: Visit) {
        match visit.queue {
            Queue::Fresh => self.fresh.push_front(visit.conn),
            Queue::Deferred => self.deferred.push_front(visit.conn),
        }
    }

    /// Returns the connections in the queues, in the order of their visits.
    pub fn left(&self) -> impl Iterator<Item = ConnId> {
        self.fresh.iter().chain(&self.deferred).copied()
    }
}
