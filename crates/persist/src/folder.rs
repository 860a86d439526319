//! The interface to the folder of a server's data, and the steps by which a complete file gets its
//! final name.
//!
//! ```text
//!   create temp ─► append … append ─► sync the file ─► rename over the old one ─► sync the folder
//!        └────────────── whatever fails: the temporary file is removed, the old one stays
//! ```
//! Before the rename a restart finds the old file; after it the new one, which was already synced.
//! The folder is synced last, so that a crash cannot undo the rename after the save was reported as
//! complete. A temporary file that a crash left is removed at the next start ([`writer_pid`]).
//!
//! A temporary file is created only if its name is free. A new file replaces only a file that this
//! process has loaded or written ([`KnownFiles`]). Any other file is kept under another name
//! ([`keep_aside`]).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use engine::Shared;

use crate::save::{ChunkSink, Failed, Save};

/// The error of a file operation, as the text of the operating system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError(pub String);

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FileError {}

/// A folder, with the operations that the snapshots and append-only files need. All names are file
/// names within it. Errors are those of the operating system unless stated otherwise.
pub trait Folder: Send + Sync {
    /// Creates an empty file.
    ///
    /// # Errors
    /// If the name is taken, or an error of the system.
    fn create(&self, name: &str) -> Result<Box<dyn DataFile>, FileError>;
    /// Renames a file atomically, replacing any file that has the new name.
    ///
    /// # Errors
    /// An error of the system.
    fn rename(&self, from: &str, to: &str) -> Result<(), FileError>;
    /// Removes a file.
    ///
    /// # Errors
    /// An error of the system.
    fn remove(&self, name: &str) -> Result<(), FileError>;
    /// Syncs the folder: waits until its list of file names will survive a crash.
    ///
    /// # Errors
    /// An error of the system.
    fn sync(&self) -> Result<(), FileError>;
    /// Returns true if the name is taken, even by a link to a missing file.
    fn has(&self, name: &str) -> bool;
    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    /// An error of the system.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FileError>;
    /// Creates an empty file to be appended to.
    ///
    /// # Errors
    /// If the name is taken, or an error of the system.
    fn create_log(&self, name: &str) -> Result<Arc<dyn LogFile>, FileError>;
    /// Gives a file a second name.
    ///
    /// # Errors
    /// If that name is taken, or an error of the system.
    fn link(&self, from: &str, to: &str) -> Result<(), FileError>;
    /// Returns the stamp (identity and state) of the file `name`; `None` if it does not exist.
    ///
    /// # Errors
    /// An error of the system.
    fn stamp(&self, name: &str) -> Result<Option<Stamp>, FileError>;
    /// Opens an existing file to append to it, and cuts it off after its first `len_bytes` bytes.
    /// The file must have at least this length.
    ///
    /// # Errors
    /// If there is no such file, or an error of the system.
    fn open_log(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn LogFile>, FileError>;
    /// Syncs a file by name: waits until its content will survive a crash, also if another process
    /// wrote it.
    ///
    /// # Errors
    /// An error of the system.
    fn sync_file(&self, name: &str) -> Result<(), FileError>;
}

/// A file in the folder that is written once, from its beginning to its end.
pub trait DataFile: Send {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// An error of the system; a part of the bytes may have been appended.
    fn append(&mut self, bytes: &[u8]) -> Result<(), FileError>;
    /// Syncs the file: waits until all appended bytes will survive a crash.
    ///
    /// # Errors
    /// An error of the system; bytes appended since the last sync may be lost.
    fn sync(&mut self) -> Result<(), FileError>;
}

/// A file to which bytes are appended while the server runs, such as the append-only file.
pub trait LogFile: Send + Sync {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// An error of the system, with the number of bytes that were appended.
    fn append(&self, bytes: &[u8]) -> Result<(), Unwritten>;
    /// Syncs the file: waits until all appended bytes will survive a crash. Other threads may
    /// append meanwhile.
    ///
    /// # Errors
    /// An error of the system; bytes appended since the last sync may be lost.
    fn sync(&self) -> Result<(), FileError>;
    /// Cuts off everything after the first `len_bytes`.
    ///
    /// # Errors
    /// An error of the system.
    fn cut(&self, len_bytes: u64) -> Result<(), FileError>;
}

/// The error of an append to a file that wrote only a part of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The number of bytes that were appended before the error.
    pub written_bytes: usize,
    /// The error of the operating system that ended the append.
    pub trouble: FileError,
}

