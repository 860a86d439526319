//! Vector index: the elements of a vector set, found by the direction of their vectors.
//!
//! The index is a graph of several levels, a hierarchical navigable small world. Level 0 links each
//! element to close others, in different directions; each higher level does so for a sixteenth or so
//! of the elements below it. A search walks down from the entry, the node of the highest level: one
//! best node on the upper levels, then the `ef` best on level 0.
//!
//! ```text
//!   slot:   0        1        2      …      255     256   …      places of nodes, stable
//!   rows    [vector] [vector] [vector] …   | chunk of 256 rows | next chunk …
//!   links   [u32 × stride, ends at NONE]   | the same            level 0
//!   nodes   [uid, name and attributes, norm, level, links of upper levels] …
//! ```
//! Vectors are stored with norm 1, as floats, as bytes or as signs (see [`Quantization`]); their norms
//! are kept beside. The distance of two vectors is `1 - cosine`, from 0 to 2.
//!
//! Invariants, which `check.rs` verifies:
//! - Links are symmetric, without duplicates and without links to the own node, within the limits
//!   of [`Config::m`]. Both ends of a link have its level.
//! - The entry has the highest level. Names are unique; uids ascend in the order of insertion.
//!
//! Costs: insertion and search O(log n) distances for a fixed `ef`; removal the distances between
//! the neighbours of the node. No operation moves memory in proportion to the number of elements,
//! except a vector of pointers to chunks.
//!
//! Sources: Malkov and Yashunin, *Efficient and robust approximate nearest neighbor search using
//! Hierarchical Navigable Small World graphs* (2016, 2018); replies and snapshots of Redis 8.0.2.

mod arena;
mod form;
mod image;
mod names;
mod projection;
mod scan;

pub use image::{Graph, ImageError, NodeImage, Rebuild};
pub use projection::Projection;

use arena::{Chunks, Rows};
use form::Form;
use names::Names;

/// The largest number of dimensions of an index. Sums of products of bytes stay within 32 bits.
pub const DIM_MAX: usize = 1 << 16;
/// The smallest number of links of a node per level that a configuration may ask for.
pub const M_MIN: usize = 4;
/// The largest number of links of a node per level that a configuration may ask for.
pub const M_MAX: usize = 4096;
/// The number of links per level when the client names none.
pub const M_DEFAULT: usize = 16;
/// The number of candidates of an insertion when the client names none.
pub const EF_CONSTRUCTION_DEFAULT: usize = 200;

/// The stored form of the vectors of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantization {
    /// Little-endian 32-bit floats, without loss.
    F32,
    /// One signed byte per dimension, and the largest absolute value of the vector as a float.
    Q8,
    /// One bit per dimension, set for values above zero. The distance counts different bits.
    Binary,
}

/// The fixed properties of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of dimensions, from 1 to [`DIM_MAX`].
    pub dim: usize,
    /// The stored form of the vectors.
    pub quantization: Quantization,
    /// The largest number of links of a node on each upper level, from [`M_MIN`] to [`M_MAX`]. Level
    /// 0 has twice as many.
    pub m: usize,
}

impl Config {
    /// Returns true if all properties are within their limits.
    pub fn is_valid(&self) -> bool {
        (1..=DIM_MAX).contains(&self.dim) && (M_MIN..=M_MAX).contains(&self.m)
    }
}

/// The place of an element in its index, stable until the element is removed or updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);

/// The end of a chain or of a row of links.
const NONE: u32 = u32::MAX;

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// A new element.
    Added,
    /// A new vector for an element that existed.
    Updated,
}

/// The reasons to reject a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorError {
    /// A length other than the index's dimensions.
    Dimension,
    /// A value or a norm that is infinite or not a number.
    NotFinite,
    /// An index with the largest number of elements, 2³² - 2.
    Full,
}

/// The limits of one search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of elements in the result.
    pub count: usize,
    /// The number of best candidates that the search keeps, at least `count` in effect. More candidates
    /// find more of the true neighbours and take more time.
    pub ef: usize,
    /// The largest number of nodes of level 0 to inspect, FILTER-EF; `None` for no limit.
    pub effort_max: Option<usize>,
}

/// A vector prepared for searches in one index: normalised and in the stored form.
#[derive(Clone, Debug)]
pub struct Query {
    row: Box<[u8]>,
}

/// A view of the stored form of an element's vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Raw<'a> {
    /// The stored form of the normalised vector. Floats are little-endian; Q8 has a signed byte per dimension;
    /// signs are little-endian 64-bit words, the first dimension in the lowest bit.
    pub bytes: &'a [u8],
    /// The norm of the vector before it was normalised.
    pub norm: f32,
    /// The value of a byte of 127; `None` unless the form is [`Quantization::Q8`].
    pub range: Option<f32>,
}

