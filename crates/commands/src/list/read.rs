//! Commands that read lists.

use keyspace::{List, PositionQuery};

use super::{integer_with_negation, not_negative};
use crate::args::Args;
use crate::collection::bulk;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static LLEN: Command = Command {
    name: "LLEN",
    summary: "Returns the number of elements in a list.",
    history: History::since("1.0.0"),
    group: Group::List,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: llen,
    ..Command::DEFAULT
};
/// Handles LLEN: replies with the number of elements, 0 if there is no list.
fn llen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let list = ctx.db.read::<List>(args.key(1))?;
    ctx.reply.integer(list.map_or(0, List::len) as i64);
    Ok(())
}

pub(super) static LRANGE: Command = Command {
    name: "LRANGE",
    summary: "Returns the elements of a list between two indexes.",
    history: History::since("1.0.0"),
    group: Group::List,
    complexity: "O(S+N)",
    arity: Arity::Exactly(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::integer("start"), Arg::integer("stop")],
    run: lrange,
    ..Command::DEFAULT
};
/// Handles LRANGE: replies with the elements from `start` to `stop`, both included.
fn lrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let Some(list) = ctx.db.read::<List>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let range = list.resolve_range(start, stop);
    ctx.reply.array(range.len());
    list.visit_range(range, |element| bulk(&mut ctx.reply, element));
    Ok(())
}

pub(super) static LINDEX: Command = Command {
    name: "LINDEX",
    summary: "Returns the element of a list at an index.",
    history: History::since("1.0.0"),
    group: Group::List,
    complexity: "O(N)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::integer("index")],
    run: lindex,
    ..Command::DEFAULT
};
/// Handles LINDEX: replies with the element at `index`, or null if there is none.
fn lindex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let shown = match ctx.db.read::<List>(args.key(1))? {
        // As in Redis, an invalid index is no error if the list is missing.
        Some(list) => list.with(args.integer(2)?, |element| bulk(&mut ctx.reply, element)),
        None => None,
    };
    if shown.is_none() {
        ctx.reply.null();
    }
    Ok(())
}

pub(super) static LPOS: Command = Command {
    name: "LPOS",
    summary: "Returns the indexes of elements equal to a value in a list.",
    history: History::since("6.0.6"),
    group: Group::List,
    complexity: "O(N)",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::string("element"),
        Arg::integer("rank").token("RANK").optional(),
        Arg::integer("num-matches").token("COUNT").optional(),
        Arg::integer("len").token("MAXLEN").optional(),
    ],
    run: lpos,
    ..Command::DEFAULT
};
/// Handles LPOS: replies with the index of a match, or null if there is none. With COUNT the reply
/// is an array of indexes.
fn lpos(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = PositionRequest::parse(args)?;
    let list = ctx.db.read::<List>(args.key(1))?;
    let Some(count_max) = request.count else {
        let mut first = None;
        if let Some(list) = list {
            list.positions(request.query(args, 1), |at| first = Some(at));
        }
        match first {
            Some(at) => ctx.reply.integer(at as i64),
            None => ctx.reply.null(),
        }
        return Ok(());
    };
    let mut found = 0;
    let begun = ctx.reply.begin_array();
    if let Some(list) = list {
        list.positions(request.query(args, count_max), |at| {
            found += 1;
            ctx.reply.integer(at as i64);
        });
    }
    ctx.reply.end_array(begun, found);
    Ok(())
}

/// The options of LPOS.
struct PositionRequest {
    rank: i64,
    /// The number of matches that the option COUNT requests, 0 for all. `None` is one match whose
    /// reply is not an array.
    count: Option<usize>,
    compared_max: usize,
}

impl PositionRequest {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let mut request = Self { rank: 1, count: None, compared_max: 0 };
        let mut at = 3;
        while at < args.len() {
            let has_value = at + 1 < args.len();
            if has_value && args.is(at, "RANK") {
                request.rank = integer_with_negation(args, at + 1)?;
                if request.rank == 0 {
                    return Err(CommandError::Line(RANK_ZERO));
                }
            } else if has_value && args.is(at, "COUNT") {
                request.count = Some(not_negative(args, at + 1, "ERR COUNT can't be negative")?);
            } else if has_value && args.is(at, "MAXLEN") {
                request.compared_max = not_negative(args, at + 1, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 2;
        }
        Ok(request)
    }

    fn query<'a>(&self, args: &Args<'a>, count_max: usize) -> PositionQuery<'a> {
        PositionQuery { value: args.get(2), rank: self.rank, count_max, compared_max: self.compared_max }
    }
}

const RANK_ZERO: &str = "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
                         or use negative to start from the end of the list";

#[cfg(test)]
mod tests {
    use crate::harness::check;

    #[test]
    fn ranges_are_clamped_and_indexes_count_from_either_end() {
        check(&[
            ("RPUSH l a bb 3 -4", ":4|"),
            ("LLEN l", ":4|"),
            ("LRANGE l 0 -1", "*4|$1|a|$2|bb|$1|3|$2|-4|"),
            ("LRANGE l -3 1", "*1|$2|bb|"),
            ("LRANGE l 3 1", "*0|"),
            ("LRANGE l 9 12", "*0|"),
            ("LRANGE none 0 -1", "*0|"),
            ("LRANGE none a -1", "-ERR value is not an integer or out of range|"),
            ("LINDEX l 0", "$1|a|"),
            ("LINDEX l -1", "$2|-4|"),
            ("LINDEX l 4", "_|"),
            ("LINDEX l x", "-ERR value is not an integer or out of range|"),
            ("LINDEX none x", "_|"),
        ]);
    }

    #[test]
    fn positions_are_found_from_either_end() {
        let negative = |what| format!("-ERR {what} can't be negative|");
        let (count, maxlen) = (negative("COUNT"), negative("MAXLEN"));
        let rank_zero = format!("-{}|", super::RANK_ZERO);
        check(&[
            ("RPUSH l a b 1 b a b", ":6|"),
            ("LPOS l b", ":1|"),
            ("LPOS l 1", ":2|"),
            ("LPOS l b RANK 2", ":3|"),
            ("LPOS l b RANK -1", ":5|"),
            ("LPOS l b COUNT 0", "*3|:1|:3|:5|"),
            ("LPOS l b COUNT 2 RANK -2", "*2|:3|:1|"),
            ("LPOS l b count 0 maxlen 4", "*2|:1|:3|"),
            ("LPOS l x", "_|"),
            ("LPOS l x COUNT 1", "*0|"),
            ("LPOS none x", "_|"),
            ("LPOS none x COUNT 1", "*0|"),
            ("LPOS none x RANK 0", &rank_zero),
            ("LPOS l b RANK x", "-ERR value is not an integer or out of range|"),
            ("LPOS l b COUNT -1", &count),
            ("LPOS l b COUNT x", &count),
            ("LPOS l b MAXLEN -1", &maxlen),
            ("LPOS l b RANK", "-ERR syntax error|"),
            ("LPOS l b HUH 1", "-ERR syntax error|"),
            ("SET s v", "+OK|"),
            ("LPOS s x", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }
}
