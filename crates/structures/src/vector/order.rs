//! The elements in the order of their names: blocks of slots, sorted by the bytes of the names.
//!
//! A search compares names, first those at the starts of blocks, then those in one block. A full
//! block is split in two, and two blocks with few slots become one. Memory: 4 bytes for each name,
//! and 24 for each block.
//!
//! A clone is O(1). A writer beside a clone copies one pointer for each block, once per clone, and
//! the block that it changes.

use super::Node;
use super::arena::Items;
use crate::alloc::counted_bytes;
use std::sync::Arc;

/// The largest number of slots of a block.
const BLOCK_LEN_MAX: usize = 128;
/// The number of slots up to which two neighbouring blocks become one.
const MERGED_LEN_MAX: usize = BLOCK_LEN_MAX / 2;
/// The memory of a block for its counts.
const HEADER_LEN_BYTES: usize = 16;

/// Slots in ascending order of their names, at least one.
type Block = Arc<[u32]>;

/// The order of all names.
#[derive(Clone, Debug, Default)]
pub(super) struct Order {
    blocks: Arc<Vec<Block>>,
}

/// Returns the name of the node at `slot`.
fn name(slot: u32, nodes: &Items<Node>) -> &[u8] {
    nodes.get(slot).expect("the order has only nodes").name()
}

impl Order {
    /// Returns the order of the nodes at `slots`, which have different names. O(n log n).
    pub(super) fn sorted(slots: impl Iterator<Item = u32>, nodes: &Items<Node>) -> Self {
        let slots: Vec<u32> = slots.collect();
        let Some(first) = slots.first() else { return Self::default() };
        let first = name(*first, nodes);
        let common = |slot: &u32| first.iter().zip(name(*slot, nodes)).take_while(|(a, b)| a == b).count();
        let skipped = slots.iter().map(common).min().unwrap_or_default();
        // The eight bytes behind the common start decide nearly all comparisons without a look at
        // the nodes.
        let keyed = |slot: u32| {
            let rest = &name(slot, nodes)[skipped..];
            let mut key = [0; 8];
            let len = rest.len().min(key.len());
            key[..len].copy_from_slice(&rest[..len]);
            (u64::from_be_bytes(key), slot)
        };
        let mut keyed: Vec<(u64, u32)> = slots.into_iter().map(keyed).collect();
        keyed.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(a.1, nodes).cmp(name(b.1, nodes))));
        let block = |block: &[(u64, u32)]| block.iter().map(|(_, slot)| *slot).collect();
        Self { blocks: Arc::new(keyed.chunks(BLOCK_LEN_MAX).map(block).collect()) }
    }

    /// Returns the place of the first name for which `is_before` is false: the block, and the
    /// position in it. The names for which it is true must come first. The position may be behind
    /// the last one of the block.
    fn partition_point(
        &self,
        nodes: &Items<Node>,
        mut is_before: impl FnMut(&[u8]) -> bool,
    ) -> (usize, usize) {
        let later = self.blocks.partition_point(|block| is_before(name(block[0], nodes)));
        let block = later.saturating_sub(1);
        let position = self
            .blocks
            .get(block)
            .map_or(0, |slots| slots.partition_point(|slot| is_before(name(*slot, nodes))));
        (block, position)
    }

    /// Inserts the node at `slot`, whose name no other node has. O(log n) comparisons.
    pub(super) fn insert(&mut self, slot: u32, nodes: &Items<Node>) {
        let new = name(slot, nodes);
        let (block, position) = self.partition_point(nodes, |name| name < new);
        let blocks = Arc::make_mut(&mut self.blocks);
        let Some(slots) = blocks.get(block) else {
            blocks.push([slot].into());
            return;
        };
        let (low, high) = slots.split_at(position);
        if slots.len() < BLOCK_LEN_MAX {
            blocks[block] = [low, &[slot], high].concat().into();
        } else if high.is_empty() && block + 1 == blocks.len() {
            // Ascending names fill all blocks.
            blocks.push([slot].into());
        } else {
            let all = [low, &[slot], high].concat();
            let (low, high) = all.split_at(all.len() / 2);
            let (low, high) = (low.into(), high.into());
            blocks[block] = low;
            blocks.insert(block + 1, high);
        }
    }

    /// Removes the node at `slot`, which still has its name. O(log n) comparisons.
    pub(super) fn remove(&mut self, slot: u32, nodes: &Items<Node>) {
        let old = name(slot, nodes);
        // The block before may end right before the name, so the name itself counts as before.
        let (block, position) = self.partition_point(nodes, |name| name <= old);
        let blocks = Arc::make_mut(&mut self.blocks);
        let slots = &blocks[block];
        debug_assert_eq!(slots[position - 1], slot);
        let rest = [&slots[..position - 1], &slots[position..]].concat();
        let next = blocks.get(block + 1).filter(|next| rest.len() + next.len() <= MERGED_LEN_MAX);
        if let Some(next) = next {
            blocks[block] = [&rest[..], next].concat().into();
            blocks.remove(block + 1);
        } else if rest.is_empty() {
            blocks.remove(block);
        } else {
            blocks[block] = rest.into();
        }
    }

    /// Iterates over the slots in the order of their names, from the first name for which
    /// `is_before` is false. The names for which it is true must come first.
    pub(super) fn from<'a, F: FnMut(&[u8]) -> bool>(
        &'a self,
        nodes: &Items<Node>,
        is_before: F,
    ) -> impl Iterator<Item = u32> + use<'a, F> {
        let (block, position) = self.partition_point(nodes, is_before);
        self.blocks[block..].iter().flat_map(|slots| slots.iter()).skip(position).copied()
    }

    /// Converts the order to steps that free it, a block each. A shared one is left to its clones.
    pub(super) fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        Arc::into_inner(self.blocks).into_iter().flatten().map(drop)
    }

    /// Returns the memory of the order in bytes. O(blocks).
    pub(super) fn memory_usage(&self) -> usize {
        let block = |slots: &Block| counted_bytes(HEADER_LEN_BYTES + size_of_val(&**slots));
        self.blocks.iter().map(block).sum::<usize>() + self.blocks.capacity() * size_of::<Block>()
    }
}

