//! Online backups (BACKUP): the threads, the files and the options. `persist::backup` has the
//! states and the order of the operations.
//!
//! ```text
//!   START, the housekeeper ─► alone: point of the snapshot, a reader of the change log attached
//!                             ├─► thread "backup" and walkers: base
//!                             └─► the merging thread: incremental file, until the seal
//!   SEAL ─► alone: reader detached ─► incremental file synced ─► manifest
//! ```
//! A backup has a reader of the change log and files of its own, whether or not there is an
//! append-only file. So a rewrite, or turning `appendonly` on or off, does not affect it.
//!
//! An error of its files fails the backup, and no reply waits for a sync of them. But the thread
//! that merges the changes writes them to the incremental file before it continues. So a slow disk
//! of the backup delays clients that write, as one of the append-only file does. On a full disk,
//! the append-only file fails as well, if it is on the same disk.
//!
//! START, SEAL, ABORT, CLEANUP and the work that the housekeeper begins run on threads of their
//! own, because they wait for the disk, for the gate and for each other. Their callers are outside
//! the gate that guards the keyspace.
//!
//! At any time at most one thread works on the files (`BackupState::claim`). Whoever fails the
//! backup meanwhile only changes its state; the files are removed by that thread or by the
//! housekeeper. No thread holds the lock of the state while it waits for the gate, or works on
//! files.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use engine::log::level::Released;
use engine::log::merger::{LogBatch, LogReader};
use engine::log::target::LogTarget;
use engine::threads::Outbox;
use keyspace::Exclusive;
use keyspace::snapshot::OnFlush;
use persist::backup::{Backup, FileNames, Refusal, State};
use persist::folder::{self, FileError, Folder as _, LogFile, Place, Syncing, Target, Unsaved};
use persist::save::{Save, SaveOptions, Way};

use super::{fix, run_walkers, save_options_for};
use crate::append_only::{files_name, files_path};
use crate::config::ConfigStore;
use crate::config::table::persistence as options;
use crate::context::unix_ms;
use crate::shared::Shared;
use crate::snapshots::backup::{BackupFiles, BackupReader, BackupState, Work};
use crate::snapshots::{DataFolder, SaveInitiator, folder_path};

/// Time after which the files of a failed or expired backup are removed again after an error.
const REMOVE_RETRY: Duration = Duration::from_secs(60);

/// The reader of the change log that writes the changes to the incremental file of the backup. The
/// thread that merges the changes of all threads calls it, and waits for each write.
struct IncrWriter {
    file: Arc<dyn LogFile>,
    trouble: Arc<OnceLock<FileError>>,
}

impl LogReader for IncrWriter {
    fn append(&mut self, batch: &LogBatch<'_>) -> Released {
        let mut failed = self.trouble.get().is_some();
        batch.for_each_part(LogTarget::File, |part| {
            if failed {
                return;
            }
            if let Err(unwritten) = self.file.append(part) {
                failed = true;
                // It is the first error, because nothing is written after it.
                let _ = self.trouble.set(unwritten.trouble);
            }
        });
        Released::ALL
    }
}

/// The reason why a backup did not start.
pub enum Unstarted {
    /// The state of the backup forbids it.
    Refused(Refusal),
    /// The folder of the backup, whose path this is, is not empty.
    NotEmpty(PathBuf),
    /// The folder of the backup cannot be used.
    Failed(FileError),
}

impl From<Refusal> for Unstarted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<FileError> for Unstarted {
    fn from(trouble: FileError) -> Self {
        Self::Failed(trouble)
    }
}

fn trouble(error: &io::Error) -> FileError {
    FileError(error.to_string())
}

/// Returns the absolute path of the backup's folder: `backupdirname` in the folder `dir`.
fn backup_path(store: &ConfigStore) -> Result<PathBuf, FileError> {
    let name = String::from_utf8_lossy(options::BACKUPDIRNAME.of(store)).into_owned();
    std::path::absolute(folder_path(store).join(name)).map_err(|error| trouble(&error))
}

fn is_empty(path: &Path) -> Result<bool, FileError> {
    // Unlike a list of names, this also finds names that are not UTF-8.
    let mut entries = fs::read_dir(path).map_err(|error| trouble(&error))?;
    Ok(entries.next().is_none())
}

