//! Data that no client sees: that of a snapshot which is loaded beside the data of the server.

use std::sync::{Arc, Mutex, MutexGuard};

use ::commands::ctx::LazyFreed;
use keyspace::{Exclusive, Keyspace};

use crate::shared::Shared;
use crate::snapshots::add_library;

/// The keys of all databases and the function libraries, beside those of the server. Its threads
/// are those of the load. They lock its shards, and need no gate.
pub struct HiddenData {
    keyspace: Keyspace,
    functions: Mutex<Vec<Arc<[u8]>>>,
}

impl HiddenData {
    /// Creates empty data with the databases of the server.
    pub fn new(shared: &Shared) -> Self {
        Self { keyspace: shared.engine.keyspace.beside(), functions: Mutex::default() }
    }

    /// Returns the keys.
    pub fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    fn functions(&self) -> MutexGuard<'_, Vec<Arc<[u8]>>> {
        self.functions.lock().expect("nothing panics while it is locked")
    }

    /// Stores the source of a function library. Returns false, and changes nothing, if a library of
    /// the same name is already stored.
    pub fn add_function(&self, source: Arc<[u8]>) -> bool {
        add_library(&mut self.functions(), source)
    }

    /// Exchanges keys and functions with those of the server. The caller owns the keyspace, the
    /// load has ended, and nothing walks over the keyspace. O(shards × databases).
    pub fn exchange(&self, shared: &Shared, alone: &Exclusive) {
        shared.engine.keyspace.exchange(&self.keyspace, alone);
        std::mem::swap(&mut *shared.persistence.functions(), &mut *self.functions());
    }

    /// Frees the keys in the background. The caller is outside the gate.
    pub fn free(self, shared: &Shared) {
        let mut freed = Vec::new();
        self.keyspace.empty_dbs(0..self.keyspace.db_count(), |keys| freed.push(LazyFreed::Keys(keys)));
        shared.engine.freeing.push(freed);
    }
}
