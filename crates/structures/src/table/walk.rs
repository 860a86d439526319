//! A snapshot's walk over a table in its state at one moment, while the table continues to change.
//!
//! ```text
//!   positions   0 ──────────── point ───────────────────────────► end
//!               visited          ahead: visited later, unless marked
//! ```
//! The walk visits elements in the order of their positions. Code that is about to change or remove
//! an element ahead of the walk *claims* it. If the element is not marked, it is still as it was at
//! the start. The claimer then keeps a copy for the walk, and the element gets a mark. An element
//! that is added ahead of the walk is marked, too. The walk skips marked elements and clears their
//! marks. Together with the copies, it therefore visits each element of the start once, in its
//! state of that moment. After the walk, no element is marked.
//!
//! The point is exact: growth, splits and merges of segments move elements among buckets, but do
//! not change their positions. If a bucket lies on both sides of the point, the walk compares
//! positions. There is one walk at a time; the walking code keeps the point.

use std::mem::ManuallyDrop;

use super::bucket::{ELEMENT, MARK, OVERFLOW, POINTER_MASK, SLOTS, TAG_SHIFT, address_of, pointer_of};
use super::{Borrowed, Occupied, Place, Table, Thin};
use crate::prefetch::prefetch_read;

/// A point in the order of positions that a snapshot's walk of a table has reached. Elements at
/// lower positions have been visited or skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalkPoint(u64);

impl WalkPoint {
    /// The point of a snapshot's walk before all elements of the table.
    pub const START: Self = Self(0);
    /// The point of a snapshot's walk after all elements of the table.
    pub const END: Self = Self(1 << POINT_BITS);

    /// Returns true if the snapshot's walk has not reached the element at this position yet.
    #[inline]
    pub fn is_before(self, position: u64) -> bool {
        position >> (64 - POINT_BITS) >= self.0
    }

    /// Returns the point of the snapshot's walk as a number that can be stored in an atomic.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// Converts a number that [`to_bits`](Self::to_bits) returned back to its point.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits.min(Self::END.0))
    }
}

/// The number of bits of a walk's point: a position without its last bits, like the cursors of
/// `Table::scan`.
const POINT_BITS: u32 = 48;
/// The number of buckets by which a snapshot's walk prefetches the memory of elements ahead.
const FETCHED_AHEAD_BUCKETS: usize = 2;

impl<E: Thin> Table<E> {
    /// Marks the element at `place` if it is ahead of the snapshot's walk at `point` and not marked
    /// yet. Returns true if this call marked it: the caller must then keep a copy for the walk
    /// before it changes the element. O(1).
    #[inline]
    pub fn claim(&mut self, place: Place, position: u64, point: WalkPoint) -> bool {
        point.is_before(position) && !self.is_marked(place) && {
            self.mark(place);
            true
        }
    }

    /// Marks the element that was just added at `place` if it is ahead of the snapshot's walk at
    /// `point`: the walk then skips it. O(1).
    #[inline]
    pub fn mark_added(&mut self, place: Place, position: u64, point: WalkPoint) {
        if point.is_before(position) {
            self.mark(place);
        }
    }

    /// Returns true if the element at `place` has the mark by which a snapshot's walk skips it.
    /// O(1).
    #[inline]
    pub fn is_marked(&self, place: Place) -> bool {
        self.word(place) & MARK != 0
    }

    fn mark(&mut self, place: Place) {
        let segment = &mut self.directory[place.segment];
        segment.buckets_mut()[place.slot.bucket].words[place.slot.slot] |= MARK;
    }

