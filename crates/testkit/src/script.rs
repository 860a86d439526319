//! `.resp` scripts: commands and the replies of a server, as text.
//!
//! ```text
//! # tests/cmd/zadd.resp
//! @each-encoding
//! > ZADD board 5 alice
//! :1
//! > ZADD board GT 3 alice          # gt_ignores_a_lower_score
//! :0
//! ```
//!
//! A line `> …` is a command, quoted as for redis-cli. Its reply follows in the notation of
//! [`crate::notation`]. `b> …` sends the command on a second connection called `b`. A comment is a
//! line that starts with `# `, or the text after ` # ` on a command's line: the name of the case. A
//! script runs on RESP2 and on RESP3, each time on an emptied server and new connections.
//!
//! Directives before the first command:
//! - `@each-encoding`: also run with every collection in its large encoding ([`LARGE_ENCODINGS`]);
//! - `@config name value`: CONFIG SET for this script, reset afterwards.
//!
//! Directives between a command and its reply:
//! - `@unordered`: arrays in this reply match in any order;
//! - `@resp2`, `@resp3`, `@small`, `@large`, alone or two on a line: the reply below holds in that
//!   protocol or encoding. Several of these blocks may follow each other; the first that fits
//!   counts;
//! - `@varies`: the values differ from run to run, so only the kinds of the reply's parts are
//!   compared;
//! - `@none`: the server sends no reply, or not yet;
//! - `@closed`: the server closes the connection without a reply.
//!
//! A line `b<` instead of a command waits for the next value sent to connection `b`: a message, or
//! a reply that was not sent before (`@none`). The time at which a request with `@none` arrives is
//! unknown: the later commands must have the same replies before and after it.
//!
//! After the commands follow the examples for docs/commands:
//!
//! ```text
//! @example A leaderboard
//! > ZADD leaderboard 120 ann 95 bob
//! @reply the number of added members
//! :2
//! ```
//!
//! Each example begins with `@example` and its title. It runs on an emptied server and new
//! connections, so that it shows its reader everything that it needs. An example that begins with
//! `@resp3` is for that protocol only. `@reply` describes the meaning of a reply: the documentation
//! lists it among the command's replies with its kind of value. Without words it marks a reply that
//! needs no description, such as `+OK`. [`Script::examples`] returns the examples.
//!
//! The replies are recorded from a real Redis ([`mod@record`]), so a script states the behavior of
//! Redis.

use std::fmt;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use resp::{Protocol, Value};
use stdx::quoted::split_quoted;

use crate::matching::{Order, matches, same_kinds};
use crate::notation::{self, Expected};

mod events;
mod example;
mod record;
mod run;

pub use events::events_of;
pub use example::{Answer, Example, Exchange};
pub use record::{Recorded, record};
pub use run::{Report, run, run_all};

/// The options that force the large encodings, for `@each-encoding`.
pub const LARGE_ENCODINGS: &[(&str, &str)] = &[
    ("hash-max-listpack-entries", "0"),
    ("set-max-intset-entries", "0"),
    ("set-max-listpack-entries", "0"),
    ("zset-max-listpack-entries", "0"),
    ("list-max-listpack-size", "1"),
    ("stream-node-max-entries", "1"),
];

/// The thresholds at which collections change their encoding, in one run of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encodings {
    /// The default thresholds: small collections have packed encodings.
    Small,
    /// The options of [`LARGE_ENCODINGS`]: all collections have large encodings.
    Large,
}

/// One way to run a script: the protocol of the connections and the thresholds of encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The version of RESP of all connections of the run.
    pub protocol: Protocol,
    /// The thresholds at which collections change their encoding in the run.
    pub encodings: Encodings,
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.protocol {
            Protocol::Resp2 => "RESP2",
            Protocol::Resp3 => "RESP3",
        })?;
        match self.encodings {
            Encodings::Small => Ok(()),
            Encodings::Large => f.write_str(", large encodings"),
        }
    }
}

/// The variants (protocol and encodings) in which a stated reply holds: all that have the given
/// protocol and encodings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Selector {
    protocol: Option<Protocol>,
    encodings: Option<Encodings>,
}

