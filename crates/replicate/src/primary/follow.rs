//! The part of [`Primary`] for a server that is itself a replica: it follows the replication stream
//! of its primary, and sends the same stream to its own replicas.
//!
//! While it follows, the stream is that of its primary, byte for byte, at the primary's offsets.
//! Nothing else is appended: no PING, no GETACK, no change of its own. Only complete units whose
//! changes are already in the data are appended. So a replica of this server never has a unit that
//! this server lacks.
//!
//! The replicas of this server are disconnected when its history gets a new replication ID. They
//! reconnect with the former ID, and the reply names the new one. Otherwise they would count bytes
//! of the new history under the former ID.
//!
//! A promotion creates an ID that no other server knows. If this server then becomes a replica
//! again, it returns to its previous history, if two conditions hold. It has appended no byte, and
//! it has sent the new ID to no server. Its data is then exactly that of the former history, which
//! other servers may have continued. If another server has received the new ID, that server may
//! become the next primary and know only this ID, so the ID stays. The ID also stays if data has
//! changed without a change in the stream, such as by a script with `redis.set_repl`.
//!
//! All offsets are 0-based: the number of bytes of the stream before that point. Only PSYNC counts
//! from 1.

use super::Primary;
use crate::backlog::Backlog;
use crate::history::{History, ReplId};
use crate::replica::Phase;

/// The data with which a server can return to its previous replication history. It exists while no
/// other server knows the present replication ID.
#[derive(Clone, Copy, Debug)]
pub(super) struct WayBack {
    /// The database that is selected at the end of the previous history's replication stream;
    /// `None` if the next change is preceded by a SELECT.
    stream_db: Option<u32>,
}

impl Primary {
    /// Returns true while this server is a replica, which follows a primary.
    pub fn is_following(&self) -> bool {
        self.is_following
    }

    /// Makes this server a replica, or does nothing if it is one already. The replication IDs, the
    /// backlog and the connected replicas stay, since the new primary may continue the history. If
    /// the present history has no bytes and no other server knows its ID, returns to the previous
    /// history. The caller has the exclusive lock of the keyspace. From now on, changes made by
    /// this server are not appended to the replication stream.
    pub fn follow(&mut self) {
        if !self.is_following {
            self.is_following = true;
            // A primary that continues this stream selects a database first.
            self.stream_db = None;
            self.forget_ack_requests();
            self.go_back();
        }
    }

    /// Returns to the previous replication history, if the replication stream has not grown since
    /// the present history began and no other server knows the present ID.
    fn go_back(&mut self) {
        let (Some(way), Some((former, begin))) = (self.way_back.take(), self.history.second) else { return };
        if begin == self.end() {
            self.history = History { id: former, second: Some((self.history.id, begin)) };
            self.stream_db = way.stream_db;
        }
    }

    /// Permits a later return to the previous replication history, see [`Primary::follow`].
    /// `stream_db` is the database that is selected at the end of that history's stream. Called
    /// after [`Primary::continue_from`].
    pub fn allow_return(&mut self, stream_db: u32) {
        self.way_back = Some(WayBack { stream_db: Some(stream_db) });
    }

    /// Forbids the return to the previous replication history, because the data of this server
    /// changes, or may change, without a change in the replication stream.
    pub fn forbid_return(&mut self) {
        self.way_back = None;
    }

    /// Returns the replication ID and the offset for `PSYNC id next`, with which a replica asks its
    /// primary to continue. The offset is that of the next byte, counted from 1. `None` if this
    /// server does not record the replication stream.
    pub fn resume_point(&self) -> Option<(ReplId, u64)> {
        self.backlog.as_ref().map(|backlog| (self.history.id, backlog.end() + 1))
    }

    /// Returns the database that is selected at the end of the replication stream. `None` if the
    /// next change is preceded by a SELECT, and on a primary.
    pub fn stream_db(&self) -> Option<u32> {
        self.stream_db
    }

    /// Sets the database that is selected at the end of the replication stream, as stated in a
    /// loaded snapshot.
    pub fn set_stream_db(&mut self, db: Option<u32>) {
        self.stream_db = db;
    }

    /// Replaces this server's replication ID by that of the primary, `id`, after a full
    /// synchronisation. The backlog is emptied and starts at `offset`, the offset in the reply
    /// `+FULLRESYNC`. Marks the replicas that have the former data to be disconnected, see
    /// [`Primary::outdated`].
    ///
    /// # Panics
    /// If this server does not follow.
    pub fn adopt(&mut self, id: ReplId, offset: u64, limit_bytes: u64) {
        assert!(self.is_following, "only a replica gets its data from a primary");
        self.renew_id(id);
        self.backlog = Some(Backlog::new(limit_bytes, offset));
        self.stream_db = None;
        self.outdate_replicas();
    }

