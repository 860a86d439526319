//! Client-side caching: who has read which key, and how it hears that the key changed.
//!
//! **Default mode.** Keys that a tracking client reads are remembered in tables beside the keyspace, one per
//! shard, under the lock of that shard and after the handler ran; so a change is before the read or finds the
//! reader in the table. The shard counts a follower for each remembered key, which makes writers look. A
//! change takes the key out of the table and tells its readers once. Keys are remembered by name: those of the
//! same name in other databases count as the same, as in Redis.
//!
//! **Broadcasting mode.** A client names prefixes and hears of all changes below them; it follows every shard.
//! Changed keys are collected per prefix, once per key, thread and turn, and told at the end of the turn in
//! which they changed, before its replies leave: a transaction's together, and behind its events.
//!
//! A client hears of its own change behind the reply of the command that made it, others through the inbox of
//! their thread (`crate::push`). Clients that have gone or stopped tracking stay in the tables until the key
//! changes; nothing is sent to them.
//!
//! Locks: a table's is a leaf below its shard's lock; so are the prefixes', under which the inboxes' are taken.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use bitflags::bitflags;
use keyspace::key::{SHARD_COUNT, shard_of};
use keyspace::{Hasher, Key, Locked, Shard};
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::ByteQueue;
use structures::lock::Lock;

use crate::push::push;
use crate::session::ClientInfo;
use crate::shared::Shared;

bitflags! {
    /// How a client tracks.
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
        /// Its own changes are not told.
        const NOLOOP = 1 << 4;
        /// CLIENT CACHING was given for the next command.
        const CACHING = 1 << 5;
        /// The client that it redirects to has gone.
        const BROKEN = 1 << 6;
    }
}

/// A client's tracking, as other threads see it. Written by the client's thread, `BROKEN` by any.
#[derive(Debug, Default)]
pub struct TrackingState {
    mode: AtomicU32,
    redirect: AtomicU64,
}

impl TrackingState {
    /// How it tracks.
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

    /// Whom it redirects to; 0 for nobody.
    pub fn redirect(&self) -> u64 {
        self.redirect.load(Relaxed)
    }
}

/// Messages for the client whose command runs.
#[derive(Default)]
pub struct OwnPushes {
    /// They go ahead of the command's reply.
    pub ahead: ByteQueue,
    /// They go behind it.
    pub behind: ByteQueue,
    /// Messages that it redirects to other clients: they go when the command is done.
    pub elsewhere: Vec<(Arc<ClientInfo>, Arc<[u8]>)>,
}

impl OwnPushes {
    /// Sends what goes to others. The command that made it is done.
    pub fn redirect(&mut self, shared: &Shared) {
        for (target, bytes) in self.elsewhere.drain(..) {
            push(shared, &target, &bytes);
        }
    }
}

/// Where news of a client's own FLUSHALL stands beside the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Ahead of it: with one that waits until all is freed, in Redis.
    Ahead,
    /// Behind it: with ASYNC, or in a transaction.
    Behind,
}

/// Who makes a change, and where what it must hear itself is put.
pub struct Writer<'a> {
    /// The client; 0 for none, as with eviction.
    pub client: u64,
    /// The I/O thread that it is made on; [`HOUSEKEEPER`] for none.
    pub thread: usize,
    /// Its messages.
    pub own: &'a mut OwnPushes,
}

/// The thread of changes that no I/O thread makes.
pub const HOUSEKEEPER: usize = usize::MAX;

/// Readers by key.
type Table = HashMap<Box<[u8]>, SmallVec<[Arc<ClientInfo>; 2]>>;

/// Who broadcasts are for.
#[derive(Default)]
struct Prefix {
    clients: Vec<Arc<ClientInfo>>,
    /// Changed keys that are not told yet, by the thread that will, with who changed them.
    changed: BTreeMap<(usize, Box<[u8]>), u64>,
}

/// All that is tracked.
pub struct Tracking {
    tables: Box<[Lock<Option<Box<Table>>>]>,
    prefixes: Lock<BTreeMap<Box<[u8]>, Prefix>>,
    /// Some prefix has changed keys.
    changed: AtomicBool,
    clients: AtomicUsize,
    keys: AtomicUsize,
    items: AtomicUsize,
    prefix_count: AtomicUsize,
}

impl Default for Tracking {
    fn default() -> Self {
        Self {
            tables: (0..SHARD_COUNT).map(|_| Lock::new(None)).collect(),
            prefixes: Lock::new(BTreeMap::new()),
            changed: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            keys: AtomicUsize::new(0),
            items: AtomicUsize::new(0),
            prefix_count: AtomicUsize::new(0),
        }
    }
}

