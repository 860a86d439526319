//! Idempotent additions: XCFGSET, XIDMPRECORD, and the IDMP options of XADD.
//!
//! Servers before Redis 8.6 know none of these, so the records consist of other commands: a plain
//! XADD, and a *note*. A note is an XACK for a group with a name that no group has. It does nothing
//! on other servers; this server reads the name where it applies records:
//!
//! ```text
//!   XACK key "\0idmp:" bytes of the producer ":" producer idempotent-ID  entry's ID
//!   XACK key "\0idmp-limits:" seconds ":" IDs of a producer              0-0
//! ```
//! RDB files and DUMP payloads of these versions have no form for idempotent IDs.

use std::ops::RangeInclusive;

use keyspace::stream::{Idempotence, Message};
use keyspace::{Stream, StreamId};
use xxhash_rust::xxh3::xxh3_128_with_seed;

use super::parse_id;
use crate::args::Args;
use crate::ctx::Ctx;
use crate::error::CommandError;
use crate::record::RecordWriter;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

/// The beginning of the group name in an XACK that records the idempotent ID of a message.
const MESSAGE_NOTE: &[u8] = b"\0idmp:";
/// The beginning of the group name in an XACK that records the limits of idempotent IDs.
const LIMITS_NOTE: &[u8] = b"\0idmp-limits:";
/// The accepted values of IDMP-DURATION, in seconds.
const DURATIONS: RangeInclusive<i64> = 1..=86_400;
/// The accepted values of IDMP-MAXSIZE, the maximum number of idempotent IDs of a producer.
const SIZES: RangeInclusive<i64> = 1..=10_000;

pub(super) static XCFGSET: Command = Command {
    name: "XCFGSET",
    summary: "Sets how long and how many idempotent IDs of a stream are kept.",
    history: History::since("8.6.0"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[
        Arg::key("key", 0),
        Arg::integer("idmp-duration").token("IDMP-DURATION").optional(),
        Arg::integer("idmp-maxsize").token("IDMP-MAXSIZE").optional(),
    ],
    recorded_forms: &[RecordedForm::REPLACED],
    run: xcfgset,
    ..Command::DEFAULT
};
/// Handles XCFGSET: replies with OK. A changed limit removes all idempotent IDs of the stream.
fn xcfgset(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (mut duration_s, mut size_max) = (None, None);
    if args.len() == 2 {
        return Err(CommandError::Line("ERR At least one parameter must be specified"));
    }
    let mut at = 2;
    while at < args.len() {
        let (setting, range, error) = if args.is(at, "IDMP-DURATION") {
            let error = "ERR IDMP-DURATION must be between 1 and 86400 seconds";
            (&mut duration_s, DURATIONS, error)
        } else if args.is(at, "IDMP-MAXSIZE") {
            (&mut size_max, SIZES, "ERR IDMP-MAXSIZE must be between 1 and 10000 entries")
        } else {
            return Err(CommandError::Syntax);
        };
        if at + 1 == args.len() {
            return Err(CommandError::Syntax);
        }
        let number = args.integer(at + 1)?;
        *setting = Some(number).filter(|number| range.contains(number)).map(|number| number as u32);
        if setting.is_none() {
            return Err(CommandError::Line(error));
        }
        at += 2;
    }
    let key = args.key(1);
    let stream = ctx.db.write::<Stream>(key)?.ok_or(CommandError::NoSuchKey)?;
    let all = stream.idempotence_mut();
    let limits = (duration_s.unwrap_or(all.duration_s()), size_max.unwrap_or(all.size_max()));
    all.configure(limits.0, limits.1);
    ctx.reply.ok();
    ctx.changed_silently(1);
    ctx.record(|record| {
        let note = [LIMITS_NOTE, format!("{}:{}", limits.0, limits.1).as_bytes()].concat();
        record.command("XACK").words([key.bytes, &note, b"0-0"]);
    });
    Ok(())
}

pub(super) static XIDMPRECORD: Command = Command {
    name: "XIDMPRECORD",
    summary: "Sets the idempotent ID of an entry. Used by append-only files and replicas.",
    history: History::since("8.6.2"),
    group: Group::Stream,
    complexity: "O(1)",
    arity: Arity::Exactly(5),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STREAM),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::string("pid"), Arg::string("iid"), Arg::string("stream-id")],
    recorded_forms: &[RecordedForm::REPLACED],
    run: xidmprecord,
    ..Command::DEFAULT
};
/// Handles XIDMPRECORD: replies with OK after it has recorded a producer's idempotent ID for an
/// entry.
fn xidmprecord(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let now_ms = now_ms(ctx);
    // Where a record is applied, an ID that had expired at the primary may still be present. It is
    // replaced.
    let is_applied = !ctx.db.removes_due();
    let stream = ctx.db.write::<Stream>(args.key(1))?.ok_or(CommandError::NoSuchKey)?;
    let message = Message { producer: args.get(2), iid: args.get(3) };
    if message.producer.is_empty() {
        return Err(CommandError::Line(NO_PRODUCER));
    }
    if message.iid.is_empty() {
        return Err(CommandError::Line(NO_IID));
    }
    let id = parse_id(args.get(4), 0)?;
    if stream.entry(id).is_none() {
        return Err(CommandError::Line("ERR The specified stream ID was deleted or doesn't exist"));
    }
    let known = stream.idempotence().and_then(|all| all.get_even_if_expired(message));
    if known.is_some_and(|known| known != id) && !is_applied {
        let other = "ERR The specified IDMP producer-id/idempotent-id pair maps to a different stream ID";
        return Err(CommandError::Line(other));
    }
    if known != Some(id) {
        stream.idempotence_mut().add(message, id, now_ms);
        ctx.changed_silently(1);
        ctx.record(|record| record_message(record, args.get(1), message, id));
    }
    ctx.reply.ok();
    Ok(())
}

