//! Generated vectors: uniform directions, and clusters.
//!
//! A component is drawn from the normal distribution, so that no direction is preferred. The
//! vectors of a cluster are its centre plus such a vector times the spread. With a spread of 0.5,
//! two vectors of one cluster have a cosine of about 0.8, two of different clusters about 0.

use super::{Definition, Matrix, Source};

/// Generates `all` vectors of the data set `definition`, the rows before the queries.
/// O(components).
pub(super) fn matrix(source: &Source, definition: &Definition, all: usize) -> Matrix {
    let dimensions = definition.dimensions.unwrap_or(1).max(1);
    let mut normal = Normal::new(definition.seed);
    let mut components: Vec<f32> = Vec::with_capacity(all * dimensions);
    if let Source::Clustered { clusters, spread } = source {
        let centres: Vec<f32> = (0..clusters * dimensions).map(|_| normal.next()).collect();
        for _ in 0..all {
            let centre = normal.rng.usize(..*clusters) * dimensions;
            let centre = &centres[centre..][..dimensions];
            components.extend(centre.iter().map(|middle| middle + normal.next() * *spread as f32));
        }
    } else {
        components.extend((0..all * dimensions).map(|_| normal.next()));
    }
    Matrix { dimensions, components }
}

/// A source of numbers from the normal distribution with mean 0 and deviation 1, by the polar
/// method, which makes two numbers at a time.
struct Normal {
    rng: fastrand::Rng,
    spare: Option<f32>,
}

impl Normal {
    fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), spare: None }
    }

    fn next(&mut self) -> f32 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let (x, y) = (2.0 * self.rng.f32() - 1.0, 2.0 * self.rng.f32() - 1.0);
            let square = x * x + y * y;
            if square > 0.0 && square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn generated(source: Source) -> Matrix {
        let definition =
            Definition { source, rows: 2_000, dimensions: Some(32), queries: 0, neighbours: 1, seed: 3 };
        let mut matrix = matrix(&definition.source, &definition, 2_000);
        assert_eq!(matrix.normalize(), None);
        matrix
    }

    /// Returns the mean, over some of the first vectors, of the greatest cosine between the vector
    /// and all others.
    fn nearest(matrix: &Matrix) -> f32 {
        let rows: Vec<&[f32]> = matrix.components.chunks_exact(matrix.dimensions).collect();
        let cosine = |one: &[f32], other: &[f32]| -> f32 { one.iter().zip(other).map(|(a, b)| a * b).sum() };
        let best = |at: usize| {
            let others = (0..rows.len()).filter(|other| *other != at);
            others.map(|other| cosine(rows[at], rows[other])).fold(-1.0, f32::max)
        };
        (0..20).map(best).sum::<f32>() / 20.0
    }

    #[test]
    fn clustered_vectors_have_near_neighbours_and_uniform_ones_have_not() {
        let clustered = nearest(&generated(Source::Clustered { clusters: 20, spread: 0.3 }));
        let uniform = nearest(&generated(Source::Uniform));
        assert!(clustered > 0.9 && uniform < 0.75, "{clustered} {uniform}");
    }

    #[test]
    fn components_follow_the_normal_distribution() {
        let mut normal = Normal::new(5);
        let numbers: Vec<f64> = (0..100_000).map(|_| f64::from(normal.next())).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let square = numbers.iter().map(|number| number * number).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.02, "{mean} {square}");
    }
}
