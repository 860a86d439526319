//! What a command did, as commands that do the same again: its *canonical record*.
//!
//! Whoever applies the record, later and elsewhere (an append-only file, a replica), must end with
//! the same data. So a record has absolute times instead of relative ones, results instead of
//! random choices, and no waiting. Most requests are their own record. A handler whose effect
//! depends on the clock, on chance or on how a value is stored replaces the request with other
//! commands ([`crate::Ctx::record`]). Forms are those that Redis 8 propagates, so that its replicas
//! can apply them.
//!
//! The engine says whether records are wanted, calls [`ChangeRecord::begin`] before each command,
//! and when the command is done and its tally is absorbed it writes, in this order:
//!
//! 1. [`ChangeRecord::commands`]: DEL for each key that the command found expired, then HDEL for
//!    each field that it found expired and what the handler recorded instead of the request,
//! 2. the request as it was sent, where [`ChangeRecord::has_request`] says so.
//!
//! DEL of expired keys comes first whenever it was noticed: a key expires before the command uses
//! it.
//!
//! Who applies records must not remove what has expired by itself: a DEL or HDEL will come. In this
//! crate that is [`keyspace::view::ExpiredAccess::Show`].
//!
//! Where a form of Redis 8.0.2 would lead to other data, or only a replica could apply it, ours
//! differs:
//!
//! - HINCRBYFLOAT of a field with an expiry: HSETEX with KEEPTTL, as in Redis 8.6. HSET clears it.
//! - HSETNX and HINCRBY of an expired field: HSET. HDEL ahead of the request may delete the key,
//!   and with it the key's expiry.
//! - HPERSIST that passed over an expired field: the fields that it changed.
//! - XREADGROUP of pending entries: XCLAIM with their new time and count. Redis records nothing.
//! - A consumer that XREADGROUP, XCLAIM or XAUTOCLAIM created and that got no entry: XGROUP
//!   CREATECONSUMER.
//! - XCLAIM and XAUTOCLAIM of deleted entries: XACK, one for all, in place of an XCLAIM for each.
//! - Approximate trims: no LIMIT, which clients may not combine with `=`; with ACKED, where entries
//!   that groups need stay in front, always the length (MAXLEN).
//! - XDELEX with DELREF of entries that were deleted before: recorded, it may
//!   have acknowledged them.
//! - SORT with STORE, by texts that patterns lead to or from fields of hashes: its result.
//! - Ranges by name of sorted sets with several scores, and ranges with a negative offset: by rank.
//! - HSETEX with NX or XX (Valkey): without.
//!
//! HINCRBY and HPERSIST of a field with an expiry are recorded as sent, as in Redis. A Redis that
//! loads them after that time passes over the field, as it does with its own files.
//! - BITFIELD whose only SET overflows under FAIL: recorded, it may have created the key.
//!
//! Not recorded, as in Redis: access times and frequencies, encodings, and when a consumer of a
//! group was last seen and active.

use keyspace::StreamId;
use keyspace::stream::IdText;

/// Memory that is kept for the next record.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Words of commands, one after another as bulk strings of the protocol.
#[derive(Default)]
struct Commands {
    bytes: Vec<u8>,
    ends: Vec<CommandEnd>,
}

/// Where a command ends in [`Commands::bytes`].
struct CommandEnd {
    db: usize,
    words: usize,
    end: usize,
}

impl Commands {
    fn clear(&mut self) {
        self.bytes.clear();
        self.ends.clear();
        if self.bytes.capacity() > KEPT_BYTES_MAX {
            self.bytes = Vec::new();
        }
    }

    fn iter(&self) -> impl Iterator<Item = RecordedCommand<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |command| {
            let from = std::mem::replace(&mut start, command.end);
            let bulks = &self.bytes[from..command.end];
            RecordedCommand { db: command.db, words: command.words, bulks }
        })
    }

    fn push_word(&mut self, word: &[u8]) {
        self.bytes.push(b'$');
        self.bytes.extend_from_slice(itoa::Buffer::new().format(word.len()).as_bytes());
        self.bytes.extend_from_slice(b"\r\n");
        self.bytes.extend_from_slice(word);
        self.bytes.extend_from_slice(b"\r\n");
        let last = self.ends.last_mut().expect("a command begins with its name");
        last.words += 1;
        last.end = self.bytes.len();
    }
}

/// One command of a record.
#[derive(Clone, Copy, Debug)]
pub struct RecordedCommand<'r> {
    /// The database it applies to.
    pub db: usize,
    /// How many words it has, the name included.
    pub words: usize,
    /// The words as bulk strings of the protocol, without the array's header.
    pub bulks: &'r [u8],
}

impl<'r> RecordedCommand<'r> {
    /// The words. O(words).
    pub fn iter(&self) -> impl Iterator<Item = &'r [u8]> {
        let mut left = self.bulks;
        std::iter::from_fn(move || {
            let (header, behind) = left.split_at_checked(left.iter().position(|&byte| byte == b'\n')? + 1)?;
            let len = stdx::number::parse_i64(header.strip_prefix(b"$")?.strip_suffix(b"\r\n")?)?;
            let (word, behind) = behind.split_at_checked(usize::try_from(len).ok()?)?;
            left = &behind[b"\r\n".len()..];
            Some(word)
        })
    }

    /// Appends the whole command as a request of the protocol. O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(b'*');
        out.extend_from_slice(itoa::Buffer::new().format(self.words).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.bulks);
    }
}

