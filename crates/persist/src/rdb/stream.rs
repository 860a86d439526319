//! Reading and writing of streams in the RDB format. Nodes in memory have another form than nodes
//! in Redis' format (see `keyspace::stream`), so entries are unpacked from one form and packed into
//! the other.
//!
//! ```text
//!   stream   count, then for each node: 16 bytes of its ID | listpack in a string
//!            entries | last ID | first ID, highest deleted ID, entries ever added   (from 7.0 on)
//!            groups ([`groups`])
//!   ID       milliseconds, sequence number: two lengths; as 16 bytes: two u64, highest byte first
//!   node     live entries | deleted ones | fields | field … | 0        those of its first entry
//!            entry …
//!   entry    flags: 1 deleted, 2 has the node's fields | milliseconds and sequence less the node's
//!            fields | field | value …        or with the node's fields only: value …
//!            elements of the entry up to here
//! ```
//! Deleted entries are dropped. IDs must ascend, and the counts and IDs of the stream must fit its
//! entries.

use keyspace::stream::{Idempotence, Message};
use keyspace::{Stream, StreamEntry, StreamId, StreamRest};
use structures::listpack::element::{Element, append_encoded};
use structures::listpack::{Iter, header, terminator};

use super::error::{FormatError, FormatErrorKind};
use super::groups;
use super::rules::Rules;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::stream_id::{from_raw, raw_bytes, read_id, write_id};
use super::value_type::ValueType;

/// The maximum number of entries of a stream's node that is written.
const NODE_ENTRIES_MAX: usize = 100;
/// The length of a node's listpack from which no further entry is added, in bytes.
const NODE_BYTES_MAX: usize = 4096;

/// The flag, in a stored stream node, of a deleted entry.
const DELETED: i64 = 1;
/// The flag, in a stored stream node, of an entry that has the same field names as the node.
const SAME_FIELDS: i64 = 2;

/// Reads a stream that is stored in the RDB format as the value type `kind`.
pub(super) fn read<S: Source>(
    kind: ValueType,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Stream, FormatError> {
    let mut stream = Stream::new();
    for _ in 0..reader.length()? {
        let id = reader.string()?;
        let id = <&[u8; 16]>::try_from(&id[..]);
        let base = from_raw(id.map_err(|_| reader.error(FormatErrorKind::BrokenStreamNode))?);
        let pack = reader.listpack()?;
        let node = NodeEntries { base, elements: pack.iter(), stream: &mut stream, rules };
        node.read().ok_or(reader.error(FormatErrorKind::BrokenStreamNode))?;
    }
    let len = reader.length()?;
    let last_id = read_id(reader)?;
    if len != stream.len() as u64 || last_id < stream.last_id() {
        return Err(reader.error(FormatErrorKind::BrokenStream));
    }
    stream.set_last_id(last_id);
    stream.set_entries_added(len);
    if kind != ValueType::StreamListpacks {
        let _first_id = read_id(reader)?;
        stream.set_max_deleted_id(read_id(reader)?);
        stream.set_entries_added(reader.length()?);
    }
    groups::read(kind, reader, &mut stream)?;
    if matches!(kind, ValueType::StreamListpacks4 | ValueType::StreamListpacks5) {
        read_idempotence(reader, &mut stream)?;
    }
    Ok(stream)
}

/// Reads the idempotent IDs of Redis 8.6: two limits, the messages of each producer, two counters.
/// Limits out of range become the nearest ones. None of the types that this server writes has this
/// data.
fn read_idempotence<S: Source>(reader: &mut Reader<S>, stream: &mut Stream) -> Result<(), FormatError> {
    let (duration_s, size_max) = (reader.length()?.clamp(1, 86_400), reader.length()?.clamp(1, 10_000));
    let mut all = Idempotence::default();
    all.configure(duration_s as u32, size_max as u32);
    for _ in 0..reader.length()? {
        let producer = reader.string()?;
        for _ in 0..reader.length()? {
            let iid = reader.string()?;
            let id = read_id(reader)?;
            // At the time 0, no message has expired.
            all.add(Message { producer: &producer, iid: &iid }, id, 0);
        }
    }
    let (added, duplicates) = (reader.length()?, reader.length()?);
    all.set_counts(added, duplicates);
    if added > 0 || !all.has_default_limits() {
        *stream.idempotence_mut() = all;
    }
    Ok(())
}

/// The elements of a stored stream node that is being read; its entries are appended to a stream.
struct NodeEntries<'a> {
    base: StreamId,
    elements: Iter<'a>,
    stream: &'a mut Stream,
    rules: &'a Rules<'a>,
}

