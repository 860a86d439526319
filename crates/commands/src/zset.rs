//! Commands on members of sorted sets by name. Ranges are in [`range`], pops in [`pop`]; union,
//! intersection and difference of several sets are in [`algebra`].

mod algebra;
mod blocking;
mod pop;
mod range;

use keyspace::Zset;
use resp::Reply;
use stdx::number::{self, F64_TEXT_LEN_MAX, format_f64};
use structures::listpack::element::Element;

use crate::args::Args;
use crate::collection::{
    ScanRequest, ScanStep, Scanned, begin_pair, begin_pairs, bulk, remove_emptied, zset_limits,
};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::random::random_elements;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The command table's records of all sorted-set commands.
pub static COMMANDS: &[&Command] = &[
    &ZADD,
    &ZINCRBY,
    &ZREM,
    &ZSCORE,
    &ZMSCORE,
    &ZCARD,
    &ZRANK,
    &ZREVRANK,
    &ZRANDMEMBER,
    &ZSCAN,
    &pop::ZPOPMIN,
    &pop::ZPOPMAX,
    &pop::ZMPOP,
    &blocking::BZPOPMIN,
    &blocking::BZPOPMAX,
    &blocking::BZMPOP,
    &range::ZRANGE,
    &range::ZRANGESTORE,
    &range::ZREVRANGE,
    &range::ZRANGEBYSCORE,
    &range::ZREVRANGEBYSCORE,
    &range::ZRANGEBYLEX,
    &range::ZREVRANGEBYLEX,
    &range::ZCOUNT,
    &range::ZLEXCOUNT,
    &range::ZREMRANGEBYRANK,
    &range::ZREMRANGEBYSCORE,
    &range::ZREMRANGEBYLEX,
    &algebra::ZUNION,
    &algebra::ZUNIONSTORE,
    &algebra::ZINTER,
    &algebra::ZINTERSTORE,
    &algebra::ZINTERCARD,
    &algebra::ZDIFF,
    &algebra::ZDIFFSTORE,
];

/// The parsed options of a ZADD request.
#[derive(Clone, Copy, Default)]
pub(crate) struct AddOptions {
    pub(crate) nx: bool,
    pub(crate) xx: bool,
    gt: bool,
    lt: bool,
    pub(crate) ch: bool,
    incr: bool,
}

impl AddOptions {
    /// Parses ZADD's options from argument 2 on. Also returns the index of the first score.
    fn parse(args: &Args<'_>) -> Result<(Self, usize), CommandError> {
        let mut options = AddOptions::default();
        let mut at = 2;
        // Scores mostly start with a digit or a sign, so a letter may start an option.
        while at < args.len() && args.get(at).first().is_some_and(u8::is_ascii_alphabetic) {
            let option = match () {
                () if args.is(at, "NX") => &mut options.nx,
                () if args.is(at, "XX") => &mut options.xx,
                () if args.is(at, "GT") => &mut options.gt,
                () if args.is(at, "LT") => &mut options.lt,
                () if args.is(at, "CH") => &mut options.ch,
                () if args.is(at, "INCR") => &mut options.incr,
                () => break,
            };
            *option = true;
            at += 1;
        }
        let rest = args.len() - at;
        if rest == 0 || rest % 2 == 1 {
            return Err(CommandError::Syntax);
        }
        options.check(rest / 2)?;
        Ok((options, at))
    }

    fn check(self, pairs: usize) -> Result<(), CommandError> {
        if self.nx && self.xx {
            return Err(CommandError::Line("ERR XX and NX options at the same time are not compatible"));
        }
        if (self.gt && self.lt) || (self.nx && (self.gt || self.lt)) {
            return Err(CommandError::Line(
                "ERR GT, LT, and/or NX options at the same time are not compatible",
            ));
        }
        if self.incr && pairs > 1 {
            return Err(CommandError::Line("ERR INCR option supports a single increment-element pair"));
        }
        Ok(())
    }

