//! The distribution of key sizes by type, as INFO keysizes shows it. Every write updates it.
//!
//! ```text
//!  lane of a thread ─ database ─► cells: [none][strings: 64 bins][lists: 64] … [arrays: 64]
//! ```
//! A key's size is the length of a string in bytes, or the number of elements of any other value.
//! Bin 0 is for empty values, bin `i` for sizes from `2^(i-1)` to `2^i - 1`. A [`SizeMark`] names
//! the cell of a key. Code that changes a key compares its mark before and after, and moves it to
//! another cell if they differ. Most writes leave a key in its cell and count nothing.
//!
//! Each thread that runs commands counts in its own *lane*, so counting accesses no cache line that
//! another thread writes. A cell of one lane may be below zero: a key created in one lane may be
//! removed in another. The sum over the lanes is right. Code without a lane (active expiry,
//! eviction) counts in one shared lane. All counting is done under the lock of the key's shard. A
//! thread that holds all these locks therefore sees consistent sums. So does an exclusive owner of
//! the gate that has taken and released each of them.
//!
//! A mark also contains the size classes of a big key; `big_index.rs` has the index of these keys.
//!
//! Cost: O(1) per write; 4.5 KiB per lane and database in use. Reading adds up the lanes' cells.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use structures::entry::{NewValue, View as EntryView};

use crate::key::KeyHash;
use crate::object::{KeyEntry, Object};
use crate::value_size::{BYTES_MIN, ELEMENTS_MIN, Measure, SizedType, ValueSize, class_of, is_of_class};

/// The number of bins (ranges of sizes) per type of value: for sizes up to `2^62`.
pub const BINS: usize = 64;
/// The number of cells of a database: the bins of [`SizedType`]'s eight types, and as many cells
/// before them, for [`SizeMark::NONE`].
const CELLS: usize = 9 * BINS;

impl ValueSize {
    /// Returns the size of a key's value. A value stored as an integer has the least length in the
    /// bin of its decimal text. O(1), or O(n) for a listpack of more than 65,534 elements.
    #[inline(always)]
    pub fn of_entry(entry: &KeyEntry) -> Self {
        let text = |len: usize| Self { kind: SizedType::String, bytes: len, elements: len };
        match entry.view() {
            EntryView::Bytes(bytes) => text(bytes.len()),
            EntryView::Int(number) => text(bin_start(bin_of_text(number) as usize) as usize),
            EntryView::Object(object) => object.size(),
        }
    }

    /// Returns the mark of a key with this size: its cell in the counts, and its classes in the
    /// index of big keys if it is big.
    #[inline]
    pub(crate) fn mark(self) -> SizeMark {
        let mark = SizeMark::new(self.kind, bin_of(self.elements));
        let counted = self.counted();
        if self.bytes < BYTES_MIN && counted < ELEMENTS_MIN {
            return mark;
        }
        let (by_elements, by_bytes) = (class_of(counted, ELEMENTS_MIN), class_of(self.bytes, BYTES_MIN));
        SizeMark(mark.0 | (u32::from(by_elements) << 8 | u32::from(by_bytes)) << CELL_BITS)
    }

    /// Returns true if keys of both sizes certainly have the same mark. Does not compute the marks,
    /// and may return false for the same mark. It is true for nearly all writes: the type stays the
    /// same, and the size stays in its power of two (small values) or in its class.
    #[inline]
    pub(crate) fn is_marked_alike(self, other: Self) -> bool {
        let small =
            self.bytes.max(other.bytes) < BYTES_MIN && self.elements.max(other.elements) < ELEMENTS_MIN;
        self.kind == other.kind
            && if small {
                self.elements.leading_zeros() == other.elements.leading_zeros()
            } else {
                is_of_class(self.elements, other.elements) && is_of_class(self.bytes, other.bytes)
            }
    }
}

/// The mark of a key's size: the size's cell in the counts, and its classes in the index of big
/// keys if the key is big.
///
/// ```text
///  [unused 6][class by elements 8][class by bytes 8][cell 10]
/// ```
/// O(1) to compute, or O(n) for a listpack of more than 65,534 elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeMark(u32);

