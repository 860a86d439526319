//! Runs a script against a server and compares each reply with the stated one.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use resp::{Protocol, Value};

use super::{Script, Step, Variant, Wanted};
use crate::client::{Client, ClientError};
use crate::notation::{self, Expected};

/// Maximum number of failures printed per script; further ones are only counted.
const FAILURES_REPORTED_MAX: usize = 12;

/// Maximum time to wait for a background save of an earlier script.
const SAVE_TIME_MAX: Duration = Duration::from_secs(60);

/// The results of running one or more `.resp` scripts.
#[derive(Debug, Default)]
pub struct Report {
    /// The number of commands sent to the server, over all variants.
    pub steps: usize,
    /// One text per failed command; it begins with `file:line`.
    pub failures: Vec<String>,
}

impl Report {
    /// Fails the test if there is a failure, with all failures.
    ///
    /// # Panics
    /// Panics when there are failures.
    pub fn expect_success(&self) {
        assert!(self.failures.is_empty(), "{self}");
    }

    fn fail(&mut self, script: &Script, step: &Step, variant: Variant, what: &str) {
        let command = notation::command_line(&step.args);
        let place = format!("{}:{}", script.path.display(), step.line + 1);
        self.failures.push(format!("{place}: {command}    [{variant}]\n{what}"));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in self.failures.iter().take(FAILURES_REPORTED_MAX) {
            writeln!(f, "{failure}")?;
        }
        let untold = self.failures.len().saturating_sub(FAILURES_REPORTED_MAX);
        if untold > 0 {
            writeln!(f, "… and {untold} more failures")?;
        }
        write!(f, "{} commands, {} failures", self.steps, self.failures.len())
    }
}

/// Runs the script at `path` in all its variants, each on an emptied server. `connect` opens a
/// connection in the given protocol. Options that the script sets are reset.
pub fn run(path: &Path, connect: &dyn Fn(Protocol) -> Client) -> Report {
    let mut report = Report::default();
    match Script::load(path) {
        Ok(script) => {
            for variant in script.variants() {
                run_variant(&script, variant, connect, &mut report);
            }
        }
        Err(error) => report.failures.push(error.to_string()),
    }
    report
}

/// Runs all scripts of the folder `dir`, in the order of their names.
pub fn run_all(dir: &Path, connect: &dyn Fn(Protocol) -> Client) -> Report {
    let mut total = Report::default();
    for path in scripts_in(dir) {
        let mut report = run(&path, connect);
        let untold = report.failures.len().saturating_sub(FAILURES_REPORTED_MAX);
        if untold > 0 {
            report.failures.truncate(FAILURES_REPORTED_MAX);
            report.failures.push(format!("{}: … and {untold} more failures", path.display()));
        }
        total.steps += report.steps;
        total.failures.extend(report.failures);
    }
    if total.steps == 0 {
        total.failures.push(format!("no scripts in {}", dir.display()));
    }
    total
}

fn scripts_in(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "resp"));
    paths.sort();
    paths
}

/// The values of the server's options before a script changed them.
pub(super) struct SavedOptions(Vec<(String, Vec<u8>)>);

/// Empties the server and sets its options for `variant`. Returns the former values of the options.
pub(super) fn prepare(
    script: &Script,
    variant: Variant,
    control: &mut Client,
) -> Result<SavedOptions, String> {
    let mut saved = Vec::new();
    empty(control)?;
    for (name, value) in script.options(variant) {
        let old = control.request(&["CONFIG", "GET", name]).map_err(|error| error.to_string())?;
        let old = match old {
            Value::Array(pair) if pair.len() == 2 => pair[1].as_bytes().map(<[u8]>::to_vec),
            _ => None,
        };
        let old = old.ok_or_else(|| format!("the server has no option {name}"))?;
        let set = control.request(&["CONFIG", "SET", name, value]).map_err(|error| error.to_string())?;
        if set.is_error() {
            return Err(format!("CONFIG SET {name} {value} answered {set}"));
        }
        saved.push((name.to_string(), old));
    }
    Ok(SavedOptions(saved))
}

/// Empties the server. A background save that an earlier script began must end first, so that the
/// next BGSAVE is not refused.
fn empty(control: &mut Client) -> Result<(), String> {
    let began = Instant::now();
    while is_saving(control)? {
        if began.elapsed() > SAVE_TIME_MAX {
            return Err(format!("a background save takes more than {SAVE_TIME_MAX:?}"));
        }
        std::thread::yield_now();
    }
    let reply = control.request(&["FLUSHALL"]).map_err(|error| error.to_string())?;
    if reply.is_error() { Err(format!("FLUSHALL answered {reply}")) } else { Ok(()) }
}

fn is_saving(control: &mut Client) -> Result<bool, String> {
    let reply = control.request(&["INFO", "persistence"]).map_err(|error| error.to_string())?;
    Ok(reply.to_string().contains("rdb_bgsave_in_progress:1"))
}

/// Prepares the server for an example: empties it, and closes the script's connections, so that new
/// ones are opened.
pub(super) fn restart(connections: &mut Connections<'_>) -> Result<(), String> {
    connections.open.clear();
    // The script may have closed any connection except this new one.
    empty(&mut (connections.connect)(Protocol::Resp2))
}

