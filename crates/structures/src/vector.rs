//! Vector index: the elements of a vector set, found by the direction of their vectors.
//!
//! The index is a graph of several levels, a hierarchical navigable small world. Level 0 links
//! each element to close others, in different directions; each higher level does so for a
//! sixteenth or so of the elements below it. A search walks down from the entry, the node of the
//! highest level: one best node on the upper levels, then the `ef` best on level 0.
//!
//! ```text
//!   slot:   0        1        2      …      255     256   …      places of nodes, stable
//!   rows    [vector] [vector] [vector] …   | chunk of rows     | next chunk …
//!   links   [u32 × stride, ends at NONE]   | the same            level 0
//!   nodes   [uid, name and attributes, norm, level, links of upper levels] …
//! ```
//! Vectors are stored with norm 1, as floats, as bytes or as signs (see [`Quantization`]); their
//! norms are kept beside. The distance of two vectors is `1 - cosine`, from 0 to 2.
//!
//! Invariants, which `check.rs` verifies:
//! - Links are symmetric, without duplicates and without links to the own node, within the limits
//!   of [`Config::m`]. Both ends of a link have its level.
//! - The entry has the highest level. Names are unique; uids ascend in the order of insertion.
//!
//! Costs: insertion and search O(log n) distances for a fixed `ef`; removal the distances between
//! the neighbours of the node. No operation moves memory in proportion to the number of elements.
//! Three do with a small factor: a pointer for each 64 chunks is copied when the last of them is
//! full, and once for each version that a writer must not change. With such a version, a pointer
//! for each 64 to 128 names is copied, too.
//!
//! **Versions.** A clone is O(1): it shares all chunks (`chunks.rs`), and a writer copies those
//! that it changes. So a search of a clone needs no lock while the original changes. With a clone
//! of its present state, an insertion copies a few hundred KiB, and later ones less.
//!
//! Sources: Malkov and Yashunin, *Efficient and robust approximate nearest neighbor search using
//! Hierarchical Navigable Small World graphs* (2016, 2018); replies and snapshots of Redis 8.0.2.

mod arena;
mod check;
mod chunks;
mod form;
mod graph;
mod image;
mod kernel;
mod mix;
mod names;
mod near;
mod order;
mod projection;
mod search;
#[cfg(test)]
mod tests;

pub use image::{Graph, ImageError, NodeImage, Rebuild};
pub use projection::Projection;
pub use search::PausableSearch;

use arena::{Items, Lists, Rows};
use form::Form;
use mix::mix;
use names::Names;
use order::Order;

/// The highest level that a node of a vector index can have.
const LEVEL_MAX: usize = 16;
/// The number of places for nodes up to which a vector index that has become empty frees its memory
/// at once.
const RESET_LEN_MAX: usize = 4096;
/// The number of random places that are tried to draw a random element of a vector index.
const TRIES_MAX: u64 = 64;

/// The largest number of dimensions of a vector index. With it, sums of products of bytes fit into
/// 32 bits.
pub const DIM_MAX: usize = 1 << 16;
/// The smallest number of links of a node per level that VADD (M) may request.
pub const M_MIN: usize = 4;
/// The largest number of links of a node per level that VADD (M) may request.
pub const M_MAX: usize = 4096;
/// The number of links of a node per level if VADD names none (M).
pub const M_DEFAULT: usize = 16;
/// The number of candidates for the links of a new node if VADD names none (EF).
pub const EF_CONSTRUCTION_DEFAULT: usize = 200;

/// The form in which the vectors of an index are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Quantization {
    /// The values of a vector are stored as little-endian 32-bit floats, without loss.
    F32,
    /// The values of a vector are stored as one signed byte per dimension, with the largest
    /// absolute value as a float.
    Q8,
    /// The values of a vector are stored as one bit per dimension, set for values above zero. The
    /// distance counts different bits.
    Binary,
}

/// The fixed properties of a vector index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// The number of dimensions of the stored vectors, from 1 to [`DIM_MAX`].
    pub dim: usize,
    /// The form in which the vectors are stored.
    pub quantization: Quantization,
    /// The largest number of links of a node on each level above 0, from [`M_MIN`] to [`M_MAX`]. On
    /// level 0 a node may have twice as many.
    pub m: usize,
}

