//! Commands on the expiry of keys.

use crate::args::{Args, Upper};
use crate::collection::record_del;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// One second in milliseconds: the unit of EXPIRE, TTL and the other commands without the prefix P.
const SECOND: i64 = 1000;
const MILLISECOND: i64 = 1;

pub(super) static TTL: Command = Command {
    name: "TTL",
    summary: "Returns the time to live of a key in seconds.",
    history: History::since("1.0.0").changed(&[("2.8.0", "returns -2 for a key that does not exist")]),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::READ),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    tips: &["nondeterministic_output"],
    args: &[Arg::key("key", 0)],
    run: ttl,
    ..Command::DEFAULT
};
/// Handles TTL: replies with seconds, rounded to the nearest. The reply is -1 if the key does not
/// expire, -2 if it is missing.
fn ttl(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.db.now_ms();
    reply_time(ctx, args, SECOND, now_ms)
}

pub(super) static PTTL: Command = Command {
    name: "PTTL",
    summary: "Returns the time to live of a key in milliseconds.",
    history: History::since("2.6.0").changed(&[("2.8.0", "returns -2 for a key that does not exist")]),
    run: pttl,
    ..TTL
};
/// Handles PTTL: replies with milliseconds, -1 if the key does not expire, -2 if it is missing.
fn pttl(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.db.now_ms();
    reply_time(ctx, args, MILLISECOND, now_ms)
}

pub(super) static EXPIRETIME: Command = Command {
    name: "EXPIRETIME",
    summary: "Returns the time at which a key expires, in Unix seconds.",
    history: History::since("7.0.0"),
    tips: &[],
    run: expiretime,
    ..TTL
};
/// Handles EXPIRETIME: replies with Unix seconds, rounded to the nearest. The reply is -1 if the
/// key does not expire, -2 if it is missing.
fn expiretime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_time(ctx, args, SECOND, 0)
}

pub(super) static PEXPIRETIME: Command = Command {
    name: "PEXPIRETIME",
    summary: "Returns the time at which a key expires, in Unix milliseconds.",
    history: History::since("7.0.0"),
    tips: &[],
    run: pexpiretime,
    ..TTL
};
/// Handles PEXPIRETIME: replies with Unix milliseconds, -1 if the key does not expire, -2 if it is
/// missing.
fn pexpiretime(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    reply_time(ctx, args, MILLISECOND, 0)
}

/// Replies with the key's expiry in units of `unit_ms`, rounded to the nearest and counted from
/// `since_ms`. The reply is -1 if the key does not expire, -2 if it is missing.
fn reply_time(ctx: &mut Ctx<'_>, args: &Args<'_>, unit_ms: i64, since_ms: i64) -> Result<(), CommandError> {
    let reply = match ctx.db.look(args.key(1)).map(|entry| entry.expiry_ms()) {
        None => -2,
        Some(None) => -1,
        // The difference is negative only for an expired key that is still visible.
        Some(Some(at_ms)) => {
            let left_ms = at_ms.saturating_sub(since_ms).max(0);
            left_ms / unit_ms + i64::from(unit_ms > 1 && left_ms % unit_ms >= unit_ms / 2)
        }
    };
    ctx.reply.integer(reply);
    Ok(())
}

/// The condition for a new expiry: the key has no expiry (NX), any expiry (XX), an earlier expiry
/// (GT) or a later expiry (LT) than the new one.
const CONDITION: Arg = Arg::one_of(
    "condition",
    &[Arg::word("nx", "NX"), Arg::word("xx", "XX"), Arg::word("gt", "GT"), Arg::word("lt", "LT")],
)
.since("7.0.0")
.optional();

