//! Commands that pop elements from the first of several lists, or move an element to another list.

use std::ops::Range;

use keyspace::{Key, List, ListEnd};

use super::{limits, note_pop, pop_command, pop_event, push_event};
use crate::args::Args;
use crate::collection::bulk;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static LMOVE: Command = Command {
    name: "LMOVE",
    summary: "Moves an element from one end of a list to one end of another list and returns it.",
    history: History::since("6.2.0"),
    group: Group::List,
    complexity: "O(1)",
    arity: Arity::Exactly(5),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::SHORT),
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
    ],
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::one_of("wherefrom", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::one_of("whereto", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
    ],
    run: lmove,
    ..Command::DEFAULT
};
/// Handles LMOVE: replies with the moved element, or null if there is no source.
fn lmove(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (from, to) = (end_named(args, 3)?, end_named(args, 4)?);
    if !move_one(ctx, args, from, to)? {
        ctx.reply.null();
    }
    Ok(())
}

pub(super) static RPOPLPUSH: Command = Command {
    name: "RPOPLPUSH",
    summary: "Moves the last element of a list to the head of another list and returns it.",
    history: History::since("1.2.0").deprecated("6.2.0", "`LMOVE` with the `RIGHT` and `LEFT` arguments"),
    group: Group::List,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::SHORT),
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
    ],
    args: &[Arg::key("source", 0), Arg::key("destination", 1)],
    run: rpoplpush,
    ..Command::DEFAULT
};
/// Handles RPOPLPUSH: like `LMOVE source destination RIGHT LEFT`.
fn rpoplpush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if !move_one(ctx, args, ListEnd::Back, ListEnd::Front)? {
        ctx.reply.null();
    }
    Ok(())
}

/// Moves an element from the end `from` of the list at argument 1 to the end `to` of the list at
/// argument 2, and replies with the element. Returns false if there is no source list.
pub(super) fn move_one(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    from: ListEnd,
    to: ListEnd,
) -> Result<bool, CommandError> {
    let (source, destination, limits) = (args.key(1), args.key(2), limits(ctx));
    let Some(list) = ctx.db.write::<List>(source)? else { return Ok(false) };
    if source.bytes == destination.bytes {
        let element = list.rotate(from, to, limits).expect("no list is empty");
        ctx.reply.bulk(&element);
    } else {
        // The destination's type is checked before an element is removed.
        ctx.db.write::<List>(destination)?;
        let mut element = Vec::new();
        let list = ctx.db.write::<List>(source)?.expect("the source was found above");
        list.pop(from, 1, limits, |popped| popped.append_to(&mut element));
        ctx.reply.bulk(&element);
        let list = ctx.db.write_or_insert::<List>(destination)?;
        list.push(to, std::iter::once(element.as_slice()), limits);
    }
    ctx.changed_by(0, EventClass::LIST, push_event(to), destination);
    if source.bytes == destination.bytes {
        ctx.changed(EventClass::LIST, pop_event(from), source);
    } else {
        note_pop(ctx, 1, from, source);
    }
    Ok(true)
}

