//! The array type: strings at indexes of 64 bits with holes, and a cursor for appending.
//!
//! The elements are in `structures::array`, where a clone is O(1). The cursor is the index of the
//! last insertion; the next one goes behind it. ARINSERT and ARRING move the cursor, other writes
//! and deletions do not. A ring is an array that is written by ARRING: its span is its length.
//!
//! An array has at least one element, except while a command creates it.

use stdx::number::{F64_TEXT_LEN_MAX, format_f64, parse_f64};
use structures::array::{Array as Elements, INDEX_MAX};
use structures::listpack::element::{Element, IntText};

use crate::freeing::FreeingSteps;

/// An array. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Array {
    elements: Elements,
    /// The index of the last insertion; `None` if the next one goes to index 0.
    last_insert: Option<u64>,
}

impl Array {
    /// Creates an empty array.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an array from its elements and the index of the last insertion.
    pub fn from_parts(elements: Elements, last_insert: Option<u64>) -> Self {
        Self { elements, last_insert }
    }

    /// Returns the elements.
    pub fn elements(&self) -> &Elements {
        &self.elements
    }

    /// Returns the index of the last insertion; `None` if the next one goes to index 0.
    pub fn last_insert(&self) -> Option<u64> {
        self.last_insert
    }

    /// Returns the element at `index`. O(1).
    pub fn get(&self, index: u64) -> Option<Element<'_>> {
        self.elements.get(index)
    }

    /// Returns the number of elements. O(1).
    pub fn count(&self) -> u64 {
        self.elements.count()
    }

    /// Returns the highest index of an element plus one. O(1).
    pub fn len(&self) -> u64 {
        self.elements.len()
    }

    /// Returns true if the array has no elements. O(1).
    pub fn is_empty(&self) -> bool {
        self.elements.is_empty()
    }

    /// Stores `text` at `index`, which must not be above [`INDEX_MAX`]. Returns true if there was
    /// no element. O(1).
    pub fn set(&mut self, index: u64, text: &[u8]) -> bool {
        self.elements.set(index, text)
    }

    /// Removes the element at `index`. Returns true if there was one. O(1).
    pub fn remove(&mut self, index: u64) -> bool {
        self.elements.remove(index)
    }

    /// Removes the elements with indexes from `first` to `last`, both included. Returns their
    /// number. O(elements).
    pub fn remove_range(&mut self, first: u64, last: u64) -> u64 {
        self.elements.remove_range(first, last)
    }

    /// Makes the next insertion go to `index`. With the number after [`INDEX_MAX`] no insertion is
    /// possible.
    pub fn seek(&mut self, index: u64) {
        self.last_insert = index.checked_sub(1);
    }

    /// Returns the index of the next insertion; `None` if the indexes are used up.
    pub fn next_insert(&self) -> Option<u64> {
        match self.last_insert {
            None => Some(0),
            Some(last) => (last < INDEX_MAX).then(|| last + 1),
        }
    }

    /// Stores `texts` one after the other, from the cursor on. Returns the last index. Returns
    /// `None` and changes nothing if the indexes do not suffice, or there are no texts. O(texts).
    pub fn insert<'a>(&mut self, texts: impl ExactSizeIterator<Item = &'a [u8]>) -> Option<u64> {
        let first = self.next_insert()?;
        let last = first.checked_add((texts.len() as u64).checked_sub(1)?)?;
        if last > INDEX_MAX {
            return None;
        }
        for (index, text) in (first..=last).zip(texts) {
            self.elements.set(index, text);
        }
        self.last_insert = Some(last);
        Some(last)
    }

    /// Stores `text` at the next place of a ring of `size` places, at least one. Returns its index.
    /// O(1).
    pub fn insert_into_ring(&mut self, size: u64, text: &[u8]) -> u64 {
        let index = self.last_insert.map_or(0, |last| last + 1) % size;
        self.elements.set(index, text);
        self.last_insert = Some(index);
        index
    }

    /// Prepares a ring for `size` places. If it has more, or has begun to overwrite its oldest
    /// elements and is to grow, the newest elements move to the start in their order. A hole ends
    /// the elements that are kept. O(1), and O(length) if elements move.
    pub fn resize_ring(&mut self, size: u64) {
        let span = self.len();
        let has_wrapped = self.last_insert.is_some_and(|last| last + 1 < span);
        let kept_max = if size < span {
            size
        } else if size > span && has_wrapped {
            span
        } else {
            return;
        };
        let newest = self.last_insert.map_or(span - 1, |last| last % span);
        let before = |index: u64| index.checked_sub(1).unwrap_or(span - 1);
        let newest_first = std::iter::successors(Some(newest), |&index| Some(before(index)));
        let kept = newest_first
            .take(usize::try_from(kept_max).unwrap_or(usize::MAX))
            .take_while(|&index| self.elements.get(index).is_some())
            .count() as u64;
        let (mut elements, mut text) = (Elements::new(), IntText::new());
        // The oldest kept element is `kept - 1` places before the newest.
        let mut index = if newest + 1 >= kept { newest + 1 - kept } else { span - (kept - newest - 1) };
        for place in 0..kept {
            let element = self.elements.get(index).expect("it was counted");
            elements.set(place, element.text(&mut text));
            index = if index + 1 == span { 0 } else { index + 1 };
        }
        *self = Self { elements, last_insert: kept.checked_sub(1) };
    }

    /// Returns the bytes owned outside the key's block. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        size_of::<Self>() + self.elements.len_bytes()
    }

    /// Converts the array to an iterator that frees it in steps, without the parts that a copy
    /// shares. O(1).
    pub fn into_freed(self) -> FreeingSteps {
        Box::new(self.elements.into_freed())
    }
}

