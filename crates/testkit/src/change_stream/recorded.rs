//! Servers that write their stream of changes to a file, which the test reads while they run.

use std::fs;
use std::io;
use std::path::PathBuf;

use super::{Change, parse};
use crate::client::{Client, ClientError};
use crate::process::{ServerProcess, peer, saker};

/// The lowest major version of Redis whose stream of changes is compared with Saker's.
pub const MAJOR_MIN: u32 = 8;

/// A server, and the file to which it writes its changes before it sends replies.
#[derive(Debug)]
pub struct RecordedServer {
    /// The process of the server.
    pub process: ServerProcess,
    /// The file to which the server writes its stream of changes.
    pub file: PathBuf,
    /// The folder of [`file`](Self::file) if it is outside the server's own folder; removed when
    /// the handle is dropped.
    folder: Option<PathBuf>,
    /// The length of the part of the stream of changes that has been read, in bytes.
    read_to: usize,
}

impl RecordedServer {
    /// Starts a saker-server with `options` that writes its change log to a file.
    ///
    /// # Errors
    /// The server does not start, or refuses the commands.
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

    /// Starts a real Redis that writes an append-only file. Returns `None` if it is older than
    /// [`MAJOR_MIN`].
    ///
    /// # Errors
    /// The server does not start.
    pub fn redis() -> io::Result<Option<Self>> {
        let server = Self::peer(&peer::command_line())?;
        let major = major_version(&mut server.process.connect());
        Ok(major.is_some_and(|major| major >= MAJOR_MIN).then_some(server))
    }

    /// Starts a real Redis or Valkey, by its command line, that writes an append-only file.
    ///
    /// # Errors
    /// The server does not start.
    pub fn peer(command_line: &str) -> io::Result<Self> {
        // The peer may run with another root folder: its folder is then found through its process.
        let name = format!("changes-{}-{:08x}", std::process::id(), fastrand::u32(..));
        let options = [
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
        ];
        let process = peer::start_command_with(command_line, &options)?;
        // The root folder of the server, which may be that of a container.
        let root = PathBuf::from(format!("/proc/{}/root", process.pid()));
        let folder = root.join("tmp").join(&name);
        let folder = folder.canonicalize().unwrap_or(folder);
        let file = folder.join("appendonly.aof.1.incr.aof");
        let server = Self { process, file, folder: Some(folder), read_to: 0 };
        server.process.connect().command(&["DEBUG", "SET-ACTIVE-EXPIRE", "0"]);
        Ok(server)
    }

    /// Returns the bytes of the stream of changes written since the last call. They include the
    /// changes of every command whose reply has been received.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        // Redis writes at the end of a turn, before its replies. This PING is in a later turn than
        // a connection that ended, or a blocked client that was served while nobody read its reply.
        self.process.connect().command(&["PING"]);
        let all = fs::read(&self.file)?;
        let new = all[self.read_to..].to_vec();
        self.read_to = all.len();
        Ok(new)
    }

    /// Returns the changes written since the last call. A stream has a SELECT only where the
    /// database changes. So `db` must be the database of the last change before this call. The call
    /// sets `db` to the database of the last change that it returns. The value 0 is also right for
    /// the first call, and for a call whose first change is in database 0.
    ///
    /// # Errors
    /// The file cannot be read, or is malformed.
    pub fn changes(&mut self, db: &mut u32) -> io::Result<Vec<Change>> {
        let bytes = self.bytes()?;
        let changes = parse(&bytes, *db).map_err(io::Error::other)?;
        *db = changes.last().map_or(*db, |change| change.db);
        Ok(changes)
    }

    /// Replaces the content of a peer by the content of `stream`, with DEBUG LOADAOF. Nothing
    /// expires during the load. The peer drops the replies, but counts the errors.
    ///
    /// # Errors
    /// The file cannot be written, or the server refuses it or one of its commands.
    pub fn load(&mut self, stream: &[u8]) -> io::Result<()> {
        let mut client = self.process.connect();
        let failed =
            |error: ClientError| io::Error::other(format!("the peer ended while it loaded: {error}"));
        // The file is complete after this turn.
        client.request(&["PING"]).map_err(failed)?;
        fs::write(&self.file, stream)?;
        client.request(&["CONFIG", "RESETSTAT"]).map_err(failed)?;
        let reply = client.request(&["DEBUG", "LOADAOF"]).map_err(failed)?;
        if reply.is_error() {
            return Err(io::Error::other(format!("DEBUG LOADAOF answered {reply}")));
        }
        let info = client.request(&["INFO", "errorstats"]).map_err(failed)?;
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        if info.contains("errorstat_") {
            let log = self.process.log();
            let lines: Vec<&str> = log.lines().filter(|line| line.contains("AOF")).collect();
            let last = lines.iter().rev().take(6).rev().copied().collect::<Vec<_>>().join("\n    ");
            return Err(io::Error::other(format!("errors while it loaded: {info}\n    {last}")));
        }
        Ok(())
    }
}

impl Drop for RecordedServer {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            // In the worst case a few files stay in /tmp.
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
