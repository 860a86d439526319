//! A node of a stream: up to some hundred consecutive entries in one block of bytes.
//!
//! ```text
//!   master fields          entry … entry
//!   [text][text]…          [head][body][back]
//!
//!   head   varint: length of the body << 2 | deleted << 1 | has the master fields
//!   body   ms, varint: milliseconds since the node's base ID
//!          seq, varint: sequence number, less the base's within the base's millisecond
//!          with the master fields: [value]…
//!          else: number of fields, varint, then [text][value]…
//!   back   length of head and body, a varint with its bytes in reverse order: read from its end
//!   text   length, varint, then the bytes
//!   value  varint length << 1, then the bytes; or, for the canonical text of a 64-bit integer,
//!          one byte (width << 1 | 1), then the zigzagged number in `width` bytes, little-endian
//!   varint seven bits a byte, lowest first, top bit set in all but the last
//! ```
//! The master fields are those of the first entry. Most streams hold records with the same fields,
//! so most entries cost their values and some five bytes. The base ID is that of the first entry.
//! Master fields and base ID remain when that entry is deleted. A deleted entry is only marked; the
//! node is removed with its last live entry. The width of a head is chosen before the exact length
//! of its body is known. Its varint may therefore end in bytes that add no bits to the number.
//!
//! Invariants: entries are in ascending order of their IDs, none below the base; `live + deleted`
//! is their number. Bytes are written only here, so a malformed one is our bug and panics.
//!
//! Complexity: appending is O(bytes of the entry), stepping to the next or previous entry O(1),
//! finding an ID O(entries after it). The block of the last node grows in four steps per doubling,
//! so at most a fifth of it is unused. Other nodes have blocks of the smallest size class for their
//! bytes.

use structures::listpack::element::{Element, parse_canonical_int};
use structures::size_class::{growing_class, size_class};
use structures::walk_state::MemorySize;

use super::StreamId;

/// The flag in the head of an entry that has the node's master fields.
const SAME_FIELDS: u64 = 1;
/// The flag in the head of a deleted entry.
const DELETED: u64 = 1 << 1;
/// The number of flag bits of an entry's head, below the length.
const FLAG_BITS: u32 = 2;
/// The length of the longest varint in bytes.
const VARINT_LEN_MAX: usize = 10;

/// A node of a stream. See the module's documentation.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    base: StreamId,
    bytes: Vec<u8>,
    /// The byte offset at which the entries begin, after the master fields.
    entries_at: u32,
    master_count: u32,
    live: u32,
    deleted: u32,
}

/// A decoded entry of a node. Its fields and values are decoded when they are read.
pub(super) struct Located<'a> {
    pub(super) id: StreamId,
    pub(super) deleted: bool,
    /// The byte offset in the node at which the next entry begins.
    pub(super) end: usize,
    pub(super) pairs: Pairs<'a>,
}

/// The form and the size of an entry, computed before it is written.
struct Measure {
    same_fields: bool,
    /// An upper bound of the length of the entry's body in bytes.
    body_len_max: usize,
}

impl MemorySize for Node {
    fn weight_bytes(&self) -> usize {
        size_of::<Self>() + self.memory_usage()
    }
}