impl Tracking {
    /// Clients that track.
    pub fn clients(&self) -> usize {
        self.clients.load(Relaxed)
    }

    /// Keys that are remembered.
    pub fn keys(&self) -> usize {
        self.keys.load(Relaxed)
    }

    /// Readers that are remembered, over all keys.
    pub fn items(&self) -> usize {
        self.items.load(Relaxed)
    }

    /// Prefixes that somebody names.
    pub fn prefix_count(&self) -> usize {
        self.prefix_count.load(Relaxed)
    }

    /// Whether any change may have to be told.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.keys.load(Relaxed) > 0 || self.prefix_count.load(Relaxed) > 0
    }

    /// Lets a client track from now on. A client that tracks already changes its ways. The caller has
    /// checked that its prefixes do not overlap and holds no shard's lock. O(shards) when broadcasting.
    pub fn enable(
        &self,
        shared: &Shared,
        client: &Arc<ClientInfo>,
        mode: Mode,
        redirect: u64,
        prefixes: &[&[u8]],
    ) {
        let before = client.tracking.mode();
        if !before.contains(Mode::ON) {
            self.clients.fetch_add(1, Relaxed);
        }
        client.tracking.redirect.store(redirect, Relaxed);
        // What was given for the next command stays.
        let kept = before & Mode::CACHING;
        client.tracking.mode.store((mode | Mode::ON | kept).bits(), Relaxed);
        if !mode.contains(Mode::BCAST) {
            return;
        }
        if !before.contains(Mode::BCAST) {
            for shard in 0..SHARD_COUNT {
                shared.keyspace.lock(shard).add_follower();
            }
        }
        let mut all = self.prefixes.lock();
        let everything: &[&[u8]] = &[b""];
        for prefix in if prefixes.is_empty() { everything } else { prefixes } {
            let of_prefix = all.entry((*prefix).into()).or_default();
            if of_prefix.clients.iter().all(|other| other.id != client.id) {
                of_prefix.clients.push(Arc::clone(client));
                client.named_bytes.fetch_add(prefix_bytes(prefix), Relaxed);
            }
        }
        self.prefix_count.store(all.len(), Relaxed);
    }

    /// Ends a client's tracking, if it tracks. The caller holds no shard's lock.
    pub fn disable(&self, shared: &Shared, client: &ClientInfo) {
        let before = client.tracking.mode();
        client.tracking.mode.store(0, Relaxed);
        client.tracking.redirect.store(0, Relaxed);
        if !before.contains(Mode::ON) {
            return;
        }
        self.clients.fetch_sub(1, Relaxed);
        if before.contains(Mode::BCAST) {
            let mut all = self.prefixes.lock();
            all.retain(|name, prefix| {
                let before = prefix.clients.len();
                prefix.clients.retain(|other| other.id != client.id);
                if prefix.clients.len() < before {
                    client.named_bytes.fetch_sub(prefix_bytes(name), Relaxed);
                }
                !prefix.clients.is_empty()
            });
            self.prefix_count.store(all.len(), Relaxed);
            drop(all);
            for shard in 0..SHARD_COUNT {
                shared.keyspace.lock(shard).remove_follower();
            }
        }
    }

    /// The prefixes that a client named, in order. O(prefixes).
    pub fn prefixes_of(&self, client: u64) -> Vec<Box<[u8]>> {
        let all = self.prefixes.lock();
        let named = all.iter().filter(|(_, prefix)| prefix.clients.iter().any(|other| other.id == client));
        named.map(|(prefix, _)| prefix.clone()).collect()
    }

    /// Remembers that a client read a key of a locked shard.
    pub fn remember(&self, shard: &mut Shard, key: Key<'_>, client: &Arc<ClientInfo>) {
        let mut table = self.tables[key.shard()].lock();
        let table = table.get_or_insert_default();
        if let Some(readers) = table.get_mut(key.bytes) {
            if readers.iter().all(|reader| reader.id != client.id) {
                readers.push(Arc::clone(client));
                self.items.fetch_add(1, Relaxed);
            }
            return;
        }
        table.insert(key.bytes.into(), SmallVec::from_iter([Arc::clone(client)]));
        shard.add_follower();
        self.keys.fetch_add(1, Relaxed);
        self.items.fetch_add(1, Relaxed);
    }

    /// Tells the readers of a key that it changed, or went. The key's shard is locked, or no shard above it.
    pub fn changed(
        &self,
        shared: &Shared,
        locked: Option<&mut Locked<'_>>,
        key: Key<'_>,
        writer: &mut Writer<'_>,
    ) {
        if self.prefix_count.load(Relaxed) > 0 {
            self.note_for_prefixes(key.bytes, writer);
        }
        self.tell_readers(shared, locked, key, writer);
    }

    /// Takes a key out of its table and tells its readers. As [`Tracking::changed`].
    fn tell_readers(
        &self,
        shared: &Shared,
        locked: Option<&mut Locked<'_>>,
        key: Key<'_>,
        writer: &mut Writer<'_>,
    ) {
        let readers = self.tables[key.shard()].lock().as_mut().and_then(|table| table.remove(key.bytes));
        let Some(readers) = readers else { return };
        self.keys.fetch_sub(1, Relaxed);
        self.items.fetch_sub(readers.len(), Relaxed);
        match locked.and_then(|locked| locked.shard_of_mut(key.hash)) {
            Some(shard) => shard.remove_follower(),
            None => shared.keyspace.lock(shard_of(key.hash)).remove_follower(),
        }
        for reader in readers {
            let mode = reader.tracking.mode();
            let concerned = mode.contains(Mode::ON) && !mode.contains(Mode::BCAST);
            if concerned && !(mode.contains(Mode::NOLOOP) && reader.id == writer.client) {
                tell(shared, &reader, Some(&[key.bytes]), Some((&mut *writer, Place::Behind)));
            }
        }
    }

    /// Collects a changed key for those who named a prefix of it. O(key log prefixes).
    fn note_for_prefixes(&self, key: &[u8], writer: &Writer<'_>) {
        let mut all = self.prefixes.lock();
        for len in 0..=key.len() {
            if let Some(prefix) = all.get_mut(&key[..len]) {
                prefix.changed.entry((writer.thread, key.into())).or_insert(writer.client);
                self.changed.store(true, Relaxed);
            }
        }
    }

    /// Tells the keys below prefixes that changed on `thread` in this turn. Call it before the turn's replies
    /// leave.
    #[inline]
    pub fn broadcast(&self, shared: &Shared, thread: usize) {
        // Relaxed: this thread's own changes are seen; another thread tells its own before its replies leave.
        if self.changed.load(Relaxed) {
            self.broadcast_changed(shared, thread);
        }
    }

    #[cold]
    fn broadcast_changed(&self, shared: &Shared, thread: usize) {
        let mut all = self.prefixes.lock();
        let mut others_changed = false;
        for prefix in all.values_mut() {
            let changed = std::mem::take(&mut prefix.changed).into_iter();
            let (changed, others): (BTreeMap<_, _>, _) = changed.partition(|((by, _), _)| *by == thread);
            prefix.changed = others;
            others_changed |= !prefix.changed.is_empty();
            for client in &prefix.clients {
                let noloop = client.tracking.mode().contains(Mode::NOLOOP);
                let keys = changed.iter().filter(|&(_, &writer)| !(noloop && writer == client.id));
                let keys: Vec<&[u8]> = keys.map(|((_, key), _)| &**key).collect();
                if !keys.is_empty() {
                    tell(shared, client, Some(&keys), None);
                }
            }
        }
        self.changed.store(others_changed, Relaxed);
    }

    /// Tells all clients that databases were emptied: they drop all that they cache, so nothing is remembered
    /// any more. For the exclusive owner of the keyspace, which holds no shard's lock. O(clients + remembered
    /// keys).
    pub fn flushed(&self, shared: &Shared, writer: &mut Writer<'_>, place: Place) {
        if self.clients() > 0 {
            for client in shared.clients.all() {
                if client.tracking.mode().contains(Mode::ON) {
                    tell(shared, &client, None, Some((&mut *writer, place)));
                }
            }
        }
        if self.keys() == 0 {
            return;
        }
        for shard in 0..SHARD_COUNT {
            let mut locked = shared.keyspace.lock(shard);
            let Some(table) = self.tables[shard].lock().take() else { continue };
            for readers in table.values() {
                locked.remove_follower();
                self.keys.fetch_sub(1, Relaxed);
                self.items.fetch_sub(readers.len(), Relaxed);
            }
        }
    }

    /// Forgets keys, as if they had changed, but for clients that broadcasts are for, until at most `keys_max` are remembered. Stops after a number of
    /// them; the next turn goes on. The caller holds no shard's lock.
    #[cold]
    pub fn forget_beyond(&self, shared: &Shared, keys_max: usize, mut draw: impl FnMut() -> usize) {
        let hasher: &Hasher = shared.keyspace.hasher();
        let (mut own, mut looked) = (OwnPushes::default(), 0);
        let mut shard = draw() % SHARD_COUNT;
        while self.keys() > keys_max && looked < FORGOTTEN_PER_TURN {
            let table = self.tables[shard].lock();
            let key = table.as_ref().and_then(|table| table.keys().next().cloned());
            drop(table);
            if let Some(key) = key {
                self.forget(
                    shared,
                    hasher.key(&key),
                    &mut Writer { client: 0, thread: HOUSEKEEPER, own: &mut own },
                );
            }
            shard = (shard + 1) % SHARD_COUNT;
            looked += 1;
        }
    }

    /// Forgets a key, telling its readers. The caller holds no shard's lock.
    fn forget(&self, shared: &Shared, key: Key<'_>, writer: &mut Writer<'_>) {
        let mut locked = shared.keyspace.lock_one(key.hash);
        self.tell_readers(shared, Some(&mut locked), key, writer);
    }
}

