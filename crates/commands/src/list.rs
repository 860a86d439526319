//! Commands on lists: shared code, and the commands that push and pop at the ends.

mod blocking;
mod edit;
mod move_many;
mod read;
mod transfer;

use keyspace::{Key, List, ListEnd, ListLimits};

use crate::args::Args;
use crate::collection::bulk;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The command table's records of all list commands.
pub static COMMANDS: &[&Command] = &[
    &LPUSH,
    &RPUSH,
    &LPUSHX,
    &RPUSHX,
    &LPOP,
    &RPOP,
    &read::LLEN,
    &read::LRANGE,
    &read::LINDEX,
    &read::LPOS,
    &edit::LINSERT,
    &edit::LREM,
    &edit::LSET,
    &edit::LTRIM,
    &transfer::LMOVE,
    &transfer::RPOPLPUSH,
    &transfer::LMPOP,
    &move_many::LMOVEM,
    &blocking::BLPOP,
    &blocking::BRPOP,
    &blocking::BLMOVE,
    &blocking::BRPOPLPUSH,
    &blocking::BLMPOP,
    &move_many::BLMOVEM,
];

/// Returns the limits of list nodes, from the configuration.
#[inline]
pub(crate) fn limits(ctx: &Ctx<'_>) -> ListLimits {
    ctx.limits.list()
}

/// Returns the keyspace event of a push at the end `end` of a list.
const fn push_event(end: ListEnd) -> &'static str {
    match end {
        ListEnd::Front => "lpush",
        ListEnd::Back => "rpush",
    }
}

/// Returns the name of the command that pushes at `end`.
const fn push_command(end: ListEnd) -> &'static str {
    match end {
        ListEnd::Front => "LPUSH",
        ListEnd::Back => "RPUSH",
    }
}

/// Returns the name of the command that pops at `end`.
const fn pop_command(end: ListEnd) -> &'static str {
    match end {
        ListEnd::Front => "LPOP",
        ListEnd::Back => "RPOP",
    }
}

/// Returns the keyspace event of a pop at the end `end` of a list. The event is also the lower-case
/// name of the command that pops at that end.
const fn pop_event(end: ListEnd) -> &'static str {
    match end {
        ListEnd::Front => "lpop",
        ListEnd::Back => "rpop",
    }
}

/// Parses argument `index` as a count of zero or more. `line` is the error line for any other text.
fn not_negative(args: &Args<'_>, index: usize, line: &'static str) -> Result<usize, CommandError> {
    let count = stdx::number::parse_i64(args.get(index)).and_then(|count| usize::try_from(count).ok());
    count.ok_or(CommandError::Line(line))
}

/// Parses argument `index` as an integer whose negation also fits into 64 bits.
fn integer_with_negation(args: &Args<'_>, index: usize) -> Result<i64, CommandError> {
    let too_low =
        "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807";
    let integer = args.integer(index)?;
    if integer == i64::MIN { Err(CommandError::Line(too_low)) } else { Ok(integer) }
}

/// Removes the list at `key` if it is empty and raises the event `del`.
fn remove_if_empty(ctx: &mut Ctx<'_>, key: Key<'_>) {
    if ctx.db.remove_if_empty::<List>(key) {
        ctx.changed_by(0, EventClass::GENERIC, "del", key);
    }
}

/// Counts `popped` elements removed from an end of the list at `key` as changes, raises the event
/// of the pop, and removes the list if it is now empty.
fn note_pop(ctx: &mut Ctx<'_>, popped: usize, end: ListEnd, key: Key<'_>) {
    ctx.changed_by(popped as u64, EventClass::LIST, pop_event(end), key);
    remove_if_empty(ctx, key);
    ctx.invalidate_after_events(key);
}

static LPUSH: Command = Command {
    name: "LPUSH",
    summary: "Inserts elements at the head of a list. Creates the list if it does not exist.",
    history: History::since("1.0.0").changed(&[("2.4.0", "takes several elements")]),
    group: Group::List,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[Arg::key("key", 0), Arg::string("element").multiple()],
    run: lpush,
    ..Command::DEFAULT
};
/// Handles LPUSH: replies with the list's new length.
fn lpush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    push(ctx, args, ListEnd::Front)
}

static RPUSH: Command = Command {
    name: "RPUSH",
    summary: "Appends elements to the tail of a list. Creates the list if it does not exist.",
    run: rpush,
    ..LPUSH
};
/// Handles RPUSH: replies with the list's new length.
fn rpush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    push(ctx, args, ListEnd::Back)
}

/// Pushes the arguments after the key at `end` of the list and replies with the new length.
fn push(ctx: &mut Ctx<'_>, args: &Args<'_>, end: ListEnd) -> Result<(), CommandError> {
    let (key, limits) = (args.key(1), limits(ctx));
    let list = ctx.db.write_or_insert::<List>(key)?;
    list.push(end, args.from(2), limits);
    let len = list.len();
    ctx.reply.integer(len as i64);
    ctx.changed_by(args.len() as u64 - 2, EventClass::LIST, push_event(end), key);
    Ok(())
}

