//! Types of values, and which code reads and writes each.

use keyspace::{Blob, Hasher, ListLimits, Object, PackLimits, SetLimits, StreamLimits};
use structures::entry::{INLINE_BYTES_MAX, View};
use structures::intset::Intset;
use structures::listpack::Listpack;

use super::error::{FormatError, FormatErrorKind};
use super::hash::Deadlines;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::{VALKEY_VERSION, VersionCheck, hash, list, set, stream, zset};

/// Numbers of the types in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ValueType {
    /// A string.
    String = 0,
    /// A list, one string an element. Before Redis 3.2.
    List = 1,
    /// A set, one string a member.
    Set = 2,
    /// A sorted set with scores as text. Before Redis 4.
    Zset = 3,
    /// A hash, two strings a field.
    Hash = 4,
    /// A sorted set, each member with its score as eight bytes.
    Zset2 = 5,
    /// A hash in a zipmap. Before Redis 2.6.
    HashZipmap = 9,
    /// A list in a ziplist. Before Redis 3.2.
    ListZiplist = 10,
    /// A set in an intset.
    SetIntset = 11,
    /// A sorted set in a ziplist. Before Redis 7.
    ZsetZiplist = 12,
    /// A hash in a ziplist. Before Redis 7.
    HashZiplist = 13,
    /// A list of ziplists. Before Redis 7.
    ListQuicklist = 14,
    /// A stream as Redis 5 and 6 write it.
    StreamListpacks = 15,
    /// A hash in a listpack.
    HashListpack = 16,
    /// A sorted set in a listpack.
    ZsetListpack = 17,
    /// A list of listpacks and long strings.
    ListQuicklist2 = 18,
    /// A stream with the figures of Redis 7.0.
    StreamListpacks2 = 19,
    /// A set in a listpack.
    SetListpack = 20,
    /// A stream with the figures of Redis 7.2.
    StreamListpacks3 = 21,
    /// A hash whose fields expire, as release candidates of Redis 7.4 wrote it. The same number is another
    /// type in Valkey: see [`ValueType::HashValkey`].
    HashMetadataEarly = 22,
    /// The same in a listpack.
    HashListpackExEarly = 23,
    /// A hash whose fields expire.
    HashMetadata = 24,
    /// A hash whose fields expire, in a listpack.
    HashListpackEx = 25,
    /// A hash whose fields expire, as Valkey 9 writes it: number 22 there.
    HashValkey = 0x80 | 22,
}

impl ValueType {
    /// The type that `number` means in `version` of the format; `None` where it is none or one that is not
    /// read (modules' types).
    pub fn from_number(number: u8, version: u16) -> Option<Self> {
        use ValueType::*;
        const ALL: [ValueType; 23] = [
            String,
            List,
            Set,
            Zset,
            Hash,
            Zset2,
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
        ];
        if version >= VALKEY_VERSION && number > StreamListpacks3 as u8 {
            return (number == HashValkey.number()).then_some(HashValkey);
        }
        ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// The number it is written with.
    pub fn number(self) -> u8 {
        self as u8 & 0x7F
    }

    /// The lowest version of the format in which all of Redis and Valkey know it: what a DUMP payload of it
    /// says, so that the oldest server that can does take it.
    pub fn version(self) -> u16 {
        use ValueType::*;
        match self {
            HashValkey => VALKEY_VERSION,
            HashMetadataEarly | HashListpackExEarly | HashMetadata | HashListpackEx => 12,
            SetListpack | StreamListpacks3 => 11,
            HashListpack | ZsetListpack | ListQuicklist2 | StreamListpacks2 => 10,
            StreamListpacks => 9,
            Zset2 => 8,
            _ => 6,
        }
    }

    /// The type in which a key's value is written.
    pub fn of(value: &View<'_, Object>) -> Self {
        match value {
            View::Bytes(_) | View::Int(_) | View::Object(Object::Blob(_)) => ValueType::String,
            View::Object(Object::List(_)) => ValueType::ListQuicklist2,
            View::Object(Object::Set(set)) => set::type_of(set),
            View::Object(Object::Hash(hash)) => hash::type_of(hash),
            View::Object(Object::Zset(zset)) => zset::type_of(zset),
            View::Object(Object::Stream(_)) => ValueType::StreamListpacks3,
        }
    }
}

/// What values that are read become.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// The hasher of the keyspace they go to.
    pub hasher: &'a Hasher,
    /// How lists are split.
    pub list: ListLimits,
    /// How large sets stay packed.
    pub set: SetLimits,
    /// How large hashes stay packed.
    pub hash: PackLimits,
    /// How large sorted sets stay packed.
    pub zset: PackLimits,
    /// How streams are split.
    pub stream: StreamLimits,
    /// The longest string.
    pub string_len_bytes_max: u64,
    /// Which versions are read.
    pub versions: VersionCheck,
}

