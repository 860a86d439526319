//! INCREX: a counter with bounds and an expiry, for rate limits and quotas. Source: Redis 8.8.

use keyspace::string::{IntText, stored_as_text};
use keyspace::{Expiry, Object};
use resp::Reply;
use stdx::long_double::LongDouble;
use stdx::number;
use structures::entry::NewValue;

use super::delete;
use super::options::{AllowedOptions, Lifetime};
use crate::args::{Args, Upper};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// A parsed request of INCREX. Numbers are still text, because a later option may decide if they
/// are integers or floats.
#[derive(Default)]
struct Request<'a> {
    /// The increment, and true if it is a float (BYFLOAT). `None` if the request has no increment.
    by: Option<(&'a [u8], bool)>,
    lower: Option<&'a [u8]>,
    upper: Option<&'a [u8]>,
    saturates: Option<()>,
    lifetime: Option<Lifetime<'a>>,
    /// The option ENX: `Some` if the expiry is set only on a key that has none.
    only_new: Option<()>,
}

/// Sets an option of INCREX to `value`. Fails if the option was given before or if its value is
/// missing.
fn once<T>(option: &mut Option<T>, value: Option<T>) -> Result<(), CommandError> {
    if option.is_some() || value.is_none() {
        return Err(CommandError::Syntax);
    }
    *option = value;
    Ok(())
}

impl<'a> Request<'a> {
    fn parse(args: &Args<'a>) -> Result<Self, CommandError> {
        let (mut request, mut words) = (Request::default(), args.from(2));
        while let Some(word) = words.next() {
            match &*Upper::of(word) {
                b"BYINT" => once(&mut request.by, words.next().map(|by| (by, false)))?,
                b"BYFLOAT" => once(&mut request.by, words.next().map(|by| (by, true)))?,
                b"LBOUND" => once(&mut request.lower, words.next())?,
                b"UBOUND" => once(&mut request.upper, words.next())?,
                b"SATURATE" => once(&mut request.saturates, Some(()))?,
                b"ENX" => once(&mut request.only_new, Some(()))?,
                _ => once(&mut request.lifetime, Lifetime::parse(word, &mut words, AllowedOptions::Getex))?,
            }
        }
        match request.lifetime {
            Some(Lifetime::Persist) if request.only_new.is_some() => Err(CommandError::Syntax),
            None if request.only_new.is_some() => {
                Err(CommandError::Line("ERR ENX flag requires an expiration"))
            }
            _ => Ok(request),
        }
    }
}

/// The result of INCREX's addition: the new number and the increment that was applied.
struct Sum<T> {
    value: T,
    applied: T,
    /// True if the new number is stored. False if the sum is out of bounds and SATURATE is not
    /// given.
    accepted: bool,
}

/// Parses an integer argument of INCREX. `what` names the argument in the error.
fn whole(text: &[u8], what: &str) -> Result<i64, CommandError> {
    let error = || CommandError::Text(format!("ERR {what} is not an integer or out of range"));
    number::parse_i64(text).ok_or_else(error)
}

fn float(text: &[u8], what: &str) -> Result<LongDouble, CommandError> {
    LongDouble::parse(text).ok_or_else(|| CommandError::Text(format!("ERR {what} is not a valid float")))
}

fn bounds<T: PartialOrd>(lower: T, upper: T) -> Result<(T, T), CommandError> {
    if lower > upper {
        return Err(CommandError::Line("ERR LBOUND can't be greater than UBOUND"));
    }
    Ok((lower, upper))
}

/// The increment and the bounds of an INCREX request as integers.
struct WholeStep {
    by: i64,
    lower: i64,
    upper: i64,
    saturates: bool,
}

impl WholeStep {
    fn parse(request: &Request<'_>) -> Result<Self, CommandError> {
        let by = request.by.map_or(Ok(1), |(by, _)| whole(by, "Increment"))?;
        let lower = request.lower.map_or(Ok(i64::MIN), |bound| whole(bound, "LBOUND"))?;
        let upper = request.upper.map_or(Ok(i64::MAX), |bound| whole(bound, "UBOUND"))?;
        let (lower, upper) = bounds(lower, upper)?;
        Ok(Self { by, lower, upper, saturates: request.saturates.is_some() })
    }

    fn add(&self, old: i64) -> Result<Sum<i64>, CommandError> {
        let exact = i128::from(old) + i128::from(self.by);
        let value = exact.clamp(self.lower.into(), self.upper.into()) as i64;
        if i128::from(value) != exact && !self.saturates {
            return Ok(Sum { value: old, applied: 0, accepted: false });
        }
        let applied = value.checked_sub(old);
        let applied = applied.ok_or(CommandError::Line("ERR applied increment would overflow"))?;
        Ok(Sum { value, applied, accepted: true })
    }
}

/// The increment and the bounds of an INCREX request as floats.
struct FloatStep {
    by: LongDouble,
    lower: LongDouble,
    upper: LongDouble,
    saturates: bool,
}

