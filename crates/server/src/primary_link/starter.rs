//! The start of the thread `primary-link`, when the server becomes a replica for the first time.

use std::sync::atomic::Ordering::Acquire;

use crate::shared::Shared;

/// Starts the thread `primary-link`, unless it already runs or the server stops.
pub fn start(shared: &Shared) {
    let upstream = &shared.replication.upstream;
    let mut thread = upstream.thread.lock().expect("nothing panics while it is locked");
    let starter = upstream.starter.lock().expect("nothing panics while it is locked").take();
    if let Some(starter) = starter.filter(|_| !shared.stopping.load(Acquire)) {
        match starter() {
            Ok(started) => *thread = Some(started),
            Err(error) => tracing::error!(%error, "cannot start the thread that follows the primary"),
        }
    }
}
