//! Commands on strings as arrays of bits. This file has the commands that read or write one bit,
//! and those that count and find bits. Bitwise logic between strings is in `operation`, BITFIELD's
//! integers of any width are in `field`. Bit 0 is the highest bit of byte 0.
//!
//! A change happens in place: setting a bit of a long string is O(1). If the bytes are shared with
//! an unsent reply or with a copy of the key, the change first copies them.

use std::ops::Range;

use keyspace::string::{IntText, bytes_to_change, stored_as_text};
use keyspace::{Expiry, Key, Str};

use crate::args::{Args, Upper};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

mod bits;
mod field;
mod operation;

/// The command table's records of all bitmap commands.
pub static COMMANDS: &[&Command] =
    &[&SETBIT, &GETBIT, &BITCOUNT, &BITPOS, &operation::BITOP, &field::BITFIELD, &field::BITFIELD_RO];

/// Returns a bit offset as an index. Fails if `offset` is `None` (not a number) or negative, or if
/// the bit is after the end of the longest allowed string.
fn bit_offset(ctx: &Ctx<'_>, offset: Option<i64>) -> Result<usize, CommandError> {
    let offset = offset.and_then(|offset| usize::try_from(offset).ok());
    let fits = |offset: &usize| (offset / 8) as u64 <= ctx.limits.string_len_bytes_max.saturating_sub(1);
    offset.filter(fits).ok_or(CommandError::BitOffset)
}

/// The result of a change to a string: see [`change`].
struct Changed<R> {
    /// The result of the closure that read or changed the bytes of the string.
    result: R,
    /// True if the key is new or its string became longer.
    grown: bool,
}

/// Calls `work` on the bytes of the string at `key`. A shorter or missing string is first extended
/// with zeros to `len_bytes`. O(bytes added), plus the time of `work`.
fn change<R>(
    ctx: &mut Ctx<'_>,
    key: Key<'_>,
    len_bytes: usize,
    work: impl FnOnce(&mut [u8]) -> R,
) -> Result<Changed<R>, CommandError> {
    if let Some(mut entry) = ctx.db.entry_mut(key) {
        let old_len = Str::of(entry.view()).ok_or(CommandError::WrongType)?.len();
        let result = work(bytes_to_change(&mut entry, len_bytes));
        return Ok(Changed { result, grown: old_len < len_bytes });
    }
    ctx.db.set_value(key, stored_as_text(b""), Expiry::Clear);
    let mut entry = ctx.db.entry_mut(key).ok_or(CommandError::UndeclaredKey)?;
    Ok(Changed { result: work(bytes_to_change(&mut entry, len_bytes)), grown: true })
}

static SETBIT: Command = Command {
    name: "SETBIT",
    summary: "Sets or clears a bit of the string stored at a key and returns its previous value.",
    history: History::since("2.2.0"),
    group: Group::Bitmap,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::SHORT),
    acl: Acl::WRITE.union(Acl::BITMAP),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::integer("offset"), Arg::integer("value")],
    run: setbit,
    ..Command::DEFAULT
};
/// Handles SETBIT: replies with the old bit. The string is extended with zeros to hold the bit.
fn setbit(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let key = args.key(1);
    let at = bit_offset(ctx, args.integer(2).ok())?;
    let bit = match args.integer(3) {
        Ok(bit @ 0..=1) => bit as u64,
        _ => return Err(CommandError::Line("ERR bit is not an integer or out of range")),
    };
    let Changed { result: before, grown } = change(ctx, key, at / 8 + 1, |bytes| {
        let before = bits::field(bytes, at, 1);
        bits::set_field(bytes, at, 1, bit);
        before
    })?;
    if grown || before != bit {
        ctx.changed(EventClass::STRING, "setbit", key);
    }
    ctx.reply.integer(before as i64);
    Ok(())
}

static GETBIT: Command = Command {
    name: "GETBIT",
    summary: "Returns a bit of the string stored at a key.",
    history: History::since("2.2.0"),
    group: Group::Bitmap,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::BITMAP),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::integer("offset")],
    run: getbit,
    ..Command::DEFAULT
};
/// Handles GETBIT: replies with the bit, 0 after the string's end.
fn getbit(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let at = bit_offset(ctx, args.integer(2).ok())?;
    let string = ctx.db.string(args.key(1))?;
    let bit = string.map_or(0, |string| bits::field(string.bytes(&mut IntText::new()), at, 1));
    ctx.reply.integer(bit as i64);
    Ok(())
}

/// The unit of the bounds of a range in BITCOUNT and BITPOS: bytes or bits.
#[derive(Clone, Copy)]
enum Unit {
    Byte,
    Bit,
}

impl Unit {
    /// Returns the unit that argument `index` names, or bytes without this argument.
    fn parse(args: &Args<'_>, index: usize) -> Result<Self, CommandError> {
        match args.try_get(index).map(Upper::of).as_deref() {
            None | Some(b"BYTE") => Ok(Unit::Byte),
            Some(b"BIT") => Ok(Unit::Bit),
            Some(_) => Err(CommandError::Syntax),
        }
    }
}

