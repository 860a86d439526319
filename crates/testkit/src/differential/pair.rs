//! Two servers that receive the same commands.
//!
//! At the start of a sequence both servers are emptied and their options are set to known values.
//! Commands are sent in batches, to both servers before a reply is read, so that the servers work
//! in parallel. At the end the whole content is compared: the type of each key, its expiry, its
//! encoding and its value.
//!
//! The reply of EXEC is compared by parts, each as the reply to its queued command. In RESP3,
//! messages arrive between replies. They are separated from the replies and compared in order, as
//! parts of the reply that they precede.

use std::fmt;

use resp::{Protocol, Value, encode_request};

use super::compare::{agree, diverging_key};
use super::explained::Explained;
use super::grammar::Args;
use super::values::DATABASES;
use crate::client::{Address, Client, ClientError};
use crate::notation::one_line;
use crate::rng::Rng;

/// Number of commands sent to both servers before their replies are read. It is so small that no
/// server stops reading because its replies are not read.
const BATCH_COMMANDS: usize = 128;

/// The server options that sequences of commands vary, with their values at the start.
const OPTIONS: &[(&str, &str)] = &[
    ("hash-max-listpack-entries", "128"),
    ("hash-max-listpack-value", "64"),
    ("set-max-intset-entries", "512"),
    ("set-max-listpack-entries", "128"),
    ("set-max-listpack-value", "64"),
    ("zset-max-listpack-entries", "128"),
    ("zset-max-listpack-value", "64"),
    ("list-max-listpack-size", "-2"),
    ("stream-node-max-entries", "100"),
    ("hll-sparse-max-bytes", "3000"),
];

/// Two more sets of values for `OPTIONS`, in the same order. The first makes every type use its
/// large encoding. The second has low thresholds, so that values change their encoding within a
/// sequence.
const OPTION_VARIANTS: &[[&str; OPTIONS.len()]] = &[
    ["0", "64", "0", "0", "64", "0", "64", "1", "1", "0"],
    ["4", "8", "4", "6", "8", "4", "8", "3", "3", "60"],
];

/// The first command of a sequence to which the two servers replied differently.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The commands of the sequence up to the one with different replies, inclusive.
    pub commands: Vec<Args>,
    /// The replies of server A to the commands of this difference.
    pub replies: Vec<Value>,
    /// The reply of server B to the last of these commands.
    pub other: Value,
    /// The index of the first command that reads the whole content at the end of the sequence. If
    /// there is none, the number of commands.
    content_from: usize,
}

impl Difference {
    /// Returns the commands of a report with A's replies. Of the commands that read the whole
    /// content, only the last SELECT and the command with different replies are included.
    pub fn reported(&self) -> impl Iterator<Item = (&Args, &Value)> {
        let last = self.commands.len().saturating_sub(1);
        let select = self.commands.iter().rposition(|args| args[0].eq_ignore_ascii_case(b"SELECT"));
        let reported = move |at: usize| at < self.content_from || at == last || Some(at) == select;
        self.commands
            .iter()
            .zip(&self.replies)
            .enumerate()
            .filter(move |(at, _)| reported(*at))
            .map(|(_, it)| it)
    }

    /// Returns a text that two differences with the same cause probably share: the command and the
    /// kinds of the replies.
    pub fn signature(&self) -> String {
        let kind = |value: &Value| match value {
            Value::Error(text) => String::from_utf8_lossy(&text[..text.len().min(24)]).into_owned(),
            other => one_line(other).chars().take(1).collect(),
        };
        let name = self.commands.last().map(|args| String::from_utf8_lossy(&args[0]).to_ascii_uppercase());
        let reply = self.replies.last().map(kind).unwrap_or_default();
        format!("{} | {reply} | {}", name.unwrap_or_default(), kind(&self.other))
    }
}

