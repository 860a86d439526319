//! Commands on one set, and SMOVE. Intersection, union and difference are in [`algebra`].

mod algebra;

use keyspace::{Key, Set};
use structures::listpack::element::IntText;

use crate::args::Args;
use crate::collection::{
    ScanRequest, ScanStep, Scanned, bulk, not_negative, record_del, remove_emptied, set_limits,
};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::random::random_elements;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The command table's records of all set commands.
pub static COMMANDS: &[&Command] = &[
    &SADD,
    &SREM,
    &SPOP,
    &SMOVE,
    &SMEMBERS,
    &SISMEMBER,
    &SMISMEMBER,
    &SCARD,
    &SRANDMEMBER,
    &SSCAN,
    &algebra::SINTER,
    &algebra::SINTERCARD,
    &algebra::SUNIONCARD,
    &algebra::SDIFFCARD,
    &algebra::SINTERSTORE,
    &algebra::SUNION,
    &algebra::SUNIONSTORE,
    &algebra::SDIFF,
    &algebra::SDIFFSTORE,
];

static SADD: Command = Command {
    name: "SADD",
    summary: "Adds members to a set. Creates the set if it does not exist.",
    history: History::since("1.0.0").changed(&[("2.4.0", "takes several members")]),
    group: Group::Set,
    complexity: "O(1) for each member",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[Arg::key("key", 0), Arg::string("member").multiple()],
    run: sadd,
    ..Command::DEFAULT
};
/// Handles SADD: replies with the number of new members.
fn sadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, limits, hasher) = (args.key(1), set_limits(ctx), args.hasher());
    let set = ctx.db.write_or_insert::<Set>(key)?;
    set.expect(args.len() - 2, args.get(2), &limits, hasher);
    let mut added = 0;
    for member in args.from(2) {
        added += u64::from(set.add(member, &limits, hasher));
    }
    if added > 0 {
        ctx.changed_by(added, EventClass::SET, "sadd", key);
    }
    ctx.reply.integer(added as i64);
    Ok(())
}

static SREM: Command = Command {
    name: "SREM",
    summary: "Removes members from a set. Deletes the set if no member remains.",
    history: History::since("1.0.0").changed(&[("2.4.0", "takes several members")]),
    group: Group::Set,
    complexity: "O(1) for each member",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::DELETE))],
    args: &[Arg::key("key", 0), Arg::string("member").multiple()],
    run: srem,
    ..Command::DEFAULT
};
/// Handles SREM: replies with the number of removed members.
fn srem(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let Some(set) = ctx.db.write::<Set>(key)? else {
        ctx.reply.integer(0);
        return Ok(());
    };
    let removed = args.from(2).filter(|member| set.remove(member, args.hasher())).count();
    let emptied = set.is_empty();
    if removed > 0 {
        ctx.changed_by(removed as u64, EventClass::SET, "srem", key);
    }
    if emptied {
        remove_emptied(ctx, key);
    }
    ctx.reply.integer(removed as i64);
    Ok(())
}

static SPOP: Command = Command {
    name: "SPOP",
    summary: "Removes and returns random members of a set.",
    history: History::since("1.0.0").changed(&[("3.2.0", "takes a count")]),
    group: Group::Set,
    complexity: "O(1) for each member",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0), Arg::integer("count").since("3.2.0").optional()],
    run: spop,
    ..Command::DEFAULT
};
/// Handles SPOP: replies with a member, or null. With a count the reply is a set of `count`
/// members, or of all if there are fewer.
fn spop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    if args.len() > 3 {
        return Err(CommandError::Syntax);
    }
    let key = args.key(1);
    if args.len() == 3 {
        let count = not_negative(args, 2)?;
        return spop_many(ctx, key, count);
    }
    let db = ctx.db.index();
    let Some(set) = ctx.db.write::<Set>(key)? else {
        ctx.reply.null();
        return Ok(());
    };
    set.take_random(
        || ctx.rng.u64(..),
        |member| {
            bulk(&mut ctx.reply, member);
            ctx.effects.record.replace(db, |record| {
                record.command("SREM").word(key.bytes).word(member.text(&mut IntText::new()));
            });
        },
    );
    let emptied = set.is_empty();
    ctx.changed(EventClass::SET, "spop", key);
    if emptied {
        remove_emptied(ctx, key);
    }
    ctx.invalidate_after_events(key);
    Ok(())
}

