//! The state of a client that other threads read and set: CLIENT LIST, CLIENT KILL, messages to
//! it.
//!
//! The client's own thread writes it with relaxed stores, except [`HeldBytes::counted_bytes`]: a
//! cache line or two per client, no lock on the request's path. The state that only its own thread
//! needs is in `session.rs`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use bitflags::bitflags;
use resp::Protocol;
use stdx::{Address, ConnId};

bitflags! {
    /// The mode of a client's tracking.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct Mode: u32 {
        /// It does.
        const ON = 1 << 0;
        /// By prefixes.
        const BCAST = 1 << 1;
        /// Only reads behind CLIENT CACHING YES.
        const OPTIN = 1 << 2;
        /// All reads but those behind CLIENT CACHING NO.
        const OPTOUT = 1 << 3;
        /// It gets no invalidations for its own changes (NOLOOP).
        const NOLOOP = 1 << 4;
        /// CLIENT CACHING was given for the next command.
        const CACHING = 1 << 5;
        /// The client that it redirects to has disconnected.
        const BROKEN = 1 << 6;
    }
}

/// A client's tracking, as other threads see it. Written by the client's thread, `BROKEN` by any.
#[derive(Debug, Default)]
pub struct TrackingState {
    pub(crate) mode: AtomicU32,
    pub(crate) redirect: AtomicU64,
}

impl TrackingState {
    /// Returns its mode.
    pub fn mode(&self) -> Mode {
        Mode::from_bits_retain(self.mode.load(Relaxed))
    }

    /// Adds to the mode.
    pub fn insert(&self, mode: Mode) {
        self.mode.fetch_or(mode.bits(), Relaxed);
    }

    /// Takes from the mode.
    pub fn remove(&self, mode: Mode) {
        self.mode.fetch_and(!mode.bits(), Relaxed);
    }

    /// Returns the client that it redirects to, 0 for none.
    pub fn redirect(&self) -> u64 {
        self.redirect.load(Relaxed)
    }
}

/// The memory that a client makes the server hold, in bytes.
#[derive(Debug, Default)]
pub struct HeldBytes {
    /// Unconsumed input, in bytes.
    pub pending_input_bytes: AtomicU64,
    /// Room behind it in the client's own buffer, in bytes; 0 without one.
    pub input_room_bytes: AtomicU64,
    /// Unsent output, in bytes.
    pub pending_output_bytes: AtomicU64,
    /// Capacity of the buffer that its unsent output stands in, in bytes; 0 without one.
    pub output_buffer_bytes: AtomicU64,
    /// The most unsent output it had, in bytes.
    pub output_peak_bytes: AtomicU64,
    /// Pieces of unsent output ahead of the last.
    pub pending_output_chunks: AtomicU64,
    /// Bytes of messages that wait for it in its thread's inbox.
    pub waiting_push_bytes: AtomicU64,
    /// Bytes of its transaction's queue.
    pub queued_bytes: AtomicU64,
    /// Bytes of what it names for later: watched keys, channels, prefixes of its cache.
    pub watched_and_subscribed_bytes: AtomicU64,
    /// Bytes of what it waits with, its places in the queues of its keys
    /// included; 0 while it does not.
    pub blocked_bytes: AtomicU64,
    /// Bytes of the words of the request that it waits with.
    pub blocked_text_bytes: AtomicU64,
    /// Its memory as it was counted last, 0 if it is not counted
    /// ([`Clients::count_memory`](crate::clients::Clients::count_memory)). Written under the lock
    /// of the registry, by any thread.
    pub counted_bytes: AtomicU64,
}

/// The traffic of a client.
#[derive(Debug, Default)]
pub struct Traffic {
    /// Commands it ran.
    pub commands: AtomicU64,
    /// Bytes it sent.
    pub input_bytes: AtomicU64,
    /// Bytes it was sent.
    pub output_bytes: AtomicU64,
    /// The time at which its last request ran.
    pub last_active_ms: AtomicU64,
    /// Id of its last command plus one; 0 for none.
    pub last_command: AtomicU64,
}

/// The choices of a client by CLIENT commands.
#[derive(Debug, Default)]
pub struct Choices {
    /// CLIENT NO-EVICT; set by [`Clients::protect`](crate::clients::Clients::protect).
    pub no_evict: AtomicBool,
    /// CLIENT NO-TOUCH.
    pub no_touch: AtomicBool,
    /// CLIENT IMPORT-SOURCE.
    pub import_source: AtomicBool,
    /// CLIENT CAPA REDIRECT.
    pub handles_redirects: AtomicBool,
}

/// The present state of a client.
#[derive(Debug, Default)]
pub struct State {
    /// It is closed once its replies are sent.
    pub closing: AtomicBool,
    /// It was killed; its thread closes it.
    pub kill_requested: AtomicBool,
    /// Its connection is closed, or closes once its replies are sent.
    pub gone: AtomicBool,
    /// Held back by CLIENT PAUSE.
    pub postponed: AtomicBool,
    /// It is a monitor (MONITOR).
    pub monitoring: AtomicBool,
}

