//! Blocking list commands: without an element they block the client.

use keyspace::{List, ListEnd};

use super::transfer::{MultiPop, end_named, move_one};
use super::{limits, note_pop, pop_command};
use crate::args::Args;
use crate::collection::bulk;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};
use crate::wait::{Awaited, BlockingKey, EmptyReply, timeout_seconds};

pub(super) static BLPOP: Command = Command {
    name: "BLPOP",
    summary: "Removes and returns the first element of the first non-empty list. Blocks until a list has \
         an element.",
    history: History::since("2.0.0").changed(&[("6.0.0", "takes a timeout with fractions of a second")]),
    group: Group::List,
    complexity: "O(N)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::BLOCKING),
    acl: Acl::WRITE.union(Acl::LIST).union(Acl::BLOCKING),
    keys: &[KeySpec::range(1, -2, 1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0).multiple(), Arg::double("timeout")],
    run: blpop,
    ..Command::DEFAULT
};
/// Handles BLPOP: replies with the key and its first element, or null after the timeout.
fn blpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    pop_or_wait(ctx, args, ListEnd::Front)
}

pub(super) static BRPOP: Command = Command {
    name: "BRPOP",
    summary: "Removes and returns the last element of the first non-empty list. Blocks until a list has an \
         element.",
    run: brpop,
    ..BLPOP
};
/// Handles BRPOP: replies with the key and its last element, or null after the timeout.
fn brpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    pop_or_wait(ctx, args, ListEnd::Back)
}

fn pop_or_wait(ctx: &mut Ctx<'_>, args: &Args<'_>, end: ListEnd) -> Result<(), CommandError> {
    let timeout_at = args.len() - 1;
    let timeout_ms = timeout_seconds(args, timeout_at)?;
    let limits = limits(ctx);
    for index in 1..timeout_at {
        let key = args.key(index);
        let Some(list) = ctx.db.write::<List>(key)? else { continue };
        ctx.reply.array(2);
        ctx.reply.bulk(key.bytes);
        list.pop(end, 1, limits, |element| bulk(&mut ctx.reply, element));
        note_pop(ctx, 1, end, key);
        ctx.record(|record| {
            record.command(pop_command(end)).word(key.bytes);
        });
        return Ok(());
    }
    ctx.block_or_reply_empty(timeout_ms, EmptyReply::NullArray, || {
        (1..timeout_at).map(|index| BlockingKey::new(args.key(index), Awaited::List)).collect::<Vec<_>>()
    });
    Ok(())
}

pub(super) static BLMOVE: Command = Command {
    name: "BLMOVE",
    summary: "Moves an element from one end of a list to one end of another list and returns it. Blocks \
         until there is an element.",
    history: History::since("6.2.0"),
    group: Group::List,
    complexity: "O(1)",
    arity: Arity::Exactly(6),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
    acl: Acl::WRITE.union(Acl::LIST).union(Acl::BLOCKING),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
    ],
    args: &[
        Arg::key("source", 0),
        Arg::key("destination", 1),
        Arg::one_of("wherefrom", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::one_of("whereto", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::double("timeout"),
    ],
    run: blmove,
    ..Command::DEFAULT
};
/// Handles BLMOVE: replies with the moved element, or null after the timeout.
fn blmove(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (from, to) = (end_named(args, 3)?, end_named(args, 4)?);
    if move_or_wait(ctx, args, (from, to), EmptyReply::NullUnlessWaited)? {
        ctx.record(|record| {
            record.command("LMOVE").words(args.from(1).take(4));
        });
    }
    Ok(())
}

pub(super) static BRPOPLPUSH: Command = Command {
    name: "BRPOPLPUSH",
    summary: "Moves the last element of a list to the head of another list and returns it. Blocks until \
         there is an element.",
    history: History::since("2.2.0")
        .changed(&[("6.0.0", "takes a timeout with fractions of a second")])
        .deprecated("6.2.0", "`BLMOVE` with the `RIGHT` and `LEFT` arguments"),
    group: Group::List,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::BLOCKING),
    acl: Acl::WRITE.union(Acl::LIST).union(Acl::BLOCKING),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
    ],
    args: &[Arg::key("source", 0), Arg::key("destination", 1), Arg::double("timeout")],
    run: brpoplpush,
    ..Command::DEFAULT
};
/// Handles BRPOPLPUSH: like `BLMOVE source destination RIGHT LEFT timeout`.
fn brpoplpush(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if move_or_wait(ctx, args, (ListEnd::Back, ListEnd::Front), EmptyReply::NullUnlessWaited)? {
        ctx.record(|record| {
            record.command("RPOPLPUSH").words(args.from(1).take(2));
        });
    }
    Ok(())
}

/// Moves an element between the lists at arguments 1 and 2 and returns true. If the source is
/// missing, blocks the client or writes the `empty` reply, and returns false.
fn move_or_wait(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    (from, to): (ListEnd, ListEnd),
    empty: EmptyReply,
) -> Result<bool, CommandError> {
    let timeout_ms = timeout_seconds(args, args.len() - 1)?;
    let moved = move_one(ctx, args, from, to)?;
    if !moved {
        ctx.block_or_reply_empty(timeout_ms, empty, || vec![BlockingKey::new(args.key(1), Awaited::List)]);
    }
    Ok(moved)
}

pub(super) static BLMPOP: Command = Command {
    name: "BLMPOP",
    summary: "Removes and returns elements of the first non-empty list. Blocks until a list has an \
         element.",
    history: History::since("7.0.0"),
    group: Group::List,
    complexity: "O(N+M)",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::BLOCKING),
    acl: Acl::WRITE.union(Acl::LIST).union(Acl::BLOCKING),
    keys: &[KeySpec::counted(2, 0, 1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[
        Arg::double("timeout"),
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::one_of("where", &[Arg::word("left", "LEFT"), Arg::word("right", "RIGHT")]),
        Arg::integer("count").token("COUNT").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: blmpop,
    ..Command::DEFAULT
};
/// Handles BLMPOP: replies with the key and the popped elements, or null after the timeout.
fn blmpop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = MultiPop::parse(args, 2)?;
    let timeout_ms = timeout_seconds(args, 1)?;
    if !request.pop(ctx, args)? {
        ctx.block_or_reply_empty(timeout_ms, EmptyReply::NullArray, || {
            request.keys().map(|index| BlockingKey::new(args.key(index), Awaited::List)).collect::<Vec<_>>()
        });
    }
    Ok(())
}
