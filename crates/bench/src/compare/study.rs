//! The study file: which servers, what load, how often. docs/benchmarking.md describes its keys.
//!
//! The file is read strictly: an unknown key, a wrong type or a value that makes no sense is one line with
//! the number of the file's line, before anything is started.

use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::command_line;
use crate::BenchError;
use crate::results::{LinkKind, Transport};
use crate::workload::{
    Content, DefaultTestOptions, KeyPattern, Keys, Sizes, TemplateOptions, Values, Workload,
};

/// Most rounds, connections and the like: beyond it is a slip of the finger.
const COUNT_MAX: u64 = 1_000_000;
/// Rounds of `--quick` where the study does not say.
const QUICK_ROUNDS: u32 = 2;
/// Requests and seconds of a run of `--quick` where the study does not say.
const QUICK_REQUESTS: u64 = 2_000;
const QUICK_SECONDS: f64 = 0.3;

/// A whole study.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Study {
    /// The headline of its reports.
    pub title: String,
    /// What it is for, a few sentences.
    #[serde(default)]
    pub description: String,
    /// How often everything is measured.
    #[serde(default = "default_rounds")]
    pub rounds: u32,
    /// The engine that differences are relative to; the first that runs when absent.
    #[serde(default)]
    pub baseline: Option<Spanned<String>>,
    /// Goes on when engines differ in maxmemory, save or appendonly; the reports say so.
    #[serde(default)]
    pub allow_different_settings: bool,
    /// The load that all workloads share.
    #[serde(default)]
    pub load: Load,
    /// Keys written before anything is measured.
    #[serde(default)]
    pub preload: Option<Preload>,
    /// What `--quick` changes.
    #[serde(default)]
    pub quick: Quick,
    /// The servers.
    #[serde(rename = "engine", default)]
    pub engines: Vec<Engine>,
    /// What is sent.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<WorkloadEntry>,
}

fn default_rounds() -> u32 {
    3
}

/// The load that all workloads share. What is a list is a dimension: everything is measured for each entry.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Load {
    /// Requests of a run.
    pub requests: Option<u64>,
    /// Seconds of a run, instead of `requests`.
    pub seconds: Option<f64>,
    /// Seconds of load before each run that do not count.
    pub warm_up_seconds: f64,
    /// Threads of the load generator.
    pub client_threads: ClientThreads,
    /// Connections, of all threads together unless `connections_per_thread`.
    pub connections: Connections,
    /// Whether `connections` are those of one client thread.
    pub connections_per_thread: bool,
    /// Requests sent ahead of their replies.
    pub pipeline: usize,
    /// 2 or 3.
    pub resp: u8,
    /// The password; engines get it as `{password}`.
    pub password: Option<String>,
    /// Different keys and members.
    pub keyspace: Option<u64>,
    /// Sizes of values.
    pub value_bytes: Vec<usize>,
    /// Ways to the server.
    pub transports: Vec<Transport>,
    /// I/O threads of the engines, as `{threads}`.
    pub io_threads: Vec<u32>,
    /// Round trips of simulated links to the server; 0 is none.
    pub round_trips_ms: Vec<u32>,
    /// How links are simulated: by netem where the kernel permits it, else by a relay, when absent.
    pub link: Option<LinkKind>,
    /// What links carry in each direction.
    pub link_mbit_per_second: Option<f64>,
    /// Requests per second on a schedule.
    pub rate: Option<f64>,
    /// Seconds that an engine may be silent before it is given up.
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

/// Threads of the load generator.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(untagged)]
pub enum ClientThreads {
    /// So many.
    Count(usize),
    /// As many as the engine has I/O threads.
    Named(AsEngine),
}

/// The one word that `client_threads` takes.
#[derive(Clone, Copy, Debug, Deserialize)]
pub enum AsEngine {
    /// As many as the engine has.
    #[serde(rename = "as-engine")]
    AsEngine,
}

