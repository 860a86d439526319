//! The state of one client that only its own thread uses, without locks or atomic operations. The
//! state that other threads use is in [`ClientInfo`].

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::FieldSets;
use keyspace::Keyspace;
use resp::Protocol;
use stdx::ConnId;

use crate::acl::{Identity, IdentityState, User, Users};
use crate::client::{ClientInfo, SESSION_BYTES};
use crate::log::level::Level;
use crate::publish::monitor::Monitors;
use crate::publish::pubsub::{Kind, Subscriptions};
use crate::scripting::Debugging;
use crate::track::{Tracker, Tracking};
use crate::transaction::{Transaction, Watch};
use crate::watch::Watchers;

/// The mode that CLIENT REPLY has set: the replies that are sent to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyMode {
    /// All replies are sent to the client (the default).
    On,
    /// No replies are sent to the client until CLIENT REPLY ON.
    Off,
    /// The reply to the next request is not sent to the client.
    SkipNext,
    /// The reply to the current request is not sent to the client.
    Skip,
}

/// The state of a session that determines when its requests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// The client's requests run as they arrive.
    Running,
    /// The client waits until CLIENT PAUSE ends or writes are permitted again. The input is kept.
    Postponed,
    /// The client waits until the change log has space for the client's writes. The input is kept.
    AwaitingLog,
    /// The client must first read its unread replies before more of its requests run. The input is
    /// kept.
    AwaitingReader,
    /// The client is blocked until a key has data for it, by a command such as BLPOP. The input is
    /// kept.
    Blocked,
    /// The client waits until threads have emptied their inboxes of published messages. The input
    /// is kept.
    AwaitingSubscribers,
    /// The client waits until the values that its request removed are freed (FLUSHALL SYNC). The
    /// reply and the input are kept.
    AwaitingFree,
    /// A script of the client is debugged: the client's input goes to the debugger.
    Debugging,
    /// The client waits because its address has tried to log in too often. The input is kept.
    AwaitingLogin,
    /// The connection is being moved to the thread of replication, because the client asked for the
    /// replication stream. The input is kept.
    Leaving,
    /// No more requests run: the connection is closed once its replies are sent.
    Closing,
}

/// A client's session: the state that only the client's own thread uses.
pub struct Session {
    /// The identification of the client's connection on its thread.
    pub conn: ConnId,
    /// The id of the client, unique in the life of the process.
    pub id: u64,
    /// The client's state for other threads.
    pub info: Arc<ClientInfo>,
    /// The user of the session and its rights.
    pub identity: Identity,
    /// The time at which the client's login (by a token) expires, in Unix seconds; 0 for never.
    pub expires_s: u64,
    /// The earliest time at which the client's next login attempt is processed, in milliseconds of
    /// the server's monotonic clock; 0 if it need not wait.
    pub login_slot_ms: u64,
    /// True if the audit log already has a line about a request of this client before
    /// authentication. There is only one such line per connection, so that a client cannot fill the
    /// disk.
    pub unauthenticated_noted: bool,
    /// The mode that CLIENT REPLY has set: the replies that the client receives.
    pub reply_mode: ReplyMode,
    /// The state that determines when the client's requests run.
    pub flow: Flow,
    /// The number of the last turn (pass of the event loop) of the client's thread in which the
    /// client got a reply; 0 if there was none.
    pub answered: u64,
    /// The state of the client's tracking (client-side caching); `None` if it does not track keys.
    pub tracking: Option<Box<Tracker>>,
    /// True while EXEC runs its transaction, or a script of the client runs.
    pub in_exec: bool,
    /// The mode that the client has set by SCRIPT DEBUG.
    pub debugging: Debugging,
    /// The transaction that the client is queuing; `None` outside MULTI.
    pub transaction: Option<Box<Transaction>>,
    /// The watched keys of the client's next transaction, and formerly watched keys that are not
    /// yet removed from the table of watchers.
    pub watch: Option<Box<Watch>>,
    /// The fieldsets that the client has prepared with HIMPORT.
    pub field_sets: FieldSets,
    /// The channels and patterns that the client is subscribed to; `None` for none.
    pub subscriptions: Option<Box<Subscriptions>>,
    /// The level of safety in the append-only file, such as synced, that changes must reach before
    /// replies that show them are sent.
    pub level: Level,
    /// The highest log position that the client's replies and messages show.
    observed_position: Cell<u64>,
    /// The log position of the client's last change.
    written_position: Cell<u64>,
}

// `ClientInfo::memory_bytes` counts a session without access to its type.
const _: () = assert!(size_of::<Session>() <= SESSION_BYTES);

impl Session {
    /// Creates the session of a client that has just connected.
    pub fn new(info: Arc<ClientInfo>, identity: Identity) -> Self {
        let field_sets = FieldSets::shown_in(Arc::clone(&info.held.field_set_bytes));
        Self {
            conn: info.conn,
            id: info.id,
            info,
            identity,
            expires_s: 0,
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
            field_sets,
            subscriptions: None,
            level: Level::default(),
            observed_position: Cell::new(0),
            written_position: Cell::new(0),
        }
    }

