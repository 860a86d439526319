//! The pages that are written from records and examples: docs/commands, options and metrics,
//! packaging/saker.conf; and docs/unsafe.md, from the sources (tidy checks that it is current).
//!
//! What a record says only the server crate knows, so examples of that crate write the pages;
//! building the server is not a cost of every other task this way.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::progress::{Outcome, Session};
use crate::{programs, shell, tidy};

/// The annotated configuration file.
const CONF: &[&str] = &["conf", "packaging/saker.conf"];
const LIMIT: Duration = Duration::from_secs(2400);

/// `cargo xtask docs`: writes the pages.
pub fn write(session: &Session) -> Result<bool> {
    // First: it needs no other build.
    tidy::write_inventory(&session.root)?;
    shell::run_shown(writer(session, "write_docs")?.arg("docs"))?;
    shell::run_shown(writer(session, "package_files")?.args(CONF))?;
    Ok(true)
}

/// The step of CI: the pages are what the records say, and no command is without an example.
pub fn check(session: &Session) -> Result<Outcome> {
    shell::run_logged(session, "docs", writer(session, "write_docs")?.args(["docs", "--check"]), LIMIT)?;
    shell::run_logged(session, "docs", writer(session, "package_files")?.args(CONF).arg("--check"), LIMIT)?;
    Ok(Outcome::Passed(String::new()))
}

/// An example of the server crate that writes pages.
fn writer(session: &Session, example: &str) -> Result<Command> {
    let mut command = Command::new(programs::built(session, &format!("examples/{example}"))?);
    command.current_dir(&session.root);
    Ok(command)
}
