//! The state of the online backup (BACKUP): its state machine, its files, and the reader of the
//! change log that records the changes until the seal.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use engine::log::merger::ReaderId;
use persist::backup::{Backup, FileNames, OwnFolder, OwnNames, Refusal, State};
use persist::folder::{FileError, LogFile};
use persist::save::Save;

use super::DataFolder;

/// The online backup of a server. Threads that work on its files are described in
/// `persistence::backup`.
#[derive(Default)]
pub struct OnlineBackup {
    state: Mutex<BackupState>,
    /// The condition variable that is signalled when a thread ends its work on the files, or a
    /// backup starts.
    changed: Condvar,
}

/// The state of the online backup. One lock guards it, and no other lock is taken under this lock.
#[derive(Default)]
pub(crate) struct BackupState {
    /// The state machine of the backup, which decides what is possible.
    pub machine: Backup,
    /// The files of the last backup; `None` if it has none.
    pub files: Option<BackupFiles>,
    /// The walk of the snapshot, from its point until its thread ends; otherwise `None`.
    pub save: Option<Arc<Save>>,
    /// The reader of the change log that records the changes, while it is attached. It changes only
    /// under the exclusive ownership of the keyspace.
    pub reader: Option<BackupReader>,
    /// True while a thread works on the files. That thread removes them if the backup fails
    /// meanwhile.
    pub is_busy: bool,
    /// The time of the seal of the last sealed backup; `None` if none was sealed.
    pub sealed_at: Option<Instant>,
    /// The earliest time of the next removal of the files, after a failed one; `None` for no delay.
    pub remove_at: Option<Instant>,
}

/// The folder of a backup and the names of its files.
#[derive(Clone)]
pub(crate) struct BackupFiles {
    /// The absolute path of the folder. A change of `dir` does not move the backup.
    pub folder: PathBuf,
    pub names: FileNames,
    /// The names that the backup has created in the folder.
    pub own: Arc<OwnNames>,
}

impl BackupFiles {
    /// Calls `work` with the folder of the backup. In it, files of other programs are neither
    /// replaced nor removed.
    pub fn in_folder<R>(&self, work: impl FnOnce(&OwnFolder<'_>) -> R) -> R {
        work(&OwnFolder::new(&DataFolder::new(&self.folder), &self.own))
    }
}

/// The reader of the change log that writes the changes to the incremental file of the backup.
#[derive(Clone)]
pub(crate) struct BackupReader {
    /// The id of the reader of the change log.
    pub id: ReaderId,
    /// The incremental file of the backup.
    pub file: Arc<dyn LogFile>,
    /// The first error of writing the file. After it, nothing more is written.
    pub trouble: Arc<OnceLock<FileError>>,
}

/// The figures of the backup that BACKUP STATUS shows.
pub struct BackupFigures {
    /// The state of the backup.
    pub state: State,
    /// The reason why the backup has failed; empty in the other states.
    pub error: String,
    /// The time of the backup's start, in Unix seconds; 0 without a backup.
    pub started_s: i64,
    /// The time of the backup's seal, in Unix seconds; 0 before it.
    pub sealed_s: i64,
}

/// The files of a backup while a thread works on them: see [`BackupState::claim`].
pub(crate) struct Work {
    /// The number of the backup.
    pub number: i64,
    /// The files of the backup.
    pub files: BackupFiles,
    /// The reader of the change log, if it is attached.
    pub reader: Option<BackupReader>,
}

impl BackupState {
    /// Records that the backup has failed if its reader could not write.
    pub fn note_trouble(&mut self) {
        if let Some(trouble) = self.reader.as_ref().and_then(|reader| reader.trouble.get()) {
            let (number, reason) = (self.machine.number(), trouble.to_string());
            if self.machine.fail(number, &reason) {
                tracing::warn!("The backup has failed: {reason}");
            }
        }
    }

    /// Returns the time since the seal of the last sealed backup, in seconds.
    pub fn age_s(&self) -> i64 {
        self.sealed_at.map_or(0, |at| i64::try_from(at.elapsed().as_secs()).unwrap_or(i64::MAX))
    }

