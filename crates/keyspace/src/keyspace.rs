//! The keyspace: all shards behind their locks, and the locked sets of shards that commands run on.

use smallvec::SmallVec;
use structures::lock::{Guard, Lock};
use structures::table::SweepBudget;

use crate::db::{KeyEntry, Shard};
use crate::key::{Hasher, SHARD_COUNT, shard_of};

/// All databases of a process, sharded by key hash. Shared by all threads.
pub struct Keyspace {
    shards: Box<[PaddedLock]>,
    hasher: Hasher,
    db_count: usize,
}

/// A shard's lock on a cache line of its own, so that neighbours do not contend.
#[repr(align(64))]
struct PaddedLock(Lock<Shard>);

/// How many keys a database holds, as INFO shows them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct DbSize {
    /// Keys.
    pub keys: usize,
    /// Keys with an expiry.
    pub expires: usize,
}

impl Keyspace {
    /// An empty keyspace of `db_count` databases whose hashes depend on the secret `seed`.
    pub fn new(db_count: usize, seed: [u64; 4]) -> Self {
        let shards = (0..SHARD_COUNT).map(|number| PaddedLock(Lock::new(Shard::new(number))));
        Self { shards: shards.collect(), hasher: Hasher::with_seed(seed), db_count }
    }

    /// The keyed hash of this process.
    #[inline]
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Number of databases.
    pub fn db_count(&self) -> usize {
        self.db_count
    }

    /// Locks one shard. Hold no other: several are taken by [`Keyspace::lock_all_of`] in order.
    #[inline]
    pub fn lock(&self, shard: usize) -> Guard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    /// Locks one shard if nobody holds it.
    #[inline]
    pub fn try_lock(&self, shard: usize) -> Option<Guard<'_, Shard>> {
        self.shards[shard].0.try_lock()
    }

    /// Starts loading a shard's header into the cache.
    #[inline]
    pub fn prefetch_shard(&self, hash: u64) {
        structures::prefetch::prefetch_read(&raw const self.shards[shard_of(hash)]);
    }

    /// Locks the shard of one key.
    #[inline]
    pub fn lock_one(&self, hash: u64) -> Locked<'_> {
        let shard = shard_of(hash);
        let mut guards = SmallVec::new();
        guards.push((shard, self.lock(shard)));
        Locked { guards }
    }

    /// Locks the shards of all these hashes, each once, in ascending order. O(n log n).
    pub fn lock_all_of(&self, hashes: impl Iterator<Item = u64>) -> Locked<'_> {
        let mut shards: SmallVec<[usize; 16]> = hashes.map(shard_of).collect();
        shards.sort_unstable();
        shards.dedup();
        Locked { guards: shards.into_iter().map(|shard| (shard, self.lock(shard))).collect() }
    }

    /// Locks every shard: for a command that has the keyspace to itself and cannot say which keys it will
    /// look at. O(shards).
    pub fn lock_all(&self) -> Locked<'_> {
        Locked { guards: (0..SHARD_COUNT).map(|shard| (shard, self.lock(shard))).collect() }
    }

    /// Locks nothing: for commands that visit shards one at a time.
    #[inline]
    pub fn lock_none(&self) -> Locked<'_> {
        Locked { guards: SmallVec::new() }
    }

    /// The size of one database, shard after shard: exact only while nobody writes. O(shards).
    pub fn db_size(&self, db: usize) -> DbSize {
        let mut size = DbSize::default();
        for shard in 0..SHARD_COUNT {
            let guard = self.lock(shard);
            if let Some(db) = guard.db(db) {
                size.keys += db.table.len();
                size.expires += db.table.deadline_count();
            }
        }
        size
    }

    /// Removes due keys of one shard, a bounded step; hands them to `due`, to be dropped when the lock is
    /// free again. Returns the next point within the shard, `None` when the shard is done. A shard in
    /// which nothing ever expires costs its lock and a load per database.
    pub fn sweep_due(
        &self,
        at: SweepPoint,
        now_ms: i64,
        budget: SweepBudget,
        due: &mut Vec<KeyEntry>,
    ) -> Option<SweepPoint> {
        let mut guard = self.lock(at.shard);
        let expiring = guard.dbs().skip(at.db).position(|db| db.table.deadline_count() > 0)?;
        let db = at.db + expiring;
        let cursor = if expiring == 0 { at.cursor } else { 0 };
        let next = guard.db_mut(db).table.sweep_due(cursor, now_ms, budget, |entry| due.push(entry));
        let next_db = if next == 0 { db + 1 } else { db };
        Some(SweepPoint { shard: at.shard, db: next_db, cursor: next })
    }
}

/// A point in a walk over the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepPoint {
    /// The shard.
    pub shard: usize,
    /// The database.
    pub db: usize,
    /// The table's own cursor.
    pub cursor: u64,
}

/// Shards locked for one command, in ascending order. Dropping it unlocks them.
pub struct Locked<'k> {
    guards: SmallVec<[(usize, Guard<'k, Shard>); 1]>,
}

impl Locked<'_> {
    /// A locked shard, to change.
    ///
    /// # Panics
    /// If the shard is not among the locked: a command touched a key its record does not declare.
    #[inline]
    pub fn shard_mut(&mut self, shard: usize) -> &mut Shard {
        let at = self.position(shard);
        &mut self.guards[at].1
    }

    /// A locked shard.
    ///
    /// # Panics
    /// As [`Locked::shard_mut`].
    #[inline]
    pub fn shard(&self, shard: usize) -> &Shard {
        &self.guards[self.position(shard)].1
    }

    #[inline]
    fn position(&self, shard: usize) -> usize {
        match self.guards.as_slice() {
            [(only, _)] if *only == shard => 0,
            guards => guards
                .binary_search_by_key(&shard, |(index, _)| *index)
                .expect("a command reaches only the keys its record declares"),
        }
    }
}
