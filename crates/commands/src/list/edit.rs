//! Commands that change the middle of lists.

use keyspace::{Beside, List, ObjectType};

use super::{integer_with_negation, limits, remove_if_empty};
use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static LINSERT: Command = Command {
    name: "LINSERT",
    summary: "Inserts an element before or after another element of a list.",
    history: History::since("2.2.0"),
    group: Group::List,
    complexity: "O(N)",
    arity: Arity::Exactly(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[
        Arg::key("key", 0),
        Arg::one_of("where", &[Arg::word("before", "BEFORE"), Arg::word("after", "AFTER")]),
        Arg::string("pivot"),
        Arg::string("element"),
    ],
    run: linsert,
    ..Command::DEFAULT
};
/// Handles LINSERT: replies with the new length, 0 if there is no list, or -1 if the list does not
/// hold the pivot.
fn linsert(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let beside = if args.is(2, "BEFORE") {
        Beside::Before
    } else if args.is(2, "AFTER") {
        Beside::After
    } else {
        return Err(CommandError::Syntax);
    };
    let (key, limits) = (args.key(1), limits(ctx));
    let Some(list) = ctx.db.write::<List>(key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    if list.insert_beside(beside, args.get(3), args.get(4), limits) {
        let len = list.len();
        ctx.reply.integer(len as i64);
        ctx.changed(EventClass::LIST, "linsert", key);
    } else {
        ctx.reply.integer(-1);
    }
    Ok(())
}

pub(super) static LREM: Command = Command {
    name: "LREM",
    summary: "Removes elements equal to a value from a list.",
    history: History::since("1.0.0"),
    group: Group::List,
    complexity: "O(N+M)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::integer("count"), Arg::string("element")],
    run: lrem,
    ..Command::DEFAULT
};
/// Handles LREM: removes the first `count` elements equal to the value, the last `-count` if
/// `count` is negative, or all if it is 0. Replies with the number of removed elements.
fn lrem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let count = integer_with_negation(args, 2)?;
    let (key, limits) = (args.key(1), limits(ctx));
    let removed = match ctx.db.write::<List>(key)? {
        Some(list) => list.remove(count, args.get(3), limits),
        None => 0,
    };
    ctx.reply.integer(removed as i64);
    if removed > 0 {
        ctx.changed_by(removed as u64, EventClass::LIST, "lrem", key);
        remove_if_empty(ctx, key);
        ctx.invalidate_after_events(key);
    }
    Ok(())
}

pub(super) static LSET: Command = Command {
    name: "LSET",
    summary: "Replaces the element of a list at an index.",
    history: History::since("1.0.0"),
    group: Group::List,
    complexity: "O(N)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::integer("index"), Arg::string("element")],
    run: lset,
    ..Command::DEFAULT
};
/// Handles LSET: replies with OK.
fn lset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, limits) = (args.key(1), limits(ctx));
    let list = ctx.db.write::<List>(key)?.ok_or(CommandError::NoSuchKey)?;
    if !list.set(args.integer(2)?, args.get(3), limits) {
        return Err(CommandError::IndexOutOfRange);
    }
    ctx.reply.ok();
    ctx.changed(EventClass::LIST, "lset", key);
    Ok(())
}

