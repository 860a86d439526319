//! Commands that iterate over a database or draw random keys. They lock one shard at a time.

use keyspace::key::SHARD_COUNT;
use keyspace::object::type_name;
use keyspace::{KeyEntry, ScanCursor};
use stdx::glob::glob_match;

use crate::args::Args;
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History};
use crate::walk::{WalkCtx, Walked, Walker};

/// The number of keys per call of SCAN without the option COUNT.
const COUNT_DEFAULT: usize = 10;
/// The maximum number of buckets that SCAN visits per requested key. It limits the time of a call
/// whose filter only few keys pass.
const BUCKETS_PER_COUNT: usize = 10;
/// The maximum number of expired keys that RANDOMKEY draws before it replies with null.
const RANDOM_DRAWS_MAX: usize = 100;

pub(super) static SCAN: Command<Walker> = Command {
    name: "SCAN",
    summary: "Iterates over the keys of a database with a cursor.",
    history: History::since("2.8.0").changed(&[("6.0.0", "takes TYPE")]),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    acl: Acl::KEYSPACE.union(Acl::READ),
    tips: &["nondeterministic_output", "request_policy:special", "response_policy:special"],
    args: &[
        Arg::integer("cursor"),
        Arg::pattern("pattern").token("MATCH").optional(),
        Arg::integer("count").token("COUNT").optional(),
        Arg::string("type").token("TYPE").since("6.0.0").optional(),
    ],
    run: scan,
    ..Command::DEFAULT
};
/// Handles SCAN: replies with the next cursor, which is 0 at the end, and with keys. Keys that
/// exist during the whole iteration are returned, some perhaps twice. A call may return a few more
/// than `count`. Expired keys that match the pattern are removed.
fn scan(ctx: &mut WalkCtx<'_>, args: &Args<'_>) -> Result<Walked, CommandError> {
    let number = args.cursor(1)?;
    let filter = Filter::parse(args, ctx.access_context.due_ms())?;
    let (keyspace, db) = (ctx.keyspace, ctx.db);
    let mut cursor = ScanCursor::from_number(number);
    let mut keys: Vec<Box<[u8]>> = Vec::new();
    for _ in 0..filter.count.saturating_mul(BUCKETS_PER_COUNT) {
        cursor = keyspace.scan_step(db, cursor, |entry| match filter.verdict(entry) {
            Verdict::Passes => keys.push(entry.key().into()),
            Verdict::Due => ctx.expired(entry.key().into()),
            Verdict::Other => {}
        })?;
        if cursor == ScanCursor::START || keys.len() >= filter.count {
            break;
        }
    }
    ctx.reply.array(2);
    ctx.reply.bulk(cursor.number().to_string().as_bytes());
    ctx.reply.array(keys.len());
    for key in &keys {
        ctx.reply.bulk(key);
    }
    Ok(Walked::Done)
}

/// The result of SCAN's filter for one key.
#[derive(PartialEq, Eq)]
enum Verdict {
    /// The key passes the filter: SCAN returns it.
    Passes,
    /// The key matches the pattern but has expired: SCAN asks the engine to remove it.
    Due,
    /// The key does not pass the filter: SCAN skips it.
    Other,
}

/// The filter of the keys that SCAN returns. Expired keys never pass.
struct Filter<'a> {
    due_ms: i64,
    pattern: Option<&'a [u8]>,
    type_name: Option<&'a [u8]>,
    count: usize,
}

