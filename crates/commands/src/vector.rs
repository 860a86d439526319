//! Commands on vector sets. VADD is in [`add`], VSIM in [`similar`]; the expressions of its option
//! FILTER are in [`filter`].

mod add;
mod attributes;
mod filter;
mod input;
mod similar;

use std::collections::HashSet;

use keyspace::{NewAttributes, VectorSet};
use structures::vector::{Quantization, Slot, VectorIndex};

use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::random::RandomCount;
use crate::record::forms::{KnownSince, RecordedForm};
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The command table's records of all vector set commands.
pub static COMMANDS: &[&Command] = &[
    &add::VADD,
    &VREM,
    &VSETATTR,
    &similar::VSIM,
    &VEMB,
    &VGETATTR,
    &VISMEMBER,
    &VLINKS,
    &VRANDMEMBER,
    &VRANGE,
    &VCARD,
    &VDIM,
    &VINFO,
];

/// The defaults of the record of a command that reads one vector set.
const READS: Command = Command {
    group: Group::VectorSet,
    history: History::since("8.0.0"),
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ,
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("element")],
    ..Command::DEFAULT
};

static VREM: Command = Command {
    name: "VREM",
    summary: "Removes an element from a vector set. Deletes the vector set if no element remains.",
    complexity: "O(log(N)) with N being the number of elements",
    flags: Flags::WRITE,
    acl: Acl::WRITE,
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    recorded_forms: &[RecordedForm::known_since(KnownSince::VECTOR_SETS)],
    run: vrem,
    ..READS
};
/// Handles VREM: replies with true if the element was removed.
fn vrem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let Some(set) = ctx.db.write::<VectorSet>(key)? else {
        ctx.reply.boolean(false);
        return Ok(());
    };
    let removed = set.remove(args.get(2));
    if removed {
        let emptied = set.is_empty();
        // As in Redis, commands on vector sets raise no events, not even `del`.
        ctx.changed_without_event(1, key);
        if emptied && let Some(entry) = ctx.db.remove(key) {
            ctx.effects.discard(entry);
        }
    }
    ctx.reply.boolean(removed);
    Ok(())
}

static VSETATTR: Command = Command {
    name: "VSETATTR",
    summary: "Sets the attributes of an element of a vector set, or removes them.",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE,
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::string("element"), Arg::string("json")],
    recorded_forms: &[RecordedForm::known_since(KnownSince::VECTOR_SETS)],
    run: vsetattr,
    ..READS
};
/// Handles VSETATTR: replies with true if the element exists. An empty text removes its attributes.
fn vsetattr(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, element, attributes) = (args.key(1), args.get(2), args.get(3));
    let attributes =
        if attributes.is_empty() { NewAttributes::Removed } else { NewAttributes::Set(attributes) };
    let set = ctx.db.write::<VectorSet>(key)?;
    let exists = set.is_some_and(|set| set.set_attributes(element, attributes));
    if exists {
        ctx.changed_without_event(1, key);
    }
    ctx.reply.boolean(exists);
    Ok(())
}

static VEMB: Command = Command {
    name: "VEMB",
    summary: "Returns the vector of an element of a vector set.",
    complexity: "O(D) with D being the number of dimensions",
    arity: Arity::AtLeast(3),
    args: &[Arg::key("key", 0), Arg::string("element"), Arg::word("raw", "RAW").optional()],
    run: vemb,
    ..READS
};
/// Handles VEMB: replies with the vector as it is stored, so with the loss of its quantization;
/// null if there is no such element. With RAW the reply has the stored bytes.
fn vemb(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if !(3..args.len()).all(|index| args.is(index, "RAW")) {
        return Err(CommandError::Line("ERR invalid option"));
    }
    let set = ctx.db.read::<VectorSet>(args.key(1))?;
    let Some((set, slot)) = set.and_then(|set| Some((set, set.index().find(args.get(2))?))) else {
        ctx.reply.null();
        return Ok(());
    };
    if args.len() > 3 {
        let raw = set.index().raw(slot);
        ctx.reply.array(if raw.range.is_some() { 4 } else { 3 });
        ctx.reply.simple(quantization_name(set.index()));
        ctx.reply.bulk(raw.bytes);
        ctx.reply.double(raw.norm.into());
        if let Some(range) = raw.range {
            ctx.reply.double(range.into());
        }
        return Ok(());
    }
    let vector = set.index().vector(slot);
    ctx.reply.array(vector.len());
    vector.into_iter().for_each(|value| ctx.reply.double(value.into()));
    Ok(())
}

/// Returns the name of an index's quantization in replies.
fn quantization_name(index: &VectorIndex) -> &'static str {
    match index.config().quantization {
        Quantization::F32 => "f32",
        Quantization::Q8 => "int8",
        Quantization::Binary => "bin",
    }
}

