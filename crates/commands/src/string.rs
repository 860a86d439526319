//! Commands on strings. This file has the commands on whole strings. Parts of strings are in
//! `range`, numbers in `counter` and `increx`, comparisons in `compare`, the longest common
//! subsequence in `lcs`.

use keyspace::string::IntText;
use keyspace::{Expiry, Key, Str};
use resp::Reply;

use crate::args::Args;
use crate::collection::record_del;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

mod compare;
mod counter;
mod increx;
mod lcs;
mod options;
mod range;

use compare::condition_holds;
use options::{AllowedOptions, Condition, Lifetime, Options};

/// The command table's records of all string commands.
pub static COMMANDS: &[&Command] = &[
    &GET,
    &SET,
    &GETSET,
    &GETDEL,
    &GETEX,
    &SETNX,
    &SETEX,
    &PSETEX,
    &MGET,
    &MSET,
    &MSETNX,
    &STRLEN,
    &range::APPEND,
    &range::GETRANGE,
    &range::SUBSTR,
    &range::SETRANGE,
    &counter::INCR,
    &counter::DECR,
    &counter::INCRBY,
    &counter::DECRBY,
    &counter::INCRBYFLOAT,
    &lcs::LCS,
    &compare::DIGEST,
    &compare::DELEX,
    &compare::DELIFEQ,
    &MSETEX,
    &increx::INCREX,
];

/// The minimum length, in bytes, of a stored string that a reply refers to instead of copying it.
const SHARED_REPLY_LEN_MIN: usize = 16 * 1024;

/// Replies with a stored string. The bytes of a long string are not copied.
#[inline]
fn reply_string(reply: &mut Reply<'_>, string: Str<'_>) {
    match string {
        Str::Blob(blob) if blob.len() >= SHARED_REPLY_LEN_MIN => reply.bulk_shared(blob.clone()),
        string => reply.bulk(string.bytes(&mut IntText::new())),
    }
}

/// Replies with the string at `key`, or null if the key is missing. Returns true if the key holds a
/// string.
#[inline]
fn reply_value(ctx: &mut Ctx<'_>, key: Key<'_>) -> Result<bool, CommandError> {
    match ctx.db.string(key)? {
        Some(string) => {
            reply_string(&mut ctx.reply, string);
            Ok(true)
        }
        None => {
            ctx.reply.null();
            Ok(false)
        }
    }
}

static GET: Command = Command {
    name: "GET",
    summary: "Returns the string stored at a key.",
    history: History::since("1.0.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0)],
    run: get,
    ..Command::DEFAULT
};
/// Handles GET: replies with the string, or null if the key is missing.
fn get(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_value(ctx, args.key(1)).map(drop)
}

static SET: Command = Command {
    name: "SET",
    summary: "Stores a string at a key and overwrites any previous value.",
    history: History::since("1.0.0").changed(&[
        ("2.6.12", "takes EX, PX, NX and XX"),
        ("6.0.0", "takes KEEPTTL"),
        ("6.2.0", "takes GET, EXAT and PXAT"),
        ("7.0.0", "takes NX and GET together"),
        ("8.4.0", "takes IFEQ, IFNE, IFDEQ and IFDNE"),
    ]),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::SHORT),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(
        1,
        KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE).union(KeyFlags::VARIABLE_FLAGS),
    )
    .noting("RW and ACCESS due to the optional `GET` argument")],
    args: &[
        Arg::key("key", 0),
        Arg::string("value"),
        Arg::one_of(
            "condition",
            &[
                Arg::word("nx", "NX"),
                Arg::word("xx", "XX"),
                Arg::string("ifeq-value").token("IFEQ").since("8.4.0"),
                Arg::string("ifne-value").token("IFNE").since("8.4.0"),
                Arg::string("ifdeq-digest").token("IFDEQ").since("8.4.0"),
                Arg::string("ifdne-digest").token("IFDNE").since("8.4.0"),
            ],
        )
        .since("2.6.12")
        .optional(),
        Arg::word("get", "GET").since("6.2.0").optional(),
        Arg::one_of(
            "expiration",
            &[
                Arg::integer("seconds").token("EX").since("2.6.12"),
                Arg::integer("milliseconds").token("PX").since("2.6.12"),
                Arg::unix_time("unix-time-seconds").token("EXAT").since("6.2.0"),
                Arg::unix_time("unix-time-milliseconds").token("PXAT").since("6.2.0"),
                Arg::word("keepttl", "KEEPTTL").since("6.0.0"),
            ],
        )
        .optional(),
    ],
    recorded_forms: &[
        RecordedForm::replaced("IFEQ"),
        RecordedForm::replaced("IFNE"),
        RecordedForm::replaced("IFDEQ"),
        RecordedForm::replaced("IFDNE"),
    ],
    run: set,
    ..Command::DEFAULT
};
/// Handles SET: replies with OK, or with null if the condition does not hold. With GET the reply is
/// the old string in both cases, or null if the key was missing.
fn set(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    if args.len() == 3 {
        ctx.db.set_string(key, args.get(2), Expiry::Clear);
        ctx.changed(EventClass::STRING, "set", key);
        ctx.reply.ok();
        return Ok(());
    }
    let options = Options::parse(args, 3, AllowedOptions::Set)?;
    let expiry = options.expiry("set", ctx.db.now_ms())?;
    if options.get {
        reply_value(ctx, key)?;
    }
    if !condition_holds(ctx, key, options.condition)? {
        if !options.get {
            ctx.reply.null();
        }
        return Ok(());
    }
    store(ctx, key, args.get(2), expiry);
    let is_record = !options.get && !options.condition.has_text();
    match (expiry, options.lifetime) {
        (Expiry::At(_), Lifetime::UnixMilliseconds(_)) if is_record => {}
        (Expiry::At(at_ms), _) => record_set_until(ctx, key.bytes, args.get(2), at_ms),
        _ if !is_record => record_set(ctx, args, &options),
        _ => {}
    }
    if !options.get {
        ctx.reply.ok();
    }
    Ok(())
}

