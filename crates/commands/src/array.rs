//! Commands that read an array. Those that change it are in [`write`], ARGREP is in [`search`], and
//! AROP in [`aggregate`].
//!
//! An index is a number from 0 to 2^64 - 2. Replies write indexes and lengths as integers. Above
//! 2^63 - 1, which clients do not read as integers, they are big numbers: strings in RESP2.

mod aggregate;
mod pattern;
mod search;
mod write;

use keyspace::Array;
use structures::array::{INDEX_MAX, SLICE_LEN};
use structures::listpack::element::Element;

use crate::args::Args;
use crate::collection::bulk;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The records of all array commands.
pub static COMMANDS: &[&Command] = &[
    &write::ARSET,
    &write::ARMSET,
    &write::ARINSERT,
    &write::ARRING,
    &write::ARSEEK,
    &write::ARDEL,
    &write::ARDELRANGE,
    &ARGET,
    &ARMGET,
    &ARGETRANGE,
    &ARSCAN,
    &search::ARGREP,
    &aggregate::AROP,
    &ARLASTITEMS,
    &ARLEN,
    &ARCOUNT,
    &ARNEXT,
    &ARINFO,
];

/// The record of a command that reads one array, for the others to start from.
const READS: Command = Command {
    group: Group::Array,
    history: History::since("8.8.0"),
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::ARRAY),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0)],
    ..Command::DEFAULT
};

/// The maximum number of elements and holes in a reply, as in Redis.
const REPLY_ITEMS_MAX: u64 = 1_000_000;

const INVALID_INDEX: CommandError = CommandError::Line("ERR invalid array index");

/// Parses an index, or the number after the highest index. As in Redis, a text that is not the
/// canonical form of an integer is read as C's `strtoull` reads it.
fn index_or_end(args: &Args<'_>, at: usize) -> Result<u64, CommandError> {
    args.cursor(at).map_err(|_| INVALID_INDEX)
}

/// Parses an index.
fn index(args: &Args<'_>, at: usize) -> Result<u64, CommandError> {
    index_or_end(args, at).ok().filter(|&index| index <= INDEX_MAX).ok_or(INVALID_INDEX)
}

/// Writes an index or a length: an integer, or a big number if it exceeds the integers of RESP.
fn unsigned(reply: &mut resp::Reply<'_>, value: u64) {
    match i64::try_from(value) {
        Ok(value) => reply.integer(value),
        Err(_) => reply.big_number(&value.to_string()),
    }
}

/// Writes an element, or null for a hole.
fn element_or_null(reply: &mut resp::Reply<'_>, element: Option<Element<'_>>) {
    match element {
        Some(element) => bulk(reply, element),
        None => reply.null(),
    }
}

/// Parses a maximum number of results, which must be positive.
fn limit(args: &Args<'_>, at: usize) -> Result<u64, CommandError> {
    let limit = args.integer(at)?;
    u64::try_from(limit)
        .ok()
        .filter(|&limit| limit > 0)
        .ok_or(CommandError::Line("ERR LIMIT must be positive"))
}

static ARGET: Command = Command {
    name: "ARGET",
    summary: "Returns the element at an index of an array.",
    arity: Arity::Exactly(3),
    args: &[Arg::key("key", 0), Arg::integer("index")],
    run: arget,
    ..READS
};
/// Handles ARGET: replies with the element, or null.
fn arget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let array = ctx.db.read::<Array>(args.key(1))?;
    let index = index(args, 2)?;
    element_or_null(&mut ctx.reply, array.and_then(|array| array.get(index)));
    Ok(())
}

