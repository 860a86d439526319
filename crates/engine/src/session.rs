//! What one client is, on its own thread: touched by every request without any synchronisation.
//! What other threads may see of it is [`ClientInfo`].

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

/// Whether replies are sent.
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

/// Whether a session's requests run.
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
    /// What others see.
    pub info: Arc<ClientInfo>,
    /// Who it is.
    pub identity: Identity,
    /// When its login ends, in Unix seconds; 0 for never.
    pub ends_s: u64,
    /// When its next try to log in may go on, in milliseconds of the server's clock, where it has
    /// to wait; 0 where it has not.
    pub login_slot_ms: u64,
    /// Whether the audit log has a line of a request that it made before it authenticated: one is
    /// enough, or else anybody could fill the disk.
    pub unauthenticated_noted: bool,
    /// Whether replies are sent.
    pub reply_mode: ReplyMode,
    /// Whether requests run.
    pub flow: Flow,
    /// The turn that answered it last, by its thread's clock; 0 for none.
    pub answered: u64,
    /// How it tracks keys for its cache; `None` if it does not.
    pub tracking: Option<Box<Tracker>>,
    /// Its transaction runs, or its script.
    pub in_exec: bool,
    /// Whether its scripts are debugged.
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
    /// The session of a client that has just connected.
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

    /// The last position of the change log that what it is sent shows: its replies wait for that.
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

    /// The selected database.
    #[inline]
    pub fn db(&self) -> usize {
        self.info.db.load(Relaxed) as usize
    }

    /// The protocol of its replies.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.info.protocol()
    }

    /// Whether its reads leave access clocks alone (CLIENT NO-TOUCH).
    #[inline]
    pub fn is_no_touch(&self) -> bool {
        self.info.choices.no_touch.load(Relaxed)
    }

    /// Whether it is sent all commands (MONITOR).
    #[inline]
    pub fn is_monitor(&self) -> bool {
        self.info.state.monitoring.load(Relaxed)
    }

    /// Whether what is sent to it now is dropped, confirmations of subscriptions excepted.
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

    /// The keys watched for the next transaction.
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

    /// As [`unwatch`](Self::unwatch), for a caller that may lock no shard: all is dropped later.
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

/// Whether all that a client listens to is its user's still: `now` has taken the place of `before`.
fn keeps_channels(now: &User, before: &User, subscriptions: &Subscriptions) -> bool {
    now.has_channels_of(before)
        || subscriptions.names(Kind::Channel).all(|name| now.permits_channel(name))
            && subscriptions.names(Kind::Shard).all(|name| now.permits_channel(name))
            && subscriptions.names(Kind::Pattern).all(|pattern| now.permits_channel_pattern(pattern))
}
