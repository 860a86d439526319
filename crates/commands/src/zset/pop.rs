//! Commands that pop members from the ends of sorted sets.

use std::ops::Range;

use keyspace::{Key, Zset};
use resp::Reply;

use super::write_member;
use crate::args::Args;
use crate::collection::{begin_pairs, bulk, not_negative, remove_emptied};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// An end of a sorted set: its lowest or its highest scores.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The end of a sorted set with the lowest scores.
    Min,
    /// The end of a sorted set with the highest scores.
    Max,
}

impl End {
    const fn event(self) -> &'static str {
        match self {
            End::Min => "zpopmin",
            End::Max => "zpopmax",
        }
    }

    /// Returns the name of the command that pops at this end of a sorted set.
    pub(super) const fn command(self) -> &'static str {
        match self {
            End::Min => "ZPOPMIN",
            End::Max => "ZPOPMAX",
        }
    }
}

/// The layout of popped members in the reply of ZPOPMIN and similar commands.
#[derive(Clone, Copy)]
pub(super) enum Layout {
    /// The reply is an array of one member and its score.
    Single,
    /// The reply is an array of the key, one member and its score.
    SingleWithKey,
    /// The reply has pairs of a member and its score: arrays of two in RESP3, one flat array in
    /// RESP2.
    Pairs,
    /// The reply has the key and an array of pairs. Each pair is an array of two in both protocols.
    Nested,
}

/// Pops up to `wanted.count` members, writes them to the reply and raises the events. Writes
/// nothing if there is no member. Returns the number of popped members.
pub(super) fn pop(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    key: Key<'_>,
    wanted: Wanted,
) -> Result<usize, CommandError> {
    let Some(zset) = ctx.db.write::<Zset>(key)? else { return Ok(0) };
    let popped = wanted.count.min(zset.len());
    if popped == 0 {
        return Ok(0);
    }
    let reply = &mut ctx.reply;
    begin(reply, wanted.layout, key, popped);
    for _ in 0..popped {
        let rank = if wanted.end == End::Min { 0 } else { zset.len() - 1 };
        zset.take_at(rank, args.hasher(), |member, score| match wanted.layout {
            Layout::Pairs => write_member(reply, member, Some(score)),
            Layout::Single | Layout::SingleWithKey => {
                bulk(reply, member);
                reply.double(score);
            }
            Layout::Nested => {
                reply.array(2);
                bulk(reply, member);
                reply.double(score);
            }
        });
    }
    let emptied = zset.is_empty();
    ctx.changed_by(popped as u64, EventClass::ZSET, wanted.end.event(), key);
    if emptied {
        remove_emptied(ctx, key);
    }
    ctx.invalidate_after_events(key);
    Ok(popped)
}

/// The members of a sorted set to pop and their layout in the reply.
#[derive(Clone, Copy)]
pub(super) struct Wanted {
    /// The end of the sorted set at which members are popped.
    pub(super) end: End,
    /// The maximum number of members to pop.
    pub(super) count: usize,
    /// The layout of the popped members in the reply.
    pub(super) layout: Layout,
}

fn begin(reply: &mut Reply<'_>, layout: Layout, key: Key<'_>, popped: usize) {
    match layout {
        Layout::Single => reply.array(2),
        Layout::SingleWithKey => {
            reply.array(3);
            reply.bulk(key.bytes);
        }
        Layout::Pairs => begin_pairs(reply, popped),
        Layout::Nested => {
            reply.array(2);
            reply.bulk(key.bytes);
            reply.array(popped);
        }
    }
}

pub(super) static ZPOPMIN: Command = Command {
    name: "ZPOPMIN",
    summary: "Removes and returns the members with the lowest scores of a sorted set.",
    history: History::since("5.0.0"),
    group: Group::SortedSet,
    complexity: "O(log(N)) for each member",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::integer("count").optional()],
    run: zpopmin,
    ..Command::DEFAULT
};
/// Handles ZPOPMIN: replies with members and scores, lowest first; empty if the key is missing.
fn zpopmin(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    pop_one_key(ctx, args, End::Min)
}

pub(super) static ZPOPMAX: Command = Command {
    name: "ZPOPMAX",
    summary: "Removes and returns the members with the highest scores of a sorted set.",
    run: zpopmax,
    ..ZPOPMIN
};
/// Handles ZPOPMAX: replies with members and scores, highest first; empty if the key is missing.
fn zpopmax(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    pop_one_key(ctx, args, End::Max)
}

fn pop_one_key(ctx: &mut Ctx<'_>, args: &Args<'_>, end: End) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let wanted = match args.len() {
        2 => Wanted { end, count: 1, layout: Layout::Single },
        _ => Wanted { end, count: not_negative(args, 2)?, layout: Layout::Pairs },
    };
    if pop(ctx, args, args.key(1), wanted)? == 0 {
        ctx.reply.empty_array();
    }
    Ok(())
}

