//! The append-only file: the threads that write, sync and rewrite it.
//!
//! The crate `persist` makes the decisions. `persist::aof::writer` decides when to write and when
//! to sync, `persist::aof::files` which files are created, replaced and removed. This module runs
//! the threads, opens the files and reads the options.
//!
//! ```text
//!   threads merge the log ─► AofReader ─► Writer ─► written at once (everysec, no)
//!                                           └─► thread "aof" ─► written, synced ─► replies leave
//!                                               (or at once, where a sync costs nothing: tmpfs)
//!   BGREWRITEAOF, a rule ─► thread "aof-rewrite": a new file for further changes, a point, a base
//! ```

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use engine::log::level::{Level, Released};
use engine::log::merger::{LogBatch, LogReader, RetainedBytes};
use engine::log::target::LogTarget;
use engine::threads::Outbox;
use keyspace::Exclusive;
use persist::aof::files::{Files, Kept, NewBase, is_part_name};
use persist::aof::manifest::{BaseKind, manifest_name};
use persist::aof::writer::{Appended, Done, Job, Moment, Next, SyncPolicy, Syncs, Times, Writer};
use persist::folder::{self, FileError, Folder as _, LogFile, Place, Syncing, Target, Unsaved};
use persist::save::{Save, Way};

use super::{fix, run_walkers};
use crate::append_only::{Active, AppendOnly, Rewrite, State, files_name, files_path};
use crate::config::ConfigStore;
use crate::config::table::persistence as options;
use crate::context::unix_ms;
use crate::shared::{Message, Shared};
use crate::snapshots::{DataFolder, SaveInitiator};

/// Maximum wait of the append-only file's sync thread between two checks for work. The thread that
/// merges the change log can write without waking the sync thread, so the sync thread also checks
/// by itself.
const SYNC_LOOK: Duration = Duration::from_millis(100);
/// Mean time of a write to the append-only file with its sync, in microseconds. Below it, the
/// thread that merges the change log does both itself instead of waking the sync thread. Only a
/// sync without disk access is so fast, as on tmpfs.
const SYNC_AT_ONCE_US_MAX: u64 = 30;
/// Maximum wait of the sync thread for more commands and transactions that the next sync can
/// include.
const GATHER_MAX: Duration = Duration::from_millis(1);
/// Maximum wait of the sync thread between two checks while there is no append-only file.
const IDLE_LOOK: Duration = Duration::from_secs(1);
/// Time after which the server tries again to remove append-only files that a rewrite has replaced
/// and whose removal has failed.
const REMOVE_RETRY: Duration = Duration::from_secs(60);
/// Number of consecutive failed rewrites of the append-only file above which each further failure
/// delays the next automatic rewrite. Redis also delays such rewrites.
const FAILURES_BEFORE_DELAY: u64 = 3;
/// Maximum delay of an automatic rewrite of the append-only file after a failed one.
const DELAY_MAX: Duration = Duration::from_secs(60 * 60);

/// Returns the present time of two clocks: milliseconds since the start of the server, and Unix
/// seconds.
fn moment(shared_started: Instant) -> Moment {
    Moment { clock_ms: shared_started.elapsed().as_millis() as u64, unix_s: unix_ms() / 1000 }
}

impl Shared {
    fn moment(&self) -> Moment {
        Moment { clock_ms: self.engine.uptime(Instant::now()).as_millis() as u64, unix_s: unix_ms() / 1000 }
    }
}

/// The reader of the change log that passes each batch of changes to the writer of the append-only
/// file. Called by the thread that merges the changes of all threads into one order.
struct AofReader {
    writer: Arc<Writer>,
    kept: RetainedBytes,
    started: Instant,
    append_only: Arc<AppendOnly>,
}

impl LogReader for AofReader {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut appended = self.writer.append(batch, moment(self.started));
        if appended.has_job && self.syncs_at_once() {
            appended = self.write_and_sync().unwrap_or(appended);
        }
        self.kept.set(appended.kept_bytes);
        if appended.has_job && appended.waiting_units >= self.append_only.gathers_units.load(Relaxed) {
            self.append_only.signal.set();
        }
        appended.released()
    }
}

impl AofReader {
    /// Returns true if the thread that merges the change log should write and sync by itself,
    /// because a sync takes less time than waking the sync thread. Returns false while clients wait
    /// in WAITAOF, because only the sync thread resumes them.
    fn syncs_at_once(&self) -> bool {
        let append_only = &self.append_only;
        (1..SYNC_AT_ONCE_US_MAX).contains(&append_only.sync_us.get())
            && append_only.waiters.load(Relaxed) == 0
            && append_only.sleep_us.load(Relaxed) == 0
    }

    /// Performs the write or sync of the append-only file that is due, and returns its result;
    /// `None` if none is due now.
    fn write_and_sync(&self) -> Option<Appended> {
        let Next::Job(job) = self.writer.next(moment(self.started)) else { return None };
        let done = timed(&self.append_only, job);
        Some(self.writer.done(done, moment(self.started)))
    }
}