/// The maximum number of members that one recorded SREM removes, as in Redis.
const RECORDED_MEMBERS_MAX: usize = 1024;

fn spop_many(ctx: &mut Ctx<'_>, key: Key<'_>, count: usize) -> Result<(), CommandError> {
    let db = ctx.db.index();
    let Some(set) = ctx.db.write::<Set>(key)? else {
        ctx.reply.set(0);
        return Ok(());
    };
    let taken = count.min(set.len());
    ctx.reply.set(taken);
    if taken == 0 {
        return Ok(());
    }
    let emptied = taken == set.len();
    if emptied {
        set.iter().for_each(|member| bulk(&mut ctx.reply, member));
    } else {
        for at in 0..taken {
            set.take_random(
                || ctx.rng.u64(..),
                |member| {
                    bulk(&mut ctx.reply, member);
                    ctx.effects.record.replace(db, |record| {
                        if at % RECORDED_MEMBERS_MAX == 0 {
                            record.command("SREM").word(key.bytes);
                        }
                        record.word(member.text(&mut IntText::new()));
                    });
                },
            );
        }
    }
    ctx.changed_by(taken as u64, EventClass::SET, "spop", key);
    if emptied {
        remove_emptied(ctx, key);
        record_del(ctx, key);
    }
    ctx.invalidate_after_events(key);
    Ok(())
}

static SMOVE: Command = Command {
    name: "SMOVE",
    summary: "Moves a member from one set to another.",
    history: History::since("1.0.0"),
    group: Group::Set,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::SET),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE)),
        KeySpec::at(2, KeyFlags::RW.union(KeyFlags::INSERT)),
    ],
    args: &[Arg::key("source", 0), Arg::key("destination", 1), Arg::string("member")],
    run: smove,
    ..Command::DEFAULT
};
/// Handles SMOVE: replies with 1 if the member was moved, 0 if it is not in the source.
fn smove(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (source, destination, member) = (args.key(1), args.key(2), args.get(3));
    let (limits, hasher) = (set_limits(ctx), args.hasher());
    let moved = match ctx.db.write::<Set>(source)? {
        None => {
            // The lookup removes the destination if it has expired.
            ctx.db.peek(destination);
            ctx.reply.integer(0);
            return Ok(());
        }
        Some(set) => set.contains(member, hasher),
    };
    // The destination's type is checked even if nothing is moved.
    ctx.db.write::<Set>(destination)?;
    ctx.reply.integer(moved.into());
    if !moved || source.bytes == destination.bytes {
        return Ok(());
    }
    let emptied = match ctx.db.write::<Set>(source)? {
        Some(set) => set.remove(member, hasher) && set.is_empty(),
        None => false,
    };
    ctx.changed(EventClass::SET, "srem", source);
    if emptied {
        remove_emptied(ctx, source);
    }
    ctx.db.write_or_insert::<Set>(destination)?;
    ctx.invalidate_after_events(source);
    let set = ctx.db.write_or_insert::<Set>(destination)?;
    if set.is_empty() {
        set.expect(1, member, &limits, hasher);
    }
    if set.add(member, &limits, hasher) {
        ctx.changed(EventClass::SET, "sadd", destination);
    }
    Ok(())
}

static SMEMBERS: Command = Command {
    name: "SMEMBERS",
    summary: "Returns all members of a set.",
    history: History::since("1.0.0"),
    group: Group::Set,
    complexity: "O(N) in the number of members",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0)],
    run: smembers,
    ..Command::DEFAULT
};
/// Handles SMEMBERS: replies with a set of the members, empty if the key is missing.
fn smembers(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let Some(set) = ctx.db.read::<Set>(args.key(1))? else {
        ctx.reply.set(0);
        return Ok(());
    };
    ctx.reply.set(set.len());
    set.iter().for_each(|member| bulk(&mut ctx.reply, member));
    Ok(())
}