/// The error for an empty name of a producer.
const NO_PRODUCER: &str = "ERR IDMP requires a non-empty producer ID";
/// The error for an idempotent ID without bytes.
const NO_IID: &str = "ERR IDMP requires a non-empty idempotent ID";

/// Returns the present time in Unix milliseconds.
pub(super) fn now_ms(ctx: &Ctx<'_>) -> u64 {
    u64::try_from(ctx.db.now_ms()).unwrap_or(0)
}

/// The idempotent ID that XADD gives to its entry.
pub(super) struct IdempotentId<'a> {
    producer: &'a [u8],
    /// The idempotent ID that the client sent; `None` for IDMPAUTO.
    iid: Option<&'a [u8]>,
    /// The idempotent ID computed from the fields and values, for IDMPAUTO.
    computed: ComputedIid,
}

/// An idempotent ID computed from the fields and values of an entry.
type ComputedIid = [u8; 16];

impl<'a> IdempotentId<'a> {
    /// Parses IDMP or IDMPAUTO with its values at argument `at`. Returns the index after them;
    /// `None` for another option.
    pub(super) fn parse_at(
        parsed: &mut Option<Self>,
        args: &Args<'a>,
        at: usize,
    ) -> Result<Option<usize>, CommandError> {
        let words = if args.is(at, "IDMP") && at + 2 < args.len() {
            3
        } else if args.is(at, "IDMPAUTO") && at + 1 < args.len() {
            2
        } else {
            return Ok(None);
        };
        if parsed.is_some() {
            return Err(CommandError::Line("ERR IDMP/IDMPAUTO specified multiple times"));
        }
        let (producer, iid) = (args.get(at + 1), (words == 3).then(|| args.get(at + 2)));
        if producer.is_empty() {
            let of_auto = "ERR IDMPAUTO requires a non-empty producer ID";
            return Err(CommandError::Line(if iid.is_some() { NO_PRODUCER } else { of_auto }));
        }
        if iid.is_some_and(<[u8]>::is_empty) {
            return Err(CommandError::Line(NO_IID));
        }
        *parsed = Some(Self { producer, iid, computed: ComputedIid::default() });
        Ok(Some(at + words))
    }

