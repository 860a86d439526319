//! The encoder of the records of an RDB file: everything between its magic and its checksum.
//!
//! ```text
//!   file     "REDIS" version (4 digits) | AUX … | FUNCTION …
//!            { SELECTDB n | RESIZEDB keys, keys with expiry | key … } … | EOF | CRC-64 (u64)
//!   AUX      250 name value          FUNCTION  245 source of a library
//!   SELECTDB 254 number              RESIZEDB  251 two lengths
//!   key      [252 expiry in ms: i64] [248 idle seconds | 249 LFU counter] type key value
//! ```
//! Everything is appended to the encoder's buffer, from which the caller takes it. Source: the
//! format's documentation and files of Redis 8.0.2 and Valkey 9.1.

use keyspace::KeyEntry;
use keyspace::parts::{Head, ValuePart};

use super::file_version::FileVersion;
use super::hash::WrittenDeadlines;
use super::sink::{Compression, Sink as _, Writer};
use super::value::write_value;
use super::value_type::ValueType;
use super::ziplist::TooLong;
use super::{VALKEY_VERSION, hash, list, stream};

/// The opcodes of an RDB file: the first bytes of its entries that are not keys.
pub(crate) mod opcode {
    /// The lowest opcode; lower first bytes are types of values, so the entry is a key.
    pub const LOWEST: u8 = 242;
    /// The opcode before a list of field names that hashes of the file share.
    pub const HASH_TEMPLATE: u8 = 242;
    /// The opcode of a command in files of Valkey; the same number as [`HASH_TEMPLATE`].
    pub const UPDATE: u8 = 242;
    pub const KEY_META: u8 = 243;
    /// The opcode of slot ranges that a cluster node was importing, in files of Valkey; the same
    /// number as [`KEY_META`].
    pub const SLOT_IMPORT: u8 = 243;
    pub const SLOT_INFO: u8 = 244;
    pub const FUNCTION: u8 = 245;
    pub const FUNCTION_PRE_GA: u8 = 246;
    pub const MODULE_AUX: u8 = 247;
    pub const EXPIRE_TIME: u8 = 253;
    pub const FREQ: u8 = 249;
    pub const IDLE: u8 = 248;
    pub const AUX: u8 = 250;
    pub const RESIZE_DB: u8 = 251;
    pub const EXPIRE_TIME_MS: u8 = 252;
    pub const SELECT_DB: u8 = 254;
    pub const END: u8 = 255;
}

/// The part of a key's access clock (LRU or LFU) that is written to the RDB file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// Neither the idle time nor the LFU counter of a key is written.
    None,
    /// The idle time of a key is written, computed with a 24-bit clock in seconds.
    Idle {
        /// The current time of that 24-bit clock, in seconds.
        clock_s: u32,
    },
    /// The LFU counter of a key's use is written.
    Frequency,
}

/// Returns the idle time of a key at the time of a save's clock, in seconds. The 24-bit clock wraps
/// around. If the key was used after the save began, its idle time is 0.
fn idle_s(clock_s: u32, access: u32) -> u64 {
    let behind_s = clock_s.wrapping_sub(access) & 0x00FF_FFFF;
    u64::from(if behind_s > 1 << 23 { 0 } else { behind_s })
}

/// An encoder that writes the content of an RDB file (keys and other entries) into a buffer.
#[derive(Debug)]
pub struct Encoder {
    writer: Writer<Vec<u8>>,
    version: FileVersion,
    usage: Usage,
    /// The RDB type of the value that is being written in pieces.
    big_kind: ValueType,
    /// The layout of the deadlines of fields, if the value written in pieces is a hash.
    deadlines: WrittenDeadlines,
    too_long: Option<TooLong>,
}

impl Encoder {
    /// Creates an encoder of an RDB file with an empty buffer.
    pub fn new(version: FileVersion, compression: Compression, usage: Usage) -> Self {
        Self {
            writer: Writer::new(Vec::new(), compression),
            version,
            usage,
            big_kind: ValueType::String,
            deadlines: WrittenDeadlines::None,
            too_long: None,
        }
    }

    /// Returns the error of a value that was too long for this version of the RDB format; `None` if
    /// all fitted. After such an error the written bytes must not be used.
    pub fn too_long(&self) -> Option<TooLong> {
        self.too_long
    }

    /// Returns the memory of the buffer and of the compressor, in bytes. O(1).
    pub fn memory_usage(&mut self) -> usize {
        self.writer.compressor_memory_usage() + self.buffer().capacity()
    }

