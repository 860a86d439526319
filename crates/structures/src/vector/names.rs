//! The table of the names of a vector index's nodes: buckets of chains, by linear hashing.
//!
//! A growing table splits one bucket at each insertion, so no insertion rehashes all names. A
//! chain goes through the nodes themselves. Memory: 4 bytes per bucket, about one bucket per
//! name, and 4 in the node. The buckets are in versioned chunks.

use super::arena::Items;
use super::chunks::{Chunks, Freed, PlaceLen};
use super::{NONE, Node};
use ahash::RandomState;

/// The length in bytes up to which a chunk of buckets fills its memory block best.
const BUCKETS_LEN_BYTES_MAX: usize = 1 << 10;

/// Returns the node at `slot`, which is in a chain of the table of names.
fn node(nodes: &Items<Node>, slot: u32) -> &Node {
    nodes.get(slot).expect("a chain has only nodes")
}

/// The table of all nodes' names: buckets of chains.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The place of the first node of each bucket's chain.
    buckets: Chunks<u32>,
    len: u32,
    state: RandomState,
}

impl Names {
    /// Creates a table without names, whose hash depends on `seed`.
    pub(super) fn new(seed: u64) -> Self {
        let state = RandomState::with_seeds(seed, !seed, seed.rotate_left(32), seed.swap_bytes());
        let place = PlaceLen {
            len_bytes: size_of::<u32>(),
            align: align_of::<u32>(),
            chunk_len_bytes_max: BUCKETS_LEN_BYTES_MAX,
        };
        Self { buckets: Chunks::new(place), len: 0, state }
    }

    /// Returns the place of the first node in a bucket's chain.
    fn head(&self, bucket: u32) -> u32 {
        let (chunk, at) = self.buckets.split(bucket);
        self.buckets.get(chunk)[at]
    }

    fn set_head(&mut self, bucket: u32, slot: u32) {
        let (chunk, at) = self.buckets.split(bucket);
        self.buckets.get_mut(chunk)[at] = slot;
    }

    /// Returns the bucket in which a name belongs. The buckets after the last power of two are
    /// halves of earlier ones.
    fn bucket(&self, name: &[u8]) -> u32 {
        // 64 bits: the next power of two may be 2³².
        let whole = u64::from(self.len).next_power_of_two();
        let bucket = self.state.hash_one(name) & (whole - 1);
        (if bucket < u64::from(self.len) { bucket } else { bucket - whole / 2 }) as u32
    }

    /// Finds the node called `name`; `None` if there is none.
    pub(super) fn find(&self, name: &[u8], nodes: &Items<Node>) -> Option<u32> {
        if self.len == 0 {
            return None;
        }
        let mut slot = self.head(self.bucket(name));
        while slot != NONE {
            let node = node(nodes, slot);
            if node.name() == name {
                return Some(slot);
            }
            slot = node.chain;
        }
        None
    }

    /// Adds the node at `slot`, whose name no other node has, to the table. `len` is the number of
    /// names with it.
    pub(super) fn insert(&mut self, slot: u32, len: usize, nodes: &mut Items<Node>) {
        if (self.len as usize) < len {
            self.grow(nodes);
        }
        let bucket = self.bucket(node(nodes, slot).name());
        nodes.get_mut(slot).chain = self.head(bucket);
        self.set_head(bucket, slot);
    }

    /// Removes the node at `slot` from the table of names.
    pub(super) fn remove(&mut self, slot: u32, nodes: &mut Items<Node>) {
        let after = node(nodes, slot).chain;
        let bucket = self.bucket(node(nodes, slot).name());
        let mut before = self.head(bucket);
        if before == slot {
            self.set_head(bucket, after);
            return;
        }
        while node(nodes, before).chain != slot {
            before = node(nodes, before).chain;
        }
        nodes.get_mut(before).chain = after;
    }

    /// Adds a bucket to the table and moves to it the names of its lower half that belong there.
    fn grow(&mut self, nodes: &mut Items<Node>) {
        let added = self.len;
        let (chunk, at) = self.buckets.split(added);
        self.buckets.extend(chunk, (at + 1, self.buckets.places_of_chunk()), NONE);
        self.len += 1;
        if added == 0 {
            return;
        }
        let whole = (u64::from(added) + 1).next_power_of_two();
        let split = added - (whole / 2) as u32;
        let mut slot = self.head(split);
        self.set_head(split, NONE);
        while slot != NONE {
            let next = node(nodes, slot).chain;
            let bucket = self.bucket(node(nodes, slot).name());
            nodes.get_mut(slot).chain = self.head(bucket);
            self.set_head(bucket, slot);
            slot = next;
        }
    }

    /// Converts the table of names to an iterator that frees it in steps.
    pub(super) fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        Freed::from(self.buckets)
    }

    /// Returns the memory of the table's buckets in bytes. O(n).
    pub(super) fn memory_usage(&self) -> usize {
        self.buckets.memory_usage()
    }
}
