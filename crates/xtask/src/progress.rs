//! Steps in order, one line each, with its time; the run stops at the first failure and says what
//! to do. A step that cannot run here says so as `SKIPPED` with the reason, never silently.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How a step that did not fail ended.
pub enum Outcome {
    /// It did its work; the text is what it has to tell (may be empty).
    Passed(String),
    /// It could not do its work here; the text says why and what is missing.
    Skipped(String),
}

/// One step of a run.
pub struct Step {
    /// What `--only` and `--skip` call it.
    pub name: &'static str,
    /// What it does, in a phrase.
    pub about: &'static str,
    /// What to do when it fails.
    pub remedy: &'static str,
    /// The work. An error is a failure.
    pub run: fn(&Session) -> Result<Outcome>,
}

/// What the steps of one run share.
pub struct Session {
    /// The repository's root.
    pub root: PathBuf,
    /// Cargo's target folder; logs, tools and scratch files live below it.
    pub target: PathBuf,
    /// Where every random choice of this run starts from; printed, so that a
    /// failure can be repeated.
    pub seed: u64,
    report: Mutex<Vec<String>>,
}

impl Session {
    /// A session at `root` whose random choices start from `seed`.
    pub fn new(root: PathBuf, seed: u64) -> Self {
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        Self { root, target, seed, report: Mutex::default() }
    }

    /// Adds a line to the report at the end of the run, once however often it is said.
    pub fn report(&self, line: impl Into<String>) {
        let line = line.into();
        let mut report = self.lines();
        if !report.contains(&line) {
            report.push(line);
        }
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        // A line is whole or absent, whoever panicked.
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where step `name` writes what its commands print.
    pub fn log_path(&self, name: &str) -> PathBuf {
        self.target.join("xtask").join(format!("{name}.log"))
    }
}

/// Which steps of a list to run.
#[derive(Default)]
pub struct Selection {
    /// Run only these; empty means all.
    pub only: Vec<String>,
    /// Leave these out.
    pub skip: Vec<String>,
}

impl Selection {
    /// The steps chosen, in their order; a name that no step has is an error.
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

/// How many steps ended which way.
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

/// Prints the steps and what each does.
pub fn list(steps: &[Step]) {
    for step in steps {
        println!("{:<16} {}", step.name, step.about);
    }
}

/// Runs the chosen steps in order and prints the report and the tally. True when none failed; steps
/// behind a failure count as skipped.
pub fn run(session: &Session, steps: &[Step], selection: &Selection) -> Result<bool> {
    let chosen = selection.pick(steps)?;
    let mut tally = Tally::default();
    let mut reasons = Vec::new();
    let mut times = Vec::new();
    let begun = Instant::now();
    for (at, step) in chosen.iter().enumerate() {
        println!("[{}/{}] {}: {}", at + 1, chosen.len(), step.name, step.about);
        let step_begun = Instant::now();
        let ended = (step.run)(session);
        let took = step_begun.elapsed();
        times.push((step.name, took));
        let took = seconds(took);
        match ended {
            Ok(Outcome::Passed(note)) if note.is_empty() => {
                tally.passed += 1;
                println!("        passed in {took}");
            }
            Ok(Outcome::Passed(note)) => {
                tally.passed += 1;
                println!("        passed in {took}: {note}");
            }
            Ok(Outcome::Skipped(reason)) => {
                tally.skipped += 1;
                println!("        SKIPPED: {reason}");
                reasons.push(format!("SKIPPED {}: {reason}", step.name));
            }
            Err(error) => {
                tally.failed += 1;
                let left: Vec<_> = chosen[at + 1..].iter().map(|step| step.name).collect();
                tally.skipped += left.len();
                if !left.is_empty() {
                    reasons.push(format!("SKIPPED behind the failure: {}", left.join(", ")));
                }
                println!("        FAILED after {took}: {error:#}");
                println!("        What to do: {}", step.remedy);
                println!("        Again: cargo xtask test --only {} --seed {}", step.name, session.seed);
                break;
            }
        }
    }
    println!();
    session.lines().iter().chain(&reasons).for_each(|line| println!("{line}"));
    println!("{}", time_table(&times));
    println!("whole run: {}", seconds(begun.elapsed()));
    println!("{tally}");
    Ok(tally.failed == 0)
}

/// The longest steps first, a line each, the time ahead.
fn time_table(times: &[(&str, Duration)]) -> String {
    let mut times = times.to_vec();
    times.sort_by_key(|&(_, time)| std::cmp::Reverse(time));
    let line = |(name, time): &(&str, Duration)| format!("{:>13}  {name}", seconds(*time));
    times.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A time for people: tenths below a minute, minutes and seconds above.
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

    fn steps() -> [Step; 3] {
        [("a", passes as fn(&Session) -> Result<Outcome>), ("b", skips), ("c", fails)]
            .map(|(name, run)| Step { name, about: "", remedy: "", run })
    }

    fn session() -> Session {
        Session::new(PathBuf::from("."), 1)
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
        assert!(run(&session(), &steps(), &select(&[], &["c"])).unwrap());
        assert!(!run(&session(), &steps(), &select(&[], &[])).unwrap());
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
