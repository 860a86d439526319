//! The keyspace: all shards behind their locks, and the sets of locked shards on which commands
//! run.

use smallvec::SmallVec;
use structures::listpack::element::IntText;
use structures::lock::{Guard, Lock};
use structures::table::{Place, Sweep, SweepBudget, SweptParts, Table};

pub use crate::db::DbSize;
use crate::db::{Db, Shard};
use crate::gate::Exclusive;
use crate::key::{Hasher, KeyHash, SHARD_COUNT, position_of, shard_of};
use crate::object::{KeyEntry, Object};
use crate::parts::ValuePart;
use crate::sizes::{BINS, KeySizes, Resize, SizeCounts, SizeLane, SizeMark};
use crate::snapshot::{BigValue, OnFlush, Part, Snapshot, Stepped};

/// All databases of a process, sharded by key hash. All threads use the same one.
pub struct Keyspace {
    shards: Box<[PaddedLock]>,
    hasher: Hasher,
    db_count: usize,
    sizes: KeySizes,
    snapshot: Snapshot,
}

/// A shard's lock on a cache line of its own, so that neighbouring locks do not contend.
#[repr(align(64))]
struct PaddedLock(Lock<Shard>);

/// The error when a script that has run for too long holds a needed shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShardBusy;

impl Keyspace {
    /// Creates an empty keyspace of `db_count` databases whose hashes depend on the secret `seed`.
    pub fn new(db_count: usize, seed: [u64; 4]) -> Self {
        Self::with_hasher(db_count, Hasher::with_seed(seed))
    }

    fn with_hasher(db_count: usize, hasher: Hasher) -> Self {
        let shards = (0..SHARD_COUNT).map(|number| PaddedLock(Lock::new(Shard::new(number))));
        Self {
            shards: shards.collect(),
            snapshot: Snapshot::new(db_count, &hasher),
            hasher,
            db_count,
            sizes: KeySizes::new(db_count),
        }
    }

    /// Creates a second, empty keyspace with the same databases and hashes, so that
    /// [`exchange`](Self::exchange) can exchange the keys of both. O(shards).
    pub fn beside(&self) -> Self {
        Self::with_hasher(self.db_count, self.hasher.clone())
    }

    /// Returns the keyed hash function of this process.
    #[inline]
    pub fn hasher(&self) -> &Hasher {
        &self.hasher
    }

    /// Returns the number of databases of the keyspace.
    pub fn db_count(&self) -> usize {
        self.db_count
    }

    /// Returns the counts of keys by size, which INFO shows.
    #[inline]
    pub fn sizes(&self) -> &KeySizes {
        &self.sizes
    }

    /// Returns the state of the walk over the keyspace for a snapshot, also when no walk is in
    /// progress.
    #[inline]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Starts a snapshot walk over the keyspace in its present state. Returns false if another walk
    /// is in progress. O(shards).
    pub fn fix_snapshot(&self, _alone: &Exclusive, on_flush: OnFlush) -> bool {
        if self.snapshot.is_under_way() {
            return false;
        }
        let mut sizes = vec![DbSize::default(); self.db_count];
        for shard in 0..SHARD_COUNT {
            let guard = self.lock(shard);
            sizes.iter_mut().enumerate().for_each(|(db, size)| size.add(&guard, db));
        }
        self.snapshot.fix(sizes, on_flush);
        true
    }

    /// Starts a snapshot walk that visits no key, for a snapshot without data. Returns false if
    /// another walk is in progress. O(shards).
    pub fn fix_empty_snapshot(&self, _alone: &Exclusive, on_flush: OnFlush) -> bool {
        if self.snapshot.is_under_way() {
            return false;
        }
        self.snapshot.fix(vec![DbSize::default(); self.db_count], on_flush);
        true
    }

    /// Calls `visit` with about `entries_max` further keys of `part`, the keys of a database in one
    /// shard, for a snapshot. Does not visit big values, but queues them for
    /// [`Keyspace::walk_big`]. The calling thread is inside the gate, so no exclusive owner of the
    /// keyspace works. O(entries), with the shard locked.
    pub fn walk_part(&self, part: Part, entries_max: usize, visit: impl FnMut(&KeyEntry)) -> Stepped {
        match self.lock_unless_busy(part.shard()) {
            Some(mut shard) => self.snapshot.walk_part(&mut shard, part, entries_max, visit),
            None => Stepped::Busy,
        }
    }

