//! `daemonize yes`: running in the background.
//!
//! A process with threads cannot fork safely, and this program has no unsafe code; so the foreground
//! process starts itself anew, in a session of its own, and ends.

use std::io::{self, Write};
use std::process::{Command, Stdio};

/// Tells the new process that it is the one in the background.
const MARK: &str = "SAKER_IN_BACKGROUND";

/// Leaves the foreground. `input` is what standard input held: the new process finds it there again. True
/// in the process that is to end, false in the one that serves.
pub fn leave_foreground(input: &[u8]) -> io::Result<bool> {
    if std::env::var_os(MARK).is_some() {
        // Fails only where the process leads a session already, which is what is wanted.
        let _ = rustix::process::setsid();
        return Ok(false);
    }
    let mut process = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    if let Some(mut stdin) = process.stdin.take() {
        stdin.write_all(input)?;
    }
    Ok(true)
}
