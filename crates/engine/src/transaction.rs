//! Transactions: MULTI queues, EXEC runs all of it at once, WATCH makes EXEC depend on keys.
//!
//! **EXEC** on data commands that name their keys takes the union of their shards' locks (and those
//! of watched keys) once, and runs them one after another: others work on other shards meanwhile. A
//! transaction with anything else in it (a command about the server, one that visits all keys) runs
//! alone, with the gate closed.
//!
//! **WATCH** notes whether the key exists and lets writers mark the client (`watch.rs`), under the
//! lock of the key's shard. EXEC looks at the mark under the same locks, so a write is before it or
//! after the whole transaction. A key that existed and was removed counts as changed, however it
//! was removed: deleted, expired (found expired or not), evicted, flushed. A key that had already
//! expired when it was watched counts as missing, and its removal changes nothing.
//!
//! **While a script is busy** the shard of a key may be out of reach. A WATCH that cannot look at
//! its key counts as one of a key that has changed: the transaction behind it does not run, which
//! its client must expect in any case. An UNWATCH that cannot reach a key leaves the watch behind
//! as over, and it is ended when the script is done.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use commands::Args;
use commands::table::Flags;
use hashbrown::HashTable;
use keyspace::key::KeyHash;
use keyspace::{Hasher, Key, Keyspace, Locked};

use crate::client::ClientInfo;
use crate::owned_args::OwnedArgs;
use crate::table::{KeyPlan, Registered, Runner};
use crate::watch::Watchers;

/// A transaction that is being queued. Thread: the client's.
#[derive(Default)]
pub struct Transaction {
    pub(crate) queue: Vec<Queued>,
    /// The length that counts against `client-query-buffer-limit`, as in Redis: the words, and a
    /// pointer for each.
    query_bytes: usize,
    /// A command was refused: EXEC will be, too.
    pub(crate) refused: bool,
    /// All commands' flags together.
    flags: Option<Flags>,
}

/// A queued command.
pub(crate) struct Queued {
    pub registered: &'static Registered,
    pub args: OwnedArgs,
}

impl Transaction {
    /// Returns the flags of all queued commands together.
    pub fn flags(&self) -> Flags {
        self.flags.unwrap_or(Flags::empty())
    }

    /// Returns the length of the queue, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.queue.iter().map(|queued| queued.args.len_bytes() + size_of::<Queued>()).sum()
    }

    /// Returns the length of the queue as unread input.
    pub fn query_bytes(&self) -> usize {
        self.query_bytes
    }

    /// Queues a command; what it takes, in bytes.
    pub(crate) fn push(&mut self, registered: &'static Registered, args: &Args<'_>) -> usize {
        self.flags = Some(self.flags() | registered.command.flags);
        let queued = Queued { registered, args: OwnedArgs::new(args.from(0)) };
        let len_bytes = size_of::<Queued>() + queued.args.len_bytes();
        self.queue.push(queued);
        self.query_bytes += args.from(0).map(|word| word.len() + size_of::<usize>()).sum::<usize>();
        len_bytes
    }

    /// Returns true if some of it runs scripts. O(commands).
    pub(crate) fn has_scripts(&self) -> bool {
        self.queue.iter().any(|queued| matches!(queued.registered.command.run, Runner::Script(_)))
    }

    /// Returns true if all of it names its keys and can run under their locks.
    pub(crate) fn has_declared_keys(&self, hasher: &Hasher) -> bool {
        self.queue.iter().all(|queued| {
            let command = &queued.registered.command;
            matches!(command.run, Runner::Data(_))
                && queued.registered.key_plan != KeyPlan::None
                && !command.runs_alone(&queued.args.args(hasher))
        })
    }
}

/// Keys that a client watches. Thread: the client's; a writer of one of them marks the client
/// ([`ClientInfo::watch_dirty`]).
pub struct Watch {
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) keys: Vec<WatchedKey>,
    /// It is over for the client, but keys of it could not be given up yet.
    is_over: bool,
    /// Places in `keys`, found by the hash of the key.
    places: HashTable<usize>,
}

/// The length of a watched key in the table of watchers and as a place found by its hash, beside
/// its name (measured).
const FOLLOWED_BYTES: usize = 320;

/// A key that a client watches.
pub(crate) struct WatchedKey {
    db: usize,
    key: Box<[u8]>,
    pub hash: KeyHash,
    existed: bool,
}

