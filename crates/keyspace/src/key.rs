//! Keys on their way through a command: bytes with their hash, computed once.

use ahash::RandomState;

/// log2 of the number of shards.
pub const SHARD_BITS: u32 = 10;
/// Number of shards of a keyspace.
pub const SHARD_COUNT: usize = 1 << SHARD_BITS;

/// A key's bytes and hash.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The key itself.
    pub bytes: &'a [u8],
    /// Its hash by the keyspace's [`Hasher`].
    pub hash: u64,
}

impl Key<'_> {
    /// The shard the key belongs to: the hash's top bits.
    #[inline]
    pub fn shard(&self) -> usize {
        shard_of(self.hash)
    }

    /// The key's position in its shard's tables: the bits below.
    #[inline]
    pub fn position(&self) -> u64 {
        position_of(self.hash)
    }
}

/// The shard of a hash.
#[inline]
pub fn shard_of(hash: u64) -> usize {
    (hash >> (64 - SHARD_BITS)) as usize
}

/// The position of a hash within its shard's tables.
#[inline]
pub fn position_of(hash: u64) -> u64 {
    hash << SHARD_BITS
}

/// The keyed hash of one process: without its seed nobody can choose keys that collide.
#[derive(Clone, Debug)]
pub struct Hasher {
    state: RandomState,
}

impl Hasher {
    /// A hasher with the given secret seed.
    pub fn with_seed(seed: [u64; 4]) -> Self {
        Self { state: RandomState::with_seeds(seed[0], seed[1], seed[2], seed[3]) }
    }

    /// The hash of `bytes`. O(bytes).
    #[inline]
    pub fn hash(&self, bytes: &[u8]) -> u64 {
        self.state.hash_one(bytes)
    }

    /// `bytes` with their hash.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hash(bytes) }
    }
}
