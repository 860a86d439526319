//! The folder of the data on a real disk, and the lock against a second server that writes to it.

use std::fs::{File, Metadata, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use persist::folder::{DataFile, Folder, LogFile, Trouble, Unwritten, left_by};

/// A folder on disk.
pub struct DataFolder {
    path: PathBuf,
}

fn trouble(error: io::Error) -> Trouble {
    Trouble(error.to_string())
}

impl DataFolder {
    /// The folder at `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Where a file of the folder is.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the names of the files in it, sorted; none where there is no folder.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn names(&self) -> Result<Vec<String>, Trouble> {
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

    /// Removes the files that saves of processes left which are no more. O(files of the folder).
    pub fn remove_leftovers(&self) {
        let Ok(entries) = std::fs::read_dir(&self.path) else { return };
        for name in entries.flatten().map(|entry| entry.file_name()) {
            let Some(pid) = name.to_str().and_then(left_by) else { continue };
            if !Path::new(&format!("/proc/{pid}")).exists() || pid == std::process::id() {
                tracing::info!("Removing {}, which a save left unfinished.", name.display());
                if let Err(error) = std::fs::remove_file(self.path.join(&name)) {
                    tracing::warn!("Cannot remove {}: {error}", name.display());
                }
            }
        }
    }
}

impl Folder for DataFolder {
    fn create(&self, name: &str) -> Result<Box<dyn DataFile>, Trouble> {
        Ok(Box::new(RealFile(File::create(self.file(name)).map_err(trouble)?)))
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), Trouble> {
        std::fs::rename(self.file(from), self.file(to)).map_err(trouble)
    }

    fn remove(&self, name: &str) -> Result<(), Trouble> {
        std::fs::remove_file(self.file(name)).map_err(trouble)
    }

    fn sync(&self) -> Result<(), Trouble> {
        File::open(&self.path).and_then(|folder| folder.sync_all()).map_err(trouble)
    }

    fn has(&self, name: &str) -> bool {
        self.file(name).exists()
    }

    fn read(&self, name: &str) -> Result<Option<Vec<u8>>, Trouble> {
        match std::fs::read(self.file(name)) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(trouble(error)),
        }
    }

    fn open_log(&self, name: &str, len_bytes: u64) -> Result<Arc<dyn LogFile>, Trouble> {
        let file = File::options().append(true).create(true).open(self.file(name)).map_err(trouble)?;
        file.set_len(len_bytes).map_err(trouble)?;
        Ok(Arc::new(RealLog(file)))
    }

    fn sync_file(&self, name: &str) -> Result<(), Trouble> {
        File::open(self.file(name)).and_then(|file| file.sync_all()).map_err(trouble)
    }
}

/// A file that is opened for appending.
struct RealLog(File);

impl LogFile for RealLog {
    fn append(&self, bytes: &[u8]) -> Result<(), Unwritten> {
        let mut written_bytes = 0;
        while written_bytes < bytes.len() {
            match (&self.0).write(&bytes[written_bytes..]) {
                Ok(0) => {
                    let trouble = Trouble("the file takes no more bytes".to_owned());
                    return Err(Unwritten { written_bytes, trouble });
                }
                Ok(len) => written_bytes += len,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Unwritten { written_bytes, trouble: trouble(error) }),
            }
        }
        Ok(())
    }

    fn sync(&self) -> Result<(), Trouble> {
        self.0.sync_data().map_err(trouble)
    }

    fn cut(&self, len_bytes: u64) -> Result<(), Trouble> {
        self.0.set_len(len_bytes).map_err(trouble)
    }
}

struct RealFile(File);

impl DataFile for RealFile {
    fn append(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        self.0.write_all(bytes).map_err(trouble)
    }

    fn sync(&mut self) -> Result<(), Trouble> {
        self.0.sync_data().map_err(trouble)
    }
}

/// Keeps other servers from writing to a folder while it is there. The system lets go of it when
/// the process ends, however it ends.
#[derive(Debug)]
pub struct FolderLock {
    folder: File,
}

impl FolderLock {
    /// Takes the lock.
    ///
    /// # Errors
    /// Another server has it, or the folder cannot be opened.
    pub fn take(path: &Path) -> Result<Self, Trouble> {
        let folder = File::open(path).map_err(trouble)?;
        match folder.try_lock() {
            Ok(()) => Ok(Self { folder }),
            Err(TryLockError::WouldBlock) => Err(Trouble(format!(
                "another server writes to the folder {}: give each server a 'dir' of its own",
                path.display()
            ))),
            // Some file systems have no locks: then nobody can be kept away.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {
                Ok(Self { folder })
            }
            Err(TryLockError::Error(error)) => Err(trouble(error)),
        }
    }

    /// Whether it is that of this folder, whatever names the folder has.
    pub fn is_of(&self, path: &Path) -> bool {
        let same = |here: Metadata, there: Metadata| here.dev() == there.dev() && here.ino() == there.ino();
        self.folder.metadata().and_then(|here| Ok(same(here, std::fs::metadata(path)?))).unwrap_or(false)
    }
}
