//! Fuzz targets under libFuzzer and AddressSanitizer, built by the stable compiler. `cargo fuzz` is
//! not needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::sanitize;
use crate::progress::{Outcome, Session};
use crate::shell;

/// The duration of the run of each target in CI, in seconds.
const SMOKE_SECONDS: u64 = 3;
const BUILD_LIMIT: Duration = Duration::from_secs(2400);
/// The compiler flags that instrument the program for libFuzzer: counters of branches, traced
/// comparisons, and checks of memory accesses.
const RUSTFLAGS: &str = "--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Ccodegen-units=1 \
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    -Cdebug-assertions -Coverflow-checks";

/// The initial inputs of fuzz targets, as (target, folder, file extension).
const SEEDS: &[(&str, &str, &str)] = &[
    ("session", "tests/cmd", "resp"),
    ("dump_payload", "crates/persist/tests/files/payloads", "value"),
    ("rdb_file", "crates/persist/tests/files", "rdb"),
    ("aof_file", "crates/persist/tests/files/aof/redis-8.0.6", "aof"),
    ("aof_file", "crates/persist/tests/files/aof/valkey-9.1.2", "aof"),
    ("aof_manifest", "crates/persist/tests/files/aof/redis-8.0.6", "manifest"),
    ("aof_manifest", "crates/persist/tests/files/aof/valkey-9.1.2", "manifest"),
];

/// Runs the step of CI: each target for [`SMOKE_SECONDS`], with random choices from the session's
/// seed.
pub fn smoke(session: &Session) -> Result<Outcome> {
    let missing = match what_is_missing(session)? {
        None => None,
        // libFuzzer needs a C++ compiler. Machines with a C compiler usually lack only the package
        // g++.
        Some(_) if shell::find("c++").is_none() && shell::install(session, "g++").is_ok() => {
            what_is_missing(session)?
        }
        missing => missing,
    };
    if let Some(missing) = missing {
        let instead = "the crates' own tests called the same functions with random input";
        return Ok(Outcome::Skipped(format!("{missing}; {instead}")));
    }
    let targets = targets(session)?;
    let folder = build(session)?;
    // Each target keeps one core busy, so as many run in parallel as there are cores.
    let at_a_time = thread::available_parallelism().map_or(1, usize::from);
    for group in targets.chunks(at_a_time) {
        thread::scope(|scope| {
            let folder = &folder;
            let run = |target| scope.spawn(move || smoke_one(session, folder, target));
            let runs: Vec<_> = group.iter().map(String::as_str).map(run).collect();
            runs.into_iter().try_for_each(|run| run.join().unwrap_or_else(|_| bail!("a fuzz run panicked")))
        })?;
    }
    Ok(Outcome::Passed(format!("{} for {SMOKE_SECONDS} s each", targets.join(", "))))
}

/// Runs one target in CI, with a log of its own. `folder` contains the built targets.
fn smoke_one(session: &Session, folder: &Path, target: &str) -> Result<()> {
    let run = Run { target, seconds: SMOKE_SECONDS, corpus: None };
    let limit = Duration::from_secs(SMOKE_SECONDS + 300);
    let log = format!("fuzz-{target}");
    shell::run_logged(session, &log, &mut run.command(session, folder), limit)
        .with_context(|| format!("{target}, seed {}", session.seed))?;
    Ok(())
}

/// Handles `cargo xtask fuzz`: runs the targets in `named` (all if it is empty) for `seconds` each,
/// with their output shown. Each target uses and extends its corpus below the target folder.
/// Returns true, or an error if a target finds a problem.
pub fn run(session: &Session, named: &[String], seconds: u64) -> Result<bool> {
    let known = targets(session)?;
    for name in named {
        ensure!(known.contains(name), "no fuzz target is called {name}; there are: {}", known.join(", "));
    }
    if let Some(missing) = what_is_missing(session)? {
        bail!(missing);
    }
    let folder = build(session)?;
    for target in known.iter().filter(|target| named.is_empty() || named.contains(target)) {
        let corpus = session.target.join("fuzz/corpus").join(target);
        fs::create_dir_all(&corpus)?;
        let run = Run { target, seconds, corpus: Some(corpus) };
        shell::run_shown(&mut run.command(session, &folder))?;
    }
    Ok(true)
}

/// Describes the missing requirement of fuzzing. Returns `None` if nothing is missing.
fn what_is_missing(session: &Session) -> Result<Option<String>> {
    if !sanitize::has_address_sanitizer(session, &sanitize::host(session)?)? {
        return Ok(Some("this compiler has no AddressSanitizer".into()));
    }
    if shell::find("c++").is_none() {
        return Ok(Some("libFuzzer needs a C++ compiler, such as the package g++".into()));
    }
    Ok(None)
}

/// Returns the names of the fuzz targets, sorted.
fn targets(session: &Session) -> Result<Vec<String>> {
    let folder = session.root.join("fuzz/fuzz_targets");
    let mut names = Vec::new();
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.push(path.file_stem().unwrap_or_default().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// Builds all fuzz targets and returns the folder of their programs.
fn build(session: &Session) -> Result<PathBuf> {
    let host = sanitize::host(session)?;
    let target = session.target.join("fuzz");
    let mut command = shell::cargo(session);
    // Not --locked: the lock file of the fuzz workspace changes with the dependencies of our
    // crates.
    command.args(["build", "--release", "--bins", "--manifest-path", "fuzz/Cargo.toml"]);
    command.args(["--target", &host]).env("CARGO_TARGET_DIR", &target);
    command.env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", RUSTFLAGS);
    shell::run_logged(session, "fuzz", &mut command, BUILD_LIMIT)?;
    Ok(target.join(host).join("release"))
}

/// A run of one fuzz target, with its time, its seed and its corpus.
struct Run<'a> {
    target: &'a str,
    seconds: u64,
    /// The folder from which interesting inputs are read and to which new ones are added. With
    /// `None`, a run starts from the target's initial inputs and depends only on its random seed.
    corpus: Option<PathBuf>,
}

/// Returns the paths of the initial inputs of `target`, sorted.
fn seeds(session: &Session, target: &str) -> Vec<String> {
    let folders = SEEDS.iter().filter(|(of, ..)| *of == target);
    let files = folders.flat_map(|(_, folder, ending)| {
        let entries = fs::read_dir(session.root.join(folder)).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path());
        paths.filter(move |path| path.extension().is_some_and(|extension| extension == *ending))
    });
    let mut names: Vec<_> = files.map(|path| path.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

impl Run<'_> {
    fn command(&self, session: &Session, folder: &Path) -> Command {
        let mut command = Command::new(folder.join(self.target));
        command.current_dir(&session.root);
        // libFuzzer's seed has 32 bits; with 0, libFuzzer chooses one itself.
        command.arg(format!("-seed={}", session.seed % u64::from(u32::MAX) + 1));
        command.arg(format!("-max_total_time={}", self.seconds)).arg("-timeout=10").arg("-rss_limit_mb=2048");
        let found = session.target.join("fuzz").join(format!("found-{}-", self.target));
        command.arg(format!("-artifact_prefix={}", found.display()));
        let seeds = seeds(session, self.target);
        if !seeds.is_empty() {
            command.arg(format!("-seed_inputs={}", seeds.join(",")));
        }
        command.args(&self.corpus);
        command
    }
}
