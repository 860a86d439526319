//! The set type: integers are in an intset, few short strings in a listpack, all other sets in a
//! table.
//!
//! A set of integers stays sorted in one block until it grows beyond its limit or a string is
//! added. Few short strings are in one block, too. A larger set is a table ([`PackedSet`]) whose
//! buckets are small blocks of about eight members each. In a table, finding, adding, removing
//! and choosing at random are O(1). A table does not become a listpack or an intset again.

use crate::freeing::FreeingSteps;
use structures::intset::Intset;
use structures::listpack::Listpack;
use structures::listpack::element::{Element, IntText, parse_canonical_int};
use structures::packed_set::PackedSet;
use structures::walk_state::WalkState;

use crate::key::Hasher;
use crate::limits::SetLimits;
use crate::one_of::OneOf;
use crate::packed::PackDefect;
use crate::sample::{Selection, index_below, sample_packed};

/// A set of different strings, in one of three encodings. See the module's comment.
#[derive(Clone)]
pub struct Set {
    repr: Repr,
}

#[derive(Clone)]
enum Repr {
    Ints(Intset),
    Pack(Listpack),
    Table(Box<PackedSet>),
}

/// The structure in which a set is stored, for code that writes sets to files or to other servers.
#[derive(Clone, Copy, Debug)]
pub enum SetView<'a> {
    /// A set in the encoding `intset`.
    Ints(&'a Intset),
    /// A set in the encoding `listpack`.
    Pack(&'a Listpack),
    /// A set in the encoding `hashtable`: [`Set::iter`] returns the members.
    Table,
}

impl Default for Set {
    fn default() -> Self {
        Self { repr: Repr::Ints(Intset::new()) }
    }
}

impl std::fmt::Debug for Set {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Set({}, {} members)", self.encoding_name(), self.len())
    }
}

impl Set {
    /// Creates an empty set. One allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a set of the members in `pack`, which is not trusted. The set is packed unless
    /// `pack` has more members than `limits` allow. O(n log n).
    ///
    /// # Errors
    /// If a member occurs twice.
    pub fn from_listpack(pack: Listpack, limits: &SetLimits, hasher: &Hasher) -> Result<Self, PackDefect> {
        if !pack.are_distinct(0) {
            return Err(PackDefect::Duplicate);
        }
        let mut set = Self { repr: Repr::Pack(pack) };
        if !limits.pack.admit_count(set.len()) {
            set.spread(hasher);
        }
        Ok(set)
    }

    /// Creates a set of the members in `ints`. The set is a table if there are more members than
    /// `limits` allow. O(1), or O(n) for a table.
    pub fn from_intset(ints: Intset, limits: &SetLimits, hasher: &Hasher) -> Self {
        let mut set = Self { repr: Repr::Ints(ints) };
        if set.len() > limits.intset_entries_max {
            set.spread(hasher);
        }
        set
    }