/// Stores a string at `key` in place of any old value and raises the keyspace events of SET.
fn store(ctx: &mut Ctx<'_>, key: Key<'_>, bytes: &[u8], expiry: Expiry) {
    ctx.db.set_string(key, bytes, expiry);
    ctx.changed(EventClass::STRING, "set", key);
    if let Expiry::At(_) = expiry {
        ctx.changed_by(0, EventClass::GENERIC, "expire", key);
    }
}

/// Records SET of a string that expires at `at_ms`, a Unix time in milliseconds.
fn record_set_until(ctx: &mut Ctx<'_>, key: &[u8], value: &[u8], at_ms: i64) {
    ctx.record(|record| {
        record.command("SET").word(key).word(value).word(b"PXAT").integer(at_ms);
    });
}

/// Records SET of a string without an expiry time. Leaves out GET, which affects only the reply,
/// and a condition that compares, which held. Older servers know neither such conditions nor GET
/// together with NX.
fn record_set(ctx: &mut Ctx<'_>, args: &Args<'_>, options: &Options<'_>) {
    ctx.record(|record| {
        let set = record.command("SET").words(args.from(1).take(2));
        set.words(match options.condition {
            Condition::Absent => Some(&b"NX"[..]),
            Condition::Present => Some(&b"XX"[..]),
            _ => None,
        });
        set.words((options.lifetime == Lifetime::Keep).then_some(&b"KEEPTTL"[..]));
    });
}

static GETSET: Command = Command {
    name: "GETSET",
    summary: "Stores a string at a key and returns the previous string.",
    history: History::since("1.0.0").deprecated("6.2.0", "`SET` with the `!GET` argument"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::string("value")],
    run: getset,
    ..Command::DEFAULT
};
/// Handles GETSET: replies with the old string, or null if the key was missing.
fn getset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    reply_value(ctx, key)?;
    store(ctx, key, args.get(2), Expiry::Clear);
    ctx.record(|record| {
        record.command("SET").word(key.bytes).word(args.get(2));
    });
    Ok(())
}

static GETDEL: Command = Command {
    name: "GETDEL",
    summary: "Returns the string stored at a key and deletes the key.",
    history: History::since("6.2.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0)],
    run: getdel,
    ..Command::DEFAULT
};
/// Handles GETDEL: replies with the string, or null if the key is missing.
fn getdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    if reply_value(ctx, key)? {
        delete(ctx, key);
    }
    Ok(())
}

/// Removes a key, raises the event `del` and records DEL in place of the request.
fn delete(ctx: &mut Ctx<'_>, key: Key<'_>) {
    if let Some(entry) = ctx.db.remove(key) {
        ctx.effects.discard(entry);
        ctx.changed(EventClass::GENERIC, "del", key);
        record_del(ctx, key);
    }
}

