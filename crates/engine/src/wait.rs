//! Blocked clients and the keys that they wait for.
//!
//! Beside the keyspace there is one table per shard. Each has a lock of its own, which is taken
//! under the shard's lock; only the shard's lock comes before it. The longest work under it is one
//! look-up. The shard counts the registrations of its keys: watchers, blocked clients and tracked
//! keys (`Shard::has_registrations`). So a write to a shard without any pays one load. A function
//! that reads or changes a queue takes the shard of the key as proof of the shard's lock.
//!
//! **A blocked client** is one [`BlockedClient`], shared by the queues of all its keys. A thread
//! that serves the client, or ends its wait, first claims the end of the wait: it sets `over` under
//! a lock of the client. Only the first thread succeeds; the others find it set
//! (`structures::claim`, with a model of all of it). Lock order: shards, then `over`, then the
//! tables here and the inboxes of threads.
//!
//! **Queues** are ordered by place: numbers drawn under the shard's lock. The client that waited
//! for a key first is therefore served first, on whichever thread it is. A client whose request
//! found nothing goes to the end of all its queues, as in Redis. A key has one queue for each type
//! of value that clients wait for, so a value of another type finds no client to check. A thread
//! that finds a client whose wait has ended removes it from that queue; the client's own thread
//! removes it from its other queues.
//!
//! **Keys to lock.** Serving a client runs its whole request. The request may need other shards
//! than the key's ([`BlockedClient::keys_when_served`]), and may fill a key that other clients wait
//! for (BLMOVE). Before a thread writes a key, it asks [`BlockedClients::keys_to_lock`] for the
//! keys of the first clients, as many as the command can add elements for. It locks these keys
//! before it writes, so that no other thread comes between a write and the serving that it causes.
//! The cost does not depend on the number of blocked clients.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use commands::{Args, Awaited, EmptyReply};
use keyspace::key::{KeyHash, SHARD_COUNT, shard_of};
use keyspace::{Key, Keyspace, Locked, Shard};
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::{ByteQueue, ConnId};
use structures::claim::Claim;
use structures::lock::Lock;

use crate::acl::Identity;
use crate::client::ClientInfo;
use crate::owned_args::OwnedArgs;
use crate::session::{Flow, Session};
use crate::table::Registered;
use crate::threads::Delivery;
use crate::track::TrackingClient;

/// The wait of a blocked client: its keys, its request and the end of the wait.
pub struct BlockedClient {
    /// The id of the wait: the first position number that the client got in the queues.
    pub ticket: u64,
    /// The client's position number in all its queues. A lower number is served first. It changes
    /// under the locks of all its keys.
    pub place: AtomicU64,
    /// The id of the blocked client.
    pub client: u64,
    /// The index of the blocked client's I/O thread.
    pub thread: usize,
    /// The connection of the blocked client on that thread.
    pub conn: ConnId,
    /// The number of the blocked client's selected database.
    pub db: usize,
    /// The protocol (RESP2 or RESP3) of the blocked client's reply.
    pub protocol: Protocol,
    /// True if the blocked client's reads update the access clocks of keys; false under CLIENT
    /// NO-TOUCH.
    pub touch: bool,
    /// True if the client imports data (CLIENT IMPORT-SOURCE). The treatment of expired keys is
    /// determined when the client is served, since `import-mode` may change in the meantime.
    pub is_import_source: bool,
    /// The user of the blocked client. Its rights are checked again when it is served.
    pub identity: Identity,
    /// The command that has blocked the client.
    pub registered: &'static Registered,
    /// The reply to the blocked client if the wait ends by its timeout.
    pub empty: EmptyReply,
    /// The time at which the timeout ends, in milliseconds of the server's clock; `None` without a
    /// timeout.
    pub deadline_ms: Option<u64>,
    /// The log position for which the client waits until replicas have it (WAIT); 0 for other
    /// commands.
    pub awaited_position: u64,
    /// The request of the blocked client as the client sent it.
    pub args: OwnedArgs,
    /// The request that runs when the client is served, if it differs from `args`.
    pub request: Option<OwnedArgs>,
    /// The blocked client as a tracking client; `None` if the keys that it reads are not tracked.
    pub reader: Option<Arc<TrackingClient>>,
    /// The client, if it has subscriptions or tracking and wants replies. Its reply is then sent
    /// through the inbox of messages, to keep the order among them.
    pub listener: Option<Arc<ClientInfo>>,
    /// The keys on which the client is blocked, without duplicates.
    pub keys: Vec<BlockedKey>,
    /// The number of leading keys that are in the same shard as the first key.
    pub first_shard_keys: usize,
    /// The other keys that the request names and may write to.
    pub destinations: Vec<DestinationKey>,
    /// The memory that the blocked client takes, in bytes, including the entries in the queues.
    pub held_bytes: usize,
    /// The claim on the end of the wait: set once the client was served or its wait has ended.
    /// After that, no thread serves the client. [`BlockedClients::end`] and
    /// [`BlockedClients::end_if`] set it.
    pub over: Claim,
}

