//! Intersection, union and difference of sets, replied or stored.
//!
//! Every command first reads each key by itself: this checks the type, counts the read and removes
//! an expired key. Then it reads all sets together. An intersection looks up the members of the
//! smallest set in the other sets, in ascending order of their size. A difference either looks up
//! members in the other sets or removes the other sets' members, whichever needs fewer steps.

use std::ops::Range;

use keyspace::{Hasher, Key, Object, Set, SetLimits, SetView};
use structures::hll::{Observation, Registers};
use structures::listpack::element::{Element, IntText};

use crate::args::Args;
use crate::collection::{StoreEvents, bulk, set_limits, store_result};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// Checks that each of `keys` holds a set or is missing, in their order. Counts the reads and
/// removes expired keys.
fn check_keys<'a>(ctx: &mut Ctx<'_>, keys: impl Iterator<Item = Key<'a>>) -> Result<(), CommandError> {
    for key in keys {
        ctx.db.read::<Set>(key)?;
    }
    Ok(())
}

/// Returns the keys that are arguments, from index `first` to the index before `end`.
fn keys<'a>(args: &Args<'a>, first: usize, end: usize) -> impl Iterator<Item = Key<'a>> + Clone + use<'a> {
    let args = *args;
    (first..end).map(move |at| args.key(at))
}

/// Calls `visit` with each member that all sets have, until `visit` returns false.
fn intersect(sets: &mut [Option<&Set>], args: &Args<'_>, mut visit: impl FnMut(Element<'_>) -> bool) {
    sets.sort_by_key(|set| set.map_or(0, Set::len));
    let Some((Some(smallest), others)) = sets.split_first() else { return };
    for member in smallest.iter() {
        let mut scratch = IntText::new();
        let text = member.text(&mut scratch);
        if others.iter().flatten().all(|set| set.contains(text, args.hasher())) && !visit(member) {
            return;
        }
    }
}

/// Returns a copy of `set` in the encoding of a new set with the same members. A set that has grown
/// and shrunk again may get a smaller encoding. O(n).
fn rebuilt(set: &Set, limits: &SetLimits, args: &Args<'_>) -> Set {
    // A set with so many members is always a hash table, even if it is rebuilt.
    if set.encoding_name() == "hashtable"
        && set.len() > limits.intset_entries_max.max(limits.pack.entries_max)
    {
        return set.clone();
    }
    let mut rebuilt = Set::new();
    for member in set.iter() {
        rebuilt.add(member.text(&mut IntText::new()), limits, args.hasher());
    }
    rebuilt
}

/// Returns the union of the sets at `keys` as a new set.
fn unite<'a>(ctx: &Ctx<'_>, keys: impl Iterator<Item = Key<'a>>, args: &Args<'_>) -> Set {
    let limits = set_limits(ctx);
    let mut union = Set::new();
    for set in keys.filter_map(|key| ctx.db.reread::<Set>(key)) {
        if union.is_empty() {
            union = rebuilt(set, &limits, args);
            continue;
        }
        for member in set.iter() {
            union.add(member.text(&mut IntText::new()), &limits, args.hasher());
        }
    }
    union
}

/// The sets of a difference (SDIFF), except one that is already known to be empty without looking
/// at members.
struct Difference<'s> {
    first: &'s Set,
    /// The sets whose members are subtracted, the largest first.
    others: Vec<&'s Set>,
}

