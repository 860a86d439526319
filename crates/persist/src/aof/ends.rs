//! The ends of an append-only file for its reader: whole, torn, or with an error.

use std::fmt;

use resp::ProtocolError;

use crate::folder::Trouble;

/// An error in an append-only file, and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AofError {
    /// Bytes that are no request, or one at the wrong place.
    Broken(Broken),
    /// The file cannot be read.
    Reading(Trouble),
}

/// Bytes that are no request, or one at the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken {
    /// The start of the wrong request, in bytes.
    pub offset: u64,
    /// The length of the whole units at the beginning of the file. All of them were given out.
    pub good_len_bytes: u64,
    /// The error.
    pub what: What,
}

/// The errors of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It begins with this byte instead of `*`.
    FirstByte(u8),
    /// It has no arguments.
    NoArguments,
    /// A count or a length, or what should be one.
    Protocol(ProtocolError),
    /// No CR LF behind a count, a length or an argument.
    LineEnd,
    /// A line that begins with `#` and does not end.
    LongAnnotation,
    /// MULTI within a transaction.
    NestedMulti,
    /// EXEC outside a transaction.
    ExecWithoutMulti,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::FirstByte(byte) => {
                write!(f, "a command begins with '*', here stands '{}'", byte.escape_ascii())
            }
            What::NoArguments => f.write_str("a command without a name"),
            What::Protocol(ProtocolError::ExpectedDollar(byte)) => {
                write!(f, "an argument begins with '$', here stands '{}'", byte.escape_ascii())
            }
            What::Protocol(ProtocolError::InvalidBulkLength | ProtocolError::TooBigBulkCount) => {
                f.write_str("the length of an argument is no number, or over 4 GiB with those before it")
            }
            What::Protocol(_) => f.write_str("the number of a command's arguments is no number"),
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

/// The end of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Behind a whole unit.
    Whole,
    /// Within a unit, or within an annotation.
    TornTail(TornTail),
}

/// A file that ends within a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TornTail {
    /// The length of the whole units at the beginning of the file. All of them were given out.
    pub good_len_bytes: u64,
    /// The length of the file.
    pub file_len_bytes: u64,
    /// The place of the MULTI whose EXEC is missing.
    pub multi_offset: Option<u64>,
    /// The place of something that looks like a whole request within the last request, which is
    /// not whole. Then a length of it is probably damaged, and the part that would be cut off is
    /// good. An argument that is such a text itself looks the same.
    pub request_within: Option<u64>,
    /// The start of the zeros at the end of the file, if it is whole or torn without them: the
    /// file was longer than its written part when the power failed.
    pub zeros_offset: Option<u64>,
}

impl fmt::Display for TornTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost_bytes = self.file_len_bytes - self.good_len_bytes;
        write!(f, "the last {lost_bytes} bytes, from byte {} on, are ", self.good_len_bytes)?;
        match (self.multi_offset, self.zeros_offset) {
            (None, Some(zeros)) if zeros == self.good_len_bytes => {
                return f.write_str("zeros, as a power failure leaves them");
            }
            (Some(_), _) => f.write_str("a transaction whose EXEC is missing")?,
            (None, _) => f.write_str("a part of a request")?,
        }
        match self.zeros_offset {
            Some(zeros) => write!(f, ", and from byte {zeros} on zeros, as a power failure leaves them"),
            None => Ok(()),
        }
    }
}
