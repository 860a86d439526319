//! Union, intersection and difference of sorted sets and sets, replied, stored or counted. A member
//! of a plain set has the score 1.
//!
//! Every command first reads each key by itself: this checks the type, counts the read and removes
//! an expired key. Then it reads all inputs together. Results are lists of members that borrow
//! their names from the inputs. They are sorted at the end.

use std::borrow::Cow;

use keyspace::{Key, Object, Set, View, Zset};
use structures::entry::View as EntryView;
use structures::listpack::element::{Element, IntText};
use structures::ranked_members::order;

use super::range::store;
use super::{Scores, begin_members, record_decimals, write_member};
use crate::args::Args;
use crate::collection::zset_limits;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The operation on several sorted sets: union, intersection or difference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    Union,
    Inter,
    Diff,
}

/// The function that computes the score of a member from its scores in several sets.
#[derive(Clone, Copy)]
enum Aggregate {
    Sum,
    Min,
    Max,
}

impl Aggregate {
    fn join(self, a: f64, b: f64) -> f64 {
        match self {
            // The sum of infinities of both signs is NaN, which counts as zero.
            Aggregate::Sum => or_zero(a + b),
            Aggregate::Min => {
                if b < a {
                    b
                } else {
                    a
                }
            }
            Aggregate::Max => {
                if b > a {
                    b
                } else {
                    a
                }
            }
        }
    }
}

