//! The steps that run cargo commands.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result};

use crate::progress::{Outcome, Session};
use crate::{shell, simulate};

/// The time limit of a single cargo command of CI.
const CARGO_LIMIT: Duration = Duration::from_secs(3600);

/// Runs the step of CI that checks the format of the sources: `cargo fmt --check`.
pub fn fmt(session: &Session) -> Result<Outcome> {
    let mut command = shell::cargo(session);
    command.args(["fmt", "--all", "--", "--check"]);
    if !component(session, "fmt") {
        return Ok(Outcome::Skipped("rustfmt is missing: rustup component add rustfmt".into()));
    }
    shell::run_logged(session, "fmt", &mut command, CARGO_LIMIT)?;
    Ok(Outcome::Passed(String::new()))
}

/// Runs `cargo clippy` over the whole workspace; any warning is an error.
pub fn clippy(session: &Session) -> Result<Outcome> {
    if !component(session, "clippy") {
        return Ok(Outcome::Skipped("clippy is missing: rustup component add clippy".into()));
    }
    let mut command = shell::cargo(session);
    command.args(["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]);
    shell::run_logged(session, "clippy", &mut command, CARGO_LIMIT)?;
    Ok(Outcome::Passed(String::new()))
}

/// Runs every `crates/*/tests/loom*.rs` with `--cfg loom`, in a target folder of its own.
pub fn loom(session: &Session) -> Result<Outcome> {
    let target = session.target.join("loom");
    models_named(session, "loom", |command| {
        command.env("RUSTFLAGS", "--cfg loom").env("CARGO_TARGET_DIR", target);
    })
}

/// Runs every `crates/*/tests/shuttle*.rs`, built for shuttle like the simulator.
pub fn shuttle(session: &Session) -> Result<Outcome> {
    let target = session.target.join("shuttle");
    models_named(session, "shuttle", |command| simulate::set_up(command, &target))
}

/// Runs every `crates/*/tests/PREFIX*.rs`, where PREFIX is `prefix`. `set_up` prepares each
/// command.
fn models_named(session: &Session, prefix: &str, set_up: impl FnOnce(&mut Command)) -> Result<Outcome> {
    let models = models(session, prefix)?;
    if models.is_empty() {
        return Ok(Outcome::Skipped(format!("no crate has a tests/{prefix}*.rs")));
    }
    let mut command = shell::cargo(session);
    command.args(["test", "--locked"]);
    for (krate, test) in &models {
        command.args(["-p", krate, "--test", test]);
    }
    set_up(&mut command);
    shell::run_logged(session, prefix, &mut command, CARGO_LIMIT)?;
    let names: Vec<_> = models.iter().map(|(krate, test)| format!("{krate}/{test}")).collect();
    Ok(Outcome::Passed(names.join(", ")))
}

/// Returns the test files whose names begin with `prefix`, as (crate, test name), sorted.
fn models(session: &Session, prefix: &str) -> Result<Vec<(String, String)>> {
    let mut found = Vec::new();
    for krate in entries(session.root.join("crates"))? {
        for file in entries(krate.join("tests"))? {
            let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            if stem.starts_with(prefix) && file.extension().is_some_and(|extension| extension == "rs") {
                let name =
                    krate.file_name().and_then(|name| name.to_str()).context("a crate folder's name")?;
                found.push((name.to_owned(), stem.to_owned()));
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns the paths of the entries in `folder`, or nothing if there is no such folder.
fn entries(folder: PathBuf) -> Result<Vec<PathBuf>> {
    match fs::read_dir(&folder) {
        Ok(entries) => Ok(entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error).with_context(|| format!("cannot read {}", folder.display())),
    }
}

/// Returns true if cargo has the subcommand `name`.
fn component(session: &Session, name: &str) -> bool {
    shell::succeeds(shell::cargo(session).args([name, "--version"]))
}
