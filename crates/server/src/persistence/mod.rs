//! Saves of snapshots, rewrites of append-only files, and loading: the threads, the files and the
//! options.
//!
//! The point of a save is the moment whose data the file contains. Walkers are the threads that
//! then read all keys and write them to the file. The crate `persist` contains the logic: the
//! reading of all keys for a save (`persist::save`), the times of automatic saves
//! (`persist::schedule`), and the safe replacement of a file (`persist::folder`).
//!
//! ```text
//!   BGSAVE, a rule ─► the exclusive owner fixes the point ─► thread "bgsave" and further walkers
//!   SAVE, SHUTDOWN ─► the same, but the calling thread saves and waits for the end
//! ```

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use keyspace::Exclusive;
use keyspace::snapshot::OnFlush;
use persist::aof::manifest::BaseKind;
use persist::folder::{self, FileError, Place, Syncing, Target, Unsaved};
use persist::rdb::{Compression, Usage};
use persist::save::{ChunkSink, Contents, Save, SaveFormat, SaveOptions, Step, Walker, Way};
use persist::schedule::Reason;

use self::file_times::date_files;
use crate::config::choices::RdbVersion;
use crate::config::table::{memory, persistence as options};
use crate::context::unix_ms;
use crate::shared::Shared;
use crate::snapshots::{BeginResult, Current, DataFolder, SaveInitiator, folder_path, save_rules};

pub mod aof;
pub mod backup;
mod file_times;
pub mod full_sync;
pub mod hidden_data;
pub mod last_acks;
pub mod load_beside;
pub mod loading;
pub mod primary_snapshot;
pub mod replay;
pub mod restore;
pub mod shutdown;
pub mod startup;
pub mod stream_point;

/// Time for which a walker (a thread that reads the keys for a save) runs before it yields the core
/// to other threads.
const SLICE: Duration = Duration::from_millis(1);
/// Time for which a walker (a thread that reads the keys for a save) sleeps when it has no work at
/// present.
const WAIT: Duration = Duration::from_micros(200);
/// Number of bytes after which a file is synced while it is written, if
/// `rdb-save-incremental-fsync` or `aof-rewrite-incremental-fsync` is on.
const SYNC_STEP_BYTES: usize = 32 << 20;
/// Maximum number of walkers, the threads that read the keys for a save.
const WALKERS_MAX: usize = 4;

/// Returns the options of a save that writes a snapshot file.
pub(crate) fn save_options(shared: &Shared) -> SaveOptions {
    save_options_for(shared, "0")
}

/// Returns the save options for the base of an append-only file.
fn base_options(shared: &Shared, kind: BaseKind) -> SaveOptions {
    // A restored base always contains its time, because a later restore finds the replaced files by
    // this time.
    let is_restored = shared.append_only.state().restored_until_s.is_some();
    let stamps = is_restored || options::AOF_TIMESTAMP_ENABLED.of(&shared.config());
    let format = match kind {
        BaseKind::Rdb => SaveFormat::Rdb,
        BaseKind::Aof => SaveFormat::Commands { time_s: stamps.then(|| unix_ms() / 1000) },
    };
    SaveOptions { format, ..save_options_for(shared, "1") }
}

/// Sets the creation time (`ctime`) that a save writes into the file, in Unix seconds.
fn set_time(options: &mut SaveOptions, now_s: i64) {
    if let SaveFormat::Commands { time_s: Some(time_s) } = &mut options.format {
        *time_s = now_s;
    }
    if let Some((_, value)) = options.facts.iter_mut().find(|(name, _)| *name == "ctime") {
        *value = now_s.to_string();
    }
}

fn save_options_for(shared: &Shared, is_base: &str) -> SaveOptions {
    let store = shared.config();
    let policy = memory::MAXMEMORY_POLICY.of(&store);
    let usage = match policy {
        _ if policy.is_lfu() => Usage::Frequency,
        _ if policy.is_lru() => Usage::Idle { clock_s: (unix_ms() / 1000) as u32 },
        _ => Usage::None,
    };
    let fact = |name, value: String| (name, value);
    SaveOptions {
        format: SaveFormat::Rdb,
        contents: Contents::all(),
        on_flush: OnFlush::Abandon,
        version: match options::RDB_VERSION.of(&store) {
            RdbVersion::Auto => None,
            RdbVersion::Fixed(version) => Some(version),
        },
        compression: if options::RDBCOMPRESSION.of(&store) { Compression::Lzf } else { Compression::None },
        checksum: options::RDBCHECKSUM.of(&store),
        usage,
        facts: vec![
            fact("redis-ver", crate::REDIS_VERSION.to_owned()),
            fact("redis-bits", usize::BITS.to_string()),
            fact("ctime", (unix_ms() / 1000).to_string()),
            fact("used-mem", structures::alloc::used_memory_bytes().to_string()),
            fact("aof-base", is_base.to_owned()),
        ],
    }
}

