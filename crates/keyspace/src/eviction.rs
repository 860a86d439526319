//! Eviction: the choice of the keys to remove when memory is short.
//!
//! As in Redis, it is approximate: a few keys are sampled, the best candidates so far are kept in a
//! small pool, and the best of the pool is evicted. Each I/O thread has an [`Evictor`] of its own,
//! and a step locks one shard at a time. Threads can therefore evict in parallel, without exclusive
//! ownership of the keyspace.
//!
//! ```text
//!   a random shard ─sample─▶ pool: 16 candidates, best last ─▶ found again, as good? ─▶ removed
//!                                ▲                                   │ used since
//!                                └──────────── new score ────────────┘
//! ```
//! There are two differences from Redis, both in favour of the hit rate. A candidate that was used
//! after it entered the pool gets a new rank and is not evicted. A sample is taken from few cache
//! lines, so that a larger one costs the same (`SAMPLES_PER_OPTION`).
//!
//! The key with the highest rank is evicted first. Under LRU the rank is its idle time in seconds.
//! Under LFU it is the distance of its counter from 255, then the minutes since its last use. Under
//! TTL, an earlier expiry has a higher rank. Source: "Key eviction", redis.io/docs. The names of
//! policies and options are those of Redis.

use structures::table::Sampled;

use crate::access::Access;
use crate::db::Shard;
use crate::key::{Key, KeyHash, SHARD_COUNT};
use crate::keyspace::Keyspace;
use crate::object::KeyEntry;

/// The criterion by which an eviction policy orders keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rank {
    /// Keys are evicted in the order of their last use, the least recently used first.
    Lru,
    /// Keys are evicted in the order of their frequency of use, the least frequently used first.
    Lfu,
    /// Keys are evicted in random order, without a rank.
    Random,
    /// Keys are evicted in the order of their expiry, the nearest first.
    Ttl,
}

/// An eviction policy, as a value of the option `maxmemory-policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// True if only keys with an expiry may be evicted.
    pub volatile_only: bool,
    /// The order in which the policy evicts keys.
    pub rank: Rank,
}

impl Policy {
    /// Returns the policy for a value of `maxmemory-policy`; `None` for `noeviction`.
    pub fn named(name: &str) -> Option<Self> {
        let (scope, rank) = name.split_once('-')?;
        let rank = match rank {
            "lru" => Rank::Lru,
            "lfu" => Rank::Lfu,
            "random" => Rank::Random,
            "ttl" => Rank::Ttl,
            _ => return None,
        };
        Some(Self { volatile_only: scope == "volatile", rank })
    }
}

/// A key that was evicted because memory was short.
pub struct Evicted {
    /// The number of the evicted key's database.
    pub db: usize,
    /// True if clients may be blocked on the evicted key, or watch or track it.
    pub followed: bool,
    /// The evicted key's entry with its value, which the caller drops.
    pub entry: KeyEntry,
}

/// The maximum number of eviction candidates in a thread's pool.
const POOL_LEN_MAX: usize = 16;
/// The number of keys sampled for each unit of the option `maxmemory-samples`: with the value 5,
/// twice 5 keys. Under an LFU policy, 1 key for each unit.
const SAMPLES_PER_OPTION: usize = 2;
/// The most samples drawn for one eviction. A sample leads to no evicted key only if other threads
/// take its candidates at the same time.
const DRAWS_MAX: usize = 8;

struct Candidate {
    rank: u64,
    db: usize,
    hash: KeyHash,
    key: Box<[u8]>,
}

/// The criteria of all evictions in one turn of an I/O thread, that is, one pass of its event loop.
#[derive(Clone, Copy, Debug)]
pub struct Criteria {
    /// The policy: the keys that may be evicted, and their order.
    pub policy: Policy,
    /// The rule of the access clocks (LRU or LFU), with the present time.
    pub access: Access,
    /// The value of the option `maxmemory-samples`: the number of keys per sample.
    pub samples: usize,
}

