//! The types of values in the RDB format, and their numbers.

use super::VALKEY_VERSION;

/// The type of a value in the RDB format. The discriminant is its number in the format, except for
/// [`HashValkey`](Self::HashValkey).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueType {
    /// A string, stored as one string of the RDB format.
    String = 0,
    /// A list whose elements are stored as separate strings, as Redis before 3.2 writes it.
    List = 1,
    /// A set whose members are stored as separate strings.
    Set = 2,
    /// A sorted set with scores as text, as Redis before 4 writes it.
    Zset = 3,
    /// A hash whose fields and values are stored as separate strings.
    Hash = 4,
    /// A sorted set, each member with its score as eight bytes.
    Zset2 = 5,
    /// A value of a module. The only module type whose values are read and written is the vector
    /// set of Redis 8.0 and later.
    VectorSet = 7,
    /// A hash in a zipmap, as Redis before 2.6 writes it.
    HashZipmap = 9,
    /// A list in a ziplist, as Redis before 3.2 writes it.
    ListZiplist = 10,
    /// A set of integers in an intset.
    SetIntset = 11,
    /// A sorted set in a ziplist, as Redis before 7 writes it.
    ZsetZiplist = 12,
    /// A hash in a ziplist, as Redis before 7 writes it.
    HashZiplist = 13,
    /// A list whose elements are in ziplists, as Redis before 7 writes it.
    ListQuicklist = 14,
    /// A stream as Redis 5 and 6 write it.
    StreamListpacks = 15,
    /// A hash in a listpack.
    HashListpack = 16,
    /// A sorted set in a listpack.
    ZsetListpack = 17,
    /// A list whose elements are in listpacks; long elements are stored as separate strings.
    ListQuicklist2 = 18,
    /// A stream as Redis 7.0 writes it.
    StreamListpacks2 = 19,
    /// A set in a listpack.
    SetListpack = 20,
    /// A stream as Redis 7.2 and later versions write it.
    StreamListpacks3 = 21,
    /// A hash whose fields expire, as release candidates of Redis 7.4 wrote it. The same number is
    /// another type in Valkey: see [`ValueType::HashValkey`].
    HashMetadataEarly = 22,
    /// A hash whose fields expire, in a listpack, as release candidates of Redis 7.4 wrote it.
    HashListpackExEarly = 23,
    /// A hash whose fields expire, of Redis 7.4 and later.
    HashMetadata = 24,
    /// A hash whose fields expire, in a listpack, of Redis 7.4 and later.
    HashListpackEx = 25,
    /// A stream of Redis 8.6, with data by which it recognizes messages that were already added.
    StreamListpacks4 = 26,
    /// A stream of Redis 8.8: as [`ValueType::StreamListpacks4`], and with the entries that
    /// consumers have returned to their group.
    StreamListpacks5 = 27,
    /// An array of Redis 8.8.
    Array = 28,
    /// A hash of Redis 8.10 with its field names first and its values in a listpack.
    HashTemplateListpack = 29,
    /// A hash of Redis 8.10 with its values in a listpack, and the number of a list of field names
    /// elsewhere in the file.
    HashTemplateListpackRef = 30,
    /// A hash of Redis 8.10 with its field names first, then its values one by one.
    HashTemplateArray = 31,
    /// A hash of Redis 8.10 with its values one by one, and the number of a list of field names
    /// elsewhere in the file.
    HashTemplateArrayRef = 32,
    /// A hash whose fields expire, as Valkey 9 writes it; its number there is 22.
    HashValkey = 0x80 | 22,
}

impl ValueType {
    /// Returns the name of the structure in which RDB values of this type are stored, as Redis
    /// calls it in error messages.
    pub fn structure_name(self) -> &'static str {
        match self {
            Self::HashZipmap => "Zipmap",
            Self::ListZiplist | Self::ListQuicklist => "Ziplist",
            Self::SetIntset => "Intset",
            Self::ZsetZiplist => "Zset ziplist",
            Self::HashZiplist => "Hash ziplist",
            Self::HashListpack | Self::HashListpackEx | Self::HashListpackExEarly => "Hash listpack",
            Self::ZsetListpack => "Zset listpack",
            Self::ListQuicklist2 => "List listpack",
            Self::SetListpack => "Set listpack",
            Self::StreamListpacks
            | Self::StreamListpacks2
            | Self::StreamListpacks3
            | Self::StreamListpacks4
            | Self::StreamListpacks5 => "Stream listpack",
            _ => "Value",
        }
    }

    /// Returns the RDB type with this number in `version` of the format. `None` if there is no such
    /// type or it is not supported.
    pub fn from_number(number: u8, version: u16) -> Option<Self> {
        use ValueType::*;
        const ALL: [ValueType; 31] = [
            String,
            List,
            Set,
            Zset,
            Hash,
            Zset2,
            VectorSet,
            HashZipmap,
            ListZiplist,
            SetIntset,
            ZsetZiplist,
            HashZiplist,
            ListQuicklist,
            StreamListpacks,
            HashListpack,
            ZsetListpack,
            ListQuicklist2,
            StreamListpacks2,
            SetListpack,
            StreamListpacks3,
            HashMetadataEarly,
            HashListpackExEarly,
            HashMetadata,
            HashListpackEx,
            StreamListpacks4,
            StreamListpacks5,
            Array,
            HashTemplateListpack,
            HashTemplateListpackRef,
            HashTemplateArray,
            HashTemplateArrayRef,
        ];
        if version >= VALKEY_VERSION && number > StreamListpacks3 as u8 {
            return (number == HashValkey.number()).then_some(HashValkey);
        }
        ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Returns the number with which the type is written in the RDB format.
    pub fn number(self) -> u8 {
        self as u8 & 0x7F
    }

    /// Returns the lowest version of the format in which both Redis and Valkey know the type, or,
    /// for vector sets and arrays, the version of Redis 8.0. A DUMP payload has this version, so
    /// that as many old servers as possible accept it.
    pub fn version(self) -> u16 {
        use ValueType::*;
        match self {
            HashValkey => VALKEY_VERSION,
            HashTemplateListpack | HashTemplateListpackRef | HashTemplateArray | HashTemplateArrayRef => 15,
            StreamListpacks5 => 14,
            StreamListpacks4 => 13,
            VectorSet | Array | HashMetadataEarly | HashListpackExEarly | HashMetadata | HashListpackEx => 12,
            SetListpack | StreamListpacks3 => 11,
            HashListpack | ZsetListpack | ListQuicklist2 | StreamListpacks2 => 10,
            StreamListpacks => 9,
            Zset2 => 8,
            _ => 6,
        }
    }
}
