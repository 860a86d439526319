//! Sparse array: byte strings at indexes of 64 bits. Only the elements that exist take memory.
//!
//! ```text
//!   index   [ level 8 ] … [ level 0 ] [ offset in the slice ]
//!             6 bits        6 bits      12 bits
//!
//!   root ─► node: a child for each digit in use ─► … ─► slice: the elements of 4,096 indexes
//! ```
//! The tree has as many levels as the highest slice needs: none while all indexes are below 4,096,
//! one below 262,144. A node holds only the children that exist. Nodes without children and slices
//! without elements are removed, so a walk visits no empty parts.
//!
//! A clone is O(1): both share the root. A change copies the shared nodes and the slice on its path
//! first. The slice ([`slice`]) chooses between a sorted and a dense layout.
//!
//! Costs: get and set O(levels), and O(log 4096) in a sparse slice; a range costs its existing
//! elements and slices, whatever its width. Memory: 8 to 16 bytes for a number or a text of up to 7
//! bytes; about 32 more for a longer text. A slice takes about 130 bytes, and so does each node.
//!
//! Rejected: an ordered map of slices, whose clone costs its slices. Source: the documentation of
//! arrays, redis.io/docs/latest/develop/data-types/arrays.

mod scan;
mod slice;

use std::sync::Arc;

pub use scan::Scan;
use slice::Slice;

use crate::listpack::element::Element;

/// The number of indexes of a slice.
pub const SLICE_LEN: u64 = 1 << SLICE_BITS;
/// The highest index of an element. The next number would make the length overflow.
pub const INDEX_MAX: u64 = u64::MAX - 1;

const SLICE_BITS: u32 = 12;
const DIGIT_BITS: u32 = 6;
/// The estimated bytes of a node: its block, and its place in its parent.
const NODE_LEN_BYTES: usize = 96;

/// A sparse array. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Array {
    root: Option<Child>,
    /// The number of levels of nodes above the slices.
    levels: u32,
    /// The number of elements.
    count: u64,
    slices: usize,
    nodes: usize,
    /// The bytes of all slices.
    slices_len_bytes: usize,
}

/// A subtree.
#[derive(Clone, Debug)]
enum Child {
    Node(Arc<Node>),
    Slice(Arc<Slice>),
}

/// An inner node: the children whose digit is in `present`, in ascending order of their digits.
#[derive(Clone, Debug, Default)]
struct Node {
    present: u64,
    children: Vec<Child>,
}

/// The numbers of slices by layout, with their sizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SliceStats {
    /// The number of dense slices.
    pub dense: u64,
    /// The number of places in all dense slices.
    pub dense_places: u64,
    /// The number of elements in all dense slices.
    pub dense_elements: u64,
    /// The number of sparse slices.
    pub sparse: u64,
    /// The number of elements for which all sparse slices have room.
    pub sparse_places: u64,
}

/// Returns the number of the slice that holds `index`.
fn slice_of(index: u64) -> u64 {
    index >> SLICE_BITS
}

/// Returns the place of `index` in its slice.
fn offset_of(index: u64) -> u16 {
    (index & (SLICE_LEN - 1)) as u16
}

/// Returns the digit of a slice's number that selects the child of a node on `level`.
fn digit(slice: u64, level: u32) -> u32 {
    (slice >> (DIGIT_BITS * level)) as u32 & ((1 << DIGIT_BITS) - 1)
}

impl Node {
    /// Returns the place of the child with this digit: where it is, or where it would be.
    fn place(&self, digit: u32) -> usize {
        (self.present & ((1 << digit) - 1)).count_ones() as usize
    }

    fn has(&self, digit: u32) -> bool {
        self.present >> digit & 1 == 1
    }

    fn child(&self, digit: u32) -> Option<&Child> {
        self.has(digit).then(|| &self.children[self.place(digit)])
    }

