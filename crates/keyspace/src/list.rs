//! The list type: one listpack while it is short, a quicklist when it is long.
//!
//! A list becomes a quicklist when a push, an insertion or a replacement could take its listpack
//! beyond `list-max-listpack-size`. It becomes a listpack again when elements are removed and the
//! rest is in one node of at most half that limit. A list around the limit therefore does not
//! change back and forth. Both conditions are those of Redis 7.2 and later (compared with 8.0.2).
//!
//! Users' indices count from the end if they are negative. A `usize` index counts from the first
//! element.
//!
//! Invariants: only those of the listpack and the quicklist. This module allows empty lists; the
//! keyspace ensures that no key has one.

use crate::element_batch::ElementBatch;
use crate::freeing::FreeingSteps;
use std::ops::{ControlFlow, Range};

use structures::listpack::element::{Element, Needle};
use structures::listpack::{Cursor, Listpack};
use structures::quicklist::{NodeLimit, NodeView, Quicklist};
use structures::size_class::size_class;
use structures::walk_state::WalkState;

/// The limits of the size of a list's listpack or nodes, and the compression of long lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct ListLimits {
    node: NodeLimit,
}

impl ListLimits {
    /// Converts a value of the option `list-max-listpack-size` to the limits of a list, without
    /// compression.
    pub const fn from_option(list_max_listpack_size: i64) -> Self {
        Self { node: NodeLimit::from_option(list_max_listpack_size) }
    }

    /// Sets the length in bytes from which a string has a node of its own in a list.
    pub const fn with_plain_from(self, len_bytes: u32) -> Self {
        Self { node: self.node.with_plain_from(len_bytes) }
    }

    /// Sets `list-compress-depth`: nodes of long lists further than `depth` nodes from both ends
    /// are compressed.
    pub const fn with_compress_depth(self, depth: i64) -> Self {
        Self { node: self.node.with_compress_depth(depth) }
    }

    /// Returns the limit of one node of a quicklist.
    pub const fn node(self) -> NodeLimit {
        self.node
    }
}

/// The two ends of a list. Commands call the front LEFT or HEAD, and the back RIGHT or TAIL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListEnd {
    /// The front of the list, the end with index 0: the first element.
    Front,
    /// The back of the list, the end with index -1: the last element.
    Back,
}

/// The order in which several elements popped from the end of a list are pushed (BLMOVEM).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushOrder {
    /// The element that was popped first is pushed first.
    AsPopped,
    /// The element that was popped last is pushed first.
    Reversed,
}

/// The side of the pivot at which LINSERT inserts its element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// The element is inserted before the pivot.
    Before,
    /// The element is inserted after the pivot.
    After,
}

/// The parameters of a search for an element's positions (LPOS).
#[derive(Clone, Copy, Debug)]
pub struct PositionQuery<'a> {
    /// The string that the elements to find must equal.
    pub value: &'a [u8],
    /// The number of the first match to return, from 1. A negative rank counts matches from the
    /// back. The caller rejects 0, which this module treats as -1.
    pub rank: i64,
    /// The most matches that LPOS returns; 0 means all.
    pub count_max: usize,
    /// The most elements that LPOS compares; 0 means all.
    pub compared_max: usize,
}

/// The elements that [`List::trim`] removed: their number, and those that it did not free.
#[derive(Debug)]
pub struct Trimmed {
    /// The number of elements that were removed from the list.
    pub removed: usize,
    /// Most of the removed elements, if they are so many that the caller should free them in the
    /// background. Else `None`.
    pub leftovers: Option<List>,
}

/// The most nodes that a trim frees itself, which takes some microseconds.
const FREED_NODES_MAX: usize = 16;

