//! Commands of the set group.

use crate::table::Command;

/// This group's commands.
pub static COMMANDS: &[&Command] = &[];
