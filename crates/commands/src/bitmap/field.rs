//! BITFIELD: integers of 1 to 64 bits at any bit position of a string.

use keyspace::string::IntText;

use super::{Changed, bit_offset, bits, change};
use crate::args::{Args, Upper};
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static BITFIELD: Command = Command {
    name: "BITFIELD",
    summary: "Reads, sets and adds to integers of any width in the string stored at a key.",
    history: History::since("3.2.0"),
    group: Group::Bitmap,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::SHORT),
    acl: Acl::WRITE.union(Acl::BITMAP),
    keys: &[KeySpec::at(
        1,
        KeyFlags::RW.union(KeyFlags::ACCESS).union(KeyFlags::UPDATE).union(KeyFlags::VARIABLE_FLAGS),
    )
    .noting("This command allows both access and modification of the key")],
    args: &[
        Arg::key("key", 0),
        Arg::one_of(
            "operation",
            &[
                Arg::block("get-block", &[Arg::string("encoding"), Arg::integer("offset")]).token("GET"),
                Arg::block(
                    "write",
                    &[
                        Arg::one_of(
                            "overflow-block",
                            &[Arg::word("wrap", "WRAP"), Arg::word("sat", "SAT"), Arg::word("fail", "FAIL")],
                        )
                        .token("OVERFLOW")
                        .optional(),
                        Arg::one_of(
                            "write-operation",
                            &[
                                Arg::block(
                                    "set-block",
                                    &[Arg::string("encoding"), Arg::integer("offset"), Arg::integer("value")],
                                )
                                .token("SET"),
                                Arg::block(
                                    "incrby-block",
                                    &[
                                        Arg::string("encoding"),
                                        Arg::integer("offset"),
                                        Arg::integer("increment"),
                                    ],
                                )
                                .token("INCRBY"),
                            ],
                        ),
                    ],
                ),
            ],
        )
        .optional()
        .multiple(),
    ],
    run: bitfield,
    ..Command::DEFAULT
};
/// Handles BITFIELD: replies with one value per step. GET gives the value read, SET the value
/// replaced, INCRBY the sum. A step that fails because of an overflow gives null.
fn bitfield(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let steps = parse(ctx, args)?;
    match steps.iter().filter(|step| step.action != Action::Get).map(Step::end).max() {
        None => read(ctx, args, &steps),
        Some(bits) => write(ctx, args, &steps, bits.div_ceil(8)),
    }
}

pub(super) static BITFIELD_RO: Command = Command {
    name: "BITFIELD_RO",
    summary: "Reads integers of any width in the string stored at a key.",
    history: History::since("6.0.0"),
    group: Group::Bitmap,
    complexity: "O(1)",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY.union(Flags::FAST),
    acl: Acl::READ.union(Acl::BITMAP),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[
        Arg::key("key", 0),
        Arg::block("get-block", &[Arg::string("encoding"), Arg::integer("offset")])
            .token("GET")
            .optional()
            .multiple_token(),
    ],
    run: bitfield_ro,
    ..Command::DEFAULT
};
/// Handles BITFIELD_RO: replies with the value that each GET read.
fn bitfield_ro(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let steps = parse(ctx, args)?;
    if steps.iter().any(|step| step.action != Action::Get) {
        return Err(CommandError::Line("ERR BITFIELD_RO only supports the GET subcommand"));
    }
    read(ctx, args, &steps)
}

/// The type of an integer in a string, such as `i16` or `u8`, in BITFIELD.
#[derive(Clone, Copy)]
struct FieldType {
    signed: bool,
    /// The width of the integer in bits: 1 to 64 if signed, 1 to 63 if unsigned.
    width: u32,
}

/// The treatment of a value that does not fit its field.
#[derive(Clone, Copy)]
enum Overflow {
    /// WRAP: the high bits of the value that do not fit the field are dropped.
    Wrap,
    /// SAT: the nearest value that fits is stored.
    Saturate,
    /// FAIL: the value is not written, and the reply is null.
    Fail,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Get,
    Set(i64),
    IncrBy(i64),
}

/// One step of a BITFIELD or BITFIELD_RO request: GET, SET or INCRBY of one integer.
struct Step {
    action: Action,
    field: FieldType,
    /// The index in the string of the first bit of the step's integer.
    at: usize,
    overflow: Overflow,
}

impl Step {
    /// Returns the index in the string of the first bit after the step's integer.
    fn end(&self) -> usize {
        self.at + self.field.width as usize
    }
}

