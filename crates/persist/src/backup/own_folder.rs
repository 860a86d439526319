//! The folder of a backup, in which only files that the backup has created are replaced or removed.
//!
//! START refuses a folder that is not empty, but another program may create files later, perhaps
//! with the names of the backup's files. So the names that the backup has created are recorded.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard};

use crate::folder::{DataFile, FileError, Folder, LogFile, Stamp};

/// The names of the files that one backup has created in its folder, or renamed. No other lock is
/// taken under its lock.
#[derive(Debug, Default)]
pub struct OwnNames(Mutex<BTreeSet<String>>);

impl OwnNames {
    fn names(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().expect("nothing panics while it is locked")
    }

    fn has(&self, name: &str) -> bool {
        self.names().contains(name)
    }

    fn add(&self, name: &str) {
        self.names().insert(name.to_owned());
    }

    fn forget(&self, name: &str) {
        self.names().remove(name);
    }
}

/// The folder of a backup. A file that the backup has not created is neither replaced nor removed:
/// such an operation is an error.
#[derive(Clone, Copy)]
pub struct OwnFolder<'f> {
    folder: &'f dyn Folder,
    own: &'f OwnNames,
}

impl<'f> OwnFolder<'f> {
    /// Creates a view of `folder`. `own` has the names that the backup has created in it so far.
    pub fn new(folder: &'f dyn Folder, own: &'f OwnNames) -> Self {
        Self { folder, own }
    }

    fn check_own(&self, name: &str) -> Result<(), FileError> {
        match self.own.has(name) {
            true => Ok(()),
            false => Err(FileError(format!("another program created {name}: move it to another folder"))),
        }
    }

    /// Removes a file if the backup has created it. Returns true if it has removed it.
    ///
    /// # Errors
    /// An error of the system.
    pub fn remove_own(&self, name: &str) -> Result<bool, FileError> {
        let is_there = self.own.has(name) && self.folder.has(name);
        if is_there {
            self.folder.remove(name)?;
        }
        self.own.forget(name);
        Ok(is_there)
    }
}

impl Folder for OwnFolder<'_> {
    fn create(&self, name: &str) -> Result<Box<dyn DataFile>, FileError> {
        let file = self.folder.create(name)?;
        self.own.add(name);
        Ok(file)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.check_own(from)?;
        if self.folder.has(to) {
            self.check_own(to)?;
        }
        self.folder.rename(from, to)?;
        self.own.forget(from);
        self.own.add(to);
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        self.check_own(name)?;
        self.folder.remove(name)?;
        self.own.forget(name);
        Ok(())
    }

    fn sync(&self) -> Result<(), FileError> {
        self.folder.sync()
    }

    fn has(&self, name: &str) -> bool {
        self.folder.has(name)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FileError> {
        self.folder.read(name)
    }

    fn create_log(&self, name: &str) -> Result<Arc<dyn LogFile>, FileError> {
        let file = self.folder.create_log(name)?;
        self.own.add(name);
        Ok(file)
    }

    fn link(&self, from: &str, to: &str) -> Result<(), FileError> {
        self.folder.link(from, to)?;
        self.own.add(to);
        Ok(())
    }

    fn stamp(&self, name: &str) -> Result<Option<Stamp>, FileError> {
        self.folder.stamp(name)
    }

    fn open_log(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn LogFile>, FileError> {
        self.check_own(name)?;
        self.folder.open_log(name, len_bytes)
    }

    fn sync_file(&self, name: &str) -> Result<(), FileError> {
        self.folder.sync_file(name)
    }
}
