//! The tracking table of one shard: pairs of a key and a reader (a client that has read the key),
//! which can be found and removed by key and by reader.
//!
//! ```text
//!   by_name ─► key: name, first item ──┐            by_reader: reader's id ─► first item ──┐
//!                                      ▼                                                   ▼
//!   by_pair ─► item: key, reader ◄─► next of the key's items, ◄─► next of the reader's items
//! ```
//! Invariants: an item is in the list of its key, in the list of its reader, and in `by_pair`. A
//! key or a reader exists only while it has items. Adding, looking up and removing a pair are O(1).
//! Removing a key is O(its readers). Removing a reader is O(its keys), in any number of steps.
//! Slots of removed items are reused. If more than three quarters of the slots are free, the
//! remaining items are moved together.
//!
//! Memory: about 55 bytes for each item, 60 bytes and the name for each key, 25 bytes for each
//! reader.

use std::collections::HashMap;

use ahash::RandomState;
use hashbrown::HashTable;
use keyspace::{Key, KeyHash};

/// The slot number that stands for the end of a list of a tracking table's items.
const NONE: u32 = u32::MAX;

/// The number of slots up to which a [`Slab`] of a tracking table is never rebuilt smaller.
const SLOTS_KEPT: usize = 64;

/// The index, in [`Item::links`], of the links of the list of a key's items. `OF_READER` is the
/// index for the list of a reader's items.
const OF_KEY: usize = 0;
const OF_READER: usize = 1;

#[derive(Clone, Copy)]
struct Link {
    previous: u32,
    next: u32,
}

/// A tracked key, with the first item of its list of readers.
struct KeySlot {
    hash: KeyHash,
    name: Box<[u8]>,
    first: u32,
}

/// An item of a tracking table: one reader (a client that has read the key) of one key.
struct Item<R> {
    key: u32,
    id: u64,
    reader: R,
    links: [Link; 2],
}

/// The tracked keys of one shard, with their readers: the clients that have read them.
pub struct TrackingTable<R> {
    keys: Slab<KeySlot>,
    items: Slab<Item<R>>,
    by_name: HashTable<u32>,
    by_pair: HashTable<u32>,
    by_reader: HashMap<u64, u32, RandomState>,
}

impl<R> Default for TrackingTable<R> {
    fn default() -> Self {
        Self {
            keys: Slab::default(),
            items: Slab::default(),
            by_name: HashTable::new(),
            by_pair: HashTable::new(),
            by_reader: HashMap::with_hasher(RandomState::with_seeds(1, 2, 3, 4)),
        }
    }
}

/// The result of removing a reader (a tracking client) from a tracking table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The number of items (pairs of a key and a client that has read it) that were removed.
    pub items: usize,
    /// The number of removed keys, which no client tracks any more.
    pub keys: usize,
}

impl<R> TrackingTable<R> {
    /// Returns the number of tracked keys of this shard.
    pub fn key_count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the number of the table's items, which are pairs of a tracked key and a client that
    /// has read it.
    pub fn item_count(&self) -> usize {
        self.items.len()
    }

    /// Returns true if the client with this id tracks any key. O(1).
    pub fn has_reader(&self, id: u64) -> bool {
        self.by_reader.contains_key(&id)
    }

    /// Returns true if the client with this id tracks this key. O(1).
    pub fn contains(&self, key: Key<'_>, id: u64) -> bool {
        self.find_key(key).is_some_and(|key| self.find_item(key, id).is_some())
    }

    /// Adds a new pair of a key and a client that has read it. Returns true if no client tracked
    /// the key before. O(1) amortised.
    pub fn add(&mut self, key: Key<'_>, id: u64, reader: R) -> bool {
        let found = self.find_key(key);
        let at = found.unwrap_or_else(|| {
            let at = self.keys.add(KeySlot { hash: key.hash, name: key.bytes.into(), first: NONE });
            let keys = &self.keys;
            self.by_name.insert_unique(spread(key.hash), at, |&at| spread(keys.get(at).hash));
            at
        });
        let unlinked = Link { previous: NONE, next: NONE };
        let item = self.items.add(Item { key: at, id, reader, links: [unlinked; 2] });
        let items = &self.items;
        self.by_pair.insert_unique(hash_of_pair(at, id), item, |&other| {
            let other = items.get(other);
            hash_of_pair(other.key, other.id)
        });
        let first_of_key = std::mem::replace(&mut self.keys.get_mut(at).first, item);
        self.link(OF_KEY, item, first_of_key);
        let first_of_reader = self.by_reader.insert(id, item).unwrap_or(NONE);
        self.link(OF_READER, item, first_of_reader);
        found.is_none()
    }

