//! The release build of all programs: its time and the sizes of the programs.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::progress::{Outcome, Session, seconds};
use crate::shell;

/// The time limit of a release build. On two slow cores, a build from an empty target folder takes
/// a fraction of this.
const LIMIT: Duration = Duration::from_secs(3600);

/// The paths of the release binaries that a release build makes.
pub struct Programs {
    /// Path of saker-server.
    pub server: PathBuf,
    /// Path of saker-bench.
    pub bench: PathBuf,
    /// Path of saker-check.
    pub check: PathBuf,
    /// Path of saker-copy.
    pub copy: PathBuf,
}

/// Runs the step: builds the release binaries and reports their sizes and the build's time.
pub fn step(session: &Session) -> Result<Outcome> {
    let begun = Instant::now();
    let Programs { server, bench, check, copy } = build(session)?;
    let took = seconds(begun.elapsed());
    let mut report = format!("release build: {took}");
    let programs =
        [("saker-server", server), ("saker-bench", bench), ("saker-check", check), ("saker-copy", copy)];
    for (name, program) in programs {
        let len_bytes = std::fs::metadata(program).context(name)?.len();
        report += &format!("; {name}: {:.1} MB", len_bytes as f64 / 1e6);
    }
    session.report(report);
    Ok(Outcome::Passed(String::new()))
}

/// Builds the release binaries; does nothing if they are up to date. One command builds all of
/// them, so that they share every library. Separate builds would select other features of some
/// libraries.
pub fn build(session: &Session) -> Result<Programs> {
    let mut command = shell::cargo(session);
    command.args(["build", "--release", "--locked", "-p", "server", "--bin", "saker-server"]);
    command.args(["-p", "bench", "--bin", "saker-bench", "-p", "check", "--bin", "saker-check"]);
    command.args(["-p", "copy", "--bin", "saker-copy"]);
    shell::run_logged(session, "release", &mut command, LIMIT)?;
    let folder = session.target.join("release");
    let [server, bench, check, copy] =
        ["saker-server", "saker-bench", "saker-check", "saker-copy"].map(|name| folder.join(name));
    Ok(Programs { server, bench, check, copy })
}