impl ClientThreads {
    /// The number beside an engine with `io_threads`.
    pub fn count(self, io_threads: u32) -> usize {
        match self {
            ClientThreads::Count(count) => count,
            ClientThreads::Named(AsEngine::AsEngine) => io_threads as usize,
        }
    }
}

/// How many connections.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Connections {
    /// Each of these.
    List(Vec<usize>),
    /// Doubling until the rate stops rising.
    Rising(Rising),
}

/// Connections that double.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rising {
    /// The first number.
    pub from: usize,
    /// The last number at most.
    pub to: usize,
    /// A step that raises the rate by less ends it.
    #[serde(default = "default_stop_below")]
    pub stop_below_percent: f64,
}

fn default_stop_below() -> f64 {
    3.0
}

impl Connections {
    /// The numbers in order.
    pub fn steps(&self) -> Vec<usize> {
        match self {
            Connections::List(list) => list.clone(),
            Connections::Rising(rising) => std::iter::successors(Some(rising.from), |count| Some(count * 2))
                .take_while(|count| *count <= rising.to)
                .collect(),
        }
    }

    /// The gain of the rate in percent below which a step is the last.
    pub fn stop_below_percent(&self) -> Option<f64> {
        match self {
            Connections::List(_) => None,
            Connections::Rising(rising) => Some(rising.stop_below_percent),
        }
    }
}

/// Keys written into an engine right after its start. From its growth comes the memory per key.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preload {
    /// How many requests, as a share of the keyspace: below 1 some reads will miss.
    #[serde(default = "default_share")]
    pub share: f64,
    /// The command; `{keyspace}` and `{value_bytes}` stand for the study's.
    #[serde(default = "default_preload")]
    pub command: Spanned<String>,
}

fn default_share() -> f64 {
    1.0
}

fn default_preload() -> Spanned<String> {
    Spanned::new(0..0, "SET {key sequence {keyspace}} {value {value_bytes}}".to_owned())
}

/// What `--quick` puts in place of the study's.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quick {
    rounds: Option<u32>,
    requests: Option<u64>,
    seconds: Option<f64>,
    warm_up_seconds: Option<f64>,
    keyspace: Option<u64>,
    connections: Option<Connections>,
    value_bytes: Option<Vec<usize>>,
    io_threads: Option<Vec<u32>>,
}

/// A server to measure.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Engine {
    /// What reports call it.
    pub name: Spanned<String>,
    /// The command line that starts it, with placeholders.
    #[serde(default)]
    pub start: Option<Spanned<String>>,
    /// What `start` gets in addition where TLS is measured, with `{tls_port}`, `{cert}` and `{key}`.
    #[serde(default)]
    pub tls_options: Option<Spanned<String>>,
    /// Where one runs already, `host:port` or the path of a socket.
    #[serde(default)]
    pub address: Option<Spanned<String>>,
    /// The folder that it has as its root, where it runs in a chroot or a container: its scratch folder is
    /// made there, and it is told paths as it sees them.
    #[serde(default)]
    pub root: Option<PathBuf>,
    /// What its version must begin with.
    #[serde(default)]
    pub expect_version: Option<String>,
    /// Ways to reach it, where not all; others are left out with a line.
    #[serde(default)]
    pub transports: Option<Vec<Transport>>,
    /// Seconds that it may take to start.
    #[serde(default = "default_ready_within")]
    pub ready_within_seconds: f64,
}

fn default_ready_within() -> f64 {
    30.0
}

/// What is sent: tests of redis-benchmark, or commands.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WorkloadEntry {
    /// Names of redis-benchmark's tests.
    #[serde(default)]
    pub tests: Option<Vec<Spanned<String>>>,
    /// What reports call the commands.
    #[serde(default)]
    pub name: Option<String>,
    /// Commands, each with a weight and a colon ahead of it if that is not 1.
    #[serde(default)]
    pub commands: Option<Vec<Spanned<String>>>,
}