impl Criteria {
    fn rank(&self, entry: &KeyEntry) -> u64 {
        match self.policy.rank {
            Rank::Lru => {
                let Access::Lru { clock_s } = self.access else { return 0 };
                u64::from(clock_s.wrapping_sub(entry.access()) & 0x00FF_FFFF)
            }
            Rank::Lfu => {
                let Access::Lfu { clock_minutes, .. } = self.access else { return 0 };
                let idle_minutes = clock_minutes.wrapping_sub(entry.access() >> 8) & 0xFFFF;
                u64::from(255 - self.access.lfu_counter(entry.access())) << 16 | u64::from(idle_minutes)
            }
            Rank::Ttl => entry.expiry_ms().map_or(0, |at_ms| u64::MAX - at_ms.max(0) as u64),
            Rank::Random => 0,
        }
    }
}

/// The state of one thread's evictions: its pool of candidates. See the module's comment.
#[derive(Default)]
pub struct Evictor {
    /// The candidates for eviction, sorted by rank, the best one last.
    pool: Vec<Candidate>,
    /// The policy by which the candidates in the pool were ranked; `None` before the first eviction
    /// by rank.
    policy: Option<Policy>,
}

impl Evictor {
    /// Removes and returns the key that should be evicted next. Calls `settle` with it while its
    /// shard is locked. Returns `None` if no key may be evicted, or if other threads took all
    /// candidates of `DRAWS_MAX` samples.
    ///
    /// Locks shards one at a time; the caller must hold no shard's lock. `draw` returns random
    /// numbers. O(samples) in a large keyspace, a lock per shard in a small one.
    pub fn evict(
        &mut self,
        keyspace: &Keyspace,
        criteria: &Criteria,
        mut draw: impl FnMut() -> u64,
        mut settle: impl FnMut(&mut Shard, &Evicted),
    ) -> Option<Evicted> {
        if criteria.policy.rank == Rank::Random {
            return evict_any(keyspace, criteria.policy, draw, settle);
        }
        if self.policy != Some(criteria.policy) {
            self.policy = Some(criteria.policy);
            self.pool.clear();
        }
        for _ in 0..DRAWS_MAX {
            let seen = self.refill(keyspace, criteria, &mut draw);
            while let Some(best) = self.pool.pop() {
                if let Some(evicted) = self.remove(keyspace, criteria, best, &mut settle) {
                    return Some(evicted);
                }
            }
            if seen == 0 {
                return None;
            }
        }
        None
    }

    /// Draws a sample of the keyspace and adds its keys to the pool of candidates for eviction, as
    /// far as they are better candidates than those in the pool. Returns the number of keys in the
    /// sample.
    fn refill(&mut self, keyspace: &Keyspace, criteria: &Criteria, draw: &mut impl FnMut() -> u64) -> usize {
        let wanted = match criteria.policy.rank {
            // All new keys have the same low counter. A larger sample would find them sooner,
            // before a second use can show which of them are needed.
            Rank::Lfu => criteria.samples,
            Rank::Lru | Rank::Ttl | Rank::Random => criteria.samples * SAMPLES_PER_OPTION,
        };
        let of = if criteria.policy.volatile_only { Sampled::Expiring } else { Sampled::All };
        let (first, point) = ((draw() % SHARD_COUNT as u64) as usize, draw());
        let mut seen = 0;
        for shard in (first..SHARD_COUNT).chain(0..first) {
            // Keys of a shard that a busy script holds are not evicted.
            let Some(guard) = keyspace.lock_unless_busy(shard) else { continue };
            for (db, keys) in guard.dbs().enumerate() {
                seen += keys.table.sample(point, wanted, of, |entry| {
                    self.consider(criteria.rank(&entry), db, keyspace, entry.key());
                });
            }
            if seen >= wanted {
                break;
            }
        }
        seen
    }

    /// Adds a key to the pool of candidates for eviction if there is room, or in place of the worst
    /// candidate if the key is better. Does nothing if the key is in the pool already.
    fn consider(&mut self, rank: u64, db: usize, keyspace: &Keyspace, key: &[u8]) {
        if self.pool.len() == POOL_LEN_MAX && rank <= self.pool[0].rank {
            return;
        }
        let hash = keyspace.hasher().hash_key(key);
        if self.pool.iter().any(|other| other.hash == hash && other.db == db && *other.key == *key) {
            return;
        }
        if self.pool.len() == POOL_LEN_MAX {
            self.pool.remove(0);
        }
        self.insert(Candidate { rank, db, hash, key: key.into() });
    }

