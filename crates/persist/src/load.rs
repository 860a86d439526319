//! Loading of an RDB file: one thread splits it into batches of complete keys, and any number of
//! other threads decode the batches.
//!
//! ```text
//!   bytes ─► Splitter ─► facts (AUX fields), libraries of functions, sizes of databases
//!                    └─► batches ─► decode ─► keys with their values
//! ```
//! The splitter finds the ends of values without decoding them. It allocates memory only for bytes
//! that have arrived, whatever a length in the file claims. Values are checked when they are
//! decoded. The module `rdb::record` describes the records of a file.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use crc::{CRC_64_REDIS, Crc, Digest, Table};
use keyspace::string::stored;
use keyspace::{Access, KeyEntry};
use structures::entry::{INLINE_BYTES_MAX, NewValue};

use crate::folder::FileError;
use crate::rdb::opcode;
use crate::rdb::{
    FormatError, FormatErrorKind, REDIS_VERSION_READ_MAX, Reader, Rules, Skipper, Templates, Unskipped,
    VALKEY_VERSION, VALKEY_VERSION_MAX, Value, ValueType, VersionCheck, read_shared_names,
    read_value_in_file,
};

mod frame;
mod inspect;
mod unsupported;

pub use crate::rdb::ModuleId;
use frame::{ENVELOPE, ENVELOPE_MARK, Frame};
pub use inspect::{Inspected, Record, inspect_batch, key_name};
pub use unsupported::{Feature, Skipped, Unsupported};

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The minimum length of a complete batch of keys, in bytes: the splitter returns it from this
/// length on.
const BATCH_BYTES: usize = 512 * 1024;
/// The minimum length, in bytes, of a batch that gets the splitter's buffer as its own. Shorter
/// batches are copied from the buffer.
const LONG_BATCH_BYTES: usize = 4 << 20;
/// The minimum length of a read from an RDB file, in bytes.
const READ_BYTES: usize = 1 << 20;

/// The source of the bytes of an RDB file or an append-only file.
pub trait ByteSource {
    /// Reads bytes into `buffer`, which is not empty. Returns the number of read bytes, 0 at the
    /// end.
    ///
    /// # Errors
    /// An error of the system.
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError>;

    /// Returns true if the next read would wait, as on a connection without data. Then the bytes
    /// read so far are returned first, because the sender may wait for an answer before it sends
    /// more.
    fn is_dry(&mut self) -> bool {
        false
    }
}

impl ByteSource for &[u8] {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        let len = self.len().min(buffer.len());
        let (taken, rest) = self.split_at(len);
        buffer[..len].copy_from_slice(taken);
        *self = rest;
        Ok(len)
    }
}

/// The options for reading an RDB file: versions, checksums, unsupported content.
#[derive(Clone, Copy, Debug)]
pub struct LoadOptions {
    /// The versions of the RDB format that are accepted.
    pub versions: VersionCheck,
    /// True if the checksum at the end of the file is compared with the data.
    pub checksum: bool,
    /// The treatment of types and data that this server does not support.
    pub unsupported: Unsupported,
}

/// The error because of which an RDB file cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The offset in the file where the error was found, in bytes.
    pub file_offset: u64,
    /// The key with the error; `None` if it is unknown.
    pub key: Option<Box<[u8]>>,
    /// The kind of the error in the RDB file.
    pub kind: LoadErrorKind,
}

