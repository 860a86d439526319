//! Commands that create streams.
//!
//! ```text
//!   group   XGROUP CREATE key group last ENTRIESREAD n (-1 if unknown); then, for each consumer,
//!           its pending entries:
//!             XCLAIM key group consumer 0 ID TIME ms RETRYCOUNT n JUSTID FORCE
//!           or, if it has none:
//!             XGROUP CREATECONSUMER key group consumer
//! ```

use keyspace::stream::{Group, IdText, Pending};
use keyspace::{Stream, StreamEntry, StreamId};
use structures::listpack::element::IntText;

use super::CommandBuffer;

impl CommandBuffer {
    pub(super) fn stream(&mut self, key: &[u8], stream: &Stream) {
        for entry in stream.range(StreamId::MIN, StreamId::MAX) {
            self.stream_entry(key, &entry);
        }
        self.stream_rest(key, stream.len(), stream);
    }

    pub(super) fn stream_entry(&mut self, key: &[u8], entry: &StreamEntry<'_>) {
        self.begin(3 + 2 * entry.pairs.len());
        self.word(b"XADD");
        self.word(key);
        self.word(entry.id.text(&mut IdText::new()));
        for (field, value) in entry.pairs.clone() {
            self.word(field);
            self.word(value.text(&mut IntText::new()));
        }
    }

    /// Writes everything of a stream except its entries: its last ID, counters and groups. `len` is
    /// the number of entries, which were written before.
    pub(super) fn stream_rest(&mut self, key: &[u8], len: usize, rest: &Stream) {
        if len == 0 {
            self.command(&[b"XADD", key, b"MAXLEN", b"0", b"0-1", b"x", b"y"]);
        }
        let (mut last, mut deleted) = (IdText::new(), IdText::new());
        let (last, deleted) = (rest.last_id().text(&mut last), rest.max_deleted_id().text(&mut deleted));
        let added = rest.entries_added().to_string();
        self.command(&[b"XSETID", key, last, b"ENTRIESADDED", added.as_bytes(), b"MAXDELETEDID", deleted]);
        rest.groups().for_each(|group| self.group(key, group));
    }

    fn group(&mut self, key: &[u8], group: &Group) {
        let (mut last, name) = (IdText::new(), group.name());
        let (last, read) = (group.last_delivered().text(&mut last), group.entries_read().unwrap_or(-1));
        let read = read.to_string();
        self.command(&[b"XGROUP", b"CREATE", key, name, last, b"ENTRIESREAD", read.as_bytes()]);
        for consumer in group.consumers() {
            if consumer.pending_len() == 0 {
                self.command(&[b"XGROUP", b"CREATECONSUMER", key, name, consumer.name()]);
            }
            for id in consumer.pending_from(StreamId::MIN) {
                let pending = group.pending(id).expect("what is pending for a consumer is so in its group");
                self.pending_entry(&[key, name, consumer.name()], id, pending);
            }
        }
    }

    fn pending_entry(&mut self, whose: &[&[u8]; 3], id: StreamId, pending: &Pending) {
        let (at, times) = (pending.delivered_ms.to_string(), pending.deliveries.to_string());
        self.begin(12);
        self.word(b"XCLAIM");
        whose.iter().for_each(|word| self.word(word));
        self.word(b"0");
        self.word(id.text(&mut IdText::new()));
        let options = [&b"TIME"[..], at.as_bytes(), b"RETRYCOUNT", times.as_bytes(), b"JUSTID", b"FORCE"];
        options.iter().for_each(|word| self.word(word));
    }
}