/// Creates the folder of the backup if it is missing, and checks that it is empty and is not the
/// folder of the append-only files.
fn prepare_folder(path: &Path, append_only: &Path) -> Result<(), Unstarted> {
    match fs::create_dir(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(trouble(&error).into()),
        _ => {}
    }
    let identity = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino()));
    let own = identity(path).map_err(|error| trouble(&error))?;
    if identity(append_only).is_ok_and(|other| other == own) {
        return Err(FileError("it is the folder of the append-only files".to_owned()).into());
    }
    match is_empty(path)? {
        true => Ok(()),
        false => Err(Unstarted::NotEmpty(path.to_owned())),
    }
}

/// Creates the folder of a backup that is about to start, if it is missing. Returns its path and
/// the option `appendfilename`.
fn prepare(shared: &Shared) -> Result<(PathBuf, String), Unstarted> {
    let (path, append_only, name) = {
        let store = shared.config();
        shared.persistence.lock_folder(&store)?;
        (backup_path(&store)?, files_path(&store), files_name(&store))
    };
    prepare_folder(&path, &append_only)?;
    Ok((path, name))
}

/// Starts a backup, and begins its snapshot unless a save, a rewrite or a load is in progress. Then
/// the housekeeper begins it later. First removes the files of a failed backup.
///
/// # Errors
/// The reason why no backup has started. The state of the backup stays.
pub fn start(shared: &Arc<Shared>) -> Result<(), Unstarted> {
    let backup = &shared.persistence.backup;
    loop {
        settle_failed(shared);
        let mut state = backup.settled(Backup::check_start)?;
        match &state.files {
            // Another backup has failed meanwhile.
            Some(_) if state.remove_at.is_none() => continue,
            Some(left) => return Err(Unstarted::NotEmpty(left.folder.clone())),
            None => {}
        }
        // Other threads leave the state to this one while it examines the folder.
        state.is_busy = true;
        break;
    }
    let prepared = prepare(shared);
    let mut state = backup.state();
    let started = prepared.and_then(|(folder, name)| {
        let number = state.machine.start(unix_ms() / 1000)?;
        let files = BackupFiles { folder, names: FileNames::new(&name, number), own: Arc::default() };
        Ok(Work { number, files, reader: None })
    });
    let work = match started {
        Ok(work) => work,
        Err(unstarted) => {
            backup.release(state);
            return Err(unstarted);
        }
    };
    tracing::info!("Backup {} started", work.number);
    (state.files, state.remove_at) = (Some(work.files.clone()), None);
    backup.note_change(state);
    match super::full_sync::is_busy(shared) {
        true => end_work(shared, work.number, Ok(())),
        false => begin_snapshot(shared, work),
    }
    Ok(())
}

/// Begins the snapshot of a pending backup, unless a save, a rewrite or a load is in progress; then
/// the housekeeper tries again.
fn begin_snapshot(shared: &Arc<Shared>, work: Work) {
    let Work { number, files, .. } = work;
    match begin(shared, number, &files) {
        Ok(Some(save)) => write_base_in_background(shared, number, files, save),
        Ok(None) => end_work(shared, number, Ok(())),
        Err(trouble) => end_work(shared, number, Err(trouble)),
    }
}

/// Creates the incremental file, fixes the point of the snapshot, and records all later changes.
/// Returns `None` if the snapshot cannot begin now, or the backup was aborted meanwhile.
fn begin(shared: &Shared, number: i64, files: &BackupFiles) -> Result<Option<Arc<Save>>, FileError> {
    let file = files.in_folder(|folder| folder.create_log(&files.names.incr))?;
    let options = SaveOptions { on_flush: OnFlush::Continue, ..save_options_for(shared, "1") };
    let outbox = Outbox::default();
    let begun = shared.engine.gate.exclusive(|alone| {
        let Some(save) = fix_point(shared, alone, options)? else { return Ok(None) };
        let attached = attach(shared, (alone, number, &save), file, &outbox);
        if !matches!(attached, Ok(true)) {
            save.take_back(&shared.engine, alone);
            end_walk(shared);
        }
        attached.map(|is_attached| is_attached.then_some(save))
    });
    shared.wake(&outbox);
    if matches!(begun, Ok(None)) {
        files.in_folder(|folder| folder.remove(&files.names.incr))?;
    }
    begun
}

