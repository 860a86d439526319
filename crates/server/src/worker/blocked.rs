//! Blocked clients of a thread: their timeouts, and the replies that other threads have prepared
//! for them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use engine::run::Executor;
use engine::searches::{FoundReply, Searches};
use engine::session::{Flow, ReplyMode};
use engine::threads::{Inbound, Killed};
use net::ConnId;
use resp::{Protocol, Reply};
use stdx::ByteQueue;

use super::figures::note_output;
use super::requests::OUTPUT_PENDING_BYTES_MAX;
use super::{Worker, session_of};
use crate::commands::wait::Wanted;
use crate::context::SystemClock;

/// The deadlines of this thread's blocked clients, earliest first.
#[derive(Debug, Default)]
pub(super) struct Timeouts {
    /// The connections, ordered by deadline and then by ticket, the number of a wait. The deadline
    /// is in milliseconds of the server's clock.
    conns: BTreeMap<(u64, u64), ConnId>,
}

impl Timeouts {
    /// Returns true if no blocked client has a deadline.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }

    /// Returns the earliest deadline of the thread's blocked clients, in milliseconds of the
    /// server's clock; `None` if there is none.
    pub(super) fn first_ms(&self) -> Option<u64> {
        self.conns.first_key_value().map(|(&(deadline_ms, _), _)| deadline_ms)
    }

    /// Adds the wait of a blocked client, with the number `ticket`, if it has a deadline, in
    /// milliseconds of the server's clock. O(log n).
    fn add(&mut self, deadline_ms: Option<u64>, ticket: u64, conn: ConnId) {
        if let Some(deadline_ms) = deadline_ms {
            self.conns.insert((deadline_ms, ticket), conn);
        }
    }

    /// Removes the wait of a client with the number `ticket`, which has ended, if it had a
    /// deadline. O(log n).
    pub(super) fn remove(&mut self, deadline_ms: Option<u64>, ticket: u64) {
        if let Some(deadline_ms) = deadline_ms {
            self.conns.remove(&(deadline_ms, ticket));
        }
    }

    /// Removes the wait with the earliest deadline if that has passed at `now_ms`. Returns the
    /// wait's connection and ticket; `None` if no deadline has passed. O(log n).
    fn take_passed(&mut self, now_ms: u64) -> Option<(ConnId, u64)> {
        let first = self.conns.first_entry().filter(|first| first.key().0 <= now_ms)?;
        let ((_, ticket), conn) = first.remove_entry();
        Some((conn, ticket))
    }
}

