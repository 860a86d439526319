//! The records of commands on consumer groups: the pending entries, each with its consumer, time
//! and count of deliveries, and the group's progress. Source: the append-only file of Redis 8.0.2.
//! Unlike this module, Redis does not record entries delivered again, nor consumers that got no
//! entry.

use keyspace::stream::Group as ConsumerGroup;
use keyspace::{Stream, StreamId};

use crate::record::RecordWriter;

/// The changes that a command made to a consumer and to the entries of a group.
#[derive(Default)]
pub(super) struct GroupChanges {
    /// True if the command created the consumer of the group.
    pub(super) new_consumer: bool,
    /// The entries that are now pending for the command's consumer.
    pub(super) claimed: Vec<StreamId>,
    /// The entries that are no longer pending in the group, because they had been deleted from the
    /// stream.
    pub(super) gone: Vec<StreamId>,
    /// True if XGROUP SETID must be recorded, because the group's last delivered ID or its count of
    /// entries read changed. False if only a claim changed the ID: the record of the claim sets it.
    pub(super) moved: bool,
}

/// The key, group and consumer whose changes are recorded.
pub(super) struct GroupNames<'n> {
    pub(super) key: &'n [u8],
    pub(super) group: &'n [u8],
    pub(super) consumer: &'n [u8],
}

impl GroupChanges {
    /// Records commands that lead to the present state of the group and its consumer in `stream`.
    pub(super) fn record(&self, record: &mut RecordWriter<'_>, stream: &Stream, names: &GroupNames<'_>) {
        let Some(group) = stream.group(names.group) else { return };
        // A claim creates its consumer, unless it may be read as the record of XNACK.
        if self.new_consumer && (self.claimed.is_empty() || names.consumer.is_empty()) {
            record.command("XGROUP").word(b"CREATECONSUMER");
            record.words([names.key, names.group, names.consumer]);
        }
        for &id in &self.claimed {
            // For a delivery, each claim sets the last ID to its own entry. Otherwise claims repeat
            // the present last ID.
            let last_id = if self.moved { id } else { group.last_delivered() };
            record_claim(record, group, names, id);
            record.id(last_id);
        }
        if !self.gone.is_empty() {
            record.command("XACK").words([names.key, names.group]);
            self.gone.iter().for_each(|&id| _ = record.id(id));
        }
        if self.moved {
            record.command("XGROUP").words([&b"SETID"[..], names.key, names.group]);
            let read = group.entries_read().unwrap_or(-1);
            record.id(group.last_delivered()).word(b"ENTRIESREAD").integer(read);
        }
    }
}

/// The maximum number of IDs of one recorded XDEL.
const RECORDED_IDS_MAX: usize = 1024;

/// The entries that a command removed by their IDs, and the entries that it also acknowledged. They
/// are recorded as XACK and XDEL. The commands that do both at once are newer than Redis 6.2, and
/// Valkey has none.
#[derive(Default)]
pub(super) struct RemovedEntries {
    /// The entries that the command acknowledged, each with the index of its consumer group.
    pub(super) acknowledged: Vec<(usize, StreamId)>,
    /// The entries that the command removed from the stream.
    pub(super) removed: Vec<StreamId>,
}

impl RemovedEntries {
    /// Stores the consumer groups in which the entry `id` is pending, so that the acknowledgements
    /// can be recorded. Must be called before the entry is removed from these groups. O(groups log
    /// n).
    pub(super) fn note_pending(&mut self, stream: &Stream, id: StreamId) {
        let pending = stream.groups().enumerate().filter(|(_, group)| group.is_pending(id));
        self.acknowledged.extend(pending.map(|(number, _)| (number, id)));
    }

    /// Records one XACK for each consumer group, then XDEL.
    pub(super) fn record(&self, record: &mut RecordWriter<'_>, stream: &Stream, key: &[u8]) {
        for (number, group) in stream.groups().enumerate() {
            let mut ids = self.acknowledged.iter().filter(|(of, _)| *of == number).peekable();
            if ids.peek().is_some() {
                record.command("XACK").words([key, group.name()]);
                ids.for_each(|&(_, id)| _ = record.id(id));
            }
        }
        for ids in self.removed.chunks(RECORDED_IDS_MAX) {
            record.command("XDEL").word(key);
            ids.iter().for_each(|&id| _ = record.id(id));
        }
    }
}

/// Records an XCLAIM of an entry in its present pending state, except the value of LASTID, which
/// the caller appends.
fn record_claim(record: &mut RecordWriter<'_>, group: &ConsumerGroup, names: &GroupNames<'_>, id: StreamId) {
    let pending = group.pending(id).expect("it was claimed just now");
    record.command("XCLAIM").words([names.key, names.group, names.consumer, b"0"]).id(id);
    record.word(b"TIME").integer(pending.delivered_ms);
    record.word(b"RETRYCOUNT").integer(pending.deliveries);
    record.words([&b"FORCE"[..], b"JUSTID", b"LASTID"]);
}
