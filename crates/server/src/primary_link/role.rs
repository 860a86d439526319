//! The changes of the role: from primary to replica, from one primary to another, and back.
//!
//! The role changes under the exclusive ownership of the keyspace. No command or transaction is in
//! progress then, and each later one runs under the new role. The replication stream of a former
//! primary is applied no further, and a write that was checked under the old role is checked again.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use engine::threads::Outbox;
use keyspace::Exclusive;

use super::engine_role::update_engine;
use crate::random::random_repl_id;
use crate::replica_stream as stream;
use crate::replication::upstream::{Link, PrimaryAddress};
use crate::shared::Shared;

/// Makes this server a replica of the primary at `address`, and ends the link to a former primary.
/// The data stays until the new primary sends a snapshot. The server will ask the primary to
/// continue its present replication history, or the one before if the present one is empty. The
/// caller is the exclusive owner of the keyspace. The thread `primary-link`, if it runs, opens the
/// link afterwards.
pub fn follow(shared: &Arc<Shared>, alone: &Exclusive, address: PrimaryAddress, outbox: &Outbox) {
    // The reader receives all changes so far. Later changes do not belong to this server's history.
    stream::detach(shared, alone, outbox);
    let mut primary = shared.replication.primary();
    let own = primary.history().id;
    primary.follow();
    let present = primary.history().id;
    drop(primary);
    if present != own {
        tracing::info!("Nothing was written under the replication ID {own}: returning to {present}");
    }
    change(shared, Some(Link::new(address)));
}

/// Makes this server a primary, which continues the replication history of its former primary. Its
/// replicas are disconnected, reconnect and continue. Does nothing on a primary. The caller is the
/// exclusive owner of the keyspace.
pub fn promote(shared: &Arc<Shared>, alone: &Exclusive, outbox: &Outbox) {
    let replication = &shared.replication;
    if !replication.upstream.is_replica() {
        return;
    }
    replication.primary().promote(random_repl_id(), shared.uptime_ms());
    change(shared, None);
    stream::attach_again(shared, alone, outbox);
    replication.notify();
}

/// Replaces the link to the primary by `link`, or removes it. The replication stream of the former
/// primary is applied no further.
fn change(shared: &Arc<Shared>, link: Option<Link>) {
    let upstream = &shared.replication.upstream;
    let former = upstream.set_link(link);
    if let Some(client) = former.and_then(|link| link.client) {
        shared.engine.clients.remove(client);
    }
    shared.engine.server_state.role.local_deadlines.clear();
    // Relaxed: read inside the gate, which orders it.
    shared.engine.server_state.role.epoch.fetch_add(1, Relaxed);
    update_engine(shared);
}
