//! Which connection's requests a thread runs next.
//!
//! ```text
//!   something arrived ──▶ fresh ──┐
//!                                 ├──▶ a visit: one batch's share of requests ──▶ done
//!                     carried ────┘            │
//!                        ▲                     │ it sent more than that
//!                        └─────────────────────┘
//! ```
//! A connection is in at most one of the two queues, once. Fresh ones come first, in the order in
//! which they became ready, so that a client that sends one request waits for no pipeline. One that
//! was visited and has more goes to the end of the carried ones. A turn that spends its budget on
//! fresh ones still visits one that was carried into it, so each gets on. Thread: the connections'.

use std::collections::VecDeque;

use net::ConnId;

/// A connection whose requests are to be run, and the queue that it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The connection.
    pub conn: ConnId,
    queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queue {
    Fresh,
    Deferred,
}

/// See the module. All operations are O(1).
#[derive(Debug, Default)]
pub struct RunQueue {
    fresh: VecDeque<ConnId>,
    deferred: VecDeque<ConnId>,
    /// Some connection was carried into this turn, and none of those was visited yet.
    has_unvisited_deferred: bool,
}

impl RunQueue {
    /// Begins a turn; how many connections are ready.
    pub fn begin_turn(&mut self) -> usize {
        self.has_unvisited_deferred = !self.deferred.is_empty();
        self.fresh.len() + self.deferred.len()
    }

    /// Adds a connection that became ready and is in no queue.
    #[inline]
    pub fn push(&mut self, conn: ConnId) {
        self.fresh.push_back(conn);
    }

    /// Whether no connection is ready.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.fresh.is_empty() && self.deferred.is_empty()
    }

    /// Whether a turn without time must go on all the same.
    #[inline]
    pub fn has_unvisited_deferred(&self) -> bool {
        self.has_unvisited_deferred
    }

    /// The next connection of a turn that has time left.
    #[inline]
    pub fn next_ready(&mut self) -> Option<Visit> {
        match self.fresh.pop_front() {
            Some(conn) => Some(Visit { conn, queue: Queue::Fresh }),
            None => self.next_carried(),
        }
    }

    /// The connection that a turn without time still owes a visit, once.
    #[cold]
    pub fn next_owed(&mut self) -> Option<Visit> {
        if self.has_unvisited_deferred { self.next_carried() } else { None }
    }

    fn next_carried(&mut self) -> Option<Visit> {
        self.has_unvisited_deferred = false;
        self.deferred.pop_front().map(|conn| Visit { conn, queue: Queue::Deferred })
    }

    /// Adds a connection that was visited and has more to run.
    pub fn defer(&mut self, conn: ConnId) {
        self.deferred.push_back(conn);
    }

    /// Undoes [`RunQueue::next_ready`] for a visit that could not begin. Of
    /// several, the last comes first.
    pub fn put_back(&mut self, visit: Visit) {
        match visit.queue {
            Queue::Fresh => self.fresh.push_front(visit.conn),
            Queue::Deferred => self.deferred.push_front(visit.conn),
        }
    }

    /// The connections that are left, in order.
    pub fn left(&self) -> impl Iterator<Item = ConnId> {
        self.fresh.iter().chain(&self.deferred).copied()
    }
}