/// Returns the aggregated score, or zero if it is NaN.
fn or_zero(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// A sorted set or set that is an operand of ZUNION or a similar command, with its weight.
#[derive(Clone, Copy)]
struct Input<'a> {
    source: Source<'a>,
    weight: f64,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Absent,
    Set(&'a Set),
    Zset(&'a Zset),
}

impl<'a> Source<'a> {
    fn len(self) -> usize {
        match self {
            Source::Absent => 0,
            Source::Set(set) => set.len(),
            Source::Zset(zset) => zset.len(),
        }
    }

    fn score(self, member: &[u8], args: &Args<'_>) -> Option<f64> {
        match self {
            Source::Absent => None,
            Source::Set(set) => set.contains(member, args.hasher()).then_some(1.0),
            Source::Zset(zset) => zset.score(member, args.hasher()),
        }
    }

    /// Calls `visit` with every member of the input and its score, until `visit` returns false.
    fn each(self, mut visit: impl FnMut(Element<'a>, f64) -> bool) {
        match self {
            Source::Absent => {}
            Source::Set(set) => {
                let _stopped = set.iter().all(|member| visit(member, 1.0));
            }
            Source::Zset(zset) => {
                let _stopped = zset.iter().all(|(member, score)| visit(member, score));
            }
        }
    }
}

/// A member of the result of ZUNION or a similar command, with its score.
struct Scored<'a> {
    member: Cow<'a, [u8]>,
    score: f64,
}

/// Returns a member's name, borrowed if it is stored as bytes.
fn name(member: Element<'_>) -> Cow<'_, [u8]> {
    match member {
        Element::Bytes(bytes) => Cow::Borrowed(bytes),
        Element::Int(_) => Cow::Owned(member.text(&mut IntText::new()).to_vec()),
    }
}

/// A parsed request of ZUNION, ZINTER, ZDIFF or a related command: the arguments that name the
/// sets, and the options after them.
struct Request {
    operation: Operation,
    /// The index of the argument that is the number of keys of the operation.
    count_at: usize,
    key_count: usize,
    /// The weights of the keys' scores (WEIGHTS); empty if all weights are 1.
    weights: Vec<f64>,
    aggregate: Aggregate,
    scores: Scores,
    /// The option LIMIT of ZINTERCARD; 0 is no limit.
    limit: usize,
}

/// The options that a command accepts: those of ZUNION, of ZUNIONSTORE, or of ZINTERCARD.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AllowedOptions {
    Members,
    Stored,
    Count,
}

impl Request {
    /// Parses the number of keys, checks that the keys hold sorted sets or sets, and parses the
    /// options.
    fn parse(
        ctx: &mut Ctx<'_>,
        args: &Args<'_>,
        operation: Operation,
        answer: AllowedOptions,
    ) -> Result<Self, CommandError> {
        let count_at = if answer == AllowedOptions::Stored { 2 } else { 1 };
        let key_count = args.integer(count_at)?;
        if key_count < 1 {
            let command = String::from_utf8_lossy(args.get(0)).to_ascii_lowercase();
            return Err(CommandError::Text(format!(
                "ERR at least 1 input key is needed for '{command}' command"
            )));
        }
        if key_count > (args.len() - count_at - 1) as i64 {
            return Err(CommandError::Syntax);
        }
        let mut request = Request {
            operation,
            count_at,
            key_count: key_count as usize,
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            scores: Scores::Hidden,
            limit: 0,
        };
        for key in request.keys(args) {
            match ctx.db.get(key).map(|entry| entry.view()) {
                None | Some(EntryView::Object(Object::Set(_) | Object::Zset(_))) => {}
                Some(_) => return Err(CommandError::WrongType),
            }
        }
        request.parse_options(args, answer)?;
        Ok(request)
    }

    fn parse_options(&mut self, args: &Args<'_>, answer: AllowedOptions) -> Result<(), CommandError> {
        let scored = answer != AllowedOptions::Count && self.operation != Operation::Diff;
        let mut at = self.count_at + 1 + self.key_count;
        while at < args.len() {
            let left = args.len() - at;
            if scored && left > self.key_count && args.is(at, "WEIGHTS") {
                self.weights.clear();
                for weight in at + 1..=at + self.key_count {
                    let weight = args.float(weight);
                    self.weights
                        .push(weight.map_err(|_| CommandError::Line("ERR weight value is not a float"))?);
                }
                at += 1 + self.key_count;
            } else if scored && left >= 2 && args.is(at, "AGGREGATE") {
                self.aggregate = match () {
                    () if args.is(at + 1, "SUM") => Aggregate::Sum,
                    () if args.is(at + 1, "MIN") => Aggregate::Min,
                    () if args.is(at + 1, "MAX") => Aggregate::Max,
                    () => return Err(CommandError::Syntax),
                };
                at += 2;
            } else if answer == AllowedOptions::Members && args.is(at, "WITHSCORES") {
                self.scores = Scores::Shown;
                at += 1;
            } else if answer == AllowedOptions::Count && left >= 2 && args.is(at, "LIMIT") {
                let limit =
                    stdx::number::parse_i64(args.get(at + 1)).and_then(|limit| usize::try_from(limit).ok());
                self.limit = limit.ok_or(CommandError::Line("ERR LIMIT can't be negative"))?;
                at += 2;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(())
    }

    fn keys<'a>(&self, args: &Args<'a>) -> impl Iterator<Item = Key<'a>> + use<'a> {
        let (args, first, count) = (*args, self.count_at + 1, self.key_count);
        (first..first + count).map(move |at| args.key(at))
    }

    /// Returns the present values of the request's keys (sorted sets or sets) with their weights.
    fn inputs<'c>(&self, db: &'c View<'_>, args: &Args<'_>) -> Vec<Input<'c>> {
        let source = |key| match (db.reread::<Zset>(key), db.reread::<Set>(key)) {
            (Some(zset), _) => Source::Zset(zset),
            (None, Some(set)) => Source::Set(set),
            (None, None) => Source::Absent,
        };
        let weights = self.weights.iter().copied().chain(std::iter::repeat(1.0));
        let keys = self.keys(args).zip(weights);
        keys.map(|(key, weight)| Input { source: source(key), weight }).collect()
    }

    /// Computes the result of the union, intersection or difference, ordered by score and then by
    /// name.
    fn compute<'c>(&self, db: &'c View<'_>, args: &Args<'_>) -> Vec<Scored<'c>> {
        let mut inputs = self.inputs(db, args);
        if self.operation != Operation::Diff {
            inputs.sort_by_key(|input| input.source.len());
        }
        let mut result = match self.operation {
            Operation::Union => self.unite(&inputs),
            Operation::Inter => {
                let mut members = Vec::new();
                self.intersect(&inputs, args, |member, score| {
                    members.push(Scored { member: name(member), score });
                    true
                });
                members
            }
            Operation::Diff => subtract(&inputs, args),
        };
        result.sort_unstable_by(|a, b| order((a.score, &a.member), (b.score, &b.member)));
        result
    }

    /// Returns the members of all inputs, each member once. Sorting brings equal names together.
    /// Memory stays proportional to the largest input and the result, even if a request names the
    /// same key many times.
    fn unite<'c>(&self, inputs: &[Input<'c>]) -> Vec<Scored<'c>> {
        let (mut members, mut distinct) = (Vec::new(), 0);
        for input in inputs {
            if members.len() + input.source.len() > 2 * (distinct + input.source.len()) {
                self.join_equal(&mut members);
                distinct = members.len();
            }
            input.source.each(|member, score| {
                members.push(Scored { member: name(member), score: or_zero(score * input.weight) });
                true
            });
        }
        self.join_equal(&mut members);
        members
    }

    /// Sorts `members` by name, and replaces several members of the same name by one with the
    /// aggregated score.
    fn join_equal(&self, members: &mut Vec<Scored<'_>>) {
        // The sort is stable, so that scores are added in the order of the inputs.
        members.sort_by(|a, b| a.member.cmp(&b.member));
        members.dedup_by(|later, first| {
            let same = later.member == first.member;
            if same {
                first.score = self.aggregate.join(first.score, later.score);
            }
            same
        });
    }

    /// Calls `visit` with each member that all inputs have and its aggregated score, until `visit`
    /// returns false.
    fn intersect<'c>(
        &self,
        inputs: &[Input<'c>],
        args: &Args<'_>,
        mut visit: impl FnMut(Element<'c>, f64) -> bool,
    ) {
        let Some((smallest, others)) = inputs.split_first() else { return };
        smallest.source.each(|member, score| {
            let mut scratch = IntText::new();
            let text = member.text(&mut scratch);
            let mut joined = or_zero(score * smallest.weight);
            for other in others {
                let Some(score) = other.source.score(text, args) else { return true };
                joined = self.aggregate.join(joined, score * other.weight);
            }
            visit(member, joined)
        });
    }
}

