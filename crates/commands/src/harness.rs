//! The harness that runs commands in tests: a keyspace in memory, a clock that stands still, random
//! numbers from a fixed seed. Keys are locked as the commands' records declare them. A handler that
//! uses an undeclared key fails its test. A command takes microseconds.
//!
//! ```text
//! let mut db = Harness::new();
//! assert_eq!(db.run(&["SET", "a", "1"]), "+OK|");            // CR LF is written |
//! harness::check(&[("SET a 1", "+OK|"), ("GET a", "$1|1|")]); // on RESP2 and RESP3
//! ```

use keyspace::key::SHARD_COUNT;
use keyspace::view::{AccessContext, AccessResults, ExpiredAccess};
use keyspace::{Access, KeyEntry, Keyspace, SweepPoint, SweepResult, View};
use resp::{Protocol, Reply, Span};
use stdx::ByteQueue;
use structures::table::SweepBudget;

use crate::field_sets::FieldSets;
use crate::keys::for_each_key;
use crate::record::RecordedCommand;
use crate::{
    Args, BlockingMode, Changes, Command, Ctx, EventClass, KeyEvent, Origin, ValueLimits, WalkCtx, Walked,
    Walker,
};

/// The Unix time, in milliseconds, at which the clock of every harness starts.
pub(crate) const START_MS: i64 = 1_700_000_000_000;

/// The commands that were recorded for replicas and the append-only file, each with its database
/// and words.
pub(crate) type Recorded = Vec<(usize, Vec<Vec<u8>>)>;

/// A test client with a keyspace of its own.
pub(crate) struct Harness {
    keyspace: Keyspace,
    pub(crate) protocol: Protocol,
    /// The number of the client's selected database, 0 to 15.
    pub(crate) db: usize,
    pub(crate) now_ms: i64,
    pub(crate) access: Access,
    pub(crate) expired_access: ExpiredAccess,
    pub(crate) limits: ValueLimits,
    /// The changes of the commands. The wanted events are all except `new`, which every first write
    /// raises, and `keymiss`.
    pub(crate) effects: Changes,
    pub(crate) access_results: AccessResults,
    rng: fastrand::Rng,
    pub(crate) origin: Origin,
    /// The fieldsets of the test client (HIMPORT).
    pub(crate) field_sets: FieldSets,
}

