//! Commands on keys of any type. This file has the commands that query and delete keys. Expiry is
//! in `expire`, renaming and copying in `transfer`, iteration over all keys in `scan`, whole
//! databases in `flush`. Memory and encodings of values are in `object`, SORT in `sort`.

use keyspace::object::type_name;

use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use crate::walk::Walker;

mod expire;
mod flush;
mod object;
mod scan;
pub(crate) mod sort;
mod transfer;

pub use object::MEMORY_USAGE;

/// The command table's records of the generic commands that work on keys.
pub static COMMANDS: &[&Command] = &[
    &DEL,
    &UNLINK,
    &EXISTS,
    &TOUCH,
    &TYPE,
    &expire::TTL,
    &expire::PTTL,
    &expire::EXPIRETIME,
    &expire::PEXPIRETIME,
    &expire::EXPIRE,
    &expire::PEXPIRE,
    &expire::EXPIREAT,
    &expire::PEXPIREAT,
    &expire::PERSIST,
    &transfer::RENAME,
    &transfer::RENAMENX,
    &transfer::COPY,
    &transfer::MOVE,
    &object::OBJECT,
    &sort::SORT,
    &sort::SORT_RO,
];

/// The command table's records of the generic commands that work on whole databases.
pub static WALKERS: &[&Command<Walker>] = &[
    &scan::SCAN,
    &scan::KEYS,
    &scan::RANDOMKEY,
    &scan::DBSIZE,
    &flush::FLUSHDB,
    &flush::FLUSHALL,
    &flush::SWAPDB,
];

static DEL: Command = Command {
    name: "DEL",
    summary: "Deletes keys and their values.",
    history: History::since("1.0.0"),
    group: Group::Generic,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE,
    acl: Acl::KEYSPACE.union(Acl::WRITE),
    keys: &[KeySpec::from(1, 1, KeyFlags::RM.union(KeyFlags::DELETE))],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    args: &[Arg::key("key", 0).multiple()],
    run: del,
    ..Command::DEFAULT
};
/// Handles DEL: replies with the number of keys that existed. Big values are lazy freed.
fn del(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let mut removed = 0;
    for index in 1..args.len() {
        let key = args.key(index);
        if let Some(entry) = ctx.db.remove(key) {
            ctx.effects.discard(entry);
            ctx.changed(EventClass::GENERIC, "del", key);
            removed += 1;
        }
    }
    ctx.reply.integer(removed);
    Ok(())
}

static UNLINK: Command = Command {
    name: "UNLINK",
    summary: "Deletes keys immediately and frees their values in the background.",
    history: History::since("4.0.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::WRITE),
    keys: &[KeySpec::from(1, 1, KeyFlags::RM.union(KeyFlags::DELETE))],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    args: &[Arg::key("key", 0).multiple()],
    run: unlink,
    ..Command::DEFAULT
};
/// Handles UNLINK: like DEL, because DEL lazy frees big values, too.
fn unlink(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    del(ctx, args)
}

static EXISTS: Command = Command {
    name: "EXISTS",
    summary: "Returns the number of the given keys that exist.",
    history: History::since("1.0.0").changed(&[("3.0.3", "takes several keys")]),
    group: Group::Generic,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::from(1, 1, KeyFlags::RO)],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    args: &[Arg::key("key", 0).multiple()],
    run: exists,
    ..Command::DEFAULT
};
/// Handles EXISTS: replies with the number of existing keys. A key given twice counts twice.
fn exists(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let found = (1..args.len()).filter(|&index| ctx.db.look(args.key(index)).is_some()).count();
    ctx.reply.integer(found as i64);
    Ok(())
}

static TOUCH: Command = Command {
    name: "TOUCH",
    summary: "Updates the last access time of keys without reading them.",
    history: History::since("3.2.1"),
    group: Group::Generic,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::from(1, 1, KeyFlags::RO)],
    tips: &["request_policy:multi_shard", "response_policy:agg_sum"],
    args: &[Arg::key("key", 0).multiple()],
    run: touch,
    ..Command::DEFAULT
};
/// Handles TOUCH: replies with the number of existing keys.
fn touch(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let found = (1..args.len()).filter(|&index| ctx.db.touch(args.key(index))).count();
    ctx.reply.integer(found as i64);
    Ok(())
}

static TYPE: Command = Command {
    name: "TYPE",
    summary: "Returns the type of the value stored at a key.",
    history: History::since("1.0.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: type_of,
    ..Command::DEFAULT
};
/// Handles TYPE: replies with the name of the value's type, such as `list` or `zset`, or with
/// `none` if the key is missing.
fn type_of(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let name = ctx.db.look(args.key(1)).map_or("none", |entry| type_name(&entry));
    ctx.reply.simple(name);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn keys_are_counted_and_deleted() {
        check(&[
            ("MSET a 1 b 2 c 3", "+OK|"),
            ("EXISTS a a nokey", ":2|"),
            ("TOUCH a b nokey", ":2|"),
            ("DEL a a nokey", ":1|"),
            ("UNLINK a b", ":1|"),
            ("EXISTS a b c", ":1|"),
            ("TYPE c", "+string|"),
            ("RPUSH l 1", ":1|"),
            ("TYPE l", "+list|"),
            ("TYPE nokey", "+none|"),
        ]);
    }

    #[test]
    fn reads_are_counted_and_writes_are_not() {
        let mut db = Harness::new();
        db.line("SET a 1");
        db.line("DEL b");
        assert_eq!((db.access_results.hits, db.access_results.misses), (0, 0));
        for line in ["GET a", "EXISTS a b", "TYPE b", "TTL a", "TOUCH b", "OBJECT ENCODING a"] {
            db.line(line);
        }
        assert_eq!((db.access_results.hits, db.access_results.misses), (4, 3));
    }

    #[test]
    fn each_deleted_key_raises_an_event() {
        Harness::new().check_events(&[
            ("MSET a 1 b 2", "+OK|", "set a@0,set b@0"),
            ("DEL a x b", ":2|", "del a@0,del b@0"),
            ("UNLINK a", ":0|", ""),
        ]);
    }
}
