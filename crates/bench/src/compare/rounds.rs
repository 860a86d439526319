//! The run of a study: measures every engine at every point, round after round.
//!
//! ```text
//!   for each link, number of I/O threads, size of values:    engines start, preload, are checked
//!     for each number of connections:
//!       for each round:                                      engines are emptied, unless preloaded
//!         for each workload and transport:
//!           for each engine (the first rotates by round):    one run
//! ```
//! Runs that are compared are thus close in time, and no engine is always the first. If the speed
//! of the machine changes, all engines are affected alike. All engines of a group are alive while
//! one of them is measured: an idle server costs memory, but no CPU time.
//!
//! If an engine ends or stops answering, its remaining cells in the group fail. It is started again
//! for the next group. Its earlier results are kept.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use resp::Value;

use super::engine::{Certificate, Environment, Running, differences};
use super::network::{Link, Wanted};
use super::outcome::{Cell, EngineFacts, KeyMemory, Machine, Metric, Outcome};
use super::relay::Relay;
use super::study::{Engine, Length, NamedWorkload, Point, REQUESTS_DEFAULT, Study};
use super::{command_line, stats};
use crate::BenchError;
use crate::interrupt::Interrupt;
use crate::results::{ClientBound, Ending, LinkKind, LinkUse, RunResult, Transport};
use crate::spec::{Limit, Load, RunSpec, Target, Watch};
use crate::workload::{Workload, fresh_seed};

/// The number of connections that send unmeasured requests: the preload, and the elements of the
/// list for the LRANGE tests. `FILL_PIPELINE` is their pipeline depth.
const FILL_CONNECTIONS: usize = 8;
const FILL_PIPELINE: usize = 16;
/// The number of elements pushed to the list for the LRANGE tests, which read at most 600 of them.
const LIST_FILL_REQUESTS: u64 = 1_000;
/// The ratio of CPU time to wall time from which a relay counts as the bottleneck.
const RELAY_BUSY_MIN: f64 = 0.9;

/// A study in progress: its settings and the results measured so far.
pub struct Runner<'a> {
    study: &'a Study,
    interrupt: Interrupt,
    /// The function that writes the results measured so far to a file.
    save: &'a dyn Fn(&Outcome),
    outcome: Outcome,
    /// The errors that have occurred in the study so far, one line each.
    problems: Vec<String>,
    runs_done: usize,
    /// The number of points of measurement completed so far, counted again in each round. The runs
    /// of all engines at a point in one round count as one.
    points_done: u64,
    /// The engines that have ended or stopped replying since the engines of the current group were
    /// started: the index in the group and the name.
    gone: Vec<(usize, String)>,
    /// The certificate for TLS; `None` if the study does not measure TLS.
    certificate: Option<Certificate>,
}

/// The settings that all engines share while they run. The engines are started anew for each group.
#[derive(Clone, Copy)]
struct Group {
    round_trip_ms: u32,
    io_threads: u32,
    value_bytes: usize,
    /// True for the first group that the study measures.
    is_first: bool,
}

/// One round of measurements of a group with one number of connections, while the engines run with
/// the settings of one group.
struct Step<'a> {
    group: Group,
    connections: usize,
    workloads: &'a [NamedWorkload],
    /// The series that are no longer measured in this group, because their rate has stopped rising.
    at_their_limit: &'a [Series],
}

/// The key of a series of runs with rising connections in a group: the engine, the test and the
/// transport.
type Series = (String, String, Transport);

impl<'a> Runner<'a> {
    /// Creates a runner of `study`. The runner ends early once `interrupt` is set. It calls `save`
    /// each time it has finished all rounds with one number of connections.
    pub fn new(study: &'a Study, length: Length, interrupt: Interrupt, save: &'a dyn Fn(&Outcome)) -> Self {
        let started = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let outcome = Outcome {
            title: study.title.clone(),
            description: study.description.trim().to_owned(),
            started_unix_ms: u64::try_from(started.as_millis()).unwrap_or(0),
            rounds: study.rounds,
            quick: length == Length::Quick,
            rising_connections: study.load.connections.stop_below_percent().is_some(),
            baseline: String::new(),
            machine: Machine::this(),
            engines: study.engines.iter().map(facts_before).collect(),
            notes: Vec::new(),
            cells: Vec::new(),
            memory: Vec::new(),
            links: BTreeMap::new(),
            seed: Some(study.seed.unwrap_or_else(fresh_seed)),
            shortened: study.shortened.clone(),
        };
        Self {
            study,
            interrupt,
            save,
            outcome,
            problems: Vec::new(),
            runs_done: 0,
            points_done: 0,
            gone: Vec::new(),
            certificate: None,
        }
    }

