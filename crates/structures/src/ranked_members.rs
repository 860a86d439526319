//! Members with scores, found by name and by rank: a table that owns them and a tree that orders
//! them.
//!
//! ```text
//!   Table<Member<f64>>  ──►  [score f64][len][bytes]  ◄──  RankTree of addresses
//! ```
//! A member is one allocation. The table owns it, and the tree stores only its address. Finding a
//! score is one table lookup; the tree does all operations on the order. Neither structure copies
//! names or scores, except that inner nodes of the tree store the score of each child's first
//! member.
//!
//! Invariant: table and tree hold the same members. An address is removed from the tree before its
//! member is freed or changes its place in the order. It is added to the tree after the member has
//! its final score. The addresses in the tree can therefore always be read. Only this file must
//! uphold this.
//!
//! The caller computes the positions (hashes of names), as for [`Table`]. Memory: the members (a
//! block of 32 bytes for a name of up to 23), 10 to 13 bytes each for the table, 9 to 13 for the
//! tree.

use std::cmp::Ordering;
use std::ops::Range;
use std::ptr::NonNull;

use crate::member::Member;
use crate::prefetch::prefetch_read;
use crate::rank_tree::{Item, Items, RankTree};
use crate::table::Place;
use crate::table::walked::WalkedTable;
use crate::walk_state::WalkState;

/// The address of a member of a sorted set that the table owns.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Address(NonNull<u8>);

// SAFETY: an address is read only through the `RankedMembers` that owns the
// member, under its borrow.
unsafe impl Send for Address {}
// SAFETY: as above; shared, only reading is possible.
unsafe impl Sync for Address {}

impl Item for Address {
    const VACANT: Self = Address(NonNull::dangling());

    #[inline]
    fn score(&self) -> f64 {
        // SAFETY: the module's invariant: an address the tree holds, or is
        // given, is a live member's.
        unsafe { Member::<f64>::payload_of(self.0) }
    }

    #[inline]
    fn member(&self) -> &[u8] {
        // SAFETY: as above; the member outlives the address' stay in the tree,
        // and bytes never change.
        unsafe { Member::<f64>::bytes_of(self.0) }
    }

    #[inline]
    fn prefetch(&self) {
        prefetch_read(self.0.as_ptr());
    }
}

/// A member of a sorted set with its score, as passed to the closure of a search.
#[derive(Clone, Copy)]
pub struct Ranked<'a> {
    score: f64,
    address: &'a Address,
}

impl<'a> Ranked<'a> {
    /// Returns the score of the member, without reading the member's memory. O(1).
    #[inline]
    pub fn score(&self) -> f64 {
        self.score
    }

    /// Returns the name of the member. O(1).
    #[inline]
    pub fn member(&self) -> &'a [u8] {
        self.address.member()
    }
}

/// A set of members with scores, found by name and by rank. See the module's comment.
#[derive(Default)]
pub struct RankedMembers {
    table: WalkedTable<Member<f64>>,
    tree: RankTree<Address>,
    members_len_bytes: usize,
}

/// The mean number of bytes that a member takes in the rank tree.
const TREE_LEN_BYTES_MEAN: usize = 10;