fn parse(ctx: &Ctx<'_>, args: &Args<'_>) -> Result<Vec<Step>, CommandError> {
    let mut steps = Vec::new();
    let mut overflow = Overflow::Wrap;
    let mut at = 2;
    while at < args.len() {
        let more = args.len() - at - 1;
        let name = Upper::of(args.get(at));
        let action: fn(i64) -> Action = match &*name {
            b"GET" if more >= 2 => |_| Action::Get,
            b"SET" if more >= 3 => Action::Set,
            b"INCRBY" if more >= 3 => Action::IncrBy,
            b"OVERFLOW" if more >= 1 => {
                overflow = Overflow::parse(args.get(at + 1))?;
                at += 2;
                continue;
            }
            _ => return Err(CommandError::Syntax),
        };
        let field = FieldType::parse(args.get(at + 1))?;
        let offset = field_offset(ctx, args.get(at + 2), field)?;
        let writes = action(0) != Action::Get;
        let value = if writes { args.integer(at + 3)? } else { 0 };
        steps.push(Step { action: action(value), field, at: offset, overflow });
        at += if writes { 4 } else { 3 };
    }
    Ok(steps)
}

/// Parses the offset of a BITFIELD step and returns it as the index of a bit. After `#` the unit is
/// the width of `field`, else one bit.
fn field_offset(ctx: &Ctx<'_>, text: &[u8], field: FieldType) -> Result<usize, CommandError> {
    let offset = match text.strip_prefix(b"#") {
        Some(number) => {
            stdx::number::parse_i64(number).and_then(|number| number.checked_mul(field.width.into()))
        }
        None => stdx::number::parse_i64(text),
    };
    bit_offset(ctx, offset)
}

impl Overflow {
    fn parse(word: &[u8]) -> Result<Self, CommandError> {
        match &*Upper::of(word) {
            b"WRAP" => Ok(Overflow::Wrap),
            b"SAT" => Ok(Overflow::Saturate),
            b"FAIL" => Ok(Overflow::Fail),
            _ => Err(CommandError::Line("ERR Invalid OVERFLOW type specified")),
        }
    }
}

impl FieldType {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        let (signed, width) = match text {
            [b'i', width @ ..] => (true, width),
            [b'u', width @ ..] => (false, width),
            _ => (false, &b""[..]),
        };
        match stdx::number::parse_i64(width) {
            Some(width) if (1..=63).contains(&width) || (signed && width == 64) => {
                Ok(FieldType { signed, width: width as u32 })
            }
            _ => Err(CommandError::Line(
                "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but \
                 i64 is.",
            )),
        }
    }

    /// Returns the value of an integer of this type whose bits are the low bits of `word`. An
    /// unsigned value always fits into an `i64`, because it has at most 63 bits.
    fn value(self, word: u64) -> i64 {
        let unused = u64::BITS - self.width;
        if self.signed { (word << unused) as i64 >> unused } else { (word << unused >> unused) as i64 }
    }

    fn get(self, bytes: &[u8], at: usize) -> i64 {
        self.value(bits::field(bytes, at, self.width))
    }

    /// Returns the value that BITFIELD stores when `increment` is added to `base`. Returns `None`
    /// if the sum does not fit the type and the overflow mode is FAIL.
    fn fit(self, base: i64, increment: i64, overflow: Overflow) -> Option<i64> {
        // A negative number for an unsigned field counts as a large one.
        let base = if self.signed { i128::from(base) } else { i128::from(base as u64) };
        let sum = base + i128::from(increment);
        let (min, max) = if self.signed {
            (-1 << (self.width - 1), (1 << (self.width - 1)) - 1)
        } else {
            (0, (1 << self.width) - 1)
        };
        if (min..=max).contains(&sum) {
            return Some(sum as i64);
        }
        match overflow {
            Overflow::Wrap => Some(self.value(sum as u64)),
            // Redis computes the distance to the largest value with signed 64-bit numbers. For a
            // value far below the smallest one this overflows, and the largest value is stored.
            Overflow::Saturate if sum > max || (base < min && max - base > i128::from(i64::MAX)) => {
                Some(max as i64)
            }
            Overflow::Saturate => Some(min as i64),
            Overflow::Fail => None,
        }
    }
}

/// Replies with the values that the BITFIELD steps `steps`, all of them GET, read from the string.
fn read(ctx: &mut Ctx<'_>, args: &Args<'_>, steps: &[Step]) -> Result<(), CommandError> {
    let mut text = IntText::new();
    let string = ctx.db.string(args.key(1))?;
    let bytes = string.map_or(&b""[..], |string| string.bytes(&mut text));
    ctx.reply.array(steps.len());
    for step in steps {
        ctx.reply.integer(step.field.get(bytes, step.at));
    }
    Ok(())
}

/// Executes the BITFIELD steps `steps` on the string and replies to each step. The string is first
/// extended to `len_bytes`.
fn write(ctx: &mut Ctx<'_>, args: &Args<'_>, steps: &[Step], len_bytes: usize) -> Result<(), CommandError> {
    let key = args.key(1);
    let Changed { result, grown } =
        change(ctx, key, len_bytes, |bytes| steps.iter().map(|step| step.take(bytes)).collect::<Vec<_>>())?;
    // If the string became longer, Redis counts every write of the command.
    let changes = result.iter().filter(|taken| taken.changed || (grown && taken.written)).count() as u64;
    if changes > 0 {
        ctx.changed_by(changes, EventClass::STRING, "setbit", key);
    } else if grown {
        // Every write failed, but the string is longer or new: a change without an event.
        ctx.effects.changes += 1;
    }
    ctx.reply.array(result.len());
    for taken in result {
        match taken.reply {
            Some(value) => ctx.reply.integer(value),
            None => ctx.reply.null(),
        }
    }
    Ok(())
}

