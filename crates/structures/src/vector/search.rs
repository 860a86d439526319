//! Search: down from the entry, then the best candidates of level 0.
//!
//! Each thread has its own marks and heaps, which the next search reuses. So searches share an
//! index without a lock. The marks are a bit per place and a list of the words that were written,
//! so that clearing them costs no more than the search.
//!
//! A search can pause after any part of its work. It goes on with the same version of the index,
//! and gives the same result as without a pause. A paused search keeps its marks and heaps.

use super::near::Near;
use super::{Limits, NONE, Query, Slot, VectorIndex, form};
use crate::prefetch::prefetch_read;
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

/// The number of links whose rows are fetched at once.
const FETCH_MAX: usize = 32;
/// The bytes of a row that are fetched ahead; the processor fetches the rest of a long row by
/// itself.
const FETCH_LEN_BYTES: usize = 512;
/// The length of a result that is sorted in one step.
const SORTED_AT_ONCE_MAX: usize = 4096;
/// The work of a call of `accept`, in bytes of compared vectors.
const ACCEPT_LEN_BYTES: usize = 1024;
/// The work of sorting one element, in bytes of compared vectors.
const SORT_LEN_BYTES: usize = 256;
/// The work of following a link besides comparing its vector, in bytes of compared vectors.
const LINK_LEN_BYTES: usize = 128;
/// The work of looking at a place besides comparing its vector, in bytes of compared vectors.
const PLACE_LEN_BYTES: usize = 32;
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
    /// The number of nodes that the walk has inspected.
    effort: usize,
    /// The node whose links are being followed, and the number of those that were.
    followed: Option<(u32, usize)>,
}

impl Scratch {
    /// Takes the memory of this thread. A search within the search gets other memory.
    fn take() -> Self {
        SCRATCH.take()
    }

    /// Gives the memory to the next search of this thread.
    fn give_back(mut self) {
        if self.visited.words.len() * 8 > MARKS_LEN_BYTES_MAX {
            self.visited = Visited::default();
        }
        SCRATCH.set(self);
    }
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Calls `work` with the memory of this thread.
pub(super) fn with_scratch<R>(work: impl FnOnce(&mut Scratch) -> R) -> R {
    let mut scratch = Scratch::take();
    let result = work(&mut scratch);
    scratch.give_back();
    result
}

/// The work that a search may still do before it pauses, in bytes of compared vectors.
struct Budget {
    left: usize,
    /// The number of links to follow before the next check of the budget. The rows of all of them
    /// are loaded at once.
    links_max: usize,
}

impl Budget {
    fn new(work_len_bytes: usize) -> Self {
        let links_max = (work_len_bytes / ACCEPT_LEN_BYTES).clamp(1, FETCH_MAX);
        Self { left: work_len_bytes, links_max }
    }

    #[inline]
    fn is_spent(&self) -> bool {
        self.left == 0
    }

    #[inline]
    fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
    }
}

/// A search that runs in steps, all on the same version of an index: [`VectorIndex::advance`].
pub struct PausableSearch {
    count: usize,
    ef: usize,
    effort_max: usize,
    /// True if `accept` has refused an element.
    has_rejected: bool,
    state: State,
}

/// The state of a search between two steps.
enum State {
    /// Compares all elements, from this place on.
    Scan(u32, BinaryHeap<Near>),
    /// Has come to a node on a level above 0.
    Descent(usize, Near),
    /// Walks over level 0.
    Walk(Box<Scratch>),
    /// Sorts the result from its end.
    Sort(BinaryHeap<Near>, Vec<Near>),
    /// Has ended, with the closest first.
    Sorted(Vec<Near>),
}

impl PausableSearch {
    /// Returns the found elements with their similarities, best first. The search has ended.
    pub fn into_found(self) -> Vec<(Slot, f64)> {
        self.found().iter().map(element).collect()
    }

    /// Returns the number of the first found elements whose similarity `is_wanted`. It must be
    /// wanted if a smaller one is. The search has ended. O(log n).
    pub fn found_len(&self, is_wanted: impl Fn(f64) -> bool) -> usize {
        self.found().partition_point(|near| is_wanted(element(near).1))
    }

    /// Returns some of the found elements with their similarities, the best one being at index 0.
    /// The search has ended.
    pub fn found_at(&self, range: Range<usize>) -> impl Iterator<Item = (Slot, f64)> {
        self.found()[range].iter().map(element)
    }

    fn found(&self) -> &[Near] {
        let State::Sorted(found) = &self.state else { panic!("the caller has run the search to its end") };
        &found[..found.len().min(self.count)]
    }
}

/// Returns the element of a node, with its similarity.
fn element(near: &Near) -> (Slot, f64) {
    (Slot(near.slot()), form::similarity(near.distance()))
}

