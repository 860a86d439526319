//! Commands that estimate the number of distinct elements. The value is a string in Redis' own
//! format: see [`structures::hll`]. The commands accept any string and fail if it is not a
//! HyperLogLog.

use keyspace::string::{Str, bytes_to_change, edit};
use keyspace::{Expiry, Key, KeyEntry};
use structures::hll::{self, Corrupted, Encoding, Hll, HllMut, Observation, Registers};

use crate::args::{Args, Upper};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The command table's records of all HyperLogLog commands.
pub static COMMANDS: &[&Command] = &[&PFADD, &PFCOUNT, &PFMERGE, &PFDEBUG, &PFSELFTEST];

/// Returns the HyperLogLog in `string`. A string stored as a number is never one: its text is
/// shorter than a header.
fn hll_of(string: Str<'_>) -> Result<Hll<'_>, CommandError> {
    let bytes = match string {
        Str::Bytes(bytes) => bytes,
        Str::Int(_) => b"",
        Str::Blob(blob) => blob,
    };
    Ok(Hll::of(bytes)?)
}

/// Returns the HyperLogLog that a keyspace entry holds.
fn hll_in(entry: &KeyEntry) -> Result<Hll<'_>, CommandError> {
    hll_of(Str::of(entry.view()).ok_or(CommandError::WrongType)?)
}

/// Changes the HyperLogLog of a keyspace entry with `work`. The caller has checked that it holds
/// one. O(1) if dense, O(bytes) if sparse.
fn edit_hll<R>(entry: &mut KeyEntry, work: impl FnOnce(&mut HllMut<'_>) -> R) -> R {
    edit(entry, |bytes| work(&mut HllMut::of(bytes).expect("the caller found a HyperLogLog")))
}

static PFADD: Command = Command {
    name: "PFADD",
    summary: "Adds elements to a HyperLogLog.",
    history: History::since("2.8.9"),
    group: Group::Hyperloglog,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HYPERLOGLOG),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[Arg::key("key", 0), Arg::string("element").optional().multiple()],
    run: pfadd,
    ..Command::DEFAULT
};
/// Handles PFADD: replies with 1 if the command changed a register or created the key, else 0.
fn pfadd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, sparse_max) = (args.key(1), ctx.limits.hll_sparse_max_bytes);
    let (changes, outcome) = if let Some(mut entry) = ctx.db.entry_mut(key) {
        // Most elements were seen before. An element that changes nothing is detected without
        // copying the value.
        let hll = hll_in(&entry)?;
        let mut observations = args.from(2).map(Observation::of).peekable();
        while observations.next_if(|&seen| hll.covers(seen) == Ok(true)).is_some() {}
        if observations.peek().is_some() {
            edit_hll(&mut entry, |hll| add_all(hll, observations, sparse_max))
        } else {
            entry.mark();
            (0, Ok(()))
        }
    } else {
        let mut bytes = hll::empty();
        let mut hll = HllMut::of(&mut bytes).expect("an empty one is one");
        let (added, outcome) = add_all(&mut hll, args.from(2).map(Observation::of), sparse_max);
        hll.forget_count();
        ctx.db.set_raw_string(key, bytes, Expiry::Clear);
        (added + 1, outcome)
    };
    if changes > 0 {
        ctx.changed_by(changes, EventClass::STRING, "pfadd", key);
    }
    outcome?;
    ctx.reply.integer(i64::from(changes > 0));
    Ok(())
}

/// Adds the elements that `observations` describe. Stops at the first element whose register cannot
/// be read because the registers are corrupt. Returns the number of changed registers.
fn add_all(
    hll: &mut HllMut<'_>,
    observations: impl Iterator<Item = Observation>,
    sparse_max: usize,
) -> (u64, Result<(), Corrupted>) {
    let mut changes = 0;
    let mut outcome = Ok(());
    for observation in observations {
        match hll.add(observation, sparse_max) {
            Ok(changed) => changes += u64::from(changed),
            Err(corrupted) => {
                outcome = Err(corrupted);
                break;
            }
        }
    }
    if changes > 0 {
        hll.forget_count();
    }
    (changes, outcome)
}