    /// Calls `visit` with the next pieces of a big value in the snapshot walk, about `elements_max`
    /// elements. The caller must be inside the gate, so that no exclusive owner of the keyspace
    /// works. O(elements), with the shard locked unless the value was removed from the keyspace.
    pub fn walk_big(
        &self,
        big: &BigValue,
        elements_max: usize,
        visit: &mut dyn FnMut(ValuePart<'_>),
    ) -> Stepped {
        self.snapshot.walk_big(|shard| self.lock_unless_busy(shard), big, elements_max, visit)
    }

    /// Adds a key to a locked shard, which must not have it. Returns its place in the database's
    /// table. The caller adds the key's size to the size counts. All new keys are added by this
    /// function. O(1) amortised.
    #[inline]
    pub(crate) fn insert(&self, shard: &mut Shard, db: usize, hash: KeyHash, entry: KeyEntry) -> Place {
        let place = shard.db_mut(db).insert(hash, entry, &self.hasher);
        if self.snapshot.is_under_way() {
            self.snapshot.inserted(shard, (db, hash), place);
        }
        place
    }

    /// Removes the key at `place`, a place in a database's table, from a locked shard and returns
    /// its entry. Subtracts its size from the size counts: in the `lane` (the counts of one thread)
    /// of the caller, or for `None` in the shared one. O(1) amortised.
    #[inline]
    pub(crate) fn remove_at(
        &self,
        lane: Option<&SizeLane>,
        shard: &mut Shard,
        (db, hash): (usize, KeyHash),
        place: Place,
    ) -> KeyEntry {
        let mut occupied = shard.db_mut(db).table.occupied(place);
        if self.snapshot.is_preserved_for() {
            self.snapshot.keep(&mut occupied, db, hash);
        }
        let entry = occupied.remove();
        // The size is computed before the snapshot takes a big value out of the entry.
        self.resized(lane, shard, Resize { db, hash, old: SizeMark::of(&entry), new: SizeMark::NONE });
        self.left(entry)
    }

    /// Moves the value of `entry`, which was removed from the keyspace, to the snapshot walk if the
    /// walk still needs it. Returns the entry, without its value if that was moved.
    #[inline]
    pub(crate) fn left(&self, mut entry: KeyEntry) -> KeyEntry {
        if self.snapshot.is_under_way() {
            self.snapshot.left(&mut entry);
        }
        entry
    }

    /// Informs the snapshot walk that `entry` is about to replace the entry of a key in a locked
    /// shard. If the walk is reading a big value that the new entry holds, it updates the stored
    /// place of that value.
    #[inline]
    pub(crate) fn on_replaced(&self, db: usize, hash: KeyHash, entry: &KeyEntry) {
        if self.snapshot.is_under_way() {
            self.snapshot.on_replaced(db, hash, entry);
        }
    }

    /// Adds a key to a locked shard unless it exists. Returns true if it was added. For code that
    /// fills a database without running commands. O(1) amortised.
    pub fn insert_absent(&self, shard: &mut Shard, db: usize, entry: KeyEntry) -> bool {
        let hash = self.hasher.hash_key(entry.key());
        self.insert_hashed(shard, db, (hash, entry)).is_ok()
    }

    /// Adds a key with its hash to a locked shard. Returns the entry as an error if the key already
    /// exists.
    fn insert_hashed(
        &self,
        shard: &mut Shard,
        db: usize,
        (hash, entry): (KeyHash, KeyEntry),
    ) -> Result<(), KeyEntry> {
        if shard.db(db).is_some_and(|db| db.contains(hash, entry.key())) {
            return Err(entry);
        }
        let new = SizeMark::of(&entry);
        self.resized(None, shard, Resize { db, hash, old: SizeMark::NONE, new });
        self.insert(shard, db, hash, entry);
        Ok(())
    }

    /// Adds many keys, each with its hash, like [`insert_absent`](Self::insert_absent). Locks each
    /// shard once, and prefetches the table buckets of all its keys together. O(n log n).
    ///
    /// # Errors
    /// The entry of a key that already exists. Not all other keys may have been added then.
    pub fn insert_all_absent(
        &self,
        db: usize,
        mut entries: Vec<(KeyHash, KeyEntry)>,
    ) -> Result<(), KeyEntry> {
        entries.sort_unstable_by_key(|&(hash, _)| shard_of(hash));
        let mut entries = entries.into_iter();
        while let Some(&(first, _)) = entries.as_slice().first() {
            let is_here = |(hash, _): &&(KeyHash, KeyEntry)| shard_of(*hash) == shard_of(first);
            let count = entries.as_slice().iter().take_while(is_here).count();
            let mut shard = self.lock(shard_of(first));
            if let Some(db) = shard.db(db) {
                let ahead = &entries.as_slice()[..count];
                ahead.iter().for_each(|(hash, _)| db.table.prefetch_bucket(position_of(*hash)));
            }
            for (hash, entry) in entries.by_ref().take(count) {
                self.insert_hashed(&mut shard, db, (hash, entry))?;
            }
        }
        Ok(())
    }

    /// Removes a key from a locked shard, if it exists. For code that fills a database without
    /// running commands. O(1) amortised.
    pub fn remove(&self, shard: &mut Shard, db: usize, key: &[u8]) {
        let hash = self.hasher.hash_key(key);
        if let Some(place) = shard.db(db).and_then(|db| db.table.find(position_of(hash), key)) {
            drop(self.remove_at(None, shard, (db, hash), place));
        }
    }

    /// Subtracts the size of a key that was just removed from a locked shard from the size counts
    /// (in the counts that threads share).
    pub(crate) fn removed(&self, shard: &mut Shard, db: usize, entry: &KeyEntry) {
        let hash = self.hasher.hash_key(entry.key());
        self.resized(None, shard, Resize { db, hash, old: SizeMark::of(entry), new: SizeMark::NONE });
    }

    /// Updates the size counts and the index of big keys after a key of a locked shard has changed
    /// its size mark. Counts in the `lane` (the counts of one thread) of the caller, or for `None`
    /// in the shared one. O(1).
    #[inline]
    pub(crate) fn resized(&self, lane: Option<&SizeLane>, shard: &mut Shard, resize: Resize) {
        let Resize { db, hash, old, new } = resize;
        if old == new {
            return;
        }
        self.sizes.recount(lane, db, old, new);
        if old.differs_in_class(new) {
            shard.note_big(db, hash, old, new);
        }
    }

    /// Calls `again` with every key of database `db` in a locked shard. Replaces the key's entry by
    /// the result, or removes the key if the result is `None`. O(keys).
    pub fn map_keys(
        &self,
        shard: &mut Shard,
        db: usize,
        mut again: impl FnMut(&KeyEntry) -> Option<KeyEntry>,
    ) {
        for entry in shard.take_keys(db).iter() {
            self.removed(shard, db, &entry);
            if let Some(entry) = again(&entry) {
                self.insert_absent(shard, db, entry);
            }
        }
    }

    /// Removes all keys from these databases. Calls `taken` with the table of each shard that had
    /// keys in one of them. The caller must own the keyspace exclusively. O(shards), for any number
    /// of keys.
    pub fn empty_dbs(&self, dbs: std::ops::Range<usize>, mut taken: impl FnMut(Table<KeyEntry>)) {
        if dbs == (0..self.db_count) {
            self.snapshot.note_flushed_all();
        }
        let kept = self.snapshot.is_preserved_for();
        if self.snapshot.is_under_way() {
            self.take_out_bigs(&dbs);
        }
        for shard in 0..SHARD_COUNT {
            let mut guard = self.lock(shard);
            for db in dbs.clone() {
                let keys = guard.take_keys(db);
                if keys.is_empty() {
                    continue;
                }
                let left = if kept { self.snapshot.take_flushed(db, shard, keys) } else { Some(keys) };
                left.into_iter().for_each(&mut taken);
            }
        }
        for db in dbs {
            self.sizes.forget(db);
            self.snapshot.forget(db);
        }
    }

    /// Exchanges the keys of two databases. The caller must own the keyspace exclusively.
    /// O(shards).
    pub fn swap_dbs(&self, a: usize, b: usize) {
        for shard in 0..SHARD_COUNT {
            self.lock(shard).swap_keys(a, b);
        }
        self.sizes.swap(a, b);
        self.snapshot.swapped(a, b);
    }

    /// Exchanges all keys with those of `other`, which [`beside`](Self::beside) has created. The
    /// registrations of blocked, watching and tracking clients stay with this keyspace. The caller
    /// must own both keyspaces exclusively. O(shards × databases), for any number of keys.
    ///
    /// # Panics
    /// If a snapshot walk over one of the keyspaces is in progress.
    pub fn exchange(&self, other: &Self, _alone: &Exclusive) {
        assert!(
            !self.snapshot.is_under_way() && !other.snapshot.is_under_way(),
            "the walk reads the old keys"
        );
        for shard in 0..SHARD_COUNT {
            let (mut own, mut others) = (self.lock(shard), other.lock(shard));
            (0..self.db_count).for_each(|db| own.exchange_keys(&mut others, db));
        }
        (0..self.db_count).for_each(|db| self.sizes.exchange(&other.sizes, db));
    }

    /// Moves the big values of these databases that the snapshot walk is reading out of the
    /// keyspace. The walk becomes their owner. The caller must own the keyspace exclusively.
    #[cold]
    fn take_out_bigs(&self, dbs: &std::ops::Range<usize>) {
        for (db, hash, key) in self.snapshot.bigs_within(dbs) {
            let mut shard = self.lock(shard_of(hash));
            if let Some(place) = shard.db(db).and_then(|db| db.table.find(position_of(hash), &key)) {
                drop(self.remove_at(None, &mut shard, (db, hash), place));
            }
        }
    }

    /// Locks one shard. The caller must hold no other shard's lock; [`Keyspace::lock_all_of`] locks
    /// several shards in order.
    #[inline]
    pub fn lock(&self, shard: usize) -> Guard<'_, Shard> {
        self.shards[shard].0.lock()
    }