/// A workload as a study runs it.
#[derive(Clone, Debug)]
pub struct NamedWorkload {
    /// What reports call it: `LRANGE_100`.
    pub name: String,
    /// What is sent.
    pub workload: Workload,
    /// Sent before it and not measured.
    pub fill: Option<Workload>,
}

/// A mistake in a study file.
#[derive(Debug, PartialEq)]
struct Mistake {
    /// Bytes of the file that it is about, where known.
    span: Option<Range<usize>>,
    reason: String,
}

impl Mistake {
    fn new(reason: impl fmt::Display) -> Self {
        Self { span: None, reason: reason.to_string() }
    }

    fn at<T>(spanned: &Spanned<T>, reason: impl fmt::Display) -> Self {
        let span = Some(spanned.span()).filter(|span| !span.is_empty());
        Self { span, reason: reason.to_string() }
    }
}

impl Study {
    /// Reads the study in `path`, shortened when `quick`.
    pub fn read(path: &Path, quick: bool) -> Result<Study, BenchError> {
        let unreadable = |error| BenchError::Usage(format!("cannot read {}: {error}", path.display()));
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Self::parse(&text, quick).map_err(|(line, reason)| {
            let at = line.map_or_else(String::new, |line| format!(":{line}"));
            BenchError::Usage(format!("{}{at}: {reason}", path.display()))
        })
    }

    /// Parses a study. An error is the number of the line, where known, and the reason.
    pub fn parse(text: &str, quick: bool) -> Result<Study, (Option<usize>, String)> {
        let located = |mistake: Mistake| {
            let line = mistake.span.map(|span| line_of(text, span.start));
            (line, mistake.reason)
        };
        let parsed: Result<Study, toml::de::Error> = toml::from_str(text);
        let mut study = parsed.map_err(|error| {
            let reason = error.message().lines().next().unwrap_or("not a study").to_owned();
            located(Mistake { span: error.span(), reason })
        })?;
        if quick {
            study.shorten();
        }
        study.check().map_err(located)?;
        Ok(study)
    }

    /// Puts `[quick]` in place.
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

    /// Puts what the command line says in place: only `engines` of it unless empty, `programs` as
    /// NAME=PROGRAM, `roots` as NAME=FOLDER, and the rounds.
    pub fn adapt(
        &mut self,
        engines: &[String],
        (programs, roots): (&[String], &[String]),
        rounds: Option<u32>,
    ) -> Result<(), BenchError> {
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
        self.rounds = rounds.unwrap_or(self.rounds);
        self.check().map_err(|mistake| BenchError::Usage(mistake.reason))
    }

    /// What the types do not say by themselves.
    fn check(&self) -> Result<(), Mistake> {
        let load = &self.load;
        let count = |name: &str, count: u64| match count {
            1..=COUNT_MAX => Ok(()),
            _ => Err(Mistake::new(format!("{name} is {count}: it must be 1 to {COUNT_MAX}"))),
        };
        count("rounds", self.rounds.into())?;
        count("pipeline", load.pipeline as u64)?;
        if let ClientThreads::Count(threads) = load.client_threads {
            count("client_threads", threads as u64)?;
        }
        let steps = load.connections.steps();
        let lists = [
            ("connections", steps.len()),
            ("value_bytes", load.value_bytes.len()),
            ("transports", load.transports.len()),
            ("io_threads", load.io_threads.len()),
            ("round_trips_ms", load.round_trips_ms.len()),
        ];
        if let Some((name, _)) = lists.iter().find(|(_, entries)| *entries == 0) {
            return Err(Mistake::new(format!("{name} is empty: nothing would be measured")));
        }
        for connections in steps {
            count("connections", connections as u64)?;
        }
        for threads in &load.io_threads {
            count("io_threads", u64::from(*threads))?;
        }
        if load.requests.is_some() && load.seconds.is_some() {
            return Err(Mistake::new("requests and seconds exclude each other"));
        }
        if load.requests == Some(0) {
            return Err(Mistake::new("requests is 0: nothing would be measured"));
        }
        let seconds = |name: &str, value: f64, min: f64| match value.is_finite() && value >= min {
            true => Ok(()),
            false => Err(Mistake::new(format!("{name} is {value}: it must be at least {min}"))),
        };
        seconds("seconds", load.seconds.unwrap_or(1.0), 0.01)?;
        seconds("warm_up_seconds", load.warm_up_seconds, 0.0)?;
        seconds("reply_within_seconds", load.reply_within_seconds, 0.01)?;
        for engine in &self.engines {
            seconds("ready_within_seconds", engine.ready_within_seconds, 0.01)?;
        }
        seconds("rate", load.rate.unwrap_or(1.0), 0.1)?;
        if !matches!(load.resp, 2 | 3) {
            return Err(Mistake::new(format!("resp is {}: it is 2 or 3", load.resp)));
        }
        self.check_engines()?;
        self.check_workloads()
    }

