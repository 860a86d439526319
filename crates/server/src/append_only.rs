//! The state of the append-only file: its writer, its files and its rewrites.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use engine::log::ChangeLog;
use engine::log::level::Level;
use engine::log::merger::ReaderId;
use persist::aof::files::Files;
use persist::aof::writer::{self, Writer};

use crate::config::ConfigStore;
use crate::config::table::persistence as options;
use crate::snapshots::folder_path;

/// The state of a server's append-only file: its writer, its files, its rewrites and its sync
/// thread.
#[derive(Default)]
pub struct AppendOnly {
    state: Mutex<State>,
    /// The signal that wakes the sync thread, which syncs the file to disk.
    pub(crate) signal: Signal,
    /// Number of changes that must wait for a sync before the sync thread is woken. The thread that
    /// merges the changes of all threads into the change log wakes it. It is above 0 only while the
    /// sync thread waits briefly so that one sync covers more changes.
    pub(crate) gathers_units: AtomicU64,
    /// Mean time of a write to the append-only file with its sync to disk, in microseconds.
    pub(crate) sync_us: RunningMean,
    /// The synced log position up to which clients in WAITAOF were last notified.
    pub(crate) announced_sync: AtomicU64,
    /// Number of clients that wait in WAITAOF for a sync of the append-only file.
    pub(crate) waiters: AtomicU64,
    /// Extra time of each write, in microseconds: DEBUG AOF-FLUSH-SLEEP, for tests.
    pub(crate) sleep_us: AtomicU64,
}

/// A running mean in which recent values have the greatest weight. Any thread may use it. If
/// several threads add values at the same time, some of these values may be lost.
#[derive(Default)]
pub(crate) struct RunningMean(AtomicU64);

impl RunningMean {
    /// The divisor for weights: a new value has the weight 1/8, the mean so far 7/8.
    const PART: u64 = 8;

    /// Adds `value` to the running mean, with the weight 1/8.
    pub fn add(&self, value: u64) {
        // Relaxed, here and below, because the mean is only a statistic.
        let mean = self.0.load(Relaxed);
        // The mean is rounded up. Otherwise a mean below `PART` would never grow.
        self.0.store((mean * (Self::PART - 1) + value).div_ceil(Self::PART), Relaxed);
    }

    /// Returns the running mean; 0 before the first value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// The state of the append-only file. One lock protects it, and no other lock is taken under this
/// lock.
#[derive(Default)]
pub(crate) struct State {
    /// The writer of the append-only file and its reader of the change log; `None` if changes are
    /// not written to a file.
    pub active: Option<Active>,
    /// The writer of an append-only file whose first base (a file with the whole data) is not
    /// complete yet; `None` if every written file has its base.
    pub baseless: Option<Active>,
    /// The manifest and the files that it names; `None` if they were not read yet, or while a
    /// thread rewrites the append-only file or removes files that a rewrite has replaced.
    pub files: Option<Files>,
    /// The folder of the append-only files; `None` while no folder was used yet.
    pub files_path: Option<PathBuf>,
    /// Total length of the append-only files except the one that the writer appends to, in bytes.
    pub earlier_len_bytes: u64,
    /// Total length of all append-only files, in bytes, after the last rewrite or, before the first
    /// one, when the server started.
    pub base_len_bytes: u64,
    /// The rewrite of the append-only file that is in progress; `None` if there is none.
    pub rewrite: Option<Rewrite>,
    /// True if a rewrite of the append-only file was requested and begins as soon as possible.
    pub is_scheduled: bool,
    /// True if `appendonly` is `yes` but the file has no base (a file with the whole data) yet,
    /// because its first rewrite has not ended.
    pub awaits_base: bool,
    /// Results of the rewrites of the append-only file since the server started.
    pub record: RewriteRecord,
    /// The earliest time of the next automatic rewrite after failures; `None` for no delay.
    pub retry_at: Option<Instant>,
    /// True while files that a rewrite has replaced (history files) are removed. No rewrite starts
    /// during that time.
    pub is_removing: bool,
    /// The earliest time of the next attempt to remove the files that a rewrite has replaced, after
    /// a failed attempt; `None` for no delay.
    pub remove_at: Option<Instant>,
    /// The time to which the server restored its data when it started, in Unix seconds. `None`
    /// after a base file with this data was written, or without a restore.
    pub restored_until_s: Option<i64>,
}

/// The writer of the append-only file, and the reader of the change log that passes changes to it.
#[derive(Clone)]
pub(crate) struct Active {
    /// The writer of the append-only file, which decides when changes are written and synced.
    pub writer: Arc<Writer>,
    /// The id of the reader of the change log that passes changes to the writer.
    pub reader: ReaderId,
}

/// A rewrite of the append-only file that is in progress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rewrite {
    /// The time at which the rewrite of the append-only file began.
    pub since: Instant,
}