/// The reply of a BITFIELD step (`None` for null), and its effect on the string.
struct Taken {
    reply: Option<i64>,
    written: bool,
    changed: bool,
}

impl Step {
    fn take(&self, bytes: &mut [u8]) -> Taken {
        let old = self.field.get(bytes, self.at);
        let (new, reply) = match self.action {
            Action::Get => return Taken { reply: Some(old), written: false, changed: false },
            Action::Set(value) => {
                let new = self.field.fit(value, 0, self.overflow);
                (new, new.map(|_| old))
            }
            Action::IncrBy(increment) => {
                let new = self.field.fit(old, increment, self.overflow);
                (new, new)
            }
        };
        if let Some(new) = new {
            bits::set_field(bytes, self.at, self.field.width, new as u64);
        }
        Taken { reply, written: new.is_some(), changed: new.is_some_and(|new| new != old) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{Harness, check};

    #[test]
    fn fields_are_read_set_and_added_to() {
        check(&[
            ("BITFIELD k", "*0|"),
            ("BITFIELD k GET u8 0", "*1|:0|"),
            ("EXISTS k", ":0|"),
            ("BITFIELD k SET i5 3 -3 GET i5 3 GET u5 3 INCRBY u2 100 1", "*4|:0|:-3|:29|:1|"),
            ("STRLEN k", ":13|"),
            (
                "BITFIELD k SET u8 #1 255 INCRBY u8 #1 2 get U8 0",
                "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|",
            ),
            ("BITFIELD k SET u8 #1 255 INCRBY u8 #1 2", "*2|:0|:1|"),
            ("BITFIELD_RO k GET u8 8 GET i64 0 GET u4 1000", "*3|:1|:2089951702076620800|:0|"),
            ("BITFIELD_RO k SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand|"),
            ("BITFIELD_RO k OVERFLOW SAT", "*0|"),
            ("BITFIELD k OVERFLOW NEVER", "-ERR Invalid OVERFLOW type specified|"),
            ("BITFIELD k GET u8", "-ERR syntax error|"),
            ("BITFIELD k SET u8 0 x", "-ERR value is not an integer or out of range|"),
            ("BITFIELD k GET u8 #x", "-ERR bit offset is not an integer or out of range|"),
            ("BITFIELD k GET u63 #9223372036854775807", "-ERR bit offset is not an integer or out of range|"),
            ("RPUSH l 1", ":1|"),
            ("BITFIELD l GET u8 0", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
            ("BITFIELD l SET u8 0 1", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ]);
    }

    #[test]
    fn a_failed_write_grows_the_string_without_an_event() {
        let mut db = Harness::new();
        let line = "BITFIELD k OVERFLOW FAIL INCRBY u2 6 4 OVERFLOW WRAP INCRBY u2 6 5";
        db.check_events(&[
            ("BITFIELD k OVERFLOW FAIL SET u8 8 256", "*1|$-1|", ""),
            ("STRLEN k", ":2|", ""),
            (line, "*2|$-1|:1|", "setbit k@0"),
        ]);
        assert_eq!(db.effects.changes, 2);
    }

    #[test]
    fn values_that_do_not_fit_wrap_saturate_or_fail() {
        let fit = |kind: &str, base, increment, overflow| {
            FieldType::parse(kind.as_bytes()).unwrap().fit(base, increment, overflow)
        };
        for (kind, base, increment, wrapped, saturated) in [
            ("u8", 255, 1, 0, 255),
            ("u8", 0, -1, 255, 0),
            ("u8", -1, 0, 255, 255),
            ("i8", 127, 1, -128, 127),
            ("i8", -128, -1, 127, -128),
            ("i8", 200, 0, -56, 127),
            ("i8", -200, 0, 56, -128),
            ("i8", i64::MIN, 0, 0, 127),
            ("i8", -128, i64::MIN, -128, -128),
            ("u1", 1, 1, 0, 1),
            ("u63", i64::MAX, 1, 0, i64::MAX),
            ("i64", i64::MAX, 1, i64::MIN, i64::MAX),
            ("i64", i64::MIN, -1, i64::MAX, i64::MIN),
            ("i64", i64::MIN, i64::MIN, 0, i64::MIN),
        ] {
            assert_eq!(fit(kind, base, increment, Overflow::Wrap), Some(wrapped), "{kind} {base}");
            assert_eq!(fit(kind, base, increment, Overflow::Saturate), Some(saturated), "{kind} {base}");
            assert_eq!(fit(kind, base, increment, Overflow::Fail), None, "{kind} {base}");
        }
        assert_eq!(fit("i64", i64::MIN, i64::MAX, Overflow::Fail), Some(-1));
    }
}
