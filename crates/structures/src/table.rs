//! A hash table of thin pointers, one cache line per bucket, that grows a segment at a time.
//!
//! ```text
//!  position (64 bits of hash, most significant first)
//!  [depth bits: which segment][16 bits: tag][rest unused]
//!
//!  directory                    segment: 1..=63 buckets        bucket: 8 words = 64 bytes
//!  [seg][seg][seg][seg] …  ──►  [bucket][bucket][bucket] …     [w][w][w][w][w][w][w][w]
//!                                                               └ tag 16 | pointer 44 | flags 4
//! ```
//! - The top bits of an element's position select its segment (extendible hashing). The directory
//!   doubles when a segment at full depth splits. A shallower segment is in several directory
//!   places; the first of them has its counters.
//! - The 16 bits below are its tag. The tag gives the home bucket (`tag * buckets >> 16`, so
//!   buckets are in hash order for any number of them). It also distinguishes elements before their
//!   memory is read.
//! - A full bucket overflows into the next one of the segment and sets a flag. Removal moves an
//!   overflowed element back: the flag is set exactly when an element is stored past that bucket.
//! - A segment grows by a quarter, from one bucket to 63, without reading its elements (the tag is
//!   enough). Then it splits in two, which reads them. No operation does more work than one segment
//!   needs, except that the directory (16 bytes per few hundred elements) is copied when it doubles
//!   or halves.
//!
//! Because everything is in hash order, a scan cursor is a point of the hash space. All elements
//! below it were returned, even if segments grew, split, shrank or merged: SCAN's guarantee.
//!
//! Elements may have a deadline, and so may parts of them (fields of a hash). Flags in a word mark
//! these elements. Each segment keeps a lower bound of its earliest deadline of either kind. A
//! sweep therefore skips a segment with nothing due at the cost of one load.
//!
//! A word may also be marked: a walk of the table's state at one moment skips such an element
//! ([`walk`]).
//!
//! Memory: 8 bytes per element at 63–81 % fill, so 10–13 bytes. Cost of a lookup: one directory
//! word, one bucket line, the element itself. Sources: Fagin et al., "Extendible Hashing" (1979);
//! the tagged one-line bucket is common to several published tables (Dash, F14, Swiss tables).

mod borrowed;
mod bucket;
mod deadlines;
mod drain;
mod due;
mod relocate;
mod sample;
mod segment;
mod thin;
mod walk;
pub mod walked;

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::prefetch::prefetch_read;
pub use borrowed::{Borrowed, BorrowedMut, Occupied};
use bucket::{
    Bucket, DEADLINE, DUE_FLAGS, ELEMENT, MARK, POINTER_MASK, SLOTS, TAG_SHIFT, address_of, pointer_of,
};
use deadlines::{DueCounts, StoredDeadlines};
pub use drain::Drain;
pub use due::{Sweep, SweepBudget, SweptParts};
pub use relocate::{Relocate, TableBlock};
pub use sample::{SAMPLE_MAX, Sampled};
use segment::{BUCKET_COUNTS, Segment, Slot, buckets_for, capacity, roomier, words};
pub use thin::Thin;
pub use walk::WalkPoint;

/// The numbers of buckets at which segments of staggered tables split.
const SPLIT_COUNTS: [u8; 5] = [31, 39, 47, 55, 63];

/// The place of an element in a table; valid until the table next changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    segment: usize,
    slot: Slot,
}

/// A hash table that owns elements of type `E`. See the module's comment.
///
/// The caller computes positions: 64 well-mixed bits derived from the element's key, always the
/// same for the same key. Only the thread that holds the lock around the table uses it.
pub struct Table<E: Thin> {
    directory: Box<[Segment]>,
    /// The base-2 logarithm of the number of the directory's places.
    depth: u8,
    /// The number of buckets at which a segment of this table splits instead of growing.
    buckets_max: u8,
    /// The number of segments as deep as the directory; when it becomes 0, the directory halves.
    deepest: u32,
    len: usize,
    due_counts: DueCounts,
    owns: PhantomData<E>,
}

// SAFETY: the table owns its elements; the raw words are its private representation of them.
unsafe impl<E: Thin + Send> Send for Table<E> {}
// SAFETY: a shared table hands out shared borrows of its elements only.
unsafe impl<E: Thin + Sync> Sync for Table<E> {}

impl<E: Thin> Default for Table<E> {
    fn default() -> Self {
        let buckets_max = BUCKET_COUNTS[BUCKET_COUNTS.len() - 1];
        Self::splitting_at(buckets_max)
    }
}

impl<E: Thin> Table<E> {
    /// Creates an empty table; allocates nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates table number `number` of many that fill at the same pace. Their segments split at
    /// different sizes. Otherwise all would outgrow a block size at once and leave memory pages
    /// half empty.
    pub fn staggered(number: usize) -> Self {
        Self::splitting_at(SPLIT_COUNTS[number % SPLIT_COUNTS.len()])
    }

    /// Moves all elements to a new table, which is returned and splits its segments at the same
    /// size. This table is then empty. O(1).
    pub fn take(&mut self) -> Self {
        let empty = Self::splitting_at(self.buckets_max);
        std::mem::replace(self, empty)
    }

