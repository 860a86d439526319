//! Commands that wait for their keys (BLPOP and its kin): what they tell the server
//! when there is nothing yet.
//!
//! Such a handler tries once. When it finds nothing it calls
//! [`Ctx::nothing_yet`](crate::Ctx::nothing_yet): a client that may wait is then put into the queue
//! of each key it named, still under the locks of those keys; a transaction gets the empty reply at
//! once. When one of the keys is written, the whole request runs again by the same handler, under
//! the locks of all of its keys: it replies with what there is by then (a transaction may have
//! filled several keys, or put something of another type into one), or says once more that there is
//! nothing.

use keyspace::{Key, Object};
use resp::Reply;

use crate::args::Args;
use crate::error::CommandError;

/// What a command does if it finds no data to reply with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum OnEmpty {
    /// It replies so.
    #[default]
    Reply,
    /// Its client waits.
    Block,
    /// Its client is blocked already and remains blocked.
    StayBlocked,
}

/// The reply after the timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmptyReply {
    /// A null array (which RESP3 writes like any null).
    NullArray,
    /// A null where the client may not wait, a null array after it waited:
    /// BLMOVE, in Redis as well.
    NullUnlessWaited,
    /// The number 0: no replica (WAIT).
    Zero,
    /// Twice the number 0: neither this server nor a replica (WAITAOF).
    TwoZeros,
}

impl EmptyReply {
    /// Writes the reply of a client that may not wait.
    pub fn write_at_once(self, reply: &mut Reply<'_>) {
        match self {
            Self::NullUnlessWaited => reply.null(),
            Self::NullArray | Self::Zero | Self::TwoZeros => self.write_after_waiting(reply),
        }
    }

    /// Writes the reply of a client that waited in vain.
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
    /// A list.
    List,
    /// A sorted set.
    Zset,
    /// A stream.
    Stream,
    /// A stream with a consumer group; the removal of either ends the wait, too.
    Group,
}

impl Awaited {
    /// All of them, in their order.
    pub const ALL: [Self; 4] = [Self::List, Self::Zset, Self::Stream, Self::Group];

    /// Whether a request that waits for this is to run now that the key holds `object` (`None`: no
    /// object).
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

/// One key that a client is blocked on.
#[derive(Debug)]
pub struct BlockingKey {
    /// The key.
    pub key: Box<[u8]>,
    /// What must be there.
    pub awaited: Awaited,
}

impl BlockingKey {
    /// A key with what must be there.
    pub fn new(key: Key<'_>, awaited: Awaited) -> Self {
        Self { key: key.bytes.into(), awaited }
    }
}

/// What ends a wait, and what runs then.
#[derive(Debug, Default)]
pub struct BlockFor {
    /// Any of these.
    pub keys: Vec<BlockingKey>,
    /// The words of the request that runs then; `None` for those that the client sent.
    pub request: Option<Vec<Box<[u8]>>>,
}

impl From<Vec<BlockingKey>> for BlockFor {
    fn from(keys: Vec<BlockingKey>) -> Self {
        Self { keys, request: None }
    }
}

/// Why and how long a client is blocked.
#[derive(Debug)]
pub struct Wait {
    /// After how many milliseconds it ends; `None`: never.
    pub timeout_ms: Option<u64>,
    /// The reply then.
    pub empty: EmptyReply,
    /// What ends it before.
    pub wait_for: BlockFor,
}

/// A timeout in seconds, with fractions, in milliseconds; `None` for 0, which is for ever.
pub fn timeout_seconds(args: &Args<'_>, index: usize) -> Result<Option<u64>, CommandError> {
    let seconds = stdx::number::parse_f64(args.get(index))
        .ok_or(CommandError::Line("ERR timeout is not a float or out of range"))?;
    let ms = (seconds * 1000.0).ceil();
    if ms > i64::MAX as f64 {
        return Err(CommandError::Line("ERR timeout is out of range"));
    }
    timeout(ms as i64)
}

/// A timeout in whole milliseconds; `None` for 0, which is for ever.
pub fn timeout_ms(args: &Args<'_>, index: usize) -> Result<Option<u64>, CommandError> {
    let ms = stdx::number::parse_i64(args.get(index))
        .ok_or(CommandError::Line("ERR timeout is not an integer or out of range"))?;
    timeout(ms)
}

fn timeout(ms: i64) -> Result<Option<u64>, CommandError> {
    let ms = u64::try_from(ms).map_err(|_| CommandError::Line("ERR timeout is negative"))?;
    Ok((ms > 0).then_some(ms))
}