impl RankedMembers {
    /// Creates an empty set of members with scores. One allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of members of the set. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if the set has no members. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Converts the set to an iterator that frees one node of the tree or one member in each step.
    /// O(1). The tree comes first, because its addresses point into the members.
    pub fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        self.tree.into_freed().chain(self.table.into_table().into_drain().map(drop))
    }

    /// Starts a snapshot's walk, which reads the set's present state while the set changes;
    /// [`RankedMembers::walk_next`] visits its members. O(1).
    pub fn begin_walk(&mut self, walk_state: WalkState) {
        self.table.begin(walk_state);
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the set;
    /// `None` if there is none. O(1).
    pub fn ticket(&self) -> Option<u32> {
        self.table.ticket()
    }

    /// Visits about `members_max` further members with their scores, in any order, for a snapshot.
    /// Returns true if there are more members.
    pub fn walk_next(&mut self, members_max: usize, mut visit: impl FnMut(&[u8], f64)) -> bool {
        self.table.walk_next(members_max, |member| visit(member.bytes(), member.payload()))
    }

    /// Returns the memory in bytes of the set's members, table and tree. Uses mean sizes for table
    /// and tree. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.members_len_bytes + self.table.len_bytes_mean() + self.len() * TREE_LEN_BYTES_MEAN
    }

    /// Returns the memory in bytes of the set's members, table and tree; an estimate if they are
    /// many. O(n / 60) up to a bound.
    pub fn memory_usage(&self) -> usize {
        self.members_len_bytes + self.table.memory_usage() + self.tree.memory_usage()
    }

    /// Starts loading the table's bucket for `position` (the hash of a name) into the cache. O(1).
    #[inline]
    pub fn prefetch_bucket(&self, position: u64) {
        self.table.prefetch_bucket(position);
    }

    /// Starts loading the members that may have this position, up to the end of a name of
    /// `len_bytes`. O(1), reads one bucket.
    #[inline]
    pub fn prefetch_member(&self, position: u64, len_bytes: usize) {
        self.table.prefetch_element(position, len_bytes);
    }

    /// Returns the place of a member in the table; `None` if it is not in the set. The place is
    /// valid until members are added or removed. O(1).
    #[inline]
    pub fn find(&self, position: u64, member: &[u8]) -> Option<Place> {
        self.table.find(position, member)
    }

    /// Returns the score of the member at `place`. O(1).
    #[inline]
    pub fn score_at(&self, place: Place) -> f64 {
        self.table.at(place).payload()
    }

    /// Changes the score of the member at `place`. O(log n).
    ///
    /// # Panics
    /// If the score is NaN, as in every method that takes one.
    pub fn set_score_at(&mut self, place: Place, score: f64) {
        assert!(!score.is_nan(), "a score is a number");
        let member = self.table.at(place);
        let (old, bytes, address) = (member.payload(), member.bytes(), Address(member.address()));
        let stays = self.tree.neighbours(old, bytes).is_some_and(|(before, behind)| {
            order((before.score(), before.member()), (score, bytes)).is_lt()
                && order((score, bytes), (behind.score(), behind.member())).is_lt()
        });
        if stays {
            // Inner nodes store scores only for the first items of leaves, and this is not one of
            // them.
            self.table.at_mut(place).set_payload(score);
            return;
        }
        let removed = self.tree.remove(old, bytes);
        assert!(removed == Some(address), "the tree holds what the table holds");
        self.table.at_mut(place).set_payload(score);
        self.tree.insert(address);
    }

    /// Adds a member to the set, which must not have it yet. `position_of` is used as by
    /// [`Table::insert`]. O(log n).
    pub fn insert(&mut self, position: u64, member: &[u8], score: f64, position_of: &impl Fn(&[u8]) -> u64) {
        assert!(!score.is_nan(), "a score is a number");
        let member = Member::new(member, score);
        let address = Address(member.address());
        self.members_len_bytes += member.block_len_bytes();
        self.table.insert(position, member, position_of);
        self.tree.insert(address);
    }

    /// Removes the member at `place` from the set and returns it. O(log n).
    pub fn remove(&mut self, place: Place) -> Member<f64> {
        let member = self.table.at(place);
        let removed = self.tree.remove(member.payload(), member.bytes());
        assert!(removed == Some(Address(member.address())), "the tree holds what the table holds");
        self.take(place)
    }

    /// Removes the member at `rank` from the set and returns it; `None` if there is no such rank.
    /// O(log n).
    pub fn remove_at(&mut self, rank: usize, position_of: &impl Fn(&[u8]) -> u64) -> Option<Member<f64>> {
        let address = self.tree.remove_at(rank)?;
        let place = self.table.find(position_of(address.member()), address.member());
        Some(self.take(place.expect("the table holds what the tree holds")))
    }

    /// Removes the member at `place` from the table and returns it. The caller has removed it from
    /// the tree already.
    fn take(&mut self, place: Place) -> Member<f64> {
        let member = self.table.remove(place);
        self.members_len_bytes -= member.block_len_bytes();
        member
    }

    /// Returns the rank of the member at `place`: the number of members before it. O(log n).
    pub fn rank(&self, place: Place) -> usize {
        let member = self.table.at(place);
        self.tree.rank(member.payload(), member.bytes())
    }

    /// Returns the member at `rank` with its score; `None` if there is no such rank. O(log n).
    pub fn at_rank(&self, rank: usize) -> Option<(&[u8], f64)> {
        self.range(rank..rank + 1).next()
    }

    /// Returns the number of members for which `before` is true. `before` must be true exactly for
    /// a prefix of the order. O(log n).
    pub fn partition_point(&self, mut before: impl FnMut(Ranked<'_>) -> bool) -> usize {
        self.tree.partition_point(|score, address| before(Ranked { score, address }))
    }

    /// Returns a double-ended iterator over the members and scores of a range of ranks. O(log n) to
    /// begin, then O(1) a member.
    pub fn range(&self, ranks: Range<usize>) -> RankedRange<'_> {
        RankedRange { items: self.tree.range(ranks) }
    }

    /// Draws a member uniformly, with random numbers from `draw`; `None` if the set is empty.
    /// Expected O(1).
    pub fn random(&self, draw: impl FnMut() -> u64) -> Option<(&[u8], f64)> {
        let member = self.table.at(self.table.random(draw)?);
        Some((member.bytes(), member.payload()))
    }

    /// Visits the members, with their scores, of the table's bucket at `cursor`. Returns the next
    /// cursor, 0 at the end: see [`Table::scan`]. O(bucket).
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&[u8], f64)) -> u64 {
        self.table.scan(cursor, |member| visit(member.bytes(), member.payload()))
    }
}

impl Clone for RankedMembers {
    /// Copies the members and their scores, but not a snapshot's walk in progress. O(n log n).
    fn clone(&self) -> Self {
        let table = self.table.clone();
        let mut addresses: Vec<Address> = table.iter().map(|member| Address(member.address())).collect();
        addresses.sort_unstable_by(|a, b| order((a.score(), a.member()), (b.score(), b.member())));
        let mut tree = RankTree::new();
        addresses.into_iter().for_each(|address| tree.insert(address));
        Self { table, tree, members_len_bytes: self.members_len_bytes }
    }
}

