//! The workspace's own programs that steps run, in the debug profile.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::progress::Session;
use crate::shell;

/// For building all of them from nothing.
const LIMIT: Duration = Duration::from_secs(3600);

/// The program that is `name` below `target/debug`, built.
///
/// All of them are built at once, with the examples and so with what tests need beside: each crate
/// then has the features that it has in `cargo test --workspace`, and none is built a second time.
pub fn built(session: &Session, name: &str) -> Result<PathBuf> {
    let mut command = shell::cargo(session);
    command.args(["build", "--workspace", "--locked", "--bins", "--examples"]);
    shell::run_logged(session, "programs", &mut command, LIMIT)?;
    Ok(session.target.join("debug").join(name))
}
