//! The simulator: an engine with its threads, clients, links, a clock and a disk, all from one
//! seed.
//!
//! **What is simulated.** The engine is the real one, with its real locks, gate, inboxes, mailboxes
//! and change log; its threads do in a turn what the server's do ([`thread`], [`housekeeper`]).
//! They run under `shuttle`: every lock, unlock, passage of the gate, drawn position and appended
//! record is a point at which the schedule may pass to another thread ([`schedule`]). A thread
//! sleeps in a poll that only an event, a wake-up or its own timeout ends ([`kernel`]). Scripts run
//! in the real Lua ([`scripts`]). Around it are clients, links that delay, cut and drop, and a
//! clock that moves when chance or silence says so ([`network`], [`player`]); a disk that syncs
//! late ([`disk`]); threads that save to a folder that loses, tears and fails ([`saver`]). Nothing
//! waits for real time.
//!
//! **What is not.** Sockets, the event loop and the server's options, its limits of output and
//! clients, RESP2 subscribers. A memory limit is exceeded by everything or by nothing: what the
//! process has allocated says little. Weak memory: shuttle runs all atomic operations as if they
//! were sequentially consistent; loom proves the rest (`crates/*/tests/loom*.rs`).
//!
//! **Checks** ([`checks`], [`network`]).
//! - Replies are linearizable, transactions, WATCH and scripts included, also those that were
//!   undone and ran again; blocked clients are served in the order in which they blocked.
//! - Whoever waits for a reply gets one, or is blocked for a key that is not there.
//! - A keyspace event comes after its change, messages of one publisher come in order and none is
//!   lost; a cache is told of every change of what it holds.
//! - The replayed log is the data, expiries of keys and fields included; no record fails.
//! - A reply that left is on the disk: after a crash, what the disk holds and what clients were
//!   told have one order that explains both.
//! - At each operation of a failing disk a kill or a power failure leaves append-only files
//!   that hold a beginning of the log: whole units, all that `appendfsync` promised by then; a
//!   server that loads them goes on with that data ([`aof`], [`crashes`]).
//! - A snapshot in a file is the keyspace of its point, and what the change log up to there makes.
//!   A crash at any operation of a disk that also fails leaves the last file that was reported or a
//!   newer one, whole ([`saver`]).
//! - When all clients have gone, no queue, table or inbox holds anything.
//!
//! **A failure** prints its seed, and the scenario cut down to what still fails ([`shrink`]).

mod aof;
mod aof_state;
mod checks;
mod crashes;
mod disk;
mod host;
mod housekeeper;
mod kernel;
mod load;
mod network;
mod player;
mod points;
mod replay;
mod saver;
mod saves;
pub mod scenario;
mod schedule;
mod scripts;
pub mod shrink;
mod thread;
mod walk;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use engine::clock::Clock as _;
use engine::threads::Outbox;
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

/// Stack of a simulated thread.
const STACK_BYTES: usize = 512 * 1024;
/// Yield points of a run, for each of its operations, after which it counts as going in circles.
const POINTS_PER_OPERATION_MAX: usize = 20_000;
/// The same for a run of few operations.
const POINTS_MAX_MIN: usize = 5_000_000;

/// Runs a scenario once; what was found wrong.
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

/// The run itself, within shuttle.
fn simulate(scenario: &Scenario) -> Vec<String> {
    let Log::AppendOnly(options) = scenario.log else {
        let (world, outcome) = live(scenario, Life::default());
        return judge(&world, scenario, &outcome, Vec::new());
    };
    let mut rng = Rng::new(scenario.schedule ^ 0x6c69_7665_7300);
    let mut left = Left { folder: SimulatedFolder::new(scenario.seed), end: 0, is_safe: true };
    let (mut tape, mut unix, mut points) = (Vec::new(), START, Points::default());
    for number in 0..options.lives {
        let safe = if left.is_safe { left.end } else { 0 };
        let first = Promise { killed: left.end, powerless: safe, ..Promise::default() };
        let mut folder = left.folder.fork(Plan::Never);
        folder.note_moments();
        tape.truncate(left.end);
        let aof = Some(Aof::new(options, folder, first));
        let part = scenario.life(number);
        let (world, outcome) = live(&part, Life { unix, aof, tape, points });
        let findings = judge_life(&world, (&part, number), &outcome, &mut rng);
        left = match findings {
            Ok(next) => next,
            Err(findings) => {
                return findings.into_iter().map(|finding| format!("life {number}: {finding}")).collect();
            }
        };
        (tape, unix, points) = (world.disk.all(), world.clock.unix_time(), world.points.clone());
        unix += Duration::from_millis(*rng.pick(&[0, 7, 300, 5_000]));
    }
    Vec::new()
}

/// Runs a server and its clients to their end.
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

/// Loads what there is, and attaches what reads the change log.
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
            crashes::loads_as_the_tape(&world.engine, &world.clock, (&found, lanes), &all)?;
            Some(found)
        }
    };
    let reader = Box::new(DiskReader(Arc::clone(&world.disk)));
    let log = &world.engine.log;
    let attached = world.engine.gate.exclusive(|alone| log.attach(alone, reader, &Outbox::default()));
    world.disk.attached(attached.expect("it is the first reader"));
    match (&world.aof, found) {
        (Some(aof), Some(found)) => aof::open(world, aof, found, rng),
        _ => Ok(()),
    }
}

/// What is wrong after a run. `crashes` are moments of its append-only file, with what is left of
/// the change log then.
fn judge(world: &World, scenario: &Scenario, outcome: &Outcome, crashes: Vec<Crash>) -> Vec<String> {
    let is_stopped = world.take_findings();
    if !is_stopped.is_empty() {
        return is_stopped;
    }
    if world.aof.is_none() {
        checks::check_engine(world, outcome);
    }
    saver::check(world, &mut Rng::new(scenario.schedule));
    let history: Vec<_> = outcome.players.iter().flat_map(|player| player.history.clone()).collect();
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

/// What a life has left that the next one begins with, or what is wrong.
fn judge_life(
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
    // The model begins with nothing.
    let crashes = outcome.aof_crashes.iter().zip(ends).filter(|_| number == 0);
    let tape = world.disk.all();
    let crashes = crashes.map(|(crash, end)| Crash { step: crash.step, left: tape[..end].to_vec() });
    let part =
        Scenario { kind: if number == 0 { scenario.kind } else { Kind::Everything }, ..scenario.clone() };
    let findings = judge(world, &part, outcome, crashes.collect());
    if findings.is_empty() { Ok(next) } else { Err(findings) }
}