    /// Locks one shard. Returns `None` if a script that has run for too long holds it. The caller
    /// must hold no other shard's lock.
    #[inline]
    pub fn lock_unless_busy(&self, shard: usize) -> Option<Guard<'_, Shard>> {
        self.shards[shard].0.lock_unless_busy()
    }

    /// Locks one shard if its lock is free. Returns `None` otherwise; never waits.
    #[inline]
    pub fn try_lock(&self, shard: usize) -> Option<Guard<'_, Shard>> {
        self.shards[shard].0.try_lock()
    }

    /// Starts loading the cache line with the lock and header of the shard of this hash. O(1).
    #[inline]
    pub fn prefetch_shard(&self, hash: KeyHash) {
        structures::prefetch::prefetch_read(&raw const self.shards[shard_of(hash)]);
    }

    /// Locks one shard and returns it as a [`Locked`] set of one shard.
    pub fn lock_shard(&self, shard: usize) -> Locked<'_> {
        Locked(Held::One((shard, self.lock(shard))))
    }

    /// Locks one shard like [`lock_shard`](Self::lock_shard). Returns `None` if a script that has
    /// run for too long holds the shard.
    pub fn lock_shard_unless_busy(&self, shard: usize) -> Option<Locked<'_>> {
        Some(Locked(Held::One((shard, self.lock_unless_busy(shard)?))))
    }

    /// Locks the shard of the key with this hash and returns it as a set of locked shards.
    #[inline]
    pub fn lock_one(&self, hash: KeyHash) -> Locked<'_> {
        let shard = shard_of(hash);
        Locked(Held::One((shard, self.lock(shard))))
    }

    /// Locks the shard of the key with this hash. Returns `None` if a script that has run for too
    /// long holds it.
    #[inline]
    pub fn lock_one_unless_busy(&self, hash: KeyHash) -> Option<Locked<'_>> {
        let shard = shard_of(hash);
        Some(Locked(Held::One((shard, self.lock_unless_busy(shard)?))))
    }

    /// Locks the shards of these hashes like [`lock_all_of`](Self::lock_all_of). If a script that
    /// has run for too long holds one of the shards, returns `None` with none locked.
    pub fn lock_all_of_unless_busy(&self, hashes: impl Iterator<Item = KeyHash>) -> Option<Locked<'_>> {
        self.lock_shards_by(hashes.map(shard_of).collect(), |shard| self.lock_unless_busy(shard))
    }

    /// Locks the shards of all keys with these hashes, each shard once, in ascending order. O(n log
    /// n).
    pub fn lock_all_of(&self, hashes: impl Iterator<Item = KeyHash>) -> Locked<'_> {
        self.lock_shards(hashes.map(shard_of).collect())
    }

    /// Unlocks the locked shards and locks them again together with the shards of all these hashes.
    /// In between, other threads may lock them. Returns `None` with none locked if a script that
    /// has run for too long holds one. O(n log n).
    pub fn relock_unless_busy<'k>(
        &'k self,
        locked: Locked<'k>,
        hashes: impl Iterator<Item = KeyHash>,
    ) -> Option<Locked<'k>> {
        let shards =
            locked.0.as_slice().iter().map(|(shard, _)| *shard).chain(hashes.map(shard_of)).collect();
        drop(locked);
        self.lock_shards_by(shards, |shard| self.lock_unless_busy(shard))
    }

    fn lock_shards(&self, shards: SmallVec<[usize; 16]>) -> Locked<'_> {
        self.lock_shards_by(shards, |shard| Some(self.lock(shard))).expect("each is waited for")
    }

    fn lock_shards_by<'k>(
        &'k self,
        mut shards: SmallVec<[usize; 16]>,
        lock: impl Fn(usize) -> Option<Guard<'k, Shard>>,
    ) -> Option<Locked<'k>> {
        shards.sort_unstable();
        shards.dedup();
        Some(Locked(match shards[..] {
            [shard] => Held::One((shard, lock(shard)?)),
            _ => Held::Many(
                shards.into_iter().map(|shard| Some((shard, lock(shard)?))).collect::<Option<_>>()?,
            ),
        }))
    }

    /// Locks every shard, for a command that runs as the exclusive owner and cannot name its keys.
    /// O(shards).
    pub fn lock_all(&self) -> Locked<'_> {
        Locked(Held::Many((0..SHARD_COUNT).map(|shard| (shard, self.lock(shard))).collect()))
    }

    /// Returns an empty set of locked shards, for commands that lock shards one at a time
    /// themselves.
    #[inline]
    pub fn lock_none(&self) -> Locked<'_> {
        Locked(Held::Many(Vec::new()))
    }

    /// Returns the size of one database, added up shard after shard: exact only while no thread
    /// writes. O(shards).
    ///
    /// # Errors
    /// If a busy script holds a shard.
    pub fn db_size(&self, db: usize) -> Result<DbSize, ShardBusy> {
        let mut size = DbSize::default();
        for shard in 0..SHARD_COUNT {
            self.look_at(shard, |shard| size.add(shard, db)).ok_or(ShardBusy)?;
        }
        Ok(size)
    }

    /// Returns the size like [`db_size`](Self::db_size), but without the shards that busy scripts
    /// hold. For statistics.
    pub fn reachable_db_size(&self, db: usize) -> DbSize {
        let mut size = DbSize::default();
        for shard in 0..SHARD_COUNT {
            self.look_at(shard, |shard| size.add(shard, db));
        }
        size
    }

    /// Locks one shard, calls `look` with it, and returns the result of `look`. Returns `None` if a
    /// busy script holds the shard.
    pub(crate) fn look_at<T>(&self, shard: usize, look: impl FnOnce(&Shard) -> T) -> Option<T> {
        self.lock_unless_busy(shard).map(|guard| look(&guard))
    }

    /// Computes the counts that [`KeySizes::counts`] should return, by reading every key. For
    /// tests. O(keys).
    pub fn sizes_recounted(&self, db: usize) -> SizeCounts {
        let mut counts = [[0; BINS]; crate::SizedType::ALL.len()];
        for shard in 0..SHARD_COUNT {
            for entry in self.lock(shard).db(db).into_iter().flat_map(|db| db.table().iter()) {
                SizeMark::of(&entry).add_to(&mut counts);
            }
        }
        counts
    }

    /// Removes expired (due) keys and fields of one locked shard in a step bounded by `budget`,
    /// beginning at `at`. Puts the removed keys in `swept`; they should be dropped after the shard
    /// is unlocked. Returns the point at which the next step starts, `None` when the shard is
    /// finished. A shard in which nothing ever expires costs its lock and a load per database.
    pub fn sweep_due(
        &self,
        shard: &mut Shard,
        at: SweepPoint,
        budget: SweepBudget,
        swept: &mut SweepResult,
    ) -> Option<SweepPoint> {
        let expires = |db: &Db| db.table.deadline_count() + db.table.part_deadline_count() > 0;
        let expiring = shard.dbs().skip(at.db).position(expires)?;
        let db = at.db + expiring;
        let cursor = if expiring == 0 { at.cursor } else { 0 };
        let due_ms = swept.due_ms;
        if cursor == 0 {
            swept.expiring += shard.db(db).map_or(0, |db| db.table.deadline_count() as u64);
        }
        swept.db = db;
        let mut sweep = CountedSweep { keyspace: self, db, swept, resized: Vec::new() };
        let next = shard.db_mut(db).table.sweep_due(cursor, due_ms, budget, &mut sweep);
        for resize in sweep.resized {
            self.resized(None, shard, resize);
        }
        let next_db = if next.is_none() { db + 1 } else { db };
        Some(SweepPoint { shard: at.shard, db: next_db, cursor: next.unwrap_or(0) })
    }
}