    /// Returns the child with this digit, which `new` creates if it does not exist.
    fn child_or_insert(&mut self, digit: u32, new: impl FnOnce() -> Child) -> &mut Child {
        let place = self.place(digit);
        if !self.has(digit) {
            self.present |= 1 << digit;
            if self.children.len() == self.children.capacity() {
                self.children.reserve_exact(self.children.len() / 2 + 1);
            }
            self.children.insert(place, new());
        }
        &mut self.children[place]
    }

    fn remove(&mut self, digit: u32) {
        if self.has(digit) {
            let place = self.place(digit);
            self.children.remove(place);
            self.present &= !(1 << digit);
        }
    }
}

impl Array {
    /// Creates an empty array.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of elements. O(1).
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the highest index of an element plus one; 0 if there is none. O(levels).
    pub fn len(&self) -> u64 {
        self.slice_to(u64::MAX).map_or(0, |(number, slice)| {
            (number << SLICE_BITS) + u64::from(slice.last_offset().expect("no slice is empty")) + 1
        })
    }

    /// Returns true if there are no elements. O(1).
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the number of slices. O(1).
    pub fn slices(&self) -> usize {
        self.slices
    }

    /// Returns the number of inner nodes. O(1).
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the bytes that the array owns: those of the slices exactly, those of the nodes
    /// estimated. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        self.slices_len_bytes + self.nodes * NODE_LEN_BYTES
    }

    /// Returns the numbers of slices by layout. O(slices).
    pub fn slice_stats(&self) -> SliceStats {
        let mut stats = SliceStats::default();
        let mut from = 0;
        while let Some((number, slice)) = self.slice_from(from) {
            slice.add_to(&mut stats);
            from = number + 1;
        }
        stats
    }

    /// Returns the element at `index`. O(levels).
    pub fn get(&self, index: u64) -> Option<Element<'_>> {
        self.slice(slice_of(index))?.get(offset_of(index))
    }

    /// Stores `text` at `index`. Returns true if there was no element. O(levels), and O(slice) when
    /// the slice changes its layout.
    ///
    /// # Panics
    /// If the index is above [`INDEX_MAX`].
    pub fn set(&mut self, index: u64, text: &[u8]) -> bool {
        assert!(index <= INDEX_MAX, "the caller checks indexes");
        let slice = Self::slice_mut(
            &mut self.root,
            &mut self.levels,
            (&mut self.nodes, &mut self.slices, &mut self.slices_len_bytes),
            slice_of(index),
        );
        let is_new = slice.set(offset_of(index), text);
        self.slices_len_bytes += slice.len_bytes();
        self.count += u64::from(is_new);
        is_new
    }

    /// Removes the element at `index`. Returns true if there was one. O(levels).
    pub fn remove(&mut self, index: u64) -> bool {
        self.get(index).is_some() && self.remove_range(index, index) == 1
    }

    /// Removes the elements with indexes from `first` to `last`, both included: none if `first` is
    /// higher. Returns their number. O(elements and slices in the range).
    pub fn remove_range(&mut self, first: u64, last: u64) -> u64 {
        if first > last {
            return 0;
        }
        let before = self.count;
        let mut from = slice_of(first);
        while let Some(number) = self.slice_from(from).map(|(number, _)| number) {
            if number > slice_of(last) {
                break;
            }
            let low = if number == slice_of(first) { offset_of(first) } else { 0 };
            let high = if number == slice_of(last) { offset_of(last) } else { (SLICE_LEN - 1) as u16 };
            self.remove_from_slice(number, low, high);
            from = number + 1;
        }
        before - self.count
    }

    /// Removes the elements of a slice with offsets from `low` to `high`. The slice must exist.
    fn remove_from_slice(&mut self, number: u64, low: u16, high: u16) {
        let slice = self.slice(number).expect("the caller found it");
        let within = slice.count_between(low, high);
        if within == 0 {
            return;
        }
        if within == slice.count() {
            self.slices_len_bytes -= slice.len_bytes();
            self.slices -= 1;
            self.count -= u64::from(within);
            self.remove_slice(number);
            return;
        }
        let slice = Self::slice_mut(
            &mut self.root,
            &mut self.levels,
            (&mut self.nodes, &mut self.slices, &mut self.slices_len_bytes),
            number,
        );
        slice.remove_between(low, high);
        self.slices_len_bytes += slice.len_bytes();
        self.count -= u64::from(within);
    }

    /// Iterates over the elements between two indexes, both included, in the order from `start` to
    /// `end`. The order is descending if `start` is higher. O(1) per element and slice.
    pub fn scan(&self, start: u64, end: u64) -> Scan<'_> {
        Scan::new(self, start, end)
    }

    /// Converts the array to an iterator that frees it. Each step frees a node or a slice. Parts
    /// that a clone shares are left to it. O(1).
    pub fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        let mut waiting: Vec<Child> = self.root.into_iter().collect();
        std::iter::from_fn(move || {
            match waiting.pop()? {
                Child::Node(node) => {
                    waiting.extend(Arc::into_inner(node).into_iter().flat_map(|node| node.children));
                }
                Child::Slice(slice) => drop(slice),
            }
            Some(())
        })
    }

    /// Checks the numbers of nodes and slices and the bytes of the slices against the tree.
    ///
    /// # Panics
    /// If a number is wrong, or a node or slice is empty.
    pub(crate) fn check_totals(&self) {
        let (mut nodes, mut slices, mut len_bytes) = (0, 0, 0);
        let mut waiting: Vec<&Child> = self.root.iter().collect();
        while let Some(child) = waiting.pop() {
            match child {
                Child::Node(node) => {
                    assert!(node.present.count_ones() as usize == node.children.len() && node.present != 0);
                    nodes += 1;
                    waiting.extend(&node.children);
                }
                Child::Slice(slice) => {
                    assert!(slice.count() > 0 && slice.count() == slice.count_between(0, u16::MAX >> 4));
                    slices += 1;
                    len_bytes += slice.len_bytes();
                }
            }
        }
        assert_eq!((nodes, slices, len_bytes), (self.nodes, self.slices, self.slices_len_bytes));
    }

    fn slice(&self, number: u64) -> Option<&Slice> {
        if number >> (DIGIT_BITS * self.levels) != 0 {
            return None;
        }
        let mut child = self.root.as_ref()?;
        let mut level = self.levels;
        loop {
            match child {
                Child::Slice(slice) => return Some(slice),
                Child::Node(node) => {
                    level -= 1;
                    child = node.child(digit(number, level))?;
                }
            }
        }
    }

    /// Returns the first slice from number `from` on. O(levels).
    fn slice_from(&self, from: u64) -> Option<(u64, &Slice)> {
        if from >> (DIGIT_BITS * self.levels) != 0 {
            return None;
        }
        first_from(self.root.as_ref()?, self.levels, from)
    }

    /// Returns the last slice up to number `to`. O(levels).
    fn slice_to(&self, to: u64) -> Option<(u64, &Slice)> {
        let highest = (1 << (DIGIT_BITS * self.levels)) - 1;
        last_to(self.root.as_ref()?, self.levels, to.min(highest))
    }

    /// Returns a slice for a change; creates it if it does not exist. Parts that a clone shares are
    /// copied. The totals are the numbers of nodes and slices, and the bytes of the slices. The
    /// slice's bytes are subtracted, and the caller adds them after the change.
    fn slice_mut<'a>(
        root: &'a mut Option<Child>,
        levels: &mut u32,
        (nodes, slices, slices_len_bytes): (&mut usize, &mut usize, &mut usize),
        number: u64,
    ) -> &'a mut Slice {
        let mut new_slice = || {
            let slice = Slice::new();
            *slices += 1;
            *slices_len_bytes += slice.len_bytes();
            Child::Slice(Arc::new(slice))
        };
        while number >> (DIGIT_BITS * *levels) != 0 {
            if let Some(old) = root.take() {
                *nodes += 1;
                *root = Some(Child::Node(Arc::new(Node { present: 1, children: vec![old] })));
            }
            *levels += 1;
        }
        let mut new_child = |level: u32| {
            if level == 0 {
                return new_slice();
            }
            *nodes += 1;
            Child::Node(Arc::default())
        };
        let mut level = *levels;
        let mut child = root.get_or_insert_with(|| new_child(level));
        loop {
            match child {
                Child::Slice(slice) => {
                    *slices_len_bytes -= slice.len_bytes();
                    return Arc::make_mut(slice);
                }
                Child::Node(node) => {
                    level -= 1;
                    let node = Arc::make_mut(node);
                    child = node.child_or_insert(digit(number, level), || new_child(level));
                }
            }
        }
    }

    /// Removes an existing slice, and the nodes that have no children then.
    fn remove_slice(&mut self, number: u64) {
        let root = self.root.as_mut().expect("the slice exists");
        if is_empty_after_removal(root, self.levels, number, &mut self.nodes) {
            self.nodes -= usize::from(self.levels > 0);
            (self.root, self.levels) = (None, 0);
        }
        // A root whose only child has the digit 0 adds nothing.
        while let Some(Child::Node(node)) = &self.root
            && node.present == 1
        {
            self.root = Some(node.children[0].clone());
            self.levels -= 1;
            self.nodes -= 1;
        }
    }
}