    /// Continues a snapshot's walk of the table from `point` to the edge of the next bucket. Calls
    /// `visit` with the unmarked elements, and clears the marks of the others. Returns the next
    /// point, [`WalkPoint::END`] after the last element. `visit` must not change deadlines.
    /// O(bucket).
    pub fn walk(
        &mut self,
        point: WalkPoint,
        position_of: &impl Fn(&[u8]) -> u64,
        mut visit: impl FnMut(&mut E),
    ) -> WalkPoint {
        if self.directory.is_empty() || point == WalkPoint::END {
            return WalkPoint::END;
        }
        let position = point.0 << (64 - POINT_BITS);
        let mut segment = self.directory[self.place_of(position)];
        let depth = u32::from(segment.depth());
        let prefix = if depth == 0 { 0 } else { position >> (64 - depth) };
        let (home, count) = (segment.home(segment.tag(position)), segment.bucket_count());
        // The base-2 logarithm of the number of points per tag.
        let tag_bits = POINT_BITS - 16 - depth;
        let is_ahead = |word: u64| {
            let start = (prefix << 16 | word >> TAG_SHIFT) << tag_bits;
            start >= point.0
                || (start + (1 << tag_bits) > point.0
                    && point.is_before(position_of(Borrowed::<E>::new(word).key())))
        };
        if let Some(bucket) = segment.buckets().get(home + FETCHED_AHEAD_BUCKETS) {
            for word in bucket.words.iter().filter(|&word| word & POINTER_MASK != 0) {
                prefetch_read(pointer_of(*word).as_ptr());
            }
        }
        let mut at = home;
        for _ in 0..count {
            for slot in 0..SLOTS {
                let word = segment.buckets()[at].words[slot];
                if word & POINTER_MASK == 0 || segment.home(word >> TAG_SHIFT) != home || !is_ahead(word) {
                    continue;
                }
                let here = &mut segment.buckets_mut()[at].words[slot];
                *here &= !MARK;
                if word & MARK == 0 {
                    // SAFETY: the table owns the word's element and is borrowed mutably; with
                    // `ManuallyDrop` the word stays its owner until the element is back in it.
                    let mut element = ManuallyDrop::new(unsafe { E::from_raw(pointer_of(word)) });
                    visit(&mut element);
                    let address = address_of(ManuallyDrop::into_inner(element).into_raw());
                    *here = *here & !POINTER_MASK | address;
                }
            }
            if segment.buckets()[at].words[0] & OVERFLOW == 0 {
                break;
            }
            at = (at + 1) % count;
        }
        let next_tag = ((home as u64 + 1) << 16).div_ceil(count as u64);
        WalkPoint(((prefix << 16) + next_tag) << tag_bits)
    }
}

impl<E: Thin> Occupied<'_, E> {
    /// Claims the element for a snapshot's walk like [`Table::claim`], but calls `keep` with it if
    /// a copy must be kept. `keep` must not change the deadlines.
    pub fn claim_with(&mut self, position: u64, point: WalkPoint, keep: impl FnOnce(&mut E)) {
        if !self.table.claim(self.place, position, point) {
            return;
        }
        // SAFETY: the word holds an element that the table owns and is borrowed mutably for; with
        // `ManuallyDrop` the word stays its owner until the element is back in it.
        let mut element = ManuallyDrop::new(unsafe { E::from_raw(pointer_of(self.word)) });
        keep(&mut element);
        let address = address_of(ManuallyDrop::into_inner(element).into_raw());
        self.word = self.word & !POINTER_MASK | address | MARK;
        let segment = &mut self.table.directory[self.place.segment];
        let here = &mut segment.buckets_mut()[self.place.slot.bucket].words[self.place.slot.slot];
        *here = *here & !POINTER_MASK | address;
    }
}