static GETEX: Command = Command {
    name: "GETEX",
    summary: "Returns the string stored at a key and sets or removes the key's expiry.",
    history: History::since("6.2.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))
        .noting("RW and UPDATE because it changes the TTL")],
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "expiration",
            &[
                Arg::integer("seconds").token("EX"),
                Arg::integer("milliseconds").token("PX"),
                Arg::unix_time("unix-time-seconds").token("EXAT"),
                Arg::unix_time("unix-time-milliseconds").token("PXAT"),
                Arg::word("persist", "PERSIST"),
            ],
        )
        .optional(),
    ],
    run: getex,
    ..Command::DEFAULT
};
/// Handles GETEX: replies with the string, or null if the key is missing. An expiry in the past
/// deletes the key.
fn getex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let options = Options::parse(args, 2, AllowedOptions::Getex)?;
    if !reply_value(ctx, key)? {
        return Ok(());
    }
    match (options.lifetime, options.expiry("getex", ctx.db.now_ms())?) {
        (_, Expiry::At(at_ms)) if ctx.db.is_past(at_ms) => delete(ctx, key),
        (_, Expiry::At(at_ms)) => {
            ctx.db.set_expiry_ms(key, Some(at_ms));
            ctx.changed(EventClass::GENERIC, "expire", key);
            ctx.record(|record| {
                record.command("PEXPIREAT").word(key.bytes).integer(at_ms);
            });
        }
        (Lifetime::Persist, _) if ctx.db.expiry_ms(key).flatten().is_some() => {
            ctx.db.set_expiry_ms(key, None);
            ctx.changed(EventClass::GENERIC, "persist", key);
            ctx.record(|record| {
                record.command("PERSIST").word(key.bytes);
            });
        }
        _ => {}
    }
    Ok(())
}

static SETNX: Command = Command {
    name: "SETNX",
    summary: "Stores a string at a key unless the key exists.",
    history: History::since("1.0.0").deprecated("2.6.12", "`SET` with the `NX` argument"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::OW.union(KeyFlags::INSERT))],
    args: &[Arg::key("key", 0), Arg::string("value")],
    run: setnx,
    ..Command::DEFAULT
};
/// Handles SETNX: replies with 1 if the string was stored, 0 if the key exists.
fn setnx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let absent = !ctx.db.contains(key);
    if absent {
        store(ctx, key, args.get(2), Expiry::Clear);
    }
    ctx.reply.integer(absent.into());
    Ok(())
}

static SETEX: Command = Command {
    name: "SETEX",
    summary: "Stores a string at a key and sets its time to live in seconds.",
    history: History::since("2.0.0").deprecated("2.6.12", "`SET` with the `EX` argument"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::SHORT),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::integer("seconds"), Arg::string("value")],
    run: setex,
    ..Command::DEFAULT
};
/// Handles SETEX: replies with OK.
fn setex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    set_expiring(ctx, args, Lifetime::Seconds(args.get(2)), "setex")
}

static PSETEX: Command = Command {
    name: "PSETEX",
    summary: "Stores a string at a key and sets its time to live in milliseconds.",
    history: History::since("2.6.0").deprecated("2.6.12", "`SET` with the `PX` argument"),
    args: &[Arg::key("key", 0), Arg::integer("milliseconds"), Arg::string("value")],
    run: psetex,
    ..SETEX
};
/// Handles PSETEX: replies with OK.
fn psetex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    set_expiring(ctx, args, Lifetime::Milliseconds(args.get(2)), "psetex")
}

fn set_expiring(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    lifetime: Lifetime<'_>,
    command: &'static str,
) -> Result<(), CommandError> {
    let expiry = lifetime.expiry(command, ctx.db.now_ms())?;
    store(ctx, args.key(1), args.get(3), expiry);
    if let Expiry::At(at_ms) = expiry {
        record_set_until(ctx, args.get(1), args.get(3), at_ms);
    }
    ctx.reply.ok();
    Ok(())
}

