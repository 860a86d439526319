//! Identifiers of connections. An identifier has a slot and a generation, so that a late event for
//! a closed connection never reaches the next connection in the same slot.

/// The identifier of a connection of one event loop. The slot is in the low half, the generation in
/// the high half; generations start at 1. A slot is reused only after its connection was closed and
/// the event loop has begun its next `poll`, and then with another generation. The event loop
/// ignores calls with an outdated identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(u64);

impl ConnId {
    /// Creates the identifier of the connection with this slot and generation.
    #[inline]
    pub fn new(index: u32, generation: u32) -> Self {
        Self(u64::from(generation) << 32 | u64::from(index))
    }

    /// Returns the slot. Slots are dense from 0, so a caller can use a slot as the index of a
    /// `Vec`.
    #[inline]
    pub fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    /// Returns the generation: the sequence number of the connection among those that have used its
    /// slot, from 1.
    #[inline]
    pub fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the identifier as one number, to pass through a system call.
    #[inline]
    pub fn to_u64(self) -> u64 {
        self.0
    }

    /// Converts a number that [`to_u64`](Self::to_u64) returned back to its identifier. Any other
    /// number identifies no connection.
    #[inline]
    pub fn from_u64(number: u64) -> Self {
        Self(number)
    }
}