impl Node {
    /// Creates a node for a first entry with this ID and these fields. The caller appends the entry
    /// next.
    pub(super) fn new<'v>(base: StreamId, fields: impl Iterator<Item = &'v [u8]> + Clone) -> Self {
        let mut bytes = Vec::new();
        let len: usize = fields.clone().map(|field| field.len() + varint_len(field.len() as u64)).sum();
        bytes.reserve_exact(growing_class(len + 1));
        let mut master_count = 0;
        for field in fields {
            put_text(&mut bytes, field);
            master_count += 1;
        }
        let entries_at = u32::try_from(bytes.len()).expect("an entry's strings are below 1 GiB");
        Self { base, bytes, entries_at, master_count, live: 0, deleted: 0 }
    }

    /// Returns the ID of the first entry that was ever in the node.
    pub(super) fn base(&self) -> StreamId {
        self.base
    }

    /// Returns the number of the node's entries that are not deleted.
    pub(super) fn live(&self) -> usize {
        self.live as usize
    }

    /// Returns the number of the node's entries, including the deleted ones.
    pub(super) fn total(&self) -> usize {
        (self.live + self.deleted) as usize
    }

    /// Returns the bytes of the node's master fields and entries, deleted entries included.
    pub(super) fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes of the node's memory block.
    pub(super) fn memory_usage(&self) -> usize {
        size_class(self.bytes.capacity().max(1))
    }

    /// Appends an entry of alternating fields and values. `id` must be above all others in the
    /// node.
    pub(super) fn append<'v>(&mut self, id: StreamId, words: impl Iterator<Item = &'v [u8]> + Clone) {
        let (ms, seq) = (id.ms - self.base.ms, id.seq - self.seq_origin(id.ms));
        let measure = self.measure(ms, seq, words.clone());
        let head_len = varint_len((measure.body_len_max as u64) << FLAG_BITS);
        self.reserve(head_len + measure.body_len_max + VARINT_LEN_MAX);

        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; VARINT_LEN_MAX][..head_len]);
        put_varint(&mut self.bytes, ms);
        put_varint(&mut self.bytes, seq);
        if !measure.same_fields {
            put_varint(&mut self.bytes, words.clone().count() as u64 / 2);
        }
        let mut is_field = true;
        for word in words {
            match (is_field, measure.same_fields) {
                (true, true) => {}
                (true, false) => put_text(&mut self.bytes, word),
                (false, _) => put_value(&mut self.bytes, word),
            }
            is_field = !is_field;
        }
        let body_len = self.bytes.len() - start - head_len;
        let head = (body_len as u64) << FLAG_BITS | if measure.same_fields { SAME_FIELDS } else { 0 };
        write_padded_varint(&mut self.bytes[start..start + head_len], head);
        put_reversed_varint(&mut self.bytes, (head_len + body_len) as u64);
        self.live += 1;
    }

    fn measure<'v>(&self, ms: u64, seq: u64, words: impl Iterator<Item = &'v [u8]>) -> Measure {
        let (mut same_fields, mut count) = (true, 0);
        let (mut fields_len, mut values_len) = (0, 0);
        let mut master = &self.bytes[..self.entries_at as usize];
        let mut is_field = true;
        for word in words {
            let len = varint_len((word.len() as u64) << 1) + word.len();
            if is_field {
                count += 1;
                fields_len += len;
                same_fields = same_fields && !master.is_empty() && take_text(&mut master) == word;
            } else {
                values_len += len;
            }
            is_field = !is_field;
        }
        same_fields = same_fields && master.is_empty();
        let id_len = varint_len(ms) + varint_len(seq);
        let fields_len = if same_fields { 0 } else { varint_len(count) + fields_len };
        Measure { same_fields, body_len_max: id_len + fields_len + values_len }
    }

    /// Reserves room for `more` bytes in the node's block. A new block also has room for further
    /// entries.
    #[inline]
    fn reserve(&mut self, more: usize) {
        let needed = self.bytes.len() + more;
        if needed > self.bytes.capacity() {
            self.bytes.reserve_exact(growing_class(needed) - self.bytes.len());
        }
    }

    /// Frees the room for further entries, if the bytes fit a smaller size class. O(bytes).
    pub(super) fn settle(&mut self) {
        let settled = size_class(self.bytes.len().max(1));
        if settled < self.bytes.capacity() {
            let mut bytes = Vec::with_capacity(settled);
            bytes.extend_from_slice(&self.bytes);
            self.bytes = bytes;
        }
    }

    /// Returns the number that is subtracted from the sequence numbers of the node's entries with
    /// this `ms`.
    #[inline]
    fn seq_origin(&self, ms: u64) -> u64 {
        if ms == self.base.ms { self.base.seq } else { 0 }
    }

    /// Returns the byte offset in the node of the first entry.
    pub(super) fn start(&self) -> usize {
        self.entries_at as usize
    }

    /// Returns the byte offset in the node after the last entry.
    pub(super) fn end(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the node's entry that begins at byte offset `at`; `None` at the end.
    #[inline]
    pub(super) fn at(&self, at: usize) -> Option<Located<'_>> {
        if at == self.bytes.len() {
            return None;
        }
        let mut rest = &self.bytes[at..];
        let head = take_varint(&mut rest);
        let (mut body, back) = rest.split_at((head >> FLAG_BITS) as usize);
        let ms = self.base.ms + take_varint(&mut body);
        let seq = self.seq_origin(ms) + take_varint(&mut body);
        let len = self.bytes.len() - at - back.len();
        let pairs = if head & SAME_FIELDS != 0 {
            let fields = Some(&self.bytes[..self.entries_at as usize]);
            Pairs { fields, body, left: self.master_count as usize }
        } else {
            let left = take_varint(&mut body) as usize;
            Pairs { fields: None, body, left }
        };
        let end = at + len + varint_len(len as u64);
        Some(Located { id: StreamId { ms, seq }, deleted: head & DELETED != 0, end, pairs })
    }

    /// Returns the byte offset of the node's entry that ends at offset `end`; `None` if `end` is
    /// the start of the entries.
    #[inline]
    pub(super) fn before(&self, end: usize) -> Option<usize> {
        if end == self.start() {
            return None;
        }
        let mut len = 0;
        let mut back_len = 0;
        for &byte in self.bytes[..end].iter().rev() {
            len |= usize::from(byte & 0x7F) << (7 * back_len);
            back_len += 1;
            if byte & 0x80 == 0 {
                break;
            }
        }
        Some(end - back_len - len)
    }

    /// Returns the byte offset of the node's first entry, deleted or not, with an ID at or above
    /// `id`. Returns the end if there is none. O(entries after it).
    pub(super) fn seek(&self, id: StreamId) -> usize {
        if id <= self.base {
            return self.start();
        }
        let mut found = self.end();
        while let Some(at) = self.before(found)
            && self.at(at).is_some_and(|entry| entry.id >= id)
        {
            found = at;
        }
        found
    }

    /// Returns the ID of the node's last entry, deleted or not; without entries, the base ID.
    pub(super) fn last_id(&self) -> StreamId {
        let last = self.before(self.end()).and_then(|at| self.at(at));
        last.map_or(self.base, |entry| entry.id)
    }

    /// Marks the node's entry that begins at byte offset `at` as deleted; it must not be deleted
    /// already.
    pub(super) fn delete(&mut self, at: usize) {
        // The flags are in the lowest bits, so in the head's first byte.
        self.bytes[at] |= DELETED as u8;
        self.live -= 1;
        self.deleted += 1;
    }
}

