//! Quicklist: a long list of strings and integers, stored as a sequence of packed nodes.
//!
//! ```text
//!   nodes (a ring of 32-byte handles):   [head][…][…][tail]
//!   each: a buffer with a run of listpack elements inside, slack before and behind ([`node`])
//! ```
//! Pushing and popping at either end is O(1) amortised and moves no other element. The handles are
//! in one ring and not linked. Finding an index adds up the counts of at most half of the handles,
//! in memory order, then reads half a node. Inserting or removing a node in the middle moves
//! handles: 32 bytes for 8 KiB of list. That takes microseconds for tens of millions of elements.
//!
//! A node holds as many elements as `list-max-listpack-size` allows. A string above a node's size
//! is a *plain* node of its own. The place of an edit, and the splits and joins of nodes, are those
//! of Redis, because they are visible: a list that shrinks to a single node may change its
//! encoding. A replacement may therefore take a node beyond its limit, here up to
//! [`REPLACED_LEN_BYTES_MAX`].
//!
//! *Slack* is the unused memory of a node's buffer. Only the nodes at the ends have notable slack,
//! and in a short list it grows with the list. The buffer of a node that is no longer at an end is
//! cut to the allocator's size class. Interior memory is therefore the elements (text + 2 bytes for
//! short strings) plus 32 bytes a node.
//!
//! With a compress depth of n, the nodes further than n from either end are *compressed* by LZF, as
//! in Redis ([`settle`]). Reading decompresses a copy of such a node ([`read`]); an edit
//! decompresses the node itself.
//!
//! Invariants: no node is empty; `len` is the sum of the nodes' counts; the ring has a node iff
//! `len > 0`; no node within the depth from an end is compressed.
//!
//! Rejected: a doubly linked list of nodes (a cache miss each), and listpacks with the header in
//! place (pushing at the head moves 8 KiB).

mod limit;
mod node;
mod read;
mod remove;
mod settle;
mod walk_state;

use crate::listpack::element::{self, Element, Encoded};
use crate::listpack::{HEADER_LEN_BYTES, Listpack, OVERHEAD_LEN_BYTES};
use crate::size_class::size_class;
use crate::walked_row::WalkedRow;
pub use limit::NodeLimit;
use node::{End, Node, Side, Slack};

/// The number of bytes that Redis adds to a string's length when it checks if the string fits a
/// node.
const ENTRY_OVERHEAD_LEN_BYTES: usize = 8;

/// The greatest length in bytes of a node's run after the replacement of an element. It bounds the
/// bytes that one edit moves.
pub const REPLACED_LEN_BYTES_MAX: usize = 64 * 1024;

/// The content of one node of a quicklist, for code that writes lists to files or peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeView<'a> {
    /// `count` listpack elements without the listpack's header and terminator.
    Packed {
        /// The elements of the node in the encoding of a listpack, one after the other.
        run: &'a [u8],
        /// The number of elements in `run`.
        count: usize,
    },
    /// One big string, which is the node's only element.
    Plain(&'a [u8]),
}

impl<'a> NodeView<'a> {
    /// Calls `visit` with each element of the node. O(n).
    pub fn visit(self, mut visit: impl FnMut(Element<'a>)) {
        match self {
            NodeView::Plain(bytes) => visit(Element::Bytes(bytes)),
            NodeView::Packed { run, count } => {
                element::visit(run, count, &mut visit);
            }
        }
    }
}

/// The greatest distance, in nodes, from a node that an edit changes to a node that the same edit
/// may join with another.
const EDITED_NODES: usize = 4;

/// The number of nodes up to which a list's memory is summed. Beyond it, the memory is estimated.
const MEASURED_NODES_MAX: usize = 1024;

/// A long list of strings and integers. See the module's documentation.
#[derive(Clone, Debug)]
pub struct Quicklist {
    nodes: WalkedRow<Node>,
    len: usize,
    limit: NodeLimit,
    /// The sum of the lengths of the nodes' buffers, in bytes.
    buffers_len_bytes: usize,
}

impl Quicklist {
    /// Creates an empty quicklist with the node limit `limit`; allocates nothing.
    pub fn new(limit: NodeLimit) -> Self {
        Self { nodes: WalkedRow::default(), len: 0, limit, buffers_len_bytes: 0 }
    }

    /// Returns the number of elements in the list. O(1).
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the list has no elements. O(1).
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of nodes of the list. O(1).
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the bytes of the nodes and their buffers, the buffers' unused bytes included. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.buffers_len_bytes + self.nodes.len() * size_of::<Node>()
    }

    /// Returns true if the list has a compress depth, so that nodes may be compressed. O(1).
    pub fn compresses(&self) -> bool {
        self.limit.compresses()
    }

