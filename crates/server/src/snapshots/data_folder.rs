//! The data folder on disk, and the lock that keeps a second server from writing to it.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use persist::folder::{DataFile, FileError, Folder, LogFile, Stamp, Unwritten, receiver_pid, writer_pid};

/// A folder of data files on disk.
pub struct DataFolder {
    path: PathBuf,
}

fn trouble(error: io::Error) -> FileError {
    FileError(error.to_string())
}

impl DataFolder {
    /// Creates a handle for the folder at `path`, without access to the disk.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns the path of the data folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the file `name` in the data folder.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the names of the files in the folder, sorted; empty if the folder does not exist.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn names(&self) -> Result<Vec<String>, FileError> {
        let entries = match std::fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(trouble(error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            names.extend(entry.map_err(trouble)?.file_name().into_string());
        }
        names.sort();
        Ok(names)
    }

    /// Returns the names of the temporary files that saves of ended processes have left. Leaves out
    /// `own`, the name of the data file. O(files of the folder).
    fn leftovers(&self, own: &str) -> Vec<String> {
        let is_left = |name: &String| {
            let is_gone = |pid| !Path::new(&format!("/proc/{pid}")).exists() || pid == std::process::id();
            name != own && writer_pid(name).is_some_and(is_gone)
        };
        self.names().unwrap_or_default().into_iter().filter(is_left).collect()
    }

    /// Removes the snapshots that ended processes have received from their primaries and did not
    /// load. Never removes `own`, the name of the data file. O(files of the folder).
    pub fn remove_received(&self, own: &str) {
        for name in self.leftovers(own).iter().filter(|name| receiver_pid(name).is_some()) {
            tracing::info!("Removing {name}, a snapshot of the primary that was not loaded.");
            if let Err(error) = std::fs::remove_file(self.path.join(name)) {
                tracing::warn!("Cannot remove {name}: {error}");
            }
        }
    }

    /// Removes the temporary files that saves of ended processes have left. Never removes `own`,
    /// the name of the data file. Called only after complete data was loaded. O(files of the
    /// folder).
    pub fn remove_leftovers(&self, own: &str) {
        for name in self.leftovers(own) {
            tracing::info!("Removing {name}, the temporary file of a save that did not finish.");
            if let Err(error) = std::fs::remove_file(self.path.join(&name)) {
                tracing::warn!("Cannot remove {name}: {error}");
            }
        }
    }

    /// Logs a warning about each temporary file that a save of an ended process has left. Leaves
    /// out `own`, the name of the data file. Called if no data was loaded, because these files may
    /// contain the only data.
    pub fn report_leftovers(&self, own: &str) {
        for name in self.leftovers(own) {
            tracing::warn!(
                "{} holds {name}, the temporary file of a save that did not finish, and no complete data. \
                 The server keeps the file. Remove it if you do not need it.",
                self.path.display()
            );
        }
    }
}

/// Returns the stamp of a file, which identifies its contents (device, inode, length, time of
/// change); `None` if the file is missing or cannot be examined.
pub fn stamp_of(path: &Path) -> Option<Stamp> {
    let name = path.file_name()?.to_str()?;
    DataFolder::new(path.parent()?).stamp(name).ok().flatten()
}