    /// Returns the structure of the set: its intset, its listpack or a table. O(1).
    pub fn view(&self) -> SetView<'_> {
        match &self.repr {
            Repr::Ints(ints) => SetView::Ints(ints),
            Repr::Pack(pack) => SetView::Pack(pack),
            Repr::Table(_) => SetView::Table,
        }
    }

    /// Returns the number of members. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        match &self.repr {
            Repr::Ints(ints) => ints.len(),
            Repr::Pack(pack) => pack.len(),
            Repr::Table(members) => members.len(),
        }
    }

    /// Returns true if there are no members. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Starts loading the bucket that a search for a member with this hash reads first. Does
    /// nothing for a packed set. O(1).
    #[inline]
    pub fn prefetch_bucket(&self, member_hash: u64) {
        if let Repr::Table(members) = &self.repr {
            members.prefetch_bucket(member_hash);
        }
    }

    /// Starts loading the members among which one with this hash would be. For use after
    /// [`prefetch_bucket`](Self::prefetch_bucket) has loaded its bucket. O(1).
    #[inline]
    pub fn prefetch_member(&self, member_hash: u64) {
        if let Repr::Table(members) = &self.repr {
            members.prefetch_block(member_hash);
        }
    }

    /// Returns the name of the set's encoding for OBJECT ENCODING.
    pub fn encoding_name(&self) -> &'static str {
        match &self.repr {
            Repr::Ints(_) => "intset",
            Repr::Pack(_) => "listpack",
            Repr::Table(_) => "hashtable",
        }
    }

    /// Returns the approximate bytes that the set owns outside its key's block. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match &self.repr {
            Repr::Ints(ints) => ints.len_bytes(),
            Repr::Pack(pack) => pack.len_bytes(),
            Repr::Table(members) => members.memory_usage(),
        }
    }

    /// Returns the bytes that the set owns outside its key's block. O(1).
    pub fn memory_usage(&self) -> usize {
        match &self.repr {
            Repr::Ints(ints) => ints.memory_usage(),
            Repr::Pack(pack) => pack.memory_usage(),
            Repr::Table(members) => size_of::<PackedSet>() + members.memory_usage(),
        }
    }

    /// Converts the set to an iterator that frees about eight members in each step; a packed set
    /// takes one step. O(1).
    pub fn into_freed(self) -> FreeingSteps {
        match self.repr {
            Repr::Table(members) => Box::new(members.into_freed()),
            small => Box::new(std::iter::once(small).map(drop)),
        }
    }

    /// Returns true if the set is a table. O(1).
    pub(crate) fn is_table(&self) -> bool {
        matches!(self.repr, Repr::Table(_))
    }

    /// Starts a snapshot's walk of the present state of a table, whose members [`Set::walk_next`]
    /// visits. Does nothing for a packed set. O(1).
    pub(crate) fn begin_walk(&mut self, walk_state: WalkState) {
        if let Repr::Table(members) = &mut self.repr {
            members.begin(walk_state);
        }
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the set;
    /// `None` if there is none. O(1).
    pub(crate) fn ticket(&self) -> Option<u32> {
        if let Repr::Table(members) = &self.repr { members.ticket() } else { None }
    }

    /// Visits about the next `members_max` members of the snapshot's walk that [`Set::begin_walk`]
    /// started. Returns true if there are more.
    pub(crate) fn walk_next(&mut self, members_max: usize, mut visit: impl FnMut(Element<'_>)) -> bool {
        let Repr::Table(members) = &mut self.repr else { return false };
        members.walk_next(members_max, |member| visit(Element::Bytes(member)))
    }

    /// Returns true if `member` is in the set. O(1); packed, O(bytes).
    pub fn contains(&self, member: &[u8], hasher: &Hasher) -> bool {
        match &self.repr {
            Repr::Ints(ints) => parse_canonical_int(member).is_some_and(|value| ints.contains(value)),
            Repr::Pack(pack) => pack.first().is_some_and(|first| pack.find(first, member, 0).is_some()),
            Repr::Table(members) => members.find(hasher.hash_member(member), member).is_some(),
        }
    }

    /// Prepares for adding `count` members, the first of which is `first`. Chooses the encoding of
    /// an empty set. Converts a packed set to a table if `count` alone exceeds the limit. O(n) if
    /// the encoding changes.
    pub fn expect(&mut self, count: usize, first: &[u8], limits: &SetLimits, hasher: &Hasher) {
        let spread = match &self.repr {
            Repr::Ints(ints) if ints.is_empty() => {
                if count <= limits.intset_entries_max && parse_canonical_int(first).is_some() {
                    return;
                }
                self.repr = Repr::Pack(Listpack::new());
                !limits.pack.admit_count(count)
            }
            Repr::Ints(_) => count > limits.intset_entries_max,
            Repr::Pack(_) => !limits.pack.admit_count(count),
            Repr::Table(_) => false,
        };
        if spread {
            self.spread(hasher);
        }
    }

    /// Adds `member`. Returns false if it was already in the set. O(1) amortised; packed, O(bytes).
    #[inline]
    pub fn add(&mut self, member: &[u8], limits: &SetLimits, hasher: &Hasher) -> bool {
        match &mut self.repr {
            Repr::Table(members) => add_to_table(members, member, hasher),
            Repr::Ints(_) => self.add_to_ints(member, limits, hasher),
            Repr::Pack(_) => self.add_to_pack(member, limits, hasher),
        }
    }

    fn add_to_ints(&mut self, member: &[u8], limits: &SetLimits, hasher: &Hasher) -> bool {
        let Repr::Ints(ints) = &mut self.repr else { unreachable!("the caller looked") };
        if let Some(value) = parse_canonical_int(member)
            && let Ok(added) = ints.insert(value)
        {
            if ints.len() > limits.intset_entries_max {
                self.spread(hasher);
            }
            return added;
        }
        let longest =
            [ints.min(), ints.max()].into_iter().flatten().map(|value| Element::Int(value).text_len_bytes());
        let longest = longest.chain([member.len()]).max().unwrap_or_default();
        let packs = ints.len() < limits.pack.entries_max && longest <= limits.pack.value_len_bytes_max;
        let mut pack = Listpack::new();
        if packs && ints.iter().all(|value| pack.push_back(value).is_ok()) {
            self.repr = Repr::Pack(pack);
        } else {
            self.spread(hasher);
        }
        self.add(member, limits, hasher)
    }

    fn add_to_pack(&mut self, member: &[u8], limits: &SetLimits, hasher: &Hasher) -> bool {
        let Repr::Pack(pack) = &mut self.repr else { unreachable!("the caller looked") };
        if pack.first().is_some_and(|first| pack.find(first, member, 0).is_some()) {
            return false;
        }
        let packs = limits.pack.admit_count(pack.len() + 1) && limits.pack.admit(member);
        if packs && pack.push_back(member).is_ok() {
            return true;
        }
        self.spread(hasher);
        self.add(member, limits, hasher)
    }

    /// Converts the set to a table. O(n).
    fn spread(&mut self, hasher: &Hasher) {
        let mut members = Box::<PackedSet>::default();
        for member in self.iter() {
            add_to_table(&mut members, member.text(&mut IntText::new()), hasher);
        }
        self.repr = Repr::Table(members);
    }

    /// Removes `member`. Returns false if it was not in the set. O(1) amortised; packed, O(bytes).
    pub fn remove(&mut self, member: &[u8], hasher: &Hasher) -> bool {
        match &mut self.repr {
            Repr::Ints(ints) => parse_canonical_int(member).is_some_and(|value| ints.remove(value)),
            Repr::Pack(pack) => {
                let found = pack.first().and_then(|first| pack.find(first, member, 0));
                found.inspect(|&cursor| pack.delete(cursor)).is_some()
            }
            Repr::Table(members) => {
                let place = members.find(hasher.hash_member(member), member);
                place.inspect(|&place| members.remove(place)).is_some()
            }
        }
    }

    /// Returns all members, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = Element<'_>> {
        match &self.repr {
            Repr::Ints(ints) => OneOf::A(ints.iter().map(Element::Int)),
            Repr::Pack(pack) => OneOf::B(pack.iter()),
            Repr::Table(members) => OneOf::C(members.iter().map(Element::Bytes)),
        }
    }

    /// Draws a member uniformly. Returns `None` if the set is empty. Expected O(1); packed, O(n).
    pub fn random(&self, draw: impl FnMut() -> u64) -> Option<Element<'_>> {
        if self.is_empty() {
            return None;
        }
        match &self.repr {
            Repr::Ints(ints) => ints.get(index_below(ints.len(), draw)).map(Element::Int),
            Repr::Pack(pack) => pack.at_index(index_below(pack.len(), draw)),
            Repr::Table(members) => {
                let place = members.random(draw)?;
                Some(Element::Bytes(members.at(place)))
            }
        }
    }

    /// Visits `count` distinct members chosen uniformly, or all members if there are no more than
    /// `count`. Expected O(count); packed, O(n).
    pub fn sample(&self, count: usize, mut draw: impl FnMut() -> u64, mut visit: impl FnMut(Element<'_>)) {
        if let Repr::Table(members) = &self.repr {
            sample_packed(members, count, draw, |member| visit(Element::Bytes(member)));
            return;
        }
        let mut selection = Selection::new(self.len(), count);
        self.iter().filter(|_| selection.next(&mut draw)).for_each(visit);
    }

    /// Removes a member chosen uniformly, after calling `visit` with it. Returns the result of
    /// `visit`; `None` if the set is empty. Expected O(1); packed, O(n).
    pub fn take_random<T>(
        &mut self,
        draw: impl FnMut() -> u64,
        visit: impl FnOnce(Element<'_>) -> T,
    ) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        match &mut self.repr {
            Repr::Ints(ints) => {
                let value = ints.remove_at(index_below(ints.len(), draw))?;
                Some(visit(Element::Int(value)))
            }
            Repr::Pack(pack) => {
                let cursor = pack.seek(index_below(pack.len(), draw))?;
                let result = visit(pack.get(cursor)?);
                pack.delete(cursor);
                Some(result)
            }
            Repr::Table(members) => {
                let place = members.random(draw)?;
                let result = visit(Element::Bytes(members.at(place)));
                members.remove(place);
                Some(result)
            }
        }
    }

    /// Visits the members at `cursor`. Returns the next cursor, 0 at the end. A packed set is
    /// visited in one call. Members that exist from the first call to the last are visited. O(1);
    /// packed, O(n).
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(Element<'_>)) -> u64 {
        match &self.repr {
            Repr::Table(members) => members.scan(cursor, |member| visit(Element::Bytes(member))),
            Repr::Ints(_) | Repr::Pack(_) => {
                self.iter().for_each(visit);
                0
            }
        }
    }
}

