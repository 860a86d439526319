//! The append-only files in their folder, and how they change: whatever moment a crash comes at,
//! the manifest names files that make up all the data.
//!
//! ```text
//!   a file for what comes now    created, synced ─► manifest that names it ─► used
//!   a new base                   complete under its name ─► manifest with it ─► history removed
//! ```

use std::fmt;
use std::sync::Arc;

use super::manifest::{
    BaseKind, KeptIncrs, Manifest, ManifestError, manifest_name, temp_incr_name, temp_manifest_name,
};
use crate::folder::{Folder, LogFile, Trouble, create_temporary, keep_aside};

/// The files, by the manifest as it is in the folder.
#[derive(Clone, Debug)]
pub struct Files {
    name: String,
    manifest: Manifest,
    /// The text of the manifest as it was read or written last; `None` where there was none.
    text: Option<Vec<u8>>,
    /// Names under which other manifests were kept.
    kept_aside: Vec<String>,
}

/// The changes since the point of a new base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Nothing, or nobody keeps it.
    None,
    /// The files from this number on ([`Files::last_incr`]).
    From {
        /// The number.
        seq: i64,
    },
    /// The file that the manifest does not name yet.
    Unnamed,
}

/// A new base, complete under its name ([`Files::next_base`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewBase {
    /// The format of the base.
    pub kind: BaseKind,
    /// The changes since its point.
    pub kept: Kept,
    /// Now, in Unix seconds.
    pub now_s: i64,
    /// The time whose state it holds, in Unix seconds, if it takes the place of later files (a
    /// restore).
    pub restored_until_s: Option<i64>,
}

/// Why the files cannot be told.
#[derive(Debug)]
pub enum FilesError {
    /// The manifest cannot be read.
    Trouble(Trouble),
    /// It is none.
    Manifest(ManifestError),
}

impl fmt::Display for FilesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FilesError::Trouble(trouble) => write!(f, "{trouble}"),
            FilesError::Manifest(error) => write!(f, "{error}"),
        }
    }
}

impl From<Trouble> for FilesError {
    fn from(trouble: Trouble) -> Self {
        Self::Trouble(trouble)
    }
}

impl Files {
    /// Opens the files of the append-only file `name` in a folder: none if there is no manifest.
    ///
    /// # Errors
    /// The manifest cannot be read, or is invalid.
    pub fn open(folder: &dyn Folder, name: &str) -> Result<Self, FilesError> {
        let text = folder.read(&manifest_name(name))?;
        let manifest = match &text {
            Some(text) => Manifest::parse(text).map_err(FilesError::Manifest)?,
            None => Manifest::default(),
        };
        Ok(Self { name: name.to_owned(), manifest, text, kept_aside: Vec::new() })
    }

    /// Creates the files of a new append-only file `name`, in a folder that may hold one that was
    /// not loaded. Its files stay, and so does its manifest, under another name.
    pub fn anew(name: &str) -> Self {
        let (manifest, kept_aside) = (Manifest::default(), Vec::new());
        Self { name: name.to_owned(), manifest, text: None, kept_aside }
    }

    /// Takes the names under which manifests were kept that were neither read nor written by this
    /// process, and whose place a new one has taken.
    pub fn take_kept_aside(&mut self) -> Vec<String> {
        std::mem::take(&mut self.kept_aside)
    }

    /// Returns the manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Puts a manifest in the place of the present one. One that somebody else has put there is
    /// kept aside.
    ///
    /// # Errors
    /// The present one is what holds then, unless only the last step failed: then a crash decides.
    fn put(&mut self, folder: &dyn Folder, manifest: Manifest) -> Result<(), Trouble> {
        let temporary = temp_manifest_name(&self.name);
        let text = manifest.to_text().into_bytes();
        let mut file = create_temporary(folder, &temporary)?;
        file.append(&text)?;
        file.sync()?;
        let name = manifest_name(&self.name);
        if let Some(present) = folder.read(&name)?
            && self.text.as_ref() != Some(&present)
        {
            self.kept_aside.push(keep_aside(folder, &name)?);
        }
        folder.rename(&temporary, &name)?;
        (self.manifest, self.text) = (manifest, Some(text));
        folder.sync()
    }

    /// Takes over the append-only file of Redis 6 and earlier, which was moved into the folder
    /// under its own name.
    ///
    /// # Errors
    /// The manifest cannot be written.
    pub fn adopt_single(&mut self, folder: &dyn Folder) -> Result<(), Trouble> {
        folder.sync()?;
        self.put(folder, Manifest::of_single_file(&self.name))
    }