pub(super) static EXPIRE: Command = Command {
    name: "EXPIRE",
    summary: "Sets the time to live of a key in seconds.",
    history: History::since("1.0.0").changed(&[("7.0.0", "takes NX, XX, GT and LT")]),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::WRITE),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::integer("seconds"), CONDITION],
    recorded_forms: &[
        RecordedForm::replaced("NX"),
        RecordedForm::replaced("XX"),
        RecordedForm::replaced("GT"),
        RecordedForm::replaced("LT"),
    ],
    run: expire,
    ..Command::DEFAULT
};
/// Handles EXPIRE: replies with 1 if the expiry was set. Replies with 0 if the key is missing or a
/// condition does not hold. A time in the past deletes the key.
fn expire(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.db.now_ms();
    set_time(ctx, args, Time { unit_ms: SECOND, since_ms: now_ms, command: "expire" })
}

pub(super) static PEXPIRE: Command = Command {
    name: "PEXPIRE",
    summary: "Sets the time to live of a key in milliseconds.",
    history: History::since("2.6.0").changed(&[("7.0.0", "takes NX, XX, GT and LT")]),
    args: &[Arg::key("key", 0), Arg::integer("milliseconds"), CONDITION],
    run: pexpire,
    ..EXPIRE
};
/// Handles PEXPIRE: like EXPIRE, with milliseconds in place of seconds.
fn pexpire(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let now_ms = ctx.db.now_ms();
    set_time(ctx, args, Time { unit_ms: MILLISECOND, since_ms: now_ms, command: "pexpire" })
}

pub(super) static EXPIREAT: Command = Command {
    name: "EXPIREAT",
    summary: "Sets the expiry of a key to a Unix time in seconds.",
    history: History::since("1.2.0").changed(&[("7.0.0", "takes NX, XX, GT and LT")]),
    args: &[Arg::key("key", 0), Arg::unix_time("unix-time-seconds"), CONDITION],
    run: expireat,
    ..EXPIRE
};
/// Handles EXPIREAT: like EXPIRE, with a Unix time in seconds.
fn expireat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    set_time(ctx, args, Time { unit_ms: SECOND, since_ms: 0, command: "expireat" })
}

pub(super) static PEXPIREAT: Command = Command {
    name: "PEXPIREAT",
    summary: "Sets the expiry of a key to a Unix time in milliseconds.",
    history: History::since("2.6.0").changed(&[("7.0.0", "takes NX, XX, GT and LT")]),
    args: &[Arg::key("key", 0), Arg::unix_time("unix-time-milliseconds"), CONDITION],
    run: pexpireat,
    ..EXPIRE
};
/// Handles PEXPIREAT: like EXPIRE, with a Unix time in milliseconds.
fn pexpireat(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    set_time(ctx, args, Time { unit_ms: MILLISECOND, since_ms: 0, command: "pexpireat" })
}

/// The unit and the origin of the time argument of EXPIRE and similar commands, both in
/// milliseconds. The origin is the present Unix time for a relative time, else 0. The command's
/// name is for errors.
struct Time {
    unit_ms: i64,
    since_ms: i64,
    command: &'static str,
}

impl Time {
    /// Returns true if the time argument is relative or in seconds, so that the request must be
    /// recorded as PEXPIREAT. False for a Unix time in milliseconds.
    fn is_relative_or_coarse(&self) -> bool {
        (self.unit_ms, self.since_ms) != (MILLISECOND, 0)
    }
}

fn set_time(ctx: &mut Ctx<'_>, args: &Args<'_>, time: Time) -> Result<(), CommandError> {
    let key = args.key(1);
    let conditions = Conditions::parse(args)?;
    let at_ms = args.integer(2)?.checked_mul(time.unit_ms).and_then(|ms| ms.checked_add(time.since_ms));
    let at_ms = at_ms.ok_or(CommandError::InvalidExpire(time.command))?;
    let set = match ctx.db.expiry_ms(key) {
        Some(current_ms) if conditions.hold(current_ms, at_ms) => {
            set_or_delete(ctx, args, at_ms, time);
            true
        }
        _ => false,
    };
    ctx.reply.integer(set.into());
    Ok(())
}

