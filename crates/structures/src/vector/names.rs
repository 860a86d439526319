//! Names of nodes: buckets of chains, by linear hashing.
//!
//! A growing table splits one bucket at each insertion, so no insertion rehashes all names. A
//! chain goes through the nodes themselves. Memory: 4 bytes per bucket, about one bucket per
//! name, and 4 in the node.

use super::arena::Items;
use super::{NONE, Node};
use ahash::RandomState;

/// Returns the node at `slot`, which is in a chain.
fn node(nodes: &Items<Node>, slot: u32) -> &Node {
    nodes.get(slot).expect("a chain has only nodes")
}

/// The buckets of all names.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The first nodes of chains.
    buckets: Vec<u32>,
    state: RandomState,
}

impl Names {
    /// Creates a table without names, whose hash depends on `seed`.
    pub(super) fn new(seed: u64) -> Self {
        let state = RandomState::with_seeds(seed, !seed, seed.rotate_left(32), seed.swap_bytes());
        Self { buckets: Vec::new(), state }
    }

    /// Returns the bucket of a name. The buckets behind the last power of two are halves of
    /// earlier ones.
    fn bucket(&self, name: &[u8]) -> usize {
        let whole = self.buckets.len().next_power_of_two();
        let bucket = self.state.hash_one(name) as usize & (whole - 1);
        if bucket < self.buckets.len() { bucket } else { bucket - whole / 2 }
    }

    /// Finds the node called `name`.
    pub(super) fn find(&self, name: &[u8], nodes: &Items<Node>) -> Option<u32> {
        if self.buckets.is_empty() {
            return None;
        }
        let mut slot = self.buckets[self.bucket(name)];
        while slot != NONE {
            let node = node(nodes, slot);
            if node.name() == name {
                return Some(slot);
            }
            slot = node.chain;
        }
        None
    }

    /// Enters the node at `slot`, whose name no other node has. `len` is the number of names with
    /// it.
    pub(super) fn insert(&mut self, slot: u32, len: usize, nodes: &mut Items<Node>) {
        if self.buckets.len() < len {
            self.grow(nodes);
        }
        let bucket = self.bucket(node(nodes, slot).name());
        nodes.get_mut(slot).chain = self.buckets[bucket];
        self.buckets[bucket] = slot;
    }

    /// Removes the node at `slot`.
    pub(super) fn remove(&mut self, slot: u32, nodes: &mut Items<Node>) {
        let after = node(nodes, slot).chain;
        let bucket = self.bucket(node(nodes, slot).name());
        if self.buckets[bucket] == slot {
            self.buckets[bucket] = after;
            return;
        }
        let mut before = self.buckets[bucket];
        while node(nodes, before).chain != slot {
            before = node(nodes, before).chain;
        }
        nodes.get_mut(before).chain = after;
    }

    /// Adds a bucket and moves to it the names of its lower half that belong there.
    fn grow(&mut self, nodes: &mut Items<Node>) {
        let added = self.buckets.len();
        self.buckets.push(NONE);
        if added == 0 {
            return;
        }
        let split = added - (added + 1).next_power_of_two() / 2;
        let mut slot = std::mem::replace(&mut self.buckets[split], NONE);
        while slot != NONE {
            let next = node(nodes, slot).chain;
            let bucket = self.bucket(node(nodes, slot).name());
            nodes.get_mut(slot).chain = self.buckets[bucket];
            self.buckets[bucket] = slot;
            slot = next;
        }
    }

    /// Returns the memory of the buckets in bytes.
    pub(super) fn memory_usage(&self) -> usize {
        self.buckets.capacity() * size_of::<u32>()
    }
}
