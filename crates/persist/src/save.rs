//! A save: the keyspace of one moment is written as an RDB file or as commands that create it, by
//! any number of threads, while clients continue to write.
//!
//! ```text
//!   begin    owns the keyspace alone for a moment: the point of the save is fixed
//!            (`keyspace::snapshot`)
//!   step     a walker takes the next piece of work, visits a few keys in a short locked step and
//!            encodes them into its chunk; a full chunk is written to the file
//!   finish   when all walkers are done: the end of the file and its checksum, if it has one
//! ```
//! Keys may be in any order, so chunks are written to the file as they become full. Between two
//! chunks a change of the database is written if necessary. A big value is one key of the RDB file,
//! or several commands. Its walker owns the file until the last piece is written; the other walkers
//! wait with full chunks.
//!
//! This module uses no thread, clock or file: the caller runs the walkers on its threads and
//! receives the bytes ([`ChunkSink`]). If the save fails or is abandoned, the walkers continue
//! until the keyspace has no state of the walk any more.

mod records;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use bitflags::bitflags;
use crc::{CRC_64_REDIS, Crc, Digest, Table};
use engine::Shared;
use engine::shared::GateSlot;
use keyspace::db::DbSize;
use keyspace::freeing::memory_of;
use keyspace::gate::ClaimedPass;
use keyspace::snapshot::{BigValue, Flushed, HandedOver, OnFlush, Part, Snapshot, Stepped, Work};
use keyspace::{Exclusive, KeyEntry, Keyspace, Object, SizedType};
use structures::entry::View;
use structures::lock::Lock;
use structures::walk_state::CopiedBytes;

use self::records::Records;
use crate::commands::CommandEncoder;
use crate::rdb::{Compression, Encoder, FileVersion, TooLong, Usage};

/// The minimum length of a full chunk (encoded keys of one thread), in bytes: from this length on
/// it is written to the file.
const CHUNK_BYTES: usize = 256 * 1024;
/// The approximate number of keys that one step of a save visits under a shard's lock.
const STEP_KEYS: usize = 32;
/// The approximate number of elements of a big value that one step of a save visits under a shard's
/// lock.
const STEP_ELEMENTS: usize = 256;
/// The maximum size in bytes of a key that is encoded under the lock of its shard. A larger one is
/// copied under the lock and encoded outside it.
const ENCODED_LOCKED_BYTES_MAX: usize = 4096;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// The format of a saved snapshot: RDB, or commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveFormat {
    /// Redis' RDB format ([`crate::rdb`]).
    Rdb,
    /// Commands ([`crate::commands`]): the base of an append-only file without RDB preamble.
    Commands {
        /// The Unix time in seconds that the file of commands begins with, as a time annotation;
        /// `None` for no annotation.
        time_s: Option<i64>,
    },
}

bitflags! {
    /// The contents of a saved snapshot: keys, libraries of functions, or both.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Contents: u8 {
        /// The keys of all databases are saved.
        const DATA = 1;
        /// The libraries of functions are saved.
        const FUNCTIONS = 2;
    }
}

