//! The allocator's size classes, so that a block can be laid out to fill its actual size.
//!
//! There are steps of 16 bytes up to 512 bytes, then sixteen steps per doubling up to 8 KiB, and
//! four steps per doubling above. Up to 8 KiB the steps are those of our patches of mimalloc
//! (`alloc/mimalloc`). A block that always requests its whole class can grow within it without
//! being moved. Its allocation size follows from its content alone, so it need not be stored.

/// The size in bytes up to which the allocator's size classes are multiples of 16.
const EVEN_MAX_BYTES: usize = 512;
/// The size in bytes up to which the allocator has sixteen size classes per doubling.
const FINE_MAX_BYTES: usize = 8 * 1024;

/// The size in bytes up to which [`growing_class`] grows blocks by 16 bytes.
const GROWN_EVENLY_MAX_BYTES: usize = 128;

/// Returns the size of the allocator's block that serves a request of `len_bytes`, which must not
/// be 0. O(1).
#[inline]
pub const fn size_class(len_bytes: usize) -> usize {
    if len_bytes <= EVEN_MAX_BYTES {
        return len_bytes.next_multiple_of(16);
    }
    let steps_log2 = if len_bytes <= FINE_MAX_BYTES { 4 } else { 2 };
    let step = 1 << ((len_bytes - 1).ilog2() - steps_log2);
    len_bytes.next_multiple_of(step)
}

/// Returns the size class for a block of `len_bytes` that will grow further. Above 128 bytes these
/// classes have four steps per doubling. A block that grows in many small steps is then moved after
/// each fifth to eighth of its length, and not at each step. O(1).
#[inline]
pub const fn growing_class(len_bytes: usize) -> usize {
    if len_bytes <= GROWN_EVENLY_MAX_BYTES {
        return len_bytes.next_multiple_of(16);
    }
    let step = 1 << ((len_bytes - 1).ilog2() - 2);
    len_bytes.next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::{growing_class, size_class};

    #[test]
    fn classes_are_those_of_the_allocator() {
        for (asked, got) in [
            (1, 16),
            (16, 16),
            (17, 32),
            (128, 128),
            (129, 144),
            (512, 512),
            (513, 544),
            (544, 544),
            (545, 576),
            (4097, 4352),
            (7937, 8192),
            (8193, 10240),
        ] {
            assert_eq!(size_class(asked), got, "of {asked}");
        }
    }

    #[test]
    fn a_class_is_its_own_class() {
        for len in 1..100_000 {
            assert_eq!(size_class(size_class(len)), size_class(len));
            assert!(size_class(len) >= len);
            let growing = growing_class(len);
            assert!(growing >= size_class(len) && growing - len <= len / 4 + 16);
            assert_eq!(size_class(growing), growing);
        }
    }
}
