//! Memory that grows by chunks of 256 places, so that growth never copies all of it.
//!
//! A place is a number. Its chunk is found by a shift; the directory of chunks is a short vector,
//! which stays in the cache. The first chunk grows as a vector does, the others are allocated
//! whole.

use super::NONE;

/// The number of places of a chunk, as a power of two.
const CHUNK_BITS: u32 = 8;
const CHUNK_LEN: usize = 1 << CHUNK_BITS;

#[inline]
fn split(place: u32) -> (usize, usize) {
    ((place >> CHUNK_BITS) as usize, place as usize % CHUNK_LEN)
}

/// Chunks of items, of which each place has the same number.
#[derive(Clone, Debug)]
struct Growing<T> {
    chunks: Vec<Vec<T>>,
}

impl<T: Clone> Growing<T> {
    /// Makes the chunk of the last place `len` items long. A full chunk has `whole` items.
    fn extend(&mut self, chunk: usize, len: usize, whole: usize, fill: T) {
        if self.chunks.len() == chunk {
            self.chunks.push(Vec::new());
        }
        let items = &mut self.chunks[chunk];
        if items.capacity() < len {
            let capacity = if chunk > 0 { whole } else { (items.capacity() * 2).clamp(len, whole.max(len)) };
            items.reserve_exact(capacity - items.len());
        }
        items.resize(len, fill);
    }

    fn memory_usage(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<T>>()
            + self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<T>()).sum::<usize>()
    }
}

/// Single items.
#[derive(Clone, Debug)]
pub(super) struct Items<T> {
    chunks: Growing<Option<T>>,
    len: usize,
}

impl<T: Clone> Items<T> {
    /// Creates an arena without places.
    pub(super) fn new() -> Self {
        Self { chunks: Growing { chunks: Vec::new() }, len: 0 }
    }

    /// Returns the number of places.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the item at `place`, `None` if it is free.
    #[inline]
    pub(super) fn get(&self, place: u32) -> Option<&T> {
        let (chunk, at) = split(place);
        self.chunks.chunks.get(chunk)?.get(at)?.as_ref()
    }

    /// Returns the item at `place`, which must not be free, for writing.
    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> &mut T {
        let (chunk, at) = split(place);
        self.chunks.chunks[chunk][at].as_mut().expect("the caller names a place in use")
    }

    /// Puts an item into a free place.
    pub(super) fn set(&mut self, place: u32, item: T) {
        let (chunk, at) = split(place);
        self.chunks.chunks[chunk][at] = Some(item);
    }

    /// Frees a place and returns its item.
    pub(super) fn take(&mut self, place: u32) -> T {
        let (chunk, at) = split(place);
        self.chunks.chunks[chunk][at].take().expect("the caller names a place in use")
    }

    /// Adds a free place and returns it.
    pub(super) fn push(&mut self) -> u32 {
        let place = u32::try_from(self.len).expect("the index limits the number of places");
        let (chunk, at) = split(place);
        self.chunks.extend(chunk, at + 1, CHUNK_LEN, None);
        self.len += 1;
        place
    }

    /// Returns the memory of the places in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        self.chunks.memory_usage()
    }
}

/// A cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Rows of bytes of one length. The first row of a chunk begins at a cache line.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    row_len_bytes: usize,
    len: usize,
    chunks: Growing<Line>,
}

