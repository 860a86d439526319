//! The limits of a client: its unsent output, its query buffer, its share of `maxmemory-clients`,
//! its idle time, and the time to authenticate.

use std::sync::atomic::Ordering::Relaxed;

use engine::client_eviction;
use engine::session::Flow;
use engine::settings::{OUTPUT_SHOWN_BYTES_MIN, OutputLimit};
use net::ConnId;

use super::figures::{note_unread, note_unsent};
use super::{Worker, session_of};

/// Maximum number of clients with unsent output that are checked after one flush. The next flushes
/// check the others.
const PENDING_OUTPUT_CHECKED_MAX: usize = 64;

/// The length in bytes up to which unsent output counts as 0 for the output limits. Redis does not
/// count output in its fixed client buffer either. So even the smallest limit does not close a
/// client that reads its replies.
const OUTPUT_UNCOUNTED_BYTES: usize = 16 * 1024;

/// Maximum unread input of a client that has not authenticated, in bytes, as in Redis. A request
/// before AUTH has at most ten words of 16 KiB, but the client may have sent further requests after
/// its AUTH.
const UNAUTHENTICATED_QUERY_BYTES_MAX: u64 = 1 << 20;

/// The output limit of a client that has not authenticated, as in Redis. Output is counted only
/// above [`OUTPUT_UNCOUNTED_BYTES`], so the limit takes effect above 16 KiB.
const UNAUTHENTICATED_OUTPUT_LIMIT: OutputLimit =
    OutputLimit { hard_bytes: 1024, soft_bytes: 0, soft_seconds: 0 };

/// The time since which a client's unsent output exceeds the soft limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OverSoftLimit {
    /// The time since which the output exceeds the soft limit, in milliseconds of the server's
    /// clock; `None` while the output is within the soft limit.
    since_ms: Option<u64>,
}

impl OverSoftLimit {
    /// Returns true if a client with `unsent` bytes of output at `now_ms` must be closed: at once
    /// above the hard limit, or after more than `soft_seconds` above the soft limit.
    fn exceeds(&mut self, limit: &OutputLimit, unsent: usize, now_ms: u64) -> bool {
        let counted = if unsent > OUTPUT_UNCOUNTED_BYTES { unsent as u64 } else { 0 };
        if limit.hard_bytes > 0 && counted > limit.hard_bytes {
            return true;
        }
        if limit.soft_bytes == 0 || counted <= limit.soft_bytes {
            self.since_ms = None;
            return false;
        }
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        now_ms - since_ms > limit.soft_seconds * 1000
    }
}