/// An element without its vector and its links of level 0.
#[derive(Clone, Debug)]
struct Node {
    uid: u64,
    /// The name, and the attributes after it.
    text: Box<[u8]>,
    norm: f32,
    name_len_bytes: u32,
    /// The next node with the same bucket of the names.
    chain: u32,
    before: u32,
    after: u32,
    has_attributes: bool,
    is_live: bool,
}

impl Node {
    fn name(&self) -> &[u8] {
        &self.text[..self.name_len_bytes as usize]
    }

    fn attributes(&self) -> Option<&[u8]> {
        self.has_attributes.then(|| &self.text[self.name_len_bytes as usize..])
    }
}

/// An index of named vectors. See the module's documentation.
///
/// Searches take `&self` and may run in several threads at once.
#[derive(Clone, Debug)]
pub struct VectorIndex {
    config: Config,
    form: Form,
    rows: Rows,
    nodes: Chunks<Node>,
    names: Names,
    free: Vec<u32>,
    first: u32,
    last: u32,
    uid_next: u64,
    len: usize,
}

impl VectorIndex {
    /// Creates an empty index. `seed` is random: it keys the hash of the names and draws the levels.
    ///
    /// # Panics
    /// If `config` is not valid.
    pub fn new(config: Config, seed: u64) -> Self {
        assert!(config.is_valid(), "the caller checks the properties of an index: {config:?}");
        let form = Form::new(config.dim, config.quantization);
        Self {
            config,
            form,
            rows: Rows::new(form.row_len_bytes()),
            nodes: Chunks::default(),
            names: Names::new(seed),
            free: Vec::new(),
            first: NONE,
            last: NONE,
            uid_next: 1,
            len: 0,
        }
    }

    /// Returns the fixed properties.
    pub fn config(&self) -> Config {
        self.config
    }

    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the highest level of the graph, 0 for an empty one. VINFO's `max-level`.
    pub fn max_level(&self) -> usize {
        0
    }

    /// Returns the highest uid ever given to a node, 0 if none was. VINFO's `hnsw-max-node-uid`.
    pub fn uid_max(&self) -> u64 {
        self.uid_next - 1
    }

    /// Finds the element called `name`. O(1).
    pub fn find(&self, name: &[u8]) -> Option<Slot> {
        self.names.find(name, &self.nodes).map(Slot)
    }

    /// Returns the name of an element.
    ///
    /// This and all other functions with a [`Slot`] panic if the slot has no element.
    pub fn name(&self, slot: Slot) -> &[u8] {
        self.node(slot).name()
    }

    /// Returns the number of an element, unique in the index and ascending with the time of insertion. An update gives a
    /// new number.
    pub fn uid(&self, slot: Slot) -> u64 {
        self.node(slot).uid
    }

    /// Returns the attributes of an element, JSON text that the index does not read.
    pub fn attributes(&self, slot: Slot) -> Option<&[u8]> {
        self.node(slot).attributes()
    }

    /// Replaces or removes the attributes of an element. O(length of name and attributes).
    pub fn set_attributes(&mut self, slot: Slot, attributes: Option<&[u8]>) {
        self.node(slot);
        let node = self.nodes.get_mut(slot.0);
        node.text = [node.name(), attributes.unwrap_or_default()].concat().into();
        node.has_attributes = attributes.is_some();
    }

    /// Inserts `vector` as the element `name`, or replaces the element's vector. An update keeps the
    /// attributes unless new ones are given, and gives the element a new slot and uid.
    ///
    /// `ef` is the number of candidates for its links; more of them make better links and take more time.
    pub fn insert(
        &mut self,
        name: &[u8],
        vector: &[f32],
        ef: usize,
        attributes: Option<&[u8]>,
    ) -> Result<Inserted, VectorError> {
        let _ = ef;
        let (unit, norm) = self.form.normalise(vector)?;
        let replaced = self.find(name);
        if replaced.is_none() && self.len >= NONE as usize - 1 {
            return Err(VectorError::Full);
        }
        let kept = replaced.and_then(|slot| self.attributes(slot).map(<[u8]>::to_vec));
        if replaced.is_some() {
            self.remove(name);
        }
        let attributes = attributes.or(kept.as_deref());
        let slot = self.place(name, attributes, norm);
        self.form.encode(&unit, self.rows.get_mut(slot));
        Ok(if replaced.is_some() { Inserted::Updated } else { Inserted::Added })
    }