impl BlockedClient {
    /// Returns the number of leading keys that the request reads when key number `index` is ready.
    /// A request for a list or sorted set reads the keys up to that key; a request for streams
    /// reads all.
    fn examined_keys(&self, index: usize) -> usize {
        match self.keys[index].awaited {
            Awaited::List | Awaited::Zset => index + 1,
            Awaited::Stream | Awaited::Group => self.keys.len(),
        }
    }

    /// Returns the hashes of the keys that serving this client may touch when key number `index` is
    /// ready, including that key.
    pub fn keys_when_served(&self, index: usize) -> impl Iterator<Item = KeyHash> {
        let examined_keys = self.keys[..self.examined_keys(index)].iter().map(|key| key.hash);
        examined_keys.chain(self.destinations.iter().map(|key| key.hash))
    }

    /// Returns true if serving this client may need more than the shard of key number `index`, when
    /// that key is ready. O(1).
    fn needs_other_shards(&self, index: usize) -> bool {
        !self.destinations.is_empty() || self.examined_keys(index) > self.first_shard_keys
    }

    /// Returns the request that runs when the blocked client is served.
    pub fn request(&self) -> &OwnedArgs {
        self.request.as_ref().unwrap_or(&self.args)
    }

    /// Writes the reply that the blocked client receives if the wait ends by its timeout.
    pub fn write_empty(&self, protocol: Protocol, out: &mut ByteQueue) {
        self.empty.write_after_waiting(&mut Reply::new(out, protocol));
    }

    /// Creates the message with the reply for a client whose wait ends without an element (timeout,
    /// CLIENT UNBLOCK). The caller has ended the wait ([`BlockedClients::end`]).
    pub fn delivery(&self, reply: ByteQueue) -> Delivery {
        Delivery {
            conn: self.conn,
            client: self.client,
            ticket: self.ticket,
            reply_bytes: reply.len_bytes(),
            reply,
            pushes: ByteQueue::new(),
            took: Duration::ZERO,
            position: 0,
            closes: false,
        }
    }
}

impl fmt::Debug for BlockedClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlockedClient {{ ticket: {}, client: {} }}", self.ticket, self.client)
    }
}

/// The longest delay between a timeout of a blocked client and its reply, in milliseconds.
const MARGIN_MS_MAX: u64 = 50;

/// Returns the uptime, in milliseconds, at which a client that blocks at `uptime` gets the reply
/// for its timeout: `timeout_ms` later, plus a margin of 10 to 50 ms.
///
/// The margin helps clients that wait for their socket exactly as long as the timeout that they
/// gave the server. Some do other work when their own timeout passes: Celery's transport then
/// passes on the messages of dead workers. With a reply at the exact time, the client's own timeout
/// would never pass, because it begins to wait after it has sent the request. Redis replies up to
/// 100 ms late, for another reason: it checks timeouts between two waits for events. A short
/// timeout has a short margin.
pub fn deadline_ms(uptime: Duration, timeout_ms: u64) -> u64 {
    let margin_ms = (10 + timeout_ms / 25).min(MARGIN_MS_MAX);
    // Rounded up, since part of a millisecond has passed.
    let from_ms = uptime.as_millis() as u64 + 1;
    from_ms.saturating_add(timeout_ms).saturating_add(margin_ms)
}

/// The command, timeout and timeout reply of a wait that does not depend on a key.
pub struct KeylessWait {
    /// The command that has blocked the client.
    pub registered: &'static Registered,
    /// The reply to the client if the wait ends by its timeout.
    pub empty: EmptyReply,
    /// The time at which the timeout ends, in milliseconds of the server's clock; `None` without a
    /// timeout.
    pub deadline_ms: Option<u64>,
    /// The log position for which the client waits until replicas have it (WAIT); 0 for other
    /// commands.
    pub awaited_position: u64,
}

/// A key on which a client is blocked.
pub struct BlockedKey {
    /// The name of the key on which the client is blocked.
    pub key: Box<[u8]>,
    /// The hash of the key on which the client is blocked.
    pub hash: KeyHash,
    /// The type of value that the client waits for at the key.
    pub awaited: Awaited,
}

