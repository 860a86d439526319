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
    /// A connection that has left its loop, with the request of its client.
    Adopt(Box<Arrival>),
    /// There is something new in the backlog or in a spool, or the thread is to end.
    Feed,
    /// The end of the attempt to begin a snapshot.
    SyncBegun(Result<Begun, NotBegun>),
}

/// A connection that has left its loop.
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
    /// The point.
    pub point: Point,
    /// The ids of the replicas' clients, with the framing and the reader for each.
    pub readers: Vec<(u64, Framing, SpoolReader)>,
}

/// The reason why a snapshot has not begun.
pub enum NotBegun {
    /// Another walk over the data is in progress. To be tried again.
    Busy,
    /// The data cannot be written for these replicas.
    Failed {
        /// The ids of the replicas' clients.
        replicas: Vec<u64>,
        /// The reason, for the replicas and the log.
        reason: String,
    },
}
