//! Loading of RDB data: one thread reads the file and splits it into batches; other threads decode
//! the batches and add the keys.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use engine::shared::GateSlot;
use keyspace::key::{KeyHash, shard_of};
use keyspace::{Access, KeyEntry};
use persist::folder::FileError;
use persist::load::{
    Batch, Behind, ByteSource, DecodeOptions, Decoded, LoadError, LoadErrorKind, LoadOptions, Part, Splitter,
    decode_batch,
};
use persist::rdb::VersionCheck;
use persist::save::Way;

use super::hidden_data::HiddenData;
use super::stream_point::StreamDuringLoad;
use crate::config::table::persistence as options;
use crate::context::unix_ms;
use crate::shared::Shared;
use crate::snapshots::LoadFigures;
use crate::snapshots::stamp_of;

/// Maximum number of batches of keys of an RDB file that wait for a decoding thread. All of them
/// together have a few megabytes.
const BATCHES_WAITING_MAX: usize = 32;
/// Maximum number of log lines about keys left out because their collection is empty.
const EMPTY_KEYS_LOGGED_MAX: u64 = 10;
/// Longest single sleep within a pause of `key-load-delay`, so that a load notices soon when the
/// pause must end.
const DELAY_STEP: Duration = Duration::from_millis(10);
/// Time between two log lines about the progress of a load.
const REPORT_INTERVAL: Duration = Duration::from_secs(2);

/// The options of a load: the access to the keyspace, and the treatment of special keys.
#[derive(Clone, Copy)]
pub struct LoadMode<'s> {
    /// The way in which the threads of the load use the keyspace: through the gate, or as part of
    /// its exclusive owner.
    pub way: Way,
    /// The treatment of a key in the file that already exists in the keyspace.
    pub duplicates: Duplicates,
    /// The treatment of keys in the file whose expiry has passed.
    pub expired: Expired,
    /// The replication stream that continues from the loaded snapshot; `None` except at the start
    /// of the server.
    pub stream: Option<&'s StreamDuringLoad<'s>>,
    /// The hidden data that receives keys and functions; `None` to load into the data of the
    /// server.
    pub hidden: Option<&'s HiddenData>,
}

/// The treatment of keys in the file whose expiry has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expired {
    /// Keys of the file whose expiry has passed are not loaded.
    LeftOut,
    /// Expired keys of the file are loaded and removed later. This is for a file in which requests
    /// follow the snapshot: one of them may extend the expiry of a key.
    Kept,
}

/// The treatment of a key in the file that already exists in the keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duplicates {
    /// An existing key ends the load with an error, because the file is invalid.
    Refused,
    /// The key of the file replaces the existing one.
    Replaced,
}

/// An open file that is being loaded. Each read adds its bytes to the progress figures of the load.
pub(super) struct FileSource<'s> {
    pub file: File,
    pub figures: &'s LoadFigures,
}

impl ByteSource for FileSource<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, FileError> {
        loop {
            match self.file.read(buffer) {
                Ok(len) => {
                    self.figures.loaded_bytes.fetch_add(len as u64, Relaxed);
                    return Ok(len);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(FileError(error.to_string())),
            }
        }
    }
}

/// The state that is shared by all threads that load one snapshot.
struct Loading<'s> {
    shared: &'s Shared,
    how: LoadMode<'s>,
    has_failed: AtomicBool,
    error: Mutex<Option<LoadError>>,
    empty_keys: AtomicU64,
    key_delay: Duration,
    delayed: Mutex<()>,
}

