//! The file of a Unix socket, and the rules for its replacement and removal.
//!
//! A socket file stays when its process is killed, so a new listener has to replace it. Between
//! `bind` and `listen` a socket refuses connections just as an abandoned one does. So if each
//! process only probed, that is, tried to connect, two processes could remove each other's file.
//! [`PathLock`] makes probe, removal, bind and listen one atomic step. It also makes the check and
//! the removal at the end of a process atomic.
//!
//! The lock is a file next to the socket, as in PostgreSQL and MySQL. The folder is not used as the
//! lock: every user who can read a folder can lock it, an unreadable folder cannot be opened, and
//! NFS does not lock folders. The file is removed before the lock is released. If a killed process
//! left one, it is used again.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

/// The suffix of file names that turns the name of a socket into that of its lock file.
const LOCK_SUFFIX: &str = ".saker-lock";

/// The file in the file system that represents a Unix socket of a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketFile {
    /// The absolute path of the socket file, because the working folder may change.
    path: PathBuf,
    identity: Identity,
}

/// The device number and the inode number of a file, which identify it.
type Identity = (u64, u64);

impl SocketFile {
    /// Records the path and the identity of the socket file at `path`, which was bound just now.
    /// The caller holds the [`PathLock`] of `path`.
    pub(crate) fn just_bound(path: &Path) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        Ok(Self { path: std::path::absolute(path)?, identity: (found.dev(), found.ino()) })
    }

    /// Returns the absolute path of the socket file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the socket file. Leaves the file if another file is at the path by now or another
    /// process is about to listen there. Returns true if the file was removed.
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

/// The exclusive right to replace or remove the socket file at a path. Dropping the value releases
/// the lock.
#[derive(Debug)]
pub(crate) struct PathLock {
    path: PathBuf,
    /// The open lock file; closing it releases the lock.
    _file: File,
}

impl PathLock {
    /// Takes the lock of the socket at `socket_path` without waiting; `AddrInUse` if another
    /// process has it.
    pub(crate) fn of(socket_path: &Path) -> io::Result<Self> {
        let mut path = socket_path.as_os_str().to_owned();
        path.push(LOCK_SUFFIX);
        let path = PathBuf::from(path);
        loop {
            // In a folder that several users can write, the name may be another user's symbolic
            // link.
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
        // The inode may be used again; only a different one shows that the file is another.
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
