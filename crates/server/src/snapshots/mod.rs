//! What the server knows of its snapshots: the last ones, the one under way, the file that was
//! loaded; where the file is, and that no other server writes to it.

use std::path::PathBuf;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use persist::folder::{KnownFiles, Trouble};
use persist::save::{Progress, Save, Way};
use persist::schedule::{SaveRecord, SaveRule};

use crate::config::ConfigStore;
use crate::config::table::persistence as options;

mod data_folder;

pub use data_folder::{DataFolder, FolderLock, stamp_of};

/// What the server knows of its snapshots.
pub struct Persistence {
    state: Mutex<State>,
    /// A save came to its end.
    pub(crate) ended: Condvar,
    lock: Mutex<Option<FolderLock>>,
    /// Libraries of functions as the loaded file had them. They are written back: nothing runs them
    /// so far.
    functions: Mutex<Vec<Box<[u8]>>>,
    /// Counts looks at the libraries that may have changed them.
    functions_version: AtomicU64,
    /// How far loading is.
    pub loading: LoadFigures,
    /// The time that the data is taken back to at the start, in Unix seconds: `--restore-until`.
    pub restore_until_s: Option<i64>,
    /// What is in the data folder could not be loaded.
    pub load_failed: AtomicBool,
    /// The snapshots that saves may replace.
    pub known: KnownFiles,
}

/// Guarded by one lock, a leaf.
pub(crate) struct State {
    /// What saves have come to.
    pub record: SaveRecord,
    /// The one under way.
    pub current: Option<Current>,
}

/// A save under way.
#[derive(Clone)]
pub(crate) struct Current {
    /// The save itself.
    pub save: Arc<Save>,
    /// When it began.
    pub since: Instant,
    /// All changes up to its point.
    pub changes: u64,
    /// Who waits for it.
    pub whose: Whose,
}

/// Who waits for a save.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Nobody: it is in the background.
    Nobodys,
    /// Nobody: everything was flushed, and a crash must not bring it back. Redis has FLUSHALL wait
    /// for this save; here it gives way to the next one that somebody asks for.
    Flushes,
    /// The caller. As the owner of the keyspace it is through before a rewrite comes to its point.
    Callers {
        /// How the caller comes to the keyspace.
        way: Way,
    },
    /// A rewrite of the append-only file.
    Rewrites,
}

impl Whose {
    /// Whether nobody waits for it.
    pub fn is_background(self) -> bool {
        matches!(self, Self::Nobodys | Self::Flushes)
    }
}

/// What is shown of saves.
pub struct Figures {
    /// What saves have come to.
    pub record: SaveRecord,
    /// How far the one under way is and for how long it runs; none where none is in the background.
    pub current: Option<(Progress, Duration)>,
}

/// What came of asking for a save in the background.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// It runs.
    Begun,
    /// Another one is under way.
    UnderWay,
}

