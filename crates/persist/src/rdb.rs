//! Reading and writing of values in Redis' RDB format, which is used in files, in DUMP payloads,
//! and for replicas.
//!
//! ```text
//!   length    00nnnnnn            6 bits            01nnnnnn n       14 bits
//!             10000000 n*4        32 bits           10000001 n*8     64 bits, highest byte first
//!             11eeeeee            no length: a string in encoding e follows
//!   string    length bytes  |  11000000 int8  11000001 int16  11000010 int32   lowest byte first
//!             11000011 length-compressed length-plain bytes        LZF ([`structures::lzf`])
//!   value     by its type's number, see [`ValueType`]:
//!     string                string
//!     list                  count, then for each node: 1 string | 2 listpack-in-a-string
//!     set, hash, sorted set a packed structure in a string, or count and the elements one by one
//!     stream                nodes in strings, then its figures and groups ([`stream`])
//!     vector set            the items of a module ([`vectorset`])
//! ```
//! The number of the [`ValueType`] precedes the value, in a file with the key between them. So the
//! caller reads and writes that number. Types of all versions are read; values are written in one
//! of the versions of [`FileVersion`].
//!
//! Reading checks everything on which the commands of a value rely: packed structures element by
//! element, order, duplicates, scores. Packed values over the limits of the configuration are
//! unpacked. Complexity: O(bytes); O(n log n) for packed values, in which duplicates are searched.
//! Source: the Redis and Valkey documentation of the format, and dumps of Redis 8.0.2 and Valkey
//! 8.1 and 9.1.

mod array;
mod error;
mod file_version;
mod groups;
mod hash;
mod list;
mod module_id;
mod record;
mod rules;
mod set;
mod sink;
mod skip;
mod source;
mod stream;
mod stream_id;
mod templates;
mod value;
mod value_type;
mod vectorset;
mod ziplist;
mod zset;

pub use error::{EndOfInput, FormatError, FormatErrorKind};
pub use file_version::FileVersion;
pub(crate) use hash::read_shared_names;
pub use module_id::ModuleId;
pub(crate) use record::opcode;
pub use record::{Encoder, Usage};
pub use rules::Rules;
pub use sink::{Compression, Sink, Writer};
pub(crate) use skip::{Skipper, Unskipped};
pub use source::{Reader, Source};
pub(crate) use templates::Templates;
pub(crate) use value::read_value_in_file;
pub use value::{Value, read_value, write_value};
pub use value_type::ValueType;
pub use ziplist::TooLong;

/// The newest version of Redis' format that is supported completely: that of Redis 8.0.
pub const REDIS_VERSION_MAX: u16 = 12;
/// The newest version of Redis' format of which files are read: that of Redis 8.10. Types of it
/// that are not supported are rejected individually.
pub const REDIS_VERSION_READ_MAX: u16 = 15;
/// The newest version of Valkey's own format of which files are read: that of Valkey 9.2.
pub const VALKEY_VERSION_MAX: u16 = 81;
/// The first version of Valkey's own format. It differs from Redis' format since fields of hashes
/// can expire in Valkey.
pub const VALKEY_VERSION: u16 = 80;

/// The maximum length of a string, in bytes, whatever the configuration allows. A string with a
/// greater length is rejected before any of it is read.
pub const STRING_LEN_BYTES_MAX: u64 = 1 << 40;

/// The accepted versions of the RDB format: `rdb-version-check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionCheck {
    /// Only those versions of the RDB format whose types are all known to this server.
    Strict,
    /// All versions of the RDB format. A newer version can only add types, and keys of unknown
    /// types are rejected.
    Relaxed,
}

impl VersionCheck {
    /// Returns true if files and payloads of this version of the RDB format are accepted.
    pub fn admits(self, version: u16) -> bool {
        self == VersionCheck::Relaxed || version <= REDIS_VERSION_MAX || version == VALKEY_VERSION
    }
}
