//! Sorted sets.

use keyspace::Zset;
use structures::listpack::element::{Element, IntText};

use super::error::{FormatError, FormatErrorKind};
use super::rules::Rules;
use super::sink::{Sink, Writer};
use super::source::{Reader, Source};
use super::value_type::ValueType;
use super::ziplist::Ziplist;

/// How scores stand behind members.
#[derive(Clone, Copy)]
pub(super) enum Scores {
    /// A byte of length, then decimal digits; the lengths from 253 on are NaN,
    /// infinity, minus infinity.
    Text,
    /// Eight bytes, the lowest first.
    Binary,
}

/// Members say their length only when they are read, so a set to come is not
/// known to have a long one.
const LONGEST_MEMBER_UNKNOWN: usize = 0;

fn add(zset: &mut Zset, member: &[u8], score: f64, rules: &Rules<'_>) -> Result<(), FormatErrorKind> {
    if score.is_nan() {
        return Err(FormatErrorKind::Score);
    }
    let new = zset.set(member, score, &rules.zset, rules.hasher).old.is_none();
    if new { Ok(()) } else { Err(FormatErrorKind::Duplicate) }
}

/// Count, members and scores.
pub(super) fn read_members<S: Source>(
    scores: Scores,
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Zset, FormatError> {
    let count = reader.length()?;
    let mut zset = Zset::new();
    let expected = usize::try_from(count).unwrap_or(usize::MAX);
    zset.expect(expected, LONGEST_MEMBER_UNKNOWN, &rules.zset, rules.hasher);
    for _ in 0..count {
        let member = reader.string()?;
        let score = match scores {
            Scores::Binary => f64::from_le_bytes(reader.array()?),
            Scores::Text => read_text_score(reader)?,
        };
        add(&mut zset, &member, score, rules).map_err(|kind| reader.error(kind))?;
    }
    Ok(zset)
}

fn read_text_score<S: Source>(reader: &mut Reader<S>) -> Result<f64, FormatError> {
    match reader.byte()? {
        253 => Ok(f64::NAN),
        254 => Ok(f64::INFINITY),
        255 => Ok(f64::NEG_INFINITY),
        len => {
            let text = reader.bytes(len.into())?;
            stdx::number::parse_f64(&text).ok_or(reader.error(FormatErrorKind::Score))
        }
    }
}

/// A ziplist of members and scores.
pub(super) fn read_ziplist<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Zset, FormatError> {
    let bytes = reader.string()?;
    let mut zset = Zset::new();
    let result = Ziplist::new(&bytes).and_then(|ziplist| {
        ziplist.pairs().try_for_each(|pair| {
            let (member, score) = pair?;
            let score = match score {
                Element::Int(score) => score as f64,
                Element::Bytes(text) => stdx::number::parse_f64(text).ok_or(FormatErrorKind::Score)?,
            };
            add(&mut zset, member.text(&mut IntText::new()), score, rules)
        })
    });
    result.map(|()| zset).map_err(|kind| reader.error(kind))
}

/// A listpack of members and scores.
pub(super) fn read_listpack<S: Source>(
    reader: &mut Reader<S>,
    rules: &Rules<'_>,
) -> Result<Zset, FormatError> {
    let pack = reader.listpack()?;
    Zset::from_listpack(pack, &rules.zset, rules.hasher).map_err(|defect| reader.error(defect))
}

/// The type in which a sorted set is written, where all types may be.
pub(super) fn type_of(zset: &Zset) -> ValueType {
    if zset.as_listpack().is_some() { ValueType::ZsetListpack } else { ValueType::Zset2 }
}

/// Writes a sorted set as `kind`: that of [`type_of`], or [`ValueType::Zset2`], from the last
/// member to the first, as Redis does, so that who reads it inserts at the front.
pub(super) fn write<S: Sink>(kind: ValueType, writer: &mut Writer<S>, zset: &Zset) {
    if let (ValueType::ZsetListpack, Some(pack)) = (kind, zset.as_listpack()) {
        return writer.blob(pack.as_bytes());
    }
    writer.length(zset.len() as u64);
    zset.iter().rev().for_each(|(member, score)| {
        writer.element(member);
        writer.raw(&score.to_le_bytes());
    });
}
