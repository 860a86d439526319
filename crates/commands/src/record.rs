//! The *canonical record* of a command: a list of commands that make the same changes again.
//!
//! A replica or an append-only file applies the record elsewhere and later. The result must be the
//! same data. So a record has absolute times instead of relative ones, results instead of random
//! choices, and no waiting. Most requests are their own record. The effect of some handlers depends
//! on the clock, on chance or on the encoding of a value. They replace the request with other
//! commands ([`crate::Ctx::record`]).
//!
//! The recorded commands are those that Redis 6.2 and later and Valkey 7.2 and later apply with the
//! same result. Requests of a newer server are replaced by older commands. A few have no older
//! form, such as the expiry of fields: [`forms`] states the versions that they need.
//!
//! The engine decides if records are wanted and calls [`ChangeRecord::begin`] before each command.
//! After the command, when its changes are absorbed, the engine writes in this order:
//!
//! 1. [`ChangeRecord::expired`]: DEL for each key that the command found expired, then HDEL for
//!    each field that it found expired,
//! 2. [`ChangeRecord::commands`]: the commands that replace the request,
//! 3. the request as it was sent, if [`ChangeRecord::has_request`] returns true.
//!
//! DEL of an expired key always comes first: a key expires before the command uses it.
//!
//! A server that applies records must not remove expired keys or fields itself: a DEL or HDEL
//! follows. In this crate that mode is [`keyspace::view::ExpiredAccess::Show`].
//!
//! Some commands that Redis 8.0.2 records would lead to other data, or only a replica or a new
//! server could apply them. Saker records something else for the following requests:
//!
//! - HINCRBYFLOAT of a field with an expiry: HSETEX with KEEPTTL, as in Redis 8.6. HSET clears the
//!   expiry.
//! - HSETNX and HINCRBY of an expired field: HSET. An HDEL before the request may delete the key,
//!   and with it the key's expiry.
//! - HPERSIST that skipped an expired field: HPERSIST of only the fields that it changed.
//! - XREADGROUP of pending entries: XCLAIM with their new time and count. Redis records nothing.
//! - A consumer that XREADGROUP, XCLAIM or XAUTOCLAIM created and that got no entry: XGROUP
//!   CREATECONSUMER.
//! - XCLAIM and XAUTOCLAIM of deleted entries: one XACK for all, in place of an XCLAIM for each.
//! - XADD with IDMP or IDMPAUTO, XIDMPRECORD and XCFGSET: XADD without it, and XACK for a group
//!   that no stream has. This server reads the name of that group.
//! - XNACK: XCLAIM for the consumer with the empty name, as of the time 0.
//! - LMOVEM and BLMOVEM: LMOVE of one element, else a pop and a push. HIMPORT SET: HSET, after DEL
//!   of a former hash.
//! - Approximate trims: an exact trim without LIMIT, because clients may not combine LIMIT with
//!   `=`.
//! - Trims with DELREF: the same trim without DELREF, and XACK of the removed entries that were
//!   pending.
//! - Trims with ACKED: a trim of the entries before the first one that a group still needs, and
//!   XDEL of the entries removed after it.
//! - XDELEX and XACKDEL: XACK and XDEL.
//! - SET with GET or a condition that compares, and EXPIRE with a condition: the same without these
//!   options.
//! - MSETEX: SET of each key. BITOP with DIFF, DIFF1, ANDOR or ONE: SET of the result.
//! - GEOSEARCHSTORE and GEORADIUS with STORE: the stored result. Servers compute distances
//!   differently.
//! - RESTORE of a payload that Redis 6.2 cannot read: RESTORE of an older payload. If fields
//!   expire, HSET and HPEXPIREAT.
//! - SORT with STORE: its result. Servers read numbers differently, and a pattern may name a field
//!   that expires.
//! - Hexadecimal scores and weights: decimal ones. Valkey 9.1 does not accept hexadecimal ones.
//! - ZRANGESTORE and ZREMRANGEBYLEX with a range of names, if the members have several scores, and
//!   ZRANGESTORE with a negative offset: the same range by rank.
//! - HSETEX with NX or XX (Valkey): without NX or XX. HSETEX without an expiry: HSET.
//! - BITFIELD whose only SET overflows under FAIL: the request, because it may have created the
//!   key.
//!
//! HINCRBY and HPERSIST of a field with an expiry are recorded as sent, as in Redis. If Redis loads
//! such a record after the field has expired, it skips the field, as with its own files.
//!
//! Not recorded, as in Redis: access times and frequencies, encodings, and the times at which a
//! consumer of a group was last seen and last active.

