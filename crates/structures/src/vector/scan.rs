//! Exact search: the distances of all elements.

use super::near::Near;
use super::{Query, Slot, VectorIndex, form};
use std::collections::BinaryHeap;

impl VectorIndex {
    /// Finds the accepted elements that are most similar to `query` by comparing all of them,
    /// best first. O(n).
    ///
    /// `accept` is called at most once for an element, and only for those that would enter the
    /// result.
    pub fn scan(
        &self,
        query: &Query,
        count: usize,
        mut accept: impl FnMut(Slot) -> bool,
    ) -> Vec<(Slot, f64)> {
        let mut best: BinaryHeap<Near> = BinaryHeap::new();
        if count == 0 {
            return Vec::new();
        }
        for slot in (0..self.nodes.len() as u32).filter(|slot| self.nodes.get(*slot).is_some()) {
            let near = self.near(&query.row, slot);
            let is_full = best.len() == count;
            if is_full && best.peek().is_some_and(|worst| *worst <= near) || !accept(Slot(slot)) {
                continue;
            }
            if is_full {
                best.pop();
            }
            best.push(near);
        }
        let best = best.into_sorted_vec().into_iter();
        best.map(|near| (Slot(near.slot()), form::similarity(near.distance()))).collect()
    }
}
