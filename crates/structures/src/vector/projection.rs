//! The projection of vectors to fewer dimensions by a fixed matrix: the option REDUCE of VADD.

/// A matrix that maps vectors of `from` dimensions to `to` dimensions.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    from: usize,
    /// The values of the matrix: one row of `from` values for each of the `to` dimensions.
    matrix: Box<[f32]>,
}

impl Projection {
    /// Creates the matrix that maps `from` to `to` dimensions: the first rows and columns of a
    /// Hadamard matrix, scaled. Redis 8.0 has the same one, so a vector becomes the same on a
    /// replica.
    ///
    /// # Panics
    /// If a number is zero.
    pub fn new(from: usize, to: usize) -> Self {
        assert!(from > 0 && to > 0, "the caller checks the dimensions");
        let scale = (1.0 / (from as f64).sqrt()) as f32;
        let value = |row: usize, column: usize| {
            if (row & column).count_ones().is_multiple_of(2) { scale } else { -scale }
        };
        let rows = (0..to).flat_map(|row| (0..from).map(move |column| value(row, column)));
        Self { from, matrix: rows.collect() }
    }

    /// Creates a projection from a given matrix, `to` rows of `from` values. Returns `None` if its
    /// length does not fit, or a value is not finite.
    pub fn from_matrix(from: usize, to: usize, matrix: Box<[f32]>) -> Option<Self> {
        let fits = from > 0 && to > 0 && from.checked_mul(to) == Some(matrix.len());
        (fits && matrix.iter().all(|value| value.is_finite())).then_some(Self { from, matrix })
    }

    /// Returns the number of dimensions of the vectors to project.
    pub fn from(&self) -> usize {
        self.from
    }

    /// Returns the number of dimensions of the projected vectors.
    pub fn to(&self) -> usize {
        self.matrix.len() / self.from
    }

    /// Returns the values of the matrix: `to` rows of `from` values.
    pub fn matrix(&self) -> &[f32] {
        &self.matrix
    }

    /// Projects a vector, that is, multiplies it by the matrix. O(from × to).
    ///
    /// # Panics
    /// If the vector has not `from` dimensions.
    pub fn apply(&self, vector: &[f32]) -> Vec<f32> {
        assert_eq!(vector.len(), self.from, "the caller checks the dimensions");
        self.matrix
            .chunks_exact(self.from)
            .map(|row| row.iter().zip(vector).map(|(a, b)| a * b).sum())
            .collect()
    }

    /// Returns the memory of the matrix in bytes.
    pub fn memory_usage(&self) -> usize {
        size_of_val::<[f32]>(&self.matrix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // The bits are from a DUMP of Redis 8.0.2 after VADD with REDUCE 2 and three values.
    #[test]
    fn the_matrix_is_that_of_redis() {
        let bits: Vec<u32> = Projection::new(3, 2).matrix().iter().map(|value| value.to_bits()).collect();
        let (plus, minus) = (0x3f13_cd3a, 0xbf13_cd3a);
        assert_eq!(bits, [plus, plus, plus, plus, minus, plus]);
    }
}
