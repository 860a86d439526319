//! The release build of both programs: how long it takes and how big they are.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::progress::{Outcome, Session, seconds};
use crate::shell;

/// An empty target folder on two slow cores takes a fraction of this.
const LIMIT: Duration = Duration::from_secs(900);

/// The release binaries.
pub struct Programs {
    /// saker-server.
    pub server: PathBuf,
    /// saker-bench.
    pub bench: PathBuf,
}

/// Builds the release binaries and reports their sizes and the build's time.
pub fn step(session: &Session) -> Result<Outcome> {
    let begun = Instant::now();
    let Programs { server, bench } = build(session)?;
    let took = seconds(begun.elapsed());
    let size = |program| std::fs::metadata(program).map(|data| data.len() as f64 / 1e6);
    let (server, bench) = (size(server).context("saker-server")?, size(bench).context("saker-bench")?);
    session
        .report(format!("release build: {took}; saker-server: {server:.1} MB; saker-bench: {bench:.1} MB"));
    Ok(Outcome::Passed(String::new()))
}

/// Builds the release binaries (nothing to do when they are up to date). Always both
/// in one command, so that they share every library: each alone would be built with
/// other features of some.
pub fn build(session: &Session) -> Result<Programs> {
    let mut command = shell::cargo(session);
    command.args(["build", "--release", "--locked", "-p", "server", "--bin", "saker-server"]);
    command.args(["-p", "bench", "--bin", "saker-bench"]);
    shell::run_logged(session, "release", &mut command, LIMIT)?;
    let folder = session.target.join("release");
    Ok(Programs { server: folder.join("saker-server"), bench: folder.join("saker-bench") })
}