/// An iterator over the fields of a stream's entry, each with its value.
#[derive(Clone, Debug)]
pub struct Pairs<'a> {
    /// The node's master fields, if the entry has no fields of its own.
    fields: Option<&'a [u8]>,
    body: &'a [u8],
    left: usize,
}

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a [u8], Element<'a>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let field = match &mut self.fields {
            Some(fields) => take_text(fields),
            None => take_text(&mut self.body),
        };
        Some((field, take_value(&mut self.body)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Pairs<'_> {}

/// Returns the length in bytes of `value` as a varint.
#[inline]
fn varint_len(value: u64) -> usize {
    if value < 0x80 { 1 } else { (u64::BITS - value.leading_zeros()).div_ceil(7) as usize }
}

#[inline]
fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Writes `value` as a varint of the length of `to`, even if fewer bytes would be enough.
#[inline]
fn write_padded_varint(to: &mut [u8], mut value: u64) {
    let last = to.len() - 1;
    for byte in &mut to[..last] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    to[last] = value as u8;
}

/// Appends `value` as a varint with its bytes in reverse order, so that it can be read from its
/// end.
#[inline]
fn put_reversed_varint(out: &mut Vec<u8>, value: u64) {
    let start = out.len();
    put_varint(out, value);
    out[start..].reverse();
}

#[inline]
fn take_varint(bytes: &mut &[u8]) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7F) << shift;
        if byte & 0x80 == 0 {
            return value;
        }
        shift += 7;
    }
}

#[inline]
fn take<'a>(bytes: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(len);
    *bytes = rest;
    taken
}

#[inline]
fn put_text(out: &mut Vec<u8>, text: &[u8]) {
    put_varint(out, text.len() as u64);
    out.extend_from_slice(text);
}

#[inline]
fn take_text<'a>(bytes: &mut &'a [u8]) -> &'a [u8] {
    let len = take_varint(bytes) as usize;
    take(bytes, len)
}

