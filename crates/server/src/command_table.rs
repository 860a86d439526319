//! The joined table of all commands, and how dispatch finds one by name.
//!
//! Built once at start from the tables of all crates; everything it hands out lives as long as the
//! process, so a command is a plain reference everywhere.

use std::collections::HashMap;

use commands::table::{Begin, Command, Find, Flags};

use crate::context::ServerHandler;

/// What runs a command.
#[derive(Clone, Copy)]
pub enum Runner {
    /// A data command: gets its locked keys.
    Data(commands::Handler),
    /// A command about the server or the connection.
    Server(ServerHandler),
}

/// How dispatch finds a command's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyPlan {
    /// It has none.
    None,
    /// Exactly one, at this argument: the hot path.
    One(usize),
    /// By its key specs.
    Specs,
}

/// A command as dispatch sees it.
pub struct Registered {
    /// Its record.
    pub command: Command<Runner>,
    /// Index into per-command counters: `0..CommandTable::id_count`.
    pub id: usize,
    /// Lower-case name, `container|sub` for a subcommand.
    pub full_name: &'static str,
    /// Where its keys are.
    pub key_plan: KeyPlan,
    /// Its subcommands.
    pub subcommands: Vec<&'static Registered>,
}

/// A longer name is no command's.
const NAME_LEN_MAX: usize = 32;

/// All commands by name.
pub struct CommandTable {
    by_name: HashMap<Box<[u8]>, &'static Registered, ahash::RandomState>,
    by_id: Vec<&'static Registered>,
}

impl CommandTable {
    /// Joins the tables of all crates.
    ///
    /// # Panics
    /// If two commands share a name.
    pub fn new() -> Self {
        let mut table = Self {
            by_name: HashMap::with_hasher(ahash::RandomState::with_seeds(1, 2, 3, 4)),
            by_id: Vec::new(),
        };
        for command in commands::all() {
            table.add(command.map(Runner::Data));
        }
        for command in crate::commands::all() {
            table.add(*command);
        }
        table
    }

    fn add(&mut self, command: Command<Runner>) {
        let registered = self.register(command, None);
        let name = command.name.to_ascii_uppercase().into_bytes().into_boxed_slice();
        let earlier = self.by_name.insert(name, registered);
        assert!(earlier.is_none(), "two commands are called {}", command.name);
    }

    fn register(&mut self, command: Command<Runner>, container: Option<&'static str>) -> &'static Registered {
        let name = command.name.to_ascii_lowercase();
        let full_name: &'static str = Box::leak(match container {
            Some(container) => format!("{container}|{name}").into_boxed_str(),
            None => name.into_boxed_str(),
        });
        let subcommands =
            command.subcommands.iter().map(|sub| self.register(**sub, Some(full_name))).collect();
        let registered: &'static Registered = Box::leak(Box::new(Registered {
            command,
            id: self.by_id.len(),
            full_name,
            key_plan: key_plan(&command),
            subcommands,
        }));
        self.by_id.push(registered);
        registered
    }

    /// The command called `name`, whatever the case. O(name).
    #[inline]
    pub fn find(&self, name: &[u8]) -> Option<&'static Registered> {
        if name.len() > NAME_LEN_MAX {
            return None;
        }
        let mut upper = [0; NAME_LEN_MAX];
        let upper = &mut upper[..name.len()];
        upper.copy_from_slice(name);
        upper.make_ascii_uppercase();
        self.by_name.get(&*upper).copied()
    }

    /// The command of this full name, `container|sub` for a subcommand, whatever the case. O(name).
    pub fn find_full(&self, name: &[u8]) -> Option<&'static Registered> {
        match name.iter().position(|&byte| byte == b'|') {
            None => self.find(name),
            Some(at) => self.find(&name[..at])?.subcommand(&name[at + 1..]),
        }
    }

    /// Number of ids, subcommands included.
    pub fn id_count(&self) -> usize {
        self.by_id.len()
    }

    /// The command or subcommand with this id.
    pub fn by_id(&self, id: usize) -> &'static Registered {
        self.by_id[id]
    }

    /// All top-level commands, in no particular order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &'static Registered> + '_ {
        self.by_name.values().copied()
    }
}

impl Default for CommandTable {
    fn default() -> Self {
        Self::new()
    }
}

impl Registered {
    /// The subcommand called `name`, whatever the case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static Registered> {
        self.subcommands.iter().find(|sub| sub.command.name.as_bytes().eq_ignore_ascii_case(name)).copied()
    }

    /// Whether it is allowed before authentication.
    #[inline]
    pub fn needs_auth(&self) -> bool {
        !self.command.flags.contains(Flags::NO_AUTH)
    }
}

fn key_plan(command: &Command<Runner>) -> KeyPlan {
    match command.keys {
        [] => KeyPlan::None,
        [spec] => match (spec.begin, spec.find) {
            (Begin::Index(at), Find::Range { last: 0, .. }) => KeyPlan::One(at as usize),
            _ => KeyPlan::Specs,
        },
        _ => KeyPlan::Specs,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case() {
        let table = CommandTable::new();
        assert_eq!(table.find(b"gEt").map(|found| found.full_name), Some("get"));
        assert!(table.find(b"nonsense").is_none());
        assert!(table.find(&[b'x'; 1000]).is_none());
    }

    #[test]
    fn a_command_writes_exactly_if_one_of_its_keys_is_written() {
        use commands::table::KeyFlags;
        let written = KeyFlags::RW | KeyFlags::OW | KeyFlags::RM;
        for registered in CommandTable::new().iter() {
            let command = &registered.command;
            if command.keys.is_empty()
                || command.keys.iter().any(|spec| spec.flags.contains(KeyFlags::NOT_KEY))
            {
                continue;
            }
            let writes = command.keys.iter().any(|spec| spec.flags.intersects(written));
            assert_eq!(command.flags.contains(Flags::WRITE), writes, "{}", registered.full_name);
        }
    }

    #[test]
    fn the_smallest_accepted_request_has_room_for_the_first_key() {
        for registered in CommandTable::new().iter() {
            let smallest = registered.command.arity.as_number().unsigned_abs() as usize;
            if let KeyPlan::One(at) = registered.key_plan {
                assert!(at < smallest, "{}", registered.full_name);
            }
        }
    }
}