fn set_or_delete(ctx: &mut Ctx<'_>, args: &Args<'_>, at_ms: i64, time: Time) {
    let key = args.key(1);
    if !ctx.db.is_past(at_ms) {
        ctx.db.set_expiry_ms(key, Some(at_ms));
        ctx.changed(EventClass::GENERIC, "expire", key);
        if time.is_relative_or_coarse() || args.len() > 3 {
            // The record has no conditions: they held, and Redis 6.2 does not know them.
            ctx.record(|record| {
                record.command("PEXPIREAT").word(key.bytes).integer(at_ms);
            });
        }
    } else if let Some(entry) = ctx.db.remove(key) {
        ctx.effects.discard(entry);
        ctx.changed(EventClass::GENERIC, "del", key);
        record_del(ctx, key);
    }
}

/// The conditions NX, XX, GT and LT of EXPIRE. All given conditions must hold.
#[derive(Default)]
struct Conditions {
    without_expiry: bool,
    with_expiry: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn parse(args: &Args<'_>) -> Result<Self, CommandError> {
        let mut given = Self::default();
        for word in args.from(3) {
            match &*Upper::of(word) {
                b"NX" => given.without_expiry = true,
                b"XX" => given.with_expiry = true,
                b"GT" => given.later = true,
                b"LT" => given.earlier = true,
                _ => return Err(CommandError::quoting("ERR Unsupported option ", word, "")),
            }
        }
        if given.without_expiry && (given.with_expiry || given.later || given.earlier) {
            let line = "ERR NX and XX, GT or LT options at the same time are not compatible";
            return Err(CommandError::Line(line));
        }
        if given.later && given.earlier {
            let line = "ERR GT and LT options at the same time are not compatible";
            return Err(CommandError::Line(line));
        }
        Ok(given)
    }

    /// Returns true if all conditions of EXPIRE hold. A key without expiry counts as one that
    /// expires after all others.
    fn hold(&self, current_ms: Option<i64>, at_ms: i64) -> bool {
        (!self.without_expiry || current_ms.is_none())
            && (!self.with_expiry || current_ms.is_some())
            && (!self.later || current_ms.is_some_and(|current_ms| at_ms > current_ms))
            && (!self.earlier || current_ms.is_none_or(|current_ms| at_ms < current_ms))
    }
}

