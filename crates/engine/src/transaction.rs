//! Transactions: MULTI queues commands, EXEC runs all of them together, WATCH makes EXEC depend on
//! keys.
//!
//! **EXEC** of data commands that name their keys locks the shards of all these keys, and of the
//! watched keys, once. It then runs the commands in sequence; other threads can use other shards at
//! that time. A transaction with any other command (about the server, or on all keys) runs as the
//! exclusive owner of the keyspace.
//!
//! **WATCH** records if the key exists, and adds the client to the watchers of the key
//! (`watch.rs`), under the lock of the key's shard. A writer of the key marks the client as dirty.
//! EXEC reads the mark under the same locks, so a write is either before or after the whole
//! transaction. A key that existed and was removed counts as changed in all cases: deleted, expired
//! (removed or not), evicted, flushed. A key that had already expired when it was watched counts as
//! missing, and its removal changes nothing.
//!
//! **While a script is busy**, the shard of a key may be locked for long. A WATCH that cannot lock
//! a key counts as the watch of a changed key. The next transaction then does not run, which
//! clients must expect in any case. An UNWATCH that cannot lock a key marks the watch as ended, and
//! removes the key after the script.

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

/// A transaction whose commands are being queued (MULTI). Used by the client's thread only.
#[derive(Default)]
pub struct Transaction {
    pub(crate) queue: Vec<Queued>,
    /// The number of bytes of the queued commands that count against `client-query-buffer-limit`,
    /// as in Redis: the words, and a pointer for each word.
    query_bytes: usize,
    /// True if a command of the transaction was refused when it was to be queued, so that EXEC will
    /// fail.
    pub(crate) refused: bool,
    /// The union of the flags of all queued commands; `None` while no command is queued.
    flags: Option<Flags>,
    /// The flags that all queued commands have in common; `None` while no command is queued.
    common_flags: Option<Flags>,
}

/// A command that is queued in a transaction, with its arguments.
pub(crate) struct Queued {
    pub registered: &'static Registered,
    pub args: OwnedArgs,
}

impl Transaction {
    /// Returns the union of the flags of all commands queued in the transaction.
    pub fn flags(&self) -> Flags {
        self.flags.unwrap_or(Flags::empty())
    }

    /// Returns the flags that all commands queued in the transaction have in common.
    pub fn common_flags(&self) -> Flags {
        self.common_flags.unwrap_or(Flags::all())
    }

    /// Returns the memory of the transaction's queued commands, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.queue.iter().map(|queued| queued.args.len_bytes() + size_of::<Queued>()).sum()
    }

    /// Returns the number of the transaction's bytes that count against
    /// `client-query-buffer-limit`.
    pub fn query_bytes(&self) -> usize {
        self.query_bytes
    }

    /// Queues a command in the transaction. Returns the memory of the queued command, in bytes.
    pub(crate) fn push(&mut self, registered: &'static Registered, args: &Args<'_>) -> usize {
        self.flags = Some(self.flags() | registered.command.flags);
        self.common_flags = Some(self.common_flags() & registered.command.flags);
        let queued = Queued { registered, args: OwnedArgs::new(args.from(0)) };
        let len_bytes = size_of::<Queued>() + queued.args.len_bytes();
        self.queue.push(queued);
        self.query_bytes += args.from(0).map(|word| word.len() + size_of::<usize>()).sum::<usize>();
        len_bytes
    }

    /// Returns true if any command queued in the transaction runs a script. O(commands).
    pub(crate) fn has_scripts(&self) -> bool {
        self.queue.iter().any(|queued| matches!(queued.registered.command.run, Runner::Script(_)))
    }

    /// Returns true if all queued commands are SELECT, or data commands that name their keys and
    /// can run under the locks of these keys.
    pub(crate) fn has_declared_keys(&self, hasher: &Hasher) -> bool {
        self.queue.iter().all(|queued| {
            let command = &queued.registered.command;
            // In the stream of a primary, transactions contain SELECT.
            queued.registered.full_name == "select"
                || matches!(command.run, Runner::Data(_))
                    && queued.registered.key_plan != KeyPlan::None
                    && !command.runs_alone(&queued.args.args(hasher))
        })
    }
}

