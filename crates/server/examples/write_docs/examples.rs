//! The examples of tests/cmd by command, and the commands without examples.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use engine::table::{CommandTable, Registered};
use testkit::Value;
use testkit::script::{Answer, Example, Exchange, Script};

/// The commands for which no example can show all replies, each with a description of its replies.
const STATED_REPLIES: &[(&str, &str)] = &[
    (
        "psync",
        "Simple string `FULLRESYNC`, the ID of the history and the offset: the snapshot and the stream follow. Or \
         `CONTINUE`: the stream follows from the offset.",
    ),
    ("sync", "The snapshot, and then the stream."),
    (
        "failover",
        "Simple string `OK`: writes are paused, and INFO shows the progress. With ABORT: the failover is ended.",
    ),
    (
        "config|rewrite",
        "Simple string `OK`: the file is written. An error if the server was started without a file.",
    ),
    (
        "acl|load",
        "Simple string `OK`: the users of the file have replaced all users. An error if a line of the file is invalid, or \
         if the server was started without `aclfile`; the users are then unchanged.",
    ),
    (
        "acl|save",
        "Simple string `OK`: the users are written. An error if the file cannot be written, or if the server was started \
         without `aclfile`.",
    ),
    ("asking", NO_CLUSTER),
    ("command", "Array of arrays: the reply of COMMAND INFO for all commands."),
    ("debug", "Depends on the subcommand, often simple string `OK`. DEBUG HELP lists the subcommands."),
    ("module|load", NO_MODULES),
    ("module|loadex", NO_MODULES),
    ("module|unload", NO_MODULES),
    ("readonly", NO_CLUSTER),
    ("readwrite", NO_CLUSTER),
    ("script|kill", "An error (`NOTBUSY`): no script is running."),
    ("function|kill", "An error (`NOTBUSY`): no function is running."),
    ("shutdown", "None: the connection is closed when the server stops. An error if the server cannot stop."),
];

const NO_MODULES: &str =
    "An error, because `enable-module-command` does not permit the command or the module does not exist.";
const NO_CLUSTER: &str = "An error, because the server is not a node of a cluster.";

/// The reply of every HELP subcommand.
const HELP_REPLY: &str = "Array of simple strings: the subcommands with their arguments and explanations.";

/// A parsed script of tests/cmd and its name, which is the name of a command.
pub struct Named {
    name: String,
    script: Script,
}

/// Loads the scripts (`*.resp`) in `folder`, sorted by name.
pub fn scripts(folder: &Path) -> Result<Vec<Named>, Box<dyn std::error::Error>> {
    let entries = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = entries.collect::<Result<Vec<PathBuf>, _>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "resp"));
    paths.sort();
    let load = |path: PathBuf| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Script::load(&path).map(|script| Named { name, script })
    };
    Ok(paths.into_iter().map(load).collect::<Result<_, _>>()?)
}

/// The meaning of a command's reply, and the reply.
pub struct Meaning<'s> {
    /// The meaning, in a few words.
    pub text: &'s str,
    /// The reply in RESP2.
    pub resp2: &'s Value,
    /// The reply in RESP3.
    pub resp3: &'s Value,
}

/// The examples of all scripts, by command.
pub struct Examples<'s> {
    all: Vec<Example<'s>>,
    /// Indexes into `all`, by the command's full name.
    shown_with: BTreeMap<&'static str, Vec<usize>>,
    /// The kinds of replies in a command's script, by the command's full name, as in
    /// [`Script::reply_kinds`].
    kinds: BTreeMap<&'static str, BTreeSet<char>>,
}

impl<'s> Examples<'s> {
    /// Collects the examples of the scripts. An example belongs to the commands whose replies it
    /// explains. If it explains none, it belongs to the command that its script is named after,
    /// or to the command of its last request.
    pub fn gather(table: &CommandTable, scripts: &'s [Named]) -> Result<Self, String> {
        let mut examples = Self { all: Vec::new(), shown_with: BTreeMap::new(), kinds: BTreeMap::new() };
        for Named { name, script } in scripts {
            let of_script = table.find(name.as_bytes()).filter(|found| found.subcommands.is_empty());
            for example in script.examples()? {
                let noted = (0..example.exchanges.len()).filter(|at| example.exchanges[*at].note.is_some());
                let mut shown: Vec<_> = noted.filter_map(|at| command_of(table, &example, at)).collect();
                if shown.is_empty() {
                    let last = example.exchanges.len() - 1;
                    shown.extend(of_script.or_else(|| command_of(table, &example, last)));
                }
                shown.dedup_by_key(|registered| registered.full_name);
                for registered in shown {
                    let places = examples.shown_with.entry(registered.full_name).or_default();
                    if !places.contains(&examples.all.len()) {
                        places.push(examples.all.len());
                    }
                }
                examples.all.push(example);
            }
            for (args, kind) in script.reply_kinds() {
                if let Some(registered) = called(table, args).filter(|found| script_of(found) == name) {
                    examples.kinds.entry(registered.full_name).or_default().insert(kind);
                }
            }
        }
        Ok(examples)
    }