impl Selector {
    /// Parses a line of selectors such as `@resp2 @large`; `None` if it is not such a line.
    fn parse(line: &str) -> Option<Self> {
        let mut selector = Self::default();
        for word in line.split_whitespace() {
            match word {
                "@resp2" => selector.protocol = Some(Protocol::Resp2),
                "@resp3" => selector.protocol = Some(Protocol::Resp3),
                "@small" => selector.encodings = Some(Encodings::Small),
                "@large" => selector.encodings = Some(Encodings::Large),
                _ => return None,
            }
        }
        (selector != Self::default()).then_some(selector)
    }

    fn holds_in(self, variant: Variant) -> bool {
        self.protocol.is_none_or(|protocol| protocol == variant.protocol)
            && self.encodings.is_none_or(|encodings| encodings == variant.encodings)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let protocol = self.protocol.map(|protocol| match protocol {
            Protocol::Resp2 => "@resp2",
            Protocol::Resp3 => "@resp3",
        });
        let encodings = self.encodings.map(|encodings| match encodings {
            Encodings::Small => "@small",
            Encodings::Large => "@large",
        });
        let words: Vec<_> = [protocol, encodings].into_iter().flatten().collect();
        f.write_str(&words.join(" "))
    }
}

/// The reply that a script states for a command.
#[derive(Clone, Debug, PartialEq)]
enum Wanted {
    /// No reply is stated; it has still to be recorded from a real server.
    Unrecorded,
    /// `@none`: the server sends no reply to the command, or not yet.
    NoReply,
    /// `@closed`: the server closes the connection instead of a reply.
    Closed,
    /// One reply for all protocols and encodings, or one for each [`Selector`].
    Replies(Vec<(Selector, Expected)>),
}

/// One command of a script, with the reply that the script states.
#[derive(Clone, Debug)]
struct Step {
    /// The line number of the command in the script, from 0.
    line: usize,
    /// The lines that state the reply, without directives such as `@unordered`.
    reply_lines: Range<usize>,
    /// The name of the connection that sends the command; empty for the main connection.
    client: String,
    /// The words of the command. Empty if the step only waits for the next value sent to the
    /// connection.
    args: Vec<Vec<u8>>,
    /// The rule for the order of the elements of arrays in the reply.
    order: Order,
    varies: bool,
    /// The meaning of the reply, for the documentation; `None` if the script does not describe it.
    note: Option<String>,
    wanted: Wanted,
}

impl Step {
    /// Returns true if the script states an error reply for this command in some variant.
    fn may_fail(&self) -> bool {
        match &self.wanted {
            Wanted::Replies(replies) => replies
                .iter()
                .any(|(_, reply)| matches!(reply, Expected::Glob(_) | Expected::Scalar(Value::Error(_)))),
            _ => true,
        }
    }

    /// Returns true if the reply `actual` matches the stated reply `expected` as strictly as this
    /// step requires.
    fn accepts(&self, expected: &Expected, actual: &Value, protocol: Protocol) -> bool {
        if self.varies {
            same_kinds(expected, actual, protocol)
        } else {
            matches(expected, actual, protocol, self.order)
        }
    }
}

/// A parsed `.resp` script: its commands with their replies, its settings and its examples.
#[derive(Debug)]
pub struct Script {
    path: PathBuf,
    lines: Vec<String>,
    each_encoding: bool,
    config: Vec<(String, String)>,
    steps: Vec<Step>,
    examples: Vec<ExampleStart>,
}

/// The beginning of an example in a `.resp` script.
#[derive(Debug)]
struct ExampleStart {
    title: String,
    /// The index of the first step. The example ends where the next example starts.
    first: usize,
    /// True if the example is for RESP3 only.
    resp3_only: bool,
}

/// The reason why a script cannot be read.
#[derive(Debug)]
pub struct ScriptError {
    path: PathBuf,
    /// The number of the wrong line in the script, from 0.
    line: usize,
    what: String,
}

impl fmt::Display for ScriptError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line + 1, self.what)
    }
}

impl std::error::Error for ScriptError {}

impl Script {
    /// Reads and parses the `.resp` script at `path`.
    pub fn load(path: &Path) -> Result<Self, ScriptError> {
        let fail = |line, what: String| ScriptError { path: path.into(), line, what };
        let text = fs::read_to_string(path).map_err(|error| fail(0, error.to_string()))?;
        Self::parse(path, &text).map_err(|(line, what)| fail(line, what))
    }

    /// Returns the variants (protocol and encodings) in which the script runs.
    pub fn variants(&self) -> Vec<Variant> {
        let encodings: &[_] =
            if self.each_encoding { &[Encodings::Small, Encodings::Large] } else { &[Encodings::Small] };
        let of =
            |&encodings| [Protocol::Resp2, Protocol::Resp3].map(|protocol| Variant { protocol, encodings });
        encodings.iter().flat_map(of).collect()
    }