    /// Returns the score that ZADD gives to a member whose present score is `old`; `None` leaves
    /// the member unchanged. `old` is `None` for a member that is not in the set yet.
    #[inline]
    fn decide(self, given: f64, old: Option<f64>) -> Result<Option<f64>, CommandError> {
        let Some(old) = old else { return Ok((!self.xx).then_some(given)) };
        if self.nx {
            return Ok(None);
        }
        let score = if self.incr { old + given } else { given };
        if score.is_nan() {
            return Err(CommandError::ScoreNotANumber);
        }
        let refused = (self.lt && score >= old) || (self.gt && score <= old);
        Ok((!refused).then_some(score))
    }
}

static ZADD: Command = Command {
    name: "ZADD",
    summary: "Adds members to a sorted set, or updates their scores. Creates the sorted set if it does not \
         exist.",
    history: History::since("1.2.0").changed(&[
        ("2.4.0", "takes several members"),
        ("3.0.2", "takes NX, XX, CH and INCR"),
        ("6.2.0", "takes GT and LT"),
    ]),
    group: Group::SortedSet,
    complexity: "O(log(N)) for each member",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::one_of("condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")]).since("3.0.2").optional(),
        Arg::one_of("comparison", &[Arg::word("gt", "GT"), Arg::word("lt", "LT")]).since("6.2.0").optional(),
        Arg::word("change", "CH").since("3.0.2").optional(),
        Arg::word("increment", "INCR").since("3.0.2").optional(),
        Arg::block("data", &[Arg::double("score"), Arg::string("member")]).multiple(),
    ],
    run: zadd,
    ..Command::DEFAULT
};
/// Handles ZADD: replies with the number of new members, with CH also counting changed scores. With
/// INCR the reply is the new score, or null if the options kept the old one.
fn zadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (options, first) = AddOptions::parse(args)?;
    let pair = |index| Ok((args.float(first + 2 * index)?, args.get(first + 2 * index + 1)));
    add_members(ctx, args, options, (args.len() - first) / 2, pair)?;
    if ctx.effects.record.is_wanted {
        record_decimals(ctx, args, "ZADD", (first..args.len()).step_by(2));
    }
    Ok(())
}

static ZINCRBY: Command = Command {
    name: "ZINCRBY",
    summary: "Adds a number to the score of a member of a sorted set. A missing member has the score 0.",
    history: History::since("1.2.0"),
    group: Group::SortedSet,
    complexity: "O(log(N))",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::integer("increment"), Arg::string("member")],
    run: zincrby,
    ..Command::DEFAULT
};
/// Handles ZINCRBY: replies with the new score.
fn zincrby(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let options = AddOptions { incr: true, ..AddOptions::default() };
    add_members(ctx, args, options, 1, |_| Ok((args.float(2)?, args.get(3))))?;
    if ctx.effects.record.is_wanted {
        record_decimals(ctx, args, "ZINCRBY", 2..3);
    }
    Ok(())
}

/// Records the request, for replicas and the append-only file, with decimal numbers if an argument
/// at one of the indexes `numbers` is a hexadecimal number. Valkey 9.1 does not accept hexadecimal
/// numbers.
#[cold]
pub(super) fn record_decimals(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    name: &str,
    numbers: impl Iterator<Item = usize> + Clone,
) {
    let decimal = |index: usize| {
        let is_hexadecimal = args.get(index).iter().any(|byte| byte.eq_ignore_ascii_case(&b'x'));
        args.float(index).ok().filter(|_| is_hexadecimal)
    };
    if !numbers.clone().any(|index| decimal(index).is_some()) {
        return;
    }
    ctx.record(|record| {
        record.command(name);
        let mut numbers = numbers.peekable();
        for index in 1..args.len() {
            let number = numbers.next_if_eq(&index).and_then(decimal);
            match number {
                Some(number) => record.word(format_f64(number, &mut [0; F64_TEXT_LEN_MAX]).as_bytes()),
                None => record.word(args.get(index)),
            };
        }
    });
}

