//! Commands on hashes.
//!
//! An expired field is missing for clients. As in Redis, commands that read fields by name remove
//! the expired fields that they find. HLEN counts expired fields that are not yet removed; HSET and
//! HDEL treat them as present.

use keyspace::{AccessError, Expiry, FieldWrite, Hash, Key, Lookup};
use resp::Reply;
use stdx::long_double::LongDouble;
use stdx::number;
use structures::listpack::element::{Element, IntText};

use crate::args::Args;
use crate::collection::{ScanRequest, ScanStep, Scanned, bulk, hash_limits, remove_emptied};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::random::{RandomElements, random_elements};
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

mod expire;
mod get_set;
mod import;

/// The command table's records of all hash commands.
pub static COMMANDS: &[&Command] = &[
    &HSET,
    &HMSET,
    &HSETNX,
    &HGET,
    &HMGET,
    &HGETALL,
    &HKEYS,
    &HVALS,
    &HSTRLEN,
    &HLEN,
    &HEXISTS,
    &HDEL,
    &HINCRBY,
    &HINCRBYFLOAT,
    &HRANDFIELD,
    &HSCAN,
    &expire::HEXPIRE,
    &expire::HPEXPIRE,
    &expire::HEXPIREAT,
    &expire::HPEXPIREAT,
    &expire::HTTL,
    &expire::HPTTL,
    &expire::HEXPIRETIME,
    &expire::HPEXPIRETIME,
    &expire::HPERSIST,
    &get_set::HGETEX,
    &get_set::HSETEX,
    &get_set::HGETDEL,
    &import::HIMPORT,
];

static HSET: Command = Command {
    name: "HSET",
    summary: "Sets fields of a hash and returns the number of new fields. Creates the hash if it does not \
         exist.",
    history: History::since("2.0.0").changed(&[("4.0.0", "takes several fields with their values")]),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::block("data", &[Arg::string("field"), Arg::string("value")]).multiple()],
    run: hset,
    ..Command::DEFAULT
};
/// Handles HSET: replies with the number of new fields.
fn hset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let created = set_fields(ctx, args, "hset")?;
    ctx.reply.integer(created as i64);
    Ok(())
}

static HMSET: Command = Command {
    name: "HMSET",
    summary: "Sets fields of a hash. Creates the hash if it does not exist.",
    history: History::since("2.0.0").deprecated("4.0.0", "`HSET` with multiple field-value pairs"),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::block("data", &[Arg::string("field"), Arg::string("value")]).multiple()],
    run: hmset,
    ..Command::DEFAULT
};
/// Handles HMSET: always replies with OK.
fn hmset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    set_fields(ctx, args, "hmset")?;
    ctx.reply.ok();
    Ok(())
}

/// Sets the fields and values after the key, and returns the number of new fields. `name` is the
/// command's name for errors.
fn set_fields(ctx: &mut Ctx<'_>, args: &Args<'_>, name: &'static str) -> Result<usize, CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity(name));
    }
    let (key, limits, hasher) = (args.key(1), hash_limits(ctx), args.hasher());
    let count = args.len() / 2 - 1;
    let hash = ctx.db.write_or_insert::<Hash>(key)?;
    hash.expect(count, &limits, hasher);
    let mut created = 0;
    for at in (2..args.len()).step_by(2) {
        created += usize::from(hash.set(args.get(at), args.get(at + 1), &limits, hasher));
    }
    ctx.changed_by(count as u64, EventClass::HASH, "hset", key);
    Ok(created)
}

static HSETNX: Command = Command {
    name: "HSETNX",
    summary: "Sets a field of a hash unless the field exists.",
    history: History::since("2.0.0"),
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[Arg::key("key", 0), Arg::string("field"), Arg::string("value")],
    run: hsetnx,
    ..Command::DEFAULT
};
/// Handles HSETNX: replies with 1 if the field was set, 0 if the field exists.
fn hsetnx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, limits, hasher) = (args.key(1), hash_limits(ctx), args.hasher());
    let due_ms = ctx.db.due_ms();
    let hash = ctx.db.write_or_insert::<Hash>(key)?;
    let found = hash.look_up(args.get(2), due_ms, hasher);
    let (absent, due) = (found.live().is_none(), matches!(found, Lookup::Due));
    if absent {
        hash.set(args.get(2), args.get(3), &limits, hasher);
        fields_expired(ctx, key, due.into());
        ctx.changed(EventClass::HASH, "hset", key);
        if due {
            record_hset(ctx, args, args.get(3));
        }
    }
    ctx.reply.integer(absent.into());
    Ok(())
}

