//! The sizes and the content of values.
//!
//! Values are slices of a pool of bytes that is made once. A slice begins at a random place, so
//! making a value needs only a copy. A pool depends only on its kind of content and its length. A
//! later run therefore knows the values that an earlier one wrote.

use std::sync::Arc;

use super::draw::Draw;
use crate::BenchError;

/// The number of different offsets in the pool at which a value may begin.
const STARTS: usize = 1 << 16;
/// The longest value, in bytes: Redis's limit of a string.
pub(super) const VALUE_LEN_BYTES_MAX: usize = 512 << 20;
/// The length of the text that a compressible pool repeats, in bytes.
const COMPRESSIBLE_PERIOD: usize = 64;

/// The sizes of the values that requests write, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// All values have this size.
    Fixed(usize),
    /// Sizes are distributed uniformly over this range, both ends included.
    Range(usize, usize),
    /// Sizes are drawn by weight: (length, weight), with weights above 0.
    Weighted(Vec<(usize, u32)>),
}

impl Sizes {
    /// Parses the sizes of values: `64`, `10-100` (a range) or `32:50,64:50` (sizes, each with its
    /// weight, as in memtier_benchmark's `--data-size-list`).
    pub fn parse(text: &str) -> Result<Self, BenchError> {
        let wrong = || BenchError::Usage(format!("{text:?} is not a size such as 64, 10-100 or 32:50,64:50"));
        let length = |text: &str| {
            let length = text.trim().parse::<usize>().map_err(|_| wrong())?;
            if length <= VALUE_LEN_BYTES_MAX { Ok(length) } else { Err(wrong()) }
        };
        if text.contains(':') {
            let mut sizes = Vec::new();
            for entry in text.split(',') {
                let (size, weight) = entry.split_once(':').ok_or_else(wrong)?;
                let weight = weight.trim().parse::<u32>().map_err(|_| wrong())?;
                if !(1..=1_000_000).contains(&weight) {
                    return Err(wrong());
                }
                sizes.push((length(size)?, weight));
            }
            return Ok(Sizes::Weighted(sizes));
        }
        match text.split_once('-') {
            None => Ok(Sizes::Fixed(length(text)?)),
            Some((min, max)) => {
                let (min, max) = (length(min)?, length(max)?);
                if min <= max { Ok(Sizes::Range(min, max)) } else { Err(wrong()) }
            }
        }
    }

    /// Returns the largest of the sizes, in bytes.
    pub fn max(&self) -> usize {
        match self {
            Sizes::Fixed(len) | Sizes::Range(_, len) => *len,
            Sizes::Weighted(sizes) => sizes.iter().map(|&(len, _)| len).max().unwrap_or(0),
        }
    }

    fn choose(&self, rng: &mut fastrand::Rng) -> usize {
        match self {
            Sizes::Fixed(len) => *len,
            Sizes::Range(min, max) => rng.usize(*min..=*max),
            Sizes::Weighted(sizes) => {
                let total: u64 = sizes.iter().map(|&(_, weight)| u64::from(weight)).sum();
                let mut left = rng.u64(..total);
                for &(len, weight) in sizes {
                    if left < u64::from(weight) {
                        return len;
                    }
                    left -= u64::from(weight);
                }
                self.max()
            }
        }
    }
}

/// Formats the sizes in the notation that [`Sizes::parse`] reads.
impl std::fmt::Display for Sizes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Sizes::Fixed(len) => write!(f, "{len}"),
            Sizes::Range(min, max) => write!(f, "{min}-{max}"),
            Sizes::Weighted(sizes) => {
                for (index, (len, weight)) in sizes.iter().enumerate() {
                    write!(f, "{}{len}:{weight}", if index > 0 { "," } else { "" })?;
                }
                Ok(())
            }
        }
    }
}

/// The content of the values that requests write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The same bytes in all values of equal length, as in redis-benchmark.
    Constant,
    /// Values consist of random letters and digits.
    Alphanumeric,
    /// Values consist of random bytes, which do not compress.
    Binary,
    /// Values consist of a short repeated text, which compresses well.
    Compressible,
}

/// A source of the values that requests write, with given sizes and content.
#[derive(Clone, Debug)]
pub struct Values {
    sizes: Sizes,
    /// The bytes from which values are cut. A value begins at one of the first `starts` bytes. From
    /// each of them, the longest value fits into the pool.
    pool: Arc<[u8]>,
    starts: usize,
}

impl Values {
    /// Creates a source of values with the given sizes and content.
    pub fn new(sizes: Sizes, content: Content) -> Self {
        let starts = if content == Content::Constant { 1 } else { STARTS };
        let len = sizes.max() + starts - 1;
        let mut rng = fastrand::Rng::with_seed(1234);
        let pool = match content {
            Content::Binary => std::iter::repeat_with(|| rng.u8(..)).take(len).collect(),
            Content::Constant | Content::Alphanumeric => {
                std::iter::repeat_with(|| rng.alphanumeric() as u8).take(len).collect()
            }
            Content::Compressible => {
                let text: Vec<u8> =
                    std::iter::repeat_with(|| rng.lowercase() as u8).take(COMPRESSIBLE_PERIOD).collect();
                text.iter().copied().cycle().take(len).collect()
            }
        };
        Self { sizes, pool, starts }
    }