    fn splitting_at(buckets_max: u8) -> Self {
        Self {
            directory: Box::default(),
            depth: 0,
            deepest: 0,
            buckets_max,
            len: 0,
            due_counts: DueCounts::default(),
            owns: PhantomData,
        }
    }

    /// Returns the number of elements. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the table has no elements. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of elements with a deadline of their own. O(1).
    #[inline]
    pub fn deadline_count(&self) -> usize {
        self.due_counts.own
    }

    /// Returns the number of elements that have parts with deadlines. O(1).
    #[inline]
    pub fn part_deadline_count(&self) -> usize {
        self.due_counts.parts
    }

    /// Returns a lower bound of all deadlines in the table, in milliseconds; `None` if no element
    /// or part has one. O(segments).
    pub fn deadline_min_ms(&self) -> Option<i64> {
        let segments = self.first_places().map(|at| self.directory[at]);
        let min_s = segments.filter(|segment| segment.deadlines > 0).map(|segment| segment.deadline_min_s);
        min_s.min().map(|min_s| i64::from(min_s) * 1000)
    }

    /// Returns the number of slots of all segments: the table's size in Redis' terms. O(segments).
    pub fn slot_count(&self) -> usize {
        self.first_places().map(|at| self.directory[at].bucket_count() * SLOTS).sum()
    }

    #[inline]
    fn place_of(&self, position: u64) -> usize {
        if self.depth == 0 { 0 } else { (position >> (64 - self.depth)) as usize }
    }

    /// Returns the first directory place, with the counters, of the segment that has place `at`.
    #[inline]
    fn first_place(&self, at: usize) -> usize {
        at & !((1usize << (self.depth - self.directory[at].depth())) - 1)
    }

    /// Returns the indexes of all directory places of the segment whose first place is `first`.
    #[inline]
    fn places(&self, first: usize) -> std::ops::Range<usize> {
        first..first + (1 << (self.depth - self.directory[first].depth()))
    }

