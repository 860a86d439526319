//! Why a command fails: a closed list of causes. Only [`CommandError::line`] knows the words.

use std::borrow::Cow;

use keyspace::{AccessError, ShardBusy};
use structures::hll::{Corrupted, NotHll};

/// The cause of an error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The key holds another type.
    WrongType,
    /// The command asked for a key that its record does not declare: a defect of the server.
    UndeclaredKey,
    /// A script has run for too long, and holds what the command needs. The engine, which knows
    /// whether it is a function, says so in its stead.
    Busy,
    /// The string at the key is no HyperLogLog.
    NotHll,
    /// The string at the key is a HyperLogLog whose registers are broken.
    CorruptedHll,
    /// Arguments do not fit the syntax.
    Syntax,
    /// An argument or stored string is not a 64-bit integer.
    NotAnInteger,
    /// An argument or stored string is not a float.
    NotAFloat,
    /// An argument that must be in a range is not; the text names it.
    OutOfRange(&'static str),
    /// INCR and friends would leave the 64-bit range.
    IncrementOverflow,
    /// INCRBYFLOAT would give NaN or infinity.
    IncrementNotFinite,
    /// The key must exist (RENAME, LSET).
    NoSuchKey,
    /// A list index out of range (LSET).
    IndexOutOfRange,
    /// A number of arguments the command does not take.
    WrongArity(&'static str),
    /// A number of arguments a subcommand does not take: container and subcommand, lower case.
    WrongSubcommandArity(&'static str, &'static str),
    /// An unknown subcommand: what was asked and the container's name, upper case.
    UnknownSubcommand(Vec<u8>, &'static str),
    /// An expiry argument that cannot be: names the command, lower case.
    InvalidExpire(&'static str),
    /// A database number that does not exist.
    DbIndexOutOfRange,
    /// Source and destination are the same.
    SameObject,
    /// A string would exceed `proto-max-bulk-len`.
    StringTooLong,
    /// A byte offset that cannot be.
    OffsetOutOfRange,
    /// A bit offset that is no number or beyond the longest string.
    BitOffset,
    /// An argument that must be positive is not.
    MustBePositive(&'static str),
    /// NaN would be a score.
    ScoreNotANumber,
    /// A whole line of Redis' wording that only this command uses, its error code included.
    Line(&'static str),
    /// The same with parts known at run time.
    Text(String),
    /// The same, quoting what a client sent: see [`CommandError::quoting`].
    Bytes(Vec<u8>),
}

impl From<AccessError> for CommandError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::WrongType => CommandError::WrongType,
            AccessError::Undeclared => CommandError::UndeclaredKey,
        }
    }
}

impl From<ShardBusy> for CommandError {
    fn from(_: ShardBusy) -> Self {
        CommandError::Busy
    }
}

impl From<NotHll> for CommandError {
    fn from(_: NotHll) -> Self {
        CommandError::NotHll
    }
}

impl From<Corrupted> for CommandError {
    fn from(_: Corrupted) -> Self {
        CommandError::CorruptedHll
    }
}

/// What an error quotes of `argument`: its bytes as they are, up to a NUL, where C's strings end.
pub fn quotable(argument: &[u8]) -> &[u8] {
    argument.split(|&byte| byte == 0).next().unwrap_or_default()
}

impl CommandError {
    /// The line `before`, `argument`, `after`, whatever bytes the argument holds.
    pub fn quoting(before: &str, argument: &[u8], after: &str) -> Self {
        CommandError::Bytes([before.as_bytes(), quotable(argument), after.as_bytes()].concat())
    }

    /// The line sent to the client, without its leading `-`.
    pub fn line(&self) -> Cow<'static, [u8]> {
        let owned = |text: String| Cow::Owned(text.into_bytes());
        let text: &'static str = match self {
            CommandError::WrongType => "WRONGTYPE Operation against a key holding the wrong kind of value",
            CommandError::UndeclaredKey => {
                "ERR internal error: the command used a key that it does not declare, please report this request"
            }
            CommandError::Busy => {
                "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."
            }
            CommandError::NotHll => "WRONGTYPE Key is not a valid HyperLogLog string value.",
            CommandError::CorruptedHll => "INVALIDOBJ Corrupted HLL object detected",
            CommandError::Syntax => "ERR syntax error",
            CommandError::NotAnInteger => "ERR value is not an integer or out of range",
            CommandError::NotAFloat => "ERR value is not a valid float",
            CommandError::IncrementOverflow => "ERR increment or decrement would overflow",
            CommandError::IncrementNotFinite => "ERR increment would produce NaN or Infinity",
            CommandError::NoSuchKey => "ERR no such key",
            CommandError::IndexOutOfRange => "ERR index out of range",
            CommandError::DbIndexOutOfRange => "ERR DB index is out of range",
            CommandError::SameObject => "ERR source and destination objects are the same",
            CommandError::StringTooLong => "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            CommandError::OffsetOutOfRange => "ERR offset is out of range",
            CommandError::BitOffset => "ERR bit offset is not an integer or out of range",
            CommandError::ScoreNotANumber => "ERR resulting score is not a number (NaN)",
            CommandError::Line(line) => line,
            CommandError::OutOfRange(what) => return owned(format!("ERR {what} is out of range")),
            CommandError::MustBePositive(what) => return owned(format!("ERR {what} must be positive")),
            CommandError::InvalidExpire(command) => {
                return owned(format!("ERR invalid expire time in '{command}' command"));
            }
            CommandError::WrongArity(command) => {
                return owned(format!("ERR wrong number of arguments for '{command}' command"));
            }
            CommandError::WrongSubcommandArity(container, sub) => {
                return owned(format!("ERR wrong number of arguments for '{container}|{sub}' command"));
            }
            CommandError::UnknownSubcommand(asked, container) => {
                let asked = quotable(&asked[..asked.len().min(128)]);
                let after = format!("'. Try {container} HELP.");
                return Cow::Owned([b"ERR unknown subcommand '", asked, after.as_bytes()].concat());
            }
            CommandError::Text(text) => return owned(text.clone()),
            CommandError::Bytes(line) => return Cow::Owned(line.clone()),
        };
        Cow::Borrowed(text.as_bytes())
    }
}
