//! Commands that add to a number stored as a string.

use keyspace::Expiry;
use keyspace::string::{IntText, Str, stored_as_text};
use stdx::long_double::LongDouble;

use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static INCR: Command = Command {
    name: "INCR",
    summary: "Adds one to the integer stored at a key. A missing key counts as 0.",
    history: History::since("1.0.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0)],
    run: incr,
    ..Command::DEFAULT
};
/// Handles INCR: replies with the sum.
fn incr(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    add(ctx, args, 1)
}

pub(super) static DECR: Command = Command {
    name: "DECR",
    summary: "Subtracts one from the integer stored at a key. A missing key counts as 0.",
    run: decr,
    ..INCR
};
/// Handles DECR: replies with the difference.
fn decr(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    add(ctx, args, -1)
}

pub(super) static INCRBY: Command = Command {
    name: "INCRBY",
    summary: "Adds an integer to the integer stored at a key. A missing key counts as 0.",
    history: History::since("1.0.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::integer("increment")],
    run: incrby,
    ..Command::DEFAULT
};
/// Handles INCRBY: replies with the sum.
fn incrby(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    add(ctx, args, args.integer(2)?)
}

pub(super) static DECRBY: Command = Command {
    name: "DECRBY",
    summary: "Subtracts an integer from the integer stored at a key. A missing key counts as 0.",
    args: &[Arg::key("key", 0), Arg::integer("decrement")],
    run: decrby,
    ..INCRBY
};
/// Handles DECRBY: replies with the difference.
fn decrby(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let negated = args.integer(2)?.checked_neg();
    add(ctx, args, negated.ok_or(CommandError::Line("ERR decrement would overflow"))?)
}

/// Adds `delta` to the number at the key and replies with the sum. Works in place if the number is
/// stored as an integer.
#[inline]
fn add(ctx: &mut Ctx<'_>, args: &Args<'_>, delta: i64) -> Result<(), CommandError> {
    let key = args.key(1);
    let sum = ctx.db.renumber(key, |entry| {
        let number = match Str::of(entry.view()).ok_or(CommandError::WrongType)? {
            Str::Int(number) => number,
            string => stdx::number::parse_i64(string.bytes(&mut IntText::new()))
                .ok_or(CommandError::NotAnInteger)?,
        };
        number.checked_add(delta).ok_or(CommandError::IncrementOverflow)
    });
    let sum = match sum {
        Some(sum) => sum?,
        None => {
            ctx.db.set_int(key, delta, Expiry::Clear);
            delta
        }
    };
    ctx.changed(EventClass::STRING, "incrby", key);
    ctx.reply.integer(sum);
    Ok(())
}

pub(super) static INCRBYFLOAT: Command = Command {
    name: "INCRBYFLOAT",
    summary: "Adds a floating-point number to the number stored at a key. A missing key counts as 0.",
    history: History::since("2.6.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::double("increment")],
    run: incrbyfloat,
    ..Command::DEFAULT
};
/// Handles INCRBYFLOAT: replies with the sum, which is computed with 64 bits of precision and
/// stored as text.
fn incrbyfloat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let number = |text: &[u8]| LongDouble::parse(text).ok_or(CommandError::NotAFloat);
    let old = match ctx.db.string_to_write(key)? {
        Some(string) => number(string.bytes(&mut IntText::new()))?,
        None => LongDouble::ZERO,
    };
    let sum = old.checked_add(number(args.get(2))?).ok_or(CommandError::IncrementNotFinite)?;
    let text = sum.to_string();
    ctx.db.set_value(key, stored_as_text(text.as_bytes()), Expiry::Keep);
    ctx.changed(EventClass::STRING, "incrbyfloat", key);
    ctx.record(|record| {
        record.command("SET").word(key.bytes).word(text.as_bytes()).word(b"KEEPTTL");
    });
    ctx.reply.bulk(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn whole_numbers_are_added_exactly() {
        check(&[
            ("INCR a", ":1|"),
            ("INCRBY a 41", ":42|"),
            ("DECR a", ":41|"),
            ("DECRBY a 50", ":-9|"),
            ("GET a", "$2|-9|"),
            ("SET a 9223372036854775806", "+OK|"),
            ("INCR a", ":9223372036854775807|"),
            ("INCR a", "-ERR increment or decrement would overflow|"),
            ("GET a", "$19|9223372036854775807|"),
            ("DECRBY a -9223372036854775808", "-ERR decrement would overflow|"),
            ("INCRBY a -9223372036854775808", ":-1|"),
            ("INCRBY a x", "-ERR value is not an integer or out of range|"),
            ("INCRBY a 1.5", "-ERR value is not an integer or out of range|"),
            ("SET a \" 1\"", "+OK|"),
            ("INCR a", "-ERR value is not an integer or out of range|"),
            ("SET a 01", "+OK|"),
            ("INCR a", "-ERR value is not an integer or out of range|"),
            ("SET a 1", "+OK|"),
            ("APPEND a 0", ":2|"),
            ("INCR a", ":11|"),
            ("RPUSH l 1", ":1|"),
            ("INCR l", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }

    #[test]
    fn floats_are_added_as_long_doubles() {
        check(&[
            ("SET f 0.1", "+OK|"),
            ("INCRBYFLOAT f 0.2", "$3|0.3|"),
            ("INCRBYFLOAT f -0.3", "$1|0|"),
            ("INCRBYFLOAT new 5.0e3", "$4|5000|"),
            ("INCRBYFLOAT f inf", "-ERR increment would produce NaN or Infinity|"),
            ("INCRBYFLOAT f nan", "-ERR value is not a valid float|"),
            ("INCRBYFLOAT f x", "-ERR value is not a valid float|"),
            ("SET f x", "+OK|"),
            ("INCRBYFLOAT f 1", "-ERR value is not a valid float|"),
            ("RPUSH l 1", ":1|"),
            ("INCRBYFLOAT l 1", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }

    #[test]
    fn expiry_survives_and_one_event_is_raised() {
        let mut db = Harness::new();
        db.check_events(&[
            ("SET a 1 PX 10", "+OK|", "set a@0,expire a@0"),
            ("INCR a", ":2|", "incrby a@0"),
            ("DECRBY a 2", ":0|", "incrby a@0"),
            ("INCRBYFLOAT a 1", "$1|1|", "incrbyfloat a@0"),
            ("INCR a", ":2|", "incrby a@0"),
        ]);
        db.now_ms += 11;
        assert_eq!(db.line("INCR a"), ":1|");
        assert_eq!(db.events(), "expired a@0,incrby a@0");
    }
}
