//! Commands on streams: the list of their records, the parsing of IDs, and the replies of entries.

mod group;
mod idempotent;
mod info;
mod nack;
mod pending;
mod read;
mod record;
mod remove;
mod write;

use keyspace::StreamId;
use keyspace::stream::{IdText, StreamEntry};
use resp::Reply;
use structures::listpack::element::Element;

use crate::args::Args;
use crate::error::{CommandError, quotable};
use crate::table::Command;

/// The command table's records of all stream commands.
pub static COMMANDS: &[&Command] = &[
    &write::XADD,
    &write::XTRIM,
    &remove::XDEL,
    &remove::XDELEX,
    &remove::XACKDEL,
    &write::XSETID,
    &idempotent::XCFGSET,
    &idempotent::XIDMPRECORD,
    &read::XLEN,
    &read::XRANGE,
    &read::XREVRANGE,
    &read::XREAD,
    &read::XREADGROUP,
    &group::XGROUP,
    &pending::XACK,
    &nack::XNACK,
    &pending::XPENDING,
    &pending::XCLAIM,
    &pending::XAUTOCLAIM,
    &info::XINFO,
];

const INVALID_ID: CommandError =
    CommandError::Line("ERR Invalid stream ID specified as stream command argument");

/// Returns the error for a missing stream or a missing consumer group. `after` is the end of the
/// error line.
fn no_key_or_group(key: &[u8], group: &[u8], after: &str) -> CommandError {
    let (key, group) = (quotable(key), quotable(group));
    let parts: [&[u8]; 6] =
        [b"NOGROUP No such key '", key, b"' or consumer group '", group, b"'", after.as_bytes()];
    CommandError::Bytes(parts.concat())
}

/// Returns the error for a stream at argument `key_at` without the consumer group named at argument
/// `group_at`.
fn no_group_of_key(args: &Args<'_>, group_at: usize, key_at: usize) -> CommandError {
    let (key, group) = (quotable(args.get(key_at)), quotable(args.get(group_at)));
    let parts: [&[u8]; 5] = [b"NOGROUP No such consumer group '", group, b"' for key name '", key, b"'"];
    CommandError::Bytes(parts.concat())
}

/// The maximum length of a stream ID's text in an argument, in bytes. Longer texts are rejected.
const ID_LEN_BYTES_MAX: usize = 127;

/// An ID argument in the form that the client sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum IdArgument {
    /// An argument `ms`: the milliseconds without a sequence number.
    Ms(u64),
    /// An argument `ms-seq`: a complete ID.
    Full(StreamId),
    /// An argument `ms-*`: the milliseconds, with a sequence number that the server chooses.
    AutoSeq(u64),
}

impl IdArgument {
    fn parse(text: &[u8]) -> Result<Self, CommandError> {
        if text.len() > ID_LEN_BYTES_MAX {
            return Err(INVALID_ID);
        }
        let parse = |text: &[u8]| parse_number(text).ok_or(INVALID_ID);
        match text.iter().position(|&byte| byte == b'-') {
            None => Ok(Self::Ms(parse(text)?)),
            Some(dash) => match &text[dash + 1..] {
                b"*" => Ok(Self::AutoSeq(parse(&text[..dash])?)),
                seq => Ok(Self::Full(StreamId { ms: parse(&text[..dash])?, seq: parse(seq)? })),
            },
        }
    }
}

/// Parses a stream ID; `-` and `+` are invalid. `seq_missing` replaces a missing sequence number.
fn parse_id(text: &[u8], seq_missing: u64) -> Result<StreamId, CommandError> {
    match IdArgument::parse(text)? {
        IdArgument::Ms(ms) => Ok(StreamId { ms, seq: seq_missing }),
        IdArgument::Full(id) => Ok(id),
        IdArgument::AutoSeq(_) => Err(INVALID_ID),
    }
}

/// Parses a stream ID; `-` is the lowest and `+` the highest ID. `seq_missing` replaces a missing
/// sequence number.
fn named_or_id(text: &[u8], seq_missing: u64) -> Result<StreamId, CommandError> {
    match text {
        b"-" => Ok(StreamId::MIN),
        b"+" => Ok(StreamId::MAX),
        _ => parse_id(text, seq_missing),
    }
}

/// Parses a number like C's `strtoull`, which Redis uses for the two numbers of a stream ID.
/// Leading space, a sign and leading zeros are allowed, and a minus sign subtracts from 2^64.
fn parse_number(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii_start();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let mut number = 0_u64;
    for &digit in digits {
        let digit = digit.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(digit.into())?;
    }
    Some(if negative { number.wrapping_neg() } else { number })
}

/// Writes a stream ID to the reply as a bulk string.
#[inline]
fn reply_id(reply: &mut Reply<'_>, id: StreamId) {
    reply.bulk(id.text(&mut IdText::new()));
}

/// Writes a stream entry to the reply: its ID, and an array in which fields and values alternate.
fn reply_entry(reply: &mut Reply<'_>, entry: StreamEntry<'_>) {
    reply.array(2);
    reply_id(reply, entry.id);
    reply.array(2 * entry.pairs.len());
    for (field, value) in entry.pairs {
        reply.bulk(field);
        match value {
            Element::Bytes(bytes) => reply.bulk(bytes),
            Element::Int(value) => reply.bulk_integer(value),
        }
    }
}

/// Writes an array of stream entries to the reply.
fn reply_entries<'e>(reply: &mut Reply<'_>, entries: impl Iterator<Item = StreamEntry<'e>>) {
    let begun = reply.begin_array();
    let mut count = 0;
    for entry in entries {
        reply_entry(reply, entry);
        count += 1;
    }
    reply.end_array(begun, count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_redis_reads_them() {
        let id = |ms, seq| Some(StreamId { ms, seq });
        for (text, expected) in [
            ("5", id(5, 9)),
            ("5-3", id(5, 3)),
            ("005-03", id(5, 3)),
            (" 5-+3", id(5, 3)),
            ("5--1", id(5, u64::MAX)),
            ("18446744073709551615-0", id(u64::MAX, 0)),
            ("18446744073709551616", None),
            ("5-", None),
            ("-5", None),
            ("-", None),
            ("+", None),
            ("", None),
            ("5-*", None),
            ("5-x", None),
            ("5-3 ", None),
            ("5-3-1", None),
        ] {
            assert_eq!(parse_id(text.as_bytes(), 9).ok(), expected, "{text:?}");
        }
        assert_eq!(IdArgument::parse(b"7-*"), Ok(IdArgument::AutoSeq(7)));
        assert!(parse_id(&[b'0'; ID_LEN_BYTES_MAX], 0).is_ok());
        assert!(parse_id(&[b'0'; ID_LEN_BYTES_MAX + 1], 0).is_err());
    }
}
