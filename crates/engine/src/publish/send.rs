//! The sender of messages to the inboxes of threads.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use stdx::ByteQueue;

use super::pubsub::{Kind, PubSub, Published};
use super::push::{Push, WAITING_BYTES_MAX};
use crate::client::ClientInfo;
use crate::clients::Clients;
use crate::threads::{Outbox, Threads};

/// The context for sending messages to clients. Any thread may use it: no other lock is taken under
/// any of its locks.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    /// The registry of the connected clients.
    pub clients: &'a Clients,
    /// The ports of all I/O threads.
    pub threads: &'a Threads,
    /// All subscriptions, and the inboxes of threads for messages to clients.
    pub pubsub: &'a PubSub,
    /// The index of the sending I/O thread, which needs no wake-up for its own inbox; `None` for
    /// other threads.
    pub thread: Option<usize>,
    /// The threads to wake because they have new messages.
    pub outbox: &'a Outbox,
    /// The log position that the messages show. The messages are sent once the changes up to it are
    /// safe enough for replies.
    pub position: u64,
}

impl Sender<'_> {
    /// Passes a message for a client to the inbox of the client's thread. O(1).
    pub fn push(&self, client: &Arc<ClientInfo>, bytes: &Arc<[u8]>) {
        // Relaxed: only a count; the lock of the inbox orders the messages.
        if client.held.waiting_push_bytes.load(Relaxed) > WAITING_BYTES_MAX {
            // The caller may hold the lock of the queues that this client is blocked in, so its
            // wait ends only when its connection is closed.
            if self.threads.kill(self.clients, client, self.outbox) {
                tracing::warn!(
                    client = client.id,
                    "client closed: too many bytes of Pub/Sub messages and invalidations are waiting for it"
                );
            }
            return;
        }
        self.hand_over(client, bytes);
    }

    /// Passes the reply of a client to the inbox of the client's thread, where the reply keeps its
    /// order among the messages for that client. Used for blocked clients with subscriptions or
    /// tracking. There is at most one reply for each request, so the limit of waiting bytes does
    /// not apply. O(bytes).
    #[cold]
    pub fn push_reply(&self, client: &Arc<ClientInfo>, reply: &ByteQueue) {
        let pieces: Vec<_> = reply.io_slices(usize::MAX);
        let bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        self.hand_over(client, &Arc::from(bytes));
    }

    fn hand_over(&self, client: &Arc<ClientInfo>, bytes: &Arc<[u8]>) {
        let push = Push::counted(self.pubsub.push_bytes(), client, bytes, self.position);
        if self.pubsub.hand_over(client.thread, push) {
            self.outbox.wake(client.thread);
        }
    }

    /// Publishes a message on a channel. `record`, if given, adds the message to the change log for
    /// replicas, under the lock of the channel.
    pub fn publish(&self, kind: Kind, message: (&[u8], &[u8]), record: Option<impl FnOnce()>) -> Published {
        let (published, wake) = self.pubsub.publish(kind, message, self.position, record);
        for thread in wake.into_iter().filter(|thread| self.thread != Some(*thread)) {
            self.outbox.wake(thread);
        }
        published
    }
}
