//! The true nearest neighbours of the queries, by exact search, and the recall of a reply.
//!
//! A row that is as near as the last true neighbour counts as a neighbour, too: equal rows are
//! equally good answers. `recall@k` of a reply is the share of the k neighbours wanted that the
//! first k elements of the reply contain.

use std::thread;

use super::ELEMENT_DIGITS;

/// The greatest difference between two cosines that count as equal. It covers the rounding of sums
/// of 32-bit floats.
const EQUAL_COSINES: f32 = 1e-6;
/// The largest number of rows kept as neighbours of a query, as a multiple of the neighbours
/// wanted. More rows that are equally near count as wrong.
const TIES_MAX: usize = 16;
/// The number of components of two vectors that are multiplied and summed in parallel.
const LANES: usize = 16;
/// The largest number of threads that search the true neighbours.
const THREADS_MAX: usize = 64;

/// The true nearest neighbours of each query, found by exact search.
#[derive(Debug, PartialEq, Eq)]
pub struct Truth {
    neighbours: usize,
    /// The rows of each query's neighbours, in ascending order of their numbers.
    rows: Vec<Vec<u32>>,
}

impl Truth {
    /// Searches the `neighbours` nearest of `rows` for each of `queries`. All have norm 1 and
    /// `dimensions` components. O(rows × queries × dimensions), on all processors.
    pub(super) fn search(rows: &[f32], queries: &[f32], dimensions: usize, neighbours: usize) -> Self {
        let all: Vec<&[f32]> = queries.chunks_exact(dimensions).collect();
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let share = all.len().div_ceil(threads).max(1);
        let parts = thread::scope(|scope| {
            let work = |part: &'_ [&'_ [f32]]| nearest(rows, part, neighbours);
            let parts: Vec<_> = all.chunks(share).map(|part| scope.spawn(move || work(part))).collect();
            let joined = parts.into_iter().map(|part| part.join().expect("a panic of a thread ends the run"));
            joined.collect::<Vec<_>>()
        });
        Self { neighbours, rows: parts.into_iter().flatten().collect() }
    }

    /// Returns the number of neighbours of each query that a search should find.
    pub fn neighbours(&self) -> usize {
        self.neighbours
    }

    /// Returns the number of true neighbours of `query` among the first elements of a reply.
    /// `names` is the names of the elements, concatenated. Names that are not row numbers count as
    /// wrong.
    pub fn found(&self, query: u64, names: &[u8]) -> usize {
        let Some(true_rows) = usize::try_from(query).ok().and_then(|query| self.rows.get(query)) else {
            return 0;
        };
        let row = |name: &[u8]| std::str::from_utf8(name).ok()?.parse::<u32>().ok();
        let mut found: Vec<u32> =
            names.chunks_exact(ELEMENT_DIGITS).take(self.neighbours).filter_map(row).collect();
        found.sort_unstable();
        found.dedup();
        found.iter().filter(|row| true_rows.binary_search(row).is_ok()).count()
    }
}

/// The nearest rows of a query that were found so far.
struct Nearest {
    /// The rows with their cosines; the nearest come first after each [`Nearest::prune`].
    found: Vec<(f32, u32)>,
    /// The least cosine with the query of a row that may be a neighbour.
    least: f32,
}

impl Nearest {
    fn add(&mut self, cosine: f32, row: u32, neighbours: usize) {
        if cosine >= self.least {
            self.found.push((cosine, row));
            if self.found.len() >= TIES_MAX * neighbours {
                self.prune(neighbours);
            }
        }
    }

    /// Removes rows that are farther from the query than the wanted neighbours, and raises the
    /// least cosine.
    fn prune(&mut self, neighbours: usize) {
        self.found.sort_unstable_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        if let Some((last, _)) = self.found.get(neighbours - 1) {
            self.least = last - EQUAL_COSINES;
            self.found.retain(|(cosine, _)| *cosine >= self.least);
        }
        self.found.truncate(TIES_MAX * neighbours - 1);
    }
}

