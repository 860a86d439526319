//! Listpack: a short list of strings and integers in one block of memory, in Redis' format.
//!
//! ```text
//!   total bytes u32 LE | elements u16 LE | element … element | FF
//! ```
//! Elements (see [`element`]) can be read in both directions. The bytes in memory *are* the format,
//! so writing a listpack to a dump is a copy. The element count is exact up to 65,534. A count of
//! 65,535 means that the elements must be counted.
//!
//! The block is always exactly as long as its content. An edit is one reallocation, which the
//! allocator serves in place within a size class, and one move of the bytes after the edit. Edits
//! cost O(bytes after it) and searching O(elements), so a listpack is for short lists. The owner
//! converts a growing list to another structure at a limit.
//!
//! Invariant: the bytes are a valid listpack; [`Listpack::from_bytes`] rejects all other bytes.
//! Growing beyond 1 GiB is refused with [`PackFull`], so that offsets stay far below the format's
//! limit of 4 GiB.
//!
//! Memory: 16 bytes for the handle, `Option` included, plus the block.
//!
//! Source: the listpack description in the Redis source tree.

pub mod element;

use crate::pack_error::{PackError, PackErrorKind, PackFull};
use crate::size_class::size_class;
use element::{Element, Encoded, Needle, parse_canonical_int};

/// The number of bytes of a listpack before its first element.
pub const HEADER_LEN_BYTES: usize = 6;
/// The bytes of a listpack besides its elements: header and terminator.
pub const OVERHEAD_LEN_BYTES: usize = HEADER_LEN_BYTES + 1;
/// The greatest length of a listpack's block in bytes. An edit beyond it fails.
pub const LEN_BYTES_MAX: usize = 1 << 30;

const TERMINATOR: u8 = 0xFF;
/// The element count in a listpack's header that stands for 65,535 and more elements: they must be
/// counted.
const COUNT_UNKNOWN: u16 = u16::MAX;

/// The place of an element in a listpack, or the end. Valid until the listpack is edited before
/// that place. Each edit documents the element to which its own cursor refers afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor(u32);

impl Cursor {
    /// The place of the listpack's first element, or the end of an empty listpack.
    pub const START: Self = Self(0);

    fn new(at: usize) -> Self {
        Self(u32::try_from(at).expect("a listpack is shorter than 4 GiB"))
    }

    fn at(self) -> usize {
        self.0 as usize
    }
}

/// A list of strings and integers in one block. See the module's documentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listpack {
    bytes: Box<[u8]>,
}

impl Default for Listpack {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the header of a listpack of `count` elements that take `run_len_bytes` together.
///
/// A run of elements between this header and [`terminator`] is a listpack.
pub fn header(run_len_bytes: usize, count: usize) -> [u8; HEADER_LEN_BYTES] {
    let total = u32::try_from(run_len_bytes + OVERHEAD_LEN_BYTES).expect("shorter than 4 GiB");
    let count = u16::try_from(count).unwrap_or(COUNT_UNKNOWN);
    let mut header = [0; HEADER_LEN_BYTES];
    header[..4].copy_from_slice(&total.to_le_bytes());
    header[4..].copy_from_slice(&count.to_le_bytes());
    header
}

/// Returns the byte that ends every listpack.
pub const fn terminator() -> [u8; 1] {
    [TERMINATOR]
}

impl Listpack {
    /// Creates an empty listpack. One allocation.
    pub fn new() -> Self {
        Self::from_run(&[], 0)
    }

    /// Creates a listpack of the `count` elements in `run`, which has neither header nor
    /// terminator.
    pub(crate) fn from_run(run: &[u8], count: usize) -> Self {
        let mut bytes = Vec::with_capacity(run.len() + OVERHEAD_LEN_BYTES);
        bytes.extend_from_slice(&header(run.len(), count));
        bytes.extend_from_slice(run);
        bytes.push(TERMINATOR);
        Self { bytes: bytes.into_boxed_slice() }
    }

