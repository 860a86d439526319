//! The run itself: the worker threads, and the calling thread that observes them.
//!
//! Each worker thread first opens and greets its connections. When all threads are ready, the load
//! starts on all of them at once. The calling thread then wakes up at short intervals. It shows the
//! progress, and stops the run on an interrupt. It reads the resource usage of the server's process
//! at the start and at the end of the measured part.

mod cluster;
mod connection;
pub mod fuzz;
mod progress;
mod replies;
mod shared;
mod tally;
mod tls;
mod worker;

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Barrier, OnceLock, mpsc};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use net::Backend;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::BenchError;
use crate::results::{ClusterUse, Ending, LoopMode, RunResult, ServerUse, Settings, Transport, VectorUse};
use crate::spec::{Endpoint, Limit, Load, RunSpec};
use crate::usage::ProcessUse;
use crate::workload::{Sequences, Workload};
use connection::Server;
use progress::Progress;
use shared::{Shared, Times};
use tally::{Tally, client_use};
use worker::Worker;

/// The interval at which the calling thread checks the worker threads.
const WATCH_INTERVAL: Duration = Duration::from_millis(50);

/// The number of connections that send unmeasured requests before a run.
const SETUP_CONNECTIONS: usize = 8;

/// The number of open files reserved for other uses than connections: event loops, standard
/// streams, result files.
const DESCRIPTORS_BESIDE: u64 = 100;

/// The observations of the calling thread during a run. `server` is the server's resource usage
/// before and after the measured part, if known. `interrupted` is true after an interrupt.
#[derive(Default)]
struct Watched {
    server: Option<(ProcessUse, ProcessUse)>,
    interrupted: bool,
}

/// Runs `spec` until it is complete, interrupted or failed. Returns a partial result for an
/// interrupted or failed run. Returns an error if nothing was measured.
///
/// Makes the data set of the workload first. The setup of the workload is not sent: see [`set_up`].
pub fn run(spec: &RunSpec) -> Result<RunResult, BenchError> {
    check(spec)?;
    let mut whole_set = None;
    if let Some(task) = &spec.workload.vectors {
        let rows = task.vectors.load()?.rows() as u64;
        if task.adds_all {
            let mut spec = spec.clone();
            (spec.load.limit, spec.load.warm_up) = (Limit::Requests(rows), Duration::ZERO);
            whole_set = Some(spec);
        }
    }
    let spec = whole_set.as_ref().unwrap_or(spec);
    let server = Server::find(spec)?;
    raise_descriptor_limit(spec.load.connections.saturating_mul(server.node_count()));
    let threads = spec.load.threads.min(spec.load.connections);
    let shared = Shared::new(&spec.load, threads);
    let sequences = Sequences::new(spec.workload.sequences);
    let times: OnceLock<Times> = OnceLock::new();
    let start = Barrier::new(threads + 1);
    let (ready, readies) = mpsc::channel();
    let started_unix_ms = |times: &Times| {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ahead_ns = times.measured_ns.saturating_sub(shared.now_ns());
        (now + Duration::from_nanos(ahead_ns)).as_millis() as u64
    };
    thread::scope(|scope| {
        let mut workers = Vec::with_capacity(threads);
        for index in 0..threads {
            let (ready, sequences) = (ready.clone(), sequences.clone());
            let (shared, server, times, start) = (&shared, &server, &times, &start);
            let place = (index, threads);
            let work = move || {
                let worker = match Worker::start(place, spec, shared, server, sequences) {
                    Ok(worker) => {
                        let _ = ready.send(Ok(worker.backend()));
                        Some(worker)
                    }
                    Err(error) => {
                        let _ = ready.send(Err(error));
                        None
                    }
                };
                start.wait();
                // The times are not set if any thread could not start.
                Some(worker?.run(place, *times.get()?))
            };
            workers.push(scope.spawn(work));
        }
        let readies: Result<Vec<Backend>, BenchError> = readies.iter().take(threads).collect();
        if readies.is_err() {
            start.wait();
        }
        let backend = readies?[0];
        let times = *times.get_or_init(|| shared.times_from_now(&spec.load));
        let started_unix_ms = started_unix_ms(&times);
        start.wait();
        let watched = watch(spec, &shared, &times, || workers.iter().all(|worker| worker.is_finished()));
        let tallies: Vec<Tally> = workers
            .into_iter()
            .filter_map(|worker| worker.join().expect("a panic of a thread ends the run"))
            .collect();
        let began = Began { backend, started_unix_ms, measured_ns: times.measured_ns };
        Ok(result(spec, &shared, &began, &tallies, watched))
    })
}