    /// Returns the limit of the size and of the compression of the list's nodes. O(1).
    pub fn limit(&self) -> NodeLimit {
        self.limit
    }

    /// Returns the limit of the nodes' size as a value of `list-max-listpack-size`. O(1).
    pub fn node_limit_option(&self) -> i64 {
        self.limit.to_option()
    }

    /// Returns the bytes that the nodes' listpacks and big strings would have without compression.
    /// O(nodes).
    pub fn uncompressed_len_bytes(&self) -> usize {
        self.nodes.iter().map(Node::uncompressed_len_bytes).sum()
    }

    /// Converts the list to an iterator that frees one node in each step.
    pub fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        self.nodes.into_nodes().into_iter().map(drop)
    }

    /// Returns the bytes that the list has allocated, without the [`Quicklist`] itself. O(nodes) up
    /// to [`MEASURED_NODES_MAX`]; for more nodes, an estimate from that many.
    pub fn memory_usage(&self) -> usize {
        let ring = match self.nodes.capacity() * size_of::<Node>() {
            0 => 0,
            bytes => size_class(bytes),
        };
        let step = self.nodes.len().div_ceil(MEASURED_NODES_MAX).max(1);
        let measured = self.nodes.len().div_ceil(step).max(1);
        let sum: usize = self.nodes.iter().step_by(step).map(Node::memory_usage).sum();
        ring + (sum as u128 * self.nodes.len() as u128 / measured as u128) as usize
    }

    // Operations at the ends.

    /// Inserts an element before all others of the list. O(its bytes), amortised.
    #[inline]
    pub fn push_front<'e>(&mut self, element: impl Into<Element<'e>>) {
        self.push(End::Front, element.into());
    }

    /// Appends an element to the list. O(its bytes), amortised.
    #[inline]
    pub fn push_back<'e>(&mut self, element: impl Into<Element<'e>>) {
        self.push(End::Back, element.into());
    }

    /// Appends all elements of `listpack` to the list as one node, without copying. O(1).
    pub fn push_listpack(&mut self, listpack: Listpack) {
        if listpack.is_empty() {
            return;
        }
        let count = listpack.len();
        let bytes = listpack.into_bytes();
        let run = HEADER_LEN_BYTES..bytes.len() - 1;
        self.add_node(End::Back, Node::from_run(bytes, run, count));
        self.len += count;
    }

    /// Appends a string that a dump stores as a node of its own. A string above a node's size is
    /// not copied. O(1), or O(bytes) if copied.
    pub fn push_plain(&mut self, bytes: Box<[u8]>) {
        if self.limit.is_big(Element::Bytes(&bytes)) {
            self.add_node(End::Back, Node::plain(bytes));
            self.len += 1;
        } else {
            // The string was written under another limit. Under this limit it is an ordinary
            // element.
            self.push_back(&*bytes);
        }
    }

    /// Calls `with` with the first element, then removes it. Returns the result of `with`; `None`
    /// if the list is empty. O(1) amortised.
    #[inline]
    pub fn pop_front_with<R>(&mut self, with: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let node = self.nodes.front_mut()?;
        let had = node.buffer_len_bytes();
        let result = node.pop(End::Front, with);
        let mut has = node.buffer_len_bytes();
        if node.count() == 0 {
            self.nodes.pop_front();
            has = 0;
            self.settle_popped();
        }
        self.buffers_len_bytes = self.buffers_len_bytes - had + has;
        self.len -= 1;
        Some(result)
    }

    /// Calls `with` with the last element, then removes it. Returns the result of `with`; `None` if
    /// the list is empty. O(1) amortised.
    #[inline]
    pub fn pop_back_with<R>(&mut self, with: impl FnOnce(Element<'_>) -> R) -> Option<R> {
        let node = self.nodes.back_mut()?;
        let had = node.buffer_len_bytes();
        let result = node.pop(End::Back, with);
        let mut has = node.buffer_len_bytes();
        if node.count() == 0 {
            self.nodes.pop_back();
            has = 0;
            self.settle_popped();
        }
        self.buffers_len_bytes = self.buffers_len_bytes - had + has;
        self.len -= 1;
        Some(result)
    }

    #[inline]
    fn push(&mut self, end: End, element: Element<'_>) {
        self.len += 1;
        if self.limit.is_big(element) {
            return self.add_node(end, plain(element));
        }
        let (encoded, text_len) = (Encoded::new(element), element.text_len_bytes());
        let slack = if self.nodes.len() == 1 { Slack::BothSides } else { Slack::OneSide };
        let node = match end {
            End::Front => self.nodes.front_mut(),
            End::Back => self.nodes.back_mut(),
        };
        let room = node.filter(|node| node.allows(text_len, self.limit));
        if let Some(node) = room {
            let had = node.buffer_len_bytes();
            node.push(end, &encoded, slack, self.limit);
            self.buffers_len_bytes = self.buffers_len_bytes - had + node.buffer_len_bytes();
        } else {
            self.add_packed_node(end, &encoded);
        }
    }

    /// Adds a node at the end `end` of the list for one element. Its buffer has an eighth of a full
    /// node's size for each node of the list, up to eight, so that a short list is not mostly
    /// slack. The buffer is no larger than the allowed number of such elements needs.
    #[cold]
    fn add_packed_node(&mut self, end: End, encoded: &Encoded<'_>) {
        let len = encoded.len_bytes();
        let by_list = size_class(self.limit.run_len_max as usize) / 8 * self.nodes.len().clamp(1, 8);
        let by_count = len.saturating_mul(self.limit.count_max as usize);
        let capacity = size_class(by_list.min(by_count).max(len));
        self.add_node(end, Node::packed(encoded, end, capacity));
    }

    /// Adds `node` at the end `end` of the list. Frees the unused memory in the buffer of the node
    /// that was at this end.
    fn add_node(&mut self, end: End, node: Node) {
        self.reserve_node();
        self.buffers_len_bytes += node.buffer_len_bytes();
        let sealed = match end {
            End::Front => 0,
            End::Back => self.nodes.len().wrapping_sub(1),
        };
        if sealed < self.nodes.len() {
            let sealed = self.nodes.reshape_mut(sealed);
            let had = sealed.buffer_len_bytes();
            sealed.seal();
            self.buffers_len_bytes = self.buffers_len_bytes - had + sealed.buffer_len_bytes();
        }
        match end {
            End::Front => self.nodes.push_front(node),
            End::Back => self.nodes.push_back(node),
        }
        if self.limit.compresses() {
            self.settle_added(end);
        }
    }

    /// Grows the ring of node handles by an eighth if it is full, not by doubling. Moving the
    /// handles costs little, compared with the cost of filling their nodes.
    fn reserve_node(&mut self) {
        if self.nodes.len() == self.nodes.capacity() {
            self.nodes.reserve_exact((self.nodes.len() / 8).max(4));
        }
    }

    // Reading.

    /// Returns the length in bytes of the listpack of all elements, if they are in one packed node.
    /// Else returns `None`. O(1).
    pub fn single_node_len_bytes(&self) -> Option<usize> {
        match self.nodes.front() {
            Some(node) if self.nodes.len() == 1 && node.as_plain().is_none() => {
                Some(node.run_len() + OVERHEAD_LEN_BYTES)
            }
            _ => None,
        }
    }

    /// Returns the listpack of all elements, if they are in one packed node. Else returns `None`.
    /// O(bytes).
    pub fn to_single_listpack(&self) -> Option<Listpack> {
        self.single_node_len_bytes()?;
        let node = self.nodes.front()?;
        Some(Listpack::from_run(node.run(), node.count()))
    }

    /// Returns the index of the node that holds element `index`, and the element's index within the
    /// node. Returns `None` beyond the last element. O(nodes), from the nearer end.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        if index >= self.len {
            return None;
        }
        if index <= self.len / 2 {
            let mut before = 0;
            for (at, node) in self.nodes.iter().enumerate() {
                if index < before + node.count() {
                    return Some((at, index - before));
                }
                before += node.count();
            }
        } else {
            let mut before = self.len;
            for (at, node) in self.nodes.iter().enumerate().rev() {
                before -= node.count();
                if index >= before {
                    return Some((at, index - before));
                }
            }
        }
        unreachable!("the nodes hold `len` elements")
    }

    // Editing in the middle.

    /// Inserts an element into the list before the one at `index`; appends if `index` is the length
    /// or more. O(nodes + bytes of one node).
    pub fn insert<'e>(&mut self, index: usize, element: impl Into<Element<'e>>) {
        match self.locate(index) {
            None => self.push(End::Back, element.into()),
            Some((0, 0)) => self.push(End::Front, element.into()),
            Some((at, inner)) => {
                self.edit_around(at, |list| list.insert_beside(at, inner, Side::Before, element.into()));
            }
        }
    }

    /// Inserts an element into the list after the one at `index`. Appends if `index` is the last or
    /// beyond it. O(nodes + bytes of one node).
    pub fn insert_after<'e>(&mut self, index: usize, element: impl Into<Element<'e>>) {
        match self.locate(index) {
            Some((at, inner)) if index + 1 < self.len => {
                self.edit_around(at, |list| list.insert_beside(at, inner, Side::After, element.into()));
            }
            _ => self.push(End::Back, element.into()),
        }
    }

    /// Inserts `element` before or after the element at index `inner` of node `at`.
    fn insert_beside(&mut self, at: usize, inner: usize, side: Side, element: Element<'_>) {
        self.len += 1;
        let limit = self.limit;
        let (at_edge, beside, neighbour) = match side {
            Side::Before => (inner == 0, at, at.checked_sub(1)),
            Side::After => (inner + 1 == self.nodes[at].count(), at + 1, Some(at + 1)),
        };
        let before_it = inner + usize::from(side == Side::After);
        if limit.is_big(element) {
            let place = if at_edge { beside } else { self.split(at, before_it) };
            return self.insert_node(place, plain(element));
        }
        let (encoded, text_len) = (Encoded::new(element), element.text_len_bytes());
        if self.nodes[at].allows(text_len, limit) {
            let node = self.nodes.node_mut(at);
            node.decompress();
            let offset = node.seek(before_it);
            return node.insert(offset, &encoded, limit);
        }
        if at_edge {
            let allows = |&at: &usize| self.nodes.get(at).is_some_and(|node| node.allows(text_len, limit));
            return match neighbour.filter(allows) {
                Some(at) => {
                    let node = self.nodes.node_mut(at);
                    node.decompress();
                    node.insert_at_end(side.facing(), &encoded, limit);
                }
                None => self.insert_node(beside, Node::single(&encoded)),
            };
        }
        self.split(at, before_it);
        // The new element goes into the part that does not hold element `inner`, even if that part
        // is long.
        match side {
            Side::Before => self.nodes.node_mut(at).insert_at_end(End::Back, &encoded, limit),
            Side::After => self.nodes.node_mut(at + 1).insert_at_end(End::Front, &encoded, limit),
        }
        self.join_around(beside_pivot(at, side));
    }

    /// Replaces the element at `index`. Returns false if there is no such element. O(nodes + bytes
    /// of one node).
    pub fn replace<'e>(&mut self, index: usize, element: impl Into<Element<'e>>) -> bool {
        let element = element.into();
        let Some((at, inner)) = self.locate(index) else { return false };
        self.edit_around(at, |list| list.replace_at(at, inner, element));
        true
    }

    /// Calls `edit`, which may change and split node `at` of the list and join nodes around it.
    /// Then updates the sum of the lengths of these nodes' buffers, and compresses or decompresses
    /// these nodes. O(1) besides `edit` and compression.
    fn edit_around(&mut self, at: usize, edit: impl FnOnce(&mut Self)) {
        let (low, high) = (at.saturating_sub(EDITED_NODES), (at + 1 + EDITED_NODES).min(self.nodes.len()));
        let behind = self.nodes.len() - high;
        let sum = |list: &Self, high| list.nodes.range(low..high).map(Node::buffer_len_bytes).sum::<usize>();
        let had = sum(self, high);
        edit(self);
        let has = sum(self, self.nodes.len() - behind);
        self.buffers_len_bytes = self.buffers_len_bytes - had + has;
        if self.limit.compresses() {
            self.settle_edited(low..self.nodes.len() - behind);
        }
    }

    /// Replaces the element at index `inner` of node `at`.
    fn replace_at(&mut self, at: usize, inner: usize, element: Element<'_>) {
        let node = self.nodes.node_mut(at);
        node.decompress();
        let (big, was_plain) = (self.limit.is_big(element), node.as_plain().is_some());
        if big && was_plain {
            *node = plain(element);
        } else if was_plain {
            self.replace_plain(at, element);
        } else if big {
            self.replace_with_node(at, inner, plain(element));
        } else if !node.replace(inner, &Encoded::new(element), self.limit) {
            self.replace_with_node(at, inner, Node::single(&Encoded::new(element)));
        }
    }

    /// Replaces the string of the plain node `at` by an element that is not big. The element joins
    /// the next node if it fits there, so that a list without its big string can be a listpack
    /// again.
    fn replace_plain(&mut self, at: usize, element: Element<'_>) {
        let (encoded, limit) = (Encoded::new(element), self.limit);
        let next = self.nodes.get(at + 1);
        match next.filter(|next| next.allows(element.text_len_bytes(), limit)) {
            Some(_) => {
                let next = self.nodes.node_mut(at + 1);
                next.decompress();
                next.insert_at_end(End::Front, &encoded, limit);
                self.nodes.remove(at);
            }
            None => *self.nodes.node_mut(at) = Node::single(&encoded),
        }
    }

    /// Replaces the element at index `inner` of node `at` by `new`, a node of one element.
    fn replace_with_node(&mut self, at: usize, inner: usize, new: Node) {
        if self.nodes[at].count() == 1 {
            *self.nodes.node_mut(at) = new;
            return;
        }
        if inner + 1 < self.nodes[at].count() {
            self.split(at, inner + 1);
        }
        self.insert_node(at + 1, new);
        self.nodes.node_mut(at).remove(inner, 1);
        if self.nodes[at].count() == 0 {
            self.nodes.remove(at);
        } else {
            self.join_around(at + 1);
        }
    }

    /// Splits node `at` before its element `index`, so that this element is the first of a node.
    /// Returns the index of that node: `at + 1`, or `at` if nothing had to be split.
    fn split(&mut self, at: usize, index: usize) -> usize {
        if index == 0 {
            return at;
        }
        let node = self.nodes.node_mut(at);
        node.decompress();
        let back = node.split_off(index);
        self.insert_node(at + 1, back);
        at + 1
    }

    fn insert_node(&mut self, at: usize, node: Node) {
        self.reserve_node();
        self.nodes.insert(at, node);
    }

    /// Joins neighbouring nodes around `center` that are within the limit together, after an edit
    /// has split a node. Tries the two nodes before `center`, the two after it, and `center` with
    /// each neighbour. O(bytes joined + handles after them).
    fn join_around(&mut self, mut center: usize) {
        if center >= 2 && self.join(center - 2) {
            center -= 1;
        }
        self.join(center + 1);
        if center >= 1 && self.join(center - 1) {
            center -= 1;
        }
        self.join(center);
    }

    /// Joins node `at` of the list with the next node if both exist and fit together. Returns true
    /// if it joined them.
    fn join(&mut self, at: usize) -> bool {
        let Some(next) = self.nodes.get(at + 1) else { return false };
        if !self.nodes[at].may_join(next, self.limit) {
            return false;
        }
        let mut next = self.nodes.remove(at + 1);
        next.decompress();
        let node = self.nodes.node_mut(at);
        node.decompress();
        node.join(next);
        true
    }
}

