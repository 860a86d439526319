//! The trait that the elements of a table implement.

use std::ptr::NonNull;

/// A thin owned pointer to a heap block with a key: the elements of a [`Table`](super::Table).
///
/// # Safety
/// `into_raw` gives a pointer aligned to 16 bytes below 2^48, `from_raw` restores the same element,
/// and `key` of an element never changes while it is in a table.
pub unsafe trait Thin: Sized {
    /// Converts the element to a pointer to its memory block, without freeing it.
    fn into_raw(self) -> NonNull<u8>;
    /// Converts a pointer back to its element.
    ///
    /// # Safety
    /// `raw` came from `into_raw` of the same type and is owned by nobody else.
    unsafe fn from_raw(raw: NonNull<u8>) -> Self;
    /// Returns the bytes of the key by which the table finds the element.
    fn key(&self) -> &[u8];
    /// Returns the deadline of the element, in milliseconds of the table's clock; `None` if it has
    /// none.
    fn deadline_ms(&self) -> Option<i64> {
        None
    }
    /// Returns a lower bound of the earliest deadline of the element's parts, in milliseconds;
    /// `None` if no part has a deadline.
    fn part_deadline_ms(&self) -> Option<i64> {
        None
    }
}