/// Resets the options that [`prepare`] changed. Uses the connection `control`, because the script
/// may have closed any other.
pub(super) fn restore(saved: SavedOptions, control: &mut Client) {
    for (name, value) in saved.0.into_iter().rev() {
        // A server that has ended has already failed the script.
        let _ = control.request(&[&b"CONFIG"[..], b"SET", name.as_bytes(), &value]);
    }
}

/// The connections of one run of a script. Each is opened when it is first used.
pub(super) struct Connections<'a> {
    connect: &'a dyn Fn(Protocol) -> Client,
    protocol: Protocol,
    open: HashMap<String, Client>,
}

impl<'a> Connections<'a> {
    pub(super) fn new(connect: &'a dyn Fn(Protocol) -> Client, protocol: Protocol) -> Self {
        Self { connect, protocol, open: HashMap::new() }
    }

    /// Returns the connection called `name`, and opens it at its first use.
    pub(super) fn get(&mut self, name: &str) -> &mut Client {
        self.open.entry(name.to_string()).or_insert_with(|| (self.connect)(self.protocol))
    }

    /// Removes a connection that has ended: the next use of its name opens a new one.
    pub(super) fn forget(&mut self, name: &str) {
        self.open.remove(name);
    }
}

fn run_variant(script: &Script, variant: Variant, connect: &dyn Fn(Protocol) -> Client, report: &mut Report) {
    let mut control = connect(Protocol::Resp2);
    let saved = match prepare(script, variant, &mut control) {
        Ok(saved) => saved,
        Err(error) => {
            report.failures.push(format!("{} [{variant}]: {error}", script.path.display()));
            return;
        }
    };
    let mut connections = Connections::new(connect, variant.protocol);
    for (at, step) in script.steps.iter().enumerate() {
        if script.skips(at, variant.protocol) {
            continue;
        }
        if script.begins_example(at)
            && let Err(what) = restart(&mut connections)
        {
            report.fail(script, step, variant, &what);
        }
        report.steps += 1;
        if let Err(what) = run_step(step, variant, &mut connections) {
            report.fail(script, step, variant, &what);
        }
    }
    restore(saved, &mut control);
}

/// Runs one step of a script: sends its command and compares the reply. Returns the difference as
/// an error.
fn run_step(step: &Step, variant: Variant, connections: &mut Connections<'_>) -> Result<(), String> {
    let client = connections.get(&step.client);
    let result = match step.wanted {
        Wanted::NoReply => {
            let mut bytes = Vec::new();
            resp::encode_request(&step.args, &mut bytes);
            client.send(&bytes).map(|()| None)
        }
        _ if step.args.is_empty() => client.read().map(Some),
        _ => client.request(&step.args).map(Some),
    };
    match (&step.wanted, result) {
        (Wanted::NoReply, Ok(_)) => Ok(()),
        (Wanted::Closed, Err(ClientError::Closed)) => {
            connections.forget(&step.client);
            Ok(())
        }
        (_, Err(error)) => {
            connections.forget(&step.client);
            Err(format!("    {error}"))
        }
        (Wanted::Closed, Ok(reply)) => Err(format!("    expected a closed connection, got {}", shown(reply))),
        (Wanted::Unrecorded, Ok(reply)) => Err(format!("    no reply is stated, got {}", shown(reply))),
        (Wanted::Replies(replies), Ok(reply)) => {
            let actual = reply.expect("a reply was waited for");
            let fitting = replies.iter().find(|(selector, _)| selector.holds_in(variant));
            let Some((_, expected)) = fitting else {
                return Err(format!("    no reply is stated for this variant, got {}", shown(Some(actual))));
            };
            if step.accepts(expected, &actual, variant.protocol) {
                return Ok(());
            }
            Err(difference(expected, &actual))
        }
    }
}

fn shown(reply: Option<Value>) -> String {
    reply.as_ref().map_or_else(|| "nothing".into(), notation::one_line)
}

/// Formats the expected and the actual reply line by line, to show their difference; lines that
/// both have appear once.
fn difference(expected: &Expected, actual: &Value) -> String {
    let expected = notation::expected_lines(expected);
    let actual = notation::lines(actual);
    let same_start = expected.iter().zip(&actual).take_while(|(e, a)| e == a).count();
    let left = expected.len().min(actual.len()) - same_start;
    let same_end =
        expected.iter().rev().zip(actual.iter().rev()).take(left).take_while(|(e, a)| e == a).count();
    let mut out = Vec::new();
    out.extend(expected[..same_start].iter().map(|line| format!("      {line}")));
    out.extend(expected[same_start..expected.len() - same_end].iter().map(|line| format!("    - {line}")));
    out.extend(actual[same_start..actual.len() - same_end].iter().map(|line| format!("    + {line}")));
    out.extend(actual[actual.len() - same_end..].iter().map(|line| format!("      {line}")));
    out.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_common_lines_once() {
        let (expected, _) = notation::parse(&["*3", ":1", ":2", ":3"]).unwrap();
        let actual = Value::Array([1, 5, 3].map(Value::Integer).into());
        let shown = difference(&expected, &actual);
        assert_eq!(shown, "      *3\n        :1\n    -   :2\n    +   :5\n        :3");
    }
}
