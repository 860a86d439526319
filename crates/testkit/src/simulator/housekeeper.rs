//! The housekeeper of the simulated server: active expiry, and lazy freeing of values.

use engine::clock::Clock;
use engine::expire::ActiveExpiry;
use engine::run::Executor;
use engine::shared::GateSlot;

use super::kernel::Message;
use super::world::World;

/// Time between two rounds of active expiry and lazy freeing, in milliseconds.
pub(super) const ROUND_MS: u64 = 100;
/// Maximum number of pieces of big values that are freed in one step.
const FREED_PIECES_PER_STEP: usize = 64;

/// Runs the housekeeper's thread of the simulated server until it receives [`Message::Stop`].
pub(super) fn run(world: &World, seed: u64) {
    let shared = &*world.engine;
    let port = &world.kernel.ports[world.threads()];
    let host = world.host();
    let mut executor = Executor::new(shared, None, seed, (world.clock.clone(), host));
    let mut expiry = ActiveExpiry::new(world.clock.now());
    let mut next_round_ms = ROUND_MS;
    while port.mailbox.receive() != Some(Message::Stop) {
        if shared.freeing.take_awaited() {
            world.resume_all();
        }
        if world.uptime_ms() >= next_round_ms {
            if engine::evict::is_exceeded(shared) {
                let _ = world.kernel.ports[0].mailbox.send(Message::EnforceMemory);
            }
            expiry.begin_round(shared, 100);
            next_round_ms = world.uptime_ms() + ROUND_MS;
        }
        if expiry.next_slice().is_some_and(|next| next <= world.clock.now()) {
            expiry.slice(&mut executor, |outbox, _| {
                shared.log.merge(outbox);
                world.wake(outbox);
            });
        }
        let gate_index = shared.gate_index(GateSlot::Housekeeper);
        let departed = shared.tracking.remove_departed(&shared.keyspace, &shared.gate, gate_index);
        if !(departed | shared.freeing.free_some(FREED_PIECES_PER_STEP)) {
            let next_slice_ms = expiry.next_slice().map(|next| shared.uptime(next).as_millis() as u64 + 1);
            let deadline_ms = next_slice_ms.map_or(next_round_ms, |next| next.min(next_round_ms));
            let may_sleep = port.mailbox.prepare_sleep();
            port.poll.wait(may_sleep.then_some(Some(deadline_ms)));
            port.mailbox.awake();
        }
    }
    world.kernel.leave();
}
