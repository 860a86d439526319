//! The vector set type: elements with a vector each, found by similarity, and optional attributes.
//!
//! ```text
//!   vector of the client ─[projection, if REDUCE was given]─► index: graph of vectors, by name
//! ```
//! The index is `structures::vector`. A set adds the projection and the running counts of VINFO and
//! of the key's size. Attributes are bytes for both; only filter expressions read them.
//!
//! A set has at least one element, except while a command creates it. A clone is O(1). A change of
//! a set whose index is shared with a clone copies the parts of the index that it changes.

mod pins;

pub use pins::{Leftover, PinnedSet, pinned_len_bytes};

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use structures::vector::{Config, Inserted, Projection, Quantization, Query, Slot, VectorError, VectorIndex};

use crate::freeing::FreeingSteps;
use pins::Pins;

/// The number in this process of the next vector set that is created.
static NEXT_UID: AtomicU64 = AtomicU64::new(0);

/// The bytes of an element of a vector set besides vector, links and texts: its node, and its
/// places in the names and in their order.
const NODE_LEN_BYTES: usize = 133;

/// The attributes of an element after VADD or VSETATTR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewAttributes<'a> {
    /// The element keeps its attributes; a new element has none.
    Kept,
    /// The element has no attributes afterwards.
    Removed,
    /// The element gets the given attributes.
    Set(&'a [u8]),
}

/// A set of named vectors. See the module's documentation.
#[derive(Clone, Debug)]
pub struct VectorSet {
    /// The graph of the elements' vectors; shared with the copies of the set until one of them
    /// changes.
    index: Arc<VectorIndex>,
    /// The matrix by which every vector of a client is multiplied; `None` without reduction of
    /// dimensions.
    projection: Option<Arc<Projection>>,
    /// The number of the set in this process, in the order of creation.
    uid: u64,
    /// The bytes of all names and attributes of elements.
    texts_len_bytes: usize,
    /// The number of the set's elements that have attributes.
    attributes_count: usize,
    /// The versions of the set that searches read.
    pins: Pins,
}

impl VectorSet {
    /// Creates an empty vector set. `seed` is random and stays secret.
    ///
    /// # Panics
    /// If `config` is not valid, or its dimensions are not those of the projection's results.
    pub fn new(config: Config, projection: Option<Projection>, seed: u64) -> Self {
        Self::from_parts(VectorIndex::new(config, seed), projection)
    }

    /// Creates a vector set from an index with its elements. O(n).
    ///
    /// # Panics
    /// If the index has not the dimensions of the projection's results.
    pub fn from_parts(index: VectorIndex, projection: Option<Projection>) -> Self {
        let fits = projection.as_ref().is_none_or(|projection| projection.to() == index.config().dim);
        assert!(fits, "the caller creates the projection for the index");
        // Relaxed: the numbers only have to be different.
        let uid = NEXT_UID.fetch_add(1, Relaxed);
        let (index, projection) = (Arc::new(index), projection.map(Arc::new));
        let mut set =
            Self { index, projection, uid, texts_len_bytes: 0, attributes_count: 0, pins: Pins::default() };
        for slot in set.index.slots() {
            let attributes = set.index.attributes(slot);
            set.attributes_count += usize::from(attributes.is_some());
            set.texts_len_bytes += set.index.name(slot).len() + attributes.map_or(0, <[u8]>::len);
        }
        set
    }

    /// Returns the index (graph) of the set's vectors.
    pub fn index(&self) -> &VectorIndex {
        &self.index
    }

    /// Returns the matrix that projects the clients' vectors; `None` if there is none.
    pub fn projection(&self) -> Option<&Projection> {
        self.projection.as_deref()
    }

    /// Returns the number of the set in this process, which VINFO shows as `vset-uid`. A copy has
    /// the number of its original.
    pub fn uid(&self) -> u64 {
        self.uid
    }

    /// Returns the number of elements of the vector set. O(1).
    pub fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns true if the set has no elements. O(1).
    pub fn is_empty(&self) -> bool {
        self.index.is_empty()
    }

    /// Returns the number of dimensions of the set's stored vectors. O(1).
    pub fn dim(&self) -> usize {
        self.index.config().dim
    }

    /// Returns the number of elements with attributes. O(1).
    pub fn attributes_count(&self) -> usize {
        self.attributes_count
    }

    /// Adds the element `name`, or replaces its vector. The vector is projected first if the set
    /// has a projection. `ef` is the number of candidates for the links of the element.
    ///
    /// # Errors
    /// If the index rejects the vector. The set is then unchanged.
    ///
    /// # Panics
    /// If there is a projection and the vector has not the dimensions of its input.
    pub fn insert(
        &mut self,
        name: &[u8],
        vector: &[f32],
        ef: usize,
        attributes: NewAttributes<'_>,
    ) -> Result<Inserted, VectorError> {
        let projected = self.projection.as_ref().map(|projection| projection.apply(vector));
        let old = self.index.find(name).map(|slot| self.text_len_bytes(slot));
        let inserted =
            Arc::make_mut(&mut self.index).insert(name, projected.as_deref().unwrap_or(vector), ef, None)?;
        // The index keeps the attributes of an element that it updates, so the counts of old and
        // new are equal here.
        if old.is_none() {
            self.texts_len_bytes += name.len();
        }
        self.set_attributes(name, attributes);
        Ok(inserted)
    }

