//! The file of a Unix socket: who may replace it, and who removes it.
//!
//! A socket file outlives its socket, so a new listener has to replace what a killed process left
//! behind. Between `bind` and `listen` a socket refuses connections just as an abandoned one does,
//! so probing alone would let two processes remove each other's file. [`PathLock`] makes probe,
//! removal, bind and listen one step, and the removal at the end as well.
//!
//! The lock is a file beside the socket, as PostgreSQL and MySQL have it, and not the folder
//! itself: every user who can read a folder can lock it, an unreadable folder cannot be opened, and
//! NFS does not lock folders. The file is removed before the lock is released, so nothing stays
//! behind; one that a killed process left is used again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The suffix that makes the name of a socket that of its lock file.
const LOCK_SUFFIX: &str = ".saker-lock";

/// The file of a listener's socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketFile {
    /// Absolute: the working folder may change.
    path: PathBuf,
    identity: Identity,
}

/// The device and the number of a file.
type Identity = (u64, u64);

impl SocketFile {
    /// Describes the file that a socket has just been bound to. The caller holds the lock of
    /// `path`.
    pub(crate) fn just_bound(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self { path: std::path::absolute(path)?, identity: (found.dev(), found.ino()) })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file unless another has its name by now. Whether it was removed. A path that
    /// another process is about to listen on is left to that one.
    pub fn remove(&self) -> io::Result<bool> {
        let _lock = match PathLock::of(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => return Ok(false),
            lock => lock?,
        };
        match fs::symlink_metadata(&self.path) {
            Ok(found) if (found.dev(), found.ino()) == self.identity => {
                fs::remove_file(&self.path)?;
                Ok(true)
            }
            Ok(_) => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The right to replace or remove the socket file at a path. Dropping it gives it back.
#[derive(Debug)]
pub(crate) struct PathLock {
    path: PathBuf,
    /// Closing it releases the lock.
    _file: File,
}

impl PathLock {
    /// Takes the lock of the socket at `socket_path` without waiting: `AddrInUse` where
    /// another process has it.
    pub(crate) fn of(socket_path: &Path) -> io::Result<Self> {
        let mut path = socket_path.as_os_str().to_owned();
        path.push(LOCK_SUFFIX);
        let path = PathBuf::from(path);
        loop {
            // In a folder of many users the name may be a link that somebody else made.
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .mode(0o600)
                .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32)
                .open(&path)?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::AddrInUse.into()),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let locked = file.metadata()?;
            match fs::symlink_metadata(&path) {
                Ok(named) if (named.dev(), named.ino()) == (locked.dev(), locked.ino()) => {
                    return Ok(Self { path, _file: file });
                }
                // The process that had the lock has removed the file meanwhile.
                _ => {}
            }
        }
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        // The folder may have been removed.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::net::UnixListener;
    use std::sync::Barrier;

    use super::*;
    use crate::Listener;

    fn names(folder: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn a_path_that_is_being_taken_is_left_alone() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let path = folder.path().join("s");
        drop(UnixListener::bind(&path).expect("bound"));
        let abandoned = SocketFile::just_bound(&path).expect("there");
        let lock = PathLock::of(&path).expect("free");
        let refused = Listener::unix(&path, None, 16).expect_err("locked");
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        assert!(!abandoned.remove().expect("left alone"));
        assert_eq!(SocketFile::just_bound(&path).expect("there"), abandoned);
        drop(lock);
        let listener = Listener::unix(&path, None, 16).expect("an abandoned file is replaced");
        assert_eq!(names(folder.path()), BTreeSet::from(["s".to_owned()]));
        // A number may be used again: only where it was not is the file known to be another.
        let own = listener.socket_file().expect("a Unix socket");
        if *own != abandoned {
            assert!(!abandoned.remove().expect("another's"));
        }
        assert!(own.remove().expect("removed"));
        assert!(!own.remove().expect("gone already"));
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn one_of_many_gets_an_abandoned_path() {
        const RIVALS: usize = 8;
        let folder = tempfile::tempdir().expect("a scratch folder");
        for round in 0..100 {
            let path = folder.path().join(round.to_string());
            drop(UnixListener::bind(&path).expect("bound"));
            let barrier = Barrier::new(RIVALS);
            let results: Vec<io::Result<Listener>> = std::thread::scope(|scope| {
                let rival = || {
                    barrier.wait();
                    Listener::unix(&path, None, 16)
                };
                let rivals: Vec<_> = (0..RIVALS).map(|_| scope.spawn(rival)).collect();
                rivals.into_iter().map(|rival| rival.join().expect("no panic")).collect()
            });
            assert_eq!(results.iter().flatten().count(), 1, "{results:?}");
            std::os::unix::net::UnixStream::connect(&path).expect("the winner's file is there");
        }
        assert_eq!(names(folder.path()).len(), 100);
    }

    #[test]
    fn a_link_in_place_of_the_lock_is_not_followed() {
        let folder = tempfile::tempdir().expect("a scratch folder");
        let (path, other) = (folder.path().join("s"), folder.path().join("other"));
        std::os::unix::fs::symlink(&other, folder.path().join(format!("s{LOCK_SUFFIX}"))).expect("made");
        Listener::unix(&path, None, 16).expect_err("no lock");
        assert!(!other.exists() && !path.exists());
    }
}
