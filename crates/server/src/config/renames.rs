//! `rename-command` of the configuration: new names for commands, and disabled commands.
//!
//! A rename is in effect until the server ends. It changes only the name that clients send:
//! counters, errors and the documentation keep the original name, as in Redis. A line refers to the
//! names that the earlier lines have produced. A line may also name a command that only other
//! servers have ([`foreign`]); such a line has no effect.

use engine::foreign;

use super::Refusal;

/// A function that returns true if a command has this name (in capitals) before any rename.
pub type IsCommand = fn(name: &str) -> bool;

/// The renames of a configuration, in the order of their lines.
#[derive(Clone, Debug)]
pub struct Renames {
    list: Vec<Rename>,
    is_command: IsCommand,
}

/// The rename of one command by `rename-command`, with both names in capitals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// The name of the command before this rename.
    pub from: String,
    /// The new name of the command; empty if the command is disabled.
    pub to: String,
}

impl Renames {
    /// Creates an empty list of renames. `is_command` returns true for the names of commands before
    /// any rename.
    pub fn new(is_command: IsCommand) -> Self {
        Self { list: Vec::new(), is_command }
    }

    /// Returns an empty list of renames that uses the function `is_command` of this list.
    pub fn without_any(&self) -> Self {
        Self::new(self.is_command)
    }

    /// Adds the rename of a `rename-command` line, given the words after the directive's name.
    /// O(commands + renames).
    pub fn add(&mut self, words: &[Vec<u8>]) -> Result<(), Refusal> {
        let [from, to] = words else {
            return Err("Bad directive or wrong number of arguments".into());
        };
        let [Ok(from), Ok(to)] = [from, to].map(|word| std::str::from_utf8(word)) else {
            return Err("Names of commands are text".into());
        };
        let (from, to) = (from.to_ascii_uppercase(), to.to_ascii_uppercase());
        if !self.is_taken(&from) {
            return Err("No such command in rename-command".into());
        }
        if to != from && self.is_taken(&to) {
            return Err("Target command name already exists".into());
        }
        self.list.push(Rename { from, to });
        Ok(())
    }

    /// Returns the renames of commands, to be applied in this order.
    pub fn iter(&self) -> impl Iterator<Item = &Rename> + '_ {
        self.list.iter()
    }

    /// Returns true if a command has this name after all renames added so far. The last rename from
    /// or to this name decides.
    fn is_taken(&self, name: &str) -> bool {
        let about = self
            .list
            .iter()
            .rev()
            .find(|rename| rename.from == name || (rename.to == name && !name.is_empty()));
        match about {
            Some(rename) => rename.to == name,
            None => {
                let is_foreign = !name.contains('|') && foreign::is_command(&name.to_ascii_lowercase());
                is_foreign || (self.is_command)(name)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_sees_the_names_that_the_lines_before_left() {
        let mut renames = Renames::new(crate::commands::is_command);
        let mut add = |from: &str, to: &str| match renames.add(&[from.into(), to.into()]) {
            Ok(()) => String::new(),
            Err(reason) => reason.into_owned(),
        };
        assert_eq!(add("nosuch", "x"), "No such command in rename-command");
        assert_eq!(add("get", "SET"), "Target command name already exists");
        assert_eq!(add("get", "get"), "");
        assert_eq!(add("get", "fetch"), "");
        assert_eq!(add("GET", "x"), "No such command in rename-command");
        assert_eq!(add("set", "Get"), "");
        assert_eq!(add("del", "FETCH"), "Target command name already exists");
        assert_eq!(add("fetch", ""), "");
        // Commands of the server, of the engine and of scripts.
        assert_eq!([add("config", ""), add("multi", ""), add("eval", ""), add("fcall", "")], [""; 4]);
        assert_eq!(add("", "x"), "No such command in rename-command");
        assert_eq!(add("del", "fetch"), "");
        let wrong = renames.add(&[b"get".to_vec()]).expect_err("one word");
        assert_eq!(wrong, "Bad directive or wrong number of arguments");
        assert!(renames.add(&[b"ping".to_vec(), b"\xff".to_vec()]).is_err());
    }

    #[test]
    fn issue_33_commands_of_other_servers_can_be_renamed() {
        let mut renames = Renames::new(crate::commands::is_command);
        let mut add = |from: &str, to: &str| match renames.add(&[from.into(), to.into()]) {
            Ok(()) => String::new(),
            Err(reason) => reason.into_owned(),
        };
        assert_eq!([add("CLUSTERSCAN", ""), add("trimslots", "secret"), add("FT.SEARCH", "")], [""; 3]);
        assert_eq!(add("trimslots", "other"), "No such command in rename-command");
        assert_eq!([add("secret", ""), add("psync", "p")], [""; 2]);
        // As in Redis, which has a command `sync`; `psync` was renamed to `p` above.
        assert_eq!(add("get", "sync"), "Target command name already exists");
        assert_eq!(add("get", "p"), "Target command name already exists");
        assert_eq!(add("cluster|slot-stats", ""), "No such command in rename-command");
    }
}
