//! Removal of elements from a quicklist's middle: by index, or those equal to a string.

use super::node::{End, Node};
use super::{NodeLimit, Quicklist};
use crate::listpack::element::Needle;
use crate::lzf::Compressor;

impl Quicklist {
    /// Removes up to `n` elements of the list: the one at `index` and the next ones. Returns the
    /// number removed. O(nodes + bytes of the two nodes at the borders), plus freeing the nodes
    /// between.
    pub fn remove_range(&mut self, index: usize, n: usize) -> usize {
        self.remove_range_into(index, n, &mut Self::new(NodeLimit::default()))
    }

    /// Removes elements like [`Quicklist::remove_range`], but does not free the nodes of which it
    /// removes all elements. It appends these nodes to `leftovers`, which the caller can drop at a
    /// suitable time. `leftovers` must be a list without compression.
    pub fn remove_range_into(&mut self, index: usize, n: usize, leftovers: &mut Self) -> usize {
        let Some((first, mut inner)) = self.locate(index) else { return 0 };
        let removed = n.min(self.len - index);
        let had = self.nodes.len();
        let (mut at, mut left) = (first, removed);
        while left > 0 {
            let count = self.nodes[at].count();
            let from_this = left.min(count - inner);
            self.buffers_len_bytes -= self.nodes[at].buffer_len_bytes();
            if from_this == count {
                // The empty handle is removed below. `None` means that the node was moved to a walk
                // in progress, which still needs it.
                if let Some(node) = self.nodes.release(at) {
                    leftovers.add_node(End::Back, node);
                    leftovers.len += count;
                }
            } else {
                let node = self.nodes.node_mut(at);
                node.decompress();
                node.remove(inner, from_this);
                self.buffers_len_bytes += self.nodes[at].buffer_len_bytes();
            }
            left -= from_this;
            inner = 0;
            at += 1;
        }
        self.len -= removed;
        self.drop_empty(first, at);
        if self.limit.compresses() {
            // The two nodes at the borders are neighbours now.
            self.settle(first..first + 2);
            self.settle_removed(had - self.nodes.len());
        }
        removed
    }

    /// Removes the list's first elements equal to `bytes`, at most `max`. Returns the number
    /// removed. O(n).
    pub fn remove_first_matches(&mut self, bytes: &[u8], max: usize) -> usize {
        let needle = Needle::new(bytes);
        let order = 0..self.nodes.len();
        self.remove_matches(needle, order, max, |node, left| node.remove_matches(needle, 0, left))
    }

    /// Removes the list's last elements equal to `bytes`, at most `max`. Returns the number
    /// removed. O(n).
    pub fn remove_last_matches(&mut self, bytes: &[u8], max: usize) -> usize {
        let needle = Needle::new(bytes);
        let order = (0..self.nodes.len()).rev();
        self.remove_matches(needle, order, max, |node, left| {
            let passed = node.count_matches(needle).saturating_sub(left);
            node.remove_matches(needle, passed, left)
        })
    }

    /// Calls `remove` with each node of `order` that may have an element equal to `needle`, until
    /// `max` elements are removed. `remove` gets the number still to be removed and returns the
    /// number that it removed. Returns the sum of these numbers.
    fn remove_matches(
        &mut self,
        needle: Needle<'_>,
        order: impl Iterator<Item = usize>,
        max: usize,
        mut remove: impl FnMut(&mut Node, usize) -> usize,
    ) -> usize {
        let (mut removed, mut touched) = (0, None);
        let (mut compressor, mut scratch) = (Compressor::new(), Vec::new());
        for at in order {
            if removed == max {
                break;
            }
            let node = &self.nodes[at];
            let (had, compressed) = (node.buffer_len_bytes(), node.is_compressed());
            // Only a node with a match is decompressed or, for a walk in progress, copied.
            if (compressed || self.nodes.ticket().is_some()) && !node.holds(needle, &mut scratch) {
                continue;
            }
            let node = self.nodes.node_mut(at);
            if compressed {
                node.decompress();
            }
            let here = remove(node, max - removed);
            if compressed && node.count() > 0 {
                node.compress(&mut compressor);
            }
            self.buffers_len_bytes = self.buffers_len_bytes - had + node.buffer_len_bytes();
            if here > 0 {
                removed += here;
                let (low, high) = touched.unwrap_or((at, at));
                touched = Some((at.min(low), at.max(high)));
            }
        }
        self.len -= removed;
        if let Some((low, high)) = touched {
            self.drop_empty(low, high + 1);
            if self.limit.compresses() {
                self.settle(0..self.nodes.len());
            }
        }
        removed
    }

    /// Removes the empty nodes with indices in `low..high` from the list. O(nodes in the range +
    /// handles after them).
    fn drop_empty(&mut self, low: usize, high: usize) {
        let mut empty = 0;
        let is_empty = |node: &Node| node.count() == 0;
        self.nodes.remove_empty(low..high, is_empty, |node| empty += node.buffer_len_bytes());
        self.buffers_len_bytes -= empty;
    }
}