static ARMGET: Command = Command {
    name: "ARMGET",
    summary: "Returns the elements at several indexes of an array.",
    complexity: "O(N) with N being the number of indexes",
    arity: Arity::AtLeast(3),
    args: &[Arg::key("key", 0), Arg::integer("index").multiple()],
    run: armget,
    ..READS
};
/// Handles ARMGET: replies with an element or null for each index.
fn armget(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let array = ctx.db.read::<Array>(args.key(1))?;
    (2..args.len()).try_for_each(|at| index(args, at).map(drop))?;
    ctx.reply.array(args.len() - 2);
    for at in 2..args.len() {
        let index = index(args, at)?;
        element_or_null(&mut ctx.reply, array.and_then(|array| array.get(index)));
    }
    Ok(())
}

static ARGETRANGE: Command = Command {
    name: "ARGETRANGE",
    summary: "Returns the elements in a range of indexes of an array, and null for each hole.",
    complexity: "O(N) with N being the number of indexes in the range",
    arity: Arity::Exactly(4),
    flags: Flags::READONLY,
    args: &[Arg::key("key", 0), Arg::integer("start"), Arg::integer("end")],
    run: argetrange,
    ..READS
};
/// Handles ARGETRANGE: replies with an array, in descending order if the start is the higher index.
fn argetrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, end) = (index(args, 2)?, index(args, 3)?);
    let array = ctx.db.read::<Array>(args.key(1))?;
    let (low, high) = (start.min(end), start.max(end));
    if high - low >= REPLY_ITEMS_MAX {
        return Err(CommandError::Line("ERR range exceeds maximum of 1000000 items"));
    }
    ctx.reply.array((high - low + 1) as usize);
    for step in 0..=high - low {
        let index = if start <= end { low + step } else { high - step };
        element_or_null(&mut ctx.reply, array.and_then(|array| array.get(index)));
    }
    Ok(())
}

static ARSCAN: Command = Command {
    name: "ARSCAN",
    summary: "Returns the existing elements in a range of indexes of an array, with their indexes.",
    complexity: "O(N) with N being the number of existing elements in the range",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    args: &[
        Arg::key("key", 0),
        Arg::integer("start"),
        Arg::integer("end"),
        Arg::integer("limit").token("LIMIT").optional(),
    ],
    run: arscan,
    ..READS
};
/// Handles ARSCAN: replies with pairs of index and element, in descending order if the start is the
/// higher index.
fn arscan(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, end) = (index(args, 2)?, index(args, 3)?);
    let limit = match args.len() {
        4 => u64::MAX,
        6 if args.is(4, "LIMIT") => limit(args, 5)?,
        6 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity("arscan")),
    };
    let Some(array) = ctx.db.read::<Array>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let begun = ctx.reply.begin_array();
    let mut found = 0;
    for (index, element) in array.elements().scan(start, end) {
        if found as u64 == limit {
            break;
        }
        ctx.reply.array(2);
        unsigned(&mut ctx.reply, index);
        bulk(&mut ctx.reply, element);
        found += 1;
    }
    ctx.reply.end_array(begun, found);
    Ok(())
}

static ARLASTITEMS: Command = Command {
    name: "ARLASTITEMS",
    summary: "Returns the most recently inserted elements of an array.",
    complexity: "O(N) with N being the number of elements returned",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    args: &[Arg::key("key", 0), Arg::integer("count"), Arg::word("rev", "REV").optional()],
    run: arlastitems,
    ..READS
};
/// Handles ARLASTITEMS: replies with up to `count` elements up to the last insertion, the oldest
/// first, or with REV the newest first. Holes are null. Index 0 follows the highest index.
fn arlastitems(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let count = args.integer(2).map_err(|_| CommandError::Line("ERR invalid COUNT"))?;
    let Some(count) = u64::try_from(count).ok().filter(|&count| count > 0) else {
        ctx.reply.empty_array();
        return Ok(());
    };
    match args.len() {
        3 => {}
        4 if args.is(3, "REV") => {}
        4 => return Err(CommandError::Syntax),
        _ => return Err(CommandError::WrongArity("arlastitems")),
    }
    let Some(array) = ctx.db.read::<Array>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let len = array.len();
    let count = count.min(len);
    if count > array.count() && count > REPLY_ITEMS_MAX {
        return Err(CommandError::Line("ERR count exceeds maximum of 1000000 items"));
    }
    let newest = array.last_insert().filter(|&last| last < len).unwrap_or(len.saturating_sub(1));
    ctx.reply.array(count as usize);
    for step in 0..count {
        let age = if args.len() == 4 { step } else { count - 1 - step };
        let index = if age <= newest { newest - age } else { len - (age - newest) };
        element_or_null(&mut ctx.reply, array.get(index));
    }
    Ok(())
}

