//! The statistics of compaction.

use std::sync::atomic::AtomicU64;

use crate::stats::Counter;

/// The statistics of compaction, for INFO.
#[derive(Debug, Default)]
pub struct CompactionStats {
    /// The share of a core that compaction uses now, in percent; 0 between passes.
    pub share_percent: AtomicU64,
    /// The number of moved blocks.
    pub moved: Counter,
    /// The number of blocks that were checked and not moved.
    pub kept: Counter,
    /// The time that compaction took, in nanoseconds.
    pub nanos: Counter,
    /// The time since the present pass began, in milliseconds; 0 if there is none.
    pub pass_ms: AtomicU64,
}