/// Sends the unmeasured requests that must precede a run of `spec`. Returns an error if one of them
/// fails.
pub fn set_up(spec: &RunSpec) -> Result<(), BenchError> {
    for setup in &spec.workload.setup {
        let load = Load {
            threads: 1,
            connections: SETUP_CONNECTIONS.min(setup.requests as usize),
            limit: Limit::Requests(setup.requests),
            rate: None,
            warm_up: Duration::ZERO,
            verify: false,
            ..spec.load.clone()
        };
        let (target, workload) = (spec.target.clone(), setup.workload.clone());
        let result = run(&RunSpec { target, workload, load, watch: spec.watch.clone() })?;
        match (result.ending, result.first_error) {
            (Ending::Complete, None) => {}
            (Ending::Complete, Some(error)) | (Ending::Failed(error), _) => {
                return Err(BenchError::Ended(format!("{}: {error}", setup.workload.name)));
            }
            (Ending::Interrupted, _) => return Err(BenchError::Interrupted),
        }
    }
    Ok(())
}

/// Returns the results of a run for the vector set of `workload`; `None` if the workload has none.
/// `all` is the sum over all threads.
fn vector_use(workload: &Workload, all: &Tally) -> Option<VectorUse> {
    let task = workload.vectors.as_ref()?;
    let data = task.vectors.loaded()?;
    let neighbours = data.truth().neighbours();
    let wanted = all.searches * neighbours as u64;
    Some(VectorUse {
        set: task.label.clone(),
        rows: data.rows() as u64,
        dimensions: data.dimensions(),
        ef: task.ef,
        neighbours,
        searches: all.searches,
        recall: (wanted > 0).then(|| all.found as f64 / wanted as f64),
        bytes_per_vector: None,
        beside: all.beside(),
    })
}

/// Opens and greets the connections of `spec`, calls `ready` and keeps them idle until an
/// interrupt. Uses one thread. Returns an error if a connection could not be opened or was lost.
pub fn idle(spec: &RunSpec, ready: impl FnOnce()) -> Result<(), BenchError> {
    check(spec)?;
    let server = Server::find(spec)?;
    raise_descriptor_limit(spec.load.connections.saturating_mul(server.node_count()));
    let shared = Shared::new(&spec.load, 1);
    let worker = Worker::start((0, 1), spec, &shared, &server, Sequences::new(spec.workload.sequences))?;
    ready();
    worker.idle()
}

/// Raises this process's limit of open files as needed for `connections` connections, up to the
/// hard limit.
fn raise_descriptor_limit(connections: usize) {
    let needed = connections as u64 + DESCRIPTORS_BESIDE;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // If the limit stays too low, a connection fails, and its error says so.
        let _ = setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}

/// Returns an error if the settings of `spec` are out of range or contradict each other.
fn check(spec: &RunSpec) -> Result<(), BenchError> {
    let load = &spec.load;
    let wrong = |reason: &str| Err(BenchError::Usage(reason.to_owned()));
    if load.connections == 0 || load.threads == 0 || load.pipeline == 0 {
        return wrong("connections, threads and pipeline depth must be at least 1");
    }
    if matches!(load.limit, Limit::Requests(0) | Limit::Duration(Duration::ZERO)) {
        return wrong("requests and duration must be above 0");
    }
    if spec.target.tls.is_some() && matches!(spec.target.endpoint, Endpoint::Unix(_)) {
        return wrong("TLS needs TCP and does not work over a Unix socket");
    }
    if spec.target.cluster && matches!(spec.target.endpoint, Endpoint::Unix(_)) {
        return wrong("a cluster needs TCP and does not work over a Unix socket");
    }
    if load.rate.is_some_and(|rate| !(rate.is_finite() && rate > 0.0)) {
        return wrong("a rate must be above 0");
    }
    if load.rate.is_some() && load.gather_us > 0 {
        return wrong("replies can be gathered only in a closed loop, not at a fixed rate");
    }
    if load.verify && spec.workload.values.is_none() {
        return wrong("nothing to verify: the workload has no values");
    }
    if load.verify && spec.workload.requests.iter().all(|request| !request.template.gets()) {
        return wrong("nothing to verify: the workload has no GET");
    }
    Ok(())
}

