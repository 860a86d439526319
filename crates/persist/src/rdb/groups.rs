//! The consumer groups of a stream.
//!
//! ```text
//!   groups     count, then each: name | last delivered ID | entries read, -1 as 64 bits (7.0 on)
//!              pending | consumers
//!   pending    count, then each: 16 bytes of its ID | time of delivery | deliveries
//!   consumers  count, then each: name | time seen | time active, -1 for never (from 7.2 on)
//!              count of its pending entries, then 16 bytes of each ID
//! ```
//! From Redis 8.8 on, the IDs of entries that consumers released follow the consumers. These
//! entries are pending for no consumer. Every other pending entry of a group must belong to exactly
//! one consumer, and every entry of a consumer must be pending in the group. Older forms, which are
//! written here, store the released entries with a consumer whose name is empty.

use keyspace::stream::{Group, Pending};
use keyspace::{Stream, StreamId};

use super::error::{FormatError, FormatErrorKind};
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::stream_id::{from_raw, raw_bytes, read_id, write_id};
use super::value_type::ValueType;

/// A pending entry as it is read from a consumer group, before its consumer is known.
struct Unowned {
    id: StreamId,
    delivered_ms: i64,
    deliveries: u64,
    taken: bool,
}

/// Reads the consumer groups of `stream` from an RDB source, after the stream's entries and
/// counters.
pub(super) fn read<S: Source>(
    kind: ValueType,
    reader: &mut Reader<S>,
    stream: &mut Stream,
) -> Result<(), FormatError> {
    for _ in 0..reader.length()? {
        let name = reader.string()?;
        let last_delivered = read_id(reader)?;
        let entries_read = match kind {
            ValueType::StreamListpacks => stream.entries_up_to(last_delivered),
            _ => match reader.length()? {
                // The count may be -1 or any other negative number.
                count if count > i64::MAX as u64 => None,
                count => Some(count as i64),
            },
        };
        let group = stream.create_group(&name, last_delivered, entries_read).ok_or(broken(reader))?;
        read_group(kind, reader, group)?;
    }
    Ok(())
}

fn broken<S: Source>(reader: &Reader<S>) -> FormatError {
    reader.error(FormatErrorKind::BrokenGroup)
}

fn read_group<S: Source>(
    kind: ValueType,
    reader: &mut Reader<S>,
    group: &mut Group,
) -> Result<(), FormatError> {
    let mut pending = read_pending(reader)?;
    for _ in 0..reader.length()? {
        let name = reader.string()?;
        let seen_ms = reader.time_ms()?;
        let active_ms = match kind {
            ValueType::StreamListpacks | ValueType::StreamListpacks2 => Some(seen_ms),
            _ => Some(reader.time_ms()?).filter(|&at_ms| at_ms != NEVER_MS),
        };
        let consumer = group.create_consumer(&name, seen_ms).ok_or(broken(reader))?;
        group.set_active(consumer, active_ms);
        for _ in 0..reader.length()? {
            let id = from_raw(&reader.array()?);
            let at = pending.binary_search_by_key(&id, |pending| pending.id).map_err(|_| broken(reader))?;
            let Unowned { delivered_ms, deliveries, .. } = pending[at];
            if std::mem::replace(&mut pending[at].taken, true) {
                return Err(broken(reader));
            }
            group.assign(id, Pending { delivered_ms, deliveries, consumer });
        }
    }
    if kind == ValueType::StreamListpacks5 {
        for _ in 0..reader.length()? {
            let id = from_raw(&reader.array()?);
            let at = pending.binary_search_by_key(&id, |pending| pending.id).map_err(|_| broken(reader))?;
            if std::mem::replace(&mut pending[at].taken, true) {
                return Err(broken(reader));
            }
            group.release(id, pending[at].deliveries);
        }
    }
    if pending.iter().all(|pending| pending.taken) { Ok(()) } else { Err(broken(reader)) }
}

/// Reads the pending entries of a consumer group and sorts them by ID. Memory grows only with the
/// entries read; the count alone allocates nothing.
fn read_pending<S: Source>(reader: &mut Reader<S>) -> Result<Vec<Unowned>, FormatError> {
    let mut all: Vec<Unowned> = Vec::new();
    for _ in 0..reader.length()? {
        let id = from_raw(&reader.array()?);
        let (delivered_ms, deliveries) = (reader.time_ms()?, reader.length()?);
        all.push(Unowned { id, delivered_ms, deliveries, taken: false });
    }
    all.sort_unstable_by_key(|pending| pending.id);
    if all.is_sorted_by(|a, b| a.id < b.id) { Ok(all) } else { Err(broken(reader)) }
}

/// The stored time that means that a consumer was never active.
const NEVER_MS: i64 = -1;

/// Writes the consumer groups of a stream in the layout of the RDB type `kind`,
/// [`ValueType::StreamListpacks`] to [`ValueType::StreamListpacks3`].
pub(super) fn write<S: Sink>(kind: ValueType, writer: &mut Writer<S>, stream: &Stream) {
    writer.length(stream.groups().len() as u64);
    for group in stream.groups() {
        writer.string(group.name());
        write_id(writer, group.last_delivered());
        if kind != ValueType::StreamListpacks {
            writer.length(group.entries_read().map_or(u64::MAX, |count| count as u64));
        }
        writer.length(group.pending_len() as u64);
        for (id, pending) in group.pending_from(StreamId::MIN) {
            writer.raw(&raw_bytes(id));
            writer.time_ms(pending.delivered_ms);
            writer.length(pending.deliveries);
        }
        writer.length(group.consumer_count() as u64);
        for consumer in group.consumers() {
            writer.string(consumer.name());
            writer.time_ms(consumer.seen_ms());
            if kind == ValueType::StreamListpacks3 {
                writer.time_ms(consumer.active_ms().unwrap_or(NEVER_MS));
            }
            writer.length(consumer.pending_len() as u64);
            consumer.pending_from(StreamId::MIN).for_each(|id| writer.raw(&raw_bytes(id)));
        }
    }
}