/// The structure of a list, for code that writes lists to files or peers.
#[derive(Clone, Copy, Debug)]
pub enum ListView<'a> {
    /// A list in the encoding `listpack`.
    Pack(&'a Listpack),
    /// A list in the encoding `quicklist`.
    Quick(&'a Quicklist),
}

/// A list of strings. It takes 16 bytes.
#[derive(Clone, Debug)]
pub struct List {
    elements: Elements,
}

#[derive(Clone, Debug)]
enum Elements {
    Pack(Listpack),
    Quick(Box<Quicklist>),
}

const _: () = assert!(size_of::<List>() <= 16);

/// The panic message for an edit that a listpack refuses. A list's limits are far below a
/// listpack's own limit, so it cannot happen.
const WITHIN_LIMIT: &str = "a listpack within a node's limit is far below its own";

impl Default for List {
    fn default() -> Self {
        Self { elements: Elements::Pack(Listpack::new()) }
    }
}

impl List {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a list of the elements of `listpack`, in the encoding that `limits` require. O(1).
    pub fn from_listpack(listpack: Listpack, limits: ListLimits) -> Self {
        let fits = limits.node.allows_listpack(listpack.len_bytes(), listpack.len());
        let mut list = Self { elements: Elements::Pack(listpack) };
        if !fits {
            list.make_quick(limits);
        }
        list
    }

    /// Creates a list of the elements of `quicklist`, in the encoding that `limits` require. O(1),
    /// or the bytes of one node.
    pub fn from_quicklist(quicklist: Quicklist, limits: ListLimits) -> Self {
        if let Some(len_bytes) = quicklist.single_node_len_bytes()
            && limits.node.allows_listpack(len_bytes, quicklist.len())
            && let Some(listpack) = quicklist.to_single_listpack()
        {
            return Self { elements: Elements::Pack(listpack) };
        }
        Self { elements: Elements::Quick(Box::new(quicklist)) }
    }

    /// Returns the structure in which the list is stored: a listpack or a quicklist. O(1).
    pub fn view(&self) -> ListView<'_> {
        match &self.elements {
            Elements::Pack(pack) => ListView::Pack(pack),
            Elements::Quick(quick) => ListView::Quick(quick),
        }
    }

    /// Returns the number of elements of the list. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        match &self.elements {
            Elements::Pack(pack) => pack.len(),
            Elements::Quick(quick) => quick.len(),
        }
    }

    /// Returns true if the list has no elements. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        match &self.elements {
            Elements::Pack(pack) => pack.is_empty(),
            Elements::Quick(quick) => quick.is_empty(),
        }
    }

    /// Returns the name of the list's encoding for OBJECT ENCODING.
    pub fn encoding_name(&self) -> &'static str {
        match self.elements {
            Elements::Pack(_) => "listpack",
            Elements::Quick(_) => "quicklist",
        }
    }

    /// Converts the list to an iterator that frees one node in each step; a listpack takes one
    /// step. O(1).
    pub fn into_freed(self) -> FreeingSteps {
        match self.elements {
            Elements::Quick(quick) => Box::new(quick.into_freed()),
            small @ Elements::Pack(_) => Box::new(std::iter::once(small).map(drop)),
        }
    }

    /// Returns the bytes that the list owns outside its key's block, without the allocator's
    /// rounding. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        match &self.elements {
            Elements::Pack(pack) => pack.len_bytes(),
            Elements::Quick(quick) => quick.len_bytes(),
        }
    }

    /// Returns the bytes that the list owns outside its key's block. O(nodes).
    pub fn memory_usage(&self) -> usize {
        match &self.elements {
            Elements::Pack(pack) => pack.memory_usage(),
            Elements::Quick(quick) => size_class(size_of::<Quicklist>()) + quick.memory_usage(),
        }
    }

    // Reading.

    /// Converts a user's index, which counts from the end if it is negative, to an index from the
    /// first element. Returns `None` if it is out of range. O(1).
    #[inline]
    pub fn resolve_index(&self, index: i64) -> Option<usize> {
        let len = self.len();
        let index = if index < 0 { index.checked_add_unsigned(len as u64)? } else { index };
        usize::try_from(index).ok().filter(|&index| index < len)
    }

    /// Converts a user's inclusive range from `start` to `stop` to indices from the first element.
    /// The part outside the list is cut off. O(1).
    #[inline]
    pub fn resolve_range(&self, start: i64, stop: i64) -> Range<usize> {
        let len = self.len() as i64;
        let resolve = |index: i64| if index < 0 { index.saturating_add(len) } else { index };
        let start = resolve(start).clamp(0, len);
        let end = resolve(stop).min(len - 1).max(start - 1) + 1;
        start as usize..end as usize
    }

    /// Calls `with` with the element at a user's index, and returns its result. Returns `None` if
    /// there is no such element. O(nodes + elements of one node).
    pub fn with<R>(&self, index: i64, with: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let index = self.resolve_index(index)?;
        match &self.elements {
            Elements::Pack(pack) => pack.iter_from(pack.seek(index)?).next().map(with),
            Elements::Quick(quick) => quick.with(index, with),
        }
    }

    /// Calls `visit` with all elements, first to last. O(n).
    pub fn visit(&self, visit: impl FnMut(Element<'_>)) {
        self.visit_range(0..self.len(), visit);
    }

    /// Calls `visit` with the elements in `range` (see [`List::resolve_range`]), which must be
    /// within the list. O(nodes + elements of one node) to begin, then O(1) for each element.
    #[inline]
    pub fn visit_range(&self, range: Range<usize>, visit: impl FnMut(Element<'_>)) {
        match &self.elements {
            Elements::Pack(pack) => {
                let start = pack.seek(range.start).unwrap_or(pack.end());
                pack.iter_from(start).visit(range.len(), visit);
            }
            Elements::Quick(quick) => quick.visit(range.start, range.len(), visit),
        }
    }

    /// Calls `visit` with the elements in `range` like [`List::visit_range`], but last to first.
    pub fn visit_range_rev(&self, range: Range<usize>, mut visit: impl FnMut(Element<'_>)) {
        let mut left = range.len();
        // The result is not needed: the visit ends early only if all elements in the range were
        // visited.
        let _ = self.try_visit_rev(range.end, |element| {
            if left == 0 {
                return ControlFlow::Break(());
            }
            left -= 1;
            visit(element);
            ControlFlow::Continue(())
        });
    }

    /// Calls `visit` with all elements, first to last, until it returns `Break`. O(n).
    fn try_visit<B>(&self, visit: impl FnMut(Element<'_>) -> ControlFlow<B>) -> ControlFlow<B> {
        match &self.elements {
            Elements::Pack(pack) => pack.iter().try_for_each(visit),
            Elements::Quick(quick) => quick.try_visit(visit),
        }
    }

    /// Calls `visit` with the elements before index `end`, last to first, until it returns `Break`.
    /// O(n).
    fn try_visit_rev<B>(
        &self,
        end: usize,
        visit: impl FnMut(Element<'_>) -> ControlFlow<B>,
    ) -> ControlFlow<B> {
        let Some(last) = end.checked_sub(1) else { return ControlFlow::Continue(()) };
        match &self.elements {
            Elements::Pack(pack) => {
                let end = pack.seek(end).unwrap_or(pack.end());
                pack.iter_before(end).rev().try_for_each(visit)
            }
            Elements::Quick(quick) => quick.try_visit_rev(last, visit),
        }
    }

    /// Calls `found` with the indices of elements equal to the query's value, in the order in which
    /// they are found: descending for a negative rank. O(n).
    pub fn positions(&self, query: PositionQuery<'_>, mut found: impl FnMut(usize)) {
        let or_all = |max: usize| if max == 0 { usize::MAX } else { max };
        let needle = Needle::new(query.value);
        let mut passed = usize::try_from(query.rank.unsigned_abs().saturating_sub(1)).unwrap_or(usize::MAX);
        let (compared_max, mut wanted) = (or_all(query.compared_max), or_all(query.count_max));
        let (len, from_front) = (self.len(), query.rank > 0);
        let mut compared = 0;
        let look = |element: Element<'_>| {
            if compared == compared_max {
                return ControlFlow::Break(());
            }
            let at = if from_front { compared } else { len - 1 - compared };
            compared += 1;
            if !needle.matches(element) {
                return ControlFlow::Continue(());
            }
            if passed > 0 {
                passed -= 1;
                return ControlFlow::Continue(());
            }
            found(at);
            wanted -= 1;
            if wanted == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        // The result is not needed: it only says that `look` stopped the visit.
        let _ = if from_front { self.try_visit(look) } else { self.try_visit_rev(len, look) };
    }

    // Operations at the ends.

    /// Pushes `values` one after the other at `end`. At the front, the last value becomes the first
    /// element. Amortised O(bytes of `values`) for a quicklist, O(bytes of the list) for a
    /// listpack.
    #[inline]
    pub fn push<'v>(
        &mut self,
        end: ListEnd,
        values: impl DoubleEndedIterator<Item = &'v [u8]> + Clone,
        limits: ListLimits,
    ) {
        self.grow(values.clone(), limits);
        match &mut self.elements {
            Elements::Quick(quick) => match end {
                ListEnd::Front => values.for_each(|value| quick.push_front(value)),
                ListEnd::Back => values.for_each(|value| quick.push_back(value)),
            },
            Elements::Pack(pack) => {
                let values = values.map(Element::Bytes);
                match end {
                    ListEnd::Front => pack.insert_iter(Cursor::START, values.rev()),
                    ListEnd::Back => pack.insert_iter(pack.end(), values),
                }
                .expect(WITHIN_LIMIT);
            }
        }
    }

    /// Removes up to `count` elements at `end`, and calls `popped` with each before its removal.
    /// Returns the number removed. Amortised O(count) for a quicklist, O(bytes of the list) for a
    /// listpack.
    #[inline]
    pub fn pop(
        &mut self,
        end: ListEnd,
        count: usize,
        limits: ListLimits,
        popped: impl FnMut(Element<'_>),
    ) -> usize {
        let done = self.take(end, count, popped);
        self.shrink(limits);
        done
    }

    /// Moves the element at the end `from` to the end `to`. Returns its text; `None` if the list is
    /// empty. Amortised O(bytes of the element) for a quicklist, O(bytes of the list) for a
    /// listpack.
    pub fn rotate(&mut self, from: ListEnd, to: ListEnd, limits: ListLimits) -> Option<Vec<u8>> {
        let mut moved = None;
        self.take(from, 1, |element| element.append_to(moved.insert(Vec::new())));
        // As in Redis, the encoding depends on the list before and after the move, not on the list
        // without the element.
        if let Some(moved) = &moved {
            self.push(to, std::iter::once(moved.as_slice()), limits);
            self.shrink(limits);
        }
        moved
    }

    /// Moves up to `count` elements at the end `from` to the end `to`: pops them all, then pushes
    /// them in the given order. Returns them in the order in which they were popped. O(count) for a
    /// quicklist, O(bytes of the list) for a listpack.
    pub fn rotate_many(
        &mut self,
        (from, to): (ListEnd, ListEnd),
        count: usize,
        order: PushOrder,
        limits: ListLimits,
    ) -> ElementBatch {
        let mut moved = ElementBatch::default();
        self.take(from, count, |element| moved.push(element));
        match order {
            PushOrder::AsPopped => self.push(to, moved.iter(), limits),
            PushOrder::Reversed => self.push(to, moved.iter().rev(), limits),
        }
        // As for `rotate`: the list in between does not count.
        self.shrink(limits);
        moved
    }

    /// Removes up to `count` elements at `end` like [`List::pop`], but does not change the list's
    /// encoding.
    #[inline]
    fn take(&mut self, end: ListEnd, count: usize, mut popped: impl FnMut(Element<'_>)) -> usize {
        match &mut self.elements {
            Elements::Pack(pack) => match end {
                ListEnd::Front => {
                    pack.iter().take(count).for_each(popped);
                    pack.delete_many(Cursor::START, count)
                }
                ListEnd::Back => {
                    pack.iter().rev().take(count).for_each(popped);
                    let kept = pack.len().saturating_sub(count);
                    pack.delete_range(kept, count)
                }
            },
            Elements::Quick(quick) => {
                let mut done = 0;
                while done < count {
                    let shown = match end {
                        ListEnd::Front => quick.pop_front_with(&mut popped),
                        ListEnd::Back => quick.pop_back_with(&mut popped),
                    };
                    if shown.is_none() {
                        break;
                    }
                    done += 1;
                }
                done
            }
        }
    }

    // Operations in the middle.

    /// Replaces the element at a user's index. Returns false if there is no such element. O(nodes +
    /// bytes of one node).
    pub fn set(&mut self, index: i64, value: &[u8], limits: ListLimits) -> bool {
        self.grow(std::iter::once(value), limits);
        let Some(index) = self.resolve_index(index) else { return false };
        match &mut self.elements {
            Elements::Pack(pack) => {
                let cursor = pack.seek(index).expect("the index was resolved");
                pack.replace(cursor, value).expect(WITHIN_LIMIT);
            }
            Elements::Quick(quick) => {
                quick.replace(index, value);
            }
        }
        self.shrink(limits);
        true
    }

    /// Inserts `value` before or after the first element equal to `pivot`. Returns false if no
    /// element equals it. O(n).
    pub fn insert_beside(&mut self, beside: Beside, pivot: &[u8], value: &[u8], limits: ListLimits) -> bool {
        // As in Redis, the encoding may change even if the pivot is not found.
        self.grow(std::iter::once(value), limits);
        let needle = Needle::new(pivot);
        let mut at = 0;
        let search = self.try_visit(|element| {
            if needle.matches(element) {
                return ControlFlow::Break(());
            }
            at += 1;
            ControlFlow::Continue(())
        });
        if search.is_continue() {
            return false;
        }
        match &mut self.elements {
            Elements::Pack(pack) => {
                let at = at + usize::from(beside == Beside::After);
                let cursor = pack.seek(at).unwrap_or(pack.end());
                pack.insert(cursor, value).expect(WITHIN_LIMIT);
            }
            Elements::Quick(quick) => match beside {
                Beside::Before => quick.insert(at, value),
                Beside::After => quick.insert_after(at, value),
            },
        }
        true
    }

    /// Removes elements equal to `value`: the first `count`, or the last `-count`, or all if 0.
    /// Returns the number removed. O(n).
    pub fn remove(&mut self, count: i64, value: &[u8], limits: ListLimits) -> usize {
        let max = match usize::try_from(count.unsigned_abs()) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(max) => max,
        };
        let removed = match &mut self.elements {
            Elements::Pack(pack) if count < 0 => {
                let needle = Needle::new(value);
                let matches = pack.iter().filter(|&element| needle.matches(element)).count();
                pack.delete_matches(value, matches.saturating_sub(max), max)
            }
            Elements::Pack(pack) => pack.delete_matches(value, 0, max),
            Elements::Quick(quick) if count < 0 => quick.remove_last_matches(value, max),
            Elements::Quick(quick) => quick.remove_first_matches(value, max),
        };
        if removed > 0 {
            self.shrink(limits);
        }
        removed
    }

    /// Keeps the elements from a user's index `start` to `stop`, inclusive, and removes the others.
    /// O(nodes + bytes of two nodes), plus freeing the removed elements if they are few.
    pub fn trim(&mut self, start: i64, stop: i64, limits: ListLimits) -> Trimmed {
        let kept = self.resolve_range(start, stop);
        let len = self.len();
        let mut trimmed = Trimmed { removed: len - kept.len(), leftovers: None };
        match &mut self.elements {
            Elements::Pack(pack) => {
                pack.delete_range(kept.end, len);
                pack.delete_range(0, kept.start);
            }
            Elements::Quick(quick) => {
                let mut leftovers = Quicklist::new(limits.node.with_compress_depth(0));
                quick.remove_range_into(kept.end, len, &mut leftovers);
                quick.remove_range_into(0, kept.start, &mut leftovers);
                if leftovers.node_count() > FREED_NODES_MAX {
                    trimmed.leftovers = Some(Self { elements: Elements::Quick(Box::new(leftovers)) });
                }
            }
        }
        self.shrink(limits);
        trimmed
    }

    // Walks, for snapshots.

    /// Returns true if the list is a quicklist. Only a quicklist can be read by a snapshot's walk.
    /// O(1).
    pub fn has_nodes(&self) -> bool {
        matches!(self.elements, Elements::Quick(_))
    }

    /// Starts a snapshot's walk, which reads the list's present state while the list changes;
    /// [`List::walk_next`] visits its nodes. Returns the number of nodes. Does nothing for a
    /// listpack and returns 0. O(1).
    pub fn begin_walk(&mut self, walk_state: &WalkState) -> usize {
        let Elements::Quick(quick) = &mut self.elements else { return 0 };
        quick.begin_walk(walk_state);
        quick.node_count()
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the list;
    /// `None` if there is none. O(1).
    pub fn ticket(&self) -> Option<u32> {
        match &self.elements {
            Elements::Quick(quick) => quick.ticket(),
            Elements::Pack(_) => None,
        }
    }

    /// Visits the next nodes of the snapshot's walk until they hold at least `elements_min`
    /// elements. Returns true if there are more nodes. O(bytes of the visited nodes).
    pub fn walk_next(&mut self, elements_min: usize, visit: impl FnMut(NodeView<'_>)) -> bool {
        let Elements::Quick(quick) = &mut self.elements else { return false };
        let more = quick.walk_next(elements_min, visit);
        if !more {
            let limits = ListLimits { node: quick.limit() };
            self.shrink(limits);
        }
        more
    }

    // Conversions between the encodings.

    /// Converts the list to a quicklist if adding `values` could make its listpack too long. As in
    /// Redis, the estimate uses the length of their texts, not of their encoded form.
    #[inline]
    fn grow<'v>(&mut self, values: impl Iterator<Item = &'v [u8]>, limits: ListLimits) {
        let Elements::Pack(pack) = &self.elements else { return };
        let (mut len_bytes, mut count) = (pack.len_bytes(), pack.len());
        for value in values {
            len_bytes = len_bytes.saturating_add(value.len());
            count += 1;
        }
        if !limits.node.allows_listpack(len_bytes, count) {
            self.make_quick(limits);
        }
    }

    #[cold]
    fn make_quick(&mut self, limits: ListLimits) {
        let Elements::Pack(pack) = &mut self.elements else { return };
        let mut quick = Quicklist::new(limits.node);
        quick.push_listpack(std::mem::take(pack));
        self.elements = Elements::Quick(Box::new(quick));
    }

    /// Converts a quicklist to a listpack if its elements are in one node of at most half the
    /// limit. Does nothing during a snapshot's walk.
    #[inline]
    fn shrink(&mut self, limits: ListLimits) {
        let Elements::Quick(quick) = &self.elements else { return };
        if let Some(len_bytes) = quick.single_node_len_bytes()
            && quick.ticket().is_none()
            && limits.node.allows_shrunk_listpack(len_bytes, quick.len())
            && let Some(pack) = quick.to_single_listpack()
        {
            self.elements = Elements::Pack(pack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const DEFAULT: ListLimits = ListLimits::from_option(-2);

    fn text(element: Element<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        element.append_to(&mut out);
        out
    }

    fn texts(list: &List) -> Vec<Vec<u8>> {
        let mut texts = Vec::new();
        list.visit(|element| texts.push(text(element)));
        texts
    }

    fn push_back(list: &mut List, value: &[u8], limits: ListLimits) {
        list.push(ListEnd::Back, std::iter::once(value), limits);
    }

    fn of(values: &[&str]) -> List {
        let mut list = List::new();
        list.push(ListEnd::Back, values.iter().map(|value| value.as_bytes()), DEFAULT);
        list
    }

    fn check_texts(list: &List, expected: &[&str]) {
        assert_eq!(texts(list), expected.iter().map(|v| v.as_bytes().to_vec()).collect::<Vec<_>>());
    }

    #[test]
    fn becomes_a_quicklist_and_a_listpack_again_where_redis_does() {
        // Redis 8.0.2: 481 elements of 15 bytes are a listpack, 482 a quicklist of two nodes. If
        // they are popped from the front, the list becomes one node, and a listpack, when one
        // element is left.
        let mut list = List::new();
        (0..481).for_each(|_| push_back(&mut list, b"fifteen bytes!!", DEFAULT));
        assert_eq!(list.encoding_name(), "listpack");
        push_back(&mut list, b"fifteen bytes!!", DEFAULT);
        assert_eq!(list.encoding_name(), "quicklist");
        assert_eq!(list.pop(ListEnd::Front, 480, DEFAULT, |_| ()), 480);
        assert_eq!((list.len(), list.encoding_name()), (2, "quicklist"));
        list.pop(ListEnd::Front, 1, DEFAULT, |_| ());
        assert_eq!((list.len(), list.encoding_name()), (1, "listpack"));
    }

    #[test]
    fn one_element_too_long_for_a_listpack_makes_a_quicklist() {
        for (len, encoding) in [(8185, "listpack"), (8186, "quicklist"), (9000, "quicklist")] {
            let mut list = List::new();
            push_back(&mut list, &vec![b'y'; len], DEFAULT);
            assert_eq!(list.encoding_name(), encoding, "of {len} bytes");
            assert!(list.set(-1, b"short", DEFAULT));
            assert_eq!(list.encoding_name(), "listpack", "of {len} bytes");
        }
    }

    #[test]
    fn a_short_string_in_the_place_of_a_big_one_makes_a_listpack_again() {
        // Redis 8.0.2: only the node after the big string is joined.
        for (words, index, encoding) in [(["b", "c"], 0, "listpack"), (["b", "c"], -1, "quicklist")] {
            let big = vec![b'x'; 9000];
            let mut list = of(&words);
            list.push(
                if index == 0 { ListEnd::Front } else { ListEnd::Back },
                [&big[..]].into_iter(),
                DEFAULT,
            );
            assert_eq!(list.encoding_name(), "quicklist");
            assert!(list.set(index, b"a", DEFAULT));
            assert_eq!((list.len(), list.encoding_name()), (3, encoding));
            assert_eq!(list.with(index, text), Some(b"a".to_vec()));
        }
    }

    #[test]
    fn rotating_a_short_quicklist_leaves_it_one() {
        // Redis 8.0.2 with list-max-listpack-size 3.
        let limits = ListLimits::from_option(3);
        let mut list = List::new();
        list.push(ListEnd::Back, [b"a".as_slice(), b"b", b"c", b"4"].into_iter(), limits);
        list.pop(ListEnd::Back, 2, limits, |_| ());
        assert_eq!(list.rotate(ListEnd::Front, ListEnd::Back, limits), Some(b"a".to_vec()));
        check_texts(&list, &["b", "a"]);
        assert_eq!(list.encoding_name(), "quicklist");
        assert_eq!(List::new().rotate(ListEnd::Front, ListEnd::Back, limits), None);
    }

    #[test]
    fn pushes_at_the_front_come_out_last_first() {
        let mut list = of(&["c"]);
        list.push(ListEnd::Front, [b"b".as_slice(), b"a"].into_iter(), DEFAULT);
        check_texts(&list, &["a", "b", "c"]);
    }

    #[test]
    fn indices_and_ranges_are_clamped_as_users_expect() {
        let list = of(&["a", "b", "c"]);
        let cases = [
            (0, -1, 0..3),
            (0, 0, 0..1),
            (-2, -1, 1..3),
            (1, 0, 1..1),
            (5, 9, 3..3),
            (-9, 9, 0..3),
            (-9, -4, 0..0),
            (i64::MIN, i64::MAX, 0..3),
            (2, i64::MIN, 2..2),
        ];
        for (start, stop, expected) in cases {
            assert_eq!(list.resolve_range(start, stop), expected, "{start} {stop}");
        }
        assert_eq!(list.with(-3, text), Some(b"a".to_vec()));
        assert_eq!(list.with(-4, text), None);
        assert_eq!(list.with(3, text), None);
        assert_eq!(list.with(i64::MIN, text), None);
        assert_eq!(List::new().resolve_range(0, -1), 0..0);
    }

    #[test]
    fn positions_obey_rank_count_and_the_number_compared() {
        let list = of(&["a", "b", "c", "1", "2", "3", "c", "c"]);
        let positions = |rank, count_max, compared_max| {
            let mut found = Vec::new();
            list.positions(PositionQuery { value: b"c", rank, count_max, compared_max }, |at| found.push(at));
            found
        };
        assert_eq!(positions(1, 1, 0), [2]);
        assert_eq!(positions(1, 0, 0), [2, 6, 7]);
        assert_eq!(positions(2, 1, 0), [6]);
        assert_eq!(positions(-1, 2, 0), [7, 6]);
        assert_eq!(positions(-3, 0, 0), [2]);
        assert_eq!(positions(4, 0, 0), []);
        assert_eq!(positions(1, 0, 7), [2, 6]);
        assert_eq!(positions(-1, 0, 2), [7, 6]);
        assert_eq!(positions(i64::MIN, 0, 0), []);
        assert_eq!(positions(i64::MAX, 1, 0), []);
    }

    #[test]
    fn trimming_everything_away_leaves_an_empty_list() {
        for limits in [DEFAULT, ListLimits::from_option(2)] {
            let mut list = List::new();
            list.push(ListEnd::Back, [b"a".as_slice(), b"b", b"c", b"d", b"e"].into_iter(), limits);
            assert_eq!(list.trim(5, 9, limits).removed, 5);
            assert!(list.is_empty());
        }
    }

    #[derive(Clone, Debug)]
    enum Op {
        Push(ListEnd, Vec<Vec<u8>>),
        Pop(ListEnd, usize),
        RotateMany(ListEnd, ListEnd, usize, bool),
        Set(i64, Vec<u8>),
        Insert(bool, usize, Vec<u8>),
        Remove(i64, usize),
        Trim(i64, i64),
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            6 => (-2_i64..3).prop_map(|int| int.to_string().into_bytes()),
            3 => proptest::collection::vec(any::<u8>(), 0..100),
            1 => (0_usize..10_000).prop_map(|len| vec![b'b'; len]),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        let index = || -12_i64..12;
        prop_oneof![
            4 => (end(), proptest::collection::vec(value(), 1..12)).prop_map(|(end, v)| Op::Push(end, v)),
            2 => (end(), 0_usize..9).prop_map(|(end, n)| Op::Pop(end, n)),
            2 => (end(), end(), 0_usize..9, any::<bool>())
                .prop_map(|(from, to, n, reversed)| Op::RotateMany(from, to, n, reversed)),
            2 => (index(), value()).prop_map(|(at, v)| Op::Set(at, v)),
            2 => (any::<bool>(), any::<usize>(), value()).prop_map(|(b, at, v)| Op::Insert(b, at, v)),
            2 => (-3_i64..4, any::<usize>()).prop_map(|(n, at)| Op::Remove(n, at)),
            1 => (-40_i64..9, -9_i64..40).prop_map(|(start, stop)| Op::Trim(start, stop)),
        ]
    }

    fn end() -> impl Strategy<Value = ListEnd> {
        prop_oneof![Just(ListEnd::Front), Just(ListEnd::Back)]
    }

    fn apply(op: Op, list: &mut List, twin: &mut VecDeque<Vec<u8>>, limits: ListLimits) {
        let existing = |at: usize, twin: &VecDeque<Vec<u8>>| match twin.len() {
            0 => b"none".to_vec(),
            len => twin[at % len].clone(),
        };
        match op {
            Op::Push(end, values) => {
                list.push(end, values.iter().map(Vec::as_slice), limits);
                values.into_iter().for_each(|v| match end {
                    ListEnd::Front => twin.push_front(v),
                    ListEnd::Back => twin.push_back(v),
                });
            }
            Op::Pop(end, n) => {
                let mut popped = Vec::new();
                let count = list.pop(end, n, limits, |element| popped.push(text(element)));
                let mut pop = || match end {
                    ListEnd::Front => twin.pop_front(),
                    ListEnd::Back => twin.pop_back(),
                };
                let expected: Vec<_> = (0..n).map_while(|_| pop()).collect();
                assert_eq!((popped, count), (expected.clone(), expected.len()));
            }
            Op::RotateMany(from, to, n, is_reversed) => {
                let order = if is_reversed { PushOrder::Reversed } else { PushOrder::AsPopped };
                let moved = list.rotate_many((from, to), n, order, limits);
                let mut popped: Vec<_> = (0..n)
                    .map_while(|_| match from {
                        ListEnd::Front => twin.pop_front(),
                        ListEnd::Back => twin.pop_back(),
                    })
                    .collect();
                assert_eq!(moved.iter().map(<[u8]>::to_vec).collect::<Vec<_>>(), popped);
                if is_reversed {
                    popped.reverse();
                }
                popped.into_iter().for_each(|value| match to {
                    ListEnd::Front => twin.push_front(value),
                    ListEnd::Back => twin.push_back(value),
                });
            }
            Op::Set(at, v) => {
                let place = if at < 0 { at + twin.len() as i64 } else { at };
                let old = usize::try_from(place).ok().and_then(|at| twin.get_mut(at));
                assert_eq!(list.set(at, &v, limits), old.is_some());
                old.into_iter().for_each(|old| old.clone_from(&v));
            }
            Op::Insert(before, at, v) => {
                let pivot = existing(at, twin);
                let beside = if before { Beside::Before } else { Beside::After };
                let place = twin.iter().position(|v| *v == pivot);
                assert_eq!(list.insert_beside(beside, &pivot, &v, limits), place.is_some());
                place.into_iter().for_each(|at| twin.insert(at + usize::from(!before), v.clone()));
            }
            Op::Remove(n, at) => {
                let needle = existing(at, twin);
                let mut gone: Vec<_> = (0..twin.len()).filter(|&at| twin[at] == needle).collect();
                let keep_matches = match n.unsigned_abs() as usize {
                    0 => 0,
                    max => gone.len().saturating_sub(max),
                };
                if n < 0 {
                    gone.drain(..keep_matches);
                } else {
                    gone.truncate(gone.len() - keep_matches);
                }
                assert_eq!(list.remove(n, &needle, limits), gone.len());
                gone.into_iter().rev().for_each(|at| drop(twin.remove(at)));
            }
            Op::Trim(start, stop) => {
                let kept = list.resolve_range(start, stop);
                assert_eq!(list.trim(start, stop, limits).removed, twin.len() - kept.len());
                *twin = twin.drain(kept).collect();
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn does_what_a_deque_does(
            option in prop::sample::select(vec![-2_i64, -1, 1, 2, 4, 16]),
            depth in 0_i64..3,
            ops in proptest::collection::vec(op(), 0..50),
            start in 0_usize..40,
            len in 0_usize..40,
        ) {
            let limits = ListLimits::from_option(option).with_compress_depth(depth);
            let mut list = List::new();
            let mut twin = VecDeque::new();
            for op in ops {
                apply(op, &mut list, &mut twin, limits);
                prop_assert_eq!(list.len(), twin.len());
                prop_assert_eq!(list.is_empty(), twin.is_empty());
                prop_assert_eq!(texts(&list), Vec::from(twin.clone()));
                let start = start.min(twin.len());
                let range = start..twin.len().min(start + len);
                let mut expected: Vec<_> = twin.range(range.clone()).cloned().collect();
                let (mut visited, mut visited_rev) = (Vec::new(), Vec::new());
                list.visit_range(range.clone(), |element| visited.push(text(element)));
                prop_assert_eq!(visited, expected.clone());
                expected.reverse();
                list.visit_range_rev(range, |element| visited_rev.push(text(element)));
                prop_assert_eq!(visited_rev, expected);
            }
        }
    }
}
