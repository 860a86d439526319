//! Files that exist while the server runs: the pidfile and the Unix socket.

use std::fs;
use std::path::{Path, PathBuf};

use net::SocketFile;
use server::config::{ConfigStore, table};

/// The pidfile of a background server if `pidfile` is not set.
const PIDFILE: &str = "/var/run/saker.pid";

/// The files of a server that are removed when the server ends.
pub struct Files {
    /// Absolute path of the pidfile, because the working folder may change later; `None` if no
    /// pidfile is written.
    pid: Option<PathBuf>,
    /// True if the server has written the pidfile.
    wrote_pid: bool,
    unix_socket: Option<SocketFile>,
}

impl Files {
    /// Returns the files of a server with the options in `store`: the pidfile, if `pidfile` names
    /// one.
    pub fn of(store: &ConfigStore) -> Self {
        let named = table::process::PIDFILE.of(store);
        let pid = (!named.as_os_str().is_empty())
            .then(|| std::path::absolute(named).unwrap_or_else(|_| named.to_owned()));
        Self { pid, wrote_pid: false, unix_socket: None }
    }

    /// Returns the files of a background server, which always has a pidfile.
    pub fn in_background(store: &ConfigStore) -> Self {
        let mut files = Self::of(store);
        files.pid.get_or_insert_with(|| Path::new(PIDFILE).to_owned());
        files
    }

    /// Writes the pidfile, and keeps `unix_socket` so that it can be removed at the end. Called
    /// when the server listens. If the pidfile cannot be written, the server runs without it.
    pub fn begin(&mut self, unix_socket: Option<SocketFile>) {
        if let Some(path) = &self.pid {
            match fs::write(path, own_id()) {
                Ok(()) => self.wrote_pid = true,
                Err(error) => tracing::warn!("Failed to write PID file {}: {error}", path.display()),
            }
        }
        self.unix_socket = unix_socket;
    }

    /// Removes the pidfile and the socket file, unless another process has replaced them.
    pub fn remove(&self) {
        if let Some(path) = &self.pid
            && self.wrote_pid
            && fs::read_to_string(path).is_ok_and(|found| found == own_id())
        {
            tracing::info!("Removing the pid file.");
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!("Cannot remove {}: {error}", path.display());
            }
        }
        match self.unix_socket.as_ref().map(|file| (file, file.remove())) {
            None | Some((_, Ok(false))) => {}
            Some((_, Ok(true))) => tracing::info!("Removing the unix socket file."),
            Some((file, Err(error))) => {
                tracing::warn!("Cannot remove {}: {error}", file.path().display());
            }
        }
    }
}

fn own_id() -> String {
    format!("{}\n", std::process::id())
}
