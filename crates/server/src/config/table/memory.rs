//! Options of memory, expiry and eviction.

use super::OTHER_DESIGN;
use crate::config::choices::EvictionPolicy;
use crate::config::handle::{Choice as _, Handle};
use crate::config::option::{FollowUp, INT, OnChange, Opt};
use crate::config::value::Kind;

/// The options of this theme.
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
    &Opt::flag("lazyfree-lazy-server-del", "no", "Free replaced values in the background.")
        .accepted(ALWAYS_LAZY),
    &Opt::flag("lazyfree-lazy-user-del", "no", "Let DEL free values in the background.")
        .accepted(ALWAYS_LAZY),
    &Opt::flag("lazyfree-lazy-user-flush", "no", "Let FLUSHALL free values in the background.")
        .accepted(ALWAYS_LAZY),
    &NOTIFY_KEYSPACE_EVENTS.opt,
    &Opt::flag("activerehashing", "yes", "Move tables to their new size in idle time.")
        .accepted(OTHER_DESIGN),
    &Opt::flag("activedefrag", "no", "Move values together to give memory back.").accepted(NO_DEFRAG),
    &Opt::memory(
        "active-defrag-ignore-bytes",
        "104857600",
        (1, i64::MAX as u64),
        "Waste that is left alone.",
    )
    .accepted(NO_DEFRAG),
    &Opt::integer("active-defrag-threshold-lower", "10", (0, 1000), "Percentage of waste to start at.")
        .accepted(NO_DEFRAG),
    &Opt::integer("active-defrag-threshold-upper", "100", (0, 1000), "Percentage of waste for full effort.")
        .accepted(NO_DEFRAG),
    &Opt::integer("active-defrag-cycle-min", "1", (1, 99), "Percentage of a core at the lower threshold.")
        .accepted(NO_DEFRAG),
    &Opt::integer("active-defrag-cycle-max", "25", (1, 99), "Percentage of a core at the upper threshold.")
        .accepted(NO_DEFRAG),
    &Opt::integer("active-defrag-cycle-us", "500", (0, 100_000), "Microseconds of one step.")
        .accepted(NO_DEFRAG),
    &Opt::integer(
        "active-defrag-max-scan-fields",
        "1000",
        (1, i64::MAX),
        "Elements from which a value takes steps.",
    )
    .accepted(NO_DEFRAG),
    &Opt::flag("jemalloc-bg-thread", "yes", "Let the allocator give memory back in the background.")
        .accepted("the allocator is mimalloc"),
    &Opt::flag("disable-thp", "yes", "Keep the kernel from using huge pages for the process.")
        .at_start()
        .accepted(OTHER_DESIGN),
];

/// The memory limit, in bytes; 0 for no limit.
pub static MAXMEMORY: Handle<u64> = Opt::memory(
    "maxmemory",
    "0",
    (0, u64::MAX),
    "Memory limit: keys are evicted or, if the policy permits none, writes are rejected; 0 for no limit.",
)
.on_change(OnChange::FollowUp(FollowUp::ClientMemory))
.typed();

/// The eviction policy.
pub static MAXMEMORY_POLICY: Handle<EvictionPolicy> = Opt::choice(
    "maxmemory-policy",
    "noeviction",
    EvictionPolicy::WORDS,
    "What to evict when memory is over its limit: among all keys or those with an expiry, the least \
         recently used, the least frequently used, any, or the next to expire; or nothing. The choice \
         between LRU and LFU also decides what OBJECT IDLETIME and FREQ know.",
)
.typed();

/// The number of keys compared for one eviction.
pub static MAXMEMORY_SAMPLES: Handle<usize> = Opt::integer(
    "maxmemory-samples",
    "5",
    (1, 64),
    "Keys compared to find one to evict; except under LFU, twice as many.",
)
.typed();

/// The level, from 0 to 100, that sets the maximum time of one round of eviction. Each level up to
/// 10 adds 50 microseconds; each level above 10 adds 15 percent; 100 means no limit.
pub static MAXMEMORY_EVICTION_TENACITY: Handle<u32> = Opt::integer(
    "maxmemory-eviction-tenacity",
    "10",
    (0, 100),
    "How long evicting may hold up a thread where memory is far over its limit: up to 10, in steps of 50 \
         microseconds, above growing by 15 percent each; at 100 as long as it takes.",
)
.typed();

/// The factor by which the access counter of a key grows more slowly than the number of accesses.
pub static LFU_LOG_FACTOR: Handle<u32> =
    Opt::integer("lfu-log-factor", "10", INT, "How many accesses it takes to raise a key's frequency.")
        .typed();

/// The minutes after which a key's access counter falls by one; 0 for never.
pub static LFU_DECAY_TIME: Handle<u32> = Opt::integer(
    "lfu-decay-time",
    "1",
    INT,
    "Minutes after which a key's frequency falls by one; 0 for never.",
)
.typed();

/// The effort of the search for expired keys, from 1 to 10. A higher effort may use more CPU time.
pub static ACTIVE_EXPIRE_EFFORT: Handle<u32> = Opt::integer(
    "active-expire-effort",
    "1",
    (1, 10),
    "How much of a core looking for expired keys may take.",
)
.typed();

/// The classes of keyspace events that are published, as letters.
pub static NOTIFY_KEYSPACE_EVENTS: Handle<[u8]> = Opt::new(
    "notify-keyspace-events",
    Kind::EventLetters,
    "",
    "Which changes of keys are published, as letters.",
)
.typed();

const ALWAYS_LAZY: &str = "large values are always freed in the background";
const NO_DEFRAG: &str = "values are not moved";
