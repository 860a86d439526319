//! A slice of an array: the elements of 4,096 indexes, at least one of them while it is in a tree.
//!
//! ```text
//!   sparse   offsets  3   17  900       sorted; words in the same order
//!            words    w   w   w
//!   dense    first = 16
//!            words    w   w   -   w     the word of offset 16, 17, 18, …; the last one is in use
//!
//!   word     0                          no element (dense only)
//!            [number: 62 bits][01]      an integer in canonical form
//!            [place: 62 bits][10]       a text at this place of `texts`
//!            [7 bytes][len 3 bits][11]  a text of up to 7 bytes
//! ```
//! A sparse slice becomes dense when at least half of its window is in use, and dense slices become
//! sparse when less than a quarter is. So a word costs at most 32 bytes in a dense slice that has
//! lost its elements, and 16 in one that grows.

use std::ops::Range;

use super::SliceStats;
use crate::listpack::element::{Element, parse_canonical_int};

/// The number of elements from which a slice may be dense.
const DENSE_COUNT_MIN: usize = 8;
/// The maximum length of a text that is stored in its word.
const SHORT_LEN_BYTES_MAX: usize = 7;
/// The number of unused places from which `texts` may be packed again.
const FREE_TEXTS_MIN: usize = 16;

const TAG_BITS: u32 = 2;
const TAG_MASK: u8 = 3;
const TAG_INT: u64 = 1;
const TAG_TEXT: u64 = 2;
const TAG_SHORT: u8 = 3;

/// An element, or none. See the drawing above: the bytes of a number, the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word([u8; 8]);

impl Word {
    const EMPTY: Self = Self([0; 8]);

    fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// Returns the place of the element's text, if it has one.
    fn text_place(self) -> Option<usize> {
        let number = u64::from_le_bytes(self.0);
        (number & u64::from(TAG_MASK) == TAG_TEXT).then_some((number >> TAG_BITS) as usize)
    }
}

#[derive(Clone, Debug)]
enum Layout {
    /// The offset of each word, in ascending order.
    Sparse(Vec<u16>),
    /// The offset of the first word.
    Dense(u16),
}

/// A slice. See the module's documentation.
#[derive(Clone, Debug)]
pub(super) struct Slice {
    layout: Layout,
    words: Vec<Word>,
    texts: Vec<Box<[u8]>>,
    /// The places of `texts` that are not in use.
    free_texts: Vec<u16>,
    texts_len_bytes: usize,
    count: u32,
}

impl Slice {
    pub(super) fn new() -> Self {
        let (texts, free_texts) = (Vec::new(), Vec::new());
        let layout = Layout::Sparse(Vec::new());
        Self { layout, words: Vec::new(), texts, free_texts, texts_len_bytes: 0, count: 0 }
    }

    /// Returns the number of elements. O(1).
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Returns the bytes that the slice takes. O(1).
    pub(super) fn len_bytes(&self) -> usize {
        let offsets = match &self.layout {
            Layout::Sparse(offsets) => offsets.capacity() * size_of::<u16>(),
            Layout::Dense(_) => 0,
        };
        // Two counters precede a shared slice.
        2 * size_of::<usize>()
            + size_of::<Self>()
            + offsets
            + self.words.capacity() * size_of::<Word>()
            + self.texts.capacity() * size_of::<Box<[u8]>>()
            + self.free_texts.capacity() * size_of::<u16>()
            + self.texts_len_bytes
    }

    pub(super) fn add_to(&self, stats: &mut SliceStats) {
        match self.layout {
            Layout::Dense(_) => {
                stats.dense += 1;
                stats.dense_places += self.words.len() as u64;
                stats.dense_elements += u64::from(self.count);
            }
            Layout::Sparse(_) => {
                stats.sparse += 1;
                stats.sparse_places += self.words.capacity() as u64;
            }
        }
    }

    /// Returns the highest offset of an element. O(1).
    pub(super) fn last_offset(&self) -> Option<u16> {
        match &self.layout {
            Layout::Sparse(offsets) => offsets.last().copied(),
            Layout::Dense(first) => (self.words.len() as u16).checked_sub(1).map(|last| first + last),
        }
    }

