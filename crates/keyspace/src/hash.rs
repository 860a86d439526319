//! The hash type: few short fields in a listpack of fields and values, anything else in a table.
//!
//! Packed, a hash is one block, `field value field value …`. What outgrows that is a table of pairs, one
//! allocation for a field with its value, overwritten in place where the size class stays the same:
//! finding, setting, removing and choosing at random are O(1) there. A hash never goes back by itself.

use crate::freeing::Pieces;
use structures::listpack::element::{Element, IntText};
use structures::listpack::{Cursor, Listpack};
use structures::pair::Pair;
use structures::table::Table;

use crate::key::Hasher;
use crate::limits::PackLimits;
use crate::one_of::OneOfTwo;
use crate::packed::PackDefect;
use crate::sample::{Selection, index_below, sample_table};

/// A map of fields to values. See the module's comment.
#[derive(Clone)]
pub struct Hash {
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    Pack(Listpack),
    Table(Box<Pairs>),
}

/// A table of fields with their values, and the bytes they take.
#[derive(Clone, Default)]
struct Pairs {
    table: Table<Pair>,
    pairs_len_bytes: usize,
}

impl Pairs {
    #[inline]
    fn set(&mut self, field: &[u8], value: &[u8], hasher: &Hasher) -> bool {
        let position = hasher.hash(field);
        if let Some(place) = self.table.find(position, field) {
            let mut pair = self.table.at_mut(place);
            self.pairs_len_bytes -= pair.block_len_bytes();
            pair.set_value(value);
            self.pairs_len_bytes += pair.block_len_bytes();
            return false;
        }
        let pair = Pair::new(field, value, None);
        self.pairs_len_bytes += pair.block_len_bytes();
        self.table.insert(position, pair, &|key: &[u8]| hasher.hash(key));
        true
    }

    fn remove(&mut self, field: &[u8], hasher: &Hasher) -> bool {
        let Some(place) = self.table.find(hasher.hash(field), field) else { return false };
        self.pairs_len_bytes -= self.table.remove(place).block_len_bytes();
        true
    }
}

impl Default for Hash {
    fn default() -> Self {
        Self { repr: Repr::Pack(Listpack::new()) }
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hash({}, {} fields)", self.encoding_name(), self.len())
    }
}

/// The place of a field in a packed hash.
#[inline]
fn find_field(pack: &Listpack, field: &[u8]) -> Option<Cursor> {
    pack.find(pack.first()?, field, 1)
}

/// Fields and values of a packed hash.
fn packed_pairs(pack: &Listpack) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
    let mut elements = pack.iter();
    std::iter::from_fn(move || Some((elements.next()?, elements.next()?)))
}

impl Hash {
    /// An empty hash. One allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// The hash of the fields and values in `pack`, which somebody else wrote; packed if it has no more
    /// fields than `limits` allow. O(n log n).
    ///
    /// # Errors
    /// A field without a value, or twice.
    pub fn from_listpack(pack: Listpack, limits: &PackLimits, hasher: &Hasher) -> Result<Self, PackDefect> {
        if !pack.len().is_multiple_of(2) {
            return Err(PackDefect::HalfPair);
        }
        if !pack.are_distinct(1) {
            return Err(PackDefect::Duplicate);
        }
        let mut hash = Self { repr: Repr::Pack(pack) };
        if !limits.admit_count(hash.len()) {
            hash.spread(hasher);
        }
        Ok(hash)
    }

    /// The listpack of a packed hash, fields before their values. O(1).
    pub fn as_listpack(&self) -> Option<&Listpack> {
        if let Repr::Pack(pack) = &self.repr { Some(pack) } else { None }
    }