static ARLEN: Command = Command {
    name: "ARLEN",
    summary: "Returns the length of an array: its highest index plus one.",
    run: arlen,
    ..READS
};
/// Handles ARLEN: replies with the length, 0 if the key is missing.
fn arlen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let array = ctx.db.read::<Array>(args.key(1))?;
    unsigned(&mut ctx.reply, array.map_or(0, Array::len));
    Ok(())
}

static ARCOUNT: Command = Command {
    name: "ARCOUNT",
    summary: "Returns the number of elements of an array.",
    run: arcount,
    ..READS
};
/// Handles ARCOUNT: replies with the number of elements, 0 if the key is missing.
fn arcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let array = ctx.db.read::<Array>(args.key(1))?;
    unsigned(&mut ctx.reply, array.map_or(0, Array::count));
    Ok(())
}

static ARNEXT: Command = Command {
    name: "ARNEXT",
    summary: "Returns the index at which ARINSERT would insert next.",
    run: arnext,
    ..READS
};
/// Handles ARNEXT: replies with the index, 0 if the key is missing, null if no index is left.
fn arnext(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let array = ctx.db.read::<Array>(args.key(1))?;
    match array.map_or(Some(0), Array::next_insert) {
        Some(index) => unsigned(&mut ctx.reply, index),
        None => ctx.reply.null(),
    }
    Ok(())
}

static ARINFO: Command = Command {
    name: "ARINFO",
    summary: "Returns the properties of an array.",
    complexity: "O(1), or with FULL O(N) with N being the number of slices",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    args: &[Arg::key("key", 0), Arg::word("full", "FULL").optional()],
    run: arinfo,
    ..READS
};
/// Handles ARINFO: replies with a map. The directory of this server is a tree, so its size is the
/// number of inner nodes, and there are no super-directories.
fn arinfo(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let is_full = args.len() == 3 && args.is(2, "FULL");
    if args.len() > 2 && !is_full {
        return Err(CommandError::Syntax);
    }
    let array = ctx.db.read::<Array>(args.key(1))?.ok_or(CommandError::NoSuchKey)?;
    let elements = array.elements();
    ctx.reply.map(if is_full { 12 } else { 7 });
    for (name, value) in [
        ("count", array.count()),
        ("len", array.len()),
        ("next-insert-index", array.next_insert().unwrap_or(0)),
        ("slices", elements.slices() as u64),
        ("directory-size", elements.nodes() as u64),
        ("super-dir-entries", 0),
        ("slice-size", SLICE_LEN),
    ] {
        ctx.reply.bulk(name.as_bytes());
        unsigned(&mut ctx.reply, value);
    }
    if is_full {
        let stats = elements.slice_stats();
        for (name, value) in [("dense-slices", stats.dense), ("sparse-slices", stats.sparse)] {
            ctx.reply.bulk(name.as_bytes());
            unsigned(&mut ctx.reply, value);
        }
        for (name, sum, count) in [
            ("avg-dense-size", stats.dense_places, stats.dense),
            ("avg-dense-fill", stats.dense_elements, stats.dense_places),
            ("avg-sparse-size", stats.sparse_places, stats.sparse),
        ] {
            ctx.reply.bulk(name.as_bytes());
            ctx.reply.double(if count == 0 { 0.0 } else { sum as f64 / count as f64 });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
