//! The folder of a server's data as what decides sees it, and how a file comes into it whole.
//!
//! ```text
//!   create temp ─► append … append ─► sync the file ─► rename over the old one ─► sync the folder
//!        └────────────── whatever fails: the temporary file is removed, the old one stays
//! ```
//! Until the rename the old file is what a restart finds; after it, the new one, which was synced
//! before. The folder is synced last, so that a crash cannot take the rename back once the save
//! counts as done. A temporary file that a crash left is removed by the next start
//! ([`left_by`]).
//!
//! A file is created only where nothing has its name. A new file replaces only a file that this
//! process has loaded or written ([`KnownFiles`]): another one, which somebody put there, stays
//! under a further name ([`keep_aside`]).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use engine::Shared;

use crate::save::{ChunkSink, Failed, Save};

/// Why something with a file failed, in the system's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble(pub String);

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Trouble {}

/// A folder, by what is done in it. Names are those of files in it.
pub trait Folder: Send + Sync {
    /// Creates an empty file.
    ///
    /// # Errors
    /// Something has the name. Else as the system says; so for all of these.
    fn create(&self, name: &str) -> Result<Box<dyn DataFile>, Trouble>;
    /// Gives a file another name, in the place of what has it, all at once.
    ///
    /// # Errors
    /// As above.
    fn rename(&self, from: &str, to: &str) -> Result<(), Trouble>;
    /// Removes a file.
    ///
    /// # Errors
    /// As above.
    fn remove(&self, name: &str) -> Result<(), Trouble>;
    /// Returns when what the folder lists is safe from a crash.
    ///
    /// # Errors
    /// As above.
    fn sync(&self) -> Result<(), Trouble>;
    /// Returns true if anything has this name, also a link to a file that is missing.
    fn has(&self, name: &str) -> bool;
    /// Reads a file; `None` if it does not exist.
    ///
    /// # Errors
    /// As above.
    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Trouble>;
    /// Creates an empty file that grows.
    ///
    /// # Errors
    /// Something has the name, or as above.
    fn create_log(&self, name: &str) -> Result<Arc<dyn LogFile>, Trouble>;
    /// Gives a file a second name.
    ///
    /// # Errors
    /// Something has that name, or as above.
    fn link(&self, from: &str, to: &str) -> Result<(), Trouble>;
    /// Returns the stamp of what has this name, if anything has it.
    ///
    /// # Errors
    /// As above.
    fn stamp(&self, name: &str) -> Result<Option<Stamp>, Trouble>;
    /// Opens a file that grows behind its first `len_bytes`, which it has. What is behind them is
    /// cut off.
    ///
    /// # Errors
    /// There is no such file, or as above.
    fn open_log(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn LogFile>, Trouble>;
    /// Returns when what a file holds is safe from a crash, whoever wrote it.
    ///
    /// # Errors
    /// As above.
    fn sync_file(&self, name: &str) -> Result<(), Trouble>;
}

/// A file that is written from its beginning to its end.
pub trait DataFile: Send {
    /// Appends all of `bytes`.
    ///
    /// # Errors
    /// As the system says; a part of the bytes may be there.
    fn append(&mut self, bytes: &[u8]) -> Result<(), Trouble>;
    /// Returns when what was appended is safe from a crash.
    ///
    /// # Errors
    /// As the system says; what was appended since the last sync may be lost.
    fn sync(&mut self) -> Result<(), Trouble>;
}

/// A file that grows at its end.
pub trait LogFile: Send + Sync {
    /// Appends `bytes`.
    ///
    /// # Errors
    /// As the system says, with how many bytes are there.
    fn append(&self, bytes: &[u8]) -> Result<(), Unwritten>;
    /// Returns when what was appended is safe from a crash. Others may append meanwhile.
    ///
    /// # Errors
    /// As the system says; what was appended since the last sync may be lost.
    fn sync(&self) -> Result<(), Trouble>;
    /// Cuts off what is behind the first `len_bytes`.
    ///
    /// # Errors
    /// As the system says.
    fn cut(&self, len_bytes: u64) -> Result<(), Trouble>;
}

/// Why not all of some bytes were appended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unwritten {
    /// The first so many are there.
    pub written_bytes: usize,
    /// The error of the system.
    pub trouble: Trouble,
}