/// A range of bytes or bits of a string. Both bounds are included, and negative bounds count from
/// the string's end.
struct Bounds {
    start: i64,
    end: i64,
    unit: Unit,
}

impl Bounds {
    /// Returns the range of bits in a string of `len_bytes`. As in Redis, a negative bound before
    /// the start of the string means its first byte or bit.
    fn bits(&self, len_bytes: usize) -> Range<usize> {
        let (len, unit_bits) = match self.unit {
            Unit::Byte => (len_bytes as i64, 8),
            Unit::Bit => (len_bytes as i64 * 8, 1),
        };
        let from_front = |index: i64| if index < 0 { (len + index).max(0) } else { index };
        let (start, end) = (from_front(self.start), from_front(self.end).min(len - 1));
        if start > end { 0..0 } else { start as usize * unit_bits..(end as usize + 1) * unit_bits }
    }
}

static BITCOUNT: Command = Command {
    name: "BITCOUNT",
    summary: "Counts the set bits of the string stored at a key.",
    history: History::since("2.6.0")
        .changed(&[("7.0.0", "takes BYTE and BIT")])
        .changed_by_valkey(&[("8.0.0", "takes a start without an end")]),
    group: Group::Bitmap,
    complexity: "O(N)",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::BITMAP),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::block(
            "range",
            &[
                Arg::integer("start"),
                Arg::block(
                    "end-unit-block",
                    &[
                        Arg::integer("end"),
                        Arg::one_of("unit", &[Arg::word("byte", "BYTE"), Arg::word("bit", "BIT")])
                            .since("7.0.0")
                            .optional(),
                    ],
                )
                .optional(),
            ],
        )
        .optional(),
    ],
    run: bitcount,
    ..Command::DEFAULT
};
/// Handles BITCOUNT: replies with the number of set bits, in the whole string or in a range.
fn bitcount(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let bounds = match args.len() {
        2 => Bounds { start: 0, end: -1, unit: Unit::Byte },
        3 => Bounds { start: args.integer(2)?, end: -1, unit: Unit::Byte },
        4 | 5 => Bounds { start: args.integer(2)?, end: args.integer(3)?, unit: Unit::parse(args, 4)? },
        _ => return Err(CommandError::Syntax),
    };
    let string = ctx.db.string(args.key(1))?;
    let mut text = IntText::new();
    let bytes = string.map_or(&b""[..], |string| string.bytes(&mut text));
    // Two negative bounds in the wrong order select nothing, not the first byte.
    let is_backwards = bounds.start < 0 && bounds.end < 0 && bounds.start > bounds.end;
    let count = if is_backwards { 0 } else { bits::count(bytes, bounds.bits(bytes.len())) };
    ctx.reply.integer(count as i64);
    Ok(())
}

