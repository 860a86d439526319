//! Cohorts: groups of replicas that get the same snapshot. All waiting replicas that can read the
//! same file share one snapshot, so the keyspace is walked once for all of them.

use std::collections::BTreeMap;

use crate::framing::Framing;
use crate::handshake::{Capabilities, Handshake, SnapshotContents};
use crate::primary::Primary;
use crate::replica::Phase;

/// The first major version of Valkey that reads Valkey's own snapshot format.
const VALKEY_FORMAT_SINCE: u32 = 9;

/// The kind of replica that reads a snapshot of a full synchronisation; it determines the version
/// of the RDB format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SnapshotReader {
    /// A server that announced no version: any Redis, a tool, or an old Valkey. Also a Saker, which
    /// reads every format.
    Unknown,
    /// Valkey before 9.0, which reads the format of Redis 7.2.
    ValkeyBefore9,
    /// Valkey 9.0 or later, which reads Valkey's own format.
    Valkey9,
}

impl SnapshotReader {
    fn of(handshake: &Handshake) -> Self {
        match handshake.version {
            _ if handshake.capabilities.contains(Capabilities::SAKER) => Self::Unknown,
            None => Self::Unknown,
            Some((major, ..)) if major >= VALKEY_FORMAT_SINCE => Self::Valkey9,
            Some(_) => Self::ValkeyBefore9,
        }
    }
}

/// The way in which snapshots are sent to replicas (`repl-diskless-sync`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// Snapshots are sent to the waiting replicas while they are written.
    Diskless,
    /// Snapshots are written to a file first, and sent to the replicas once they are complete.
    Complete,
}

impl Transfer {
    /// Returns the framing of the snapshot for a replica: a length, or an end mark if the transfer
    /// is diskless and the replica supports it.
    pub fn framing(self, handshake: &Handshake) -> Framing {
        match self {
            Transfer::Diskless if handshake.capabilities.contains(Capabilities::EOF) => Framing::EndMark,
            _ => Framing::Length,
        }
    }
}

/// The options that determine when the snapshot of a cohort (a group of replicas) starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CohortOptions {
    /// The way in which snapshots are sent to replicas: while they are written, or afterwards.
    pub transfer: Transfer,
    /// The time for which the first replica that needs a snapshot waits for others, in milliseconds
    /// (`repl-diskless-sync-delay`).
    pub delay_ms: u64,
    /// The number of waiting replicas at which a snapshot begins without delay; 0 if the delay
    /// always applies (`repl-diskless-sync-max-replicas`).
    pub replicas_max: usize,
}

/// A group of replicas that get the same snapshot in their full synchronisation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cohort {
    /// The kind of replica that will read the group's snapshot; it determines the snapshot's
    /// format.
    pub reader: SnapshotReader,
    /// The contents that the group's snapshot must have: keys, functions or both.
    pub contents: SnapshotContents,
    /// The replicas of the group: the id of the client of each, and the framing of its snapshot.
    pub replicas: Vec<(u64, Framing)>,
}

/// A group of replicas that wait for a snapshot, while the group may still grow.
struct Waiting {
    cohort: Cohort,
    since_ms: u64,
    /// True if a replica of the group gets the snapshot only once it is complete; then the delay
    /// does not apply.
    is_urgent: bool,
}

/// Returns the cohort (group of replicas) whose snapshot must start now; `None` if there is none.
/// Of several, returns the one that has waited longest. O(replicas).
pub fn due(primary: &Primary, options: CohortOptions, now_ms: u64) -> Option<Cohort> {
    let mut waiting: BTreeMap<_, Waiting> = BTreeMap::new();
    for (client, replica) in primary.replicas() {
        let Phase::AwaitsSnapshot { since_ms } = replica.phase else { continue };
        let (reader, contents) = (SnapshotReader::of(&replica.handshake), replica.handshake.contents);
        let framing = options.transfer.framing(&replica.handshake);
        let entry = waiting.entry((reader, contents)).or_insert_with(|| Waiting {
            cohort: Cohort { reader, contents, replicas: Vec::new() },
            since_ms,
            is_urgent: false,
        });
        entry.cohort.replicas.push((client, framing));
        entry.since_ms = entry.since_ms.min(since_ms);
        entry.is_urgent |= framing == Framing::Length;
    }
    let is_due = |it: &Waiting| {
        it.is_urgent
            || now_ms.saturating_sub(it.since_ms) >= options.delay_ms
            || options.replicas_max > 0 && it.cohort.replicas.len() >= options.replicas_max
    };
    let due = waiting.into_values().filter(is_due);
    due.min_by_key(|it| it.since_ms).map(|it| it.cohort)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::ReplId;
    use crate::replica::{Dialect, Replica};

    const OPTIONS: CohortOptions =
        CohortOptions { transfer: Transfer::Diskless, delay_ms: 5000, replicas_max: 0 };

    fn add(primary: &mut Primary, client: u64, words: &[(&str, &str)], now_ms: u64) {
        let mut handshake = Handshake::default();
        for (option, value) in words {
            handshake.set(option.as_bytes(), value.as_bytes()).expect("it is valid");
        }
        primary.add(client, Replica::new(handshake, Dialect::Psync, String::new(), now_ms));
    }

    fn clients(cohort: Option<Cohort>) -> Vec<u64> {
        cohort.map_or(Vec::new(), |cohort| cohort.replicas.into_iter().map(|(client, _)| client).collect())
    }

    #[test]
    fn replicas_that_read_the_same_wait_for_one_another() {
        let mut primary = Primary::new(ReplId::NONE);
        let eof = ("capa", "eof");
        add(&mut primary, 1, &[eof], 0);
        add(&mut primary, 2, &[eof, ("version", "9.0.1")], 1000);
        add(&mut primary, 3, &[eof], 4999);
        assert_eq!(due(&primary, OPTIONS, 4999), None);
        assert_eq!(clients(due(&primary, OPTIONS, 5000)), [1, 3]);
        assert_eq!(clients(due(&primary, CohortOptions { replicas_max: 2, ..OPTIONS }, 4999)), [1, 3]);
        primary.set_phase(1, Phase::Online, 0);
        primary.remove(3, 0);
        let cohort = due(&primary, OPTIONS, 6000).expect("it is due");
        assert_eq!(
            (cohort.reader, &cohort.replicas[..]),
            (SnapshotReader::Valkey9, &[(2, Framing::EndMark)][..])
        );
    }

    #[test]
    fn a_complete_snapshot_begins_at_once() {
        let mut primary = Primary::new(ReplId::NONE);
        add(&mut primary, 1, &[("version", "8.1.1")], 0);
        let cohort = due(&primary, OPTIONS, 0).expect("it is due");
        assert_eq!(
            (cohort.reader, cohort.replicas),
            (SnapshotReader::ValkeyBefore9, vec![(1, Framing::Length)])
        );
        let mut primary = Primary::new(ReplId::NONE);
        add(&mut primary, 1, &[("version", "9.1.0"), ("capa", "saker")], 0);
        assert_eq!(due(&primary, OPTIONS, 9000).expect("it is due").reader, SnapshotReader::Unknown);
        let mut primary = Primary::new(ReplId::NONE);
        add(&mut primary, 1, &[("capa", "eof"), ("rdb-filter-only", "functions")], 0);
        let complete = CohortOptions { transfer: Transfer::Complete, ..OPTIONS };
        let cohort = due(&primary, complete, 0).expect("it is due");
        assert_eq!((cohort.contents, cohort.replicas[0].1), (SnapshotContents::FUNCTIONS, Framing::Length));
    }
}
