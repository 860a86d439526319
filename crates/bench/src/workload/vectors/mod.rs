//! A data set of vectors with queries whose true nearest neighbours are known.
//!
//! ```text
//!   Source ─► generate │ format ─► rows, queries ─► exact search (truth) ─► VectorData
//! ```
//! [`Vectors`] names a data set; the data is made at its first use, before anything is measured,
//! and is shared by all runs. It depends only on the [`Source`] and the seed, so that a later run
//! knows the vectors that an earlier one added. Rows and queries have norm 1 and are kept as
//! requests contain them: little-endian 32-bit floats. Similarity is the cosine, as in VSIM.
//!
//! Memory: 4 bytes per component, and 4 more while the true neighbours are searched. Time of that
//! search: O(rows × queries × dimensions), on all processors.

mod format;
mod generate;
mod truth;

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use crate::BenchError;

pub use truth::Truth;

/// The number of digits in the name of an element: its row number.
pub const ELEMENT_DIGITS: usize = 8;
/// The largest number of rows, so that a row number has at most [`ELEMENT_DIGITS`] digits.
pub const ROWS_MAX: usize = 100_000_000;
/// The largest number of dimensions of vectors.
pub const DIMENSIONS_MAX: usize = 65_536;
/// The largest size of the rows and queries of a data set together, in bytes.
const DATA_BYTES_MAX: usize = 16 << 30;

/// The origin of the vectors of a data set.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// The vectors are random, in all directions with the same probability.
    Uniform,
    /// The vectors are grouped around random centres.
    Clustered {
        /// The number of random centres, each of which has one cluster.
        clusters: usize,
        /// The mean distance of vectors from their centre, as a share of the centre's norm.
        spread: f64,
    },
    /// The rows of a file: `.npy`, `.fvecs`, or else text with a row of numbers per line. The last
    /// rows are the queries.
    File(PathBuf),
}

/// The definition of a data set of vectors: its origin, size and seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// The origin of the vectors: generated or read from a file.
    pub source: Source,
    /// The number of rows, without the queries. A file may have fewer.
    pub rows: usize,
    /// The number of dimensions. With a file the first columns are used; all if `None`.
    pub dimensions: Option<usize>,
    /// The number of queries, the vectors that are searched for.
    pub queries: usize,
    /// The number of true neighbours of each query that are determined.
    pub neighbours: usize,
    /// The seed from which vectors are generated.
    pub seed: u64,
}

/// A data set that is made at its first use. Clones share the data.
#[derive(Clone, Debug)]
pub struct Vectors {
    definition: Arc<Definition>,
    data: Arc<OnceLock<VectorData>>,
}

/// The data of a data set: its rows and queries, and the true neighbours of the queries.
#[derive(Debug)]
pub struct VectorData {
    dimensions: usize,
    rows: Vec<u8>,
    queries: Vec<u8>,
    truth: Truth,
}

/// Vectors of equal length, stored one after the other.
#[derive(Debug, Default, PartialEq)]
struct Matrix {
    dimensions: usize,
    components: Vec<f32>,
}

impl Vectors {
    /// Creates a data set without making its data, which the first use makes.
    pub fn new(definition: Definition) -> Self {
        Self { definition: Arc::new(definition), data: Arc::default() }
    }

    /// Returns the definition of the data set: its origin, size and seed.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Returns the data. The first call makes it, which may take minutes for millions of rows.
    /// Returns an error if a file is unreadable or the data set is too large.
    pub fn load(&self) -> Result<&VectorData, BenchError> {
        if let Some(data) = self.data.get() {
            return Ok(data);
        }
        let data = VectorData::make(&self.definition)?;
        Ok(self.data.get_or_init(|| data))
    }

    /// Returns the data of the data set if it was made already.
    pub fn loaded(&self) -> Option<&VectorData> {
        self.data.get()
    }
}

impl VectorData {
    fn make(definition: &Definition) -> Result<Self, BenchError> {
        let all = definition.rows.saturating_add(definition.queries);
        let too_large = |dimensions: usize| {
            let bytes = all.saturating_mul(dimensions).saturating_mul(size_of::<f32>());
            bytes > DATA_BYTES_MAX || definition.rows > ROWS_MAX || dimensions > DIMENSIONS_MAX
        };
        if too_large(definition.dimensions.unwrap_or(1)) {
            return Err(BenchError::Usage("the set of vectors is too large for saker-bench".to_owned()));
        }
        let mut matrix = match &definition.source {
            Source::File(path) => format::read(path, all, definition.dimensions)?,
            generated => generate::matrix(generated, definition, all),
        };
        let held = matrix.rows();
        let added = held.saturating_sub(definition.queries);
        if added < definition.neighbours.max(1) || definition.queries == 0 {
            return Err(BenchError::Usage(format!(
                "{held} vectors are too few for {} queries and {} neighbours",
                definition.queries, definition.neighbours
            )));
        }
        if let Some(row) = matrix.normalize() {
            return Err(BenchError::Usage(format!("vector {row} is zero or has an infinite norm")));
        }
        let dimensions = matrix.dimensions;
        let (rows, queries) = matrix.components.split_at(added * dimensions);
        let truth = Truth::search(rows, queries, dimensions, definition.neighbours);
        let bytes = |components: &[f32]| components.iter().flat_map(|part| part.to_le_bytes()).collect();
        Ok(Self { dimensions, rows: bytes(rows), queries: bytes(queries), truth })
    }

