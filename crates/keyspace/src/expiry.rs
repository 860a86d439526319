//! What a write does to a time to live.

/// What a write does to a key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key will not expire.
    Clear,
    /// As it was.
    Keep,
    /// At this Unix time in milliseconds.
    At(i64),
}