/// The identity of a file together with the state of its contents. Any change of the file changes
/// its stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the device on which the file is.
    pub device: u64,
    /// The inode number of the file.
    pub inode: u64,
    /// The length of the file in bytes.
    pub len_bytes: u64,
    /// The time of the last change of the file's contents, in nanoseconds since 1970.
    pub changed_ns: i128,
}

/// The files that a new file may replace: those that this process has loaded or written, and those
/// older than the loaded one. No other lock is taken under its lock. There are at most
/// [`KnownFiles::LEN_MAX`] of them. A file that was dropped from the list is renamed instead of
/// replaced.
#[derive(Debug, Default)]
pub struct KnownFiles(Mutex<VecDeque<Stamp>>);

impl KnownFiles {
    /// The maximum number of files that may be replaced; when the list is full, the file added
    /// first is dropped.
    pub const LEN_MAX: usize = 256;

    fn stamps(&self) -> MutexGuard<'_, VecDeque<Stamp>> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Adds a file that may be replaced, by its stamp. Drops the file added first if there are more
    /// than [`Self::LEN_MAX`].
    pub fn add(&self, stamp: Stamp) {
        let mut stamps = self.stamps();
        if stamps.contains(&stamp) {
            return;
        }
        if stamps.len() == Self::LEN_MAX {
            stamps.pop_front();
        }
        stamps.push_back(stamp);
    }

    /// Returns true if the file may be replaced and has not changed since it was added.
    pub fn has(&self, stamp: &Stamp) -> bool {
        self.stamps().contains(stamp)
    }
}

/// The rule for a complete file whose final name may be taken.
#[derive(Clone, Copy)]
pub enum Place<'f> {
    /// The final name must be free. If it is taken, the new file is discarded.
    Free,
    /// An existing file of the same name is replaced if it is in the list `known`. Otherwise it is
    /// renamed, so that its data is not lost.
    Over {
        /// The files that may be replaced; the new file is added to them.
        known: &'f KnownFiles,
        /// A function that is called with the name to which an existing file was renamed.
        set_aside: &'f (dyn Fn(&str) + Sync),
    },
}

/// Gives a file a second name, `NAME.aside-1` or the next free one, and returns that name. After
/// this, another file may take the first name.
///
/// # Errors
/// An error of the system.
pub fn keep_aside(folder: &dyn Folder, name: &str) -> Result<String, FileError> {
    let mut number = 1;
    let free = loop {
        let aside = format!("{name}.aside-{number}");
        if !folder.has(&aside) {
            break aside;
        }
        number += 1;
    };
    folder.link(name, &free)?;
    // Without this sync, a crash could undo the new name although the old one already has another
    // file.
    folder.sync()?;
    Ok(free)
}

/// Renames a complete and synced file from one name to another, by the rule of `place`.
/// [`Place::Free`] fails if the new name is taken; [`Place::Over`] renames a file that is not among
/// the known ones, and adds the new file to the known ones. The caller syncs the folder.
///
/// # Errors
/// The new name is taken, or an error of the system. The file keeps its name.
pub fn rename_into_place(
    folder: &dyn Folder,
    (temporary, name): (&str, &str),
    place: Place<'_>,
) -> Result<(), FileError> {
    let former = folder.stamp(name)?;
    match (place, former) {
        (Place::Free, None) => {}
        (Place::Free, Some(_)) => {
            return Err(FileError(format!(
                "another program created {name} during the write: move it to another folder"
            )));
        }
        (Place::Over { known, set_aside }, former) => {
            if former.is_some_and(|former| !known.has(&former)) {
                set_aside(&keep_aside(folder, name)?);
            }
            folder.stamp(temporary)?.into_iter().for_each(|stamp| known.add(stamp));
        }
    }
    folder.rename(temporary, name)
}

