//! The errors of commands: a closed list of causes. Only [`CommandError::line`] knows their texts.

use std::borrow::Cow;

use keyspace::{AccessError, ShardBusy};
use structures::hll::{Corrupted, NotHll};

/// The cause of an error reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CommandError {
    /// The key holds a value of a type that the command does not accept.
    WrongType,
    /// The command used a key that its record in the command table does not declare, which is a
    /// defect of the server.
    UndeclaredKey,
    /// A script that runs too long holds a lock that the command needs. The engine replaces this
    /// error with its own, because only the engine knows if the script is a function.
    Busy,
    /// The string at the key is not a HyperLogLog.
    NotHll,
    /// The string at the key is a HyperLogLog with corrupt registers.
    CorruptedHll,
    /// The arguments do not match the syntax of the command.
    Syntax,
    /// An argument or stored string is not a 64-bit integer.
    NotAnInteger,
    /// An argument or stored string is not a float.
    NotAFloat,
    /// An argument is outside its range. Holds the name of the argument for the error text.
    OutOfRange(&'static str),
    /// The result of INCR or a similar command would exceed 64 bits.
    IncrementOverflow,
    /// The result of INCRBYFLOAT would be NaN or infinity.
    IncrementNotFinite,
    /// A key that must exist is missing (RENAME, LSET).
    NoSuchKey,
    /// The list index is out of range (LSET).
    IndexOutOfRange,
    /// The command does not take this number of arguments. Holds the command's name in lower case.
    WrongArity(&'static str),
    /// The subcommand does not take this number of arguments. Holds the container and the
    /// subcommand in lower case.
    WrongSubcommandArity(&'static str, &'static str),
    /// The subcommand is unknown. Holds the word that the client sent and the container's name in
    /// upper case.
    UnknownSubcommand(Vec<u8>, &'static str),
    /// The expiry argument is invalid. Holds the command's name in lower case.
    InvalidExpire(&'static str),
    /// No database has the number that the command names.
    DbIndexOutOfRange,
    /// The source and the destination of a command are the same.
    SameObject,
    /// A string would become longer than the option `proto-max-bulk-len` permits.
    StringTooLong,
    /// The byte offset in a string is negative.
    OffsetOutOfRange,
    /// The bit offset in a string is not a number, or is beyond the longest string.
    BitOffset,
    /// An argument must be positive but is not. Holds the argument's name.
    MustBePositive(&'static str),
    /// The new score of a member would be NaN.
    ScoreNotANumber,
    /// The whole error line, in Redis' wording and with its error code, for errors that only one
    /// command uses.
    Line(&'static str),
    /// The whole error line, with parts that are known only at run time.
    Text(String),
    /// The whole error line, with bytes that the client sent: see [`CommandError::quoting`].
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

/// Returns the part of `argument` that errors quote: its bytes up to the first NUL, where a C
/// string ends.
pub fn quotable(argument: &[u8]) -> &[u8] {
    argument.split(|&byte| byte == 0).next().unwrap_or_default()
}

impl CommandError {
    /// Returns an error with the line `before`, `argument`, `after`. The argument may hold any
    /// bytes and is cut at its first NUL.
    pub fn quoting(before: &str, argument: &[u8], after: &str) -> Self {
        CommandError::Bytes([before.as_bytes(), quotable(argument), after.as_bytes()].concat())
    }

    /// Returns the line sent to the client, without its leading `-`.
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