    fn check_engines(&self) -> Result<(), Mistake> {
        if self.engines.is_empty() {
            return Err(Mistake::new("no [[engine]]: nothing would be measured"));
        }
        for (at, engine) in self.engines.iter().enumerate() {
            let name = engine.name();
            if name.is_empty() || self.engines[..at].iter().any(|other| other.name() == name) {
                return Err(Mistake::at(
                    &engine.name,
                    format!("engine {name:?}: names are unique and not empty"),
                ));
            }
            if let Some(options) = &engine.tls_options {
                command_line::check(options.get_ref())
                    .map_err(|reason| Mistake::at(options, format!("engine {name:?}: {reason}")))?;
            }
            match (&engine.start, &engine.address) {
                (Some(start), None) => {
                    command_line::check(start.get_ref())
                        .map_err(|reason| Mistake::at(start, format!("engine {name:?}: {reason}")))?;
                }
                (None, Some(address)) if address.get_ref().is_empty() => {
                    return Err(Mistake::at(address, format!("engine {name:?}: address is empty")));
                }
                (None, Some(_)) => {}
                _ => {
                    let reason = format!("engine {name:?} needs either start or address");
                    return Err(Mistake::at(&engine.name, reason));
                }
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
        let mut names: Vec<String> = Vec::new();
        for workload in self.workloads(self.load.value_bytes[0])? {
            if names.contains(&workload.name) {
                return Err(Mistake::new(format!("two workloads are called {:?}", workload.name)));
            }
            names.push(workload.name);
        }
        self.preload_workload(self.load.value_bytes[0])?;
        Ok(())
    }

    /// The workloads in order, with values of `value_bytes`.
    fn workloads(&self, value_bytes: usize) -> Result<Vec<NamedWorkload>, Mistake> {
        let mut all = Vec::new();
        for entry in &self.workloads {
            match (&entry.tests, &entry.commands) {
                (Some(tests), None) if entry.name.is_none() => {
                    self.default_tests(tests, value_bytes, &mut all)?
                }
                (None, Some(commands)) => all.push(self.commands(entry, commands, value_bytes)?),
                _ => {
                    let reason = "a [[workload]] has either tests, or commands with a name";
                    return Err(Mistake::new(reason));
                }
            }
        }
        Ok(all)
    }

    /// The workloads of a checked study.
    pub fn workloads_of(&self, value_bytes: usize) -> Vec<NamedWorkload> {
        self.workloads(value_bytes).expect("the study was checked with another size")
    }

    fn default_tests(
        &self,
        tests: &[Spanned<String>],
        value_bytes: usize,
        all: &mut Vec<NamedWorkload>,
    ) -> Result<(), Mistake> {
        let options = DefaultTestOptions {
            sizes: Sizes::Fixed(value_bytes),
            keyspace: self.load.keyspace,
            ..DefaultTestOptions::default()
        };
        for test in tests {
            let built = Workload::default_tests(&[test.get_ref()], &options);
            let mut fill = None;
            for workload in built.map_err(|error| Mistake::at(test, error))? {
                // redis-benchmark fills the list of its LRANGE tests by a test of its own.
                if workload.name.contains("needed to benchmark") {
                    fill = Some(workload);
                    continue;
                }
                let name = workload.name.split(' ').next().unwrap_or_default().to_owned();
                all.push(NamedWorkload { name, workload, fill: fill.clone() });
            }
        }
        Ok(())
    }

    fn commands(
        &self,
        entry: &WorkloadEntry,
        commands: &[Spanned<String>],
        value_bytes: usize,
    ) -> Result<NamedWorkload, Mistake> {
        let Some(first) = commands.first() else {
            return Err(Mistake::new("commands is empty: nothing would be sent"));
        };
        let mut lines = Vec::new();
        for command in commands {
            let text = self.filled_in(command.get_ref(), value_bytes);
            let weighted = text
                .split_once(':')
                .and_then(|(weight, rest)| Some((weight.trim().parse().ok()?, rest.trim().to_owned())));
            lines.push(weighted.unwrap_or((1, text)));
        }
        let lines: Vec<(u32, &str)> = lines.iter().map(|(weight, line)| (*weight, line.as_str())).collect();
        let name = entry.name.clone().unwrap_or_default();
        let workload = Workload::from_templates(&name, &lines, &self.template_options(value_bytes))
            .map_err(|error| Mistake::at(first, error))?;
        Ok(NamedWorkload { name: workload.name.clone(), workload, fill: None })
    }

    /// What is sent before anything is measured, and how often.
    fn preload_workload(&self, value_bytes: usize) -> Result<Option<(Workload, u64)>, Mistake> {
        let Some(preload) = &self.preload else { return Ok(None) };
        let Some(keyspace) = self.load.keyspace else {
            return Err(Mistake::new("[preload] needs a keyspace in [load]"));
        };
        if !(preload.share > 0.0 && preload.share <= 100.0) {
            return Err(Mistake::new(format!("[preload] share is {}: it is above 0", preload.share)));
        }
        let requests = (preload.share * keyspace as f64).ceil() as u64;
        let line = self.filled_in(preload.command.get_ref(), value_bytes);
        let workload =
            Workload::from_templates("preload", &[(1, &line)], &self.template_options(value_bytes))
                .map_err(|error| Mistake::at(&preload.command, format!("[preload]: {error}")))?;
        Ok(Some((workload, requests)))
    }

    /// The preload of a checked study and how many requests it is.
    pub fn preload_of(&self, value_bytes: usize) -> Option<(Workload, u64)> {
        self.preload_workload(value_bytes).expect("the study was checked with another size")
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
    /// What reports call it.
    pub fn name(&self) -> &str {
        self.name.get_ref()
    }

    /// A path of this machine as the engine sees it.
    pub fn sees(&self, path: &Path) -> PathBuf {
        let within = self.root.as_ref().and_then(|root| path.strip_prefix(root).ok());
        within.map_or_else(|| path.to_owned(), |within| Path::new("/").join(within))
    }

    /// Whether it is to be measured over `transport`.
    pub fn takes(&self, transport: Transport) -> bool {
        self.transports.as_ref().is_none_or(|list| list.contains(&transport))
    }
}

/// Where in the space of dimensions a cell lies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The workload's name.
    pub test: String,
    /// The way to the server.
    pub transport: Transport,
    /// Round trip of the simulated link; 0 without one.
    pub round_trip_ms: u32,
    /// I/O threads asked of the engine.
    pub io_threads: u32,
    /// Size of values.
    pub value_bytes: usize,
    /// Connections of all client threads together.
    pub connections: usize,
}

/// The number, from 1, of the line that holds byte `at`.
fn line_of(text: &str, at: usize) -> usize {
    text.as_bytes()[..at.min(text.len())].iter().filter(|byte| **byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = "title = 'x'\n[[engine]]\nname = 'a'\nstart = 'redis-server --port {port}'\n\
        [[workload]]\ntests = ['set', 'lrange_100']\n";

    fn mistake(text: &str) -> (Option<usize>, String) {
        Study::parse(text, false).unwrap_err()
    }

    #[test]
    fn a_minimal_study_has_redis_benchmarks_defaults() {
        let study = Study::parse(MINIMAL, false).unwrap();
        assert_eq!((study.rounds, study.load.connections.steps()), (3, vec![50]));
        let workloads = study.workloads_of(3);
        let names: Vec<_> = workloads.iter().map(|workload| workload.name.as_str()).collect();
        assert_eq!(names, ["SET", "LRANGE_100"]);
        assert!(workloads[0].fill.is_none() && workloads[1].fill.is_some());
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        let cases = [
            ("title = 'x'\nround = 3\n", Some(2), "unknown field `round`"),
            ("title = 3\n", Some(1), "invalid type"),
            ("title = \n", Some(1), ""),
            ("title = 'x'\n", None, "no [[engine]]"),
            ("title = 'x'\n[load]\ntransports = ['udp']\n", Some(3), "unknown variant `udp`"),
            ("title = 'x'\n[[engine]]\nname = 'a'\n", Some(3), "either start or address"),
            ("title = 'x'\n[[engine]]\nname = 'a'\nstart = 'x {prot}'\n", Some(4), "{prot}"),
            ("title = 'x'\nbaseline = 'b'\n[[engine]]\nname = 'a'\naddress = 'h:1'\n", Some(2), "no engine"),
        ];
        for (text, line, words) in cases {
            let (at, reason) = mistake(text);
            assert_eq!(at, line, "{text}: {reason}");
            assert!(reason.contains(words) && reason.lines().count() == 1, "{text}: {reason}");
        }
    }

    #[test]
    fn an_unknown_test_is_told_with_its_line() {
        let (line, reason) = mistake(&MINIMAL.replace("'set'", "'sett'"));
        assert_eq!(line, Some(6));
        assert!(reason.contains("sett"), "{reason}");
    }

    #[test]
    fn a_study_that_measures_nothing_is_refused() {
        for load in ["connections = []", "requests = 0", "seconds = 0.0", "rounds = 1", "pipeline = 0"] {
            assert!(Study::parse(&format!("{MINIMAL}[load]\n{load}\n"), false).is_err(), "{load}");
        }
        assert!(Study::parse(&format!("rounds = 0\n{MINIMAL}"), false).is_err());
    }

    #[test]
    fn quick_puts_its_table_in_place() {
        let text = format!(
            "{MINIMAL}[load]\nseconds = 10.0\nconnections = {{ from = 16, to = 100 }}\n[quick]\nrequests = 7\nio_threads = [1]\n"
        );
        let long = Study::parse(&text, false).unwrap();
        assert_eq!(long.load.connections.steps(), [16, 32, 64]);
        assert_eq!(long.load.connections.stop_below_percent(), Some(3.0));
        let quick = Study::parse(&text, true).unwrap();
        assert_eq!((quick.load.requests, quick.load.seconds, quick.rounds), (Some(7), None, 2));
    }

    #[test]
    fn commands_get_the_keyspace_and_the_size() {
        let text = "title = 'x'\n[load]\nkeyspace = 10\nvalue_bytes = [16, 64]\n[preload]\n[[engine]]\nname = 'a'\n\
            address = '127.0.0.1:1'\n[[workload]]\nname = 'mix'\n\
            commands = ['1: SET {key gaussian {keyspace}} {value {value_bytes}}', '15: GET {key uniform 10}']\n";
        let study = Study::parse(text, false).unwrap();
        let mix = &study.workloads_of(64)[0];
        assert_eq!(mix.workload.command(), "1: SET {key gaussian 10} {value 64}\n15: GET {key uniform 10}");
        let (preload, requests) = study.preload_of(64).unwrap();
        assert_eq!((preload.command().as_str(), requests), ("SET {key sequence 10} {value 64}", 10));
    }

    #[test]
    fn the_shipped_studies_are_studies() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../studies");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            for quick in [false, true] {
                Study::read(&path, quick).unwrap();
            }
            seen += 1;
        }
        assert_eq!(seen, 5);
    }
}
