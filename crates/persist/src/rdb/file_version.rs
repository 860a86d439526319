//! The versions of the RDB format that can be written.

use super::value_type::ValueType;
use super::{VALKEY_VERSION, hash, set, zset};
use keyspace::Object;
use structures::entry::View;

/// A version of the RDB format that can be written. Versions differ only in the types of values;
/// everything else has been the same since version 9.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileVersion {
    /// Version 9 of the RDB format, which Redis 5.0 to 6.2 and all later servers read.
    Redis5,
    /// Version 10 of the RDB format, which Redis 7.0 and later and Valkey read.
    Redis7,
    /// Version 11 of the RDB format, which Redis 7.2 and later and Valkey read.
    Redis7Dot2,
    /// Version 12 of the RDB format, which Redis 7.4 and later read.
    Redis7Dot4,
    /// Version 80 of the RDB format, which Valkey 9.0 and later read.
    Valkey9,
}

impl FileVersion {
    /// Returns the number of this version of the RDB format, as files contain it.
    pub fn number(self) -> u16 {
        match self {
            FileVersion::Redis5 => 9,
            FileVersion::Redis7 => 10,
            FileVersion::Redis7Dot2 => 11,
            FileVersion::Redis7Dot4 => 12,
            FileVersion::Valkey9 => VALKEY_VERSION,
        }
    }

    /// Returns true if this version of the RDB format supports fields of hashes that expire.
    pub fn has_field_deadlines(self) -> bool {
        self >= FileVersion::Redis7Dot4
    }

    /// Returns true if servers that read this version of the RDB format may know vector sets: Redis
    /// 8.0 writes version 12. Valkey has no vector sets.
    pub fn has_vector_sets(self) -> bool {
        self == FileVersion::Redis7Dot4
    }

    /// Returns true if servers that read the version may know arrays: Redis 8.8 reads it and has
    /// them. Valkey has no arrays.
    pub fn has_arrays(self) -> bool {
        self == FileVersion::Redis7Dot4
    }

    /// Returns true if the version has libraries of functions.
    pub fn has_functions(self) -> bool {
        self >= FileVersion::Redis7
    }

    /// Returns true if this version of the RDB format has listpacks for hashes, sorted sets and
    /// lists.
    fn has_listpacks(self) -> bool {
        self >= FileVersion::Redis7
    }

    /// Returns the RDB type as which a value is written in this version. A hash whose fields expire
    /// gets a type of Redis 7.4 even if the version does not support such fields
    /// ([`has_field_deadlines`](Self::has_field_deadlines)). The same holds for vector sets
    /// ([`has_vector_sets`](Self::has_vector_sets)) and arrays. O(1); O(n) for such a hash.
    pub fn type_of(self, value: &View<'_, Object>) -> ValueType {
        match value {
            View::Bytes(_) | View::Int(_) | View::Object(Object::Blob(_)) => ValueType::String,
            View::Object(Object::List(_)) => self.list_type(),
            View::Object(Object::Set(set)) => match set::type_of(set) {
                ValueType::SetListpack if self < FileVersion::Redis7Dot2 => ValueType::Set,
                kind => kind,
            },
            View::Object(Object::Hash(hash)) => match hash::type_of(hash) {
                ValueType::HashListpack if !self.has_listpacks() => ValueType::Hash,
                ValueType::HashMetadata | ValueType::HashListpackEx if self == FileVersion::Valkey9 => {
                    ValueType::HashValkey
                }
                kind => kind,
            },
            View::Object(Object::Zset(zset)) => match zset::type_of(zset) {
                ValueType::ZsetListpack if !self.has_listpacks() => ValueType::Zset2,
                kind => kind,
            },
            View::Object(Object::Stream(_)) => self.stream_type(),
            View::Object(Object::Vector(_)) => ValueType::VectorSet,
            View::Object(Object::Array(_)) => ValueType::Array,
        }
    }

    /// Returns the RDB type as which this version of the format writes lists.
    pub(super) fn list_type(self) -> ValueType {
        if self.has_listpacks() { ValueType::ListQuicklist2 } else { ValueType::ListQuicklist }
    }

    /// Returns the RDB type as which this version of the format writes streams.
    pub(super) fn stream_type(self) -> ValueType {
        match self {
            FileVersion::Redis5 => ValueType::StreamListpacks,
            FileVersion::Redis7 => ValueType::StreamListpacks2,
            _ => ValueType::StreamListpacks3,
        }
    }

    /// Returns the RDB type as which this version of the format writes hashes whose fields expire,
    /// field by field.
    pub(super) fn timed_hash_type(self) -> ValueType {
        if self == FileVersion::Valkey9 { ValueType::HashValkey } else { ValueType::HashMetadata }
    }
}
