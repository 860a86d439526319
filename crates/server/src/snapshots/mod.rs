//! The state of the server's snapshots: the results of saves, the save in progress, and the
//! progress of loading. The module also has the data folder and its lock against other servers.

use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use persist::folder::{FileError, KnownFiles};
use persist::save::{Progress, Save, Way};
use persist::schedule::{SaveRecord, SaveRule};

use crate::config::ConfigStore;
use crate::config::table::persistence as options;

pub mod backup;
mod data_folder;

use backup::OnlineBackup;
pub use data_folder::{DataFolder, FolderLock, stamp_of};

/// The state of snapshots and of loading, the sources of the function libraries, and the lock of
/// the data folder.
pub struct Persistence {
    state: Mutex<State>,
    /// The condition variable on which threads wait for the end of a save, a rewrite or loading. It
    /// is signalled when one of them ends.
    pub(crate) ended: Condvar,
    lock: Mutex<Option<FolderLock>>,
    /// The source texts of the function libraries. Loading fills the list, FUNCTION commands change
    /// it, and saves write it.
    functions: Mutex<Vec<Arc<[u8]>>>,
    /// The version of the list of the function libraries' source texts: it grows with each access
    /// that may change the list.
    functions_version: AtomicU64,
    /// The progress of loading data files.
    pub loading: LoadFigures,
    /// The time to which the data is restored at the start, in Unix seconds: `--restore-until`.
    pub restore_until_s: Option<i64>,
    /// True if the data in the data folder could not be loaded.
    pub load_failed: AtomicBool,
    /// True if the server ends because it is a replica and cannot write its primary's changes to
    /// disk.
    pub is_unwritable: AtomicBool,
    /// True while a primary's snapshot is loaded, and after it could not be loaded.
    pub(crate) is_incomplete: AtomicBool,
    /// The snapshot files that this server has loaded or written, and older ones. Saves may replace
    /// them without a copy.
    pub known: KnownFiles,
    /// The online backup (BACKUP).
    pub backup: OnlineBackup,
}

/// The state of saves. One lock guards it, and no other lock is taken under this lock.
pub(crate) struct State {
    /// The results of the saves since the server started.
    pub record: SaveRecord,
    /// The save or full sync in progress, or a rewrite of the append-only file whose data is fixed
    /// at one moment; `None` if there is none.
    pub current: Option<Current>,
}

/// A save, a rewrite or a full sync in progress.
#[derive(Clone)]
pub(crate) struct Current {
    pub save: Arc<Save>,
    /// The time at which the save, rewrite or full sync began.
    pub since: Instant,
    /// The number of changes from the start of the server up to the moment whose data is saved.
    pub changes: u64,
    /// The origin of the save, rewrite or full sync.
    pub initiator: SaveInitiator,
}

/// The origin of a save. It decides if a thread waits for the end of the save.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SaveInitiator {
    /// A background save of the snapshot file. No thread waits for its end.
    Background,
    /// A background save after FLUSHALL, so that the flushed data does not return after a crash. In
    /// Redis, FLUSHALL waits for this save. Here no thread waits for it, and the next save that a
    /// user requests replaces it.
    AfterFlush,
    /// A save on the thread of the caller, which waits for it. With [`Way::Owner`] it may begin
    /// during a rewrite, because it ends before the rewrite fixes the data that it writes.
    Foreground {
        /// The way in which the thread that saves accesses the keyspace.
        way: Way,
    },
    /// A rewrite of the append-only file, which writes its new base.
    AofRewrite,
    /// A full sync: a snapshot that is sent to replicas. No thread waits for it, and it writes no
    /// data file.
    Replicas,
    /// An online backup (BACKUP START), which writes its base.
    Backup,
}

impl SaveInitiator {
    /// Returns true if no thread waits for the end of the save.
    pub fn is_background(self) -> bool {
        matches!(self, Self::Background | Self::AfterFlush | Self::Replicas | Self::Backup)
    }

    /// Returns true if the save is a background save for INFO and BGSAVE CANCEL. A full sync
    /// counts, the snapshot of a backup does not.
    pub fn is_background_save(self) -> bool {
        self.is_background() && self != Self::Backup
    }

    /// Returns true if the save writes the snapshot file in the background.
    pub fn writes_snapshot(self) -> bool {
        matches!(self, Self::Background | Self::AfterFlush)
    }
}

/// The statistics of saves for INFO.
pub struct Figures {
    /// The results of the saves since the server started.
    pub record: SaveRecord,
    /// The progress and the duration so far of the background save; `None` if none is in progress.
    pub current: Option<(Progress, Duration)>,
}

/// The result of a request for a background save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginResult {
    /// The background save has begun.
    Started,
    /// No save has begun: another save or a rewrite is in progress, or the data could not be
    /// loaded.
    InProgress,
}