impl Loading<'_> {
    fn fail(&self, error: LoadError) {
        self.has_failed.store(true, Relaxed);
        self.error.lock().expect("nothing panics while it is locked").get_or_insert(error);
    }

    /// Decodes batches of the RDB file and adds their keys to the keyspace, until no batch is left.
    /// Runs on each decoding thread.
    fn decode(&self, number: usize, batches: &Mutex<Receiver<Batch>>) {
        let engine = &self.shared.engine;
        let settings = engine.settings.get();
        let rules = crate::rules::rules(&settings.limits, engine.keyspace.hasher());
        let now_ms = unix_ms();
        let access = if settings.lfu {
            Access::Lfu {
                clock_minutes: (now_ms / 60_000) as u32,
                log_factor: settings.lfu_log_factor,
                decay_minutes: settings.lfu_decay_minutes,
            }
        } else {
            Access::Lru { clock_s: (now_ms / 1000) as u32 }
        };
        let now_ms = if self.how.expired == Expired::Kept { i64::MIN } else { now_ms };
        let options = DecodeOptions { rules: &rules, access, now_ms };
        let figures = &self.shared.persistence.loading;
        loop {
            let next = batches.lock().expect("nothing panics while it is locked").recv();
            let Ok(batch) = next else { return };
            if self.has_failed.load(Relaxed) {
                continue;
            }
            let (mut entries, mut expired) = (Vec::new(), Vec::new());
            let decoded = decode_batch(&batch, &options, |decoded| match decoded {
                Decoded::Key(entry) => {
                    entries.push((engine.keyspace.hasher().hash_key(entry.key()), entry));
                }
                Decoded::Expired(entry) => {
                    figures.expired.fetch_add(1, Relaxed);
                    expired.extend(self.how.stream.map(|_| entry));
                }
                Decoded::Empty(key) => self.note_empty(key),
            });
            if let Some(stream) = self.how.stream {
                stream.delete(batch.db(), &expired);
            }
            self.delay(entries.len());
            // The gate is that of the data which clients see.
            let is_gated = self.how.way == Way::Gate && self.how.hidden.is_none();
            let pass = is_gated.then(|| engine.enter_gate(GateSlot::Loader(number)));
            figures.keys.fetch_add(entries.len() as u64, Relaxed);
            let added = self.add(batch.db(), entries);
            drop(pass);
            let there = |key: KeyEntry| batch.error(key.key(), LoadErrorKind::DuplicateKey);
            if let Err(error) = decoded.and(added.map_err(there)) {
                self.fail(error);
            }
        }
    }

    /// Logs a key that is left out because its collection is empty. Files of old versions can
    /// contain such keys.
    fn note_empty(&self, key: &[u8]) {
        if self.empty_keys.fetch_add(1, Relaxed) < EMPTY_KEYS_LOGGED_MAX {
            tracing::info!("RDB skipping empty key: {}", key.escape_ascii());
        }
        if let Some(stream) = self.how.stream {
            stream.note_left_out();
        }
    }

    /// Pauses for `key-load-delay` after `keys` keys, for tests. The pauses of different threads do
    /// not overlap, so the total does not depend on the number of threads.
    fn delay(&self, keys: usize) {
        if self.key_delay.is_zero() {
            return;
        }
        let _alone = self.delayed.lock().expect("nothing panics while it is locked");
        let mut left = self.key_delay * keys as u32;
        while !left.is_zero() && !self.shared.stopping.load(Relaxed) {
            let step = left.min(DELAY_STEP);
            std::thread::sleep(step);
            left -= step;
        }
    }

    /// Adds the keys of a batch to a database. A key that already exists is an error, unless it may
    /// be replaced.
    fn add(&self, db: usize, entries: Vec<(KeyHash, KeyEntry)>) -> Result<(), KeyEntry> {
        let keyspace = self.how.hidden.map_or(&self.shared.engine.keyspace, HiddenData::keyspace);
        if self.how.duplicates == Duplicates::Replaced {
            for (hash, entry) in &entries {
                keyspace.remove(&mut keyspace.lock(shard_of(*hash)), db, entry.key());
            }
        }
        keyspace.insert_all_absent(db, entries)
    }

    /// Stores the source text of a function library from the RDB file. A library that already
    /// exists is an error, unless it may be replaced.
    fn keep_function(&self, source: Arc<[u8]>, file_offset: u64) -> Result<(), LoadError> {
        let persistence = &self.shared.persistence;
        let add = |source| match self.how.hidden {
            Some(hidden) => hidden.add_function(source),
            None => persistence.add_function(source),
        };
        match self.how.duplicates {
            Duplicates::Replaced => persistence.replace_function(source),
            Duplicates::Refused if !add(source) => {
                return Err(LoadError { file_offset, key: None, kind: LoadErrorKind::DuplicateLibrary });
            }
            Duplicates::Refused => {}
        }
        Ok(())
    }

    /// Splits the snapshot into batches and sends them to the decoding threads. Returns the bytes
    /// after the snapshot; `None` if another thread has failed.
    fn split<S: ByteSource>(
        &self,
        mut splitter: Splitter<S>,
        batches: &SyncSender<Batch>,
        on_fact: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Behind<S>>, LoadError> {
        let mut report = Report::new(self.shared, Counted::Keys);
        let mut is_ahead_of_keys = true;
        loop {
            let part = splitter.next_part()?;
            if let Some(stream) = self.how.stream
                && is_ahead_of_keys
            {
                match &part {
                    Part::Fact { name, value } => stream.note_fact(name, value),
                    _ => {
                        is_ahead_of_keys = false;
                        stream.begin_keys();
                    }
                }
            }
            match part {
                Part::Fact { name, value } => {
                    note_fact(&name, &value);
                    on_fact(&name, &value);
                }
                Part::Function(source) => self.keep_function(source.into(), splitter.file_offset())?,
                Part::DbSize { .. } | Part::Module { .. } => {}
                Part::Batch(batch) => {
                    // A send fails only if a thread has panicked.
                    if self.has_failed.load(Relaxed) || batches.send(batch).is_err() {
                        return Ok(None);
                    }
                }
                Part::End => {
                    for (feature, count) in splitter.skipped().iter() {
                        tracing::warn!("Skipped while loading ({count}): {feature}");
                        if let Some(stream) = self.how.stream {
                            stream.note_left_out();
                        }
                    }
                    return Ok(splitter.into_behind());
                }
            }
            report.now_and_then();
        }
    }
}