/// Returns the number of changes to keys since the start of the server.
pub fn changes(shared: &Shared) -> u64 {
    shared.engine.threads.sum(|stats| &stats.changes)
}

/// Fixes the point of a save: the file will contain the data of this moment. Returns `None` if
/// another save is in progress, or if the data was loaded only in part. A rewrite in progress also
/// prevents a save, except a save that begins and ends within the exclusive ownership (SAVE on the
/// caller's thread). The caller is the exclusive owner of the keyspace.
pub(crate) fn fix(
    shared: &Shared,
    alone: &Exclusive,
    options: SaveOptions,
    initiator: SaveInitiator,
) -> Option<Arc<Save>> {
    let rewrites = shared.append_only.state();
    if matches!(
        initiator,
        SaveInitiator::Background
            | SaveInitiator::AfterFlush
            | SaveInitiator::Replicas
            | SaveInitiator::Backup
            | SaveInitiator::Foreground { way: Way::Gate }
    ) && rewrites.rewrite.is_some()
    {
        // A rewrite is in progress: it will soon fix its point, or has fixed it.
        return None;
    }
    let mut state = shared.persistence.state();
    // A save whose walk has ended may still be moving its file into the folder. This check precedes
    // the start of the walk, because a walk that is started must also be ended. If a file or a
    // primary's snapshot was loaded only in part, this data must not replace a file.
    if state.current.is_some() || !shared.persistence.may_be_saved() {
        return None;
    }
    let functions = shared.persistence.functions().clone();
    let save = Save::begin(&shared.engine, alone, options, functions)?;
    let (since, changes) = (Instant::now(), changes(shared));
    state.current = Some(Current { save: Arc::clone(&save), since, changes, initiator });
    if initiator.writes_snapshot() {
        state.record.begun(unix_ms() / 1000);
    }
    Some(save)
}

/// Begins a background save because a client requests it (BGSAVE). The caller is outside the gate
/// that guards the keyspace.
pub fn begin_as_asked(shared: &Arc<Shared>) -> BeginResult {
    let flush = take_over_from_flush(shared);
    let asked = save_in_background(shared, SaveInitiator::Background);
    if flush && asked == BeginResult::InProgress {
        shared.persistence.schedule();
    }
    asked
}

/// Saves on this thread because a client requests it (SAVE). The caller is outside the gate that
/// guards the keyspace.
///
/// # Errors
/// The reason why no snapshot file was written.
pub fn save_as_asked(shared: &Shared) -> Result<(), Unsaved> {
    let flush = take_over_from_flush(shared);
    let saved = save_here(shared, (Way::Gate, SavePlace::BetweenUnits), |fix| {
        shared.engine.gate.exclusive(|alone| fix(alone));
    });
    if flush && saved.is_err() {
        shared.persistence.schedule();
    }
    saved
}

/// Cancels the automatic save after a flush of all data, scheduled or in progress, because the
/// caller's save replaces it. Returns true if there was such a save. The caller schedules it again
/// if its own save fails.
fn take_over_from_flush(shared: &Shared) -> bool {
    let is_due = take_due_flush(shared);
    shared.persistence.cancel_save_of_flush(&shared.engine) || is_due
}

/// Returns true if all data was flushed since the last call and the option `save` has rules. A save
/// is then due, because flushed data must not return after a crash, as in Redis.
fn take_due_flush(shared: &Shared) -> bool {
    shared.engine.keyspace.snapshot().take_flushed_all() && !save_rules(&shared.config()).is_empty()
}

/// Begins a save in the background. The caller is outside the gate that guards the keyspace.
fn save_in_background(shared: &Arc<Shared>, initiator: SaveInitiator) -> BeginResult {
    let options = save_options(shared);
    let save = shared.engine.gate.exclusive(|alone| {
        let save = fix(shared, alone, options, initiator)?;
        stream_point::add_point(shared, alone, &save);
        Some(save)
    });
    let Some(save) = save else { return BeginResult::InProgress };
    tracing::info!("Background saving started");
    let (kept, thread_shared) = (Arc::clone(&save), Arc::clone(shared));
    let body = move || {
        let result = write(&thread_shared, &kept, Way::Gate);
        end(&thread_shared, result);
    };
    if let Err(error) = std::thread::Builder::new().name("bgsave".to_owned()).spawn(body) {
        // The thread cannot be created, but the walk has begun and must be ended.
        folder::give_up(&save, &shared.engine, |out| run_walkers(shared, &save, out, Way::Gate));
        end(shared, Err(FileError(error.to_string()).into()));
    }
    BeginResult::Started
}