/// Returns the members of the first input that no other input has.
fn subtract<'c>(inputs: &[Input<'c>], args: &Args<'_>) -> Vec<Scored<'c>> {
    let mut members = Vec::new();
    let Some((first, others)) = inputs.split_first() else { return members };
    first.source.each(|member, score| {
        let mut scratch = IntText::new();
        let text = member.text(&mut scratch);
        if !others.iter().any(|other| other.source.score(text, args).is_some()) {
            members.push(Scored { member: name(member), score });
        }
        true
    });
    members
}

/// Parses the request, computes the operation and replies with the members of the result.
fn reply_with(ctx: &mut Ctx<'_>, args: &Args<'_>, operation: Operation) -> Result<(), CommandError> {
    let request = Request::parse(ctx, args, operation, AllowedOptions::Members)?;
    let result = request.compute(&ctx.db, args);
    begin_members(&mut ctx.reply, result.len(), request.scores);
    for scored in &result {
        let score = (request.scores == Scores::Shown).then_some(scored.score);
        write_member(&mut ctx.reply, Element::Bytes(&scored.member), score);
    }
    Ok(())
}

/// Parses the request, computes the operation, stores the result at argument 1 and replies with its
/// length.
fn store_result(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    operation: Operation,
    event: &'static str,
) -> Result<(), CommandError> {
    let request = Request::parse(ctx, args, operation, AllowedOptions::Stored)?;
    let limits = zset_limits(ctx);
    let result = request.compute(&ctx.db, args);
    let mut zset = Zset::new();
    let longest = result.iter().map(|scored| scored.member.len()).max().unwrap_or(0);
    zset.expect(result.len(), longest, &limits, args.hasher());
    for scored in &result {
        zset.set(&scored.member, scored.score, &limits, args.hasher());
    }
    drop(result);
    if ctx.effects.record.is_wanted {
        let options_at = request.count_at + 1 + request.key_count;
        // The event has the same name as the command.
        record_decimals(ctx, args, event, options_at..args.len());
    }
    store(ctx, args.key(1), zset, event);
    Ok(())
}

pub(super) static ZUNION: Command = Command {
    name: "ZUNION",
    summary: "Returns the union of sorted sets.",
    history: History::since("6.2.0"),
    group: Group::SortedSet,
    complexity: "O(N)+O(M*log(M)), N members in all, M in the result",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::counted(1, 0, 1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::integer("weight").token("WEIGHTS").optional().multiple(),
        Arg::one_of(
            "aggregate",
            &[Arg::word("sum", "SUM"), Arg::word("min", "MIN"), Arg::word("max", "MAX")],
        )
        .token("AGGREGATE")
        .optional(),
        Arg::word("withscores", "WITHSCORES").optional(),
    ],
    run: zunion,
    ..Command::DEFAULT
};
/// Handles ZUNION: replies with the members in ascending order of their scores.
fn zunion(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_with(ctx, args, Operation::Union)
}