const _: () = assert!(ELEMENT & OVERFLOW == 0, "marks move with elements, overflow flags do not");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair::Pair;
    use std::collections::BTreeMap;

    fn mixed(number: u64) -> u64 {
        let x = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    fn position(key: &[u8]) -> u64 {
        mixed(key.iter().fold(7, |hash, &byte| mixed(hash ^ u64::from(byte))))
    }

    /// Returns a hash whose first eleven bits are zero. With such hashes for all keys, segments
    /// split as often as possible.
    fn crowded(key: &[u8]) -> u64 {
        position(key) >> 11
    }

    type Hash = fn(&[u8]) -> u64;
    type Twin = BTreeMap<Vec<u8>, Vec<u8>>;

    /// A table with a snapshot's walk in progress, with the visited elements and the kept copies.
    struct Walked {
        table: Table<Pair>,
        hash: Hash,
        point: WalkPoint,
        shown: Vec<(Vec<u8>, Vec<u8>)>,
    }

    impl Walked {
        fn walk_next(shown: &mut Vec<(Vec<u8>, Vec<u8>)>, pair: &Pair) {
            shown.push((pair.field().to_vec(), pair.value().to_vec()));
        }

        fn before_change(&mut self, place: Place, field: &[u8]) {
            if self.table.claim(place, (self.hash)(field), self.point) {
                Self::walk_next(&mut self.shown, &self.table.at(place));
            }
        }

        fn put(&mut self, field: &[u8], value: &[u8]) {
            let position = (self.hash)(field);
            if let Some(place) = self.table.find(position, field) {
                self.before_change(place, field);
                self.table.at_mut(place).set_value(value);
            } else {
                let place = self.table.insert(position, Pair::new(field, value, None), &self.hash);
                self.table.mark_added(place, position, self.point);
            }
        }

        fn remove(&mut self, field: &[u8]) {
            if let Some(place) = self.table.find((self.hash)(field), field) {
                self.before_change(place, field);
                self.table.remove(place);
            }
        }

        fn step(&mut self) {
            let shown = &mut self.shown;
            self.point = self.table.walk(self.point, &self.hash, |pair| Self::walk_next(shown, pair));
        }
    }

    #[test]
    fn a_walk_shows_each_element_once_as_it_was_and_leaves_no_mark() {
        for seed in 0..if cfg!(miri) { 4 } else { 300 } {
            let hash = if seed % 2 == 0 { position as Hash } else { crowded as Hash };
            let mut draws = (0u64..).map(|draw| mixed(seed << 32 | draw));
            let mut draw = |below: u64| draws.next().expect("endless") % below;
            let mut walked = Walked { table: Table::new(), hash, point: WalkPoint::END, shown: Vec::new() };
            let mut twin = Twin::new();
            for _ in 0..3 {
                let range = 1 + draw(if cfg!(miri) { 200 } else { 4_000 });
                let per_step = 1 + draw(40);
                // The number of removals among ten changes: for tables that grow, keep their size,
                // or shrink.
                let removals = draw(10);
                let at_start = twin.clone();
                (walked.point, walked.shown) = (WalkPoint::START, Vec::new());
                while walked.point != WalkPoint::END {
                    for _ in 0..draw(2 * per_step) {
                        let field = draw(range).to_string().into_bytes();
                        if draw(10) < removals {
                            walked.remove(&field);
                            twin.remove(&field);
                        } else {
                            let value = draw(1 << 40).to_string().into_bytes();
                            walked.put(&field, &value);
                            twin.insert(field, value);
                        }
                    }
                    walked.step();
                }
                assert_eq!(walked.shown.len(), at_start.len(), "seed {seed}: each once");
                let shown: Twin = std::mem::take(&mut walked.shown).into_iter().collect();
                assert!(shown == at_start, "seed {seed}: as it was");
                assert!(walked.table.len() == twin.len());
                for (field, value) in &twin {
                    let place = walked.table.find(hash(field), field).expect("the twin has it");
                    assert_eq!(walked.table.at(place).value(), &value[..]);
                    assert!(!walked.table.is_marked(place), "seed {seed}: a mark was left");
                }
            }
        }
    }

    #[test]
    fn a_copy_of_a_table_has_no_marks() {
        let mut table: Table<Pair> = Table::new();
        let place = table.insert(position(b"a"), Pair::new(b"a", b"1", None), &position);
        assert!(table.claim(place, position(b"a"), WalkPoint::START));
        assert!(!table.claim(place, position(b"a"), WalkPoint::START), "it was put aside before");
        let copy = table.clone();
        assert!(!copy.is_marked(copy.find(position(b"a"), b"a").expect("copied")));
    }
}
