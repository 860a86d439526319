//! Nodes as files store them, and the index rebuilt from them.

use super::order::Order;
use super::{Config, LEVEL_MAX, NONE, Slot, Upper, VectorIndex};
use std::fmt;

/// The first number (uid) that is too large for a node read from a file. It leaves room for the
/// numbers of nodes that are added later.
const UID_END: u64 = 1 << 62;
/// The inverse of the fraction of nodes without links above which the whole graph is built anew.
const LINKLESS_PART: usize = 8;

/// A node of a vector index as files store it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeImage<'a> {
    /// The number (uid) of the node, unique and not zero.
    pub uid: u64,
    /// The name of the node's element.
    pub name: &'a [u8],
    /// The attributes of the node's element; `None` if it has none.
    pub attributes: Option<&'a [u8]>,
    /// The stored form of the node's vector, as [`super::Raw::bytes`].
    pub vector: &'a [u8],
    /// The norm of the node's vector before it was normalised.
    pub norm: f32,
    /// The value that a byte of 127 stands for with [`super::Quantization::Q8`]; other forms do not
    /// read it.
    pub range: f32,
    /// The uids of the linked nodes, a list for each level, level 0 first. The level of the node
    /// is the number of lists minus one; without lists, the links of all nodes are built anew.
    pub links: Vec<Vec<u64>>,
}

/// The reasons for which a node from a file, or the index of all nodes, is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// The vector of a node has another length than the stored form requires.
    VectorLength,
    /// A norm, range or value of a node's vector is infinite, not a number, or impossible in the
    /// stored form.
    NotFinite,
    /// The uid of a node is zero, is 2⁶² or more, or is that of another node.
    Uid,
    /// The name of a node is that of an earlier node.
    Name,
    /// There are more nodes than an index can hold.
    Full,
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ImageError::VectorLength => "the vector of a node has a wrong length",
            ImageError::NotFinite => "a number of a node is not finite",
            ImageError::Uid => "the number of a node is not valid or not unique",
            ImageError::Name => "two nodes have the same name",
            ImageError::Full => "there are too many nodes",
        })
    }
}

impl VectorIndex {
    /// Returns an element as files store its node. O(number of its links).
    pub fn image(&self, slot: Slot) -> NodeImage<'_> {
        let raw = self.raw(slot);
        NodeImage {
            uid: self.uid(slot),
            name: self.name(slot),
            attributes: self.attributes(slot),
            vector: raw.bytes,
            norm: raw.norm,
            range: raw.range.unwrap_or_default(),
            links: self
                .links(slot)
                .map(|level| level.iter().map(|(to, _)| self.uid(*to)).collect())
                .collect(),
        }
    }
}

/// The treatment of the links of loaded nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// The links were kept, because all were valid.
    Kept,
    /// The links were damaged or absent, and were built anew.
    Rebuilt,
}

/// A vector index that is being loaded from nodes as files store them (images), in any order.
///
/// Memory is proportional to the bytes of the images. Images may be hostile: no input panics.
#[derive(Debug)]
pub struct Rebuild {
    index: VectorIndex,
    /// The number of levels of each loaded node, by its slot.
    levels: Vec<u8>,
    /// The number of links of each level of each loaded node.
    lens: Vec<u32>,
    /// The links of all loaded nodes, as uids.
    links: Vec<u64>,
    /// True if some links cannot be valid, so that all links are built anew.
    is_damaged: bool,
}

impl Rebuild {
    /// Begins to load an index without nodes. `seed` is used as by [`VectorIndex::new`].
    ///
    /// # Panics
    /// If `config` is not valid.
    pub fn new(config: Config, seed: u64) -> Self {
        let index = VectorIndex::new(config, seed);
        Self { index, levels: Vec::new(), lens: Vec::new(), links: Vec::new(), is_damaged: false }
    }

    /// Adds a node as a file stores it to the index. After an error, the nodes that were added
    /// before stay.
    pub fn push(&mut self, image: &NodeImage<'_>) -> Result<(), ImageError> {
        let index = &mut self.index;
        if image.vector.len() != index.form.body_len_bytes() {
            return Err(ImageError::VectorLength);
        }
        if !image.norm.is_finite() || !image.range.is_finite() || !index.form.is_finite(image.vector) {
            return Err(ImageError::NotFinite);
        }
        if !(1..UID_END).contains(&image.uid) {
            return Err(ImageError::Uid);
        }
        if index.find(image.name).is_some() {
            return Err(ImageError::Name);
        }
        if index.is_full() || u32::try_from(image.name.len()).is_err() {
            return Err(ImageError::Full);
        }
        let uid_next = index.uid_next.max(image.uid + 1);
        index.uid_next = image.uid;
        let slot = index.place(image.name, image.attributes, image.norm);
        index.uid_next = uid_next;
        index.form.restore(image.vector, image.range, index.rows.get_mut(slot));
        self.note_links(&image.links);
        Ok(())
    }