    /// Creates a file for the changes from now on, and names it in the manifest.
    ///
    /// # Errors
    /// It cannot be created.
    pub fn begin_incr(&mut self, folder: &dyn Folder) -> Result<Arc<dyn LogFile>, Trouble> {
        let mut next = self.manifest.clone();
        next.skip_unnamed_incrs(&self.name, |name| folder.has(name));
        let file = folder.create_log(&next.add_incr(&self.name).name)?;
        file.sync()?;
        // Its name must not come to the disk behind that of the manifest.
        folder.sync()?;
        self.put(folder, next)?;
        Ok(file)
    }

    /// Opens the file that was written to last, to continue behind its first `len_bytes`.
    ///
    /// # Errors
    /// It cannot be opened, or there is none.
    pub fn resume_incr(&mut self, folder: &dyn Folder, len_bytes: u64) -> Result<Arc<dyn LogFile>, Trouble> {
        let mut next = self.manifest.clone();
        let Some(name) = next.open_last_incr().map(|part| part.name.clone()) else {
            return Err(Trouble("the manifest names no incremental file".to_owned()));
        };
        let file = folder.open_log(&name, len_bytes)?;
        // A process that was killed may have left what is not safe yet, the manifest among it.
        folder.sync()?;
        for part in &next.incr {
            folder.sync_file(&part.name)?;
        }
        if next != self.manifest {
            self.put(folder, next)?;
        }
        Ok(file)
    }

    /// Returns the number of the last incremental file; `None` if there is none.
    pub fn last_incr(&self) -> Option<i64> {
        self.manifest.incr.last().map(|part| part.seq)
    }

    /// Returns the name of the next base: no file has it.
    pub fn next_base(&mut self, folder: &dyn Folder, kind: BaseKind) -> String {
        self.manifest.skip_unnamed_bases(&self.name, |name| folder.has(name));
        self.manifest.clone().replace_base(&self.name, kind, KeptIncrs::None).name.clone()
    }

    /// Creates a file for the changes from now on that the manifest does not name before there is
    /// a base for it ([`Kept::Unnamed`]).
    ///
    /// # Errors
    /// It cannot be created.
    pub fn begin_unnamed_incr(&self, folder: &dyn Folder) -> Result<Arc<dyn LogFile>, Trouble> {
        let name = temp_incr_name(&self.name);
        if folder.has(&name) {
            // Without its base it is worth nothing, and nobody writes to it.
            folder.remove(&name)?;
        }
        folder.create_log(&name)
    }

    /// Sees whether there can be that file. One that is there is left as it is: a rewrite may be
    /// under way that needs what is in it.
    ///
    /// # Errors
    /// There can be none.
    pub fn try_unnamed_incr(&self, folder: &dyn Folder) -> Result<(), Trouble> {
        match folder.has(&temp_incr_name(&self.name)) {
            true => Ok(()),
            false => self.begin_unnamed_incr(folder).map(drop),
        }
    }

    /// Removes that file: there will be no base for it.
    pub fn drop_unnamed_incr(&self, folder: &dyn Folder) {
        // The next one takes its place in any case.
        let _ = folder.remove(&temp_incr_name(&self.name));
    }

    /// Takes the next base. The files that are not kept are history from here on.
    ///
    /// # Errors
    /// The manifest cannot be written; the old base holds.
    pub fn take_base(&mut self, folder: &dyn Folder, base: NewBase) -> Result<(), Trouble> {
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
            // Nobody will look for it.
            let _ = folder.remove(&base);
        }
        result
    }

    /// Removes the files that became history `ttl_s` seconds ago or earlier, oldest first; how
    /// many. What a restore left out stays ([`Manifest::take_expired`]).
    ///
    /// # Errors
    /// Some remain: the manifest names them, and the next time they go.
    pub fn remove_history(&mut self, folder: &dyn Folder, now_s: i64, ttl_s: i64) -> Result<usize, Trouble> {
        let mut next = self.manifest.clone();
        next.date_history(now_s);
        let expired = next.take_expired(now_s, ttl_s, |name| folder.has(name));
        if next == self.manifest {
            return Ok(0);
        }
        for part in &expired {
            // A manifest that somebody has changed may name a file twice, or itself.
            let is_needed = part.name == manifest_name(&self.name) || next.names(&part.name);
            if !is_needed && folder.has(&part.name) {
                folder.remove(&part.name)?;
            }
        }
        self.put(folder, next)?;
        Ok(expired.len())
    }
}

/// Returns true if `file` is called as the bases and incremental files of `appendfilename` are.
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
