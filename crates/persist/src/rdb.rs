//! Values in Redis' RDB format, both ways: what stands in its files, in DUMP payloads, in
//! what a replica is sent.
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
//! ```
//! [`ValueType`]'s number stands before the value, in a file with the key between the two, so
//! reading and writing it is the caller's. Types of all versions are read; those written are in one
//! of the versions of [`FileVersion`].
//!
//! Reading checks all that the value's commands rely on: packed structures element by element,
//! order, duplicates, scores. What is packed beyond the limits of the configuration is unpacked.
//! Complexity: O(bytes), O(n log n) where duplicates are looked for in what is packed.
//! Source: the Redis and Valkey documentation of the format, and dumps of Redis 8.0.2
//! and Valkey 8.1 and 9.1.

mod error;
mod file_version;
mod groups;
mod hash;
mod list;
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
mod ziplist;
mod zset;

pub use error::{Ended, FormatError, FormatErrorKind};
pub use file_version::FileVersion;
pub(crate) use hash::read_shared_names;
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

/// The newest version of Redis' format that is read: that of Redis 8.0.
pub const REDIS_VERSION_MAX: u16 = 12;
/// The newest version of Redis' format of which files are read: that of Redis 8.10. What its types
/// hold that is not there is refused by itself.
pub const REDIS_VERSION_READ_MAX: u16 = 15;
/// The newest version of Valkey's own format of which files are read: that of Valkey 9.2.
pub const VALKEY_VERSION_MAX: u16 = 81;
/// The version of Valkey's own format, apart from Redis' since hash fields expire there.
pub const VALKEY_VERSION: u16 = 80;

/// Strings that say themselves that they are longer are refused before anything of them is read,
/// whatever the configuration allows.
pub const STRING_LEN_BYTES_MAX: u64 = 1 << 40;

/// The versions of the format that are read: `rdb-version-check`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionCheck {
    /// Versions whose types are all known.
    Strict,
    /// All. A later version differs, where it does, by new types, which are refused by themselves.
    Relaxed,
}

impl VersionCheck {
    /// Returns true if values of this version are read.
    pub fn admits(self, version: u16) -> bool {
        self == VersionCheck::Relaxed || version <= REDIS_VERSION_MAX || version == VALKEY_VERSION
    }
}
