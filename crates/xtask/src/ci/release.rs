//! The release build: how long it takes and how big the server is.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::progress::{Outcome, Session, seconds};
use crate::shell;

/// An empty target folder on two slow cores takes a fraction of this.
const LIMIT: Duration = Duration::from_secs(900);

/// Builds the release server and reports its size and the build's time.
pub fn step(session: &Session) -> Result<Outcome> {
    let begun = Instant::now();
    let server = build(session)?;
    let len_bytes = std::fs::metadata(&server).context("the server just built")?.len();
    let took = seconds(begun.elapsed());
    session.report(format!("release build: {took}; saker-server: {:.1} MB", len_bytes as f64 / 1e6));
    Ok(Outcome::Passed(String::new()))
}

/// Builds the release server (nothing to do when it is up to date) and returns its path.
pub fn build(session: &Session) -> Result<PathBuf> {
    let mut command = shell::cargo(session);
    command.args(["build", "--release", "--locked", "-p", "server", "--bin", "saker-server"]);
    shell::run_logged(session, "release", &mut command, LIMIT)?;
    Ok(session.target.join("release/saker-server"))
}