/// Adds `count` members to the sorted set at argument 1 and replies as ZADD does. `pair` returns
/// the score and the member for an index below `count`. It is called twice per index, because
/// nothing is added if one of the scores is invalid.
pub(crate) fn add_members<'a>(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    options: AddOptions,
    count: usize,
    pair: impl Fn(usize) -> Result<(f64, &'a [u8]), CommandError>,
) -> Result<(), CommandError> {
    let (key, limits, hasher) = (args.key(1), zset_limits(ctx), args.hasher());
    let mut longest = 0;
    for index in 0..count {
        longest = longest.max(pair(index)?.1.len());
    }
    let zset = if options.xx {
        match ctx.db.write::<Zset>(key)? {
            Some(zset) => zset,
            None if options.incr => {
                ctx.reply.null();
                return Ok(());
            }
            None => {
                ctx.reply.integer(0);
                return Ok(());
            }
        }
    } else {
        ctx.db.write_or_insert::<Zset>(key)?
    };
    zset.expect(count, longest, &limits, hasher);
    let (mut added, mut changed, mut score) = (0, 0, None);
    for index in 0..count {
        let (given, member) = pair(index)?;
        let decide = |old| {
            score = options.decide(given, old)?;
            Ok::<_, CommandError>(score)
        };
        let done = zset.update(member, &limits, hasher, decide)?;
        added += u64::from(done.old.is_none() && done.new.is_some());
        changed += u64::from(done.old.is_some() && done.old != done.new);
    }
    if added + changed > 0 {
        let event = if options.incr { "zincr" } else { "zadd" };
        ctx.changed_by(added + changed, EventClass::ZSET, event, key);
    }
    match (options.incr, score) {
        (true, Some(score)) => ctx.reply.double(score),
        (true, None) => ctx.reply.null(),
        (false, _) => ctx.reply.integer((added + if options.ch { changed } else { 0 }) as i64),
    }
    Ok(())
}

static ZREM: Command = Command {
    name: "ZREM",
    summary: "Removes members from a sorted set. Deletes the sorted set if no member remains.",
    history: History::since("1.2.0").changed(&[("2.4.0", "takes several members")]),
    group: Group::SortedSet,
    complexity: "O(log(N)) for each member",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::string("member").multiple()],
    run: zrem,
    ..Command::DEFAULT
};
/// Handles ZREM: replies with the number of removed members.
fn zrem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let Some(zset) = ctx.db.write::<Zset>(key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let removed = args.from(2).filter(|member| zset.remove(member, args.hasher()).is_some()).count();
    let emptied = zset.is_empty();
    if removed > 0 {
        ctx.changed_by(removed as u64, EventClass::ZSET, "zrem", key);
    }
    if emptied {
        remove_emptied(ctx, key);
    }
    ctx.invalidate_after_events(key);
    ctx.reply.integer(removed as i64);
    Ok(())
}

/// Writes a score as a double, or null if `score` is `None`.
fn score_or_null(reply: &mut Reply<'_>, score: Option<f64>) {
    match score {
        Some(score) => reply.double(score),
        None => reply.null(),
    }
}

/// The content of a reply with members of a sorted set: with or without scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scores {
    /// The reply has members with scores: WITHSCORES.
    Shown,
    /// The reply has the members without their scores.
    Hidden,
}

/// Writes the header of a reply with `len` members of a sorted set, or with `len` pairs of a member
/// and its score.
fn begin_members(reply: &mut Reply<'_>, len: usize, scores: Scores) {
    match scores {
        Scores::Shown => begin_pairs(reply, len),
        Scores::Hidden => reply.array(len),
    }
}

/// Writes a member after [`begin_members`]. `score` is `None` if the reply has no scores.
#[inline]
fn write_member(reply: &mut Reply<'_>, member: Element<'_>, score: Option<f64>) {
    match score {
        None => bulk(reply, member),
        Some(score) => {
            begin_pair(reply);
            bulk(reply, member);
            reply.double(score);
        }
    }
}

static ZSCORE: Command = Command {
    name: "ZSCORE",
    summary: "Returns the score of a member of a sorted set.",
    history: History::since("1.2.0"),
    group: Group::SortedSet,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("member")],
    run: zscore,
    ..Command::DEFAULT
};
/// Handles ZSCORE: replies with the score, or null if the key or the member is missing.
fn zscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let zset = ctx.db.read::<Zset>(args.key(1))?;
    score_or_null(&mut ctx.reply, zset.and_then(|zset| zset.score(args.get(2), args.hasher())));
    Ok(())
}

