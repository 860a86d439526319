//! A row: a sequence of nodes that can be walked, in order, while it changes (see `walk_state`).
//! Quicklists and streams consist of such a row.
//!
//! ```text
//!   numbers at the start      0 1 2 3 4 5 6 7 8         visited up to 2
//!   the row now               . n 3 4 x . 7 8 n         5 changed, 6 removed, n new
//!   stretches                     └─┘     └─┘           unchanged nodes, at new indices
//!   kept                              5 6               old nodes, by number
//! ```
//! It is a ring of nodes whose changes all go through this module. During a walk, a *stretch* is
//! a sequence of nodes that existed at the start, are unchanged, and are not visited yet. At first
//! there is one stretch; each change in the middle adds at most one. Before a node of a stretch is
//! changed or removed, it is copied to *kept* (the field `preserved`), or moved there if the caller
//! does not need it. The next node to visit is always the first node of the first stretch or the
//! first kept node. Neither the start nor the end of a walk does work for each node of the row.
//!
//! Without a walk, a change pays one check of a field beside the ring. With a walk, it pays
//! O(stretches). There are at most hundreds of stretches: each new stretch comes with the copy of a
//! node, and ends when the walk has visited its nodes.

use std::collections::{BTreeMap, VecDeque, vec_deque};
use std::ops::{Deref, Range};

use crate::walk_state::{CopiedBytes, MemorySize, WalkState};

/// A row of nodes that can be walked while it changes. See the module's comment. `X` is data that
/// the owner stores until a walk ends.
#[derive(Debug)]
pub struct WalkedRow<N, X = ()> {
    nodes: VecDeque<N>,
    walk: Option<Box<Walk<N, X>>>,
}

#[derive(Debug)]
struct Walk<N, X> {
    ticket: u32,
    copied_len_bytes: CopiedBytes,
    /// The number, as of the start of the snapshot's walk, of the node that is visited next.
    next: usize,
    /// The number of nodes of the row at the start of the snapshot's walk.
    end: usize,
    stretches: Stretches,
    preserved: BTreeMap<usize, PreservedNode<N>>,
    extra: X,
}

/// A node of a row in its state at the start of the snapshot's walk, kept because the row has
/// changed or lost it.
#[derive(Debug)]
struct PreservedNode<N> {
    node: N,
    /// The number of bytes that were counted for the node as a copy; 0 if the node itself was moved
    /// out of the row.
    copied_len_bytes: usize,
}

impl<N, X> Default for WalkedRow<N, X> {
    fn default() -> Self {
        Self { nodes: VecDeque::new(), walk: None }
    }
}

impl<N, X> Deref for WalkedRow<N, X> {
    type Target = VecDeque<N>;

    #[inline]
    fn deref(&self) -> &VecDeque<N> {
        &self.nodes
    }
}

impl<'a, N, X> IntoIterator for &'a WalkedRow<N, X> {
    type Item = &'a N;
    type IntoIter = vec_deque::Iter<'a, N>;

    fn into_iter(self) -> Self::IntoIter {
        self.nodes.iter()
    }
}

impl<N, X> From<VecDeque<N>> for WalkedRow<N, X> {
    fn from(nodes: VecDeque<N>) -> Self {
        Self { nodes, walk: None }
    }
}

impl<N: Clone, X> Clone for WalkedRow<N, X> {
    /// Copies the row of nodes, but not a snapshot's walk in progress. O(n).
    fn clone(&self) -> Self {
        Self { nodes: self.nodes.clone(), walk: None }
    }
}

impl<N, X> WalkedRow<N, X> {
    /// Converts the row to the ring of its nodes. A snapshot's walk in progress is dropped.
    pub fn into_nodes(self) -> VecDeque<N> {
        self.nodes
    }

    /// Returns the ticket ([`WalkState::ticket`]) that identifies the snapshot's walk of the row;
    /// `None` if there is none. O(1).
    #[inline]
    pub fn ticket(&self) -> Option<u32> {
        Some(self.walk.as_ref()?.ticket)
    }

    /// Reserves room for exactly `additional` more nodes of the row.
    pub fn reserve_exact(&mut self, additional: usize) {
        self.nodes.reserve_exact(additional);
    }

