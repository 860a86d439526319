//! The state of a client that other threads read or change: for CLIENT LIST, CLIENT KILL, and
//! messages to the client.
//!
//! The client's own thread writes most fields, with relaxed stores. This costs a cache line or two
//! per client, and no lock in the path of a request. Any thread may write
//! [`HeldBytes::counted_bytes`], [`HeldBytes::waiting_push_bytes`], [`State::kill_requested`],
//! [`ClientInfo::watch_dirty`] and [`Mode::BROKEN`]. The state that only the client's own thread
//! needs is in `session.rs`.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bitflags::bitflags;
use resp::Protocol;
use stdx::{Address, ConnId};

bitflags! {
    /// The modes of a client's tracking (CLIENT TRACKING), as bits.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Mode: u32 {
        /// Tracking is on: the client receives invalidations of keys.
        const ON = 1 << 0;
        /// Keys with the client's prefixes are tracked, even if the client has not read them
        /// (BCAST).
        const BCAST = 1 << 1;
        /// Only keys that are read after CLIENT CACHING YES are tracked.
        const OPTIN = 1 << 2;
        /// All read keys are tracked, except those read after CLIENT CACHING NO.
        const OPTOUT = 1 << 3;
        /// The client receives no invalidations for its own changes.
        const NOLOOP = 1 << 4;
        /// CLIENT CACHING was called for the client's next command.
        const CACHING = 1 << 5;
        /// The client that receives the redirected invalidations has disconnected.
        const BROKEN = 1 << 6;
    }
}

/// The tracking state of a client. Written by the client's thread, `BROKEN` by any thread.
#[derive(Debug, Default)]
pub struct TrackingState {
    pub(crate) mode: AtomicU32,
    pub(crate) redirect: AtomicU64,
}

impl TrackingState {
    /// Returns the mode of the client's tracking.
    pub fn mode(&self) -> Mode {
        Mode::from_bits_retain(self.mode.load(Relaxed))
    }

    /// Sets the bits of `mode` in the client's tracking mode.
    pub fn insert(&self, mode: Mode) {
        self.mode.fetch_or(mode.bits(), Relaxed);
    }

    /// Clears the bits of `mode` in the client's tracking mode.
    pub fn remove(&self, mode: Mode) {
        self.mode.fetch_and(!mode.bits(), Relaxed);
    }

    /// Returns the id of the client that invalidations are redirected to; 0 for none.
    pub fn redirect(&self) -> u64 {
        self.redirect.load(Relaxed)
    }
}

/// The memory that a client makes the server hold, in bytes.
#[derive(Debug, Default)]
pub struct HeldBytes {
    /// Input of the client that is not consumed yet, in bytes.
    pub pending_input_bytes: AtomicU64,
    /// Free capacity after the input in the client's own input buffer, in bytes; 0 without such a
    /// buffer.
    pub input_room_bytes: AtomicU64,
    /// Output to the client that is not sent yet, in bytes.
    pub pending_output_bytes: AtomicU64,
    /// Capacity of the client's output buffer, in bytes; 0 without one.
    pub output_buffer_bytes: AtomicU64,
    /// The peak of the client's unsent output, in bytes.
    pub output_peak_bytes: AtomicU64,
    /// The number of chunks of unsent output, without the buffer that is being appended to.
    pub pending_output_chunks: AtomicU64,
    /// Bytes of the messages to the client that are still in its thread's inbox.
    pub waiting_push_bytes: AtomicU64,
    /// Bytes of the commands queued in the client's transaction.
    pub queued_bytes: AtomicU64,
    /// Bytes of the client's watched keys, channels, and tracked prefixes.
    pub watched_and_subscribed_bytes: AtomicU64,
    /// Bytes of the client's fieldsets (HIMPORT).
    pub field_set_bytes: Arc<AtomicU64>,
    /// Bytes of the client's blocked request, including the client's entries in the queues of the
    /// keys; 0 while it is not blocked.
    pub blocked_bytes: AtomicU64,
    /// Bytes of the arguments of the client's blocked request; 0 while it is not blocked.
    pub blocked_text_bytes: AtomicU64,
    /// The client's memory in bytes at its last count
    /// ([`Clients::count_memory`](crate::clients::Clients::count_memory)); 0 if it is not counted.
    /// Any thread may write it, under the lock of the registry.
    pub counted_bytes: AtomicU64,
}

