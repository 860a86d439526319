//! The steps of a run of CI, printed one per line with their times. They run one after the other,
//! or in three lanes in parallel. The run stops at the first failure and prints the remedy. A step
//! that cannot run here is printed as `SKIPPED` with the reason, never left out silently.
//!
//! ```text
//!   Lane::Sources   compilers, then tests, which often wait               ─┐
//!   Lane::Models    computes: models, simulator, sanitizers, fuzzing       ├─► repeats ─► report
//!   Lane::Servers   mostly waits: clients, frameworks, other suites       ─┘
//! ```
//! A failed step that depends on the timing of several processes is repeated once, alone, after all
//! other steps. If it then passes, the run passes, and its last lines name the step under `flaky:`.
//! Steps that the same seed repeats exactly (fuzzing, the simulator, models) are not repeated.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The maximum number of failed parts of a step that are repeated. If more parts fail, the cause is
/// not chance.
const REPEATS_MAX: usize = 5;

/// The result of a step of CI that ran to its end.
pub enum Outcome {
    /// The step did its work. The text is its result in a phrase, and may be empty.
    Passed(String),
    /// The step could not do its work here. The text gives the reason and what is missing.
    Skipped(String),
    /// Parts of the step failed. They may be repeated, one after the other, while nothing else
    /// runs.
    Failed(Vec<Repeat>),
}

/// A failed part of a step of CI, such as one test, and the way to repeat it.
pub struct Repeat {
    /// The name of the failed part, such as a test.
    pub name: String,
    /// The function that runs the part again. An error means that it failed again.
    pub run: Box<RepeatRun>,
}

/// The function that repeats a failed part of a step.
pub type RepeatRun = dyn FnOnce(&Session) -> Result<()> + Send;

/// A lane: one of the sequences of CI steps that can run in parallel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Checks of the source text, such as clippy, and the workspace's tests. All of them share one
    /// target folder.
    Sources,
    /// Steps that build the sources in other ways, into target folders of their own, and compute.
    Models,
    /// Steps that use the release binaries and mostly wait for servers.
    Servers,
}

/// All lanes of CI steps. A sequential run takes the steps of all of them, in the order of the list
/// of steps.
const LANES: [Lane; 3] = [Lane::Sources, Lane::Models, Lane::Servers];

/// The treatment of a step of CI whose `run` returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterFailure {
    /// The run of CI stops: no further step begins.
    Stop,
    /// The whole step is repeated once, alone, after all other steps.
    Repeat,
}

/// A step of a run of CI, such as `clippy`.
pub struct Step {
    /// The name of the step for `--only` and `--skip`.
    pub name: &'static str,
    /// The purpose of the step, in a phrase for the list of steps.
    pub about: &'static str,
    /// The advice that is printed when the step fails.
    pub remedy: &'static str,
    /// The lane to which the step belongs: a sequence of steps that can run beside the others.
    pub lane: Lane,
    /// The treatment of the step if `run` returns an error.
    pub after_failure: AfterFailure,
    /// The function that does the work of the step. It returns an error if the step failed as a
    /// whole.
    pub run: fn(&Session) -> Result<Outcome>,
}

/// The state that the steps of one run of CI share.
pub struct Session {
    /// The root folder of the repository.
    pub root: PathBuf,
    /// Cargo's target folder; logs, tools and scratch files live below it.
    pub target: PathBuf,
    /// The seed of every random choice of this run of CI. It is printed, so that a failure can be
    /// repeated.
    pub seed: u64,
    report: Mutex<Vec<String>>,
}

impl Session {
    /// Creates the state of a run for the repository at `root`, with the seed `seed`.
    pub fn new(root: PathBuf, seed: u64) -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Self { root, target, seed, report: Mutex::default() }
    }

    /// Adds a line to the report that is printed at the end of the run. A line that is already
    /// there is ignored.
    pub fn report(&self, line: impl Into<String>) {
        let line = line.into();
        let mut report = self.lines();
        if !report.contains(&line) {
            report.push(line);
        }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        // Each change adds a whole line, so a panic cannot leave the list invalid.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the path of the file with the durations of the steps. A run that has several steps
    /// writes it.
    pub fn times_path(&self) -> PathBuf {
        self.target.join("ci-times.txt")
    }

    /// Returns the path of the log of step `name`, which contains the output of its commands.
    pub fn log_path(&self, name: &str) -> PathBuf {
        self.target.join("xtask").join(format!("{name}.log"))
    }
}

/// The names of the steps to run and to leave out, from the command line.
#[derive(Default)]
pub struct Selection {
    /// The names of the steps to run; empty means all.
    pub only: Vec<String>,
    /// The names of the steps to leave out; empty means none.
    pub skip: Vec<String>,
}

