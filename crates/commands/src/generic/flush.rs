//! Commands on whole databases. They run as the exclusive owner of the keyspace and only move
//! tables; the contents are lazy freed.

use crate::args::Args;
use crate::ctx::{DbChange, Flush, LazyFreed};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use crate::walk::{WalkCtx, Walked, Walker};

pub(super) static FLUSHDB: Command<Walker> = Command {
    name: "FLUSHDB",
    summary: "Deletes all keys of the selected database.",
    history: History::since("1.0.0").changed(&[("4.0.0", "takes ASYNC"), ("6.2.0", "takes SYNC")]),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::AtLeast(1),
    flags: Flags::WRITE.union(Flags::EXCLUSIVE),
    acl: Acl::KEYSPACE.union(Acl::WRITE).union(Acl::DANGEROUS),
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "flush-type",
        &[Arg::word("async", "ASYNC").since("4.0.0"), Arg::word("sync", "SYNC").since("6.2.0")],
    )
    .optional()],
    run: flushdb,
    ..Command::DEFAULT
};
/// Handles FLUSHDB: replies with OK. With SYNC the reply waits until the memory is freed.
fn flushdb(ctx: &mut WalkCtx<'_>, args: &Args<'_>) -> Result<Walked, CommandError> {
    let db = ctx.db;
    flush(ctx, args, db..db + 1)
}

pub(super) static FLUSHALL: Command<Walker> = Command {
    name: "FLUSHALL",
    summary: "Deletes all keys of all databases.",
    history: History::since("1.0.0").changed(&[("4.0.0", "takes ASYNC"), ("6.2.0", "takes SYNC")]),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::AtLeast(1),
    flags: Flags::WRITE.union(Flags::EXCLUSIVE),
    acl: Acl::KEYSPACE.union(Acl::WRITE).union(Acl::DANGEROUS),
    tips: &["request_policy:all_shards", "response_policy:all_succeeded"],
    args: &[Arg::one_of(
        "flush-type",
        &[Arg::word("async", "ASYNC").since("4.0.0"), Arg::word("sync", "SYNC").since("6.2.0")],
    )
    .optional()],
    run: flushall,
    ..Command::DEFAULT
};
/// Handles FLUSHALL: replies with OK. With SYNC the reply waits until the memory is freed.
fn flushall(ctx: &mut WalkCtx<'_>, args: &Args<'_>) -> Result<Walked, CommandError> {
    let all = 0..ctx.keyspace.db_count();
    flush(ctx, args, all)
}

fn flush(
    ctx: &mut WalkCtx<'_>,
    args: &Args<'_>,
    dbs: std::ops::Range<usize>,
) -> Result<Walked, CommandError> {
    let (flush, is_sync) = match args.len() {
        1 => (Flush::Awaited, false),
        2 if args.is(1, "SYNC") => (Flush::Awaited, true),
        2 if args.is(1, "ASYNC") => (Flush::Async, false),
        _ => return Err(CommandError::Syntax),
    };
    ctx.keyspace.empty_dbs(dbs.clone(), |keys| {
        ctx.effects.changes += keys.len() as u64;
        ctx.effects.lazy_freed.push(LazyFreed::Keys(keys));
    });
    ctx.effects.db_changes.extend(dbs.map(|db| DbChange::Emptied(db, flush)));
    // As in Redis, the request is recorded even if the databases were empty.
    ctx.effects.record.keep_request();
    ctx.effects.freed_before_reply |= is_sync;
    ctx.reply.ok();
    Ok(Walked::Done)
}

