//! A real redis-server for the tests that compare with it.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::progress::Session;
use crate::shell;

/// Returns the command line of a redis-server: `$SAKER_PEER` if it is set, else the one on PATH,
/// else the one inside Debian's redis-tools. The inner error says why there is none.
pub fn find(session: &Session) -> Result<Result<String, String>> {
    if let Ok(line) = std::env::var("SAKER_PEER") {
        return Ok(Ok(line));
    }
    if let Some(program) = shell::find("redis-server") {
        return Ok(Ok(program.to_string_lossy().into_owned()));
    }
    // The package redis-server would start a service. The package redis-tools has the same program
    // as redis-check-rdb: one binary that behaves according to the name by which it is called.
    let hidden = match shell::ensure(session, "redis-check-rdb", "redis-tools") {
        Ok(hidden) => hidden,
        Err(missing) => return Ok(Err(missing)),
    };
    let program = session.target.join("tools/redis-server");
    link(&hidden, &program).with_context(|| format!("cannot link {}", program.display()))?;
    if !shell::succeeds(Command::new(&program).arg("--version")) {
        return Ok(Err("redis-server is missing; install it, or set SAKER_PEER to its command line".into()));
    }
    Ok(Ok(program.to_string_lossy().into_owned()))
}

fn link(from: &PathBuf, to: &PathBuf) -> std::io::Result<()> {
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder)?;
    }
    if fs::read_link(to).is_ok_and(|there| there == *from) {
        return Ok(());
    }
    std::os::unix::fs::symlink(from, to)
}