impl Watch {
    /// Creates the state of a client that begins to watch keys.
    pub(crate) fn new(client: &Arc<ClientInfo>, watchers: &Watchers) -> Self {
        watchers.clients().fetch_add(1, Relaxed);
        Self { client: Arc::clone(client), keys: Vec::new(), is_over: false, places: HashTable::new() }
    }

    /// Returns true if a key of database `db` is watched. O(1).
    fn has(&self, db: usize, key: Key<'_>) -> bool {
        let is_it = |watched: &WatchedKey| watched.db == db && *watched.key == *key.bytes;
        self.places.find(key.hash.number(), |&place| is_it(&self.keys[place])).is_some()
    }

    /// Watches a key, unless it does already or is known to fail. A key with a time up to `due_ms`
    /// counts as missing. The caller holds no shard's lock. Whether it was possible: not where a
    /// busy script holds the shard.
    pub(crate) fn add(
        &mut self,
        (watchers, keyspace): (&Watchers, &Keyspace),
        (db, key): (usize, Key<'_>),
        due_ms: i64,
    ) -> bool {
        if self.client.watch_dirty.load(Relaxed) || self.has(db, key) {
            return true;
        }
        let Some(mut shard) = keyspace.lock_unless_busy(key.shard()) else { return false };
        let existed = shard.is_live(db, key, due_ms);
        watchers.add(&mut shard, (db, key), &self.client);
        drop(shard);
        let watched = WatchedKey { db, key: key.bytes.into(), hash: key.hash, existed };
        self.client.held.watched_and_subscribed_bytes.fetch_add(watched.len_bytes() as u64, Relaxed);
        self.insert(watched);
        true
    }

    /// Returns true if it has ended for the client.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Begins to watch more keys. One that is over, with keys that could not be given up, becomes
    /// the client's again: as one that fails, for its marks are those of what is over, too.
    pub(crate) fn begin(&mut self) {
        if std::mem::take(&mut self.is_over) {
            self.fail();
        }
    }

    /// Has the transaction fail.
    pub(crate) fn fail(&self) {
        self.client.watch_dirty.store(true, Relaxed);
    }

    /// Ends it for the client: what is left is to give the keys up.
    pub(crate) fn end_later(&mut self) {
        self.is_over = true;
        self.places.clear();
        self.client.watched.store(0, Relaxed);
    }

    /// Ends it, but for keys whose shards a busy script holds; whether there were none. The caller
    /// is inside the gate and holds no shard's lock. O(keys).
    pub(crate) fn end(&mut self, watchers: &Watchers, keyspace: &Keyspace) -> bool {
        self.end_later();
        let client = &self.client;
        let mut given_up_bytes = 0;
        self.keys.retain(|watched| {
            let key = Key { bytes: &watched.key, hash: watched.hash };
            let Some(mut shard) = keyspace.lock_unless_busy(key.shard()) else { return true };
            watchers.remove(&mut shard, (watched.db, key), client.id);
            given_up_bytes += watched.len_bytes() as u64;
            false
        });
        client.held.watched_and_subscribed_bytes.fetch_sub(given_up_bytes, Relaxed);
        let ended = self.keys.is_empty();
        if ended {
            watchers.clients().fetch_sub(1, Relaxed);
            // Under the locks of their shards all keys were given up: nobody marks the client any
            // more.
            client.watch_dirty.store(false, Relaxed);
        }
        ended
    }

    fn insert(&mut self, watched: WatchedKey) {
        let Self { keys, places, .. } = self;
        places.insert_unique(watched.hash.number(), keys.len(), |&place| keys[place].hash.number());
        keys.push(watched);
    }

    /// Returns true if a watched key changed. Their shards are locked.
    pub(crate) fn has_changed_key(&self, locked: &mut Locked<'_>, due_ms: i64) -> bool {
        // Relaxed: set under the locks that are held here.
        self.client.watch_dirty.load(Relaxed)
            || self.keys.iter().any(|key| key.existed && !key.exists(locked, due_ms))
    }
}

impl WatchedKey {
    /// Returns its length, in bytes, here and in the table of watchers.
    fn len_bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.key.len() + FOLLOWED_BYTES
    }

    /// Returns true if the key exists now; its shard is locked. As in Redis nothing is removed
    /// here: the check does not expire a key.
    fn exists(&self, locked: &mut Locked<'_>, due_ms: i64) -> bool {
        let key = Key { bytes: &self.key, hash: self.hash };
        locked.shard_of_mut(self.hash).is_some_and(|shard| shard.is_live(self.db, key, due_ms))
    }
}
