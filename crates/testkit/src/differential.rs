//! The differential runner: two servers, the same random commands, the same answers.
//!
//! A sequence of a few hundred commands is made from the table of [`rules`] and sent to both
//! servers from empty; every reply is compared ([`compare`]), and at the end the whole content.
//! Half of the sequences speak RESP2, half RESP3, and some run under other encoding thresholds. A
//! difference is shrunk ([`shrink`]) and told as a `.resp` script whose replies are those of server
//! A. Everything follows from one seed.

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

/// Commands of a sequence.
const SEQUENCE_COMMANDS: usize = 400;

/// How many of a hundred sequences are about sessions, too.
const SESSIONS_PERCENT: usize = 25;

/// Sequences after which the other protocol is spoken.
const SEQUENCES_PER_PROTOCOL: u64 = 8;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where all choices start from.
    pub seed: u64,
    /// Ends the run after this time.
    pub time: Duration,
    /// Ends the run after this many commands.
    pub commands: u64,
    /// Ends the run after this many different failures.
    pub failures: usize,
    /// The commands to use, in capitals; all that both servers know when empty.
    pub only: Vec<String>,
    /// The commands to leave out, in capitals.
    pub skip: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        let (only, skip) = (Vec::new(), Vec::new());
        Self { seed: 1, time: Duration::from_secs(60), commands: u64::MAX, failures: 1, only, skip }
    }
}

/// What a run showed.
#[derive(Debug, Default)]
pub struct Summary {
    /// The seed it started from.
    pub seed: u64,
    /// Commands sent to each server.
    pub commands: u64,
    /// Sequences run.
    pub sequences: u64,
    /// Time taken.
    pub elapsed: Duration,
    /// Commands of the table that one of the servers does not know.
    pub unknown: Vec<String>,
    /// One script per failure.
    pub failures: Vec<String>,
}

impl Summary {
    /// Fails the test with everything that differed.
    ///
    /// # Panics
    /// When there are failures.
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

/// Runs random sequences on the servers at `a` (the reference) and `b`, which are emptied.
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

/// The accepted differences that concern `a` and `b`.
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

/// The commands of the table that `a` or `b` answers as unknown, or keeps another state for.
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
            // A transaction that one of them began would queue the others.
            client.request(&["RESET"]).map_err(|error| RunError::Setup(format!("RESET: {error}")))?;
            // Without arguments nearly all are refused for that, and no key is touched.
            let reply =
                client.request(&[name]).map_err(|error| RunError::Setup(format!("{name}: {error}")))?;
            known +=
                usize::from(!matches!(reply, Value::Error(text) if text.starts_with(b"ERR unknown command")));
        }
        // What neither knows is answered by both in the same words.
        if known == 1 {
            unknown.push(name.to_string());
        }
    }
    Ok(unknown)
}

/// A random sequence; some start by setting other encoding thresholds.
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
            // A known difference: a message to oneself whose subscription ends in the same
            // transaction is sent by Redis, and not by Saker.
            "UNSUBSCRIBE" | "PUNSUBSCRIBE" | "SUNSUBSCRIBE" if in_transaction => continue,
            _ => {}
        }
        commands.push(args);
    }
    commands
}

/// The difference as a script with the replies of A, and what B answered in a comment.
fn as_script(difference: &Difference, seed: u64, number: u64, protocol: Protocol) -> String {
    let mut out = format!("# seed {seed}, sequence {number}, {protocol:?}\n");
    for (args, reply) in difference.told() {
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