/// The identity of a file with a state of its contents: it differs after any change that goes
/// through the file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the device.
    pub device: u64,
    /// The number of the file on its device.
    pub inode: u64,
    /// The length in bytes.
    pub len_bytes: u64,
    /// The time of the last change of the contents, in nanoseconds since 1970.
    pub changed_ns: i128,
}

/// The files that this process has loaded or written, or that are older than what it has loaded:
/// new files may replace them. One lock, a leaf. Holds at most [`KnownFiles::LEN_MAX`]; a file that
/// was forgotten is kept aside once.
#[derive(Debug, Default)]
pub struct KnownFiles(Mutex<VecDeque<Stamp>>);

impl KnownFiles {
    /// The largest number of files; the oldest one is forgotten first.
    pub const LEN_MAX: usize = 256;

    fn stamps(&self) -> MutexGuard<'_, VecDeque<Stamp>> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    /// Adds a file.
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

    /// Returns true if the file was added and has not changed since.
    pub fn has(&self, stamp: &Stamp) -> bool {
        self.stamps().contains(stamp)
    }
}

/// The rule for the name that a new file gets once it is complete.
#[derive(Clone, Copy)]
pub enum Place<'f> {
    /// Nothing has the name. If something has it in the end, that stays, and there is no new file.
    Free,
    /// A file that has the name is replaced if it is known, and kept aside if not.
    Over {
        /// The files that may be replaced; the new one is added.
        known: &'f KnownFiles,
        /// Receives the name under which another file stays.
        kept_aside: &'f (dyn Fn(&str) + Sync),
    },
}

/// Gives a file a further name, `NAME.aside-1` or the next one that is free, and returns it:
/// another file may take its place then.
///
/// # Errors
/// As the system says.
pub fn keep_aside(folder: &dyn Folder, name: &str) -> Result<String, Trouble> {
    let mut number = 1;
    let free = loop {
        let aside = format!("{name}.aside-{number}");
        if !folder.has(&aside) {
            break aside;
        }
        number += 1;
    };
    folder.link(name, &free)?;
    // A crash must not take the new name back and leave the other file under the old one.
    folder.sync()?;
    Ok(free)
}

/// Creates a file under a name that only unfinished files of this process have: one that a failure
/// or a crash left is removed, and never written to.
///
/// # Errors
/// As the system says.
pub fn create_temporary(folder: &dyn Folder, name: &str) -> Result<Box<dyn DataFile>, Trouble> {
    if folder.has(name) {
        folder.remove(name)?;
    }
    folder.create(name)
}

/// The times of syncs of a file that is being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syncing {
    /// At its end.
    AtEnd,
    /// Also whenever so many bytes were written since the last time: the system never has more to
    /// write at once.
    Every {
        /// Bytes.
        len_bytes: usize,
    },
}

/// The destination of a save's file.
pub struct Target<'f> {
    /// Its folder.
    pub folder: &'f dyn Folder,
    /// The name that it has until it is complete.
    pub temporary: String,
    /// The name that it has then.
    pub name: String,
    /// The rule for a file that has this name.
    pub place: Place<'f>,
    /// The times of its syncs.
    pub syncing: Syncing,
}

/// Why there is no new file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unsaved {
    /// Nobody wanted it any more.
    Cancelled,
    /// Something went wrong.
    Failed(Trouble),
}

impl From<Trouble> for Unsaved {
    fn from(trouble: Trouble) -> Self {
        Self::Failed(trouble)
    }
}

/// Returns the name of the file that a process writes a save to.
pub fn temporary_name(pid: u32) -> String {
    format!("temp-{pid}.rdb")
}

/// Returns the name of the file that a process writes a base of an append-only file to.
pub fn temporary_base_name(pid: u32) -> String {
    format!("temp-rewriteaof-bg-{pid}.aof")
}