static PFCOUNT: Command = Command {
    name: "PFCOUNT",
    summary: "Estimates the number of different elements in one or several HyperLogLogs.",
    history: History::since("2.8.9"),
    group: Group::Hyperloglog,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY.union(Flags::MAY_REPLICATE),
    acl: Acl::READ.union(Acl::HYPERLOGLOG),
    keys: &[KeySpec::from(1, 1, KeyFlags::RW.union(KeyFlags::ACCESS)).noting(
        "RW because it may change the internal representation of the key, and propagate to replicas",
    )],
    args: &[Arg::key("key", 0).multiple()],
    run: pfcount,
    ..Command::DEFAULT
};
/// Handles PFCOUNT: replies with the estimate. The estimate of a single key is stored in the key's
/// value until an element changes a register. Storing it counts as a change without an event.
fn pfcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let count = if args.len() > 2 { count_union(ctx, args)? } else { count_one(ctx, args.key(1))? };
    ctx.reply.integer(count as i64);
    Ok(())
}

fn count_one(ctx: &mut Ctx<'_>, key: Key<'_>) -> Result<u64, CommandError> {
    let Some(string) = ctx.db.string(key)? else { return Ok(0) };
    let hll = hll_of(string)?;
    if let Some(count) = hll.cached_count() {
        return Ok(count);
    }
    let count = hll.count()?;
    let mut entry = ctx.db.entry_mut(key).expect("it was found just now");
    hll::cache_count(bytes_to_change(&mut entry, 0), count);
    drop(entry);
    ctx.changed_without_event(1, key);
    Ok(count)
}

fn count_union(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<u64, CommandError> {
    let mut registers = Registers::new();
    for at in 1..args.len() {
        merge_key(ctx, args.key(at), &mut registers)?;
    }
    Ok(registers.count())
}

/// Merges the HyperLogLog at `key` into `registers`. Returns the HyperLogLog's encoding, or `None`
/// if the key is missing.
fn merge_key(
    ctx: &mut Ctx<'_>,
    key: Key<'_>,
    registers: &mut Registers,
) -> Result<Option<Encoding>, CommandError> {
    let Some(string) = ctx.db.string(key)? else { return Ok(None) };
    let hll = hll_of(string)?;
    registers.merge(&hll)?;
    Ok(Some(hll.encoding()))
}

static PFMERGE: Command = Command {
    name: "PFMERGE",
    summary: "Merges HyperLogLogs into one.",
    history: History::since("2.8.9"),
    group: Group::Hyperloglog,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::HYPERLOGLOG),
    keys: &[
        KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::INSERT)),
        KeySpec::from(2, 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
    ],
    args: &[Arg::key("destkey", 0), Arg::key("sourcekey", 1).optional().multiple()],
    run: pfmerge,
    ..Command::DEFAULT
};
/// Handles PFMERGE: replies with OK. The destination is also a source, and is created if missing.
/// It becomes dense if one of the sources is dense.
fn pfmerge(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, sparse_max) = (args.key(1), ctx.limits.hll_sparse_max_bytes);
    let mut registers = Registers::new();
    let mut dense = false;
    for at in 1..args.len() {
        dense |= merge_key(ctx, args.key(at), &mut registers)? == Some(Encoding::Dense);
    }
    if !ctx.db.contains(key) {
        ctx.db.set_raw_string(key, hll::empty(), Expiry::Clear);
    }
    let mut entry = ctx.db.entry_mut(key).ok_or(CommandError::UndeclaredKey)?;
    let outcome = edit_hll(&mut entry, |hll| {
        if dense {
            hll.make_dense()?;
        }
        hll.raise_to(&registers, sparse_max)?;
        hll.forget_count();
        Ok::<_, Corrupted>(())
    });
    drop(entry);
    outcome.expect("registers were read from it whole");
    ctx.changed(EventClass::STRING, "pfadd", key);
    ctx.reply.ok();
    Ok(())
}

