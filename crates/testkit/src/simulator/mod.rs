//! The simulator: an engine with its threads, clients, links, a clock and a disk, all driven by one
//! seed.
//!
//! **Simulated parts.** The engine is the real one, with its real locks, gate, inboxes, mailboxes
//! and change log. Its threads run each turn with the same steps as the server's threads
//! ([`thread`], [`housekeeper`]). They run under `shuttle`, which may switch to another thread at
//! each *yield point*. Yield points are every lock, unlock, passage of the gate, drawn position and
//! appended record ([`schedule`]). A thread sleeps in a poll that only an event, a wake-up or its
//! own timeout ends ([`kernel`]). Scripts run in the real Lua ([`scripts`]).
//!
//! The network ([`network`]) drives everything around the engine:
//! - clients ([`scripted_client`]), and links that delay, cut and drop bytes;
//! - a clock that moves at random, or when nothing else can happen;
//! - a disk that syncs late ([`disk`]);
//! - threads that save to a folder that loses bytes, tears writes and fails ([`saver`]).
//!
//! Nothing waits for real time. A *step* is one action of the network; steps are the time of a run.
//! A *life* is one run of a server process, from its start to its end or crash. A scenario can have
//! several lives. A *finding* is the text of a violated check.
//!
//! **Parts not simulated.** Sockets, the event loop, the server's options, its limits of output
//! buffers and clients, RESP2 subscribers. A memory limit is exceeded by every command or by none,
//! because the allocated memory of the process has little meaning here. Weak memory: shuttle runs
//! all atomic operations as if they were sequentially consistent; loom proves the rest
//! (`crates/*/tests/loom*.rs`).
//!
//! **Checks** ([`checks`], [`network`]).
//! - Replies are linearizable. This includes transactions, WATCH and scripts, also scripts that
//!   were undone and ran again. Blocked clients are served in the order in which they blocked.
//! - Every client that waits for a reply receives one, or is blocked on a key that does not exist.
//! - A keyspace event comes after its change. Messages of one publisher arrive in order and none is
//!   lost. A client-side cache receives an invalidation for every change of its content.
//! - The replayed log equals the data, expiries of keys and fields included. No record fails. The
//!   same is true of the stream for replicas, also if scripts write for one target only. Replicas
//!   get published messages in the order of the subscribers ([`replica`]).
//! - The changes that a sent reply shows are on the disk: written or synced, as its client
//!   requires. After a crash, one order of commands explains the content of the disk and the
//!   replies that clients received.
//! - At each operation of a failing disk, a kill or a power failure leaves append-only files that
//!   hold a prefix of the log. It consists of whole changes and contains everything that
//!   `appendfsync` had promised before. A server that loads these files continues with this data
//!   ([`aof`], [`crashes`]).
//! - A snapshot file equals the keyspace at its point, and the replay of the change log up to that
//!   point. A crash at any operation of a failing disk leaves a complete file: that of the last
//!   reported save or of a newer one ([`saver`]).
//! - After all clients have disconnected, no queue, table or inbox holds anything.
//!
//! Scenarios with several engines have clients and checks of their own ([`chain`]).
//!
//! **A failure** prints its seed, and the smallest scenario found that still fails ([`shrink`]).

mod aof;
mod aof_state;
pub mod chain;
mod checks;
mod crashes;
mod disk;
mod host;
mod housekeeper;
mod kernel;
mod load;
mod network;
mod points;
mod replay;
mod replica;
mod saver;
mod saves;
pub mod scenario;
mod schedule;
mod scripted_client;
mod scripts;
pub mod shrink;
mod targeted;
mod thread;
mod units;
mod walk;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::clock::Clock as _;
use engine::log::target::LogTarget;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use self::aof_state::{Aof, Promise};
use self::crashes::Left;
use self::disk::DiskReader;
use self::load::Readings;
use self::network::{Crash, Network, Outcome};
use self::points::Points;
use self::scenario::{Kind, Log, Scenario};
use self::schedule::SeededScheduler;
use self::thread::IoThread;
use self::world::{Life, START, World};
use crate::Rng;
use crate::disk::{Plan, SimulatedFolder};

