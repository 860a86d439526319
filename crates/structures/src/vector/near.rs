//! A node of a vector index with its distance from some vector, in one word that is ordered by the
//! distance.

/// A node and its distance from some vector, ordered by the distance, then by the slot. Distances
/// are not negative, so the order of their bits is their order; those that are not a number come
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Near(u64);

impl Near {
    #[inline]
    pub(super) fn new(distance: f32, slot: u32) -> Self {
        // A negative zero becomes a positive one.
        Self(u64::from((distance + 0.0).to_bits()) << 32 | u64::from(slot))
    }

    #[inline]
    pub(super) fn distance(self) -> f32 {
        f32::from_bits((self.0 >> 32) as u32)
    }

    #[inline]
    pub(super) fn slot(self) -> u32 {
        self.0 as u32
    }
}
