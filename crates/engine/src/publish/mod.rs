//! Messages to clients that did not ask for them just now: what is published on channels, keyspace
//! events, lines of MONITOR, invalidations of cached keys.

use stdx::{ByteQueue, ConnId};

pub mod monitor;
pub mod notify;
pub mod pubsub;
pub mod push;
pub mod send;

/// The output queues of a thread's connections.
pub trait Outputs {
    /// Borrows the queue of replies of an open connection.
    fn queue(&mut self, conn: ConnId) -> &mut ByteQueue;

    /// Bytes in it that are not sent.
    fn len_bytes(&mut self, conn: ConnId) -> usize;

    /// Notes that the last `len_bytes` of its queue show changes up to this position of the change
    /// log: they are sent once that is released.
    fn shows(&mut self, conn: ConnId, len_bytes: usize, position: u64);
}
