//! Hashes, with or without deadlines of their fields.
//!
//! ```text
//!   hash      field value …       count before, or all in a listpack
//!   deadlines, in Redis:          earliest i64 | count | then each:
//!                                 0, or deadline less the earliest plus 1 | field | value
//!                                 earliest i64 | listpack of field value deadline (0 for none) …
//!   before 7.4 was released:      the same without the earliest, and each deadline as it is
//!   in Valkey:                    count | field | value | deadline i64, -1 for none …
//! ```
//! Deadlines are Unix milliseconds. No form with deadlines can be read by both Redis and Valkey.

use std::sync::Arc;

use keyspace::{Expiry, FieldWrite, Hash, HashField};
use structures::listpack::Listpack;
use structures::listpack::element::{Element, IntText};

use super::error::{FormatError, FormatErrorKind};
use super::rules::Rules;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::templates::{FieldNames, Templates};
use super::value_type::ValueType;
use super::ziplist::{Ziplist, Zipmap};

/// A hash that is being read from the RDB format, field by field.
struct Filling<'r> {
    hash: Hash,
    rules: &'r Rules<'r>,
}

impl<'r> Filling<'r> {
    /// Creates an empty hash into which `count` fields will be read from the RDB format.
    fn new(count: u64, rules: &'r Rules<'r>) -> Self {
        let mut hash = Hash::new();
        hash.expect(usize::try_from(count).unwrap_or(usize::MAX), &rules.hash, rules.hasher);
        Self { hash, rules }
    }

    fn add(&mut self, name: &[u8], value: &[u8]) -> Result<(), FormatErrorKind> {
        self.add_until(FieldWrite { name, value, expiry: Expiry::Clear })
    }

    fn add_until(&mut self, write: FieldWrite<'_>) -> Result<(), FormatErrorKind> {
        let new = self.hash.set_with_expiry(write, &self.rules.hash, self.rules.hasher);
        if new { Ok(()) } else { Err(FormatErrorKind::Duplicate) }
    }
}

/// Reads a hash that is stored in the RDB format as a count, then each field with its value.
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

/// Reads a hash that is stored as one listpack of fields and values.
pub(super) fn read_listpack<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    let pack = reader.listpack()?;
    Hash::from_listpack(pack, &rules.hash, rules.hasher).map_err(|defect| reader.error(defect))
}

/// The latest valid deadline (expiry) of a field, in Unix milliseconds: 48 bits, as in Redis.
const DEADLINE_MS_MAX: i64 = (1 << 48) - 1;
/// The value that means no deadline, in the form [`Deadlines::Behind`].
const NO_DEADLINE_MS: i64 = -1;

/// The layouts in which the RDB format stores the deadline (expiry) of a hash field.
#[derive(Clone, Copy)]
pub(super) enum Deadlines {
    /// Each deadline of a field is stored before the field, in milliseconds after the earliest
    /// deadline, which precedes all fields.
    FromEarliest,
    /// Each deadline of a field is stored before the field, in Unix milliseconds.
    Absolute,
    /// Each deadline of a field is stored after the field's value, as eight bytes, in Unix
    /// milliseconds.
    Behind,
}

/// Reads a hash whose fields expire: a count, then fields, values and deadlines. With
/// [`Deadlines::FromEarliest`] the earliest deadline precedes the count.
pub(super) fn read_timed_fields<S: Source>(
    deadlines: Deadlines,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    let earliest_ms = match deadlines {
        Deadlines::FromEarliest => reader.time_ms()?,
        Deadlines::Absolute | Deadlines::Behind => 0,
    };
    let count = reader.length()?;
    let mut filling = Filling::new(count, rules);
    for _ in 0..count {
        let before = match deadlines {
            Deadlines::Behind => 0,
            Deadlines::FromEarliest | Deadlines::Absolute => reader.length()?,
        };
        let field = reader.string()?;
        let value = reader.string()?;
        let deadline_ms = match (deadlines, i64::try_from(before)) {
            (Deadlines::Behind, _) => Some(reader.time_ms()?).filter(|&at_ms| at_ms != NO_DEADLINE_MS),
            (_, Ok(0)) => None,
            (Deadlines::FromEarliest, Ok(more_ms)) => Some(earliest_ms.saturating_add(more_ms - 1)),
            (Deadlines::Absolute, Ok(at_ms)) => Some(at_ms),
            (_, Err(_)) => Some(i64::MAX),
        };
        let expiry = match deadline_ms {
            None => Expiry::Clear,
            Some(at_ms @ 1..=DEADLINE_MS_MAX) => Expiry::At(at_ms),
            Some(_) => return Err(reader.error(FormatErrorKind::FieldExpiry)),
        };
        let write = FieldWrite { name: &field, value: &value, expiry };
        filling.add_until(write).map_err(|kind| reader.error(kind))?;
    }
    Ok(filling.hash)
}