/// Fixes the point of the snapshot, the moment whose data the base contains. Returns `None` if a
/// save, a rewrite, a load or the end of the server prevents it.
fn fix_point(
    shared: &Shared,
    alone: &Exclusive,
    options: SaveOptions,
) -> Result<Option<Arc<Save>>, FileError> {
    let server_state = &shared.engine.server_state;
    if server_state.is_stopping.load(Relaxed) || server_state.is_loading.load(Relaxed) {
        return Ok(None);
    }
    let Some(save) = fix(shared, alone, options, SaveInitiator::Backup) else { return Ok(None) };
    let Some(unfit) = save.unfit() else { return Ok(Some(save)) };
    save.take_back(&shared.engine, alone);
    end_walk(shared);
    Err(FileError(unfit.to_string()))
}

/// Attaches the writer of the incremental file to the change log, at the point of the snapshot that
/// `save` writes. Returns false, and attaches nothing, if backup `number` was aborted meanwhile.
fn attach(
    shared: &Shared,
    (alone, number, save): (&Exclusive, i64, &Arc<Save>),
    file: Arc<dyn LogFile>,
    outbox: &Outbox,
) -> Result<bool, FileError> {
    let trouble = Arc::new(OnceLock::new());
    let writer = IncrWriter { file: Arc::clone(&file), trouble: Arc::clone(&trouble) };
    let log = &shared.engine.log;
    let id = log
        .attach(alone, (Box::new(writer), LogTarget::File), outbox)
        .ok_or_else(|| FileError("the change log has its maximum number of readers".to_owned()))?;
    // No reply waits for the backup, not even before its first change.
    log.confirm([(id, Released::ALL)], outbox);
    let mut state = shared.persistence.backup.state();
    let is_begun = state.machine.begin_snapshot(number);
    if is_begun {
        state.reader = Some(BackupReader { id, file, trouble });
        state.save = Some(Arc::clone(save));
    }
    drop(state);
    if !is_begun {
        drop(log.detach(alone, id, outbox));
    }
    Ok(is_begun)
}

/// Lets other saves begin, because the walk of the backup's snapshot has ended.
fn end_walk(shared: &Shared) {
    shared.persistence.state().current = None;
    shared.persistence.ended.notify_all();
}

/// Starts the thread that writes the base.
fn write_base_in_background(shared: &Arc<Shared>, number: i64, files: BackupFiles, save: Arc<Save>) {
    tracing::info!("Writing the snapshot of backup {number}");
    let (thread_shared, thread_save) = (Arc::clone(shared), Arc::clone(&save));
    let body = move || {
        let result = write_base(&thread_shared, &files, &thread_save);
        end_walk(&thread_shared);
        end_work(&thread_shared, number, result);
    };
    if let Err(error) = std::thread::Builder::new().name("backup".to_owned()).spawn(body) {
        // The thread cannot be created, but the walk has begun and must be ended.
        folder::give_up(&save, &shared.engine, |out| run_walkers(shared, &save, out, Way::Gate));
        end_walk(shared);
        end_work(shared, number, Err(trouble(&error)));
    }
}

fn write_base(shared: &Shared, files: &BackupFiles, save: &Save) -> Result<(), FileError> {
    let syncing = match options::AOF_REWRITE_INCREMENTAL_FSYNC.of(&shared.config()) {
        true => Syncing::Every { len_bytes: super::SYNC_STEP_BYTES },
        false => Syncing::AtEnd,
    };
    let (temporary, name) = (files.names.temporary_base.clone(), files.names.base.clone());
    let saved = files.in_folder(|folder| {
        let target = Target { folder, temporary, name, place: Place::Free, syncing };
        folder::save_into(target, save, &shared.engine, |out| run_walkers(shared, save, out, Way::Gate))
    });
    saved.map_err(|unsaved| match unsaved {
        Unsaved::Cancelled => FileError("the snapshot was cancelled".to_owned()),
        Unsaved::Failed(trouble) => trouble,
    })
}

/// Ends the work of this thread on the snapshot of backup `number`. Removes the files if the backup
/// has failed.
fn end_work(shared: &Shared, number: i64, result: Result<(), FileError>) {
    let backup = &shared.persistence.backup;
    let mut state = backup.state();
    state.save = None;
    match result {
        Ok(()) if state.machine.end_snapshot(number) => {
            tracing::info!("The snapshot of backup {number} is complete");
        }
        Ok(()) => {}
        Err(trouble) => {
            if state.machine.fail(number, &trouble.0) {
                tracing::warn!("Backup {number} has failed: {trouble}");
            }
        }
    }
    backup.release(state);
    remove_failed(shared);
}

