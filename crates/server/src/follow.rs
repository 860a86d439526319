//! Who follows which key: transactions that watch it, clients that wait for it.
//!
//! Beside the keyspace, one table per shard. Each is guarded by a lock of its own, taken under the shard's
//! lock and a leaf but for it; the longest work under it is one look-up. The shard counts its followers
//! (`Shard::is_followed`), so a write to a shard that nobody follows pays one load for all of this.
//!
//! **A waiting client** is one [`Waiter`], shared by the queues of all its keys. Whoever serves, times out
//! or ends it does so under its `over` lock and sets it: one of them is first, the others find it over
//! (`structures::claim`, with a model of all of it).
//! Lock order: shards, then `over`, then the tables here and the inboxes of threads.
//! **Queues** are ordered by place: numbers drawn under the shard's lock, so that the client that waited
//! for a key first is served first, on whatever thread it lives. Whose request ran and found nothing goes to
//! the end of all its queues, as in Redis.
//! **Reach.** Serving a waiter runs its whole request, which may need other shards than the key's, and may fill
//! a key that others wait for (BLMOVE). Who is about to write a key asks [`Follows::reach`] for the keys of all
//! of that and locks them before it writes, so that nobody comes between a write and the serving it leads to.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use commands::ctx::{Told, Touched};
use commands::{Awaited, EmptyReply};
use keyspace::Key;
use keyspace::key::{SHARD_COUNT, shard_of};
use net::ConnId;
use resp::{Protocol, Reply};
use smallvec::SmallVec;
use stdx::ByteQueue;
use structures::claim::Claim;
use structures::lock::Lock;

use crate::command_table::Registered;
use crate::owned_args::OwnedArgs;
use crate::session::ClientInfo;

/// A client that waits for its keys.
pub struct Waiter {
    /// What it is known by: its first place in the queues.
    pub ticket: u64,
    /// Its place in all queues; it changes under the locks of all their keys.
    pub place: AtomicU64,
    /// The client.
    pub client: u64,
    /// The thread it lives on.
    pub thread: usize,
    /// Its connection there.
    pub conn: ConnId,
    /// Its selected database.
    pub db: usize,
    /// Protocol of the reply.
    pub protocol: Protocol,
    /// Whether reads note accesses.
    pub touch: bool,
    /// The command that waits.
    pub registered: &'static Registered,
    /// The reply when time is over.
    pub empty: EmptyReply,
    /// When time is over, in milliseconds of the server's clock.
    pub deadline_ms: Option<u64>,
    /// What the client sent.
    pub args: OwnedArgs,
    /// What runs for it, where that is something else.
    pub request: Option<OwnedArgs>,
    /// The client, if what it reads is remembered for its cache.
    pub reader: Option<Arc<ClientInfo>>,
    /// The client, if it has subscriptions and wants its reply: that takes its place among their messages.
    pub subscriber: Option<Arc<ClientInfo>>,
    /// What it waits for.
    pub keys: Vec<WaitedKey>,
    /// Hashes of all keys of its request.
    pub reached: SmallVec<[u64; 4]>,
    /// Those keys that it does not wait for, with their hashes: it may fill them.
    pub filled: Vec<(Box<[u8]>, u64)>,
    /// It was served, or waits no more: nobody serves it again.
    pub over: Claim,
}

impl Waiter {
    /// What runs when one of the keys has something.
    pub fn request(&self) -> &OwnedArgs {
        self.request.as_ref().unwrap_or(&self.args)
    }

    /// Whether serving it from this key may take more than the key's shard.
    fn is_far_from(&self, hash: u64) -> bool {
        !self.filled.is_empty() || self.reached.iter().any(|other| shard_of(*other) != shard_of(hash))
    }

    /// Writes the reply for when there was nothing in time.
    pub fn write_empty(&self, protocol: Protocol, out: &mut ByteQueue) {
        self.empty.write_after_waiting(&mut Reply::new(out, protocol));
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waiter {{ ticket: {}, client: {} }}", self.ticket, self.client)
    }
}

/// One key that a client waits for.
pub struct WaitedKey {
    /// The key.
    pub key: Box<[u8]>,
    /// Its hash.
    pub hash: u64,
    /// What must be there.
    pub awaited: Awaited,
}

/// What may be touched by serving who waits for some keys.
pub enum Reach {
    /// Keys of these hashes.
    Hashes(SmallVec<[u64; 16]>),
    /// More than is worth to list.
    Everything,
}

/// Waiters that [`Follows::reach`] looks at.
const REACH_LOOKED_MAX: usize = 256;

/// Who follows one key of one database.
#[derive(Default)]
struct Followers {
    db: usize,
    /// Marked when the key changes.
    watchers: Vec<Arc<ClientInfo>>,
    /// By place; which of the waiter's keys it is.
    waiters: BTreeMap<u64, (Arc<Waiter>, usize)>,
    /// How many of the waiters want to hear of the key's end.
    group_waiters: usize,
    /// How many of the waiters may take more than this key's shard.
    far_waiters: usize,
}