    /// Returns the examples of `registered`.
    pub fn of(&self, registered: &Registered) -> impl Iterator<Item = &Example<'s>> {
        self.shown_with.get(registered.full_name).into_iter().flatten().map(|at| &self.all[*at])
    }

    /// Returns the meanings of the replies of `registered`, in the order of the examples.
    pub fn meanings(&self, table: &CommandTable, registered: &Registered) -> Vec<Meaning<'_>> {
        let mut meanings = Vec::new();
        for example in self.of(registered) {
            for (at, exchange) in example.exchanges.iter().enumerate() {
                let (Some(text), Answer::Reply(resp2), Answer::Reply(resp3)) =
                    (exchange.note, &exchange.resp2, &exchange.resp3)
                else {
                    continue;
                };
                if command_of(table, example, at).is_some_and(|found| found.full_name == registered.full_name)
                {
                    meanings.push(Meaning { text, resp2, resp3 });
                }
            }
        }
        meanings
    }

    /// Returns the description of the replies in [`STATED_REPLIES`], or the common one of CLUSTER
    /// and HELP subcommands; `None` for other commands.
    pub fn stated_reply(registered: &Registered) -> Option<&'static str> {
        let stated = STATED_REPLIES.iter().find(|(name, _)| *name == registered.full_name);
        let of_kind = || match registered.full_name {
            name if name.starts_with("cluster|") => Some(NO_CLUSTER),
            name if name.ends_with("|help") => Some(HELP_REPLY),
            _ => None,
        };
        stated.map(|(_, reply)| *reply).or_else(of_kind)
    }

    /// Returns a message for each command that has no example, or whose examples do not explain one
    /// of its kinds of replies.
    pub fn missing(&self, table: &CommandTable) -> Vec<String> {
        let mut missing = Vec::new();
        for top in table.iter() {
            let leaves = if top.subcommands.is_empty() { vec![top] } else { top.subcommands.clone() };
            missing.extend(leaves.into_iter().filter_map(|leaf| self.missing_of(table, leaf)));
        }
        missing.sort();
        missing
    }

    fn missing_of(&self, table: &CommandTable, registered: &Registered) -> Option<String> {
        if Self::stated_reply(registered).is_some() {
            return None;
        }
        let name = registered.full_name.replace('|', " ").to_ascii_uppercase();
        let script = script_of(registered);
        let meanings = self.meanings(table, registered);
        if meanings.is_empty() {
            return Some(format!(
                "{name} has no example: append one to tests/cmd/{script}.resp, with `@example TITLE` ahead of its \
                 commands and `@reply MEANING` below that of {name} (testkit's script.rs describes them)"
            ));
        }
        let said: BTreeSet<char> = meanings.iter().map(|meaning| kind_of(meaning.resp3)).collect();
        let unsaid = self.kinds.get(registered.full_name)?.difference(&said).map(|kind| named(*kind));
        let unsaid: Vec<&str> = unsaid.collect();
        (!unsaid.is_empty()).then(|| {
            format!(
                "{name} replies with {}, too, in tests/cmd/{script}.resp: show that in an example there, with `@reply MEANING` \
                 below the request",
                unsaid.join(" and ")
            )
        })
    }
}

/// Returns the name of a command's script: the name of its container.
fn script_of(registered: &Registered) -> &'static str {
    registered.full_name.split('|').next().unwrap_or_default()
}

/// Returns the command that exchange `at` of `example` calls. If the connection only receives data
/// in this exchange, returns the last command that it called before.
fn command_of(table: &CommandTable, example: &Example<'_>, at: usize) -> Option<&'static Registered> {
    let client = example.exchanges[at].client;
    let mut earlier = example.exchanges[..=at].iter().rev();
    let request =
        earlier.find(|exchange: &&Exchange<'_>| exchange.client == client && !exchange.args.is_empty())?;
    called(table, request.args)
}

fn called(table: &CommandTable, args: &[Vec<u8>]) -> Option<&'static Registered> {
    let found = table.find(args.first()?)?;
    Some(args.get(1).and_then(|name| found.subcommand(name)).unwrap_or(found))
}

/// Returns the kind of a reply in RESP3, as in [`Script::reply_kinds`].
fn kind_of(value: &Value) -> char {
    match value {
        Value::NullArray => '_',
        _ => testkit::notation::one_line(value).chars().next().unwrap_or_default(),
    }
}

fn named(kind: char) -> &'static str {
    match kind {
        '+' => "a simple string",
        ':' => "an integer",
        '"' => "a bulk string",
        '_' => "null",
        ',' => "a double",
        '#' => "a boolean",
        '(' => "a big number",
        '=' => "a verbatim string",
        '*' => "an array",
        '%' => "a map",
        '~' => "a set",
        '>' => "a push",
        _ => "something else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the problems with PING if its script has this text.
    fn missing(text: &str) -> Vec<String> {
        let folder = tempfile::tempdir().expect("there is room for a folder");
        fs::write(folder.path().join("ping.resp"), text).expect("it can be written");
        let scripts = scripts(folder.path()).expect("the script is valid");
        let table = server::commands::table().0;
        let examples = Examples::gather(&table, &scripts).expect("its examples are complete");
        examples.missing(&table).into_iter().filter(|line| line.starts_with("PING ")).collect()
    }

    #[test]
    fn a_command_needs_an_example_that_says_what_each_kind_of_reply_means() {
        let none = missing("> PING\n+PONG\n");
        assert!(none[0].starts_with("PING has no example: append one to tests/cmd/ping.resp"), "{none:?}");
        let one = "@example Are you there?\n> PING\n@reply\n+PONG\n";
        assert_eq!(missing(one), [""; 0]);
        let two = missing(&format!("> PING a\n\"a\"\n> PING\n?+*\n{one}"));
        assert!(
            two[0].starts_with("PING replies with a bulk string, too, in tests/cmd/ping.resp"),
            "{two:?}"
        );
    }

    #[test]
    fn a_waiting_connection_says_the_reply_of_its_last_command() {
        let script = "@example Waiting\n> PING\n@none\n<\n@reply later\n+PONG\n";
        assert_eq!(missing(script), [""; 0]);
    }
}
