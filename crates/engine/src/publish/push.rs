//! Messages to single connections that are not replies: invalidations of cached keys, lines of
//! MONITOR, and replies to blocked clients with subscriptions. Any thread passes them to the thread
//! of the connection, which appends them to the output in the order of arrival. They use the same
//! inbox of the thread as published messages (`pubsub.rs`). A client therefore receives an
//! invalidation before messages that were published later.
//!
//! The bytes in an inbox are counted per client. If more than [`WAITING_BYTES_MAX`] wait for a
//! client, its thread closes it, because it would miss messages. After the inbox, the client's
//! output limit applies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use resp::Reply;
use stdx::ConnId;

use super::Outputs;
use crate::client::ClientInfo;

/// The maximum number of bytes that may wait for one client in the inbox of its thread. A thread
/// empties its inbox in every pass of its event loop.
pub const WAITING_BYTES_MAX: u64 = 64 << 20;

/// The minimum length in bytes of a message that outputs hold by reference, shared by the
/// receivers. Shorter messages are copied.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// A message for one client that is not a reply.
pub struct Push {
    /// The connection of the client that receives the message.
    pub conn: ConnId,
    /// The client that receives the message.
    pub client: Arc<ClientInfo>,
    /// The message, encoded in the client's protocol.
    pub bytes: Arc<[u8]>,
    /// The log position up to which the message shows changes.
    pub position: u64,
}

/// Returns the memory, in bytes, that is counted for a message of this length. It is an upper
/// bound: the allocated block is rounded up, and the list of messages doubles its capacity.
fn counted_bytes(len_bytes: usize) -> u64 {
    (len_bytes + len_bytes / 4 + 2 * size_of::<Push>() + 32) as u64
}

impl Push {
    /// Creates a message for one client. Adds its length to the client's waiting bytes, and its
    /// memory to `push_bytes`, the total of all clients. The caller must put it into the inbox of
    /// the client's thread.
    pub fn counted(
        push_bytes: &AtomicU64,
        client: &Arc<ClientInfo>,
        bytes: &Arc<[u8]>,
        position: u64,
    ) -> Self {
        client.held.waiting_push_bytes.fetch_add(bytes.len() as u64, Relaxed);
        // Relaxed: the figure only serves the memory limit.
        push_bytes.fetch_add(counted_bytes(bytes.len()), Relaxed);
        Self { conn: client.conn, client: Arc::clone(client), bytes: Arc::clone(bytes), position }
    }

    /// Returns the number of bytes that this message counts in
    /// [`PubSub::push_bytes`](super::pubsub::PubSub::push_bytes).
    pub fn counted_bytes(&self) -> u64 {
        counted_bytes(self.bytes.len())
    }

    /// Appends the message to the output of its connection, on the client's own thread. Returns
    /// false if the connection is closed.
    pub fn deliver(self, outputs: &mut impl Outputs) -> bool {
        let len_bytes = self.bytes.len() as u64;
        self.client.held.waiting_push_bytes.fetch_sub(len_bytes, Relaxed);
        if self.client.state.gone.load(Relaxed) {
            return false;
        }
        let out = outputs.queue(self.conn);
        if self.bytes.len() < SHARED_BYTES_MIN {
            out.tail_mut().extend_from_slice(&self.bytes);
        } else {
            out.push_shared(Arc::new(self.bytes));
        }
        outputs.shows(self.conn, len_bytes as usize, self.position);
        self.client.count_output(len_bytes);
        true
    }

    /// Writes the message before the client's next reply, and counts its bytes with that reply.
    pub fn write(self, reply: &mut Reply<'_>) {
        self.client.held.waiting_push_bytes.fetch_sub(self.bytes.len() as u64, Relaxed);
        reply.raw(&self.bytes);
    }
}
