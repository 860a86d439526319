//! The wait of blocking commands (BLPOP and others): the value that a handler returns when it finds
//! no data.
//!
//! Such a handler tries once. If it finds no data, it calls
//! [`Ctx::block_or_reply_empty`](crate::Ctx::block_or_reply_empty). A client that may wait is then
//! put into the queue of each key that it named, still under the locks of these keys. In a
//! transaction the client gets the empty reply at once.
//!
//! A write to one of the keys makes the same handler run the whole request again, under the locks
//! of all its keys. It replies with the data that it finds then: a transaction may have filled
//! several keys, or stored another type at one of them. It may also find no data again.

use keyspace::{Key, Object};
use resp::Reply;
use stdx::long_double::LongDouble;

use crate::args::Args;
use crate::error::CommandError;

/// The action of a command that finds no data to reply with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BlockingMode {
    /// The command writes its empty reply, and the client does not wait.
    #[default]
    Reply,
    /// The client is blocked until a key is ready or its timeout expires.
    Block,
    /// The client is already blocked and remains blocked.
    StayBlocked,
}

/// The reply of a blocking command that finds no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyReply {
    /// The reply is a null array (in RESP3 the same as any null).
    NullArray,
    /// The reply is a null if the client may not wait, and a null array after it waited until its
    /// timeout. For BLMOVE, as in Redis.
    NullUnlessWaited,
    /// The reply is the number 0: no replica has confirmed the changes (WAIT).
    Zero,
    /// The reply is twice the number 0: neither this server nor a replica has confirmed the changes
    /// (WAITAOF).
    TwoZeros,
}

impl EmptyReply {
    /// Writes the empty reply of a blocking command whose client may not wait.
    pub fn write_at_once(self, reply: &mut Reply<'_>) {
        match self {
            Self::NullUnlessWaited => reply.null(),
            Self::NullArray | Self::Zero | Self::TwoZeros => self.write_after_waiting(reply),
        }
    }

    /// Writes the empty reply of a client whose timeout expired.
    pub fn write_after_waiting(self, reply: &mut Reply<'_>) {
        match self {
            Self::NullArray | Self::NullUnlessWaited => reply.null_array(),
            Self::Zero => reply.integer(0),
            Self::TwoZeros => {
                reply.array(2);
                reply.integer(0);
                reply.integer(0);
            }
        }
    }
}

/// The type of value that a blocked client waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The client waits for a list, in BLPOP and similar commands.
    List,
    /// The client waits for a sorted set, in BZPOPMIN and similar commands.
    Zset,
    /// The client waits for entries of a stream, in XREAD.
    Stream,
    /// The client waits for entries of a stream for a consumer group, in XREADGROUP. The removal of
    /// the stream or the group ends the wait, too.
    Group,
}

impl Awaited {
    /// All types that clients can wait for, in the order of the enum.
    pub const ALL: [Self; 4] = [Self::List, Self::Zset, Self::Stream, Self::Group];

    /// Returns true if the request of a blocked client that waits for this type must run when the
    /// key holds `object`. `None` stands for a missing key, a number or a short string.
    pub fn is_satisfied_by(self, object: Option<&Object>) -> bool {
        match (self, object) {
            (Awaited::List, Some(Object::List(_)))
            | (Awaited::Zset, Some(Object::Zset(_)))
            | (Awaited::Stream, Some(Object::Stream(_)))
            | (Awaited::Group, _) => true,
            (Awaited::List | Awaited::Zset | Awaited::Stream, _) => false,
        }
    }
}

/// One key on which a client is blocked, with the type of value that the client waits for.
#[derive(Debug)]
pub struct BlockingKey {
    /// The name of the key on which the client is blocked.
    pub key: Box<[u8]>,
    /// The type of the value that the client waits for.
    pub awaited: Awaited,
}

impl BlockingKey {
    /// Creates the description of a key on which a client is blocked, and of the type that the
    /// client waits for.
    pub fn new(key: Key<'_>, awaited: Awaited) -> Self {
        Self { key: key.bytes.into(), awaited }
    }
}

/// The keys that a client is blocked on, and the request that runs when one of them is ready.
#[derive(Debug, Default)]
pub struct BlockFor {
    /// The keys on which the client is blocked. A ready key among them ends the wait.
    pub keys: Vec<BlockingKey>,
    /// The words of the request that runs when a key is ready; `None` for the request that the
    /// client sent.
    pub request: Option<Vec<Box<[u8]>>>,
}

