//! The allocator's size classes, so that a block can be laid out to fill its actual size.
//!
//! mimalloc has sixteen-byte steps up to 128 bytes and four steps per doubling above. A block that
//! always requests its whole class can grow within it without being moved. Its allocation size
//! follows from its content alone, so it need not be stored.

/// Returns the size of the allocator's block that serves a request of `len_bytes`, which must not
/// be 0. O(1).
#[inline]
pub const fn size_class(len_bytes: usize) -> usize {
    if len_bytes <= 128 {
        return len_bytes.next_multiple_of(16);
    }
    let step = 1 << ((len_bytes - 1).ilog2() - 2);
    len_bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::size_class;

    #[test]
    fn classes_are_those_of_the_allocator() {
        for (asked, got) in [
            (1, 16),
            (16, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (513, 640),
            (640, 640),
            (641, 768),
            (4097, 5120),
        ] {
            assert_eq!(size_class(asked), got, "of {asked}");
        }
    }

    #[test]
    fn a_class_is_its_own_class() {
        for len in 1..100_000 {
            assert_eq!(size_class(size_class(len)), size_class(len));
            assert!(size_class(len) >= len);
        }
    }
}
