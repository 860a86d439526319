//! DUMP and RESTORE: serialize a value into a string, and create a key from it.
//!
//! These data commands are in this crate, because their format is in `persist`, on which the crate
//! of data commands does not depend. Payloads are always validated in depth, whatever
//! `sanitize-dump-payload` says: an invalid payload could break invariants of the types.

use ::commands::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use ::commands::{Args, CommandError, Ctx, EventClass, RecordWriter};
use keyspace::{Access, Expiry, HashField, Key, Object, Stream};
use persist::dump::{self, PayloadError};
use persist::rdb::{Compression, FileVersion, Value, ValueType};
use structures::entry::View;
use structures::listpack::element::IntText;

use crate::context::Runner;

/// The commands that this file adds to the command table, through [`super::all`].
pub static COMMANDS: &[&Command<Runner>] = &[&DUMP, &RESTORE, &RESTORE_ASKING];

static DUMP: Command<Runner> = Command {
    name: "DUMP",
    summary: "Returns a serialized form of the value of a key, for RESTORE.",
    history: History::since("2.6.0"),
    group: Group::Generic,
    complexity: "O(N) where N is the size of the value in bytes.",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY,
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: Runner::Data(dump),
    ..Command::DEFAULT
};
/// Handles DUMP key: replies with the payload, or null if the key is missing. The payload has
/// neither the expiry nor the access clock.
fn dump(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    match ctx.db.get(args.key(1)) {
        Some(entry) => {
            let compression = if ctx.limits.compresses_dumps { Compression::Lzf } else { Compression::None };
            let payload = dump::dump(&entry.view(), compression);
            ctx.reply.bulk(&payload);
        }
        None => ctx.reply.null(),
    }
    Ok(())
}

const RESTORE_ARGS: &[Arg] = &[
    Arg::key("key", 0),
    Arg::integer("ttl"),
    Arg::string("serialized-value"),
    Arg::word("replace", "REPLACE").since("3.0.0").optional(),
    Arg::word("absttl", "ABSTTL").since("5.0.0").optional(),
    Arg::integer("seconds").token("IDLETIME").since("5.0.0").optional(),
    Arg::integer("frequency").token("FREQ").since("5.0.0").optional(),
];

static RESTORE: Command<Runner> = Command {
    name: "RESTORE",
    summary: "Creates a key from a payload of DUMP.",
    history: History::since("2.6.0").changed(&[
        ("3.0.0", "takes REPLACE"),
        ("5.0.0", "takes ABSTTL"),
        ("5.0.0", "takes IDLETIME and FREQ"),
    ]),
    group: Group::Generic,
    complexity: "O(N) where N is the size of the value in bytes, O(N log N) for what is packed in it.",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::KEYSPACE.union(Acl::WRITE).union(Acl::DANGEROUS),
    keys: &[KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE))],
    args: RESTORE_ARGS,
    run: Runner::Data(restore),
    ..Command::DEFAULT
};
/// Handles RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds | FREQ frequency]. A key
/// whose expiry time is in the past is not created; REPLACE still removes the old key.
fn restore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let options = Options::parse(args)?;
    let key = args.key(1);
    if !options.replace && ctx.db.contains(key) {
        return Err(CommandError::Line("BUSYKEY Target key name already exists."));
    }
    let ttl_ms = args.integer(2)?;
    if ttl_ms < 0 {
        return Err(CommandError::Line("ERR Invalid TTL value, must be >= 0"));
    }
    let value =
        dump::restore(args.get(3), &crate::rules::rules(ctx.limits, args.hasher())).map_err(|error| {
            match error {
                PayloadError::Footer => CommandError::Line("ERR DUMP payload version or checksum are wrong"),
                PayloadError::Format(error) => {
                    let kind = args.get(3).first().and_then(|&number| ValueType::from_number(number, 0));
                    let structure = kind.map_or("Value", ValueType::structure_name);
                    tracing::warn!("RESTORE: {structure} integrity check failed: {error}");
                    CommandError::Line("ERR Bad data format")
                }
            }
        })?;
    let now_ms = ctx.db.now_ms();
    let expiry_ms = match (ttl_ms, options.absolute_ttl) {
        (0, _) => None,
        (at_ms, true) => Some(at_ms),
        (ttl_ms, false) => Some(ttl_ms.saturating_add(now_ms)),
    };
    if expiry_ms.is_some_and(|at_ms| ctx.db.is_past(at_ms)) {
        if let Some(old) = ctx.db.remove(key) {
            ctx.effects.discard(old);
            ctx.changed(EventClass::GENERIC, "del", key);
            ctx.record(|record| _ = record.command("DEL").word(key.bytes));
        }
    } else {
        if ctx.db.contains(key) {
            // Recorded as a new key, as if the old one had been deleted before.
            ctx.db.record_created(key);
        }
        store(ctx, key, value, expiry_ms);
        if let Some(access) = options.access(ctx.db.access())
            && let Some(mut entry) = ctx.db.entry_mut(key)
        {
            entry.set_access(access);
        }
        ctx.changed(EventClass::GENERIC, "restore", key);
        if !is_for_all_peers(args.get(3)) || ctx.limits.skips_checksums {
            record_value(ctx, args, expiry_ms);
        } else if let (Some(at_ms), false) = (expiry_ms, options.absolute_ttl) {
            ctx.record(|record| {
                record.command("RESTORE").word(key.bytes).integer(at_ms).words(args.from(3)).word(b"ABSTTL");
            });
        }
    }
    ctx.reply.ok();
    Ok(())
}