impl Drop for Harness {
    /// Checks at the end of every test that the size counters of the keyspace and its list of big
    /// keys match the data.
    fn drop(&mut self) {
        for db in 0..self.keyspace.db_count() {
            let counts = self.keyspace.sizes().counts(db);
            assert_eq!(counts, self.keyspace.sizes_recounted(db), "sizes of the keys of database {db}");
        }
        for measure in [keyspace::Measure::Bytes, keyspace::Measure::Elements] {
            let mut found = self.keyspace.big_keys(measure, None, usize::MAX, i64::MIN).keys;
            let mut twin = self.keyspace.big_keys_recomputed(measure);
            found.sort_by(|a, b| (a.db, &a.key).cmp(&(b.db, &b.key)));
            twin.sort_by(|a, b| (a.db, &a.key).cmp(&(b.db, &b.key)));
            assert_eq!(found, twin, "the big keys by {measure:?}");
        }
    }
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with_seed([1, 2, 3, 4])
    }

    /// Creates a harness whose hash tables use `seed`, which determines the order of their
    /// elements.
    pub(crate) fn with_seed(seed: [u64; 4]) -> Self {
        Self {
            keyspace: Keyspace::new(16, seed),
            protocol: Protocol::Resp2,
            db: 0,
            now_ms: START_MS,
            access: Access::Lru { clock_s: 0 },
            expired_access: ExpiredAccess::Remove,
            limits: ValueLimits::default(),
            effects: Changes {
                wanted_events: EventClass::all() - EventClass::NEW - EventClass::MISSED,
                ..Changes::default()
            },
            access_results: AccessResults::default(),
            rng: fastrand::Rng::with_seed(7),
            origin: Origin::Client,
            field_sets: FieldSets::default(),
        }
    }

    /// Runs one command in the harness. Returns its reply with CR LF written as `|` and unprintable
    /// bytes escaped.
    pub(crate) fn run(&mut self, words: &[&str]) -> String {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        text(&self.run_bytes(&words))
    }

    /// Runs one command, typed as in redis-cli, with quotes. Returns its reply as [`Harness::run`]
    /// does.
    pub(crate) fn line(&mut self, line: &str) -> String {
        let words = stdx::quoted::split_quoted(line.as_bytes()).expect("quotes are balanced");
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        text(&self.run_bytes(&words))
    }

    /// Runs one command and returns its reply as it would be sent.
    pub(crate) fn run_bytes(&mut self, words: &[&[u8]]) -> Vec<u8> {
        let input = words.concat();
        let mut start = 0;
        let spans: Vec<Span> = words
            .iter()
            .map(|word| {
                let span = Span { start, len: word.len() as u32 };
                start += span.len;
                span
            })
            .collect();
        let hasher = self.keyspace.hasher().clone();
        let args = Args::new(&input, &spans, &hasher);
        let mut out = ByteQueue::new();
        match find(&args) {
            Found::Keys(command) if command.accepts(args.len()) => self.run_on_keys(command, &args, &mut out),
            Found::Walks(command) if command.accepts(args.len()) => self.walk(command, &args, &mut out),
            Found::Keys(Command { name, .. }) | Found::Walks(Command { name, .. }) => {
                let line = format!("ERR wrong number of arguments for '{name}'");
                Reply::new(&mut out, self.protocol).error(&line);
            }
        }
        self.effects.absorb(&mut self.access_results);
        bytes_of(&out)
    }

    fn access_context(&self) -> AccessContext {
        AccessContext {
            now_ms: self.now_ms,
            touch: true,
            access: self.access,
            expired_access: self.expired_access,
        }
    }

    fn run_on_keys(&mut self, command: &Command, args: &Args<'_>, out: &mut ByteQueue) {
        let access_context = self.access_context();
        let reply = Reply::new(out, self.protocol);
        let mut hashes = Vec::new();
        let mut locked = if command.runs_alone(args) {
            self.keyspace.lock_all()
        } else {
            for_each_key(command.keys, args, |at, _| hashes.push(args.key(at).hash));
            self.keyspace.lock_all_of(hashes.into_iter())
        };
        let mark = reply.mark();
        self.effects.record.begin(self.effects.changes);
        let mut ctx = Ctx {
            db: View::new(&self.keyspace, &mut locked, self.db, access_context, &mut self.access_results),
            reply,
            effects: &mut self.effects,
            rng: &mut self.rng,
            limits: &self.limits,
            on_empty: BlockingMode::Reply,
            origin: self.origin,
            readable: crate::ReadableKeys::All,
            field_sets: Some(&self.field_sets),
        };
        let result = (command.run)(&mut ctx, args);
        let words = || args.from(0).map(|word| word.escape_ascii().to_string()).collect::<Vec<_>>().join(" ");
        assert!(!ctx.db.has_missed_lock(), "{} uses a key that is not declared", words());
        if let Err(error) = result {
            ctx.reply.truncate(mark);
            ctx.reply.error_bytes(&error.line());
        }
    }

    fn walk(&mut self, command: &Command<Walker>, args: &Args<'_>, out: &mut ByteQueue) {
        let access_context = self.access_context();
        let before = out.len_bytes();
        self.effects.record.begin(self.effects.changes);
        for calls_before in 0.. {
            let mut ctx = WalkCtx {
                keyspace: &self.keyspace,
                db: self.db,
                access_context,
                reply: Reply::new(out, self.protocol),
                effects: &mut self.effects,
                rng: &mut self.rng,
                calls_before,
                due: Vec::new(),
            };
            let result = (command.run)(&mut ctx, args);
            for key in ctx.due {
                let key = self.keyspace.hasher().key(&key);
                let mut locked = self.keyspace.lock_one(key.hash);
                let mut view =
                    View::new(&self.keyspace, &mut locked, self.db, access_context, &mut self.access_results);
                view.remove_due(key);
            }
            match result {
                Ok(Walked::Again) => continue,
                Ok(Walked::Done) => {}
                Err(error) => {
                    out.truncate(before);
                    Reply::new(out, self.protocol).error_bytes(&error.line());
                }
            }
            return;
        }
    }

    /// Returns the commands recorded in place of the last request, `words`, with their databases,
    /// in the order in which they apply.
    pub(crate) fn recorded(&self, words: &[&[u8]]) -> Recorded {
        let decoded = |command: RecordedCommand<'_>| {
            let mut bytes = Vec::new();
            command.encode(&mut bytes);
            (command.db, words_of(&bytes))
        };
        let record = &self.effects.record;
        let mut commands: Vec<_> = record.expired().chain(record.commands()).map(decoded).collect();
        if record.has_request(self.effects.changes) {
            commands.push((self.db, words.iter().map(|word| word.to_vec()).collect()));
        }
        commands
    }

    /// Removes all expired keys and fields, as the server does in the background. Returns the
    /// recorded commands.
    pub(crate) fn sweep(&mut self) -> Recorded {
        let mut commands = Vec::new();
        let mut swept = SweepResult::up_to(self.now_ms - 1).naming_fields();
        for shard in 0..SHARD_COUNT {
            let mut next = Some(SweepPoint { shard, db: 0, cursor: 0 });
            while let Some(at) = next {
                let budget = SweepBudget { segments_max: 64, elements_max: 64 };
                let mut locked = self.keyspace.lock(shard);
                next = self.keyspace.sweep_due(&mut locked, at, budget, &mut swept);
                for of_key in &swept.removed_fields {
                    for field in &of_key.fields {
                        let hdel = vec![b"HDEL".to_vec(), of_key.key.to_vec(), field.to_vec()];
                        commands.push((swept.db, hdel));
                    }
                }
                let del = |entry: &KeyEntry| (swept.db, vec![b"DEL".to_vec(), entry.key().to_vec()]);
                commands.extend(swept.expired.iter().map(del));
                swept.clear();
            }
        }
        commands
    }

    /// Returns the keyspace events since the last call, as `event key@db`, joined by commas.
    pub(crate) fn events(&mut self) -> String {
        let text =
            |event: KeyEvent| format!("{} {}@{}", event.event, String::from_utf8_lossy(&event.key), event.db);
        std::mem::take(&mut self.effects.events).into_iter().map(text).collect::<Vec<_>>().join(",")
    }

    /// Runs `steps`: each is a command line, its expected reply and the events that it must raise.
    pub(crate) fn check_events(&mut self, steps: &[(&str, &str, &str)]) {
        for (line, reply, events) in steps {
            assert_eq!(self.line(line), *reply, "{line}");
            assert_eq!(self.events(), *events, "{line}");
        }
    }
}