/// By key; the databases of one key are few.
type Table = HashMap<Box<[u8]>, Vec<Followers>>;

/// All followers of all keys.
pub struct Follows {
    tables: Box<[Lock<Option<Box<Table>>>]>,
    tickets: AtomicU64,
    waiting_clients: AtomicUsize,
    waited_keys: AtomicUsize,
    group_keys: AtomicUsize,
    watching_clients: AtomicUsize,
}

impl Default for Follows {
    fn default() -> Self {
        Self {
            tables: (0..SHARD_COUNT).map(|_| Lock::new(None)).collect(),
            tickets: AtomicU64::new(0),
            waiting_clients: AtomicUsize::new(0),
            waited_keys: AtomicUsize::new(0),
            group_keys: AtomicUsize::new(0),
            watching_clients: AtomicUsize::new(0),
        }
    }
}

impl Follows {
    /// The next place in line. The caller holds the locks of all keys that the client will wait for.
    pub fn next_ticket(&self) -> u64 {
        self.tickets.fetch_add(1, Relaxed) + 1
    }

    /// Clients that wait.
    pub fn waiting_clients(&self) -> &AtomicUsize {
        &self.waiting_clients
    }

    /// Clients that watch keys.
    pub fn watching_clients(&self) -> &AtomicUsize {
        &self.watching_clients
    }

    /// Keys that clients wait for.
    pub fn waited_keys(&self) -> usize {
        self.waited_keys.load(Relaxed)
    }

    /// Those of them whose end somebody wants to hear of as well: streams read in groups.
    pub fn group_keys(&self) -> usize {
        self.group_keys.load(Relaxed)
    }

    /// The last place that was given. Who is further behind in a queue came to it after this.
    pub fn last_ticket(&self) -> u64 {
        self.tickets.load(Relaxed)
    }

    /// Puts a waiter into the queue of its key number `index`. The caller holds the shard's lock and counts
    /// the follower there.
    pub fn add_waiter(&self, waiter: &Arc<Waiter>, index: usize) {
        let key = &waiter.keys[index];
        self.with(waiter.db, &key.key, key.hash, |followers| {
            let in_group = key.awaited == Awaited::Group;
            self.waited_keys.fetch_add(usize::from(followers.waiters.is_empty()), Relaxed);
            self.group_keys.fetch_add(usize::from(in_group && followers.group_waiters == 0), Relaxed);
            followers.group_waiters += usize::from(in_group);
            followers.far_waiters += usize::from(waiter.is_far_from(key.hash));
            followers.waiters.insert(waiter.place.load(Relaxed), (Arc::clone(waiter), index));
        });
    }

    /// Takes a waiter out of the queue of its key number `index`. As [`Follows::add_waiter`]; whether it
    /// was there.
    pub fn remove_waiter(&self, waiter: &Waiter, index: usize) -> bool {
        let key = &waiter.keys[index];
        let mut removed = false;
        self.with(waiter.db, &key.key, key.hash, |followers| {
            removed = followers.waiters.remove(&waiter.place.load(Relaxed)).is_some();
            let in_group = removed && key.awaited == Awaited::Group;
            followers.group_waiters -= usize::from(in_group);
            followers.far_waiters -= usize::from(removed && waiter.is_far_from(key.hash));
            self.waited_keys.fetch_sub(usize::from(removed && followers.waiters.is_empty()), Relaxed);
            self.group_keys.fetch_sub(usize::from(in_group && followers.group_waiters == 0), Relaxed);
        });
        removed
    }

    /// Puts a waiter behind all others in the queues that it is in. The caller holds the locks of all its keys.
    /// O(its keys).
    pub fn requeue(&self, waiter: &Arc<Waiter>) {
        // It is in none whose key its own thread was faster with: it ends there.
        let stays: SmallVec<[bool; 4]> =
            (0..waiter.keys.len()).map(|index| self.remove_waiter(waiter, index)).collect();
        waiter.place.store(self.next_ticket(), Relaxed);
        for index in (0..waiter.keys.len()).filter(|index| stays[*index]) {
            self.add_waiter(waiter, index);
        }
    }

    /// Lets the client be marked when the key changes. The caller holds the shard's lock and counts the
    /// follower there.
    pub fn add_watcher(&self, db: usize, key: &[u8], hash: u64, client: &Arc<ClientInfo>) {
        self.with(db, key, hash, |followers| followers.watchers.push(Arc::clone(client)));
    }

    /// Ends what [`Follows::add_watcher`] began.
    pub fn remove_watcher(&self, db: usize, key: &[u8], hash: u64, client: u64) {
        self.with(db, key, hash, |followers| followers.watchers.retain(|other| other.id != client));
    }