/// The kinds of errors in an RDB file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoadErrorKind {
    /// The file does not begin with the magic of an RDB file.
    Signature,
    /// The version of the RDB file is not supported.
    Version(u32),
    /// A value, or the data between values, is not valid in RDB format.
    Format(FormatErrorKind),
    /// The RDB file has a value of a type that is not supported.
    Unsupported(Feature),
    /// The RDB file has data of unsupported features that cannot be skipped.
    Unreadable(&'static str),
    /// The LZ4 frame of a compressed file is damaged or of an unsupported kind.
    Frame(&'static str),
    /// The checksum at the end of the RDB file is wrong.
    Checksum,
    /// A key occurs twice in the RDB file.
    DuplicateKey,
    /// A library of functions in the RDB file already exists in the server.
    DuplicateLibrary,
    /// The number of a database is too high for the server.
    DbIndex(u64),
    /// The file cannot be read: an error of the operating system.
    Reading(FileError),
}

impl fmt::Display for LoadErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadErrorKind::Signature => f.write_str("not an RDB file: wrong signature"),
            LoadErrorKind::Version(version) => write!(f, "RDB format version {version} is not known"),
            LoadErrorKind::Format(kind) => write!(f, "{kind}"),
            LoadErrorKind::Unsupported(feature) => write!(
                f,
                "Saker does not support {feature}: set rdb-unsupported-values to skip, to load the file \
                 without such values"
            ),
            LoadErrorKind::Unreadable(what) => write!(f, "{what}"),
            LoadErrorKind::Frame(what) => {
                write!(f, "the file has the compression of Valkey 9.2 and cannot be unpacked: {what}")
            }
            LoadErrorKind::Checksum => {
                f.write_str("RDB CRC error: the checksum is wrong, the file is damaged")
            }
            LoadErrorKind::DuplicateKey => f.write_str("a duplicate key"),
            LoadErrorKind::DuplicateLibrary => f.write_str("a duplicate library of functions"),
            LoadErrorKind::DbIndex(db) => {
                write!(f, "database {db} does not exist: increase the option 'databases'")
            }
            LoadErrorKind::Reading(trouble) => write!(f, "the file cannot be read: {trouble}"),
        }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if !matches!(self.kind, LoadErrorKind::Signature | LoadErrorKind::Version(_)) {
            write!(f, ", at byte {}", self.file_offset)?;
        }
        match &self.key {
            Some(key) => write!(f, ", key '{}'", key.escape_ascii()),
            None => Ok(()),
        }
    }
}

impl std::error::Error for LoadError {}

impl From<FormatError> for LoadError {
    fn from(error: FormatError) -> Self {
        Self { file_offset: error.file_offset, key: None, kind: LoadErrorKind::Format(error.kind) }
    }
}

/// The parts of an RDB file that the splitter returns, in the order of the file.
#[derive(Debug)]
pub enum Part {
    /// An AUX field: a name and a value that describe the file or the server that wrote it.
    Fact {
        /// The name of the AUX field.
        name: Vec<u8>,
        /// The value of the AUX field.
        value: Vec<u8>,
    },
    /// The source text of a library of functions in the RDB file.
    Function(Vec<u8>),
    /// The sizes of the next database in the file: a hint for allocation, which may be wrong.
    DbSize {
        /// The number of the database whose sizes follow.
        db: usize,
        /// The number of keys of the database, as the file states it.
        keys: u64,
        /// The number of the database's keys that expire, as the file states it.
        expires: u64,
    },
    /// Data that a module stores outside the values of keys.
    Module {
        /// The id of the module's type, as the RDB file states it.
        id: ModuleId,
        /// The length of the data in the file, in bytes.
        len_bytes: u64,
    },
    /// A batch of complete keys of one database, not decoded yet.
    Batch(Batch),
    /// The end of the RDB file, which was complete.
    End,
}

/// The result of checking the checksum at the end of an RDB file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileChecksum {
    /// The end of the RDB file was not reached.
    NotReached,
    /// The version of the RDB file has no checksum.
    Absent,
    /// The checksum is 0: it was saved with `rdbchecksum no`.
    NotWritten,
    /// The checksum was not compared, because the options say so.
    NotCompared,
    /// The checksum of the RDB file was compared with its data and is right.
    Good,
    /// The checksum is wrong: bytes of the file changed after they were written.
    Wrong,
}

/// A batch of complete keys of one database, as they are in the RDB file.
#[derive(Debug)]
pub struct Batch {
    db: usize,
    version: u16,
    file_offset: u64,
    bytes: Vec<u8>,
    /// The shared field names that hashes of the RDB file refer to.
    templates: Arc<Templates>,
}

impl Batch {
    /// Returns the length of the batch in the RDB file, in bytes.
    pub fn len_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the start of the batch in the RDB file, in bytes.
    pub fn file_offset(&self) -> u64 {
        self.file_offset
    }

    /// Returns the number of the database of the batch's keys.
    pub fn db(&self) -> usize {
        self.db
    }

    /// Creates the error `kind` for the key `key` of this batch.
    pub fn error(&self, key: &[u8], kind: LoadErrorKind) -> LoadError {
        LoadError { file_offset: self.file_offset, key: Some(key.into()), kind }
    }
}

