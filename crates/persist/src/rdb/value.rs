//! Reading and writing of values of any type in the RDB format, by the number of the type.

use keyspace::{Blob, Object};
use structures::entry::{INLINE_BYTES_MAX, View};

use super::error::{FormatError, FormatErrorKind};
use super::hash::Deadlines;
use super::rules::Rules;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::templates::Templates;
use super::value_type::ValueType;
use super::ziplist::TooLong;
use super::{array, hash, list, set, stream, vectorset, zset};

/// A key's value that was read from a file or payload in the RDB format.
#[derive(Debug)]
pub enum Value {
    /// A short string, which the keyspace stores together with its key. Its bytes may be the text
    /// of a number.
    Short(Vec<u8>),
    /// Any other value: a long string or a collection.
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

/// Reads a value of the RDB type `kind`. O(bytes), O(n log n) for packed values.
///
/// # Errors
/// If the bytes are not a value of this type, or are an empty collection.
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
        HashTemplateListpack => Object::Hash(hash::read_template_listpack(reader, rules)?),
        HashTemplateArray => Object::Hash(hash::read_template_array(reader, rules)?),
        VectorSet => Object::Vector(Box::new(vectorset::read(reader, rules)?)),
        Array => Object::Array(Box::new(array::read(reader)?)),
        // The shared names are only in files.
        HashTemplateListpackRef | HashTemplateArrayRef => {
            return Err(reader.error(FormatErrorKind::UnknownType(kind.number())));
        }
        StreamListpacks | StreamListpacks2 | StreamListpacks3 | StreamListpacks4 | StreamListpacks5 => {
            Object::Stream(Box::new(stream::read(kind, reader, rules)?))
        }
    };
    if object.element_count() == 0 && !matches!(object, Object::Stream(_)) {
        return Err(reader.error(FormatErrorKind::Empty));
    }
    Ok(Value::Object(object))
}

/// Reads a value as [`read_value`] does. A hash may refer to shared field names of its file,
/// `templates`.
pub(crate) fn read_value_in_file<S: Source>(
    kind: ValueType,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
    templates: &Templates,
) -> Result<Value, FormatError> {
    let hash = match kind {
        ValueType::HashTemplateListpackRef => hash::read_template_listpack_ref(reader, rules, templates)?,
        ValueType::HashTemplateArrayRef => hash::read_template_array_ref(reader, rules, templates)?,
        _ => return read_value(kind, reader, rules),
    };
    Ok(Value::Object(Object::Hash(hash)))
}

/// Writes a key's value as the RDB type `kind`, which must be the type that
/// [`FileVersion::type_of`](super::FileVersion::type_of) returns. O(bytes).
///
/// # Errors
/// If the type cannot hold the value. The bytes already written are then not a value.
pub fn write_value<S: Sink>(
    kind: ValueType,
    writer: &mut Writer<S>,
    value: &View<'_, Object>,
) -> Result<(), TooLong> {
    match value {
        View::Bytes(bytes) => writer.string(bytes),
        View::Int(number) => writer.integer(*number),
        View::Object(Object::Blob(blob)) => writer.string(blob),
        View::Object(Object::List(list)) => return list::write(kind, writer, list),
        View::Object(Object::Set(set)) => set::write(kind, writer, set),
        View::Object(Object::Hash(hash)) => hash::write(kind, writer, hash),
        View::Object(Object::Zset(zset)) => zset::write(kind, writer, zset),
        View::Object(Object::Stream(stream)) => stream::write(kind, writer, stream),
        View::Object(Object::Vector(set)) => vectorset::write(writer, set),
        View::Object(Object::Array(array)) => array::write(writer, array),
    }
    Ok(())
}
