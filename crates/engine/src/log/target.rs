//! The targets of the change log's records: the append-only file, and replicas.
//!
//! Nearly all records go to both. PUBLISH goes to replicas only, and a script chooses the targets
//! of its writes with `redis.set_repl`.

/// A target of the change log's stream. Each reader of the log receives the records for one target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogTarget {
    /// The append-only file, as a target of the change log's records.
    File,
    /// The replicas of this server, as a target of the change log's records.
    Replicas,
}

impl LogTarget {
    /// All targets of the change log, in the order of their indexes.
    pub const ALL: [Self; 2] = [Self::File, Self::Replicas];
}

bitflags::bitflags! {
    /// A set of targets of the change log: the append-only file, replicas, or both.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Targets: u8 {
        /// The append-only file, as a member of a set of targets.
        const FILE = 1 << LogTarget::File as u8;
        /// The replicas, as a member of a set of targets.
        const REPLICAS = 1 << LogTarget::Replicas as u8;
    }
}

impl From<LogTarget> for Targets {
    #[inline]
    fn from(target: LogTarget) -> Self {
        Self::from_bits_retain(1 << target as u8)
    }
}
