//! Blocking commands on sorted sets. If none of the keys has a member, they block the client.

use super::pop::{End, Layout, MultiPop, Wanted, pop};
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use crate::wait::{Awaited, BlockingKey, EmptyReply, timeout_seconds};

pub(super) static BZPOPMIN: Command = Command {
    name: "BZPOPMIN",
    summary: "Removes and returns the member with the lowest score of the first non-empty sorted set. \
         Blocks until there is a member.",
    history: History::since("5.0.0").changed(&[("6.0.0", "takes a timeout with fractions of a second")]),
    group: Group::SortedSet,
    complexity: "O(log(N))",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::BLOCKING).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SORTEDSET).union(Acl::BLOCKING),
    keys: &[KeySpec::range(1, -2, 1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0).multiple(), Arg::double("timeout")],
    run: bzpopmin,
    ..Command::DEFAULT
};
/// Handles BZPOPMIN: replies with the key, its lowest member and the score, or null after the
/// timeout.
fn bzpopmin(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    pop_or_wait(ctx, args, End::Min)
}

pub(super) static BZPOPMAX: Command = Command {
    name: "BZPOPMAX",
    summary: "Removes and returns the member with the highest score of the first non-empty sorted set. \
         Blocks until there is a member.",
    run: bzpopmax,
    ..BZPOPMIN
};
/// Handles BZPOPMAX: replies with the key, its highest member and the score, or null after the
/// timeout.
fn bzpopmax(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    pop_or_wait(ctx, args, End::Max)
}

fn pop_or_wait(ctx: &mut Ctx<'_>, args: &Args<'_>, end: End) -> Result<(), CommandError> {
    let timeout_at = args.len() - 1;
    let timeout_ms = timeout_seconds(args, timeout_at)?;
    let wanted = Wanted { end, count: 1, layout: Layout::SingleWithKey };
    for index in 1..timeout_at {
        if pop(ctx, args, args.key(index), wanted)? > 0 {
            ctx.record(|record| {
                record.command(end.command()).word(args.get(index));
            });
            return Ok(());
        }
    }
    ctx.block_or_reply_empty(timeout_ms, EmptyReply::NullArray, || {
        (1..timeout_at).map(|index| BlockingKey::new(args.key(index), Awaited::Zset)).collect::<Vec<_>>()
    });
    Ok(())
}

pub(super) static BZMPOP: Command = Command {
    name: "BZMPOP",
    summary: "Removes and returns members with the lowest or highest scores of the first non-empty sorted \
         set. Blocks until there is a member.",
    history: History::since("7.0.0"),
    group: Group::SortedSet,
    complexity: "O(K)+O(M*log(N)), K keys, M members",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::BLOCKING),
    acl: Acl::WRITE.union(Acl::SORTEDSET).union(Acl::BLOCKING),
    keys: &[KeySpec::counted(2, 0, 1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[
        Arg::double("timeout"),
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::one_of("where", &[Arg::word("min", "MIN"), Arg::word("max", "MAX")]),
        Arg::integer("count").token("COUNT").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: bzmpop,
    ..Command::DEFAULT
};
/// Handles BZMPOP: replies with the key and the popped members with their scores, or null after the
/// timeout.
fn bzmpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = MultiPop::parse(args, 2)?;
    let timeout_ms = timeout_seconds(args, 1)?;
    if !request.pop(ctx, args)? {
        ctx.block_or_reply_empty(timeout_ms, EmptyReply::NullArray, || {
            let keys = request.keys.clone();
            keys.map(|index| BlockingKey::new(args.key(index), Awaited::Zset)).collect::<Vec<_>>()
        });
    }
    Ok(())
}