static ZMSCORE: Command = Command {
    name: "ZMSCORE",
    summary: "Returns the scores of several members of a sorted set.",
    history: History::since("6.2.0"),
    group: Group::SortedSet,
    complexity: "O(1) for each member",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("member").multiple()],
    run: zmscore,
    ..Command::DEFAULT
};
/// Handles ZMSCORE: replies with an array of scores, null for each member that is missing.
fn zmscore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let zset = ctx.db.read::<Zset>(args.key(1))?;
    ctx.reply.array(args.len() - 2);
    for member in args.from(2) {
        score_or_null(&mut ctx.reply, zset.and_then(|zset| zset.score(member, args.hasher())));
    }
    Ok(())
}

static ZCARD: Command = Command {
    name: "ZCARD",
    summary: "Returns the number of members of a sorted set.",
    history: History::since("1.2.0"),
    group: Group::SortedSet,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: zcard,
    ..Command::DEFAULT
};
/// Handles ZCARD: replies with the number of members, 0 if the key is missing.
fn zcard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let zset = ctx.db.read::<Zset>(args.key(1))?;
    ctx.reply.integer(zset.map_or(0, Zset::len) as i64);
    Ok(())
}

static ZRANK: Command = Command {
    name: "ZRANK",
    summary: "Returns the rank of a member of a sorted set: the number of members before it.",
    history: History::since("2.0.0").changed(&[("7.2.0", "takes WITHSCORE")]),
    group: Group::SortedSet,
    complexity: "O(log(N))",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("member"), Arg::word("withscore", "WITHSCORE").optional()],
    run: zrank,
    ..Command::DEFAULT
};
/// Handles ZRANK: replies with the rank, counted from 0, or null if the key or the member is
/// missing. With WITHSCORE the reply is an array of rank and score.
fn zrank(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    rank(ctx, args, "zrank", |_, rank| rank)
}

static ZREVRANK: Command = Command {
    name: "ZREVRANK",
    summary: "Returns the reverse rank of a member of a sorted set: the number of members after it.",
    run: zrevrank,
    ..ZRANK
};
/// Handles ZREVRANK: like ZRANK, counted from the highest score.
fn zrevrank(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    rank(ctx, args, "zrevrank", |len, rank| len - 1 - rank)
}

fn rank(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    name: &'static str,
    counted: impl FnOnce(usize, usize) -> usize,
) -> Result<(), CommandError> {
    if args.len() > 4 {
        return Err(CommandError::WrongArity(name));
    }
    let with_score = args.len() == 4;
    if with_score && !args.is(3, "WITHSCORE") {
        return Err(CommandError::Syntax);
    }
    let zset = ctx.db.read::<Zset>(args.key(1))?;
    let found = zset.and_then(|zset| Some((zset.len(), zset.rank(args.get(2), args.hasher())?)));
    match found {
        None if with_score => ctx.reply.null_array(),
        None => ctx.reply.null(),
        Some((len, (rank, score))) => {
            if with_score {
                ctx.reply.array(2);
            }
            ctx.reply.integer(counted(len, rank) as i64);
            if with_score {
                ctx.reply.double(score);
            }
        }
    }
    Ok(())
}

static ZRANDMEMBER: Command = Command {
    name: "ZRANDMEMBER",
    summary: "Returns random members of a sorted set, optionally with their scores.",
    history: History::since("6.2.0"),
    group: Group::SortedSet,
    complexity: "O(N) in the number of members returned",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::block("options", &[Arg::integer("count"), Arg::word("withscores", "WITHSCORES").optional()])
            .optional(),
    ],
    run: zrandmember,
    ..Command::DEFAULT
};
/// Handles ZRANDMEMBER: replies with a member, or null. With a count the reply is an array of at
/// most `count` different members. A negative count allows repetitions, and WITHSCORES adds the
/// scores.
fn zrandmember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    random_elements::<Zset>(ctx, args)
}