    /// Computes the idempotent ID for IDMPAUTO from the words of the entry, alternating fields and
    /// values.
    pub(super) fn complete(&mut self, words: impl Iterator<Item = &'a [u8]>) {
        if self.iid.is_none() {
            self.computed = computed_iid(words);
        }
    }

    /// Returns the message (producer and idempotent ID) that the stream stores for the entry.
    pub(super) fn message(&self) -> Message<'_> {
        Message { producer: self.producer, iid: self.iid.unwrap_or(&self.computed) }
    }
}

/// Computes an idempotent ID from fields and values that does not depend on the order of the
/// fields. It is part of append-only files.
fn computed_iid<'w>(mut words: impl Iterator<Item = &'w [u8]>) -> ComputedIid {
    let mut sum = 0_u128;
    while let (Some(field), Some(value)) = (words.next(), words.next()) {
        // The hash of the field is the seed for the value, so the two do not run together.
        let of_field = xxh3_128_with_seed(field, 0);
        let of_value = xxh3_128_with_seed(value, of_field as u64);
        sum = sum.wrapping_add(of_value ^ of_field.rotate_left(64));
    }
    sum.to_le_bytes()
}

/// Records the idempotent ID of an entry's message as an XACK that other servers ignore (a note),
/// after the record of the entry.
pub(super) fn record_message(record: &mut RecordWriter<'_>, key: &[u8], message: Message<'_>, id: StreamId) {
    let len = message.producer.len().to_string();
    let note = [MESSAGE_NOTE, len.as_bytes(), b":", message.producer, message.iid].concat();
    record.command("XACK").words([key, &note]).id(id);
}

