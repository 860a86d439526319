//! A client's session: what a connection means to the server.
//!
//! Two halves. [`Session`] belongs to the connection's thread and is touched by every request without
//! any synchronisation. [`ClientInfo`] is what other threads may see of it (CLIENT LIST, KILL): written
//! by the owner with relaxed stores, a cache line or two per client, no lock on the request's path.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use net::{Address, ConnId};
use resp::Protocol;
use resp::parse::Progress;

use crate::follow::Waiter;
use crate::pubsub::Subscriptions;
use crate::shared::Shared;
use crate::tracking::{Tracker, TrackingState};
use crate::transaction::{Transaction, Watch};

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
    /// Held back until the client has read its replies; its input waits.
    Stalled,
    /// Held back until a key has what the client waits for (BLPOP); its input waits.
    Waiting,
    /// Held back until threads have taken the messages that it and others published; its input waits.
    Crowded,
    /// Held back until what its request discarded is freed (FLUSHALL SYNC); its reply and input wait.
    Freeing,
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
    /// Selected database.
    pub db: usize,
    /// Protocol of the replies.
    pub protocol: Protocol,
    /// Whether it may run commands that need authentication.
    pub authenticated: bool,
    /// Whether replies are sent.
    pub reply_mode: ReplyMode,
    /// Whether reads leave access clocks alone.
    pub no_touch: bool,
    /// Whether requests run.
    pub flow: Flow,
    /// The turn that answered it last, by its thread's clock; 0 for none.
    pub answered: u64,
    /// How far an incomplete request was parsed.
    pub progress: Progress,
    /// Since when its output is over the soft limit, in milliseconds of the server's clock.
    pub soft_limit_since_ms: Option<u64>,
    /// Its connection is in its thread's [`RunQueue`](crate::run_queue::RunQueue).
    pub is_queued: bool,
    /// Its unsent output is looked at after each flush.
    pub is_behind: bool,
    /// How it tracks keys for its cache; `None` if it does not.
    pub tracking: Option<Box<Tracker>>,
    /// It is told all commands (MONITOR).
    pub monitoring: bool,
    /// Its transaction runs.
    pub in_exec: bool,
    /// The transaction that is being queued.
    pub transaction: Option<Box<Transaction>>,
    /// Keys watched for the next transaction.
    pub watch: Option<Box<Watch>>,
    /// Channels it listens to; `None` for none.
    pub subscriptions: Option<Box<Subscriptions>>,
}

impl Session {
    /// Whether what it is told now is dropped, confirmations of subscriptions excepted.
    pub fn is_silenced(&self) -> bool {
        matches!(self.reply_mode, ReplyMode::Off | ReplyMode::Skip)
    }

    /// Ends what only a connection that asked for it is told: invalidations, MONITOR. The caller holds no
    /// shard's lock.
    pub fn stop_listening(&mut self, shared: &Shared) {
        self.stop_tracking(shared);
        if std::mem::take(&mut self.monitoring) {
            shared.monitors.remove(&self.info);
        }
    }

    /// Ends its tracking, if it tracks. The caller holds no shard's lock.
    pub fn stop_tracking(&mut self, shared: &Shared) {
        if let Some(tracker) = self.tracking.take() {
            shared.tracking.disable(shared, *tracker);
        }
    }

    /// Notes what the client waits for, for others to see. Its keys are in their queues already.
    pub fn wait(&mut self, waiter: Arc<Waiter>, shared: &Shared) {
        self.flow = Flow::Waiting;
        shared.follows.waiting_clients().fetch_add(1, Relaxed);
        *self.info.waiter() = Some(Arc::clone(&waiter));
        // Who asks for its end looks for the waiter behind the flag, and this looks for the flag behind the waiter, with
        // the waiter's lock between: one of them ends the wait.
        if self.info.kill_requested.load(Relaxed) {
            shared.follows.end(&waiter);
        }
    }

    /// Takes the client out of the queues it waits in, if any. The caller holds no shard's lock. O(its keys).
    pub fn end_wait(&mut self, shared: &Shared) {
        let Some(waiter) = self.info.waiter().take() else { return };
        shared.follows.end(&waiter);
        for (index, key) in waiter.keys.iter().enumerate() {
            let mut shard = shared.keyspace.lock(keyspace::key::shard_of(key.hash));
            if shared.follows.remove_waiter(&waiter, index) {
                shard.remove_follower();
            }
        }
    }
}

