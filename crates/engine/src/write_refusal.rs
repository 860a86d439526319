//! The refusal of requests and scripts because of the state of the server: its disk, its replicas,
//! or its role.

use std::sync::atomic::Ordering::Relaxed;

use commands::CommandError;

use crate::call::Host;
use crate::clock::Clock;
use crate::run::Executor;
use crate::scripting::{Prepared, ScriptTraits};
use crate::table::ScriptVerb;

/// The error for commands on a replica that may not show old data.
pub(crate) const STALE_REPLICA: CommandError =
    CommandError::Line("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.");

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Returns the error for writes, if there is one, in the present state of the disk, of the
    /// replicas and of the role, in Redis' order. A primary's replication stream is never refused.
    pub(crate) fn write_refusal(&self) -> Option<CommandError> {
        if self.applied_epoch.is_some() {
            return None;
        }
        self.disk_refusal()
            .or_else(|| {
                let server_state = &self.shared().server_state;
                // As in Redis, a replica demands no replicas for the writes of its clients.
                let lacks_replicas =
                    server_state.lacks_replicas.load(Relaxed) && !server_state.role.is_replica.load(Relaxed);
                lacks_replicas.then_some(CommandError::Line("NOREPLICAS Not enough good replicas to write."))
            })
            .or_else(|| {
                let is_refused = self.shared().server_state.role.refuses_writes.load(Relaxed);
                is_refused
                    .then_some(CommandError::Line("READONLY You can't write against a read only replica."))
            })
    }

    /// Returns true if the server is a replica that is not connected to its primary and that may
    /// not show old data to clients.
    pub(crate) fn is_stale(&self) -> bool {
        self.shared().server_state.role.is_stale() && self.applied_epoch.is_none()
    }

    /// Returns the error for writes after a failed save, or while the append-only file cannot be
    /// written; `None` if both work.
    pub(crate) fn disk_refusal(&self) -> Option<CommandError> {
        let server_state = &self.shared().server_state;
        let is_refused = server_state.save_failed.load(Relaxed) && self.settings.stops_writes_on_save_error;
        if !is_refused && server_state.log_failed.load(Relaxed) {
            let trouble = server_state.log_error.lock();
            return Some(CommandError::quoting(
                "MISCONF Errors writing to the AOF file: ",
                trouble.as_bytes(),
                "",
            ));
        }
        is_refused.then_some(CommandError::Line(
            "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. \
             Commands that may modify the data set are disabled, because this instance is configured to report \
             errors during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check \
             the Redis logs for details about the RDB error.",
        ))
    }

    /// Determines whether the next requests may have to be delayed or refused. Called at the start
    /// of a turn (pass of the event loop), and after this thread has let another thread own the
    /// keyspace.
    #[inline]
    pub(crate) fn look_at_refusals(&mut self) {
        self.may_hold_back = self.holds_back();
    }

    /// Returns true if requests may have to be delayed or refused. The reasons are CLIENT PAUSE, a
    /// full change log, too many unwritten entries of a snapshot, a busy script and loading.
    /// Further reasons are a failed save, too few replicas, the role of a replica, and the end of
    /// the server.
    #[inline]
    pub fn holds_back(&self) -> bool {
        // The applier obeys its primary in all states.
        self.applied_epoch.is_none()
            && (self.shared().pause.is_on(self.now.unix_ms)
                || self.commit.awaits_room()
                || self.shared().server_state.may_refuse()
                || self.shared().scripts.is_any_busy()
                || !self.is_inside)
    }

    /// Checks that the flags which a script declares permit it to run now.
    pub(crate) fn check_script(&self, prepared: &Prepared, verb: ScriptVerb) -> Result<(), CommandError> {
        let traits = prepared.traits;
        if traits.contains(ScriptTraits::COMPATIBLE) {
            return if self.is_stale() { Err(STALE_REPLICA) } else { Ok(()) };
        }
        if !traits.contains(ScriptTraits::NO_WRITES) {
            if verb.is_read_only() {
                return Err(CommandError::Line(
                    "ERR Can not execute a script with write flag using *_ro command.",
                ));
            }
            if let Some(error) = self.write_refusal() {
                return Err(error);
            }
        }
        if self.is_stale() && !traits.contains(ScriptTraits::ALLOW_STALE) {
            return Err(STALE_REPLICA);
        }
        if self.script_lacks_memory && !traits.intersects(ScriptTraits::NO_WRITES | ScriptTraits::ALLOW_OOM) {
            return Err(CommandError::Line(
                "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
            ));
        }
        Ok(())
    }
}