    /// Marks the key's watchers; whether clients wait for it. The caller holds the shard's lock.
    pub fn touch(&self, touched: &Touched) -> bool {
        let mut waited_for = false;
        self.with_existing(touched.db, &touched.key, touched.hash, |followers| {
            // Relaxed: read under the lock of the same shard.
            let watchers = followers.watchers.iter().filter(|_| touched.told == Told::All);
            watchers.for_each(|client| client.watch_dirty.store(true, Relaxed));
            waited_for = !followers.waiters.is_empty();
        });
        waited_for
    }

    /// What may be touched by serving the waiters of `keys` (in whatever database), and of the keys that those
    /// fill in turn. Exact for keys whose shards the caller has locked, and if it has locked all that this gives.
    pub fn reach<'k>(&self, keys: impl Iterator<Item = Key<'k>>) -> Reach {
        let mut hashes = SmallVec::new();
        let mut filled: Vec<(Box<[u8]>, u64)> = Vec::new();
        let mut looked = 0;
        let mut visit = |key: &[u8], hash: u64, filled: &mut Vec<(Box<[u8]>, u64)>| {
            let table = self.tables[shard_of(hash)].lock();
            let of_key = table.as_ref().and_then(|table| table.get(key));
            let far = of_key.into_iter().flatten().filter(|followers| followers.far_waiters > 0);
            for (waiter, _) in far.flat_map(|followers| followers.waiters.values()) {
                looked += 1;
                if looked > REACH_LOOKED_MAX {
                    return false;
                }
                hashes.extend_from_slice(&waiter.reached);
                for key in &waiter.filled {
                    if !filled.contains(key) {
                        filled.push(key.clone());
                    }
                }
            }
            true
        };
        for key in keys {
            if !visit(key.bytes, key.hash, &mut filled) {
                return Reach::Everything;
            }
        }
        let mut next = 0;
        while let Some((key, hash)) = filled.get(next).cloned() {
            if !visit(&key, hash, &mut filled) {
                return Reach::Everything;
            }
            next += 1;
        }
        Reach::Hashes(hashes)
    }

    /// The first waiter for the key whose place is in `places`, with that place. With `exists` false only those
    /// that want to hear of the key's end. The caller holds the lock of the key's shard.
    pub fn next_waiter(
        &self,
        key: &Touched,
        places: RangeInclusive<u64>,
        exists: bool,
    ) -> Option<(u64, Arc<Waiter>, usize)> {
        let mut found = None;
        self.with_existing(key.db, &key.key, key.hash, |followers| {
            if (exists || followers.group_waiters > 0) && !places.is_empty() {
                let mut within = followers.waiters.range(places);
                found = within.next().map(|(place, (waiter, index))| (*place, Arc::clone(waiter), *index));
            }
        });
        found
    }

    /// All followed keys of these databases, as if they had changed. For the exclusive owner of the
    /// keyspace. O(followed keys).
    pub fn keys_of(&self, dbs: &[usize], hash_of: impl Fn(&[u8]) -> u64) -> Vec<Touched> {
        let mut keys = Vec::new();
        for table in &self.tables {
            let table = table.lock();
            for (key, followers) in table.iter().flat_map(|table| table.iter()) {
                let concerned = followers.iter().filter(|followers| dbs.contains(&followers.db));
                keys.extend(concerned.map(|followers| Touched {
                    db: followers.db,
                    hash: hash_of(key),
                    key: key.clone(),
                    told: Told::All,
                    events_before: 0,
                }));
            }
        }
        keys
    }

    /// The followers of a key, there or made; what is empty afterwards is removed.
    fn with(&self, db: usize, key: &[u8], hash: u64, act: impl FnOnce(&mut Followers)) {
        let mut guard = self.tables[shard_of(hash)].lock();
        let table = guard.get_or_insert_default();
        if !table.contains_key(key) {
            table.insert(key.into(), Vec::new());
        }
        let of_key = table.get_mut(key).expect("it was inserted above");
        let at = of_key.iter().position(|followers| followers.db == db).unwrap_or_else(|| {
            of_key.push(Followers { db, ..Followers::default() });
            of_key.len() - 1
        });
        act(&mut of_key[at]);
        if of_key[at].watchers.is_empty() && of_key[at].waiters.is_empty() {
            of_key.swap_remove(at);
        }
        if of_key.is_empty() {
            table.remove(key);
        }
    }

    fn with_existing(&self, db: usize, key: &[u8], hash: u64, act: impl FnOnce(&mut Followers)) {
        let mut table = self.tables[shard_of(hash)].lock();
        let of_key = table.as_mut().and_then(|table| table.get_mut(key));
        if let Some(followers) =
            of_key.and_then(|of_key| of_key.iter_mut().find(|followers| followers.db == db))
        {
            act(followers);
        }
    }
}
