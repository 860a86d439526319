//! The sizes of values, and the size classes of big ones.

/// The number of bytes from which a key counts as big, for the index of big keys.
pub const BYTES_MIN: usize = 8 * 1024;
/// The number of elements from which a key counts as big, for the index of big keys.
pub const ELEMENTS_MIN: usize = 1024;

/// The types of values whose keys are counted separately, in the order in which INFO shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizedType {
    /// Strings, counted by their bytes.
    String = 1,
    /// Lists, counted by their elements.
    List = 2,
    /// Sets, counted by their members.
    Set = 3,
    /// Sorted sets, counted by their members.
    Zset = 4,
    /// Hashes, counted by their fields.
    Hash = 5,
    /// Streams, counted by their entries.
    Stream = 6,
    /// Vector sets, counted by their elements.
    Vector = 7,
    /// Arrays, counted by their elements.
    Array = 8,
}

impl SizedType {
    /// All types of values, in the order of the enum.
    pub const ALL: [Self; 8] = [
        Self::String,
        Self::List,
        Self::Set,
        Self::Zset,
        Self::Hash,
        Self::Stream,
        Self::Vector,
        Self::Array,
    ];
}

/// The size of a value, from which a [`SizeMark`](crate::SizeMark) is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSize {
    /// The type of the value, such as list.
    pub kind: SizedType,
    /// The bytes that the value takes, close to the result of MEMORY USAGE. Tables of fields and of
    /// sorted members count with their average fill. The slack of a stream's nodes and the data of
    /// its consumer groups are not counted.
    pub bytes: usize,
    /// The number of elements, members, fields or entries; the bytes in use of a string.
    pub elements: usize,
}

impl ValueSize {
    /// Returns the number of elements by which the value may count as big; 0 for a string.
    #[inline]
    pub fn counted(self) -> usize {
        if self.kind == SizedType::String { 0 } else { self.elements }
    }
}

/// The measure by which the sizes of keys are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The comparison by the number of bytes of the value.
    Bytes,
    /// The comparison by the number of elements of the value; 0 for a string.
    Elements,
}

/// Returns the size class of `size` in the index of big keys, four classes to a power of two.
/// Returns 0 if `size` is below `min`, so that the value is not big.
#[inline]
pub(crate) fn class_of(size: usize, min: usize) -> u8 {
    if size < min {
        return 0;
    }
    let power = size.ilog2();
    (power << 2 | (size >> (power - 2)) as u32 & 3) as u8
}

/// Returns true if the highest bit and the two bits below it are equal in both sizes. Two such
/// sizes of big keys are in one size class.
#[inline]
pub(crate) fn is_of_class(a: usize, b: usize) -> bool {
    (a ^ b) >> ((a | 0b111).ilog2() - 2) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_quarters_of_powers_of_two() {
        for size in ELEMENTS_MIN..100_000 {
            let (class, next) = (class_of(size, ELEMENTS_MIN), class_of(size + 1, ELEMENTS_MIN));
            assert!(class > 0 && (next == class || next == class + 1));
            assert!(class_of(size + size / 4 + 1, ELEMENTS_MIN) > class);
            assert_eq!(is_of_class(size, size + 1), class == next);
            assert_eq!(is_of_class(size + 1, size), class == next);
        }
        assert_eq!(class_of(ELEMENTS_MIN - 1, ELEMENTS_MIN), 0);
    }
}
