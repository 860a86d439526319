//! Search: down from the entry, then the best candidates of level 0.
//!
//! Each thread has its own marks and heaps, which the next search reuses. So searches share an
//! index without a lock. The marks are a bit per place and a list of the words that were written,
//! so that clearing them costs no more than the search.

use super::near::Near;
use super::{Limits, NONE, Query, Slot, VectorIndex, form};
use crate::prefetch::prefetch_read;
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The number of links whose rows are fetched at once.
const FETCH_MAX: usize = 32;
/// The bytes of a row that are fetched ahead; the processor fetches the rest of a long row by
/// itself.
const FETCH_LEN_BYTES: usize = 512;
/// The memory of marks that a thread keeps between searches.
const MARKS_LEN_BYTES_MAX: usize = 4 << 20;

/// The marks of visited places.
#[derive(Default)]
struct Visited {
    words: Vec<u64>,
    /// The numbers of the words that have marks.
    written: Vec<u32>,
}

impl Visited {
    /// Prepares marks for `places` places, all without a mark.
    fn begin(&mut self, places: usize) {
        for word in self.written.drain(..) {
            self.words[word as usize] = 0;
        }
        if self.words.len() < places.div_ceil(64) {
            self.words.resize(places.div_ceil(64).next_power_of_two(), 0);
        }
    }

    /// Marks a place; false if it had a mark.
    #[inline]
    fn mark(&mut self, place: u32) -> bool {
        let word = &mut self.words[place as usize / 64];
        let before = *word;
        *word |= 1 << (place % 64);
        if before == 0 {
            self.written.push(place / 64);
        }
        *word != before
    }
}

/// The memory of one search.
#[derive(Default)]
pub(super) struct Scratch {
    visited: Visited,
    /// Nodes whose links were not followed, the closest first.
    open: BinaryHeap<Reverse<Near>>,
    /// The best accepted nodes, the farthest first.
    best: BinaryHeap<Near>,
    /// The result of the last walk, the closest first.
    pub(super) found: Vec<Near>,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Calls `work` with the memory of this thread. A search within the search gets other memory.
pub(super) fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = SCRATCH.take();
    let result = work(&mut scratch);
    if scratch.visited.words.len() * 8 > MARKS_LEN_BYTES_MAX {
        scratch.visited = Visited::default();
    }
    SCRATCH.set(scratch);
    result
}

/// The aim and the limits of a walk on one level.
#[derive(Clone, Copy)]
pub(super) struct Walk<'a> {
    pub(super) row: &'a [u8],
    pub(super) level: usize,
    /// The number of best nodes to keep.
    pub(super) ef: usize,
    /// The number of nodes to inspect at most.
    pub(super) effort_max: usize,
}

impl VectorIndex {
    /// Finds the accepted elements that are most similar to `query`, best first, with their
    /// similarities. The result is approximate: it may miss some elements. An index of at most
    /// `ef` elements is compared as a whole.
    ///
    /// Removals and full lists of links may cut off a small part of the graph. If a walk without a
    /// limit of effort reaches fewer than `count` elements and `accept` refuses none of them, all
    /// elements are compared, O(n). So the result is never shorter for lack of links.
    ///
    /// `accept` is called at most once for an element, twice if all are compared after a walk, and
    /// only for those that would enter the result.
    pub fn search(
        &self,
        query: &Query,
        limits: Limits,
        mut accept: impl FnMut(Slot) -> bool,
    ) -> Vec<(Slot, f64)> {
        let Limits { count, ef, effort_max } = limits;
        let ef = ef.max(count);
        if count == 0 || self.is_empty() {
            return Vec::new();
        }
        let effort_max = effort_max.unwrap_or(usize::MAX);
        if self.len() <= ef.min(effort_max) {
            return self.scan(query, count, accept);
        }
        let mut has_rejected = false;
        let found: Vec<(Slot, f64)> = with_scratch(|scratch| {
            scratch.found.clear();
            scratch.found.push(self.descend(&query.row, 0));
            self.walk(Walk { row: &query.row, level: 0, ef, effort_max }, scratch, |slot| {
                let is_accepted = accept(Slot(slot));
                has_rejected |= !is_accepted;
                is_accepted
            });
            let best = scratch.found.iter().take(count);
            best.map(|near| (Slot(near.slot()), form::similarity(near.distance()))).collect()
        });
        if found.len() < count && effort_max == usize::MAX && !has_rejected {
            return self.scan(query, count, accept);
        }
        found
    }

