//! The effect of a write on a time to live.

/// The effect of a write on a key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key will not expire.
    Clear,
    /// As it was.
    Keep,
    /// At this Unix time in milliseconds.
    At(i64),
}