/// The content of an RDB file after its RDB part: commands, if the file is an append-only file with
/// an RDB preamble.
pub struct Behind<S> {
    /// The source of the file's bytes that follow `ahead`.
    pub source: S,
    /// The bytes after the RDB part that were already read from the source.
    pub ahead: Vec<u8>,
    /// The start of this content in the file, in bytes.
    pub file_offset: u64,
}

/// The source of the uncompressed bytes of an RDB file: the file itself, or its LZ4 frame.
enum Input<S> {
    Plain(S),
    Compressed(Box<Frame<S>>),
}

/// A splitter of an RDB file into parts; see the module. In a compressed file, offsets are those in
/// the decompressed file.
pub struct Splitter<S> {
    /// The source of bytes; `None` only while the beginning of a compressed file is read.
    input: Option<Input<S>>,
    options: LoadOptions,
    db_count: usize,
    version: u16,
    db: usize,
    /// The bytes of the RDB file that were read and not returned yet.
    buffer: Vec<u8>,
    /// The index in the buffer of the first byte whose part of the file was not returned yet.
    start: usize,
    /// The index in the buffer after the last complete key that was found.
    at: usize,
    /// The offset in the file of the buffer's first byte.
    buffer_offset: u64,
    digest: Digest<'static, u64, Table<16>>,
    checksum: FileChecksum,
    has_ended: bool,
    templates: Arc<Templates>,
    skipped: Skipped,
}

impl<S: ByteSource> Splitter<S> {
    /// Opens an RDB file and reads its magic and version.
    ///
    /// # Errors
    /// If it is not an RDB file, or its version is not supported.
    pub fn open(source: S, options: LoadOptions, db_count: usize) -> Result<Self, LoadError> {
        let mut splitter = Self {
            input: Some(Input::Plain(source)),
            options,
            db_count,
            version: 0,
            db: 0,
            buffer: Vec::new(),
            start: 0,
            at: 0,
            buffer_offset: 0,
            digest: CRC.digest(),
            checksum: FileChecksum::NotReached,
            has_ended: false,
            templates: Arc::new(Templates::new()),
            skipped: Skipped::default(),
        };
        splitter.version = splitter.read_magic()?;
        Ok(splitter)
    }

    /// Returns the version of the RDB format in which the file is written.
    pub fn version(&self) -> u16 {
        self.version
    }

    /// Returns the offset in the file, in bytes, up to which all parts were returned.
    pub fn file_offset(&self) -> u64 {
        self.buffer_offset + self.start as u64
    }

    /// Returns the number of the database of the next key.
    pub fn db(&self) -> usize {
        self.db
    }

    /// Returns true if the file is compressed, so that offsets are those in the decompressed file.
    pub fn is_compressed(&self) -> bool {
        matches!(self.input, Some(Input::Compressed(_)))
    }

    /// Returns the numbers of items of the file that this server does not support and that were
    /// skipped so far, by kind.
    pub fn skipped(&self) -> &Skipped {
        &self.skipped
    }

    /// Returns the result of checking the checksum at the end of the file.
    pub fn checksum(&self) -> FileChecksum {
        self.checksum
    }

    /// Returns the file's content after the RDB part; `None` unless [`next_part`](Self::next_part)
    /// has returned the end of the RDB part.
    pub fn into_behind(mut self) -> Option<Behind<S>> {
        if !self.has_ended {
            return None;
        }
        let file_offset = self.file_offset();
        match self.input? {
            Input::Plain(source) => {
                Some(Behind { source, ahead: self.buffer.split_off(self.start), file_offset })
            }
            Input::Compressed(frame) => Some(frame.into_behind()),
        }
    }

    fn error(&self, kind: LoadErrorKind) -> LoadError {
        LoadError { file_offset: self.buffer_offset + self.at as u64, key: None, kind }
    }

