//! Keys of commands: their bytes with their hash, which is computed once.

use ahash::RandomState;

/// The base-2 logarithm of the number of shards. The simulator has few shards, so that different
/// keys share one.
pub const SHARD_BITS: u32 = if cfg!(shuttle) { 6 } else { 10 };
/// The number of shards of a keyspace.
pub const SHARD_COUNT: usize = 1 << SHARD_BITS;

/// The hash of a key by its keyspace's [`Hasher`]. It determines the key's shard and the position
/// in that shard's tables.
///
/// ```text
///   bits 63-54: the shard, of 1,024      bits 53-0: the position in the shard's tables
/// ```
/// A database therefore stores its keys in the order of their hashes, from shard to shard and
/// within each shard. SCAN's cursors rely on that. Two keys may have the same hash, so a search
/// also compares the bytes.
///
/// The slots of a cluster, which is not supported yet, will be contiguous ranges of this order: the
/// slot's 14 bits are the top bits, and `slot >> 4` is the shard. Only this type and
/// [`Hasher::hash_key`] define that.
///
/// The hash of a member of a collection is a plain number, see [`Hasher::hash_member`]. It cannot
/// be confused with the hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(u64);

impl KeyHash {
    /// Returns the lowest hash that a key of `shard` can have. `shard` is below [`SHARD_COUNT`].
    /// O(1).
    #[inline]
    pub const fn first_of_shard(shard: usize) -> Self {
        Self((shard as u64) << (64 - SHARD_BITS))
    }

    /// Returns the hash of the key as a number, for hash tables outside the keyspace. Keys of one
    /// shard have the same top bits.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A key's name with its hash, which is computed once.
#[derive(Clone, Copy, Debug)]
pub struct Key<'a> {
    /// The bytes of the key's name.
    pub bytes: &'a [u8],
    /// The hash of `bytes` by the keyspace's [`Hasher`].
    pub hash: KeyHash,
}

impl Key<'_> {
    /// Returns the number of the shard that has the key.
    #[inline]
    pub fn shard(&self) -> usize {
        shard_of(self.hash)
    }

    /// Returns the position of the key in its shard's tables: the hash without the bits of the
    /// shard.
    #[inline]
    pub fn position(&self) -> u64 {
        position_of(self.hash)
    }
}

/// Returns the number of the shard that has the keys of this hash, below [`SHARD_COUNT`]. O(1).
#[inline]
pub fn shard_of(hash: KeyHash) -> usize {
    (hash.0 >> (64 - SHARD_BITS)) as usize
}

/// Returns the position of the keys of this hash in their shard's tables: the hash without the bits
/// of the shard. O(1).
#[inline]
pub fn position_of(hash: KeyHash) -> u64 {
    hash.0 << SHARD_BITS
}

/// The keyed hash function of one process. Only with its secret seed can keys that collide be
/// chosen.
#[derive(Clone, Debug)]
pub struct Hasher {
    state: RandomState,
}

impl Hasher {
    /// Creates a hasher with the given secret seed.
    pub fn with_seed(seed: [u64; 4]) -> Self {
        Self { state: RandomState::with_seeds(seed[0], seed[1], seed[2], seed[3]) }
    }

    /// Computes the hash of a key. O(bytes).
    #[inline]
    pub fn hash_key(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.state.hash_one(key))
    }

    /// Computes the hash of a member of a set or sorted set, or of a hash's field. It is the
    /// position in the collection's table. O(bytes).
    #[inline]
    pub fn hash_member(&self, member: &[u8]) -> u64 {
        self.state.hash_one(member)
    }

    /// Returns the key with the name `bytes` and its hash.
    #[inline]
    pub fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hash_key(bytes) }
    }
}