    /// Claims the files for the calling thread if the backup is in `state`, has files, and no other
    /// thread works on them. The caller detaches the reader, and calls [`OnlineBackup::release`].
    pub fn claim(&mut self, state: State) -> Option<Work> {
        if self.is_busy || self.machine.state() != state {
            return None;
        }
        let files = self.files.clone()?;
        self.is_busy = true;
        Some(Work { number: self.machine.number(), files, reader: self.reader.clone() })
    }
}

impl OnlineBackup {
    /// Locks the state of the backup, to read or change it.
    pub(crate) fn state(&self) -> MutexGuard<'_, BackupState> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Ends the work of the calling thread on the files, which [`BackupState::claim`] began.
    pub(crate) fn release(&self, mut state: MutexGuard<'_, BackupState>) {
        state.is_busy = false;
        self.note_change(state);
    }

    /// Unlocks the state after a change, and wakes the threads that wait for it.
    pub(crate) fn note_change(&self, state: MutexGuard<'_, BackupState>) {
        drop(state);
        self.changed.notify_all();
    }

    fn wait<'s>(&self, state: MutexGuard<'s, BackupState>) -> MutexGuard<'s, BackupState> {
        self.changed.wait(state).expect("nothing panics while it is locked")
    }

    /// Locks the state as soon as no thread works on the files. The caller is outside the gate that
    /// guards the keyspace, because such a thread may need it.
    ///
    /// # Errors
    /// The refusal of `check`, without a further wait.
    pub(crate) fn settled(
        &self,
        check: fn(&Backup) -> Result<(), Refusal>,
    ) -> Result<MutexGuard<'_, BackupState>, Refusal> {
        let mut state = self.state();
        loop {
            check(&state.machine)?;
            if !state.is_busy {
                return Ok(state);
            }
            state = self.wait(state);
        }
    }

    /// Waits while a thread works on the files of a failed backup. The caller is outside the gate
    /// that guards the keyspace.
    pub(crate) fn wait_for_failed(&self) {
        let mut state = self.state();
        while state.is_busy && state.machine.state() == State::Failed {
            state = self.wait(state);
        }
    }

    /// Waits until no thread works on the files. The caller is outside the gate that guards the
    /// keyspace, because such a thread may need it.
    pub(crate) fn wait_until_idle(&self) {
        let mut state = self.state();
        while state.is_busy {
            state = self.wait(state);
        }
    }

    /// Returns true while a thread works on the files, for example writes the snapshot.
    pub(crate) fn is_busy(&self) -> bool {
        self.state().is_busy
    }

    /// Records that the backup in progress has failed, for `reason`. Does nothing without one. The
    /// housekeeper then removes its files.
    pub(crate) fn fail(&self, reason: &str) {
        let mut state = self.state();
        let number = state.machine.number();
        if state.machine.fail(number, reason) {
            tracing::warn!("The backup has failed: {reason}");
        }
    }

    /// Returns the id of the reader of the change log that records the changes; `None` if none is
    /// attached.
    pub(crate) fn reader(&self) -> Option<ReaderId> {
        self.state().reader.as_ref().map(|reader| reader.id)
    }

    /// Returns the figures of the backup for BACKUP STATUS and INFO.
    pub fn figures(&self) -> BackupFigures {
        let mut state = self.state();
        state.note_trouble();
        let machine = &state.machine;
        BackupFigures {
            state: machine.state(),
            error: machine.error().to_owned(),
            started_s: machine.started_s(),
            sealed_s: machine.sealed_s(),
        }
    }

    /// Returns the paths of those files of the backup that do not change any more.
    pub fn fixed_files(&self) -> Vec<PathBuf> {
        let mut state = self.state();
        state.note_trouble();
        let Some(files) = &state.files else { return Vec::new() };
        let names = state.machine.fixed_files(&files.names);
        names.into_iter().map(|name| files.folder.join(name)).collect()
    }

    /// Aborts the backup in progress. Its files are left to
    /// [`abort`](crate::persistence::backup::abort).
    ///
    /// # Errors
    /// If no backup is in progress.
    pub(crate) fn abort(&self) -> Result<(), Refusal> {
        self.state().machine.abort()
    }
}