static SISMEMBER: Command = Command {
    name: "SISMEMBER",
    summary: "Returns 1 if a value is a member of a set, else 0.",
    history: History::since("1.0.0"),
    group: Group::Set,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0), Arg::string("member")],
    run: sismember,
    ..Command::DEFAULT
};
/// Handles SISMEMBER: replies with 1 if the key's set has the member, else 0.
fn sismember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let set = ctx.db.read::<Set>(args.key(1))?;
    let there = set.is_some_and(|set| set.contains(args.get(2), args.hasher()));
    ctx.reply.integer(there.into());
    Ok(())
}

static SMISMEMBER: Command = Command {
    name: "SMISMEMBER",
    summary: "Returns for each of several values 1 if it is a member of a set, else 0.",
    history: History::since("6.2.0"),
    group: Group::Set,
    complexity: "O(1) for each member",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::string("member").multiple()],
    run: smismember,
    ..Command::DEFAULT
};
/// Handles SMISMEMBER: replies with an array: 1 for each member that the set has, 0 for the others.
fn smismember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let set = ctx.db.read::<Set>(args.key(1))?;
    ctx.reply.array(args.len() - 2);
    for member in args.from(2) {
        let there = set.is_some_and(|set| set.contains(member, args.hasher()));
        ctx.reply.integer(there.into());
    }
    Ok(())
}

static SCARD: Command = Command {
    name: "SCARD",
    summary: "Returns the number of members of a set.",
    history: History::since("1.0.0"),
    group: Group::Set,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RO)],
    args: &[Arg::key("key", 0)],
    run: scard,
    ..Command::DEFAULT
};
/// Handles SCARD: replies with the number of members, 0 if the key is missing.
fn scard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let set = ctx.db.read::<Set>(args.key(1))?;
    ctx.reply.integer(set.map_or(0, Set::len) as i64);
    Ok(())
}

static SRANDMEMBER: Command = Command {
    name: "SRANDMEMBER",
    summary: "Returns random members of a set.",
    history: History::since("1.0.0").changed(&[("2.6.0", "takes a count")]),
    group: Group::Set,
    complexity: "O(N) in the number of members returned",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0), Arg::integer("count").since("2.6.0").optional()],
    run: srandmember,
    ..Command::DEFAULT
};
/// Handles SRANDMEMBER: replies with a member, or null. With a count the reply is an array of at
/// most `count` different members. A negative count allows repetitions.
fn srandmember(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    random_elements::<Set>(ctx, args)
}

