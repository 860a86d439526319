//! The record of the unit under way, until its position is drawn.

use commands::Args;
use commands::record::RecordedCommand;

/// What a unit recorded so far: commands as requests of the protocol. Thread: its own.
#[derive(Default)]
pub struct UnitRecord {
    bytes: Vec<u8>,
    commands: usize,
    /// The database of the first command.
    first_db: usize,
    /// That of the last one.
    last_db: usize,
}

impl UnitRecord {
    /// Whether nothing was recorded.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.commands == 0
    }

    /// Whether its commands must apply together: it has several, which stand between MULTI and
    /// EXEC, as in Redis.
    pub(super) fn is_transaction(&self) -> bool {
        self.commands > 1
    }

    /// The commands, with a SELECT between those of different databases.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The databases of the first and of the last command.
    pub(super) fn dbs(&self) -> (u32, u32) {
        (self.first_db as u32, self.last_db as u32)
    }

    /// Forgets all, keeping the memory unless it is much.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT_BYTES_MAX);
        self.commands = 0;
    }

    /// Adds a request that is its own record.
    #[inline]
    pub fn push_request(&mut self, db: usize, args: &Args<'_>) {
        self.begin_command(db);
        args.encode(&mut self.bytes);
    }

    /// Adds a command that a handler recorded.
    pub fn push_command(&mut self, command: &RecordedCommand<'_>) {
        self.begin_command(command.db);
        command.encode(&mut self.bytes);
    }

    #[inline]
    fn begin_command(&mut self, db: usize) {
        if self.commands == 0 {
            self.first_db = db;
        } else if self.last_db != db {
            encode_select(db, &mut self.bytes);
        }
        self.last_db = db;
        self.commands += 1;
    }
}

/// Memory that is kept for the next unit.
const KEPT_BYTES_MAX: usize = 64 << 10;

/// Appends SELECT.
pub(super) fn encode_select(db: usize, out: &mut Vec<u8>) {
    let mut number = itoa::Buffer::new();
    let db = number.format(db);
    out.extend_from_slice(b"*2\r\n$6\r\nSELECT\r\n$");
    out.extend_from_slice(itoa::Buffer::new().format(db.len()).as_bytes());
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(db.as_bytes());
    out.extend_from_slice(b"\r\n");
}
