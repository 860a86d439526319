//! The study file: the servers, the load and the number of rounds. docs/benchmarking.md describes
//! its keys.
//!
//! The file is parsed strictly. An unknown key, a wrong type or an invalid value (`check.rs`) is
//! reported as one line with its position, before anything is started.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::mistake::{Located, Mistake};
use crate::BenchError;
use crate::results::{LinkKind, Transport};
use crate::workload::{
    Content, DefaultTestOptions, KeyPattern, Keys, Sizes, TemplateOptions, Values, VectorPlan, Vectors,
    Workload,
};

/// The number of requests of a run if the study has neither `requests` nor `seconds`:
/// redis-benchmark's default.
pub(super) const REQUESTS_DEFAULT: u64 = 100_000;
/// The largest number of rounds under `--quick` if the table `[quick]` does not contain `rounds`.
const QUICK_ROUNDS: u32 = 2;
/// The number of requests of a run under `--quick`, if `[quick]` contains neither `requests` nor
/// `seconds`. `QUICK_SECONDS` is used instead if `[load]` contains `seconds`.
const QUICK_REQUESTS: u64 = 2_000;
const QUICK_SECONDS: f64 = 0.3;
/// The largest number of vectors of a data set under `--quick`, unless `[quick]` contains
/// `vector_count`. `QUICK_QUERIES` is the largest number of its queries.
const QUICK_VECTORS: usize = 2_000;
const QUICK_QUERIES: usize = 100;

/// A study, as its TOML file describes it: the engines, the workloads and the number of rounds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The title of the study, for the reports.
    pub title: String,
    /// The purpose of the study, a few sentences.
    #[serde(default)]
    pub description: String,
    /// The number of rounds, in each of which every engine is measured once at each point.
    #[serde(default = "default_rounds")]
    pub rounds: u32,
    /// The engine that differences are relative to; when absent, the first engine with results.
    #[serde(default)]
    pub baseline: Option<Spanned<String>>,
    /// True to measure even if engines differ in maxmemory, maxmemory-policy, save or appendonly.
    /// The reports list the differences.
    #[serde(default)]
    pub allow_different_settings: bool,
    /// The seed of all random choices; when absent, a random seed is chosen.
    #[serde(default)]
    pub seed: Option<u64>,
    /// The load that all workloads share.
    #[serde(default)]
    pub load: Load,
    /// The keys written into each engine after its start, before anything is measured.
    #[serde(default)]
    pub preload: Option<Preload>,
    /// The changes that `--quick` makes to the study.
    #[serde(default)]
    pub quick: Quick,
    /// The servers that the study compares.
    #[serde(rename = "engine", default)]
    pub engines: Vec<Engine>,
    /// The workloads to measure on each engine.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<WorkloadEntry>,
    /// The limits that [`Study::adapt`] made smaller, each as a phrase: `2 rounds instead of 5`.
    #[serde(skip)]
    pub shortened: Vec<String>,
    /// The number of requests of a run if [`Study::adapt`] replaced it by a duration; `None`
    /// otherwise.
    #[serde(skip)]
    pub requests_replaced: Option<u64>,
}

fn default_rounds() -> u32 {
    3
}

