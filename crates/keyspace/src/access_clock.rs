//! Conversion of the access clocks of existing keys when `maxmemory-policy` changes between LRU and
//! LFU.
//!
//! The 24 bits of a key's access clock are seconds under LRU, and minutes and a counter under LFU.
//! Read by the other rule they are meaningless, and eviction would begin with arbitrary keys. Each
//! clock is therefore converted, one shard at a time, while other threads already use the new rule.
//! A clock that seems to have been set since the change is not converted.
//!
//! | from | to | an existing key |
//! |---|---|---|
//! | LRU | LFU | counts as new: counter 5, used now |
//! | LFU | LRU | keeps the time of its last use, to the minute |
//!
//! Redis 8.0.2 converts nothing. There, the order of eviction is random until the keys are used
//! again.

use crate::access::{Access, LFU_INITIAL};
use crate::keyspace::Keyspace;

/// The age in seconds up to which an LRU clock is not converted: it was probably set after the
/// change of policy.
const NEW_SECONDS: u32 = 5;

/// Converts the access clocks of a shard's keys from the other rule to that of `to` (LRU or LFU).
/// Skips a shard that a busy script holds. O(keys of the shard).
pub fn convert_shard(keyspace: &Keyspace, shard: usize, to: Access) {
    let Some(mut guard) = keyspace.lock_unless_busy(shard) else { return };
    for db in 0..keyspace.db_count() {
        if guard.db(db).is_none_or(|keys| keys.table().is_empty()) {
            continue;
        }
        let table = &mut guard.db_mut(db).table;
        for place in table.all_places() {
            let converted = converted(table.at(place).access(), to);
            table.occupied(place).set_access(converted);
        }
    }
}

/// Converts a key's access clock to the rule of `to`, which contains the present time. Returns it
/// unchanged if another thread seems to have set it by that rule just before.
fn converted(access: u32, to: Access) -> u32 {
    match to {
        Access::Lru { clock_s } => {
            let is_new = clock_s.wrapping_sub(access) & 0x00FF_FFFF <= NEW_SECONDS;
            let idle_minutes = (clock_s / 60).wrapping_sub(access >> 8) & 0xFFFF;
            if is_new { access } else { clock_s.wrapping_sub(idle_minutes * 60) & 0x00FF_FFFF }
        }
        Access::Lfu { clock_minutes, .. } => {
            let is_now = clock_minutes.wrapping_sub(access >> 8) & 0xFFFF <= 1;
            let is_new = is_now && (LFU_INITIAL..=2 * LFU_INITIAL).contains(&(access & 0xFF));
            if is_new { access } else { to.fresh() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW_S: u32 = 1_795_704_000;

    fn lfu() -> Access {
        Access::Lfu { clock_minutes: NOW_S / 60, log_factor: 10, decay_minutes: 1 }
    }

    #[test]
    fn issue_33_keys_of_before_count_as_new_under_lfu() {
        for idle_s in [0, 1, 59, 3600, 1 << 22] {
            let before = Access::Lru { clock_s: NOW_S - idle_s }.fresh();
            let after = converted(before, lfu());
            assert_eq!(lfu().lfu_counter(after), 5, "idle for {idle_s} s");
        }
        let used = lfu().fresh() + 1;
        assert_eq!(converted(used, lfu()), used);
    }

    #[test]
    fn issue_33_keys_of_before_keep_their_last_use_under_lru() {
        let to = Access::Lru { clock_s: NOW_S };
        for idle_minutes in [0, 1, 10, 1000, 60_000] {
            for counter in [0, 5, 255] {
                let before = ((NOW_S / 60 - idle_minutes) & 0xFFFF) << 8 | counter;
                let idle_s = NOW_S.wrapping_sub(converted(before, to)) & 0x00FF_FFFF;
                assert_eq!(idle_s, idle_minutes * 60, "counter {counter}");
            }
        }
        let used = Access::Lru { clock_s: NOW_S - 1 }.fresh();
        assert_eq!(converted(used, to), used);
    }
}