static ZSCAN: Command = Command {
    name: "ZSCAN",
    summary: "Iterates over the members and scores of a sorted set with a cursor.",
    history: History::since("2.8.0").changed_by_valkey(&[("8.0.0", "takes NOSCORES")]),
    group: Group::SortedSet,
    complexity: "O(1) for each call, O(N) for all",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::integer("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::integer("count").token("COUNT").optional(),
        Arg::word("noscores", "NOSCORES").optional(),
    ],
    run: zscan,
    ..Command::DEFAULT
};
/// Handles ZSCAN: replies with the next cursor, members and scores.
fn zscan(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let cursor = args.cursor(2)?;
    let Some(zset) = ctx.db.read::<Zset>(args.key(1))? else {
        ScanRequest::nothing(&mut ctx.reply);
        return Ok(());
    };
    let request = ScanRequest::parse(args, cursor, Scanned::Zset)?;
    let packed = zset.is_packed();
    request.run(&mut ctx.reply, |cursor, mut reply| {
        let mut step = ScanStep::default();
        step.next = zset.scan(cursor, |member, score| {
            step.visited += 1;
            if let Some(reply) = reply.as_deref_mut()
                && request.matches(member)
            {
                bulk(reply, member);
                step.written += 1;
                if request.names_only {
                    return;
                }
                // The score is text on both protocols. As in Redis, its format depends on the
                // encoding.
                if packed {
                    reply.bulk(format_f64(score, &mut [0; F64_TEXT_LEN_MAX]).as_bytes());
                } else {
                    reply.bulk(number::format_f64_17_digits(score).as_bytes());
                }
                step.written += 1;
            }
        });
        step
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::collection::harness_without_new;
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
    fn options_of_zadd_say_who_is_added_and_changed() {
        check_both(&[
            ("ZADD z 1 a 2 b", ":2|"),
            ("ZADD z 3 a 4 c", ":1|"),
            ("ZADD z CH 3 a 5 b 6 d", ":2|"),
            ("ZADD z NX 9 a 9 e", ":1|"),
            ("ZADD z XX 9 f 8 e", ":0|"),
            ("ZADD z XX CH 9 f 9 e", ":1|"),
            ("ZADD z GT CH 2 a 4 a", ":1|"),
            ("ZADD z LT CH 9 a 2 a", ":1|"),
            ("ZADD z LT 7 g", ":1|"),
            ("ZADD z INCR 0.5 a", "$3|2.5|"),
            ("ZADD z NX INCR 1 a", "$-1|"),
            ("ZADD z GT INCR -1 a", "$-1|"),
            ("ZADD z XX INCR 1 nope", "$-1|"),
            ("ZADD nokey XX 1 a", ":0|"),
            ("ZADD nokey XX INCR 1 a", "$-1|"),
            ("ZADD z nx ch 1 a", ":0|"),
            ("ZADD z 5 x 6 x", ":1|"),
            ("ZSCORE z x", "$1|6|"),
            (
                "ZRANGE z 0 -1 WITHSCORES",
                "*14|$1|a|$3|2.5|$1|c|$1|4|$1|b|$1|5|$1|d|$1|6|$1|x|$1|6|$1|g|$1|7|$1|e|$1|9|",
            ),
        ]);
    }

    #[test]
    fn wrong_scores_and_options_change_nothing() {
        check(&[
            ("ZADD z x a", "-ERR value is not a valid float|"),
            ("ZADD z nan a", "-ERR value is not a valid float|"),
            ("ZADD z 1 a x b", "-ERR value is not a valid float|"),
            ("ZADD z 1 a 2", "-ERR syntax error|"),
            ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible|"),
            ("ZADD z GT LT 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible|"),
            ("ZADD z NX GT 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible|"),
            ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair|"),
            ("ZCARD z", ":0|"),
            ("ZADD z inf a", ":1|"),
            ("ZINCRBY z -inf a", "-ERR resulting score is not a number (NaN)|"),
            ("ZINCRBY z x a", "-ERR value is not a valid float|"),
        ]);
    }

    #[test]
    fn scores_and_ranks_are_found_by_name() {
        check_both(&[
            ("ZADD z 1 a 2.5 b -3 c", ":3|"),
            ("ZSCORE z b", "$3|2.5|"),
            ("ZSCORE z d", "$-1|"),
            ("ZMSCORE z c d a", "*3|$2|-3|$-1|$1|1|"),
            ("ZMSCORE nokey c", "*1|$-1|"),
            ("ZRANK z c", ":0|"),
            ("ZRANK z b", ":2|"),
            ("ZRANK z d", "$-1|"),
            ("ZREVRANK z b", ":0|"),
            ("ZREVRANK z c WITHSCORE", "*2|:2|$2|-3|"),
            ("ZRANK z d WITHSCORE", "*-1|"),
            ("ZRANK z b FOO", "-ERR syntax error|"),
            ("ZRANK z b WITHSCORE x", "-ERR wrong number of arguments for 'zrank' command|"),
            ("ZINCRBY z 10 c", "$1|7|"),
            ("ZRANK z c", ":2|"),
            ("ZREM z a x", ":1|"),
            ("ZCARD z", ":2|"),
            ("ZREM z b c", ":2|"),
            ("ZCARD z", ":0|"),
            ("ZREM z b", ":0|"),
        ]);
    }

    #[test]
    fn random_members_are_as_many_as_asked_for() {
        check_both(&[
            ("ZRANDMEMBER z", "$-1|"),
            ("ZRANDMEMBER z 2", "*0|"),
            ("ZADD z 1 a", ":1|"),
            ("ZRANDMEMBER z", "$1|a|"),
            ("ZRANDMEMBER z -2 WITHSCORES", "*4|$1|a|$1|1|$1|a|$1|1|"),
            ("ZRANDMEMBER z 5", "*1|$1|a|"),
            ("ZRANDMEMBER z 5 FOO", "-ERR syntax error|"),
            ("ZSCAN z 0 MATCH a", "*2|$1|0|*2|$1|a|$1|1|"),
            ("ZSCAN z 0 MATCH b", "*2|$1|0|*0|"),
        ]);
    }

    #[test]
    fn scores_are_doubles_and_pairs_are_arrays_to_resp3() {
        let mut db = Harness::new();
        db.protocol = resp::Protocol::Resp3;
        db.line("ZADD z 1 a");
        for (line, reply) in [
            ("ZSCORE z a", ",1|"),
            ("ZINCRBY z 1 a", ",2|"),
            ("ZMSCORE z a b", "*2|,2|_|"),
            ("ZRANK z a WITHSCORE", "*2|:0|,2|"),
            ("ZRANGE z 0 -1 WITHSCORES", "*1|*2|$1|a|,2|"),
            ("ZRANDMEMBER z 1 WITHSCORES", "*1|*2|$1|a|,2|"),
            ("ZSCAN z 0", "*2|$1|0|*2|$1|a|$1|2|"),
            ("ZMPOP 1 nokey MIN", "_|"),
            ("ZMPOP 1 z MIN", "*2|$1|z|*1|*2|$1|a|,2|"),
        ] {
            assert_eq!(db.line(line), reply, "{line}");
        }
    }

    #[test]
    fn events_tell_what_changed() {
        harness_without_new().check_events(&[
            ("ZADD z 1 a 2 b", ":2|", "zadd z@0"),
            ("ZADD z 1 a", ":0|", ""),
            ("ZADD z XX 1 n", ":0|", ""),
            ("ZINCRBY z 1 a", "$1|2|", "zincr z@0"),
            ("ZREM z nope", ":0|", ""),
            ("ZREM z a", ":1|", "zrem z@0"),
            ("ZPOPMIN z", "*2|$1|b|$1|2|", "zpopmin z@0,del z@0"),
            ("ZADD z 1 a 2 b", ":2|", "zadd z@0"),
            ("ZREMRANGEBYRANK z 0 0", ":1|", "zremrangebyrank z@0"),
            ("ZRANGESTORE d z 0 -1", ":1|", "zrangestore d@0"),
            ("ZRANGESTORE d z 5 6", ":0|", "del d@0"),
            ("ZREMRANGEBYLEX z - +", ":1|", "zremrangebylex z@0,del z@0"),
        ]);
    }
}
