//! The primary that this server follows, as INFO, ROLE and the thread `primary-link` see it.

use std::io;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use stdx::mailbox::Mailbox;

/// The longest time for which a promotion waits until the received bytes of the replication stream
/// are applied.
const DRAIN_MAX: Duration = Duration::from_secs(1);

/// The address of a primary, as REPLICAOF gave it. The host name is looked up for each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryAddress {
    /// The name or the IP address of the primary's host.
    pub host: String,
    /// The TCP port on which the primary listens.
    pub port: u16,
}

impl PrimaryAddress {
    /// Returns true if both addresses are the same for REPLICAOF. The case of letters in the host
    /// name does not matter.
    pub fn is_same(&self, other: &Self) -> bool {
        self.port == other.port && self.host.eq_ignore_ascii_case(&other.host)
    }
}

/// The phase of the link to the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkPhase {
    /// There is no connection to the primary. The next attempt to connect begins soon.
    #[default]
    Connect,
    /// A connection to the primary is being opened.
    Connecting,
    /// The handshake with the primary is in progress.
    Handshake,
    /// A snapshot of the primary is being received or loaded.
    Transfer,
    /// The replication stream of the primary is being applied.
    Connected,
}

impl LinkPhase {
    /// Returns the name by which ROLE shows the phase of the link.
    pub fn role_word(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Connecting => "connecting",
            Self::Handshake => "handshake",
            Self::Transfer => "sync",
            Self::Connected => "connected",
        }
    }
}

/// The progress of receiving a snapshot of the primary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferProgress {
    /// The length of the snapshot in bytes; `None` if the primary has not sent it.
    pub total_bytes: Option<u64>,
    /// The number of bytes of the snapshot received so far.
    pub read_bytes: u64,
    /// The time at which bytes of the snapshot were last received, in milliseconds of the server's
    /// clock.
    pub last_io_ms: u64,
}

/// The state of a replica's link to its primary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// The address of the primary.
    pub primary: PrimaryAddress,
    /// The phase of the link to the primary.
    pub phase: LinkPhase,
    /// The time at which bytes were last received on this link, in milliseconds of the server's
    /// clock; `None` before the first ones.
    pub last_io_ms: Option<u64>,
    /// The time since which the link to the primary has been down, in milliseconds of the server's
    /// clock; `None` while it is up, and before it was up for the first time.
    pub down_since_ms: Option<u64>,
    /// The snapshot that is being received; `None` outside [`LinkPhase::Transfer`].
    pub transfer: Option<TransferProgress>,
    /// The reason for which the last attempt or connection failed, for INFO; empty if none has
    /// failed.
    pub last_error: String,
    /// The id of the client that represents the link to the primary in CLIENT LIST; `None` without
    /// a connection.
    pub client: Option<u64>,
}

impl Link {
    /// Creates the state of a link to `primary` that has not been opened yet.
    pub fn new(primary: PrimaryAddress) -> Self {
        Self {
            primary,
            phase: LinkPhase::default(),
            last_io_ms: None,
            down_since_ms: None,
            transfer: None,
            last_error: String::new(),
            client: None,
        }
    }
}

/// A message to the thread `primary-link`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkMessage {
    /// The request to check the state of the link: the primary has changed, the connection was
    /// killed, or the server ends.
    Look,
}

/// The function that starts the thread `primary-link`.
pub(crate) type Starter = Box<dyn FnOnce() -> io::Result<JoinHandle<()>> + Send>;

/// The primary that this server follows, if any, and the state of the link to it.
#[derive(Default)]
pub struct Upstream {
    /// The state of the link to the primary; `None` if this server is a primary. It is set and
    /// removed under the exclusive ownership of the keyspace only. No other lock is taken under the
    /// lock.
    link: Mutex<Option<Link>>,
    /// The epoch: the number of times that the primary was changed. A link that began in an earlier
    /// epoch must end.
    epoch: AtomicU64,
    /// The offset of the replication stream up to which its bytes were received.
    pub read_offset: AtomicU64,
    /// The number of commands of the replication stream that failed, for INFO.
    pub failed_commands: AtomicU64,
    /// True while a snapshot is loaded beside the present data, and clients can read this data.
    pub is_async_loading: AtomicBool,
    /// True if CLIENT KILL has requested the end of the connection, and the thread `primary-link`
    /// has not closed it yet.
    kill_requested: AtomicBool,
    /// True while a promotion waits until the received bytes of the replication stream are applied.
    drain_requested: Mutex<bool>,
    /// The condition variable that is notified when `drain_requested` becomes false.
    drained: Condvar,
    /// The mailbox of the thread `primary-link`; `None` unless the thread runs.
    pub(crate) mailbox: Mutex<Option<Arc<Mailbox<LinkMessage>>>>,
    /// The handle of the thread `primary-link`, for whose end the server waits when it stops. The
    /// lock is also held during its start.
    pub(crate) thread: Mutex<Option<JoinHandle<()>>>,
    /// The function that starts the thread `primary-link`; `None` once it was called, and when the
    /// server ends.
    pub(crate) starter: Mutex<Option<Starter>>,
}