    fn note_links(&mut self, lists: &[Vec<u64>]) {
        let fits = |(level, list): (usize, &Vec<u64>)| list.len() <= self.index.limit(level);
        if !(1..=LEVEL_MAX + 1).contains(&lists.len()) || !lists.iter().enumerate().all(fits) {
            self.is_damaged = true;
        }
        if self.is_damaged {
            return;
        }
        self.levels.push(lists.len() as u8);
        for list in lists {
            self.lens.push(list.len() as u32);
            self.links.extend_from_slice(list);
        }
    }

    /// Sets the largest uid ever given, if it is larger than those of the nodes.
    pub fn set_uid_max(&mut self, uid_max: u64) {
        self.index.uid_next = self.index.uid_next.max(uid_max.min(UID_END) + 1);
    }

    /// Returns the index. If all links are valid, they are kept: both ends exist and know each
    /// other, on levels that both have, within the limits. Otherwise the graph is built anew,
    /// with `ef` candidates per node. The same happens if many nodes have no links; a few get new
    /// ones.
    ///
    /// Fails if two nodes have the same uid.
    pub fn finish(mut self, ef: usize) -> Result<(VectorIndex, Graph), ImageError> {
        let slots = 0..self.index.nodes.len() as u32;
        let mut by_uid: Vec<(u64, u32)> = slots.map(|slot| (self.index.live(slot).uid, slot)).collect();
        by_uid.sort_unstable();
        if by_uid.windows(2).any(|pair| pair[0].0 == pair[1].0) {
            return Err(ImageError::Uid);
        }
        self.index.chain_in_order(by_uid.iter().map(|(_, slot)| *slot));
        self.index.order = Order::sorted(0..self.index.nodes.len() as u32, &self.index.nodes);
        let is_valid =
            !self.is_damaged && self.restore_links(&by_uid).is_some() && self.index.has_valid_links();
        if is_valid {
            self.index.enter_levels();
        }
        let linkless = self.index.linkless();
        let few = self.index.len / LINKLESS_PART;
        if !is_valid || linkless.len() > few || linkless.contains(&self.index.entry) {
            self.index.rebuild(ef);
            return Ok((self.index, Graph::Rebuilt));
        }
        for slot in linkless {
            self.index.relink(0, slot);
        }
        Ok((self.index, Graph::Kept))
    }

    /// Writes the links that were loaded into the nodes, each list in ascending order. Returns
    /// `None` if a linked node does not exist.
    fn restore_links(&mut self, by_uid: &[(u64, u32)]) -> Option<()> {
        let mut lens = self.lens.iter().map(|len| *len as usize);
        let mut links = self.links.as_slice();
        for (slot, levels) in (0u32..).zip(&self.levels) {
            let mut upper = Vec::with_capacity(usize::from(*levels) - 1);
            for level in 0..*levels {
                let (list, rest) = links.split_at(lens.next()?);
                links = rest;
                let find =
                    |uid: &u64| by_uid.binary_search_by_key(uid, |(uid, _)| *uid).map(|at| by_uid[at].1);
                let mut list: Vec<u32> = list.iter().map(find).collect::<Result<_, _>>().ok()?;
                list.sort_unstable();
                match level {
                    0 => list.iter().for_each(|link| self.index.lists.add(slot, *link)),
                    _ => upper.push(list),
                }
            }
            self.index.nodes.get_mut(slot).upper = Upper::new(upper);
        }
        Some(())
    }
}

impl VectorIndex {
    /// Returns the nodes that have no links on level 0, if there is more than one node.
    fn linkless(&self) -> Vec<u32> {
        let slots = 0..self.nodes.len() as u32;
        slots.filter(|slot| self.len > 1 && self.lists.get(*slot).is_empty()).collect()
    }

    /// Returns true if all loaded links, which are in ascending order, satisfy the invariants of
    /// the graph.
    fn has_valid_links(&self) -> bool {
        (0..self.nodes.len() as u32).all(|slot| {
            (0..=self.live(slot).level()).all(|level| {
                let links = self.links_at(level, slot);
                let knows = |link: &u32| self.links_at(level, *link).binary_search(&slot).is_ok();
                links.windows(2).all(|pair| pair[0] < pair[1])
                    && links
                        .iter()
                        .all(|link| *link != slot && self.live(*link).level() >= level && knows(link))
            })
        })
    }

    /// Counts the nodes of each level and chooses the entry of the graph.
    fn enter_levels(&mut self) {
        for slot in 0..self.nodes.len() as u32 {
            let node = self.live(slot);
            let level = node.level();
            self.upper_len_bytes += node.upper.as_ref().map_or(0, |upper| upper.memory_usage());
            self.level_counts[level] += 1;
            if self.entry == NONE || level > self.live(self.entry).level() {
                self.entry = slot;
            }
        }
    }

    /// Puts all nodes into the insertion order in which `slots` lists them.
    fn chain_in_order(&mut self, slots: impl Iterator<Item = u32>) {
        (self.first, self.last) = (NONE, NONE);
        for slot in slots {
            self.append(slot);
        }
    }
}