    /// Removes a key from the tracking table, and returns the clients that have read it, oldest
    /// first. O(readers).
    pub fn remove_key(&mut self, key: Key<'_>) -> Vec<R> {
        let mut readers = Vec::new();
        if let Some(at) = self.find_key(key) {
            let mut is_last = false;
            while !is_last {
                let (reader, was_last) = self.remove_item(self.keys.get(at).first);
                readers.push(reader);
                is_last = was_last;
            }
            readers.reverse();
            self.tighten();
        }
        readers
    }

    /// Removes at most `items_max` items of the client with this id (the keys that it has read).
    /// O(removed items).
    pub fn remove_reader(&mut self, id: u64, items_max: usize) -> Removed {
        let mut removed = Removed::default();
        while removed.items < items_max
            && let Some(&item) = self.by_reader.get(&id)
        {
            let (_, was_last) = self.remove_item(item);
            removed.items += 1;
            removed.keys += usize::from(was_last);
        }
        self.tighten();
        removed
    }

    /// Returns a tracked key chosen by the random number `draw`, whose hash differs from `except`;
    /// `None` if there is none. O(1) on average.
    pub fn any_key(&self, draw: u64, except: Option<KeyHash>) -> Option<Key<'_>> {
        let slots = self.keys.slots.len() as u64;
        let start = draw.checked_rem(slots)? as usize;
        let (before, from) = self.keys.slots.split_at(start);
        let slot = from.iter().chain(before).flatten().find(|slot| Some(slot.hash) != except)?;
        Some(Key { bytes: &slot.name, hash: slot.hash })
    }

    fn find_key(&self, key: Key<'_>) -> Option<u32> {
        let is_it = |&at: &u32| {
            let slot = self.keys.get(at);
            slot.hash == key.hash && *slot.name == *key.bytes
        };
        self.by_name.find(spread(key.hash), is_it).copied()
    }

    fn find_item(&self, key: u32, id: u64) -> Option<u32> {
        let is_it = |&item: &u32| {
            let item = self.items.get(item);
            item.key == key && item.id == id
        };
        self.by_pair.find(hash_of_pair(key, id), is_it).copied()
    }

    /// Removes an item (a pair of a key and a client that has read it), and its key if the item was
    /// the key's last one. Returns the item's reader, and true if the key was removed.
    fn remove_item(&mut self, item: u32) -> (R, bool) {
        let of_key = self.unlink(OF_KEY, item);
        let of_reader = self.unlink(OF_READER, item);
        let Item { key, id, reader, .. } = self.items.remove(item);
        let in_index = self.by_pair.find_entry(hash_of_pair(key, id), |&other| other == item);
        in_index.expect("an item stands in the index").remove();
        if of_reader.previous == NONE {
            if of_reader.next == NONE {
                self.by_reader.remove(&id);
            } else {
                self.by_reader.insert(id, of_reader.next);
            }
        }
        if of_key.previous == NONE {
            self.keys.get_mut(key).first = of_key.next;
        }
        let was_last = of_key.previous == NONE && of_key.next == NONE;
        if was_last {
            let slot = self.keys.remove(key);
            let in_index = self.by_name.find_entry(spread(slot.hash), |&other| other == key);
            in_index.expect("a key stands in the index").remove();
        }
        (reader, was_last)
    }

    /// Puts an item (a pair of a key and a client that has read it) before the first item of a
    /// list: that of its key, or that of its reader.
    fn link(&mut self, list: usize, item: u32, first: u32) {
        self.items.get_mut(item).links[list].next = first;
        if first != NONE {
            self.items.get_mut(first).links[list].previous = item;
        }
    }

    /// Removes an item (a pair of a key and a client that has read it) from a list: that of its
    /// key, or that of its reader. Returns its former links.
    fn unlink(&mut self, list: usize, item: u32) -> Link {
        let link = self.items.get(item).links[list];
        if link.previous != NONE {
            self.items.get_mut(link.previous).links[list].next = link.next;
        }
        if link.next != NONE {
            self.items.get_mut(link.next).links[list].previous = link.previous;
        }
        link
    }

    /// Builds the tracking table anew, without free slots, if most slots are free. O(1) amortised
    /// over the removed items.
    fn tighten(&mut self) {
        if !self.keys.is_sparse() && !self.items.is_sparse() {
            return;
        }
        let mut old = std::mem::take(self);
        for key in old.keys.slots.into_iter().flatten() {
            let mut item = key.first;
            let mut newest_first = Vec::new();
            while item != NONE {
                let Item { id, reader, links, .. } = old.items.remove(item);
                newest_first.push((id, reader));
                item = links[OF_KEY].next;
            }
            for (id, reader) in newest_first.into_iter().rev() {
                self.add(Key { bytes: &key.name, hash: key.hash }, id, reader);
            }
        }
    }
}

/// Mixes the bits of a key's hash for a tracking table. Keys of one shard have the same top bits,
/// and a table uses these bits first.
fn spread(hash: KeyHash) -> u64 {
    hash.number() ^ (hash.number() << 40)
}