impl FloatStep {
    fn parse(request: &Request<'_>, by: &[u8]) -> Result<Self, CommandError> {
        let by = float(by, "Increment")?;
        if !by.is_finite() {
            return Err(CommandError::Line("ERR BYFLOAT increment cannot be Infinity"));
        }
        let lower = request.lower.map_or(Ok(-LongDouble::largest()), |bound| float(bound, "LBOUND"))?;
        let upper = request.upper.map_or(Ok(LongDouble::largest()), |bound| float(bound, "UBOUND"))?;
        let (lower, upper) = bounds(lower, upper)?;
        Ok(Self { by, lower, upper, saturates: request.saturates.is_some() })
    }

    fn add(&self, old: LongDouble) -> Result<Sum<LongDouble>, CommandError> {
        if !old.is_finite() {
            return Err(CommandError::Line("ERR value cannot be Infinity"));
        }
        let within = match old.checked_add(self.by) {
            Some(sum) if sum > self.upper => Err(self.upper),
            Some(sum) if sum < self.lower => Err(self.lower),
            Some(sum) => Ok(sum),
            // The sum is out of the range of floats.
            None if self.by > LongDouble::ZERO => Err(self.upper),
            None => Err(self.lower),
        };
        match within {
            Ok(value) => Ok(Sum { value, applied: self.by, accepted: true }),
            Err(_) if !self.saturates => Ok(Sum { value: old, applied: LongDouble::ZERO, accepted: false }),
            Err(bound) => {
                let applied = bound.checked_add(-old);
                let applied = applied.ok_or(CommandError::Line("ERR applied increment would be Infinity"))?;
                Ok(Sum { value: bound, applied, accepted: true })
            }
        }
    }
}

pub(super) static INCREX: Command = Command {
    name: "INCREX",
    summary: "Adds to the number stored at a key within bounds, and sets the key's expiry.",
    history: History::since("8.8.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "increment",
            &[Arg::double("float").token("BYFLOAT"), Arg::integer("integer").token("BYINT")],
        )
        .optional(),
        Arg::string("lowerbound").token("LBOUND").optional(),
        Arg::string("upperbound").token("UBOUND").optional(),
        Arg::word("saturate", "SATURATE").optional(),
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
        Arg::word("enx", "ENX").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: increx,
    ..Command::DEFAULT
};
/// Handles INCREX: replies with the new number and the applied increment. A sum out of bounds
/// changes nothing, or with SATURATE becomes the bound.
fn increx(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, request) = (args.key(1), Request::parse(args)?);
    let lifetime = request.lifetime.unwrap_or(Lifetime::Keep);
    if let Some((by, true)) = request.by {
        let step = FloatStep::parse(&request, by)?;
        let expiry = lifetime.expiry("increx", ctx.db.now_ms())?;
        let old = match ctx.db.string_to_write(key)? {
            Some(string) => {
                LongDouble::parse(string.bytes(&mut IntText::new())).ok_or(CommandError::NotAFloat)?
            }
            None => LongDouble::ZERO,
        };
        let sum = step.add(old)?;
        let text = sum.value.to_string();
        reply_pair(&mut ctx.reply, |reply| {
            reply.double_text(&text);
            reply.double_text(&sum.applied.to_string());
        });
        if sum.accepted {
            let sum = StoredSum { value: stored_as_text(text.as_bytes()), text: text.as_bytes() };
            apply(ctx, args, &request, expiry, sum);
        }
        return Ok(());
    }
    let step = WholeStep::parse(&request)?;
    let expiry = lifetime.expiry("increx", ctx.db.now_ms())?;
    let old = match ctx.db.string_to_write(key)? {
        Some(string) => {
            number::parse_i64(string.bytes(&mut IntText::new())).ok_or(CommandError::NotAnInteger)?
        }
        None => 0,
    };
    let sum = step.add(old)?;
    reply_pair(&mut ctx.reply, |reply| {
        reply.integer(sum.value);
        reply.integer(sum.applied);
    });
    if sum.accepted {
        let mut text = itoa::Buffer::new();
        let sum = StoredSum { value: NewValue::Int(sum.value), text: text.format(sum.value).as_bytes() };
        apply(ctx, args, &request, expiry, sum);
    }
    Ok(())
}

fn reply_pair(reply: &mut Reply<'_>, write: impl FnOnce(&mut Reply<'_>)) {
    reply.array(2);
    write(reply);
}

/// The sum that INCREX stores, in its stored form and as text.
struct StoredSum<'s> {
    value: NewValue<'s, Object>,
    text: &'s [u8],
}