pub(super) static ZUNIONSTORE: Command = Command {
    name: "ZUNIONSTORE",
    summary: "Stores the union of sorted sets.",
    history: History::since("2.0.0"),
    group: Group::SortedSet,
    complexity: "O(N)+O(M*log(M)), N members in all, M in the result",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[
        KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE)),
        KeySpec::counted(2, 0, 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
    ],
    args: &[
        Arg::key("destination", 0),
        Arg::integer("numkeys"),
        Arg::key("key", 1).multiple(),
        Arg::integer("weight").token("WEIGHTS").optional().multiple(),
        Arg::one_of(
            "aggregate",
            &[Arg::word("sum", "SUM"), Arg::word("min", "MIN"), Arg::word("max", "MAX")],
        )
        .token("AGGREGATE")
        .optional(),
    ],
    run: zunionstore,
    ..Command::DEFAULT
};
/// Handles ZUNIONSTORE: replies with the number of stored members.
fn zunionstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    store_result(ctx, args, Operation::Union, "zunionstore")
}

pub(super) static ZINTER: Command = Command {
    name: "ZINTER",
    summary: "Returns the intersection of sorted sets.",
    complexity: "O(N*K)+O(M*log(M)), N members in the smallest of K sets, M in the result",
    run: zinter,
    ..ZUNION
};
/// Handles ZINTER: replies with the members in ascending order of their scores.
fn zinter(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_with(ctx, args, Operation::Inter)
}

pub(super) static ZINTERSTORE: Command = Command {
    name: "ZINTERSTORE",
    summary: "Stores the intersection of sorted sets.",
    complexity: "O(N*K)+O(M*log(M)), N members in the smallest of K sets, M in the result",
    run: zinterstore,
    ..ZUNIONSTORE
};
/// Handles ZINTERSTORE: replies with the number of stored members.
fn zinterstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    store_result(ctx, args, Operation::Inter, "zinterstore")
}

pub(super) static ZINTERCARD: Command = Command {
    name: "ZINTERCARD",
    summary: "Returns the number of members in the intersection of sorted sets.",
    history: History::since("7.0.0"),
    group: Group::SortedSet,
    complexity: "O(N*K), N members in the smallest of K sets",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::counted(1, 0, 1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::integer("limit").token("LIMIT").optional(),
    ],
    run: zintercard,
    ..Command::DEFAULT
};
/// Handles ZINTERCARD: replies with the number of members that all sets have, or with LIMIT if
/// there are more.
fn zintercard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = Request::parse(ctx, args, Operation::Inter, AllowedOptions::Count)?;
    let mut inputs = request.inputs(&ctx.db, args);
    inputs.sort_by_key(|input| input.source.len());
    let mut count = 0;
    request.intersect(&inputs, args, |_, _| {
        count += 1;
        count != request.limit
    });
    ctx.reply.integer(count as i64);
    Ok(())
}

pub(super) static ZDIFF: Command = Command {
    name: "ZDIFF",
    summary: "Returns the difference of sorted sets: the members of the first that no other has.",
    history: History::since("6.2.0"),
    group: Group::SortedSet,
    complexity: "O(N*K)+O(M*log(M)), N members in the first of K sets, M in the result",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SORTEDSET),
    keys: &[KeySpec::counted(1, 0, 1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::word("withscores", "WITHSCORES").optional(),
    ],
    run: zdiff,
    ..Command::DEFAULT
};
/// Handles ZDIFF: replies with the members in ascending order of their scores.
fn zdiff(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_with(ctx, args, Operation::Diff)
}

