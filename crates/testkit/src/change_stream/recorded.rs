//! Servers whose streams of changes are read while they run.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::{Change, parse};
use crate::client::Client;
use crate::process::{ServerProcess, peer, saker};

/// The oldest release of Redis whose records ours are modelled after.
pub const MAJOR_MIN: u32 = 8;

/// A server, and the file that its changes are written to before its replies leave.
#[derive(Debug)]
pub struct RecordedServer {
    /// The server.
    pub process: ServerProcess,
    /// The stream.
    pub file: PathBuf,
    /// What to remove at the end: a folder beyond the server's own.
    folder: Option<PathBuf>,
    /// Up to where the stream has been read.
    read_to: usize,
}

impl RecordedServer {
    /// A saker-server with `options` that writes its change log to a file.
    ///
    /// # Errors
    /// When it does not start, or refuses to.
    pub fn saker(options: &[&str]) -> io::Result<Self> {
        let process = saker::start(&[&["--enable-debug-command", "yes"], options].concat())?;
        let file = process.dir().join("changes");
        let mut client = process.connect();
        let path = file.to_string_lossy().into_owned();
        for command in [&["DEBUG", "CHANGE-LOG", "FILE", &path][..], &["DEBUG", "SET-ACTIVE-EXPIRE", "0"]] {
            let reply = client.command(command);
            if reply.is_error() {
                return Err(io::Error::other(format!("{} answered {reply}", command.join(" "))));
            }
        }
        Ok(Self { process, file, folder: None, read_to: 0 })
    }

    /// A real Redis that writes an append-only file. `None` when it is older than [`MAJOR_MIN`].
    ///
    /// # Errors
    /// When it does not start.
    pub fn redis() -> io::Result<Option<Self>> {
        // The peer may run under another root: its folder is then found by way of its process.
        let name = format!("changes-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let process = peer::start_with(&[
            "--appendonly",
            "yes",
            "--appendfsync",
            "no",
            "--aof-use-rdb-preamble",
            "no",
            "--auto-aof-rewrite-percentage",
            "0",
            "--dir",
            "/tmp",
            "--appenddirname",
            &name,
        ])?;
        // The root folder that the server sees: it may be a container's.
        let root = PathBuf::from(format!("/proc/{}/root", process.pid()));
        let folder = root.join("tmp").join(&name);
        let folder = folder.canonicalize().unwrap_or(folder);
        let file = folder.join("appendonly.aof.1.incr.aof");
        let server = Self { process, file, folder: Some(folder), read_to: 0 };
        let mut client = server.process.connect();
        if major_version(&mut client).is_none_or(|major| major < MAJOR_MIN) {
            return Ok(None);
        }
        client.command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        Ok(Some(server))
    }

    /// The bytes that were written since this was last asked. What a reply has been received for
    /// is among them.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        // Redis writes at the end of a turn, ahead of its replies. A connection that ended, or a
        // client that was served while nobody waited for it, belongs to an earlier turn than this.
        self.process.connect().command(&["PING"]);
        let all = fs::read(&self.file)?;
        let new = all[self.read_to..].to_vec();
        self.read_to = all.len();
        Ok(new)
    }

    /// The changes since this was last asked. They must begin in a known database: the first
    /// after the start does, and any that begins with a command of database 0 in both servers.
    ///
    /// # Errors
    /// When the file cannot be read, or holds something else.
    pub fn changes(&mut self, db: &mut u32) -> io::Result<Vec<Change>> {
        let bytes = self.bytes()?;
        let changes = parse(&bytes, *db).map_err(io::Error::other)?;
        *db = changes.last().map_or(*db, |change| change.db);
        Ok(changes)
    }

    /// Makes a Redis hold what `stream` says and nothing else, as after a restart with that
    /// append-only file: while it loads, nothing expires.
    ///
    /// # Errors
    /// When the file cannot be written, or Redis does not take it.
    pub fn load(&mut self, stream: &[u8]) -> io::Result<()> {
        self.process.connect().command(&["PING"]);
        fs::write(&self.file, stream)?;
        let reply = self.process.connect().command(&["DEBUG", "LOADAOF"]);
        if reply.is_error() {
            Err(io::Error::other(format!("DEBUG LOADAOF answered {reply}")))
        } else {
            Ok(())
        }
    }
}

impl Drop for RecordedServer {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // Leaves a few files in /tmp at worst.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn major_version(client: &mut Client) -> Option<u32> {
    let info = client.command(&["INFO", "server"]);
    let text = String::from_utf8_lossy(info.as_bytes()?).into_owned();
    let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"))?;
    version.split('.').next()?.parse().ok()
}