/// An upper bound of the memory in bytes that one key of a blocked client takes, without the bytes
/// of its name. It covers the key's [`BlockedKey`] and its entry in the table of queues.
const BLOCKED_KEY_BYTES: usize = size_of::<BlockedKey>() + size_of::<Queues>() + 320;

impl BlockedKey {
    /// Returns an upper bound of the blocked key's memory in bytes, in this value and in the table
    /// of queues.
    pub fn held_bytes(&self) -> usize {
        BLOCKED_KEY_BYTES + 2 * self.key.len()
    }
}

/// A key that a blocked client's request may write to (BLMOVE's destination).
#[derive(Clone, PartialEq, Eq)]
pub struct DestinationKey {
    /// The hash of the key that may be written.
    pub hash: KeyHash,
    /// The name of the key that may be written.
    pub key: Box<[u8]>,
}

/// The maximum number of blocked clients that one [`BlockedClients::keys_to_lock`] examines. Keys
/// that later clients need are locked when they are served.
const EXAMINED_CLIENTS_MAX: usize = 256;

/// A set of shards that must be locked, with the hash of one key in each.
struct ShardsToLock {
    hashes: SmallVec<[KeyHash; 16]>,
    /// The shards that must be locked, one bit each.
    shards: [u64; SHARD_COUNT / 64],
}

impl ShardsToLock {
    /// Adds the shards of these keys. Stops when all shards are in the set. O(hashes).
    fn add(&mut self, mut hashes: impl Iterator<Item = KeyHash>) {
        while self.hashes.len() < SHARD_COUNT
            && let Some(hash) = hashes.next()
        {
            let (word, bit) = (shard_of(hash) / 64, 1 << (shard_of(hash) % 64));
            if self.shards[word] & bit == 0 {
                self.shards[word] |= bit;
                self.hashes.push(hash);
            }
        }
    }
}

/// The queue of the clients blocked on a key for one type of value, by position number. Each has
/// the index of the key among the client's keys.
type Queue = BTreeMap<u64, (Arc<BlockedClient>, usize)>;

/// The clients that are blocked on one key of one database.
#[derive(Default)]
struct Queues {
    db: usize,
    /// The queues by the type of value that clients wait for, in the order of [`Awaited::ALL`].
    queues: [Queue; Awaited::ALL.len()],
    /// The number of clients in these queues that may need more than this key's shard.
    multi_shard_clients: usize,
}

impl Queues {
    fn has_blocked_clients(&self) -> bool {
        self.queues.iter().any(|queue| !queue.is_empty())
    }
}

/// The queues of one shard by key name, then one for each database; few databases have the same
/// key.
type Table = HashMap<Box<[u8]>, Vec<Queues>>;

/// The blocked clients of one thread, by client id.
type OfThread = HashMap<u64, Arc<BlockedClient>, ahash::RandomState>;

/// The registry of all blocked clients: by thread, and in the queues of the keys that they wait
/// for.
pub struct BlockedClients {
    /// The blocked clients by thread. No other lock is taken under these locks.
    by_thread: Box<[Lock<OfThread>]>,
    tables: Box<[Lock<Option<Box<Table>>>]>,
    tickets: AtomicU64,
    blocked_clients: AtomicUsize,
    blocking_keys: AtomicUsize,
    group_keys: AtomicUsize,
    /// The clients whose wait has ended but that are still in a queue. Each has the index of the
    /// queue's key in [`BlockedClient::keys`]. No other lock is taken under this lock.
    left_behind: Lock<Vec<(Arc<BlockedClient>, usize)>>,
    left_behind_count: AtomicUsize,
}

