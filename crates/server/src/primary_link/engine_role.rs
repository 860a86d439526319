//! The part of the engine's state that depends on the role of the server: primary or replica.

use std::sync::atomic::Ordering::Relaxed;

use engine::shared::Hindrances;

use crate::config::table::replication as options;
use crate::replication::upstream::LinkPhase;
use crate::shared::Shared;

/// Passes the role and the options that depend on it to the engine: `replica-read-only`,
/// `replica-serve-stale-data` and `replica-ignore-maxmemory`. Called after each change of the role,
/// of the phase of the link to the primary, or of one of these options. Also called before and
/// after a primary's snapshot is loaded into hidden data beside the old data.
pub fn update_engine(shared: &Shared) {
    let (is_read_only, serves_stale, ignores_limit) = {
        let store = shared.config();
        (
            options::REPLICA_READ_ONLY.of(&store),
            options::REPLICA_SERVE_STALE_DATA.of(&store),
            options::REPLICA_IGNORE_MAXMEMORY.of(&store),
        )
    };
    let link = shared.replication.upstream.link();
    let is_connected = link.as_ref().is_some_and(|link| link.phase == LinkPhase::Connected);
    let is_replica = link.is_some();
    let is_loading_beside = shared.replication.upstream.is_async_loading.load(Relaxed);
    let role = &shared.engine.server_state.role;
    // Relaxed: each turn reads them anew. The change of the role itself is ordered by the gate.
    role.is_replica.store(is_replica, Relaxed);
    role.refuses_writes.store(is_replica && is_read_only, Relaxed);
    let is_stale = is_replica && !is_connected && !serves_stale;
    role.note(Hindrances { is_stale, is_loading_beside });
    // As during any load, nothing is evicted for the new data. It is no change of the old data.
    role.ignores_memory_limit.store(is_replica && ignores_limit || is_loading_beside, Relaxed);
}
