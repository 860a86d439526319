//! A handful of elements from anywhere in a table: what eviction compares.

use super::bucket::{Bucket, DEADLINE, POINTER_MASK, pointer_of};
use super::segment::Segment;
use super::{Borrowed, Table, Thin};
use crate::prefetch::prefetch_read;

/// Elements that one sample gives at most.
pub const SAMPLE_MAX: usize = 64;

/// Directory places up to which [`Table::memory_usage`] looks at all of them; of more, it looks at so many.
const MEASURED_PLACES_MAX: usize = 1024;

impl<E: Thin> Table<E> {
    /// Shows `visit` up to `count` elements, at most [`SAMPLE_MAX`], that follow the point `start` of the
    /// hash space: close to a random choice where `start` is one, since hashes are. With
    /// `deadline_only`, elements with a deadline. Gives how many it showed. O(count), beyond that a load
    /// per segment passed over without a fitting element. The elements' memory is fetched together.
    pub fn sample(
        &self,
        start: u64,
        count: usize,
        deadline_only: bool,
        mut visit: impl FnMut(Borrowed<'_, E>),
    ) -> usize {
        let available = if deadline_only { self.due_counts.own } else { self.len };
        let wanted = count.min(SAMPLE_MAX).min(available);
        if wanted == 0 {
            return 0;
        }
        let mask = if deadline_only { DEADLINE } else { POINTER_MASK };
        let mut found = [0; SAMPLE_MAX];
        let mut len = 0;
        let mut first = self.first_place(self.place_of(start));
        let mut bucket = self.directory[first].home(self.directory[first].tag(start));
        // The segment of the start comes twice: from the start on, and at the end as a whole.
        for _ in 0..=self.directory.len() {
            let segment = &self.directory[first];
            if !deadline_only || segment.deadlines > 0 {
                for word in segment.buckets()[bucket..].iter().flat_map(|bucket| bucket.words) {
                    if word & mask != 0 && word & POINTER_MASK != 0 && len < wanted {
                        prefetch_read(pointer_of(word).as_ptr());
                        found[len] = word;
                        len += 1;
                    }
                }
            }
            if len == wanted {
                break;
            }
            (first, bucket) = (self.places(first).end % self.directory.len(), 0);
        }
        for &word in &found[..len] {
            visit(Borrowed::new(word));
        }
        len
    }

    /// Bytes of directory and buckets. O(segments) up to a thousand of them; of more, an estimate from a
    /// thousand.
    pub fn memory_usage(&self) -> usize {
        let directory = self.directory.len() * size_of::<Segment>();
        let buckets = if self.directory.len() <= MEASURED_PLACES_MAX {
            self.first_places().map(|at| self.directory[at].bucket_count()).sum()
        } else {
            // A segment in several places counts in each for its part. Places are a power of two.
            let step = self.directory.len() / MEASURED_PLACES_MAX;
            let parts = self.directory.iter().step_by(step);
            let parts = parts.map(|segment| (segment.bucket_count() << 16) >> (self.depth - segment.depth()));
            (parts.sum::<usize>() * step) >> 16
        };
        buckets * size_of::<Bucket>() + directory
    }
}
