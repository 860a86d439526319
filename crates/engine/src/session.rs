//! The state of one client on its own thread: used by every request without any synchronisation.
//! Its part for other threads is [`ClientInfo`].

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use keyspace::Keyspace;
use resp::Protocol;
use stdx::ConnId;

use crate::acl::{Identity, Standing, User, Users};
use crate::client::{ClientInfo, SESSION_BYTES};
use crate::publish::monitor::Monitors;
use crate::publish::pubsub::{Kind, Subscriptions};
use crate::scripting::Debugging;
use crate::track::{Tracker, Tracking};
use crate::transaction::{Transaction, Watch};
use crate::watch::Watchers;

/// The choice to send replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// They are.
    On,
    /// Not until CLIENT REPLY ON.
    Off,
    /// Not the next one.
    SkipNext,
    /// Not this one.
    Skip,
}

/// The flow of a session's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// As they come.
    Running,
    /// Held back while clients are paused (CLIENT PAUSE); its input waits.
    Postponed,
    /// Held back until the change log has room for what it writes; its input waits.
    AwaitingLog,
    /// Paused until the client has read its replies; its input waits.
    AwaitingReader,
    /// Blocked until a key has data for it (BLPOP); its input waits.
    Blocked,
    /// Paused until threads have taken the published messages; its input waits.
    AwaitingSubscribers,
    /// Paused until the values that its request removed are freed (FLUSHALL SYNC); its reply and
    /// input wait.
    AwaitingFree,
    /// A script of its is debugged: what it sends is for the debugger.
    Debugging,
    /// Held back because its address has tried to log in too often; its input waits.
    AwaitingLogin,
    /// No more: the connection closes once its replies are sent.
    Closing,
}

/// A client's session on its own thread.
pub struct Session {
    /// The connection.
    pub conn: ConnId,
    /// Never used twice in the life of the process.
    pub id: u64,
    /// Its part for other threads.
    pub info: Arc<ClientInfo>,
    /// Its identity.
    pub identity: Identity,
    /// The end of its login, in Unix seconds; 0 for never.
    pub ends_s: u64,
    /// The time from which its next attempt to log in may continue, in milliseconds of the
    /// server's clock; 0 if it need not wait.
    pub login_slot_ms: u64,
    /// True if the audit log has a line of a request that it made before it authenticated. One is
    /// enough: otherwise anybody could fill the disk.
    pub unauthenticated_noted: bool,
    /// The choice to send replies.
    pub reply_mode: ReplyMode,
    /// The flow of its requests.
    pub flow: Flow,
    /// The turn that answered it last, by its thread's clock; 0 for none.
    pub answered: u64,
    /// The tracking of keys for its cache; `None` if it does not track.
    pub tracking: Option<Box<Tracker>>,
    /// Its transaction runs, or its script.
    pub in_exec: bool,
    /// The debugging of its scripts.
    pub debugging: Debugging,
    /// The transaction that is being queued.
    pub transaction: Option<Box<Transaction>>,
    /// Keys watched for the next transaction.
    pub watch: Option<Box<Watch>>,
    /// Channels it listens to; `None` for none.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The last position of the change log that what it is sent shows.
    seen_position: Cell<u64>,
}

// `ClientInfo::memory_bytes` counts it without knowing it.
const _: () = assert!(size_of::<Session>() <= SESSION_BYTES);

impl Session {
    /// Creates the session of a client that has just connected.
    pub fn new(info: Arc<ClientInfo>, identity: Identity) -> Self {
        Self {
            conn: info.conn,
            id: info.id,
            info,
            identity,
            ends_s: 0,
            login_slot_ms: 0,
            unauthenticated_noted: false,
            reply_mode: ReplyMode::On,
            flow: Flow::Running,
            answered: 0,
            tracking: None,
            in_exec: false,
            debugging: Debugging::Off,
            transaction: None,
            watch: None,
            subscriptions: None,
            seen_position: Cell::new(0),
        }
    }

    /// Returns the last position of the change log that its replies and messages show: its replies
    /// wait for that.
    #[inline]
    pub fn seen_position(&self) -> u64 {
        self.seen_position.get()
    }

