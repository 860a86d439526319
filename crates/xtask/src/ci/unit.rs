//! A step of CI: the tests of the workspace. One command builds them. Each test program then runs
//! by itself, as `cargo test` would run it, so that a failed test can be repeated alone.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use crate::peer;
use crate::progress::{Outcome, Repeat, Session};
use crate::shell::{self, Ended};

/// The number of tests that run at the same time for each core. Tests of servers mostly wait for
/// replies, deadlines and other processes.
const TESTS_PER_CORE: usize = 3;

/// The time limit of a test program, many times its usual time. A program that exceeds it is stuck.
const PROGRAM_LIMIT: Duration = Duration::from_secs(1500);

/// The environment variables with which all test programs run.
type Environment = Arc<BTreeMap<&'static str, OsString>>;

/// Runs the step: every test of the workspace, in the debug profile, with its output on the
/// terminal.
pub fn step(session: &Session) -> Result<Outcome> {
    let peer = peer::find(session)?;
    let mut environment = BTreeMap::new();
    // The seed of the property tests' random inputs: new inputs in every run, the same inputs for
    // the same seed.
    environment.insert("PROPTEST_RNG_SEED", session.seed.to_string().into());
    if let Ok(line) = &peer {
        environment.insert("SAKER_PEER", line.into());
    }
    let environment: Environment = Arc::new(environment);
    let mut counts = TestCounts::default();
    let mut repeats = Vec::new();
    for program in programs(session)? {
        println!("     Running {}", program.name());
        let mut failed = Vec::new();
        let mut slow = BTreeSet::new();
        let ended =
            shell::run_watched(program.command(&environment).arg(threads()), PROGRAM_LIMIT, |line| {
                counts.add(line);
                failed.extend(failed_test(line).map(str::to_owned));
                note_slow_test(line, &mut slow);
            })?;
        match ended {
            Ended::Succeeded => {}
            Ended::Failed => repeats.extend(program.repeats(failed, &environment)),
            // Tests that had not begun are unknown, so the whole program is repeated.
            Ended::Killed => {
                let slow: Vec<_> = slow.into_iter().collect();
                session.report(format!("{} was stuck in {}", program.name(), slow.join(", ")));
                repeats.extend(program.repeats(Vec::new(), &environment));
            }
        }
    }
    let mut documented = shell::cargo(session);
    documented.args(["test", "--workspace", "--locked", "--no-fail-fast", "--doc"]);
    let ended = shell::run_watched(&mut documented, PROGRAM_LIMIT, |line| counts.add(line))?;
    session.report(format!(
        "tests: {} passed, {} failed, {} ignored",
        counts.passed, counts.failed, counts.ignored
    ));
    ensure!(ended == Ended::Succeeded, "the examples in the documentation: {ended:?}");
    if !repeats.is_empty() {
        return Ok(Outcome::Failed(repeats));
    }
    Ok(Outcome::Passed(match peer {
        Ok(_) => String::new(),
        Err(missing) => format!("without the comparison with a real server: {missing}"),
    }))
}

/// A test program that cargo has built from the workspace.
#[derive(Clone)]
struct Program {
    /// The folder of the program's package, in which its tests run.
    folder: PathBuf,
    /// The name of the crate or integration test from which the program was built.
    target: String,
    file: PathBuf,
}

impl Program {
    /// Returns the name of the package and of the target, for messages.
    fn name(&self) -> String {
        let package = self.folder.file_name().unwrap_or_default().to_string_lossy();
        format!("{package} {}", self.target)
    }

    /// Returns the command that runs all tests of the program.
    fn command(&self, environment: &Environment) -> Command {
        let mut command = Command::new(&self.file);
        command.current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder).envs(environment.iter());
        command
    }

    /// Returns a [`Repeat`] for each of the `failed` tests. If the program failed without naming a
    /// failed test, the whole program is repeated.
    fn repeats(&self, failed: Vec<String>, environment: &Environment) -> Vec<Repeat> {
        let repeat = |name: String, arguments: Vec<String>| {
            let (program, environment) = (self.clone(), Arc::clone(environment));
            let run = Box::new(move |_: &Session| {
                let mut command = program.command(&environment);
                command.args(arguments).arg(threads());
                let ended = shell::run_watched(&mut command, PROGRAM_LIMIT, |_| {})?;
                ensure!(ended == Ended::Succeeded, "it ended again: {ended:?}");
                Ok(())
            });
            Repeat { name, run }
        };
        if failed.is_empty() {
            return vec![repeat(self.name(), Vec::new())];
        }
        let one = |test: String| repeat(format!("{} {test}", self.name()), vec!["--exact".into(), test]);
        failed.into_iter().map(one).collect()
    }
}