/// The most expired fields that a sweep of active expiry removes from one hash before it unlocks
/// the shard.
const SWEPT_FIELDS_MAX: usize = 32;

/// The expired keys and fields that sweeps of active expiry have removed.
pub struct SweepResult {
    due_ms: i64,
    /// The number of the database that the last step of the sweep visited.
    pub db: usize,
    /// The removed keys that had expired, with their values.
    pub expired: Vec<KeyEntry>,
    /// The removed hashes, of which a sweep had removed the last field.
    pub emptied: Vec<KeyEntry>,
    /// The keys of the hashes from which expired fields were removed and that still exist. Empty
    /// unless `names_shrunk` is set.
    pub shrunk: Vec<Box<[u8]>>,
    /// True if the sweep adds the keys of hashes that lost fields to `shrunk`.
    pub names_shrunk: bool,
    /// The expired fields that were removed from hashes, in the order of their removal. Empty
    /// unless `names_fields` is set. Includes the last fields of hashes that were then removed.
    pub removed_fields: Vec<SweptFields>,
    /// True if the sweep adds the names of removed fields to `removed_fields`.
    pub names_fields: bool,
    /// The number of expired fields removed from hashes.
    pub fields: u64,
    /// The number of keys with an expiry, due or not, in all tables of which a sweep was started. A
    /// table has the keys of one database in one shard.
    pub expiring: u64,
    /// The number of elements that sweeps of active expiry have checked: keys with an expiry, due
    /// or not, and hashes that have fields with an expiry.
    pub looked_at: u64,
}

