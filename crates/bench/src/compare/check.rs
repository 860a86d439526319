//! The checks of a study that the types of its values do not express. Numbers must be in range,
//! lists not empty and without duplicates, names known and unique. Command lines and templates must
//! contain only known placeholders.

use std::fmt::Debug;

use super::command_line;
use super::mistake::Mistake;
use super::study::{ClientThreads, Connections, Engine, Study};

/// The largest allowed count of rounds, connections and the like. A larger count is probably a
/// typing error.
const COUNT_MAX: u64 = 1_000_000;
/// The largest number of threads of an engine or of the load generator.
const THREADS_MAX: u64 = 1_024;
/// The largest number of keys or requests that a study may set.
const MANY_MAX: u64 = 1_000_000_000_000;
/// The longest value that servers accept, in bytes; a study may not ask for a longer one.
const VALUE_BYTES_MAX: u64 = 512 * 1024 * 1024;
/// The longest round trip that a study may simulate, in milliseconds.
const ROUND_TRIP_MS_MAX: u64 = 60_000;
/// The longest duration that a study may set for a run or a warm-up: one day, in seconds.
const SECONDS_MAX: f64 = 86_400.0;

/// Checks that the count with the key path `path` in the study, such as `load.pipeline`, is from 1
/// to `max`.
fn count(path: &str, count: u64, max: u64) -> Result<(), Mistake> {
    within(path, count, (1, max))
}

/// Checks that the number with the key path `path` in the study is in `range`, both ends included.
fn within<T: PartialOrd + ToString>(path: &str, value: T, range: (T, T)) -> Result<(), Mistake> {
    // NaN is in no range.
    if value >= range.0 && value <= range.1 {
        return Ok(());
    }
    let name = key(path);
    let (value, low, high) = (value.to_string(), range.0.to_string(), range.1.to_string());
    Err(Mistake::of(path, format!("{name} is {value}: it must be {low} to {high}")))
}

/// Returns the last name of a key path without the index of a list entry: `value_bytes` for
/// `load.value_bytes.1`.
fn key(path: &str) -> &str {
    path.rsplit('.').find(|name| name.parse::<usize>().is_err()).unwrap_or(path)
}

/// Checks that the list with the key path `path` in the study is not empty and has no duplicates.
fn list<T: PartialEq + Debug>(path: &str, entries: &[T]) -> Result<(), Mistake> {
    if entries.is_empty() {
        return Err(Mistake::of(path, format!("{} is empty: nothing would be measured", key(path))));
    }
    match (1..entries.len()).find(|at| entries[..*at].contains(&entries[*at])) {
        Some(at) => {
            Err(Mistake::of(format!("{path}.{at}"), format!("{} has {:?} twice", key(path), entries[at])))
        }
        None => Ok(()),
    }
}

/// Checks that the list with the key path `path` in the study is not empty, has no duplicates and
/// contains only numbers in `range`.
fn numbers<T>(path: &str, entries: &[T], range: (u64, u64)) -> Result<(), Mistake>
where
    T: PartialEq + Debug + Copy + TryInto<u64>,
{
    list(path, entries)?;
    for (at, entry) in entries.iter().enumerate() {
        within(&format!("{path}.{at}"), (*entry).try_into().unwrap_or(u64::MAX), range)?;
    }
    Ok(())
}

impl Study {
    /// Checks all constraints on a study that the types of its values do not express.
    pub(super) fn check(&self) -> Result<(), Mistake> {
        count("rounds", self.rounds.into(), COUNT_MAX)?;
        self.check_load()?;
        self.check_engines()?;
        self.check_workloads()
    }

