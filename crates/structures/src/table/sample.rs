//! A sample of a few elements from anywhere in a table, which eviction compares.

use super::bucket::{Bucket, DEADLINE, POINTER_MASK, SLOTS, pointer_of};
use super::segment::{Segment, Slot};
use super::{Borrowed, Place, Table, Thin};
use crate::prefetch::prefetch_read;

/// The most elements that a caller can request of one sample.
pub const SAMPLE_MAX: usize = 64;

/// The kind of elements from which a sample of a table is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sampled {
    /// All elements of the table may be drawn.
    All,
    /// Only elements with a deadline of their own may be drawn.
    Expiring,
}

/// The number of directory places up to which [`Table::memory_usage`] reads all of them. In a
/// larger directory it reads this number of places, evenly spread.
const MEASURED_PLACES_MAX: usize = 1024;

/// The mean number of bytes that an element takes in directory and buckets: a word, at a fill of 63
/// to 81 percent.
const ELEMENT_LEN_BYTES_MEAN: usize = 12;

impl<E: Thin> Table<E> {
    /// Returns the places of all elements in the table. O(n).
    pub fn all_places(&self) -> Vec<Place> {
        let mut places = Vec::with_capacity(self.len);
        for segment in self.first_places() {
            for (bucket, here) in self.directory[segment].buckets().iter().enumerate() {
                let taken = (0..SLOTS).filter(|&slot| here.words[slot] & POINTER_MASK != 0);
                places.extend(taken.map(|slot| Place { segment, slot: Slot { bucket, slot } }));
            }
        }
        places
    }

    /// Returns the mean number of bytes that the directory and buckets of a table with this number
    /// of elements take. O(1).
    #[inline]
    pub fn len_bytes_mean(&self) -> usize {
        self.len * ELEMENT_LEN_BYTES_MEAN
    }

    /// Returns the element at this position whose key satisfies `is`; `None` if there is none. For
    /// callers that know the hashes of keys, but not the keys. O(1).
    pub fn find_where(&self, position: u64, is: impl Fn(&[u8]) -> bool) -> Option<Borrowed<'_, E>> {
        let segment = self.directory.get(self.place_of(position))?;
        let tag = segment.tag(position);
        let (buckets, home) = (segment.buckets(), segment.home(tag));
        for bucket in (home..buckets.len()).chain(0..home).map(|at| &buckets[at]) {
            let mut matches = bucket.matches(tag);
            while matches != 0 {
                let word = bucket.words[matches.trailing_zeros() as usize];
                if word & POINTER_MASK != 0 {
                    let element = Borrowed::<E>::new(word);
                    if is(element.key()) {
                        return Some(element);
                    }
                }
                matches &= matches - 1;
            }
            if !bucket.overflows() {
                break;
            }
        }
        None
    }

    /// Calls `visit` with a sample: at least `count` elements that follow the point `start` of the
    /// hash space. `count` is limited to [`SAMPLE_MAX`] and to the number of elements of the kind
    /// `of`; only these are visited. With a random `start` the choice is close to random, because
    /// hashes are spread randomly. Returns the number visited. O(count), plus a load per segment
    /// without such elements. The elements' memory is prefetched together.
    ///
    /// It visits whole buckets, up to [`SLOTS`] - 1 elements more than requested. If it stopped
    /// within a bucket, elements in the last slots would hardly ever be chosen.
    pub fn sample(
        &self,
        start: u64,
        count: usize,
        of: Sampled,
        mut visit: impl FnMut(Borrowed<'_, E>),
    ) -> usize {
        let (available, mask) = match of {
            Sampled::All => (self.len, POINTER_MASK),
            Sampled::Expiring => (self.due_counts.own, DEADLINE),
        };
        let wanted = count.min(SAMPLE_MAX).min(available);
        if wanted == 0 {
            return 0;
        }
        let mut found = [0; SAMPLE_MAX + SLOTS];
        let mut len = 0;
        let mut first = self.first_place(self.place_of(start));
        let mut buckets_from = self.directory[first].home(self.directory[first].tag(start));
        // The segment of the start is read twice: first from the start, and last up to the start.
        let (start_first, start_bucket) = (first, buckets_from);
        for round in 0..=self.directory.len() {
            let segment = &self.directory[first];
            let again = round > 0 && first == start_first;
            if of == Sampled::All || segment.deadlines > 0 {
                let end = if again { start_bucket } else { segment.bucket_count() };
                for bucket in &segment.buckets()[buckets_from..end] {
                    if len >= wanted {
                        break;
                    }
                    for word in bucket.words {
                        if word & mask != 0 && word & POINTER_MASK != 0 {
                            prefetch_read(pointer_of(word).as_ptr());
                            found[len] = word;
                            len += 1;
                        }
                    }
                }
            }
            if len >= wanted || again {
                break;
            }
            (first, buckets_from) = (self.places(first).end % self.directory.len(), 0);
        }
        // New elements take the first free slot, so an order by slots would visit the youngest
        // first.
        let (before, from) = found[..len].split_at((start % len.max(1) as u64) as usize);
        for &word in from.iter().chain(before) {
            visit(Borrowed::new(word));
        }
        len
    }

    /// Returns the bytes of the table's directory and buckets. O(segments) up to a thousand
    /// segments; for more, an estimate from a thousand.
    pub fn memory_usage(&self) -> usize {
        let directory = self.directory.len() * size_of::<Segment>();
        let buckets = if self.directory.len() <= MEASURED_PLACES_MAX {
            self.first_places().map(|at| self.directory[at].bucket_count()).sum()
        } else {
            // A segment with several places counts in each for its part. The number of places is a
            // power of two.
            let step = self.directory.len() / MEASURED_PLACES_MAX;
            let parts = self.directory.iter().step_by(step);
            let parts = parts.map(|segment| (segment.bucket_count() << 16) >> (self.depth - segment.depth()));
            (parts.sum::<usize>() * step) >> 16
        };
        buckets * size_of::<Bucket>() + directory
    }
}