static LPUSHX: Command = Command {
    name: "LPUSHX",
    summary: "Inserts elements at the head of a list if the list exists.",
    history: History::since("2.2.0").changed(&[("4.0.0", "takes several elements")]),
    group: Group::List,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[Arg::key("key", 0), Arg::string("element").multiple()],
    run: lpushx,
    ..Command::DEFAULT
};
/// Handles LPUSHX: replies with the list's new length, 0 if there is no list.
fn lpushx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    push_if_exists(ctx, args, ListEnd::Front)
}

static RPUSHX: Command = Command {
    name: "RPUSHX",
    summary: "Appends elements to the tail of a list if the list exists.",
    run: rpushx,
    ..LPUSHX
};
/// Handles RPUSHX: replies with the list's new length, 0 if there is no list.
fn rpushx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    push_if_exists(ctx, args, ListEnd::Back)
}

fn push_if_exists(ctx: &mut Ctx<'_>, args: &Args<'_>, end: ListEnd) -> Result<(), CommandError> {
    if ctx.db.write::<List>(args.key(1))?.is_some() {
        return push(ctx, args, end);
    }
    ctx.reply.integer(0);
    Ok(())
}

static LPOP: Command = Command {
    name: "LPOP",
    summary: "Removes and returns the first elements of a list.",
    history: History::since("1.0.0").changed(&[("6.2.0", "takes a count")]),
    group: Group::List,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::integer("count").since("6.2.0").optional()],
    run: lpop,
    ..Command::DEFAULT
};
/// Handles LPOP: replies with the first element, or with an array of the first `count` elements.
fn lpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    pop(ctx, args, ListEnd::Front)
}

static RPOP: Command =
    Command { name: "RPOP", summary: "Removes and returns the last elements of a list.", run: rpop, ..LPOP };
/// Handles RPOP: replies with the last element, or with an array of the last `count` elements, last
/// first.
fn rpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    pop(ctx, args, ListEnd::Back)
}

fn pop(ctx: &mut Ctx<'_>, args: &Args<'_>, end: ListEnd) -> Result<(), CommandError> {
    let count = match args.len() {
        2 => None,
        3 => Some(not_negative(args, 2, "ERR value is out of range, must be positive")?),
        _ => return Err(CommandError::WrongArity(pop_event(end))),
    };
    let (key, limits) = (args.key(1), limits(ctx));
    let Some(list) = ctx.db.write::<List>(key)? else {
        match count {
            None => ctx.reply.null(),
            Some(_) => ctx.reply.null_array(),
        }
        return Ok(());
    };
    if let Some(count) = count {
        ctx.reply.array(count.min(list.len()));
    }
    let popped = list.pop(end, count.unwrap_or(1), limits, |element| bulk(&mut ctx.reply, element));
    let emptied = list.is_empty();
    if popped > 0 {
        ctx.changed_by(popped as u64, EventClass::LIST, pop_event(end), key);
    }
    if emptied {
        remove_if_empty(ctx, key);
    }
    ctx.invalidate_after_events(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn pushes_grow_a_list_at_either_end() {
        check(&[
            ("RPUSH l b c", ":2|"),
            ("LPUSH l a 1", ":4|"),
            ("LRANGE l 0 -1", "*4|$1|1|$1|a|$1|b|$1|c|"),
            ("LPUSHX l 0", ":5|"),
            ("RPUSHX l d", ":6|"),
            ("RPUSHX none d", ":0|"),
            ("LLEN none", ":0|"),
            ("SET s v", "+OK|"),
            ("RPUSH s a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("LPUSHX s a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }

    #[test]
    fn pops_answer_with_a_string_or_with_an_array_where_a_count_is_given() {
        check(&[
            ("RPUSH l a b c d 5", ":5|"),
            ("LPOP l", "$1|a|"),
            ("RPOP l 2", "*2|$1|5|$1|d|"),
            ("LPOP l 0", "*0|"),
            ("LPOP l -1", "-ERR value is out of range, must be positive|"),
            ("LPOP l x", "-ERR value is out of range, must be positive|"),
            ("LPOP l 1 2", "-ERR wrong number of arguments for 'lpop' command|"),
            ("LPOP l 9", "*2|$1|b|$1|c|"),
            ("LPOP l", "_|"),
            ("LPOP l 1", "_|"),
            ("LLEN l", ":0|"),
        ]);
    }

    #[test]
    fn a_missing_list_is_a_null_array_where_a_count_is_given() {
        let mut db = Harness::new();
        assert_eq!(db.run(&["RPOP", "l"]), "$-1|");
        assert_eq!(db.run(&["RPOP", "l", "0"]), "*-1|");
    }

    #[test]
    fn events_say_what_was_pushed_and_popped_and_when_the_list_went() {
        let mut db = Harness::new();
        db.check_events(&[
            ("RPUSH l a b c", ":3|", "rpush l@0"),
            ("LPUSHX l x", ":4|", "lpush l@0"),
            ("LPUSHX none x", ":0|", ""),
            ("LPOP l 0", "*0|", ""),
            ("LPOP l", "$1|x|", "lpop l@0"),
            ("RPOP l 3", "*3|$1|c|$1|b|$1|a|", "rpop l@0,del l@0"),
        ]);
        assert_eq!(db.effects.changes, 3 + 1 + 1 + 3);
    }
}
