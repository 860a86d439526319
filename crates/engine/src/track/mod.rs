//! Client-side caching: the keys that tracking clients have read, and their invalidations.
//!
//! **Default mode.** The keys that a tracking client reads are stored in tables beside the
//! keyspace, one per shard (`readers`). This is done under the lock of that shard, after the
//! handler ran. A change therefore either precedes the read or finds the reader in the table. The
//! shard counts a registration for each stored key, so that writers check the table. A change
//! removes the key from the table and notifies its readers once. Keys are stored by name: keys of
//! the same name in other databases count as the same, as in Redis. Storing a key is O(1).
//!
//! **Departure.** A client that disconnects or stops tracking is removed from the tables: the first
//! few items at once, the rest in locked steps by the housekeeper. First it marks its
//! [`TrackingClient`] as departed, under the lock that a first read in a shard takes to note that
//! shard. A late read, made by a thread that serves the client, is then either rejected or in a
//! shard that is still to be visited.
//!
//! **Bounds.** `tracking-table-max-keys` limits the stored keys. A key that exceeds it makes its
//! shard forget another key at once; the end of a turn forgets the remaining excess. If more than
//! `DEPARTING_MAX` departed clients still have keys, the next departing client is removed from the
//! tables by its own thread. A client's prefixes count as its memory.
//!
//! **Broadcasting mode.** A client names prefixes and is notified of all changes of keys that begin
//! with them. While there is such a client, every shard counts a registration for it. A changed key
//! is looked up once for each length that prefixes have. The thread that changes keys collects
//! them, per prefix and once per key. It sends them at the end of the turn in which they changed,
//! before its replies are sent. The keys of a transaction are sent together, after its events. Only
//! more than `CHANGED_BYTES_MAX` are sent earlier.
//!
//! A client is notified of its own change after the reply of the command that made it. Other
//! clients are notified through the inbox of their thread (`crate::publish::send`).
//!
//! Locks: the lock of the count of broadcast clients comes before shards' locks. A table's lock is
//! a leaf below its shard's lock, except that a reader's lock is taken under it. The lock of the
//! prefixes is also a leaf.

mod readers;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use keyspace::gate::Gate;
use keyspace::key::SHARD_COUNT;
use keyspace::{Key, Keyspace, Shard};
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::ByteQueue;
use structures::lock::Lock;

use self::readers::{Removed, TrackingTable};
use crate::client::{ClientInfo, Mode};
use crate::publish::send::Sender;

/// The invalidation messages that a command causes for the cache of its own client.
#[derive(Default)]
pub struct OwnMessages {
    /// The invalidations that are sent before the command's reply.
    pub ahead: ByteQueue,
    /// The invalidations that are sent after the command's reply.
    pub behind: ByteQueue,
    /// The invalidations that go to other clients, because the client redirects its own to them.
    /// They are sent after the command.
    pub elsewhere: Vec<(Arc<ClientInfo>, Arc<[u8]>)>,
}

/// The changed keys with a tracked prefix, each with the id of the client that changed it last.
type LastWriters = BTreeMap<Arc<[u8]>, u64>;

/// The changed keys that begin with a tracked prefix, grouped by prefix, each with the id of the
/// client that changed it last.
#[derive(Default)]
pub struct Changed {
    by_prefix: BTreeMap<Arc<[u8]>, LastWriters>,
    len_bytes: usize,
}

impl Changed {
    /// Returns true if the collected changed keys take so many bytes that their invalidations
    /// should be sent before the turn (pass of the event loop) ends.
    pub fn is_full(&self) -> bool {
        self.len_bytes > CHANGED_BYTES_MAX
    }

    /// Returns true if no changed keys with a tracked prefix were collected.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.by_prefix.is_empty()
    }

    fn add(&mut self, prefixes: &[Arc<[u8]>], key: &[u8], writer: u64) {
        let mut name: Option<Arc<[u8]>> = None;
        for prefix in prefixes {
            let keys = self.by_prefix.entry(Arc::clone(prefix)).or_default();
            if let Some(last) = keys.get_mut(key) {
                *last = writer;
                continue;
            }
            let name = name.get_or_insert_with(|| {
                self.len_bytes += key.len();
                key.into()
            });
            keys.insert(Arc::clone(name), writer);
            self.len_bytes += CHANGED_ENTRY_BYTES;
        }
    }
}