impl<'s> Difference<'s> {
    /// Returns the difference of the first set and the others. `None` if it is empty because the
    /// first set is missing or is also one of the others.
    fn of(sets: &[Option<&'s Set>]) -> Option<Self> {
        let (first, others) = sets.split_first()?;
        let first = (*first)?;
        let mut others: Vec<&Set> = others.iter().copied().flatten().collect();
        others.sort_by_key(|set| std::cmp::Reverse(set.len()));
        (!others.iter().any(|other| std::ptr::eq(*other, first))).then_some(Self { first, others })
    }

    /// Returns true if removing the members of the other sets needs fewer steps than looking up
    /// the members of the first set. O(sets).
    fn is_cheaper_by_removal(&self) -> bool {
        // A lookup stops at the first set that has the member, so half of all lookups are expected.
        let questions = self.first.len() * (self.others.len() + 1) / 2;
        let members = self.first.len() + self.others.iter().map(|set| set.len()).sum::<usize>();
        questions > members
    }

    /// Returns the difference as a copy of the first set without the members of the others.
    /// O(members).
    fn by_removal(&self, limits: &SetLimits, args: &Args<'_>) -> Set {
        let mut difference = rebuilt(self.first, limits, args);
        for member in self.others.iter().flat_map(|set| set.iter()) {
            difference.remove(member.text(&mut IntText::new()), args.hasher());
        }
        difference
    }

    /// Calls `visit` with each member of the difference, until it returns false. O(members of the
    /// first set × sets).
    fn by_lookup(&self, hasher: &Hasher, mut visit: impl FnMut(&[u8]) -> bool) {
        for member in self.first.iter() {
            let mut scratch = IntText::new();
            let text = member.text(&mut scratch);
            if !self.others.iter().any(|set| set.contains(text, hasher)) && !visit(text) {
                return;
            }
        }
    }
}

/// Returns the members of the set at the first key that no set at the other keys has.
fn subtract<'a>(ctx: &Ctx<'_>, keys: impl Iterator<Item = Key<'a>>, args: &Args<'_>) -> Set {
    let (limits, hasher) = (set_limits(ctx), args.hasher());
    let sets: Vec<Option<&Set>> = keys.map(|key| ctx.db.reread::<Set>(key)).collect();
    let Some(difference) = Difference::of(&sets) else { return Set::new() };
    if difference.is_cheaper_by_removal() {
        return difference.by_removal(&limits, args);
    }
    let mut members = Set::new();
    difference.by_lookup(hasher, |member| {
        members.add(member, &limits, hasher);
        true
    });
    members
}

/// Writes the members of `set` as the reply of the command.
fn reply_with(ctx: &mut Ctx<'_>, set: &Set) {
    ctx.reply.set(set.len());
    set.iter().for_each(|member| bulk(&mut ctx.reply, member));
}

/// Stores `set` at `key` with the keyspace event `event`, and replies with its length.
fn store(ctx: &mut Ctx<'_>, key: Key<'_>, set: Set, event: &'static str) {
    store_result(ctx, key, Object::Set(set), StoreEvents::one(EventClass::SET, event));
}

pub(super) static SINTER: Command = Command {
    name: "SINTER",
    summary: "Returns the intersection of sets.",
    history: History::since("1.0.0"),
    group: Group::Set,
    complexity: "O(N*M), N members in the smallest of M sets",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::from(1, 1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0).multiple()],
    run: sinter,
    ..Command::DEFAULT
};
/// Handles SINTER: replies with the set of members that all sets have.
fn sinter(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    check_keys(ctx, keys(args, 1, args.len()))?;
    let mut sets: Vec<_> = keys(args, 1, args.len()).map(|key| ctx.db.reread::<Set>(key)).collect();
    let (begun, mut len) = (ctx.reply.begin_set(), 0);
    intersect(&mut sets, args, |member| {
        bulk(&mut ctx.reply, member);
        len += 1;
        true
    });
    ctx.reply.end_set(begun, len);
    Ok(())
}

pub(super) static SINTERCARD: Command = Command {
    name: "SINTERCARD",
    summary: "Returns the number of members in the intersection of sets.",
    history: History::since("7.0.0"),
    group: Group::Set,
    complexity: "O(N*M), N members in the smallest of M sets",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::counted(1, 0, 1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::integer("limit").token("LIMIT").optional(),
    ],
    run: sintercard,
    ..Command::DEFAULT
};
/// Handles SINTERCARD: replies with the number of members that all sets have, or with LIMIT if
/// there are more.
fn sintercard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let CardRequest { keys: at, limit, .. } = CardRequest::parse(args, CardOptions::Limit)?;
    check_keys(ctx, keys(args, at.start, at.end))?;
    let mut sets: Vec<_> = keys(args, at.start, at.end).map(|key| ctx.db.reread::<Set>(key)).collect();
    let mut len = 0;
    intersect(&mut sets, args, |_| {
        len += 1;
        len != limit
    });
    ctx.reply.integer(len as i64);
    Ok(())
}