/// The stack size of a simulated thread in bytes.
const STACK_BYTES: usize = 512 * 1024;
/// The number of yield points that a run may have for each of its operations, in addition to
/// [`POINTS_MAX_MIN`]. A run with more yield points counts as an endless loop.
const POINTS_PER_OPERATION_MAX: usize = 20_000;
/// The number of yield points that a run may have in addition to those of its operations.
const POINTS_MAX_MIN: usize = 5_000_000;

/// Runs a scenario once, in all its lives (runs of the server process). Returns the texts of the
/// violated checks.
pub fn run(scenario: &Scenario) -> Vec<String> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    let points_max = POINTS_MAX_MIN + POINTS_PER_OPERATION_MAX * scenario.operations();
    config.max_steps = MaxSteps::FailAfter(points_max);
    config.silence_warnings = true;
    let findings = Arc::new(Mutex::new(Vec::new()));
    let (scenario, found) = (scenario.clone(), Arc::clone(&findings));
    let runner = Runner::new(SeededScheduler::new(scenario.schedule), config);
    let result = catch_unwind(AssertUnwindSafe(|| {
        runner.run(move || {
            let result = simulate(&scenario);
            found.lock().expect("nothing panics while it is locked").extend(result);
        })
    }));
    let mut findings = std::mem::take(&mut *findings.lock().expect("nothing panics while it is locked"));
    if let Err(panic) = result {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        findings.push(format!("panicked: {}", text.unwrap_or_default()));
    }
    findings
}

/// Runs all lives (runs of the server process) of a scenario, within shuttle. Returns the texts of
/// the violated checks.
fn simulate(scenario: &Scenario) -> Vec<String> {
    let Log::AppendOnly(options) = scenario.log else {
        let (world, outcome) = live(scenario, Life::default());
        return judge(&world, scenario, &outcome, Vec::new());
    };
    let mut rng = Rng::new(scenario.schedule ^ 0x6c69_7665_7300);
    let mut left = Left { folder: SimulatedFolder::new(scenario.seed), end: 0, is_safe: true };
    let (mut recorded_stream, mut unix, mut points) = (Vec::new(), START, Points::default());
    for number in 0..options.lives {
        let safe = if left.is_safe { left.end } else { 0 };
        let first = Promise { killed: left.end, powerless: safe, ..Promise::default() };
        let mut folder = left.folder.fork(Plan::Never);
        folder.note_moments();
        recorded_stream.truncate(left.end);
        let aof = Some(Aof::new(options, folder, first));
        let part = scenario.life(number);
        let (world, outcome) = live(&part, Life { unix, aof, recorded_stream, points });
        let findings = check_server_run(&world, (&part, number), &outcome, &mut rng);
        left = match findings {
            Ok(next) => next,
            Err(findings) => {
                return findings.into_iter().map(|finding| format!("life {number}: {finding}")).collect();
            }
        };
        (recorded_stream, unix, points) = (world.disk.all(), world.clock.unix_time(), world.points.clone());
        unix += Duration::from_millis(*rng.pick(&[0, 7, 300, 5_000]));
    }
    Vec::new()
}

/// Runs one life of the server (a run of its process): starts the threads, runs the clients, and
/// joins the threads.
fn live(scenario: &Scenario, life: Life) -> (Arc<World>, Outcome) {
    let world = Arc::new(World::new(scenario, life));
    let mut rng = Rng::new(scenario.schedule ^ 0x006f_7065_6e00);
    if let Err(finding) = begin(&world, scenario, &mut rng) {
        world.find(finding);
        return (world, Outcome::default());
    }
    let mut threads = Vec::new();
    for index in 0..scenario.threads {
        let (world, seed) = (Arc::clone(&world), scenario.seed.wrapping_add(index as u64));
        threads.push(shuttle::thread::spawn(move || IoThread::new(&world, index, seed).run()));
    }
    let (keeper, seed) = (Arc::clone(&world), scenario.seed);
    threads.push(shuttle::thread::spawn(move || housekeeper::run(&keeper, seed)));
    if scenario.has_saves || world.aof.is_some() {
        let saver = Arc::clone(&world);
        threads.push(shuttle::thread::spawn(move || saver::run(&saver, seed)));
    }
    if world.aof.is_some() {
        let syncer = Arc::clone(&world);
        threads.push(shuttle::thread::spawn(move || aof::run(&syncer)));
    }
    let outcome = Network::new(&world, scenario).run();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread that panics ends the run"));
    (world, outcome)
}