/// Returns the index of the node that holds the pivot, the element beside which an element is
/// inserted. Node `at` was split next to the pivot; `side` is the side of the insertion.
fn beside_pivot(at: usize, side: Side) -> usize {
    match side {
        Side::Before => at + 1,
        Side::After => at,
    }
}

/// Creates a node of a quicklist that holds only a big string.
fn plain(element: Element<'_>) -> Node {
    match element {
        Element::Bytes(bytes) => Node::plain(bytes.into()),
        Element::Int(_) => unreachable!("only strings are big"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lzf::Compressor;
    use crate::walk_state::WalkState;
    use proptest::prelude::*;
    use std::ops::ControlFlow;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    fn text(element: Element<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        element.append_to(&mut out);
        out
    }

    /// Checks the invariants of the quicklist's nodes.
    fn check_nodes(list: &Quicklist) {
        assert_eq!(list.nodes.iter().map(Node::count).sum::<usize>(), list.len());
        assert_eq!(list.nodes.iter().map(Node::buffer_len_bytes).sum::<usize>(), list.buffers_len_bytes);
        for node in &list.nodes {
            assert!(node.count() > 0, "no node is empty");
            let mut scratch = Vec::new();
            let run = match node.view(&mut scratch) {
                NodeView::Plain(bytes) => {
                    assert!(list.limit.is_big(Element::Bytes(bytes)) && node.run_len() == 0);
                    continue;
                }
                NodeView::Packed { run, .. } => run,
            };
            assert_eq!(element::validate(run), Ok(node.count()));
            let longest = REPLACED_LEN_BYTES_MAX.max(2 * list.limit.run_len_max as usize);
            assert!(node.run_len() <= longest && node.count() <= list.limit.count_max as usize);
        }
    }

    fn check(list: &Quicklist, twin: &[Vec<u8>]) {
        check_nodes(list);
        assert_eq!(list.len(), twin.len());
        check_compressed(list);
        assert!(texts(list) == twin);
    }

    /// Checks that the list's nodes beyond the compress depth are compressed if that saves enough
    /// bytes, and no others.
    fn check_compressed(list: &Quicklist) {
        let (depth, len, mut compressor) = (list.depth(), list.node_count(), Compressor::new());
        for (at, node) in list.nodes.iter().enumerate() {
            let inner = depth > 0 && at >= depth && len - at > depth;
            let mut fresh = node.clone();
            fresh.decompress();
            fresh.compress(&mut compressor);
            assert_eq!(node.is_compressed(), inner && fresh.is_compressed(), "node {at} of {len}");
        }
    }

    fn texts(list: &Quicklist) -> Vec<Vec<u8>> {
        let mut texts = Vec::new();
        let end = list.try_visit(|element| {
            texts.push(text(element));
            ControlFlow::<()>::Continue(())
        });
        assert!(end.is_continue());
        texts
    }

    fn check_from(list: &Quicklist, twin: &[Vec<u8>], index: usize) {
        let from = twin.get(index..).unwrap_or_default();
        for count in [0, 1, from.len() / 2, from.len(), usize::MAX] {
            let mut visited = Vec::new();
            list.visit(index, count, |element| visited.push(text(element)));
            assert_eq!(visited, from[..count.min(from.len())]);
        }
        assert_eq!(list.with(index, text).as_ref(), twin.get(index));
        let before = twin.get(..=index).unwrap_or_default();
        let mut visited = Vec::new();
        let end = list.try_visit_rev(index, |element| {
            visited.push(text(element));
            if visited.len() > 1000 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        assert_eq!(end.is_break(), before.len() > 1000);
        assert!(visited.iter().eq(before.iter().rev().take(1001)));
    }

    #[derive(Clone, Debug)]
    enum Op {
        PushBack(u8, Vec<u8>),
        PushFront(u8, Vec<u8>),
        PopFront(u8),
        PopBack(u8),
        Insert(usize, u8, Vec<u8>),
        InsertAfter(usize, u8, Vec<u8>),
        Replace(usize, Vec<u8>),
        RemoveRange(usize, usize),
        RemoveMatches(usize, usize, bool),
    }

    fn value() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            4 => (0_i64..4).prop_map(|int| int.to_string().into_bytes()),
            4 => proptest::collection::vec(any::<u8>(), 0..20),
            2 => any::<i64>().prop_map(|int| int.to_string().into_bytes()),
            2 => (0_usize..6000).prop_map(|len| vec![b'm'; len]),
            1 => prop::sample::select(vec![4088, 4089, 4090, 4091, 4096, 4097, 8185, 8192, 8193, 20_000])
                .prop_map(|len| vec![b'b'; len]),
        ]
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            3 => (1_u8..40, value()).prop_map(|(n, v)| Op::PushBack(n, v)),
            3 => (1_u8..40, value()).prop_map(|(n, v)| Op::PushFront(n, v)),
            2 => (1_u8..40).prop_map(Op::PopFront),
            2 => (1_u8..40).prop_map(Op::PopBack),
            4 => (any::<usize>(), 1_u8..6, value()).prop_map(|(at, n, v)| Op::Insert(at, n, v)),
            4 => (any::<usize>(), 1_u8..6, value()).prop_map(|(at, n, v)| Op::InsertAfter(at, n, v)),
            4 => (any::<usize>(), value()).prop_map(|(at, v)| Op::Replace(at, v)),
            2 => (any::<usize>(), 0_usize..50).prop_map(|(at, n)| Op::RemoveRange(at, n)),
            1 => (any::<usize>(), 0_usize..9, any::<bool>()).prop_map(|(at, n, b)| Op::RemoveMatches(at, n, b)),
        ]
    }

    /// Applies `op` to the list and to its twin, a vector. Indices are taken modulo the length.
    fn apply(op: Op, list: &mut Quicklist, twin: &mut Vec<Vec<u8>>) {
        let place = |at: usize, twin: &[Vec<u8>]| at % (twin.len() + 1);
        match op {
            Op::PushBack(n, v) => (0..n).for_each(|_| {
                list.push_back(&v);
                twin.push(v.clone());
            }),
            Op::PushFront(n, v) => (0..n).for_each(|_| {
                list.push_front(&v);
                twin.insert(0, v.clone());
            }),
            Op::PopFront(n) => (0..n).for_each(|_| {
                let expected = (!twin.is_empty()).then(|| twin.remove(0));
                assert_eq!(list.pop_front_with(text), expected);
            }),
            Op::PopBack(n) => (0..n).for_each(|_| assert_eq!(list.pop_back_with(text), twin.pop())),
            Op::Insert(at, n, v) => (0..n).for_each(|_| {
                let at = place(at, twin);
                list.insert(at, &v);
                twin.insert(at, v.clone());
            }),
            Op::InsertAfter(at, n, v) => (0..n).for_each(|_| {
                let at = place(at, twin);
                list.insert_after(at, &v);
                twin.insert(twin.len().min(at + 1), v.clone());
            }),
            Op::Replace(at, v) => {
                let at = place(at, twin);
                assert_eq!(list.replace(at, &v), at < twin.len());
                if let Some(old) = twin.get_mut(at) {
                    *old = v;
                }
            }
            Op::RemoveRange(at, n) => {
                let at = place(at, twin);
                let end = twin.len().min(at + n);
                assert_eq!(list.remove_range(at, n), end - at);
                twin.drain(at..end);
            }
            Op::RemoveMatches(at, n, from_back) => {
                let Some(needle) = twin.get(place(at, twin)).cloned() else { return };
                let mut gone: Vec<_> = (0..twin.len()).filter(|&at| twin[at] == needle).collect();
                if from_back {
                    assert_eq!(list.remove_last_matches(&needle, n), gone.len().min(n));
                    gone.reverse();
                } else {
                    assert_eq!(list.remove_first_matches(&needle, n), gone.len().min(n));
                }
                gone.truncate(n);
                gone.sort_unstable();
                gone.into_iter().rev().for_each(|at| drop(twin.remove(at)));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn does_what_a_vector_does(
            limit in prop::sample::select(vec![-5_i64, -2, -1, 0, 1, 2, 3, 5, 16, 128]),
            depth in prop::sample::select(vec![0, 0, 1, 2, 3, 6, 70_000]),
            ops in proptest::collection::vec(op(), 0..60),
            index in any::<usize>(),
        ) {
            let mut list = Quicklist::new(NodeLimit::from_option(limit).with_compress_depth(depth));
            let mut twin = Vec::new();
            for op in ops {
                apply(op, &mut list, &mut twin);
                check(&list, &twin);
                check_from(&list, &twin, index % (twin.len() + 1));
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn is_shown_as_it_was_while_it_changes(
            limit in prop::sample::select(vec![-5_i64, -1, 0, 1, 2, 3, 5, 16, 128]),
            depth in prop::sample::select(vec![0, 0, 1, 2, 3]),
            before in proptest::collection::vec(op(), 0..30),
            during in proptest::collection::vec((op(), 0_usize..20), 0..60),
        ) {
            let mut list = Quicklist::new(NodeLimit::from_option(limit).with_compress_depth(depth));
            let mut twin = Vec::new();
            before.into_iter().for_each(|op| apply(op, &mut list, &mut twin));
            let (expected, mut shown) = (twin.clone(), Vec::new());
            let copied_len_bytes = Arc::new(AtomicUsize::new(0));
            let (position_of, nodes) = (Arc::new(|_: &[u8]| 0), list.node_count());
            list.begin_walk(&WalkState { ticket: 1, position_of, copied_len_bytes: copied_len_bytes.clone() });
            let mut nodes_shown = 0;
            let mut walk_next = |list: &mut Quicklist, elements| {
                list.walk_next(elements, |node| {
                    nodes_shown += 1;
                    node.visit(|element| shown.push(text(element)));
                })
            };
            for (op, elements) in during {
                apply(op, &mut list, &mut twin);
                check(&list, &twin);
                walk_next(&mut list, elements);
            }
            while walk_next(&mut list, 10) {}
            prop_assert_eq!((shown, nodes_shown), (expected, nodes));
            prop_assert_eq!((list.ticket(), copied_len_bytes.load(Relaxed)), (None, 0));
        }
    }

    #[test]
    fn limits_are_those_of_the_option() {
        for (option, bytes) in
            [(-1, 4096), (-2, 8192), (-3, 16_384), (-4, 32_768), (-5, 65_536), (-9, 65_536)]
        {
            let limit = NodeLimit::from_option(option);
            assert_eq!(limit.to_option(), option.max(-5));
            assert!(limit.allows_listpack(bytes, 1 << 20) && !limit.allows_listpack(bytes + 1, 1));
            assert!(
                limit.allows_shrunk_listpack(bytes / 2, 9) && !limit.allows_shrunk_listpack(bytes / 2 + 1, 1)
            );
        }
        let limit = NodeLimit::from_option(10);
        assert!(limit.allows_listpack(8192, 10) && !limit.allows_listpack(8193, 1));
        assert!(!limit.allows_listpack(100, 11));
        assert!(limit.allows_shrunk_listpack(8192, 5) && !limit.allows_shrunk_listpack(9, 6));
        assert!(NodeLimit::from_option(0).allows_listpack(9, 1));
    }

    #[test]
    fn every_index_of_a_list_of_many_nodes_is_found() {
        let mut list = Quicklist::new(NodeLimit::from_option(3));
        let twin: Vec<Vec<u8>> = (0..100).map(|int: i64| (int * 97).to_string().into_bytes()).collect();
        twin.iter().for_each(|v| list.push_back(v));
        assert_eq!(list.node_count(), 34);
        (0..=101).for_each(|index| check_from(&list, &twin, index));
    }

    #[test]
    fn millions_of_short_strings_cost_little_beside_their_bytes() {
        for end in [End::Front, End::Back] {
            let mut list = Quicklist::new(NodeLimit::default());
            let n = 500_000;
            (0..n).for_each(|_| list.push(end, Element::Bytes(b"fifteen bytes!!")));
            let per_element = list.memory_usage() as f64 / f64::from(n);
            assert!(per_element < 17.15, "{per_element} bytes for an element of 15");
        }
    }

    #[test]
    fn queue_in_one_node_does_not_grow() {
        let mut list = Quicklist::new(NodeLimit::default());
        (0..300_i64).for_each(|int| list.push_back(int));
        for int in 300..100_000_i64 {
            list.push_back(int);
            assert_eq!(list.pop_front_with(|element| element.as_int()), Some(Some(int - 300)));
        }
        assert!(list.node_count() <= 2 && list.memory_usage() <= 3 * 8192);
        check_nodes(&list);
    }

    #[test]
    fn both_ends_of_a_short_list_share_its_slack() {
        let mut list = Quicklist::new(NodeLimit::default());
        for int in 0..1000_i64 {
            list.push_front(-int);
            list.push_back(int);
        }
        let mut ints = Vec::new();
        list.visit(0, list.len(), |element| ints.extend(element.as_int()));
        assert!(ints.len() == 2000 && ints.is_sorted());
        check_nodes(&list);
    }

    #[test]
    fn nodes_written_out_are_taken_back_without_copying() {
        let mut list = Quicklist::new(NodeLimit::default());
        (0..5000_i64).for_each(|int| list.push_back(int));
        list.insert(2500, &vec![b'x'; 10_000]);
        let mut read = Quicklist::new(NodeLimit::default());
        list.visit_nodes(|node| match node {
            NodeView::Plain(bytes) => read.push_plain(bytes.into()),
            NodeView::Packed { run, count } => read.push_listpack(Listpack::from_run(run, count)),
        });
        check_nodes(&read);
        assert_eq!(read.node_count(), list.node_count());
        assert!(texts(&read) == texts(&list));
        assert!(list.to_single_listpack().is_none());
    }

    #[test]
    fn nodes_beyond_the_depth_are_compressed_and_those_that_come_near_an_end_are_not() {
        let of = |depth| {
            let mut list = Quicklist::new(NodeLimit::from_option(10).with_compress_depth(depth));
            (0..100).for_each(|int| list.push_back(format!("some value, number {int}").as_bytes()));
            list
        };
        let shape = |list: &Quicklist| -> String {
            list.nodes.iter().map(|node| if node.is_compressed() { 'c' } else { '.' }).collect()
        };
        assert_eq!(shape(&of(0)), "..........");
        assert_eq!(shape(&of(5)), "..........");
        assert_eq!(shape(&of(4)), "....cc....");
        let mut list = of(2);
        assert_eq!(shape(&list), "..cccccc..");
        assert!(list.memory_usage() < of(0).memory_usage() * 2 / 3);
        assert_eq!(list.uncompressed_len_bytes(), of(0).uncompressed_len_bytes());
        (0..10).for_each(|_| drop(list.pop_front_with(text)));
        assert_eq!(shape(&list), "..ccccc..");
        assert!(list.replace(45, b"another value in the place of one"));
        list.with(45, |element| assert_eq!(text(element), b"another value in the place of one"));
        assert_eq!(shape(&list), "..ccccc..");
        // Strings that are short, or save less than nine bytes, are not compressed.
        let noise: Vec<u8> = (0..100_u8).map(|at| at.wrapping_mul(97)).collect();
        list.replace(40, &noise);
        assert!(list.remove_range(31, 9) == 9 && list.remove_range(32, 9) == 9);
        assert_eq!(shape(&list), "..c..cc..");
        assert_eq!(list.remove_range(15, 70), 57);
        assert_eq!(shape(&list), "..");
        check_nodes(&list);
    }

    #[test]
    fn strings_from_the_length_asked_for_on_are_plain_nodes() {
        let mut list = Quicklist::new(NodeLimit::default().with_plain_from(3));
        ["a", "bb", "ccc", "d"].iter().for_each(|word| list.push_back(Element::Bytes(word.as_bytes())));
        let plain =
            |list: &Quicklist| list.nodes.iter().map(|node| node.as_plain().is_some()).collect::<Vec<_>>();
        assert_eq!(plain(&list), [false, true, false]);
        list.replace(0, Element::Bytes(b"long"));
        assert_eq!(plain(&list), [true, false, true, false]);
        list.replace(2, Element::Bytes(b"e"));
        assert_eq!(texts(&list), [b"long".to_vec(), b"bb".to_vec(), b"e".to_vec(), b"d".to_vec()]);
    }

    #[test]
    fn one_packed_node_becomes_a_listpack() {
        let mut list = Quicklist::new(NodeLimit::default());
        assert!(list.to_single_listpack().is_none());
        list.push_back(b"a");
        list.push_front(7);
        let listpack = list.to_single_listpack().expect("one node");
        assert_eq!(Some(listpack.len_bytes()), list.single_node_len_bytes());
        assert!(listpack.iter().eq([Element::Int(7), Element::Bytes(b"a")]));
    }
}
