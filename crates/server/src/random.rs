//! Random numbers that clients cannot predict, and random ids.

use replicate::history::ReplId;

/// Returns a random id of 40 hexadecimal digits. It names a run of the server or a history of the
/// data.
pub fn random_repl_id() -> ReplId {
    ReplId::of_bits(random_u64(), random_u64(), random_u64() as u32)
}

/// Returns a random number that clients cannot predict: a hash with the standard library's random
/// keys.
pub fn random_u64() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    let state = std::collections::hash_map::RandomState::new();
    let mut hasher = state.build_hasher();
    hasher.write_usize(&raw const state as usize);
    hasher.finish()
}