/// Performs a write or sync of the append-only file, and adds its duration to the running mean.
fn timed(append_only: &AppendOnly, job: Job) -> Done {
    let began = Instant::now();
    std::thread::sleep(Duration::from_micros(append_only.sleep_us.load(Relaxed)));
    let done = job.run();
    append_only.sync_us.add(began.elapsed().as_micros() as u64);
    done
}

/// Runs the sync thread until the server stops. This thread syncs the append-only file, and writes
/// the bytes that the thread which merges the change log could not write at once.
pub fn run(shared: &Shared) {
    let outbox = Outbox::default();
    let append_only = &shared.append_only;
    // Acquire: pairs with the swap in `Shared::stop`.
    while !shared.stopping.load(Acquire) {
        let attached = append_only.state().attached().cloned();
        let Some(active) = attached else {
            shared.append_only.signal.wait(IDLE_LOOK);
            continue;
        };
        match active.writer.next(shared.moment()) {
            Next::Job(job) => {
                let units = job.units();
                let done = timed(append_only, job);
                let appended = active.writer.done(done, shared.moment());
                note_kept(shared, &active, appended);
                note(shared, &active, appended, &outbox);
                wait_for_group_commit(append_only, units, appended);
            }
            Next::At(clock_ms) => {
                note(shared, &active, active.writer.appended(shared.moment()), &outbox);
                let left_ms = clock_ms.saturating_sub(shared.moment().clock_ms);
                shared.append_only.signal.wait(Duration::from_millis(left_ms).min(SYNC_LOOK));
            }
            Next::Nothing => {
                note(shared, &active, active.writer.appended(shared.moment()), &outbox);
                shared.append_only.signal.wait(SYNC_LOOK);
            }
        }
    }
}

/// Waits after a sync until enough commands and transactions have arrived to be synced together: as
/// many as the last sync included, plus those that arrived during it. Waits at most for the mean
/// time of a sync, and at most [`GATHER_MAX`].
fn wait_for_group_commit(append_only: &AppendOnly, units: u64, appended: Appended) {
    if units == 0 {
        return;
    }
    append_only.gathers_units.store(units + appended.waiting_units, Relaxed);
    append_only.signal.wait(Duration::from_micros(append_only.sync_us.get()).min(GATHER_MAX));
    append_only.gathers_units.store(0, Relaxed);
}

/// Releases the replies that waited for a write or sync of the append-only file, resumes clients of
/// WAITAOF, and reports errors. Also called without a write or sync: a write of another thread may
/// have failed, or a rewrite may have replaced the file that could not be written.
fn note(shared: &Shared, active: &Active, appended: Appended, outbox: &Outbox) {
    shared.engine.log.confirm([(active.reader, appended.released())], outbox);
    shared.wake(outbox);
    note_synced(shared);
    note_error(shared, active);
    if active.writer.needs_rewrite() {
        tracing::warn!(
            "A sync of the AOF file failed, so the file may lack changes. The server rewrites it."
        );
        shared.append_only.state().is_scheduled = true;
    }
}

/// Records the number of bytes that the writer of the append-only file keeps in memory after a
/// write or sync.
fn note_kept(shared: &Shared, active: &Active, appended: Appended) {
    // The lock is held to the end of the function, for the same reason as in `note_error`.
    let state = shared.append_only.state();
    if state.is_attached(active) {
        shared.engine.log.kept().set(appended.kept_bytes);
    }
}

/// Makes the engine refuse write commands while the append-only file cannot be written, and accept
/// them again afterwards.
fn note_error(shared: &Shared, active: &Active) {
    // The lock is held to the end of the function. So no other thread turns the file off in
    // between, after which there would be no error to report.
    let state = shared.append_only.state();
    if !state.is_attached(active) {
        return;
    }
    let (trouble, server_state) = (active.writer.figures().trouble, &shared.engine.server_state);
    match (&trouble, server_state.log_failed.load(Relaxed)) {
        (Some(trouble), false) => tracing::warn!("Error writing to the AOF file: {trouble}"),
        (None, true) => tracing::warn!("AOF write error looks solved. The server can write again."),
        _ => {}
    }
    server_state.note_log(trouble.as_ref().map(system_words));
}

/// Returns the message of a system error without the error number, for error replies, as in Redis.
fn system_words(trouble: &FileError) -> &str {
    trouble.0.find(" (os error ").map_or(&trouble.0, |at| &trouble.0[..at])
}

/// Resumes the clients that wait in WAITAOF if more changes are synced than at the last call. Only
/// the sync thread calls it.
fn note_synced(shared: &Shared) {
    let append_only = &shared.append_only;
    let synced = shared.engine.log.released(Level::Synced);
    // Relaxed: only the thread that syncs calls this function.
    if append_only.announced_sync.swap(synced, Relaxed) != synced && append_only.waiters.load(Relaxed) > 0 {
        shared.broadcast(|| Message::Resume);
    }
}

