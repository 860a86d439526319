//! The results of reading an append-only file to its end: complete, torn, or an error.

use std::fmt;

use resp::ProtocolError;

use crate::folder::FileError;

/// An error in an append-only file, with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AofError {
    /// The file has bytes that are not a request, or MULTI or EXEC where it is not permitted.
    Broken(Broken),
    /// The append-only file cannot be read: an error of the operating system.
    Reading(FileError),
}

/// The position and kind of an error in an append-only file: bytes that are not a request, or MULTI
/// or EXEC where it is not permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The start of the wrong request in the file, in bytes.
    pub offset: u64,
    /// The length of the complete requests and transactions at the beginning of the file, in bytes.
    /// [`Reader`](super::reader::Reader) returned all of them before the error.
    pub good_len_bytes: u64,
    /// The kind of the error in the append-only file.
    pub what: What,
}

/// The kinds of errors of a request in an append-only file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The request of the append-only file begins with this byte instead of `*`.
    FirstByte(u8),
    /// The request of the append-only file has no arguments, not even a command name.
    NoArguments,
    /// A number of arguments or a length of an argument is invalid.
    Protocol(ProtocolError),
    /// CR LF is missing after a count, a length or an argument.
    LineEnd,
    /// An annotation, a line of the append-only file that begins with `#`, is too long.
    LongAnnotation,
    /// There is a MULTI inside a transaction.
    NestedMulti,
    /// There is an EXEC outside a transaction.
    ExecWithoutMulti,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::FirstByte(byte) => {
                write!(f, "a command must begin with '*' but begins with '{}'", byte.escape_ascii())
            }
            What::NoArguments => f.write_str("a command without a name"),
            What::Protocol(ProtocolError::ExpectedDollar(byte)) => {
                write!(f, "an argument must begin with '$' but begins with '{}'", byte.escape_ascii())
            }
            What::Protocol(ProtocolError::InvalidBulkLength | ProtocolError::TooBigBulkCount) => f.write_str(
                "the length of an argument is not a number, or the arguments together exceed 4 GiB",
            ),
            What::Protocol(_) => f.write_str("the argument count of a command is not a number"),
            What::LineEnd => f.write_str("a line or an argument does not end with CR LF"),
            What::LongAnnotation => f.write_str("a line with '#' is too long"),
            What::NestedMulti => f.write_str("MULTI within a transaction"),
            What::ExecWithoutMulti => f.write_str("EXEC without MULTI"),
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, at byte {}", self.what, self.offset)
    }
}

impl fmt::Display for AofError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AofError::Broken(broken) => write!(f, "{broken}"),
            AofError::Reading(trouble) => write!(f, "the file cannot be read: {trouble}"),
        }
    }
}

impl std::error::Error for AofError {}

/// The way in which an append-only file ends: after a complete request or transaction, or inside
/// one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The file ends after a complete request or transaction.
    Whole,
    /// The file ends inside a request, a transaction or an annotation.
    TornTail(TornTail),
}

/// The description of an append-only file that ends inside a request or transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The length of the complete requests and transactions at the beginning of the file, in bytes.
    /// The reader returned all of them before the end.
    pub good_len_bytes: u64,
    /// The length of the whole file, in bytes, with the incomplete request or transaction.
    pub file_len_bytes: u64,
    /// The offset of the MULTI whose EXEC is missing; `None` if the file does not end inside a
    /// transaction.
    pub multi_offset: Option<u64>,
    /// The offset, inside the incomplete last request, of bytes that look like a complete request.
    /// Such bytes suggest that a length of the last request is damaged: then the bytes to cut off
    /// are valid requests. An argument that contains the text of a request looks the same.
    pub request_within: Option<u64>,
    /// The start of the zeros at the end of the file, if the rest of the file ends correctly or
    /// inside a request or transaction; `None` without such zeros. The file system had extended the
    /// file, but not yet written its bytes, when the power failed.
    pub zeros_offset: Option<u64>,
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost_bytes = self.file_len_bytes - self.good_len_bytes;
        write!(f, "the last {lost_bytes} bytes, from byte {} on, are ", self.good_len_bytes)?;
        match (self.multi_offset, self.zeros_offset) {
            (None, Some(zeros)) if zeros == self.good_len_bytes => {
                return f.write_str("zeros, as usual after a power failure");
            }
            (Some(_), _) => f.write_str("a transaction without its EXEC")?,
            (None, _) => f.write_str("an incomplete request")?,
        }
        match self.zeros_offset {
            Some(zeros) => {
                write!(f, ", and the bytes from {zeros} on are zeros, as usual after a power failure")
            }
            None => Ok(()),
        }
    }
}
