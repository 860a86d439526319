//! The tables of watchers for WATCH: the clients that watch each key.
//!
//! There is one table per shard, beside the keyspace. Its lock is taken under the shard's lock, is
//! otherwise a leaf, and is held for one look-up. A shard counts the registrations of its keys:
//! watchers, blocked clients and tracked keys (`Shard::has_registrations`). A write to a shard
//! without any therefore costs one load. A function that adds, removes or marks watchers takes the
//! shard of the key as proof of the shard's lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use keyspace::key::SHARD_COUNT;
use keyspace::{Key, Shard};
use structures::lock::Lock;

use crate::client::ClientInfo;

/// The watchers of one key name, by database; few databases have the same key.
type OfKey = Vec<(usize, Vec<Arc<ClientInfo>>)>;
type Table = HashMap<Box<[u8]>, OfKey, ahash::RandomState>;

/// The registry of the clients that watch keys (WATCH), by key.
pub struct Watchers {
    tables: Box<[Lock<Option<Box<Table>>>]>,
    clients: AtomicUsize,
    seed: [u64; 4],
}

impl Watchers {
    /// Creates a registry without watchers. `seed` is the key of the hash of key names.
    pub fn new(seed: [u64; 4]) -> Self {
        let tables = (0..SHARD_COUNT).map(|_| Lock::new(None)).collect();
        Self { tables, clients: AtomicUsize::new(0), seed }
    }

    /// Returns the number of clients that watch keys, as a shared counter.
    pub fn clients(&self) -> &AtomicUsize {
        &self.clients
    }

    /// Adds a client to the watchers of a key of this shard.
    pub fn add(&self, shard: &mut Shard, (db, key): (usize, Key<'_>), client: &Arc<ClientInfo>) {
        shard.add_registration();
        let mut guard = self.tables[key.shard()].lock();
        let [a, b, c, d] = self.seed;
        let new = || Box::new(Table::with_hasher(ahash::RandomState::with_seeds(a, b, c, d)));
        let of_key = guard.get_or_insert_with(new).entry(key.bytes.into()).or_default();
        match of_key.iter_mut().find(|(of, _)| *of == db) {
            Some((_, clients)) => clients.push(Arc::clone(client)),
            None => of_key.push((db, vec![Arc::clone(client)])),
        }
    }

    /// Removes a client from the watchers of a key of this shard, to which [`Watchers::add`] has
    /// added it.
    pub fn remove(&self, shard: &mut Shard, (db, key): (usize, Key<'_>), client: u64) {
        shard.remove_registration();
        let mut guard = self.tables[key.shard()].lock();
        let Some(table) = guard.as_mut() else { return };
        let Some(of_key) = table.get_mut(key.bytes) else { return };
        for (_, clients) in of_key.iter_mut().filter(|(of, _)| *of == db) {
            clients.retain(|other| other.id != client);
        }
        of_key.retain(|(_, clients)| !clients.is_empty());
        if of_key.is_empty() {
            table.remove(key.bytes);
        }
    }

    /// Marks the watchers of a key of this shard, so that their transactions fail. O(watchers).
    pub fn mark(&self, _shard: &Shard, (db, key): (usize, Key<'_>)) {
        // Relaxed: a watcher of this key increased the count under its shard's lock, which the
        // caller holds.
        if self.clients.load(Relaxed) == 0 {
            return;
        }
        let table = self.tables[key.shard()].lock();
        let of_key = table.as_ref().and_then(|table| table.get(key.bytes));
        let watchers = of_key.into_iter().flatten().filter(|(of, _)| *of == db);
        // Relaxed: read under the lock of the same shard.
        watchers.flat_map(|(_, clients)| clients).for_each(|client| client.watch_dirty.store(true, Relaxed));
    }

    /// Lists all watched keys of these databases, by database. For the exclusive owner of the
    /// keyspace. O(watched keys).
    pub fn keys_of(&self, dbs: &[usize]) -> Vec<(usize, Box<[u8]>)> {
        let mut keys = Vec::new();
        for table in &self.tables {
            for (key, of_key) in table.lock().iter().flat_map(|table| table.iter()) {
                let concerned = of_key.iter().filter(|(db, _)| dbs.contains(db));
                keys.extend(concerned.map(|(db, _)| (*db, key.clone())));
            }
        }
        keys
    }
}