impl Persistence {
    /// Creates the state of snapshots at the start of a server. `now_s` is the present time in Unix
    /// seconds.
    pub fn new(now_s: i64) -> Self {
        let state = State { record: SaveRecord::at_start(now_s), current: None };
        Self {
            state: Mutex::new(state),
            ended: Condvar::new(),
            lock: Mutex::new(None),
            functions: Mutex::default(),
            functions_version: AtomicU64::new(0),
            loading: LoadFigures::default(),
            restore_until_s: None,
            load_failed: AtomicBool::new(false),
            is_unwritable: AtomicBool::new(false),
            is_incomplete: AtomicBool::new(false),
            known: KnownFiles::default(),
            backup: OnlineBackup::default(),
        }
    }

    /// Locks the state of saves, to read or change it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Locks the source texts of the function libraries, to read or change them. Each call counts
    /// as a change ([`Persistence::functions_version`]).
    pub(crate) fn functions(&self) -> MutexGuard<'_, Vec<Arc<[u8]>>> {
        self.functions_version.fetch_add(1, Release);
        self.functions.lock().expect("nothing panics while it is locked")
    }

    /// Returns the version of the list of source texts: a number that grows before each possible
    /// change.
    pub(crate) fn functions_version(&self) -> u64 {
        self.functions_version.load(Acquire)
    }

    /// Adds the source text of a function library. Returns false, and changes nothing, if a library
    /// of the same name is already in the list.
    pub fn add_function(&self, source: Arc<[u8]>) -> bool {
        add_library(&mut self.functions(), source)
    }

    /// Adds the source text of a function library. Replaces the text of a library of the same name.
    pub fn replace_function(&self, source: Arc<[u8]>) {
        let mut functions = self.functions();
        match place_of(&functions, &source) {
            Some(place) => functions[place] = source,
            None => functions.push(source),
        }
    }

    /// Returns true if the data in memory may replace files on disk, because no load has failed or
    /// is incomplete. During the load at the start, the result is true as well.
    pub(crate) fn may_be_saved(&self) -> bool {
        !self.load_failed.load(Relaxed) && !self.is_incomplete.load(Relaxed)
    }

    /// Ends loading, so that requests that need the data may run. Wakes the threads that wait for
    /// that.
    pub(crate) fn end_loading(&self, engine: &engine::Shared) {
        let state = self.state();
        engine.server_state.is_loading.store(false, Relaxed);
        drop(state);
        self.ended.notify_all();
    }

    /// Waits until the load of the data files has ended, also if it has failed.
    pub fn wait_until_loaded(&self, engine: &engine::Shared) {
        let mut state = self.state();
        while engine.server_state.is_loading.load(Relaxed) {
            state = self.ended.wait(state).expect("nothing panics while it is locked");
        }
    }

    /// Returns the statistics of saves that INFO shows.
    pub fn figures(&self) -> Figures {
        let state = self.state();
        let current = state.current.as_ref().filter(|current| current.initiator.is_background_save());
        let current = current.map(|current| (current.save.progress(), current.since.elapsed()));
        Figures { record: state.record.clone(), current }
    }

    /// Returns true while a background save or a full sync is in progress. A save after a flush
    /// does not count, because another save may replace it.
    pub fn is_saving(&self) -> bool {
        let counts = |initiator| matches!(initiator, SaveInitiator::Background | SaveInitiator::Replicas);
        self.state().current.as_ref().is_some_and(|current| counts(current.initiator))
    }

    /// Schedules a background save, to begin as soon as possible.
    pub fn schedule(&self) {
        self.state().record.is_scheduled = true;
    }

    /// Cancels the background save or the full sync in progress; if there is none, cancels the
    /// scheduled save. The snapshot of a backup continues.
    /// Returns the kind of the cancelled save, and does not wait for its end.
    pub fn cancel(&self, engine: &engine::Shared) -> Cancelled {
        let mut state = self.state();
        if let Some(current) = state.current.as_ref().filter(|current| current.initiator.is_background_save())
        {
            current.save.abandon(engine);
            return Cancelled::InProgress;
        }
        match std::mem::take(&mut state.record.is_scheduled) {
            true => Cancelled::Scheduled,
            false => Cancelled::Nothing,
        }
    }

    /// Cancels the background save, the full sync or the snapshot of a backup in progress. Does not
    /// wait for its end.
    pub(crate) fn cancel_walk(&self, engine: &engine::Shared) {
        let state = self.state();
        if let Some(current) = state.current.as_ref().filter(|current| current.initiator.is_background()) {
            current.save.abandon(engine);
        }
    }

    /// Cancels `save` if it is still in progress. Does not wait for its end.
    pub(crate) fn cancel_save(&self, engine: &engine::Shared, save: &Arc<Save>) {
        let state = self.state();
        if let Some(current) = state.current.as_ref().filter(|current| Arc::ptr_eq(&current.save, save)) {
            current.save.abandon(engine);
        }
    }

    /// Cancels the background save after a FLUSHALL, if one is in progress, and waits for its end.
    /// Returns true if it cancelled one. The caller is outside the gate that guards the keyspace.
    pub(crate) fn cancel_save_of_flush(&self, engine: &engine::Shared) -> bool {
        let (mut state, mut cancelled) = (self.state(), false);
        while let Some(current) =
            state.current.as_ref().filter(|current| current.initiator == SaveInitiator::AfterFlush)
        {
            current.save.abandon(engine);
            cancelled = true;
            state = self.ended.wait(state).expect("nothing panics while it is locked");
        }
        cancelled
    }

    /// Acquires the lock of the data folder, unless this server already holds it. Releases the lock
    /// of an earlier data folder.
    ///
    /// # Errors
    /// Another server holds the lock, or the folder cannot be opened.
    pub fn lock_folder(&self, store: &ConfigStore) -> Result<(), FileError> {
        let path = folder_path(store);
        let mut lock = self.lock.lock().expect("nothing panics while it is locked");
        if !lock.as_ref().is_some_and(|lock| lock.is_of(&path)) {
            *lock = Some(FolderLock::take(&path)?);
        }
        Ok(())
    }
}

