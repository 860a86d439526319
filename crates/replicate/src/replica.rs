//! The state of a replica, as its primary knows it.

use crate::handshake::{Handshake, Purpose};

/// The phase of a replica's synchronisation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The replica waits for the start of a snapshot.
    AwaitsSnapshot {
        /// The time since which the replica waits, in milliseconds of the caller's clock.
        since_ms: u64,
    },
    /// The snapshot is being written or sent.
    ReceivesSnapshot,
    /// The snapshot is sent. The stream follows after the first acknowledgement, because a replica
    /// that searches the end mark would not find it before other bytes.
    AwaitsAck,
    /// The replica receives the stream.
    Online,
    /// The snapshot is sent to a client that requested only a snapshot, not the stream.
    SnapshotSent,
    /// The output of the replica exceeded its limit and was dropped. The connection must be closed.
    OverLimit,
    /// The history that it follows has ended or got another ID. It keeps nothing any more and is to
    /// be disconnected.
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

/// The dialect in which a replica asked for the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `PSYNC`: it acknowledges offsets.
    Psync,
    /// `SYNC`, of replicas before Redis 2.8 and of tools: it acknowledges nothing.
    Sync,
}

/// A connected replica.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The announced properties.
    pub handshake: Handshake,
    /// The dialect.
    pub dialect: Dialect,
    /// The address of the connection, without the port.
    pub peer_ip: String,
    /// The phase.
    pub phase: Phase,
    /// The offset of the next byte to send to it. Meaningless while it awaits a snapshot.
    pub cursor: u64,
    /// The last acknowledged offset.
    pub acked: u64,
    /// The last offset whose changes are synced in the replica's append-only file.
    pub synced: u64,
    /// The last acknowledged position of the change log.
    pub acked_position: u64,
    /// The last position whose changes are synced in the replica's append-only file.
    pub synced_position: u64,
    /// The time of the last acknowledgement, in milliseconds.
    pub acked_ms: u64,
    /// The time since which it is over the soft limit of unsent bytes, in milliseconds.
    pub over_soft_limit_since_ms: Option<u64>,
}

impl Replica {
    /// Creates a replica that has just asked for the data.
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

    /// Returns true if it keeps bytes of the backlog from being freed.
    pub fn holds_backlog(&self) -> bool {
        match self.phase {
            Phase::AwaitsSnapshot { .. } | Phase::SnapshotSent | Phase::OverLimit | Phase::Outdated => false,
            Phase::ReceivesSnapshot | Phase::AwaitsAck | Phase::Online => {
                self.handshake.purpose == Purpose::Follow
            }
        }
    }

    /// Returns true if it is to be disconnected, whatever it has been sent.
    pub fn is_given_up(&self) -> bool {
        matches!(self.phase, Phase::OverLimit | Phase::Outdated)
    }

    /// Returns true if its acknowledgements count: for WAIT, and as a good replica.
    pub fn is_online(&self) -> bool {
        self.phase == Phase::Online
    }

    /// Returns the announced address, or that of the connection.
    pub fn address(&self) -> String {
        match self.handshake.ip_address.is_empty() {
            true => self.peer_ip.clone(),
            false => String::from_utf8_lossy(&self.handshake.ip_address).into_owned(),
        }
    }

    /// Returns the time since the last acknowledgement in seconds, for INFO; 0 before it is online.
    pub fn lag_s(&self, now_ms: u64) -> u64 {
        if self.is_online() { now_ms.saturating_sub(self.acked_ms) / 1000 } else { 0 }
    }
}