impl OwnMessages {
    /// Sends the invalidations that the client redirects to other clients, after the command that
    /// caused them.
    pub fn redirect(&mut self, sender: Sender<'_>) {
        for (target, bytes) in self.elsewhere.drain(..) {
            sender.push(&target, &bytes);
        }
    }
}

/// The position of the invalidation that a client gets for its own FLUSHALL: before or after the
/// reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The client's own invalidation precedes the reply, as in Redis for a flush that waits until
    /// all is freed.
    Ahead,
    /// The client's own invalidation follows the reply: for a flush with ASYNC, or in a
    /// transaction.
    Behind,
}

/// The client that makes a change, and the invalidations that the change causes for this client.
pub struct Writer<'a> {
    /// The id of the client that makes the change; 0 for none, as for eviction.
    pub client: u64,
    /// The invalidations that the change causes for the client that makes it.
    pub own: &'a mut OwnMessages,
}

/// A tracking client, from CLIENT TRACKING ON to OFF, as the tables of tracked keys reference it.
pub struct TrackingClient {
    client: Arc<ClientInfo>,
    /// The id of this tracking client in the tables of tracked keys, unique in the life of the
    /// process.
    id: u64,
    /// True if the client has stopped tracking or disconnected. It is set under the lock of
    /// `shards`.
    departed: AtomicBool,
    /// The shards whose tables may contain the client, one bit each.
    shards: Lock<[u64; SHARD_COUNT / 64]>,
}

impl TrackingClient {
    /// Records that the client is about to be added to a shard's table of tracked keys. Returns
    /// false if it has stopped tracking or disconnected.
    fn enter(&self, shard: usize) -> bool {
        let mut shards = self.shards.lock();
        shards[shard / 64] |= 1 << (shard % 64);
        !self.departed.load(Relaxed)
    }
}

/// The state of one client's tracking: its entry in the tables, and its prefixes. Used by the
/// client's thread only.
pub struct Tracker {
    /// The client as the tables of tracked keys reference it.
    pub reader: Arc<TrackingClient>,
    prefixes: BTreeSet<Box<[u8]>>,
}

impl Tracker {
    /// Returns the prefixes that the client tracks, in order.
    pub fn prefixes(&self) -> &BTreeSet<Box<[u8]>> {
        &self.prefixes
    }
}

/// A client that has stopped tracking or disconnected and is still in tables of tracked keys, until
/// the housekeeper has removed it.
struct DepartingClient {
    reader: Arc<TrackingClient>,
    shards: [u64; SHARD_COUNT / 64],
    /// The index of the shard from whose tracking table the departing client is removed next.
    shard: usize,
}

/// The options of a client's CLIENT TRACKING ON.
pub struct TrackingOptions<'a> {
    /// The modes of tracking (such as BCAST) that the client requests.
    pub mode: Mode,
    /// The id of the client to which invalidations are redirected; 0 for none.
    pub redirect: u64,
    /// The prefixes to track in broadcasting mode; empty for all keys.
    pub prefixes: Vec<&'a [u8]>,
}

type Table = TrackingTable<Arc<TrackingClient>>;

/// The clients that track in broadcasting mode (BCAST), by prefix.
#[derive(Default)]
struct Prefixes {
    /// The clients that track each prefix, by prefix, then by client id.
    by_name: BTreeMap<Arc<[u8]>, BTreeMap<u64, Arc<ClientInfo>>>,
    /// The number of tracked prefixes for each length of a prefix in bytes.
    lengths: BTreeMap<usize, usize>,
}

impl Prefixes {
    fn add(&mut self, name: &[u8], client: &Arc<ClientInfo>) {
        if !self.by_name.contains_key(name) {
            self.by_name.insert(name.into(), BTreeMap::new());
            *self.lengths.entry(name.len()).or_default() += 1;
        }
        let clients = self.by_name.get_mut(name).expect("it was added if it was missing");
        clients.insert(client.id, Arc::clone(client));
    }

    fn remove(&mut self, name: &[u8], client: u64) {
        let Some(clients) = self.by_name.get_mut(name) else { return };
        clients.remove(&client);
        if clients.is_empty() {
            self.by_name.remove(name);
            let of_length = self.lengths.get_mut(&name.len()).expect("a prefix's length is counted");
            *of_length -= 1;
            if *of_length == 0 {
                self.lengths.remove(&name.len());
            }
        }
    }