/// Adds `member` to a table. Returns false if it was already in the set. O(1).
#[inline]
fn add_to_table(members: &mut PackedSet, member: &[u8], hasher: &Hasher) -> bool {
    let position = hasher.hash_member(member);
    members.insert(position, member, &|member: &[u8]| hasher.hash_member(member))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::PackLimits;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const LIMITS: SetLimits =
        SetLimits { intset_entries_max: 16, pack: PackLimits { entries_max: 8, value_len_bytes_max: 10 } };

    fn hasher() -> Hasher {
        Hasher::with_seed([1, 2, 3, 4])
    }

    fn text(element: Element<'_>) -> Vec<u8> {
        element.text(&mut IntText::new()).to_vec()
    }

    fn add_all<'a>(members: impl IntoIterator<Item = &'a str>) -> Set {
        let mut set = Set::new();
        for member in members {
            set.add(member.as_bytes(), &LIMITS, &hasher());
        }
        set
    }

    fn check(set: &Set, twin: &BTreeSet<Vec<u8>>) {
        let mut members: Vec<Vec<u8>> = set.iter().map(text).collect();
        members.sort();
        assert!(members.iter().eq(twin));
        assert_eq!(set.len(), twin.len());
        let mut scanned = BTreeSet::new();
        let mut cursor = 0;
        loop {
            cursor = set.scan(cursor, |member| {
                scanned.insert(text(member));
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(&scanned, twin);
    }

    #[test]
    fn encodings_change_where_redis_changes_them() {
        let ints: Vec<String> = (0..17).map(|i| i.to_string()).collect();
        let ints = |n: usize| ints.iter().map(String::as_str).take(n);
        assert_eq!(add_all(ints(16)).encoding_name(), "intset");
        assert_eq!(add_all(ints(17)).encoding_name(), "hashtable");
        assert_eq!(add_all(ints(7).chain(["a"])).encoding_name(), "listpack");
        assert_eq!(add_all(ints(8).chain(["a"])).encoding_name(), "hashtable");
        assert_eq!(add_all(["-12345678901", "a"]).encoding_name(), "hashtable");
        assert_eq!(add_all(["a"].into_iter().chain(ints(7))).encoding_name(), "listpack");
        assert_eq!(add_all(["a"].into_iter().chain(ints(8))).encoding_name(), "hashtable");
        assert_eq!(add_all(["0123456789"]).encoding_name(), "listpack");
        assert_eq!(add_all(["0123456789a"]).encoding_name(), "hashtable");
    }

    #[test]
    fn samples_are_distinct_and_complete() {
        for n in [3, 7, 16, 100, 1000] {
            let names: Vec<String> =
                (0..n).map(|i| format!("{}{i}", if n == 7 { "m" } else { "" })).collect();
            let set = add_all(names.iter().map(String::as_str));
            let mut state = 5_u64;
            let mut draw = move || {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
                state ^ state >> 32
            };
            for count in [0, 1, n / 4, n / 2, n, n + 5] {
                let mut seen = BTreeSet::new();
                set.sample(count, &mut draw, |member| assert!(seen.insert(text(member))));
                assert_eq!(seen.len(), count.min(n));
            }
            assert!(set.random(&mut draw).is_some_and(|member| set.contains(&text(member), &hasher())));
        }
    }

    #[test]
    fn a_hundred_thousand_members_of_17_bytes_take_at_most_23_bytes_each() {
        let mut set = Set::new();
        for i in 0..100_000 {
            assert!(set.add(format!("member:{i:010}").as_bytes(), &LIMITS, &hasher()));
        }
        assert!(set.memory_usage() <= 2_300_000, "{}", set.memory_usage());
    }

    #[test]
    fn packs_of_somebody_else_are_taken_if_their_members_are_distinct() {
        let of = |members: &[&str]| {
            let mut pack = Listpack::new();
            members.iter().for_each(|text| pack.push_back(text.as_bytes()).expect("small"));
            Set::from_listpack(pack, &LIMITS, &hasher())
        };
        check(&of(&["b", "1"]).expect("distinct"), &BTreeSet::from([b"b".into(), b"1".into()]));
        assert_eq!(of(&["b", "1", "b"]).err(), Some(PackDefect::Duplicate));
        let nine = ["a", "b", "c", "d", "e", "f", "g", "h", "i"];
        assert_eq!(of(&nine[..8]).map(|set| set.encoding_name()), Ok("listpack"));
        assert_eq!(of(&nine).map(|set| set.encoding_name()), Ok("hashtable"));
        // One element stores `5` as a string, the other one as an integer.
        let twice = b"\x0c\0\0\0\x02\0\x815\x02\x05\x01\xff";
        let twice = Listpack::from_bytes(twice.as_slice().into()).expect("it is a valid listpack");
        assert_eq!(Set::from_listpack(twice, &LIMITS, &hasher()).err(), Some(PackDefect::Duplicate));

        let ints = |n: i64| {
            let mut ints = Intset::new();
            (0..n).for_each(|value| assert_eq!(ints.insert(value), Ok(true)));
            Set::from_intset(ints, &LIMITS, &hasher())
        };
        assert!(matches!(ints(16).view(), SetView::Ints(ints) if ints.len() == 16));
        assert!(matches!(ints(17).view(), SetView::Table));
    }

    fn member() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (-40_i64..40).prop_map(|i| i.to_string().into_bytes()),
            2 => any::<i64>().prop_map(|i| i.to_string().into_bytes()),
            1 => prop::collection::vec(any::<u8>(), 0..12),
        ]
    }

    proptest! {
        #[test]
        fn any_sequence_leaves_what_a_naive_set_holds(
            steps in prop::collection::vec((0..8_u8, member()), 0..200), draws in any::<u64>()
        ) {
            let (mut set, mut twin) = (Set::new(), BTreeSet::new());
            let hasher = hasher();
            let mut state = draws;
            let mut draw = || {
                state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                state ^ state >> 32
            };
            for (kind, member) in steps {
                match kind {
                    0..=4 => prop_assert_eq!(set.add(&member, &LIMITS, &hasher), twin.insert(member)),
                    5 => prop_assert_eq!(set.remove(&member, &hasher), twin.remove(&member)),
                    6 => prop_assert_eq!(set.contains(&member, &hasher), twin.contains(&member)),
                    _ => match set.take_random(&mut draw, text) {
                        Some(taken) => prop_assert!(twin.remove(&taken)),
                        None => prop_assert!(twin.is_empty()),
                    },
                }
            }
            check(&set, &twin);
            check(&set.clone(), &twin);
        }
    }
}