/// A value that was read.
#[derive(Debug)]
pub enum Value {
    /// A string short enough to stand behind its key; its bytes may be a number's text.
    Short(Vec<u8>),
    /// Anything else.
    Object(Object),
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        if bytes.len() <= INLINE_BYTES_MAX {
            Value::Short(bytes)
        } else {
            Value::Object(Object::Blob(Blob::new(bytes)))
        }
    }
}

/// Reads a value of this type. O(bytes), O(n log n) for what is packed.
///
/// # Errors
/// What is not such a value, or would be an empty collection.
pub fn read_value<S: Source>(
    kind: ValueType,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Value, FormatError> {
    use ValueType::*;
    let object = match kind {
        String => return reader.string().map(Value::from),
        List => Object::List(list::read_elements(reader, rules)?),
        ListZiplist => Object::List(list::read_ziplists(1, reader, rules)?),
        ListQuicklist => {
            let count = reader.length()?;
            Object::List(list::read_ziplists(count, reader, rules)?)
        }
        ListQuicklist2 => Object::List(list::read_nodes(reader, rules)?),
        Set => Object::Set(set::read_members(reader, rules)?),
        SetIntset => Object::Set(set::read_intset(reader, rules)?),
        SetListpack => Object::Set(set::read_listpack(reader, rules)?),
        Hash => Object::Hash(hash::read_fields(reader, rules)?),
        HashZipmap => Object::Hash(hash::read_zipmap(reader, rules)?),
        HashZiplist => Object::Hash(hash::read_ziplist(reader, rules)?),
        HashListpack => Object::Hash(hash::read_listpack(reader, rules)?),
        HashMetadata => Object::Hash(hash::read_timed_fields(Deadlines::FromEarliest, reader, rules)?),
        HashMetadataEarly => Object::Hash(hash::read_timed_fields(Deadlines::Absolute, reader, rules)?),
        HashValkey => Object::Hash(hash::read_timed_fields(Deadlines::Behind, reader, rules)?),
        HashListpackEx => Object::Hash(hash::read_timed_listpack(Deadlines::FromEarliest, reader, rules)?),
        HashListpackExEarly => Object::Hash(hash::read_timed_listpack(Deadlines::Absolute, reader, rules)?),
        Zset => Object::Zset(zset::read_members(zset::Scores::Text, reader, rules)?),
        Zset2 => Object::Zset(zset::read_members(zset::Scores::Binary, reader, rules)?),
        ZsetZiplist => Object::Zset(zset::read_ziplist(reader, rules)?),
        ZsetListpack => Object::Zset(zset::read_listpack(reader, rules)?),
        StreamListpacks | StreamListpacks2 | StreamListpacks3 => {
            Object::Stream(Box::new(stream::read(kind, reader, rules)?))
        }
    };
    if object.element_count() == 0 && !matches!(object, Object::Stream(_)) {
        return Err(reader.error(FormatErrorKind::Empty));
    }
    Ok(Value::Object(object))
}

/// Writes a key's value, in the type that [`ValueType::of`] gives. O(bytes).
pub fn write_value<S: Sink>(writer: &mut Writer<S>, value: &View<'_, Object>) {
    match value {
        View::Bytes(bytes) => writer.string(bytes),
        View::Int(number) => writer.integer(*number),
        View::Object(Object::Blob(blob)) => writer.string(blob),
        View::Object(Object::List(list)) => list::write(writer, list),
        View::Object(Object::Set(set)) => set::write(writer, set),
        View::Object(Object::Hash(hash)) => hash::write(writer, hash),
        View::Object(Object::Zset(zset)) => zset::write(writer, zset),
        View::Object(Object::Stream(stream)) => stream::write(writer, stream),
    }
}

/// A listpack in a string, checked element by element.
pub(super) fn read_listpack<S: Source>(reader: &mut Reader<S>) -> Result<Listpack, FormatError> {
    let bytes = reader.string()?;
    Listpack::from_bytes(bytes.into()).map_err(|error| reader.error(FormatErrorKind::Pack(error.kind)))
}

/// An intset in a string, checked.
pub(super) fn read_intset<S: Source>(reader: &mut Reader<S>) -> Result<Intset, FormatError> {
    let bytes = reader.string()?;
    Intset::from_bytes(bytes.into()).map_err(|error| reader.error(FormatErrorKind::Pack(error.kind)))
}