#[cfg(test)]
mod tests {
    use crate::vector::{Config, Quantization, VectorIndex};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn index() -> VectorIndex {
        VectorIndex::new(Config { dim: 2, quantization: Quantization::Binary, m: 4 }, 7)
    }

    fn names(index: &VectorIndex, from: &[u8]) -> Vec<Vec<u8>> {
        index.slots_by_name(|name| name < from).map(|slot| index.name(slot).to_vec()).collect()
    }

    #[test]
    fn a_clone_keeps_its_order() {
        let mut index = index();
        for number in 0..500 {
            index.insert(format!("{number:03}").as_bytes(), &[1.0, 1.0], 1, None).unwrap();
        }
        let clone = index.clone();
        for number in 0..400 {
            assert!(index.remove(format!("{number:03}").as_bytes()));
        }
        assert_eq!((names(&clone, b"").len(), names(&clone, b"3991")[0].as_slice()), (500, &b"400"[..]));
        assert_eq!((names(&index, b"").len(), names(&index, b"2")[0].as_slice()), (100, &b"400"[..]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20))]
        #[test]
        fn names_stay_in_order_while_elements_come_and_go(
            changes in prop::collection::vec((0u8..10, 0u32..600), 0..3000),
            from in 0u32..600,
        ) {
            let (mut index, mut twin) = (index(), BTreeSet::new());
            // Grows for two thirds of the time, then shrinks.
            let growing = changes.len() * 2 / 3;
            for (turn, (kind, number)) in changes.into_iter().enumerate() {
                let name = format!("element:{number}").into_bytes();
                if kind < if turn < growing { 8 } else { 2 } {
                    index.insert(&name, &[1.0, 1.0], 1, None).unwrap();
                    twin.insert(name);
                } else {
                    prop_assert_eq!(index.remove(&name), twin.remove(&name));
                }
            }
            let from = format!("element:{from}").into_bytes();
            prop_assert_eq!(names(&index, b""), twin.iter().cloned().collect::<Vec<_>>());
            prop_assert_eq!(names(&index, &from), twin.range(from..).cloned().collect::<Vec<_>>());
        }
    }
}
