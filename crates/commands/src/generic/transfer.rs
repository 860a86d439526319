//! Commands that rename or copy a value, or move it to another database.

use keyspace::Key;

use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static RENAME: Command = Command {
    name: "RENAME",
    summary: "Renames a key and overwrites the destination.",
    history: History::since("1.0.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::SHORT),
    acl: Acl::KEYSPACE.union(Acl::WRITE),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::OW.union(KeyFlags::UPDATE)),
    ],
    args: &[Arg::key("key", 0), Arg::key("newkey", 1)],
    run: rename,
    ..Command::DEFAULT
};
/// Handles RENAME: replies with OK. Fails if `key` is missing.
fn rename(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (from, to) = (args.key(1), args.key(2));
    if !ctx.db.contains(from) {
        return Err(CommandError::NoSuchKey);
    }
    if from.bytes != to.bytes {
        move_value(ctx, from, to);
    }
    ctx.reply.ok();
    Ok(())
}

pub(super) static RENAMENX: Command = Command {
    name: "RENAMENX",
    summary: "Renames a key unless the destination exists.",
    history: History::since("1.0.0").changed(&[("3.2.0", "permits both names to be the same")]),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::WRITE),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::OW.union(KeyFlags::INSERT)),
    ],
    args: &[Arg::key("key", 0), Arg::key("newkey", 1)],
    run: renamenx,
    ..Command::DEFAULT
};
/// Handles RENAMENX: replies with 1 if the key was renamed, 0 if `newkey` exists. Fails if `key` is
/// missing.
fn renamenx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (from, to) = (args.key(1), args.key(2));
    if !ctx.db.contains(from) {
        return Err(CommandError::NoSuchKey);
    }
    let free = !ctx.db.contains(to);
    if free {
        move_value(ctx, from, to);
    }
    ctx.reply.integer(free.into());
    Ok(())
}

/// Moves the value of the existing key `from` to the key `to`, with its expiry, and replaces any
/// value there. O(value bytes) for a short string, else O(1).
fn move_value(ctx: &mut Ctx<'_>, from: Key<'_>, to: Key<'_>) {
    let entry = ctx.db.take(from).expect("the caller found the key");
    ctx.db.replace(to, entry.renamed(to.bytes));
    ctx.changed(EventClass::GENERIC, "rename_from", from);
    ctx.changed_by(0, EventClass::GENERIC, "rename_to", to);
    ctx.invalidate_together();
}