    /// Returns the highest log position that the client's replies and messages show. They are sent
    /// once changes up to this position are safe: replies at [`Session::level`].
    #[inline]
    pub fn observed_position(&self) -> u64 {
        self.observed_position.get()
    }

    /// Records that the client's replies or messages show changes up to log position `position`;
    /// they are then sent once these changes are safe.
    #[inline]
    pub fn saw(&self, position: u64) {
        self.observed_position.set(self.observed_position.get().max(position));
    }

    /// Returns the log position of the client's last change, which WAIT waits for; 0 for none.
    pub fn written_position(&self) -> u64 {
        self.written_position.get()
    }

    /// Records `position` as the log position of the client's last change. 0 stands for no change.
    #[inline]
    pub fn wrote(&self, position: u64) {
        self.written_position.set(self.written_position.get().max(position));
    }

    // State for other threads is stored in `info` only. Relaxed: only this thread writes it.

    /// Returns the number of the client's selected database.
    #[inline]
    pub fn db(&self) -> usize {
        self.info.db.load(Relaxed) as usize
    }

    /// Returns the protocol (RESP2 or RESP3) of the client's replies.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        self.info.protocol()
    }

    /// Returns true if the client's reads do not update access clocks (CLIENT NO-TOUCH).
    #[inline]
    pub fn is_no_touch(&self) -> bool {
        self.info.choices.no_touch.load(Relaxed)
    }

    /// Returns true if the client is a monitor, which receives all commands (MONITOR).
    #[inline]
    pub fn is_monitor(&self) -> bool {
        self.info.state.monitoring.load(Relaxed)
    }

    /// Returns true if the client's replies are currently not sent (CLIENT REPLY). Confirmations of
    /// subscriptions are sent anyway.
    pub fn is_silenced(&self) -> bool {
        matches!(self.reply_mode, ReplyMode::Off | ReplyMode::Skip)
    }

    /// Updates the session's rights after users have changed. Closes the session if its user was
    /// removed, or may no longer use a channel to which the client is subscribed.
    #[cold]
    pub fn refresh_rights(&mut self, users: &Users) {
        let before = Arc::clone(self.identity.user());
        let identity_state = self.identity.refresh(users);
        let loses_channel = || {
            let now = self.identity.user();
            !Arc::ptr_eq(&before, now)
                && self.subscriptions.as_ref().is_some_and(|all| !keeps_channels(now, &before, all))
        };
        if identity_state == IdentityState::Gone || loses_channel() {
            self.flow = Flow::Closing;
        }
    }

    /// Stops sending commands to the client if it is a monitor (MONITOR).
    pub fn stop_monitoring(&mut self, monitors: &Monitors) {
        if self.is_monitor() {
            monitors.remove(&self.info);
        }
    }

    /// Ends the client's tracking of keys, if it tracks any. The caller holds no shard's lock.
    pub fn stop_tracking(&mut self, tracking: &Tracking, keyspace: &Keyspace) {
        if let Some(tracker) = self.tracking.take() {
            tracking.disable(keyspace, *tracker);
        }
    }

    /// Returns the keys that the client watches for its next transaction; `None` if there are none.
    #[inline]
    pub fn watched(&self) -> Option<&Watch> {
        self.watch.as_deref().filter(|watch| !watch.is_over())
    }

    /// Removes the keys that the client watches. The caller is inside the gate (the keyspace's
    /// shared lock) and holds no shard's lock. A key remains if a busy script holds its shard. The
    /// next WATCH or EXEC removes it. O(watched keys).
    pub fn unwatch(&mut self, watchers: &Watchers, keyspace: &Keyspace) {
        if let Some(watch) = &mut self.watch
            && watch.end(watchers, keyspace)
        {
            self.watch = None;
        }
    }

    /// Ends the client's watch of keys without locking shards, for a caller that may not lock them.
    /// The keys are removed from the table of watchers later.
    pub fn unwatch_later(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.end_later();
        }
    }

    /// Removes the client's transaction and its watched keys. The caller holds no shard's lock.
    pub fn discard(&mut self, watchers: &Watchers, keyspace: &Keyspace) {
        self.drop_transaction();
        self.unwatch(watchers, keyspace);
    }

    /// Removes the client's transaction, if there is one, without running it.
    pub fn drop_transaction(&mut self) {
        self.transaction = None;
        self.info.queued.store(0, Relaxed);
        self.info.held.queued_bytes.store(0, Relaxed);
    }
}

/// Returns true if the user still has the right to all channels to which a client is subscribed.
/// `before` is the user before the change, `now` the user after it.
fn keeps_channels(now: &User, before: &User, subscriptions: &Subscriptions) -> bool {
    now.has_channels_of(before)
        || subscriptions.names(Kind::Channel).all(|name| now.permits_channel(name))
            && subscriptions.names(Kind::Shard).all(|name| now.permits_channel(name))
            && subscriptions.names(Kind::Pattern).all(|pattern| now.permits_channel_pattern(pattern))
}