    fn first_places(&self) -> impl Iterator<Item = usize> + '_ {
        let mut next = 0;
        std::iter::from_fn(move || {
            let first = (next < self.directory.len()).then_some(next)?;
            next = self.places(first).end;
            Some(first)
        })
    }

    /// Starts loading the bucket of `position` into the cache. O(1), reads the directory.
    #[inline]
    pub fn prefetch_bucket(&self, position: u64) {
        if let Some(segment) = self.directory.get(self.place_of(position)) {
            let home = segment.home(segment.tag(position));
            prefetch_read(segment.pointer().wrapping_add(home));
        }
    }

    /// Starts loading the elements that may have this position, up to the end of a key of
    /// `key_len_bytes`: at most two cache lines each. O(1), reads one bucket.
    #[inline]
    pub fn prefetch_element(&self, position: u64, key_len_bytes: usize) {
        let Some(segment) = self.directory.get(self.place_of(position)) else { return };
        let tag = segment.tag(position);
        let bucket = &segment.buckets()[segment.home(tag)];
        let mut matches = bucket.matches(tag);
        while matches != 0 {
            let word = bucket.words[matches.trailing_zeros() as usize];
            let element = std::ptr::with_exposed_provenance::<u8>((word & POINTER_MASK) as usize);
            prefetch_read(element);
            prefetch_read(element.wrapping_add(AHEAD_OF_KEY_LEN_BYTES + key_len_bytes));
            matches &= matches - 1;
        }
    }

    /// Returns the first element in the home bucket of `position` that has the same tag; `None` if
    /// there is none. The chance that it is another element is one in thousands. For prefetching
    /// when the key is not at hand. O(1).
    #[inline]
    pub fn likely(&self, position: u64) -> Option<Borrowed<'_, E>> {
        let segment = self.directory.get(self.place_of(position))?;
        let tag = segment.tag(position);
        let bucket = &segment.buckets()[segment.home(tag)];
        let matches = bucket.matches(tag);
        let word = bucket.words[matches.trailing_zeros() as usize % SLOTS];
        (matches != 0 && word & POINTER_MASK != 0).then(|| Borrowed::new(word))
    }

    /// Returns the place of the element with this position and key; `None` if there is none. O(1).
    #[inline]
    pub fn find(&self, position: u64, key: &[u8]) -> Option<Place> {
        self.search(position, key).map(|(place, _)| place)
    }

    /// Finds an element by position and key. Returns its place and the result of `look`; `None` if
    /// it is absent. O(1).
    #[inline]
    pub fn find_and<R>(&self, position: u64, key: &[u8], look: impl FnOnce(&E) -> R) -> Option<(Place, R)> {
        self.search(position, key).map(|(place, word)| (place, look(&Borrowed::<E>::new(word))))
    }

    /// Returns a handle to read, change or remove the element at `place`. O(1).
    #[inline]
    pub fn occupied(&mut self, place: Place) -> Occupied<'_, E> {
        let word = self.word(place);
        Occupied { table: self, place, word }
    }

    /// Finds the element with this position and key. Returns its place and the word stored there;
    /// `None` if it is absent.
    #[inline]
    fn search(&self, position: u64, key: &[u8]) -> Option<(Place, u64)> {
        let at = self.place_of(position);
        let segment = self.directory.get(at)?;
        let tag = segment.tag(position);
        let mut bucket = segment.home(tag);
        let buckets = segment.buckets();
        for _ in 0..buckets.len() {
            let here = &buckets[bucket];
            let mut matches = here.matches(tag);
            while matches != 0 {
                let slot = matches.trailing_zeros() as usize;
                let word = here.words[slot % SLOTS];
                if word & POINTER_MASK != 0 && stdx::bytes::same(Borrowed::<E>::new(word).key(), key) {
                    return Some((Place { segment: at, slot: Slot { bucket, slot } }, word));
                }
                matches &= matches - 1;
            }
            if !here.overflows() {
                return None;
            }
            bucket = if bucket + 1 == buckets.len() { 0 } else { bucket + 1 };
        }
        None
    }

    #[inline]
    fn word(&self, place: Place) -> u64 {
        let word = self.directory[place.segment].buckets()[place.slot.bucket].words[place.slot.slot];
        assert!(word & POINTER_MASK != 0, "a place outlived a change of the table");
        word
    }

    /// Borrows the element at `place` for reading. O(1).
    #[inline]
    pub fn at(&self, place: Place) -> Borrowed<'_, E> {
        Borrowed::new(self.word(place))
    }

    /// Borrows the element at `place` mutably. When the borrow ends, the table stores the element's
    /// deadlines. O(1).
    #[inline]
    pub fn at_mut(&mut self, place: Place) -> BorrowedMut<'_, E> {
        let word = self.word(place);
        let first = self.first_place(place.segment);
        let segment = &mut self.directory[first];
        let (pointer, count) = (segment.pointer(), segment.bucket_count());
        // SAFETY: as in `buckets_mut`; the returned handle is the only user of the segment's memory
        // and of its directory place until it ends, because it borrows the table mutably.
        let buckets: &mut [Bucket] = unsafe { std::slice::from_raw_parts_mut(pointer, count) };
        // SAFETY: as in `Borrowed::new`; the handle borrows the table mutably.
        let element = unsafe { E::from_raw(pointer_of(word)) };
        BorrowedMut {
            element: ManuallyDrop::new(element),
            word: &mut buckets[place.slot.bucket].words[place.slot.slot],
            segment,
            due_counts: &mut self.due_counts,
        }
    }

    /// Borrows the element with this position and key; `None` if it is not in the table. O(1).
    #[inline]
    pub fn get(&self, position: u64, key: &[u8]) -> Option<Borrowed<'_, E>> {
        self.search(position, key).map(|(_, word)| Borrowed::new(word))
    }

    /// Adds an element whose key must not be in the table. `position_of` computes the position of
    /// any stored key; it is used when a segment splits. O(1) amortised.
    pub fn insert(&mut self, position: u64, element: E, position_of: &impl Fn(&[u8]) -> u64) -> Place {
        if self.directory.is_empty() {
            self.directory = Box::new([Segment::allocate(1, 0)]);
            self.deepest = 1;
        }
        loop {
            let first = self.first_place(self.place_of(position));
            let segment = self.directory[first];
            if (segment.len as usize) < capacity(segment.bucket_count()) {
                break;
            }
            self.grow(first, position_of);
        }
        let at = self.place_of(position);
        let first = self.first_place(at);
        let dues = StoredDeadlines::of(&element);
        let segment = &mut self.directory[first];
        let word = address_of(element.into_raw()) | segment.tag(position) << TAG_SHIFT | dues.flags;
        segment.len += 1;
        self.len += 1;
        segment.note(0, dues, &mut self.due_counts);
        Place { segment: at, slot: segment.place(word) }
    }

    /// Removes the element at `place` from the table and returns it. O(1) amortised.
    pub fn remove(&mut self, place: Place) -> E {
        let word = self.word(place);
        let first = self.first_place(place.segment);
        let segment = &mut self.directory[first];
        segment.buckets_mut()[place.slot.bucket].take(place.slot.slot);
        segment.review_flags(segment.home(word >> TAG_SHIFT), place.slot.bucket);
        segment.close_gap(place.slot);
        segment.len -= 1;
        self.len -= 1;
        segment.note(word & DUE_FLAGS, StoredDeadlines { flags: 0, min_s: u32::MAX }, &mut self.due_counts);
        let few = (segment.len as usize) * 4 < capacity(segment.bucket_count());
        if few {
            self.shrink(first);
        }
        // SAFETY: the word left the table above, so its element has no other owner.
        unsafe { E::from_raw(pointer_of(word)) }
    }

    /// Stores a segment's new address and size in all its directory places, and its counters in the
    /// first of them.
    fn publish(&mut self, first: usize, segment: Segment) {
        self.directory[first] = segment;
        for place in self.places(first).skip(1) {
            self.directory[place] = Segment { len: 0, deadlines: 0, deadline_min_s: u32::MAX, ..segment };
        }
    }

    /// Rewrites a segment with another number of buckets. Reads all its words, but no element.
    fn resize(&mut self, first: usize, buckets: usize) {
        let old = self.directory[first];
        let mut new = Segment { len: old.len, ..Segment::allocate(buckets, old.depth()) };
        (new.deadlines, new.deadline_min_s) = (old.deadlines, old.deadline_min_s);
        for word in words(&old) {
            new.place(word);
        }
        self.publish(first, new);
        old.free();
    }

    fn grow(&mut self, first: usize, position_of: &impl Fn(&[u8]) -> u64) {
        let buckets = self.directory[first].bucket_count();
        match BUCKET_COUNTS.iter().find(|&&count| count as usize > buckets) {
            Some(&larger) if larger <= self.buckets_max => self.resize(first, larger as usize),
            _ => self.split(first, position_of),
        }
    }

    /// Splits a full segment into two, one bit deeper. O(segment), reads each of its elements once.
    fn split(&mut self, first: usize, position_of: &impl Fn(&[u8]) -> u64) {
        let old = self.directory[first];
        let first = if old.depth() == self.depth { self.double(first) } else { first };
        let depth = old.depth() + 1;
        let half = old.len as usize / 2;
        let mut halves = [0, 1].map(|_| Segment::allocate(buckets_for(half + half / 8), depth));
        let moving: Vec<u64> = words(&old).collect();
        for (i, &word) in moving.iter().enumerate() {
            if let Some(&ahead) = moving.get(i + PREFETCH_AHEAD) {
                prefetch_read(pointer_of(ahead).as_ptr());
            }
            let position = position_of(Borrowed::<E>::new(word).key());
            let upper = (position >> (64 - depth) & 1) as usize;
            if halves[upper].len as usize >= capacity(halves[upper].bucket_count()) {
                halves[upper] = roomier(halves[upper]);
            }
            let half = &mut halves[upper];
            let tag = half.tag(position);
            half.place(tag << TAG_SHIFT | (word & ELEMENT));
            half.len += 1;
            half.deadlines += u16::from(word & DUE_FLAGS != 0);
        }
        for half in &mut halves {
            half.deadline_min_s = old.deadline_min_s;
        }
        let middle = first + (1 << (self.depth - depth));
        self.deepest += if depth == self.depth { 2 } else { 0 };
        // The lower half is published first: `places` reads the depth that `publish` stores.
        self.publish(first, halves[0]);
        self.publish(middle, halves[1]);
        old.free();
    }

    /// Doubles the directory. Returns the new first place of the segment at `first`.
    fn double(&mut self, first: usize) -> usize {
        let mut doubled = Vec::with_capacity(self.directory.len() * 2);
        for &segment in &self.directory {
            doubled.push(segment);
            doubled.push(Segment { len: 0, deadlines: 0, deadline_min_s: u32::MAX, ..segment });
        }
        self.directory = doubled.into_boxed_slice();
        self.depth += 1;
        self.deepest = 0;
        first * 2
    }

    /// Gives a sparse segment fewer buckets, or merges it with its buddy: the segment whose prefix
    /// of position bits differs only in the last bit.
    fn shrink(&mut self, first: usize) {
        if self.len == 0 {
            return self.reset();
        }
        let segment = self.directory[first];
        let smaller = buckets_for(segment.len as usize * 2);
        if segment.depth() > 0 && segment.bucket_count() <= 15 && self.merge(first) {
            return;
        }
        if smaller < segment.bucket_count() {
            self.resize(first, smaller);
        }
    }

    /// Merges a sparse segment with its equally deep buddy, the segment whose prefix of position
    /// bits differs only in the last bit. Returns true if it has merged them. No element is read:
    /// the bit that distinguished the segments moves from the directory into the tag.
    fn merge(&mut self, first: usize) -> bool {
        let segment = self.directory[first];
        let width = 1 << (self.depth - segment.depth());
        let (low, high) = (first & !width, first | width);
        let (lower, upper) = (self.directory[low], self.directory[high]);
        let len = (lower.len + upper.len) as usize;
        if lower.depth() != upper.depth() || len > capacity(15) {
            return false;
        }
        let depth = segment.depth() - 1;
        let mut joined = Segment::allocate(buckets_for(len), depth);
        for (half, bit) in [(lower, 0u64), (upper, 1 << 63)] {
            for word in words(&half) {
                let tag = bit >> TAG_SHIFT | word >> (TAG_SHIFT + 1);
                joined.place(tag << TAG_SHIFT | (word & ELEMENT));
            }
        }
        joined.len = lower.len + upper.len;
        joined.deadlines = lower.deadlines + upper.deadlines;
        joined.deadline_min_s = lower.deadline_min_s.min(upper.deadline_min_s);
        self.deepest -= if segment.depth() == self.depth { 2 } else { 0 };
        self.publish(low, joined);
        lower.free();
        upper.free();
        while self.depth > 0 && self.deepest == 0 {
            self.halve();
        }
        true
    }

    fn halve(&mut self) {
        self.directory = self.directory.iter().copied().step_by(2).collect();
        self.depth -= 1;
        self.deepest =
            self.first_places().filter(|&first| self.directory[first].depth() == self.depth).count() as u32;
    }

    /// Frees all segments and the directory of a table that has no elements.
    fn reset(&mut self) {
        for first in self.first_places().collect::<Vec<_>>() {
            self.directory[first].free();
        }
        (self.directory, self.depth, self.deepest) = (Box::default(), 0, 0);
    }

    /// Visits all elements of one home bucket: the bucket at the point `cursor` of a 48-bit hash
    /// space. Some of them may be just below the point. Returns the next cursor, 0 at the end.
    ///
    /// Elements that are in the table from the first call to the last are visited, some twice.
    /// O(bucket).
    pub fn scan(&self, cursor: u64, mut visit: impl FnMut(&E)) -> u64 {
        if self.directory.is_empty() {
            return 0;
        }
        let position = cursor << 16;
        let at = self.place_of(position);
        let segment = &self.directory[at];
        let home = segment.home(segment.tag(position));
        let buckets = segment.buckets();
        let mut bucket = home;
        for _ in 0..buckets.len() {
            for &word in &buckets[bucket].words {
                if word & POINTER_MASK != 0 && segment.home(word >> TAG_SHIFT) == home {
                    visit(&Borrowed::<E>::new(word));
                }
            }
            if !buckets[bucket].overflows() {
                break;
            }
            bucket = (bucket + 1) % buckets.len();
        }
        let next_tag = ((home as u64 + 1) << 16).div_ceil(segment.bucket_count() as u64);
        let prefix = if segment.depth() == 0 { 0 } else { position >> (64 - segment.depth()) };
        // The cursor is in units of the 48-bit space. If it is past the end of the space, the scan
        // has ended.
        let next = ((prefix << 16) + next_tag) << (32 - segment.depth());
        if next >= 1 << 48 { 0 } else { next }
    }

    /// Returns an iterator over all elements, in hash order except for those that overflowed. O(n).
    pub fn iter(&self) -> impl Iterator<Item = Borrowed<'_, E>> + '_ {
        self.first_places().flat_map(|first| words(&self.directory[first])).map(Borrowed::new)
    }

    /// Draws an element's place uniformly; `None` if the table is empty. Expected O(1).
    pub fn random(&self, draw: impl FnMut() -> u64) -> Option<Place> {
        self.random_where(draw, POINTER_MASK)
    }

    /// Draws an element with a deadline of its own, close to uniformly. Returns its place; `None`
    /// if no element has one. Expected O(slots per such element).
    pub fn random_with_deadline(&self, draw: impl FnMut() -> u64) -> Option<Place> {
        if self.due_counts.own == 0 { None } else { self.random_where(draw, DEADLINE) }
    }

    /// Draws slots of the hash space until a slot's word has a bit of `mask`. After a bounded
    /// number of misses takes the next such slot in order. Returns its place; `None` if there is no
    /// such slot.
    fn random_where(&self, mut draw: impl FnMut() -> u64, mask: u64) -> Option<Place> {
        if self.len == 0 {
            return None;
        }
        let widest = if self.directory.len() == 1 { self.directory[0].bucket_count() } else { 63 };
        for _ in 0..RANDOM_TRIES_MAX {
            let drawn = draw();
            let at = self.place_of(drawn);
            if at != self.first_place(at) {
                // A segment counts only once, even if it has several directory places.
                continue;
            }
            let slot = ((drawn & 0xFFFF_FFFF) as usize * (widest * SLOTS)) >> 32;
            let (bucket, slot) = (slot / SLOTS, slot % SLOTS);
            let buckets = self.directory[at].buckets();
            if buckets.get(bucket).is_some_and(|bucket| bucket.words[slot] & mask != 0) {
                return Some(Place { segment: at, slot: Slot { bucket, slot } });
            }
        }
        let start = self.place_of(draw());
        (0..self.directory.len()).map(|i| (start + i) % self.directory.len()).find_map(|segment| {
            let buckets = self.directory[segment].buckets();
            let turn = draw() as usize % (buckets.len() * SLOTS);
            (0..buckets.len() * SLOTS).map(|i| (i + turn) % (buckets.len() * SLOTS)).find_map(|i| {
                let (bucket, slot) = (i / SLOTS, i % SLOTS);
                (buckets[bucket].words[slot] & mask != 0)
                    .then_some(Place { segment, slot: Slot { bucket, slot } })
            })
        })
    }
}

