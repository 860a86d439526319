//! Servers as CI and the benchmark start them: with a Unix socket beside the
//! port, ended by SIGTERM.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{ServerProcess, Value};

/// A server that is still there so long after SIGTERM has failed to stop.
const STOP_LIMIT: Duration = Duration::from_secs(40);
/// The Unix socket, in the server's own folder.
const UNIX_SOCKET: &str = "saker.sock";

/// Starts `program`, in memory, on a free port of the loopback and a Unix socket, with `options`.
pub fn start(program: &Path, options: &[&str]) -> Result<ServerProcess> {
    start_command(&[program.into()], &[&["--unixsocket", UNIX_SOCKET], options].concat())
}

/// Starts the server that `command_line` names, in memory, on a free port of the
/// loopback, with `options`.
pub fn start_command(command_line: &[OsString], options: &[&str]) -> Result<ServerProcess> {
    let common = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let options: Vec<String> = common.iter().chain(options).map(ToString::to_string).collect();
    Ok(ServerProcess::start(command_line, &options)?)
}

/// Its Unix socket.
pub fn unix_socket(server: &ServerProcess) -> PathBuf {
    server.dir().join(UNIX_SOCKET)
}

/// The value of `field` in INFO.
pub fn info(server: &ServerProcess, field: &str) -> Result<String> {
    let reply = server.connect().request(&["INFO", "everything"]).context("INFO")?;
    let text = match reply {
        Value::Bulk(text) | Value::Verbatim { text, .. } => String::from_utf8_lossy(&text).into_owned(),
        other => anyhow::bail!("INFO replied {other}"),
    };
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(value.unwrap_or_default().to_owned())
}

/// Asks it to end with SIGTERM; it must, and successfully.
pub fn stop(mut server: ServerProcess) -> Result<()> {
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).context("the server's process id")?;
    kill_process(pid, Signal::TERM).context("cannot signal the server")?;
    let status = server.wait(STOP_LIMIT).context("after SIGTERM")?;
    ensure!(status == Some(0), "after SIGTERM the server ended with {status:?}; its log: {}", server.log());
    Ok(())
}
