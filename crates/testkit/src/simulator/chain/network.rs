//! The links between nodes, their clocks, and the periodic messages of a primary (PING, GETACK).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::link::WIRE_BYTES_MAX;
use super::node::{BACKLOG_BYTES, Cluster, OUTPUT_BYTES, State};
use crate::Rng;

/// Maximum memory of a backlog, in bytes: the bytes it keeps, the unread bytes of one replica, and
/// 8 KiB for partly used blocks and one batch of the change log.
const MEMORY_BYTES_MAX: u64 = BACKLOG_BYTES + OUTPUT_BYTES + 8192;
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// Runs the thread that moves bytes between the nodes and moves their clocks, until the run stops.
pub(super) fn run(cluster: &Cluster, mut rng: Rng) {
    while !cluster.stops() {
        let node = rng.below(cluster.nodes.len());
        let drawn = cluster.nodes[node].engine.log.drawn();
        let may_cut = cluster.cuts.load(Relaxed) && rng.percent(1);
        let memory = cluster.with(node, |state| {
            if rng.percent(3) {
                // As a server does, whatever its role.
                state.primary.append(PING);
            }
            if rng.percent(2) {
                state.primary.request_ack(drawn);
            }
            if may_cut {
                cut_one(state, &mut rng);
            }
            pass_on(state, &mut rng);
            state.primary.backlog().map_or(0, |backlog| backlog.memory_bytes())
        });
        if memory > MEMORY_BYTES_MAX {
            cluster.find(format!("the backlog of node {node} has {memory} bytes"));
        }
        if rng.percent(10) {
            cluster.nodes[node].clock.advance(Duration::from_micros(rng.below(3000) as u64));
        }
        shuttle::thread::yield_now();
    }
}

/// Cuts a random link between the node of `state` and one of its replicas.
fn cut_one(state: &State, rng: &mut Rng) {
    let wires: Vec<_> = state.wires.values().collect();
    if !wires.is_empty() {
        rng.pick(&wires).lock().expect("nothing panics while it is locked").is_cut = true;
    }
}

/// Passes acknowledgements and bytes of the replication stream between a node and one of its
/// replicas, chosen at random. Cuts the links of replicas that exceed their output limit.
fn pass_on(state: &mut State, rng: &mut Rng) {
    for client in state.primary.over_limit(0) {
        if let Some(wire) = state.wires.get(&client) {
            wire.lock().expect("nothing panics while it is locked").is_cut = true;
        }
    }
    state.cut_outdated();
    let clients: Vec<u64> = state.wires.keys().copied().collect();
    if clients.is_empty() {
        return;
    }
    let client = *rng.pick(&clients);
    let wire = Arc::clone(&state.wires[&client]);
    let mut wire = wire.lock().expect("nothing panics while it is locked");
    while let Some(acked) = wire.up.pop_front() {
        // What was acknowledged of a former history may be beyond the new one.
        let is_possible = wire.is_cut || acked <= state.primary.end();
        assert!(is_possible, "an acknowledged offset beyond the stream");
        state.primary.acknowledge(client, acked, None, 0);
    }
    let room = WIRE_BYTES_MAX.saturating_sub(wire.down.len()).min(800);
    for piece in state.primary.take_for(client, rng.below(room + 1)) {
        wire.down.extend(piece.as_ref());
    }
    state.primary.free_sent();
}