impl Config {
    /// Returns true if all properties of the index are within their limits.
    pub fn is_valid(&self) -> bool {
        (1..=DIM_MAX).contains(&self.dim) && (M_MIN..=M_MAX).contains(&self.m)
    }
}

/// The place of an element in its vector index, the same until the element is removed or updated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(u32);

/// The number that ends a chain of places or a row of links.
const NONE: u32 = u32::MAX;

/// The result of inserting an element into a vector index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inserted {
    /// The element is new in the index.
    Added,
    /// The element existed and got the new vector.
    Updated,
}

/// The reasons for which a vector index rejects a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VectorError {
    /// The vector has another number of values than the index has dimensions.
    Dimension,
    /// A value of the vector, or its norm, is infinite or not a number.
    NotFinite,
    /// The index already has the largest number of elements, 2³² - 2.
    Full,
}

/// The limits of one search in a vector index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of elements in the result of the search.
    pub count: usize,
    /// The number of best candidates that the search keeps, at least `count` in effect. More
    /// candidates find more of the true neighbours and take more time.
    pub ef: usize,
    /// The largest number of nodes of level 0 that the search inspects (FILTER-EF); `None` for no
    /// limit.
    pub effort_max: Option<usize>,
}

/// A vector prepared for searches in one index: normalised and in the stored form.
#[derive(Clone, Debug)]
pub struct Query {
    row: Box<[u8]>,
}

/// The stored form of an element's vector, borrowed from its index.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Raw<'a> {
    /// The stored form of the normalised vector. Floats are little-endian; Q8 has a signed byte
    /// per dimension; signs are little-endian 64-bit words, the first dimension in the lowest
    /// bit.
    pub bytes: &'a [u8],
    /// The norm of the element's vector before it was normalised.
    pub norm: f32,
    /// The value that a byte of 127 stands for; `None` unless the form is [`Quantization::Q8`].
    pub range: Option<f32>,
}

/// A node of the index: an element without its vector and its links on level 0.
#[derive(Clone, Debug)]
struct Node {
    uid: u64,
    /// The bytes of the element's name, and those of the attributes after it.
    text: Box<[u8]>,
    norm: f32,
    name_len_bytes: u32,
    /// The place of the next node in the same bucket of the table of names.
    chain: u32,
    before: u32,
    after: u32,
    has_attributes: bool,
    /// The links of the node on the levels above 0; `None` for most nodes, which have only level 0.
    upper: Option<Box<Upper>>,
}

/// The links of a node on the levels above 0.
#[derive(Debug)]
struct Upper {
    levels: Vec<Vec<u32>>,
}

impl Clone for Upper {
    /// Copies the links with the capacities of their lists, which [`VectorIndex::memory_usage`]
    /// counts.
    fn clone(&self) -> Self {
        let copy = |links: &Vec<u32>| {
            let mut copy = Vec::with_capacity(links.capacity());
            copy.extend_from_slice(links);
            copy
        };
        Self { levels: self.levels.iter().map(copy).collect() }
    }
}

impl Upper {
    fn new(levels: Vec<Vec<u32>>) -> Option<Box<Self>> {
        (!levels.is_empty()).then(|| Box::new(Self { levels }))
    }

    fn memory_usage(&self) -> usize {
        let lists: usize = self.levels.iter().map(|links| links.capacity() * size_of::<u32>()).sum();
        size_of::<Self>() + self.levels.capacity() * size_of::<Vec<u32>>() + lists
    }
}

impl Node {
    fn level(&self) -> usize {
        self.upper().len()
    }

    fn upper(&self) -> &[Vec<u32>] {
        self.upper.as_ref().map_or(&[], |upper| &upper.levels)
    }

    fn upper_mut(&mut self) -> &mut [Vec<u32>] {
        self.upper.as_mut().map_or(&mut [], |upper| &mut upper.levels)
    }

    fn name(&self) -> &[u8] {
        &self.text[..self.name_len_bytes as usize]
    }

    fn attributes(&self) -> Option<&[u8]> {
        self.has_attributes.then(|| &self.text[self.name_len_bytes as usize..])
    }
}