/// Creates the folder of the append-only files if it is missing, and returns it.
pub(super) fn make_folder(store: &ConfigStore) -> Result<DataFolder, FileError> {
    let path = files_path(store);
    let made = match fs::create_dir(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    made.map_err(|error| FileError(format!("Can't create the folder {}: {error}", path.display())))?;
    Ok(DataFolder::new(&path))
}

/// The reason why an append-only file cannot be turned on.
pub enum Unprepared {
    /// Another server holds the lock of the data folder.
    Taken(FileError),
    /// The append-only files cannot be opened.
    Failed(FileError),
}

impl From<FileError> for Unprepared {
    fn from(trouble: FileError) -> Self {
        Self::Failed(trouble)
    }
}

/// Checks that the append-only file can be turned on. Does nothing unless `appendonly` is `yes` in
/// `store`. Locks the data folder against other servers.
///
/// # Errors
/// The reason why it cannot be turned on.
pub fn prepare(shared: &Shared, store: &ConfigStore) -> Result<(), Unprepared> {
    if !options::APPENDONLY.of(store) {
        return Ok(());
    }
    // The lock comes first, because the files may belong to another server.
    shared.persistence.lock_folder(store).map_err(Unprepared::Taken)?;
    let (folder, name) = (make_folder(store)?, files_name(store));
    let files = Files::open(&folder, &name).map_err(|error| FileError(error.to_string()))?;
    files.try_unnamed_incr(&folder)?;
    Ok(())
}

/// Passes `appendfsync` and `aof-timestamp-enabled` to the writer of the append-only file. The
/// configuration stays locked during the call: if an option is changed twice at the same time, the
/// later change takes effect.
fn set_up(shared: &Shared, writer: &Writer) {
    let store = shared.config();
    writer.set_up(options::APPENDFSYNC.of(&store), times(&store));
}

/// Returns the value of `aof-timestamp-enabled`, which decides if annotations with the time are
/// written to the append-only file.
fn times(store: &ConfigStore) -> Times {
    if options::AOF_TIMESTAMP_ENABLED.of(store) { Times::Written } else { Times::Left }
}

/// Turns the append-only file on or off and sets it up, after options have changed. `as_owner`
/// calls its argument as the exclusive owner of the keyspace. `stopped` is the result of
/// [`stop_rewrites`], if the file is turned off. While data is being loaded, turns nothing on;
/// [`settle`] applies the options after the load.
pub(crate) fn follow_options(
    shared: &Arc<Shared>,
    stopped: Option<Active>,
    as_owner: impl FnOnce(&mut dyn FnMut(&Exclusive)),
) {
    if let Some(active) = stopped {
        turn_off(shared, &active, as_owner);
    }
    if !shared.has_all_data() || !options::APPENDONLY.of(&shared.config()) {
        return;
    }
    let (active, awaits_base) = {
        let mut state = shared.append_only.state();
        let active = state.active.clone();
        let awaits_base = std::mem::replace(&mut state.awaits_base, active.is_none());
        (active, awaits_base)
    };
    if let Some(active) = active {
        set_up(shared, &active.writer);
        shared.append_only.signal.set();
    } else if !awaits_base {
        begin_first_base(shared);
    }
}

/// Applies the options of the append-only file that changed while data was being loaded.
pub(super) fn settle(shared: &Arc<Shared>) {
    let is_off = !options::APPENDONLY.of(&shared.config());
    let stopped = if is_off { stop_rewrites(shared) } else { None };
    follow_options(shared, stopped, |act| shared.engine.gate.exclusive(|alone| act(alone)));
}

/// Begins the rewrite that writes the first base of an append-only file, or schedules this rewrite.
fn begin_first_base(shared: &Arc<Shared>) {
    // Earlier failures do not delay this rewrite, because a user requested it. As in Redis.
    shared.append_only.state().forget_failures();
    match rewrite_in_background(shared) {
        BeginResult::Started => {}
        BeginResult::Scheduled => tracing::info!(
            "AOF was enabled but there is already another background operation. An AOF background was scheduled \
             to start when possible."
        ),
        BeginResult::InProgress => {
            tracing::info!(
                "AOF was enabled but there is already an AOF rewriting in background. Stopping background AOF and \
                 starting a rewrite now."
            );
            schedule(shared);
            if let Some(current) = &shared.persistence.state().current {
                current.save.abandon(&shared.engine);
            }
        }
    }
}

/// Cancels the rewrite of the append-only file in progress and the scheduled one, because the
/// append-only file is turned off. Returns the writer, which the caller must detach from the change
/// log. Returns `None` if there is no writer, and while data is loaded. The caller is outside the
/// gate that guards the keyspace.
pub(crate) fn stop_rewrites(shared: &Shared) -> Option<Active> {
    if shared.engine.server_state.is_loading.load(Relaxed) {
        return None;
    }
    loop {
        cancel_rewrite(shared);
        let mut state = shared.append_only.state();
        // Another rewrite may have begun after the cancelled one.
        if state.rewrite.is_none() {
            state.awaits_base = false;
            state.is_scheduled = false;
            return state.active.take();
        }
    }
}

fn turn_off(shared: &Shared, active: &Active, as_owner: impl FnOnce(&mut dyn FnMut(&Exclusive))) {
    let outbox = Outbox::default();
    as_owner(&mut |alone| drop(shared.engine.log.detach(alone, active.reader, &outbox)));
    shared.wake(&outbox);
    finish_detached(shared, active);
}

/// Stops writing changes to the append-only file, because all data is about to be replaced. The
/// files on disk keep the old data until a new base replaces them. Returns the writer for
/// [`finish_detached`]; `None` if changes are not written to a file. The caller is the exclusive
/// owner of the keyspace, and no rewrite is in progress.
pub(super) fn suspend(shared: &Shared, alone: &Exclusive, outbox: &Outbox) -> Option<Active> {
    let active = {
        let mut state = shared.append_only.state();
        (state.awaits_base, state.is_scheduled) = (false, false);
        state.active.take()?
    };
    drop(shared.engine.log.detach(alone, active.reader, outbox));
    Some(active)
}

/// Writes and syncs the last changes of a writer of the append-only file that is detached from the
/// change log.
pub(super) fn finish_detached(shared: &Shared, active: &Active) {
    if let Err(trouble) = active.writer.finish() {
        tracing::warn!("The last changes could not be written to the AOF file: {trouble}");
    }
    shared.append_only.state().earlier_len_bytes += active.writer.figures().len_bytes;
    shared.engine.log.kept().set(0);
    shared.engine.server_state.note_log(None);
}

/// Attaches a writer, which appends all later changes to `file`, to the change log. The file is an
/// append-only file, which has `len_bytes` bytes now. Returns `None` if the change log has its
/// maximum number of readers. The caller is the exclusive owner of the keyspace.
fn attach(
    shared: &Shared,
    alone: &Exclusive,
    file: Arc<dyn LogFile>,
    len_bytes: u64,
    outbox: &Outbox,
) -> Option<Active> {
    // The exclusive owner runs no unit, so the units of all drawn log positions are complete.
    let writer = Arc::new(Writer::new(file, len_bytes, SyncPolicy::EverySecond, shared.engine.log.drawn()));
    set_up(shared, &writer);
    let reader = AofReader {
        writer: Arc::clone(&writer),
        kept: shared.engine.log.kept().clone(),
        started: shared.engine.started(),
        append_only: Arc::clone(&shared.append_only),
    };
    let reader = shared.engine.log.attach(alone, (Box::new(reader), LogTarget::File), outbox)?;
    Some(Active { writer, reader })
}

/// Makes a writer of the append-only file work without syncs until the base of its file is
/// complete, because the file is useless before. Replies do not wait for syncs during this time.
fn await_base(shared: &Shared, attached: &Active) {
    attached.writer.set_up(SyncPolicy::EverySecond, times(&shared.config()));
    attached.writer.set_syncs(Syncs::Resting);
}

/// The result of a request to rewrite the append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginResult {
    /// The rewrite of the append-only file has begun.
    Started,
    /// The rewrite will begin once a save or a removal of replaced append-only files has ended.
    Scheduled,
    /// A rewrite of the append-only file is already in progress.
    InProgress,
}