/// A client as other threads see it. Times are milliseconds of the server's monotonic clock.
#[derive(Debug)]
pub struct ClientInfo {
    /// The session's id.
    pub id: u64,
    /// The thread it lives on.
    pub thread: usize,
    /// The connection on that thread.
    pub conn: ConnId,
    /// The file descriptor, for display.
    pub fd: i32,
    /// Whom it talks to.
    pub peer: Address,
    /// The server's end.
    pub local: Address,
    /// The time at which it connected.
    pub connected_ms: u64,
    /// Selected database.
    pub db: AtomicU64,
    /// RESP version.
    pub resp: AtomicU64,
    /// The keys that it tracks for its cache.
    pub tracking: TrackingState,
    /// Commands queued in its transaction, plus one; 0 without one.
    pub queued: AtomicU64,
    /// Its subscriptions: channels, patterns, shard channels.
    pub subscriptions: [AtomicU64; 3],
    /// Keys it watches.
    pub watched: AtomicU64,
    /// One of them changed. Set and read under the lock of the key's shard, but for display.
    pub watch_dirty: AtomicBool,
    /// The names, which rarely change.
    pub names: Mutex<ClientNames>,
    /// The memory that it makes the server hold, in bytes.
    pub held: HeldBytes,
    /// Its traffic.
    pub traffic: Traffic,
    /// Its choices by CLIENT commands.
    pub choices: Choices,
    /// Its present state.
    pub state: State,
}

/// A client's names. Guarded by a lock of its own, a leaf in the lock order.
#[derive(Clone, Debug, Default)]
pub struct ClientNames {
    /// CLIENT SETNAME.
    pub name: Vec<u8>,
    /// CLIENT SETINFO LIB-NAME.
    pub lib_name: Vec<u8>,
    /// CLIENT SETINFO LIB-VER.
    pub lib_version: Vec<u8>,
    /// The authenticated user.
    pub user: Vec<u8>,
}

/// The length of a session on its own thread, in bytes; `session.rs` checks it.
pub(crate) const SESSION_BYTES: usize = 256;

/// The thread and connection of a client.
pub struct Place {
    /// The thread.
    pub thread: usize,
    /// The connection there.
    pub conn: ConnId,
    /// The file descriptor, for display.
    pub fd: i32,
}

impl ClientInfo {
    /// Returns true if it has subscriptions: CLIENT LIST's type `pubsub`.
    pub fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Relaxed) > 0)
    }

    /// Counts bytes that it is sent. On its own thread only, so a plain load and store do.
    #[inline]
    pub fn count_output(&self, len_bytes: u64) {
        self.traffic.output_bytes.store(self.traffic.output_bytes.load(Relaxed) + len_bytes, Relaxed);
    }

    /// Creates a client that has just connected, with the addresses of both ends.
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

    /// Returns the bytes that the client makes the server hold:
    /// - its own structures, unconsumed input and unsent output;
    /// - the queued commands of a transaction;
    /// - a blocked request with its places in the queues of its keys;
    /// - the names of its watched keys, channels and prefixes.
    ///
    /// The free capacity after the input is not counted: it is address space until bytes arrive.
    pub fn memory_bytes(&self) -> u64 {
        const OWN: usize = size_of::<ClientInfo>() + SESSION_BYTES;
        OWN as u64
            + self.held.pending_input_bytes.load(Relaxed)
            + self.held.pending_output_bytes.load(Relaxed)
            + self.held.waiting_push_bytes.load(Relaxed)
            + self.held.queued_bytes.load(Relaxed)
            + self.held.watched_and_subscribed_bytes.load(Relaxed)
            + self.held.blocked_bytes.load(Relaxed)
    }

    /// Returns the protocol of replies and messages to it.
    #[inline]
    pub fn protocol(&self) -> Protocol {
        if self.speaks_resp3() { Protocol::Resp3 } else { Protocol::Resp2 }
    }

    /// Has commands reply in another protocol: while a script runs.
    #[inline]
    pub(crate) fn speak(&self, protocol: Protocol) {
        let version = if protocol == Protocol::Resp3 { 3 } else { 2 };
        if self.resp.load(Relaxed) != version {
            self.resp.store(version, Relaxed);
        }
    }

    /// Selects a database.
    #[inline]
    pub(crate) fn select(&self, db: usize) {
        self.db.store(db as u64, Relaxed);
    }

    /// Returns true if messages to it are written in RESP3.
    #[inline]
    pub fn speaks_resp3(&self) -> bool {
        self.resp.load(Relaxed) == 3
    }

    /// Locks the names, to read or change them.
    pub fn names(&self) -> std::sync::MutexGuard<'_, ClientNames> {
        self.names.lock().expect("nothing panics while a client's names are locked")
    }
}