    /// Creates a listpack of `bytes` from a dump or another server, without copying them. They need
    /// not be trusted: everything is checked. O(elements).
    ///
    /// # Errors
    /// The kind and the place of the first fault, if `bytes` are not a complete and exact listpack.
    pub fn from_bytes(bytes: Box<[u8]>) -> Result<Self, PackError> {
        let error = |at, kind| Err(PackError { at, kind });
        if bytes.len() < OVERHEAD_LEN_BYTES {
            return error(bytes.len(), PackErrorKind::TooShort);
        }
        let end = bytes.len() - 1;
        let total = u32::from_le_bytes(*bytes.first_chunk().expect("longer than a header"));
        if total as usize != bytes.len() {
            return error(0, PackErrorKind::WrongLength);
        }
        if bytes[end] != TERMINATOR {
            return error(end, PackErrorKind::NoTerminator);
        }
        let listpack = Self { bytes };
        match element::validate(listpack.run()) {
            Err(at) => error(HEADER_LEN_BYTES + at, PackErrorKind::BrokenElement),
            Ok(count) => match listpack.stored_count() {
                COUNT_UNKNOWN => Ok(listpack),
                stored if usize::from(stored) == count => Ok(listpack),
                _ => error(4, PackErrorKind::WrongCount),
            },
        }
    }

    /// Borrows the listpack's block, which is in Redis' format. O(1).
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the listpack's block, which is in Redis' format, without copying. O(1).
    pub fn into_bytes(self) -> Box<[u8]> {
        self.bytes
    }

    /// Returns the length of the listpack's block in bytes, header and terminator included. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes that the listpack has allocated, without the [`Listpack`] itself. O(1).
    pub fn memory_usage(&self) -> usize {
        size_class(self.bytes.len())
    }

    /// Returns the number of elements in the listpack. O(1) up to 65,534, O(n) above.
    #[inline]
    pub fn len(&self) -> usize {
        match self.stored_count() {
            COUNT_UNKNOWN => element::count(self.run()),
            count => usize::from(count),
        }
    }

    /// Returns true if the listpack has no elements. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.len() == OVERHEAD_LEN_BYTES
    }

    /// Returns true if an edit that adds strings of `text_len_bytes` in total is sure to succeed.
    /// Valid for up to 100 strings. O(1).
    pub fn fits(&self, text_len_bytes: usize) -> bool {
        // The head and back length of an element take at most 10 bytes together.
        self.bytes.len().saturating_add(text_len_bytes).saturating_add(1024) <= LEN_BYTES_MAX
    }

    /// Borrows the bytes of the listpack's elements, without header and terminator.
    #[inline]
    pub(crate) fn run(&self) -> &[u8] {
        &self.bytes[HEADER_LEN_BYTES..self.bytes.len() - 1]
    }

    fn stored_count(&self) -> u16 {
        u16::from_le_bytes([self.bytes[4], self.bytes[5]])
    }

    // Cursors and iterators.

    /// Returns the first element's place; `None` if the listpack is empty. O(1).
    #[inline]
    pub fn first(&self) -> Option<Cursor> {
        (!self.is_empty()).then_some(Cursor(0))
    }

    /// Returns the last element's place; `None` if the listpack is empty. O(1).
    #[inline]
    pub fn last(&self) -> Option<Cursor> {
        element::last_start(self.run()).map(Cursor::new)
    }

    /// Returns the place after the last element. An insertion there appends. O(1).
    #[inline]
    pub fn end(&self) -> Cursor {
        Cursor::new(self.run().len())
    }

    /// Returns the place of the element after the one at `cursor`; `None` if there is none. O(1).
    #[inline]
    pub fn next(&self, cursor: Cursor) -> Option<Cursor> {
        let run = self.run();
        let (_, len) = element::decode(run.get(cursor.at()..)?)?;
        let at = cursor.at() + len;
        (at < run.len()).then(|| Cursor::new(at))
    }

