//! The fields of a big hash: a table of pairs, each of which may have a deadline.
//!
//! The table stores a lower bound of the deadlines per segment, so due fields are found without
//! reading the others. [`Pairs`] stores such a bound for the whole hash, and the point at which the
//! sweep of due fields continues. Both are in a block of their own, which a hash without deadlines
//! does not have.

use structures::listpack::element::Element;
use structures::pair::Pair;
use structures::table::walked::WalkedTable;
use structures::table::{SweepBudget, Thin};

use crate::expiry::Expiry;
use crate::key::Hasher;

/// The most segments of the table that one step of [`Pairs::remove_due`] checks.
const SWEPT_SEGMENTS_MAX: usize = 1024;

/// A table of fields with their values, and the number of their bytes.
#[derive(Clone, Default)]
pub(super) struct Pairs {
    pub(super) table: WalkedTable<Pair, Due>,
    pairs_len_bytes: usize,
}

/// The state of active expiry in a table of fields: the sweep of its due fields.
#[derive(Clone)]
pub(super) struct Due {
    /// The time in Unix milliseconds before which the hash needs no sweep for due fields.
    min_ms: i64,
    /// The table cursor at which the sweep of due fields continues.
    cursor: u64,
}

impl Pairs {
    /// Sets the value of a field and changes its deadline as `expiry` says. Returns true if the
    /// field is new.
    #[inline]
    pub(super) fn set(&mut self, field: &[u8], value: &[u8], expiry: Expiry, hasher: &Hasher) -> bool {
        let position = hasher.hash_member(field);
        if let Expiry::At(at_ms) = expiry {
            self.note_deadline(at_ms);
        }
        if let Some(place) = self.table.find(position, field) {
            let mut pair = self.table.at_mut(place);
            self.pairs_len_bytes -= pair.block_len_bytes();
            match expiry {
                Expiry::Keep => {}
                Expiry::Clear => pair.set_deadline_ms(None),
                Expiry::At(at_ms) => pair.set_deadline_ms(Some(at_ms)),
            }
            pair.set_value(value);
            self.pairs_len_bytes += pair.block_len_bytes();
            return false;
        }
        let deadline_ms = if let Expiry::At(at_ms) = expiry { Some(at_ms) } else { None };
        let pair = Pair::new(field, value, deadline_ms);
        self.pairs_len_bytes += pair.block_len_bytes();
        self.table.insert(position, pair, &|key: &[u8]| hasher.hash_member(key));
        true
    }

    /// Sets or clears the deadline of a field, in Unix milliseconds. Returns true if the field
    /// exists.
    pub(super) fn set_deadline_ms(
        &mut self,
        field: &[u8],
        deadline_ms: Option<i64>,
        hasher: &Hasher,
    ) -> bool {
        let Some(place) = self.table.find(hasher.hash_member(field), field) else { return false };
        let mut pair = self.table.at_mut(place);
        self.pairs_len_bytes -= pair.block_len_bytes();
        pair.set_deadline_ms(deadline_ms);
        self.pairs_len_bytes += pair.block_len_bytes();
        drop(pair);
        if let Some(at_ms) = deadline_ms {
            self.note_deadline(at_ms);
        }
        true
    }

    fn note_deadline(&mut self, at_ms: i64) {
        let due = self.table.extra_or_insert_with(|| Due { min_ms: i64::MAX, cursor: 0 });
        due.min_ms = due.min_ms.min(at_ms);
    }

    /// Removes a field, expired or not. Returns false if it does not exist.
    pub(super) fn remove(&mut self, field: &[u8], hasher: &Hasher) -> bool {
        let Some(place) = self.table.find(hasher.hash_member(field), field) else { return false };
        self.pairs_len_bytes -= self.table.remove(place).block_len_bytes();
        true
    }

    /// Returns a lower bound of the deadlines of all stored fields, in Unix milliseconds; `None` if
    /// no field has one. O(1) without deadlines, else O(segments).
    ///
    /// [`Pairs::next_deadline_ms`] is not such a bound: a sweep may raise it above the deadline of
    /// a due field that is still stored.
    pub(super) fn deadline_bound_ms(&self) -> Option<i64> {
        if self.table.deadline_count() == 0 { None } else { self.table.deadline_min_ms() }
    }

    /// Returns the time in Unix milliseconds before which the hash needs no sweep for due fields;
    /// `None` if no field has a deadline. O(1).
    #[inline]
    pub(super) fn next_deadline_ms(&self) -> Option<i64> {
        if self.table.deadline_count() == 0 { None } else { self.table.extra().map(|due| due.min_ms) }
    }

    /// Removes fields that have expired at `now_ms` from a hash stored as a table, at most about
    /// `fields_max`, and calls `each` with their names. Returns the number removed. Afterwards
    /// [`Pairs::next_deadline_ms`] is later than `now_ms` if all expired fields were removed.
    pub(super) fn remove_due(
        &mut self,
        now_ms: i64,
        fields_max: usize,
        mut each: impl FnMut(Element<'_>),
    ) -> usize {
        let Some(cursor) = self.table.extra().map(|due| due.cursor) else { return 0 };
        let budget = SweepBudget { segments_max: SWEPT_SEGMENTS_MAX, elements_max: fields_max };
        let (len_bytes, mut removed) = (&mut self.pairs_len_bytes, 0);
        let next = self.table.sweep_due(cursor, now_ms, budget, |pair: Pair| {
            *len_bytes -= pair.block_len_bytes();
            removed += 1;
            each(Element::Bytes(pair.key()));
        });
        let min_ms = next.is_none().then(|| self.table.deadline_min_ms().unwrap_or(i64::MAX));
        if let Some(due) = self.table.extra_mut() {
            due.cursor = next.unwrap_or(0);
            if let Some(min_ms) = min_ms {
                // Segments store seconds: their bound may be before `now_ms`, although no field is
                // due.
                due.min_ms = min_ms.max(now_ms.saturating_add(1));
            }
        }
        removed
    }

    /// Returns the approximate bytes of the fields besides this struct. The table's buckets count
    /// with their mean fill. O(1).
    #[inline]
    pub(super) fn len_bytes(&self) -> usize {
        self.pairs_len_bytes + self.table.len_bytes_mean()
    }

    /// Returns the bytes of the fields besides this struct. Estimated for a big table.
    pub(super) fn memory_usage(&self) -> usize {
        let due = if self.table.extra().is_some() { size_of::<Due>() } else { 0 };
        self.pairs_len_bytes + self.table.memory_usage() + due
    }
}