/// Creates a file for unfinished data, under a name that only this process uses. If a failure or a
/// crash left a file with this name, that file is removed first.
///
/// # Errors
/// An error of the system.
pub fn create_temporary(folder: &dyn Folder, name: &str) -> Result<Box<dyn DataFile>, FileError> {
    if folder.has(name) {
        folder.remove(name)?;
    }
    folder.create(name)
}

/// The setting when a file is synced while it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncing {
    /// The file is synced once, after all of it has been written.
    AtEnd,
    /// The file is synced at its end, and whenever `len_bytes` bytes were written since the last
    /// sync. So the operating system never has more unwritten bytes than this.
    Every {
        /// The number of written bytes between two syncs of the file.
        len_bytes: usize,
    },
}

/// The destination of a snapshot that is saved to a file.
pub struct Target<'f> {
    /// The folder in which the snapshot's file is written.
    pub folder: &'f dyn Folder,
    /// The name of the file until it is complete.
    pub temporary: String,
    /// The final name of the file with the snapshot.
    pub name: String,
    /// The rule for an existing file with the final name.
    pub place: Place<'f>,
    /// The times at which the file is synced: at its end, or also in between.
    pub syncing: Syncing,
}

/// The reason why a save of a snapshot has created no file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsaved {
    /// The save was abandoned on request, before its file was complete.
    Cancelled,
    /// The file of the snapshot could not be written or renamed.
    Failed(FileError),
}

impl From<FileError> for Unsaved {
    fn from(trouble: FileError) -> Self {
        Self::Failed(trouble)
    }
}

/// Returns the name of the file to which a process writes a snapshot until it is complete.
pub fn temporary_name(pid: u32) -> String {
    format!("temp-{pid}.rdb")
}

/// Returns the temporary name of a base file of the append-only file, which a process uses until
/// the file is complete.
pub fn temporary_base_name(pid: u32) -> String {
    format!("temp-rewriteaof-bg-{pid}.aof")
}

/// Returns the name of temporary file number `number` of a process. Such files hold the snapshot of
/// a full sync for replicas.
pub fn temporary_sync_name(pid: u32, number: u64) -> String {
    format!("temp-repl-{pid}-{number}.rdb")
}

/// Returns the name of the file to which a process writes the snapshot that it receives from its
/// primary since `begun_s`, in Unix seconds. Redis uses the same name.
pub fn temporary_received_name(begun_s: i64, pid: u32) -> String {
    format!("temp-{begun_s}.{pid}.rdb")
}

/// Returns the id of the process that wrote this file, if its name has the form of
/// [`temporary_name`], [`temporary_base_name`], [`temporary_sync_name`] or
/// [`temporary_received_name`]. The file may be removed if that process has ended.
pub fn writer_pid(name: &str) -> Option<u32> {
    let of_snapshot = |name: &str| name.strip_prefix("temp-")?.strip_suffix(".rdb")?.parse().ok();
    let of_base = || name.strip_prefix("temp-rewriteaof-bg-")?.strip_suffix(".aof")?.parse().ok();
    let of_sync = || {
        let (pid, number) = name.strip_prefix("temp-repl-")?.strip_suffix(".rdb")?.split_once('-')?;
        number.parse::<u64>().ok().and(pid.parse().ok())
    };
    of_snapshot(name).or_else(of_base).or_else(of_sync).or_else(|| receiver_pid(name))
}

/// Returns the id of the process that wrote this file, if its name has the form of
/// [`temporary_received_name`]. The primary has the data of such a file. So the file may be removed
/// even if this server has no other data.
pub fn receiver_pid(name: &str) -> Option<u32> {
    let (begun_s, pid) = name.strip_prefix("temp-")?.strip_suffix(".rdb")?.split_once('.')?;
    begun_s.parse::<u64>().ok().and(pid.parse().ok())
}