fn hash_of_pair(key: u32, id: u64) -> u64 {
    const ODD: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (id ^ (u64::from(key) << 32)).wrapping_mul(ODD);
    (mixed ^ (mixed >> 32)).wrapping_mul(ODD)
}

/// A list of values in numbered slots. The numbers of removed values are reused.
struct Slab<T> {
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn is_sparse(&self) -> bool {
        self.slots.len() > SLOTS_KEPT && self.len() < self.slots.len() / 4
    }

    fn add(&mut self, value: T) -> u32 {
        if let Some(at) = self.free.pop() {
            self.slots[at as usize] = Some(value);
            return at;
        }
        let at = u32::try_from(self.slots.len()).ok().filter(|&at| at != NONE);
        self.slots.push(Some(value));
        at.expect("memory ends before numbers do")
    }

    fn get(&self, at: u32) -> &T {
        self.slots[at as usize].as_ref().expect("numbers name what is there")
    }

    fn get_mut(&mut self, at: u32) -> &mut T {
        self.slots[at as usize].as_mut().expect("numbers name what is there")
    }

    fn remove(&mut self, at: u32) -> T {
        self.free.push(at);
        self.slots[at as usize].take().expect("numbers name what is there")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use keyspace::Hasher;

    use super::*;

    /// Returns all pairs of a tracked key and a reader (a client that has read it) twice: as found
    /// by the list of each key, and by the list of each reader.
    fn pairs(readers: &TrackingTable<u64>) -> [BTreeSet<(Box<[u8]>, u64)>; 2] {
        let walk = |list: usize, first: u32| {
            let mut item = first;
            std::iter::from_fn(move || {
                let found = (item != NONE).then(|| readers.items.get(item))?;
                item = found.links[list].next;
                Some((readers.keys.get(found.key).name.clone(), found.id))
            })
        };
        let keys = readers.keys.slots.iter().flatten();
        let by_key = keys.flat_map(|key| walk(OF_KEY, key.first)).collect();
        [by_key, readers.by_reader.values().flat_map(|&first| walk(OF_READER, first)).collect()]
    }

    #[test]
    fn pairs_are_those_of_a_set() {
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        let mut rng = fastrand::Rng::with_seed(7);
        let (mut readers, mut model) = (TrackingTable::default(), BTreeSet::<(Box<[u8]>, u64)>::new());
        for step in 0..40_000 {
            let name = format!("key{}", rng.u32(0..60)).into_bytes();
            let (key, id) = (hasher.key(&name), rng.u64(1..40));
            let with_key = |(other, _): &(Box<[u8]>, u64)| **other == *name;
            match rng.u32(0..100) {
                0..80 if readers.contains(key, id) => assert!(model.contains(&(name.clone().into(), id))),
                0..80 => {
                    assert_eq!(readers.add(key, id, id), !model.iter().any(with_key));
                    assert!(model.insert((name.into(), id)));
                }
                80..92 => {
                    let mut removed = readers.remove_key(key);
                    removed.sort_unstable();
                    let expected: Vec<u64> = model.extract_if(.., with_key).map(|(_, id)| id).collect();
                    assert_eq!(removed, expected);
                }
                _ => {
                    let items_max = rng.usize(0..40);
                    let removed = readers.remove_reader(id, items_max);
                    let left = pairs(&readers)[0].clone();
                    let gone: Vec<_> = model.difference(&left).cloned().collect();
                    assert!(gone.iter().all(|(_, other)| *other == id) && left.is_subset(&model));
                    assert_eq!(removed.items, gone.len());
                    assert!(removed.items == items_max || !readers.has_reader(id));
                    model = left;
                }
            }
            if step % 64 == 0 {
                assert_eq!(pairs(&readers), [model.clone(), model.clone()], "step {step}");
                let names: BTreeSet<_> = model.iter().map(|(name, _)| name.clone()).collect();
                assert_eq!((readers.key_count(), readers.item_count()), (names.len(), model.len()));
                assert_eq!(readers.any_key(rng.u64(..), None).is_some(), !names.is_empty());
            }
        }
    }

    #[test]
    fn what_was_removed_takes_no_memory() {
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        let mut readers = TrackingTable::default();
        for id in 0..10_000_u64 {
            readers.add(hasher.key(b"hot"), id, id);
            readers.add(hasher.key(&id.to_le_bytes()), id, id);
        }
        for id in 1..10_000 {
            assert_eq!(readers.remove_reader(id, usize::MAX), Removed { items: 2, keys: 1 });
        }
        assert_eq!((readers.key_count(), readers.item_count()), (2, 2));
        assert!(readers.keys.slots.len() <= SLOTS_KEPT && readers.items.slots.len() <= SLOTS_KEPT);
        assert!(
            readers.by_pair.capacity() <= 4 * SLOTS_KEPT && readers.by_reader.capacity() <= 4 * SLOTS_KEPT
        );
    }
}