/// What a prefix that a client names takes, in bytes.
fn prefix_bytes(name: &[u8]) -> u64 {
    const OVERHEAD: usize = size_of::<Box<[u8]>>() + size_of::<Prefix>() + 64;
    (OVERHEAD + name.len()) as u64
}

/// The channel in whose name a RESP2 client hears of changes that another redirects to it.
const INVALIDATION_CHANNEL: &[u8] = b"__redis__:invalidate";

/// Places looked at in one turn for keys to forget.
const FORGOTTEN_PER_TURN: usize = 2 * SHARD_COUNT;

/// Sends a client, or whom it redirects to, the changed keys; none for all. Messages to or on behalf of the
/// writer, whose command runs, wait with it.
fn tell(
    shared: &Shared,
    client: &Arc<ClientInfo>,
    keys: Option<&[&[u8]]>,
    writer: Option<(&mut Writer<'_>, Place)>,
) {
    let redirect = client.tracking.redirect();
    let target = match redirect {
        0 => Some(Arc::clone(client)),
        id => shared.clients.get(id).filter(|target| !target.closing.load(Relaxed)),
    };
    let Some(target) = target else {
        client.tracking.insert(Mode::BROKEN);
        if client.speaks_resp3() {
            send(shared, client, client, writer, |reply| {
                reply.push(2);
                reply.bulk(b"tracking-redir-broken");
                reply.integer(redirect as i64);
            });
        }
        return;
    };
    let write_keys = |reply: &mut Reply<'_>| match keys {
        None => reply.null(),
        Some(keys) => {
            reply.array(keys.len());
            keys.iter().for_each(|key| reply.bulk(key));
        }
    };
    if target.speaks_resp3() {
        send(shared, client, &target, writer, |reply| {
            reply.push(2);
            reply.bulk(b"invalidate");
            write_keys(reply);
        });
    } else if redirect != 0 && target.is_subscriber() {
        // RESP2 has no messages but those of channels. As in Redis, any subscription will do.
        send(shared, client, &target, writer, |reply| {
            reply.array(3);
            reply.bulk(b"message");
            reply.bulk(INVALIDATION_CHANNEL);
            write_keys(reply);
        });
    }
}

