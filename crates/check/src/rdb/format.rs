//! Facts about the RDB format: its versions and the servers that load them, its types, and the
//! recognition of other formats.

use persist::rdb::{REDIS_VERSION_READ_MAX, VALKEY_VERSION, VALKEY_VERSION_MAX, ValueType};
use serde::Serialize;

use super::facts::Form;

/// The format of an RDB file, as its header shows it.
#[derive(Debug, Serialize)]
pub struct Format {
    /// The name at the start of the header: `REDIS` or `VALKEY`.
    pub magic: &'static str,
    /// The version number of the RDB format.
    pub version: u16,
    /// The servers that write this version of the RDB format, in words.
    pub written_by: &'static str,
}

impl Format {
    /// Returns the format with the version number `version`, and the servers that write it.
    pub(crate) fn of(version: u16) -> Self {
        let magic = if version >= VALKEY_VERSION { "VALKEY" } else { "REDIS" };
        let written_by = match version {
            0..=5 => "Redis 2.4 and older",
            6 => "Redis 2.6 to 3.0",
            7 => "Redis 3.2",
            8 => "Redis 4.0",
            9 => "Redis 5.0 to 6.2",
            10 => "Redis 7.0",
            11 => "Redis 7.2, Valkey 7.2 to 8.1",
            12 => "Redis 7.4 to 8.4",
            13 => "Redis 8.6",
            14 => "Redis 8.8",
            15 => "Redis 8.10",
            80 => "Valkey 9.0 and 9.1",
            81 => "Valkey 9.2",
            _ => "a server that is newer than this program",
        };
        Self { magic, version, written_by }
    }

    /// Returns the servers that load a good file of this version. A server accepts or refuses a
    /// version as a whole, whatever types the file contains, with two exceptions. Valkey accepts
    /// Redis' newer versions as long as the file contains no types that Valkey lacks. Vector sets
    /// need Redis 8.0, and arrays Redis 8.8.
    pub(crate) fn loaded_by(&self, foreign: ForeignTypes) -> Vec<&'static str> {
        let version = self.version;
        let redis = match version {
            0..=14 if foreign == ForeignTypes::Arrays => Some("Redis 8.8 and later"),
            0..=12 if foreign == ForeignTypes::VectorSets => Some("Redis 8.0 and later"),
            0..=6 => Some("Redis 2.6 and later"),
            7 => Some("Redis 3.2 and later"),
            8 => Some("Redis 4.0 and later"),
            9 => Some("Redis 5.0 and later"),
            10 => Some("Redis 7.0 and later"),
            11 => Some("Redis 7.2 and later"),
            12 => Some("Redis 7.4 and later"),
            13 => Some("Redis 8.6 and later"),
            14 => Some("Redis 8.8 and later"),
            15 => Some("Redis 8.10 and later"),
            _ => None,
        };
        let valkey = match version {
            _ if matches!(foreign, ForeignTypes::VectorSets | ForeignTypes::Arrays) => None,
            0..=11 => Some("Valkey 7.2 and later"),
            12..VALKEY_VERSION if foreign == ForeignTypes::None => {
                Some("Valkey 9.0 and later with rdb-version-check relaxed")
            }
            80 => Some("Valkey 9.0 and later"),
            81 => Some("Valkey 9.2 and later"),
            _ => None,
        };
        let is_known =
            version <= REDIS_VERSION_READ_MAX || (VALKEY_VERSION..=VALKEY_VERSION_MAX).contains(&version);
        [redis, valkey, is_known.then_some("Saker")].into_iter().flatten().collect()
    }
}

/// The presence of types in an RDB file that newer versions of Redis have but Valkey does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ForeignTypes {
    /// The file has no foreign types, at least among the good keys.
    None,
    /// The file has at least one foreign type, but no vector sets.
    Some,
    /// Vector sets, which no Valkey has, and no arrays.
    VectorSets,
    /// Arrays, which no Valkey has.
    Arrays,
}

impl Form {
    /// The form (type and encoding) of a value whose type is unknown.
    pub(crate) const UNKNOWN: Form = Form { kind: "unknown type", encoding: "" };
    /// The form of a module's value.
    pub(crate) const MODULE: Form = Form { kind: "module", encoding: "of the module" };

    /// Returns the type and the encoding of the form in words: `set, listpack`.
    pub(crate) fn words(self) -> String {
        let Form { kind, encoding } = self;
        if encoding.is_empty() || encoding == kind { kind.to_owned() } else { format!("{kind}, {encoding}") }
    }

    /// Returns true if the form is that of a vector set.
    pub(crate) fn is_vector_set(self) -> bool {
        self.encoding == VECTORS
    }

    /// Returns true for arrays.
    pub(crate) fn is_array(self) -> bool {
        self.encoding == ARRAY
    }

    /// Returns true if Valkey refuses this form in a file of Redis.
    pub(crate) fn is_foreign_to_valkey(self) -> bool {
        [FIELDS_EXPIRE, LISTPACK_EXPIRES, NEW_STREAM, NEWEST_STREAM, TEMPLATE].contains(&self.encoding)
    }
}

