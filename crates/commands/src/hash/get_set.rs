//! Commands that get or set hash fields together with their expiry.

use keyspace::{Expiry, FieldWrite, Hash, Object};
use structures::entry::View as EntryView;

use super::expire::Time;
use super::{
    FieldsCommand, NOT_POSITIVE, parse_fields, record_hdels, record_of_fields, remove_expired_fields_named,
    value_or_null,
};
use crate::args::{Args, Upper};
use crate::collection::{hash_limits, remove_emptied};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::{KnownSince, RecordedForm};
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static HGETEX: Command = Command {
    name: "HGETEX",
    summary: "Returns the values of fields of a hash and sets or removes their expiry.",
    history: History::since("8.0.0"),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))
        .noting("RW and UPDATE because it changes the TTL")],
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "expiration",
            &[
                Arg::integer("seconds").token("EX"),
                Arg::integer("milliseconds").token("PX"),
                Arg::unix_time("unix-time-seconds").token("EXAT"),
                Arg::unix_time("unix-time-milliseconds").token("PXAT"),
                Arg::word("persist", "PERSIST"),
            ],
        )
        .optional(),
        Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS"),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: hgetex,
    ..Command::DEFAULT
};
/// Handles HGETEX: replies with an array of the fields' values, null for missing fields. An expiry
/// in the past removes the fields.
fn hgetex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, hasher, now_ms) = (args.key(1), args.hasher(), ctx.db.now_ms());
    // WRONGTYPE is replied before errors in the arguments.
    ctx.db.write::<Hash>(key)?;
    let (expiry, fields_at) = if let Some(time) = Time::of_option(args.get(2), now_ms, "hgetex") {
        (Expiry::At(time.parse(args, 3)?), 4)
    } else if args.is(2, "PERSIST") {
        (Expiry::Clear, 3)
    } else {
        (Expiry::Keep, 2)
    };
    let fields = parse_fields(args, fields_at, NOT_POSITIVE)?;
    let is_past = matches!(expiry, Expiry::At(at_ms) if ctx.db.is_past(at_ms));
    if ctx.db.may_have_due_fields(key) {
        remove_expired_fields_named(ctx, args, fields.clone())?;
    }
    ctx.reply.array(fields.len());
    let db = ctx.db.index();
    let Some(hash) = ctx.db.write::<Hash>(key)? else {
        fields.for_each(|_| ctx.reply.null());
        return Ok(());
    };
    if expiry != Expiry::Keep {
        hash.expect_deadlines();
    }
    let mut changed = 0;
    for field in fields.clone() {
        let found = hash.find(field, hasher);
        value_or_null(&mut ctx.reply, found.map(|(value, _)| value));
        changed += u64::from(match (found, expiry) {
            (None, _) | (_, Expiry::Keep) => false,
            (Some((_, None)), Expiry::Clear) => false,
            (Some(_), Expiry::Clear) => hash.set_deadline_ms(field, None, hasher),
            (Some(_), Expiry::At(_)) if is_past => {
                ctx.effects.record.replace(db, |record| {
                    record.command("HDEL").word(key.bytes).word(field);
                });
                hash.remove(field, hasher)
            }
            (Some(_), Expiry::At(at_ms)) => hash.set_deadline_ms(field, Some(at_ms), hasher),
        });
    }
    let emptied = hash.is_empty();
    if changed > 0 {
        ctx.db.note_field_deadlines(key);
        let event = match expiry {
            Expiry::At(_) if is_past => {
                ctx.db.access_results().expired_fields += changed;
                "hdel"
            }
            Expiry::At(_) => "hexpire",
            Expiry::Clear | Expiry::Keep => "hpersist",
        };
        ctx.changed_by(changed, EventClass::HASH, event, key);
        if !is_past {
            record_of_fields(ctx, key, FieldsCommand::setting(expiry), fields);
        }
    }
    if emptied {
        remove_emptied(ctx, key);
    }
    Ok(())
}

