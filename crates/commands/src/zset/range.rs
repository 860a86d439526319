//! Ranges of sorted sets by rank, score or name; replied, stored, counted or removed.
//!
//! Every range becomes a range of ranks. LIMIT and REV are then arithmetic on ranks.

use std::ops::Range;

use keyspace::zset::{LexBound, ScoreBound};
use keyspace::{Key, Object, Zset};
use structures::listpack::element::IntText;

use super::{Scores, begin_members, write_member};
use crate::args::{Args, lenient_float};
use crate::collection::{StoreEvents, remove_emptied, store_result, zset_limits};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::RecordWriter;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The kind of the bounds of a sorted set's range: ranks, scores or names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    Rank,
    Score,
    Lex,
}

/// The lower and upper bound of a sorted set's range: ranks, scores or names.
#[derive(Clone, Copy)]
enum Bounds<'a> {
    /// The first and the last rank; negative ranks count from the end.
    Rank(i64, i64),
    Score(ScoreBound, ScoreBound),
    Lex(LexBound<'a>, LexBound<'a>),
}

/// Parses a bound of a range of scores: a number, preceded by `(` if the bound is exclusive.
fn score_bound(text: &[u8]) -> Result<ScoreBound, CommandError> {
    let (exclusive, number) = match text {
        [b'(', number @ ..] => (true, number),
        number => (false, number),
    };
    let score = lenient_float(number).ok_or(CommandError::Line("ERR min or max is not a float"))?;
    Ok(ScoreBound { score, exclusive })
}

/// Parses a bound of a range of names: `-`, `+`, or a name after `[` or `(`.
fn lex_bound(text: &[u8]) -> Result<LexBound<'_>, CommandError> {
    match text {
        b"-" => Ok(LexBound::Lowest),
        b"+" => Ok(LexBound::Highest),
        [b'[', name @ ..] => Ok(LexBound::Inclusive(name)),
        [b'(', name @ ..] => Ok(LexBound::Exclusive(name)),
        _ => Err(CommandError::Line("ERR min or max not valid string range item")),
    }
}

impl<'a> Bounds<'a> {
    /// Parses the lower bound from argument `min` and the upper bound from argument `max`.
    fn parse(args: &Args<'a>, by: By, min: usize, max: usize) -> Result<Self, CommandError> {
        Ok(match by {
            By::Rank => Bounds::Rank(args.integer(min)?, args.integer(max)?),
            By::Score => Bounds::Score(score_bound(args.get(min))?, score_bound(args.get(max))?),
            By::Lex => Bounds::Lex(lex_bound(args.get(min))?, lex_bound(args.get(max))?),
        })
    }

    /// Returns the range of ranks between the bounds, counted from the lowest score.
    fn ranks(self, zset: &Zset) -> Range<usize> {
        match self {
            Bounds::Score(min, max) => zset.score_ranks(min, max),
            Bounds::Lex(min, max) => zset.lex_ranks(min, max),
            Bounds::Rank(first, last) => {
                let len = zset.len() as i64;
                let from_front = |rank: i64| if rank < 0 { rank.saturating_add(len) } else { rank };
                let start = from_front(first).clamp(0, len);
                let end = from_front(last).saturating_add(1).clamp(start, len);
                start as usize..end as usize
            }
        }
    }
}

/// Returns true if members have different scores. The names are then not in order, and the result
/// of a search by name depends on the encoding.
fn has_mixed_scores(zset: &Zset) -> bool {
    let score_at = |rank| zset.range(rank..rank + 1).next().map(|(_, score)| score);
    score_at(0) != score_at(zset.len().saturating_sub(1))
}

/// A parsed range: its bounds and the options of ZRANGE. If `reverse` is true, bounds that are
/// ranks count from the highest member.
struct RangeRequest<'a> {
    bounds: Bounds<'a>,
    reverse: bool,
    /// The option LIMIT: the number of skipped members, and the maximum number of returned members
    /// (all if negative); `None` without LIMIT.
    limit: Option<(i64, i64)>,
    scores: Scores,
}

