//! The biggest keys: an index of all keys from a certain size, which every write updates.
//!
//! ```text
//!  shard ── database ──► groups, sorted: [measure|type|class] ──► set of key hashes
//!                                         bytes  list  2^20 … 1.25 × 2^20
//! ```
//! A key of at least [`BYTES_MIN`] bytes or [`ELEMENTS_MIN`] elements is *big*. Sizes above that
//! fall into classes, four to a power of two. Each class of a type has a set of its keys' hashes. A
//! write that leaves a key in its class changes nothing in the index. Other writes move a hash from
//! one set to another, O(1) amortised.
//!
//! Big keys are rare. A key costs 10 to 20 bytes here for each measure by which it is big. This is
//! less than one percent of its value, so the size of the index is bounded by the data. The sets
//! have only the hashes of big keys; a query reads names and sizes from the keys themselves.
//!
//! **A query** adds up the number of keys in each class. It finds the class in which the list of
//! the biggest keys ends. Then it reads the keys of the classes above, which are fewer than
//! requested. It also reads up to [`CUT_CLASS_MAX`] keys of that class, shard after shard. From one
//! set of that class it reads at most `CUT_CLASS_PER_SHARD_MAX` keys. The result is exact if these
//! limits leave out no key. Otherwise the sizes in the result are right within a quarter, because
//! the sizes in one class differ by at most a quarter. No other key is read: the cost does not grow
//! with the keyspace. Two keys of one shard with the same 64-bit hash would count as one.
//!
//! Guarded by the shard's lock. An expired key stays in the index until it is removed, but is not
//! returned.

use crate::big_index::{Group, Hashes};
use crate::db::Shard;
use crate::key::{KeyHash, SHARD_COUNT, position_of};
use crate::keyspace::Keyspace;
use crate::value_size::{BYTES_MIN, ELEMENTS_MIN, Measure, SizedType, ValueSize};

/// The most keys that a query reads of the *cut class*: the class in which its result ends.
pub const CUT_CLASS_MAX: usize = 4096;
/// The most keys that a query reads from one set of the cut class: of one type, database and shard.
const CUT_CLASS_PER_SHARD_MAX: usize = 64;

/// A key and its size in the result of a query for the biggest keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BigKey {
    /// The number of the big key's database.
    pub db: usize,
    /// The name of the big key.
    pub key: Box<[u8]>,
    /// The type, bytes and elements of the key's value.
    pub size: ValueSize,
}

/// The result of a query for the biggest keys.
#[derive(Debug, Default)]
pub struct BigKeys {
    /// The biggest keys found, the biggest one first.
    pub keys: Vec<BigKey>,
    /// True if `keys` are exactly the biggest keys. Otherwise each has at least four fifths of the
    /// size of the key that should be in its place.
    pub exact: bool,
    /// The number of all keys of the requested type that are big by the requested measure. Expired
    /// keys that are not removed yet are included.
    pub known: usize,
}

