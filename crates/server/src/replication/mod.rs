//! Replication: the connection between the decisions of the crate `replicate` and this server's
//! threads, sockets and files.
//!
//! ```text
//!   I/O thread: REPLCONF, PSYNC ─► the connection leaves its loop ─► thread "repl" adopts it
//!   threads merge the log ─► StreamReader ─► backlog ─► thread "repl" ─► replicas
//!   thread "repl": a cohort is due ─► thread "repl-sync": the point, the walk ─► spool ─► replicas
//! ```
//! The connections of replicas do not stay with the I/O threads, which sleep while a script owns
//! the keyspace: replicas would get no pings, and their acknowledgements would wait.
//!
//! | Module | Part |
//! |---|---|
//! | this one | the shared state |
//! | [`arrivals`] | handshakes and requests for synchronisation, before a connection moves |
//! | [`failover`] | the failover of this server |
//! | [`messages`] | the messages to that thread |
//! | [`table`], [`memory`] | replicas and the memory of the stream, as INFO shows them |
//! | [`spool`] | the snapshot between its writer and the replicas |
//! | [`upstream`] | the primary that this server follows |
//!
//! The threads are in [`crate::replicas`], the thread that writes the snapshot of a full sync in
//! [`crate::persistence::full_sync`].

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;

use engine::log::merger::ReaderId;
use replicate::history::ReplId;
use replicate::primary::Primary;
use stdx::mailbox::Mailbox;

use self::arrivals::Arrivals;
use self::failover::SharedFailover;
use self::messages::Message;
use self::upstream::Upstream;

pub mod arrivals;
pub mod failover;
pub mod memory;
pub mod messages;
pub mod spool;
pub mod table;
pub mod upstream;

/// The command PING, which an idle primary appends to the replication stream to keep the
/// connections alive.
pub const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// The state of replication that all threads of the server share.
pub struct Replication {
    primary: Mutex<Primary>,
    /// The identifier of the reader of the change log that appends to the backlog; `None` while it
    /// is not attached. Changed by exclusive owners of the keyspace.
    reader: Mutex<Option<ReaderId>>,
    /// The handshakes and synchronisation requests of connections that have not yet moved to the
    /// thread `repl`.
    pub arrivals: Arrivals,
    /// The ids of the clients of the replicas to disconnect. No other lock is taken under the lock.
    kills: Mutex<Vec<u64>>,
    /// The mailbox of the thread `repl`, which runs from the first request of a replica on.
    pub(crate) mailbox: OnceLock<Mailbox<Message>>,
    /// The handle of the thread `repl`, for whose end the server waits when it stops. The lock is
    /// also held during its start.
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    /// True if the thread `repl` was notified of new bytes or of replicas to disconnect, and has
    /// not handled them yet.
    pub(crate) notified: AtomicBool,
    /// The number of replicas' connections, which the thread `repl` owns. They count towards
    /// `maxclients`.
    pub link_count: AtomicUsize,
    /// The bytes of the replication stream that are queued for slow replicas, and no longer in the
    /// backlog.
    pub(crate) queued_bytes: AtomicU64,
    /// True when the thread `repl` must end.
    pub(crate) is_ending: AtomicBool,
    /// The number of clients that wait in WAIT or WAITAOF for acknowledgements of replicas.
    pub waiters: AtomicU64,
    /// The primary that this server follows, if any, and the link to it.
    pub upstream: Upstream,
    /// The state of this server's failover.
    pub failover: SharedFailover,
    /// The statistics of replication that INFO shows.
    pub figures: Figures,
}

/// The statistics of replication that INFO shows.
#[derive(Debug, Default)]
pub struct Figures {
    /// The number of full synchronisations that replicas got.
    pub sync_full: AtomicU64,
    /// The number of partial synchronisations that replicas got.
    pub sync_partial_ok: AtomicU64,
    /// The number of partial synchronisations that replicas requested but could not get, so that
    /// they got a full one.
    pub sync_partial_err: AtomicU64,
    /// The number of bytes sent to replicas.
    pub output_bytes: AtomicU64,
    /// The number of bytes received from replicas.
    pub input_bytes: AtomicU64,
}