    /// Returns the places of the words with offsets from `low` to `high`, both included. Some words
    /// may be empty. O(log n).
    pub(super) fn places(&self, low: u16, high: u16) -> Range<usize> {
        match &self.layout {
            Layout::Sparse(offsets) => {
                let start = offsets.partition_point(|&offset| offset < low);
                start..offsets.partition_point(|&offset| offset <= high).max(start)
            }
            Layout::Dense(first) => {
                let place = |offset: usize| offset.saturating_sub(usize::from(*first)).min(self.words.len());
                place(usize::from(low))..place(usize::from(high) + 1)
            }
        }
    }

    /// Returns the offset of the word at `place`.
    pub(super) fn offset_at(&self, place: usize) -> u16 {
        match &self.layout {
            Layout::Sparse(offsets) => offsets[place],
            Layout::Dense(first) => first + place as u16,
        }
    }

    /// Returns the element of the word at `place`.
    pub(super) fn element_at(&self, place: usize) -> Option<Element<'_>> {
        let word = &self.words[place];
        if word.is_empty() {
            return None;
        }
        Some(match word.text_place() {
            Some(place) => Element::Bytes(&self.texts[place]),
            None if word.0[0] & TAG_MASK == TAG_SHORT => {
                Element::Bytes(&word.0[1..=usize::from(word.0[0] >> TAG_BITS)])
            }
            None => Element::Int(i64::from_le_bytes(word.0) >> TAG_BITS),
        })
    }

    pub(super) fn get(&self, offset: u16) -> Option<Element<'_>> {
        let places = self.places(offset, offset);
        if places.is_empty() { None } else { self.element_at(places.start) }
    }

    /// Returns the number of elements with offsets from `low` to `high`. O(words in between).
    pub(super) fn count_between(&self, low: u16, high: u16) -> u32 {
        let places = self.places(low, high);
        match self.layout {
            Layout::Sparse(_) => places.len() as u32,
            Layout::Dense(_) => self.words[places].iter().filter(|word| !word.is_empty()).count() as u32,
        }
    }

    /// Stores `text` at `offset`. Returns true if there was no element. O(1) amortized in a dense
    /// slice, O(n) in a sparse one.
    pub(super) fn set(&mut self, offset: u16, text: &[u8]) -> bool {
        let places = self.places(offset, offset);
        if !places.is_empty() {
            let old = std::mem::replace(&mut self.words[places.start], Word::EMPTY);
            self.free(old);
            self.words[places.start] = self.word_of(text);
            self.count += u32::from(old.is_empty());
            return old.is_empty();
        }
        let word = self.word_of(text);
        self.count += 1;
        match &mut self.layout {
            Layout::Sparse(offsets) => {
                if offsets.len() == offsets.capacity() {
                    offsets.reserve_exact(offsets.len() / 2 + 1);
                    self.words.reserve_exact(self.words.len() / 2 + 1);
                }
                offsets.insert(places.start, offset);
                self.words.insert(places.start, word);
                self.become_dense_if_full();
            }
            Layout::Dense(_) => self.widen(offset, word),
        }
        true
    }

    /// Removes the elements with offsets from `low` to `high`. O(n).
    pub(super) fn remove_between(&mut self, low: u16, high: u16) {
        let places = self.places(low, high);
        for place in places.clone() {
            let old = std::mem::replace(&mut self.words[place], Word::EMPTY);
            self.count -= u32::from(!old.is_empty());
            self.free(old);
        }
        match &mut self.layout {
            Layout::Sparse(offsets) => {
                offsets.drain(places.clone());
                self.words.drain(places);
                if self.words.len() < self.words.capacity() / 4 {
                    offsets.shrink_to_fit();
                    self.words.shrink_to_fit();
                }
            }
            Layout::Dense(_) => {
                let used = self.words.iter().rposition(|word| !word.is_empty()).map_or(0, |last| last + 1);
                self.words.truncate(used);
                if used < self.words.capacity() / 4 {
                    self.words.shrink_to_fit();
                }
                if self.words.len() > 4 * self.count as usize {
                    self.become_sparse();
                }
            }
        }
        self.pack_texts();
    }

    /// Adds a word outside the window of a dense slice. The element is already counted.
    fn widen(&mut self, offset: u16, word: Word) {
        let Layout::Dense(first) = &mut self.layout else { unreachable!("the caller checked the layout") };
        let (start, at) = (usize::from(*first), usize::from(offset));
        let end = start + self.words.len();
        if start.min(at).abs_diff(end.max(at + 1)) > 4 * self.count as usize {
            self.become_sparse();
            let Layout::Sparse(offsets) = &mut self.layout else { unreachable!("it has just become sparse") };
            let place = offsets.partition_point(|&other| other < offset);
            offsets.insert(place, offset);
            self.words.insert(place, word);
        } else if at >= end {
            self.words.resize(at - start + 1, Word::EMPTY);
            self.words[at - start] = word;
        } else {
            // Room to the left for more, so that descending writes do not move all words each time.
            let room = (self.words.len() / 2).min(at);
            let new_first = at - room;
            self.words.splice(0..0, std::iter::repeat_n(Word::EMPTY, start - new_first));
            self.words[room] = word;
            *first = new_first as u16;
        }
    }

    fn become_dense_if_full(&mut self) {
        let Layout::Sparse(offsets) = &self.layout else { return };
        let (Some(&first), Some(&last)) = (offsets.first(), offsets.last()) else { return };
        let window = usize::from(last - first) + 1;
        if offsets.len() < DENSE_COUNT_MIN || window > 2 * offsets.len() {
            return;
        }
        let mut words = vec![Word::EMPTY; window];
        for (&offset, &word) in offsets.iter().zip(&self.words) {
            words[usize::from(offset - first)] = word;
        }
        (self.layout, self.words) = (Layout::Dense(first), words);
    }

    fn become_sparse(&mut self) {
        let Layout::Dense(first) = self.layout else { return };
        let used = || self.words.iter().enumerate().filter(|(_, word)| !word.is_empty());
        let len = used().count();
        let (mut offsets, mut words) = (Vec::with_capacity(len + 1), Vec::with_capacity(len + 1));
        for (place, &word) in used() {
            offsets.push(first + place as u16);
            words.push(word);
        }
        (self.layout, self.words) = (Layout::Sparse(offsets), words);
    }

    /// Converts a text to a word. A text that does not fit in it is added to `texts`.
    fn word_of(&mut self, text: &[u8]) -> Word {
        if let Some(number) = parse_canonical_int(text)
            && (number << TAG_BITS) >> TAG_BITS == number
        {
            return Word(((number << TAG_BITS) as u64 | TAG_INT).to_le_bytes());
        }
        if text.len() <= SHORT_LEN_BYTES_MAX {
            let mut bytes = [0; 8];
            bytes[0] = (text.len() as u8) << TAG_BITS | TAG_SHORT;
            bytes[1..=text.len()].copy_from_slice(text);
            return Word(bytes);
        }
        self.texts_len_bytes += text.len();
        let place = match self.free_texts.pop() {
            Some(place) => {
                self.texts[usize::from(place)] = text.into();
                usize::from(place)
            }
            None => {
                if self.texts.len() == self.texts.capacity() {
                    self.texts.reserve_exact(self.texts.len() / 2 + 1);
                }
                self.texts.push(text.into());
                self.texts.len() - 1
            }
        };
        Word(((place as u64) << TAG_BITS | TAG_TEXT).to_le_bytes())
    }

    /// Frees the text of a word that was taken out.
    fn free(&mut self, word: Word) {
        if let Some(place) = word.text_place() {
            let text = std::mem::take(&mut self.texts[place]);
            self.texts_len_bytes -= text.len();
            self.free_texts.push(place as u16);
        }
    }

    /// Packs `texts` if most of its places are not in use. O(n), amortized over the removals.
    fn pack_texts(&mut self) {
        if self.free_texts.len() < FREE_TEXTS_MIN.max(self.texts.len() / 2) {
            return;
        }
        let mut packed = Vec::with_capacity(self.texts.len() - self.free_texts.len());
        for word in &mut self.words {
            if let Some(place) = word.text_place() {
                *word = Word(((packed.len() as u64) << TAG_BITS | TAG_TEXT).to_le_bytes());
                packed.push(std::mem::take(&mut self.texts[place]));
            }
        }
        (self.texts, self.free_texts) = (packed, Vec::new());
    }
}
