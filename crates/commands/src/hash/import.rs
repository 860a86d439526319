//! HIMPORT: creates many hashes with the same fields. The client names the fields once, in a
//! fieldset of its session, and then sends only the values.

use std::collections::HashSet;

use keyspace::{Expiry, Hash, Object};

use crate::args::Args;
use crate::collection::hash_limits;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static HIMPORT: Command = Command {
    name: "HIMPORT",
    summary: "A container for commands that create hashes from fieldsets.",
    history: History::since("8.10.0"),
    group: Group::Hash,
    complexity: "Depends on subcommand.",
    arity: Arity::AtLeast(2),
    flags: Flags::empty(),
    acl: Acl::HASH,
    subcommands: &[&HIMPORT_PREPARE, &HIMPORT_SET, &HIMPORT_DISCARD, &HIMPORT_DISCARDALL],
    run: himport,
    ..Command::DEFAULT
};
/// Handles an unknown subcommand of HIMPORT: replies with an error.
fn himport(_: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    Err(CommandError::UnknownSubcommand(args.get(1).to_vec(), "HIMPORT"))
}

static HIMPORT_PREPARE: Command = Command {
    name: "PREPARE",
    summary: "Defines a fieldset of the connection: a name for a list of field names.",
    history: History::since("8.10.0"),
    group: Group::Hash,
    complexity: "O(N) in the number of fields",
    arity: Arity::AtLeast(4),
    flags: Flags::DENYOOM,
    acl: Acl::HASH,
    tips: &["request_policy:all_shards"],
    args: &[Arg::string("fieldset-name"), Arg::string("field").multiple()],
    run: himport_prepare,
    ..Command::DEFAULT
};
/// Handles HIMPORT PREPARE: replies with OK.
fn himport_prepare(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let mut seen = HashSet::with_capacity(args.len() - 3);
    if !args.from(3).all(|field| seen.insert(field)) {
        return Err(CommandError::Line("ERR duplicate field name in fieldset"));
    }
    let is_stored = ctx.field_sets.is_some_and(|sets| sets.insert(args.get(2), args.from(3)));
    if !is_stored {
        return Err(CommandError::Line("ERR the fieldsets of this connection are too large"));
    }
    ctx.reply.ok();
    Ok(())
}

static HIMPORT_SET: Command = Command {
    name: "SET",
    summary: "Creates a hash from a fieldset and its values, or replaces a hash.",
    history: History::since("8.10.0"),
    group: Group::Hash,
    complexity: "O(N) in the number of fields",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(2, KeyFlags::OW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::string("fieldset-name"), Arg::string("value").multiple()],
    recorded_forms: &[RecordedForm::REPLACED],
    run: himport_set,
    ..Command::DEFAULT
};
/// Handles HIMPORT SET: replies with OK. The new hash has no expiry.
fn himport_set(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let fields = ctx.field_sets.and_then(|sets| sets.get(args.get(3)));
    let fields = fields.ok_or(CommandError::Line("ERR no such fieldset"))?;
    if fields.len() != args.len() - 4 {
        return Err(CommandError::Line("ERR value count does not match the fieldset"));
    }
    let key = args.key(2);
    let is_replaced = ctx.db.write::<Hash>(key)?.is_some();
    let (limits, hasher) = (hash_limits(ctx), args.hasher());
    let mut hash = Hash::new();
    hash.expect(fields.len(), &limits, hasher);
    for (field, value) in fields.iter().zip(args.from(4)) {
        hash.set(field, value, &limits, hasher);
    }
    ctx.db.set_object(key, Object::Hash(hash), Expiry::Clear);
    ctx.reply.ok();
    ctx.changed_by(fields.len() as u64, EventClass::HASH, "hset", key);
    ctx.record(|record| {
        if is_replaced {
            record.command("DEL").word(key.bytes);
        }
        record.command("HSET").word(key.bytes);
        fields.iter().zip(args.from(4)).for_each(|(field, value)| _ = record.word(field).word(value));
    });
    Ok(())
}