    fn read_magic(&mut self) -> Result<u16, LoadError> {
        while self.buffer.len() < 9 && self.read_more()? {}
        if self.buffer.starts_with(ENVELOPE_MARK) {
            self.open_frame()?;
            while self.buffer.len() < 9 && self.read_more()? {}
        }
        let Some(magic) = self.buffer.first_chunk::<9>() else {
            return Err(self.error(LoadErrorKind::Signature));
        };
        let (of_valkey, digits) = match magic {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => (false, &digits[..]),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => (true, &digits[..]),
            _ => return Err(self.error(LoadErrorKind::Signature)),
        };
        let number = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u32>().ok());
        let version = number.ok_or_else(|| self.error(LoadErrorKind::Signature))?;
        let first_of_valkey = u32::from(VALKEY_VERSION);
        let is_known = match (of_valkey, self.options.versions) {
            (false, VersionCheck::Strict) => (1..=u32::from(REDIS_VERSION_READ_MAX)).contains(&version),
            (false, VersionCheck::Relaxed) => (1..first_of_valkey).contains(&version),
            (true, VersionCheck::Strict) => {
                (first_of_valkey..=u32::from(VALKEY_VERSION_MAX)).contains(&version)
            }
            (true, VersionCheck::Relaxed) => version >= first_of_valkey,
        };
        if !is_known {
            return Err(self.error(LoadErrorKind::Version(version)));
        }
        self.consume(9);
        Ok(version as u16)
    }

    /// Opens the LZ4 frame of a compressed file, whose beginning is in the buffer.
    fn open_frame(&mut self) -> Result<(), LoadError> {
        if !self.buffer.starts_with(&ENVELOPE) {
            let kind = LoadErrorKind::Frame("no LZ4 frame, or an LZ4 frame of an unknown version");
            return Err(self.error(kind));
        }
        let begun = self.buffer.split_off(ENVELOPE.len());
        self.buffer.clear();
        if let Some(Input::Plain(source)) = self.input.take() {
            let checksums = if self.options.checksum { Checksums::Compared } else { Checksums::PassedOver };
            let frame = Frame::open(source, begun, checksums).map_err(|kind| self.error(kind))?;
            self.input = Some(Input::Compressed(Box::new(frame)));
        }
        Ok(())
    }

    fn is_input_dry(&mut self) -> bool {
        match &mut self.input {
            Some(Input::Plain(source)) => source.is_dry(),
            Some(Input::Compressed(frame)) => frame.is_dry(),
            None => false,
        }
    }

    fn read_input(&mut self, from: usize) -> Result<usize, LoadErrorKind> {
        match &mut self.input {
            Some(Input::Plain(source)) => {
                source.read(&mut self.buffer[from..]).map_err(LoadErrorKind::Reading)
            }
            Some(Input::Compressed(frame)) => frame.read(&mut self.buffer[from..]),
            None => Ok(0),
        }
    }

    /// Reads more bytes of the RDB file into the buffer: at most as many as it holds unparsed, or
    /// [`READ_BYTES`] if that is more. Returns false at the end of the file.
    fn read_more(&mut self) -> Result<bool, LoadError> {
        self.buffer.drain(..self.start);
        self.buffer_offset += self.start as u64;
        self.at -= self.start;
        self.start = 0;
        let had = self.buffer.len();
        let wanted = (had - self.at).max(READ_BYTES);
        self.buffer.resize(had + wanted, 0);
        let mut filled = had;
        let result = loop {
            match self.read_input(filled) {
                Ok(0) => break Ok(()),
                Ok(len) => filled += len,
                Err(kind) => break Err(kind),
            }
            if filled == self.buffer.len() || self.is_input_dry() {
                break Ok(());
            }
        };
        self.buffer.truncate(filled);
        match result {
            Ok(()) => Ok(filled > had),
            Err(kind) => Err(self.error(kind)),
        }
    }

    /// Adds the bytes before `end` to the checksum and drops them from the buffer.
    fn consume(&mut self, end: usize) {
        if self.options.checksum {
            self.digest.update(&self.buffer[self.start..end]);
        }
        (self.start, self.at) = (end, end);
    }

    /// Calls `skip` to find the end of the next record (a key or another entry) of the file. As
    /// long as it needs more bytes, reads them and calls it again. Returns its result and the end
    /// of the record in the buffer.
    fn try_skip<T>(
        &mut self,
        skip: impl Fn(&Self, &mut Skipper<'_>) -> Result<T, Unskipped>,
    ) -> Result<(T, usize), LoadError> {
        loop {
            let mut skipper = Skipper::new(&self.buffer, self.at);
            match skip(self, &mut skipper) {
                Ok(found) => return Ok((found, skipper.position())),
                Err(Unskipped::Short) => {
                    if !self.read_more()? {
                        return Err(self.error(LoadErrorKind::Format(FormatErrorKind::EndOfInput)));
                    }
                }
                Err(Unskipped::Broken(kind)) => {
                    let end = skipper.position();
                    let mut error = self.error(LoadErrorKind::Format(kind));
                    error.file_offset = self.buffer_offset + end as u64;
                    return Err(error);
                }
            }
        }
    }

    fn peek(&mut self) -> Result<u8, LoadError> {
        Ok(self.try_skip(|_, skipper| skipper.byte())?.0)
    }

    /// Returns the next part of the file.
    ///
    /// # Errors
    /// If the file ends too early, is damaged, or has data that cannot be loaded. All earlier keys
    /// were returned, and [`file_offset`](Self::file_offset) is the start of the wrong record.
    pub fn next_part(&mut self) -> Result<Part, LoadError> {
        loop {
            let (first, version) = (self.peek(), self.version);
            if !first.as_ref().is_ok_and(|&first| is_of_key(first, version)) {
                if self.at > self.start {
                    return Ok(Part::Batch(self.take_batch()));
                }
                match self.take_record(first?)? {
                    Some(part) => return Ok(part),
                    None => continue,
                }
            }
            let skipped = self.try_skip(|splitter, skipper| skip_key(skipper, version, &splitter.templates));
            let end = skipped.and_then(|(kind, end)| match self.feature_of(kind) {
                Some(feature) if self.options.unsupported == Unsupported::Refused => {
                    Err(self.error(LoadErrorKind::Unsupported(feature)))
                }
                Some(feature) if self.options.unsupported == Unsupported::Skipped => Ok((end, Some(feature))),
                _ => Ok((end, None)),
            });
            match end {
                Ok((end, None)) => self.at = end,
                // The earlier keys are returned first; the next call finds this key again.
                Ok((_, Some(_))) if self.at > self.start => return Ok(Part::Batch(self.take_batch())),
                Ok((end, Some(feature))) => {
                    self.skipped.add(feature);
                    self.consume(end);
                }
                // The earlier keys are returned first; the next call finds this error again.
                Err(_) if self.at > self.start => return Ok(Part::Batch(self.take_batch())),
                Err(error) => {
                    let key = key_name(&self.buffer[self.at..], version).map(Vec::into_boxed_slice);
                    return Err(LoadError { key, ..error });
                }
            }
            if self.at - self.start >= BATCH_BYTES {
                return Ok(Part::Batch(self.take_batch()));
            }
        }
    }

    /// Returns the kind of unsupported content of the next key, whose value has the type `kind`;
    /// `None` if it is supported.
    fn feature_of(&self, kind: u8) -> Option<Feature> {
        let of_valkey = self.version >= VALKEY_VERSION;
        match kind {
            MODULE => {
                let id = module_id(&self.buffer[self.at..], self.version);
                (id != ModuleId::VECTOR_SET).then_some(Feature::Module(id))
            }
            PATH_HASH if of_valkey => Some(Feature::PathHash),
            _ => None,
        }
    }

    fn take_batch(&mut self) -> Batch {
        let (end, file_offset) = (self.at, self.file_offset());
        let start = self.start;
        self.consume(end);
        let bytes = if end - start < LONG_BATCH_BYTES {
            self.buffer[start..end].to_vec()
        } else {
            // A big value is not copied.
            let rest = self.buffer.split_off(end);
            let mut bytes = std::mem::replace(&mut self.buffer, rest);
            bytes.drain(..start);
            self.buffer_offset += end as u64;
            (self.start, self.at) = (0, 0);
            bytes
        };
        let templates = Arc::clone(&self.templates);
        Batch { db: self.db, version: self.version, file_offset, bytes, templates }
    }

    /// Processes a record of the RDB file that is not a key. Returns `None` if the record has
    /// nothing for the caller.
    fn take_record(&mut self, first: u8) -> Result<Option<Part>, LoadError> {
        let string = |skipper: &mut Skipper<'_>| -> Result<(usize, usize), Unskipped> {
            let start = skipper.position();
            skipper.string()?;
            Ok((start, skipper.position()))
        };
        match first {
            opcode::END => self.take_end().map(Some),
            opcode::SELECT_DB => {
                let (db, end) = self.try_skip(|_, skipper| {
                    skipper.byte()?;
                    skipper.length()
                })?;
                if db >= self.db_count as u64 {
                    return Err(self.error(LoadErrorKind::DbIndex(db)));
                }
                self.consume(end);
                self.db = db as usize;
                Ok(None)
            }
            opcode::RESIZE_DB => {
                let ((keys, expires), end) = self.try_skip(|_, skipper| {
                    skipper.byte()?;
                    Ok((skipper.length()?, skipper.length()?))
                })?;
                self.consume(end);
                Ok(Some(Part::DbSize { db: self.db, keys, expires }))
            }
            opcode::AUX => {
                let ((name, value), end) = self.try_skip(|_, skipper| {
                    skipper.byte()?;
                    Ok((string(skipper)?, string(skipper)?))
                })?;
                let (name, value) = (self.string_at(name)?, self.string_at(value)?);
                self.consume(end);
                Ok(Some(Part::Fact { name, value }))
            }
            opcode::FUNCTION => {
                let (source, end) = self.try_skip(|_, skipper| {
                    skipper.byte()?;
                    string(skipper)
                })?;
                let source = self.string_at(source)?;
                self.consume(end);
                Ok(Some(Part::Function(source)))
            }
            opcode::MODULE_AUX => self.take_module(),
            opcode::UPDATE if self.version >= VALKEY_VERSION => self.pass_update(),
            opcode::HASH_TEMPLATE => {
                let (row, end) = self.try_skip(|_, skipper| {
                    skipper.byte()?;
                    let start = skipper.position();
                    skipper.shared_names()?;
                    Ok((start, skipper.position()))
                })?;
                read_shared_names(&mut self.reader_at(row), &self.templates)?;
                self.consume(end);
                Ok(None)
            }
            opcode::SLOT_INFO | opcode::SLOT_IMPORT => self.pass_record(first),
            opcode::FUNCTION_PRE_GA => Err(self.error(LoadErrorKind::Unreadable(
                "functions in the format of a Redis 7.0 release candidate",
            ))),
            _ => Err(self.error(LoadErrorKind::Unreadable("a record of a feature that Saker does not have"))),
        }
    }

    /// Processes the data of a module outside keys. Depending on the options, returns it, skips and
    /// counts it, or rejects it.
    fn take_module(&mut self) -> Result<Option<Part>, LoadError> {
        let (number, end) = self.try_skip(|_, skipper| {
            skipper.byte()?;
            let number = skipper.length()?;
            skipper.module_items()?;
            Ok(number)
        })?;
        let (id, len_bytes) = (ModuleId(number), (end - self.start) as u64);
        if id == ModuleId::VECTOR_SET {
            // Redis 8.0 writes none; nothing in it could be lost.
            self.consume(end);
            return Ok(None);
        }
        match self.options.unsupported {
            Unsupported::Refused => {
                return Err(self.error(LoadErrorKind::Unsupported(Feature::ModuleData(id))));
            }
            Unsupported::Skipped => self.skipped.add(Feature::ModuleData(id)),
            Unsupported::Kept => {}
        }
        self.consume(end);
        Ok((self.options.unsupported == Unsupported::Kept).then_some(Part::Module { id, len_bytes }))
    }

    /// Processes a command of Valkey among the keys of the file: skips and counts it, or rejects it
    /// with an error that names its key.
    fn pass_update(&mut self) -> Result<Option<Part>, LoadError> {
        let ([_, (start, key_end)], end) = self.try_skip(|_, skipper| {
            skipper.byte()?;
            skipper.command()
        })?;
        if self.options.unsupported != Unsupported::Skipped {
            let key = Some(self.buffer[start..key_end].into());
            return Err(LoadError { key, ..self.error(LoadErrorKind::Unsupported(Feature::Update)) });
        }
        self.skipped.add(Feature::Update);
        self.consume(end);
        Ok(None)
    }

    /// Skips a record (an entry that is not a key) that this server does not need.
    fn pass_record(&mut self, first: u8) -> Result<Option<Part>, LoadError> {
        let ((), end) = self.try_skip(|_, skipper| {
            skipper.byte()?;
            match first {
                opcode::SLOT_INFO => (0..3).try_for_each(|_| skipper.length().map(drop)),
                _ => {
                    skipper.string()?;
                    let ranges = skipper.length()?;
                    (0..ranges).try_for_each(|_| {
                        skipper.length()?;
                        skipper.length().map(drop)
                    })
                }
            }
        })?;
        self.consume(end);
        Ok(None)
    }

    /// Reads the encoded string in this range (start and end) of the buffer.
    fn string_at(&self, place: (usize, usize)) -> Result<Vec<u8>, LoadError> {
        Ok(self.reader_at(place).string()?)
    }

    /// Creates a reader of this range of the buffer. It rejects strings that are longer than any
    /// compression allows.
    fn reader_at(&self, (start, end): (usize, usize)) -> Reader<&[u8]> {
        let file_offset = self.buffer_offset + start as u64;
        Reader::new(&self.buffer[start..end], file_offset, (end - start) as u64 * 256)
    }

    fn take_end(&mut self) -> Result<Part, LoadError> {
        self.consume(self.at + 1);
        if self.has_ended {
            return Ok(Part::End);
        }
        self.compare_checksum()?;
        if let Some(Input::Compressed(frame)) = &mut self.input
            && let Err(kind) = frame.finish()
        {
            self.checksum = FileChecksum::Wrong;
            return Err(self.error(kind));
        }
        self.has_ended = true;
        Ok(Part::End)
    }

    fn compare_checksum(&mut self) -> Result<(), LoadError> {
        if self.version < CHECKSUM_VERSION_MIN {
            self.checksum = FileChecksum::Absent;
            return Ok(());
        }
        let (stored, end) = self.try_skip(|_, skipper| skipper.take(8).map(<[u8]>::to_vec))?;
        let stored = stored.try_into().map_or(0, u64::from_le_bytes);
        let digest = std::mem::replace(&mut self.digest, CRC.digest()).finalize();
        self.checksum = match stored {
            0 => FileChecksum::NotWritten,
            _ if !self.options.checksum => FileChecksum::NotCompared,
            _ if stored == digest => FileChecksum::Good,
            _ => FileChecksum::Wrong,
        };
        if self.checksum == FileChecksum::Wrong {
            return Err(self.error(LoadErrorKind::Checksum));
        }
        (self.start, self.at) = (end, end);
        Ok(())
    }
}

