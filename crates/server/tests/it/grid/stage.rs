//! Servers, connections and values of one cell of the grid.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use testkit::{Client, Protocol, ServerProcess, Value, peer, saker};

use crate::support::BINARY;

/// Maximum time to wait for one condition or reply, also on a very busy machine.
const WAIT_MAX: Duration = Duration::from_secs(300);
/// Number of other keys that exist while a snapshot is saved.
const FILLER_KEYS: &str = "100";
/// Number of elements or fields that make a list, hash or sorted set big enough for the index of
/// big keys.
const LARGE_COUNT: usize = 1_100;

/// A running server of the grid, with the paths of its files.
pub struct Rig {
    process: ServerProcess,
    /// The folder of the append-only files, as the test's process sees it.
    pub append_only: PathBuf,
    /// The path of the server's RDB file, as the test's process sees it.
    pub dump: PathBuf,
}

impl Rig {
    /// Starts Saker with this I/O backend; `appendonly` is `yes` or `no`.
    pub fn saker(back_end: &str, appendonly: &str) -> Self {
        Self::start(appendonly, |options| {
            let own = ["--io-backend", back_end, "--io-threads", "2", "--enable-debug-command", "yes"];
            saker::start_binary(BINARY, &[options, &own].concat())
        })
    }

    /// Starts the real server; `appendonly` is `yes` or `no`.
    pub fn peer(appendonly: &str) -> Self {
        Self::start(appendonly, peer::start_with)
    }

    fn start(appendonly: &str, start: impl Fn(&[&str]) -> std::io::Result<ServerProcess>) -> Self {
        // A peer's working directory may be shared with other processes.
        let name = format!("grid-{}-{:x}", std::process::id(), fastrand::u64(..));
        let file = format!("{name}.rdb");
        let process = start(&[
            "--save",
            "",
            "--appendonly",
            appendonly,
            "--appendfsync",
            "always",
            "--auto-aof-rewrite-percentage",
            "0",
            "--appenddirname",
            &name,
            "--dbfilename",
            &file,
            "--rdbcompression",
            "no",
            "--hz",
            "100",
        ]);
        let process = process.unwrap_or_else(|error| panic!("{error}"));
        let folder = std::fs::read_link(format!("/proc/{}/cwd", process.pid())).expect("the server runs");
        Self { process, append_only: folder.join(name), dump: folder.join(file) }
    }

    /// Returns the Redis version of the server, or the version that it is compatible with, as major
    /// and minor number.
    pub fn version(&self) -> (u32, u32) {
        let about = self.speaker().ask("INFO server").to_string();
        let text = about.split("redis_version:").nth(1).expect("INFO has redis_version");
        let mut parts = text.split('.').map(|part| part.parse().expect("a number"));
        (parts.next().expect("major"), parts.next().expect("minor"))
    }

    /// Returns the server's port on the loopback address.
    pub fn port(&self) -> u16 {
        self.process.port()
    }

    /// Opens a new RESP3 connection to the server.
    pub fn speaker(&self) -> Speaker {
        let mut client = Client::speaking(&self.process.address(), Protocol::Resp3);
        client.set_read_timeout(WAIT_MAX);
        Speaker { client, pushes: Vec::new() }
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // They exist only if something was written.
        let _ = std::fs::remove_dir_all(&self.append_only);
        let _ = std::fs::remove_file(&self.dump);
    }
}

/// A RESP3 connection that separates replies from messages that the server pushes.
pub struct Speaker {
    client: Client,
    pushes: Vec<Value>,
}

impl Speaker {
    /// Sends the request `line`, whose words are separated by blanks, without waiting for its
    /// reply.
    pub fn send(&mut self, line: &str) {
        let mut bytes = format!("*{}\r\n", words(line).len()).into_bytes();
        for word in words(line) {
            bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
        }
        self.client.send(&bytes).expect("the server takes requests");
    }

    /// Waits for the next reply and returns it. Stores the messages that arrive before it.
    pub fn read(&mut self) -> Value {
        self.read_to("a request")
    }

