//! The table of options for memory, expiry and eviction.

use super::OTHER_DESIGN;
use crate::config::choices::EvictionPolicy;
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{FollowUp, INT, OnChange, Opt};
use crate::config::value::Kind;

/// The options of this file, in the order of docs/options.md.
pub static OPTIONS: &[&Opt] = &[
    &MAXMEMORY.opt,
    &MAXMEMORY_POLICY.opt,
    &MAXMEMORY_SAMPLES.opt,
    &MAXMEMORY_EVICTION_TENACITY.opt,
    &LFU_LOG_FACTOR.opt,
    &LFU_DECAY_TIME.opt,
    &ACTIVE_EXPIRE_EFFORT.opt,
    &Opt::flag("lazyfree-lazy-eviction", "no", "Free evicted values in the background.")
        .accepted(ALWAYS_LAZY),
    &Opt::flag("lazyfree-lazy-expire", "no", "Free expired values in the background.").accepted(ALWAYS_LAZY),
    &Opt::flag("lazyfree-lazy-server-del", "no", "Free overwritten values in the background.")
        .accepted(ALWAYS_LAZY),
    &Opt::flag("lazyfree-lazy-user-del", "no", "Free the values that DEL removes in the background.")
        .accepted(ALWAYS_LAZY),
    &Opt::flag(
        "lazyfree-lazy-user-flush",
        "no",
        "Free the values that FLUSHALL and FLUSHDB remove in the background.",
    )
    .accepted(ALWAYS_LAZY),
    &NOTIFY_KEYSPACE_EVENTS.opt,
    &Opt::flag("activerehashing", "yes", "Resize hash tables in idle time.").accepted(OTHER_DESIGN),
    &ACTIVEDEFRAG.opt,
    &ACTIVE_DEFRAG_IGNORE_BYTES.opt,
    &ACTIVE_DEFRAG_THRESHOLD_LOWER.opt,
    &ACTIVE_DEFRAG_THRESHOLD_UPPER.opt,
    &ACTIVE_DEFRAG_CYCLE_MIN.opt,
    &ACTIVE_DEFRAG_CYCLE_MAX.opt,
    &ACTIVE_DEFRAG_CYCLE_US.opt,
    &Opt::integer(
        "active-defrag-max-scan-fields",
        "1000",
        (1, i64::MAX),
        "The number of elements above which a value is defragmented in several steps.",
    )
    .accepted(ONE_STEP),
    &Opt::flag(
        "jemalloc-bg-thread",
        "yes",
        "Let a thread of the allocator return unused memory to the system.",
    )
    .accepted("the allocator is mimalloc"),
    &Opt::flag("disable-thp", "yes", "Disable transparent huge pages for the process.")
        .at_start()
        .accepted(OTHER_DESIGN),
];

/// The limit on the server's used memory, in bytes; 0 for no limit.
pub static MAXMEMORY: Handle<u64> = Opt::memory(
    "maxmemory",
    "0",
    (0, u64::MAX),
    "The memory limit, in bytes; 0 for no limit. Above it, the server evicts keys by \
         `maxmemory-policy`. If it can evict none, commands that need memory are refused.",
)
.on_change(OnChange::FollowUp(FollowUp::ClientMemory))
.typed();

/// The policy by which keys are chosen for eviction.
pub static MAXMEMORY_POLICY: Handle<EvictionPolicy> = Opt::choice(
    "maxmemory-policy",
    "noeviction",
    EvictionPolicy::WORDS,
    "The keys to evict when used memory exceeds `maxmemory`. `allkeys-*` considers all keys, \
         `volatile-*` only keys with an expiry. `lru` evicts the least recently used key, `lfu` the \
         least frequently used, `random` a random one, `ttl` the next to expire. `noeviction` evicts \
         none. Under an LFU policy, keys record their access frequency (OBJECT FREQ), else their idle \
         time (OBJECT IDLETIME).",
)
.typed();

/// The number of keys that are compared to choose one key for eviction.
pub static MAXMEMORY_SAMPLES: Handle<usize> = Opt::integer(
    "maxmemory-samples",
    "5",
    (1, 64),
    "The number of keys that are compared to choose one to evict. With an LRU, `ttl` or `random` \
         policy twice as many are compared. A larger number chooses better keys but costs more CPU.",
)
.typed();