pub(super) static ZMPOP: Command = Command {
    name: "ZMPOP",
    summary: "Removes and returns members with the lowest or highest scores of the first non-empty sorted \
         set.",
    history: History::since("7.0.0"),
    group: Group::SortedSet,
    complexity: "O(K)+O(M*log(N)), K keys, M members",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[KeySpec::counted(1, 0, 1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::one_of("where", &[Arg::word("min", "MIN"), Arg::word("max", "MAX")]),
        Arg::integer("count").token("COUNT").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: zmpop,
    ..Command::DEFAULT
};
/// Handles ZMPOP: replies with the key and the popped members with their scores, or null if all
/// keys are missing.
fn zmpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = MultiPop::parse(args, 1)?;
    if !request.pop(ctx, args)? {
        ctx.reply.null_array();
    }
    Ok(())
}

/// A parsed request of ZMPOP or BZMPOP.
pub(super) struct MultiPop {
    /// The indexes of the arguments that are keys of sorted sets.
    pub(super) keys: Range<usize>,
    end: End,
    count: usize,
}

impl MultiPop {
    /// Parses a ZMPOP or BZMPOP request whose number of keys is argument `first`.
    pub(super) fn parse(args: &Args<'_>, first: usize) -> Result<Self, CommandError> {
        let positive = |at: usize, line: &'static str| {
            let number = stdx::number::parse_i64(args.get(at)).filter(|&number| number > 0);
            number.and_then(|number| usize::try_from(number).ok()).ok_or(CommandError::Line(line))
        };
        let key_count = positive(first, "ERR numkeys should be greater than 0")?;
        let at = key_count.saturating_add(first + 1);
        if at >= args.len() {
            return Err(CommandError::Syntax);
        }
        let end = match () {
            () if args.is(at, "MIN") => End::Min,
            () if args.is(at, "MAX") => End::Max,
            () => return Err(CommandError::Syntax),
        };
        let count = match args.len() - at - 1 {
            0 => 1,
            2 if args.is(at + 1, "COUNT") => positive(at + 2, "ERR count should be greater than 0")?,
            _ if args.is(at + 1, "COUNT") && args.len() > at + 2 => {
                positive(at + 2, "ERR count should be greater than 0")?;
                return Err(CommandError::Syntax);
            }
            _ => return Err(CommandError::Syntax),
        };
        Ok(Self { keys: first + 1..at, end, count })
    }

    /// Pops from the first existing sorted set and replies with its key and the members. Returns
    /// false if no sorted set exists.
    pub(super) fn pop(&self, ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<bool, CommandError> {
        let wanted = Wanted { end: self.end, count: self.count, layout: Layout::Nested };
        for index in self.keys.clone() {
            let popped = pop(ctx, args, args.key(index), wanted)?;
            if popped > 0 {
                ctx.record(|record| {
                    record.command(self.end.command()).word(args.get(index)).integer(popped);
                });
                return Ok(true);
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::Harness;

    fn check_both(steps: &[(&str, &str)]) {
        for entries_max in [128, 0] {
            let mut db = Harness::new();
            db.limits.zset_max_listpack_entries = entries_max;
            for (line, expected) in steps {
                assert_eq!(db.line(line), *expected, "{line} (at most {entries_max} packed)");
            }
        }
    }

    #[test]
    fn members_are_popped_in_order_from_either_end() {
        check_both(&[
            ("ZADD z 1 a 2 b 3 c 4 d 5.5 e", ":5|"),
            ("ZPOPMIN z", "*2|$1|a|$1|1|"),
            ("ZPOPMAX z", "*2|$1|e|$3|5.5|"),
            ("ZPOPMAX z 2", "*4|$1|d|$1|4|$1|c|$1|3|"),
            ("ZPOPMIN z 0", "*0|"),
            ("ZPOPMIN z 9", "*2|$1|b|$1|2|"),
            ("ZPOPMIN z", "*0|"),
            ("ZPOPMIN z 1", "*0|"),
            ("ZPOPMIN z -1", "-ERR value is out of range, must be positive|"),
            ("ZPOPMIN z x", "-ERR value is out of range, must be positive|"),
            ("ZPOPMIN z 1 2", "-ERR syntax error|"),
        ]);
    }

    #[test]
    fn zmpop_takes_from_the_first_key_that_has_members() {
        check_both(&[
            ("ZADD z 1 a 2 b 3 c", ":3|"),
            ("ZMPOP 2 nokey z MIN", "*2|$1|z|*1|*2|$1|a|$1|1|"),
            ("ZMPOP 2 nokey z max count 5", "*2|$1|z|*2|*2|$1|c|$1|3|*2|$1|b|$1|2|"),
            ("ZMPOP 2 nokey z MIN", "*-1|"),
            ("ZMPOP 0 z MIN", "-ERR numkeys should be greater than 0|"),
            ("ZMPOP x z MIN", "-ERR numkeys should be greater than 0|"),
            ("ZMPOP 9223372036854775807 z MIN", "-ERR syntax error|"),
            ("ZMPOP 1 z FOO", "-ERR syntax error|"),
            ("ZMPOP 1 z MIN COUNT", "-ERR syntax error|"),
            ("ZMPOP 1 z MIN COUNT 0", "-ERR count should be greater than 0|"),
            ("ZMPOP 1 z MIN COUNT 1 COUNT 2", "-ERR syntax error|"),
        ]);
    }
}