pub(super) static PERSIST: Command = Command {
    name: "PERSIST",
    summary: "Removes the expiry of a key.",
    history: History::since("2.2.0"),
    group: Group::Generic,
    complexity: "O(1)",
    arity: Arity::Exactly(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::KEYSPACE.union(Acl::WRITE),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0)],
    run: persist,
    ..Command::DEFAULT
};
/// Handles PERSIST: replies with 1 if an expiry was removed, else 0.
fn persist(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let expired = ctx.db.expiry_ms(key).flatten().is_some();
    if expired {
        ctx.db.set_expiry_ms(key, None);
        ctx.changed(EventClass::GENERIC, "persist", key);
    }
    ctx.reply.integer(expired.into());
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, START_MS, check};

    #[test]
    fn times_are_told_in_both_units() {
        let mut db = Harness::new();
        for (line, reply) in [
            ("TTL a", ":-2|"),
            ("SET a 1", "+OK|"),
            ("TTL a", ":-1|"),
            ("EXPIRETIME a", ":-1|"),
            ("PEXPIRE a 1500", ":1|"),
            ("PTTL a", ":1500|"),
            ("TTL a", ":2|"),
            ("PEXPIRETIME a", ":1700000001500|"),
            ("EXPIRETIME a", ":1700000002|"),
            ("PEXPIRE a 1499", ":1|"),
            ("TTL a", ":1|"),
            ("EXPIREAT a 99999999999", ":1|"),
            ("PEXPIRETIME a", ":99999999999000|"),
            ("PEXPIREAT a 9223372036854775807", ":1|"),
            ("TTL a", ":9223370336854776|"),
            ("PERSIST a", ":1|"),
            ("PERSIST a", ":0|"),
            ("PERSIST nokey", ":0|"),
            ("TTL a", ":-1|"),
            ("EXPIRE a 10", ":1|"),
        ] {
            assert_eq!(db.line(line), reply, "{line}");
        }
        db.now_ms = START_MS + 10_000;
        assert_eq!(db.line("PTTL a"), ":0|");
        db.now_ms += 1;
        assert_eq!(db.line("PERSIST a"), ":0|");
        assert_eq!(db.line("TTL a"), ":-2|");
    }

    #[test]
    fn conditions_compare_with_the_time_that_is_set() {
        check(&[
            ("SET a 1", "+OK|"),
            ("EXPIRE a 10 XX", ":0|"),
            ("EXPIRE a 10 GT", ":0|"),
            ("EXPIRE a 10 XX LT", ":0|"),
            ("EXPIRE a 10 NX", ":1|"),
            ("EXPIRE a 20 NX NX", ":0|"),
            ("EXPIRE a 10 GT", ":0|"),
            ("EXPIRE a 10 LT", ":0|"),
            ("EXPIRE a 20 XX GT", ":1|"),
            ("TTL a", ":20|"),
            ("EXPIRE a 15 LT", ":1|"),
            ("EXPIRE a -1 GT", ":0|"),
            ("EXPIRE a -1 XX", ":1|"),
            ("EXISTS a", ":0|"),
            ("EXPIRE a 10", ":0|"),
            ("SET a 1", "+OK|"),
            ("EXPIRE a 10 LT", ":1|"),
        ]);
    }

    #[test]
    fn impossible_requests_are_refused() {
        check(&[
            ("EXPIRE a 10 foo", "-ERR Unsupported option foo|"),
            ("EXPIRE a x foo", "-ERR Unsupported option foo|"),
            ("EXPIRE a 10 NX LT", "-ERR NX and XX, GT or LT options at the same time are not compatible|"),
            ("EXPIRE a 10 GT LT", "-ERR GT and LT options at the same time are not compatible|"),
            ("EXPIRE a x", "-ERR value is not an integer or out of range|"),
            ("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command|"),
            ("PEXPIRE a 9223372036854775807", "-ERR invalid expire time in 'pexpire' command|"),
            ("EXPIREAT a -9223372036854775808", "-ERR invalid expire time in 'expireat' command|"),
            ("PEXPIREAT a -9223372036854775808", ":0|"),
            ("SET a 1", "+OK|"),
            ("PEXPIREAT a -9223372036854775808", ":1|"),
            ("GET a", "_|"),
        ]);
    }

    #[test]
    fn issue_33_the_last_deadlines_are_rounded_up() {
        let mut db = Harness::new();
        db.line("SET a 1 PXAT 9223372036854775807");
        assert_eq!(db.line("EXPIRETIME a"), ":9223372036854776|");
        assert_eq!(db.line("PEXPIRETIME a"), ":9223372036854775807|");
    }

    #[test]
    fn a_time_that_is_over_deletes_the_key() {
        let mut db = Harness::new();
        db.check_events(&[
            ("SET a 1", "+OK|", "set a@0"),
            ("EXPIRE a 10", ":1|", "expire a@0"),
            ("PERSIST a", ":1|", "persist a@0"),
            ("EXPIRE a 0", ":1|", "del a@0"),
            ("SET a 1 PX 5", "+OK|", "set a@0,expire a@0"),
        ]);
        db.now_ms += 5;
        db.check_events(&[("EXISTS a", ":1|", "")]);
        db.now_ms += 1;
        db.check_events(&[("EXISTS a", ":0|", "expired a@0")]);
        assert_eq!(db.access_results.expired_keys, 1);
    }
}