impl Worker<'_> {
    /// Records the length of the input that a connection keeps for a later turn. Enforces the
    /// limits of the query buffer and of `maxmemory-clients`. Returns false if the client was
    /// closed, or must be closed because of them.
    pub(super) fn keep_input(&mut self, conn: ConnId) -> bool {
        let Some(session) = session_of(&self.clients, conn) else { return false };
        let mut query_max = self.engine.executor.settings.clients.query_buffer_bytes_max;
        if session.identity.must_authenticate() {
            query_max = query_max.min(UNAUTHENTICATED_QUERY_BYTES_MAX);
        }
        note_unread(session, self.net.inputs());
        let queued = session.transaction.as_ref().map_or(0, |transaction| transaction.query_bytes());
        let unread = self.net.inputs().len_bytes(conn) + queued;
        if unread as u64 > query_max && matches!(session.flow, Flow::Running | Flow::Blocked) {
            self.engine.executor.note_long_query(session.id, unread);
            self.close(conn);
            return false;
        }
        self.engine.executor.settings.clients.maxmemory_clients_bytes == 0 || !self.is_evicted(conn)
    }

    /// Returns true if the unsent output of `conn` exceeds its limit; the caller then closes the
    /// connection. Counts and logs such a client. A client with much unsent output is checked again
    /// after the flush.
    pub(super) fn exceeds_output_limit(&mut self, conn: ConnId) -> bool {
        let outputs = self.net.split().1;
        let unsent = outputs.len_bytes(conn);
        let settings = &self.engine.executor.settings;
        let now = self.engine.executor.now.uptime_ms;
        let Some(client) = self.clients[conn.index()].as_deref_mut() else { return false };
        let session = &client.session;
        let limit = if session.identity.must_authenticate() {
            UNAUTHENTICATED_OUTPUT_LIMIT
        } else if session.is_monitor() {
            settings.clients.replica_output_limit
        } else if session.subscriptions.is_some() {
            settings.clients.pubsub_output_limit
        } else {
            settings.clients.output_limit
        };
        if unsent >= OUTPUT_SHOWN_BYTES_MIN && !std::mem::replace(&mut client.has_pending_output, true) {
            // The check after the flush counts only the output that the flush did not send.
            self.pending_output.push_back(conn);
        }
        let exceeds = client.over_soft_limit.exceeds(&limit, unsent, now);
        if exceeds {
            let stats = self.engine.executor.stats();
            stats.disconnections.output_limit.add(1);
            let client = client.session.id;
            tracing::warn!(client, unsent, "client closed: its unsent replies exceed the output limit");
        }
        exceeds
    }

    /// Checks the clients whose output the flush may not have sent completely: records their unsent
    /// output, and enforces the limits. Checks at most [`PENDING_OUTPUT_CHECKED_MAX`] clients.
    #[inline]
    pub(super) fn check_pending_output(&mut self) {
        for conn in self.net.split().1.take_behind() {
            self.add_pending_output(conn);
        }
        for _ in 0..self.pending_output.len().min(PENDING_OUTPUT_CHECKED_MAX) {
            let Some(conn) = self.pending_output.pop_front() else { break };
            self.check_pending_output_of(conn);
        }
    }

    /// Adds a client to `pending_output`, whose clients are checked after each flush until all
    /// their output is sent.
    #[cold]
    pub(super) fn add_pending_output(&mut self, conn: ConnId) {
        if let Some(client) = self.client(conn)
            && !std::mem::replace(&mut client.has_pending_output, true)
        {
            self.pending_output.push_back(conn);
        }
    }

    #[cold]
    fn check_pending_output_of(&mut self, conn: ConnId) {
        let Some(client) = self.client(conn) else { return };
        client.has_pending_output = false;
        let Some(session) = session_of(&self.clients, conn) else { return };
        note_unsent(session, self.net.split().1);
        if self.exceeds_output_limit(conn) {
            // Closing removes the client from the queues of its keys, under the locks of their
            // shards.
            let gate = &self.shared.engine.gate;
            let pass = if self.attends {
                gate.outside_pass(self.thread)
            } else {
                gate.shared_unless_busy(self.thread)
            };
            self.engine.note_standing(&pass);
            return self.close(conn);
        }
        if self.engine.executor.settings.clients.maxmemory_clients_bytes > 0 && self.is_evicted(conn) {
            return;
        }
        if self.net.split().1.len_bytes(conn) > 0 {
            self.add_pending_output(conn);
        }
    }

    /// Computes the memory of each client of this thread again. Closes clients if the sum of all
    /// threads exceeds `maxmemory-clients`. O(clients).
    pub(super) fn count_clients(&mut self) {
        let limit = self.engine.executor.settings.clients.maxmemory_clients_bytes;
        if limit == 0 {
            return;
        }
        let shared = self.shared;
        let mut over = false;
        for client in self.clients.iter().flatten() {
            let session = &client.session;
            note_unread(session, self.net.inputs());
            note_unsent(session, self.net.split().1);
            over |= client_eviction::count(&shared.engine, &session.info, limit);
        }
        if over {
            client_eviction::evict(&shared.engine, self.thread, &self.engine.executor.commit.outbox, limit);
        }
    }

    /// Computes the memory of a client again, and closes clients if the sum of all exceeds
    /// `maxmemory-clients`, which must be set. Returns true if this client is one of those to
    /// close, or no longer exists.
    #[cold]
    pub(super) fn is_evicted(&mut self, conn: ConnId) -> bool {
        let limit = self.engine.executor.settings.clients.maxmemory_clients_bytes;
        let Some(session) = session_of(&self.clients, conn) else { return true };
        let shared = self.shared;
        if client_eviction::count(&shared.engine, &session.info, limit) {
            client_eviction::evict(&shared.engine, self.thread, &self.engine.executor.commit.outbox, limit);
        }
        session.info.state.kill_requested.load(Relaxed)
    }

    /// Closes clients that were idle for longer than the option `timeout`, and those that did not
    /// authenticate in time. Monitors, subscribers, blocked and postponed clients do not count as
    /// idle, nor do clients whose writes wait. Called once a second. O(clients).
    pub(super) fn close_idle(&mut self) {
        self.close_unauthenticated();
        let timeout_ms = self.engine.executor.settings.clients.timeout_s * 1000;
        if timeout_ms == 0 {
            return;
        }
        let now = self.engine.executor.now.uptime_ms;
        let idle = self
            .clients
            .iter()
            .flatten()
            .map(|client| &client.session)
            .filter(|session| !session.is_monitor() && session.subscriptions.is_none())
            .filter(|session| !matches!(session.flow, Flow::Blocked | Flow::Postponed | Flow::AwaitingLog))
            .filter(|session| {
                now.saturating_sub(session.info.traffic.last_active_ms.load(Relaxed)) > timeout_ms
            });
        for conn in idle.map(|session| session.conn).collect::<Vec<_>>() {
            self.close(conn);
        }
    }

    /// Closes clients that have not authenticated within `authentication-timeout`, and clients
    /// whose token has expired. The timeout is measured from the time at which the client connected
    /// or was last found to be authenticated. It is exact to a second, the interval of the calls.
    fn close_unauthenticated(&mut self) {
        let timeout_ms = self.engine.executor.settings.clients.authentication_timeout_s * 1000;
        let now = self.engine.executor.now.uptime_ms;
        let mut late = Vec::new();
        for client in self.clients.iter_mut().flatten() {
            if !client.session.identity.must_authenticate() {
                client.unauthenticated_since_ms = now;
                if client.session.expires_s > 0
                    && client.session.expires_s as i64 <= self.engine.executor.now.unix_ms / 1000
                {
                    late.push((client.session.conn, client.session.id, "its token has expired"));
                }
            } else if timeout_ms > 0 && now.saturating_sub(client.unauthenticated_since_ms) > timeout_ms {
                let why = "it has not authenticated within authentication-timeout";
                late.push((client.session.conn, client.session.id, why));
            }
        }
        for (conn, client, why) in late {
            tracing::debug!(client, "client closed: {why}");
            self.close(conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hard_limit_holds_at_once_and_the_soft_one_after_its_time() {
        let limit = OutputLimit { hard_bytes: 100_000, soft_bytes: 50_000, soft_seconds: 2 };
        let mut over = OverSoftLimit::default();
        let mut exceeds = |unsent: usize, now_ms: u64| over.exceeds(&limit, unsent, now_ms);
        assert!(exceeds(100_001, 0) && !exceeds(100_000, 1_000));
        assert!(!exceeds(50_001, 3_000) && exceeds(50_001, 3_001));
        // Below the soft limit the time is reset.
        assert!(!exceeds(50_000, 4_000) && !exceeds(60_000, 5_000) && !exceeds(60_000, 7_000));
        assert!(exceeds(60_000, 7_001));
    }

    #[test]
    fn what_fits_a_clients_fixed_buffer_in_redis_is_not_counted() {
        let limit = OutputLimit { hard_bytes: 1, soft_bytes: 0, soft_seconds: 0 };
        let mut over = OverSoftLimit::default();
        assert!(!over.exceeds(&limit, OUTPUT_UNCOUNTED_BYTES, 0));
        assert!(over.exceeds(&limit, OUTPUT_UNCOUNTED_BYTES + 1, 0));
        let none = OutputLimit { hard_bytes: 0, ..limit };
        assert!(!over.exceeds(&none, usize::MAX, 0));
    }
}
