//! The statistics of compaction (`activedefrag`), which moves keys in memory.

use std::sync::atomic::AtomicU64;

use crate::stats::Counter;

/// The statistics of compaction (`activedefrag`), for INFO.
#[derive(Debug, Default)]
pub struct CompactionStats {
    /// The share of a core that compaction uses now, in percent; 0 between its passes over the
    /// keyspace.
    pub share_percent: AtomicU64,
    /// The number of memory blocks that compaction has moved.
    pub moved: Counter,
    /// The number of memory blocks that compaction has checked and not moved.
    pub kept: Counter,
    /// The time that compaction has taken, in nanoseconds.
    pub nanos: Counter,
    /// The time since the present compaction pass over the keyspace began, in milliseconds; 0 if
    /// there is none.
    pub pass_ms: AtomicU64,
}