    /// Returns the number of rows (vectors) of the data set, without the queries.
    pub fn rows(&self) -> usize {
        self.rows.len() / self.row_len_bytes()
    }

    /// Returns the number of queries of the data set.
    pub fn queries(&self) -> usize {
        self.queries.len() / self.row_len_bytes()
    }

    /// Returns the number of dimensions of the data set's vectors.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Returns the bytes of row `row` modulo the number of rows.
    #[inline]
    pub fn row(&self, row: u64) -> &[u8] {
        cut(&self.rows, row, self.row_len_bytes())
    }

    /// Returns the bytes of query `query` modulo the number of queries.
    #[inline]
    pub fn query(&self, query: u64) -> &[u8] {
        cut(&self.queries, query, self.row_len_bytes())
    }

    /// Returns the true neighbours of the data set's queries.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    fn row_len_bytes(&self) -> usize {
        self.dimensions * size_of::<f32>()
    }
}

/// Returns the piece of `bytes` with index `at` modulo the number of pieces of `len` bytes.
fn cut(bytes: &[u8], at: u64, len: usize) -> &[u8] {
    let at = (at % (bytes.len() / len) as u64) as usize;
    &bytes[at * len..][..len]
}

impl Matrix {
    fn rows(&self) -> usize {
        self.components.len().checked_div(self.dimensions).unwrap_or(0)
    }

    /// Divides each row by its norm. Returns the index of a row that has no direction: its norm is
    /// zero, infinite or not a number.
    fn normalize(&mut self) -> Option<usize> {
        for (at, row) in self.components.chunks_exact_mut(self.dimensions).enumerate() {
            let norm = row.iter().map(|part| f64::from(*part).powi(2)).sum::<f64>().sqrt();
            if !(norm.is_finite() && norm > 0.0) {
                return Some(at);
            }
            row.iter_mut().for_each(|part| *part = (f64::from(*part) / norm) as f32);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(source: Source) -> Definition {
        Definition { source, rows: 500, dimensions: Some(16), queries: 20, neighbours: 5, seed: 7 }
    }

    #[test]
    fn the_same_seed_makes_the_same_data() {
        for source in [Source::Uniform, Source::Clustered { clusters: 10, spread: 0.3 }] {
            let make = |seed| VectorData::make(&Definition { seed, ..definition(source.clone()) }).unwrap();
            let (one, same, other) = (make(7), make(7), make(8));
            assert_eq!((&one.rows, &one.queries), (&same.rows, &same.queries));
            assert_ne!(one.rows, other.rows);
            assert_eq!((one.rows(), one.queries(), one.dimensions()), (500, 20, 16));
            assert_eq!(one.row(500), one.row(0));
        }
    }

    #[test]
    fn rows_and_queries_have_norm_one() {
        let data = VectorData::make(&definition(Source::Uniform)).unwrap();
        for bytes in [data.row(3), data.query(4)] {
            let parts = bytes.chunks_exact(4).map(|part| f32::from_le_bytes(part.try_into().unwrap()));
            let square: f32 = parts.map(|part| part * part).sum();
            assert!((square - 1.0).abs() < 1e-5, "{square}");
        }
    }

    #[test]
    fn impossible_data_sets_are_refused() {
        let refused = |change: fn(&mut Definition)| {
            let mut wrong = definition(Source::Uniform);
            change(&mut wrong);
            VectorData::make(&wrong).unwrap_err().to_string()
        };
        assert!(refused(|wrong| wrong.neighbours = 501).contains("too few"));
        assert!(refused(|wrong| wrong.rows = usize::MAX).contains("too large"));
        assert!(refused(|wrong| wrong.dimensions = Some(usize::MAX)).contains("too large"));
        let mut matrix = Matrix { dimensions: 2, components: vec![1.0, 0.0, 0.0, 0.0] };
        assert_eq!(matrix.normalize(), Some(1));
    }
}