/// A double-ended iterator over the members and scores of a range of ranks.
pub struct RankedRange<'a> {
    items: Items<'a, Address>,
}

/// Borrows the name and reads the score of the member at an address from the tree.
#[inline]
fn read<'a>(address: Address) -> (&'a [u8], f64) {
    // SAFETY: `RankedRange` gives this out for as long as it borrows the owner of tree and member.
    (unsafe { Member::<f64>::bytes_of(address.0) }, address.score())
}

impl<'a> Iterator for RankedRange<'a> {
    type Item = (&'a [u8], f64);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.items.next().map(read)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }
}

impl DoubleEndedIterator for RankedRange<'_> {
    #[inline]
    fn next_back(&mut self) -> Option<Self::Item> {
        self.items.next_back().map(read)
    }
}

impl ExactSizeIterator for RankedRange<'_> {}

/// Compares two members by score, then by name. For naive twins and for small sets.
#[inline]
pub fn order(a: (f64, &[u8]), b: (f64, &[u8])) -> Ordering {
    a.0.partial_cmp(&b.0).expect("a score is a number").then_with(|| a.1.cmp(b.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn position_of(member: &[u8]) -> u64 {
        member.iter().fold(7, |hash: u64, &byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31)
        })
    }

    fn set(members: &mut RankedMembers, member: &[u8], score: f64) {
        match members.find(position_of(member), member) {
            Some(place) => members.set_score_at(place, score),
            None => members.insert(position_of(member), member, score, &position_of),
        }
    }

    fn check(members: &RankedMembers, twin: &BTreeMap<Vec<u8>, f64>) {
        let mut sorted: Vec<(&[u8], f64)> = twin.iter().map(|(name, &score)| (&name[..], score)).collect();
        sorted.sort_by(|a, b| order((a.1, a.0), (b.1, b.0)));
        assert_eq!(members.len(), twin.len());
        assert!(members.range(0..usize::MAX).eq(sorted.iter().copied()));
        for (rank, &(name, score)) in sorted.iter().enumerate() {
            let place = members.find(position_of(name), name).expect("the twin has it");
            assert_eq!((members.rank(place), members.score_at(place)), (rank, score));
        }
    }

    #[test]
    fn a_hundred_thousand_members_of_17_bytes_take_at_most_57_bytes_each() {
        let mut members = RankedMembers::new();
        for i in 0..100_000_u64 {
            let name = format!("member:{:010}", i);
            set(&mut members, name.as_bytes(), (i * 7919 % 1_000_003) as f64);
        }
        assert!(members.memory_usage() <= 5_700_000, "{}", members.memory_usage());
    }

    #[test]
    fn a_score_that_is_no_number_is_refused_and_breaks_nothing() {
        let mut members = RankedMembers::new();
        set(&mut members, b"a", 1.0);
        let attempt = std::panic::AssertUnwindSafe(|| set(&mut members, b"a", f64::NAN));
        assert!(std::panic::catch_unwind(attempt).is_err());
        check(&members, &BTreeMap::from([(b"a".to_vec(), 1.0)]));
    }

    #[test]
    fn a_scan_visits_all() {
        let mut members = RankedMembers::new();
        let mut twin = BTreeMap::new();
        for i in 0..3000 {
            set(&mut members, &[i as u8, (i >> 8) as u8], f64::from(i));
            twin.insert(vec![i as u8, (i >> 8) as u8], f64::from(i));
        }
        let (mut seen, mut cursor) = (BTreeMap::new(), 0);
        loop {
            cursor = members.scan(cursor, |name, score| {
                seen.insert(name.to_vec(), score);
            });
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen, twin);
    }

    proptest! {
        #[test]
        fn any_sequence_leaves_what_a_map_holds(
            steps in prop::collection::vec((0..8_u8, 0..500_u16, -3..3_i8), 0..1500)
        ) {
            let (mut members, mut twin) = (RankedMembers::new(), BTreeMap::new());
            for (kind, number, score) in steps {
                let name = number.to_string().into_bytes();
                match kind {
                    0..=4 => {
                        set(&mut members, &name, f64::from(score));
                        twin.insert(name, f64::from(score));
                    }
                    5..=6 => {
                        let place = members.find(position_of(&name), &name);
                        let removed = place.map(|place| members.remove(place).payload());
                        prop_assert_eq!(removed, twin.remove(&name));
                    }
                    _ => {
                        if let Some(member) = members.remove_at(usize::from(number) / 4, &position_of) {
                            prop_assert_eq!(twin.remove(member.bytes()), Some(member.payload()));
                        }
                    }
                }
            }
            check(&members, &twin);
            check(&members.clone(), &twin);
            let zero = twin.values().filter(|score| **score < 0.0).count();
            prop_assert_eq!(members.partition_point(|ranked| ranked.score() < 0.0), zero);
        }
    }
}