static PFDEBUG: Command = Command {
    name: "PFDEBUG",
    summary: "Shows the encoding of a HyperLogLog, or converts it to the dense encoding.",
    history: History::since("2.8.9"),
    group: Group::Hyperloglog,
    complexity: "O(N)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::ADMIN).union(Flags::INTERNAL),
    acl: Acl::WRITE.union(Acl::HYPERLOGLOG).union(Acl::ADMIN).union(Acl::DANGEROUS),
    keys: &[KeySpec::at(2, KeyFlags::RW.union(KeyFlags::ACCESS))],
    args: &[Arg::string("subcommand"), Arg::key("key", 0)],
    run: pfdebug,
    ..Command::DEFAULT
};
/// Handles PFDEBUG. GETREG replies with all registers, and converts the value to the dense
/// encoding. DECODE replies with the runs of a sparse value, ENCODING with dense or sparse. TODENSE
/// replies with 1 if the value was sparse. SIMD ON and SIMD OFF have no effect, because there is
/// only one implementation.
fn pfdebug(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (name, key) = (Upper::of(args.get(1)), args.key(2));
    if &*name == b"SIMD" {
        return simd(ctx, args);
    }
    let Some(mut entry) = ctx.db.entry_mut(key) else {
        return Err(CommandError::Line("ERR The specified key does not exist"));
    };
    let encoding = hll_in(&entry)?.encoding();
    match &*name {
        b"ENCODING" => ctx.reply.simple(encoding.name()),
        b"DECODE" if encoding == Encoding::Dense => {
            return Err(CommandError::Line("ERR HLL encoding is not sparse"));
        }
        b"DECODE" => {
            let runs = hll_in(&entry)?.runs_as_they_are().map(|run| match run.value {
                0 if run.len_bytes == 1 => format!("z:{}", run.len),
                0 => format!("Z:{}", run.len),
                value => format!("v:{value},{}", run.len),
            });
            ctx.reply.bulk(runs.collect::<Vec<_>>().join(" ").as_bytes());
        }
        b"TODENSE" | b"GETREG" => {
            let was_sparse = encoding == Encoding::Sparse;
            if was_sparse {
                edit_hll(&mut entry, |hll| hll.make_dense())?;
                ctx.effects.changes += 1;
            }
            if &*name == b"TODENSE" {
                ctx.reply.integer(i64::from(was_sparse));
                return Ok(());
            }
            let mut registers = Registers::new();
            registers.merge(&hll_in(&entry)?)?;
            ctx.reply.array(hll::REGISTERS);
            registers.values().iter().for_each(|&value| ctx.reply.integer(value.into()));
        }
        _ => return Err(CommandError::quoting("ERR Unknown PFDEBUG subcommand '", args.get(1), "'")),
    }
    Ok(())
}

fn simd(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    match &*Upper::of(args.get(2)) {
        b"ON" => ctx.reply.simple("enabled"),
        b"OFF" => ctx.reply.simple("disabled"),
        _ => return Err(CommandError::Line("ERR Argument must be ON or OFF")),
    }
    Ok(())
}