pub(super) static LMPOP: Command = Command {
    name: "LMPOP",
    summary: "Removes and returns elements of the first non-empty list.",
    history: History::since("7.0.0"),
    group: Group::List,
    complexity: "O(N+M)",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::LIST),
    keys: &[KeySpec::counted(1, 0, 1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::one_of("where", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::integer("count").token("COUNT").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: lmpop,
    ..Command::DEFAULT
};
/// Handles LMPOP: replies with the key and the popped elements of the first existing list, or null
/// if there is none.
fn lmpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = MultiPop::parse(args, 1)?;
    if !request.pop(ctx, args)? {
        ctx.reply.null_array();
    }
    Ok(())
}

/// A parsed request of LMPOP or BLMPOP.
pub(super) struct MultiPop {
    /// The index of the argument that is the first key of LMPOP.
    first_key: usize,
    /// The number of consecutive keys of LMPOP.
    key_count: usize,
    end: ListEnd,
    count: usize,
}

impl MultiPop {
    /// Parses an LMPOP or BLMPOP request whose number of keys is argument `at`.
    pub(super) fn parse(args: &Args<'_>, at: usize) -> Result<Self, CommandError> {
        let key_count = at_least_one(args, at, "ERR numkeys should be greater than 0")?;
        let first_key = at + 1;
        let end_index = key_count.saturating_add(first_key);
        if end_index >= args.len() {
            return Err(CommandError::Syntax);
        }
        let end = end_named(args, end_index)?;
        let count = match args.len() - end_index {
            1 => 1,
            3 if args.is(end_index + 1, "COUNT") => {
                at_least_one(args, end_index + 2, "ERR count should be greater than 0")?
            }
            // As in Redis, an invalid count is reported before an invalid option after it.
            4.. if args.is(end_index + 1, "COUNT") => {
                at_least_one(args, end_index + 2, "ERR count should be greater than 0")?;
                return Err(CommandError::Syntax);
            }
            _ => return Err(CommandError::Syntax),
        };
        Ok(Self { first_key, key_count, end, count })
    }

    /// Returns the indexes of the LMPOP arguments that are keys.
    pub(super) fn keys(&self) -> Range<usize> {
        self.first_key..self.first_key + self.key_count
    }

    /// Pops from the first existing list and replies with its key and the elements. Returns false
    /// if no list exists.
    pub(super) fn pop(&self, ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<bool, CommandError> {
        for index in self.keys() {
            let key = args.key(index);
            if ctx.db.write::<List>(key)?.is_some() {
                pop_with_key(ctx, key, self.end, self.count)?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Pops up to `count` elements of the existing list at `key`, and replies with the key and the
/// elements.
fn pop_with_key(ctx: &mut Ctx<'_>, key: Key<'_>, end: ListEnd, count: usize) -> Result<(), CommandError> {
    let limits = limits(ctx);
    let list = ctx.db.write::<List>(key)?.expect("the caller looked for it");
    ctx.reply.array(2);
    ctx.reply.bulk(key.bytes);
    ctx.reply.array(count.min(list.len()));
    let popped = list.pop(end, count, limits, |element| bulk(&mut ctx.reply, element));
    note_pop(ctx, popped, end, key);
    ctx.record(|record| {
        record.command(pop_command(end)).word(key.bytes).integer(popped);
    });
    Ok(())
}

/// Returns the end of a list that argument `index` names: LEFT or RIGHT.
pub(super) fn end_named(args: &Args<'_>, index: usize) -> Result<ListEnd, CommandError> {
    if args.is(index, "LEFT") {
        Ok(ListEnd::Front)
    } else if args.is(index, "RIGHT") {
        Ok(ListEnd::Back)
    } else {
        Err(CommandError::Syntax)
    }
}

/// Parses argument `index` as a count of one or more. `line` is the error line for any other text.
pub(super) fn at_least_one(args: &Args<'_>, index: usize, line: &'static str) -> Result<usize, CommandError> {
    let count = stdx::number::parse_i64(args.get(index)).and_then(|count| usize::try_from(count).ok());
    count.filter(|&count| count > 0).ok_or(CommandError::Line(line))
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

    #[test]
    fn an_element_moves_from_an_end_to_an_end() {
        check(&[
            ("RPUSH a 1 2 3", ":3|"),
            ("LMOVE a b LEFT RIGHT", "$1|1|"),
            ("LMOVE a b right left", "$1|3|"),
            ("RPOPLPUSH b b", "$1|1|"),
            ("LRANGE b 0 -1", "*2|$1|1|$1|3|"),
            ("RPOPLPUSH a a", "$1|2|"),
            ("LLEN a", ":1|"),
            ("RPOPLPUSH a b", "$1|2|"),
            ("LLEN a", ":0|"),
            ("LMOVE a b LEFT LEFT", "_|"),
            ("LMOVE a b UP LEFT", "-ERR syntax error|"),
            ("SET s v", "+OK|"),
            ("LMOVE a s LEFT LEFT", "_|"),
            ("LMOVE b s LEFT LEFT", WRONG_TYPE),
            ("LMOVE s b LEFT LEFT", WRONG_TYPE),
            ("LLEN b", ":3|"),
        ]);
    }

    #[test]
    fn elements_are_popped_off_the_first_list_there_is() {
        let greater = |what| format!("-ERR {what} should be greater than 0|");
        let (numkeys, count) = (greater("numkeys"), greater("count"));
        check(&[
            ("RPUSH b 1 2 3", ":3|"),
            ("LMPOP 2 a b LEFT", "*2|$1|b|*1|$1|1|"),
            ("LMPOP 2 a b right count 9", "*2|$1|b|*2|$1|3|$1|2|"),
            ("LMPOP 2 a b LEFT", "_|"),
            ("LMPOP 0 a LEFT", &numkeys),
            ("LMPOP x a LEFT", &numkeys),
            ("LMPOP 2 a LEFT", "-ERR syntax error|"),
            ("LMPOP 9223372036854775807 a LEFT", "-ERR syntax error|"),
            ("LMPOP 1 a UP", "-ERR syntax error|"),
            ("LMPOP 1 a LEFT COUNT", "-ERR syntax error|"),
            ("LMPOP 1 a LEFT COUNT 0", &count),
            ("LMPOP 1 a LEFT COUNT 1 COUNT 1", "-ERR syntax error|"),
            ("LMPOP 1 a LEFT COUNT x COUNT 1", &count),
            ("SET s v", "+OK|"),
            ("LMPOP 2 a s LEFT", WRONG_TYPE),
        ]);
    }

    #[test]
    fn events_are_raised_for_both_lists() {
        let mut db = Harness::new();
        db.check_events(&[
            ("RPUSH a 1 2 3", ":3|", "rpush a@0"),
            ("LMOVE a b LEFT RIGHT", "$1|1|", "rpush b@0,lpop a@0"),
            ("RPOPLPUSH b b", "$1|1|", "lpush b@0,rpop b@0"),
            ("RPOPLPUSH b a", "$1|1|", "lpush a@0,rpop b@0,del b@0"),
            ("LMPOP 1 a RIGHT COUNT 2", "*2|$1|a|*2|$1|3|$1|2|", "rpop a@0"),
            ("LMPOP 1 a RIGHT COUNT 2", "*2|$1|a|*1|$1|1|", "rpop a@0,del a@0"),
        ]);
        assert_eq!(db.effects.changes, 3 + 3 + 3);
    }
}