pub(super) static COPY: Command = Command {
    name: "COPY",
    summary: "Copies the value of a key to another key.",
    history: History::since("6.2.0"),
    group: Group::Generic,
    complexity: "O(N)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::KEYSPACE.union(Acl::WRITE),
    keys: &[
        KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS)),
        KeySpec::at(2, KeyFlags::OW.union(KeyFlags::UPDATE)),
    ],
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::integer("destination-db").token("DB").optional(),
        Arg::word("replace", "REPLACE").optional(),
    ],
    run: copy,
    ..Command::DEFAULT
};
/// Handles COPY: replies with 1 if the value was copied. Replies with 0 if the source is missing or
/// the destination exists. The two keys share the bytes of a long string until one of them changes.
fn copy(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let own_db = ctx.db.index();
    let (mut db, mut replace, mut at) = (own_db, false, 3);
    while at < args.len() {
        if args.is(at, "REPLACE") {
            replace = true;
        } else if args.is(at, "DB") && at + 1 < args.len() {
            at += 1;
            db = args.db_index(at, ctx.db.db_count())?;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    let (from, to) = (args.key(1), args.key(2));
    if db == own_db && from.bytes == to.bytes {
        return Err(CommandError::SameObject);
    }
    let copied = copy_value(ctx, from, to, Target { db, replace });
    ctx.reply.integer(copied.into());
    Ok(())
}

/// The destination of COPY: a key in a database.
struct Target {
    db: usize,
    /// True if the copy may replace a value at the destination key (REPLACE).
    replace: bool,
}

fn copy_value(ctx: &mut Ctx<'_>, from: Key<'_>, to: Key<'_>, target: Target) -> bool {
    let access = ctx.db.access().fresh();
    if ctx.db.get(from).is_none() {
        return false;
    }
    let own_db = ctx.db.select(target.db);
    let free = target.replace || !ctx.db.contains(to);
    ctx.db.select(own_db);
    let Some(copy) = ctx.db.peek(from).filter(|_| free).map(|entry| entry.duplicate(to.bytes, access)) else {
        return false;
    };
    ctx.db.select(target.db);
    ctx.db.replace(to, copy);
    ctx.changed(EventClass::GENERIC, "copy_to", to);
    ctx.db.select(own_db);
    true
}

pub(super) static MOVE: Command = Command {
    name: "MOVE",
    summary: "Moves a key to another database.",
    history: History::since("1.0.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::WRITE),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::integer("db")],
    run: move_key,
    ..Command::DEFAULT
};
/// Handles MOVE: replies with 1 if the key was moved. Replies with 0 if it is missing, or exists in
/// the other database.
fn move_key(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, own_db) = (args.key(1), ctx.db.index());
    let db = args.db_index(2, ctx.db.db_count())?;
    if db == own_db {
        return Err(CommandError::SameObject);
    }
    ctx.db.select(db);
    let free = !ctx.db.contains(key);
    ctx.db.select(own_db);
    let moved = if free { ctx.db.take(key) } else { None };
    ctx.reply.integer(moved.is_some().into());
    if let Some(entry) = moved {
        ctx.db.select(db);
        ctx.db.replace(key, entry);
        ctx.db.select(own_db);
        ctx.changed(EventClass::GENERIC, "move_from", key);
        ctx.db.select(db);
        ctx.changed_by(0, EventClass::GENERIC, "move_to", key);
        ctx.db.select(own_db);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn a_renamed_key_keeps_its_value_and_expiry() {
        check(&[
            ("RENAME nokey a", "-ERR no such key|"),
            ("RENAME nokey nokey", "-ERR no such key|"),
            ("SET a 1 EX 10", "+OK|"),
            ("RENAME a a", "+OK|"),
            ("RENAMENX a a", ":0|"),
            ("SET b 2", "+OK|"),
            ("RENAMENX a b", ":0|"),
            ("RENAME a b", "+OK|"),
            ("GET b", "$1|1|"),
            ("TTL b", ":10|"),
            ("EXISTS a", ":0|"),
            ("RENAMENX b c", ":1|"),
            ("RENAMENX b c", "-ERR no such key|"),
            ("RPUSH l 1 2", ":2|"),
            ("RENAME l c", "+OK|"),
            ("LLEN c", ":2|"),
        ]);
    }

    #[test]
    fn a_copy_is_independent_of_its_source() {
        check(&[
            ("COPY nokey b", ":0|"),
            ("SET a 1 EX 10", "+OK|"),
            ("COPY a a", "-ERR source and destination objects are the same|"),
            ("COPY a b", ":1|"),
            ("TTL b", ":10|"),
            ("INCR b", ":2|"),
            ("GET a", "$1|1|"),
            ("COPY a b", ":0|"),
            ("COPY a b REPLACE", ":1|"),
            ("GET b", "$1|1|"),
            ("RPUSH l 1 2", ":2|"),
            ("COPY l m", ":1|"),
            ("RPUSH m 3", ":3|"),
            ("LLEN l", ":2|"),
            ("COPY a b DB x", "-ERR value is not an integer or out of range|"),
            ("COPY a b DB 16", "-ERR DB index is out of range|"),
            ("COPY a b DB -1", "-ERR DB index is out of range|"),
            (
                "COPY a b DB 99999999999",
                "-ERR value is out of range, value must between -2147483648 and 2147483647|",
            ),
            ("COPY a b DB", "-ERR syntax error|"),
            ("COPY a b foo", "-ERR syntax error|"),
            ("COPY a a DB 0", "-ERR source and destination objects are the same|"),
            ("COPY a a DB 1", ":1|"),
            ("COPY a a DB 1", ":0|"),
            ("COPY a a REPLACE DB 1", ":1|"),
        ]);
    }

    #[test]
    fn a_copied_long_string_changes_alone() {
        let mut db = Harness::new();
        db.run_bytes(&[b"SET", b"a", &[b'x'; 5000]]);
        assert_eq!(db.line("COPY a b"), ":1|");
        assert_eq!(db.line("APPEND b y"), ":5001|");
        assert_eq!(db.line("SETRANGE a 0 z"), ":5000|");
        assert_eq!(db.line("GETRANGE b 0 0"), "$1|x|");
        assert_eq!(db.line("STRLEN a"), ":5000|");
    }

    #[test]
    fn a_moved_key_is_in_the_other_database_only() {
        let mut db = Harness::new();
        for (line, reply) in [
            ("SET a 1 EX 10", "+OK|"),
            ("MOVE a 0", "-ERR source and destination objects are the same|"),
            ("MOVE nokey 0", "-ERR source and destination objects are the same|"),
            ("MOVE a x", "-ERR value is not an integer or out of range|"),
            ("MOVE a 16", "-ERR DB index is out of range|"),
            ("MOVE nokey 1", ":0|"),
            ("MOVE a 1", ":1|"),
            ("EXISTS a", ":0|"),
            ("SET a 2", "+OK|"),
            ("MOVE a 1", ":0|"),
        ] {
            assert_eq!(db.line(line), reply, "{line}");
        }
        db.db = 1;
        assert_eq!(db.line("GET a"), "$1|1|");
        assert_eq!(db.line("TTL a"), ":10|");
    }

    #[test]
    fn both_names_are_told() {
        Harness::new().check_events(&[
            ("SET a 1", "+OK|", "set a@0"),
            ("RENAME a b", "+OK|", "rename_from a@0,rename_to b@0"),
            ("RENAME b b", "+OK|", ""),
            ("RENAMENX b c", ":1|", "rename_from b@0,rename_to c@0"),
            ("COPY c d DB 3", ":1|", "copy_to d@3"),
            ("MOVE c 2", ":1|", "move_from c@0,move_to c@2"),
        ]);
    }
}