impl<'a> NodeEntries<'a> {
    fn int(&mut self) -> Option<i64> {
        self.elements.next()?.as_int()
    }

    fn count(&mut self) -> Option<usize> {
        usize::try_from(self.int()?).ok()
    }

    /// Appends all entries of the node to the stream; `None` if the node is broken.
    fn read(mut self) -> Option<()> {
        let (live, deleted) = (self.count()?, self.count()?);
        let field_count = self.count()?;
        // The fields are collected as they are read; the count alone allocates nothing.
        let fields: Vec<Element<'a>> = self.elements.by_ref().take(field_count).collect();
        if fields.len() != field_count || self.int()? != 0 {
            return None;
        }
        let mut words = Words::default();
        for left in (0..live.checked_add(deleted)?).rev() {
            let flags = self.int()?;
            let (ms, seq) = (self.int()?, self.int()?);
            words.clear();
            let element_count = if flags & SAME_FIELDS != 0 {
                for &field in &fields {
                    words.push(field);
                    words.push(self.elements.next()?);
                }
                field_count.checked_add(3)?
            } else {
                let count = self.count()?;
                for _ in 0..count.checked_mul(2)? {
                    words.push(self.elements.next()?);
                }
                count.checked_mul(2)?.checked_add(4)?
            };
            if self.count()? != element_count || words.is_empty() {
                return None;
            }
            if flags & DELETED == 0 {
                let id = StreamId {
                    ms: self.base.ms.wrapping_add_signed(ms),
                    seq: self.base.seq.wrapping_add_signed(seq),
                };
                self.stream.append(id, words.iter(), self.rules.stream).ok()?;
            }
            if left == 0 {
                break;
            }
        }
        self.elements.next().is_none().then_some(())
    }
}

/// The fields and values of a stream entry as text, in memory that is reused for the next entry.
#[derive(Default)]
struct Words {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn push(&mut self, element: Element<'_>) {
        element.append_to(&mut self.text);
        self.ends.push(self.text.len());
    }

    fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        (0..self.ends.len()).map(|at| {
            let start = at.checked_sub(1).map_or(0, |before| self.ends[before]);
            &self.text[start..self.ends[at]]
        })
    }
}