/// A parsed request of SINTERCARD, SUNIONCARD or SDIFFCARD.
struct CardRequest {
    /// The indexes of the arguments that are keys of sets.
    keys: Range<usize>,
    /// The greatest number of members to reply with; 0 for no limit.
    limit: usize,
    /// True if the number of members may be an estimate (APPROX).
    is_approximate: bool,
}

/// The options of a command that counts the members of a result.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CardOptions {
    /// The option LIMIT only.
    Limit,
    /// The options LIMIT and APPROX.
    LimitAndApprox,
}

impl CardRequest {
    /// Parses a request of SINTERCARD, SUNIONCARD or SDIFFCARD.
    fn parse(args: &Args<'_>, options: CardOptions) -> Result<Self, CommandError> {
        let count = stdx::number::parse_i64(args.get(1)).filter(|&count| count > 0);
        let count = count.ok_or(CommandError::Line("ERR numkeys should be greater than 0"))?;
        if count > args.len() as i64 - 2 {
            return Err(CommandError::Line("ERR Number of keys can't be greater than number of args"));
        }
        let end = 2 + count as usize;
        let mut request = Self { keys: 2..end, limit: 0, is_approximate: false };
        let mut at = end;
        while at < args.len() {
            if options == CardOptions::LimitAndApprox && args.is(at, "APPROX") {
                request.is_approximate = true;
                at += 1;
                continue;
            }
            if !args.is(at, "LIMIT") || at + 1 >= args.len() {
                return Err(CommandError::Syntax);
            }
            let number =
                stdx::number::parse_i64(args.get(at + 1)).and_then(|limit| usize::try_from(limit).ok());
            request.limit = number.ok_or(CommandError::Line("ERR LIMIT can't be negative"))?;
            at += 2;
        }
        Ok(request)
    }

    /// Returns `len`, or the option LIMIT if that is smaller.
    fn limited(&self, len: usize) -> usize {
        if self.limit == 0 { len } else { len.min(self.limit) }
    }
}

pub(super) static SUNIONCARD: Command = Command {
    name: "SUNIONCARD",
    summary: "Returns the number of members in the union of sets.",
    history: History::since("8.10.0"),
    complexity: "O(N) in the number of members",
    args: &[
        Arg::integer("numkeys"),
        Arg::key("key", 0).multiple(),
        Arg::word("approx", "APPROX").optional(),
        Arg::integer("limit").token("LIMIT").optional(),
    ],
    run: sunioncard,
    ..SINTERCARD
};
/// Handles SUNIONCARD: replies with the number of members that any set has, or with LIMIT if there
/// are more.
fn sunioncard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = CardRequest::parse(args, CardOptions::LimitAndApprox)?;
    check_keys(ctx, keys(args, request.keys.start, request.keys.end))?;
    let sets = keys(args, request.keys.start, request.keys.end);
    let mut sets: Vec<&Set> = sets.filter_map(|key| ctx.db.reread::<Set>(key)).collect();
    sets.sort_by_key(|set| std::cmp::Reverse(set.len()));
    let len = if sets.len() <= 1 {
        sets.first().map_or(0, |set| set.len())
    } else if request.is_approximate {
        union_estimate(&sets)
    } else if sets.len() <= LOOKED_UP_SETS_MAX {
        union_len(&sets, request.limit, args.hasher())
    } else {
        union_len_of_many(&sets, request.limit, &set_limits(ctx), args.hasher())
    };
    ctx.reply.integer(request.limited(len) as i64);
    Ok(())
}

/// The most sets whose union is counted by looking up each member in the sets before its own. The
/// union of more sets is built.
const LOOKED_UP_SETS_MAX: usize = 4;

/// Counts the members of the union of `sets` without a table of them: a member counts in the first
/// set that has it. Stops at `limit`, unless that is 0. O(members × sets).
fn union_len(sets: &[&Set], limit: usize, hasher: &Hasher) -> usize {
    let mut len = sets.first().map_or(0, |set| set.len());
    for (at, set) in sets.iter().enumerate().skip(1) {
        for member in set.iter() {
            if limit > 0 && len >= limit {
                return limit;
            }
            let mut scratch = IntText::new();
            let text = member.text(&mut scratch);
            len += usize::from(!sets[..at].iter().any(|earlier| earlier.contains(text, hasher)));
        }
    }
    len
}