/// The usual number of bytes before the key in an element's memory block: a header and a number.
const AHEAD_OF_KEY_LEN_BYTES: usize = 15;
/// The number of elements whose memory the split of a segment prefetches ahead.
const PREFETCH_AHEAD: usize = 8;
/// The number of empty draws after which the choice of a random element searches in order.
const RANDOM_TRIES_MAX: usize = 128;

impl<E: Thin + Clone> Clone for Table<E> {
    /// Copies the elements into buckets of the same layout, without marks and without computing
    /// positions. O(n).
    fn clone(&self) -> Self {
        // The copy must not be dropped until all segments belong to it: a panic leaks it.
        let mut copy =
            ManuallyDrop::new(Self { directory: self.directory.clone(), owns: PhantomData, ..*self });
        for first in self.first_places() {
            let old = &self.directory[first];
            let mut new = Segment { word: Segment::allocate(old.bucket_count(), old.depth()).word, ..*old };
            for (from, to) in old.buckets().iter().zip(new.buckets_mut()) {
                for (&word, copied) in from.words.iter().zip(&mut to.words) {
                    *copied = word & !(POINTER_MASK | MARK);
                    if word & POINTER_MASK != 0 {
                        let element = E::clone(&Borrowed::<E>::new(word));
                        *copied |= address_of(element.into_raw());
                    }
                }
            }
            copy.publish(first, new);
        }
        ManuallyDrop::into_inner(copy)
    }
}

