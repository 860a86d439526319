//! The sizes of values, and the classes that big ones are sorted into.

/// Bytes at which a key is big.
pub const BYTES_MIN: usize = 8 * 1024;
/// Elements at which a key is big.
pub const ELEMENTS_MIN: usize = 1024;

/// The types that are counted apart, in the order INFO shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizedType {
    /// By bytes.
    String = 1,
    /// By elements, as all that follow.
    List = 2,
    /// Members.
    Set = 3,
    /// Members.
    Zset = 4,
    /// Fields.
    Hash = 5,
    /// Entries.
    Stream = 6,
}

impl SizedType {
    /// All of them.
    pub const ALL: [Self; 6] = [Self::String, Self::List, Self::Set, Self::Zset, Self::Hash, Self::Stream];
}

/// The size of a value, from which a [`SizeMark`](crate::SizeMark) is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueSize {
    /// Its type.
    pub kind: SizedType,
    /// Bytes it takes, close to what MEMORY USAGE says. Tables of members are reckoned as full as
    /// they are on average; the slack of a stream's nodes and what its consumer groups remember is
    /// left out.
    pub bytes: usize,
    /// Elements, members, fields, entries; the bytes in use of a string.
    pub elements: usize,
}

impl ValueSize {
    /// Returns the number of elements it may be big by: a string has none.
    #[inline]
    pub fn counted(self) -> usize {
        if self.kind == SizedType::String { 0 } else { self.elements }
    }
}

/// By what keys are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Bytes of the value.
    Bytes,
    /// Elements of the value. Strings have none.
    Elements,
}

/// Returns the class of a size, 0 if it is not big. Classes are four to a power of two.
#[inline]
pub(crate) fn class_of(size: usize, min: usize) -> u8 {
    if size < min {
        return 0;
    }
    let power = size.ilog2();
    (power << 2 | (size >> (power - 2)) as u32 & 3) as u8
}

/// Returns true if two sizes are in one class, or would be if they were big: they are alike from
/// their highest bit down to the second behind it.
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