pub(super) static SWAPDB: Command<Walker> = Command {
    name: "SWAPDB",
    summary: "Exchanges the keys of two databases.",
    history: History::since("4.0.0"),
    group: Group::Server,
    complexity: "O(N)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::FAST).union(Flags::EXCLUSIVE),
    acl: Acl::KEYSPACE.union(Acl::WRITE).union(Acl::DANGEROUS),
    args: &[Arg::integer("index1"), Arg::integer("index2")],
    run: swapdb,
    ..Command::DEFAULT
};
/// Handles SWAPDB: replies with OK. Clients keep their selected database number and see the other
/// database's keys.
fn swapdb(ctx: &mut WalkCtx<'_>, args: &Args<'_>) -> Result<Walked, CommandError> {
    let db_count = ctx.keyspace.db_count();
    // Redis checks that both are numbers before it checks their range.
    for (at, invalid) in [(1, "ERR invalid first DB index"), (2, "ERR invalid second DB index")] {
        let number = args.integer(at).ok().and_then(|number| i32::try_from(number).ok());
        number.ok_or(CommandError::Line(invalid))?;
    }
    let (first, second) = (args.db_index(1, db_count)?, args.db_index(2, db_count)?);
    if first != second {
        ctx.keyspace.swap_dbs(first, second);
        ctx.effects.db_changes.push(DbChange::Swapped(first, second));
    }
    // As in Redis, an exchange of a database with itself counts and is recorded as a change, but
    // no watched key changes.
    ctx.effects.changes += 1;
    ctx.reply.ok();
    Ok(Walked::Done)
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    /// Creates a test harness with two keys in database 0 and one in database 1.
    fn three_keys() -> Harness {
        let mut db = Harness::new();
        assert_eq!(db.line("MSET a 1 b 2 c 3"), "+OK|");
        assert_eq!(db.line("MOVE c 1"), ":1|");
        db.effects.changes = 0;
        db
    }

    fn sizes(db: &mut Harness) -> [String; 2] {
        [0, 1].map(|index| {
            db.db = index;
            db.line("DBSIZE")
        })
    }

    #[test]
    fn flushing_one_database_leaves_the_others() {
        let mut db = three_keys();
        assert_eq!(db.line("FLUSHDB"), "+OK|");
        assert_eq!((db.effects.changes, db.effects.lazy_freed.len()), (2, 2));
        assert_eq!(sizes(&mut db), [":0|", ":1|"]);
        assert_eq!(db.line("FLUSHDB ASYNC"), "+OK|");
        assert_eq!(sizes(&mut db), [":0|", ":0|"]);
    }

    #[test]
    fn flushing_all_leaves_nothing() {
        let mut db = three_keys();
        assert_eq!(db.line("FLUSHALL sync"), "+OK|");
        assert_eq!(db.effects.changes, 3);
        assert_eq!(sizes(&mut db), [":0|", ":0|"]);
        assert_eq!(db.line("FLUSHALL"), "+OK|");
    }

    #[test]
    fn swapped_databases_have_each_others_keys() {
        let mut db = three_keys();
        assert_eq!(db.line("SWAPDB 0 1"), "+OK|");
        assert_eq!(sizes(&mut db), [":1|", ":2|"]);
        assert_eq!(db.line("SWAPDB 1 5"), "+OK|");
        assert_eq!(sizes(&mut db), [":1|", ":0|"]);
        db.db = 5;
        assert_eq!(db.line("MGET a b c"), "*3|$1|1|$1|2|$-1|");
        assert_eq!(db.line("SWAPDB 5 5"), "+OK|");
        assert_eq!(db.line("DBSIZE"), ":2|");
    }

    #[test]
    fn wrong_requests_are_refused() {
        check(&[
            ("FLUSHDB now", "-ERR syntax error|"),
            ("FLUSHALL async sync", "-ERR syntax error|"),
            ("SWAPDB x 0", "-ERR invalid first DB index|"),
            ("SWAPDB 99999999999 0", "-ERR invalid first DB index|"),
            ("SWAPDB 0 x", "-ERR invalid second DB index|"),
            ("SWAPDB 99 x", "-ERR invalid second DB index|"),
            ("SWAPDB 0 16", "-ERR DB index is out of range|"),
            ("SWAPDB -1 0", "-ERR DB index is out of range|"),
        ]);
    }
}