/// The load that all workloads share. A list is a dimension: the study measures each entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// The number of requests of a run; `None` if the study gives `seconds` or uses the default.
    pub requests: Option<u64>,
    /// The duration of a run in seconds, which replaces `requests`; `None` to end after a number of
    /// requests.
    pub seconds: Option<f64>,
    /// The duration of the unmeasured load before each run, in seconds.
    pub warm_up_seconds: f64,
    /// The number of threads of the load generator.
    pub client_threads: ClientThreads,
    /// The number of connections of all threads together, or of each thread with
    /// `connections_per_thread`.
    pub connections: Connections,
    /// True if `connections` is the number of connections of each client thread.
    pub connections_per_thread: bool,
    /// The number of requests that a connection sends before it waits for their replies.
    pub pipeline: usize,
    /// The version of RESP on the connections: 2 or 3.
    pub resp: u8,
    /// The password of the default user. The command lines of engines contain it as `{password}`.
    pub password: Option<String>,
    /// The number of different keys and members that `__rand_int__` and `__key__` choose from. When
    /// absent, there is only one.
    pub keyspace: Option<u64>,
    /// The sizes of the values that requests write, in bytes; each is measured.
    pub value_bytes: Vec<usize>,
    /// The transports to the server (TCP, TLS, Unix socket); each is measured.
    pub transports: Vec<Transport>,
    /// The numbers of I/O threads of the engines, which replace `{threads}` in their command lines.
    pub io_threads: Vec<u32>,
    /// The round trip times of simulated links, in milliseconds; 0 measures without a link.
    pub round_trips_ms: Vec<u32>,
    /// The simulator of links (netem or a relay); when absent, netem if the kernel permits it,
    /// otherwise a relay.
    pub link: Option<LinkKind>,
    /// The rate of simulated links in each direction, in megabits per second; unlimited when
    /// absent.
    pub link_mbit_per_second: Option<f64>,
    /// The total rate of an open loop, which sends requests on schedule, in requests per second; a
    /// closed loop when absent.
    pub rate: Option<f64>,
    /// The longest time that an engine may send no reply before its run fails, in seconds.
    pub reply_within_seconds: f64,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            requests: None,
            seconds: None,
            warm_up_seconds: 0.0,
            client_threads: ClientThreads::Count(1),
            connections: Connections::List(vec![50]),
            connections_per_thread: false,
            pipeline: 1,
            resp: 2,
            password: None,
            keyspace: None,
            value_bytes: vec![3],
            transports: vec![Transport::Tcp],
            io_threads: vec![1],
            round_trips_ms: vec![0],
            link: None,
            link_mbit_per_second: None,
            rate: None,
            reply_within_seconds: 60.0,
        }
    }
}

/// The setting for the number of threads of the load generator.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged, expecting = "client_threads must be a number or \"as-engine\"")]
pub enum ClientThreads {
    /// The load generator has this number of threads.
    Count(usize),
    /// The load generator has as many threads as the measured engine has I/O threads:
    /// `"as-engine"`.
    Named(AsEngine),
}

/// The only name that `client_threads` accepts instead of a number.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum AsEngine {
    /// The load generator has as many threads as the measured engine has I/O threads.
    #[serde(rename = "as-engine")]
    AsEngine,
}

impl ClientThreads {
    /// Returns the number of client threads for an engine with `io_threads` I/O threads.
    pub fn count(self, io_threads: u32) -> usize {
        match self {
            ClientThreads::Count(count) => count,
            ClientThreads::Named(AsEngine::AsEngine) => io_threads as usize,
        }
    }
}

/// The numbers of connections with which the study measures each engine.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(
    untagged,
    expecting = "connections must be a list of numbers or { from = NUMBER, to = NUMBER, stop_below_percent \
        = NUMBER }"
)]
pub enum Connections {
    /// A list of numbers of connections, each of which is measured.
    List(Vec<usize>),
    /// The numbers of connections double until the rate of requests stops rising.
    Rising(Rising),
}

/// Numbers of connections of which each is twice the one before, until the rate of requests stops
/// rising.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rising {
    /// The number of connections in the first step of the series.
    pub from: usize,
    /// The largest number of connections in the series.
    pub to: usize,
    /// The minimum gain of the rate of requests, in percent. The series ends when neither of the
    /// last two steps exceeds the best earlier rate by this gain.
    #[serde(default = "default_stop_below")]
    pub stop_below_percent: f64,
}

fn default_stop_below() -> f64 {
    3.0
}

impl Connections {
    /// Returns the numbers of connections in the order in which they are measured.
    pub fn steps(&self) -> Vec<usize> {
        match self {
            Connections::List(list) => list.clone(),
            Connections::Rising(rising) => {
                std::iter::successors(Some(rising.from.max(1)), |count| count.checked_mul(2))
                    .take_while(|count| *count <= rising.to)
                    .collect()
            }
        }
    }

    /// Returns the minimum gain of the rate of requests, in percent, with which the number of
    /// connections goes on rising; `None` for a list.
    pub fn stop_below_percent(&self) -> Option<f64> {
        match self {
            Connections::List(_) => None,
            Connections::Rising(rising) => Some(rising.stop_below_percent),
        }
    }
}

