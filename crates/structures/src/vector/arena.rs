//! Memory that grows by chunks of 256 places, so that growth never copies all of it.

/// The number of places of a chunk, as a power of two.
const CHUNK_BITS: u32 = 8;
const CHUNK_LEN: usize = 1 << CHUNK_BITS;

fn split(place: u32) -> (usize, usize) {
    ((place >> CHUNK_BITS) as usize, place as usize % CHUNK_LEN)
}

/// Items in chunks. A place is the number of an item.
#[derive(Clone, Debug)]
pub(super) struct Chunks<T> {
    chunks: Vec<Vec<T>>,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> Chunks<T> {
    /// Returns the number of places.
    pub(super) fn len(&self) -> usize {
        self.chunks.last().map_or(0, |last| (self.chunks.len() - 1) * CHUNK_LEN + last.len())
    }

    /// Returns the item at `place`.
    #[inline]
    pub(super) fn get(&self, place: u32) -> &T {
        let (chunk, at) = split(place);
        &self.chunks[chunk][at]
    }

    /// Returns the item at `place` for writing.
    #[inline]
    pub(super) fn get_mut(&mut self, place: u32) -> &mut T {
        let (chunk, at) = split(place);
        &mut self.chunks[chunk][at]
    }

    /// Adds an item after the last one and returns its place. The first chunk grows as a vector; the others are
    /// allocated at once.
    pub(super) fn push(&mut self, item: T) -> u32 {
        let place = self.len();
        match self.chunks.last_mut() {
            Some(last) if last.len() < CHUNK_LEN => last.push(item),
            Some(_) => {
                let mut chunk = Vec::with_capacity(CHUNK_LEN);
                chunk.push(item);
                self.chunks.push(chunk);
            }
            None => self.chunks.push(vec![item]),
        }
        u32::try_from(place).expect("the index limits the number of places")
    }

    /// Returns the memory of the chunks in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        self.chunks.capacity() * size_of::<Vec<T>>()
            + self.chunks.iter().map(|chunk| chunk.capacity() * size_of::<T>()).sum::<usize>()
    }
}

/// Rows of bytes of one length.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    row_len_bytes: usize,
    rows: Chunks<Box<[u8]>>,
}

impl Rows {
    /// Creates an arena without rows.
    pub(super) fn new(row_len_bytes: usize) -> Self {
        Self { row_len_bytes, rows: Chunks::default() }
    }

    /// Adds a row of zeros.
    pub(super) fn push(&mut self) {
        self.rows.push(vec![0; self.row_len_bytes].into());
    }

    /// Returns a row.
    #[inline]
    pub(super) fn get(&self, place: u32) -> &[u8] {
        self.rows.get(place)
    }

    /// Returns a row for writing.
    pub(super) fn get_mut(&mut self, place: u32) -> &mut [u8] {
        self.rows.get_mut(place)
    }

    /// Returns the memory of the rows in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        self.rows.memory_usage() + self.rows.len() * self.row_len_bytes
    }
}