/// The setting whether the checksums of an LZ4 frame are compared or ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checksums {
    Compared,
    PassedOver,
}

/// The lowest version of the RDB format with a checksum at the end.
const CHECKSUM_VERSION_MIN: u16 = 5;
/// The number of the RDB type of modules' values.
const MODULE: u8 = 7;
/// The type of hashes with paths, in files of Valkey.
const PATH_HASH: u8 = 23;

/// Returns true if a record of an RDB file with this first byte is a key.
fn is_of_key(first: u8, version: u16) -> bool {
    match first {
        opcode::EXPIRE_TIME_MS | opcode::EXPIRE_TIME | opcode::FREQ | opcode::IDLE => true,
        opcode::KEY_META => version < VALKEY_VERSION,
        _ => first < opcode::LOWEST,
    }
}

/// Skips a key of the RDB file with its attributes and value. Returns the type of the value.
fn skip_key(skipper: &mut Skipper<'_>, version: u16, templates: &Templates) -> Result<u8, Unskipped> {
    let kind = skip_attributes(skipper, version)?;
    skipper.string()?;
    skipper.value(kind, version, templates)?;
    Ok(kind)
}

/// Returns the module type of a key's value. The key with its attributes is at the start of `bytes`
/// and was skipped before without error.
fn module_id(bytes: &[u8], version: u16) -> ModuleId {
    let mut skipper = Skipper::new(bytes, 0);
    let number = skip_attributes(&mut skipper, version).and_then(|_| {
        skipper.string()?;
        skipper.length()
    });
    ModuleId(number.unwrap_or_default())
}

