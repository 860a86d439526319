//! The replication state of a server: its replication IDs, its backlog and its replicas. A replica
//! has this state too: its replication IDs and its stream are those of its primary, and it may have
//! replicas of its own.

use std::collections::BTreeMap;

use crate::backlog::{Backlog, Piece};
use crate::framing::Framing;
use crate::handshake::Purpose;
use crate::history::{History, ReplId};
use crate::replica::{Phase, Replica};

mod follow;

/// The answer of a primary to PSYNC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resync {
    /// A partial synchronisation: the replication stream continues at the replica's offset.
    Continue {
        /// The 0-based offset of the next byte of the replication stream to send to the replica.
        from: u64,
    },
    /// A full synchronisation, with its reason: the replica needs a snapshot.
    Full(FullReason),
}

/// The reason for which a replica needs a full synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullReason {
    /// The replica has no data of this server's history, and requested a snapshot with `PSYNC ?
    /// -1`.
    Requested,
    /// The replication ID of the replica names a history other than this server's.
    OtherHistory,
    /// The backlog does not have the bytes from the replica's offset on.
    NotInBacklog,
}

/// The next step on a replica's connection after its snapshot was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterSnapshot {
    /// The primary closes the connection once all output is sent.
    Close,
    /// The primary sends nothing before the first acknowledgement of the replica.
    AwaitAck,
    /// The primary sends the replication stream from the offset at which the snapshot was taken.
    Stream,
}

/// The limit on the unsent bytes of a replica: those between the next byte to send to it and the
/// end of the replication stream. Set by the option `client-output-buffer-limit replica`; 0 stands
/// for no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputLimit {
    /// The number of unsent bytes above which the replica is disconnected at once.
    pub hard_bytes: u64,
    /// The number of unsent bytes above which the replica is disconnected after `soft_ms`.
    pub soft_bytes: u64,
    /// The time for which a replica may have more than `soft_bytes` unsent bytes, in milliseconds.
    pub soft_ms: u64,
}

/// The replication state of a server: its replication IDs, its backlog and its replicas. Replicas
/// are identified by the ids of their clients.
#[derive(Debug)]
pub struct Primary {
    history: History,
    /// The offset of the end of the replication stream while there is no backlog.
    offset: u64,
    backlog: Option<Backlog>,
    replicas: BTreeMap<u64, Replica>,
    /// The time at which the last replica was disconnected, in milliseconds; `None` while there are
    /// replicas, and before the first replica connects.
    idle_since_ms: Option<u64>,
    /// The limit on the unsent bytes of a replica.
    limit: OutputLimit,
    /// The number of unsent bytes of a replica above which writes of clients wait; 0 if they never
    /// wait.
    writes_wait_above: u64,
    /// The lowest and the highest log position for which an acknowledgement must still be requested
    /// from the replicas; `None` if none is due. A request is sent once the replication stream has
    /// the changes up to the position.
    acks_due_at: Option<(u64, u64)>,
    /// The offset in the replication stream after the last GETACK, the request for an
    /// acknowledgement.
    ack_requested_end: u64,
    /// True while this server follows a primary: its replication stream is that of the primary.
    is_following: bool,
    /// The database that is selected at the end of the replication stream of the primary that this
    /// server follows; `None` if the next change is preceded by a SELECT.
    stream_db: Option<u32>,
    /// True while the server writes its last snapshot or ends; then PING and GETACK are not
    /// appended to the replication stream.
    is_final: bool,
    /// The data with which the server can return to its previous replication history. `None` once
    /// another server has received the present replication ID, or if no return is possible.
    way_back: Option<follow::WayBack>,
}

/// The command GETACK, which requests an acknowledgement from all replicas, as bytes of the
/// replication stream.
const GETACK: &[u8] = b"*3\r\n$8\r\nREPLCONF\r\n$6\r\nGETACK\r\n$1\r\n*\r\n";