    fn insert(&mut self, candidate: Candidate) {
        // Of candidates with equal rank the oldest is evicted first. It has been in the pool for
        // longest, so a use of it is most likely to have been noticed.
        let at = self.pool.partition_point(|other| other.rank < candidate.rank);
        self.pool.insert(at, candidate);
    }

    /// Removes the key of the candidate `best` from the keyspace and returns it, if it exists and
    /// no other candidate has a higher rank now. A candidate that was used since it was ranked
    /// returns to the pool with its new, lower rank. The loop of [`Evictor::evict`] therefore ends.
    fn remove(
        &mut self,
        keyspace: &Keyspace,
        criteria: &Criteria,
        best: Candidate,
        settle: &mut impl FnMut(&mut Shard, &Evicted),
    ) -> Option<Evicted> {
        let key = Key { bytes: &best.key, hash: best.hash };
        let mut guard = keyspace.lock_unless_busy(key.shard())?;
        guard.db(best.db)?;
        let followed = guard.has_registrations();
        let table = &mut guard.db_mut(best.db).table;
        let place = table.find(key.position(), key.bytes)?;
        let entry = table.at(place);
        if criteria.policy.volatile_only && entry.expiry_ms().is_none() {
            return None;
        }
        let rank = criteria.rank(&entry);
        if rank < best.rank && self.pool.last().is_some_and(|next| next.rank > rank) {
            self.insert(Candidate { rank, ..best });
            return None;
        }
        let entry = keyspace.remove_at(None, &mut guard, (best.db, best.hash), place);
        let evicted = Evicted { db: best.db, followed, entry };
        settle(&mut guard, &evicted);
        Some(evicted)
    }
}

