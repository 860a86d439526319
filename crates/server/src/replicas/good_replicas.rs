//! The number of replicas that follow closely, which `min-replicas-to-write` demands for writes.

use std::sync::atomic::Ordering::Relaxed;

use replicate::primary::Primary;

use crate::config::ConfigStore;
use crate::config::table::replication::{MIN_REPLICAS_MAX_LAG, MIN_REPLICAS_TO_WRITE};
use crate::shared::Shared;

/// The requirement of `min-replicas-to-write` and `min-replicas-max-lag`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    /// The number of good replicas below which writes are refused.
    pub replicas: usize,
    /// The time without an acknowledgement after which a replica is no longer good, in seconds.
    pub lag_max_s: u64,
}

impl Demand {
    /// Reads the options. Returns `None` if one of them is 0: nothing is demanded.
    pub fn of(config: &ConfigStore) -> Option<Self> {
        let (replicas, lag_max_s) = (MIN_REPLICAS_TO_WRITE.of(config), MIN_REPLICAS_MAX_LAG.of(config));
        (replicas > 0 && lag_max_s > 0).then_some(Self { replicas, lag_max_s })
    }

    /// Returns the number of good replicas at `now_ms`, the clock of the table of replicas.
    pub fn count_good(self, primary: &Primary, now_ms: u64) -> usize {
        primary.count_good(now_ms, self.lag_max_s)
    }
}

/// Counts the good replicas at `now_ms` of the uptime clock ([`Shared::uptime_ms`]), and sets
/// whether writes are refused. Called when a replica acknowledges, comes or leaves, when time
/// passes, and when the options change. The caller holds no lock of replication or configuration.
pub fn update_good_replicas(shared: &Shared, now_ms: u64) {
    let demand = Demand::of(&shared.config());
    let is_short = demand
        .is_some_and(|demand| demand.count_good(&shared.replication.primary(), now_ms) < demand.replicas);
    shared.engine.server_state.lacks_replicas.store(is_short, Relaxed);
}
