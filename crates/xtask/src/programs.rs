//! The workspace's own programs that steps run, built in the debug profile.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::progress::Session;
use crate::shell;

/// The time limit of a build of all programs of the workspace from an empty target folder.
const LIMIT: Duration = Duration::from_secs(3600);

/// Builds the workspace's programs and returns the path of program `name` below `target/debug`.
///
/// All programs and examples are built by one command. Each crate then has the same features as in
/// `cargo test --workspace`, and no crate is built a second time.
pub fn built(session: &Session, name: &str) -> Result<PathBuf> {
    let mut command = shell::cargo(session);
    command.args(["build", "--workspace", "--locked", "--bins", "--examples"]);
    shell::run_logged(session, "programs", &mut command, LIMIT)?;
    Ok(session.target.join("debug").join(name))
}