    /// Returns the place of the element before `cursor`, which may be the end. `None` at the start.
    /// O(1).
    #[inline]
    pub fn prev(&self, cursor: Cursor) -> Option<Cursor> {
        element::last_start(self.run().get(..cursor.at())?).map(Cursor::new)
    }

    /// Returns the place of the element at `index`; `None` beyond the last. Starts at the nearer
    /// end: O(distance).
    pub fn seek(&self, index: usize) -> Option<Cursor> {
        let count = self.len();
        (index < count).then(|| Cursor::new(element::seek(self.run(), count, index)))
    }

    /// Returns the element at `cursor`; `None` at the end. O(1).
    #[inline]
    pub fn get(&self, cursor: Cursor) -> Option<Element<'_>> {
        let (element, _) = element::decode(self.run().get(cursor.at()..)?)?;
        Some(element)
    }

    /// Returns the element at `cursor` and the place after it, which may be the end. `None` at the
    /// end. O(1).
    #[inline]
    pub fn get_and_next(&self, cursor: Cursor) -> Option<(Element<'_>, Cursor)> {
        let (element, len) = element::decode(self.run().get(cursor.at()..)?)?;
        Some((element, Cursor::new(cursor.at() + len)))
    }

    /// Returns the listpack's element at `index`; `None` beyond the last. Starts at the nearer end:
    /// O(distance).
    pub fn at_index(&self, index: usize) -> Option<Element<'_>> {
        self.get(self.seek(index)?)
    }

    /// Returns a double-ended iterator over all elements of the listpack.
    #[inline]
    pub fn iter(&self) -> Iter<'_> {
        Iter { run: self.run() }
    }

    /// Returns a double-ended iterator over the element at `cursor` and those after it.
    #[inline]
    pub fn iter_from(&self, cursor: Cursor) -> Iter<'_> {
        Iter { run: self.run().get(cursor.at()..).unwrap_or_default() }
    }

    /// Returns a double-ended iterator over the elements before `cursor`. With `rev`, it starts at
    /// the element next to `cursor`.
    #[inline]
    pub fn iter_before(&self, cursor: Cursor) -> Iter<'_> {
        Iter { run: self.run().get(..cursor.at()).unwrap_or_default() }
    }

    /// Returns a double-ended iterator over the elements from `start` up to, but not including,
    /// `end`.
    #[inline]
    pub fn iter_between(&self, start: Cursor, end: Cursor) -> Iter<'_> {
        Iter { run: self.run().get(start.at()..end.at()).unwrap_or_default() }
    }

    /// Finds the first element of the listpack equal to `bytes`. Compares the element at `from` and
    /// later ones, and skips `skipped` elements after each comparison. With `skipped` 1, only the
    /// fields of field-value pairs are compared. O(n).
    pub fn find(&self, from: Cursor, bytes: &[u8], skipped: usize) -> Option<Cursor> {
        let run = self.run();
        if from.at() > run.len() {
            return None;
        }
        element::find(run, from.at(), Needle::new(bytes), skipped).map(Cursor::new)
    }

    /// Returns true if no two of the listpack's compared elements have the same text. Compares the
    /// first element and later ones, and skips `skipped` elements after each. With `skipped` 1,
    /// only the fields of field-value pairs are compared. Needed for a listpack from an untrusted
    /// source. O(n log n) time and 24 bytes an element.
    pub fn are_distinct(&self, skipped: usize) -> bool {
        let mut texts: Vec<Result<i64, &[u8]>> = Vec::new();
        texts.extend(self.iter().step_by(skipped + 1).map(|element| match element {
            Element::Int(value) => Ok(value),
            // Other programs may have stored an integer as a string.
            Element::Bytes(bytes) => parse_canonical_int(bytes).ok_or(bytes),
        }));
        texts.sort_unstable();
        texts.array_windows().all(|[one, next]| one != next)
    }

    // Editing.

    /// Appends an element to the listpack. O(its bytes).
    ///
    /// # Errors
    /// [`PackFull`] if the listpack would exceed 1 GiB, as in every method that inserts.
    #[inline]
    pub fn push_back<'e>(&mut self, element: impl Into<Element<'e>>) -> Result<(), PackFull> {
        self.insert(self.end(), element)
    }

    /// Inserts an element before all others of the listpack. O(bytes).
    ///
    /// # Errors
    /// [`PackFull`] if the listpack would exceed 1 GiB.
    pub fn push_front<'e>(&mut self, element: impl Into<Element<'e>>) -> Result<(), PackFull> {
        self.insert(Cursor(0), element)
    }

    /// Appends `elements` to the listpack in order, in one reallocation. O(their bytes).
    ///
    /// # Errors
    /// [`PackFull`] if the listpack would exceed 1 GiB; then nothing is appended.
    pub fn extend_back(&mut self, elements: &[Element<'_>]) -> Result<(), PackFull> {
        self.insert_many(self.end(), elements)
    }

    /// Inserts an element into the listpack before the one at `cursor`. `cursor` is then the new
    /// element's place. O(bytes after it).
    ///
    /// # Errors
    /// [`PackFull`] if the listpack would exceed 1 GiB.
    pub fn insert<'e>(&mut self, cursor: Cursor, element: impl Into<Element<'e>>) -> Result<(), PackFull> {
        self.insert_one(cursor, element.into())
    }

    fn insert_one(&mut self, cursor: Cursor, element: Element<'_>) -> Result<(), PackFull> {
        let taken = element_fits(element)?;
        let count = self.stored_count();
        self.splice(cursor.at(), 0, std::iter::once(Encoded::new(taken)))?;
        self.store_count(count.saturating_add(1));
        Ok(())
    }

    /// Inserts `elements` in order before the one at `cursor`. `cursor` is then the place of the
    /// first of them. One reallocation, O(bytes after it).
    ///
    /// # Errors
    /// [`PackFull`] if the listpack would exceed 1 GiB; then nothing is inserted.
    pub fn insert_many(&mut self, cursor: Cursor, elements: &[Element<'_>]) -> Result<(), PackFull> {
        self.insert_iter(cursor, elements.iter().copied())
    }

    /// Inserts the elements of an iterator before the one at `cursor`, like
    /// [`Listpack::insert_many`]. The iterator is read three times.
    ///
    /// # Errors
    /// [`PackFull`] if the listpack would exceed 1 GiB; then nothing is inserted.
    pub fn insert_iter<'e>(
        &mut self,
        cursor: Cursor,
        elements: impl Iterator<Item = Element<'e>> + Clone,
    ) -> Result<(), PackFull> {
        let mut count = usize::from(self.stored_count());
        for element in elements.clone() {
            element_fits(element)?;
            count += 1;
        }
        self.splice(cursor.at(), 0, elements.map(Encoded::new))?;
        self.store_count(u16::try_from(count).unwrap_or(COUNT_UNKNOWN));
        Ok(())
    }

    /// Replaces the element at `cursor`; appends if `cursor` is the end. `cursor` is then the new
    /// element's place. In place if the encoded lengths are equal, else O(bytes after it).
    ///
    /// # Errors
    /// [`PackFull`] if the listpack would exceed 1 GiB.
    pub fn replace<'e>(&mut self, cursor: Cursor, element: impl Into<Element<'e>>) -> Result<(), PackFull> {
        let element = element_fits(element.into())?;
        match element::decode(&self.run()[cursor.at()..]) {
            None => self.insert_one(cursor, element),
            Some((_, len)) => self.splice(cursor.at(), len, std::iter::once(Encoded::new(element))),
        }
    }

    /// Removes the element at `cursor`. `cursor` is then the place of the next element, or the end.
    /// O(bytes after it).
    pub fn delete(&mut self, cursor: Cursor) {
        self.delete_many(cursor, 1);
    }

    /// Removes up to `n` elements: the one at `cursor` and the next ones. `cursor` is then the
    /// place of the element after them, or the end. Returns the number removed. O(n + bytes after
    /// them).
    pub fn delete_many(&mut self, cursor: Cursor, n: usize) -> usize {
        let run = self.run();
        let (mut end, mut removed) = (cursor.at(), 0);
        while removed < n
            && let Some((_, len)) = element::decode(&run[end..])
        {
            end += len;
            removed += 1;
        }
        self.splice(cursor.at(), end - cursor.at(), std::iter::empty()).expect("removing makes it shorter");
        self.count_removed(removed);
        removed
    }

    /// Removes up to `n` elements: the one at `index` and the next ones. Returns the number
    /// removed. O(n + bytes after them).
    pub fn delete_range(&mut self, index: usize, n: usize) -> usize {
        self.seek(index).map_or(0, |cursor| self.delete_many(cursor, n))
    }

    /// Removes elements equal to `bytes` from the listpack: keeps the first `passed` of them, and
    /// removes at most `removed_max` of the others. Returns the number removed. One pass, O(bytes).
    pub fn delete_matches(&mut self, bytes: &[u8], passed: usize, removed_max: usize) -> usize {
        let end = self.bytes.len() - 1;
        let run = &mut self.bytes[HEADER_LEN_BYTES..end];
        let (kept, removed) = element::remove_matches(run, Needle::new(bytes), passed, removed_max);
        let freed = run.len() - kept;
        self.splice(kept, freed, std::iter::empty()).expect("removing makes it shorter");
        self.count_removed(removed);
        removed
    }

    /// Replaces `removed` bytes at offset `at` of the listpack's elements by the elements
    /// `inserted`. One move of the bytes after them, one reallocation. Updates the length in the
    /// header; the caller updates the count.
    ///
    /// # Errors
    /// [`PackFull`] if the listpack would exceed 1 GiB; then nothing has changed.
    fn splice<'e>(
        &mut self,
        at: usize,
        removed: usize,
        inserted: impl Iterator<Item = Encoded<'e>> + Clone,
    ) -> Result<(), PackFull> {
        let added: usize = inserted.clone().map(|encoded| encoded.len_bytes()).sum();
        let old_len = self.bytes.len();
        let new_len = old_len - removed + added;
        if added > removed && new_len > LEN_BYTES_MAX {
            return Err(PackFull);
        }
        let at = HEADER_LEN_BYTES + at;
        // Converting a boxed slice to `Vec` and back is free; `reserve_exact` is the one
        // reallocation.
        let mut bytes = Vec::from(std::mem::take(&mut self.bytes));
        if new_len > old_len {
            bytes.reserve_exact(new_len - old_len);
            bytes.resize(new_len, 0);
        }
        if added != removed {
            bytes.copy_within(at + removed..old_len, at + added);
        }
        let mut to = at;
        for encoded in inserted {
            let len = encoded.len_bytes();
            encoded.write(&mut bytes[to..to + len]);
            to += len;
        }
        bytes.truncate(new_len);
        let total = u32::try_from(new_len).expect("at most the old length, or 1 GiB");
        bytes[..4].copy_from_slice(&total.to_le_bytes());
        self.bytes = bytes.into_boxed_slice();
        Ok(())
    }

    fn store_count(&mut self, count: u16) {
        self.bytes[4..HEADER_LEN_BYTES].copy_from_slice(&count.to_le_bytes());
    }

    /// Subtracts `removed` from the element count in the header. An unknown count becomes known as
    /// soon as the remaining bytes cannot hold more elements than the header can count.
    fn count_removed(&mut self, removed: usize) {
        let run_len = self.run().len();
        match self.stored_count() {
            COUNT_UNKNOWN if run_len / 2 >= usize::from(COUNT_UNKNOWN) => {}
            COUNT_UNKNOWN => self.store_count(element::count(self.run()) as u16),
            count => self.store_count(count - removed as u16),
        }
    }
}

