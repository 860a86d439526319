//! The append-only files in their folder, and the order of operations by which they change. After a
//! crash at any moment, the files that the manifest names contain all the data.
//!
//! ```text
//!   a new incremental file   created, synced ─► manifest that names it ─► used
//!   a new base               complete under its name ─► manifest with it ─► history removed
//! ```

use std::fmt;
use std::sync::Arc;

use super::manifest::{
    BaseKind, KeptIncrs, Manifest, ManifestError, manifest_name, temp_incr_name, temp_manifest_name,
};
use crate::folder::{FileError, Folder, LogFile, create_temporary, keep_aside};

/// The files of one append-only file in their folder, as its manifest lists them.
#[derive(Clone, Debug)]
pub struct Files {
    name: String,
    manifest: Manifest,
    /// The text of the manifest that this process last read or wrote; `None` before that.
    text: Option<Vec<u8>>,
    /// The new names of foreign manifests that were renamed. A foreign manifest is one that this
    /// process has neither read nor written.
    set_aside: Vec<String>,
}

/// The incremental files that stay in use after a new base file: those with the changes made after
/// the state of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// No incremental file: nothing has changed since the state of the base, or no file records the
    /// changes.
    None,
    /// The incremental file with number `seq` and all files with higher numbers
    /// ([`Files::last_incr`]).
    From {
        /// The number of the first incremental file that stays in use.
        seq: i64,
    },
    /// The incremental file that [`Files::begin_unnamed_incr`] created and that is not in the
    /// manifest yet.
    Unnamed,
}

/// A new base file of the append-only file, already complete under the name of
/// [`Files::next_base`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBase {
    /// The format of the base file.
    pub kind: BaseKind,
    /// The incremental files that hold the changes made after the state of the base.
    pub kept: Kept,
    /// The current time, in Unix seconds, which the manifest records for replaced files.
    pub now_s: i64,
    /// If a restore writes this base: the Unix time in seconds to which it restores the data;
    /// `None` otherwise. The base then replaces the files with later changes.
    pub restored_until_s: Option<i64>,
}

/// The reason why the files of the append-only file cannot be determined.
#[derive(Debug)]
pub enum FilesError {
    /// The manifest of the append-only file cannot be read: an error of the operating system.
    FileError(FileError),
    /// The manifest of the append-only file is invalid.
    Manifest(ManifestError),
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilesError::FileError(trouble) => write!(f, "{trouble}"),
            FilesError::Manifest(error) => write!(f, "{error}"),
        }
    }
}

impl From<FileError> for FilesError {
    fn from(trouble: FileError) -> Self {
        Self::FileError(trouble)
    }
}

impl Files {
    /// Opens the append-only file `name` in a folder. If there is no manifest, the append-only file
    /// has no files yet.
    ///
    /// # Errors
    /// If the manifest cannot be read or is invalid.
    pub fn open(folder: &dyn Folder, name: &str) -> Result<Self, FilesError> {
        let text = folder.read(&manifest_name(name))?;
        let manifest = match &text {
            Some(text) => Manifest::parse(text).map_err(FilesError::Manifest)?,
            None => Manifest::default(),
        };
        Ok(Self { name: name.to_owned(), manifest, text, set_aside: Vec::new() })
    }

    /// Creates a new append-only file called `name`. The folder may contain another one that was
    /// not loaded: its files stay, and its manifest is renamed.
    pub fn create_new(name: &str) -> Self {
        let (manifest, set_aside) = (Manifest::default(), Vec::new());
        Self { name: name.to_owned(), manifest, text: None, set_aside }
    }

    /// Returns, and forgets, the new names to which foreign manifests were renamed. A foreign
    /// manifest is one that this process has neither read nor written, and that a new one has
    /// replaced.
    pub fn take_set_aside(&mut self) -> Vec<String> {
        std::mem::take(&mut self.set_aside)
    }