/// Runs `steps`, each a command line and its expected reply, on RESP2 and on RESP3 with an empty
/// keyspace each. RESP2's null of any kind is written as RESP3's `_|`.
pub(crate) fn check(steps: &[(&str, &str)]) {
    for protocol in [Protocol::Resp2, Protocol::Resp3] {
        let mut db = Harness::new();
        db.protocol = protocol;
        for (line, expected) in steps {
            let reply = db.line(line).replace("$-1|", "_|").replace("*-1|", "_|");
            assert_eq!(reply, *expected, "{line} ({protocol:?})");
        }
    }
}

/// Returns the words of an encoded request, or of any reply that is a flat array of bulk strings.
pub(crate) fn words_of(encoded: &[u8]) -> Vec<Vec<u8>> {
    match resp::decode(encoded) {
        Ok(Some((resp::Value::Array(values), len))) if len == encoded.len() => {
            values.iter().map(|value| value.as_bytes().expect("a bulk string").to_vec()).collect()
        }
        other => panic!("{other:?} is no array: {}", text(encoded)),
    }
}

/// A command's record in the command table: `Keys` for a command on the keys of its request,
/// `Walks` for a command on whole databases (SCAN, KEYS).
enum Found {
    Keys(&'static Command),
    Walks(&'static Command<Walker>),
}

/// Returns the command table's record of a request's command, or of its subcommand if there is one.
fn find(args: &Args<'_>) -> Found {
    if let Some(command) = crate::walkers().find(|command| args.is(0, command.name)) {
        return Found::Walks(command);
    }
    let command = crate::all().find(|command| args.is(0, command.name));
    let command = command.unwrap_or_else(|| panic!("unknown command {:?}", args.get(0).escape_ascii()));
    Found::Keys(command.subcommands.iter().find(|sub| args.is(1, sub.name)).copied().unwrap_or(command))
}

/// Returns a reply as tests write it: CR LF as `|`, other unprintable bytes as `\xNN`.
fn text(reply: &[u8]) -> String {
    let mut text = String::new();
    for &byte in reply {
        match byte {
            b'\r' => {}
            b'\n' => text.push('|'),
            b' '..=b'~' => text.push(byte.into()),
            _ => text += &format!("\\x{byte:02x}"),
        }
    }
    text
}

fn bytes_of(out: &ByteQueue) -> Vec<u8> {
    out.io_slices(usize::MAX).iter().flat_map(|slice| slice.to_vec()).collect()
}

#[test]
fn all_records_are_found_by_their_name() {
    check(&[("set \"a b\" 1", "+OK|"), ("GET \"a b\"", "$1|1|"), ("GET b", "_|")]);
    let mut db = Harness::new();
    assert_eq!(db.run(&["GET"]), "-ERR wrong number of arguments for 'GET'|");
    db.effects.wanted_events |= EventClass::NEW | EventClass::MISSED;
    (db.access_results.wants_created, db.access_results.wants_missed) = (true, true);
    assert_eq!(db.run(&["GET", "b"]), "$-1|");
    assert_eq!(db.events(), "keymiss b@0");
    assert_eq!(db.run(&["SET", "a", "\0"]), "+OK|");
    assert_eq!(db.run(&["GET", "a"]), "$1|\\x00|");
    assert_eq!(db.events(), "new a@0,set a@0");
    assert_eq!(db.run(&["SET", "a", "1"]), "+OK|");
    assert_eq!(db.events(), "set a@0");
}