impl Primary {
    /// Creates the state of a primary that has no replicas and no backlog.
    pub fn new(id: ReplId) -> Self {
        Self {
            history: History::new(id),
            offset: 0,
            backlog: None,
            replicas: BTreeMap::new(),
            idle_since_ms: None,
            limit: OutputLimit::default(),
            writes_wait_above: 0,
            acks_due_at: None,
            ack_requested_end: 0,
            is_following: false,
            stream_db: None,
            is_final: false,
            way_back: None,
        }
    }

    /// Returns the replication IDs of the server: that of its present history and that of the
    /// previous one.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Gives the server's history the new replication ID `id`. A replica that knows only the former
    /// ID needs a snapshot.
    pub fn renew_id(&mut self, id: ReplId) {
        self.history = History::new(id);
        self.way_back = None;
    }

    /// Returns the backlog; `None` while the replication stream is not recorded.
    pub fn backlog(&self) -> Option<&Backlog> {
        self.backlog.as_ref()
    }

    /// Returns the offset of the end of the replication stream, in bytes.
    pub fn end(&self) -> u64 {
        self.backlog.as_ref().map_or(self.offset, Backlog::end)
    }

    /// Begins to record the replication stream in a backlog. Earlier changes are not in the stream,
    /// so the server gets the new replication ID `id`. The caller has the exclusive lock of the
    /// keyspace.
    pub fn open_backlog(&mut self, limit_bytes: u64, id: ReplId) {
        self.renew_id(id);
        self.backlog = Some(Backlog::new(limit_bytes, self.offset));
    }

    /// Begins to record the replication stream after data was loaded. The loaded data is exactly
    /// that of the history `former.0` up to offset `former.1`, and has not changed since. The new
    /// history `id` continues `former`, so replicas with the same data can continue. The caller has
    /// the exclusive lock of the keyspace.
    pub fn continue_from(&mut self, former: (ReplId, u64), id: ReplId, (limit_bytes, now_ms): (u64, u64)) {
        self.history = History::continuing(former, id);
        self.offset = former.1;
        self.backlog = Some(Backlog::new(limit_bytes, former.1));
        self.idle_since_ms = Some(now_ms);
    }

    /// Stops adding PING and GETACK to the replication stream, because the server ends or writes
    /// its last snapshot. They would move the end of the stream beyond the offset that the snapshot
    /// contains.
    pub fn begin_end(&mut self) {
        self.is_final = true;
    }

    /// Permits PING and GETACK in the replication stream again after
    /// [`begin_end`](Self::begin_end), because the server does not end after all.
    pub fn continue_after_all(&mut self) {
        self.is_final = false;
    }

    /// Appends to the replication stream a command that changes no data, such as PING. Does nothing
    /// while the server ends.
    pub fn append_control(&mut self, command: &[u8]) {
        if !self.is_final {
            self.append(command);
        }
    }

    /// Begins to close the backlog if [`Primary::is_backlog_due`] returns true. Gives the server
    /// the new replication ID `id`, so that no replica can continue from the backlog. Returns true
    /// if the closing has begun; the caller must then detach the reader of the change log and call
    /// [`Primary::close_backlog`].
    pub fn begin_close(&mut self, ttl_ms: u64, now_ms: u64, id: ReplId) -> bool {
        let is_due = self.is_backlog_due(ttl_ms, now_ms);
        if is_due {
            self.renew_id(id);
        }
        is_due
    }

    /// Stops recording the replication stream and frees the backlog. Marks the replicas that follow
    /// the stream to be disconnected. Later changes are not in the stream, so the server gets the
    /// new replication ID `id`. Otherwise a server could continue at an offset that stays the same
    /// while the data changes. The caller has the exclusive lock of the keyspace.
    pub fn close_backlog(&mut self, id: ReplId) {
        self.offset = self.end();
        for replica in self.replicas.values_mut().filter(|replica| replica.holds_backlog()) {
            replica.phase = Phase::OverLimit;
        }
        self.backlog = None;
        self.renew_id(id);
    }