const FIELDS_EXPIRE: &str = "fields that expire";
const LISTPACK_EXPIRES: &str = "listpack of fields that expire";
const NEW_STREAM: &str = "Redis 8.6";
const NEWEST_STREAM: &str = "Redis 8.8";
const TEMPLATE: &str = "names ahead of values";
const VECTORS: &str = "vectorset";
const ARRAY: &str = "array";

/// Returns the form (type and encoding) in which a file stores values of the RDB type `kind`.
pub(crate) fn form_of(kind: ValueType) -> Form {
    use ValueType::*;
    let (kind, encoding) = match kind {
        String => ("string", "string"),
        List => ("list", "elements"),
        ListZiplist => ("list", "ziplist"),
        ListQuicklist => ("list", "quicklist of ziplists"),
        ListQuicklist2 => ("list", "quicklist"),
        Set => ("set", "members"),
        SetIntset => ("set", "intset"),
        SetListpack => ("set", "listpack"),
        Zset | Zset2 => ("zset", "members"),
        ZsetZiplist => ("zset", "ziplist"),
        ZsetListpack => ("zset", "listpack"),
        Hash => ("hash", "fields"),
        HashZipmap => ("hash", "zipmap"),
        HashZiplist => ("hash", "ziplist"),
        HashListpack => ("hash", "listpack"),
        HashMetadata | HashMetadataEarly => ("hash", FIELDS_EXPIRE),
        HashValkey => ("hash", "fields that expire (Valkey)"),
        HashListpackEx | HashListpackExEarly => ("hash", LISTPACK_EXPIRES),
        HashTemplateListpack | HashTemplateArray | HashTemplateListpackRef | HashTemplateArrayRef => {
            ("hash", TEMPLATE)
        }
        StreamListpacks => ("stream", "Redis 5.0"),
        StreamListpacks2 => ("stream", "Redis 7.0"),
        StreamListpacks3 => ("stream", "Redis 7.2"),
        StreamListpacks4 => ("stream", NEW_STREAM),
        StreamListpacks5 => ("stream", NEWEST_STREAM),
        VectorSet => ("vectorset", VECTORS),
        Array => ("array", ARRAY),
    };
    Form { kind, encoding }
}

/// Describes a file that is not an RDB file, judging by its first bytes: its format, if it is
/// known.
pub(crate) fn foreign(first_bytes: &[u8]) -> String {
    let what = match first_bytes {
        [] => return "the file is empty".to_owned(),
        [b'*', digit, ..] if digit.is_ascii_digit() => {
            "it begins as an append-only file of commands (try redis-check-aof)"
        }
        [b'V', b'C', b'S', ..] => {
            "it has the compression of Valkey 9.2 (rdbcompression lz4), but the unpacked data is not an RDB \
             file"
        }
        [0x1F, 0x8B, ..] => "it is compressed with gzip: unpack it first",
        [0x28, 0xB5, 0x2F, 0xFD, ..] => "it is compressed with zstd: unpack it first",
        [0xFD, b'7', b'z', b'X', b'Z', ..] => "it is compressed with xz: unpack it first",
        [b'R', b'E', b'D', b'I', b'S', ..] | [b'V', b'A', b'L', b'K', b'E', b'Y', ..] => {
            "its header is cut off or damaged"
        }
        _ if first_bytes.iter().all(|&byte| byte == 0) => {
            "it begins with zeros, as usual after a crash in which the disk lost data"
        }
        _ => "it does not begin with REDIS or VALKEY",
    };
    format!("not an RDB file: {what}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_that_load_a_version_are_named() {
        let check = |version, foreign, servers: &[&str]| {
            assert_eq!(Format::of(version).loaded_by(foreign), servers, "version {version}");
        };
        check(6, ForeignTypes::None, &["Redis 2.6 and later", "Valkey 7.2 and later", "Saker"]);
        check(11, ForeignTypes::None, &["Redis 7.2 and later", "Valkey 7.2 and later", "Saker"]);
        let relaxed = "Valkey 9.0 and later with rdb-version-check relaxed";
        check(12, ForeignTypes::None, &["Redis 7.4 and later", relaxed, "Saker"]);
        check(12, ForeignTypes::Some, &["Redis 7.4 and later", "Saker"]);
        check(12, ForeignTypes::VectorSets, &["Redis 8.0 and later", "Saker"]);
        check(13, ForeignTypes::VectorSets, &["Redis 8.6 and later", "Saker"]);
        check(12, ForeignTypes::Arrays, &["Redis 8.8 and later", "Saker"]);
        check(15, ForeignTypes::Arrays, &["Redis 8.10 and later", "Saker"]);
        check(80, ForeignTypes::None, &["Valkey 9.0 and later", "Saker"]);
        check(70, ForeignTypes::Some, &[]);
        check(200, ForeignTypes::None, &[]);
    }
}
