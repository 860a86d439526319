//! The state of a replica, as its primary knows it.

use crate::handshake::{Handshake, Purpose};

/// The phase of a replica's synchronisation, as its primary sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The replica waits until the primary starts to write a snapshot for it.
    AwaitsSnapshot {
        /// The time since which the replica waits, in milliseconds of the caller's clock.
        since_ms: u64,
    },
    /// The snapshot for the replica is being written or sent.
    ReceivesSnapshot,
    /// The snapshot was sent to the replica with an end mark. The replication stream is sent only
    /// after the replica's first acknowledgement. A replica looks for the mark at the end of the
    /// received bytes, so nothing may follow it.
    AwaitsAck,
    /// The replica has all data of its snapshot and receives the replication stream.
    Online,
    /// The whole snapshot is sent to a client that requested only a snapshot, not the replication
    /// stream.
    SnapshotSent,
    /// The replica had more unsent bytes than its output limit. The backlog keeps no bytes for it,
    /// and its connection must be closed.
    OverLimit,
    /// The history whose replication stream the replica receives has ended or has a new ID. The
    /// backlog keeps no bytes for the replica, and its connection must be closed.
    Outdated,
}

impl Phase {
    /// Returns the name of the phase in INFO; `None` if INFO does not show the replica.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Phase::AwaitsSnapshot { .. } => Some("wait_bgsave"),
            Phase::ReceivesSnapshot => Some("send_bulk"),
            Phase::AwaitsAck | Phase::Online => Some("online"),
            Phase::SnapshotSent | Phase::OverLimit | Phase::Outdated => None,
        }
    }
}

/// The command by which a replica requested its primary's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `PSYNC`: the replica acknowledges offsets.
    Psync,
    /// `SYNC`, sent by replicas before Redis 2.8 and by tools: the replica acknowledges nothing.
    Sync,
}

/// A connected replica, as its primary sees it.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The properties that the replica has announced with REPLCONF.
    pub handshake: Handshake,
    /// The command by which the replica requested its primary's data.
    pub dialect: Dialect,
    /// The address of the replica's connection, without the port.
    pub peer_ip: String,
    /// The phase of the replica's synchronisation, such as waiting for a snapshot.
    pub phase: Phase,
    /// The offset of the next byte of the replication stream to send to the replica. Not meaningful
    /// while the replica waits for a snapshot.
    pub cursor: u64,
    /// The last offset of the replication stream that the replica has acknowledged.
    pub acked: u64,
    /// The last offset of the replication stream up to which all changes are synced in the
    /// replica's append-only file.
    pub synced: u64,
    /// The last position of the change log up to which the replica has acknowledged all changes.
    pub acked_position: u64,
    /// The last position of the change log up to which all changes are synced in the replica's
    /// append-only file.
    pub synced_position: u64,
    /// The time of the replica's last acknowledgement, in milliseconds of the caller's clock.
    pub acked_ms: u64,
    /// The time since which the replica has had more unsent bytes than the soft limit, in
    /// milliseconds; `None` while it has fewer.
    pub over_soft_limit_since_ms: Option<u64>,
}

impl Replica {
    /// Creates a replica that has just sent PSYNC or SYNC at `now_ms` and waits for a snapshot.
    pub fn new(handshake: Handshake, dialect: Dialect, peer_ip: String, now_ms: u64) -> Self {
        Self {
            handshake,
            dialect,
            peer_ip,
            phase: Phase::AwaitsSnapshot { since_ms: now_ms },
            cursor: 0,
            acked: 0,
            synced: 0,
            acked_position: 0,
            synced_position: 0,
            acked_ms: now_ms,
            over_soft_limit_since_ms: None,
        }
    }

    /// Returns true if the backlog must keep the bytes of the replication stream that were not sent
    /// to this replica yet.
    pub fn holds_backlog(&self) -> bool {
        match self.phase {
            Phase::AwaitsSnapshot { .. } | Phase::SnapshotSent | Phase::OverLimit | Phase::Outdated => false,
            Phase::ReceivesSnapshot | Phase::AwaitsAck | Phase::Online => {
                self.handshake.purpose == Purpose::Follow
            }
        }
    }

    /// Returns true if the replica is to be disconnected, because it has too many unsent bytes, or
    /// follows a history that has ended.
    pub fn is_given_up(&self) -> bool {
        matches!(self.phase, Phase::OverLimit | Phase::Outdated)
    }

    /// Returns true if the replica receives the replication stream. Only then do its
    /// acknowledgements count, for WAIT and for `min-replicas-to-write`.
    pub fn is_online(&self) -> bool {
        self.phase == Phase::Online
    }

    /// Returns the address that the replica has announced, or else the IP address of its
    /// connection.
    pub fn address(&self) -> String {
        match self.handshake.ip_address.is_empty() {
            true => self.peer_ip.clone(),
            false => String::from_utf8_lossy(&self.handshake.ip_address).into_owned(),
        }
    }

    /// Returns the time since the replica's last acknowledgement in whole seconds, for INFO; 0
    /// before the replica is online.
    pub fn lag_s(&self, now_ms: u64) -> u64 {
        if self.is_online() { now_ms.saturating_sub(self.acked_ms) / 1000 } else { 0 }
    }
}