/// Returns true if every supported version of a replica can read this DUMP payload.
fn is_for_all_peers(payload: &[u8]) -> bool {
    dump::version(payload).is_some_and(|version| version <= FileVersion::Redis5.number())
}

/// Records in the change log the value that a RESTORE stored at the key in its argument 1. The
/// record is a RESTORE of a payload in the oldest format version; or, if fields of a hash expire,
/// one command per field.
#[cold]
fn record_value(ctx: &mut Ctx<'_>, args: &Args<'_>, expiry_ms: Option<i64>) {
    let (key, db) = (args.key(1), ctx.db.index());
    let compression = if ctx.limits.compresses_dumps { Compression::Lzf } else { Compression::None };
    ctx.effects.record.replace(db, |record| {
        let Some(entry) = ctx.db.peek_even_expired(key) else { return };
        let value = entry.view();
        let payload = match (dump::dump_oldest(&value, compression), &value) {
            (None, View::Object(Object::Hash(_))) => None,
            // The element of a list is too long for servers before Redis 7.
            (None, _) => Some(dump::dump(&value, compression)),
            (payload, _) => payload,
        };
        if let Some(payload) = payload {
            record.command("RESTORE").word(key.bytes).integer(expiry_ms.unwrap_or(0)).word(&payload);
            let is_option = |word: &&[u8]| !word.eq_ignore_ascii_case(b"ABSTTL");
            record.words(args.from(4).filter(is_option)).words(expiry_ms.map(|_| &b"ABSTTL"[..]));
            if let View::Object(Object::Stream(stream)) = value {
                record_progress(record, key.bytes, stream);
            }
            return;
        }
        if args.from(4).any(|word| word.eq_ignore_ascii_case(b"REPLACE")) {
            record.command("DEL").word(key.bytes);
        }
        if let View::Object(Object::Hash(hash)) = value {
            hash.fields().for_each(|field| record_field(record, key.bytes, &field));
        }
        if let Some(at_ms) = expiry_ms {
            record.command("PEXPIREAT").word(key.bytes).integer(at_ms);
        }
    });
}

/// Writes commands to the change log that restore the state of a stream which a payload in the
/// oldest format version lacks: the counters of the stream and of its consumer groups.
fn record_progress(record: &mut RecordWriter<'_>, key: &[u8], stream: &Stream) {
    record.command("XSETID").word(key).id(stream.last_id());
    record.word(b"ENTRIESADDED").integer(stream.entries_added());
    record.word(b"MAXDELETEDID").id(stream.max_deleted_id());
    for group in stream.groups() {
        record.command("XGROUP").words([b"SETID", key, group.name()]).id(group.last_delivered());
        record.word(b"ENTRIESREAD").integer(group.entries_read().unwrap_or(-1));
    }
}

/// Writes commands to the change log that set a field of a hash and its expiry.
fn record_field(record: &mut RecordWriter<'_>, key: &[u8], field: &HashField<'_>) {
    let (mut name, mut value) = (IntText::new(), IntText::new());
    let (name, value) = (field.name.text(&mut name), field.value.text(&mut value));
    record.command("HSET").words([key, name, value]);
    if let Some(at_ms) = field.deadline_ms {
        record.command("HPEXPIREAT").word(key).integer(at_ms).words([&b"FIELDS"[..], b"1", name]);
    }
}

static RESTORE_ASKING: Command<Runner> = Command {
    name: "RESTORE-ASKING",
    summary: "Creates a key from a payload of DUMP. Cluster nodes use it to migrate keys.",
    history: History::since("3.0.0").changed(&[
        ("3.0.0", "takes REPLACE"),
        ("5.0.0", "takes ABSTTL"),
        ("5.0.0", "takes IDLETIME and FREQ"),
    ]),
    group: Group::Server,
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::ASKING).union(Flags::INTERNAL),
    ..RESTORE
};