impl Persistence {
    /// At the start of a server.
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
            known: KnownFiles::default(),
        }
    }

    /// What is known of saves, to read or change.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// The libraries of functions, to read or change.
    pub(crate) fn functions(&self) -> MutexGuard<'_, Vec<Box<[u8]>>> {
        self.functions_version.fetch_add(1, Release);
        self.functions.lock().expect("nothing panics while it is locked")
    }

    /// Differs after the libraries may have changed.
    pub(crate) fn functions_version(&self) -> u64 {
        self.functions_version.load(Acquire)
    }

    /// Keeps the source of a library of functions; whether none of its name was kept before.
    pub fn add_function(&self, source: Box<[u8]>) -> bool {
        let mut functions = self.functions();
        let is_new = place_of(&functions, &source).is_none();
        if is_new {
            functions.push(source);
        }
        is_new
    }

    /// Keeps the source of a library of functions, in the place of one of its name.
    pub fn replace_function(&self, source: Box<[u8]>) {
        let mut functions = self.functions();
        match place_of(&functions, &source) {
            Some(place) => functions[place] = source,
            None => functions.push(source),
        }
    }

    /// Lets requests run that need the data.
    pub(crate) fn end_loading(&self, engine: &engine::Shared) {
        let state = self.state();
        engine.standing.is_loading.store(false, Relaxed);
        drop(state);
        self.ended.notify_all();
    }

    /// Waits until the data is loaded, or could not be.
    pub fn wait_until_loaded(&self, engine: &engine::Shared) {
        let mut state = self.state();
        while engine.standing.is_loading.load(Relaxed) {
            state = self.ended.wait(state).expect("nothing panics while it is locked");
        }
    }

    /// What INFO shows.
    pub fn figures(&self) -> Figures {
        let state = self.state();
        let current = state.current.as_ref().filter(|current| current.whose.is_background());
        let current = current.map(|current| (current.save.progress(), current.since.elapsed()));
        Figures { record: state.record.clone(), current }
    }

    /// Whether a save in the background is under way that another one does not replace.
    pub fn is_saving(&self) -> bool {
        self.state().current.as_ref().is_some_and(|current| current.whose == Whose::Nobodys)
    }

    /// A save begins as soon as it can.
    pub fn schedule(&self) {
        self.state().record.is_scheduled = true;
    }

    /// Ends the save in the background; where there is none, forgets the scheduled one. What was
    /// there.
    pub fn cancel(&self, engine: &engine::Shared) -> Cancelled {
        let mut state = self.state();
        if let Some(current) = state.current.as_ref().filter(|current| current.whose.is_background()) {
            current.save.abandon(engine);
            return Cancelled::UnderWay;
        }
        match std::mem::take(&mut state.record.is_scheduled) {
            true => Cancelled::Scheduled,
            false => Cancelled::Nothing,
        }
    }

    /// Ends the save after a flush, if one is under way, and waits for its end; whether there was
    /// one. The caller is outside the gate.
    pub(crate) fn cancel_save_of_flush(&self, engine: &engine::Shared) -> bool {
        let (mut state, mut cancelled) = (self.state(), false);
        while let Some(current) = state.current.as_ref().filter(|current| current.whose == Whose::Flushes) {
            current.save.abandon(engine);
            cancelled = true;
            state = self.ended.wait(state).expect("nothing panics while it is locked");
        }
        cancelled
    }

    /// Takes the lock of the data folder, unless it is held.
    ///
    /// # Errors
    /// Another server has it.
    pub fn lock_folder(&self, store: &ConfigStore) -> Result<(), Trouble> {
        let path = folder_path(store);
        let mut lock = self.lock.lock().expect("nothing panics while it is locked");
        if !lock.as_ref().is_some_and(|lock| lock.is_of(&path)) {
            *lock = Some(FolderLock::take(&path)?);
        }
        Ok(())
    }
}

/// What [`Persistence::cancel`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// A save under way.
    UnderWay,
    /// One that was to begin.
    Scheduled,
    /// None.
    Nothing,
}

/// The folder of the data.
pub fn folder_path(store: &ConfigStore) -> PathBuf {
    options::DIR.of(store).to_owned()
}

/// The file of the data.
pub fn data_file(store: &ConfigStore) -> PathBuf {
    folder_path(store).join(String::from_utf8_lossy(options::DBFILENAME.of(store)).as_ref())
}

/// The rules of `save`.
pub fn save_rules(store: &ConfigStore) -> Vec<SaveRule> {
    let (pairs, _) = options::SAVE.of(store).as_chunks::<2>();
    let number = |word: &[u8]| stdx::number::parse_i64(word).map_or(0, |number| number as u64);
    pairs
        .iter()
        .map(|[seconds, changes]| SaveRule { seconds: number(seconds), changes: number(changes) })
        .collect()
}

/// How far loading is, for INFO and the log. Figures: Relaxed.
#[derive(Debug, Default)]
pub struct LoadFigures {
    /// When it began, in Unix seconds.
    pub began_s: AtomicI64,
    /// The file's length in bytes.
    pub total_bytes: AtomicU64,
    /// Bytes that were read.
    pub loaded_bytes: AtomicU64,
    /// Keys that were loaded.
    pub keys: AtomicU64,
    /// Commands of append-only files that were read.
    pub commands: AtomicU64,
    /// Keys that had expired.
    pub expired: AtomicU64,
}

impl LoadFigures {
    /// Loading begins of files that are this long together, in bytes.
    pub fn begin(&self, now_s: i64, total_bytes: u64) {
        self.began_s.store(now_s, Relaxed);
        self.total_bytes.store(total_bytes, Relaxed);
        for counter in [&self.loaded_bytes, &self.keys, &self.commands, &self.expired] {
            counter.store(0, Relaxed);
        }
    }
}

/// Where the library with the name of this one is.
fn place_of(functions: &[Box<[u8]>], source: &[u8]) -> Option<usize> {
    let name = library_name(source);
    functions.iter().position(|other| **other == *source || name.is_some() && library_name(other) == name)
}

/// The name of a library of functions, from its first line: `#!lua name=NAME`.
pub(crate) fn library_name(source: &[u8]) -> Option<&[u8]> {
    let line = source.split(|&byte| byte == b'\n').next()?.trim_ascii();
    line.split(|&byte| byte == b' ').find_map(|word| word.strip_prefix(b"name="))
}