/// The place of a save on the caller's thread: between two units (commands or transactions) of the
/// change log, or within one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavePlace {
    /// The save is between two units (commands or transactions), so the file can name its point in
    /// the replication stream.
    BetweenUnits,
    /// The save may be within a unit (a transaction) whose first changes are not recorded yet.
    WithinUnit,
}

/// Writes a snapshot file on this thread. With [`Way::Gate`], the caller is outside the gate that
/// guards the keyspace, and the function first waits for a rewrite or the snapshot of a backup in
/// progress. Another save in progress is an error.
///
/// # Errors
/// The reason why no snapshot file was written.
pub fn save_here(
    shared: &Shared,
    (way, place): (Way, SavePlace),
    alone: impl Fn(&mut dyn FnMut(&Exclusive)),
) -> Result<(), Unsaved> {
    let options = save_options(shared);
    let mut save = None;
    let mut is_held_up = false;
    loop {
        if way == Way::Gate {
            aof::wait_for_rewrite(shared);
            shared.persistence.backup.wait_until_idle();
        }
        alone(&mut |exclusive| {
            // Another rewrite or a backup may have begun before the point. It may also end at any
            // time, but it cannot begin now.
            is_held_up = shared.append_only.is_rewriting() || shared.persistence.backup.is_busy();
            save = fix(shared, exclusive, options.clone(), SaveInitiator::Foreground { way });
            if let (Some(save), SavePlace::BetweenUnits) = (&save, place) {
                stream_point::add_point(shared, exclusive, save);
            }
        });
        if save.is_some() || way == Way::Owner || !is_held_up {
            break;
        }
    }
    let Some(save) = save else { return Err(FileError("another save is in progress".to_owned()).into()) };
    let result = write(shared, &save, way);
    let outcome = result.clone();
    end(shared, result);
    outcome
}

/// Waits until no save, full sync or rewrite reads the keyspace or writes its file.
pub fn wait_for_end(shared: &Shared) {
    let persistence = &shared.persistence;
    let mut state = persistence.state();
    while state.current.is_some() {
        state = persistence.ended.wait(state).expect("nothing panics while it is locked");
    }
}

/// Writes the file of a save. Ends the reading of the keyspace in every case, even after an error.
fn write(shared: &Shared, save: &Save, way: Way) -> Result<(), Unsaved> {
    let (locked, path, name, syncing) = {
        let store = shared.config();
        let syncing = match options::RDB_SAVE_INCREMENTAL_FSYNC.of(&store) {
            true => Syncing::Every { len_bytes: SYNC_STEP_BYTES },
            false => Syncing::AtEnd,
        };
        let name = String::from_utf8_lossy(options::DBFILENAME.of(&store)).into_owned();
        (shared.persistence.lock_folder(&store), folder_path(&store), name, syncing)
    };
    let temporary = folder::temporary_name(std::process::id());
    let fit = save.unfit().map_or(Ok(()), |unfit| Err(FileError(unfit.to_string())));
    let named = match name == temporary {
        true => Err(FileError(format!(
            "dbfilename {name} is the name of the temporary file of a save: set another name"
        ))),
        false => Ok(()),
    };
    if let Err(trouble) = fit.and(named).and(locked) {
        folder::give_up(save, &shared.engine, |out| run_walkers(shared, save, out, way));
        return Err(trouble.into());
    }
    let folder = DataFolder::new(&path);
    let set_aside = |aside: &str| warn_set_aside(&path, &name, aside);
    let place = Place::Over { known: &shared.persistence.known, set_aside: &set_aside };
    let target = Target { folder: &folder, temporary, name: name.clone(), place, syncing };
    folder::save_into(target, save, &shared.engine, |out| run_walkers(shared, save, out, way))
}

/// Logs a warning about a file in `folder` that was renamed because it was unknown to the server;
/// `aside` is its new name.
fn warn_set_aside(folder: &Path, name: &str, aside: &str) {
    tracing::warn!(
        "{}: {name} was neither loaded nor written by this server, or another program changed it. The server \
         renamed it to {aside}. Remove it if you do not need it.",
        folder.display()
    );
}