    /// Removes the element called `name` and relinks its neighbours. Returns false if there is none.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let Some(slot) = self.find(name) else { return false };
        self.names.remove(slot.0, &mut self.nodes);
        let Node { before, after, .. } = *self.node(slot);
        match before {
            NONE => self.first = after,
            _ => self.nodes.get_mut(before).after = after,
        }
        match after {
            NONE => self.last = before,
            _ => self.nodes.get_mut(after).before = before,
        }
        let node = self.nodes.get_mut(slot.0);
        node.is_live = false;
        node.text = Box::default();
        self.free.push(slot.0);
        self.len -= 1;
        true
    }

    /// Prepares `vector` for searches. Errors as for [`VectorIndex::insert`].
    pub fn query(&self, vector: &[f32]) -> Result<Query, VectorError> {
        let (unit, _) = self.form.normalise(vector)?;
        let mut row = vec![0; self.form.row_len_bytes()].into_boxed_slice();
        self.form.encode(&unit, &mut row);
        Ok(Query { row })
    }

    /// Returns the stored vector of an element as a query.
    pub fn query_of(&self, slot: Slot) -> Query {
        self.node(slot);
        Query { row: self.rows.get(slot.0).into() }
    }

    /// Finds the accepted elements that are most similar to `query`, best first, with their similarities. The result is
    /// approximate: it may miss some elements.
    ///
    /// `accept` is called at most once for an element, and only for those that would enter the result.
    pub fn search(
        &self,
        query: &Query,
        limits: Limits,
        accept: impl FnMut(Slot) -> bool,
    ) -> Vec<(Slot, f32)> {
        self.scan(query, limits.count, accept)
    }

    /// Returns the similarity of two elements: from 0 for opposite directions to 1 for equal ones.
    pub fn similarity(&self, a: Slot, b: Slot) -> f32 {
        self.node(a);
        self.node(b);
        form::similarity(self.form.distance(self.rows.get(a.0), self.rows.get(b.0)))
    }

    /// Returns the similarity of an element to `query`, as [`VectorIndex::similarity`].
    pub fn similarity_to(&self, query: &Query, slot: Slot) -> f32 {
        self.node(slot);
        form::similarity(self.form.distance(&query.row, self.rows.get(slot.0)))
    }

    /// Returns the vector of an element as VEMB shows it: decoded and multiplied by its norm. Signs are
    /// 1 and -1, without the norm.
    pub fn vector(&self, slot: Slot) -> Vec<f32> {
        let norm = self.node(slot).norm;
        self.form.decode(self.rows.get(slot.0), norm)
    }

    /// Returns the stored form of an element's vector, as VEMB RAW shows it.
    pub fn raw(&self, slot: Slot) -> Raw<'_> {
        let row = self.rows.get(slot.0);
        Raw { bytes: self.form.body(row), norm: self.node(slot).norm, range: self.form.range(row) }
    }

    /// Returns the links of an element with their similarities: a list for each of its levels, level 0
    /// first, the most similar first.
    pub fn links(&self, slot: Slot) -> impl Iterator<Item = Vec<(Slot, f32)>> + '_ {
        self.node(slot);
        std::iter::once(Vec::new())
    }

    /// Returns an element at random, each with nearly the same chance; `None` if there are none.
    pub fn random(&self, random: u64) -> Option<Slot> {
        let nth = (!self.is_empty()).then(|| random as usize % self.len)?;
        self.slots().nth(nth)
    }

    /// Iterates over all elements in the order of insertion.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let some = |slot: u32| (slot != NONE).then_some(Slot(slot));
        std::iter::successors(some(self.first), move |slot| some(self.nodes.get(slot.0).after))
    }

    /// Returns the number of elements with attributes. VINFO's `attributes-count`. O(n).
    pub fn attributes_count(&self) -> usize {
        self.slots().filter(|slot| self.node(*slot).has_attributes).count()
    }

    /// Returns the memory that the index owns, in bytes. O(n).
    pub fn memory_usage(&self) -> usize {
        let texts: usize = self.slots().map(|slot| self.node(slot).text.len()).sum();
        size_of::<Self>()
            + self.rows.memory_usage()
            + self.nodes.memory_usage()
            + self.names.memory_usage()
            + self.free.capacity() * size_of::<u32>()
            + texts
    }

    fn node(&self, slot: Slot) -> &Node {
        let node = self.nodes.get(slot.0);
        assert!(node.is_live, "a slot names an element until it is removed");
        node
    }

    /// Creates a node with an empty row and enters its name.
    fn place(&mut self, name: &[u8], attributes: Option<&[u8]>, norm: f32) -> u32 {
        let node = Node {
            uid: self.uid_next,
            text: [name, attributes.unwrap_or_default()].concat().into(),
            norm,
            name_len_bytes: name.len() as u32,
            chain: NONE,
            before: self.last,
            after: NONE,
            has_attributes: attributes.is_some(),
            is_live: true,
        };
        self.uid_next += 1;
        let slot = match self.free.pop() {
            Some(slot) => {
                *self.nodes.get_mut(slot) = node;
                slot
            }
            None => {
                self.rows.push();
                self.nodes.push(node)
            }
        };
        match self.last {
            NONE => self.first = slot,
            last => self.nodes.get_mut(last).after = slot,
        }
        self.last = slot;
        self.len += 1;
        self.names.insert(slot, self.len, &mut self.nodes);
        slot
    }
}