/// Writes entries of a stream as one node in the RDB format; writes nothing if there are no
/// entries.
pub(super) fn write_node<S: Sink>(writer: &mut Writer<S>, entries: &[StreamEntry<'_>]) {
    let Some(first) = entries.first() else { return };
    let fields = first.pairs.clone().map(|(field, _)| field).collect();
    let mut node = PackedNode { base: first.id, fields, entry_count: 0, element_count: 0, run: Vec::new() };
    entries.iter().for_each(|entry| node.push(entry.clone()));
    writer.blob(&raw_bytes(node.base));
    writer.blob(&node.into_listpack());
}

/// Writes everything of a stream except its entries to the RDB sink: its IDs, counters and groups.
pub(super) fn write_end<S: Sink>(kind: ValueType, writer: &mut Writer<S>, rest: &StreamRest) {
    write_rest(kind, writer, (rest.len, rest.first_entry_id), &rest.rest);
}

fn write_rest<S: Sink>(
    kind: ValueType,
    writer: &mut Writer<S>,
    (len, first_id): (usize, StreamId),
    rest: &Stream,
) {
    writer.length(len as u64);
    write_id(writer, rest.last_id());
    if kind != ValueType::StreamListpacks {
        write_id(writer, first_id);
        write_id(writer, rest.max_deleted_id());
        writer.length(rest.entries_added());
    }
    groups::write(kind, writer, rest);
}

/// Writes a stream as the RDB type `kind`: [`ValueType::StreamListpacks`] to
/// [`ValueType::StreamListpacks3`].
pub(super) fn write<S: Sink>(kind: ValueType, writer: &mut Writer<S>, stream: &Stream) {
    let nodes = || Nodes { entries: stream.range(StreamId::MIN, StreamId::MAX), next: None };
    // The nodes are packed twice, so that only one of them is in memory at a time.
    writer.length(nodes().count() as u64);
    for node in nodes() {
        writer.blob(&raw_bytes(node.base));
        writer.blob(&node.into_listpack());
    }
    write_rest(kind, writer, (stream.len(), stream.first_entry_id()), stream);
}

/// An iterator that packs a stream's entries into nodes of the RDB format.
struct Nodes<'a, I: Iterator<Item = StreamEntry<'a>>> {
    entries: I,
    /// The entry that begins the next node; `None` at the end of the stream.
    next: Option<StreamEntry<'a>>,
}

/// A stream node of the RDB format that is being packed, entry by entry.
struct PackedNode<'a> {
    base: StreamId,
    fields: Vec<&'a [u8]>,
    entry_count: usize,
    element_count: usize,
    /// The encoded elements of the entries packed so far.
    run: Vec<u8>,
}

impl<'a, I: Iterator<Item = StreamEntry<'a>>> Iterator for Nodes<'a, I> {
    type Item = PackedNode<'a>;

    fn next(&mut self) -> Option<PackedNode<'a>> {
        let first = self.next.take().or_else(|| self.entries.next())?;
        let fields = first.pairs.clone().map(|(field, _)| field).collect();
        let mut node =
            PackedNode { base: first.id, fields, entry_count: 0, element_count: 0, run: Vec::new() };
        node.push(first);
        for entry in self.entries.by_ref() {
            if node.entry_count >= NODE_ENTRIES_MAX || node.run.len() >= NODE_BYTES_MAX {
                self.next = Some(entry);
                break;
            }
            node.push(entry);
        }
        Some(node)
    }
}

impl<'a> PackedNode<'a> {
    fn put<'e>(&mut self, element: impl Into<Element<'e>>) {
        append_encoded(element.into(), &mut self.run);
        self.element_count += 1;
    }

    fn push(&mut self, entry: StreamEntry<'a>) {
        let same_fields = entry.pairs.clone().map(|(field, _)| field).eq(self.fields.iter().copied());
        let before = self.element_count;
        self.put(if same_fields { SAME_FIELDS } else { 0 });
        // The difference is in two's complement, because the reader adds it.
        self.put(entry.id.ms.wrapping_sub(self.base.ms) as i64);
        self.put(entry.id.seq.wrapping_sub(self.base.seq) as i64);
        if !same_fields {
            self.put(entry.pairs.len() as i64);
        }
        for (field, value) in entry.pairs {
            if !same_fields {
                self.put(field);
            }
            self.put(value);
        }
        self.put((self.element_count - before) as i64);
        self.entry_count += 1;
    }

    fn into_listpack(self) -> Vec<u8> {
        let mut master = Vec::new();
        let numbers = [self.entry_count as i64, 0, self.fields.len() as i64];
        let elements = numbers.into_iter().map(Element::Int);
        let elements = elements.chain(self.fields.iter().map(|field| Element::Bytes(field)));
        elements.chain([Element::Int(0)]).for_each(|element| append_encoded(element, &mut master));
        let count = self.element_count + self.fields.len() + 4;
        let header = header(master.len() + self.run.len(), count);
        [&header[..], &master, &self.run, &terminator()].concat()
    }
}
