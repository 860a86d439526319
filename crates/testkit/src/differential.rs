//! The differential runner: sends the same random commands to two servers, A and B, and compares
//! the replies.
//!
//! A sequence of a few hundred commands is generated from the table of [`rules`] and sent to both
//! servers, which are empty at the start. Every reply is compared ([`compare`]), and at the end the
//! whole content. Half of the sequences use RESP2, half RESP3, and some run with other encoding
//! thresholds. A difference is shrunk ([`shrink`]) and reported as a `.resp` script with the
//! replies of server A. All choices follow from one seed.

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::time::{Duration, Instant};

use resp::{Protocol, Value};

use crate::client::{Address, Client};
use crate::notation;
use crate::rng::Rng;

mod compare;
mod explained;
mod grammar;
mod pair;
mod payloads;
mod programs;
mod rules;
mod shrink;
mod values;

pub use explained::Explained;
pub use grammar::{Args, Grammar, Kind};
pub use pair::{Difference, RunError};

use pair::Pair;

/// Number of random commands in a sequence, which is sent to both servers.
const SEQUENCE_COMMANDS: usize = 400;

/// Percentage of sequences that also contain session commands (transactions, subscriptions,
/// blocking commands).
const SESSIONS_PERCENT: usize = 25;

/// Number of sequences of commands after which the RESP version changes.
const SEQUENCES_PER_PROTOCOL: u64 = 8;

/// The settings of a run of the differential test.
#[derive(Clone, Debug)]
pub struct Options {
    /// The seed from which all random commands follow.
    pub seed: u64,
    /// The time after which the run ends.
    pub time: Duration,
    /// The number of commands after which the run ends.
    pub commands: u64,
    /// The number of failures with different causes after which the run ends.
    pub failures: usize,
    /// The commands to use, in capitals. If empty, all commands that both servers know.
    pub only: Vec<String>,
    /// The commands not to use, in capitals.
    pub skip: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let (only, skip) = (Vec::new(), Vec::new());
        Self { seed: 1, time: Duration::from_secs(60), commands: u64::MAX, failures: 1, only, skip }
    }
}

/// The results of a run of the differential test.
#[derive(Debug, Default)]
pub struct Summary {
    /// The seed from which the run's random commands followed.
    pub seed: u64,
    /// The number of commands that the test has sent to each server.
    pub commands: u64,
    /// The number of sequences of commands sent to both servers.
    pub sequences: u64,
    /// The duration of the differential test.
    pub elapsed: Duration,
    /// The commands of the rules that were not compared. Only one of the servers knows them, or
    /// their effects differ between the two versions.
    pub unknown: Vec<String>,
    /// One `.resp` script for each failure, with the replies of server A.
    pub failures: Vec<String>,
}

impl Summary {
    /// Fails the test if there is a failure, with the texts of all failures.
    ///
    /// # Panics
    /// Panics when there are failures.
    pub fn expect_success(&self) {
        assert!(self.failures.is_empty(), "{self}");
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "{failure}")?;
        }
        if !self.unknown.is_empty() {
            writeln!(
                f,
                "left out, as one of the servers does not know them, or not as the other does: {}",
                self.unknown.join(" ")
            )?;
        }
        let seconds = self.elapsed.as_secs_f64();
        let (seed, commands, rate) = (self.seed, self.commands, self.commands as f64 / seconds.max(1e-3));
        write!(
            f,
            "seed {seed}: {} sequences, {commands} commands in {seconds:.1} s ({rate:.0}/s), {} differences",
            self.sequences,
            self.failures.len()
        )
    }
}

/// Runs random sequences on the servers at `a` (the reference) and `b`. Deletes all their keys.
pub fn run(a: &Address, b: &Address, options: &Options) -> Result<Summary, RunError> {
    let start = Instant::now();
    let unknown = unknown_commands(a, b)?;
    let wanted = |name: &str| {
        !unknown.iter().any(|unknown| unknown == name)
            && !options.skip.iter().any(|skip| skip == name)
            && (options.only.is_empty() || options.only.iter().any(|only| only == name))
    };
    let grammar = Grammar::new(wanted);
    if grammar.is_empty() {
        return Err(RunError::Setup("no command is left to send".into()));
    }
    let mut summary = Summary { seed: options.seed, unknown, ..Summary::default() };
    let mut pair = Pair::connect(a, b, Protocol::Resp2);
    pair.explain(explained_between(a, b)?);
    let mut seeds = Rng::new(options.seed);
    let mut signatures = BTreeSet::new();
    while start.elapsed() < options.time
        && pair.sent < options.commands
        && summary.failures.len() < options.failures
    {
        let commands = sequence(&pair, &grammar, &mut Rng::new(seeds.next_u64()));
        let number = summary.sequences;
        summary.sequences += 1;
        let turn = number / SEQUENCES_PER_PROTOCOL;
        let protocol = if turn.is_multiple_of(2) { Protocol::Resp2 } else { Protocol::Resp3 };
        if protocol != pair.protocol() {
            pair.reconnect(protocol);
        }
        let Some(found) = pair.run(&commands)? else { continue };
        if signatures.insert(found.signature()) {
            let small = shrink::shrink(&mut pair, &commands, found)?;
            signatures.insert(small.signature());
            summary.failures.push(as_script(&small, options.seed, number, protocol));
        }
    }
    summary.commands = pair.sent;
    summary.elapsed = start.elapsed();
    Ok(summary)
}

