//! The rule by which commands treat expired keys and fields that they access.

use std::sync::atomic::Ordering::Relaxed;

use commands::Command;
use commands::table::Flags;
use keyspace::view::ExpiredAccess;

use crate::settings::Settings;
use crate::shared::{Pause, Role};
use crate::table::Runner;

/// The rule by which the commands of a turn (a pass of the event loop) treat expired keys and
/// fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryRule {
    /// Commands remove the expired keys that they access.
    Usual,
    /// Data is imported (`import-mode`): only writes remove expired keys. The importing client
    /// still sees expired keys.
    Importing,
    /// The server is a replica: only the primary's replication stream removes expired keys. Its
    /// commands still see expired keys; clients do not.
    Replica,
    /// Clients are paused (CLIENT PAUSE): expired keys stay, so that the change log does not grow.
    /// Reads do not see them.
    Paused,
}

impl ExpiryRule {
    /// Returns the rule for expired keys in a turn (a pass of the event loop) that begins at
    /// `now_ms`, in Unix milliseconds. The role of a replica takes precedence over a pause, and a
    /// pause over `import-mode`.
    #[inline]
    pub fn of(pause: &Pause, settings: &Settings, role: &Role, now_ms: i64) -> Self {
        match (role.is_replica.load(Relaxed), pause.is_on(now_ms), settings.import_mode) {
            (true, ..) => Self::Replica,
            (false, true, _) => Self::Paused,
            (false, false, true) => Self::Importing,
            (false, false, false) => Self::Usual,
        }
    }

    /// Returns the treatment of expired keys for a command. `imports` returns true for a client
    /// that imports data, and for the replication stream of a primary. Frequent callers check for
    /// the usual rule before they call this, so only that check is inlined into them.
    #[cold]
    #[inline(never)]
    pub fn access(self, command: &Command<Runner>, imports: impl FnOnce() -> bool) -> ExpiredAccess {
        match (self, command.flags.contains(Flags::WRITE)) {
            (Self::Usual, _) => ExpiredAccess::Remove,
            _ if imports() => ExpiredAccess::Show,
            (Self::Importing | Self::Replica, true) => ExpiredAccess::RemoveOnAccess,
            // A write must not find an expired key in its place. Writes are postponed during a
            // pause, except those that were in progress.
            (Self::Paused, true) => ExpiredAccess::Remove,
            (Self::Importing | Self::Replica | Self::Paused, false) => ExpiredAccess::Hide,
        }
    }

    /// Returns the treatment of expired keys when the values that clients are blocked on are
    /// inspected before the clients are served.
    pub fn access_before_serving(self) -> ExpiredAccess {
        match self {
            Self::Usual => ExpiredAccess::Remove,
            // The client's own request decides.
            Self::Importing | Self::Replica => ExpiredAccess::Show,
            Self::Paused => ExpiredAccess::Hide,
        }
    }
}