use keyspace::StreamId;
use keyspace::stream::IdText;

pub mod forms;

/// The maximum capacity, in bytes, that an emptied list of recorded commands keeps for the next
/// command.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// A list of recorded commands. `bytes` holds the words of all commands as RESP bulk strings,
/// without the commands' array headers.
#[derive(Default)]
struct Commands {
    bytes: Vec<u8>,
    ends: Vec<CommandEnd>,
}

/// The end of one recorded command: its offset in [`Commands::bytes`], with the command's database
/// and number of words.
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

/// One command of a canonical record: replicas and the append-only file get it.
#[derive(Clone, Copy, Debug)]
pub struct RecordedCommand<'r> {
    /// The number of the database in which the recorded command runs.
    pub db: usize,
    /// The number of words of the recorded command, its name included.
    pub words: usize,
    /// The words of the recorded command as RESP bulk strings, without the array's header.
    pub bulks: &'r [u8],
}

impl<'r> RecordedCommand<'r> {
    /// Returns an iterator over the words of the recorded command. O(words).
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

    /// Appends the whole recorded command as a RESP request. O(bytes).
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(b'*');
        out.extend_from_slice(itoa::Buffer::new().format(self.words).as_bytes());
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(self.bulks);
    }
}

/// The condition under which the request itself is recorded for replicas and the append-only file.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum RequestForm {
    /// The request is recorded if it has counted a change of the data.
    #[default]
    IfChanged,
    /// The request is recorded even if no change was counted.
    Always,
    /// The request is not recorded: other commands replace it.
    Replaced,
}

/// The commands to record for the running command (its canonical record): see the module's
/// documentation. Each I/O thread has one.
#[derive(Default)]
pub struct ChangeRecord {
    /// True if the engine wants commands to be recorded, for replicas or the append-only file.
    /// Otherwise nothing is collected.
    pub is_wanted: bool,
    request: RequestForm,
    /// The count of changes ([`crate::Changes::changes`]) before the command.
    changes_before: u64,
    /// The number of fields that the command found expired. If the command changed nothing else,
    /// the request is not recorded.
    fields_expired: u64,
    expired_keys: Commands,
    expired_fields: Commands,
    commands: Commands,
}

impl ChangeRecord {
    /// Begins to record a command. `changes` is the count of changes before the command. O(1).
    #[inline]
    pub fn begin(&mut self, changes: u64) {
        if self.is_wanted {
            self.request = RequestForm::IfChanged;
            (self.changes_before, self.fields_expired) = (changes, 0);
            self.expired_keys.clear();
            self.expired_fields.clear();
            self.commands.clear();
        }
    }

