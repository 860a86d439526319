//! Several engines in one run: a primary, replicas that apply its stream, and replicas of these.
//!
//! Each node has an engine with two I/O threads, a housekeeper, and a thread for the link to its
//! primary. It also has the state of a primary (`replicate`), which feeds the nodes below it. They
//! run under shuttle as in the other scenarios. Each node has a clock of its own. Links deliver
//! pieces of any size, stall and cut at any byte ([`network`]). Roles change at any time
//! ([`roles`]). A replica is promoted while it applies. The former primary follows, with or without
//! changes that no other node has.
//!
//! **Checks.**
//! - Reads of a node show the data after some prefix of units, and never an older one later
//!   ([`clients`]). For this, transactions increment several keys together, and a client increments
//!   `x` before `y`.
//! - Each byte that a node appends to its history equals that of the primary at this offset. A
//!   node that follows appends whole units only ([`truth`]).
//! - Whoever owns the keyspace of a node that follows finds exactly the data of its offset, with
//!   the
//!   expired keys. An acknowledged offset is applied.
//! - Backlogs, links and inputs stay within their limits.
//! - At the end, all nodes have the same data, and each has taken up to the end of the history.

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

/// The maximum number of yield points of a run: a constant part, and one for each operation. A run
/// with more of them counts as an endless loop.
const POINTS_MAX: (usize, usize) = (20_000_000, 100_000);

/// Runs the scenario of a seed, with about `operations` operations of clients. Returns the
/// findings.
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

/// Runs the nodes to their end. Returns the findings.
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
