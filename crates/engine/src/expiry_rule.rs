//! The rule by which commands treat the expired keys and fields that they find.

use commands::Command;
use commands::table::Flags;
use keyspace::view::ExpiredAccess;

use crate::settings::Settings;
use crate::shared::Pause;
use crate::table::Runner;

/// The rule by which the commands of a turn treat expired keys and fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryRule {
    /// Commands remove the expired keys that they access.
    Usual,
    /// Data is imported (`import-mode`): only writes remove expired keys, and the importing client
    /// sees them.
    Importing,
    /// Clients are paused (CLIENT PAUSE): expired keys stay, so that the change log does not grow.
    /// Reads do not see them.
    Paused,
}

impl ExpiryRule {
    /// Returns the rule of a turn that begins at `now_ms`, in Unix milliseconds. A pause takes
    /// precedence over `import-mode`.
    #[inline]
    pub fn of(pause: &Pause, settings: &Settings, now_ms: i64) -> Self {
        match (pause.is_on(now_ms), settings.import_mode) {
            (true, _) => Self::Paused,
            (false, true) => Self::Importing,
            (false, false) => Self::Usual,
        }
    }

    /// Returns the treatment of expired keys for a command. `imports` returns true for a client
    /// that imports data. Callers on the hot path handle the usual rule themselves; this function
    /// is not inlined, so that they are.
    #[cold]
    #[inline(never)]
    pub fn access(self, command: &Command<Runner>, imports: impl FnOnce() -> bool) -> ExpiredAccess {
        match (self, command.flags.contains(Flags::WRITE)) {
            (Self::Usual, _) => ExpiredAccess::Remove,
            _ if imports() => ExpiredAccess::Show,
            (Self::Importing, true) => ExpiredAccess::RemoveOnAccess,
            // A write must not find an expired key in its place. Writes are postponed during a
            // pause, except those that were in progress.
            (Self::Paused, true) => ExpiredAccess::Remove,
            (Self::Importing | Self::Paused, false) => ExpiredAccess::Hide,
        }
    }

    /// Returns the treatment of expired keys when the values that clients are blocked on are
    /// inspected before the clients are served.
    pub fn access_before_serving(self) -> ExpiredAccess {
        match self {
            Self::Usual => ExpiredAccess::Remove,
            // The client's own request decides.
            Self::Importing => ExpiredAccess::Show,
            Self::Paused => ExpiredAccess::Hide,
        }
    }
}