/// Begins a rewrite of the append-only file in the background. Until it ends, no background save
/// begins ([`super::fix`]): a save must not run between the start of the rewrite and the moment
/// whose data the new base contains.
pub fn rewrite_in_background(shared: &Arc<Shared>) -> BeginResult {
    {
        let mut state = shared.append_only.state();
        if state.rewrite.is_some() {
            return BeginResult::InProgress;
        }
        if state.is_removing || shared.persistence.state().current.is_some() {
            state.is_scheduled = true;
            return BeginResult::Scheduled;
        }
        begin(&mut state);
    }
    tracing::info!("Background append only file rewriting started");
    let thread_shared = Arc::clone(shared);
    let body = move || {
        let result = rewrite(&thread_shared, Way::Gate);
        end(&thread_shared, result);
    };
    if let Err(error) = std::thread::Builder::new().name("aof-rewrite".to_owned()).spawn(body) {
        end(shared, Err(FileError(error.to_string()).into()));
    }
    BeginResult::Started
}

/// Schedules a rewrite of the append-only file, which the housekeeper begins as soon as possible.
fn schedule(shared: &Shared) {
    shared.append_only.state().is_scheduled = true;
}

/// Begins a rewrite of the append-only file in the background because a client requests it
/// (BGREWRITEAOF). Earlier failures do not delay the rewrite, as in Redis.
pub fn rewrite_as_asked(shared: &Arc<Shared>) -> BeginResult {
    if shared.append_only.is_rewriting() {
        return BeginResult::InProgress;
    }
    shared.append_only.state().forget_failures();
    rewrite_in_background(shared)
}

