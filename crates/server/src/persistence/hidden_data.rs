//! Data that no client sees: the data of a primary's snapshot while it is loaded, beside the data
//! of the server (`repl-diskless-load swapdb`).

use std::sync::{Arc, Mutex, MutexGuard};

use ::commands::ctx::LazyFreed;
use keyspace::{Exclusive, Keyspace};

use crate::shared::Shared;
use crate::snapshots::add_library;

/// A second keyspace with the keys of all databases, and a second set of function libraries. Only
/// the threads of a load use it; they lock its shards, but no gate guards it, unlike the server's
/// keyspace.
pub struct HiddenData {
    keyspace: Keyspace,
    functions: Mutex<Vec<Arc<[u8]>>>,
}

impl HiddenData {
    /// Creates hidden data without keys, with as many databases as the server has.
    pub fn new(shared: &Shared) -> Self {
        Self { keyspace: shared.engine.keyspace.beside(), functions: Mutex::default() }
    }

    /// Returns the keyspace with the hidden keys.
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

    /// Exchanges the hidden keys and functions for those of the server. The caller is the exclusive
    /// owner of the keyspace. The load has ended, and no save reads the keyspace. O(shards ×
    /// databases).
    pub fn exchange(&self, shared: &Shared, alone: &Exclusive) {
        shared.engine.keyspace.exchange(&self.keyspace, alone);
        std::mem::swap(&mut *shared.persistence.functions(), &mut *self.functions());
    }

    /// Passes the hidden keys to the housekeeper, the background thread that frees them. The caller
    /// is outside the gate that guards the keyspace.
    pub fn free(self, shared: &Shared) {
        let mut freed = Vec::new();
        self.keyspace.empty_dbs(0..self.keyspace.db_count(), |keys| freed.push(LazyFreed::Keys(keys)));
        shared.engine.freeing.push(freed);
    }
}
