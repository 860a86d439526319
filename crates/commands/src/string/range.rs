//! Commands on parts of strings. They copy only the part that they use, unless the string is
//! reallocated.

use keyspace::string::{IntText, bytes_to_change, stored, stored_as_text};
use keyspace::{Blob, Expiry, Key, Str};
use std::ops::Range;
use std::sync::Arc;

use super::SHARED_REPLY_LEN_MIN;
use crate::args::Args;
use crate::ctx::{Ctx, EventClass};
use crate::error::CommandError;
use crate::table::{Acl, Arg, Arity, Command, Flags, Group, History, KeyFlags, KeySpec};

pub(super) static APPEND: Command = Command {
    name: "APPEND",
    summary: "Appends a string to the string stored at a key. Creates the key if it does not exist.",
    history: History::since("2.0.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::FAST),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::INSERT))],
    args: &[Arg::key("key", 0), Arg::string("value")],
    run: append,
    ..Command::DEFAULT
};
/// Handles APPEND: replies with the new length. Amortised O(bytes appended).
fn append(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, tail) = (args.key(1), args.get(2));
    let len = match len_to_change(ctx, key)? {
        None => {
            ctx.db.set_value(key, stored(tail), Expiry::Clear);
            tail.len()
        }
        Some(old_len) => {
            let len = check_len(ctx, old_len, tail.len())?;
            change(ctx, key, len, |bytes| bytes[old_len..].copy_from_slice(tail));
            len
        }
    };
    ctx.changed(EventClass::STRING, "append", key);
    ctx.reply.integer(len as i64);
    Ok(())
}

/// Returns the length in bytes of the string at `key`, or `None` if the key is missing.
fn len_to_change(ctx: &mut Ctx<'_>, key: Key<'_>) -> Result<Option<usize>, CommandError> {
    Ok(ctx.db.string_to_write(key)?.map(|string| string.len()))
}

/// Returns the offset after `more` bytes that begin at offset `at` of a string. Fails if the end is
/// after `proto-max-bulk-len` bytes.
fn check_len(ctx: &Ctx<'_>, at: usize, more: usize) -> Result<usize, CommandError> {
    let len = at.checked_add(more).filter(|&len| len as u64 <= ctx.limits.string_len_bytes_max);
    len.ok_or(CommandError::StringTooLong)
}

/// Calls `work` on the bytes of the existing string at `key`. A shorter string is first extended
/// with zeros to `len` bytes.
fn change(ctx: &mut Ctx<'_>, key: Key<'_>, len: usize, work: impl FnOnce(&mut [u8])) {
    let mut entry = ctx.db.entry_mut(key).expect("the caller found a string there");
    work(bytes_to_change(&mut entry, len));
}

pub(super) static GETRANGE: Command = Command {
    name: "GETRANGE",
    summary: "Returns a part of the string stored at a key.",
    history: History::since("2.4.0"),
    group: Group::String,
    complexity: "O(N)",
    arity: Arity::Exactly(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::integer("start"), Arg::integer("end")],
    run: getrange,
    ..Command::DEFAULT
};
/// Handles GETRANGE: replies with the bytes from `start` to `end`, both included and counted from
/// the end when negative.
fn getrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (start, end) = (args.integer(2)?, args.integer(3)?);
    let Some(string) = ctx.db.string(args.key(1))? else {
        ctx.reply.bulk(b"");
        return Ok(());
    };
    let range = clamp(start, end, string.len());
    match string {
        Str::Blob(blob) if range.len() >= SHARED_REPLY_LEN_MIN => {
            ctx.reply.bulk_shared(Arc::new(SharedPart { blob: blob.clone(), range }));
        }
        string => ctx.reply.bulk(&string.bytes(&mut IntText::new())[range]),
    }
    Ok(())
}

/// A part of a stored string that an unsent reply shares with the key, without a copy.
struct SharedPart {
    blob: Blob,
    range: Range<usize>,
}

impl AsRef<[u8]> for SharedPart {
    fn as_ref(&self) -> &[u8] {
        &self.blob[self.range.clone()]
    }
}

/// Returns the range of bytes that `start` and `end` select in a string of `len` bytes. Both are
/// included, and count from the end when negative.
fn clamp(start: i64, end: i64, len: usize) -> Range<usize> {
    let len = len as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let from_front = |index: i64| if index < 0 { (len + index).max(0) } else { index };
    let (start, end) = (from_front(start), from_front(end).min(len - 1));
    if start > end { 0..0 } else { start as usize..end as usize + 1 }
}

pub(super) static SUBSTR: Command = Command {
    name: "SUBSTR",
    summary: "Returns a part of the string stored at a key.",
    history: History::since("1.0.0").deprecated("2.0.0", "`GETRANGE`"),
    group: Group::String,
    complexity: "O(N)",
    arity: Arity::Exactly(4),
    flags: Flags::READONLY,
    acl: Acl::READ.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RO.union(KeyFlags::ACCESS))],
    args: &[Arg::key("key", 0), Arg::integer("start"), Arg::integer("end")],
    run: substr,
    ..Command::DEFAULT
};
/// Handles SUBSTR: the old name of GETRANGE.
fn substr(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    getrange(ctx, args)
}