/// Schedules a rewrite of the append-only file that BGREWRITEAOF in a transaction requests. The
/// rewrite begins after the transaction.
pub fn schedule_as_asked(shared: &Shared) -> BeginResult {
    if shared.append_only.is_rewriting() {
        return BeginResult::InProgress;
    }
    shared.append_only.state().forget_failures();
    schedule(shared);
    BeginResult::Scheduled
}

fn begin(state: &mut State) {
    state.rewrite = Some(Rewrite { since: Instant::now() });
    state.is_scheduled = false;
    state.record.begun += 1;
}

/// Records the result of the rewrite of the append-only file, which has ended.
fn end(shared: &Shared, result: Result<(), Unsaved>) {
    let mut state = shared.append_only.state();
    let Some(rewrite) = state.rewrite.take() else { return };
    state.record.last_took_s = Some(rewrite.since.elapsed().as_secs());
    match result {
        Ok(()) => {
            state.record.last_succeeded = true;
            state.record.failures = 0;
            state.retry_at = None;
            tracing::info!("Background AOF rewrite finished successfully");
        }
        Err(Unsaved::Cancelled) => {
            tracing::warn!("Background AOF rewrite terminated by signal 10");
        }
        Err(Unsaved::Failed(trouble)) => {
            state.record.last_succeeded = false;
            state.record.failures += 1;
            let over = state.record.failures.saturating_sub(FAILURES_BEFORE_DELAY);
            let delay = Duration::from_secs(60 << over.min(6)).min(DELAY_MAX);
            state.retry_at = (over > 0).then(|| Instant::now() + delay);
            tracing::warn!("Background AOF rewrite terminated with error: {trouble}");
            if let Some(minutes) = (over > 0).then_some(delay.as_secs() / 60) {
                tracing::warn!(
                    "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in {minutes} minutes"
                );
            }
        }
    }
    drop(state);
    shared.persistence.ended.notify_all();
}

