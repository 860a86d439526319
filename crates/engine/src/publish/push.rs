//! Messages for connections that did not ask for them just now: invalidations of cached keys, lines
//! of MONITOR, replies to subscribers that waited for a key. Any thread hands them to the thread of
//! the connection, which appends them in the order in which they came: they go through the same
//! inbox as published messages (`pubsub.rs`), so that a client gets an invalidation before what was
//! published after it.
//!
//! What waits in an inbox is counted per client; a client that lets more than
//! [`WAITING_BYTES_MAX`] wait there is closed by its thread, since it would miss messages. Past
//! the inbox the client's output limit holds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use resp::Reply;
use stdx::ConnId;

use super::Outputs;
use crate::client::ClientInfo;

/// Bytes that may wait in an inbox for one client. An inbox is emptied every turn.
pub const WAITING_BYTES_MAX: u64 = 64 << 20;

/// Messages from this size on are sent by reference, so that those who get the same one share it.
pub const SHARED_BYTES_MIN: usize = 16 * 1024;

/// A message for one connection.
pub struct Push {
    /// The connection.
    pub conn: ConnId,
    /// The client.
    pub client: Arc<ClientInfo>,
    /// The message, in the client's protocol.
    pub bytes: Arc<[u8]>,
    /// The position of the change log that it shows.
    pub position: u64,
}

/// Returns the most bytes of a message of this length: its block is rounded up, the list of
/// messages doubles.
fn counted_bytes(len_bytes: usize) -> u64 {
    (len_bytes + len_bytes / 4 + 2 * size_of::<Push>() + 32) as u64
}

impl Push {
    /// Creates a message that counts as waiting for its client, and in `push_bytes`. It must be
    /// put into the inbox of the client's thread.
    pub fn counted(
        push_bytes: &AtomicU64,
        client: &Arc<ClientInfo>,
        bytes: &Arc<[u8]>,
        position: u64,
    ) -> Self {
        client.held.waiting_push_bytes.fetch_add(bytes.len() as u64, Relaxed);
        // Relaxed: a figure for the memory limit.
        push_bytes.fetch_add(counted_bytes(bytes.len()), Relaxed);
        Self { conn: client.conn, client: Arc::clone(client), bytes: Arc::clone(bytes), position }
    }

    /// Returns its part of [`PubSub::push_bytes`](super::pubsub::PubSub::push_bytes).
    pub fn counted_bytes(&self) -> u64 {
        counted_bytes(self.bytes.len())
    }

    /// Appends it to the output of its connection, unless that is closed; whether it did. On
    /// the client's own thread.
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

    /// Writes it before the client's next reply, and counts it with that reply.
    pub fn write(self, reply: &mut Reply<'_>) {
        self.client.held.waiting_push_bytes.fetch_sub(self.bytes.len() as u64, Relaxed);
        reply.raw(&self.bytes);
    }
}