/// What other threads may know and ask of a client. Times are milliseconds of the server's monotonic
/// clock.
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
    /// When it connected.
    pub connected_ms: u64,
    /// When its last request ran.
    pub last_active_ms: AtomicU64,
    /// Id of its last command plus one; 0 for none.
    pub last_command: AtomicU64,
    /// Commands it ran.
    pub commands: AtomicU64,
    /// Bytes it sent.
    pub input_bytes: AtomicU64,
    /// Bytes it was sent.
    pub output_bytes: AtomicU64,
    /// Unconsumed input, in bytes.
    pub pending_input_bytes: AtomicU64,
    /// Room behind it in the client's own buffer, in bytes; 0 without one.
    pub input_room_bytes: AtomicU64,
    /// Unsent output, in bytes.
    pub pending_output_bytes: AtomicU64,
    /// Selected database.
    pub db: AtomicU64,
    /// RESP version.
    pub resp: AtomicU64,
    /// CLIENT NO-EVICT.
    pub no_evict: AtomicBool,
    /// Capacity of the buffer that its unsent output stands in, in bytes; 0 without one.
    pub output_buffer_bytes: AtomicU64,
    /// The most unsent output it had, in bytes.
    pub output_peak_bytes: AtomicU64,
    /// Pieces of unsent output ahead of the last.
    pub pending_output_chunks: AtomicU64,
    /// Bytes of its transaction's queue.
    pub queued_bytes: AtomicU64,
    /// Bytes of what it names for later: watched keys, channels, prefixes of its cache.
    pub named_bytes: AtomicU64,
    /// What of its memory is in its thread's sum (`crate::client_eviction`).
    pub counted_bytes: AtomicU64,
    /// CLIENT CAPA REDIRECT.
    pub handles_redirects: AtomicBool,
    /// CLIENT IMPORT-SOURCE.
    pub import_source: AtomicBool,
    /// CLIENT NO-TOUCH.
    pub no_touch: AtomicBool,
    /// It is closed once its replies are sent.
    pub closing: AtomicBool,
    /// Somebody asked for its end; its thread closes it.
    pub kill_requested: AtomicBool,
    /// Its connection is closed, or closes once its replies are sent.
    pub gone: AtomicBool,
    /// Held back by CLIENT PAUSE.
    pub postponed: AtomicBool,
    /// What it tracks for its cache.
    pub tracking: TrackingState,
    /// It is told all commands (MONITOR).
    pub monitoring: AtomicBool,
    /// Bytes of messages that wait for it in its thread's inbox.
    pub waiting_push_bytes: AtomicU64,
    /// What it waits for. Its lock is a leaf.
    pub waiter: Mutex<Option<Arc<Waiter>>>,
    /// Commands queued in its transaction, plus one; 0 without one.
    pub queued: AtomicU64,
    /// Its subscriptions: channels, patterns, shard channels.
    pub subscriptions: [AtomicU64; 3],
    /// Keys it watches.
    pub watched: AtomicU64,
    /// One of them changed. Set and read under the lock of the key's shard, but for display.
    pub watch_dirty: AtomicBool,
    /// What rarely changes.
    pub names: Mutex<ClientNames>,
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

/// All clients of all threads. Its lock is taken when a client comes or goes and by CLIENT LIST.
#[derive(Debug, Default)]
pub struct Registry {
    clients: Mutex<BTreeMap<u64, Arc<ClientInfo>>>,
    last_id: AtomicU64,
}

impl Registry {
    /// The next client's id, from 1 on.
    pub fn next_id(&self) -> u64 {
        self.last_id.fetch_add(1, Relaxed) + 1
    }

    /// Notes a client.
    pub fn add(&self, info: Arc<ClientInfo>) {
        self.lock().insert(info.id, info);
    }

    /// Forgets a client; whether it was there.
    pub fn remove(&self, id: u64) -> bool {
        self.lock().remove(&id).is_some()
    }

    /// The client with this id.
    pub fn get(&self, id: u64) -> Option<Arc<ClientInfo>> {
        self.lock().get(&id).cloned()
    }