/// Observes a run until `is_over` returns true. Shows the progress, and tells the threads to stop
/// on an interrupt.
fn watch(spec: &RunSpec, shared: &Shared, times: &Times, is_over: impl Fn() -> bool) -> Watched {
    let mut watched = Watched::default();
    let mut progress = Progress::new(spec);
    let process = || spec.watch.server_pid.and_then(ProcessUse::of);
    let mut before = None;
    while !is_over() {
        let ahead_ns = times.measured_ns.saturating_sub(shared.now_ns());
        if ahead_ns == 0 && before.is_none() {
            before = Some(process());
        }
        // Relaxed: no other data depends on this flag.
        let interrupt = spec.watch.interrupt.as_ref().is_some_and(|flag| flag.load(Relaxed));
        if interrupt && !watched.interrupted {
            watched.interrupted = true;
            shared.stop.store(true, Relaxed);
        }
        progress.show(shared, times);
        let step =
            if ahead_ns > 0 { Duration::from_nanos(ahead_ns).min(WATCH_INTERVAL) } else { WATCH_INTERVAL };
        thread::park_timeout(step);
    }
    progress.finish();
    watched.server = before.flatten().zip(process());
    watched
}

/// The event loop backend of a run, and its start time.
struct Began {
    backend: Backend,
    started_unix_ms: u64,
    /// The start of the measured part, in nanoseconds since [`Shared::epoch`].
    measured_ns: u64,
}

/// Combines the counts of all threads into the result of the run.
fn result(spec: &RunSpec, shared: &Shared, began: &Began, threads: &[Tally], watched: Watched) -> RunResult {
    let mut all = Tally::new();
    threads.iter().for_each(|tally| all.add(tally));
    let requests = all.histogram.len();
    let duration = Duration::from_nanos(all.last_reply_ns.saturating_sub(began.measured_ns));
    let duration_seconds = duration.as_secs_f64();
    let ending = match shared.failure() {
        Some(reason) => Ending::Failed(reason),
        None if watched.interrupted => Ending::Interrupted,
        None => Ending::Complete,
    };
    RunResult {
        test: spec.workload.name.clone(),
        command: spec.workload.command(),
        settings: settings(spec, began.backend, threads.len()),
        started_unix_ms: began.started_unix_ms,
        duration_seconds,
        requests,
        requests_per_second: if requests > 0 { requests as f64 / duration_seconds.max(1e-9) } else { 0.0 },
        errors: all.errors.clone(),
        first_error: all.first_error.clone(),
        hits: all.hits,
        misses: all.misses,
        unanswered: all.unanswered,
        latency: all.latency(),
        histogram: all.buckets(),
        per_second: shared.seconds(duration),
        client: client_use(threads, &all),
        server: watched.server.map(|(before, after)| server_use(before, after, requests)),
        cluster: spec.target.cluster.then(|| ClusterUse {
            nodes: all.nodes.clone(),
            moved: all.moved,
            asked: all.asked,
        }),
        vectors: vector_use(&spec.workload, &all),
        link: None,
        ending,
    }
}

fn server_use(before: ProcessUse, after: ProcessUse, requests: u64) -> ServerUse {
    let cpu_seconds = after.cpu.saturating_sub(before.cpu).as_secs_f64();
    ServerUse {
        cpu_seconds,
        cpu_us_per_request: if requests > 0 { cpu_seconds * 1e6 / requests as f64 } else { 0.0 },
        rss_bytes: after.rss_bytes,
        context_switches_voluntary: after
            .context_switches_voluntary
            .saturating_sub(before.context_switches_voluntary),
        context_switches_involuntary: after
            .context_switches_involuntary
            .saturating_sub(before.context_switches_involuntary),
    }
}

fn settings(spec: &RunSpec, backend: Backend, threads: usize) -> Settings {
    let load = &spec.load;
    Settings {
        address: spec.target.endpoint.to_string(),
        transport: match spec.target.endpoint {
            Endpoint::Tcp { .. } if spec.target.tls.is_some() => Transport::Tls,
            Endpoint::Tcp { .. } => Transport::Tcp,
            Endpoint::Unix(_) => Transport::Unix,
        },
        resp: if spec.target.resp3 { 3 } else { 2 },
        db: spec.target.db,
        threads,
        connections: load.connections,
        pipeline: load.pipeline,
        value_bytes: spec.workload.value_bytes.clone(),
        keyspace: spec.workload.keyspace,
        loop_mode: match load.rate {
            None => LoopMode::Closed,
            Some(requests_per_second) => LoopMode::Open { requests_per_second },
        },
        reconnect: load.reconnect,
        warm_up_seconds: load.warm_up.as_secs_f64(),
        io_backend: backend.name().to_owned(),
        gather_us: (load.gather_us > 0).then_some(load.gather_us),
        seed: Some(load.seed),
    }
}