/// Returns the options for reading RDB files, as the configuration sets them.
pub(super) fn load_options(shared: &Shared) -> LoadOptions {
    let store = shared.config();
    let relaxed = options::RDB_VERSION_CHECK.of(&store) == crate::config::choices::VersionCheck::Relaxed;
    LoadOptions {
        versions: if relaxed { VersionCheck::Relaxed } else { VersionCheck::Strict },
        checksum: options::RDBCHECKSUM.of(&store) && !shared.engine.settings.get().limits.skips_checksums,
        unsupported: options::RDB_UNSUPPORTED_VALUES.of(&store),
    }
}

/// Logs a fact (AUX field) of the file: the version of the server that wrote it, its age or its
/// memory usage.
fn note_fact(name: &[u8], value: &[u8]) {
    let (name, value) = (String::from_utf8_lossy(name).to_ascii_lowercase(), String::from_utf8_lossy(value));
    match &*name {
        "redis-ver" => tracing::info!("Loading RDB produced by version {value}"),
        "valkey-ver" => tracing::info!("Loading RDB produced by Valkey version {value}"),
        "ctime" => {
            let age_s = value.parse().map_or(0, |ctime: i64| (unix_ms() / 1000 - ctime).max(0));
            tracing::info!("RDB age {age_s} seconds");
        }
        "used-mem" => {
            let mib = value.parse().map_or(0.0, |bytes: f64| bytes / f64::from(1 << 20));
            tracing::info!("RDB memory usage when created {mib:.2} Mb");
        }
        name if name.starts_with('%') => tracing::info!("RDB '{name}': {value}"),
        _ => {}
    }
}

/// The items that the log line about the progress of loading counts.
#[derive(Clone, Copy)]
pub(super) enum Counted {
    /// The log line counts the keys of an RDB file.
    Keys,
    /// The log line counts the commands of an append-only file.
    Commands,
}

/// The log line about the progress of loading, which is written every two seconds.
pub(super) struct Report<'s> {
    figures: &'s LoadFigures,
    counted: Counted,
    began: Instant,
    next: Instant,
}

impl<'s> Report<'s> {
    pub fn new(shared: &'s Shared, counted: Counted) -> Self {
        let began = Instant::now();
        Self { figures: &shared.persistence.loading, counted, began, next: began + REPORT_INTERVAL }
    }