/// Results of the rewrites of the append-only file since the server started.
#[derive(Clone, Debug)]
pub struct RewriteRecord {
    /// Number of rewrites of the append-only file that were started.
    pub begun: u64,
    /// Number of consecutive failed rewrites of the append-only file. A rewrite that a user
    /// requests resets it.
    pub failures: u64,
    /// Duration of the last rewrite of the append-only file, in seconds; `None` before the first
    /// one has ended.
    pub last_took_s: Option<u64>,
    /// True if no rewrite of the append-only file has failed since the last successful one.
    pub last_succeeded: bool,
}

impl Default for RewriteRecord {
    fn default() -> Self {
        Self { begun: 0, failures: 0, last_took_s: None, last_succeeded: true }
    }
}

/// Statistics of the append-only file for INFO.
pub struct Figures {
    /// True if `appendonly` is `yes` and has taken effect.
    pub is_enabled: bool,
    /// The statistics of the append-only file's writer; `None` if changes are not written to a
    /// file.
    pub writer: Option<writer::Figures>,
    /// Total length of all append-only files, in bytes.
    pub len_bytes: u64,
    /// Total length of all append-only files, in bytes, after the last rewrite or, before the first
    /// one, when the server started.
    pub base_len_bytes: u64,
    /// The duration so far of the rewrite of the append-only file in progress; `None` if there is
    /// none.
    pub rewrites_for: Option<Duration>,
    /// True if a rewrite of the append-only file was requested and begins as soon as possible.
    pub is_scheduled: bool,
    /// Results of the rewrites of the append-only file since the server started.
    pub record: RewriteRecord,
}

impl State {
    /// Resets the number of consecutive failed rewrites of the append-only file, so that they no
    /// longer delay the next rewrite.
    pub(crate) fn forget_failures(&mut self) {
        self.record.failures = 0;
        self.retry_at = None;
    }

    /// Returns the writer of the append-only file that gets the changes, even if its file has no
    /// base yet; `None` if changes are not written to a file.
    pub(crate) fn attached(&self) -> Option<&Active> {
        self.active.as_ref().or(self.baseless.as_ref())
    }

    /// Returns true if `active` is still the writer of the append-only file that gets the changes.
    pub(crate) fn is_attached(&self, active: &Active) -> bool {
        self.attached().is_some_and(|attached| Arc::ptr_eq(&attached.writer, &active.writer))
    }
}

impl AppendOnly {
    /// Locks the state of the append-only file, so that the caller can read or change it.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Returns the writer of the append-only file; `None` if changes are not written to a file, or
    /// the file has no base yet.
    pub(crate) fn active(&self) -> Option<Active> {
        self.state().active.clone()
    }

    /// Returns true if changes are written to an append-only file and all changes of the change log
    /// up to `position` are synced. With `appendfsync no`, written changes count as synced, also
    /// after a change of that option.
    pub fn has_synced(&self, log: &ChangeLog, position: u64) -> bool {
        self.active().is_some() && log.released(Level::Synced) >= position
    }

    /// Returns true while a rewrite of the append-only file is in progress.
    pub fn is_rewriting(&self) -> bool {
        self.state().rewrite.is_some()
    }

    /// Returns the statistics of the append-only file that INFO shows.
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

/// Returns the folder of the append-only files: `appenddirname` in the folder `dir`.
pub fn files_path(store: &ConfigStore) -> PathBuf {
    folder_path(store).join(String::from_utf8_lossy(options::APPENDDIRNAME.of(store)).as_ref())
}

/// Returns the base name of the append-only files: `appendfilename`.
pub fn files_name(store: &ConfigStore) -> String {
    String::from_utf8_lossy(options::APPENDFILENAME.of(store)).into_owned()
}

/// A signal that wakes one thread when there is work for it.
#[derive(Default)]
pub(crate) struct Signal {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Signal {
    /// Signals that there is work, and wakes the thread that waits for the signal.
    pub fn set(&self) {
        *self.is_set.lock().expect("nothing panics while it is locked") = true;
        self.changed.notify_one();
    }

    /// Waits until [`Signal::set`] was called since the last wait, at most for `timeout`. Then
    /// resets the signal.
    pub fn wait(&self, timeout: Duration) {
        let is_set = self.is_set.lock().expect("nothing panics while it is locked");
        let waited = self.changed.wait_timeout_while(is_set, timeout, |is_set| !*is_set);
        let (mut is_set, _) = waited.expect("nothing panics while it is locked");
        *is_set = false;
    }
}