impl Figures {
    /// Resets the statistics to 0, for CONFIG RESETSTAT.
    pub fn reset(&self) {
        let Self { sync_full, sync_partial_ok, sync_partial_err, output_bytes, input_bytes } = self;
        for figure in [sync_full, sync_partial_ok, sync_partial_err, output_bytes, input_bytes] {
            figure.store(0, Relaxed);
        }
    }
}

impl Replication {
    /// Creates the state of a primary without replicas, whose replication history has the ID `id`.
    pub fn new(id: ReplId) -> Self {
        Self {
            primary: Primary::new(id).into(),
            reader: Mutex::default(),
            arrivals: Arrivals::default(),
            kills: Mutex::default(),
            mailbox: OnceLock::new(),
            thread: Mutex::default(),
            notified: AtomicBool::new(false),
            link_count: AtomicUsize::new(0),
            queued_bytes: AtomicU64::new(0),
            is_ending: AtomicBool::new(false),
            waiters: AtomicU64::new(0),
            upstream: Upstream::default(),
            failover: SharedFailover::default(),
            figures: Figures::default(),
        }
    }

    /// Locks the state of the replication history, the backlog and the replicas. The lock is held
    /// for short times, and no other lock is taken under it.
    pub fn primary(&self) -> MutexGuard<'_, Primary> {
        self.primary.lock().expect("nothing panics while replication is locked")
    }

    /// Locks the identifier of the reader of the change log that appends to the backlog. Only
    /// exclusive owners of the keyspace change it.
    pub fn reader(&self) -> MutexGuard<'_, Option<ReaderId>> {
        self.reader.lock().expect("nothing panics while the reader is locked")
    }

    /// Notifies the thread `repl` that there are bytes to send or replicas to disconnect. Costs
    /// little if the thread is already notified.
    pub fn notify(&self) {
        // AcqRel: pairs with the swap in `replicas::thread`, which precedes its check of killed
        // replicas and of the backlog.
        if !self.notified.swap(true, AcqRel)
            && let Some(mailbox) = self.mailbox.get()
        {
            // If the mailbox is full, the thread is awake and checks all replicas.
            let _ = mailbox.send(Message::Feed);
        }
    }

    /// Requests that a replica is disconnected, after its client was removed from CLIENT LIST.
    pub fn kill(&self, client: u64) {
        self.kills().push(client);
        self.notify();
    }

    /// Returns the ids of the clients of the replicas to disconnect, and empties the list.
    pub fn take_kills(&self) -> Vec<u64> {
        std::mem::take(&mut *self.kills())
    }

    fn kills(&self) -> MutexGuard<'_, Vec<u64>> {
        self.kills.lock().expect("nothing panics while the kills are locked")
    }

    /// Requests an acknowledgement from all replicas for all changes up to `position` of the change
    /// log.
    pub fn request_ack(&self, position: u64) {
        self.primary().request_ack(position);
        self.notify();
    }

    /// Returns the number of replicas that have acknowledged all changes up to `position` of the
    /// change log.
    pub fn count_acked(&self, position: u64) -> i64 {
        self.primary().count_acked(position) as i64
    }

    /// Returns the number of replicas that have synced all changes up to `position` of the change
    /// log to their append-only files.
    pub fn count_synced(&self, position: u64) -> i64 {
        self.primary().count_synced(position) as i64
    }

    /// Stops the thread `repl` and waits for its end. The thread first sends as many bytes as the
    /// replicas' sockets accept at once. Called after all other threads of the server have ended.
    pub fn join(&self) {
        // Release: pairs with the Acquire of the thread.
        self.is_ending.store(true, Release);
        if let Some(mailbox) = self.mailbox.get() {
            // If the mailbox is full, the thread is awake and checks `is_ending` in each turn.
            let _ = mailbox.send(Message::Feed);
        }
        let thread = self.thread.lock().expect("nothing panics while it is locked").take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            tracing::error!("the replication thread panicked");
        }
    }

    /// Adds bytes that are sent to replicas to the statistics.
    pub fn note_output(&self, len_bytes: usize) {
        self.figures.output_bytes.fetch_add(len_bytes as u64, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kill_is_taken_once() {
        let replication = Replication::new(ReplId::NONE);
        replication.kill(3);
        replication.kill(5);
        assert_eq!((replication.take_kills(), replication.take_kills()), (vec![3, 5], vec![]));
    }
}