impl State {
    /// Returns the state after the last comparison.
    fn of_best(best: BinaryHeap<Near>) -> Self {
        match best.len() {
            0..=SORTED_AT_ONCE_MAX => State::Sorted(best.into_sorted_vec()),
            len => State::Sort(best, Vec::with_capacity(len)),
        }
    }
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
        accept: impl FnMut(Slot) -> bool,
    ) -> Vec<(Slot, f64)> {
        let mut search = self.begin_search(query, limits);
        self.advance(&mut search, query, usize::MAX, accept);
        search.into_found()
    }

    /// Finds the accepted elements that are most similar to `query` by comparing all of them, best
    /// first. O(n). `accept` as for [`VectorIndex::search`].
    pub fn scan(&self, query: &Query, count: usize, accept: impl FnMut(Slot) -> bool) -> Vec<(Slot, f64)> {
        let mut search = self.begin_scan(count);
        self.advance(&mut search, query, usize::MAX, accept);
        search.into_found()
    }

    /// Begins a search as [`VectorIndex::search`] makes it.
    pub fn begin_search(&self, query: &Query, limits: Limits) -> PausableSearch {
        let Limits { count, ef, effort_max } = limits;
        let (ef, effort_max) = (ef.max(count), effort_max.unwrap_or(usize::MAX));
        if count == 0 || self.is_empty() || self.len() <= ef.min(effort_max) {
            return self.begin_scan(count);
        }
        let state = State::Descent(self.max_level(), self.near(&query.row, self.entry));
        PausableSearch { count, ef, effort_max, has_rejected: false, state }
    }

    /// Begins a search as [`VectorIndex::scan`] makes it.
    pub fn begin_scan(&self, count: usize) -> PausableSearch {
        let state = match count {
            0 => State::Sorted(Vec::new()),
            _ => State::Scan(0, BinaryHeap::new()),
        };
        PausableSearch { count, ef: count, effort_max: usize::MAX, has_rejected: false, state }
    }

    /// Continues a search on the version of the index with which it began. Pauses after the work
    /// of comparing about `work_len_bytes` bytes of vectors. Returns true if the search has ended.
    pub fn advance(
        &self,
        search: &mut PausableSearch,
        query: &Query,
        work_len_bytes: usize,
        mut accept: impl FnMut(Slot) -> bool,
    ) -> bool {
        let mut budget = Budget::new(work_len_bytes);
        let has_rejected = Cell::new(search.has_rejected);
        let mut accept = |slot| {
            let is_accepted = accept(Slot(slot));
            if !is_accepted {
                has_rejected.set(true);
            }
            is_accepted
        };
        while !budget.is_spent() {
            let state = std::mem::replace(&mut search.state, State::Sorted(Vec::new()));
            search.state = match state {
                State::Scan(from, best) => {
                    self.scan_on(search.count, query, (from, best), &mut budget, &mut accept)
                }
                State::Descent(level, closest) => {
                    budget.spend(self.limit(level) * query.row.len());
                    self.descend_on(search, query, (level, closest), &mut accept)
                }
                State::Walk(mut scratch) => {
                    let PausableSearch { ef, effort_max, .. } = *search;
                    let walk = Walk { row: &query.row, level: 0, ef, effort_max };
                    if self.walk_on(walk, &mut scratch, &mut budget, &mut accept) {
                        let best = std::mem::take(&mut scratch.best);
                        scratch.give_back();
                        if best.len() < search.count && effort_max == usize::MAX && !has_rejected.get() {
                            State::Scan(0, BinaryHeap::new())
                        } else {
                            State::of_best(best)
                        }
                    } else {
                        State::Walk(scratch)
                    }
                }
                State::Sort(mut best, mut sorted) => {
                    budget.spend(SORT_LEN_BYTES * SORTED_AT_ONCE_MAX);
                    sorted.extend(std::iter::from_fn(|| best.pop()).take(SORTED_AT_ONCE_MAX));
                    if best.is_empty() {
                        sorted.reverse();
                        State::Sorted(sorted)
                    } else {
                        State::Sort(best, sorted)
                    }
                }
                State::Sorted(found) => {
                    search.state = State::Sorted(found);
                    return true;
                }
            };
        }
        search.has_rejected = has_rejected.get();
        matches!(search.state, State::Sorted(_))
    }

    /// Continues to compare all elements.
    fn scan_on(
        &self,
        count: usize,
        query: &Query,
        (from, mut best): (u32, BinaryHeap<Near>),
        budget: &mut Budget,
        accept: &mut impl FnMut(u32) -> bool,
    ) -> State {
        let places = self.nodes.len() as u32;
        for slot in from..places {
            if budget.is_spent() {
                return State::Scan(slot, best);
            }
            budget.spend(PLACE_LEN_BYTES);
            if self.nodes.get(slot).is_none() {
                continue;
            }
            budget.spend(query.row.len());
            let near = self.near(&query.row, slot);
            let is_full = best.len() == count;
            if is_full && best.peek().is_some_and(|worst| *worst <= near) {
                continue;
            }
            budget.spend(ACCEPT_LEN_BYTES);
            if accept(slot) {
                if is_full {
                    best.pop();
                }
                best.push(near);
            }
        }
        State::of_best(best)
    }

    /// Takes one hop of the descent, or begins the walk over level 0.
    fn descend_on(
        &self,
        search: &PausableSearch,
        query: &Query,
        (level, closest): (usize, Near),
        accept: &mut impl FnMut(u32) -> bool,
    ) -> State {
        if level > 0 {
            return match self.hop(&query.row, level, closest) {
                Some(closer) => State::Descent(level, closer),
                None => State::Descent(level - 1, closest),
            };
        }
        let mut scratch = Box::new(Scratch::take());
        scratch.found.clear();
        scratch.found.push(closest);
        self.begin_walk(search.ef, &mut scratch, accept);
        State::Walk(scratch)
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
            while let Some(closer) = self.hop(row, level, closest) {
                closest = closer;
            }
        }
        closest
    }

    /// Returns the closest link of a node on one level, if it is closer than the node.
    fn hop(&self, row: &[u8], level: usize, from: Near) -> Option<Near> {
        let links = self.links_at(level, from.slot());
        for link in links {
            self.fetch(*link);
        }
        links.iter().map(|link| self.near(row, *link)).min().filter(|best| *best < from)
    }

    /// Walks over one level from the nodes in `scratch.found`, and puts the best accepted nodes
    /// there.
    pub(super) fn walk(&self, walk: Walk<'_>, scratch: &mut Scratch, mut accept: impl FnMut(u32) -> bool) {
        self.begin_walk(walk.ef, scratch, &mut accept);
        self.walk_on(walk, scratch, &mut Budget::new(usize::MAX), &mut accept);
        scratch.found.extend(scratch.best.drain());
        scratch.found.sort_unstable();
    }

    /// Begins a walk from the nodes in `scratch.found`.
    fn begin_walk(&self, ef: usize, scratch: &mut Scratch, accept: &mut impl FnMut(u32) -> bool) {
        let Scratch { visited, open, best, found, effort, followed } = scratch;
        visited.begin(self.nodes.len());
        open.clear();
        best.clear();
        *followed = None;
        for near in found.drain(..) {
            visited.mark(near.slot());
            open.push(Reverse(near));
            if accept(near.slot()) {
                best.push(near);
            }
        }
        while best.len() > ef {
            best.pop();
        }
        *effort = open.len();
    }

    /// Continues a walk, whose best nodes are in `scratch.best`. Returns true if it has ended.
    #[inline]
    fn walk_on(
        &self,
        walk: Walk<'_>,
        scratch: &mut Scratch,
        budget: &mut Budget,
        accept: &mut impl FnMut(u32) -> bool,
    ) -> bool {
        let Scratch { visited, open, best, effort, followed, .. } = scratch;
        loop {
            let (slot, mut from) = match followed.take() {
                Some(followed) => followed,
                None => {
                    let Some(Reverse(closest)) = open.pop() else { return true };
                    let is_full = best.len() >= walk.ef;
                    if is_full && best.peek().is_some_and(|worst| closest > *worst)
                        || *effort >= walk.effort_max
                    {
                        return true;
                    }
                    (closest.slot(), 0)
                }
            };
            let all_links = self.links_at(walk.level, slot);
            while from < all_links.len() {
                if budget.is_spent() {
                    *followed = Some((slot, from));
                    return false;
                }
                let to = all_links.len().min(from + budget.links_max);
                let links = &all_links[from..to];
                from = to;
                let mut fresh: [(u32, &[u8]); FETCH_MAX] = [(NONE, &[]); FETCH_MAX];
                let mut fresh_len = 0;
                for link in links.iter().filter(|link| visited.mark(**link)) {
                    fresh[fresh_len] = (*link, self.fetch(*link));
                    fresh_len += 1;
                }
                *effort += fresh_len;
                budget.spend(links.len() * (walk.row.len() + LINK_LEN_BYTES));
                for (link, row) in &fresh[..fresh_len] {
                    let near = Near::new(self.form.distance(walk.row, row), *link);
                    let is_full = best.len() >= walk.ef;
                    if is_full && best.peek().is_some_and(|worst| near > *worst) {
                        continue;
                    }
                    open.push(Reverse(near));
                    budget.spend(ACCEPT_LEN_BYTES);
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
