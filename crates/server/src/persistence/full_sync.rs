//! The snapshot of a full sync: the data at one point of the replication stream, as an RDB file in
//! a [`Spool`], the queue of its bytes to the replicas.
//!
//! The keys are read in the same way as for a save. Only one such reading of all keys is in
//! progress at a time: that of a save, of a rewrite of the append-only file, or of a full sync.
//! While it runs, commands and INFO show it as a background save, as Redis shows the child process
//! of a diskless sync. Its result does not change the time and the status of the last save that
//! INFO shows.
//!
//! A flush of all data does not shorten the file ([`OnFlush::Continue`]). The flush follows in the
//! stream, but a replica has the data of the file at the offset that the file names. It can lose
//! its link there, be promoted, or have replicas of its own before it receives the flush.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use keyspace::Exclusive;
use keyspace::snapshot::OnFlush;
use persist::folder::{FileError, Unsaved, give_up};
use persist::rdb::FileVersion;
use persist::save::{Contents, Failed, Progress, Save, SaveOptions, Unfit, Way};

use super::stream_point::PointFacts;
use super::{fix, run_walkers, save_options};
use crate::replication::spool::Spool;
use crate::shared::Shared;
use crate::snapshots::SaveInitiator;

/// The properties of the snapshot that a full sync writes: its version, its contents and its
/// destination.
pub struct SnapshotRequest {
    /// The version of the RDB format; `None` for the version that the option `rdb-version` sets.
    pub version: Option<FileVersion>,
    /// The kinds of data that the snapshot must contain: keys, functions or both.
    pub contents: Contents,
    /// The spool, a queue of bytes to the replicas, into which the snapshot is written. If all
    /// readers of the spool are dropped, the snapshot is abandoned.
    pub spool: Arc<Spool>,
}

/// The result of a request to begin a full sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginResult {
    /// The full sync has begun. The bytes of the snapshot and its end arrive in the spool, from
    /// which replicas get them.
    Started,
    /// The full sync has not begun because of a save, a rewrite, loading, or the end of the server.
    /// The caller tries again later.
    Busy,
    /// The full sync has not begun: the data cannot be written in the requested version.
    Unfit(Unfit),
}

/// Returns true if a full sync cannot begin now, because of a save, a rewrite, loading, or the end
/// of the server. [`begin`] checks this again, as the exclusive owner of the keyspace.
pub fn is_busy(shared: &Shared) -> bool {
    let server_state = &shared.engine.server_state;
    server_state.is_loading.load(Relaxed)
        || server_state.is_stopping.load(Relaxed)
        || !shared.persistence.may_be_saved()
        || shared.append_only.is_rewriting()
        || shared.persistence.state().current.is_some()
}

/// Begins a full sync. When the point of the snapshot (the moment whose data it contains) is fixed,
/// calls `at_point` as the exclusive owner of the keyspace; it returns the AUX fields that describe
/// this point in the replication stream. Does not call it if the full sync does not begin. The
/// caller is outside the gate that guards the keyspace.
pub fn begin(
    shared: &Arc<Shared>,
    request: SnapshotRequest,
    at_point: &mut dyn FnMut(&Exclusive) -> PointFacts,
) -> BeginResult {
    let SnapshotRequest { version, contents, spool } = request;
    let options = save_options(shared);
    let version = version.or(options.version);
    let options = SaveOptions { version, contents, on_flush: OnFlush::Continue, ..options };
    let begun = shared.engine.gate.exclusive(|alone| {
        let save = fix_point(shared, alone, options)?;
        let facts = at_point(alone);
        // A file without the data must not name a point whose data a server has that loads it.
        if contents == Contents::all() {
            facts.add_to(&save);
        }
        Ok(save)
    });
    match begun {
        Ok(save) => {
            write_in_background(shared, save, spool);
            BeginResult::Started
        }
        Err(refused) => refused,
    }
}

/// Fixes the point of a full sync, the moment whose data the snapshot contains.
///
/// # Errors
/// The reason why the full sync cannot begin.
fn fix_point(shared: &Shared, alone: &Exclusive, options: SaveOptions) -> Result<Arc<Save>, BeginResult> {
    let server_state = &shared.engine.server_state;
    let is_ending = server_state.is_stopping.load(Relaxed) || shared.stopping.load(Relaxed);
    if is_ending || server_state.is_loading.load(Relaxed) {
        return Err(BeginResult::Busy);
    }
    let save = fix(shared, alone, options, SaveInitiator::Replicas).ok_or(BeginResult::Busy)?;
    let Some(unfit) = save.unfit() else { return Ok(save) };
    save.take_back(&shared.engine, alone);
    shared.persistence.state().current = None;
    shared.persistence.ended.notify_all();
    Err(BeginResult::Unfit(unfit))
}

/// Starts the thread that reads all data and writes the snapshot into the spool, the queue of its
/// bytes to the replicas.
fn write_in_background(shared: &Arc<Shared>, save: Arc<Save>, spool: Arc<Spool>) {
    tracing::info!("Background RDB transfer started");
    let (thread_shared, thread_save, thread_spool) =
        (Arc::clone(shared), Arc::clone(&save), Arc::clone(&spool));
    let abandoned = (Arc::downgrade(shared), Arc::downgrade(&save));
    spool.set_on_abandoned(Box::new(move || {
        if let (Some(shared), Some(save)) = (abandoned.0.upgrade(), abandoned.1.upgrade()) {
            shared.persistence.cancel_save(&shared.engine, &save);
        }
    }));
    let body = move || {
        let (shared, save, spool) = (&*thread_shared, &*thread_save, &*thread_spool);
        let written = save.write_into(&shared.engine, spool, |out| run_walkers(shared, save, out, Way::Gate));
        end(shared, spool, result_of(save, written));
    };
    if let Err(error) = std::thread::Builder::new().name("repl-sync".to_owned()).spawn(body) {
        // The thread cannot be created, but the walk has begun and must be ended.
        give_up(&save, &shared.engine, |out| run_walkers(shared, &save, out, Way::Gate));
        end(shared, &spool, Err(FileError(error.to_string()).into()));
    }
}

fn result_of(save: &Save, written: Result<Progress, Failed>) -> Result<(), Unsaved> {
    match (written, save.unfit()) {
        (Ok(_), _) => Ok(()),
        (Err(Failed), Some(unfit)) => Err(FileError(unfit.to_string()).into()),
        // The spool knows the reason if it has failed, and keeps it.
        (Err(Failed), None) => Err(Unsaved::Cancelled),
    }
}

/// Ends the full sync: the next save can begin, and the readers of the spool learn that the
/// snapshot is complete or has failed.
fn end(shared: &Shared, spool: &Spool, result: Result<(), Unsaved>) {
    let persistence = &shared.persistence;
    let mut state = persistence.state();
    if let Some(current) = state.current.take() {
        state.record.last_took_s = Some(current.since.elapsed().as_secs());
    }
    drop(state);
    persistence.ended.notify_all();
    spool.end(result);
    match spool.failure() {
        None => tracing::info!("The snapshot for replicas is complete"),
        Some(Unsaved::Cancelled) => tracing::warn!("Background transfer terminated by signal 10"),
        Some(Unsaved::Failed(trouble)) => tracing::warn!("Background transfer error: {trouble}"),
    }
}

#[cfg(test)]
mod tests;