impl SweepResult {
    /// Creates an empty result of a sweep that removes keys and fields whose deadlines are up to
    /// `due_ms`, in Unix milliseconds.
    pub fn up_to(due_ms: i64) -> Self {
        Self {
            due_ms,
            db: 0,
            expired: Vec::new(),
            emptied: Vec::new(),
            shrunk: Vec::new(),
            names_shrunk: false,
            removed_fields: Vec::new(),
            names_fields: false,
            fields: 0,
            expiring: 0,
            looked_at: 0,
        }
    }

    /// Sets `names_fields`: the result will name each removed field, for the change log.
    pub fn naming_fields(mut self) -> Self {
        self.names_fields = true;
        self
    }

    /// Returns true if the sweep's result has no removed key and no name of a changed hash or
    /// removed field.
    pub fn is_empty(&self) -> bool {
        let keys = self.expired.is_empty() && self.emptied.is_empty();
        keys && self.shrunk.is_empty() && self.removed_fields.is_empty()
    }

    /// Frees the removed keys and the names of fields and hashes in the sweep's result. Keeps the
    /// counts.
    pub fn clear(&mut self) {
        self.expired.clear();
        self.emptied.clear();
        self.shrunk.clear();
        self.removed_fields.clear();
    }
}

/// The fields that one step of active expiry removed from one hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SweptFields {
    /// The key of the hash that had the fields.
    pub key: Box<[u8]>,
    /// The names of the removed fields, at least one.
    pub fields: Vec<Box<[u8]>>,
}

