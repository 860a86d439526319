//! The messages of an executor to clients that use MONITOR (`publish::monitor`).

use commands::Args;
use commands::table::Flags;

use crate::call::Host;
use crate::client::ClientInfo;
use crate::clock::Clock;
use crate::publish::monitor::MonitoredCommand;
use crate::run::Executor;
use crate::table::Registered;

impl<C: Clock, H: Host> Executor<'_, C, H> {
    /// Sends a command that has run to the clients that use MONITOR, unless the command's flags
    /// exclude it.
    #[cold]
    pub fn monitor(&self, client: &ClientInfo, registered: &Registered, args: &Args<'_>) {
        if !registered.command.flags.intersects(Flags::ADMIN | Flags::SKIP_MONITOR) {
            self.send_to_monitors(client, registered, args);
        }
    }

    /// Sends a command to the clients that use MONITOR, without a check of the command's flags.
    #[cold]
    pub(crate) fn send_to_monitors(&self, client: &ClientInfo, registered: &Registered, args: &Args<'_>) {
        let unix_time = || self.clock.unix_time();
        let command = MonitoredCommand { client, origin: self.origin, registered, args };
        self.shared().monitors.send(self.commit.sender(), &command, unix_time);
    }
}
