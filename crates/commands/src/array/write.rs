//! Commands that change an array.

use keyspace::Array;
use structures::array::INDEX_MAX;

use super::{READS, index, index_or_end, unsigned};
use crate::args::Args;
use crate::collection::remove_emptied;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::{KnownSince, RecordedForm};
use crate::table::{Acl, Arg, Arity, Command, Flags, KeyFlags, KeySpec};

/// The record of a command that adds elements, for the others to start from.
const ADDS: Command = Command {
    complexity: "O(N) with N being the number of elements",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::ARRAY),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    recorded_forms: &[RecordedForm::known_since(KnownSince::ARRAYS)],
    ..READS
};

/// The record of a command that removes elements, for the others to start from.
const REMOVES: Command =
    Command { flags: Flags::WRITE, keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))], ..ADDS };

pub(super) static ARSET: Command = Command {
    name: "ARSET",
    summary: "Sets one or more elements of an array, at consecutive indexes. Creates the array if it does not \
         exist.",
    args: &[Arg::key("key", 0), Arg::integer("index"), Arg::string("value").multiple()],
    run: arset,
    ..ADDS
};
/// Handles ARSET: replies with the number of elements that are new.
fn arset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, first, count) = (args.key(1), index(args, 2)?, args.len() - 3);
    if first.checked_add(count as u64 - 1).is_none_or(|last| last > INDEX_MAX) {
        return Err(CommandError::Line("ERR array index overflow"));
    }
    let array = ctx.db.write_or_insert::<Array>(key)?;
    // The indexes come second: after the last value, the next index is not computed.
    let places = (3..args.len()).zip(first..);
    let added = places.filter(|&(at, index)| array.set(index, args.get(at))).count();
    ctx.changed_by(count as u64, EventClass::ARRAY, "arset", key);
    ctx.reply.integer(added as i64);
    Ok(())
}

pub(super) static ARMSET: Command = Command {
    name: "ARMSET",
    summary: "Sets elements at any indexes of an array. Creates the array if it does not exist.",
    args: &[
        Arg::key("key", 0),
        Arg::block("data", &[Arg::integer("index"), Arg::string("value")]).multiple(),
    ],
    run: armset,
    ..ADDS
};
/// Handles ARMSET: replies with the number of elements that are new. Of two values for the same
/// index, the second one remains.
fn armset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("armset"));
    }
    let places = || (2..args.len()).step_by(2);
    places().try_for_each(|at| index(args, at).map(drop))?;
    let key = args.key(1);
    let array = ctx.db.write_or_insert::<Array>(key)?;
    let mut added = 0;
    for at in places() {
        added += i64::from(array.set(index(args, at)?, args.get(at + 1)));
    }
    ctx.changed_by(places().len() as u64, EventClass::ARRAY, "armset", key);
    ctx.reply.integer(added);
    Ok(())
}

pub(super) static ARINSERT: Command = Command {
    name: "ARINSERT",
    summary: "Inserts elements into an array behind the last insertion. Creates the array if it does not exist.",
    arity: Arity::AtLeast(3),
    args: &[Arg::key("key", 0), Arg::string("value").multiple()],
    run: arinsert,
    ..ADDS
};
/// Handles ARINSERT: replies with the index of the last inserted element.
fn arinsert(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    // A new array has room for every request, so no empty array remains after the error.
    let array = ctx.db.write_or_insert::<Array>(key)?;
    let values = (2..args.len()).map(|at| args.get(at));
    let last = array.insert(values).ok_or(CommandError::Line("ERR insert index overflow"))?;
    ctx.changed_by(args.len() as u64 - 2, EventClass::ARRAY, "arinsert", key);
    unsigned(&mut ctx.reply, last);
    Ok(())
}