/// The properties of a range command that its name determines.
#[derive(Clone, Copy)]
struct Fixed {
    /// The index of the first argument that describes the range.
    at: usize,
    by: Option<By>,
    reverse: Option<bool>,
    /// True if the command stores the range: then WITHSCORES is not allowed.
    stores: bool,
}

impl<'a> RangeRequest<'a> {
    fn parse(args: &Args<'a>, fixed: Fixed) -> Result<Self, CommandError> {
        let (mut by, mut reverse, mut limit) = (fixed.by, fixed.reverse, None);
        let mut scores = Scores::Hidden;
        let mut at = fixed.at + 2;
        while at < args.len() {
            if !fixed.stores && args.is(at, "WITHSCORES") {
                scores = Scores::Shown;
            } else if args.is(at, "LIMIT") && at + 2 < args.len() {
                limit = Some((args.integer(at + 1)?, args.integer(at + 2)?));
                at += 2;
            } else if reverse.is_none() && args.is(at, "REV") {
                reverse = Some(true);
            } else if by.is_none() && args.is(at, "BYLEX") {
                by = Some(By::Lex);
            } else if by.is_none() && args.is(at, "BYSCORE") {
                by = Some(By::Score);
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        let (by, reverse) = (by.unwrap_or(By::Rank), reverse.unwrap_or(false));
        if by == By::Rank && limit.is_some_and(|(_, count)| count != -1) {
            return Err(CommandError::Line(
                "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
            ));
        }
        if by == By::Lex && scores == Scores::Shown {
            return Err(CommandError::Line(
                "ERR syntax error, WITHSCORES not supported in combination with BYLEX",
            ));
        }
        // With REV the higher bound comes first. Bounds that are ranks are not swapped: they count
        // from the highest member.
        let swapped = reverse && by != By::Rank;
        let (min, max) = if swapped { (fixed.at + 1, fixed.at) } else { (fixed.at, fixed.at + 1) };
        let bounds = Bounds::parse(args, by, min, max)?;
        Ok(RangeRequest { bounds, reverse, limit: limit.filter(|_| by != By::Rank), scores })
    }

    /// Returns true if the range depends on the encoding of the sorted set. That is so for a
    /// negative offset, and for a range of names if the members have several scores.
    fn depends_on_encoding(&self, zset: &Zset) -> bool {
        let from_end = self.limit.is_some_and(|(offset, _)| offset < 0);
        from_end || matches!(self.bounds, Bounds::Lex(..)) && has_mixed_scores(zset)
    }

    /// Returns the range of ranks of the requested members, counted from the lowest score.
    fn ranks(&self, zset: &Zset) -> Range<usize> {
        let ranks = self.bounds.ranks(zset);
        if self.reverse && matches!(self.bounds, Bounds::Rank(..)) {
            return zset.len() - ranks.end..zset.len() - ranks.start;
        }
        let Some((offset, count)) = self.limit else { return ranks };
        let passed = match usize::try_from(offset) {
            Ok(offset) => offset.min(ranks.len()),
            Err(_) => skipped_from_end(zset, offset, ranks.len()),
        };
        let taken = usize::try_from(count).unwrap_or(usize::MAX).min(ranks.len() - passed);
        if self.reverse {
            let end = ranks.end - passed;
            end - taken..end
        } else {
            let start = ranks.start + passed;
            start..start + taken
        }
    }
}

/// Returns the number of members that a negative offset skips in a range of `len` members. In a
/// skiplist, the offset counts from the end of the range: -1 skips all but the last member. In a
/// sorted set stored as a listpack, as in Redis, a negative offset skips all members.
fn skipped_from_end(zset: &Zset, offset: i64, len: usize) -> usize {
    let from_end = usize::try_from(offset.unsigned_abs()).ok().filter(|_| zset.is_ranked());
    from_end.and_then(|from_end| len.checked_sub(from_end)).unwrap_or(len)
}

/// Parses the range of a ZRANGE or similar request and replies with its members.
fn reply_range(ctx: &mut Ctx<'_>, args: &Args<'_>, fixed: Fixed) -> Result<(), CommandError> {
    let request = RangeRequest::parse(args, fixed)?;
    let reply = &mut ctx.reply;
    let Some(zset) = ctx.db.read::<Zset>(args.key(1))? else {
        reply.empty_array();
        return Ok(());
    };
    let ranks = request.ranks(zset);
    begin_members(reply, ranks.len(), request.scores);
    let members = zset.range(ranks);
    if request.reverse {
        members.rev().for_each(|(member, score)| {
            write_member(reply, member, (request.scores == Scores::Shown).then_some(score));
        });
    } else {
        members.for_each(|(member, score)| {
            write_member(reply, member, (request.scores == Scores::Shown).then_some(score));
        });
    }
    Ok(())
}

/// Returns the properties of a command such as ZRANGEBYSCORE: an ascending range with bounds of the
/// kind `by`, not stored.
const fn ascending(by: By) -> Fixed {
    Fixed { at: 2, by: Some(by), reverse: Some(false), stores: false }
}

/// Returns the properties of a command such as ZREVRANGEBYSCORE: a descending range with bounds of
/// the kind `by`, not stored.
const fn descending(by: By) -> Fixed {
    Fixed { reverse: Some(true), ..ascending(by) }
}

pub(super) static ZRANGE: Command = Command {
    name: "ZRANGE",
    summary: "Returns the members of a sorted set in a range of ranks, scores or names.",
    history: History::since("1.2.0").changed(&[("6.2.0", "takes BYSCORE, BYLEX, REV and LIMIT")]),
    group: Group::SortedSet,
    complexity: "O(log(N)+M), M members returned",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::string("start"),
        Arg::string("stop"),
        Arg::one_of("sortby", &[Arg::word("byscore", "BYSCORE"), Arg::word("bylex", "BYLEX")])
            .since("6.2.0")
            .optional(),
        Arg::word("rev", "REV").since("6.2.0").optional(),
        Arg::block("limit", &[Arg::integer("offset"), Arg::integer("count")])
            .token("LIMIT")
            .since("6.2.0")
            .optional(),
        Arg::word("withscores", "WITHSCORES").optional(),
    ],
    run: zrange,
    ..Command::DEFAULT
};
/// Handles ZRANGE: replies with the members in ascending order, or in descending order with REV.
fn zrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_range(ctx, args, Fixed { at: 2, by: None, reverse: None, stores: false })
}