    /// Notes that what it is sent shows changes up to `position`.
    #[inline]
    pub fn saw(&self, position: u64) {
        self.seen_position.set(self.seen_position.get().max(position));
    }

    // What other threads may see stands in `info` only. Relaxed: only this thread writes it.

    /// Returns the selected database.
    #[inline]
    pub fn db(&self) -> usize {
        self.info.db.load(Relaxed) as usize
    }

    /// Returns the protocol of its replies.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.info.protocol()
    }

    /// Returns true if its reads leave access clocks alone (CLIENT NO-TOUCH).
    #[inline]
    pub fn is_no_touch(&self) -> bool {
        self.info.choices.no_touch.load(Relaxed)
    }

    /// Returns true if it is sent all commands (MONITOR).
    #[inline]
    pub fn is_monitor(&self) -> bool {
        self.info.state.monitoring.load(Relaxed)
    }

    /// Returns true if its replies are dropped now, confirmations of subscriptions excepted.
    pub fn is_silenced(&self) -> bool {
        matches!(self.reply_mode, ReplyMode::Off | ReplyMode::Skip)
    }

    /// Looks at the users again, which have changed, and ends the session if its user was removed,
    /// or has lost a channel that it listens to.
    #[cold]
    pub fn refresh_rights(&mut self, users: &Users) {
        let before = Arc::clone(self.identity.user());
        let standing = self.identity.refresh(users);
        let loses_channel = || {
            let now = self.identity.user();
            !Arc::ptr_eq(&before, now)
                && self.subscriptions.as_ref().is_some_and(|all| !keeps_channels(now, &before, all))
        };
        if standing == Standing::Gone || loses_channel() {
            self.flow = Flow::Closing;
        }
    }

    /// Ends MONITOR, if it is a monitor.
    pub fn stop_monitoring(&mut self, monitors: &Monitors) {
        if self.is_monitor() {
            monitors.remove(&self.info);
        }
    }

    /// Ends its tracking, if it tracks. The caller holds no shard's lock.
    pub fn stop_tracking(&mut self, tracking: &Tracking, keyspace: &Keyspace) {
        if let Some(tracker) = self.tracking.take() {
            tracking.disable(keyspace, *tracker);
        }
    }

    /// Returns the keys watched for the next transaction.
    #[inline]
    pub fn watched(&self) -> Option<&Watch> {
        self.watch.as_deref().filter(|watch| !watch.is_over())
    }

    /// Drops the watched keys. The caller is inside the gate and holds no shard's lock. What a busy
    /// script holds is dropped by a later call: before the next WATCH, after the next EXEC.
    /// O(watched keys).
    pub fn unwatch(&mut self, watchers: &Watchers, keyspace: &Keyspace) {
        if let Some(watch) = &mut self.watch
            && watch.end(watchers, keyspace)
        {
            self.watch = None;
        }
    }

    /// Unwatches as [`unwatch`](Self::unwatch) does, for a caller that may lock no shard: all is
    /// dropped later.
    pub fn unwatch_later(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.end_later();
        }
    }

    /// Drops the transaction and the watched keys. The caller holds no shard's lock.
    pub fn discard(&mut self, watchers: &Watchers, keyspace: &Keyspace) {
        self.drop_transaction();
        self.unwatch(watchers, keyspace);
    }

    /// Drops the transaction.
    pub fn drop_transaction(&mut self) {
        self.transaction = None;
        self.info.queued.store(0, Relaxed);
        self.info.held.queued_bytes.store(0, Relaxed);
    }
}

/// Returns true if the user still has all channels that a client listens to: `now` has taken the
/// place of `before`.
fn keeps_channels(now: &User, before: &User, subscriptions: &Subscriptions) -> bool {
    now.has_channels_of(before)
        || subscriptions.names(Kind::Channel).all(|name| now.permits_channel(name))
            && subscriptions.names(Kind::Shard).all(|name| now.permits_channel(name))
            && subscriptions.names(Kind::Pattern).all(|pattern| now.permits_channel_pattern(pattern))
}