pub(super) static HGETDEL: Command = Command {
    name: "HGETDEL",
    summary: "Returns the values of fields of a hash and removes them.",
    history: History::since("8.0.0"),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::DELETE))],
    args: &[
        Arg::key("key", 0),
        Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS"),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: hgetdel,
    ..Command::DEFAULT
};
/// Handles HGETDEL: replies with an array of the removed fields' values, null for missing fields.
fn hgetdel(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, hasher) = (args.key(1), args.hasher());
    ctx.db.write::<Hash>(key)?;
    let fields = parse_fields(args, 2, NOT_POSITIVE)?;
    if ctx.db.may_have_due_fields(key) {
        remove_expired_fields_named(ctx, args, fields.clone())?;
    }
    ctx.reply.array(fields.len());
    let Some(hash) = ctx.db.write::<Hash>(key)? else {
        fields.for_each(|_| ctx.reply.null());
        return Ok(());
    };
    let mut removed = 0;
    for field in fields.clone() {
        value_or_null(&mut ctx.reply, hash.get(field, hasher));
        removed += u64::from(hash.remove(field, hasher));
    }
    let emptied = hash.is_empty();
    if removed > 0 {
        ctx.changed_by(removed, EventClass::HASH, "hdel", key);
        ctx.record(|record| {
            record.command("HDEL").word(key.bytes).words(fields);
        });
    }
    if emptied {
        remove_emptied(ctx, key);
    }
    Ok(())
}

pub(super) static HSETEX: Command = Command {
    name: "HSETEX",
    summary: "Sets fields of a hash and their expiry, optionally under a condition.",
    history: History::since("8.0.0").changed_by_valkey(&[("9.1.0", "takes NX and XX")]),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::one_of("key-condition", &[Arg::word("nx", "NX"), Arg::word("xx", "XX")])
            .since("9.1.0")
            .optional(),
        Arg::one_of("condition", &[Arg::word("fnx", "FNX"), Arg::word("fxx", "FXX")]).optional(),
        Arg::one_of(
            "expiration",
            &[
                Arg::integer("seconds").token("EX"),
                Arg::integer("milliseconds").token("PX"),
                Arg::unix_time("unix-time-seconds").token("EXAT"),
                Arg::unix_time("unix-time-milliseconds").token("PXAT"),
                Arg::word("keepttl", "KEEPTTL"),
            ],
        )
        .optional(),
        Arg::block(
            "fields",
            &[
                Arg::integer("numfields"),
                Arg::block("data", &[Arg::string("field"), Arg::string("value")]).multiple(),
            ],
        )
        .token("FIELDS"),
    ],
    recorded_forms: &[
        RecordedForm::known_since(KnownSince::HSETEX),
        RecordedForm::replaced("NX"),
        RecordedForm::replaced("XX"),
    ],
    run: hsetex,
    ..Command::DEFAULT
};
/// Handles HSETEX: replies with 1 if all fields were set, 0 if a condition does not hold and no
/// field was set. An expiry in the past removes the fields.
fn hsetex(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, limits, hasher, now_ms) = (args.key(1), hash_limits(ctx), args.hasher(), ctx.db.now_ms());
    let request = SetRequest::parse(args, now_ms)?;
    let fields = args.from(request.first).step_by(2);
    if ctx.db.may_have_due_fields(key) && request.condition != Condition::None {
        remove_expired_fields_named(ctx, args, fields.clone())?;
    }
    let hash = ctx.db.write::<Hash>(key)?;
    let has = |field: &[u8]| hash.as_ref().is_some_and(|hash| hash.find(field, hasher).is_some());
    let of_key = request.key_there.is_none_or(|wanted| wanted == hash.is_some());
    let holds = of_key
        && match request.condition {
            Condition::None => true,
            Condition::NoneThere => !fields.clone().any(has),
            Condition::AllThere => fields.clone().all(has),
        };
    ctx.reply.integer(holds.into());
    if !holds {
        return Ok(());
    }
    let over = matches!(request.expiry, Expiry::At(at_ms) if ctx.db.is_past(at_ms));
    let expiry = if over { Expiry::Clear } else { request.expiry };
    let hash = ctx.db.write_or_insert::<Hash>(key)?;
    hash.expect(fields.len(), &limits, hasher);
    if let Expiry::At(_) = request.expiry {
        hash.expect_deadlines();
    }
    let values = args.from(request.first + 1).step_by(2);
    let mut removed = 0;
    for (field, value) in fields.clone().zip(values) {
        hash.set_with_expiry(FieldWrite { name: field, value, expiry }, &limits, hasher);
        // If the expiry is in the past, each field is removed before the next is set. So the hash
        // never holds all of them, and their number does not change its encoding.
        if over {
            removed += u64::from(hash.remove(field, hasher));
        }
    }
    let set = fields.len() as u64;
    let emptied = hash.is_empty();
    ctx.db.note_field_deadlines(key);
    ctx.changed_by(set, EventClass::HASH, "hset", key);
    if let Expiry::At(_) = expiry {
        ctx.changed_by(0, EventClass::HASH, "hexpire", key);
    }
    if removed > 0 {
        ctx.db.access_results().expired_fields += removed;
        ctx.changed_by(0, EventClass::HASH, "hdel", key);
        record_hdels(ctx, key, fields);
    } else {
        request.record(ctx, args);
    }
    if emptied {
        remove_emptied(ctx, key);
    }
    Ok(())
}

