//! The errors of listpacks and intsets: of untrusted bytes that are not valid, and of an edit
//! beyond the length limit.

use std::fmt;

/// The first fault in bytes that are not a valid listpack or intset: its kind and its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackError {
    /// The offset of the fault in the bytes of the listpack or intset.
    pub at: usize,
    /// The kind of the fault in the bytes of the listpack or intset.
    pub kind: PackErrorKind,
}

/// The kinds of faults in the bytes of a listpack or intset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackErrorKind {
    /// There are fewer bytes than the header (and, for a listpack, the terminator) need.
    TooShort,
    /// The length in the header of the listpack or intset is not the length of the bytes.
    WrongLength,
    /// The last byte of a listpack is not the terminator.
    NoTerminator,
    /// An element of a listpack is cut short, has an unknown head or a wrong back length.
    BrokenElement,
    /// The element count in a listpack's header is not the number of elements.
    WrongCount,
    /// The integer width in an intset's header does not exist.
    UnknownEncoding,
    /// An integer of an intset is not greater than the one before it.
    NotSorted,
}

impl fmt::Display for PackError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            PackErrorKind::TooShort => "too short",
            PackErrorKind::WrongLength => "length does not match the header",
            PackErrorKind::NoTerminator => "terminator missing",
            PackErrorKind::BrokenElement => "broken element",
            PackErrorKind::WrongCount => "number of elements does not match the header",
            PackErrorKind::UnknownEncoding => "unknown integer width",
            PackErrorKind::NotSorted => "integers not in ascending order",
        };
        write!(f, "{what} at byte {}", self.at)
    }
}

impl std::error::Error for PackError {}

/// The error of an edit that would make a listpack or intset longer than its limit. Nothing was
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackFull;

impl fmt::Display for PackFull {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the packed structure would become too long")
    }
}

impl std::error::Error for PackFull {}