    /// Number of fields. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Pack(pack) => pack.len() / 2,
            Repr::Table(pairs) => pairs.table.len(),
        }
    }

    /// Whether there are no fields. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts loading what looking for a field with this hash will read first: its bucket of a table.
    /// Packed, nothing. O(1).
    #[inline]
    pub fn prefetch_bucket(&self, hash: u64) {
        if let Repr::Table(pairs) = &self.repr {
            pairs.table.prefetch_bucket(hash);
        }
    }

    /// Starts loading the field with this hash itself, whose bucket [`prefetch_bucket`](Self::prefetch_bucket)
    /// fetched. O(1).
    #[inline]
    pub fn prefetch_member(&self, hash: u64) {
        if let Repr::Table(pairs) = &self.repr {
            pairs.table.prefetch_element(hash);
        }
    }

    /// The name OBJECT ENCODING gives.
    pub fn encoding_name(&self) -> &'static str {
        match &self.repr {
            Repr::Pack(_) => "listpack",
            Repr::Table(_) => "hashtable",
        }
    }

    /// Bytes owned outside the key's block. O(n / 60).
    pub fn memory_usage(&self) -> usize {
        match &self.repr {
            Repr::Pack(pack) => pack.memory_usage(),
            Repr::Table(pairs) => size_of::<Pairs>() + pairs.pairs_len_bytes + pairs.table.memory_usage(),
        }
    }

    /// Gives the value up piece by piece. O(1).
    pub fn into_freed(self) -> Pieces {
        match self.repr {
            Repr::Table(mut pairs) => Box::new(std::mem::take(&mut pairs.table).into_drain().map(drop)),
            small => Box::new(std::iter::once(small).map(drop)),
        }
    }

    /// The value of `field`. O(1); packed, O(bytes).
    #[inline]
    pub fn get(&self, field: &[u8], hasher: &Hasher) -> Option<Element<'_>> {
        match &self.repr {
            Repr::Pack(pack) => pack.get(pack.next(find_field(pack, field)?)?),
            Repr::Table(pairs) => Some(Element::Bytes(pairs.table.get(hasher.hash(field), field)?.value())),
        }
    }

    /// Whether `field` is there. O(1); packed, O(bytes).
    pub fn contains(&self, field: &[u8], hasher: &Hasher) -> bool {
        self.get(field, hasher).is_some()
    }

    /// Prepares for `count` more fields, so that a hash that will not stay packed is not packed first.
    pub fn expect(&mut self, count: usize, limits: &PackLimits, hasher: &Hasher) {
        if !limits.admit_count(count) {
            self.spread(hasher);
        }
    }

    /// Sets `field` to `value`; whether the field is new. O(1) amortised; packed, O(bytes).
    #[inline]
    pub fn set(&mut self, field: &[u8], value: &[u8], limits: &PackLimits, hasher: &Hasher) -> bool {
        match &mut self.repr {
            Repr::Table(pairs) => pairs.set(field, value, hasher),
            Repr::Pack(_) => self.set_packed(field, value, limits, hasher),
        }
    }

    fn set_packed(&mut self, field: &[u8], value: &[u8], limits: &PackLimits, hasher: &Hasher) -> bool {
        let Repr::Pack(pack) = &mut self.repr else { unreachable!("the caller looked") };
        if limits.admit(field) && limits.admit(value) && pack.fits(field.len() + value.len()) {
            let found = find_field(pack, field).and_then(|at| pack.next(at));
            let stored = match found {
                Some(at) => pack.replace(at, value),
                None => pack.extend_back(&[Element::Bytes(field), Element::Bytes(value)]),
            };
            stored.expect("`fits` said that this much more is not refused");
            if !limits.admit_count(self.len()) {
                self.spread(hasher);
            }
            return found.is_none();
        }
        self.spread(hasher);
        self.set(field, value, limits, hasher)
    }

    /// Goes over to a table. O(n).
    fn spread(&mut self, hasher: &Hasher) {
        let Repr::Pack(pack) = &self.repr else { return };
        let mut pairs = Box::<Pairs>::default();
        for (field, value) in packed_pairs(pack) {
            pairs.set(field.text(&mut IntText::new()), value.text(&mut IntText::new()), hasher);
        }
        self.repr = Repr::Table(pairs);
    }

    /// Removes `field`; false if it was not there. O(1) amortised; packed, O(bytes).
    pub fn remove(&mut self, field: &[u8], hasher: &Hasher) -> bool {
        match &mut self.repr {
            Repr::Pack(pack) => {
                let Some(at) = find_field(pack, field) else { return false };
                pack.delete_many(at, 2);
                true
            }
            Repr::Table(pairs) => pairs.remove(field, hasher),
        }
    }

    /// All fields and values: packed in the order they were added, else in no particular one.
    pub fn iter(&self) -> impl Iterator<Item = (Element<'_>, Element<'_>)> {
        match &self.repr {
            Repr::Pack(pack) => OneOfTwo::A(packed_pairs(pack)),
            Repr::Table(pairs) => OneOfTwo::B(
                pairs.table.iter().map(|pair| (Element::Bytes(pair.field()), Element::Bytes(pair.value()))),
            ),
        }
    }

    /// A field chosen uniformly, and its value. Expected O(1); packed, O(n).
    pub fn random(&self, draw: impl FnMut() -> u64) -> Option<(Element<'_>, Element<'_>)> {
        if self.is_empty() {
            return None;
        }
        match &self.repr {
            Repr::Pack(pack) => {
                let at = pack.seek(2 * index_below(self.len(), draw))?;
                let (field, behind) = pack.get_and_next(at)?;
                Some((field, pack.get(behind)?))
            }
            Repr::Table(pairs) => {
                let pair = pairs.table.at(pairs.table.random(draw)?);
                Some((Element::Bytes(pair.field()), Element::Bytes(pair.value())))
            }
        }
    }

    /// Visits `count` distinct fields chosen uniformly, or all where there are no more. Expected
    /// O(count); packed, O(n).
    pub fn sample(
        &self,
        count: usize,
        mut draw: impl FnMut() -> u64,
        mut visit: impl FnMut(Element<'_>, Element<'_>),
    ) {
        match &self.repr {
            Repr::Table(pairs) => sample_table(&pairs.table, count, draw, |pair| {
                visit(Element::Bytes(pair.field()), Element::Bytes(pair.value()));
            }),
            Repr::Pack(pack) => {
                let mut selection = Selection::new(self.len(), count);
                let chosen = packed_pairs(pack).filter(|_| selection.next(&mut draw));
                chosen.for_each(|(field, value)| visit(field, value));
            }
        }
    }

    /// Visits some fields at `cursor` and gives the next cursor, 0 at the end; packed, all at once. What
    /// is there from the first call to the last is visited. O(1); packed, O(n).
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>, Element<'_>)) -> u64 {
        match &self.repr {
            Repr::Table(pairs) => pairs
                .table
                .scan(cursor, |pair| visit(Element::Bytes(pair.field()), Element::Bytes(pair.value()))),
            Repr::Pack(pack) => {
                packed_pairs(pack).for_each(|(field, value)| visit(field, value));
                0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const LIMITS: PackLimits = PackLimits { entries_max: 8, value_len_bytes_max: 10 };

    fn hasher() -> Hasher {
        Hasher::with_seed([1, 2, 3, 4])
    }

    fn text(element: Element<'_>) -> Vec<u8> {
        element.text(&mut IntText::new()).to_vec()
    }

    fn check(hash: &Hash, twin: &BTreeMap<Vec<u8>, Vec<u8>>) {
        let pairs: BTreeMap<_, _> = hash.iter().map(|(field, value)| (text(field), text(value))).collect();
        assert_eq!(&pairs, twin);
        assert_eq!(hash.len(), twin.len());
        let (mut scanned, mut cursor) = (BTreeMap::new(), 0);
        loop {
            cursor = hash.scan(cursor, |field, value| {
                scanned.insert(text(field), text(value));
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(&scanned, twin);
    }

    #[test]
    fn encoding_changes_beyond_the_limits() {
        let encoding_after = |fields: usize, field: &str, value: &str| {
            let mut hash = Hash::new();
            for i in 0..fields {
                hash.set(format!("f{i}").as_bytes(), b"v", &LIMITS, &hasher());
            }
            hash.set(field.as_bytes(), value.as_bytes(), &LIMITS, &hasher());
            hash.encoding_name()
        };
        assert_eq!(encoding_after(7, "x", "y"), "listpack");
        assert_eq!(encoding_after(8, "f1", "y"), "listpack");
        assert_eq!(encoding_after(8, "x", "y"), "hashtable");
        assert_eq!(encoding_after(0, "0123456789", "0123456789"), "listpack");
        assert_eq!(encoding_after(0, "0123456789a", ""), "hashtable");
        assert_eq!(encoding_after(0, "", "0123456789a"), "hashtable");
    }

    #[test]
    fn a_hundred_thousand_fields_and_values_of_16_bytes_take_at_most_61_bytes_each() {
        let mut hash = Hash::new();
        for i in 0..100_000 {
            let (field, value) = (format!("field:{i:010}"), format!("value:{i:010}"));
            assert!(hash.set(field.as_bytes(), value.as_bytes(), &LIMITS, &hasher()));
        }
        assert!(hash.memory_usage() <= 6_100_000, "{}", hash.memory_usage());
    }

    #[test]
    fn samples_are_distinct_and_complete() {
        for n in [1, 8, 100, 1000] {
            let mut hash = Hash::new();
            for i in 0..n {
                hash.set(format!("{i}").as_bytes(), b"v", &LIMITS, &hasher());
            }
            let mut state = 5_u64;
            let mut draw = move || {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                state ^ state >> 32
            };
            for count in [0, 1, n / 4, n / 2, n, n + 5] {
                let mut seen = BTreeSet::new();
                hash.sample(count, &mut draw, |field, _| assert!(seen.insert(text(field))));
                assert_eq!(seen.len(), count.min(n));
            }
            let (field, _) = hash.random(&mut draw).expect("it is not empty");
            assert!(hash.contains(&text(field), &hasher()));
        }
    }

    #[test]
    fn a_listpack_of_somebody_else_is_taken_if_its_fields_are_distinct() {
        let of = |elements: &[&str]| {
            let mut pack = Listpack::new();
            elements.iter().for_each(|text| pack.push_back(text.as_bytes()).expect("small"));
            Hash::from_listpack(pack, &LIMITS, &hasher())
        };
        let hash = of(&["a", "1", "1", "a"]).expect("two fields");
        check(&hash, &BTreeMap::from([(b"1".into(), b"a".into()), (b"a".into(), b"1".into())]));
        assert!(hash.as_listpack().is_some());
        assert_eq!(of(&["a", "1", "b"]).err(), Some(PackDefect::HalfPair));
        assert_eq!(of(&["a", "1", "b", "2", "a", "3"]).err(), Some(PackDefect::Duplicate));
        let many: Vec<String> = (0..18).map(|i| i.to_string()).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let hash = of(&many).expect("nine fields");
        assert_eq!((hash.len(), hash.encoding_name()), (9, "hashtable"));
    }

    fn bytes() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (0..20_i64).prop_map(|i| i.to_string().into_bytes()),
            1 => prop::collection::vec(any::<u8>(), 0..12),
        ]
    }

    proptest! {
        #[test]
        fn any_sequence_leaves_what_a_map_holds(
            steps in prop::collection::vec((0..8_u8, bytes(), bytes()), 0..200)
        ) {
            let (mut hash, mut twin) = (Hash::new(), BTreeMap::new());
            let hasher = hasher();
            for (kind, field, value) in steps {
                match kind {
                    0..=4 => {
                        let new = hash.set(&field, &value, &LIMITS, &hasher);
                        prop_assert_eq!(new, twin.insert(field, value).is_none());
                    }
                    5 => prop_assert_eq!(hash.remove(&field, &hasher), twin.remove(&field).is_some()),
                    _ => prop_assert_eq!(hash.get(&field, &hasher).map(text), twin.get(&field).cloned()),
                }
            }
            check(&hash, &twin);
            check(&hash.clone(), &twin);
        }
    }
}