pub(super) static SETRANGE: Command = Command {
    name: "SETRANGE",
    summary: "Overwrites a part of the string stored at a key. Pads a shorter string with zero bytes.",
    history: History::since("2.2.0"),
    group: Group::String,
    complexity: "O(1)",
    arity: Arity::Exactly(4),
    flags: Flags::WRITE.union(Flags::DENYOOM).union(Flags::SHORT),
    acl: Acl::WRITE.union(Acl::STRING),
    keys: &[KeySpec::at(1, KeyFlags::RW.union(KeyFlags::UPDATE))],
    args: &[Arg::key("key", 0), Arg::integer("offset"), Arg::string("value")],
    run: setrange,
    ..Command::DEFAULT
};
/// Handles SETRANGE: replies with the new length. An empty value changes nothing.
fn setrange(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), CommandError> {
    let (key, part) = (args.key(1), args.get(3));
    let offset = usize::try_from(args.integer(2)?).map_err(|_| CommandError::OffsetOutOfRange)?;
    let old_len = len_to_change(ctx, key)?;
    if part.is_empty() {
        ctx.reply.integer(old_len.unwrap_or(0) as i64);
        return Ok(());
    }
    let end = check_len(ctx, offset, part.len())?;
    if old_len.is_none() {
        ctx.db.set_value(key, stored_as_text(b""), Expiry::Clear);
    }
    change(ctx, key, end, |bytes| bytes[offset..end].copy_from_slice(part));
    ctx.changed(EventClass::STRING, "setrange", key);
    ctx.reply.integer(old_len.unwrap_or(0).max(end) as i64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::clamp;
    use crate::harness::{Harness, check};

    #[test]
    fn append_and_setrange_change_a_string_in_place() {
        check(&[
            ("APPEND a 12", ":2|"),
            ("APPEND a 3", ":3|"),
            ("GET a", "$3|123|"),
            ("APPEND a \"\"", ":3|"),
            ("SETRANGE a 1 xyz", ":4|"),
            ("GET a", "$4|1xyz|"),
            ("SETRANGE a 0 \"\"", ":4|"),
            ("SETRANGE a 6 !", ":7|"),
            ("GET a", "$7|1xyz\\x00\\x00!|"),
            ("SETRANGE new 0 \"\"", ":0|"),
            ("SETRANGE new 2 a", ":3|"),
            ("GET new", "$3|\\x00\\x00a|"),
            ("SETRANGE a -1 a", "-ERR offset is out of range|"),
            ("SETRANGE a x a", "-ERR value is not an integer or out of range|"),
            ("SETRANGE a 536870912 a", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|"),
            (
                "SETRANGE a 9223372036854775807 a",
                "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|",
            ),
            ("SETRANGE a 536870912 \"\"", ":7|"),
        ]);
    }

    #[test]
    fn expiry_survives_a_change_in_place() {
        let mut db = Harness::new();
        assert_eq!(db.line("SET a 1 PX 10"), "+OK|");
        assert_eq!(db.line("APPEND a 2"), ":2|");
        assert_eq!(db.line("SETRANGE a 100 2"), ":101|");
        db.now_ms += 11;
        assert_eq!(db.line("GET a"), "$-1|");
    }

    #[test]
    fn a_string_longer_than_allowed_is_refused() {
        let mut db = Harness::new();
        db.limits.string_len_bytes_max = 5;
        assert_eq!(db.line("SET a 1234"), "+OK|");
        assert_eq!(db.line("APPEND a 5"), ":5|");
        let refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|";
        assert_eq!(db.line("APPEND a 6"), refused);
        assert_eq!(db.line("SETRANGE a 5 6"), refused);
        assert_eq!(db.line("SETRANGE a 4 6"), ":5|");
        assert_eq!(db.line("GET a"), "$5|12346|");
    }

    /// Compares strings that grow in steps, in all encodings, with a plain vector.
    #[test]
    fn growing_in_steps_gives_the_same_as_at_once() {
        let mut db = Harness::new();
        let mut twin = Vec::new();
        for step in 1..800_usize {
            let part = vec![b'a' + (step % 26) as u8; step % 97];
            if step % 3 == 0 {
                let offset = step * 61 % (twin.len() + 50);
                db.run_bytes(&[b"SETRANGE", b"a", offset.to_string().as_bytes(), &part]);
                if !part.is_empty() {
                    twin.resize(twin.len().max(offset + part.len()), 0);
                    twin[offset..offset + part.len()].copy_from_slice(&part);
                }
            } else {
                db.run_bytes(&[b"APPEND", b"a", &part]);
                twin.extend_from_slice(&part);
            }
            let reply = db.run_bytes(&[b"GET", b"a"]);
            assert_eq!(reply, [format!("${}\r\n", twin.len()).as_bytes(), &twin, b"\r\n"].concat());
        }
        let reply = db.run_bytes(&[b"GETRANGE", b"a", b"17", b"17000"]);
        assert_eq!(reply, [b"$16984\r\n", &twin[17..=17_000], b"\r\n"].concat());
    }

    #[test]
    fn getrange_counts_from_either_end() {
        check(&[
            ("SET a hello", "+OK|"),
            ("GETRANGE a 1 3", "$3|ell|"),
            ("SUBSTR a -3 -1", "$3|llo|"),
            ("GETRANGE a 0 x", "-ERR value is not an integer or out of range|"),
            ("GETRANGE nokey 0 1", "$0||"),
            ("SET a -123", "+OK|"),
            ("GETRANGE a 0 1", "$2|-1|"),
        ]);
        for (start, end, part) in [
            (0, -1, 0..5),
            (0, 100, 0..5),
            (-100, 2, 0..3),
            (-100, -100, 0..1),
            (-1, -3, 0..0),
            (3, 1, 0..0),
            (5, 9, 0..0),
            (i64::MIN, i64::MAX, 0..5),
            (i64::MAX, i64::MIN, 0..0),
        ] {
            assert_eq!(clamp(start, end, 5), part, "{start} {end}");
            assert_eq!(clamp(start, end, 0), 0..0);
        }
    }
}