/// The keys written into an engine right after its start. The growth of its memory gives the memory
/// per key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preload {
    /// The number of requests of the preload, as a share of the keyspace. Below 1, some reads will
    /// miss.
    #[serde(default = "default_share")]
    pub share: f64,
    /// The command that writes the keys. `{keyspace}` and `{value_bytes}` are replaced by the
    /// study's values.
    #[serde(default = "default_preload")]
    pub command: Spanned<String>,
}

fn default_share() -> f64 {
    1.0
}

fn default_preload() -> Spanned<String> {
    Spanned::new(0..0, "SET {key sequence {keyspace}} {value {value_bytes}}".to_owned())
}

/// The `[quick]` table: values that replace those of the study under `--quick`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    rounds: Option<u32>,
    requests: Option<u64>,
    seconds: Option<f64>,
    warm_up_seconds: Option<f64>,
    keyspace: Option<u64>,
    vector_count: Option<usize>,
    connections: Option<Connections>,
    value_bytes: Option<Vec<usize>>,
    io_threads: Option<Vec<u32>>,
}

/// A server to measure: its name, and its command line or address.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// The name by which reports call the engine.
    pub name: Spanned<String>,
    /// The command line that starts the engine, with placeholders such as `{port}`; absent if the
    /// engine already runs.
    #[serde(default)]
    pub start: Option<Spanned<String>>,
    /// The options that are appended to `start` if TLS is measured, with `{tls_port}`, `{cert}` and
    /// `{key}`.
    #[serde(default)]
    pub tls_options: Option<Spanned<String>>,
    /// The address of an engine that already runs: `host:port` or the path of a Unix socket.
    #[serde(default)]
    pub address: Option<Spanned<String>>,
    /// The root directory of an engine that runs in a chroot or a container. Its scratch directory
    /// is created there, and its paths are relative to it.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// The required prefix of the version that the engine's INFO reports; `None` accepts any
    /// version.
    #[serde(default)]
    pub expect_version: Option<String>,
    /// The transports over which the engine is measured; all when absent. Other transports of the
    /// study are skipped with a note.
    #[serde(default)]
    pub transports: Option<Vec<Transport>>,
    /// The longest time from the start of the engine until it replies to PING, in seconds.
    #[serde(default = "default_ready_within")]
    pub ready_within_seconds: f64,
}

fn default_ready_within() -> f64 {
    30.0
}

/// The changes that the command line makes to a study. A change that is `None` or empty leaves the
/// study's setting.
#[derive(Clone, Copy, Debug)]
pub struct Changes<'a> {
    /// The names of the engines to measure; all when empty.
    pub engines: &'a [String],
    /// Other programs for the command lines of engines, as NAME=PROGRAM.
    pub programs: &'a [String],
    /// The root directories of engines in a chroot or container, as NAME=FOLDER.
    pub roots: &'a [String],
    /// The number of rounds, in place of the study's.
    pub rounds: Option<u32>,
    /// The duration of a run in seconds, in place of the study's.
    pub seconds: Option<f64>,
    /// The seed of all random choices, in place of the study's.
    pub seed: Option<u64>,
}

/// An entry of the study's workloads: tests of redis-benchmark, or commands with a name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadEntry {
    /// The names of redis-benchmark's tests to measure; `None` if the entry is about commands or
    /// vectors.
    #[serde(default)]
    pub tests: Option<Vec<Spanned<String>>>,
    /// The name by which reports call the commands, which need one. Vector workloads may have one;
    /// `None` for tests.
    #[serde(default)]
    pub name: Option<String>,
    /// The commands. A weight and a colon precede a command if its weight is not 1.
    #[serde(default)]
    pub commands: Option<Vec<Spanned<String>>>,
    /// The settings of vector workloads. A name replaces the name of the data in reports.
    #[serde(default)]
    pub vectors: Option<VectorPlan>,
    /// The data set of `vectors`, which all clones of the study share; `None` before the first use.
    #[serde(skip)]
    data: Arc<OnceLock<Vectors>>,
}

/// A workload with its name in reports and the unmeasured workload that prepares it.
#[derive(Clone, Debug)]
pub struct NamedWorkload {
    /// The name of the workload in reports, such as `LRANGE_100`.
    pub name: String,
    /// The requests whose rate and latency are measured.
    pub workload: Workload,
    /// The unmeasured workload that is sent before each run to fill the list that LRANGE reads;
    /// `None` for other tests.
    pub fill: Option<Workload>,
}

