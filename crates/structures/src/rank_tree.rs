//! A B+ tree of items ordered by (score, member). It also finds the rank of an item and the item at
//! a rank.
//!
//! ```text
//!  inner node: up to 31 children, each with      leaf: up to 63 items, 8 bytes each
//!    the number of items below it                  [len][item][item][item] …
//!    the score of the first item below it
//!    that first item itself
//! ```
//! A search chooses the child of an inner node by the stored scores. It reads an item's own memory
//! only if scores are equal. In a leaf the items are pointers. A search halves the leaf, and
//! prefetches the next candidates while it waits for the item that it compares. Ranks come from the
//! counts: the rank of an item is the sum of the counts left of its path. The item at a rank is
//! found by subtracting counts. A range is a pair of ranks. Every kind of range (by rank, score or
//! member, from either end) is therefore two descents, and then reads one leaf after the other.
//!
//! Invariants: items are strictly ascending; all leaves have the same depth; a node's counts and
//! first items are those of its children; no node but an empty tree's root is empty.
//!
//! A full leaf first passes items to a neighbour that has room; otherwise it splits in the middle.
//! A full leaf at the tree's edge splits off a single item. Random order therefore fills leaves to
//! some 80 %, ascending or descending order entirely. A node less than half full is joined with a
//! neighbour, or takes entries from it.
//!
//! Complexity: O(log n) for all operations except the iteration of a range. Memory: 512 bytes a
//! leaf, 1,280 an inner node: 9 to 13 bytes per item. Items are `Copy`: the caller manages the
//! ownership of the objects they point to.
//!
//! Sources: Comer, "The Ubiquitous B-Tree" (1979); counted B-trees are folklore.

use std::cmp::Ordering;
use std::ops::Range;

/// An item that a rank tree orders: a small handle of an object with a score and a name.
pub trait Item: Copy + PartialEq {
    /// The value in unused slots of a node of the tree. None of its methods is ever called.
    const VACANT: Self;
    /// Returns the score of the item, which must not be NaN.
    fn score(&self) -> f64;
    /// Returns the name of the item, which orders items of equal score.
    fn member(&self) -> &[u8];
    /// Starts loading the memory that `score` and `member` read into the cache.
    fn prefetch(&self) {}
}

const LEAF_LEN_MAX: usize = 63;
const INNER_LEN_MAX: usize = 31;
/// The number of items below which a leaf is joined with a neighbour or takes items from it.
const LEAF_LEN_MIN: usize = 28;
const INNER_LEN_MIN: usize = 12;
/// The number of slots that must remain free when two nodes of the tree are joined, so that the
/// next insertion does not split the new node.
const JOIN_SPARE: usize = 8;

/// Compares an item with a score and a member, in the order of the tree.
#[inline(always)]
fn compare<I: Item>(item: &I, score: f64, member: &[u8]) -> Ordering {
    compare_scores(item.score(), score).then_with(|| item.member().cmp(member))
}

/// Compares scores. They are never NaN; zeros of different signs are equal.
#[inline(always)]
fn compare_scores(a: f64, b: f64) -> Ordering {
    debug_assert!(!a.is_nan() && !b.is_nan(), "a score is a number");
    if a < b {
        Ordering::Less
    } else if a > b {
        Ordering::Greater
    } else {
        Ordering::Equal
    }
}

/// The edges of the rank tree at which a node lies: the left one, the right one, both or none.
#[derive(Clone, Copy)]
struct Edge {
    left: bool,
    right: bool,
}

/// The item that a removal from the rank tree looks for: by its score and member, or by its rank.
#[derive(Clone, Copy)]
enum Target<'a> {
    Member(f64, &'a [u8]),
    Rank(usize),
}

/// A B+ tree of items ordered by score and member that also finds ranks. See the module's comment.
pub struct RankTree<I> {
    root: Node<I>,
    len: usize,
}

enum Node<I> {
    Leaf(Box<Leaf<I>>),
    Inner(Box<Inner<I>>),
}

struct Leaf<I> {
    len: usize,
    items: [I; LEAF_LEN_MAX],
}

/// An inner node of the rank tree. The scores, counts, first items and children have an array each,
/// because a search reads only the scores, and a search by rank only the counts.
struct Inner<I> {
    len: usize,
    scores: [f64; INNER_LEN_MAX],
    counts: [usize; INNER_LEN_MAX],
    firsts: [I; INNER_LEN_MAX],
    children: [Option<Node<I>>; INNER_LEN_MAX],
}