/// The numbers of a client's commands and bytes, and its last activity.
#[derive(Debug, Default)]
pub struct Traffic {
    /// The number of commands that the client has run.
    pub commands: AtomicU64,
    /// The number of bytes received from the client.
    pub input_bytes: AtomicU64,
    /// The number of bytes sent to the client.
    pub output_bytes: AtomicU64,
    /// The time of the client's last request, in milliseconds of the server's monotonic clock.
    pub last_active_ms: AtomicU64,
    /// The id of the client's last command plus one; 0 for none.
    pub last_command: AtomicU64,
}

/// The modes that a client has set by CLIENT commands.
#[derive(Debug, Default)]
pub struct Choices {
    /// True after CLIENT NO-EVICT ON. Set by
    /// [`Clients::protect`](crate::clients::Clients::protect).
    pub no_evict: AtomicBool,
    /// True after CLIENT NO-TOUCH ON.
    pub no_touch: AtomicBool,
    /// True after CLIENT IMPORT-SOURCE ON.
    pub import_source: AtomicBool,
    /// True after CLIENT CAPA REDIRECT.
    pub handles_redirects: AtomicBool,
}

/// The flags about a client's connection, such as closing, killed, or monitor.
#[derive(Debug, Default)]
pub struct State {
    /// True if the connection will be closed once its replies are sent.
    pub closing: AtomicBool,
    /// True if the client was killed (CLIENT KILL or a limit). Its thread closes the connection.
    pub kill_requested: AtomicBool,
    /// True if the connection is closed, or will be closed once its replies are sent.
    pub gone: AtomicBool,
    /// True while CLIENT PAUSE postpones the client's requests until it ends.
    pub postponed: AtomicBool,
    /// True if the client uses MONITOR.
    pub monitoring: AtomicBool,
    /// True if the client is a replica, whose connection has left its I/O thread. Set by
    /// [`Threads::mark_replica`](crate::threads::Threads::mark_replica).
    pub(crate) replica: AtomicBool,
    /// True if the client is this server's own connection to its primary. Constant.
    primary: bool,
}

/// The state of a client for other threads. Times are milliseconds of the server's monotonic clock.
#[derive(Debug)]
pub struct ClientInfo {
    /// The id of the client, which is also the id of its session.
    pub id: u64,
    /// The index of the client's I/O thread; for a replica, of the thread that accepted it.
    pub thread: usize,
    /// The identification of the client's connection on that thread.
    pub conn: ConnId,
    /// The file descriptor of the connection, only for display.
    pub fd: i32,
    /// The network address of the client.
    pub peer: Address,
    /// The address of the server's end of the connection.
    pub local: Address,
    /// The time at which the client connected, in milliseconds.
    pub connected_ms: u64,
    /// The number of the client's selected database.
    pub db: AtomicU64,
    /// The version of RESP that the client uses, 2 or 3.
    pub resp: AtomicU64,
    /// The state of the client's tracking (client-side caching).
    pub tracking: TrackingState,
    /// 0 without a transaction; otherwise the number of commands queued in the client's
    /// transaction, plus one.
    pub queued: AtomicU64,
    /// The numbers of the client's subscriptions: channels, patterns, shard channels.
    pub subscriptions: [AtomicU64; 3],
    /// The number of keys that the client watches (WATCH).
    pub watched: AtomicU64,
    /// True if a watched key of the client has changed. Set and read under the lock of the key's
    /// shard, except for display.
    pub watch_dirty: AtomicBool,
    /// The names of the client, its library and its user.
    pub names: Mutex<ClientNames>,
    /// The memory that the client makes the server hold, in bytes.
    pub held: HeldBytes,
    /// The numbers of the client's commands and bytes, and its last activity.
    pub traffic: Traffic,
    /// The modes that the client has set by CLIENT commands, such as NO-EVICT.
    pub choices: Choices,
    /// The flags about the connection, such as closing, killed, or monitor.
    pub state: State,
}

/// The names of a client, its library and its user. No other lock is taken under their lock.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// The name that the client has set with CLIENT SETNAME.
    pub name: Vec<u8>,
    /// The library name that CLIENT SETINFO LIB-NAME has set.
    pub lib_name: Vec<u8>,
    /// The library version that CLIENT SETINFO LIB-VER has set.
    pub lib_version: Vec<u8>,
    /// The name of the user with whose rights the client acts.
    pub user: Vec<u8>,
}

/// The size of a session on its own thread, in bytes; `session.rs` checks it.
pub(crate) const SESSION_BYTES: usize = 256;

/// The thread, connection and file descriptor of a new client.
pub struct Place {
    /// The index of the client's I/O thread.
    pub thread: usize,
    /// The identification of the client's connection on that thread.
    pub conn: ConnId,
    /// The file descriptor of the connection, only for display.
    pub fd: i32,
}