/// Returns the bytes of cache lines.
#[inline]
fn bytes(lines: &[Line]) -> &[u8] {
    // SAFETY: a line is 64 bytes without gaps, and bytes need no alignment.
    unsafe { std::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
}

/// Returns the bytes of cache lines, for writing.
fn bytes_mut(lines: &mut [Line]) -> &mut [u8] {
    // SAFETY: as in `bytes`, and any bytes are a line.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), size_of_val(lines)) }
}

impl Rows {
    /// Creates an arena without rows.
    pub(super) fn new(row_len_bytes: usize) -> Self {
        Self { row_len_bytes, len: 0, chunks: Growing { chunks: Vec::new() } }
    }

    /// Adds a row of zeros.
    pub(super) fn push(&mut self) {
        let (chunk, at) = split(self.len as u32);
        let lines = |rows: usize| (rows * self.row_len_bytes).div_ceil(size_of::<Line>());
        self.chunks.extend(chunk, lines(at + 1), lines(CHUNK_LEN), Line([0; 64]));
        self.len += 1;
    }

    /// Returns a row.
    #[inline]
    pub(super) fn get(&self, place: u32) -> &[u8] {
        let (chunk, at) = split(place);
        &bytes(&self.chunks.chunks[chunk])[at * self.row_len_bytes..][..self.row_len_bytes]
    }

    /// Returns a row for writing.
    pub(super) fn get_mut(&mut self, place: u32) -> &mut [u8] {
        let (chunk, at) = split(place);
        &mut bytes_mut(&mut self.chunks.chunks[chunk])[at * self.row_len_bytes..][..self.row_len_bytes]
    }

    /// Returns the memory of the rows in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        self.chunks.memory_usage()
    }
}

/// Lists of links, each a row of one width that [`NONE`] ends.
#[derive(Clone, Debug)]
pub(super) struct Lists {
    /// The length of a list that is never exceeded.
    limit: usize,
    /// The width of a row, a power of two or the limit. It doubles when a longer list is needed.
    width: usize,
    len: usize,
    chunks: Growing<u32>,
}

/// The width of the first rows.
const WIDTH_MIN: usize = 8;

impl Lists {
    /// Creates an arena without lists.
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, width: limit.min(WIDTH_MIN), len: 0, chunks: Growing { chunks: Vec::new() } }
    }

    /// Adds an empty list.
    pub(super) fn push(&mut self) {
        let (chunk, at) = split(self.len as u32);
        self.chunks.extend(chunk, (at + 1) * self.width, CHUNK_LEN * self.width, NONE);
        self.len += 1;
    }

    /// Returns the row of a list: its links, then [`NONE`].
    #[inline]
    pub(super) fn row(&self, place: u32) -> &[u32] {
        let (chunk, at) = split(place);
        &self.chunks.chunks[chunk][at * self.width..][..self.width]
    }

    /// Returns a list.
    #[inline]
    pub(super) fn get(&self, place: u32) -> &[u32] {
        let row = self.row(place);
        &row[..row.iter().position(|link| *link == NONE).unwrap_or(row.len())]
    }

    fn row_mut(&mut self, place: u32) -> &mut [u32] {
        let (chunk, at) = split(place);
        &mut self.chunks.chunks[chunk][at * self.width..][..self.width]
    }

    /// Adds a link to a list that is shorter than the limit.
    pub(super) fn add(&mut self, place: u32, link: u32) {
        let len = self.get(place).len();
        assert!(len < self.limit, "the caller checks the limit of links");
        if len == self.width {
            self.widen();
        }
        self.row_mut(place)[len] = link;
    }

    /// Removes a link, which the list must have.
    pub(super) fn remove(&mut self, place: u32, link: u32) {
        let len = self.get(place).len();
        let row = self.row_mut(place);
        let at = row.iter().position(|other| *other == link).expect("links are symmetric");
        row[at] = row[len - 1];
        row[len - 1] = NONE;
    }

    /// Empties a list.
    pub(super) fn clear(&mut self, place: u32) {
        self.row_mut(place).fill(NONE);
    }

    /// Doubles the width of all rows. Happens a few times while an index is small.
    fn widen(&mut self) {
        let mut wide = Self { width: (self.width * 2).min(self.limit), ..Self::new(self.limit) };
        for place in 0..self.len as u32 {
            wide.push();
            wide.row_mut(place)[..self.width].copy_from_slice(self.row(place));
        }
        *self = wide;
    }

    /// Returns the memory of the lists in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        self.chunks.memory_usage()
    }
}
