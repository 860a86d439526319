//! Uniform random choice from collections. Random numbers are arguments: `draw` returns 64 uniform
//! bits.

use std::collections::HashSet;

use structures::packed_set::{PackedPlace, PackedSet};
use structures::table::{Borrowed, Place, Table, Thin};

/// Draws a uniform random index below `len`, which must not be zero.
#[inline]
pub(crate) fn index_below(len: usize, mut draw: impl FnMut() -> u64) -> usize {
    // The bias of this product is below len / 2^64.
    ((u128::from(draw()) * len as u128) >> 64) as usize
}

/// A uniform choice of `wanted` of `total` items, which decides for one item after the other.
pub(crate) struct Selection {
    total: usize,
    wanted: usize,
}

impl Selection {
    pub(crate) fn new(total: usize, wanted: usize) -> Self {
        Self { total, wanted: wanted.min(total) }
    }

    /// Returns true if the next of the items belongs to the choice.
    pub(crate) fn next(&mut self, draw: impl FnMut() -> u64) -> bool {
        let chosen = self.wanted > 0 && index_below(self.total, draw) < self.wanted;
        self.total -= 1;
        self.wanted -= usize::from(chosen);
        chosen
    }
}

/// Calls `visit` with `count` distinct elements of a table, uniformly chosen, or with all elements
/// if there are no more than `count`. Expected O(count).
pub(crate) fn sample_table<E: Thin>(
    table: &Table<E>,
    count: usize,
    mut draw: impl FnMut() -> u64,
    mut visit: impl FnMut(Borrowed<'_, E>),
) {
    if count >= table.len() / 3 {
        let mut selection = Selection::new(table.len(), count);
        for element in table.iter() {
            if selection.next(&mut draw) {
                visit(element);
            }
        }
        return;
    }
    let mut seen: HashSet<Place, ahash::RandomState> =
        HashSet::with_capacity_and_hasher(count, ahash::RandomState::with_seeds(1, 2, 3, 4));
    while seen.len() < count {
        let Some(place) = table.random(&mut draw) else { return };
        if seen.insert(place) {
            visit(table.at(place));
        }
    }
}

/// Calls `visit` with `count` distinct members of a set like [`sample_table`]. Expected O(count).
pub(crate) fn sample_packed(
    members: &PackedSet,
    count: usize,
    mut draw: impl FnMut() -> u64,
    mut visit: impl FnMut(&[u8]),
) {
    if count >= members.len() / 3 {
        let mut selection = Selection::new(members.len(), count);
        members.iter().filter(|_| selection.next(&mut draw)).for_each(visit);
        return;
    }
    let mut seen: HashSet<PackedPlace, ahash::RandomState> =
        HashSet::with_capacity_and_hasher(count, ahash::RandomState::with_seeds(1, 2, 3, 4));
    while seen.len() < count {
        let Some(place) = members.random(&mut draw) else { return };
        if seen.insert(place) {
            visit(members.at(place));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws() -> impl FnMut() -> u64 {
        let mut state = 1_u64;
        move || {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        }
    }

    #[test]
    fn a_selection_has_exactly_the_wanted_size_and_no_favourites() {
        let mut draw = draws();
        let mut chosen = [0_u32; 10];
        for _ in 0..10_000 {
            let mut selection = Selection::new(10, 3);
            let picks: Vec<usize> = (0..10).filter(|_| selection.next(&mut draw)).collect();
            assert_eq!(picks.len(), 3);
            picks.into_iter().for_each(|at| chosen[at] += 1);
        }
        assert!(chosen.iter().all(|count| (2700..3300).contains(count)), "{chosen:?}");
    }
}