/// When the request is part of its own record.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum RequestForm {
    /// If it changed something.
    #[default]
    IfChanged,
    /// Even if no change was counted.
    Always,
    /// Other commands stand in its place.
    Replaced,
}

/// The canonical record of the command that runs. See the module's comment. Thread: one per I/O
/// thread.
#[derive(Default)]
pub struct ChangeRecord {
    /// Whether somebody reads records. Otherwise nothing is collected.
    pub is_wanted: bool,
    request: RequestForm,
    /// What [`crate::Changes::changes`] was before the command.
    changes_before: u64,
    /// Changes that are no reason to record the request: fields that the command found expired.
    fields_expired: u64,
    expired_keys: Commands,
    commands: Commands,
}

impl ChangeRecord {
    /// Begins the record of a command; `changes` is the count before it. O(1).
    #[inline]
    pub fn begin(&mut self, changes: u64) {
        if self.is_wanted {
            self.request = RequestForm::IfChanged;
            (self.changes_before, self.fields_expired) = (changes, 0);
            self.expired_keys.clear();
            self.commands.clear();
        }
    }

    /// The commands that were recorded beside the request or instead of it, in the order in which
    /// they apply.
    pub fn commands(&self) -> impl Iterator<Item = RecordedCommand<'_>> {
        self.expired_keys.iter().chain(self.commands.iter())
    }

    /// How many commands [`ChangeRecord::commands`] gives. O(1).
    pub fn command_count(&self) -> usize {
        self.expired_keys.ends.len() + self.commands.ends.len()
    }

    /// Whether records are wanted and the request follows as it was sent, in its own database;
    /// `changes` is the count after it. O(1).
    #[inline]
    pub fn has_request(&self, changes: u64) -> bool {
        self.is_wanted
            && match self.request {
                RequestForm::IfChanged => changes - self.changes_before > self.fields_expired,
                RequestForm::Always => true,
                RequestForm::Replaced => false,
            }
    }

    /// Records what `write` writes in place of the request; nothing where it writes nothing.
    /// Several calls add up. `write` runs only if records are wanted.
    #[inline]
    pub fn replace(&mut self, db: usize, write: impl FnOnce(&mut RecordWriter<'_>)) {
        if self.is_wanted {
            self.replace_wanted(db, write);
        }
    }

    /// Out of line: with no reader of records, all that a handler runs is the branch.
    #[cold]
    #[inline(never)]
    fn replace_wanted(&mut self, db: usize, write: impl FnOnce(&mut RecordWriter<'_>)) {
        self.request = RequestForm::Replaced;
        write(&mut RecordWriter { commands: &mut self.commands, db });
    }

    /// Records the request even if no change is counted, for effects that Redis does not count.
    #[inline]
    pub fn keep_request(&mut self) {
        if self.request == RequestForm::IfChanged {
            self.request = RequestForm::Always;
        }
    }

    /// Records that a key was found expired, and removed.
    #[inline]
    pub fn key_expired(&mut self, db: usize, key: &[u8]) {
        if self.is_wanted {
            RecordWriter { commands: &mut self.expired_keys, db }.command("DEL").word(key);
        }
    }

    /// Records that a field was found expired, and removed: before what the command does then. It
    /// must be counted as one change.
    #[inline]
    pub fn field_expired(&mut self, db: usize, key: &[u8], field: &[u8]) {
        if self.is_wanted {
            self.fields_expired += 1;
            RecordWriter { commands: &mut self.commands, db }.command("HDEL").word(key).word(field);
        }
    }
}

/// Writes commands of a record, each from its name on.
pub struct RecordWriter<'r> {
    commands: &'r mut Commands,
    db: usize,
}

impl RecordWriter<'_> {
    /// Begins a command with its name.
    pub fn command(&mut self, name: &str) -> &mut Self {
        let end = self.commands.bytes.len();
        self.commands.ends.push(CommandEnd { db: self.db, words: 0, end });
        self.word(name.as_bytes())
    }

    /// The command's next word. O(bytes).
    ///
    /// # Panics
    /// If no command was begun.
    pub fn word(&mut self, word: &[u8]) -> &mut Self {
        self.commands.push_word(word);
        self
    }

    /// The command's next words. O(bytes).
    pub fn words<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8]>) -> &mut Self {
        words.into_iter().for_each(|word| self.commands.push_word(word));
        self
    }

    /// An integer as the command's next word.
    pub fn integer(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.word(itoa::Buffer::new().format(number).as_bytes())
    }

    /// The ID of a stream's entry as the command's next word.
    pub fn id(&mut self, id: StreamId) -> &mut Self {
        self.word(id.text(&mut IdText::new()))
    }
}

#[cfg(test)]
mod tests;
