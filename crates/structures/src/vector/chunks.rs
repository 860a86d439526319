//! Versioned memory that grows by chunks: a copy shares all chunks until one side writes.
//!
//! ```text
//!   root ─► [branch, branch, …]        a counted pointer for each 64 chunks
//!             └─► [chunk × 64]         a counted pointer for each chunk
//!                   └─► [item × n]     n is the same for all chunks
//! ```
//! A clone copies one pointer. A writer copies the root, the branch and the chunk on its way if a
//! clone shares them, each once per clone. So readers of a clone need no lock. Without a clone,
//! nothing is copied.
//!
//! An item is found by a division, which is a multiplication by the reciprocal. So a chunk has the
//! number of items with which it fills a block of the allocator best. The first chunk grows by
//! doubling, the others are allocated whole.
//!
//! Memory: the items; 32 or 80 bytes for each chunk, and what its block leaves over.

use crate::alloc::counted_bytes;
use std::cmp::Reverse;
use std::iter::repeat_n;
use std::sync::Arc;

/// The number of chunks of which a branch has pointers.
const BRANCH_LEN: usize = 64;
/// The largest number of places of a chunk.
const CHUNK_LEN_MAX: usize = 128;
/// The number of places up to which a chunk of long places has a limit of its own: with few places,
/// the header of a chunk would waste the room of one.
const LONG_PLACES_MAX: usize = 32;
const LONG_LEN_BYTES_MAX: usize = 1 << 20;
/// The smallest number of places of a chunk.
const PLACES_MIN: usize = 2;
/// The memory of a chunk's reference counts, in bytes.
const HEADER_LEN_BYTES: usize = 16;

/// A divisor of 2 or more, for divisions by multiplication.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    divisor: u32,
    /// 2⁶⁴ / divisor, rounded up. Source: Lemire, Kaser and Kurz, *Faster remainder by direct
    /// computation* (2019).
    reciprocal: u64,
}

impl Divisor {
    const fn new(divisor: u32) -> Self {
        assert!(divisor >= 2, "the reciprocal of one has more than 64 bits");
        Self { divisor, reciprocal: u64::MAX / divisor as u64 + 1 }
    }

    /// Returns the quotient and the remainder of `number` divided by this divisor.
    #[inline]
    fn split(self, number: u32) -> (usize, usize) {
        let quotient = ((u128::from(self.reciprocal) * u128::from(number)) >> 64) as u32;
        (quotient as usize, (number - quotient * self.divisor) as usize)
    }
}

/// The items of one chunk, shared by clones. Its length never changes.
type Chunk<T> = Arc<[T]>;
/// A branch of the memory: pointers to up to [`BRANCH_LEN`] chunks.
type Branch<T> = Arc<[Chunk<T>]>;

/// Versioned memory: chunks of items, where each place has the same number of items. A clone is
/// O(1).
#[derive(Clone, Debug)]
pub(super) struct Chunks<T> {
    root: Arc<[Branch<T>]>,
    /// The number of chunks of the memory.
    len: usize,
    /// The number of places that a chunk has.
    places: Divisor,
}

/// The length and alignment of the places of one [`Chunks`].
#[derive(Clone, Copy)]
pub(super) struct PlaceLen {
    /// The length of one place in bytes.
    pub(super) len_bytes: usize,
    /// The alignment of a chunk's items in bytes.
    pub(super) align: usize,
    /// The maximum memory of a chunk (a block of items), in bytes; a chunk of few long items may
    /// take more. Within it, a chunk gets the number of places that wastes the least memory.
    pub(super) chunk_len_bytes_max: usize,
}

impl PlaceLen {
    /// Returns the number of places with which a chunk wastes the least memory.
    fn places_of_chunk(self) -> usize {
        let header = HEADER_LEN_BYTES.next_multiple_of(self.align);
        let memory =
            |places: usize| counted_bytes((places * self.len_bytes).next_multiple_of(self.align) + header);
        let fits = |places: &usize| {
            let memory = memory(*places);
            memory <= self.chunk_len_bytes_max
                || *places <= LONG_PLACES_MAX && memory <= LONG_LEN_BYTES_MAX
                || *places == PLACES_MIN
        };
        let per_place = |places: &usize| ((memory(*places) << 16) / places, Reverse(*places));
        (PLACES_MIN..=CHUNK_LEN_MAX).filter(fits).min_by_key(per_place).unwrap_or(PLACES_MIN)
    }
}