impl Selection {
    /// Returns the chosen steps in the order of `steps`. Returns an error if no step has one of the
    /// names.
    fn pick<'a>(&self, steps: &'a [Step]) -> Result<Vec<&'a Step>> {
        for name in self.only.iter().chain(&self.skip) {
            if !steps.iter().any(|step| step.name == name) {
                let known: Vec<_> = steps.iter().map(|step| step.name).collect();
                bail!("no step is called {name}; there are: {}", known.join(", "));
            }
        }
        let chosen = |step: &&Step| {
            let named = |list: &[String]| list.iter().any(|name| name == step.name);
            (self.only.is_empty() || named(&self.only)) && !named(&self.skip)
        };
        Ok(steps.iter().filter(chosen).collect())
    }
}

/// The numbers of CI steps that passed, failed and were skipped in one run.
#[derive(Default, Debug, PartialEq, Eq)]
pub struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Prints the steps of CI and their purposes.
pub fn list(steps: &[Step]) {
    for step in steps {
        println!("{:<18} {}", step.name, step.about);
    }
}

/// The order in which the steps of a run are started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// All steps one after the other, in the order of the list.
    Sequential,
    /// The lanes run in parallel, and the steps of each lane one after the other.
    Parallel,
}

/// Runs the chosen steps, then prints the report, the durations of the steps, the numbers of
/// passed, failed and skipped steps, and the flaky parts. Returns true if no step failed. Steps
/// after a failure count as skipped.
pub fn run(session: &Session, steps: &[Step], selection: &Selection, order: Order) -> Result<bool> {
    let chosen = selection.pick(steps)?;
    let begun = Instant::now();
    let run = Run { session, steps: &chosen, stops: AtomicBool::new(false), state: Mutex::default() };
    match order {
        Order::Sequential => run.steps_of(&LANES),
        Order::Parallel => thread::scope(|scope| {
            for lane in LANES {
                let run = &run;
                scope.spawn(move || run.steps_of(&[lane]));
            }
        }),
    }
    run.repeat_alone();
    run.finish(begun)
}

/// A run of CI with its steps and its results so far.
struct Run<'a> {
    session: &'a Session,
    steps: &'a [&'a Step],
    /// True after a step has failed and cannot be repeated; no lane then begins another step.
    stops: AtomicBool,
    state: Mutex<State>,
}

/// The results of a run of CI in progress, as far as its steps have ended.
#[derive(Default)]
struct State {
    tally: Tally,
    /// The lines of the report about skipped steps, each with the reason.
    skipped: Vec<String>,
    times: Vec<(&'static str, Duration)>,
    /// The failed parts that are repeated at the end, each with the index of its step in the run.
    repeats: Vec<(usize, Vec<Repeat>)>,
    /// The names of parts that failed, but passed when they were repeated.
    flaky: Vec<String>,
}

impl Run<'_> {
    fn state(&self) -> MutexGuard<'_, State> {
        // Each change of the state is a single push or addition, so that a panic cannot leave it
        // invalid.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs the steps of `lanes` in order. After a step has failed for good, counts the remaining
    /// steps as skipped.
    fn steps_of(&self, lanes: &[Lane]) {
        for (at, step) in self.steps.iter().enumerate().filter(|(_, step)| lanes.contains(&step.lane)) {
            if self.stops.load(Relaxed) {
                self.state().tally.skipped += 1;
                self.state().skipped.push(format!("SKIPPED after the failure: {}", step.name));
                continue;
            }
            println!("[{}/{}] {}: {}", at + 1, self.steps.len(), step.name, step.about);
            let begun = Instant::now();
            let ended = (step.run)(self.session);
            let took = begun.elapsed();
            self.state().times.push((step.name, took));
            self.note(at, ended, &seconds(took));
        }
    }

    /// Counts and prints the result of the step at index `at`. Failed parts that may be repeated
    /// are stored for later. `took` is the duration of the step, as text.
    fn note(&self, at: usize, ended: Result<Outcome>, took: &str) {
        let name = self.steps[at].name;
        match ended {
            Ok(Outcome::Passed(note)) => {
                self.state().tally.passed += 1;
                let colon = if note.is_empty() { "" } else { ": " };
                println!("        {name} passed in {took}{colon}{note}");
            }
            Ok(Outcome::Skipped(reason)) => {
                self.state().tally.skipped += 1;
                println!("        {name} SKIPPED: {reason}");
                self.state().skipped.push(format!("SKIPPED {name}: {reason}"));
            }
            Ok(Outcome::Failed(parts)) if parts.len() <= REPEATS_MAX => {
                let names: Vec<_> = parts.iter().map(|part| part.name.as_str()).collect();
                println!(
                    "        {name} failed in part after {took}, to be repeated alone: {}",
                    names.join(", ")
                );
                self.state().repeats.push((at, parts));
            }
            Ok(Outcome::Failed(parts)) => self.fail(at, &format!("after {took}: {} parts", parts.len())),
            Err(error) if self.steps[at].after_failure == AfterFailure::Repeat => {
                println!("        {name} failed after {took}, to be repeated alone: {error:#}");
                let run = self.steps[at].run;
                let whole =
                    Repeat { name: name.to_owned(), run: Box::new(move |session| whole(run(session)?)) };
                self.state().repeats.push((at, vec![whole]));
            }
            Err(error) => self.fail(at, &format!("after {took}: {error:#}")),
        }
    }