/// Detaches the reader of a backup from the change log, after it has received all changes so far.
/// The caller is the exclusive owner of the keyspace.
fn detach(shared: &Shared, alone: &Exclusive, reader: &BackupReader) {
    let outbox = Outbox::default();
    let detached = shared.engine.log.detach(alone, reader.id, &outbox);
    assert!(detached.is_some(), "only this function detaches the reader of a backup");
    shared.persistence.backup.state().reader = None;
    shared.wake(&outbox);
}

/// Removes the files that this thread has claimed, then ends its work. Calls `at_end` if they are
/// removed.
///
/// # Errors
/// An error of the system. The housekeeper tries again later.
fn remove_files(
    shared: &Shared,
    work: &Work,
    at_end: impl FnOnce(&mut BackupState),
) -> Result<(), FileError> {
    if let Some(reader) = &work.reader {
        shared.engine.gate.exclusive(|alone| detach(shared, alone, reader));
    }
    let removed = work.files.in_folder(|folder| work.files.names.remove(folder));
    let mut state = shared.persistence.backup.state();
    note_removal(&mut state, &work.files, &removed);
    if removed.is_ok() {
        at_end(&mut state);
    }
    shared.persistence.backup.release(state);
    removed
}

/// Removes the files of a failed backup, unless another thread works on them and will do so.
fn remove_failed(shared: &Shared) {
    let claimed = shared.persistence.backup.state().claim(State::Failed);
    if let Some(work) = claimed {
        // An error is logged, and the housekeeper tries again.
        let _ = remove_files(shared, &work, |_| ());
    }
}

/// Ends the snapshot of a failed backup, and waits until its files are removed, or cannot be. Does
/// nothing in other states.
fn settle_failed(shared: &Shared) {
    abandon_snapshot(shared);
    let backup = &shared.persistence.backup;
    // The thread that works on the files may leave them to this one.
    backup.wait_for_failed();
    remove_failed(shared);
    backup.wait_for_failed();
}

/// Records the result of the removal of a backup's files. After an error, the housekeeper tries
/// again later.
fn note_removal(state: &mut BackupState, files: &BackupFiles, removed: &Result<(), FileError>) {
    match removed {
        Ok(()) => (state.files, state.remove_at) = (None, None),
        Err(trouble) => {
            state.remove_at = Some(Instant::now() + REMOVE_RETRY);
            tracing::warn!("Files of a backup in {} cannot be removed: {trouble}", files.folder.display());
        }
    }
}

/// Aborts the backup in progress, and removes its files. If they cannot be removed, the housekeeper
/// tries again.
///
/// # Errors
/// If no backup is in progress.
pub fn abort(shared: &Shared) -> Result<(), Refusal> {
    shared.persistence.backup.abort()?;
    tracing::info!("The backup was aborted by a user");
    settle_failed(shared);
    Ok(())
}

/// Abandons the snapshot of a backup that has failed, so that its thread ends soon. Does nothing if
/// the backup has not failed.
fn abandon_snapshot(shared: &Shared) {
    let save = {
        let mut state = shared.persistence.backup.state();
        state.note_trouble();
        state.save.clone().filter(|_| state.machine.state() == State::Failed)
    };
    if let Some(save) = save {
        shared.persistence.cancel_save(&shared.engine, &save);
    }
}

/// The reason why a backup was not sealed.
pub enum Unsealed {
    /// The state of the backup forbids it.
    Refused(Refusal),
    /// The backup has failed, or was aborted meanwhile.
    Failed(FileError),
}

/// Seals the backup in progress: it contains the data of the moment at which its reader of the
/// change log is detached.
///
/// # Errors
/// The backup is not in the state `incrementing`, has failed, or was aborted meanwhile.
pub fn seal(shared: &Shared) -> Result<(), Unsealed> {
    let backup = &shared.persistence.backup;
    backup.state().note_trouble();
    let claimed = backup.settled(Backup::check_seal).map_err(Unsealed::Refused)?.claim(State::Incrementing);
    let Some(Work { number, files, reader: Some(reader) }) = claimed else {
        return Err(Unsealed::Refused(Refusal::NotIncrementing));
    };
    shared.engine.gate.exclusive(|alone| detach(shared, alone, &reader));
    let written = write_end(&files, &reader);
    let mut state = backup.state();
    let result = match written {
        Ok(()) if state.machine.seal(number, unix_ms() / 1000) => {
            tracing::info!("Backup {number} is sealed");
            state.sealed_at = Some(Instant::now());
            Ok(())
        }
        Ok(()) => Err(FileError(state.machine.error().to_owned())),
        Err(trouble) => {
            if state.machine.fail(number, &trouble.0) {
                tracing::warn!("Backup {number} has failed: {trouble}");
            }
            Err(trouble)
        }
    };
    backup.release(state);
    remove_failed(shared);
    result.map_err(Unsealed::Failed)
}

