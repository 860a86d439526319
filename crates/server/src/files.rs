//! Files that are there while the server runs: the process id, and the Unix socket.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use server::config::{ConfigStore, apply};

/// The file of the process id where the server runs in the background and `pidfile` does not say.
const PIDFILE: &str = "/var/run/saker.pid";

/// The files of a server, removed at its end.
pub struct Files {
    /// Absolute, as the other: the working folder may change later.
    pid: Option<PathBuf>,
    unix_socket: Option<PathBuf>,
    /// What the server has made, of the above.
    made: Made,
}

#[derive(Default)]
struct Made {
    pid: bool,
    /// The device and the number of the socket's file.
    unix_socket: Option<(u64, u64)>,
}

impl Files {
    /// The files that the options name.
    pub fn of(store: &ConfigStore, in_background: bool) -> Self {
        let named = |name: &str| {
            let text = store.text(name);
            let path = (!text.is_empty()).then(|| apply::path(text))?;
            Some(std::path::absolute(&path).unwrap_or(path))
        };
        let pid = named("pidfile").or_else(|| in_background.then(|| Path::new(PIDFILE).to_owned()));
        Self { pid, unix_socket: named("unixsocket"), made: Made::default() }
    }

    /// Whether there is a Unix socket.
    pub fn has_unix_socket(&self) -> bool {
        self.unix_socket.is_some()
    }

    /// Writes the process id, and notes which file the socket is, once the server listens. A server without its
    /// pidfile still serves.
    pub fn begin(&mut self) {
        if let Some(path) = &self.pid {
            match fs::write(path, own_id()) {
                Ok(()) => self.made.pid = true,
                Err(error) => tracing::warn!("Failed to write PID file {}: {error}", path.display()),
            }
        }
        self.made.unix_socket = self.unix_socket.as_deref().and_then(|path| identity(path).ok());
    }

    /// Removes what this server has made and nobody has replaced.
    pub fn remove(&self) {
        if let Some(path) = &self.pid
            && self.made.pid
            && fs::read_to_string(path).is_ok_and(|found| found == own_id())
        {
            tracing::info!("Removing the pid file.");
            remove(path);
        }
        if let Some(path) = &self.unix_socket
            && self.made.unix_socket.is_some()
            && self.made.unix_socket == identity(path).ok()
        {
            tracing::info!("Removing the unix socket file.");
            remove(path);
        }
    }
}

fn own_id() -> String {
    format!("{}\n", std::process::id())
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = fs::symlink_metadata(path)?;
    Ok((found.dev(), found.ino()))
}

fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::warn!("Cannot remove {}: {error}", path.display());
    }
}