    /// Sets the minimum number of bytes that the backlog keeps for replicas that reconnect.
    pub fn set_backlog_limit(&mut self, limit_bytes: u64) {
        if let Some(backlog) = self.backlog.as_mut().filter(|it| it.limit_bytes() != limit_bytes) {
            backlog.set_limit(limit_bytes);
        }
    }

    /// Sets the limit on the unsent bytes of a replica.
    pub fn set_output_limit(&mut self, limit: OutputLimit) {
        self.limit = limit;
    }

    /// Sets the number of unsent bytes of a replica above which writes of clients wait; 0 if they
    /// never wait.
    pub fn set_writes_wait_above(&mut self, bytes: u64) {
        self.writes_wait_above = bytes;
    }

    /// Returns the number of unsent bytes of the slowest replica beyond the number at which writes
    /// wait. Writes of clients wait unless it is 0.
    pub fn excess_bytes(&self) -> u64 {
        let behind_bytes = self.backlog.as_ref().map_or(0, Backlog::behind_bytes);
        if self.writes_wait_above > 0 { behind_bytes.saturating_sub(self.writes_wait_above) } else { 0 }
    }

    /// Appends changes or commands of this server to the replication stream, if it is recorded.
    /// Does nothing on a replica, because its stream is that of its primary. Marks replicas beyond
    /// the hard limit to be disconnected, and frees the bytes that only they needed. So the limit
    /// bounds the memory.
    pub fn append(&mut self, bytes: &[u8]) {
        if !self.is_following {
            self.append_bytes(bytes);
        }
    }

    fn append_bytes(&mut self, bytes: &[u8]) {
        let Some(backlog) = &mut self.backlog else { return };
        backlog.append(bytes);
        let hard_bytes = self.limit.hard_bytes;
        if hard_bytes > 0 && backlog.behind_bytes() > hard_bytes.max(backlog.limit_bytes()) {
            self.give_up();
        }
    }

    /// Marks the replicas with more unsent bytes than the hard limit to be disconnected, and frees
    /// the bytes that only they needed.
    #[cold]
    fn give_up(&mut self) {
        let Some(backlog) = self.backlog.as_ref().filter(|_| self.limit.hard_bytes > 0) else { return };
        let (end, hard_bytes) = (backlog.end(), self.limit.hard_bytes.max(backlog.limit_bytes()));
        for replica in self.replicas.values_mut().filter(|replica| replica.holds_backlog()) {
            if end.saturating_sub(replica.cursor) > hard_bytes {
                replica.phase = Phase::OverLimit;
            }
        }
        self.update_needed();
    }

    /// Records that the replication stream has all changes up to `position` of the change log.
    /// Appends GETACK if an acknowledgement of such a change was requested.
    pub fn note_position(&mut self, position: u64) {
        let Some(backlog) = &mut self.backlog else { return };
        backlog.note_position(position);
        if self.is_final {
            return;
        }
        if let Some((_, last)) = self.acks_due_at.take_if(|(first, _)| *first <= position) {
            self.acks_due_at = (last > position).then_some((last, last));
            // If nothing has followed the last request, the answer to it proves as much.
            if self.ack_requested_end != self.end() {
                self.append(GETACK);
                self.ack_requested_end = self.end();
            }
        }
    }

    /// Requests an acknowledgement of the changes up to `position` from all replicas: appends
    /// `REPLCONF GETACK *` to the replication stream as soon as the stream has all changes up to
    /// `position` of the change log. Does nothing on a replica.
    pub fn request_ack(&mut self, position: u64) {
        if self.is_following {
            return;
        }
        let (first, last) = self.acks_due_at.unwrap_or((position, position));
        self.acks_due_at = Some((first.min(position), last.max(position)));
        let noted = self.backlog.as_ref().and_then(|backlog| backlog.position_at(u64::MAX));
        if let Some(noted) = noted {
            self.note_position(noted);
        }
    }