impl<E: Thin> Drop for Table<E> {
    fn drop(&mut self) {
        for first in self.first_places().collect::<Vec<_>>() {
            let segment = self.directory[first];
            for word in words(&segment) {
                // SAFETY: the table is being dropped, so nobody else owns or uses its elements.
                drop(unsafe { E::from_raw(pointer_of(word)) });
            }
            segment.free();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashSet};
    use std::ptr::NonNull;

    /// A test element: the key's 8 bytes, a deadline, and the deadlines of its parts.
    struct Item(Box<Aligned>);
    #[repr(align(16))]
    struct Aligned {
        key: [u8; 8],
        deadline_ms: Option<i64>,
        parts_ms: Vec<i64>,
    }

    impl Item {
        fn new(number: u64, deadline_ms: Option<i64>) -> Self {
            Item(Box::new(Aligned { key: number.to_be_bytes(), deadline_ms, parts_ms: Vec::new() }))
        }
    }

    // SAFETY: a box of a 16-byte aligned type, restored as the same box; the key is never changed.
    unsafe impl Thin for Item {
        fn into_raw(self) -> NonNull<u8> {
            NonNull::from(Box::leak(self.0)).cast()
        }
        unsafe fn from_raw(raw: NonNull<u8>) -> Self {
            // SAFETY: the caller passes a pointer from `into_raw`.
            Item(unsafe { Box::from_raw(raw.cast().as_ptr()) })
        }
        fn key(&self) -> &[u8] {
            &self.0.key
        }
        fn deadline_ms(&self) -> Option<i64> {
            self.0.deadline_ms
        }
        fn part_deadline_ms(&self) -> Option<i64> {
            self.0.parts_ms.iter().min().copied()
        }
    }

    fn mix(number: u64) -> u64 {
        let mut x = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    fn position_of(key: &[u8]) -> u64 {
        mix(u64::from_be_bytes(key.try_into().unwrap()))
    }

    /// Returns positions whose first nine bits are zero: the worst case for the directory's depth.
    fn crowded(key: &[u8]) -> u64 {
        position_of(key) >> 9
    }

    type Hash = fn(&[u8]) -> u64;

    fn insert(table: &mut Table<Item>, hash: Hash, number: u64, deadline_ms: Option<i64>) {
        table.insert(hash(&number.to_be_bytes()), Item::new(number, deadline_ms), &hash);
    }

    fn find(table: &Table<Item>, hash: Hash, number: u64) -> Option<Place> {
        table.find(hash(&number.to_be_bytes()), &number.to_be_bytes())
    }

    /// Checks the invariants of a table that the module's header states.
    fn check(table: &Table<Item>, hash: Hash) {
        let (mut len, mut counts, mut deepest) = (0, DueCounts::default(), 0);
        for first in table.first_places() {
            let segment = table.directory[first];
            deepest += u32::from(segment.depth() == table.depth);
            let count = segment.bucket_count();
            let mut passed = vec![false; count];
            let mut here = (0, 0);
            for (at, bucket) in segment.buckets().iter().enumerate() {
                for word in bucket.words.iter().filter(|&word| word & POINTER_MASK != 0) {
                    let item = Borrowed::<Item>::new(*word);
                    let position = hash(item.key());
                    assert_eq!(segment.tag(position), word >> TAG_SHIFT);
                    assert!(table.places(first).contains(&table.place_of(position)));
                    let mut bucket = segment.home(segment.tag(position));
                    while bucket != at {
                        passed[bucket] = true;
                        bucket = (bucket + 1) % count;
                    }
                    here.0 += 1;
                    let dues = StoredDeadlines::of::<Item>(&item);
                    assert_eq!(word & DUE_FLAGS, dues.flags);
                    assert!(segment.deadline_min_s <= dues.min_s);
                    here.1 += usize::from(dues.flags != 0);
                    counts.note(0, dues.flags);
                }
            }
            for (bucket, passed) in segment.buckets().iter().zip(passed) {
                assert_eq!(bucket.overflows(), passed);
            }
            assert_eq!(here, (segment.len as usize, segment.deadlines as usize));
            for place in table.places(first) {
                assert_eq!(table.directory[place].word, segment.word);
            }
            len += here.0;
        }
        assert_eq!(len, table.len());
        assert_eq!((counts.own, counts.parts), (table.deadline_count(), table.part_deadline_count()));
        assert_eq!(deepest, table.deepest);
    }

    /// Moves a random half of the table's blocks, and checks that each element is visited once.
    fn move_blocks(table: &mut Table<Item>, draw: u64) {
        let copy = |item: &Item| {
            let Aligned { key, deadline_ms, ref parts_ms } = *item.0;
            Item(Box::new(Aligned { key, deadline_ms, parts_ms: parts_ms.clone() }))
        };
        assert_eq!(relocate::move_half(table, draw, copy), table.len());
    }

    #[test]
    fn behaves_as_a_map_through_growth_and_shrinking() {
        for hash in [position_of as Hash, crowded as Hash] {
            let mut table = Table::new();
            let mut twin = BTreeMap::new();
            for step in 0..60_000u64 {
                let draw = mix(step ^ 0xABCD);
                let growing = step / 10_000 % 2 == 0;
                let number = draw % 9_000;
                let found = find(&table, hash, number);
                assert_eq!(found.is_some(), twin.contains_key(&number));
                if (draw >> 32) % 10 < if growing { 8 } else { 2 } {
                    let deadline_ms = (draw >> 40 & 1 == 0).then_some((draw >> 20 & 0xFFFF) as i64 * 1000);
                    match found {
                        Some(place) => {
                            let mut item = table.at_mut(place);
                            item.0.deadline_ms = deadline_ms;
                            item.0.parts_ms = vec![draw as i64 >> 20; draw as usize % 3];
                        }
                        None => insert(&mut table, hash, number, deadline_ms),
                    }
                    twin.insert(number, deadline_ms);
                } else if let Some(place) = found {
                    let item = table.remove(place);
                    assert_eq!(twin.remove(&number), Some(item.0.deadline_ms));
                }
                if step % 500 == 0 {
                    move_blocks(&mut table, draw);
                }
                if step % 1_000 == 0 {
                    check(&table, hash);
                }
            }
            check(&table, hash);
            for (&number, &deadline_ms) in &twin {
                let place = find(&table, hash, number).unwrap();
                assert_eq!(table.at(place).0.deadline_ms, deadline_ms);
            }
            for &number in twin.keys() {
                let place = find(&table, hash, number).unwrap();
                table.remove(place);
            }
            assert_eq!((table.len(), table.directory.len(), table.depth), (0, 0, 0));
        }
    }

    #[test]
    fn likely_elements_are_those_asked_for_where_their_home_bucket_has_them() {
        let hash = position_of as Hash;
        let mut table = Table::new();
        assert!(table.likely(hash(&[0; 8])).is_none());
        (0..20_000).for_each(|number| insert(&mut table, hash, number, None));
        let right = |number: &u64| {
            let likely = table.likely(hash(&number.to_be_bytes()));
            likely.is_some_and(|item| item.0.key == number.to_be_bytes())
        };
        assert!((0..20_000).filter(right).count() > 18_000);
        assert_eq!((20_000..40_000).filter(right).count(), 0);
    }

    #[test]
    fn a_scan_returns_all_that_stays_while_the_table_grows_and_shrinks() {
        for (stay, others, grow) in
            [(300, 30_000, true), (300, 30_000, false), (5, 0, true), (5_000, 5_000, true)]
        {
            let hash = position_of as Hash;
            let mut table = Table::new();
            (0..stay).for_each(|number| insert(&mut table, hash, number, None));
            if !grow {
                (0..others).for_each(|number| insert(&mut table, hash, stay + number, None));
            }
            let (mut seen, mut cursor, mut changed) = (HashSet::new(), 0, 0);
            loop {
                let mut visit = |item: &Item| {
                    seen.insert(u64::from_be_bytes(item.0.key));
                };
                cursor = table.scan(cursor, &mut visit);
                if cursor == 0 {
                    break;
                }
                for _ in 0..200 {
                    if changed < others {
                        let number = stay + changed;
                        match grow {
                            true => insert(&mut table, hash, number, None),
                            false => {
                                let place = find(&table, hash, number).unwrap();
                                table.remove(place);
                            }
                        }
                        changed += 1;
                    }
                }
            }
            assert!((0..stay).all(|number| seen.contains(&number)));
        }
    }

    #[test]
    fn a_sweep_hands_over_exactly_what_is_due() {
        let hash = position_of as Hash;
        let mut table = Table::new();
        for number in 0..20_000 {
            let deadline_ms = (number % 3 != 0).then_some(number as i64 * 10);
            insert(&mut table, hash, number, deadline_ms);
        }
        let (mut due, mut cursor) = (HashSet::new(), Some(0));
        let budget = SweepBudget { segments_max: 3, elements_max: 50 };
        while let Some(at) = cursor {
            cursor = table.sweep_due(at, 100_000, budget, &mut |item: Item| {
                assert!(due.insert(u64::from_be_bytes(item.0.key)));
            });
            check(&table, hash);
        }
        let expected: HashSet<u64> = (0..=10_000).filter(|number| number % 3 != 0).collect();
        assert_eq!(due, expected);
        assert_eq!(table.len(), 20_000 - expected.len());
    }

    /// A sweep in a test that removes up to two due parts of an element at a time.
    #[derive(Default)]
    struct Swept {
        now_ms: i64,
        due: usize,
        emptied: usize,
        parts: usize,
    }

    impl Sweep<Item> for Swept {
        fn due(&mut self, item: Item) {
            assert!(item.0.deadline_ms.unwrap() <= self.now_ms);
            self.due += 1;
        }
        fn parts_due(&mut self, item: &mut Item) -> SweptParts {
            let parts = &mut item.0.parts_ms;
            let mut removed = 0;
            while let Some(at) = parts.iter().position(|&at_ms| at_ms <= self.now_ms).filter(|_| removed < 2)
            {
                parts.remove(at);
                removed += 1;
            }
            self.parts += removed;
            SweptParts { removed, emptied: parts.is_empty() }
        }
        fn emptied(&mut self, item: Item) {
            assert!(item.0.parts_ms.is_empty());
            self.emptied += 1;
        }
    }

    #[test]
    fn a_sweep_removes_due_parts_a_few_at_a_time() {
        let hash = position_of as Hash;
        let mut table = Table::new();
        for number in 0..3_000 {
            let mut item = Item::new(number, (number % 5 == 0).then_some(number as i64 * 10));
            // An element has as many parts as its number says, at most 9.
            item.0.parts_ms = (0..number.min(9)).map(|part| part as i64 * 1_000).collect();
            table.insert(hash(&number.to_be_bytes()), item, &hash);
        }
        assert_eq!(table.part_deadline_count(), 2_999);
        assert_eq!(table.deadline_min_ms(), Some(0));
        for now_ms in [0, 3_500, 8_000, 50_000] {
            let (mut due, mut emptied, mut parts) = (0, 0, 0);
            for item in table.iter() {
                let is_due = item.0.deadline_ms.is_some_and(|at_ms| at_ms <= now_ms);
                let due_parts = item.0.parts_ms.iter().filter(|&&at_ms| at_ms <= now_ms).count();
                due += usize::from(is_due);
                parts += if is_due { 0 } else { due_parts };
                emptied += usize::from(!is_due && due_parts > 0 && due_parts == item.0.parts_ms.len());
            }
            let (mut swept, mut cursor) = (Swept { now_ms, ..Swept::default() }, Some(0));
            let budget = SweepBudget { segments_max: 4, elements_max: 20 };
            while let Some(at) = cursor {
                cursor = table.sweep_due(at, now_ms, budget, &mut swept);
                check(&table, hash);
            }
            assert_eq!((swept.due, swept.emptied, swept.parts), (due, emptied, parts), "at {now_ms}");
            assert!(table.iter().all(|item| item.0.parts_ms.iter().all(|&at_ms| at_ms > now_ms)));
        }
    }

    #[test]
    fn random_choice_reaches_every_element_about_equally() {
        let hash = position_of as Hash;
        for len in [1, 5, 100, 2_000] {
            let mut table = Table::new();
            (0..len).for_each(|number| insert(&mut table, hash, number, (number % 7 == 0).then_some(5)));
            let mut counts = vec![0; len as usize];
            let mut state = 0;
            let mut draw = || {
                state += 1;
                mix(state)
            };
            for _ in 0..len * 100 {
                let place = table.random(&mut draw).unwrap();
                counts[u64::from_be_bytes(table.at(place).0.key) as usize] += 1;
            }
            assert!(counts.iter().all(|&count| (50..160).contains(&count)), "{len}: {counts:?}");
            let place = table.random_with_deadline(&mut draw).unwrap();
            assert!(table.at(place).0.deadline_ms.is_some());
        }
    }

    #[test]
    fn a_million_elements_take_at_most_13_bytes_each_beside_their_own() {
        let hash = position_of as Hash;
        let mut table = Table::new();
        for number in 0..1_000_000 {
            insert(&mut table, hash, number, None);
            if number > 50_000 && number % 50_000 == 0 {
                let each = table.memory_usage() as f64 / table.len() as f64;
                assert!(each < 13.5, "{each} bytes at {number}");
            }
        }
        assert_eq!(table.iter().count(), 1_000_000);
    }

    #[test]
    fn samples_from_anywhere_show_every_element_about_as_often() {
        for (count, of) in [(1, Sampled::All), (5, Sampled::All), (10, Sampled::All), (5, Sampled::Expiring)]
        {
            let mut table = Table::new();
            (0..400).for_each(|n| insert(&mut table, position_of, n, (n % 2 == 0).then_some(1)));
            let mut shown = BTreeMap::new();
            let mut total = 0;
            for start in 0..40_000 {
                let seen = table.sample(mix(start), count, of, |item| {
                    *shown.entry(item.key().to_vec()).or_insert(0) += 1;
                });
                assert!((count..count + 8).contains(&seen));
                total += seen;
            }
            let elements = if of == Sampled::All { 400 } else { 200 };
            let least = shown.values().min().copied().unwrap_or(0);
            assert_eq!(shown.len(), elements);
            assert!(least * 3 > total / elements, "{count}: {least} of {total}");
        }
    }
}