/// Syncs the incremental file of a backup, whose reader is detached, and writes the manifest.
fn write_end(files: &BackupFiles, reader: &BackupReader) -> Result<(), FileError> {
    if let Some(trouble) = reader.trouble.get() {
        return Err(trouble.clone());
    }
    reader.file.sync()?;
    files.in_folder(|folder| files.names.write_manifest(folder))?;
    // A crash must not take the folder from `dir`.
    sync_parent(&files.folder)
}

fn sync_parent(path: &Path) -> Result<(), FileError> {
    path.parent().map_or(Ok(()), |parent| DataFolder::new(parent).sync())
}

/// The reason why a backup was not cleaned up.
pub enum Uncleaned {
    /// The state of the backup forbids it.
    Refused(Refusal),
    /// The files of the backup cannot be removed.
    Failed(FileError),
}

/// Removes the files of a sealed or failed backup. Does nothing without a backup.
///
/// # Errors
/// The reason why files are left. The state of the backup stays.
pub fn clean_up(shared: &Shared) -> Result<(), Uncleaned> {
    abandon_snapshot(shared);
    let backup = &shared.persistence.backup;
    let mut state = backup.settled(Backup::check_clean_up).map_err(Uncleaned::Refused)?;
    let present = state.machine.state();
    match state.claim(present) {
        Some(work) => {
            drop(state);
            remove_and_forget(shared, &work).map_err(Uncleaned::Failed)
        }
        None => state.machine.clean_up().map_err(Uncleaned::Refused),
    }
}

/// Removes the files of a sealed or failed backup that this thread has claimed. After this there is
/// no backup.
fn remove_and_forget(shared: &Shared, work: &Work) -> Result<(), FileError> {
    remove_files(shared, work, |state| {
        state.machine.clean_up().expect("no other thread changes the state of an ended backup");
    })
}

/// Begins the snapshot of a pending backup, and removes the files of a failed one and of a sealed
/// one whose `backup-sealed-ttl` has passed. Does so on a thread of its own. The housekeeper calls
/// this function ten times a second.
pub fn work_if_due(shared: &Arc<Shared>) {
    abandon_snapshot(shared);
    let Some((state, work)) = claim_due(shared) else { return };
    let thread_shared = Arc::clone(shared);
    let body = move || match state {
        State::Pending => begin_snapshot(&thread_shared, work),
        State::Sealed => {
            tracing::info!("Removing the sealed backup (backup-sealed-ttl)");
            // An error is logged, and the next round after REMOVE_RETRY tries again.
            let _ = remove_and_forget(&thread_shared, &work);
        }
        _ => {
            let _ = remove_files(&thread_shared, &work, |_| ());
        }
    };
    if let Err(error) = std::thread::Builder::new().name("backup".to_owned()).spawn(body) {
        tracing::warn!("The work on a backup is delayed, because a thread cannot be created: {error}");
        shared.persistence.backup.release(shared.persistence.backup.state());
    }
}

/// Claims the files of the backup if there is work to do that no request waits for. Returns the
/// state that requires this work.
fn claim_due(shared: &Shared) -> Option<(State, Work)> {
    let (ttl_s, may_begin) =
        (options::BACKUP_SEALED_TTL.of(&shared.config()), !super::full_sync::is_busy(shared));
    let mut state = shared.persistence.backup.state();
    let may_remove = state.remove_at.is_none_or(|at| at <= Instant::now());
    let present = state.machine.state();
    let is_due = match present {
        State::Pending => may_begin,
        State::Failed => may_remove,
        State::Sealed => may_remove && state.machine.is_expired(state.age_s(), ttl_s),
        State::Idle | State::Snapshotting | State::Incrementing => false,
    };
    let work = if is_due { state.claim(present) } else { None };
    work.map(|work| (present, work))
}

/// Logs a warning if an earlier process has left files in the folder of the backup. The server
/// never loads, changes or removes them.
pub fn report_leftovers(shared: &Shared) {
    let Ok(path) = backup_path(&shared.config()) else { return };
    if is_empty(&path).is_ok_and(|is_empty| !is_empty) {
        tracing::warn!(
            "{} holds files, perhaps of an earlier backup. The server does not use them, and BACKUP START is \
             refused until you move or remove them.",
            path.display()
        );
    }
}