impl From<Vec<BlockingKey>> for BlockFor {
    fn from(keys: Vec<BlockingKey>) -> Self {
        Self { keys, request: None }
    }
}

/// The timeout, the empty reply and the keys of a blocked client.
#[derive(Debug)]
pub struct Wait {
    /// The timeout of the blocked client in milliseconds; `None` is no timeout.
    pub timeout_ms: Option<u64>,
    /// The reply to the blocked client if the timeout expires.
    pub empty: EmptyReply,
    /// The keys that end the client's wait before the timeout, and the request that then runs.
    pub wait_for: BlockFor,
}

/// Parses the timeout of a blocking command in seconds, with fractions, and returns milliseconds.
/// Returns `None` for 0, which means no timeout.
pub fn timeout_seconds(args: &Args<'_>, index: usize) -> Result<Option<u64>, CommandError> {
    let text = args.get(index);
    let seconds = stdx::number::parse_f64(text)
        .or_else(|| beyond_f64(text))
        .ok_or(CommandError::Line("ERR timeout is not a float or out of range"))?;
    let ms = (seconds * 1000.0).ceil();
    if ms > i64::MAX as f64 {
        return Err(TIMEOUT_OUT_OF_RANGE);
    }
    timeout(ms as i64)
}

/// The longest timeout of a blocking command in milliseconds. The end of the wait must be a time
/// that fits into 64 bits. Redis adds the timeout to the present time; this constant leaves room
/// for any time before 2039.
const TIMEOUT_MS_MAX: i64 = i64::MAX - (1 << 41);
const TIMEOUT_OUT_OF_RANGE: CommandError = CommandError::Line("ERR timeout is out of range");

/// Returns an `f64` in place of a timeout that only Redis' wider floats can hold, or `None` if
/// `text` is not a number. A number that is too large becomes an infinity; one that is too small
/// becomes the smallest number of its sign.
#[cold]
fn beyond_f64(text: &[u8]) -> Option<f64> {
    let number = LongDouble::parse(text)?.to_f64();
    Some(if number == 0.0 { f64::MIN_POSITIVE.copysign(number) } else { number })
}

/// Parses the timeout of a blocking command in whole milliseconds. Returns `None` for 0, which
/// means no timeout.
pub fn timeout_ms(args: &Args<'_>, index: usize) -> Result<Option<u64>, CommandError> {
    let ms = stdx::number::parse_i64(args.get(index))
        .ok_or(CommandError::Line("ERR timeout is not an integer or out of range"))?;
    timeout(ms)
}

fn timeout(ms: i64) -> Result<Option<u64>, CommandError> {
    if ms > TIMEOUT_MS_MAX {
        return Err(TIMEOUT_OUT_OF_RANGE);
    }
    let ms = u64::try_from(ms).map_err(|_| CommandError::Line("ERR timeout is negative"))?;
    Ok((ms > 0).then_some(ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the error texts for invalid timeouts with those of Redis 8.0.2.
    #[test]
    fn issue_33_timeouts_that_only_wider_floats_hold_are_out_of_range() {
        let check = |text: &str, expected: Result<Option<u64>, &'static str>| {
            let spans = [resp::Span { start: 0, len: text.len() as u32 }];
            let hasher = keyspace::Hasher::with_seed([1, 2, 3, 4]);
            let args = Args::new(text.as_bytes(), &spans, &hasher);
            let found = timeout_seconds(&args, 0).map_err(|error| match error {
                CommandError::Line(line) => line,
                _ => "another error",
            });
            assert_eq!(found, expected, "{text}");
        };
        let (no_float, negative) = ("ERR timeout is not a float or out of range", "ERR timeout is negative");
        let ones = "1".repeat(400);
        for text in ["1e400", "inf", "1e308", "0x1p2000", "9223372036854775", "9223372036854776", &ones] {
            check(text, Err("ERR timeout is out of range"));
        }
        for text in ["-1e400", "-1e308", "-inf", "-1"] {
            check(text, Err(negative));
        }
        for text in ["nan", "1e5000", "1e-5000", "", " 1", "1 ", "abc", "1e"] {
            check(text, Err(no_float));
        }
        for text in ["0", "-0", "-0.0001", "-1e-400"] {
            check(text, Ok(None));
        }
        for text in ["1e-400", "0.0001", "1e-5"] {
            check(text, Ok(Some(1)));
        }
        check("1.5", Ok(Some(1500)));
        check("9223300000000000", Ok(Some(9_223_300_000_000_000_000)));
    }
}