/// Reads a hash whose fields expire from a listpack of fields, values and deadlines. With
/// [`Deadlines::FromEarliest`] the earliest deadline precedes the listpack.
pub(super) fn read_timed_listpack<S: Source>(
    deadlines: Deadlines,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    if matches!(deadlines, Deadlines::FromEarliest) {
        // The earliest deadline is the first in the listpack, which is sorted.
        let _earliest_ms = reader.time_ms()?;
    }
    let pack = reader.listpack()?;
    let is_too_late = |element: Element<'_>| element.as_int().is_some_and(|at_ms| at_ms > DEADLINE_MS_MAX);
    if pack.iter().skip(2).step_by(3).any(is_too_late) {
        return Err(reader.error(FormatErrorKind::FieldExpiry));
    }
    Hash::from_timed_listpack(pack, &rules.hash, rules.hasher).map_err(|defect| reader.error(defect))
}

/// Reads a list of shared field names with its number, and adds it to `templates`. O(bytes), O(log
/// n) in the number of lists.
///
/// # Errors
/// If there are no names or they are not in order, the number is taken, or all lists would take too
/// much memory.
pub(crate) fn read_shared_names<S: Source>(
    reader: &mut Reader<S>,
    templates: &Templates,
) -> Result<(), FormatError> {
    let room_len_bytes = templates.room_len_bytes();
    let number = reader.length()?;
    let (mut names, mut last) = (FieldNames::default(), Vec::new());
    // The names are pushed as they are read; the count alone allocates nothing.
    for at in 0..reader.length()? {
        let name = reader.string()?;
        if at > 0 && (last.len(), &last) >= (name.len(), &name) {
            return Err(reader.error(FormatErrorKind::BrokenFieldNames));
        }
        names.push(&name);
        last = name;
        if names.memory_len_bytes() > room_len_bytes {
            return Err(reader.error(FormatErrorKind::TooManyFieldNames));
        }
    }
    let is_good = names.len() > 0 && templates.add(number, names, reader.file_offset());
    if is_good { Ok(()) } else { Err(reader.error(FormatErrorKind::BrokenFieldNames)) }
}

/// Reads the field names of a hash that precede their values in the RDB format: in a listpack, or
/// one by one.
fn read_names<S: Source>(reader: &mut Reader<S>) -> Result<FieldNames, FormatError> {
    let mut names = FieldNames::default();
    match reader.length()? {
        0 => reader.listpack()?.iter().for_each(|name| names.push(name.text(&mut IntText::new()))),
        1 => {
            // The names are pushed as they are read; the count alone allocates nothing.
            for _ in 0..reader.length()? {
                names.push(&reader.string()?);
            }
        }
        _ => return Err(reader.error(FormatErrorKind::BrokenLength)),
    }
    Ok(names)
}

/// Reads a hash: its field names, then a listpack whose first element is an unused number and whose
/// other elements are the values.
pub(super) fn read_template_listpack<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    let names = read_names(reader)?;
    let pack = reader.listpack()?;
    if pack.iter().next().and_then(|number| number.as_int()).is_none() {
        return Err(reader.error(FormatErrorKind::BrokenTemplate));
    }
    fill_from_listpack(&names, &pack, reader, rules)
}

/// Reads a hash from a listpack: the number of a list of shared field names, then the values in the
/// order of these names.
pub(super) fn read_template_listpack_ref<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
    templates: &Templates,
) -> Result<Hash, FormatError> {
    let pack = reader.listpack()?;
    let number = pack.iter().next().and_then(|number| number.as_int());
    let number = number.ok_or(reader.error(FormatErrorKind::BrokenTemplate))?;
    let names = names_of(number as u64, reader, templates)?;
    fill_from_listpack(&names, &pack, reader, rules)
}

/// Creates a hash from `names` and from the elements of a listpack after its first one, the values.
fn fill_from_listpack<S: Source>(
    names: &FieldNames,
    pack: &Listpack,
    reader: &Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    if pack.len() != names.len() + 1 {
        return Err(reader.error(FormatErrorKind::BrokenTemplate));
    }
    let mut filling = Filling::new(names.len() as u64, rules);
    for (name, value) in names.iter().zip(pack.iter().skip(1)) {
        filling.add(name, value.text(&mut IntText::new())).map_err(|kind| reader.error(kind))?;
    }
    Ok(filling.hash)
}