/// Returns `element` unchanged if its length is within the limit of a listpack.
///
/// # Errors
/// [`PackFull`] for a string of more than 1 GiB.
fn element_fits(element: Element<'_>) -> Result<Element<'_>, PackFull> {
    match element {
        Element::Bytes(bytes) if bytes.len() > LEN_BYTES_MAX => Err(PackFull),
        _ => Ok(element),
    }
}

impl<'a> IntoIterator for &'a Listpack {
    type Item = Element<'a>;
    type IntoIter = Iter<'a>;

    fn into_iter(self) -> Iter<'a> {
        self.iter()
    }
}

/// A double-ended iterator over the elements of a listpack.
#[derive(Clone, Debug)]
pub struct Iter<'a> {
    run: &'a [u8],
}

impl<'a> Iter<'a> {
    /// Calls `visit` with the next `count` elements, or with all if there are fewer. For long
    /// ranges it is faster than `next` (docs/performance.md). O(count).
    #[inline]
    pub fn visit(self, count: usize, mut visit: impl FnMut(Element<'a>)) {
        element::visit(self.run, count, &mut visit);
    }
}

impl<'a> Iterator for Iter<'a> {
    type Item = Element<'a>;

    #[inline]
    fn next(&mut self) -> Option<Element<'a>> {
        let (element, len) = element::decode(self.run)?;
        self.run = &self.run[len..];
        Some(element)
    }
}