static PFSELFTEST: Command = Command {
    name: "PFSELFTEST",
    summary: "Tests the registers and the estimates of HyperLogLogs.",
    history: History::since("2.8.9"),
    group: Group::Hyperloglog,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::ADMIN.union(Flags::INTERNAL),
    acl: Acl::HYPERLOGLOG.union(Acl::ADMIN).union(Acl::DANGEROUS),
    run: pfselftest,
    ..Command::DEFAULT
};
/// Handles PFSELFTEST: replies with OK, or with the failed check.
fn pfselftest(ctx: &mut Ctx<'_>, _: &Args<'_>) -> Result<(), CommandError> {
    hll::self_test(|| ctx.rng.u64(..)).map_err(|wrong| CommandError::Text(format!("TESTFAILED {wrong}")))?;
    ctx.reply.ok();
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    const WRONG: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    const NOT_HLL: &str = "-WRONGTYPE Key is not a valid HyperLogLog string value.|";
    const CORRUPTED: &str = "-INVALIDOBJ Corrupted HLL object detected|";

    #[test]
    fn elements_are_added_counted_and_merged() {
        check(&[
            ("PFADD a x y z", ":1|"),
            ("PFADD a x y z", ":0|"),
            ("PFCOUNT a", ":3|"),
            ("PFADD a z w", ":1|"),
            ("PFCOUNT a", ":4|"),
            ("PFADD b", ":1|"),
            ("PFADD b", ":0|"),
            ("PFCOUNT b none", ":0|"),
            ("PFCOUNT none", ":0|"),
            ("PFADD c 1 2 3", ":1|"),
            ("PFCOUNT a b c", ":7|"),
            ("PFMERGE a c none", "+OK|"),
            ("PFCOUNT a", ":7|"),
            ("PFMERGE new", "+OK|"),
            ("PFCOUNT new", ":0|"),
            ("PFDEBUG ENCODING new", "+sparse|"),
            ("OBJECT ENCODING new", "$3|raw|"),
            ("PFSELFTEST", "+OK|"),
        ]);
    }

    #[test]
    fn the_bytes_are_those_of_redis() {
        check(&[
            ("PFADD k a b c", ":1|"),
            ("PFDEBUG DECODE k", "$44|Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603|"),
            ("GETRANGE k 0 15", "$16|HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80|"),
            ("GETRANGE k 16 -1", "$11|`\\xf3\\x80P\\xb1\\x84K\\xfb\\x80BZ|"),
            ("PFCOUNT k", ":3|"),
            ("GETRANGE k 8 15", "$8|\\x03\\x00\\x00\\x00\\x00\\x00\\x00\\x00|"),
        ]);
    }

    #[test]
    fn other_strings_and_damaged_ones_are_refused() {
        check(&[
            ("SET s HYLL", "+OK|"),
            ("SET n 1", "+OK|"),
            ("RPUSH l 1", ":1|"),
            ("PFADD s a", NOT_HLL),
            ("PFCOUNT n", NOT_HLL),
            ("PFMERGE new s", NOT_HLL),
            ("EXISTS new", ":0|"),
            ("PFCOUNT none l", WRONG),
            ("PFADD l a", WRONG),
            ("PFDEBUG ENCODING l", WRONG),
            ("PFDEBUG ENCODING none", "-ERR The specified key does not exist|"),
            ("PFADD h a b c", ":1|"),
            ("APPEND h \"\\x00\"", ":28|"),
            ("PFCOUNT h", CORRUPTED),
            ("PFCOUNT h h", CORRUPTED),
            ("PFMERGE h", CORRUPTED),
            ("PFDEBUG GETREG h", CORRUPTED),
            ("PFDEBUG TODENSE h", CORRUPTED),
            ("PFDEBUG WHAT h", "-ERR Unknown PFDEBUG subcommand 'WHAT'|"),
            ("PFDEBUG DECODE h", "$48|Z:8436 v:1,1 Z:4274 v:2,1 Z:3068 v:1,1 Z:603 z:1|"),
        ]);
    }

    #[test]
    fn dense_ones_are_changed_in_place_and_stay_dense() {
        check(&[
            ("PFADD k a", ":1|"),
            ("PFDEBUG TODENSE k", ":1|"),
            ("PFDEBUG TODENSE k", ":0|"),
            ("PFDEBUG ENCODING k", "+dense|"),
            ("PFDEBUG DECODE k", "-ERR HLL encoding is not sparse|"),
            ("PFADD k a", ":0|"),
            ("PFADD k b", ":1|"),
            ("PFCOUNT k", ":2|"),
            ("STRLEN k", ":12304|"),
            ("PFADD s c", ":1|"),
            ("PFMERGE s k", "+OK|"),
            ("PFDEBUG ENCODING s", "+dense|"),
            ("PFCOUNT s k", ":3|"),
            ("PFDEBUG SIMD on", "+enabled|"),
        ]);
    }

    #[test]
    fn events_and_changes_are_those_of_redis() {
        let mut db = Harness::new();
        db.check_events(&[
            ("PFADD k a b", ":1|", "pfadd k@0"),
            ("PFADD k a", ":0|", ""),
            ("PFCOUNT k", ":2|", ""),
            ("PFCOUNT k", ":2|", ""),
            ("PFMERGE k", "+OK|", "pfadd k@0"),
            ("PFDEBUG TODENSE k", ":1|", ""),
        ]);
        assert_eq!(db.effects.changes, 3 + 1 + 1 + 1);
    }

    #[test]
    fn the_limit_of_sparse_ones_is_the_configured_one() {
        let mut db = Harness::new();
        db.limits.hll_sparse_max_bytes = 24;
        for (element, encoding) in [("a", "+sparse|"), ("b", "+sparse|"), ("c", "+dense|")] {
            assert_eq!(db.run(&["PFADD", "k", element]), ":1|");
            assert_eq!(db.run(&["PFDEBUG", "ENCODING", "k"]), encoding);
        }
        db.limits.hll_sparse_max_bytes = 20_000;
        for element in 0..6000 {
            db.run(&["PFADD", "long", &element.to_string()]);
        }
        assert_eq!(db.run(&["PFDEBUG", "ENCODING", "long"]), "+sparse|");
        assert_eq!(db.run(&["PFCOUNT", "long", "long"]), db.run(&["PFCOUNT", "long"]));
    }
}
