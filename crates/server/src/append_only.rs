//! What the server knows of its append-only file: the writer, the files, the rewrites.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use engine::log::merger::ReaderId;
use persist::aof::files::Files;
use persist::aof::writer::{self, Writer};

use crate::config::ConfigStore;
use crate::config::table::persistence as options;
use crate::snapshots::folder_path;

/// What the server knows of its append-only file.
#[derive(Default)]
pub struct AppendOnly {
    state: Mutex<State>,
    /// Wakes the thread that syncs.
    pub(crate) signal: Signal,
    /// With so many units waiting a sync begins at once; with fewer it waits a little for more.
    pub(crate) gathers_units: AtomicU64,
    /// How long a write with its sync takes at present, in microseconds.
    pub(crate) sync_us: RunningMean,
    /// The position up to which all is synced; 0 where nothing is written.
    pub(crate) synced: AtomicU64,
    /// Clients that wait for a sync.
    pub(crate) waiters: AtomicU64,
    /// How long each write takes longer, in microseconds: DEBUG AOF-FLUSH-SLEEP, for tests.
    pub(crate) sleep_us: AtomicU64,
}

/// A mean in which the last few values count most. Any thread; values that come at the same moment
/// may be lost.
#[derive(Default)]
pub(crate) struct RunningMean(AtomicU64);

impl RunningMean {
    /// What a new value counts, as a part.
    const PART: u64 = 8;

    /// Adds a value.
    pub fn add(&self, value: u64) {
        // Relaxed, here and below: a figure.
        let mean = self.0.load(Relaxed);
        // Rounded up: else a mean of less than a part would never grow.
        self.0.store((mean * (Self::PART - 1) + value).div_ceil(Self::PART), Relaxed);
    }

    /// The mean, 0 before the first value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Guarded by one lock, a leaf.
#[derive(Default)]
pub(crate) struct State {
    /// The writer, where changes are written.
    pub active: Option<Active>,
    /// The files, as far as they are known.
    pub files: Option<Files>,
    /// The folder that they are in.
    pub files_path: Option<PathBuf>,
    /// Bytes of the files that are not appended to any more.
    pub earlier_len_bytes: u64,
    /// Bytes of all files after the last rewrite, or at the start.
    pub base_len_bytes: u64,
    /// The rewrite under way.
    pub rewrite: Option<Rewrite>,
    /// A rewrite begins as soon as it can.
    pub is_scheduled: bool,
    /// The option asks for a file that has no base so far.
    pub awaits_base: bool,
    /// What rewrites have come to.
    pub record: RewriteRecord,
    /// Not before this time is a rewrite tried again that nobody asked for.
    pub retry_at: Option<Instant>,
    /// Files of the history are being removed: no rewrite begins.
    pub is_removing: bool,
    /// Not before this time is that tried again.
    pub remove_at: Option<Instant>,
    /// The data was taken back to this time, in Unix seconds, and has no base so far.
    pub restored_until_s: Option<i64>,
}

/// What changes are written with.
#[derive(Clone)]
pub(crate) struct Active {
    /// What decides.
    pub writer: Arc<Writer>,
    /// The log's reader.
    pub reader: ReaderId,
}

/// A rewrite under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewrite {
    /// When it began.
    pub since: Instant,
}

/// What rewrites have come to.
#[derive(Clone, Debug)]
pub struct RewriteRecord {
    /// Those that began.
    pub begun: u64,
    /// Those in a row that failed.
    pub failures: u64,
    /// How long the last one took, in seconds.
    pub last_took_s: Option<u64>,
    /// Whether the last one succeeded.
    pub last_succeeded: bool,
}

impl Default for RewriteRecord {
    fn default() -> Self {
        Self { begun: 0, failures: 0, last_took_s: None, last_succeeded: true }
    }
}

/// What is shown.
pub struct Figures {
    /// Whether the option is on and served.
    pub is_enabled: bool,
    /// The writer's figures.
    pub writer: Option<writer::Figures>,
    /// Bytes of all files.
    pub len_bytes: u64,
    /// Bytes of all files after the last rewrite.
    pub base_len_bytes: u64,
    /// For how long the rewrite under way runs.
    pub rewrites_for: Option<Duration>,
    /// Whether one is scheduled.
    pub is_scheduled: bool,
    /// What rewrites have come to.
    pub record: RewriteRecord,
}

impl State {
    /// Rewrites that failed delay the next one no more.
    pub(crate) fn forget_failures(&mut self) {
        self.record.failures = 0;
        self.retry_at = None;
    }
}

impl AppendOnly {
    /// What is known, to read or change.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// The writer, where changes are written.
    pub(crate) fn active(&self) -> Option<Active> {
        self.state().active.clone()
    }

    /// Whether all up to `position` is synced.
    pub fn has_synced(&self, position: u64) -> bool {
        self.active().is_some() && self.synced.load(Acquire) >= position
    }

    /// Whether a rewrite is under way.
    pub fn is_rewriting(&self) -> bool {
        self.state().rewrite.is_some()
    }

    /// What INFO shows.
    pub fn figures(&self) -> Figures {
        let state = self.state();
        let writer = state.active.as_ref().map(|active| active.writer.figures());
        let present = writer.as_ref().map_or(0, |figures| figures.len_bytes);
        Figures {
            is_enabled: writer.is_some() || state.awaits_base,
            len_bytes: state.earlier_len_bytes + present,
            base_len_bytes: state.base_len_bytes,
            rewrites_for: state.rewrite.map(|rewrite| rewrite.since.elapsed()),
            is_scheduled: state.is_scheduled,
            record: state.record.clone(),
            writer,
        }
    }
}

/// The folder of the append-only files.
pub fn files_path(store: &ConfigStore) -> PathBuf {
    folder_path(store).join(String::from_utf8_lossy(options::APPENDDIRNAME.of(store)).as_ref())
}

/// Their base name.
pub fn files_name(store: &ConfigStore) -> String {
    String::from_utf8_lossy(options::APPENDFILENAME.of(store)).into_owned()
}

/// Wakes a thread that waits for work.
#[derive(Default)]
pub(crate) struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// There is work.
    pub fn set(&self) {
        *self.is_set.lock().expect("nothing panics while it is locked") = true;
        self.changed.notify_one();
    }

    /// Waits for work, for so long at most.
    pub fn wait(&self, timeout: Duration) {
        let is_set = self.is_set.lock().expect("nothing panics while it is locked");
        let waited = self.changed.wait_timeout_while(is_set, timeout, |is_set| !*is_set);
        let (mut is_set, _) = waited.expect("nothing panics while it is locked");
        *is_set = false;
    }
}