/// Skips the attributes of a key (expiry, access clock) before its name. Returns the type of the
/// value, which follows the attributes.
fn skip_attributes(skipper: &mut Skipper<'_>, version: u16) -> Result<u8, Unskipped> {
    loop {
        match skipper.byte()? {
            opcode::EXPIRE_TIME_MS => skipper.take(8).map(drop)?,
            opcode::EXPIRE_TIME => skipper.take(4).map(drop)?,
            opcode::IDLE => skipper.length().map(drop)?,
            opcode::FREQ => skipper.byte().map(drop)?,
            opcode::KEY_META if version < VALKEY_VERSION => skipper.key_metadata()?,
            kind => return Ok(kind),
        }
    }
}

/// The options for decoding a batch of keys from an RDB file.
#[derive(Clone, Copy, Debug)]
pub struct DecodeOptions<'a> {
    /// The limits and options by which values are checked.
    pub rules: &'a Rules<'a>,
    /// The kind of access clock of the keys (LRU or LFU).
    pub access: Access,
    /// The current time in Unix milliseconds; a key that expired earlier is decoded as
    /// [`Decoded::Expired`].
    pub now_ms: i64,
}

/// The result of decoding one key of a batch of an RDB file.
pub enum Decoded<'b> {
    /// A key with its value, which has not expired.
    Key(KeyEntry),
    /// A key that has expired, with its value.
    Expired(KeyEntry),
    /// An empty collection under the key with this name, which must not be loaded.
    Empty(&'b [u8]),
}

