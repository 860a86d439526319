//! The choice of a quicklist's compressed nodes. If `list-compress-depth` is n > 0, all nodes
//! except the first n and the last n are compressed. Nodes that are small or hardly shrink are not.
//!
//! Pushes and pops work at the ends, where no node is compressed. An edit in the middle
//! decompresses the nodes that it changes. Afterwards this module compresses or decompresses these
//! nodes, and the nodes whose distance from an end the edit has changed. Compressing a node is
//! tried once after an edit of it.

use std::ops::Range;

use super::node::End;
use super::{EDITED_NODES, Quicklist};
use crate::lzf::Compressor;

impl Quicklist {
    #[inline]
    pub(super) fn depth(&self) -> usize {
        usize::from(self.limit.compress_depth)
    }

    /// Compresses or decompresses each node of the list with an index in `places`, as its distance
    /// from the list's ends requires. O(bytes of the nodes that change).
    #[cold]
    pub(super) fn settle(&mut self, places: Range<usize>) {
        let (depth, len) = (self.depth(), self.nodes.len());
        let mut compressor = Compressor::new();
        for at in places.start..places.end.min(len) {
            let node = self.nodes.reshape_mut(at);
            let had = node.buffer_len_bytes();
            if at < depth || len - at <= depth {
                node.decompress();
            } else {
                node.compress(&mut compressor);
            }
            self.buffers_len_bytes = self.buffers_len_bytes - had + node.buffer_len_bytes();
        }
    }

    /// Compresses a node of the list after another node was added at `end`: the one whose distance
    /// from that end now exceeds the compress depth.
    pub(super) fn settle_added(&mut self, end: End) {
        let depth = self.depth();
        match end {
            End::Front => self.settle(depth..depth + 1),
            End::Back => {
                let last = self.nodes.len().saturating_sub(depth);
                self.settle(last.saturating_sub(1)..last);
            }
        }
    }

    /// Decompresses the nodes that are within the compress depth of an end after the first or the
    /// last node was popped.
    #[cold]
    pub(super) fn settle_popped(&mut self) {
        if self.limit.compresses() {
            self.settle_removed(1);
        }
    }

    /// Decompresses the nodes that are within the compress depth of an end after `count` nodes were
    /// removed somewhere. O(their bytes).
    pub(super) fn settle_removed(&mut self, count: usize) {
        let (depth, len) = (self.depth(), self.nodes.len());
        self.settle(depth.saturating_sub(count)..depth);
        let first = len.saturating_sub(depth);
        self.settle(first..first + count);
    }

    /// Compresses or decompresses nodes, as their distance from the ends requires, after an edit of
    /// the nodes in `edited`. The edit changed the number of nodes by at most [`EDITED_NODES`].
    pub(super) fn settle_edited(&mut self, edited: Range<usize>) {
        let (depth, len) = (self.depth(), self.nodes.len());
        self.settle(edited);
        for border in [depth, len.saturating_sub(depth)] {
            self.settle(border.saturating_sub(EDITED_NODES)..border + EDITED_NODES);
        }
    }
}