/// Writes a message of `client` in the protocol of its receiver, and hands it over.
fn send(
    shared: &Shared,
    client: &Arc<ClientInfo>,
    target: &Arc<ClientInfo>,
    writer: Option<(&mut Writer<'_>, Place)>,
    write: impl FnOnce(&mut Reply<'_>),
) {
    let protocol = if target.speaks_resp3() { Protocol::Resp3 } else { Protocol::Resp2 };
    // A session looks for messages of its own while it tracks.
    let tracks = |client: &ClientInfo| client.tracking.mode().contains(Mode::ON);
    let (id, own) = match writer {
        Some((writer, Place::Ahead)) if writer.client == target.id && tracks(target) => {
            return write(&mut Reply::new(&mut writer.own.ahead, protocol));
        }
        Some((writer, _)) if writer.client == target.id && tracks(target) => {
            return write(&mut Reply::new(&mut writer.own.behind, protocol));
        }
        Some((writer, _)) => (writer.client, Some(&mut *writer.own)),
        None => (0, None),
    };
    let mut out = ByteQueue::new();
    write(&mut Reply::new(&mut out, protocol));
    let bytes: Arc<[u8]> = out.as_single().expect("keys are copied into it, not shared").into();
    match own {
        Some(own) if id == client.id && tracks(client) => own.elsewhere.push((Arc::clone(target), bytes)),
        _ => push(shared, target, &bytes),
    }
}
