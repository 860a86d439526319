//! The last writes of a server that shuts down: the data to save, as the options and the arguments
//! of SHUTDOWN require.

use std::sync::atomic::Ordering::Relaxed;

use engine::threads::Outbox;
use keyspace::Exclusive;
use persist::save::Way;
use resp::Reply;
use stdx::ByteQueue;

use super::file_times::date_files;
use super::last_acks::{WaitEnd, log_replicas, resume_writes, wait_for_replicas};
use super::{SavePlace, aof, save_here, stream_point, wait_for_end};
use crate::shared::Shared;
use crate::shutdown::ShutdownOptions;
use crate::snapshots::{Cancelled, save_rules};

/// The writes that are necessary before a server ends: a snapshot, the append-only file, both or
/// none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalSave {
    saves: bool,
    appends: bool,
}

/// Runs the shutdown request with this number: waits for replicas, writes the data and stops the
/// server. If the request is aborted or fails, the clients that wait for it get an error. The
/// calling thread is outside the gate that guards the keyspace.
pub fn run_request(shared: &Shared, request: u64, wish: ShutdownOptions) {
    let requests = &shared.shutdown_request;
    let save = || {
        let run = |work: FinalSave| work.run(shared, wish, || requests.begin(request));
        last_work(shared, wish).map_or(Ending::Failed, run)
    };
    let ending = match wait_for_replicas(shared, request, wish) {
        WaitEnd::Over => save(),
        WaitEnd::Aborted => Ending::Aborted,
    };
    if ending == Ending::Ready {
        return shared.stop();
    }
    if ending == Ending::Failed {
        tracing::warn!("Errors trying to shut down the server. Check the logs for more information.");
        requests.give_up(request);
    }
    resume_writes(shared);
    let outbox = Outbox::default();
    for client in requests.take_clients(request) {
        end_wait_with_error(shared, client, &outbox);
    }
    shared.wake(&outbox);
}

/// Replies with an error to a client that waits for a SHUTDOWN that has failed or was aborted.
fn end_wait_with_error(shared: &Shared, client: u64, outbox: &Outbox) {
    let engine::Shared { clients, blocked, threads, .. } = &shared.engine;
    let waiter = clients.get(client).and_then(|client| blocked.of(&client));
    let Some(waiter) = waiter.filter(|waiter| blocked.end(waiter)) else { return };
    shared.engine.count_failure(waiter.thread, waiter.registered, SHUTDOWN_ERROR.as_bytes());
    let mut reply = ByteQueue::new();
    Reply::new(&mut reply, waiter.protocol).error(SHUTDOWN_ERROR);
    threads.deliver(waiter.thread, waiter.delivery(reply), outbox);
}

/// The error reply of SHUTDOWN if the server does not end.
pub const SHUTDOWN_ERROR: &str = "ERR Errors trying to SHUTDOWN. Check logs.";

/// Prepares the end of the server. Logs the replicas that lack changes, cancels the background
/// save, and returns the writes that are still necessary. Returns `None` if the first base of the
/// append-only file is incomplete and the shutdown is not forced: the server must not end.
pub fn last_work(shared: &Shared, wish: ShutdownOptions) -> Option<FinalSave> {
    log_replicas(shared);
    if shared.persistence.cancel(&shared.engine) == Cancelled::InProgress {
        tracing::warn!("There is a child saving an .rdb. Killing it!");
    }
    let has_rules = !save_rules(&shared.config()).is_empty();
    // If the data was not completely loaded, a save would replace the complete data of the file.
    let is_whole = shared.has_all_data();
    if is_whole && shared.append_only.state().awaits_base {
        if !wish.by_force {
            tracing::warn!("Writing initial AOF, can't exit.");
            return None;
        }
        tracing::warn!("Writing initial AOF. Exit anyway.");
    }
    let saves = !wish.forbids_save && (wish.saves || has_rules) && is_whole;
    Some(FinalSave { saves, appends: shared.append_only.active().is_some() })
}

/// The result of an attempt to write all data and end the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All data is written: the server may stop now.
    Ready,
    /// The server continues: the data could not be saved.
    Failed,
    /// The server continues: the shutdown was aborted.
    Aborted,
}

