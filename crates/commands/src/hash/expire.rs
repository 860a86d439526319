//! Commands on the expiry of hash fields.

use keyspace::{Expiry, Hash};

use super::{FieldsCommand, NOT_POSITIVE, parse_fields, record_hdels, record_of_fields};
use crate::args::{Args, Upper};
use crate::collection::remove_emptied;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::{KnownSince, RecordedForm};
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// One second in milliseconds: the unit of HEXPIRE, HTTL and the other commands without the prefix
/// HP.
const SECOND: i64 = 1000;
const MILLISECOND: i64 = 1;

/// The latest expiry of a hash field that clients can set, in Unix milliseconds: Redis stores 46
/// bits.
const DEADLINE_MS_MAX: i64 = (1 << 46) - 1;

/// The reply of HTTL and similar commands for a field that does not exist.
const NO_FIELD: i64 = -2;
/// The reply of HTTL and similar commands for a field that does not expire.
const NO_DEADLINE: i64 = -1;

/// The condition for a new expiry: the field has no expiry (NX), any expiry (XX), an earlier expiry
/// (GT) or a later expiry (LT) than the new one.
const CONDITION: Arg = Arg::one_of(
    "condition",
    &[Arg::word("nx", "NX"), Arg::word("xx", "XX"), Arg::word("gt", "GT"), Arg::word("lt", "LT")],
)
.optional();

pub(super) static HEXPIRE: Command = Command {
    name: "HEXPIRE",
    summary: "Sets the time to live of fields of a hash in seconds.",
    history: History::since("7.4.0"),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::integer("seconds"),
        CONDITION,
        Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS"),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: hexpire,
    ..Command::DEFAULT
};
/// Handles HEXPIRE: replies with a number for each field. It is 1 if the expiry was set, 0 if the
/// condition does not hold, -2 if there is no such field. It is 2 if the time is in the past and
/// the field was removed.
fn hexpire(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let since_ms = ctx.db.now_ms();
    set_deadlines(ctx, args, Time { unit_ms: SECOND, since_ms, command: "hexpire" })
}

pub(super) static HPEXPIRE: Command = Command {
    name: "HPEXPIRE",
    summary: "Sets the time to live of fields of a hash in milliseconds.",
    args: &[
        Arg::key("key", 0),
        Arg::integer("milliseconds"),
        CONDITION,
        Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS"),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: hpexpire,
    ..HEXPIRE
};
/// Handles HPEXPIRE: like HEXPIRE, with milliseconds in place of seconds.
fn hpexpire(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let since_ms = ctx.db.now_ms();
    set_deadlines(ctx, args, Time { unit_ms: MILLISECOND, since_ms, command: "hpexpire" })
}

pub(super) static HEXPIREAT: Command = Command {
    name: "HEXPIREAT",
    summary: "Sets the expiry of fields of a hash to a Unix time in seconds.",
    args: &[
        Arg::key("key", 0),
        Arg::unix_time("unix-time-seconds"),
        CONDITION,
        Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS"),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: hexpireat,
    ..HEXPIRE
};
/// Handles HEXPIREAT: like HEXPIRE, with a Unix time in seconds.
fn hexpireat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    set_deadlines(ctx, args, Time { unit_ms: SECOND, since_ms: 0, command: "hexpireat" })
}

pub(super) static HPEXPIREAT: Command = Command {
    name: "HPEXPIREAT",
    summary: "Sets the expiry of fields of a hash to a Unix time in milliseconds.",
    args: &[
        Arg::key("key", 0),
        Arg::unix_time("unix-time-milliseconds"),
        CONDITION,
        Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS"),
    ],
    recorded_forms: &[RecordedForm::known_since(KnownSince::FIELD_EXPIRY)],
    run: hpexpireat,
    ..HEXPIRE
};
/// Handles HPEXPIREAT: like HEXPIRE, with a Unix time in milliseconds.
fn hpexpireat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    set_deadlines(ctx, args, Time { unit_ms: MILLISECOND, since_ms: 0, command: "hpexpireat" })
}

/// The unit and the origin of the time argument of HEXPIRE and similar commands, both in
/// milliseconds. The origin is the present Unix time for a relative time, else 0. The command's
/// name is for errors.
#[derive(Clone, Copy)]
pub(super) struct Time {
    unit_ms: i64,
    since_ms: i64,
    command: &'static str,
}

