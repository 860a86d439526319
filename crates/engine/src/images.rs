//! Images: copies of keys, made before a script first writes to them. They serve to undo a run of
//! the script.

use std::ops::Range;

use keyspace::key::KeyHash;
use keyspace::{Key, KeyEntry};

/// A copy of a key's value from before a script first wrote to the key; `None` in `entry` if the
/// key did not exist.
struct Image {
    db: usize,
    /// The range in [`Images::names`] of the name of the copied key.
    name: Range<usize>,
    hash: KeyHash,
    entry: Option<KeyEntry>,
}

/// Copies of the keys that one run of a script changed, made before each change, to undo the run.
/// The memory is reused for the next run.
#[derive(Default)]
pub(crate) struct Images {
    list: Vec<Image>,
    /// The names of all copied keys, one after the other.
    names: Vec<u8>,
}

impl Images {
    /// Returns true if a copy (image) of this key was made in the script's run. O(images): a script
    /// writes to few keys.
    pub(crate) fn has(&self, db: usize, key: Key<'_>) -> bool {
        let is_of = |image: &Image| image.hash == key.hash && image.db == db;
        self.list.iter().any(|image| is_of(image) && self.names[image.name.clone()] == *key.bytes)
    }

    /// Adds a copy (image) of a key: its entry, or `None` if the key did not exist.
    pub(crate) fn push(&mut self, db: usize, key: Key<'_>, entry: Option<KeyEntry>) {
        let start = self.names.len();
        self.names.extend_from_slice(key.bytes);
        self.list.push(Image { db, name: start..self.names.len(), hash: key.hash, entry });
    }

    /// Removes all copies (images) of keys, the newest first, and calls `put_back` with each, to
    /// restore the key.
    pub(crate) fn take_back(&mut self, mut put_back: impl FnMut(usize, Key<'_>, Option<KeyEntry>)) {
        while let Some(Image { db, name, hash, entry }) = self.list.pop() {
            put_back(db, Key { bytes: &self.names[name], hash }, entry);
        }
        self.names.clear();
    }

    /// Removes all copies (images) of keys, and leaves the keys as they are.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.names.clear();
    }

    /// Returns the memory allocated for copies (images) of keys in bytes, without the copied
    /// entries.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.names.capacity() + size_of::<Image>() * self.list.capacity()
    }
}