static HIMPORT_DISCARD: Command = Command {
    name: "DISCARD",
    summary: "Removes a fieldset of the connection.",
    history: History::since("8.10.0"),
    group: Group::Hash,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::empty(),
    acl: Acl::HASH,
    tips: &["request_policy:all_shards"],
    args: &[Arg::string("fieldset-name")],
    run: himport_discard,
    ..Command::DEFAULT
};
/// Handles HIMPORT DISCARD: replies with the number of removed fieldsets, 0 or 1.
fn himport_discard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let is_removed = ctx.field_sets.is_some_and(|sets| sets.remove(args.get(2)));
    ctx.reply.integer(i64::from(is_removed));
    Ok(())
}

static HIMPORT_DISCARDALL: Command = Command {
    name: "DISCARDALL",
    summary: "Removes all fieldsets of the connection.",
    complexity: "O(N) in the number of fieldsets",
    arity: Arity::Exactly(2),
    args: &[],
    run: himport_discardall,
    ..HIMPORT_DISCARD
};
/// Handles HIMPORT DISCARDALL: replies with the number of removed fieldsets.
fn himport_discardall(ctx: &mut Ctx<'_>, _: &Args<'_>) -> Result<(), CommandError> {
    let removed = ctx.field_sets.map_or(0, |sets| sets.clear());
    ctx.reply.integer(removed as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::field_sets::FIELD_SETS_BYTES_MAX;
    use crate::harness::{Harness, check};

    const NO_SET: &str = "-ERR no such fieldset|";
    const MISMATCH: &str = "-ERR value count does not match the fieldset|";

    #[test]
    fn hashes_get_the_values_in_the_order_of_the_fields() {
        check(&[
            ("HIMPORT PREPARE u name age", "+OK|"),
            ("HIMPORT SET user:1 u ann 30", "+OK|"),
            ("HMGET user:1 name age", "*2|$3|ann|$2|30|"),
            ("HIMPORT SET user:1 u ann", MISMATCH),
            ("HIMPORT SET user:1 u ann 30 x", MISMATCH),
            ("HIMPORT SET user:1 v ann 30", NO_SET),
            ("HIMPORT PREPARE u id", "+OK|"),
            ("HIMPORT SET user:1 u 7", "+OK|"),
            ("HKEYS user:1", "*1|$2|id|"),
            ("HIMPORT PREPARE v a b a", "-ERR duplicate field name in fieldset|"),
            ("HIMPORT SET k v 1 2 3", NO_SET),
            ("SET s x", "+OK|"),
            ("HIMPORT SET s u 7", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("GET s", "$1|x|"),
            ("HIMPORT PREPARE v a", "+OK|"),
            ("HIMPORT DISCARD u", ":1|"),
            ("HIMPORT DISCARD u", ":0|"),
            ("HIMPORT SET k u 1", NO_SET),
            ("HIMPORT PREPARE w a", "+OK|"),
            ("HIMPORT DISCARDALL", ":2|"),
            ("HIMPORT DISCARDALL", ":0|"),
            ("HIMPORT NOSUCH", "-ERR unknown subcommand 'NOSUCH'. Try HIMPORT HELP.|"),
        ]);
    }

    #[test]
    fn a_hash_is_replaced_with_its_expiry() {
        let mut db = Harness::new();
        for line in ["HIMPORT PREPARE u a b", "HSET k a 0 c 1", "EXPIRE k 100"] {
            db.line(line);
        }
        db.events();
        db.check_events(&[("HIMPORT SET k u 1 2", "+OK|", "hset k@0"), ("TTL k", ":-1|", "")]);
        assert_eq!(db.line("HGETALL k"), "*4|$1|a|$1|1|$1|b|$1|2|");
    }

    #[test]
    fn the_size_of_fieldsets_is_counted_and_limited() {
        let mut db = Harness::new();
        let field = "x".repeat(FIELD_SETS_BYTES_MAX as usize / 2);
        assert_eq!(db.run(&["HIMPORT", "PREPARE", "a", &field]), "+OK|");
        let refused = "-ERR the fieldsets of this connection are too large|";
        assert_eq!(db.run(&["HIMPORT", "PREPARE", "b", &field]), refused);
        assert_eq!(db.run(&["HIMPORT", "PREPARE", "a", &field]), "+OK|", "it replaces itself");
        assert_eq!(db.line("HIMPORT DISCARD a"), ":1|");
        assert_eq!(db.run(&["HIMPORT", "PREPARE", "b", &field]), "+OK|");
        assert_eq!(db.line("HIMPORT DISCARDALL"), ":1|");
    }
}
