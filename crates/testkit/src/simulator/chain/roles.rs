//! Changes of the nodes' roles (primary, replica), with the same steps as in the server, and the
//! checks at the end of a run.

use std::sync::atomic::Ordering::Relaxed;

use engine::threads::Outbox;
use keyspace::Exclusive;

use super::node::{BACKLOG_BYTES, Cluster};
use crate::Rng;
use crate::contents::{difference, of_keyspace};

/// Maximum number of yields during which a replica may catch up with the primary at the end of a
/// run.
const YIELDS_MAX: usize = 100_000;

/// Makes node 0 the primary. Each further node follows the node before it.
pub(super) fn begin(cluster: &Cluster) {
    let id = cluster.new_id();
    cluster.truth.lock().expect("no panic").begin(id.as_str());
    cluster.with(0, |state| state.primary.open_backlog(BACKLOG_BYTES, id));
    cluster.nodes[0].engine.gate.exclusive(|alone| cluster.attach(0, alone));
    for node in 1..cluster.nodes.len() {
        cluster.nodes[node].engine.gate.exclusive(|alone| follow(cluster, node, node - 1, alone));
    }
}

/// Makes a node a replica of node `upstream`. The caller owns the keyspace of the node.
pub(super) fn follow(cluster: &Cluster, node: usize, upstream: usize, alone: &Exclusive) {
    if let Some(reader) = cluster.with(node, |state| state.reader.take()) {
        cluster.nodes[node].engine.log.detach(alone, reader, &Outbox::default());
    }
    cluster.with(node, |state| {
        state.primary.follow();
        state.follows = Some(upstream);
    });
    update_engine(cluster, node);
}

/// Promotes a replica that has a replication history to primary. The caller owns its keyspace.
fn promote(cluster: &Cluster, node: usize, alone: &Exclusive) {
    let next = cluster.new_id();
    cluster.replace(node, |state| {
        let (former, end) = (state.primary.history().id, state.primary.end());
        cluster.truth.lock().expect("no panic").fork(former.as_str(), next.as_str(), end);
        state.primary.promote(next, 0);
        state.follows = None;
        state.cut_outdated();
    });
    update_engine(cluster, node);
    cluster.attach(node, alone);
}

/// Copies the role of a node (primary or replica) to its engine, and counts the change as a new
/// epoch of the role.
fn update_engine(cluster: &Cluster, node: usize) {
    let is_replica = cluster.with(node, |state| state.follows.is_some());
    let role = &cluster.nodes[node].engine.server_state.role;
    for flag in [&role.is_replica, &role.refuses_writes, &role.ignores_memory_limit] {
        flag.store(is_replica, Relaxed);
    }
    role.epoch.fetch_add(1, Relaxed);
}

/// Changes the roles of the nodes up to `changes` times at random moments. Then waits until the
/// client threads have ended.
pub(super) fn run(cluster: &Cluster, rng: &mut Rng, changes: usize) {
    for _ in 0..changes {
        for _ in 0..rng.below(1000) {
            shuttle::thread::yield_now();
        }
        let primary = primary_of(cluster);
        let mut order: Vec<usize> = (0..cluster.nodes.len()).collect();
        rng.shuffle(&mut order);
        let has_history = |node: usize| cluster.with(node, |state| state.primary.backlog().is_some());
        if order[0] == primary || !has_history(order[0]) {
            continue;
        }
        if rng.percent(50) {
            // Without a loss.
            cluster.holds_writes.store(true, Relaxed);
            for _ in 0..3000 {
                if is_level(cluster, order[0], primary) {
                    break;
                }
                shuttle::thread::yield_now();
            }
        }
        let promoted = &cluster.nodes[order[0]].engine;
        promoted.gate.exclusive(|alone| promote(cluster, order[0], alone));
        for at in 1..order.len() {
            let upstream = order[rng.below(at)];
            let node = &cluster.nodes[order[at]].engine;
            node.gate.exclusive(|alone| follow(cluster, order[at], upstream, alone));
        }
        cluster.holds_writes.store(false, Relaxed);
    }
    while cluster.clients.load(Relaxed) > 0 {
        shuttle::thread::yield_now();
    }
}

fn primary_of(cluster: &Cluster) -> usize {
    let is_primary = |&node: &usize| cluster.with(node, |state| state.follows.is_none());
    (0..cluster.nodes.len()).find(is_primary).expect("there is always one")
}

/// Returns true if a node has applied the primary's whole replication history, under the same
/// replication ID.
fn is_level(cluster: &Cluster, node: usize, primary: usize) -> bool {
    let point = |node| cluster.with(node, |state| (state.primary.history().id, state.primary.end()));
    cluster.nodes[primary].engine.log.merge(&Outbox::default());
    point(node) == point(primary)
}

/// Stops cutting links between the nodes, and waits until all nodes have the whole history of the
/// primary. A node that does not catch up is a violation.
pub(super) fn settle(cluster: &Cluster) {
    cluster.cuts.store(false, Relaxed);
    let primary = primary_of(cluster);
    for node in 0..cluster.nodes.len() {
        let mut yields = 0;
        while !is_level(cluster, node, primary) {
            if cluster.has_findings() {
                return;
            }
            if yields == YIELDS_MAX {
                let states = (0..cluster.nodes.len()).map(|node| cluster.describe(node));
                let states: Vec<String> = states.collect();
                return cluster.find(format!("node {node} does not catch up: {}", states.join("; ")));
            }
            yields += 1;
            shuttle::thread::yield_now();
        }
    }
}

/// Checks the data of all nodes against the recorded history, after the client threads have ended.
pub(super) fn check_rest(cluster: &Cluster) {
    for node in 0..cluster.nodes.len() {
        cluster.nodes[node].engine.gate.exclusive(|alone| cluster.check_data(node, alone));
    }
    let primary = primary_of(cluster);
    let engine = &cluster.nodes[primary].engine;
    engine.log.merge(&Outbox::default());
    let (id, end) = cluster.with(primary, |state| (state.primary.history().id, state.primary.end()));
    let expected = cluster.truth.lock().expect("no panic").contents_at(id.as_str(), end);
    let found = of_keyspace(&engine.keyspace);
    let expected = expected.unwrap_or_default();
    if let Some(text) = difference(("the stream", &expected), ("the primary", &found)) {
        cluster.find(text);
    }
}