impl Folder for DataFolder {
    fn create(&self, name: &str) -> Result<Box<dyn DataFile>, FileError> {
        Ok(Box::new(RealFile(File::create_new(self.file(name)).map_err(trouble)?)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), FileError> {
        std::fs::rename(self.file(from), self.file(to)).map_err(trouble)
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        std::fs::remove_file(self.file(name)).map_err(trouble)
    }

    fn sync(&self) -> Result<(), FileError> {
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(trouble)
    }

    fn has(&self, name: &str) -> bool {
        // A name that cannot be examined counts as existing.
        !matches!(std::fs::symlink_metadata(self.file(name)), Err(error) if error.kind() == io::ErrorKind::NotFound)
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, FileError> {
        match std::fs::read(self.file(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(trouble(error)),
        }
    }

    fn open_log(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn LogFile>, FileError> {
        let file = File::options().append(true).open(self.file(name)).map_err(trouble)?;
        file.set_len(len_bytes).map_err(trouble)?;
        Ok(Arc::new(RealLog(file)))
    }

    fn create_log(&self, name: &str) -> Result<Arc<dyn LogFile>, FileError> {
        let file = File::options().append(true).create_new(true).open(self.file(name)).map_err(trouble)?;
        Ok(Arc::new(RealLog(file)))
    }

    fn link(&self, from: &str, to: &str) -> Result<(), FileError> {
        let (from, to) = (self.file(from), self.file(to));
        match std::fs::hard_link(&from, &to) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(trouble(error)),
            // Some file systems have no hard links, so the file is copied.
            Err(_) => copy(&from, &to).map_err(trouble),
        }
    }

    fn stamp(&self, name: &str) -> Result<Option<Stamp>, FileError> {
        match std::fs::symlink_metadata(self.file(name)) {
            Ok(found) => Ok(Some(Stamp {
                device: found.dev(),
                inode: found.ino(),
                len_bytes: found.len(),
                changed_ns: i128::from(found.mtime()) * 1_000_000_000 + i128::from(found.mtime_nsec()),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(trouble(error)),
        }
    }

    fn sync_file(&self, name: &str) -> Result<(), FileError> {
        File::open(self.file(name)).and_then(|file| file.sync_all()).map_err(trouble)
    }
}

/// Copies a file to a name that does not exist yet. The copy is synced when the function returns.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let (mut old, mut new) = (File::open(from)?, File::create_new(to)?);
    let copied = io::copy(&mut old, &mut new).and_then(|_| new.sync_all());
    if copied.is_err() {
        // A partial copy is useless, so it is removed.
        let _ = std::fs::remove_file(to);
    }
    copied
}

/// An append-only file on disk that is open for appending.
struct RealLog(File);

impl LogFile for RealLog {
    fn append(&self, bytes: &[u8]) -> Result<(), Unwritten> {
        let mut written_bytes = 0;
        while written_bytes < bytes.len() {
            match (&self.0).write(&bytes[written_bytes..]) {
                Ok(0) => {
                    let trouble = FileError("the system wrote no bytes to the file".to_owned());
                    return Err(Unwritten { written_bytes, trouble });
                }
                Ok(len) => written_bytes += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unwritten { written_bytes, trouble: trouble(error) }),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), FileError> {
        self.0.sync_data().map_err(trouble)
    }

    fn cut(&self, len_bytes: u64) -> Result<(), FileError> {
        self.0.set_len(len_bytes).map_err(trouble)
    }
}

struct RealFile(File);

impl DataFile for RealFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        self.0.write_all(bytes).map_err(trouble)
    }

    fn sync(&mut self) -> Result<(), FileError> {
        self.0.sync_data().map_err(trouble)
    }
}

/// A lock that keeps other servers from writing to a data folder. The system releases the lock when
/// the process ends, also after a crash.
#[derive(Debug)]
pub struct FolderLock {
    folder: File,
}

impl FolderLock {
    /// Acquires the lock of the data folder at `path`.
    ///
    /// # Errors
    /// Another server holds the lock, or the folder cannot be opened.
    pub fn take(path: &Path) -> Result<Self, FileError> {
        let folder = File::open(path).map_err(trouble)?;
        match folder.try_lock() {
            Ok(()) => Ok(Self { folder }),
            Err(TryLockError::WouldBlock) => Err(FileError(format!(
                "another server writes to the folder {}: give each server a 'dir' of its own",
                path.display()
            ))),
            // Some file systems have no locks. The server then works without one.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                Ok(Self { folder })
            }
            Err(TryLockError::Error(error)) => Err(trouble(error)),
        }
    }

    /// Returns true if this is the lock of the data folder at `path`. Two different paths may name
    /// the same folder.
    pub fn is_of(&self, path: &Path) -> bool {
        let same = |here: Metadata, there: Metadata| here.dev() == there.dev() && here.ino() == there.ino();
        self.folder.metadata().and_then(|here| Ok(same(here, std::fs::metadata(path)?))).unwrap_or(false)
    }
}