/// Stores a value at `key`, and replaces any old value. `expiry_ms` is the expiry in Unix
/// milliseconds; `None` for no expiry.
pub(super) fn store(ctx: &mut Ctx<'_>, key: Key<'_>, value: Value, expiry_ms: Option<i64>) {
    let expiry = expiry_ms.map_or(Expiry::Clear, Expiry::At);
    match value {
        Value::Short(bytes) => ctx.db.set_string(key, &bytes, expiry),
        Value::Object(object) => ctx.db.set_object(key, object, expiry),
    }
}

/// The parsed options of RESTORE: the treatment of an existing key, the form of the expiry, and the
/// access clock.
#[derive(Default)]
struct Options {
    replace: bool,
    absolute_ttl: bool,
    idle_s: Option<i64>,
    frequency: Option<i64>,
}

impl Options {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut at = 4;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if args.is(at, "REPLACE") {
                options.replace = true;
            } else if args.is(at, "ABSTTL") {
                options.absolute_ttl = true;
            } else if args.is(at, "IDLETIME") && has_value && options.frequency.is_none() {
                at += 1;
                let idle_s = args.integer(at)?;
                if idle_s < 0 {
                    return Err(CommandError::Line("ERR Invalid IDLETIME value, must be >= 0"));
                }
                options.idle_s = Some(idle_s);
            } else if args.is(at, "FREQ") && has_value && options.idle_s.is_none() {
                at += 1;
                let frequency = args.integer(at)?;
                if !(0..=255).contains(&frequency) {
                    return Err(CommandError::Line("ERR Invalid FREQ value, must be >= 0 and <= 255"));
                }
                options.frequency = Some(frequency);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// Returns the access clock that IDLETIME or FREQ requests; `None` if that option is missing.
    /// `clock` is the clock of the eviction policy: LRU needs IDLETIME, LFU needs FREQ.
    fn access(&self, clock: Access) -> Option<u32> {
        match clock {
            Access::Lru { clock_s } => {
                // The 24-bit clock wraps around. A time more than half its range in the past would
                // look like one in the future.
                let idle_s = self.idle_s?.min(1 << 23) as u32;
                Some(clock_s.wrapping_sub(idle_s) & 0x00FF_FFFF)
            }
            Access::Lfu { .. } => Some(clock.fresh() & !0xFF | self.frequency? as u32),
        }
    }
}

#[cfg(test)]
mod tests {
    use engine::owned_args::OwnedArgs;
    use keyspace::Keyspace;
    use keyspace::view::{AccessContext, AccessResults, ExpiredAccess};
    use resp::{Protocol, Reply};
    use stdx::ByteQueue;
    use structures::entry::{Entry, NewValue};

    use super::*;

    /// Returns the payload that DUMP creates for a value.
    fn dumped(object: Object) -> Vec<u8> {
        let entry = Entry::new(b"k", NewValue::Object(object), None, 0);
        dump::dump(&entry.view(), Compression::None)
    }

    /// Returns the commands that a RESTORE of a string records, and true if the request is recorded
    /// as it was sent. `options` follow the payload.
    fn recorded(ttl: &str, options: &[&str]) -> (Vec<String>, bool) {
        recorded_of(&dumped(Object::Blob(b"value".to_vec().into())), ttl, options)
    }

    /// Returns the commands that a RESTORE of `payload` records, and true if the request is
    /// recorded as it was sent.
    fn recorded_of(payload: &[u8], ttl: &str, options: &[&str]) -> (Vec<String>, bool) {
        let keyspace = Keyspace::new(1, [1, 2, 3, 4]);
        let (mut effects, mut access_results) = (::commands::Changes::default(), AccessResults::default());
        effects.record.is_wanted = true;
        let words: [&[u8]; 4] = [b"RESTORE", b"k", ttl.as_bytes(), payload];
        let words = words.into_iter().chain(options.iter().map(|word| word.as_bytes()));
        let owned = OwnedArgs::new(words);
        let args = owned.args(keyspace.hasher());
        let access_context = AccessContext {
            now_ms: 1_000,
            touch: true,
            access: Access::Lru { clock_s: 1 },
            expired_access: ExpiredAccess::Remove,
        };
        let mut locked = keyspace.lock_one(args.key(1).hash);
        let (mut out, limits) = (ByteQueue::new(), ::commands::ValueLimits::default());
        let mut ctx = Ctx {
            db: keyspace::View::new(&keyspace, &mut locked, 0, access_context, &mut access_results),
            reply: Reply::new(&mut out, Protocol::Resp2),
            effects: &mut effects,
            rng: &mut fastrand::Rng::with_seed(1),
            limits: &limits,
            on_empty: ::commands::BlockingMode::Reply,
            origin: ::commands::Origin::Client,
            readable: ::commands::ReadableKeys::All,
            field_sets: None,
        };
        assert!(restore(&mut ctx, &args).is_ok());
        drop(ctx);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace("\r\n", " ");
        let commands = effects
            .record
            .expired()
            .chain(effects.record.commands())
            .map(|command| text(command.bulks))
            .collect();
        (commands, effects.record.has_request(effects.changes))
    }

