//! The effect of a write on a time to live.

/// The effect of a write on a key's expiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key gets no expiry.
    Clear,
    /// The expiry stays unchanged.
    Keep,
    /// The key expires at this Unix time in milliseconds.
    At(i64),
}
