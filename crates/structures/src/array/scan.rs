//! Iteration over the elements of a range, in either direction.

use std::ops::Range;

use super::slice::Slice;
use super::{Array, SLICE_BITS, SLICE_LEN, offset_of, slice_of};
use crate::listpack::element::Element;

/// An iterator over elements and their indexes. Created by [`Array::scan`].
pub struct Scan<'a> {
    array: &'a Array,
    low: u64,
    high: u64,
    descending: bool,
    /// The number of the slice to look for next; `None` after the last one.
    next_slice: Option<u64>,
    /// The present slice, its number, and the places in it that are left.
    present: Option<(u64, &'a Slice, Range<usize>)>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(array: &'a Array, start: u64, end: u64) -> Self {
        let (low, high) = (start.min(end), start.max(end));
        let next_slice = Some(slice_of(start));
        Self { array, low, high, descending: start > end, next_slice, present: None }
    }

    /// Finds the next slice of the range. Returns `None` if there is none. O(levels).
    fn enter_slice(&mut self) -> Option<()> {
        let wanted = self.next_slice.take()?;
        let (number, slice) =
            if self.descending { self.array.slice_to(wanted)? } else { self.array.slice_from(wanted)? };
        let (first, last) = (slice_of(self.low), slice_of(self.high));
        if number < first || number > last {
            return None;
        }
        self.next_slice = if self.descending { number.checked_sub(1) } else { Some(number + 1) };
        let low = if number == first { offset_of(self.low) } else { 0 };
        let high = if number == last { offset_of(self.high) } else { (SLICE_LEN - 1) as u16 };
        self.present = Some((number, slice, slice.places(low, high)));
        Some(())
    }
}

impl<'a> Iterator for Scan<'a> {
    type Item = (u64, Element<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            if let Some((number, slice, places)) = &mut self.present {
                let mut place = || if self.descending { places.next_back() } else { places.next() };
                while let Some(place) = place() {
                    if let Some(element) = slice.element_at(place) {
                        return Some(((*number << SLICE_BITS) + u64::from(slice.offset_at(place)), element));
                    }
                }
                self.present = None;
            }
            self.enter_slice()?;
        }
    }
}
