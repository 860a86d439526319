//! The messages to the thread that owns the connections of replicas.

use std::sync::Arc;

use engine::acl::Identity;
use engine::client::ClientInfo;
use net::Socket;
use replicate::framing::Framing;
use replicate::history::ReplId;

use super::arrivals::SyncRequest;
use super::spool::SpoolReader;

/// A message to the thread.
pub enum Message {
    /// A connection that an I/O thread passes on, with the request of its client.
    Adopt(Box<Arrival>),
    /// The backlog or a spool has new bytes, or the thread must end.
    Feed,
    /// The result of the attempt to start a snapshot.
    SyncBegun(Result<Begun, NotBegun>),
}

/// A connection that was removed from its I/O thread's loop.
pub struct Arrival {
    /// The connection.
    pub socket: Socket,
    /// The client.
    pub info: Arc<ClientInfo>,
    /// The user of the client.
    pub identity: Identity,
    /// The request of the client.
    pub request: SyncRequest,
}

/// The point of a snapshot in the stream.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// The history of the data.
    pub id: ReplId,
    /// The offset at which the stream continues after the snapshot.
    pub offset: u64,
    /// The database that is selected at this offset.
    pub stream_db: u32,
}

/// A snapshot that has begun.
pub struct Begun {
    /// The point of the snapshot.
    pub point: Point,
    /// The ids of the replicas' clients, with the framing and the reader for each.
    pub readers: Vec<(u64, Framing, SpoolReader)>,
}

/// The reason why a snapshot has not begun.
pub enum NotBegun {
    /// Another walk over the data is in progress. The caller tries again later.
    Busy,
    /// The data cannot be written for these replicas.
    Failed {
        /// The ids of the replicas' clients.
        replicas: Vec<u64>,
        /// The reason, for the replicas and the log.
        reason: String,
    },
}