/// The length of a study: whole, or shortened by `--quick`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// The study runs whole, as its file describes it.
    Whole,
    /// The study runs as a short demonstration, with the changes of `[quick]`.
    Quick,
}

impl Study {
    /// Reads the study in `path` and shortens it according to `length`.
    pub fn read(path: &Path, length: Length) -> Result<Study, BenchError> {
        let unreadable = |error| BenchError::Usage(format!("cannot read {}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text, length).map_err(|Located { at, reason }| {
            let at = at.map_or_else(String::new, |(line, column)| format!(":{line}:{column}"));
            BenchError::Usage(format!("{}{at}: {reason}", path.display()))
        })
    }

    /// Parses the text of a study file, and shortens the study according to `length`. `[quick]`
    /// must be valid even if `length` does not use it.
    pub fn parse(text: &str, length: Length) -> Result<Study, Located> {
        let parsed: Result<Study, toml::de::Error> = toml::from_str(text);
        let study = parsed.map_err(|error| Mistake::of_reader(&error).located(text))?;
        study.check().map_err(|mistake| mistake.located(text))?;
        let mut short = study.clone();
        short.shorten();
        short.check().map_err(|mistake| mistake.located_in_quick(text))?;
        Ok(match length {
            Length::Whole => study,
            Length::Quick => short,
        })
    }

    /// Applies the table `[quick]` and the defaults of `--quick` to the study.
    fn shorten(&mut self) {
        let quick = std::mem::take(&mut self.quick);
        let load = &mut self.load;
        self.rounds = quick.rounds.unwrap_or(QUICK_ROUNDS.min(self.rounds));
        match (quick.requests, quick.seconds) {
            (Some(requests), None) => (load.requests, load.seconds) = (Some(requests), None),
            (None, Some(seconds)) => (load.requests, load.seconds) = (None, Some(seconds)),
            (Some(_), Some(_)) => (load.requests, load.seconds) = (quick.requests, quick.seconds),
            (None, None) if load.seconds.is_some() => load.seconds = Some(QUICK_SECONDS),
            (None, None) => load.requests = Some(QUICK_REQUESTS),
        }
        load.warm_up_seconds = quick.warm_up_seconds.unwrap_or(load.warm_up_seconds.min(0.1));
        load.keyspace = quick.keyspace.or(load.keyspace);
        for entry in &mut self.workloads {
            // The data set of the whole study has another size.
            entry.data = Arc::default();
            if let Some(plan) = &mut entry.vectors {
                plan.count = quick.vector_count.unwrap_or(QUICK_VECTORS).min(plan.count);
                plan.queries = QUICK_QUERIES.min(plan.queries);
            }
        }
        if let Some(connections) = quick.connections {
            load.connections = connections;
        }
        if let Some(sizes) = quick.value_bytes {
            load.value_bytes = sizes;
        }
        if let Some(threads) = quick.io_threads {
            load.io_threads = threads;
        }
    }