/// The keys that a client watches. Used by the client's thread. A thread that changes one of the
/// keys marks the client ([`ClientInfo::watch_dirty`]).
pub struct Watch {
    pub(crate) client: Arc<ClientInfo>,
    pub(crate) keys: Vec<WatchedKey>,
    /// True if the client's watch has ended, but some of its keys are still in the table of
    /// watchers.
    is_over: bool,
    /// The index in `keys` of each watched key, found by the key's hash.
    places: HashTable<usize>,
}

/// The counted memory of a watched key in the table of watchers and in [`Watch::places`], without
/// its name, in bytes (measured).
const FOLLOWED_BYTES: usize = 320;

/// A key that a client watches, and whether it existed when the watch began.
pub(crate) struct WatchedKey {
    db: usize,
    key: Box<[u8]>,
    pub hash: KeyHash,
    existed: bool,
}

impl Watch {
    /// Creates the state of a client that watches no keys yet.
    pub(crate) fn new(client: &Arc<ClientInfo>, watchers: &Watchers) -> Self {
        watchers.clients().fetch_add(1, Relaxed);
        Self { client: Arc::clone(client), keys: Vec::new(), is_over: false, places: HashTable::new() }
    }

    /// Returns true if a key of database `db` is watched. O(1).
    fn has(&self, db: usize, key: Key<'_>) -> bool {
        let is_it = |watched: &WatchedKey| watched.db == db && *watched.key == *key.bytes;
        self.places.find(key.hash.number(), |&place| is_it(&self.keys[place])).is_some()
    }

    /// Adds a key to those that the client watches. Does nothing if the client already watches it
    /// or the client's next transaction will fail anyway. A key that expires at `due_ms` or before
    /// counts as missing. The caller holds no shard's lock. Returns false if a busy script holds
    /// the shard.
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

    /// Returns true if the client's watch has ended, but some of its keys may still be in the table
    /// of watchers.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Prepares to watch more keys. If keys of an ended watch could not be removed from the table
    /// of watchers, the next transaction will fail: a mark may come from an old or from a new key.
    pub(crate) fn begin(&mut self) {
        if std::mem::take(&mut self.is_over) {
            self.fail();
        }
    }

    /// Makes the client's next transaction fail.
    pub(crate) fn fail(&self) {
        self.client.watch_dirty.store(true, Relaxed);
    }

    /// Ends the client's watch of its keys. The keys are removed from the table of watchers later.
    pub(crate) fn end_later(&mut self) {
        self.is_over = true;
        self.places.clear();
        self.client.watched.store(0, Relaxed);
    }

    /// Ends the client's watch, and removes all its keys except those in shards that a busy script
    /// holds. Returns true if no key is left. The caller is inside the gate (the keyspace's shared
    /// lock) and holds no shard's lock. O(keys).
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
            // All keys were removed under the locks of their shards, so no thread marks the client
            // any more.
            client.watch_dirty.store(false, Relaxed);
        }
        ended
    }

    fn insert(&mut self, watched: WatchedKey) {
        let Self { keys, places, .. } = self;
        places.insert_unique(watched.hash.number(), keys.len(), |&place| keys[place].hash.number());
        keys.push(watched);
    }

    /// Returns true if a key that the client watches has changed. The caller has locked the shards
    /// of the keys. A key that expires at `due_ms` or before counts as missing.
    pub(crate) fn has_changed_key(&self, locked: &mut Locked<'_>, due_ms: i64) -> bool {
        // Relaxed: it is set under the locks that are held here.
        self.client.watch_dirty.load(Relaxed)
            || self.keys.iter().any(|key| key.existed && !key.exists(locked, due_ms))
    }
}

impl WatchedKey {
    /// Returns the bytes that the watched key counts, in this list and in the table of watchers.
    fn len_bytes(&self) -> usize {
        size_of::<Self>() + 2 * self.key.len() + FOLLOWED_BYTES
    }

    /// Returns true if the watched key exists now. The caller has locked its shard. As in Redis,
    /// the check does not remove an expired key.
    fn exists(&self, locked: &mut Locked<'_>, due_ms: i64) -> bool {
        let key = Key { bytes: &self.key, hash: self.hash };
        locked.shard_of_mut(self.hash).is_some_and(|shard| shard.is_live(self.db, key, due_ms))
    }
}
