//! A scenario of replication: one primary, replicas that apply its stream, and replicas of these.
//!
//! Each node has an engine with two I/O threads, a housekeeper, and a thread for the link to its
//! primary. It also has the state of a primary (`replicate`), which feeds its own replicas. All
//! threads run under shuttle, which decides the order in which threads continue. Each node has a
//! clock of its own. Links deliver pieces of any size, stall, and break at any byte ([`network`]).
//! Roles change at any time ([`roles`]): a replica may be promoted while it applies the stream. The
//! former primary then follows, possibly with changes that no other node has.
//!
//! **Checks.**
//! - A read of a node shows the data between two changes (units), and no later read shows an
//!   older state ([`clients`]). To make this visible, a transaction increments several keys
//!   together, and a client increments `x` before `y`.
//! - Each byte that a node appends to its history equals the byte of the primary at the same
//!   offset. A replica appends whole changes only ([`truth`]).
//! - The exclusive owner of a replica's keyspace finds exactly the data that belongs to the
//!   replica's offset, expired keys included. An acknowledged offset is applied.
//! - Backlogs, links and receive buffers stay within their limits.
//! - At the end, all nodes have the same data, and each has applied the whole history.

mod clients;
mod keeper;
mod link;
mod network;
mod node;
mod roles;
mod truth;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use self::node::Cluster;
use super::STACK_BYTES;
use super::schedule::SeededScheduler;
use crate::Rng;

/// The maximum number of yield points of a run, as (constant part, part for each operation). A run
/// with more yield points counts as an endless loop.
const POINTS_MAX: (usize, usize) = (20_000_000, 100_000);

/// Runs the scenario that follows from `seed`, with about `operations` operations of clients.
/// Returns a text for each violated check.
pub fn run(seed: u64, operations: usize) -> Vec<String> {
    let mut config = Config::new();
    config.stack_size = STACK_BYTES;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(POINTS_MAX.0 + POINTS_MAX.1 * operations);
    config.silence_warnings = true;
    let findings = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&findings);
    let runner = Runner::new(SeededScheduler::new(seed), config);
    let result = catch_unwind(AssertUnwindSafe(|| {
        runner.run(move || {
            let result = simulate(seed, operations);
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

/// Starts the threads of all nodes and runs them to their end, within shuttle. Returns a text for
/// each violated check.
fn simulate(seed: u64, operations: usize) -> Vec<String> {
    let mut rng = Rng::new(seed ^ 0x6368_6169_6e00);
    let nodes = 2 + rng.below(2);
    let cluster = Arc::new(Cluster::new(nodes, rng.next_u64()));
    cluster.clients.store(nodes * node::THREADS, Relaxed);
    roles::begin(&cluster);
    let mut clients = Vec::new();
    let mut others = Vec::new();
    for node in 0..nodes {
        for thread in 0..node::THREADS {
            let (cluster, rng) = (Arc::clone(&cluster), Rng::new(rng.next_u64()));
            let count = operations.div_ceil(nodes * node::THREADS);
            clients.push(shuttle::thread::spawn(move || clients::run(&cluster, (node, thread), count, rng)));
        }
        let (linked, link_rng) = (Arc::clone(&cluster), Rng::new(rng.next_u64()));
        others.push(shuttle::thread::spawn(move || link::run(&linked, node, link_rng)));
        let (kept, keeper_rng) = (Arc::clone(&cluster), Rng::new(rng.next_u64()));
        others.push(shuttle::thread::spawn(move || keeper::run(&kept, node, keeper_rng)));
    }
    let (networked, network_rng) = (Arc::clone(&cluster), Rng::new(rng.next_u64()));
    others.push(shuttle::thread::spawn(move || network::run(&networked, network_rng)));
    let changes = rng.below(10);
    roles::run(&cluster, &mut rng, changes);
    clients.into_iter().for_each(|thread| thread.join().expect("a thread that panics ends the run"));
    roles::settle(&cluster);
    cluster.stop();
    others.into_iter().for_each(|thread| thread.join().expect("a thread that panics ends the run"));
    roles::check_rest(&cluster);
    cluster.take_findings()
}