    /// Borrows the encoded bytes of the RDB file, which the caller may remove from the buffer.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        self.writer.sink_mut()
    }

    fn opcode(&mut self, opcode: u8) {
        self.buffer().put(&[opcode]);
    }

    /// Writes the magic and the version of the RDB format, the beginning of the file.
    pub fn magic(&mut self) {
        let version = self.version.number();
        let magic = if version >= VALKEY_VERSION {
            format!("VALKEY{version:03}")
        } else {
            format!("REDIS{version:04}")
        };
        self.writer.raw(magic.as_bytes());
    }

    /// Writes an AUX field of the RDB file: a name and a value that describe the file or the
    /// server.
    pub fn aux(&mut self, name: &[u8], value: &[u8]) {
        self.opcode(opcode::AUX);
        self.writer.string(name);
        self.writer.string(value);
    }

    /// Writes the source of a library of functions to the RDB file.
    pub fn function(&mut self, source: &[u8]) {
        self.opcode(opcode::FUNCTION);
        self.writer.string(source);
    }

    /// Writes the number of the database to which the following keys belong.
    pub fn select_db(&mut self, db: usize) {
        self.opcode(opcode::SELECT_DB);
        self.writer.length(db as u64);
    }

    /// Writes the number of keys of the selected database, and of those that expire.
    pub fn resize_db(&mut self, keys: usize, expires: usize) {
        self.opcode(opcode::RESIZE_DB);
        self.writer.length(keys as u64);
        self.writer.length(expires as u64);
    }

    /// Writes the mark that ends the RDB file's keys. The checksum of all bytes up to this mark
    /// must follow.
    pub fn end(&mut self) {
        self.opcode(opcode::END);
    }

    /// Writes a key with its expiry, access clock and value to the RDB file. O(bytes).
    pub fn entry(&mut self, entry: &KeyEntry) {
        let value = entry.view();
        let kind = self.version.type_of(&value);
        self.key(kind, entry.key(), entry.expiry_ms(), entry.access());
        if let Err(too_long) = write_value(kind, &mut self.writer, &value) {
            self.too_long = Some(too_long);
        }
    }

    /// Begins a key whose value follows in pieces; `head` has the type of the value and the number
    /// of its elements or nodes.
    pub fn big_head(&mut self, key: &[u8], expiry_ms: Option<i64>, access: u32, head: &Head) {
        let (kind, count) = match *head {
            Head::List { nodes } => (self.version.list_type(), nodes),
            Head::Set { members } => (ValueType::Set, members),
            Head::Hash { fields, deadline_min_ms: None } => (ValueType::Hash, fields),
            Head::Hash { fields, deadline_min_ms: Some(_) } => (self.version.timed_hash_type(), fields),
            Head::Zset { members } => (ValueType::Zset2, members),
            Head::Stream { nodes } => (self.version.stream_type(), nodes),
        };
        self.key(kind, key, expiry_ms, access);
        self.big_kind = kind;
        self.deadlines = match (kind, *head) {
            (ValueType::HashMetadata, Head::Hash { deadline_min_ms: Some(earliest_ms), .. }) => {
                self.writer.time_ms(earliest_ms);
                WrittenDeadlines::From { earliest_ms }
            }
            (ValueType::HashValkey, _) => WrittenDeadlines::Behind,
            _ => WrittenDeadlines::None,
        };
        self.writer.length(count as u64);
    }

    /// Writes a piece of the value that [`big_head`](Self::big_head) began.
    pub fn big_part(&mut self, piece: &ValuePart<'_>) {
        match piece {
            ValuePart::Node(node) => {
                if let Err(too_long) = list::write_node(self.big_kind, &mut self.writer, *node) {
                    self.too_long = Some(too_long);
                }
            }
            ValuePart::Member(member) => self.writer.element(*member),
            ValuePart::Field(field) => hash::write_field(&mut self.writer, field, self.deadlines),
            ValuePart::Scored(member, score) => {
                self.writer.string(member);
                self.writer.raw(&score.to_le_bytes());
            }
            ValuePart::Entries(entries) => stream::write_node(&mut self.writer, entries),
            ValuePart::StreamEnd(end) => stream::write_end(self.big_kind, &mut self.writer, end),
        }
    }

    fn key(&mut self, kind: ValueType, key: &[u8], expiry_ms: Option<i64>, access: u32) {
        if let Some(at_ms) = expiry_ms {
            self.opcode(opcode::EXPIRE_TIME_MS);
            self.writer.time_ms(at_ms);
        }
        match self.usage {
            Usage::None => {}
            Usage::Idle { clock_s } => {
                self.opcode(opcode::IDLE);
                self.writer.length(idle_s(clock_s, access));
            }
            Usage::Frequency => {
                self.opcode(opcode::FREQ);
                self.buffer().put(&[access as u8]);
            }
        }
        self.opcode(kind.number());
        self.writer.string(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_used_while_it_is_saved_is_not_idle() {
        for (clock_s, access, expected) in [
            (100, 100, 0),
            (100, 40, 60),
            (100, 101, 0),
            (3, 0x00FF_FFFF, 4),
            (0x00FF_FFFF, 2, 0),
            (0, 1 << 23, 1 << 23),
        ] {
            assert_eq!(idle_s(clock_s, access), expected, "{clock_s} {access}");
        }
    }
}