    /// Returns the tracked prefixes of a key. O(different lengths of prefixes × log prefixes).
    fn of(&self, key: &[u8]) -> SmallVec<[Arc<[u8]>; 4]> {
        let lengths = self.lengths.range(..=key.len());
        lengths
            .filter_map(|(&len, _)| self.by_name.get_key_value(&key[..len]))
            .map(|(name, _)| Arc::clone(name))
            .collect()
    }
}

/// The state of client-side caching: the tracking tables, the tracked prefixes, and the clients
/// that are being removed from the tables.
pub struct Tracking {
    tables: Box<[Lock<Option<Box<Table>>>]>,
    prefixes: Lock<Prefixes>,
    /// The number of clients that track in broadcasting mode (BCAST). While it is above 0, each
    /// shard counts one registration for all of them, so that writers check for tracking.
    broadcast_clients: Mutex<usize>,
    departing: Lock<VecDeque<DepartingClient>>,
    /// The tracking tables that a flush has emptied and that the housekeeper drops.
    emptied: Lock<Vec<Table>>,
    last_reader: AtomicU64,
    clients: AtomicUsize,
    keys: AtomicUsize,
    items: AtomicUsize,
    prefix_count: AtomicUsize,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            tables: (0..SHARD_COUNT).map(|_| Lock::new(None)).collect(),
            prefixes: Lock::new(Prefixes::default()),
            broadcast_clients: Mutex::new(0),
            departing: Lock::new(VecDeque::new()),
            emptied: Lock::new(Vec::new()),
            last_reader: AtomicU64::new(0),
            clients: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            prefix_count: AtomicUsize::new(0),
        }
    }
}

/// The maximum number of items that the own thread of a client removes from the tracking tables
/// when the client stops tracking. An item is a pair of a key and a client that has read it. A
/// visited shard counts as one item.
const DEPARTED_AT_ONCE: usize = 64;

/// The maximum number of items (pairs of a key and a client that has read it) that one step of the
/// housekeeper removes from the tracking tables. A visited shard counts as one item.
const DEPARTED_PER_STEP: usize = 1024;

/// The maximum number of items of the tracking tables (pairs of a key and a client that has read
/// it) removed under one lock of a shard.
const REMOVED_PER_LOCK: usize = 64;

/// The maximum number of clients whose items the housekeeper has yet to remove from the tracking
/// tables. Beyond it, the own thread of the next client that stops tracking removes the client's
/// items.
const DEPARTING_MAX: usize = 1024;

/// The number of bytes of one thread's changed keys above which their invalidations are sent at
/// once, not at the end of the turn (pass of the event loop).
const CHANGED_BYTES_MAX: usize = 1 << 20;

/// The number of bytes that are counted for a changed key's entry, besides its name.
const CHANGED_ENTRY_BYTES: usize = 64;

/// The maximum number of tracked prefixes that are added or removed under one lock.
const PREFIXES_PER_LOCK: usize = 64;

impl Tracking {
    /// Returns the number of clients that track keys (CLIENT TRACKING).
    pub fn clients(&self) -> usize {
        self.clients.load(Relaxed)
    }

    /// Returns the number of tracked keys in the tracking tables of all shards.
    pub fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// Returns the number of pairs of a key and a client that has read it, in the tracking tables
    /// of all shards.
    pub fn items(&self) -> usize {
        self.items.load(Relaxed)
    }

    /// Returns the number of prefixes that at least one client tracks.
    pub fn prefix_count(&self) -> usize {
        self.prefix_count.load(Relaxed)
    }

