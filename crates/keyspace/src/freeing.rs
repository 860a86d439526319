//! Freeing big values piece by piece, so that the freeing thread can stop at any time.
//!
//! Freeing a set of ten million members takes most of a second. It is done by a background thread.
//! But a thread that is short of memory must be able to help, and the background thread must stay
//! ready for other work. A value is therefore converted to an iterator. Each step of the iterator
//! frees a bounded part: a field, about eight members of a set, a node of a list, a node of a tree.

use structures::entry::View;
use structures::table::{SAMPLE_MAX, Sampled, Table};

use crate::object::{KeyEntry, Object};

/// An iterator that frees a removed value. Each step frees one part of it; dropping the iterator
/// frees the rest.
pub type FreeingSteps = Box<dyn Iterator<Item = ()> + Send>;

/// The number of elements from which a value is freed in several steps. Smaller values take one
/// step.
const PIECEWISE_ELEMENTS_MIN: usize = 64;

/// Converts an object to an iterator that frees its memory in steps. O(1).
pub fn freeing_steps_of(object: Object) -> FreeingSteps {
    match object {
        Object::Set(set) => set.into_freed(),
        Object::Hash(hash) => hash.into_freed(),
        Object::Zset(zset) => zset.into_freed(),
        Object::List(list) => list.into_freed(),
        Object::Stream(stream) => stream.into_freed(),
        Object::Vector(set) => set.into_freed(),
        Object::Array(array) => array.into_freed(),
        blob @ Object::Blob(_) => Box::new(std::iter::once(blob).map(drop)),
    }
}

/// Converts a key's entry to an iterator that frees the memory of its value in steps. O(1).
pub fn freeing_steps_of_entry(entry: KeyEntry) -> FreeingSteps {
    match entry.into_object() {
        Some(object) => freeing_steps_of(object),
        None => Box::new(std::iter::empty()),
    }
}

/// Converts a table of keys to an iterator that frees the table and its keys. Each key takes a
/// step; a big value takes the steps of [`freeing_steps_of`] before it. O(1).
pub fn freeing_steps_of_keys(table: Table<KeyEntry>) -> FreeingSteps {
    Box::new(table.into_drain().flat_map(|entry| {
        let big = match entry.view() {
            View::Object(object) => object.element_count() >= PIECEWISE_ELEMENTS_MIN,
            View::Bytes(_) | View::Int(_) => false,
        };
        let object = if big { entry.into_object() } else { None };
        // The key itself is the last step, so a table of small values takes one step per key.
        object.map(freeing_steps_of).into_iter().flatten().chain(std::iter::once(()))
    }))
}

/// Returns the memory in bytes of a key with its value: the key's block, and the memory that its
/// object owns elsewhere. Estimated for a big value. The work is bounded, except for a stream:
/// O(its nodes).
pub fn memory_of(entry: &KeyEntry) -> usize {
    let object = match entry.view() {
        View::Object(object) => object.memory_usage(),
        View::Bytes(_) | View::Int(_) => 0,
    };
    entry.block_len_bytes() + object
}

/// Returns the memory in bytes of a table and of its keys with their values. The bytes of keys and
/// values are estimated from a sample of up to 64 keys.
pub fn memory_of_keys(table: &Table<KeyEntry>) -> usize {
    let mut sampled = 0;
    let seen = table.sample(0, SAMPLE_MAX, Sampled::All, |entry| sampled += memory_of(&entry));
    table.memory_usage() + sampled * table.len() / seen.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{Hasher, position_of};
    use crate::{PackLimits, Set, SetLimits};
    use structures::entry::{Entry, NewValue};

    fn big_set(members: usize, hasher: &Hasher) -> Object {
        let limits =
            SetLimits { intset_entries_max: 8, pack: PackLimits { entries_max: 8, value_len_bytes_max: 8 } };
        let mut set = Set::default();
        for n in 0..members {
            set.add(format!("member-{n}").as_bytes(), &limits, hasher);
        }
        Object::Set(set)
    }

    #[test]
    fn a_bucket_of_members_is_a_piece_and_so_is_every_key() {
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        // The number of buckets with at most eight members on average.
        let pieces = 1000_usize.div_ceil(8);
        assert_eq!(freeing_steps_of(big_set(1000, &hasher)).count(), pieces);
        let mut table = Table::new();
        let position = |key: &[u8]| position_of(hasher.hash_key(key));
        for n in 0..10_000 {
            let key = format!("key-{n}");
            let value =
                if n == 5000 { NewValue::Object(big_set(1000, &hasher)) } else { NewValue::Bytes(b"small") };
            table.insert(position(key.as_bytes()), Entry::new(key.as_bytes(), value, None, 0), &position);
        }
        assert_eq!(freeing_steps_of_keys(table).count(), 10_000 + pieces);
    }

    #[test]
    fn a_walk_that_stops_half_way_frees_the_rest() {
        // Under AddressSanitizer this finds leaks and double frees.
        let hasher = Hasher::with_seed([1, 2, 3, 4]);
        let mut pieces = freeing_steps_of(big_set(1000, &hasher));
        assert_eq!(pieces.by_ref().take(30).count(), 30);
        drop(pieces);
    }
}