/// Decodes the keys of a batch and calls `each` with them. O(bytes), O(n log n) for packed values.
///
/// # Errors
/// The error of the first broken key.
pub fn decode_batch(
    batch: &Batch,
    options: &DecodeOptions<'_>,
    mut each: impl FnMut(Decoded<'_>),
) -> Result<(), LoadError> {
    let mut reader = Reader::new(&batch.bytes[..], batch.file_offset, options.rules.string_len_bytes_max);
    while !reader.is_at_end() {
        let mut key = None;
        match decode_key(&mut reader, batch, options, &mut key) {
            Ok(Some(entry)) if entry.expiry_ms().is_some_and(|at_ms| at_ms < options.now_ms) => {
                each(Decoded::Expired(entry));
            }
            Ok(Some(entry)) => each(Decoded::Key(entry)),
            Ok(None) => each(Decoded::Empty(key.as_deref().unwrap_or_default())),
            Err(error) => {
                let key = key.map(|key| key.into_owned().into());
                return Err(LoadError { key, ..error.into() });
            }
        }
    }
    Ok(())
}

/// Decodes a key with its attributes and value. Returns `None` for an empty collection, which does
/// not exist.
fn decode_key<'b>(
    reader: &mut Reader<&'b [u8]>,
    batch: &Batch,
    options: &DecodeOptions<'_>,
    key_read: &mut Option<Cow<'b, [u8]>>,
) -> Result<Option<KeyEntry>, FormatError> {
    let (mut expiry_ms, mut access) = (None, options.access.fresh());
    let kind = loop {
        match reader.byte()? {
            opcode::EXPIRE_TIME_MS => expiry_ms = Some(reader.time_ms()?),
            opcode::EXPIRE_TIME => {
                expiry_ms = Some(i64::from(i32::from_le_bytes(reader.array()?)) * 1000);
            }
            opcode::IDLE => {
                let idle_s = reader.length()?;
                if let Access::Lru { clock_s } = options.access {
                    // The clock wraps around: an access more than half a period ago would seem to
                    // be in the future.
                    access = clock_s.wrapping_sub(idle_s.min(1 << 23) as u32) & 0x00FF_FFFF;
                }
            }
            opcode::FREQ => {
                let frequency = reader.byte()?;
                if let Access::Lfu { .. } = options.access {
                    access = access & !0xFF | u32::from(frequency);
                }
            }
            opcode::KEY_META if batch.version < VALKEY_VERSION => {
                reader.skip_with(|skipper| skipper.key_metadata())?
            }
            kind => break kind,
        }
    };
    let key = &*key_read.insert(reader.string_ref()?);
    let kind = ValueType::from_number(kind, batch.version)
        .ok_or(reader.error(FormatErrorKind::UnknownType(kind)))?;
    if kind == ValueType::String {
        let bytes = reader.string_ref()?;
        if bytes.len() <= INLINE_BYTES_MAX {
            return Ok(Some(KeyEntry::new(key, stored(&bytes), expiry_ms, access)));
        }
        let object = keyspace::Object::Blob(keyspace::Blob::new(bytes.into_owned()));
        return Ok(Some(KeyEntry::new(key, NewValue::Object(object), expiry_ms, access)));
    }
    match read_value_in_file(kind, reader, options.rules, &batch.templates) {
        Ok(Value::Short(bytes)) => Ok(Some(KeyEntry::new(key, stored(&bytes), expiry_ms, access))),
        Ok(Value::Object(object)) => {
            Ok(Some(KeyEntry::new(key, NewValue::Object(object), expiry_ms, access)))
        }
        Err(FormatError { kind: FormatErrorKind::Empty, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
