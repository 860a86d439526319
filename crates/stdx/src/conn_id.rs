//! Names of connections. Each carries a generation beside its slot, so that an event that arrives
//! late for a closed connection never reaches the next one in the same slot.

/// A connection of one event loop: slot index in the low half, generation (from 1) in the high
/// half. An index is used again only after the connection was closed and the next `poll` has begun,
/// and then under another generation; calls with an id of the past do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(u64);

impl ConnId {
    /// Creates the id of the connection of this slot and generation.
    #[inline]
    pub fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// Returns the slot: dense from 0, so a caller can keep a `Vec` of its own in step.
    #[inline]
    pub fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    /// Returns the generation: the number of the connection among those of its slot.
    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the id as one number, to pass through a system call.
    #[inline]
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// Returns the id for a number of [`to_u64`](Self::to_u64). Any other number names no
    /// connection.
    #[inline]
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }
}
