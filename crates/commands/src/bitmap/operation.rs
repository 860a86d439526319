//! BITOP: bitwise logic between whole strings.

use keyspace::string::IntText;
use keyspace::{Expiry, Key};

use super::bits::Logic;
use crate::args::{Args, Upper};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::record::forms::RecordedForm;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static BITOP: Command = Command {
    name: "BITOP",
    summary: "Combines strings bit by bit and stores the result.",
    history: History::since("2.6.0").changed(&[("8.2.0", "takes DIFF, DIFF1, ANDOR and ONE")]),
    group: Group::Bitmap,
    complexity: "O(N)",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.union(Flags::DENYOOM),
    acl: Acl::WRITE.union(Acl::BITMAP),
    keys: &[
        KeySpec::at(2, KeyFlags::OW.union(KeyFlags::UPDATE)),
        KeySpec::from(3, 1, KeyFlags::RO.union(KeyFlags::ACCESS)),
    ],
    args: &[
        Arg::one_of(
            "operation",
            &[
                Arg::word("and", "AND"),
                Arg::word("or", "OR"),
                Arg::word("xor", "XOR"),
                Arg::word("not", "NOT"),
                Arg::word("diff", "DIFF").since("8.2.0"),
                Arg::word("diff1", "DIFF1").since("8.2.0"),
                Arg::word("andor", "ANDOR").since("8.2.0"),
                Arg::word("one", "ONE").since("8.2.0"),
            ],
        ),
        Arg::key("destkey", 0),
        Arg::key("key", 1).multiple(),
    ],
    recorded_forms: &[
        RecordedForm::replaced("DIFF"),
        RecordedForm::replaced("DIFF1"),
        RecordedForm::replaced("ANDOR"),
        RecordedForm::replaced("ONE"),
    ],
    run: bitop,
    ..Command::DEFAULT
};
/// Handles BITOP: replies with the length of the result, which is that of the longest source. An
/// empty result removes the destination.
fn bitop(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let logic = parse(args)?;
    let sources = 3..args.len();
    for at in sources.clone() {
        ctx.db.string(args.key(at))?;
    }
    let mut texts: Vec<IntText> = sources.clone().map(|_| IntText::new()).collect();
    let strings = sources.zip(&mut texts).map(|(at, text)| {
        let string = ctx.db.reread_string(args.key(at));
        string.map_or(&b""[..], |string| string.bytes(text))
    });
    let result = logic.apply(&strings.collect::<Vec<_>>());
    let (destination, len) = (args.key(2), result.len());
    if logic.is_newer_than_redis_6() {
        record_result(ctx, destination, &result);
    }
    if len > 0 {
        ctx.db.set_raw_string(destination, result, Expiry::Clear);
        ctx.changed(EventClass::STRING, "set", destination);
    } else if let Some(entry) = ctx.db.remove_even_expired(destination) {
        ctx.effects.discard(entry);
        ctx.changed(EventClass::GENERIC, "del", destination);
    }
    ctx.reply.integer(len as i64);
    Ok(())
}

/// Records SET of `result`, or DEL if it is empty, in place of BITOP with an operation that older
/// servers do not know. Must run before the result is stored.
fn record_result(ctx: &mut Ctx<'_>, destination: Key<'_>, result: &[u8]) {
    let db = ctx.db.index();
    ctx.effects.record.replace(db, |record| {
        if !result.is_empty() {
            record.command("SET").word(destination.bytes).word(result);
        } else if ctx.db.peek_even_expired(destination).is_some() {
            record.command("DEL").word(destination.bytes);
        }
    });
}

/// Parses the operation of BITOP and checks the number of its source keys.
fn parse(args: &Args<'_>) -> Result<Logic, CommandError> {
    let logic = match &*Upper::of(args.get(1)) {
        b"AND" => Logic::And,
        b"OR" => Logic::Or,
        b"XOR" => Logic::Xor,
        b"NOT" => Logic::Not,
        b"DIFF" => Logic::Diff,
        b"DIFF1" => Logic::Diff1,
        b"ANDOR" => Logic::AndOr,
        b"ONE" => Logic::One,
        _ => return Err(CommandError::Syntax),
    };
    let wrong = match (logic, args.len() - 3) {
        (Logic::Not, 2..) => "ERR BITOP NOT must be called with a single source key.",
        (Logic::Diff, 1) => "ERR BITOP DIFF must be called with at least two source keys.",
        (Logic::Diff1, 1) => "ERR BITOP DIFF1 must be called with at least two source keys.",
        (Logic::AndOr, 1) => "ERR BITOP ANDOR must be called with at least two source keys.",
        _ => return Ok(logic),
    };
    Err(CommandError::Line(wrong))
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn all_operations_store_their_result() {
        check(&[
            ("SET a abc", "+OK|"),
            ("SET n 12", "+OK|"),
            ("BITOP AND d a n", ":3|"),
            ("GET d", "$3|!\"\\x00|"),
            ("BITOP or d a n", ":3|"),
            ("GET d", "$3|qrc|"),
            ("BITOP XOR d a n", ":3|"),
            ("GET d", "$3|PPc|"),
            ("BITOP NOT d n", ":2|"),
            ("GET d", "$2|\\xce\\xcd|"),
            ("BITOP DIFF d a n", ":3|"),
            ("GET d", "$3|@@c|"),
            ("BITOP DIFF1 d a n", ":3|"),
            ("GET d", "$3|\\x10\\x10\\x00|"),
            ("BITOP ANDOR d a n none", ":3|"),
            ("GET d", "$3|!\"\\x00|"),
            ("BITOP ONE d a n a", ":3|"),
            ("GET d", "$3|\\x10\\x10\\x00|"),
            ("BITOP NOT n n", ":2|"),
            ("GET n", "$2|\\xce\\xcd|"),
            ("OBJECT ENCODING n", "$3|raw|"),
            ("BITOP NOT d a n", "-ERR BITOP NOT must be called with a single source key.|"),
            ("BITOP DIFF1 d a", "-ERR BITOP DIFF1 must be called with at least two source keys.|"),
            ("BITOP NAND d a n", "-ERR syntax error|"),
            ("RPUSH l 1", ":1|"),
            ("BITOP AND d none l", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("BITOP AND l a a", ":3|"),
            ("GET l", "$3|abc|"),
        ]);
    }

    #[test]
    fn long_strings_are_combined_and_expiry_goes() {
        let mut db = Harness::new();
        db.line("SETBIT a 100000 1");
        db.line("SET d 1 EX 100");
        assert_eq!(db.line("BITOP NOT d a"), ":12501|");
        assert_eq!(db.line("TTL d"), ":-1|");
        assert_eq!(db.line("BITPOS d 0"), ":100000|");
        assert_eq!(db.line("BITOP XOR d d d"), ":12501|");
        assert_eq!(db.line("BITCOUNT d"), ":0|");
    }
}