impl Upstream {
    /// Locks the state of the link to the primary; `None` stands for a server that is a primary.
    pub fn link(&self) -> MutexGuard<'_, Option<Link>> {
        self.link.lock().expect("nothing panics while the link is locked")
    }

    /// Returns true if this server is a replica.
    pub fn is_replica(&self) -> bool {
        self.link().is_some()
    }

    /// Returns the epoch: the number of times that the primary was changed.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Relaxed)
    }

    /// Replaces the state of the link to the primary by `link`, which is `None` if the server
    /// becomes a primary, and begins a new epoch. Returns the former link. The caller is the
    /// exclusive owner of the keyspace.
    pub(crate) fn set_link(&self, link: Option<Link>) -> Option<Link> {
        let former = std::mem::replace(&mut *self.link(), link);
        // Relaxed: read inside the gate, which orders it.
        self.epoch.fetch_add(1, Relaxed);
        self.wake();
        former
    }

    /// Requests that the present connection to the primary is closed, for CLIENT KILL. The thread
    /// `primary-link` then opens a new one.
    pub fn kill(&self) {
        // Release: pairs with `take_kill`.
        self.kill_requested.store(true, Release);
        self.wake();
    }

    /// Returns true if the end of the connection to the primary was requested since the last call.
    /// Only the thread `primary-link` calls it.
    pub fn take_kill(&self) -> bool {
        self.kill_requested.swap(false, AcqRel)
    }

    /// Returns true if the replication stream of a primary is being applied, and on a primary.
    pub fn is_up(&self) -> bool {
        self.link().as_ref().is_none_or(|link| link.phase == LinkPhase::Connected)
    }

    /// Waits until all complete requests that have arrived from the primary are applied, at most
    /// for [`DRAIN_MAX`]. Returns at once if the link is not up. The caller is outside the gate
    /// that guards the keyspace.
    pub fn drain(&self) {
        let mut requested = self.drain_requested.lock().expect("nothing panics while it is locked");
        if !self.is_replica() || !self.is_up() {
            return;
        }
        *requested = true;
        self.wake();
        let waited = self.drained.wait_timeout_while(requested, DRAIN_MAX, |requested| *requested);
        *waited.expect("nothing panics while it is locked").0 = false;
    }

    /// Returns true while a promotion waits until the received requests of the replication stream
    /// are applied ([`Upstream::drain`]).
    pub(crate) fn is_drain_requested(&self) -> bool {
        *self.drain_requested.lock().expect("nothing panics while it is locked")
    }

    /// Ends the wait of a promotion ([`Upstream::drain`]), because all received requests of the
    /// replication stream are applied.
    pub(crate) fn end_drain(&self) {
        *self.drain_requested.lock().expect("nothing panics while it is locked") = false;
        self.drained.notify_all();
    }

    /// Wakes the thread `primary-link`, if it runs, to check the state of the link to the primary.
    pub fn wake(&self) {
        if let Some(mailbox) = &*self.mailbox.lock().expect("nothing panics while it is locked") {
            // If the mailbox is full, the thread is awake.
            let _ = mailbox.send(LinkMessage::Look);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_taken_once() {
        let upstream = Upstream::default();
        assert!(!upstream.take_kill());
        upstream.kill();
        assert_eq!((upstream.take_kill(), upstream.take_kill()), (true, false));
    }

    #[test]
    fn a_primary_and_a_connected_replica_are_up() {
        let upstream = Upstream::default();
        assert!(upstream.is_up() && !upstream.is_replica());
        let mut link = Link::new(PrimaryAddress { host: "a".to_owned(), port: 1 });
        upstream.set_link(Some(link.clone()));
        assert!(!upstream.is_up() && upstream.is_replica());
        link.phase = LinkPhase::Connected;
        upstream.set_link(Some(link));
        assert!(upstream.is_up());
    }
}