    /// Runs the study to its end. Returns the outcome and the errors, one line each.
    pub fn run(mut self) -> (Outcome, Vec<String>) {
        self.find_programs();
        if let Some(reason) = self.nothing_to_compare() {
            self.problems.push(reason);
            return (self.outcome, self.problems);
        }
        let load = &self.study.load;
        let mut is_first = true;
        'groups: for (number, &round_trip_ms) in load.round_trips_ms.iter().enumerate() {
            let link = match self.link(number, round_trip_ms) {
                Ok(link) => link,
                Err(reason) => {
                    self.note(format!("the {round_trip_ms} ms link is skipped: {reason}"));
                    continue;
                }
            };
            for &io_threads in &load.io_threads {
                for &value_bytes in &load.value_bytes {
                    if self.is_over() {
                        break 'groups;
                    }
                    let group = Group { round_trip_ms, io_threads, value_bytes, is_first };
                    if let Err(reason) = self.group(group, link.as_ref()) {
                        self.problems.push(reason);
                        break 'groups;
                    }
                    is_first = false;
                }
            }
        }
        if self.is_over() {
            self.note("the study was interrupted: the results are those measured before".to_owned());
        }
        self.choose_baseline();
        self.note_short_runs();
        (self.outcome, self.problems)
    }

    /// Returns the reason why the study cannot run: no engine is available, only one of several
    /// engines is available, or the baseline is not. Returns `None` if the study can run.
    fn nothing_to_compare(&self) -> Option<String> {
        let left_out = |facts: &&EngineFacts| facts.left_out.is_some();
        let missing = |facts: &EngineFacts| {
            let (name, reason) = (&facts.name, facts.left_out.as_deref().unwrap_or_default());
            format!("{name} is skipped ({reason}); set its program with --program {name}=PATH")
        };
        let there: Vec<&str> = self.outcome.measured().map(|facts| facts.name.as_str()).collect();
        let mut absent = self.outcome.engines.iter().filter(left_out);
        match there[..] {
            [] => Some("nothing was measured: no engine of the study is available".to_owned()),
            [only] if self.outcome.engines.len() > 1 => Some(format!(
                "there is no engine to compare {only} with: {}; to measure {only} alone, use --engines {only}",
                missing(absent.next()?)
            )),
            _ => {
                let baseline = self.study.baseline.as_ref()?.get_ref();
                let facts = absent.find(|facts| facts.name == *baseline)?;
                Some(format!(
                    "the baseline {}; to measure without it, use --engines {}",
                    missing(facts),
                    there.join(",")
                ))
            }
        }
    }

    /// Chooses the engine that differences are relative to: the study's baseline, or else the first
    /// engine with results.
    fn choose_baseline(&mut self) {
        let has_figures = |name: &&String| {
            self.outcome.cells.iter().any(|cell| cell.engine == **name && !cell.rounds.is_empty())
        };
        let wanted = self.study.baseline.as_ref().map(|name| name.get_ref().clone());
        let names: Vec<String> = self.outcome.measured().map(|engine| engine.name.clone()).collect();
        let baseline = wanted.iter().chain(&names).find(has_figures).cloned().unwrap_or_default();
        match wanted.filter(|wanted| *wanted != baseline) {
            _ if baseline.is_empty() && self.problems.is_empty() => {
                self.problems.push("nothing was measured".to_owned());
            }
            Some(wanted) if !baseline.is_empty() => {
                self.fail(format!(
                    "the baseline {wanted} was not measured: differences are relative to {baseline} instead"
                ));
            }
            _ => {}
        }
        self.outcome.baseline = baseline;
    }

    /// Records in the outcome that runs had fewer requests than the study asks for. The reason is
    /// that the command line replaced the number of requests by a duration.
    fn note_short_runs(&mut self) {
        let Some(requests) = self.study.requests_replaced else { return };
        let runs = self.outcome.cells.iter().flat_map(|cell| &cell.rounds);
        if let Some(least) = runs.map(|run| run.requests).min().filter(|least| *least < requests) {
            self.outcome.shortened.push(format!("runs of {least} requests or more instead of {requests}"));
        }
    }

    fn is_over(&self) -> bool {
        self.interrupt.is_set()
    }

    /// Prints a line on standard error and adds it to the notes of the reports. A line that is
    /// already in the notes is ignored.
    fn note(&mut self, line: String) {
        if !self.outcome.notes.contains(&line) {
            eprintln!("{line}");
            self.outcome.notes.push(line);
        }
    }

    /// Leaves out engines that are not installed, and creates the TLS certificate if the study
    /// measures TLS.
    fn find_programs(&mut self) {
        for (at, engine) in self.study.engines.iter().enumerate() {
            let Some(line) = &engine.start else { continue };
            let program = line.get_ref().split_whitespace().next().unwrap_or_default().to_owned();
            if command_line::find_program(&program).is_none() {
                let reason = format!("{program} is not installed");
                self.note(format!("{}: {reason}: skipped", engine.name()));
                self.outcome.engines[at].left_out = Some(reason);
            }
        }
        if self.study.load.transports.contains(&Transport::Tls) {
            match Certificate::make() {
                Ok(certificate) => self.certificate = Some(certificate),
                Err(reason) => self.note(format!("TLS is skipped: cannot create a certificate: {reason}")),
            }
        }
    }

    fn link(&mut self, number: usize, round_trip_ms: u32) -> Result<Option<Link>, String> {
        if round_trip_ms == 0 {
            return Ok(None);
        }
        let load = &self.study.load;
        let wanted = Wanted { kind: load.link, round_trip_ms, mbit_per_second: load.link_mbit_per_second };
        let (link, instead) = Link::make(u8::try_from(number).unwrap_or(u8::MAX), &wanted, &self.interrupt)?;
        if let Some(reason) = instead {
            self.note(format!(
                "{round_trip_ms} ms link: uses a relay, because netem is not available: {reason}"
            ));
        }
        self.outcome.links.insert(round_trip_ms, link.kind());
        Ok(Some(link))
    }

    /// Starts the engines with the settings of `group`, and measures them with each number of
    /// connections.
    fn group(&mut self, group: Group, link: Option<&Link>) -> Result<(), String> {
        let mut engines = Vec::new();
        self.gone.clear();
        for (at, engine) in self.study.engines.iter().enumerate() {
            if self.outcome.engines[at].left_out.is_some() {
                continue;
            }
            if engine.start.is_none() && !group.is_first {
                self.note(format!(
                    "{} was already running: it is measured with its present settings, but not with other \
                     links, threads and sizes",
                    engine.name()
                ));
                continue;
            }
            if self.is_over() {
                return Ok(());
            }
            match self.start(at, engine, group, link) {
                Ok(running) => engines.push(Some(running)),
                Err(_) if self.is_over() => return Ok(()),
                Err(reason) => self.fail(format!("{}: {reason}", engine.name())),
            }
        }
        self.check_settings()?;
        let workloads = self.study.workloads_of(group.value_bytes);
        let mut at_their_limit: Vec<Series> = Vec::new();
        let steps = self.study.load.connections.steps();
        for (at, &connections) in steps.iter().enumerate() {
            for round in 0..self.study.rounds as usize {
                self.empty(&mut engines);
                let step =
                    Step { group, connections, workloads: &workloads, at_their_limit: &at_their_limit };
                self.round(round, &step, &mut engines);
                if self.is_over() {
                    // The results are saved before the engines are stopped: engines may take long
                    // to end, and a second Ctrl-C does not wait for them.
                    (self.save)(&self.outcome);
                    return Ok(());
                }
            }
            if let Some(percent) = self.study.load.connections.stop_below_percent() {
                self.find_limits(percent, group, &steps[..=at], &mut at_their_limit);
            }
            (self.save)(&self.outcome);
        }
        Ok(())
    }

    fn fail(&mut self, line: String) {
        self.note(line.clone());
        self.problems.push(line);
    }

    /// Starts an engine, reads its version and settings, and writes the keys of the preload into
    /// it.
    fn start(
        &mut self,
        at: usize,
        engine: &Engine,
        group: Group,
        link: Option<&Link>,
    ) -> Result<Running, String> {
        let around = Environment { link, certificate: self.certificate.as_ref(), interrupt: &self.interrupt };
        let start = |around| Running::start(self.study, engine, group.io_threads, around);
        let running = match start(around) {
            Err(reason)
                if around.certificate.is_some() && engine.tls_options.is_some() && !self.is_over() =>
            {
                // An engine that was built without TLS is measured without it.
                let running = start(Environment { certificate: None, ..around })?;
                self.note(format!("{}: does not start with its tls_options: {reason}", engine.name()));
                running
            }
            running => running?,
        };
        let facts = running.facts(engine)?;
        let threads = facts.settings.get("io-threads");
        if let Some(threads) = threads
            .filter(|threads| running.is_started_by_study() && **threads != group.io_threads.to_string())
        {
            self.note(format!(
                "{} reports io-threads {threads} instead of {}",
                engine.name(),
                group.io_threads
            ));
        }
        if self.outcome.engines[at].version.is_empty() {
            eprintln!("{} {}: {}", facts.name, facts.version, facts.start);
            self.outcome.engines[at] = facts;
        }
        self.preload(&running, group)?;
        Ok(running)
    }

    fn preload(&mut self, running: &Running, group: Group) -> Result<(), String> {
        let Some((workload, requests)) = self.study.preload_of(group.value_bytes) else { return Ok(()) };
        eprintln!("{}: preloading with {requests} requests of {}", running.name, workload.command());
        let transport = self.study.load.transports.iter().copied().find(|way| *way != Transport::Tls);
        let target = running.target(transport.unwrap_or(Transport::Tcp), self.study.load.resp)?;
        let lost = |error: std::io::Error| format!("the connection was lost: {error}");
        let keys = |running: &Running| running.control()?.ask_integer(&["DBSIZE"]);
        let before = (running.rss_bytes(), keys(running).map_err(lost)?);
        let result = self.fill(workload, requests, target).map_err(|error| error.to_string())?;
        if let Ending::Failed(reason) = result.ending {
            return Err(format!("preload: {reason}"));
        }
        if let Some(error) = result.first_error {
            return Err(format!("preload: {error}"));
        }
        let after = (running.rss_bytes(), keys(running).map_err(lost)?);
        if let ((Some(rss_before), Some(keys_before)), (Some(rss), Some(keys))) = (before, after)
            && keys > keys_before
        {
            let keys = keys.abs_diff(keys_before);
            self.outcome.memory.push(KeyMemory {
                engine: running.name.clone(),
                io_threads: group.io_threads,
                value_bytes: group.value_bytes,
                keys,
                bytes_per_key: rss.saturating_sub(rss_before) as f64 / keys as f64,
            });
        }
        Ok(())
    }

    /// Sends `requests` requests of `workload` to `target` without measuring them: a preload, or
    /// the list of the LRANGE tests.
    fn fill(&self, workload: Workload, requests: u64, target: Target) -> Result<RunResult, BenchError> {
        let load = Load {
            connections: FILL_CONNECTIONS,
            pipeline: FILL_PIPELINE,
            limit: Limit::Requests(requests),
            seed: self.seed(),
            reply_within: self.reply_within(),
            ..Load::default()
        };
        let watch = Watch { progress: true, interrupt: Some(self.interrupt.flag()), ..Watch::default() };
        crate::run(&RunSpec { target, workload, load, watch })
    }

    /// Returns an error if the engines differ in an option that must be equal. If the study allows
    /// different settings, notes the differences instead.
    fn check_settings(&mut self) -> Result<(), String> {
        let known: Vec<EngineFacts> = self.outcome.measured().cloned().collect();
        for line in differences(&known) {
            if !self.study.allow_different_settings {
                return Err(format!("{line}; to measure anyway, set allow_different_settings = true"));
            }
            self.note(line);
        }
        Ok(())
    }

    /// Deletes all data of the engines, so that lists do not grow from round to round. Does nothing
    /// if the study has a preload. An engine that this program did not start keeps its data, which
    /// belongs to the user.
    fn empty(&mut self, engines: &mut [Option<Running>]) {
        if self.study.preload.is_some() {
            return;
        }
        for running in engines.iter_mut().flatten().filter(|running| running.is_started_by_study()) {
            // If an engine does not reply, its next run reports that.
            let emptied = running.control().and_then(|mut control| control.ask(&["FLUSHALL"]));
            if let Ok(Value::Error(reason)) = emptied {
                self.note(format!("{}: FLUSHALL: {}", running.name, String::from_utf8_lossy(&reason)));
            }
        }
    }

    fn round(&mut self, round: usize, step: &Step<'_>, engines: &mut [Option<Running>]) {
        let Step { group, connections, workloads, at_their_limit } = *step;
        let load = &self.study.load;
        let per_thread = load.connections_per_thread;
        let all = connections * if per_thread { load.client_threads.count(group.io_threads) } else { 1 };
        for workload in workloads {
            for transport in load.transports.iter().copied() {
                if transport == Transport::Tls && self.certificate.is_none() {
                    continue;
                }
                let point = Point {
                    test: workload.name.clone(),
                    transport,
                    round_trip_ms: group.round_trip_ms,
                    io_threads: group.io_threads,
                    value_bytes: group.value_bytes,
                    connections: all,
                };
                self.points_done += 1;
                for turn in 0..engines.len() {
                    let slot = (turn + round) % engines.len();
                    let Some(running) = &mut engines[slot] else {
                        self.mark_failed(slot, &point);
                        continue;
                    };
                    let series = (running.name.clone(), workload.name.clone(), transport);
                    if self.is_over() || at_their_limit.contains(&series) {
                        continue;
                    }
                    if !self.measure(round, &point, workload, running) {
                        // Later cells of this group are marked as failed. Dropping the value stops
                        // the engine.
                        self.gone.push((slot, running.name.clone()));
                        engines[slot] = None;
                    }
                }
            }
        }
    }

    /// Records that the cell at `point` failed for an engine that has ended or stopped replying.
    /// `slot` is the index that the engine had in the group.
    fn mark_failed(&mut self, slot: usize, point: &Point) {
        let Some((_, name)) = self.gone.iter().find(|(gone, _)| *gone == slot).cloned() else { return };
        let engine = self.study.engines.iter().find(|engine| engine.name() == name);
        if !self.is_over() && engine.is_some_and(|engine| engine.takes(point.transport)) {
            self.cell(&name, point)
                .failure
                .get_or_insert_with(|| "the engine had exited or stopped replying".to_owned());
        }
    }

    /// Measures `running` at `point` once. Skips the run with a note if the engine or the link
    /// cannot use the transport of `point`. Returns false if the engine has ended or stopped
    /// replying.
    fn measure(
        &mut self,
        round: usize,
        point: &Point,
        workload: &NamedWorkload,
        running: &mut Running,
    ) -> bool {
        let engine = self.study.engines.iter().find(|engine| engine.name() == running.name);
        let left_out = match running.distant(point.transport, self.study.load.resp) {
            _ if !engine.is_some_and(|engine| engine.takes(point.transport)) => "the study skips it".into(),
            _ if point.transport == Transport::Unix && point.round_trip_ms > 0 => {
                "a link cannot delay it".into()
            }
            Ok(target) => return self.measure_at(round, point, workload, running, target),
            Err(reason) => reason,
        };
        self.note(format!("{} over {}: skipped: {left_out}", running.name, transport_name(point.transport)));
        true
    }

    fn measure_at(
        &mut self,
        round: usize,
        point: &Point,
        workload: &NamedWorkload,
        running: &mut Running,
        target: Target,
    ) -> bool {
        let filled = workload.fill.clone().map(|fill| self.fill(fill, LIST_FILL_REQUESTS, target.clone()));
        let spec = RunSpec {
            target,
            workload: workload.workload.clone(),
            load: self.load(point),
            watch: Watch {
                server_pid: running.pid,
                progress: true,
                interrupt: Some(self.interrupt.flag()),
                ..Watch::default()
            },
        };
        let result = filled.transpose().and_then(|_| self.run_prepared(&spec, point, running));
        self.runs_done += 1;
        let before = format!(
            "run {}, round {} of {}: {} {}",
            self.runs_done,
            round + 1,
            self.study.rounds,
            running.name,
            describe(point)
        );
        let (result, failure) = match result {
            Ok(result) => {
                let (rate, p99) = (result.requests_per_second, result.latency.p99_us / 1e3);
                let bound = if result.is_client_bound() { ", client-bound" } else { "" };
                eprintln!("{before}: {rate:.0} requests/s, p99 {p99:.3} ms{bound}");
                let failure = match &result.ending {
                    Ending::Complete => result.fault(),
                    Ending::Interrupted => Some("interrupted".to_owned()),
                    Ending::Failed(reason) => Some(reason.clone()),
                };
                (Some(result), failure)
            }
            Err(error) => (None, Some(error.to_string())),
        };
        let alive = running.is_alive();
        // A later run on an engine that is alive but does not reply would only wait for its
        // timeout.
        let answers = alive && (failure.is_none() || self.is_over() || running.answers(self.reply_within()));
        if let Some(reason) = failure.as_ref().filter(|_| !self.is_over()) {
            let gone = match (alive, answers) {
                (_, true) => "",
                (true, false) => "the engine no longer replies: ",
                (false, false) => "the engine has exited: ",
            };
            self.fail(format!("{}, {}: {gone}{reason}", running.name, describe(point)));
        }
        let cell = self.cell(&running.name, point);
        // A run without replies has no figures. If all replies are errors, their rate says nothing
        // about the test.
        cell.rounds.extend(result.filter(|result| result.requests > 0 && result.fault().is_none()));
        cell.failure = failure.or(cell.failure.take());
        answers
    }

    /// Sends the setup of `spec` and measures its workload on `running`. The result has the load of
    /// the link, and the memory per vector if the workload adds all vectors.
    fn run_prepared(
        &self,
        spec: &RunSpec,
        point: &Point,
        running: &Running,
    ) -> Result<RunResult, BenchError> {
        crate::set_up(spec)?;
        let adds_all = spec.workload.vectors.as_ref().is_some_and(|task| task.adds_all);
        let memory = || if adds_all { running.settled_memory_bytes() } else { None };
        let memory_before = memory();
        let relay = running.relay(point.transport);
        let (begin, cpu_before) = (Instant::now(), relay.map(Relay::cpu));
        let mut result = crate::run(spec)?;
        let passed = relay.zip(cpu_before).map(|(relay, before)| (relay.cpu() - before, begin.elapsed()));
        if let Some(kind) = self.outcome.links.get(&point.round_trip_ms) {
            note_link(&mut result, *kind, passed);
        }
        note_vector_memory(&mut result, memory_before.zip(memory()));
        Ok(result)
    }

    fn reply_within(&self) -> Duration {
        Duration::from_secs_f64(self.study.load.reply_within_seconds)
    }

    /// Returns the seed of the next run. It differs for each point and round, and is the same for
    /// all engines at a point.
    fn seed(&self) -> u64 {
        self.outcome.seed.unwrap_or_default().wrapping_add(self.points_done)
    }

    /// Returns the load settings of a run at `point`.
    fn load(&self, point: &Point) -> Load {
        let load = &self.study.load;
        Load {
            threads: load.client_threads.count(point.io_threads),
            connections: point.connections,
            pipeline: load.pipeline,
            limit: match (load.seconds, load.requests) {
                (Some(seconds), _) => Limit::Duration(Duration::from_secs_f64(seconds)),
                (None, requests) => Limit::Requests(requests.unwrap_or(REQUESTS_DEFAULT)),
            },
            warm_up: Duration::from_secs_f64(load.warm_up_seconds),
            rate: load.rate,
            seed: self.seed(),
            reply_within: self.reply_within(),
            ..Load::default()
        }
    }

    fn cell(&mut self, engine: &str, point: &Point) -> &mut Cell {
        let cells = &mut self.outcome.cells;
        let known = cells.iter().position(|cell| cell.engine == engine && cell.point == *point);
        let at = known.unwrap_or_else(|| {
            cells.push(Cell {
                engine: engine.to_owned(),
                point: point.clone(),
                rounds: Vec::new(),
                failure: None,
            });
            cells.len() - 1
        });
        &mut cells[at]
    }

    /// Adds to `at_their_limit` the series of runs whose rate has stopped rising, each with its
    /// engine, test and transport. `steps` are the numbers of connections measured so far.
    fn find_limits(&self, percent: f64, group: Group, steps: &[usize], at_their_limit: &mut Vec<Series>) {
        let load = &self.study.load;
        let factor =
            if load.connections_per_thread { load.client_threads.count(group.io_threads) } else { 1 };
        let in_group = |cell: &&Cell| {
            let point = &cell.point;
            (point.round_trip_ms, point.io_threads, point.value_bytes)
                == (group.round_trip_ms, group.io_threads, group.value_bytes)
        };
        let series = |cell: &Cell| (cell.engine.clone(), cell.point.test.clone(), cell.point.transport);
        let cells: Vec<&Cell> = self.outcome.cells.iter().filter(in_group).collect();
        let Some(now) = steps.last() else { return };
        for cell in cells.iter().filter(|cell| cell.point.connections == now * factor) {
            let rate = |step: &usize| {
                let mut same = cells.iter().filter(|other| series(other) == series(cell));
                same.find(|other| other.point.connections == step * factor)?.median(Metric::Rate)
            };
            let rates: Vec<f64> = steps.iter().map(|step| rate(step).unwrap_or(0.0)).collect();
            if stats::has_stopped_rising(&rates, percent) {
                at_their_limit.push(series(cell));
            }
        }
    }
}