    /// Applies the changes that the command line makes to the study, and checks the study again.
    pub fn adapt(&mut self, changes: &Changes<'_>) -> Result<(), BenchError> {
        let Changes { engines, programs, roots, rounds, seconds, seed } = *changes;
        let known = |study: &Study, name: &str| match study.engines.iter().any(|engine| engine.name() == name)
        {
            true => Ok(()),
            false => Err(BenchError::Usage(format!("the study has no engine {name:?}"))),
        };
        let pair = |entry: &str, of: &str| match entry.split_once('=') {
            Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
            None => Err(BenchError::Usage(format!("{entry:?} is not NAME={of}"))),
        };
        for entry in roots {
            let (name, root) = pair(entry, "FOLDER")?;
            known(self, &name)?;
            for engine in self.engines.iter_mut().filter(|engine| engine.name() == name) {
                engine.root = Some(PathBuf::from(&root));
            }
        }
        for entry in programs {
            let (name, program) = pair(entry, "PROGRAM")?;
            known(self, &name)?;
            for start in self.engines.iter_mut().filter(|engine| engine.name() == name) {
                let Some(line) = &mut start.start else { continue };
                let arguments = line.get_ref().trim_start().split_once(' ').map_or("", |(_, rest)| rest);
                *line = Spanned::new(line.span(), format!("{program} {arguments}"));
            }
        }
        for name in engines {
            known(self, name)?;
        }
        if !engines.is_empty() {
            self.engines.retain(|engine| engines.iter().any(|name| name == engine.name()));
            self.baseline = self.baseline.take().filter(|name| engines.contains(name.get_ref()));
        }
        self.seed = seed.or(self.seed);
        if let Some(rounds) = rounds.filter(|rounds| *rounds < self.rounds) {
            self.shortened.push(format!("{rounds} rounds instead of {}", self.rounds));
        }
        self.rounds = rounds.unwrap_or(self.rounds);
        if let Some(seconds) = seconds {
            let load = &mut self.load;
            match load.seconds {
                Some(wanted) if seconds < wanted => {
                    self.shortened.push(format!("runs of {seconds} s instead of {wanted} s"));
                }
                Some(_) => {}
                None => self.requests_replaced = Some(load.requests.unwrap_or(REQUESTS_DEFAULT)),
            }
            (load.requests, load.seconds) = (None, Some(seconds));
            load.warm_up_seconds = load.warm_up_seconds.min(seconds / 4.0);
        }
        self.check().map_err(|mistake| BenchError::Usage(mistake.reason()))
    }

    /// Returns the workloads of the entry at index `at`, with values of `value_bytes` bytes.
    /// Returns a mistake if the entry is invalid.
    pub(super) fn workloads_of_entry(
        &self,
        at: usize,
        value_bytes: usize,
    ) -> Result<Vec<NamedWorkload>, Mistake> {
        let entry = &self.workloads[at];
        let empty = |key: &str| Mistake::of(format!("workload.{at}.{key}"), format!("{key} is empty"));
        if let (Some(plan), None, None) = (&entry.vectors, &entry.tests, &entry.commands) {
            let wrong = |error: BenchError| Mistake::of(format!("workload.{at}.vectors"), error);
            let vectors = plan.vectors().map_err(wrong)?;
            let vectors = entry.data.get_or_init(|| vectors);
            let all = plan.workloads(entry.name.as_deref().unwrap_or_default(), vectors).map_err(wrong)?;
            let named =
                |workload: Workload| NamedWorkload { name: workload.name.clone(), workload, fill: None };
            return Ok(all.into_iter().map(named).collect());
        }
        match (&entry.tests, &entry.commands, &entry.name) {
            _ if entry.vectors.is_some() => {
                let reason = "a [[workload]] with vectors has neither tests nor commands";
                Err(Mistake::of(format!("workload.{at}.vectors"), reason))
            }
            (Some(tests), None, None) if tests.is_empty() => Err(empty("tests")),
            (Some(tests), None, None) => self.default_tests(tests, value_bytes),
            (None, Some(commands), Some(_)) if commands.is_empty() => Err(empty("commands")),
            (None, Some(_), Some(name)) if name.is_empty() => Err(empty("name")),
            (None, Some(commands), Some(name)) => Ok(vec![self.commands(name, commands, value_bytes)?]),
            _ => {
                let reason = "a [[workload]] needs tests, or commands with a name, or vectors";
                Err(Mistake::of(format!("workload.{at}"), reason))
            }
        }
    }

    /// Returns all workloads with values of `value_bytes` bytes. Panics if the study was not
    /// checked with this size.
    pub fn workloads_of(&self, value_bytes: usize) -> Vec<NamedWorkload> {
        let of_entry =
            |at| self.workloads_of_entry(at, value_bytes).expect("the study was checked with each size");
        (0..self.workloads.len()).flat_map(of_entry).collect()
    }

    fn default_tests(
        &self,
        tests: &[Spanned<String>],
        value_bytes: usize,
    ) -> Result<Vec<NamedWorkload>, Mistake> {
        let mut all = Vec::new();
        let options = DefaultTestOptions {
            sizes: Sizes::Fixed(value_bytes),
            keyspace: self.load.keyspace,
            ..DefaultTestOptions::default()
        };
        for test in tests {
            let built = Workload::default_tests(&[test.get_ref()], &options);
            let mut fill = None;
            for workload in built.map_err(|error| Mistake::at(test, error))? {
                // redis-benchmark fills the list of its LRANGE tests with a separate test.
                if workload.name.contains("needed to benchmark") {
                    fill = Some(workload);
                    continue;
                }
                let name = workload.name.split(' ').next().unwrap_or_default().to_owned();
                all.push(NamedWorkload { name, workload, fill: fill.clone() });
            }
        }
        Ok(all)
    }