impl<T: Clone> Chunks<T> {
    /// Creates memory without chunks.
    pub(super) fn new(place: PlaceLen) -> Self {
        let places = Divisor::new(place.places_of_chunk() as u32);
        Self { root: Arc::default(), len: 0, places }
    }

    /// Returns the number of the chunk that has a place, and the number of the place in that chunk.
    #[inline]
    pub(super) fn split(&self, place: u32) -> (usize, usize) {
        self.places.split(place)
    }

    /// Returns the number of places that a chunk has.
    pub(super) fn places_of_chunk(&self) -> usize {
        self.places.divisor as usize
    }

    /// Borrows the items of a chunk; `None` if there is no such chunk.
    #[inline]
    pub(super) fn find(&self, chunk: usize) -> Option<&[T]> {
        let branch = self.root.get(chunk / BRANCH_LEN)?;
        branch.get(chunk % BRANCH_LEN).map(|chunk| &**chunk)
    }

    /// Borrows the items of a chunk, which must exist.
    #[inline]
    pub(super) fn get(&self, chunk: usize) -> &[T] {
        &self.root[chunk / BRANCH_LEN][chunk % BRANCH_LEN]
    }

    /// Borrows the items of a chunk mutably. Copies them first if a clone shares them.
    pub(super) fn get_mut(&mut self, chunk: usize) -> &mut [T] {
        Arc::make_mut(&mut self.branch_mut(chunk / BRANCH_LEN)[chunk % BRANCH_LEN])
    }

    fn branch_mut(&mut self, branch: usize) -> &mut [Chunk<T>] {
        Arc::make_mut(&mut Arc::make_mut(&mut self.root)[branch])
    }

    /// Gives `chunk`, the last one or the next, at least `len` items. A full chunk has `whole`
    /// items. New items are `fill`.
    pub(super) fn extend(&mut self, chunk: usize, (len, whole): (usize, usize), fill: T) {
        if chunk < self.len {
            let old = self.get(chunk);
            if old.len() < len {
                let more = (old.len() * 2).clamp(len, whole.max(len)) - old.len();
                let longer = old.iter().cloned().chain(repeat_n(fill, more)).collect();
                self.branch_mut(chunk / BRANCH_LEN)[chunk % BRANCH_LEN] = longer;
            }
            return;
        }
        let new: Chunk<T> = repeat_n(fill, if chunk == 0 { len } else { whole }).collect();
        if chunk.is_multiple_of(BRANCH_LEN) {
            let new: Branch<T> = [new].into();
            self.root = self.root.iter().cloned().chain([new]).collect();
        } else {
            let branch = &mut Arc::make_mut(&mut self.root)[chunk / BRANCH_LEN];
            *branch = branch.iter().cloned().chain([new]).collect();
        }
        self.len += 1;
    }

    /// Returns the memory of all chunks in bytes. O(chunks).
    pub(super) fn memory_usage(&self) -> usize {
        fn of<T>(items: &Arc<[T]>) -> usize {
            HEADER_LEN_BYTES.next_multiple_of(align_of::<T>()) + size_of_val(&**items)
        }
        let branch = |branch: &Branch<T>| of(branch) + branch.iter().map(of).sum::<usize>();
        of(&self.root) + self.root.iter().map(branch).sum::<usize>()
    }
}

/// An iterator that frees chunks, one in each step. It leaves chunks that a clone shares to the
/// clone.
pub(super) struct Freed<T> {
    root: Arc<[Branch<T>]>,
    /// The number of chunks that the iterator has not visited yet.
    left: usize,
    /// The empty chunk and the empty branch that replace freed ones.
    empty: (Chunk<T>, Branch<T>),
}

impl<T> From<Chunks<T>> for Freed<T> {
    fn from(chunks: Chunks<T>) -> Self {
        Self { root: chunks.root, left: chunks.len, empty: Default::default() }
    }
}

