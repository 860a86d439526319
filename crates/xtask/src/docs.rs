//! The generated pages: docs/commands, options and metrics, and packaging/saker.conf come from the
//! statics that describe commands, options and metrics, and from examples. docs/unsafe.md comes
//! from the sources; tidy checks that it is current.
//!
//! Only the server crate has all these statics. Examples of that crate therefore write the pages,
//! so that other tasks of xtask need not build the server.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::progress::{Outcome, Session};
use crate::{programs, shell, tidy};

/// The arguments that make the example program write the annotated configuration file.
const CONF: &[&str] = &["conf", "packaging/saker.conf"];
const LIMIT: Duration = Duration::from_secs(2400);

/// Handles `cargo xtask docs`: writes the generated pages and the configuration file. Returns true.
pub fn write(session: &Session) -> Result<bool> {
    // The inventory comes first: it needs no other build.
    tidy::write_inventory(&session.root)?;
    shell::run_shown(writer(session, "write_docs")?.arg("docs"))?;
    shell::run_shown(writer(session, "package_files")?.args(CONF))?;
    Ok(true)
}

/// Runs the step of CI: checks that the generated pages agree with the statics that describe
/// commands, options and metrics, and that no command lacks an example.
pub fn check(session: &Session) -> Result<Outcome> {
    shell::run_logged(session, "docs", writer(session, "write_docs")?.args(["docs", "--check"]), LIMIT)?;
    shell::run_logged(session, "docs", writer(session, "package_files")?.args(CONF).arg("--check"), LIMIT)?;
    Ok(Outcome::Passed(String::new()))
}

/// Builds the example program `example` of the server crate, which writes generated pages. Returns
/// the command that runs it.
fn writer(session: &Session, example: &str) -> Result<Command> {
    let mut command = Command::new(programs::built(session, &format!("examples/{example}"))?);
    command.current_dir(&session.root);
    Ok(command)
}
