//! The keyspace as commands that create it: the base of an append-only file without RDB preamble
//! (`aof-use-rdb-preamble no`), as Redis writes it.
//!
//! ```text
//!   file        [#TS:seconds] FUNCTION LOAD source … { SELECT db | key … } …
//!   string      SET key value
//!   list        RPUSH key element …                  set   SADD key member …
//!   hash        HMSET key field value …              zset  ZADD key score member …
//!   timed field HMSET key field value | HPEXPIREAT key ms FIELDS 1 field
//!   stream      XADD key ID field value … for each entry, or XADD key MAXLEN 0 0-1 x y
//!               XSETID key last ENTRIESADDED n MAXDELETEDID ID | groups ([`stream`])
//!   vector set  RESTORE key 0 payload, so that its graph is not built anew
//!   expiry      PEXPIREAT key ms, after the value
//! ```
//! Commands are arrays of bulk strings. A command has at most [`ITEMS_MAX`] items, or fewer if they
//! are long, so a value may need many commands.
//!
//! Redis 7.0 and Valkey support these commands (ENTRIESADDED is the newest argument); HPEXPIREAT
//! needs Redis 7.4 or Valkey 9.0. Valkey itself writes HSETEX for fields that expire, which Redis
//! 7.4 does not support. A vector set needs Redis 8, which itself does not write one as commands:
//! its rewrite fails. Two things differ from the files of Redis but create the same data. Fields
//! that do not expire share a command even if other fields of the hash expire. A command gets no
//! further items once they take 1 MiB.
//!
//! As in Redis, some data is lost: access clocks, the times of consumers, and pending entries that
//! were deleted from their stream, because XCLAIM cannot create those. Source: files that Redis
//! 8.0.2 and Valkey 8.1.1 and 9.1.2 wrote.

mod stream;

use crate::dump::dump;
use crate::rdb::Compression;
use keyspace::parts::ValuePart;
use keyspace::{Array, HashField, KeyEntry, Object};
use stdx::number::{F64_TEXT_LEN_MAX, format_f64};
use structures::array::INDEX_MAX;
use structures::entry::View;
use structures::listpack::element::{Element, IntText};

/// The maximum number of items of a command: elements, members, or fields with their values. It is
/// `AOF_REWRITE_ITEMS_PER_CMD` of Redis.
const ITEMS_MAX: usize = 64;
/// The length of a command's items, in bytes, from which no more items are added: a server that
/// replays the command has all of them in memory. Redis has no such limit.
const ITEMS_LEN_BYTES_MAX: usize = 1 << 20;

/// Appends a time annotation (`aof-timestamp-enabled`): the commands after it were written at this
/// Unix time, in seconds, or later.
pub fn append_time_annotation(time_s: i64, out: &mut Vec<u8>) {
    out.extend_from_slice(b"#TS:");
    Element::Int(time_s).append_to(out);
    out.extend_from_slice(b"\r\n");
}

/// An encoder that writes the keys of a keyspace as commands (such as RPUSH) into a buffer.
#[derive(Debug, Default)]
pub struct CommandEncoder {
    out: CommandBuffer,
    big: Option<BigKey>,
}

/// The key whose value is being written in pieces, each piece as one or more commands.
#[derive(Debug)]
struct BigKey {
    key: Box<[u8]>,
    expiry_ms: Option<i64>,
}

impl CommandEncoder {
    /// Borrows the commands encoded so far, which the caller may remove from the buffer.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.out.bytes
    }

    /// Writes the start time of the file, in Unix seconds, as a time annotation.
    pub fn time(&mut self, time_s: i64) {
        append_time_annotation(time_s, &mut self.out.bytes);
    }

    /// Writes the source of a library of functions as a FUNCTION LOAD command.
    pub fn function(&mut self, source: &[u8]) {
        self.out.command(&[b"FUNCTION", b"LOAD", source]);
    }

    /// Writes a SELECT command for the database of the following keys.
    pub fn select_db(&mut self, db: usize) {
        let mut text = IntText::new();
        self.out.command(&[b"SELECT", Element::Int(db as i64).text(&mut text)]);
    }

    /// Writes the commands that create a key with its value. O(bytes).
    pub fn entry(&mut self, entry: &KeyEntry) {
        let key = entry.key();
        match entry.view() {
            View::Bytes(bytes) => self.out.command(&[b"SET", key, bytes]),
            View::Int(number) => {
                let mut text = IntText::new();
                self.out.command(&[b"SET", key, Element::Int(number).text(&mut text)]);
            }
            View::Object(object) => self.out.object(key, object),
        }
        self.out.end_of_key(key, entry.expiry_ms());
    }

    /// Begins a key whose value follows in pieces, until [`big_end`](Self::big_end). The caller may
    /// take the buffer in between.
    pub fn big_head(&mut self, key: &[u8], expiry_ms: Option<i64>) {
        self.big = Some(BigKey { key: key.into(), expiry_ms });
    }

    /// Writes a piece of the value that [`big_head`](Self::big_head) began.
    pub fn big_part(&mut self, piece: &ValuePart<'_>) {
        let key = &self.big.as_ref().expect("a value was begun").key;
        self.out.piece(key, piece);
    }

    /// Ends the value of [`big_head`](Self::big_head) after its last piece, and writes its expiry.
    pub fn big_end(&mut self) {
        let BigKey { key, expiry_ms } = self.big.take().expect("a value was begun");
        self.out.end_of_key(&key, expiry_ms);
    }
}

