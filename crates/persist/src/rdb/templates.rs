//! Field names that hashes of one RDB file share, as Redis 8.10 writes them. Lists of names precede
//! all keys, and keys refer to them by their numbers. In memory each hash has its own names.

use std::collections::BTreeMap;
use std::sync::Arc;

use structures::lock::Lock;

/// The maximum memory for all shared field names of a file, in bytes.
const LEN_BYTES_MAX: usize = 256 << 20;
/// The approximate memory of a list of shared field names without the names' text, in bytes.
const ROW_LEN_BYTES: usize = 64;

/// One list of field names that several hashes of an RDB file share.
#[derive(Debug, Default)]
pub(super) struct FieldNames {
    /// The offset in the file at which this list of field names ends, in bytes.
    file_offset: u64,
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl FieldNames {
    pub(super) fn push(&mut self, name: &[u8]) {
        self.text.extend_from_slice(name);
        self.ends.push(self.text.len());
    }

    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, &end)| &self.text[start..end])
    }

    /// Returns the approximate memory of this list of field names, in bytes.
    pub(super) fn memory_len_bytes(&self) -> usize {
        ROW_LEN_BYTES + self.text.capacity() + self.ends.capacity() * size_of::<usize>()
    }
}

/// The lists of field names that the hashes of an RDB file share. One thread adds lists; any number
/// of threads look them up.
#[derive(Debug)]
pub(crate) struct Templates {
    /// The lists of field names by their numbers. The lock is held for one look-up or one
    /// insertion. No other lock is taken under it.
    all: Lock<Rows>,
}

#[derive(Debug, Default)]
struct Rows {
    by_number: BTreeMap<u64, Arc<FieldNames>>,
    len_bytes: usize,
}

impl Templates {
    /// Creates a collection of shared field names that has no lists yet.
    pub(crate) fn new() -> Self {
        Self { all: Lock::new(Rows::default()) }
    }

    /// Returns the remaining memory, in bytes, that the lists of shared field names of this file
    /// may still take.
    pub(super) fn room_len_bytes(&self) -> usize {
        LEN_BYTES_MAX.saturating_sub(self.all.lock().len_bytes)
    }

    /// Adds list number `number` of shared field names, which ends at `file_offset`. Returns false
    /// if the number is taken. O(log n).
    pub(super) fn add(&self, number: u64, names: FieldNames, file_offset: u64) -> bool {
        let mut all = self.all.lock();
        all.len_bytes += names.memory_len_bytes();
        all.by_number.insert(number, Arc::new(FieldNames { file_offset, ..names })).is_none()
    }

    /// Returns list number `number` of shared field names for a key at `file_offset`; `None` if no
    /// such list precedes the key. O(log n).
    pub(super) fn of_key(&self, number: u64, file_offset: u64) -> Option<Arc<FieldNames>> {
        let names = self.all.lock().by_number.get(&number).cloned();
        names.filter(|names| names.file_offset <= file_offset)
    }

    /// Returns the number of names in list number `number` of shared field names; `None` if the
    /// list was not added. O(log n).
    pub(super) fn name_count(&self, number: u64) -> Option<usize> {
        self.all.lock().by_number.get(&number).map(|names| names.len())
    }
}
