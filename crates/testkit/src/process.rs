//! Servers as child processes: the server under test, and a real one to compare with.
//!
//! Each server has a free loopback port, no persistence and a scratch folder. It is killed when its
//! handle is dropped. It is ready when it answers a PING, which is tried in a bounded loop.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use resp::Value;
use tempfile::TempDir;

use crate::client::{Address, Client};

/// Maximum time until a started server answers a PING.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// Pause between two attempts to connect while a server starts.
const READY_POLL: Duration = Duration::from_millis(3);

/// Number of attempts to start a server that ends at once. Another process may have taken the port
/// between its choice and its use.
const START_ATTEMPTS: usize = 3;

/// A running server. It is killed when the handle is dropped.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    port: u16,
    /// The scratch folder. It holds `log` and, if the server honors its working directory, the
    /// server's files. It is removed with the handle.
    dir: TempDir,
}

impl ServerProcess {
    /// Starts a server by `command_line`, followed by `--port` and `options` (`["--appendonly",
    /// "no", …]`).
    pub fn start(command_line: &[OsString], options: &[String]) -> io::Result<Self> {
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            match Self::start_once_on(command_line, free_port()?, options) {
                Ok(server) => return Ok(server),
                Err(error) => last = Some(error),
            }
        }
        Err(last.expect("at least one attempt is made"))
    }

    /// Starts `command_line` like [`Self::start`], on port `port`. Tries again while the port is in
    /// use: on a busy machine, the kernel closes the port of a killed server late.
    ///
    /// # Errors
    /// The server does not start, or the port stays taken.
    pub fn start_on(command_line: &[OsString], port: u16, options: &[String]) -> io::Result<Self> {
        let deadline = Instant::now() + READY_WITHIN;
        loop {
            match Self::start_once_on(command_line, port, options) {
                Err(error)
                    if error.to_string().contains("ddress already in use") && Instant::now() < deadline =>
                {
                    thread::sleep(PORT_PAUSE);
                }
                result => return result,
            }
        }
    }

    fn start_once_on(command_line: &[OsString], port: u16, options: &[String]) -> io::Result<Self> {
        let (program, args) = command_line
            .split_first()
            .ok_or_else(|| io::Error::other("the command line of the server is empty"))?;
        let dir = tempfile::tempdir()?;
        let log = File::create(dir.path().join("log"))?;
        let child = Command::new(program)
            .args(args)
            .arg("--port")
            .arg(port.to_string())
            .args(options)
            .current_dir(dir.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .map_err(|error| io::Error::other(format!("starting {}: {error}", program.display())))?;
        let mut server = Self { child, port, dir };
        server.wait_until_ready()?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> io::Result<()> {
        let deadline = Instant::now() + READY_WITHIN;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Err(io::Error::other(format!("the server ended ({status}):\n{}", self.log())));
            }
            if let Ok(mut client) = Client::connect(&self.address()) {
                // An error such as NOAUTH is an answer too.
                if let Ok(Value::Simple(_) | Value::Error(_)) = client.request(&["PING"]) {
                    return Ok(());
                }
            }
            thread::sleep(READY_POLL);
        }
        Err(io::Error::other(format!("the server is not ready in {READY_WITHIN:?}:\n{}", self.log())))
    }

    /// Returns the server's port on the loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the server's address.
    pub fn address(&self) -> Address {
        Address::port(self.port)
    }

    /// Returns the server's process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the CPU time used by the server's threads in user and kernel mode, in seconds. The
    /// source is the scheduler's counter in nanoseconds. `/proc/PID/stat` counts in hundredths of a
    /// second, which is too coarse for short measurements. O(threads).
    ///
    /// # Errors
    /// The process has ended.
    pub fn cpu_seconds(&self) -> io::Result<f64> {
        let mut seconds = 0.0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            // A thread may end meanwhile.
            seconds += schedstat_seconds(&task?.path().join("schedstat")).unwrap_or(0.0);
        }
        Ok(seconds)
    }

    /// Opens a new connection.
    ///
    /// # Panics
    /// Panics when the server does not accept the connection.
    pub fn connect(&self) -> Client {
        Client::to_port(self.port)
    }

    /// Returns the server's scratch folder, which is also its working directory.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns everything that the server has printed so far, standard output and standard error.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.dir.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Waits until the server has printed `text`. A server may answer before it has completed and
    /// logged all steps of its start.
    ///
    /// # Panics
    /// Panics when the text is not printed in time.
    pub fn wait_for_log(&self, text: &str) {
        let deadline = Instant::now() + READY_WITHIN;
        while !self.log().contains(text) {
            assert!(Instant::now() < deadline, "no {text:?} in the log:\n{}", self.log());
            thread::sleep(READY_POLL);
        }
    }

    /// Waits until the server ends by itself, at most `within`. Returns its exit code, or `None` if
    /// a signal ended it.
    pub fn wait(&mut self, within: Duration) -> io::Result<Option<i32>> {
        let deadline = Instant::now() + within;
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status.code());
            }
            if Instant::now() > deadline {
                return Err(io::Error::other(format!("the server still runs after {within:?}")));
            }
            thread::sleep(READY_POLL);
        }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // Both fail only when the process has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time of a thread in seconds, read from its `schedstat` file in /proc.
///
/// # Errors
/// The thread has ended, or the file does not begin with a number.
pub fn schedstat_seconds(path: &Path) -> io::Result<f64> {
    let text = std::fs::read_to_string(path)?;
    let on_cpu_ns = text.split_whitespace().next().and_then(|field| field.parse::<f64>().ok());
    on_cpu_ns.map(|ns| ns / 1e9).ok_or_else(|| io::Error::other(format!("schedstat reads {text:?}")))
}

/// The pause between two attempts to start a server on a port that is in use.
const PORT_PAUSE: Duration = Duration::from_millis(100);

