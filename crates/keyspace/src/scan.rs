//! SCAN: steps through the keys of a database while they change. Also the choice of a random key.
//!
//! A scan cursor is a point of the hash space:
//!
//! ```text
//!  48 bits: [shard 10][point 38]     point: the upper 38 of the 48 bits of a table's own cursor
//! ```
//! Keys are stored in hash order, within a shard and from shard to shard. "Everything below the
//! cursor was returned" therefore stays true when tables grow, split, shrink or merge between two
//! calls. Every key that exists from the first call to the last is returned, once or more. Numbers
//! of 48 bits fit the integers of clients that have only 53.
//!
//! **Why 38 bits are enough.** A table's buckets begin at multiples of `2^(32 - depth)` in its 48
//! bits (16 bits of tag after `depth` bits of segment). Every edge therefore has its lower 10 bits
//! clear while `depth + 16 <= 38`: up to depth 22, which is 2^22 segments in each of 1024 shards,
//! some 10^12 keys. Beyond that the cursor is rounded down, and the step continues until the cursor
//! has moved. This is still correct; some keys are returned again.
//!
//! Any thread can scan. It locks one shard at a time, for one bucket.

use structures::table::Table;

use crate::key::{SHARD_BITS, SHARD_COUNT};
use crate::keyspace::{Keyspace, ShardBusy};
use crate::object::KeyEntry;

/// The number of bits of SCAN's cursor that denote a point in a shard's table.
const POINT_BITS: u32 = 38;
/// The number of bits of the cursors of [`Table::scan`], the scan of one shard's table.
const TABLE_BITS: u32 = 48;
const ROUNDED_BITS: u32 = TABLE_BITS - POINT_BITS;
/// The least number of keys with which a randomly drawn shard is used for a random key. If the
/// drawn shard has fewer keys, the shards' sizes differ too much. A second shard is then drawn with
/// a probability proportional to its size.
const DENSE_SHARD_LEN_MIN: usize = 64;

/// A point of SCAN's iteration over a database. See the module's comment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanCursor(u64);

impl ScanCursor {
    /// The cursor at which SCAN of a database starts. It is also the cursor after the last step.
    pub const START: Self = Self(0);

    /// Converts the number that a client passes to SCAN to a point of the iteration. Accepts every
    /// number, also one that no scan has returned.
    pub fn from_number(number: u64) -> Self {
        Self(number & ((1 << (SHARD_BITS + POINT_BITS)) - 1))
    }

    /// Returns the number of SCAN's cursor for the client, which is below 2^48.
    pub fn number(self) -> u64 {
        self.0
    }

    fn of(shard: usize, point: u64) -> Self {
        if shard == SHARD_COUNT { Self::START } else { Self((shard as u64) << POINT_BITS | point) }
    }

    fn shard(self) -> usize {
        (self.0 >> POINT_BITS) as usize
    }

    fn point(self) -> u64 {
        self.0 & ((1 << POINT_BITS) - 1)
    }
}

impl Keyspace {
    /// Takes one step of a scan of database `db`. Skips shards without keys, and visits the keys of
    /// one bucket, expired ones too. Returns the next cursor, [`ScanCursor::START`] at the end.
    /// O(bucket), plus a lock per empty shard.
    ///
    /// # Errors
    /// If a busy script holds the next shard.
    pub fn scan_step(
        &self,
        db: usize,
        cursor: ScanCursor,
        mut visit: impl FnMut(&KeyEntry),
    ) -> Result<ScanCursor, ShardBusy> {
        let mut point = cursor.point();
        for shard in cursor.shard()..SHARD_COUNT {
            let guard = self.lock_unless_busy(shard).ok_or(ShardBusy)?;
            if let Some(table) = guard.db(db).map(|db| &db.table).filter(|table| !table.is_empty()) {
                return Ok(match scan_table(table, point, &mut visit) {
                    0 => ScanCursor::of(shard + 1, 0),
                    point => ScanCursor::of(shard, point),
                });
            }
            point = 0;
        }
        Ok(ScanCursor::START)
    }

    /// Calls `look` with a key of database `db`, expired or not, chosen close to uniformly with
    /// random numbers from `draw`. Returns `None` if no key was found. O(1) in a large database, a
    /// lock per shard in a small one. Keys in shards that a busy script holds are not chosen.
    pub fn random_key<T>(
        &self,
        db: usize,
        draw: &mut impl FnMut() -> u64,
        look: impl FnOnce(&KeyEntry) -> T,
    ) -> Option<T> {
        let mut shard = (draw() % SHARD_COUNT as u64) as usize;
        let len_of =
            |shard| self.look_at(shard, |shard| shard.db(db).map_or(0, |db| db.table.len())).unwrap_or(0);
        if len_of(shard) < DENSE_SHARD_LEN_MIN {
            // With few keys, a shard is drawn with a probability proportional to its number of
            // keys.
            let total: usize = (0..SHARD_COUNT).map(len_of).sum();
            if total == 0 {
                return None;
            }
            let mut left = (draw() % total as u64) as usize;
            let holds = |&shard: &usize| {
                let len = len_of(shard);
                let here = left < len;
                left = left.saturating_sub(len);
                here
            };
            // If keys were removed meanwhile, no shard may be found. The first drawn shard is then
            // used, even if it is empty.
            shard = (0..SHARD_COUNT).find(holds).unwrap_or(shard);
        }
        let guard = self.lock_unless_busy(shard)?;
        let table = &guard.db(db)?.table;
        let place = table.random(draw)?;
        Some(look(&table.at(place)))
    }
}