impl Worker<'_> {
    /// Adds the deadline of a client that has just blocked to the thread's timeouts. Also adds a
    /// client of WAIT or WAITAOF to `awaiting_copies`.
    pub(super) fn settle_blocked(&mut self, conn: ConnId) {
        let Some(session) = session_of(&self.clients, conn) else { return };
        if let Some(blocked) = self.shared.engine.blocked.of(&session.info) {
            self.timeouts.add(blocked.deadline_ms, blocked.ticket, conn);
            if let Some(wanted) = Wanted::of_waiter(&blocked, self.shared) {
                self.awaiting_copies.push((conn, blocked.ticket, wanted));
            }
        }
    }

    /// Takes the replies that other threads have prepared for this thread's blocked clients, and
    /// sends them. Closes the clients that other threads have killed.
    pub(super) fn take_inbound(&mut self) {
        if let Some(inbound) = self.shared.engine.threads.take(self.thread) {
            self.pass_on(inbound);
        }
    }

    /// Sends the replies in `inbound` to their blocked clients, and closes the killed clients that
    /// `inbound` lists. A reply for a wait that has ended is dropped.
    #[inline(never)]
    fn pass_on(&mut self, inbound: Inbound) {
        let shared = self.shared;
        let Inbound { deliveries, kills } = inbound;
        // Messages that were published before a blocked client was served come before its reply.
        self.take_publications();
        for delivery in deliveries {
            let Some(session) = self.session(delivery.conn) else { continue };
            let blocked = shared.engine.blocked.of(&session.info);
            let awaits = blocked.is_some_and(|blocked| blocked.ticket == delivery.ticket);
            if session.id == delivery.client && awaits {
                session.saw(delivery.position);
                session.wrote(delivery.position);
                let info = Arc::clone(&session.info);
                let ahead_bytes = delivery.reply_bytes - delivery.reply.len_bytes();
                let reply = |_, out: &mut ByteQueue| out.append(delivery.reply);
                self.end_wait(delivery.conn, delivery.took, ahead_bytes, reply);
                note_output(&self.engine, &info, delivery.pushes.len_bytes());
                self.net.output(delivery.conn).append(delivery.pushes);
                if delivery.closes {
                    self.close_after_reply(delivery.conn);
                }
            }
        }
        for Killed { conn, client } in kills {
            if self.session(conn).is_some_and(|session| session.id == client) {
                self.close(conn);
            }
        }
    }

    /// Closes the connection of a client whose wait has just ended, after its reply is sent.
    #[cold]
    fn close_after_reply(&mut self, conn: ConnId) {
        if let Some(session) = self.session(conn) {
            session.flow = Flow::Closing;
            self.settle(conn);
        }
    }

    /// Resumes the blocked clients whose waits have ended by a reply from another thread, by enough
    /// copies for WAIT or WAITAOF, or by a timeout. Also closes killed clients.
    pub(super) fn end_waits(&mut self) {
        self.take_inbound();
        if !self.awaiting_copies.is_empty() {
            self.end_copied();
        }
        if !self.timeouts.is_empty() {
            self.end_timeouts();
        }
    }

    /// Replies to the clients of WAIT and WAITAOF whose changes have reached enough replicas or
    /// disks.
    #[cold]
    fn end_copied(&mut self) {
        let shared = self.shared;
        for (conn, ticket, wanted) in std::mem::take(&mut self.awaiting_copies) {
            let info = self.session(conn).map(|session| Arc::clone(&session.info));
            let waiter = info.and_then(|info| shared.engine.blocked.of(&info));
            let Some(waiter) = waiter.filter(|waiter| waiter.ticket == ticket) else {
                wanted.uncount(shared);
                continue;
            };
            let copies = wanted.copies(shared, waiter.awaited_position);
            if !wanted.has_enough(copies) {
                self.awaiting_copies.push((conn, ticket, wanted));
                continue;
            }
            wanted.uncount(shared);
            // Otherwise another thread has just ended the wait, and its reply will arrive.
            if shared.engine.blocked.end(&waiter) {
                let reply = |protocol, out: &mut ByteQueue| copies.write(&mut Reply::new(out, protocol));
                self.end_wait(conn, Duration::ZERO, 0, reply);
            }
        }
    }

    /// Replies to the blocked clients whose timeouts have passed.
    #[inline(never)]
    fn end_timeouts(&mut self) {
        while let Some((conn, ticket)) = self.timeouts.take_passed(self.engine.executor.now.uptime_ms) {
            let Some(session) = self.session(conn) else { continue };
            let info = Arc::clone(&session.info);
            let blocked = self.shared.engine.blocked.of(&info);
            let Some(waiter) = blocked.filter(|blocked| blocked.ticket == ticket) else { continue };
            // If `end` returns false, another thread has just served the client, and its reply will
            // arrive.
            if self.shared.engine.blocked.end(&waiter) {
                let shared = self.shared;
                let wanted = Wanted::of_waiter(&waiter, shared);
                let copies = wanted.map(|wanted| wanted.copies(shared, waiter.awaited_position));
                let reply = |protocol, out: &mut ByteQueue| match copies {
                    Some(copies) => copies.write(&mut Reply::new(out, protocol)),
                    None => waiter.write_empty(protocol, out),
                };
                self.end_wait(conn, Duration::ZERO, 0, reply);
            }
        }
    }

    /// Returns true if the next turn has to run searches, or to send their replies. Outside the
    /// gate, waiting searches cannot begin.
    pub(super) fn has_searches(&self) -> bool {
        let Executor { searches, is_inside, .. } = &self.engine.executor;
        searches.has_active() || !self.found.is_empty() || (*is_inside && searches.has_waiting())
    }

    /// Begins searches that have waited, inside the gate.
    #[cold]
    pub(super) fn begin_searches(&mut self) {
        self.cancel_searches();
        self.found.append(&mut self.engine.begin_searches());
    }

    /// Cancels the searches of closed clients.
    fn cancel_searches(&mut self) {
        for ticket in self.cancelled_searches.drain(..) {
            self.engine.executor.searches.cancel(ticket, &self.shared.engine.freeing);
        }
    }

    /// Runs a slice of this thread's searches, outside the gate. The replies of searches that have
    /// ended are sent by the next turn: only a turn holds back output that shows changes which the
    /// change log has not released.
    #[cold]
    pub(super) fn run_searches(&mut self) {
        let since = Instant::now();
        self.cancel_searches();
        let executor = &mut self.engine.executor;
        let end = Searches::begin_slice(&SystemClock);
        while let Some(found) = executor.searches.run_until(end, &SystemClock, &self.shared.engine) {
            self.found.push(found);
            if Instant::now() >= end {
                break;
            }
        }
        executor.stats().running_nanos.add(since.elapsed().as_nanos() as u64);
    }

    /// Sends the replies of searches that have ended, and resumes their clients. As after other
    /// requests, a client that does not read its replies has to wait.
    #[cold]
    pub(super) fn send_found(&mut self) {
        for FoundReply { waiter, reply, took, position } in std::mem::take(&mut self.found) {
            let conn = waiter.conn;
            if let Some(session) = self.session(conn) {
                session.saw(position);
            }
            self.end_wait(conn, took, 0, |_, out: &mut ByteQueue| out.append(reply));
            let unsent_bytes = self.net.split().1.len_bytes(conn);
            let Some(session) = self.session(conn) else { continue };
            if unsent_bytes > OUTPUT_PENDING_BYTES_MAX && session.flow == Flow::Running {
                session.flow = Flow::AwaitingReader;
            }
            self.settle(conn);
        }
    }

    /// Replies to a blocked client, resumes it, and removes it from the queues of its keys. `took`
    /// is the run time of its command. `ahead_bytes` is the length of the part of its reply that
    /// was sent before, among published messages.
    fn end_wait(
        &mut self,
        conn: ConnId,
        took: Duration,
        ahead_bytes: usize,
        reply: impl FnOnce(Protocol, &mut ByteQueue),
    ) {
        let shared = self.shared;
        let Some(session) = self.session(conn) else { return };
        let waiter = shared.engine.blocked.of(&session.info);
        shared.engine.blocked.unblock(&shared.engine.keyspace, &session.info);
        session.info.traffic.last_active_ms.store(shared.uptime_ms(), Relaxed);
        let (protocol, replies) = (session.protocol(), session.reply_mode == ReplyMode::On);
        if session.reply_mode == ReplyMode::Skip {
            session.reply_mode = ReplyMode::On;
        }
        let out = self.net.output(conn);
        let before = out.len_bytes();
        if replies {
            reply(protocol, out);
        }
        let reply_bytes = out.len_bytes() - before;
        // The mark covers the reply and the messages that follow it.
        self.mark_observed(conn, before);
        if let Some(waiter) = waiter {
            self.timeouts.remove(waiter.deadline_ms, waiter.ticket);
            let session = session_of(&self.clients, conn).expect("it was looked at above");
            note_output(&self.engine, &session.info, reply_bytes);
            self.engine.executor.record_unblocked(session, &waiter, took, ahead_bytes + reply_bytes);
        }
        self.resume(conn, Flow::Blocked);
    }
}