    /// Returns the answer to `PSYNC id next`. `next` is the 1-based offset of the next byte that
    /// the replica needs.
    pub fn resync(&self, id: &[u8], next: i64) -> Resync {
        let Some(id) = ReplId::parse(id) else {
            let is_requested = id.first() == Some(&b'?');
            let reason = if is_requested { FullReason::Requested } else { FullReason::OtherHistory };
            return Resync::Full(reason);
        };
        let Some(from) = next.checked_sub(1).and_then(|from| u64::try_from(from).ok()) else {
            return Resync::Full(FullReason::NotInBacklog);
        };
        if !self.history.continues(id, from) {
            return Resync::Full(FullReason::OtherHistory);
        }
        match self.backlog.as_ref().is_some_and(|backlog| backlog.has(from)) {
            true => Resync::Continue { from },
            false => Resync::Full(FullReason::NotInBacklog),
        }
    }

    /// Adds a replica that has connected, identified by the client id `client`.
    pub fn add(&mut self, client: u64, replica: Replica) {
        self.replicas.insert(client, replica);
        self.idle_since_ms = None;
        self.update_needed();
    }

    /// Removes the replica with this client id, whose connection has ended.
    pub fn remove(&mut self, client: u64, now_ms: u64) {
        self.replicas.remove(&client);
        if self.replicas.is_empty() {
            self.idle_since_ms = Some(now_ms);
        }
        self.update_needed();
    }

    /// Returns the replica with this client id; `None` if there is none.
    pub fn replica(&self, client: u64) -> Option<&Replica> {
        self.replicas.get(&client)
    }

    /// Iterates over the replicas with the ids of their clients, in the order of ids.
    pub fn replicas(&self) -> impl Iterator<Item = (u64, &Replica)> {
        self.replicas.iter().map(|(&client, replica)| (client, replica))
    }

    /// Returns true if no replica is connected to this server.
    pub fn has_no_replicas(&self) -> bool {
        self.replicas.is_empty()
    }

    /// Sets the phase of a replica's synchronisation, and the offset in the replication stream of
    /// the next byte to send to it. With each phase except [`Phase::AwaitsSnapshot`], the caller
    /// sends the present replication ID to the replica.
    pub fn set_phase(&mut self, client: u64, phase: Phase, cursor: u64) {
        if let Some(replica) = self.replicas.get_mut(&client) {
            (replica.phase, replica.cursor) = (phase, cursor);
            if !matches!(phase, Phase::AwaitsSnapshot { .. }) {
                self.way_back = None;
            }
            self.update_needed();
        }
    }

    /// Records that the whole snapshot of a replica was sent. Returns the next step on its
    /// connection.
    pub fn snapshot_sent(&mut self, client: u64, framing: Framing, now_ms: u64) -> AfterSnapshot {
        let replica = self.replicas.get_mut(&client).filter(|replica| !replica.is_given_up());
        let Some(replica) = replica else { return AfterSnapshot::Close };
        let (phase, next) = match (replica.handshake.purpose, framing) {
            (Purpose::SnapshotOnly, _) => (Phase::SnapshotSent, AfterSnapshot::Close),
            // A replica finds the mark at the end of what it has read. It must not read more.
            (Purpose::Follow, Framing::EndMark) => (Phase::AwaitsAck, AfterSnapshot::AwaitAck),
            (Purpose::Follow, Framing::Length) => (Phase::Online, AfterSnapshot::Stream),
        };
        (replica.phase, replica.acked_ms) = (phase, now_ms);
        self.update_needed();
        next
    }

    /// Returns the next bytes of the replication stream for an online replica, at most `max_bytes`,
    /// and counts them as sent. The backlog keeps them in memory until the next
    /// [`Primary::free_sent`].
    pub fn take_for(&mut self, client: u64, max_bytes: usize) -> Vec<Piece> {
        let (Some(replica), Some(backlog)) = (self.replicas.get_mut(&client), &mut self.backlog) else {
            return Vec::new();
        };
        if !replica.is_online() || replica.cursor >= backlog.end() || max_bytes == 0 {
            return Vec::new();
        }
        if !backlog.has(replica.cursor) {
            // This cannot happen, but would be worse than a full synchronisation.
            replica.phase = Phase::OverLimit;
            return Vec::new();
        }
        let pieces = backlog.read(replica.cursor, max_bytes);
        replica.cursor += pieces.iter().map(|piece| piece.as_ref().len() as u64).sum::<u64>();
        pieces
    }