    fn commands(
        &self,
        name: &str,
        commands: &[Spanned<String>],
        value_bytes: usize,
    ) -> Result<NamedWorkload, Mistake> {
        let options = self.template_options(value_bytes);
        let mut lines = Vec::new();
        for command in commands {
            let text = self.filled_in(command.get_ref(), value_bytes);
            let weighted = text
                .split_once(':')
                .and_then(|(weight, rest)| Some((weight.trim().parse().ok()?, rest.trim().to_owned())));
            let (weight, line) = weighted.unwrap_or((1, text));
            // Each command is parsed alone first, so that a mistake is reported at the position of
            // the command.
            Workload::from_templates(name, &[(weight, &line)], &options)
                .map_err(|error| Mistake::at(command, error))?;
            lines.push((weight, line));
        }
        let lines: Vec<(u32, &str)> = lines.iter().map(|(weight, line)| (*weight, line.as_str())).collect();
        let workload = Workload::from_templates(name, &lines, &options).map_err(Mistake::new)?;
        Ok(NamedWorkload { name: workload.name.clone(), workload, fill: None })
    }

    /// Returns the workload of the preload, with values of `value_bytes` bytes, and its number of
    /// requests; `None` if the study has no preload.
    pub(super) fn preload_workload(&self, value_bytes: usize) -> Result<Option<(Workload, u64)>, Mistake> {
        let Some(preload) = &self.preload else { return Ok(None) };
        let Some(keyspace) = self.load.keyspace else {
            return Err(Mistake::of("preload", "[preload] needs a keyspace in [load]"));
        };
        if !(preload.share > 0.0 && preload.share <= 100.0) {
            let reason = format!("share is {}: it must be above 0 and at most 100", preload.share);
            return Err(Mistake::of("preload.share", reason));
        }
        let requests = (preload.share * keyspace as f64).ceil() as u64;
        let line = self.filled_in(preload.command.get_ref(), value_bytes);
        let workload =
            Workload::from_templates("preload", &[(1, &line)], &self.template_options(value_bytes))
                .map_err(|error| Mistake::at(&preload.command, format!("[preload]: {error}")))?;
        Ok(Some((workload, requests)))
    }

    /// Returns the workload of the preload, with values of `value_bytes` bytes, and its number of
    /// requests; `None` if the study has no preload. Panics if the study was not checked with this
    /// size.
    pub fn preload_of(&self, value_bytes: usize) -> Option<(Workload, u64)> {
        self.preload_workload(value_bytes).expect("the study was checked with each size")
    }

    fn filled_in(&self, line: &str, value_bytes: usize) -> String {
        let keyspace = self.load.keyspace.unwrap_or(1).to_string();
        line.replace("{keyspace}", &keyspace).replace("{value_bytes}", &value_bytes.to_string())
    }

    fn template_options(&self, value_bytes: usize) -> TemplateOptions {
        let keyspace = self.load.keyspace.unwrap_or(1).max(1);
        let keys = Keys { min: 0, max: keyspace - 1, pattern: KeyPattern::Uniform };
        TemplateOptions {
            rand_int_count: self.load.keyspace,
            keys: Some(("memtier-".to_owned(), keys)),
            data: Some(Values::new(Sizes::Fixed(value_bytes), Content::Alphanumeric)),
            ..TemplateOptions::default()
        }
    }
}

impl Engine {
    /// Returns the name by which reports call the engine.
    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// Returns `path` as the engine sees it: without the root directory of the engine, if it has
    /// one.
    pub fn sees(&self, path: &Path) -> PathBuf {
        let within = self.root.as_ref().and_then(|root| path.strip_prefix(root).ok());
        within.map_or_else(|| path.to_owned(), |within| Path::new("/").join(within))
    }