static HGET: Command = Command {
    name: "HGET",
    summary: "Returns the value of a field of a hash.",
    history: History::since("2.0.0"),
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("field")],
    run: hget,
    ..Command::DEFAULT
};
/// Handles HGET: replies with the value, or null if the key or the field is missing.
fn hget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    read_fields(ctx, args, value_or_null)
}

/// Calls `write` for each field after the key with the field's value, `None` if it is missing or
/// expired. Then removes the expired fields.
#[inline]
fn read_fields(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    mut write: impl FnMut(&mut Reply<'_>, Option<Element<'_>>),
) -> Result<(), CommandError> {
    let due_ms = ctx.db.due_ms();
    let hash = ctx.db.read::<Hash>(args.key(1))?;
    let mut due = false;
    for field in args.from(2) {
        let found = hash.map_or(Lookup::Absent, |hash| hash.look_up(field, due_ms, args.hasher()));
        due |= matches!(found, Lookup::Due);
        write(&mut ctx.reply, found.live());
    }
    if due && ctx.db.removes_due() {
        remove_expired_fields_named(ctx, args, args.from(2))?;
    }
    Ok(())
}

/// Removes the expired fields among `fields`, and the hash if it becomes empty.
#[cold]
fn remove_expired_fields_named<'f>(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    fields: impl Iterator<Item = &'f [u8]>,
) -> Result<(), AccessError> {
    let (key, due_ms, db) = (args.key(1), ctx.db.due_ms(), ctx.db.index());
    let Some(hash) = ctx.db.write::<Hash>(key)? else { return Ok(()) };
    let due = fields.filter(|field| hash.remove_if_due(field, due_ms, args.hasher()));
    let record = &mut ctx.effects.record;
    let removed = due.inspect(|field| record.field_expired(db, key.bytes, field)).count();
    let emptied = hash.is_empty();
    fields_expired(ctx, key, removed);
    if emptied {
        remove_emptied(ctx, key);
    }
    Ok(())
}

impl RandomElements for Hash {
    type Companion<'a> = Element<'a>;
    const OPTION: Option<&'static str> = Some("WITHVALUES");

    fn prepare(ctx: &mut Ctx<'_>, key: Key<'_>) -> Result<(), AccessError> {
        remove_expired_fields(ctx, key)
    }
    fn without_expired(&self, due_ms: i64) -> Option<Self> {
        self.next_deadline_ms().filter(|&at_ms| at_ms <= due_ms)?;
        let mut copy = self.clone();
        copy.remove_all_due(due_ms, |_| {});
        Some(copy)
    }
    fn element_count(&self) -> usize {
        self.len()
    }
    fn draw_one(&self, draw: impl FnMut() -> u64) -> Option<(Element<'_>, Element<'_>)> {
        self.random(draw)
    }
    fn draw_distinct(
        &self,
        count: usize,
        draw: impl FnMut() -> u64,
        visit: impl FnMut(Element<'_>, Element<'_>),
    ) {
        self.sample(count, draw, visit);
    }
    fn reply_companion(reply: &mut Reply<'_>, value: Element<'_>) {
        bulk(reply, value);
    }
}

/// Removes all expired fields of a hash, and the hash if it becomes empty.
fn remove_expired_fields(ctx: &mut Ctx<'_>, key: Key<'_>) -> Result<(), AccessError> {
    if !ctx.db.may_have_due_fields(key) {
        return Ok(());
    }
    let (due_ms, db) = (ctx.db.due_ms(), ctx.db.index());
    let Some(hash) = ctx.db.write::<Hash>(key)? else { return Ok(()) };
    let record = &mut ctx.effects.record;
    let removed = hash.remove_all_due(due_ms, |field| {
        record.field_expired(db, key.bytes, field.text(&mut IntText::new()));
    });
    let emptied = hash.is_empty();
    fields_expired(ctx, key, removed);
    if emptied {
        remove_emptied(ctx, key);
    }
    Ok(())
}

/// Records HSET of the field at argument 2, which replaces an expired field and clears its expiry.
/// An HDEL recorded before the request would be wrong: if the field is the only one, HDEL also
/// removes the key and its expiry.
fn record_hset(ctx: &mut Ctx<'_>, args: &Args<'_>, value: &[u8]) {
    ctx.record(|record| {
        record.command("HSET").word(args.get(1)).word(args.get(2)).word(value);
    });
}