pub(super) static ARRING: Command = Command {
    name: "ARRING",
    summary: "Inserts elements into an array that is used as a ring of a given size. Creates the array if it \
         does not exist.",
    complexity: "O(M) with M being the number of values; O(N+M) if the size changes, with N being the larger of \
         the old and the new size",
    flags: Flags::WRITE.union(Flags::DENYOOM),
    args: &[Arg::key("key", 0), Arg::integer("size"), Arg::string("value").multiple()],
    run: arring,
    ..ADDS
};
/// Handles ARRING: replies with the index of the last inserted element.
fn arring(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let size = args.integer(2).map_err(|_| CommandError::Line("ERR invalid size"))?;
    let size = u64::try_from(size).ok().filter(|&size| size > 0);
    let size = size.ok_or(CommandError::MustBePositive("size"))?;
    let key = args.key(1);
    let array = ctx.db.write_or_insert::<Array>(key)?;
    array.resize_ring(size);
    let last = (3..args.len()).map(|at| array.insert_into_ring(size, args.get(at))).last();
    ctx.changed_by(args.len() as u64 - 3, EventClass::ARRAY, "arring", key);
    unsigned(&mut ctx.reply, last.expect("the arity demands a value"));
    Ok(())
}

pub(super) static ARSEEK: Command = Command {
    name: "ARSEEK",
    summary: "Sets the index of the next insertion into an array by ARINSERT or ARRING.",
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::FAST),
    args: &[Arg::key("key", 0), Arg::integer("index")],
    run: arseek,
    ..ADDS
};
/// Handles ARSEEK: replies with 1, or 0 if the key is missing. After the number behind the highest
/// index no insertion is possible.
fn arseek(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, index) = (args.key(1), index_or_end(args, 2)?);
    let Some(array) = ctx.db.write::<Array>(key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    array.seek(index);
    ctx.changed(EventClass::ARRAY, "arseek", key);
    ctx.reply.integer(1);
    Ok(())
}

pub(super) static ARDEL: Command = Command {
    name: "ARDEL",
    summary: "Removes elements at any indexes of an array. Deletes the array if no element remains.",
    complexity: "O(N) with N being the number of indexes",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::FAST),
    args: &[Arg::key("key", 0), Arg::integer("index").multiple()],
    run: ardel,
    ..REMOVES
};
/// Handles ARDEL: replies with the number of removed elements.
fn ardel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    (2..args.len()).try_for_each(|at| index(args, at).map(drop))?;
    remove(ctx, args, "ardel", |array| {
        let indexes = (2..args.len()).filter_map(|at| index(args, at).ok());
        indexes.filter(|&index| array.remove(index)).count() as u64
    })
}

pub(super) static ARDELRANGE: Command = Command {
    name: "ARDELRANGE",
    summary: "Removes the elements in ranges of indexes of an array. Deletes the array if no element remains.",
    complexity: "O(N) with N being the number of removed elements",
    args: &[
        Arg::key("key", 0),
        Arg::block("range", &[Arg::integer("start"), Arg::integer("end")]).multiple(),
    ],
    run: ardelrange,
    ..REMOVES
};
/// Handles ARDELRANGE: replies with the number of removed elements. The bounds of a range may come
/// in either order.
fn ardelrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if !args.len().is_multiple_of(2) {
        return Err(CommandError::WrongArity("ardelrange"));
    }
    (2..args.len()).try_for_each(|at| index(args, at).map(drop))?;
    remove(ctx, args, "ardelrange", |array| {
        let ranges = (2..args.len()).step_by(2);
        let ranges = ranges.filter_map(|at| Some((index(args, at).ok()?, index(args, at + 1).ok()?)));
        ranges.map(|(start, end)| array.remove_range(start.min(end), start.max(end))).sum()
    })
}

/// Removes elements with `work`, which returns their number. Replies with it.
fn remove(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    event: &'static str,
    work: impl FnOnce(&mut Array) -> u64,
) -> Result<(), CommandError> {
    let key = args.key(1);
    let (removed, is_empty) = match ctx.db.write::<Array>(key)? {
        Some(array) => (work(array), array.is_empty()),
        None => (0, false),
    };
    if removed > 0 {
        ctx.changed_by(removed, EventClass::ARRAY, event, key);
        if is_empty {
            remove_emptied(ctx, key);
        }
    }
    unsigned(&mut ctx.reply, removed);
    Ok(())
}