static MGET: Command = Command {
    name: "MGET",
    summary: "Returns the strings stored at several keys.",
    history: History::since("1.0.0"),
    group: Group::String,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::STRING),
    keys: &[KeySpec::from(1, 1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["request_policy:multi_shard"],
    args: &[Arg::key("key", 0).multiple()],
    run: mget,
    ..Command::DEFAULT
};
/// Handles MGET: replies with an array, with null for a key that is missing or holds another type.
fn mget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    ctx.reply.array(args.len() - 1);
    for index in 1..args.len() {
        match ctx.db.string(args.key(index)) {
            Ok(Some(string)) => reply_string(&mut ctx.reply, string),
            Ok(None) | Err(_) => ctx.reply.null(),
        }
    }
    Ok(())
}

static MSET: Command = Command {
    name: "MSET",
    summary: "Stores strings at several keys atomically.",
    history: History::since("1.0.1"),
    group: Group::String,
    complexity: "O(N)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::from(1, 2, KeyFlags::OW.union(KeyFlags::UPDATE))],
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    args: &[Arg::block("data", &[Arg::key("key", 0), Arg::string("value")]).multiple()],
    run: mset,
    ..Command::DEFAULT
};
/// Handles MSET: replies with OK.
fn mset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("mset"));
    }
    store_pairs(ctx, args);
    ctx.reply.ok();
    Ok(())
}

static MSETNX: Command = Command {
    name: "MSETNX",
    summary: "Stores strings at several keys atomically, unless one of the keys exists.",
    keys: &[KeySpec::from(1, 2, KeyFlags::OW.union(KeyFlags::INSERT))],
    tips: &[],
    run: msetnx,
    ..MSET
};
/// Handles MSETNX: replies with 1 if the strings were stored, 0 if one of the keys exists.
fn msetnx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("msetnx"));
    }
    let absent = (1..args.len()).step_by(2).all(|index| !ctx.db.contains(args.key(index)));
    if absent {
        store_pairs(ctx, args);
    }
    ctx.reply.integer(absent.into());
    Ok(())
}

fn store_pairs(ctx: &mut Ctx<'_>, args: &Args<'_>) {
    for index in (1..args.len()).step_by(2) {
        let key = args.key(index);
        ctx.db.set_string(key, args.get(index + 1), Expiry::Clear);
        ctx.changed(EventClass::STRING, "set", key);
    }
}

static MSETEX: Command = Command {
    name: "MSETEX",
    summary: "Stores strings at several keys atomically and sets their expiry.",
    history: History::since("8.4.0"),
    group: Group::String,
    complexity: "O(N)",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::counted_pairs(1, 0, 1, KeyFlags::OW.union(KeyFlags::UPDATE))],
    tips: &["request_policy:multi_shard", "response_policy:all_succeeded"],
    args: &[
        Arg::integer("numkeys"),
        Arg::block("data", &[Arg::key("key", 0), Arg::string("value")]).multiple(),
        Arg::one_of("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).optional(),
        Arg::one_of(
            "expiration",
            &[
                Arg::integer("seconds").token("EX"),
                Arg::integer("milliseconds").token("PX"),
                Arg::unix_time("unix-time-seconds").token("EXAT"),
                Arg::unix_time("unix-time-milliseconds").token("PXAT"),
                Arg::word("keepttl", "KEEPTTL"),
            ],
        )
        .optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: msetex,
    ..Command::DEFAULT
};
/// Handles MSETEX: replies with 1 if the strings were stored. Replies with 0 if one of the keys
/// exists (NX) or is missing (XX).
fn msetex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let count = stdx::number::parse_i64(args.get(1)).and_then(|count| i32::try_from(count).ok());
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|&count| count > 0);
    let count = count.ok_or(CommandError::Line("ERR invalid numkeys value"))?;
    let end = 2 + 2 * count;
    if end > args.len() {
        return Err(CommandError::Line("ERR wrong number of key-value pairs"));
    }
    let options = Options::parse(args, end, AllowedOptions::Msetex)?;
    let expiry = options.expiry("msetex", ctx.db.now_ms())?;
    let mut keys = (2..end).step_by(2).map(|index| args.key(index));
    let stores = match options.condition {
        Condition::Absent => keys.all(|key| !ctx.db.contains(key)),
        Condition::Present => keys.all(|key| ctx.db.contains(key)),
        _ => true,
    };
    if stores {
        (2..end).step_by(2).for_each(|index| store(ctx, args.key(index), args.get(index + 1), expiry));
        ctx.record(|record| {
            for index in (2..end).step_by(2) {
                let set = record.command("SET").word(args.get(index)).word(args.get(index + 1));
                match expiry {
                    Expiry::At(at_ms) => _ = set.word(b"PXAT").integer(at_ms),
                    Expiry::Keep => _ = set.word(b"KEEPTTL"),
                    Expiry::Clear => {}
                }
            }
        });
    }
    ctx.reply.integer(stores.into());
    Ok(())
}