    /// Returns true if any key or prefix is tracked.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.keys.load(Relaxed) > 0 || self.prefix_count.load(Relaxed) > 0
    }

    /// Begins tracking for a client, or changes the modes of its tracking. The caller has checked
    /// that the prefixes do not overlap, and holds no shard's lock. O(prefixes); O(shards) for the
    /// first client in broadcasting mode.
    pub fn enable(
        &self,
        keyspace: &Keyspace,
        tracker: &mut Option<Box<Tracker>>,
        client: &Arc<ClientInfo>,
        wish: &TrackingOptions<'_>,
    ) {
        let before = client.tracking.mode();
        let tracker = tracker.get_or_insert_with(|| {
            self.clients.fetch_add(1, Relaxed);
            let id = self.last_reader.fetch_add(1, Relaxed) + 1;
            let shards = Lock::new([0; SHARD_COUNT / 64]);
            let reader =
                TrackingClient { client: Arc::clone(client), id, departed: AtomicBool::new(false), shards };
            Box::new(Tracker { reader: Arc::new(reader), prefixes: BTreeSet::new() })
        });
        client.tracking.redirect.store(wish.redirect, Relaxed);
        // CLIENT CACHING for the next command remains in effect.
        let kept = before & Mode::CACHING;
        client.tracking.mode.store((wish.mode | Mode::ON | kept).bits(), Relaxed);
        if !wish.mode.contains(Mode::BCAST) {
            return;
        }
        if !before.contains(Mode::BCAST) {
            self.follow_shards(keyspace);
        }
        let everything: &[&[u8]] = &[b""];
        let named = if wish.prefixes.is_empty() { everything } else { &wish.prefixes };
        for some in named.chunks(PREFIXES_PER_LOCK) {
            let mut all = self.prefixes.lock();
            for prefix in some.iter().filter(|prefix| tracker.prefixes.insert((**prefix).into())) {
                all.add(prefix, client);
                client.held.watched_and_subscribed_bytes.fetch_add(prefix_bytes(prefix), Relaxed);
            }
            self.prefix_count.store(all.by_name.len(), Relaxed);
        }
    }

    /// Ends a client's tracking. The caller holds no shard's lock. O(prefixes); the client's keys
    /// are removed from the tables in bounded steps.
    pub fn disable(&self, keyspace: &Keyspace, tracker: Tracker) {
        let Tracker { reader, prefixes } = tracker;
        let client = &reader.client;
        let before = client.tracking.mode();
        client.tracking.mode.store(0, Relaxed);
        client.tracking.redirect.store(0, Relaxed);
        self.clients.fetch_sub(1, Relaxed);
        if before.contains(Mode::BCAST) {
            let mut prefixes = prefixes.into_iter().peekable();
            while prefixes.peek().is_some() {
                let mut all = self.prefixes.lock();
                for prefix in prefixes.by_ref().take(PREFIXES_PER_LOCK) {
                    all.remove(&prefix, client.id);
                    client.held.watched_and_subscribed_bytes.fetch_sub(prefix_bytes(&prefix), Relaxed);
                }
                self.prefix_count.store(all.by_name.len(), Relaxed);
            }
            self.unfollow_shards(keyspace);
        }
        self.depart(keyspace, reader);
    }

    /// Counts a client in broadcasting mode (BCAST). For the first one, counts a registration in
    /// every shard, so that all writes check for tracking.
    fn follow_shards(&self, keyspace: &Keyspace) {
        let mut clients = self.broadcast_clients.lock().expect("nothing panics while it is locked");
        *clients += 1;
        if *clients == 1 {
            (0..SHARD_COUNT).for_each(|shard| keyspace.lock(shard).add_registration());
        }
    }

    /// Stops counting a client in broadcasting mode (BCAST), which [`Tracking::follow_shards`] has
    /// counted.
    fn unfollow_shards(&self, keyspace: &Keyspace) {
        let mut clients = self.broadcast_clients.lock().expect("nothing panics while it is locked");
        *clients -= 1;
        if *clients == 0 {
            (0..SHARD_COUNT).for_each(|shard| keyspace.lock(shard).remove_registration());
        }
    }

    /// Removes a client from the tracking tables: a few items at once; the housekeeper removes the
    /// rest later.
    fn depart(&self, keyspace: &Keyspace, reader: Arc<TrackingClient>) {
        let shards = {
            let shards = reader.shards.lock();
            reader.departed.store(true, Relaxed);
            *shards
        };
        let mut departing = DepartingClient { reader, shards, shard: 0 };
        if self.leave(keyspace, &mut departing, DEPARTED_AT_ONCE) {
            return;
        }
        let mut waiting = self.departing.lock();
        if waiting.len() < DEPARTING_MAX {
            waiting.push_back(departing);
            return;
        }
        drop(waiting);
        self.leave(keyspace, &mut departing, usize::MAX);
    }

    /// Removes a client that has stopped tracking from the tracking tables, up to `budget` items
    /// and shards. Returns true if it is in no table any more.
    fn leave(&self, keyspace: &Keyspace, departing: &mut DepartingClient, budget: usize) -> bool {
        let mut left = budget;
        while departing.shard < SHARD_COUNT {
            let (word, bit) = (departing.shard / 64, departing.shard % 64);
            let ahead = departing.shards[word] >> bit;
            if ahead == 0 {
                departing.shard = (word + 1) * 64;
                continue;
            }
            departing.shard += ahead.trailing_zeros() as usize;
            if left == 0 {
                return false;
            }
            let items_max = left.min(REMOVED_PER_LOCK);
            let removed = self.leave_shard(keyspace, departing.shard, &departing.reader, items_max);
            left = left.saturating_sub(removed.items + 1);
            if removed.items < items_max {
                departing.shard += 1;
            }
        }
        true
    }

    /// Removes at most `items_max` of the keys that a tracking client has read from a shard's
    /// tracking table.
    fn leave_shard(
        &self,
        keyspace: &Keyspace,
        shard: usize,
        reader: &TrackingClient,
        items_max: usize,
    ) -> Removed {
        let mut locked = keyspace.lock(shard);
        let mut table = self.tables[shard].lock();
        let Some(readers) = table.as_mut() else { return Removed::default() };
        let removed = readers.remove_reader(reader.id, items_max);
        (0..removed.keys).for_each(|_| locked.remove_registration());
        self.keys.fetch_sub(removed.keys, Relaxed);
        self.items.fetch_sub(removed.items, Relaxed);
        if readers.item_count() == 0 {
            *table = None;
        }
        removed
    }

    /// Runs one step of removing clients that have stopped tracking from the tracking tables, and
    /// dropping emptied tables. Returns true if there was anything to do. Called by the
    /// housekeeper, outside the gate (the keyspace's shared lock); the step locks the gate with the
    /// slot `gate_slot`.
    pub fn remove_departed(&self, keyspace: &Keyspace, gate: &Gate, gate_slot: usize) -> bool {
        let emptied = self.emptied.lock().pop();
        let departing = self.departing.lock().pop_front();
        let found = emptied.is_some() || departing.is_some();
        if let Some(mut departing) = departing {
            let pass = gate.shared_unless_busy(gate_slot);
            if !pass.is_inside() {
                // A busy script owns the keyspace, so this is tried again later.
                self.departing.lock().push_front(departing);
                return emptied.is_some();
            }
            let has_left = self.leave(keyspace, &mut departing, DEPARTED_PER_STEP);
            drop(pass);
            if !has_left {
                // At the end of the queue. The limit on new departing clients is not affected.
                self.departing.lock().push_back(departing);
            }
        }
        found
    }

    /// Records in the tracking table of a locked shard that a client has read a key of the shard.
    /// O(1).
    pub fn remember(&self, shard: &mut Shard, key: Key<'_>, reader: &Arc<TrackingClient>) {
        let mut table = self.tables[key.shard()].lock();
        let readers = table.get_or_insert_default();
        if readers.contains(key, reader.id) || (!readers.has_reader(reader.id) && !reader.enter(key.shard()))
        {
            return;
        }
        if readers.add(key, reader.id, Arc::clone(reader)) {
            shard.add_registration();
            self.keys.fetch_add(1, Relaxed);
        }
        self.items.fetch_add(1, Relaxed);
    }

    /// Removes a changed key from its shard's tracking table. Returns the clients that have read
    /// the key, to be notified. The caller has locked the shard. O(readers).
    pub fn take_readers(&self, shard: &mut Shard, key: Key<'_>) -> Vec<Arc<TrackingClient>> {
        if self.keys.load(Relaxed) == 0 {
            return Vec::new();
        }
        let mut table = self.tables[key.shard()].lock();
        let readers = table.as_mut().map(|readers| readers.remove_key(key)).unwrap_or_default();
        drop(table);
        if !readers.is_empty() {
            shard.remove_registration();
            self.keys.fetch_sub(1, Relaxed);
            self.items.fetch_sub(readers.len(), Relaxed);
        }
        readers
    }

    /// Sends an invalidation of a key to the tracking clients that have read it. O(readers).
    pub fn invalidate(
        &self,
        sender: Sender<'_>,
        key: &[u8],
        readers: &[Arc<TrackingClient>],
        writer: &mut Writer<'_>,
    ) {
        let keys = [key];
        let mut message = Invalidation::of(&keys);
        for reader in readers.iter().filter(|reader| !reader.departed.load(Relaxed)) {
            let client = &reader.client;
            if !(client.tracking.mode().contains(Mode::NOLOOP) && client.id == writer.client) {
                notify(sender, client, &mut message, Some((&mut *writer, Place::Behind)));
            }
        }
    }

    /// Adds a changed key to `changed` if clients track a prefix of it; `writer` is the id of the
    /// client that changed it.
    pub fn collect_for_prefixes(&self, key: &[u8], writer: u64, changed: &mut Changed) {
        if self.prefix_count.load(Relaxed) == 0 {
            return;
        }
        let prefixes = self.prefixes.lock().of(key);
        if !prefixes.is_empty() {
            changed.add(&prefixes, key, writer);
        }
    }

    /// Sends the changed keys that a thread has collected to the clients that track their prefixes.
    /// Must be called before the replies of the thread's turn (pass of its event loop) are sent.
    #[cold]
    pub fn broadcast(&self, sender: Sender<'_>, changed: &mut Changed) {
        for (prefix, changed) in std::mem::take(changed).by_prefix {
            let clients: Vec<Arc<ClientInfo>> = self
                .prefixes
                .lock()
                .by_name
                .get(&prefix)
                .into_iter()
                .flat_map(BTreeMap::values)
                .cloned()
                .collect();
            let writers: BTreeSet<u64> = changed.values().copied().collect();
            let all: Vec<&[u8]> = changed.keys().map(|key| &**key).collect();
            let mut message = Invalidation::of(&all);
            for client in clients {
                let noloop = client.tracking.mode().contains(Mode::NOLOOP);
                if !noloop || !writers.contains(&client.id) {
                    notify(sender, &client, &mut message, None);
                    continue;
                }
                let others = changed.iter().filter(|&(_, &writer)| writer != client.id);
                let others: Vec<&[u8]> = others.map(|(key, _)| &**key).collect();
                if !others.is_empty() {
                    notify(sender, &client, &mut Invalidation::of(&others), None);
                }
            }
        }
    }

    /// Notifies all tracking clients that databases were emptied, so that they drop all cached
    /// keys. O(clients).
    #[cold]
    pub fn invalidate_all(&self, sender: Sender<'_>, writer: &mut Writer<'_>, place: Place) {
        if self.clients() == 0 {
            return;
        }
        let mut message = Invalidation::of_everything();
        for client in sender.clients.all() {
            if client.tracking.mode().contains(Mode::ON) {
                notify(sender, &client, &mut message, Some((&mut *writer, place)));
            }
        }
    }

    /// Removes all keys from the tracking tables after databases were emptied. The caller owns the
    /// keyspace exclusively and holds no shard's lock. O(shards + tracked keys). The housekeeper
    /// drops the emptied tables; if those of the previous flush still exist, this call drops them.
    #[cold]
    pub fn forget_all(&self, keyspace: &Keyspace) {
        if self.keys() == 0 {
            return;
        }
        let mut emptied = Vec::new();
        for shard in 0..SHARD_COUNT {
            let mut locked = keyspace.lock(shard);
            let Some(table) = self.tables[shard].lock().take() else { continue };
            (0..table.key_count()).for_each(|_| locked.remove_registration());
            self.keys.fetch_sub(table.key_count(), Relaxed);
            self.items.fetch_sub(table.item_count(), Relaxed);
            emptied.push(*table);
        }
        let before = std::mem::replace(&mut *self.emptied.lock(), emptied);
        drop(before);
    }

    /// Removes some key other than `key` from the tracking table of a locked shard, because `key`
    /// has exceeded the limit of tracked keys. Notifies the readers of the removed key, but not
    /// clients in broadcasting mode.
    #[cold]
    pub fn forget_another(&self, sender: Sender<'_>, shard: &mut Shard, key: Key<'_>, draw: u64) {
        let table = self.tables[key.shard()].lock();
        let chosen = table.as_ref().and_then(|readers| readers.any_key(draw, Some(key.hash)));
        let chosen = chosen.map(|key| (Box::<[u8]>::from(key.bytes), key.hash));
        drop(table);
        if let Some((bytes, hash)) = chosen {
            self.forget(sender, shard, Key { bytes: &bytes, hash });
        }
    }

    /// Removes keys from the tracking tables, as [`Tracking::forget_another`] does, until at most
    /// `keys_max` remain. Stops after a number of steps; the thread's next turn continues. The
    /// caller holds no shard's lock.
    #[cold]
    pub fn forget_beyond(
        &self,
        sender: Sender<'_>,
        keyspace: &Keyspace,
        keys_max: usize,
        mut draw: impl FnMut() -> u64,
    ) {
        let mut shard = draw() as usize % SHARD_COUNT;
        for _ in 0..REMOVED_PER_TURN {
            if self.keys() <= keys_max {
                return;
            }
            let mut locked = keyspace.lock(shard);
            let table = self.tables[shard].lock();
            let chosen = table.as_ref().and_then(|readers| readers.any_key(draw(), None));
            let chosen = chosen.map(|key| (Box::<[u8]>::from(key.bytes), key.hash));
            drop(table);
            if let Some((bytes, hash)) = chosen {
                self.forget(sender, &mut locked, Key { bytes: &bytes, hash });
            }
            shard = (shard + 1) % SHARD_COUNT;
        }
    }

    /// Stops tracking a key of a locked shard, and sends invalidations to the clients that have
    /// read it.
    fn forget(&self, sender: Sender<'_>, shard: &mut Shard, key: Key<'_>) {
        let readers = self.take_readers(shard, key);
        let mut own = OwnMessages::default();
        self.invalidate(sender, key.bytes, &readers, &mut Writer { client: 0, own: &mut own });
    }
}