    /// Counts the step at index `at` as failed for good. Prints the reason and the remedy.
    fn fail(&self, at: usize, why: &str) {
        let step = self.steps[at];
        self.stops.store(true, Relaxed);
        self.state().tally.failed += 1;
        println!("        {} FAILED {why}", step.name);
        println!("        What to do: {}", step.remedy);
        println!("        Again: cargo xtask test --only {} --seed {}", step.name, self.session.seed);
    }

    /// Repeats the stored failed parts of steps, one at a time, while nothing else runs.
    fn repeat_alone(&self) {
        let repeats = std::mem::take(&mut self.state().repeats);
        for (at, parts) in repeats {
            let mut failed = Vec::new();
            for Repeat { name, run } in parts {
                println!("repeating alone: {name}");
                match run(self.session) {
                    Ok(()) => self.state().flaky.push(format!("{}: {name}", self.steps[at].name)),
                    Err(error) => failed.push(format!("{name}: {error:#}")),
                }
            }
            if failed.is_empty() {
                self.state().tally.passed += 1;
            } else {
                self.fail(at, &format!("again: {}", failed.join("; ")));
            }
        }
    }

    /// Prints the report, the durations of the steps, the numbers of passed, failed and skipped
    /// steps, and the flaky parts. Returns true if no step failed.
    fn finish(self, begun: Instant) -> Result<bool> {
        let state = self.state.into_inner().unwrap_or_else(PoisonError::into_inner);
        println!();
        self.session.lines().iter().chain(&state.skipped).for_each(|line| println!("{line}"));
        let table = format!("{}\nwhole run: {}\n", time_table(&state.times), seconds(begun.elapsed()));
        print!("{table}");
        if self.steps.len() > 1 {
            let path = self.session.times_path();
            std::fs::create_dir_all(path.parent().context("it lies in the target folder")?)?;
            std::fs::write(path, &table)?;
        }
        println!("{}", state.tally);
        if !state.flaky.is_empty() {
            println!("flaky:");
            state.flaky.iter().for_each(|name| println!("  {name} (passed when it was repeated alone)"));
        }
        Ok(state.tally.failed == 0)
    }
}

/// Converts the outcome of a step that was repeated as a whole. Returns an error if any of its
/// parts failed.
fn whole(outcome: Outcome) -> Result<()> {
    match outcome {
        Outcome::Passed(_) | Outcome::Skipped(_) => Ok(()),
        Outcome::Failed(parts) => {
            let names: Vec<_> = parts.into_iter().map(|part| part.name).collect();
            bail!("{}", names.join(", "))
        }
    }
}