/// An index of named vectors. See the module's documentation.
///
/// Searches take `&self` and may run in several threads at once. A clone is O(1).
#[derive(Clone, Debug)]
pub struct VectorIndex {
    config: Config,
    form: Form,
    rows: Rows,
    /// The links of all nodes on level 0.
    lists: Lists,
    nodes: Items<Node>,
    names: Names,
    order: Order,
    /// The first and the last node in the order of insertion.
    first: u32,
    last: u32,
    /// The entry of the graph, a node of the highest level, where searches begin.
    entry: u32,
    /// The number of nodes by their highest level, from 0.
    level_counts: [usize; LEVEL_MAX + 1],
    len: usize,
    uid_next: u64,
    seed: u64,
    attributes_count: usize,
    /// The memory of all elements' names and attributes, in bytes.
    texts_len_bytes: usize,
    /// The memory of the links on levels above 0, in bytes.
    upper_len_bytes: usize,
}

impl VectorIndex {
    /// Creates an empty index. `seed` is random: it keys the hash of the names and draws the
    /// levels.
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
            lists: Lists::new(config.m * 2),
            nodes: Items::new(),
            names: Names::new(seed),
            order: Order::default(),
            first: NONE,
            last: NONE,
            entry: NONE,
            level_counts: [0; LEVEL_MAX + 1],
            len: 0,
            uid_next: 1,
            seed,
            attributes_count: 0,
            texts_len_bytes: 0,
            upper_len_bytes: 0,
        }
    }

    /// Returns the fixed properties of the index, such as its dimensions.
    pub fn config(&self) -> Config {
        self.config
    }

    /// Returns the number of elements in the index.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the index has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the highest level of the graph, 0 for an empty one; VINFO shows it as `max-level`.
    pub fn max_level(&self) -> usize {
        self.nodes.get(self.entry).map_or(0, Node::level)
    }

    /// Returns the highest number (uid) ever given to a node, 0 if none was; VINFO shows it as
    /// `hnsw-max-node-uid`.
    pub fn uid_max(&self) -> u64 {
        self.uid_next - 1
    }

    /// Returns the number of elements with attributes; VINFO shows it as `attributes-count`.
    pub fn attributes_count(&self) -> usize {
        self.attributes_count
    }

    /// Finds the element called `name` in the index; `None` if there is none. O(1).
    pub fn find(&self, name: &[u8]) -> Option<Slot> {
        self.names.find(name, &self.nodes).map(Slot)
    }

    /// Returns the name of an element.
    ///
    /// This and all other functions with a [`Slot`] panic if the slot has no element.
    pub fn name(&self, slot: Slot) -> &[u8] {
        self.live(slot.0).name()
    }

    /// Returns the number of an element, unique in the index and ascending with the time of
    /// insertion. An update gives a new number.
    pub fn uid(&self, slot: Slot) -> u64 {
        self.live(slot.0).uid
    }

    /// Returns the attributes of an element, JSON text that the index does not read; `None` if it
    /// has none.
    pub fn attributes(&self, slot: Slot) -> Option<&[u8]> {
        self.live(slot.0).attributes()
    }

    /// Replaces or removes the attributes of an element. O(length of name and attributes).
    pub fn set_attributes(&mut self, slot: Slot, attributes: Option<&[u8]>) {
        self.live(slot.0);
        let node = self.nodes.get_mut(slot.0);
        let text: Box<[u8]> = [node.name(), attributes.unwrap_or_default()].concat().into();
        self.texts_len_bytes = self.texts_len_bytes - node.text.len() + text.len();
        self.attributes_count -= usize::from(node.has_attributes);
        self.attributes_count += usize::from(attributes.is_some());
        node.text = text;
        node.has_attributes = attributes.is_some();
    }

    /// Inserts `vector` as the element `name`, or replaces the element's vector. An update keeps
    /// the attributes unless new ones are given, and gives the element a new slot and uid.
    ///
    /// `ef` is the number of candidates for its links; more of them make better links and take
    /// more time.
    ///
    /// # Panics
    /// If the name has 4 GiB or more.
    pub fn insert(
        &mut self,
        name: &[u8],
        vector: &[f32],
        ef: usize,
        attributes: Option<&[u8]>,
    ) -> Result<Inserted, VectorError> {
        let (unit, norm) = self.form.normalise(vector)?;
        let replaced = self.find(name);
        if replaced.is_none() && self.is_full() {
            return Err(VectorError::Full);
        }
        let kept = replaced.and_then(|slot| self.attributes(slot).map(<[u8]>::to_vec));
        if let Some(slot) = replaced {
            self.remove_at(slot);
        }
        let slot = self.place(name, attributes.or(kept.as_deref()), norm);
        self.order.insert(slot, &self.nodes);
        self.form.encode(&unit, self.rows.get_mut(slot));
        let upper = self.draw_levels(self.live(slot).uid);
        self.upper_len_bytes += upper.as_ref().map_or(0, |upper| upper.memory_usage());
        self.nodes.get_mut(slot).upper = upper;
        self.link(slot, ef);
        Ok(if replaced.is_some() { Inserted::Updated } else { Inserted::Added })
    }

    /// Removes the element called `name` and links its neighbours with each other. Returns false
    /// if there is none.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        let slot = self.find(name);
        slot.inspect(|slot| self.remove_at(*slot)).is_some()
    }

    fn remove_at(&mut self, slot: Slot) {
        let slot = slot.0;
        self.unlink(slot);
        self.names.remove(slot, &mut self.nodes);
        self.order.remove(slot, &self.nodes);
        let node = self.nodes.take(slot);
        match node.before {
            NONE => self.first = node.after,
            before => self.nodes.get_mut(before).after = node.after,
        }
        match node.after {
            NONE => self.last = node.before,
            after => self.nodes.get_mut(after).before = node.before,
        }
        self.len -= 1;
        self.texts_len_bytes -= node.text.len();
        self.attributes_count -= usize::from(node.has_attributes);
        if self.len == 0 && self.nodes.len() <= RESET_LEN_MAX {
            // Returns the memory. That of many places is freed with the index, in steps.
            *self = Self { uid_next: self.uid_next, ..Self::new(self.config, self.seed) };
        }
    }

    /// Prepares `vector` for searches in this index. Errors as for [`VectorIndex::insert`].
    pub fn query(&self, vector: &[f32]) -> Result<Query, VectorError> {
        let (unit, _) = self.form.normalise(vector)?;
        let mut row = vec![0; self.form.row_len_bytes()].into_boxed_slice();
        self.form.encode(&unit, &mut row);
        Ok(Query { row })
    }

    /// Returns the stored vector of an element, prepared for searches.
    pub fn query_of(&self, slot: Slot) -> Query {
        self.live(slot.0);
        Query { row: self.rows.get(slot.0).into() }
    }

    /// Returns the similarity of two elements: from 0 for opposite directions to 1 for equal ones.
    pub fn similarity(&self, a: Slot, b: Slot) -> f64 {
        self.live(a.0);
        self.live(b.0);
        form::similarity(self.form.distance(self.rows.get(a.0), self.rows.get(b.0)))
    }

    /// Returns the similarity of an element to `query`: from 0 for opposite directions to 1 for
    /// equal ones.
    pub fn similarity_to(&self, query: &Query, slot: Slot) -> f64 {
        self.live(slot.0);
        form::similarity(self.form.distance(&query.row, self.rows.get(slot.0)))
    }

    /// Returns the vector of an element as VEMB shows it: decoded and multiplied by its norm.
    /// Signs are 1 and -1, without the norm.
    pub fn vector(&self, slot: Slot) -> Vec<f32> {
        let norm = self.live(slot.0).norm;
        self.form.decode(self.rows.get(slot.0), norm)
    }

    /// Returns the stored form of an element's vector, which VEMB RAW shows.
    pub fn raw(&self, slot: Slot) -> Raw<'_> {
        let norm = self.live(slot.0).norm;
        let row = self.rows.get(slot.0);
        Raw { bytes: self.form.body(row), norm, range: self.form.range(row) }
    }

    /// Returns the links of an element with their similarities: a list for each of its levels,
    /// level 0 first. In a list, the most similar come first.
    pub fn links(&self, slot: Slot) -> impl Iterator<Item = Vec<(Slot, f64)>> + '_ {
        let row = self.rows.get(slot.0);
        (0..=self.live(slot.0).level()).map(move |level| {
            let mut links: Vec<_> =
                self.links_at(level, slot.0).iter().map(|link| self.near(row, *link)).collect();
            links.sort_unstable();
            links.into_iter().map(|near| (Slot(near.slot()), form::similarity(near.distance()))).collect()
        })
    }

    /// Returns an element at random, each with nearly the same chance; `None` if there are none.
    /// O(1) unless nearly all elements were removed.
    pub fn random(&self, random: u64) -> Option<Slot> {
        let places = self.nodes.len() as u64;
        if self.is_empty() {
            return None;
        }
        let is_live = |slot: &u32| self.nodes.get(*slot).is_some();
        let tries = (0..TRIES_MAX).map(|turn| (mix(random.wrapping_add(turn)) % places) as u32);
        let first = (random % places) as u32;
        tries.chain(first..places as u32).chain(0..first).find(is_live).map(Slot)
    }

    /// Iterates over all elements in the order of insertion.
    pub fn slots(&self) -> impl Iterator<Item = Slot> + '_ {
        let some = |slot: u32| (slot != NONE).then_some(Slot(slot));
        std::iter::successors(some(self.first), move |slot| some(self.live(slot.0).after))
    }

    /// Iterates over the elements in the order of their names' bytes, from the first name for which
    /// `is_before` is false. The names for which it is true must come first. O(log n) calls.
    pub fn slots_by_name<F: FnMut(&[u8]) -> bool>(
        &self,
        is_before: F,
    ) -> impl Iterator<Item = Slot> + use<'_, F> {
        self.order.from(&self.nodes, is_before).map(Slot)
    }

    /// Converts the index to steps that free it, each a bounded part. Parts that a clone shares
    /// are left to it. O(1).
    pub fn into_freed(self) -> impl Iterator<Item = ()> + Send {
        let Self { rows, lists, nodes, names, order, .. } = self;
        let texts = nodes.into_freed().chain(names.into_freed()).chain(order.into_freed());
        rows.into_freed().chain(lists.into_freed()).chain(texts)
    }

    /// Returns the memory that the index owns, in bytes, without the allocator's overhead. Memory
    /// that it shares with clones counts as owned. O(n).
    pub fn memory_usage(&self) -> usize {
        size_of::<Self>()
            + self.rows.memory_usage()
            + self.lists.memory_usage()
            + self.nodes.memory_usage()
            + self.names.memory_usage()
            + self.order.memory_usage()
            + self.texts_len_bytes
            + self.upper_len_bytes
    }

    fn is_full(&self) -> bool {
        self.len >= NONE as usize - 1
    }

    #[inline]
    fn live(&self, slot: u32) -> &Node {
        self.nodes.get(slot).expect("a slot names an element until it is removed")
    }

    /// Creates a node with an empty row and without links, and enters its name into the names, but
    /// not into their order.
    fn place(&mut self, name: &[u8], attributes: Option<&[u8]>, norm: f32) -> u32 {
        let text: Box<[u8]> = [name, attributes.unwrap_or_default()].concat().into();
        self.texts_len_bytes += text.len();
        self.attributes_count += usize::from(attributes.is_some());
        let node = Node {
            uid: self.uid_next,
            text,
            norm,
            name_len_bytes: u32::try_from(name.len()).expect("the caller limits the length of names"),
            chain: NONE,
            before: NONE,
            after: NONE,
            has_attributes: attributes.is_some(),
            upper: None,
        };
        self.uid_next += 1;
        let slot = self.nodes.reuse(node).unwrap_or_else(|node| {
            self.rows.push();
            self.lists.push();
            self.nodes.push(node)
        });
        self.append(slot);
        self.len += 1;
        self.names.insert(slot, self.len, &mut self.nodes);
        slot
    }

    /// Makes a node the last one in the order in which nodes were inserted.
    fn append(&mut self, slot: u32) {
        let node = self.nodes.get_mut(slot);
        (node.before, node.after) = (self.last, NONE);
        match self.last {
            NONE => self.first = slot,
            last => self.nodes.get_mut(last).after = slot,
        }
        self.last = slot;
    }

    /// Draws the levels above 0 of a new node. Each level has a part of `1 / m` of the nodes of
    /// the one below.
    fn draw_levels(&self, uid: u64) -> Option<Box<Upper>> {
        let uniform = ((mix(self.seed ^ mix(uid)) >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let level = (-uniform.ln() / (self.config.m as f64).ln()) as usize;
        Upper::new(vec![Vec::new(); level.min(LEVEL_MAX)])
    }
}