/// Records in `result` the simulator of the link and the load of its relay. `passed` is the CPU
/// time of the relay and the wall time of the run. Marks the run as client-bound if the relay was
/// the bottleneck.
fn note_link(result: &mut RunResult, kind: LinkKind, passed: Option<(Duration, Duration)>) {
    let busy = passed.map(|(cpu, wall)| cpu.as_secs_f64() / wall.as_secs_f64().max(1e-9));
    let per_request = |busy: f64| busy * result.duration_seconds * 1e6 / result.requests.max(1) as f64;
    result.link = Some(LinkUse { kind, busy, cpu_us_per_request: busy.map(per_request) });
    if let Some(busy) = busy.filter(|busy| *busy >= RELAY_BUSY_MIN && !result.is_client_bound()) {
        let reason = format!("the relay of the link was busy {:.0} % of the time", busy * 100.0);
        result.client.bound = ClientBound { is_bound: true, reason };
    }
}

/// Records in `result` the memory of the server per added vector. `memory` is the memory before and
/// after the run, in bytes.
fn note_vector_memory(result: &mut RunResult, memory: Option<(u64, u64)>) {
    if let Some(vectors) = &mut result.vectors
        && let Some((before, after)) = memory
        && result.ending == Ending::Complete
    {
        vectors.bytes_per_vector = Some(after.saturating_sub(before) as f64 / vectors.rows.max(1) as f64);
    }
}