static SSCAN: Command = Command {
    name: "SSCAN",
    summary: "Iterates over the members of a set with a cursor.",
    history: History::since("2.8.0"),
    group: Group::Set,
    complexity: "O(1) for each call, O(N) for all",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::integer("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::integer("count").token("COUNT").optional(),
    ],
    run: sscan,
    ..Command::DEFAULT
};
/// Handles SSCAN: replies with the next cursor and members.
fn sscan(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let cursor = args.cursor(2)?;
    let Some(set) = ctx.db.read::<Set>(args.key(1))? else {
        ScanRequest::nothing(&mut ctx.reply);
        return Ok(());
    };
    let request = ScanRequest::parse(args, cursor, Scanned::Set)?;
    request.run(&mut ctx.reply, |cursor, mut reply| {
        let mut step = ScanStep::default();
        step.next = set.scan(cursor, |member| {
            step.visited += 1;
            if let Some(reply) = reply.as_deref_mut()
                && request.matches(member)
            {
                bulk(reply, member);
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

    #[test]
    fn members_come_and_go() {
        check(&[
            ("SADD s 5 5 1 3", ":3|"),
            ("SADD s 5", ":0|"),
            ("SISMEMBER s 3", ":1|"),
            ("SISMEMBER s 03", ":0|"),
            ("SISMEMBER nokey 3", ":0|"),
            ("SMISMEMBER s 1 2 x", "*3|:1|:0|:0|"),
            ("SMISMEMBER nokey 1", "*1|:0|"),
            ("SCARD s", ":3|"),
            ("SCARD nokey", ":0|"),
            ("SREM s 1 2 x", ":1|"),
            ("SREM s 3 5", ":2|"),
            ("SREM s 3", ":0|"),
            ("SCARD s", ":0|"),
        ]);
    }

    #[test]
    fn a_set_is_a_set_to_resp3_and_an_array_to_resp2() {
        let mut db = Harness::new();
        db.line("SADD s 1 2");
        assert_eq!(db.line("SMEMBERS s"), "*2|$1|1|$1|2|");
        assert_eq!(db.line("SMEMBERS nokey"), "*0|");
        db.protocol = resp::Protocol::Resp3;
        assert_eq!(db.line("SMEMBERS s"), "~2|$1|1|$1|2|");
        assert_eq!(db.line("SMEMBERS nokey"), "~0|");
        assert_eq!(db.line("SRANDMEMBER s 5"), "*2|$1|1|$1|2|");
        assert_eq!(db.line("SPOP s 5"), "~2|$1|1|$1|2|");
        assert_eq!(db.line("SPOP s 5"), "~0|");
    }

    #[test]
    fn popping_takes_every_member_once_whatever_the_encoding() {
        for (members, prefix) in [(3, ""), (3, "m"), (700, ""), (700, "m")] {
            let mut db = Harness::new();
            (0..members).for_each(|i| drop(db.line(&format!("SADD s {prefix}{i}"))));
            let mut seen: Vec<String> = (0..members).map(|_| db.line("SPOP s")).collect();
            seen.sort();
            seen.dedup();
            assert_eq!(seen.len(), members);
            assert_eq!(db.line("SPOP s"), "$-1|");
        }
    }

    #[test]
    fn counts_are_checked_before_the_key() {
        check(&[
            ("SPOP s -1", "-ERR value is out of range, must be positive|"),
            ("SPOP s x", "-ERR value is out of range, must be positive|"),
            ("SPOP s 1 2", "-ERR syntax error|"),
            ("SRANDMEMBER s 1 2", "-ERR syntax error|"),
            ("SRANDMEMBER s x", "-ERR value is not an integer or out of range|"),
            ("SRANDMEMBER s", "_|"),
            ("SRANDMEMBER s 3", "*0|"),
            ("SADD s a", ":1|"),
            ("SRANDMEMBER s -3", "*3|$1|a|$1|a|$1|a|"),
            ("SRANDMEMBER s 3", "*1|$1|a|"),
            ("SRANDMEMBER s", "$1|a|"),
            ("SSCAN s 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN|"),
            ("SSCAN s 0 MATCH a*", "*2|$1|0|*1|$1|a|"),
            ("SSCAN s 0 MATCH b*", "*2|$1|0|*0|"),
        ]);
    }

    #[test]
    fn moving_takes_a_member_from_one_set_to_the_other() {
        harness_without_new().check_events(&[
            ("SADD a x y", ":2|", "sadd a@0"),
            ("SMOVE a b x", ":1|", "srem a@0,sadd b@0"),
            ("SMOVE a b x", ":0|", ""),
            ("SMOVE a a y", ":1|", ""),
            ("SMOVE a b y", ":1|", "srem a@0,del a@0,sadd b@0"),
            ("SMOVE a b y", ":0|", ""),
            ("HSET h f v", ":1|", "hset h@0"),
            ("SMOVE b h y", "-WRONGTYPE Operation against a key holding the wrong kind of value|", ""),
            ("SMOVE h b y", "-WRONGTYPE Operation against a key holding the wrong kind of value|", ""),
            ("SMOVE nokey h y", ":0|", ""),
            ("SREM b x y z", ":2|", "srem b@0,del b@0"),
        ]);
    }

    #[test]
    fn popping_all_removes_the_key() {
        harness_without_new().check_events(&[
            ("SADD s 1 2 3", ":3|", "sadd s@0"),
            ("SPOP s 0", "*0|", ""),
            ("SPOP s 4", "*3|$1|1|$1|2|$1|3|", "spop s@0,del s@0"),
            ("SADD s 1", ":1|", "sadd s@0"),
            ("SPOP s", "$1|1|", "spop s@0,del s@0"),
            ("SPOP s", "$-1|", ""),
        ]);
    }
}
