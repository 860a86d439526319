//! One database's part of one shard: a table of entries.

use structures::entry::Entry;
use structures::table::{Place, Table};

use crate::key::{Hasher, position_of};
use crate::object::Object;

/// A key with its value.
pub type KeyEntry = Entry<Object>;

/// One database within one shard. Thread: whoever holds the shard's lock.
#[derive(Default)]
pub struct Db {
    /// The keys.
    pub table: Table<KeyEntry>,
}

impl Db {
    /// Adds a key that is not there yet. O(1) amortised.
    #[inline]
    pub fn insert(&mut self, hash: u64, entry: KeyEntry, hasher: &Hasher) -> Place {
        self.table.insert(position_of(hash), entry, &|key: &[u8]| position_of(hasher.hash(key)))
    }
}

/// A shard: its part of every database. Guarded by one lock each, taken in ascending shard order; the
/// longest work under it is one command on its keys.
pub struct Shard {
    dbs: Box<[Db]>,
}

impl Shard {
    /// An empty shard of `db_count` databases.
    pub fn new(db_count: usize) -> Self {
        Self { dbs: (0..db_count).map(|_| Db::default()).collect() }
    }

    /// One database's part.
    #[inline]
    pub fn db(&self, index: usize) -> &Db {
        &self.dbs[index]
    }

    /// One database's part, to change.
    #[inline]
    pub fn db_mut(&mut self, index: usize) -> &mut Db {
        &mut self.dbs[index]
    }

    /// All databases' parts.
    pub fn dbs_mut(&mut self) -> &mut [Db] {
        &mut self.dbs
    }
}