#[inline]
fn put_value(out: &mut Vec<u8>, value: &[u8]) {
    match parse_canonical_int(value) {
        Some(int) => {
            let zigzag = (int << 1 ^ int >> 63) as u64;
            let width = (u64::BITS - zigzag.leading_zeros()).div_ceil(8) as usize;
            out.push((width << 1) as u8 | 1);
            out.extend_from_slice(&zigzag.to_le_bytes()[..width]);
        }
        None => {
            put_varint(out, (value.len() as u64) << 1);
            out.extend_from_slice(value);
        }
    }
}

#[inline]
fn take_value<'a>(bytes: &mut &'a [u8]) -> Element<'a> {
    let head = take_varint(bytes);
    let payload = take(bytes, (head >> 1) as usize);
    if head & 1 == 0 {
        return Element::Bytes(payload);
    }
    let mut word = [0; 8];
    word[..payload.len()].copy_from_slice(payload);
    let zigzag = u64::from_le_bytes(word);
    Element::Int((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(node: &mut Node, ms: u64, words: &[&str]) {
        node.append(StreamId { ms, seq: 0 }, words.iter().map(|word| word.as_bytes()));
    }

    fn pairs(node: &Node, at: usize) -> Vec<(String, String)> {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let value = |element: Element<'_>| {
            let mut out = Vec::new();
            element.append_to(&mut out);
            text(&out)
        };
        let entry = node.at(at).expect("an entry is there");
        entry.pairs.map(|(f, v)| (text(f), value(v))).collect()
    }

    #[test]
    fn an_entry_of_the_same_shape_costs_its_values_and_five_bytes() {
        let mut node =
            Node::new(StreamId { ms: 100, seq: 0 }, [b"temperature".as_slice(), b"at"].into_iter());
        append(&mut node, 100, &["temperature", "hot", "at", "home"]);
        let before = node.len_bytes();
        append(&mut node, 101, &["temperature", "hot", "at", "home"]);
        // An entry has head, milliseconds, sequence and back length; each value has one byte for
        // its length.
        assert_eq!(node.len_bytes() - before, 4 + (1 + 3) + (1 + 4));
        let other = node.len_bytes();
        append(&mut node, 102, &["at", "home"]);
        assert_eq!(pairs(&node, other), [("at".into(), "home".into())]);
        assert_eq!(
            pairs(&node, before),
            [("temperature".into(), "hot".into()), ("at".into(), "home".into())]
        );
    }

    #[test]
    fn integers_are_values_of_few_bytes() {
        for (text, len) in [
            ("0", 1),
            ("-1", 2),
            ("127", 2),
            ("1000", 3),
            ("1700000000", 5),
            ("1700000000123", 7),
            ("9223372036854775807", 9),
            ("-9223372036854775808", 9),
            ("00", 3),
            ("", 1),
        ] {
            let mut out = Vec::new();
            put_value(&mut out, text.as_bytes());
            assert_eq!(out.len(), len, "{text}");
            let mut back = Vec::new();
            take_value(&mut out.as_slice()).append_to(&mut back);
            assert_eq!(back, text.as_bytes());
        }
    }

    #[test]
    fn varints_of_every_width_are_read_from_either_end() {
        for value in (0..64).map(|bit| 1_u64 << bit).chain([0, 127, 128, 16_383, u64::MAX]) {
            let mut out = Vec::new();
            put_varint(&mut out, value);
            assert_eq!(out.len(), varint_len(value));
            assert_eq!(take_varint(&mut out.as_slice()), value);
            out.fill(0);
            out.resize(VARINT_LEN_MAX, 0);
            write_padded_varint(&mut out, value);
            assert_eq!(take_varint(&mut out.as_slice()), value);
        }
    }

    #[test]
    fn entries_of_any_length_are_walked_in_both_directions() {
        let mut node = Node::new(StreamId { ms: 0, seq: 1 }, [b"f".as_slice()].into_iter());
        let mut starts = vec![];
        for (ms, len) in [0, 1, 20, 30, 31, 32, 100, 127, 128, 5000, 20_000, 3].into_iter().enumerate() {
            starts.push(node.end());
            append(&mut node, ms as u64 + 1, &["f", &"x".repeat(len)]);
        }
        let (mut forward, mut at) = (vec![], node.start());
        while let Some(entry) = node.at(at) {
            forward.push(at);
            at = entry.end;
        }
        assert_eq!(forward, starts);
        let mut backward: Vec<_> =
            std::iter::successors(node.before(node.end()), |&at| node.before(at)).collect();
        backward.reverse();
        assert_eq!(backward, starts);
    }
}