impl Time {
    /// Returns the unit and the origin of the time that follows the option `word`: EX, PX, EXAT or
    /// PXAT. Returns `None` for any other word.
    pub(super) fn of_option(word: &[u8], now_ms: i64, command: &'static str) -> Option<Self> {
        let (unit_ms, since_ms) = match &*Upper::of(word) {
            b"EX" => (SECOND, now_ms),
            b"PX" => (MILLISECOND, now_ms),
            b"EXAT" => (SECOND, 0),
            b"PXAT" => (MILLISECOND, 0),
            _ => return None,
        };
        Some(Time { unit_ms, since_ms, command })
    }

    /// Parses argument `index` as the expiry of a field and returns Unix milliseconds.
    pub(super) fn parse(self, args: &Args<'_>, index: usize) -> Result<i64, CommandError> {
        let number = args.integer(index)?;
        if number < 0 {
            return Err(CommandError::Line("ERR invalid expire time, must be >= 0"));
        }
        let at_ms = number.checked_mul(self.unit_ms).and_then(|ms| ms.checked_add(self.since_ms));
        let at_ms = at_ms.filter(|&at_ms| at_ms <= DEADLINE_MS_MAX);
        at_ms.ok_or(CommandError::InvalidExpire(self.command))
    }
}

/// The condition (NX, XX, GT or LT) for setting a field's expiry.
#[derive(Clone, Copy)]
enum Condition {
    None,
    /// NX: the expiry is set if the field has none.
    Without,
    /// XX: the expiry is set if the field has one.
    With,
    /// GT: the new expiry is later than the present one.
    Later,
    /// LT: the new expiry is earlier than the present one.
    Earlier,
}

impl Condition {
    fn parse(word: &[u8]) -> Self {
        match &*Upper::of(word) {
            b"NX" => Condition::Without,
            b"XX" => Condition::With,
            b"GT" => Condition::Later,
            b"LT" => Condition::Earlier,
            _ => Condition::None,
        }
    }

    /// Returns true if the condition for the new expiry `at_ms` holds. A field without expiry
    /// counts as one that expires after all others.
    fn holds(self, current_ms: Option<i64>, at_ms: i64) -> bool {
        match self {
            Condition::None => true,
            Condition::Without => current_ms.is_none(),
            Condition::With => current_ms.is_some(),
            Condition::Later => current_ms.is_some_and(|current_ms| at_ms > current_ms),
            Condition::Earlier => current_ms.is_none_or(|current_ms| at_ms < current_ms),
        }
    }
}

fn set_deadlines(ctx: &mut Ctx<'_>, args: &Args<'_>, time: Time) -> Result<(), CommandError> {
    let (key, hasher, past_ms) = (args.key(1), args.hasher(), ctx.db.past_ms());
    // WRONGTYPE is replied before errors in the arguments.
    let hash = ctx.db.write::<Hash>(key)?;
    let at_ms = time.parse(args, 2)?;
    let condition = Condition::parse(args.get(3));
    let fields_at = if matches!(condition, Condition::None) { 3 } else { 4 };
    let line = "ERR Parameter `numFields` should be greater than 0";
    let fields = parse_fields(args, fields_at, CommandError::Line(line))?;
    let reply = &mut ctx.reply;
    reply.array(fields.len());
    let Some(hash) = hash else {
        fields.for_each(|_| reply.integer(NO_FIELD));
        return Ok(());
    };
    hash.expect_deadlines();
    let (mut set, mut removed) = (0, 0);
    let (mut recorded, is_recorded) = (Vec::new(), ctx.effects.record.is_wanted);
    for field in fields {
        reply.integer(match hash.find(field, hasher) {
            None => NO_FIELD,
            Some((_, current_ms)) if !condition.holds(current_ms, at_ms) => 0,
            Some(_) if at_ms <= past_ms => {
                hash.remove(field, hasher);
                recorded.extend(is_recorded.then_some(field));
                removed += 1;
                2
            }
            Some(_) => {
                hash.set_deadline_ms(field, Some(at_ms), hasher);
                recorded.extend(is_recorded.then_some(field));
                set += 1;
                1
            }
        });
    }
    let emptied = hash.is_empty();
    ctx.db.note_field_deadlines(key);
    if set > 0 {
        ctx.changed_by(set, EventClass::HASH, "hexpire", key);
        let condition = (fields_at == 4).then(|| args.get(3));
        let words = FieldsCommand { name: "HPEXPIREAT", at_ms: Some(at_ms), condition };
        record_of_fields(ctx, key, words, recorded.iter().copied());
    }
    if removed > 0 {
        ctx.db.access_results().expired_fields += removed;
        ctx.changed_by(removed, EventClass::HASH, "hdel", key);
        record_hdels(ctx, key, recorded);
    }
    if emptied {
        remove_emptied(ctx, key);
    }
    Ok(())
}

