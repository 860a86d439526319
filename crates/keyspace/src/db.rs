//! The part of one database in one shard: a table of entries.

use structures::entry::View;
use structures::table::{Place, Table};

use crate::big_index::BigIndex;
use crate::key::{Hasher, Key, KeyHash, position_of};
use crate::object::{KeyEntry, Object};
use crate::sizes::SizeMark;

/// The part of a database in one shard. Only the thread that holds the shard's lock uses it.
#[derive(Default)]
pub struct Db {
    /// The table of the keys. Only this crate changes it, because each change must update the size
    /// counts.
    pub(crate) table: Table<KeyEntry>,
}

impl Db {
    /// Borrows the table of the keys of this database in this shard.
    #[inline]
    pub fn table(&self) -> &Table<KeyEntry> {
        &self.table
    }

    /// Returns true if the table of this database and shard has the key, expired or not. O(1).
    pub fn contains(&self, hash: KeyHash, key: &[u8]) -> bool {
        self.table.get(position_of(hash), key).is_some()
    }

    /// Adds a key that is not in the table of this database and shard. Returns the entry's place in
    /// the table. The caller adds the key's size to the size counts. O(1) amortised.
    #[inline]
    pub(crate) fn insert(&mut self, hash: KeyHash, entry: KeyEntry, hasher: &Hasher) -> Place {
        self.table.insert(position_of(hash), entry, &|key: &[u8]| position_of(hasher.hash_key(key)))
    }

    /// Calls `with` with the object that the key of this hash most likely holds. Does not compare
    /// the key. Does nothing if the value is not an object. For prefetching before a command. O(1).
    #[inline]
    pub fn with_likely_object(&self, hash: KeyHash, with: impl FnOnce(&Object)) {
        if let Some(entry) = self.table.likely(position_of(hash))
            && let View::Object(object) = entry.view()
        {
            with(object);
        }
    }
}

/// The numbers of keys in a database, as INFO shows them.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct DbSize {
    /// The number of all keys of the database.
    pub keys: usize,
    /// The number of keys of the database that have an expiry.
    pub expires: usize,
    /// The number of the database's hashes that have fields with an expiry.
    pub field_expires: usize,
}

impl DbSize {
    /// Adds the numbers of keys that `shard` has in database `db`.
    pub(crate) fn add(&mut self, shard: &Shard, db: usize) {
        if let Some(db) = shard.db(db) {
            self.keys += db.table.len();
            self.expires += db.table.deadline_count();
            self.field_expires += db.table.part_deadline_count();
        }
    }
}

/// A shard of the keyspace: the keys of some hash values, for every database. Each shard has a
/// lock. A thread that takes several locks takes them in ascending order of shards. The longest
/// work under a lock is one command on the shard's keys.
///
/// Database 0, which is the most used, is stored in the shard itself: together with its lock it is
/// one cache line.
pub struct Shard {
    first: Db,
    /// The state that most shards do not need; `None` until its first use.
    rare: Option<Box<RareState>>,
}

/// The state of a shard that only some shards have.
#[derive(Default)]
struct RareState {
    /// The shard's parts of the databases with number 1 and higher.
    others: Vec<Db>,
    /// The big keys of each database, up to the last one that had a big key.
    big: Vec<BigIndex>,
    /// The number of registrations for this shard's keys by blocked, watching and tracking clients.
    followers: u32,
}

// The lock's word and the shard share a cache line: a request's first memory access loads both.
const _: () = assert!(size_of::<Shard>() <= 60 || cfg!(shuttle));

impl Shard {
    /// Returns true if a key of this shard exists and has not expired. A key has expired if its
    /// deadline is at or before `due_ms` (Unix milliseconds). Does not remove or change the key.
    /// O(1).
    pub fn is_live(&self, db: usize, key: Key<'_>, due_ms: i64) -> bool {
        let entry = self.db(db).map(Db::table).and_then(|table| table.get(key.position(), key.bytes));
        entry.is_some_and(|entry| entry.expiry_ms().is_none_or(|at_ms| at_ms > due_ms))
    }

    /// Creates the empty shard number `number` of a keyspace.
    pub fn new(number: usize) -> Self {
        Self { first: Db { table: Table::staggered(number) }, rare: None }
    }

    /// Borrows this shard's part of database `index`; `None` if the part was never created.
    #[inline]
    pub fn db(&self, index: usize) -> Option<&Db> {
        if index == 0 { Some(&self.first) } else { self.rare.as_ref()?.others.get(index - 1) }
    }

