//! The stored form of vectors, and the distance between two of them.
//!
//! ```text
//!   F32     value f32 LE × dim, zeros up to a multiple of 16 bytes
//!   Q8      value i8 × dim, zeros up to a multiple of 16 bytes | range f32 LE
//!   Binary  sign bits, words u64 LE, zeros up to a multiple of 16 bytes
//! ```
//! A byte `b` of Q8 stands for `b / 127 * range`, where the range is the largest absolute value.

use super::kernel::Simd;
use super::{Quantization, VectorError};

/// The layout of a row, which has the stored form of one vector.
#[derive(Clone, Copy, Debug)]
pub(super) struct Form {
    dim: usize,
    quantization: Quantization,
    simd: Simd,
    /// The length in bytes of a row's values with the zeros after them.
    padded_len_bytes: usize,
}

/// Returns the similarity of two vectors for their distance: 1 for the distance 0, 0 for the
/// distance 2.
pub(super) fn similarity(distance: f32) -> f64 {
    1.0 - f64::from(distance) / 2.0
}

impl Form {
    /// Returns the layout of rows of `dim` values in this form.
    pub(super) fn new(dim: usize, quantization: Quantization) -> Self {
        let form = Self { dim, quantization, simd: Simd::detect(), padded_len_bytes: 0 };
        Self { padded_len_bytes: form.body_len_bytes().next_multiple_of(16), ..form }
    }

    /// Returns the length in bytes of the values of a row, without the zeros after them.
    pub(super) fn body_len_bytes(self) -> usize {
        match self.quantization {
            Quantization::F32 => self.dim * 4,
            Quantization::Q8 => self.dim,
            Quantization::Binary => self.dim.div_ceil(64) * 8,
        }
    }

    /// Returns the length in bytes of a row, which stores one vector.
    pub(super) fn row_len_bytes(self) -> usize {
        self.padded_len_bytes + if self.quantization == Quantization::Q8 { 4 } else { 0 }
    }

    /// Returns the bytes of a row's values, without the zeros and the range after them.
    pub(super) fn body(self, row: &[u8]) -> &[u8] {
        &row[..self.body_len_bytes()]
    }

    /// Returns the range (the value of a byte of 127) of a row of bytes; `None` for other forms.
    pub(super) fn range(self, row: &[u8]) -> Option<f32> {
        (self.quantization == Quantization::Q8).then(|| f32_at(row, self.padded_len_bytes))
    }

    /// Returns `vector` with norm 1, and its norm. A vector of zeros stays as it is and has the
    /// norm 1, as in Redis.
    pub(super) fn normalise(self, vector: &[f32]) -> Result<(Vec<f32>, f32), VectorError> {
        if vector.len() != self.dim {
            return Err(VectorError::Dimension);
        }
        let norm = vector.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt() as f32;
        if !norm.is_finite() {
            return Err(VectorError::NotFinite);
        }
        let norm = if norm == 0.0 { 1.0 } else { norm };
        Ok((vector.iter().map(|value| value / norm).collect(), norm))
    }

    /// Writes a normalised vector into a row, in the stored form.
    pub(super) fn encode(self, unit: &[f32], row: &mut [u8]) {
        row.fill(0);
        match self.quantization {
            Quantization::F32 => {
                for (to, value) in row.chunks_exact_mut(4).zip(unit) {
                    to.copy_from_slice(&value.to_le_bytes());
                }
            }
            Quantization::Q8 => {
                let range = unit.iter().fold(0.0f32, |range, value| range.max(value.abs()));
                let scale = if range == 0.0 { 0.0 } else { 127.0 / range };
                for (to, value) in row.iter_mut().zip(unit) {
                    *to = (value * scale).round().clamp(-127.0, 127.0) as i8 as u8;
                }
                let at = self.padded_len_bytes;
                row[at..at + 4].copy_from_slice(&range.to_le_bytes());
            }
            Quantization::Binary => {
                for (at, _) in unit.iter().enumerate().filter(|(_, value)| **value > 0.0) {
                    row[at / 8] |= 1 << (at % 8);
                }
            }
        }
    }

    /// Returns true if all values in the bytes of a row are finite.
    pub(super) fn is_finite(self, body: &[u8]) -> bool {
        self.quantization != Quantization::F32
            || body.as_chunks::<4>().0.iter().all(|value| f32::from_le_bytes(*value).is_finite())
    }

    /// Writes the values and the range that a file stores into a row. `body` has the length of
    /// [`Form::body_len_bytes`].
    pub(super) fn restore(self, body: &[u8], range: f32, row: &mut [u8]) {
        row.fill(0);
        row[..body.len()].copy_from_slice(body);
        if self.quantization == Quantization::Q8 {
            let at = self.padded_len_bytes;
            row[at..at + 4].copy_from_slice(&range.to_le_bytes());
        }
    }

    /// Reads the vector of a row and multiplies it by its norm. Signs are 1 and -1, without the
    /// norm.
    pub(super) fn decode(self, row: &[u8], norm: f32) -> Vec<f32> {
        match self.quantization {
            Quantization::F32 => (0..self.dim).map(|at| f32_at(row, at * 4) * norm).collect(),
            Quantization::Q8 => {
                let range = f32_at(row, self.padded_len_bytes);
                row[..self.dim].iter().map(|byte| f32::from(*byte as i8) * range / 127.0 * norm).collect()
            }
            Quantization::Binary => {
                (0..self.dim).map(|at| if row[at / 8] >> (at % 8) & 1 == 1 { 1.0 } else { -1.0 }).collect()
            }
        }
    }

    /// Returns the distance of the vectors in two rows, from 0 to 2.
    #[inline(always)]
    pub(super) fn distance(self, a: &[u8], b: &[u8]) -> f32 {
        let distance = match self.quantization {
            Quantization::F32 => 1.0 - self.simd.dot_f32(a, b),
            Quantization::Q8 => {
                let (a, a_range) = a.split_at(self.padded_len_bytes);
                let (b, b_range) = b.split_at(self.padded_len_bytes);
                let ranges = f32_at(a_range, 0) * f32_at(b_range, 0);
                1.0 - self.simd.dot_i8(a, b) as f32 * ranges / (127.0 * 127.0)
            }
            Quantization::Binary => self.simd.different_bits(a, b) as f32 * 2.0 / self.dim as f32,
        };
        distance.clamp(0.0, 2.0)
    }
}

fn f32_at(row: &[u8], at: usize) -> f32 {
    f32::from_le_bytes(row[at..at + 4].try_into().expect("four bytes"))
}