/// Records one HDEL for each field, for replicas and the append-only file, as Redis does.
fn record_hdels<'f>(ctx: &mut Ctx<'_>, key: Key<'_>, fields: impl IntoIterator<Item = &'f [u8]>) {
    ctx.record(|record| {
        for field in fields {
            record.command("HDEL").word(key.bytes).word(field);
        }
    });
}

/// Records `command key [ms] [condition] FIELDS n field ...` for replicas and the append-only file;
/// the words before FIELDS are in `words`.
fn record_of_fields<'f>(
    ctx: &mut Ctx<'_>,
    key: Key<'_>,
    words: FieldsCommand<'_>,
    fields: impl ExactSizeIterator<Item = &'f [u8]>,
) {
    ctx.record(|record| {
        let command = record.command(words.name).word(key.bytes);
        if let Some(at_ms) = words.at_ms {
            command.integer(at_ms);
        }
        command.words(words.condition).word(b"FIELDS").integer(fields.len()).words(fields);
    });
}

/// The name and options of a recorded command on fields, for [`record_of_fields`].
struct FieldsCommand<'c> {
    name: &'static str,
    /// The time at which the fields expire, in Unix milliseconds.
    at_ms: Option<i64>,
    condition: Option<&'c [u8]>,
}

impl FieldsCommand<'_> {
    /// Returns the recorded command that sets or clears the expiry of fields, whatever their old
    /// expiry: HPEXPIREAT or HPERSIST.
    fn setting(expiry: Expiry) -> Self {
        match expiry {
            Expiry::At(at_ms) => Self { name: "HPEXPIREAT", at_ms: Some(at_ms), condition: None },
            Expiry::Clear | Expiry::Keep => Self { name: "HPERSIST", at_ms: None, condition: None },
        }
    }
}

/// Counts `count` fields that were removed because they had expired, and raises the event
/// `hexpired`.
fn fields_expired(ctx: &mut Ctx<'_>, key: Key<'_>, count: usize) {
    if count > 0 {
        ctx.db.access_results().expired_fields += count as u64;
        ctx.changed_by(count as u64, EventClass::HASH, "hexpired", key);
    }
}

/// The error reply of most commands if the number of fields is below 1.
const NOT_POSITIVE: CommandError = CommandError::Line("ERR Number of fields must be a positive integer");

/// Returns the fields after `FIELDS n`, which begins at argument `at`: all remaining arguments.
/// `not_positive` is the error for a number below 1.
fn parse_fields<'a>(
    args: &Args<'a>,
    at: usize,
    not_positive: CommandError,
) -> Result<impl ExactSizeIterator<Item = &'a [u8]> + Clone + use<'a>, CommandError> {
    if !args.is(at, "FIELDS") {
        let line = "ERR Mandatory argument FIELDS is missing or not at the right position";
        return Err(CommandError::Line(line));
    }
    let fields = args.from(at + 2);
    let is_count = at + 1 < args.len();
    let count = if is_count { number::parse_i64(args.get(at + 1)).filter(|&n| n > 0) } else { Some(1) };
    if count.ok_or(not_positive)? != fields.len() as i64 {
        let line = "ERR The `numfields` parameter must match the number of arguments";
        return Err(CommandError::Line(line));
    }
    Ok(fields)
}

/// Writes a field's value as a bulk string, or null if `value` is `None`.
#[inline]
fn value_or_null(reply: &mut Reply<'_>, value: Option<Element<'_>>) {
    match value {
        Some(value) => bulk(reply, value),
        None => reply.null(),
    }
}

static HMGET: Command = Command {
    name: "HMGET",
    summary: "Returns the values of several fields of a hash.",
    history: History::since("2.0.0"),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("field").multiple()],
    run: hmget,
    ..Command::DEFAULT
};
/// Handles HMGET: replies with an array of values and nulls.
fn hmget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.array(args.len() - 2);
    read_fields(ctx, args, value_or_null)
}

