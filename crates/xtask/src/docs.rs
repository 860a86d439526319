//! The pages that are written from records: docs/commands and the options.
//!
//! What a record says only the server crate knows, so an example of that crate writes the pages; building
//! the server is not a cost of every other task this way.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::progress::{Outcome, Session};
use crate::{programs, shell};

const LIMIT: Duration = Duration::from_secs(600);

/// `cargo xtask docs`: writes the pages.
pub fn write(session: &Session) -> Result<bool> {
    shell::run_shown(&mut writer(session)?)?;
    Ok(true)
}

/// The step of CI: the pages are what the records say.
pub fn check(session: &Session) -> Result<Outcome> {
    shell::run_logged(session, "docs", writer(session)?.arg("--check"), LIMIT)?;
    Ok(Outcome::Passed(String::new()))
}

fn writer(session: &Session) -> Result<Command> {
    let mut command = Command::new(programs::built(session, "examples/write_docs")?);
    command.current_dir(&session.root).arg("docs");
    Ok(command)
}