    /// Returns the distance of a place from a row.
    #[inline]
    pub(super) fn near(&self, row: &[u8], slot: u32) -> Near {
        Near::new(self.form.distance(row, self.rows.get(slot)), slot)
    }

    /// Walks from the entry to the closest node on each level above `level`, and returns the last
    /// one.
    pub(super) fn descend(&self, row: &[u8], level: usize) -> Near {
        let mut closest = self.near(row, self.entry);
        for level in (level + 1..=self.max_level()).rev() {
            loop {
                let links = self.links_at(level, closest.slot());
                for link in links {
                    self.fetch(*link);
                }
                let best = links.iter().map(|link| self.near(row, *link)).min();
                match best {
                    Some(best) if best < closest => closest = best,
                    _ => break,
                }
            }
        }
        closest
    }

    /// Walks over one level from the nodes in `scratch.found`, and puts the best accepted nodes
    /// there.
    pub(super) fn walk(&self, walk: Walk<'_>, scratch: &mut Scratch, mut accept: impl FnMut(u32) -> bool) {
        let Scratch { visited, open, best, found } = scratch;
        visited.begin(self.nodes.len());
        open.clear();
        best.clear();
        for near in found.drain(..) {
            visited.mark(near.slot());
            open.push(Reverse(near));
            if accept(near.slot()) {
                best.push(near);
            }
        }
        while best.len() > walk.ef {
            best.pop();
        }
        let mut effort = open.len();
        while let Some(Reverse(closest)) = open.pop() {
            let is_full = best.len() >= walk.ef;
            if is_full && best.peek().is_some_and(|worst| closest > *worst) || effort >= walk.effort_max {
                break;
            }
            for links in self.links_at(walk.level, closest.slot()).chunks(FETCH_MAX) {
                let mut fresh: [(u32, &[u8]); FETCH_MAX] = [(NONE, &[]); FETCH_MAX];
                let mut fresh_len = 0;
                for link in links.iter().filter(|link| visited.mark(**link)) {
                    fresh[fresh_len] = (*link, self.fetch(*link));
                    fresh_len += 1;
                }
                effort += fresh_len;
                for (link, row) in &fresh[..fresh_len] {
                    let near = Near::new(self.form.distance(walk.row, row), *link);
                    let is_full = best.len() >= walk.ef;
                    if is_full && best.peek().is_some_and(|worst| near > *worst) {
                        continue;
                    }
                    open.push(Reverse(near));
                    if accept(*link) {
                        if is_full {
                            best.pop();
                        }
                        best.push(near);
                    }
                }
            }
            if let Some(Reverse(next)) = open.peek() {
                self.fetch_links(walk.level, next.slot());
            }
        }
        found.extend(best.drain());
        found.sort_unstable();
    }

    /// Starts to load the row of a place, and returns it.
    #[inline]
    fn fetch(&self, place: u32) -> &[u8] {
        let row = self.rows.get(place);
        for at in (0..row.len().min(FETCH_LEN_BYTES)).step_by(64) {
            prefetch_read(row[at..].as_ptr());
        }
        row
    }

    #[inline]
    fn fetch_links(&self, level: usize, place: u32) {
        if level == 0 {
            let row = self.lists.row(place);
            prefetch_read(row.as_ptr());
            prefetch_read(row[row.len() / 2..].as_ptr());
        }
    }
}