/// A sweep of active expiry over one database in one shard that records the changes of the keys'
/// size marks.
struct CountedSweep<'a> {
    keyspace: &'a Keyspace,
    db: usize,
    swept: &'a mut SweepResult,
    resized: Vec<Resize>,
}

impl CountedSweep<'_> {
    fn note(&mut self, entry: &KeyEntry, old: SizeMark, new: SizeMark) {
        self.resized.push(Resize { db: self.db, hash: self.keyspace.hasher.hash_key(entry.key()), old, new });
    }
}

impl Sweep<KeyEntry> for CountedSweep<'_> {
    fn on_segment(&mut self, elements: usize) {
        self.swept.looked_at += elements as u64;
    }

    fn claims(&mut self, entry: &mut KeyEntry) -> bool {
        let snapshot = &self.keyspace.snapshot;
        snapshot.is_preserved_for()
            && snapshot.keep_unmarked(entry, self.db, self.keyspace.hasher.hash_key(entry.key()))
    }

    fn due(&mut self, entry: KeyEntry) {
        self.note(&entry, SizeMark::of(&entry), SizeMark::NONE);
        self.swept.expired.push(self.keyspace.left(entry));
    }

    fn parts_due(&mut self, entry: &mut KeyEntry) -> SweptParts {
        let old = SizeMark::of(entry);
        let Some(Object::Hash(hash)) = entry.object_mut() else {
            return SweptParts { removed: 0, emptied: false };
        };
        let (mut fields, names_fields) = (Vec::new(), self.swept.names_fields);
        let removed = hash.remove_due(self.swept.due_ms, SWEPT_FIELDS_MAX, |field| {
            if names_fields {
                fields.push(field.text(&mut IntText::new()).into());
            }
        });
        let parts = SweptParts { removed, emptied: hash.is_empty() };
        if !fields.is_empty() {
            self.swept.removed_fields.push(SweptFields { key: entry.key().into(), fields });
        }
        self.swept.fields += removed as u64;
        if self.swept.names_shrunk && removed > 0 {
            self.swept.shrunk.push(entry.key().into());
        }
        self.note(entry, old, SizeMark::of(entry));
        parts
    }

    fn emptied(&mut self, entry: KeyEntry) {
        self.note(&entry, SizeMark::of(&entry), SizeMark::NONE);
        self.swept.emptied.push(self.keyspace.left(entry));
    }
}

/// The point at which the next step of active expiry's sweep over the keyspace starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweepPoint {
    /// The number of the shard that the next step of the sweep visits.
    pub shard: usize,
    /// The number of the database that the next step of the sweep visits.
    pub db: usize,
    /// The cursor at which the next step continues in the table of that database in that shard.
    pub cursor: u64,
}

/// A map from the numbers of some shards to values, in ascending order of the numbers. Most
/// commands have one shard, so a single value needs no vector.
enum Held<T> {
    /// A single shard's number with its value.
    One((usize, T)),
    /// The values of any number of shards, including none.
    Many(Vec<(usize, T)>),
}

impl<T> Held<T> {
    #[inline]
    fn as_slice(&self) -> &[(usize, T)] {
        match self {
            Held::One(one) => std::slice::from_ref(one),
            Held::Many(many) => many,
        }
    }

    /// Returns the value stored for a shard; `None` if there is none. O(log shards).
    #[inline]
    fn get(&self, shard: usize) -> Option<&T> {
        match self {
            Held::One((only, held)) => (*only == shard).then_some(held),
            Held::Many(many) => Some(&many[place_of(many, shard)?].1),
        }
    }

    /// Stores a value for a shard, which must have none yet. O(shards).
    fn insert(&mut self, shard: usize, held: T) {
        let mut many = match std::mem::replace(self, Self::Many(Vec::new())) {
            Self::Many(many) if many.is_empty() => return *self = Self::One((shard, held)),
            Self::One(one) => vec![one],
            Self::Many(many) => many,
        };
        many.insert(many.partition_point(|(number, _)| *number < shard), (shard, held));
        *self = Self::Many(many);
    }

    /// Borrows the value stored for a shard mutably; `None` if there is none. O(log shards).
    #[inline]
    fn get_mut(&mut self, shard: usize) -> Option<&mut T> {
        match self {
            Held::One((only, held)) => (*only == shard).then_some(held),
            Held::Many(many) => {
                let at = place_of(many, shard)?;
                Some(&mut many[at].1)
            }
        }
    }
}

/// Returns the index of a shard's value in `many`; `None` if the shard has no value. O(log shards).
fn place_of<T>(many: &[(usize, T)], shard: usize) -> Option<usize> {
    many.binary_search_by_key(&shard, |(number, _)| *number).ok()
}

