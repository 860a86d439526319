//! Keys as they were before a script wrote to them: what an undone run is undone with.

use std::ops::Range;

use keyspace::key::KeyHash;
use keyspace::{Key, KeyEntry};

/// A key as it was before a script wrote to it.
struct Image {
    db: usize,
    /// The place of its name in [`Images::names`].
    name: Range<usize>,
    hash: KeyHash,
    entry: Option<KeyEntry>,
}

/// The images of one run. Their memory serves the next one, too.
#[derive(Default)]
pub(crate) struct Images {
    list: Vec<Image>,
    /// The names of the keys, one behind the other.
    names: Vec<u8>,
}

impl Images {
    /// Returns true if there is one of this key. O(images): a script writes to few keys.
    pub(crate) fn has(&self, db: usize, key: Key<'_>) -> bool {
        let is_of = |image: &Image| image.hash == key.hash && image.db == db;
        self.list.iter().any(|image| is_of(image) && self.names[image.name.clone()] == *key.bytes)
    }

    /// Adds one: what was at the key, or nothing.
    pub(crate) fn push(&mut self, db: usize, key: Key<'_>, entry: Option<KeyEntry>) {
        let start = self.names.len();
        self.names.extend_from_slice(key.bytes);
        self.list.push(Image { db, name: start..self.names.len(), hash: key.hash, entry });
    }

    /// Gives each to `put_back`, the newest first. None are left.
    pub(crate) fn take_back(&mut self, mut put_back: impl FnMut(usize, Key<'_>, Option<KeyEntry>)) {
        while let Some(Image { db, name, hash, entry }) = self.list.pop() {
            put_back(db, Key { bytes: &self.names[name], hash }, entry);
        }
        self.names.clear();
    }

    /// Forgets all of them.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.names.clear();
    }

    /// Returns the bytes of their memory, without the entries.
    pub(crate) fn capacity_bytes(&self) -> usize {
        self.names.capacity() + size_of::<Image>() * self.list.capacity()
    }
}
