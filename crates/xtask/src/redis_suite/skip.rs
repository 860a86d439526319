//! The skip list: the units to run, the tests to leave out, each with its reason, and the tests
//! that need a server with one thread.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

/// The way in which Redis' suite gets the servers for a unit of tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// One server is started for the whole unit, and the suite gets its address.
    External,
    /// The suite itself starts servers from its `src/redis-server`, as often as the unit requires.
    Spawned,
    /// Like `Spawned`, but Saker's replicas are Redis servers, and Saker writes its snapshots in
    /// their format.
    RedisReplicas,
    /// Like `Spawned`, but the primaries of Saker are Redis servers.
    RedisPrimaries,
    /// Like `Spawned`, but the suite uses TLS.
    Encrypted,
}

/// The content of skip.toml: the units to run, and the tests that are left out.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SkipList {
    units: BTreeMap<Mode, Vec<String>>,
    #[serde(rename = "one-thread")]
    one_thread: Reason,
    reasons: BTreeMap<String, Reason>,
}

/// Tests that are left out, or that run differently, for one reason.
#[derive(Deserialize)]
struct Reason {
    /// The reason for leaving the tests out, in one line of text.
    because: String,
    /// The names of the tests, by unit. A name that begins with / is a regular expression.
    #[serde(flatten)]
    tests: BTreeMap<String, Vec<String>>,
}

impl PartialOrd for Mode {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Mode {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (*self as u8).cmp(&(*other as u8))
    }
}

impl SkipList {
    /// Reads and checks the skip list in the file at `path`.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).with_context(|| path.display().to_string())
    }

    fn parse(text: &str) -> Result<Self> {
        let list: Self = toml::from_str(text)?;
        let all: Vec<&String> = list.units.values().flatten().collect();
        let of_threads = [("one-thread", &list.one_thread)];
        let reasons = list.reasons.iter().map(|(name, reason)| (name.as_str(), reason));
        for (name, reason) in reasons.chain(of_threads) {
            ensure!(!reason.because.is_empty(), "the reason {name} has no text");
            for unit in reason.tests.keys() {
                ensure!(all.contains(&unit), "the reason {name} names {unit}, which does not run");
            }
        }
        Ok(list)
    }

    /// Returns the units named in `only`, in the list's order; all units if `only` is empty.
    /// Returns an error for an unknown name.
    pub fn units(&self, only: &[String]) -> Result<Vec<(&str, Mode)>> {
        let all = self.units.iter().flat_map(|(mode, units)| units.iter().map(|unit| (unit.as_str(), *mode)));
        let all: Vec<_> = all.collect();
        for name in only {
            if !all.iter().any(|(unit, _)| unit == name) {
                let known: Vec<_> = all.iter().map(|(unit, _)| *unit).collect();
                bail!("no unit is called {name}; there are: {}", known.join(", "));
            }
        }
        let chosen = |(unit, _): &(&str, Mode)| only.is_empty() || only.iter().any(|name| name == unit);
        Ok(all.into_iter().filter(chosen).collect())
    }

    /// Returns an error if one of `names` is not the name of a reason in the list.
    pub fn check_reasons(&self, names: &[String]) -> Result<()> {
        for name in names {
            if !self.reasons.contains_key(name) {
                let known: Vec<_> = self.reasons.keys().map(String::as_str).collect();
                bail!("no reason is called {name}; there are: {}", known.join(", "));
            }
        }
        Ok(())
    }

    /// Returns the names of the tests of `unit` to leave out. Tests listed under one of the reasons
    /// `unskip` are not included.
    pub fn tests(&self, unit: &str, unskip: &[String]) -> Vec<String> {
        let reasons = self.reasons.iter().filter(|(name, _)| !unskip.contains(name));
        reasons.filter_map(|(_, reason)| reason.tests.get(unit)).flatten().cloned().collect()
    }

    /// Returns the tests of `unit` that need a server with one thread.
    pub fn one_thread_tests(&self, unit: &str) -> &[String] {
        self.one_thread.tests.get(unit).map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = r#"
        [units]
        external = ["unit/type/list", "unit/sort"]
        spawned = ["unit/info"]
        [one-thread]
        because = "expects an order of arrival"
        "unit/info" = ["/^client"]
        [reasons.blocking]
        because = "waits for other clients"
        "unit/type/list" = ["BLPOP", "/^BR"]
        [reasons.scripts]
        because = "runs a script"
        "unit/type/list" = ["EVAL"]
        "unit/sort" = ["SORT in a script"]
    "#;

    #[test]
    fn tests_are_gathered_over_all_reasons_but_those_left_out() {
        let list = SkipList::parse(LIST).unwrap();
        assert_eq!(list.tests("unit/type/list", &[]), ["BLPOP", "/^BR", "EVAL"]);
        assert_eq!(list.tests("unit/type/list", &["blocking".to_owned()]), ["EVAL"]);
        assert!(list.tests("unit/info", &[]).is_empty());
        assert!(list.check_reasons(&["weather".to_owned()]).is_err());
        assert_eq!(list.one_thread_tests("unit/info"), ["/^client"]);
        assert!(list.one_thread_tests("unit/sort").is_empty());
    }

    #[test]
    fn units_keep_their_order_and_unknown_ones_are_refused() {
        let list = SkipList::parse(LIST).unwrap();
        let all =
            [("unit/type/list", Mode::External), ("unit/sort", Mode::External), ("unit/info", Mode::Spawned)];
        assert_eq!(list.units(&[]).unwrap(), all);
        assert_eq!(list.units(&["unit/sort".to_owned()]).unwrap(), all[1..2]);
        assert!(list.units(&["unit/none".to_owned()]).is_err());
    }

    #[test]
    fn a_reason_must_say_something_about_a_unit_that_runs() {
        assert!(SkipList::parse(&LIST.replace("runs a script", "")).is_err());
        assert!(SkipList::parse(&LIST.replace("\"unit/sort\" = ", "\"unit/none\" = ")).is_err());
        assert!(SkipList::parse(&LIST.replace("\"unit/info\" = ", "\"unit/none\" = ")).is_err());
    }
}