/// Returns the process whose save left this file, if it has a name of [`temporary_name`] or
/// [`temporary_base_name`]. It may be removed if that process has ended.
pub fn left_by(name: &str) -> Option<u32> {
    let of_snapshot = |name: &str| name.strip_prefix("temp-")?.strip_suffix(".rdb")?.parse().ok();
    let of_base = || name.strip_prefix("temp-rewriteaof-bg-")?.strip_suffix(".aof")?.parse().ok();
    of_snapshot(name).or_else(of_base)
}

/// Brings a save to its end in a file, and frees the keyspace of its walk, whatever comes of it.
/// `drive` steps the save's walkers until all are done.
///
/// # Errors
/// Why there is no new file; the old one is as it was then, with the exception that
/// [`IncomingFile::put_in_place`] names.
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
    save.write_head(engine, &file);
    drive(&file);
    match save.finish(engine, &file) {
        Ok(_) => file.put_in_place(&name, place).map_err(Unsaved::from),
        Err(Failed) => {
            let trouble = file.discard().or(save.unfit().map(|unfit| Trouble(unfit.to_string())));
            Err(trouble.map_or(Unsaved::Cancelled, Unsaved::from))
        }
    }
}

/// Ends a save for which there is no file: frees the keyspace of its walk. `drive` as for
/// [`save_into`].
pub fn give_up(save: &Save, engine: &Shared, drive: impl FnOnce(&(dyn ChunkSink + Sync))) {
    save.abandon(engine);
    drive(&Nowhere);
    // It has failed; this ends the walk.
    let _ = save.finish(engine, &Nowhere);
}

/// The destination of an abandoned save's bytes.
struct Nowhere;

impl ChunkSink for Nowhere {
    fn append(&self, _bytes: &[u8]) -> Result<(), Failed> {
        Err(Failed)
    }
}

/// A file on its way into a folder.
pub struct IncomingFile<'f> {
    folder: &'f dyn Folder,
    temporary: String,
    syncing: Syncing,
    state: Mutex<State>,
}

struct State {
    file: Box<dyn DataFile>,
    unsynced_len_bytes: usize,
    trouble: Option<Trouble>,
}

impl<'f> IncomingFile<'f> {
    /// Creates the temporary file.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn create(folder: &'f dyn Folder, temporary: String, syncing: Syncing) -> Result<Self, Trouble> {
        let file = create_temporary(folder, &temporary)?;
        let state = State { file, unsynced_len_bytes: 0, trouble: None };
        Ok(Self { folder, temporary, syncing, state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics while it is locked")
    }

    /// Puts the file, which is complete, in its place under `name`, by the rule for it.
    ///
    /// # Errors
    /// The first thing that went wrong, while it was written or now. Nothing is left of the file,
    /// unless the folder could not be synced at the end: then it is in its place, but a crash may
    /// bring the old one back.
    pub fn put_in_place(self, name: &str, place: Place<'_>) -> Result<(), Trouble> {
        let placed = {
            let mut state = self.state();
            match state.trouble.take() {
                Some(trouble) => Err(trouble),
                None => state.file.sync(),
            }
        };
        let placed = placed.and_then(|()| self.make_room(name, place));
        match placed.and_then(|()| self.folder.rename(&self.temporary, name)) {
            Ok(()) => self.folder.sync(),
            Err(trouble) => {
                self.discard();
                Err(trouble)
            }
        }
    }

    /// Keeps what has the name aside, unless it may be replaced.
    fn make_room(&self, name: &str, place: Place<'_>) -> Result<(), Trouble> {
        let former = self.folder.stamp(name)?;
        match (place, former) {
            (Place::Free, None) => {}
            (Place::Free, Some(_)) => {
                return Err(Trouble(format!("{name} has appeared meanwhile: move it to another folder")));
            }
            (Place::Over { known, kept_aside }, former) => {
                if former.is_some_and(|former| !known.has(&former)) {
                    kept_aside(&keep_aside(self.folder, name)?);
                }
                self.folder.stamp(&self.temporary)?.into_iter().for_each(|stamp| known.add(stamp));
            }
        }
        Ok(())
    }

    /// Removes the file. What went wrong with it, if anything did.
    pub fn discard(self) -> Option<Trouble> {
        // It may be all that is possible on a broken disk: the next start removes it.
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