    /// Handles the reply `+CONTINUE` of the primary. `id` is the replication ID in the reply;
    /// `None` if it has none. Returns true if the ID is new. Then the former ID is valid up to the
    /// present end of the replication stream, and this server's replicas are marked to be
    /// disconnected, see [`Primary::outdated`].
    ///
    /// # Panics
    /// If this server does not follow.
    pub fn continue_as(&mut self, id: Option<ReplId>) -> bool {
        assert!(self.is_following, "only a replica continues the stream of a primary");
        match id.filter(|id| *id != self.history.id) {
            Some(id) => {
                self.succeed(id);
                true
            }
            None => false,
        }
    }

    /// Makes this server a primary with the new replication ID `id`. With a backlog, the former ID
    /// is valid up to the present end of the replication stream. The next change in the stream is
    /// preceded by a SELECT. Marks this server's replicas to be disconnected, see
    /// [`Primary::outdated`]. The caller has the exclusive lock of the keyspace.
    pub fn promote(&mut self, id: ReplId, now_ms: u64) {
        self.is_following = false;
        let stream_db = self.stream_db.take();
        self.forget_ack_requests();
        match self.backlog {
            Some(_) => {
                self.succeed(id);
                self.way_back = Some(WayBack { stream_db });
            }
            None => self.renew_id(id),
        }
        if self.replicas.is_empty() {
            self.idle_since_ms = Some(now_ms);
        }
    }

    /// Appends to the backlog bytes of the primary's replication stream whose changes are in the
    /// data now. `bytes` must end with a whole command or transaction. `db` is the database that is
    /// selected at the end of `bytes`.
    ///
    /// # Panics
    /// If this server is no replica, or has no backlog.
    pub fn append_applied(&mut self, bytes: &[u8], db: u32) {
        assert!(self.is_following, "only a replica applies a stream");
        assert!(self.backlog.is_some(), "a replica that applies a stream records it");
        self.append_bytes(bytes);
        self.stream_db = Some(db);
    }

    /// Returns an offset of the replication stream for the field FACK of REPLCONF ACK: all changes
    /// up to this offset have at most the log position `position`. It is the largest known such
    /// offset; `None` if there is none. O(log n).
    pub fn offset_at(&self, position: u64) -> Option<u64> {
        self.backlog.as_ref()?.offset_at(position)
    }

    /// Returns the client ids of the replicas to disconnect because the history that they follow
    /// has ended or has a new replication ID.
    pub fn outdated(&self) -> Vec<u64> {
        let outdated = self.replicas.iter().filter(|(_, replica)| replica.phase == Phase::Outdated);
        outdated.map(|(&client, _)| client).collect()
    }

    /// Replaces the replication ID by `id`, which names a new history that continues the present
    /// one from the end of the replication stream on.
    fn succeed(&mut self, id: ReplId) {
        self.history = History { id, second: Some((self.history.id, self.end())) };
        self.way_back = None;
        self.outdate_replicas();
    }

    /// Marks all replicas that know the present replication ID to be disconnected. Replicas that
    /// wait for a snapshot stay: they get the new ID with the snapshot.
    fn outdate_replicas(&mut self) {
        for replica in self.replicas.values_mut().filter(|replica| replica.holds_backlog()) {
            replica.phase = Phase::Outdated;
        }
        self.update_needed();
    }

    /// Drops the requests for acknowledgements (GETACK) that are not sent yet, and forgets the last
    /// one sent.
    fn forget_ack_requests(&mut self) {
        self.acks_due_at = None;
        // No stream ends there, so the next request is sent.
        self.ack_requested_end = u64::MAX;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backlog::Piece;
    use crate::framing::Framing;
    use crate::handshake::Handshake;
    use crate::primary::{AfterSnapshot, FullReason, Resync};
    use crate::replica::{Dialect, Replica};

    fn id(number: u64) -> ReplId {
        ReplId::of_bits(number, 0, 0)
    }

    /// Creates a server that is a replica and has the history 5 up to offset 100, with one online
    /// replica of its own, client id 7.
    fn following() -> Primary {
        let mut replica = Primary::new(id(1));
        replica.follow();
        replica.adopt(id(5), 100, 4000);
        add(&mut replica, 7, Phase::Online);
        replica
    }

    fn add(primary: &mut Primary, client: u64, phase: Phase) {
        let replica = Replica::new(Handshake::default(), Dialect::Psync, String::new(), 0);
        primary.add(client, replica);
        primary.set_phase(client, phase, primary.end());
    }

    fn psync(primary: &Primary, id: ReplId, next: u64) -> Resync {
        primary.resync(id.as_str().as_bytes(), next as i64)
    }

    fn text(pieces: &[Piece]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.as_ref().to_vec()).collect()
    }