impl Keyspace {
    /// Returns the `count` biggest keys of all databases by `measure`: of the type `kind`, or of
    /// any type if it is `None`. Only keys of at least [`BYTES_MIN`] or [`ELEMENTS_MIN`] are
    /// considered. The result is exact only if no thread writes meanwhile.
    ///
    /// Locks one shard at a time. O(shards + `count` log `count`), plus reading up to
    /// [`CUT_CLASS_MAX`] more keys.
    pub fn big_keys(&self, measure: Measure, kind: Option<SizedType>, count: usize, now_ms: i64) -> BigKeys {
        let mut per_class = [0_usize; 256];
        for shard in 0..SHARD_COUNT {
            for (_, group, hashes) in self.lock(shard).big_groups() {
                if group.is_of(measure, kind) {
                    per_class[group.class()] += hashes.len();
                }
            }
        }
        let known = per_class.iter().sum();
        let mut above = 0;
        let mut cut = 255;
        while cut > 0 && above + per_class[cut] < count {
            above += per_class[cut];
            cut -= 1;
        }
        let (mut keys, mut exact, mut left) = (Vec::new(), true, CUT_CLASS_MAX);
        for shard in 0..SHARD_COUNT {
            let guard = self.lock(shard);
            for (db, group, hashes) in guard.big_groups() {
                if !group.is_of(measure, kind) || group.class() < cut {
                    continue;
                }
                let mut looks = hashes.len();
                if group.class() == cut {
                    looks = looks.min(CUT_CLASS_PER_SHARD_MAX).min(left);
                    exact &= looks == hashes.len();
                    left -= looks;
                }
                for &hash in hashes.iter().take(looks) {
                    keys.extend(self.big_key(&guard, db, hash, now_ms));
                }
            }
        }
        let size = |big: &BigKey| match measure {
            Measure::Bytes => big.size.bytes,
            Measure::Elements => big.size.counted(),
        };
        keys.sort_unstable_by(|a, b| size(b).cmp(&size(a)).then_with(|| (a.db, &a.key).cmp(&(b.db, &b.key))));
        keys.truncate(count);
        BigKeys { keys, exact, known }
    }

    fn big_key(&self, shard: &Shard, db: usize, hash: KeyHash, now_ms: i64) -> Option<BigKey> {
        let is = |key: &[u8]| self.hasher().hash_key(key) == hash;
        let entry = shard.db(db)?.table().find_where(position_of(hash), is)?;
        if entry.expiry_ms().is_some_and(|at_ms| at_ms < now_ms) {
            return None;
        }
        Some(BigKey { db, key: entry.key().into(), size: ValueSize::of_entry(&entry) })
    }
}

impl Shard {
    /// Returns the groups of big keys of this shard in all databases. Each has its database's
    /// number and the hashes of its keys.
    fn big_groups(&self) -> impl Iterator<Item = (usize, Group, &Hashes)> {
        self.big_indexes()
            .enumerate()
            .flat_map(|(db, index)| index.groups().map(move |(group, hashes)| (db, group, hashes)))
    }
}