    #[test]
    fn a_relative_time_is_recorded_as_an_absolute_one() {
        let (commands, has_request) = recorded("50", &["REPLACE"]);
        assert!(!has_request && commands.len() == 1, "{commands:?}");
        assert!(commands[0].starts_with("$7 RESTORE $1 k $4 1050 "), "{commands:?}");
        assert!(commands[0].ends_with("$7 REPLACE $6 ABSTTL "), "{commands:?}");
    }

    #[test]
    fn requests_without_a_relative_time_are_their_own_record() {
        assert_eq!(recorded("0", &[]), (vec![], true));
        assert_eq!(recorded("5000", &["ABSTTL"]), (vec![], true));
        // The time is in the past and there was no key, so nothing changed.
        assert_eq!(recorded("500", &["ABSTTL"]), (vec![], false));
    }

    /// Returns the words of a recorded command in RESP, without the lines of their lengths.
    fn words(command: &str) -> Vec<&str> {
        command.split(' ').skip(1).step_by(2).collect()
    }

    #[test]
    fn a_payload_of_a_newer_version_is_recorded_in_the_oldest_one() {
        let string = dumped(Object::Blob(b"value".to_vec().into()));
        let bytes = string[..string.len() - 10].to_vec();
        let (commands, has_request) = recorded_of(&dump::sealed(bytes.clone(), 12), "50", &["REPLACE"]);
        assert!(!has_request && commands.len() == 1, "{commands:?}");
        assert!(commands[0].starts_with("$7 RESTORE $1 k $4 1050 "), "{commands:?}");
        assert!(commands[0].ends_with("$7 REPLACE $6 ABSTTL "), "{commands:?}");
        let (commands, _) = recorded_of(&dump::sealed(bytes, 12), "0", &[]);
        let text = String::from_utf8_lossy(&dump::sealed(b"\0\x05value".to_vec(), 9)).into_owned();
        assert_eq!(commands, [format!("$7 RESTORE $1 k $1 0 $17 {text} ")]);
    }

    #[test]
    fn a_hash_whose_fields_expire_is_recorded_field_by_field() {
        let hasher = keyspace::Hasher::with_seed([1, 2, 3, 4]);
        let limits = keyspace::PackLimits { entries_max: 9, value_len_bytes_max: 9 };
        let mut hash = keyspace::Hash::new();
        for (name, expiry) in [(b"f", Expiry::At(9_000)), (b"g", Expiry::Clear)] {
            hash.set_with_expiry(keyspace::FieldWrite { name, value: b"1", expiry }, &limits, &hasher);
        }
        let payload = dumped(Object::Hash(hash));
        assert_eq!(dump::version(&payload), Some(12));
        let (mut commands, has_request) = recorded_of(&payload, "50", &["REPLACE"]);
        assert!(!has_request && words(&commands[0]) == ["DEL", "k"], "{commands:?}");
        assert_eq!(words(&commands.pop().expect("an expiry")), ["PEXPIREAT", "k", "1050"]);
        let mut fields: Vec<_> = commands[1..].iter().map(|command| words(command).join(" ")).collect();
        fields.sort();
        assert_eq!(fields, ["HPEXPIREAT k 9000 FIELDS 1 f", "HSET k f 1", "HSET k g 1"]);
        let (commands, _) = recorded_of(&payload, "0", &[]);
        assert_eq!(words(&commands[0])[0], "HSET");
    }

    #[test]
    fn the_progress_of_a_stream_follows_its_oldest_payload() {
        let limits = keyspace::StreamLimits { node_bytes_max: 100, node_entries_max: 9 };
        let id = |ms| keyspace::StreamId { ms, seq: 0 };
        let mut stream = Stream::new();
        for ms in 1..=3 {
            let pair: [&[u8]; 2] = [b"a", b"1"];
            assert!(stream.append(id(ms), pair.into_iter(), limits).is_ok());
        }
        stream.remove(id(2));
        stream.create_group(b"g", id(1), Some(1)).expect("a new name");
        let payload = dumped(Object::Stream(Box::new(stream)));
        let (commands, has_request) = recorded_of(&payload, "0", &[]);
        assert!(!has_request && words(&commands[0])[0] == "RESTORE", "{commands:?}");
        let behind: Vec<_> = commands[1..].iter().map(|command| words(command).join(" ")).collect();
        assert_eq!(
            behind,
            ["XSETID k 3-0 ENTRIESADDED 3 MAXDELETEDID 2-0", "XGROUP SETID k g 1-0 ENTRIESREAD 1"]
        );
    }
}