/// Formats the durations of steps, one step per line, the longest first. The duration precedes the
/// name.
fn time_table(times: &[(&str, Duration)]) -> String {
    let mut times = times.to_vec();
    times.sort_by_key(|&(_, time)| std::cmp::Reverse(time));
    let line = |(name, time): &(&str, Duration)| format!("{:>13}  {name}", seconds(*time));
    times.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// Formats a duration for people: with tenths below a minute, as minutes and seconds above.
pub fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..60 => format!("{:.1} s", time.as_secs_f64()),
        whole => format!("{} min {:02} s", whole / 60, whole % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(_: &Session) -> Result<Outcome> {
        Ok(Outcome::Passed(String::new()))
    }

    fn skips(_: &Session) -> Result<Outcome> {
        Ok(Outcome::Skipped("nothing to do it with".into()))
    }

    fn fails(_: &Session) -> Result<Outcome> {
        bail!("broken")
    }

    fn fails_in_part_once(_: &Session) -> Result<Outcome> {
        Ok(Outcome::Failed(vec![Repeat { name: "part".into(), run: Box::new(|_| Ok(())) }]))
    }

    fn fails_in_part(_: &Session) -> Result<Outcome> {
        Ok(Outcome::Failed(vec![Repeat { name: "part".into(), run: Box::new(|_| bail!("again")) }]))
    }

    fn step(name: &'static str, run: fn(&Session) -> Result<Outcome>) -> Step {
        let (lane, after_failure) = (Lane::Sources, AfterFailure::Stop);
        Step { name, about: "", remedy: "", lane, after_failure, run }
    }

    fn steps() -> [Step; 3] {
        [step("a", passes), step("b", skips), step("c", fails)]
    }

    fn session() -> Session {
        let mut session = Session::new(PathBuf::from("."), 1);
        session.target = std::env::temp_dir().join("xtask-progress-tests");
        session
    }

    fn select(only: &[&str], skip: &[&str]) -> Selection {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Selection { only: owned(only), skip: owned(skip) }
    }

    #[test]
    fn the_longest_step_comes_first() {
        let times = [("fmt", Duration::from_millis(900)), ("unit", Duration::from_secs(61))];
        assert_eq!(time_table(&times), "   1 min 01 s  unit\n        0.9 s  fmt");
    }

    #[test]
    fn only_and_skip_choose_in_the_order_of_the_list() {
        let names = |selection: Selection| -> Vec<&str> {
            selection.pick(&steps()).unwrap().iter().map(|step| step.name).collect()
        };
        assert_eq!(names(select(&[], &[])), ["a", "b", "c"]);
        assert_eq!(names(select(&["c", "a"], &[])), ["a", "c"]);
        assert_eq!(names(select(&[], &["b"])), ["a", "c"]);
    }

    #[test]
    fn an_unknown_step_is_refused() {
        assert!(select(&["z"], &[]).pick(&steps()).is_err());
        assert!(select(&[], &["z"]).pick(&steps()).is_err());
    }

    #[test]
    fn a_run_is_good_only_when_nothing_failed() {
        for order in [Order::Sequential, Order::Parallel] {
            assert!(run(&session(), &steps(), &select(&[], &["c"]), order).unwrap());
            assert!(!run(&session(), &steps(), &select(&[], &[]), order).unwrap());
        }
    }

    fn run_one(step: Step) -> bool {
        run(&session(), &[step], &Selection::default(), Order::Sequential).unwrap()
    }

    #[test]
    fn a_part_that_passes_alone_does_not_fail_the_run() {
        assert!(run_one(step("a", fails_in_part_once)));
        assert!(!run_one(step("a", fails_in_part)));
    }

    #[test]
    fn a_step_is_repeated_only_if_it_asks_for_it() {
        static RUNS: AtomicBool = AtomicBool::new(false);
        let fails_once: fn(&Session) -> Result<Outcome> = |_| match RUNS.swap(true, Relaxed) {
            false => bail!("the first time"),
            true => Ok(Outcome::Passed(String::new())),
        };
        assert!(run_one(Step { after_failure: AfterFailure::Repeat, ..step("a", fails_once) }));
        assert!(!run_one(Step { after_failure: AfterFailure::Repeat, ..step("a", fails) }));
        RUNS.store(false, Relaxed);
        assert!(!run_one(step("a", fails_once)));
    }

    #[test]
    fn many_failures_are_no_chance() {
        let many: fn(&Session) -> Result<Outcome> = |_| {
            let part = |at: usize| Repeat { name: at.to_string(), run: Box::new(|_| Ok(())) };
            Ok(Outcome::Failed((0..=REPEATS_MAX).map(part).collect()))
        };
        assert!(!run_one(step("a", many)));
    }

    #[test]
    fn a_failure_stops_all_lanes_before_their_next_step() {
        static LATER_RAN: AtomicBool = AtomicBool::new(false);
        let later: fn(&Session) -> Result<Outcome> = |_| {
            LATER_RAN.store(true, Relaxed);
            Ok(Outcome::Passed(String::new()))
        };
        let session = session();
        let servers = Step { lane: Lane::Servers, ..step("servers", later) };
        let steps = [&step("fails", fails), &step("later", later), &servers];
        let run =
            Run { session: &session, steps: &steps, stops: AtomicBool::new(false), state: Mutex::default() };
        run.steps_of(&[Lane::Sources]);
        run.steps_of(&[Lane::Servers]);
        assert!(!LATER_RAN.load(Relaxed));
        assert_eq!(run.state().tally, Tally { passed: 0, failed: 1, skipped: 2 });
    }

    #[test]
    fn the_tally_reads_as_promised() {
        let tally = Tally { passed: 2, failed: 0, skipped: 1 };
        assert_eq!(tally.to_string(), "2 passed, 0 failed, 1 skipped");
    }

    #[test]
    fn times_read_well() {
        assert_eq!(seconds(Duration::from_millis(1_240)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 05 s");
    }
}