/// Counts the members of the union of many sets, which it builds. Stops at `limit`, unless that is
/// 0. O(members).
fn union_len_of_many(sets: &[&Set], limit: usize, limits: &SetLimits, hasher: &Hasher) -> usize {
    let mut union = Set::new();
    for member in sets.iter().flat_map(|set| set.iter()) {
        if limit > 0 && union.len() >= limit {
            break;
        }
        union.add(member.text(&mut IntText::new()), limits, hasher);
    }
    union.len()
}

/// Estimates the number of members of the union with a HyperLogLog. O(members), 16 KiB.
fn union_estimate(sets: &[&Set]) -> usize {
    let mut registers = Registers::new();
    for member in sets.iter().flat_map(|set| set.iter()) {
        registers.observe(Observation::of(member.text(&mut IntText::new())));
    }
    registers.count() as usize
}

pub(super) static SDIFFCARD: Command = Command {
    name: "SDIFFCARD",
    summary: "Returns the number of members of the first set that no other set has.",
    history: History::since("8.10.0"),
    complexity: "O(N) in the number of members",
    run: sdiffcard,
    ..SINTERCARD
};
/// Handles SDIFFCARD: replies with the number of members of the first set that no other set has, or
/// with LIMIT if there are more.
fn sdiffcard(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let request = CardRequest::parse(args, CardOptions::Limit)?;
    check_keys(ctx, keys(args, request.keys.start, request.keys.end))?;
    let limits = set_limits(ctx);
    let sets = keys(args, request.keys.start, request.keys.end);
    let sets: Vec<Option<&Set>> = sets.map(|key| ctx.db.reread::<Set>(key)).collect();
    let len = Difference::of(&sets).map_or(0, |difference| match request.limit {
        0 if difference.is_cheaper_by_removal() => difference.by_removal(&limits, args).len(),
        limit => {
            let mut len = 0;
            difference.by_lookup(args.hasher(), |_| {
                len += 1;
                len != limit
            });
            len
        }
    });
    ctx.reply.integer(len as i64);
    Ok(())
}

pub(super) static SINTERSTORE: Command = Command {
    name: "SINTERSTORE",
    summary: "Stores the intersection of sets.",
    history: History::since("1.0.0"),
    group: Group::Set,
    complexity: "O(N*M), N members in the smallest of M sets",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::SET),
    keys: &[
        KeySpec::at(1, KeyFlags::OW.union(KeyFlags::UPDATE)),
        KeySpec::from(2, 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
    ],
    args: &[Arg::key("destination", 0), Arg::key("key", 1).multiple()],
    run: sinterstore,
    ..Command::DEFAULT
};
/// Handles SINTERSTORE: replies with the number of members of the intersection, which is stored.
fn sinterstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    check_keys(ctx, keys(args, 2, args.len()))?;
    let limits = set_limits(ctx);
    let mut sets: Vec<_> = keys(args, 2, args.len()).map(|key| ctx.db.reread::<Set>(key)).collect();
    // As in Redis, the result begins as an intset only if the smallest set is one. Otherwise it is
    // converted at the end, if all members are integers and not too many.
    let smallest = sets.iter().flatten().min_by_key(|set| set.len());
    let from_ints = smallest.is_some_and(|set| matches!(set.view(), SetView::Ints(_)));
    let unlike_ints = SetLimits { intset_entries_max: 0, ..limits };
    let mut intersection = Set::new();
    let mut only_ints = true;
    intersect(&mut sets, args, |member| {
        let mut scratch = IntText::new();
        let text = member.text(&mut scratch);
        only_ints &= member.as_int().is_some();
        if from_ints {
            return intersection.add(text, &limits, args.hasher());
        }
        if intersection.is_empty() {
            intersection.expect(1, text, &unlike_ints, args.hasher());
        }
        intersection.add(text, &unlike_ints, args.hasher())
    });
    if only_ints && !from_ints && intersection.len() <= limits.intset_entries_max {
        intersection = rebuilt(&intersection, &limits, args);
    }
    store(ctx, args.key(1), intersection, "sinterstore");
    Ok(())
}