    /// Returns the sizes of the values that this source makes.
    pub fn sizes(&self) -> &Sizes {
        &self.sizes
    }

    /// Returns the size of all values in bytes; `None` if sizes differ.
    pub(super) fn fixed_len(&self) -> Option<usize> {
        if let Sizes::Fixed(len) = self.sizes { Some(len) } else { None }
    }

    /// Returns the next value: random, or the value of the request's key if values follow keys.
    #[inline]
    pub(super) fn next(&self, draw: &mut Draw) -> &[u8] {
        if draw.values_follow_keys {
            return self.of_key(draw.key);
        }
        let len = self.sizes.choose(&mut draw.rng);
        let start = if self.starts > 1 { draw.rng.usize(..self.starts) } else { 0 };
        &self.pool[start..start + len]
    }

    /// Returns the value that belongs to key number `key` if values follow keys.
    pub fn of_key(&self, key: u64) -> &[u8] {
        let mut rng = fastrand::Rng::with_seed(key);
        let len = self.sizes.choose(&mut rng);
        let start = rng.usize(..self.starts);
        &self.pool[start..start + len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Sequences;

    #[test]
    fn sizes_are_read_in_their_three_forms() {
        for text in ["64", "10-100", "32:50,64:50", "0"] {
            assert_eq!(Sizes::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "-1", "9-2", "a", "32:0", "32:", "1:1,", "9999999999999", "513000000000"] {
            assert!(Sizes::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_drawn_from_their_distribution() {
        let mut draw = Draw::new(3, Sequences::new(0));
        let lengths = |text: &str, draw: &mut Draw| -> Vec<usize> {
            let values = Values::new(Sizes::parse(text).unwrap(), Content::Binary);
            (0..10_000).map(|_| values.next(draw).len()).collect()
        };
        assert!(lengths("7", &mut draw).iter().all(|&len| len == 7));
        let range = lengths("10-20", &mut draw);
        assert_eq!((range.iter().min(), range.iter().max()), (Some(&10), Some(&20)));
        let weighted = lengths("5:1,50:3", &mut draw);
        let long = weighted.iter().filter(|&&len| len == 50).count();
        assert!((7_200..7_800).contains(&long) && weighted.iter().all(|len| [5, 50].contains(len)), "{long}");
    }

    #[test]
    fn compressible_values_repeat_and_random_ones_do_not() {
        let different = |content: Content| {
            let mut draw = Draw::new(3, Sequences::new(0));
            let values = Values::new(Sizes::Fixed(10_000), content);
            let value = values.next(&mut draw);
            value.windows(6).collect::<std::collections::HashSet<_>>().len()
        };
        assert!(different(Content::Compressible) <= COMPRESSIBLE_PERIOD);
        assert!(different(Content::Binary) > 9_900 && different(Content::Alphanumeric) > 9_900);
    }

    #[test]
    fn lengths_of_a_range_are_drawn_evenly() {
        let mut draw = Draw::new(3, Sequences::new(0));
        let values = Values::new(Sizes::Range(1, 100), Content::Binary);
        let lengths: Vec<usize> = (0..100_000).map(|_| values.next(&mut draw).len()).collect();
        for quarter in 0..4 {
            let count = lengths.iter().filter(|&&len| (len - 1) / 25 == quarter).count();
            assert!((24_000..26_000).contains(&count), "{quarter}: {count}");
        }
    }

    #[test]
    fn constant_values_are_the_same_and_random_ones_differ() {
        let mut draw = Draw::new(3, Sequences::new(0));
        let constant = Values::new(Sizes::Fixed(20), Content::Constant);
        assert_eq!(constant.next(&mut draw).to_vec(), constant.next(&mut draw));
        let random = Values::new(Sizes::Fixed(20), Content::Alphanumeric);
        assert_ne!(random.next(&mut draw).to_vec(), random.next(&mut draw));
        assert!(random.next(&mut draw).iter().all(u8::is_ascii_alphanumeric));
    }

    #[test]
    fn a_value_that_follows_its_key_is_known_to_another_run() {
        let mut draw = Draw::new(3, Sequences::new(0));
        draw.let_values_follow_keys();
        draw.key = 42;
        let one = Values::new(Sizes::Range(1, 99), Content::Binary);
        let other = Values::new(Sizes::Range(1, 99), Content::Binary);
        assert_eq!(one.next(&mut draw), other.of_key(42));
        assert_ne!(other.of_key(43), other.of_key(42));
    }
}