const CELL_BITS: u32 = 10;
const _: () = assert!(CELLS <= 1 << CELL_BITS);

impl SizeMark {
    /// The size mark of a key that does not exist.
    pub const NONE: Self = Self(0);

    /// Computes the mark of a key from its present value.
    #[inline]
    pub fn of(entry: &KeyEntry) -> Self {
        match entry.view() {
            EntryView::Bytes(bytes) => Self::new(SizedType::String, bin_of(bytes.len())),
            EntryView::Int(number) => Self::of_int(number),
            EntryView::Object(object) => Self::of_object(object),
        }
    }

    /// Computes the mark of a key whose value is the integer `number`.
    #[inline]
    pub(crate) fn of_int(number: i64) -> Self {
        Self::new(SizedType::String, bin_of_text(number))
    }

    /// Computes the mark that a key will have when `value` is stored in it.
    #[inline]
    pub(crate) fn of_new(value: &NewValue<'_, Object>) -> Self {
        match value {
            NewValue::Bytes(bytes) => Self::new(SizedType::String, bin_of(bytes.len())),
            NewValue::Int(number) => Self::of_int(*number),
            NewValue::Object(object) => Self::of_object(object),
        }
    }

    /// Computes the mark of an object. Out of line, because every way of storing a value calls it.
    #[inline(never)]
    fn of_object(object: &Object) -> Self {
        object.size().mark()
    }

    #[inline]
    fn new(kind: SizedType, bin: u32) -> Self {
        Self((kind as u32) * BINS as u32 + bin)
    }

    #[inline]
    fn cell(self) -> usize {
        self.0 as usize & ((1 << CELL_BITS) - 1)
    }

    /// Adds one key of this size mark to `counts`. The mark must not be [`SizeMark::NONE`].
    pub(crate) fn add_to(self, counts: &mut SizeCounts) {
        let cell = self.cell() - BINS;
        counts[cell / BINS][cell % BINS] += 1;
    }

    /// Returns true if a key of this size mark is in the index of big keys.
    #[inline]
    pub fn is_big(self) -> bool {
        self.0 >> CELL_BITS != 0
    }

    /// Returns true if a change of a key's size mark from this one to `other` changes the index of
    /// big keys.
    #[inline]
    pub(crate) fn differs_in_class(self, other: Self) -> bool {
        (self.0 >> CELL_BITS != other.0 >> CELL_BITS)
            || (self.0 >> CELL_BITS != 0 && self.cell() / BINS != other.cell() / BINS)
    }

    /// Returns the class of the key's size by `measure` (bytes or elements); 0 if the key is not
    /// big by it.
    pub(crate) fn class(self, measure: Measure) -> u8 {
        match measure {
            Measure::Bytes => (self.0 >> CELL_BITS) as u8,
            Measure::Elements => (self.0 >> (CELL_BITS + 8)) as u8,
        }
    }

    /// Returns the type of the key's value; `None` for a key that does not exist.
    pub fn kind(self) -> Option<SizedType> {
        SizedType::ALL.get((self.cell() / BINS).wrapping_sub(1)).copied()
    }
}

/// Returns the bin that counts keys of this size, from 0 to [`BINS`] - 1.
#[inline]
fn bin_of(size: usize) -> u32 {
    (usize::BITS - size.leading_zeros()).min(BINS as u32 - 1)
}

/// Returns the bin that counts strings as long as a number's decimal text, without formatting the
/// number.
#[inline]
fn bin_of_text(number: i64) -> u32 {
    let magnitude = number.unsigned_abs();
    // The smallest numbers whose texts have 2, 4, 8 and 16 characters.
    let bounds: [u64; 4] = if number < 0 {
        [0, 100, 1_000_000, 100_000_000_000_000]
    } else {
        [10, 1_000, 10_000_000, 1_000_000_000_000_000]
    };
    1 + bounds.iter().map(|&bound| u32::from(magnitude >= bound)).sum::<u32>()
}

/// Returns the smallest size (in bytes or elements) in a bin.
pub fn bin_start(bin: usize) -> u64 {
    if bin == 0 { 0 } else { 1 << (bin - 1) }
}