/// The options of a save. If the file consists of commands, only `format`, `contents` and
/// `on_flush` are used.
#[derive(Clone, Debug)]
pub struct SaveOptions {
    /// The format of the saved file: RDB, or commands.
    pub format: SaveFormat,
    /// The contents of the file: keys, libraries of functions, or both.
    pub contents: Contents,
    /// The effect of a flush of all data on the save: it is abandoned, or its file has all keys
    /// that existed when the save began.
    pub on_flush: OnFlush,
    /// The version of the RDB format. `None` selects the lowest version, from that of Redis 7.2 on,
    /// that has all types of the data. So every server that supports the data can read the file,
    /// including Valkey.
    pub version: Option<FileVersion>,
    /// The compression of strings in the saved RDB file.
    pub compression: Compression,
    /// True if a checksum of the RDB file is written; otherwise the field of the checksum is zero.
    pub checksum: bool,
    /// The part of each key's access clock (LRU or LFU) that is written.
    pub usage: Usage,
    /// The AUX fields of the RDB file, which describe the file and the server: name and value.
    pub facts: Vec<(&'static str, String)>,
}

/// The reason why the data cannot be written in the requested version of the RDB format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// Fields of hashes expire, which the version does not support.
    FieldDeadlines {
        /// The number of hashes with fields that expire in the data.
        hashes: usize,
        /// The number of the requested version of the RDB format.
        version: u16,
    },
    /// There are vector sets, which servers that read the version do not have.
    VectorSets {
        /// The number of vector sets in the data.
        sets: u64,
        /// The number of the requested version of the RDB format.
        version: u16,
    },
    /// There are arrays, which servers that read the version do not have.
    Arrays {
        /// The number of arrays.
        arrays: u64,
        /// The number of the requested version.
        version: u16,
    },
    /// There are libraries of functions, which the version does not support.
    Functions {
        /// The number of the requested version of the RDB format.
        version: u16,
    },
    /// An element of a list is too long for the version of the format.
    Element {
        /// The number of the version in which the file is written.
        version: u16,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfit::FieldDeadlines { hashes, version } => write!(
                f,
                "{hashes} {} fields that expire, which RDB version {version} does not support: set \
                 rdb-version to auto, 12 or 80, or remove the expiry of these fields (HPERSIST)",
                if *hashes == 1 { "hash has" } else { "hashes have" },
            ),
            Unfit::VectorSets { sets, version } => write!(
                f,
                "{sets} {}, which servers of RDB version {version} do not have: set rdb-version to auto or \
                 12 for Redis 8, or delete them",
                if *sets == 1 { "key is a vector set" } else { "keys are vector sets" },
            ),
            Unfit::Arrays { arrays, version } => write!(
                f,
                "{arrays} {}, which servers of RDB version {version} do not have: set rdb-version to auto or \
                 12 for Redis 8.8, or delete them",
                if *arrays == 1 { "key is an array" } else { "keys are arrays" },
            ),
            Unfit::Functions { version } => write!(
                f,
                "there are libraries of functions, which RDB version {version} does not support: set \
                 rdb-version to auto, 10 or higher"
            ),
            Unfit::Element { version } => write!(
                f,
                "a list has an element of over 4 GiB, which RDB version {version} does not support: set \
                 rdb-version to auto, 10 or higher"
            ),
        }
    }
}

/// The error that the file of a save cannot be written any more. The [`ChunkSink`] that writes it
/// knows the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed;

/// A destination of the bytes of a saved file.
pub trait ChunkSink {
    /// Appends bytes to the file. Only one thread at a time calls it.
    ///
    /// # Errors
    /// If the file cannot be written. No more bytes are then passed to it.
    fn append(&self, bytes: &[u8]) -> Result<(), Failed>;
}

/// The outcome of one step of a save's walker (a thread that writes the snapshot).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The walker of the save has more work, to be done in another step.
    More,
    /// The walker of the save can do no work now, because other walkers or threads must act first.
    /// The caller tries again later.
    Waiting,
    /// The walker of the save has no work left.
    Done,
}

/// The progress of a save: the numbers of its keys and bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The number of keys that the save has written.
    pub keys_done: u64,
    /// The number of keys in the keyspace when the save began.
    pub keys: u64,
    /// The number of bytes that the save has written.
    pub len_bytes: u64,
}

/// A save in progress, shared by its walkers (the threads that write the snapshot); see the module.
pub struct Save {
    options: SaveOptions,
    /// The AUX fields of the RDB file that were added after [`Save::begin`].
    more_facts: Lock<Vec<(&'static str, String)>>,
    /// The source texts of the function libraries when the save began.
    functions: Vec<Arc<[u8]>>,
    version: FileVersion,
    /// The reason why the data cannot be written in this version of the format; `None` if none was
    /// found so far.
    unfit: Lock<Option<Unfit>>,
    keys: u64,
    keys_done: AtomicU64,
    len_bytes: AtomicU64,
    failed: AtomicBool,
    /// The number of bytes that all walkers hold in memory; see [`Snapshot::walker_len_bytes`].
    walker_len_bytes: Arc<AtomicUsize>,
    stream: Lock<Stream>,
}

/// The state of a saved file up to its present end: the checksum so far, the selected database, and
/// the walker that owns the file for a big value.
struct Stream {
    digest: Digest<'static, u64, Table<16>>,
    /// The current database of the file; the next key belongs to it; `None` before the first key.
    db: Option<usize>,
    /// The databases whose sizes were already written to the file.
    sized: Vec<usize>,
    /// The walker that alone may write to the file until its big value is complete; `None` if every
    /// walker may.
    owner: Option<usize>,
}

/// The access of a save to the keyspace while it copies keys: beside running commands or alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The save locks the keyspace's shared lock (the gate) for one short step at a time. The
    /// walker's number is the index of its slot in the gate.
    Gate,
    /// The save's thread has locked the keyspace exclusively, or runs on behalf of the thread that
    /// has.
    Owner,
}