/// The level, from 0 to 100, that sets the maximum time of one round of eviction. Each level up to
/// 10 adds 50 microseconds; each level above 10 adds 15 percent; 100 means no limit.
pub static MAXMEMORY_EVICTION_TENACITY: Handle<u32> = Opt::integer(
    "maxmemory-eviction-tenacity",
    "10",
    (0, 100),
    "The maximum time for which one round of eviction may delay a thread. From 0 to 10, the time \
         is 50 microseconds times this number. Above 10, each step adds 15 percent. 100 means no \
         limit.",
)
.typed();

/// The factor by which the growth of a key's access counter slows down.
pub static LFU_LOG_FACTOR: Handle<u32> = Opt::integer(
    "lfu-log-factor",
    "10",
    INT,
    "The factor for LFU access counters. With a larger factor, a key needs more accesses to raise \
         its counter.",
)
.typed();

/// The minutes after which a key's access counter falls by one; 0 for never.
pub static LFU_DECAY_TIME: Handle<u32> = Opt::integer(
    "lfu-decay-time",
    "1",
    INT,
    "The time, in minutes, after which the LFU access counter of an unused key is reduced by one; \
         0 for never.",
)
.typed();

/// The effort of the search for expired keys, from 1 to 10. A higher effort may use more CPU time.
pub static ACTIVE_EXPIRE_EFFORT: Handle<u32> = Opt::integer(
    "active-expire-effort",
    "1",
    (1, 10),
    "The effort of the search for expired keys. A larger number removes expired keys earlier but \
         uses more of a core.",
)
.typed();

/// True if keys are moved in memory while fragmentation is above `active-defrag-ignore-bytes` and
/// `active-defrag-threshold-lower`.
pub static ACTIVEDEFRAG: Handle<bool> =
    Opt::flag("activedefrag", "no", "Move keys and short values in memory to reduce fragmentation.").typed();

/// The bytes of fragmentation (unused memory in allocated pages) up to which nothing is moved.
pub static ACTIVE_DEFRAG_IGNORE_BYTES: Handle<u64> = Opt::memory(
    "active-defrag-ignore-bytes",
    "104857600",
    (1, i64::MAX as u64),
    "The minimum fragmentation, in bytes, at which defragmentation starts.",
)
.typed();

/// The fragmentation, in percent, at which defragmentation starts.
pub static ACTIVE_DEFRAG_THRESHOLD_LOWER: Handle<u64> = Opt::integer(
    "active-defrag-threshold-lower",
    "10",
    (0, 1000),
    "The fragmentation, in percent, at which defragmentation starts.",
)
.typed();

/// The fragmentation, in percent, at which defragmentation uses its maximum CPU time.
pub static ACTIVE_DEFRAG_THRESHOLD_UPPER: Handle<u64> = Opt::integer(
    "active-defrag-threshold-upper",
    "100",
    (0, 1000),
    "The fragmentation, in percent, at which defragmentation uses its maximum CPU time.",
)
.typed();

/// The share of a core's time, in percent, that defragmentation takes when fragmentation is at
/// `active-defrag-threshold-lower`.
pub static ACTIVE_DEFRAG_CYCLE_MIN: Handle<u64> = Opt::integer(
    "active-defrag-cycle-min",
    "1",
    (1, 99),
    "The share of a core, in percent, for defragmentation at the lower threshold.",
)
.typed();

/// The share of a core's time, in percent, that defragmentation takes when fragmentation is at
/// `active-defrag-threshold-upper`.
pub static ACTIVE_DEFRAG_CYCLE_MAX: Handle<u64> = Opt::integer(
    "active-defrag-cycle-max",
    "25",
    (1, 99),
    "The share of a core, in percent, for defragmentation at the upper threshold.",
)
.typed();

/// The maximum time for which defragmentation works before it pauses, in microseconds.
pub static ACTIVE_DEFRAG_CYCLE_US: Handle<u64> = Opt::integer(
    "active-defrag-cycle-us",
    "500",
    (0, 100_000),
    "The time of one defragmentation step, in microseconds.",
)
.typed();

/// The letters of the keyspace events that are published (`K`, `E` and the classes).
pub static NOTIFY_KEYSPACE_EVENTS: Handle<[u8]> = Opt::new(
    "notify-keyspace-events",
    Kind::EventLetters,
    "",
    "The keyspace events to publish, as letters for channels and event classes; empty for none. \
         `K` and `E` select the channels, and `A` stands for most event classes.",
)
.typed();

const ALWAYS_LAZY: &str = "large values are always freed in the background";
const ONE_STEP: &str = "only keys with their short values move, in steps of bounded length";
