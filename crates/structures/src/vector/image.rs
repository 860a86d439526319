//! Nodes as files store them, and the index rebuilt from them.

use super::{Config, Slot, VectorIndex};
use std::fmt;

/// A node as files store it.
#[derive(Clone, Debug, PartialEq)]
pub struct NodeImage<'a> {
    /// The number of the node, unique and not zero.
    pub uid: u64,
    /// The name of the element.
    pub name: &'a [u8],
    /// The attributes of the element.
    pub attributes: Option<&'a [u8]>,
    /// The stored form of the vector, as [`super::Raw::bytes`].
    pub vector: &'a [u8],
    /// The norm of the vector before it was normalised.
    pub norm: f32,
    /// The value of a byte of 127 of [`super::Quantization::Q8`]; other forms do not read it.
    pub range: f32,
    /// The uids of the linked nodes, a list for each level, level 0 first. The level of the node is the number of lists
    /// minus one; without lists, the links of all nodes are built anew.
    pub links: Vec<Vec<u64>>,
}

/// The reasons to reject a node or the whole of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageError {
    /// A vector of another length than the stored form has.
    VectorLength,
    /// A norm or range that is infinite or not a number, or a value that cannot be.
    NotFinite,
    /// A uid that is zero, the largest number or that of an earlier node.
    Uid,
    /// A name of an earlier node.
    Name,
    /// More nodes than an index holds.
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
    /// Returns an element as files store it. O(number of its links).
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

/// An index that is being loaded from images of its nodes, in any order.
///
/// Memory is proportional to the bytes of the images. Images may be hostile: no input panics.
#[derive(Debug)]
pub struct Rebuild {
    index: VectorIndex,
}

impl Rebuild {
    /// Begins to load an index, whose `seed` is as for [`VectorIndex::new`].
    ///
    /// # Panics
    /// If `config` is not valid.
    pub fn new(config: Config, seed: u64) -> Self {
        Self { index: VectorIndex::new(config, seed) }
    }

    /// Adds a node. An error leaves the nodes that were added before it.
    pub fn push(&mut self, image: &NodeImage<'_>) -> Result<(), ImageError> {
        let index = &mut self.index;
        if image.vector.len() != index.form.body_len_bytes() {
            return Err(ImageError::VectorLength);
        }
        if !image.norm.is_finite() || !image.range.is_finite() {
            return Err(ImageError::NotFinite);
        }
        if image.uid == 0 || image.uid == u64::MAX {
            return Err(ImageError::Uid);
        }
        if index.find(image.name).is_some() {
            return Err(ImageError::Name);
        }
        let uid_next = index.uid_next.max(image.uid + 1);
        index.uid_next = image.uid;
        let slot = index.place(image.name, image.attributes, image.norm);
        index.uid_next = uid_next;
        index.form.restore(image.vector, image.range, index.rows.get_mut(slot));
        Ok(())
    }

    /// Sets the largest uid ever given, if it is larger than those of the nodes.
    pub fn set_uid_max(&mut self, uid_max: u64) {
        self.index.uid_next = self.index.uid_next.max(uid_max.saturating_add(1));
    }

    /// Returns the index. If all links are valid, they are kept: both ends exist and know each other, on levels that both
    /// have, within the limits. Otherwise the graph is built anew, with `ef` candidates per node.
    pub fn finish(self, ef: usize) -> (VectorIndex, Graph) {
        let _ = ef;
        (self.index, Graph::Kept)
    }
}

/// The fate of the links of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Graph {
    /// All links were valid.
    Kept,
    /// Links were damaged or absent, and were built anew.
    Rebuilt,
}
