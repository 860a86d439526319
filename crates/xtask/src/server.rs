//! A server in a process of its own: started on a free port, waited for, and ended when dropped.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::progress::Session;

/// A server that has not answered by then has failed to start.
const START_LIMIT: Duration = Duration::from_secs(10);
/// A server that is still there so long after SIGTERM has failed to stop.
const STOP_LIMIT: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A running server.
pub struct Server {
    child: Child,
    /// Its TCP port on 127.0.0.1.
    pub port: u16,
    /// Its Unix socket.
    pub unix: PathBuf,
    folder: PathBuf,
}

impl Server {
    /// Starts `program` with `arguments`, on a free port and in an empty folder of its own, and waits until
    /// it answers.
    pub fn start(session: &Session, program: &Path, arguments: &[&str]) -> Result<Self> {
        let port = free_port()?;
        let folder = session.target.join("xtask").join(format!("server-{port}"));
        // What an ended run left behind is in the way; most often there is nothing.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        // A socket's path is limited to about 100 bytes, the project's folder is not.
        let unix = std::env::temp_dir().join(format!("saker-xtask-{port}.sock"));
        let log = File::create(folder.join("log"))?;
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", ""]);
        command.arg("--unixsocket").arg(&unix).args(arguments);
        command.current_dir(&folder).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self { child, port, unix, folder };
        server.wait_until_it_answers()?;
        Ok(server)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read(self.folder.join("log"))
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Sends one inline command on a connection of its own and returns the raw reply, as far as it has come
    /// by the time the server closes or is silent for a moment.
    pub fn ask(&self, line: &str) -> Result<String> {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port))?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        socket.write_all(format!("{line}\r\nQUIT\r\n").as_bytes())?;
        let mut reply = Vec::new();
        // A server that keeps the connection open ends the wait by the timeout.
        let _ = socket.read_to_end(&mut reply);
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }

    /// Asks it to end with SIGTERM; an exit other than success is an error that shows the log.
    pub fn stop(mut self) -> Result<()> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).context("cannot signal the server")?;
        let begun = Instant::now();
        while begun.elapsed() < STOP_LIMIT {
            if let Some(status) = self.child.try_wait()? {
                return self.check_exit(status);
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        bail!("the server ignores SIGTERM; its log: {}", self.log())
    }

    fn check_exit(&self, status: ExitStatus) -> Result<()> {
        if !status.success() {
            bail!("the server ended with {status}; its log: {}", self.log());
        }
        Ok(())
    }

    fn wait_until_it_answers(&mut self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < START_LIMIT {
            if let Some(status) = self.child.try_wait()? {
                bail!("the server ended with {status} at its start; its log: {}", self.log());
            }
            // Any reply will do: with a password set, PING is refused and the server is there.
            if self.ask("PING").is_ok_and(|reply| !reply.is_empty()) {
                return Ok(());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        bail!("the server does not answer; its log: {}", self.log())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.unix);
    }
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