static VGETATTR: Command = Command {
    name: "VGETATTR",
    summary: "Returns the attributes of an element of a vector set.",
    run: vgetattr,
    ..READS
};
/// Handles VGETATTR: replies with the element's attributes, or null if it has none or is missing.
fn vgetattr(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let set = ctx.db.read::<VectorSet>(args.key(1))?;
    let index = set.map(VectorSet::index);
    let attributes = index.and_then(|index| index.attributes(index.find(args.get(2))?));
    match attributes {
        Some(attributes) => ctx.reply.bulk(attributes),
        None => ctx.reply.null(),
    }
    Ok(())
}

static VISMEMBER: Command = Command {
    name: "VISMEMBER",
    summary: "Returns true if a vector set has an element.",
    flags: Flags::READONLY,
    run: vismember,
    ..READS
};
/// Handles VISMEMBER: replies with true if the vector set has the element, else false.
fn vismember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let set = ctx.db.read::<VectorSet>(args.key(1))?;
    ctx.reply.boolean(set.is_some_and(|set| set.index().find(args.get(2)).is_some()));
    Ok(())
}

static VLINKS: Command = Command {
    name: "VLINKS",
    summary: "Returns the neighbours of an element in the graph of a vector set, level by level.",
    complexity: "O(M) with M being the number of links",
    arity: Arity::AtLeast(3),
    args: &[Arg::key("key", 0), Arg::string("element"), Arg::word("withscores", "WITHSCORES").optional()],
    run: vlinks,
    ..READS
};
/// Handles VLINKS: replies with an array for each level of the element, the highest level first;
/// null if there is no such element.
fn vlinks(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let with_scores = args.is(3, "WITHSCORES");
    if args.len() > 4 || (args.len() == 4 && !with_scores) {
        return Err(CommandError::WrongArity("vlinks"));
    }
    let index = ctx.db.read::<VectorSet>(args.key(1))?.map(VectorSet::index);
    let Some((index, slot)) = index.and_then(|index| Some((index, index.find(args.get(2))?))) else {
        ctx.reply.null();
        return Ok(());
    };
    let levels: Vec<_> = index.links(slot).collect();
    ctx.reply.array(levels.len());
    for links in levels.into_iter().rev() {
        if with_scores {
            ctx.reply.map(links.len());
        } else {
            ctx.reply.array(links.len());
        }
        for (neighbour, similarity) in links {
            ctx.reply.bulk(index.name(neighbour));
            if with_scores {
                ctx.reply.double(similarity);
            }
        }
    }
    Ok(())
}

static VRANDMEMBER: Command = Command {
    name: "VRANDMEMBER",
    summary: "Returns random elements of a vector set.",
    complexity: "O(N) in the number of elements returned",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0), Arg::integer("count").optional()],
    run: vrandmember,
    ..READS
};
/// Handles VRANDMEMBER: replies with an element, or null. With a count the reply is an array of
/// that many different elements. A negative count allows repetitions.
fn vrandmember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(CommandError::WrongArity("vrandmember"));
    }
    let count = match args.len() {
        2 => None,
        _ => Some(RandomCount::parse(args, 2).map_err(|error| match error {
            CommandError::NotAnInteger => CommandError::Line("ERR COUNT value is not an integer"),
            other => other,
        })?),
    };
    let Some(set) = ctx.db.read::<VectorSet>(args.key(1))? else {
        match count {
            None => ctx.reply.null(),
            Some(_) => ctx.reply.empty_array(),
        }
        return Ok(());
    };
    let (index, rng) = (set.index(), &mut *ctx.rng);
    let mut draw = || index.random(rng.u64(..)).expect("a vector set at a key is not empty");
    match count {
        None => ctx.reply.bulk(index.name(draw())),
        Some(RandomCount::Distinct(count)) => {
            let chosen = distinct(index, count, rng);
            ctx.reply.array(chosen.len());
            chosen.into_iter().for_each(|slot| ctx.reply.bulk(index.name(slot)));
        }
        Some(RandomCount::Repeating(count)) => {
            let before = ctx.reply.mark();
            ctx.reply.array(count);
            for _ in 0..count {
                ctx.reply.bulk(index.name(draw()));
                if ctx.reply.len_since(&before) as u64 > ctx.limits.string_len_bytes_max {
                    return Err(CommandError::OutOfRange("value"));
                }
            }
        }
    }
    Ok(())
}

/// Chooses `count` different elements of the index, or all if there are fewer, in random order.
/// O(count) expected; O(n) if more than a third of the elements is wanted.
fn distinct(index: &VectorIndex, count: usize, rng: &mut fastrand::Rng) -> Vec<Slot> {
    let count = count.min(index.len());
    if count > index.len() / 3 {
        let mut slots: Vec<Slot> = index.slots().collect();
        for at in 0..count {
            let other = rng.usize(at..slots.len());
            slots.swap(at, other);
        }
        slots.truncate(count);
        return slots;
    }
    let (mut chosen, mut seen) = (Vec::with_capacity(count), HashSet::with_capacity(count));
    while chosen.len() < count {
        let slot = index.random(rng.u64(..)).expect("the index has more elements than wanted");
        if seen.insert(slot) {
            chosen.push(slot);
        }
    }
    chosen
}

