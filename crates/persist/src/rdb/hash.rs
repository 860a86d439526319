//! Hashes.

use keyspace::Hash;
use structures::listpack::element::IntText;

use super::error::{FormatError, FormatErrorKind};
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::value::{self, Rules, ValueType};
use super::ziplist::{Ziplist, Zipmap};

/// A hash that is filled field by field.
struct Filling<'r> {
    hash: Hash,
    rules: &'r Rules<'r>,
}

impl<'r> Filling<'r> {
    /// A hash that says to get `count` fields, which are not there yet.
    fn new(count: u64, rules: &'r Rules<'r>) -> Self {
        let mut hash = Hash::new();
        hash.expect(usize::try_from(count).unwrap_or(usize::MAX), &rules.hash, rules.hasher);
        Self { hash, rules }
    }

    fn add(&mut self, field: &[u8], value: &[u8]) -> Result<(), FormatErrorKind> {
        let new = self.hash.set(field, value, &self.rules.hash, self.rules.hasher);
        if new { Ok(()) } else { Err(FormatErrorKind::Duplicate) }
    }
}

/// Count, fields and values.
pub(super) fn read_fields<S: Source>(reader: &mut Reader<S>, rules: &Rules<'_>) -> Result<Hash, FormatError> {
    let count = reader.length()?;
    let mut filling = Filling::new(count, rules);
    for _ in 0..count {
        let field = reader.string()?;
        let value = reader.string()?;
        filling.add(&field, &value).map_err(|kind| reader.error(kind))?;
    }
    Ok(filling.hash)
}

/// A listpack of fields and values.
pub(super) fn read_listpack<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    let pack = value::read_listpack(reader)?;
    Hash::from_listpack(pack, &rules.hash, rules.hasher).map_err(|defect| reader.error(defect))
}

/// A ziplist of fields and values.
pub(super) fn read_ziplist<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    let bytes = reader.string()?;
    let mut filling = Filling::new(0, rules);
    let (mut field_text, mut value_text) = (IntText::new(), IntText::new());
    let result = Ziplist::new(&bytes).and_then(|ziplist| {
        ziplist.pairs().try_for_each(|pair| {
            let (field, value) = pair?;
            filling.add(field.text(&mut field_text), value.text(&mut value_text))
        })
    });
    result.map(|()| filling.hash).map_err(|kind| reader.error(kind))
}

/// A zipmap.
pub(super) fn read_zipmap<S: Source>(reader: &mut Reader<S>, rules: &Rules<'_>) -> Result<Hash, FormatError> {
    let bytes = reader.string()?;
    let mut filling = Filling::new(0, rules);
    let result = Zipmap::new(&bytes).and_then(|mut zipmap| {
        zipmap.try_for_each(|pair| {
            let (field, value) = pair?;
            filling.add(field, value)
        })
    });
    result.map(|()| filling.hash).map_err(|kind| reader.error(kind))
}

/// The type in which a hash is written.
pub(super) fn type_of(hash: &Hash) -> ValueType {
    if hash.as_listpack().is_some() { ValueType::HashListpack } else { ValueType::Hash }
}

/// Writes a hash in the type of [`type_of`].
pub(super) fn write<S: Sink>(writer: &mut Writer<S>, hash: &Hash) {
    if let Some(pack) = hash.as_listpack() {
        return writer.blob(pack.as_bytes());
    }
    writer.length(hash.len() as u64);
    hash.iter().for_each(|(field, value)| {
        writer.element(field);
        writer.element(value);
    });
}
