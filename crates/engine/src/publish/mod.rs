//! Messages that are not replies: published messages, keyspace events, lines of MONITOR, and
//! invalidations of cached keys.

use stdx::{ByteQueue, ConnId};

pub mod monitor;
pub mod notify;
pub mod pubsub;
pub mod push;
pub mod send;

/// The channel in which Sentinels introduce themselves. Each Sentinel publishes on the primary and
/// on every replica, so replicas need not get these messages by replication. CLIENT PAUSE WRITE
/// does not postpone them. Otherwise the Sentinel's next PING, behind such a message, would wait
/// too, and the Sentinel would consider the server down.
pub const SENTINEL_CHANNEL: &[u8] = b"__sentinel__:hello";

/// The output buffers of a thread's connections, to which messages are appended.
pub trait Outputs {
    /// Borrows the output buffer of an open connection, to append to it.
    fn queue(&mut self, conn: ConnId) -> &mut ByteQueue;

    /// Returns the number of bytes in a connection's output buffer that are not sent yet.
    fn len_bytes(&mut self, conn: ConnId) -> usize;

    /// Records that the last `len_bytes` of a connection's pending output show changes up to log
    /// position `position`. These bytes are sent once replies may show the changes up to that
    /// position.
    fn shows(&mut self, conn: ConnId, len_bytes: usize, position: u64);
}
