//! The due elements of a table, and the sweep that removes them. An element is due if it, or a part
//! of it, has expired.
//!
//! A word's flags show which kinds of deadlines its element has. A segment counts such elements and
//! keeps a lower bound of their deadlines, in seconds. A sweep of the segment makes the bound exact
//! again. Times are milliseconds of any one clock.

use std::mem::ManuallyDrop;

use super::bucket::{DUE_FLAGS, MARK, POINTER_MASK, SLOTS, address_of, pointer_of};
use super::deadlines::{StoredDeadlines, deadline_s};
use super::segment::buckets_for;
use super::{Table, Thin};

/// The limits of the work of one step of [`Table::sweep_due`].
#[derive(Clone, Copy, Debug)]
pub struct SweepBudget {
    /// The most segments of the table to check, with or without due elements.
    pub segments_max: usize,
    /// The most elements and parts to remove. The sweep completes the segment in which it reaches
    /// this number.
    pub elements_max: usize,
}

/// A receiver of the elements that [`Table::sweep_due`] finds. A closure receives whole elements,
/// for tables whose elements have no parts with deadlines.
pub trait Sweep<E> {
    /// Receives the number of elements with deadlines, due or not, that a sweep is about to check.
    fn on_segment(&mut self, _elements: usize) {}
    /// Receives an unmarked element before it is removed or loses parts, so that a copy can be kept
    /// for a snapshot's walk (`walk`). Returns true if the element must be marked.
    fn claims(&mut self, _element: &mut E) -> bool {
        false
    }
    /// Receives an element whose deadline has passed and that was removed from the table.
    fn due(&mut self, element: E);
    /// Removes a bounded number of due parts (a hash's fields) from an element that stays in the
    /// table.
    fn parts_due(&mut self, element: &mut E) -> SweptParts;
    /// Receives an element that is removed from the table because [`Sweep::parts_due`] has removed
    /// all its parts.
    fn emptied(&mut self, element: E);
}

impl<E, F: FnMut(E)> Sweep<E> for F {
    fn due(&mut self, element: E) {
        self(element);
    }
    fn parts_due(&mut self, _element: &mut E) -> SweptParts {
        SweptParts { removed: 0, emptied: false }
    }
    fn emptied(&mut self, element: E) {
        self(element);
    }
}

/// The result of removing due parts of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SweptParts {
    /// The number of due parts (a hash's fields) that were removed from the element.
    pub removed: usize,
    /// True if the element has no parts left; it is then removed from the table.
    pub emptied: bool,
}

impl<E: Thin> Table<E> {
    /// Passes elements that are due at `now_ms` to `sweep`, as far as `budget` permits. Starts with
    /// the segment at `cursor`. Returns the next cursor, or `None` after the last segment. If only
    /// some due parts of an element were removed, the next step continues with the same segment.
    pub fn sweep_due(
        &mut self,
        cursor: u64,
        now_ms: i64,
        budget: SweepBudget,
        sweep: &mut impl Sweep<E>,
    ) -> Option<u64> {
        if self.due_counts.own + self.due_counts.parts == 0 {
            return None;
        }
        let mut at = self.place_of(cursor << 16);
        let mut removed = 0;
        for _ in 0..budget.segments_max {
            let first = self.first_place(at);
            let segment = &self.directory[first];
            if segment.deadlines > 0 && segment.deadline_min_s <= deadline_s(now_ms) {
                sweep.on_segment(segment.deadlines.into());
                let swept = self.sweep_segment(first, now_ms, sweep);
                removed += swept.removed;
                if self.len == 0 {
                    return None;
                }
                if !swept.complete {
                    at = first;
                    break;
                }
            }
            at = self.places(first).end;
            if at >= self.directory.len() {
                return None;
            }
            if removed >= budget.elements_max {
                break;
            }
        }
        Some((at as u64) << (48 - self.depth))
    }

    fn sweep_segment(&mut self, first: usize, now_ms: i64, sweep: &mut impl Sweep<E>) -> SweptSegment {
        let mut swept = SweptSegment { removed: 0, complete: true };
        let mut segment = self.directory[first];
        let (len, mut walked) = (segment.len, segment);
        // The counters and the bound are computed again from the remaining elements.
        (segment.len, segment.deadlines, segment.deadline_min_s) = (0, 0, u32::MAX);
        for bucket in walked.buckets_mut() {
            for slot in 0..SLOTS {
                let had = bucket.words[slot] & DUE_FLAGS;
                if had == 0 {
                    segment.len += u16::from(bucket.words[slot] & POINTER_MASK != 0);
                    continue;
                }
                // SAFETY: the table owns the word's element and is borrowed mutably; `ManuallyDrop`
                // keeps the word its owner until the element is back in it or handed over.
                let element = unsafe { E::from_raw(pointer_of(bucket.words[slot])) };
                let mut element = ManuallyDrop::new(element);
                let own_due = element.deadline_ms().is_some_and(|at_ms| at_ms <= now_ms);
                let has_due_parts =
                    |element: &E| element.part_deadline_ms().is_some_and(|at_ms| at_ms <= now_ms);
                let (has_due_parts_now, mut emptied) = (has_due_parts(&element), false);
                if (own_due || has_due_parts_now)
                    && bucket.words[slot] & MARK == 0
                    && sweep.claims(&mut element)
                {
                    bucket.words[slot] |= MARK;
                }
                if !own_due && has_due_parts_now {
                    let parts = sweep.parts_due(&mut element);
                    swept.removed += parts.removed;
                    emptied = parts.emptied;
                    swept.complete &= emptied || !has_due_parts(&element);
                }
                if own_due || emptied {
                    bucket.take(slot);
                    self.due_counts.note(had, 0);
                    swept.removed += 1;
                    let element = ManuallyDrop::into_inner(element);
                    if own_due {
                        sweep.due(element)
                    } else {
                        sweep.emptied(element)
                    }
                    continue;
                }
                let dues = StoredDeadlines::of::<E>(&element);
                let word = bucket.words[slot] & !(POINTER_MASK | DUE_FLAGS);
                let element = ManuallyDrop::into_inner(element);
                bucket.words[slot] = word | address_of(element.into_raw()) | dues.flags;
                self.due_counts.note(had, dues.flags);
                segment.len += 1;
                segment.deadlines += u16::from(dues.flags != 0);
                segment.deadline_min_s = segment.deadline_min_s.min(dues.min_s);
            }
        }
        self.directory[first] = segment;
        self.len -= usize::from(len - segment.len);
        if self.len == 0 {
            self.reset();
        } else if segment.len < len {
            // Rewriting the segment corrects the overflow flags and the segment's size.
            self.resize(first, buckets_for(segment.len as usize).min(segment.bucket_count()));
        }
        swept
    }
}

/// The result of a sweep of due elements in one segment.
struct SweptSegment {
    /// The number of due elements and parts that were removed from the segment.
    removed: usize,
    /// True if nothing in the segment is due any more.
    complete: bool,
}
