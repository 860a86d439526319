//! An iterator that is one of several iterators over the same items. Each encoding of a collection
//! has its own iterator, and users of the collection need a single type.

/// One of three iterators over the same items.
pub(crate) enum OneOf<A, B, C> {
    /// The iterator over the first of the three encodings.
    A(A),
    /// The iterator over the second of the three encodings.
    B(B),
    /// The iterator over the third of the three encodings.
    C(C),
}

/// One of two iterators over items of type `T`.
pub(crate) type OneOfTwo<A, B, T> = OneOf<A, B, std::iter::Empty<T>>;

impl<T, A, B, C> Iterator for OneOf<A, B, C>
where
    A: Iterator<Item = T>,
    B: Iterator<Item = T>,
    C: Iterator<Item = T>,
{
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        match self {
            OneOf::A(a) => a.next(),
            OneOf::B(b) => b.next(),
            OneOf::C(c) => c.next(),
        }
    }
}

impl<T, A, B, C> DoubleEndedIterator for OneOf<A, B, C>
where
    A: DoubleEndedIterator<Item = T>,
    B: DoubleEndedIterator<Item = T>,
    C: DoubleEndedIterator<Item = T>,
{
    #[inline]
    fn next_back(&mut self) -> Option<T> {
        match self {
            OneOf::A(a) => a.next_back(),
            OneOf::B(b) => b.next_back(),
            OneOf::C(c) => c.next_back(),
        }
    }
}