impl Keyspace {
    /// Returns all big keys by a measure, in no particular order. Reads every key and not the
    /// index. For tests. O(keys).
    pub fn big_keys_recomputed(&self, measure: Measure) -> Vec<BigKey> {
        let mut found = Vec::new();
        for (shard, db) in (0..SHARD_COUNT).flat_map(|shard| (0..self.db_count()).map(move |db| (shard, db)))
        {
            for entry in self.lock(shard).db(db).into_iter().flat_map(|db| db.table().iter()) {
                let size = ValueSize::of_entry(&entry);
                let big = match measure {
                    Measure::Bytes => size.bytes >= BYTES_MIN,
                    Measure::Elements => size.counted() >= ELEMENTS_MIN,
                };
                if big {
                    found.push(BigKey { db, key: entry.key().into(), size });
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Access;
    use crate::object::KeyEntry;
    use crate::view::{AccessContext, AccessResults, Expiry, View};
    use crate::{Hash, Stream, StreamId, StreamLimits};
    use crate::{List, ListEnd, ListLimits, PackLimits, Set, SetLimits, Zset};

    const PACK: PackLimits = PackLimits { entries_max: 128, value_len_bytes_max: 64 };

    /// A keyspace on which a test does random work in two databases, and a second keyspace to
    /// exchange keys with.
    struct Work {
        keyspace: Keyspace,
        beside: Keyspace,
        access_results: AccessResults,
        rng: fastrand::Rng,
    }

    impl Work {
        fn new(seed: u64) -> Self {
            let keyspace = Keyspace::new(2, [1, 2, 3, seed]);
            let access_results = AccessResults::of_thread(&keyspace, seed);
            let beside = keyspace.beside();
            Self { keyspace, beside, access_results, rng: fastrand::Rng::with_seed(seed) }
        }

        /// Calls `work` with a view of database `db` in which the shards of the two keys `names`
        /// are locked.
        fn with(
            &mut self,
            names: [&str; 2],
            db: usize,
            work: impl FnOnce(&mut View<'_>, &mut fastrand::Rng),
        ) {
            let keys = names.map(|name| self.keyspace.hasher().key(name.as_bytes()).hash);
            let mut locked = self.keyspace.lock_all_of(keys.into_iter());
            let access_context = AccessContext {
                now_ms: 0,
                touch: true,
                access: Access::Lru { clock_s: 0 },
                expired_access: crate::view::ExpiredAccess::Remove,
            };
            let mut view =
                View::new(&self.keyspace, &mut locked, db, access_context, &mut self.access_results);
            work(&mut view, &mut self.rng);
        }

        fn step(&mut self) {
            let kind = ["str", "list", "set", "hash", "zset", "stream"][self.rng.usize(..6)];
            let names = [0, 1].map(|_| format!("{kind}{}", self.rng.u32(..6)));
            let hasher = self.keyspace.hasher().clone();
            let [key, other] = names.each_ref().map(|name| hasher.key(name.as_bytes()));
            let names = names.each_ref().map(String::as_str);
            let (db, choice) = (self.rng.usize(..2), self.rng.u32(..40));
            self.with(names, db, |view, rng| match choice {
                0 => drop(view.remove(key)),
                1 => {
                    if let Some(entry) = view.remove(key) {
                        view.replace(other, entry.renamed(other.bytes));
                    }
                }
                2 => {
                    let copy = view.peek(key).map(|entry| entry.duplicate(other.bytes, 0));
                    let from = view.select(1 - db);
                    if let Some(copy) = copy {
                        view.replace(other, copy);
                    }
                    view.select(from);
                }
                3 => {
                    view.set_expiry_ms(key, Some(0));
                }
                4 => view.set_string(key, &vec![b'x'; rng.usize(..100_000)], Expiry::Keep),
                _ => grow_or_shrink(view, key, kind, rng, &hasher),
            });
            match choice {
                5 if self.rng.bool() => self.keyspace.swap_dbs(0, 1),
                6 if self.rng.u32(..20) == 0 => self.keyspace.empty_dbs(0..1, drop),
                7 if self.rng.bool() => {
                    let gate = crate::gate::Gate::new(1);
                    gate.exclusive(|alone| self.keyspace.exchange(&self.beside, alone));
                }
                _ => {}
            }
        }

        /// Checks that the index of big keys agrees with the sizes of all keys.
        fn check(&self) {
            for measure in [Measure::Bytes, Measure::Elements] {
                let size = |big: &BigKey| match measure {
                    Measure::Bytes => big.size.bytes,
                    Measure::Elements => big.size.counted(),
                };
                let mut twin = self.keyspace.big_keys_recomputed(measure);
                twin.sort_by(|a, b| size(b).cmp(&size(a)).then_with(|| (a.db, &a.key).cmp(&(b.db, &b.key))));
                for count in [1, 3, 10, usize::MAX] {
                    let found = self.keyspace.big_keys(measure, None, count, i64::MIN);
                    assert!(found.exact && found.known == twin.len());
                    assert_eq!(
                        found.keys,
                        twin[..count.min(twin.len())],
                        "the {count} biggest by {measure:?}"
                    );
                    let of_type =
                        self.keyspace.big_keys(measure, Some(SizedType::List), count, i64::MIN).keys;
                    let lists = twin.iter().filter(|big| big.size.kind == SizedType::List).take(count);
                    assert!(of_type.iter().eq(lists));
                }
            }
            for db in 0..2 {
                assert_eq!(self.keyspace.sizes().counts(db), self.keyspace.sizes_recounted(db));
            }
        }
    }

    /// Makes the value of a random key much larger or smaller.
    fn grow_or_shrink(
        view: &mut View<'_>,
        key: crate::Key<'_>,
        kind: &str,
        rng: &mut fastrand::Rng,
        hasher: &crate::Hasher,
    ) {
        let (grows, steps) = (rng.u32(..5) < 3, 1_i64 << rng.u32(..11));
        let mut word = || format!("word{}", rng.u32(..5000));
        match kind {
            "str" => {
                if let Some(blob) = view.blob_mut(key) {
                    crate::Blob::make_mut(blob).truncate(5000 + steps as usize);
                }
            }
            "list" => {
                if let Ok(list) = view.write_or_insert::<List>(key) {
                    let limits = ListLimits::from_option(-2);
                    if grows {
                        let words: Vec<String> = (0..steps).map(|_| word()).collect();
                        list.push(ListEnd::Back, words.iter().map(String::as_bytes), limits);
                    } else {
                        list.trim(steps, -1, limits);
                    }
                    view.remove_if_empty::<List>(key);
                }
            }
            "set" => {
                if let Ok(set) = view.write_or_insert::<Set>(key) {
                    let limits = SetLimits { intset_entries_max: 512, pack: PACK };
                    for _ in 0..steps {
                        if grows {
                            set.add(word().as_bytes(), &limits, hasher);
                        } else {
                            set.remove(word().as_bytes(), hasher);
                        }
                    }
                    view.remove_if_empty::<Set>(key);
                }
            }
            "hash" => {
                if let Ok(hash) = view.write_or_insert::<Hash>(key) {
                    for _ in 0..steps {
                        if grows {
                            hash.set(word().as_bytes(), b"value", &PACK, hasher);
                        } else {
                            hash.remove(word().as_bytes(), hasher);
                        }
                    }
                    view.remove_if_empty::<Hash>(key);
                }
            }
            "zset" => {
                if let Ok(zset) = view.write_or_insert::<Zset>(key) {
                    for score in 0..steps {
                        if grows {
                            zset.set(word().as_bytes(), score as f64, &PACK, hasher);
                        } else {
                            zset.remove(word().as_bytes(), hasher);
                        }
                    }
                    view.remove_if_empty::<Zset>(key);
                }
            }
            _ => {
                if let Ok(stream) = view.write_or_insert::<Stream>(key) {
                    let limits = StreamLimits { node_bytes_max: 4096, node_entries_max: 100 };
                    for _ in 0..steps {
                        let id = StreamId { ms: stream.last_id().ms + 1, seq: 0 };
                        let words = [b"field".as_slice(), b"value"];
                        stream.append(id, words.into_iter(), limits).expect("IDs ascend");
                    }
                }
            }
        }
    }

    #[test]
    fn the_biggest_keys_are_known_whatever_happens_to_them() {
        for seed in 0..4 {
            let mut work = Work::new(seed);
            for step in 0..600 {
                work.step();
                if step % 30 == 0 {
                    work.check();
                }
            }
            work.check();
        }
    }

    #[test]
    fn keys_of_one_class_beyond_the_bound_are_within_a_quarter() {
        let mut work = Work::new(7);
        for number in 0..CUT_CLASS_MAX + 2_000 {
            let name = format!("s{number}");
            let key = work.keyspace.hasher().key(name.as_bytes());
            let entry =
                KeyEntry::new(key.bytes, crate::string::stored(&vec![b'x'; 8192 + number % 1000]), None, 0);
            work.keyspace.insert_absent(&mut work.keyspace.lock(key.shard()), 0, entry);
        }
        let found = work.keyspace.big_keys(Measure::Bytes, None, 10, 0);
        assert!(!found.exact && found.keys.len() == 10 && found.known == CUT_CLASS_MAX + 2_000);
        assert!(found.keys.iter().all(|big| big.size.bytes * 5 / 4 >= 9191));
        work.access_results.hits = 0;
    }
}