    /// Borrows this shard's part of database `index` mutably; creates it if necessary.
    #[inline(always)]
    pub(crate) fn db_mut(&mut self, index: usize) -> &mut Db {
        if index == 0 { &mut self.first } else { self.other_mut(index) }
    }

    #[inline(never)]
    fn other_mut(&mut self, index: usize) -> &mut Db {
        let others = &mut self.rare.get_or_insert_default().others;
        if others.len() < index {
            others.resize_with(index, Db::default);
        }
        &mut others[index - 1]
    }

    /// Removes all keys of database `index` from this shard and from its index of big keys, and
    /// returns them. O(1); dropping the returned table is O(keys).
    pub(crate) fn take_keys(&mut self, index: usize) -> Table<KeyEntry> {
        if let Some(big) = self.rare.as_mut().and_then(|rare| rare.big.get_mut(index)) {
            *big = BigIndex::default();
        }
        match self.db(index) {
            Some(db) if !db.table.is_empty() => self.db_mut(index).table.take(),
            _ => Table::new(),
        }
    }

    /// Exchanges this shard's keys of two databases. O(1).
    pub(crate) fn swap_keys(&mut self, a: usize, b: usize) {
        let mut take_big = |index: usize| {
            let big = self.rare.as_mut().and_then(|rare| rare.big.get_mut(index));
            big.map(std::mem::take)
        };
        let big = [(a, take_big(b)), (b, take_big(a))];
        let (of_a, of_b) = (self.take_keys(a), self.take_keys(b));
        for (index, big) in big {
            if let Some(big) = big {
                *self.big_mut(index) = big;
            }
        }
        for (index, table) in [(a, of_b), (b, of_a)] {
            if !table.is_empty() {
                self.db_mut(index).table = table;
            }
        }
    }

    /// Exchanges the keys of database `index` in this shard with those in `other`, the shard of the
    /// same number in another keyspace. O(1).
    pub(crate) fn exchange_keys(&mut self, other: &mut Self, index: usize) {
        let take_big = |shard: &mut Self| {
            let big = shard.rare.as_mut().and_then(|rare| rare.big.get_mut(index));
            big.map(std::mem::take)
        };
        let (own_big, others_big) = (take_big(self), take_big(other));
        let (own, others) = (self.take_keys(index), other.take_keys(index));
        for (shard, keys, big) in [(self, others, others_big), (other, own, own_big)] {
            if let Some(big) = big {
                *shard.big_mut(index) = big;
            }
            if !keys.is_empty() {
                shard.db_mut(index).table = keys;
            }
        }
    }

    /// Updates the index of big keys after a key's size mark has changed from `old` to `new`.
    /// Adding or removing a big key is such a change. O(1) amortised.
    #[cold]
    pub(crate) fn note_big(&mut self, db: usize, hash: KeyHash, old: SizeMark, new: SizeMark) {
        self.big_mut(db).note(hash, old, new);
    }

    fn big_mut(&mut self, db: usize) -> &mut BigIndex {
        let big = &mut self.rare.get_or_insert_default().big;
        if big.len() <= db {
            big.resize_with(db + 1, BigIndex::default);
        }
        &mut big[db]
    }

    /// Returns this shard's indexes of big keys, one for each database, from database 0 to the last
    /// that had a big key.
    pub(crate) fn big_indexes(&self) -> impl Iterator<Item = &BigIndex> {
        self.rare.iter().flat_map(|rare| rare.big.iter())
    }

    /// Returns true if clients are blocked on keys of this shard, or watch or track them. Changes
    /// of its keys must then be reported to these clients.
    #[inline]
    pub fn has_registrations(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| rare.followers > 0)
    }

    /// Adds a registration of a blocked, watching or tracking client for a key of this shard.
    pub fn add_registration(&mut self) {
        self.rare.get_or_insert_default().followers += 1;
    }

    /// Removes a registration that [`add_registration`](Self::add_registration) added.
    pub fn remove_registration(&mut self) {
        let rare = self.rare.as_mut().expect("whoever leaves was added");
        rare.followers -= 1;
    }

    /// Returns this shard's existing parts of databases, from database 0 on.
    pub fn dbs(&self) -> impl Iterator<Item = &Db> {
        std::iter::once(&self.first).chain(self.rare.iter().flat_map(|rare| rare.others.iter()))
    }
}
