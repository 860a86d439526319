//! The counts of the results that the suite prints for its tests.

use std::fmt;

/// The results of the tests of one unit of Redis' suite, or of several units together.
#[derive(Default, Debug)]
pub struct UnitOutcome {
    passed: usize,
    /// The names of the tests that the skip list leaves out.
    pub skipped: Vec<String>,
    /// The number of tests, and of whole blocks of tests, that the suite itself leaves out. They do
    /// not fit this kind of run, or need more memory than it allows.
    left_out: usize,
    /// The descriptions of the failed tests, in the suite's words.
    pub failures: Vec<String>,
    /// The names of the units in which tests failed.
    pub failed_units: Vec<String>,
}

impl UnitOutcome {
    /// Creates the outcome of a `unit` that failed as a whole.
    pub fn failure(unit: &str, why: String) -> Self {
        Self { failures: vec![format!("{unit}: {why}")], ..Self::default() }
    }

    /// Counts the results that the suite printed for `unit`. If the suite did not print its end,
    /// the unit has failed.
    pub fn parse(unit: &str, text: &str) -> Self {
        let mut outcome = Self::default();
        let mut lines = text.lines().peekable();
        let mut done = false;
        while let Some(line) = lines.next() {
            let line = plain(line);
            // The text after this line repeats every failure.
            if line.trim() == "The End" {
                break;
            }
            let Some((kind, rest)) = line.strip_prefix('[').and_then(|line| line.split_once("]: ")) else {
                continue;
            };
            match kind {
                "ok" => outcome.passed += 1,
                "skip" => outcome.skipped.push(rest.to_owned()),
                "ignore" => outcome.left_out += 1,
                "err" | "exception" | "TIMEOUT" => {
                    // The description of a failure extends to the next test.
                    let mut words = vec![rest.to_owned()];
                    while let Some(more) = lines.next_if(|line| !plain(line).starts_with('[')) {
                        words.push(more.trim().to_owned());
                    }
                    words.retain(|line| !line.is_empty());
                    outcome.failures.push(words.join("\n                "));
                }
                _ => done |= kind.ends_with("done"),
            }
        }
        if !done {
            outcome.failures.push(format!("{unit} did not run to its end"));
        }
        outcome
    }

    /// Adds the counts and failures of another unit to these.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.left_out += other.left_out;
        self.skipped.extend(other.skipped);
        self.failures.extend(other.failures);
        self.failed_units.extend(other.failed_units);
    }

    /// Adds the results of a second run of the same unit, which left out other tests. A test counts
    /// as skipped if it was left out of both runs. Tests that the suite itself leaves out are
    /// counted once.
    pub fn add_second_run(&mut self, other: Self) {
        self.passed += other.passed;
        self.skipped.retain(|test| other.skipped.contains(test));
        self.failures.extend(other.failures);
    }

    /// Returns true if no test of the unit or units failed.
    pub fn is_good(&self) -> bool {
        self.failures.is_empty()
    }
}

impl fmt::Display for UnitOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let skipped = self.skipped.len() + self.left_out;
        write!(f, "{} passed, {} failed, {skipped} skipped", self.passed, self.failures.len())
    }
}

/// Removes the colour sequences of a terminal from `line`.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut pieces = line.split('\u{1b}');
    plain.push_str(pieces.next().unwrap_or_default());
    for piece in pieces {
        plain.push_str(piece.split_once('m').map_or("", |(_, text)| text));
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "\
[ready]: 10295
\u{1b}[1;37;49mTesting unit/sort\u{1b}[0m
[\u{1b}[0;32;49mok\u{1b}[0m]: SORT BY key (1 ms)
[\u{1b}[0;33;49mskip\u{1b}[0m]: SORT in a script
[\u{1b}[0;36;49mignore\u{1b}[0m]: SORT speed: Tag: slow denied
[\u{1b}[0;31;49merr\u{1b}[0m]: SORT GET # in tests/unit/sort.tcl
Expected 1 to be equal to 2
[1/1 \u{1b}[0;33;49mdone\u{1b}[0m]: unit/sort (1 seconds)

                   The End

*** [\u{1b}[0;31;49merr\u{1b}[0m]: SORT GET # in tests/unit/sort.tcl
";

    #[test]
    fn tests_are_counted_and_failures_kept_with_their_words() {
        let outcome = UnitOutcome::parse("unit/sort", RUN);
        assert_eq!(outcome.to_string(), "1 passed, 1 failed, 2 skipped");
        assert_eq!(outcome.skipped, ["SORT in a script"]);
        assert!(outcome.failures[0].contains("Expected 1 to be equal to 2"), "{outcome:?}");
        assert!(!outcome.is_good());
    }

    #[test]
    fn what_a_second_run_ran_is_not_skipped() {
        let mut outcome = UnitOutcome::parse("unit/sort", RUN);
        let second =
            RUN.replace("SORT BY key", "SORT in a script").replace("skip\u{1b}[0m]: SORT in a script", "");
        outcome.add_second_run(UnitOutcome::parse("unit/sort", &second));
        assert_eq!(outcome.to_string(), "2 passed, 2 failed, 1 skipped");
    }

    #[test]
    fn a_run_that_stops_halfway_has_failed() {
        let halfway: String = RUN.lines().take(3).map(|line| format!("{line}\n")).collect();
        let outcome = UnitOutcome::parse("unit/sort", &halfway);
        assert_eq!(outcome.to_string(), "1 passed, 1 failed, 0 skipped");
        assert!(outcome.failures[0].contains("did not run to its end"));
    }
}