pub(super) static SUNION: Command = Command {
    name: "SUNION",
    summary: "Returns the union of sets.",
    history: History::since("1.0.0"),
    group: Group::Set,
    complexity: "O(N) in the number of members",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::SET),
    keys: &[KeySpec::from(1, 1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output_order"],
    args: &[Arg::key("key", 0).multiple()],
    run: sunion,
    ..Command::DEFAULT
};
/// Handles SUNION: replies with the set of members of all sets.
fn sunion(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    check_keys(ctx, keys(args, 1, args.len()))?;
    let union = unite(ctx, keys(args, 1, args.len()), args);
    reply_with(ctx, &union);
    Ok(())
}

pub(super) static SUNIONSTORE: Command = Command {
    name: "SUNIONSTORE",
    summary: "Stores the union of sets.",
    complexity: "O(N) in the number of members",
    run: sunionstore,
    ..SINTERSTORE
};
/// Handles SUNIONSTORE: replies with the number of members of the union, which is stored.
fn sunionstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    check_keys(ctx, keys(args, 2, args.len()))?;
    let union = unite(ctx, keys(args, 2, args.len()), args);
    store(ctx, args.key(1), union, "sunionstore");
    Ok(())
}

pub(super) static SDIFF: Command = Command {
    name: "SDIFF",
    summary: "Returns the difference of sets: the members of the first set that no other set has.",
    run: sdiff,
    ..SUNION
};
/// Handles SDIFF: replies with the set of members of the first set that no other set has.
fn sdiff(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    check_keys(ctx, keys(args, 1, args.len()))?;
    let difference = subtract(ctx, keys(args, 1, args.len()), args);
    reply_with(ctx, &difference);
    Ok(())
}