/// Writes a snapshot to a file, and ends the save's walk over the keyspace in any case. `drive`
/// must run the save's walkers (threads that encode keys) until all are done.
///
/// # Errors
/// The reason why there is no new file. The old one is then unchanged, except in the case that
/// [`IncomingFile::put_in_place`] describes.
pub fn save_into(
    target: Target<'_>,
    save: &Save,
    engine: &Shared,
    drive: impl FnOnce(&(dyn ChunkSink + Sync)),
) -> Result<(), Unsaved> {
    let Target { folder, temporary, name, place, syncing } = target;
    let file = match IncomingFile::create(folder, temporary, syncing) {
        Ok(file) => file,
        Err(trouble) => {
            give_up(save, engine, drive);
            return Err(trouble.into());
        }
    };
    match save.write_into(engine, &file, drive) {
        Ok(_) => file.put_in_place(&name, place).map_err(Unsaved::from),
        Err(Failed) => {
            let trouble = file.discard().or(save.unfit().map(|unfit| FileError(unfit.to_string())));
            Err(trouble.map_or(Unsaved::Cancelled, Unsaved::from))
        }
    }
}

/// Abandons a save whose file was not created, and ends its walk over the keyspace. `drive` must
/// run the save's walkers (threads that encode keys) until all are done.
pub fn give_up(save: &Save, engine: &Shared, drive: impl FnOnce(&(dyn ChunkSink + Sync))) {
    save.abandon(engine);
    // The result is an error, as expected; the call ends the walk.
    let _ = save.write_into(engine, &Nowhere, drive);
}

/// The sink of an abandoned save of a snapshot; it rejects all bytes.
struct Nowhere;

impl ChunkSink for Nowhere {
    fn append(&self, _bytes: &[u8]) -> Result<(), Failed> {
        Err(Failed)
    }
}

/// A temporary file of data that is being written or received; it gets its final name when it is
/// complete.
pub struct IncomingFile<'f> {
    folder: &'f dyn Folder,
    temporary: String,
    syncing: Syncing,
    state: Mutex<State>,
}

struct State {
    file: Box<dyn DataFile>,
    unsynced_len_bytes: usize,
    trouble: Option<FileError>,
}

impl<'f> IncomingFile<'f> {
    /// Creates the temporary file, which is empty.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn create(folder: &'f dyn Folder, temporary: String, syncing: Syncing) -> Result<Self, FileError> {
        let file = create_temporary(folder, &temporary)?;
        let state = State { file, unsynced_len_bytes: 0, trouble: None };
        Ok(Self { folder, temporary, syncing, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Renames the complete file to `name`, by the rule of `place`.
    ///
    /// # Errors
    /// The first error, of writing or of this call. The file is then removed. There is one
    /// exception: if the last sync of the folder fails, the file is in its place, but a crash may
    /// bring the old one back.
    pub fn put_in_place(self, name: &str, place: Place<'_>) -> Result<(), FileError> {
        let placed = {
            let mut state = self.state();
            match state.trouble.take() {
                Some(trouble) => Err(trouble),
                None => state.file.sync(),
            }
        };
        match placed.and_then(|()| rename_into_place(self.folder, (&self.temporary, name), place)) {
            Ok(()) => self.folder.sync(),
            Err(trouble) => {
                self.discard();
                Err(trouble)
            }
        }
    }

    /// Removes the temporary file. Returns the first error of writing, if there was one.
    pub fn discard(self) -> Option<FileError> {
        // On a broken disk this may fail; then the next start removes the file.
        let _ = self.folder.remove(&self.temporary);
        self.state().trouble.take()
    }
}

impl ChunkSink for IncomingFile<'_> {
    fn append(&self, bytes: &[u8]) -> Result<(), Failed> {
        let mut state = self.state();
        if state.trouble.is_some() {
            return Err(Failed);
        }
        let mut result = state.file.append(bytes);
        state.unsynced_len_bytes += bytes.len();
        if result.is_ok()
            && let Syncing::Every { len_bytes } = self.syncing
            && state.unsynced_len_bytes >= len_bytes
        {
            state.unsynced_len_bytes = 0;
            result = state.file.sync();
        }
        result.map_err(|trouble| {
            state.trouble = Some(trouble);
            Failed
        })
    }
}