    /// Logs the progress if [`REPORT_INTERVAL`] has passed since the last such line.
    pub fn now_and_then(&mut self) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + REPORT_INTERVAL;
        let (loaded, total) =
            (self.figures.loaded_bytes.load(Relaxed), self.figures.total_bytes.load(Relaxed));
        let seconds = (now - self.began).as_secs_f64();
        let left_s = seconds * total.saturating_sub(loaded) as f64 / loaded.max(1) as f64;
        let (count, word) = match self.counted {
            Counted::Keys => (&self.figures.keys, "keys"),
            Counted::Commands => (&self.figures.commands, "commands"),
        };
        if total == 0 {
            // The length of the data is not known.
            tracing::info!(
                "Loading: {:.0} MB, {:.0} MB/s, {} {word}",
                loaded as f64 / 1e6,
                loaded as f64 / 1e6 / seconds,
                count.load(Relaxed),
            );
            return;
        }
        tracing::info!(
            "Loading: {:.0} %, {:.0} MB/s, {} {word}, {left_s:.0} s left",
            100.0 * loaded as f64 / total as f64,
            loaded as f64 / 1e6 / seconds,
            count.load(Relaxed),
        );
    }
}

fn unreadable(error: io::Error) -> LoadError {
    let kind = LoadErrorKind::Reading(FileError(error.to_string()));
    LoadError { file_offset: 0, key: None, kind }
}

/// Loads a file into the keyspace. Returns false if there is no file.
///
/// # Errors
/// The reason why the file cannot be loaded. Some of its keys may have been added.
pub fn load_file(shared: &Shared, path: &Path, how: LoadMode<'_>) -> Result<bool, LoadError> {
    let found = match std::fs::metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(unreadable(error)),
    };
    // The stamp is taken before the file is read. If the file is replaced meanwhile, the new file
    // has another stamp.
    let stamp = stamp_of(path);
    shared.persistence.loading.begin(unix_ms() / 1000, found.len());
    load_rdb_part(shared, path, how)?;
    stamp.into_iter().for_each(|stamp| shared.persistence.known.add(stamp));
    Ok(true)
}

/// Loads a snapshot file, or the snapshot at the beginning of an append-only file. Returns the
/// offset of the first byte after the snapshot. The caller has added the file to the progress
/// figures with `LoadFigures::begin`.
///
/// # Errors
/// The reason why the file cannot be loaded. Some of its keys may have been added.
pub fn load_rdb_part(shared: &Shared, path: &Path, how: LoadMode<'_>) -> Result<u64, LoadError> {
    let file = File::open(path).map_err(unreadable)?;
    let source = FileSource { file, figures: &shared.persistence.loading };
    let splitter = Splitter::open(source, load_options(shared), shared.engine.keyspace.db_count())?;
    load_snapshot(shared, splitter, how, &mut |_name, _value| ()).map(|behind| behind.file_offset)
}

/// Loads a snapshot whose header was read. Calls `on_fact` with each fact (AUX field) of the file.
/// Returns the bytes after the snapshot. The caller has begun the progress figures of the load.
///
/// # Errors
/// The reason why the snapshot cannot be loaded. Some of its keys may have been added.
pub(super) fn load_snapshot<S: ByteSource>(
    shared: &Shared,
    splitter: Splitter<S>,
    how: LoadMode,
    on_fact: &mut dyn FnMut(&[u8], &[u8]),
) -> Result<Behind<S>, LoadError> {
    let figures = &shared.persistence.loading;
    let began = Instant::now();
    let key_delay = options::KEY_LOAD_DELAY.of(&shared.config());
    let loading = Loading {
        shared,
        how,
        has_failed: false.into(),
        error: Mutex::new(None),
        empty_keys: 0.into(),
        key_delay: Duration::from_micros(u64::try_from(key_delay).unwrap_or(0)),
        delayed: Mutex::new(()),
    };
    let (sender, receiver) = sync_channel(BATCHES_WAITING_MAX);
    let receiver = Mutex::new(receiver);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let split = std::thread::scope(|scope| {
        for number in 0..cores.clamp(1, GateSlot::LOADERS_MAX) {
            let (loading, receiver) = (&loading, &receiver);
            scope.spawn(move || loading.decode(number, receiver));
        }
        let split = loading.split(splitter, &sender, on_fact);
        drop(sender);
        split
    });
    let error = loading.error.lock().expect("nothing panicked while it was locked").take();
    let behind = error.map_or(split, Err)?.expect("no thread has failed, so the end was reached");
    tracing::info!(
        "Done loading RDB, keys loaded: {}, keys expired: {}, empty keys skipped: {}.",
        figures.keys.load(Relaxed),
        figures.expired.load(Relaxed),
        loading.empty_keys.into_inner()
    );
    tracing::info!("DB loaded from disk: {:.3} seconds", began.elapsed().as_secs_f64());
    Ok(behind)
}