/// Returns the facts about an engine that are known before its start: its name, and its command
/// line or address.
fn facts_before(engine: &Engine) -> EngineFacts {
    let line = engine.start.as_ref().or(engine.address.as_ref());
    EngineFacts {
        name: engine.name().to_owned(),
        start: line.map_or_else(String::new, |line| line.get_ref().clone()),
        ..EngineFacts::default()
    }
}

/// Returns the name of a transport as reports show it.
pub fn transport_name(transport: Transport) -> &'static str {
    match transport {
        Transport::Tcp => "TCP",
        Transport::Tls => "TLS",
        Transport::Unix => "Unix socket",
    }
}

/// Describes a point of measurement in words, for progress lines and errors.
fn describe(point: &Point) -> String {
    let link = match point.round_trip_ms {
        0 => String::new(),
        round_trip => format!(", {round_trip} ms link"),
    };
    format!(
        "{} {} B over {}{link}, {} I/O thread{}, {} connections",
        point.test,
        point.value_bytes,
        transport_name(point.transport),
        point.io_threads,
        if point.io_threads == 1 { "" } else { "s" },
        point.connections,
    )
}

impl Machine {
    /// Reads the properties of this machine: processor, memory and kernel.
    pub fn this() -> Self {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let value = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let memory_kb = value(&read("/proc/meminfo"), "MemTotal")
            .and_then(|value| value.split_whitespace().next()?.parse::<u64>().ok());
        Self {
            cpu: value(&read("/proc/cpuinfo"), "model name")
                .unwrap_or_else(|| "unknown processor".to_owned()),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_bytes: memory_kb.unwrap_or(0) * 1024,
            system: format!("{} {}", std::env::consts::OS, read("/proc/sys/kernel/osrelease").trim()),
        }
    }
}