    #[test]
    fn a_replica_appends_nothing_of_its_own() {
        let mut replica = following();
        replica.append(b"PING");
        replica.request_ack(0);
        replica.append_applied(b"SET", 3);
        replica.note_position(1);
        replica.request_ack(1);
        replica.note_position(2);
        replica.append(b"PING");
        assert_eq!((replica.end(), replica.stream_db()), (103, Some(3)));
        assert_eq!(text(&replica.take_for(7, 100)), b"SET");
        assert_eq!(replica.resume_point(), Some((id(5), 104)));
        // It keeps the backlog, and counts nothing for WAIT.
        replica.remove(7, 0);
        assert!(!replica.is_backlog_due(1, u64::MAX) && !replica.begin_close(1, u64::MAX, id(9)));
        assert_eq!(replica.history(), &History::new(id(5)));
    }

    #[test]
    fn requests_of_acknowledgements_end_with_the_role() {
        let mut primary = Primary::new(id(1));
        primary.open_backlog(4000, id(2));
        primary.append(b"one");
        primary.request_ack(5);
        primary.follow();
        primary.append_applied(b"two", 0);
        primary.note_position(9);
        assert_eq!(primary.end(), 6);
        primary.promote(id(3), 0);
        primary.note_position(10);
        assert_eq!(primary.end(), 6);
        primary.request_ack(10);
        assert!(primary.end() > 6);
    }

    #[test]
    fn a_primary_can_follow_with_its_own_history() {
        let mut primary = Primary::new(id(1));
        primary.follow();
        assert_eq!(primary.resume_point(), None, "nothing was counted");
        primary.promote(id(2), 0);
        assert_eq!(primary.history(), &History::new(id(2)));
        primary.open_backlog(4000, id(3));
        primary.append(b"12345");
        add(&mut primary, 7, Phase::Online);
        primary.follow();
        assert_eq!((primary.is_following(), primary.resume_point()), (true, Some((id(3), 6))));
        assert!(primary.outdated().is_empty(), "the new primary may have the same history");
        assert!(!primary.continue_as(None) && !primary.continue_as(Some(id(3))));
        assert!(primary.outdated().is_empty());
        assert!(primary.continue_as(Some(id(4))));
        assert_eq!(primary.outdated(), [7]);
        assert_eq!(primary.history(), &History { id: id(4), second: Some((id(3), 5)) });
        assert_eq!(psync(&primary, id(3), 6), Resync::Continue { from: 5 });
        primary.append_applied(b"678", 0);
        assert_eq!(psync(&primary, id(3), 7), Resync::Full(FullReason::OtherHistory));
        assert_eq!(psync(&primary, id(4), 7), Resync::Continue { from: 6 });
        assert!(primary.take_for(7, 100).is_empty(), "an outdated replica gets nothing more");
    }

    #[test]
    fn a_full_synchronisation_ends_all_former_histories() {
        let mut replica = following();
        replica.append_applied(b"12345", 0);
        assert!(replica.continue_as(Some(id(6))));
        add(&mut replica, 8, Phase::ReceivesSnapshot);
        add(&mut replica, 9, Phase::AwaitsAck);
        add(&mut replica, 10, Phase::AwaitsSnapshot { since_ms: 0 });
        replica.adopt(id(11), 40, 4000);
        assert_eq!(replica.outdated(), [7, 8, 9], "one has not been given an ID");
        assert_eq!(replica.snapshot_sent(8, Framing::Length, 0), AfterSnapshot::Close);
        assert!(!replica.acknowledge(9, 100, None, 0));
        assert_eq!(replica.outdated(), [7, 8, 9]);
        assert_eq!((replica.history(), replica.end()), (&History::new(id(11)), 40));
        for (id, next) in [(id(5), 101), (id(6), 106), (id(11), 40), (id(11), 42)] {
            assert!(matches!(psync(&replica, id, next), Resync::Full(_)), "{id} {next}");
        }
        assert_eq!(psync(&replica, id(11), 41), Resync::Continue { from: 40 });
        assert_eq!(replica.backlog().expect("it is open").memory_bytes(), 0);
    }