impl ClientInfo {
    /// Returns true if the client has subscriptions: CLIENT LIST shows it with type `pubsub`.
    pub fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Relaxed) > 0)
    }

    /// Returns true if the client is a replica, whose connection does not belong to an I/O thread.
    pub fn is_replica(&self) -> bool {
        self.state.replica.load(Relaxed)
    }

    /// Returns true if the client is this server's connection to its primary, which does not belong
    /// to an I/O thread.
    pub fn is_primary(&self) -> bool {
        self.state.primary
    }

    /// Returns true if the client is a replica or the primary of this server: its connection does
    /// not belong to an I/O thread.
    pub fn is_link(&self) -> bool {
        self.is_primary() || self.is_replica()
    }

    /// Adds `len_bytes` to the bytes sent to the client. Only the client's own thread may call
    /// this, so a plain load and store are enough.
    #[inline]
    pub fn count_output(&self, len_bytes: u64) {
        self.traffic.output_bytes.store(self.traffic.output_bytes.load(Relaxed) + len_bytes, Relaxed);
    }

    /// Creates the state of a client that has just connected, with the addresses of both ends.
    pub fn new(id: u64, at: Place, (peer, local): (Address, Address), now_ms: u64) -> Self {
        Self {
            id,
            thread: at.thread,
            conn: at.conn,
            fd: at.fd,
            peer,
            local,
            connected_ms: now_ms,
            db: 0.into(),
            resp: 2.into(),
            tracking: TrackingState::default(),
            queued: 0.into(),
            subscriptions: Default::default(),
            watched: 0.into(),
            watch_dirty: false.into(),
            names: ClientNames { user: b"default".to_vec(), ..ClientNames::default() }.into(),
            held: HeldBytes::default(),
            traffic: Traffic { last_active_ms: now_ms.into(), ..Traffic::default() },
            choices: Choices::default(),
            state: State::default(),
        }
    }

    /// Creates the state of this server's connection to its primary as a client, with the addresses
    /// of both ends. The client is registered by [`Clients::add`](crate::clients::Clients::add).
    pub fn of_primary(id: u64, fd: i32, (peer, local): (Address, Address), now_ms: u64) -> Self {
        let place = Place { thread: 0, conn: ConnId::new(u32::MAX, 0), fd };
        let names = ClientNames { user: b"(superuser)".to_vec(), ..ClientNames::default() };
        Self {
            names: names.into(),
            state: State { primary: true, ..State::default() },
            ..Self::new(id, place, (peer, local), now_ms)
        }
    }

    /// Returns the bytes that the client makes the server hold:
    /// - its own structures, unconsumed input and unsent output;
    /// - the queued commands of a transaction, and the fieldsets;
    /// - a blocked request with its places in the queues of its keys;
    /// - the names of its watched keys, channels and prefixes.
    ///
    /// The free capacity of the input buffer is not counted: it takes no memory until bytes arrive.
    pub fn memory_bytes(&self) -> u64 {
        const OWN: usize = size_of::<ClientInfo>() + SESSION_BYTES;
        OWN as u64
            + self.held.pending_input_bytes.load(Relaxed)
            + self.held.pending_output_bytes.load(Relaxed)
            + self.held.waiting_push_bytes.load(Relaxed)
            + self.held.queued_bytes.load(Relaxed)
            + self.held.field_set_bytes.load(Relaxed)
            + self.held.watched_and_subscribed_bytes.load(Relaxed)
            + self.held.blocked_bytes.load(Relaxed)
    }

    /// Returns the protocol of replies and messages to the client.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        if self.speaks_resp3() { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// Sets the protocol of the replies to the client's commands. A running script sets another
    /// protocol for the replies to its own commands.
    #[inline]
    pub(crate) fn speak(&self, protocol: Protocol) {
        let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
        if self.resp.load(Relaxed) != version {
            self.resp.store(version, Relaxed);
        }
    }

    /// Selects a database for the client.
    #[inline]
    pub(crate) fn select(&self, db: usize) {
        self.db.store(db as u64, Relaxed);
    }

    /// Returns true if messages to the client are written in RESP3.
    #[inline]
    pub fn speaks_resp3(&self) -> bool {
        self.resp.load(Relaxed) == 3
    }

    /// Locks the names of the client, to read or change them.
    pub fn names(&self) -> std::sync::MutexGuard<'_, ClientNames> {
        self.names.lock().expect("nothing panics while a client's names are locked")
    }
}
