//! `rename-command` of the configuration: commands under other names, or under none.
//!
//! A rename holds from start to stop and concerns the name alone: counters, errors and the
//! documentation keep calling the command what everybody calls it, as in Redis. A line refers to
//! the names as the lines before it left them. A line may name a command of other servers that this
//! one does not have ([`foreign`]): it has no effect then.

use engine::foreign;

use super::Refusal;

/// Whether a command has this name, in capitals, before any rename.
pub type IsCommand = fn(name: &str) -> bool;

/// The renames of a configuration, in its order.
#[derive(Clone, Debug)]
pub struct Renames {
    list: Vec<Rename>,
    is_command: IsCommand,
}

/// One of them, both names in capitals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rename {
    /// What the command was called until here.
    pub from: String,
    /// What it is called now; empty when nobody may call it.
    pub to: String,
}

impl Renames {
    /// No renames of the commands that `is_command` knows.
    pub fn new(is_command: IsCommand) -> Self {
        Self { list: Vec::new(), is_command }
    }

    /// Returns no renames of the same commands.
    pub fn without_any(&self) -> Self {
        Self::new(self.is_command)
    }

    /// Takes the words of a line. O(commands + renames).
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

    /// The renames, to be done one after the other.
    pub fn iter(&self) -> impl Iterator<Item = &Rename> + '_ {
        self.list.iter()
    }

    /// Whether a command has this name after the renames so far: the last of them about it decides.
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
        // Of the server, the engine and its scripts.
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
        assert_eq!([add("SLAVEOF", ""), add("replicaof", "secret"), add("FT.SEARCH", "")], [""; 3]);
        assert_eq!(add("replicaof", "other"), "No such command in rename-command");
        assert_eq!([add("secret", ""), add("psync", "p")], [""; 2]);
        // As in Redis, whose commands these are.
        assert_eq!(add("get", "sync"), "Target command name already exists");
        assert_eq!(add("get", "p"), "Target command name already exists");
        assert_eq!(add("cluster|slot-stats", ""), "No such command in rename-command");
    }
}