    /// Removes the element `name` from the vector set. Returns false if there is none.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(slot) = self.index.find(name) else { return false };
        self.texts_len_bytes -= self.text_len_bytes(slot);
        self.attributes_count -= usize::from(self.index.attributes(slot).is_some());
        Arc::make_mut(&mut self.index).remove(name)
    }

    /// Replaces or removes the attributes of the element `name`. Returns false if there is no such
    /// element.
    pub fn set_attributes(&mut self, name: &[u8], attributes: NewAttributes<'_>) -> bool {
        let Some(slot) = self.index.find(name) else { return false };
        let attributes = match attributes {
            NewAttributes::Kept => return true,
            NewAttributes::Removed => None,
            NewAttributes::Set(attributes) => Some(attributes),
        };
        self.texts_len_bytes -= self.text_len_bytes(slot);
        self.attributes_count -= usize::from(self.index.attributes(slot).is_some());
        Arc::make_mut(&mut self.index).set_attributes(slot, attributes);
        self.texts_len_bytes += self.text_len_bytes(slot);
        self.attributes_count += usize::from(attributes.is_some());
        true
    }

    /// Prepares a vector for searches. A vector with the dimensions of the projection's input is
    /// projected; any other is for the index itself.
    ///
    /// # Errors
    /// If the index rejects the vector.
    pub fn query(&self, vector: &[f32]) -> Result<Query, VectorError> {
        match &self.projection {
            Some(projection) if projection.from() == vector.len() => {
                self.index.query(&projection.apply(vector))
            }
            _ => self.index.query(vector),
        }
    }

    /// Returns the bytes of an element's name and attributes.
    fn text_len_bytes(&self, slot: Slot) -> usize {
        self.index.name(slot).len() + self.index.attributes(slot).map_or(0, <[u8]>::len)
    }

    /// Returns the bytes of memory that the set owns outside the key's block: an estimate, in which
    /// every element has the room for all its links of level 0. O(1).
    #[inline]
    pub fn len_bytes(&self) -> usize {
        let Config { dim, quantization, m } = self.index.config();
        let vector = match quantization {
            Quantization::F32 => 4 * dim,
            Quantization::Q8 => dim + 4,
            Quantization::Binary => dim.div_ceil(64) * 8,
        };
        let element = NODE_LEN_BYTES + vector + 2 * m * size_of::<u32>();
        let projection = self.projection().map_or(0, Projection::memory_usage);
        size_of::<Self>() + projection + self.len() * element + self.texts_len_bytes
    }

    /// Converts the set to an iterator that frees it in steps, without the parts that a copy or a
    /// pinned version shares. What a pinned version keeps is counted by [`pinned_len_bytes`] once
    /// the steps have begun. O(1).
    pub fn into_freed(self) -> FreeingSteps {
        let len_bytes = self.len_bytes();
        let Self { index, pins, .. } = self;
        pins.note_removal(len_bytes);
        Box::new(Arc::into_inner(index).into_iter().flat_map(VectorIndex::into_freed))
    }

    /// Creates a set without elements that stands for a set that was moved away. It has no other
    /// use.
    pub(crate) fn placeholder() -> Self {
        let config = Config { dim: 1, quantization: Quantization::F32, m: structures::vector::M_DEFAULT };
        Self::new(config, None, 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(quantization: Quantization) -> VectorSet {
        VectorSet::new(Config { dim: 2, quantization, m: 16 }, None, 1)
    }

    #[test]
    fn counts_follow_all_changes() {
        let mut set = set(Quantization::F32);
        let empty = set.len_bytes();
        let changes: [(&[u8], NewAttributes<'_>); 5] = [
            (b"a", NewAttributes::Kept),
            (b"b", NewAttributes::Set(b"{}")),
            (b"b", NewAttributes::Kept),
            (b"b", NewAttributes::Set(b"{\"x\":1}")),
            (b"c", NewAttributes::Removed),
        ];
        for (name, attributes) in changes {
            set.insert(name, &[1.0, 2.0], 10, attributes).unwrap();
        }
        assert_eq!((set.len(), set.attributes_count(), set.texts_len_bytes), (3, 1, 10));
        assert!(set.set_attributes(b"a", NewAttributes::Set(b"x")));
        assert!(!set.set_attributes(b"z", NewAttributes::Removed));
        let copy = VectorSet::from_parts(set.index().clone(), None);
        assert_eq!((copy.attributes_count(), copy.texts_len_bytes), (2, 11));
        assert!(set.remove(b"a") && set.remove(b"b") && set.remove(b"c") && !set.remove(b"c"));
        assert_eq!((set.len_bytes(), set.attributes_count()), (empty, 0));
    }

    #[test]
    fn a_big_set_is_freed_in_steps_and_a_shared_one_by_its_last_owner() {
        let mut set = set(Quantization::F32);
        for number in 0..1000 {
            let vector = [number as f32, 1.0];
            set.insert(number.to_string().as_bytes(), &vector, 10, NewAttributes::Kept).unwrap();
        }
        let copy = set.clone();
        assert_eq!(set.into_freed().count(), 0);
        assert!(copy.index().find(b"999").is_some());
        let mut steps = copy.into_freed();
        assert_eq!(steps.by_ref().take(30).count(), 30);
        assert!(steps.count() > 10);
    }

    #[test]
    fn a_projection_applies_to_vectors_of_its_input_only() {
        let config = Config { dim: 2, quantization: Quantization::F32, m: 16 };
        let mut set = VectorSet::new(config, Some(Projection::new(3, 2)), 1);
        set.insert(b"a", &[1.0, 2.0, 3.0], 10, NewAttributes::Kept).unwrap();
        let query = set.query(&[1.0, 2.0, 3.0]).unwrap();
        let found = set.index().find(b"a").unwrap();
        assert!(set.index().similarity_to(&query, found) > 0.99);
        assert!(set.query(&[1.0, 2.0]).is_ok() && set.query(&[1.0]).is_err());
    }
}
