//! The fieldsets of a client (HIMPORT): named lists of field names for hashes.
//!
//! They belong to the client's session and are used by its thread only. The session's memory counts
//! them through a shared copy of their size, which each change updates.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The maximum size of a client's fieldsets in bytes. A fieldset that would exceed it is refused.
pub(crate) const FIELD_SETS_BYTES_MAX: u64 = 64 << 20;

/// The bytes that the name of a fieldset or of a field counts in addition to its text.
const OVERHEAD_BYTES: u64 = 32;

/// The fieldsets (lists of hash fields, HIMPORT) of a client.
#[derive(Debug, Default)]
pub struct FieldSets {
    by_name: RefCell<BTreeMap<Box<[u8]>, FieldSet>>,
    /// The size of all the client's fieldsets in bytes.
    len_bytes: Cell<u64>,
    /// A copy of the fieldsets' size for other threads, which count the client's memory; `None` if
    /// nobody reads it.
    shown_bytes: Option<Arc<AtomicU64>>,
}

/// A fieldset: a list of different names of hash fields.
#[derive(Debug)]
struct FieldSet {
    fields: Arc<[Box<[u8]>]>,
    len_bytes: u64,
}

impl FieldSets {
    /// Creates an empty collection of fieldsets that copies its size to `shown_bytes`.
    pub fn shown_in(shown_bytes: Arc<AtomicU64>) -> Self {
        Self { shown_bytes: Some(shown_bytes), ..Self::default() }
    }

    fn set_len_bytes(&self, len_bytes: u64) {
        self.len_bytes.set(len_bytes);
        if let Some(shown_bytes) = &self.shown_bytes {
            shown_bytes.store(len_bytes, Relaxed);
        }
    }

    /// Adds a fieldset to the client's, or replaces the one with this name. Returns false, with
    /// nothing changed, if the collection would become too large. O(bytes + log fieldsets).
    pub(crate) fn insert<'f>(&self, name: &[u8], fields: impl Iterator<Item = &'f [u8]>) -> bool {
        let fields: Arc<[Box<[u8]>]> = fields.map(Box::from).collect();
        let texts = fields.iter().map(|field| field.len() as u64 + OVERHEAD_BYTES).sum::<u64>();
        let len_bytes = name.len() as u64 + OVERHEAD_BYTES + texts;
        let mut by_name = self.by_name.borrow_mut();
        let replaced = by_name.get(name).map_or(0, |before| before.len_bytes);
        let total = self.len_bytes.get() - replaced + len_bytes;
        if total > FIELD_SETS_BYTES_MAX {
            return false;
        }
        by_name.insert(name.into(), FieldSet { fields, len_bytes });
        self.set_len_bytes(total);
        true
    }

    /// Returns the field names of the fieldset with this name; `None` if there is none. O(log
    /// fieldsets).
    pub(crate) fn get(&self, name: &[u8]) -> Option<Arc<[Box<[u8]>]>> {
        self.by_name.borrow().get(name).map(|set| Arc::clone(&set.fields))
    }

    /// Removes a fieldset of the client. Returns false if there is none with this name. O(log
    /// fieldsets).
    pub(crate) fn remove(&self, name: &[u8]) -> bool {
        let removed = self.by_name.borrow_mut().remove(name);
        let Some(removed) = removed else { return false };
        self.set_len_bytes(self.len_bytes.get() - removed.len_bytes);
        true
    }

    /// Removes all fieldsets of the client and returns their number. O(fieldsets).
    pub fn clear(&self) -> usize {
        let removed = std::mem::take(&mut *self.by_name.borrow_mut());
        self.set_len_bytes(0);
        removed.len()
    }
}