/// The condition on fields under which HSETEX sets them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Condition {
    None,
    /// FNX: the fields are set if none of them exists.
    NoneThere,
    /// FXX: the fields are set if all of them exist.
    AllThere,
}

/// A parsed request of HSETEX.
struct SetRequest {
    /// True for XX (the key must exist), false for NX (it must not); `None` without an option.
    key_there: Option<bool>,
    condition: Condition,
    /// The change that HSETEX makes to the fields' expiry. It is `Clear` without an option, because
    /// a new value does not expire.
    expiry: Expiry,
    /// The index of HSETEX's argument that is the first field.
    first: usize,
}

impl SetRequest {
    /// Records the HSETEX request with an absolute time, and without NX and XX, which only Valkey
    /// has. Records HSET if none of the fields expires, because older servers do not know HSETEX.
    fn record(&self, ctx: &mut Ctx<'_>, args: &Args<'_>) {
        let (key, db) = (args.key(1), ctx.db.index());
        ctx.effects.record.replace(db, |record| {
            let expires = match self.expiry {
                Expiry::Clear => false,
                Expiry::At(_) => true,
                Expiry::Keep => ctx.db.peek(key).is_some_and(|entry| {
                    let EntryView::Object(Object::Hash(hash)) = entry.view() else { return false };
                    let find = |field| hash.find(field, args.hasher());
                    let mut fields = args.from(self.first).step_by(2);
                    fields.any(|field| find(field).is_some_and(|(_, deadline_ms)| deadline_ms.is_some()))
                }),
            };
            if !expires {
                record.command("HSET").word(key.bytes).words(args.from(self.first));
                return;
            }
            let hsetex = record.command("HSETEX").word(key.bytes);
            hsetex.words(match self.condition {
                Condition::None => None,
                Condition::NoneThere => Some(&b"FNX"[..]),
                Condition::AllThere => Some(&b"FXX"[..]),
            });
            match self.expiry {
                Expiry::At(at_ms) => _ = hsetex.word(b"PXAT").integer(at_ms),
                Expiry::Keep | Expiry::Clear => _ = hsetex.word(b"KEEPTTL"),
            }
            hsetex.words(args.from(self.first - 2));
        });
    }

    /// Parses the options of HSETEX in any order, then FIELDS and all arguments after it. Errors
    /// are found from left to right.
    fn parse(args: &Args<'_>, now_ms: i64) -> Result<Self, CommandError> {
        let (mut key_there, mut condition) = (None, Condition::None);
        let (mut expiry, mut at) = (Expiry::Clear, 2);
        while at < args.len() {
            let word = args.get(at);
            match &*Upper::of(word) {
                b"FIELDS" => {
                    let first = Self::first_of_pairs(args, at)?;
                    return Ok(SetRequest { key_there, condition, expiry, first });
                }
                option @ (b"NX" | b"XX") => {
                    let wanted = option == b"XX";
                    if key_there.replace(wanted).is_some_and(|before| before != wanted) {
                        return Err(CommandError::Syntax);
                    }
                }
                option @ (b"FNX" | b"FXX") => {
                    if condition != Condition::None {
                        let line = "ERR Only one of FXX or FNX arguments can be specified";
                        return Err(CommandError::Line(line));
                    }
                    let none_there = option == b"FNX";
                    condition = if none_there { Condition::NoneThere } else { Condition::AllThere };
                }
                option => {
                    let time = Time::of_option(word, now_ms, "hsetex");
                    if time.is_none() && option != b"KEEPTTL" {
                        return Err(CommandError::quoting("ERR unknown argument: ", word, ""));
                    }
                    if expiry != Expiry::Clear {
                        let line = "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
                        return Err(CommandError::Line(line));
                    }
                    expiry = Expiry::Keep;
                    if let Some(time) = time {
                        at += 1;
                        if at == args.len() {
                            break;
                        }
                        expiry = Expiry::At(time.parse(args, at)?);
                    }
                }
            }
            at += 1;
        }
        Err(CommandError::WrongArity("hsetex"))
    }

