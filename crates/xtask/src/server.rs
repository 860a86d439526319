//! Servers as CI and the benchmark start them: on a TCP port and a Unix socket, stopped by SIGTERM.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use testkit::{ServerProcess, Value};

/// The time that a server may take to end after SIGTERM; a longer stop is a failure.
const STOP_LIMIT: Duration = Duration::from_secs(40);
/// The name of the Unix socket in the server's working folder.
const UNIX_SOCKET: &str = "saker.sock";

/// Starts `program` with `options` on a free loopback port and a Unix socket. The server keeps its
/// data in memory only.
pub fn start(program: &Path, options: &[&str]) -> Result<ServerProcess> {
    start_command(&[program.into()], &[&["--unixsocket", UNIX_SOCKET], options].concat())
}

/// Starts the server given by `command_line` with `options` on a free loopback port. The server
/// keeps its data in memory only.
pub fn start_command(command_line: &[OsString], options: &[&str]) -> Result<ServerProcess> {
    let common = ["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"];
    let options: Vec<String> = common.iter().chain(options).map(ToString::to_string).collect();
    Ok(ServerProcess::start(command_line, &options)?)
}

/// Returns the path of the server's Unix socket.
pub fn unix_socket(server: &ServerProcess) -> PathBuf {
    server.dir().join(UNIX_SOCKET)
}

/// Returns the value of `field` in the server's INFO reply, or an empty string if the field is
/// missing.
pub fn info(server: &ServerProcess, field: &str) -> Result<String> {
    let reply = server.connect().request(&["INFO", "everything"]).context("INFO")?;
    let text = match reply {
        Value::Bulk(text) | Value::Verbatim { text, .. } => String::from_utf8_lossy(&text).into_owned(),
        other => anyhow::bail!("INFO replied {other}"),
    };
    let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    Ok(value.unwrap_or_default().to_owned())
}

/// Stops the server with SIGTERM. Returns an error if it does not end within [`STOP_LIMIT`] with
/// status 0.
pub fn stop(mut server: ServerProcess) -> Result<()> {
    let pid = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).context("the server's process id")?;
    kill_process(pid, Signal::TERM).context("cannot signal the server")?;
    let status = server.wait(STOP_LIMIT).context("after SIGTERM")?;
    ensure!(status == Some(0), "after SIGTERM the server ended with {status:?}; its log: {}", server.log());
    Ok(())
}
