//! The errors that are found while bytes are read in the RDB format.

use std::fmt;

use keyspace::PackDefect;
use structures::pack_error::PackErrorKind;
use structures::vector::ImageError;

use super::module_id::ModuleId;

/// The error of a source of RDB bytes that has fewer bytes left than required.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndOfInput;

/// The error for bytes that are not a value in RDB format, with its position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// The offset in the file at which the error was found, in bytes. For a broken string it is the
    /// string's end; inside compressed data it is inexact.
    pub file_offset: u64,
    /// The kind of the error in the RDB format.
    pub kind: FormatErrorKind,
}

/// The kinds of errors in a value of the RDB format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatErrorKind {
    /// The bytes end before the end of the value.
    EndOfInput,
    /// The number of the value's type is unknown, or does not exist in this version of the format.
    UnknownType(u8),
    /// There is a string encoding in place of a length, or the length has invalid bits.
    BrokenLength,
    /// The encoding of a string in the RDB format is unknown.
    UnknownStringEncoding(u8),
    /// The length of a string in the RDB format is above the limit.
    StringTooLong,
    /// The content of a compressed string does not have the stated length.
    BrokenCompression,
    /// A listpack or intset inside a value is broken.
    Pack(PackErrorKind),
    /// A packed structure is well-formed, but its elements do not fit the type of the value.
    Defect(PackDefect),
    /// A ziplist inside a value is broken.
    BrokenZiplist,
    /// A zipmap inside a value is broken.
    BrokenZipmap,
    /// A node of a list in the RDB format has an unknown kind.
    UnknownNode,
    /// A node of a list that is one string has an empty string.
    EmptyNode,
    /// A member of a set or sorted set, or a field of a hash, occurs twice.
    Duplicate,
    /// The score of a sorted set's member is not a number.
    Score,
    /// A collection has no elements. A server has no empty collections.
    Empty,
    /// A node of a stream is broken, or its counts are wrong.
    BrokenStreamNode,
    /// The counters or IDs of a stream do not fit its entries.
    BrokenStream,
    /// A consumer group occurs twice, or its pending entries are not the same as those of its
    /// consumers.
    BrokenGroup,
    /// There are more bytes after the end of the value.
    TrailingBytes,
    /// The expiry time of a hash's field is invalid.
    FieldExpiry,
    /// A hash has a different number of values than field names.
    BrokenTemplate,
    /// A list of field names that several hashes share is empty, out of order, or has a name twice;
    /// or its number is that of another list.
    BrokenFieldNames,
    /// Shared field names take more memory than one file may use.
    TooManyFieldNames,
    /// A command among the keys of the RDB file (Valkey writes such commands) is invalid.
    BrokenCommand,
    /// The items of a vector set in RDB format do not have the required layout, or are out of
    /// range.
    BrokenVectorSet,
    /// The index or the kind of an array's element is invalid.
    BrokenArray,
    /// A node of a vector set is invalid.
    BrokenVector(ImageError),
    /// The value belongs to a Redis module that is not supported.
    UnknownModule(ModuleId),
    /// A hash refers to shared field names that do not precede it in the RDB file.
    UnknownFieldNames(u64),
}

impl From<PackDefect> for FormatErrorKind {
    fn from(defect: PackDefect) -> Self {
        FormatErrorKind::Defect(defect)
    }
}

impl From<EndOfInput> for FormatErrorKind {
    fn from(_: EndOfInput) -> Self {
        FormatErrorKind::EndOfInput
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.kind, self.file_offset)
    }
}

impl fmt::Display for FormatErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FormatErrorKind::EndOfInput => "the data ends within a value",
            FormatErrorKind::UnknownType(kind) => return write_unknown_type(f, *kind),
            FormatErrorKind::BrokenLength => "a broken length",
            FormatErrorKind::UnknownStringEncoding(encoding) => {
                return write!(f, "a string of unknown encoding {encoding}");
            }
            FormatErrorKind::StringTooLong => "a string whose stated length exceeds the limit",
            FormatErrorKind::BrokenCompression => "a broken compressed string",
            FormatErrorKind::Pack(kind) => return write!(f, "a broken packed structure ({kind:?})"),
            FormatErrorKind::Defect(defect) => return write!(f, "a packed structure in which {defect}"),
            FormatErrorKind::BrokenZiplist => "a broken ziplist, whose integrity check failed",
            FormatErrorKind::BrokenZipmap => "a broken zipmap",
            FormatErrorKind::EmptyNode => "a list node without bytes",
            FormatErrorKind::UnknownNode => "a list node of unknown kind",
            FormatErrorKind::Duplicate => "a duplicate member or field",
            FormatErrorKind::Score => "a score that is not a number",
            FormatErrorKind::Empty => "a collection without elements",
            FormatErrorKind::BrokenStreamNode => "a broken node of a stream",
            FormatErrorKind::BrokenStream => "a stream whose metadata does not match its entries",
            FormatErrorKind::BrokenGroup => "a broken consumer group of a stream",
            FormatErrorKind::TrailingBytes => "extra bytes after the value",
            FormatErrorKind::FieldExpiry => "an invalid expiry of a field",
            FormatErrorKind::BrokenTemplate => "a hash with different numbers of field names and values",
            FormatErrorKind::BrokenFieldNames => "shared field names that are invalid, unsorted or duplicate",
            FormatErrorKind::TooManyFieldNames => "shared field names of more than 256 MiB",
            FormatErrorKind::BrokenCommand => "a broken command among the keys",
            FormatErrorKind::BrokenVectorSet => "a broken vector set",
            FormatErrorKind::BrokenArray => "a broken array",
            FormatErrorKind::BrokenVector(error) => return write!(f, "a broken vector set: {error}"),
            FormatErrorKind::UnknownModule(id) => {
                return write!(
                    f,
                    "a value that cannot be loaded (type 7: data of the module type '{id}', version {} of its \
                     format, which is not supported)",
                    id.version()
                );
            }
            FormatErrorKind::UnknownFieldNames(number) => {
                return write!(f, "a hash that refers to missing shared field names ({number})");
            }
        })
    }
}

/// Formats an unknown value type by its number, with the servers that write it, if known.
fn write_unknown_type(f: &mut fmt::Formatter<'_>, kind: u8) -> fmt::Result {
    let what = match kind {
        6 => "data of a module in the format of a Redis 4.0 release candidate",
        23 => "a path hash of Valkey 9.2",
        30..=32 => "a hash of Redis 8.10 that shares its field names with others",
        33 => "a rate limiter of Redis 8",
        _ => return write!(f, "a value of unknown type {kind}"),
    };
    write!(f, "a value that cannot be loaded (type {kind}: {what})")
}

impl std::error::Error for FormatError {}