pub(super) static HTTL: Command = Command {
    name: "HTTL",
    summary: "Returns the time to live of fields of a hash in seconds.",
    history: History::since("7.4.0"),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(5),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[
        Arg::key("key", 0),
        Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS"),
    ],
    run: httl,
    ..Command::DEFAULT
};
/// Handles HTTL: replies for each field with seconds, rounded up. The reply is -1 if the field does
/// not expire, -2 if there is no such field.
fn httl(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let since_ms = ctx.db.now_ms();
    reply_deadlines(ctx, args, SECOND, since_ms)
}

pub(super) static HPTTL: Command = Command {
    name: "HPTTL",
    summary: "Returns the time to live of fields of a hash in milliseconds.",
    run: hpttl,
    ..HTTL
};
/// Handles HPTTL: like HTTL, in milliseconds.
fn hpttl(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let since_ms = ctx.db.now_ms();
    reply_deadlines(ctx, args, MILLISECOND, since_ms)
}

pub(super) static HEXPIRETIME: Command = Command {
    name: "HEXPIRETIME",
    summary: "Returns the times at which fields of a hash expire, in Unix seconds.",
    tips: &[],
    run: hexpiretime,
    ..HTTL
};
/// Handles HEXPIRETIME: like HTTL, but replies with Unix times in seconds.
fn hexpiretime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_deadlines(ctx, args, SECOND, 0)
}

pub(super) static HPEXPIRETIME: Command = Command {
    name: "HPEXPIRETIME",
    summary: "Returns the times at which fields of a hash expire, in Unix milliseconds.",
    tips: &[],
    run: hpexpiretime,
    ..HTTL
};
/// Handles HPEXPIRETIME: like HTTL, but replies with Unix times in milliseconds.
fn hpexpiretime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_deadlines(ctx, args, MILLISECOND, 0)
}

/// Replies with the fields' expiries in units of `unit_ms`, rounded up and counted from `since_ms`.
/// Expired fields count as missing but are not removed here.
fn reply_deadlines(
    ctx: &mut Ctx<'_>,
    args: &Args<'_>,
    unit_ms: i64,
    since_ms: i64,
) -> Result<(), CommandError> {
    let due_ms = ctx.db.due_ms();
    let hash = ctx.db.read::<Hash>(args.key(1))?;
    let fields = parse_fields(args, 2, NOT_POSITIVE)?;
    ctx.reply.array(fields.len());
    for field in fields {
        ctx.reply.integer(match hash.and_then(|hash| hash.find(field, args.hasher())) {
            None => NO_FIELD,
            Some((_, None)) => NO_DEADLINE,
            Some((_, Some(at_ms))) if at_ms <= due_ms => NO_FIELD,
            // The difference is negative only for an expired field that is still visible.
            Some((_, Some(at_ms))) => ((at_ms - since_ms).max(0) + unit_ms - 1) / unit_ms,
        });
    }
    Ok(())
}

