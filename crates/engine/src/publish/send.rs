//! Sending: what a message needs to get into the inbox of its client's thread.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use stdx::ByteQueue;

use super::pubsub::{Kind, PubSub, Published};
use super::push::{Push, WAITING_BYTES_MAX};
use crate::client::ClientInfo;
use crate::clients::Clients;
use crate::threads::{Outbox, Threads};

/// The sender of messages, and its ways. Any thread; everything here is a leaf in the lock order.
#[derive(Clone, Copy)]
pub struct Sender<'a> {
    /// All clients.
    pub clients: &'a Clients,
    /// All I/O threads.
    pub threads: &'a Threads,
    /// All subscriptions, and the inboxes.
    pub pubsub: &'a PubSub,
    /// The I/O thread that sends, if it is one: it looks into its own inbox without being woken.
    pub thread: Option<usize>,
    /// The threads to wake are noted here.
    pub outbox: &'a Outbox,
    /// The position of the change log that the messages show: they leave once it is released.
    pub position: u64,
}

impl Sender<'_> {
    /// Hands bytes to the thread of a client. O(1).
    pub fn push(&self, client: &Arc<ClientInfo>, bytes: &Arc<[u8]>) {
        // Relaxed: a count of its own; the inbox's lock orders the messages.
        if client.held.waiting_push_bytes.load(Relaxed) > WAITING_BYTES_MAX {
            // What it waits for ends with its connection: the caller may hold
            // the lock of just that.
            if self.threads.kill(self.clients, client, self.outbox) {
                tracing::warn!(client = client.id, "client closed: too many messages wait for it");
            }
            return;
        }
        self.hand_over(client, bytes);
    }

    /// Hands a reply to the thread of its client, to take its place among the messages for that: to
    /// a client that was blocked with subscriptions or caches what it reads. It is not held back by
    /// what waits there already; it is one for each request. O(bytes).
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

    /// Publishes a message on a channel.
    pub fn publish(&self, kind: Kind, channel: &[u8], payload: &[u8]) -> Published {
        let (published, wake) = self.pubsub.publish(kind, (channel, payload), self.position);
        for thread in wake.into_iter().filter(|thread| self.thread != Some(*thread)) {
            self.outbox.wake(thread);
        }
        published
    }
}