impl<T> Iterator for Freed<T> {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        self.left = self.left.checked_sub(1)?;
        let (branch, at) = (self.left / BRANCH_LEN, self.left % BRANCH_LEN);
        let Some(branches) = Arc::get_mut(&mut self.root) else {
            self.left = 0;
            return None;
        };
        match Arc::get_mut(&mut branches[branch]) {
            Some(chunks) => chunks[at] = Arc::clone(&self.empty.0),
            None => self.left -= at,
        }
        if self.left.is_multiple_of(BRANCH_LEN) {
            branches[branch] = Arc::clone(&self.empty.1);
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NUMBERS: PlaceLen = PlaceLen { len_bytes: 8, align: 8, chunk_len_bytes_max: 64 };

    /// Returns chunks with the numbers from 0 to `len`, for tests.
    fn numbers(len: u32) -> Chunks<u64> {
        let mut chunks = Chunks::new(NUMBERS);
        for number in 0..len {
            let (chunk, at) = chunks.split(number);
            chunks.extend(chunk, (at + 1, chunks.places_of_chunk()), 0);
            chunks.get_mut(chunk)[at] = number.into();
        }
        chunks
    }

    fn sum(chunks: &Chunks<u64>) -> u64 {
        (0..).map_while(|chunk| chunks.find(chunk)).flatten().sum()
    }

    #[test]
    fn divisions_are_exact() {
        for divisor in 2..200 {
            let split = Divisor::new(divisor);
            let near = |number: u32| (0..4).map(move |by| number.wrapping_add(by).wrapping_sub(2));
            for number in (0..32).flat_map(|bits| near(1 << bits)).chain(near(u32::MAX)).chain(0..5000) {
                assert_eq!(split.split(number), ((number / divisor) as usize, (number % divisor) as usize));
            }
        }
    }

    #[test]
    fn chunks_fill_their_blocks() {
        for len_bytes in [4, 16, 56, 128, 132, 512, 772, 3072, 4096, 16384, 100_000, 262_144] {
            for align in [4, 64] {
                let place = PlaceLen { len_bytes, align, chunk_len_bytes_max: 32 << 10 };
                let places = place.places_of_chunk();
                let header = HEADER_LEN_BYTES.next_multiple_of(align);
                let memory = counted_bytes((places * len_bytes).next_multiple_of(align) + header);
                assert!(memory <= 32 << 10 || places <= LONG_PLACES_MAX && memory <= LONG_LEN_BYTES_MAX);
                let per_place = memory / places;
                assert!(per_place <= len_bytes + len_bytes / 16 + 4, "{len_bytes}: {places} of {per_place}");
            }
        }
    }

    #[test]
    fn a_writer_copies_only_what_is_shared() {
        let len = 6000;
        let mut chunks = numbers(len);
        let whole = u64::from(len * (len - 1) / 2);
        let before = chunks.get(150).as_ptr();
        chunks.get_mut(150)[0] += 1;
        assert_eq!((chunks.get(150).as_ptr(), sum(&chunks)), (before, whole + 1));
        let pinned = chunks.clone();
        chunks.get_mut(150)[0] += 1;
        chunks.get_mut(150)[0] += 1;
        assert_ne!(chunks.get(150).as_ptr(), before);
        assert_eq!((pinned.get(150).as_ptr(), chunks.get(149).as_ptr()), (before, pinned.get(149).as_ptr()));
        assert_eq!((sum(&pinned), sum(&chunks)), (whole + 1, whole + 3));
        let (chunk, at) = chunks.split(len);
        chunks.extend(chunk, (at + 1, chunks.places_of_chunk()), 9);
        assert_eq!(sum(&pinned), whole + 1);
    }

    #[test]
    fn freeing_visits_each_chunk_and_leaves_shared_ones() {
        let chunks = numbers(6000);
        let count = chunks.len;
        let mut pinned = chunks.clone();
        assert_eq!(Freed::from(chunks).count(), 0);
        let mut chunks = pinned.clone();
        chunks.get_mut(70)[0] += 1;
        assert!((1..=BRANCH_LEN + count / BRANCH_LEN + 1).contains(&Freed::from(chunks).count()));
        assert_eq!(sum(&pinned), 3000 * 5999);
        assert_eq!(Arc::strong_count(&pinned.branch_mut(1)[6]), 1);
        let mut steps = Freed::from(pinned);
        assert_eq!(steps.by_ref().take(100).count(), 100);
        assert_eq!(steps.count(), count - 100);
    }
}
