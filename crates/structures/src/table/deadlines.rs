//! The deadlines of elements as a table and its segments store them. Times are milliseconds of any
//! one clock.

use super::Thin;
use super::bucket::{DEADLINE, PARTS};

/// The form in which an element's deadlines are stored in its word and its segment.
#[derive(Clone, Copy)]
pub(super) struct StoredDeadlines {
    /// The flags of the element's word: [`DEADLINE`], [`PARTS`], both or none.
    pub(super) flags: u64,
    /// A lower bound of the deadlines of the element and its parts, in seconds; `u32::MAX` without
    /// deadlines.
    pub(super) min_s: u32,
}

impl StoredDeadlines {
    #[inline]
    pub(super) fn of<E: Thin>(element: &E) -> Self {
        let mut dues = StoredDeadlines { flags: 0, min_s: u32::MAX };
        if let Some(at_ms) = element.deadline_ms() {
            dues = StoredDeadlines { flags: DEADLINE, min_s: deadline_s(at_ms) };
        }
        if let Some(at_ms) = element.part_deadline_ms() {
            dues.flags |= PARTS;
            dues.min_s = dues.min_s.min(deadline_s(at_ms));
        }
        dues
    }
}

/// The number of a table's elements with a deadline of their own, and the number of those that have
/// parts with deadlines.
#[derive(Clone, Copy, Default)]
pub(super) struct DueCounts {
    pub(super) own: usize,
    pub(super) parts: usize,
}

impl DueCounts {
    /// Updates the counts of elements with deadlines for an element whose flags changed from `had`
    /// to `has`.
    #[inline]
    pub(super) fn note(&mut self, had: u64, has: u64) {
        self.own = self.own + usize::from(has & DEADLINE != 0) - usize::from(had & DEADLINE != 0);
        self.parts = self.parts + usize::from(has & PARTS != 0) - usize::from(had & PARTS != 0);
    }
}

/// Converts a deadline to seconds, rounded down and clamped to the range that a segment can store.
#[inline]
pub(super) fn deadline_s(at_ms: i64) -> u32 {
    u32::try_from(at_ms.max(0) / 1000).unwrap_or(u32::MAX)
}
