//! Commands about the server and its connections.

use ::commands::table::Command;

use crate::command_table::Runner;

pub mod connection;

/// All server commands.
pub fn all() -> impl Iterator<Item = &'static Command<Runner>> {
    [connection::COMMANDS].into_iter().flatten().copied()
}
