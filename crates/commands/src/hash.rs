//! Commands of the hash group.

use crate::table::Command;

/// This group's commands.
pub static COMMANDS: &[&Command] = &[];