    /// Inserts a node before all other nodes of the row.
    #[inline]
    pub fn push_front(&mut self, node: N) {
        self.nodes.push_front(node);
        if let Some(walk) = &mut self.walk {
            walk.stretches.inserted(0);
        }
    }

    /// Appends a node to the row.
    #[inline]
    pub fn push_back(&mut self, node: N) {
        self.nodes.push_back(node);
    }

    /// Inserts a node at index `at` of the row, before the present node there. O(nodes on the
    /// shorter side).
    pub fn insert(&mut self, at: usize, node: N) {
        self.nodes.insert(at, node);
        if let Some(walk) = &mut self.walk {
            walk.stretches.inserted(at);
        }
    }

    /// Borrows the row's node at `at` to change its layout (unused bytes, compression). Its content
    /// must stay the same.
    #[inline]
    pub fn reshape_mut(&mut self, at: usize) -> &mut N {
        &mut self.nodes[at]
    }
}

impl<N: Clone + MemorySize, X> WalkedRow<N, X> {
    /// Borrows the row's node at `at` mutably. If a walk in progress has not visited the node yet,
    /// a copy is kept for the walk first.
    ///
    /// # Panics
    /// If there is no node at `at`.
    #[inline]
    pub fn node_mut(&mut self, at: usize) -> &mut N {
        if self.walk.is_some() {
            self.keep_copy(at);
        }
        &mut self.nodes[at]
    }

    /// Borrows the row's first node mutably, like [`node_mut`](Self::node_mut); `None` if the row
    /// is empty.
    #[inline]
    pub fn front_mut(&mut self) -> Option<&mut N> {
        if self.walk.is_some() && !self.nodes.is_empty() {
            self.keep_copy(0);
        }
        self.nodes.front_mut()
    }

    /// Borrows the row's last node mutably, like [`node_mut`](Self::node_mut); `None` if the row is
    /// empty.
    #[inline]
    pub fn back_mut(&mut self) -> Option<&mut N> {
        if self.walk.is_some()
            && let Some(last) = self.nodes.len().checked_sub(1)
        {
            self.keep_copy(last);
        }
        self.nodes.back_mut()
    }

    #[cold]
    fn keep_copy(&mut self, at: usize) {
        let Some(walk) = &mut self.walk else { return };
        if let Some(number) = walk.stretches.exclude(at) {
            let copied_len_bytes = self.nodes[at].weight_bytes();
            walk.copied_len_bytes.add(copied_len_bytes);
            let node = self.nodes[at].clone();
            walk.preserved.insert(number, PreservedNode { node, copied_len_bytes });
        }
    }

    /// Removes the row's node at `at` and returns it. O(nodes on the shorter side).
    ///
    /// # Panics
    /// If there is no node at `at`.
    pub fn remove(&mut self, at: usize) -> N {
        if self.walk.is_some() {
            self.keep_copy(at);
            self.note_removed(at);
        }
        self.nodes.remove(at).expect("the caller knows the node")
    }

    /// Removes the row's first node and returns it; `None` if the row is empty.
    pub fn pop_front(&mut self) -> Option<N> {
        (!self.nodes.is_empty()).then(|| self.remove(0))
    }

    /// Removes the row's last node and returns it; `None` if the row is empty.
    pub fn pop_back(&mut self) -> Option<N> {
        let last = self.nodes.len().checked_sub(1)?;
        Some(self.remove(last))
    }

    #[cold]
    fn note_removed(&mut self, at: usize) {
        if let Some(walk) = &mut self.walk {
            walk.stretches.removed(at);
        }
    }

    /// Moves the node at `at` out of the row and leaves an empty node in its place. Returns `None`
    /// if a walk in progress needs the node, which is then moved to the walk.
    ///
    /// # Panics
    /// If there is no node at `at`.
    pub fn release(&mut self, at: usize) -> Option<N>
    where
        N: Default,
    {
        let node = std::mem::take(&mut self.nodes[at]);
        let Some(walk) = &mut self.walk else { return Some(node) };
        match walk.stretches.exclude(at) {
            Some(number) => {
                walk.preserved.insert(number, PreservedNode { node, copied_len_bytes: 0 });
                None
            }
            None => Some(node),
        }
    }