    /// Returns the recorded removals (DEL, HDEL) of the keys and fields that the command found
    /// expired. They apply before [`ChangeRecord::commands`].
    pub fn expired(&self) -> impl Iterator<Item = RecordedCommand<'_>> {
        self.expired_keys.iter().chain(self.expired_fields.iter())
    }

    /// Returns the commands that replace the request, in the order in which they apply.
    pub fn commands(&self) -> impl Iterator<Item = RecordedCommand<'_>> {
        self.commands.iter()
    }

    /// Returns the number of commands that [`ChangeRecord::expired`] and [`ChangeRecord::commands`]
    /// yield. O(1).
    pub fn command_count(&self) -> usize {
        self.expired_keys.ends.len() + self.expired_fields.ends.len() + self.commands.ends.len()
    }

    /// Returns true if commands are to be recorded and the request itself is. Then no commands
    /// replace it. `changes` is the count of changes after the command. O(1).
    #[inline]
    pub fn has_request(&self, changes: u64) -> bool {
        self.is_wanted
            && match self.request {
                RequestForm::IfChanged => changes - self.changes_before > self.fields_expired,
                RequestForm::Always => true,
                RequestForm::Replaced => false,
            }
    }

    /// Records the commands that `write` writes, in place of the request. If `write` writes none,
    /// the request is not recorded at all. Further calls append commands. `write` runs only if the
    /// engine wants records.
    #[inline]
    pub fn replace(&mut self, db: usize, write: impl FnOnce(&mut RecordWriter<'_>)) {
        if self.is_wanted {
            self.replace_wanted(db, write);
        }
    }

    /// Records the commands that `write` writes in place of the request; the caller has checked
    /// that the engine wants records. Not inlined, so that a handler executes only that check if no
    /// records are wanted.
    #[cold]
    #[inline(never)]
    fn replace_wanted(&mut self, db: usize, write: impl FnOnce(&mut RecordWriter<'_>)) {
        self.request = RequestForm::Replaced;
        write(&mut RecordWriter { commands: &mut self.commands, db });
    }

    /// Records the request even if no change is counted. For effects that Redis does not count.
    #[inline]
    pub fn keep_request(&mut self) {
        if self.request == RequestForm::IfChanged {
            self.request = RequestForm::Always;
        }
    }

    /// Records DEL of an expired key, ahead of the request or of the commands that replace it.
    #[inline]
    pub fn key_expired(&mut self, db: usize, key: &[u8]) {
        if self.is_wanted {
            RecordWriter { commands: &mut self.expired_keys, db }.command("DEL").word(key);
        }
    }

    /// Records HDEL of an expired field, ahead of the request or of the commands that replace it.
    /// The caller must count the removal as one change.
    #[inline]
    pub fn field_expired(&mut self, db: usize, key: &[u8], field: &[u8]) {
        if self.is_wanted {
            self.fields_expired += 1;
            RecordWriter { commands: &mut self.expired_fields, db }.command("HDEL").word(key).word(field);
        }
    }
}

/// A writer of recorded commands. Each command begins with a call of [`RecordWriter::command`].
pub struct RecordWriter<'r> {
    commands: &'r mut Commands,
    db: usize,
}

impl RecordWriter<'_> {
    /// Begins the next recorded command with its name.
    pub fn command(&mut self, name: &str) -> &mut Self {
        let end = self.commands.bytes.len();
        self.commands.ends.push(CommandEnd { db: self.db, words: 0, end });
        self.word(name.as_bytes())
    }

    /// Appends the next word of the recorded command. O(bytes).
    ///
    /// # Panics
    /// If no command was begun.
    pub fn word(&mut self, word: &[u8]) -> &mut Self {
        self.commands.push_word(word);
        self
    }

    /// Appends the next words of the recorded command. O(bytes).
    pub fn words<'w>(&mut self, words: impl IntoIterator<Item = &'w [u8]>) -> &mut Self {
        words.into_iter().for_each(|word| self.commands.push_word(word));
        self
    }

    /// Appends an integer as the next word of the recorded command.
    pub fn integer(&mut self, number: impl itoa::Integer) -> &mut Self {
        self.word(itoa::Buffer::new().format(number).as_bytes())
    }

    /// Appends a stream entry's ID as the next word of the recorded command.
    pub fn id(&mut self, id: StreamId) -> &mut Self {
        self.word(id.text(&mut IdText::new()))
    }
}

#[cfg(test)]
mod tests;
