//! Reading and writing of vector sets. In Redis 8 a vector set is the value of a module: a list of
//! items, each an opcode and its data.
//!
//! ```text
//!   value    ID of the module type ([`ModuleId::VECTOR_SET`]) | head | [matrix] | node … | 0
//!   item     2 number (a length)    or    5 string
//!
//!   head     dimensions of stored vectors | nodes | form in bits 0-7, M in bits 8-23 | flags
//!            form: 0 floats, 1 bytes, 2 signs        flags: 1 has a matrix, 2 has attributes
//!   matrix   dimensions of clients' vectors | string: a row of f32 for each stored dimension
//!   node     name | [attributes, empty if none] | stored vector | count of parameters | parameters
//!   parameters, all of them numbers:
//!            number of the node | level in bits 0-23, version of the node above
//!            for each level from 0 up: links | maximum of links | number of a linked node …
//!                                      [distance of the worst link (f32) << 32 | its index]
//!            range (f32) << 32 | norm (f32)
//! ```
//! Floats are little-endian, floats in numbers are their bits. `structures::vector::form` describes
//! stored vectors, ranges and norms. An M of 0 means 16. The entry of the graph is a node of its
//! highest level and is not written. The nodes come in any order: Redis writes the newest first.
//!
//! Nodes of version 0 have no worst links. Redis 8.0.2 reads and writes only these; 8.0.6 writes
//! version 1 and reads both. So version 0 is written. Redis 8.0.6 rejects a value with a link that
//! only one of its ends has, twice or to its own node, or with more links than the maximum.
//!
//! Reading is stricter than Redis 8.0.2: numbers and names of nodes must be unique. Damaged or
//! missing links are no error; the index then links all nodes anew. Redis stores vectors that are
//! not finite, which the index cannot: they become zeros. Redis writes arbitrary ranges for floats
//! and signs.
//!
//! Source: dumps of Redis 8.0.2 and 8.0.6, and the answers of both to changed dumps.

use keyspace::{Hasher, VectorSet};
use structures::vector::{
    Config, DIM_MAX, EF_CONSTRUCTION_DEFAULT, ImageError, M_DEFAULT, M_MAX, M_MIN, NodeImage, Projection,
    Quantization, Rebuild,
};

use super::error::{FormatError, FormatErrorKind};
use super::module_id::ModuleId;
use super::rules::Rules;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};

/// The opcode that ends the items of a vector set in the RDB format.
const END: u64 = 0;
/// The opcode of a number among the items of a vector set.
const NUMBER: u64 = 2;
/// The opcode of a string among the items of a vector set.
const STRING: u64 = 5;

/// The flag of a stored vector set with a projection matrix.
const HAS_MATRIX: u64 = 1;
/// The flag of a stored vector set whose nodes have attributes.
const HAS_ATTRIBUTES: u64 = 2;

/// The highest level of a node in the graph of a vector set. Redis draws no higher one.
const LEVEL_MAX: u64 = 16;
/// The highest version of a vector set's nodes that is read.
const NODE_VERSION_MAX: u64 = 1;

/// Reads a vector set in the RDB format. O(bytes), or O(n log n) distances if its links are
/// damaged.
pub(super) fn read<S: Source>(reader: &mut Reader<S>, rules: &Rules<'_>) -> Result<VectorSet, FormatError> {
    let id = ModuleId(reader.length()?);
    if id != ModuleId::VECTOR_SET {
        return Err(reader.error(FormatErrorKind::UnknownModule(id)));
    }
    let mut items = Items { reader };
    let head = Head::read(&mut items)?;
    let projection = match head.flags & HAS_MATRIX {
        0 => None,
        _ => Some(read_matrix(&mut items, head.config.dim)?),
    };
    let mut rebuild = Rebuild::new(head.config, seed(rules.hasher));
    let mut has_links = false;
    for left in (0..head.nodes).rev() {
        let mut node = Node::read(&mut items, &head)?;
        has_links |= node.links.first().is_some_and(|links| !links.is_empty());
        if left == 0 && head.nodes > 1 && !has_links {
            // Without lists, the index links all nodes anew.
            node.links.clear();
        }
        rebuild.push(&node.image()).map_err(|error| items.reader.error(kind_of(error)))?;
    }
    if items.reader.length()? != END {
        return Err(items.broken());
    }
    let index = rebuild.finish(EF_CONSTRUCTION_DEFAULT);
    let (index, _) = index.map_err(|error| items.reader.error(kind_of(error)))?;
    Ok(VectorSet::from_parts(index, projection))
}