/// The fields of cargo's build messages that are used to find the test programs.
#[derive(Deserialize)]
struct Message {
    reason: String,
    manifest_path: Option<PathBuf>,
    target: Option<Target>,
    profile: Option<Profile>,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// Builds all test programs of the workspace and returns them in the order of their packages.
fn programs(session: &Session) -> Result<Vec<Program>> {
    let mut command = shell::cargo(session);
    command.args(["test", "--workspace", "--locked", "--no-run"]);
    command.arg("--message-format=json-render-diagnostics").stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let text = String::from_utf8(output.stdout).context("cargo's messages")?;
    let mut programs =
        text.lines().filter_map(|line| program(line).transpose()).collect::<Result<Vec<_>>>()?;
    programs.sort_by_key(Program::name);
    ensure!(!programs.is_empty(), "cargo built no tests");
    Ok(programs)
}

/// Parses a line of cargo's output. Returns the test program that the line describes, or `None` for
/// other messages.
fn program(line: &str) -> Result<Option<Program>> {
    let message: Message = serde_json::from_str(line).with_context(|| format!("cargo's message {line}"))?;
    let (Some(file), Some(target), Some(manifest)) =
        (message.executable, message.target, message.manifest_path)
    else {
        return Ok(None);
    };
    if message.reason != "compiler-artifact" || !message.profile.is_some_and(|profile| profile.test) {
        return Ok(None);
    }
    let folder = manifest.parent().unwrap_or(Path::new(".")).to_path_buf();
    Ok(Some(Program { folder, target: target.name, file }))
}

/// Returns the argument of a test program for the number of tests that run at the same time.
fn threads() -> String {
    let threads = TESTS_PER_CORE * thread::available_parallelism().map_or(1, usize::from);
    format!("--test-threads={threads}")
}

/// Returns the name of the test that `line` of a test program's output reports as failed; `None`
/// for other lines.
fn failed_test(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... FAILED")?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}

/// Adds to `slow` the test that `line` reports as slow, and removes a test that `line` reports as
/// ended.
fn note_slow_test(line: &str, slow: &mut BTreeSet<String>) {
    let Some(line) = line.strip_prefix("test ") else { return };
    if let Some(name) = line.strip_suffix(" has been running for over 60 seconds") {
        slow.insert(name.to_owned());
    } else if let Some((name, _)) = line.split_once(" ... ") {
        slow.remove(name);
    }
}

/// The sums of the `test result:` lines of all test programs.
#[derive(Default, Debug, PartialEq, Eq)]
struct TestCounts {
    passed: u64,
    failed: u64,
    ignored: u64,
}

impl TestCounts {
    /// Adds the counts in `line` if it is a `test result:` line.
    fn add(&mut self, line: &str) {
        let Some((_, counts)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". "))
        else {
            return;
        };
        for part in counts.split("; ") {
            match part.split_once(' ').map(|(number, what)| (number.parse().unwrap_or(0), what)) {
                Some((number, "passed")) => self.passed += number,
                Some((number, "failed")) => self.failed += number,
                Some((number, "ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_summed_and_others_ignored() {
        let mut counts = TestCounts::default();
        counts.add(
            "test result: ok. 34 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.72s",
        );
        counts.add(
            "test result: FAILED. 2 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s",
        );
        counts.add("test list::tests::a. 5 passed; ... ok");
        assert_eq!(counts, TestCounts { passed: 36, failed: 3, ignored: 1 });
    }

    #[test]
    fn failed_tests_are_read_from_their_lines() {
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b - should panic ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
        assert_eq!(failed_test("test result: FAILED. 2 passed; 3 failed"), None);
    }

    #[test]
    fn slow_tests_are_remembered_until_they_end() {
        let mut slow = BTreeSet::new();
        for line in [
            "test a::b has been running for over 60 seconds",
            "test c has been running for over 60 seconds",
            "test a::b ... ok",
            "test d ... ok",
        ] {
            note_slow_test(line, &mut slow);
        }
        assert_eq!(slow, BTreeSet::from(["c".to_owned()]));
    }

    #[test]
    fn test_programs_are_found_among_the_messages_of_cargo() {
        let artifact = |test: bool, file: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/w/crates/resp/Cargo.toml","target":{{"name":"it"}},"profile":{{"test":{test}}},"executable":{file}}}"#
            )
        };
        let found = program(&artifact(true, "\"/w/it-1\"")).unwrap().unwrap();
        assert_eq!((found.name().as_str(), found.file.to_str()), ("resp it", Some("/w/it-1")));
        assert!(program(&artifact(false, "\"/w/it-1\"")).unwrap().is_none());
        assert!(program(&artifact(true, "null")).unwrap().is_none());
        assert!(program(r#"{"reason":"build-finished","success":true}"#).unwrap().is_none());
    }
}