    fn check_load(&self) -> Result<(), Mistake> {
        let load = &self.load;
        count("load.pipeline", load.pipeline as u64, COUNT_MAX)?;
        if let ClientThreads::Count(threads) = load.client_threads {
            count("load.client_threads", threads as u64, THREADS_MAX)?;
        }
        match &load.connections {
            Connections::List(entries) => numbers("load.connections", entries, (1, COUNT_MAX))?,
            Connections::Rising(rising) => {
                count("load.connections.from", rising.from as u64, COUNT_MAX)?;
                let range = (rising.from as u64, COUNT_MAX);
                within("load.connections.to", rising.to as u64, range)?;
                within("load.connections.stop_below_percent", rising.stop_below_percent, (0.0, 100.0))?;
            }
        }
        numbers("load.value_bytes", &load.value_bytes, (1, VALUE_BYTES_MAX))?;
        numbers("load.io_threads", &load.io_threads, (1, THREADS_MAX))?;
        numbers("load.round_trips_ms", &load.round_trips_ms, (0, ROUND_TRIP_MS_MAX))?;
        list("load.transports", &load.transports)?;
        if load.requests.is_some() && load.seconds.is_some() {
            return Err(Mistake::of("load.seconds", "set requests or seconds, not both"));
        }
        count("load.requests", load.requests.unwrap_or(1), MANY_MAX)?;
        count("load.keyspace", load.keyspace.unwrap_or(1), MANY_MAX)?;
        within("load.seconds", load.seconds.unwrap_or(1.0), (0.01, SECONDS_MAX))?;
        within("load.warm_up_seconds", load.warm_up_seconds, (0.0, SECONDS_MAX))?;
        within("load.reply_within_seconds", load.reply_within_seconds, (0.01, SECONDS_MAX))?;
        within("load.rate", load.rate.unwrap_or(1.0), (0.1, 1e9))?;
        within("load.link_mbit_per_second", load.link_mbit_per_second.unwrap_or(1.0), (0.001, 1e6))?;
        within("load.resp", load.resp, (2, 3))
    }

    fn check_engines(&self) -> Result<(), Mistake> {
        if self.engines.is_empty() {
            return Err(Mistake::new("no [[engine]]: nothing would be measured"));
        }
        for (at, engine) in self.engines.iter().enumerate() {
            check_engine(at, engine)?;
            let name = engine.name();
            if self.engines[..at].iter().any(|other| other.name() == name) {
                return Err(Mistake::at(&engine.name, format!("two engines are called {name:?}")));
            }
        }
        match &self.baseline {
            Some(name) if !self.engines.iter().any(|engine| engine.name() == name.get_ref()) => {
                Err(Mistake::at(name, format!("baseline: there is no engine {:?}", name.get_ref())))
            }
            _ => Ok(()),
        }
    }

    fn check_workloads(&self) -> Result<(), Mistake> {
        if self.workloads.is_empty() {
            return Err(Mistake::new("no [[workload]]: nothing would be measured"));
        }
        // A size may be part of a command, so the commands must be valid with each size.
        for &value_bytes in &self.load.value_bytes {
            for at in 0..self.workloads.len() {
                self.workloads_of_entry(at, value_bytes)?;
            }
            self.preload_workload(value_bytes)?;
        }
        let mut names: Vec<String> = Vec::new();
        for at in 0..self.workloads.len() {
            for workload in self.workloads_of_entry(at, self.load.value_bytes[0])? {
                if names.contains(&workload.name) {
                    let reason = format!("two workloads are called {:?}", workload.name);
                    return Err(Mistake::of(format!("workload.{at}"), reason));
                }
                names.push(workload.name);
            }
        }
        Ok(())
    }
}