/// The kind of save that [`Persistence::cancel`] has cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// The cancelled save or full sync was in progress.
    InProgress,
    /// The cancelled save was scheduled and had not begun.
    Scheduled,
    /// There was no save to cancel.
    Nothing,
}

/// Returns the data folder: the option `dir`.
pub fn folder_path(store: &ConfigStore) -> PathBuf {
    options::DIR.of(store).to_owned()
}

/// Returns the path of the snapshot file: `dbfilename` in the data folder.
pub fn data_file(store: &ConfigStore) -> PathBuf {
    folder_path(store).join(String::from_utf8_lossy(options::DBFILENAME.of(store)).as_ref())
}

/// Returns the rules of the option `save`: after how many seconds and changes to save.
pub fn save_rules(store: &ConfigStore) -> Vec<SaveRule> {
    let (pairs, _) = options::SAVE.of(store).as_chunks::<2>();
    let number = |word: &[u8]| stdx::number::parse_i64(word).map_or(0, |number| number as u64);
    pairs
        .iter()
        .map(|[seconds, changes]| SaveRule { seconds: number(seconds), changes: number(changes) })
        .collect()
}

/// The progress of loading, for INFO and the log. Any thread may read it; accesses are Relaxed.
#[derive(Debug, Default)]
pub struct LoadFigures {
    /// The start time of the load, in Unix seconds.
    pub began_s: AtomicI64,
    /// The length of all data files to load together, in bytes.
    pub total_bytes: AtomicU64,
    /// Number of bytes of the data files that were read so far.
    pub loaded_bytes: AtomicU64,
    /// Number of keys that were loaded.
    pub keys: AtomicU64,
    /// Number of commands that were read from append-only files.
    pub commands: AtomicU64,
    /// Number of keys in the files that had expired and were not loaded.
    pub expired: AtomicU64,
}

impl LoadFigures {
    /// Resets the statistics of loading when a load begins. `total_bytes` is the length of all
    /// files to load together.
    pub fn begin(&self, now_s: i64, total_bytes: u64) {
        self.began_s.store(now_s, Relaxed);
        self.total_bytes.store(total_bytes, Relaxed);
        for counter in [&self.loaded_bytes, &self.keys, &self.commands, &self.expired] {
            counter.store(0, Relaxed);
        }
    }
}

/// Adds the source text of a function library to the list. Returns false, and changes nothing, if
/// the list has a library of the same name.
pub(crate) fn add_library(libraries: &mut Vec<Arc<[u8]>>, source: Arc<[u8]>) -> bool {
    let is_new = place_of(libraries, &source).is_none();
    if is_new {
        libraries.push(source);
    }
    is_new
}

/// Returns the index of the function library whose text equals `source`, or whose name is that of
/// the library in `source`; `None` if there is none.
fn place_of(functions: &[Arc<[u8]>], source: &[u8]) -> Option<usize> {
    let name = library_name(source);
    functions.iter().position(|other| **other == *source || name.is_some() && library_name(other) == name)
}

/// Returns the name of a library of functions, from its first line: `#!lua name=NAME`. Returns
/// `None` if the line has no name.
pub(crate) fn library_name(source: &[u8]) -> Option<&[u8]> {
    let line = source.split(|&byte| byte == b'\n').next()?.trim_ascii();
    line.split(|&byte| byte == b' ').find_map(|word| word.strip_prefix(b"name="))
}
