//! The messages to the thread `repl`, which owns the connections of replicas.

use std::sync::Arc;

use engine::acl::Identity;
use engine::client::ClientInfo;
use net::Socket;
use replicate::framing::Framing;
use replicate::history::ReplId;

use super::arrivals::SyncRequest;
use super::spool::SpoolReader;

/// A message to the thread `repl`.
pub enum Message {
    /// A connection that an I/O thread hands over, with the synchronisation request of its client.
    Adopt(Box<Arrival>),
    /// The notice that the backlog or the spool of a snapshot has new bytes, or that the thread
    /// must end.
    Feed,
    /// The result of the attempt to begin a snapshot for replicas.
    SyncBegun(Result<Begun, NotBegun>),
}

/// The connection of a new replica, which has left its I/O thread's loop.
pub struct Arrival {
    /// The socket of the connection, with its unread input and unsent output.
    pub socket: Socket,
    /// The client that represents the replica in CLIENT LIST.
    pub info: Arc<ClientInfo>,
    /// The ACL user of the client that represents the replica.
    pub identity: Identity,
    /// The request for synchronisation (PSYNC or SYNC) that the client has sent.
    pub request: SyncRequest,
}

/// The point in the replication stream at which a snapshot was taken.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The replication ID, which names the history of the stream.
    pub id: ReplId,
    /// The offset at which the replication stream continues after the snapshot.
    pub offset: u64,
    /// The database that is selected in the replication stream at this offset.
    pub stream_db: u32,
}

/// A snapshot for a cohort (replicas that share it) that has begun.
pub struct Begun {
    /// The point of the snapshot in the replication stream.
    pub point: Point,
    /// The replicas of the cohort: for each the id of its client, the framing of its snapshot
    /// (length or end mark), and its reader of the snapshot.
    pub readers: Vec<(u64, Framing, SpoolReader)>,
}

/// The reason why a snapshot for replicas has not begun.
pub enum NotBegun {
    /// Another save, rewrite or full sync is in progress. The caller tries again later.
    Busy,
    /// The data cannot be written in a version that the replicas of the cohort can read.
    Failed {
        /// The ids of the clients that represent the replicas of the cohort, which get the error.
        replicas: Vec<u64>,
        /// The reason why the data cannot be written, for the error reply and the log.
        reason: String,
    },
}
