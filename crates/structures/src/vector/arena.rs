//! Places of nodes, and what belongs to each: an item, a row of bytes, a list of links.
//!
//! A place is a number. All are in versioned chunks, so a copy of an index shares them until one
//! of both changes.

use super::NONE;
use super::chunks::{Chunks, Freed, PlaceLen};

/// The length in bytes up to which the number of items of a chunk is chosen so that it fills its
/// memory block best. A writer beside a search copies the texts of a chunk one by one.
const ITEMS_LEN_BYTES_MAX: usize = 2 << 10;
/// The length in bytes as [`ITEMS_LEN_BYTES_MAX`], for chunks of rows. A writer changes one row
/// only, so a chunk of rows may be long.
const ROWS_LEN_BYTES_MAX: usize = 128 << 10;
/// The length in bytes as [`ITEMS_LEN_BYTES_MAX`], for chunks of lists. A writer changes dozens of
/// lists, in different chunks.
const LISTS_LEN_BYTES_MAX: usize = 8 << 10;

/// A place of the arena [`Items`]: an item, or free.
#[derive(Clone, Debug)]
enum Place<T> {
    Used(T),
    /// The place is free; contains the place that was freed before it.
    Free(u32),
}

/// An arena of single items in numbered places. The free places are a chain.
#[derive(Clone, Debug)]
pub(super) struct Items<T> {
    chunks: Chunks<Place<T>>,
    len: usize,
    /// The number of the place that was freed last.
    free: u32,
}

impl<T: Clone> Items<T> {
    /// Creates an arena of items without places.
    pub(super) fn new() -> Self {
        let place = PlaceLen {
            len_bytes: size_of::<Place<T>>(),
            align: align_of::<Place<T>>(),
            chunk_len_bytes_max: ITEMS_LEN_BYTES_MAX,
        };
        Self { chunks: Chunks::new(place), len: 0, free: NONE }
    }

    /// Returns the number of places of the arena, free ones included.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the item at `place`; `None` if the place is free.
    #[inline]
    pub(super) fn get(&self, place: u32) -> Option<&T> {
        let (chunk, at) = self.chunks.split(place);
        match self.chunks.find(chunk)?.get(at)? {
            Place::Used(item) => Some(item),
            Place::Free(_) => None,
        }
    }

    #[inline]
    fn place_mut(&mut self, place: u32) -> &mut Place<T> {
        let (chunk, at) = self.chunks.split(place);
        &mut self.chunks.get_mut(chunk)[at]
    }

    /// Borrows the item at `place`, which must not be free, mutably.
    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> &mut T {
        match self.place_mut(place) {
            Place::Used(item) => item,
            Place::Free(_) => panic!("the caller names a place in use"),
        }
    }

    /// Puts an item into the place that was freed last, and returns the number of the place.
    /// Returns the item as an error if no place is free.
    pub(super) fn reuse(&mut self, item: T) -> Result<u32, T> {
        let place = self.free;
        if place == NONE {
            return Err(item);
        }
        match std::mem::replace(self.place_mut(place), Place::Used(item)) {
            Place::Free(next) => self.free = next,
            Place::Used(_) => panic!("the chain has free places only"),
        }
        Ok(place)
    }

    /// Frees a place of the arena and returns its item.
    pub(super) fn take(&mut self, place: u32) -> T {
        let freed = Place::Free(self.free);
        match std::mem::replace(self.place_mut(place), freed) {
            Place::Used(item) => {
                self.free = place;
                item
            }
            Place::Free(_) => panic!("the caller names a place in use"),
        }
    }

    /// Adds a place with an item to the arena, and returns the number of the place.
    pub(super) fn push(&mut self, item: T) -> u32 {
        let place = u32::try_from(self.len).expect("the index limits the number of places");
        let (chunk, at) = self.chunks.split(place);
        self.chunks.extend(chunk, (at + 1, self.chunks.places_of_chunk()), Place::Free(NONE));
        *self.place_mut(place) = Place::Used(item);
        self.len += 1;
        place
    }

    /// Counts the free places of the arena by following their chain, O(n). For tests.
    pub(super) fn free_len(&self) -> usize {
        let mut places = std::iter::successors(Some(self.free), |place| {
            let (chunk, at) = self.chunks.split(*place);
            match self.chunks.find(chunk)?.get(at)? {
                Place::Free(next) => Some(*next),
                Place::Used(_) => panic!("the chain has free places only"),
            }
        });
        places.by_ref().take_while(|place| *place != NONE).count()
    }

    /// Converts the arena of items to an iterator that frees it in steps.
    pub(super) fn into_freed(self) -> impl Iterator<Item = ()> + Send
    where
        T: Send + Sync,
    {
        Freed::from(self.chunks)
    }

    /// Returns the memory of the arena's places in bytes. O(n).
    pub(super) fn memory_usage(&self) -> usize {
        self.chunks.memory_usage()
    }
}

/// A cache line of 64 bytes, with its alignment.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// An arena of rows of bytes, all of one length. The first row of a chunk begins at a cache line.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    row_len_bytes: usize,
    len: usize,
    chunks: Chunks<Line>,
}

