//! The wait of a shutdown for the replicas: the server ends after they have acknowledged the last
//! changes.

use std::time::{Duration, Instant};

use engine::shared::PauseReason;

use crate::config::table::process::SHUTDOWN_TIMEOUT;
use crate::replication::table::{Row, rows};
use crate::shared::{Message, Shared};
use crate::shutdown::ShutdownOptions;

/// Time between two checks whether the replicas have acknowledged all changes.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The result of the wait of a shutdown for replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEnd {
    /// The shutdown continues: all replicas have all changes, or `shutdown-timeout` has passed.
    Over,
    /// The shutdown was aborted while it waited for replicas.
    Aborted,
}

/// Returns the replicas that acknowledge changes, so that a shutdown waits for them.
fn followers(shared: &Shared) -> Vec<Row> {
    let mut rows = rows(&shared.replication.primary(), shared.uptime_ms());
    rows.retain(|row| row.acknowledges);
    rows
}

/// Returns true if a shutdown with these options would wait for replicas now.
pub fn must_wait(shared: &Shared, wish: ShutdownOptions) -> bool {
    let position = shared.engine.log.drawn();
    !wish.at_once
        && SHUTDOWN_TIMEOUT.of(&shared.config()) > 0
        && followers(shared).iter().any(|row| !row.has_acked(position))
}

/// Pauses writes and waits until all replicas have acknowledged all changes, at most for
/// `shutdown-timeout`. Returns at once if they have acknowledged them already. The caller is
/// outside the gate that guards the keyspace. If the server then does not end, the caller calls
/// [`resume_writes`].
pub fn wait_for_replicas(shared: &Shared, request: u64, wish: ShutdownOptions) -> WaitEnd {
    let requests = &shared.shutdown_request;
    if !requests.is_wanted(request) {
        return WaitEnd::Aborted;
    }
    if !must_wait(shared, wish) {
        return WaitEnd::Over;
    }
    tracing::info!("Waiting for replicas before shutting down.");
    let timeout_s = SHUTDOWN_TIMEOUT.of(&shared.config());
    let deadline = Instant::now() + Duration::from_secs(timeout_s);
    requests.note_wait(request, Some(shared.uptime_ms() + timeout_s * 1000));
    // Relaxed: a thread may notice the pause a turn later. The exclusive step below orders it.
    if !requests.if_wanted(request, || shared.engine.pause.begin(PauseReason::Shutdown)) {
        return WaitEnd::Aborted;
    }
    if !shared.engine.scripts.is_any_busy() {
        // After this step, no turn is running that began before the pause, so no write is in
        // progress.
        shared.engine.gate.exclusive(|_| ());
    }
    let position = shared.engine.log.drawn();
    shared.replication.request_ack(position);
    while followers(shared).iter().any(|row| !row.has_acked(position)) && Instant::now() < deadline {
        if !requests.is_wanted(request) {
            return WaitEnd::Aborted;
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    requests.note_wait(request, None);
    WaitEnd::Over
}

/// Ends the pause of writes of a shutdown that was aborted or has failed. Keeps the pause if
/// another shutdown is requested, which ends it later.
pub fn resume_writes(shared: &Shared) {
    let mut was_paused = false;
    let pause = &shared.engine.pause;
    shared.shutdown_request.unless_pending(|| was_paused = pause.end(PauseReason::Shutdown));
    if was_paused {
        shared.broadcast(|| Message::Resume);
    }
}

/// Logs each replica that lacks changes at the shutdown, and the number of replicas that have all
/// changes.
pub fn log_replicas(shared: &Shared) {
    let position = shared.engine.log.drawn();
    let rows = rows(&shared.replication.primary(), shared.uptime_ms());
    let lagging: Vec<&Row> = rows.iter().filter(|row| !row.has_acked(position)).collect();
    for row in &lagging {
        let (name, Row { behind_bytes, lag_s, state, .. }) = (row.name(), row);
        tracing::info!(
            "Lagging replica {name} reported offset {behind_bytes} behind master, lag={lag_s}, state={state}."
        );
    }
    if !rows.is_empty() {
        let (in_sync, all) = (rows.len() - lagging.len(), rows.len());
        tracing::info!("{in_sync} of {all} replicas are in sync when shutting down.");
    }
}
