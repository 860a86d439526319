//! The fields of a small hash, some of which have deadlines: a listpack of triples in the order of
//! their deadlines.
//!
//! ```text
//!  [field][value][deadline ms] [field][value][deadline ms] …  [field][value][0] [field][value][0]
//!   └ the nearest deadline first ──────────────────────────►   └ then those without
//! ```
//! Due fields are therefore at the front. The format is Redis' `listpackex`, byte for byte, so it
//! can be written to and read from an RDB file unchanged.

use structures::listpack::element::{Element, IntText};
use structures::listpack::{Cursor, Listpack};

use crate::expiry::Expiry;
use crate::packed::PackDefect;

/// The number of listpack elements of a field: its name, value and deadline.
pub(super) const STRIDE: usize = 3;

/// The number that is stored as the deadline of a field without one.
const NO_DEADLINE: i64 = 0;

/// A listpack of a small hash's fields with their values and deadlines. See the module's comment.
#[derive(Clone)]
pub(super) struct TimedPack {
    pub(super) pack: Listpack,
}

/// Returns the deadline in Unix milliseconds that a stored listpack element represents; `None` if
/// it means "no deadline".
#[inline]
pub(super) fn deadline_of(element: Element<'_>) -> Option<i64> {
    element.as_int().filter(|&at_ms| at_ms != NO_DEADLINE)
}

impl TimedPack {
    /// Converts a listpack of fields and values to triples without deadlines. O(n).
    pub(super) fn of_pairs(pack: &Listpack) -> Self {
        let mut timed = TimedPack { pack: Listpack::new() };
        let mut elements = pack.iter();
        while let (Some(field), Some(value)) = (elements.next(), elements.next()) {
            let added = timed.pack.extend_back(&[field, value, Element::Int(NO_DEADLINE)]);
            added.expect("a packed hash is far below the limit, and a third as much more too");
        }
        timed
    }

    /// Checks the triples in `pack`, which is not trusted, and creates a hash of them. O(n log n).
    ///
    /// # Errors
    /// If a field has no value or deadline, or occurs twice; if a deadline is invalid, or deadlines
    /// are not in ascending order.
    pub(super) fn from_listpack(pack: Listpack) -> Result<Self, PackDefect> {
        if !pack.len().is_multiple_of(STRIDE) {
            return Err(PackDefect::HalfPair);
        }
        if !pack.are_distinct(STRIDE - 1) {
            return Err(PackDefect::Duplicate);
        }
        let mut last_ms = i64::MIN;
        for element in pack.iter().skip(2).step_by(STRIDE) {
            let at_ms = element.as_int().filter(|&at_ms| at_ms >= 0).ok_or(PackDefect::Deadline)?;
            let at_ms = if at_ms == NO_DEADLINE { i64::MAX } else { at_ms };
            if at_ms < last_ms {
                return Err(PackDefect::Order);
            }
            last_ms = at_ms;
        }
        Ok(TimedPack { pack })
    }

    #[inline]
    pub(super) fn find(&self, field: &[u8]) -> Option<Cursor> {
        self.pack.find(self.pack.first()?, field, STRIDE - 1)
    }

    /// Returns the value and the deadline (Unix milliseconds) of the field whose name is at the
    /// cursor `at`.
    #[inline]
    pub(super) fn value_and_deadline(&self, at: Cursor) -> Option<(Element<'_>, Option<i64>)> {
        let (value, behind) = self.pack.get_and_next(self.pack.next(at)?)?;
        Some((value, deadline_of(self.pack.get(behind)?)))
    }

    /// Returns the cursor at which a field with this deadline must be inserted: before the first
    /// field that expires at the same time, later or never.
    fn place_for(&self, deadline_ms: Option<i64>) -> Cursor {
        let (Some(new_ms), mut next) = (deadline_ms, self.pack.first()) else { return self.pack.end() };
        while let Some(at) = next {
            let here_ms = self.value_and_deadline(at).and_then(|(_, deadline_ms)| deadline_ms);
            if here_ms.is_none_or(|here_ms| here_ms >= new_ms) {
                return at;
            }
            next = (0..STRIDE).try_fold(at, |at, _| self.pack.next(at));
        }
        self.pack.end()
    }

    fn insert(&mut self, field: &[u8], value: &[u8], deadline_ms: Option<i64>) {
        let deadline = Element::Int(deadline_ms.unwrap_or(NO_DEADLINE));
        let at = self.place_for(deadline_ms);
        let inserted = self.pack.insert_many(at, &[Element::Bytes(field), Element::Bytes(value), deadline]);
        inserted.expect("the callers asked whether it fits");
    }

    /// Sets a field's value and changes its deadline as `expiry` says. The listpack must have room
    /// for it. Returns true if the field is new. O(bytes).
    pub(super) fn set(&mut self, field: &[u8], value: &[u8], expiry: Expiry) -> bool {
        let Some(at) = self.find(field) else {
            let deadline_ms = if let Expiry::At(at_ms) = expiry { Some(at_ms) } else { None };
            self.insert(field, value, deadline_ms);
            return true;
        };
        let had = self.value_and_deadline(at).and_then(|(_, deadline_ms)| deadline_ms);
        match expiry {
            Expiry::At(at_ms) => {
                self.pack.delete_many(at, STRIDE);
                self.insert(field, value, Some(at_ms));
            }
            Expiry::Clear if had.is_some() => {
                self.pack.delete_many(at, STRIDE);
                self.insert(field, value, None);
            }
            Expiry::Clear | Expiry::Keep => {
                let value_at = self.pack.next(at).expect("behind a field is its value");
                self.pack.replace(value_at, value).expect("the callers asked whether it fits");
            }
        }
        false
    }

    /// Sets or clears a field's deadline. Returns true if the field exists. O(bytes).
    pub(super) fn set_deadline_ms(&mut self, field: &[u8], deadline_ms: Option<i64>) -> bool {
        let Some(at) = self.find(field) else { return false };
        let (value, had) = self.value_and_deadline(at).expect("behind a field are value and deadline");
        if deadline_ms.is_none() && had.is_none() {
            return true;
        }
        let value = value.text(&mut IntText::new()).to_vec();
        self.pack.delete_many(at, STRIDE);
        self.insert(field, &value, deadline_ms);
        true
    }

    /// Returns the nearest deadline, in Unix milliseconds; `None` if no field has one. O(1).
    #[inline]
    pub(super) fn next_deadline_ms(&self) -> Option<i64> {
        self.value_and_deadline(self.pack.first()?)?.1
    }

    /// Removes due fields, at most `fields_max`, and calls `each` with their names. Returns the
    /// number removed. O(bytes).
    pub(super) fn remove_due(
        &mut self,
        now_ms: i64,
        fields_max: usize,
        each: impl FnMut(Element<'_>),
    ) -> usize {
        let deadlines = self.pack.iter().skip(2).step_by(STRIDE).map(deadline_of);
        let is_due = |deadline_ms: &Option<i64>| deadline_ms.is_some_and(|at_ms| at_ms <= now_ms);
        let due = deadlines.take(fields_max).take_while(is_due).count();
        self.pack.iter().step_by(STRIDE).take(due).for_each(each);
        if let Some(first) = self.pack.first().filter(|_| due > 0) {
            self.pack.delete_many(first, due * STRIDE);
        }
        due
    }
}