/// Borrows cache lines as bytes.
#[inline]
fn bytes(lines: &[Line]) -> &[u8] {
    // SAFETY: a line is 64 bytes without gaps, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

/// Borrows cache lines as bytes, mutably.
fn bytes_mut(lines: &mut [Line]) -> &mut [u8] {
    // SAFETY: as in `bytes`, and any bytes are a line.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}

impl Rows {
    /// Creates an arena without rows, for rows of `row_len_bytes` bytes.
    pub(super) fn new(row_len_bytes: usize) -> Self {
        let place = PlaceLen {
            len_bytes: row_len_bytes,
            align: align_of::<Line>(),
            chunk_len_bytes_max: ROWS_LEN_BYTES_MAX,
        };
        Self { row_len_bytes, len: 0, chunks: Chunks::new(place) }
    }

    /// Adds a row of zeros to the arena, at the next place.
    pub(super) fn push(&mut self) {
        let (chunk, at) = self.chunks.split(self.len as u32);
        let lines = |rows: usize| (rows * self.row_len_bytes).div_ceil(size_of::<Line>());
        let len = (lines(at + 1), lines(self.chunks.places_of_chunk()));
        self.chunks.extend(chunk, len, Line([0; 64]));
        self.len += 1;
    }

    /// Borrows the bytes of the node's row at `place`.
    #[inline]
    pub(super) fn get(&self, place: u32) -> &[u8] {
        let (chunk, at) = self.chunks.split(place);
        &bytes(self.chunks.get(chunk))[at * self.row_len_bytes..][..self.row_len_bytes]
    }

    /// Borrows the bytes of the node's row at `place` mutably.
    pub(super) fn get_mut(&mut self, place: u32) -> &mut [u8] {
        let (chunk, at) = self.chunks.split(place);
        &mut bytes_mut(self.chunks.get_mut(chunk))[at * self.row_len_bytes..][..self.row_len_bytes]
    }

    /// Converts the arena of rows to an iterator that frees it in steps.
    pub(super) fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        Freed::from(self.chunks)
    }

    /// Returns the memory of the arena's rows in bytes. O(n).
    pub(super) fn memory_usage(&self) -> usize {
        self.chunks.memory_usage()
    }
}

/// An arena of lists of links. Each is in a row of one width, and [`NONE`] ends it.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    /// The largest number of links that a list can have.
    limit: usize,
    /// The number of links for which a row has room: a power of two, or the limit. It doubles when
    /// a longer list is needed.
    width: usize,
    len: usize,
    chunks: Chunks<u32>,
}

/// The number of links for which the first rows of the arena have room.
const WIDTH_MIN: usize = 8;

impl Lists {
    /// Creates an arena without lists, for lists of at most `limit` links.
    pub(super) fn new(limit: usize) -> Self {
        Self::with_width(limit, limit.min(WIDTH_MIN))
    }

    fn with_width(limit: usize, width: usize) -> Self {
        let place = PlaceLen {
            len_bytes: width * size_of::<u32>(),
            align: align_of::<u32>(),
            chunk_len_bytes_max: LISTS_LEN_BYTES_MAX,
        };
        Self { limit, width, len: 0, chunks: Chunks::new(place) }
    }

    /// Adds an empty list to the arena, at the next place.
    pub(super) fn push(&mut self) {
        let (chunk, at) = self.chunks.split(self.len as u32);
        let len = ((at + 1) * self.width, self.chunks.places_of_chunk() * self.width);
        self.chunks.extend(chunk, len, NONE);
        self.len += 1;
    }

    /// Borrows the row of the list at `place`: its links, then [`NONE`].
    #[inline]
    pub(super) fn row(&self, place: u32) -> &[u32] {
        let (chunk, at) = self.chunks.split(place);
        &self.chunks.get(chunk)[at * self.width..][..self.width]
    }

    /// Borrows the links in the list of the node at `place`.
    #[inline]
    pub(super) fn get(&self, place: u32) -> &[u32] {
        let row = self.row(place);
        &row[..row.iter().position(|link| *link == NONE).unwrap_or(row.len())]
    }

    fn row_mut(&mut self, place: u32) -> &mut [u32] {
        let (chunk, at) = self.chunks.split(place);
        &mut self.chunks.get_mut(chunk)[at * self.width..][..self.width]
    }

    /// Adds a link to the list of the node at `place`, which must be shorter than the limit.
    pub(super) fn add(&mut self, place: u32, link: u32) {
        let len = self.get(place).len();
        assert!(len < self.limit, "the caller checks the limit of links");
        if len == self.width {
            self.widen();
        }
        self.row_mut(place)[len] = link;
    }

    /// Removes a link from the list of the node at `place`, which must have the link.
    pub(super) fn remove(&mut self, place: u32, link: u32) {
        let len = self.get(place).len();
        let row = self.row_mut(place);
        let at = row.iter().position(|other| *other == link).expect("links are symmetric");
        row[at] = row[len - 1];
        row[len - 1] = NONE;
    }

    /// Removes all links from the list of the node at `place`.
    pub(super) fn clear(&mut self, place: u32) {
        self.row_mut(place).fill(NONE);
    }

    /// Doubles the width of all rows of the arena. Happens a few times while an index is small.
    fn widen(&mut self) {
        let mut wide = Self::with_width(self.limit, (self.width * 2).min(self.limit));
        for place in 0..self.len as u32 {
            wide.push();
            wide.row_mut(place)[..self.width].copy_from_slice(self.row(place));
        }
        *self = wide;
    }

    /// Converts the arena of lists to an iterator that frees it in steps.
    pub(super) fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        Freed::from(self.chunks)
    }

    /// Returns the memory of the arena's lists in bytes. O(n).
    pub(super) fn memory_usage(&self) -> usize {
        self.chunks.memory_usage()
    }
}