    /// Returns the index of the first field of HSETEX, given that `FIELDS` is argument `at`.
    fn first_of_pairs(args: &Args<'_>, at: usize) -> Result<usize, CommandError> {
        let (count_at, first) = (at + 1, at + 2);
        if first + 1 >= args.len() {
            return Err(CommandError::WrongArity("hsetex"));
        }
        let count = args.integer(count_at).ok().and_then(|count| i32::try_from(count).ok());
        let count = count.and_then(|count| usize::try_from(count).ok()).filter(|&count| count > 0);
        let count = count.ok_or(CommandError::Line("ERR invalid number of fields"))?;
        if args.len() - first == 2 * count { Ok(first) } else { Err(CommandError::WrongArity("hsetex")) }
    }
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, START_MS, check};

    #[test]
    fn values_are_set_together_with_their_time() {
        check(&[
            ("HSETEX h EX 100 FIELDS 2 a 1 b 2", ":1|"),
            ("HTTL h FIELDS 2 a b", "*2|:100|:100|"),
            ("HSETEX h KEEPTTL FIELDS 2 a 3 c 4", ":1|"),
            ("HTTL h FIELDS 3 a b c", "*3|:100|:100|:-1|"),
            ("HSETEX h FIELDS 1 a 3", ":1|"),
            ("HTTL h FIELDS 1 a", "*1|:-1|"),
            ("HSETEX h FNX FIELDS 2 a 9 x 9", ":0|"),
            ("HSETEX h FXX FIELDS 2 a 9 x 9", ":0|"),
            ("HSETEX h FXX PX 5000 FIELDS 2 a 9 c 9", ":1|"),
            ("HSETEX nokey FXX FIELDS 1 a 1", ":0|"),
            ("EXISTS nokey", ":0|"),
            ("HSETEX nokey PXAT 1 FIELDS 1 a 1", ":1|"),
            ("EXISTS nokey", ":0|"),
            ("HMGET h a b c x", "*4|$1|9|$1|2|$1|9|_|"),
        ]);
    }

    #[test]
    fn fields_whose_time_has_passed_do_not_count_together() {
        let mut harness = Harness::new();
        harness.limits.hash_max_listpack_entries = 4;
        harness.line("HSET h x 1 y 2 z 3");
        harness.line("HSETEX h PXAT 1 FIELDS 2 a 1 b 2");
        assert_eq!(harness.line("OBJECT ENCODING h"), "$10|listpackex|");
        harness.line("HSETEX h EX 100 FIELDS 2 a 1 b 2");
        assert_eq!(harness.line("OBJECT ENCODING h"), "$9|hashtable|");
    }

    #[test]
    fn values_are_read_together_with_setting_their_time() {
        check(&[
            ("HGETEX nokey FIELDS 2 a b", "*2|_|_|"),
            ("HSET h a 1 b 2", ":2|"),
            ("HGETEX h FIELDS 2 a nope", "*2|$1|1|_|"),
            ("HGETEX h EX 100 FIELDS 2 a nope", "*2|$1|1|_|"),
            ("HTTL h FIELDS 1 a", "*1|:100|"),
            ("HGETEX h PERSIST FIELDS 1 a", "*1|$1|1|"),
            ("HTTL h FIELDS 1 a", "*1|:-1|"),
            ("HGETEX h EXAT 1 FIELDS 1 a", "*1|$1|1|"),
            ("HGETDEL h FIELDS 3 b b a", "*3|$1|2|_|_|"),
            ("EXISTS h", ":0|"),
            ("HGETDEL h FIELDS 1 a", "*1|_|"),
        ]);
    }

    #[test]
    fn impossible_requests_are_refused() {
        let arity = "-ERR wrong number of arguments for 'hsetex' command|";
        let one_time = "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified|";
        let mismatch = "-ERR The `numfields` parameter must match the number of arguments|";
        check(&[
            ("HSETEX h FIELDS 2 a 1", arity),
            ("HSETEX h FIELDS 1 a 1 EX 5", arity),
            ("HSETEX h EX 5 FNX FIELDS", arity),
            ("HSETEX h EX 5 FNX FIELDS 1", arity),
            ("HSETEX h FIELDS 0 a 1", "-ERR invalid number of fields|"),
            ("HSETEX h FIELDS 2147483648 a 1", "-ERR invalid number of fields|"),
            ("HSETEX h FNX FXX FIELDS 1 a 1", "-ERR Only one of FXX or FNX arguments can be specified|"),
            ("HSETEX h KEEPTTL KEEPTTL FIELDS 1 a 1", one_time),
            ("HSETEX h EX 5 PX 5 FIELDS 1 a 1", one_time),
            ("HSETEX h PERSIST FIELDS 1 a 1", "-ERR unknown argument: PERSIST|"),
            ("HSETEX h EX -1 FOO FIELDS 1 a 1", "-ERR invalid expire time, must be >= 0|"),
            ("HSETEX h PXAT 70368744177664 FIELDS 1 a 1", "-ERR invalid expire time in 'hsetex' command|"),
            ("HGETEX h EX x FOO 1 a", "-ERR value is not an integer or out of range|"),
            (
                "HGETEX h EX 5 PERSIST FIELDS 1 a",
                "-ERR Mandatory argument FIELDS is missing or not at the right position|",
            ),
            ("HGETEX h EX 5 FIELDS", mismatch),
            ("HGETEX h FIELDS 1 a EX 5", mismatch),
            ("HGETDEL h FIELDS 0 a", "-ERR Number of fields must be a positive integer|"),
        ]);
    }

    #[test]
    fn the_key_can_be_a_condition_of_its_own() {
        check(&[
            ("HSETEX h XX FIELDS 1 a 1", ":0|"),
            ("EXISTS h", ":0|"),
            ("HSETEX h NX EX 100 FIELDS 1 a 1", ":1|"),
            ("HSETEX h EX 100 NX FIELDS 1 b 1", ":0|"),
            ("HSETEX h XX FNX FIELDS 1 b 1", ":1|"),
            ("HSETEX h XX FNX FIELDS 1 b 1", ":0|"),
            ("HSETEX h XX XX FIELDS 1 b 2", ":1|"),
            ("HSETEX h NX XX FIELDS 1 b 1", "-ERR syntax error|"),
            ("HMGET h a b", "*2|$1|1|$1|2|"),
            ("SET s v", "+OK|"),
            (
                "HSETEX s NX FIELDS 1 a 1",
                "-WRONGTYPE Operation against a key holding the wrong kind of value|",
            ),
        ]);
    }

    #[test]
    fn fields_whose_time_has_passed_count_as_expired() {
        let mut db = Harness::new();
        db.line("HSETEX h PXAT 1 FIELDS 2 a 1 b 2");
        assert_eq!(db.access_results.expired_fields, 2);
        db.line("HSET h a 1 b 2");
        db.line("HGETEX h PXAT 1 FIELDS 2 a nope");
        assert_eq!(db.access_results.expired_fields, 3);
        db.line("HGETEX h PX 100 FIELDS 1 b");
        assert_eq!(db.access_results.expired_fields, 3);
    }

    #[test]
    fn events_tell_what_became_of_the_fields() {
        let mut db = Harness::new();
        db.check_events(&[
            ("HSETEX h FIELDS 2 a 1 b 2", ":1|", "hset h@0"),
            ("HSETEX h EX 100 FIELDS 2 a 1 b 2", ":1|", "hset h@0,hexpire h@0"),
            ("HSETEX h KEEPTTL FIELDS 2 a 1 b 2", ":1|", "hset h@0"),
            ("HSETEX h PXAT 1 FIELDS 1 a 1", ":1|", "hset h@0,hdel h@0"),
            ("HSETEX k PXAT 1 FIELDS 1 a 1", ":1|", "hset k@0,hdel k@0,del k@0"),
            ("HGETEX h FIELDS 1 b", "*1|$1|2|", ""),
            ("HGETEX h PERSIST FIELDS 1 b", "*1|$1|2|", "hpersist h@0"),
            ("HGETEX h PERSIST FIELDS 1 b", "*1|$1|2|", ""),
            ("HGETEX h EX 5 FIELDS 1 b", "*1|$1|2|", "hexpire h@0"),
            ("HGETEX h EXAT 1 FIELDS 1 nope", "*1|$-1|", ""),
            ("HGETEX h EXAT 1 FIELDS 1 b", "*1|$1|2|", "hdel h@0,del h@0"),
            ("HSETEX h PX 5 FIELDS 2 a 1 b 2", ":1|", "hset h@0,hexpire h@0"),
        ]);
        db.now_ms = START_MS + 6;
        db.check_events(&[
            ("HSETEX h FXX FIELDS 1 a 1", ":0|", "hexpired h@0"),
            ("HGETEX h FIELDS 1 b", "*1|$-1|", "hexpired h@0,del h@0"),
            ("HSETEX h PX 5 FIELDS 2 a 1 b 2", ":1|", "hset h@0,hexpire h@0"),
        ]);
        db.now_ms += 6;
        db.check_events(&[("HGETDEL h FIELDS 2 a b", "*2|$-1|$-1|", "hexpired h@0,del h@0")]);
    }
}
