//! The memory of the replication stream and of snapshots for replicas, and the limits on it.

use engine::settings::ClientLimits;
use replicate::backlog::Backlog;
use replicate::primary::{OutputLimit, Primary};

use crate::config::ConfigStore;
use crate::config::table::replication::REPL_BACKLOG_SIZE;

/// The memory that the replication stream and snapshots for replicas take, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMemory {
    /// The memory of the backlog, up to the size that `repl-backlog-size` sets.
    pub backlog: u64,
    /// The memory beyond the size of the backlog: of the replication stream for slow replicas, and
    /// of snapshots that are being sent.
    pub beyond: u64,
}

impl StreamMemory {
    /// Returns the memory of the replication stream; 0 without a backlog. O(1).
    pub fn of(primary: &Primary) -> Self {
        primary.backlog().map(Self::of_backlog).unwrap_or_default()
    }

    /// Returns the memory of the backlog. If no replica has more unsent bytes than the configured
    /// size, all memory counts as that of the backlog: any excess is due to whole blocks.
    fn of_backlog(backlog: &Backlog) -> Self {
        let total = backlog.memory_bytes();
        if backlog.behind_bytes() <= backlog.limit_bytes() {
            return Self { backlog: total, beyond: 0 };
        }
        let within = total.min(backlog.limit_bytes());
        Self { backlog: within, beyond: total - within }
    }

    /// Adds memory that is no longer in the backlog: of the output of slow replicas, and of
    /// snapshots.
    pub fn with_queued(self, queued_bytes: u64) -> Self {
        Self { beyond: self.beyond + queued_bytes, ..self }
    }

    /// Returns the memory of the replication stream as a whole.
    pub fn total(self) -> u64 {
        self.backlog + self.beyond
    }
}

/// The minimum size of the backlog in bytes, as in Redis.
const BACKLOG_BYTES_MIN: u64 = 16 << 10;

/// Returns the size of the backlog in bytes: the option `repl-backlog-size`, at least
/// [`BACKLOG_BYTES_MIN`].
pub fn backlog_limit_bytes(config: &ConfigStore) -> u64 {
    REPL_BACKLOG_SIZE.of(config).max(BACKLOG_BYTES_MIN)
}

/// Returns the limit on the unsent bytes of a replica, from the option `client-output-buffer-limit
/// replica`.
pub fn output_limit(limits: &ClientLimits) -> OutputLimit {
    let limit = limits.replica_output_limit;
    OutputLimit {
        hard_bytes: limit.hard_bytes,
        soft_bytes: limit.soft_bytes,
        soft_ms: limit.soft_seconds.saturating_mul(1000),
    }
}

#[cfg(test)]
mod tests {
    use replicate::history::ReplId;

    use super::*;

    #[test]
    fn bytes_beyond_the_limit_are_not_the_backlog_if_a_replica_is_slow() {
        assert_eq!(StreamMemory::of(&Primary::new(ReplId::NONE)), StreamMemory::default());
        let mut backlog = Backlog::new(1 << 20, 0);
        backlog.append(b"abc");
        let small = StreamMemory::of_backlog(&backlog);
        assert!(small.backlog >= 3 && small.beyond == 0 && small.total() == small.backlog);
        backlog.set_needed_from(0);
        backlog.append(&vec![b'x'; 3 << 20]);
        let slow = StreamMemory::of_backlog(&backlog);
        assert!(slow.backlog == 1 << 20 && slow.beyond > 2 << 20, "{slow:?}");
        backlog.set_needed_from(u64::MAX);
        let gone = StreamMemory::of_backlog(&backlog);
        assert!(gone.beyond == 0 && gone.backlog < 9 << 17, "{gone:?}");
    }

    #[test]
    fn the_limit_of_replicas_is_in_milliseconds() {
        let limit = output_limit(&ClientLimits::default());
        let expected = OutputLimit { hard_bytes: 256 << 20, soft_bytes: 64 << 20, soft_ms: 60_000 };
        assert_eq!(limit, expected);
    }
}
