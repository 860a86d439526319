//! The defects of packed collections from untrusted sources.
//!
//! [`Listpack::from_bytes`](structures::listpack::Listpack::from_bytes) and
//! [`Intset::from_bytes`](structures::intset::Intset::from_bytes) check the bytes. `from_listpack`
//! of each type then checks the properties on which the type's commands rely, and returns one of
//! these errors if a property does not hold.

use std::fmt;

/// The reason why a valid listpack is not a valid hash, set or sorted set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PackDefect {
    /// A field without a value, or a member of a sorted set without a score.
    HalfPair,
    /// The same member of a set or field of a hash occurs twice.
    Duplicate,
    /// The score of a sorted set's member is not a number.
    Score,
    /// The deadline (expiry) of a hash's field is not a time.
    Deadline,
    /// The members of a sorted set, or the deadlines of a hash, are not in order.
    Order,
}

impl fmt::Display for PackDefect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PackDefect::HalfPair => "the last pair is incomplete",
            PackDefect::Duplicate => "a member or field is there twice",
            PackDefect::Score => "a score is no number",
            PackDefect::Deadline => "a deadline is no time",
            PackDefect::Order => "members or deadlines are not in order",
        })
    }
}

impl std::error::Error for PackDefect {}
