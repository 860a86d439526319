//! `daemonize yes`: running in the background.
//!
//! A process with threads cannot fork safely, and this program has no unsafe code; so the
//! foreground process starts itself anew, in a session of its own. It ends when that one serves, or
//! cannot: its standard error is a pipe to the foreground process, which shows what arrives there,
//! and [`READY`] as the last byte says that it serves.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::process::{Command, ExitCode, Stdio};

/// Tells the new process that it is the one in the background.
const MARK: &str = "SAKER_IN_BACKGROUND";
/// The last byte of the new process's standard error, once it serves.
const READY: u8 = 0;

/// Whether this process is the one in the background.
pub fn is_in_background() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Leaves the foreground. `input` is what standard input held: the new process finds it there
/// again. The exit code of the process in the foreground, once the other serves or has failed;
/// `None` in the one that is to serve.
pub fn leave_foreground(input: &[u8]) -> io::Result<Option<ExitCode>> {
    if is_in_background() {
        // Fails only where the process leads a session already, which is what is wanted.
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
            // It has ended, and says why.
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
    // Nobody may be there to read it.
    let _ = io::stderr().write_all(&said);
    Ok(Some(if serves { ExitCode::SUCCESS } else { ExitCode::FAILURE }))
}

/// Lets the process in the foreground end: this one serves.
pub fn release_foreground() -> io::Result<()> {
    if !is_in_background() {
        return Ok(());
    }
    // The process in the foreground may have been ended.
    let _ = io::stderr().write_all(&[READY]);
    rustix::stdio::dup2_stderr(File::options().write(true).open("/dev/null")?)?;
    Ok(())
}