/// The state of a save's walker, by which one thread writes its share of the snapshot.
pub struct Walker {
    number: usize,
    way: Way,
    records: Records,
    /// The number of the database of the encoded keys in the walker's buffer.
    db: usize,
    /// The number of the database of the keys that are encoded next; different from `db` until the
    /// buffer is written to the file.
    next_db: usize,
    work: Option<Current>,
    /// Copies of keys, made under a shard's lock, to be encoded after the lock is released.
    copies: Vec<KeyEntry>,
    /// The counter of the bytes that this walker holds in memory: `copies`, and the memory of its
    /// encoded keys (`records`) when it was last counted.
    held: CopiedBytes,
    /// The part of `held` that counts the encoded keys (`records`), in bytes.
    records_len_bytes: usize,
}

/// The work that a save's walker does at present, such as a part of the keyspace or a big value.
enum Current {
    Part(Part),
    HandedOver(std::vec::IntoIter<HandedOver>),
    Flushed(Flushed),
    /// A big value that is written in pieces, and its progress.
    Big(BigValue, BigState),
}

/// The progress of a walker with a big value, which is written in pieces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum BigState {
    AwaitsFile,
    Begun,
    /// All pieces of the big value are encoded in the buffer.
    Complete,
}

impl Walker {
    /// Encodes a key of the snapshot. For a long value, counts the memory of its encoding and of
    /// its compression in advance, because each takes about as many bytes as the value.
    fn encode(&mut self, entry: &KeyEntry) {
        if !is_long(entry) {
            return self.records.entry(entry);
        }
        let reserved_bytes = 2 * memory_of(entry);
        self.held.add(reserved_bytes);
        self.records.entry(entry);
        self.count_records();
        self.held.sub(reserved_bytes);
    }

    /// Encodes the keys that were copied under a lock, and frees the copies.
    fn encode_copies(&mut self) {
        let mut copies = std::mem::take(&mut self.copies);
        for entry in copies.drain(..) {
            let len_bytes = memory_of(&entry);
            self.encode(&entry);
            drop(entry);
            self.held.sub(len_bytes);
        }
        self.copies = copies;
    }

    /// Updates the count of the walker's bytes to the present memory of its encoded keys.
    fn count_records(&mut self) {
        let len_bytes = self.records.memory_usage();
        if len_bytes != self.records_len_bytes {
            self.held.add(len_bytes);
            self.held.sub(std::mem::replace(&mut self.records_len_bytes, len_bytes));
        }
    }

    fn enter<'e>(&self, engine: &'e Shared) -> Option<ClaimedPass<'e>> {
        (self.way == Way::Gate).then(|| engine.enter_gate(GateSlot::Walker(self.number)))
    }
}