/// Returns the seed of the random levels in a vector set's index. It stays secret: the positions of
/// keys in tables show at most a part of one factor of the seed.
fn seed(hasher: &Hasher) -> u64 {
    let number = |name| hasher.key(name).hash.number();
    number(b"names of elements").wrapping_mul(number(b"levels of nodes") | 1)
}

/// The items (numbers and strings) of a vector set that is being read from the RDB format.
struct Items<'r, S> {
    reader: &'r mut Reader<S>,
}

impl<S: Source> Items<'_, S> {
    fn broken(&self) -> FormatError {
        self.reader.error(FormatErrorKind::BrokenVectorSet)
    }

    fn opcode(&mut self, expected: u64) -> Result<(), FormatError> {
        if self.reader.length()? == expected { Ok(()) } else { Err(self.broken()) }
    }

    fn number(&mut self) -> Result<u64, FormatError> {
        self.opcode(NUMBER)?;
        self.reader.length()
    }

    fn string(&mut self) -> Result<Vec<u8>, FormatError> {
        self.opcode(STRING)?;
        self.reader.string()
    }
}

/// The numbers of a stored vector set that precede its nodes in the RDB format.
struct Head {
    config: Config,
    nodes: u64,
    flags: u64,
}

impl Head {
    fn read<S: Source>(items: &mut Items<'_, S>) -> Result<Self, FormatError> {
        let (dim, nodes) = (items.number()?, items.number()?);
        let (form, flags) = (items.number()?, items.number()?);
        let quantization = match form & 0xFF {
            0 => Quantization::F32,
            1 => Quantization::Q8,
            2 => Quantization::Binary,
            _ => return Err(items.broken()),
        };
        let m = match (form >> 8 & 0xFFFF) as usize {
            0 => M_DEFAULT,
            m => m.clamp(M_MIN, M_MAX),
        };
        let dim = usize::try_from(dim).ok().filter(|dim| (1..=DIM_MAX).contains(dim));
        let dim = dim.ok_or_else(|| items.broken())?;
        Ok(Self { config: Config { dim, quantization, m }, nodes, flags })
    }
}

fn read_matrix<S: Source>(items: &mut Items<'_, S>, dim: usize) -> Result<Projection, FormatError> {
    let from = usize::try_from(items.number()?).map_err(|_| items.broken())?;
    let bytes = items.string()?;
    let (values, rest) = bytes.as_chunks::<4>();
    let values = values.iter().map(|value| f32::from_le_bytes(*value)).collect();
    let projection = Projection::from_matrix(from, dim, values).filter(|_| rest.is_empty());
    projection.ok_or_else(|| items.broken())
}

/// A node of a stored vector set as it was read, before it is added to the index.
struct Node {
    name: Vec<u8>,
    attributes: Vec<u8>,
    vector: Vec<u8>,
    uid: u64,
    /// The numbers of the nodes to which this node has links, by level; empty if the node's level
    /// is too high.
    links: Vec<Vec<u64>>,
    /// The range of the stored vector and its norm, as the bits of two `f32`.
    scales: u64,
}

impl Node {
    fn read<S: Source>(items: &mut Items<'_, S>, head: &Head) -> Result<Self, FormatError> {
        let name = items.string()?;
        let attributes = if head.flags & HAS_ATTRIBUTES == 0 { Vec::new() } else { items.string()? };
        let mut vector = items.string()?;
        if head.config.quantization == Quantization::F32 && !are_finite(&vector) {
            vector.fill(0);
        }
        let left = items.number()?;
        let mut parameters = Parameters { items, left };
        let uid = parameters.next()?;
        let links = parameters.links()?;
        let scales = parameters.next()?;
        parameters.pass_rest()?;
        Ok(Self { name, attributes, vector, uid, links, scales })
    }

    fn image(&mut self) -> NodeImage<'_> {
        NodeImage {
            uid: self.uid,
            name: &self.name,
            attributes: (!self.attributes.is_empty()).then_some(&self.attributes),
            vector: &self.vector,
            norm: finite_or(f32::MAX, self.scales as u32),
            range: finite_or(0.0, (self.scales >> 32) as u32),
            links: std::mem::take(&mut self.links),
        }
    }
}