/// Visits the keys of the table's bucket at `point`, a 38-bit point of SCAN's cursor. Returns the
/// next point that a cursor can represent, 0 at the end of the table.
fn scan_table(table: &Table<KeyEntry>, point: u64, visit: &mut impl FnMut(&KeyEntry)) -> u64 {
    let mut cursor = point << ROUNDED_BITS;
    loop {
        cursor = table.scan(cursor, &mut *visit);
        if cursor == 0 || cursor >> ROUNDED_BITS > point {
            return cursor >> ROUNDED_BITS;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};
    use structures::entry::{Entry, NewValue};

    fn insert(keyspace: &Keyspace, db: usize, number: u64) {
        let key = keyspace.hasher().key(&number.to_be_bytes()).hash;
        let entry = Entry::new(&number.to_be_bytes(), NewValue::Int(0), None, 0);
        let mut guard = keyspace.lock(crate::key::shard_of(key));
        guard.db_mut(db).insert(key, entry, keyspace.hasher());
    }

    fn number_of(entry: &KeyEntry) -> u64 {
        u64::from_be_bytes(entry.key().try_into().unwrap())
    }

    #[test]
    fn a_scan_returns_all_keys_of_its_database() {
        for len in [0, 1, 10, 1_000, 50_000] {
            let keyspace = Keyspace::new(2, [1, 2, 3, 4]);
            (0..len).for_each(|number| insert(&keyspace, (number % 2) as usize, number));
            let (mut seen, mut cursor, mut last) = (HashMap::new(), ScanCursor::START, 0);
            loop {
                let from = ScanCursor::from_number(cursor.number());
                let step = keyspace.scan_step(0, from, |entry| {
                    *seen.entry(number_of(entry)).or_insert(0) += 1;
                });
                cursor = step.expect("no script runs");
                if cursor == ScanCursor::START {
                    break;
                }
                assert!(cursor.number() > last && cursor.number() < 1 << 48);
                last = cursor.number();
            }
            assert_eq!(seen.len() as u64, len.div_ceil(2));
            assert!(seen.iter().all(|(number, times)| number % 2 == 0 && *times == 1), "{len}");
        }
    }

    #[test]
    fn a_scan_survives_growth_between_its_steps() {
        let keyspace = Keyspace::new(1, [1, 2, 3, 4]);
        (0..2_000).for_each(|number| insert(&keyspace, 0, number));
        let (mut seen, mut cursor, mut next) = (HashSet::new(), ScanCursor::START, 2_000);
        loop {
            let step = keyspace.scan_step(0, cursor, |entry| {
                seen.insert(number_of(entry));
            });
            cursor = step.expect("no script runs");
            if cursor == ScanCursor::START {
                break;
            }
            for _ in 0..if next < 100_000 { 50 } else { 0 } {
                insert(&keyspace, 0, next);
                next += 1;
            }
        }
        assert!((0..2_000).all(|number| seen.contains(&number)));
    }

    #[test]
    fn any_number_is_some_point_of_the_scan() {
        let keyspace = Keyspace::new(1, [1, 2, 3, 4]);
        (0..1_000).for_each(|number| insert(&keyspace, 0, number));
        for number in [1, 7, u64::MAX, 1 << 47, (1 << 48) - 1, 1 << 60] {
            let mut cursor = ScanCursor::from_number(number);
            let mut steps = 0;
            while cursor != ScanCursor::START || steps == 0 {
                cursor = keyspace.scan_step(0, cursor, |_| ()).expect("no script runs");
                steps += 1;
                assert!(steps < 100_000);
            }
        }
    }

    #[test]
    fn random_keys_are_drawn_about_equally() {
        for len in [1_u64, 2, 100, 200_000] {
            let keyspace = Keyspace::new(1, [1, 2, 3, 4]);
            (0..len).for_each(|number| insert(&keyspace, 0, number));
            let mut rng = 0_u64;
            let mut draw = || {
                rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                rng ^ rng >> 29
            };
            let groups = len.min(100);
            let mut counts = vec![0; groups as usize];
            for _ in 0..groups * 100 {
                let drawn = keyspace.random_key(0, &mut draw, number_of);
                let number = drawn.expect("there are keys");
                counts[(number % groups) as usize] += 1;
            }
            assert!(counts.iter().all(|&count| (50..180).contains(&count)), "{len}: {counts:?}");
        }
        assert_eq!(Keyspace::new(1, [1, 2, 3, 4]).random_key(0, &mut || 0, number_of), None);
    }
}
