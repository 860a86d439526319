//! The messages that the threads of an engine leave for each other's clients, and the threads to
//! wake for them.
//!
//! A message for a client enters the inbox of its thread at once, under the locks that the sender
//! holds, so that messages have the order of the changes. Waking that thread may be a system call:
//! it waits in the sender's [`Outbox`] until the sender holds no shard.

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

/// The part of an I/O thread that others use.
pub struct Port {
    /// Its counters.
    pub stats: CachePadded<ThreadStats>,
    /// Its connections, those on their way to it included: accepting picks the smallest.
    pub load: AtomicUsize,
    /// The messages of others for its clients.
    inbox: Inbox<Inbound>,
}

/// The messages that other threads leave for a thread's clients. They are taken every turn.
#[derive(Default)]
pub struct Inbound {
    /// Replies for blocked clients: at most one for each.
    pub deliveries: Vec<Delivery>,
    /// Killed clients, each once.
    pub kills: Vec<Killed>,
}

/// A client that its thread is to close.
pub struct Killed {
    /// Its connection.
    pub conn: ConnId,
    /// Its id: the connection may be another client's by then.
    pub client: u64,
}

/// The reply that a blocked client waited for.
pub struct Delivery {
    /// Its connection.
    pub conn: ConnId,
    /// The client's id.
    pub client: u64,
    /// The ticket of its wait.
    pub ticket: u64,
    /// The reply; empty where it went ahead, with the messages for a subscriber.
    pub reply: ByteQueue,
    /// Bytes of the reply, in whichever buffer.
    pub reply_bytes: usize,
    /// Messages that stand behind it.
    pub pushes: ByteQueue,
    /// The time for which its request ran.
    pub took: Duration,
    /// The position of the change log that it shows.
    pub position: u64,
}

/// Threads for which something was left and that may sleep. Whoever sends has one; the thread that
/// drives it wakes them when it holds no shard. Thread: one sender's.
#[derive(Default)]
pub struct Outbox {
    threads: RefCell<SmallVec<[usize; 8]>>,
    /// True if there are threads to wake: asked after each request.
    has_threads: Cell<bool>,
}

impl Outbox {
    /// Has a thread woken. O(threads to wake).
    pub fn wake(&self, thread: usize) {
        let mut threads = self.threads.borrow_mut();
        if !threads.contains(&thread) {
            threads.push(thread);
            self.has_threads.set(true);
        }
    }

    /// Returns true if no thread is to be woken.
    #[inline]
    pub fn is_empty(&self) -> bool {
        !self.has_threads.get()
    }

    /// Takes the threads to wake. The caller holds no shard, and wakes each.
    pub fn take(&self) -> SmallVec<[usize; 8]> {
        self.has_threads.set(false);
        std::mem::take(&mut *self.threads.borrow_mut())
    }
}

/// One port for each I/O thread, and the counters of the housekeeper and of replays.
pub struct Threads {
    ports: Box<[Port]>,
    housekeeper: CachePadded<ThreadStats>,
    replays: CachePadded<ThreadStats>,
}

/// The ports of the I/O threads.
impl std::ops::Deref for Threads {
    type Target = [Port];

    fn deref(&self) -> &[Port] {
        &self.ports
    }
}

impl Threads {
    /// Creates the ports of `threads` threads, with counters for `commands` commands.
    pub fn new(threads: usize, command_count: usize) -> Self {
        let port =
            |_| Port { stats: ThreadStats::new(command_count), load: 0.into(), inbox: Inbox::default() };
        Self {
            ports: (0..threads).map(port).collect(),
            housekeeper: ThreadStats::new(command_count),
            replays: ThreadStats::new(command_count),
        }
    }

    /// Returns the counters of an I/O thread, or of the housekeeper.
    #[inline]
    pub fn stats(&self, thread: Option<usize>) -> &ThreadStats {
        match thread {
            Some(thread) => &self.ports[thread].stats,
            None => &self.housekeeper,
        }
    }

    /// Walks the counters of all threads.
    pub fn all_stats(&self) -> impl Iterator<Item = &ThreadStats> {
        self.iter().map(|port| &*port.stats).chain([&*self.housekeeper, &*self.replays])
    }

