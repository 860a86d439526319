//! The columns of the grid: every listener that must be notified of a change.

use std::path::{Path, PathBuf};

use testkit::Value;

use super::changes::{Before, Change, How};
use super::stage::{Blocked, Holds, Speaker, Stage, text_of, wait_until};

/// Defines the enum of the columns and the list of its variants.
macro_rules! columns {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A column of the grid: a client, file or counter that must be notified of a change of a
        /// value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Listener { $($(#[$doc])* $name,)+ }

        impl Listener {
            /// All columns of the grid: every listener, in the order of the variants.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

columns! {
    /// A client that watches the changed key (WATCH).
    Watch,
    /// A client that has read the key and tracks it.
    TrackingDefault,
    /// A client that has read the key and tracks with OPTIN.
    OptIn,
    /// A client that has read the key and tracks with OPTOUT.
    OptOut,
    /// A client that tracks all keys by a prefix (CLIENT TRACKING with BCAST).
    Bcast,
    /// A client that tracks keys and makes the change itself.
    Own,
    /// A client that tracks with NOLOOP and makes the change itself.
    NoLoop,
    /// A subscriber of keyspace events.
    KeyspaceEvents,
    /// A client that blocks on the key before the key has a value that could serve the client.
    BlockedClient,
    /// A client that blocks in XREADGROUP on a group of the stream `k`.
    BlockedReader,
    /// The append-only file: its records of the change, and the data that it contains after a load.
    ChangeLog,
    /// The field `rdb_changes_since_last_save` of INFO, which must count the change.
    ChangesSinceSave,
    /// The section Keysizes of INFO, which must show the new size.
    KeySizes,
    /// The reply of BIGKEYS, which must show the new size.
    BigKeys,
    /// A snapshot that is in progress during the change, and that must contain the old value.
    SnapshotMarks,
}

/// The reason why a cell has no value, or a value that differs from Redis'.
#[derive(Clone, Copy)]
pub struct Reason(pub &'static str);

/// The kind of a cell: which servers have a value in it.
pub enum Cell {
    /// Both Saker and the real server have a value in the cell, and the values are compared.
    Compared,
    /// Only Saker has a value in the cell, for this reason.
    OnlyHere(Reason),
    /// No server can have a value in the cell.
    Impossible(Reason),
}

impl Listener {
    /// Returns the oldest Redis version that has the listener.
    pub fn since(self) -> (u32, u32) {
        match self {
            Self::Watch
            | Self::TrackingDefault
            | Self::OptIn
            | Self::OptOut
            | Self::Bcast
            | Self::Own
            | Self::NoLoop
            | Self::KeyspaceEvents
            | Self::BlockedClient
            | Self::BlockedReader
            | Self::ChangeLog
            | Self::ChangesSinceSave
            | Self::BigKeys
            | Self::SnapshotMarks => (0, 0),
            Self::KeySizes => (8, 0),
        }
    }

    /// Returns the kind of the cell in this column and the row of `change`.
    pub fn cell(self, change: Change) -> Cell {
        let row = change.row();
        match self {
            Self::SnapshotMarks | Self::ChangeLog if change == Change::KeyExpiryRandomKey => {
                Cell::Impossible(Reason("RANDOMKEY may find another key that the listener needs"))
            }
            Self::Watch
            | Self::TrackingDefault
            | Self::OptIn
            | Self::OptOut
            | Self::Bcast
            | Self::KeyspaceEvents
            | Self::BlockedClient
            | Self::ChangeLog
            | Self::ChangesSinceSave
            | Self::KeySizes => Cell::Compared,
            Self::Own | Self::NoLoop => match row.how {
                How::Swept(..) => Cell::Impossible(Reason("the server makes this change")),
                How::MigratedHere => Cell::Impossible(Reason("another server's client makes this change")),
                How::Ask(_)
                | How::Expired(_)
                | How::Evicted
                | How::Served(..)
                | How::MigratedAway
                | How::Restored(_) => Cell::Compared,
            },
            Self::BlockedReader => match row.holds {
                Holds::Any | Holds::Stream => Cell::Compared,
                Holds::Nothing | Holds::Text | Holds::List | Holds::Hash | Holds::Members => {
                    Cell::Impossible(Reason("a stream alone has groups"))
                }
            },
            Self::BigKeys => Cell::OnlyHere(Reason("Redis has no BIGKEYS")),
            Self::SnapshotMarks if change == Change::DebugReload => {
                Cell::Impossible(Reason("DEBUG RELOAD ends the save and makes one of its own"))
            }
            Self::SnapshotMarks if change == Change::Loading => {
                Cell::Impossible(Reason("DEBUG LOADAOF ends the save"))
            }
            Self::SnapshotMarks => Cell::OnlyHere(Reason("Redis saves in a process with memory of its own")),
        }
    }

    /// Returns two types for rows that permit any type: that of the value before the change, and
    /// that of the value that the change brings.
    fn prefers(self) -> (Holds, Holds) {
        match self {
            Self::BlockedClient => (Holds::Text, Holds::List),
            Self::BlockedReader => (Holds::Stream, Holds::Stream),
            Self::Watch
            | Self::TrackingDefault
            | Self::OptIn
            | Self::OptOut
            | Self::Bcast
            | Self::Own
            | Self::NoLoop
            | Self::KeyspaceEvents
            | Self::ChangeLog
            | Self::ChangesSinceSave
            | Self::KeySizes
            | Self::BigKeys
            | Self::SnapshotMarks => (Holds::Text, Holds::Text),
        }
    }

    /// Returns true if the client that listens also makes the change.
    pub fn is_writer(self) -> bool {
        matches!(self, Self::Own | Self::NoLoop)
    }

    /// Chooses the types and the size of the values in `stage`, and adds other keys if necessary.
    pub fn choose(self, change: Change, stage: &mut Stage<'_>) {
        let (holds, brings) = self.prefers();
        let row = change.row();
        stage.holds = if row.holds == Holds::Any { holds } else { row.holds };
        stage.brings = match row.before {
            Before::Bring(_) => brings,
            Before::Quiet
            | Before::Ask(_)
            | Before::Expiry
            | Before::FieldExpiry(_)
            | Before::Evictable
            | Before::Rewritten
            | Before::Saved => Holds::Nothing,
        };
        stage.large = self == Self::BigKeys;
        if self == Self::SnapshotMarks {
            stage.fill();
        }
    }

    /// Attaches those listeners that must be attached before the value exists; returns `None` for
    /// all others.
    pub fn attach_first(self, stage: &mut Stage<'_>) -> Option<AttachedListener> {
        let line = match (self, stage.holds) {
            (Self::BlockedClient, Holds::List) => "XREAD BLOCK 0 STREAMS k 0",
            (Self::BlockedClient, _) => "BLPOP k 0",
            _ => return None,
        };
        Some(AttachedListener::Blocked(Blocked::on(stage, line), None))
    }

    /// Attaches the listener to the server of `stage`.
    pub fn attach(self, stage: &mut Stage<'_>) -> AttachedListener {
        let mut client = stage.here.speaker();
        match self {
            Self::Watch => {
                client.ask_all(&["WATCH k"]);
                AttachedListener::Watch(client, None)
            }
            Self::TrackingDefault | Self::Own => tracks(client, &["CLIENT TRACKING ON", "EXISTS k"]),
            Self::NoLoop => tracks(client, &["CLIENT TRACKING ON NOLOOP", "EXISTS k"]),
            Self::OptIn => {
                tracks(client, &["CLIENT TRACKING ON OPTIN", "EXISTS o", "CLIENT CACHING YES", "EXISTS k"])
            }
            Self::OptOut => {
                tracks(client, &["CLIENT TRACKING ON OPTOUT", "EXISTS k", "CLIENT CACHING NO", "EXISTS o"])
            }
            Self::Bcast => {
                client.ask_all(&["CLIENT TRACKING ON BCAST PREFIX k PREFIX o"]);
                client.forget_messages();
                AttachedListener::Prefixes(client)
            }
            Self::KeyspaceEvents => {
                stage.admin.ask_all(&["CONFIG SET notify-keyspace-events KA"]);
                client.send("PSUBSCRIBE __keyspace@*");
                client.forget_messages();
                AttachedListener::Events(client)
            }
            Self::BlockedClient => unreachable!("it came first"),
            Self::BlockedReader => {
                stage.admin.ask_all(&["XGROUP CREATE k group 1-1"]);
                let line = "XREADGROUP GROUP group me BLOCK 0 STREAMS k >";
                AttachedListener::Blocked(Blocked::on(stage, line), None)
            }
            Self::ChangeLog => {
                stage.admin.ask_all(&["SET mark begin"]);
                AttachedListener::Log(None)
            }
            Self::ChangesSinceSave => AttachedListener::Changes(changes(&mut stage.admin)),
            Self::KeySizes => AttachedListener::Sizes,
            Self::BigKeys => AttachedListener::Big,
            Self::SnapshotMarks => snapshot(stage),
        }
    }
}

/// An attached listener. For listeners that can be read only once, it stores the result.
pub enum AttachedListener {
    Watch(Speaker, Option<String>),
    Tracks(Speaker),
    Prefixes(Speaker),
    Events(Speaker),
    Blocked(Blocked, Option<String>),
    Log(Option<String>),
    Changes(i64),
    Sizes,
    Big,
    Snapshot(Vec<usize>),
}

impl AttachedListener {
    /// Returns the client that listens and makes the change itself. Panics for other listeners.
    pub fn writer(&mut self) -> &mut Speaker {
        match self {
            Self::Tracks(client) => client,
            _ => unreachable!("the columns of writers track"),
        }
    }

    /// Returns the notifications that the listener has received so far, or the state that it shows,
    /// as text.
    pub fn hears(&mut self, stage: &mut Stage<'_>) -> String {
        match self {
            Self::Watch(client, said) => said.get_or_insert_with(|| watched(client)).clone(),
            Self::Tracks(client) => or_nothing(&invalidated(client).join(" ")),
            Self::Prefixes(client) => {
                let mut keys = invalidated(client);
                // The invalidations of one turn come in one message, and turns differ between runs.
                keys.sort();
                keys.dedup();
                or_nothing(&keys.join(" "))
            }
            Self::Events(client) => or_nothing(&events(client)),
            Self::Blocked(client, said) => {
                said.get_or_insert_with(|| client.end(stage).map_or("blocked".to_owned(), one_line)).clone()
            }
            Self::Log(said) => said.get_or_insert_with(|| logged(stage)).clone(),
            Self::Changes(before) => {
                let now = changes(&mut stage.admin);
                if now < *before { format!("{now} in all") } else { format!("{}", now - *before) }
            }
            Self::Sizes => sizes(&mut stage.admin),
            Self::Big => big_keys(&mut stage.admin),
            Self::Snapshot(before) => saved(stage, before),
        }
    }
}

fn or_nothing(text: &str) -> String {
    if text.is_empty() { "nothing".to_owned() } else { text.to_owned() }
}

/// Formats a reply on one line.
fn one_line(reply: Value) -> String {
    match reply {
        Value::Array(parts) => parts.into_iter().map(one_line).collect::<Vec<_>>().join(" "),
        Value::Map(pairs) => {
            let pairs =
                pairs.into_iter().map(|(key, value)| format!("{} {}", one_line(key), one_line(value)));
            pairs.collect::<Vec<_>>().join(" ")
        }
        Value::Error(line) => String::from_utf8_lossy(&line).into_owned(),
        Value::Bulk(text) => words_of(&[&text]),
        other => other.to_string(),
    }
}

fn watched(client: &mut Speaker) -> String {
    client.ask_all(&["MULTI", "PING"]);
    match client.ask("EXEC") {
        Value::Null | Value::NullArray => "dirty".to_owned(),
        Value::Array(_) => "clean".to_owned(),
        other => panic!("EXEC answered {other}"),
    }
}

fn tracks(mut client: Speaker, lines: &[&str]) -> AttachedListener {
    client.ask_all(lines);
    client.forget_messages();
    AttachedListener::Tracks(client)
}

/// Returns the keys in all invalidation messages that the client has received.
fn invalidated(client: &mut Speaker) -> Vec<String> {
    let mut keys = Vec::new();
    for message in client.messages() {
        let Value::Push(parts) = message else { panic!("{message}") };
        assert_eq!(text_of(&parts[0]), "invalidate");
        match &parts[1] {
            Value::Array(names) => keys.extend(names.iter().map(text_of)),
            _ => keys.push("everything".to_owned()),
        }
    }
    keys
}

/// Returns the keyspace events that the client has received, as `database:key=event`.
fn events(client: &mut Speaker) -> String {
    let one = |message: &Value| {
        let Value::Push(parts) = message else { panic!("{message}") };
        let channel = text_of(&parts[2]);
        let (db, key) = channel
            .strip_prefix("__keyspace@")
            .and_then(|rest| rest.split_once("__:"))
            .expect("a channel of keyspace events");
        format!("{db}:{key}={}", text_of(&parts[3]))
    };
    client.messages().iter().map(one).collect::<Vec<_>>().join(" ")
}

fn changes(admin: &mut Speaker) -> i64 {
    admin.number("persistence", "rdb_changes_since_last_save")
}

fn sizes(admin: &mut Speaker) -> String {
    let text = text_of(&admin.ask("INFO keysizes"));
    let lines = text.lines().filter(|line| line.starts_with("db"));
    or_nothing(&lines.map(|line| line.replace("_distrib", "")).collect::<Vec<_>>().join(" "))
}

/// Returns the keys in the reply of BIGKEYS as `database:key=elements` or `=bytes`, sorted.
fn big_keys(admin: &mut Speaker) -> String {
    let mut all = Vec::new();
    for (line, field) in [("BIGKEYS ELEMENTS", "elements"), ("BIGKEYS BYTES TYPE string", "bytes")] {
        let Value::Map(facts) = admin.ask(line) else { panic!("BIGKEYS answers a map") };
        let keys = facts.into_iter().find(|(name, _)| text_of(name) == "keys").expect("it has the keys").1;
        let Value::Array(keys) = keys else { panic!("the keys are an array") };
        for key in keys {
            let Value::Map(facts) = key else { panic!("a key is a map") };
            let fact = |wanted: &str| {
                let found = facts.iter().find(|(name, _)| text_of(name) == wanted).expect("a fact");
                text_of(&found.1).replace("(integer) ", "")
            };
            let number: usize = fact(field).parse().expect("a number");
            if number >= 1_024 {
                all.push(format!("{}:{}={number} {field}", fact("db"), fact("key")));
            }
        }
    }
    all.sort();
    or_nothing(&all.join(", "))
}

/// Returns the commands in the append-only file between its two marks (`SET mark begin` and `SET
/// mark end`), and the result of loading the files.
fn logged(stage: &mut Stage<'_>) -> String {
    let admin = &mut stage.admin;
    admin.ask_all(&["SET mark end"]);
    let records = records_of(&stage.here.append_only);
    let is_mark = |record: &String, word: &str| record == &format!("SET mark {word}");
    let begin = records.iter().rposition(|record| is_mark(record, "begin")).expect("the mark is there");
    let end = records.iter().rposition(|record| is_mark(record, "end")).expect("the mark is there");
    let between = or_nothing(&records[begin + 1..end].join(", "));
    admin.ask_all(&["DEBUG SET-ACTIVE-EXPIRE 0"]);
    let before = admin.ask("DEBUG DIGEST").to_string();
    admin.ask_all(&["DEBUG LOADAOF"]);
    let is_same = admin.ask("DEBUG DIGEST").to_string() == before;
    format!("{between}; loads to {}", if is_same { "the same" } else { "other data" })
}

/// Returns the path of the newest append-only file with commands.
fn increment(folder: &Path) -> PathBuf {
    let entries = std::fs::read_dir(folder).expect("there are append-only files");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.to_string_lossy().ends_with(".incr.aof"));
    let age = |path: &PathBuf| std::fs::metadata(path).expect("it is there").modified().expect("a time");
    paths.sort_by_key(age);
    paths.pop().expect("an increment")
}

/// Returns the commands of the newest append-only file, without SELECT of database 0.
fn records_of(folder: &Path) -> Vec<String> {
    let bytes = std::fs::read(increment(folder)).expect("it can be read");
    let (mut rest, mut records) = (&bytes[..], Vec::new());
    while let Some((value, len)) = resp::decode(rest).expect("requests") {
        rest = &rest[len..];
        let Value::Array(parts) = value else { panic!("a record is an array") };
        let parts: Vec<&[u8]> = parts.iter().map(|part| part.as_bytes().expect("a word")).collect();
        records.push(words_of(&parts));
    }
    records.retain(|record| record != "SELECT 0");
    records
}

/// Formats the words of a command. Replaces times and payloads, which differ between runs.
fn words_of(words: &[&[u8]]) -> String {
    let shown = |(at, word): (usize, &&[u8])| match word {
        [] => "''".to_owned(),
        _ if word.len() == 13 && word.iter().all(u8::is_ascii_digit) => "TIME".to_owned(),
        _ if !word.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ') => "BYTES".to_owned(),
        _ if at == 0 => String::from_utf8_lossy(word).to_uppercase(),
        _ => String::from_utf8_lossy(word).into_owned(),
    };
    if let [word] = words
        && word.iter().all(u8::is_ascii_graphic)
    {
        return String::from_utf8_lossy(word).into_owned();
    }
    words.iter().enumerate().map(shown).collect::<Vec<_>>().join(" ")
}

/// Counts the occurrences of the old, the new and the filler words in the RDB file.
fn words_saved(path: &Path) -> Vec<usize> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let count = |word: &[u8]| bytes.windows(word.len()).filter(|part| part == &word).count();
    vec![count(b"old"), count(b"new"), count(b"filler")]
}

/// Starts a save that pauses at its first keys, and attaches it as a listener.
fn snapshot(stage: &mut Stage<'_>) -> AttachedListener {
    let path = stage.here.dump.clone();
    let kept = std::fs::read(&path).unwrap_or_default();
    stage.admin.ask_all(&["SAVE"]);
    let before = words_saved(&path);
    std::fs::remove_file(&path).expect("it was saved");
    // DEBUG RELOAD NOSAVE loads the earlier file.
    if !kept.is_empty() {
        std::fs::write(&path, kept).expect("it can be written");
    }
    stage.admin.ask_all(&["CONFIG SET rdb-key-save-delay 60000000", "BGSAVE"]);
    AttachedListener::Snapshot(before)
}

fn saved(stage: &mut Stage<'_>, before: &[usize]) -> String {
    let admin = &mut stage.admin;
    admin.ask_all(&["CONFIG SET rdb-key-save-delay 0"]);
    wait_until("the end of the save", || admin.number("persistence", "rdb_bgsave_in_progress") == 0);
    let status = admin.info("persistence", "rdb_last_bgsave_status");
    let now = words_saved(&stage.here.dump);
    if now == before {
        format!("{status}, as of its point")
    } else if !stage.here.dump.exists() {
        format!("{status}, no file")
    } else {
        format!("{status}, {now:?} instead of {before:?}")
    }
}