/// Returns the nearest of `rows` for each of `queries`, in ascending order of row numbers.
fn nearest(rows: &[f32], queries: &[&[f32]], neighbours: usize) -> Vec<Vec<u32>> {
    let Some(dimensions) = queries.first().map(|query| query.len()) else { return Vec::new() };
    let neighbours = neighbours.max(1);
    let empty = || Nearest { found: Vec::new(), least: f32::NEG_INFINITY };
    let mut all: Vec<Nearest> = queries.iter().map(|_| empty()).collect();
    for (row, vector) in rows.chunks_exact(dimensions).enumerate() {
        for (query, nearest) in queries.iter().zip(&mut all) {
            nearest.add(dot(query, vector), row as u32, neighbours);
        }
    }
    let finish = |mut nearest: Nearest| {
        nearest.prune(neighbours);
        let mut rows: Vec<u32> = nearest.found.iter().map(|(_, row)| *row).collect();
        rows.sort_unstable();
        rows
    };
    all.into_iter().map(finish).collect()
}

/// Returns the scalar product of two vectors, summed in [`LANES`] sums that the compiler keeps in
/// wide registers.
fn dot(one: &[f32], other: &[f32]) -> f32 {
    let mut sums = [0.0_f32; LANES];
    let (ones, others) = (one.chunks_exact(LANES), other.chunks_exact(LANES));
    let rest: f32 = ones.remainder().iter().zip(others.remainder()).map(|(a, b)| a * b).sum();
    for (one, other) in ones.zip(others) {
        for lane in 0..LANES {
            sums[lane] += one[lane] * other[lane];
        }
    }
    sums.iter().sum::<f32>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_rows_are_found_for_every_length() {
        let mut rng = fastrand::Rng::with_seed(9);
        for dimensions in [1, 2, 15, 16, 17, 40] {
            let mut draw =
                |count: usize| -> Vec<f32> { (0..count * dimensions).map(|_| rng.f32() - 0.5).collect() };
            let (rows, queries) = (draw(300), draw(7));
            let truth = Truth::search(&rows, &queries, dimensions, 4);
            for (at, query) in queries.chunks_exact(dimensions).enumerate() {
                let cosine = |row: usize| -> f32 {
                    rows[row * dimensions..].iter().zip(query).map(|(a, b)| a * b).sum()
                };
                let mut order: Vec<usize> = (0..300).collect();
                order.sort_by(|one, other| cosine(*other).total_cmp(&cosine(*one)));
                for row in &order[..4] {
                    assert!(truth.rows[at].contains(&(*row as u32)), "{dimensions}, query {at}");
                }
            }
        }
    }

    #[test]
    fn equally_near_rows_are_all_neighbours() {
        let mut rows = [1.0, 0.0].repeat(6);
        rows.extend([0.0, 1.0]);
        let truth = Truth::search(&rows, &[1.0, 0.0], 2, 2);
        assert_eq!(truth.rows, [[0, 1, 2, 3, 4, 5]]);
        let many = [1.0, 0.0].repeat(1_000);
        assert_eq!(Truth::search(&many, &[1.0, 0.0], 2, 2).rows[0].len(), TIES_MAX * 2 - 1);
    }

    #[test]
    fn recall_counts_the_true_elements_of_a_reply_once() {
        let truth = Truth { neighbours: 3, rows: vec![vec![2, 7, 11]] };
        for (names, expected) in [
            ("000000020000000700000011", 3),
            ("000000110000000200000099", 2),
            ("000000020000000200000002", 1),
            // The fourth element of a reply does not count.
            ("00000001000000030000000400000002", 0),
            ("apple---00000007", 1),
            ("", 0),
            ("0000", 0),
        ] {
            assert_eq!(truth.found(0, names.as_bytes()), expected, "{names}");
        }
        assert_eq!(truth.found(1, b"00000002"), 0);
    }
}