    /// Frees the bytes of the backlog that were sent to all replicas and that are beyond the
    /// backlog's limit. O(replicas).
    pub fn free_sent(&mut self) {
        self.update_needed();
    }

    /// Passes to the backlog the lowest offset of the replication stream that a connected replica
    /// still needs. O(replicas).
    fn update_needed(&mut self) {
        if let Some(backlog) = &mut self.backlog {
            let held = self.replicas.values().filter(|replica| replica.holds_backlog());
            backlog.set_needed_from(held.map(|replica| replica.cursor).min().unwrap_or(u64::MAX));
        }
    }

    /// Records that a replica is alive: it sends newlines while it loads its snapshot.
    pub fn note_alive(&mut self, client: u64, now_ms: u64) {
        if let Some(replica) = self.replicas.get_mut(&client) {
            replica.acked_ms = now_ms;
        }
    }

    /// Records that a replica has acknowledged the replication stream up to the offset `acked`, and
    /// up to `synced` in its append-only file. A replica that has its snapshot becomes online.
    /// Returns true if it became online by this call. An offset beyond the last byte sent counts as
    /// the offset of that byte.
    pub fn acknowledge(&mut self, client: u64, acked: u64, synced: Option<u64>, now_ms: u64) -> bool {
        let Some(replica) = self.replicas.get_mut(&client) else { return false };
        replica.acked_ms = now_ms;
        let becomes_online = replica.phase == Phase::AwaitsAck;
        if becomes_online {
            replica.phase = Phase::Online;
        }
        if !replica.is_online() {
            return false;
        }
        let (acked, synced) = (acked.min(replica.cursor), synced.unwrap_or(0).min(replica.cursor));
        replica.acked = replica.acked.max(acked);
        replica.synced = replica.synced.max(synced);
        if let Some(backlog) = &self.backlog {
            let at = |offset| backlog.position_at(offset).unwrap_or(0);
            replica.acked_position = replica.acked_position.max(at(acked));
            replica.synced_position = replica.synced_position.max(at(synced));
        }
        becomes_online
    }

    /// Returns true if an online replica was sent the whole replication stream and has acknowledged
    /// all its changes. A GETACK at the end need not be acknowledged: it changes nothing, and the
    /// replica replies to it before counting it.
    pub fn has_acked_all(&self, client: u64) -> bool {
        let end = self.end();
        let unchanged_bytes = if self.ack_requested_end == end { GETACK.len() as u64 } else { 0 };
        self.replicas.get(&client).is_some_and(|replica| {
            replica.is_online() && replica.cursor >= end && replica.acked + unchanged_bytes >= end
        })
    }

    /// Returns the number of replicas that have acknowledged all changes up to `position` of the
    /// change log.
    pub fn count_acked(&self, position: u64) -> usize {
        self.replicas.values().filter(|it| it.is_online() && it.acked_position >= position).count()
    }

    /// Returns the number of replicas that have synced all changes up to `position` of the change
    /// log to their append-only files.
    pub fn count_synced(&self, position: u64) -> usize {
        self.replicas.values().filter(|it| it.is_online() && it.synced_position >= position).count()
    }

    /// Returns the number of good replicas, for `min-replicas-to-write`: those that receive the
    /// replication stream and have sent an acknowledgement within the last `lag_max_s` seconds.
    pub fn count_good(&self, now_ms: u64, lag_max_s: u64) -> usize {
        self.replicas.values().filter(|it| it.is_online() && it.lag_s(now_ms) <= lag_max_s).count()
    }