    /// Returns the manifest: the list of files that are in use.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Writes a new manifest of the append-only file, which replaces the current one. If another
    /// process has put a manifest there, that one is renamed and kept.
    ///
    /// # Errors
    /// The current manifest stays in force. Exception: if only the last sync of the folder failed,
    /// the new manifest is in place, but a crash may bring the old one back.
    fn put(&mut self, folder: &dyn Folder, manifest: Manifest) -> Result<(), FileError> {
        let temporary = temp_manifest_name(&self.name);
        let text = manifest.to_text().into_bytes();
        let mut file = create_temporary(folder, &temporary)?;
        file.append(&text)?;
        file.sync()?;
        let name = manifest_name(&self.name);
        if let Some(present) = folder.read(&name)?
            && self.text.as_ref() != Some(&present)
        {
            self.set_aside.push(keep_aside(folder, &name)?);
        }
        folder.rename(&temporary, &name)?;
        (self.manifest, self.text) = (manifest, Some(text));
        folder.sync()
    }

    /// Adopts the single append-only file of Redis 6 or earlier, which the caller has moved into
    /// the folder without changing its name. Writes a manifest with this file as the base.
    ///
    /// # Errors
    /// If the manifest cannot be written.
    pub fn migrate_single_file(&mut self, folder: &dyn Folder) -> Result<(), FileError> {
        folder.sync()?;
        self.put(folder, Manifest::of_single_file(&self.name))
    }

    /// Creates an incremental file for the changes from now on and adds it to the manifest.
    ///
    /// # Errors
    /// If the file cannot be created, or the manifest cannot be written.
    pub fn begin_incr(&mut self, folder: &dyn Folder) -> Result<Arc<dyn LogFile>, FileError> {
        let mut next = self.manifest.clone();
        next.skip_unnamed_incrs(&self.name, |name| folder.has(name));
        let file = folder.create_log(&next.add_incr(&self.name).name)?;
        file.sync()?;
        // Its name must be on the disk before the manifest that names it.
        folder.sync()?;
        self.put(folder, next)?;
        Ok(file)
    }

    /// Opens the last incremental file to append to it, and cuts it off after its first `len_bytes`
    /// bytes.
    ///
    /// # Errors
    /// If the file cannot be opened or does not exist, or if the manifest cannot be written.
    pub fn resume_incr(
        &mut self,
        folder: &dyn Folder,
        len_bytes: u64,
    ) -> Result<Arc<dyn LogFile>, FileError> {
        let mut next = self.manifest.clone();
        let Some(name) = next.open_last_incr().map(|part| part.name.clone()) else {
            return Err(FileError("the manifest names no incremental file".to_owned()));
        };
        let file = folder.open_log(&name, len_bytes)?;
        // A killed process may have left data that is not synced, including the manifest.
        folder.sync()?;
        for part in &next.incr {
            folder.sync_file(&part.name)?;
        }
        if next != self.manifest {
            self.put(folder, next)?;
        }
        Ok(file)
    }

    /// Returns the number of the last incremental file of the append-only file; `None` if there is
    /// none.
    pub fn last_incr(&self) -> Option<i64> {
        self.manifest.incr.last().map(|part| part.seq)
    }

    /// Returns a name for the next base file of the append-only file; no file has this name yet.
    pub fn next_base(&mut self, folder: &dyn Folder, kind: BaseKind) -> String {
        self.manifest.skip_unnamed_bases(&self.name, |name| folder.has(name));
        self.manifest.clone().replace_base(&self.name, kind, KeptIncrs::None).name.clone()
    }

    /// Creates an incremental file for the changes from now on. The file is added to the manifest
    /// only together with its base ([`Kept::Unnamed`]).
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn begin_unnamed_incr(&self, folder: &dyn Folder) -> Result<Arc<dyn LogFile>, FileError> {
        let name = temp_incr_name(&self.name);
        if folder.has(&name) {
            // Without its base the old one is useless, and no process writes to it.
            folder.remove(&name)?;
        }
        folder.create_log(&name)
    }

    /// Checks that the file of [`begin_unnamed_incr`](Self::begin_unnamed_incr) can be created, by
    /// creating it empty. If it exists, it is left unchanged, because a rewrite in progress may
    /// need it.
    ///
    /// # Errors
    /// If the file cannot be created.
    pub fn try_unnamed_incr(&self, folder: &dyn Folder) -> Result<(), FileError> {
        match folder.has(&temp_incr_name(&self.name)) {
            true => Ok(()),
            false => self.begin_unnamed_incr(folder).map(drop),
        }
    }