/// Returns the counted bytes of a client's prefix: its entries in the client's own list and in the
/// shared list of prefixes.
fn prefix_bytes(name: &[u8]) -> u64 {
    const OVERHEAD: usize = 2 * size_of::<Box<[u8]>>() + 160;
    (OVERHEAD + 2 * name.len()) as u64
}

/// The channel on which a RESP2 client receives redirected invalidations.
const INVALIDATION_CHANNEL: &[u8] = b"__redis__:invalidate";

/// The maximum number of shards that a thread visits in one turn (pass of its event loop) to remove
/// tracked keys beyond the limit, one key in each.
const REMOVED_PER_TURN: usize = 2 * SHARD_COUNT;

/// An invalidation of cached keys, encoded once for all receivers with the same protocol.
struct Invalidation<'a> {
    /// The invalidated keys; `None` if all cached keys are invalid.
    keys: Option<&'a [&'a [u8]]>,
    push: Option<Arc<[u8]>>,
    message: Option<Arc<[u8]>>,
}

impl<'a> Invalidation<'a> {
    fn of(keys: &'a [&'a [u8]]) -> Self {
        Self { keys: Some(keys), push: None, message: None }
    }

    fn of_everything() -> Self {
        Self { keys: None, push: None, message: None }
    }

    /// Returns the invalidation as a push message of RESP3.
    fn push(&mut self) -> &Arc<[u8]> {
        let keys = self.keys;
        self.push.get_or_insert_with(|| {
            encoded(Protocol::Resp3, |reply| {
                reply.push(2);
                reply.bulk(b"invalidate");
                write_keys(reply, keys);
            })
        })
    }

    /// Returns the invalidation as a Pub/Sub message, which RESP2 clients can receive.
    fn message(&mut self) -> &Arc<[u8]> {
        let keys = self.keys;
        self.message.get_or_insert_with(|| {
            encoded(Protocol::Resp2, |reply| {
                reply.array(3);
                reply.bulk(b"message");
                reply.bulk(INVALIDATION_CHANNEL);
                write_keys(reply, keys);
            })
        })
    }
}