impl Save {
    /// Begins a save of the keyspace as it is now (the point of the save). `functions` are the
    /// source texts of the function libraries. The caller reads them as the exclusive owner
    /// `alone`, so that they belong to the same moment as the keys. Returns `None` if another walk
    /// is in progress. O(shards).
    ///
    /// Contents that the options exclude do not count as [unfit](Self::unfit) for the version.
    pub fn begin(
        engine: &Shared,
        alone: &Exclusive,
        options: SaveOptions,
        functions: Vec<Arc<[u8]>>,
    ) -> Option<Arc<Self>> {
        let snapshot = engine.keyspace.snapshot();
        let is_fixed = match options.contents.contains(Contents::DATA) {
            true => engine.keyspace.fix_snapshot(alone, options.on_flush),
            false => engine.keyspace.fix_empty_snapshot(alone, options.on_flush),
        };
        if !is_fixed {
            return None;
        }
        let functions = if options.contents.contains(Contents::FUNCTIONS) { functions } else { Vec::new() };
        let keys = snapshot.dbs().iter().map(|(_, size)| size.keys as u64).sum();
        let special = SpecialKeys::of(&engine.keyspace, &snapshot.dbs());
        let version = options.version.unwrap_or(match special {
            SpecialKeys { timed_hashes: 0, vector_sets: 0, arrays: 0 } => FileVersion::Redis7Dot2,
            _ => FileVersion::Redis7Dot4,
        });
        let unfit = match options.format {
            SaveFormat::Rdb => Self::unfit_at_begin(version, special, &functions),
            SaveFormat::Commands { .. } => None,
        };
        let stream = Stream { digest: CRC.digest(), db: None, sized: Vec::new(), owner: None };
        Some(Arc::new(Self {
            options,
            more_facts: Lock::new(Vec::new()),
            functions,
            version,
            unfit: Lock::new(unfit),
            keys,
            keys_done: AtomicU64::new(0),
            len_bytes: AtomicU64::new(0),
            failed: AtomicBool::new(false),
            walker_len_bytes: Arc::clone(snapshot.walker_len_bytes()),
            stream: Lock::new(stream),
        }))
    }

    fn unfit_at_begin(
        version: FileVersion,
        SpecialKeys { timed_hashes, vector_sets, arrays }: SpecialKeys,
        functions: &[Arc<[u8]>],
    ) -> Option<Unfit> {
        if timed_hashes > 0 && !version.has_field_deadlines() {
            return Some(Unfit::FieldDeadlines { hashes: timed_hashes, version: version.number() });
        }
        if vector_sets > 0 && !version.has_vector_sets() {
            return Some(Unfit::VectorSets { sets: vector_sets, version: version.number() });
        }
        if arrays > 0 && !version.has_arrays() {
            return Some(Unfit::Arrays { arrays, version: version.number() });
        }
        let lacks_functions = !functions.is_empty() && !version.has_functions();
        lacks_functions.then_some(Unfit::Functions { version: version.number() })
    }

    /// Returns the reason why the data cannot be written in this version, as far as it is known. If
    /// there is one directly after [`Self::begin`], the caller must [abandon](Self::abandon) the
    /// save or [take it back](Self::take_back).
    pub fn unfit(&self) -> Option<Unfit> {
        *self.unfit.lock()
    }

    /// Ends the save without a file. The caller has had the exclusive lock of the keyspace since
    /// [`Self::begin`], so no key is marked yet and no walker is needed.
    pub fn take_back(&self, engine: &Shared, _alone: &Exclusive) {
        self.failed.store(true, Relaxed);
        engine.keyspace.snapshot().end();
    }

