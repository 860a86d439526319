//! DEBUG DIGEST: a digest of a whole keyspace, so that two servers can be compared.
//!
//! The digests are byte for byte those of Redis 8, with two exceptions. Redis leaves out the
//! contents of vector sets, and Redis 8.0 has no arrays.
//!
//! A digest is 20 bytes that start at zero. Two steps with SHA-1 add data. `add` XORs the hash of
//! the bytes into the digest, so the order of additions does not matter. `mix` adds the bytes and
//! then hashes the digest itself, so the order matters.
//!
//! ```text
//! keyspace = for each database that is not empty: mix its number; for each key: add its digest
//! key      = mix the name, then the value
//! value    = mix the type's number, then
//!            string, list   mix each string in order
//!            set            add each member
//!            hash, zset     add each element's own digest: mix member or field, mix score or value
//!            stream         for each entry mix `ms.seq`, then each field and its value
//!            vector set     add each element's own digest: mix name, vector, norm, range and
//!                           attributes
//!            array          for each element mix its index as 8 bytes, then the element; then mix
//!                           the index of the next insertion
//!            hash field with an expiry: its own digest adds the word `!!hexpire!!`
//!            key with an expiry: add the word `!!expire!!` (the time of expiry does not count)
//! ```
//! Numbers of types and databases are mixed as 4 big-endian bytes. Scores are mixed in their
//! shortest decimal form (`1e+17`).

use std::fmt::Write;

use keyspace::key::SHARD_COUNT;
use keyspace::string::IntText;
use keyspace::{Array, KeyEntry, Keyspace, Object, Str, Stream, StreamId};
use sha1::{Digest as _, Sha1};
use stdx::number::format_f64_shortest;
use structures::entry::View;
use structures::listpack::element::{Element, IntText as ElementText};
use structures::vector::VectorIndex;

/// A digest of data in 20 bytes; the module describes its computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest([u8; 20]);

impl Digest {
    /// Computes the digest of all databases, including expired keys that are not removed yet. O(all
    /// data). The caller ensures that no client writes during the call.
    pub fn of_keyspace(keyspace: &Keyspace) -> Self {
        let mut digest = Self::default();
        for db in 0..keyspace.db_count() {
            if keyspace.reachable_db_size(db).keys == 0 {
                continue;
            }
            digest.mix(&(db as u32).to_be_bytes());
            for shard in 0..SHARD_COUNT {
                let guard = keyspace.lock(shard);
                for entry in guard.db(db).into_iter().flat_map(|db| db.table().iter()) {
                    let mut of_key = Self::default();
                    of_key.mix(entry.key());
                    of_key.mix_value(&entry);
                    digest.add(&of_key.0);
                }
            }
        }
        digest
    }

    /// Computes the digest of a value, without its key's name. O(value).
    pub fn of_value(entry: &KeyEntry) -> Self {
        let mut digest = Self::default();
        digest.mix_value(entry);
        digest
    }

