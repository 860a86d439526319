//! The number of good replicas, which `min-replicas-to-write` requires for writes. A good replica
//! is online and has acknowledged within `min-replicas-max-lag` seconds.

use std::sync::atomic::Ordering::Relaxed;

use replicate::primary::Primary;

use crate::config::ConfigStore;
use crate::config::table::replication::{MIN_REPLICAS_MAX_LAG, MIN_REPLICAS_TO_WRITE};
use crate::shared::Shared;

/// The number of good replicas that writes require: the options `min-replicas-to-write` and
/// `min-replicas-max-lag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The minimum number of good replicas; with fewer, writes are refused.
    pub replicas: usize,
    /// The maximum time since the last acknowledgement of a good replica, in seconds.
    pub lag_max_s: u64,
}

impl Demand {
    /// Reads the requirement from the options. Returns `None` if one of them is 0, so that nothing
    /// is required.
    pub fn of(config: &ConfigStore) -> Option<Self> {
        let (replicas, lag_max_s) = (MIN_REPLICAS_TO_WRITE.of(config), MIN_REPLICAS_MAX_LAG.of(config));
        (replicas > 0 && lag_max_s > 0).then_some(Self { replicas, lag_max_s })
    }

    /// Returns the number of good replicas at `now_ms` of the uptime clock ([`Shared::uptime_ms`]).
    pub fn count_good(self, primary: &Primary, now_ms: u64) -> usize {
        primary.count_good(now_ms, self.lag_max_s)
    }
}

/// Counts the good replicas at `now_ms` of the uptime clock ([`Shared::uptime_ms`]), and makes the
/// engine refuse or accept writes. Called when a replica acknowledges, connects or disconnects,
/// every second, and when the options change. The caller holds no lock of replication or
/// configuration.
pub fn update_good_replicas(shared: &Shared, now_ms: u64) {
    let demand = Demand::of(&shared.config());
    let is_short = demand
        .is_some_and(|demand| demand.count_good(&shared.replication.primary(), now_ms) < demand.replicas);
    shared.engine.server_state.lacks_replicas.store(is_short, Relaxed);
}