/// Evicts and returns a random key that the policy allows to evict. The key is from a random shard,
/// or from the next shard that has such keys, and there from a random database. Returns `None` if
/// the policy allows no key.
fn evict_any(
    keyspace: &Keyspace,
    policy: Policy,
    mut draw: impl FnMut() -> u64,
    mut settle: impl FnMut(&mut Shard, &Evicted),
) -> Option<Evicted> {
    let first = (draw() % SHARD_COUNT as u64) as usize;
    for shard in (first..SHARD_COUNT).chain(0..first) {
        let Some(mut guard) = keyspace.lock_unless_busy(shard) else { continue };
        let fits = |(_, keys): &(usize, &crate::db::Db)| {
            if policy.volatile_only { keys.table.deadline_count() > 0 } else { !keys.table.is_empty() }
        };
        let count = guard.dbs().enumerate().filter(fits).count();
        if count == 0 {
            continue;
        }
        let nth = (draw() % count as u64) as usize;
        let (db, _) = guard.dbs().enumerate().filter(fits).nth(nth).expect("below the count");
        let followed = guard.has_registrations();
        let table = &mut guard.db_mut(db).table;
        let place = if policy.volatile_only {
            table.random_with_deadline(&mut draw)
        } else {
            table.random(&mut draw)
        };
        let place = place.expect("the table has a key that fits");
        let hash = keyspace.hasher().hash_key(table.at(place).key());
        let entry = keyspace.remove_at(None, &mut guard, (db, hash), place);
        let evicted = Evicted { db, followed, entry };
        settle(&mut guard, &evicted);
        return Some(evicted);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use structures::entry::{Entry, NewValue};

    fn draws() -> impl FnMut() -> u64 {
        let mut rng = 7_u64;
        move || {
            rng = rng.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (rng ^ (rng >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        }
    }

    fn keyspace() -> Keyspace {
        Keyspace::new(16, [1, 2, 3, 4])
    }

    fn add(keyspace: &Keyspace, db: usize, key: &str, expiry_ms: Option<i64>, access: u32) {
        let key = keyspace.hasher().key(key.as_bytes());
        let entry = Entry::new(key.bytes, NewValue::Bytes(b"v"), expiry_ms, access);
        keyspace.lock(key.shard()).db_mut(db).insert(key.hash, entry, keyspace.hasher());
    }

    fn criteria(policy: &str) -> Criteria {
        let policy = Policy::named(policy).expect("an evicting policy");
        let access = match policy.rank {
            Rank::Lfu => Access::Lfu { clock_minutes: 100, log_factor: 10, decay_minutes: 1 },
            _ => Access::Lru { clock_s: 100_000 },
        };
        Criteria { policy, access, samples: 5 }
    }

    /// Returns the keys with their databases' numbers, in the order in which `policy` evicts them.
    fn order(keyspace: &Keyspace, policy: &str) -> Vec<(usize, String)> {
        let (mut evictor, mut draw) = (Evictor::default(), draws());
        let criteria = criteria(policy);
        std::iter::from_fn(|| {
            let gone = evictor.evict(keyspace, &criteria, &mut draw, |_, _| {})?;
            Some((gone.db, String::from_utf8_lossy(gone.entry.key()).into_owned()))
        })
        .collect()
    }

    /// Checks the exact order in which `policy` evicts a few keys, all of which fit the pool of
    /// candidates.
    fn check(policy: &str, expected: &[&str]) {
        let keyspace = keyspace();
        for (key, expiry_ms, access) in [
            ("old", None, if policy.ends_with("lfu") { 100 << 8 | 3 } else { 10 }),
            ("new", None, if policy.ends_with("lfu") { 100 << 8 | 90 } else { 90_000 }),
            ("soon", Some(5_000), if policy.ends_with("lfu") { 100 << 8 | 60 } else { 60_000 }),
            ("late", Some(9_000), if policy.ends_with("lfu") { 100 << 8 | 30 } else { 30_000 }),
        ] {
            add(&keyspace, 0, key, expiry_ms, access);
        }
        let gone: Vec<String> = order(&keyspace, policy).into_iter().map(|(_, key)| key).collect();
        assert_eq!(gone, expected, "{policy}");
    }

    #[test]
    fn each_policy_has_its_order() {
        check("allkeys-lru", &["old", "late", "soon", "new"]);
        check("volatile-lru", &["late", "soon"]);
        check("allkeys-lfu", &["old", "late", "soon", "new"]);
        check("volatile-lfu", &["late", "soon"]);
        check("volatile-ttl", &["soon", "late"]);
        assert_eq!(Policy::named("noeviction"), None);
    }

    #[test]
    fn random_takes_from_every_database_and_spares_what_may_stay() {
        let keyspace = keyspace();
        for n in 0..200 {
            add(&keyspace, n % 3, &format!("k{n}"), (n % 2 == 0).then_some(5), 0);
        }
        let volatile = order(&keyspace, "volatile-random");
        assert_eq!(volatile.len(), 100);
        assert!((0..3).all(|db| volatile.iter().any(|&(of, _)| of == db)));
        assert_eq!(order(&keyspace, "volatile-random"), []);
        assert_eq!(order(&keyspace, "allkeys-random").len(), 100);
    }

    #[test]
    fn a_key_used_since_it_became_a_candidate_is_spared() {
        let keyspace = keyspace();
        for n in 0..10 {
            add(&keyspace, 0, &format!("k{n}"), None, 10 + n);
        }
        let (mut evictor, mut draw) = (Evictor::default(), draws());
        let criteria = criteria("allkeys-lru");
        evictor.evict(&keyspace, &criteria, &mut draw, |_, _| {}).expect("a key");
        let key = keyspace.hasher().key(b"k1");
        let mut guard = keyspace.lock(key.shard());
        let table = &mut guard.db_mut(0).table;
        let place = table.find(key.position(), key.bytes).expect("k0 went first");
        table.at_mut(place).set_access(99_999);
        drop(guard);
        let order: Vec<_> =
            std::iter::from_fn(|| evictor.evict(&keyspace, &criteria, &mut draw, |_, _| {})).collect();
        assert_eq!(order.last().expect("nine keys").entry.key(), b"k1");
    }

    #[test]
    fn most_of_the_coldest_tenth_goes_first() {
        let keyspace = keyspace();
        for n in 0..20_000 {
            add(&keyspace, 0, &format!("k{n}"), None, n);
        }
        let (mut evictor, mut draw) = (Evictor::default(), draws());
        let criteria = criteria("allkeys-lru");
        let cold = (0..2000)
            .map(|_| {
                evictor
                    .evict(&keyspace, &criteria, &mut draw, |_, _| {})
                    .expect("keys are left")
                    .entry
                    .access()
            })
            .filter(|&access| access < 4000)
            .count();
        assert!(cold > 1800, "{cold} of 2000 evicted keys were among the coldest fifth");
    }
}