    /// Returns true if the study measures the engine over `transport`.
    pub fn takes(&self, transport: Transport) -> bool {
        self.transports.as_ref().is_none_or(|list| list.contains(&transport))
    }
}

/// A point of measurement: a test under one set of conditions. It has one value of each dimension
/// of the study.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The name of the workload: a test of redis-benchmark, or the name in the study.
    pub test: String,
    /// The transport of the connections to the server.
    pub transport: Transport,
    /// The round trip time of the simulated link, in milliseconds; 0 without a link.
    pub round_trip_ms: u32,
    /// The number of I/O threads that the engine was asked to start.
    pub io_threads: u32,
    /// The size of the values that requests write, in bytes.
    pub value_bytes: usize,
    /// The number of connections of all client threads together.
    pub connections: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "title = 'x'\n[[engine]]\nname = 'a'\nstart = 'redis-server --port {port}'\n\
        [[workload]]\ntests = ['set', 'lrange_100']\n";

    #[test]
    fn a_minimal_study_has_redis_benchmarks_defaults() {
        let study = Study::parse(MINIMAL, Length::Whole).unwrap();
        assert_eq!((study.rounds, study.load.connections.steps()), (3, vec![50]));
        let workloads = study.workloads_of(3);
        let names: Vec<_> = workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, ["SET", "LRANGE_100"]);
        assert!(workloads[0].fill.is_none() && workloads[1].fill.is_some());
    }

    #[test]
    fn quick_puts_its_table_in_place() {
        let text = format!(
            "{MINIMAL}[load]\nseconds = 10.0\nconnections = {{ from = 16, to = 100 }}\n[quick]\nrequests = 7\nio_threads = [1]\n"
        );
        let long = Study::parse(&text, Length::Whole).unwrap();
        assert_eq!(long.load.connections.steps(), [16, 32, 64]);
        assert_eq!(long.load.connections.stop_below_percent(), Some(3.0));
        let quick = Study::parse(&text, Length::Quick).unwrap();
        assert_eq!((quick.load.requests, quick.load.seconds, quick.rounds), (Some(7), None, 2));
    }

    #[test]
    fn commands_get_the_keyspace_and_the_size() {
        let text = "title = 'x'\n[load]\nkeyspace = 10\nvalue_bytes = [16, 64]\n[preload]\n[[engine]]\nname = 'a'\n\
            address = '127.0.0.1:1'\n[[workload]]\nname = 'mix'\n\
            commands = ['1: SET {key gaussian {keyspace}} {value {value_bytes}}', '15: GET {key uniform 10}']\n";
        let study = Study::parse(text, Length::Whole).unwrap();
        let mix = &study.workloads_of(64)[0];
        assert_eq!(mix.workload.command(), "1: SET {key gaussian 10} {value 64}\n15: GET {key uniform 10}");
        let (preload, requests) = study.preload_of(64).unwrap();
        assert_eq!((preload.command().as_str(), requests), ("SET {key sequence 10} {value 64}", 10));
    }

    #[test]
    fn vectors_make_several_workloads_of_one_data_set() {
        let text = "title = 'x'\n[[engine]]\nname = 'a'\naddress = '127.0.0.1:1'\n[[workload]]\n\
            vectors = { data = 'uniform', count = 50000, dimensions = 3, quantization = ['q8', 'bin'] }\n\
            [quick]\nvector_count = 70\n";
        let study = Study::parse(text, Length::Quick).unwrap();
        let all = study.workloads_of(3);
        let names: Vec<_> = all.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "VADD uniform 3 Q8",
                "VSIM uniform 3 Q8 EF 100",
                "VADD uniform 3 BIN",
                "VSIM uniform 3 BIN EF 100"
            ]
        );
        let vectors = |at: usize| all[at].workload.vectors.clone().unwrap().vectors;
        assert_eq!(vectors(0).load().unwrap().rows(), 70);
        let again = study.clone().workloads_of(64)[3].workload.vectors.clone().unwrap().vectors;
        assert!(again.loaded().is_some() && vectors(2).loaded().is_some());
    }

    #[test]
    fn the_shipped_studies_are_studies() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            for length in [Length::Whole, Length::Quick] {
                Study::read(&path, length).unwrap();
            }
            seen += 1;
        }
        assert_eq!(seen, 9);
    }
}
