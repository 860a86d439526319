//! What a client must get: the `.resp` scripts, a real redis-server's answers to random commands,
//! and the right replies beside clients that misbehave.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{clients, peer};
use crate::progress::{Outcome, Session};
use crate::{programs, release, server, shell};

/// How long random commands are compared; longer by hand.
const DIFFERENTIAL_SECONDS: u64 = 30;
/// How long the change log of random commands is replayed; longer by hand.
const REPLAY_SECONDS: u64 = 20;
/// How long clients misbehave; longer by hand.
const SOAK_SECONDS: u64 = 60;
/// Connections of which half misbehave; ten times as many by hand.
const CROWD: &str = "1000";
/// Beyond the time asked for: starting, shrinking a difference.
const SLACK: Duration = Duration::from_secs(720);

/// Every script of tests/cmd against the release server, on each back end.
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

/// Random commands to the release server and to a real one for a fixed time, from this run's seed.
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

/// Clients that check every reply beside others that misbehave, against release servers.
pub fn soak(session: &Session) -> Result<Outcome> {
    let mut command = Command::new(programs::built(session, "soak")?);
    command.arg("--server").arg(release::build(session)?.server);
    command.args(["--seconds", &SOAK_SECONDS.to_string(), "--seed", &session.seed.to_string()]);
    command.args(["--crowd", CROWD]);
    shell::run_logged(session, "soak", &mut command, Duration::from_secs(SOAK_SECONDS) + SLACK)?;
    Ok(Outcome::Passed(String::new()))
}
