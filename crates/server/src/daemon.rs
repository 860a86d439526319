//! `daemonize yes`: running in the background.
//!
//! A process with threads cannot fork safely, and this program has no unsafe code. Therefore the
//! foreground process starts a new process of the same program, in its own session. The foreground
//! process ends when the new process accepts clients or has failed. The standard error of the new
//! process is a pipe to the foreground process, which prints the received text. [`READY`] as the
//! last byte means that the new process accepts clients.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::process::{Command, ExitCode, Stdio};

/// The environment variable that marks the background process.
const MARK: &str = "SAKER_IN_BACKGROUND";
/// The last byte that the new process writes to standard error, when it accepts clients.
const READY: u8 = 0;

/// Returns true if this process is the background process.
pub fn is_in_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Starts the background process, if this is the foreground process, and sends it `input`, the
/// bytes read from standard input. Waits until the background process accepts clients or has
/// failed, and returns the exit code of the foreground process. In the background process, starts a
/// session of its own (`setsid`) and returns `None`.
pub fn leave_foreground(input: &[u8]) -> io::Result<Option<ExitCode>> {
    if is_in_background() {
        // Fails only if the process already leads a session, which is the wanted state.
        let _ = rustix::process::setsid();
        return Ok(None);
    }
    let mut process = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()?;
    if let Some(mut stdin) = process.stdin.take() {
        match stdin.write_all(input) {
            // The process has ended and has reported why.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
            result => result?,
        }
    }
    let mut said = Vec::new();
    if let Some(mut stderr) = process.stderr.take() {
        stderr.read_to_end(&mut said)?;
    }
    let serves = said.last() == Some(&READY);
    if serves {
        said.pop();
    }
    // Standard error may have no reader.
    let _ = io::stderr().write_all(&said);
    Ok(Some(if serves { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Notifies the foreground process that this process accepts clients, so that the foreground
/// process ends. Does nothing if this process is not a background process.
pub fn release_foreground() -> io::Result<()> {
    if !is_in_background() {
        return Ok(());
    }
    // The foreground process may have been killed.
    let _ = io::stderr().write_all(&[READY]);
    rustix::stdio::dup2_stderr(File::options().write(true).open("/dev/null")?)?;
    Ok(())
}
