//! Reading and writing of sets in the RDB format.

use keyspace::{Set, SetView};

use super::error::{FormatError, FormatErrorKind};
use super::rules::Rules;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::value_type::ValueType;

/// Reads a set that is stored in the RDB format as a count and its members one by one.
pub(super) fn read_members<S: Source>(reader: &mut Reader<S>, rules: &Rules<'_>) -> Result<Set, FormatError> {
    let mut set = Set::new();
    let count = reader.length()?;
    for at in 0..count {
        let member = reader.string()?;
        if at == 0 {
            // As in Redis, a set with more members than an intset may have becomes a table,
            // whatever the limits of listpacks are.
            let expected = usize::try_from(count).unwrap_or(usize::MAX);
            let expected = if expected > rules.set.intset_entries_max { usize::MAX } else { expected };
            set.expect(expected, &member, &rules.set, rules.hasher);
        }
        if !set.add(&member, &rules.set, rules.hasher) {
            return Err(reader.error(FormatErrorKind::Duplicate));
        }
    }
    Ok(set)
}

/// Reads a set of integers that is stored in the RDB format as an intset.
pub(super) fn read_intset<S: Source>(reader: &mut Reader<S>, rules: &Rules<'_>) -> Result<Set, FormatError> {
    Ok(Set::from_intset(reader.intset()?, &rules.set, rules.hasher))
}

/// Reads a set that is stored in the RDB format as one listpack of members.
pub(super) fn read_listpack<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Set, FormatError> {
    let pack = reader.listpack()?;
    Set::from_listpack(pack, &rules.set, rules.hasher).map_err(|defect| reader.error(defect))
}

/// Returns the RDB type as which a set is written if every type is permitted.
pub(super) fn type_of(set: &Set) -> ValueType {
    match set.view() {
        SetView::Ints(_) => ValueType::SetIntset,
        SetView::Pack(_) => ValueType::SetListpack,
        SetView::Table => ValueType::Set,
    }
}

/// Writes a set as the RDB type `kind`: the type of [`type_of`], or [`ValueType::Set`].
pub(super) fn write<S: Sink>(kind: ValueType, writer: &mut Writer<S>, set: &Set) {
    match set.view() {
        SetView::Ints(ints) if kind == ValueType::SetIntset => writer.blob(ints.as_bytes()),
        SetView::Pack(pack) if kind == ValueType::SetListpack => writer.blob(pack.as_bytes()),
        _ => {
            writer.length(set.len() as u64);
            set.iter().for_each(|member| writer.element(member));
        }
    }
}