/// The buffer with the complete commands, and the elements collected for the next command.
#[derive(Debug, Default)]
struct CommandBuffer {
    bytes: Vec<u8>,
    items: Items,
}

/// The items (elements, members, or fields with their values) of the next command, all of one key.
#[derive(Debug, Default)]
struct Items {
    command: &'static str,
    bytes: Vec<u8>,
    count: usize,
    words: usize,
}

impl CommandBuffer {
    fn object(&mut self, key: &[u8], object: &Object) {
        match object {
            Object::Blob(blob) => self.command(&[b"SET", key, blob]),
            Object::List(list) => list.visit(|element| self.item("RPUSH", key, &[element])),
            Object::Set(set) => set.iter().for_each(|member| self.item("SADD", key, &[member])),
            Object::Hash(hash) => hash.fields().for_each(|field| self.field(key, &field)),
            Object::Zset(zset) => zset.iter().for_each(|(member, score)| self.scored(key, member, score)),
            Object::Stream(stream) => self.stream(key, stream),
            Object::Array(array) => self.array(key, array),
            Object::Vector(_) => {
                let payload = dump(&View::Object(object), Compression::Lzf);
                self.command(&[b"RESTORE", key, b"0", &payload]);
            }
        }
    }

    fn piece(&mut self, key: &[u8], piece: &ValuePart<'_>) {
        match piece {
            ValuePart::Node(node) => node.visit(|element| self.item("RPUSH", key, &[element])),
            ValuePart::Member(member) => self.item("SADD", key, &[*member]),
            ValuePart::Field(field) => self.field(key, field),
            ValuePart::Scored(member, score) => self.scored(key, Element::Bytes(member), *score),
            ValuePart::Entries(entries) => entries.iter().for_each(|entry| self.stream_entry(key, entry)),
            ValuePart::StreamEnd(end) => self.stream_rest(key, end.len, &end.rest),
        }
    }

    fn field(&mut self, key: &[u8], field: &HashField<'_>) {
        let Some(deadline_ms) = field.deadline_ms else {
            return self.item("HMSET", key, &[field.name, field.value]);
        };
        let (mut name, mut value, mut at) = (IntText::new(), IntText::new(), IntText::new());
        let (name, value) = (field.name.text(&mut name), field.value.text(&mut value));
        let at = Element::Int(deadline_ms).text(&mut at);
        self.command(&[b"HMSET", key, name, value]);
        self.command(&[b"HPEXPIREAT", key, at, b"FIELDS", b"1", name]);
    }

    /// Writes the elements of an array, then its cursor. ARSEEK is given the index of the next
    /// insertion.
    fn array(&mut self, key: &[u8], array: &Array) {
        for (index, element) in array.elements().scan(0, INDEX_MAX) {
            let index = index.to_string();
            self.item("ARMSET", key, &[Element::Bytes(index.as_bytes()), element]);
        }
        self.end_of_items(key);
        if let Some(last) = array.last_insert() {
            self.command(&[b"ARSEEK", key, (last + 1).to_string().as_bytes()]);
        }
    }

    fn scored(&mut self, key: &[u8], member: Element<'_>, score: f64) {
        let mut text = [0; F64_TEXT_LEN_MAX];
        let score = format_f64(score, &mut text).as_bytes();
        self.item("ZADD", key, &[Element::Bytes(score), member]);
    }

    /// Adds an item of one or two words to the next command for the key. Writes the command if it
    /// is full.
    fn item(&mut self, command: &'static str, key: &[u8], words: &[Element<'_>]) {
        let items = &mut self.items;
        items.command = command;
        for word in words {
            append_bulk(&mut items.bytes, word.text(&mut IntText::new()));
        }
        items.words += words.len();
        items.count += 1;
        if items.count == ITEMS_MAX || items.bytes.len() >= ITEMS_LEN_BYTES_MAX {
            self.end_of_items(key);
        }
    }

    fn end_of_items(&mut self, key: &[u8]) {
        if self.items.count > 0 {
            self.begin(2 + self.items.words);
            self.word(self.items.command.as_bytes());
            self.word(key);
            self.bytes.append(&mut self.items.bytes);
            (self.items.count, self.items.words) = (0, 0);
        }
    }

    fn end_of_key(&mut self, key: &[u8], expiry_ms: Option<i64>) {
        self.end_of_items(key);
        if let Some(at_ms) = expiry_ms {
            self.command(&[b"PEXPIREAT", key, Element::Int(at_ms).text(&mut IntText::new())]);
        }
    }

    fn command(&mut self, words: &[&[u8]]) {
        self.begin(words.len());
        words.iter().for_each(|word| self.word(word));
    }

    /// Writes the beginning (the RESP array header) of a command of `words` words.
    fn begin(&mut self, words: usize) {
        append_count(&mut self.bytes, b'*', words);
    }

    fn word(&mut self, word: &[u8]) {
        append_bulk(&mut self.bytes, word);
    }
}

fn append_count(out: &mut Vec<u8>, mark: u8, count: usize) {
    out.push(mark);
    Element::Int(count as i64).append_to(out);
    out.extend_from_slice(b"\r\n");
}

fn append_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    append_count(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