pub(super) static SDIFFSTORE: Command = Command {
    name: "SDIFFSTORE",
    summary: "Stores the difference of sets: the members of the first set that no other set has.",
    complexity: "O(N) in the number of members",
    run: sdiffstore,
    ..SINTERSTORE
};
/// Handles SDIFFSTORE: replies with the number of members of the difference, which is stored.
fn sdiffstore(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    check_keys(ctx, keys(args, 2, args.len()))?;
    let difference = subtract(ctx, keys(args, 2, args.len()), args);
    store(ctx, args.key(1), difference, "sdiffstore");
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::collection::harness_without_new;
    use crate::harness::Harness;

    /// Returns the members of a set in a reply, sorted.
    fn sorted(reply: &str) -> Vec<String> {
        let mut members: Vec<String> = reply
            .split('|')
            .filter(|part| !part.is_empty() && !part.starts_with(['*', '~', '$']))
            .map(Into::into)
            .collect();
        members.sort();
        members
    }

    #[test]
    fn algebra_is_that_of_naive_sets() {
        use std::collections::BTreeSet;
        let mut db = Harness::new();
        let sets: Vec<BTreeSet<String>> = [(2, 900), (3, 600), (5, 40), (1, 0)]
            .into_iter()
            .map(|(step, len)| (0..len).map(|i| (i * step).to_string()).collect())
            .collect();
        for (name, set) in sets.iter().enumerate() {
            set.iter().for_each(|member| drop(db.line(&format!("SADD s{name} {member}"))));
            set.iter().for_each(|member| drop(db.line(&format!("SADD m{name} {member} x{member}"))));
        }
        for picks in [&[0][..], &[0, 1], &[1, 0], &[0, 1, 2], &[2, 1, 0], &[2, 3], &[3, 0], &[0, 0]] {
            let names = picks.iter().map(|pick| format!(" s{pick}")).collect::<String>();
            let chosen: Vec<&BTreeSet<String>> = picks.iter().map(|&pick| &sets[pick]).collect();
            let union: BTreeSet<String> = chosen.iter().flat_map(|set| set.iter().cloned()).collect();
            let inter: Vec<String> = union
                .iter()
                .filter(|member| chosen.iter().all(|set| set.contains(*member)))
                .cloned()
                .collect();
            let diff: Vec<String> = chosen[0]
                .iter()
                .filter(|member| !chosen[1..].iter().any(|set| set.contains(*member)))
                .cloned()
                .collect();
            let union: Vec<String> = union.into_iter().collect();
            for (command, expected) in [("SINTER", &inter), ("SUNION", &union), ("SDIFF", &diff)] {
                assert_eq!(&sorted(&db.line(&format!("{command}{names}"))), expected, "{command}{names}");
                let stored = db.line(&format!("{command}STORE d{names}"));
                assert_eq!(stored, format!(":{}|", expected.len()));
                assert_eq!(&sorted(&db.line("SMEMBERS d")), expected);
            }
            let count = format!("SINTERCARD {}{names}", picks.len());
            assert_eq!(db.line(&count), format!(":{}|", inter.len()));
            assert_eq!(db.line(&format!("{count} LIMIT 7")), format!(":{}|", inter.len().min(7)));
            for (command, expected) in [("SUNIONCARD", union.len()), ("SDIFFCARD", diff.len())] {
                let count = format!("{command} {}{names}", picks.len());
                assert_eq!(db.line(&count), format!(":{expected}|"), "{count}");
                assert_eq!(db.line(&format!("{count} limit 7")), format!(":{}|", expected.min(7)));
                let two = format!("{command} {}{names}{names}", 2 * picks.len());
                let expected = if command == "SDIFFCARD" { 0 } else { expected };
                assert_eq!(db.line(&two), format!(":{expected}|"), "{two}");
            }
            let estimate = format!("SUNIONCARD {}{names} APPROX", picks.len());
            let found = db.line(&estimate).trim_matches([':', '|']).parse::<f64>().expect("a number");
            let exact = union.len() as f64;
            assert!((found - exact).abs() <= exact * 0.04, "{estimate}: {found}, exactly {exact}");
            assert_eq!(db.line(&format!("{estimate} LIMIT 3")), format!(":{}|", union.len().min(3)));
        }
        let mixed = db.line("SINTERCARD 2 m0 s0");
        assert_eq!(mixed, ":900|");
    }

    #[test]
    fn an_empty_result_removes_the_destination() {
        harness_without_new().check_events(&[
            ("SADD a 1 2", ":2|", "sadd a@0"),
            ("SET d x", "+OK|", "set d@0"),
            ("SUNIONSTORE d a", ":2|", "sunionstore d@0"),
            ("SINTERSTORE d a nokey", ":0|", "del d@0"),
            ("SINTERSTORE d a nokey", ":0|", ""),
            ("SDIFFSTORE a a b", ":2|", "sdiffstore a@0"),
            ("SDIFFSTORE a a a", ":0|", "del a@0"),
        ]);
    }

    #[test]
    fn a_stored_set_has_the_encoding_that_its_members_give() {
        let mut db = Harness::new();
        for line in ["SADD a 1 2 x", "SREM a x", "SUNIONSTORE u a", "SADD b 1", "SDIFFSTORE d a b"] {
            db.line(line);
        }
        assert_eq!(db.line("OBJECT ENCODING a"), "$8|listpack|");
        assert_eq!(db.line("OBJECT ENCODING u"), "$6|intset|");
        assert_eq!(db.line("OBJECT ENCODING d"), "$6|intset|");
    }

    #[test]
    fn every_key_must_be_a_set_even_beside_an_absent_one() {
        let mut db = Harness::new();
        db.line("SET s x");
        for line in
            ["SINTER nokey s", "SINTER s nokey", "SUNION nokey s", "SDIFF nokey s", "SINTERCARD 2 nokey s"]
        {
            assert!(db.line(line).starts_with("-WRONGTYPE "), "{line}");
        }
    }

    #[test]
    fn sintercard_checks_its_numbers() {
        crate::harness::check(&[
            ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0|"),
            ("SINTERCARD x a", "-ERR numkeys should be greater than 0|"),
            ("SINTERCARD 1 a LIMIT", "-ERR syntax error|"),
            ("SINTERCARD 1 a LIMIT -1", "-ERR LIMIT can't be negative|"),
            ("SINTERCARD 1 a LIMIT x", "-ERR LIMIT can't be negative|"),
            ("SINTERCARD 1 a FOO", "-ERR syntax error|"),
            ("SINTERCARD 1 a APPROX", "-ERR syntax error|"),
            ("SDIFFCARD 1 a APPROX", "-ERR syntax error|"),
            ("SUNIONCARD 1 a APPROX LIMIT", "-ERR syntax error|"),
            ("SUNIONCARD 2 a", "-ERR Number of keys can't be greater than number of args|"),
        ]);
    }
}