    #[test]
    fn a_promoted_replica_continues_the_history() {
        let mut replica = following();
        replica.append_applied(b"12345", 2);
        replica.promote(id(6), 1000);
        assert_eq!((replica.is_following(), replica.stream_db()), (false, None));
        assert_eq!(replica.outdated(), [7]);
        replica.append(b"SELECT");
        assert_eq!(psync(&replica, id(5), 106), Resync::Continue { from: 105 });
        assert_eq!(psync(&replica, id(5), 107), Resync::Full(FullReason::OtherHistory));
        assert_eq!(psync(&replica, id(6), 112), Resync::Continue { from: 111 });
        // The time without replicas begins now, also if there never was one.
        let mut alone = Primary::new(id(1));
        alone.follow();
        alone.adopt(id(5), 0, 4000);
        alone.promote(id(6), 1000);
        assert!(!alone.is_backlog_due(100, 1100) && alone.is_backlog_due(100, 1101));
    }

    #[test]
    fn a_promoted_server_that_wrote_nothing_goes_back_to_the_former_history() {
        let mut server = following();
        server.append_applied(b"12345", 2);
        server.remove(7, 0);
        for promoted in [6, 7] {
            server.promote(id(promoted), 0);
            assert_eq!(server.history(), &History { id: id(promoted), second: Some((id(5), 105)) });
            // A replica that waits has not been given the ID.
            add(&mut server, 8, Phase::AwaitsSnapshot { since_ms: 0 });
            server.follow();
            assert_eq!((server.resume_point(), server.stream_db()), (Some((id(5), 106)), Some(2)));
            assert_eq!(psync(&server, id(promoted), 106), Resync::Continue { from: 105 });
            assert!(!server.continue_as(Some(id(5))), "it is the history of the primary");
        }
        // The former primary of this server has appended more to the stream.
        server.append_applied(b"678", 2);
        assert_eq!(psync(&server, id(7), 109), Resync::Full(FullReason::OtherHistory));
        assert_eq!(psync(&server, id(5), 109), Resync::Continue { from: 108 });
        // If it follows already, the ID of its primary stays.
        assert!(server.continue_as(Some(id(9))));
        server.follow();
        assert_eq!(server.resume_point(), Some((id(9), 109)));
    }

    #[test]
    fn an_id_that_others_may_have_stays() {
        let promoted = || {
            let mut server = following();
            server.append_applied(b"12345", 2);
            server.remove(7, 0);
            server.promote(id(6), 0);
            server
        };
        for phase in [Phase::Online, Phase::ReceivesSnapshot] {
            let mut server = promoted();
            add(&mut server, 8, phase);
            server.remove(8, 0);
            server.follow();
            assert_eq!((server.resume_point(), server.stream_db()), (Some((id(6), 106)), None));
        }
        let mut server = promoted();
        server.forbid_return();
        server.follow();
        assert_eq!((server.resume_point(), server.stream_db()), (Some((id(6), 106)), None));
        let mut server = promoted();
        server.append(b"SELECT");
        server.follow();
        assert_eq!((server.resume_point(), server.stream_db()), (Some((id(6), 112)), None));
        let mut server = promoted();
        server.close_backlog(id(10));
        server.follow();
        assert_eq!((server.resume_point(), server.history()), (None, &History::new(id(10))));
        let mut server = promoted();
        server.renew_id(id(10));
        server.follow();
        assert_eq!(server.resume_point(), Some((id(10), 106)));
    }

    #[test]
    fn a_primary_with_loaded_data_goes_back_to_their_history() {
        for written in [&b""[..], b"DEL"] {
            let mut server = Primary::new(id(1));
            server.continue_from((id(5), 700), id(6), (4000, 0));
            server.allow_return(3);
            server.append(written);
            server.follow();
            let expected = match written.is_empty() {
                true => (Some((id(5), 701)), Some(3)),
                false => (Some((id(6), 704)), None),
            };
            assert_eq!((server.resume_point(), server.stream_db()), expected);
        }
    }

    #[test]
    fn the_synced_offset_has_no_change_beyond_the_synced_position() {
        let mut replica = following();
        assert_eq!(replica.offset_at(u64::MAX), None);
        replica.note_position(10);
        replica.append_applied(b"one", 0);
        replica.note_position(12);
        replica.append_applied(b"PING", 0);
        replica.append_applied(b"two", 0);
        replica.note_position(20);
        let at = |position| replica.offset_at(position);
        assert_eq!((at(9), at(10), at(11)), (None, Some(100), Some(100)));
        assert_eq!((at(12), at(19), at(20), at(99)), (Some(103), Some(103), Some(110), Some(110)));
    }
}
