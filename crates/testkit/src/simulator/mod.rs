//! The simulator: an engine with its threads, clients, links, a clock and a disk, all from one
//! seed.
//!
//! **What is simulated.** The engine is the real one, with its real locks, gate, inboxes, mailboxes
//! and change log; its threads do in a turn what the server's do ([`thread`], [`housekeeper`]).
//! They run under `shuttle`: every lock, unlock, passage of the gate, drawn position and appended
//! record is a point at which the schedule may pass to another thread ([`schedule`]). A thread
//! sleeps in a poll that only an event, a wake-up or its own timeout ends ([`kernel`]). Around it
//! are clients, links that delay, cut and drop, and a clock that moves when chance or silence says
//! so ([`network`], [`player`]); a disk that syncs late ([`disk`]); threads that save to a folder
//! that loses, tears and fails ([`saver`]). Nothing waits for real time.
//!
//! **What is not.** Sockets, the event loop and the server's options, its limits of output and
//! clients, RESP2 subscribers. A memory limit is exceeded by everything or by nothing: what the
//! process has allocated says little. Weak memory: shuttle runs all atomic operations as if they
//! were sequentially consistent; loom proves the rest (`crates/*/tests/loom*.rs`).
//!
//! **Checks** ([`checks`], [`network`]).
//! - Replies are linearizable, transactions and WATCH included; blocked clients are served in the
//!   order in which they blocked.
//! - Whoever waits for a reply gets one, or is blocked for a key that is not there.
//! - A keyspace event comes after its change, messages of one publisher come in order and none is
//!   lost; a cache is told of every change of what it holds.
//! - The replayed log is the data, expiries of keys and fields included; no record fails.
//! - A reply that left is on the disk: after a crash, what the disk holds and what clients were
//!   told have one order that explains both.
//! - A snapshot in a file is the keyspace of its point, and what the change log up to there makes.
//!   A crash at any operation of a disk that also fails leaves the last file that was reported or a
//!   newer one, whole ([`saver`]).
//! - When all clients have gone, no queue, table or inbox holds anything.
//!
//! **A failure** prints its seed, and the scenario cut down to what still fails ([`shrink`]).

mod checks;
mod disk;
mod host;
mod housekeeper;
mod kernel;
mod network;
mod player;
mod replay;
mod saver;
mod saves;
pub mod scenario;
mod schedule;
pub mod shrink;
mod thread;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use engine::threads::Outbox;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use self::disk::DiskReader;
use self::network::Network;
use self::scenario::Scenario;
use self::schedule::SeededScheduler;
use self::thread::IoThread;
use self::world::World;
use crate::Rng;

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
    let world = Arc::new(World::new(scenario));
    if scenario.has_disk {
        let reader = Box::new(DiskReader(Arc::clone(&world.disk)));
        let log = &world.engine.log;
        let attached = world.engine.gate.exclusive(|alone| log.attach(alone, reader, &Outbox::default()));
        world.disk.attached(attached.expect("it is the first reader"));
    }
    let mut threads = Vec::new();
    for index in 0..scenario.threads {
        let (world, seed) = (Arc::clone(&world), scenario.seed.wrapping_add(index as u64));
        threads.push(shuttle::thread::spawn(move || IoThread::new(&world, index, seed).run()));
    }
    let (keeper, seed) = (Arc::clone(&world), scenario.seed);
    threads.push(shuttle::thread::spawn(move || housekeeper::run(&keeper, seed)));
    if scenario.has_saves {
        let saver = Arc::clone(&world);
        threads.push(shuttle::thread::spawn(move || saver::run(&saver, seed)));
    }
    let outcome = Network::new(&world, scenario).run();
    threads.into_iter().for_each(|thread| thread.join().expect("a thread that panics ends the run"));
    let is_stopped = world.take_findings();
    if !is_stopped.is_empty() {
        return is_stopped;
    }
    checks::check_engine(&world, &outcome);
    saver::check(&world, &mut Rng::new(scenario.schedule));
    let history: Vec<_> = outcome.players.iter().flat_map(|player| player.history.clone()).collect();
    let is_modelled = scenario.kind.is_modelled();
    let crashes: Vec<_> = outcome
        .crashes
        .iter()
        .filter(|_| is_modelled)
        .map(|crash| (crash.step, checks::reads_after(crash, &history)))
        .collect();
    let mut findings = world.take_findings();
    findings.extend(checks::check_histories(scenario, &outcome, &crashes));
    findings
}