pub(super) static ZDIFFSTORE: Command = Command {
    name: "ZDIFFSTORE",
    summary: "Stores the difference of sorted sets: the members of the first that no other has.",
    history: History::since("6.2.0"),
    group: Group::SortedSet,
    complexity: "O(N*K)+O(M*log(M)), N members in the first of K sets, M in the result",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::SORTEDSET),
    keys: &[
        KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE)),
        KeySpec::counted(2, 0, 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
    ],
    args: &[Arg::key("destination", 0), Arg::integer("numkeys"), Arg::key("key", 1).multiple()],
    run: zdiffstore,
    ..Command::DEFAULT
};
/// Handles ZDIFFSTORE: replies with the number of stored members.
fn zdiffstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    store_result(ctx, args, Operation::Diff, "zdiffstore")
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
    fn scores_are_weighted_and_joined() {
        check_both(&[
            ("ZADD a 1 x 2 y", ":2|"),
            ("ZADD b 10 y 20 z", ":2|"),
            ("SADD s y z 7", ":3|"),
            ("ZUNION 2 a b WITHSCORES", "*6|$1|x|$1|1|$1|y|$2|12|$1|z|$2|20|"),
            ("ZUNION 2 a b", "*3|$1|x|$1|y|$1|z|"),
            ("ZUNION 2 a b WEIGHTS 2 -1 WITHSCORES", "*6|$1|z|$3|-20|$1|y|$2|-6|$1|x|$1|2|"),
            ("ZUNION 2 a b AGGREGATE MIN WITHSCORES", "*6|$1|x|$1|1|$1|y|$1|2|$1|z|$2|20|"),
            ("ZUNION 2 a b AGGREGATE max WITHSCORES", "*6|$1|x|$1|1|$1|y|$2|10|$1|z|$2|20|"),
            ("ZUNION 2 a s WITHSCORES", "*8|$1|7|$1|1|$1|x|$1|1|$1|z|$1|1|$1|y|$1|3|"),
            ("ZINTER 3 a b s WITHSCORES", "*2|$1|y|$2|13|"),
            ("ZINTER 2 a nokey", "*0|"),
            ("ZINTER 2 a a WITHSCORES", "*4|$1|x|$1|2|$1|y|$1|4|"),
            ("ZDIFF 2 b a WITHSCORES", "*2|$1|z|$2|20|"),
            ("ZDIFF 2 s a WITHSCORES", "*4|$1|7|$1|1|$1|z|$1|1|"),
            ("ZDIFF 2 a a", "*0|"),
            ("ZINTERCARD 2 a b", ":1|"),
            ("ZINTERCARD 2 a a LIMIT 1", ":1|"),
            ("ZUNIONSTORE d 2 a b WEIGHTS 1 2", ":3|"),
            ("ZRANGE d 0 -1 WITHSCORES", "*6|$1|x|$1|1|$1|y|$2|22|$1|z|$2|40|"),
            ("ZINTERSTORE a 2 a b", ":1|"),
            ("ZRANGE a 0 -1 WITHSCORES", "*2|$1|y|$2|12|"),
            ("ZDIFFSTORE d 2 d b", ":1|"),
            ("ZDIFFSTORE d 1 nokey", ":0|"),
            ("ZCARD d", ":0|"),
        ]);
    }

    #[test]
    fn infinities_never_make_a_score_that_is_no_number() {
        check_both(&[
            ("ZADD p inf a", ":1|"),
            ("ZADD m -inf a", ":1|"),
            ("ZUNION 2 p m WITHSCORES", "*2|$1|a|$1|0|"),
            ("ZINTER 2 p m WITHSCORES", "*2|$1|a|$1|0|"),
            ("ZUNION 1 p WEIGHTS 0 WITHSCORES", "*2|$1|a|$1|0|"),
        ]);
    }

    #[test]
    fn wrong_requests_are_told_apart() {
        check(&[
            ("ZUNION 0 a", "-ERR at least 1 input key is needed for 'zunion' command|"),
            ("ZINTERSTORE d 0 a", "-ERR at least 1 input key is needed for 'zinterstore' command|"),
            ("ZUNION x a", "-ERR value is not an integer or out of range|"),
            ("ZUNION 3 a", "-ERR syntax error|"),
            ("ZUNION 1 a WEIGHTS", "-ERR syntax error|"),
            ("ZUNION 1 a WEIGHTS x", "-ERR weight value is not a float|"),
            ("ZUNION 1 a AGGREGATE foo", "-ERR syntax error|"),
            ("ZUNIONSTORE d 1 a WITHSCORES", "-ERR syntax error|"),
            ("ZDIFF 1 a WEIGHTS 1", "-ERR syntax error|"),
            ("ZINTERCARD 1 a LIMIT -1", "-ERR LIMIT can't be negative|"),
            ("SET s x", "+OK|"),
            ("ZUNION 2 nokey s", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }

    #[test]
    fn a_union_of_one_key_many_times_takes_no_memory_for_each() {
        use super::{Aggregate, Input, Operation, Request, Scores, Source};
        use keyspace::{Hasher, PackLimits, Zset};
        let (hasher, limits) =
            (Hasher::with_seed([1; 4]), PackLimits { entries_max: 8, value_len_bytes_max: 64 });
        let mut zset = Zset::new();
        for member in 0..1_000_u32 {
            zset.set(&member.to_be_bytes(), 1.0, &limits, &hasher);
        }
        let request = Request {
            operation: Operation::Union,
            count_at: 1,
            key_count: 500,
            weights: Vec::new(),
            aggregate: Aggregate::Sum,
            scores: Scores::Hidden,
            limit: 0,
        };
        let inputs: Vec<Input<'_>> =
            (0..500).map(|_| Input { source: Source::Zset(&zset), weight: 1.0 }).collect();
        let united = request.unite(&inputs);
        assert!(united.len() == 1_000 && united.iter().all(|scored| scored.score == 500.0));
        assert!(united.capacity() < 10_000, "{} places", united.capacity());
    }
}