static VRANGE: Command = Command {
    name: "VRANGE",
    summary: "Returns elements of a vector set in the order of their bytes.",
    history: History::since("8.4.0"),
    complexity: "O(log(N)+M) with N elements in the vector set and M in the reply",
    arity: Arity::AtLeast(4),
    flags: Flags::READONLY,
    args: &[Arg::key("key", 0), Arg::string("start"), Arg::string("end"), Arg::integer("count").optional()],
    run: vrange,
    ..READS
};
/// Handles VRANGE: replies with up to `count` elements between the bounds, all of them if the count
/// is negative or missing. The bounds are written `[name`, `(name`, `-` and `+`.
fn vrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 5 {
        return Err(CommandError::WrongArity("vrange"));
    }
    if args.get(2) == b"+" || args.get(3) == b"-" {
        return Err(CommandError::Line("ERR '-' can only be used as first argument, '+' only as second"));
    }
    let invalid = CommandError::Line("ERR invalid range item");
    let bound = |index: usize, open: &[u8]| match args.get(index) {
        word if word == open => Some(Bound::Open),
        [b'[', name @ ..] => Some(Bound::Including(name)),
        [b'(', name @ ..] => Some(Bound::Excluding(name)),
        _ => None,
    };
    let (start, end) = (bound(2, b"-"), bound(3, b"+"));
    let (Some(start), Some(end)) = (start, end) else { return Err(invalid) };
    let count = match args.try_get(4).map(|_| args.integer(4)) {
        None => usize::MAX,
        Some(count) => {
            let count = count.map_err(|_| CommandError::Line("ERR invalid COUNT"))?;
            usize::try_from(count).unwrap_or(usize::MAX)
        }
    };
    let Some(set) = ctx.db.read::<VectorSet>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let index = set.index();
    let from = index.slots_by_name(|name| !start.is_before(name)).map(|slot| index.name(slot));
    let names: Vec<&[u8]> = from.take_while(|name| end.is_after(name)).take(count).collect();
    ctx.reply.array(names.len());
    names.into_iter().for_each(|name| ctx.reply.bulk(name));
    Ok(())
}

/// A bound of the range of names in VRANGE.
#[derive(Clone, Copy)]
enum Bound<'a> {
    Open,
    Including(&'a [u8]),
    Excluding(&'a [u8]),
}

impl Bound<'_> {
    /// Returns true if `name` is in the range of VRANGE that starts with this bound.
    fn is_before(self, name: &[u8]) -> bool {
        match self {
            Bound::Open => true,
            Bound::Including(bound) => bound <= name,
            Bound::Excluding(bound) => bound < name,
        }
    }

    /// Returns true if `name` is in the range of VRANGE that ends with this bound.
    fn is_after(self, name: &[u8]) -> bool {
        match self {
            Bound::Open => true,
            Bound::Including(bound) => name <= bound,
            Bound::Excluding(bound) => name < bound,
        }
    }
}

static VCARD: Command = Command {
    name: "VCARD",
    summary: "Returns the number of elements of a vector set.",
    arity: Arity::Exactly(2),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: vcard,
    ..READS
};
/// Handles VCARD: replies with the number of elements, 0 if the key is missing.
fn vcard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let set = ctx.db.read::<VectorSet>(args.key(1))?;
    ctx.reply.integer(set.map_or(0, VectorSet::len) as i64);
    Ok(())
}

static VDIM: Command = Command {
    name: "VDIM",
    summary: "Returns the number of dimensions of the vectors of a vector set.",
    run: vdim,
    ..VCARD
};
/// Handles VDIM: replies with the number of dimensions after the reduction. A missing key is an
/// error.
fn vdim(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let set = ctx.db.read::<VectorSet>(args.key(1))?;
    let set = set.ok_or(CommandError::Line("ERR key does not exist"))?;
    ctx.reply.integer(set.dim() as i64);
    Ok(())
}

static VINFO: Command =
    Command { name: "VINFO", summary: "Returns the properties of a vector set.", run: vinfo, ..VCARD };
/// Handles VINFO: replies with a map that describes the vector set and its index; null if the key
/// is missing.
fn vinfo(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let Some(set) = ctx.db.read::<VectorSet>(args.key(1))? else {
        ctx.reply.null();
        return Ok(());
    };
    let index = set.index();
    let input_dim = set.projection().map_or(0, |projection| projection.from());
    let numbers = [
        ("hnsw-m", index.config().m as u64),
        ("vector-dim", set.dim() as u64),
        ("projection-input-dim", input_dim as u64),
        ("size", set.len() as u64),
        ("max-level", index.max_level() as u64),
        ("attributes-count", set.attributes_count() as u64),
        ("vset-uid", set.uid()),
        ("hnsw-max-node-uid", index.uid_max()),
    ];
    ctx.reply.map(1 + numbers.len());
    ctx.reply.simple("quant-type");
    ctx.reply.simple(quantization_name(index));
    for (name, number) in numbers {
        ctx.reply.simple(name);
        ctx.reply.integer(number as i64);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