/// The shards locked for one command, in ascending order. Dropping it unlocks them.
pub struct Locked<'k>(Held<Guard<'k, Shard>>);

impl<'k> Locked<'k> {
    /// Locks the shard of this hash and adds it to the locked ones if its lock is free. Never waits
    /// for the lock, so there is no deadlock. Returns true if the shard is then locked. O(locked).
    pub fn try_add(&mut self, keyspace: &'k Keyspace, hash: KeyHash) -> bool {
        let shard = shard_of(hash);
        if self.0.get(shard).is_some() {
            return true;
        }
        let Some(guard) = keyspace.try_lock(shard) else { return false };
        self.0.insert(shard, guard);
        true
    }
}

impl Locked<'_> {
    /// Borrows the shard of this hash mutably; `None` if it is not locked. O(log locked).
    pub fn shard_of_mut(&mut self, hash: KeyHash) -> Option<&mut Shard> {
        self.0.get_mut(shard_of(hash)).map(|guard| &mut **guard)
    }

    /// Borrows the shard of this hash; `None` if it is not locked. O(log locked).
    pub fn shard_of(&self, hash: KeyHash) -> Option<&Shard> {
        self.0.get(shard_of(hash)).map(|guard| &**guard)
    }

    /// Borrows a shard mutably by its number; `None` if it is not locked. O(log locked).
    pub fn shard_mut(&mut self, shard: usize) -> Option<&mut Shard> {
        self.0.get_mut(shard).map(|guard| &mut **guard)
    }

    /// Marks the shards as locked for long, because of a script. Callers of `unless_busy` functions
    /// then do not wait for these shards. O(locked).
    #[cold]
    pub fn mark_busy(&self) {
        self.0.as_slice().iter().for_each(|(_, guard)| Guard::mark_busy(guard));
    }

    /// Returns true if clients are blocked on keys of a locked shard, or watch or track them.
    /// O(locked).
    #[inline]
    pub fn has_registrations(&self) -> bool {
        self.0.as_slice().iter().any(|(_, shard)| shard.has_registrations())
    }

    /// Returns true if the shards of all these hashes are locked. O(hashes log locked).
    pub fn holds(&self, mut hashes: impl Iterator<Item = KeyHash>) -> bool {
        hashes.all(|hash| self.0.get(shard_of(hash)).is_some())
    }

    /// Returns the numbers of the locked shards, in ascending order.
    #[inline]
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.as_slice().iter().map(|(shard, _)| *shard)
    }

    /// Borrows the locked shards for the run of one command.
    #[inline(always)]
    pub fn shards_mut(&mut self) -> ShardsMut<'_> {
        match &mut self.0 {
            Held::One((shard, guard)) => ShardsMut(Lent::One(*shard, guard)),
            Held::Many(many) => ShardsMut(Lent::Many(many)),
        }
    }
}

/// The locked shards that a command may use.
pub struct ShardsMut<'l>(Lent<'l>);

/// The content of [`Held`] (one shard or several), borrowed without the lifetime of the locks.
enum Lent<'l> {
    One(usize, &'l mut Shard),
    Many(&'l mut (dyn ShardsByNumber + 'l)),
}

impl ShardsMut<'_> {
    /// Borrows a shard mutably; `None` if it is not locked.
    #[inline]
    pub fn get_mut(&mut self, shard: usize) -> Option<&mut Shard> {
        match &mut self.0 {
            Lent::One(only, held) => (*only == shard).then_some(held),
            Lent::Many(many) => many.get_mut(shard),
        }
    }

    /// Borrows a shard; `None` if it is not locked.
    #[inline]
    pub fn get(&self, shard: usize) -> Option<&Shard> {
        match &self.0 {
            Lent::One(only, held) => (*only == shard).then_some(held),
            Lent::Many(many) => many.get(shard),
        }
    }
}

/// A set of several locked shards, accessed by the number of a shard.
trait ShardsByNumber {
    /// Borrows a shard mutably by its number, like [`ShardsMut::get_mut`]; `None` if it is not
    /// locked. O(log locked).
    fn get_mut(&mut self, shard: usize) -> Option<&mut Shard>;
    /// Borrows a shard by its number, like [`ShardsMut::get`]; `None` if it is not locked. O(log
    /// locked).
    fn get(&self, shard: usize) -> Option<&Shard>;
}

