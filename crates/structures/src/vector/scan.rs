//! Exact search: the distances of all elements.

use super::{Query, Slot, VectorIndex, form};
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A node and its distance, ordered by the distance, then by the slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Near {
    pub(super) distance: f32,
    pub(super) slot: u32,
}

impl PartialEq for Near {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Near {}

impl PartialOrd for Near {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Near {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.total_cmp(&other.distance).then(self.slot.cmp(&other.slot))
    }
}

impl VectorIndex {
    /// Finds the accepted elements that are most similar to `query` by comparing all of them, best first. O(n).
    ///
    /// `accept` is called at most once for an element, and only for those that would enter the result.
    pub fn scan(
        &self,
        query: &Query,
        count: usize,
        mut accept: impl FnMut(Slot) -> bool,
    ) -> Vec<(Slot, f32)> {
        let mut best: BinaryHeap<Near> = BinaryHeap::new();
        if count == 0 {
            return Vec::new();
        }
        for slot in self.slots() {
            let near = Near { distance: self.form.distance(&query.row, self.rows.get(slot.0)), slot: slot.0 };
            if best.len() == count && best.peek().is_some_and(|worst| *worst <= near) || !accept(slot) {
                continue;
            }
            if best.len() == count {
                best.pop();
            }
            best.push(near);
        }
        best.into_sorted_vec()
            .into_iter()
            .map(|near| (Slot(near.slot), form::similarity(near.distance)))
            .collect()
    }
}