static STRLEN: Command = Command {
    name: "STRLEN",
    summary: "Returns the length of the string stored at a key.",
    history: History::since("2.2.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: strlen,
    ..Command::DEFAULT
};
/// Handles STRLEN: replies with the length in bytes, 0 if the key is missing.
fn strlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let len = ctx.db.string(args.key(1))?.map_or(0, |string| string.len());
    ctx.reply.integer(len as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, START_MS, check};

    #[test]
    fn set_stores_and_get_returns() {
        check(&[
            ("GET a", "_|"),
            ("SET a 1", "+OK|"),
            ("GET a", "$1|1|"),
            ("SET a \"\"", "+OK|"),
            ("GET a", "$0||"),
            ("GETSET a b", "$0||"),
            ("GETSET new c", "_|"),
            ("GETDEL a", "$1|b|"),
            ("GETDEL a", "_|"),
            ("STRLEN new", ":1|"),
            ("STRLEN a", ":0|"),
            ("MSET a 1 b 22", "+OK|"),
            ("STRLEN b", ":2|"),
            ("MGET a b c", "*3|$1|1|$2|22|_|"),
            ("MSETNX c 1 a 2", ":0|"),
            ("MSETNX c 1 d 2", ":1|"),
            ("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command|"),
            ("MSETNX a 1 b", "-ERR wrong number of arguments for 'msetnx' command|"),
            ("SETNX a 1", ":0|"),
            ("SETNX e 1", ":1|"),
        ]);
    }

    #[test]
    fn set_obeys_its_conditions() {
        check(&[
            ("SET a 1 XX", "_|"),
            ("SET a 1 NX", "+OK|"),
            ("SET a 2 nx", "_|"),
            ("SET a 2 XX", "+OK|"),
            ("SET a 3 GET", "$1|2|"),
            ("SET a 4 NX GET", "$1|3|"),
            ("GET a", "$1|3|"),
            ("SET b 4 XX GET", "_|"),
            ("SET b 4 GET", "_|"),
            ("SET a 5 IFEQ 4", "_|"),
            ("SET a 5 IFEQ 3", "+OK|"),
            ("SET a 6 IFNE 5", "_|"),
            ("SET a 6 IFNE 4 GET", "$1|5|"),
            ("SET c 6 IFEQ 4", "_|"),
            ("SET c 6 IFNE 4", "+OK|"),
            ("SET a 1 NX XX", "-ERR syntax error|"),
            ("SET a 1 NX IFEQ 1", "-ERR syntax error|"),
            ("SET a 1 IFEQ", "-ERR syntax error|"),
            ("SET a 1 WHAT", "-ERR syntax error|"),
            ("SET a 1 NXNXNXNXNXNXNXNXNXNXNXNXNX", "-ERR syntax error|"),
        ]);
    }

    #[test]
    fn expiry_comes_with_the_value_and_goes_with_it() {
        let mut db = Harness::new();
        assert_eq!(db.line("SET a 1 EX 10"), "+OK|");
        assert_eq!(db.line("SET a 2 KEEPTTL"), "+OK|");
        db.now_ms = START_MS + 10_000;
        assert_eq!(db.line("GET a"), "$1|2|");
        db.now_ms += 1;
        assert_eq!(db.line("GET a"), "$-1|");
        assert_eq!(db.line("SET a 1 PX 10"), "+OK|");
        assert_eq!(db.line("SET a 1"), "+OK|");
        db.now_ms += 100;
        assert_eq!(db.line("GETEX a PX 10"), "$1|1|");
        assert_eq!(db.line("GETEX a PERSIST"), "$1|1|");
        db.now_ms += 100;
        assert_eq!(db.line("GETEX a PXAT 5"), "$1|1|");
        assert_eq!(db.line("GET a"), "$-1|");
        assert_eq!(db.line("SETEX a 1 x"), "+OK|");
        assert_eq!(db.line("PSETEX b 1 x"), "+OK|");
        db.now_ms += 2;
        assert_eq!(db.line("MGET a b"), "*2|$1|x|$-1|");
        assert_eq!(db.line(&format!("SET a y EXAT {}", db.now_ms / 1000 + 2)), "+OK|");
        db.now_ms += 2_001;
        assert_eq!(db.line("GET a"), "$-1|");
    }

    #[test]
    fn an_expiry_that_cannot_be_is_refused() {
        let invalid = "-ERR invalid expire time in 'set' command|";
        check(&[
            ("SET a 1 EX 0", invalid),
            ("SET a 1 PX -1", invalid),
            ("SET a 1 EXAT 0", invalid),
            ("SET a 1 EX 9223372036854775", invalid),
            ("SET a 1 EXAT 9223372036854776", invalid),
            ("SET a 1 PX 9223372036854775807", invalid),
            ("SET a 1 EX x", "-ERR value is not an integer or out of range|"),
            ("SET a 1 EX", "-ERR syntax error|"),
            ("SET a 1 EX 1 PX 1", "-ERR syntax error|"),
            ("SET a 1 EX 1 KEEPTTL", "-ERR syntax error|"),
            ("SET a 1 PERSIST", "-ERR syntax error|"),
            ("SET a 1 EX 1 EX 2", "+OK|"),
            ("SETEX a 0 1", "-ERR invalid expire time in 'setex' command|"),
            ("PSETEX a 0 1", "-ERR invalid expire time in 'psetex' command|"),
            ("GETEX nokey EX 0", "_|"),
            ("GETEX a EX 0", "-ERR invalid expire time in 'getex' command|"),
            ("GETEX a KEEPTTL", "-ERR syntax error|"),
            ("GETEX a EX 1 PERSIST", "-ERR syntax error|"),
        ]);
    }

    #[test]
    fn another_type_is_refused_except_where_it_is_overwritten() {
        let wrong = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
        check(&[
            ("RPUSH l 1", ":1|"),
            ("GET l", wrong),
            ("GETSET l 1", wrong),
            ("GETDEL l", wrong),
            ("GETEX l", wrong),
            ("STRLEN l", wrong),
            ("SET l 1 GET", wrong),
            ("SET l 1 IFEQ 1", wrong),
            ("MGET l", "*1|_|"),
            ("SETNX l 1", ":0|"),
            ("SET l 1 NX", "_|"),
            ("SET l 1 XX", "+OK|"),
            ("GET l", "$1|1|"),
        ]);
    }

    #[test]
    fn changes_raise_the_events_of_redis() {
        Harness::new().check_events(&[
            ("SET a 1 EX 5", "+OK|", "set a@0,expire a@0"),
            ("SET a 1 NX", "$-1|", ""),
            ("GETSET a 2", "$1|1|", "set a@0"),
            ("MSET a 1 b 2", "+OK|", "set a@0,set b@0"),
            ("GETEX a EX 5", "$1|1|", "expire a@0"),
            ("GETEX a PERSIST", "$1|1|", "persist a@0"),
            ("GETEX a PERSIST", "$1|1|", ""),
            ("GETEX a EXAT 1", "$1|1|", "del a@0"),
            ("GETDEL b", "$1|2|", "del b@0"),
        ]);
    }

    #[test]
    fn big_values_that_go_are_freed_elsewhere() {
        let (elements, long) = ("x ".repeat(100), "x".repeat(1 << 20));
        let mut db = Harness::new();
        for (gone, lazy_freed) in [("SET k 1", 1), ("GETSET k 1", 0), ("DEL k", 1), ("GET k", 1)] {
            for value in [format!("RPUSH k {elements}"), format!("SET k {long}")] {
                db.line("DEL k");
                db.line(&value);
                db.line("PEXPIRE k 5");
                if gone == "GET k" {
                    db.now_ms += 6;
                }
                db.effects.lazy_freed.clear();
                db.line(gone);
                // GETSET refuses a list.
                let expected =
                    if gone.starts_with("GETSET") && value.starts_with("SET") { 1 } else { lazy_freed };
                assert_eq!(db.effects.lazy_freed.len(), expected, "{gone}");
            }
        }
    }

    #[test]
    fn a_long_string_is_sent_whole() {
        let mut db = Harness::new();
        for len in [4096, 4097, 16_383, 16_384, 100_000] {
            let value = vec![b'v'; len];
            db.run_bytes(&[b"SET", b"a", &value]);
            let reply = db.run_bytes(&[b"GET", b"a"]);
            assert_eq!(reply, [format!("${len}\r\n").as_bytes(), &value, b"\r\n"].concat());
        }
    }
}