    /// All clients, by id. O(n).
    pub fn all(&self) -> Vec<Arc<ClientInfo>> {
        self.lock().values().cloned().collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, Arc<ClientInfo>>> {
        self.clients.lock().expect("nothing panics while the registry is locked")
    }
}

/// Where a client is served.
pub struct Place {
    /// The thread.
    pub thread: usize,
    /// The connection there.
    pub conn: ConnId,
    /// The file descriptor, for display.
    pub fd: i32,
}

impl ClientInfo {
    /// Whether it has subscriptions: what CLIENT LIST calls a client of type `pubsub`.
    pub fn is_subscriber(&self) -> bool {
        self.subscriptions.iter().any(|count| count.load(Relaxed) > 0)
    }

    /// Counts bytes that it is sent. On its own thread only, so a plain load and store do.
    #[inline]
    pub fn count_output(&self, len_bytes: u64) {
        self.output_bytes.store(self.output_bytes.load(Relaxed) + len_bytes, Relaxed);
    }

    /// A client that has just connected, with the addresses of both ends.
    pub fn new(id: u64, at: Place, (peer, local): (Address, Address), now_ms: u64) -> Self {
        Self {
            id,
            thread: at.thread,
            conn: at.conn,
            fd: at.fd,
            peer,
            local,
            connected_ms: now_ms,
            last_active_ms: now_ms.into(),
            last_command: 0.into(),
            commands: 0.into(),
            input_bytes: 0.into(),
            output_bytes: 0.into(),
            pending_input_bytes: 0.into(),
            pending_output_bytes: 0.into(),
            input_room_bytes: 0.into(),
            output_buffer_bytes: 0.into(),
            output_peak_bytes: 0.into(),
            pending_output_chunks: 0.into(),
            named_bytes: 0.into(),
            counted_bytes: 0.into(),
            queued_bytes: 0.into(),
            handles_redirects: false.into(),
            import_source: false.into(),
            db: 0.into(),
            resp: 2.into(),
            no_evict: false.into(),
            no_touch: false.into(),
            closing: false.into(),
            kill_requested: false.into(),
            postponed: false.into(),
            tracking: TrackingState::default(),
            monitoring: false.into(),
            waiting_push_bytes: 0.into(),
            gone: false.into(),
            waiter: None.into(),
            queued: 0.into(),
            subscriptions: Default::default(),
            watched: 0.into(),
            watch_dirty: false.into(),
            names: ClientNames { user: b"default".to_vec(), ..ClientNames::default() }.into(),
        }
    }

    /// Bytes the client makes the server hold: its own structures, input that is not consumed, output that
    /// is not sent, a transaction that is queued, a request that waits with its places in the queues of its keys,
    /// keys, channels and prefixes it named.
    /// Room behind the input is left out: it is address space until bytes arrive.
    pub fn memory_bytes(&self) -> u64 {
        const OWN: usize = size_of::<ClientInfo>() + size_of::<Session>();
        OWN as u64
            + self.pending_input_bytes.load(Relaxed)
            + self.pending_output_bytes.load(Relaxed)
            + self.waiting_push_bytes.load(Relaxed)
            + self.queued_bytes.load(Relaxed)
            + self.named_bytes.load(Relaxed)
            + self.waiter().as_ref().map_or(0, |waiter| waiter.held_bytes as u64)
    }

    /// Bytes of the words of the request it waits with.
    pub fn waiting_request_bytes(&self) -> usize {
        self.waiter().as_ref().map_or(0, |waiter| waiter.args.text_bytes())
    }

    /// Whether messages to it are written in RESP3.
    pub fn speaks_resp3(&self) -> bool {
        self.resp.load(Relaxed) == 3
    }

    /// What the client waits for, to read or change.
    pub fn waiter(&self) -> std::sync::MutexGuard<'_, Option<Arc<Waiter>>> {
        self.waiter.lock().expect("nothing panics while a client's waiter is locked")
    }

    /// The names, to read or change.
    pub fn names(&self) -> std::sync::MutexGuard<'_, ClientNames> {
        self.names.lock().expect("nothing panics while a client's names are locked")
    }
}