    fn read_to(&mut self, line: &str) -> Value {
        loop {
            match self.client.read().unwrap_or_else(|error| panic!("{line}: {error}")) {
                Value::Push(message) => self.pushes.push(Value::Push(message)),
                reply => return reply,
            }
        }
    }

    /// Sends a request and waits for its reply.
    pub fn ask(&mut self, line: &str) -> Value {
        self.send(line);
        self.read_to(line)
    }

    /// Sends requests one after the other, none of which may fail.
    pub fn ask_all(&mut self, lines: &[&str]) {
        for line in lines {
            let reply = self.ask(line);
            assert!(!reply.is_error(), "{line}: {reply}");
        }
    }

    /// Sends a request of these words and waits for its reply.
    pub fn ask_words(&mut self, words: &[&[u8]]) -> Value {
        match self.client.command(words) {
            Value::Push(message) => {
                self.pushes.push(Value::Push(message));
                self.read()
            }
            reply => reply,
        }
    }

    /// Returns all messages that the server has sent until now. Sends PING and reads up to its
    /// reply, which follows them.
    pub fn messages(&mut self) -> &[Value] {
        self.ask("PING");
        &self.pushes
    }

    /// Drops the pushed messages that were received so far.
    pub fn forget_messages(&mut self) {
        self.messages();
        self.pushes.clear();
    }

    /// Returns the value of `field` in the section `section` of INFO, as text; empty if the server
    /// lacks it.
    pub fn info(&mut self, section: &str, field: &str) -> String {
        let text = text_of(&self.ask(&format!("INFO {section}")));
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        line.unwrap_or_default().to_owned()
    }

    /// Returns the value of `field` in the section `section` of INFO, as a number.
    pub fn number(&mut self, section: &str, field: &str) -> i64 {
        self.info(section, field).parse().unwrap_or_else(|_| panic!("INFO has {field} as a number"))
    }

    /// Returns the server's Unix time in milliseconds, by the command TIME.
    pub fn now_ms(&mut self) -> u64 {
        let Value::Array(parts) = self.ask("TIME") else { panic!("TIME answers an array") };
        let part = |at: usize| text_of(&parts[at]).parse::<u64>().expect("a number");
        part(0) * 1_000 + part(1) / 1_000
    }
}

/// Splits a request into words at blanks; `''` is the empty word, `~` a blank within a word.
fn words(line: &str) -> Vec<String> {
    line.split(' ').map(|word| if word == "''" { String::new() } else { word.replace('~', " ") }).collect()
}

/// Returns the text of a string reply.
pub fn text_of(reply: &Value) -> String {
    match reply {
        Value::Bulk(text) | Value::Simple(text) | Value::Verbatim { text, .. } => {
            String::from_utf8_lossy(text).into_owned()
        }
        other => other.to_string(),
    }
}

/// Waits until `is_so` returns true; `what` names the condition in the failure.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WAIT_MAX, "waited in vain: {what}");
    }
}

/// A type of value, as the grid uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// No value: the key does not exist.
    Nothing,
    /// The type that the listener of the cell chooses.
    Any,
    Text,
    List,
    Hash,
    Members,
    Stream,
}

/// The servers, connections and values of one cell of the grid.
pub struct Stage<'a> {
    /// The server that the listener observes.
    pub here: &'a Rig,
    /// Another server of the same kind, for MIGRATE.
    pub far: &'a Rig,
    /// A connection to `here` that is not a listener.
    pub admin: Speaker,
    /// A connection to `far`, the other server.
    pub far_admin: Speaker,
    /// The type that the key `k` holds before the change.
    pub holds: Holds,
    /// The type of the value that the change takes from another place, if it takes one.
    pub brings: Holds,
    /// True if values are big enough for the index of BIGKEYS.
    pub large: bool,
    /// The time between the preparation and the expiry of keys or fields, in milliseconds.
    pub margin_ms: u64,
    /// The expiry time of the key or its fields, in Unix milliseconds; 0 without expiry.
    pub expires_at_ms: u64,
    /// The DUMP payload from which RESTORE creates the key.
    pub payload: Vec<u8>,
}