impl<'a> DoubleEndedIterator for Iter<'a> {
    #[inline]
    fn next_back(&mut self) -> Option<Element<'a>> {
        let (element, start) = element::decode_last(self.run)?;
        self.run = &self.run[..start];
        Some(element)
    }
}

impl std::iter::FusedIterator for Iter<'_> {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the texts of all elements of the listpack.
    fn texts(listpack: &Listpack) -> Vec<Vec<u8>> {
        listpack.iter().map(text).collect()
    }

    fn text(element: Element<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        element.append_to(&mut out);
        out
    }

    fn of(elements: &[&str]) -> Listpack {
        let mut listpack = Listpack::new();
        for element in elements {
            listpack.push_back(element.as_bytes()).expect("small");
        }
        listpack
    }

    fn check(listpack: &Listpack, expected: &[Vec<u8>]) {
        assert_eq!(texts(listpack), expected);
        let mut backwards: Vec<_> = listpack.iter().rev().map(text).collect();
        backwards.reverse();
        assert_eq!(backwards, expected);
        assert_eq!(listpack.len(), expected.len());
        assert_eq!(Listpack::from_bytes(listpack.as_bytes().into()).as_ref(), Ok(listpack));
        assert_eq!(listpack.first().is_none(), expected.is_empty());
    }

    #[test]
    fn bytes_are_those_redis_writes() {
        // RPUSH l hello 5 -300 70000 on Redis 8.0.2, the listpack inside DUMP l.
        let listpack = of(&["hello", "5", "-300", "70000"]);
        let expected = b"\x1b\x00\x00\x00\x04\x00\x85hello\x06\x05\x01\xde\xd4\x02\xf2\x70\x11\x01\x04\xff";
        let mut expected = expected.to_vec();
        expected[0] = expected.len() as u8;
        assert_eq!(listpack.as_bytes(), expected);
    }

    #[test]
    fn handle_is_two_words_with_a_niche() {
        assert_eq!(size_of::<Listpack>(), 16);
        assert_eq!(size_of::<Option<Listpack>>(), 16);
    }

    #[test]
    fn find_compares_numbers_as_numbers_and_skips_values() {
        let listpack = of(&["7", "a", "a", "7", "0123", "9"]);
        let first = listpack.first().expect("not empty");
        assert_eq!(listpack.find(first, b"a", 1), listpack.seek(2));
        assert_eq!(listpack.find(first, b"a", 0), listpack.seek(1));
        assert_eq!(listpack.find(first, b"0123", 1), listpack.seek(4));
        assert_eq!(listpack.find(first, b"123", 0), None);
        assert_eq!(listpack.find(first, b"9", 1), None);
        let value = listpack.next(first).expect("a value");
        assert_eq!(listpack.find(value, b"9", 1), listpack.seek(5));
    }

    #[test]
    fn count_above_the_header_is_counted_and_becomes_known_again() {
        let mut listpack = Listpack::new();
        let many = vec![Element::Int(1); 65_533];
        listpack.extend_back(&many).expect("small");
        for expected in [65_534, 65_535, 65_536] {
            listpack.push_back(2).expect("small");
            assert_eq!(listpack.len(), expected);
        }
        assert_eq!(listpack.stored_count(), COUNT_UNKNOWN);
        assert!(Listpack::from_bytes(listpack.as_bytes().into()).is_ok());
        assert_eq!(listpack.delete_range(10, 5), 5);
        assert_eq!((listpack.len(), listpack.stored_count()), (65_531, 65_531));
    }

    #[test]
    fn growing_beyond_a_gibibyte_is_refused() {
        // The block really has this length; its pages are never touched, so it takes no memory.
        let mut listpack = Listpack { bytes: vec![0; LEN_BYTES_MAX - 2].into_boxed_slice() };
        assert_eq!(listpack.insert(Cursor(0), b"xx"), Err(PackFull));
        assert_eq!(listpack.extend_back(&[Element::Bytes(b"xx")]), Err(PackFull));
        assert!(!listpack.fits(0));
    }

    #[test]
    fn bad_bytes_are_named_with_their_place() {
        let good = of(&["abc", "1000"]);
        let error = |bytes: Vec<u8>| Listpack::from_bytes(bytes.into()).expect_err("broken").kind;
        assert_eq!(error(vec![]), PackErrorKind::TooShort);
        let with = |at: usize, byte: u8| {
            let mut bytes = good.as_bytes().to_vec();
            bytes[at] = byte;
            bytes
        };
        assert_eq!(error(with(0, 200)), PackErrorKind::WrongLength);
        assert_eq!(error(with(4, 3)), PackErrorKind::WrongCount);
        assert_eq!(error(with(6, 0xF5)), PackErrorKind::BrokenElement);
        assert_eq!(error(with(10, 9)), PackErrorKind::BrokenElement);
        assert_eq!(error(with(14, 0)), PackErrorKind::NoTerminator);
        assert!(Listpack::from_bytes(with(4, 2).into()).is_ok());
    }

    #[derive(Clone, Debug)]
    enum Op {
        PushBack(Vec<u8>),
        PushFront(Vec<u8>),
        Insert(usize, Vec<u8>),
        InsertPair(usize, Vec<u8>, i64),
        Replace(usize, Vec<u8>),
        Delete(usize),
        DeleteRange(usize, usize),
        DeleteMatches(usize, usize, usize),
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => proptest::collection::vec(any::<u8>(), 0..80),
            4 => any::<i64>().prop_map(|int| int.to_string().into_bytes()),
            4 => (-5000_i64..5000).prop_map(|int| int.to_string().into_bytes()),
            1 => proptest::collection::vec(any::<u8>(), 4000..20_000),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            value().prop_map(Op::PushBack),
            value().prop_map(Op::PushFront),
            (any::<usize>(), value()).prop_map(|(at, v)| Op::Insert(at, v)),
            (any::<usize>(), value(), any::<i64>()).prop_map(|(at, v, int)| Op::InsertPair(at, v, int)),
            (any::<usize>(), value()).prop_map(|(at, v)| Op::Replace(at, v)),
            any::<usize>().prop_map(Op::Delete),
            (any::<usize>(), 0..4_usize).prop_map(|(at, n)| Op::DeleteRange(at, n)),
            (any::<usize>(), 0..2_usize, 0..3_usize).prop_map(|(at, p, n)| Op::DeleteMatches(at, p, n)),
        ]
    }

    /// Applies `op` to the listpack and to its twin, a vector. Indices are taken modulo the length.
    fn apply(op: Op, listpack: &mut Listpack, twin: &mut Vec<Vec<u8>>) -> Result<(), PackFull> {
        let place = |at: usize, twin: &Vec<Vec<u8>>| at % (twin.len() + 1);
        let cursor = |at: usize, listpack: &Listpack| listpack.seek(at).unwrap_or(listpack.end());
        match op {
            Op::PushBack(v) => {
                listpack.push_back(&v)?;
                twin.push(v);
            }
            Op::PushFront(v) => {
                listpack.push_front(&v)?;
                twin.insert(0, v);
            }
            Op::Insert(at, v) => {
                let at = place(at, twin);
                listpack.insert(cursor(at, listpack), &v)?;
                twin.insert(at, v);
            }
            Op::InsertPair(at, v, int) => {
                let at = place(at, twin);
                listpack.insert_many(cursor(at, listpack), &[Element::Bytes(&v), Element::Int(int)])?;
                twin.splice(at..at, [v, int.to_string().into_bytes()]);
            }
            Op::Replace(at, v) => {
                let at = place(at, twin);
                listpack.replace(cursor(at, listpack), &v)?;
                match twin.get_mut(at) {
                    Some(old) => *old = v,
                    None => twin.push(v),
                }
            }
            Op::Delete(at) => {
                let at = place(at, twin);
                listpack.delete(cursor(at, listpack));
                if at < twin.len() {
                    twin.remove(at);
                }
            }
            Op::DeleteRange(at, n) => {
                let at = place(at, twin);
                let end = twin.len().min(at + n);
                assert_eq!(listpack.delete_range(at, n), end - at);
                twin.drain(at..end);
            }
            Op::DeleteMatches(at, passed, n) => {
                let Some(needle) = twin.get(place(at, twin)).cloned() else { return Ok(()) };
                let matches: Vec<_> = (0..twin.len()).filter(|&at| twin[at] == needle).collect();
                let gone: Vec<_> = matches.into_iter().skip(passed).take(n).collect();
                assert_eq!(listpack.delete_matches(&needle, passed, n), gone.len());
                gone.into_iter().rev().for_each(|at| drop(twin.remove(at)));
            }
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn does_what_a_vector_does(ops in proptest::collection::vec(op(), 0..60)) {
            let mut listpack = Listpack::new();
            let mut twin = Vec::new();
            for op in ops {
                apply(op, &mut listpack, &mut twin).expect("far below the limit");
                check(&listpack, &twin);
                for (index, expected) in twin.iter().enumerate() {
                    prop_assert_eq!(&text(listpack.at_index(index).expect("in range")), expected);
                    let found = listpack.find(Cursor(0), expected, 0).and_then(|at| listpack.get(at));
                    prop_assert_eq!(&text(found.expect("it is there")), expected);
                }
            }
        }

        #[test]
        fn mutated_bytes_are_refused_or_readable(
            values in proptest::collection::vec(value(), 0..8),
            changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6),
            cut in any::<usize>(),
        ) {
            let mut listpack = Listpack::new();
            for value in &values {
                listpack.push_back(value).expect("small");
            }
            let mut bytes = listpack.into_bytes().into_vec();
            for (at, byte) in changes {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if cut % 4 == 0 {
                bytes.truncate(cut / 4 % (bytes.len() + 1));
            }
            if let Ok(mut listpack) = Listpack::from_bytes(bytes.into()) {
                let forwards = listpack.iter().count();
                prop_assert_eq!(listpack.iter().rev().count(), forwards);
                prop_assert_eq!(listpack.len(), forwards);
                listpack.push_front(b"x").expect("small");
                listpack.delete_matches(b"x", 0, usize::MAX);
            }
        }
    }
}
