//! Two servers that get the same commands.
//!
//! A sequence starts with both emptied and their options at known values. Commands go out in
//! batches, to both servers before either is read, so that they work side by side. At the end the
//! whole content is compared: for each key its type, whether it expires, its encoding, its value.
//!
//! The reply of EXEC is compared by parts, each as the reply to the command that was queued.
//! Messages that RESP3 brings between replies are told apart from them and compared in their order,
//! as parts of the reply that they came before.

use std::fmt;

use resp::{Protocol, Value, encode_request};

use super::compare::{agree, diverging_key};
use super::explained::Explained;
use super::grammar::Args;
use super::values::DATABASES;
use crate::client::{Address, Client, ClientError};
use crate::notation::one_line;
use crate::rng::Rng;

/// Commands sent before their replies are read. Small enough that no server stops reading because
/// its replies are not taken.
const BATCH_COMMANDS: usize = 128;

/// The options that sequences vary, at the values they start from.
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

/// Other values for them, in the same order: everything large, and thresholds that sequences cross.
const OPTION_VARIANTS: &[[&str; OPTIONS.len()]] = &[
    ["0", "64", "0", "0", "64", "0", "64", "1", "1", "0"],
    ["4", "8", "4", "6", "8", "4", "8", "3", "3", "60"],
];

/// The first place where the two servers answered differently.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The commands up to and with the one that was answered differently.
    pub commands: Vec<Args>,
    /// The replies of server A to them.
    pub replies: Vec<Value>,
    /// What server B answered to the last.
    pub other: Value,
    /// Where among the commands the reading of the content starts; their number when it does not.
    content_from: usize,
}

impl Difference {
    /// What a reader has to see: the commands with A's replies, of the reading of the content only
    /// the choice of the database and what differed.
    pub fn told(&self) -> impl Iterator<Item = (&Args, &Value)> {
        let last = self.commands.len().saturating_sub(1);
        let select = self.commands.iter().rposition(|args| args[0].eq_ignore_ascii_case(b"SELECT"));
        let told = move |at: usize| at < self.content_from || at == last || Some(at) == select;
        self.commands.iter().zip(&self.replies).enumerate().filter(move |(at, _)| told(*at)).map(|(_, it)| it)
    }

    /// What makes two differences likely the same: the command and the kinds of the replies.
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

/// Why a run cannot go on.
#[derive(Debug)]
pub enum RunError {
    /// A server ended the connection or answered nothing. Tells which, and what was sent last.
    Lost {
        /// `A` or `B`.
        server: char,
        /// What happened.
        error: ClientError,
        /// The commands since both were emptied.
        commands: Vec<Args>,
    },
    /// A server refused what every sequence starts with.
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

/// Connections to both servers.
#[derive(Debug)]
pub struct Pair {
    addresses: [Address; 2],
    clients: [Client; 2],
    protocol: Protocol,
    /// Commands sent so far.
    pub sent: u64,
    /// What was sent since both were emptied, for an error.
    recent: Vec<Args>,
    explained: Vec<&'static Explained>,
    /// What is queued in a transaction.
    queued: Vec<Args>,
    /// Which of [`OPTIONS`] both have.
    options: Vec<usize>,
}

impl Pair {
    /// Connects to both servers.
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

    /// The command that gives the options that both have the values of a variant, or without one
    /// those that sequences start from. `None` when they have none in common.
    fn set_options(&self, variant: Option<usize>) -> Option<Args> {
        let value = |at: usize| variant.map_or(OPTIONS[at].1, |variant| OPTION_VARIANTS[variant][at]);
        let pairs = self.options.iter().flat_map(|&at| [OPTIONS[at].0, value(at)]);
        let words = ["CONFIG", "SET"].into_iter().chain(pairs).map(|word| word.as_bytes().to_vec());
        (!self.options.is_empty()).then(|| words.collect())
    }

    /// The command that sets other thresholds, for some sequences to start with.
    pub fn other_options(&self, rng: &mut Rng) -> Option<Args> {
        self.set_options(Some(rng.below(OPTION_VARIANTS.len())))
    }

    /// Takes differences that one of `explained` explains for none.
    pub fn explain(&mut self, explained: Vec<&'static Explained>) {
        self.explained = explained;
    }

    /// The protocol both are spoken to in.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// New connections in `protocol`.
    pub fn reconnect(&mut self, protocol: Protocol) {
        // What the old ones subscribed to ends before, not at some moment later.
        for client in &mut self.clients {
            // One that is gone has ended anyway.
            let _ = client.request(&["RESET"]);
        }
        let [a, b] = &self.addresses;
        self.clients = [Client::speaking(a, protocol), Client::speaking(b, protocol)];
        self.protocol = protocol;
    }

    /// Sends `commands` to both; gives the replies of A and of B.
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

    /// Empties both and puts their options back.
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

    /// The commands that end all a session is in the middle of.
    fn fresh_session(&self) -> Vec<Args> {
        let hello = (self.protocol == Protocol::Resp3).then(|| words("HELLO 3"));
        std::iter::once(words("RESET")).chain(hello).collect()
    }

    /// Runs `commands` on both from empty; gives the first difference.
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

    /// Sends one batch and compares; `done` and `replies` collect what agreed.
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

    /// Whether the replies to `args` agree, and those of a transaction part by part.
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

    /// The commands that read the whole content of A; the same ones show whether B holds the same.
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

/// Reads so many replies; a message before one makes both parts of a push.
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
            // Which of the patterns that fit a channel is told first is each server's own affair.
            messages.sort_by_key(one_line);
            messages.push(value);
            replies.push(Value::Push(std::mem::take(&mut messages)));
        }
    }
    Ok(replies)
}

/// Whether it is what somebody published.
fn is_message(value: &Value) -> bool {
    // RESP2 has them too: of a client that subscribes and publishes in one transaction.
    let (Value::Push(parts) | Value::Array(parts)) = value else { return false };
    matches!(parts.first().and_then(Value::as_bytes), Some(b"message" | b"pmessage" | b"smessage"))
}

/// `text` as a command, split at blanks.
fn words(text: &str) -> Args {
    text.split_whitespace().map(|word| word.as_bytes().to_vec()).collect()
}

/// `before`, the key, `after`.
fn with_key(before: &str, key: &[u8], after: &str) -> Args {
    let mut args = words(before);
    args.push(key.to_vec());
    args.extend(words(after));
    args
}

/// `commands`, each with a random effect followed by the removal of the key it left different.
fn with_resyncs(commands: &[Args]) -> Vec<Args> {
    let mut out = Vec::with_capacity(commands.len());
    for args in commands {
        out.push(args.clone());
        out.extend(diverging_key(args).map(|key| vec![b"DEL".to_vec(), key.to_vec()]));
    }
    out
}