    /// Formats the digest as 40 hexadecimal digits.
    pub fn hex(&self) -> String {
        self.0.iter().fold(String::new(), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    fn add(&mut self, bytes: &[u8]) {
        let hash = Sha1::digest(bytes);
        self.0.iter_mut().zip(hash).for_each(|(mine, other)| *mine ^= other);
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.add(bytes);
        self.0 = Sha1::digest(self.0).into();
    }

    fn mix_element(&mut self, element: Element<'_>) {
        self.mix(element.text(&mut ElementText::new()));
    }

    /// Adds the digest of a pair, such as a field and its value. Creates a new digest, mixes
    /// `first` into it, lets `second` mix the other half into it, and adds the result to `self`.
    fn add_pair(&mut self, first: Element<'_>, second: impl FnOnce(&mut Self)) {
        let mut pair = Self::default();
        pair.mix_element(first);
        second(&mut pair);
        self.add(&pair.0);
    }

    fn mix_value(&mut self, entry: &KeyEntry) {
        self.mix(&type_number(entry.view()).to_be_bytes());
        if let Some(string) = Str::of(entry.view()) {
            self.mix(string.bytes(&mut IntText::new()));
        } else if let View::Object(object) = entry.view() {
            self.mix_collection(object);
        }
        if entry.expiry_ms().is_some() {
            self.add(b"!!expire!!");
        }
    }

    fn mix_collection(&mut self, object: &Object) {
        match object {
            Object::Blob(bytes) => self.mix(bytes),
            Object::List(list) => list.visit(|element| self.mix_element(element)),
            Object::Set(set) => {
                let mut scratch = ElementText::new();
                set.iter().for_each(|member| self.add(member.text(&mut scratch)));
            }
            Object::Hash(hash) => {
                hash.fields().for_each(|field| {
                    self.add_pair(field.name, |pair| {
                        pair.mix_element(field.value);
                        if field.deadline_ms.is_some() {
                            pair.add(b"!!hexpire!!");
                        }
                    });
                });
            }
            Object::Zset(zset) => zset.iter().for_each(|(member, score)| {
                self.add_pair(member, |pair| pair.mix(format_f64_shortest(score).as_bytes()));
            }),
            Object::Stream(stream) => self.mix_stream(stream),
            Object::Vector(set) => self.mix_vectors(set.index()),
            Object::Array(array) => self.mix_array(array),
        }
    }

    /// Mixes the elements of a vector set into the digest. The order of the elements does not
    /// matter. Redis mixes nothing for a vector set.
    fn mix_vectors(&mut self, index: &VectorIndex) {
        for slot in index.slots() {
            let raw = index.raw(slot);
            self.add_pair(Element::Bytes(index.name(slot)), |pair| {
                pair.mix(raw.bytes);
                pair.mix(&raw.norm.to_le_bytes());
                pair.mix(&raw.range.unwrap_or_default().to_le_bytes());
                pair.mix(index.attributes(slot).unwrap_or_default());
            });
        }
    }

    /// Mixes the elements of an array in their order, then its cursor.
    fn mix_array(&mut self, array: &Array) {
        for (index, element) in array.elements().scan(0, u64::MAX) {
            self.mix(&index.to_be_bytes());
            self.mix_element(element);
        }
        self.mix(&array.next_insert().unwrap_or(u64::MAX).to_be_bytes());
    }

    fn mix_stream(&mut self, stream: &Stream) {
        for entry in stream.range(StreamId::MIN, StreamId::MAX) {
            self.mix(format!("{}.{}", entry.id.ms, entry.id.seq).as_bytes());
            for (field, value) in entry.pairs {
                self.mix(field);
                self.mix_element(value);
            }
        }
    }
}

/// Returns the number that Redis gives to a value's type. Number 5 is that of the types of modules.
fn type_number(value: View<'_, Object>) -> u32 {
    match value {
        View::Bytes(_) | View::Int(_) | View::Object(Object::Blob(_)) => 0,
        View::Object(Object::List(_)) => 1,
        View::Object(Object::Set(_)) => 2,
        View::Object(Object::Zset(_)) => 3,
        View::Object(Object::Hash(_)) => 4,
        View::Object(Object::Vector(_)) => 5,
        View::Object(Object::Stream(_)) => 6,
        View::Object(Object::Array(_)) => 7,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use keyspace::string::stored;

    fn digest_of(bytes: &[u8], expiry_ms: Option<i64>) -> String {
        Digest::of_value(&KeyEntry::new(b"k", stored(bytes), expiry_ms, 0)).hex()
    }

    /// Checks the digest of a number against the output of DEBUG DIGEST-VALUE in Redis 8.0.2.
    #[test]
    fn a_number_has_the_digest_that_redis_gives_its_text() {
        assert_eq!(digest_of(b"1", None), "b4fc66738120fba0b5aa500ab5c2bf89cea1c5da");
        assert_eq!(digest_of(b"value:0", None), "c15f34c747bf411833c10208c03e1da1bb7da7cf");
    }

    #[test]
    fn that_a_key_expires_counts_and_when_does_not() {
        assert_ne!(digest_of(b"a", None), digest_of(b"a", Some(5)));
        assert_eq!(digest_of(b"a", Some(5)), digest_of(b"a", Some(6)));
    }
}