static HGETALL: Command = Command {
    name: "HGETALL",
    summary: "Returns all fields and values of a hash.",
    history: History::since("2.0.0"),
    group: Group::Hash,
    complexity: "O(N) in the number of fields",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0)],
    run: hgetall,
    ..Command::DEFAULT
};
/// Handles HGETALL: replies with a map of the fields to their values, empty if the key is missing.
fn hgetall(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let due_ms = ctx.db.due_ms();
    let Some(hash) = ctx.db.read::<Hash>(args.key(1))? else {
        ctx.reply.map(0);
        return Ok(());
    };
    let fields = hash.live(due_ms);
    ctx.reply.map(fields.count());
    for (field, value) in fields.iter() {
        bulk(&mut ctx.reply, field);
        bulk(&mut ctx.reply, value);
    }
    Ok(())
}

static HKEYS: Command =
    Command { name: "HKEYS", summary: "Returns all fields of a hash.", run: hkeys, ..HGETALL };
/// Handles HKEYS: replies with an array of the fields, empty if the key is missing.
fn hkeys(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let due_ms = ctx.db.due_ms();
    let Some(hash) = ctx.db.read::<Hash>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let fields = hash.live(due_ms);
    ctx.reply.array(fields.count());
    fields.iter().for_each(|(field, _)| bulk(&mut ctx.reply, field));
    Ok(())
}

static HVALS: Command =
    Command { name: "HVALS", summary: "Returns all values of a hash.", run: hvals, ..HGETALL };
/// Handles HVALS: replies with an array of the values, empty if the key is missing.
fn hvals(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let due_ms = ctx.db.due_ms();
    let Some(hash) = ctx.db.read::<Hash>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let fields = hash.live(due_ms);
    ctx.reply.array(fields.count());
    fields.iter().for_each(|(_, value)| bulk(&mut ctx.reply, value));
    Ok(())
}

static HSTRLEN: Command = Command {
    name: "HSTRLEN",
    summary: "Returns the length of a value of a hash.",
    history: History::since("3.2.0"),
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0), Arg::string("field")],
    run: hstrlen,
    ..Command::DEFAULT
};
/// Handles HSTRLEN: replies with the length in bytes, 0 if the key or the field is missing.
fn hstrlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    read_fields(ctx, args, |reply, value| {
        reply.integer(value.map_or(0, |value| value.text_len_bytes() as i64));
    })
}

static HLEN: Command = Command {
    name: "HLEN",
    summary: "Returns the number of fields of a hash.",
    history: History::since("2.0.0"),
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: hlen,
    ..Command::DEFAULT
};
/// Handles HLEN: replies with the number of fields, 0 if the key is missing. Counts expired fields
/// that are not yet removed.
fn hlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let hash = ctx.db.read::<Hash>(args.key(1))?;
    ctx.reply.integer(hash.map_or(0, Hash::len) as i64);
    Ok(())
}

static HEXISTS: Command = Command {
    name: "HEXISTS",
    summary: "Returns 1 if a field exists in a hash, else 0.",
    history: History::since("2.0.0"),
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0), Arg::string("field")],
    run: hexists,
    ..Command::DEFAULT
};
/// Handles HEXISTS: replies with 1 if the field exists, else 0.
fn hexists(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    read_fields(ctx, args, |reply, value| reply.integer(value.is_some().into()))
}

static HDEL: Command = Command {
    name: "HDEL",
    summary: "Removes fields from a hash. Deletes the hash if no field remains.",
    history: History::since("2.0.0").changed(&[("2.4.0", "takes several fields")]),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::string("field").multiple()],
    run: hdel,
    ..Command::DEFAULT
};
/// Handles HDEL: replies with the number of removed fields.
fn hdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let Some(hash) = ctx.db.write::<Hash>(key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let removed = args.from(2).filter(|field| hash.remove(field, args.hasher())).count();
    let emptied = hash.is_empty();
    if removed > 0 {
        ctx.changed_by(removed as u64, EventClass::HASH, "hdel", key);
    }
    if emptied {
        remove_emptied(ctx, key);
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

static HINCRBY: Command = Command {
    name: "HINCRBY",
    summary: "Adds an integer to the number in a field of a hash. A missing field counts as 0.",
    history: History::since("2.0.0"),
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::string("field"), Arg::integer("increment")],
    run: hincrby,
    ..Command::DEFAULT
};
/// Handles HINCRBY: replies with the sum.
fn hincrby(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, limits, hasher) = (args.key(1), hash_limits(ctx), args.hasher());
    let increment = args.integer(3)?;
    let due_ms = ctx.db.due_ms();
    let hash = ctx.db.write_or_insert::<Hash>(key)?;
    let found = hash.look_up(args.get(2), due_ms, hasher);
    let old = match found.live() {
        Some(value) => value.as_int().ok_or(CommandError::Line("ERR hash value is not an integer"))?,
        None => 0,
    };
    let (expiry, due) = expiry_of_sum(found);
    let sum = old.checked_add(increment).ok_or(CommandError::IncrementOverflow)?;
    let mut text = itoa::Buffer::new();
    let text = text.format(sum).as_bytes();
    let write = FieldWrite { name: args.get(2), value: text, expiry };
    hash.set_with_expiry(write, &limits, hasher);
    fields_expired(ctx, key, due.into());
    ctx.changed(EventClass::HASH, "hincrby", key);
    if due {
        record_hset(ctx, args, text);
    }
    ctx.reply.integer(sum);
    Ok(())
}