static BITPOS: Command = Command {
    name: "BITPOS",
    summary: "Finds the first set or clear bit of the string stored at a key.",
    history: History::since("2.8.7").changed(&[("7.0.0", "takes BYTE and BIT")]),
    group: Group::Bitmap,
    complexity: "O(N)",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::BITMAP),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::integer("bit"),
        Arg::block(
            "range",
            &[
                Arg::integer("start"),
                Arg::block(
                    "end-unit-block",
                    &[
                        Arg::integer("end"),
                        Arg::one_of("unit", &[Arg::word("byte", "BYTE"), Arg::word("bit", "BIT")])
                            .since("7.0.0")
                            .optional(),
                    ],
                )
                .optional(),
            ],
        )
        .optional(),
    ],
    run: bitpos,
    ..Command::DEFAULT
};
/// Handles BITPOS: replies with the position of the first bit that has the requested value, or -1.
/// If the request gives no end of the range, the string counts as followed by zeros.
fn bitpos(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let wanted = match args.integer(2)? {
        0 => bits::Bit::Zero,
        1 => bits::Bit::One,
        _ => return Err(CommandError::Line("ERR The bit argument must be 1 or 0.")),
    };
    if args.len() > 6 {
        return Err(CommandError::Syntax);
    }
    let start = if args.len() > 3 { args.integer(3)? } else { 0 };
    let unit = Unit::parse(args, 5)?;
    let end = if args.len() > 4 { Some(args.integer(4)?) } else { None };
    let Some(string) = ctx.db.string(args.key(1))? else {
        // A missing string counts as zeros.
        ctx.reply.integer(if wanted == bits::Bit::One { -1 } else { 0 });
        return Ok(());
    };
    let mut text = IntText::new();
    let bytes = string.bytes(&mut text);
    let bits = Bounds { start, end: end.unwrap_or(-1), unit }.bits(bytes.len());
    let position = match bits::find(bytes, bits.clone(), wanted) {
        None if wanted == bits::Bit::Zero && end.is_none() && !bits.is_empty() => Some(bits.end),
        found => found,
    };
    ctx.reply.integer(position.map_or(-1, |position| position as i64));
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::harness::{Harness, check};

    #[test]
    fn bits_are_set_in_every_kind_of_string() {
        check(&[
            ("SETBIT k 7 1", ":0|"),
            ("SETBIT k 7 1", ":1|"),
            ("SETBIT k 17 1", ":0|"),
            ("GET k", "$3|\\x01\\x00@|"),
            ("OBJECT ENCODING k", "$3|raw|"),
            ("GETBIT k 17", ":1|"),
            ("GETBIT k 4294967295", ":0|"),
            ("GETBIT none 0", ":0|"),
            ("SET n 1", "+OK|"),
            ("SETBIT n 6 1", ":0|"),
            ("GET n", "$1|3|"),
            ("OBJECT ENCODING n", "$3|raw|"),
            ("SETBIT n 100000 1", ":0|"),
            ("SETBIT n 100001 1", ":0|"),
            ("BITCOUNT n", ":6|"),
            ("STRLEN n", ":12501|"),
            ("RPUSH l a", ":1|"),
            ("SETBIT l 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("GETBIT l 0", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("SETBIT k 0 2", "-ERR bit is not an integer or out of range|"),
            ("SETBIT k x 2", "-ERR bit offset is not an integer or out of range|"),
            ("SETBIT k 4294967296 1", "-ERR bit offset is not an integer or out of range|"),
            ("GETBIT k -1", "-ERR bit offset is not an integer or out of range|"),
        ]);
    }

    #[test]
    fn an_event_is_raised_where_something_changed() {
        let mut db = Harness::new();
        db.check_events(&[
            ("SETBIT k 1 0", ":0|", "setbit k@0"),
            ("SETBIT k 1 0", ":0|", ""),
            ("SETBIT k 1 1", ":0|", "setbit k@0"),
            ("SETBIT k 9 0", ":0|", "setbit k@0"),
            ("BITFIELD k SET u8 0 1 INCRBY u8 0 0 GET u8 0", "*3|:64|:1|:1|", "setbit k@0"),
            ("BITFIELD k INCRBY u8 0 0", "*1|:1|", ""),
            ("BITOP NOT d k", ":2|", "set d@0"),
            ("BITOP OR d none", ":0|", "del d@0"),
            ("BITOP OR d none", ":0|", ""),
        ]);
        assert_eq!(db.effects.changes, 6);
    }

    #[test]
    fn a_bit_beyond_the_longest_string_is_refused() {
        let mut db = Harness::new();
        db.limits.string_len_bytes_max = 4;
        let refused = "-ERR bit offset is not an integer or out of range|";
        assert_eq!(db.line("SETBIT k 32 1"), refused);
        assert_eq!(db.line("BITFIELD k GET u8 32"), refused);
        assert_eq!(db.line("SETBIT k 31 1"), ":0|");
    }

    #[test]
    fn ranges_count_bytes_or_bits_from_either_end() {
        check(&[
            ("SET k \"\\xff\\xf0\\x00\"", "+OK|"),
            ("BITCOUNT k", ":12|"),
            ("BITCOUNT k 1 1", ":4|"),
            ("BITCOUNT k -2 -1 BYTE", ":4|"),
            ("BITCOUNT k 5 10 bit", ":6|"),
            ("BITCOUNT k 0 -100", ":8|"),
            ("BITCOUNT k -100 -200", ":0|"),
            ("BITCOUNT k 0 1 WORD", "-ERR syntax error|"),
            ("BITCOUNT k 0", ":12|"),
            ("BITCOUNT k -2", ":4|"),
            ("BITCOUNT k BIT", "-ERR value is not an integer or out of range|"),
            ("BITCOUNT none", ":0|"),
            ("BITPOS k 0", ":12|"),
            ("BITPOS k 1 1", ":8|"),
            ("BITPOS k 1 -1", ":-1|"),
            ("BITPOS k 1 -100 -200", ":0|"),
            ("BITPOS k 0 3 9 BIT", ":-1|"),
            ("BITPOS k 0 3 12 BIT", ":12|"),
            ("BITPOS k 2", "-ERR The bit argument must be 1 or 0.|"),
            ("BITPOS none 0", ":0|"),
            ("BITPOS none 1", ":-1|"),
            ("SET ones \"\\xff\\xff\"", "+OK|"),
            ("BITPOS ones 0", ":16|"),
            ("BITPOS ones 0 1", ":16|"),
            ("BITPOS ones 0 0 -1", ":-1|"),
            ("BITPOS ones 0 2", ":-1|"),
            ("SET e \"\"", "+OK|"),
            ("BITPOS e 0", ":-1|"),
            ("BITCOUNT e", ":0|"),
        ]);
    }
}