/// Checks the engine at index `at` by itself, without comparing it with other engines.
fn check_engine(at: usize, engine: &Engine) -> Result<(), Mistake> {
    let name = engine.name();
    if name.is_empty() {
        return Err(Mistake::at(&engine.name, "the name of the engine is empty"));
    }
    for line in [&engine.start, &engine.tls_options].into_iter().flatten() {
        command_line::check(line.get_ref())
            .map_err(|reason| Mistake::at(line, format!("engine {name:?}: {reason}")))?;
    }
    within(&format!("engine.{at}.ready_within_seconds"), engine.ready_within_seconds, (0.01, SECONDS_MAX))?;
    if let Some(transports) = &engine.transports {
        list(&format!("engine.{at}.transports"), transports)?;
    }
    match (&engine.start, &engine.address) {
        (None, Some(address)) if address.get_ref().is_empty() => {
            Err(Mistake::at(address, format!("engine {name:?}: address is empty")))
        }
        (Some(_), None) | (None, Some(_)) => Ok(()),
        _ => Err(Mistake::at(&engine.name, format!("engine {name:?} needs either start or address"))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::study::Length;
    use super::*;

    const ENGINE: &str = "[[engine]]\nname = 'a'\nstart = 'x {port}'\n";
    const WORKLOAD: &str = "[[workload]]\ntests = ['set']\n";

    /// Checks that `text` has a mistake at position `at` and that its one-line message contains
    /// `words`.
    fn check(text: &str, at: Option<(usize, usize)>, words: &str) {
        let located = Study::parse(text, Length::Whole).unwrap_err();
        assert!(located.reason.contains(words), "{text}: {located:?}");
        assert_eq!(located.at, at, "{text}: {located:?}");
        assert_eq!(located.reason.lines().count(), 1, "{text}: {located:?}");
    }

    #[test]
    fn what_the_reader_finds_has_its_place() {
        check("title = 'x'\nruonds = 3\n", Some((2, 1)), "unknown field `ruonds`");
        check("title = 'x'\n[load]\n  pipelin = 3\n", Some((3, 3)), "unknown field `pipelin`");
        check("title = 3\n", Some((1, 9)), "invalid type: integer `3`");
        check("title = 'x'\nrounds = 'two'\n", Some((2, 10)), "invalid type: string");
        check("title = 'x'\nrounds = -1\n", Some((2, 10)), "-1");
        check("title = \n", Some((1, 9)), "");
        check("title = 'x'\n[load\n", Some((2, 6)), "");
        check("title = 'x'\n[load]\ntransports = ['tcp', 'udp']\n", Some((3, 22)), "unknown variant `udp`");
        check("title = 'x'\n[load]\nconnections = 50\n", Some((3, 15)), "connections must be a list");
        check("title = 'x'\n[load]\nclient_threads = 'all'\n", Some((3, 18)), "or \"as-engine\"");
        check("title = 'x'\n[load]\nlink = 'wire'\n", Some((3, 8)), "unknown variant `wire`");
        check("rounds = 3\n", Some((1, 1)), "missing field `title`");
    }

    #[test]
    fn numbers_out_of_range_and_lists_without_sense_have_their_place() {
        let load = |lines: &str| format!("title = 'x'\n[load]\n{lines}\n{ENGINE}{WORKLOAD}");
        let cases = [
            ("pipeline = 0", (3, 12), "pipeline is 0: it must be 1 to 1000000"),
            ("connections = []", (3, 15), "connections is empty"),
            ("connections = [50, 0]", (3, 20), "connections is 0"),
            ("connections = [50, 60, 50]", (3, 24), "connections has 50 twice"),
            ("connections = { from = 0, to = 9 }", (3, 24), "from is 0"),
            ("connections = { from = 16, to = 9 }", (3, 33), "to is 9: it must be 16 to"),
            ("value_bytes = [0]", (3, 16), "value_bytes is 0"),
            ("value_bytes = [600000000]", (3, 16), "value_bytes is 600000000"),
            ("io_threads = [1, 2000]", (3, 18), "io_threads is 2000"),
            ("round_trips_ms = [90000]", (3, 19), "round_trips_ms is 90000"),
            ("transports = []", (3, 14), "transports is empty"),
            ("transports = ['tcp', 'tcp']", (3, 22), "transports has Tcp twice"),
            ("client_threads = 0", (3, 18), "client_threads is 0"),
            ("requests = 0", (3, 12), "requests is 0"),
            ("requests = 5\nseconds = 1.0", (4, 11), "not both"),
            ("keyspace = 0", (3, 12), "keyspace is 0"),
            ("seconds = 0.0", (3, 11), "seconds is 0"),
            ("seconds = nan", (3, 11), "seconds is NaN"),
            ("warm_up_seconds = -1.0", (3, 19), "warm_up_seconds is -1"),
            ("rate = 0.0", (3, 8), "rate is 0"),
            ("link_mbit_per_second = 0.0", (3, 24), "link_mbit_per_second is 0"),
            ("resp = 4", (3, 8), "resp is 4: it must be 2 to 3"),
            ("resp = 2\n[quick]\nconnections = []", (5, 15), "connections is empty"),
            ("resp = 2\n[quick]\nrounds = 0", (5, 10), "rounds is 0"),
        ];
        for (lines, at, words) in cases {
            check(&load(lines), Some(at), words);
        }
        check(&format!("title = 'x'\nrounds = 0\n{ENGINE}{WORKLOAD}"), Some((2, 10)), "rounds is 0");
    }

    #[test]
    fn engines_that_make_no_sense_have_their_place() {
        let engine = |lines: &str| format!("title = 'x'\n[[engine]]\n{lines}\n{WORKLOAD}");
        check("title = 'x'\n", None, "no [[engine]]");
        check(&engine("name = 'a'"), Some((3, 8)), "either start or address");
        check(&engine("name = 'a'\nstart = 'x'\naddress = 'h:1'"), Some((3, 8)), "either start or address");
        check(&engine("name = ''\nstart = 'x'"), Some((3, 8)), "the name of the engine is empty");
        check(&engine("name = 'a'\nstart = 'x {prot}'"), Some((4, 9)), "{prot}");
        check(&engine("name = 'a'\nstart = \"x '\""), Some((4, 9)), "a quote is not closed");
        check(&engine("name = 'a'\nstart = 'x'\ntls_options = '{crt}'"), Some((5, 15)), "{crt}");
        check(&engine("name = 'a'\naddress = ''"), Some((4, 11)), "address is empty");
        check(&engine("name = 'a'\nstart = 'x'\ntransports = []"), Some((5, 14)), "transports is empty");
        let twice = format!("title = 'x'\n{ENGINE}{ENGINE}{WORKLOAD}");
        check(&twice, Some((6, 8)), "two engines are called \"a\"");
        let baseline = format!("title = 'x'\nbaseline = 'b'\n{ENGINE}{WORKLOAD}");
        check(&baseline, Some((2, 12)), "baseline: there is no engine \"b\"");
    }

    #[test]
    fn workloads_that_make_no_sense_have_their_place() {
        let workload = |lines: &str| format!("title = 'x'\n{ENGINE}[[workload]]\n{lines}\n");
        check(&format!("title = 'x'\n{ENGINE}"), None, "no [[workload]]");
        check(&workload("tests = ['set', 'gett']"), Some((6, 17)), "gett");
        check(&workload("tests = []"), Some((6, 9)), "tests is empty");
        check(&workload("tests = ['get', 'get']"), Some((5, 1)), "two workloads are called \"GET\"");
        check(&workload("name = 'm'"), Some((5, 1)), "needs tests, or commands with a name, or vectors");
        check(&workload("name = 'm'\ncommands = []"), Some((7, 12)), "commands is empty");
        check(&workload("name = ''\ncommands = ['PING']"), Some((6, 8)), "name is empty");
        check(&workload("vectors = { ef = [0] }"), Some((6, 11)), "ef is 0: it must be 1 to");
        check(&workload("vectors = { efs = [1] }"), Some((6, 13)), "unknown field `efs`");
        check(&workload("tests = ['get']\nvectors = {}"), Some((7, 11)), "neither tests nor commands");
        let second = "name = 'm'\ncommands = ['PING', 'GET {key normal 5}']";
        check(&workload(second), Some((7, 21)), "not a distribution");
        let preload = |lines: &str| {
            format!("title = 'x'\n[load]\nkeyspace = 9\n[preload]\n{lines}\n{ENGINE}{WORKLOAD}")
        };
        check(&preload("share = 0.0"), Some((5, 9)), "share is 0");
        check(&preload("command = 'SET {key oddly 5}'"), Some((5, 11)), "not a distribution");
        check(&format!("title = 'x'\n[preload]\n{ENGINE}{WORKLOAD}"), Some((2, 1)), "needs a keyspace");
    }
}