/// Removes the temporary file of a save in progress, because the process is about to end without
/// finishing it.
pub fn remove_temporary(shared: &Shared) {
    // The error is ignored: the file may be missing, and the process ends before anybody reads a
    // report.
    let name = folder::temporary_name(std::process::id());
    let _ = std::fs::remove_file(folder_path(&shared.config()).join(name));
}

/// Records the result of the save in progress, which has ended.
fn end(shared: &Shared, result: Result<(), Unsaved>) {
    let persistence = &shared.persistence;
    let initiator = persistence.state().current.as_ref().map(|current| current.initiator);
    // Locks the state of the append-only file, which must not be locked after the state of saves.
    if result.is_ok() && initiator.is_some_and(|it| it != SaveInitiator::Foreground { way: Way::Owner }) {
        date_files(shared);
    }
    let mut state = persistence.state();
    let Some(current) = state.current.take() else { return };
    if current.initiator.is_background() {
        state.record.last_took_s = Some(current.since.elapsed().as_secs());
    }
    match result {
        Ok(()) => {
            state.record.succeeded(current.changes, unix_ms() / 1000);
            tracing::info!("DB saved on disk");
            if current.initiator.is_background() {
                tracing::info!("Background saving terminated with success");
            }
        }
        // A cancelled save is not a failure, as a killed child is not in Redis.
        Err(Unsaved::Cancelled) => tracing::warn!("Background saving terminated by signal 10"),
        Err(Unsaved::Failed(trouble)) => {
            tracing::warn!("Error writing the snapshot to disk: {trouble}");
            if current.initiator.is_background() {
                state.record.failed(trouble);
                tracing::warn!("Background saving error");
            }
        }
    }
    shared.engine.server_state.save_failed.store(!state.record.last_succeeded, Relaxed);
    drop(state);
    persistence.ended.notify_all();
}

/// Reads all keys for a save and writes them to `out`, with one thread (walker) for each core, but
/// at most [`WALKERS_MAX`].
pub(crate) fn run_walkers(shared: &Shared, save: &Save, out: &(dyn ChunkSink + Sync), way: Way) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for number in 1..cores.min(WALKERS_MAX) {
            let walker = save.walker(number, way);
            let body = move || walk(shared, save, walker, out);
            if std::thread::Builder::new().name("bgsave".to_owned()).spawn_scoped(scope, body).is_err() {
                break;
            }
        }
        walk(shared, save, save.walker(0, way), out);
    });
}

/// Returns the pause after each saved key, which the option `rdb-key-save-delay` sets for tests.
fn key_delay(shared: &Shared) -> Duration {
    let micros = options::RDB_KEY_SAVE_DELAY.of(&shared.config());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn walk(shared: &Shared, save: &Save, mut walker: Walker, out: &dyn ChunkSink) {
    let mut since = Instant::now();
    let mut keys_done = 0;
    loop {
        match save.step(&shared.engine, &mut walker, out) {
            Step::More if since.elapsed() < SLICE => {}
            Step::More => {
                std::thread::yield_now();
                since = Instant::now();
            }
            Step::Waiting => std::thread::sleep(WAIT),
            Step::Done => return,
        }
        let done = save.progress().keys_done;
        rest(shared, save, done - keys_done);
        keys_done = done;
    }
}

/// Pauses for the time that `rdb-key-save-delay` sets for `keys` keys. A change of the option
/// applies at once. The pause ends when the save has failed or was abandoned.
fn rest(shared: &Shared, save: &Save, keys: u64) {
    let mut slept = Duration::ZERO;
    while keys > 0 && !save.has_failed() {
        let left = (key_delay(shared) * keys as u32).saturating_sub(slept);
        if left.is_zero() {
            return;
        }
        let step = left.min(Duration::from_millis(10));
        std::thread::sleep(step);
        slept += step;
    }
}

/// Begins a save if a rule of the option `save` is fulfilled, or if a save is scheduled. The
/// housekeeper calls this function ten times a second.
pub fn save_if_due(shared: &Arc<Shared>) {
    let (rules, changes) = (save_rules(&shared.config()), changes(shared));
    if !shared.has_all_data() {
        return;
    }
    let flushed = take_due_flush(shared);
    if flushed {
        shared.persistence.schedule();
    }
    let due = {
        let state = shared.persistence.state();
        if state.current.is_some() { None } else { state.record.due(&rules, changes, unix_ms() / 1000) }
    };
    let Some(reason) = due else { return };
    if let Reason::Rule(rule) = reason {
        tracing::info!("{} changes in {} seconds. Saving...", rule.changes, rule.seconds);
    }
    save_in_background(shared, if flushed { SaveInitiator::AfterFlush } else { SaveInitiator::Background });
}
