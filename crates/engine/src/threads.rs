//! The messages between the threads of an engine about each other's clients, and the threads to
//! wake for them.
//!
//! A message for a client enters the inbox of its thread at once, under the locks that the sender
//! holds. Messages therefore keep the order of the changes. Waking that thread may be a system
//! call. It is delayed by the sender's [`Outbox`] until the sender holds no shard.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crossbeam_utils::CachePadded;
use smallvec::SmallVec;
use stdx::{ByteQueue, ConnId};
use structures::inbox::Inbox;

use crate::client::ClientInfo;
use crate::clients::Clients;
use crate::stats::histogram::Times;
use crate::stats::{Counter, ThreadStats};

/// The part of an I/O thread's state that other threads use.
pub struct Port {
    /// The statistics counters of the thread.
    pub stats: CachePadded<ThreadStats>,
    /// The number of the thread's connections, including those being passed to it. A new connection
    /// is assigned to the thread with the lowest number.
    pub load: AtomicUsize,
    /// The messages from other threads for this thread's clients.
    inbox: Inbox<Inbound>,
}

/// The messages in a thread's inbox: those that other threads have left for its clients. The thread
/// takes them every turn (pass of its event loop).
#[derive(Default)]
pub struct Inbound {
    /// The replies for blocked clients that other threads have served, at most one for each.
    pub deliveries: Vec<Delivery>,
    /// The clients of this thread that were killed and must be closed, without duplicates.
    pub kills: Vec<Killed>,
}

/// A client that was killed (CLIENT KILL or a limit) and that its thread must close.
pub struct Killed {
    /// The connection of the killed client on its thread.
    pub conn: ConnId,
    /// The id of the killed client. It is needed because the connection may belong to another
    /// client by the time the thread takes this message.
    pub client: u64,
}

/// The reply to a blocked client, left in the inbox of the client's thread.
pub struct Delivery {
    /// The connection of the blocked client.
    pub conn: ConnId,
    /// The id of the blocked client.
    pub client: u64,
    /// The number of the client's wait for a key
    /// ([`BlockedClient::ticket`](crate::wait::BlockedClient::ticket)).
    pub ticket: u64,
    /// The reply; empty if it was sent before, among the messages to a client with subscriptions or
    /// tracking.
    pub reply: ByteQueue,
    /// The length of the reply in bytes, even if the reply was sent before.
    pub reply_bytes: usize,
    /// The messages (invalidations of cached keys) that follow the reply.
    pub pushes: ByteQueue,
    /// The time for which the blocked client's request ran, without the wait.
    pub took: Duration,
    /// The log position up to which the reply shows changes.
    pub position: u64,
    /// True if the client is to be disconnected after the reply.
    pub closes: bool,
}

/// The threads to wake because they have new messages and may sleep. Each thread that sends
/// messages has one outbox and uses it alone. It wakes the threads in it when it holds no shard's
/// lock.
#[derive(Default)]
pub struct Outbox {
    threads: RefCell<SmallVec<[usize; 8]>>,
    /// True if there are threads to wake. Read after each request that the sending thread runs.
    has_threads: Cell<bool>,
}

impl Outbox {
    /// Adds a thread to those to wake, unless it was added before. O(threads to wake).
    pub fn wake(&self, thread: usize) {
        let mut threads = self.threads.borrow_mut();
        if !threads.contains(&thread) {
            threads.push(thread);
            self.has_threads.set(true);
        }
    }

    /// Returns true if the outbox has no threads to wake.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_threads.get()
    }

    /// Removes the threads to wake from the outbox and returns them. The caller holds no shard's
    /// lock, and must wake each of them.
    pub fn take(&self) -> SmallVec<[usize; 8]> {
        self.has_threads.set(false);
        std::mem::take(&mut *self.threads.borrow_mut())
    }
}

/// The ports of the I/O threads (counters and inboxes), and the counters of the housekeeper, of
/// replays, of debugged scripts and of the applier of a primary's replication stream.
pub struct Threads {
    ports: Box<[Port]>,
    housekeeper: CachePadded<ThreadStats>,
    replays: CachePadded<ThreadStats>,
    applier: CachePadded<ThreadStats>,
}

/// The ports of the I/O threads.
impl std::ops::Deref for Threads {
    type Target = [Port];

    fn deref(&self) -> &[Port] {
        &self.ports
    }
}

impl Threads {
    /// Creates the ports of `threads` threads, with counters for `command_count` commands.
    pub fn new(threads: usize, command_count: usize) -> Self {
        let port =
            |_| Port { stats: ThreadStats::new(command_count), load: 0.into(), inbox: Inbox::default() };
        Self {
            ports: (0..threads).map(port).collect(),
            housekeeper: ThreadStats::new(command_count),
            replays: ThreadStats::new(command_count),
            applier: ThreadStats::new(command_count),
        }
    }

    /// Returns the counters of an I/O thread, or of the housekeeper for `None`.
    #[inline]
    pub fn stats(&self, thread: Option<usize>) -> &ThreadStats {
        match thread {
            Some(thread) => &self.ports[thread].stats,
            None => &self.housekeeper,
        }
    }

    /// Returns the counters of the applier of a primary's replication stream.
    pub fn applier_stats(&self) -> &ThreadStats {
        &self.applier
    }

    /// Iterates over the counters of all threads, including those of finished replays and debugged
    /// scripts.
    pub fn all_stats(&self) -> impl Iterator<Item = &ThreadStats> {
        self.iter().map(|port| &*port.stats).chain([&*self.housekeeper, &*self.replays, &*self.applier])
    }