impl<'a> Stage<'a> {
    /// Empties the servers `here` and `far`, and connects a client to each.
    pub fn new(here: &'a Rig, far: &'a Rig) -> Self {
        let (mut admin, mut far_admin) = (here.speaker(), far.speaker());
        for client in [&mut admin, &mut far_admin] {
            client.ask_all(&[
                "CONFIG SET maxmemory 0",
                "CONFIG SET notify-keyspace-events ''",
                "DEBUG SET-ACTIVE-EXPIRE 1",
                "CONFIG SET rdb-key-save-delay 0",
                "FLUSHALL",
            ]);
            wait_until("no save", || client.number("persistence", "rdb_bgsave_in_progress") == 0);
        }
        // There is no file before the first save.
        let _ = std::fs::remove_file(&here.dump);
        let (holds, brings, large) = (Holds::Nothing, Holds::Nothing, false);
        Self {
            here,
            far,
            admin,
            far_admin,
            holds,
            brings,
            large,
            margin_ms: 0,
            expires_at_ms: 0,
            payload: Vec::new(),
        }
    }

    /// Returns true if the expiry time had passed before the listener was attached.
    pub fn is_too_late(&mut self) -> bool {
        self.expires_at_ms > 0 && self.admin.now_ms() >= self.expires_at_ms
    }

    /// Waits until the key or its fields have expired.
    pub fn wait_for_expiry(&mut self) {
        let Self { admin, expires_at_ms, .. } = self;
        wait_until("the expiry passes", || admin.now_ms() > *expires_at_ms);
    }

    /// Adds [`FILLER_KEYS`] keys besides the key that changes.
    pub fn fill(&mut self) {
        self.admin.ask_all(&[&format!("DEBUG POPULATE {FILLER_KEYS} filler")]);
    }
}

/// Stores a value of type `holds` that contains `word` at `key`; with `large`, a value for the
/// index of big keys.
pub fn put(client: &mut Speaker, key: &str, holds: Holds, word: &str, large: bool) {
    let line = match holds {
        Holds::Nothing => return,
        Holds::Any | Holds::Text => format!("SET {key} {word}"),
        Holds::List => format!("RPUSH {key} {word}"),
        Holds::Hash => format!("HSET {key} a {word} b {word}"),
        Holds::Members => format!("ZADD {key} 1 {word}"),
        Holds::Stream => format!("XADD {key} 1-1 field {word}"),
    };
    client.ask_all(&[&line]);
    if !large {
        return;
    }
    let items: Vec<String> = (0..LARGE_COUNT).map(|n| format!("i{n}")).collect();
    let line = match holds {
        Holds::Nothing => return,
        Holds::Any | Holds::Text => format!("SETRANGE {key} 9999 x"),
        Holds::List => format!("RPUSH {key} {}", items.join(" ")),
        Holds::Hash => format!("HSET {key} {} x", items.join(" x ")),
        Holds::Members => format!("ZADD {key} 1 {}", items.join(" 1 ")),
        // One entry of any length is one element.
        Holds::Stream => format!("XADD {key} 1-2 field {}", "x".repeat(9_999)),
    };
    client.ask_all(&[&line]);
}

/// A client that is blocked by its request.
pub struct Blocked {
    client: Speaker,
    id: String,
}

impl Blocked {
    /// Connects a client, sends the request `line` and waits until it blocks the client.
    pub fn on(stage: &mut Stage<'_>, line: &str) -> Self {
        let mut client = stage.here.speaker();
        let id = client.ask("CLIENT ID").to_string().replace("(integer) ", "");
        let before = stage.admin.number("clients", "blocked_clients");
        client.send(line);
        wait_until(line, || stage.admin.number("clients", "blocked_clients") > before);
        Self { client, id }
    }

    /// Unblocks the client if it is still blocked. Returns its reply, or `None` if it was not
    /// served.
    pub fn end(&mut self, stage: &mut Stage<'_>) -> Option<Value> {
        stage.admin.ask_all(&[&format!("CLIENT UNBLOCK {}", self.id)]);
        Some(self.client.read()).filter(|reply| !matches!(reply, Value::Null | Value::NullArray))
    }
}