    /// Removes the row's empty nodes with indices in `range`, which the caller has
    /// [released](Self::release) or changed before. Calls `removed` with each. O(nodes in the range
    /// + nodes after it).
    pub fn remove_empty(
        &mut self,
        range: Range<usize>,
        is_empty: impl Fn(&N) -> bool,
        removed: impl FnMut(N),
    ) {
        let mut preserved = range.start;
        for at in range.clone() {
            if is_empty(&self.nodes[at]) {
                self.note_removed(preserved);
            } else {
                self.nodes.swap(preserved, at);
                preserved += 1;
            }
        }
        self.nodes.drain(preserved..range.end).for_each(removed);
    }

    /// Removes the first `count` nodes of the row. Returns them, except those that were moved to a
    /// walk in progress. O(count), or without a walk O(remaining nodes) if that is less.
    ///
    /// # Panics
    /// If there are fewer nodes.
    pub fn take_front(&mut self, count: usize) -> VecDeque<N>
    where
        N: Default,
    {
        if self.walk.is_none() {
            let rest = self.nodes.split_off(count);
            return std::mem::replace(&mut self.nodes, rest);
        }
        let taken = (0..count).filter_map(|at| self.release(at)).collect();
        (0..count).for_each(|_| self.note_removed(0));
        self.nodes.drain(..count);
        taken
    }

    /// Starts a snapshot's walk of the row's present state, whose nodes [`WalkedRow::walk_next`]
    /// visits. O(1).
    pub fn begin(&mut self, walk_state: &WalkState, extra: X) {
        let end = self.nodes.len();
        self.walk = Some(Box::new(Walk {
            ticket: walk_state.ticket,
            copied_len_bytes: CopiedBytes::new(walk_state.copied_len_bytes.clone()),
            next: 0,
            end,
            stretches: Stretches::all(end),
            preserved: BTreeMap::new(),
            extra,
        }));
    }

    /// Calls `visit` with the next node of the snapshot's walk, in order. Returns false if all were
    /// visited or there is no walk. O(1), or O(log kept nodes).
    pub fn walk_next(&mut self, visit: impl FnOnce(&N)) -> bool {
        let Some(walk) = &mut self.walk else { return false };
        let number = walk.next;
        if number == walk.end {
            return false;
        }
        walk.next += 1;
        if let Some(at) = walk.stretches.pass(number) {
            visit(&self.nodes[at]);
        } else {
            let preserved = walk.preserved.remove(&number).expect("what is in no stretch is kept");
            let PreservedNode { node, copied_len_bytes } = preserved;
            visit(&node);
            drop(node);
            walk.copied_len_bytes.sub(copied_len_bytes);
        }
        true
    }

    /// Ends the snapshot's walk in progress, even if nodes are left. Returns the owner's data,
    /// which [`begin`](Self::begin) stored; `None` if there was no walk.
    pub fn end(&mut self) -> Option<X> {
        self.walk.take().map(|walk| walk.extra)
    }
}

/// The stretches of a walked row: its nodes that are unchanged and not visited yet, in ascending
/// order of numbers and indices.
#[derive(Debug)]
struct Stretches {
    all: VecDeque<Stretch>,
}

/// A sequence of consecutive nodes of a row that are unchanged since the start of the walk and not
/// visited yet.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    /// The present index in the row of the first node of this stretch (sequence of unchanged
    /// nodes).
    index: usize,
    /// The number, as of the start of the snapshot's walk, of the stretch's first node.
    number: usize,
    len: usize,
}

impl Stretches {
    fn all(len: usize) -> Self {
        Self { all: (len > 0).then_some(Stretch { index: 0, number: 0, len }).into_iter().collect() }
    }

    /// Returns the index in `all` of the first stretch (sequence of unchanged nodes) that ends
    /// after the node index `index`; the number of stretches if there is none.
    fn reaching(&self, index: usize) -> usize {
        self.all.partition_point(|stretch| stretch.index + stretch.len <= index)
    }

    /// Divides the stretch (sequence of unchanged nodes) at `place` in `all`, so that the node at
    /// `index`, which is within it, begins a stretch. Returns the place of the stretch that the
    /// node begins.
    fn divide(&mut self, place: usize, index: usize) -> usize {
        let stretch = &mut self.all[place];
        let before = index - stretch.index;
        if before == 0 {
            return place;
        }
        let behind = Stretch { index, number: stretch.number + before, len: stretch.len - before };
        stretch.len = before;
        self.all.insert(place + 1, behind);
        place + 1
    }

