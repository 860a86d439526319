//! The refusal of writes because of the state of the disk or of the replicas.

use std::sync::atomic::Ordering::Relaxed;

use commands::CommandError;

use crate::call::Host;
use crate::clock::Clock;
use crate::run::Executor;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Returns the error for writes in the present state of the disk and of the replicas, in Redis'
    /// order.
    pub(crate) fn write_refusal(&self) -> Option<CommandError> {
        self.disk_refusal().or_else(|| {
            let lacks_replicas = self.shared().server_state.lacks_replicas.load(Relaxed);
            lacks_replicas.then_some(CommandError::Line("NOREPLICAS Not enough good replicas to write."))
        })
    }

    /// Returns the error for writes after a save that failed, or while the append-only file cannot
    /// be written.
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
}