/// Loads the append-only files that the run of the server process before has left, and attaches the
/// readers of the change log.
fn begin(world: &Arc<World>, scenario: &Scenario, rng: &mut Rng) -> Result<(), String> {
    if scenario.log == Log::Nowhere {
        return Ok(());
    }
    let found = match &world.aof {
        None => None,
        Some(aof) => {
            let found = load::find(&aof.folder, &mut Readings::default())?;
            found.cut_torn(&aof.folder).map_err(|trouble| trouble.to_string())?;
            let lanes = 1 + rng.below(3);
            let all = world.disk.all();
            crashes::loads_as_recorded(&world.engine, &world.clock, (&found, lanes), &all)?;
            Some(found)
        }
    };
    let reader = Box::new(DiskReader(Arc::clone(&world.disk)));
    let attached = world.attach(reader, LogTarget::File);
    world.disk.attached(attached.expect("it is the first reader"));
    if scenario.log == Log::Disk {
        world.attach(Box::new(world.replica.clone()), LogTarget::Replicas).expect("there is room for it");
    }
    match (&world.aof, found) {
        (Some(aof), Some(found)) => aof::open(world, aof, found, rng),
        _ => Ok(()),
    }
}

/// Checks a life (a run of the server process) after its threads have ended. Returns the texts of
/// violated checks. `crashes` holds each crash of a run with an append-only file, with the part of
/// the change log that it left.
fn judge(world: &World, scenario: &Scenario, outcome: &Outcome, crashes: Vec<Crash>) -> Vec<String> {
    let is_stopped = world.take_findings();
    if !is_stopped.is_empty() {
        return is_stopped;
    }
    if world.aof.is_none() {
        checks::check_engine(world, outcome);
    }
    saver::check(world, &mut Rng::new(scenario.schedule));
    let history: Vec<_> =
        outcome.players.iter().flat_map(|scripted_client| scripted_client.history.clone()).collect();
    let is_modelled = scenario.kind.is_modelled();
    let crashes: Vec<_> = outcome
        .crashes
        .iter()
        .chain(&crashes)
        .filter(|_| is_modelled)
        .map(|crash| (crash.step, checks::reads_after(crash, &history)))
        .collect();
    let mut findings = world.take_findings();
    findings.extend(checks::check_histories(scenario, outcome, &crashes));
    findings
}

/// Checks a life (a run of the server process) with an append-only file after its threads have
/// ended. Returns the files that a crash leaves to the next life; on violated checks, returns their
/// texts.
fn check_server_run(
    world: &World,
    (scenario, number): (&Scenario, usize),
    outcome: &Outcome,
    rng: &mut Rng,
) -> Result<Left, Vec<String>> {
    let aof = world.aof.as_ref().expect("it is a life of one");
    let is_stopped = world.take_findings();
    if !is_stopped.is_empty() {
        return Err(is_stopped);
    }
    checks::check_engine(world, outcome);
    aof::finish_all(world, aof);
    let moments: Vec<_> = outcome.aof_crashes.iter().map(|crash| (crash.operations, crash.is_kill)).collect();
    let (next, ends) = crashes::check(world, aof, &moments, rng).map_err(|finding| vec![finding])?;
    // The model begins without keys.
    let crashes = outcome.aof_crashes.iter().zip(ends).filter(|_| number == 0);
    let recorded_stream = world.disk.all();
    let crashes =
        crashes.map(|(crash, end)| Crash { step: crash.step, left: recorded_stream[..end].to_vec() });
    let part =
        Scenario { kind: if number == 0 { scenario.kind } else { Kind::Everything }, ..scenario.clone() };
    let findings = judge(world, &part, outcome, crashes.collect());
    if findings.is_empty() { Ok(next) } else { Err(findings) }
}