/// Applies an XACK that is a note, that is, the record of an idempotent ID or of its limits.
/// Returns false, with nothing done, for any other XACK and for the request of a client.
pub(super) fn apply_note(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<bool, CommandError> {
    let name = args.get(2);
    if name.first() != Some(&0) || ctx.db.removes_due() {
        return Ok(false);
    }
    let now_ms = now_ms(ctx);
    if let Some((producer, iid)) = name.strip_prefix(MESSAGE_NOTE).and_then(message_parts) {
        let id = parse_id(args.get(3), 0)?;
        if let Some(stream) = ctx.db.write::<Stream>(args.key(1))? {
            stream.idempotence_mut().add(Message { producer, iid }, id, now_ms);
        }
    } else if let Some((duration_s, size_max)) = name.strip_prefix(LIMITS_NOTE).and_then(limits_parts) {
        if let Some(stream) = ctx.db.write::<Stream>(args.key(1))? {
            stream.idempotence_mut().configure(duration_s, size_max);
        }
    } else {
        return Ok(false);
    }
    ctx.reply.integer(0);
    ctx.changed_silently(1);
    Ok(true)
}

/// Splits the group name of a message's note, without its beginning, into the producer and the
/// idempotent ID.
fn message_parts(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = rest.iter().position(|&byte| byte == b':')?;
    let len = usize::try_from(stdx::number::parse_i64(&rest[..colon])?).ok()?;
    rest[colon + 1..].split_at_checked(len)
}

/// Parses the group name of a note of the limits, without its beginning: the seconds and the number
/// of IDs of a producer.
fn limits_parts(rest: &[u8]) -> Option<(u32, u32)> {
    let colon = rest.iter().position(|&byte| byte == b':')?;
    let number = |text: &[u8], range: &RangeInclusive<i64>| {
        stdx::number::parse_i64(text).filter(|number| range.contains(number)).map(|number| number as u32)
    };
    Some((number(&rest[..colon], &DURATIONS)?, number(&rest[colon + 1..], &SIZES)?))
}

/// Returns the ID of the entry with this message, if the stream has stored the message, and counts
/// a duplicate.
pub(super) fn duplicate_of(stream: &mut Stream, message: Message<'_>, now_ms: u64) -> Option<StreamId> {
    stream.idempotence()?;
    stream.idempotence_mut().find_duplicate(message, now_ms)
}

/// Writes the fields of XINFO STREAM about idempotent IDs: six names and values.
pub(super) fn reply_facts(reply: &mut resp::Reply<'_>, all: &Idempotence) {
    let facts = [
        ("idmp-duration", u64::from(all.duration_s())),
        ("idmp-maxsize", u64::from(all.size_max())),
        ("pids-tracked", all.producer_count() as u64),
        ("iids-tracked", all.len() as u64),
        ("iids-added", all.added()),
        ("iids-duplicates", all.duplicates()),
    ];
    for (name, number) in facts {
        reply.bulk(name.as_bytes());
        reply.integer(number as i64);
    }
}

#[cfg(test)]
mod tests {
    use super::{computed_iid, limits_parts, message_parts};
    use crate::harness::{Harness, check};

    #[test]
    fn a_message_is_added_once() {
        let mut db = Harness::new();
        let first = db.line("XADD s IDMP p a * f 1");
        db.now_ms += 50;
        assert_eq!(db.line("XADD s IDMP p a * f 2"), first);
        assert_ne!(db.line("XADD s IDMP q a * f 1"), first);
        assert_ne!(db.line("XADD s idmp p b MAXLEN = 9 * f 1"), first);
        assert_eq!(db.line("XLEN s"), ":3|");
        assert_eq!(db.effects.changes, 3);
        let auto = db.line("XADD s IDMPAUTO p * f 1 g 2");
        assert_eq!(db.line("XADD s IDMPAUTO p * g 2 f 1"), auto);
        assert_ne!(db.line("XADD s IDMPAUTO p * g 1 f 2"), auto);
        assert!(db.line("XINFO STREAM s").contains(
            "$13|idmp-duration|:100|$12|idmp-maxsize|:100|$12|pids-tracked|:2|\
             $12|iids-tracked|:5|$10|iids-added|:5|$15|iids-duplicates|:2|"
        ));
        db.now_ms += 100_000;
        assert_ne!(db.line("XADD s IDMP p a * f 1"), first, "it has expired");
        assert_eq!(db.line("XADD none NOMKSTREAM IDMP p a * f 1"), "$-1|");
    }

    #[test]
    fn changed_limits_remove_the_ids() {
        let mut db = Harness::new();
        let first = db.line("XADD s IDMP p a * f 1");
        db.now_ms += 5;
        check_all(&mut db, &[("XCFGSET s IDMP-DURATION 100 IDMP-MAXSIZE 100", "+OK|")]);
        assert_eq!(db.line("XADD s IDMP p a * f 1"), first);
        check_all(&mut db, &[("XCFGSET s idmp-maxsize 1", "+OK|")]);
        assert_ne!(db.line("XADD s IDMP p a * f 1"), first);
    }

    #[test]
    fn a_recorded_id_is_set_once() {
        let mut db = Harness::new();
        let other = "-ERR The specified IDMP producer-id/idempotent-id pair maps to a different stream ID|";
        let missing = "-ERR The specified stream ID was deleted or doesn't exist|";
        check_all(
            &mut db,
            &[
                ("XIDMPRECORD s p a 1-0", "-ERR no such key|"),
                ("XADD s 1-0 f v", "$3|1-0|"),
                ("XADD s 2-0 f v", "$3|2-0|"),
                ("XIDMPRECORD s p a 1-0", "+OK|"),
                ("XIDMPRECORD s p a 1-0", "+OK|"),
                ("XIDMPRECORD s p a 2-0", other),
                ("XIDMPRECORD s p b 3-0", missing),
                ("XIDMPRECORD s \"\" b 1-0", "-ERR IDMP requires a non-empty producer ID|"),
                ("XIDMPRECORD s p \"\" 1-0", "-ERR IDMP requires a non-empty idempotent ID|"),
                ("XIDMPRECORD s p b x", "-ERR Invalid stream ID specified as stream command argument|"),
                ("SET t x", "+OK|"),
                ("XIDMPRECORD t p b 1-0", WRONG_TYPE),
                ("XCFGSET t IDMP-DURATION 1", WRONG_TYPE),
            ],
        );
    }

    const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";

    fn check_all(db: &mut Harness, steps: &[(&str, &str)]) {
        for (line, reply) in steps {
            assert_eq!(db.line(line), *reply, "{line}");
        }
    }

    #[test]
    fn notes_are_split_only_if_complete() {
        assert_eq!(message_parts(b"2:p:i:d"), Some((&b"p:"[..], &b"i:d"[..])));
        assert_eq!(message_parts(b"0:a"), Some((&b""[..], &b"a"[..])));
        for broken in [&b"9:a"[..], b"x:a", b"2", b"-1:a", b""] {
            assert_eq!(message_parts(broken), None);
        }
        assert_eq!(limits_parts(b"60:7"), Some((60, 7)));
        for broken in [&b"0:7"[..], b"60:10001", b"60", b"60:x", b""] {
            assert_eq!(limits_parts(broken), None);
        }
    }

    #[test]
    fn a_client_sets_no_ids_by_notes() {
        let mut db = Harness::new();
        db.line("XADD s 1-0 f v");
        assert_eq!(db.run_bytes(&[b"XACK", b"s", b"\0idmp:1:pa", b"1-0"]), b":0\r\n");
        assert!(!db.line("XINFO STREAM s").contains("idmp"));
    }

    #[test]
    fn bad_requests_are_refused() {
        let twice = "-ERR IDMP/IDMPAUTO specified multiple times|";
        let given = "-ERR IDMP/IDMPAUTO can be used only with auto-generated IDs|";
        let invalid = "-ERR Invalid stream ID specified as stream command argument|";
        check(&[
            ("XADD s IDMP p * f v", invalid),
            ("XADD s IDMP p a 1-1 f v", given),
            ("XADD s IDMPAUTO p 1-1 f v", given),
            ("XADD s IDMP p a IDMP q b * f v", twice),
            ("XADD s IDMPAUTO p IDMP q b * f v", twice),
            ("XADD s IDMP \"\" a * f v", "-ERR IDMP requires a non-empty producer ID|"),
            ("XADD s IDMP p \"\" * f v", "-ERR IDMP requires a non-empty idempotent ID|"),
            ("XADD s IDMPAUTO \"\" * f v", "-ERR IDMPAUTO requires a non-empty producer ID|"),
            ("XCFGSET s IDMP-DURATION 5", "-ERR no such key|"),
            ("XADD s 1-0 f v", "$3|1-0|"),
            ("XCFGSET s", "-ERR At least one parameter must be specified|"),
            ("XCFGSET s IDMP-DURATION", "-ERR syntax error|"),
            ("XCFGSET s OTHER 1", "-ERR syntax error|"),
            ("XCFGSET s IDMP-DURATION x IDMP-MAXSIZE", "-ERR value is not an integer or out of range|"),
            ("XCFGSET s IDMP-DURATION 0", "-ERR IDMP-DURATION must be between 1 and 86400 seconds|"),
            ("XCFGSET s IDMP-DURATION 86401", "-ERR IDMP-DURATION must be between 1 and 86400 seconds|"),
            ("XCFGSET s IDMP-MAXSIZE 10001", "-ERR IDMP-MAXSIZE must be between 1 and 10000 entries|"),
        ]);
    }

    #[test]
    fn computed_ids_depend_on_pairs_but_not_on_their_order() {
        let iid = |words: &[&str]| computed_iid(words.iter().map(|word| word.as_bytes()));
        assert_eq!(iid(&["a", "1", "b", "2"]), iid(&["b", "2", "a", "1"]));
        let all =
            [&["a", "1"][..], &["1", "a"], &["a1", ""], &["", "a1"], &["a", "1", "a", "1"], &["b", "1"]];
        for (at, one) in all.iter().enumerate() {
            assert!(all[..at].iter().all(|other| iid(other) != iid(one)), "{one:?}");
        }
    }
}
