//! Commands of the list group.

use crate::table::Command;

/// This group's commands.
pub static COMMANDS: &[&Command] = &[];