    /// Returns the client ids of the replicas to disconnect. These replicas have more unsent bytes
    /// than the hard limit, or have had more than the soft limit for longer than `soft_ms`. A limit
    /// below the size of the backlog counts as that size, because the backlog keeps these bytes in
    /// any case.
    pub fn over_limit(&mut self, now_ms: u64) -> Vec<u64> {
        self.give_up();
        let (end, kept) = self.backlog.as_ref().map_or((0, 0), |it| (it.end(), it.limit_bytes()));
        let soft_bytes = self.limit.soft_bytes.max(kept);
        let has_soft = self.limit.soft_bytes > 0;
        for replica in self.replicas.values_mut().filter(|replica| replica.holds_backlog()) {
            let exceeds = has_soft && end.saturating_sub(replica.cursor) > soft_bytes;
            let since = &mut replica.over_soft_limit_since_ms;
            *since = exceeds.then(|| since.unwrap_or(now_ms));
            if since.is_some_and(|since| now_ms.saturating_sub(since) > self.limit.soft_ms) {
                replica.phase = Phase::OverLimit;
            }
        }
        self.update_needed();
        let over = self.replicas.iter().filter(|(_, replica)| replica.phase == Phase::OverLimit);
        over.map(|(&client, _)| client).collect()
    }

    /// Returns true if no replica has been connected for `ttl_ms`, so that the backlog must be
    /// freed. Returns false if `ttl_ms` is 0, and on a replica.
    pub fn is_backlog_due(&self, ttl_ms: u64, now_ms: u64) -> bool {
        let is_idle = ttl_ms > 0 && !self.is_following && self.replicas.is_empty() && self.backlog.is_some();
        let since = self.idle_since_ms.filter(|_| is_idle);
        since.is_some_and(|since| now_ms.saturating_sub(since) > ttl_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handshake::Handshake;
    use crate::replica::Dialect;

    const LIMIT: OutputLimit = OutputLimit { hard_bytes: 1000, soft_bytes: 200, soft_ms: 50 };

    fn id(number: u64) -> ReplId {
        ReplId::of_bits(number, 0, 0)
    }

    fn replica() -> Replica {
        Replica::new(Handshake::default(), Dialect::Psync, "127.0.0.1".to_owned(), 0)
    }

    fn primary() -> Primary {
        let mut primary = Primary::new(id(1));
        primary.open_backlog(100, id(2));
        primary
    }

    fn text(pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.as_ref().to_vec()).collect()
    }

    #[test]
    fn a_replica_gets_nothing_of_the_stream_before_its_first_acknowledgement() {
        let mut primary = primary();
        primary.append(b"before");
        primary.add(7, replica());
        primary.set_phase(7, Phase::ReceivesSnapshot, primary.end());
        primary.append(b"during");
        assert!(primary.take_for(7, 100).is_empty());
        assert_eq!(primary.snapshot_sent(7, Framing::EndMark, 0), AfterSnapshot::AwaitAck);
        assert!(primary.take_for(7, 100).is_empty());
        assert!(primary.acknowledge(7, 6, None, 1));
        assert_eq!(text(&primary.take_for(7, 4)), b"duri");
        assert_eq!(text(&primary.take_for(7, 100)), b"ng");
        assert!(primary.take_for(7, 100).is_empty() && !primary.acknowledge(7, 12, None, 2));
    }

    #[test]
    fn acknowledgements_count_up_to_the_position_of_their_bytes() {
        let mut primary = primary();
        primary.add(7, replica());
        primary.set_phase(7, Phase::Online, 0);
        for position in 1..=3 {
            primary.append(b"12345");
            primary.note_position(position);
        }
        assert_eq!(primary.count_acked(0), 1);
        // It cannot have received bytes that were not sent.
        primary.acknowledge(7, 15, Some(15), 1);
        assert_eq!((primary.count_acked(1), primary.count_synced(1)), (0, 0));
        primary.take_for(7, 100);
        primary.acknowledge(7, 9, Some(5), 1);
        assert_eq!((primary.count_acked(1), primary.count_acked(2), primary.count_synced(1)), (1, 0, 1));
        primary.acknowledge(7, 15, None, 1);
        assert_eq!((primary.count_acked(3), primary.count_synced(2)), (1, 0));
        assert_eq!((primary.count_good(5_000, 10), primary.count_good(12_002, 10)), (1, 0));
    }

    #[test]
    fn an_acknowledgement_is_requested_behind_the_changes_that_it_is_for() {
        let mut primary = primary();
        primary.append(b"one");
        primary.note_position(1);
        primary.request_ack(2);
        assert_eq!(primary.end(), 3);
        primary.append(b"two");
        primary.note_position(2);
        assert_eq!(primary.end(), 6 + GETACK.len() as u64);
        primary.note_position(3);
        primary.request_ack(1);
        assert_eq!(primary.end(), 6 + GETACK.len() as u64, "one request is enough");
        // The first of two waiting clients does not wait for the second.
        primary.request_ack(4);
        primary.request_ack(5);
        for position in 4..=5 {
            primary.append(b"more");
            primary.note_position(position);
        }
        assert_eq!(primary.end(), 14 + 3 * GETACK.len() as u64);
        // The bytes of the request belong to no change.
        let backlog = primary.backlog().expect("it is open");
        assert_eq!(backlog.position_at(6 + GETACK.len() as u64), Some(3));
    }

    #[test]
    fn the_stream_continues_only_in_its_history_and_backlog() {
        let mut primary = primary();
        primary.append(&[b'x'; 5000]);
        let end = primary.end() as i64;
        let psync = |primary: &Primary, id: ReplId, next| primary.resync(id.as_str().as_bytes(), next);
        assert_eq!(psync(&primary, id(2), end + 1), Resync::Continue { from: end as u64 });
        for (next, reason) in [
            (end + 2, FullReason::NotInBacklog),
            (1, FullReason::NotInBacklog),
            (0, FullReason::NotInBacklog),
            (-1, FullReason::NotInBacklog),
            (i64::MIN, FullReason::NotInBacklog),
        ] {
            assert_eq!(psync(&primary, id(2), next), Resync::Full(reason), "{next}");
        }
        assert_eq!(psync(&primary, id(1), end + 1), Resync::Full(FullReason::OtherHistory));
        assert_eq!(primary.resync(b"?", -1), Resync::Full(FullReason::Requested));
        // While changes are not counted, no offset is valid, also after the stream begins again.
        primary.close_backlog(id(3));
        assert_eq!(primary.end() as i64, end);
        assert_eq!(psync(&primary, id(2), end + 1), Resync::Full(FullReason::OtherHistory));
        assert_eq!(psync(&primary, id(3), end + 1), Resync::Full(FullReason::NotInBacklog));
        primary.open_backlog(100, id(4));
        assert_eq!(psync(&primary, id(3), end + 1), Resync::Full(FullReason::OtherHistory));
        assert_eq!(psync(&primary, id(4), end + 1), Resync::Continue { from: end as u64 });
    }

    #[test]
    fn a_loaded_history_continues_at_its_end_only() {
        let mut primary = Primary::new(id(1));
        primary.continue_from((id(2), 700), id(3), (100, 1000));
        let psync = |primary: &Primary, id: ReplId, next| primary.resync(id.as_str().as_bytes(), next);
        assert_eq!((primary.end(), psync(&primary, id(2), 701)), (700, Resync::Continue { from: 700 }));
        for (asked, next, reason) in [
            (2, 702, FullReason::OtherHistory),
            (2, 700, FullReason::NotInBacklog),
            (1, 701, FullReason::OtherHistory),
        ] {
            assert_eq!(psync(&primary, id(asked), next), Resync::Full(reason), "{asked} {next}");
        }
        primary.append(b"more");
        assert_eq!(psync(&primary, id(2), 701), Resync::Continue { from: 700 });
        assert_eq!(psync(&primary, id(2), 705), Resync::Full(FullReason::OtherHistory));
        assert_eq!(psync(&primary, id(3), 705), Resync::Continue { from: 704 });
        // Without replicas it is kept for the time that is usual.
        assert!(!primary.is_backlog_due(100, 1100) && primary.is_backlog_due(100, 1101));
        primary.close_backlog(id(4));
        primary.open_backlog(100, id(5));
        assert_eq!(psync(&primary, id(2), 701), Resync::Full(FullReason::OtherHistory));
    }

    #[test]
    fn the_stream_of_a_server_that_ends_gets_changes_only() {
        let mut primary = primary();
        primary.append(b"one");
        primary.note_position(1);
        primary.begin_end();
        primary.append_control(b"PING");
        primary.request_ack(1);
        assert_eq!(primary.end(), 3);
        primary.continue_after_all();
        primary.note_position(1);
        assert_eq!(primary.end(), 3 + GETACK.len() as u64, "the request was only put off");
    }

    #[test]
    fn replicas_over_their_limits_are_listed() {
        let mut primary = primary();
        primary.add(7, replica());
        primary.append(&[b'x'; 500]);
        primary.set_output_limit(LIMIT);
        assert!(primary.over_limit(0).is_empty(), "it awaits a snapshot");
        primary.set_phase(7, Phase::ReceivesSnapshot, primary.end());
        primary.append(&[b'x'; 201]);
        assert!(primary.over_limit(0).is_empty() && primary.over_limit(50).is_empty());
        assert_eq!(primary.over_limit(51), [7]);
        primary.add(7, replica());
        primary.set_phase(7, Phase::Online, primary.end() - 200);
        assert!(primary.over_limit(60).is_empty(), "the time begins again");
        primary.append(&[b'x'; 801]);
        let backlog = primary.backlog().expect("it is open");
        assert_eq!(backlog.behind_bytes(), 0, "nothing is kept for it");
        assert_eq!(primary.over_limit(60), [7]);
        primary.set_phase(7, Phase::Online, primary.end());
        primary.set_output_limit(OutputLimit::default());
        primary.append(&[b'x'; 10_000]);
        assert!(primary.over_limit(1_000_000).is_empty());
    }

    #[test]
    fn writes_wait_for_a_slow_replica_only_if_they_are_to() {
        let mut primary = primary();
        primary.add(7, replica());
        primary.set_phase(7, Phase::Online, 0);
        primary.append(&[b'x'; 300]);
        assert_eq!(primary.excess_bytes(), 0);
        primary.set_writes_wait_above(100);
        assert_eq!(primary.excess_bytes(), 200);
        primary.take_for(7, 250);
        primary.free_sent();
        assert_eq!(primary.excess_bytes(), 0);
        primary.append(&[b'x'; 300]);
        primary.remove(7, 0);
        assert_eq!(primary.excess_bytes(), 0);
    }

    #[test]
    fn a_backlog_without_replicas_is_kept_for_its_time() {
        let mut primary = primary();
        primary.add(7, replica());
        assert!(!primary.is_backlog_due(100, 1_000_000));
        primary.remove(7, 1000);
        assert!(!primary.is_backlog_due(100, 1100) && primary.is_backlog_due(100, 1101));
        assert!(!primary.is_backlog_due(0, u64::MAX));
        assert!(!primary.begin_close(100, 1100, id(3)) && primary.begin_close(100, 1101, id(3)));
        // From then on no replica may continue.
        let late = primary.resync(id(2).as_str().as_bytes(), 1);
        assert_eq!(late, Resync::Full(FullReason::OtherHistory));
        primary.close_backlog(id(4));
        assert!(!primary.is_backlog_due(100, u64::MAX), "it is freed once");
        // The only replica may leave before its snapshot begins.
        primary.add(8, replica());
        primary.remove(8, 5000);
        primary.open_backlog(100, id(5));
        assert!(primary.is_backlog_due(100, 5101));
    }

    #[test]
    fn a_replica_that_has_its_snapshot_has_just_given_a_sign_of_life() {
        let mut primary = primary();
        primary.add(7, replica());
        primary.set_phase(7, Phase::ReceivesSnapshot, 0);
        assert_eq!(primary.snapshot_sent(7, Framing::Length, 100_000), AfterSnapshot::Stream);
        assert_eq!(primary.replica(7).map(|replica| replica.acked_ms), Some(100_000));
        // Without a backlog nobody follows.
        primary.close_backlog(id(9));
        assert_eq!(primary.over_limit(100_001), [7]);
    }
}