impl FinalSave {
    /// Returns true if no writes are necessary before the server ends.
    pub fn is_nothing(self) -> bool {
        !self.saves && !self.appends
    }

    /// Writes all data, and makes the engine run no more requests. Calls `begin` at most once,
    /// before the step after which the shutdown cannot be aborted; `begin` returns false if it was
    /// aborted already. The caller is outside the gate that guards the keyspace, because other
    /// saves need the gate to end.
    ///
    /// If the data must be saved, the function waits for a running script, because the server
    /// continues if the save fails. Otherwise the script is stopped and its changes are undone.
    pub fn run(self, shared: &Shared, wish: ShutdownOptions, begin: impl Fn() -> bool) -> Ending {
        let is_stopping = &shared.engine.server_state.is_stopping;
        if !self.saves {
            if !begin() {
                return Ending::Aborted;
            }
            is_stopping.store(true, Relaxed);
            if self.is_nothing() {
                return Ending::Ready;
            }
        }
        if aof::cancel_rewrite(shared) {
            tracing::warn!("A rewrite of the append-only file was cancelled for the shutdown.");
        }
        let mut ending = None;
        while ending.is_none() {
            if self.saves {
                shared.persistence.cancel(&shared.engine);
                shared.persistence.cancel_walk(&shared.engine);
                wait_for_end(shared);
            }
            shared.engine.gate.exclusive(|alone| {
                // Another save may have begun after the wait.
                if !self.saves || shared.persistence.state().current.is_none() {
                    ending = Some(match is_stopping.load(Relaxed) || begin() {
                        true => self.run_as_owner(shared, wish, alone),
                        false => Ending::Aborted,
                    });
                }
            });
        }
        ending.expect("the loop ends with one")
    }

    fn run_as_owner(self, shared: &Shared, wish: ShutdownOptions, alone: &Exclusive) -> Ending {
        let is_stopping = &shared.engine.server_state.is_stopping;
        // If another shutdown was first, no data has changed since: it has saved the data, or was
        // requested not to. If the load of a primary's snapshot has begun meanwhile, the file
        // stays.
        if self.saves && !is_stopping.load(Relaxed) && shared.has_all_data() {
            tracing::info!("Saving the final RDB snapshot before exiting.");
            // The snapshot names the end of the stream, so that replicas which have all of it can
            // continue after a restart.
            shared.replication.primary().begin_end();
            if !save_as_owner(shared, wish, alone) {
                shared.replication.primary().continue_after_all();
                return Ending::Failed;
            }
        }
        if self.appends {
            tracing::info!("Calling fsync() on the AOF file.");
            match aof::finish_all(shared) {
                Ok(()) => note_stream(shared, alone),
                Err(trouble) => tracing::warn!("Fail to fsync the AOF file: {trouble}"),
            }
            if self.saves {
                date_files(shared);
            }
        }
        // This is set before other threads enter the gate again, because their changes would be
        // lost.
        is_stopping.store(true, Relaxed);
        Ending::Ready
    }
}

/// Writes the present point of the replication stream to the end of the append-only file. After a
/// restart, this replica, or the replicas of this server, can continue from there.
fn note_stream(shared: &Shared, alone: &Exclusive) {
    if !shared.has_all_data() {
        return;
    }
    shared.replication.primary().begin_end();
    let (Some(note), Some(active)) = (stream_point::note(shared, alone), shared.append_only.active()) else {
        return;
    };
    if let Err(trouble) = active.writer.append_last_line(&note.line()) {
        tracing::warn!("The place in the replication stream cannot be added to the AOF file: {trouble}");
    }
}

fn save_as_owner(shared: &Shared, wish: ShutdownOptions, alone: &Exclusive) -> bool {
    match save_here(shared, (Way::Owner, SavePlace::BetweenUnits), |fix| fix(alone)) {
        Ok(()) => true,
        Err(_) if wish.by_force => {
            tracing::warn!("Error trying to save the DB. Exit anyway.");
            true
        }
        Err(_) => {
            tracing::warn!("Error trying to save the DB, can't exit.");
            false
        }
    }
}