    fn parse(path: &Path, text: &str) -> Result<Self, (usize, String)> {
        let lines: Vec<String> = text.lines().map(String::from).collect();
        let borrowed: Vec<&str> = text.lines().collect();
        let mut script = Self {
            path: path.into(),
            each_encoding: false,
            config: Vec::new(),
            steps: Vec::new(),
            examples: Vec::new(),
            lines: lines.clone(),
        };
        let mut at = 0;
        while let Some(&line) = borrowed.get(at) {
            if is_blank(line) {
                at += 1;
            } else if let Some((client, command)) = split_command(line) {
                let step = parse_step(&borrowed, at, client, command)?;
                at = step.reply_lines.end;
                script.steps.push(step);
            } else {
                script.directive(line).map_err(|what| (at, what))?;
                at += 1;
            }
        }
        if script.begins_example(script.steps.len()) {
            return Err((lines.len(), "the last example has no command".into()));
        }
        Ok(script)
    }

    /// Returns true if the step (command) with index `at` is the first of an example.
    fn begins_example(&self, at: usize) -> bool {
        self.examples.iter().any(|example| example.first == at)
    }

    /// Returns true if the step (command) with index `at` does not run in `protocol`.
    fn skips(&self, at: usize, protocol: Protocol) -> bool {
        let example = self.examples.iter().rfind(|example| example.first <= at);
        protocol != Protocol::Resp3 && example.is_some_and(|example| example.resp3_only)
    }

    /// Returns the steps (commands) before the examples.
    fn body(&self) -> &[Step] {
        &self.steps[..self.examples.first().map_or(self.steps.len(), |example| example.first)]
    }

    /// Parses a directive that stands before a command: the start of an example, or a setting of
    /// the script.
    fn directive(&mut self, line: &str) -> Result<(), String> {
        if let Some(title) = line.strip_prefix("@example ") {
            if self.begins_example(self.steps.len()) {
                return Err("the example ahead of this one has no command".into());
            }
            let start =
                ExampleStart { title: title.trim().into(), first: self.steps.len(), resp3_only: false };
            self.examples.push(start);
            return Ok(());
        }
        if line.trim() == "@resp3" && self.begins_example(self.steps.len()) {
            self.examples
                .iter_mut()
                .for_each(|example| example.resp3_only |= example.first == self.steps.len());
            return Ok(());
        }
        if !self.steps.is_empty() {
            return Err("not a command, and not a reply to one".into());
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["@each-encoding"] => self.each_encoding = true,
            ["@config", name, value] => self.config.push((name.into(), value.into())),
            _ => return Err(format!("unknown directive {line}")),
        }
        Ok(())
    }