/// The range from which [`free_port`] draws. It is below the ephemeral ports, which Linux could
/// give to another process before the port is used. It is above the ports of Redis' own suite in
/// CI.
const FREE_PORTS: Range<u16> = 31_400..32_768;

/// The number of recently chosen ports that this process does not choose again. Their servers may
/// not listen yet.
const RECENT_PORTS: usize = 256;

/// A port that [`free_port`] has returned, with the lock that keeps other processes from choosing
/// it. The lock ends with the process, or when the port is no longer among the recent ones.
struct ChosenPort {
    port: u16,
    _lock: File,
}

impl ChosenPort {
    /// Reserves `port` for a server of this process; returns `None` if another process has reserved
    /// it. Otherwise both processes could find the port free before either server listens, and one
    /// would use the other's server.
    fn claim(port: u16) -> io::Result<Option<Self>> {
        let folder = env::temp_dir().join("saker-test-ports");
        std::fs::create_dir_all(&folder)?;
        let file = File::create(folder.join(port.to_string()))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { port, _lock: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

/// The ports that [`free_port`] has returned most recently, at most [`RECENT_PORTS`].
static RECENT: Mutex<VecDeque<ChosenPort>> = Mutex::new(VecDeque::new());

/// Returns a port that is free on the loopback. It stays free as long as all programs that choose
/// ports use this function.
pub fn free_port() -> io::Result<u16> {
    let mut recent = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let port = fastrand::u16(FREE_PORTS);
        if recent.iter().any(|chosen| chosen.port == port) {
            continue;
        }
        let Some(chosen) = ChosenPort::claim(port)? else { continue };
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => {
                recent.push_back(chosen);
                if recent.len() > RECENT_PORTS {
                    recent.pop_front();
                }
                return Ok(port);
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

/// A real server (Redis or Valkey) to compare with.
pub mod peer {
    use super::*;

    /// Returns true if a real server is configured or in the PATH. Tests that need one must check
    /// this first: if there is none, they print a note and pass.
    pub fn is_available() -> bool {
        env::var_os("SAKER_PEER").is_some() || on_path("redis-server").is_some()
    }

    /// Starts `$SAKER_PEER` (a command line, split at spaces) or `redis-server` from the PATH.
    pub fn start() -> io::Result<ServerProcess> {
        start_with(&[])
    }

    /// Starts the same server as [`start`] with further `options` (`["--cluster-enabled", "yes"]`).
    pub fn start_with(options: &[&str]) -> io::Result<ServerProcess> {
        start_command_with(&command_line(), options)
    }

    /// Returns the command line of the server that [`start`] starts.
    pub fn command_line() -> String {
        env::var("SAKER_PEER").unwrap_or_else(|_| "redis-server".into())
    }

    /// Starts the server of the command line `line` (split at spaces), without persistence.
    pub fn start_command(line: &str) -> io::Result<ServerProcess> {
        start_command_with(line, &[])
    }

    /// Starts the server of the command line `line` like [`start_command`], with further `options`.
    pub fn start_command_with(line: &str, options: &[&str]) -> io::Result<ServerProcess> {
        let command_line: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let common =
            ["--save", "", "--appendonly", "no", "--daemonize", "no", "--enable-debug-command", "yes"];
        let options: Vec<String> = common.iter().chain(options).map(|&option| option.to_owned()).collect();
        ServerProcess::start(&command_line, &options)
    }

    fn on_path(program: &str) -> Option<PathBuf> {
        env::split_paths(&env::var_os("PATH")?).map(|dir| dir.join(program)).find(|path| path.is_file())
    }
}

/// The server under test, saker-server.
pub mod saker {
    use super::*;

    /// Starts `$SAKER_SERVER`, or the `saker-server` in the folder of the running test, with
    /// `options` (`["--io-threads", "2"]`).
    pub fn start(options: &[&str]) -> io::Result<ServerProcess> {
        start_binary(binary()?, options)
    }

    /// Returns the path of the program that [`start`] starts.
    pub fn binary() -> io::Result<OsString> {
        match env::var_os("SAKER_SERVER") {
            Some(path) => Ok(path),
            None => Ok(built()?.into_os_string()),
        }
    }

    /// Starts `binary` with `options`. Integration tests of the server crate pass
    /// `env!("CARGO_BIN_EXE_saker-server")`.
    pub fn start_binary(binary: impl Into<OsString>, options: &[&str]) -> io::Result<ServerProcess> {
        let options: Vec<String> = options.iter().map(|&option| option.into()).collect();
        ServerProcess::start(&[binary.into()], &options)
    }

    /// Returns the path of `saker-server` in the build folder of the running program. That program
    /// is in `target/debug/deps` or in `target/debug`.
    fn built() -> io::Result<PathBuf> {
        let here = env::current_exe()?;
        here.ancestors()
            .skip(1)
            .take(2)
            .map(|dir| dir.join("saker-server"))
            .find(|path| path.is_file())
            .ok_or_else(|| io::Error::other("no saker-server beside this program: build the server crate"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_answers_when_started_and_ends_with_its_handle() {
        if !peer::is_available() {
            return;
        }
        let server = peer::start().unwrap();
        let address = server.address();
        assert_eq!(server.connect().command(&["PING"]), Value::Simple(b"PONG".to_vec()));
        drop(server);
        assert!(Client::connect(&address).is_err());
    }

    #[test]
    fn a_server_that_ends_at_once_is_told_with_what_it_printed() {
        let line: Vec<OsString> = ["sh", "-c", "echo out of cheese; exit 3"].map(OsString::from).into();
        let error = ServerProcess::start(&line, &[]).unwrap_err().to_string();
        assert!(error.contains("out of cheese"), "{error}");
    }
}
