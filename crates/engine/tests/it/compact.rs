//! Tests of the compaction of the keyspace: values move to other pages, so that sparse pages become
//! free.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use engine::compact::Compaction;
use engine::fragmentation::{CompactionSettings, HeldMemory};
use engine::settings::Settings;
use keyspace::key::SHARD_COUNT;
use structures::alloc::{PAGE_LEN_BYTES, page_of};

use crate::driver::{Thread, shared};

/// Memory figures (used, held by the allocator) with a fragmentation far above all thresholds of
/// the compaction.
const FRAGMENTED: HeldMemory = HeldMemory { used_bytes: 1 << 20, held_bytes: 9 << 20 };

fn settings(slice: Duration) -> Settings {
    let compaction =
        CompactionSettings { is_on: true, slice, ignored_bytes: 1, ..CompactionSettings::default() };
    Settings { compaction, ..Settings::default() }
}

/// Returns the number of memory pages that have keyspace entries, and the bytes of these entries.
fn pages(shared: &engine::Shared) -> (usize, usize) {
    let (mut pages, mut bytes) = (HashSet::new(), 0);
    for shard in 0..SHARD_COUNT {
        let locked = shared.keyspace.lock(shard);
        for entry in locked.db(0).into_iter().flat_map(|db| db.table().iter()) {
            pages.insert(page_of(entry.address()));
            bytes += entry.block_len_bytes();
        }
    }
    (pages.len(), bytes)
}

/// Runs the present pass of the compaction to its end.
fn finish(compaction: &mut Compaction, shared: &engine::Shared) {
    assert!(compaction.is_in_pass());
    while compaction.is_in_pass() {
        assert_eq!(compaction.slice(shared, Instant::now), !compaction.is_in_pass());
    }
}

#[test]
fn a_pass_takes_the_rest_of_many_deleted_keys_out_of_sparse_pages() {
    const KEYS: usize = 60_000;
    // With slices of no length, each has one step.
    for slice in [Duration::from_secs(10), Duration::ZERO] {
        let (shared, clock) = shared(1, settings(slice));
        let mut thread = Thread::new(&shared, &clock, 0);
        let client = thread.connect();
        let value = |n: usize| "x".repeat(20 + n * 7 % 200);
        (0..KEYS).for_each(|n| drop(thread.run(client, &format!("SET key:{n} {}", value(n)))));
        let stays = |n: usize| n % 10 == n / 10 % 10;
        (0..KEYS).filter(|&n| !stays(n)).for_each(|n| drop(thread.run(client, &format!("DEL key:{n}"))));
        let (before, bytes) = pages(&shared);
        let mut compaction = Compaction::new(Instant::now());
        compaction.begin_round(&shared, FRAGMENTED, Instant::now());
        finish(&mut compaction, &shared);
        assert_eq!(compaction.next_slice(), None);
        let (after, same_bytes) = pages(&shared);
        assert_eq!(bytes, same_bytes);
        // A page of each size class may be in use in part.
        assert!(
            after <= bytes * 5 / 4 / PAGE_LEN_BYTES + 30 && after * 2 < before,
            "{before} {after} {bytes}"
        );
        for n in (0..KEYS).filter(|&n| stays(n)) {
            assert_eq!(
                thread.run(client, &format!("GET key:{n}")).0,
                format!("${}|{}|", value(n).len(), value(n))
            );
        }
        let moved = shared.upkeep.compaction.moved.get();
        assert_eq!(moved + shared.upkeep.compaction.kept.get(), KEYS as u64 / 10);
        // The next pass follows soon if this one has freed memory, else after growth.
        let soon = Instant::now() + Duration::from_secs(2);
        let less = HeldMemory { held_bytes: 8 << 20, ..FRAGMENTED };
        compaction.begin_round(&shared, less, soon);
        finish(&mut compaction, &shared);
        for _ in 0..2 {
            compaction.begin_round(&shared, less, soon + Duration::from_secs(2));
            assert!(!compaction.is_in_pass());
        }
        compaction.begin_round(&shared, FRAGMENTED, soon + Duration::from_secs(3));
        assert!(!compaction.is_in_pass());
        let grown = HeldMemory { held_bytes: 10 << 20, ..FRAGMENTED };
        compaction.begin_round(&shared, grown, soon + Duration::from_secs(4));
        assert!(compaction.is_in_pass());
        let packed = HeldMemory { held_bytes: FRAGMENTED.used_bytes, ..FRAGMENTED };
        compaction.begin_round(&shared, packed, soon + Duration::from_secs(5));
        assert!(!compaction.is_in_pass());
        // A pass that ended early does not count as one that freed little.
        compaction.begin_round(&shared, grown, soon + Duration::from_secs(6));
        assert!(compaction.is_in_pass());
    }
}

#[test]
fn a_step_moves_a_bounded_number_of_bytes() {
    const VALUE_BYTES: usize = 4000;
    // A step ends after the bucket that reaches 64 KiB.
    const MOVED_MAX: u64 = (64 << 10) / VALUE_BYTES as u64 + 8;
    let (shared, clock) = shared(1, settings(Duration::ZERO));
    let mut thread = Thread::new(&shared, &clock, 0);
    let client = thread.connect();
    let name = |n: usize| format!("key:{n}");
    let is_in_shard = |n: &usize| shared.keyspace.hasher().key(name(*n).as_bytes()).shard() == 0;
    let names: Vec<String> = (0..).filter(is_in_shard).take(600).map(name).collect();
    let value = "x".repeat(VALUE_BYTES);
    names.iter().for_each(|name| drop(thread.run(client, &format!("SET {name} {value}"))));
    let deleted = names.iter().step_by(2);
    deleted.for_each(|name| drop(thread.run(client, &format!("DEL {name}"))));
    let mut compaction = Compaction::new(Instant::now());
    compaction.begin_round(&shared, FRAGMENTED, Instant::now());
    let (mut moved, mut moved_max) = (0, 0);
    while compaction.is_in_pass() {
        compaction.slice(&shared, Instant::now);
        let now_moved = shared.upkeep.compaction.moved.get();
        moved_max = moved_max.max(now_moved - moved);
        moved = now_moved;
    }
    assert_eq!(moved + shared.upkeep.compaction.kept.get(), 300);
    assert!(moved > 2 * MOVED_MAX && moved_max <= MOVED_MAX, "{moved} {moved_max}");
}