/// Returns the change that HINCRBY's sum makes to its field's expiry, and true if the field had
/// expired. A live field keeps its expiry. The sum replaces an expired field and does not expire.
#[inline]
fn expiry_of_sum(found: Lookup<'_>) -> (Expiry, bool) {
    match found {
        Lookup::Live(_) => (Expiry::Keep, false),
        Lookup::Due => (Expiry::Clear, true),
        Lookup::Absent => (Expiry::Clear, false),
    }
}

static HINCRBYFLOAT: Command = Command {
    name: "HINCRBYFLOAT",
    summary: "Adds a floating-point number to the number in a field of a hash. A missing field counts as \
         0.",
    history: History::since("2.6.0"),
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::string("field"), Arg::double("increment")],
    run: hincrbyfloat,
    ..Command::DEFAULT
};
/// Handles HINCRBYFLOAT: replies with the sum, which is computed with 64 bits of precision and
/// stored as text.
fn hincrbyfloat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, limits, hasher) = (args.key(1), hash_limits(ctx), args.hasher());
    let increment = LongDouble::parse(args.get(3)).ok_or(CommandError::NotAFloat)?;
    if !increment.is_finite() {
        return Err(CommandError::Line("ERR value is NaN or Infinity"));
    }
    let (due_ms, db) = (ctx.db.due_ms(), ctx.db.index());
    let hash = ctx.db.write_or_insert::<Hash>(key)?;
    let found = hash.look_up(args.get(2), due_ms, hasher);
    let old = match found.live() {
        Some(value) => LongDouble::parse(value.text(&mut IntText::new()))
            .ok_or(CommandError::Line("ERR hash value is not a float"))?,
        None => LongDouble::ZERO,
    };
    let (expiry, due) = expiry_of_sum(found);
    let sum = old.checked_add(increment).ok_or(CommandError::IncrementNotFinite)?.to_string();
    let write = FieldWrite { name: args.get(2), value: sum.as_bytes(), expiry };
    hash.set_with_expiry(write, &limits, hasher);
    ctx.effects.record.replace(db, |record| {
        let (_, deadline_ms) = hash.find(args.get(2), hasher).unzip();
        // HSET would clear the field's expiry, as the HSET that Redis 8.0 records does on its
        // replicas.
        match deadline_ms.flatten() {
            Some(_) => record.command("HSETEX").words([key.bytes, b"KEEPTTL", b"FIELDS", b"1"]),
            None => record.command("HSET").word(key.bytes),
        };
        record.word(args.get(2)).word(sum.as_bytes());
    });
    fields_expired(ctx, key, due.into());
    ctx.changed(EventClass::HASH, "hincrbyfloat", key);
    ctx.reply.bulk(sum.as_bytes());
    Ok(())
}

static HRANDFIELD: Command = Command {
    name: "HRANDFIELD",
    summary: "Returns random fields of a hash, optionally with their values.",
    history: History::since("6.2.0"),
    group: Group::Hash,
    complexity: "O(N) in the number of fields returned",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::block("options", &[Arg::integer("count"), Arg::word("withvalues", "WITHVALUES").optional()])
            .optional(),
    ],
    run: hrandfield,
    ..Command::DEFAULT
};
/// Handles HRANDFIELD: replies with a field, or null. With a count the reply is an array of that
/// many different fields. A negative count allows repetitions, and WITHVALUES adds the values.
fn hrandfield(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    random_elements::<Hash>(ctx, args)
}