pub(super) static ZREVRANGE: Command = Command {
    name: "ZREVRANGE",
    summary: "Returns the members of a sorted set in a range of ranks, from the highest score to the \
         lowest.",
    history: History::since("1.2.0").deprecated("6.2.0", "`ZRANGE` with the `REV` argument"),
    group: Group::SortedSet,
    complexity: "O(log(N)+M), M members returned",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::integer("start"),
        Arg::integer("stop"),
        Arg::word("withscores", "WITHSCORES").optional(),
    ],
    run: zrevrange,
    ..Command::DEFAULT
};
/// Handles ZREVRANGE: replies with the members, highest score first.
fn zrevrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_range(ctx, args, descending(By::Rank))
}

pub(super) static ZRANGEBYSCORE: Command = Command {
    name: "ZRANGEBYSCORE",
    summary: "Returns the members of a sorted set in a range of scores.",
    history: History::since("1.0.5")
        .changed(&[("2.0.0", "takes WITHSCORES")])
        .deprecated("6.2.0", "`ZRANGE` with the `BYSCORE` argument"),
    group: Group::SortedSet,
    complexity: "O(log(N)+M), M members returned",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::double("min"),
        Arg::double("max"),
        Arg::word("withscores", "WITHSCORES").since("2.0.0").optional(),
        Arg::block("limit", &[Arg::integer("offset"), Arg::integer("count")]).token("LIMIT").optional(),
    ],
    run: zrangebyscore,
    ..Command::DEFAULT
};
/// Handles ZRANGEBYSCORE: replies with the members, lowest score first.
fn zrangebyscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_range(ctx, args, ascending(By::Score))
}