/// Removes a slice below `child`, which is on `level`. Returns true if `child` is to be removed,
/// too.
fn is_empty_after_removal(child: &mut Child, level: u32, number: u64, nodes: &mut usize) -> bool {
    let Child::Node(node) = child else { return true };
    let (node, digit) = (Arc::make_mut(node), digit(number, level - 1));
    if let Some(below) = node.has(digit).then(|| node.place(digit))
        && is_empty_after_removal(&mut node.children[below], level - 1, number, nodes)
    {
        *nodes -= usize::from(level > 1);
        node.remove(digit);
    }
    node.present == 0
}

/// Returns the first slice below `child` from number `from` on. Numbers are relative to the
/// subtree. O(levels).
fn first_from(child: &Child, level: u32, from: u64) -> Option<(u64, &Slice)> {
    let node = match child {
        Child::Slice(slice) => return Some((0, slice)),
        Child::Node(node) => node,
    };
    let (shift, start) = (DIGIT_BITS * (level - 1), digit(from, level - 1));
    let mut left = node.present & (u64::MAX << start);
    while left != 0 {
        let digit = left.trailing_zeros();
        left &= left - 1;
        let below = if digit == start { from & ((1 << shift) - 1) } else { 0 };
        let child = &node.children[node.place(digit)];
        if let Some((number, slice)) = first_from(child, level - 1, below) {
            return Some((u64::from(digit) << shift | number, slice));
        }
    }
    None
}

/// Returns the last slice below `child` up to number `to`. Numbers are relative to the subtree.
/// O(levels).
fn last_to(child: &Child, level: u32, to: u64) -> Option<(u64, &Slice)> {
    let node = match child {
        Child::Slice(slice) => return Some((0, slice)),
        Child::Node(node) => node,
    };
    let (shift, start) = (DIGIT_BITS * (level - 1), digit(to, level - 1));
    let mut left = node.present & (u64::MAX >> (63 - start));
    while left != 0 {
        let digit = 63 - left.leading_zeros();
        left &= !(1 << digit);
        let below = if digit == start { to & ((1 << shift) - 1) } else { (1 << shift) - 1 };
        let child = &node.children[node.place(digit)];
        if let Some((number, slice)) = last_to(child, level - 1, below) {
            return Some((u64::from(digit) << shift | number, slice));
        }
    }
    None
}

#[cfg(test)]
mod tests;
