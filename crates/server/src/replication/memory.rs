//! The memory of the replication stream, and the limits on it.

use engine::settings::ClientLimits;
use replicate::primary::{OutputLimit, Primary};

use crate::config::ConfigStore;
use crate::config::table::replication::REPL_BACKLOG_SIZE;

/// The memory of the stream, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamMemory {
    /// The part up to the size of the backlog.
    pub backlog: u64,
    /// The part beyond it, which is kept only for slow replicas.
    pub beyond: u64,
}

impl StreamMemory {
    /// Reads the memory of the stream. O(blocks of the backlog).
    pub fn of(primary: &Primary) -> Self {
        let Some(backlog) = primary.backlog() else { return Self::default() };
        let total = backlog.memory_bytes();
        let within = total.min(backlog.limit_bytes());
        Self { backlog: within, beyond: total - within }
    }

    /// Returns the memory of the stream as a whole.
    pub fn total(self) -> u64 {
        self.backlog + self.beyond
    }
}

/// The smallest backlog, in bytes, as in Redis.
const BACKLOG_BYTES_MIN: u64 = 16 << 10;

/// Returns the size of the backlog in bytes: `repl-backlog-size`, at least [`BACKLOG_BYTES_MIN`].
pub fn backlog_limit_bytes(config: &ConfigStore) -> u64 {
    REPL_BACKLOG_SIZE.of(config).max(BACKLOG_BYTES_MIN)
}

/// Returns the limit on the bytes that a replica has still to read: `client-output-buffer-limit
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
    fn bytes_beyond_the_limit_are_not_the_backlog() {
        let mut primary = Primary::new(ReplId::NONE);
        assert_eq!(StreamMemory::of(&primary), StreamMemory::default());
        primary.open_backlog(1 << 20, ReplId::NONE);
        primary.append(b"abc");
        let small = StreamMemory::of(&primary);
        assert!(small.backlog >= 3 && small.beyond == 0 && small.total() == small.backlog);
        primary.append(&vec![b'x'; 3 << 20]);
        let full = StreamMemory::of(&primary);
        assert_eq!((full.backlog, full.total()), (1 << 20, (1 << 20) + full.beyond));
    }

    #[test]
    fn the_limit_of_replicas_is_in_milliseconds() {
        let limit = output_limit(&ClientLimits::default());
        let expected = OutputLimit { hard_bytes: 256 << 20, soft_bytes: 64 << 20, soft_ms: 60_000 };
        assert_eq!(limit, expected);
    }
}
