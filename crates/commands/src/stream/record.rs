//! What commands on consumer groups record: the pending entries, each with its consumer, time and
//! count of deliveries, and how far the group has read. Source: what Redis 8.0.2 writes to its
//! append-only file, which leaves out entries delivered again and consumers that got nothing.

use keyspace::stream::Group as ConsumerGroup;
use keyspace::{Stream, StreamId};

use crate::record::RecordWriter;

/// What a command did to a consumer and to the entries of a group.
#[derive(Default)]
pub(super) struct GroupChanges {
    /// Whether it created the consumer.
    pub(super) new_consumer: bool,
    /// Entries that are pending for the consumer now.
    pub(super) claimed: Vec<StreamId>,
    /// Entries that were pending and are not any more.
    pub(super) gone: Vec<StreamId>,
    /// Whether the group's last delivered ID, or its count of entries read, changed otherwise than
    /// by a claim.
    pub(super) moved: bool,
}

/// Whose changes are recorded.
pub(super) struct GroupNames<'n> {
    pub(super) key: &'n [u8],
    pub(super) group: &'n [u8],
    pub(super) consumer: &'n [u8],
}

impl GroupChanges {
    /// Writes commands that lead to `stream` as it is now.
    pub(super) fn record(&self, record: &mut RecordWriter<'_>, stream: &Stream, names: &GroupNames<'_>) {
        let Some(group) = stream.group(names.group) else { return };
        if self.new_consumer && self.claimed.is_empty() {
            record.command("XGROUP").word(b"CREATECONSUMER");
            record.words([names.key, names.group, names.consumer]);
        }
        for &id in &self.claimed {
            // Entries delivered one after another, or one claimed by itself.
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

/// Writes a claim of an entry as it is pending now, but for the group's last ID, which comes last.
fn record_claim(record: &mut RecordWriter<'_>, group: &ConsumerGroup, names: &GroupNames<'_>, id: StreamId) {
    let pending = group.pending(id).expect("it was claimed just now");
    record.command("XCLAIM").words([names.key, names.group, names.consumer, b"0"]).id(id);
    record.word(b"TIME").integer(pending.delivered_ms);
    record.word(b"RETRYCOUNT").integer(pending.deliveries);
    record.words([&b"FORCE"[..], b"JUSTID", b"LASTID"]);
}
