//! The steps that compare replies. They run the `.resp` scripts, compare the replies to random
//! commands with a real redis-server, and check replies while other clients misbehave.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::clients;
use crate::peer;
use crate::progress::{Outcome, Session};
use crate::{programs, release, server, shell};

/// The duration of the comparison of random commands in CI, in seconds. Runs by hand take longer.
const DIFFERENTIAL_SECONDS: u64 = 30;
/// The duration of the replay of the change log of random commands in CI, in seconds. Runs by hand
/// take longer.
const REPLAY_SECONDS: u64 = 20;
/// The duration of the test with misbehaving clients in CI, in seconds. Runs by hand take longer.
const SOAK_SECONDS: u64 = 60;
/// The number of connections in the test with misbehaving clients; half of them misbehave. Runs by
/// hand use ten times as many.
const CROWD: &str = "1000";
/// The time allowed for a comparing program beyond the requested duration: to start servers, and to
/// shrink the commands that show a difference.
const SLACK: Duration = Duration::from_secs(720);

/// Runs every script of tests/cmd against the release server, on each backend.
pub fn scripts(session: &Session) -> Result<Outcome> {
    let runner = programs::built(session, "resp-run")?;
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(session.root.join("tests/cmd")).context("tests/cmd")? {
        files.push(entry?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "resp"));
    files.sort();
    clients::on_each_back_end(session, |server| {
        let mut command = Command::new(&runner);
        command.args(["--port", &server.port().to_string()]).args(&files);
        shell::run_logged(session, "scripts", &mut command, SLACK)?;
        Ok(())
    })
}

/// Sends random commands to the release server and to a real redis-server for a fixed time, and
/// compares the replies. The commands depend on the session's seed. Then replays the change log of
/// random commands.
pub fn differential(session: &Session) -> Result<Outcome> {
    let peer = match peer::find(session)? {
        Ok(line) => line,
        Err(missing) => return Ok(Outcome::Skipped(missing)),
    };
    let runner = programs::built(session, "differential")?;
    let server = server::start(&release::build(session)?.server, &[])?;
    let mut command = Command::new(runner);
    command.env("SAKER_PEER", &peer).args(["--b", &server.port().to_string()]);
    command.args(["--seconds", &DIFFERENTIAL_SECONDS.to_string(), "--seed", &session.seed.to_string()]);
    let limit = Duration::from_secs(DIFFERENTIAL_SECONDS) + SLACK;
    let text = shell::run_logged(session, "differential", &mut command, limit)?;
    server::stop(server)?;
    let mut replay = Command::new(programs::built(session, "change-stream")?);
    replay.env("SAKER_PEER", peer).env("SAKER_SERVER", release::build(session)?.server);
    replay.args(["--replay", &REPLAY_SECONDS.to_string(), "--seed", &session.seed.to_string()]);
    shell::run_logged(session, "differential", &mut replay, Duration::from_secs(REPLAY_SECONDS) + SLACK)?;
    Ok(Outcome::Passed(text.lines().last().unwrap_or_default().to_owned()))
}

/// Runs clients that check every reply, together with clients that misbehave, against release
/// servers.
pub fn soak(session: &Session) -> Result<Outcome> {
    let mut command = Command::new(programs::built(session, "soak")?);
    command.arg("--server").arg(release::build(session)?.server);
    command.args(["--seconds", &SOAK_SECONDS.to_string(), "--seed", &session.seed.to_string()]);
    command.args(["--crowd", CROWD]);
    shell::run_logged(session, "soak", &mut command, Duration::from_secs(SOAK_SECONDS) + SLACK)?;
    Ok(Outcome::Passed(String::new()))
}