impl ShardsByNumber for Vec<(usize, Guard<'_, Shard>)> {
    fn get_mut(&mut self, shard: usize) -> Option<&mut Shard> {
        let at = place_of(self, shard)?;
        Some(&mut self[at].1)
    }

    fn get(&self, shard: usize) -> Option<&Shard> {
        Some(&self[place_of(self, shard)?].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Expiry, FieldWrite, Hash, PackLimits};
    use structures::entry::{Entry, NewValue};

    const LIMITS: PackLimits = PackLimits { entries_max: 8, value_len_bytes_max: 64 };

    /// Adds keys that begin with `name` to database `db`. Returns the sorted names.
    fn add(keyspace: &Keyspace, db: usize, name: &str, count: usize) -> Vec<String> {
        let mut names: Vec<String> = (0..count).map(|number| format!("{name}{number}")).collect();
        for name in &names {
            let key = keyspace.hasher().key(name.as_bytes());
            let entry = Entry::new(key.bytes, NewValue::Bytes(&[b'v'; 100]), Some(100), 0);
            assert!(keyspace.insert_absent(&mut keyspace.lock(key.shard()), db, entry));
        }
        names.sort();
        names
    }

    /// Returns the sorted names of those keys of a database that a search finds.
    fn names(keyspace: &Keyspace, db: usize) -> Vec<String> {
        let mut names = Vec::new();
        for shard in 0..SHARD_COUNT {
            let guard = keyspace.lock(shard);
            for entry in guard.db(db).into_iter().flat_map(|db| db.table().iter()) {
                let key = keyspace.hasher().key(entry.key());
                assert!(key.shard() == shard && guard.is_live(db, key, 0));
                names.push(String::from_utf8_lossy(entry.key()).into_owned());
            }
        }
        names.sort();
        names
    }

    #[test]
    fn exchanged_keyspaces_have_each_others_keys_and_counts() {
        let (keyspace, gate) = (Keyspace::new(4, [1, 2, 3, 4]), crate::gate::Gate::new(1));
        let beside = keyspace.beside();
        let old = [0, 1].map(|db| add(&keyspace, db, "old", 300 + db));
        let new = [0, 3].map(|db| add(&beside, db, "new", 200 + db));
        keyspace.lock(7).add_registration();
        let exchange = || gate.exclusive(|alone| keyspace.exchange(&beside, alone));
        exchange();
        for (keyspace, expected) in [
            (&keyspace, [&new[0], &vec![], &vec![], &new[1]]),
            (&beside, [&old[0], &old[1], &vec![], &vec![]]),
        ] {
            for (db, expected) in expected.into_iter().enumerate() {
                assert_eq!(names(keyspace, db), *expected);
                assert_eq!(keyspace.db_size(db).map(|size| size.expires), Ok(expected.len()));
                assert_eq!(keyspace.sizes().counts(db), keyspace.sizes_recounted(db));
            }
        }
        // The registrations of clients stay.
        assert!(keyspace.lock(7).has_registrations() && !beside.lock(7).has_registrations());
        let more = add(&keyspace, 1, "more", 10);
        exchange();
        assert_eq!((names(&keyspace, 0), names(&beside, 1)), (old[0].clone(), more));
    }

    #[test]
    fn a_sweep_removes_due_fields_and_hashes_without_fields() {
        let keyspace = Keyspace::new(3, [1, 2, 3, 4]);
        for (name, fields, staying) in
            [("a", 5, 1), ("b", 5, 0), ("c", 3_000, 10), ("d", 0, 5), ("e", 700, 0)]
        {
            let mut hash = Hash::new();
            for i in 0..fields {
                let field = format!("due{i}");
                let write = FieldWrite { name: field.as_bytes(), value: b"v", expiry: Expiry::At(100) };
                hash.set_with_expiry(write, &LIMITS, keyspace.hasher());
            }
            for i in 0..staying {
                hash.set(format!("stays{i}").as_bytes(), b"v", &LIMITS, keyspace.hasher());
            }
            let key = keyspace.hasher().key(name.as_bytes());
            let entry = Entry::new(key.bytes, NewValue::Object(Object::Hash(hash)), None, 0);
            keyspace.lock(key.shard()).db_mut(1).insert(key.hash, entry, keyspace.hasher());
        }
        let sweep = |now_ms| {
            let mut swept = SweepResult::up_to(now_ms).naming_fields();
            for shard in 0..SHARD_COUNT {
                let mut next = Some(SweepPoint { shard, db: 0, cursor: 0 });
                while let Some(at) = next {
                    let budget = SweepBudget { segments_max: 64, elements_max: 32 };
                    next = keyspace.sweep_due(&mut keyspace.lock(shard), at, budget, &mut swept);
                }
            }
            let named = swept.removed_fields.iter().flat_map(|of_key| &of_key.fields);
            assert!(named.clone().all(|field| field.starts_with(b"due")));
            assert_eq!(named.count() as u64, swept.fields);
            let keys = swept.removed_fields.iter().map(|of_key| &of_key.key[..]);
            assert!(keys.clone().all(|key| key != b"d"));
            assert!(swept.emptied.iter().all(|entry| keys.clone().any(|key| key == entry.key())));
            (swept.fields, swept.emptied.len(), swept.expired.len())
        };
        assert_eq!(keyspace.db_size(1), Ok(DbSize { keys: 5, expires: 0, field_expires: 4 }));
        assert_eq!(sweep(99), (0, 0, 0));
        assert_eq!(sweep(100), (3_710, 2, 0));
        assert_eq!(keyspace.db_size(1), Ok(DbSize { keys: 3, expires: 0, field_expires: 0 }));
        assert_eq!(sweep(i64::MAX), (0, 0, 0));
    }
}
