//! Estimates of figures of the keyspace from a few shards, for INFO and MEMORY STATS.
//!
//! Keys are distributed over shards by a keyed hash, so a few shards are a fair sample. Each shard
//! is locked separately, for bounded work that does not depend on the number of keys.

use structures::table::Sampled;

use crate::key::SHARD_COUNT;
use crate::keyspace::Keyspace;

/// The number of shards that are read for an estimate about the keyspace.
const SHARDS_SAMPLED: usize = 16;
/// The number of keys with an expiry that are read in each sampled shard, to estimate the mean time
/// to live.
const KEYS_SAMPLED: usize = 8;

impl Keyspace {
    /// Returns the estimated bytes of a database's hash tables, without keys and values. The
    /// estimate is from one shard in 64, exact only on average.
    pub fn table_bytes(&self, db: usize) -> usize {
        let of_shard = |shard| self.lock(shard).db(db).map_or(0, |db| db.table.memory_usage());
        sampled_shards().map(of_shard).sum::<usize>() * (SHARD_COUNT / SHARDS_SAMPLED)
    }

    /// Returns the mean time to live in milliseconds of the keys of a database that have an expiry.
    /// Estimated from about 128 of these keys; 0 if none was found.
    pub fn average_ttl_ms(&self, db: usize, now_ms: i64) -> u64 {
        let (mut sum_ms, mut seen) = (0, 0);
        // If few keys have an expiry, the sampled shards may have none of them: then continues with
        // the others.
        for shard in sampled_shards()
            .chain((0..SHARD_COUNT).filter(|shard| shard % (SHARD_COUNT / SHARDS_SAMPLED) != 0))
        {
            let Some(guard) = self.lock_unless_busy(shard) else { continue };
            let Some(db) = guard.db(db) else { continue };
            let start = (shard as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            seen += db.table.sample(start, KEYS_SAMPLED, Sampled::Expiring, |entry| {
                let left_ms = entry.expiry_ms().map_or(0, |at_ms| at_ms.saturating_sub(now_ms));
                sum_ms += u128::from(left_ms.max(0) as u64);
            });
            if seen >= SHARDS_SAMPLED * KEYS_SAMPLED {
                break;
            }
        }
        if seen == 0 { 0 } else { (sum_ms / seen as u128) as u64 }
    }
}

/// Returns the numbers of the shards that are read for an estimate, evenly spread.
fn sampled_shards() -> impl Iterator<Item = usize> {
    (0..SHARD_COUNT).step_by(SHARD_COUNT / SHARDS_SAMPLED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::KeyEntry;
    use crate::string::stored;

    fn keyspace(keys: usize, expiry_ms: impl Fn(usize) -> Option<i64>) -> Keyspace {
        let keyspace = Keyspace::new(2, [1, 2, 3, 4]);
        for number in 0..keys {
            let name = format!("key:{number}");
            let key = keyspace.hasher().key(name.as_bytes());
            let entry = KeyEntry::new(name.as_bytes(), stored(b"v"), expiry_ms(number), 0);
            keyspace.lock(key.shard()).db_mut(1).insert(key.hash, entry, keyspace.hasher());
        }
        keyspace
    }

    #[test]
    fn the_average_ttl_is_near_the_truth() {
        assert_eq!(keyspace(10, |_| None).average_ttl_ms(1, 0), 0);
        assert_eq!(keyspace(1, |_| Some(700)).average_ttl_ms(1, 200), 500);
        // The times are evenly spread between 0 and 2000.
        let average = keyspace(20_000, |number| Some(1000 + number as i64 / 10)).average_ttl_ms(1, 1000);
        assert!((700..1300).contains(&average), "{average}");
    }

    #[test]
    fn the_size_of_tables_is_near_the_truth() {
        let keyspace = keyspace(50_000, |_| None);
        let truth: usize = (0..SHARD_COUNT)
            .map(|shard| keyspace.lock(shard).db(1).map_or(0, |db| db.table.memory_usage()))
            .sum();
        let estimate = keyspace.table_bytes(1);
        assert!(estimate.abs_diff(truth) < truth / 5, "{estimate} {truth}");
        assert_eq!(keyspace.table_bytes(0), 0);
    }
}
