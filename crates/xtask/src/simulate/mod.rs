//! The simulator (`testkit::simulator`): builds it, runs it, and checks that it finds bugs that are
//! planted on purpose.

pub mod plant;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::progress::{Outcome, Session};
use crate::shell;

/// The duration of the simulator's run in CI, in seconds.
const CI_SECONDS: u64 = 60;
/// The time limit of building the simulator.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);

/// The options of `cargo xtask simulate`.
#[derive(Args)]
pub struct SimulateArguments {
    /// The time to run, in seconds.
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// The seed of all random choices.
    #[arg(long)]
    seed: Option<u64>,
    /// End after this many client operations.
    #[arg(long)]
    operations: Option<u64>,
    /// Run only the scenario with this seed.
    #[arg(long)]
    scenario: Option<u64>,
}

/// Handles `cargo xtask simulate`: builds and runs the simulator. Returns true if no check failed.
pub fn run(session: &Session, arguments: &SimulateArguments) -> Result<bool> {
    let program = build(&session.root, &session.target.join("shuttle"))?;
    let mut command = Command::new(program);
    command.args(["--seconds", &arguments.seconds.to_string()]);
    command.args(["--seed", &arguments.seed.unwrap_or(session.seed).to_string()]);
    if let Some(operations) = arguments.operations {
        command.args(["--operations", &operations.to_string()]);
    }
    if let Some(scenario) = arguments.scenario {
        command.args(["--scenario", &scenario.to_string()]);
    }
    let status = command.status().context("cannot start the simulator")?;
    Ok(status.success())
}

/// Runs the step of CI: the simulator for [`CI_SECONDS`], with random choices from the session's
/// seed.
pub fn step(session: &Session) -> Result<Outcome> {
    let program = build(&session.root, &session.target.join("shuttle"))?;
    let mut command = Command::new(program);
    let (seconds, seed) = (CI_SECONDS.to_string(), session.seed.to_string());
    command.args(["--seconds", &seconds, "--seed", &seed]);
    // If the simulator finds a failure, it shrinks the scenario, which takes time.
    let text = shell::run_logged(session, "simulator", &mut command, Duration::from_secs(900))?;
    let figures = text.lines().last().unwrap_or_default().to_owned();
    session.report(format!("simulator: {figures}"));
    Ok(Outcome::Passed(figures))
}

/// Builds the simulator from the sources at `root` into the target folder `target`. Returns the
/// path of its program.
fn build(root: &Path, target: &Path) -> Result<PathBuf> {
    let mut command = Command::new("cargo");
    command.current_dir(root).args(["build", "--locked", "-p", "testkit", "--bin", "simulate"]);
    set_up(&mut command, target);
    let mut child = command.spawn().context("cannot start cargo")?;
    let begun = std::time::Instant::now();
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(target.join("debug/simulate")),
            Some(status) => bail!("building the simulator ended with {status}"),
            None if begun.elapsed() > BUILD_LIMIT => bail!("building the simulator takes too long"),
            None => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Sets the environment variables with which cargo builds for shuttle, which chooses random
/// schedules. The profile `dev` fits the tests: it optimizes a little and keeps assertions on.
pub fn set_up(command: &mut Command, target: &Path) {
    command.env("RUSTFLAGS", "--cfg shuttle").env("CARGO_TARGET_DIR", target);
}