    /// Removes the file of [`begin_unnamed_incr`](Self::begin_unnamed_incr), because its base will
    /// not be written.
    pub fn drop_unnamed_incr(&self, folder: &dyn Folder) {
        // The next one replaces it in any case.
        let _ = folder.remove(&temp_incr_name(&self.name));
    }

    /// Adds the next base to the manifest. The old base becomes history, and so do the incremental
    /// files that `base.kept` does not name.
    ///
    /// # Errors
    /// If the manifest cannot be written. The old base stays in force, and the file of the new one
    /// is removed. If only the last sync of the folder failed, the new base is in force, but a
    /// crash may bring the old one back.
    pub fn take_base(&mut self, folder: &dyn Folder, base: NewBase) -> Result<(), FileError> {
        let NewBase { kind, kept, now_s, restored_until_s } = base;
        let mut next = self.manifest.clone();
        let kept_incrs = match kept {
            Kept::None | Kept::Unnamed => KeptIncrs::None,
            Kept::From { seq } => KeptIncrs::From { seq },
        };
        let history_before = next.history.len();
        let base = next.replace_base(&self.name, kind, kept_incrs).name.clone();
        next.date_history(now_s);
        if let Some(until_s) = restored_until_s {
            next.note_restore(until_s, next.history.len() - history_before);
        }
        let result = if kept == Kept::Unnamed {
            next.skip_unnamed_incrs(&self.name, |name| folder.has(name));
            let incr = next.add_incr(&self.name).name.clone();
            folder.rename(&temp_incr_name(&self.name), &incr).and_then(|()| folder.sync())
        } else {
            Ok(())
        };
        let result = result.and_then(|()| self.put(folder, next));
        if result.is_err() && self.manifest.base.as_ref().is_none_or(|now| now.name != base) {
            // No manifest names it, so it would stay for ever.
            let _ = folder.remove(&base);
        }
        result
    }

    /// Removes the files that became history at least `ttl_s` seconds ago, oldest first. Returns
    /// the number of removed files. Files that a restore replaced stay
    /// ([`Manifest::take_expired`]).
    ///
    /// # Errors
    /// If a file cannot be removed. The manifest still names it, and the next call tries again.
    pub fn remove_history(
        &mut self,
        folder: &dyn Folder,
        now_s: i64,
        ttl_s: i64,
    ) -> Result<usize, FileError> {
        let mut next = self.manifest.clone();
        next.date_history(now_s);
        let expired = next.take_expired(now_s, ttl_s, |name| folder.has(name));
        if next == self.manifest {
            return Ok(0);
        }
        for part in &expired {
            // A manifest changed by hand may name a file twice, or itself.
            let is_needed = part.name == manifest_name(&self.name) || next.names(&part.name);
            if !is_needed && folder.has(&part.name) {
                folder.remove(&part.name)?;
            }
        }
        self.put(folder, next)?;
        Ok(expired.len())
    }
}

/// Returns true if `file` has the form of the names of base and incremental files of
/// `appendfilename`.
pub fn is_part_name(appendfilename: &str, file: &str) -> bool {
    let number = file.strip_prefix(appendfilename).and_then(|rest| rest.strip_prefix('.')).and_then(|rest| {
        [".base.rdb", ".base.aof", ".incr.aof"].iter().find_map(|suffix| rest.strip_suffix(suffix))
    });
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_by_their_names() {
        let is_part = |file| is_part_name("a.aof", file);
        for file in ["a.aof.1.base.rdb", "a.aof.23.base.aof", "a.aof.4.incr.aof"] {
            assert!(is_part(file), "{file}");
        }
        for file in [
            "a.aof",
            "a.aof.manifest",
            "a.aof.1.base.txt",
            "a.aof.x.incr.aof",
            "b.aof.1.incr.aof",
            "a.aof..incr.aof",
        ] {
            assert!(!is_part(file), "{file}");
        }
    }
}