impl<'a> Filter<'a> {
    fn parse(args: &Args<'a>, due_ms: i64) -> Result<Self, CommandError> {
        let mut filter = Filter { due_ms, pattern: None, type_name: None, count: COUNT_DEFAULT };
        for at in (2..args.len()).step_by(2) {
            let value = args.try_get(at + 1).ok_or(CommandError::Syntax)?;
            if args.is(at, "MATCH") {
                filter.pattern = Some(value).filter(|&pattern| pattern != b"*");
            } else if args.is(at, "TYPE") {
                filter.type_name = Some(value);
            } else if args.is(at, "COUNT") {
                let count = usize::try_from(args.integer(at + 1)?).ok().filter(|&count| count > 0);
                filter.count = count.ok_or(CommandError::Syntax)?;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(filter)
    }

    fn verdict(&self, entry: &KeyEntry) -> Verdict {
        if !self.pattern.is_none_or(|pattern| glob_match(pattern, entry.key())) {
            Verdict::Other
        } else if entry.expiry_ms().is_some_and(|at_ms| at_ms <= self.due_ms) {
            Verdict::Due
        } else if self.type_name.is_none_or(|name| name.eq_ignore_ascii_case(type_name(entry).as_bytes())) {
            Verdict::Passes
        } else {
            Verdict::Other
        }
    }
}

pub(super) static KEYS: Command<Walker> = Command {
    name: "KEYS",
    summary: "Returns all keys that match a pattern.",
    history: History::since("1.0.0"),
    group: Group::Generic,
    complexity: "O(N)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::EXCLUSIVE),
    acl: Acl::KEYSPACE.union(Acl::READ).union(Acl::DANGEROUS),
    tips: &["request_policy:all_shards", "nondeterministic_output_order"],
    args: &[Arg::pattern("pattern")],
    run: list_keys,
    ..Command::DEFAULT
};
/// Handles KEYS: replies with the keys, in no order. All other commands wait until KEYS ends; use
/// SCAN for large keyspaces.
fn list_keys(ctx: &mut WalkCtx<'_>, args: &Args<'_>) -> Result<Walked, CommandError> {
    let due_ms = ctx.access_context.due_ms();
    let pattern = Some(args.get(1)).filter(|&pattern| pattern != b"*");
    let filter = Filter { due_ms, pattern, type_name: None, count: 0 };
    let begun = ctx.reply.begin_array();
    let mut count = 0;
    for shard in 0..SHARD_COUNT {
        let guard = ctx.keyspace.lock(shard);
        let entries = guard.db(ctx.db).into_iter().flat_map(|db| db.table().iter());
        for entry in entries.filter(|entry| filter.verdict(entry) == Verdict::Passes) {
            ctx.reply.bulk(entry.key());
            count += 1;
        }
    }
    ctx.reply.end_array(begun, count);
    Ok(Walked::Done)
}

pub(super) static RANDOMKEY: Command<Walker> = Command {
    name: "RANDOMKEY",
    summary: "Returns a random key.",
    history: History::since("1.0.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::READONLY.union(Flags::SHORT),
    acl: Acl::KEYSPACE.union(Acl::READ),
    tips: &["request_policy:all_shards", "response_policy:special", "nondeterministic_output"],
    run: randomkey,
    ..Command::DEFAULT
};
/// Handles RANDOMKEY: replies with a key, or null if there is none. A drawn key that has expired is
/// removed, if this server removes expired keys, and another key is drawn. The reply is also null
/// after [`RANDOM_DRAWS_MAX`] draws of expired keys.
fn randomkey(ctx: &mut WalkCtx<'_>, _args: &Args<'_>) -> Result<Walked, CommandError> {
    let due_ms = ctx.access_context.due_ms();
    for _ in ctx.calls_before..RANDOM_DRAWS_MAX {
        let rng = &mut *ctx.rng;
        let drawn = ctx.keyspace.random_key(ctx.db, &mut || rng.u64(..), |entry| {
            (Box::from(entry.key()), entry.expiry_ms().is_some_and(|at_ms| at_ms <= due_ms))
        });
        let Some((key, is_due)) = drawn else { break };
        if !is_due {
            ctx.reply.bulk(&key);
            return Ok(Walked::Done);
        }
        if ctx.access_context.removes_due() {
            ctx.expired(key);
            return Ok(Walked::Again);
        }
    }
    ctx.reply.null();
    Ok(Walked::Done)
}

pub(super) static DBSIZE: Command<Walker> = Command {
    name: "DBSIZE",
    summary: "Returns the number of keys in the selected database.",
    history: History::since("1.0.0"),
    group: Group::Server,
    complexity: "O(1)",
    arity: Arity::Exactly(1),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::READ),
    tips: &["request_policy:all_shards", "response_policy:agg_sum"],
    run: dbsize,
    ..Command::DEFAULT
};
/// Handles DBSIZE: replies with the number of keys, including expired keys that have not been
/// removed yet.
fn dbsize(ctx: &mut WalkCtx<'_>, _args: &Args<'_>) -> Result<Walked, CommandError> {
    let size = ctx.keyspace.db_size(ctx.db)?;
    ctx.reply.integer(size.keys as i64);
    Ok(Walked::Done)
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};
    use std::collections::BTreeSet;

    /// Returns the cursor and the keys of SCAN's reply.
    fn scan(db: &mut Harness, request: &str) -> (String, Vec<String>) {
        let reply = db.line(request);
        let parts: Vec<&str> = reply.split('|').collect();
        assert_eq!(parts[0], "*2");
        let keys = parts[4..].chunks(2).filter(|pair| pair.len() == 2).map(|pair| pair[1].to_owned());
        (parts[2].to_owned(), keys.collect())
    }

    fn scan_all(db: &mut Harness, options: &str) -> BTreeSet<String> {
        let (mut cursor, mut seen) = ("0".to_owned(), BTreeSet::new());
        loop {
            let (next, keys) = scan(db, &format!("SCAN {cursor} {options}"));
            seen.extend(keys);
            if next == "0" {
                return seen;
            }
            cursor = next;
        }
    }

    #[test]
    fn scan_returns_all_keys_whatever_the_count() {
        let mut db = Harness::new();
        for number in 0..1_000 {
            db.line(&format!("SET k{number} 1"));
        }
        db.line("RPUSH list 1");
        db.line("SET gone 1 PX 1");
        db.now_ms += 2;
        for count in [1, 7, 10, 100, 5_000] {
            assert_eq!(scan_all(&mut db, &format!("COUNT {count}")).len(), 1_001);
        }
        assert_eq!(scan_all(&mut db, "MATCH k1?").len(), 10);
        assert_eq!(scan_all(&mut db, "MATCH *").len(), 1_001);
        assert_eq!(scan_all(&mut db, "TYPE LIST"), BTreeSet::from(["list".to_owned()]));
        assert_eq!(scan_all(&mut db, "TYPE nonsense").len(), 0);
        let (_, keys) = scan(&mut db, "SCAN 0 COUNT 100");
        assert!((100..120).contains(&keys.len()));
    }

    /// Adds or removes the element `name` of the database or collection that `verb` scans.
    fn put(db: &mut Harness, verb: &str, name: &str, present: bool) {
        let line = match (verb, present) {
            ("SCAN", true) => format!("SET {name} x"),
            ("SCAN", false) => format!("DEL {name}"),
            ("SSCAN c", true) => format!("SADD c {name}"),
            ("SSCAN c", false) => format!("SREM c {name}"),
            ("HSCAN c", true) => format!("HSET c {name} x"),
            ("HSCAN c", false) => format!("HDEL c {name}"),
            (_, true) => format!("ZADD c 1 {name}"),
            (_, false) => format!("ZREM c {name}"),
        };
        db.line(&line);
    }

    #[test]
    fn what_stays_is_returned_however_the_rest_grows_and_shrinks_meanwhile() {
        for (seed, verb) in (0..40).zip(["SCAN", "SSCAN c", "HSCAN c", "ZSCAN c"].into_iter().cycle()) {
            let mut rng = fastrand::Rng::with_seed(seed);
            let mut db = Harness::new();
            // From one element, stored as a listpack, to hundreds.
            let stable: Vec<String> = (0..rng.usize(1..600)).map(|n| format!("stays{n}")).collect();
            for name in &stable {
                put(&mut db, verb, name, true);
            }
            let mut transient = 0;
            let mut seen = BTreeSet::new();
            let mut cursor = "0".to_owned();
            loop {
                let count = rng.usize(1..30);
                let (next, names) = scan(&mut db, &format!("{verb} {cursor} COUNT {count}"));
                seen.extend(names);
                cursor = next;
                if cursor == "0" {
                    break;
                }
                // The sizes alternate, so that tables grow and shrink a lot within one scan.
                let goal = if rng.u32(..10) < 5 { rng.usize(..1500) } else { 0 };
                while transient != goal {
                    let grows = transient < goal;
                    transient -= usize::from(!grows);
                    put(&mut db, verb, &format!("goes{transient}"), grows);
                    transient += usize::from(grows);
                }
            }
            let missed = stable.iter().find(|name| !seen.contains(*name));
            assert_eq!(missed, None, "{verb}, seed {seed}");
        }
    }

    #[test]
    fn a_few_keys_come_at_once() {
        let mut db = Harness::new();
        db.line("MSET a 1 b 2 c 3");
        let (cursor, keys) = scan(&mut db, "SCAN 0");
        assert_eq!((cursor.as_str(), keys.len()), ("0", 3));
    }

    #[test]
    fn scan_refuses_what_redis_refuses() {
        let (cursor, syntax) = ("-ERR invalid cursor|", "-ERR syntax error|");
        check(&[
            ("SCAN x", cursor),
            ("SCAN -1", cursor),
            ("SCAN \"0 \"", cursor),
            ("SCAN \"\"", cursor),
            ("SCAN +-0", cursor),
            ("SCAN 0x1", cursor),
            ("SCAN 18446744073709551616", cursor),
            ("SCAN \" 18446744073709551616\"", cursor),
            ("SCAN 18446744073709551615", "*2|$1|0|*0|"),
            ("SCAN \" \t+00\"", "*2|$1|0|*0|"),
            ("SCAN -01", "*2|$1|0|*0|"),
            ("SCAN -18446744073709551615", "*2|$1|0|*0|"),
            ("SCAN 0 COUNT 0", syntax),
            ("SCAN 0 COUNT -1", syntax),
            ("SCAN 0 COUNT", syntax),
            ("SCAN 0 MATCH", syntax),
            ("SCAN 0 TYPE", syntax),
            ("SCAN 0 FOO 1", syntax),
            ("SCAN 0 COUNT x", "-ERR value is not an integer or out of range|"),
        ]);
    }

    #[test]
    fn keys_lists_what_matches_in_the_selected_database() {
        let mut db = Harness::new();
        assert_eq!(db.line("KEYS *"), "*0|");
        db.line("MSET hello 1 hallo 2 world 3");
        assert_eq!(db.line("KEYS w*"), "*1|$5|world|");
        assert!(db.line("KEYS h[ae]llo").starts_with("*2|"));
        assert_eq!(db.line("DBSIZE"), ":3|");
        db.line("PEXPIRE world 1");
        db.now_ms += 2;
        assert_eq!(db.line("KEYS w*"), "*0|");
        db.db = 1;
        assert_eq!(db.line("KEYS *"), "*0|");
        assert_eq!(db.line("DBSIZE"), ":0|");
    }

    #[test]
    fn scan_removes_what_is_over_where_the_pattern_fits() {
        for (options, left) in [("", ":1|"), ("MATCH a*", ":2|"), ("TYPE list", ":1|"), ("MATCH none", ":3|")]
        {
            let mut db = Harness::new();
            db.line("SET alive x");
            db.line("SET a x PX 1");
            db.line("SET b x PX 1");
            db.now_ms += 2;
            db.line(&format!("SCAN 0 {options}"));
            assert_eq!(db.line("DBSIZE"), left, "{options}");
            assert_eq!(format!(":{}|", 3 - db.access_results.expired_keys), left, "{options}");
        }
    }

    #[test]
    fn random_keys_are_alive() {
        let mut db = Harness::new();
        assert_eq!(db.line("RANDOMKEY"), "$-1|");
        db.line("SET a 1 PX 1");
        db.line("SET b 1 PX 1");
        db.line("SET c 1");
        db.now_ms += 2;
        for _ in 0..20 {
            assert_eq!(db.line("RANDOMKEY"), "$1|c|");
        }
        assert_eq!(db.line("DBSIZE"), ":1|");
        assert_eq!(db.access_results.expired_keys, 2);
    }
}
