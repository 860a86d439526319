//! The errors of bytes in the RDB format.

use std::fmt;

use keyspace::PackDefect;
use structures::pack_error::PackErrorKind;

/// The bytes ended before all that were asked for were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended;

/// Why bytes are no value, and where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FormatError {
    /// Bytes read when it was noticed: behind a broken string, and within what was
    /// compressed not to the byte.
    pub file_offset: u64,
    /// The error.
    pub kind: FormatErrorKind,
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FormatErrorKind {
    /// The bytes end before the value does.
    Ended,
    /// No value has this type, or not in this version.
    UnknownType(u8),
    /// A length was expected and a string's encoding found, or bits of a length that mean nothing.
    BrokenLength,
    /// A string in no encoding there is.
    UnknownStringEncoding(u8),
    /// A string says that it is longer than strings may be.
    StringTooLong,
    /// A compressed string whose content does not have the length that it states.
    BrokenCompression,
    /// A listpack or intset is broken.
    Pack(PackErrorKind),
    /// A valid packed structure is not what its type asks for.
    Defect(PackDefect),
    /// A ziplist is broken.
    BrokenZiplist,
    /// A zipmap is broken.
    BrokenZipmap,
    /// A list's node is of no kind there is.
    UnknownNode,
    /// A list's node that is a string has none.
    EmptyNode,
    /// A member or field is there twice.
    Duplicate,
    /// A score is no number.
    Score,
    /// A collection without elements: it would not exist.
    Empty,
    /// A stream's node is broken, or what it says about itself is not so.
    BrokenStreamNode,
    /// A stream's figures cannot be those of its entries.
    BrokenStream,
    /// A stream's consumer group is there twice, or its consumers do not have
    /// what is pending in it.
    BrokenGroup,
    /// Something follows the value where nothing may.
    TrailingBytes,
    /// The time at which a hash's field expires cannot be one.
    FieldExpiry,
    /// A hash whose field names stand ahead has not as many values.
    BrokenTemplate,
    /// Field names that hashes share are none, out of order, or there twice.
    BrokenFieldNames,
    /// Field names that hashes share take more memory than they may.
    TooManyFieldNames,
    /// A command that stands among the keys is none.
    BrokenCommand,
    /// A hash refers to field names that do not stand ahead of it.
    UnknownFieldNames(u64),
}

impl From<PackDefect> for FormatErrorKind {
    fn from(defect: PackDefect) -> Self {
        FormatErrorKind::Defect(defect)
    }
}

impl From<Ended> for FormatErrorKind {
    fn from(_: Ended) -> Self {
        FormatErrorKind::Ended
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
            FormatErrorKind::Ended => "the bytes end within a value",
            FormatErrorKind::UnknownType(kind) => return write_unknown_type(f, *kind),
            FormatErrorKind::BrokenLength => "a broken length",
            FormatErrorKind::UnknownStringEncoding(encoding) => {
                return write!(f, "a string of unknown encoding {encoding}");
            }
            FormatErrorKind::StringTooLong => "a string that says it is too long",
            FormatErrorKind::BrokenCompression => "a broken compressed string",
            FormatErrorKind::Pack(kind) => return write!(f, "a broken packed structure ({kind:?})"),
            FormatErrorKind::Defect(defect) => return write!(f, "a packed structure in which {defect}"),
            FormatErrorKind::BrokenZiplist => "a broken ziplist, whose integrity check failed",
            FormatErrorKind::BrokenZipmap => "a broken zipmap",
            FormatErrorKind::EmptyNode => "a list node without bytes",
            FormatErrorKind::UnknownNode => "a list node of unknown kind",
            FormatErrorKind::Duplicate => "a member or field that is there twice",
            FormatErrorKind::Score => "a score that is no number",
            FormatErrorKind::Empty => "a collection without elements",
            FormatErrorKind::BrokenStreamNode => "a broken node of a stream",
            FormatErrorKind::BrokenStream => "a stream whose figures do not fit its entries",
            FormatErrorKind::BrokenGroup => "a broken consumer group of a stream",
            FormatErrorKind::TrailingBytes => "bytes behind the value",
            FormatErrorKind::FieldExpiry => "a field's expiry that is no time",
            FormatErrorKind::BrokenTemplate => "a hash with more field names than values, or fewer",
            FormatErrorKind::BrokenFieldNames => {
                "shared field names that are none, out of order, or there twice"
            }
            FormatErrorKind::TooManyFieldNames => "shared field names of more than 256 MiB",
            FormatErrorKind::BrokenCommand => "a broken command among the keys",
            FormatErrorKind::UnknownFieldNames(number) => {
                return write!(f, "a hash that refers to shared field names that are not there ({number})");
            }
        })
    }
}

/// Names the type, and who writes it, as far as known.
fn write_unknown_type(f: &mut fmt::Formatter<'_>, kind: u8) -> fmt::Result {
    let what = match kind {
        6 => "data of a module as release candidates of Redis 4.0 wrote it",
        7 => "data of a module: there are no modules",
        23 => "a path hash of Valkey 9.2",
        28 => "an array of Redis 8.8",
        30..=32 => "a hash of Redis 8.10 that shares its field names with others",
        33 => "a rate limiter of Redis 8",
        _ => return write!(f, "a value of unknown type {kind}"),
    };
    write!(f, "a value that cannot be loaded (type {kind}: {what})")
}

impl std::error::Error for FormatError {}