/// Returns the accepted differences between the versions of the servers at `a` and `b`.
fn explained_between(a: &Address, b: &Address) -> Result<Vec<&'static Explained>, RunError> {
    let mut info = [String::new(), String::new()];
    for (address, info) in [a, b].into_iter().zip(&mut info) {
        let reply = connect(address)?.command(&["INFO", "server"]);
        *info = String::from_utf8_lossy(reply.as_bytes().unwrap_or_default()).into_owned();
    }
    Ok(explained::between(&info))
}

fn connect(address: &Address) -> Result<Client, RunError> {
    Client::connect(address).map_err(|error| RunError::Setup(format!("connecting to {address}: {error}")))
}

/// Returns the commands of the rules that are not compared: only one of `a` and `b` knows them, or
/// their effects differ between the two versions.
fn unknown_commands(a: &Address, b: &Address) -> Result<Vec<String>, RunError> {
    let mut clients = [connect(a)?, connect(b)?];
    let mut unknown = Vec::new();
    let info = clients.each_mut().map(|client| format!("{}", client.command(&["INFO", "server"])));
    for name in Grammar::names() {
        if explained::is_other(&info, name) {
            unknown.push(name.to_string());
            continue;
        }
        let mut known = 0;
        for client in &mut clients {
            // A transaction begun by a command of this loop would queue the later commands.
            client.request(&["RESET"]).map_err(|error| RunError::Setup(format!("RESET: {error}")))?;
            // Without arguments nearly all commands fail with an arity error and change no key.
            let reply =
                client.request(&[name]).map_err(|error| RunError::Setup(format!("{name}: {error}")))?;
            known +=
                usize::from(!matches!(reply, Value::Error(text) if text.starts_with(b"ERR unknown command")));
        }
        // Two servers that do not know a command answer with the same words.
        if known == 1 {
            unknown.push(name.to_string());
        }
    }
    Ok(unknown)
}

/// Returns a random sequence of commands. Half of the sequences begin by setting other encoding
/// thresholds.
fn sequence(pair: &Pair, grammar: &Grammar, rng: &mut Rng) -> Vec<Args> {
    let mut clock = 0;
    let kind = if rng.percent(SESSIONS_PERCENT) { Kind::Sessions } else { Kind::Data };
    let mut commands = Vec::with_capacity(SEQUENCE_COMMANDS + 1);
    if rng.percent(50) {
        commands.extend(pair.other_options(rng));
    }
    let mut in_transaction = false;
    while commands.len() < SEQUENCE_COMMANDS {
        let args = grammar.command(kind, &mut clock, rng);
        match compare::name(&args).as_str() {
            "MULTI" => in_transaction = true,
            "EXEC" | "DISCARD" | "RESET" => in_transaction = false,
            // A known difference: a client publishes to a channel to which it is subscribed, and
            // unsubscribes in the same transaction. Redis sends the message, Saker does not.
            "UNSUBSCRIBE" | "PUNSUBSCRIBE" | "SUNSUBSCRIBE" if in_transaction => continue,
            _ => {}
        }
        commands.push(args);
    }
    commands
}

/// Formats the difference between two servers as a `.resp` script with the replies of A, and the
/// reply of B in a comment.
fn as_script(difference: &Difference, seed: u64, number: u64, protocol: Protocol) -> String {
    let mut out = format!("# seed {seed}, sequence {number}, {protocol:?}\n");
    for (args, reply) in difference.reported() {
        writeln!(out, "> {}", notation::command_line(args)).expect("writing to a string cannot fail");
        for line in notation::lines(reply) {
            writeln!(out, "{line}").expect("writing to a string cannot fail");
        }
    }
    out.push_str("# B answered the last:\n");
    for line in notation::lines(&difference.other) {
        writeln!(out, "#   {line}").expect("writing to a string cannot fail");
    }
    out
}