    /// Removes the node at `index` from its stretch (sequence of unchanged nodes). Returns the
    /// node's number; `None` if it is in no stretch.
    fn exclude(&mut self, index: usize) -> Option<usize> {
        let place = self.reaching(index);
        self.all.get(place).filter(|stretch| stretch.index <= index)?;
        let place = self.divide(place, index);
        let number = self.all[place].number;
        self.shorten(place);
        Some(number)
    }

    /// Removes the first node from the stretch (sequence of unchanged nodes) at `place` in `all`.
    fn shorten(&mut self, place: usize) {
        let stretch = &mut self.all[place];
        (stretch.index, stretch.number) = (stretch.index + 1, stretch.number + 1);
        stretch.len -= 1;
        if stretch.len == 0 {
            self.all.remove(place);
        }
    }

    /// Updates the stretches (sequences of unchanged nodes) after a node was inserted into the row
    /// at `index`.
    fn inserted(&mut self, index: usize) {
        let mut place = self.reaching(index);
        if self.all.get(place).is_some_and(|stretch| stretch.index < index) {
            place = self.divide(place, index);
        }
        self.all.range_mut(place..).for_each(|stretch| stretch.index += 1);
    }

    /// Updates the stretches (sequences of unchanged nodes) after the removal of the row's node at
    /// `index`, which was in no stretch.
    fn removed(&mut self, index: usize) {
        let place = self.reaching(index);
        self.all.range_mut(place..).for_each(|stretch| stretch.index -= 1);
    }