    /// Adds AUX fields, which describe the RDB file and the server, before [`Self::write_head`].
    pub fn add_facts(&self, facts: impl IntoIterator<Item = (&'static str, String)>) {
        self.more_facts.lock().extend(facts);
    }

    /// Writes the beginning of the file, before all keys: magic, AUX fields, libraries of
    /// functions. Called once, before any walker's first step.
    pub fn write_head(&self, engine: &Shared, out: &dyn ChunkSink) {
        let mut records = self.records();
        match &mut records {
            Records::Rdb(encoder) => {
                encoder.magic();
                for (name, value) in self.options.facts.iter().chain(&*self.more_facts.lock()) {
                    encoder.aux(name.as_bytes(), value.as_bytes());
                }
            }
            Records::Commands(encoder) => {
                if let SaveFormat::Commands { time_s: Some(time_s) } = self.options.format {
                    encoder.time(time_s);
                }
            }
        }
        self.functions.iter().for_each(|source| records.function(source));
        self.put(&mut self.stream.lock(), records.buffer(), out, engine.keyspace.snapshot());
    }

    fn encoder(&self) -> Encoder {
        Encoder::new(self.version, self.options.compression, self.options.usage)
    }

    fn records(&self) -> Records {
        match self.options.format {
            SaveFormat::Rdb => Records::Rdb(self.encoder()),
            SaveFormat::Commands { .. } => Records::Commands(CommandEncoder::default()),
        }
    }

    /// Creates walker `number` of the save, to be run by one thread.
    pub fn walker(&self, number: usize, way: Way) -> Walker {
        Walker {
            number,
            way,
            records: self.records(),
            db: 0,
            next_db: 0,
            work: None,
            copies: Vec::new(),
            held: CopiedBytes::new(Arc::clone(&self.walker_len_bytes)),
            records_len_bytes: 0,
        }
    }

    /// Abandons the save and its file. The walkers must still be run until they are done, which
    /// takes a short time.
    pub fn abandon(&self, engine: &Shared) {
        self.fail(engine.keyspace.snapshot());
    }

    /// Returns true if the save has failed or was abandoned.
    pub fn has_failed(&self) -> bool {
        self.failed.load(Relaxed)
    }

    /// Returns how many keys and bytes the save has written so far.
    pub fn progress(&self) -> Progress {
        let (keys_done, len_bytes) = (self.keys_done.load(Relaxed), self.len_bytes.load(Relaxed));
        Progress { keys_done, keys: self.keys, len_bytes }
    }

    /// Does a small part of a walker's share of the save: at most one short step under a lock, and
    /// one write to the file.
    pub fn step(&self, engine: &Shared, walker: &mut Walker, out: &dyn ChunkSink) -> Step {
        let snapshot = engine.keyspace.snapshot();
        if walker.records.buffer().len() >= CHUNK_BYTES && !self.write_out(walker, out, snapshot) {
            return Step::Waiting;
        }
        let next_db = walker.next_db;
        if !self.turn_to(walker, next_db, out, snapshot) {
            return Step::Waiting;
        }
        walker.count_records();
        match walker.work.take() {
            Some(Current::Part(part)) => self.step_part(engine, walker, part),
            Some(Current::HandedOver(rest)) => self.step_handed_over(engine, walker, rest, out),
            Some(Current::Flushed(flushed)) => self.step_flushed(engine, walker, flushed),
            Some(Current::Big(big, state)) => self.step_big(engine, walker, (big, state), out),
            None => self.take_work(snapshot, walker, out),
        }
    }

    fn take_work(&self, snapshot: &Snapshot, walker: &mut Walker, out: &dyn ChunkSink) -> Step {
        let (work, db) = match snapshot.next_work() {
            Work::HandedOver(all) => {
                walker.work = Some(Current::HandedOver(all.into_iter()));
                return Step::More;
            }
            Work::Part(part) => (Current::Part(part), snapshot.db_of(part)),
            Work::Flushed(flushed) => {
                let db = snapshot.db_of_flushed(&flushed);
                (Current::Flushed(flushed), db)
            }
            Work::Big(big) => {
                let db = snapshot.db_of_big(&big);
                (Current::Big(big, BigState::AwaitsFile), db)
            }
            Work::Wait => {
                self.write_out(walker, out, snapshot);
                return Step::Waiting;
            }
            Work::Done if self.write_out(walker, out, snapshot) => return Step::Done,
            Work::Done => return Step::Waiting,
        };
        (walker.work, walker.next_db) = (Some(work), db);
        Step::More
    }

    /// Sets the database of the keys that the walker encodes next. Returns false if another walker
    /// owns the file, so that this walker's encoded keys of the previous database cannot be written
    /// yet.
    fn turn_to(&self, walker: &mut Walker, db: usize, out: &dyn ChunkSink, snapshot: &Snapshot) -> bool {
        walker.next_db = db;
        if walker.db == db {
            return true;
        }
        let is_clear = walker.records.buffer().is_empty() || self.write_out(walker, out, snapshot);
        if is_clear {
            walker.db = db;
        }
        is_clear
    }

    fn step_part(&self, engine: &Shared, walker: &mut Walker, part: Part) -> Step {
        let pass = walker.enter(engine);
        let Walker { records, copies, held, .. } = &mut *walker;
        let mut keys = 0;
        let stepped = engine.keyspace.walk_part(part, STEP_KEYS, |entry| {
            keys += 1;
            if is_long(entry) {
                held.add(memory_of(entry));
                copies.push(entry.duplicate(entry.key(), entry.access()));
            } else {
                records.entry(entry);
            }
        });
        drop(pass);
        walker.encode_copies();
        self.keys_done.fetch_add(keys, Relaxed);
        if stepped != Stepped::Finished {
            walker.work = Some(Current::Part(part));
        }
        if stepped == Stepped::Busy { Step::Waiting } else { Step::More }
    }

    fn step_handed_over(
        &self,
        engine: &Shared,
        walker: &mut Walker,
        mut rest: std::vec::IntoIter<HandedOver>,
        out: &dyn ChunkSink,
    ) -> Step {
        let snapshot = engine.keyspace.snapshot();
        for _ in 0..STEP_KEYS {
            let Some(next) = rest.as_slice().first() else {
                snapshot.finished();
                return Step::More;
            };
            if !self.turn_to(walker, snapshot.db_of_handed_over(next), out, snapshot) {
                walker.work = Some(Current::HandedOver(rest));
                return Step::Waiting;
            }
            if let Some(next) = rest.next() {
                snapshot.show_handed_over(next, |_, entry| walker.encode(entry));
                self.keys_done.fetch_add(1, Relaxed);
            }
        }
        walker.work = Some(Current::HandedOver(rest));
        Step::More
    }

    fn step_flushed(&self, engine: &Shared, walker: &mut Walker, mut flushed: Flushed) -> Step {
        let snapshot = engine.keyspace.snapshot();
        let mut keys = 0;
        let more = snapshot.walk_flushed(&mut flushed, |_, entry| {
            keys += 1;
            walker.encode(entry);
        });
        self.keys_done.fetch_add(keys, Relaxed);
        if more {
            walker.work = Some(Current::Flushed(flushed));
        } else {
            snapshot.finished();
        }
        Step::More
    }

    fn step_big(
        &self,
        engine: &Shared,
        walker: &mut Walker,
        (big, mut state): (BigValue, BigState),
        out: &dyn ChunkSink,
    ) -> Step {
        let snapshot = engine.keyspace.snapshot();
        if state == BigState::AwaitsFile {
            let db = snapshot.db_of_big(&big);
            if !self.turn_to(walker, db, out, snapshot) || !self.own_stream(walker) {
                walker.work = Some(Current::Big(big, state));
                return Step::Waiting;
            }
            walker.records.big_head(&big);
            state = BigState::Begun;
        }
        let mut step = Step::More;
        if state == BigState::Begun {
            let pass = walker.enter(engine);
            let records = &mut walker.records;
            let stepped = engine.keyspace.walk_big(&big, STEP_ELEMENTS, &mut |piece| {
                records.big_part(&piece);
            });
            drop(pass);
            match stepped {
                Stepped::More => {}
                Stepped::Busy => step = Step::Waiting,
                Stepped::Finished => {
                    walker.records.big_end();
                    state = BigState::Complete;
                }
            }
        }
        if state != BigState::Complete {
            walker.work = Some(Current::Big(big, state));
            return step;
        }
        self.write_out(walker, out, snapshot);
        self.stream.lock().owner = None;
        self.keys_done.fetch_add(1, Relaxed);
        snapshot.finished();
        Step::More
    }

    /// Reserves the file for this walker: only it may write until its big value is complete.
    /// Returns false if another walker has reserved it.
    fn own_stream(&self, walker: &Walker) -> bool {
        let mut stream = self.stream.lock();
        let is_free = stream.owner.is_none_or(|owner| owner == walker.number);
        if is_free {
            stream.owner = Some(walker.number);
        }
        is_free
    }

    /// Writes the walker's buffer to the file and empties it. Returns false, and leaves the buffer
    /// as it is, if another walker has reserved the file for a big value.
    fn write_out(&self, walker: &mut Walker, out: &dyn ChunkSink, snapshot: &Snapshot) -> bool {
        let mut stream = self.stream.lock();
        if stream.owner.is_some_and(|owner| owner != walker.number) {
            return false;
        }
        if let Some(TooLong) = walker.records.too_long() {
            *self.unfit.lock() = Some(Unfit::Element { version: self.version.number() });
            self.fail(snapshot);
        }
        let buffer = walker.records.buffer();
        if !buffer.is_empty() {
            if stream.db != Some(walker.db) {
                self.put_db(&mut stream, walker.db, out, snapshot);
            }
            self.put(&mut stream, buffer, out, snapshot);
            buffer.clear();
        }
        true
    }

    fn put_db(&self, stream: &mut Stream, db: usize, out: &dyn ChunkSink, snapshot: &Snapshot) {
        let mut records = self.records();
        records.select_db(db);
        if !stream.sized.contains(&db) {
            stream.sized.push(db);
            let size = snapshot.dbs().into_iter().find(|(of, _)| *of == db).map(|(_, size)| size);
            records.db_size(size.unwrap_or_default());
        }
        stream.db = Some(db);
        self.put(stream, records.buffer(), out, snapshot);
    }

    fn put(&self, stream: &mut Stream, bytes: &[u8], out: &dyn ChunkSink, snapshot: &Snapshot) {
        if self.has_failed() {
            return;
        }
        if self.has_checksum() {
            stream.digest.update(bytes);
        }
        self.len_bytes.fetch_add(bytes.len() as u64, Relaxed);
        if out.append(bytes).is_err() {
            self.fail(snapshot);
        }
    }

    fn fail(&self, snapshot: &Snapshot) {
        self.failed.store(true, Relaxed);
        snapshot.abandon();
    }

    /// Writes the whole file, and ends the save's walk over the keyspace in any case. `drive` must
    /// run the walkers (threads that write the snapshot) until all are done.
    ///
    /// # Errors
    /// If the file could not be written, or was abandoned.
    pub fn write_into<S: ChunkSink + Sync>(
        &self,
        engine: &Shared,
        out: &S,
        drive: impl FnOnce(&(dyn ChunkSink + Sync)),
    ) -> Result<Progress, Failed> {
        self.write_head(engine, out);
        drive(out);
        self.finish(engine, out)
    }

    /// Writes the end of the saved file, with the checksum, after all walkers are done. After this
    /// call another save can begin.
    ///
    /// # Errors
    /// If the file could not be written, or was abandoned.
    pub fn finish(&self, engine: &Shared, out: &dyn ChunkSink) -> Result<Progress, Failed> {
        let snapshot = engine.keyspace.snapshot();
        if !snapshot.is_preserved_for() {
            // The walk was abandoned, for example by FLUSHALL: the file is incomplete.
            self.fail(snapshot);
        }
        if self.options.format == SaveFormat::Rdb {
            self.end_rdb(out, snapshot);
        }
        snapshot.end();
        if self.has_failed() { Err(Failed) } else { Ok(self.progress()) }
    }

    fn has_checksum(&self) -> bool {
        self.options.checksum && self.options.format == SaveFormat::Rdb
    }

    fn end_rdb(&self, out: &dyn ChunkSink, snapshot: &Snapshot) {
        let mut stream = self.stream.lock();
        let mut encoder = self.encoder();
        encoder.end();
        self.put(&mut stream, encoder.buffer(), out, snapshot);
        let digest = std::mem::replace(&mut stream.digest, CRC.digest()).finalize();
        let checksum = if self.has_checksum() { digest } else { 0 };
        if !self.has_failed() && out.append(&checksum.to_le_bytes()).is_err() {
            self.fail(snapshot);
        }
    }
}

/// The numbers of keys, at the beginning of a save, that only some versions of the RDB format
/// support.
#[derive(Clone, Copy)]
struct SpecialKeys {
    /// The number of hashes with fields that expire, when the save began.
    timed_hashes: usize,
    /// The number of vector sets, when the save began.
    vector_sets: u64,
    /// The number of arrays.
    arrays: u64,
}

impl SpecialKeys {
    /// Counts the hashes with fields that expire, the vector sets and the arrays of the databases
    /// in `dbs`. The caller owns the keyspace. O(databases).
    fn of(keyspace: &Keyspace, dbs: &[(usize, DbSize)]) -> Self {
        let keys_of = |kind: SizedType| {
            let of_db = |db| keyspace.sizes().counts(db)[kind as usize - 1].iter().sum::<u64>();
            dbs.iter().map(|&(db, _)| of_db(db)).sum()
        };
        Self {
            timed_hashes: dbs.iter().map(|(_, size)| size.field_expires).sum(),
            vector_sets: keys_of(SizedType::Vector),
            arrays: keys_of(SizedType::Array),
        }
    }
}

/// Returns true if encoding the key under the lock of its shard would take too long.
fn is_long(entry: &KeyEntry) -> bool {
    match entry.view() {
        View::Object(Object::Blob(_)) => true,
        View::Object(object) => {
            memory_of(entry) > ENCODED_LOCKED_BYTES_MAX || object.element_count() > STEP_ELEMENTS
        }
        View::Bytes(_) | View::Int(_) => false,
    }
}
