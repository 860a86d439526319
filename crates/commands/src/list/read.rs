//! Commands that read lists.

use keyspace::List;

use super::bulk;
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, KeyFlags, KeySpec};

pub(super) static LLEN: Command = Command {
    name: "LLEN",
    summary: "Returns the number of elements in a list.",
    since: "1.0.0",
    group: Group::List,
    complexity: "O(1)",
    deprecated: None,
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    tips: &[],
    args: &[Arg::key("key", 0)],
    subcommands: &[],
    run: llen,
};
/// LLEN key: the number of elements, 0 where there is no list.
fn llen(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let list = ctx.db.read::<List>(args.key(1))?;
    ctx.reply.integer(list.map_or(0, List::len) as i64);
    Ok(())
}

pub(super) static LRANGE: Command = Command {
    name: "LRANGE",
    summary: "Returns the elements of a list between two indexes.",
    since: "1.0.0",
    group: Group::List,
    complexity: "O(S+N)",
    deprecated: None,
    arity: Arity::Exactly(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &[],
    args: &[Arg::key("key", 0), Arg::integer("start"), Arg::integer("stop")],
    subcommands: &[],
    run: lrange,
};
/// LRANGE key start stop: the elements there, both ends included.
fn lrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, stop) = (args.integer(2)?, args.integer(3)?);
    let Some(list) = ctx.db.read::<List>(args.key(1))? else {
        ctx.reply.empty_array();
        return Ok(());
    };
    let range = list.resolve_range(start, stop);
    ctx.reply.array(range.len());
    list.range(range).for_each(|element| bulk(&mut ctx.reply, element));
    Ok(())
}

pub(super) static LINDEX: Command = Command {
    name: "LINDEX",
    summary: "Returns the element of a list at an index.",
    since: "1.0.0",
    group: Group::List,
    complexity: "O(N)",
    deprecated: None,
    arity: Arity::Exactly(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::LIST),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &[],
    args: &[Arg::key("key", 0), Arg::integer("index")],
    subcommands: &[],
    run: lindex,
};
/// LINDEX key index: the element there, null where there is none.
fn lindex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let element = match ctx.db.read::<List>(args.key(1))? {
        // As in Redis, an index that is none goes unnoticed where there is no list.
        Some(list) => list.get(args.integer(2)?),
        None => None,
    };
    match element {
        Some(element) => bulk(&mut ctx.reply, element),
        None => ctx.reply.null(),
    }
    Ok(())
}

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
}