/// Cancels the rewrite of the append-only file that is in progress, and waits for its end. Returns
/// true if there was one. The caller is outside the gate that guards the keyspace.
pub fn cancel_rewrite(shared: &Shared) -> bool {
    if !shared.append_only.is_rewriting() {
        return false;
    }
    tracing::info!("Killing running AOF rewrite child: its result is no longer needed");
    loop {
        if let Some(current) = &shared.persistence.state().current
            && current.initiator == SaveInitiator::AofRewrite
        {
            current.save.abandon(&shared.engine);
        }
        if !shared.append_only.is_rewriting() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until no rewrite of the append-only file is in progress.
pub fn wait_for_rewrite(shared: &Shared) {
    while shared.append_only.is_rewriting() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The file that gets the changes after the moment whose data the new base of a rewrite contains.
enum IncrTarget {
    /// No file gets the changes, because the append-only file is off.
    Nowhere,
    /// The changes go to an incremental file that the manifest already names, with its sequence
    /// number.
    Named(Arc<dyn LogFile>, i64),
    /// The changes go to an incremental file that the manifest does not name yet.
    Unnamed(Arc<dyn LogFile>),
}

/// Rewrites the append-only file: writes a new base with the present data. With [`Way::Gate`] the
/// caller is outside the gate that guards the keyspace; otherwise it is the exclusive owner.
fn rewrite(shared: &Shared, way: Way) -> Result<(), Unsaved> {
    let (folder, name, kind, syncing) = {
        let store = shared.config();
        let kind = match options::AOF_USE_RDB_PREAMBLE.of(&store) {
            true => BaseKind::Rdb,
            false => BaseKind::Aof,
        };
        let syncing = match options::AOF_REWRITE_INCREMENTAL_FSYNC.of(&store) {
            true => Syncing::Every { len_bytes: super::SYNC_STEP_BYTES },
            false => Syncing::AtEnd,
        };
        shared.persistence.lock_folder(&store)?;
        (make_folder(&store)?, files_name(&store), kind, syncing)
    };
    let (active, awaits_base) = {
        let state = shared.append_only.state();
        (state.active.clone(), state.awaits_base)
    };
    let mut files = take_files(shared, &folder, &name)?;
    let result = rewrite_files(shared, (way, active, awaits_base), &mut files, (&folder, kind, syncing));
    for aside in files.take_set_aside() {
        tracing::warn!(
            "The server has not loaded the append-only file in {}. It renamed the manifest to {aside} and \
             kept the files. Remove them if you do not need them. To use them again, stop the server and \
             rename {aside} to {}.",
            folder.path().display(),
            manifest_name(&name)
        );
    }
    shared.append_only.state().files = Some(files);
    result
}

/// Returns the list of append-only files for a rewrite into `folder`. If the server already uses
/// files in this folder or writes changes to them, returns their list. Otherwise returns a new
/// list, and existing files in the folder stay.
///
/// # Errors
/// The folder contains another append-only file although changes are written to one in a different
/// folder; or the manifest of the folder is invalid.
fn take_files(shared: &Shared, folder: &DataFolder, name: &str) -> Result<Files, FileError> {
    let (is_active, is_here, is_elsewhere) = {
        let state = shared.append_only.state();
        let is_here = state.files_path.as_deref() == Some(folder.path());
        (state.active.is_some(), is_here, state.files_path.is_some() && !is_here)
    };
    if is_active && is_elsewhere {
        let is_other = |file: &String| is_part_name(name, file) || *file == manifest_name(name);
        let others: Vec<String> = folder.names()?.into_iter().filter(is_other).collect();
        if !others.is_empty() {
            return Err(FileError(format!(
                "'dir' was changed, but {} holds another append-only file ({}): move those files to another \
                 folder",
                folder.path().display(),
                others.join(", ")
            )));
        }
    }
    // An invalid manifest is an error: it must not be replaced.
    let found = Files::open(folder, name).map_err(|error| FileError(error.to_string()));
    let mut state = shared.append_only.state();
    let known = state.files.take().filter(|_| is_here || is_active);
    let files = match (known, found) {
        (Some(files), _) => files,
        (None, found) => {
            let found = found?;
            if is_active || found.manifest().is_empty() { found } else { Files::create_new(name) }
        }
    };
    state.files_path = Some(folder.path().to_owned());
    Ok(files)
}

fn rewrite_files(
    shared: &Shared,
    (way, active, awaits_base): (Way, Option<Active>, bool),
    files: &mut Files,
    (folder, kind, syncing): (&DataFolder, BaseKind, Syncing),
) -> Result<(), Unsaved> {
    let follows = match &active {
        Some(_) => {
            // With `appendfsync no`, no other code syncs the last file, but clients may wait for
            // its changes after the point. A failed sync is ignored, because the new base contains
            // these changes.
            let never = options::APPENDFSYNC.of(&shared.config()) == SyncPolicy::Never;
            if let Some(last) = files.manifest().incr.last().filter(|_| never) {
                let _ = folder.sync_file(&last.name);
            }
            let file = files.begin_incr(folder)?;
            IncrTarget::Named(file, files.last_incr().unwrap_or_default())
        }
        None if awaits_base => IncrTarget::Unnamed(files.begin_unnamed_incr(folder)?),
        None => IncrTarget::Nowhere,
    };
    let mut options = super::base_options(shared, kind);
    let (mut save, mut attached, mut left_len_bytes) = (None, None, 0);
    let outbox = Outbox::default();
    let mut at_point = |alone: &Exclusive| {
        // For `--restore-until`, no change in the base may be later than the time of the base. So
        // the time is set at the point.
        super::set_time(&mut options, unix_ms() / 1000);
        save = fix(shared, alone, options.clone(), SaveInitiator::AofRewrite);
        match (&follows, &active) {
            (IncrTarget::Named(file, _), Some(active)) => {
                // The changes before the point are merged before the writer switches to the new
                // file.
                shared.engine.log.begin_part(alone, LogTarget::File, &outbox);
                left_len_bytes = active.writer.turn_to(Arc::clone(file));
            }
            (IncrTarget::Unnamed(file), _) if save.is_some() => {
                attached = attach(shared, alone, Arc::clone(file), 0, &outbox);
                attached.iter().for_each(|attached| await_base(shared, attached));
                shared.append_only.state().baseless = attached.clone();
            }
            _ => {}
        }
    };
    shared.engine.gate.exclusive(|alone| at_point(alone));
    shared.wake(&outbox);
    shared.append_only.signal.set();
    shared.append_only.state().earlier_len_bytes += left_len_bytes;
    let result = match save {
        None => Err(FileError("another save is in progress".to_owned()).into()),
        Some(save) => {
            let name = files.next_base(folder, kind);
            write_base(shared, (way, &save), &name, (folder, syncing))
        }
    };
    match result {
        Ok(base_len_bytes) => finish(shared, files, (folder, kind), (follows, attached), base_len_bytes),
        Err(unsaved) => {
            if let IncrTarget::Unnamed(_) = follows {
                give_up_turning_on(shared, attached);
                tracing::info!("Removing the temp incr aof file");
                files.drop_unnamed_incr(folder);
            }
            Err(unsaved)
        }
    }
}

/// Writes the file of the new base of the append-only file. Returns its length in bytes.
fn write_base(
    shared: &Shared,
    (way, save): (Way, &Save),
    name: &str,
    (folder, syncing): (&DataFolder, Syncing),
) -> Result<u64, Unsaved> {
    let temporary = folder::temporary_base_name(std::process::id());
    let target = Target { folder, temporary, name: name.to_owned(), place: Place::Free, syncing };
    let result = folder::save_into(target, save, &shared.engine, |out| run_walkers(shared, save, out, way));
    shared.persistence.state().current = None;
    shared.persistence.ended.notify_all();
    result.map(|()| save.progress().len_bytes)
}

/// Writes the manifest that names the new base, and updates the state of the append-only file.
fn finish(
    shared: &Shared,
    files: &mut Files,
    (folder, kind): (&DataFolder, BaseKind),
    (follows, attached): (IncrTarget, Option<Active>),
    base_len_bytes: u64,
) -> Result<(), Unsaved> {
    let kept = match &follows {
        IncrTarget::Nowhere => Kept::None,
        IncrTarget::Named(_, seq) => Kept::From { seq: *seq },
        IncrTarget::Unnamed(_) => Kept::Unnamed,
    };
    let restored_until_s = shared.append_only.state().restored_until_s;
    let now_s = unix_ms() / 1000;
    let taken = files.take_base(folder, NewBase { kind, kept, now_s, restored_until_s });
    if let Err(trouble) = taken {
        if kept == Kept::Unnamed {
            give_up_turning_on(shared, attached);
        }
        return Err(trouble.into());
    }
    if let Some(attached) = &attached {
        set_up(shared, &attached.writer);
        attached.writer.set_syncs(Syncs::Done);
    }
    if let (IncrTarget::Named(file, _), Some(active)) = (&follows, shared.append_only.active()) {
        // The base contains the earlier changes that could not be written. So the writer has no
        // error any more.
        active.writer.base_is_in(file);
    }
    {
        let mut state = shared.append_only.state();
        if let Some(attached) = attached {
            state.active = Some(attached);
            state.baseless = None;
            state.awaits_base = false;
        }
        state.restored_until_s = None;
        state.earlier_len_bytes = base_len_bytes;
        let present = state.active.as_ref().map_or(0, |active| active.writer.figures().len_bytes);
        state.base_len_bytes = base_len_bytes + present;
    }
    if let Some(active) = shared.append_only.active() {
        // Changes of options did not reach the writer before it was in the state. So they are
        // applied again.
        set_up(shared, &active.writer);
    }
    shared.append_only.signal.set();
    remove_history(shared, files, folder);
    Ok(())
}

/// Returns the time in seconds for which append-only files are kept after a rewrite has replaced
/// them; `None` if the server never removes them.
fn history_ttl_s(store: &ConfigStore) -> Option<i64> {
    (!options::AOF_DISABLE_AUTO_GC.of(store)).then(|| options::AOF_HISTORY_TTL.of(store))
}

/// Removes the history files that a rewrite replaced more than `aof-history-ttl` seconds ago. If
/// this fails, it is tried again after [`REMOVE_RETRY`].
fn remove_history(shared: &Shared, files: &mut Files, folder: &DataFolder) {
    let Some(ttl_s) = history_ttl_s(&shared.config()) else { return };
    match files.remove_history(folder, unix_ms() / 1000, ttl_s) {
        Ok(0) => {}
        Ok(count) if ttl_s == 0 => tracing::debug!("Removed {count} AOF files that a rewrite replaced"),
        Ok(count) => tracing::info!(
            "Removed {count} AOF files that a rewrite replaced more than {ttl_s} seconds ago \
             (aof-history-ttl)"
        ),
        Err(trouble) => {
            shared.append_only.state().remove_at = Some(Instant::now() + REMOVE_RETRY);
            tracing::warn!("AOF files that are no longer needed could not be removed: {trouble}");
        }
    }
}

/// Starts a thread that removes append-only files that a rewrite has replaced, if it replaced any
/// of them more than `aof-history-ttl` seconds ago. The housekeeper calls this function every
/// second.
pub fn remove_history_if_due(shared: &Arc<Shared>) {
    let Some(ttl_s) = history_ttl_s(&shared.config()) else { return };
    let mut state = shared.append_only.state();
    let may_try = !state.is_removing && state.remove_at.is_none_or(|at| at <= Instant::now());
    let is_idle = state.active.is_some() && state.rewrite.is_none() && may_try;
    let Some(files) = state.files.as_ref().filter(|_| is_idle) else { return };
    if !files.manifest().has_expired(unix_ms() / 1000, ttl_s) {
        return;
    }
    let Some(mut files) = state.files.take() else { return };
    state.is_removing = true;
    drop(state);
    let thread_shared = Arc::clone(shared);
    let body = move || {
        let path = files_path(&thread_shared.config());
        remove_history(&thread_shared, &mut files, &DataFolder::new(&path));
        let mut state = thread_shared.append_only.state();
        state.files = Some(files);
        state.is_removing = false;
    };
    if std::thread::Builder::new().name("aof-history".to_owned()).spawn(body).is_err() {
        // The next use reads the manifest again.
        shared.append_only.state().is_removing = false;
    }
}

/// Stops writing changes to a new append-only file whose base could not be written. Because
/// `appendonly` is still `yes`, the server tries again later.
fn give_up_turning_on(shared: &Shared, attached: Option<Active>) {
    let Some(attached) = attached else { return };
    shared.append_only.state().baseless = None;
    let outbox = Outbox::default();
    shared.engine.gate.exclusive(|alone| drop(shared.engine.log.detach(alone, attached.reader, &outbox)));
    shared.wake(&outbox);
    // The file has no writer now, so no bytes are kept for it, and it has no error.
    shared.engine.log.kept().set(0);
    shared.engine.server_state.note_log(None);
}

/// Begins a rewrite of the append-only file if one is due. It is due if it is scheduled, if a first
/// base is needed, if the file has grown enough, or after a failed sync. The housekeeper calls this
/// function ten times a second.
pub fn rewrite_if_due(shared: &Arc<Shared>) {
    if !shared.has_all_data() || shared.persistence.state().current.is_some() {
        return;
    }
    let (percentage, len_bytes_min) = {
        let store = shared.config();
        (options::AUTO_AOF_REWRITE_PERCENTAGE.of(&store), options::AUTO_AOF_REWRITE_MIN_SIZE.of(&store))
    };
    let figures = shared.append_only.figures();
    let may_try = shared.append_only.state().retry_at.is_none_or(|at| at <= Instant::now());
    if figures.rewrites_for.is_some() {
        return;
    }
    let (is_on, awaits_base) = (figures.writer.is_some(), shared.append_only.state().awaits_base);
    let is_damaged = figures.writer.is_some_and(|writer| writer.is_damaged);
    let base = figures.base_len_bytes.max(1);
    let growth = figures.len_bytes.saturating_mul(100) / base;
    let has_grown =
        is_on && percentage > 0 && figures.len_bytes > len_bytes_min && growth >= 100 + percentage as u64;
    if has_grown && may_try {
        tracing::info!("Starting automatic rewriting of AOF on {}% growth", growth - 100);
    }
    if figures.is_scheduled || (may_try && (has_grown || awaits_base || is_damaged)) {
        rewrite_in_background(shared);
    }
}

/// Pauses the syncs of the append-only file while a save or rewrite is in progress, if
/// `no-appendfsync-on-rewrite` is `yes`; otherwise resumes them. The housekeeper calls this
/// function ten times a second.
pub fn follow_rewrites(shared: &Shared) {
    let Some(active) = shared.append_only.active() else { return };
    let rests = options::NO_APPENDFSYNC_ON_REWRITE.of(&shared.config());
    let rests = rests && shared.persistence.state().current.is_some();
    active.writer.set_syncs(if rests { Syncs::Resting } else { Syncs::Done });
}

/// Writes all changes to the append-only file and syncs it before the server ends. The caller is
/// the exclusive owner of the keyspace.
///
/// # Errors
/// The changes could not be written or synced.
pub fn finish_all(shared: &Shared) -> Result<(), FileError> {
    let Some(active) = shared.append_only.active() else { return Ok(()) };
    let outbox = Outbox::default();
    shared.engine.log.readers(&outbox);
    let result = active.writer.finish();
    // Also after an error: what was written before it may permit some replies.
    let released = active.writer.appended(shared.moment()).released();
    shared.engine.log.confirm([(active.reader, released)], &outbox);
    shared.wake(&outbox);
    result
}

/// Opens the append-only files after all data is loaded and before clients may change the data.
/// Creates missing ones. `last_len_bytes` is the length of the last incremental file, and
/// `all_len_bytes` the length of all files.
///
/// # Errors
/// The reason why there is no file to write to.
pub fn open(shared: &Shared, files: Files, last_len_bytes: u64, all_len_bytes: u64) -> Result<(), FileError> {
    let folder = make_folder(&shared.config())?;
    let is_restored = shared.append_only.state().restored_until_s.is_some();
    // As in Redis, incremental files need no base if they contain all changes since the first one.
    let has_base = !is_restored && (files.manifest().base.is_some() || files.last_incr().is_some());
    {
        let mut state = shared.append_only.state();
        state.files = Some(files);
        state.files_path = Some(folder.path().to_owned());
        state.awaits_base = !has_base;
        if !has_base {
            state.rewrite = Some(Rewrite { since: Instant::now() });
        }
    }
    if !has_base {
        let result = rewrite(shared, Way::Gate);
        shared.append_only.state().rewrite = None;
        return match result {
            Ok(()) => Ok(()),
            Err(Unsaved::Failed(trouble)) => Err(trouble),
            Err(Unsaved::Cancelled) => Err(FileError("the server is shutting down".to_owned())),
        };
    }
    let mut files = shared.append_only.state().files.take().expect("it was put there");
    let file = match files.last_incr() {
        Some(_) => files.resume_incr(&folder, last_len_bytes)?,
        None => files.begin_incr(&folder)?,
    };
    let outbox = Outbox::default();
    let active = shared
        .engine
        .gate
        .exclusive(|alone| attach(shared, alone, file, last_len_bytes, &outbox))
        .ok_or(FileError("the change log has its maximum number of readers".to_owned()))?;
    let mut state = shared.append_only.state();
    state.files = Some(files);
    state.active = Some(active);
    state.earlier_len_bytes = all_len_bytes - last_len_bytes;
    state.base_len_bytes = all_len_bytes;
    Ok(())
}
