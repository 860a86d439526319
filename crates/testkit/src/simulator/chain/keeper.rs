//! The housekeeper of a simulated node: active expiry, and freeing of big values in steps.

use engine::clock::Clock;
use engine::expire::ActiveExpiry;
use engine::run::Executor;

use super::node::Cluster;
use crate::Rng;
use crate::simulator::host::SimulatedHost;

/// Maximum number of pieces of big values that are freed in one step.
const FREED_PIECES_PER_STEP: usize = 64;

/// Runs the housekeeper's thread of a simulated node until the run of the nodes stops.
pub(super) fn run(cluster: &Cluster, node: usize, mut rng: Rng) {
    let node = &cluster.nodes[node];
    let shared = &*node.engine;
    let host = SimulatedHost::new(&node.engine, &node.clock);
    let mut executor = Executor::new(shared, None, rng.next_u64(), (node.clock.clone(), host));
    let mut expiry = ActiveExpiry::new(node.clock.now());
    while !cluster.stops() {
        if rng.percent(1) {
            expiry.begin_round(shared, 100);
        }
        if expiry.next_slice().is_some_and(|next| next <= node.clock.now()) {
            expiry.slice(&mut executor, |outbox, _| {
                shared.log.merge(outbox);
                drop(outbox.take());
            });
        }
        shared.freeing.free_some(FREED_PIECES_PER_STEP);
        shuttle::thread::yield_now();
    }
}