pub(super) static ZREVRANGEBYSCORE: Command = Command {
    name: "ZREVRANGEBYSCORE",
    summary: "Returns the members of a sorted set in a range of scores, from the highest to the lowest.",
    history: History::since("2.2.0")
        .changed(&[("2.1.6", "takes exclusive bounds")])
        .deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYSCORE` arguments"),
    args: &[
        Arg::key("key", 0),
        Arg::double("max"),
        Arg::double("min"),
        Arg::word("withscores", "WITHSCORES").optional(),
        Arg::block("limit", &[Arg::integer("offset"), Arg::integer("count")]).token("LIMIT").optional(),
    ],
    run: zrevrangebyscore,
    ..ZRANGEBYSCORE
};
/// Handles ZREVRANGEBYSCORE: replies with the members, highest score first.
fn zrevrangebyscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_range(ctx, args, descending(By::Score))
}

pub(super) static ZRANGEBYLEX: Command = Command {
    name: "ZRANGEBYLEX",
    summary: "Returns the members of a sorted set in a range of names. All scores must be equal.",
    history: History::since("2.8.9").deprecated("6.2.0", "`ZRANGE` with the `BYLEX` argument"),
    group: Group::SortedSet,
    complexity: "O(log(N)+M), M members returned",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::string("min"),
        Arg::string("max"),
        Arg::block("limit", &[Arg::integer("offset"), Arg::integer("count")]).token("LIMIT").optional(),
    ],
    run: zrangebylex,
    ..Command::DEFAULT
};
/// Handles ZRANGEBYLEX: replies with the members in ascending order of their names.
fn zrangebylex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_range(ctx, args, ascending(By::Lex))
}

pub(super) static ZREVRANGEBYLEX: Command = Command {
    name: "ZREVRANGEBYLEX",
    summary: "Returns the members of a sorted set in a range of names, in reverse order. All scores must \
         be equal.",
    history: History::since("2.8.9").deprecated("6.2.0", "`ZRANGE` with the `REV` and `BYLEX` arguments"),
    args: &[
        Arg::key("key", 0),
        Arg::string("max"),
        Arg::string("min"),
        Arg::block("limit", &[Arg::integer("offset"), Arg::integer("count")]).token("LIMIT").optional(),
    ],
    run: zrevrangebylex,
    ..ZRANGEBYLEX
};
/// Handles ZREVRANGEBYLEX: replies with the members in descending order of their names.
fn zrevrangebylex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_range(ctx, args, descending(By::Lex))
}

pub(super) static ZRANGESTORE: Command = Command {
    name: "ZRANGESTORE",
    summary: "Stores a range of a sorted set at another key.",
    history: History::since("6.2.0"),
    group: Group::SortedSet,
    complexity: "O(log(N)+M), M members stored",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[
        KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE)),
        KeySpec::at(2, KeyFlags::RO.union(KeyFlags::ACCESS)),
    ],
    args: &[
        Arg::key("dst", 0),
        Arg::key("src", 1),
        Arg::string("min"),
        Arg::string("max"),
        Arg::one_of("sortby", &[Arg::word("byscore", "BYSCORE"), Arg::word("bylex", "BYLEX")]).optional(),
        Arg::word("rev", "REV").optional(),
        Arg::block("limit", &[Arg::integer("offset"), Arg::integer("count")]).token("LIMIT").optional(),
    ],
    run: zrangestore,
    ..Command::DEFAULT
};
/// Handles ZRANGESTORE: replies with the number of stored members.
fn zrangestore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = RangeRequest::parse(args, Fixed { at: 3, by: None, reverse: None, stores: true })?;
    let (limits, hasher) = (zset_limits(ctx), args.hasher());
    let (db, mut range) = (ctx.db.index(), Zset::new());
    if let Some(zset) = ctx.db.read::<Zset>(args.key(2))? {
        let ranks = request.ranks(zset);
        if request.depends_on_encoding(zset) {
            ctx.effects.record.replace(db, |record| {
                let command = record.command("ZRANGESTORE").words(args.from(1).take(2));
                record_ranks(command, &ranks);
            });
        }
        range.expect(ranks.len(), 0, &limits, hasher);
        for (member, score) in zset.range(ranks) {
            range.set(member.text(&mut IntText::new()), score, &limits, hasher);
        }
    }
    store(ctx, args.key(1), range, "zrangestore");
    Ok(())
}

/// Records the first and the last rank of a range as two words. For an empty range, records 1 and
/// 0, which select no member.
fn record_ranks(command: &mut RecordWriter<'_>, ranks: &Range<usize>) {
    match ranks.end.checked_sub(1).filter(|_| !ranks.is_empty()) {
        Some(last) => command.integer(ranks.start).integer(last),
        None => command.integer(1).integer(0),
    };
}

/// Stores `zset` at `key` with the keyspace event `event`, and replies with its length.
pub(super) fn store(ctx: &mut Ctx<'_>, key: Key<'_>, zset: Zset, event: &'static str) {
    store_result(ctx, key, Object::Zset(zset), StoreEvents::one(EventClass::ZSET, event));
}

pub(super) static ZCOUNT: Command = Command {
    name: "ZCOUNT",
    summary: "Returns the number of members of a sorted set in a range of scores.",
    history: History::since("2.0.0"),
    group: Group::SortedSet,
    complexity: "O(log(N))",
    arity: Arity::Exactly(4),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::double("min"), Arg::double("max")],
    run: zcount,
    ..Command::DEFAULT
};
/// Handles ZCOUNT: replies with the number of members whose score is in the range.
fn zcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    count(ctx, args, By::Score)
}

pub(super) static ZLEXCOUNT: Command = Command {
    name: "ZLEXCOUNT",
    summary: "Returns the number of members of a sorted set in a range of names. All scores must be equal.",
    history: History::since("2.8.9"),
    args: &[Arg::key("key", 0), Arg::string("min"), Arg::string("max")],
    run: zlexcount,
    ..ZCOUNT
};
/// Handles ZLEXCOUNT: replies with the number of members whose name is in the range.
fn zlexcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    count(ctx, args, By::Lex)
}

fn count(ctx: &mut Ctx<'_>, args: &Args<'_>, by: By) -> Result<(), CommandError> {
    let bounds = Bounds::parse(args, by, 2, 3)?;
    let zset = ctx.db.read::<Zset>(args.key(1))?;
    ctx.reply.integer(zset.map_or(0, |zset| bounds.ranks(zset).len()) as i64);
    Ok(())
}

pub(super) static ZREMRANGEBYRANK: Command = Command {
    name: "ZREMRANGEBYRANK",
    summary: "Removes the members of a sorted set in a range of ranks.",
    history: History::since("2.0.0"),
    group: Group::SortedSet,
    complexity: "O(M*log(N)), M members removed",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE,
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::integer("start"), Arg::integer("stop")],
    run: zremrangebyrank,
    ..Command::DEFAULT
};
/// Handles ZREMRANGEBYRANK: replies with the number of removed members.
fn zremrangebyrank(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    remove_range(ctx, args, By::Rank, "zremrangebyrank")
}

pub(super) static ZREMRANGEBYSCORE: Command = Command {
    name: "ZREMRANGEBYSCORE",
    summary: "Removes the members of a sorted set in a range of scores.",
    history: History::since("1.2.0"),
    args: &[Arg::key("key", 0), Arg::double("min"), Arg::double("max")],
    run: zremrangebyscore,
    ..ZREMRANGEBYRANK
};
/// Handles ZREMRANGEBYSCORE: replies with the number of removed members.
fn zremrangebyscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    remove_range(ctx, args, By::Score, "zremrangebyscore")
}

pub(super) static ZREMRANGEBYLEX: Command = Command {
    name: "ZREMRANGEBYLEX",
    summary: "Removes the members of a sorted set in a range of names. All scores must be equal.",
    history: History::since("2.8.9"),
    args: &[Arg::key("key", 0), Arg::string("min"), Arg::string("max")],
    run: zremrangebylex,
    ..ZREMRANGEBYRANK
};
/// Handles ZREMRANGEBYLEX: replies with the number of removed members.
fn zremrangebylex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    remove_range(ctx, args, By::Lex, "zremrangebylex")
}

fn remove_range(ctx: &mut Ctx<'_>, args: &Args<'_>, by: By, event: &'static str) -> Result<(), CommandError> {
    let bounds = Bounds::parse(args, by, 2, 3)?;
    let (key, db) = (args.key(1), ctx.db.index());
    let Some(zset) = ctx.db.write::<Zset>(key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let ranks = bounds.ranks(zset);
    if by == By::Lex && !ranks.is_empty() && has_mixed_scores(zset) {
        ctx.effects.record.replace(db, |record| {
            record_ranks(record.command("ZREMRANGEBYRANK").word(key.bytes), &ranks);
        });
    }
    let emptied = ranks.len() == zset.len();
    // If all members are removed, the whole set is removed with its key, which costs less.
    let removed = if emptied { ranks.len() } else { zset.remove_ranks(ranks, args.hasher()) };
    ctx.reply.integer(removed as i64);
    if removed > 0 {
        ctx.changed_by(removed as u64, EventClass::ZSET, event, key);
    }
    if emptied {
        remove_emptied(ctx, key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    /// Runs the commands of `steps` twice: with sorted sets stored as listpacks, and with no sorted
    /// set stored as a listpack.
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
    fn ranges_by_rank_count_from_either_end() {
        check_both(&[
            ("ZADD z 1 a 2 b 3 c", ":3|"),
            ("ZRANGE z 0 -1", "*3|$1|a|$1|b|$1|c|"),
            ("ZRANGE z -2 -1 WITHSCORES", "*4|$1|b|$1|2|$1|c|$1|3|"),
            ("ZRANGE z 0 0 REV", "*1|$1|c|"),
            ("ZREVRANGE z 0 1 WITHSCORES", "*4|$1|c|$1|3|$1|b|$1|2|"),
            ("ZRANGE z -100 100", "*3|$1|a|$1|b|$1|c|"),
            ("ZRANGE z 2 1", "*0|"),
            ("ZRANGE z 5 9", "*0|"),
            ("ZRANGE z -9223372036854775808 9223372036854775807 REV", "*3|$1|c|$1|b|$1|a|"),
            ("ZRANGE nokey 0 -1", "*0|"),
            ("ZREMRANGEBYRANK z 0 0", ":1|"),
            ("ZREMRANGEBYRANK z 5 9", ":0|"),
            ("ZREMRANGEBYRANK z 0 -1", ":2|"),
            ("ZCARD z", ":0|"),
        ]);
    }

    #[test]
    fn ranges_by_score_take_bounds_of_every_kind() {
        check_both(&[
            ("ZADD z -1 m 0 a 1 b 5 c", ":4|"),
            ("ZRANGE z 0 5 BYSCORE", "*3|$1|a|$1|b|$1|c|"),
            ("ZRANGE z (0 (5 BYSCORE", "*1|$1|b|"),
            ("ZRANGE z \"\" 5 BYSCORE", "*3|$1|a|$1|b|$1|c|"),
            ("ZRANGE z ( 5 BYSCORE", "*2|$1|b|$1|c|"),
            ("ZRANGE z 5 0 BYSCORE REV LIMIT 1 1", "*1|$1|b|"),
            ("ZRANGE z 0 5 REV BYSCORE", "*0|"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 1 2", "*2|$1|a|$1|b|"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 1 -1", "*3|$1|a|$1|b|$1|c|"),
            ("ZRANGEBYSCORE z -inf +inf LIMIT 9 1", "*0|"),
            ("ZREVRANGEBYSCORE z +inf 0 WITHSCORES LIMIT 0 1", "*2|$1|c|$1|5|"),
            ("ZCOUNT z 1 1e400", ":2|"),
            ("ZCOUNT z 1. .5e1", ":2|"),
            ("ZCOUNT z 1 (+inf", ":2|"),
            ("ZCOUNT z 1 nan", "-ERR min or max is not a float|"),
            ("ZCOUNT z \" 1\" 5", "-ERR min or max is not a float|"),
            ("ZCOUNT z 0x1 5", "-ERR min or max is not a float|"),
            ("ZCOUNT nokey 0 1", ":0|"),
            ("ZREMRANGEBYSCORE z (0 5", ":2|"),
            ("ZREMRANGEBYSCORE z a b", "-ERR min or max is not a float|"),
            ("ZRANGE z 0 -1", "*2|$1|m|$1|a|"),
        ]);
    }

    #[test]
    fn a_negative_offset_counts_from_the_other_end_of_a_large_set() {
        let mut db = Harness::new();
        db.line("ZADD z 1 a 2 b 3 c 4 d");
        assert_eq!(db.line("ZRANGEBYSCORE z 1 3 LIMIT -1 1"), "*0|");
        db.limits.zset_max_listpack_entries = 0;
        db.line("ZADD z 5 e");
        assert_eq!(db.line("ZRANGEBYSCORE z 1 3 LIMIT -2 9"), "*2|$1|b|$1|c|");
        assert_eq!(db.line("ZREVRANGEBYSCORE z 3 1 LIMIT -2 1"), "*1|$1|b|");
        assert_eq!(db.line("ZRANGEBYSCORE z 1 3 LIMIT -4 1"), "*0|");
    }

    #[test]
    fn ranges_by_name_need_marked_bounds() {
        check_both(&[
            ("ZADD z 0 a 0 b 0 c 0 cc", ":4|"),
            ("ZRANGE z [a (c BYLEX", "*2|$1|a|$1|b|"),
            ("ZRANGEBYLEX z - + LIMIT 1 2", "*2|$1|b|$1|c|"),
            ("ZREVRANGEBYLEX z + (b", "*2|$2|cc|$1|c|"),
            ("ZRANGE z + - BYLEX REV LIMIT 0 1", "*1|$2|cc|"),
            ("ZLEXCOUNT z - +", ":4|"),
            ("ZLEXCOUNT z + -", ":0|"),
            ("ZLEXCOUNT z [b [c", ":2|"),
            ("ZRANGEBYLEX z a c", "-ERR min or max not valid string range item|"),
            ("ZREMRANGEBYLEX z [b [c", ":2|"),
            ("ZRANGE z 0 -1", "*2|$1|a|$2|cc|"),
        ]);
    }

    #[test]
    fn wrong_options_are_told_before_the_key_is_looked_at() {
        let limit = "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX|";
        let scores = "-ERR syntax error, WITHSCORES not supported in combination with BYLEX|";
        check(&[
            ("ZRANGE z a b", "-ERR value is not an integer or out of range|"),
            ("ZRANGE z 0 1 LIMIT 0 1", limit),
            ("ZRANGE z 0 1 LIMIT 0 -1", "*0|"),
            ("ZRANGE z - + BYLEX WITHSCORES", scores),
            ("ZRANGEBYLEX z - + WITHSCORES", scores),
            ("ZRANGE z - + BYLEX LIMIT 0", "-ERR syntax error|"),
            ("ZRANGE z 0 1 BYSCORE LIMIT a b", "-ERR value is not an integer or out of range|"),
            ("ZRANGE z 0 1 BYSCORE BYLEX", "-ERR syntax error|"),
            ("ZRANGE z 0 1 REV REV", "-ERR syntax error|"),
            ("ZREVRANGE z 0 1 BYSCORE", "-ERR syntax error|"),
            ("ZRANGEBYSCORE z 0 5 REV", "-ERR syntax error|"),
            ("ZRANGESTORE d z 0 1 WITHSCORES", "-ERR syntax error|"),
        ]);
    }

    #[test]
    fn a_stored_range_replaces_what_was_there() {
        check_both(&[
            ("ZADD z 1 a 2 b 3 c", ":3|"),
            ("SET d x", "+OK|"),
            ("ZRANGESTORE d z 0 1", ":2|"),
            ("ZRANGE d 0 -1 WITHSCORES", "*4|$1|a|$1|1|$1|b|$1|2|"),
            ("ZRANGESTORE d z 3 0 BYSCORE REV LIMIT 1 1", ":1|"),
            ("ZRANGE d 0 -1", "*1|$1|b|"),
            ("ZRANGESTORE d nokey 0 -1", ":0|"),
            ("ZCARD d", ":0|"),
            ("ZRANGESTORE z z 1 1", ":1|"),
            ("ZRANGE z 0 -1", "*1|$1|b|"),
        ]);
    }
}
