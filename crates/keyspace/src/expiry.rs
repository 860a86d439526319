//! The effect of a write on the expiry of a key or field.

/// The effect of a write on the expiry of a key or of a hash's field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expiry {
    /// The key or field has no expiry afterwards.
    Clear,
    /// The expiry of the key or field stays unchanged.
    Keep,
    /// The key or field expires at this Unix time in milliseconds.
    At(i64),
}