/// Stores the sum of INCREX and sets the key's expiry. With ENX, a key that already has an expiry
/// keeps it. An expiry in the past deletes the key.
fn apply(ctx: &mut Ctx<'_>, args: &Args<'_>, request: &Request<'_>, expiry: Expiry, sum: StoredSum<'_>) {
    let key = args.key(1);
    let expires = ctx.db.expiry_ms(key).flatten().is_some();
    let expiry = if request.only_new.is_some() && expires { Expiry::Keep } else { expiry };
    if matches!(expiry, Expiry::At(at_ms) if ctx.db.is_past(at_ms)) {
        delete(ctx, key);
        return;
    }
    let is_float = request.by.is_some_and(|(_, is_float)| is_float);
    ctx.db.set_value(key, sum.value, expiry);
    ctx.changed(EventClass::STRING, if is_float { "incrbyfloat" } else { "incrby" }, key);
    match expiry {
        Expiry::At(_) => ctx.changed_by(0, EventClass::GENERIC, "expire", key),
        Expiry::Clear if expires => ctx.changed_by(0, EventClass::GENERIC, "persist", key),
        _ => {}
    }
    ctx.record(|record| {
        let set = record.command("SET").word(key.bytes).word(sum.text);
        match expiry {
            Expiry::At(at_ms) => set.word(b"PXAT").integer(at_ms),
            Expiry::Keep => set.word(b"KEEPTTL"),
            Expiry::Clear => set,
        };
    });
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, START_MS, check};

    #[test]
    fn sums_stay_within_bounds() {
        check(&[
            ("INCREX n", "*2|:1|:1|"),
            ("INCREX n BYINT 100 UBOUND 80", "*2|:1|:0|"),
            ("INCREX n BYINT 100 UBOUND 80 SATURATE", "*2|:80|:79|"),
            ("INCREX n BYINT 5 UBOUND 30 SATURATE", "*2|:30|:-50|"),
            ("INCREX n BYINT -25 LBOUND 0 UBOUND 10", "*2|:5|:-25|"),
            ("INCREX new BYINT 5 LBOUND 10", "*2|:0|:0|"),
            ("EXISTS new", ":0|"),
            ("SET n 9223372036854775800", "+OK|"),
            ("INCREX n BYINT 9223372036854775800", "*2|:9223372036854775800|:0|"),
            ("INCREX n BYINT 9 SATURATE", "*2|:9223372036854775807|:7|"),
            ("INCREX n SATURATE UBOUND -9223372036854775808", "-ERR applied increment would overflow|"),
        ]);
        let mut db = Harness::new();
        assert_eq!(db.line("INCREX f BYFLOAT 1.5"), "*2|$3|1.5|$3|1.5|");
        assert_eq!(db.line("INCREX f BYFLOAT 100 UBOUND 42.5"), "*2|$3|1.5|$1|0|");
        assert_eq!(db.line("INCREX f BYFLOAT 100 UBOUND 42.5 SATURATE"), "*2|$4|42.5|$2|41|");
        assert_eq!(db.line("INCREX f BYFLOAT inf"), "-ERR BYFLOAT increment cannot be Infinity|");
        assert_eq!(db.line("INCREX f"), "-ERR value is not an integer or out of range|");
    }

    #[test]
    fn an_expiry_goes_with_the_sum() {
        let mut db = Harness::new();
        let past = format!("INCREX n EXAT {} ENX", START_MS / 1000 - 1);
        db.check_events(&[
            ("INCREX n EX 100 ENX", "*2|:1|:1|", "incrby n@0,expire n@0"),
            (&past, "*2|:2|:1|", "incrby n@0"),
            ("TTL n", ":100|", ""),
            ("INCREX n BYFLOAT 1 PERSIST", "*2|$1|3|$1|1|", "incrbyfloat n@0,persist n@0"),
            ("INCREX n EX 10 UBOUND 3", "*2|:3|:0|", ""),
            ("TTL n", ":-1|", ""),
            (&past, "*2|:4|:1|", "del n@0"),
        ]);
    }

    #[test]
    fn wrong_requests_are_told() {
        check(&[
            ("INCREX n BYINT 1 BYFLOAT 1", "-ERR syntax error|"),
            ("INCREX n EX 10 EX 20", "-ERR syntax error|"),
            ("INCREX n EX 10 PERSIST", "-ERR syntax error|"),
            ("INCREX n PERSIST ENX", "-ERR syntax error|"),
            ("INCREX n LBOUND", "-ERR syntax error|"),
            ("INCREX n SATURATE SATURATE", "-ERR syntax error|"),
            ("INCREX n ENX", "-ERR ENX flag requires an expiration|"),
            ("INCREX n BYINT 1.5", "-ERR Increment is not an integer or out of range|"),
            ("INCREX n LBOUND 1.5", "-ERR LBOUND is not an integer or out of range|"),
            ("INCREX n BYFLOAT x", "-ERR Increment is not a valid float|"),
            ("INCREX n LBOUND 2 UBOUND 1", "-ERR LBOUND can't be greater than UBOUND|"),
            ("INCREX n EX 0", "-ERR invalid expire time in 'increx' command|"),
        ]);
    }
}