pub(super) static LTRIM: Command = Command {
    name: "LTRIM",
    summary: "Keeps the elements of a list between two indexes and removes the others.",
    history: History::since("1.0.0"),
    group: Group::List,
    complexity: "O(N)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::integer("start"), Arg::integer("stop")],
    run: ltrim,
    ..Command::DEFAULT
};
/// Handles LTRIM: replies with OK. Many removed elements, or a whole list, are lazy freed.
fn ltrim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let (key, limits) = (args.key(1), limits(ctx));
    ctx.reply.ok();
    let Some(list) = ctx.db.write::<List>(key)? else { return Ok(()) };
    if list.resolve_range(start, stop).is_empty() {
        let removed = list.len();
        let entry = ctx.db.remove(key).expect("the list was found above");
        ctx.effects.discard(entry);
        ctx.changed_by(removed as u64, EventClass::LIST, "ltrim", key);
        ctx.changed_by(0, EventClass::GENERIC, "del", key);
        ctx.invalidate_after_events(key);
        return Ok(());
    }
    let trimmed = list.trim(start, stop, limits);
    if let Some(leftovers) = trimmed.leftovers {
        ctx.effects.lazy_free_object(leftovers.into_object());
    }
    ctx.changed_by(trimmed.removed as u64, EventClass::LIST, "ltrim", key);
    ctx.invalidate_after_events(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range|";

    #[test]
    fn an_element_is_inserted_beside_the_first_pivot() {
        check(&[
            ("RPUSH l a b b", ":3|"),
            ("LINSERT l before b x", ":4|"),
            ("LINSERT l AFTER b y", ":5|"),
            ("LRANGE l 0 -1", "*5|$1|a|$1|x|$1|b|$1|y|$1|b|"),
            ("LINSERT l AFTER none y", ":-1|"),
            ("LINSERT none AFTER b y", ":0|"),
            ("LINSERT none BESIDE b y", "-ERR syntax error|"),
            ("SET s v", "+OK|"),
            ("LINSERT s AFTER b y", WRONG_TYPE),
        ]);
    }

    #[test]
    fn equal_elements_are_removed_from_either_end() {
        check(&[
            ("RPUSH l 1 a 1 b 1 c 1", ":7|"),
            ("LREM l 1 1", ":1|"),
            ("LREM l -2 1", ":2|"),
            ("LRANGE l 0 -1", "*4|$1|a|$1|1|$1|b|$1|c|"),
            ("LREM l 0 x", ":0|"),
            ("LREM l x a", NOT_AN_INTEGER),
            ("LREM none 0 x", ":0|"),
            (
                "LREM none -9223372036854775808 x",
                "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807|",
            ),
        ]);
    }

    #[test]
    fn an_element_is_replaced_by_its_index() {
        check(&[
            ("RPUSH l a b c", ":3|"),
            ("LSET l -1 7", "+OK|"),
            ("LSET l 0 x", "+OK|"),
            ("LRANGE l 0 -1", "*3|$1|x|$1|b|$1|7|"),
            ("LSET l 3 x", "-ERR index out of range|"),
            ("LSET l x x", NOT_AN_INTEGER),
            ("LSET none x x", "-ERR no such key|"),
            ("SET s v", "+OK|"),
            ("LSET s x x", WRONG_TYPE),
        ]);
    }

    #[test]
    fn trimming_keeps_a_range_and_an_empty_one_removes_the_list() {
        check(&[
            ("RPUSH l a b c d", ":4|"),
            ("LTRIM l 1 -2", "+OK|"),
            ("LRANGE l 0 -1", "*2|$1|b|$1|c|"),
            ("LTRIM l 5 9", "+OK|"),
            ("LLEN l", ":0|"),
            ("LTRIM l 5 9", "+OK|"),
            ("LTRIM l a 9", NOT_AN_INTEGER),
            ("SET s v", "+OK|"),
            ("LTRIM s 0 0", WRONG_TYPE),
        ]);
    }

    #[test]
    fn events_tell_what_happened_to_which_list() {
        let mut db = Harness::new();
        db.check_events(&[
            ("RPUSH l a b c d e", ":5|", "rpush l@0"),
            ("LINSERT l BEFORE a 0", ":6|", "linsert l@0"),
            ("LINSERT l BEFORE none 0", ":-1|", ""),
            ("LSET l 0 1", "+OK|", "lset l@0"),
            ("LREM l 0 none", ":0|", ""),
            ("LREM l 0 1", ":1|", "lrem l@0"),
            ("LTRIM l 0 -1", "+OK|", "ltrim l@0"),
            ("LTRIM l 0 1", "+OK|", "ltrim l@0"),
            ("LREM l 0 a", ":1|", "lrem l@0"),
            ("LREM l 0 b", ":1|", "lrem l@0,del l@0"),
            ("LTRIM l 0 1", "+OK|", ""),
            ("RPUSH l a b c d e", ":5|", "rpush l@0"),
            ("LTRIM l 1 0", "+OK|", "ltrim l@0,del l@0"),
        ]);
        assert_eq!(db.effects.changes, 5 + 1 + 1 + 1 + 3 + 1 + 1 + 5 + 5);
    }

    #[test]
    fn what_a_trim_cuts_off_a_long_list_is_freed_elsewhere() {
        let mut db = Harness::new();
        let element = vec![b'x'; 1000];
        for _ in 0..400 {
            db.run_bytes(&[b"RPUSH", b"l", &element]);
        }
        assert_eq!(db.run(&["LTRIM", "l", "-3", "-1"]), "+OK|");
        assert_eq!((db.run(&["LLEN", "l"]).as_str(), db.effects.lazy_freed.len()), (":3|", 1));
        assert_eq!(db.run(&["LTRIM", "l", "0", "1"]), "+OK|");
        assert_eq!((db.run(&["LLEN", "l"]).as_str(), db.effects.lazy_freed.len()), (":2|", 1));
    }
}