/// Reads a hash that is stored as its field names, then the same number of values.
pub(super) fn read_template_array<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    let names = read_names(reader)?;
    fill_from_array(&names, reader, rules)
}

/// Reads a hash: the number of a list of shared field names, then one value for each name.
pub(super) fn read_template_array_ref<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
    templates: &Templates,
) -> Result<Hash, FormatError> {
    let number = reader.length()?;
    let names = names_of(number, reader, templates)?;
    fill_from_array(&names, reader, rules)
}

fn fill_from_array<S: Source>(
    names: &FieldNames,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Hash, FormatError> {
    let mut filling = Filling::new(names.len() as u64, rules);
    for name in names.iter() {
        let value = reader.string()?;
        filling.add(name, &value).map_err(|kind| reader.error(kind))?;
    }
    Ok(filling.hash)
}

fn names_of<S: Source>(
    number: u64,
    reader: &Reader<S>,
    templates: &Templates,
) -> Result<Arc<FieldNames>, FormatError> {
    let names = templates.of_key(number, reader.file_offset());
    names.ok_or(reader.error(FormatErrorKind::UnknownFieldNames(number)))
}

/// Reads a hash that is stored as one ziplist of fields and values.
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

/// Reads a hash that is stored as a zipmap, the form of old versions of Redis.
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

/// Returns the earliest deadline of the hash's fields, in Unix milliseconds. O(n) if there is any
/// deadline.
fn earliest_deadline_ms(hash: &Hash) -> Option<i64> {
    hash.next_deadline_ms()?;
    hash.fields().filter_map(|field| field.deadline_ms).min()
}

/// Returns the RDB type as which a hash is written if every type of Redis is permitted.
pub(super) fn type_of(hash: &Hash) -> ValueType {
    match (earliest_deadline_ms(hash), hash.as_timed_listpack()) {
        (Some(_), Some(_)) => ValueType::HashListpackEx,
        (Some(_), None) => ValueType::HashMetadata,
        (None, _) if hash.as_listpack().is_some() => ValueType::HashListpack,
        // This includes a hash whose deadlines were all removed, so that any server can read it.
        (None, _) => ValueType::Hash,
    }
}

/// Writes a hash as the RDB type `kind`: the type of [`type_of`], or a type that stores the fields
/// one by one.
pub(super) fn write<S: Sink>(kind: ValueType, writer: &mut Writer<S>, hash: &Hash) {
    let deadlines = match kind {
        ValueType::HashMetadata | ValueType::HashListpackEx => {
            let earliest_ms = earliest_deadline_ms(hash).unwrap_or_default();
            writer.time_ms(earliest_ms);
            WrittenDeadlines::From { earliest_ms }
        }
        ValueType::HashValkey => WrittenDeadlines::Behind,
        _ => WrittenDeadlines::None,
    };
    match kind {
        ValueType::HashListpackEx if let Some(pack) = hash.as_timed_listpack() => {
            return writer.blob(pack.as_bytes());
        }
        ValueType::HashListpack if let Some(pack) = hash.as_listpack() => {
            return writer.blob(pack.as_bytes());
        }
        _ => {}
    }
    writer.length(hash.len() as u64);
    for field in hash.fields() {
        write_field(writer, &field, deadlines);
    }
}

/// The layout in which the deadlines of a hash's fields are written in the RDB format.
#[derive(Clone, Copy, Debug)]
pub(super) enum WrittenDeadlines {
    /// No deadlines of fields are written.
    None,
    /// Each deadline is written before its field, as [`Deadlines::FromEarliest`] describes.
    From {
        /// The earliest deadline of all fields, in Unix milliseconds.
        earliest_ms: i64,
    },
    /// Each deadline is written after the value of its field, as [`Deadlines::Behind`] describes.
    Behind,
}

/// Writes a field of a hash of type [`ValueType::Hash`], [`ValueType::HashMetadata`] or
/// [`ValueType::HashValkey`].
pub(super) fn write_field<S: Sink>(
    writer: &mut Writer<S>,
    field: &HashField<'_>,
    deadlines: WrittenDeadlines,
) {
    if let WrittenDeadlines::From { earliest_ms } = deadlines {
        // No deadline is 0; the earliest deadline itself is 1.
        writer.length(field.deadline_ms.map_or(0, |at_ms| (at_ms - earliest_ms) as u64 + 1));
    }
    writer.element(field.name);
    writer.element(field.value);
    if let WrittenDeadlines::Behind = deadlines {
        writer.time_ms(field.deadline_ms.unwrap_or(NO_DEADLINE_MS));
    }
}