/// The number of keys of one database in each bin, by type in the order of [`SizedType::ALL`].
pub type SizeCounts = [[u64; BINS]; SizedType::ALL.len()];

/// A change of the size mark of one key, to be counted.
#[derive(Clone, Copy)]
pub(crate) struct Resize {
    /// The number of the database of the key whose size has changed.
    pub db: usize,
    /// The hash of the key whose size has changed.
    pub hash: KeyHash,
    /// The key's size mark before the change; [`SizeMark::NONE`] for a new key.
    pub old: SizeMark,
    /// The key's size mark after the change; [`SizeMark::NONE`] for a removed key.
    pub new: SizeMark,
}

/// The counts of keys of one database, a cell for each bin (range of sizes) of each type.
type Cells = [AtomicU64; CELLS];

/// The changes that one thread has made to the counts of keys by size, for each database. See the
/// module's comment.
pub struct SizeLane {
    dbs: Box<[OnceLock<Box<Cells>>]>,
}

impl SizeLane {
    fn new(db_count: usize) -> Self {
        Self { dbs: (0..db_count).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    fn cells(&self, db: usize) -> &Cells {
        match self.dbs[db].get() {
            Some(cells) => cells,
            None => self.make(db),
        }
    }

    #[cold]
    fn make(&self, db: usize) -> &Cells {
        self.dbs[db].get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    /// Moves one key of database `db` from the count of `old` to that of `new`. Only the thread
    /// that owns these counts may call it.
    #[inline]
    fn recount(&self, db: usize, old: SizeMark, new: SizeMark) {
        let cells = self.cells(db);
        // No other thread writes these cells now, so no read-modify-write is needed.
        let (from, to) = (&cells[old.cell()], &cells[new.cell()]);
        from.store(from.load(Relaxed).wrapping_sub(1), Relaxed);
        to.store(to.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Moves one key of database `db` from the count of `old` to that of `new`, in the counts that
    /// threads share. Any thread may call it.
    fn recount_shared(&self, db: usize, old: SizeMark, new: SizeMark) {
        let cells = self.cells(db);
        cells[old.cell()].fetch_sub(1, Relaxed);
        cells[new.cell()].fetch_add(1, Relaxed);
    }
}

/// The counts of keys by size of all threads: a lane (counts of one thread) for each, and the
/// shared lane.
pub struct KeySizes {
    db_count: usize,
    shared: SizeLane,
    lanes: Mutex<Vec<Arc<SizeLane>>>,
}

impl KeySizes {
    /// Creates the size counts of a keyspace without keys.
    pub(crate) fn new(db_count: usize) -> Self {
        Self { db_count, shared: SizeLane::new(db_count), lanes: Mutex::default() }
    }

    /// Returns a lane (counts of one thread) for a thread that runs commands: the lane of a thread
    /// that has ended, or a new one.
    pub(crate) fn add_lane(&self) -> Arc<SizeLane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let is_left = |lane: &mut Arc<SizeLane>| Arc::get_mut(lane).is_some();
        if let Some(index) = lanes.iter_mut().position(is_left) {
            // The lane keeps its counts: only the sums over all lanes are meaningful.
            return Arc::clone(&lanes[index]);
        }
        let lane = Arc::new(SizeLane::new(self.db_count));
        lanes.push(Arc::clone(&lane));
        lane
    }

    /// Moves one key of database `db` from the size count of `old` to that of `new`: in the `lane`
    /// (the counts of one thread) of the caller, or for `None` in the shared one. The key's shard
    /// must be locked. O(1).
    #[inline]
    pub(crate) fn recount(&self, lane: Option<&SizeLane>, db: usize, old: SizeMark, new: SizeMark) {
        match lane {
            Some(lane) => lane.recount(db, old, new),
            None => self.shared.recount_shared(db, old, new),
        }
    }

    fn each_lane(&self, mut work: impl FnMut(&SizeLane)) {
        work(&self.shared);
        for lane in self.lanes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            work(lane);
        }
    }

    /// Adds up each size count of a database over the lanes of all threads. O(lanes).
    fn sums(&self, db: usize) -> [u64; CELLS] {
        let mut sums = [0_u64; CELLS];
        self.each_lane(|lane| {
            if let Some(cells) = lane.dbs[db].get() {
                for (sum, cell) in sums.iter_mut().zip(cells.iter()) {
                    *sum = sum.wrapping_add(cell.load(Relaxed));
                }
            }
        });
        sums
    }

    /// Returns the distribution of a database's key sizes: exact only while no thread writes.
    /// O(lanes).
    pub fn counts(&self, db: usize) -> SizeCounts {
        let sums = self.sums(db);
        SizedType::ALL.map(|kind| {
            let first = kind as usize * BINS;
            // If other threads move keys meanwhile, a sum may be below zero for a moment.
            std::array::from_fn(|bin| u64::try_from(sums[first + bin] as i64).unwrap_or(0))
        })
    }

    /// Resets the size counts of database `db` to zero after all its keys were removed. The caller
    /// must own the keyspace exclusively. O(lanes).
    pub(crate) fn forget(&self, db: usize) {
        self.each_lane(|lane| {
            for cell in lane.dbs[db].get().into_iter().flat_map(|cells| cells.iter()) {
                cell.store(0, Relaxed);
            }
        });
    }

    /// Exchanges the size counts of database `db` with those of the same database in `other`. The
    /// caller must own both keyspaces exclusively. O(lanes).
    pub(crate) fn exchange(&self, other: &Self, db: usize) {
        let (own, others) = (self.sums(db), other.sums(db));
        for (sizes, sums) in [(self, others), (other, own)] {
            sizes.forget(db);
            if sums.iter().any(|&sum| sum != 0) {
                sizes.shared.cells(db).iter().zip(sums).for_each(|(cell, sum)| cell.store(sum, Relaxed));
            }
        }
    }

    /// Exchanges the size counts of two databases. The caller must own the keyspace exclusively,
    /// and must have taken and released each shard's lock. O(lanes).
    pub(crate) fn swap(&self, a: usize, b: usize) {
        self.each_lane(|lane| {
            if lane.dbs[a].get().is_none() && lane.dbs[b].get().is_none() {
                return;
            }
            for (of_a, of_b) in lane.cells(a).iter().zip(lane.cells(b)) {
                let count = of_a.load(Relaxed);
                of_a.store(of_b.load(Relaxed), Relaxed);
                of_b.store(count, Relaxed);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bin_holds_sizes_from_a_power_of_two_to_below_the_next() {
        for size in 0..5000_usize {
            let bin = bin_of(size) as usize;
            assert!(bin_start(bin) <= size as u64 && (size as u64) < bin_start(bin + 1), "{size}");
        }
    }

    #[test]
    fn a_number_is_binned_by_the_length_of_its_text() {
        let mut numbers = vec![0, i64::MIN, i64::MAX];
        for power in 0..19 {
            let ten = 10_i64.pow(power);
            numbers.extend([ten - 1, ten, ten + 1, -ten - 1, -ten, 1 - ten]);
        }
        for number in numbers {
            assert_eq!(bin_of_text(number), bin_of(number.to_string().len()), "{number}");
        }
    }

    #[test]
    fn lanes_add_up_where_a_key_is_made_by_one_and_removed_by_another() {
        let sizes = KeySizes::new(2);
        let (first, second) = (sizes.add_lane(), sizes.add_lane());
        let small = SizeMark::new(SizedType::List, bin_of(1));
        let large = SizeMark::new(SizedType::List, bin_of(9));
        sizes.recount(Some(&first), 1, SizeMark::NONE, small);
        sizes.recount(Some(&first), 1, SizeMark::NONE, small);
        sizes.recount(Some(&second), 1, small, large);
        sizes.recount(None, 1, small, SizeMark::NONE);
        let list = |db: usize| sizes.counts(db)[SizedType::List as usize - 1];
        assert_eq!((list(1)[1], list(1)[4], list(1).iter().sum::<u64>()), (0, 1, 1));
        sizes.swap(0, 1);
        assert_eq!((list(0)[4], list(1).iter().sum::<u64>()), (1, 0));
        sizes.forget(0);
        assert_eq!(list(0), [0; BINS]);
    }
}