    /// Adds the counts of a thread that has finished replaying an append-only file: changes, reads
    /// of keys, errors. Only one thread may call it at a time.
    pub fn add_replay(&self, stats: &ThreadStats) {
        let Self { replays, .. } = self;
        replays.changes.add(stats.changes.get());
        replays.hits.add(stats.hits.get());
        replays.misses.add(stats.misses.get());
        replays.errors.add(stats.errors.get());
        replays.unexpected_errors.add(stats.errors.get());
    }

    /// Adds the counts of a finished thread of a debugged script. Only one thread may call it at a
    /// time, and not together with [`Threads::add_replay`].
    pub fn add_debugged(&self, stats: &ThreadStats) {
        let Self { replays, .. } = self;
        replays.changes.add(stats.changes.get());
        replays.hits.add(stats.hits.get());
        replays.misses.add(stats.misses.get());
        replays.errors.add(stats.errors.get());
        replays.scripts.alone.add(stats.scripts.alone.get());
        for (command, of_script) in replays.commands.iter().zip(&stats.commands) {
            command.calls.add(of_script.calls.get());
            command.nanos.add(of_script.nanos.get());
            command.rejected.add(of_script.rejected.get());
            command.failed.add(of_script.failed.get());
        }
    }

    /// Sums a statistics counter over all threads.
    pub fn sum(&self, counter: impl Fn(&ThreadStats) -> &Counter) -> u64 {
        self.all_stats().map(|stats| counter(stats).get()).fold(0, u64::wrapping_add)
    }

    /// Returns the summed histogram of the running times of the command with this id on all
    /// threads.
    pub fn times_of(&self, id: usize) -> Times {
        Times::of(self.all_stats().filter_map(|stats| stats.commands[id].times.get()))
    }

    /// Returns the summed histogram of the end-to-end times of the command with this id on all
    /// threads.
    pub fn end_to_end_of(&self, id: usize) -> Times {
        Times::of(self.all_stats().filter_map(|stats| stats.commands[id].end_to_end.get()))
    }

    /// Returns the summed histogram of the end-to-end times of all commands on all threads.
    pub fn end_to_end(&self) -> Times {
        let commands = self.all_stats().flat_map(|stats| &stats.commands);
        Times::of(commands.filter_map(|command| command.end_to_end.get()))
    }

    /// Takes the messages for a thread's clients out of its inbox; `None` if there are no new ones.
    /// Called by that thread only.
    pub fn take(&self, thread: usize) -> Option<Inbound> {
        self[thread].inbox.take()
    }

    /// Leaves a reply for a blocked client in the inbox of its thread. Any thread may call this; no
    /// other lock is taken under the lock of the inbox.
    pub fn deliver(&self, thread: usize, delivery: Delivery, outbox: &Outbox) {
        if self[thread].inbox.leave(|inbound| inbound.deliveries.push(delivery)) {
            outbox.wake(thread);
        }
    }

    /// Kills a client: removes it from the registry at once, and makes its thread close it. Returns
    /// false if it was already being killed.
    ///
    /// Any thread may call this; no other lock is taken under the lock of the inbox. If the client
    /// is blocked, the caller must end its wait
    /// ([`BlockedClients::end_of`](crate::wait::BlockedClients::end_of)). If the client is a
    /// replica or the primary, the caller must make the owner of the connection close it.
    pub fn kill(&self, clients: &Clients, client: &ClientInfo, outbox: &Outbox) -> bool {
        let is_first = !client.state.kill_requested.swap(true, Relaxed);
        if is_first {
            self.unregister(clients, client);
            if !client.is_primary() {
                self.leave_kill(client, outbox);
            }
        }
        is_first
    }

    /// Kills the client to evict next, as [`kill`](Self::kill) does. Returns the client and its
    /// counted bytes; `None` if all clients fit into `limit_bytes`, or the rest is protected.
    pub fn evict_one(
        &self,
        clients: &Clients,
        limit_bytes: u64,
        outbox: &Outbox,
    ) -> Option<(Arc<ClientInfo>, u64)> {
        loop {
            let (client, counted_bytes) = clients.take_largest_over(limit_bytes)?;
            self[client.thread].load.fetch_sub(1, Relaxed);
            // Otherwise it was being killed already, and about to be removed from the registry.
            if !client.state.kill_requested.swap(true, Relaxed) {
                self.leave_kill(&client, outbox);
                return Some((client, counted_bytes));
            }
        }
    }

    /// Removes a client from the registry, if it is registered. From then on it does not count as
    /// connected.
    pub fn unregister(&self, clients: &Clients, client: &ClientInfo) {
        if clients.remove(client.id).is_some_and(|client| !client.is_link()) {
            self[client.thread].load.fetch_sub(1, Relaxed);
        }
    }

    /// Marks a client as a replica, when its connection leaves its I/O thread. Returns false if the
    /// client has been killed meanwhile; its connection must then be closed.
    pub fn mark_replica(&self, clients: &Clients, client: &ClientInfo) -> bool {
        let is_marked = clients.mark_replica(client);
        if is_marked {
            self[client.thread].load.fetch_sub(1, Relaxed);
        }
        is_marked
    }

    fn leave_kill(&self, client: &ClientInfo, outbox: &Outbox) {
        let killed = Killed { conn: client.conn, client: client.id };
        if self[client.thread].inbox.leave(|inbound| inbound.kills.push(killed)) {
            outbox.wake(client.thread);
        }
    }
}
