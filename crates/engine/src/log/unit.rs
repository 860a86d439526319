//! The change log's record of a unit (a command or transaction) before it has a log position.

use std::sync::Arc;

use commands::Args;
use commands::record::RecordedCommand;
use keyspace::object::Blob;
use keyspace::{Hasher, Key, Locked, Object};
use structures::entry::View;

use super::buffer::{Chunk, Header, UnitPart};
use super::target::Targets;
use super::text::{SHARED_BYTES_MIN, Text, TextEnd};

/// The change log's record of a unit (a command or transaction): commands that have the same effect
/// as the unit, as requests in RESP. Each thread has its own.
///
/// Consecutive commands with the same targets are one segment. In a segment, a SELECT stands
/// between two commands for different databases. Between segments, the thread that merges the log
/// writes it.
#[derive(Default)]
pub struct UnitRecord {
    text: Text,
    commands: usize,
    /// The complete segments of the change log record, before the current one.
    ended: Vec<Segment>,
    /// The segment to which commands are added at present.
    current: Segment,
}

/// A segment of a change log record: consecutive commands with the same targets.
#[derive(Clone, Copy, Default)]
struct Segment {
    /// The end of the segment in the text of the change log record. Not set for the segment to
    /// which commands are still added.
    end: TextEnd,
    targets: Targets,
    /// The database of the first command in this segment of a change log record.
    first_db: usize,
    /// The database of the last command in this segment of a change log record.
    last_db: usize,
}

/// The shards in which the change log looks up the value of a key. If the value is big and equal to
/// a word of a recorded command, the log shares the value instead of copying the word.
#[derive(Clone, Copy)]
pub struct Values<'l, 'k> {
    /// The locked shards in which values are looked up; `None` if the log may share no value.
    pub locked: Option<&'l Locked<'k>>,
    /// The hasher of the keyspace, which determines the shard of a key.
    pub hasher: &'l Hasher,
}

impl Values<'_, '_> {
    /// Returns the value of `key` in database `db` if it is a string equal to `word`. O(bytes).
    fn find(&self, db: usize, key: &[u8], word: &[u8]) -> Option<Blob> {
        let key: Key<'_> = self.hasher.key(key);
        let entry = self.locked?.shard_of(key.hash)?.db(db)?.table().get(key.position(), key.bytes)?;
        match entry.view() {
            View::Object(Object::Blob(value)) if value[..] == *word => Some(Arc::clone(value)),
            _ => None,
        }
    }
}

impl UnitRecord {
    /// Returns true if no command was added to the change log record, because the unit changed
    /// nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Moves the commands of the change log record to the end of `chunk`, with the log position
    /// `position`. If there are several, they are marked to be enclosed in MULTI and EXEC, as in
    /// Redis. O(bytes).
    pub(super) fn move_to(&mut self, chunk: &mut Chunk, position: u64) {
        let last = Segment { end: self.text.end(), ..self.current };
        let segments = || self.ended.iter().chain(std::iter::once(&last));
        let unit_targets = segments().fold(Targets::empty(), |all, segment| all | segment.targets);
        let mut start = TextEnd::default();
        for (at, segment) in segments().enumerate() {
            let part = match (self.commands > 1, at == self.ended.len()) {
                (false, _) => UnitPart::Whole,
                (true, false) => UnitPart::Inner,
                (true, true) => UnitPart::Last,
            };
            let header = Header {
                last_db: segment.last_db as u32,
                unit_targets,
                part,
                ..Header::of_command(position, segment.first_db as u32, segment.targets)
            };
            chunk.append(header, |text| {
                text.extend_from(&self.text, start, segment.end);
            });
            start = segment.end;
        }
        self.clear();
    }

    /// Removes all commands from the change log record, because the command, transaction or script
    /// was undone.
    pub(crate) fn forget(&mut self) {
        self.clear();
    }

    /// Removes all commands from the change log record.
    fn clear(&mut self) {
        self.text.clear();
        self.ended.clear();
        self.commands = 0;
    }

    /// Adds a client's request unchanged to the change log record, for `targets`.
    #[inline]
    pub fn push_request(&mut self, db: usize, args: &Args<'_>, targets: Targets, values: Values<'_, '_>) {
        self.begin_command(db, targets);
        if args.input_len_bytes() < SHARED_BYTES_MIN {
            args.encode(&mut self.text.bytes);
        } else {
            self.push_big(db, args.from(0), values);
        }
    }

    /// Adds to the change log record a command for `targets` that the command handler has chosen in
    /// place of the client's request.
    pub fn push_command(&mut self, command: &RecordedCommand<'_>, targets: Targets, values: Values<'_, '_>) {
        self.begin_command(command.db, targets);
        if command.bulks.len() < SHARED_BYTES_MIN {
            command.encode(&mut self.text.bytes);
        } else {
            let words: Vec<&[u8]> = command.iter().collect();
            self.push_big(command.db, words.into_iter(), values);
        }
    }

    #[inline]
    fn begin_command(&mut self, db: usize, targets: Targets) {
        if self.commands == 0 {
            self.current = Segment { targets, first_db: db, ..Segment::default() };
        } else if self.current.targets != targets {
            self.ended.push(Segment { end: self.text.end(), ..self.current });
            self.current = Segment { targets, first_db: db, ..Segment::default() };
        } else if self.current.last_db != db {
            encode_select(db, &mut self.text.bytes);
        }
        self.current.last_db = db;
        self.commands += 1;
    }

    /// Adds to the change log record a command that has at least [`SHARED_BYTES_MIN`] bytes in all.
    /// A word of at least this length is shared if it equals the value of a key named one or two
    /// words before it. Commands that set strings have their keys at these positions.
    #[cold]
    fn push_big<'w>(
        &mut self,
        db: usize,
        words: impl ExactSizeIterator<Item = &'w [u8]>,
        values: Values<'_, '_>,
    ) {
        let text = &mut self.text;
        encode_header(b'*', words.len(), &mut text.bytes);
        let mut before: [Option<&[u8]>; 2] = [None; 2];
        for word in words {
            encode_header(b'$', word.len(), &mut text.bytes);
            let is_big = word.len() >= SHARED_BYTES_MIN;
            let find = |key: &&[u8]| values.find(db, key, word);
            match before.iter().flatten().filter(|_| is_big).find_map(find) {
                Some(value) => text.push_value(value),
                None => text.bytes.extend_from_slice(word),
            }
            text.bytes.extend_from_slice(b"\r\n");
            before = [Some(word), before[0]];
        }
    }
}

fn encode_header(marker: u8, count: usize, out: &mut Vec<u8>) {
    out.push(marker);
    out.extend_from_slice(itoa::Buffer::new().format(count).as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Appends the command SELECT `db`, in RESP, to `out`, for the change log.
pub(super) fn encode_select(db: usize, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    let db = number.format(db);
    out.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n");
    encode_header(b'$', db.len(), out);
    out.extend_from_slice(db.as_bytes());
    out.extend_from_slice(b"\r\n");
}