fn kind_of(error: ImageError) -> FormatErrorKind {
    match error {
        ImageError::Name => FormatErrorKind::Duplicate,
        error => FormatErrorKind::BrokenVector(error),
    }
}

fn finite_or(other: f32, bits: u32) -> f32 {
    let value = f32::from_bits(bits);
    if value.is_finite() { value } else { other }
}

fn are_finite(vector: &[u8]) -> bool {
    vector.as_chunks::<4>().0.iter().all(|value| f32::from_le_bytes(*value).is_finite())
}

/// The parameters of a vector set's node that is being read from the RDB format: its level, links,
/// range and norm.
struct Parameters<'i, 'r, S> {
    items: &'i mut Items<'r, S>,
    left: u64,
}

impl<S: Source> Parameters<'_, '_, S> {
    fn next(&mut self) -> Result<u64, FormatError> {
        self.left = self.left.checked_sub(1).ok_or_else(|| self.items.broken())?;
        self.items.number()
    }

    fn pass_rest(&mut self) -> Result<(), FormatError> {
        while self.left > 0 {
            self.next()?;
        }
        Ok(())
    }

    /// Reads the level and the links of each level of a vector set's node. Returns no lists if the
    /// level is too high.
    fn links(&mut self) -> Result<Vec<Vec<u64>>, FormatError> {
        let number = self.next()?;
        let (level, version) = (number & 0xFF_FFFF, number >> 24);
        if version > NODE_VERSION_MAX {
            return Err(self.items.broken());
        }
        let mut levels = Vec::new();
        for at in 0..=level {
            let (count, _max) = (self.next()?, self.next()?);
            let mut links = Vec::new();
            for _ in 0..count {
                links.push(self.next()?);
            }
            if version > 0 {
                let _worst = self.next()?;
            }
            if at <= LEVEL_MAX {
                levels.push(links);
            }
        }
        Ok(if level <= LEVEL_MAX { levels } else { Vec::new() })
    }
}

/// Writes a vector set in the RDB format. O(bytes).
pub(super) fn write<S: Sink>(writer: &mut Writer<S>, set: &VectorSet) {
    let (index, projection) = (set.index(), set.projection());
    let config = index.config();
    let form = match config.quantization {
        Quantization::F32 => 0,
        Quantization::Q8 => 1,
        Quantization::Binary => 2,
    };
    let has_attributes = index.slots().any(|slot| index.attributes(slot).is_some());
    let flags =
        if projection.is_some() { HAS_MATRIX } else { 0 } | if has_attributes { HAS_ATTRIBUTES } else { 0 };
    writer.length(ModuleId::VECTOR_SET.0);
    for number in [config.dim as u64, index.len() as u64, form | (config.m as u64) << 8, flags] {
        write_number(writer, number);
    }
    if let Some(projection) = projection {
        write_number(writer, projection.from() as u64);
        let values = projection.matrix().iter().flat_map(|value| value.to_le_bytes());
        write_string(writer, &values.collect::<Vec<u8>>());
    }
    for slot in index.slots() {
        let mut image = index.image(slot);
        // Links of equal distance would otherwise be in the order of their places in memory.
        image.links.iter_mut().for_each(|links| links.sort_unstable());
        write_string(writer, image.name);
        if has_attributes {
            write_string(writer, image.attributes.unwrap_or_default());
        }
        write_string(writer, image.vector);
        write_parameters(writer, &image, config.m);
    }
    writer.length(END);
}

fn write_parameters<S: Sink>(writer: &mut Writer<S>, node: &NodeImage<'_>, m: usize) {
    let count: usize = node.links.iter().map(|links| 2 + links.len()).sum();
    write_number(writer, 3 + count as u64);
    write_number(writer, node.uid);
    write_number(writer, node.links.len() as u64 - 1);
    for (level, links) in node.links.iter().enumerate() {
        write_number(writer, links.len() as u64);
        write_number(writer, if level == 0 { 2 * m } else { m } as u64);
        links.iter().for_each(|link| write_number(writer, *link));
    }
    write_number(writer, u64::from(node.range.to_bits()) << 32 | u64::from(node.norm.to_bits()));
}

fn write_number<S: Sink>(writer: &mut Writer<S>, number: u64) {
    writer.length(NUMBER);
    writer.length(number);
}

fn write_string<S: Sink>(writer: &mut Writer<S>, bytes: &[u8]) {
    writer.length(STRING);
    writer.string(bytes);
}