static HSCAN: Command = Command {
    name: "HSCAN",
    summary: "Iterates over the fields of a hash with a cursor.",
    history: History::since("2.8.0"),
    group: Group::Hash,
    complexity: "O(1) for each call, O(N) for all",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::integer("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::integer("count").token("COUNT").optional(),
        Arg::word("novalues", "NOVALUES").optional(),
    ],
    run: hscan,
    ..Command::DEFAULT
};
/// Handles HSCAN: replies with the next cursor, fields and values.
fn hscan(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let cursor = args.cursor(2)?;
    let due_ms = ctx.db.due_ms();
    let Some(hash) = ctx.db.read::<Hash>(args.key(1))? else {
        ScanRequest::nothing(&mut ctx.reply);
        return Ok(());
    };
    let request = ScanRequest::parse(args, cursor, Scanned::Hash)?;
    request.run(&mut ctx.reply, |cursor, mut reply| {
        let mut step = ScanStep::default();
        step.next = hash.live(due_ms).scan(cursor, |field, value| {
            step.visited += 1;
            if let Some(reply) = reply.as_deref_mut()
                && request.matches(field)
            {
                bulk(reply, field);
                step.written += 1;
                if !request.names_only {
                    bulk(reply, value);
                    step.written += 1;
                }
            }
        });
        step
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::collection::harness_without_new;
    use crate::harness::{Harness, check};

    #[test]
    fn fields_are_set_read_and_removed() {
        check(&[
            ("HSET h a 1 b two", ":2|"),
            ("HSET h a 3 c 4", ":1|"),
            ("HSET h a", "-ERR wrong number of arguments for 'HSET'|"),
            ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command|"),
            ("HMSET h a 1 b", "-ERR wrong number of arguments for 'hmset' command|"),
            ("HMSET h d 5", "+OK|"),
            ("HSETNX h d 6", ":0|"),
            ("HSETNX h e 6", ":1|"),
            ("HGET h d", "$1|5|"),
            ("HGET h nope", "_|"),
            ("HGET nokey a", "_|"),
            ("HMGET h a nope b", "*3|$1|3|_|$3|two|"),
            ("HMGET nokey a", "*1|_|"),
            ("HLEN h", ":5|"),
            ("HLEN nokey", ":0|"),
            ("HEXISTS h a", ":1|"),
            ("HEXISTS h z", ":0|"),
            ("HSTRLEN h b", ":3|"),
            ("HSTRLEN h a", ":1|"),
            ("HSTRLEN h nope", ":0|"),
            ("HKEYS h", "*5|$1|a|$1|b|$1|c|$1|d|$1|e|"),
            ("HVALS h", "*5|$1|3|$3|two|$1|4|$1|5|$1|6|"),
            ("HKEYS nokey", "*0|"),
            ("HDEL h a b nope", ":2|"),
            ("HDEL h c d e", ":3|"),
            ("HLEN h", ":0|"),
            ("HDEL h c", ":0|"),
        ]);
    }

    #[test]
    fn a_hash_is_a_map_to_resp3_and_a_flat_array_to_resp2() {
        let mut db = Harness::new();
        db.line("HSET h a 1 b 2");
        assert_eq!(db.line("HGETALL h"), "*4|$1|a|$1|1|$1|b|$1|2|");
        assert_eq!(db.line("HGETALL nokey"), "*0|");
        db.protocol = resp::Protocol::Resp3;
        assert_eq!(db.line("HGETALL h"), "%2|$1|a|$1|1|$1|b|$1|2|");
        assert_eq!(db.line("HGETALL nokey"), "%0|");
        assert_eq!(db.line("HRANDFIELD h -1 WITHVALUES").matches("*2|").count(), 1);
    }

    #[test]
    fn increments_are_exact_and_errors_change_nothing() {
        check(&[
            ("HINCRBY h n 5", ":5|"),
            ("HINCRBY h n -7", ":-2|"),
            ("HINCRBY h n 1.5", "-ERR value is not an integer or out of range|"),
            ("HSET h n 9223372036854775807 s text", ":1|"),
            ("HINCRBY h n 1", "-ERR increment or decrement would overflow|"),
            ("HINCRBY h s 1", "-ERR hash value is not an integer|"),
            ("HINCRBYFLOAT h s 1", "-ERR hash value is not a float|"),
            ("HINCRBYFLOAT h f abc", "-ERR value is not a valid float|"),
            ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity|"),
            ("HINCRBYFLOAT nokey f inf", "-ERR value is NaN or Infinity|"),
            ("HLEN nokey", ":0|"),
            ("HINCRBYFLOAT h f 0.1", "$3|0.1|"),
            ("HINCRBYFLOAT h f 0.2", "$3|0.3|"),
            ("HINCRBYFLOAT h f 5e3", "$22|5000.29999999999999982|"),
            ("HGET h f", "$22|5000.29999999999999982|"),
        ]);
    }

    #[test]
    fn events_tell_what_changed() {
        harness_without_new().check_events(&[
            ("HSET h a 1 b 2", ":2|", "hset h@0"),
            ("HINCRBY h a 1", ":2|", "hincrby h@0"),
            ("HINCRBYFLOAT h a 1", "$1|3|", "hincrbyfloat h@0"),
            ("HSETNX h a 1", ":0|", ""),
            ("HDEL h nope", ":0|", ""),
            ("HDEL h a", ":1|", "hdel h@0"),
            ("HDEL h b", ":1|", "hdel h@0,del h@0"),
        ]);
    }

    #[test]
    fn other_types_are_refused() {
        let mut db = Harness::new();
        db.line("SET s x");
        for line in ["HSET s a 1", "HGET s a", "HGETALL s", "HDEL s a", "HINCRBY s a 1", "HSCAN s 0 x"] {
            assert!(db.line(line).starts_with("-WRONGTYPE "), "{line}");
        }
    }

    #[test]
    fn a_scan_gives_every_field_once_whatever_the_encoding() {
        for fields in [3, 700] {
            let mut db = Harness::new();
            for i in 0..fields {
                db.line(&format!("HSET h f{i} v{i}"));
            }
            let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
            loop {
                let reply = db.line(&format!("HSCAN h {cursor} COUNT 7 NOVALUES"));
                let parts: Vec<&str> = reply.split('|').collect();
                cursor = parts[2].to_owned();
                seen.extend(
                    parts[5..].iter().step_by(2).filter(|part| !part.is_empty()).map(|s| (*s).to_owned()),
                );
                if cursor == "0" {
                    break;
                }
            }
            seen.sort();
            assert_eq!(seen.len(), fields);
            seen.dedup();
            assert_eq!(seen.len(), fields);
        }
    }

    #[test]
    fn scan_options_are_checked_behind_the_cursor_and_the_type() {
        check(&[
            ("HSCAN h x", "-ERR invalid cursor|"),
            ("HSCAN h -1", "-ERR invalid cursor|"),
            ("HSCAN h 18446744073709551616", "-ERR invalid cursor|"),
            ("HSCAN h -", "-ERR invalid cursor|"),
            ("HSCAN h 5 COUNT", "*2|$1|0|*0|"),
            ("HSET h a1 1 b2 2", ":2|"),
            ("HSCAN h 0", "*2|$1|0|*4|$2|a1|$1|1|$2|b2|$1|2|"),
            ("HSCAN h 0 MATCH b* COUNT 100", "*2|$1|0|*2|$2|b2|$1|2|"),
            ("HSCAN h 0 NOVALUES", "*2|$1|0|*2|$2|a1|$2|b2|"),
            ("HSCAN h 0 COUNT", "-ERR syntax error|"),
            ("HSCAN h 0 COUNT 0", "-ERR syntax error|"),
            ("HSCAN h 0 COUNT x", "-ERR value is not an integer or out of range|"),
        ]);
    }

    #[test]
    fn random_fields_are_as_many_as_asked_for() {
        check(&[
            ("HRANDFIELD nokey", "_|"),
            ("HRANDFIELD nokey 2", "*0|"),
            ("HSET h a 1", ":1|"),
            ("HRANDFIELD h", "$1|a|"),
            ("HRANDFIELD h 5", "*1|$1|a|"),
            ("HRANDFIELD h -3", "*3|$1|a|$1|a|$1|a|"),
            ("HRANDFIELD h 0", "*0|"),
            ("HRANDFIELD h x", "-ERR value is not an integer or out of range|"),
            ("HRANDFIELD h 1 VALUES", "-ERR syntax error|"),
            ("HRANDFIELD h -9223372036854775807 WITHVALUES", "-ERR value is out of range|"),
            ("HRANDFIELD h 9223372036854775807 WITHVALUES", "-ERR value is out of range|"),
        ]);
    }
}