const _: () = assert!(size_of::<Leaf<u64>>() == 512 && size_of::<Inner<u64>>() <= 1280);

impl<I: Item> Leaf<I> {
    fn new(items: &[I]) -> Box<Self> {
        let mut leaf = Box::new(Leaf { len: items.len(), items: [I::VACANT; LEAF_LEN_MAX] });
        leaf.items[..items.len()].copy_from_slice(items);
        leaf
    }

    #[inline]
    fn items(&self) -> &[I] {
        &self.items[..self.len]
    }

    /// Returns the number of the leaf's items for which `before` is true. `before` must be true
    /// exactly for a prefix of the items.
    #[inline]
    fn partition_point(&self, mut before: impl FnMut(&I) -> bool) -> usize {
        let (mut low, mut high) = (0, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            // Prefetch both candidates of the next step while this item is compared.
            self.items[low + (middle - low) / 2].prefetch();
            self.items[middle + (high - middle) / 2].prefetch();
            if before(&self.items[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// Inserts an item at index `at` of the leaf. If the leaf is full, splits it: the items on the
    /// right side move to a new leaf, which is returned. Otherwise returns `None`.
    fn insert(&mut self, at: usize, item: I, edge: Edge) -> Option<Box<Self>> {
        if self.len < LEAF_LEN_MAX {
            self.items.copy_within(at..self.len, at + 1);
            self.items[at] = item;
            self.len += 1;
            return None;
        }
        if edge.right && at == self.len {
            return Some(Leaf::new(&[item]));
        }
        if edge.left && at == 0 {
            let right = Leaf::new(self.items());
            self.items[0] = item;
            self.len = 1;
            return Some(right);
        }
        let middle = self.len / 2;
        let mut right = Leaf::new(&self.items[middle..]);
        self.len = middle;
        let inner = Edge { left: false, right: false };
        let split =
            if at <= middle { self.insert(at, item, inner) } else { right.insert(at - middle, item, inner) };
        assert!(split.is_none(), "half a leaf has room");
        Some(right)
    }

    fn remove(&mut self, at: usize) -> I {
        let item = self.items()[at];
        self.items.copy_within(at + 1..self.len, at);
        self.len -= 1;
        item
    }

    /// Moves the first `n` items of the leaf `right` to the end of this leaf.
    fn take_front(&mut self, right: &mut Self, n: usize) {
        self.items[self.len..self.len + n].copy_from_slice(&right.items[..n]);
        self.len += n;
        right.items.copy_within(n..right.len, 0);
        right.len -= n;
    }

    /// Moves the last `n` items of this leaf to the front of the leaf `right`.
    fn give_back(&mut self, right: &mut Self, n: usize) {
        right.items.copy_within(0..right.len, n);
        right.items[..n].copy_from_slice(&self.items[self.len - n..self.len]);
        self.len -= n;
        right.len += n;
    }
}

impl<I: Item> Inner<I> {
    fn new(children: impl IntoIterator<Item = Node<I>>) -> Box<Self> {
        let mut inner = Box::new(Inner {
            len: 0,
            scores: [0.0; INNER_LEN_MAX],
            counts: [0; INNER_LEN_MAX],
            firsts: [I::VACANT; INNER_LEN_MAX],
            children: [const { None }; INNER_LEN_MAX],
        });
        for child in children {
            let at = inner.len;
            inner.put(at, child);
        }
        inner
    }

    #[inline]
    fn child(&self, at: usize) -> &Node<I> {
        self.children[at].as_ref().expect("every place below `len` holds a child")
    }

    #[inline]
    fn child_mut(&mut self, at: usize) -> &mut Node<I> {
        self.children[at].as_mut().expect("every place below `len` holds a child")
    }

    /// Borrows the children at the indexes `at` and `at + 1` of this node.
    fn neighbours(&mut self, at: usize) -> (&mut Node<I>, &mut Node<I>) {
        match &mut self.children[at..at + 2] {
            [Some(left), Some(right)] => (left, right),
            _ => unreachable!("every place below `len` holds a child"),
        }
    }

    fn total(&self) -> usize {
        self.counts[..self.len].iter().sum()
    }

    /// Returns the index of this node's last child for whose first item `before` is true; 0 if
    /// there is none. `before` must be true exactly for a prefix of the children.
    #[inline]
    fn child_at(&self, mut before: impl FnMut(f64, &I) -> bool) -> usize {
        let (mut low, mut high) = (1, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            if before(self.scores[middle], &self.firsts[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }

    /// Returns the index of this node's child below which the item with this score and member is,
    /// or would be inserted.
    #[inline]
    fn child_of(&self, score: f64, member: &[u8]) -> usize {
        let (mut low, mut high) = (1, self.len);
        while low < high {
            let middle = low + (high - low) / 2;
            // If scores are equal, members decide: prefetch both possible next candidates.
            for next in [low + (middle - low) / 2, middle + (high - middle) / 2] {
                if self.scores[next] == score {
                    self.firsts[next].prefetch();
                }
            }
            let order = compare_scores(self.scores[middle], score);
            if order.then_with(|| self.firsts[middle].member().cmp(member)).is_le() {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }

    /// Returns the index of the child that holds the item at `rank` below this node, and the item's
    /// rank in that child.
    #[inline]
    fn child_at_rank(&self, mut rank: usize) -> (usize, usize) {
        for (at, &count) in self.counts[..self.len].iter().enumerate() {
            if rank < count {
                return (at, rank);
            }
            rank -= count;
        }
        unreachable!("callers keep the rank below the node's count");
    }

    /// Inserts a child at index `at` of this node, which must have room.
    fn put(&mut self, at: usize, child: Node<I>) {
        let len = self.len;
        self.scores.copy_within(at..len, at + 1);
        self.counts.copy_within(at..len, at + 1);
        self.firsts.copy_within(at..len, at + 1);
        self.children[at..=len].rotate_right(1);
        self.len += 1;
        self.counts[at] = child.count();
        self.firsts[at] = child.first();
        self.scores[at] = self.firsts[at].score();
        self.children[at] = Some(child);
    }

    /// Removes the child at index `at` of this node and returns it.
    fn take(&mut self, at: usize) -> Node<I> {
        let child = self.children[at].take().expect("every place below `len` holds a child");
        let len = self.len;
        self.scores.copy_within(at + 1..len, at);
        self.counts.copy_within(at + 1..len, at);
        self.firsts.copy_within(at + 1..len, at);
        self.children[at..len].rotate_left(1);
        self.len -= 1;
        child
    }

    /// Updates the first item and the score that this node stores for the child at `at`, if the
    /// child's first item has changed.
    #[inline]
    fn note_first(&mut self, at: usize) {
        let first = self.child(at).first();
        if first != self.firsts[at] {
            self.firsts[at] = first;
            self.scores[at] = first.score();
        }
    }

    /// Updates the first item, the score and the count that this node stores for the child at `at`,
    /// after items were moved.
    fn note(&mut self, at: usize) {
        self.counts[at] = self.child(at).count();
        self.note_first(at);
    }

    fn insert(&mut self, item: I, edge: Edge) -> Option<Box<Self>> {
        let mut at = self.child_of(item.score(), item.member());
        if self.child(at).is_full_leaf() && self.make_room(at, edge) {
            at = self.child_of(item.score(), item.member());
        }
        let below = Edge { left: edge.left && at == 0, right: edge.right && at + 1 == self.len };
        let Some(right) = self.child_mut(at).insert(item, below) else {
            self.counts[at] += 1;
            self.note_first(at);
            return None;
        };
        self.note(at);
        self.insert_child(at + 1, right, edge)
    }

    /// Moves items of the full leaf at `at` to a neighbour with room. Does nothing for a leaf at
    /// the edge of the tree, for which a split is better. Returns true if the leaf has room now.
    fn make_room(&mut self, at: usize, edge: Edge) -> bool {
        if (edge.left && at == 0) || (edge.right && at + 1 == self.len) {
            return false;
        }
        let room = |at: usize| LEAF_LEN_MAX - self.child(at).entries();
        let before = if at > 0 { room(at - 1) } else { 0 };
        let behind = if at + 1 < self.len { room(at + 1) } else { 0 };
        // If only a few places are free, the next insert would need room again soon: then split.
        if before.max(behind) < LEAF_LEN_MAX / 6 {
            return false;
        }
        if before >= behind {
            self.even_out(at - 1)
        } else {
            self.even_out(at)
        }
        true
    }

    fn insert_child(&mut self, at: usize, child: Node<I>, edge: Edge) -> Option<Box<Self>> {
        if self.len < INNER_LEN_MAX {
            self.put(at, child);
            return None;
        }
        if edge.right && at == self.len {
            return Some(Inner::new([child]));
        }
        let middle = if edge.left && at <= 1 { 1 } else { self.len / 2 };
        let mut right = Inner::new([]);
        right.take_back(self, self.len - middle);
        if at <= middle {
            self.put(at, child);
        } else {
            right.put(at - middle, child);
        }
        Some(right)
    }

    /// Moves the last `n` children of the inner node `left` to the front of this node.
    fn take_back(&mut self, left: &mut Self, n: usize) {
        let start = left.len - n;
        self.scores.copy_within(0..self.len, n);
        self.counts.copy_within(0..self.len, n);
        self.firsts.copy_within(0..self.len, n);
        self.children[..self.len + n].rotate_right(n);
        self.scores[..n].copy_from_slice(&left.scores[start..left.len]);
        self.counts[..n].copy_from_slice(&left.counts[start..left.len]);
        self.firsts[..n].copy_from_slice(&left.firsts[start..left.len]);
        self.children[..n].swap_with_slice(&mut left.children[start..left.len]);
        left.len = start;
        self.len += n;
    }

    /// Moves the first `n` children of the inner node `right` to the end of this node.
    fn take_front(&mut self, right: &mut Self, n: usize) {
        let (from, to) = (self.len, self.len + n);
        self.scores[from..to].copy_from_slice(&right.scores[..n]);
        self.counts[from..to].copy_from_slice(&right.counts[..n]);
        self.firsts[from..to].copy_from_slice(&right.firsts[..n]);
        self.children[from..to].swap_with_slice(&mut right.children[..n]);
        self.len = to;
        right.scores.copy_within(n..right.len, 0);
        right.counts.copy_within(n..right.len, 0);
        right.firsts.copy_within(n..right.len, 0);
        right.children[..right.len].rotate_left(n);
        right.len -= n;
    }

    fn remove(&mut self, target: Target<'_>) -> Option<I> {
        let (at, target) = match target {
            Target::Member(score, member) => (self.child_of(score, member), target),
            Target::Rank(rank) => {
                let (at, rank) = self.child_at_rank(rank);
                (at, Target::Rank(rank))
            }
        };
        let item = self.child_mut(at).remove(target)?;
        self.counts[at] -= 1;
        match self.child(at).entries() {
            0 => drop(self.take(at)),
            entries => {
                self.note_first(at);
                if entries < self.child(at).entries_min() && self.len > 1 {
                    self.mend(at);
                }
            }
        }
        Some(item)
    }

    /// Joins the child at `at`, which has few entries (items or children), with a neighbour, or
    /// moves some of the neighbour's entries to it.
    fn mend(&mut self, at: usize) {
        let left = if at > 0 { at - 1 } else { at };
        let both = self.child(left).entries() + self.child(left + 1).entries();
        if both + JOIN_SPARE > self.child(left).entries_max() {
            return self.even_out(left);
        }
        let mut right = self.take(left + 1);
        match (self.child_mut(left), &mut right) {
            (Node::Leaf(left), Node::Leaf(right)) => left.take_front(right, right.len),
            (Node::Inner(left), Node::Inner(right)) => left.take_front(right, right.len),
            _ => unreachable!("neighbours are equally high"),
        }
        self.note(left);
    }

    /// Distributes the entries (items or children) of the children at `left` and `left + 1`
    /// equally.
    fn even_out(&mut self, left: usize) {
        match self.neighbours(left) {
            (Node::Leaf(left), Node::Leaf(right)) => {
                let half = (left.len + right.len) / 2;
                if left.len < half {
                    left.take_front(right, half - left.len);
                } else {
                    left.give_back(right, left.len - half);
                }
            }
            (Node::Inner(left), Node::Inner(right)) => {
                let half = (left.len + right.len) / 2;
                if left.len < half {
                    left.take_front(right, half - left.len);
                } else {
                    right.take_back(left, left.len - half);
                }
            }
            _ => unreachable!("neighbours are equally high"),
        }
        self.note(left);
        self.note(left + 1);
    }
}

impl<I: Item> Node<I> {
    /// Returns the number of items below this node. O(1).
    fn count(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len,
            Node::Inner(inner) => inner.total(),
        }
    }

    /// Returns the first item below this node, which must not be empty.
    #[inline]
    fn first(&self) -> I {
        match self {
            Node::Leaf(leaf) => leaf.items[0],
            Node::Inner(inner) => inner.firsts[0],
        }
    }

    /// Returns the number of items of a leaf, or of children of an inner node.
    #[inline]
    fn entries(&self) -> usize {
        match self {
            Node::Leaf(leaf) => leaf.len,
            Node::Inner(inner) => inner.len,
        }
    }

    fn entries_min(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_LEN_MIN,
            Node::Inner(_) => INNER_LEN_MIN,
        }
    }

    fn entries_max(&self) -> usize {
        match self {
            Node::Leaf(_) => LEAF_LEN_MAX,
            Node::Inner(_) => INNER_LEN_MAX,
        }
    }

    fn is_full_leaf(&self) -> bool {
        matches!(self, Node::Leaf(leaf) if leaf.len == LEAF_LEN_MAX)
    }

    fn insert(&mut self, item: I, edge: Edge) -> Option<Self> {
        match self {
            Node::Leaf(leaf) => {
                let (score, member) = (item.score(), item.member());
                let at = leaf.partition_point(|other| compare(other, score, member).is_lt());
                leaf.insert(at, item, edge).map(Node::Leaf)
            }
            Node::Inner(inner) => inner.insert(item, edge).map(Node::Inner),
        }
    }

    fn remove(&mut self, target: Target<'_>) -> Option<I> {
        match self {
            Node::Leaf(leaf) => {
                let at = match target {
                    Target::Rank(rank) => rank,
                    Target::Member(score, member) => {
                        let at = leaf.partition_point(|other| compare(other, score, member).is_lt());
                        let found = leaf.items().get(at)?;
                        if compare(found, score, member).is_ne() {
                            return None;
                        }
                        at
                    }
                };
                Some(leaf.remove(at))
            }
            Node::Inner(inner) => inner.remove(target),
        }
    }

    /// Returns the memory of this node of the tree and those below, in bytes. Estimated from
    /// [`MEASURED_CHILDREN`] children of each node.
    fn memory_usage(&self) -> usize {
        match self {
            Node::Leaf(_) => size_of::<Leaf<I>>(),
            Node::Inner(inner) => {
                let step = inner.len.div_ceil(MEASURED_CHILDREN);
                let children = inner.children[..inner.len].iter().flatten().step_by(step);
                let measured = inner.len.div_ceil(step);
                let below = children.map(Node::memory_usage).sum::<usize>();
                size_of::<Inner<I>>() + below * inner.len / measured
            }
        }
    }
}

/// The number of a tree node's children whose memory is measured; the size of the others is
/// extrapolated. A tree of ten million items has some five levels, so a few thousand nodes are
/// read.
const MEASURED_CHILDREN: usize = 8;

/// An iterator that frees the nodes of a tree; each call of `next` frees one. See
/// [`RankTree::into_freed`].
pub struct FreedNodes<I: Item> {
    nodes: Vec<Node<I>>,
}

impl<I: Item> Iterator for FreedNodes<I> {
    type Item = ();

    fn next(&mut self) -> Option<()> {
        if let Node::Inner(mut inner) = self.nodes.pop()? {
            self.nodes.extend(inner.children.iter_mut().filter_map(Option::take));
        }
        Some(())
    }
}

impl<I: Item> Default for RankTree<I> {
    fn default() -> Self {
        Self { root: Node::Leaf(Leaf::new(&[])), len: 0 }
    }
}

impl<I: Item> RankTree<I> {
    /// Creates an empty rank tree. One allocation.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of items in the tree. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the tree has no items. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Converts the tree to an iterator that frees one node at each call of `next`. O(1); each call
    /// is O(children of a node).
    pub fn into_freed(self) -> FreedNodes<I> {
        FreedNodes { nodes: vec![self.root] }
    }

    /// Returns the memory of all nodes of the tree in bytes, estimated if they are many. O(n) up to
    /// a bound.
    pub fn memory_usage(&self) -> usize {
        self.root.memory_usage()
    }

    /// Adds an item to the tree, which must not have it yet. O(log n).
    pub fn insert(&mut self, item: I) {
        self.len += 1;
        if let Some(right) = self.root.insert(item, Edge { left: true, right: true }) {
            let left = std::mem::replace(&mut self.root, Node::Leaf(Leaf::new(&[])));
            self.root = Node::Inner(Inner::new([left, right]));
        }
    }

    /// Removes the item with this score and member from the tree and returns it; `None` if there is
    /// none. O(log n).
    pub fn remove(&mut self, score: f64, member: &[u8]) -> Option<I> {
        self.remove_target(Target::Member(score, member))
    }

    /// Removes the item at `rank` from the tree and returns it; `None` beyond the last. O(log n).
    pub fn remove_at(&mut self, rank: usize) -> Option<I> {
        if rank < self.len { self.remove_target(Target::Rank(rank)) } else { None }
    }

    fn remove_target(&mut self, target: Target<'_>) -> Option<I> {
        let item = self.root.remove(target)?;
        self.len -= 1;
        // A root with a single child is not needed.
        while let Node::Inner(root) = &mut self.root
            && root.len <= 1
        {
            self.root = if root.len == 1 { root.take(0) } else { Node::Leaf(Leaf::new(&[])) };
        }
        Some(item)
    }

    /// Returns the rank of this score and member: the number of items before it in the tree. O(log
    /// n).
    pub fn rank(&self, score: f64, member: &[u8]) -> usize {
        self.partition_point(|other_score, other| {
            compare_scores(other_score, score).then_with(|| other.member().cmp(member)).is_lt()
        })
    }

    /// Returns the items before and after the one with this score and member; `None` unless its
    /// leaf has both. If the item gets a new score between theirs, its position in the order does
    /// not change. O(log n).
    pub fn neighbours(&self, score: f64, member: &[u8]) -> Option<(I, I)> {
        let mut node = &self.root;
        loop {
            match node {
                Node::Inner(inner) => node = inner.child(inner.child_of(score, member)),
                Node::Leaf(leaf) => {
                    let at = leaf.partition_point(|other| compare(other, score, member).is_lt());
                    return Some((*leaf.items().get(at.checked_sub(1)?)?, *leaf.items().get(at + 1)?));
                }
            }
        }
    }

    /// Returns the number of items for which `before` is true. `before` gets an item and its score,
    /// and must be true exactly for a prefix of the order. O(log n).
    pub fn partition_point(&self, mut before: impl FnMut(f64, &I) -> bool) -> usize {
        let mut rank = 0;
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return rank + leaf.partition_point(|item| before(item.score(), item)),
                Node::Inner(inner) => {
                    let at = inner.child_at(&mut before);
                    rank += inner.counts[..at].iter().sum::<usize>();
                    node = inner.child(at);
                }
            }
        }
    }

    /// Returns the tree's item at `rank`; `None` if there are no more than `rank` items. O(log n).
    pub fn at(&self, rank: usize) -> Option<I> {
        let (items, start) = self.leaf_at(rank)?;
        items.get(rank - start).copied()
    }

    /// Returns the items of the leaf that holds the item at `rank`, and the rank of the first of
    /// them. O(log n).
    fn leaf_at(&self, rank: usize) -> Option<(&[I], usize)> {
        if rank >= self.len {
            return None;
        }
        let mut within = rank;
        let mut node = &self.root;
        loop {
            match node {
                Node::Leaf(leaf) => return Some((leaf.items(), rank - within)),
                Node::Inner(inner) => {
                    let at;
                    (at, within) = inner.child_at_rank(within);
                    node = inner.child(at);
                }
            }
        }
    }

    /// Returns a double-ended iterator over the items of a range of ranks. O(log n) to begin, then
    /// O(1) an item.
    pub fn range(&self, ranks: Range<usize>) -> Items<'_, I> {
        let end = ranks.end.min(self.len);
        Items { tree: self, ranks: ranks.start.min(end)..end, front: (&[], 0), back: (&[], 0) }
    }
}

/// A double-ended iterator over the items of a range of ranks. Each end of the iterator stores its
/// present leaf; the next leaf is found from the root.
pub struct Items<'a, I> {
    tree: &'a RankTree<I>,
    ranks: Range<usize>,
    front: (&'a [I], usize),
    back: (&'a [I], usize),
}

impl<I: Item> Iterator for Items<'_, I> {
    type Item = I;

    #[inline]
    fn next(&mut self) -> Option<I> {
        let rank = self.ranks.next()?;
        let (items, start) = self.front;
        if rank < start + items.len() && !items.is_empty() {
            // The caller usually reads members soon after it gets them.
            if let Some(ahead) = items.get(rank - start + PREFETCH_AHEAD) {
                ahead.prefetch();
            }
            return Some(items[rank - start]);
        }
        self.front = self.tree.leaf_at(rank)?;
        Some(self.front.0[rank - self.front.1])
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }
}

impl<I: Item> DoubleEndedIterator for Items<'_, I> {
    #[inline]
    fn next_back(&mut self) -> Option<I> {
        let rank = self.ranks.next_back()?;
        let (items, start) = self.back;
        if rank >= start && !items.is_empty() {
            if rank >= start + PREFETCH_AHEAD {
                items[rank - start - PREFETCH_AHEAD].prefetch();
            }
            return Some(items[rank - start]);
        }
        self.back = self.tree.leaf_at(rank)?;
        Some(self.back.0[rank - self.back.1])
    }
}

impl<I: Item> ExactSizeIterator for Items<'_, I> {}

/// The number of items that the iterator [`Items`] prefetches ahead of the present one.
const PREFETCH_AHEAD: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A test item of eight bytes. Its member is the number, its score a tenth of the number,
    /// rounded down.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
    struct Number([u8; 8]);

    impl Number {
        fn new(number: u64) -> Self {
            Number(number.to_be_bytes())
        }
    }

    impl Item for Number {
        const VACANT: Self = Number([0xFF; 8]);
        fn score(&self) -> f64 {
            (u64::from_be_bytes(self.0) / 10) as f64
        }
        fn member(&self) -> &[u8] {
            &self.0
        }
    }

    /// Checks the invariants of the rank tree below one node, which must have at least `len_min`
    /// items (0 for the root). Returns the node's height.
    fn check_node(node: &Node<Number>, len_min: usize) -> usize {
        match node {
            Node::Leaf(leaf) => {
                assert!(leaf.len >= len_min);
                assert!(leaf.items().is_sorted_by(|a, b| a < b));
                1
            }
            Node::Inner(inner) => {
                assert!(inner.len > usize::from(len_min == 0));
                assert!(inner.children[inner.len..].iter().all(Option::is_none));
                let mut heights = BTreeSet::new();
                for at in 0..inner.len {
                    let child = inner.child(at);
                    assert_eq!(inner.counts[at], child.count());
                    assert_eq!(inner.firsts[at], child.first());
                    assert_eq!(inner.scores[at], child.first().score());
                    heights.insert(check_node(child, 1));
                }
                assert_eq!(heights.len(), 1);
                1 + heights.first().expect("it has a child")
            }
        }
    }

    fn check(tree: &RankTree<Number>, twin: &BTreeSet<Number>) {
        check_node(&tree.root, 0);
        assert_eq!(tree.len(), twin.len());
        assert!(tree.range(0..usize::MAX).eq(twin.iter().copied()));
        assert!(tree.range(0..usize::MAX).rev().eq(twin.iter().rev().copied()));
    }

    fn fill(numbers: impl Iterator<Item = u64>) -> (RankTree<Number>, BTreeSet<Number>) {
        let (mut tree, mut twin) = (RankTree::new(), BTreeSet::new());
        for number in numbers {
            if twin.insert(Number::new(number)) {
                tree.insert(Number::new(number));
            }
        }
        check(&tree, &twin);
        (tree, twin)
    }

    /// Returns numbers in an order without pattern, for tests.
    fn scattered(n: u64) -> impl Iterator<Item = u64> {
        (0..n).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20)
    }

    #[test]
    fn ascending_and_descending_inserts_leave_full_leaves() {
        for numbers in [(0..20_000).collect::<Vec<_>>(), (0..20_000).rev().collect()] {
            let (tree, _) = fill(numbers.into_iter());
            assert!(tree.memory_usage() < 20_000 * 9, "{} bytes", tree.memory_usage());
        }
    }

    #[test]
    fn scattered_inserts_take_at_most_12_bytes_an_item() {
        let (tree, twin) = fill(scattered(20_000));
        assert!(tree.memory_usage() < twin.len() * 12, "{} bytes", tree.memory_usage());
    }

    #[test]
    fn ranks_and_ranges_are_those_of_a_sorted_list() {
        for n in [0, 1, 2, 63, 64, 65, 500, 5000] {
            let (tree, twin) = fill(scattered(n));
            let sorted: Vec<Number> = twin.into_iter().collect();
            for (rank, number) in sorted.iter().enumerate() {
                assert_eq!(tree.rank(number.score(), number.member()), rank);
                assert_eq!(tree.at(rank), Some(*number));
            }
            assert_eq!(tree.at(sorted.len()), None);
            for start in (0..=sorted.len()).step_by(97) {
                for end in (0..=sorted.len() + 1).step_by(89) {
                    let expected = sorted.get(start..end.min(sorted.len())).unwrap_or_default();
                    assert!(tree.range(start..end).eq(expected.iter().copied()));
                    assert!(tree.range(start..end).rev().eq(expected.iter().rev().copied()));
                }
            }
            let middle = sorted.get(sorted.len() / 2).map_or(0.0, Number::score);
            let below = sorted.iter().filter(|number| number.score() < middle).count();
            assert_eq!(tree.partition_point(|score, _| score < middle), below);
        }
    }

    #[test]
    fn neighbours_are_those_beside_an_item_within_its_leaf() {
        let (tree, twin) = fill(scattered(1000));
        let sorted: Vec<Number> = twin.into_iter().collect();
        let mut found = 0;
        for beside in sorted.windows(3) {
            if let Some((before, behind)) = tree.neighbours(beside[1].score(), beside[1].member()) {
                assert_eq!((before, behind), (beside[0], beside[2]));
                found += 1;
            }
        }
        assert!(found > 900, "all but the first and last of a leaf: {found}");
        assert_eq!(tree.neighbours(sorted[0].score(), sorted[0].member()), None);
    }

    #[test]
    fn both_ends_of_a_range_meet() {
        let (tree, twin) = fill(0..300);
        let mut items = tree.range(10..290);
        let mut twin = twin.iter().copied().skip(10).take(280);
        while let Some(item) = items.next() {
            assert_eq!(Some(item), twin.next());
            assert_eq!(items.next_back(), twin.next_back());
        }
        assert_eq!(twin.next(), None);
    }

    #[test]
    fn removing_from_either_end_and_the_middle_empties_the_tree() {
        for turn in 0..3 {
            let (mut tree, mut twin) = fill(0..3000);
            while !twin.is_empty() {
                let rank = match turn {
                    0 => 0,
                    1 => twin.len() - 1,
                    _ => twin.len() / 2,
                };
                let number = tree.remove_at(rank).expect("the rank exists");
                assert!(twin.remove(&number));
                if twin.len() % 100 == 0 {
                    check(&tree, &twin);
                }
            }
            assert_eq!(tree.remove_at(0), None);
        }
    }

    #[test]
    fn a_tree_that_lost_most_items_gave_the_memory_back() {
        let (mut tree, mut twin) = fill(scattered(20_000));
        for number in twin.clone() {
            if number.0[7] % 16 != 0 {
                assert_eq!(tree.remove(number.score(), number.member()), Some(number));
                twin.remove(&number);
            }
        }
        check(&tree, &twin);
        assert!(tree.memory_usage() < twin.len() * 18 + 2048, "{} for {}", tree.memory_usage(), twin.len());
    }

    proptest! {
        #[test]
        fn any_sequence_leaves_what_a_sorted_set_holds(
            steps in prop::collection::vec((0..10_u8, 0..2000_u64), 0..3000)
        ) {
            let (mut tree, mut twin) = (RankTree::new(), BTreeSet::new());
            for (kind, number) in steps {
                let item = Number::new(number);
                match kind {
                    0..=5 => if twin.insert(item) { tree.insert(item); },
                    6..=8 => {
                        let removed = twin.remove(&item).then_some(item);
                        prop_assert_eq!(tree.remove(item.score(), item.member()), removed);
                    }
                    _ => {
                        let expected = twin.iter().nth(number as usize).copied();
                        prop_assert_eq!(tree.remove_at(number as usize), expected);
                        expected.map(|item| twin.remove(&item));
                    }
                }
            }
            check(&tree, &twin);
        }
    }
}