fn write_keys(reply: &mut Reply<'_>, keys: Option<&[&[u8]]>) {
    match keys {
        None => reply.null(),
        Some(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
    }
}

fn encoded(protocol: Protocol, write: impl FnOnce(&mut Reply<'_>)) -> Arc<[u8]> {
    let mut out = ByteQueue::new();
    write(&mut Reply::new(&mut out, protocol));
    out.as_single().expect("keys are copied into it, not shared").into()
}

/// Sends an invalidation to a client, or to the client to which its invalidations are redirected.
/// If one of them is the writer, whose command made the change, the message waits until that
/// command is done.
fn notify(
    sender: Sender<'_>,
    client: &Arc<ClientInfo>,
    message: &mut Invalidation<'_>,
    writer: Option<(&mut Writer<'_>, Place)>,
) {
    let redirect = client.tracking.redirect();
    let target = match redirect {
        0 => Some(Arc::clone(client)),
        id => sender.clients.get(id).filter(|target| !target.state.closing.load(Relaxed)),
    };
    let Some(target) = target else {
        client.tracking.insert(Mode::BROKEN);
        if client.speaks_resp3() {
            let broken = encoded(Protocol::Resp3, |reply| {
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(redirect as i64);
            });
            send(sender, client, client, writer, &broken);
        }
        return;
    };
    if target.speaks_resp3() {
        send(sender, client, &target, writer, message.push());
    } else if redirect != 0 && target.is_subscriber() {
        // As in Redis, a subscription to any channel is enough.
        send(sender, client, &target, writer, message.message());
    }
}

/// Sends an invalidation for the cache of `client` to `target`. If one of the two is the client
/// that writes and it tracks keys, the message is stored in the writer's own messages instead.
fn send(
    sender: Sender<'_>,
    client: &Arc<ClientInfo>,
    target: &Arc<ClientInfo>,
    writer: Option<(&mut Writer<'_>, Place)>,
    bytes: &Arc<[u8]>,
) {
    // A session checks for messages of its own only while it tracks.
    let tracks = |client: &ClientInfo| client.tracking.mode().contains(Mode::ON);
    match writer {
        Some((writer, place)) if writer.client == target.id && tracks(target) => {
            let own = match place {
                Place::Ahead => &mut writer.own.ahead,
                Place::Behind => &mut writer.own.behind,
            };
            own.tail_mut().extend_from_slice(bytes);
        }
        Some((writer, _)) if writer.client == client.id && tracks(client) => {
            writer.own.elsewhere.push((Arc::clone(target), Arc::clone(bytes)));
        }
        _ => sender.push(target, bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_of_a_key_are_found_by_their_lengths() {
        let client = |id| {
            let address = || stdx::Address::Tcp(([127, 0, 0, 1], 1).into());
            let place = crate::client::Place { thread: 0, conn: stdx::ConnId::from_u64(id), fd: 0 };
            Arc::new(ClientInfo::new(id, place, (address(), address()), 0))
        };
        let mut prefixes = Prefixes::default();
        let check = |prefixes: &Prefixes, key: &[u8], expected: &[&[u8]], lengths: &[usize]| {
            let found = prefixes.of(key);
            assert_eq!(found.iter().map(|name| &**name).collect::<Vec<_>>(), expected);
            assert!(prefixes.lengths.keys().eq(lengths));
        };
        check(&prefixes, b"user:1", &[], &[]);
        for (id, name) in [(1, "user:"), (2, "user:"), (1, "job:2"), (3, ""), (4, "user:12")] {
            prefixes.add(name.as_bytes(), &client(id));
        }
        check(&prefixes, b"user:1", &[b"", b"user:"], &[0, 5, 7]);
        check(&prefixes, b"user:123", &[b"", b"user:", b"user:12"], &[0, 5, 7]);
        check(&prefixes, b"", &[b""], &[0, 5, 7]);
        prefixes.remove(b"user:", 1);
        prefixes.remove(b"", 3);
        prefixes.remove(b"user:12", 4);
        check(&prefixes, b"user:123", &[b"user:"], &[5]);
        prefixes.remove(b"user:", 2);
        prefixes.remove(b"job:2", 1);
        check(&prefixes, b"user:123", &[], &[]);
    }

    #[test]
    fn a_changed_key_is_that_of_its_last_writer_and_counted_once() {
        let mut changed = Changed::default();
        let prefixes: Vec<Arc<[u8]>> = [&b""[..], b"k"].map(Arc::from).to_vec();
        changed.add(&prefixes, b"key", 1);
        let len_bytes = changed.len_bytes;
        assert_eq!(len_bytes, b"key".len() + 2 * CHANGED_ENTRY_BYTES);
        changed.add(&prefixes, b"key", 2);
        changed.add(&prefixes[1..], b"key", 3);
        assert_eq!(changed.len_bytes, len_bytes);
        let writers = changed.by_prefix.values().map(|keys| keys[&b"key"[..]]);
        assert!(writers.eq([2, 3]), "a client that wants no news of its own changes hears of others'");
    }
}