/// Returns the double as which Redis stores a text of digits with a decimal point. Returns `None`
/// for a text that it stores as a string. The two low bits of the double are zero.
pub fn stored_double(text: &[u8]) -> Option<f64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let has_form = digits.iter().all(|&byte| byte.is_ascii_digit() || byte == b'.');
    if !has_form || text.len() > 32 || digits.iter().filter(|&&byte| byte == b'.').count() != 1 {
        return None;
    }
    let number = f64::from_bits(parse_f64(text)?.to_bits() & !3);
    (number.is_finite() && double_text(number).as_bytes() == text).then_some(number)
}

/// Formats a double as Redis shows it in an array: a whole number gets the ending `.0`, and it has
/// an exponent only above 2^62.
pub fn double_text(number: f64) -> String {
    let mut text = format_f64(number, &mut [0; F64_TEXT_LEN_MAX]).to_owned();
    if number.is_finite() && !text.contains(['.', 'e']) {
        text.push_str(".0");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(array: &Array) -> Vec<(u64, String)> {
        let text = |element: Element<'_>| String::from_utf8_lossy(element.text(&mut IntText::new())).into();
        array.elements().scan(0, u64::MAX).map(|(index, element)| (index, text(element))).collect()
    }

    fn ring(writes: &[(u64, &str)]) -> Vec<String> {
        let mut array = Array::new();
        for (size, letters) in writes {
            array.resize_ring(*size);
            letters.bytes().for_each(|letter| {
                array.insert_into_ring(*size, &[letter]);
            });
        }
        texts(&array).into_iter().map(|(index, text)| format!("{index}{text}")).collect()
    }

    #[test]
    fn a_ring_keeps_its_newest_elements_in_order_when_its_size_changes() {
        assert_eq!(ring(&[(3, "abc")]), ["0a", "1b", "2c"]);
        assert_eq!(ring(&[(3, "abcd")]), ["0d", "1b", "2c"]);
        assert_eq!(ring(&[(3, "abcd"), (2, "e")]), ["0e", "1d"]);
        assert_eq!(ring(&[(3, "abcd"), (5, "e")]), ["0b", "1c", "2d", "3e"]);
        assert_eq!(ring(&[(3, "ab"), (5, "c")]), ["0a", "1b", "2c"]);
    }

    #[test]
    fn a_hole_ends_what_a_ring_keeps() {
        let mut array = Array::new();
        for letter in b"abcdef" {
            array.insert_into_ring(6, &[*letter]);
        }
        array.remove(3);
        array.resize_ring(5);
        assert_eq!(texts(&array), [(0, "e".into()), (1, "f".into())]);
        assert_eq!(array.next_insert(), Some(2));
        array.seek(9);
        array.resize_ring(1);
        // The cursor is beyond the ring, so it counts modulo the span: 8 is index 0.
        assert_eq!(texts(&array), [(0, "e".into())]);
    }

    #[test]
    fn insertions_follow_the_cursor_to_the_last_index() {
        let mut array = Array::new();
        let two = || [&b"a"[..], b"b"].into_iter();
        assert_eq!((array.insert(two()), array.insert(two())), (Some(1), Some(3)));
        array.seek(INDEX_MAX);
        assert_eq!((array.next_insert(), array.insert(two())), (Some(INDEX_MAX), None));
        assert_eq!(array.insert(two().take(1)), Some(INDEX_MAX));
        assert_eq!((array.next_insert(), array.insert(two()), array.len()), (None, None, u64::MAX));
        array.seek(u64::MAX);
        assert_eq!(array.next_insert(), None);
        array.seek(0);
        assert_eq!((array.next_insert(), array.count()), (Some(0), 5));
    }

    #[test]
    fn texts_that_are_the_shortest_of_their_double_are_written_as_doubles() {
        let check = |text: &str, number: Option<f64>| assert_eq!(stored_double(text.as_bytes()), number);
        check("1.5", Some(1.5));
        check("-3.0", Some(-3.0));
        check("0.25", Some(0.25));
        check("100000000.0", Some(1e8));
        check("-1500000000.0", Some(-1.5e9));
        check("4611686018427387904.0", Some((1_u64 << 62) as f64));
        check("9223372036854776000.0", Some((1_u64 << 63) as f64));
        for text in ["1.50", "1", ".5", "1.", "1e5", "", "-", ".", "1.2.3", "nan", "0.10000000000000000001"] {
            check(text, None);
        }
        // A double that needs its low bits, and texts of more digits than a double has.
        for text in ["0.1", "9007199254740993.0", "9223372036854775808.0"] {
            check(text, None);
        }
    }

    #[test]
    fn whole_doubles_are_shown_without_an_exponent_up_to_two_to_the_62() {
        for (number, text) in [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (1e8, "100000000.0"),
            (-1.5e9, "-1500000000.0"),
            ((1_u64 << 62) as f64, "4611686018427387904.0"),
            ((1_u64 << 63) as f64, "9223372036854776000.0"),
            (1e300, "1e+300"),
        ] {
            assert_eq!(double_text(number), text);
            let kept = stored_double(text.as_bytes());
            assert!(kept.is_none_or(|kept| double_text(kept) == text), "{text}");
        }
    }
}