    /// Removes the node with this number, which must be the lowest not visited yet, from its
    /// stretch. Returns the node's index, or `None` if it is in no stretch.
    fn pass(&mut self, number: usize) -> Option<usize> {
        let first = *self.all.front().filter(|stretch| stretch.number == number)?;
        self.shorten(0);
        Some(first.index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[derive(Clone, Debug, Default, PartialEq)]
    struct Text(String);

    impl MemorySize for Text {
        fn weight_bytes(&self) -> usize {
            self.0.len()
        }
    }

    fn walk_state(copied_len_bytes: &Arc<AtomicUsize>) -> WalkState {
        WalkState { ticket: 7, position_of: Arc::new(|_| 0), copied_len_bytes: Arc::clone(copied_len_bytes) }
    }

    /// A random operation on a row of nodes. Numbers stand for indices, modulo the number of nodes.
    #[derive(Clone, Copy, Debug)]
    enum Op {
        Change(usize),
        ChangeFront,
        ChangeBack,
        Insert(usize),
        PushFront,
        PushBack,
        PopFront,
        PopBack,
        Remove(usize),
        RemoveRange(usize, usize),
        TakeFront(usize),
        Show(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => any::<usize>().prop_map(Op::Change),
            1 => Just(Op::ChangeFront),
            1 => Just(Op::ChangeBack),
            2 => any::<usize>().prop_map(Op::Insert),
            1 => Just(Op::PushFront),
            1 => Just(Op::PushBack),
            1 => Just(Op::PopFront),
            1 => Just(Op::PopBack),
            2 => any::<usize>().prop_map(Op::Remove),
            1 => (any::<usize>(), 0..6_usize).prop_map(|(at, n)| Op::RemoveRange(at, n)),
            1 => (0..4_usize).prop_map(Op::TakeFront),
            2 => (0..4_usize).prop_map(Op::Show),
        ]
    }

    fn apply(op: Op, row: &mut WalkedRow<Text, u8>, twin: &mut Vec<String>, new: &str) {
        let (len, text) = (twin.len(), || Text(new.to_owned()));
        match op {
            Op::Insert(at) => {
                row.insert(at % (len + 1), text());
                twin.insert(at % (len + 1), new.to_owned());
            }
            Op::PushFront => {
                row.push_front(text());
                twin.insert(0, new.to_owned());
            }
            Op::PushBack => {
                row.push_back(text());
                twin.push(new.to_owned());
            }
            Op::Show(_) => {}
            _ if len == 0 => {}
            Op::Change(at) => {
                *row.node_mut(at % len) = text();
                twin[at % len] = new.to_owned();
            }
            Op::ChangeFront => {
                *row.front_mut().expect("one") = text();
                twin[0] = new.to_owned();
            }
            Op::ChangeBack => {
                *row.back_mut().expect("one") = text();
                twin[len - 1] = new.to_owned();
            }
            Op::PopFront => assert_eq!(row.pop_front().map(|it| it.0), Some(twin.remove(0))),
            Op::PopBack => assert_eq!(row.pop_back().map(|it| it.0), twin.pop()),
            Op::Remove(at) => assert_eq!(row.remove(at % len).0, twin.remove(at % len)),
            Op::RemoveRange(at, count) => {
                let range = at % len..(at % len + count).min(len);
                let before = row.walk.as_ref().map_or(0, |walk| walk.preserved.len());
                let released = range.clone().filter_map(|at| row.release(at)).count();
                let moved = row.walk.as_ref().map_or(0, |walk| walk.preserved.len()) - before;
                assert_eq!(released + moved, range.len());
                // Also offers nodes around the emptied ones, as callers do.
                let around = range.start.saturating_sub(2)..(range.end + 2).min(len);
                let mut removed = 0;
                row.remove_empty(around, |it| it.0.is_empty(), |_| removed += 1);
                assert_eq!(removed, range.len());
                twin.drain(range);
            }
            Op::TakeFront(count) => {
                let count = count.min(len);
                assert!(row.take_front(count).len() <= count);
                twin.drain(..count);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn shows_what_was_there_whatever_is_changed(
            len in 0..20_usize,
            before in proptest::collection::vec(op(), 0..8),
            during in proptest::collection::vec(op(), 0..60),
        ) {
            let mut twin: Vec<String> = (0..len).map(|at| format!("old{at}")).collect();
            let mut row = WalkedRow::<Text, u8>::default();
            twin.iter().for_each(|it| row.push_back(Text(it.clone())));
            before.iter().enumerate().for_each(|(at, &op)| apply(op, &mut row, &mut twin, &format!("b{at}")));

            let copied = Arc::new(AtomicUsize::new(5));
            row.begin(&walk_state(&copied), 9);
            prop_assert_eq!(row.ticket(), Some(7));
            let (expected, mut shown) = (twin.clone(), Vec::new());
            for (at, &op) in during.iter().enumerate() {
                apply(op, &mut row, &mut twin, &format!("new{at}"));
                prop_assert!(row.iter().map(|it| &it.0).eq(&twin));
                if let Op::Show(count) = op {
                    for _ in 0..count {
                        row.walk_next(|it| shown.push(it.0.clone()));
                    }
                }
            }
            while row.walk_next(|it| shown.push(it.0.clone())) {}
            prop_assert_eq!(shown, expected);
            prop_assert_eq!(row.end(), Some(9));
            prop_assert!(row.ticket().is_none());
            prop_assert_eq!(copied.load(Relaxed), 5);
        }
    }

    #[test]
    fn dropped_half_way_it_gives_back_what_it_counted() {
        let copied = Arc::new(AtomicUsize::new(0));
        let mut row = WalkedRow::<Text>::default();
        (0..9).for_each(|_| row.push_back(Text("eight888".to_owned())));
        row.begin(&walk_state(&copied), ());
        row.node_mut(4).0.push('x');
        row.node_mut(4).0.push('y');
        row.pop_back();
        assert_eq!(copied.load(Relaxed), 16);
        let copy = row.clone();
        assert!(copy.ticket().is_none() && copy.len() == 8);
        drop(row);
        assert_eq!(copied.load(Relaxed), 0);
    }

    #[test]
    fn what_is_removed_whole_moves_and_counts_for_nothing() {
        let copied = Arc::new(AtomicUsize::new(0));
        let mut row = WalkedRow::<Text>::default();
        (0..1000).for_each(|at| row.push_back(Text(at.to_string())));
        row.begin(&walk_state(&copied), ());
        assert!(row.take_front(900).is_empty());
        assert_eq!((copied.load(Relaxed), row.len()), (0, 100));
        let mut shown = 0;
        while row.walk_next(|it| {
            assert_eq!(it.0, shown.to_string());
            shown += 1;
        }) {}
        assert_eq!(shown, 1000);
    }
}