    /// Adds what a thread counted that replayed a file, which has ended: changes, reads of keys,
    /// errors. One caller at a time.
    pub fn add_replay(&self, stats: &ThreadStats) {
        let Self { replays, .. } = self;
        replays.changes.add(stats.changes.get());
        replays.hits.add(stats.hits.get());
        replays.misses.add(stats.misses.get());
        replays.errors.add(stats.errors.get());
        replays.unexpected_errors.add(stats.errors.get());
    }

    /// Adds what the thread of a script that was debugged has counted, which has ended. One caller
    /// at a time, and none beside [`Threads::add_replay`].
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

    /// Sums a counter over all threads.
    pub fn sum(&self, counter: impl Fn(&ThreadStats) -> &Counter) -> u64 {
        self.all_stats().map(|stats| counter(stats).get()).fold(0, u64::wrapping_add)
    }

    /// Returns the times of the command with this id on all threads.
    pub fn times_of(&self, id: usize) -> Times {
        Times::of(self.all_stats().filter_map(|stats| stats.commands[id].times.get()))
    }

    /// Returns the end-to-end times of the command with this id on all threads.
    pub fn end_to_end_of(&self, id: usize) -> Times {
        Times::of(self.all_stats().filter_map(|stats| stats.commands[id].end_to_end.get()))
    }

    /// Returns the end-to-end times of all commands on all threads.
    pub fn end_to_end(&self) -> Times {
        let commands = self.all_stats().flat_map(|stats| &stats.commands);
        Times::of(commands.filter_map(|command| command.end_to_end.get()))
    }

    /// Takes what was left for a thread's clients; `None` when there is nothing
    /// new. That thread only.
    pub fn take(&self, thread: usize) -> Option<Inbound> {
        self[thread].inbox.take()
    }

    /// Leaves the reply of a blocked client for its thread. Any thread; a leaf in the lock order.
    pub fn deliver(&self, thread: usize, delivery: Delivery, outbox: &Outbox) {
        if self[thread].inbox.leave(|inbound| inbound.deliveries.push(delivery)) {
            outbox.wake(thread);
        }
    }

    /// Has the client's thread close it, and takes it out of the registry at once; whether nobody
    /// had asked for that before. Any thread; a leaf in the lock order. If it is blocked, the
    /// caller ends that ([`BlockedClients::end_of`](crate::wait::BlockedClients::end_of)).
    pub fn kill(&self, clients: &Clients, client: &ClientInfo, outbox: &Outbox) -> bool {
        let is_first = !client.state.kill_requested.swap(true, Relaxed);
        if is_first {
            self.unregister(clients, client);
            self.leave_kill(client, outbox);
        }
        is_first
    }

    /// Kills the client to evict next, as [`kill`](Self::kill) does, and returns it with the bytes
    /// that it counted for; `None` if what clients hold fits into `limit_bytes` or the rest is
    /// protected.
    pub fn evict_one(
        &self,
        clients: &Clients,
        limit_bytes: u64,
        outbox: &Outbox,
    ) -> Option<(Arc<ClientInfo>, u64)> {
        loop {
            let (client, counted_bytes) = clients.take_largest_over(limit_bytes)?;
            self[client.thread].load.fetch_sub(1, Relaxed);
            // Else it is being killed already, and was about to leave the registry.
            if !client.state.kill_requested.swap(true, Relaxed) {
                self.leave_kill(&client, outbox);
                return Some((client, counted_bytes));
            }
        }
    }

    /// Takes a client out of the registry, if it is in it: it does not count as connected any more.
    pub fn unregister(&self, clients: &Clients, client: &ClientInfo) {
        if clients.remove(client.id) {
            self[client.thread].load.fetch_sub(1, Relaxed);
        }
    }

    fn leave_kill(&self, client: &ClientInfo, outbox: &Outbox) {
        let killed = Killed { conn: client.conn, client: client.id };
        if self[client.thread].inbox.leave(|inbound| inbound.kills.push(killed)) {
            outbox.wake(client.thread);
        }
    }
}