impl BlockedClients {
    /// Creates the registry without blocked clients, for this number of threads.
    pub fn new(threads: usize) -> Self {
        let table = || Lock::new(HashMap::with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4)));
        Self {
            by_thread: (0..threads).map(|_| table()).collect(),
            tables: (0..SHARD_COUNT).map(|_| Lock::new(None)).collect(),
            tickets: AtomicU64::new(0),
            blocked_clients: AtomicUsize::new(0),
            blocking_keys: AtomicUsize::new(0),
            group_keys: AtomicUsize::new(0),
            left_behind: Lock::new(Vec::new()),
            left_behind_count: AtomicUsize::new(0),
        }
    }

    /// Records that a client is blocked. The client is already in the queues of its keys. The
    /// client's thread later calls [`BlockedClients::unblock`].
    pub fn block(&self, client: &ClientInfo, blocked: Arc<BlockedClient>) {
        self.blocked_clients.fetch_add(1, Relaxed);
        client.held.blocked_bytes.store(blocked.held_bytes as u64, Relaxed);
        client.held.blocked_text_bytes.store(blocked.args.text_bytes() as u64, Relaxed);
        self.by_thread[client.thread].lock().insert(client.id, Arc::clone(&blocked));
        // `end_of` reads the entry after the flag was set; this function reads the flag after the
        // entry was added. The table's lock is between both, so at least one of them ends the wait.
        if client.state.kill_requested.load(Relaxed) {
            self.end(&blocked);
        }
    }

    /// Blocks a client without keys. The client's own thread ends the wait.
    pub fn block_without_keys(&self, session: &mut Session, args: &Args<'_>, wait: KeylessWait) {
        let ticket = self.tickets.fetch_add(1, Relaxed) + 1;
        let args = OwnedArgs::new(args.from(0));
        let has_messages = session.subscriptions.is_some() || session.tracking.is_some();
        let blocked = BlockedClient {
            ticket,
            place: ticket.into(),
            client: session.id,
            thread: session.info.thread,
            conn: session.conn,
            db: session.db(),
            protocol: session.protocol(),
            touch: !session.is_no_touch(),
            is_import_source: session.info.choices.import_source.load(Relaxed),
            identity: session.identity.clone(),
            registered: wait.registered,
            empty: wait.empty,
            deadline_ms: wait.deadline_ms,
            awaited_position: wait.awaited_position,
            held_bytes: args.len_bytes(),
            args,
            request: None,
            reader: None,
            listener: (has_messages && !session.is_silenced()).then(|| Arc::clone(&session.info)),
            keys: Vec::new(),
            first_shard_keys: 0,
            destinations: Vec::new(),
            over: Claim::default(),
        };
        session.flow = Flow::Blocked;
        self.block(&session.info, Arc::new(blocked));
    }

    /// Returns the wait of a client; `None` if the client is not blocked.
    pub fn of(&self, client: &ClientInfo) -> Option<Arc<BlockedClient>> {
        // Relaxed: a client that becomes blocked at this moment may be seen as not blocked.
        self.by_thread[client.thread].lock().get(&client.id).cloned()
    }

    /// Ends the wait of a client, on its own thread, and removes it from its queues. In queues of
    /// shards that a busy script holds, the client remains until
    /// [`BlockedClients::remove_left_behind`]. The caller holds no shard's lock. O(its keys).
    pub fn unblock(&self, keyspace: &Keyspace, client: &ClientInfo) {
        let Some(blocked) = self.by_thread[client.thread].lock().remove(&client.id) else { return };
        client.held.blocked_bytes.store(0, Relaxed);
        client.held.blocked_text_bytes.store(0, Relaxed);
        self.end(&blocked);
        for (index, key) in blocked.keys.iter().enumerate() {
            match keyspace.lock_unless_busy(shard_of(key.hash)) {
                Some(mut shard) => _ = self.remove_blocked(&mut shard, &blocked, index),
                None => self.leave_behind(Arc::clone(&blocked), index),
            }
        }
    }

    /// Records that a client whose wait has ended remains in the queue of its key number `index`.
    /// No thread serves it there.
    #[cold]
    fn leave_behind(&self, blocked: Arc<BlockedClient>, index: usize) {
        let mut left_behind = self.left_behind.lock();
        left_behind.push((blocked, index));
        self.left_behind_count.store(left_behind.len(), Relaxed);
    }

    /// Returns true if clients are still in queues although their wait has ended.
    #[inline]
    pub fn has_left_behind(&self) -> bool {
        self.left_behind_count.load(Relaxed) > 0
    }

    /// Removes the clients whose wait has ended from queues of keys whose shards a busy script had
    /// locked. The caller is inside the gate (the keyspace's shared lock) and holds no shard's
    /// lock.
    #[cold]
    pub fn remove_left_behind(&self, keyspace: &Keyspace) {
        // Taken out of the list first, because a shard's lock comes before the list's lock.
        let left_behind = std::mem::take(&mut *self.left_behind.lock());
        self.left_behind_count.store(0, Relaxed);
        for (blocked, index) in left_behind {
            match keyspace.lock_unless_busy(shard_of(blocked.keys[index].hash)) {
                Some(mut shard) => _ = self.remove_blocked(&mut shard, &blocked, index),
                None => self.leave_behind(blocked, index),
            }
        }
    }

    /// Ends the wait of a killed client, now or when it begins to wait. From then on, no thread
    /// serves the client, because the element would be lost. The caller holds neither a shard's
    /// lock nor that of a blocked client.
    pub fn end_of(&self, client: &ClientInfo) {
        if let Some(blocked) = self.of(client) {
            self.end(&blocked);
        }
    }

    /// Returns the next free position number in the queues, for a client that will be blocked on
    /// keys of the locked shards.
    pub fn next_ticket(&self, _locked: &Locked<'_>) -> u64 {
        self.tickets.fetch_add(1, Relaxed) + 1
    }

    /// Returns the number of blocked clients.
    pub fn blocked_clients(&self) -> &AtomicUsize {
        &self.blocked_clients
    }

    /// Returns the number of keys on which clients are blocked.
    pub fn blocking_keys(&self) -> usize {
        self.blocking_keys.load(Relaxed)
    }

    /// Returns the number of streams for which XREADGROUP clients are blocked. The removal of such
    /// a key also ends their wait.
    pub fn group_keys(&self) -> usize {
        self.group_keys.load(Relaxed)
    }

    /// Returns the last assigned position number in the queues. Clients that are queued later have
    /// higher numbers.
    pub fn last_ticket(&self) -> u64 {
        self.tickets.load(Relaxed)
    }

    /// Ends a client's wait, so that no thread serves the client. Returns false if the wait had
    /// already ended.
    pub fn end(&self, waiter: &BlockedClient) -> bool {
        self.end_if(waiter, || true)
    }

    /// Calls `serve` unless the client's wait has ended, and ends the wait if `serve` returns true.
    /// Returns true if this call ended it. No other thread can end the wait during the call.
    pub fn end_if(&self, waiter: &BlockedClient, serve: impl FnOnce() -> bool) -> bool {
        let ended = waiter.over.end_if(serve);
        self.blocked_clients.fetch_sub(usize::from(ended), Relaxed);
        ended
    }

    /// Adds a blocked client to the queue of its key number `index`, which is in this shard.
    pub fn add_blocked(&self, shard: &mut Shard, waiter: &Arc<BlockedClient>, index: usize) {
        shard.add_registration();
        let key = &waiter.keys[index];
        self.with(waiter.db, &key.key, key.hash, |queues| {
            self.blocking_keys.fetch_add(usize::from(!queues.has_blocked_clients()), Relaxed);
            queues.multi_shard_clients += usize::from(waiter.needs_other_shards(index));
            let queue = &mut queues.queues[key.awaited as usize];
            let is_first_in_group = key.awaited == Awaited::Group && queue.is_empty();
            self.group_keys.fetch_add(usize::from(is_first_in_group), Relaxed);
            queue.insert(waiter.place.load(Relaxed), (Arc::clone(waiter), index));
        });
    }

    /// Removes a blocked client from the queue of its key number `index`, which is in this shard.
    /// Returns true if it was in the queue.
    pub fn remove_blocked(&self, shard: &mut Shard, waiter: &BlockedClient, index: usize) -> bool {
        let key = &waiter.keys[index];
        let mut removed = false;
        self.with(waiter.db, &key.key, key.hash, |queues| {
            let queue = &mut queues.queues[key.awaited as usize];
            removed = queue.remove(&waiter.place.load(Relaxed)).is_some();
            let was_last_in_group = removed && key.awaited == Awaited::Group && queue.is_empty();
            self.group_keys.fetch_sub(usize::from(was_last_in_group), Relaxed);
            queues.multi_shard_clients -= usize::from(removed && waiter.needs_other_shards(index));
            self.blocking_keys.fetch_sub(usize::from(removed && !queues.has_blocked_clients()), Relaxed);
        });
        if removed {
            shard.remove_registration();
        }
        removed
    }

    /// Moves a blocked client to the end of the queues of its keys, if the shards of all its keys
    /// are locked. Otherwise the client keeps its position: if it were removed from a queue without
    /// the lock, a thread that serves that queue could miss the client. O(its keys).
    pub fn requeue(&self, locked: &mut Locked<'_>, waiter: &Arc<BlockedClient>) {
        if !locked.holds(waiter.keys.iter().map(|key| key.hash)) {
            return;
        }
        // Its own thread may have removed it from some queues, because its wait has ended. It is
        // not added to these again.
        let mut stays: SmallVec<[bool; 4]> = SmallVec::new();
        for (index, key) in waiter.keys.iter().enumerate() {
            let shard = locked.shard_of_mut(key.hash).expect("it was looked for above");
            stays.push(self.remove_blocked(shard, waiter, index));
        }
        waiter.place.store(self.next_ticket(locked), Relaxed);
        for (index, key) in waiter.keys.iter().enumerate().filter(|(index, _)| stays[*index]) {
            let shard = locked.shard_of_mut(key.hash).expect("it was looked for above");
            self.add_blocked(shard, waiter, index);
        }
    }

    /// Returns true if clients are blocked on a key of this shard. O(1).
    pub fn has_blocked_clients(&self, _shard: &Shard, (db, key): (usize, Key<'_>)) -> bool {
        let mut has_blocked_clients = false;
        // Relaxed: clients blocked on this key increased the count under its shard's lock, which
        // the caller holds.
        if self.blocking_keys.load(Relaxed) > 0 {
            self.with_existing(db, key.bytes, key.hash, |queues| {
                has_blocked_clients = queues.has_blocked_clients()
            });
        }
        has_blocked_clients
    }

    /// Returns the keys that may be touched when clients blocked on `keys` are served, in any
    /// database. These are the keys of the first `served_max` clients blocked on each of them, and
    /// of clients blocked on keys that these clients' requests write. Returns one hash for each
    /// shard.
    ///
    /// The result is exact for keys whose shards are locked, if all returned keys are locked and
    /// none of these clients was unblocked. O(keys + examined clients), at most
    /// `EXAMINED_CLIENTS_MAX` of them.
    pub fn keys_to_lock<'k>(
        &self,
        keys: impl Iterator<Item = Key<'k>>,
        served_max: usize,
    ) -> SmallVec<[KeyHash; 16]> {
        let mut keys_when_served = ShardsToLock { hashes: SmallVec::new(), shards: [0; SHARD_COUNT / 64] };
        let mut destinations: Vec<DestinationKey> = Vec::new();
        let mut left = EXAMINED_CLIENTS_MAX;
        let mut visit = |key: &[u8], hash: KeyHash, destinations: &mut Vec<DestinationKey>| {
            let table = self.tables[shard_of(hash)].lock();
            let of_key = table.as_ref().and_then(|table| table.get(key));
            let far = of_key.into_iter().flatten().filter(|queues| queues.multi_shard_clients > 0);
            for queue in far.flat_map(|queues| &queues.queues) {
                for (waiter, index) in queue.values().take(served_max.min(left)) {
                    left -= 1;
                    keys_when_served.add(waiter.keys_when_served(*index));
                    for key in &waiter.destinations {
                        if !destinations.contains(key) {
                            destinations.push(key.clone());
                        }
                    }
                }
            }
        };
        for key in keys {
            visit(key.bytes, key.hash, &mut destinations);
        }
        let mut next = 0;
        while let Some(DestinationKey { hash, key }) = destinations.get(next).cloned() {
            visit(&key, hash, &mut destinations);
            next += 1;
        }
        keys_when_served.hashes
    }

    /// Returns the first client in the queues of a key in this shard whose position number is in
    /// `places`, and whose awaited type is in `met`. Also returns the client's position number, and
    /// the index of the key in [`BlockedClient::keys`].
    pub fn next_blocked(
        &self,
        _shard: &Shard,
        (db, key): (usize, Key<'_>),
        places: RangeInclusive<u64>,
        met: impl Fn(Awaited) -> bool,
    ) -> Option<(u64, Arc<BlockedClient>, usize)> {
        if places.is_empty() {
            return None;
        }
        let mut found = None;
        self.with_existing(db, key.bytes, key.hash, |queues| {
            let awaited = Awaited::ALL.into_iter().filter(|awaited| met(*awaited));
            let first =
                awaited.filter_map(|awaited| queues.queues[awaited as usize].range(places.clone()).next());
            let first = first.min_by_key(|(place, _)| **place);
            found = first.map(|(place, (waiter, index))| (*place, Arc::clone(waiter), *index));
        });
        found
    }

    /// Lists the keys of these databases on which clients are blocked. The caller owns the keyspace
    /// exclusively. O(blocking keys).
    pub fn keys_of(&self, dbs: &[usize]) -> Vec<(usize, Box<[u8]>)> {
        let mut keys = Vec::new();
        for table in &self.tables {
            for (key, queues) in table.lock().iter().flat_map(|table| table.iter()) {
                let concerned = queues.iter().filter(|queues| dbs.contains(&queues.db));
                keys.extend(concerned.map(|queues| (queues.db, key.clone())));
            }
        }
        keys
    }

    /// Calls `act` with the queues of clients blocked on a key; creates empty ones before if there
    /// are none. Removes the queues afterwards if they are empty.
    fn with(&self, db: usize, key: &[u8], hash: KeyHash, act: impl FnOnce(&mut Queues)) {
        let mut guard = self.tables[shard_of(hash)].lock();
        let table = guard.get_or_insert_default();
        if !table.contains_key(key) {
            // Most keys have blocked clients in only one database.
            table.insert(key.into(), Vec::with_capacity(1));
        }
        let of_key = table.get_mut(key).expect("it was inserted above");
        let at = of_key.iter().position(|queues| queues.db == db).unwrap_or_else(|| {
            of_key.push(Queues { db, ..Queues::default() });
            of_key.len() - 1
        });
        act(&mut of_key[at]);
        if !of_key[at].has_blocked_clients() {
            of_key.swap_remove(at);
        }
        if of_key.is_empty() {
            table.remove(key);
        }
    }

    fn with_existing(&self, db: usize, key: &[u8], hash: KeyHash, act: impl FnOnce(&mut Queues)) {
        let mut table = self.tables[shard_of(hash)].lock();
        let of_key = table.as_mut().and_then(|table| table.get_mut(key));
        if let Some(queues) = of_key.and_then(|of_key| of_key.iter_mut().find(|queues| queues.db == db)) {
            act(queues);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::CommandTable;

    #[test]
    fn issue_33_no_wait_ends_early() {
        let uptime = Duration::from_micros(1_000_999);
        let margins = [1, 20, 100, 500, 1_000, 1_001, 60_000].map(|timeout_ms| {
            let waited = Duration::from_millis(deadline_ms(uptime, timeout_ms)) - uptime;
            waited - Duration::from_millis(timeout_ms)
        });
        let ms = |margin_ms: u64| Duration::from_micros(margin_ms * 1_000 + 1);
        assert_eq!(margins, [10, 10, 14, 30, 50, 50, 50].map(ms));
        assert_eq!(deadline_ms(uptime, u64::MAX), u64::MAX);
    }

    /// A large number of blocked clients in tests. The number of examined clients must not depend
    /// on it.
    const WAITERS: usize = 10_000;

    /// Returns the name and hash of a key in this shard.
    fn key(shard: usize) -> (Box<[u8]>, KeyHash) {
        (shard.to_string().into_bytes().into(), KeyHash::first_of_shard(shard))
    }

    /// Creates tables without blocked clients, and an empty keyspace.
    fn new() -> (BlockedClients, Keyspace) {
        (BlockedClients::new(1), Keyspace::new(1, [1, 2, 3, 4]))
    }

    /// Blocks a client on one key in each of these shards. Its request may write to the other keys.
    fn wait(
        (blocked_clients, keyspace): &(BlockedClients, Keyspace),
        awaited: Awaited,
        shards: &[usize],
        destinations: &[usize],
    ) -> Arc<BlockedClient> {
        static TABLE: std::sync::OnceLock<CommandTable> = std::sync::OnceLock::new();
        let registered = TABLE
            .get_or_init(|| CommandTable::new(std::iter::empty()))
            .find(b"blpop")
            .expect("it is a command");
        let ticket = blocked_clients.next_ticket(&keyspace.lock_none());
        let keys = shards.iter().map(|&shard| key(shard));
        let destinations = destinations.iter().map(|&shard| key(shard));
        let waiter = Arc::new(BlockedClient {
            ticket,
            place: ticket.into(),
            client: ticket,
            thread: 0,
            conn: ConnId::from_u64(ticket),
            db: 0,
            protocol: Protocol::Resp2,
            touch: true,
            is_import_source: false,
            identity: Identity::internal(),
            registered,
            empty: EmptyReply::NullArray,
            deadline_ms: None,
            awaited_position: 0,
            args: OwnedArgs::default(),
            request: None,
            reader: None,
            listener: None,
            keys: keys.map(|(key, hash)| BlockedKey { key, hash, awaited }).collect(),
            first_shard_keys: 1,
            destinations: destinations.map(|(key, hash)| DestinationKey { hash, key }).collect(),
            held_bytes: 0,
            over: Claim::default(),
        });
        for (index, shard) in shards.iter().enumerate() {
            blocked_clients.add_blocked(&mut keyspace.lock(*shard), &waiter, index);
        }
        waiter
    }

    /// Returns the shards that a command must lock to serve `served_max` clients blocked on the key
    /// in `shard`.
    fn keys_to_lock(
        (blocked_clients, _): &(BlockedClients, Keyspace),
        shard: usize,
        served_max: usize,
    ) -> Vec<usize> {
        let (bytes, hash) = key(shard);
        let keys = std::iter::once(Key { bytes: &bytes, hash });
        let mut shards: Vec<usize> =
            blocked_clients.keys_to_lock(keys, served_max).into_iter().map(shard_of).collect();
        shards.sort_unstable();
        shards.dedup();
        shards
    }

    #[test]
    fn a_push_reaches_for_what_those_need_that_it_serves() {
        let blocked = new();
        (0..WAITERS).for_each(|_| drop(wait(&blocked, Awaited::List, &[1, 2, 3], &[])));
        assert_eq!(keys_to_lock(&blocked, 1, 1), [], "the first key is taken from first");
        assert_eq!(keys_to_lock(&blocked, 2, 1), [1, 2]);
        assert_eq!(keys_to_lock(&blocked, 3, WAITERS), [1, 2, 3]);
        assert_eq!(keys_to_lock(&blocked, 4, 1), []);

        let blocked = new();
        (0..WAITERS).for_each(|i| drop(wait(&blocked, Awaited::List, &[10 + i % 1000, 1], &[])));
        assert_eq!(keys_to_lock(&blocked, 1, 1), [1, 10], "each has a key of its own");
        assert_eq!(keys_to_lock(&blocked, 1, 3), [1, 10, 11, 12]);
        assert_eq!(keys_to_lock(&blocked, 1, WAITERS).len(), EXAMINED_CLIENTS_MAX + 1);

        let blocked = new();
        (0..WAITERS).for_each(|_| drop(wait(&blocked, Awaited::Stream, &[1, 2, 3], &[])));
        assert_eq!(keys_to_lock(&blocked, 1, 1), [1, 2, 3], "a reader reads all its streams");
    }

    #[test]
    fn a_push_reaches_for_what_is_filled_by_those_that_it_serves() {
        let blocked = new();
        (0..WAITERS).for_each(|i| drop(wait(&blocked, Awaited::List, &[1], &[10 + i % 1000])));
        assert_eq!(keys_to_lock(&blocked, 1, 1), [1, 10], "a list of work in progress for each worker");
        wait(&blocked, Awaited::List, &[10], &[2]);
        wait(&blocked, Awaited::List, &[2], &[1]);
        assert_eq!(keys_to_lock(&blocked, 1, 1), [1, 2, 10], "and round again");
    }

    #[test]
    fn the_oldest_is_served_of_those_that_wait_for_what_there_is() {
        let blocked = new();
        let (blocked_clients, keyspace) = &blocked;
        let waiters: Vec<_> = [Awaited::Zset, Awaited::Group, Awaited::List, Awaited::List]
            .map(|awaited| wait(&blocked, awaited, &[1], &[]))
            .into();
        let (name, hash) = key(1);
        let next = |from: u64, met: &[Awaited]| {
            let found = blocked_clients.next_blocked(
                &keyspace.lock(1),
                (0, Key { bytes: &name, hash }),
                from..=blocked_clients.last_ticket(),
                |it| met.contains(&it),
            );
            found.map(|(_, waiter, _)| waiter.ticket)
        };
        assert_eq!(next(0, &[Awaited::List]), Some(3));
        assert_eq!(next(0, &[Awaited::List, Awaited::Group]), Some(2));
        assert_eq!(next(4, &[Awaited::List, Awaited::Group]), Some(4));
        assert_eq!(next(0, &[Awaited::Stream]), None);
        assert_eq!(next(5, &Awaited::ALL), None);
        let remove = |waiter| blocked_clients.remove_blocked(&mut keyspace.lock(1), waiter, 0);
        assert!(remove(&waiters[2]) && !remove(&waiters[2]));
        assert!(keyspace.lock(1).has_registrations());
        assert_eq!(next(0, &[Awaited::List]), Some(4));
        assert_eq!((blocked_clients.blocking_keys(), blocked_clients.group_keys()), (1, 1));
        for waiter in &waiters {
            remove(waiter);
        }
        assert!(!keyspace.lock(1).has_registrations(), "who was not there any more is not counted out twice");
        assert_eq!((blocked_clients.blocking_keys(), blocked_clients.group_keys()), (0, 0));
    }
    #[test]
    fn who_is_run_in_vain_goes_behind_the_others_where_all_its_keys_are_locked() {
        let blocked = new();
        let (blocked_clients, keyspace) = &blocked;
        let [first, second] = [[1, 2], [1, 3]].map(|shards| wait(&blocked, Awaited::List, &shards, &[]));
        let next = || {
            let (name, hash) = key(1);
            let key = Key { bytes: &name, hash };
            let places = 0..=blocked_clients.last_ticket();
            let found = blocked_clients.next_blocked(&keyspace.lock(1), (0, key), places, |_| true);
            found.map(|(_, waiter, _)| waiter.ticket)
        };
        blocked_clients.requeue(&mut keyspace.lock_shard(1), &first);
        assert_eq!(next(), Some(first.ticket), "one of its keys is not locked");
        blocked_clients.requeue(&mut keyspace.lock_all(), &first);
        assert_eq!(next(), Some(second.ticket));
        for (waiter, shard) in [(&first, 2), (&second, 3)] {
            assert!(blocked_clients.remove_blocked(&mut keyspace.lock(1), waiter, 0));
            assert!(blocked_clients.remove_blocked(&mut keyspace.lock(shard), waiter, 1));
        }
        assert!((0..SHARD_COUNT).all(|shard| !keyspace.lock(shard).has_registrations()));
    }
}