/// The reason why a run of the differential test cannot continue.
#[derive(Debug)]
pub enum RunError {
    /// A server closed the connection or did not answer.
    Lost {
        /// The name of the server, `A` or `B`.
        server: char,
        /// The reason why the server's connection gave no reply.
        error: ClientError,
        /// The commands sent since both servers were emptied.
        commands: Vec<Args>,
    },
    /// A server refused a command of the setup of every sequence.
    Setup(String),
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost { server, error, commands } => {
                writeln!(f, "server {server}: {error}; sent before:")?;
                for args in commands {
                    writeln!(f, "> {}", crate::notation::command_line(args))?;
                }
                Ok(())
            }
            Self::Setup(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for RunError {}

/// The connections to the two servers that are compared, and the state of the comparison.
#[derive(Debug)]
pub struct Pair {
    addresses: [Address; 2],
    clients: [Client; 2],
    protocol: Protocol,
    /// The number of commands that the test has sent to each server so far.
    pub sent: u64,
    /// The commands sent since both servers were emptied, for an error message.
    recent: Vec<Args>,
    explained: Vec<&'static Explained>,
    /// The commands queued since MULTI in the current transaction.
    queued: Vec<Args>,
    /// The indexes of those [`OPTIONS`] that both servers know.
    options: Vec<usize>,
}

impl Pair {
    /// Connects to the servers at `a` and `b`, with `protocol` on both connections.
    pub fn connect(a: &Address, b: &Address, protocol: Protocol) -> Self {
        let mut clients = [Client::speaking(a, protocol), Client::speaking(b, protocol)];
        let mut has = |name: &str| {
            let mut replies = clients.iter_mut().map(|client| client.command(&["CONFIG", "GET", name]));
            replies.all(|reply| matches!(reply, Value::Array(pair) if !pair.is_empty()))
        };
        let options = (0..OPTIONS.len()).filter(|&at| has(OPTIONS[at].0)).collect();
        let addresses = [a.clone(), b.clone()];
        Self {
            addresses,
            clients,
            protocol,
            sent: 0,
            recent: Vec::new(),
            explained: Vec::new(),
            queued: Vec::new(),
            options,
        }
    }

    /// Returns the command that sets the options that both servers know to the values of a variant,
    /// or to their start values for `None`. Returns `None` if they have no option in common.
    fn set_options(&self, variant: Option<usize>) -> Option<Args> {
        let value = |at: usize| variant.map_or(OPTIONS[at].1, |variant| OPTION_VARIANTS[variant][at]);
        let pairs = self.options.iter().flat_map(|&at| [OPTIONS[at].0, value(at)]);
        let words = ["CONFIG", "SET"].into_iter().chain(pairs).map(|word| word.as_bytes().to_vec());
        (!self.options.is_empty()).then(|| words.collect())
    }

    /// Returns the command that sets the servers' options to a random variant. Some sequences begin
    /// with it.
    pub fn other_options(&self, rng: &mut Rng) -> Option<Args> {
        self.set_options(Some(rng.below(OPTION_VARIANTS.len())))
    }

    /// Sets the accepted differences between the two servers, which later comparisons ignore.
    pub fn explain(&mut self, explained: Vec<&'static Explained>) {
        self.explained = explained;
    }

    /// Returns the version of RESP that both connections use.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Opens new connections to both servers, in `protocol`.
    pub fn reconnect(&mut self, protocol: Protocol) {
        // Ends the subscriptions of the old connections now, not at an unknown later time.
        for client in &mut self.clients {
            // A connection that is already closed has no subscriptions.
            let _ = client.request(&["RESET"]);
        }
        let [a, b] = &self.addresses;
        self.clients = [Client::speaking(a, protocol), Client::speaking(b, protocol)];
        self.protocol = protocol;
    }

    /// Sends `commands` to both servers. Returns the replies of A and of B.
    pub fn ask(&mut self, commands: &[Args]) -> Result<[Vec<Value>; 2], RunError> {
        let mut bytes = Vec::new();
        commands.iter().for_each(|args| encode_request(args, &mut bytes));
        self.recent.extend_from_slice(commands);
        self.sent += commands.len() as u64;
        let lost = |at: usize, error, recent: &[Args]| RunError::Lost {
            server: ['A', 'B'][at],
            error,
            commands: recent.to_vec(),
        };
        for (at, client) in self.clients.iter_mut().enumerate() {
            client.send(&bytes).map_err(|error| lost(at, error, &self.recent))?;
        }
        let mut replies = [Vec::new(), Vec::new()];
        for (at, client) in self.clients.iter_mut().enumerate() {
            replies[at] =
                read_replies(client, commands.len()).map_err(|error| lost(at, error, &self.recent))?;
        }
        Ok(replies)
    }

    /// Empties both servers and resets their options to the start values.
    fn reset(&mut self) -> Result<(), RunError> {
        self.recent.clear();
        self.queued.clear();
        let mut setup = self.fresh_session();
        setup.extend([words("FLUSHALL"), words("SELECT 0")]);
        setup.extend(self.set_options(None));
        let replies = self.ask(&setup)?;
        self.recent.clear();
        let refusal = replies.iter().flatten().find(|reply| reply.is_error());
        refusal.map_or(Ok(()), |error| Err(RunError::Setup(format!("setting up a sequence: {error}"))))
    }

    /// Returns the commands that reset the whole state of a session: transaction, watched keys,
    /// subscriptions.
    fn fresh_session(&self) -> Vec<Args> {
        let hello = (self.protocol == Protocol::Resp3).then(|| words("HELLO 3"));
        std::iter::once(words("RESET")).chain(hello).collect()
    }

    /// Empties both servers and runs `commands` on both. Returns the first difference of their
    /// replies or content; `None` if there is none.
    pub fn run(&mut self, commands: &[Args]) -> Result<Option<Difference>, RunError> {
        self.reset()?;
        let mut done = Vec::new();
        let mut replies = Vec::new();
        for batch in commands.chunks(BATCH_COMMANDS) {
            let batch = with_resyncs(batch);
            if let Some(difference) = self.compare(&batch, &mut done, &mut replies)? {
                return Ok(Some(difference));
            }
        }
        let content_from = done.len();
        let fresh = self.fresh_session();
        self.ask(&fresh)?;
        self.queued.clear();
        for batch in self.dump_commands()?.chunks(BATCH_COMMANDS) {
            if let Some(difference) = self.compare(batch, &mut done, &mut replies)? {
                return Ok(Some(Difference { content_from, ..difference }));
            }
        }
        Ok(None)
    }

    /// Sends one batch of commands to both servers and compares the replies. Returns the first
    /// difference; `None` if all replies agree. Appends the compared commands to `done` and the
    /// replies of A to `replies`; a returned difference takes the contents of both vectors.
    fn compare(
        &mut self,
        batch: &[Args],
        done: &mut Vec<Args>,
        replies: &mut Vec<Value>,
    ) -> Result<Option<Difference>, RunError> {
        let [a, b] = self.ask(batch)?;
        for ((args, a), b) in batch.iter().zip(a).zip(b) {
            let same = self.same(args, &a, &b);
            done.push(args.clone());
            replies.push(a);
            if !same {
                let (commands, replies) = (std::mem::take(done), std::mem::take(replies));
                let content_from = commands.len();
                return Ok(Some(Difference { commands, replies, other: b, content_from }));
            }
        }
        Ok(None)
    }

    /// Returns true if the replies `a` and `b` of the two servers to `args` agree. The reply of
    /// EXEC is compared part by part, each as the reply to its queued command.
    fn same(&mut self, args: &Args, a: &Value, b: &Value) -> bool {
        if *a == Value::Simple(b"QUEUED".to_vec()) {
            self.queued.push(args.clone());
            return a == b;
        }
        let queued = match &*args[0].to_ascii_uppercase() {
            b"EXEC" | b"DISCARD" | b"RESET" => std::mem::take(&mut self.queued),
            _ => Vec::new(),
        };
        match (a, b) {
            (Value::Array(a), Value::Array(b)) if !queued.is_empty() => {
                let mut pairs = queued.iter().zip(a.iter().zip(b));
                a.len() == b.len()
                    && a.len() == queued.len()
                    && pairs.all(|(args, (a, b))| self.alike(args, a, b))
            }
            _ => self.alike(args, a, b),
        }
    }

    fn alike(&self, args: &Args, a: &Value, b: &Value) -> bool {
        agree(args, a, b, self.protocol) || self.explained.iter().any(|known| known.explains(args, a, b))
    }

    /// Returns commands that read the whole content of server A. If B replies equally, it has the
    /// same content.
    fn dump_commands(&mut self) -> Result<Vec<Args>, RunError> {
        let mut dump = Vec::new();
        for db in 0..DATABASES {
            let select = words(&format!("SELECT {db}"));
            let list = [select.clone(), words("KEYS *")];
            let [a, _] = self.ask(&list)?;
            dump.extend(list);
            let Some(Value::Array(keys)) = a.into_iter().nth(1) else { continue };
            let mut keys: Vec<_> = keys.iter().filter_map(Value::as_bytes).map(<[u8]>::to_vec).collect();
            keys.sort();
            let types: Vec<_> = keys.iter().map(|key| with_key("TYPE", key, "")).collect();
            let [types, _] = self.ask(&types)?;
            for (key, kind) in keys.iter().zip(types) {
                dump.push(with_key("TYPE", key, ""));
                dump.push(with_key("TTL", key, ""));
                dump.push(with_key("OBJECT ENCODING", key, ""));
                dump.extend(match kind.as_bytes().unwrap_or_default() {
                    b"string" => Some(with_key("GET", key, "")),
                    b"list" => Some(with_key("LRANGE", key, "0 -1")),
                    b"hash" => Some(with_key("HGETALL", key, "")),
                    b"set" => Some(with_key("SMEMBERS", key, "")),
                    b"zset" => Some(with_key("ZRANGE", key, "0 -1 WITHSCORES")),
                    b"stream" => Some(with_key("XRANGE", key, "- +")),
                    _ => None,
                });
            }
        }
        Ok(dump)
    }
}

/// Reads `count` replies. If published messages arrive before a reply, messages and reply are
/// returned as one push value.
fn read_replies(client: &mut Client, count: usize) -> Result<Vec<Value>, ClientError> {
    let mut replies = Vec::with_capacity(count);
    let mut messages = Vec::new();
    while replies.len() < count {
        let value = client.read()?;
        if is_message(&value) {
            messages.push(value);
        } else if messages.is_empty() {
            replies.push(value);
        } else {
            // The order of the patterns that match a channel depends on the server, so the messages
            // are sorted.
            messages.sort_by_key(one_line);
            messages.push(value);
            replies.push(Value::Push(std::mem::take(&mut messages)));
        }
    }
    Ok(replies)
}

/// Returns true if the value is a published message.
fn is_message(value: &Value) -> bool {
    // RESP2 has them too: if a client subscribes and publishes in one transaction.
    let (Value::Push(parts) | Value::Array(parts)) = value else { return false };
    matches!(parts.first().and_then(Value::as_bytes), Some(b"message" | b"pmessage" | b"smessage"))
}

/// Splits `text` at spaces into the name and the arguments of a command.
fn words(text: &str) -> Args {
    text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// Returns a command that consists of the words of `before`, the key, and the words of `after`.
fn with_key(before: &str, key: &[u8], after: &str) -> Args {
    let mut args = words(before);
    args.push(key.to_vec());
    args.extend(words(after));
    args
}

/// Returns `commands` with additional DELs: after each command with a random effect, a DEL of the
/// key whose value may differ.
fn with_resyncs(commands: &[Args]) -> Vec<Args> {
    let mut out = Vec::with_capacity(commands.len());
    for args in commands {
        out.push(args.clone());
        out.extend(diverging_key(args).map(|key| vec![b"DEL".to_vec(), key.to_vec()]));
    }
    out
}
