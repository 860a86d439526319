//! The states of replicas, as INFO, ROLE and the log of the primary show them.

use replicate::handshake::Purpose;
use replicate::primary::Primary;
use replicate::replica::{Dialect, Replica};

/// The state of a replica at one time, for a line of INFO.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The address that the replica has announced, or else that of its connection.
    pub ip: String,
    /// The port that the replica has announced; 0 if it has announced none.
    pub port: u16,
    /// The name of the replica's phase that INFO shows.
    pub state: &'static str,
    /// True if INFO shows the replica as online: its snapshot was sent, or it needed none.
    pub is_online: bool,
    /// The last offset of the replication stream that the replica has acknowledged.
    pub offset: u64,
    /// The time since the replica's last acknowledgement, in seconds.
    pub lag_s: u64,
    /// The bytes between the last acknowledged offset and the end of the replication stream.
    pub behind_bytes: u64,
    /// The last position of the change log up to which the replica has acknowledged all changes.
    pub acked_position: u64,
    /// True if the replica acknowledges offsets, now or after its snapshot. Replicas that sent
    /// SYNC, or that want only a snapshot, never do.
    pub acknowledges: bool,
}

/// Returns the replicas that INFO shows, in the order in which they connected. `now_ms` is the
/// present time of the server's clock.
pub fn rows(primary: &Primary, now_ms: u64) -> Vec<Row> {
    let end = primary.end();
    let row = |(_, replica): (u64, &Replica)| {
        Some(Row {
            ip: replica.address(),
            port: replica.handshake.listening_port,
            state: replica.phase.name()?,
            is_online: replica.phase.name() == Some("online"),
            offset: replica.acked,
            lag_s: replica.lag_s(now_ms),
            behind_bytes: end.saturating_sub(replica.acked),
            acked_position: replica.acked_position,
            acknowledges: replica.dialect == Dialect::Psync && replica.handshake.purpose == Purpose::Follow,
        })
    };
    primary.replicas().filter_map(row).collect()
}

impl Row {
    /// Returns the address and the port of the replica, for log lines.
    pub fn name(&self) -> String {
        format!("{}:{}", self.ip, self.port)
    }

    /// Returns true if the replica is online and has acknowledged all changes up to `position` of
    /// the change log.
    pub fn has_acked(&self, position: u64) -> bool {
        self.is_online && self.acked_position >= position
    }
}

/// Returns the number of unsent bytes of the replication stream for the replica with this client
/// id; 0 if the backlog keeps nothing for it.
pub fn unread_bytes(primary: &Primary, client: u64) -> u64 {
    let replica = primary.replica(client).filter(|replica| replica.holds_backlog());
    replica.map_or(0, |replica| primary.end().saturating_sub(replica.cursor))
}