pub(super) static HPERSIST: Command = Command {
    name: "HPERSIST",
    summary: "Removes the expiry of fields of a hash.",
    history: History::since("7.4.0"),
    group: Group::Hash,
    complexity: "O(1) for each field",
    arity: Arity::AtLeast(5),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::HASH),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::block("fields", &[Arg::integer("numfields"), Arg::string("field").multiple()]).token("FIELDS"),
    ],
    recorded_forms: &[RecordedForm::known_since(KnownSince::FIELD_EXPIRY)],
    run: hpersist,
    ..Command::DEFAULT
};
/// Handles HPERSIST: replies for each field with 1 if an expiry was removed. The reply is -1 if the
/// field does not expire, -2 if there is no such field.
fn hpersist(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, hasher, due_ms) = (args.key(1), args.hasher(), ctx.db.due_ms());
    let mut hash = ctx.db.write::<Hash>(key)?;
    let fields = parse_fields(args, 2, NOT_POSITIVE)?;
    ctx.reply.array(fields.len());
    let (mut recorded, is_recorded) = (Vec::new(), ctx.effects.record.is_wanted);
    let (mut persisted, mut passed_due) = (0, false);
    for field in fields {
        let found = hash.as_ref().and_then(|hash| hash.find(field, hasher));
        let deadline_ms = found.map(|(_, deadline_ms)| deadline_ms);
        ctx.reply.integer(match (deadline_ms, hash.as_mut()) {
            (None, _) | (_, None) => NO_FIELD,
            (Some(None), _) => NO_DEADLINE,
            (Some(Some(at_ms)), _) if at_ms <= due_ms => {
                passed_due = true;
                NO_FIELD
            }
            (Some(Some(_)), Some(hash)) => {
                hash.set_deadline_ms(field, None, hasher);
                recorded.extend(is_recorded.then_some(field));
                persisted += 1;
                1
            }
        });
    }
    if persisted > 0 {
        ctx.db.note_field_deadlines(key);
        ctx.changed_by(persisted, EventClass::HASH, "hpersist", key);
        // A server that applies the record treats expired fields as live, so the request itself
        // would also remove their expiry.
        if passed_due {
            record_of_fields(ctx, key, FieldsCommand::setting(Expiry::Clear), recorded.into_iter());
        }
        ctx.invalidate_after_events(key);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, START_MS, check};

    #[test]
    fn times_are_told_in_both_units_rounded_up() {
        check(&[
            ("HTTL nokey FIELDS 2 a b", "*2|:-2|:-2|"),
            ("HSET h a 1 b 2", ":2|"),
            ("HTTL h FIELDS 2 a nope", "*2|:-1|:-2|"),
            ("HPEXPIRE h 1500 FIELDS 1 a", "*1|:1|"),
            ("HPTTL h FIELDS 1 a", "*1|:1500|"),
            ("HTTL h FIELDS 1 a", "*1|:2|"),
            ("HPEXPIRETIME h FIELDS 1 a", "*1|:1700000001500|"),
            ("HEXPIRETIME h FIELDS 1 a", "*1|:1700000002|"),
            ("HPERSIST h FIELDS 3 a b nope", "*3|:1|:-1|:-2|"),
            ("HTTL h FIELDS 1 a", "*1|:-1|"),
            ("HPERSIST nokey FIELDS 1 a", "*1|:-2|"),
        ]);
    }

    #[test]
    fn conditions_compare_with_the_time_that_is_set() {
        check(&[
            ("HSET h a 1 b 2", ":2|"),
            ("HEXPIRE h 10 XX FIELDS 1 a", "*1|:0|"),
            ("HEXPIRE h 10 GT FIELDS 1 a", "*1|:0|"),
            ("HEXPIRE h 10 NX FIELDS 1 a", "*1|:1|"),
            ("HEXPIRE h 20 NX FIELDS 2 a b", "*2|:0|:1|"),
            ("HEXPIRE h 15 GT FIELDS 2 a b", "*2|:1|:0|"),
            ("HEXPIRE h 16 LT FIELDS 2 a b", "*2|:0|:1|"),
            ("HTTL h FIELDS 2 a b", "*2|:15|:16|"),
            ("HEXPIRE h 0 GT FIELDS 1 a", "*1|:0|"),
            ("HEXPIREAT h 1 XX FIELDS 2 a nope", "*2|:2|:-2|"),
            ("HKEYS h", "*1|$1|b|"),
        ]);
    }

    #[test]
    fn impossible_requests_are_refused() {
        let missing = "-ERR Mandatory argument FIELDS is missing or not at the right position|";
        let mismatch = "-ERR The `numfields` parameter must match the number of arguments|";
        check(&[
            ("HEXPIRE h x FOO FIELDS 1 a", "-ERR value is not an integer or out of range|"),
            ("HEXPIRE h -1 FOO FIELDS 1 a", "-ERR invalid expire time, must be >= 0|"),
            ("HEXPIRE h 9223372036854775807 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command|"),
            ("HPEXPIREAT h 70368744177664 FIELDS 1 a", "-ERR invalid expire time in 'hpexpireat' command|"),
            ("HPEXPIREAT h 70368744177663 FIELDS 1 a", "*1|:-2|"),
            ("HEXPIRE h 1 FOO FIELDS 1 a", missing),
            ("HEXPIRE h 1 NX XX FIELDS 1 a", missing),
            ("HEXPIRE h 1 FIELDS 0 a", "-ERR Parameter `numFields` should be greater than 0|"),
            ("HEXPIRE h 1 FIELDS 2 a", mismatch),
            ("HTTL h FOO 1 a", missing),
            ("HTTL h FIELDS 0 a", "-ERR Number of fields must be a positive integer|"),
            ("HTTL h FIELDS 1 a b", mismatch),
            ("HPERSIST h FIELDS x a", "-ERR Number of fields must be a positive integer|"),
            ("SET s 1", "+OK|"),
            ("HEXPIRE s x FIELDS 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("HTTL s FIELDS 2 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("HPERSIST s FIELDS 2 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }

    #[test]
    fn events_tell_what_became_of_the_fields() {
        let mut db = Harness::new();
        db.check_events(&[
            ("HSET h a 1 b 2 c 3", ":3|", "hset h@0"),
            ("HEXPIRE h 10 FIELDS 2 a nope", "*2|:1|:-2|", "hexpire h@0"),
            ("HEXPIRE h 10 FIELDS 1 nope", "*1|:-2|", ""),
            ("HPERSIST h FIELDS 1 a", "*1|:1|", "hpersist h@0"),
            ("HPERSIST h FIELDS 1 a", "*1|:-1|", ""),
            ("HEXPIRE h 0 FIELDS 1 a", "*1|:2|", "hdel h@0"),
            ("HPEXPIRE h 5 FIELDS 2 b c", "*2|:1|:1|", "hexpire h@0"),
        ]);
        db.now_ms = START_MS + 6;
        db.check_events(&[
            ("HTTL h FIELDS 1 b", "*1|:-2|", ""),
            ("HLEN h", ":2|", ""),
            ("HGETALL h", "*0|", ""),
            ("HGET h b", "$-1|", "hexpired h@0"),
            ("HEXISTS h c", ":0|", "hexpired h@0,del h@0"),
        ]);
        // Fields removed because of an expiry in the past count, too.
        assert_eq!(db.access_results.expired_fields, 3);
    }

    #[test]
    fn a_due_field_is_absent_in_every_encoding() {
        for entries_max in [512, 0] {
            let mut db = Harness::new();
            db.limits.hash_max_listpack_entries = entries_max;
            let fresh = |db: &mut Harness| {
                db.line("DEL h");
                db.line("HSET h a 1 b 2 c 3 d 4");
                db.line("HPEXPIRE h 5 FIELDS 2 a b");
                db.now_ms += 6;
                db.events();
            };
            for (line, reply, events) in [
                ("HGET h a", "$-1|", "hexpired h@0"),
                ("HMGET h a b c", "*3|$-1|$-1|$1|3|", "hexpired h@0"),
                ("HSTRLEN h a", ":0|", "hexpired h@0"),
                ("HLEN h", ":4|", ""),
                ("HSET h a 5", ":0|", "hset h@0"),
                ("HSETNX h a 5", ":1|", "hexpired h@0,hset h@0"),
                ("HINCRBY h a 5", ":5|", "hexpired h@0,hincrby h@0"),
                ("HINCRBYFLOAT h a 5", "$1|5|", "hexpired h@0,hincrbyfloat h@0"),
                ("HDEL h a nope", ":1|", "hdel h@0"),
                ("HPERSIST h FIELDS 1 a", "*1|:-2|", ""),
                ("HEXPIRE h 100 FIELDS 1 a", "*1|:1|", "hexpire h@0"),
                ("HRANDFIELD h 0", "*0|", "hexpired h@0"),
                ("COPY h h2 REPLACE", ":1|", "copy_to h2@0"),
            ] {
                fresh(&mut db);
                db.check_events(&[(line, reply, events)]);
            }
            fresh(&mut db);
            assert_eq!(db.line("HKEYS h").len(), "*2|$1|c|$1|d|".len());
            assert_eq!(db.line("HSCAN h 0 NOVALUES").matches('$').count(), 3);
            assert_eq!(db.line("HRANDFIELD h 9").matches('$').count(), 2);
        }
    }

    #[test]
    fn a_sum_keeps_a_deadline_and_a_new_value_ends_it() {
        check(&[
            ("HSET h a 1", ":1|"),
            ("HEXPIRE h 100 FIELDS 1 a", "*1|:1|"),
            ("HINCRBY h a 1", ":2|"),
            ("HINCRBYFLOAT h a 1", "$1|3|"),
            ("HTTL h FIELDS 1 a", "*1|:100|"),
            ("COPY h k", ":1|"),
            ("RENAME k l", "+OK|"),
            ("HTTL l FIELDS 1 a", "*1|:100|"),
            ("HSET h a 1", ":0|"),
            ("HTTL h FIELDS 1 a", "*1|:-1|"),
            ("OBJECT ENCODING h", "$10|listpackex|"),
        ]);
    }
}