    /// Returns the options, as name and value, that must be set before the script runs in
    /// `variant`.
    fn options(&self, variant: Variant) -> impl Iterator<Item = (&str, &str)> {
        let large = if variant.encodings == Encodings::Large { LARGE_ENCODINGS } else { &[] };
        large.iter().copied().chain(self.config.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }
}

/// Returns true if a line of a script is empty or a comment. (`#t` and `#f` are replies.)
fn is_blank(line: &str) -> bool {
    let line = line.trim_end();
    line.is_empty() || line == "#" || line.starts_with("# ")
}

/// Splits a command's line (`> …`, `b> …`, `b<`) into the connection's name and the command. The
/// command is empty for a line that waits (`b<`).
fn split_command(line: &str) -> Option<(&str, &str)> {
    let waits = || line.trim_end().strip_suffix('<').map(|client| (client, ""));
    let (client, command) = line.split_once("> ").or_else(waits)?;
    client.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some((client, command))
}

/// Parses the step whose command is at line `at`, with all lines of its reply.
fn parse_step(lines: &[&str], at: usize, client: &str, command: &str) -> Result<Step, (usize, String)> {
    let waits = !lines[at].contains('>');
    let args = split_quoted(without_comment(command).as_bytes())
        .filter(|args| args.is_empty() == waits)
        .ok_or_else(|| (at, "unbalanced quotes, or no command".to_string()))?;
    let (mut order, mut varies, mut note) = (Order::Kept, false, None);
    let mut here = at + 1;
    while let Some(line) = lines.get(here).map(|line| line.trim()) {
        match line.strip_prefix("@reply") {
            Some(text) => note = Some(text.trim().to_string()),
            None if line == "@unordered" => order = Order::Any,
            None if line == "@varies" => varies = true,
            None => break,
        }
        here += 1;
    }
    let start = here;
    let mut wanted = Wanted::Unrecorded;
    while let Some(&line) = lines.get(here).filter(|line| !ends_reply(line)) {
        if let special @ ("@none" | "@closed") = line.trim() {
            wanted = if special == "@none" { Wanted::NoReply } else { Wanted::Closed };
            here += 1;
            break;
        }
        let selector = Selector::parse(line);
        here += usize::from(selector.is_some());
        let (expected, used) = notation::parse(&lines[here..]).map_err(|(line, what)| (here + line, what))?;
        here += used;
        let reply = (selector.unwrap_or_default(), expected);
        match &mut wanted {
            Wanted::Replies(replies) => replies.push(reply),
            _ => wanted = Wanted::Replies(vec![reply]),
        }
        if selector.is_none() {
            break;
        }
    }
    let reply_lines = start..here;
    Ok(Step { line: at, reply_lines, client: client.into(), args, order, varies, note, wanted })
}

/// Returns true if a line of a script no longer belongs to the reply of the command above it.
fn ends_reply(line: &str) -> bool {
    is_blank(line) || split_command(line).is_some() || line.starts_with("@example ")
}

/// Returns a command's line without its comment. A comment starts with a hash that has a space on
/// both sides and is outside of quotes. (`#2` is an argument.)
fn without_comment(line: &str) -> &str {
    let bytes = line.as_bytes();
    let is_blank_at = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_whitespace);
    let mut quote = None;
    let mut at = 0;
    while at < bytes.len() {
        match (quote, bytes[at]) {
            (Some(_), b'\\') => at += 1,
            (Some(open), byte) if byte == open => quote = None,
            (None, byte @ (b'"' | b'\'')) => quote = Some(byte),
            (None, b'#') if is_blank_at(at.wrapping_sub(1)) && is_blank_at(at + 1) => return &line[..at],
            _ => {}
        }
        at += 1;
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Script, (usize, String)> {
        Script::parse(Path::new("x.resp"), text)
    }

    #[test]
    fn a_comment_begins_with_a_hash_between_blanks() {
        for (line, command) in [
            ("> SETBIT k #1 1", "> SETBIT k #1 1"),
            ("> GET k #1 # the second", "> GET k #1 "),
            ("> GET ##", "> GET ##"),
            ("> GET #", "> GET #"),
            ("> GET k\t#\tcomment", "> GET k\t"),
            ("> SET k ' # ' # comment", "> SET k ' # ' "),
        ] {
            assert_eq!(without_comment(line), command);
        }
    }

    #[test]
    fn a_script_is_steps_with_their_replies() {
        let script = parse(
            "# title\n@each-encoding\n@config hz 1\n\n> SET k \"a # b\" # stores\n+OK\n> KEYS *\n@unordered\n\
             *1\n  \"k\"\nb> DEL k\n@resp2\n:1\n@resp3 @large\n#t\n> GET x\n",
        )
        .unwrap();
        assert!(script.each_encoding);
        assert_eq!(script.config, [("hz".into(), "1".into())]);
        let [set, keys, del, get] = &script.steps[..] else { panic!("{:?}", script.steps) };
        assert_eq!(set.args, [&b"SET"[..], b"k", b"a # b"]);
        assert!(keys.order == Order::Any && keys.reply_lines == (8..10));
        assert_eq!(del.client, "b");
        let Wanted::Replies(replies) = &del.wanted else { panic!() };
        assert_eq!(replies.len(), 2);
        assert!(matches!(replies[1].0, Selector { encodings: Some(Encodings::Large), .. }));
        assert_eq!(get.wanted, Wanted::Unrecorded);
        assert_eq!(script.variants().len(), 4);
    }

    #[test]
    fn mistakes_are_told_with_their_line() {
        assert_eq!(parse("> GET k\n+OK\n+OK\n").unwrap_err().0, 2);
        assert_eq!(parse("> GET k\n*2\n:1\n> PING\n").unwrap_err().0, 3);
        assert_eq!(parse("> GET \"k\n").unwrap_err().0, 0);
        assert_eq!(parse("@nonsense\n").unwrap_err().0, 0);
    }
}
